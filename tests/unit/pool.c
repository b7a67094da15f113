/* pool.c: ids of slots: a stale id never names a later object. */
#include "../../exl2.h"

#include "private/platform_alloc.h"
#include "private/pool.h"
#include "../check.h"

#define SLOTS 4
#define OPENS 1000000000ull /* number of ids among which none may repeat */

static exl2__ctx ctx;
static exl2__arena arena;

static exl2__pool make(uint32_t capacity)
{
    exl2__pool p;
    exl2__arena dry = { 0 };
    exl2__pool_make(&p, &dry, capacity);
    ctx.allocator = exl2__platform_allocator();
    CHECK_INT(exl2__arena_open(&ctx, &arena, dry.used, EXL2_MEM_GENERAL), EXL2_OK);
    exl2__pool_make(&p, &arena, capacity);
    return p;
}

static void end(void)
{
    exl2__arena_close(&ctx, &arena);
}

static void takes_and_gives(void)
{
    exl2__pool p = make(SLOTS);
    uint64_t ids[SLOTS];
    for (uint32_t i = 0; i < SLOTS; i++) {
        ids[i] = exl2__pool_alloc(&p);
        CHECK(ids[i] != 0);
        CHECK_INT(exl2__pool_slot_of(ids[i]), i);
        CHECK_INT(exl2__pool_slot(&p, ids[i]), i);
    }
    CHECK(exl2__pool_alloc(&p) == 0);
    CHECK_INT(p.end, SLOTS);
    exl2__pool_free(&p, 2);
    CHECK_INT(exl2__pool_slot(&p, ids[2]), -1);
    CHECK_INT(exl2__pool_slot(&p, ids[3]), 3);
    CHECK_INT(p.end, SLOTS);
    exl2__pool_free(&p, 3);
    CHECK_INT(p.end, 2);
    uint64_t again = exl2__pool_alloc(&p);
    CHECK_INT(exl2__pool_slot_of(again), 2);
    CHECK(again != ids[2] && exl2__pool_slot(&p, ids[2]) == -1);
    static const uint64_t none[] = { 0, 1, 2, 0xFFFFFFFF, 1ull << 32, (1ull << 32) + SLOTS + 1, UINT64_MAX };
    for (uint32_t i = 0; i < EXL2__COUNT(none); i++) {
        CHECK_INT(exl2__pool_slot(&p, none[i]), -1);
    }
    end();
}

/* Ids of a slot only grow, so none repeats. They keep growing where 16, 24 and 31 bits of the generation overflow. */
static void never_twice(void)
{
    static const uint32_t from[] = { 0, 0xFFF0, 0xFFFFF0, 0x7FFFFFF0, (uint32_t)OPENS, 0xFFFF0000 };
    exl2__pool p = make(1);
    uint64_t first = exl2__pool_alloc(&p), last = first, opens = 0;
    exl2__pool_free(&p, 0);
    for (uint32_t i = 0; i < EXL2__COUNT(from); i++) {
        /* as if that many had been opened */
        p.generations[0] = p.generations[0] > from[i] ? p.generations[0] : from[i];
        for (uint32_t k = 0; k < 200000; k++) {
            uint64_t id = exl2__pool_alloc(&p);
            if (id == 0) {
                break;
            }
            CHECK(id > last && exl2__pool_slot(&p, id) == 0 && exl2__pool_slot(&p, last) == -1);
            last = id;
            opens++;
            exl2__pool_free(&p, 0);
        }
    }
    CHECK(opens > 1000000);
    CHECK_INT(exl2__pool_slot(&p, first), -1);
    CHECK(last >> 32 == UINT32_MAX && UINT32_MAX > OPENS); /* one slot alone has more ids than required */
    end();
}

/* A slot that has used up its generations stays empty; the others continue. */
static void used_up(void)
{
    exl2__pool p = make(2);
    p.generations[0] = UINT32_MAX - 1;
    uint64_t last = exl2__pool_alloc(&p);
    CHECK(last >> 32 == UINT32_MAX && exl2__pool_slot_of(last) == 0);
    exl2__pool_free(&p, 0);
    uint64_t next = exl2__pool_alloc(&p);
    CHECK_INT(exl2__pool_slot_of(next), 1);
    CHECK(exl2__pool_alloc(&p) == 0);
    CHECK_INT(exl2__pool_slot(&p, last), -1);
    CHECK_INT(exl2__pool_slot(&p, next), 1);
    end();
}

int main(void)
{
    takes_and_gives();
    never_twice();
    used_up();
    return check_done();
}
