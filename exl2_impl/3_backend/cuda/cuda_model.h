/* cuda_model.h: one model on a CUDA device: records of its matrices and norms, their sizes, and copies to the device.
   takes: checked matrix descriptions.
   gives: exl2__cuda_model, exl2__cuda_matrix, exl2__cuda_experts; exl2__cuda_matrix_bytes and _vector_bytes of the
          backend; exl2__cuda_upload, exl2__cuda_making_close.
   owns:  device memory of the weights; a staging buffer while loading; the records of its matrices and norms. */
#ifndef EXL2__CUDA_MODEL_H
#define EXL2__CUDA_MODEL_H

#include "../../../kernels_src/embed_args.h"
#include "../../../kernels_src/peers_args.h"
#include "../../../kernels_src/shuffle_args.h"
#include "../../2_graph/weights.h"
#include "../sample/cpu_sample_run.h"
#include "cuda_buffers.h"
#include "cuda_exl3_plan.h"
#include "cuda_matrix.h"
#include "cuda_order.h"
#include "cuda_ring.h"

#define EXL2__CUDA_SLOTS 2u              /* slots of the ring that carries slices of weights, then the data of passes */
#define EXL2__CUDA_SPAN_SLOTS 5u         /* the same of one of several spans */
#define EXL2__CUDA_SLOT_BYTES (2u << 20) /* pinned bytes of a slot; more if a slice or the data of a pass is larger */
#define EXL2__CUDA_SPARE 64u             /* finite elements after the end of every input row */
#define EXL2__CUDA_ENDS_MAX (EXL2__MATRIX_IN_MAX / EXL2__CUDA_RECORD_ROWS + 1 + EXL2__CUDA_REGIONS_MAX)

#ifndef EXL2__CUDA_STAGING_BYTES
#define EXL2__CUDA_STAGING_BYTES (32u << 20) /* raw weights in device memory; more if one chunk or strip is larger */
#endif

/* A part while it is loaded: what the kernels of shuffle.cu need once its last slice has arrived. */
typedef struct exl2__cuda_feed {
    bool dense;
    uint32_t out, out_stored, rows, chunks, type; /* rows: as stored; type: EXL2K_FROM_*, of codes only AWQ */
    uint64_t row_bytes;
} exl2__cuda_feed;

/* The columns of a part that this device has, of those of the whole matrix. */
typedef struct exl2__cuda_cut {
    uint32_t first, columns, strips;
    uint32_t whole, all;            /* strips and columns of the whole part */
} exl2__cuda_cut;

typedef struct exl2__cuda_matrix {
    struct exl2__cuda_matrix *next; /* next record of the model */
    exl2__cuda_cut cut[EXL2K_PARTS_MAX]; /* of the parts of `device` */
    exl2k_matrix device;            /* parts is 0 if the matrix is only read by rows */
    uint32_t in, pitch;             /* pitch: elements from one input row to the next */
    uint32_t chunk_bytes;           /* bytes of the largest chunk */
    exl2__cuda_order order;
    exl2__cuda_exl3 exl3;           /* device.parts is 0 then */
    struct exl2__cuda_matrix *alone[EXL2K_PARTS_MAX]; /* its parts, as matrices of the model's list, if some are of EXL3
                                       and others are not; they have all that belongs to them. Else NULL */
    bool natural;                   /* x comes in the order of the file, and is permuted before each product */
    const uint16_t *order_host;     /* [in] exl2__cuda_order_in_memory of each input, for adapters; NULL: as in the
                                       file, or the model has no adapters */
    bool affine;                    /* GPTQ or AWQ: products need the kernels for affine matrices */
    uint64_t table;                 /* [feed[0].rows, in] in natural order; 0: the matrix is not read by rows */
    uint64_t tables[EXL2K_PARTS_MAX]; /* router: each part, as `table`, in natural order */
    uint64_t bias[EXL2K_PARTS_MAX]; /* router: f32 [feed[i].rows], or 0 */
    uint64_t chunks, chunks_step;   /* expert: where the chunk table of part 0 lies, bytes to that of the next part */
    exl2__cuda_feed feed[EXL2K_PARTS_MAX];
    exl2k_slice chain[EXL2__CUDA_CHAIN_CHUNKS]; /* [chain_count]: see exl2__cuda_layout_chain */
    uint32_t chain_count;
} exl2__cuda_matrix;

/* The experts of one layer: one record, which is also the handle of all of their matrices. */
typedef struct exl2__cuda_experts {
    exl2__cuda_matrix now;          /* the matrix that is loaded; its device.parts is 0 once all are */
    struct exl2__cuda_experts *next;
    uint32_t count, table_chunks;   /* table_chunks: entries from one chunk table to the next */
    uint64_t device;                /* exl2k_expert [count] */
    uint64_t tables;                /* exl2k_chunk [count, EXL2K_EXPERT_PARTS, table_chunks] */
    uint32_t parts;                 /* of up */
    uint32_t chunks[2], chunk_bytes[2]; /* of up, of down: most chunks of a part, bytes of the largest chunk */
    exl2__cuda_order order;         /* of the inputs of up; the table is that of expert 0 */
    bool affine;                    /* all matrices are affine; else none is */
    uint32_t streamed;              /* exl2__matrix_desc.streamed of all of them */
    bool exl3;                      /* all matrices are of EXL3; else none is. `device` is exl2k_exl3_part [count,
                                       EXL2K_EXL3_EXPERT_PARTS] then, and there are no chunk tables */
    uint8_t books[EXL2K_EXL3_EXPERT_PARTS]; /* exl3: a bit EXL2K_EXL3_* for each codebook, by part */
    uint64_t first_bytes;
    uint16_t *first;                /* [in] the table of expert 0, to compare others with; NULL: it is dense */
    const uint16_t *downs;          /* [count, inputs of down] exl2__cuda_order_in_memory of each input of each `down`,
                                       for adapters; NULL: as in the file, or the model has no adapters */
} exl2__cuda_experts;

typedef struct exl2__cuda_vector {
    struct exl2__cuda_vector *next;
    uint64_t values; /* f32 */
} exl2__cuda_vector;

/* What the staging buffer holds: rows [first, end) of the part that is loaded and, if the part has codes, the chunks
   [chunk, chunk_end) that these rows make up. */
typedef struct exl2__cuda_staged {
    uint32_t first, end, chunk, chunk_end;
} exl2__cuda_staged;

#define EXL2__CUDA_STREAMED_BLOCK (4ull << 20) /* bytes whose pinning and copying needs about 1 ms */

/* A part of exl2__streamed in host memory. */
typedef struct exl2__cuda_part {
    void **blocks;                  /* pinned, of EXL2__CUDA_STREAMED_BLOCK, the last one of fewer; NULL: none yet */
    uint64_t bytes, kept;           /* kept: copied so far */
} exl2__cuda_part;

typedef struct exl2__cuda_streamed { /* cuda_streamed.h */
    uint64_t area[2];
    exl2__cuda_part *parts;         /* [count] */
    uint32_t count, making;         /* making: 1 + the part whose matrices are being made */
    exl2__cuda_arena rest;          /* the memory of the weights, while a matrix is made in an area; else zeroed */
    exl2__cuda_event *arrived[2], *used[2]; /* events of each area: a part has arrived; kernels have read it */
} exl2__cuda_streamed;

typedef struct exl2__cuda_kept {
    exl2__cuda_pass pass;
    const exl2__step *step;
    uint64_t bytes;                 /* of its data */
} exl2__cuda_kept;
#ifndef EXL2_NO_VISION
/* The stages of a tower, in order. From NORM1 to DOWN they repeat for each layer, from POST_NORM to LINEAR2 for each
   projector, all of these for each tile. */
typedef enum exl2__cuda_tower_stage {
    EXL2__CUDA_TOWER_UPLOAD, EXL2__CUDA_TOWER_PATCHES, EXL2__CUDA_TOWER_EMBED, EXL2__CUDA_TOWER_PLACE,
    EXL2__CUDA_TOWER_NORM1, EXL2__CUDA_TOWER_QKV, EXL2__CUDA_TOWER_ATTEND, EXL2__CUDA_TOWER_OUT,
    EXL2__CUDA_TOWER_NORM2, EXL2__CUDA_TOWER_UP, EXL2__CUDA_TOWER_DOWN,
    EXL2__CUDA_TOWER_POST_NORM, EXL2__CUDA_TOWER_PATCH_NORM, /* of patches */
    EXL2__CUDA_TOWER_MERGE, EXL2__CUDA_TOWER_MERGING, EXL2__CUDA_TOWER_LINEAR1, EXL2__CUDA_TOWER_LINEAR2, /* of rows */
    EXL2__CUDA_TOWER_CHECK, EXL2__CUDA_TOWER_COPY
} exl2__cuda_tower_stage;

/* The tower of a plan that has one, and the picture that it encodes. */
typedef struct exl2__cuda_tower {
    uint64_t base;          /* address of its weights, which lie among the model's; 0: not made yet */
    uint32_t *index;        /* [4, rows_max] what exl2__cuda_tower_buffers.index is uploaded from */
    void *held;             /* pinned memory of the caller, with all rows; NULL: rows go through `down` */
    uint8_t *down;          /* [EXL2__CUDA_TOWER_DOWN_BYTES + 4] pinned: rows, and whether some are not finite */
    exl2__cuda_event *done; /* the copy has ended */
    exl2__cuda_event *queued; /* other GPUs wait for the work before it; NULL: none of them shares the model */
    exl2__vision_size size;
    const uint8_t *seen;
    float *out;             /* [size.rows, levels, hidden] */
    uint32_t rows, out_rows; /* of a tile, and of its result */
    bool active;
    exl2__cuda_tower_stage stage; /* what comes next: stage, tile, layer, level, and the first row of the stage */
    uint32_t tile, layer, level, row;
    uint64_t sent, copied;  /* bytes of the tile's pixels; bytes of rows that are in `out` */
    bool copying;           /* the next part is on its way */
    bool chained;           /* as exl2__cuda_pass.chained */
} exl2__cuda_tower;
#endif

/* The block of an adapter on each of several GPUs that share every matrix. All of them know it by its address on the
   first one. */
typedef struct exl2__cuda_lora_block {
    struct exl2__cuda_lora_block *next;
    uint64_t bytes, of[EXL2K_MEET_GPUS];
} exl2__cuda_lora_block;

/* Slots of pages in pinned host memory (cuda_tier.h); zeroed: there are none. */
typedef struct exl2__cuda_tier {
    void **blocks;                  /* [block_count], room for block_max */
    uint32_t block_count, block_max, block_slots; /* block_slots: of a block, but perhaps fewer of the last one */
    uint32_t slots;
    uint64_t slot_bytes, copy_ns;   /* copy_ns: measured, of one slot */
} exl2__cuda_tier;

typedef struct exl2__cuda_model { /* exl2__device of this backend */
    exl2__ctx *c;
    exl2__cuda_device *gpu;
    exl2__cuda_limits limits;
    exl2__columns columns;           /* count, index and ends are set from `open` on; all else is the plan's */
    struct exl2__cuda_model *mates[EXL2K_MEET_GPUS]; /* [columns.count] the models that have the other columns, and
                                                        this one */
    exl2__cuda_lora_block *const *lora_blocks; /* the first of these models' adapters; NULL: the model has no mates */
    exl2__cuda_matrix *matrices;
    exl2__cuda_vector *vectors;
    exl2__cuda_experts *experts;     /* a list: the experts of the layer loaded last come first */
    exl2__cuda_arena weights, pass_memory; /* pass_memory: pages, then buffers */
    exl2__cuda_ring ring;
    uint64_t staging, staging_bytes; /* raw rows of a part, as stored in the file */
    exl2__cuda_staged staged;
    void *making;                   /* [making_bytes] what a matrix is made from: chunk tables and a map */
    uint64_t making_bytes;
    uint16_t ends[EXL2K_PARTS_MAX][EXL2__CUDA_ENDS_MAX]; /* word rows where the chunks of the loaded matrix end */
    exl2__cuda_down_order down;
    uint16_t *orders;               /* [orders_max] of all order_host */
    uint64_t orders_max, orders_used;
    uint64_t results_bytes;
    exl2__cuda_buffers b;
    const exl2__plan *plan;
    const exl2__step *step;
    exl2__cuda_pass pass;
    bool decoded_turn; /* which half of b.exl3_decoded is next */
    const exl2__step *fence_steps[EXL2K_RESULT_SETS]; /* the step of each fence, at the index of its event */
#ifndef EXL2_NO_VISION
    exl2__cuda_tower tower;
#endif
    uint32_t fences_queued, fences_collected; /* numbers of fences, see cuda_queue.h; exl2k_pass.ticket holds them */
    uint32_t layers_per_unit;       /* layers in a unit of a captured pass of few rows: exl2__cuda_unit_layers */
    uint32_t head_units;            /* ranges of the head's columns, at least 1; 0: the span has no head */
    bool whole_graphs;              /* captured passes may run as one graph */
    uint32_t gives, gives_attended; /* most rows whose products, whose attention give their columns to the mates
                                       (cuda_peers.h): the same number for all mates */
    bool has_wg;                    /* products of many rows run by wgmma (cuda_gemm_wg.h) */
    uint64_t layer_bytes, attention_bytes, head_bytes; /* estimated bytes of weights; attention: part of a layer */
    float *host_logits;             /* [vocab] pinned, after the results: a row that is sampled on the CPU */
    void *host_scratch;             /* [exl2__sample_scratch_bytes] */
    exl2__sample_run host_sampling;
    uint64_t row_ns[EXL2__CUDA_PASS_CLASSES]; /* learned: of a pass that decodes, or of a row among many */
    exl2__cuda_graphs graphs[EXL2__CUDA_GRAPH_KINDS];
    uint32_t lora_turns;            /* passes with adapters since their values of t were cleared (cuda_pass.h) */
    struct exl2__cuda_lora_slot {
        uint64_t id, table;         /* the adapter whose table the slot holds, and where it was copied from; 0: none */
    } lora_slots[EXL2K_LORA_SLOTS];
    uint64_t steer_slots[EXL2K_STEER_SLOTS]; /* the control vector that the slot's memory holds; 0: none */
    exl2__cuda_timing timing;
    struct exl2__cuda_model *before; /* the span before, whose rows this one goes on with; NULL: it is the first */
    exl2__cuda_device *from;        /* the GPU of `before` */
    exl2__cuda_event *arrived, *taken; /* of `before`: it has handed over its rows; of this one: it has read them */
    uint8_t *handing;               /* pinned: exl2__cuda_handed_bytes, where `before` cannot write to this memory */
    uint64_t handing_bytes;
    exl2__cuda_kept kept[EXL2__STEP_GROUPS]; /* the groups of a pass; what is not of their data */
    /* Of the last of several spans, for each group: */
    exl2__cuda_event *advanced[EXL2__STEP_GROUPS]; /* its rows have been copied to next_rows */
    exl2k_row *next_rows;           /* pinned [EXL2__STEP_GROUPS, EXL2__CUDA_GRAPH_ROWS], advanced by sampling */
    void **packed;                  /* blocks of a pinned copy of the weights (cuda_park.h); NULL: there is none */
    uint64_t packed_size, packed_done; /* bytes of the copy; bytes that are copied so far, down or up */
    uint64_t packed_base;           /* address of the weights that the copy and all records mean */
    exl2__cuda_tier tier;
    exl2__cuda_streamed streamed;
    const exl2__plan *given;        /* the plan that `prepare` got */
    exl2__plan prompt_plan;         /* `given` with exl2__plan.prompt_layers, of whose MLPs the host has none: `plan` is
                                       this one in passes of prompts of a span with `streamed`, else `given` */
} exl2__cuda_model;

/* Slots of the ring. The parts of a prompt that several spans share are enqueued at once, so no slot is reused before
   the last part. plan NULL: no model. */
static inline uint32_t exl2__cuda_slot_count(const exl2__plan *p)
{
    return p && exl2__plan_span(p) < p->shape.layers ? EXL2__CUDA_SPAN_SLOTS : EXL2__CUDA_SLOTS;
}

static inline exl2__cuda_model *exl2__cuda_of(const exl2__device *d)
{
    return (exl2__cuda_model *)(uintptr_t)d;
}

static inline const exl2__cuda_matrix *exl2__cuda_matrix_of(const exl2__matrix *m)
{
    return (const exl2__cuda_matrix *)(const void *)m;
}

/* The table by which x is written for a matrix; 0: as in the file. */
static inline uint64_t exl2__cuda_inputs(const exl2__matrix *m)
{
    const exl2__cuda_order *o = &exl2__cuda_matrix_of(m)->order;
    return o->apart ? 0 : o->inputs[0];
}

static inline uint64_t exl2__cuda_values(const exl2__vector *v)
{
    return ((const exl2__cuda_vector *)(const void *)v)->values;
}

static inline uint64_t exl2__cuda_values_or_none(const exl2__vector *v)
{
    return v ? exl2__cuda_values(v) : 0;
}

static inline uint64_t exl2__cuda_round(uint64_t bytes)
{
    return exl2__align_up(bytes, EXL2__CUDA_ALIGN);
}

static inline const exl2__cuda_experts *exl2__cuda_experts_of(const exl2__layer *layer)
{
    return (const exl2__cuda_experts *)(const void *)layer->experts[0][0];
}

/* ---- sizes ---- */

static inline bool exl2__cuda_is_expert(const exl2__matrix_desc *parts)
{
    return (parts->uses & EXL2__USE_EXPERT) != 0;
}

static inline bool exl2__cuda_is_down(const exl2__matrix_desc *parts)
{
    return (parts->uses & EXL2__USE_DOWN) != 0;
}

/* Entries of a chunk table of experts. any: a matrix of one of them. */
static inline uint32_t exl2__cuda_expert_chunks(const exl2__matrix_desc *any)
{
    return (uint32_t)exl2__div_up(exl2__max32(any->in, any->out), EXL2__CUDA_RECORD_ROWS) + EXL2__CUDA_REGIONS_MAX;
}

/* Bytes of the descriptions and the chunk tables of the layer that this matrix is the first expert's of; else 0. */
EXL2__PRIVATE uint64_t exl2__cuda_experts_bytes(const exl2__matrix_desc *parts)
{
    if (!exl2__cuda_is_expert(parts) || !exl2__cuda_is_down(parts) || parts->expert > 0) {
        return 0;
    }
    if (exl2__matrix_is_exl3(parts->kind)) {
        return exl2__cuda_round((uint64_t)parts->experts * EXL2K_EXL3_EXPERT_PARTS * sizeof(exl2k_exl3_part));
    }
    uint64_t tables = (uint64_t)parts->experts * EXL2K_EXPERT_PARTS * exl2__cuda_expert_chunks(parts);
    return exl2__cuda_round(parts->experts * sizeof(exl2k_expert)) + exl2__cuda_round(tables * sizeof(exl2k_chunk));
}

/* Warps of the experts' kernels share chunks, not slices. */
EXL2__PRIVATE exl2__cuda_slicing exl2__cuda_slicing_of(const exl2__matrix_desc *parts, uint32_t count,
                                                       const exl2__cuda_limits *limits)
{
    return exl2__cuda_is_expert(parts) ? (exl2__cuda_slicing){ 1, 0 } : exl2__cuda_layout_slicing(parts, count, limits);
}

/* Whether parts of one product must be matrices of their own: some are of EXL3, others are not. */
static inline bool exl2__cuda_parts_alone(const exl2__matrix_desc *parts, uint32_t count)
{
    uint32_t exl3 = 0;
    for (uint32_t i = 0; i < count; i++) {
        exl3 += exl2__matrix_is_exl3(parts[i].kind);
    }
    return exl3 > 0 && exl3 < count;
}

/* Whether inputs of a matrix with codes are permuted by a table of its own, not by what gate and up store. */
static inline bool exl2__cuda_has_map(const exl2__matrix_desc *part)
{
    return part->kind != EXL2__MATRIX_DENSE && (!exl2__cuda_is_down(part) || part->uses & EXL2__USE_NATURAL);
}

/* The columns that the device has of a part. Tables that are read by row, and routers, are not cut. */
EXL2__PRIVATE exl2__cuda_cut exl2__cuda_cut_of(const exl2__cuda_model *m, const exl2__matrix_desc *part)
{
    exl2__cuda_cut cut = { 0, part->out, exl2__cuda_strips(part), exl2__cuda_strips(part), part->out };
    bool whole = part->uses & EXL2__USE_ROUTER || !(part->uses & EXL2__USE_PRODUCT);
    if (!exl2__columns_are_cut(&m->columns) || whole) {
        return cut;
    }
    exl2__columns_run own = exl2__columns_of(&m->columns, part->out, part->unit);
    uint32_t end = own.first + own.count;
    cut.first = own.first;
    cut.columns = own.count;
    cut.strips = own.count == 0 ? 0 : (end == part->out ? cut.whole : end / EXL2__CUDA_STRIP)
                                      - own.first / EXL2__CUDA_STRIP;
    return cut;
}

/* Exact, except that it counts a map for each part, while parts that share one order need a single map. Of streamed
   matrices: bytes in their area. */
EXL2__PRIVATE uint64_t exl2__cuda_matrix_bytes(const exl2__device *device, const exl2__matrix_desc *parts,
                                               uint32_t count)
{
    const exl2__cuda_model *m = exl2__cuda_of(device);
    exl2__cuda_layout l;
    uint64_t bytes = 0, strips = 0;
    for (uint32_t i = 0; i < count && parts->uses & EXL2__USE_ROUTER; i++) {
        bytes += exl2__cuda_round(parts[i].out * exl2__weights_row_bytes(&parts[i]));
        bytes += parts[i].has_bias ? exl2__cuda_round(parts[i].out * sizeof(float)) : 0;
    }
    if (parts->uses & EXL2__USE_ROUTER) {
        return bytes;
    }
    if (parts->uses & EXL2__USE_ROWS) {
        bytes += exl2__cuda_round(parts->out * exl2__weights_row_bytes(parts));
    }
#if EXL2__EXL3
    if (exl2__cuda_parts_alone(parts, count)) {
        for (uint32_t i = 0; i < count; i++) {
            bytes += exl2__cuda_matrix_bytes(device, &parts[i], 1);
        }
        return bytes;
    }
    for (uint32_t i = 0; i < count && exl2__matrix_is_exl3(parts[i].kind); i++) {
        bytes += exl2__cuda_exl3_bytes(&parts[i], exl2__cuda_cut_of(m, &parts[i]).columns);
    }
    if (exl2__matrix_is_exl3(parts->kind)) {
        return bytes + exl2__cuda_experts_bytes(parts);
    }
#endif
    if (!(parts->uses & EXL2__USE_PRODUCT)) {
        return bytes;
    }
    bool expert = exl2__cuda_is_expert(parts); /* its chunk tables are those of the layer */
    exl2__cuda_slicing slicing = exl2__cuda_slicing_of(parts, count, &m->limits);
    bytes += exl2__cuda_experts_bytes(parts);
    for (uint32_t i = 0; i < count; i++) {
        exl2__cuda_layout_part(&l, &parts[i], slicing, m->limits.chunk_bytes, NULL, NULL);
        exl2__cuda_cut cut = exl2__cuda_cut_of(m, &parts[i]);
        strips += l.bytes * cut.strips;
        bytes += expert ? 0 : exl2__cuda_round(l.count * sizeof(exl2k_chunk));
        bytes += parts[i].has_bias ? exl2__cuda_round(cut.columns * sizeof(float)) : 0;
        bool map = exl2__cuda_has_map(&parts[i]) && !parts[i].streamed; /* it stays on the device */
        bytes += map ? exl2__cuda_round(parts[i].in * sizeof(uint16_t)) : 0;
    }
    return bytes + exl2__cuda_round(strips);
}

/* Bytes of an entry of the tables that a matrix is made from: a chunk, and the groups of its scale words. */
#define EXL2__CUDA_ENTRY_BYTES (sizeof(exl2k_chunk) + sizeof(uint16_t[8]))

/* Host bytes that making a matrix needs temporarily: chunk tables and one map. */
static inline uint64_t exl2__cuda_making_bytes(uint32_t in, uint32_t parts)
{
    return (uint64_t)parts * exl2__cuda_layout_chunks_max(in) * EXL2__CUDA_ENTRY_BYTES + in * sizeof(uint16_t);
}

EXL2__PRIVATE uint64_t exl2__cuda_vector_bytes(const exl2__device *device, uint32_t count)
{
    (void)device;
    return exl2__cuda_round(count * sizeof(float));
}

/* ---- transfers; the context must be current ---- */

/* Elements of the orders of all matrices, if the model may have adapters. */
static inline uint64_t exl2__cuda_orders_max(const exl2__plan *p)
{
    const exl2__shape *s = &p->shape;
    uint64_t layer = 2 * (uint64_t)s->hidden + exl2__shape_attended(s) + exl2__max32(s->inter, s->experts.shared_inter);
    layer += (uint64_t)s->experts.count * s->experts.inter;
    return p->lora_max ? layer * exl2__plan_span(p) : 0;
}

/* Copies through the pinned ring. `data` may be freed when it returns. */
EXL2__PRIVATE exl2_result exl2__cuda_upload(exl2__cuda_model *m, uint64_t to, const void *data, uint64_t bytes)
{
    const uint8_t *from = (const uint8_t *)data;
    while (bytes) {
        void *slot;
        uint64_t part = exl2__min64(bytes, m->ring.slot_bytes);
        EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, part, true, &slot));
        memcpy(slot, from, (size_t)part);
        EXL2__TRY(exl2__cuda_ring_send(m->gpu, &m->ring, to, part));
        to += part;
        from += part;
        bytes -= part;
    }
    return EXL2_OK;
}

/* Makes a buffer that only loading needs hold at least `bytes`. Kernels may still read the old buffer, so it waits for
   them before the buffer is replaced. */
EXL2__PRIVATE exl2_result exl2__cuda_loading_reserve(exl2__cuda_model *m, uint64_t bytes, uint64_t *address,
                                                     uint64_t *size)
{
    if (bytes <= *size) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_check(m->gpu, m->gpu->driver.stream_wait(m->gpu->stream), "packing weights"));
    exl2__cuda_device_free(m->gpu, *address, *size, EXL2_MEM_STAGING);
    *size = 0;
    EXL2__TRY(exl2__cuda_device_alloc(m->gpu, bytes, EXL2_MEM_STAGING, address));
    *size = bytes;
    return EXL2_OK;
}

static inline exl2_result exl2__cuda_staging_reserve(exl2__cuda_model *m, uint64_t bytes)
{
    return exl2__cuda_loading_reserve(m, bytes, &m->staging, &m->staging_bytes);
}

/* ---- host memory of loading ---- */

/* Makes *memory hold at least `bytes`; what it held is lost. */
EXL2__PRIVATE exl2_result exl2__cuda_making_reserve(exl2__cuda_model *m, uint64_t bytes, void **memory, uint64_t *size)
{
    if (bytes <= *size) {
        return EXL2_OK;
    }
    exl2__free(m->c, *memory, *size, EXL2_MEM_STAGING);
    *memory = NULL;
    *size = 0;
    EXL2__TRY(exl2__alloc(m->c, bytes, 16, EXL2_MEM_STAGING, memory));
    *size = bytes;
    return EXL2_OK;
}

/* Frees what only loading needs, in device memory, too. No kernel reads it any more. */
EXL2__PRIVATE void exl2__cuda_making_close(exl2__cuda_model *m)
{
    exl2__cuda_down_order *o = &m->down;
    exl2__free(m->c, m->making, m->making_bytes, EXL2_MEM_STAGING);
    exl2__free(m->c, o->host, o->host_bytes, EXL2_MEM_STAGING);
    exl2__cuda_device_free(m->gpu, m->staging, m->staging_bytes, EXL2_MEM_STAGING);
    exl2__cuda_device_free(m->gpu, o->device, o->device_bytes, EXL2_MEM_STAGING);
    m->making = NULL;
    m->making_bytes = m->staging = m->staging_bytes = 0;
    *o = (exl2__cuda_down_order){ 0 };
}

#endif
