/* import_text.c: tokenizer.json and tokenizer_config.json of an import, and the vocabularies that it rejects. */
#include "../import_rig.h"
#include "../vocab_open.h"

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

/* Pre-tokenizers by name, as in the published files of those models. */
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
        { "command-r", "{\"type\": \"Digits\"" },
        { "command-r", "\"normalizer\": {\"type\": \"NFC\"}" },
        { "exaone", "{\"type\": \"Digits\"" },
        { "exaone4", "\"pre_tokenizer\": {\"type\": \"ByteLevel\"" },
        { "phi-2", "\"pre_tokenizer\": {\"type\": \"ByteLevel\"" },
        { "dbrx", "\\\\p{N}{1,3}| ?[^" },
        { "dbrx", "\"ignore_merges\": false" },
        { "glm4", "\"post_processor\": null" },
        { "stablelm2", "\\\\p{L}+|\\\\p{N}| ?[^" },
        { "tekken", "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+|[^" },
        { "tekken", "|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*" },
        { "tekken", "\"ignore_merges\": true" },
        { "gpt-4o", "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^" },
        { "gpt-4o", "|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*" },
        { "seed-coder", "| ?[^\\\\s\\\\p{L}\\\\p{N}\\\\r\\\\n]+|" },
        { "default", "{\"Regex\": \"[0-9][0-9][0-9]\"}" },
        { "hunyuan-dense", "{\"Regex\": \"\\\\p{N}{1,3}\"}" },
        { "hunyuan-dense", "{\"Regex\": \"[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-" },
        { "hunyuan-dense", "[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\\\r\\\\n]*|" },
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

/* The engine reads the file, and cuts a text at the family's places (unit/regex.c checks the patterns themselves). */
static void check_opens(const char *pre)
{
    exl2__ctx c = { 0 };
    exl2__vocab v;
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    if (!CHECK_INT(vocab_open(&c, out_dir, &v), EXL2_OK)) {
        printf("  %s: %s\n", pre, c.error.text);
        return;
    }
    exl2__vocab_close(&c, &v);
    CHECK_INT(c.host_bytes, 0);
}

static void test_tokenizer(void)
{
    static const char *const families[] = {
        "smollm", "gpt-2", "llama-bpe", "qwen2", "command-r", "dbrx", "olmo", "stablelm2", "phi-2", "smaug-bpe",
        "chatglm-bpe", "glm4", "exaone", "exaone4", "hunyuan-dense", "gpt-4o", "tekken", "seed-coder"
    };
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
            check_opens(families[i]);
            remove_out();
        } else {
            printf("  %s\n", r.c.error.text);
        }
        check_clean(&r);
        llama_free(&l);
    }
}

/* ---- rejected vocabularies ---- */

static void add_bad_bos(gguf_maker *m) { gguf_key_u32(m, "tokenizer.ggml.eom_token_id", 83); }
static void add_bad_bool(gguf_maker *m) { gguf_key_u32(m, "tokenizer.ggml.add_bos_token", 1); }
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

static void typed(gguf_maker *m, uint32_t type)
{
    merges_of(m, "a b");
    gguf_key_array(m, "tokenizer.ggml.token_type", 5, 3);
    for (uint32_t i = 0; i < 3; i++) {
        gguf_put32(&m->keys, i == 1 ? type : 1);
    }
}

static void type_99(gguf_maker *m) { typed(m, 99); }
static void type_0(gguf_maker *m) { typed(m, 0); }

/* Pieces a, `piece`, b with `scores` scores, of which the second has these bits. */
static void spm_of(gguf_maker *m, const char *piece, uint32_t scores, uint32_t kind, uint32_t bits)
{
    gguf_key_text(m, "tokenizer.ggml.model", "llama");
    gguf_key_array(m, "tokenizer.ggml.tokens", 8, 3);
    gguf_put_text(&m->keys, "a");
    gguf_put_text(&m->keys, piece);
    gguf_put_text(&m->keys, "b");
    if (scores) {
        gguf_key_array(m, "tokenizer.ggml.scores", kind, scores);
    }
    for (uint32_t i = 0; i < scores; i++) {
        gguf_put32(&m->keys, i == 1 ? bits : 0);
    }
}

static void spm_no_scores(gguf_maker *m) { spm_of(m, "ab", 0, 6, 0); }
static void spm_nan(gguf_maker *m) { spm_of(m, "ab", 3, 6, 0x7FC00000u); }
static void spm_few_scores(gguf_maker *m) { spm_of(m, "ab", 2, 6, 0); }
static void spm_wrong_scores(gguf_maker *m) { spm_of(m, "ab", 3, 5, 0); }
static void spm_twice(gguf_maker *m) { spm_of(m, "b", 3, 6, 0); }

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
        { "SentencePiece without pieces", llama_spm, EXL2_ERR_FORMAT, "tokenizer.ggml.tokens is missing" },
        { "an unknown type", type_99, EXL2_ERR_FORMAT, "token_type[1] is 99" },
        { "type 0", type_0, EXL2_ERR_FORMAT, "token_type[1] is 0" },
        { "no scores", spm_no_scores, EXL2_ERR_FORMAT, "tokenizer.ggml.scores is missing" },
        { "a score that is NaN", spm_nan, EXL2_ERR_FORMAT, "scores[1] is not a finite" },
        { "too few scores", spm_few_scores, EXL2_ERR_FORMAT, "3 tokens and 2 scores" },
        { "scores of another type", spm_wrong_scores, EXL2_ERR_FORMAT,
          "tokenizer.ggml.scores is of type array of i32" },
        { "a piece twice", spm_twice, EXL2_ERR_FORMAT, "tokens[1] and [2] are the same" },
        { "no merges", no_merges, EXL2_ERR_FORMAT, "tokenizer.ggml.merges is missing" },
        { "not UTF-8", bad_utf8, EXL2_ERR_FORMAT, "is not valid UTF-8" },
        { "a token twice", twice, EXL2_ERR_FORMAT, "tokens[1] and [2] are the same" },
        { "an empty token", empty_token, EXL2_ERR_FORMAT, "tokens[1] is empty" },
        { "more tokens than rows", too_many, EXL2_ERR_FORMAT, "85 tokens" },
        { "types", wrong_types, EXL2_ERR_FORMAT, "1 token types" },
        { "a merge of an unknown token", merge_unknown, EXL2_ERR_FORMAT, "merges[0] needs or makes" },
        { "a merge to an unknown token", merge_result, EXL2_ERR_FORMAT, "merges[0] needs or makes" },
        { "a merge without a space", merge_single, EXL2_ERR_FORMAT, "merges[0] is not two" },
        { "half a merge", merge_half, EXL2_ERR_FORMAT, "merges[0] is not two" },
        { "an empty merge", merge_empty, EXL2_ERR_FORMAT, "merges[0] is not two" },
        { "a long merge", merge_long, EXL2_ERR_FORMAT, "merges[0] is not two" },
    };
    llama_options o = small;
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

/* ---- tokenizers that are left out, or have no name ---- */

static void t5(gguf_maker *m) { gguf_key_text(m, "tokenizer.ggml.model", "t5"); }

/* The folder has no tokenizer, and the warning says why. */
static void check_left_out(const llama_options *o, bool no_tokenizer, const char *piece)
{
    llama_model l;
    rig r;
    char path[600];
    exl2_import_info info = { 0 };
    llama_make(&l, o);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    d.info = &info;
    d.no_tokenizer = no_tokenizer;
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    if (!CHECK(strstr(info.warning, piece) != NULL)) {
        printf("  \"%s\" should hold \"%s\"\n", info.warning, piece);
    }
    CHECK_TEXT(info.tokenizer, "none");
    snprintf(path, sizeof path, "%s/tokenizer.json", out_dir);
    FILE *file = fopen(path, "rb");
    if (!CHECK(!file)) {
        fclose(file);
    }
    remove_out();
    check_clean(&r);
    llama_free(&l);
}

/* A tokenizer that is not supported is rejected, unless none is wanted. */
static void test_left_out(void)
{
    static const char *const named[] = { "my\npre", "tokenizer.ggml.pre is (not a word)", "gpt", "pre is gpt, which",
                                         "gpt-2 phi-2", "pre is (not a word)", "kimi-k2", "pre is kimi-k2, which" };
    llama_options o = small;
    for (size_t i = 0; i < EXL2__COUNT(named); i += 2) {
        o.pre = named[i];
        check_refused(named[i], &o, EXL2_ERR_UNSUPPORTED, named[i + 1]);
        check_left_out(&o, true, "no tokenizer was wanted");
    }
    check_refused("the way out", &o, EXL2_ERR_UNSUPPORTED, "no_tokenizer (--no-tokenizer)");
    o = small;
    check_left_out(&o, true, "no tokenizer was wanted");
    o.no_tokenizer = true;
    check_left_out(&o, false, "the GGUF file has no tokenizer");
    o.change = t5;
    check_refused("t5", &o, EXL2_ERR_UNSUPPORTED, "tokenizer.ggml.model is t5");
    check_left_out(&o, true, "no tokenizer was wanted");
}

/* A file that does not name its pre-tokenizer is cut as llama.cpp does it, and the warning says so. */
static void test_unnamed(void)
{
    llama_options o = small;
    llama_model l;
    rig r;
    exl2_import_info info = { 0 };
    o.skip_key = "tokenizer.ggml.pre";
    llama_make(&l, &o);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    d.info = &info;
    if (CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK)) {
        CHECK(strstr(info.warning, "does not name its pre-tokenizer") != NULL);
        CHECK_TEXT(info.tokenizer, "bpe");
        check_splitter("default");
        check_opens("default");
    }
    remove_out();
    check_clean(&r);
    llama_free(&l);
}

int main(void)
{
    import_start();
    test_tokenizer();
    test_left_out();
    test_unnamed();
    test_text_refusals();
    return check_done();
}
