/* arch.c: every row of arch_rows.h against what transformers computes for the same config.json, written by hand: the
   numbers and switches, the window and the RoPE table of every layer, the phases, the names of all tensors in order,
   and what the prefixes and names of published files become. Each row is read with the few fields that every file has,
   so that the defaults of the row itself are checked; fields of the file are checked after that. */
#include "../memory_files.h"

#include "private/model_config_read.h"
#include "private/units.h"

#include <stdarg.h>

#define SIZES "'vocab_size':320,'hidden_size':128,'intermediate_size':96,'num_hidden_layers':6," \
              "'num_attention_heads':4"
#define LAYERS 6u

static exl2_result read_config(const char *fields, exl2__config *out, char error[256])
{
    static memory_files m;
    memory_make(&m);
    memory_add_text(&m, "config.json", json_text(fields));
    exl2_result result = exl2__config_read(&m.c, "models/x", out);
    snprintf(error, 256, "%s", m.c.error.text);
    memory_free(&m);
    return result;
}

/* ---- a config and its plan as text ---- */

typedef struct text {
    char bytes[2048];
    size_t used;
} text;

static void add(text *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int count = vsnprintf(t->bytes + t->used, sizeof t->bytes - t->used, format, list);
    va_end(list);
    t->used += count > 0 ? (size_t)count : 0;
}

/* "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, tied": norm with its epsilon, heads of q and K/V and their size, the
   rotated elements, the activation; then what else differs from Llama. */
static void describe(const exl2__config *k, const exl2__shape *s, text *t)
{
    static const char *const norms[] = { "", "rms", "rms+1", "layer", "layer+1" };
    static const char *const acts[] = { "", "silu", "gelu_tanh", "gelu", "relu2", "clamped" };
    static const char *const qk[] = { "", "", ", qk heads", ", qk heads rotated", ", qk whole" };
    const uint8_t *traits = k->arch.traits;
    add(t, "%s %g, %u %u %u, ", norms[traits[EXL2__TRAIT_NORM]], (double)k->norm_eps, s->heads, s->kv_heads,
        s->head_dim);
    CHECK_INT(s->layer_norm, traits[EXL2__TRAIT_NORM] >= EXL2__NORM_LAYER);
    if (s->rotary) {
        add(t, "%s %u theta %g", s->pairs ? "pairs" : "halves", s->rotary, k->rope.theta);
        if (k->has_local_rope) {
            add(t, "/%g", k->local_rope.theta);
        }
    } else {
        add(t, "learned");
    }
    add(t, ", %s%s%s%s%s%s", acts[s->act], s->gated ? "" : ", no gate", s->parallel ? ", parallel" : "", qk[s->qk_norm],
        k->tie_embeddings ? ", tied" : "", traits[EXL2__TRAIT_NEEDS_BOS] == EXL2__YES ? ", bos" : "");
    if (s->attn_softcap > 0 || s->final_softcap > 0) {
        add(t, ", caps %g %g", (double)s->attn_softcap, (double)s->final_softcap);
    }
    if (s->embed_scale > 1 || s->residual_scale < 1 || s->logit_scale < 1) {
        add(t, ", factors %.6g %.6g %.6g", (double)s->embed_scale, (double)s->residual_scale, (double)s->logit_scale);
    }
    if (fabs((double)s->attn_scale * sqrt((double)s->head_dim) - 1) > 1e-6) {
        add(t, ", scale %g", (double)s->attn_scale);
    }
    add(t, "; context %u", k->context_max);
}

static void describe_layers(const exl2__layer *layers, text *windows, text *ropes, text *phases)
{
    static const char *const names[] = {
#define X(name) #name,
        EXL2__PHASES(X)
#undef X
    };
    for (uint32_t i = 0; i < LAYERS; i++) {
        if (layers[i].window == UINT32_MAX) {
            add(windows, "%s-", i ? " " : "");
        } else {
            add(windows, "%s%u", i ? " " : "", layers[i].window);
        }
        if (layers[i].rope == EXL2__NO_ROPE) {
            add(ropes, "-");
        } else {
            add(ropes, "%u", layers[i].rope);
        }
        CHECK(layers[i].index == i && (layers[i].phases == layers[1].phases || i == 0));
    }
    for (uint32_t i = 0; i < layers[1].phase_count; i++) {
        add(phases, "%s%s", i ? " " : "", names[layers[1].phases[i]]);
    }
}

/* "; experts 0-5 2 of 8 x 96, softmax, renormalized": layers, active and all, width, scores; then what else there
   is. */
static void describe_experts(const exl2__config *k, text *t)
{
    const exl2__experts *e = &k->experts;
    uint32_t first = 0;
    while (first < LAYERS && !exl2__config_layer(k->sparse, first)) {
        first++;
    }
    if (e->count) {
        add(t, "; experts %u-5 %u of %u x %u, %s%s", first, e->active, e->count, e->inter,
            e->sigmoid ? "sigmoid" : "softmax", e->renormalized ? ", renormalized" : "");
        if (e->shared_inter) {
            add(t, ", shared %u%s", e->shared_inter, e->shared_switch ? " switched" : "");
        }
        if (e->scale > 1) {
            add(t, ", times %g", (double)e->scale);
        }
    }
}

/* Matrices are loaded in this order, but that `down` comes before the gate and up of its MLP or expert. */
static void unit_in_order(const exl2__config *k, uint32_t i, exl2__unit *u)
{
    exl2__unit_make(k, i, u);
    if (u->kind == EXL2__UNIT_DOWN || u->kind == EXL2__UNIT_EXPERT_DOWN) {
        exl2__unit_make(k, i + 1, u);
        CHECK(u->kind == EXL2__UNIT_GATE_UP || u->kind == EXL2__UNIT_EXPERT_UP);
    } else if (u->kind == EXL2__UNIT_GATE_UP || u->kind == EXL2__UNIT_EXPERT_UP) {
        exl2__unit_make(k, i - 1, u);
    }
}

/* The matrices of layer 1 in the order of a pass, "(name)": the tensor that may hold those before it; then "|" and its
   vectors. Around them are those outside of the layers. */
static void describe_tensors(const exl2__config *k, text *t)
{
    const char *prefix = "model.layers.1.";
    size_t skip = strlen(prefix);
    bool untied = !k->tie_embeddings;
    for (uint32_t i = 0; i < exl2__unit_count(k, !untied); i++) {
        exl2__unit u;
        unit_in_order(k, i, &u);
        bool of_layer = u.kind != EXL2__UNIT_EMBED && u.kind != EXL2__UNIT_POSITIONS && u.kind != EXL2__UNIT_HEAD;
        for (uint32_t part = 0; part < u.count && (!of_layer || u.layer == 1); part++) {
            CHECK(!of_layer || strncmp(u.keys[part], prefix, skip) == 0);
            add(t, "%s%s", t->used ? " " : "", u.keys[part] + (of_layer ? skip : 0));
            if (part + 1 == u.count && u.fused[0][0]) {
                add(t, " (%s)", u.fused[0] + skip);
            }
        }
    }
    for (uint32_t layer = 1; layer < 3; layer++) {
        exl2__unit_vector vectors[EXL2__UNIT_VECTORS_MAX];
        uint32_t count = exl2__unit_vectors(k, layer == 1 ? 1 : EXL2__UNIT_NO_LAYER, vectors);
        add(t, " |");
        for (uint32_t i = 0; i < count; i++) {
            add(t, " %s%s", vectors[i].tensor + (layer == 1 ? skip : 0), vectors[i].plus_one ? "+1" : "");
        }
    }
}

/* ---- the rows ---- */

#define PLAIN "qkv attend out gate_up down"
#define SETTLED "qkv attend out settle gate_up down settle"
#define PARALLEL "qkv gate_up attend out down"
#define NO_WINDOWS "- - - - - -"

#define ATTENTION "model.embed_tokens self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj "
#define GATED "mlp.gate_proj mlp.up_proj (mlp.swiglu.w12) mlp.down_proj"
#define HEAD " lm_head"
#define NORMS " | input_layernorm.weight post_attention_layernorm.weight"
#define LAYER_NORMS " | input_layernorm.weight input_layernorm.bias post_attention_layernorm.weight " \
                    "post_attention_layernorm.bias"
#define GEMMA_NORMS " | input_layernorm.weight+1 post_attention_layernorm.weight+1 " \
                    "pre_feedforward_layernorm.weight+1 post_feedforward_layernorm.weight+1"
#define QK_NORMS " self_attn.q_norm.weight self_attn.k_norm.weight"
#define LAST " | model.norm.weight"
#define LLAMA_TENSORS ATTENTION GATED HEAD NORMS LAST
#define TIED_TENSORS ATTENTION GATED NORMS LAST

#define KV ",'num_key_value_heads':4"
#define TWO ",'num_experts':2,'num_experts_per_tok':1"
#define ROUTED "qkv attend out route expert_up expert_down"
#define ROUTED_SHARED "qkv attend out route gate_up expert_up down expert_down"
#define MIXTRAL_EXPERT(n) " block_sparse_moe.experts." n ".w1 block_sparse_moe.experts." n ".w3 " \
                          "(block_sparse_moe.experts.gate_up_proj) block_sparse_moe.experts." n ".w2 " \
                          "(block_sparse_moe.experts.down_proj)"
#define MIXTRAL "block_sparse_moe.gate" MIXTRAL_EXPERT("0") MIXTRAL_EXPERT("1")
#define EXPERT(n) "mlp.experts." n ".gate_proj mlp.experts." n ".up_proj (mlp.experts.gate_up_proj) " \
                  "mlp.experts." n ".down_proj (mlp.experts.down_proj)"
#define TWO_EXPERTS EXPERT("0") " " EXPERT("1")
#define GRANITE_EXPERT(n) " block_sparse_moe.experts." n ".gate_proj block_sparse_moe.experts." n ".up_proj " \
                          "(block_sparse_moe.input_linear) block_sparse_moe.experts." n ".down_proj " \
                          "(block_sparse_moe.output_linear)"
#define GRANITE_EXPERTS "block_sparse_moe.router.layer" GRANITE_EXPERT("0") GRANITE_EXPERT("1")

typedef struct row_case {
    const char *arch, *more; /* more: fields of config.json */
    const char *about, *windows, *ropes, *phases, *tensors; /* phases: of layer 1; tensors NULL: in the next row */
} row_case;

#define EPS ",'rms_norm_eps':1e-05"

static const row_case rows[] = {
    { "LlamaForCausalLM", EPS, "rms 1e-05, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000",
      PLAIN, LLAMA_TENSORS },
    { "MistralForCausalLM", "", "rms 1e-06, 4 8 32, halves 32 theta 10000, silu; context 131072", "", "", "", "" },
    { "MistralForCausalLM", ",'num_key_value_heads':null",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 131072", "4096 4096 4096 4096 4096 4096", "000000",
      PLAIN, LLAMA_TENSORS },
    { "MistralForCausalLM", ",'num_key_value_heads':2,'sliding_window':null",
      "rms 1e-06, 4 2 32, halves 32 theta 10000, silu; context 131072", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "MinistralForCausalLM", ",'num_key_value_heads':4,'sliding_window':64,'layer_types':['sliding_attention',"
      "'full_attention','sliding_attention','sliding_attention','full_attention','sliding_attention']",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 131072", "64 - 64 64 - 64", "000000", PLAIN,
      LLAMA_TENSORS },
    { "Ministral3ForCausalLM", ",'num_key_value_heads':4",
      "rms 1e-05, 4 4 128, halves 128 theta 1e+06, silu; context 262144", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "SmolVLMForConditionalGeneration", ",'text_config':{'model_type':'llama','num_key_value_heads':2},"
      "'vision_config':{'model_type':'smolvlm_vision'}",
      "rms 1e-06, 4 2 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "Idefics3ForConditionalGeneration", ",'text_config':{'model_type':'qwen2'}",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "Idefics3ForConditionalGeneration", ",'text_config':{'model_type':'mistral','num_key_value_heads':2,"
      "'sliding_window':64}", "rms 1e-06, 4 2 32, halves 32 theta 10000, silu; context 131072", "64 64 64 64 64 64",
      "000000", PLAIN, LLAMA_TENSORS },
    { "LlavaForConditionalGeneration", ",'vision_config':{'model_type':'clip_vision_model'}",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "LlavaForConditionalGeneration", ",'num_key_value_heads':2,'head_dim':48,"
      "'vision_config':{'model_type':'pixtral'}",
      "rms 1e-06, 4 2 48, halves 48 theta 10000, silu; context 131072", "4096 4096 4096 4096 4096 4096", "000000",
      PLAIN, LLAMA_TENSORS },
    { "LlavaForConditionalGeneration", ",'text_config':{'model_type':'mistral','head_dim':48,"
      "'num_key_value_heads':2,'sliding_window':null}",
      "rms 1e-06, 4 2 48, halves 48 theta 10000, silu; context 131072", NO_WINDOWS, "000000", PLAIN,
      ATTENTION "mlp.gate_proj mlp.up_proj (mlp.swiglu.w12) mlp.down_proj" HEAD NORMS LAST },
    { "LlavaForConditionalGeneration", ",'text_config':{'model_type':'qwen2'}",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "Mistral3ForConditionalGeneration", ",'text_config':{'model_type':'ministral3','num_key_value_heads':2}",
      "rms 1e-05, 4 2 128, halves 128 theta 1e+06, silu; context 262144", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "CwmForCausalLM", "", "rms 1e-05, 4 4 128, halves 128 theta 1e+06, silu; context 2048",
      "- 8192 8192 8192 - 8192", "000000", PLAIN, LLAMA_TENSORS },
    { "YiForCausalLM", EPS, "rms 1e-05, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000",
      PLAIN, LLAMA_TENSORS },
    { "InternLM2ForCausalLM", EPS, "rms 1e-05, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS,
      "000000", PLAIN,
      "model.embed_tokens self_attn.q_proj self_attn.k_proj self_attn.v_proj (self_attn.wqkv) self_attn.o_proj "
      "feed_forward.w1 feed_forward.w3 (mlp.swiglu.w12) feed_forward.w2 lm_head | attention_norm.weight "
      "ffn_norm.weight" LAST },
    { "IndexForCausalLM", EPS, "rms 1e-05, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000",
      PLAIN, LLAMA_TENSORS },
    { "SeedOssForCausalLM", ",'num_key_value_heads':2",
      "rms 1e-06, 4 2 128, halves 128 theta 10000, silu; context 2048", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "MiniCPMForCausalLM", EPS ",'scale_emb':12,'scale_depth':1.4,'dim_model_base':32",
      "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, factors 12 0.571548 0.25; context 2048", NO_WINDOWS, "000000",
      PLAIN, LLAMA_TENSORS },
    { "GraniteForCausalLM", "", "rms 1e-06, 4 4 32, halves 32 theta 10000, silu, scale 1; context 2048", NO_WINDOWS,
      "000000", PLAIN, LLAMA_TENSORS },
    { "GraniteForCausalLM", ",'embedding_multiplier':12,'residual_multiplier':0.22,'attention_multiplier':0.0078125,"
      "'logits_scaling':8,'tie_word_embeddings':true",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu, tied, factors 12 0.22 0.125, scale 0.0078125; context 2048",
      NO_WINDOWS, "000000", PLAIN, TIED_TENSORS },
    { "Phi3ForCausalLM", ",'sliding_window':2047,'partial_rotary_factor':0.75",
      "rms 1e-05, 4 4 32, halves 24 theta 10000, silu; context 2048", "2047 2047 2047 2047 2047 2047", "000000",
      PLAIN, "model.embed_tokens self_attn.q_proj self_attn.k_proj self_attn.v_proj (self_attn.qkv_proj) "
      "self_attn.o_proj mlp.gate_proj mlp.up_proj (mlp.gate_up_proj) mlp.down_proj" HEAD NORMS LAST },
    { "SmolLM3ForCausalLM", "", "rms 1e-06, 4 4 32, halves 32 theta 2e+06, silu, tied; context 32768", NO_WINDOWS,
      "000-00", PLAIN, TIED_TENSORS },
    { "SmolLM3ForCausalLM", ",'no_rope_layers':[1,0,1,0,0,1,1],'sliding_window':16,'use_sliding_window':true",
      "rms 1e-06, 4 4 32, halves 32 theta 2e+06, silu, tied; context 32768", "- 16 - 16 16 -", "0-0--0", PLAIN,
      TIED_TENSORS },
    { "SmolLM3ForCausalLM", ",'no_rope_layer_interval':2,'sliding_window':16",
      "rms 1e-06, 4 4 32, halves 32 theta 2e+06, silu, tied; context 32768", NO_WINDOWS, "0-0-0-", PLAIN,
      TIED_TENSORS },
    { "HeliumForCausalLM", "", "rms 1e-08, 4 4 128, pairs 128 theta 100000, silu; context 4096", NO_WINDOWS,
      "000000", PLAIN, LLAMA_TENSORS },
    { "Ernie4_5ForCausalLM", ",'head_dim':16", "rms 1e-05, 4 2 16, pairs 16 theta 500000, silu, tied; context 131072",
      NO_WINDOWS, "000000", PLAIN, TIED_TENSORS },
    { "ArceeForCausalLM", EPS, "rms 1e-05, 4 4 32, halves 32 theta 10000, relu2, no gate; context 2048", NO_WINDOWS,
      "000000", PLAIN, ATTENTION "mlp.up_proj mlp.down_proj" HEAD NORMS LAST },
    { "HunYuanDenseV1ForCausalLM", EPS,
      "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, qk heads rotated; context 2048", NO_WINDOWS, "000000", PLAIN,
      ATTENTION GATED HEAD NORMS " self_attn.query_layernorm.weight self_attn.key_layernorm.weight" LAST },
    { "Qwen2ForCausalLM", "", "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000",
      PLAIN, LLAMA_TENSORS },
    { "Qwen2ForCausalLM", ",'use_sliding_window':true,'max_window_layers':4",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 2048", "- - - - 4096 4096", "000000", PLAIN,
      LLAMA_TENSORS },
    { "Qwen2ForCausalLM", ",'use_sliding_window':true,'sliding_window':16", /* 28 layers without a window */
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "Qwen2ForCausalLM", ",'sliding_window':16,'max_window_layers':0,'layer_types':['sliding_attention',"
      "'sliding_attention','sliding_attention','sliding_attention','sliding_attention','sliding_attention']",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "Qwen2VLForConditionalGeneration", ",'num_key_value_heads':2,'rope_scaling':{'type':'mrope',"
      "'mrope_section':[4,6,6]}", "rms 1e-05, 4 2 32, halves 32 theta 1e+06, silu; context 32768", NO_WINDOWS,
      "000000", PLAIN, LLAMA_TENSORS },
    { "Qwen2_5_VLForConditionalGeneration", ",'text_config':{'model_type':'qwen2_5_vl_text','num_key_value_heads':2,"
      "'rope_parameters':{'rope_type':'default','rope_theta':50000}}",
      "rms 1e-05, 4 2 32, halves 32 theta 50000, silu; context 32768", NO_WINDOWS, "000000", PLAIN, LLAMA_TENSORS },
    { "Qwen3ForCausalLM", ",'head_dim':64,'tie_word_embeddings':true",
      "rms 1e-06, 4 4 64, halves 64 theta 10000, silu, qk heads, tied; context 2048", NO_WINDOWS, "000000", PLAIN,
      ATTENTION GATED NORMS QK_NORMS LAST },
    { "Qwen3VLForConditionalGeneration", ",'text_config':{'model_type':'qwen3_vl_text','num_key_value_heads':2,"
      "'rope_scaling':{'rope_type':'default','mrope_interleaved':true,'mrope_section':[24,20,20]}}",
      "rms 1e-06, 4 2 128, halves 128 theta 5e+06, silu, qk heads; context 128000", NO_WINDOWS, "000000", PLAIN,
      ATTENTION GATED HEAD NORMS QK_NORMS LAST },
    { "GemmaForCausalLM", "",
      "rms+1 1e-06, 4 4 256, halves 256 theta 10000, gelu_tanh, tied, bos, factors 11.3137 1 1; context 8192",
      NO_WINDOWS, "000000", PLAIN, ATTENTION GATED " | input_layernorm.weight+1 post_attention_layernorm.weight+1 | "
      "model.norm.weight+1" },
    { "Gemma2ForCausalLM", "",
      "rms+1 1e-06, 4 4 256, halves 256 theta 10000, gelu_tanh, tied, bos, caps 50 30, factors 11.3137 1 1; "
      "context 8192", "4096 - 4096 - 4096 -", "000000", SETTLED,
      ATTENTION GATED GEMMA_NORMS " | model.norm.weight+1" },
    { "Gemma2ForCausalLM", ",'attn_logit_softcapping':null,'final_logit_softcapping':null,'query_pre_attn_scalar':144,"
      "'head_dim':128,'sliding_window':null",
      "rms+1 1e-06, 4 4 128, halves 128 theta 10000, gelu_tanh, tied, bos, factors 11.3137 1 1, scale 0.0833333; "
      "context 8192", NO_WINDOWS, "000000", SETTLED,
      ATTENTION GATED GEMMA_NORMS " | model.norm.weight+1" },
    { "Gemma3ForCausalLM", ",'sliding_window':512",
      "rms+1 1e-06, 4 4 256, halves 256 theta 1e+06/10000, gelu_tanh, qk heads, tied, bos, factors 11.3137 1 1; "
      "context 131072", "512 512 512 512 512 -", "111110", SETTLED,
      ATTENTION GATED GEMMA_NORMS " self_attn.q_norm.weight+1 self_attn.k_norm.weight+1 | model.norm.weight+1" },
    { "Gemma3ForConditionalGeneration", ",'text_config':{'model_type':'gemma3_text','rope_local_base_freq':20000,"
      "'sliding_window_pattern':2,'head_dim':64}",
      "rms+1 1e-06, 4 4 64, halves 64 theta 1e+06/20000, gelu_tanh, qk heads, tied, bos, factors 11.3137 1 1, "
      "scale 0.0625; context 131072", "4096 - 4096 - 4096 -", "101010", SETTLED,
      ATTENTION GATED GEMMA_NORMS " self_attn.q_norm.weight+1 self_attn.k_norm.weight+1 | model.norm.weight+1" },
    { "Gemma3ForCausalLM", ",'sliding_window':512,'rope_parameters':{'full_attention':{'rope_type':'linear',"
      "'factor':8,'rope_theta':5e5},'sliding_attention':{'rope_type':'default','rope_theta':3e4}}",
      "rms+1 1e-06, 4 4 256, halves 256 theta 500000/30000, gelu_tanh, qk heads, tied, bos, factors 11.3137 1 1; "
      "context 131072", "512 512 512 512 512 -", "111110", SETTLED,
      ATTENTION GATED GEMMA_NORMS " self_attn.q_norm.weight+1 self_attn.k_norm.weight+1 | model.norm.weight+1" },
    { "Olmo2ForCausalLM", "", "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, qk whole; context 2048", NO_WINDOWS,
      "000000", SETTLED, ATTENTION GATED HEAD " | post_attention_layernorm.weight post_feedforward_layernorm.weight"
      QK_NORMS LAST },
    { "Olmo3ForCausalLM", "", "rms 1e-05, 4 4 32, halves 32 theta 500000/500000, silu, qk whole; context 2048",
      "4096 4096 4096 - 4096 4096", "111011", SETTLED,
      ATTENTION GATED HEAD " | post_attention_layernorm.weight post_feedforward_layernorm.weight" QK_NORMS LAST },
    { "Exaone4ForCausalLM", "", "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, qk heads; context 2048",
      "4096 4096 4096 - 4096 4096", "000-00", SETTLED,
      ATTENTION GATED HEAD " | post_attention_layernorm.weight post_feedforward_layernorm.weight" QK_NORMS LAST },
    { "Exaone4ForCausalLM", ",'sliding_window':null", /* RoPE everywhere */
      "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, qk heads; context 2048", NO_WINDOWS, "000000", SETTLED,
      ATTENTION GATED HEAD " | post_attention_layernorm.weight post_feedforward_layernorm.weight" QK_NORMS LAST },
    { "Exaone4ForCausalLM", ",'sliding_window':32,'sliding_window_pattern':'LG'",
      "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, qk heads; context 2048", "32 - 32 - 32 -", "0-0-0-", SETTLED,
      ATTENTION GATED HEAD " | post_attention_layernorm.weight post_feedforward_layernorm.weight" QK_NORMS LAST },
    { "Exaone4ForCausalLM", ",'sliding_window':32,'sliding_window_pattern':'LLLG'", /* the last layer is full, too */
      "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, qk heads; context 2048", "32 32 32 - 32 -", "000-0-", SETTLED,
      ATTENTION GATED HEAD " | post_attention_layernorm.weight post_feedforward_layernorm.weight" QK_NORMS LAST },
    { "GlmForCausalLM", "", "rms 1.5625e-07, 4 2 128, pairs 64 theta 10000, silu; context 131072", NO_WINDOWS,
      "000000", PLAIN, ATTENTION "mlp.gate_proj mlp.up_proj (mlp.gate_up_proj) mlp.down_proj" HEAD NORMS LAST },
    { "Glm4ForCausalLM", "", "rms 1.5625e-07, 4 2 128, pairs 64 theta 10000, silu; context 131072", NO_WINDOWS,
      "000000", SETTLED, ATTENTION "mlp.gate_proj mlp.up_proj (mlp.gate_up_proj) mlp.down_proj" HEAD
      " | input_layernorm.weight post_self_attn_layernorm.weight post_attention_layernorm.weight "
      "post_mlp_layernorm.weight" LAST },
    { "OrionForCausalLM", EPS, "layer 1e-05, 4 4 32, halves 32 theta 10000, silu; context 2048", NO_WINDOWS, "000000",
      PLAIN, ATTENTION GATED HEAD LAYER_NORMS LAST " model.norm.bias" },
    { "Starcoder2ForCausalLM", ",'sliding_window':64",
      "layer 1e-05, 4 4 32, halves 32 theta 10000, gelu_tanh, no gate, tied; context 2048", "64 64 64 64 64 64",
      "000000", PLAIN, ATTENTION "mlp.c_fc mlp.c_proj" LAYER_NORMS LAST " model.norm.bias" },
    { "NemotronForCausalLM", "", "layer+1 1e-05, 4 4 32, halves 16 theta 10000, relu2, no gate; context 2048",
      NO_WINDOWS, "000000", PLAIN, ATTENTION "mlp.up_proj mlp.down_proj" HEAD
      " | input_layernorm.weight+1 input_layernorm.bias post_attention_layernorm.weight+1 "
      "post_attention_layernorm.bias | model.norm.weight+1 model.norm.bias" },
    { "StableLmForCausalLM", "", "layer 1e-05, 4 4 32, halves 8 theta 10000, silu; context 2048", NO_WINDOWS,
      "000000", PLAIN, ATTENTION GATED HEAD LAYER_NORMS LAST " model.norm.bias" },
    { "StableLmForCausalLM", ",'use_parallel_residual':true",
      "layer 1e-05, 4 4 32, halves 8 theta 10000, silu, parallel; context 2048", NO_WINDOWS, "000000", PARALLEL,
      ATTENTION GATED HEAD " | input_layernorm.weight input_layernorm.bias" LAST " model.norm.bias" },
    { "PhiForCausalLM", "", "layer 1e-05, 4 4 32, halves 16 theta 10000, gelu_tanh, no gate, parallel; context 2048",
      NO_WINDOWS, "000000", PARALLEL, "model.embed_tokens self_attn.q_proj self_attn.k_proj self_attn.v_proj "
      "self_attn.dense mlp.fc1 mlp.fc2 lm_head | input_layernorm.weight input_layernorm.bias | "
      "model.final_layernorm.weight model.final_layernorm.bias" },
    { "CohereForCausalLM", "",
      "layer 1e-05, 4 4 32, pairs 32 theta 10000, silu, parallel, tied, bos, factors 1 1 0.0625; context 2048",
      NO_WINDOWS, "000000", PARALLEL, ATTENTION GATED " | input_layernorm.weight input_layernorm.bias" LAST
      " model.norm.bias" },
    { "CohereForCausalLM", ",'use_qk_norm':true,'logit_scale':0.25",
      "layer 1e-05, 4 4 32, pairs 32 theta 10000, silu, parallel, qk heads, tied, bos, factors 1 1 0.25; context 2048",
      NO_WINDOWS, "000000", PARALLEL, ATTENTION GATED " | input_layernorm.weight input_layernorm.bias "
      "self_attn.q_norm.weight self_attn.q_norm.bias self_attn.k_norm.weight self_attn.k_norm.bias" LAST
      " model.norm.bias" },
    { "Cohere2ForCausalLM", "",
      "layer 1e-05, 4 4 32, pairs 32 theta 10000, silu, parallel, tied, bos, factors 1 1 0.0625; context 2048",
      "4096 4096 4096 - 4096 4096", "000-00", PARALLEL, ATTENTION GATED
      " | input_layernorm.weight input_layernorm.bias" LAST " model.norm.bias" },
    { "Cohere2ForCausalLM", ",'sliding_window':8,'layer_types':['full_attention','sliding_attention',"
      "'full_attention','sliding_attention','full_attention','sliding_attention']",
      "layer 1e-05, 4 4 32, pairs 32 theta 10000, silu, parallel, tied, bos, factors 1 1 0.0625; context 2048",
      "- 8 - 8 - 8", "-0-0-0", PARALLEL, ATTENTION GATED " | input_layernorm.weight input_layernorm.bias" LAST
      " model.norm.bias" },
    { "GPT2LMHeadModel", "", "layer 1e-05, 4 4 32, learned, gelu_tanh, no gate, tied; context 1024", NO_WINDOWS,
      "------", PLAIN, "model.embed_tokens model.wpe self_attn.q_proj self_attn.k_proj self_attn.v_proj "
      "(self_attn.c_attn) self_attn.o_proj mlp.c_fc mlp.c_proj | ln_1.weight ln_1.bias ln_2.weight ln_2.bias" LAST
      " model.norm.bias" },
    { "GPTBigCodeForCausalLM", "", "layer 1e-05, 4 1 32, learned, gelu_tanh, no gate, tied; context 1024", NO_WINDOWS,
      "------", PLAIN, "model.embed_tokens model.wpe self_attn.q_proj self_attn.k_proj self_attn.v_proj "
      "(self_attn.c_attn) self_attn.o_proj mlp.c_fc mlp.c_proj | ln_1.weight ln_1.bias ln_2.weight ln_2.bias" LAST
      " model.norm.bias" },

    /* With experts: first the numbers that the row itself has, then the tensors of two experts. */
    { "MixtralForCausalLM", KV, "rms 1e-05, 4 4 32, halves 32 theta 1e+06, silu; context 131072"
      "; experts 0-5 2 of 8 x 96, softmax, renormalized", NO_WINDOWS, "000000", ROUTED, NULL },
    { "MixtralForCausalLM", KV TWO ",'sliding_window':64",
      "rms 1e-05, 4 4 32, halves 32 theta 1e+06, silu; context 131072; experts 0-5 1 of 2 x 96, softmax, renormalized",
      "64 64 64 64 64 64", "000000", ROUTED, ATTENTION MIXTRAL HEAD NORMS LAST },
    { "GemmoeForCausalLM", TWO, "rms+1 1e-06, 4 4 256, halves 256 theta 10000, gelu_tanh, tied, bos, "
      "factors 11.3137 1 1; context 8192; experts 0-5 1 of 2 x 96, softmax, renormalized", NO_WINDOWS, "000000",
      ROUTED, ATTENTION MIXTRAL " | input_layernorm.weight+1 post_attention_layernorm.weight+1 | "
      "model.norm.weight+1" },
    { "Qwen2MoeForCausalLM", "", "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 32768"
      "; experts 0-5 4 of 60 x 1408, softmax, shared 5632 switched", NO_WINDOWS, "000000", ROUTED_SHARED, NULL },
    { "Qwen2MoeForCausalLM", TWO, "rms 1e-06, 4 4 32, halves 32 theta 10000, silu; context 32768"
      "; experts 0-5 1 of 2 x 1408, softmax, shared 5632 switched", NO_WINDOWS, "000000", ROUTED_SHARED,
      ATTENTION "mlp.gate mlp.shared_expert_gate mlp.shared_expert.gate_proj mlp.shared_expert.up_proj "
      "mlp.shared_expert.down_proj " TWO_EXPERTS HEAD NORMS LAST },
    { "Qwen3MoeForCausalLM", "", "rms 1e-06, 4 4 32, halves 32 theta 10000, silu, qk heads; context 32768"
      "; experts 0-5 8 of 128 x 768, softmax", NO_WINDOWS, "000000", ROUTED, NULL },
    { "Qwen3MoeForCausalLM", TWO ",'norm_topk_prob':true",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu, qk heads; context 32768"
      "; experts 0-5 1 of 2 x 768, softmax, renormalized", NO_WINDOWS, "000000", ROUTED,
      ATTENTION "mlp.gate " TWO_EXPERTS HEAD NORMS QK_NORMS LAST },
    { "OlmoeForCausalLM", "", "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, qk whole; context 4096"
      "; experts 0-5 8 of 64 x 96, softmax", NO_WINDOWS, "000000", ROUTED, NULL },
    { "DbrxForCausalLM", "", "layer 1e-05, 4 1 32, halves 32 theta 10000, silu; context 2048"
      "; experts 0-5 1 of 4 x 96, softmax, renormalized", NO_WINDOWS, "000000", ROUTED, NULL },
    { "DbrxForCausalLM", ",'ffn_config':{'moe_num_experts':2,'moe_top_k':2,'moe_normalize_expert_weights':null},"
      "'attn_config':{'kv_n_heads':2,'clip_qkv':8,'rope_theta':500000}",
      "layer 1e-05, 4 2 32, halves 32 theta 500000, silu; context 2048; experts 0-5 2 of 2 x 96, softmax", NO_WINDOWS,
      "000000", ROUTED, "model.embed_tokens self_attn.q_proj self_attn.k_proj self_attn.v_proj (self_attn.Wqkv) "
      "self_attn.o_proj block_sparse_moe.gate block_sparse_moe.experts.0.w1 block_sparse_moe.experts.0.v1 "
      "(block_sparse_moe.experts.w1) block_sparse_moe.experts.0.w2 (block_sparse_moe.experts.w2) "
      "block_sparse_moe.experts.1.w1 block_sparse_moe.experts.1.v1 (block_sparse_moe.experts.w1) "
      "block_sparse_moe.experts.1.w2 (block_sparse_moe.experts.w2)" HEAD LAYER_NORMS LAST " model.norm.bias" },
    { "GraniteMoeForCausalLM", TWO, "rms 1e-06, 4 4 32, halves 32 theta 10000, silu, scale 1; context 2048"
      "; experts 0-5 1 of 2 x 96, softmax, renormalized", NO_WINDOWS, "000000", ROUTED,
      ATTENTION GRANITE_EXPERTS HEAD NORMS LAST },
    { "GraniteMoeSharedForCausalLM", ",'shared_intermediate_size':64",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu, scale 1; context 2048"
      "; experts 0-5 2 of 8 x 96, softmax, renormalized, shared 64", NO_WINDOWS, "000000", ROUTED_SHARED, NULL },
    { "GptOssForCausalLM", KV, "rms 1e-05, 4 4 64, halves 64 theta 150000, clamped; context 131072"
      "; experts 0-5 4 of 128 x 96, softmax, renormalized", "128 - 128 - 128 -", "000000", ROUTED, NULL },
    { "GptOssForCausalLM", KV TWO, "rms 1e-05, 4 4 64, halves 64 theta 150000, clamped; context 131072"
      "; experts 0-5 1 of 2 x 96, softmax, renormalized", "128 - 128 - 128 -", "000000", ROUTED,
      ATTENTION "mlp.gate " TWO_EXPERTS HEAD NORMS " self_attn.sinks" LAST },
    { "Ernie4_5_MoeForCausalLM", "", "rms 1e-05, 4 4 32, pairs 32 theta 500000, silu, tied; context 131072"
      "; experts 1-5 6 of 64 x 1536, softmax, renormalized, shared 3072", NO_WINDOWS, "000000", ROUTED_SHARED, NULL },
    { "Ernie4_5_MoeForCausalLM", TWO ",'moe_num_shared_experts':0,'moe_layer_start_index':0",
      "rms 1e-05, 4 4 32, pairs 32 theta 500000, silu, tied; context 131072"
      "; experts 0-5 1 of 2 x 1536, softmax, renormalized", NO_WINDOWS, "000000", ROUTED,
      ATTENTION "mlp.gate " TWO_EXPERTS NORMS " mlp.moe_statics.e_score_correction_bias" LAST },
    { "Glm4MoeForCausalLM", KV, "rms 1e-05, 4 4 32, halves 16 theta 10000, silu; context 131072"
      "; experts 1-5 8 of 128 x 1408, sigmoid, renormalized, shared 1408", NO_WINDOWS, "000000", ROUTED_SHARED, NULL },
    { "Glm4MoeForCausalLM", KV TWO ",'use_qk_norm':true,'n_shared_experts':2,'moe_intermediate_size':32,"
      "'norm_topk_prob':false", "rms 1e-05, 4 4 32, halves 16 theta 10000, silu, qk heads; context 131072"
      "; experts 1-5 1 of 2 x 32, sigmoid, shared 64", NO_WINDOWS, "000000", ROUTED_SHARED,
      ATTENTION "mlp.gate mlp.shared_experts.gate_proj mlp.shared_experts.up_proj mlp.shared_experts.down_proj "
      TWO_EXPERTS HEAD NORMS QK_NORMS " mlp.gate.e_score_correction_bias" LAST },
    { "SolarOpenForCausalLM", KV, "rms 1e-05, 4 4 128, halves 128 theta 1e+06, silu; context 131072"
      "; experts 0-5 8 of 128 x 1280, sigmoid, renormalized, shared 1280", NO_WINDOWS, "000000", ROUTED_SHARED, NULL },
    { "Dots1ForCausalLM", TWO, "rms 1e-06, 4 4 32, halves 32 theta 10000, silu, qk heads; context 2048"
      "; experts 0-5 1 of 2 x 96, sigmoid", NO_WINDOWS, "000000", ROUTED,
      ATTENTION "mlp.gate " TWO_EXPERTS HEAD NORMS QK_NORMS " mlp.gate.e_score_correction_bias" LAST },
    { "Dots1ForCausalLM", TWO ",'max_window_layers':4,'n_shared_experts':1,'moe_intermediate_size':32",
      "rms 1e-06, 4 4 32, halves 32 theta 10000, silu, qk heads; context 2048"
      "; experts 0-5 1 of 2 x 32, sigmoid, shared 32", "- - - - 4096 4096", "000000", ROUTED_SHARED, NULL },
    { "ExaoneMoeForCausalLM", "", "rms 1e-05, 4 4 32, halves 32 theta 10000, silu, qk heads; context 2048"
      "; experts 1-5 8 of 64 x 1024, sigmoid, renormalized, shared 1024, times 2.5", "4096 4096 4096 - 4096 4096",
      "000-00", ROUTED_SHARED, NULL },
    { "MiniMaxM2ForCausalLM", KV, "rms 1e-06, 4 4 128, halves 128 theta 5e+06, silu, qk whole; context 196608"
      "; experts 0-5 8 of 256 x 96, sigmoid, renormalized", NO_WINDOWS, "000000", ROUTED, NULL },
    { "MiniMaxM2ForCausalLM", KV TWO ",'rotary_dim':64",
      "rms 1e-06, 4 4 128, halves 64 theta 5e+06, silu, qk whole; context 196608"
      "; experts 0-5 1 of 2 x 96, sigmoid, renormalized", NO_WINDOWS, "000000", ROUTED,
      ATTENTION MIXTRAL HEAD NORMS QK_NORMS " block_sparse_moe.e_score_correction_bias" LAST },
};

static void check_row(const row_case *row)
{
    static exl2__config k;
    exl2__plan plan;
    exl2__layer layers[LAYERS];
    text about = { .used = 0 }, windows = about, ropes = about, phases = about, tensors = about;
    char fields[1500], error[256];
    snprintf(fields, sizeof fields, "{'architectures':['%s']," SIZES "%s}", row->arch, row->more);
    exl2_result result = read_config(fields, &k, error);
    if (!row->windows[0]) { /* 4 heads cannot share the 8 K/V heads of the row's default */
        CHECK(result == EXL2_ERR_FORMAT && strstr(error, "num_key_value_heads=8"));
        return;
    }
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("  %s: %s\n", fields, error);
        return;
    }
    memset(layers, 0, sizeof layers);
    exl2__plan_make(&plan, &k, k.vocab, 0, 0, 0);
    exl2__plan_layers(&plan, &k, layers);
    describe(&k, &plan.shape, &about);
    describe_experts(&k, &about);
    describe_layers(layers, &windows, &ropes, &phases);
    if (row->tensors) {
        describe_tensors(&k, &tensors);
    }
    int good = CHECK_TEXT(about.bytes, row->about);
    good &= CHECK_TEXT(windows.bytes, row->windows) & CHECK_TEXT(ropes.bytes, row->ropes);
    good &= CHECK_TEXT(phases.bytes, row->phases) & CHECK_TEXT(tensors.bytes, row->tensors ? row->tensors : "");
    if (!good) {
        printf("  %s%s\n", row->arch, row->more);
    }
}

/* Every row is in the table. */
static void check_complete(void)
{
    for (size_t i = 0; i < EXL2__COUNT(exl2__archs); i++) {
        static exl2__arch arch;
        uint32_t found = 0;
        exl2__arch_resolve(&exl2__archs[i], &arch);
        for (size_t k = 0; k < EXL2__COUNT(rows); k++) {
            found += strcmp(rows[k].arch, exl2__archs[i].name) == 0;
        }
        if (!CHECK(found > 0)) {
            printf("  %s\n", exl2__archs[i].name);
        }
        CHECK(!exl2__archs[i].like || exl2__arch_find(exl2__archs[i].like));
        CHECK(exl2__archs[i].family && exl2__archs[i].family[0] && exl2__archs[i].type && exl2__archs[i].type[0]);
    }
}

/* ---- names of published files ---- */

static void check_renames(void)
{
    static const struct { const char *arch, *file, *wanted; } names[] = {
        { "LlamaForCausalLM", "model.layers.3.mlp.swiglu.w3.weight", "model.layers.3.mlp.down_proj.weight" },
        { "LlamaForCausalLM", "model.layers.3.mlp.up_proj.weight", "model.layers.3.mlp.up_proj.weight" },
        { "LlamaForCausalLM", "layers.3.mlp.up_proj.weight", "model.layers.3.mlp.up_proj.weight" },
        { "Qwen3ForCausalLM", "embed_tokens.weight", "model.embed_tokens.weight" },
        { "MistralForCausalLM", "norm.weight", "model.norm.weight" },
        { "YiForCausalLM", "model.layers.0.ln1.weight", "model.layers.0.input_layernorm.weight" },
        { "YiForCausalLM", "model.layers.0.ln2.weight", "model.layers.0.post_attention_layernorm.weight" },
        { "InternLM2ForCausalLM", "output.weight", "lm_head.weight" },
        { "InternLM2ForCausalLM", "model.tok_embeddings.weight", "model.embed_tokens.weight" },
        { "InternLM2ForCausalLM", "model.layers.1.attention.wqkv.weight", "model.layers.1.self_attn.wqkv.weight" },
        { "InternLM2ForCausalLM", "model.layers.1.attention.wo.weight", "model.layers.1.self_attn.o_proj.weight" },
        { "InternLM2ForCausalLM", "model.layers.1.attention_norm.weight", "model.layers.1.attention_norm.weight" },
        { "GPT2LMHeadModel", "h.1.attn.c_attn.weight", "model.layers.1.self_attn.c_attn.weight" },
        { "GPT2LMHeadModel", "transformer.h.1.attn.c_proj.bias", "model.layers.1.self_attn.o_proj.bias" },
        { "GPT2LMHeadModel", "h.1.mlp.c_proj.weight", "model.layers.1.mlp.c_proj.weight" },
        { "GPT2LMHeadModel", "transformer.wte.weight", "model.embed_tokens.weight" },
        { "GPT2LMHeadModel", "wpe.weight", "model.wpe.weight" },
        { "GPT2LMHeadModel", "ln_f.bias", "model.norm.bias" },
        { "GPTBigCodeForCausalLM", "transformer.ln_f.weight", "model.norm.weight" },
        { "GPTBigCodeForCausalLM", "transformer.h.0.attn.c_proj.weight", "model.layers.0.self_attn.o_proj.weight" },
        { "GPTBigCodeForCausalLM", "transformer.h.0.mlp.c_proj.weight", "model.layers.0.mlp.c_proj.weight" },
        { "GPTBigCodeForCausalLM", "transformer.wpe.weight", "model.wpe.weight" },
        /* models with experts as transformers 5 names their parameters */
        { "MiniMaxM2ForCausalLM", "model.layers.0.mlp.experts.down_proj",
          "model.layers.0.block_sparse_moe.experts.down_proj" },
        { "MiniMaxM2ForCausalLM", "model.layers.0.mlp.e_score_correction_bias",
          "model.layers.0.block_sparse_moe.e_score_correction_bias" },
        { "Ernie4_5_MoeForCausalLM", "model.layers.1.mlp.gate.moe_statics.e_score_correction_bias",
          "model.layers.1.mlp.moe_statics.e_score_correction_bias" },
        { "GraniteMoeForCausalLM", "model.layers.0.block_sparse_moe.router.weight",
          "model.layers.0.block_sparse_moe.router.layer.weight" },
        { "GraniteMoeSharedForCausalLM", "model.layers.0.block_sparse_moe.experts.gate_up_proj",
          "model.layers.0.block_sparse_moe.input_linear" },
        { "GraniteMoeForCausalLM", "model.layers.0.block_sparse_moe.experts.down_proj",
          "model.layers.0.block_sparse_moe.output_linear" },
        { "GraniteMoeForCausalLM", "model.layers.0.block_sparse_moe.experts.3.down_proj.weight",
          "model.layers.0.block_sparse_moe.experts.3.down_proj.weight" },
        /* multimodal models before transformers 5, and since */
        { "SmolVLMForConditionalGeneration", "model.text_model.norm.weight", "model.norm.weight" },
        { "Idefics3ForConditionalGeneration", "model.text_model.layers.0.mlp.up_proj.weight",
          "model.layers.0.mlp.up_proj.weight" },
        { "SmolVLMForConditionalGeneration", "model.vision_model.post_layernorm.weight",
          "model.vision_model.post_layernorm.weight" },
        { "Qwen3VLForConditionalGeneration", "model.language_model.norm.weight", "model.norm.weight" },
        { "LlavaForConditionalGeneration", "language_model.model.norm.weight", "model.norm.weight" },
        { "LlavaForConditionalGeneration", "language_model.lm_head.weight", "lm_head.weight" },
        { "Mistral3ForConditionalGeneration", "model.language_model.layers.0.mlp.up_proj.weight",
          "model.layers.0.mlp.up_proj.weight" },
        { "Mistral3ForConditionalGeneration", "lm_head.weight", "lm_head.weight" },
        { "Gemma3ForConditionalGeneration", "language_model.model.embed_tokens.weight", "model.embed_tokens.weight" },
        { "Gemma3ForConditionalGeneration", "model.language_model.embed_tokens.weight", "model.embed_tokens.weight" },
        { "Gemma3ForConditionalGeneration", "model.vision_tower.vision_model.post_layernorm.weight",
          "model.vision_tower.vision_model.post_layernorm.weight" },
        { "Qwen2VLForConditionalGeneration", "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight" },
        { "Qwen2_5_VLForConditionalGeneration", "model.language_model.norm.weight", "model.norm.weight" },
        { "Qwen2_5_VLForConditionalGeneration", "model.visual.merger.ln_q.weight", "model.visual.merger.ln_q.weight" },
    };
    for (size_t i = 0; i < EXL2__COUNT(names); i++) {
        static exl2__arch arch;
        char name[EXL2__TENSORS_NAME_MAX];
        exl2__arch_resolve(exl2__arch_find(names[i].arch), &arch);
        exl2__tensors_new_name(names[i].file, arch.renames, name);
        CHECK_TEXT(name, names[i].wanted);
    }
}

/* ---- files that contradict their row ---- */

static void refuse(const char *fields, exl2_result code, const char *piece)
{
    static exl2__config k;
    char error[256];
    if (!CHECK_INT(read_config(fields, &k, error), code) || !CHECK(strstr(error, piece) != NULL)) {
        printf("  %s: %s\n", fields, error);
    }
}

static void check_refused(void)
{
    refuse("{'architectures':['Mistral3ForConditionalGeneration']," SIZES ",'text_config':{'model_type':'mistral4'}}",
           EXL2_ERR_UNSUPPORTED, "the text model 'mistral4'");
    refuse("{'architectures':['Gemma2ForCausalLM']," SIZES ",'use_bidirectional_attention':true}",
           EXL2_ERR_UNSUPPORTED, "use_bidirectional_attention=true");
    refuse("{'architectures':['GPT2LMHeadModel']," SIZES ",'scale_attn_weights':false}", EXL2_ERR_UNSUPPORTED,
           "scale_attn_weights=false");
    refuse("{'architectures':['Gemma3ForCausalLM']," SIZES ",'rope_parameters':{'full_attention':{'rope_type':"
           "'default'},'sliding_attention':{'rope_type':'yarn','factor':4}}}", EXL2_ERR_UNSUPPORTED,
           "sliding_attention->rope_type='yarn'");
}

int main(void)
{
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        check_row(&rows[i]);
    }
    check_complete();
    check_renames();
    check_refused();
    return check_done();
}
