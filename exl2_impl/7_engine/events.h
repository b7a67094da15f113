/* events.h: a byte ring for events that wait for exl2_next_event. A record holds an event and all that it points to.
   takes: events; memory for the ring.
   gives: exl2__events_push, exl2__events_pull, exl2__events_release; exl2__events_reserve, which reserves room for
          events of a later pass.
   owns:  nothing; the ring is part of the engine's block. */
#ifndef EXL2__EVENTS_H
#define EXL2__EVENTS_H

#include "../0_base/arena.h"

#define EXL2__EVENT_BYTES 256u     /* ring bytes per event of max_events */
#define EXL2__EVENTS_MIN 65536u    /* ring bytes at least: room for one event of the largest kind */
#define EXL2__EVENT_TOKENS_MAX 16u /* prompt tokens of one event at most */

/* Records are 8-byte aligned and never wrap; a record of kind 0 fills the end of the ring. */
typedef struct exl2__events {
    uint8_t *ring;
    uint32_t size, head, used; /* head: oldest record; used: bytes from there */
    uint32_t reading;          /* bytes of the record that the application is reading */
    uint32_t reserved;         /* bytes reserved for the scores of passes in flight */
    uint32_t records;          /* number of events */
} exl2__events;

typedef struct exl2__event_record {
    uint32_t bytes;
    exl2_event event;
} exl2__event_record;

static inline void exl2__events_make(exl2__events *q, exl2__arena *arena, uint32_t max_events)
{
    uint64_t bytes = exl2__max64((uint64_t)max_events * EXL2__EVENT_BYTES, EXL2__EVENTS_MIN);
    *q = (exl2__events){ .size = (uint32_t)exl2__min64(bytes, UINT32_MAX & ~7u) };
    q->ring = (uint8_t *)exl2__arena_alloc(arena, q->size);
}

static inline uint32_t exl2__events_size(const exl2_event *event)
{
    size_t alts = (size_t)event->token_count * event->alts_per_token;
    size_t bytes = sizeof(exl2__event_record) + (event->token_count + alts) * sizeof(exl2_alt)
                 + (event->logsumexp ? event->token_count : 0) * sizeof(float) + event->value_count * sizeof(float)
                 + (event->text ? event->bytes + 1 : 0) + (event->error ? strlen(event->error) + 1 : 0);
    return (uint32_t)exl2__align_up(bytes, 8);
}

/* Upper bound of the ring bytes for the events of `rows` scored rows of a pass, with `alts` alternatives each. Each
   group of rows whose logits exist at the same time makes one event. The first and the last row may lie in groups that
   they share with other jobs' rows, hence the + 2. */
static inline uint64_t exl2__events_scores_bytes(uint64_t rows, uint32_t alts)
{
    uint64_t row = sizeof(exl2_alt) * (1 + (uint64_t)alts) + sizeof(float), head = sizeof(exl2__event_record) + 8;
    return rows ? rows * row + (rows / EXL2__EVENT_TOKENS_MAX + 2) * head : 0;
}

/* Bytes kept free beside the reserved ones: where the ring wraps, less than one event's bytes stay empty at its end. */
static inline uint64_t exl2__events_spare(void)
{
    return exl2__events_scores_bytes(EXL2__EVENT_TOKENS_MAX, EXL2_ALTS_MAX);
}

/* Whether `bytes` more fit in one piece; *skip: bytes to fill at the end of the ring before it. */
static inline bool exl2__events_place(const exl2__events *q, uint32_t bytes, uint32_t *skip)
{
    uint32_t tail = (uint32_t)(((uint64_t)q->head + q->used) % q->size);
    bool wraps = tail >= q->head && bytes > q->size - tail;
    *skip = wraps ? q->size - tail : 0;
    uint64_t kept = q->reserved ? q->reserved + exl2__events_spare() : 0;
    return (uint64_t)q->used + *skip + bytes + kept <= q->size;
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
    q->records++;
    record->bytes = bytes;
    record->event = *event;
    uint8_t *at = (uint8_t *)(record + 1);
    exl2_event *copy = &record->event;
    if (event->tokens) {
        copy->tokens = (exl2_alt *)exl2__events_copy(&at, event->tokens, event->token_count * sizeof(exl2_alt));
    }
    if (event->alts) {
        size_t alts = (size_t)event->token_count * event->alts_per_token;
        copy->alts = (exl2_alt *)exl2__events_copy(&at, event->alts, alts * sizeof(exl2_alt));
    }
    if (event->logsumexp) {
        copy->logsumexp = (float *)exl2__events_copy(&at, event->logsumexp, event->token_count * sizeof(float));
    }
    if (event->values) {
        copy->values = (float *)exl2__events_copy(&at, event->values, event->value_count * sizeof(float));
    }
    if (event->text) {
        copy->text = (char *)exl2__events_copy(&at, event->text, event->bytes + 1);
    }
    if (event->error) {
        copy->error = (char *)exl2__events_copy(&at, event->error, strlen(event->error) + 1);
    }
    return true;
}

/* When the ring becomes empty, head returns to 0, so that the largest event fits in one piece. */
static inline void exl2__events_drop(exl2__events *q, uint32_t bytes)
{
    EXL2__ASSERT(bytes <= q->used);
    q->used -= bytes;
    q->head = q->used ? (uint32_t)(((uint64_t)q->head + bytes) % q->size) : 0;
}

/* ---- scores: room for all events of a pass, reserved before it begins ---- */

/* The number of scored rows, at most `rows`, whose events fit in `room` bytes. */
static inline uint32_t exl2__events_rows(uint32_t rows, uint32_t alts, uint64_t room)
{
    while (rows > 0 && exl2__events_scores_bytes(rows, alts) > room) {
        rows -= exl2__max32(1, rows / 16);
    }
    return rows;
}

/* Reserves room for the events of at most `rows` scored rows; returns the number of rows that the ring has room for.
   *owned: the owner's reserved bytes, 0 before the call. */
static inline uint32_t exl2__events_reserve(exl2__events *q, uint32_t rows, uint32_t alts, uint32_t *owned)
{
    uint64_t used = (uint64_t)q->used + q->reserved + exl2__events_spare();
    uint64_t room = used < q->size ? q->size - used : 0;
    rows = exl2__events_rows(rows, alts, room);
    *owned = (uint32_t)exl2__events_scores_bytes(rows, alts);
    q->reserved += *owned;
    EXL2__ASSERT((uint64_t)q->used + q->reserved <= q->size);
    return rows;
}

/* Reduces the owner's reservation to `rows` rows. q NULL: it has none. */
static inline void exl2__events_reserve_less(exl2__events *q, uint32_t rows, uint32_t alts, uint32_t *owned)
{
    if (!q) {
        return;
    }
    uint32_t bytes = (uint32_t)exl2__min64(exl2__events_scores_bytes(rows, alts), *owned);
    EXL2__ASSERT(*owned <= q->reserved);
    q->reserved -= *owned - bytes;
    *owned = bytes;
}

/* Adds an event for which room was reserved. */
static inline void exl2__events_push_reserved(exl2__events *q, const exl2_event *event, uint32_t *owned)
{
    uint32_t bytes = exl2__min32(exl2__events_size(event), *owned), others = q->reserved - bytes;
    q->reserved = 0; /* so that the push may use the owner's bytes; the other owners' bytes and the spare remain free */
    bool pushed = exl2__events_push(q, event);
    EXL2__ASSERT(pushed);
    (void)pushed;
    q->reserved = others;
    *owned -= bytes;
}

/* ---- the application's side ---- */

/* Frees the bytes of the event that was pulled last: its pointers are not valid any more. */
static inline void exl2__events_release(exl2__events *q)
{
    exl2__events_drop(q, q->reading);
    q->reading = 0;
}

/* Removes the oldest event; its pointers are valid until the next call. */
static inline bool exl2__events_pull(exl2__events *q, exl2_event *out)
{
    exl2__events_release(q);
    while (q->used) {
        uint32_t tail_room = q->size - q->head;
        exl2__event_record *record = (exl2__event_record *)(void *)(q->ring + q->head);
        if (tail_room >= sizeof *record && record->event.kind != 0) {
            *out = record->event;
            q->reading = record->bytes;
            q->records--;
            return true;
        }
        exl2__events_drop(q, tail_room < sizeof *record ? tail_room : record->bytes);
    }
    return false;
}

#endif
