/* cpu_experts.c: the choice of experts and their weights, compared with a reference in double that sorts all experts;
   ties, groups, logits that are not finite; where the matrices of experts lie in a file. (engine/experts.c and
   engine/golden.c run whole models.) */
#include "private/arch_rows.h"
#include "private/cpu_experts.h"
#include "private/units.h"
#include "../check.h"

#define MOST 256u

static uint64_t random_state = 7;

static uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

/* in [-4, 4], in steps of 1/64 or, with `ties`, of 1 */
static float random_logit(bool ties)
{
    return ties ? (float)(int32_t)(random_bits() % 9) - 4 : (float)((int32_t)(random_bits() % 513) - 256) / 64;
}

/* ---- the reference ---- */

typedef struct ranked {
    double score;
    uint32_t index;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = (const ranked *)a, *y = (const ranked *)b;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : x->index < y->index ? -1 : 1;
}

static int by_index(const void *a, const void *b)
{
    const ranked *x = (const ranked *)a, *y = (const ranked *)b;
    return x->index < y->index ? -1 : 1;
}

/* Is the expert in one of the groups_active best groups? */
static bool in_best_group(const exl2__experts *e, const double *biased, uint32_t expert)
{
    ranked groups[MOST];
    uint32_t size = e->count / e->groups;
    for (uint32_t g = 0; g < e->groups; g++) {
        ranked members[MOST];
        for (uint32_t i = 0; i < size; i++) {
            members[i] = (ranked){ biased[g * size + i], i };
        }
        qsort(members, size, sizeof *members, by_rank);
        groups[g] = (ranked){ members[0].score + (size > 1 ? members[1].score : 0), g };
    }
    qsort(groups, e->groups, sizeof *groups, by_rank);
    for (uint32_t i = 0; i < e->groups_active; i++) {
        if (groups[i].index == expert / size) {
            return true;
        }
    }
    return false;
}

/* chosen [active]: the experts, ascending, and their weights. */
static void reference(const exl2__experts *e, const float *logits, const float *bias, ranked *chosen)
{
    double score[MOST], biased[MOST], all = 0, sum = 0;
    ranked order[MOST];
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        all += exp((double)logits[i]);
    }
    for (uint32_t i = 0; i < e->count; i++) {
        double exponential = exp((double)logits[i]);
        score[i] = e->sigmoid ? exponential / (1 + exponential) : exponential / all;
        biased[i] = score[i] + (bias ? (double)bias[i] : 0);
    }
    for (uint32_t i = 0; i < e->count; i++) {
        if (in_best_group(e, biased, i)) {
            order[n++] = (ranked){ biased[i], i };
        }
    }
    qsort(order, n, sizeof *order, by_rank);
    qsort(order, e->active, sizeof *order, by_index);
    for (uint32_t i = 0; i < e->active; i++) {
        sum += score[order[i].index];
    }
    for (uint32_t i = 0; i < e->active; i++) {
        double weight = score[order[i].index] / (e->renormalized ? sum : 1) * (double)e->scale;
        chosen[i] = (ranked){ weight, order[i].index };
    }
}

static void check_row(const exl2__experts *e, const float *logits, const float *bias)
{
    double score[MOST], biased[MOST];
    uint32_t choice[MOST];
    float weight[MOST];
    ranked wanted[MOST];
    reference(e, logits, bias, wanted);
    exl2__cpu_route_row(e, logits, bias, score, biased, choice, weight);
    for (uint32_t i = 0; i < e->active; i++) {
        CHECK_INT(choice[i], wanted[i].index);
        CHECK(fabs((double)weight[i] - wanted[i].score) <= 1e-6 * wanted[i].score);
    }
}

static void check_choices(void)
{
    static const uint32_t sizes[][4] = { /* count, active, groups, groups_active */
        { 8, 2, 1, 1 }, { 6, 6, 1, 1 }, { 5, 1, 1, 1 }, { 1, 1, 1, 1 }, { 128, 8, 1, 1 }, { 256, 8, 8, 4 },
        { 16, 4, 4, 1 }, { 12, 3, 4, 3 }, { 6, 2, 6, 2 }, { 60, 4, 1, 1 },
    };
    float logits[MOST], bias[MOST];
    for (uint32_t n = 0; n < 4000; n++) {
        const uint32_t *size = sizes[n % EXL2__COUNT(sizes)];
        exl2__experts e = { .count = size[0], .active = size[1], .groups = size[2], .groups_active = size[3] };
        uint32_t kind = random_bits();
        e.sigmoid = kind & 1;
        e.renormalized = kind >> 1 & 1;
        e.scale = kind >> 2 & 1 ? 2.5f : 1;
        for (uint32_t i = 0; i < e.count; i++) {
            logits[i] = random_logit(kind >> 3 & 1);
            bias[i] = random_logit(kind >> 4 & 1) / 8;
        }
        check_row(&e, logits, kind >> 5 & 1 ? bias : NULL);
    }
}

/* Of equal scores those of the lowest index, with equal weights. */
static void check_ties(void)
{
    exl2__experts e = { .count = 7, .active = 3, .groups = 1, .groups_active = 1, .scale = 1, .renormalized = true };
    float logits[7] = { 0.5f, 2, 2, 0.5f, 2, 2, 2 }, weight[3];
    double score[7], biased[7];
    uint32_t choice[3];
    exl2__cpu_route_row(&e, logits, NULL, score, biased, choice, weight);
    CHECK(choice[0] == 1 && choice[1] == 2 && choice[2] == 4);
    CHECK(weight[0] == weight[1] && weight[1] == weight[2] && fabs((double)weight[0] - 1.0 / 3) < 1e-7);
}

/* NaN and infinite logits: as many experts as ever, each once, and weights of NaN. */
static void check_not_finite(void)
{
    static const uint32_t bits[] = { 0x7FC00000u, 0x7F800000u, 0xFF800000u };
    for (uint32_t kind = 0; kind < 64; kind++) {
        exl2__experts e = { .count = 8, .active = 3, .groups = 4, .groups_active = kind & 1 ? 2 : 4, .scale = 1,
                            .sigmoid = kind >> 1 & 1, .renormalized = kind >> 2 & 1 };
        float logits[8] = { 0 }, weight[3];
        double score[8], biased[8];
        uint32_t choice[3];
        for (uint32_t i = 0; i < 8; i++) {
            bool bad = kind >= 56 || i == kind % 8;
            logits[i] = bad ? exl2__bits_float(bits[kind / 8 % 3]) : (float)i;
        }
        exl2__cpu_route_row(&e, logits, NULL, score, biased, choice, weight);
        CHECK(choice[0] < choice[1] && choice[1] < choice[2] && choice[2] < 8);
        for (uint32_t i = 0; i < 3; i++) {
            CHECK(exl2__float_is_nan(weight[i]));
        }
    }
}

/* ---- where matrices lie ---- */

static exl2__config model(const char *name, uint32_t experts, uint32_t shared)
{
    static exl2__config c;
    memset(&c, 0, sizeof c);
    exl2__arch_resolve(exl2__arch_find(name), &c.arch);
    c.hidden = 64;
    c.inter = 96;
    c.layers = 2;
    c.heads = c.kv_heads = 2;
    c.head_dim = 32;
    c.vocab = 320;
    c.experts = (exl2__experts){ .count = experts, .active = 1, .inter = 32, .shared_inter = shared };
    c.experts.shared_switch = shared && c.arch.names[EXL2__NAME_SHARED_SWITCH][0];
    c.sparse[0] = 2; /* the second layer */
    return c;
}

/* Unit `index` of the second layer: the key of a part, and where it is in the tensor of all experts. */
static void check_unit(const exl2__config *c, uint32_t index, uint32_t part, const char *key, const char *fused,
                       exl2__matrix_view view)
{
    exl2__unit u;
    exl2__unit_make(c, 1 + 4 + index, &u);
    CHECK_INT(u.layer, 1);
    CHECK(part < u.count);
    CHECK_TEXT(u.keys[part], key);
    CHECK_TEXT(u.fused[part], fused);
    const exl2__matrix_view *got = &u.source[part].view;
    if (fused[0] && !CHECK(got->first == view.first && got->run == view.run && got->step == view.step &&
                           got->transposed == view.transposed && got->stack == view.stack)) {
        printf("  %s: first %u run %u step %u stack %u\n", key, (unsigned)got->first, got->run, got->step, got->stack);
    }
}

static void check_units(void)
{
    const exl2__matrix_view none = { 0, 0, 0, false, 0, 0 };
    exl2__config c = model("Qwen2MoeForCausalLM", 5, 48);
    CHECK_INT(exl2__unit_count(&c, false), 1 + 4 + (3 + 2 + 10) + 1);
    check_unit(&c, 2, 0, "model.layers.1.mlp.gate", "", none);
    check_unit(&c, 2, 1, "model.layers.1.mlp.shared_expert_gate", "", none);
    check_unit(&c, 4, 0, "model.layers.1.mlp.shared_expert.gate_proj", "", none);
    check_unit(&c, 3, 0, "model.layers.1.mlp.shared_expert.down_proj", "", none);
    check_unit(&c, 5 + 2 * 3 + 1, 1, "model.layers.1.mlp.experts.3.up_proj", "model.layers.1.mlp.experts.gate_up_proj",
               (exl2__matrix_view){ 3 * 64 + 32, 32, 32, false, 3, 0 });
    check_unit(&c, 5 + 2 * 4, 0, "model.layers.1.mlp.experts.4.down_proj", "model.layers.1.mlp.experts.down_proj",
               (exl2__matrix_view){ 4 * 64, 64, 64, false, 4, 0 });
    c = model("DbrxForCausalLM", 4, 0);
    check_unit(&c, 3 + 3, 0, "model.layers.1.block_sparse_moe.experts.1.w1",
               "model.layers.1.block_sparse_moe.experts.w1", (exl2__matrix_view){ 32, 32, 32, false, 1, 0 });
    check_unit(&c, 3 + 2, 0, "model.layers.1.block_sparse_moe.experts.1.w2",
               "model.layers.1.block_sparse_moe.experts.w2", (exl2__matrix_view){ 0, 64, 64, true, 1, 0 });
    c = model("GptOssForCausalLM", 4, 0);
    check_unit(&c, 3 + 5, 1, "model.layers.1.mlp.experts.2.up_proj", "model.layers.1.mlp.experts.gate_up_proj",
               (exl2__matrix_view){ 1, 1, 2, true, 2, 0 });
    c = model("GraniteMoeSharedForCausalLM", 4, 48);
    check_unit(&c, 4, 1, "model.layers.1.shared_mlp.up_proj", "model.layers.1.shared_mlp.input_linear",
               (exl2__matrix_view){ 48, 48, 48, false, 0, 0 });
    check_unit(&c, 6, 1, "model.layers.1.block_sparse_moe.experts.0.up_proj",
               "model.layers.1.block_sparse_moe.input_linear", (exl2__matrix_view){ 32, 32, 32, false, 0, 0 });
}

int main(void)
{
    check_choices();
    check_ties();
    check_not_finite();
    check_units();
    return check_done();
}
