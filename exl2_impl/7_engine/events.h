/* events.h: a byte ring for events that the host pulls. An event lies in it with everything it points to.
   takes: events; memory for the ring.
   gives: exl2__events_push, exl2__events_pull.
   owns:  nothing; the ring is part of the engine's block.
   next:  objects.h */
#ifndef EXL2__EVENTS_H
#define EXL2__EVENTS_H

#include "../0_base/arena.h"

#define EXL2__EVENT_BYTES 256u     /* ring bytes per event of max_events */
#define EXL2__EVENTS_MIN 65536u    /* ring bytes at least: room for one event of the largest kind */
#define EXL2__EVENT_TOKENS_MAX 16u /* tokens of one event */

/* Records are 8-byte aligned and never wrap; a record of kind 0 fills the end of the ring. */
typedef struct exl2__events {
    uint8_t *ring;
    uint32_t size, head, used; /* head: oldest record; used: bytes from there */
    uint32_t lent;             /* bytes of the record that the host is reading */
} exl2__events;

typedef struct exl2__event_record {
    uint32_t bytes;
    exl2_event event;
} exl2__event_record;

static inline void exl2__events_make(exl2__events *q, exl2__arena *arena, uint32_t max_events)
{
    uint64_t bytes = exl2__max64((uint64_t)max_events * EXL2__EVENT_BYTES, EXL2__EVENTS_MIN);
    *q = (exl2__events){ NULL, (uint32_t)exl2__min64(bytes, UINT32_MAX & ~7u), 0, 0, 0 };
    q->ring = (uint8_t *)exl2__arena_take(arena, q->size);
}

static inline uint32_t exl2__events_size(const exl2_event *event)
{
    size_t alts = (size_t)event->token_count * event->alts_per_token;
    size_t bytes = sizeof(exl2__event_record) + (event->token_count + alts) * sizeof(exl2_alt)
                 + (event->logsumexp ? event->token_count : 0) * sizeof(float)
                 + (event->text ? event->bytes + 1 : 0) + (event->error ? strlen(event->error) + 1 : 0);
    return (uint32_t)exl2__align_up(bytes, 8);
}

/* Whether `bytes` more fit in one piece; *skip: bytes to fill at the end of the ring before it. */
static inline bool exl2__events_place(const exl2__events *q, uint32_t bytes, uint32_t *skip)
{
    uint32_t tail = (uint32_t)(((uint64_t)q->head + q->used) % q->size);
    bool wraps = tail >= q->head && bytes > q->size - tail;
    *skip = wraps ? q->size - tail : 0;
    return (uint64_t)q->used + *skip + bytes <= q->size;
}

static inline void *exl2__events_copy(uint8_t **at, const void *from, size_t bytes)
{
    void *to = *at;
    if (bytes) {
        memcpy(to, from, bytes);
    }
    *at += bytes;
    return to;
}

/* false: no room; nothing has changed. */
static inline bool exl2__events_push(exl2__events *q, const exl2_event *event)
{
    uint32_t bytes = exl2__events_size(event), skip;
    if (!exl2__events_place(q, bytes, &skip)) {
        return false;
    }
    if (skip >= sizeof(exl2__event_record)) { /* a shorter end is recognised by its length */
        exl2__event_record filler = { 0 };
        filler.bytes = skip;
        memcpy(q->ring + (q->head + q->used) % q->size, &filler, sizeof filler);
    }
    q->used += skip;
    exl2__event_record *record = (exl2__event_record *)(void *)(q->ring + (q->head + q->used) % q->size);
    q->used += bytes;
    record->bytes = bytes;
    record->event = *event;
    uint8_t *at = (uint8_t *)(record + 1);
    exl2_event *copy = &record->event;
    copy->tokens = (exl2_alt *)exl2__events_copy(&at, event->tokens, event->token_count * sizeof(exl2_alt));
    copy->alts = (exl2_alt *)exl2__events_copy(&at, event->alts,
                                               (size_t)event->token_count * event->alts_per_token * sizeof(exl2_alt));
    if (event->logsumexp) {
        copy->logsumexp = (float *)exl2__events_copy(&at, event->logsumexp, event->token_count * sizeof(float));
    }
    if (event->text) {
        copy->text = (char *)exl2__events_copy(&at, event->text, event->bytes + 1);
    }
    if (event->error) {
        copy->error = (char *)exl2__events_copy(&at, event->error, strlen(event->error) + 1);
    }
    return true;
}

static inline void exl2__events_drop(exl2__events *q, uint32_t bytes)
{
    q->head = (uint32_t)(((uint64_t)q->head + bytes) % q->size);
    q->used -= bytes;
}

/* The oldest event; what it points to lives until the next call. */
static inline bool exl2__events_pull(exl2__events *q, exl2_event *out)
{
    exl2__events_drop(q, q->lent);
    q->lent = 0;
    while (q->used) {
        uint32_t tail_room = q->size - q->head;
        exl2__event_record *record = (exl2__event_record *)(void *)(q->ring + q->head);
        if (tail_room >= sizeof *record && record->event.kind != 0) {
            *out = record->event;
            q->lent = record->bytes;
            return true;
        }
        exl2__events_drop(q, tail_room < sizeof *record ? tail_room : record->bytes);
    }
    return false;
}

#endif
