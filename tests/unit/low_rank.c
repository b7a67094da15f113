/* low_rank.c: a matrix of low rank, A B, added to every product of a pass through exl2__cpu_multiply alone. The pass
   must give the logits of a model whose weights are W + A B, dense. For every role, for the head, for EXL2, GPTQ and
   dense matrices. All arithmetic is in double, and weights are rounded to fp16, so only W + A B, stored as F32, is
   rounded. */
#define EXL2__REAL double
#define EXL2__TEST_F32_KV
#define EXL2__TEST_F16_WEIGHTS
#include "private/cpu_multiply.h"
static void multiply_with_low_rank(const exl2__cpu_device *d, const exl2__cpu_product *p);
#define exl2__cpu_multiply multiply_with_low_rank /* in the phases, which are compiled after it */
#include "private/cpu.h"
#undef exl2__cpu_multiply

#define CONTEXT 128u
#define PAGES 13u
#define ROWS_MAX 20u
#define SEQUENCES_MAX 4u
#define LOGITS_MAX 8u
#include "made_step.h"

#define RANK 3u
#define HEAD EXL2__ROLE_COUNT /* as a role */
#define ALL_ROLES ((1u << (HEAD + 1)) - 1)
#define BOUND 5e-7            /* of the largest logit; 1.5e-7 was measured */
#define FELT 5e-6             /* what the addition to one role changes, at least; 1e-5 was measured */

/* ---- A and B, which depend on the matrix only ---- */

static uint32_t roles_wanted, roles_added; /* bits, HEAD among them: whose products have the addition */
static uint32_t roles_tested;

static uint32_t role_of(exl2__operand of)
{
    return of.layer ? (uint32_t)of.role : HEAD;
}

/* An element in [-1/16, 1/16] of A [RANK, in] (side 0) or B [RANK, out] (side 1). */
static double element(exl2__operand of, uint32_t part, uint32_t side, uint32_t rank, uint32_t index)
{
    uint64_t key[] = { of.layer ? of.layer->index : 0, role_of(of), of.expert, part, side, rank, index };
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof key / sizeof key[0]; i++) {
        hash = (hash ^ key[i]) * 1099511628211u;
        hash ^= hash >> 29;
    }
    return ((double)(hash >> 40 & 0xFFFF) / 32768 - 1) / 16;
}

/* Adds x A B for one row x, whose feature order[i] is x[i * step], to columns [begin, end) at `out`. */
static void add_row(const exl2__cpu_product *p, const exl2__cpu_part *w, const double *x, size_t step, double *out)
{
    uint32_t begin = p->begin * EXL2__CPU_STRIP, end = exl2__min32(p->end * EXL2__CPU_STRIP, w->out);
    for (uint32_t k = 0; k < RANK; k++) {
        double u = 0;
        for (uint32_t i = 0; i < w->in; i++) {
            u += x[i * step] * element(p->of, p->part, 0, k, w->order ? w->order[i] : i);
        }
        for (uint32_t n = begin; n < end; n++) {
            double y = u * element(p->of, p->part, 1, k, n);
            out[n - p->first * EXL2__CPU_STRIP] += p->add != 0 ? p->add * y : y;
        }
    }
}

static void multiply_with_low_rank(const exl2__cpu_device *d, const exl2__cpu_product *p)
{
    const exl2__cpu_part *w = exl2__cpu_part_of(p->of, p->part);
    const exl2__cpu_input *input = &p->input;
    exl2__cpu_multiply(d, p);
    bool adds = roles_wanted >> role_of(p->of) & 1;
    roles_added |= (uint32_t)adds << role_of(p->of);
    for (uint32_t t = 0; adds && t < exl2__cpu_tiles(input->rows, input->tile_rows); t++) {
        uint32_t row = exl2__cpu_tile_start(input->rows, input->tile_rows, t);
        uint32_t n = exl2__cpu_tile_start(input->rows, input->tile_rows, t + 1) - row;
        for (uint32_t r = 0; r < n; r++) {
            add_row(p, w, input->x + (size_t)row * w->in + r, n, p->out + (row + r) * p->stride);
        }
    }
}

/* ---- the same model with W + A B ---- */

/* The weight of a feature and a column: packed rows [in] of the features are in `row`. */
static float sum_of(exl2__operand of, uint32_t part, const uint32_t *row, uint32_t feature, uint32_t column)
{
    double sum = (double)exl2__cpu_matrix_weight(exl2__cpu_part_of(of, part), row[feature], column);
    for (uint32_t k = 0; k < RANK; k++) {
        sum += element(of, part, 0, k, feature) * element(of, part, 1, k, column);
    }
    return (float)sum;
}

/* Makes the parts of a matrix dense in `m`, with what is added to them. */
static exl2__matrix *make_sum(synth_model *m, exl2__operand of)
{
    const exl2__cpu_matrix *from = exl2__cpu_matrix_of(of.matrix);
    synth_matrix parts[3];
    for (uint32_t part = 0; part < from->count; part++) {
        const exl2__cpu_part *p = &from->parts[part];
        uint32_t *row = (uint32_t *)synth_alloc(p->in * sizeof *row);
        for (uint32_t i = 0; i < p->in; i++) {
            row[p->order ? p->order[i] : i] = i;
        }
        parts[part] = synth_dense(p->in, p->out, EXL2__F32);
        for (uint32_t n = 0; n < p->out; n++) {
            for (uint32_t i = 0; i < p->in; i++) {
                ((float *)parts[part].data)[(size_t)n * p->in + i] = sum_of(of, part, row, i, n);
            }
        }
        if (p->bias) {
            synth_bias(&parts[part]);
            memcpy((void *)(uintptr_t)parts[part].desc.bias, p->bias, p->out * sizeof *p->bias);
        }
        free(row);
    }
    return synth_make_of(m, parts, from->count, EXL2__USE_PRODUCT, 0);
}

/* Replaces all matrices of `m`, which has those of `from`. */
static void make_sums(synth_model *m, const synth_model *from)
{
    for (uint32_t i = 0; i < from->plan.shape.layers; i++) {
        for (uint32_t role = 0; role < EXL2__ROLE_COUNT; role++) {
            bool many = role >= EXL2__ROLE_SINGLES;
            uint32_t count = many ? synth_now->experts.count : from->layers[i].matrix[role] != NULL;
            for (uint32_t e = 0; e < count; e++) {
                exl2__operand of = many ? exl2__operand_of_expert(&from->layers[i], (exl2__role)role, e)
                                        : exl2__operand_of(&from->layers[i], (exl2__role)role);
                *exl2__layer_matrix(&m->layers[i], (exl2__role)role, e) = make_sum(m, of);
            }
        }
    }
    exl2__cpu_of(m->d)->head = make_sum(m, (exl2__operand){ .matrix = from->plan.head });
}

/* ---- passes ---- */

static uint32_t rows_of_logits(made_step *made, const synth_shape *s)
{
    static const made_rows sequences[SEQUENCES_MAX] = { { 0, 1 }, { 0, 17 }, { 0, 2 } };
    made_step_place(made, sequences, s->vocab, false);
    for (uint32_t row = 0; row < made->step.row_count && made->step.logit_count < LOGITS_MAX; row += 3) {
        made->logits[made->step.logit_count++] = (exl2__logit_row){ .row = row, .use = EXL2__LOGIT_FETCH };
    }
    return made->step.logit_count;
}

/* Logits [count, vocab] of a pass whose products of these roles have the addition. */
static double *logits_of(synth_model *m, const made_step *made, uint32_t vocab, uint32_t roles)
{
    const exl2__cpu_device *d = exl2__cpu_of(m->d);
    double *out = (double *)synth_alloc(made->step.logit_count * vocab * sizeof *out);
    roles_wanted = roles;
    synth_layers(m, &made->step, 0);
    synth_phase(m, EXL2__PHASE_head, NULL, 0, made->step.logit_count, 0);
    for (uint32_t r = 0; r < made->step.logit_count; r++) {
        memcpy(out + (size_t)r * vocab, d->logits + (size_t)r * d->vocab_stride, vocab * sizeof *out);
    }
    return out;
}

/* The largest difference, relative to the largest logit. */
static double apart(const double *a, const double *b, size_t count)
{
    double largest = 0, off = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(b[i]));
        off = fabs(a[i] - b[i]) <= off ? off : fabs(a[i] - b[i]);
    }
    return off / largest;
}

static void compare_models(const char *name, const synth_family *family, const synth_shape *s)
{
    static made_step made;
    exl2_parallel none = { 0 };
    synth_model plain, dense;
    synth_now = family;
    synth_model_open(&plain, &exl2__cpu_backend, s, 11, none, ROWS_MAX, CONTEXT, PAGES, NULL);
    synth_model_open(&dense, &exl2__cpu_backend, s, 11, none, ROWS_MAX, CONTEXT, PAGES, NULL);
    make_sums(&dense, &plain);
    size_t count = (size_t)rows_of_logits(&made, s) * s->vocab;
    double *without = logits_of(&plain, &made, s->vocab, 0), *wanted = logits_of(&dense, &made, s->vocab, 0);
    roles_added = 0;
    double *with = logits_of(&plain, &made, s->vocab, ALL_ROLES), *again = logits_of(&plain, &made, s->vocab, 0);
    double off = apart(with, wanted, count), least = apart(without, wanted, count);
    CHECK(off <= BOUND);
    CHECK(memcmp(without, again, count * sizeof *without) == 0);
    for (uint32_t role = 0, roles = roles_added; role <= HEAD; role++) { /* each role counts */
        if (roles >> role & 1) {
            double *but_one = logits_of(&plain, &made, s->vocab, ALL_ROLES & ~(1u << role));
            double felt = apart(but_one, wanted, count);
            CHECK(felt >= FELT);
            least = felt < least ? felt : least;
            free(but_one);
        }
    }
    printf("%s: off by %.1e; without the addition of any one role by %.1e or more\n", name, off, least);
    roles_tested |= roles_added;
    free(without);
    free(with);
    free(again);
    free(wanted);
    synth_model_close(&plain);
    synth_model_close(&dense);
}

int main(void)
{
    static const synth_family experts = {
        .act = EXL2__ACT_SILU, .apart = true,
        .experts = { .count = 5, .active = 2, .inter = 64, .shared_inter = 96, .shared_switch = true,
                     .renormalized = true, .groups = 1, .groups_active = 1, .scale = 1 } };
    static const synth_family settled = { .act = EXL2__ACT_GELU_TANH, .post_norms = true, .residual_scale = 0.5f };
    static const synth_family parallel = { .act = EXL2__ACT_GELU, .ungated = true, .layer_norm = true,
                                           .parallel = true };
    static const struct { const char *name; const synth_family *family; synth_shape shape; } cases[] = {
        /* hidden inter layers heads kv dim vocab mix  dense  bias  tied  one order */
        { "EXL2", &synth_llama, { 96, 160, 2, 4, 2, 32, 77, 2, false, true, false, false } },
        { "GPTQ", &synth_llama, { 96, 160, 2, 4, 2, 32, 77, SYNTH_AFFINE + 1, false, true, false, false } },
        { "dense", &synth_llama, { 70, 51, 2, 4, 2, 20, 45, 0, true, true, false, false } },
        { "norms after blocks", &settled, { 96, 64, 2, 4, 2, 32, 77, 1, false, false, false, true } },
        { "parallel blocks", &parallel, { 64, 96, 2, 2, 2, 32, 50, 3, false, true, false, true } },
        { "experts, EXL2", &experts, { 96, 96, 2, 4, 2, 32, 77, 2, false, false, false, true } },
        { "experts, GPTQ", &experts, { 96, 96, 2, 4, 2, 32, 77, SYNTH_AFFINE + 2, false, false, false, true } },
        { "experts, dense", &experts, { 72, 48, 2, 4, 2, 20, 45, 1, true, false, false, true } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        compare_models(cases[i].name, cases[i].family, &cases[i].shape);
    }
    CHECK_INT(roles_tested, ALL_ROLES);
    return check_done();
}
