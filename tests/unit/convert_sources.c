/* convert_sources.c: what exl2_convert reads besides dense folders: GGUF files, FP8 weights, matrices whose inputs are
   no multiple of 32, conversations. An FP8 folder and a dense one that holds the same numbers must give the same bytes.
   Limits: files of one MiB, memory. What can be checked is checked before a GGUF or FP8 source is copied. */
#define _POSIX_C_SOURCE 200809L
#include "../convert_system.h"

#include "private/platform_write.h"
#include "../check.h"

static uint64_t disk_written; /* bytes of all files */

static bool count_written(void *file, uint64_t offset, const void *data, size_t bytes)
{
    disk_written += bytes;
    return exl2__platform_write(file, offset, data, bytes);
}

#include "private/compare_models.h"
#include "private/convert.h"
#include "../adapter_maker.h"
#include "../convert_rig.h"
#include "../gguf_llama.h"
#include "../model_maker.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HIDDEN = 160, HEAD = 80, LENGTH = 32, ROWS = 6 };

static float rate = 4;
static char source_dir[600];
static const char *wrapper; /* "architectures" of a model with a tower, whose text model make_model makes; or NULL */
static const char *body = "model."; /* what the names of that text model begin with */

/* ---- a tiny Llama, dense or FP8 ---- */

/* An E4M3 number by its definition, in double. */
static double e4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent ? ldexp(1 + mantissa / 8.0, exponent - 7) : ldexp(mantissa / 8.0, -6);
    return code & 0x80 ? -size : size;
}

/* Adds a matrix. fp8: as numbers with scales, a scale for each block of 128 x 128 or, if `whole`, one; else as the same
   numbers in FP16. */
static void add_matrix(maker *m, const char *key, uint32_t out, uint32_t in, bool fp8, bool whole)
{
    uint32_t rows = (out + 127) / 128, columns = (in + 127) / 128, count = whole ? 1 : rows * columns;
    uint8_t *codes = malloc((size_t)out * in);
    uint16_t *halves = malloc((size_t)out * in * 2);
    float scales[8];
    for (uint32_t i = 0; i < count; i++) {
        scales[i] = 0.001f * (float)(1 + maker_random(m) % 7);
    }
    for (uint32_t i = 0; i < out * in; i++) {
        uint32_t row = i / in / 128, column = i % in / 128;
        do {
            codes[i] = (uint8_t)maker_random(m);
        } while ((codes[i] & 0x78) == 0x78 || (codes[i] & 0x7F) == 0x7F); /* moderate ones, and no NaN */
        halves[i] = exl2__f32_to_f16((float)(e4m3(codes[i]) * (double)scales[whole ? 0 : row * columns + column]));
    }
    if (fp8) {
        maker_add(m, key, "weight", "F8_E4M3", out, in, (size_t)out * in, codes);
        maker_add(m, key, whole ? "weight_scale" : "weight_scale_inv", "F32", whole ? 1 : rows, whole ? 0 : columns,
                  count * sizeof *scales, scales);
    } else {
        maker_add(m, key, "weight", "F16", out, in, (size_t)out * in * 2, halves);
    }
    free(halves);
    free(codes);
}

static void add_ones(maker *m, const char *key, uint32_t count)
{
    float ones[HIDDEN];
    for (uint32_t i = 0; i < count; i++) {
        ones[i] = 1;
    }
    maker_add(m, key, "weight", "F32", count, 0, count * sizeof *ones, ones);
}

/* Writes the model to source_dir. */
static void make_model(uint32_t inter, bool fp8)
{
    static const char *const names[] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                         "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj" };
    const uint32_t out[] = { HIDDEN, HEAD, HEAD, HIDDEN, inter, inter, HIDDEN };
    char config[1024], key[128];
    size_t bytes;
    maker m = { .count = 0, .state = 9 };
    remove_folder(source_dir);
    CHECK(exl2__platform_make_dir(source_dir));
    const char *quantized = !fp8 ? "" : "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":"
                                        "[128,128]},";
    snprintf(config, sizeof config, "{%s%s%s\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":64,\"hidden_size\":"
             "%d,\"intermediate_size\":%u,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
             "\"head_dim\":%d,\"hidden_act\":\"silu\",\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,"
             "\"rope_theta\":10000.0,\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2}%s", quantized,
             wrapper ? wrapper : "", wrapper ? "\"text_config\":{\"model_type\":\"llama\"," : "", HIDDEN, inter, HEAD,
             wrapper ? "}" : "");
    maker_write(source_dir, "config.json", config, strlen(config));
    snprintf(key, sizeof key, "%sembed_tokens", body);
    add_matrix(&m, key, 64, HIDDEN, false, true);
    for (uint32_t i = 0; i < 7; i++) {
        snprintf(key, sizeof key, "%slayers.0.%s", body, names[i]);
        add_matrix(&m, key, out[i], i == 6 ? inter : HIDDEN, fp8, i == 1);
    }
    for (uint32_t i = 0; i < 3; i++) {
        static const char *const norms[] = { "layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm" };
        snprintf(key, sizeof key, "%s%s", body, norms[i]);
        add_ones(&m, key, HIDDEN);
    }
    uint8_t *file = maker_file(&m, &bytes);
    maker_write(source_dir, "model.safetensors", file, bytes);
    free(file);
    maker_free(&m);
}

/* ---- conversions ---- */

static bool stop_at_once(void *user, const char *stage, float done)
{
    (void)user;
    (void)done;
    return strcmp(stage, "measure") != 0;
}

static exl2_result convert(const char *source, bool stop, exl2_convert_info *info, exl2_error *error)
{
    exl2_convert_desc d = rig_desc(source, ROWS, LENGTH);
    d.bpw = rate;
    d.info = info;
    d.error = error;
    d.progress = stop ? stop_at_once : NULL;
    if (!stop) {
        remove_folder(out_dir);
    }
    return exl2_convert(&d);
}

static char *converted(const char *source, exl2_convert_info *info, size_t *bytes)
{
    char path[700];
    exl2_error error = { 0 };
    if (!CHECK_INT(convert(source, false, info, &error), EXL2_OK)) {
        printf("  %s\n", error.text);
    }
    snprintf(path, sizeof path, "%s/output.safetensors", out_dir);
    return check_read(path, bytes);
}

static void test_fp8(void)
{
    exl2_convert_info info = { 0 };
    size_t bytes, again;
    make_model(192, false);
    char *dense = converted(source_dir, &info, &bytes);
    CHECK_TEXT(info.warning, "");
    make_model(192, true);
    char *fp8 = converted(source_dir, &info, &again);
    CHECK(bytes == again && memcmp(dense, fp8, bytes) == 0);
    CHECK(strstr(info.warning, "quantized already (FP8)") != NULL);
    free(dense);
    free(fp8);
}

/* An adapter becomes part of FP8 weights as of the same numbers in FP16, but for their rounding. */
static void test_adapter(void)
{
    static const adapter_matrix one = { "model.layers.0.mlp.down_proj", HIDDEN, 192 };
    char dir[600], path[700], *files[3]; /* of dense, FP8, FP8 without the adapter */
    size_t bytes[3];
    uint32_t off[3] = { 0 }; /* halves that differ from those of dense */
    snprintf(dir, sizeof dir, "%s/adapter", root);
    CHECK(exl2__platform_make_dir(dir));
    adapter_write(dir, &one, 1);
    for (uint32_t i = 0; i < 3; i++) {
        exl2_convert_lora lora = { dir, 0.5f };
        make_model(192, i > 0);
        remove_folder(out_dir);
        CHECK_INT(exl2_convert(&(exl2_convert_desc){ .source_dir = source_dir, .out_dir = out_dir, .loras = &lora,
                                                     .lora_count = i < 2, .bits = 16 }), EXL2_OK);
        snprintf(path, sizeof path, "%s/model.safetensors", out_dir);
        files[i] = check_read(path, &bytes[i]);
        for (size_t at = 4096; at + 2 <= bytes[0] && bytes[i] == bytes[0]; at += 2) { /* after the header */
            float a = exl2__f16_to_f32(exl2__load16(files[0] + at)), b = exl2__f16_to_f32(exl2__load16(files[i] + at));
            off[i] += fabsf(a - b) > 1e-3f;
        }
    }
    CHECK(bytes[0] == bytes[1] && bytes[0] == bytes[2] && off[1] == 0 && off[2] > 10000);
    for (uint32_t i = 0; i < 3; i++) {
        free(files[i]);
    }
}

/* A tensor of the output: its bytes, as many as in `header`, which is what the file says of it up to its place. */
static bool has_tensor(const char *file, const char *header, const void *data, uint64_t wanted)
{
    unsigned long long begin = 0, end = 0;
    uint64_t bytes = exl2__load64((const uint8_t *)file);
    const char *at = strstr(file + 8, header);
    return at && sscanf(at + strlen(header), ",\"data_offsets\":[%llu,%llu]", &begin, &end) == 2
        && end - begin == wanted && memcmp(file + 8 + bytes + begin, data, (size_t)wanted) == 0;
}

/* What reads images is copied with its types and shapes, numbers that FP16 does not have among them, and the text model
   becomes what it does alone. Tensors of the text model that nothing needs are left out. */
static void test_tower(void)
{
    static const char header[] = "{\"vision_tower.patch_conv.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3,2,1,4],"
        "\"data_offsets\":[0,96]},\"multi_modal_projector.linear_1.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],"
        "\"data_offsets\":[96,120]},\"vision_tower.position_ids\":{\"dtype\":\"I64\",\"shape\":[1,2],"
        "\"data_offsets\":[120,136]},\"model.layers.0.self_attn.rotary_emb.inv_freq\":{\"dtype\":\"F32\","
        "\"shape\":[2],\"data_offsets\":[136,144]}}";
    uint8_t data[144], file[8 + sizeof header + sizeof data];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(0x7F - i); /* the first BF16 is 2.5e38 */
    }
    exl2__store64(file, sizeof header - 1);
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1, data, sizeof data);
    for (uint32_t fp8 = 0; fp8 < 2; fp8++) {
        exl2_convert_info info = { 0 };
        size_t bytes, again;
        make_model(192, fp8 != 0);
        char *text = converted(source_dir, &info, &again);
        wrapper = "\"architectures\":[\"Mistral3ForConditionalGeneration\"],";
        make_model(192, fp8 != 0);
        maker_write(source_dir, "tower.safetensors", file, 8 + sizeof header - 1 + sizeof data);
        char *whole = converted(source_dir, &info, &bytes);
        wrapper = NULL;
        CHECK(has_tensor(whole, "\"vision_tower.patch_conv.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3,2,1,4]", data,
                         96));
        CHECK(has_tensor(whole, "\"multi_modal_projector.linear_1.weight\":{\"dtype\":\"F32\",\"shape\":[2,3]",
                         data + 96, 24));
        CHECK(fp8 || has_tensor(whole, "\"vision_tower.position_ids\":{\"dtype\":\"I64\",\"shape\":[1,2]", data + 120,
                                16));
        CHECK(!strstr(whole + 8, "inv_freq"));
        const char *q = "\"model.layers.0.self_attn.q_proj.q_weight\":", *found = strstr(text + 8, q);
        CHECK(found && strstr(whole + 8, q));
        free(text);
        free(whole);
    }
}

/* Tensors of the output, which begin with `prefix`: as many as the text model alone has, with the same numbers. */
static void check_names(const char *file, const char *plain, const char *prefix, const char *head)
{
    static const char *const names[] = { "embed_tokens.weight", "norm.weight", "layers.0.input_layernorm.weight",
                                         "layers.0.self_attn.q_proj.q_weight", "layers.0.mlp.down_proj.q_invperm" };
    char name[160];
    snprintf(name, sizeof name, "\"%s.q_scale\":{", head);
    CHECK(strstr(file + 8, name) != NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsigned long long begin, end;
        snprintf(name, sizeof name, "\"model.%s\":{", names[i]);
        const char *at = strstr(plain + 8, name), *offsets = at ? strstr(at, ",\"data_offsets\"") : NULL;
        if (CHECK(offsets && sscanf(offsets, ",\"data_offsets\":[%llu,%llu]", &begin, &end) == 2)) {
            char header[400];
            int described = (int)(strchr(at, '{') - at);
            snprintf(header, sizeof header, "\"%s%s\":%.*s", prefix, names[i], (int)(offsets - at) - described,
                     at + described);
            const char *data = plain + 8 + exl2__load64((const uint8_t *)plain) + begin;
            if (!CHECK(has_tensor(file, header, data, end - begin))) {
                printf("  %s\n", header);
            }
        }
    }
}

/* The output has the source's own names: of a text model that multimodal families wrap, before transformers 5 and
   since, and of their towers. ExLlamaV2 0.3.2 asks for the former ones, of the head, too. The conversion has compared
   the output with the source, so this engine loads both. */
static void test_names(void)
{
    static const struct {
        const char *body, *head;
    } cases[] = { { "language_model.model.", "language_model.lm_head" }, { "model.language_model.", "lm_head" },
                  { "model.", "lm_head" } };
    static const char header[] = "{\"multi_modal_projector.mm_input_projection_weight\":{\"dtype\":\"BF16\","
        "\"shape\":[2,2],\"data_offsets\":[0,8]}}";
    uint8_t file[8 + sizeof header + 8];
    exl2__store64(file, sizeof header - 1);
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1, "ABCDEFGH", 8);
    exl2_convert_info info = { 0 };
    size_t bytes;
    make_model(192, false);
    char *plain = converted(source_dir, &info, &bytes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wrapper = "\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"model_type\":\"gemma3\",";
        body = cases[i].body;
        make_model(192, false);
        maker_write(source_dir, "tower.safetensors", file, 8 + sizeof header - 1 + 8);
        wrapper = NULL;
        body = "model.";
        char *whole = converted(source_dir, &info, &bytes);
        CHECK(has_tensor(whole, "\"multi_modal_projector.mm_input_projection_weight\":{\"dtype\":\"BF16\",\"shape\":"
                                "[2,2]", "ABCDEFGH", 8));
        check_names(whole, plain, cases[i].body, cases[i].head);
        CHECK(info.kl > 0 && info.kl < 1);
        free(whole);
    }
    free(plain);
}

/* Spoils a tensor of the FP8 model, and gives the message. */
static void check_fp8_rejected(const char *ending, const char *dtype, uint8_t byte, exl2_result code,
                               const char *piece)
{
    char path[700];
    size_t bytes;
    exl2_error error = { 0 };
    make_model(192, true);
    snprintf(path, sizeof path, "%s/model.safetensors", source_dir);
    char *file = check_read(path, &bytes), *entry = strstr(file + 8, ending);
    if (CHECK(entry != NULL)) {
        unsigned long long begin;
        char *type = strstr(entry, "\"dtype\""), *offsets = strstr(entry, "data_offsets");
        CHECK(sscanf(offsets, "data_offsets\":[%llu", &begin) == 1);
        uint64_t header = exl2__load64(file);
        if (dtype) { /* of the same length: F32 becomes I32 */
            memcpy(strstr(type, "F32"), dtype, 3);
        } else {
            file[8 + header + begin] = (char)byte;
        }
        maker_write(source_dir, "model.safetensors", file, bytes);
        CHECK_INT(convert(source_dir, false, NULL, &error), code);
        if (!CHECK(strstr(error.text, piece) != NULL)) {
            printf("  \"%s\" should hold \"%s\"\n", error.text, piece);
        }
    }
    free(file);
    remove_folder(out_dir);
    snprintf(path, sizeof path, "%s.work", out_dir);
    remove_folder(path);
}

static void test_fp8_rejected(void)
{
    check_fp8_rejected("q_proj.weight_scale_inv", "I32", 0, EXL2_ERR_FORMAT, "q_proj.weight is FP8, but there is no");
    check_fp8_rejected("v_proj.weight\"", NULL, 0x7F, EXL2_ERR_FORMAT,
                       "v_proj.weight has a weight (output 0, input 0)");
}

/* The MLP has 200 features, so that its matrices stay as they are; attention is quantized. */
static void test_uneven(void)
{
    exl2_convert_info info = { 0 };
    exl2_compare_info compared = { 0 };
    exl2_compare_desc both = { 0 };
    exl2_token ids[LENGTH];
    size_t bytes;
    make_model(200, false);
    free(converted(source_dir, &info, &bytes));
    CHECK(strstr(info.warning, "3 matrices stay FP16, because the block of model.layers.0.mlp.gate_proj") != NULL);
    CHECK(strstr(info.warning, "200 inputs") != NULL);
    CHECK_INT(info.matrices, 5); /* q, k, v, o, the head */
    for (uint32_t i = 0; i < LENGTH; i++) {
        ids[i] = (exl2_token)(i * 7 % 64);
    }
    both.a_dir = source_dir;
    both.b_dir = out_dir;
    both.tokens = ids;
    both.token_count = LENGTH;
    CHECK_INT(exl2_compare(&both, &compared), EXL2_OK);
    CHECK(compared.kl > 0 && compared.kl < 0.5);
}

/* One token again and again reaches two of six experts: the others use the mean, and are named. At the most bits the
   output is near the source on other text, too. */
static void test_starved(void)
{
    exl2_convert_info info = { 0 };
    exl2_compare_info compared = { 0 };
    exl2_compare_desc both = { 0 };
    exl2_token ids[LENGTH];
    char path[600], kept[600], text[1024] = "[5";
    size_t bytes;
    for (uint32_t i = 1; i < ROWS * LENGTH; i++) {
        strcat(text, ",5");
    }
    strcat(text, "]");
    maker_write(root, "same.json", text, strlen(text));
    memcpy(kept, cal_file, sizeof kept);
    snprintf(cal_file, sizeof cal_file, "%s/same.json", root);
    snprintf(path, sizeof path, "%s/models/exl2-qwen3-moe", EXL2_GOLDEN_DIR);
    rate = 9;
    free(converted(path, &info, &bytes));
    rate = 4;
    CHECK(strstr(info.warning, " experts not at all (") != NULL);
    memcpy(cal_file, kept, sizeof kept);
    for (uint32_t i = 0; i < LENGTH; i++) {
        ids[i] = (exl2_token)(i * 37 % 320);
    }
    both.a_dir = path;
    both.b_dir = out_dir;
    both.tokens = ids;
    both.token_count = LENGTH;
    CHECK_INT(exl2_compare(&both, &compared), EXL2_OK);
    printf("starved experts: %s; KL %.4f\n", info.warning, compared.kl);
    CHECK(compared.kl > 0 && compared.kl < 0.1);
}

/* Files of at most so many bytes of tensors give the same model; a cap of memory fails before it is exceeded. */
static void test_limits(void)
{
    char path[1200], name[EXL2__FILE_NAME_MAX];
    uint32_t shards = 0;
    size_t bytes;
    exl2_error error = { 0 };
    exl2_convert_info info = { 0 };
    exl2_convert_desc d = rig_desc(source_dir, 0, 0);
    make_model(192, false);
    free(converted(source_dir, &info, &bytes));
    d.bpw = 4;
    d.shard_bytes = bytes / 3;
    d.error = &error;
    d.info = &info;
    remove_folder(out_dir);
    if (!CHECK_INT(exl2_convert(&d), EXL2_OK)) { /* the default length is the context of 128 */
        printf("  %s\n", error.text);
    }
    CHECK_INT(info.length, 128);
    for (uint32_t i = 0; exl2__platform_entry(out_dir, i, name, sizeof name); i++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", out_dir, name);
        shards += strncmp(name, "output-0000", 11) == 0;
        CHECK(stat(path, &st) == 0 && (uint64_t)st.st_size < bytes / 2);
    }
    CHECK(shards >= 3);
    d.host_bytes_max = 1 << 20;
    remove_folder(out_dir);
    CHECK_INT(exl2_convert(&d), EXL2_ERR_BUDGET);
    CHECK(strstr(error.text, "host_bytes_max") != NULL);
    snprintf(path, sizeof path, "%s.work", out_dir);
    remove_folder(path);
}

/* The ids of a file, or of the spare texts, below 300. */
static exl2_result read_texts(exl2__ctx *c, const char *const *files, exl2__texts *t)
{
    const exl2__config_rope own = { 0, 0, 0 };
    return exl2__texts_make(c, NULL, source_dir, files, !!files, false, 9, 64, 0, 300, &own, NULL, NULL, t);
}

/* Conversations become what the chat template makes of them, without an opened reply, and without BOS. */
static void test_messages(void)
{
    static const char *const template_text = "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}";
    static const char *const text = "<user>good day;<assistant>well;";
    static const char *const lines =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"good day\"},{\"role\":\"assistant\",\"content\":\"well\"}]}\n"
        "{\"text\":\"a day\"}\n";
    static const struct {
        const char *lines, *piece;
        exl2_result code;
    } bad[] = {
        { "{\"text\":\"a\"}\n{\"text\n", "talk.jsonl: line 2 is not valid JSON", EXL2_ERR_FORMAT },
        { "\n{\"messages\":[1]}\n", "talk.jsonl: line 2: chat template: fields of a message", EXL2_ERR_FORMAT },
    };
    const char *files[1];
    llama_options o = { .hidden = 64, .inter = 96, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 32,
                        .vocab = 300 };
    llama_model l;
    char path[700];
    exl2_error error = { 0 };
    exl2_engine *e = NULL;
    exl2_engine_desc engine = { .backend = EXL2_BACKEND_CPU };
    exl2_model_desc m = { .path = source_dir, .text_only = true };
    exl2_model model = { 0 };
    exl2_import_desc import = { .gguf_path = path, .out_dir = source_dir, .bits = 16, .error = &error };
    exl2_token ids[128];
    size_t need = 0, more = 0;
    exl2__ctx c = { 0 };
    exl2__texts t;
    llama_make(&l, &o);
    maker_write(root, "text.gguf", l.file.data, l.file.bytes);
    snprintf(path, sizeof path, "%s/text.gguf", root);
    remove_folder(source_dir);
    CHECK_INT(exl2_import_gguf(&import), EXL2_OK);
    maker_write(source_dir, "chat_template.jinja", template_text, strlen(template_text));
    maker_write(root, "talk.jsonl", lines, strlen(lines));
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &m, &model), EXL2_OK);
    CHECK_INT(exl2_tokenize(e, model, text, strlen(text), EXL2_TEXT_NO_BOS, ids, 128, &need), EXL2_OK);
    CHECK_INT(exl2_tokenize(e, model, "a day", 5, 0, ids + need, 128 - need, &more), EXL2_OK);
    exl2_close(e);
    snprintf(path, sizeof path, "%s/talk.jsonl", root);
    files[0] = path;
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.cpu_path = exl2__cpu_path_best();
    if (!CHECK_INT(read_texts(&c, files, &t), EXL2_OK)) {
        printf("  %s\n", c.error.text);
    }
    CHECK(need > 5 && t.count == need + more && memcmp(t.ids, ids, (size_t)t.count * sizeof *ids) == 0);
    exl2__texts_close(&t);
    maker_write(root, "talk.jsonl", "{\"messages\":3}\n", 15);
    CHECK_INT(read_texts(&c, files, &t), EXL2_ERR_FORMAT);
    CHECK(strstr(c.error.text, "talk.jsonl: line 1 has neither a string \"text\" nor a list \"messages\"") != NULL);
    exl2__texts_close(&t);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        maker_write(root, "talk.jsonl", bad[i].lines, strlen(bad[i].lines));
        CHECK_INT(read_texts(&c, files, &t), bad[i].code);
        if (!CHECK(strstr(c.error.text, bad[i].piece) != NULL)) {
            printf("  \"%s\" should hold \"%s\"\n", c.error.text, bad[i].piece);
        }
        exl2__texts_close(&t);
    }
    CHECK_INT(c.host_bytes, 0);
    llama_free(&l);
}

static void keep_plan(void *user, const exl2_convert_plan *plan) { *(exl2_convert_plan *)user = *plan; }

/* The model of test_messages writes its own text, unless that needs more memory than there may be. */
static void test_spare(void)
{
    exl2_error error = { 0 };
    exl2_convert_plan plan = { 0 };
    exl2_convert_desc d = { 0 };
    size_t bytes;
    char path[700];
    remove_folder(out_dir);
    d.source_dir = source_dir;
    d.out_dir = out_dir;
    d.bpw = 4;
    d.rows = 8;
    d.length = 64;
    d.on_plan = keep_plan;
    d.user = &plan;
    d.error = &error;
    CHECK_INT(exl2_convert(&d), EXL2_ERR_ARG); /* it would write, but its tokenizer lacks most letters */
    CHECK(plan.own_text && !plan.streamed);
    d.host_bytes_max = plan.host_bytes - 1;
    if (!CHECK_INT(exl2_convert(&d), EXL2_OK)) {
        printf("  %s\n", error.text);
        return;
    }
    CHECK(plan.streamed && !plan.own_text && plan.host_bytes <= d.host_bytes_max);
    snprintf(path, sizeof path, "%s/config.json", out_dir);
    char *config = check_read(path, &bytes);
    CHECK(bytes > 0 && strstr(config, "{\"rows\": 8, \"length\": 64, \"dataset\": \"(spare texts)\"}"));
    free(config);
}

/* Gives the model of test_messages a tokenizer of single bytes, with which it can write. */
static void write_byte_tokenizer(void)
{
    char text[16384];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":"
                                   "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
                                   "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
                                   "\"vocab\":{");
    for (uint32_t byte = 0, others = 256; byte < 256; byte++) {
        bool plain = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"\\u%04x\":%u", byte ? "," : "",
                                 plain ? byte : others, byte);
        others += !plain;
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "}}}");
    maker_write(source_dir, "tokenizer.json", text, used);
}

/* The ids of the work folder after a conversion with the default text: 8 rows of 64, and one that is kept out. */
static void mixed_ids(uint64_t seed, exl2_token ids[9 * 64])
{
    exl2_error error = { 0 };
    exl2_convert_plan plan = { 0 };
    exl2_convert_desc d = { 0 };
    char path[700];
    size_t bytes;
    remove_folder(out_dir);
    d.backend = EXL2_BACKEND_CPU;
    d.source_dir = source_dir;
    d.out_dir = out_dir;
    snprintf(path, sizeof path, "%s/mixed", root);
    d.work_dir = path;
    d.bpw = 4;
    d.rows = 8;
    d.length = 64;
    d.seed = seed;
    d.on_plan = keep_plan;
    d.user = &plan;
    d.error = &error;
    if (!CHECK_INT(exl2_convert(&d), EXL2_OK)) {
        printf("  %s\n", error.text);
    }
    CHECK(plan.own_text && !plan.streamed);
    snprintf(path, sizeof path, "%s/mixed/ids", root);
    char *file = check_read(path, &bytes);
    if (CHECK(bytes == 24 + 9 * 64 * sizeof *ids)) {
        memcpy(ids, file + 24, 9 * 64 * sizeof *ids);
    }
    free(file);
    snprintf(path, sizeof path, "%s/mixed", root);
    CHECK(remove_folder(path));
}

/* The documents are those with which earlier conversions were made: FNV-1a, 64 bits, over all bytes and NULs. */
static void test_spare_bytes(void)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < EXL2__COUNT(exl2__spare_texts); i++) {
        for (size_t k = 0; k <= strlen(exl2__spare_texts[i]); k++) {
            hash = (hash ^ (uint8_t)exl2__spare_texts[i][k]) * 0x100000001B3u;
        }
    }
    CHECK_INT(EXL2__COUNT(exl2__spare_texts), 77);
    CHECK(hash == 0x7B8B4473CCDC9A54u);
}

/* By default every second row is of the spare texts, over all of which the rows are spread; the model writes the
   others, by the seed. */
static void test_mixed(void)
{
    static exl2_token first[9 * 64], again[9 * 64], other[9 * 64];
    exl2__ctx c = { .allocator = exl2__platform_allocator(), .files = exl2__platform_files(),
                    .cpu_path = exl2__cpu_path_best() };
    exl2__texts t;
    char path[700];
    size_t bytes;
    write_byte_tokenizer();
    CHECK_INT(read_texts(&c, NULL, &t), EXL2_OK);
    uint64_t whole = t.count / 64;
    CHECK(whole > 1000 && t.spread == t.count); /* the spare texts have a token for each byte, and 110 KB */
    mixed_ids(7, first);
    snprintf(path, sizeof path, "%s/config.json", out_dir);
    char *config = check_read(path, &bytes);
    CHECK(bytes > 0 && strstr(config, "{\"rows\": 8, \"length\": 64, \"dataset\": \"(spare texts, own text)\"}"));
    free(config);
    mixed_ids(7, again);
    mixed_ids(8, other);
    CHECK(memcmp(first, again, sizeof first) == 0);
    for (uint32_t row = 0, spare = 0; row < 9; row++) {
        const exl2_token *ids = first + row * 64;
        bool is_spare = row % 2 == 0 && row > 0;
        CHECK(is_spare == (memcmp(ids, t.ids + spare * whole / 4 * 64, 64 * sizeof *ids) == 0));
        CHECK(is_spare == (memcmp(ids, other + row * 64, 64 * sizeof *ids) == 0));
        spare += is_spare;
    }
    exl2__texts_close(&t);
    CHECK_INT(c.host_bytes, 0);
}

/* A GGUF file gives what its dense import gives; also after a stop, when the import is in the work folder. */
static void test_gguf(void)
{
    llama_options o = { .hidden = 64, .inter = 96, .layers = 2, .heads = 2, .kv_heads = 1, .head_dim = 32,
                        .vocab = 300, .no_tokenizer = true };
    llama_model l;
    char path[700], work[700];
    size_t bytes, again;
    exl2_error error = { 0 };
    exl2_convert_info info = { 0 };
    llama_make(&l, &o);
    maker_write(root, "tiny.gguf", l.file.data, l.file.bytes);
    snprintf(path, sizeof path, "%s/tiny.gguf", root);
    remove_folder(source_dir);
    exl2_import_desc import = { 0 };
    import.gguf_path = path;
    import.out_dir = source_dir;
    import.bits = 16;
    import.error = &error;
    if (!CHECK_INT(exl2_import_gguf(&import), EXL2_OK)) {
        printf("  %s\n", error.text);
    }
    char *dense = converted(source_dir, &info, &bytes);
    remove_folder(out_dir);
    CHECK_INT(convert(path, true, NULL, &error), EXL2_ERR_CANCELLED);
    snprintf(work, sizeof work, "%s.work/source/config.json", out_dir);
    CHECK(access(work, F_OK) == 0);
    char *direct = converted(path, &info, &again);
    CHECK(bytes == again && memcmp(dense, direct, bytes) == 0);
    snprintf(work, sizeof work, "%s.work", out_dir);
    CHECK(access(work, F_OK) != 0);
    free(dense);
    free(direct);
    llama_free(&l);
}

/* ---- checks before the copy ---- */

static uint64_t disk_bytes;

static void on_plan(void *user, const exl2_convert_plan *plan)
{
    (void)user;
    disk_bytes = plan->disk_bytes;
}

/* The message, and that nothing but small files was written: the dense copy has 250,000 bytes. */
static void check_early(const exl2_convert_desc *d, exl2_result code, const char *piece)
{
    char path[700];
    exl2_error error = { 0 };
    exl2_convert_desc own = *d;
    own.error = &error;
    own.on_plan = on_plan;
    disk_bytes = disk_written = 0;
    remove_folder(out_dir);
    CHECK_INT(exl2_convert(&own), code);
    if (!CHECK(strstr(error.text, piece) && !strstr(error.text, "source-outline"))) {
        printf("  \"%s\" should hold \"%s\"\n", error.text, piece);
    }
    CHECK(disk_written > 0 && disk_written < 50000);
    CHECK(disk_bytes == 0);
    snprintf(path, sizeof path, "%s.work/source-outline", out_dir);
    CHECK(access(path, F_OK) != 0);
    snprintf(path, sizeof path, "%s.work", out_dir);
    remove_folder(path);
}

static void check_source_early(const char *source)
{
    static char path[700];
    static const char *const files[1] = { path };
    exl2_convert_desc d = rig_desc(source, ROWS, LENGTH), other;
    d.bpw = 4;
    other = d;
    other.bpw = 2.01f;
    check_early(&other, EXL2_ERR_ARG, "this model can have 2.");
    other = d;
    other.host_bytes_max = 6700000;
    check_early(&other, EXL2_ERR_BUDGET, "MiB of memory, but host_bytes_max is 6.4 MiB");
    other = d;
    other.length = 4096;
    check_early(&other, EXL2_ERR_ARG, " has a context of ");
    other = d;
    other.calibration_files = files;
    maker_write(root, "bad.txt", "text", 4);
    snprintf(path, sizeof path, "%s/bad.txt", root);
    check_early(&other, EXL2_ERR_ARG, "has no tokenizer, so calibration files must be .json");
    maker_write(root, "bad.json", "[1,2,9999]", 10);
    snprintf(path, sizeof path, "%s/bad.json", root);
    check_early(&other, EXL2_ERR_FORMAT, "expected ids below ");
    other = d;
    other.calibration_file_count = 0;
    check_early(&other, EXL2_ERR_ARG, "has no tokenizer, so it cannot write its own text");
    other = d;
    other.measurement_file = path;
    check_early(&other, EXL2_ERR_UNSUPPORTED, "bad.json");
    d.on_plan = on_plan;
    disk_written = 0;
    remove_folder(out_dir);
    CHECK_INT(exl2_convert(&d), EXL2_OK);
    CHECK(disk_written > 250000 && disk_bytes > 250000); /* the copy is counted */
}

static void test_early(void)
{
    llama_options o = { .hidden = 128, .inter = 160, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 64,
                        .vocab = 300, .no_tokenizer = true };
    llama_model l;
    char path[700];
    llama_make(&l, &o);
    maker_write(root, "early.gguf", l.file.data, l.file.bytes);
    snprintf(path, sizeof path, "%s/early.gguf", root);
    check_source_early(path);
    llama_free(&l);
    make_model(192, true);
    check_source_early(source_dir);
}

int main(void)
{
    convert_system.write = count_written;
    rig_open((ROWS + 2) * LENGTH, 64);
    snprintf(source_dir, sizeof source_dir, "%s/source", root);
    test_fp8();
    test_adapter();
    test_tower();
    test_names();
    test_fp8_rejected();
    test_uneven();
    test_starved();
    test_limits();
    test_messages();
    test_spare_bytes();
    test_spare();
    test_mixed();
    test_gguf();
    test_early();
    rig_close();
    return check_done();
}
