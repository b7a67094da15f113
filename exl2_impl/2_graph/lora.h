/* lora.h: adapters and control vectors as a pass sees them: what each adds, and which rows have which.
   takes: ranks and sizes of matrices.
   gives: exl2__lora_matrix, exl2__lora_store, exl2__steer_store, exl2__lora_set, exl2__lora_same, exl2__lora_places;
          exl2__lora_a_stride, exl2__lora_b_stride, exl2__lora_a_bytes, exl2__lora_b_bytes.
   owns:  nothing; an adapter's memory belongs to the engine and the backend.

   A row with a set of adapters gets y = W x + b, and then, for each adapter in the order of the set,
       y += B t, t = scale * factor * (A x)
   with sums in f32 in the order of inputs, and in that of the rank. A and B are f16, each divided by a power of two
   that `factor` has:
       A [rank, inputs rounded up to 16], 0 in the padding
       B [rank, outputs rounded up to 32], which is the file's B transposed, 0 in the padding
   A backend may have inputs and outputs in an order of its own.

   After each layer the row's residual gets r += factor * vector for each control vector that has one for the layer, in
   the order of the set; each product is rounded before it is added. */
#ifndef EXL2__LORA_H
#define EXL2__LORA_H

#include "../0_base/arena.h"
#include "../0_base/half.h"

#define EXL2__LORA_PARTS 9u  /* of a layer, without experts: q, k, v, out, gate, up, down, router, its second part */
#define EXL2__LORA_OUT 3u    /* the place of out */
#define EXL2__LORA_ROUTER 7u /* the place of the router */
#define EXL2__LORA_EXPERT_PARTS 3u /* of an expert: gate, up, down */

/* What an adapter adds to one part of a matrix. */
typedef struct exl2__lora_matrix {
    uint32_t rank;   /* 0: nothing */
    float factor;    /* alpha / rank, and the powers of two */
    uint64_t b, a;   /* addresses in the backend's memory */
    uint32_t shares; /* 1: A is that of the part before, so t is, but for the factor */
    uint32_t unused;
} exl2__lora_matrix; /* kernels read it, too: exl2k_lora_matrix */

/* An adapter in memory. */
typedef struct exl2__lora_store {
    const exl2__lora_matrix *matrices; /* [layers, places] */
    uint32_t places, rank_max;
    bool experts;    /* it adds to routers, or to experts by number */
    bool narrow;     /* it adds to q, k and v alone */
    uint64_t device[EXL2_DEVICES_MAX]; /* where backends have memory of their own: the address of the same table in
                                          that of each span (span.h) */
} exl2__lora_store;

/* A control vector in host memory. */
typedef struct exl2__steer_store {
    const float *values; /* [layers, hidden] */
    const bool *has;     /* [layers] false: it has none for the layer */
    uint32_t slot;       /* its place among those of the model: a backend with its own memory has a copy there */
} exl2__steer_store;

typedef struct exl2__lora_use {
    const exl2__lora_store *store;  /* an adapter; NULL: it is a control vector */
    const exl2__steer_store *steer; /* a control vector; NULL: it is an adapter */
    uint64_t id;     /* of exl2_lora or exl2_steer, which have no id in common */
    float scale;     /* not 0 */
} exl2__lora_use;

/* The adapters and then the control vectors of a row, both in the order of their sums. */
typedef struct exl2__lora_set {
    uint32_t count, steer_count; /* at least 1 together */
    exl2__lora_use uses[EXL2_JOB_LORAS + EXL2_JOB_STEERS];
} exl2__lora_set;

/* Whether both sets add the same to a row. */
static inline bool exl2__lora_same(const exl2__lora_set *a, const exl2__lora_set *b)
{
    bool same = a->count == b->count && a->steer_count == b->steer_count;
    for (uint32_t i = 0; same && i < a->count + a->steer_count; i++) {
        same = a->uses[i].id == b->uses[i].id
            && exl2__float_bits(a->uses[i].scale) == exl2__float_bits(b->uses[i].scale);
    }
    return same;
}

/* Number of parts of a layer. */
static inline uint32_t exl2__lora_places(uint32_t experts)
{
    return EXL2__LORA_PARTS + EXL2__LORA_EXPERT_PARTS * experts;
}

static inline uint32_t exl2__lora_a_stride(uint32_t in) { return (uint32_t)exl2__align_up(in, 16); }
static inline uint32_t exl2__lora_b_stride(uint32_t out) { return (uint32_t)exl2__align_up(out, 32); }

static inline uint64_t exl2__lora_a_bytes(uint32_t rank, uint32_t in)
{
    return exl2__align_up((uint64_t)rank * exl2__lora_a_stride(in) * 2, EXL2__ARENA_ALIGN);
}

static inline uint64_t exl2__lora_b_bytes(uint32_t rank, uint32_t out)
{
    return exl2__align_up((uint64_t)rank * exl2__lora_b_stride(out) * 2, EXL2__ARENA_ALIGN);
}

#endif
