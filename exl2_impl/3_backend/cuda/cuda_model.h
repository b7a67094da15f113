/* cuda_model.h: one model on a CUDA device: its matrices and norms, packed there block by block while the model loads.
   takes: checked matrix descriptions, slices of rows.
   gives: exl2__cuda_model, exl2__cuda_matrix; bytes, make, stage and feed of the backend.
   owns:  device memory of the weights; a staging buffer while loading; the records of its matrices and norms. */
#ifndef EXL2__CUDA_MODEL_H
#define EXL2__CUDA_MODEL_H

#include "../../../kernels_src/embed_args.h"
#include "../../../kernels_src/shuffle_args.h"
#include "../../2_graph/weights.h"
#include "cuda_buffers.h"
#include "cuda_matrix.h"
#include "cuda_order.h"
#include "cuda_ring.h"

#define EXL2__CUDA_SLOTS 2u              /* slots of the ring that carries slices of weights, then the data of passes */
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

typedef struct exl2__cuda_matrix {
    struct exl2__cuda_matrix *next; /* next record of the model */
    exl2k_matrix device;            /* parts is 0 if the matrix is only read by rows */
    uint32_t in, pitch;             /* pitch: elements from one input row to the next */
    uint32_t chunk_bytes;           /* bytes of the largest chunk */
    exl2__cuda_order order;
    bool affine;                    /* GPTQ or AWQ: products need the kernels for affine matrices */
    uint64_t table;                 /* [feed[0].rows, in] in natural order; 0: the matrix is not read by rows */
    uint64_t tables[EXL2K_PARTS_MAX]; /* router: each part, as `table`, in natural order */
    uint64_t bias[EXL2K_PARTS_MAX]; /* router: f32 [feed[i].rows], or 0 */
    uint64_t chunks, chunks_step;   /* expert: where the chunk table of part 0 lies, bytes to that of the next part */
    exl2__cuda_feed feed[EXL2K_PARTS_MAX];
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
    uint64_t first_bytes;
    uint16_t *first;                /* [in] the table of expert 0, to compare others with; NULL: it is dense */
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

typedef struct exl2__cuda_model { /* exl2__device of this backend */
    exl2__ctx *c;
    exl2__cuda_device *gpu;
    exl2__cuda_limits limits;
    exl2__cuda_matrix *matrices;
    exl2__cuda_vector *vectors;
    exl2__cuda_experts *experts;     /* that of the layer loaded last comes first */
    exl2__cuda_arena weights, pass_memory; /* pass_memory: pages, then buffers */
    exl2__cuda_ring ring;
    uint64_t staging, staging_bytes; /* raw rows of a part, as stored in the file */
    exl2__cuda_staged staged;
    void *making;                   /* [making_bytes] what a matrix is made from: chunk tables and a map */
    uint64_t making_bytes;
    uint16_t ends[EXL2K_PARTS_MAX][EXL2__CUDA_ENDS_MAX]; /* word rows where the chunks of the loaded matrix end */
    exl2__cuda_down_order down;
    uint64_t results_bytes;
    exl2__cuda_buffers b;
    const exl2__plan *plan;
    const exl2__step *step;
    exl2__cuda_pass pass;
    uint32_t fences_queued, fences_collected; /* numbers of fences, see cuda_queue.h; exl2k_pass.ticket holds them */
    uint32_t layers_per_unit;       /* layers in a unit of a captured pass of few rows: exl2__cuda_unit_layers */
    uint32_t head_units;            /* ranges of the head's columns, at least 1; 0: the span has no head */
    bool whole_graphs;              /* captured passes may run as one graph */
    bool has_wg;                    /* products of many rows run by wgmma (cuda_gemm_wg.h) */
    uint64_t layer_bytes, head_bytes; /* estimated bytes of weights */
    float *host_logits;             /* [vocab] pinned, after the results: a row that is sampled on the CPU */
    void *host_scratch;             /* [exl2__sample_scratch_bytes] */
    uint64_t row_ns[EXL2__CUDA_PASS_CLASSES]; /* learned: of a pass that decodes, or of a row among many */
    exl2__cuda_graphs graphs;
    exl2__cuda_timing timing;
    void **packed;                  /* blocks of a pinned copy of the weights (cuda_park.h); NULL: there is none */
    uint64_t packed_size, packed_done; /* bytes of the copy; bytes that are copied so far, down or up */
    uint64_t packed_base;           /* address of the weights that the copy and all records mean */
} exl2__cuda_model;

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
    uint64_t tables = (uint64_t)parts->experts * EXL2K_EXPERT_PARTS * exl2__cuda_expert_chunks(parts);
    return exl2__cuda_round(parts->experts * sizeof(exl2k_expert)) + exl2__cuda_round(tables * sizeof(exl2k_chunk));
}

/* Warps of the experts' kernels share chunks, not slices. */
EXL2__PRIVATE exl2__cuda_slicing exl2__cuda_slicing_of(const exl2__matrix_desc *parts, uint32_t count,
                                                       const exl2__cuda_limits *limits)
{
    return exl2__cuda_is_expert(parts) ? (exl2__cuda_slicing){ 1, 0 } : exl2__cuda_layout_slicing(parts, count, limits);
}

/* Exact, except that it counts a map for each part, while parts that share one order need a single map. */
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
    if (!(parts->uses & EXL2__USE_PRODUCT)) {
        return bytes;
    }
    bool expert = exl2__cuda_is_expert(parts); /* its chunk tables are those of the layer */
    exl2__cuda_slicing slicing = exl2__cuda_slicing_of(parts, count, &m->limits);
    bytes += exl2__cuda_experts_bytes(parts);
    for (uint32_t i = 0; i < count; i++) {
        exl2__cuda_layout_part(&l, &parts[i], slicing, m->limits.chunk_bytes, NULL, NULL);
        strips += l.bytes * exl2__cuda_strips(&parts[i]);
        bytes += expert ? 0 : exl2__cuda_round(l.count * sizeof(exl2k_chunk));
        bytes += parts[i].has_bias ? exl2__cuda_round(parts[i].out * sizeof(float)) : 0;
        bool mapped = parts[i].kind != EXL2__MATRIX_DENSE && !exl2__cuda_is_down(parts);
        bytes += mapped ? exl2__cuda_round(parts[i].in * sizeof(uint16_t)) : 0;
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

/* ---- making ---- */

/* map [part->in] is free for it. */
EXL2__PRIVATE exl2_result exl2__cuda_make_map(exl2__cuda_model *m, const exl2__matrix_desc *part, uint16_t *map,
                                              uint64_t *out)
{
    uint64_t bytes = part->in * sizeof *map;
    for (uint32_t i = 0; i < part->in; i++) {
        map[i] = exl2__cuda_order_in_memory(part, i);
    }
    *out = exl2__cuda_arena_take(&m->weights, bytes);
    return exl2__cuda_upload(m, *out, map, bytes);
}

/* The order of inputs of `down`. */
EXL2__PRIVATE exl2_result exl2__cuda_make_order(exl2__cuda_model *m, const exl2__matrix_desc *down)
{
    exl2__cuda_down_order *o = &m->down;
    o->count = down->kind == EXL2__MATRIX_DENSE ? 0 : (uint32_t)exl2__align_up(down->in, 32);
    uint64_t bytes = o->count * sizeof(uint16_t);
    EXL2__TRY(exl2__cuda_making_reserve(m, bytes, &o->host, &o->host_bytes));
    EXL2__TRY(exl2__cuda_loading_reserve(m, bytes, &o->device, &o->device_bytes));
    for (uint32_t i = 0; i < o->count; i++) {
        ((uint16_t *)o->host)[i < down->in ? exl2__cuda_order_in_memory(down, i) : i] = (uint16_t)i;
    }
    return exl2__cuda_upload(m, o->device, o->host, bytes);
}

EXL2__PRIVATE exl2_result exl2__cuda_make_maps(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                               uint16_t *map, exl2__cuda_matrix *out)
{
    if (exl2__cuda_is_down(parts)) {
        return exl2__cuda_make_order(m, parts);
    }
    if (parts->kind == EXL2__MATRIX_DENSE) {
        return EXL2_OK;
    }
    out->order.apart = exl2__cuda_orders_differ(parts, count);
    for (uint32_t i = 0; i < (out->order.apart ? count : 1); i++) {
        EXL2__TRY(exl2__cuda_make_map(m, &parts[i], map, &out->order.inputs[i]));
    }
    return EXL2_OK;
}

/* The table that says which column of the file is stored at each place; 0: none is moved. */
static inline uint64_t exl2__cuda_columns_from(const exl2__cuda_model *m, const exl2__cuda_matrix *matrix)
{
    return matrix->order.by_down ? m->down.device : 0;
}

/* Writes the scale words of a part, whose chunk table lies on the device. */
EXL2__PRIVATE exl2_result exl2__cuda_make_scales(exl2__cuda_model *m, const exl2__matrix_desc *desc,
                                                 const exl2__cuda_layout *l, const exl2k_part *part,
                                                 uint64_t columns_from)
{
    bool affine = desc->kind == EXL2__MATRIX_AFFINE;
    uint64_t entries = (uint64_t)desc->group_count * desc->out_stored, group_bytes = l->count * sizeof *l->group_of;
    uint64_t scale_bytes = affine ? entries * sizeof(uint16_t) : entries / 2;
    uint64_t zeros_at = exl2__align_up(scale_bytes, 16);
    uint64_t groups_at = affine ? 2 * zeros_at : zeros_at;
    EXL2__TRY(exl2__cuda_staging_reserve(m, groups_at + group_bytes));
    EXL2__TRY(exl2__cuda_upload(m, m->staging, affine ? (const void *)desc->scales : desc->scale_codes, scale_bytes));
    if (affine) {
        EXL2__TRY(exl2__cuda_upload(m, m->staging + zeros_at, desc->zeros, scale_bytes));
    }
    EXL2__TRY(exl2__cuda_upload(m, m->staging + groups_at, l->group_of, group_bytes));
    exl2k_shuffle_args a = { .source = m->staging, .zeros = m->staging + zeros_at, .base = part->base,
                             .chunks = part->chunks, .group_of = m->staging + groups_at,
                             .columns_from = columns_from, .pitch = part->pitch, .columns = desc->out_stored };
    exl2__cuda_grid grid = { .x = desc->out_stored / EXL2__CUDA_STRIP, .y = l->count,
                             .threads = affine ? EXL2K_AFFINE_THREADS : 32 };
    return exl2__cuda_device_launch(m->gpu, affine ? EXL2__KERNEL_exl2k_shuffle_affine
                                                   : EXL2__KERNEL_exl2k_shuffle_scales, grid, &a);
}

/* Uploads the bias of a part, in the order of its columns. */
EXL2__PRIVATE exl2_result exl2__cuda_make_bias(exl2__cuda_model *m, const exl2__matrix_desc *desc, bool by_down,
                                               exl2k_u64 *out)
{
    uint64_t bytes = desc->out * sizeof(float);
    void *slot;
    *out = exl2__cuda_arena_take(&m->weights, bytes);
    if (!by_down) {
        return exl2__cuda_upload(m, *out, desc->bias, bytes);
    }
    EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, bytes, true, &slot)); /* 256 KB at most: a slot is larger */
    for (uint32_t i = 0; i < desc->out; i++) {
        ((float *)slot)[i] = desc->bias[exl2__cuda_order_in_file(&m->down, i)];
    }
    return exl2__cuda_ring_send(m->gpu, &m->ring, *out, bytes);
}

/* Makes the chunk table, the bias and the scale words of a part whose strips begin at device.part[index].base. */
EXL2__PRIVATE exl2_result exl2__cuda_make_part(exl2__cuda_model *m, const exl2__matrix_desc *desc, uint32_t index,
                                               const exl2__cuda_layout *l, exl2__cuda_matrix *out)
{
    exl2k_part *part = &out->device.part[index];
    uint64_t table_bytes = l->count * sizeof(exl2k_chunk);
    part->chunks = out->chunks ? out->chunks + index * out->chunks_step
                               : exl2__cuda_arena_take(&m->weights, table_bytes);
    EXL2__TRY(exl2__cuda_upload(m, part->chunks, l->chunks, table_bytes));
    if (desc->has_bias) {
        EXL2__TRY(exl2__cuda_make_bias(m, desc, out->order.by_down, &part->bias));
    }
    if (desc->kind == EXL2__MATRIX_DENSE) {
        return EXL2_OK;
    }
    return exl2__cuda_make_scales(m, desc, l, part, exl2__cuda_columns_from(m, out));
}

/* Allocates the strips of all parts, whose layouts are complete, and makes the parts. */
EXL2__PRIVATE exl2_result exl2__cuda_make_strips(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                 const exl2__cuda_layout *l, exl2__cuda_matrix *out)
{
    uint64_t bytes = 0, pair = count == 2 ? l[0].bytes + l[1].bytes : 0, at[EXL2K_PARTS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        exl2k_part *part = &out->device.part[i];
        part->pitch = (exl2k_u32)(count == 2 ? pair : l[i].bytes);
        part->strips = exl2__cuda_strips(&parts[i]);
        part->columns = parts[i].out;
        part->column = i ? part[-1].column + part[-1].columns : 0;
        part->chunk_count = l[i].count;
        memcpy(part->slice, l[i].entries, sizeof part->slice);
        at[i] = count == 2 ? (i ? l[0].bytes : 0) : bytes;
        bytes += l[i].bytes * part->strips;
        out->device.strips += part->strips;
        out->device.widths |= l[i].widths;
        out->chunk_bytes = exl2__max32(out->chunk_bytes, l[i].chunk_bytes_max);
    }
    exl2__cuda_matrix_firsts(&out->device);
    uint64_t strips = exl2__cuda_arena_take(&m->weights, bytes);
    for (uint32_t i = 0; i < count; i++) {
        out->device.part[i].base = strips + at[i];
        EXL2__TRY(exl2__cuda_make_part(m, &parts[i], i, &l[i], out));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_make_product(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                  exl2__cuda_matrix *out)
{
    exl2__cuda_layout l[EXL2K_PARTS_MAX];
    uint64_t entries = 0;
    exl2__cuda_slicing slicing = exl2__cuda_slicing_of(parts, count, &m->limits);
    for (uint32_t i = 0; i < count; i++) {
        entries += exl2__cuda_layout_chunks_max(parts[i].in);
    }
    EXL2__TRY(exl2__cuda_making_reserve(m, exl2__cuda_making_bytes(parts->in, count), &m->making, &m->making_bytes));
    out->order.by_down = parts->uses & EXL2__USE_UP && parts->kind != EXL2__MATRIX_DENSE && m->down.count > 0;
    EXL2__ASSERT(!out->order.by_down || m->down.count == parts->out_stored);
    exl2k_chunk *chunks = (exl2k_chunk *)m->making;
    uint16_t(*group_of)[8] = (uint16_t(*)[8])(void *)(chunks + entries);
    uint16_t *map = (uint16_t *)(void *)(group_of + entries);
    out->device = (exl2k_matrix){ .parts = count, .interleaved = count == 2, .slices = slicing.slices,
                                  .rest = slicing.rest, .rows = parts->in };
    for (uint32_t i = 0; i < count; i++) {
        exl2__cuda_layout_part(&l[i], &parts[i], slicing, m->limits.chunk_bytes, chunks, group_of);
        out->feed[i].chunks = l[i].count;
        for (uint32_t k = 0; k < l[i].count && parts[i].kind != EXL2__MATRIX_DENSE; k++) {
            m->ends[i][k] = (uint16_t)(k + 1 < l[i].count ? chunks[k + 1].word : parts[i].words);
        }
        chunks += exl2__cuda_layout_chunks_max(parts[i].in);
        group_of += exl2__cuda_layout_chunks_max(parts[i].in);
    }
    EXL2__TRY(exl2__cuda_make_maps(m, parts, count, map, out));
    return exl2__cuda_make_strips(m, parts, count, l, out);
}

/* The record of a matrix, with what feeding it needs. */
EXL2__PRIVATE exl2__cuda_matrix exl2__cuda_matrix_record(const exl2__matrix_desc *parts, uint32_t count)
{
    exl2__cuda_matrix record = { .in = parts->in, .affine = parts->kind == EXL2__MATRIX_AFFINE,
                                 .pitch = (uint32_t)exl2__align_up(parts->in, 64) + EXL2__CUDA_SPARE };
    for (uint32_t i = 0; i < count; i++) {
        const exl2__matrix_desc *d = &parts[i];
        record.feed[i] = (exl2__cuda_feed){ .dense = d->kind == EXL2__MATRIX_DENSE, .out = d->out,
                                           .out_stored = d->out_stored, .rows = exl2__weights_rows(d),
                                           .row_bytes = exl2__weights_row_bytes(d) };
        bool awq = d->kind == EXL2__MATRIX_AFFINE && d->affine.awq;
        record.feed[i].type = awq                      ? EXL2K_FROM_AWQ
                               : d->dtype == EXL2__F16  ? EXL2K_FROM_F16
                               : d->dtype == EXL2__BF16 ? EXL2K_FROM_BF16
                                                        : EXL2K_FROM_F32;
    }
    return record;
}

#ifndef EXL2_NO_MOE

/* ---- making the matrices of layers with experts ---- */

/* A router stays in natural order and in the type of the file: its products are computed in f32. */
EXL2__PRIVATE exl2_result exl2__cuda_make_router(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                 exl2__cuda_matrix *out)
{
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].kind != EXL2__MATRIX_DENSE) {
            return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend does not compute quantized routers, and %s "
                              "is one; EXL2_BACKEND_CPU does", parts[i].name);
        }
        out->tables[i] = exl2__cuda_arena_take(&m->weights, parts[i].out * exl2__weights_row_bytes(&parts[i]));
        if (parts[i].has_bias) {
            uint64_t bytes = parts[i].out * sizeof(float);
            out->bias[i] = exl2__cuda_arena_take(&m->weights, bytes);
            EXL2__TRY(exl2__cuda_upload(m, out->bias[i], parts[i].bias, bytes));
        }
    }
    return EXL2_OK;
}

/* Makes the record of a layer, whose first matrix is `down` of expert 0. */
EXL2__PRIVATE exl2_result exl2__cuda_experts_open(exl2__cuda_model *m, const exl2__matrix_desc *down,
                                                  exl2__cuda_experts **out)
{
    void *memory;
    uint64_t first_bytes = down->kind == EXL2__MATRIX_DENSE ? 0 : down->out * sizeof(uint16_t);
    EXL2__TRY(exl2__alloc(m->c, sizeof(exl2__cuda_experts) + first_bytes, 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_experts *e = *out = (exl2__cuda_experts *)memory;
    *e = (exl2__cuda_experts){ .next = m->experts, .count = down->experts, .first_bytes = first_bytes,
                               .affine = down->kind == EXL2__MATRIX_AFFINE,
                               .table_chunks = exl2__cuda_expert_chunks(down) };
    m->experts = e;
    uint64_t tables = (uint64_t)e->count * EXL2K_EXPERT_PARTS * e->table_chunks * sizeof(exl2k_chunk);
    e->device = exl2__cuda_arena_take(&m->weights, e->count * sizeof(exl2k_expert));
    e->tables = exl2__cuda_arena_take(&m->weights, tables);
    e->first = first_bytes ? (uint16_t *)(void *)(e + 1) : NULL;
    return EXL2_OK;
}

/* Whether the inputs of up are ordered as those of expert 0, whose table this function writes. */
EXL2__PRIVATE bool exl2__cuda_experts_alike(const exl2__cuda_experts *e, const exl2__matrix_desc *up)
{
    bool dense = up->kind == EXL2__MATRIX_DENSE, alike = dense == (e->first == NULL);
    for (uint32_t i = 0; alike && !dense && i < up->in; i++) {
        uint16_t place = exl2__cuda_order_in_memory(up, i);
        e->first[i] = up->expert == 0 ? place : e->first[i];
        alike = e->first[i] == place;
    }
    return alike;
}

/* Makes a matrix of an expert, and writes its description into the layer's array. */
EXL2__PRIVATE exl2_result exl2__cuda_make_expert(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                 exl2__cuda_experts *e)
{
    bool down = exl2__cuda_is_down(parts);
    if (e->affine != (parts->kind == EXL2__MATRIX_AFFINE)) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend does not compute layers with some experts in "
                          "GPTQ or AWQ and others not, such as %s; EXL2_BACKEND_CPU does", parts->name);
    }
    uint64_t expert = e->device + parts->expert * sizeof(exl2k_expert);
    e->now = exl2__cuda_matrix_record(parts, count);
    e->now.chunks_step = e->table_chunks * sizeof(exl2k_chunk);
    e->now.chunks = e->tables + (parts->expert * EXL2K_EXPERT_PARTS + (down ? 2u : 0u)) * e->now.chunks_step;
    EXL2__TRY(exl2__cuda_make_product(m, parts, count, &e->now));
    if (e->now.order.apart) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend does not compute experts whose gate and up "
                          "order their inputs differently, as in %s; EXL2_BACKEND_CPU does", parts->name);
    }
    for (uint32_t i = 0; i < count; i++) {
        e->chunks[down] = exl2__max32(e->chunks[down], e->now.device.part[i].chunk_count);
    }
    e->chunk_bytes[down] = exl2__max32(e->chunk_bytes[down], e->now.chunk_bytes);
    if (down) {
        return exl2__cuda_upload(m, expert + offsetof(exl2k_expert, down), &e->now.device, sizeof e->now.device);
    }
    e->parts = count;
    e->order.inputs[0] = parts->expert == 0 ? e->now.order.inputs[0] : e->order.inputs[0];
    e->order.apart = e->order.apart || !exl2__cuda_experts_alike(e, parts);
    EXL2__TRY(exl2__cuda_upload(m, expert + offsetof(exl2k_expert, up), &e->now.device, sizeof e->now.device));
    return exl2__cuda_upload(m, expert + offsetof(exl2k_expert, up_map), e->now.order.inputs, sizeof(exl2k_u64));
}

EXL2__PRIVATE void exl2__cuda_experts_close(exl2__cuda_model *m)
{
    while (m->experts) {
        exl2__cuda_experts *next = m->experts->next;
        exl2__free(m->c, m->experts, sizeof *m->experts + m->experts->first_bytes, EXL2_MEM_GENERAL);
        m->experts = next;
    }
}

EXL2__PRIVATE exl2_result exl2__cuda_expert_build(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                  exl2__matrix **out)
{
    exl2__cuda_experts *e = m->experts;
    if (parts->expert == 0 && exl2__cuda_is_down(parts)) {
        EXL2__TRY(exl2__cuda_experts_open(m, parts, &e));
    }
    *out = (exl2__matrix *)(void *)e;
    return exl2__cuda_make_expert(m, parts, count, e);
}
#endif

EXL2__PRIVATE exl2_result exl2__cuda_matrix_build(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                                  exl2__matrix **out)
{
    void *memory;
#ifndef EXL2_NO_MOE
    if (exl2__cuda_is_expert(parts)) {
        return exl2__cuda_expert_build(m, parts, count, out);
    }
#endif
    EXL2__TRY(exl2__alloc(m->c, sizeof(exl2__cuda_matrix), 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_matrix *matrix = (exl2__cuda_matrix *)memory;
    *matrix = exl2__cuda_matrix_record(parts, count);
    matrix->next = m->matrices;
    m->matrices = matrix;
    *out = (exl2__matrix *)(void *)matrix;
#ifndef EXL2_NO_MOE
    if (parts->uses & EXL2__USE_ROUTER) {
        return exl2__cuda_make_router(m, parts, count, matrix);
    }
#endif
    if (parts->uses & EXL2__USE_ROWS) {
        matrix->table = exl2__cuda_arena_take(&m->weights, parts->out * exl2__weights_row_bytes(parts));
    }
    if (parts->uses & EXL2__USE_PRODUCT) {
        EXL2__TRY(exl2__cuda_make_product(m, parts, count, matrix));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_matrix_make(exl2__device *device, exl2__arena *weights,
                                                 const exl2__matrix_desc *parts, uint32_t count, exl2__matrix **out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    (void)weights;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_matrix_build(m, parts, count, out));
}

EXL2__PRIVATE exl2_result exl2__cuda_vector_make(exl2__device *device, exl2__arena *weights, const float *values,
                                                 uint32_t count, exl2__vector **out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    void *memory;
    (void)weights;
    EXL2__TRY(exl2__alloc(m->c, sizeof(exl2__cuda_vector), 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_vector *vector = (exl2__cuda_vector *)memory;
    *vector = (exl2__cuda_vector){ m->vectors, exl2__cuda_arena_take(&m->weights, count * sizeof(float)) };
    m->vectors = vector;
    *out = (exl2__vector *)memory;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_upload(m, vector->values, values, count * sizeof(float)));
}

/* ---- feeding ---- */

/* Gives memory of the ring. If a slice is larger than every slot, the ring is replaced by a larger one. */
EXL2__PRIVATE exl2_result exl2__cuda_stage_slot(exl2__cuda_model *m, uint64_t bytes, void **out)
{
    if (bytes > m->ring.slot_bytes) {
        uint32_t slots = m->ring.slots;
        exl2__cuda_stream *stream = m->ring.stream;
        exl2__cuda_ring_close(m->gpu, &m->ring);
        EXL2__TRY(exl2__cuda_ring_open(m->gpu, &m->ring, slots, bytes, stream));
    }
    return exl2__cuda_ring_take(m->gpu, &m->ring, bytes, true, out);
}

EXL2__PRIVATE exl2_result exl2__cuda_stage(exl2__device *device, uint64_t bytes, void **out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_stage_slot(m, bytes, out));
}

/* Begins a staged block at row `first`: as many rows as fit, in whole chunks of codes, or whole strips of a dense part,
   and at least one of them. */
EXL2__PRIVATE void exl2__cuda_staged_begin(exl2__cuda_model *m, const exl2__cuda_feed *f, const uint16_t *ends,
                                           uint32_t first)
{
    uint32_t fit = (uint32_t)exl2__min64(EXL2__CUDA_STAGING_BYTES / f->row_bytes, f->rows - first);
    exl2__cuda_staged s = { .first = first, .chunk = first ? m->staged.chunk_end : 0 };
    s.chunk_end = s.chunk;
    if (f->dense) {
        uint32_t strips = exl2__max32(fit / EXL2__CUDA_STRIP, 1);
        s.end = fit == f->rows - first ? f->rows : exl2__min32(first + strips * EXL2__CUDA_STRIP, f->rows);
    } else {
        do {
            s.end = ends[s.chunk_end++];
        } while (s.chunk_end < f->chunks && ends[s.chunk_end] - first <= fit);
    }
    m->staged = s;
}

/* Packs the staged block into strips; all of its rows are at `source`. */
EXL2__PRIVATE exl2_result exl2__cuda_staged_pack(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                                 uint64_t source)
{
    const exl2__cuda_feed *f = &matrix->feed[index];
    const exl2k_part *part = &matrix->device.part[index];
    const exl2__cuda_staged *s = &m->staged;
    exl2k_shuffle_args a = { .source = source, .base = part->base, .chunks = part->chunks,
                             .columns_from = exl2__cuda_columns_from(m, matrix), .pitch = part->pitch,
                             .columns = f->dense ? f->out : f->out_stored, .chunk = s->chunk, .first = s->first,
                             .type = f->type };
    if (f->dense) {
        uint32_t strip = s->first / EXL2__CUDA_STRIP;
        a.rows = s->end - s->first;
        a.inputs = matrix->in;
        a.records = (uint32_t)exl2__div_up(matrix->in, EXL2__CUDA_RECORD_ROWS);
        exl2__cuda_grid grid = { .x = (s->end == f->rows ? part->strips : s->end / EXL2__CUDA_STRIP) - strip,
                                 .y = (uint32_t)exl2__div_up(a.records, 8), .threads = EXL2K_SHUFFLE_THREADS };
        return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_shuffle_dense, grid, &a);
    }
    exl2__cuda_grid grid = { .x = f->out_stored / 32, .y = s->chunk_end - s->chunk, .threads = EXL2K_SHUFFLE_THREADS };
    return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_shuffle_codes, grid, &a);
}

/* Loads rows of a part that is only multiplied, block by block. A slice may end one block and begin the next. */
EXL2__PRIVATE exl2_result exl2__cuda_feed_staged(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                                 const exl2__rows_slice *slice)
{
    const exl2__cuda_feed *f = &matrix->feed[index];
    exl2__cuda_staged *s = &m->staged;
    uint32_t row = slice->row, end = slice->row + slice->rows;
    while (row < end) {
        if (row == 0 || row == s->end) {
            exl2__cuda_staged_begin(m, f, m->ends[index], row);
            EXL2__TRY(exl2__cuda_staging_reserve(m, (s->end - s->first) * f->row_bytes));
        }
        uint32_t rows = exl2__min32(end, s->end) - row;
        EXL2__TRY(exl2__cuda_ring_copy(m->gpu, &m->ring, m->staging + (row - s->first) * f->row_bytes,
                                       (row - slice->row) * f->row_bytes, rows * f->row_bytes));
        row += rows;
        if (row == s->end) {
            EXL2__TRY(exl2__cuda_staged_pack(m, matrix, index, m->staging));
        }
    }
    return EXL2_OK;
}

/* Loads rows of a router, which stay as they are. */
static inline exl2_result exl2__cuda_feed_router(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                                 const exl2__rows_slice *slice)
{
    uint64_t row_bytes = matrix->feed[index].row_bytes;
    return exl2__cuda_ring_copy(m->gpu, &m->ring, matrix->tables[index] + slice->row * row_bytes, 0,
                                slice->rows * row_bytes);
}

/* Loads rows of a table, which stays in device memory as it is. If it is multiplied, too, it is packed from there. */
EXL2__PRIVATE exl2_result exl2__cuda_feed_table(exl2__cuda_model *m, const exl2__cuda_matrix *matrix,
                                                const exl2__rows_slice *slice)
{
    const exl2__cuda_feed *f = &matrix->feed[0];
    EXL2__TRY(exl2__cuda_ring_copy(m->gpu, &m->ring, matrix->table + slice->row * f->row_bytes, 0,
                                   slice->rows * f->row_bytes));
    if (matrix->device.parts == 0 || slice->row + slice->rows < f->rows) {
        return EXL2_OK;
    }
    m->staged = (exl2__cuda_staged){ .end = f->rows };
    return exl2__cuda_staged_pack(m, matrix, 0, matrix->table);
}

EXL2__PRIVATE exl2_result exl2__cuda_feed_slice(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                                const exl2__rows_slice *slice)
{
    EXL2__ASSERT(slice->data == m->ring.memory + m->ring.next * m->ring.slot_bytes + m->ring.used); /* of stage */
    EXL2__TRY(matrix->table           ? exl2__cuda_feed_table(m, matrix, slice)
              : matrix->tables[index] ? exl2__cuda_feed_router(m, matrix, index, slice)
                                      : exl2__cuda_feed_staged(m, matrix, index, slice));
    return exl2__cuda_ring_next(m->gpu, &m->ring); /* slots that are used only in part stay in the CPU's cache */
}

EXL2__PRIVATE exl2_result exl2__cuda_matrix_feed(exl2__device *device, exl2__matrix *matrix, uint32_t part,
                                                 const exl2__rows_slice *slice, exl2__work *work)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    (void)work; /* enqueueing is short */
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_feed_slice(m, exl2__cuda_matrix_of(matrix), part, slice));
}

#endif
