/* model_config.c: values read from config.json and generation_config.json, what is rejected and with which message, and
   the RoPE frequencies compared with published numbers. Also file.h, which it uses. */
#include "../memory_files.h"

#include "private/model_config_read.h"

#define LLAMA "'architectures':['LlamaForCausalLM']"
#define SIZES "'vocab_size':320,'hidden_size':128,'intermediate_size':96,'num_hidden_layers':2," \
              "'num_attention_heads':4,'rms_norm_eps':1e-05"
#define BASE "{" LLAMA "," SIZES /* a whole config.json without the closing brace */

/* Reads these two texts, in json_text's notation (NULL: no file). */
static exl2_result read_texts(memory_files *m, const char *config, const char *generation, exl2__config *out)
{
    memory_make(m);
    if (config) {
        memory_add_text(m, "config.json", json_text(config));
    }
    if (generation) {
        memory_add_text(m, "generation_config.json", json_text(generation));
    }
    exl2_result result = exl2__config_read(&m->c, "models/x", out);
    memory_free(m);
    return result;
}

static exl2__config read_good(const char *config, const char *generation, uint32_t warnings)
{
    memory_files m;
    exl2__config k;
    if (!CHECK_INT(read_texts(&m, config, generation, &k), EXL2_OK)) {
        printf("  %s: %s\n", config, m.c.error.text);
    }
    if (!CHECK_INT(m.warnings, warnings)) {
        printf("  %s: %s\n", config, m.warning);
    }
    CHECK(warnings == 0 || m.warning_id == EXL2_LOG_ID_TOKEN_ID_IGNORED || m.warning_id == EXL2_LOG_ID_UNKNOWN_ARCH
          || m.warning_id == EXL2_LOG_ID_SETTING_IGNORED);
    return k;
}

static void read_bad(const char *config, const char *generation, exl2_result code, const char *piece, const char *other)
{
    memory_files m;
    exl2__config k;
    CHECK_INT(read_texts(&m, config, generation, &k), code);
    check_error(&m.c, piece, other, config ? config : "no file");
}

/* ---- good files ---- */

static void check_least(void)
{
    exl2__config k = read_good(BASE "}", NULL, 0);
    CHECK_TEXT(k.arch.name, "LlamaForCausalLM");
    CHECK(k.vocab == 320 && k.hidden == 128 && k.layers == 2 && k.heads == 4 && k.kv_heads == 4 && k.head_dim == 32 &&
          k.inter == 96);
    CHECK_INT(k.context_max, 2048);
    CHECK(k.norm_eps == 1e-5f);
    CHECK(k.attn_scale == (float)(1 / sqrt(32.0)));
    CHECK(k.rope.kind == EXL2__ROPE_PLAIN && k.rope.theta == 10000);
    CHECK(!k.tie_embeddings && !k.attention_bias && !k.mlp_bias);
    CHECK(k.bos == -1 && k.eos_count == 0);
    CHECK(!k.defaults.has_temperature && !k.defaults.has_top_k && !k.defaults.has_do_sample);
}

static void check_full(void)
{
    exl2__config k = read_good(
        BASE ",'num_key_value_heads':2.0,'head_dim':64,'max_position_embeddings':131072,'rope_theta':500000,"
        "'tie_word_embeddings':true,'attention_bias':true,'mlp_bias':true,'hidden_act':'silu','rope_scaling':null,"
        "'bos_token_id':1,'eos_token_id':[2,7,2],'quantization_config':{'quant_method':'exl2','bits':4.0},"
        "'logit_scale':1.0,'partial_rotary_factor':1,'attn_logit_softcapping':null,'use_qk_norm':false,"
        "'pretraining_tp':1}",
        "{'bos_token_id':5,'eos_token_id':[7,9],'do_sample':true,'temperature':0.6,'top_p':0.95,'top_k':40,"
        "'min_p':0.05,"
        "'repetition_penalty':1.1,'_from_model_config':true}", 0);
    CHECK(k.kv_heads == 2 && k.head_dim == 64 && k.context_max == 131072 && k.rope.theta == 500000);
    CHECK(k.tie_embeddings && k.attention_bias && k.mlp_bias);
    CHECK(k.attn_scale == 0.125f);
    CHECK_INT(k.bos, 1); /* config.json's */
    CHECK_INT(k.eos_count, 3);
    CHECK(k.eos[0] == 2 && k.eos[1] == 7 && k.eos[2] == 9);
    const exl2__config_defaults *d = &k.defaults;
    CHECK(d->has_do_sample && d->do_sample && d->has_temperature && d->temperature == 0.6f && d->has_top_p &&
          d->top_p == 0.95f);
    CHECK(d->has_top_k && d->top_k == 40 && d->has_min_p && d->min_p == 0.05f && d->has_repeat_penalty &&
          d->repeat_penalty == 1.1f);
}

static void check_variants(void)
{
    exl2__config k = read_good("{" LLAMA ",'text_config':{" SIZES ",'rope_theta':7e4,'max_position_embeddings':99}}",
                               NULL, 0);
    CHECK(k.hidden == 128 && k.rope.theta == 70000 && k.context_max == 99);
    k = read_good("{" LLAMA ",'vocab_size':320,'d_model':96,'n_inner':50,'n_layer':3,'head_dim':48,'rms_norm_eps':1}",
                  NULL, 0);
    CHECK(k.hidden == 96 && k.inter == 50 && k.layers == 3 && k.heads == 2 && k.head_dim == 48);
    k = read_good(BASE ",'model_max_length':1000000000000000019884624838656}", NULL, 0);
    CHECK_INT(k.context_max, 1 << 30);
    k = read_good(BASE ",'attention_multiplier':0.015625}", NULL, 0);
    CHECK(k.attn_scale == 0.015625f);
    k = read_good(BASE ",'query_pre_attn_scalar':16}", NULL, 0);
    CHECK(k.attn_scale == 0.25f);
    k = read_good(BASE ",'bos_token_id':[3,4],'eos_token_id':-1}", "{'eos_token_id':319}", 0);
    CHECK(k.bos == 3 && k.eos_count == 1 && k.eos[0] == 319);
    k = read_good(BASE ",'eos_token_id':320}", "{'bos_token_id':2}",
                  1); /* beyond the vocabulary: logs a warning */
    CHECK(k.eos_count == 0 && k.bos == 2);
    k = read_good(BASE "}", "{'temperature':null,'top_k':0,'do_sample':false}", 0);
    CHECK(!k.defaults.has_temperature && k.defaults.has_top_k && k.defaults.top_k == 0 && k.defaults.has_do_sample &&
          !k.defaults.do_sample);
}

/* ---- RoPE ---- */

static void check_near(double got, double wanted)
{
    if (!CHECK(fabs(got - wanted) <= 1e-8 * fabs(wanted))) {
        printf("  %.12g, wanted %.12g\n", got, wanted);
    }
}

static void check_rope(void)
{
    double f[64], magnitude;
    exl2__config k = read_good(BASE ",'head_dim':128,'rope_theta':500000.0,'rope_scaling':{'rope_type':'llama3',"
                               "'factor':8.0,'low_freq_factor':1.0,'high_freq_factor':4.0,"
                               "'original_max_position_embeddings':8192}}", NULL, 0);
    CHECK_INT(k.rope.kind, EXL2__ROPE_LLAMA3);
    exl2__rope_frequencies(&k.rope, k.rotary, k.context_max, f, &magnitude);
    check_near(f[0], 1.0);
    check_near(f[28], 0.00321144599);
    check_near(f[29], 0.00216657076);
    check_near(f[32], 0.000524846161);
    check_near(f[34], 0.000178507813);
    check_near(f[35], 9.55621235e-05);
    check_near(f[63], 3.06892599e-07);
    k = read_good(BASE ",'head_dim':128,'rope_theta':500000.0,'rope_scaling':{'type':'linear','factor':4}}", NULL, 0);
    CHECK_INT(k.rope.kind, EXL2__ROPE_LINEAR);
    exl2__rope_frequencies(&k.rope, k.rotary, k.context_max, f, &magnitude);
    check_near(f[0], 0.25);
    check_near(f[28], 0.00321144599 / 4);
    k = read_good(BASE ",'rope_scaling':{'type':'linear','rope_type':'default','factor':2}}", NULL, 0);
    CHECK_INT(k.rope.kind, EXL2__ROPE_LINEAR);
    k = read_good(BASE ",'rope_scaling':{'rope_type':'linear','type':'default','factor':2}}", NULL, 0);
    CHECK_INT(k.rope.kind, EXL2__ROPE_LINEAR);
    k = read_good(BASE ",'rope_theta':5e5,'rope_parameters':{'rope_theta':2e4},'attn_config':{'rope_theta':3e4}}", NULL,
                  0);
    CHECK(k.rope.theta == 20000);
    k = read_good(BASE ",'rope_parameters':{'rope_type':'linear','rope_theta':1000,'factor':2}}", NULL,
                  0);
    CHECK(k.rope.kind == EXL2__ROPE_LINEAR && k.rope.theta == 1000);
    k = read_good(BASE ",'rope_scaling':{'type':'default'}}", NULL, 0);
    CHECK_INT(k.rope.kind, EXL2__ROPE_PLAIN);
    exl2__rope_frequencies(&k.rope, k.rotary, k.context_max, f, &magnitude);
    check_near(f[8], 0.01); /* 10000^(-16/32) */
    k = read_good(BASE ",'head_dim':128,'rope_theta':1000000.0,'max_position_embeddings':131072,'rope_scaling':{"
                  "'type':'yarn','factor':4.0,'original_max_position_embeddings':32768}}", NULL, 0);
    CHECK_INT(k.rope.kind, EXL2__ROPE_YARN);
    exl2__rope_frequencies(&k.rope, k.rotary, 32769, f, &magnitude);
    check_near(f[16], 0.0316227766017);
    check_near(f[24], 0.00537532149);
    check_near(f[32], 0.000602941176);
    check_near(f[40], 4.44569853e-05);
    check_near(f[63], 3.1023444e-07);
    check_near(magnitude, 1.13862943611);
    exl2__rope_frequencies(&k.rope, k.rotary, 32768, f, &magnitude); /* the same within the original context */
    check_near(f[32], 0.000602941176);
    check_near(magnitude, 1.13862943611);
    k = read_good(BASE ",'head_dim':4,'max_position_embeddings':131072,'original_max_position_embeddings':4096,"
                  "'rope_scaling':{'type':'su','short_factor':[1,2],'long_factor':[4,8]}}", NULL, 0);
    CHECK_INT(k.rope.kind, EXL2__ROPE_LONGROPE);
    exl2__rope_frequencies(&k.rope, k.rotary, 4096, f, &magnitude);
    check_near(f[1], 0.01 / 2);
    check_near(magnitude, 1.19023806919);
    exl2__rope_frequencies(&k.rope, k.rotary, 4097, f, &magnitude);
    check_near(f[1], 0.01 / 8);
    check_near(magnitude, 1.19023806919);
    k = read_good(BASE ",'head_dim':4,'rope_scaling':{'type':'dynamic','alpha':16,'factor':1}}", NULL, 0);
    CHECK_INT(k.rope.kind, EXL2__ROPE_ALPHA);
    exl2__rope_frequencies(&k.rope, k.rotary, 1, f, &magnitude);
    check_near(f[1], 1 / (100.0 * 16)); /* (10000 * 16^2)^(-1/2) */
}

/* ---- rejected configs ---- */

static void refuse(const char *more, exl2_result code, const char *piece, const char *other)
{
    char text[1024];
    snprintf(text, sizeof text, BASE ",%s}", more);
    read_bad(text, NULL, code, piece, other);
}

/* A known architecture without a row is rejected, by its own name or by its model_type, whatever its sizes are. */
static void check_architectures(void)
{
    static const char *const known[] = { "DeepseekV3ForCausalLM", "MambaForCausalLM", "Qwen3NextForCausalLM",
                                         "FalconForCausalLM", "PhimoeForCausalLM", "Gemma4ForCausalLM",
                                         "BertLMHeadModel" };
    static const char *const foreign[] = { "LlamaForCausalLM2", "LlamaForCausal", "", "SiglipVisionModel",
                                           "llavaForConditionalGeneration" };
    char text[1024], long_name[400];
    for (size_t i = 0; i < EXL2__COUNT(known); i++) {
        snprintf(text, sizeof text, "{'architectures':['%s']," SIZES "}", known[i]);
        read_bad(text, NULL, EXL2_ERR_UNSUPPORTED, known[i], "config.json: the architecture");
    }
    for (size_t i = 0; i < EXL2__COUNT(foreign); i++) {
        snprintf(text, sizeof text, "{'architectures':['%s']," SIZES "}", foreign[i]);
        read_bad(text, NULL, EXL2_ERR_UNSUPPORTED, foreign[i], "not a causal language model");
    }
    memset(long_name, 'L', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    snprintf(text, sizeof text, "{'architectures':['%s']," SIZES "}", long_name);
    read_bad(text, NULL, EXL2_ERR_FORMAT, "architectures", "a name of at most 63");
    read_bad("{'architectures':['LlamaForCausalLM\\u0000']," SIZES "}", NULL, EXL2_ERR_FORMAT, "architectures",
             "a name of at most 63");
    read_bad("{'architectures':['MyFalconForCausalLM'],'model_type':'falcon'," SIZES "}", NULL, EXL2_ERR_UNSUPPORTED,
             "MyFalconForCausalLM", "ALiBi");
    exl2__config k = read_good("{'architectures':['NobodyForCausalLM']," SIZES "}", NULL, 1);
    CHECK_TEXT(k.arch.name, "LlamaForCausalLM");
    CHECK_TEXT(k.arch_name, "NobodyForCausalLM");
    k = read_good("{'architectures':['TunedErnieForCausalLM'],'model_type':'ernie4_5'," SIZES "}", NULL, 1);
    CHECK_TEXT(k.arch.name, "Ernie4_5ForCausalLM");
    k = read_good("{'architectures':['Qwen3ForCausalLM']," SIZES "}", NULL, 0);
    CHECK_INT(k.qk_norm, EXL2__QK_NORM_HEADS);
}

/* ---- experts ---- */

#define MOE(name, more) "{'architectures':['" name "ForCausalLM']," SIZES ",'num_key_value_heads':4," more "}"
#define MIXTRAL(more) MOE("Mixtral", "'num_local_experts':8,'num_experts_per_tok':2" more)

/* `layers`: a digit for each layer, 1 = it has experts. */
static void check_sparse(const char *text, const char *layers)
{
    exl2__config k = read_good(text, NULL, 0);
    CHECK_INT(k.layers, strlen(layers));
    for (uint32_t i = 0; i < k.layers; i++) {
        if (!CHECK_INT(exl2__config_layer(k.sparse, i), layers[i] == '1')) {
            printf("  %s: layer %u\n", text, i);
        }
    }
}

static void check_experts(void)
{
    exl2__config k = read_good(MIXTRAL(""), NULL, 0);
    CHECK(k.experts.count == 8 && k.experts.active == 2 && k.experts.inter == 96 && k.experts.shared_inter == 0);
    CHECK(k.experts.renormalized && !k.experts.sigmoid && k.experts.groups == 1 && k.experts.scale == 1);
    k = read_good(MOE("Qwen2Moe", "'num_experts':60,'num_experts_per_tok':4,'moe_intermediate_size':32,"
                      "'shared_expert_intermediate_size':64"), NULL, 0);
    CHECK(k.experts.count == 60 && k.experts.active == 4 && k.experts.inter == 32 && k.inter == 96);
    CHECK(k.experts.shared_inter == 64 && k.experts.shared_switch && !k.experts.renormalized);
    k = read_good(MOE("Qwen3Moe", "'num_experts':128,'num_experts_per_tok':8,'norm_topk_prob':true"), NULL, 0);
    CHECK(k.experts.renormalized && k.qk_norm == EXL2__QK_NORM_HEADS);
    k = read_good(MOE("Glm4Moe", "'n_routed_experts':16,'num_experts_per_tok':8,'moe_intermediate_size':32,'n_group':4,"
                      "'topk_group':2,'n_shared_experts':3,'routed_scaling_factor':2.5"), NULL, 0);
    CHECK(k.experts.sigmoid && k.experts.renormalized && k.experts.groups == 4 && k.experts.groups_active == 2);
    CHECK(k.experts.shared_inter == 96 && !k.experts.shared_switch && k.experts.scale == 2.5f);
    k = read_good(MOE("GptOss", "'num_local_experts':32,'num_experts_per_tok':4"), NULL, 0);
    CHECK(k.act == EXL2__ACT_CLAMPED && k.act_limit == 7);
    k = read_good("{'architectures':['MiniMaxM2ForCausalLM']," SIZES ",'num_local_experts':8,'num_experts_per_tok':2,"
                  "'num_key_value_heads':4,'head_dim':32,'rotary_dim':16,'scoring_func':'sigmoid'}", NULL, 0);
    CHECK(k.rotary == 16 && k.experts.sigmoid && k.experts.renormalized);
    check_sparse(MIXTRAL(""), "11");
}

#define LAYERS(n) "'vocab_size':320,'hidden_size':128,'intermediate_size':96,'num_attention_heads':4," \
                  "'num_key_value_heads':4,'rms_norm_eps':1e-05,'num_experts':8,'num_experts_per_tok':2," \
                  "'num_hidden_layers':" n

static void check_expert_layers(void)
{
    check_sparse("{'architectures':['Qwen2MoeForCausalLM']," LAYERS("6") ",'mlp_only_layers':[1,7],"
                 "'decoder_sparse_step':2}", "000101");
    check_sparse("{'architectures':['Qwen2MoeForCausalLM']," LAYERS("4") ",'mlp_only_layers':[1]}", "1011");
    check_sparse("{'architectures':['Glm4MoeForCausalLM']," LAYERS("3") "}", "011");
    check_sparse("{'architectures':['Glm4MoeForCausalLM']," LAYERS("4") ",'first_k_dense_replace':3}", "0001");
    check_sparse("{'architectures':['SolarOpenForCausalLM']," LAYERS("2") "}", "11");
    check_sparse("{'architectures':['Ernie4_5_MoeForCausalLM']," LAYERS("6") ",'moe_layer_start_index':1,"
                 "'moe_layer_end_index':4,'moe_layer_interval':2}", "010100");
    check_sparse("{'architectures':['Ernie4_5_MoeForCausalLM']," LAYERS("3") ",'moe_layer_start_index':1,"
                 "'moe_layer_end_index':-1}", "011");
    check_sparse("{'architectures':['ExaoneMoeForCausalLM']," LAYERS("3") ",'mlp_layer_types':['dense','sparse',"
                 "'dense']}", "010");
    check_sparse("{'architectures':['ExaoneMoeForCausalLM']," LAYERS("2") ",'is_moe_layer':[false,true]}", "01");
    exl2__config k = read_good("{'architectures':['Glm4MoeForCausalLM']," LAYERS("1") "}", NULL, 0);
    CHECK_INT(k.experts.count, 0); /* no layer has experts */
}

static void check_experts_refused(void)
{
    static const struct { const char *text, *piece, *other; exl2_result code; } bad[] = {
        { MOE("Gemmoe", "'num_experts_per_tok':2"), "num_local_experts is missing", "config.json", EXL2_ERR_FORMAT },
        { MOE("Gemmoe", "'num_local_experts':8"), "num_experts_per_tok is missing", "config.json", EXL2_ERR_FORMAT },
        { MOE("Mixtral", "'num_local_experts':8,'num_experts_per_tok':9"), "num_experts_per_tok=9", "from 1 to 8",
          EXL2_ERR_FORMAT },
        { MOE("Mixtral", "'num_local_experts':8,'num_experts_per_tok':0"), "num_experts_per_tok=0", "from 1 to 8",
          EXL2_ERR_FORMAT },
        { MOE("Mixtral", "'num_local_experts':4097,'num_experts_per_tok':2"), "num_local_experts=4097", "to 4096",
          EXL2_ERR_FORMAT },
        { MOE("Mixtral", "'num_local_experts':0,'num_experts_per_tok':2"), "num_local_experts=0", "from 1",
          EXL2_ERR_FORMAT },
        { MOE("Mixtral", "'num_local_experts':-1,'num_experts_per_tok':2"), "num_local_experts=-1", "from 1",
          EXL2_ERR_FORMAT },
        { MIXTRAL(",'routed_scaling_factor':0"), "routed_scaling_factor=0", "a number", EXL2_ERR_FORMAT },
        { MIXTRAL(",'moe_intermediate_size':0"), "moe_intermediate_size=0", "from 1", EXL2_ERR_FORMAT },
        { MIXTRAL(",'mlp_only_layers':3"), "mlp_only_layers=3", "a list", EXL2_ERR_FORMAT },
        { MIXTRAL(",'mlp_only_layers':['x']"), "mlp_only_layers='x'", "the number of a layer", EXL2_ERR_FORMAT },
        { MIXTRAL(",'decoder_sparse_step':0"), "decoder_sparse_step=0", "from 1", EXL2_ERR_FORMAT },
        { MIXTRAL(",'mlp_layer_types':['sparse']"), "mlp_layer_types=[1 values]", "2 layers", EXL2_ERR_FORMAT },
        { MIXTRAL(",'mlp_layer_types':['sparse','odd']"), "mlp_layer_types='odd'", "dense", EXL2_ERR_FORMAT },
        { MIXTRAL(",'moe_layer_end_index':-2"), "moe_layer_end_index=-2", "-1", EXL2_ERR_FORMAT },
        { MIXTRAL(",'scoring_func':'sigmoid'"), "scoring_func='sigmoid'", "only softmax", EXL2_ERR_UNSUPPORTED },
        { MOE("Glm4Moe", "'n_routed_experts':10,'num_experts_per_tok':2,'n_group':4"), "n_group=4", "10 experts",
          EXL2_ERR_FORMAT },
        { MOE("Glm4Moe", "'n_routed_experts':8,'num_experts_per_tok':5,'n_group':4,'topk_group':2"), "topk_group=2",
          "5 are chosen", EXL2_ERR_FORMAT },
        { MOE("Glm4Moe", "'n_routed_experts':8,'num_experts_per_tok':5,'n_group':4,'topk_group':5"), "topk_group=5",
          "from 1 to 4", EXL2_ERR_FORMAT },
        { MOE("Glm4Moe", "'n_routed_experts':8,'num_experts_per_tok':2,'moe_intermediate_size':1048576,"
              "'n_shared_experts':2"), "n_shared_experts=2", "too wide", EXL2_ERR_FORMAT },
        { "{'architectures':['MixtralForCausalLM'],'vocab_size':320,'hidden_size':128,'intermediate_size':96,"
          "'num_attention_heads':4,'num_key_value_heads':4,'rms_norm_eps':1e-05,'num_hidden_layers':33,"
          "'num_local_experts':4096,'num_experts_per_tok':1}",
          "135168 experts in all", "at most 131072", EXL2_ERR_UNSUPPORTED },
        { MOE("Dbrx", "'ffn_config':{'moe_num_experts':4,'moe_top_k':2,'moe_normalize_expert_weights':2}"),
          "moe_normalize_expert_weights=2", "only 1 and null", EXL2_ERR_UNSUPPORTED },
        { MOE("GptOss", "'num_local_experts':8,'num_experts_per_tok':2,'swiglu_limit':0"), "swiglu_limit=0",
          "a number", EXL2_ERR_FORMAT },
    };
    for (size_t i = 0; i < EXL2__COUNT(bad); i++) {
        read_bad(bad[i].text, NULL, bad[i].code, bad[i].piece, bad[i].other);
    }
    exl2__config k = read_good(MOE("Dbrx", "'ffn_config':{'moe_num_experts':4,'moe_top_k':2,"
                                   "'moe_normalize_expert_weights':null}"), NULL, 0);
    CHECK(!k.experts.renormalized);
}

/* A config.json of another row. */
static void refuse_row(const char *row, const char *more, exl2_result code, const char *piece, const char *other)
{
    char text[1024];
    snprintf(text, sizeof text, "{'architectures':['%s']," SIZES ",%s}", row, more);
    read_bad(text, NULL, code, piece, other);
}

/* Hostile values of the fields that only some rows read. */
static void check_hostile_rows(void)
{
    static const char *const windows[] = { "0", "-1", "2147483648", "1.5", "'all'", "1e999" };
    static const char *const factors[] = { "0", "-1", "1e30", "1e-30", "'1'", "true" };
    static const char *const names[] = { "attn_logit_softcapping", "final_logit_softcapping", "scale_emb",
                                         "query_pre_attn_scalar", "logits_scaling", "residual_multiplier" };
    char more[300], found[64];
    for (size_t i = 0; i < EXL2__COUNT(windows); i++) {
        snprintf(more, sizeof more, "'num_key_value_heads':4,'sliding_window':%s", windows[i]);
        snprintf(found, sizeof found, "sliding_window=%.8s", windows[i]);
        refuse_row("MistralForCausalLM", more, EXL2_ERR_FORMAT, found, "an integer from 1 to 1073741824");
    }
    for (size_t i = 0; i < EXL2__COUNT(factors) * EXL2__COUNT(names); i++) {
        const char *name = names[i % EXL2__COUNT(names)], *value = factors[i / EXL2__COUNT(names)];
        snprintf(more, sizeof more, "'%s':%s", name, value);
        snprintf(found, sizeof found, "%s=%s", name, value);
        refuse_row("Gemma2ForCausalLM", more, EXL2_ERR_FORMAT, found,
                   strstr(name, "softcapping") ? "a number from 1e-3 to 1e6" : "a number from 1e-6 to 1e6");
    }
    refuse_row("Gemma2ForCausalLM", "'logit_scale':NaN", EXL2_ERR_FORMAT, "logit_scale=NaN is out of range", "");
    refuse_row("CwmForCausalLM", "'layer_types':['full_attention']", EXL2_ERR_FORMAT, "layer_types=[1 values]",
               "one word for each of the 2 layers");
    refuse_row("CwmForCausalLM", "'layer_types':'full_attention'", EXL2_ERR_FORMAT, "layer_types='full_attention'",
               "a list");
    refuse_row("CwmForCausalLM", "'layer_types':['full_attention','chunked_attention']", EXL2_ERR_UNSUPPORTED,
               "layer_types='chunked_attention'", "only full_attention and sliding_attention");
    refuse_row("CwmForCausalLM", "'layer_types':['full_attention',3]", EXL2_ERR_UNSUPPORTED, "layer_types=3", "only");
    refuse_row("Exaone4ForCausalLM", "'sliding_window_pattern':0", EXL2_ERR_FORMAT, "sliding_window_pattern=0",
               "from 1");
    refuse_row("Exaone4ForCausalLM", "'sliding_window_pattern':'LLX'", EXL2_ERR_FORMAT,
               "sliding_window_pattern='LLX'", "letters L and G");
    refuse_row("Exaone4ForCausalLM", "'sliding_window_pattern':''", EXL2_ERR_FORMAT, "sliding_window_pattern=''",
               "letters L and G");
    refuse_row("SmolLM3ForCausalLM", "'no_rope_layers':[1]", EXL2_ERR_FORMAT, "no_rope_layers=[1 values]",
               "each of the 2 layers");
    refuse_row("SmolLM3ForCausalLM", "'no_rope_layers':[1,2]", EXL2_ERR_FORMAT, "no_rope_layers=2", "0 or 1");
    refuse_row("SmolLM3ForCausalLM", "'no_rope_layer_interval':0", EXL2_ERR_FORMAT, "no_rope_layer_interval=0",
               "from 1");
    refuse_row("Qwen2ForCausalLM", "'use_sliding_window':'yes'", EXL2_ERR_FORMAT, "use_sliding_window='yes'",
               "true or false");
    refuse_row("Qwen2ForCausalLM", "'use_sliding_window':true,'max_window_layers':-1", EXL2_ERR_FORMAT,
               "max_window_layers=-1", "an integer");
    refuse_row("Gemma3ForCausalLM", "'rope_local_base_freq':0", EXL2_ERR_FORMAT, "rope_local_base_freq=0",
               "at least 1");
    refuse_row("CohereForCausalLM", "'use_qk_norm':[]", EXL2_ERR_FORMAT, "use_qk_norm=[0 values]", "true or false");
    refuse_row("CohereForCausalLM", "'logit_scale':0", EXL2_ERR_FORMAT, "logit_scale=0", "a number from");
    refuse_row("StableLmForCausalLM", "'partial_rotary_factor':0", EXL2_ERR_FORMAT, "partial_rotary_factor=0",
               "above 0");
    refuse_row("StableLmForCausalLM", "'partial_rotary_factor':0.1", EXL2_ERR_FORMAT, "3 rotated elements", "even");
    refuse_row("ArceeForCausalLM", "'hidden_act':'silu'", EXL2_ERR_UNSUPPORTED, "hidden_act='silu'",
               "only relu2");
    refuse_row("GemmaForCausalLM", "'hidden_activation':'quick_gelu'", EXL2_ERR_UNSUPPORTED,
               "hidden_activation='quick_gelu'", "only gelu and gelu_pytorch_tanh");
    refuse_row("Qwen2ForCausalLM", "'hidden_act':['silu']", EXL2_ERR_UNSUPPORTED, "hidden_act=[1 values]", "only silu");
    refuse_row("Ministral3ForCausalLM", "'num_key_value_heads':4,'rope_parameters':{'llama_4_scaling_beta':-1}",
               EXL2_ERR_FORMAT, "llama_4_scaling_beta=-1", "a number from 0 to 1e3");
    refuse_row("Ministral3ForCausalLM", "'num_key_value_heads':4,'rope_parameters':{'llama_4_scaling_beta':1}",
               EXL2_ERR_FORMAT, "original_max_position_embeddings is missing", "");
    refuse_row("Phi3ForCausalLM", "'head_dim':4,'rope_scaling':{'type':'su','short_factor':[1,1],'long_factor':[1]}",
               EXL2_ERR_FORMAT, "long_factor=[1 values]", "a list of 2 numbers");
    refuse_row("Phi3ForCausalLM", "'head_dim':4,'rope_scaling':{'type':'su','short_factor':[1,1],'long_factor':[1,"
               "1e-9]}", EXL2_ERR_FORMAT, "long_factor=1e-9", "1e-6 to 1e6");
}

static void check_refused(void)
{
    refuse("'hidden_act':'gelu'", EXL2_ERR_UNSUPPORTED, "hidden_act='gelu'", "only silu");
    refuse("'logit_scale':0", EXL2_ERR_FORMAT, "logit_scale=0", "a number from");
    refuse("'logits_scaling':-1", EXL2_ERR_FORMAT, "logits_scaling=-1", "a number from");
    refuse("'scale_emb':1e30", EXL2_ERR_FORMAT, "scale_emb=1e30", "config.json");
    refuse("'residual_multiplier':'x'", EXL2_ERR_FORMAT, "residual_multiplier='x'", "config.json");
    refuse("'final_logit_softcapping':0", EXL2_ERR_FORMAT, "final_logit_softcapping=0", "config.json");
    refuse("'attn_logit_softcapping':-3", EXL2_ERR_FORMAT, "attn_logit_softcapping=-3", "config.json");
    refuse("'partial_rotary_factor':0", EXL2_ERR_FORMAT, "partial_rotary_factor=0", "above 0");
    refuse("'partial_rotary_factor':1.5", EXL2_ERR_FORMAT, "partial_rotary_factor=1.5", "up to 1");
    refuse("'head_dim':8,'partial_rotary_factor':0.4", EXL2_ERR_FORMAT, "3 rotated elements", "even number");
    refuse("'head_dim':264", EXL2_ERR_UNSUPPORTED, "head_dim=264", "at most 256");
    refuse("'head_dim':7", EXL2_ERR_FORMAT, "head_dim=7 is odd", "RoPE rotates pairs");
    refuse("'text_config':7", EXL2_ERR_FORMAT, "text_config=7", "an object");
    refuse("'text_config':[1]", EXL2_ERR_FORMAT, "text_config=[1 values]", "an object");
    refuse("'swiglu_alpha':1.5", EXL2_ERR_UNSUPPORTED, "swiglu_alpha=1.5", "only 1.702");
    refuse("'num_local_experts':8", EXL2_ERR_UNSUPPORTED, "num_local_experts=8", "only 0");
    refuse("'logit_scale':'1'", EXL2_ERR_FORMAT, "logit_scale='1'", "a number");
    refuse("'quantization_config':{'quant_method':'fp8'}", EXL2_ERR_UNSUPPORTED, "quant_method='fp8'",
           "only exl2, exl3, gptq and awq");
    refuse("'rope_scaling':{'type':'curly','factor':4}", EXL2_ERR_UNSUPPORTED, "type='curly'", "linear, dynamic, yarn");
    refuse("'rope_scaling':{'type':'dynamic'}", EXL2_ERR_FORMAT, "rope_scaling->factor is missing", "config.json");
    refuse("'rope_scaling':{'type':'yarn','factor':4,'beta_fast':1,'beta_slow':32}", EXL2_ERR_FORMAT, "beta_fast",
           "greater than beta_slow");
    refuse("'rope_scaling':{'rope_type':'longrope'}", EXL2_ERR_FORMAT, "original_max_position_embeddings is missing",
           "config.json");
    refuse("'original_max_position_embeddings':0,'rope_scaling':{'rope_type':'longrope'}", EXL2_ERR_FORMAT,
           "original_max_position_embeddings=0", "at least 1");
    refuse("'head_dim':4,'original_max_position_embeddings':8,'rope_scaling':{'type':'su','short_factor':[1],"
           "'long_factor':[1,1]}", EXL2_ERR_FORMAT, "short_factor=[1 values]", "a list of 2 numbers");
    refuse("'head_dim':4,'original_max_position_embeddings':8,'rope_scaling':{'type':'su','short_factor':[1,0],"
           "'long_factor':[1,1]}", EXL2_ERR_FORMAT, "short_factor=0", "1e-6 to 1e6");
    refuse("'rope_scaling':{'type':'linear'}", EXL2_ERR_FORMAT, "rope_scaling->factor is missing", "config.json");
    refuse("'rope_scaling':{'type':'linear','factor':0.5}", EXL2_ERR_FORMAT, "rope_scaling->factor=0.5", "at least 1");
    refuse("'rope_scaling':{'type':'llama3','factor':8,'low_freq_factor':4,'high_freq_factor':4,"
           "'original_max_position_embeddings':8192}", EXL2_ERR_FORMAT, "high_freq_factor",
           "must be greater than low_freq_factor");
    refuse("'rope_theta':0", EXL2_ERR_FORMAT, "rope_theta=0", "at least 1");
    refuse("'rope_theta':1e400", EXL2_ERR_FORMAT, "rope_theta=1e400", "at least 1");
    refuse("'num_key_value_heads':3", EXL2_ERR_FORMAT, "num_attention_heads=4", "num_key_value_heads=3");
    refuse("'num_key_value_heads':0", EXL2_ERR_FORMAT, "num_key_value_heads=0", "from 1");
    refuse("'head_dim':33", EXL2_ERR_FORMAT, "head_dim=33 is odd", "config.json");
    refuse("'head_dim':100000", EXL2_ERR_FORMAT, "head_dim=100000", "from 0 to 4096");
    refuse("'max_position_embeddings':0", EXL2_ERR_FORMAT, "max_position_embeddings=0", "positive");
    refuse("'tie_word_embeddings':'yes'", EXL2_ERR_FORMAT, "tie_word_embeddings='yes'", "true or false");
    refuse("'eos_token_id':'</s>'", EXL2_ERR_FORMAT, "eos_token_id='</s>'", "a token id");
    refuse("'eos_token_id':[1,[2]]", EXL2_ERR_FORMAT, "eos_token_id=[1 values]", "a token id");
    refuse("'eos_token_id':[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", EXL2_ERR_UNSUPPORTED,
           "eos_token_id has more than 16", "config.json");
    read_bad("{" SIZES "}", NULL, EXL2_ERR_FORMAT, "config.json: architectures is missing", "");
    read_bad("{'architectures':'LlamaForCausalLM'," SIZES "}", NULL, EXL2_ERR_FORMAT,
             "architectures='LlamaForCausalLM'", "a list");
    read_bad("{'architectures':[]," SIZES "}", NULL, EXL2_ERR_FORMAT, "config.json: architectures is missing", "");
    read_bad("{'architectures':[7]," SIZES "}", NULL, EXL2_ERR_FORMAT, "architectures=[1 values]", "exactly one name");
    read_bad("{" LLAMA "}", NULL, EXL2_ERR_FORMAT, "vocab_size is missing", "config.json");
    read_bad("{" LLAMA ",'vocab_size':1.5}", NULL, EXL2_ERR_FORMAT, "vocab_size=1.5", "an integer from 1 to 16777216");
    read_bad("{" LLAMA ",'vocab_size':-1}", NULL, EXL2_ERR_FORMAT, "vocab_size=-1", "an integer");
    read_bad("{" LLAMA ",'vocab_size':320,'hidden_size':130,'intermediate_size':96,'num_hidden_layers':2,"
             "'num_attention_heads':4,"
             "'rms_norm_eps':1e-05}", NULL, EXL2_ERR_FORMAT, "hidden_size=130", "num_attention_heads=4");
    read_bad("{" LLAMA ",'vocab_size':320,'hidden_size':128,'intermediate_size':96,'num_hidden_layers':2}", NULL,
             EXL2_ERR_FORMAT,
             "rms_norm_eps is missing", "config.json");
    read_bad(BASE "}", "[]", EXL2_ERR_FORMAT, "generation_config.json: expected an object at the top level", "");
    read_bad(BASE "}", "", EXL2_ERR_FORMAT, "generation_config.json is not valid JSON", "");
    read_bad(NULL, NULL, EXL2_ERR_IO, "no config.json in models/x", "");
}

/* ---- what others write ---- */

/* Values of samplers: -1 is off; those that make no sense are as if they were absent, with a warning each. */
static void check_sampler_values(void)
{
    static const struct { const char *text; uint32_t warnings; bool has; uint32_t top_k; } tops[] = {
        { "{'top_k':-1}", 0, true, 0 }, { "{'top_k':0}", 0, true, 0 },      { "{'top_k':40.0}", 0, true, 40 },
        { "{'top_k':-2}", 1, false, 0 }, { "{'top_k':2.5}", 1, false, 0 },  { "{'top_k':'40'}", 1, false, 0 },
        { "{'top_k':1e20}", 1, false, 0 }, { "{'top_k':NaN}", 1, false, 0 }, { "{'top_k':null}", 0, false, 0 },
    };
    static const char *const senseless[] = {
        "{'temperature':-0.5}", "{'temperature':Infinity}", "{'temperature':'warm'}", "{'temperature':[1]}",
        "{'top_p':1.5}", "{'top_p':NaN}", "{'min_p':-1}", "{'repetition_penalty':0}",
        "{'repetition_penalty':-Infinity}", "{'do_sample':'yes'}", "{'do_sample':1}",
    };
    for (size_t i = 0; i < EXL2__COUNT(tops); i++) {
        exl2__config k = read_good(BASE "}", tops[i].text, tops[i].warnings);
        CHECK(k.defaults.has_top_k == tops[i].has && k.defaults.top_k == tops[i].top_k);
    }
    for (size_t i = 0; i < EXL2__COUNT(senseless); i++) {
        exl2__config k = read_good(BASE "}", senseless[i], 1);
        const exl2__config_defaults *d = &k.defaults;
        CHECK(!d->has_temperature && !d->has_top_p && !d->has_min_p && !d->has_repeat_penalty && !d->has_do_sample);
    }
    exl2__config k = read_good(BASE "}",
                               "{'temperature':-1,'top_p':0.5,'top_k':-9,'do_sample':true,'eos_token_id':7}", 2);
    CHECK(k.defaults.has_top_p && k.defaults.top_p == 0.5f && k.defaults.has_do_sample && k.defaults.do_sample);
    CHECK(!k.defaults.has_temperature && !k.defaults.has_top_k && k.eos_count == 1 && k.eos[0] == 7);
}

static void check_other_writers(void)
{
    read_good("\xEF\xBB\xBF" BASE "}", "\xEF\xBB\xBF{'top_k':7}", 0);
    read_good(BASE ",'time_step_limit':[0.0,Infinity],'loss':NaN,'floor':-Infinity}", "{'best':-Infinity}", 0);
    read_bad(BASE ",'rope_theta':Infinity}", NULL, EXL2_ERR_FORMAT, "config.json: rope_theta=Infinity is out of range",
             "");
    read_bad(BASE ",'max_position_embeddings':NaN}", NULL, EXL2_ERR_FORMAT, "max_position_embeddings=NaN",
             "a positive number");
    read_bad(BASE ",'extra':nan}", NULL, EXL2_ERR_FORMAT, "config.json is not valid JSON", "");
    /* model_type alone */
    exl2__config k = read_good("{'model_type':'llama'," SIZES "}", NULL, 0);
    CHECK_TEXT(k.arch.name, "LlamaForCausalLM");
    CHECK_TEXT(k.arch_name, "LlamaForCausalLM");
    k = read_good("{'architectures':null,'model_type':'qwen3'," SIZES "}", NULL, 0);
    CHECK_TEXT(k.arch.name, "Qwen3ForCausalLM");
    k = read_good("{'architectures':[],'model_type':'mistral','num_key_value_heads':4," SIZES "}", NULL, 0);
    CHECK_TEXT(k.arch.name, "MistralForCausalLM");
    read_bad("{" SIZES "}", NULL, EXL2_ERR_FORMAT, "architectures is missing", "");
    read_bad("{'model_type':7," SIZES "}", NULL, EXL2_ERR_FORMAT, "architectures is missing", "");
    read_bad("{'model_type':'nobody'," SIZES "}", NULL, EXL2_ERR_UNSUPPORTED, "model_type 'nobody' is not supported",
             "");
    read_bad("{'model_type':'falcon'," SIZES "}", NULL, EXL2_ERR_UNSUPPORTED, "'falcon' is not supported", "ALiBi");
    read_bad("{'architectures':[7],'model_type':'llama'," SIZES "}", NULL, EXL2_ERR_FORMAT, "exactly one name", "");
    /* other files in the place of config.json */
    read_bad("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 7\n", NULL, EXL2_ERR_FORMAT,
             "config.json is a Git LFS pointer", "git lfs pull");
    read_bad("<!doctype html>", NULL, EXL2_ERR_FORMAT, "config.json is a web page", "download it again");
    read_bad(BASE "}", "<html>", EXL2_ERR_FORMAT, "generation_config.json is a web page", "");
    memory_files m;
    exl2__config ignored;
    memory_make(&m);
    memory_add(&m, "config.json", "\0\0\0\0", 4);
    CHECK_INT(exl2__config_read(&m.c, "models/x", &ignored), EXL2_ERR_FORMAT);
    check_error(&m.c, "config.json is full of zeros", "download it again", "zeros");
    memory_free(&m);
}

/* ---- file.h ---- */

static void check_files(void)
{
    memory_files m;
    exl2__blob blob;
    memory_make(&m);
    memory_add_text(&m, "a.txt", "hello");
    memory_add_text(&m, "empty.txt", "");
    m.piece = 2;
    CHECK_INT(exl2__file_read_all(&m.c, "d", "a.txt", 5, &blob), EXL2_OK);
    CHECK_INT(blob.bytes, 5);
    CHECK_TEXT(blob.data, "hello");
    exl2__blob_close(&m.c, &blob);
    exl2__blob_close(&m.c, &blob);
    CHECK_INT(exl2__file_read_all(&m.c, "d", "empty.txt", 5, &blob), EXL2_OK);
    CHECK_TEXT(blob.data, "");
    exl2__blob_close(&m.c, &blob);
    CHECK_INT(exl2__file_read_all(&m.c, "d", "a.txt", 4, &blob), EXL2_ERR_FORMAT);
    check_error(&m.c, "a.txt has 5 bytes", "at most 4", "large");
    CHECK_INT(exl2__file_read_optional(&m.c, "d", "b.txt", 4, &blob), EXL2_OK);
    CHECK(blob.data == NULL);
    CHECK_INT(exl2__file_read_all(&m.c, "d", "b.txt", 4, &blob), EXL2_ERR_IO);
    check_error(&m.c, "no b.txt in d", "", "absent");
    m.files[0].there = 3;
    CHECK_INT(exl2__file_read_all(&m.c, "d", "a.txt", 9, &blob), EXL2_ERR_IO);
    check_error(&m.c, "a.txt", "reached the end of the file after 3", "short");
    CHECK(blob.data == NULL);
    m.c.host_bytes_max = 3;
    CHECK_INT(exl2__file_read_all(&m.c, "d", "a.txt", 9, &blob), EXL2_ERR_BUDGET);
    memory_free(&m);
}

int main(void)
{
    check_least();
    check_full();
    check_variants();
    check_rope();
    check_architectures();
    check_experts();
    check_expert_layers();
    check_experts_refused();
    check_hostile_rows();
    check_refused();
    check_sampler_values();
    check_other_writers();
    check_files();
    return check_done();
}
