/* families.c: what exl2_model_info says of a family, exl2_arch, the RoPE settings of exl2_model_desc, and BOS for
   families that need it. Through the public API, on the tiny models of tests/golden. */
#include "text_model.h"

static text_model model; /* global, because the files hook keeps a pointer to it */

static const char *const plan[1] = { "a" };

/* The config.json of exl2-mixed with other names, and with more fields. */
#define CONFIG(arch, act, more)                                                                                    \
    "{\"architectures\":[\"" arch "\"],\"vocab_size\":320,\"hidden_size\":128,\"intermediate_size\":160,"           \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,"                 \
    "\"hidden_act\":\"" act "\",\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"    \
    "\"bos_token_id\":1,\"eos_token_id\":2" more "}"

static exl2_model_info info_of(const char *path)
{
    exl2_engine_desc engine = { 0 };
    exl2_model_desc d = { 0 };
    exl2_model_info info = { .arch = "" };
    exl2_engine *e;
    engine.backend = RIG_BACKEND;
    d.path = path;
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    CHECK_INT(exl2_model_measure(e, &d, &info), EXL2_OK);
    exl2_close(e);
    return info;
}

static void check_info(void)
{
    exl2_model_info i = info_of(rig_golden("gemma2"));
    CHECK_TEXT(i.arch, "Gemma2ForCausalLM");
    CHECK_TEXT(i.family, "Gemma 2");
    CHECK_TEXT(i.format, "dense");
    CHECK_TEXT(i.norms, "RMSNorm + 1 before and after blocks");
    CHECK(i.head_dim == 16 && i.window == 32 && i.layers == 4 && i.windowed[0] == 5 && i.windowed[1] == 0);
    CHECK(i.needs_bos && !i.parallel && !i.tower_skipped && i.rope_count == 1);
    CHECK_TEXT(i.ropes[0].kind, "plain");
    CHECK(i.ropes[0].theta == 10000 && i.ropes[0].factor == 1);
    i = info_of(rig_golden("cohere"));
    CHECK_TEXT(i.family, "Command R");
    CHECK_TEXT(i.norms, "LayerNorm before blocks");
    CHECK(i.parallel && i.needs_bos && i.window == 0 && i.windowed[0] == 0 && i.ropes[0].theta == 75000);
    i = info_of(rig_golden("phi3-longrope"));
    CHECK_TEXT(i.ropes[0].kind, "longrope");
    CHECK(i.window == 64 && i.windowed[0] == 3 && !i.needs_bos);
    i = info_of(rig_golden("qwen3"));
    CHECK_TEXT(i.norms, "RMSNorm before blocks, of q and k by head");
    CHECK(i.head_dim == 32 && i.window == 0);
    i = info_of(rig_golden("llama3-rope"));
    CHECK_TEXT(i.ropes[0].kind, "llama3");
    CHECK(i.ropes[0].theta == 500000 && i.ropes[0].factor == 8);
    i = info_of(rig_golden("exl2-mixed"));
    CHECK_TEXT(i.format, "exl2");
    CHECK_TEXT(i.family, "Llama");
}

static void check_archs(void)
{
    exl2_arch_info a;
    uint32_t supported = 0, rejected = 0, goldens = 0, i = 0;
    for (; exl2_arch(i, &a); i++) {
        CHECK(a.name && a.name[0] && (a.family == NULL) == (a.reason != NULL));
        CHECK(a.reason == NULL || supported == i - rejected);
        supported += a.family != NULL;
        rejected += a.reason != NULL;
        goldens += a.golden;
        if (strcmp(a.name, "CohereForCausalLM") == 0) {
            CHECK(strstr(a.differs, "LayerNorm, attention and MLP in parallel") && strstr(a.differs, "RoPE in pairs"));
            CHECK(a.golden);
        } else if (strcmp(a.name, "YiForCausalLM") == 0) {
            CHECK(a.differs[0] == 0 && !a.golden);
        } else if (strcmp(a.name, "DeepseekV3ForCausalLM") == 0) {
            CHECK(a.reason && strstr(a.reason, "MLA") && !a.differs[0]);
        }
        CHECK(strlen(a.differs) < sizeof a.differs - 1); /* nothing was cut */
    }
    CHECK(supported >= 40 && rejected >= 120 && goldens >= 20);
    CHECK(a.name == NULL && a.family == NULL && !exl2_arch(UINT32_MAX, &a) && !exl2_arch(0, NULL));
}

/* ---- RoPE by the application ---- */

static void check_rope_refused(void)
{
    static const struct { float scale, alpha, yarn; exl2_result wanted; } cases[] = {
        { 0, 0, 0, EXL2_OK },           { 4, 0, 0, EXL2_OK },          { 1, 2.5f, 0, EXL2_OK },
        { 0, 2, 4, EXL2_OK },           { 2, 0, 4, EXL2_ERR_ARG },     { -1, 0, 0, EXL2_ERR_ARG },
        { 0.5f, 0, 0, EXL2_ERR_ARG },   { 0, 1001, 0, EXL2_ERR_ARG },  { 0, NAN, 0, EXL2_ERR_ARG },
        { 0, 0, INFINITY, EXL2_ERR_ARG }, { 0, 0, 0.99f, EXL2_ERR_ARG },
    };
    exl2_engine_desc engine = { 0 };
    exl2_engine *e;
    engine.backend = RIG_BACKEND;
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        exl2_model_desc d = { 0 };
        exl2_model_info info;
        d.path = rig_golden("exl2-mixed");
        d.rope_scale = cases[i].scale;
        d.rope_alpha = cases[i].alpha;
        d.yarn_factor = cases[i].yarn;
        CHECK_INT(exl2_model_measure(e, &d, &info), cases[i].wanted);
    }
    exl2_close(e);
    /* learned positions */
    snprintf(model.config_json, sizeof model.config_json, "%s",
             "{\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":320,\"n_embd\":128,\"n_layer\":2,\"n_head\":4}");
    engine = text_engine(&model);
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    exl2_model_desc d = text_folder();
    exl2_model_info info;
    rig r = { e, { 0 } };
    d.rope_alpha = 2;
    text_check_refused(&r, exl2_model_measure(e, &d, &info), EXL2_ERR_ARG, "cannot stretch learned positions");
    exl2_close(e);
    model.config_json[0] = 0;
}

/* Log-probabilities of a prompt of 100 ids, and what info says. */
static exl2_model_info scores(const char *config, float scale, float alpha, float yarn, rig_said *said)
{
    exl2_token ids[100];
    for (uint32_t i = 0; i < 100; i++) {
        ids[i] = (exl2_token)(3 + i * i * 7 % 300);
    }
    snprintf(model.config_json, sizeof model.config_json, "%s", config);
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc d = text_folder();
    exl2_model_info info = { .arch = "" };
    d.rope_scale = scale;
    d.rope_alpha = alpha;
    d.yarn_factor = yarn;
    rig r = rig_open(&engine, &d);
    memset(said, 0, sizeof *said);
    exl2_job_desc job = rig_job(&r, ids, 100, 1, said);
    job.score_prompt = true;
    job.prefill_only = true;
    rig_run(&r, &job);
    CHECK_INT(said->scored, 99);
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    rig_close(&r);
    model.config_json[0] = 0;
    return info;
}

/* Each setting gives the bits of a config.json that says the same. */
static void check_rope_settings(void)
{
    static rig_said plain, by_file, by_desc;
    static const struct { float scale, alpha, yarn; const char *file, *kind; double factor; } cases[] = {
        { 4, 0, 0, CONFIG("LlamaForCausalLM", "silu", ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"), "linear",
          4 },
        { 0, 3, 0, CONFIG("LlamaForCausalLM", "silu", ",\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":3}"), "plain",
          1 },
        { 0, 0, 4, CONFIG("LlamaForCausalLM", "silu", ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
          "\"original_max_position_embeddings\":128}"), "yarn", 4 },
    };
    const char *own = CONFIG("LlamaForCausalLM", "silu", "");
    exl2_model_info info = scores(own, 0, 0, 0, &plain);
    CHECK_TEXT(info.ropes[0].kind, "plain");
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        scores(cases[i].file, 0, 0, 0, &by_file);
        info = scores(own, cases[i].scale, cases[i].alpha, cases[i].yarn, &by_desc);
        CHECK(memcmp(by_file.scores, by_desc.scores, sizeof by_file.scores[0] * 99) == 0);
        CHECK(memcmp(plain.scores, by_desc.scores, sizeof plain.scores[0] * 99) != 0);
        CHECK_TEXT(info.ropes[0].kind, cases[i].kind);
        CHECK(info.ropes[0].factor == cases[i].factor);
        CHECK((info.ropes[0].theta > 10000) == (cases[i].alpha > 0));
    }
    /* they replace what the file says */
    info = scores(cases[0].file, 0, 0, 4, &by_desc);
    CHECK(memcmp(by_file.scores, by_desc.scores, sizeof by_file.scores[0] * 99) == 0);
    CHECK_TEXT(info.ropes[0].kind, "yarn");
}

/* What is computed, where config.json says something else: scalings that change nothing at a context, and rope_scale 1,
   which is plain RoPE in the original context of the scaling that it replaces. */
static void check_rope_computed(void)
{
#define SCALING(fields) CONFIG("LlamaForCausalLM", "silu", ",\"rope_scaling\":{" fields "}")
#define YARN SCALING("\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32")
    static const struct { const char *file; float scale, yarn; const char *kind; double factor; uint32_t context; }
    cases[] = {
        { YARN, 0, 0, "yarn", 4, 128 },
        { YARN, 1, 0, "plain", 1, 32 },
        { YARN, 0, 1, "plain", 1, 32 },
        { YARN, 2, 0, "linear", 2, 64 },
        { YARN, 0, 2, "yarn", 2, 64 },
        { SCALING("\"type\":\"linear\",\"factor\":1"), 0, 0, "plain", 1, 128 },
        { SCALING("\"type\":\"linear\",\"factor\":2"), 1, 0, "plain", 1, 128 },
        { SCALING("\"type\":\"dynamic\",\"factor\":2"), 0, 0, "dynamic", 2, 128 },
        { SCALING("\"type\":\"yarn\",\"factor\":1,\"original_max_position_embeddings\":32,"
                  "\"attention_factor\":2"), 0, 0, "yarn", 1, 128 },
        { SCALING("\"type\":\"yarn\",\"factor\":1,\"original_max_position_embeddings\":32,"
                  "\"attention_factor\":2"), 1, 0, "plain", 1, 32 },
    };
    static rig_said plain, said;
    scores(CONFIG("LlamaForCausalLM", "silu", ""), 0, 0, 0, &plain);
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        exl2_model_info info = scores(cases[i].file, cases[i].scale, 0, cases[i].yarn, &said);
        CHECK_TEXT(info.ropes[0].kind, cases[i].kind);
        CHECK(info.ropes[0].factor == cases[i].factor);
        bool same = memcmp(plain.scores, said.scores, sizeof plain.scores[0] * 99) == 0;
        CHECK(same == (strcmp(cases[i].kind, "plain") == 0));
        snprintf(model.config_json, sizeof model.config_json, "%s", cases[i].file);
        exl2_engine_desc engine = text_engine(&model);
        exl2_model_desc d = text_folder();
        exl2_engine *e;
        d.context_max = 0;
        d.rope_scale = cases[i].scale;
        d.yarn_factor = cases[i].yarn;
        CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
        CHECK_INT(exl2_model_measure(e, &d, &info), EXL2_OK);
        CHECK_INT(info.context_max, cases[i].context);
        bool dynamic = strcmp(cases[i].kind, "dynamic") == 0; /* is plain in the model's own context */
        CHECK_TEXT(info.ropes[0].kind, dynamic ? "plain" : cases[i].kind);
        exl2_close(e);
    }
    model.config_json[0] = 0;
#undef YARN
#undef SCALING
}

/* ---- BOS ---- */

/* A Gemma needs BOS before raw text, also where its chat template spells BOS out; the tokenizer's files may switch it
   off. The same folder as a Llama has none then. */
static void check_bos(void)
{
#define TURNS "'bos_token':'<s>','chat_template':'<s>{{ messages[0].content }}</s>'}"
    static const struct { const char *config, *tokenizer; bool bos, needs; } cases[] = {
        { CONFIG("LlamaForCausalLM", "silu", ""), "{" TURNS, false, false },
        { CONFIG("GemmaForCausalLM", "gelu", ""), "{" TURNS, true, true },
        { CONFIG("GemmaForCausalLM", "gelu", ""), "{'add_bos_token':false," TURNS, false, true },
        { CONFIG("LlamaForCausalLM", "silu", ""), "{'add_bos_token':true," TURNS, true, false },
    };
#undef TURNS
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        exl2_token ids[16];
        exl2_model_info info;
        size_t need;
        text_write(&model, plan, EXL2__COUNT(plan), cases[i].tokenizer);
        snprintf(model.config_json, sizeof model.config_json, "%s", cases[i].config);
        rig r = text_load(&model);
        CHECK_INT(exl2_tokenize(r.engine, r.model, "hi", 2, 0, ids, 16, &need), EXL2_OK);
        CHECK(need == 2 + (size_t)cases[i].bos && (ids[0] == model.marker[0]) == cases[i].bos);
        CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
        CHECK_INT(info.needs_bos, cases[i].needs);
        rig_close(&r);
    }
    model.config_json[0] = 0;
}

/* A folder of a multimodal model: the tower's tensors are not read. */
static void check_tower(void)
{
    snprintf(model.config_json, sizeof model.config_json, "%s",
             CONFIG("LlavaForConditionalGeneration", "silu", ",\"text_config\":{\"model_type\":\"mistral\"},"
                    "\"vision_config\":{\"model_type\":\"pixtral\"}"));
    rig r = text_load(&model);
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    CHECK_TEXT(info.family, "Pixtral");
    CHECK(info.tower_skipped && info.window == 4096 && info.windowed[0] == 3);
    rig_close(&r);
    model.config_json[0] = 0;
}

int main(void)
{
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    check_info();
    check_archs();
    check_rope_refused();
    check_rope_settings();
    check_rope_computed();
    check_bos();
    check_tower();
    return check_done();
}
