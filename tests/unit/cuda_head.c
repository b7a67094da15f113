/* cuda_head.c: the head in units over the fake driver. Whatever units are enqueued together, the products of a group of
   logit rows have all columns of the head exactly once, with the same inputs; rows are prepared before the first one
   and sampled after the last one; and what is enqueued at once is one product, so that a pass without a budget launches
   what it did when the head was one unit. */
#define EXL2__CUDA_UNIT_NS 2u /* the fake device reads 960 bytes in a nanosecond */

#include "../../exl2.h"

#include "private/cuda.h"
#include "../../kernels_src/probe_args.h"
#include "../device/fake_gpu.h"
#include "../device/phase_pass.h"
#include "cpu_synth.h"

/* ---- launches ---- */

#define PRODUCTS_MAX 64u

typedef struct launches {
    exl2k_gemv_args product[PRODUCTS_MAX]; /* [count] of the head */
    uint32_t count, all, prepared, sampled; /* all: launches of any kernel; prepared: after the last layer */
} launches;

static launches seen;
static exl2__device *tested;
static bool in_head; /* the layers have been enqueued */

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    (void)grid;
    seen.all++;
    if (strncmp(function, "exl2k_gemv", 10) == 0 && tested) {
        const exl2k_gemv_args *a = (const exl2k_gemv_args *)arguments;
        const exl2__cuda_buffers *b = &exl2__cuda_of(tested)->b;
        bool head = a->kind == EXL2K_GEMV_STORE && a->out_pitch == b->stride && a->out >= b->logits;
        if (head && CHECK(seen.count < PRODUCTS_MAX)) {
            seen.product[seen.count++] = *a;
        }
    } else if (in_head && (strcmp(function, "exl2k_norm") == 0 || strcmp(function, "exl2k_settle") == 0
                           || strcmp(function, "exl2k_head_rows") == 0)) {
        seen.prepared++;
        CHECK_INT(seen.count, 0);
    } else if (strcmp(function, "exl2k_sample_keys") == 0) {
        seen.sampled++;
    }
}

/* ---- models ---- */

typedef struct head_case {
    synth_family family;
    synth_shape shape;
} head_case;

static const head_case cases[] = {
    { { .act = EXL2__ACT_SILU }, { 128, 160, 2, 4, 2, 64, 300, 3, false, false, false, true } },
    { { .act = EXL2__ACT_SILU }, { 128, 160, 3, 4, 2, 64, 1001, 1, false, true, true, true } },
    { { .act = EXL2__ACT_GELU_TANH, .post_norms = true }, { 128, 160, 2, 4, 2, 64, 300, 3, false, true, false, true } },
    { { .act = EXL2__ACT_SILU }, { 128, 160, 2, 4, 2, 64, 333, SYNTH_AFFINE + 3, false, true, false, true } },
    { { .act = EXL2__ACT_SILU }, { 128, 160, 2, 4, 2, 64, 20, 3, false, false, false, true } }, /* two strips */
};

static void settle(synth_model *m)
{
    synth_need(m, exl2__cuda_device_enter(&gpu));
    CHECK_INT(gpu.driver.stream_wait(gpu.stream), 0);
    exl2__cuda_device_leave(&gpu);
}

/* ---- checks ---- */

/* The head's products are ranges of columns, at most `most` of them, each for all logit rows (8 rows in a launch). */
static void check_columns(const synth_model *m, uint32_t most)
{
    const exl2k_matrix *whole = &exl2__cuda_matrix_of(m->plan.head)->device;
    const exl2k_part *all = &whole->part[0];
    uint32_t each = 0, next = 0;
    while (each < seen.count && seen.product[each].matrix.part[0].column == 0) {
        each++;
    }
    if (!CHECK(each > 0 && seen.count % each == 0 && seen.count / each <= most)) {
        return;
    }
    uint32_t parts = seen.count / each;
    for (uint32_t i = 0; i < parts; i++) {
        const exl2k_gemv_args *a = &seen.product[i * each];
        const exl2k_part *p = &a->matrix.part[0];
        CHECK(p->column == next && p->columns > 0);
        CHECK_INT(p->base, all->base + (uint64_t)next / 16 * all->pitch);
        CHECK_INT(p->bias, all->bias ? all->bias + next * sizeof(float) : 0);
        CHECK(p->pitch == all->pitch && p->chunks == all->chunks && p->strips >= (p->columns + 15) / 16);
        CHECK(p->strips == (p->columns + 15) / 16 || (i + 1 == parts && next / 16 + p->strips == all->strips));
        CHECK(a->matrix.strips == p->strips && a->matrix.parts == 1 && a->matrix.slices == whole->slices);
        CHECK(i + 1 == parts || p->columns % 16 == 0);
        for (uint32_t k = 0; k < each; k++) { /* other rows of the same columns; the same rows of others */
            const exl2k_gemv_args *row = &a[k], *first = &seen.product[k];
            CHECK(memcmp(&row->matrix, &a->matrix, sizeof a->matrix) == 0);
            CHECK(row->x == first->x && row->out == first->out && row->rows == first->rows
                  && row->sums_now == first->sums_now && row->sums_before == first->sums_before);
        }
        next += p->columns;
    }
    CHECK_INT(next, m->plan.shape.vocab);
}

/* Enqueues the pass, with its head `step` units at a time, after the layers or (step 0) together with them. Returns the
   number of launches of the whole pass. */
static uint32_t run_pass(synth_model *m, const exl2__step *step, uint32_t at_once, bool timed)
{
    exl2__cuda_model *c = exl2__cuda_of(m->d);
    uint32_t layers = m->b->queue->units(m->d), heads = m->b->queue->head_units(m->d), all = 0;
    uint32_t groups = (uint32_t)exl2__div_up(step->logit_count, m->plan.logit_rows_max), fences = c->fences_queued;
    synth_need(m, m->b->begin(m->d, step));
    settle(m);
    memset(&seen, 0, sizeof seen);
    in_head = false;
    if (at_once > 0) {
        synth_need(m, m->b->queue->enqueue(m->d, 0, layers, timed));
        settle(m);
        in_head = true;
        CHECK(c->fences_queued == fences && seen.count == 0 && seen.sampled == 0);
    }
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t first = layers + g * heads, begin = at_once || g > 0 ? first : 0;
        all += seen.all;
        memset(&seen, 0, sizeof seen);
        for (uint32_t unit = begin; unit < first + heads;) {
            uint32_t end = at_once ? exl2__min32(unit + at_once, first + heads) : first + heads;
            CHECK(seen.sampled == 0 && c->fences_queued == fences + g);
            synth_need(m, m->b->queue->enqueue(m->d, unit, end, timed));
            settle(m);
            unit = end;
        }
        CHECK(seen.sampled == 1 && c->fences_queued == fences + g + 1);
        check_columns(m, at_once == 0 || at_once == heads ? 1 : heads);
        CHECK(seen.prepared <= (at_once ? 1 : 2 * m->plan.shape.layers + 1));
    }
    c->fences_collected = c->fences_queued;
    m->b->queue->queued_ns(m->d); /* the timed spans have ended */
    return all + seen.all;
}

static void check_case(const head_case *c)
{
    static made_step made;
    exl2_parallel none = { 0 };
    synth_model m;
    gpu_open(89, 232448, run);
    synth_now = &c->family;
    synth_model_open_on(&m, &exl2__cuda_backend, &gpu, &c->shape, 7, none, ROWS_MAX, CONTEXT, PAGES, NULL);
    tested = m.d;
    uint32_t heads = m.b->queue->head_units(m.d);
    CHECK(heads > (c->shape.vocab > 32 ? 4u : 1u) && heads <= (c->shape.vocab + 15) / 16);
    printf("%u columns of the head in %u units\n", c->shape.vocab, heads);
    uint64_t few_ns = 0;
    for (uint32_t i = 0; i < EXL2__COUNT(passes); i++) {
        for (uint32_t kind = EXL2__ROWS_PROMPT; kind <= EXL2__ROWS_SAMPLED; kind++) {
            make_step(&made, &c->shape, &passes[i], (exl2__row_kind)kind);
            if (kind == EXL2__ROWS_SAMPLED && made.step.row_count > 8) { /* a captured pass has one group */
                continue;
            }
            uint32_t whole = run_pass(&m, &made.step, 0, false);
            if (kind == EXL2__ROWS_PROMPT) { /* prompts of few rows cost as much as those of 128 */
                uint64_t layer_ns = exl2__cuda_estimate_ns(exl2__cuda_of(m.d), 0);
                CHECK(few_ns == 0 || made.step.row_count > EXL2__CUDA_ROWS_ALIKE || layer_ns == few_ns);
                few_ns = made.step.row_count > EXL2__CUDA_ROWS_ALIKE ? few_ns : layer_ns;
            }
            CHECK_INT(run_pass(&m, &made.step, heads, false), whole); /* as after masks */
            uint32_t each = seen.count;
            CHECK_INT(run_pass(&m, &made.step, heads, true), whole);
            uint32_t cut = run_pass(&m, &made.step, 1, true);
            CHECK(seen.count == heads * each && cut > whole);
            CHECK(run_pass(&m, &made.step, 2, true) <= cut);
            uint64_t ns = 0, layers = m.b->queue->units(m.d);
            for (uint32_t k = 0; k < heads; k++) {
                ns += exl2__cuda_estimate_ns(exl2__cuda_of(m.d), (uint32_t)layers + k);
            }
            CHECK(ns <= exl2__cuda_read_ns(exl2__cuda_of(m.d), exl2__cuda_of(m.d)->head_bytes)
                            * exl2__div_up(made.step.logit_count, 16));
        }
    }
    tested = NULL;
    synth_model_close(&m);
    gpu_close();
    synth_now = &synth_llama;
}

/* ---- CTAs that sample ---- */

/* As many as run at a time, not more than a row has chunks, and none without work. */
static void check_sample_ctas(void)
{
    for (uint32_t rows = 1; rows <= 80; rows++) {
        for (uint32_t chunks = 1; chunks <= 70; chunks++) {
            uint32_t ctas = exl2__cuda_sample_ctas(chunks, rows, 132), turns = (chunks + ctas - 1) / ctas;
            CHECK(ctas >= 1 && ctas <= chunks && ctas * rows <= 264);
            CHECK((ctas == chunks) == (chunks * rows <= 264 || chunks == 1));
            CHECK(ctas == 1 || (ctas - 1) * turns < chunks);
        }
    }
    CHECK_INT(exl2__cuda_sample_ctas(32, 64, 132), 4);
    CHECK_INT(exl2__cuda_sample_ctas(32, 300, 132), 1);
}

int main(void)
{
    check_sample_ctas();
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        check_case(&cases[i]);
    }
    fake_reset();
    return check_done();
}
