/* expert_gemm.c: a layer's experts for many rows on the GPU, compared with a reference in double on the same codes.
   takes: [kernels_src [CASE ROWS | speed [ROWS ...]]]; a GPU. CASE: only this case, with at most ROWS rows. speed: the
          time of a layer of Qwen3-30B-A3B, as a whole and by kernel.
   gives: exit code 0, 1, or 77 without a GPU; the largest error. */
#include "private/cuda_grouped_plan.h"
#include "product_rig.h"
#include "spread.h"

#define ROWS 1024u
#define GUARD 4096u /* bytes after the scratch memory, which no kernel may write */

#define ACT_LIMIT 0.08f /* of EXL2K_ACT_CLAMPED: some gates and some values of `up` exceed it */

static rig_module shuffle, rows_module, gemm_module, gemm32_module, affine_module;
static double worst, worst_h;
static uint32_t rows_most = ROWS;

/* ---- cases ---- */

enum { UNIFORM, FIXED, SKEWED }; /* experts of a row: any; the same for all rows; often the last ones */

static const struct layer_case {
    uint32_t experts, active, hidden, inter, parts, act, choice;
    bool bias, dense, mapped, packed; /* packed: experts share the order of up, and x is in this order */
    bool affine;
} cases[] = {
    { 128, 8, 256, 96, 2, EXL2K_ACT_SILU, UNIFORM, false, false, true, false, false },
    { 8, 2, 512, 672, 2, EXL2K_ACT_SILU, SKEWED, false, false, true, false, false },
    { 4, 2, 416, 352, 2, EXL2K_ACT_SILU, FIXED, true, false, true, false, false },
    { 8, 1, 544, 288, 1, EXL2K_ACT_GELU, FIXED, true, false, true, false, false },
    { 32, 4, 288, 160, 2, EXL2K_ACT_GELU_TANH, SKEWED, true, false, false, false, false },
    { 16, 3, 300, 100, 1, EXL2K_ACT_RELU_SQUARED, UNIFORM, true, true, true, false, false },
    { 64, 6, 352, 64, 2, EXL2K_ACT_SILU, SKEWED, false, false, true, true, false },
    { 5, 5, 160, 224, 2, EXL2K_ACT_SILU, UNIFORM, true, false, true, false, false },
    { 32, 4, 288, 96, 2, EXL2K_ACT_CLAMPED, UNIFORM, true, false, true, false, false },
    { 16, 4, 256, 160, 2, EXL2K_ACT_SILU, UNIFORM, true, false, true, false, true },
    { 60, 7, 128, 32, 1, EXL2K_ACT_SILU, UNIFORM, false, false, true, false, false },
    { 2, 1, 64, 24672, 1, EXL2K_ACT_SILU, UNIFORM, false, false, true, false, false }, /* 48 KiB: rows are permuted */
    { 3, 1, 24672, 64, 2, EXL2K_ACT_SILU, UNIFORM, false, false, true, false, false }, /* in global memory */
};

typedef struct layer_expert {
    product_matrix up, down;
    uint16_t *up_map, *down_map; /* NULL: identity */
    rig_buffer up_map_buffer;
    float *up_weights, *down_weights; /* [columns, inputs], inputs in natural order */
} layer_expert;

typedef struct layer {
    const struct layer_case *form;
    layer_expert *expert;
    uint32_t chunk_bytes, x_pitch;
    uint16_t *x;
    uint32_t *choice;
    float *weight, *residual;
    double *h;         /* [ROWS, active, inter]: the reference, not rounded */
    double *sums;      /* [ROWS, hidden]: what is added to the residual, computed from `found` */
    uint16_t *found;   /* [ROWS, active, h_pitch]: h of the GPU in the order of each expert's down_map */
    uint32_t rows;     /* of the pass that is checked */
    rig_buffer experts, x_buffer, choice_buffer, weight_buffer, out, scratch, partial;
} layer;

#define AFFINE 100u /* numbers from here on: affine matrices */

/* Runs of bit widths by number: experts differ in widths, group sizes and padding. Returns how many runs there are. */
static uint32_t runs_of(uint32_t number, uint32_t in, product_run runs[2])
{
    static const product_run first[] = { { 4, 0, 32 }, { 5, 64, 64 }, { 6, 96, 32 }, { 8, 32, 32 }, { 16, 0, 0 },
                                         { 3, 0, 128 } };
    static const uint32_t second[] = { 0, 4, 3, 2, 0, 0 };
    runs[0] = first[number];
    if (number >= AFFINE) {
        static const uint32_t bits[] = { 4, 8, 3, 2 };
        runs[0] = (product_run){ PRODUCT_AFFINE + bits[number % 4], in, 32 };
        return 1;
    }
    if (second[number] && first[number].rows < in) {
        runs[1] = (product_run){ second[number], in - first[number].rows, first[number].group };
        return 2;
    }
    runs[0].rows = in;
    return 1;
}

/* map: the places of its columns, or NULL. */
static void matrix_make(product_matrix *m, uint32_t parts, uint32_t in, uint32_t out, uint32_t number, bool bias,
                        uint32_t chunk_bytes, const uint16_t *map)
{
    uint16_t *order = map ? product_order_of(map, out) : NULL;
    for (uint32_t i = 0; i < parts; i++) {
        product_run runs[2];
        uint32_t count = runs_of(number == 4 || number >= AFFINE ? number : (number + i) % 4, in, runs);
        product_part_make(&m->part[i], runs, count, out, bias);
    }
    product_lay(m, parts, 0, chunk_bytes);
    product_pack(m, &shuffle, 100, order);
    free(order);
}

/* The columns of all parts as floats, which hold them exactly. */
static float *matrix_weights(const product_matrix *m, const uint16_t *map)
{
    double *column = product_take(m->in + 64, sizeof *column);
    uint32_t out = m->part[0].desc.out;
    float *weights = product_take((size_t)m->count * out * m->in, sizeof *weights);
    for (uint32_t n = 0; n < m->count * out; n++) {
        product_column(&m->part[n / out], n % out, true, column);
        for (uint32_t k = 0; k < m->in; k++) {
            weights[(size_t)n * m->in + k] = (float)column[map ? map[k] : k];
        }
    }
    free(column);
    return weights;
}

static uint16_t *map_make(uint32_t count, rig_buffer *buffer)
{
    uint16_t *map = product_take(count, 2);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = product_random() % (i + 1);
        map[i] = map[k];
        map[k] = (uint16_t)i;
    }
    if (buffer) {
        *buffer = rig_buffer_of(map, count * 2);
    }
    return map;
}

static void expert_make(layer *l, uint32_t index, uint32_t chunk_bytes)
{
    const struct layer_case *f = l->form;
    layer_expert *e = &l->expert[index];
    uint32_t number = f->affine ? AFFINE + index : f->dense ? 4 : index % 5;
    uint32_t next = f->affine ? number + 1 : f->dense ? 4 : index % 6;
    if (f->mapped && (f->packed || index % 7 != 3)) { /* some experts have natural order */
        e->up_map = f->packed && index > 0 ? l->expert->up_map : map_make(f->hidden, &e->up_map_buffer);
        e->down_map = number == 4 ? NULL : map_make(f->inter, NULL); /* columns of dense matrices stay as they are */
    }
    matrix_make(&e->up, f->parts, f->hidden, f->inter, number, f->bias, chunk_bytes, e->down_map);
    matrix_make(&e->down, 1, f->inter, f->hidden, next, f->bias, chunk_bytes, NULL);
    e->up_weights = matrix_weights(&e->up, e->up_map);
    e->down_weights = matrix_weights(&e->down, e->down_map);
    l->chunk_bytes = exl2__max32(l->chunk_bytes, exl2__max32(e->up.chunk_bytes, e->down.chunk_bytes));
}

/* Chooses a row's experts, in ascending order. */
static void choose(const struct layer_case *f, uint32_t *choice)
{
    uint32_t left = f->active, fixed = f->experts - f->active; /* FIXED: the last experts */
    for (uint32_t e = 0, i = 0; e < f->experts; e++) {
        uint32_t rest = f->experts - e, draw = product_random() % rest;
        draw = f->choice == SKEWED ? exl2__max32(draw, product_random() % rest) : draw;
        bool take = f->choice == FIXED ? e >= fixed : draw < left;
        if (take) {
            choice[i++] = e;
            left--;
        }
    }
}

/* ---- reference ---- */

static double activate(uint32_t act, double v)
{
    switch (act) {
    case EXL2K_ACT_SILU: return v / (1 + exp(-v));
    case EXL2K_ACT_GELU: return 0.5 * v * (1 + erf(v / sqrt(2.0)));
    case EXL2K_ACT_GELU_TANH: return 0.5 * v * (1 + tanh(sqrt(2 / 3.14159265358979324) * (v + 0.044715 * v * v * v)));
    default: return v > 0 ? v * v : 0;
    }
}

static double clamped(double gate, double up)
{
    double limit = (double)ACT_LIMIT, g = fmin(gate, limit), u = fmax(fmin(up, limit), -limit);
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

static double dot(const float *weights, const double *x, uint32_t count)
{
    double sum[4] = { 0 };
    for (uint32_t k = 0; k < count; k++) {
        sum[k % 4] += (double)weights[k] * x[k];
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* h of rows `index`, index + SPREAD_THREADS, and so on: act(gate) * up. */
static void reference_up(void *arg, uint32_t index)
{
    layer *l = arg;
    const struct layer_case *f = l->form;
    double *x = product_take(f->hidden, sizeof *x);
    for (uint32_t row = index; row < ROWS; row += SPREAD_THREADS) {
        for (uint32_t k = 0; k < f->hidden; k++) {
            x[k] = (double)exl2__f16_to_f32(l->x[(size_t)row * l->x_pitch + k]);
        }
        for (uint32_t i = row * f->active; i < (row + 1) * f->active; i++) {
            const layer_expert *e = &l->expert[l->choice[i]];
            for (uint32_t n = 0; n < f->inter; n++) {
                const float *column = e->up_weights + (size_t)n * f->hidden;
                double v = dot(column, x, f->hidden) + (f->bias ? (double)e->up.part[0].bias[n] : 0);
                if (f->parts == 2) {
                    column += (size_t)f->inter * f->hidden;
                    double up = dot(column, x, f->hidden) + (f->bias ? (double)e->up.part[1].bias[n] : 0);
                    v = f->act == EXL2K_ACT_CLAMPED ? clamped(v, up) : activate(f->act, v) * up;
                } else {
                    v = activate(f->act, v);
                }
                l->h[(size_t)i * f->inter + n] = v;
            }
        }
    }
    free(x);
}

static double found_at(const layer *l, uint32_t slot, uint32_t n)
{
    const layer_expert *e = &l->expert[l->choice[slot]];
    uint32_t pitch = (l->form->inter + 63) / 64 * 64;
    return (double)exl2__f16_to_f32(l->found[(size_t)slot * pitch + (e->down_map ? e->down_map[n] : n)]);
}

/* Sums of rows `index`, index + SPREAD_THREADS, and so on, from the GPU's h: its rounding to fp16 is no error here. */
static void reference_down(void *arg, uint32_t index)
{
    layer *l = arg;
    const struct layer_case *f = l->form;
    double *h = product_take(f->inter, sizeof *h);
    for (uint32_t row = index; row < l->rows; row += SPREAD_THREADS) {
        double *sums = l->sums + (size_t)row * f->hidden;
        memset(sums, 0, f->hidden * sizeof *sums);
        for (uint32_t i = row * f->active; i < (row + 1) * f->active; i++) {
            const layer_expert *e = &l->expert[l->choice[i]];
            for (uint32_t k = 0; k < f->inter; k++) {
                h[k] = found_at(l, i, k);
            }
            for (uint32_t n = 0; n < f->hidden; n++) {
                double v = dot(e->down_weights + (size_t)n * f->inter, h, f->inter);
                sums[n] += (double)l->weight[i] * (v + (f->bias ? (double)e->down.part[0].bias[n] : 0));
            }
        }
    }
    free(h);
}

/* ---- a layer ---- */

/* The layer's descriptors in device memory. */
static rig_buffer experts_buffer(const layer *l)
{
    exl2k_expert *experts = product_take(l->form->experts, sizeof *experts);
    for (uint32_t i = 0; i < l->form->experts; i++) {
        const layer_expert *e = &l->expert[i];
        experts[i].up = e->up.device;
        experts[i].down = e->down.device;
        experts[i].up_map = e->up_map_buffer.address;
    }
    rig_buffer b = rig_buffer_of(experts, l->form->experts * sizeof *experts);
    free(experts);
    return b;
}

/* Uploads x in the order that all experts share. */
static void layer_pack(layer *l)
{
    uint16_t *x = product_take((size_t)ROWS * l->x_pitch, 2);
    for (size_t row = 0; row < ROWS; row++) {
        for (uint32_t k = 0; k < l->form->hidden; k++) {
            x[row * l->x_pitch + l->expert->up_map[k]] = l->x[row * l->x_pitch + k];
        }
    }
    rig_upload(l->x_buffer, 0, x, (size_t)ROWS * l->x_pitch * 2);
    free(x);
}

static void layer_open(layer *l, const struct layer_case *form, uint32_t chunk_bytes)
{
    *l = (layer){ .form = form, .x_pitch = (form->hidden + 63) / 64 * 64 + 64 };
    l->expert = product_take(form->experts, sizeof *l->expert);
    for (uint32_t i = 0; i < form->experts; i++) {
        expert_make(l, i, chunk_bytes);
    }
    l->x = product_take((size_t)ROWS * l->x_pitch, 2);
    l->choice = product_take((size_t)ROWS * form->active, 4);
    l->weight = product_take((size_t)ROWS * form->active, 4);
    l->residual = product_take((size_t)ROWS * form->hidden, 4);
    l->sums = product_take((size_t)ROWS * form->hidden, sizeof *l->sums);
    l->h = product_take((size_t)ROWS * form->active * form->inter, sizeof *l->h);
    l->found = product_take((size_t)ROWS * form->active * ((form->inter + 63) / 64 * 64), 2);
    memset(l->x, 0xFF, (size_t)ROWS * l->x_pitch * 2); /* what follows a row's columns is NaN */
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t k = 0; k < form->hidden; k++) {
            l->x[(size_t)row * l->x_pitch + k] = exl2__f32_to_f16(product_uniform());
        }
        choose(form, l->choice + row * form->active);
    }
    for (uint32_t i = 0; i < ROWS * form->active; i++) {
        l->weight[i] = 0.55f + 0.45f * product_uniform();
    }
    for (size_t i = 0; i < (size_t)ROWS * form->hidden; i++) {
        l->residual[i] = 0.01f * product_uniform();
    }
    l->experts = experts_buffer(l);
    l->x_buffer = rig_buffer_of(l->x, (size_t)ROWS * l->x_pitch * 2);
    if (form->packed) {
        layer_pack(l);
    }
    l->choice_buffer = rig_buffer_of(l->choice, (size_t)ROWS * form->active * 4);
    l->weight_buffer = rig_buffer_of(l->weight, (size_t)ROWS * form->active * 4);
    l->out = rig_buffer_make((size_t)ROWS * form->hidden * 4);
    l->scratch = rig_buffer_make(exl2__cuda_grouped_scratch_bytes(ROWS, form->active, form->experts, form->hidden,
                                                                  form->inter, false) + GUARD);
    l->partial = rig_buffer_make(exl2__cuda_gemm_partial_max((uint32_t)rig.sm_count));
    spread(NULL, SPREAD_THREADS, reference_up, l);
}

static void layer_close(layer *l)
{
    void *all[] = { l->x, l->choice, l->weight, l->residual, l->sums, l->h, l->found };
    rig_buffer *buffers[] = { &l->experts, &l->x_buffer, &l->choice_buffer, &l->weight_buffer, &l->out, &l->scratch,
                              &l->partial };
    for (uint32_t i = 0; i < l->form->experts; i++) {
        layer_expert *e = &l->expert[i];
        product_free(&e->up);
        product_free(&e->down);
        rig_buffer_free(&e->up_map_buffer);
        free(l->form->packed && i > 0 ? NULL : e->up_map);
        free(e->down_map);
        free(e->up_weights);
        free(e->down_weights);
    }
    free(l->expert);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
}

/* ---- launches ---- */

static void launch(const exl2__cuda_grouped_launch *l)
{
    const exl2__cuda_kernel_row *row = &exl2__cuda_kernel_rows[l->kernel];
    const rig_module *m = strcmp(row->module, rows_module.name) == 0 ? &rows_module
                        : strcmp(row->module, gemm_module.name) == 0 ? &gemm_module
                        : strcmp(row->module, gemm32_module.name) == 0 ? &gemm32_module : &affine_module;
    rig_launch(m, row->function, l->grid.x, l->grid.y, l->grid.threads, l->grid.shared_bytes, &l->args, sizeof l->args);
}

/* The experts of `rows` rows from row `first` on. */
static exl2__cuda_grouped experts_of(const layer *l, uint32_t first, uint32_t rows)
{
    const struct layer_case *f = l->form;
    return (exl2__cuda_grouped){ .experts = l->experts.address, .x_pitch = l->x_pitch, .out_pitch = f->hidden,
                                 .choice = l->choice_buffer.address + (uint64_t)first * f->active * 4,
                                 .weight = l->weight_buffer.address + (uint64_t)first * f->active * 4,
                                 .x = l->x_buffer.address + (uint64_t)first * l->x_pitch * 2,
                                 .out = l->out.address + (uint64_t)first * f->hidden * 4,
                                 .scratch = l->scratch.address, .partial = l->partial.address, .rows = rows,
                                 .active = f->active, .count = f->experts, .hidden = f->hidden, .inter = f->inter,
                                 .parts = f->parts, .act = f->act, .chunk_bytes = l->chunk_bytes, .scale = 1.5f,
                                 .add = true, .packed = f->packed, .affine = f->affine,
                                 .act_limit = ACT_LIMIT };
}

/* Computes the rows on top of the residual, or, if `add` is false, in place of NaNs. out: [rows, hidden]. */
static void compute(layer *l, uint32_t first, uint32_t rows, bool add, uint32_t budget, float *out)
{
    const struct layer_case *f = l->form;
    exl2__cuda_grouped e = experts_of(l, first, rows);
    uint64_t used = exl2__cuda_grouped_scratch_bytes(rows, f->active, f->experts, f->hidden, f->inter, false);
    uint8_t guard[GUARD];
    e.add = add;
    exl2__cuda_grouped_plan plan = exl2__cuda_grouped_plan_make(&e, (uint32_t)rig.sm_count, budget);
    if (!CHECK(plan.count > 0)) {
        return;
    }
    rig_poison(l->out);
    if (add) {
        rig_upload(l->out, 0, l->residual, (size_t)ROWS * f->hidden * 4);
    }
    rig_poison(l->scratch);
    rig_poison(l->partial);
    for (uint32_t i = 0; i < plan.count; i++) {
        launch(&plan.launch[i]);
    }
    rig_download(l->out, (uint64_t)first * f->hidden * 4, out, (size_t)rows * f->hidden * 4);
    rig_download(l->scratch, used, guard, GUARD);
    for (uint32_t i = 0; i < GUARD; i++) {
        if (!CHECK(guard[i] == 0xFF)) {
            break;
        }
    }
}

/* ---- checks ---- */

/* Downloads h of the last pass and compares it with the reference. */
static void check_h(layer *l, uint32_t rows)
{
    const struct layer_case *f = l->form;
    exl2__cuda_grouped_layout at = exl2__cuda_grouped_layout_of(rows, f->active, f->experts, f->hidden, f->inter);
    uint32_t slots = rows * f->active, *places = product_take(slots, 4);
    uint16_t *h = product_take((size_t)slots * at.h_pitch, 2);
    rig_download(l->scratch, at.places, places, slots * 4ull);
    rig_download(l->scratch, at.h, h, (size_t)slots * at.h_pitch * 2);
    for (uint32_t slot = 0; slot < slots; slot++) {
        double error = 0, size = 0;
        if (!CHECK(places[slot] < slots)) {
            break;
        }
        memcpy(l->found + (size_t)slot * at.h_pitch, h + (size_t)places[slot] * at.h_pitch, at.h_pitch * 2);
        for (uint32_t n = 0; n < f->inter; n++) {
            double right = l->h[(size_t)slot * f->inter + n], got = found_at(l, slot, n);
            error += got == got ? (got - right) * (got - right) : INFINITY;
            size += right * right;
        }
        double relative = sqrt(error / size);
        worst_h = relative > worst_h ? relative : worst_h;
        if (!CHECK(relative <= 4.9e-4)) {
            printf("    case %u, h of slot %u of %u: %.2e\n", (unsigned)(f - cases), slot, slots, relative);
            break;
        }
    }
    free(places);
    free(h);
}

/* Compares the results of the last pass, which began with row 0, with the reference. */
static void check_rows(layer *l, uint32_t rows, bool add, const float *out)
{
    uint32_t hidden = l->form->hidden;
    double bound = 1e-5 + l->form->inter / 16.0 * 6e-8; /* tensor cores round each of inter / 16 additions down */
    check_h(l, rows);
    l->rows = rows;
    spread(NULL, SPREAD_THREADS, reference_down, l);
    for (uint32_t row = 0; row < rows; row++) {
        double error = 0, size = 0;
        for (uint32_t n = 0; n < hidden; n++) {
            size_t at = (size_t)row * hidden + n;
            double right = 1.5 * l->sums[at], got = (double)out[at] - (add ? (double)l->residual[at] : 0);
            error += got == got ? (got - right) * (got - right) : INFINITY;
            size += right * right;
        }
        double relative = sqrt(error / size);
        worst = relative > worst ? relative : worst;
        if (!CHECK(relative <= bound)) {
            printf("    case %u, row %u of %u: %.2e\n", (unsigned)(l->form - cases), row, rows, relative);
            return;
        }
    }
}

/* A weight that is NaN makes its row NaN, and changes no other row. */
static void check_nan(layer *l, const float *right, uint32_t rows, uint32_t budget)
{
    const float nan_value = NAN;
    uint32_t hidden = l->form->hidden, bad = rows / 2, slot = bad * l->form->active + l->form->active / 2;
    float *out = product_take((size_t)rows * hidden, 4);
    rig_upload(l->weight_buffer, slot * 4ull, &nan_value, 4);
    compute(l, 0, rows, true, budget, out);
    for (uint32_t row = 0; row < rows; row++) {
        bool same = memcmp(out + (size_t)row * hidden, right + (size_t)row * hidden, hidden * 4) == 0, all = true;
        for (uint32_t n = 0; n < hidden; n++) {
            all = all && isnan(out[(size_t)row * hidden + n]);
        }
        CHECK(row == bad ? all : same);
    }
    rig_upload(l->weight_buffer, slot * 4ull, &l->weight[slot], 4);
    free(out);
}

/* Compares all rows with the reference, and the rows of other passes bit for bit with the same rows. */
static void check_case(uint32_t number, uint32_t budget)
{
    static const uint32_t passes[][2] = { { 0, 1 }, { 3, 17 }, { 100, 33 }, { 500, 200 }, { 1023, 1 }, { 7, 900 } };
    layer l;
    layer_open(&l, &cases[number], budget < 64 * 1024 && !cases[number].dense ? 1088 : EXL2__CUDA_CHUNK_BYTES);
    uint32_t hidden = l.form->hidden, most = rows_most;
    float *all = product_take((size_t)ROWS * hidden, 4), *out = product_take((size_t)ROWS * hidden, 4);
    compute(&l, 0, most, true, budget, all);
    check_rows(&l, most, true, all);
    compute(&l, 0, most, true, budget, out);
    CHECK(memcmp(all, out, (size_t)most * hidden * 4) == 0);
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        uint32_t first = passes[i][0], rows = passes[i][1];
        if (first + rows > most) {
            continue;
        }
        compute(&l, first, rows, true, budget, out);
        for (uint32_t row = 0; row < rows; row++) {
            CHECK(memcmp(all + (size_t)(first + row) * hidden, out + (size_t)row * hidden, hidden * 4) == 0);
        }
    }
    check_nan(&l, all, exl2__min32(most, 40), budget);
    compute(&l, 0, exl2__min32(most, 50), false, budget, out);
    check_rows(&l, exl2__min32(most, 50), false, out);
    free(all);
    free(out);
    layer_close(&l);
}

/* ---- speed: a layer of Qwen3-30B-A3B with 4 bits ---- */

#define SPEED_REPEATS 9

static int compare(const void *a, const void *b)
{
    double one = *(const double *)a, two = *(const double *)b;
    return (one > two) - (one < two);
}

/* Microseconds of the launches [from, end): the median of runs of a graph. */
static double time_launches(const exl2__cuda_grouped_plan *plan, uint32_t from, uint32_t end)
{
    double times[SPEED_REPEATS];
    rig_capture();
    for (uint32_t i = from; i < end; i++) {
        launch(&plan->launch[i]);
    }
    exl2__cuda_graph_exec *graph = rig_captured();
    rig_replay(graph);
    rig_wait();
    for (uint32_t i = 0; i < SPEED_REPEATS; i++) {
        rig_start();
        rig_replay(graph);
        times[i] = rig_stop();
    }
    rig_try(rig.driver.graph_exec_free(graph), "cuGraphExecDestroy");
    qsort(times, SPEED_REPEATS, sizeof times[0], compare);
    return times[SPEED_REPEATS / 2];
}

/* A copy of a matrix with strips of its own. */
static product_matrix copy_of(const product_matrix *m, const uint8_t *strips)
{
    product_matrix copy = *m;
    copy.strips = rig_buffer_of(strips, (size_t)m->bytes);
    for (uint32_t part = 0; part < m->count; part++) {
        copy.device.part[part].base = copy.strips.address + m->part[part].base;
    }
    return copy;
}

static void time_rows(layer *l, uint32_t rows)
{
    const struct layer_case *f = l->form;
    uint32_t touched = 0, *counts = product_take(f->experts, 4);
    for (uint32_t i = 0; i < rows * f->active; i++) {
        touched += counts[l->choice[i]]++ == 0;
    }
    exl2__cuda_grouped e = experts_of(l, 0, rows);
    exl2__cuda_grouped_plan plan = exl2__cuda_grouped_plan_make(&e, (uint32_t)rig.sm_count, (uint32_t)rig.shared_optin);
    double us = time_launches(&plan, 0, plan.count), work = 6e-6 * rows * f->active * f->hidden * f->inter;
    printf("%5u rows, %u experts touched: %.1f us, %.0f TFLOP/s:", rows, touched, us, work / us);
    for (uint32_t i = 0; i < plan.count; i++) {
        printf(" %s %.1f", exl2__cuda_kernel_rows[plan.launch[i].kernel].function + 14, time_launches(&plan, i, i + 1));
    }
    printf(" us; scratch %.1f MB\n", (double)exl2__cuda_grouped_scratch_bytes(rows, f->active, f->experts, f->hidden,
                                                                              f->inter, false) * 1e-6);
    fflush(stdout);
    free(counts);
}

static void speed(int count, char **numbers)
{
    static const struct layer_case form = { 128, 8, 2048, 768, 2, EXL2K_ACT_SILU, UNIFORM, .mapped = true };
    static const uint32_t usual[] = { 17, 64, 256, 384, 512, 1024, 2048 };
    const product_run up = { 4, 2048, 128 }, down = { 4, 768, 128 };
    uint32_t rows = 4096;
    layer l = { .form = &form, .x_pitch = 2048 + 128 };
    l.expert = product_take(form.experts, sizeof *l.expert);
    product_part_make(&l.expert[0].up.part[0], &up, 1, form.inter, false);
    product_part_make(&l.expert[0].up.part[1], &up, 1, form.inter, false);
    product_part_make(&l.expert[0].down.part[0], &down, 1, form.hidden, false);
    product_lay(&l.expert[0].up, 2, 0, EXL2__CUDA_CHUNK_BYTES);
    product_lay(&l.expert[0].down, 1, 0, EXL2__CUDA_CHUNK_BYTES);
    product_pack(&l.expert[0].up, &shuffle, 1000, NULL);
    product_pack(&l.expert[0].down, &shuffle, 1000, NULL);
    uint8_t *up_strips = product_take((size_t)l.expert[0].up.bytes, 1);
    uint8_t *down_strips = product_take((size_t)l.expert[0].down.bytes, 1);
    rig_download(l.expert[0].up.strips, 0, up_strips, (size_t)l.expert[0].up.bytes);
    rig_download(l.expert[0].down.strips, 0, down_strips, (size_t)l.expert[0].down.bytes);
    for (uint32_t i = 0; i < form.experts; i++) {
        layer_expert *e = &l.expert[i];
        *e = l.expert[0];
        e->up = copy_of(&e->up, up_strips);
        e->down = copy_of(&e->down, down_strips);
        e->up_map = map_make(form.hidden, &e->up_map_buffer);
    }
    l.chunk_bytes = exl2__max32(l.expert[0].up.chunk_bytes, l.expert[0].down.chunk_bytes);
    l.experts = experts_buffer(&l);
    l.x_buffer = product_random_halves((size_t)rows * l.x_pitch);
    l.choice = product_take((size_t)rows * form.active, 4);
    l.weight = product_take((size_t)rows * form.active, 4);
    for (uint32_t row = 0; row < rows; row++) {
        choose(&form, l.choice + row * form.active);
    }
    l.choice_buffer = rig_buffer_of(l.choice, (size_t)rows * form.active * 4);
    l.weight_buffer = rig_buffer_of(l.weight, (size_t)rows * form.active * 4);
    l.out = rig_buffer_make((uint64_t)rows * form.hidden * 4);
    l.scratch = rig_buffer_make(exl2__cuda_grouped_scratch_bytes(rows, form.active, form.experts, form.hidden,
                                                                 form.inter, false));
    l.partial = rig_buffer_make(exl2__cuda_gemm_partial_max((uint32_t)rig.sm_count));
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && count == 0; i++) {
        time_rows(&l, usual[i]);
    }
    for (int i = 0; i < count; i++) {
        time_rows(&l, exl2__min32((uint32_t)strtoul(numbers[i], NULL, 10), rows));
    }
}

static void modules_load(const char *options)
{
    rows_module = rig_load("grouped_rows.cu", options);
    gemm_module = rig_load("grouped_gemm.cu", options);
    gemm32_module = rig_load("grouped_gemm32.cu", options);
    affine_module = rig_load("grouped_gemm_affine.cu", options);
}

static void modules_unload(void)
{
    rig_unload(&affine_module);
    rig_unload(&gemm32_module);
    rig_unload(&gemm_module);
    rig_unload(&rows_module);
}

int main(int argc, char **argv)
{
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    const uint32_t budgets[] = { (uint32_t)rig.shared_optin, 99 * 1024, 48 * 1024 };
    uint32_t count = sizeof cases / sizeof cases[0], first = 0;
    bool timed = argc > 2 && strcmp(argv[2], "speed") == 0;
    shuffle = rig_load("shuffle.cu", NULL);
    modules_load(NULL);
    rig.programmatic = true; /* kernels start early, as in a pass */
    if (argc > 3 && !timed) {
        first = (uint32_t)strtoul(argv[2], NULL, 10) % count;
        count = first + 1;
        rows_most = exl2__min32((uint32_t)strtoul(argv[3], NULL, 10), ROWS);
    }
    for (uint32_t i = first; i < count && !timed; i++) {
        for (uint32_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
            if (budgets[b] <= budgets[0]) { /* what this GPU has */
                check_case(i, budgets[b]);
            }
        }
    }
    if (argc <= 2) { /* again with kernels that sleep at random */
        modules_unload();
        modules_load("-DEXL2K_SLEEP=7");
        check_case(2, budgets[0]);
        check_case(7, budgets[0]);
    }
    if (timed) {
        speed(argc - 3, argv + 3);
    } else {
        printf("largest relative error: %.2e, of h %.2e\n", worst, worst_h);
    }
    modules_unload();
    rig_unload(&shuffle);
    rig_close();
    return check_done();
}
