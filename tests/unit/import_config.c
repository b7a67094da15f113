/* import_config.c: RoPE scaling and floats of config.json, and the models that an import rejects. */
#include "../import_rig.h"
#include "private/model_config_read.h"

/* ---- RoPE scaling ---- */

static void add_rope_table(gguf_maker *m, float factor, double original, float spoil)
{
    float table[8];
    for (int i = 0; i < 8; i++) { /* as llama.cpp's converter computes it, for heads of 16 */
        double wavelength = 6.283185307179586 / pow(500000.0, -2.0 * i / 16);
        double smooth = (original / wavelength - 1) / (4.0 - 1);
        table[i] = (float)(wavelength < original / 4 ? 1
                           : wavelength > original   ? factor
                                                     : 1 / ((1 - smooth) / factor + smooth));
    }
    table[4] += spoil;
    gguf_tensor(m, "rope_freqs.weight", 0, 8, 0, table, sizeof table);
}

static void rope_llama3(gguf_maker *m) { add_rope_table(m, 8, 8192, 0); }
static void rope_llama32(gguf_maker *m) { add_rope_table(m, 32, 8192, 0); }
static void rope_ones(gguf_maker *m) { add_rope_table(m, 1, 8192, 0); }
static void rope_odd(gguf_maker *m) { add_rope_table(m, 8, 8192, 0.5f); }

static void rope_other_context(gguf_maker *m)
{
    add_rope_table(m, 16, 4096, 0);
    gguf_key_u32(m, "llama.rope.scaling.original_context_length", 4096);
}

static void rope_linear(gguf_maker *m)
{
    gguf_key_text(m, "llama.rope.scaling.type", "linear");
    gguf_key_f32(m, "llama.rope.scaling.factor", 2.5f);
}

static void rope_old_linear(gguf_maker *m) { gguf_key_f32(m, "llama.rope.scale_linear", 4.0f); }

static void rope_both(gguf_maker *m)
{
    rope_linear(m);
    rope_llama3(m);
}

static void rope_yarn_bare(gguf_maker *m) { gguf_key_text(m, "llama.rope.scaling.type", "yarn"); }

static void rope_yarn(gguf_maker *m)
{
    rope_yarn_bare(m);
    gguf_key_f32(m, "llama.rope.scaling.factor", 4);
    gguf_key_u32(m, "llama.rope.scaling.original_context_length", 128);
}

static void rope_yarn_all(gguf_maker *m)
{
    rope_yarn(m);
    gguf_key_f32(m, "llama.rope.scaling.yarn_beta_fast", 16);
    gguf_key_f32(m, "llama.rope.scaling.yarn_beta_slow", 2);
    gguf_key_f32(m, "llama.rope.scaling.attn_factor", 0.5f);
}

static void rope_yarn_table(gguf_maker *m)
{
    rope_yarn(m);
    rope_llama3(m);
}

static void rope_longrope(gguf_maker *m)
{
    float factors[8] = { 1, 1, 1.5f, 2, 3, 4, 5, 6 };
    gguf_tensor(m, "rope_factors_long.weight", 0, 8, 0, factors, sizeof factors);
    factors[7] = 2;
    gguf_tensor(m, "rope_factors_short.weight", 0, 8, 0, factors, sizeof factors);
    gguf_key_u32(m, "llama.rope.scaling.original_context_length", 64);
    gguf_key_f32(m, "llama.rope.scaling.attn_factor", 1.25f);
}

static void rope_zero(gguf_maker *m)
{
    float factors[8] = { 1, 1, 0, 1, 1, 1, 1, 1 };
    gguf_tensor(m, "rope_freqs.weight", 0, 8, 0, factors, sizeof factors);
}

static void rope_short_table(gguf_maker *m)
{
    float factors[4] = { 1, 1, 1, 1 };
    gguf_tensor(m, "rope_freqs.weight", 0, 4, 0, factors, sizeof factors);
}

static void rope_long_alone(gguf_maker *m)
{
    float factors[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    gguf_tensor(m, "rope_factors_long.weight", 0, 8, 0, factors, sizeof factors);
}

static void rope_unknown(gguf_maker *m) { gguf_key_text(m, "llama.rope.scaling.type", "ntk"); }

static void test_rope(void)
{
    static const struct {
        void (*change)(gguf_maker *m);
        exl2__rope_kind kind;
        double factor, original; /* of LONGROPE, factor: the last of long_factor */
    } rows[] = {
        { NULL, EXL2__ROPE_PLAIN, 1, 0 },
        { rope_ones, EXL2__ROPE_PLAIN, 1, 0 },
        { rope_llama3, EXL2__ROPE_LLAMA3, 8, 8192 },
        { rope_llama32, EXL2__ROPE_LLAMA3, 32, 8192 },
        { rope_other_context, EXL2__ROPE_LLAMA3, 16, 4096 },
        { rope_linear, EXL2__ROPE_LINEAR, 2.5, 0 },
        { rope_old_linear, EXL2__ROPE_LINEAR, 4, 0 },
        { rope_odd, EXL2__ROPE_LONGROPE, 8, 512 },
        { rope_both, EXL2__ROPE_LONGROPE, 20, 512 }, /* 8, the table's, times 2.5 */
        { rope_yarn, EXL2__ROPE_YARN, 4, 128 },
        { rope_yarn_all, EXL2__ROPE_YARN, 4, 128 },
        { rope_longrope, EXL2__ROPE_LONGROPE, 6, 64 },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        llama_options o = small;
        llama_model l;
        rig r;
        exl2__config config;
        o.change = rows[i].change;
        llama_make(&l, &o);
        rig_make(&r, l.file);
        exl2_import_desc d = describe(&r);
        if (CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK) &&
            CHECK_INT(exl2__config_read(&r.c, out_dir, &config), EXL2_OK)) {
            CHECK_INT(config.rope.kind, rows[i].kind);
            if (rows[i].kind == EXL2__ROPE_LONGROPE) {
                CHECK((double)config.rope.long_factor[7] == rows[i].factor);
                float last = rows[i].change == rope_longrope ? 2 : config.rope.long_factor[7];
                CHECK(config.rope.short_factor[7] == last);
                CHECK(config.rope.original_context_max == rows[i].original);
                CHECK(exl2__rope_magnitude(&config.rope) == (rows[i].change == rope_longrope ? 1.25 : 1));
            } else if (rows[i].kind != EXL2__ROPE_PLAIN) {
                CHECK(config.rope.factor == rows[i].factor);
            }
            if (rows[i].kind == EXL2__ROPE_YARN) {
                bool all = rows[i].change == rope_yarn_all;
                CHECK(config.rope.high == (all ? 16 : 32) && config.rope.low == (all ? 2 : 1) && config.rope.rounded);
                CHECK(config.rope.original_context_max == rows[i].original);
                double magnitude = (0.1 * log(4.0) + 1) * (all ? 0.5 : 1); /* as llama.cpp computes it */
                CHECK(fabs(exl2__rope_magnitude(&config.rope) - magnitude) < 1e-6);
            }
            if (rows[i].kind == EXL2__ROPE_LLAMA3) {
                CHECK(config.rope.low == 1 && config.rope.high == 4 &&
                      config.rope.original_context_max == rows[i].original);
            }
            remove_out();
        } else {
            printf("  row %zu: %s\n", i, r.c.error.text);
        }
        check_clean(&r);
        llama_free(&l);
    }
}

/* ---- rejected models ---- */

static void add_parts(gguf_maker *m) { gguf_key_u32(m, "split.count", 3); }
static void add_scale(gguf_maker *m) { gguf_key_f32(m, "llama.logit_scale", 0.5f); }
static const uint8_t zeros[64] = { 0 };
static void add_tensor(gguf_maker *m) { gguf_tensor(m, "blk.0.attn_q_norm.weight", 0, 16, 0, zeros, sizeof zeros); }

/* ---- keys of a family with windows ---- */

/* Makes the tiny Llama a Gemma 3 as far as its keys say; its tensors do not matter to exl2__import_config_read. */
static void gemma_keys(gguf_maker *m)
{
    gguf_key_text(m, "general.architecture", "gemma3");
    gguf_key_u32(m, "gemma3.block_count", 2);
    gguf_key_u32(m, "gemma3.context_length", 512);
    gguf_key_u32(m, "gemma3.embedding_length", 64);
    gguf_key_u32(m, "gemma3.feed_forward_length", 96);
    gguf_key_u32(m, "gemma3.attention.head_count", 4);
    gguf_key_u32(m, "gemma3.attention.key_length", 16);
    gguf_key_f32(m, "gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
}

static void put_bools(gguf_maker *m, uint32_t count)
{
    gguf_key_array(m, "gemma3.attention.sliding_window_pattern", 7, count);
    for (uint32_t i = 0; i < count; i++) {
        gguf_put(&m->keys, i % 2 ? "\0" : "\1", 1);
    }
}

static void window_of(gguf_maker *m) { gguf_key_u32(m, "gemma3.attention.sliding_window", 32); }
static void pattern_number(gguf_maker *m) { gguf_key_u32(m, "gemma3.attention.sliding_window_pattern", 3); }
static void pattern_zero(gguf_maker *m) { gguf_key_u32(m, "gemma3.attention.sliding_window_pattern", 0); }
static void pattern_list(gguf_maker *m) { put_bools(m, 2); }
static void pattern_long(gguf_maker *m) { put_bools(m, 3); }
static void pattern_text(gguf_maker *m) { gguf_key_text(m, "gemma3.attention.sliding_window_pattern", "LG"); }

static void pattern_ints(gguf_maker *m)
{
    gguf_key_array(m, "gemma3.attention.sliding_window_pattern", 5, 2);
    gguf_put64(&m->keys, 0);
}

static void heads_text(gguf_maker *m) { gguf_key_text(m, "gemma3.attention.head_count_kv", "4"); }
static void softcap_text(gguf_maker *m) { gguf_key_text(m, "gemma3.final_logit_softcapping", "30"); }
static void softcap_negative(gguf_maker *m) { gguf_key_f32(m, "gemma3.final_logit_softcapping", -1); }
static void rotary_large(gguf_maker *m) { gguf_key_u32(m, "gemma3.rope.dimension_count", 32); }
static void theta_negative(gguf_maker *m) { gguf_key_f32(m, "gemma3.rope.freq_base", -1); }
static void dim_odd(gguf_maker *m) { gguf_key_u32(m, "gemma3.attention.value_length", 8); }

static void experts_huge(gguf_maker *m)
{
    gguf_key(m, "gemma3.expert_count", 10);
    gguf_put64(&m->keys, (uint64_t)1 << 32);
}

static void test_keys(void)
{
    static const struct {
        void (*change)(gguf_maker *m);
        exl2_result code;
        const char *piece; /* of the message; NULL: accepted */
    } rows[] = {
        { pattern_number, EXL2_OK, NULL },
        { pattern_list, EXL2_OK, NULL },
        { pattern_zero, EXL2_ERR_UNSUPPORTED, "sliding_window_pattern is 0, expected 1 to 4096" },
        { pattern_long, EXL2_ERR_FORMAT, "is an array of 3 bool, expected a number, or an array of 2 bool" },
        { pattern_ints, EXL2_ERR_FORMAT, "is an array of 2 i32, expected a number" },
        { pattern_text, EXL2_ERR_FORMAT, "sliding_window_pattern is of type string, expected an integer" },
        { heads_text, EXL2_ERR_FORMAT, "head_count_kv is of type string" },
        { softcap_text, EXL2_ERR_FORMAT, "final_logit_softcapping is of type string" },
        { softcap_negative, EXL2_ERR_FORMAT, "final_logit_softcapping is out of range" },
        { rotary_large, EXL2_ERR_UNSUPPORTED, "16 for keys, 16 for values and 32 for RoPE" },
        { theta_negative, EXL2_ERR_FORMAT, "gemma3.rope.freq_base is out of range" },
        { dim_odd, EXL2_ERR_UNSUPPORTED, "16 for keys, 8 for values" },
        { experts_huge, EXL2_ERR_FORMAT, "gemma3.expert_count is 4294967296, which is out of range" },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        gguf_maker m = { 0 };
        static const uint8_t numbers[64 * 16 * 2] = { 0 };
        exl2__gguf g;
        exl2__import_config config = { .bits = 8, .group = 32, .head_bits = 8 };
        rig r;
        gemma_keys(&m);
        window_of(&m);
        rows[i].change(&m);
        gguf_tensor(&m, "token_embd.weight", 1, 64, 16, numbers, sizeof numbers);
        gguf_bytes file = gguf_finish(&m);
        rig_make(&r, file);
        CHECK_INT(exl2__gguf_open(&r.c, "model.gguf", &g), EXL2_OK);
        exl2_result result = exl2__import_config_read(&g, &config);
        if (!CHECK_INT(result, rows[i].code) || !CHECK(!rows[i].piece || strstr(r.c.error.text, rows[i].piece))) {
            printf("  row %zu: %s\n", i, r.c.error.text);
        }
        if (rows[i].change == pattern_number) {
            CHECK(config.window == 32 && config.window_period == 3 && !config.windowed);
        } else if (rows[i].change == pattern_list) {
            CHECK(config.windowed && config.windowed[0] == 1 && config.windowed[1] == 0);
        }
        exl2__gguf_close(&g);
        check_clean(&r);
        free(file.data);
    }
}

/* "chatglm" is GLM-4 9B: half of each head is rotated, and gate and up are one tensor. */
static void test_chatglm(void)
{
    static const uint8_t numbers[64 * 16 * 2] = { 0 };
    gguf_maker m = { 0 };
    exl2__gguf g;
    exl2__import_config config = { .bits = 8, .group = 32, .head_bits = 8 };
    rig r;
    gguf_key_text(&m, "general.architecture", "chatglm");
    gguf_key_u32(&m, "chatglm.block_count", 2);
    gguf_key_u32(&m, "chatglm.context_length", 512);
    gguf_key_u32(&m, "chatglm.embedding_length", 64);
    gguf_key_u32(&m, "chatglm.feed_forward_length", 96);
    gguf_key_u32(&m, "chatglm.attention.head_count", 4);
    gguf_key_u32(&m, "chatglm.attention.head_count_kv", 2);
    gguf_key_u32(&m, "chatglm.rope.dimension_count", 8);
    gguf_key_f32(&m, "chatglm.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_tensor(&m, "token_embd.weight", 1, 64, 16, numbers, sizeof numbers);
    gguf_bytes file = gguf_finish(&m);
    rig_make(&r, file);
    CHECK_INT(exl2__gguf_open(&r.c, "model.gguf", &g), EXL2_OK);
    CHECK_INT(exl2__import_config_read(&g, &config), EXL2_OK);
    CHECK_TEXT(config.arch.name, "GlmForCausalLM");
    CHECK(config.rotary == 8 && config.head_dim == 16 && config.kv_heads == 2);
    exl2__gguf_close(&g);
    check_clean(&r);
    free(file.data);
}

static void test_model_refusals(void)
{
    llama_options o = small;
    o.change = add_parts;
    check_refused("a part", &o, EXL2_ERR_FORMAT, "must end in -00001-of-00003.gguf");
    o.change = add_scale;
    check_refused("logit scale", &o, EXL2_ERR_UNSUPPORTED, "llama.logit_scale");
    o.change = add_tensor;
    check_refused("a tensor too many", &o, EXL2_ERR_UNSUPPORTED, "blk.0.attn_q_norm.weight");
    o.change = rope_yarn_table;
    check_refused("two scalings", &o, EXL2_ERR_UNSUPPORTED, "rope_freqs.weight together");
    o.change = rope_yarn_bare;
    check_refused("yarn without its context", &o, EXL2_ERR_FORMAT, "llama.rope.scaling.original_context_length");
    o.change = rope_unknown;
    check_refused("an unknown scaling", &o, EXL2_ERR_UNSUPPORTED, "llama.rope.scaling.type is ntk");
    o.change = rope_zero;
    check_refused("a divisor of 0", &o, EXL2_ERR_FORMAT, "rope_freqs.weight[2] is out of range");
    o.change = rope_short_table;
    check_refused("a short table", &o, EXL2_ERR_FORMAT, "rope_freqs.weight is F32 with rows of 4");
    o.change = rope_long_alone;
    check_refused("half of longrope", &o, EXL2_ERR_FORMAT, "rope_factors_short.weight");
    o = small;
    o.skip = "blk.1.ffn_up.weight";
    check_refused("a tensor too few", &o, EXL2_ERR_FORMAT, "blk.1.ffn_up.weight is missing");
    o.skip = "token_embd.weight";
    check_refused("no embedding", &o, EXL2_ERR_FORMAT, "token_embd.weight");
    o = small;
    o.skip_key = "llama.block_count";
    check_refused("no layers", &o, EXL2_ERR_FORMAT, "llama.block_count is missing");
    o.skip_key = "llama.attention.layer_norm_rms_epsilon";
    check_refused("no epsilon", &o, EXL2_ERR_FORMAT, "rms_epsilon");
    o = small;
    o.inter = 32 * 2047 + 32 * 2;
    o.layers = 1;
    check_refused("too wide", &o, EXL2_ERR_UNSUPPORTED, "llama.feed_forward_length is 65568");
    o = small;
    o.kv_heads = 3;
    check_refused("heads", &o, EXL2_ERR_FORMAT, "4 heads cannot share 3");
    o = small;
    o.spoil = "blk.0.attn_q.weight"; /* a tensor of F32 */
    check_refused("NaN in a matrix", &o, EXL2_ERR_FORMAT, "blk.0.attn_q.weight has a number in row 63");
    o.spoil = "blk.0.attn_norm.weight";
    check_refused("NaN in a norm", &o, EXL2_ERR_FORMAT, "blk.0.attn_norm.weight has a number at 63");
}

/* ---- numbers as text ---- */

static void test_floats(void)
{
    static const struct {
        float value;
        const char *text;
    } rows[] = {
        { 1e-5f, "1e-5" },
        { 1e-6f, "1e-6" },
        { 500000.0f, "500000.0" },
        { 10000.0f, "10000.0" },
        { 8.0f, "8.0" },
        { 0.0f, "0.0" },
        { 0.1f, "1e-1" },
        { 2.5f, "25e-1" },
        { 3.14159274f, "31415927e-7" },
        { 1e30f, "1e30" },
        { 9.999999f, "9999999e-6" },
        { 16777216.0f, "16777216.0" },
        { 1.17549435e-38f, "11754944e-45" },
        { 3.40282347e38f, "34028235e31" },
    };
    exl2__ctx c = { 0 };
    c.allocator = exl2__platform_allocator();
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        exl2__write w;
        CHECK_INT(exl2__write_open(&c, NULL, &w), EXL2_OK);
        exl2__write_float(&w, rows[i].value);
        w.buffer[w.used] = 0;
        CHECK_TEXT(w.buffer, rows[i].text);
        CHECK(strtof(w.buffer, NULL) == rows[i].value);
        CHECK_INT(exl2__write_close(&w), EXL2_OK);
    }
    CHECK_INT(c.host_bytes, 0);
}

int main(void)
{
    import_start();
    test_rope();
    test_keys();
    test_chatglm();
    test_model_refusals();
    test_floats();
    return check_done();
}
