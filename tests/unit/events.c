/* events.c: the ring of events: events come out whole and in order. The largest event always fits an empty ring.
   Reserved room is available whatever else was pushed and pulled meanwhile. */
#include "../../exl2.h"

#include "private/platform_alloc.h"
#include "private/events.h"
#include "../check.h"

typedef struct ring_rig {
    exl2__ctx c;
    exl2__arena arena;
    exl2__events q;
} ring_rig;

static void ring_open(ring_rig *r, uint32_t max_events)
{
    memset(r, 0, sizeof *r);
    exl2__arena dry = { 0 };
    r->c.allocator = exl2__platform_allocator();
    exl2__events_make(&r->q, &dry, max_events);
    CHECK_INT(exl2__arena_open(&r->c, &r->arena, dry.used, EXL2_MEM_GENERAL), EXL2_OK);
    exl2__events_make(&r->q, &r->arena, max_events);
}

static void ring_close(ring_rig *r)
{
    exl2__arena_close(&r->c, &r->arena);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* ---- events made from a number ---- */

static exl2_alt tokens[600], alts[600 * EXL2_ALTS_MAX];
static float sums[600];
static char text[8192];

static exl2_event numbered(uint32_t number, uint32_t count, uint32_t per_token, uint32_t bytes, bool scores)
{
    exl2_event event = { .kind = EXL2_EVENT_TEXT, .token_count = count, .alts_per_token = per_token, .bytes = bytes };
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = (exl2_alt){ (exl2_token)(number + i), (float)i };
        sums[i] = (float)(number + 2 * i);
    }
    for (uint32_t i = 0; i < count * per_token; i++) {
        alts[i] = (exl2_alt){ (exl2_token)(number ^ i), (float)number };
    }
    for (uint32_t i = 0; i < bytes; i++) {
        text[i] = (char)('a' + (number + i) % 26);
    }
    text[bytes] = 0;
    event.job.id = number;
    event.tokens = count ? tokens : NULL;
    event.alts = count && per_token ? alts : NULL;
    event.logsumexp = scores ? sums : NULL;
    event.text = bytes ? text : NULL;
    return event;
}

static void check_number(const exl2_event *ev, uint32_t number)
{
    bool same = ev->job.id == number;
    for (uint32_t i = 0; same && i < ev->token_count; i++) {
        same = ev->tokens[i].token == (exl2_token)(number + i);
        same = same && (!ev->logsumexp || (uint32_t)ev->logsumexp[i] == number + 2 * i);
    }
    for (uint32_t i = 0; same && i < ev->token_count * ev->alts_per_token; i++) {
        same = ev->alts[i].token == (exl2_token)(number ^ i);
    }
    for (uint32_t i = 0; same && i < ev->bytes; i++) {
        same = ev->text[i] == (char)('a' + (number + i) % 26);
    }
    CHECK(same);
    CHECK((ev->alts != NULL) == (ev->alts_per_token > 0 && ev->token_count > 0)); /* as in a callback */
    CHECK((ev->tokens != NULL) == (ev->token_count > 0));
    CHECK((ev->text != NULL) == (ev->bytes > 0));
}

/* The largest event that a job can have fits wherever the ring's positions are, once the application has read all
   events. */
static void largest_fits_when_empty(void)
{
    ring_rig r;
    exl2_event out, largest = numbered(7, 520, 7, 5632, false); /* 4,096 alternatives of about 7 bytes each */
    ring_open(&r, 1);
    CHECK_INT(r.q.size, 65536);
    CHECK(exl2__events_size(&largest) > r.q.size / 2);
    uint32_t seen = 0;
    for (uint32_t before = 0; before < 256; before++) { /* small events that the application has already read */
        exl2__arena_close(&r.c, &r.arena);
        ring_open(&r, 1);
        for (uint32_t i = 0; i < before; i++) {
            exl2_event small = numbered(i, 1, 0, 1 + before % 8, false);
            CHECK(exl2__events_push(&r.q, &small));
            CHECK(exl2__events_pull(&r.q, &out));
        }
        CHECK(!exl2__events_pull(&r.q, &out)); /* this call frees the last event */
        exl2_event event = numbered(7, 520, 7, 5632, false);
        CHECK(exl2__events_push(&r.q, &event));
        if (exl2__events_pull(&r.q, &out)) {
            check_number(&out, 7);
            seen++;
        }
    }
    CHECK_INT(seen, 256);
    ring_close(&r);
}

/* Owners reserve room, others push whatever fits, the application pulls now and then. A reserved event always finds its
   room, nothing is lost, and the order never changes. */
static void reserved_room_is_there(void)
{
    enum { OWNERS = 5 };
    ring_rig r;
    uint32_t state = 3, in = 0, out = 0, reserves = 0, refused = 0, scored = 0;
    ring_open(&r, 1);
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t mine[OWNERS] = { 0 }, rows[OWNERS], per_token[OWNERS], total = 0;
        exl2_event event;
        for (uint32_t i = next_random(&state) % 40; i > 0 && exl2__events_pull(&r.q, &event); i--) {
            check_number(&event, out++);
        }
        for (uint32_t i = 0; i < OWNERS; i++) {
            per_token[i] = next_random(&state) % (EXL2_ALTS_MAX + 1);
            uint32_t wanted = 1 + next_random(&state) % 200;
            rows[i] = exl2__events_reserve(&r.q, wanted, per_token[i], &mine[i]);
            CHECK(rows[i] <= wanted);
            reserves += rows[i] > 0;
            refused += rows[i] == 0;
            if (next_random(&state) % 4 == 0) {
                rows[i] /= 2;
                exl2__events_reserve_less(&r.q, rows[i], per_token[i], &mine[i]);
            }
            total += mine[i];
        }
        CHECK_INT(r.q.reserved, total);
        for (uint32_t owner = 0; owner < OWNERS;) {
            uint32_t what = next_random(&state) % 4;
            if (what == 0) { /* an event of another owner */
                event = numbered(in, next_random(&state) % 20, 3, 1 + next_random(&state) % 700, false);
                in += exl2__events_push(&r.q, &event);
            } else if (what == 1) {
                if (exl2__events_pull(&r.q, &event)) {
                    check_number(&event, out++);
                }
            } else if (rows[owner] == 0) {
                exl2__events_reserve_less(&r.q, 0, 0, &mine[owner]);
                owner++;
            } else { /* the first or last group of rows may have an event alone */
                uint32_t count = rows[owner] < EXL2__EVENT_TOKENS_MAX ? rows[owner] : EXL2__EVENT_TOKENS_MAX;
                event = numbered(in, count, per_token[owner], 0, true);
                uint32_t used = r.q.used;
                exl2__events_push_reserved(&r.q, &event, &mine[owner]);
                CHECK(r.q.used >= used + exl2__events_size(&event)); /* the event was pushed */
                in++;
                scored += count;
                rows[owner] -= count;
            }
        }
        CHECK_INT(r.q.reserved, 0);
    }
    exl2_event event;
    while (exl2__events_pull(&r.q, &event)) {
        check_number(&event, out++);
    }
    printf("%u events, %u scores, %u reserves, %u did not fit\n", in, scored, reserves, refused);
    CHECK_INT(out, in);
    CHECK(reserves > 1000 && refused > 1000);
    ring_close(&r);
}

/* The predicted size of scored rows holds for every way to split them into groups of 16. */
static void predicted(void)
{
    for (uint32_t per_token = 0; per_token <= EXL2_ALTS_MAX; per_token += 16) {
        for (uint32_t rows = 1; rows < 100; rows++) {
            for (uint32_t first = 1; first <= EXL2__EVENT_TOKENS_MAX; first++) {
                uint64_t bytes = 0;
                for (uint32_t row = 0, count; row < rows; row += count) {
                    count = row ? EXL2__EVENT_TOKENS_MAX : first;
                    count = count < rows - row ? count : rows - row;
                    exl2_event event = numbered(1, count, per_token, 0, true);
                    bytes += exl2__events_size(&event);
                }
                CHECK(bytes <= exl2__events_scores_bytes(rows, per_token));
            }
        }
    }
    CHECK_INT(exl2__events_scores_bytes(0, EXL2_ALTS_MAX), 0);
}

int main(void)
{
    largest_fits_when_empty();
    reserved_room_is_there();
    predicted();
    return check_done();
}
