/* mixed.c: models whose blocks mix dense and quantized matrices, models of GPTQ whose files do not say their version,
   and of auto-round, compared with a forward pass in double. On a GPU some matrices are dequantized when they are
   loaded; exl2_model_info says how many.
   takes: [exl3]: only models with matrices of EXL3.
   gives: exit code 0 or 1. */
#include "rig.h"

#include "../mixed_model.h"

#define GPTQ(more) ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32" more "}"
#define DYNAMIC ",\"dynamic\":{\"-:.*down_proj\":{}}"
#define AWQ ",\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemm\"," \
            "\"modules_to_not_convert\":[\"v_proj\"]}"

/* Scores of these random models differ by a few thousandths from those in double; a mistake in one matrix moves some by
   more than 0.2 (check_sensitive). On a GPU the inputs of products are rounded to fp16. */
#define BOUND (RIG_BACKEND == EXL2_BACKEND_CUDA ? 0.06 : 0.02)

static struct { exl2_log_id id; uint32_t count; char text[256]; } warned;

static void warn(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user;
    (void)code;
    if (level == EXL2_LOG_WARN && id != EXL2_LOG_ID_CPU_FALLBACK) {
        warned.id = id;
        warned.count++;
        snprintf(warned.text, sizeof warned.text, "%s", text);
    }
}

static void make_ids(int32_t *ids)
{
    for (uint32_t i = 0; i < MIXED_TOKENS; i++) {
        ids[i] = (int32_t)(3 + (i * i * 37 + i * 11) % (MIXED_VOCAB - 3));
    }
}

static exl2_engine_desc engine_of(mixed_model *x)
{
    exl2_engine_desc d = { 0 };
    memset(&warned, 0, sizeof warned);
    d.files = mixed_files(x);
    d.log.line = warn;
    return d;
}

static double log_sum(const double *logits)
{
    double sum = 0;
    for (uint32_t n = 0; n < MIXED_VOCAB; n++) {
        sum += exp(logits[n]);
    }
    return log(sum);
}

/* Loads the model and returns how far its scores are from those of the model as made. */
static double distance(mixed_model *x, exl2_model_info *info)
{
    static double logits[MIXED_TOKENS * MIXED_VOCAB];
    static rig_said said;
    int32_t ids[MIXED_TOKENS];
    double worst = 0;
    exl2_engine_desc engine = engine_of(x);
    exl2_model_desc desc = { .path = "mixed" };
    exl2_model_info measured;
    make_ids(ids);
    mixed_forward(x, ids, logits);
    rig r = rig_open(&engine, &desc);
    CHECK_INT(exl2_model_get(r.engine, r.model, info), EXL2_OK);
    CHECK_INT(exl2_model_measure(r.engine, &desc, &measured), EXL2_OK);
    CHECK(measured.weight_bytes == info->weight_bytes && measured.dequantized == info->dequantized);
    memset(&said, 0, sizeof said);
    exl2_job_desc d = rig_job(&r, ids, MIXED_TOKENS, 1, &said);
    d.score_prompt = true;
    d.prefill_only = true;
    rig_run(&r, &d);
    CHECK_INT(said.scored, MIXED_TOKENS - 1);
    for (uint32_t p = 0; p + 1 < MIXED_TOKENS; p++) {
        const double *row = logits + (size_t)p * MIXED_VOCAB;
        double sum = log_sum(row), score = row[ids[p + 1]] - sum;
        worst = fmax(worst, fmax(fabs((double)said.scores[p] - score), fabs((double)said.logsumexp[p] - sum)));
    }
    rig_close(&r);
    return worst;
}

/* Matrices that a backend with one kind dequantizes, by the rule of exl2__backend.one_kind. */
static uint32_t dequantized(const mixed_model *x)
{
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < MIXED_LAYERS && RIG_BACKEND == EXL2_BACKEND_CUDA; layer++) {
        char kinds[MIXED_MATRICES + 1];
        bool affine = false, other = false;
        for (uint32_t i = 0; i < mixed_matrices(x); i++) {
            char kind = x->kinds[layer][i];
            bool own = kind == 'd' || kind == 'e' || kind == 't';
            kinds[i] = kind == 'b' ? 'd' : own ? kind : kind == 'm' ? 't' : 'g';
            affine = affine || (i >= 4 && kinds[i] == 'g');
            other = other || (i >= 4 && kinds[i] != 'g');
        }
        bool all = x->experts && affine && other;
        bool qkv = (kinds[0] != kinds[1] || kinds[1] != kinds[2]) && !memchr(kinds, 't', 3);
        for (uint32_t i = 0; i < 3; i++) {
            count += qkv && kinds[i] != 'd';
        }
        for (uint32_t i = 4; i < mixed_matrices(x); i += 3) {
            bool exl3 = memchr(kinds + i, 't', 2) != NULL; /* each matrix is multiplied by itself */
            bool up = !exl3 && (all || kinds[i] != kinds[i + 1]), dense = up || (!exl3 && kinds[i] == 'd');
            count += up && kinds[i] != 'd';
            count += up && kinds[i + 1] != 'd';
            count += (all || dense) && kinds[i + 2] != 'd' && kinds[i + 2] != 't';
        }
    }
    return count;
}

static double worst_of_all;
static bool only_exl3;

static bool has_exl3(const char *const kinds[2]) { return strpbrk(kinds[0], "tm") || strpbrk(kinds[1], "tm"); }

static void check_mix(mixed_model *x, const char *format)
{
    exl2_model_info info;
    if (only_exl3 && !has_exl3(x->kinds)) {
        return;
    }
    mixed_make(x);
    double worst = distance(x, &info);
    if (!CHECK(worst <= BOUND)) {
        printf("  %s %s%s: off by %.3g\n", x->kinds[0], x->kinds[1], x->experts ? ", experts" : "", worst);
    }
    worst_of_all = fmax(worst_of_all, worst);
    CHECK_TEXT(info.format, format);
    CHECK_INT(info.dequantized, dequantized(x));
    CHECK_INT(warned.count, info.dequantized ? 2 : 0); /* by loading and by measuring */
    CHECK(warned.count == 0 || warned.id == EXL2_LOG_ID_DEQUANTIZED);
    mixed_free(x);
}

/* ---- dense beside quantized ---- */

static void check_blocks(void)
{
    static const struct { const char *kinds[2], *config, *format; } cases[] = {
        { { "ggggggg", "ggggggg" }, GPTQ(""), "gptq" },
        { { "ggggggd", "ggggggg" }, GPTQ(DYNAMIC), "mixed" }, /* down_proj */
        { { "ggggggd", "ggggggd" }, GPTQ(DYNAMIC), "mixed" },
        { { "gggdggg", "ggggggg" }, GPTQ(DYNAMIC), "mixed" }, /* o_proj */
        { { "ggdgggg", "ggdgggg" }, GPTQ(DYNAMIC), "mixed" }, /* v_proj */
        { { "aaaaaad", "aadaaaa" }, GPTQ(DYNAMIC), "mixed" }, /* act order */
        { { "aaaadda", "daaaaga" }, GPTQ(DYNAMIC), "mixed" }, /* down alone is quantized */
        { { "ggggdgg", "gbgggbd" }, GPTQ(DYNAMIC), "mixed" }, /* gate or up; BF16 */
        { { "832d238", "d8g2a3d" }, GPTQ(DYNAMIC), "mixed" }, /* widths */
        { { "dddgddd", "gdddddg" }, GPTQ(DYNAMIC), "mixed" },
        { { "eeeeggg", "ggggeee" }, GPTQ(DYNAMIC), "mixed" }, /* EXL2 beside GPTQ */
        { { "eedeged", "geggeea" }, GPTQ(DYNAMIC), "mixed" },
        { { "eedeeee", "eeeedde" }, "", "mixed" },            /* EXL2 beside dense */
        { { "eeeeede", "deeeeed" }, "", "mixed" },
        { { "wwwwwww", "wwwwwww" }, AWQ, "awq" },
        { { "wwdwwww", "wwwwwwd" }, AWQ, "mixed" },
        { { "dwwdwdw", "wwwwddw" }, AWQ, "mixed" },
        { { "ttttttt", "mmmmmmm" }, "", "exl3" },
        { { "tmttmtm", "mtmmtmt" }, "", "exl3" },             /* codebooks */
        { { "teettet", "ettette" }, "", "mixed" },            /* EXL3 beside EXL2 */
        { { "tdetbte", "etdemde" }, "", "mixed" },            /* and dense ones */
        { { "eeettte", "eeedttd" }, "", "mixed" },            /* down alone is something else */
        { { "tggatga", "agt2m83" }, GPTQ(DYNAMIC), "mixed" }, /* EXL3 beside GPTQ */
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        static mixed_model x;
        memset(&x, 0, sizeof x);
        x.kinds[0] = cases[i].kinds[0];
        x.kinds[1] = cases[i].kinds[1];
        x.config = cases[i].config;
        x.state = (uint32_t)i + 1;
        check_mix(&x, cases[i].format);
    }
}

/* Blocks of any kinds. */
static void check_random(void)
{
    static const char letters[] = "ddbgga238eettm";
    for (uint32_t seed = 1; seed <= 24; seed++) {
        static mixed_model x;
        char kinds[2][8] = { "dgggggg", "" }; /* always mixed */
        memset(&x, 0, sizeof x);
        x.state = seed * 977;
        for (uint32_t i = 1; i < 14; i++) {
            kinds[i / 7][i % 7] = letters[mixed_random(&x, sizeof letters - 1)];
        }
        kinds[1][0] = 'g';
        x.kinds[0] = kinds[0];
        x.kinds[1] = kinds[1];
        x.config = GPTQ(DYNAMIC);
        check_mix(&x, "mixed");
    }
}

static void check_experts(void)
{
    static const char *const cases[][2] = {
        { "gggggggggggggggg", "ddddgggggggggggg" }, { "ggggggdggdggdggd", "ggggdggdggdggdgg" },
        { "ggdgggdddgggggdg", "eeeegggeeegggeee" }, { "ddddddaddaddadda", "ggggggggdddddddd" },
        { "eeeeeeeeedddeede", "ggggeeeeeeeeeeee" }, { "tdettttttmmmmmmm", "mtttmtmtmtmtmttt" },
        { "etgettttmmmmtmtm", "ttttggggggdggdgg" },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        static mixed_model x;
        int32_t ids[MIXED_TOKENS];
        static double logits[MIXED_TOKENS * MIXED_VOCAB];
        double closest = 0;
        make_ids(ids);
        if (only_exl3 && !has_exl3(cases[i])) {
            continue;
        }
        for (uint32_t seed = 1; closest < 0.1; seed++) { /* rounding must not choose other experts */
            memset(&x, 0, sizeof x);
            x.kinds[0] = cases[i][0];
            x.kinds[1] = cases[i][1];
            x.config = GPTQ(DYNAMIC);
            x.experts = true;
            x.state = seed;
            mixed_make(&x);
            mixed_forward(&x, ids, logits);
            closest = x.closest;
            mixed_free(&x);
            x.state = seed;
        }
        check_mix(&x, "mixed");
    }
}

/* The bound finds mistakes in any one matrix. */
static void check_sensitive(void)
{
    static mixed_model x;
    exl2_model_info info;
    double least = 1e9;
    for (uint32_t i = 0; i < 14; i++) {
        memset(&x, 0, sizeof x);
        x.kinds[0] = x.kinds[1] = "ggggggg";
        x.config = GPTQ("");
        x.state = 7;
        mixed_make(&x);
        uint32_t in, out;
        mixed_key(&x, i / 7, i % 7, &in, &out);
        for (uint32_t k = 0; k < in * out; k++) { /* as if all zeros were one higher */
            x.w[i / 7][i % 7][k] -= 0.026;
        }
        least = fmin(least, distance(&x, &info));
        mixed_free(&x);
    }
    printf("a mistake in one matrix: at least %.2g\n", least);
    CHECK(least > 3 * BOUND);
}

/* ---- versions of zeros ---- */

static void check_versions(void)
{
    static const struct {
        const char *kinds[2], *config;
        bool symmetric, v2[2];
        exl2_result result;
        uint32_t warnings;
    } cases[] = {
        { { "ggggggg", "ggggggg" }, GPTQ(",\"sym\":true"), true, { false, false }, EXL2_OK, 0 },
        { { "ggggggg", "ggggggg" }, GPTQ(",\"sym\":true"), true, { true, true }, EXL2_OK, 1 },
        { { "ggggggg", "ggggggg" }, GPTQ(",\"sym\":true,\"checkpoint_format\":\"gptq\""), true, { true, true },
          EXL2_OK, 1 },
        { { "g2g3a8g", "3a8g2gg" }, GPTQ(",\"sym\":true" DYNAMIC), true, { true, true }, EXL2_OK, 1 },
        { { "gggdggg", "ddddddd" }, GPTQ(",\"sym\":true" DYNAMIC), true, { true, true }, EXL2_OK, 1 },
        { { "g2g3a8g", "3a8g2gg" }, GPTQ(",\"sym\":true" DYNAMIC), true, { false, false }, EXL2_OK, 0 },
        { { "ggggggg", "ggggggg" }, GPTQ(",\"sym\":true,\"checkpoint_format\":\"gptq_v2\""), true, { true, true },
          EXL2_OK, 0 },
        { { "ggggggg", "ggggggg" }, GPTQ(",\"sym\":true"), true, { true, false }, EXL2_ERR_FORMAT, 0 },
        { { "ggggggg", "ggggggg" }, GPTQ(",\"sym\":true"), true, { false, true }, EXL2_ERR_FORMAT, 0 },
        { { "ggggggg", "ggggggg" }, GPTQ(",\"sym\":true,\"checkpoint_format\":\"gptq_v2\""), true, { false, false },
          EXL2_ERR_FORMAT, 0 },
        { { "ggggggg", "ggggggg" }, GPTQ(",\"sym\":false"), false, { false, false }, EXL2_OK, 0 },
        { { "ggggggg", "ggggggg" }, GPTQ(",\"sym\":false,\"checkpoint_format\":\"gptq_v2\""), false, { true, true },
          EXL2_OK, 0 },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        static mixed_model x;
        exl2_model_info info;
        memset(&x, 0, sizeof x);
        x.kinds[0] = cases[i].kinds[0];
        x.kinds[1] = cases[i].kinds[1];
        x.config = cases[i].config;
        x.symmetric = cases[i].symmetric;
        x.v2[0] = cases[i].v2[0];
        x.v2[1] = cases[i].v2[1];
        x.state = 100 + (uint32_t)i;
        mixed_make(&x);
        if (cases[i].result == EXL2_OK) {
            CHECK(distance(&x, &info) <= BOUND);
            CHECK_INT(warned.count, cases[i].warnings * 2 + (info.dequantized ? 2u : 0u)); /* by measuring, too */
            CHECK(info.dequantized || !warned.count || warned.id == EXL2_LOG_ID_GPTQ_VERSION);
        } else {
            exl2_engine_desc engine = engine_of(&x);
            exl2_model_desc desc = { .path = "mixed" };
            exl2_error error;
            exl2_engine *e;
            exl2_model model;
            engine.backend = RIG_BACKEND;
            CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
            CHECK_INT(exl2_model_load(e, &desc, &model), cases[i].result);
            exl2_last_error(e, &error);
            CHECK(strstr(error.text, "which is right only with checkpoint_format") != NULL);
            exl2_close(e);
        }
        mixed_free(&x);
    }
}

/* ---- who else writes these formats ---- */

static void check_writers(void)
{
#define QUANT(text) ",\"quantization_config\":{" text "}"
#define ROUND(packing, more) \
    QUANT("\"quant_method\":\"auto-round\",\"bits\":4,\"group_size\":32,\"sym\":false," \
          "\"data_type\":\"int\"" packing more)
    static const struct { const char *kinds, *config, *name, *text; exl2_result result; const char *piece; } cases[] = {
        { "ggggggg", ROUND(",\"packing_format\":\"auto_round:auto_gptq\"", ""), NULL, NULL, EXL2_OK, "gptq" },
        { "ggggggg", ROUND(",\"backend\":\"auto_round:gptq\"", ""), NULL, NULL, EXL2_OK, "gptq" },
        { "wwwwwww", ROUND(",\"packing_format\":\"auto_round:auto_awq\"", ""), NULL, NULL, EXL2_OK, "awq" },
        { "g8gdggd", ROUND(",\"packing_format\":\"auto_round:auto_gptq\"",
                           ",\"extra_config\":{\"model.layers.0.self_attn.k_proj\":{\"bits\":8}}"), NULL, NULL, EXL2_OK,
          "mixed" },
        { "ggggggg", ROUND(",\"packing_format\":\"auto_round:exllamav2\"", ""), NULL, NULL, EXL2_ERR_UNSUPPORTED,
          "packing_format='auto_round:exllamav2'" },
        { "ggggggg", ROUND("", ""), NULL, NULL, EXL2_ERR_FORMAT, "packing_format is missing" },
        { "ggggggg", QUANT("\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:auto_gptq\",\"data_type\":"
                           "\"mx_fp\",\"bits\":4"), NULL, NULL, EXL2_ERR_UNSUPPORTED, "data_type='mx_fp'" },
        { "wwwwwww", "", "quant_config.json",
          "{\"zero_point\":true,\"q_group_size\":32,\"w_bit\":4,\"version\":\"GEMM\"}", EXL2_OK, "awq" },
        { "wwdwwwd", "", "quant_config.json", "{\"q_group_size\":32,\"w_bit\":4}", EXL2_OK, "mixed" },
        { "wwwwwww", "", "quant_config.json", "{\"q_group_size\":32,\"w_bit\":4,\"version\":\"GEMV\"}",
          EXL2_ERR_UNSUPPORTED, "quant_config.json: version='GEMV'" },
        { "wwwwwww", "", "quant_config.json", "{\"q_group_size\":32,\"w_bit\":8}", EXL2_ERR_UNSUPPORTED,
          "only 4 for AWQ" },
        { "ggggggg", "", "quant_config.json", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}", EXL2_OK,
          "gptq" },
        { "ddddddd", "", "quant_config.json", "{\"version\":\"7\",\"tool\":\"other\"}", EXL2_OK, "dense" },
        { "ggggggg", "", "quantize_config.json", "{\"bits\":4,\"group_size\":32}", EXL2_OK, "gptq" },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        static mixed_model x;
        exl2_model_info info;
        memset(&x, 0, sizeof x);
        x.kinds[0] = x.kinds[1] = cases[i].kinds;
        x.config = cases[i].config;
        x.name = cases[i].name;
        x.text = cases[i].text;
        x.state = 50 + (uint32_t)i;
        mixed_make(&x);
        if (cases[i].result == EXL2_OK) {
            CHECK(distance(&x, &info) <= BOUND);
            CHECK_TEXT(info.format, cases[i].piece);
        } else {
            exl2_engine_desc engine = engine_of(&x);
            exl2_model_desc desc = { .path = "mixed" };
            exl2_error error;
            exl2_engine *e;
            engine.backend = RIG_BACKEND;
            CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
            CHECK_INT(exl2_model_measure(e, &desc, &info), cases[i].result);
            exl2_last_error(e, &error);
            if (!CHECK(strstr(error.text, cases[i].piece) != NULL)) {
                printf("  %s: %s\n", cases[i].piece, error.text);
            }
            exl2_close(e);
        }
        mixed_free(&x);
    }
}

int main(int argc, char **argv)
{
    rig_read_path(&argc, &argv);
    only_exl3 = argc > 1 && strcmp(argv[1], "exl3") == 0;
    check_blocks();
    check_experts();
    check_random();
    printf("mixed blocks: scores within %.2g\n", worst_of_all);
    if (only_exl3) {
        return check_done();
    }
    check_sensitive();
    check_versions();
    check_writers();
    return check_done();
}
