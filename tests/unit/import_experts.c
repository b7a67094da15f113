/* import_experts.c: GGUF files of models with experts, made here: every tensor of the folder has the numbers that the
   file has for it, config.json opens to the numbers of the file's keys, and a file in which something of the experts is
   wrong is rejected with a sentence. */
#include "../import_rig.h"
#include "private/model_config_read.h"

#define HIDDEN 64u
#define HEADS 4u
#define DIM 16u
#define VOCAB 40u
#define INTER 96u  /* of dense layers */
#define WIDTH 32u  /* of an expert */
#define SHARED 64u
#define EXPERTS 5u

/* Number `index` of a GGUF tensor: exact in fp16. */
static float number(const char *name, uint64_t index)
{
    uint64_t hash = 1469598103934665603u ^ index * 0x9E3779B97F4A7C15u;
    for (; *name; name++) {
        hash = (hash ^ (uint8_t)*name) * 1099511628211u;
    }
    hash ^= hash >> 29;
    return (float)((int)(hash % 255) - 127) / 256;
}

typedef struct family_case {
    const char *gguf, *row;   /* general.architecture, architectures */
    uint32_t layers, skipped; /* with the skipped ones */
    uint32_t dense;           /* bits of layers without experts */
    uint32_t shared;          /* width of the shared expert */
    uint32_t kv_heads;        /* 0: HEADS */
    bool fused, biases, shared_switch, choice, sinks, mlp_norm_after, qk_norms;
    void (*keys)(gguf_maker *m);
} family_case;

typedef struct file_options {
    const char *skip;         /* a tensor that is left out */
    const char *narrow;       /* a tensor with one expert less */
    void (*change)(gguf_maker *m);
} file_options;

static const char *at(uint32_t layer, const char *name)
{
    static char text[4][96];
    static uint32_t next;
    char *out = text[next++ % 4];
    snprintf(out, sizeof text[0], "blk.%u.%s", layer, name);
    return out;
}

static const char *key(const family_case *f, const char *name)
{
    static char text[2][96];
    static uint32_t next;
    char *out = text[next++ % 2];
    snprintf(out, sizeof text[0], "%s.%s", f->gguf, name);
    return out;
}

/* Adds a tensor with number() of its name: F32 if it is a vector or a router, else F16. */
static void put(gguf_maker *m, const file_options *o, const char *name, uint64_t dim0, uint64_t dim1, uint64_t dim2)
{
    bool exact = dim1 == 0 || strstr(name, "ffn_gate_inp") || strstr(name, ".bias");
    uint64_t dims[3] = { dim0, dim1, dim2 };
    if (o->skip && strcmp(name, o->skip) == 0) {
        return;
    }
    dims[2] -= o->narrow && strcmp(name, o->narrow) == 0;
    uint64_t count = dims[0] * (dims[1] ? dims[1] : 1) * (dims[2] ? dims[2] : 1);
    gguf_pad(&m->data, 32);
    gguf_info_of(m, name, exact ? 0 : 1, dims, m->data.bytes);
    for (uint64_t i = 0; i < count; i++) {
        float value = number(name, i);
        uint16_t half = exl2__f32_to_f16(value);
        gguf_put(&m->data, exact ? (const void *)&value : (const void *)&half, exact ? 4 : 2);
    }
}

static void put_experts(gguf_maker *m, const family_case *f, const file_options *o, uint32_t layer)
{
    put(m, o, at(layer, "ffn_gate_inp.weight"), HIDDEN, EXPERTS, 0);
    if (f->fused) {
        put(m, o, at(layer, "ffn_gate_up_exps.weight"), HIDDEN, 2 * WIDTH, EXPERTS);
    } else {
        put(m, o, at(layer, "ffn_gate_exps.weight"), HIDDEN, WIDTH, EXPERTS);
        put(m, o, at(layer, "ffn_up_exps.weight"), HIDDEN, WIDTH, EXPERTS);
    }
    put(m, o, at(layer, "ffn_down_exps.weight"), WIDTH, HIDDEN, EXPERTS);
    if (f->biases) {
        put(m, o, at(layer, "ffn_gate_inp.bias"), EXPERTS, 0, 0);
        put(m, o, at(layer, "ffn_gate_exps.bias"), WIDTH, EXPERTS, 0);
        put(m, o, at(layer, "ffn_up_exps.bias"), WIDTH, EXPERTS, 0);
        put(m, o, at(layer, "ffn_down_exps.bias"), HIDDEN, EXPERTS, 0);
    }
    if (f->choice) {
        put(m, o, at(layer, "exp_probs_b.bias"), EXPERTS, 0, 0);
    }
    if (f->shared) {
        put(m, o, at(layer, "ffn_gate_shexp.weight"), HIDDEN, f->shared, 0);
        put(m, o, at(layer, "ffn_up_shexp.weight"), HIDDEN, f->shared, 0);
        put(m, o, at(layer, "ffn_down_shexp.weight"), f->shared, HIDDEN, 0);
    }
    if (f->shared_switch) {
        put(m, o, at(layer, "ffn_gate_inp_shexp.weight"), HIDDEN, 0, 0);
    }
}

static void put_layer(gguf_maker *m, const family_case *f, const file_options *o, uint32_t layer)
{
    put(m, o, at(layer, "attn_norm.weight"), HIDDEN, 0, 0);
    put(m, o, at(layer, f->mlp_norm_after ? "post_attention_norm.weight" : "ffn_norm.weight"), HIDDEN, 0, 0);
    put(m, o, at(layer, "attn_q.weight"), HIDDEN, HEADS * DIM, 0);
    put(m, o, at(layer, "attn_k.weight"), HIDDEN, (f->kv_heads ? f->kv_heads : HEADS) * DIM, 0);
    put(m, o, at(layer, "attn_v.weight"), HIDDEN, (f->kv_heads ? f->kv_heads : HEADS) * DIM, 0);
    put(m, o, at(layer, "attn_output.weight"), HEADS * DIM, HIDDEN, 0);
    if (f->sinks) {
        put(m, o, at(layer, "attn_sinks.weight"), HEADS, 0, 0);
    }
    if (f->qk_norms) {
        put(m, o, at(layer, "attn_q_norm.weight"), DIM, 0, 0);
        put(m, o, at(layer, "attn_k_norm.weight"), DIM, 0, 0);
    }
    if (f->dense >> layer & 1) {
        put(m, o, at(layer, "ffn_gate.weight"), HIDDEN, INTER, 0);
        put(m, o, at(layer, "ffn_up.weight"), HIDDEN, INTER, 0);
        put(m, o, at(layer, "ffn_down.weight"), INTER, HIDDEN, 0);
    } else {
        put_experts(m, f, o, layer);
    }
}

static gguf_bytes make_file(const family_case *f, const file_options *o)
{
    gguf_maker m = { 0 };
    gguf_key_text(&m, "general.architecture", f->gguf);
    gguf_key_u32(&m, key(f, "block_count"), f->layers);
    gguf_key_u32(&m, key(f, "context_length"), 512);
    gguf_key_u32(&m, key(f, "embedding_length"), HIDDEN);
    gguf_key_u32(&m, key(f, "feed_forward_length"), f->dense ? INTER : WIDTH);
    gguf_key_u32(&m, key(f, "attention.head_count"), HEADS);
    gguf_key_f32(&m, key(f, "attention.layer_norm_rms_epsilon"), 1e-6f);
    gguf_key_u32(&m, key(f, "expert_count"), EXPERTS);
    gguf_key_u32(&m, key(f, "expert_used_count"), 2);
    f->keys(&m);
    if (o->change) {
        o->change(&m);
    }
    put(&m, o, "token_embd.weight", HIDDEN, VOCAB, 0);
    put(&m, o, "output_norm.weight", HIDDEN, 0, 0);
    put(&m, o, "output.weight", HIDDEN, VOCAB, 0);
    for (uint32_t i = 0; i < f->layers; i++) {
        if (i < f->layers - f->skipped) {
            put_layer(&m, f, o, i);
        } else {
            put(&m, o, at(i, "nextn.eh_proj.weight"), 2 * HIDDEN, HIDDEN, 0);
            put(&m, o, at(i, "attn_norm.weight"), HIDDEN, 0, 0);
        }
    }
    return gguf_finish(&m);
}

/* ---- families ---- */

static void glm_keys(gguf_maker *m)
{
    gguf_key_u32(m, "glm4moe.expert_feed_forward_length", WIDTH);
    gguf_key_u32(m, "glm4moe.leading_dense_block_count", 1);
    gguf_key_u32(m, "glm4moe.expert_gating_func", 2);
    gguf_key_bool(m, "glm4moe.expert_weights_norm", true);
    gguf_key_f32(m, "glm4moe.expert_weights_scale", 2.5f);
    gguf_key_u32(m, "glm4moe.nextn_predict_layers", 1);
    gguf_key_u32(m, "glm4moe.rope.dimension_count", DIM / 2);
}

static void qwen_keys(gguf_maker *m) { gguf_key_u32(m, "qwen2moe.expert_feed_forward_length", WIDTH); }

static void qwen3_keys(gguf_maker *m)
{
    gguf_key_u32(m, "qwen3moe.expert_feed_forward_length", WIDTH);
    gguf_key_u32(m, "qwen3moe.attention.head_count_kv", 1);
}

static void granite_keys(gguf_maker *m) { gguf_key_f32(m, "granitemoe.logit_scale", 8); }

static void gpt_keys(gguf_maker *m)
{
    gguf_key_u32(m, "gpt-oss.expert_feed_forward_length", WIDTH);
    gguf_key_u32(m, "gpt-oss.attention.sliding_window", 128);
    gguf_key_text(m, "gpt-oss.rope.scaling.type", "yarn");
    gguf_key_f32(m, "gpt-oss.rope.scaling.factor", 32);
    gguf_key_u32(m, "gpt-oss.rope.scaling.original_context_length", 128);
    gguf_key_u32(m, "gpt-oss.expert_gating_func", 3);
}

static const family_case glm = { .gguf = "glm4moe", .row = "Glm4MoeForCausalLM", .layers = 4, .skipped = 1, .dense = 1,
                                 .shared = SHARED, .choice = true, .mlp_norm_after = true, .qk_norms = true,
                                 .keys = glm_keys };
static const family_case qwen = { .gguf = "qwen2moe", .row = "Qwen2MoeForCausalLM", .layers = 3, .dense = 2,
                                  .shared = SHARED, .shared_switch = true, .keys = qwen_keys };
static const family_case qwen3 = { .gguf = "qwen3moe", .row = "Qwen3MoeForCausalLM", .layers = 2, .kv_heads = 1,
                                   .qk_norms = true, .keys = qwen3_keys };
static const family_case granite = { .gguf = "granitemoe", .row = "GraniteMoeSharedForCausalLM", .layers = 1,
                                     .shared = SHARED, .fused = true, .keys = granite_keys };
static const family_case granite_plain = { .gguf = "granitemoe", .row = "GraniteMoeForCausalLM", .layers = 1,
                                           .keys = granite_keys };
static const family_case gpt = { .gguf = "gpt-oss", .row = "GptOssForCausalLM", .layers = 2, .biases = true,
                                 .sinks = true, .mlp_norm_after = true, .keys = gpt_keys };

/* ---- the folder ---- */

/* Tensor `name` has the numbers of `from` from number `first` on, and the shape [rows, columns] (rows 0: [columns]). */
static void check_numbers(exl2__ctx *c, const exl2__tensors *t, const char *name, const char *from, uint64_t first,
                          uint32_t rows, uint32_t columns)
{
    uint32_t count = (rows ? rows : 1) * columns, differ = 0;
    const exl2__tensor *found = exl2__tensors_find(t, name);
    float *got = (float *)malloc(count * sizeof *got);
    if (!CHECK(found && found->rank == (rows ? 2 : 1) && found->dims[0] == (rows ? rows : columns)) ||
        !CHECK_INT(exl2__tensor_floats_range(c, t, found, 0, count, got), EXL2_OK)) {
        printf("  %s\n", name);
        free(got);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        float wanted = number(from, first + i);
        differ += memcmp(&got[i], &wanted, sizeof wanted) != 0;
    }
    if (!CHECK_INT(differ, 0)) {
        printf("  %s, from %s\n", name, from);
    }
    free(got);
}

static void check_experts(exl2__ctx *c, const exl2__tensors *t, const family_case *f, uint32_t layer,
                          const char *names[3], const char *router)
{
    char name[128];
    for (uint32_t e = 0; e < EXPERTS; e++) {
        for (uint32_t i = 0; i < 3; i++) {
            static const char *const single[3] = { "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps" };
            const char *from = f->fused && i < 2 ? "ffn_gate_up_exps" : single[i];
            uint32_t rows = i == 2 ? HIDDEN : WIDTH, columns = i == 2 ? WIDTH : HIDDEN;
            uint32_t first = f->fused && i < 2 ? e * 2 * WIDTH + i * WIDTH : e * rows;
            char tensor[96];
            snprintf(name, sizeof name, "model.layers.%u.%s.%u.%s.weight", layer, names[0], e, names[i + 1]);
            snprintf(tensor, sizeof tensor, "blk.%u.%s.weight", layer, from);
            check_numbers(c, t, name, tensor, (uint64_t)first * columns, rows, columns);
            if (f->biases) {
                snprintf(name, sizeof name, "model.layers.%u.%s.%u.%s.bias", layer, names[0], e, names[i + 1]);
                snprintf(tensor, sizeof tensor, "blk.%u.%s.bias", layer, from);
                check_numbers(c, t, name, tensor, first, 0, rows);
            }
        }
    }
    snprintf(name, sizeof name, "model.layers.%u.%s.weight", layer, router);
    check_numbers(c, t, name, at(layer, "ffn_gate_inp.weight"), 0, EXPERTS, HIDDEN);
}

typedef struct names_of {
    const family_case *family;
    const char *expert[4]; /* before the number; gate, up, down after it */
    const char *router, *shared, *shared_down, *choice;
} names_of;

static void check_layer(exl2__ctx *c, const exl2__tensors *t, const names_of *n, uint32_t layer)
{
    const family_case *f = n->family;
    char name[128];
    if (f->dense >> layer & 1) {
        snprintf(name, sizeof name, "model.layers.%u.mlp.down_proj.weight", layer);
        check_numbers(c, t, name, at(layer, "ffn_down.weight"), 0, HIDDEN, INTER);
        return;
    }
    const char *expert[4] = { n->expert[0], n->expert[1], n->expert[2], n->expert[3] };
    check_experts(c, t, f, layer, expert, n->router);
    if (f->shared) {
        snprintf(name, sizeof name, "model.layers.%u.%s.up_proj.weight", layer, n->shared);
        check_numbers(c, t, name, at(layer, "ffn_up_shexp.weight"), 0, f->shared, HIDDEN);
        snprintf(name, sizeof name, "model.layers.%u.%s.%s.weight", layer, n->shared, n->shared_down);
        check_numbers(c, t, name, at(layer, "ffn_down_shexp.weight"), 0, HIDDEN, f->shared);
    }
    if (f->shared_switch) {
        snprintf(name, sizeof name, "model.layers.%u.mlp.shared_expert_gate.weight", layer);
        check_numbers(c, t, name, at(layer, "ffn_gate_inp_shexp.weight"), 0, 1, HIDDEN);
    }
    if (f->choice) {
        snprintf(name, sizeof name, "model.layers.%u.%s", layer, n->choice);
        check_numbers(c, t, name, at(layer, "exp_probs_b.bias"), 0, 0, EXPERTS);
    }
    if (f->sinks) {
        snprintf(name, sizeof name, "model.layers.%u.self_attn.sinks", layer);
        check_numbers(c, t, name, at(layer, "attn_sinks.weight"), 0, 0, HEADS);
    }
    if (f->biases) {
        snprintf(name, sizeof name, "model.layers.%u.%s.bias", layer, n->router);
        check_numbers(c, t, name, at(layer, "ffn_gate_inp.bias"), 0, 0, EXPERTS);
    }
    if (f->qk_norms) { /* vectors, also with one head */
        snprintf(name, sizeof name, "model.layers.%u.self_attn.k_norm.weight", layer);
        check_numbers(c, t, name, at(layer, "attn_k_norm.weight"), 0, 0, DIM);
    }
    snprintf(name, sizeof name, "model.layers.%u.post_attention_layernorm.weight", layer);
    check_numbers(c, t, name, at(layer, f->mlp_norm_after ? "post_attention_norm.weight" : "ffn_norm.weight"), 0, 0,
                  HIDDEN);
}

static void check_config(const family_case *f, const exl2__config *got)
{
    CHECK_TEXT(got->arch_name, f->row);
    CHECK_INT(got->layers, f->layers - f->skipped);
    CHECK_INT(got->experts.count, EXPERTS);
    CHECK_INT(got->experts.active, 2);
    CHECK_INT(got->experts.inter, WIDTH);
    CHECK_INT(got->experts.shared_inter, f->shared);
    CHECK_INT(got->experts.shared_switch, f->shared_switch);
    CHECK_INT(got->experts.sigmoid, f == &glm);
    CHECK_INT(got->experts.renormalized, f != &qwen);
    CHECK(fabsf(got->experts.scale - (f == &glm ? 2.5f : 1.0f)) < 1e-6f);
    CHECK_INT(got->sparse[0], ~f->dense & ((1u << got->layers) - 1));
    CHECK(!f->dense || got->inter == INTER);
    if (f == &gpt) {
        CHECK(got->rope.kind == EXL2__ROPE_YARN && !got->rope.rounded);
        CHECK_INT(got->act, EXL2__ACT_CLAMPED);
        CHECK_INT(got->window, 128);
    }
}

/* Imports with 16 bits: everything is exact. */
static void test_family(const names_of *n)
{
    const family_case *f = n->family;
    const file_options o = { 0 };
    static exl2__config config;
    gguf_bytes file = make_file(f, &o);
    exl2__tensors t;
    rig r;
    rig_make(&r, file);
    exl2_import_desc d = describe(&r);
    d.bits = 16;
    d.group = d.head_bits = 0;
    printf("%s\n", f->row);
    if (!CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK) ||
        !CHECK_INT(exl2__config_read(&r.c, out_dir, &config), EXL2_OK) ||
        !CHECK_INT(tensors_open(&r.c, out_dir, &t), EXL2_OK)) {
        printf("  %s\n", r.c.error.text);
    } else {
        check_config(f, &config);
        for (uint32_t i = 0; i < config.layers; i++) {
            check_layer(&r.c, &t, n, i);
        }
        exl2__tensors_close(&r.c, &t);
        remove_out();
    }
    check_clean(&r);
    free(file.data);
}

/* Each expert is quantized by itself: its columns are close to its own numbers. */
static void test_quantized(void)
{
    const file_options o = { 0 };
    gguf_bytes file = make_file(&gpt, &o);
    exl2__tensors t;
    rig r;
    rig_make(&r, file);
    exl2_import_desc d = describe(&r);
    d.bits = 6;
    if (!CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK) ||
        !CHECK_INT(tensors_open(&r.c, out_dir, &t), EXL2_OK)) {
        printf("  %s\n", r.c.error.text);
        free(file.data);
        return;
    }
    for (uint32_t e = 0; e < EXPERTS; e++) {
        llama_wanted w = { .in = HIDDEN, .out = WIDTH };
        float numbers[WIDTH * HIDDEN], bias[WIDTH];
        char name[128];
        for (uint32_t i = 0; i < WIDTH * HIDDEN; i++) {
            numbers[i] = number("blk.1.ffn_up_exps.weight", e * WIDTH * HIDDEN + i);
        }
        for (uint32_t i = 0; i < WIDTH; i++) {
            bias[i] = number("blk.1.ffn_up_exps.bias", e * WIDTH + i);
        }
        w.numbers = numbers;
        w.bias = bias;
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%u.up_proj", e);
        check_matrix(&r.c, &t, &w, name, 6, 32);
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%u.up_proj.bias", e);
        check_floats(&r.c, &t, name, bias, WIDTH);
    }
    exl2__tensors_close(&r.c, &t);
    remove_out();
    check_clean(&r);
    free(file.data);
}

/* ---- rejected files ---- */

static void gating_softmax(gguf_maker *m) { gguf_key_u32(m, "qwen3moe.expert_gating_func", 2); }
static void not_renormalized(gguf_maker *m) { gguf_key_bool(m, "llama.expert_weights_norm", false); }
static void scale_negative(gguf_maker *m) { gguf_key_f32(m, "qwen3moe.expert_weights_scale", -1); }
static void groups_of_softmax(gguf_maker *m) { gguf_key_u32(m, "qwen3moe.expert_group_count", 5); }
static void all_skipped(gguf_maker *m) { gguf_key_u32(m, "qwen3moe.nextn_predict_layers", 2); }
static void no_keys(gguf_maker *m) { (void)m; }

static const family_case mixtral = { .gguf = "llama", .row = "MixtralForCausalLM", .layers = 1, .keys = no_keys };
static const family_case dense_gemma = { .gguf = "gemma3", .layers = 1, .keys = no_keys };
static const family_case no_experts = { .gguf = "qwen3moe", .layers = 2, .dense = 3, .kv_heads = 1,
                                        .qk_norms = true, .keys = qwen3_keys };
static const family_case odd_shared = { .gguf = "glm4moe", .layers = 4, .skipped = 1, .dense = 1, .shared = 80,
                                        .choice = true, .mlp_norm_after = true, .keys = glm_keys };

static void test_rejected(void)
{
    static const struct {
        const family_case *family;
        file_options options;
        exl2_result code;
        const char *piece;
    } rows[] = {
        { &qwen3, { .skip = "blk.1.ffn_up_exps.weight" }, EXL2_ERR_FORMAT, "blk.1.ffn_up_exps.weight is missing" },
        { &qwen3, { .skip = "blk.1.ffn_gate_inp.weight" }, EXL2_ERR_FORMAT, "blk.1.ffn_gate.weight is missing" },
        { &qwen3, { .narrow = "blk.0.ffn_down_exps.weight" }, EXL2_ERR_FORMAT,
          "32 x 64 x 4 x 1, expected 32 x 64 x 5 x 1" },
        { &qwen, { .skip = "blk.0.ffn_gate_inp_shexp.weight" }, EXL2_ERR_FORMAT,
          "ffn_gate_inp_shexp.weight is missing" },
        { &gpt, { .skip = "blk.0.attn_sinks.weight" }, EXL2_ERR_FORMAT, "blk.0.attn_sinks.weight is missing" },
        { &qwen3, { .change = gating_softmax }, EXL2_ERR_UNSUPPORTED, "expert_gating_func is 2, expected 1 (softmax)" },
        { &mixtral, { .change = not_renormalized }, EXL2_ERR_UNSUPPORTED, "llama.expert_weights_norm is false" },
        { &qwen3, { .change = scale_negative }, EXL2_ERR_FORMAT, "expert_weights_scale is out of range" },
        { &qwen3, { .change = groups_of_softmax }, EXL2_ERR_UNSUPPORTED, "qwen3moe.expert_group_count is 5" },
        { &qwen3, { .change = all_skipped }, EXL2_ERR_FORMAT, "nextn_predict_layers is 2, expected less than the 2" },
        { &dense_gemma, { 0 }, EXL2_ERR_UNSUPPORTED, "gemma3.expert_count is 5, but no experts" },
        { &no_experts, { 0 }, EXL2_ERR_FORMAT, "no layer has a tensor ffn_gate_inp.weight" },
        { &odd_shared, { 0 }, EXL2_ERR_UNSUPPORTED, "ffn_up_shexp.weight has 80 rows" },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        gguf_bytes file = make_file(rows[i].family, &rows[i].options);
        rig r;
        rig_make(&r, file);
        exl2_import_desc d = describe(&r);
        exl2_result result = exl2__import_gguf(&r.c, &d);
        if (!CHECK_INT(result, rows[i].code) || !CHECK(strstr(r.c.error.text, rows[i].piece))) {
            printf("  row %zu: \"%s\" should hold \"%s\"\n", i, r.c.error.text, rows[i].piece);
        }
        check_clean(&r);
        free(file.data);
    }
}

int main(void)
{
    static const names_of qwen_style = { &qwen3, { "mlp.experts", "gate_proj", "up_proj", "down_proj" }, "mlp.gate",
                                         "mlp.shared_expert", "down_proj", "" };
    static const names_of granite_style = { &granite, { "block_sparse_moe.experts", "gate_proj", "up_proj",
                                                        "down_proj" }, "block_sparse_moe.router.layer", "shared_mlp",
                                            "output_linear", "" };
    names_of n = qwen_style;
    import_start();
    test_family(&n);
    n.family = &qwen;
    test_family(&n);
    n.family = &gpt;
    test_family(&n);
    n.family = &glm;
    n.shared = "mlp.shared_experts";
    n.choice = "mlp.gate.e_score_correction_bias";
    test_family(&n);
    n = granite_style;
    test_family(&n);
    n.family = &granite_plain;
    test_family(&n);
    n = (names_of){ &mixtral, { "block_sparse_moe.experts", "w1", "w3", "w2" }, "block_sparse_moe.gate", "",
                      "", "" };
    test_family(&n);
    test_quantized();
    test_rejected();
    return check_done();
}
