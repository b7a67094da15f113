/* bpe.c: merging with a heap, compared with the definition: repeatedly merge the leftmost pair of the lowest rank. */
#include "../check.h"
#include "private/platform_alloc.h"
#include "private/bpe.h"

#define SYMBOLS 400

static exl2__ctx context;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static uint32_t rank_of(const exl2__bpe_merge *merges, uint32_t count, uint32_t left, uint32_t right)
{
    for (uint32_t rank = count; rank-- > 0;) { /* of equal pairs the later one counts */
        if (merges[rank].left == left && merges[rank].right == right) {
            return rank;
        }
    }
    return EXL2__BPE_NONE;
}

static uint32_t merge_plainly(const exl2__bpe_merge *merges, uint32_t merge_count, uint32_t *ids, uint32_t count)
{
    for (;;) {
        uint32_t best = EXL2__BPE_NONE, best_at = 0;
        for (uint32_t i = 0; i + 1 < count; i++) {
            uint32_t rank = rank_of(merges, merge_count, ids[i], ids[i + 1]);
            if (rank < best) {
                best = rank;
                best_at = i;
            }
        }
        if (best == EXL2__BPE_NONE) {
            return count;
        }
        ids[best_at] = merges[best].id;
        memmove(ids + best_at + 1, ids + best_at + 2, (count - best_at - 2) * sizeof *ids);
        count--;
    }
}

static void make(exl2__bpe *b, exl2__arena *arena, const exl2__bpe_merge *merges, uint32_t count)
{
    exl2__arena dry = { 0 };
    *b = (exl2__bpe){ 0 };
    exl2__bpe_make(b, &dry, count);
    CHECK(exl2__arena_open(&context, arena, dry.used, EXL2_MEM_GENERAL) == EXL2_OK);
    memset(arena->base, 0, (size_t)arena->size);
    exl2__bpe_make(b, arena, count);
    CHECK_INT(arena->used, dry.used);
    for (uint32_t rank = 0; rank < count; rank++) {
        CHECK(exl2__bpe_add(b, rank, merges[rank]));
    }
}

static void check_random(void)
{
    uint32_t state = 7, changed = 0;
    for (int round = 0; round < 3000; round++) {
        exl2__bpe_merge merges[24];
        uint32_t merge_count = 1 + next_random(&state) % 24, letters = 1 + next_random(&state) % 4;
        for (uint32_t i = 0; i < merge_count; i++) { /* later merges build on earlier ones; some pairs occur twice */
            merges[i].left = next_random(&state) % (letters + i);
            merges[i].right = next_random(&state) % (letters + i);
            merges[i].id = letters + i;
        }
        for (uint32_t i = merge_count; i > 1; i--) { /* ranks in any order */
            uint32_t other = next_random(&state) % i;
            exl2__bpe_merge moved = merges[i - 1];
            merges[i - 1] = merges[other];
            merges[other] = moved;
        }
        exl2__bpe b;
        exl2__arena arena, work;
        make(&b, &arena, merges, merge_count);
        uint32_t ids[SYMBOLS], count = 1 + next_random(&state) % (round % 10 ? 12 : SYMBOLS);
        CHECK(exl2__arena_open(&context, &work, exl2__bpe_work_bytes(count), EXL2_MEM_GENERAL) == EXL2_OK);
        exl2__bpe_symbol *s = (exl2__bpe_symbol *)(void *)work.base;
        for (uint32_t i = 0; i < count; i++) {
            ids[i] = s[i].id = next_random(&state) % letters;
        }
        uint32_t wanted = merge_plainly(merges, merge_count, ids, count), got = 0;
        exl2__bpe_run(&b, work.base, count);
        for (uint32_t at = 0; at != EXL2__BPE_NONE; at = s[at].next) {
            CHECK(got < wanted && s[at].id == ids[got]);
            got++;
        }
        CHECK_INT(got, wanted);
        changed += wanted < count;
        exl2__arena_close(&context, &work);
        exl2__arena_close(&context, &arena);
    }
    CHECK(changed > 1000);
}

/* Pairs made to hash into one slot are rejected before they cost quadratic time. */
static void check_collisions(void)
{
    enum { PAIRS = 20000 };
    exl2__bpe b = { 0 };
    exl2__arena arena, dry = { 0 };
    exl2__bpe_make(&b, &dry, PAIRS);
    CHECK(exl2__arena_open(&context, &arena, dry.used, EXL2_MEM_GENERAL) == EXL2_OK);
    memset(arena.base, 0, (size_t)arena.size);
    exl2__bpe_make(&b, &arena, PAIRS);
    uint32_t rank = 0;
    bool refused = false;
    for (uint32_t left = 0; left < 4096 && !refused; left++) {
        for (uint32_t right = 0; right < 65536 && rank < PAIRS && !refused; right++) {
            if ((exl2__bpe_hash(left, right) & b.mask) < 4) {
                exl2__bpe_merge merge = { left, right, 0 };
                refused = !exl2__bpe_add(&b, rank++, merge);
            }
        }
    }
    CHECK(refused && rank > 500 && rank < PAIRS);
    exl2__arena_close(&context, &arena);
}

int main(void)
{
    context.allocator = exl2__platform_allocator();
    check_random();
    check_collisions();
    CHECK_INT(context.host_bytes, 0);
    return check_done();
}
