/* phases.c: every phase of EXL2__PHASES on the GPU, one at a time, compared with a reference in double on the same
   codes, for many shapes and passes. Buffers are poisoned before each phase; after it, everything that the phase must
   not write is checked.
   takes: [FIRST COUNT [N]]: COUNT shapes from FIRST on, every Nth pass; a GPU; $EXL2_TEST_KERNELS, $EXL2_TEST_LARGE.
   gives: exit code 0, 1, or 77 without a GPU; the largest relative error of every phase. */
#define EXL2__CUDA_UNIT_NS 4u /* the heads of these shapes are cut into units */
#define EXL2__CUDA_LARGE_HIDDEN (check_env("EXL2_TEST_LARGE") ? 0u : 4096u) /* 0: all matrices are large */

#include "phase_rig.h"
#include "spread.h"

/* ---- what each phase writes, and how far it may be off ----

   The relative error is the norm of the difference over the norm of the reference, over all rows of a pass (q, k and v
   are judged separately). A single row may be off by twice as much. One rounding to fp16 is off by up to 2^-11 for a
   value and by 2^-11 / sqrt(3) = 2.8e-4 for a row; a sum in float by 1e-6. So the bounds are 3e-4 for a product with
   one fp16 operand, 1e-5 for float results and 6e-4 for attention. These roundings to fp16 occur in the phases:
     copy_pages, embed, sample   none: results are exact
     qkv, head                   one: the normalised row
     attend                      two: the attention weights and the output; the reference's q are rounded as well
     settle                      none
     out, down                   none: their inputs are fp16 already (but dense f32 weights are fp16 on a GPU)
     route                       none: the choice is exact where the scores are apart, weights are within 1e-5
     expert_up, expert_down      as gate_up: judged together, by what they add to the residual
     gate_up                     three: the normalised row as input of gate and of up, and the product of both */
typedef struct phase_rule { /* of models whose norms are folded into products; the others: see written_by */
    uint32_t few, many; /* buffers (SEEN bits) written in passes of few and of many rows; SUMS: sums of the next norm */
    double off_max;
} phase_rule;

#define SUMS (1u << 31)
/* clang-format off */
#define RULE_copy_pages { 0, 0, 0 }
#define RULE_embed { SEEN(residual) | SEEN(x) | SEEN(sums0), SEEN(residual) | SEEN(x) | SEEN(sums0), 0 }
#define RULE_qkv { SEEN(qkv), SEEN(qkv) | SEEN(x), 5e-4 }
#define RULE_attend { SEEN(attended), SEEN(attended) | SEEN(qkv), 6e-4 } /* many: queries may be rotated in place */
#define RULE_out { SEEN(residual) | SEEN(x) | SUMS, SEEN(residual), 1e-5 }
#define RULE_gate_up { SEEN(h), SEEN(h) | SEEN(x), 1.2e-3 }
#define RULE_down RULE_out
#define RULE_route { 0, 0, 1e-5 }
#define RULE_expert_up { 0, 0, 0 }
#define RULE_expert_down { SEEN(residual) | SEEN(x) | SUMS, SEEN(residual), 1.2e-3 }
#define RULE_settle { 0, 0, 1e-5 }
#define RULE_steer { 0, 0, 0 } /* no pass here has control vectors */
#define RULE_head { SEEN(head_x) | SEEN(logits), SEEN(head_x) | SEEN(logits), 5e-4 }
#define RULE_sample { 0, 0, 0 }
/* clang-format on */

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
static uint32_t compared[EXL2__PHASE_COUNT]; /* rows */

/* Every head size, 1 to 16 query heads per K/V head, every bit width alone and mixed, dense matrices of every type, and
   matrices v and up with input permutations that differ from those of q and gate. */
static const synth_shape shapes[] = {
    /* hidden inter layers heads kv dim vocab mix  dense  bias  tied  one order */
    { 128, 352, 2, 4, 4, 64, 300, 0, false, false, false, true },
    { 160, 224, 1, 8, 4, 80, 333, 1, false, true, true, true },
    { 96, 64, 3, 6, 2, 96, 130, 2, false, false, true, true },
    { 256, 160, 1, 8, 2, 128, 500, 3, false, true, false, true },
    { 320, 32, 1, 5, 1, 256, 333, 4, false, false, false, true },
    { 352, 320, 2, 12, 2, 64, 90, 5, false, true, true, false },
    { 192, 192, 1, 14, 2, 128, 1000, 9, false, true, true, true },
    { 512, 608, 1, 8, 1, 64, 5000, 16, false, false, false, true },
    { 64, 96, 1, 9, 1, 96, 77, 25, false, false, false, true },
    { 96, 128, 1, 10, 1, 80, 64, 31, false, true, false, true },
    { 224, 96, 1, 11, 1, 64, 45, 36, false, false, true, true },
    { 160, 288, 1, 12, 1, 128, 99, 43, false, true, false, true },
    { 128, 128, 1, 13, 1, 64, 301, 48, false, false, false, false },
    { 96, 160, 2, 14, 1, 96, 31, 57, false, false, true, true },
    { 288, 64, 1, 15, 1, 64, 513, 61, false, true, false, true },
    { 416, 192, 1, 16, 1, 128, 1025, 77, false, false, false, true },
    { 64, 64, 1, 16, 1, 256, 100, 100, false, true, false, true },
    { 576, 1536, 1, 9, 3, 64, 2048, 15, false, false, true, true }, /* as SmolLM2-135M */
    { 160, 224, 2, 8, 4, 80, 333, 1, false, true, true, false },    /* v and up have their own permutations */
    { 352, 96, 1, 12, 2, 64, 90, 31, false, false, false, false },
    { 70, 51, 2, 4, 2, 64, 45, 0, true, true, true, true },         /* dense: nothing is a multiple of anything */
    { 33, 65, 1, 3, 1, 80, 33, 1, true, false, false, true },
    { 64, 96, 1, 2, 1, 256, 64, 2, true, true, true, true },
    { 96, 160, 2, 4, 2, 64, 77, SYNTH_AFFINE + 1, false, true, false, true },  /* affine: GPTQ, AWQ */
    { 128, 352, 1, 8, 2, 64, 64, SYNTH_AFFINE + 6, false, false, false, true },
    { 160, 224, 2, 4, 1, 80, 99, SYNTH_AFFINE + 3, false, true, false, false }, /* parts with orders of their own */
    /* other families than Llama */
    { 128, 352, 2, 4, 4, 64, 300, 0, false, true, false, true },    /* LayerNorm, GELU by tanh, no gate (StarCoder2) */
    { 192, 160, 2, 6, 2, 64, 333, 1, false, false, true, true },    /* norms around blocks, all factors (Gemma 2) */
    { 160, 224, 2, 4, 2, 80, 130, 2, false, false, false, false },  /* norms after blocks only (OLMo 2) */
    { 256, 192, 2, 4, 2, 128, 500, 3, false, false, true, true },   /* parallel, in two orders (Cohere) */
    { 160, 96, 2, 4, 2, 96, 500, 1, false, true, false, false },    /* the same, parts with orders of their own */
    { 256, 224, 2, 4, 2, 64, 300, 2, false, true, false, true },    /* the same, heads as wide as the residual */
    { 96, 320, 2, 4, 4, 64, 90, 4, false, true, false, true },      /* parallel, GELU, no gate, head bias (Phi) */
    { 70, 51, 2, 4, 1, 64, 45, 0, true, true, true, true },         /* dense, LayerNorm, learned positions (GPT-2) */
    { 160, 352, 2, 5, 1, 64, 333, 9, false, false, false, true },   /* relu squared, no gate (Arcee) */
    { 128, 160, 2, 4, 2, 64, 99, 16, false, false, false, true },   /* factors (Granite), GELU */
    { 96, 192, 2, 6, 2, 64, 99, 1, false, true, false, true },      /* the same, SiLU */
    { 33, 65, 2, 3, 1, 80, 33, 1, true, false, false, true },       /* dense, parallel */
    { 96, 64, 2, 6, 2, 96, 130, 2, true, true, false, true },       /* dense, LayerNorm around blocks, relu squared */
    { 128, 96, 2, 4, 2, 64, 130, SYNTH_AFFINE + 2, false, true, false, true }, /* affine, norms around blocks */
    { 160, 224, 2, 4, 2, 64, 90, 5, false, true, false, true },     /* clamped SwiGLU (GPT-OSS) */
    /* experts; inter: of the shared expert */
    { 128, 0, 2, 4, 4, 64, 300, 0, false, false, false, true },     /* 2 of 4 (Mixtral) */
    { 160, 96, 2, 4, 2, 64, 130, 1, false, false, false, true },    /* 4 of 60, shared one, switch (Qwen2-MoE) */
    { 192, 0, 1, 4, 2, 64, 90, 9, false, false, false, true },      /* 8 of 128, orders apart (Qwen3-MoE) */
    { 128, 64, 1, 4, 2, 64, 99, 31, false, false, false, true },    /* 3 groups of 6, one for all rows (GLM-4.5) */
    { 96, 0, 1, 4, 2, 64, 64, 16, false, true, false, true },       /* all of 5, clamped, biases (GPT-OSS) */
    { 96, 0, 2, 4, 2, 64, 64, 4, false, false, false, true },       /* 1 of 64, LayerNorm, factor of the residual */
    { 128, 0, 1, 4, 2, 64, 77, SYNTH_AFFINE + 1, false, false, false, true }, /* 2 of 5, affine */
    { 70, 0, 1, 4, 2, 64, 45, 0, true, false, false, true },        /* 2 of 5, dense */
    { 128, 96, 2, 4, 2, 64, 300, 2, false, true, false, true },     /* LayerNorm, SiLU with a gate (StableLM) */
};

#define FAMILIES 24u /* the last shapes */
static const synth_family families[FAMILIES] = {
    { .act = EXL2__ACT_GELU_TANH, .ungated = true, .layer_norm = true },
    { .act = EXL2__ACT_GELU_TANH, .post_norms = true, .embed_scale = 13.85f, .residual_scale = 0.7f,
      .logit_scale = 0.5f, .final_softcap = 2 },
    { .act = EXL2__ACT_SILU, .post_norms = true, .no_pre_norms = true },
    { .act = EXL2__ACT_SILU, .parallel = true, .layer_norm = true, .logit_scale = 0.0625f },
    { .act = EXL2__ACT_SILU, .parallel = true, .layer_norm = true, .residual_scale = 1.5f },
    { .act = EXL2__ACT_SILU, .parallel = true, .layer_norm = true, .residual_scale = 1.5f },
    { .act = EXL2__ACT_GELU, .parallel = true, .layer_norm = true, .ungated = true },
    { .act = EXL2__ACT_GELU_TANH, .layer_norm = true, .ungated = true, .positions = true, .embed_scale = 3 },
    { .act = EXL2__ACT_RELU_SQUARED, .ungated = true },
    { .act = EXL2__ACT_GELU, .embed_scale = 12, .residual_scale = 0.22f, .logit_scale = 0.125f },
    { .act = EXL2__ACT_SILU, .embed_scale = 12, .residual_scale = 0.22f, .logit_scale = 0.125f },
    { .act = EXL2__ACT_SILU, .parallel = true },
    { .act = EXL2__ACT_RELU_SQUARED, .post_norms = true, .layer_norm = true, .final_softcap = 30 },
    { .act = EXL2__ACT_GELU_TANH, .post_norms = true },
    { .act = EXL2__ACT_CLAMPED },
    { .act = EXL2__ACT_SILU, .experts = { .count = 4, .active = 2, .inter = 96, .renormalized = true, .groups = 1,
                                          .groups_active = 1, .scale = 1 } },
    { .act = EXL2__ACT_SILU, .experts = { .count = 60, .active = 4, .inter = 64, .shared_inter = 96,
                                          .shared_switch = true, .groups = 1, .groups_active = 1, .scale = 1 } },
    { .act = EXL2__ACT_SILU, .apart = true,
      .experts = { .count = 128, .active = 8, .inter = 64, .renormalized = true, .groups = 1, .groups_active = 1,
                   .scale = 1 } },
    { .act = EXL2__ACT_SILU, .choice_bias = 2,
      .experts = { .count = 60, .active = 5, .inter = 32, .shared_inter = 64, .sigmoid = true, .renormalized = true,
                   .groups = 6, .groups_active = 3, .scale = 2.5f } },
    { .act = EXL2__ACT_CLAMPED, .experts = { .count = 5, .active = 5, .inter = 64, .renormalized = true, .groups = 1,
                                             .groups_active = 1, .scale = 1 } },
    { .act = EXL2__ACT_GELU, .layer_norm = true, .residual_scale = 0.5f,
      .experts = { .count = 64, .active = 1, .inter = 64, .groups = 1, .groups_active = 1, .scale = 1 } },
    { .act = EXL2__ACT_SILU, .experts = { .count = 5, .active = 2, .inter = 64, .renormalized = true, .groups = 1,
                                          .groups_active = 1, .scale = 1 } },
    { .act = EXL2__ACT_SILU, .experts = { .count = 5, .active = 2, .inter = 45, .renormalized = true, .groups = 1,
                                          .groups_active = 1, .scale = 1 } },
    { .act = EXL2__ACT_SILU, .layer_norm = true },
};

/* ---- comparisons ---- */

/* Dense weights are rounded to fp16. The zeros of affine shapes lie anywhere between 0 and 2^bits, so that weights have
   a mean, and roundings of x do not average out over the columns. */
#define OFF_MAX_MORE 3e-4

typedef struct distance {
    double error, size;
} distance;

static void measure(distance *d, double got, double wanted)
{
    d->error += got == got ? (got - wanted) * (got - wanted) : INFINITY;
    d->size += wanted * wanted;
}

static void judge(const trio *t, exl2__phase phase, const char *what, uint32_t row, distance d, double bound)
{
    double off = sqrt(d.error / d.size);
    bound = phase == EXL2__PHASE_embed && synth_now != &synth_llama ? 1e-6 : bound; /* factors and sums are rounded */
    bool more = (t->shape->dense || t->shape->mix >= SYNTH_AFFINE) && rules[phase].off_max > 0;
    if (!CHECK(off <= bound + (more ? OFF_MAX_MORE : 0))) {
        printf("    %s %s: off by %.1e, row %u of %u; shape %u, %u bytes of shared memory\n", phase_names[phase], what,
               off, row, t->made->step.row_count, (uint32_t)(t->shape - shapes), gpu.shared_bytes);
    }
}

/* Judges one row of a pass, and adds its distance to *all. */
static void judge_row(const trio *t, exl2__phase phase, const char *what, uint32_t row, distance d, distance *all)
{
    judge(t, phase, what, row, d, 2 * rules[phase].off_max);
    all->error += d.error;
    all->size += d.size;
    compared[phase]++;
}

static void judge_all(const trio *t, exl2__phase phase, const char *what, uint32_t rows, distance all)
{
    double off = sqrt(all.error / all.size);
    judge(t, phase, what, rows, all, rules[phase].off_max);
    if (!t->shape->dense) {
        worst[phase] = off <= worst[phase] ? worst[phase] : off;
    }
}

static void check_floats(const trio *t, exl2__phase phase, watch got, const double *wanted, size_t stride,
                         uint32_t rows, uint32_t count)
{
    distance all = { 0, 0 };
    for (uint32_t row = 0; row < rows; row++) {
        distance d = { 0, 0 };
        for (uint32_t i = 0; i < count; i++) {
            measure(&d, (double)float_at(t, got, row, i), wanted[row * stride + i]);
        }
        judge_row(t, phase, "row", row, d, &all);
    }
    judge_all(t, phase, "rows", rows, all);
}

/* Compares halves, which lie permuted as the matrix that reads them needs. */
static void check_halves(const trio *t, exl2__phase phase, uint32_t truth, watch got, cpu_buffer wanted,
                         const exl2__matrix *reader, uint32_t count)
{
    const cpu_double_view *v = &t->view[truth];
    uint16_t *order = order_of(t, got, reader, count);
    distance all = { 0, 0 };
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        distance d = { 0, 0 };
        for (uint32_t i = 0; i < count; i++) {
            measure(&d, half_at(t, got, row, order[i]), v->buffer[wanted][row * v->stride[wanted] + i]);
        }
        judge_row(t, phase, "row", row, d, &all);
    }
    judge_all(t, phase, "rows", t->made->step.row_count, all);
    free(order);
}

static void check_qkv(const trio *t, uint32_t truth)
{
    const cpu_double_view *v = &t->view[truth];
    static const char *const names[3] = { "q", "k", "v" };
    const synth_shape *s = t->shape;
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    distance all[3] = { { 0, 0 }, { 0, 0 }, { 0, 0 } };
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        distance d[3] = { { 0, 0 }, { 0, 0 }, { 0, 0 } };
        const double *query = v->buffer[CPU_BUFFER_query] + row * v->stride[CPU_BUFFER_query];
        const double *key = v->key + row * v->key_stride, *value = v->value + row * v->key_stride;
        for (uint32_t i = 0; i < q; i++) {
            measure(&d[0], rotated(t, row, i) * (double)t->tested.plan.shape.attn_scale, query[i]);
        }
        for (uint32_t i = 0; i < kv; i++) {
            measure(&d[1], rotated(t, row, q + i), key[i]);
            measure(&d[2], (double)float_at(t, WATCH_qkv, row, q + kv + i), value[i]);
        }
        for (uint32_t i = 0; i < 3; i++) {
            judge_row(t, EXL2__PHASE_qkv, names[i], row, d[i], &all[i]);
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        judge_all(t, EXL2__PHASE_qkv, names[i], t->made->step.row_count, all[i]);
    }
}

/* Follows the copies in order to know which page's content each page must have; then compares the pages of all
   layers. */
static void check_copies(trio *t)
{
    uint32_t from[PAGES], wrong = 0;
    size_t bytes = t->page_elements * sizeof *t->pages, all = t->shape->layers * PAGES * bytes;
    uint8_t *got = (uint8_t *)synth_alloc(all), *before = (uint8_t *)t->pages;
    for (uint32_t i = 0; i < PAGES; i++) {
        from[i] = i;
    }
    for (uint32_t i = 0; i < EXL2__COUNT(made_copies); i++) {
        from[made_copies[i].to] = from[made_copies[i].from];
    }
    gpu_read(device_of(t)->b.pages, got, all);
    for (size_t i = 0; i < t->shape->layers * PAGES; i++) {
        wrong += memcmp(got + i * bytes, before + (i - i % PAGES + from[i % PAGES]) * bytes, bytes) != 0;
    }
    CHECK_INT(wrong, 0);
    compared[EXL2__PHASE_copy_pages] += PAGES;
    free(got);
}

static void check_results(trio *t, uint32_t truth)
{
    exl2_alt alts[2][8][EXL2_ALTS_MAX];
    exl2__logit_result results[2][8] = { { { 0 } } };
    synth_model *models[2] = { &t->tested, &t->truth[truth] };
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < t->logit_count; i++) {
            results[side][i].alts = alts[side][i];
        }
        synth_need(models[side], models[side]->b->collect(models[side]->d, t->logit0, t->logit_count, true,
                                                          results[side]));
    }
    for (uint32_t i = 0; i < t->logit_count; i++) {
        const exl2__logit_result *got = &results[0][i], *wanted = &results[1][i];
        CHECK_INT(got->token, wanted->token);
        CHECK(got->logprob == wanted->logprob && got->logsumexp == wanted->logsumexp);
        CHECK(got->alt_count == 3 && memcmp(got->alts, wanted->alts, 3 * sizeof(exl2_alt)) == 0);
        compared[EXL2__PHASE_sample]++;
    }
}

/* How far the worst chosen score is above the best of the others; of softmax scores their logits are compared. */
static double route_gap(const exl2__experts *e, const double *logits, const uint32_t *choice)
{
    double low = INFINITY, high = -INFINITY;
    for (uint32_t i = 0; i < e->count; i++) {
        bool chosen = false;
        for (uint32_t k = 0; k < e->active; k++) {
            chosen = chosen || choice[k] == i;
        }
        low = chosen ? fmin(low, logits[i]) : low;
        high = chosen ? high : fmax(high, logits[i]);
    }
    return low - high;
}

/* Compares the choice and the weights of each row; then both references get those of the GPU. */
static void check_route(trio *t, uint32_t truth)
{
    const exl2__experts *e = &t->tested.plan.shape.experts;
    uint32_t slots = t->made->step.row_count * e->active, wrong = 0;
    uint32_t *choice = (uint32_t *)synth_alloc(slots * sizeof *choice);
    float *weight = (float *)synth_alloc(slots * sizeof *weight);
    cpu_double_routed r = truth == FACTORED ? cpu_double_look_routed(t->truth[truth].d)
                                            : cpu_rounded_look_routed(t->truth[truth].d);
    distance all = { 0, 0 };
    gpu_read(device_of(t)->b.routed.choice, choice, slots * sizeof *choice);
    gpu_read(device_of(t)->b.routed.weight, weight, slots * sizeof *weight);
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        const uint32_t *got = choice + row * e->active, *wanted = r.choice + row * e->active;
        bool same = memcmp(got, wanted, e->active * sizeof *got) == 0;
        /* Biased scores and sums of groups are not compared with logits: there the choice must be the same. */
        bool clear = e->sigmoid || route_gap(e, r.logits + row * r.stride, wanted) > 1e-4;
        distance d = { 0, 0 };
        wrong += !same && clear;
        for (uint32_t i = 0; same && i < e->active; i++) {
            measure(&d, (double)weight[row * e->active + i], r.weight[row * e->active + i]);
        }
        if (same) {
            judge_row(t, EXL2__PHASE_route, "weights", row, d, &all);
        }
    }
    CHECK_INT(wrong, 0);
    judge_all(t, EXL2__PHASE_route, "weights", t->made->step.row_count, all);
    if (truth == FACTORED) {
        cpu_double_choose(t->truth[truth].d, choice, weight);
    } else {
        cpu_rounded_choose(t->truth[truth].d, choice, weight);
    }
    free(choice);
    free(weight);
}

/* Keeps the GPU's residual, which expert_down is going to change. */
static void keep_residual(trio *t)
{
    const watched *w = &t->watched[WATCH_residual];
    free(t->kept);
    t->kept = (uint8_t *)synth_alloc((size_t)w->rows * w->pitch);
    memcpy(t->kept, w->now, (size_t)w->rows * w->pitch);
}

/* Compares what the experts have added to the residual. */
static void check_experts(const trio *t, uint32_t truth)
{
    const cpu_double_view *v = &t->view[truth];
    distance all = { 0, 0 };
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        const float *kept = (const float *)(const void *)(t->kept + (size_t)row * t->watched[WATCH_residual].pitch);
        distance d = { 0, 0 };
        for (uint32_t i = 0; i < t->shape->hidden; i++) {
            double before = (double)kept[i];
            measure(&d, (double)float_at(t, WATCH_residual, row, i) - before,
                    v->buffer[CPU_BUFFER_residual][row * v->stride[CPU_BUFFER_residual] + i] - before);
        }
        judge_row(t, EXL2__PHASE_expert_down, "row", row, d, &all);
    }
    judge_all(t, EXL2__PHASE_expert_down, "rows", t->made->step.row_count, all);
}

/* ---- a phase on both sides ---- */

static void level(const trio *t, exl2__phase phase, uint32_t truth, uint32_t layer)
{
    const exl2__layer *l = &t->tested.layers[layer];
    const synth_shape *s = t->shape;
    switch (phase) {
    case EXL2__PHASE_out:
        level_halves(t, truth, WATCH_attended, CPU_BUFFER_query, l->matrix[EXL2__ROLE_OUT], s->heads * s->head_dim);
        level_residual(t, truth);
        break;
    case EXL2__PHASE_down:
        level_halves(t, truth, WATCH_h, CPU_BUFFER_gate, l->matrix[EXL2__ROLE_DOWN], s->inter);
        level_residual(t, truth);
        break;
    case EXL2__PHASE_qkv:
    case EXL2__PHASE_gate_up:
    case EXL2__PHASE_route:
    case EXL2__PHASE_expert_down:
    case EXL2__PHASE_head: level_residual(t, truth); break;
    case EXL2__PHASE_attend: level_attention(t, truth, layer); break;
    case EXL2__PHASE_settle:
        level_branch(t, truth);
        level_residual(t, truth);
        break;
    case EXL2__PHASE_sample: level_logits(t, truth); break;
    default: break;
    }
}

static void compare(trio *t, exl2__phase phase, uint32_t truth, uint32_t layer)
{
    const exl2__layer *l = &t->tested.layers[layer];
    const synth_shape *s = t->shape;
    const cpu_double_view *v = &t->view[truth];
    uint32_t rows = t->made->step.row_count;
    bool adds = phase == EXL2__PHASE_out || phase == EXL2__PHASE_down, kept = adds && synth_now->post_norms;
    switch (phase) {
    case EXL2__PHASE_copy_pages: check_copies(t); break;
    case EXL2__PHASE_embed:
    case EXL2__PHASE_out:
    case EXL2__PHASE_down:
    case EXL2__PHASE_settle:
        check_floats(t, phase, kept ? WATCH_branch : WATCH_residual, kept ? v->branch : v->buffer[CPU_BUFFER_residual],
                     v->stride[CPU_BUFFER_residual], rows, s->hidden);
        break;
    case EXL2__PHASE_qkv: check_qkv(t, truth); break;
    case EXL2__PHASE_attend:
        check_halves(t, phase, truth, WATCH_attended, CPU_BUFFER_query, l->matrix[EXL2__ROLE_OUT],
                     s->heads * s->head_dim);
        break;
    case EXL2__PHASE_gate_up:
        check_halves(t, phase, truth, WATCH_h, CPU_BUFFER_gate, l->matrix[EXL2__ROLE_DOWN], s->inter);
        break;
    case EXL2__PHASE_head:
        check_floats(t, phase, WATCH_logits, v->buffer[CPU_BUFFER_logits], v->stride[CPU_BUFFER_logits],
                     t->logit_count, s->vocab);
        break;
    case EXL2__PHASE_sample: check_results(t, truth); break;
    case EXL2__PHASE_route: check_route(t, truth); break;
    case EXL2__PHASE_expert_down: check_experts(t, truth); break;
    case EXL2__PHASE_expert_up:
    case EXL2__PHASE_steer:
    case EXL2__PHASE_COUNT: break;
    }
}

/* By wgmma, the halves of a row of a buffer that has tiles after the phase; 0: it has rows. Attention's results become
   tiles in h, or in x2 where h is in use. */
static uint32_t tiled_by(const trio *t, exl2__phase phase, watch buffer)
{
    const exl2__shape *shape = &device_of(t)->plan->shape;
    const synth_shape *s = t->shape;
    bool out = phase == EXL2__PHASE_out, embed = phase == EXL2__PHASE_embed && exl2__cuda_folds(shape);
    switch (buffer) {
    case WATCH_x: return embed ? 0 : s->hidden;
    case WATCH_x2: return out ? s->heads * s->head_dim : s->hidden;
    case WATCH_h: return out && !shape->parallel ? s->heads * s->head_dim : s->inter;
    default: return 0;
    }
}

/* In a pass of few rows, the buffers that the phase writes as tiles for the next product. */
static uint32_t few_tiles(const trio *t, exl2__phase phase, uint32_t layer)
{
    const exl2__cuda_model *m = device_of(t);
    bool next = phase == EXL2__PHASE_out || (phase == EXL2__PHASE_down && layer + 1 < m->plan->shape.layers);
    uint32_t set = next ? SEEN(x) : phase == EXL2__PHASE_gate_up ? SEEN(h)
                 : phase == EXL2__PHASE_attend ? SEEN(attended) : 0;
    return exl2__cuda_tile_rows(m) > 0 ? set : 0;
}

/* The buffers that a phase writes. Where norms are not folded into products, the kernel `settle` writes the inputs of
   the next products after the embedding, and after each block or its norm. */
static uint32_t written_by(const trio *t, exl2__phase phase, exl2__phase before, uint32_t layer)
{
    const exl2__cuda_model *m = device_of(t);
    const exl2__shape *s = &m->plan->shape;
    exl2__phase block = phase == EXL2__PHASE_settle ? before : phase;
    bool experts = s->experts.count > 0, ends = block == EXL2__PHASE_expert_down || block == EXL2__PHASE_down;
    bool adds = block == EXL2__PHASE_out || ends, keeps = s->post_norms && block == phase;
    bool last = ends && layer + 1 == s->layers && (!m->pass.decodes || m->pass.by_gemm);
    uint32_t set, inputs = SEEN(x) | (s->parallel ? SEEN(x2) : 0);
    uint32_t tiles = !m->pass.by_wg || phase != EXL2__PHASE_out ? 0 : s->parallel ? SEEN(x2) : SEEN(h);
    if (experts && (block == EXL2__PHASE_down || (block == EXL2__PHASE_out && !exl2__cuda_folds(s)))) {
        return SEEN(residual); /* the router and expert_down read it */
    }
    if (exl2__cuda_folds(s) || (!adds && phase != EXL2__PHASE_embed)) {
        set = m->pass.by_gemm ? rules[phase].many : rules[phase].few;
        return (exl2__cuda_folds(s) ? set : set & ~SEEN(x)) | tiles;
    }
    if (phase == EXL2__PHASE_embed) {
        return SEEN(residual) | SEEN(sums0) | inputs;
    }
    bool settles = !last && !(s->parallel && block == EXL2__PHASE_out);
    return tiles | (keeps ? SEEN(branch) : SEEN(residual) | (settles ? inputs : 0));
}

static void check_phase(trio *t, exl2__phase phase, exl2__phase before, uint32_t layer)
{
    const exl2__cuda_model *m = device_of(t);
    bool inside = phase >= EXL2__PHASE_qkv && phase <= EXL2__PHASE_steer;
    bool adds = phase == EXL2__PHASE_out || phase == EXL2__PHASE_down || phase == EXL2__PHASE_settle
                || phase == EXL2__PHASE_expert_down;
    uint32_t truth = m->pass.by_gemm && phase != EXL2__PHASE_head ? ROUNDED : FACTORED;
    uint32_t set = written_by(t, phase, before, layer);
    if (set & SUMS) {
        set = (set & ~SUMS) | 1u << (WATCH_sums0 + (m->pass.norm + 1) % EXL2__CUDA_SUMS);
    }
    if (phase != EXL2__PHASE_attend) {
        level(t, phase, truth, layer);
    }
    /* Which buffers have tiles from here on. */
    uint32_t few = few_tiles(t, phase, layer);
    for (uint32_t i = 0; i < WATCH_COUNT; i++) {
        const synth_shape *s = t->shape;
        uint32_t halves = i == WATCH_h ? s->inter : i == WATCH_attended ? s->heads * s->head_dim : s->hidden;
        t->watched[i].tiled = m->pass.by_wg ? tiled_by(t, phase, (watch)i) : (few >> i & 1) * halves;
    }
    bool attends = phase == EXL2__PHASE_attend;
    watched *qkv = &t->watched[WATCH_qkv];
    watch_poison(t, adds ? set & ~SEEN(residual) : attends ? set & ~SEEN(qkv) : set);
    size_t bytes = attends ? (size_t)qkv->rows * qkv->pitch : 0;
    uint8_t *inputs = (uint8_t *)synth_alloc(bytes + 1);
    memcpy(inputs, qkv->now, bytes);
    if (phase == EXL2__PHASE_expert_down) {
        keep_residual(t);
    }
    synth_phase_after(&t->tested, phase, before, inside ? &t->tested.layers[layer] : NULL, t->logit0, t->logit_count,
                      phase == EXL2__PHASE_head); /* unit by unit */
    watch_check(t, set, phase >= EXL2__PHASE_head ? t->logit_count : t->made->step.row_count);
    if (attends) { /* the reference reads q as it was, and the pages that the GPU has just written */
        memcpy(qkv->now, inputs, bytes);
        pages_check(t, layer);
        level(t, phase, truth, layer);
    }
    free(inputs);
    if (phase != EXL2__PHASE_copy_pages) {
        synth_phase_after(&t->truth[truth], phase, before, inside ? &t->truth[truth].layers[layer] : NULL, t->logit0,
                          t->logit_count, 0);
    }
    compare(t, phase, truth, layer);
}

/* ---- the loop ---- */

static void check_pass(trio *t, made_step *made)
{
    t->made = made;
    t->logit0 = t->logit_count = 0;
    pages_fill(t);
    synth_need(&t->truth[FACTORED], t->truth[FACTORED].b->begin(t->truth[FACTORED].d, &made->step));
    synth_need(&t->truth[ROUNDED], t->truth[ROUNDED].b->begin(t->truth[ROUNDED].d, &made->step));
    synth_need(&t->tested, t->tested.b->begin(t->tested.d, &made->step));
    if (made->step.copy_count) {
        check_phase(t, EXL2__PHASE_copy_pages, EXL2__PHASE_COUNT, 0);
        pages_fill(t); /* the copies have overwritten pages of the contexts */
    }
    check_phase(t, EXL2__PHASE_embed, EXL2__PHASE_COUNT, 0);
    for (uint32_t layer = 0; layer < t->shape->layers; layer++) {
        const exl2__layer *l = &t->tested.layers[layer];
        for (uint32_t i = 0; i < l->phase_count; i++) {
            check_phase(t, l->phases[i], i ? l->phases[i - 1] : EXL2__PHASE_COUNT, layer);
        }
    }
    for (t->logit0 = 0; t->logit0 < made->step.logit_count; t->logit0 += t->logit_count) {
        t->logit_count = exl2__min32(made->step.logit_count - t->logit0, t->tested.plan.logit_rows_max);
        for (uint32_t phase = EXL2__PHASE_head; phase < EXL2__PHASE_COUNT; phase++) {
            check_phase(t, (exl2__phase)phase, EXL2__PHASE_COUNT, 0);
        }
    }
}

/* Checks every `every`th pass on one shape. */
static void check_shape(uint32_t index, uint32_t every)
{
    static made_step made;
    trio t;
    uint32_t plain = (uint32_t)EXL2__COUNT(shapes) - FAMILIES;
    synth_now = index < plain ? &synth_llama : &families[index - plain];
    trio_open(&t, &shapes[index], 1000 + index, spread_parallel());
    for (uint32_t i = 0; i < EXL2__COUNT(passes); i += every) {
        make_step(&made, &shapes[index], &passes[i], EXL2__ROWS_PROMPT);
        check_pass(&t, &made);
        if (made.step.row_count <= 20) {
            make_step(&made, &shapes[index], &passes[i], EXL2__ROWS_SAMPLED);
            check_pass(&t, &made);
        }
    }
    trio_close(&t);
}

int main(int argc, char **argv)
{
    uint32_t first = argc > 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    uint32_t end = argc > 2 ? first + (uint32_t)strtoul(argv[2], NULL, 10) : (uint32_t)EXL2__COUNT(shapes);
    uint32_t every = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1;
    synth_sequences = 64; /* more than 16 sampled rows have kernels of their own */
    gpu_open(NULL, 0);
    printf("%s, %u SMs, %u bytes of shared memory a block\n", gpu.info.name, gpu.sm_count, gpu.shared_bytes);
    for (uint32_t i = first; i < end && i < EXL2__COUNT(shapes); i++) {
        check_shape(i, every);
    }
    gpu_close();
    gpu_open(NULL, 48u << 10); /* the shared memory of a context that is shared with graphics */
    for (uint32_t i = first; i < end && i < EXL2__COUNT(shapes); i += 5) {
        check_shape(i, every);
    }
    gpu_close();
    for (uint32_t phase = 0; phase < EXL2__PHASE_COUNT; phase++) {
        printf("%-10s %7u rows, off by %.1e of %.1e\n", phase_names[phase], compared[phase], worst[phase],
               rules[phase].off_max);
        bool rare = phase >= EXL2__PHASE_route && phase <= EXL2__PHASE_settle
                    && (first > 0 || end < EXL2__COUNT(shapes));
        rare = rare || phase == EXL2__PHASE_steer;
        CHECK(compared[phase] > 0 || phase == EXL2__PHASE_expert_up || rare); /* expert_down judges expert_up */
    }
    return check_done();
}
