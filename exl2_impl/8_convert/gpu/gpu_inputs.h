/* gpu_inputs.h: rows of an input on the GPU: their moments, and their products with a model's matrices, on tensor
   cores.
   takes: rows in host memory, dense parts of the CPU backend.
   gives: exl2__gpu_rows; exl2__gpu_gram_begin, exl2__gpu_gram_add, exl2__gpu_gram_finish; exl2__gpu_product,
          exl2__gpu_act.
   owns:  nothing.

   Inputs are rounded to halves, after a power-of-two scale for each channel (moments) or row (products), which is exact
   to undo. Sums are f32: those of moments over the rows of one call, and over the calls. The context need not be
   current. */
#ifndef EXL2__GPU_INPUTS_H
#define EXL2__GPU_INPUTS_H

#include "gpu.h"

#ifndef EXL2_NO_CUDA

/* ---- rows ---- */

/* What g->x holds becomes the input. */
static exl2_result exl2__gpu_rows_halves(exl2__gpu *g, uint32_t rows, uint32_t in)
{
    exl2k_half_rows_args a = { .in = in };
    g->rows = g->in = 0;
    EXL2__TRY(exl2__gpu_need(g, exl2__align_up(rows, EXL2K_HALF_TILE) * in * 2, &g->halves));
    EXL2__TRY(exl2__gpu_need(g, rows * sizeof(float), &g->scales));
    a.x = g->x.address;
    a.out = g->halves.address;
    a.scale = g->scales.address;
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_rows, rows, 1, 128, 0, &a));
    g->rows = rows;
    g->in = in;
    return EXL2_OK;
}

static exl2_result exl2__gpu_rows_steps(exl2__gpu *g, const float *x, uint32_t rows, uint32_t in)
{
    uint64_t bytes = (uint64_t)rows * in * sizeof *x;
    EXL2__TRY(exl2__gpu_need(g, bytes, &g->x));
    EXL2__TRY(exl2__gpu_up(g, g->x.address, x, bytes));
    return exl2__gpu_rows_halves(g, rows, in);
}

/* x [rows, in] becomes the input that the other functions use; in: a multiple of 32. */
static exl2_result exl2__gpu_rows(exl2__gpu *g, const float *x, uint32_t rows, uint32_t in)
{
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    return exl2__cuda_device_leave_with(g->d, exl2__gpu_rows_steps(g, x, rows, in));
}

static inline exl2_result exl2__gpu_half_product(exl2__gpu *g, const exl2k_half_product_args *a)
{
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_product, (uint32_t)exl2__div_up(a->m, EXL2K_HALF_TILE),
                            (uint32_t)exl2__div_up(a->n, EXL2K_HALF_TILE), EXL2K_HALF_THREADS, EXL2K_HALF_SHARED, a);
}

/* ---- moments ---- */

/* Begins the sums of an input of a layer. */
static exl2_result exl2__gpu_gram_begin(exl2__gpu *g, uint32_t input, uint32_t in)
{
    uint64_t bytes = (uint64_t)in * in * sizeof(float);
    if (in == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    exl2_result result = exl2__gpu_need(g, bytes, &g->sums[input]);
    return exl2__cuda_device_leave_with(g->d, result < 0 ? result : exl2__gpu_fill(g, g->sums[input].address, bytes));
}

static exl2_result exl2__gpu_gram_add_steps(exl2__gpu *g, uint32_t input)
{
    uint32_t pitch = (uint32_t)exl2__align_up(g->rows, EXL2K_HALF_DEPTH);
    EXL2__TRY(exl2__gpu_need(g, exl2__align_up(g->in, EXL2K_HALF_TILE) * pitch * 2, &g->columns));
    EXL2__TRY(exl2__gpu_need(g, g->in * sizeof(float), &g->column_scales));
    exl2k_half_columns_args a = { .x = g->x.address, .out = g->columns.address, .scale = g->column_scales.address,
                                  .in = g->in, .rows = g->rows, .pitch = pitch };
    exl2k_half_product_args p = { .a = g->columns.address, .b = g->columns.address, .c = g->sums[input].address,
                                  .a_scale = g->column_scales.address, .b_scale = g->column_scales.address,
                                  .m = g->in, .n = g->in, .k = pitch, .c_pitch = g->in, .add = 1, .lower = 1 };
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_columns, g->in / 32, 1, 256, 0, &a));
    return exl2__gpu_half_product(g, &p);
}

/* Adds the rows on the GPU. */
static exl2_result exl2__gpu_gram_add(exl2__gpu *g, uint32_t input)
{
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    return exl2__cuda_device_leave_with(g->d, exl2__gpu_gram_add_steps(g, input));
}

static exl2_result exl2__gpu_gram_finish_steps(exl2__gpu *g, uint32_t input, uint32_t in, float factor, float *strips)
{
    uint64_t bytes = (uint64_t)in * in * sizeof *strips;
    EXL2__TRY(exl2__gpu_need(g, bytes, &g->y));
    exl2k_gram_args a = { .sum = g->sums[input].address, .strips = g->y.address, .in = in, .factor = factor };
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_gram_finish, in / 32, in / 32, 256, 0, &a));
    return exl2__gpu_down(g, strips, g->y.address, bytes);
}

/* strips [in / 32, in, 32] = factor times the sums. */
static exl2_result exl2__gpu_gram_finish(exl2__gpu *g, uint32_t input, uint32_t in, float factor, float *strips)
{
    if (in == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    return exl2__cuda_device_leave_with(g->d, exl2__gpu_gram_finish_steps(g, input, in, factor, strips));
}

/* ---- products ---- */

/* Makes room in the list of weights. */
static exl2_result exl2__gpu_weights_room(exl2__gpu *g)
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
    return p->source == EXL2__CPU_F16 ? EXL2K_HALF_F16 : p->source == EXL2__CPU_BF16 ? EXL2K_HALF_BF16 : EXL2K_HALF_F32;
}

/* The weights of a part go to g->raw as the model has them. */
static exl2_result exl2__gpu_raw(exl2__gpu *g, const exl2__cpu_part *p)
{
    uint64_t bytes = p->strips * p->strip_bytes;
    EXL2__TRY(exl2__gpu_need(g, bytes, &g->raw));
    return exl2__gpu_up(g, g->raw.address, p->data, bytes);
}

/* *out [strips * 32, in] f16, of g->raw. */
static exl2_result exl2__gpu_halves(exl2__gpu *g, const exl2__cpu_part *p, uint32_t source, exl2__gpu_buffer *out)
{
    uint64_t columns = exl2__align_up((uint64_t)p->strips * EXL2__CPU_STRIP, EXL2K_HALF_TILE);
    EXL2__TRY(exl2__gpu_alloc(g, columns * p->in * 2, out));
    exl2k_half_weights_args a = { .strips = g->raw.address, .out = out->address, .in = p->in, .source = source };
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_weights, (uint32_t)exl2__div_up(p->in, 32), p->strips, 256, 0,
                            &a);
}

/* Those of a part, or NULL. */
static exl2__gpu_weights *exl2__gpu_weights_find(exl2__gpu *g, const exl2__cpu_part *p)
{
    for (uint32_t i = 0; i < g->weight_count; i++) {
        if (g->weights[i].part == p && g->weights[i].data == p->data) {
            return &g->weights[i];
        }
    }
    return NULL;
}

/* The weights [strips * 32, in] of a part as halves, which are kept while there is memory. *out is valid until others
   are read. */
static exl2_result exl2__gpu_weights_of(exl2__gpu *g, const exl2__cpu_part *p, exl2__gpu_weights **out)
{
    *out = exl2__gpu_weights_find(g, p);
    if (*out) {
        return EXL2_OK;
    }
    exl2__gpu_forget(g, p);
    exl2__gpu_weights w = { p, p->data, { 0, 0 }, { 0, 0 } };
    EXL2__TRY(exl2__gpu_weights_room(g));
    EXL2__TRY(exl2__gpu_raw(g, p));
    exl2_result result = exl2__gpu_halves(g, p, exl2__gpu_source(p), &w.memory);
    *out = &g->weights[g->weight_count];
    g->weights[g->weight_count++] = w;
    return result;
}

/* *out: gets the product with a part. */
static exl2_result exl2__gpu_multiply(exl2__gpu *g, const exl2__cpu_part *p, exl2__gpu_buffer *out)
{
    uint32_t columns = p->strips * EXL2__CPU_STRIP;
    exl2__gpu_weights *weights;
    EXL2__TRY(exl2__gpu_need(g, (uint64_t)g->rows * columns * sizeof(float), out));
    EXL2__TRY(exl2__gpu_weights_of(g, p, &weights));
    exl2k_half_product_args a = { .a = g->halves.address, .b = weights->memory.address, .c = out->address,
                                  .a_scale = g->scales.address, .m = g->rows, .n = columns, .k = p->in,
                                  .c_pitch = columns };
    return exl2__gpu_half_product(g, &a);
}

static exl2_result exl2__gpu_product_steps(exl2__gpu *g, const exl2__cpu_part *p, float *out)
{
    EXL2__TRY(exl2__gpu_multiply(g, p, &g->y));
    return exl2__gpu_down(g, out, g->y.address, (uint64_t)g->rows * p->strips * EXL2__CPU_STRIP * sizeof *out);
}

/* out [rows, strips * 32]: the rows on the GPU times a dense part of as many inputs, without bias. */
static exl2_result exl2__gpu_product(exl2__gpu *g, const exl2__cpu_part *p, float *out)
{
    EXL2__ASSERT(p->in == g->in && !exl2__cpu_matrix_is_codes(p->source));
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    return exl2__cuda_device_leave_with(g->d, exl2__gpu_product_steps(g, p, out));
}

/* The bias of a part, at row `row` of g->bias; 0: it has none. */
static exl2_result exl2__gpu_act_bias(exl2__gpu *g, const exl2__cpu_part *p, uint32_t row, exl2k_u64 *address)
{
    uint64_t bytes = (uint64_t)p->strips * EXL2__CPU_STRIP * sizeof *p->bias;
    *address = p->bias ? g->bias.address + row * bytes : 0;
    return p->bias ? exl2__gpu_up(g, *address, p->bias, bytes) : EXL2_OK;
}

static exl2_result exl2__gpu_act_steps(exl2__gpu *g, const exl2__cpu_part *gate, const exl2__cpu_part *up, uint32_t act,
                                       float limit)
{
    uint32_t columns = gate->strips * EXL2__CPU_STRIP;
    uint64_t count = (uint64_t)g->rows * columns;
    exl2k_half_act_args a = { .count = count, .in = columns, .act = act, .limit = limit };
    EXL2__TRY(exl2__gpu_need(g, 2 * columns * sizeof(float), &g->bias));
    EXL2__TRY(exl2__gpu_multiply(g, gate, &g->y));
    EXL2__TRY(exl2__gpu_act_bias(g, gate, 0, &a.gate_bias));
    if (up) {
        EXL2__TRY(exl2__gpu_multiply(g, up, &g->up));
        EXL2__TRY(exl2__gpu_act_bias(g, up, 1, &a.up_bias));
        a.up = g->up.address;
    }
    EXL2__TRY(exl2__gpu_need(g, count * sizeof(float), &g->x));
    a.gate = g->y.address;
    a.x = g->x.address;
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_act, g->d->sm_count * 8, 1, 256, 0, &a));
    return exl2__gpu_rows_halves(g, g->rows, columns);
}

/* The input becomes act(x gate) * (x up), or act(x gate) with up NULL: the input of the MLP's last product. act:
   EXL2K_ACT_*, with the bound `limit` of CLAMPED. gate's outputs are a multiple of 32. */
static exl2_result exl2__gpu_act(exl2__gpu *g, const exl2__cpu_part *gate, const exl2__cpu_part *up, uint32_t act,
                                 float limit)
{
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    return exl2__cuda_device_leave_with(g->d, exl2__gpu_act_steps(g, gate, up, act, limit));
}

#endif

#endif
