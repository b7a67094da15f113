/* solve.h: quantizes one matrix so that the error of its outputs is small, not that of its weights.
   takes: the factor of its input, its groups, its weights in packed order.
   gives: exl2__solve, exl2__solve_bytes, exl2__solve_open, exl2__solve_load, exl2__solve_run, exl2__solve_energy,
          exl2__solve_values, exl2__solve_close.
   owns:  weights, errors, codes, levels and scales, until exl2__solve_close.

   1. Groups from the first to the last: each row aims at what compensates the errors of the rows before it (factor.h).
      The group's scale is searched with rows weighted by D; then each column tries the found level and its neighbours
      with the group's own loop, and keeps the one that leaves the least loss.
   2. Descent, a few times over all groups. With R = Hd E, half the derivative of the loss: a column's best level for
      its codes is where a parabola has its minimum; then each code becomes what is nearest to (W + E) - R / Hd[i][i].
   Columns depend on each other only through the scale of a group. Every error is that of the decoder's own fp16
   arithmetic. Strips are computed by tasks, each in the same order for any number of threads. With a factor that is on
   a GPU, all of it runs there. */
#ifndef EXL2__SOLVE_H
#define EXL2__SOLVE_H

#include "factor.h"
#include "../gpu/gpu_solve.h"
#include "../quantize.h"

#define EXL2__SOLVE_ROWS 128u  /* most rows of a group */
#define EXL2__SOLVE_PASSES 4u  /* of the descent */
#define EXL2__SOLVE_LEVELS 4u  /* levels that a column tries: those from the found one - 2 to + 1 */

typedef struct exl2__solve {
    const exl2__factor *factor;
    const exl2__group *groups; /* [group_count], of at most EXL2__SOLVE_ROWS rows each */
    uint32_t group_count, columns, strips, passes; /* passes: of the descent */
    exl2_cpu_path path;
    float *weights;      /* [strips, in, 32] W, in packed order */
    float *errors;       /* [strips, in, 32] E = Q - W */
    uint8_t *codes;      /* [strips, in, 32] */
    uint8_t *levels;     /* [group_count, columns] 1..16 */
    uint16_t *scale_max; /* [group_count] f16 */
    /* scratch of the current group */
    float *targets;      /* [strips, EXL2__SOLVE_ROWS, 32] */
    float *trial_codes;  /* [strips, EXL2__SOLVE_ROWS, 32] */
    float *peaks;        /* [columns] */
    double *sums;        /* [strips, EXL2__QUANTIZE_TRIES] */
    uint32_t group;
    uint16_t tries[EXL2__QUANTIZE_TRIES];
    exl2__arena memory;
    exl2__gpu_solve on_gpu; /* with the factor, weights and errors are on the GPU; codes, levels, scales are copies */
} exl2__solve;

/* ---- memory ---- */

EXL2__PRIVATE void exl2__solve_layout(exl2__solve *s, exl2__arena *a)
{
    uint64_t all = (uint64_t)s->factor->in * s->columns;
    s->codes = (uint8_t *)exl2__arena_alloc(a, all);
    s->levels = (uint8_t *)exl2__arena_alloc(a, (uint64_t)s->group_count * s->columns);
    s->scale_max = (uint16_t *)exl2__arena_alloc(a, s->group_count * sizeof *s->scale_max);
    if (s->factor->on_gpu.gpu) {
        return;
    }
    s->weights = (float *)exl2__arena_alloc(a, all * sizeof *s->weights);
    s->errors = (float *)exl2__arena_alloc(a, all * sizeof *s->errors);
    s->targets = (float *)exl2__arena_alloc(a, (uint64_t)s->columns * EXL2__SOLVE_ROWS * sizeof *s->targets);
    s->trial_codes = (float *)exl2__arena_alloc(a, (uint64_t)s->columns * EXL2__SOLVE_ROWS * sizeof *s->trial_codes);
    s->peaks = (float *)exl2__arena_alloc(a, s->columns * sizeof *s->peaks);
    s->sums = (double *)exl2__arena_alloc(a, (uint64_t)s->strips * EXL2__QUANTIZE_TRIES * sizeof *s->sums);
}

/* Bytes that exl2__solve_open allocates. */
EXL2__PRIVATE uint64_t exl2__solve_bytes(const exl2__factor *f, uint32_t columns, uint32_t group_count)
{
    exl2__arena dry = { 0 };
    exl2__solve s = { 0 };
    s.factor = f;
    s.columns = columns;
    s.strips = columns / EXL2__PANELS_LANES;
    s.group_count = group_count;
    exl2__solve_layout(&s, &dry);
    return dry.used;
}

/* columns: a multiple of 32. The factor and the groups must last as long as *s. */
EXL2__PRIVATE exl2_result exl2__solve_open(exl2__ctx *c, const exl2__factor *f, uint32_t columns,
                                           const exl2__group *groups, uint32_t group_count, exl2__solve *s)
{
    *s = (exl2__solve){ 0 };
    s->factor = f;
    s->columns = columns;
    s->strips = columns / EXL2__PANELS_LANES;
    s->groups = groups;
    s->group_count = group_count;
    s->passes = EXL2__SOLVE_PASSES;
    s->path = c->cpu_path;
    EXL2__TRY(exl2__arena_open(c, &s->memory, exl2__solve_bytes(f, columns, group_count), EXL2_MEM_SCRATCH));
    exl2__solve_layout(s, &s->memory);
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__solve_close(exl2__ctx *c, exl2__solve *s)
{
#ifndef EXL2_NO_CUDA
    exl2__gpu_solve_close(&s->on_gpu);
#endif
    exl2__arena_close(c, &s->memory);
    *s = (exl2__solve){ 0 };
}

/* ---- weights ---- */

/* The weights of a part that are being copied. */
typedef struct exl2__solve_copy {
    const exl2__solve *s;
    const exl2__cpu_part *part;
    uint32_t used;
} exl2__solve_copy;

/* Task: one strip. */
EXL2__PRIVATE void exl2__solve_copy_strip(void *arg, uint32_t strip)
{
    const exl2__solve_copy *copy = (const exl2__solve_copy *)arg;
    uint32_t in = copy->part->in;
    float *to = copy->s->weights + (size_t)strip * in * EXL2__PANELS_LANES;
    for (uint32_t i = 0; i < in; i++, to += EXL2__PANELS_LANES) {
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            uint32_t column = strip * EXL2__PANELS_LANES + k;
            to[k] = column < copy->used ? exl2__cpu_matrix_weight(copy->part, copy->s->factor->order[i], column) : 0;
        }
    }
}

/* Reads the first `used` columns of a dense part; others are zeros. (An embedding that is the head may have more rows
   than the vocabulary.) They must be finite and at most EXL2__QUANTIZE_MAX. */
EXL2__PRIVATE exl2_result exl2__solve_load(const exl2__ctx *c, exl2__solve *s, const exl2__cpu_part *p, uint32_t used)
{
    exl2__solve_copy copy = { s, p, used };
#ifndef EXL2_NO_CUDA
    if (s->factor->on_gpu.gpu) {
        return exl2__gpu_solve_open(&s->on_gpu, &s->factor->on_gpu, p, used, s->columns, s->groups, s->group_count);
    }
#endif
    exl2__tasks_run(c, s->strips, exl2__solve_copy_strip, &copy);
    return EXL2_OK;
}

/* ---- parts of a strip ---- */

static inline float *exl2__solve_strip(float *all, const exl2__solve *s, uint32_t strip)
{
    return all + (size_t)strip * s->factor->in * EXL2__PANELS_LANES;
}

/* The functions from here to ROUND_TWICE_END are compiled for two instruction sets. What they write lies in arrays of
   their own where it could overlap with what they read: gcc vectorizes these loops at -O2 only without such doubts. */
EXL2__ROUND_TWICE_BEGIN

/* Rounds to f16, to nearest, ties to even. x is a code times an f16, so that what would be subnormal is exact already;
   |x| < 65520. (A vector of it needs no branches.) */
EXL2__FORCE_INLINE float exl2__solve_half(float x)
{
    uint32_t bits = exl2__float_bits(x);
    bits += 0xFFFu + (bits >> 13 & 1u);
    return exl2__bits_float(bits & ~0x1FFFu);
}

/* One row of a strip: rounds targets x [32] to codes, and gives the errors of the decoded values against weights w. */
EXL2__FORCE_INLINE void exl2__solve_row(const float *x, const float *w, const float *steps, const float *inverse,
                                        uint32_t bits, float *codes, float *errors)
{
    const float zero = (float)(1u << (bits - 1)), top = (float)((1u << bits) - 1);
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        float code = x[k] * inverse[k] + (zero + 0.5f);
        code = code > 0.0f ? code : 0.0f;
        code = code < top ? code : top;
        codes[k] = (float)(int32_t)code - zero;
    }
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        errors[k] = exl2__solve_half(codes[k] * steps[k]) - w[k];
    }
}

/* to [32] -= factor * from [32] */
EXL2__FORCE_INLINE void exl2__solve_subtract(float *to, float factor, const float *from)
{
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        to[k] -= factor * from[k];
    }
}

/* A group of one strip whose columns try levels. */
typedef struct exl2__solve_trial {
    const exl2__factor *f;
    const exl2__group *group;
    const float *targets, *w;  /* [rows, 32] */
    float *errors, *codes;     /* [rows, 32] of the best level of each column so far; codes - 2^(bits - 1) */
    float steps[EXL2__PANELS_LANES];
    float least[EXL2__PANELS_LANES]; /* loss of the best level so far */
    float wins[EXL2__PANELS_LANES];  /* 1: the level tried last is the best so far; else 0 */
    float x[EXL2__SOLVE_ROWS * EXL2__PANELS_LANES]; /* targets, then codes, and */
    float e[EXL2__SOLVE_ROWS * EXL2__PANELS_LANES]; /* errors of the level tried last */
} exl2__solve_trial;

/* Rounds the rows of a group with given steps; each row compensates those before it. loss [32]. */
EXL2__FORCE_INLINE void exl2__solve_loop(exl2__solve_trial *t, float *loss)
{
    const exl2__factor *f = t->f;
    const exl2__group *group = t->group;
    float inverse[EXL2__PANELS_LANES], steps[EXL2__PANELS_LANES];
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        steps[k] = t->steps[k];
        inverse[k] = 1.0f / steps[k];
        loss[k] = 0;
    }
    for (uint32_t r = 0; r < group->rows; r++) {
        float codes[EXL2__PANELS_LANES], errors[EXL2__PANELS_LANES], *at = t->x + (size_t)r * EXL2__PANELS_LANES;
        const float *w = t->w + (size_t)r * EXL2__PANELS_LANES;
        float weight = f->diagonal[group->row + r];
        exl2__solve_row(at, w, steps, inverse, group->bits, codes, errors);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            float missed = at[k] - (errors[k] + w[k]);
            loss[k] += weight * missed * missed;
        }
        memcpy(at, codes, sizeof codes);
        memcpy(t->e + (size_t)r * EXL2__PANELS_LANES, errors, sizeof errors);
        for (uint32_t next = r + 1; next < group->rows; next++) {
            exl2__solve_subtract(t->x + (size_t)next * EXL2__PANELS_LANES,
                                 *exl2__panels_at(&f->feedback, group->row + r, group->row + next), errors);
        }
    }
}

/* Tries t->steps: the columns for which they are the best so far, as the first ones are, keep codes and errors. */
EXL2__FORCE_INLINE void exl2__solve_try(exl2__solve_trial *t, bool first)
{
    float loss[EXL2__PANELS_LANES], wins[EXL2__PANELS_LANES];
    memcpy(t->x, t->targets, t->group->rows * EXL2__PANELS_LANES * sizeof *t->x);
    exl2__solve_loop(t, loss);
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        bool is_best = first || loss[k] < t->least[k];
        wins[k] = is_best ? 1.0f : 0.0f;
        t->least[k] = is_best ? loss[k] : t->least[k];
    }
    for (uint32_t at = 0; at < t->group->rows * EXL2__PANELS_LANES; at += EXL2__PANELS_LANES) {
        float errors[EXL2__PANELS_LANES], codes[EXL2__PANELS_LANES];
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            errors[k] = wins[k] > 0 ? t->e[at + k] : t->errors[at + k];
            codes[k] = wins[k] > 0 ? t->x[at + k] : t->codes[at + k];
        }
        memcpy(t->errors + at, errors, sizeof errors);
        memcpy(t->codes + at, codes, sizeof codes);
    }
    memcpy(t->wins, wins, sizeof wins);
}

/* A group of one strip, while the descent works on it. */
typedef struct exl2__solve_place {
    const exl2__group *group;
    const float *w; /* [rows, 32] */
    float *e;       /* [rows, 32] */
    uint8_t *levels;
    float steps[17], column_steps[EXL2__PANELS_LANES];
    float q[EXL2__SOLVE_ROWS * EXL2__PANELS_LANES]; /* codes - 2^(bits - 1) */
    float r[EXL2__SOLVE_ROWS * EXL2__PANELS_LANES]; /* Hd E */
} exl2__solve_place;

/* Chooses the level of each column again, given its codes. With the step s + t the loss changes by
   2 t q'R + t^2 q'Hd q. */
EXL2__FORCE_INLINE void exl2__solve_relevel(const exl2__factor *f, exl2__solve_place *p)
{
    float hq[EXL2__SOLVE_ROWS * EXL2__PANELS_LANES], slope[EXL2__PANELS_LANES] = { 0 };
    float bend[EXL2__PANELS_LANES] = { 0 }, least[EXL2__PANELS_LANES] = { 0 };
    float steps[EXL2__PANELS_LANES], change[EXL2__PANELS_LANES] = { 0 };
    int32_t best[EXL2__PANELS_LANES] = { 0 }; /* 0: the level stays */
    uint32_t row = p->group->row, rows = p->group->rows;
    for (uint32_t c = 0; c < rows; c += f->hessian.width) {
        exl2__panels_strip_product(f->hessian.ops, exl2__panels_at(&f->hessian, row, row + c), f->hessian.width, p->q,
                                   rows, hq + (size_t)c * EXL2__PANELS_LANES, 0);
    }
    for (uint32_t i = 0; i < rows * EXL2__PANELS_LANES; i += EXL2__PANELS_LANES) {
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            slope[k] += p->q[i + k] * p->r[i + k];
            bend[k] += p->q[i + k] * hq[i + k];
        }
    }
    memcpy(steps, p->column_steps, sizeof steps);
    for (int32_t level = 1; level <= 16; level++) {
        float step = p->steps[level];
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            float t = step - steps[k], loss = (2 * slope[k] + t * bend[k]) * t;
            best[k] = loss < least[k] ? level : best[k];
            change[k] = loss < least[k] ? t : change[k];
            least[k] = loss < least[k] ? loss : least[k];
        }
    }
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        p->levels[k] = best[k] ? (uint8_t)best[k] : p->levels[k];
        steps[k] = p->steps[p->levels[k]];
    }
    memcpy(p->column_steps, steps, sizeof steps);
    for (uint32_t i = 0; i < rows * EXL2__PANELS_LANES; i += EXL2__PANELS_LANES) {
        float errors[EXL2__PANELS_LANES];
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            errors[k] = exl2__solve_half(p->q[i + k] * steps[k]) - p->w[i + k];
        }
        memcpy(p->e + i, errors, sizeof errors);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            p->r[i + k] += change[k] * hq[i + k];
        }
    }
}

/* Chooses each code of the group again, from the first row to the last. */
EXL2__FORCE_INLINE void exl2__solve_descend(const exl2__factor *f, exl2__solve_place *p)
{
    uint32_t row = p->group->row, rows = p->group->rows;
    float inverse[EXL2__PANELS_LANES], steps[EXL2__PANELS_LANES];
    for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
        steps[k] = p->column_steps[k];
        inverse[k] = 1 / steps[k];
    }
    for (uint32_t i = 0; i < rows; i++) {
        float x[EXL2__PANELS_LANES], errors[EXL2__PANELS_LANES], codes[EXL2__PANELS_LANES], change[EXL2__PANELS_LANES];
        float *e = p->e + (size_t)i * EXL2__PANELS_LANES;
        const float *r = p->r + (size_t)i * EXL2__PANELS_LANES, *w = p->w + (size_t)i * EXL2__PANELS_LANES;
        float share = 1 / *exl2__panels_at(&f->hessian, row + i, row + i);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            x[k] = e[k] + w[k] - r[k] * share;
        }
        exl2__solve_row(x, w, steps, inverse, p->group->bits, codes, errors);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            change[k] = e[k] - errors[k];
        }
        memcpy(e, errors, sizeof errors);
        memcpy(p->q + (size_t)i * EXL2__PANELS_LANES, codes, sizeof codes);
        for (uint32_t next = i + 1; next < rows; next++) {
            exl2__solve_subtract(p->r + (size_t)next * EXL2__PANELS_LANES,
                                 *exl2__panels_at(&f->hessian, row + i, row + next), change);
        }
    }
}

EXL2__PRIVATE void exl2__solve_try_plain(exl2__solve_trial *t, bool first) { exl2__solve_try(t, first); }

EXL2__PRIVATE void exl2__solve_improve_plain(const exl2__factor *f, exl2__solve_place *p)
{
    exl2__solve_relevel(f, p);
    exl2__solve_descend(f, p);
}

#if EXL2__X86_SIMD
EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__solve_try_avx2(exl2__solve_trial *t, bool first)
{
    EXL2__UNALIGNED_MOVES();
    exl2__solve_try(t, first);
}

EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__solve_improve_avx2(const exl2__factor *f, exl2__solve_place *p)
{
    EXL2__UNALIGNED_MOVES();
    exl2__solve_relevel(f, p);
    exl2__solve_descend(f, p);
}
#else
#define exl2__solve_try_avx2 exl2__solve_try_plain
#define exl2__solve_improve_avx2 exl2__solve_improve_plain
#endif

EXL2__ROUND_TWICE_END

/* ---- 1. the groups' loop ---- */

/* Task: what the rows of the group aim at in one strip, before they compensate each other. */
EXL2__PRIVATE void exl2__solve_aim(void *arg, uint32_t strip)
{
    const exl2__solve *s = (const exl2__solve *)arg;
    const exl2__group *group = &s->groups[s->group];
    float *x = s->targets + (size_t)strip * EXL2__SOLVE_ROWS * EXL2__PANELS_LANES;
    const float *w = exl2__solve_strip(s->weights, s, strip) + (size_t)group->row * EXL2__PANELS_LANES;
    uint32_t count = group->rows * EXL2__PANELS_LANES;
    memcpy(x, w, count * sizeof *x);
    if (group->row > 0) {
        float done[EXL2__SOLVE_ROWS * EXL2__PANELS_LANES];
        exl2__panels_product(&s->factor->feedback, group->row, group->rows, 0, group->row,
                             exl2__solve_strip(s->errors, s, strip), done);
        for (uint32_t i = 0; i < count; i++) {
            x[i] -= done[i];
        }
    }
    exl2__quantize_peaks(x, group->rows, s->peaks + (size_t)strip * EXL2__PANELS_LANES);
}

/* Task: the weighted squared error of each scale to try in one strip. */
EXL2__PRIVATE void exl2__solve_search(void *arg, uint32_t strip)
{
    const exl2__solve *s = (const exl2__solve *)arg;
    const exl2__group *group = &s->groups[s->group];
    double *sums = s->sums + (size_t)strip * EXL2__QUANTIZE_TRIES;
    memset(sums, 0, EXL2__QUANTIZE_TRIES * sizeof *sums);
    exl2__quantize_errors(s->path, s->targets + (size_t)strip * EXL2__SOLVE_ROWS * EXL2__PANELS_LANES,
                          s->factor->diagonal + group->row, group->rows,
                          s->peaks + (size_t)strip * EXL2__PANELS_LANES, group->bits, s->tries, EXL2__QUANTIZE_TRIES,
                          sums);
}

/* Task: levels, codes and errors of the group in one strip. */
EXL2__PRIVATE void exl2__solve_round(void *arg, uint32_t strip)
{
    const exl2__solve *s = (const exl2__solve *)arg;
    const exl2__factor *f = s->factor;
    const exl2__group *group = &s->groups[s->group];
    size_t first = (size_t)group->row * EXL2__PANELS_LANES, count = (size_t)group->rows * EXL2__PANELS_LANES;
    size_t scratch = (size_t)strip * EXL2__SOLVE_ROWS * EXL2__PANELS_LANES;
    uint8_t *codes = s->codes + (size_t)strip * f->in * EXL2__PANELS_LANES + first;
    uint8_t *levels = s->levels + (size_t)s->group * s->columns + (size_t)strip * EXL2__PANELS_LANES;
    uint8_t found[EXL2__PANELS_LANES], tried[EXL2__PANELS_LANES];
    const float zero = (float)(1u << (group->bits - 1));
    float steps[17];
    exl2__solve_trial t;
    t.f = f;
    t.group = group;
    t.targets = s->targets + scratch;
    t.codes = s->trial_codes + scratch;
    t.w = exl2__solve_strip(s->weights, s, strip) + first;
    t.errors = exl2__solve_strip(s->errors, s, strip) + first;
    exl2__quantize_steps(s->scale_max[s->group], steps);
    exl2__quantize_levels(s->path, t.targets, f->diagonal + group->row, group->rows,
                          s->peaks + (size_t)strip * EXL2__PANELS_LANES, group->bits, s->scale_max[s->group], found);
    for (uint32_t i = 0; i < EXL2__SOLVE_LEVELS; i++) {
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            int32_t level = (int32_t)found[k] + (int32_t)i - 2;
            tried[k] = (uint8_t)(level < 1 ? 1 : level > 16 ? 16 : level);
            t.steps[k] = steps[tried[k]];
        }
        (s->path >= EXL2_CPU_AVX2 ? exl2__solve_try_avx2 : exl2__solve_try_plain)(&t, i == 0);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            levels[k] = t.wins[k] > 0 ? tried[k] : levels[k];
        }
    }
    for (size_t i = 0; i < count; i++) {
        codes[i] = (uint8_t)(int32_t)(t.codes[i] + zero);
    }
}

EXL2__PRIVATE void exl2__solve_group(const exl2__ctx *c, exl2__solve *s, uint32_t number)
{
    float peak = 0;
    double sums[EXL2__QUANTIZE_TRIES] = { 0 };
    s->group = number;
    exl2__tasks_run(c, s->strips, exl2__solve_aim, s);
    for (uint32_t n = 0; n < s->columns; n++) {
        peak = peak > s->peaks[n] ? peak : s->peaks[n];
    }
    exl2__quantize_tries(peak, s->groups[number].bits, true, EXL2__QUANTIZE_TRIES, s->tries);
    exl2__tasks_run(c, s->strips, exl2__solve_search, s);
    for (uint32_t i = 0; i < s->strips * EXL2__QUANTIZE_TRIES; i++) {
        sums[i % EXL2__QUANTIZE_TRIES] += s->sums[i];
    }
    s->scale_max[number] = exl2__quantize_pick(s->tries, EXL2__QUANTIZE_TRIES, sums);
    exl2__tasks_run(c, s->strips, exl2__solve_round, s);
}

/* ---- 2. descent ---- */

/* Task: the whole descent of one strip. */
EXL2__PRIVATE void exl2__solve_polish(void *arg, uint32_t strip)
{
    const exl2__solve *s = (const exl2__solve *)arg;
    const exl2__factor *f = s->factor;
    float *errors = exl2__solve_strip(s->errors, s, strip);
    uint8_t *codes = s->codes + (size_t)strip * f->in * EXL2__PANELS_LANES;
    for (uint32_t i = 0; i < s->passes * s->group_count; i++) {
        exl2__solve_place p;
        uint32_t g = i % s->group_count, count = s->groups[g].rows * EXL2__PANELS_LANES;
        size_t first = (size_t)s->groups[g].row * EXL2__PANELS_LANES;
        const float zero = (float)(1u << (s->groups[g].bits - 1));
        p.group = &s->groups[g];
        p.w = exl2__solve_strip(s->weights, s, strip) + first;
        p.e = errors + first;
        p.levels = s->levels + (size_t)g * s->columns + (size_t)strip * EXL2__PANELS_LANES;
        exl2__quantize_steps(s->scale_max[g], p.steps);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            p.column_steps[k] = p.steps[p.levels[k]];
        }
        for (uint32_t k = 0; k < count; k++) {
            p.q[k] = (float)codes[first + k] - zero;
        }
        exl2__panels_product(&f->hessian, p.group->row, p.group->rows, 0, f->in, errors, p.r);
        (s->path >= EXL2_CPU_AVX2 ? exl2__solve_improve_avx2 : exl2__solve_improve_plain)(f, &p);
        for (uint32_t k = 0; k < count; k++) {
            codes[first + k] = (uint8_t)(int32_t)(p.q[k] + zero);
        }
    }
}

/* ---- all of it ---- */

/* Quantizes the weights: fills in errors, codes, levels and scale_max. */
EXL2__PRIVATE exl2_result exl2__solve_run(const exl2__ctx *c, exl2__solve *s)
{
#ifndef EXL2_NO_CUDA
    if (s->on_gpu.g) {
        EXL2__TRY(exl2__gpu_solve_run(&s->on_gpu, &s->factor->on_gpu, s->passes));
        return exl2__gpu_solve_read(&s->on_gpu, s->codes, s->levels, s->scale_max);
    }
#endif
    for (uint32_t g = 0; g < s->group_count; g++) {
        exl2__solve_group(c, s, g);
    }
    exl2__tasks_run(c, s->strips, exl2__solve_polish, s);
    return EXL2_OK;
}

/* The sum that exl2__solve_energy computes. */
typedef struct exl2__solve_sum {
    const exl2__solve *s;
    const float *x; /* [strips, in, 32] */
} exl2__solve_sum;

/* Task: tr(X' Hd X) of one strip: the squares of A'X. */
EXL2__PRIVATE void exl2__solve_sum_task(void *arg, uint32_t strip)
{
    const exl2__solve_sum *job = (const exl2__solve_sum *)arg;
    const exl2__factor *f = job->s->factor;
    const float *x = job->x + (size_t)strip * f->in * EXL2__PANELS_LANES;
    double sum = 0;
    for (uint32_t row = 0; row < f->in; row += EXL2__PANELS_LANES) {
        float before[EXL2__PANELS_LANES * EXL2__PANELS_LANES];
        exl2__panels_product(&f->feedback, row, EXL2__PANELS_LANES, 0, row + EXL2__PANELS_LANES, x, before);
        for (uint32_t i = 0; i < EXL2__PANELS_LANES; i++) {
            float part = 0;
            for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
                float y = before[i * EXL2__PANELS_LANES + k] + x[(size_t)(row + i) * EXL2__PANELS_LANES + k];
                part += y * y;
            }
            sum += (double)f->diagonal[row + i] * (double)part;
        }
    }
    job->s->sums[(size_t)strip * EXL2__QUANTIZE_TRIES] = sum;
}

/* *out: tr(X' H X), without damping, of the errors, or of the weights. */
EXL2__PRIVATE exl2_result exl2__solve_energy(const exl2__ctx *c, exl2__solve *s, bool of_errors, double *out)
{
    const float *x = of_errors ? s->errors : s->weights;
    exl2__solve_sum job = { s, x };
    double sums[2] = { 0, 0 }; /* of tr(X' Hd X) / mean, of tr(X' X) */
#ifndef EXL2_NO_CUDA
    if (s->on_gpu.g) {
        EXL2__TRY(exl2__gpu_solve_energy(&s->on_gpu, &s->factor->on_gpu, of_errors, sums));
        *out = (sums[0] - (double)s->factor->damp * sums[1]) * s->factor->mean;
        return EXL2_OK;
    }
#endif
    exl2__tasks_run(c, s->strips, exl2__solve_sum_task, &job);
    for (uint32_t i = 0; i < s->strips; i++) {
        sums[0] += s->sums[(size_t)i * EXL2__QUANTIZE_TRIES];
    }
    for (size_t i = 0; i < (size_t)s->factor->in * s->columns; i++) {
        sums[1] += (double)x[i] * (double)x[i];
    }
    *out = (sums[0] - (double)s->factor->damp * sums[1]) * s->factor->mean;
    return EXL2_OK;
}

/* ---- values ---- */

typedef struct exl2__solve_rounding {
    const exl2__solve *s;
    uint16_t *to;
} exl2__solve_rounding;

/* Task: one strip. */
EXL2__PRIVATE void exl2__solve_values_strip(void *arg, uint32_t strip)
{
    const exl2__solve_rounding *round = (const exl2__solve_rounding *)arg;
    const exl2__solve *s = round->s;
    uint32_t in = s->factor->in;
    for (uint32_t i = 0; i < in; i++) {
        size_t from = ((size_t)strip * in + i) * EXL2__PANELS_LANES;
        size_t to = ((size_t)strip * in + s->factor->order[i]) * EXL2__PANELS_LANES;
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            round->to[to + k] = exl2__f32_to_f16(s->weights[from + k] + s->errors[from + k]);
        }
    }
}

/* to [strips, in, 32]: what the codes stand for, f16, in the order of the inputs. */
EXL2__PRIVATE exl2_result exl2__solve_values(const exl2__ctx *c, exl2__solve *s, uint16_t *to)
{
    exl2__solve_rounding round = { s, to };
#ifndef EXL2_NO_CUDA
    if (s->on_gpu.g) {
        return exl2__gpu_solve_values(&s->on_gpu, NULL, to);
    }
#endif
    exl2__tasks_run(c, s->strips, exl2__solve_values_strip, &round);
    return EXL2_OK;
}

#endif
