/* import_text.h: reads the tokenizer.* keys of a GGUF file, and writes tokenizer.json and tokenizer_config.json. Only
   byte-level BPE is supported.
   takes: an open GGUF file.
   gives: exl2__import_text, exl2__import_text_read, exl2__import_text_write, exl2__import_text_close.
   owns:  the token table, until exl2__import_text_close. */
#ifndef EXL2__IMPORT_TEXT_H
#define EXL2__IMPORT_TEXT_H

#include "import_config.h"

#define EXL2__IMPORT_TEXT_MERGE_MAX 1024u /* bytes of the longest merge, both sides and the space */

/* How text is cut into words before merging. GGUF stores only a name for this. */
typedef struct exl2__import_text_family {
    const char *pre; /* tokenizer.ggml.pre */
    bool nfc, digits, add_bos, ignore_merges; /* digits: each is a word; add_bos: the default */
    const char *regex; /* NULL: ByteLevel's default, which is GPT-2's */
} exl2__import_text_family;

/* Llama 3's pattern. `digits` is the regex quantifier for the digits of a word. */
#define EXL2__IMPORT_TEXT_CL100K(digits)                                       \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct exl2__import_text {
    exl2__gguf *g;
    const exl2__import_text_family *family; /* NULL: the file has no tokenizer */
    exl2__arena memory;
    exl2__gguf_text *tokens; /* [count] */
    const uint8_t *types;    /* [count] i32; NULL: all are NORMAL */
    uint32_t count;
    const exl2__gguf_pair *merges;
    exl2__strtab names;
    exl2__import_ids ids;
    exl2__gguf_text chat_template;
    bool add_bos, add_eos, prefix_space;
} exl2__import_text;

/* Values of tokenizer.ggml.token_type. */
typedef enum exl2__import_text_type {
    EXL2__IMPORT_TEXT_NORMAL = 1,
    EXL2__IMPORT_TEXT_UNKNOWN,
    EXL2__IMPORT_TEXT_CONTROL,
    EXL2__IMPORT_TEXT_USER,
    EXL2__IMPORT_TEXT_UNUSED
} exl2__import_text_type;

/* ---- reading ---- */

static inline uint32_t exl2__import_text_type_of(const exl2__import_text *t, uint32_t id)
{
    return t->types ? exl2__load32(t->types + (size_t)id * 4) : EXL2__IMPORT_TEXT_NORMAL;
}

static inline bool exl2__import_text_is_added(const exl2__import_text *t, uint32_t id)
{
    uint32_t type = exl2__import_text_type_of(t, id);
    return type == EXL2__IMPORT_TEXT_UNKNOWN || type == EXL2__IMPORT_TEXT_CONTROL || type == EXL2__IMPORT_TEXT_USER;
}

static const char *exl2__import_text_name(const void *owner, uint32_t entry, size_t *bytes)
{
    const exl2__gguf_text *token = &((const exl2__import_text *)owner)->tokens[entry];
    *bytes = (size_t)token->bytes;
    return token->data;
}

static exl2_result exl2__import_text_find_family(exl2__import_text *t)
{
    static const exl2__import_text_family families[] = {
        { "smollm", false, true, false, false, NULL },
        { "starcoder", false, true, false, false, NULL },
        { "refact", false, true, false, false, NULL },
        { "gpt-2", false, false, false, false, NULL },
        { "llama-bpe", false, false, true, true, EXL2__IMPORT_TEXT_CL100K("{1,3}") },
        { "llama3", false, false, true, true, EXL2__IMPORT_TEXT_CL100K("{1,3}") },
        { "llama-v3", false, false, true, true, EXL2__IMPORT_TEXT_CL100K("{1,3}") },
        { "qwen2", true, false, false, false, EXL2__IMPORT_TEXT_CL100K("") },
    };
    exl2__gguf *g = t->g;
    exl2__gguf_text model = { NULL, 0 }, pre = { NULL, 0 };
    char name[32];
    EXL2__TRY(exl2__gguf_get_text(g, "tokenizer.ggml.model", &model));
    EXL2__TRY(exl2__gguf_get_text(g, "tokenizer.ggml.pre", &pre));
    if (model.bytes == 0 || exl2__import_config_is(model, "none") || exl2__import_config_is(model, "no_vocab")) {
        return EXL2_OK;
    }
    if (!exl2__import_config_is(model, "gpt2")) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: tokenizer.ggml.model is %s, only gpt2 (byte-level BPE) is imported", g->path,
                          exl2__import_config_show(model, name));
    }
    for (size_t i = 0; i < EXL2__COUNT(families); i++) {
        if (exl2__import_config_is(pre, families[i].pre)) {
            t->family = &families[i];
            return EXL2_OK;
        }
    }
    return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                      "%s: tokenizer.ggml.pre is %s, expected smollm, starcoder, refact, gpt-2, llama-bpe or qwen2",
                      g->path, exl2__import_config_show(pre, name));
}

static void exl2__import_text_layout(exl2__import_text *t, exl2__arena *a)
{
    t->tokens = (exl2__gguf_text *)exl2__arena_alloc(a, (uint64_t)t->count * sizeof *t->tokens);
    exl2__strtab_make(&t->names, a, t->count);
    t->names.name = exl2__import_text_name;
    t->names.owner = t;
}

/* Enters every token that is not UNUSED. Two tokens with the same text are rejected, since a vocabulary maps a text to
   one id. */
static exl2_result exl2__import_text_enter(exl2__import_text *t, const exl2__gguf_pair *tokens)
{
    const uint8_t *at = tokens->data;
    for (uint32_t id = 0; id < t->count; id++) {
        uint32_t slot = 0;
        t->tokens[id] = exl2__gguf_string_at(at);
        at += 8 + t->tokens[id].bytes;
        if (exl2__import_text_type_of(t, id) == EXL2__IMPORT_TEXT_UNUSED) {
            continue;
        }
        if (t->tokens[id].bytes == 0) {
            return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT, "%s: tokenizer.ggml.tokens[%u] is empty", t->g->path, id);
        }
        uint32_t other = exl2__strtab_find(&t->names, t->tokens[id].data, (size_t)t->tokens[id].bytes, &slot);
        if (other != UINT32_MAX) {
            return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT, "%s: tokenizer.ggml.tokens[%u] and [%u] are the same text",
                              t->g->path, other, id);
        }
        if (!exl2__strtab_put(&t->names, slot, id)) {
            return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT,
                              "%s: too many texts of tokenizer.ggml.tokens have the same hash", t->g->path);
        }
    }
    return EXL2_OK;
}

static exl2_result exl2__import_text_read_tables(exl2__import_text *t, uint32_t vocab)
{
    exl2__gguf *g = t->g;
    const exl2__gguf_pair *tokens, *types;
    EXL2__TRY(exl2__gguf_get_array(g, "tokenizer.ggml.tokens", EXL2__GGUF_STRING, &tokens));
    EXL2__TRY(exl2__gguf_get_array(g, "tokenizer.ggml.token_type", EXL2__GGUF_I32, &types));
    EXL2__TRY(exl2__gguf_get_array(g, "tokenizer.ggml.merges", EXL2__GGUF_STRING, &t->merges));
    if (!tokens || !t->merges) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key tokenizer.ggml.%s is missing", g->path,
                          tokens ? "merges" : "tokens");
    }
    if (tokens->count > vocab || (types && types->count != tokens->count)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: tokenizer.ggml has %llu tokens and %llu token types, expected as many of each, at most "
                          "%u (rows of the embedding)", g->path, (unsigned long long)tokens->count,
                          (unsigned long long)(types ? types->count : tokens->count), vocab);
    }
    t->count = (uint32_t)tokens->count;
    t->types = types ? types->data : NULL;
    exl2__arena measure = { 0 };
    exl2__import_text_layout(t, &measure);
    EXL2__TRY(exl2__arena_open(g->ctx, &t->memory, measure.used, EXL2_MEM_GENERAL));
    exl2__import_text_layout(t, &t->memory);
    EXL2__TRY(exl2__import_text_enter(t, tokens));
    return exl2__import_config_ids(g, t->count, &t->ids);
}

/* Reads and checks the tokenizer. *t must be closed, even after a failure, and must not be moved. vocab: rows of the
   embedding. */
static exl2_result exl2__import_text_read(exl2__gguf *g, uint32_t vocab, exl2__import_text *t)
{
    *t = (exl2__import_text){ 0 };
    t->g = g;
    t->ids = (exl2__import_ids){ -1, -1, -1, -1, -1, -1 };
    EXL2__TRY(exl2__import_text_find_family(t));
    if (!t->family) {
        return exl2__import_config_ids(g, vocab, &t->ids);
    }
    EXL2__TRY(exl2__import_text_read_tables(t, vocab));
    t->add_bos = t->family->add_bos;
    EXL2__TRY(exl2__gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos));
    EXL2__TRY(exl2__gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos));
    EXL2__TRY(exl2__gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->prefix_space));
    t->add_bos = t->add_bos && t->ids.bos >= 0;
    t->add_eos = t->add_eos && t->ids.eos >= 0;
    return exl2__gguf_get_text(g, "tokenizer.chat_template", &t->chat_template);
}

static void exl2__import_text_close(exl2__import_text *t)
{
    if (t->g) {
        exl2__arena_close(t->g->ctx, &t->memory);
    }
    *t = (exl2__import_text){ 0 };
}

/* ---- writing ---- */

static inline void exl2__import_text_quote(exl2__write *w, const exl2__import_text *t, uint32_t id)
{
    exl2__write_quoted(w, "a token of tokenizer.ggml.tokens", t->tokens[id].data, t->tokens[id].bytes);
}

/* Writes the object that describes an added token in both files. Only in tokenizer.json it has an id. */
static void exl2__import_text_write_added(exl2__write *w, const exl2__import_text *t, uint32_t id, bool with_id)
{
    bool special = exl2__import_text_type_of(t, id) != EXL2__IMPORT_TEXT_USER;
    exl2__write_format(w, "{");
    if (with_id) {
        exl2__write_format(w, "\"id\": %u, ", id);
    }
    exl2__write_format(w, "\"content\": ");
    exl2__import_text_quote(w, t, id);
    exl2__write_format(w, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false");
    exl2__write_format(w, ", \"special\": %s}", special ? "true" : "false");
}

static void exl2__import_text_write_splitter(exl2__write *w, const exl2__import_text *t)
{
    const exl2__import_text_family *family = t->family;
    bool sequence = family->digits || family->regex;
    exl2__write_format(w, "  \"normalizer\": %s,\n", family->nfc ? "{\"type\": \"NFC\"}" : "null");
    exl2__write_format(w, "  \"pre_tokenizer\": %s", sequence ? "{\"type\": \"Sequence\", \"pretokenizers\": [" : "");
    if (family->digits) {
        exl2__write_format(w, "{\"type\": \"Digits\", \"individual_digits\": true}, ");
    }
    if (family->regex) {
        exl2__write_format(w, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        exl2__write_quoted_z(w, family->regex);
        exl2__write_format(w, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    exl2__write_format(w, "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s", t->prefix_space ? "true" : "false");
    exl2__write_format(w, ", \"trim_offsets\": true, \"use_regex\": %s}", family->regex ? "false" : "true");
    exl2__write_format(w, "%s,\n", sequence ? "]}" : "");
}

/* Writes {"SpecialToken": ...}, {"Sequence": A}: the post-processor's items for BOS before a text. */
static void exl2__import_text_write_bos_then_text(exl2__write *w, const exl2__import_text *t)
{
    exl2__write_format(w, "{\"SpecialToken\": {\"id\": ");
    exl2__import_text_quote(w, t, (uint32_t)t->ids.bos);
    exl2__write_format(w, ", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}");
}

/* Writes the post-processor that puts BOS before raw text, if the file asks for it. */
static void exl2__import_text_write_template(exl2__write *w, const exl2__import_text *t)
{
    exl2__write_format(w, "  \"post_processor\": ");
    if (!t->add_bos) {
        exl2__write_format(w, "null,\n");
        return;
    }
    uint32_t bos = (uint32_t)t->ids.bos;
    exl2__write_format(w, "{\"type\": \"TemplateProcessing\", \"single\": [");
    exl2__import_text_write_bos_then_text(w, t);
    exl2__write_format(w, "], \"pair\": [");
    exl2__import_text_write_bos_then_text(w, t);
    exl2__write_format(w, ", {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {");
    exl2__import_text_quote(w, t, bos);
    exl2__write_format(w, ": {\"id\": ");
    exl2__import_text_quote(w, t, bos);
    exl2__write_format(w, ", \"ids\": [%u], \"tokens\": [", bos);
    exl2__import_text_quote(w, t, bos);
    exl2__write_format(w, "]}}},\n");
}

/* Checks and writes merge i, which is "a b"; the vocabulary must contain a, b and ab. */
static exl2_result exl2__import_text_write_merge(exl2__write *w, const exl2__import_text *t, uint64_t i,
                                                 exl2__gguf_text merge)
{
    char joined[EXL2__IMPORT_TEXT_MERGE_MAX];
    uint64_t left = 1;
    while (left < merge.bytes && merge.data[left] != ' ') {
        left++;
    }
    if (left + 1 >= merge.bytes || merge.bytes > sizeof joined) {
        return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT,
                          "%s: tokenizer.ggml.merges[%llu] is not two tokens with a space between them", t->g->path,
                          (unsigned long long)i);
    }
    const char *right = merge.data + left + 1;
    size_t right_bytes = (size_t)(merge.bytes - left - 1);
    memcpy(joined, merge.data, (size_t)left);
    memcpy(joined + left, right, right_bytes);
    if (exl2__strtab_find(&t->names, merge.data, (size_t)left, NULL) == UINT32_MAX ||
        exl2__strtab_find(&t->names, right, right_bytes, NULL) == UINT32_MAX ||
        exl2__strtab_find(&t->names, joined, (size_t)merge.bytes - 1, NULL) == UINT32_MAX) {
        return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT,
                          "%s: tokenizer.ggml.merges[%llu] needs or makes a token that is not in the vocabulary",
                          t->g->path, (unsigned long long)i);
    }
    exl2__write_format(w, "%s[", i ? ",\n" : "\n");
    exl2__write_quoted(w, "a half of tokenizer.ggml.merges", merge.data, left);
    exl2__write_format(w, ", ");
    exl2__write_quoted(w, "a half of tokenizer.ggml.merges", right, right_bytes);
    exl2__write_format(w, "]");
    return EXL2_OK;
}

static exl2_result exl2__import_text_write_tokenizer(exl2__write *w, const exl2__import_text *t)
{
    const char *comma = "\n";
    exl2__write_format(w, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    exl2__write_format(w, "  \"added_tokens\": [");
    for (uint32_t id = 0; id < t->count; id++) {
        if (exl2__import_text_is_added(t, id)) {
            exl2__write_format(w, "%s    ", comma);
            exl2__import_text_write_added(w, t, id, true);
            comma = ",\n";
        }
    }
    exl2__write_format(w, "\n  ],\n");
    exl2__import_text_write_splitter(w, t);
    exl2__import_text_write_template(w, t);
    exl2__write_format(w, "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, ");
    exl2__write_format(w, "\"trim_offsets\": true, \"use_regex\": true},\n");
    exl2__write_format(w, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, ");
    exl2__write_format(w, "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, ");
    exl2__write_format(w, "\"byte_fallback\": false, \"ignore_merges\": %s,\n\"vocab\": {",
                       t->family->ignore_merges ? "true" : "false");
    comma = "\n";
    for (uint32_t id = 0; id < t->count; id++) {
        if (exl2__import_text_type_of(t, id) != EXL2__IMPORT_TEXT_UNUSED) {
            exl2__write_format(w, "%s", comma);
            exl2__import_text_quote(w, t, id);
            exl2__write_format(w, ": %u", id);
            comma = ",\n";
        }
    }
    exl2__write_format(w, "},\n\"merges\": [");
    const uint8_t *at = t->merges->data;
    for (uint64_t i = 0; i < t->merges->count; i++) {
        exl2__gguf_text merge = exl2__gguf_string_at(at);
        EXL2__TRY(exl2__import_text_write_merge(w, t, i, merge));
        at += 8 + merge.bytes;
    }
    exl2__write_format(w, "]}\n}\n");
    return EXL2_OK;
}

static void exl2__import_text_write_config(exl2__write *w, const exl2__import_text *t, uint32_t context)
{
    const struct {
        const char *key;
        int32_t id;
    } named[4] = { { "bos_token", t->ids.bos },
                   { "eos_token", t->ids.eos },
                   { "unk_token", t->ids.unk },
                   { "pad_token", t->ids.pad } };
    const char *comma = "\n";
    exl2__write_format(w, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"model_max_length\": %u",
                       context);
    exl2__write_format(w, ",\n  \"add_bos_token\": %s", t->add_bos ? "true" : "false");
    exl2__write_format(w, ",\n  \"add_eos_token\": %s", t->add_eos ? "true" : "false");
    exl2__write_format(w, ",\n  \"add_prefix_space\": %s", t->prefix_space ? "true" : "false");
    exl2__write_format(w, ",\n  \"clean_up_tokenization_spaces\": false,\n");
    for (uint32_t i = 0; i < 4; i++) {
        if (named[i].id >= 0) {
            exl2__write_format(w, "  \"%s\": ", named[i].key);
            exl2__import_text_quote(w, t, (uint32_t)named[i].id);
            exl2__write_format(w, ",\n");
        }
    }
    if (t->chat_template.bytes > 0) {
        exl2__write_format(w, "  \"chat_template\": ");
        exl2__write_quoted(w, "tokenizer.chat_template", t->chat_template.data, t->chat_template.bytes);
        exl2__write_format(w, ",\n");
    }
    exl2__write_format(w, "  \"added_tokens_decoder\": {");
    for (uint32_t id = 0; id < t->count; id++) {
        if (exl2__import_text_is_added(t, id)) {
            exl2__write_format(w, "%s    \"%u\": ", comma, id);
            exl2__import_text_write_added(w, t, id, false);
            comma = ",\n";
        }
    }
    exl2__write_format(w, "\n  }\n}\n");
}

/* Writes tokenizer.json and tokenizer_config.json to `dir`; nothing if the GGUF file has no tokenizer. */
static exl2_result exl2__import_text_write(exl2__ctx *c, const char *dir, const exl2__import_text *t, uint32_t context)
{
    char path[EXL2__FILE_PATH_MAX];
    exl2__write w;
    if (!t->family) {
        return EXL2_OK;
    }
    exl2__format(path, sizeof path, "%s/tokenizer.json", dir);
    EXL2__TRY(exl2__write_open(c, path, &w));
    w.from = t->g->path;
    exl2_result result = exl2__import_text_write_tokenizer(&w, t);
    exl2_result closed = exl2__write_close(&w);
    EXL2__TRY(result);
    EXL2__TRY(closed);
    exl2__format(path, sizeof path, "%s/tokenizer_config.json", dir);
    EXL2__TRY(exl2__write_open(c, path, &w));
    w.from = t->g->path;
    exl2__import_text_write_config(&w, t, context);
    return exl2__write_close(&w);
}

#endif
