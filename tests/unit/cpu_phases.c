/* cpu_phases.c: every phase of EXL2__PHASES on every path (the reference in float, plain C, AVX2, AVX-512). Each phase
   runs alone, from the same input as the reference in double with unrounded K and V (cpu_double.c), over many shapes
   and passes. The rules are made from the list of phases: a phase without a rule does not compile, and one that never
   ran fails. */
#include "small_tasks.h"

#include "cpu_paths.h"
#include "cpu_double.h"

/* ---- buffers of each phase, and the largest allowed error ----

   Error: the largest difference in a row over the largest expected value of that row. A float operation rounds by up to
   2^-24 = 6e-8. The longest chains here have 32 terms in a block and 11 blocks, and their rounding errors add up like a
   random walk, so a product is off by about sqrt(43) * 6e-8 = 4e-7. Codes double that, because an unsigned field is up
   to twice as large as the code. The bounds are 2 to 3 times the largest errors measured. One wrong or missing term
   among a few hundred gives an error above 1e-2.
     copy_pages, embed, sample   no arithmetic that may differ: exact
     qkv, gate_up, head          a norm (one factor, off by 1e-7), then a product; silu and its product add their own
     qkv into pages              the product, and half a unit of f16: 2^-11 of the value, 2^-25 if it is subnormal
     attend                      scores of up to about 8, so e^score is off by several 8 * 6e-8; then weighted sums
     out, down                   a product added to the residual, which has the same magnitude */
#define BIT(name) (1u << CPU_BUFFER_##name)
/* clang-format off */
#define RULE_copy_pages { BIT(pages), BIT(pages), 0 }
#define RULE_embed { 0, BIT(residual), 0 }
#define RULE_qkv { BIT(residual) | BIT(pages), BIT(query) | BIT(pages), 2e-6 }
#define RULE_attend { BIT(query) | BIT(pages), BIT(query), 4e-6 }
#define RULE_out { BIT(query) | BIT(residual), BIT(residual), 2e-6 }
#define RULE_gate_up { BIT(residual), BIT(gate), 6e-6 }
#define RULE_down { BIT(gate) | BIT(residual), BIT(residual), 2e-6 }
/* unit/cpu_experts.c tests the phases of experts: */
#define RULE_route { 0, 0, 0 }
#define RULE_expert_up { 0, 0, 0 }
#define RULE_expert_down { 0, 0, 0 }
#define RULE_settle { BIT(residual), BIT(residual), 2e-6 }
#define RULE_steer { 0, 0, 0 } /* engine/steers.c */
#define RULE_head { BIT(residual), BIT(logits), 2e-6 }
#define RULE_sample { BIT(logits), 0, 0 } /* the results of sampling are compared */
/* clang-format on */

typedef struct phase_rule {
    uint32_t in, out; /* sets of BIT() */
    double off_max;
} phase_rule;

static const phase_rule rules[EXL2__PHASE_COUNT] = {
#define X(name) [EXL2__PHASE_##name] = RULE_##name,
    EXL2__PHASES(X)
#undef X
};

static const char *const phase_names[EXL2__PHASE_COUNT] = {
#define X(name) #name,
    EXL2__PHASES(X)
#undef X
};

static double worst[EXL2__PHASE_COUNT];
static uint32_t compared[EXL2__PHASE_COUNT]; /* number of values */

/* ---- shapes and passes ---- */

#define CONTEXT 256u
#define PAGES 13u
#define ROWS_MAX 20u
#define SEQUENCES_MAX 6u
#define LOGITS_MAX ROWS_MAX

#include "made_step.h"

static const synth_shape shapes[] = {
    /* hidden inter layers heads kv dim vocab mix  dense  bias  tied  one order */
    { 64, 96, 2, 2, 2, 32, 100, 0, false, false, false, false },    /* one query head a K/V head */
    { 96, 64, 2, 4, 2, 32, 77, 1, false, true, true, false },       /* 2 */
    { 160, 224, 1, 6, 2, 16, 130, 2, false, false, true, false },   /* 3; K and V fill their strip */
    { 128, 352, 1, 8, 2, 64, 64, 3, false, true, false, false },    /* 4 */
    { 320, 32, 1, 5, 1, 32, 333, 4, false, false, false, false },   /* 5 */
    { 32, 128, 2, 6, 1, 128, 31, 5, false, false, true, false },    /* 6 */
    { 192, 192, 1, 7, 1, 32, 50, 9, false, true, true, false },     /* 7 */
    { 256, 160, 1, 8, 1, 16, 64, 16, false, false, false, false },  /* 8; half a strip of K */
    { 352, 320, 1, 9, 1, 64, 90, 25, false, true, false, false },   /* 9 */
    { 70, 51, 2, 4, 2, 20, 45, 0, true, true, true, false },        /* dense: nothing is a multiple of anything */
    { 33, 65, 2, 3, 1, 6, 33, 1, true, false, false, false },
    { 64, 96, 1, 2, 1, 48, 64, 2, true, true, true, false },
    { 96, 160, 2, 4, 2, 32, 77, SYNTH_AFFINE + 1, false, true, false, false }, /* affine: every width */
    { 128, 352, 1, 8, 2, 64, 64, SYNTH_AFFINE + 6, false, false, false, true },
};

typedef struct pass {
    made_rows sequence[SEQUENCES_MAX]; /* the first sequences have rows, the rest has none */
} pass;

/* After these come passes of 1..17 rows of one sequence. */
static const pass passes[] = {
    { { { 0, 1 } } },
    { { { 63, 1 }, { 64, 1 }, { 0, 1 }, { 127, 1 }, { 128, 1 }, { 255, 1 } } },
    { { { 57, 15 }, { 3, 2 }, { 190, 3 } } }, /* across a page boundary */
    { { { 0, 7 }, { 200, 1 }, { 120, 12 } } },
    { { { 250, 6 }, { 100, 1 }, { 12, 13 } } }, /* the last positions of a session */
};
#define PASSES (EXL2__COUNT(passes) + 17)

static pass pass_of(uint32_t index)
{
    uint32_t rows = index - (uint32_t)EXL2__COUNT(passes) + 1;
    pass one = { { { (rows * 37) % 200, rows } } };
    return index < EXL2__COUNT(passes) ? passes[index] : one;
}

/* Every second row wants logits, alternately sampled and scored. */
static void make_step(made_step *m, const synth_shape *s, const pass *p, bool has_copies)
{
    made_step_place(m, p->sequence, s->vocab, has_copies);
    m->sampling = (exl2__sampling){ .temperature = 0.9f, .top_p = 0.8f, .repeat_penalty = 1.1f, .seed = 77 };
    for (uint32_t row = 0; row < m->step.row_count; row += 2) {
        const exl2__step_row *of = &m->rows[row];
        m->logits[m->step.logit_count++] = (exl2__logit_row){
            .row = row, .use = row % 4 == 0 ? EXL2__LOGIT_SAMPLE : EXL2__LOGIT_SCORE, .target = of->token, .alts = 3,
            .sampling = &m->sampling, .sample_position = of->position + 1, .history = &of->token, .history_count = 1,
        };
    }
}

/* ---- the two devices ---- */

static const exl2__cpu_ops *tested_ops;

static void use_tested_ops(exl2__device *d)
{
    exl2__cpu_of(d)->ops = tested_ops;
}

static void backwards(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    while (count) {
        task(arg, --count);
    }
}

typedef struct pair {
    synth_model tested, truth;
    cpu_double_view wanted;
    float *buffer[CPU_BUFFER_COUNT]; /* of the device under test; its pages are below */
    uint16_t *pages, *pages_before;  /* [PAGES, elements] f16 */
    const synth_shape *shape;
    const made_step *made;
    uint32_t logit0, logit_count;
} pair;

static uint32_t widths_seen, sources_seen; /* bits */

static void note_matrix(const exl2__matrix *matrix)
{
    const exl2__cpu_matrix *m = exl2__cpu_matrix_of(matrix);
    for (uint32_t i = 0; i < m->count; i++) {
        sources_seen |= 1u << m->parts[i].source;
        for (uint32_t b = 0; m->parts[i].source == EXL2__CPU_CODES && b < m->parts[i].blocks; b++) {
            widths_seen |= 1u << m->parts[i].block[b].bits;
        }
    }
}

static void pair_open(pair *p, const synth_shape *s, uint64_t seed)
{
    exl2_parallel none = { 0 }, parallel = { 0 };
    parallel.run = backwards;
    parallel.width = 3;
    synth_model_open(&p->truth, cpu_double_backend(), s, seed, none, ROWS_MAX, CONTEXT, PAGES, NULL);
    synth_model_open(&p->tested, &exl2__cpu_backend, s, seed, parallel, ROWS_MAX, CONTEXT, PAGES, use_tested_ops);
    exl2__cpu_device *d = exl2__cpu_of(p->tested.d);
    cpu_double_view same = { .stride = CPU_VIEW_STRIDES(d) };
    p->wanted = cpu_double_look(p->truth.d);
    CHECK(memcmp(p->wanted.stride, same.stride, sizeof same.stride) == 0);
    p->buffer[CPU_BUFFER_residual] = d->residual;
    p->buffer[CPU_BUFFER_query] = d->query;
    p->buffer[CPU_BUFFER_gate] = d->gate;
    p->buffer[CPU_BUFFER_logits] = d->logits;
    p->pages = (uint16_t *)(void *)d->pages;
    p->pages_before = (uint16_t *)synth_alloc(PAGES * p->wanted.stride[CPU_BUFFER_pages] * sizeof *p->pages);
    p->shape = s;
    for (uint32_t i = 0; i < s->layers; i++) {
        note_matrix(p->tested.layers[i].matrix[EXL2__ROLE_QKV]);
        note_matrix(p->tested.layers[i].matrix[EXL2__ROLE_DOWN]);
    }
}

static void pair_close(pair *p)
{
    synth_model_close(&p->tested);
    synth_model_close(&p->truth);
    free(p->pages_before);
}

static uint32_t pair_rows(const pair *p, cpu_buffer buffer)
{
    return buffer == CPU_BUFFER_logits ? p->logit_count : p->made->step.row_count;
}

/* The number of values in a row; the rest is padding. */
static uint32_t pair_width(const pair *p, cpu_buffer buffer)
{
    const synth_shape *s = p->shape;
    return buffer == CPU_BUFFER_residual ? s->hidden : buffer == CPU_BUFFER_query ? s->heads * s->head_dim
         : buffer == CPU_BUFFER_gate ? s->inter : s->vocab;
}

/* Random K and V at all positions of the contexts, and NaNs everywhere else, because nothing else may be read. */
static void pair_fill_pages(pair *p)
{
    const exl2__cpu_device *d = exl2__cpu_of(p->tested.d);
    size_t elements = p->wanted.stride[CPU_BUFFER_pages], layer = (size_t)(d->layer_bytes / sizeof *p->pages);
    for (size_t page = 0; page < PAGES; page++) {
        for (size_t i = 0; i < elements; i++) {
            size_t in_layer = i % layer, in_v = in_layer - (size_t)d->key_count;
            bool is_key = in_layer < d->key_count;
            size_t slot = is_key ? in_layer % EXL2__PAGE_TOKENS : in_v / d->value_stride % EXL2__PAGE_TOKENS;
            bool is_padding = !is_key && in_v % d->value_stride >= p->shape->head_dim;
            bool known = p->made->is_context[page][slot] && !is_padding;
            p->pages[page * elements + i] = known ? exl2__f32_to_f16(synth_float() * 2) : (uint16_t)0x7E00;
        }
    }
}

/* Makes the inputs equal: rows of the double device rounded to float, and pages of the tested device. */
static void pair_level(pair *p, uint32_t set)
{
    for (uint32_t b = 0; b < CPU_BUFFER_pages; b++) {
        for (uint32_t r = 0; set >> b & 1 && r < pair_rows(p, (cpu_buffer)b); r++) {
            for (size_t i = r * p->wanted.stride[b]; i < r * p->wanted.stride[b] + pair_width(p, (cpu_buffer)b); i++) {
                p->buffer[b][i] = (float)p->wanted.buffer[b][i];
                p->wanted.buffer[b][i] = (double)p->buffer[b][i];
            }
        }
    }
    for (size_t i = 0; set & BIT(pages) && i < PAGES * p->wanted.stride[CPU_BUFFER_pages]; i++) {
        p->wanted.buffer[CPU_BUFFER_pages][i] = (double)exl2__f16_to_f32(p->pages[i]);
        p->pages_before[i] = p->pages[i];
    }
}

/* ---- comparisons ---- */

static void check_rows(const pair *p, exl2__phase phase, cpu_buffer b)
{
    uint32_t wrong = 0, width = pair_width(p, b), rows = pair_rows(p, b);
    for (uint32_t r = 0; r < rows; r++) {
        const double *wanted = p->wanted.buffer[b] + r * p->wanted.stride[b];
        const float *got = p->buffer[b] + r * p->wanted.stride[b];
        double largest = 0, off = 0;
        for (uint32_t i = 0; i < width; i++) {
            double difference = fabs((double)got[i] - wanted[i]);
            largest = fmax(largest, fabs(wanted[i]));
            off = !(difference <= off) ? difference : off; /* keeps a NaN */
        }
        CHECK(largest > 0);
        off /= largest;
        worst[phase] = off > worst[phase] ? off : worst[phase];
        compared[phase] += width;
        wrong += !(off <= rules[phase].off_max);
    }
    if (!CHECK_INT(wrong, 0)) {
        printf("  %s: %s, hidden %u, %u rows\n", tested_ops->name, phase_names[phase], p->shape->hidden, rows);
    }
    /* Rows after those of the pass are still poisoned. */
    const float *behind = p->buffer[b] + rows * p->wanted.stride[b];
    if (b == CPU_BUFFER_residual && rows < ROWS_MAX) {
        CHECK(exl2__float_bits(behind[0]) == UINT32_MAX
              && exl2__float_bits(behind[p->shape->hidden - 1]) == UINT32_MAX);
    }
}

/* K and V: values that the double device changed differ by one rounding to f16 and by the product. All others kept
   their bits. */
static void check_pages(const pair *p, exl2__phase phase)
{
    const double *wanted = p->wanted.buffer[CPU_BUFFER_pages];
    size_t count = PAGES * p->wanted.stride[CPU_BUFFER_pages];
    uint32_t wrong = 0, changed = 0;
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fabs(wanted[i]) > largest ? fabs(wanted[i]) : largest;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t before, now;
        double was = (double)exl2__f16_to_f32(p->pages_before[i]);
        memcpy(&before, &was, sizeof before);
        memcpy(&now, &wanted[i], sizeof now);
        if (before == now) {
            wrong += p->pages[i] != p->pages_before[i];
        } else {
            double rounding = fmax(fabs(wanted[i]) * 0x1p-11, 0x1p-25);
            double off = fabs((double)exl2__f16_to_f32(p->pages[i]) - wanted[i]);
            wrong += !(off <= rounding * 1.001 + rules[phase].off_max * largest);
            changed++;
        }
    }
    uint32_t kv = 2 * p->shape->kv_heads * p->shape->head_dim;
    CHECK_INT(wrong, 0);
    CHECK_INT(changed, p->made->step.row_count * kv);
}

/* Every copy alone, in order, by page numbers; then whole pages. */
static void check_copies(const pair *p)
{
    uint32_t from[PAGES], wrong = 0;
    size_t elements = p->wanted.stride[CPU_BUFFER_pages];
    for (uint32_t i = 0; i < PAGES; i++) {
        from[i] = i;
    }
    for (uint32_t i = 0; i < EXL2__COUNT(made_copies); i++) {
        from[made_copies[i].to] = from[made_copies[i].from];
    }
    for (uint32_t i = 0; i < PAGES; i++) {
        const uint16_t *got = p->pages + i * elements, *wanted = p->pages_before + from[i] * elements;
        wrong += memcmp(got, wanted, elements * sizeof *got) != 0;
    }
    CHECK_INT(wrong, 0);
    compared[EXL2__PHASE_copy_pages] += PAGES * (uint32_t)elements;
}

static void check_results(pair *p)
{
    exl2_alt alts[2][8][EXL2_ALTS_MAX];
    exl2__logit_result results[2][8] = { { { 0 } } };
    for (uint32_t i = 0; i < p->logit_count; i++) {
        results[0][i].alts = alts[0][i];
        results[1][i].alts = alts[1][i];
    }
    CHECK_INT(p->tested.b->collect(p->tested.d, p->logit0, p->logit_count, true, results[0]), EXL2_OK);
    CHECK_INT(p->truth.b->collect(p->truth.d, p->logit0, p->logit_count, true, results[1]), EXL2_OK);
    for (uint32_t i = 0; i < p->logit_count; i++) {
        const exl2__logit_result *got = &results[0][i], *wanted = &results[1][i];
        CHECK(got->token >= 0 && got->token < (exl2_token)p->shape->vocab);
        CHECK_INT(got->token, wanted->token);
        CHECK(got->logprob == wanted->logprob && got->logsumexp == wanted->logsumexp);
        CHECK(got->alt_count == 3 && memcmp(got->alts, wanted->alts, 3 * sizeof(exl2_alt)) == 0);
        compared[EXL2__PHASE_sample]++;
    }
}

/* ---- the loop ---- */

static void check_phase(pair *p, exl2__phase phase, uint32_t layer, uint32_t items)
{
    bool in_layer = phase >= EXL2__PHASE_qkv && phase <= EXL2__PHASE_down;
    pair_level(p, rules[phase].in);
    synth_phase(&p->truth, phase, in_layer ? &p->truth.layers[layer] : NULL, p->logit0, p->logit_count, 0);
    synth_phase(&p->tested, phase, in_layer ? &p->tested.layers[layer] : NULL, p->logit0, p->logit_count, items);
    for (uint32_t b = 0; b < CPU_BUFFER_pages; b++) {
        if (rules[phase].out >> b & 1) {
            check_rows(p, phase, (cpu_buffer)b);
        }
    }
    if (phase == EXL2__PHASE_copy_pages) {
        check_copies(p);
    } else if (phase == EXL2__PHASE_sample) {
        check_results(p);
    } else if (rules[phase].out & BIT(pages)) {
        check_pages(p, phase);
    }
}

/* All phases of a pass, those of layers for each layer; on the device under test `items` at a time. */
static void check_pass(pair *p, made_step *made, uint32_t items)
{
    p->made = made;
    memset(p->buffer[CPU_BUFFER_residual], 0xFF, ROWS_MAX * p->wanted.stride[CPU_BUFFER_residual] * sizeof(float));
    pair_fill_pages(p);
    CHECK_INT(p->truth.b->begin(p->truth.d, &made->step), EXL2_OK);
    CHECK_INT(p->tested.b->begin(p->tested.d, &made->step), EXL2_OK);
    p->logit0 = p->logit_count = 0;
    if (made->step.copy_count) {
        check_phase(p, EXL2__PHASE_copy_pages, 0, items);
        pair_fill_pages(p); /* the copies have overwritten parts of the contexts */
    }
    check_phase(p, EXL2__PHASE_embed, 0, items);
    for (uint32_t layer = 0; layer < p->shape->layers; layer++) {
        for (uint32_t phase = EXL2__PHASE_qkv; phase <= EXL2__PHASE_down; phase++) {
            check_phase(p, (exl2__phase)phase, layer, items);
        }
    }
    for (p->logit0 = 0; p->logit0 < made->step.logit_count; p->logit0 += p->logit_count) {
        p->logit_count = exl2__min32(made->step.logit_count - p->logit0, 8);
        for (uint32_t phase = EXL2__PHASE_head; phase < EXL2__PHASE_COUNT; phase++) {
            check_phase(p, (exl2__phase)phase, 0, items);
        }
    }
}

int main(int argc, char **argv)
{
    make_tasks_small();
    only_path = argc > 1 ? argv[1] : NULL;
    static made_step made;
    for (uint32_t o = 0; o < EXL2__COUNT(all_ops); o++) {
        tested_ops = all_ops[o];
        memset(compared, 0, sizeof compared);
        memset(worst, 0, sizeof worst);
        for (uint32_t s = 0; runs(tested_ops) && s < EXL2__COUNT(shapes); s++) {
            pair p = { .shape = NULL };
            pair_open(&p, &shapes[s], 1000 + s);
            for (uint32_t i = 0; i < PASSES; i++) {
                uint32_t some = only_path ? 6 : 2; /* every number of rows, with every second shape or fewer */
                if (i >= EXL2__COUNT(passes) && (i + s) % some) {
                    continue;
                }
                pass one = pass_of(i);
                make_step(&made, &shapes[s], &one, i % 8 == 0);
                check_pass(&p, &made, i % 3 == 0 ? 0 : i % 3);
            }
            pair_close(&p);
        }
        for (uint32_t phase = 0; runs(tested_ops) && phase < EXL2__PHASE_COUNT; phase++) {
            printf("%-9s %-10s %8u values, off by %.1e of %.0e\n", tested_ops->name, phase_names[phase],
                   compared[phase], worst[phase], rules[phase].off_max);
            /* no shape here has experts, norms after blocks, or control vectors */
            CHECK(compared[phase] > 0 || (phase >= EXL2__PHASE_route && phase <= EXL2__PHASE_steer));
        }
    }
    CHECK_INT(widths_seen, 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8);
    CHECK_INT(sources_seen, 1 << EXL2__CPU_CODES | 1 << EXL2__CPU_AFFINE |
                                1 << EXL2__CPU_F16 | 1 << EXL2__CPU_BF16 | 1 << EXL2__CPU_F32);
    return check_done();
}
