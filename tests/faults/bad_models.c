/* bad_models.c: model folders on disk, each with one defect. Loading must fail with the right code and a message that
   names the file and the defect. The folder without a defect must load, so that each case fails for its own reason. */
#include "private/platform_alloc.h"
#include "private/platform_files.h"
#include "private/matrix_tables.h"
#include "private/model_config_read.h"
#include "../model_maker.h"
#include "../tensors_open.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- loading: config, tensors, and every matrix and norm of a Llama ---- */

static exl2_result load_matrix(exl2__ctx *c, const exl2__tensors *t, const char *key, uint32_t in, uint32_t out,
                               exl2__matrix_desc *desc)
{
    exl2__matrix_tables tables;
    uint8_t row[4096];
    EXL2__TRY(exl2__matrix_find(c, t, key, in, out, desc));
    EXL2__TRY(exl2__matrix_tables_open(c, t, 1.0f, desc, &tables));
    exl2__matrix_tables_close(c, &tables);
    const exl2__tensor *data = desc->data;
    for (uint64_t at = 0; at < data->bytes; at += sizeof row) {
        EXL2__TRY(exl2__tensors_read(c, t, data, at, row, exl2__min64(sizeof row, data->bytes - at)));
    }
    return EXL2_OK;
}

static exl2_result load_norm(exl2__ctx *c, const exl2__tensors *t, const char *key, uint32_t count)
{
    float values[4096];
    char name[128];
    snprintf(name, sizeof name, "%s.weight", key);
    return exl2__tensor_floats(c, t, name, count, values);
}

static exl2_result load_layer(exl2__ctx *c, const exl2__config *k, const exl2__tensors *t, uint32_t layer)
{
    uint32_t q = k->heads * k->head_dim, kv = k->kv_heads * k->head_dim;
    const struct { const char *key; uint32_t in, out; } list[7] = {
        { "self_attn.q_proj", k->hidden, q }, { "self_attn.k_proj", k->hidden, kv }, { "self_attn.v_proj", k->hidden,
                                                                                       kv },
        { "self_attn.o_proj", q, k->hidden }, { "mlp.gate_proj", k->hidden, k->inter }, { "mlp.up_proj", k->hidden,
                                                                                          k->inter },
        { "mlp.down_proj", k->inter, k->hidden },
    };
    exl2__matrix_desc desc;
    char keys[7][128], norm[128];
    for (uint32_t i = 0; i < 7; i++) {
        snprintf(keys[i], sizeof keys[i], "model.layers.%u.%s", layer, list[i].key);
        EXL2__TRY(load_matrix(c, t, keys[i], list[i].in, list[i].out, &desc));
    }
    snprintf(norm, sizeof norm, "model.layers.%u.input_layernorm", layer);
    EXL2__TRY(load_norm(c, t, norm, k->hidden));
    snprintf(norm, sizeof norm, "model.layers.%u.post_attention_layernorm", layer);
    return load_norm(c, t, norm, k->hidden);
}

static exl2_result load_tensors(exl2__ctx *c, const exl2__config *k, const exl2__tensors *t)
{
    exl2__matrix_desc desc;
    EXL2__TRY(exl2__matrix_find_table(c, t, "model.embed_tokens", k->hidden, k->vocab, &desc));
    for (uint32_t layer = 0; layer < k->layers; layer++) {
        EXL2__TRY(load_layer(c, k, t, layer));
    }
    EXL2__TRY(load_norm(c, t, "model.norm", k->hidden));
    bool tied = k->tie_embeddings && !exl2__matrix_exists(t, "lm_head");
    return tied ? EXL2_OK : load_matrix(c, t, "lm_head", k->hidden, k->vocab, &desc);
}

/* Runs all checks of loading that need no backend. *error: the message, if one fails. */
static exl2_result check_folder(const char *dir, char error[248])
{
    exl2__ctx c = { 0 };
    exl2__config config;
    exl2__tensors tensors;
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    exl2_result result = exl2__config_read(&c, dir, &config);
    if (result >= 0) {
        result = tensors_open(&c, dir, &tensors);
    }
    if (result >= 0) {
        result = load_tensors(&c, &config, &tensors);
        exl2__tensors_close(&c, &tensors);
    }
    CHECK_INT(c.host_bytes, 0);
    memcpy(error, c.error.text, 248);
    return result;
}

/* ---- the folder of a case ---- */

typedef struct folder {
    maker m;
    char *config;              /* text of config.json; NULL = no file */
    char *quantize;            /* text of quantize_config.json; NULL = no file */
    char *index;               /* text of model.safetensors.index.json; NULL = no file */
    char *generation;          /* text of generation_config.json; NULL = no file */
    bool no_tensors;           /* no safetensors file */
    size_t cut;                /* bytes missing at the end of the safetensors file */
    uint64_t header_length;    /* wrong length of the header; 0 = the right one */
    const char *header;        /* wrong JSON of the header; NULL = the right one */
    const char *copied_tensor; /* key of a tensor that a second file has, too */
} folder;

static char *copy_text(const char *text)
{
    char *copy = (char *)malloc(strlen(text) + 1);
    strcpy(copy, text);
    return copy;
}

/* Replaces `from`, which must occur, in config.json. */
static void edit_config(folder *f, const char *from, const char *to)
{
    char *at = strstr(f->config, from);
    if (!CHECK(at != NULL)) {
        return;
    }
    char *text = (char *)malloc(strlen(f->config) + strlen(to) + 1);
    sprintf(text, "%.*s%s%s", (int)(at - f->config), f->config, to, at + strlen(from));
    free(f->config);
    f->config = text;
}

static void replace_config(folder *f, const char *text)
{
    free(f->config);
    f->config = text ? copy_text(text) : NULL;
}

static void write_tensors(const folder *f, const char *dir)
{
    size_t bytes;
    uint8_t *file = maker_file(&f->m, &bytes);
    if (f->header) {
        bytes = 8 + strlen(f->header);
        free(file);
        file = (uint8_t *)malloc(bytes);
        maker_store(file, bytes - 8, 8);
        memcpy(file + 8, f->header, bytes - 8);
    }
    if (f->header_length) {
        maker_store(file, f->header_length, 8);
    }
    maker_write(dir, "output.safetensors", file, bytes - f->cut);
    free(file);
    if (f->copied_tensor) {
        maker one = { 0 };
        one.tensors[one.count++] = *maker_find((maker *)&f->m, f->copied_tensor);
        file = maker_file(&one, &bytes);
        maker_write(dir, "stale.safetensors", file, bytes);
        free(file);
    }
}

static void write_folder(const folder *f, const char *dir)
{
    CHECK(mkdir(dir, 0700) == 0);
    if (f->config) {
        maker_write(dir, "config.json", f->config, strlen(f->config));
    }
    if (f->generation) {
        maker_write(dir, "generation_config.json", f->generation, strlen(f->generation));
    }
    if (f->index) {
        maker_write(dir, "model.safetensors.index.json", f->index, strlen(f->index));
    }
    if (f->quantize) {
        maker_write(dir, "quantize_config.json", f->quantize, strlen(f->quantize));
    }
    if (!f->no_tensors) {
        write_tensors(f, dir);
    }
}

static void remove_folder(const char *dir)
{
    static const char *const names[] = { "config.json", "generation_config.json", "quantize_config.json",
                                         "model.safetensors.index.json", "output.safetensors", "stale.safetensors" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        remove(path);
    }
    CHECK(rmdir(dir) == 0);
}

/* ---- cases ---- */

#define Q_PROJ "model.layers.0.self_attn.q_proj."
#define DOWN "model.layers.0.mlp.down_proj."

static maker_tensor *resized(folder *f, const char *ending, uint64_t dim0, uint64_t dim1, size_t bytes)
{
    maker_tensor *t = maker_find(&f->m, ending);
    t->data = (uint8_t *)realloc(t->data, bytes ? bytes : 1);
    memset(t->data, 0, bytes);
    t->dims[0] = dim0;
    t->dims[1] = dim1;
    t->bytes = bytes;
    return t;
}

static void forge(folder *f, const char *ending, const char *entry)
{
    strcpy(maker_find(&f->m, ending)->entry, entry);
}

/* 10,000 open brackets. */
static const char *deep_text(void)
{
    static char text[10001];
    memset(text, '[', 10000);
    return text;
}

static void to_dense(folder *f, const char *key)
{
    static const char *const parts[] = { "q_weight", "q_scale", "q_scale_max", "q_groups", "q_invperm" };
    char name[128];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(name, sizeof name, "%s.%s", key, parts[i]);
        maker_drop(&f->m, name);
    }
    maker_add_halves(&f->m, key, 64, 64);
}

#define LFS_POINTER "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 1048576\n"
#define CASE(name) static void name(folder *f)
CASE(nothing) { (void)f; }
CASE(no_config) { replace_config(f, NULL); }
CASE(empty_folder) { replace_config(f, NULL); f->no_tensors = true; }
CASE(no_tensors) { f->no_tensors = true; }
CASE(config_no_json) { replace_config(f, "hidden_size = 64\n"); }
CASE(config_cut) { f->config[100] = 0; }
CASE(config_empty) { replace_config(f, ""); }
CASE(config_list) { replace_config(f, "[1, 2]"); }
CASE(config_deep) { replace_config(f, deep_text()); }
CASE(config_utf8) { edit_config(f, "silu", "\xC0\xAF"); }
CASE(config_twice) { edit_config(f, "\"vocab_size\":64", "\"vocab_size\":64,\"vocab_size\":65"); }
CASE(two_architectures) { edit_config(f, "[\"LlamaForCausalLM\"]", "[\"LlamaForCausalLM\",\"MistralForCausalLM\"]"); }
CASE(no_architecture) { edit_config(f, "\"architectures\"", "\"arch\""); }
CASE(other_architecture) { edit_config(f, "LlamaForCausalLM", "FalconForCausalLM"); }
CASE(vocab_zero) { edit_config(f, "\"vocab_size\":64", "\"vocab_size\":0"); }
CASE(layers_huge) { edit_config(f, "\"num_hidden_layers\":1", "\"num_hidden_layers\":18446744073709551615"); }
CASE(layers_more) { edit_config(f, "\"num_hidden_layers\":1", "\"num_hidden_layers\":2"); }
CASE(hidden_text) { edit_config(f, "\"hidden_size\":64", "\"hidden_size\":\"64\""); }
CASE(heads_odd) { edit_config(f, "\"num_key_value_heads\":1", "\"num_key_value_heads\":3"); }
CASE(act_gelu) { edit_config(f, "silu", "gelu"); }
CASE(rope_curly) { edit_config(f, "\"rope_theta\"",
                               "\"rope_scaling\":{\"type\":\"curly\",\"factor\":4.0},\"rope_theta\""); }
/* Adds a quantization_config with these members. */
static void quantized(folder *f, const char *members)
{
    char text[512];
    snprintf(text, sizeof text, "\"quantization_config\":{%s},\"rope_theta\"", members);
    edit_config(f, "\"rope_theta\"", text);
}

#define QUANTIZED(name, members) CASE(name) { quantized(f, members); }
QUANTIZED(quant_gptq, "\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":-1") /* EXL2 matrices need no settings */
QUANTIZED(quant_fp8, "\"quant_method\":\"fp8\"")
QUANTIZED(quant_exl4, "\"quant_method\":\"exl4\",\"bits\":4.0")
QUANTIZED(quant_mxfp4, "\"quant_method\":\"mxfp4\"")
QUANTIZED(quant_compressed, "\"quant_method\":\"compressed-tensors\"")
QUANTIZED(quant_bitsandbytes, "\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true")
QUANTIZED(quant_old_bitsandbytes, "\"load_in_8bit\":true")
QUANTIZED(quant_gemv, "\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\"")
QUANTIZED(quant_awq_bits, "\"quant_method\":\"awq\",\"bits\":8,\"version\":\"gemm\"")
QUANTIZED(quant_marlin, "\"quant_method\":\"gptq\",\"bits\":4,\"is_marlin_format\":true")
QUANTIZED(quant_marlin_format, "\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"marlin\"")
QUANTIZED(quant_bits, "\"quant_method\":\"gptq\",\"bits\":5")
QUANTIZED(quant_bits_text, "\"quant_method\":\"gptq\",\"bits\":\"4\"")
QUANTIZED(quant_group, "\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":48")
QUANTIZED(quant_group_zero, "\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0")
CASE(quant_list) { edit_config(f, "\"rope_theta\"", "\"quantization_config\":[4],\"rope_theta\""); }
CASE(quant_mixed)
{
    quantized(f, "\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"gptq\"");
    f->quantize = copy_text("{\"bits\": 4, \"checkpoint_format\": \"gptq_v2\"}");
}
CASE(quant_file_bits) { f->quantize = copy_text("{\"bits\": 5, \"group_size\": 128}"); }
CASE(quant_file_marlin) { f->quantize = copy_text("{\"bits\": 4, \"is_marlin_format\": true}"); }
CASE(quant_file_cut) { f->quantize = copy_text("{\"bits\": 4, "); }
CASE(generation_bad) { f->generation = copy_text("{\"temperature\": \"warm\"}"); }
CASE(config_lfs) { replace_config(f, LFS_POINTER); }
CASE(index_lfs) { f->index = copy_text(LFS_POINTER); }
CASE(index_cut) { f->index = copy_text("{\"weight_map\": {\"x\": "); }
CASE(generation_cut) { f->generation = copy_text("{\"temperature\": "); }
CASE(file_tiny) { f->header = ""; f->header_length = 3; }
CASE(file_cut) { f->cut = 1000; }
CASE(file_cut_header) { f->header = "{\"a\":{\"dtype\""; }
CASE(header_longer) { f->header_length = 1u << 30; }
CASE(header_2_63) { f->header_length = (uint64_t)1 << 63; }
CASE(header_no_object) { f->header = "[{\"a\":1}]"; }
CASE(header_deep) { static char text[10010]; sprintf(text, "{\"a\":%s", deep_text()); f->header = text; }
CASE(header_no_dtype) { forge(f, "model.norm.weight", "{\"shape\":[64],\"data_offsets\":[0,128]}"); }
CASE(offsets_backwards) { forge(f, "model.norm.weight",
                                "{\"dtype\":\"F16\",\"shape\":[64],\"data_offsets\":[128,0]}"); }
CASE(offsets_negative) { forge(f, "model.norm.weight",
                               "{\"dtype\":\"F16\",\"shape\":[64],\"data_offsets\":[-128,0]}"); }
CASE(offsets_2_63)
{
    forge(f, "model.norm.weight",
          "{\"dtype\":\"F16\",\"shape\":[64],\"data_offsets\":[9223372036854775808,9223372036854775936]}");
}
CASE(shape_overflow)
{
    forge(f, "model.norm.weight", "{\"dtype\":\"F16\",\"shape\":[4294967296,4294967296,64],\"data_offsets\":[0,0]}");
}
CASE(shape_2_63) { forge(f, "model.norm.weight",
                         "{\"dtype\":\"F16\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]}"); }
CASE(overlap) { forge(f, "model.norm.weight", "{\"dtype\":\"F16\",\"shape\":[64],\"data_offsets\":[0,128]}"); }
CASE(size_mismatch) { maker_find(&f->m, "model.norm.weight")->dims[0] = 65; }
CASE(name_twice) { strcpy(maker_find(&f->m, "model.norm.weight")->name, "lm_head.q_scale"); }
CASE(two_files) { f->copied_tensor = "model.norm.weight"; }
CASE(tensor_missing) { maker_drop(&f->m, "post_attention_layernorm.weight"); }
CASE(matrix_missing) { strcpy(maker_find(&f->m, "model.embed_tokens.weight")->name, "embed.weight"); }
CASE(set_partial) { maker_drop(&f->m, DOWN "q_scale"); }
CASE(dtype_weight) { strcpy(maker_find(&f->m, DOWN "q_weight")->dtype, "F32"); }
CASE(dtype_norm) { strcpy(resized(f, "model.norm.weight", 64, 0, 64)->dtype, "U8"); }
CASE(dtype_unknown) { strcpy(maker_find(&f->m, "model.norm.weight")->dtype, "F17"); }
CASE(norm_short) { resized(f, "model.norm.weight", 32, 0, 64); }
CASE(norm_nan) { maker_store(maker_find(&f->m, "model.norm.weight")->data + 6, 0x7e01, 2); }
CASE(weight_narrow) { resized(f, DOWN "q_weight", 7, 32, 7 * 32 * 4); resized(f, DOWN "q_scale", 2, 4, 32); }
CASE(embed_narrow) { resized(f, "embed_tokens.weight", 64, 32, 64 * 32 * 2); }
CASE(groups_disagree) { resized(f, Q_PROJ "q_scale_max", 3, 0, 6); }
CASE(groups_none) { resized(f, Q_PROJ "q_scale_max", 0, 0, 0); }
CASE(groups_order) { maker_store(maker_find(&f->m, Q_PROJ "q_groups")->data + 2, 5, 2); }
CASE(groups_bits_7) { maker_find(&f->m, Q_PROJ "q_groups")->data[0] = 7; }
CASE(groups_ascending)
{
    static const uint8_t ascending[] = { 3, 0, 0, 0, 4, 0, 3, 0 };
    memcpy(maker_find(&f->m, Q_PROJ "q_groups")->data, ascending, sizeof ascending);
}
CASE(groups_fraction) { maker_find(&f->m, Q_PROJ "q_groups")->data[6] = 3; }
CASE(groups_rows) { maker_find(&f->m, Q_PROJ "q_groups")->data[4] = 2; }
CASE(groups_past) { maker_store(maker_find(&f->m, Q_PROJ "q_groups")->data + 6, 65535, 2); }
CASE(scale_nan) { maker_store(maker_find(&f->m, Q_PROJ "q_scale_max")->data + 2, 0xfe00, 2); }
CASE(perm_range) { maker_store(maker_find(&f->m, Q_PROJ "q_invperm")->data, 1u << 31, 4); }
CASE(perm_repeated) { maker_store(maker_find(&f->m, Q_PROJ "q_invperm")->data, 12, 4); }
CASE(perm_short) { resized(f, Q_PROJ "q_invperm", 32, 0, 128); }
CASE(bias_nan) { maker_store(maker_add(&f->m, "model.layers.0.mlp.up_proj", "bias", "F16", 64, 0, 128, NULL)->data,
                             0x7e00, 2); }
CASE(block_mixed) { to_dense(f, "model.layers.0.self_attn.o_proj"); }
CASE(gptq)
{
    to_dense(f, "model.layers.0.mlp.down_proj");
    strcpy(maker_find(&f->m, DOWN "weight")->name, DOWN "qweight");
    strcpy(maker_find(&f->m, DOWN "qweight")->dtype, "I32");
    resized(f, DOWN "qweight", 8, 64, 8 * 64 * 4);
}

static const struct bad_case {
    const char *name;
    void (*spoil)(folder *f);
    exl2_result code;
    const char *piece, *other; /* both must occur in the message */
} cases[] = {
/* clang-format off */
#define ROW(name, code, piece, other) { #name, name, EXL2_##code, piece, other },
    ROW(nothing, OK, "", "")
    ROW(no_config, ERR_IO, "no config.json in", "bad")
    ROW(empty_folder, ERR_IO, "no config.json in", "bad")
    ROW(no_tensors, ERR_IO, "no .safetensors files in", "bad")
    ROW(config_no_json, ERR_FORMAT, "config.json is not valid JSON", "a value at byte 0 (line 1)")
    ROW(config_cut, ERR_FORMAT, "config.json is not valid JSON", "at byte")
    ROW(config_empty, ERR_FORMAT, "config.json is not valid JSON", "a value at byte 0")
    ROW(config_list, ERR_FORMAT, "config.json", "expected an object")
    ROW(config_deep, ERR_FORMAT, "config.json is not valid JSON", "at most 64 levels of nesting at byte 64")
    ROW(config_utf8, ERR_FORMAT, "config.json is not valid JSON", "valid UTF-8")
    ROW(config_twice, ERR_FORMAT, "config.json", "\"vocab_size\" twice")
    ROW(two_architectures, ERR_FORMAT, "architectures=[2 values]", "exactly one")
    ROW(no_architecture, ERR_FORMAT, "config.json", "architectures is missing")
    ROW(other_architecture, ERR_UNSUPPORTED, "config.json", "'FalconForCausalLM'")
    ROW(vocab_zero, ERR_FORMAT, "config.json: vocab_size=0 is out of range", "from 1 to")
    ROW(layers_huge, ERR_FORMAT, "num_hidden_layers=18446744073709551615", "out of range")
    ROW(layers_more, ERR_FORMAT, "model.layers.1.self_attn.q_proj", "neither .q_weight, .qweight, .trellis nor .weight")
    ROW(hidden_text, ERR_FORMAT, "hidden_size='64'", "expected an integer")
    ROW(heads_odd, ERR_FORMAT, "num_attention_heads=2", "num_key_value_heads=3")
    ROW(act_gelu, ERR_UNSUPPORTED, "hidden_act='gelu'", "only silu")
    ROW(rope_curly, ERR_UNSUPPORTED, "rope_scaling->type='curly'", "linear, dynamic, yarn")
    ROW(quant_gptq, OK, "", "")
    ROW(quant_fp8, ERR_UNSUPPORTED, "quant_method='fp8'", "only exl2, exl3, gptq and awq")
    ROW(quant_exl4, ERR_UNSUPPORTED, "config.json: quant_method='exl4'", "only exl2, exl3, gptq and awq")
    ROW(quant_mxfp4, ERR_UNSUPPORTED, "quant_method='mxfp4'", "only exl2, exl3, gptq and awq")
    ROW(quant_compressed, ERR_UNSUPPORTED, "quant_method='compressed-tensors'", "only exl2, exl3, gptq and awq")
    ROW(quant_bitsandbytes, ERR_UNSUPPORTED, "quant_method='bitsandbytes'", "only exl2, exl3, gptq and awq")
    ROW(quant_old_bitsandbytes, ERR_UNSUPPORTED, "load_in_8bit is true", "bitsandbytes is not supported")
    ROW(quant_gemv, ERR_UNSUPPORTED, "version='gemv'", "only gemm for AWQ")
    ROW(quant_awq_bits, ERR_UNSUPPORTED, "bits=8", "only 4 for AWQ")
    ROW(quant_marlin, ERR_UNSUPPORTED, "is_marlin_format", "the Marlin format is not supported")
    ROW(quant_marlin_format, ERR_UNSUPPORTED, "checkpoint_format='marlin'", "only gptq and gptq_v2")
    ROW(quant_bits, ERR_UNSUPPORTED, "bits=5", "only 2, 3, 4 and 8 for GPTQ")
    ROW(quant_bits_text, ERR_UNSUPPORTED, "bits='4'", "only 2, 3, 4 and 8 for GPTQ")
    ROW(quant_group, ERR_UNSUPPORTED, "group_size=48", "only -1 and multiples of 32")
    ROW(quant_group_zero, ERR_FORMAT, "group_size=0", "expected -1, or a multiple of 32")
    ROW(quant_list, ERR_FORMAT, "quantization_config=[1 values]", "expected an object")
    ROW(quant_mixed, ERR_FORMAT, "quantize_config.json: checkpoint_format is gptq_v2", "config.json says gptq;")
    ROW(quant_file_bits, ERR_UNSUPPORTED, "quantize_config.json: bits=5", "only 2, 3, 4 and 8 for GPTQ")
    ROW(quant_file_marlin, ERR_UNSUPPORTED, "quantize_config.json: is_marlin_format", "Marlin")
    ROW(quant_file_cut, ERR_FORMAT, "quantize_config.json is not valid JSON", "at byte")
    ROW(generation_bad, OK, "", "")
    ROW(config_lfs, ERR_FORMAT, "config.json is a Git LFS pointer", "git lfs pull")
    ROW(index_lfs, ERR_FORMAT, "model.safetensors.index.json is a Git LFS pointer", "git lfs pull")
    ROW(index_cut, ERR_FORMAT, "model.safetensors.index.json is not valid JSON", "at byte")
    ROW(generation_cut, ERR_FORMAT, "generation_config.json is not valid JSON", "at byte 16")
    ROW(file_tiny, ERR_FORMAT, "output.safetensors: not a safetensors file", "file of 8")
    ROW(file_cut, ERR_FORMAT, "output.safetensors", "lies outside the file (truncated download?)")
    ROW(file_cut_header, ERR_FORMAT, "output.safetensors: the header is not valid JSON", "at byte 13")
    ROW(header_longer, ERR_FORMAT, "not a safetensors file", "header of 1073741824 bytes")
    ROW(header_2_63, ERR_FORMAT, "not a safetensors file", "header of 9223372036854775808 bytes")
    ROW(header_no_object, ERR_FORMAT, "not a safetensors file", "output.safetensors")
    ROW(header_deep, ERR_FORMAT, "the header is not valid JSON", "at most 64 levels")
    ROW(header_no_dtype, ERR_FORMAT, "malformed header near 'model.norm.weight'", "dtype")
    ROW(offsets_backwards, ERR_FORMAT, "'model.norm.weight' lies outside the file", "128 to 0")
    ROW(offsets_negative, ERR_FORMAT, "malformed header near 'model.norm.weight'", "two offsets")
    ROW(offsets_2_63, ERR_FORMAT, "'model.norm.weight' lies outside the file",
        "9223372036854775808 to 9223372036854775936")
    ROW(shape_overflow, ERR_FORMAT, "malformed header near 'model.norm.weight'", "product below 2^64")
    ROW(shape_2_63, ERR_FORMAT, "'model.norm.weight' size does not match its shape", "0 bytes")
    ROW(overlap, ERR_FORMAT, "'model.embed_tokens.weight'", "overlap")
    ROW(size_mismatch, ERR_FORMAT, "'model.norm.weight' size does not match its shape", "128 bytes, expected 130")
    ROW(name_twice, ERR_FORMAT, "the header has the key", "\"lm_head.q_scale\" twice")
    ROW(two_files, ERR_FORMAT, "'model.norm.weight' is in both output.safetensors and stale.safetensors",
        "stale shards")
    ROW(tensor_missing, ERR_FORMAT, "'model.layers.0.post_attention_layernorm.weight'", "is missing")
    ROW(matrix_missing, ERR_FORMAT, "model.embed_tokens", "neither .q_weight, .qweight, .trellis nor .weight")
    ROW(set_partial, ERR_FORMAT, "model.layers.0.mlp.down_proj: incomplete EXL2 tensor set", "missing q_scale")
    ROW(dtype_weight, ERR_FORMAT, DOWN "q_weight: expected I32", "found F32")
    ROW(dtype_norm, ERR_FORMAT, "'model.norm.weight': expected F16, BF16 or F32", "found U8")
    ROW(dtype_unknown, ERR_FORMAT, "'model.norm.weight': expected F16, BF16 or F32", "found an unknown type")
    ROW(norm_short, ERR_FORMAT, "'model.norm.weight': wrong size [32]", "expected [64]")
    ROW(norm_nan, ERR_FORMAT, "'model.norm.weight': value 3", "not finite")
    ROW(weight_narrow, ERR_FORMAT, "model.layers.0.mlp.down_proj: q_weight has 32 outputs", "expected 64")
    ROW(embed_narrow, ERR_FORMAT, "model.embed_tokens.weight: shape [64, 32]", "[64, 64]")
    ROW(groups_disagree, ERR_FORMAT, "group tables disagree", "3 maxima")
    ROW(groups_none, ERR_FORMAT, "group tables disagree", "0 maxima")
    ROW(groups_order, ERR_FORMAT, "model.layers.0.self_attn.q_proj: group 0 starts at packed row 5", "the next at 4")
    ROW(groups_bits_7, ERR_FORMAT, "group 0 has unsupported width 7 bits", "q_proj")
    ROW(groups_ascending, ERR_FORMAT, "not in descending order", "group 1 has 4 after 3")
    ROW(groups_fraction, ERR_FORMAT, "group 0 covers a fractional number of rows", "3 words of 4-bit codes")
    ROW(groups_rows, ERR_FORMAT, "group 1 covers a fractional number of rows", "3 words of 2-bit codes")
    ROW(groups_past, ERR_FORMAT, "group 0 starts at packed row 0, the next at 65535", "past end 7")
    ROW(scale_nan, ERR_FORMAT, "scale of group 1 is NaN", "q_proj")
    ROW(perm_range, ERR_FORMAT, "q_invperm is not a permutation (value -2147483648 at 0", "out of range")
    ROW(perm_repeated, ERR_FORMAT, "q_invperm is not a permutation (value 12 at 1", "seen before")
    ROW(perm_short, ERR_FORMAT, "q_invperm has 32 inputs", "expected 64")
    ROW(bias_nan, ERR_FORMAT, "'model.layers.0.mlp.up_proj.bias': value 0", "not finite")
    ROW(block_mixed, OK, "", "")
    ROW(gptq, ERR_FORMAT, "incomplete GPTQ or AWQ tensor set", "down_proj")
#undef ROW
/* clang-format on */
};

static void run_case(const struct bad_case *bad, const char *dir)
{
    folder f = { 0 };
    char error[248];
    maker_make(&f.m);
    f.config = copy_text(MAKER_CONFIG);
    bad->spoil(&f);
    write_folder(&f, dir);
    exl2_result result = check_folder(dir, error);
    if (!CHECK_INT(result, bad->code) || (result < 0 && !CHECK(strstr(error, bad->piece) &&
                                                               strstr(error, bad->other)))) {
        printf("  %s: \"%s\" should hold \"%s\" and \"%s\"\n", bad->name, error, bad->piece, bad->other);
    }
    remove_folder(dir);
    maker_free(&f.m);
    free(f.config);
    free(f.generation);
    free(f.index);
    free(f.quantize);
}

int main(void)
{
    const char *base = getenv("TMPDIR");
    char dir[600];
    snprintf(dir, sizeof dir, "%s/exl2-bad-%ld", base && *base ? base : "/tmp", (long)getpid());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_case(&cases[i], dir);
    }
    return check_done();
}
