/* exl2_import_gguf: tiny Llamas in GGUF are imported, read back by the loader's own checks and decoded, and compared
   with the numbers they were made of; refusals, cancelling and failures leave nothing behind. */
#define EXL2_CONVERT
#include "../../exl2_impl/8_convert/import.h"
#include "../../exl2_impl/1_load/model_config.h"
#include "../check.h"
#include "../gguf_llama.h"
#include "../matrix_decode.h"

#include <math.h>

/* ---- a context whose only file in memory is model.gguf, and which can be made to fail ---- */

typedef struct rig {
    exl2__ctx c;
    gguf_bytes file;
    uint32_t allocations_left, reads_left; /* until one is refused */
    uint32_t open_files, calls, stop_at;   /* calls: of progress */
    float last;
    bool falling; /* progress went back, or out of 0..1 */
} rig;

static char out_dir[512], work_dir[600];

static void *rig_open(void *user, const char *path, uint64_t *bytes)
{
    rig *r = (rig *)user;
    if (strcmp(path, "model.gguf") == 0) {
        *bytes = r->file.bytes;
        r->open_files++;
        return r;
    }
    exl2_files files = exl2__platform_files();
    return files.open(files.user, path, bytes);
}

static bool rig_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    exl2_files files = exl2__platform_files();
    (void)user;
    return files.list(files.user, dir, index, name, cap);
}

static int64_t rig_read(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    rig *r = (rig *)user;
    exl2_files files = exl2__platform_files();
    if (file != r) {
        return files.read(files.user, file, offset, dst, bytes);
    }
    if (r->reads_left-- == 0) {
        r->reads_left = 0;
        return -1;
    }
    size_t rest = offset < r->file.bytes ? r->file.bytes - (size_t)offset : 0;
    bytes = bytes < rest ? bytes : rest;
    memcpy(dst, r->file.data + offset, bytes);
    return (int64_t)bytes;
}

static void rig_close(void *user, void *file)
{
    rig *r = (rig *)user;
    exl2_files files = exl2__platform_files();
    if (file == r) {
        r->open_files--;
    } else {
        files.close(files.user, file);
    }
}

static void *rig_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    rig *r = (rig *)user;
    exl2_allocator plain = exl2__platform_allocator();
    if (r->allocations_left == 0) {
        return NULL;
    }
    r->allocations_left--;
    return plain.alloc_fn(plain.user, bytes, align, tag);
}

static void rig_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    exl2_allocator plain = exl2__platform_allocator();
    (void)user;
    plain.free_fn(plain.user, memory, bytes, tag);
}

static void rig_make(rig *r, gguf_bytes file)
{
    memset(r, 0, sizeof *r);
    r->file = file;
    r->allocations_left = r->reads_left = UINT32_MAX;
    exl2_allocator allocator = { rig_alloc, rig_free, r };
    exl2_files files = { rig_open, rig_list, rig_read, rig_close, r };
    r->c.allocator = allocator;
    r->c.files = files;
}

static bool rig_progress(void *user, float done, const char *what)
{
    rig *r = (rig *)user;
    r->falling = r->falling || done < r->last || done > 1 || !what || !*what;
    r->last = done;
    return ++r->calls != r->stop_at;
}

/* Runs tasks from the last to the first: results must not depend on the order. */
static void backwards(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    while (count > 0) {
        task(arg, --count);
    }
}

static exl2_import_desc describe(rig *r)
{
    exl2_import_desc d = { 0 };
    d.gguf_path = "model.gguf";
    d.out_dir = out_dir;
    d.progress = rig_progress;
    d.user = r;
    return d;
}

static bool there(const char *dir)
{
    char name[300];
    exl2_files files = exl2__platform_files();
    return files.list(files.user, dir, 0, name, sizeof name);
}

static void remove_out(void)
{
    exl2__ctx c = { 0 };
    c.files = exl2__platform_files();
    CHECK(exl2__folder_remove(&c, out_dir));
}

/* Nothing open, allocated or on disk. */
static void check_clean(const rig *r)
{
    CHECK_INT(r->open_files, 0);
    CHECK_INT(r->c.host_bytes, 0);
    CHECK(!there(out_dir));
    CHECK(!exl2__platform_remove_dir(out_dir));
    CHECK(!there(work_dir));
    CHECK(!exl2__platform_remove_dir(work_dir));
}

static const llama_options small = { 64, 96, 2, 4, 2, 16, 83, true, false, false, NULL, 0, NULL, NULL, NULL, NULL };
static const llama_options wide = { 256, 288, 2, 4, 2, 64, 101, false, true, false, NULL, 0, NULL, NULL, NULL, NULL };

/* ---- what comes out ---- */

static void check_matrix(exl2__ctx *c, const exl2__tensors *t, const llama_wanted *w, const char *name, uint32_t bits,
                         uint32_t group)
{
    static const double bounds[9] = { 0, 0, 0.5, 0.26, 0.14, 0.072, 0.038, 0, 0.0105 };
    exl2__matrix_desc desc;
    uint16_t *got = matrix_load(c, t, name, w->in, w->out, &desc);
    if (!got) {
        return;
    }
    double error = 0, power = 0;
    uint32_t padding = 0;
    for (uint32_t j = 0; j < w->in; j++) {
        for (uint32_t n = 0; n < desc.out_stored; n++) {
            double value = (double)exl2__f16_to_f32(got[(size_t)j * desc.out_stored + n]);
            double wanted = n < w->out ? (double)w->numbers[(size_t)n * w->in + j] : 0;
            padding += n >= w->out && value != 0;
            error += (value - wanted) * (value - wanted);
            power += wanted * wanted;
        }
    }
    CHECK_INT(padding, 0);
    CHECK_INT(desc.group_count, (w->in + group - 1) / group);
    CHECK_INT(desc.words, w->in * bits / 32);
    if (!CHECK(sqrt(error / power) < bounds[bits])) {
        printf("  %s, %u bits in groups of %u: error %.4f\n", name, bits, group, sqrt(error / power));
    }
    free(got);
    CHECK_INT(desc.has_bias, w->bias != NULL);
}

static void check_floats(exl2__ctx *c, const exl2__tensors *t, const char *name, const float *wanted, uint32_t count)
{
    float *got = (float *)malloc(count * sizeof(float));
    uint32_t differ = 0;
    if (!CHECK_INT(exl2__tensor_floats(c, t, name, count, got), EXL2_OK)) {
        printf("  %s: %s\n", name, c->error.text);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            float half = exl2__f16_to_f32(exl2__f32_to_f16(wanted[i]));
            differ += exl2__float_bits(got[i]) != exl2__float_bits(half);
        }
    }
    CHECK_INT(differ, 0);
    free(got);
}

static void check_embedding(exl2__ctx *c, const exl2__tensors *t, const llama_wanted *w)
{
    const exl2__tensor *entry = exl2__tensors_find(t, "model.embed_tokens.weight");
    size_t count = (size_t)w->in * w->out;
    if (!CHECK(entry && entry->rank == 2 && entry->dims[0] == w->out && entry->dims[1] == w->in &&
               entry->bytes == count * 2)) {
        return;
    }
    uint16_t *got = (uint16_t *)malloc(count * 2);
    CHECK_INT(exl2__tensors_read(c, t, entry, 0, got, entry->bytes), EXL2_OK);
    uint32_t differ = 0;
    for (size_t i = 0; i < count; i++) {
        differ += got[i] != exl2__f32_to_f16(w->numbers[i]);
    }
    CHECK_INT(differ, 0);
    free(got);
}

static void check_folder(const llama_model *l, const llama_options *o, uint32_t bits, uint32_t group,
                         uint32_t head_bits)
{
    exl2__ctx c = { 0 };
    exl2__tensors t;
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    if (!CHECK_INT(exl2__tensors_open(&c, out_dir, &t), EXL2_OK)) {
        printf("  %s\n", c.error.text);
        return;
    }
    static const float zeros[512] = { 0 };
    for (uint32_t i = 0; i < l->count; i++) {
        const llama_wanted *w = &l->wanted[i];
        char name[128];
        if (strcmp(w->name, "model.embed_tokens") == 0) {
            check_embedding(&c, &t, w);
        } else if (strstr(w->name, "norm")) {
            snprintf(name, sizeof name, "%s.weight", w->name);
            check_floats(&c, &t, name, w->numbers, w->in);
        } else {
            bool head = strcmp(w->name, "lm_head") == 0, output = strstr(w->name, "o_proj") != NULL;
            llama_wanted changed = *w;
            float all_zero[1];
            changed.bias =
                output && o->attention_bias ? all_zero : w->bias; /* config.json has one flag for q, k, v and o */
            check_matrix(&c, &t, &changed, w->name, head ? head_bits : bits, group);
            snprintf(name, sizeof name, "%s.bias", w->name);
            if (changed.bias) {
                check_floats(&c, &t, name, output ? zeros : w->bias, w->out);
            }
        }
    }
    if (o->tied) {
        check_matrix(&c, &t, llama_find(l, "model.embed_tokens"), "lm_head", head_bits, group);
    }
    exl2__tensors_close(&c, &t);
    CHECK_INT(c.host_bytes, 0);
}

static void check_config(const llama_options *o)
{
    exl2__ctx c = { 0 };
    exl2__config config;
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    if (!CHECK_INT(exl2__config_read(&c, out_dir, &config), EXL2_OK)) {
        printf("  %s\n", c.error.text);
        return;
    }
    CHECK_TEXT(config.arch, "LlamaForCausalLM");
    CHECK(config.vocab == o->vocab && config.hidden == o->hidden && config.layers == o->layers &&
          config.inter == o->inter);
    CHECK(config.heads == o->heads && config.kv_heads == o->kv_heads && config.head_dim == o->head_dim);
    CHECK_INT(config.context_max, 512);
    CHECK_INT(exl2__float_bits(config.norm_eps), exl2__float_bits(1e-5f));
    CHECK(config.rope.theta == 500000.0);
    CHECK_INT(config.tie_embeddings, o->tied);
    CHECK_INT(config.attention_bias, o->attention_bias);
    CHECK(!config.mlp_bias);
    CHECK_INT(config.bos, o->no_tokenizer ? -1 : 1);
    CHECK_INT(config.eos_count, o->no_tokenizer ? 0 : 2);
    CHECK(o->no_tokenizer || (config.eos[0] == 0 && config.eos[1] == 3));
}

static void test_import(const llama_options *o, uint32_t bits, uint32_t group, uint32_t head_bits)
{
    llama_model l;
    rig r;
    llama_make(&l, o);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    d.bits = bits;
    d.group = group;
    d.head_bits = head_bits;
    if (CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK)) {
        CHECK(r.last == 1 && !r.falling && r.calls > 20);
        CHECK_INT(r.c.host_bytes, 0);
        check_folder(&l, o, bits ? bits : 8, group ? group : 32, head_bits ? head_bits : 8);
        check_config(o);
        remove_out();
    } else {
        printf("  %s\n", r.c.error.text);
    }
    check_clean(&r);
    llama_free(&l);
}

/* ---- tokenizer files ---- */

static uint32_t json_at(const exl2__json *j, uint32_t array, uint32_t index)
{
    uint32_t token = exl2__json_first(j, array);
    while (token && index-- > 0) {
        token = exl2__json_next(j, array, token);
    }
    return token;
}

static bool json_open(exl2__ctx *c, const char *name, char **text, exl2__json *j)
{
    char path[600];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", out_dir, name);
    *text = check_read(path, &bytes);
    return CHECK_INT(exl2__json_open(c, name, *text, bytes, j), EXL2_OK);
}

static void check_tokenizer(uint32_t count)
{
    exl2__ctx c = { 0 };
    exl2__json j;
    char *text;
    uint64_t id = 0;
    bool special = false;
    c.allocator = exl2__platform_allocator();
    if (json_open(&c, "tokenizer.json", &text, &j)) {
        uint32_t added = exl2__json_get(&j, 0, "added_tokens"), model = exl2__json_get(&j, 0, "model");
        uint32_t vocab = exl2__json_get(&j, model, "vocab"), merges = exl2__json_get(&j, model, "merges");
        CHECK_INT(j.tokens[added].count, 4);
        CHECK(exl2__json_is(&j, exl2__json_get(&j, json_at(&j, added, 2), "content"), "<|pad \"\\\n|>"));
        CHECK(exl2__json_bool(&j, exl2__json_get(&j, json_at(&j, added, 2), "special"), &special) && special);
        CHECK(exl2__json_bool(&j, exl2__json_get(&j, json_at(&j, added, 3), "special"), &special) && !special);
        CHECK(exl2__json_u64(&j, exl2__json_get(&j, json_at(&j, added, 3), "id"), &id) && id == 3);
        CHECK(exl2__json_is(&j, exl2__json_get(&j, model, "type"), "BPE"));
        CHECK(exl2__json_u64(&j, exl2__json_get(&j, vocab, "<|start|>"), &id) && id == 1);
        CHECK(exl2__json_u64(&j, exl2__json_get(&j, vocab, "\xC4\xA0"), &id) && id == 30);
        CHECK(exl2__json_u64(&j, exl2__json_get(&j, vocab, "ab"), &id) && id == 32);
        CHECK(!exl2__json_get(&j, vocab, "[PAD]")); /* unused */
        uint32_t tokens = 0;
        for (uint32_t t = exl2__json_first(&j, vocab); t; t = exl2__json_next(&j, vocab, t)) {
            tokens++;
        }
        CHECK_INT(tokens, count - 1);
        CHECK_INT(j.tokens[merges].count, 3);
        CHECK(exl2__json_is(&j, json_at(&j, json_at(&j, merges, 1), 0), "a"));
        CHECK(exl2__json_is(&j, json_at(&j, json_at(&j, merges, 1), 1), "b"));
        exl2__json_close(&c, &j);
    }
    free(text);
    if (json_open(&c, "tokenizer_config.json", &text, &j)) {
        CHECK(exl2__json_is(&j, exl2__json_get(&j, 0, "chat_template"),
                            "{% for m in messages %}\t\"\\\xE2\x82\xAC\x01{% endfor %}"));
        CHECK(exl2__json_is(&j, exl2__json_get(&j, 0, "bos_token"), "<|start|>"));
        CHECK(exl2__json_is(&j, exl2__json_get(&j, 0, "eos_token"), "<|end|>"));
        CHECK(exl2__json_is(&j, exl2__json_get(&j, 0, "pad_token"), "<|pad \"\\\n|>"));
        CHECK(!exl2__json_get(&j, 0, "unk_token"));
        uint32_t decoder = exl2__json_get(&j, 0, "added_tokens_decoder");
        CHECK(exl2__json_is(&j, exl2__json_get(&j, exl2__json_get(&j, decoder, "3"), "content"), "<user>"));
        exl2__json_close(&c, &j);
    }
    free(text);
    CHECK_INT(c.host_bytes, 0);
}

/* Pre-tokenizers by name, as the published files of those models have them. */
static void check_splitter(const char *pre)
{
    static const struct {
        const char *pre, *text;
    } rows[] = {
        { "smollm", "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
                    "\"individual_digits\": true}, "
                    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": "
                    "true}]}" },
        { "gpt-2", "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                   "\"use_regex\": true}," },
        { "llama-bpe",
          "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
          "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
          "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
          "\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
          "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}]}" },
        { "llama-bpe", "\"ignore_merges\": true" },
        { "llama-bpe", "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
                       "{\"id\": \"<|start|>\"" },
        { "llama-bpe", "\"special_tokens\": {\"<|start|>\": {\"id\": \"<|start|>\", \"ids\": [1], \"tokens\": "
                       "[\"<|start|>\"]}}" },
        { "qwen2", "\"normalizer\": {\"type\": \"NFC\"}" },
        { "qwen2", "\\\\p{L}+|\\\\p{N}| ?[^" },
        { "qwen2", "\"post_processor\": null" },
        { "qwen2", "\"ignore_merges\": false" },
    };
    char path[600];
    snprintf(path, sizeof path, "%s/tokenizer.json", out_dir);
    char *text = check_read(path, NULL);
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        if (strcmp(rows[i].pre, pre) == 0 && !CHECK(strstr(text, rows[i].text) != NULL)) {
            printf("  %s: no %s\n", pre, rows[i].text);
        }
    }
    free(text);
}

static void test_tokenizer(void)
{
    static const char *const families[] = { "smollm", "gpt-2", "llama-bpe", "qwen2" };
    for (size_t i = 0; i < EXL2__COUNT(families); i++) {
        llama_options o = small;
        llama_model l;
        rig r;
        o.pre = families[i];
        o.cut_tokens = i == 1 ? 10 : 0; /* an embedding may have rows without a token */
        llama_make(&l, &o);
        rig_make(&r, l.file);
        exl2_import_desc d = describe(&r);
        if (CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK)) {
            check_tokenizer(o.vocab - o.cut_tokens);
            check_splitter(families[i]);
            remove_out();
        } else {
            printf("  %s\n", r.c.error.text);
        }
        check_clean(&r);
        llama_free(&l);
    }
}

/* ---- RoPE scaling ---- */

static void add_rope_table(gguf_maker *m, float factor, double original, float spoil)
{
    float table[8];
    for (int i = 0; i < 8; i++) { /* as llama.cpp's converter makes it, heads of 16 */
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

static void rope_yarn(gguf_maker *m) { gguf_key_text(m, "llama.rope.scaling.type", "yarn"); }

static void test_rope(void)
{
    static const struct {
        void (*change)(gguf_maker *m);
        exl2__rope_kind kind;
        double factor, original;
    } rows[] = {
        { NULL, EXL2__ROPE_PLAIN, 1, 0 },
        { rope_ones, EXL2__ROPE_PLAIN, 1, 0 },
        { rope_llama3, EXL2__ROPE_LLAMA3, 8, 8192 },
        { rope_llama32, EXL2__ROPE_LLAMA3, 32, 8192 },
        { rope_other_context, EXL2__ROPE_LLAMA3, 16, 4096 },
        { rope_linear, EXL2__ROPE_LINEAR, 2.5, 0 },
        { rope_old_linear, EXL2__ROPE_LINEAR, 4, 0 },
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
            if (rows[i].kind != EXL2__ROPE_PLAIN) {
                CHECK(config.rope.factor == rows[i].factor);
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

/* ---- refusals ---- */

static void add_experts(gguf_maker *m) { gguf_key_u32(m, "llama.expert_count", 8); }
static void add_scale(gguf_maker *m) { gguf_key_f32(m, "llama.logit_scale", 0.5f); }
static const uint8_t zeros[64] = { 0 };
static void add_tensor(gguf_maker *m) { gguf_tensor(m, "blk.0.attn_q_norm.weight", 0, 16, 0, zeros, sizeof zeros); }
static void add_bad_bos(gguf_maker *m) { gguf_key_u32(m, "tokenizer.ggml.eom_token_id", 83); }
static void add_bad_bool(gguf_maker *m) { gguf_key_u32(m, "tokenizer.ggml.add_bos_token", 1); }

static void check_refused(const char *what, const llama_options *o, exl2_result code, const char *piece)
{
    llama_model l;
    rig r;
    llama_make(&l, o);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    exl2_result result = exl2__import_gguf(&r.c, &d);
    if (!CHECK_INT(result, code) || !CHECK(strstr(r.c.error.text, piece) && strstr(r.c.error.text, "model.gguf"))) {
        printf("  %s: \"%s\" should hold \"%s\"\n", what, r.c.error.text, piece);
    }
    check_clean(&r);
    llama_free(&l);
}

static void test_model_refusals(void)
{
    llama_options o = small;
    o.change = add_experts;
    check_refused("experts", &o, EXL2_ERR_UNSUPPORTED, "llama.expert_count is 8");
    o.change = add_scale;
    check_refused("logit scale", &o, EXL2_ERR_UNSUPPORTED, "llama.logit_scale");
    o.change = add_tensor;
    check_refused("a tensor too many", &o, EXL2_ERR_UNSUPPORTED, "blk.0.attn_q_norm.weight");
    o.change = rope_odd;
    check_refused("another table", &o, EXL2_ERR_UNSUPPORTED, "rope_freqs.weight");
    o.change = rope_both;
    check_refused("two scalings", &o, EXL2_ERR_UNSUPPORTED, "at once");
    o.change = rope_yarn;
    check_refused("yarn", &o, EXL2_ERR_UNSUPPORTED, "llama.rope.scaling.type");
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
    o.spoil = "blk.0.attn_q.weight"; /* F32 */
    check_refused("NaN in a matrix", &o, EXL2_ERR_FORMAT, "blk.0.attn_q.weight has a number in row 63");
    o.spoil = "blk.0.attn_norm.weight";
    check_refused("NaN in a norm", &o, EXL2_ERR_FORMAT, "blk.0.attn_norm.weight has a number at 63");
}

static void llama_spm(gguf_maker *m) { gguf_key_text(m, "tokenizer.ggml.model", "llama"); }

static void one_token(gguf_maker *m, const char *token, uint32_t times)
{
    gguf_key_text(m, "tokenizer.ggml.model", "gpt2");
    gguf_key_text(m, "tokenizer.ggml.pre", "gpt-2");
    gguf_key_array(m, "tokenizer.ggml.tokens", 8, times + 2);
    gguf_put_text(&m->keys, "a");
    for (uint32_t i = 0; i < times; i++) {
        gguf_put_text(&m->keys, token);
    }
    gguf_put_text(&m->keys, "b");
}

static void merges_of(gguf_maker *m, const char *merge)
{
    one_token(m, "ab", 1);
    gguf_key_array(m, "tokenizer.ggml.merges", 8, 1);
    gguf_put_text(&m->keys, merge);
}

static void no_merges(gguf_maker *m) { one_token(m, "x", 1); }

static void bad_utf8(gguf_maker *m)
{
    one_token(m, "\xC3\x28", 1);
    gguf_key_array(m, "tokenizer.ggml.merges", 8, 0);
}

static void twice(gguf_maker *m)
{
    one_token(m, "x", 2);
    gguf_key_array(m, "tokenizer.ggml.merges", 8, 0);
}

static void empty_token(gguf_maker *m)
{
    one_token(m, "", 1);
    gguf_key_array(m, "tokenizer.ggml.merges", 8, 0);
}

static void too_many(gguf_maker *m)
{
    one_token(m, "x", 83);
    gguf_key_array(m, "tokenizer.ggml.merges", 8, 0);
}

static void wrong_types(gguf_maker *m)
{
    merges_of(m, "a b");
    gguf_key_array(m, "tokenizer.ggml.token_type", 5, 1);
    gguf_put32(&m->keys, 1);
}

static void merge_unknown(gguf_maker *m) { merges_of(m, "a c"); }
static void merge_result(gguf_maker *m) { merges_of(m, "b a"); }
static void merge_single(gguf_maker *m) { merges_of(m, "ab"); }
static void merge_half(gguf_maker *m) { merges_of(m, "a "); }
static void merge_empty(gguf_maker *m) { merges_of(m, ""); }

static void merge_long(gguf_maker *m)
{
    static char merge[3000];
    memset(merge, 'a', sizeof merge - 1);
    merge[1500] = ' ';
    merges_of(m, merge);
}

static void test_text_refusals(void)
{
    static const struct {
        const char *what;
        void (*change)(gguf_maker *m);
        exl2_result code;
        const char *piece;
    } rows[] = {
        { "SentencePiece", llama_spm, EXL2_ERR_UNSUPPORTED, "tokenizer.ggml.model is llama" },
        { "no merges", no_merges, EXL2_ERR_FORMAT, "tokenizer.ggml.merges is missing" },
        { "not UTF-8", bad_utf8, EXL2_ERR_FORMAT, "is not UTF-8" },
        { "a token twice", twice, EXL2_ERR_FORMAT, "tokens[1] and [2] are the same" },
        { "an empty token", empty_token, EXL2_ERR_FORMAT, "tokens[1] is empty" },
        { "more tokens than rows", too_many, EXL2_ERR_FORMAT, "85 tokens" },
        { "types", wrong_types, EXL2_ERR_FORMAT, "1 token types" },
        { "a merge of an unknown token", merge_unknown, EXL2_ERR_FORMAT, "merges[0] makes or takes" },
        { "a merge to an unknown token", merge_result, EXL2_ERR_FORMAT, "merges[0] makes or takes" },
        { "a merge without a space", merge_single, EXL2_ERR_FORMAT, "merges[0] is not two" },
        { "half a merge", merge_half, EXL2_ERR_FORMAT, "merges[0] is not two" },
        { "an empty merge", merge_empty, EXL2_ERR_FORMAT, "merges[0] is not two" },
        { "a long merge", merge_long, EXL2_ERR_FORMAT, "merges[0] is not two" },
    };
    llama_options o = small;
    o.pre = "my\npre";
    check_refused("a pre that is no word", &o, EXL2_ERR_UNSUPPORTED, "tokenizer.ggml.pre is (not a word)");
    o.pre = "tekken";
    check_refused("tekken", &o, EXL2_ERR_UNSUPPORTED, "tokenizer.ggml.pre is tekken");
    o = small;
    o.skip_key = "tokenizer.ggml.pre";
    check_refused("no pre", &o, EXL2_ERR_UNSUPPORTED, "tokenizer.ggml.pre is missing");
    o = small;
    o.change = add_bad_bos;
    check_refused("an end token of no vocabulary", &o, EXL2_ERR_FORMAT, "eom_token_id is 83");
    o.change = add_bad_bool;
    check_refused("a number where a bool is wanted", &o, EXL2_ERR_FORMAT, "add_bos_token is of type u32");
    o = small;
    o.no_tokenizer = true;
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        o.change = rows[i].change;
        check_refused(rows[i].what, &o, rows[i].code, rows[i].piece);
    }
}

static void check_argument(exl2_import_desc d, rig *r, const char *piece)
{
    CHECK_INT(exl2__import_gguf(&r->c, &d), EXL2_ERR_ARG);
    if (!CHECK(strstr(r->c.error.text, piece) != NULL)) {
        printf("  \"%s\" should hold \"%s\"\n", r->c.error.text, piece);
    }
    check_clean(r);
}

static void test_arguments(void)
{
    llama_model l;
    rig r;
    exl2_error error = { EXL2_OK, 0, { 0 } };
    llama_make(&l, &small);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    d.bits = 7;
    check_argument(d, &r, "bits 7");
    d = describe(&r);
    d.head_bits = 9;
    check_argument(d, &r, "head_bits 9");
    d = describe(&r);
    d.group = 16;
    check_argument(d, &r, "group 16");
    d = describe(&r);
    d._end_canary = 1;
    check_argument(d, &r, "_end_canary");
    d = describe(&r);
    d.gguf_path = NULL;
    check_argument(d, &r, "gguf_path is NULL");
    d = describe(&r);
    d.out_dir = "";
    check_argument(d, &r, "out_dir has 0 bytes");
    CHECK_INT(exl2_import_gguf(NULL), EXL2_ERR_ARG);
    d = describe(&r); /* the public function: model.gguf is no file */
    d.error = &error;
    CHECK_INT(exl2_import_gguf(&d), EXL2_ERR_IO);
    CHECK_INT(error.code, EXL2_ERR_IO);
    CHECK(strstr(error.text, "model.gguf: no such file") != NULL);
    llama_free(&l);
}

/* ---- nothing half-made ---- */

static void write_file(const char *dir, const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    CHECK(file && fputs("left over", file) >= 0);
    fclose(file);
}

static void test_left_overs(void)
{
    llama_model l;
    rig r;
    llama_make(&l, &small);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    /* A killed run: its folder is taken away and made anew. */
    CHECK(exl2__platform_make_dir(work_dir));
    write_file(work_dir, "config.json");
    write_file(work_dir, "output-00001-of-00002.safetensors");
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    check_folder(&l, &small, 8, 32, 8);
    /* A finished one is never written over. */
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_STATE);
    CHECK(strstr(r.c.error.text, "exists and is not empty") != NULL);
    check_folder(&l, &small, 8, 32, 8);
    remove_out();
    check_clean(&r);
    /* Files that are not ours stay. */
    CHECK(exl2__platform_make_dir(work_dir));
    write_file(work_dir, "diary.txt");
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_IO);
    char path[700];
    snprintf(path, sizeof path, "%s/diary.txt", work_dir);
    CHECK(exl2__platform_remove_file(path));
    CHECK(exl2__platform_remove_dir(work_dir));
    /* An empty folder is taken, with or without a slash behind its name. */
    CHECK(exl2__platform_make_dir(out_dir));
    char slash[600];
    snprintf(slash, sizeof slash, "%s//", out_dir);
    d.out_dir = slash;
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    check_folder(&l, &small, 8, 32, 8);
    remove_out();
    /* A file of that name is not. */
    d.out_dir = out_dir;
    FILE *file = fopen(out_dir, "wb");
    CHECK(file && fclose(file) == 0);
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_STATE);
    CHECK(exl2__platform_remove_file(out_dir));
    check_clean(&r);
    llama_free(&l);
}

static void test_cancel(void)
{
    llama_model l;
    rig r;
    uint32_t stop = 1;
    llama_make(&l, &small);
    for (;; stop++) {
        rig_make(&r, l.file);
        r.stop_at = stop;
        exl2_import_desc d = describe(&r);
        exl2_result result = exl2__import_gguf(&r.c, &d);
        if (result == EXL2_OK) {
            break;
        }
        CHECK_INT(result, EXL2_ERR_CANCELLED);
        CHECK_INT(r.calls, stop);
        check_clean(&r);
    }
    CHECK(stop > 20 && r.calls == stop - 1);
    remove_out();
    llama_free(&l);
}

/* The n-th allocation or read fails, for n = 0, 1, 2 ... until none is left. */
static void test_faults(bool reads)
{
    llama_model l;
    rig r;
    uint32_t n = 0;
    llama_make(&l, &small);
    for (;; n++) {
        rig_make(&r, l.file);
        *(reads ? &r.reads_left : &r.allocations_left) = n;
        exl2_import_desc d = describe(&r);
        exl2_result result = exl2__import_gguf(&r.c, &d);
        if (result == EXL2_OK) {
            break;
        }
        CHECK_INT(result, reads ? EXL2_ERR_IO : EXL2_ERR_MEMORY);
        check_clean(&r);
    }
    CHECK(n > 10);
    remove_out();
    check_clean(&r);
    llama_free(&l);
}

/* ---- same bytes ---- */

static char *read_output(size_t *bytes)
{
    char path[700];
    snprintf(path, sizeof path, "%s/output.safetensors", out_dir);
    return check_read(path, bytes);
}

static void test_order(void)
{
    llama_model l;
    rig r;
    size_t bytes = 0, other_bytes = 0;
    llama_options o = wide;
    o.vocab = 600; /* three chunks of columns */
    llama_make(&l, &o);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    d.bits = 4;
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    char *text = read_output(&bytes);
    remove_out();
    r.c.parallel.run = backwards;
    r.c.parallel.width = 4;
    r.calls = 0;
    r.last = 0;
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    char *other = read_output(&other_bytes);
    CHECK(bytes == other_bytes && memcmp(text, other, bytes) == 0);
    remove_out();
    free(text);
    free(other);
    llama_free(&l);
}

/* Small shards, by the parts that an import is made of. */
static void test_shards(void)
{
    llama_model l;
    rig r;
    static exl2__import im;
    memset(&im, 0, sizeof im);
    llama_make(&l, &small);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    char name[300];
    uint32_t files = 0;
    CHECK_INT(exl2__import_check(&r.c, &d, &im.config), EXL2_OK);
    CHECK_INT(exl2__gguf_open(&r.c, d.gguf_path, &im.gguf), EXL2_OK);
    CHECK_INT(exl2__import_config_read(&im.gguf, &im.config), EXL2_OK);
    CHECK_INT(exl2__import_plan_make(&im.gguf, &im.config, &im.plan), EXL2_OK);
    CHECK_INT(exl2__folder_begin(&r.c, &im.folder, d.out_dir), EXL2_OK);
    CHECK_INT(exl2__import_model_run(&im.plan, &d, im.folder.work_path, 20000), EXL2_OK);
    CHECK_INT(exl2__folder_commit(&r.c, &im.folder), EXL2_OK);
    exl2_files plain = exl2__platform_files();
    while (plain.list(plain.user, out_dir, files, name, sizeof name)) {
        files++;
        CHECK(strncmp(name, "output-0000", 11) == 0 && strstr(name, "-of-0000") != NULL);
    }
    CHECK(files > 2);
    check_folder(&l, &small, 8, 32, 8);
    exl2__import_plan_close(&im.plan);
    exl2__gguf_close(&im.gguf);
    remove_out();
    check_clean(&r);
    llama_free(&l);
}

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
    const char *temporary = getenv("TMPDIR");
    snprintf(out_dir, sizeof out_dir, "%s/exl2-import-%llx", temporary && *temporary ? temporary : "/tmp",
             (unsigned long long)exl2__platform_entropy(out_dir));
    snprintf(work_dir, sizeof work_dir, "%s.unfinished", out_dir);
    llama_options bare = small;
    bare.no_tokenizer = true;
    test_import(&small, 0, 0, 0);
    test_import(&bare, 8, 64, 6);
    test_import(&wide, 4, 128, 6);
    test_import(&wide, 2, 64, 3);
    test_import(&wide, 3, 32, 4);
    test_import(&wide, 5, 128, 5);
    test_import(&wide, 6, 64, 2);
    test_tokenizer();
    test_rope();
    test_model_refusals();
    test_text_refusals();
    test_arguments();
    test_left_overs();
    test_cancel();
    test_faults(false);
    test_faults(true);
    test_order();
    test_shards();
    test_floats();
    return check_done();
}
