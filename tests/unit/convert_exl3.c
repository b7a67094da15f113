/* convert_exl3.c: blocks of a source of EXL3 that EXL2 cannot hold, as their inputs are no multiple of 32: the output
   has their matrices in FP16, in the model's basis and widths, with their biases; also those that the source has plain,
   at the padded size. */
#define _POSIX_C_SOURCE 200809L
#include "../../exl2.h"
#include "private/file.h"
#include "private/half.h"
#include "../convert_rig.h"
#include "../model_maker.h"

enum { HIDDEN = 160, INTER = 100, VOCAB = 64, LENGTH = 32, ROWS = 6 };

#define MLP "model.layers.0.mlp."

static maker source;

static uint32_t up(uint32_t n) { return (n + 127) / 128 * 128; }

/* Halves from 0.5 to 1 of both signs, which are `scale` times as large. */
static maker_tensor *add_halves(const char *key, const char *part, uint32_t rows, uint32_t columns, float scale)
{
    size_t count = (size_t)rows * (columns ? columns : 1);
    maker_tensor *t = maker_add(&source, key, part, "F16", rows, columns, count * 2, NULL);
    for (size_t i = 0; i < count; i++) {
        float value = 0.5f + (float)(maker_random(&source) % 512) / 1024;
        maker_store(t->data + 2 * i, exl2__f32_to_f16(maker_random(&source) % 2 ? value * scale : -value * scale), 2);
    }
    return t;
}

/* All states are 0, so all weights of the rotated matrix are the same: 3INST's first value. Transformed on both sides,
   a block of 128 x 128 of them has one value that is not 0, 128 times as large, for its first input and output. */
static void add_exl3(const char *key, uint32_t out, uint32_t in)
{
    size_t bytes = (size_t)up(in) * up(out) / 8 * 3;
    maker_tensor *t = maker_add(&source, key, "trellis", "I16", up(in) / 16, up(out) / 16, bytes, NULL);
    t->rank = 3;
    t->dims[2] = 48;
    memset(t->data, 0, bytes);
    add_halves(key, "suh", up(in), 0, 1);
    add_halves(key, "svh", up(out), 0, 0.01f);
    add_halves(key, "bias", up(out), 0, 0.1f);
}

static void make_model(const char *dir)
{
    static const char config[] =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":64,\"hidden_size\":160,\"intermediate_size\":100,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":80,\"hidden_act\":"
        "\"silu\",\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"tie_word_embeddings\""
        ":true,\"mlp_bias\":true,\"bos_token_id\":1,\"eos_token_id\":2,\"quantization_config\":{\"quant_method\":"
        "\"exl3\"}}";
    size_t bytes;
    source = (maker){ .count = 0, .state = 11 };
    add_halves("model.embed_tokens", "weight", VOCAB, HIDDEN, 1);
    add_halves("model.norm", "weight", HIDDEN, 0, 1);
    add_halves("model.layers.0.input_layernorm", "weight", HIDDEN, 0, 1);
    add_halves("model.layers.0.post_attention_layernorm", "weight", HIDDEN, 0, 1);
    add_halves("model.layers.0.self_attn.q_proj", "weight", HIDDEN, HIDDEN, 0.1f);
    add_halves("model.layers.0.self_attn.k_proj", "weight", HIDDEN / 2, HIDDEN, 0.1f);
    add_halves("model.layers.0.self_attn.v_proj", "weight", HIDDEN / 2, HIDDEN, 0.1f);
    add_halves("model.layers.0.self_attn.o_proj", "weight", HIDDEN, HIDDEN, 0.1f);
    add_exl3(MLP "gate_proj", INTER, HIDDEN);
    add_halves(MLP "up_proj", "weight", up(INTER), up(HIDDEN), 0.1f);
    add_halves(MLP "up_proj", "bias", up(INTER), 0, 0.1f);
    add_exl3(MLP "down_proj", HIDDEN, INTER);
    CHECK(exl2__platform_make_dir(dir));
    maker_write(dir, "config.json", config, sizeof config - 1);
    uint8_t *file = maker_file(&source, &bytes);
    maker_write(dir, "model.safetensors", file, bytes);
    free(file);
}

/* The halves of a tensor of the output; its entry must have this shape. */
static const uint8_t *find(const char *file, const char *name, const char *shape, uint64_t count)
{
    char entry[300];
    unsigned long long begin = 0, end = 0;
    snprintf(entry, sizeof entry, "\"%s\":{\"dtype\":\"F16\",\"shape\":%s", name, shape);
    const char *at = strstr(file + 8, entry);
    bool found = at && sscanf(at + strlen(entry), ",\"data_offsets\":[%llu,%llu]", &begin, &end) == 2;
    if (!CHECK(found && end - begin == count * 2)) {
        printf("  %s\n", entry);
        return NULL;
    }
    uint64_t header = 0;
    memcpy(&header, file, 8);
    return (const uint8_t *)file + 8 + header + begin;
}

static float value_at(const uint8_t *halves, size_t at)
{
    return exl2__f16_to_f32((uint16_t)(halves[2 * at] | halves[2 * at + 1] << 8));
}

static void check_exl3(const char *file, const char *key, const char *shape, uint32_t out, uint32_t in)
{
    char name[100];
    uint32_t wrong = 0;
    snprintf(name, sizeof name, "%s.weight", key);
    const uint8_t *w = find(file, name, shape, (uint64_t)out * in);
    snprintf(name, sizeof name, "%s.suh", key);
    const uint8_t *suh = maker_find(&source, name)->data;
    snprintf(name, sizeof name, "%s.svh", key);
    const uint8_t *svh = maker_find(&source, name)->data;
    for (size_t i = 0; w && i < (size_t)out * in; i++) {
        size_t n = i / in, k = i % in;
        float whole = n % 128 || k % 128 ? 0 : 128 * exl2__f16_to_f32(0x3A25) * value_at(suh, k) * value_at(svh, n);
        float far = value_at(w, i) - whole, most = whole * 0.001f; /* half of a half's last place is 0.0005 */
        wrong += far * far > most * most;
    }
    CHECK_INT(wrong, 0);
}

static void check_bias(const char *file, const char *key, const char *shape, uint32_t out)
{
    char name[100];
    snprintf(name, sizeof name, "%s.bias", key);
    const uint8_t *bias = find(file, name, shape, out);
    CHECK(bias && memcmp(bias, maker_find(&source, name)->data, out * 2) == 0);
}

int main(void)
{
    char dir[600], path[700];
    size_t bytes;
    exl2_convert_info info = { 0 };
    exl2_error error = { 0 };
    rig_open((ROWS + 2) * LENGTH, VOCAB);
    snprintf(dir, sizeof dir, "%s/source", root);
    make_model(dir);
    exl2_convert_desc d = rig_desc(dir, ROWS, LENGTH);
    d.bpw = 6;
    d.info = &info;
    d.error = &error;
    if (!CHECK_INT(exl2_convert(&d), EXL2_OK)) {
        printf("  %s\n", error.text);
        rig_close();
        return check_done();
    }
    CHECK(info.kl >= 0 && info.kl < 0.1f); /* of the output, loaded again */
    snprintf(path, sizeof path, "%s/output.safetensors", out_dir);
    char *file = check_read(path, &bytes);
    check_exl3(file, MLP "gate_proj", "[100,160]", INTER, HIDDEN);
    check_exl3(file, MLP "down_proj", "[160,100]", HIDDEN, INTER);
    check_bias(file, MLP "gate_proj", "[100]", INTER);
    check_bias(file, MLP "up_proj", "[100]", INTER);
    check_bias(file, MLP "down_proj", "[160]", HIDDEN);
    const uint8_t *plain = find(file, MLP "up_proj.weight", "[100,160]", INTER * HIDDEN);
    const uint8_t *padded = maker_find(&source, MLP "up_proj.weight")->data;
    for (uint32_t row = 0; plain && row < INTER; row++) {
        CHECK(memcmp(plain + (size_t)row * HIDDEN * 2, padded + (size_t)row * up(HIDDEN) * 2, HIDDEN * 2) == 0);
    }
    CHECK(strstr(file + 8, "self_attn.q_proj.q_weight") && !strstr(file + 8, "suh") && !strstr(file + 8, "trellis"));
    free(file);
    maker_free(&source);
    rig_close();
    return check_done();
}
