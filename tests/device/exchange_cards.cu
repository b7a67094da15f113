/* exchange_cards.cu: kernels that only hand vectors over between two GPUs, for exchange_cards.c. One of them runs on
   each GPU at the same time.
   takes: base.cuh.
   gives: exl2k_exchange_flags, exl2k_exchange_data, exl2k_exchange_words; their arguments: exl2k_exchange_cards_args.

   In round r pair p of the vector is cards_pair(r, p), made by the CTA that p belongs to: GPU g makes half g of the
   vector, in strips of 16 halves that its CTAs share. All CTAs of both GPUs read and check the whole vector, in the
   memory of their own GPU, before they make their strips of the next round, as the products of successive layers would.

   flags: halves are stored to both GPUs; then a flag for each CTA, released at system scope, says so.
   data:  halves are stored to both GPUs and carry their readiness: 0xFFFF is not there yet.
   words: to the other GPU go words of a pair and the number of the round, by way of memory that both reach (the other
          GPU's, or pinned host memory). CTA c takes those of the other GPU's CTA c and hands them on as `data` does. */
#include "base.cuh"

typedef struct exl2k_exchange_cards_args {
    u64 own, other;             /* u16 [4][halves], all 0xFFFF at first: of this GPU, and of the other one */
    u64 own_flags, other_flags; /* u32 [2][2][CTAs] of this GPU and of the other one: set, GPU that writes, CTA */
    u64 out_words, in_words;    /* u64 [2][halves / 4]: what this GPU sends, and what it receives */
    u64 up, start;              /* u32: this GPU's kernel runs; both GPUs' kernels run: begin */
    u64 ns;                     /* u64 [CTAs]: time of all rounds */
    u64 wrong, late;            /* u32: pairs that had another value; CTAs that waited in vain */
    u32 card;                   /* 0 or 1 */
    u32 halves, rounds;
    u32 skip;                   /* rounds before the time is taken */
} exl2k_exchange_cards_args;

#define CARDS_READERS 512u
#define CARDS_THREADS 544u /* one more warp empties slots */
#define CARDS_PIECES 7u    /* pieces of 8 halves that a thread has on their way: all of 28,672 halves */
#define CARDS_LIMIT_NS 2000000000ull

EXL2K_FN u64 cards_clock(void)
{
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Never an infinity or NaN. */
EXL2K_FN u32 cards_pair(u32 round, u32 pair) { return (round * 2654435761u + pair * 0x9E3779B1u) >> 2 & 0x3FFF3FFFu; }

EXL2K_FN uint4 cards_piece(u32 round, u32 n)
{
    u32 at = n / 2;
    return make_uint4(cards_pair(round, at), cards_pair(round, at + 1), cards_pair(round, at + 2),
                      cards_pair(round, at + 3));
}

EXL2K_FN u32 cards_wrong(uint4 v, u32 round, u32 n)
{
    uint4 w = cards_piece(round, n);
    return (v.x != w.x) + (v.y != w.y) + (v.z != w.z) + (v.w != w.w);
}

/* First half and number of halves of a CTA of GPU `card`. */
EXL2K_FN uint2 cards_own(u32 halves, u32 card, u32 cta)
{
    u32 strips = halves / 32, each = strips / gridDim.x, more = strips % gridDim.x;
    return make_uint2(halves / 2 * card + (cta * each + exl2k_min(cta, more)) * 16, (each + (cta < more)) * 16);
}

EXL2K_FN bool cards_is_nan(u32 pair) { return (pair & 0x7FFFu) > 0x7C00u || (pair >> 16 & 0x7FFFu) > 0x7C00u; }
EXL2K_FN bool cards_there(uint4 v)
{
    return !cards_is_nan(v.x) && !cards_is_nan(v.y) && !cards_is_nan(v.z) && !cards_is_nan(v.w);
}

/* ---- memory of both GPUs ---- */

EXL2K_FN void cards_fence(void) { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

EXL2K_FN void cards_store(u64 at, u32 v)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

EXL2K_FN void cards_store4(u64 at, uint4 v)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

/* Each of the two words arrives whole. */
EXL2K_FN void cards_store_words(u64 at, u64 x, u64 y)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(x), "l"(y) : "memory");
}

EXL2K_FN ulonglong2 cards_load_words(u64 at)
{
    ulonglong2 v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(at) : "memory");
    return v;
}

EXL2K_FN u32 cards_acquire(u64 at)
{
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

EXL2K_FN uint4 cards_load4(u64 at)
{
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

/* ---- waits ---- */

typedef struct cards_patience { /* of one wait */
    u32 looks;
    u64 since;
} cards_patience;

/* False after 2 s. */
EXL2K_FN bool cards_patient(cards_patience *p)
{
    if (++p->looks % 1024 == 0) {
        u64 now = cards_clock();
        p->since = p->since ? p->since : now;
        return now - p->since < CARDS_LIMIT_NS;
    }
    return true;
}

EXL2K_FN bool cards_wait_for(u64 at, u32 value)
{
    cards_patience p = { 0, 0 };
    while (cards_acquire(at) != value) {
        if (!cards_patient(&p)) {
            return false;
        }
    }
    return true;
}

/* Begins when both kernels run. */
EXL2K_FN bool cards_begin(const exl2k_exchange_cards_args *a)
{
    bool there = true;
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) {
            cards_store(a->up, 1);
        }
        there = cards_wait_for(a->start, 1);
    }
    return __syncthreads_and(there);
}

/* Halves of a round at `slots`; waits for each. Returns false if they did not come. */
EXL2K_FN bool cards_read(u64 slots, u32 halves, u32 round, u32 *wrong)
{
    for (u32 begin = threadIdx.x; begin < halves / 8; begin += CARDS_READERS * CARDS_PIECES) {
        uint4 v[CARDS_PIECES];
        cards_patience p = { 0, 0 };
        u32 missing = 0;
        for (u32 i = 0; i < CARDS_PIECES; i++) {
            missing |= (begin + i * CARDS_READERS < halves / 8) << i;
        }
        while (missing) {
#pragma unroll
            for (u32 i = 0; i < CARDS_PIECES; i++) {
                if (missing >> i & 1) {
                    v[i] = cards_load4(slots + (begin + i * CARDS_READERS) * 16);
                }
            }
#pragma unroll
            for (u32 i = 0; i < CARDS_PIECES; i++) {
                if ((missing >> i & 1) && cards_there(v[i])) {
                    missing &= ~(1u << i);
                    *wrong += cards_wrong(v[i], round, (begin + i * CARDS_READERS) * 8);
                }
            }
            if (!cards_patient(&p)) {
                return false;
            }
        }
    }
    return true;
}

/* Makes the CTA's share of the slots empty, both GPUs' halves, before the CTA sends what it makes two rounds later. */
EXL2K_FN void cards_empty(u64 slots, u32 halves)
{
    u32 pieces = halves / 8, lane = threadIdx.x % EXL2K_WARP;
    exl2k_sleep(32);
    for (u32 i = blockIdx.x + lane * gridDim.x; i < pieces; i += EXL2K_WARP * gridDim.x) {
        cards_store4(slots + i * 16, make_uint4(EXL2K_ALL, EXL2K_ALL, EXL2K_ALL, EXL2K_ALL));
    }
    cards_fence();
}

EXL2K_FN void cards_end(const exl2k_exchange_cards_args *a, u64 begin, u32 wrong, bool late)
{
    if (threadIdx.x == 0) {
        *(u64 *)(a->ns + blockIdx.x * 8) = cards_clock() - begin;
    }
    if (wrong) {
        atomicAdd((u32 *)a->wrong, wrong);
    }
    if (late) {
        atomicAdd((u32 *)a->late, 1);
    }
}

/* ---- the kernels ---- */

/* Two sets of slots take turns: who sends for round r + 2 has waited for all flags of round r + 1, and each was stored
   by a CTA that had read round r. */
extern "C" __global__ void __launch_bounds__(CARDS_THREADS, 1) exl2k_exchange_flags(exl2k_exchange_cards_args a)
{
    u32 thread = threadIdx.x, wrong = 0, ctas = gridDim.x;
    uint2 own = cards_own(a.halves, a.card, blockIdx.x);
    bool there = cards_begin(&a);
    u64 begin = 0;
    for (u32 round = 0; round < a.rounds + a.skip && there; round++) {
        u64 at = (u64)(round % 2) * a.halves * 2, flags = (u64)(round % 2) * ctas * 8;
        begin = round == a.skip ? cards_clock() : begin;
        if (thread < EXL2K_WARP) { /* a CTA has up to 2 x 32 pieces */
            for (u32 i = thread * 8; i < own.y; i += EXL2K_WARP * 8) {
                uint4 v = cards_piece(round, own.x + i);
                exl2k_sleep(32);
                cards_store4(a.other + at + (own.x + i) * 2, v);
                cards_store4(a.own + at + (own.x + i) * 2, v);
            }
            __syncwarp();
            if (thread == 0) {
                u64 flag = flags + (a.card * ctas + blockIdx.x) * 4;
                cards_fence();
                exl2k_sleep(32);
                cards_store(a.other_flags + flag, round + 1);
                cards_store(a.own_flags + flag, round + 1);
            }
        }
        for (u32 i = thread; i < 2 * ctas && there; i += CARDS_THREADS) {
            there = cards_wait_for(a.own_flags + flags + i * 4, round + 1);
        }
        there = __syncthreads_and(there);
        if (there && thread < CARDS_READERS) {
            there = cards_read(a.own + at, a.halves, round, &wrong);
        }
        there = __syncthreads_and(there);
    }
    cards_end(&a, begin, wrong, !there);
}

/* Four sets of slots take turns. In round r a CTA empties the slots of round r - 2: it has read round r - 1, which each
   CTA has sent after it had read round r - 2. They are filled again in round r + 2, by CTAs that have read what this
   CTA sent in round r + 1, a fence and a barrier after it had emptied them. */
EXL2K_FN void cards_by_data(const exl2k_exchange_cards_args &a, bool by_words)
{
    u32 thread = threadIdx.x, wrong = 0;
    uint2 own = cards_own(a.halves, a.card, blockIdx.x), others = cards_own(a.halves, 1 - a.card, blockIdx.x);
    bool there = cards_begin(&a);
    u64 begin = 0;
    for (u32 round = 0; round < a.rounds + a.skip && there; round++) {
        u64 at = (u64)(round % 4) * a.halves * 2, words = (u64)(round % 2) * a.halves * 2;
        begin = round == a.skip ? cards_clock() : begin;
        if (thread < 2 * EXL2K_WARP) { /* send: a CTA has up to 64 pieces */
            for (u32 i = thread * 8; i < own.y; i += 2 * EXL2K_WARP * 8) {
                uint4 v = cards_piece(round, own.x + i);
                u64 to = a.out_words + words + (own.x - a.halves / 2 * a.card + i) * 4, tag = (u64)(round + 1) << 32;
                exl2k_sleep(32);
                if (by_words) {
                    cards_store_words(to, v.x | tag, v.y | tag);
                    cards_store_words(to + 16, v.z | tag, v.w | tag);
                } else {
                    cards_store4(a.other + at + (own.x + i) * 2, v);
                }
                cards_store4(a.own + at + (own.x + i) * 2, v);
            }
        } else if (by_words && thread < CARDS_READERS) { /* hand on */
            u32 step = (CARDS_READERS - 2 * EXL2K_WARP) * 4;
            for (u32 i = (thread - 2 * EXL2K_WARP) * 4; i < others.y && there; i += step) {
                u64 from = a.in_words + words + (others.x - a.halves / 2 * (1 - a.card) + i) * 4;
                cards_patience p = { 0, 0 };
                ulonglong2 v = cards_load_words(from);
                while (there && (v.x >> 32 != round + 1 || v.y >> 32 != round + 1)) {
                    there = cards_patient(&p);
                    v = cards_load_words(from);
                }
                exl2k_sleep(32);
                asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(a.own + at + (others.x + i) * 2),
                             "r"((u32)v.x), "r"((u32)v.y) : "memory");
            }
        }
        if (thread < CARDS_READERS) {
            there = there && cards_read(a.own + at, a.halves, round, &wrong);
        } else if (round > 1) {
            cards_empty(a.own + (u64)((round + 2) % 4) * a.halves * 2, a.halves); /* of round r - 2 */
        }
        there = __syncthreads_and(there);
    }
    cards_end(&a, begin, wrong, !there);
}

extern "C" __global__ void __launch_bounds__(CARDS_THREADS, 1) exl2k_exchange_data(exl2k_exchange_cards_args a)
{
    cards_by_data(a, false);
}

extern "C" __global__ void __launch_bounds__(CARDS_THREADS, 1) exl2k_exchange_words(exl2k_exchange_cards_args a)
{
    cards_by_data(a, true);
}
