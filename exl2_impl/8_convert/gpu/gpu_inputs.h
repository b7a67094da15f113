/* gpu_inputs.h: rows of an input on the GPU: their moments, and their products with a model's matrices, on tensor
   cores.
   takes: rows in host memory or device memory, parts of the CPU backend.
   gives: exl2__gpu_rows, exl2__gpu_rows_halves; exl2__gpu_gram_begin, exl2__gpu_gram_add, exl2__gpu_gram_add_rows,
          exl2__gpu_gram_finish;
          exl2__gpu_weights_of, exl2__gpu_multiply, exl2__gpu_act.

   Inputs are rounded to halves, after a power-of-two scale for each channel (moments) or row (products), which is exact
   to undo. Sums are f32: those of moments over the rows of one call, and over the calls. The context need not be
   current but where it is said. */
#ifndef EXL2__GPU_INPUTS_H
#define EXL2__GPU_INPUTS_H

#include "../decode.h"
#include "gpu.h"

#ifndef EXL2_NO_CUDA

/* ---- rows ---- */

/* x [rows, in], in device memory, becomes the input; it must stay there while the input is used. The context is
   current. */
EXL2__PRIVATE exl2_result exl2__gpu_rows_halves(exl2__gpu *g, uint64_t x, uint32_t rows, uint32_t in)
{
    exl2k_half_rows_args a = { .x = x, .in = in };
    g->rows = g->in = 0;
    EXL2__TRY(exl2__gpu_need(g, exl2__align_up(rows, EXL2K_HALF_TILE) * in * 2, EXL2__GPU_HALVES, &a.out));
    EXL2__TRY(exl2__gpu_need(g, rows * sizeof(float), EXL2__GPU_SCALES, &a.scale));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_rows, rows, 1, 128, 0, &a));
    g->input = x;
    g->rows = rows;
    g->in = in;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__gpu_rows_steps(exl2__gpu *g, const float *x, uint32_t rows, uint32_t in)
{
    exl2k_u64 address;
    uint64_t bytes = (uint64_t)rows * in * sizeof *x;
    EXL2__TRY(exl2__gpu_need(g, bytes, EXL2__GPU_X, &address));
    EXL2__TRY(exl2__gpu_up(g, address, x, bytes));
    return exl2__gpu_rows_halves(g, address, rows, in);
}

/* x [rows, in] becomes the input that the other functions use; in: a multiple of 32. */
EXL2__PRIVATE exl2_result exl2__gpu_rows(exl2__gpu *g, const float *x, uint32_t rows, uint32_t in)
{
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    return exl2__cuda_device_leave_with(g->d, exl2__gpu_rows_steps(g, x, rows, in));
}

static inline exl2_result exl2__gpu_half_product(exl2__gpu *g, const exl2k_half_product_args *a)
{
    if (g->d->kernels.functions[EXL2__KERNEL_exl2k_half_wg] && a->k % 64 == 0) {
        return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_wg, (uint32_t)exl2__div_up(a->m, 256),
                                (uint32_t)exl2__div_up(a->n, 128), 256, EXL2K_HALF_WG_SHARED, a);
    }
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_product, (uint32_t)exl2__div_up(a->m, EXL2K_HALF_TILE),
                            (uint32_t)exl2__div_up(a->n, EXL2K_HALF_TILE), EXL2K_HALF_THREADS, EXL2K_HALF_SHARED, a);
}

/* ---- moments ---- */

/* Begins the sums of an input of a layer. */
EXL2__PRIVATE exl2_result exl2__gpu_gram_begin(exl2__gpu *g, uint32_t input, uint32_t in)
{
    exl2k_u64 sums;
    uint64_t bytes = (uint64_t)in * in * sizeof(float);
    g->sums[input].strips = NULL;
    if (in == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    exl2_result result = exl2__gpu_need(g, bytes, EXL2__GPU_SUMS + input, &sums);
    return exl2__cuda_device_leave_with(g->d, result < 0 ? result : exl2__gpu_fill(g, sums, bytes));
}

/* The sums of an input; those from EXL2__GPU_INPUTS on are of experts. */
static inline uint64_t exl2__gpu_gram_sums(const exl2__gpu *g, uint32_t input, uint32_t in)
{
    return input < EXL2__GPU_INPUTS ? g->scratch[EXL2__GPU_SUMS + input].address
         : g->scratch[EXL2__GPU_EXPERT_SUMS].address + (uint64_t)(input - EXL2__GPU_INPUTS) * in * in * sizeof(float);
}

/* Adds x [rows, in] in device memory. The context is current. */
EXL2__PRIVATE exl2_result exl2__gpu_gram_add_rows(exl2__gpu *g, uint32_t input, uint64_t x, uint32_t rows, uint32_t in)
{
    uint32_t pitch = (uint32_t)exl2__align_up(rows, EXL2K_HALF_DEPTH);
    exl2k_half_columns_args a = { .x = x, .in = in, .rows = rows, .pitch = pitch };
    if (rows == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__gpu_need(g, exl2__align_up(in, EXL2K_HALF_TILE) * pitch * 2, EXL2__GPU_COLUMNS, &a.out));
    EXL2__TRY(exl2__gpu_need(g, in * sizeof(float), EXL2__GPU_COLUMN_SCALES, &a.scale));
    exl2k_half_product_args p = { .a = a.out, .b = a.out, .c = exl2__gpu_gram_sums(g, input, in), .a_scale = a.scale,
                                  .b_scale = a.scale, .m = in, .n = in, .k = pitch, .c_pitch = in, .add = 1,
                                  .lower = 1 };
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_columns, in / 32, 1, 256, 0, &a));
    return exl2__gpu_half_product(g, &p);
}

/* Adds the rows on the GPU. */
EXL2__PRIVATE exl2_result exl2__gpu_gram_add(exl2__gpu *g, uint32_t input)
{
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    return exl2__cuda_device_leave_with(g->d, exl2__gpu_gram_add_rows(g, input, g->input, g->rows, g->in));
}

EXL2__PRIVATE exl2_result exl2__gpu_gram_finish_steps(exl2__gpu *g, uint32_t input, uint32_t in, float factor,
                                                      float *strips)
{
    uint64_t bytes = (uint64_t)in * in * sizeof *strips;
    exl2k_gram_args a = { .sum = exl2__gpu_gram_sums(g, input, in), .in = in, .factor = factor };
    EXL2__TRY(exl2__gpu_need(g, bytes, EXL2__GPU_Y, &a.strips));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_gram_finish, in / 32, in / 32, 256, 0, &a));
    return exl2__gpu_down(g, strips, a.strips, bytes);
}

/* strips [in / 32, in, 32] = factor times the sums, which stay there, too, until others are begun. (Factorizations do
   not look for those of experts there.) */
EXL2__PRIVATE exl2_result exl2__gpu_gram_finish(exl2__gpu *g, uint32_t input, uint32_t in, float factor, float *strips)
{
    if (in == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    exl2_result result = exl2__gpu_gram_finish_steps(g, input, in, factor, strips);
    if (input < EXL2__GPU_INPUTS) {
        g->sums[input] = (exl2__gpu_sums){ result < 0 ? NULL : strips, factor };
    }
    return exl2__cuda_device_leave_with(g->d, result);
}

/* ---- products ---- */

/* Makes room in the list of weights. */
EXL2__PRIVATE exl2_result exl2__gpu_weights_room(exl2__gpu *g)
{
    exl2__ctx *c = g->d->c;
    void *memory;
    uint32_t room = g->weight_room * 2 + 64;
    if (g->weight_count < g->weight_room) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__alloc(c, room * sizeof *g->weights, sizeof(void *), EXL2_MEM_GENERAL, &memory));
    if (g->weights) {
        memcpy(memory, g->weights, g->weight_count * sizeof *g->weights);
        exl2__free(c, g->weights, g->weight_room * sizeof *g->weights, EXL2_MEM_GENERAL);
    }
    g->weights = (exl2__gpu_weights *)memory;
    g->weight_room = room;
    return EXL2_OK;
}

static inline uint32_t exl2__gpu_source(const exl2__cpu_part *p)
{
    return p->source == EXL2__CPU_BF16 ? EXL2K_HALF_BF16 : p->source == EXL2__CPU_F32 ? EXL2K_HALF_F32 : EXL2K_HALF_F16;
}

/* The weights of a part go to the buffer RAW, as the model has them; codes become halves. */
EXL2__PRIVATE exl2_result exl2__gpu_raw(exl2__gpu *g, const exl2__cpu_part *p)
{
    bool codes = exl2__cpu_matrix_is_codes(p->source);
    uint64_t bytes = codes ? (uint64_t)p->strips * p->in * EXL2__CPU_STRIP * 2 : p->strips * p->strip_bytes;
    exl2k_u64 raw;
    void *memory;
    EXL2__TRY(exl2__gpu_need(g, bytes, EXL2__GPU_RAW, &raw));
    if (!codes) {
        return exl2__gpu_up(g, raw, p->data, bytes);
    }
    EXL2__TRY(exl2__alloc(g->d->c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &memory));
    exl2__decode_part(g->d->c, p, (uint16_t *)memory);
    exl2_result result = exl2__gpu_up(g, raw, memory, bytes);
    exl2__free(g->d->c, memory, bytes, EXL2_MEM_SCRATCH);
    return result;
}

/* Bytes of a matrix of `out` outputs as halves. */
static inline uint64_t exl2__gpu_halves_bytes(uint32_t in, uint32_t out)
{
    return exl2__align_up(out, EXL2K_HALF_TILE) * in * 2;
}

/* *out [strips * 32, in] f16, of RAW. */
EXL2__PRIVATE exl2_result exl2__gpu_halves(exl2__gpu *g, const exl2__cpu_part *p, uint32_t source,
                                           exl2__gpu_buffer *out)
{
    EXL2__TRY(exl2__gpu_alloc(g, exl2__gpu_halves_bytes(p->in, p->strips * EXL2__CPU_STRIP), out));
    exl2k_half_weights_args a = { .strips = g->scratch[EXL2__GPU_RAW].address, .out = out->address, .in = p->in,
                                  .source = source };
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_weights, (uint32_t)exl2__div_up(p->in, 32), p->strips, 256, 0,
                            &a);
}

/* Those of a part, or NULL. Passes ask for them in the same order, so that they are mostly next to the last found. */
EXL2__PRIVATE exl2__gpu_weights *exl2__gpu_weights_find(exl2__gpu *g, const exl2__cpu_part *p)
{
    for (uint32_t i = 0; i < g->weight_count; i++) {
        uint32_t at = (g->weight_found + i) % g->weight_count;
        if (g->weights[at].part == p && g->weights[at].data == p->data) {
            g->weight_found = at;
            return &g->weights[at];
        }
    }
    return NULL;
}

/* The weights [strips * 32, in] of a part as halves, which are kept while there is memory. *out is valid until others
   are read. */
EXL2__PRIVATE exl2_result exl2__gpu_weights_of(exl2__gpu *g, const exl2__cpu_part *p, exl2__gpu_weights **out)
{
    *out = exl2__gpu_weights_find(g, p);
    if (*out) {
        return EXL2_OK;
    }
    exl2__gpu_forget(g, p);
    exl2__gpu_weights w = { p, p->data, { 0, 0 }, { 0, 0 } };
    uint64_t bytes = exl2__gpu_halves_bytes(p->in, p->strips * EXL2__CPU_STRIP);
    for (uint32_t i = 0; g->weight_max && g->weight_bytes + bytes > g->weight_max && i < g->weight_count;) {
        if (g->weights[i].kept.address) {
            i++;
        } else {
            exl2__gpu_drop(g, i); /* the oldest */
        }
    }
    EXL2__TRY(exl2__gpu_weights_room(g));
    EXL2__TRY(exl2__gpu_raw(g, p));
    exl2_result result = exl2__gpu_halves(g, p, exl2__gpu_source(p), &w.memory);
    *out = &g->weights[g->weight_count];
    g->weights[g->weight_count++] = w;
    g->weight_bytes += w.memory.bytes;
    return result;
}

/* Copies a short vector to the device, to the buffer VECTORS + index: *address, 0 for NULL. */
EXL2__PRIVATE exl2_result exl2__gpu_vector(exl2__gpu *g, const float *values, uint32_t count, uint32_t index,
                                           exl2k_u64 *address)
{
    *address = 0;
    if (!values) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__gpu_need(g, count * sizeof *values, EXL2__GPU_VECTORS + index, address));
    return exl2__gpu_up(g, *address, values, count * sizeof *values);
}

/* out [rows, strips * 32], in device memory: the input times a part of as many inputs, with its bias; with `add` not 0,
   out += add times that. The context is current. */
EXL2__PRIVATE exl2_result exl2__gpu_multiply(exl2__gpu *g, const exl2__cpu_part *p, uint64_t out, float add)
{
    uint32_t columns = p->strips * EXL2__CPU_STRIP;
    exl2__gpu_weights *weights;
    exl2k_half_product_args a = { .a = g->scratch[EXL2__GPU_HALVES].address, .c = out,
                                  .a_scale = g->scratch[EXL2__GPU_SCALES].address, .m = g->rows, .n = columns,
                                  .k = p->in, .c_pitch = columns, .add = add };
    EXL2__ASSERT(p->in == g->in);
    EXL2__TRY(exl2__gpu_vector(g, p->bias, columns, 0, &a.bias));
    EXL2__TRY(exl2__gpu_weights_of(g, p, &weights));
    a.b = weights->memory.address;
    return exl2__gpu_half_product(g, &a);
}

/* *out [rows, outputs of gate] in device memory: act(x gate) * (x up), or act(x gate) with up NULL: the input of the
   MLP's last product. act: EXL2K_ACT_*, with the bound `limit` of CLAMPED. The context is current. */
EXL2__PRIVATE exl2_result exl2__gpu_act(exl2__gpu *g, const exl2__cpu_part *gate, const exl2__cpu_part *up,
                                        uint32_t act, float limit, exl2k_u64 *out)
{
    exl2k_half_act_args a = { .count = (uint64_t)g->rows * gate->strips * EXL2__CPU_STRIP, .act = act,
                              .limit = limit };
    EXL2__TRY(exl2__gpu_need(g, a.count * sizeof(float), EXL2__GPU_ACTIVE, &a.x));
    EXL2__TRY(exl2__gpu_need(g, a.count * sizeof(float), EXL2__GPU_Y, &a.gate));
    EXL2__TRY(exl2__gpu_multiply(g, gate, a.gate, 0));
    if (up) {
        EXL2__TRY(exl2__gpu_need(g, a.count * sizeof(float), EXL2__GPU_UP, &a.up));
        EXL2__TRY(exl2__gpu_multiply(g, up, a.up, 0));
    }
    *out = a.x;
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_act, g->d->sm_count * 8, 1, 256, 0, &a);
}

#endif

#endif
