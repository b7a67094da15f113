/* gpu_solve.h: the quantizer of one matrix on the GPU, and what its blocks would lose (quantizer/solve.h and losses.h
   say what they are).
   takes: a factor on the GPU, groups, a dense part of the CPU backend.
   gives: exl2__gpu_solve, exl2__gpu_solve_sizes, exl2__gpu_solve_open, exl2__gpu_losses_bytes, exl2__gpu_losses,
          exl2__gpu_solve_run, exl2__gpu_solve_read,
          exl2__gpu_solve_values, exl2__gpu_solve_swap, exl2__gpu_solve_restore, exl2__gpu_solve_energy,
          exl2__gpu_solve_close.
   owns:  weights, errors, codes, levels and scales in device memory, until exl2__gpu_solve_close. The context need not
          be current. */
#ifndef EXL2__GPU_SOLVE_H
#define EXL2__GPU_SOLVE_H

#include "../../1_load/matrix_desc.h"
#include "gpu_factor.h"
#include "gpu_inputs.h"

#ifdef EXL2_NO_CUDA
typedef struct exl2__gpu_solve {
    int none;
} exl2__gpu_solve;
#else

#define EXL2__GPU_SOLVE_CTAS 264u /* a product with fewer tiles is cut into slices */
#define EXL2__GPU_SOLVE_BUFFERS 10u

typedef struct exl2__gpu_solve {
    exl2__gpu *g;             /* NULL: not open */
    const exl2__group *group; /* [groups] */
    uint32_t groups, max_slices;
    exl2__gpu_buffer buffers[EXL2__GPU_SOLVE_BUFFERS];
    exl2k_solve_args a;
} exl2__gpu_solve;

/* ---- memory ---- */

/* Accepts zeroed ones. */
EXL2__PRIVATE void exl2__gpu_solve_close(exl2__gpu_solve *s)
{
    if (s->g) {
        bool entered = exl2__gpu_enter(s->g);
        s->g->d->driver.stream_wait(s->g->d->stream); /* after a failure kernels may still use them */
        for (size_t i = 0; i < EXL2__GPU_SOLVE_BUFFERS; i++) {
            exl2__gpu_free(s->g, &s->buffers[i]);
        }
        exl2__gpu_leave(s->g, entered);
    }
    *s = (exl2__gpu_solve){ 0 };
}

/* Most slices of a product. */
static inline uint32_t exl2__gpu_solve_slices(uint32_t columns)
{
    uint32_t tiles = (uint32_t)exl2__div_up(columns, EXL2K_FLOAT_COLUMNS);
    return exl2__min32((uint32_t)exl2__div_up(EXL2__GPU_SOLVE_CTAS, tiles), EXL2K_SOLVE_SLICES);
}

/* The bytes of each buffer, in the order of exl2__gpu_solve_alloc. Returns their sum. */
EXL2__PRIVATE uint64_t exl2__gpu_solve_sizes(uint32_t in, uint32_t columns, uint32_t groups,
                                             uint64_t sizes[EXL2__GPU_SOLVE_BUFFERS])
{
    uint64_t all = (uint64_t)in * columns, block = (uint64_t)EXL2K_SOLVE_ROWS * columns * sizeof(float), sum = 0;
    uint32_t strips = columns / EXL2K_CONVERT_STRIP;
    const uint64_t bytes[EXL2__GPU_SOLVE_BUFFERS] = {
        all * sizeof(float), all * sizeof(float), all, (uint64_t)groups * columns, groups * sizeof(uint32_t),
        groups * sizeof(exl2__group), block, exl2__gpu_solve_slices(columns) * block,
        ((uint64_t)columns + strips) * sizeof(float), (uint64_t)strips * EXL2K_SOLVE_TRIES * sizeof(double)
    };
    for (uint32_t i = 0; i < EXL2__GPU_SOLVE_BUFFERS; i++) {
        sizes[i] = bytes[i];
        sum += bytes[i];
    }
    return sum;
}

EXL2__PRIVATE exl2_result exl2__gpu_solve_alloc(exl2__gpu_solve *s)
{
    exl2k_solve_args *a = &s->a;
    uint64_t sizes[EXL2__GPU_SOLVE_BUFFERS];
    exl2k_u64 *addresses[EXL2__GPU_SOLVE_BUFFERS] = { &a->weights, &a->errors, &a->codes, &a->levels, &a->scale_max,
                                                      &a->groups, &a->targets, &a->partial, &a->peaks, &a->sums };
    uint64_t sum = exl2__gpu_solve_sizes(a->in, a->columns, s->groups, sizes);
    s->max_slices = exl2__gpu_solve_slices(a->columns);
    exl2__gpu_make_room(s->g, sum + (uint64_t)a->in * a->columns * 2); /* with the weights in RAW */
    for (uint32_t i = 0; i < EXL2__GPU_SOLVE_BUFFERS; i++) {
        EXL2__TRY(exl2__gpu_alloc(s->g, sizes[i], &s->buffers[i]));
        *addresses[i] = s->buffers[i].address;
    }
    return EXL2_OK;
}

/* ---- weights ---- */

EXL2__PRIVATE exl2_result exl2__gpu_solve_open_steps(exl2__gpu_solve *s, const exl2__cpu_part *p)
{
    EXL2__TRY(exl2__gpu_solve_alloc(s));
    EXL2__TRY(exl2__gpu_up(s->g, s->a.groups, s->group, s->groups * sizeof *s->group));
    EXL2__TRY(exl2__gpu_raw(s->g, p));
    s->a.strips_of = s->g->scratch[EXL2__GPU_RAW].address;
    s->a.source = exl2__gpu_source(p);
    return exl2__gpu_launch(s->g, EXL2__KERNEL_exl2k_solve_load, s->a.strips, s->a.in / 4, EXL2K_SOLVE_THREADS, 0,
                            &s->a);
}

/* Allocates, and reads the first `used` columns of a dense part; others are zeros. columns: a multiple of 32. *s is
   zeroed before; it is closed after a failure, too. The groups must last as long as *s. */
EXL2__PRIVATE exl2_result exl2__gpu_solve_open(exl2__gpu_solve *s, const exl2__gpu_factor *f, const exl2__cpu_part *p,
                                               uint32_t used, uint32_t columns, const exl2__group *group,
                                               uint32_t groups)
{
    s->g = f->gpu;
    s->group = group;
    s->groups = groups;
    s->a = (exl2k_solve_args){ .hessian = f->hessian.address, .feedback = f->feedback.address,
                               .diagonal = f->diagonal.address, .order = f->order.address, .in = p->in,
                               .columns = columns, .strips = columns / EXL2K_CONVERT_STRIP, .used = used };
    EXL2__TRY(exl2__cuda_device_enter(s->g->d));
    return exl2__cuda_device_leave_with(s->g->d, exl2__gpu_solve_open_steps(s, p));
}

/* ---- losses ---- */

typedef struct exl2__gpu_losses_scratch {
    exl2__gpu_buffer peaks, tries, sums, totals;
} exl2__gpu_losses_scratch;

/* What exl2__gpu_losses allocates. */
static inline uint64_t exl2__gpu_losses_bytes(uint32_t in, uint32_t columns)
{
    uint64_t blocks = in / EXL2K_LOSSES_BLOCK, strips = columns / EXL2K_CONVERT_STRIP;
    uint64_t cell = sizeof(uint32_t) + (strips + 1) * sizeof(double);
    return blocks * strips * sizeof(float) + blocks * EXL2K_LOSSES_CELLS * cell;
}

EXL2__PRIVATE exl2_result exl2__gpu_losses_steps(exl2__gpu_solve *s, exl2__gpu_losses_scratch *m, exl2k_losses_args *a,
                                                 double *totals)
{
    exl2__gpu *g = s->g;
    uint32_t blocks = a->in / EXL2K_LOSSES_BLOCK;
    uint64_t cells = (uint64_t)blocks * EXL2K_LOSSES_CELLS;
    EXL2__TRY(exl2__gpu_alloc(g, (uint64_t)blocks * a->strips * sizeof(float), &m->peaks));
    EXL2__TRY(exl2__gpu_alloc(g, cells * sizeof(uint32_t), &m->tries));
    EXL2__TRY(exl2__gpu_alloc(g, a->strips * cells * sizeof *totals, &m->sums));
    EXL2__TRY(exl2__gpu_alloc(g, cells * sizeof *totals, &m->totals));
    a->peaks = m->peaks.address;
    a->tries = m->tries.address;
    a->sums = m->sums.address;
    a->totals = m->totals.address;
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_losses_peaks, a->strips, (uint32_t)exl2__div_up(blocks, 4),
                               EXL2K_LOSSES_THREADS, 0, a));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_losses_tries, blocks, 1, EXL2K_LOSSES_THREADS, 0, a));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_losses_errors, a->strips, blocks, EXL2K_LOSSES_THREADS, 0, a));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_losses_totals, blocks, 1, EXL2K_LOSSES_CELLS, 0, a));
    return exl2__gpu_down(g, totals, a->totals, cells * sizeof *totals);
}

/* totals [in / 32, widths, tries]: the weighted errors of all columns. */
EXL2__PRIVATE exl2_result exl2__gpu_losses(exl2__gpu_solve *s, double *totals)
{
    exl2__gpu *g = s->g;
    exl2__gpu_losses_scratch m = { { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } };
    exl2k_losses_args a = { .weights = s->a.weights, .diagonal = s->a.diagonal, .in = s->a.in, .strips = s->a.strips };
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    exl2_result result = exl2__gpu_losses_steps(s, &m, &a, totals);
    if (result < 0) {
        g->d->driver.stream_wait(g->d->stream); /* kernels may still use the scratch */
    }
    exl2__gpu_free(g, &m.peaks);
    exl2__gpu_free(g, &m.tries);
    exl2__gpu_free(g, &m.sums);
    exl2__gpu_free(g, &m.totals);
    return exl2__cuda_device_leave_with(g->d, result);
}

/* ---- blocks ---- */

/* The groups from `first` on that fit a block. */
EXL2__PRIVATE void exl2__gpu_solve_block(exl2__gpu_solve *s, uint32_t first)
{
    exl2k_solve_args *a = &s->a;
    a->group = first;
    a->group_count = 0;
    a->row = s->group[first].row;
    a->rows = 0;
    while (first + a->group_count < s->groups && a->rows + s->group[first + a->group_count].rows <= EXL2K_SOLVE_ROWS) {
        a->rows += s->group[first + a->group_count++].rows;
    }
}

/* s->partial = matrix [0 .. k, rows of the block]' x [0 .. k], in slices. */
EXL2__PRIVATE exl2_result exl2__gpu_solve_product(exl2__gpu_solve *s, uint64_t matrix, uint32_t k, uint64_t x)
{
    exl2k_solve_args *a = &s->a;
    uint64_t strip = EXL2K_SOLVE_ROWS * EXL2K_CONVERT_STRIP;
    exl2k_float_product_args p = { .a = matrix + a->row * sizeof(float), .b = x, .c = a->partial,
                                   .b_strip = (uint64_t)a->in * EXL2K_CONVERT_STRIP, .c_strip = strip,
                                   .c_slice = a->strips * strip, .m = a->rows, .n = a->columns, .k = k,
                                   .a_pitch = a->in, .b_width = EXL2K_CONVERT_STRIP, .c_width = EXL2K_CONVERT_STRIP,
                                   .factor = 1 };
    a->slices = exl2__min32(s->max_slices, k / EXL2K_FLOAT_DEPTH);
    return k > 0 ? exl2__gpu_float_product(s->g, &p, a->slices) : EXL2_OK;
}

static inline exl2_result exl2__gpu_solve_launch(exl2__gpu_solve *s, exl2__cuda_kernel kernel, uint32_t threads,
                                                 uint32_t shared_rows)
{
    return exl2__gpu_launch(s->g, kernel, s->a.strips, 1, threads,
                            shared_rows * EXL2K_CONVERT_STRIP * (uint32_t)sizeof(float), &s->a);
}

/* ---- 1. the groups' loop ---- */

/* The rows of the block after the group compensate the group's errors. */
EXL2__PRIVATE exl2_result exl2__gpu_solve_update(exl2__gpu_solve *s, uint64_t feedback)
{
    const exl2k_solve_args *a = &s->a;
    const exl2__group *group = &s->group[a->group];
    uint32_t next = group->row + group->rows, end = a->row + a->rows;
    exl2k_float_product_args p = { .a = feedback + ((uint64_t)group->row * a->in + next) * sizeof(float),
                                   .b = a->errors + (uint64_t)group->row * EXL2K_CONVERT_STRIP * sizeof(float),
                                   .c = a->targets + (uint64_t)(next - a->row) * EXL2K_CONVERT_STRIP * sizeof(float),
                                   .b_strip = (uint64_t)a->in * EXL2K_CONVERT_STRIP,
                                   .c_strip = EXL2K_SOLVE_ROWS * EXL2K_CONVERT_STRIP, .m = end - next,
                                   .n = a->columns, .k = group->rows, .a_pitch = a->in,
                                   .b_width = EXL2K_CONVERT_STRIP, .c_width = EXL2K_CONVERT_STRIP, .factor = -1,
                                   .add = 1 };
    return next < end ? exl2__gpu_float_product(s->g, &p, 1) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__gpu_solve_loop(exl2__gpu_solve *s, const exl2__gpu_factor *f)
{
    exl2k_solve_args *a = &s->a;
    for (uint32_t first = 0; first < s->groups;) {
        exl2__gpu_solve_block(s, first);
        EXL2__TRY(exl2__gpu_solve_product(s, f->feedback.address, a->row, a->errors));
        EXL2__TRY(exl2__gpu_solve_launch(s, EXL2__KERNEL_exl2k_solve_aim, EXL2K_SOLVE_THREADS, 0));
        for (uint32_t end = first + a->group_count; first < end; first++) {
            a->group = first;
            EXL2__TRY(exl2__gpu_solve_launch(s, EXL2__KERNEL_exl2k_solve_peaks, EXL2K_SOLVE_THREADS, 0));
            EXL2__TRY(exl2__gpu_solve_launch(s, EXL2__KERNEL_exl2k_solve_search, 256, 0));
            EXL2__TRY(exl2__gpu_launch(s->g, EXL2__KERNEL_exl2k_solve_pick, 1, 1, EXL2K_SOLVE_TRIES * 32, 0, a));
            EXL2__TRY(exl2__gpu_solve_launch(s, EXL2__KERNEL_exl2k_solve_round, EXL2K_SOLVE_THREADS,
                                             EXL2K_SOLVE_LEVELS * s->group[first].rows));
            EXL2__TRY(exl2__gpu_solve_update(s, f->feedback.address));
        }
    }
    return EXL2_OK;
}

/* ---- 2. descent ---- */

EXL2__PRIVATE exl2_result exl2__gpu_solve_descend(exl2__gpu_solve *s, const exl2__gpu_factor *f)
{
    exl2k_solve_args *a = &s->a;
    for (uint32_t first = 0; first < s->groups; first += a->group_count) {
        exl2__gpu_solve_block(s, first);
        EXL2__TRY(exl2__gpu_solve_product(s, f->hessian.address, a->in, a->errors));
        EXL2__TRY(exl2__gpu_solve_launch(s, EXL2__KERNEL_exl2k_solve_descend, EXL2K_SOLVE_THREADS, 3 * a->rows));
    }
    return EXL2_OK;
}

/* ---- all of it ---- */

EXL2__PRIVATE exl2_result exl2__gpu_solve_run_steps(exl2__gpu_solve *s, const exl2__gpu_factor *f, uint32_t passes)
{
    EXL2__TRY(exl2__gpu_solve_loop(s, f));
    for (uint32_t i = 0; i < passes; i++) {
        EXL2__TRY(exl2__gpu_solve_descend(s, f));
    }
    return EXL2_OK;
}

/* Quantizes the weights. passes: of the descent. */
EXL2__PRIVATE exl2_result exl2__gpu_solve_run(exl2__gpu_solve *s, const exl2__gpu_factor *f, uint32_t passes)
{
    EXL2__TRY(exl2__cuda_device_enter(s->g->d));
    return exl2__cuda_device_leave_with(s->g->d, exl2__gpu_solve_run_steps(s, f, passes));
}

EXL2__PRIVATE exl2_result exl2__gpu_solve_read_steps(exl2__gpu_solve *s, uint8_t *codes, uint8_t *levels,
                                                     uint16_t *scale_max)
{
    EXL2__TRY(exl2__gpu_down(s->g, codes, s->a.codes, (uint64_t)s->a.in * s->a.columns));
    EXL2__TRY(exl2__gpu_down(s->g, levels, s->a.levels, (uint64_t)s->groups * s->a.columns));
    for (uint32_t first = 0, some; first < s->groups; first += some) { /* u32 there */
        uint32_t scales[256];
        some = exl2__min32(s->groups - first, (uint32_t)EXL2__COUNT(scales));
        EXL2__TRY(exl2__gpu_down(s->g, scales, s->a.scale_max + first * sizeof *scales, some * sizeof *scales));
        for (uint32_t i = 0; i < some; i++) {
            scale_max[first + i] = (uint16_t)scales[i];
        }
    }
    return EXL2_OK;
}

/* Copies the results to host memory, as exl2__solve has them. */
EXL2__PRIVATE exl2_result exl2__gpu_solve_read(exl2__gpu_solve *s, uint8_t *codes, uint8_t *levels, uint16_t *scale_max)
{
    EXL2__TRY(exl2__cuda_device_enter(s->g->d));
    return exl2__cuda_device_leave_with(s->g->d, exl2__gpu_solve_read_steps(s, codes, levels, scale_max));
}

EXL2__PRIVATE exl2_result exl2__gpu_solve_values_steps(exl2__gpu_solve *s, const exl2__cpu_part *p, uint16_t *host)
{
    exl2__gpu *g = s->g;
    uint64_t bytes = (uint64_t)s->a.in * s->a.columns * sizeof *host;
    exl2__gpu_weights *weights = NULL;
    exl2__gpu_buffer values;
    if (p) {
        EXL2__TRY(exl2__gpu_weights_of(g, p, &weights));
    }
    EXL2__TRY(exl2__gpu_need(g, bytes, EXL2__GPU_RAW, &s->a.strips_of));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_solve_values, s->a.strips, s->a.in / 4, EXL2K_SOLVE_THREADS, 0,
                               &s->a));
    if (!p) {
        return exl2__gpu_down(g, host, s->a.strips_of, bytes);
    }
    weights->kept = weights->memory; /* so that they are not dropped to make room */
    exl2_result result = exl2__gpu_halves(g, p, EXL2K_HALF_F16, &values);
    weights = exl2__gpu_weights_find(g, p);
    if (result < 0) {
        exl2__gpu_free(g, &values);
        weights->kept = values;
    } else {
        weights->memory = values;
    }
    return result;
}

/* What the codes stand for takes the place of the part's weights on the GPU, until exl2__gpu_solve_restore; or, with
   part NULL, goes to `host` [strips, in, 32] in the order of the inputs. */
EXL2__PRIVATE exl2_result exl2__gpu_solve_values(exl2__gpu_solve *s, const exl2__cpu_part *p, uint16_t *host)
{
    EXL2__TRY(exl2__cuda_device_enter(s->g->d));
    return exl2__cuda_device_leave_with(s->g->d, exl2__gpu_solve_values_steps(s, p, host));
}

/* Swaps the part's weights with those in their place. */
EXL2__PRIVATE void exl2__gpu_solve_swap(exl2__gpu *g, const exl2__cpu_part *p)
{
    for (uint32_t i = 0; i < g->weight_count; i++) {
        exl2__gpu_weights *w = &g->weights[i];
        if (w->part == p && w->kept.address) {
            exl2__gpu_buffer other = w->memory;
            w->memory = w->kept;
            w->kept = other;
        }
    }
}

/* Puts the part's own weights back, which are not swapped. */
EXL2__PRIVATE void exl2__gpu_solve_restore(exl2__gpu *g, const exl2__cpu_part *p)
{
    for (uint32_t i = 0; i < g->weight_count; i++) {
        exl2__gpu_weights *w = &g->weights[i];
        if (w->part == p && w->kept.address) {
            bool entered = exl2__gpu_enter(g);
            exl2__gpu_free(g, &w->memory);
            w->memory = w->kept;
            w->kept = (exl2__gpu_buffer){ 0, 0 };
            exl2__gpu_leave(g, entered);
        }
    }
}

EXL2__PRIVATE exl2_result exl2__gpu_solve_energy_steps(exl2__gpu_solve *s, const exl2__gpu_factor *f, bool of_errors,
                                                       double sums[2])
{
    exl2k_solve_args *a = &s->a;
    EXL2__TRY(exl2__gpu_fill(s->g, a->sums, (uint64_t)a->strips * 2 * sizeof *sums));
    a->x = of_errors ? a->errors : a->weights;
    for (uint32_t first = 0; first < s->groups; first += a->group_count) {
        exl2__gpu_solve_block(s, first);
        EXL2__TRY(exl2__gpu_solve_product(s, f->feedback.address, a->row + a->rows, a->x));
        EXL2__TRY(exl2__gpu_solve_launch(s, EXL2__KERNEL_exl2k_solve_energy, EXL2K_SOLVE_THREADS, 0));
    }
    sums[0] = sums[1] = 0;
    for (uint32_t first = 0, some; first < a->strips; first += some) {
        double parts[256][2];
        some = exl2__min32(a->strips - first, (uint32_t)EXL2__COUNT(parts));
        EXL2__TRY(exl2__gpu_down(s->g, parts, a->sums + first * sizeof *parts, some * sizeof *parts));
        for (uint32_t i = 0; i < some; i++) {
            sums[0] += parts[i][0];
            sums[1] += parts[i][1];
        }
    }
    return EXL2_OK;
}

/* sums: tr(X' Hd X) and tr(X' X), divided by the mean, of the errors or the weights. */
EXL2__PRIVATE exl2_result exl2__gpu_solve_energy(exl2__gpu_solve *s, const exl2__gpu_factor *f, bool of_errors,
                                                 double sums[2])
{
    EXL2__TRY(exl2__cuda_device_enter(s->g->d));
    return exl2__cuda_device_leave_with(s->g->d, exl2__gpu_solve_energy_steps(s, f, of_errors, sums));
}
#endif

#endif
