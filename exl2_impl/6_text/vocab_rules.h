/* vocab_rules.h: what the components named in tokenizer.json ask for; those we do not have are refused by name.
   takes: the parsed tokenizer.json.
   gives: exl2__vocab_rules, exl2__vocab_rules_read.
   owns:  nothing.
   next:  vocab.h */
#ifndef EXL2__VOCAB_RULES_H
#define EXL2__VOCAB_RULES_H

#include "../0_base/result.h"
#include "../1_load/json.h"
#include "words.h"

#define EXL2__VOCAB_RULES_FILE "tokenizer.json"
#define EXL2__VOCAB_RULES_IDS_MAX (1u << 22) /* ids are below; the largest vocabulary we know has 262,208 */

typedef struct exl2__vocab_rules {
    exl2__words_rules words;
    bool ignore_merges;  /* a word that is a token is that token, whatever the merges say */
    bool fuse_unk;
    uint32_t unk_token;  /* JSON token of model.unk_token; 0 = none: bytes that have no token vanish */
    uint32_t vocab, merges, added; /* JSON tokens of model.vocab, model.merges, added_tokens (0 = none) */
    exl2_token bos;      /* what the post-processor puts before the text; -1 = nothing */
} exl2__vocab_rules;

typedef struct exl2__vocab_rules_reader {
    exl2__ctx *c;
    const exl2__json *j;
    exl2__vocab_rules *out;
} exl2__vocab_rules_reader;

/* ---- messages ---- */

/* `token`: the component or value that we do not have; 0 = null. */
static inline exl2_result exl2__vocab_rules_refuse(const exl2__vocab_rules_reader *r, const char *what, uint32_t token)
{
    const exl2__json_token *t = &r->j->tokens[token];
    uint32_t type = exl2__json_get(r->j, token, "type");
    if (token == 0) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED, EXL2__VOCAB_RULES_FILE ": %s null is not supported", what);
    }
    if (type) {
        t = &r->j->tokens[type];
    }
    return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED, EXL2__VOCAB_RULES_FILE ": %s %.*s is not supported", what,
                      (int)exl2__min32(t->end - t->begin, 120), r->j->text + t->begin);
}

static inline exl2_result exl2__vocab_rules_malformed(const exl2__vocab_rules_reader *r, const char *what,
                                                      const char *wanted)
{
    return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_RULES_FILE ": %s is not %s", what, wanted);
}

/* ---- small readers ---- */

static inline bool exl2__vocab_rules_is_type(const exl2__vocab_rules_reader *r, uint32_t token, const char *type)
{
    return token && exl2__json_is(r->j, exl2__json_get(r->j, token, "type"), type);
}

/* As exl2__json_get, and 0 for a member of something that is not there. */
static inline uint32_t exl2__vocab_rules_get(const exl2__vocab_rules_reader *r, uint32_t object, const char *key)
{
    return object ? exl2__json_get(r->j, object, key) : 0;
}

/* Absent: `otherwise`. */
static inline exl2_result exl2__vocab_rules_flag(const exl2__vocab_rules_reader *r, uint32_t object, const char *key,
                                                 bool otherwise, bool *out)
{
    uint32_t token = exl2__json_get(r->j, object, key);
    *out = otherwise;
    if (token && !exl2__json_bool(r->j, token, out)) {
        return exl2__vocab_rules_malformed(r, key, "true or false");
    }
    return EXL2_OK;
}

/* An id, checked against the limit. */
static inline exl2_result exl2__vocab_rules_id(const exl2__vocab_rules_reader *r, const char *what, uint32_t token,
                                               uint32_t *out)
{
    uint64_t id;
    *out = 0;
    if (!exl2__json_u64(r->j, token, &id)) {
        return exl2__vocab_rules_malformed(r, what, "a whole number");
    }
    if (id >= EXL2__VOCAB_RULES_IDS_MAX) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT,
                          EXL2__VOCAB_RULES_FILE ": %s is %llu, ids end at %u", what, (unsigned long long)id,
                          EXL2__VOCAB_RULES_IDS_MAX - 1);
    }
    *out = (uint32_t)id;
    return EXL2_OK;
}

/* ---- pre_tokenizer ---- */

static inline exl2_result exl2__vocab_rules_byte_level(exl2__vocab_rules_reader *r, uint32_t token)
{
    if (!exl2__vocab_rules_is_type(r, token, "ByteLevel")) {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer", token);
    }
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "use_regex", true, &r->out->words.gpt2));
    return exl2__vocab_rules_flag(r, token, "add_prefix_space", true, &r->out->words.prefix_space);
}

static inline exl2_result exl2__vocab_rules_split(exl2__vocab_rules_reader *r, uint32_t token)
{
    uint32_t regex = exl2__vocab_rules_get(r, exl2__json_get(r->j, token, "pattern"), "Regex");
    bool invert;
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "invert", false, &invert));
    if (invert || !exl2__json_is(r->j, exl2__json_get(r->j, token, "behavior"), "Isolated")) {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer that is inverted or not Isolated:", token);
    }
    if (exl2__json_is(r->j, regex, EXL2__WORDS_LLAMA3)) {
        r->out->words.digits_max = 3;
    } else if (exl2__json_is(r->j, regex, EXL2__WORDS_QWEN2)) {
        r->out->words.digits_max = 1;
    } else {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer Split with the pattern", regex ? regex : token);
    }
    r->out->words.split = EXL2__WORDS_CL100K;
    return EXL2_OK;
}

/* ByteLevel, or a Sequence of ByteLevel with at most one Digits or Split before it. */
static inline exl2_result exl2__vocab_rules_pre_tokenizer(exl2__vocab_rules_reader *r, uint32_t token)
{
    if (!exl2__vocab_rules_is_type(r, token, "Sequence")) {
        return exl2__vocab_rules_byte_level(r, token);
    }
    uint32_t list = exl2__json_get(r->j, token, "pretokenizers");
    uint32_t first = exl2__json_first(r->j, list), second = first ? exl2__json_next(r->j, list, first) : 0;
    if (list == 0 || r->j->tokens[list].kind != EXL2__JSON_ARRAY || first == 0) {
        return exl2__vocab_rules_malformed(r, "pre_tokenizer.pretokenizers", "a list with components");
    }
    if (second == 0) {
        return exl2__vocab_rules_byte_level(r, first);
    }
    uint32_t third = exl2__json_next(r->j, list, second);
    if (third) {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer Sequence with a third component", third);
    }
    if (exl2__vocab_rules_is_type(r, first, "Digits")) {
        bool individual;
        EXL2__TRY(exl2__vocab_rules_flag(r, first, "individual_digits", false, &individual));
        r->out->words.split = individual ? EXL2__WORDS_DIGITS : EXL2__WORDS_DIGIT_RUNS;
    } else if (exl2__vocab_rules_is_type(r, first, "Split")) {
        EXL2__TRY(exl2__vocab_rules_split(r, first));
    } else {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer Sequence that begins with", first);
    }
    return exl2__vocab_rules_byte_level(r, second);
}

/* ---- post_processor ---- */

/* The special token of a template that comes before the text. */
static inline exl2_result exl2__vocab_rules_template_bos(exl2__vocab_rules_reader *r, uint32_t processor, uint32_t name)
{
    uint32_t tokens = exl2__json_get(r->j, processor, "special_tokens"), ids = 0;
    for (uint32_t m = tokens ? exl2__json_first(r->j, tokens) : 0; m && !ids; m = exl2__json_next(r->j, tokens, m)) {
        ids = exl2__json_same(r->j, m, name) ? exl2__json_get(r->j, m + 1, "ids") : 0;
    }
    if (ids == 0 || r->j->tokens[ids].kind != EXL2__JSON_ARRAY) {
        return exl2__vocab_rules_malformed(r, "post_processor.single", "a list of tokens with ids in special_tokens");
    }
    for (uint32_t id = exl2__json_first(r->j, ids); id; id = exl2__json_next(r->j, ids, id)) {
        uint32_t value;
        EXL2__TRY(exl2__vocab_rules_id(r, "an id of post_processor.special_tokens", id, &value));
        if (r->out->bos >= 0) {
            return exl2__vocab_rules_refuse(r, "post_processor with more than one token before the text:", processor);
        }
        r->out->bos = (exl2_token)value;
    }
    return EXL2_OK;
}

/* A token before Sequence A is BOS; those behind it belong to add_eos_token and are not ours to add. */
static inline exl2_result exl2__vocab_rules_template(exl2__vocab_rules_reader *r, uint32_t processor)
{
    uint32_t single = exl2__json_get(r->j, processor, "single");
    bool text_seen = false;
    if (single == 0 || r->j->tokens[single].kind != EXL2__JSON_ARRAY) {
        return exl2__vocab_rules_malformed(r, "post_processor.single", "a list");
    }
    for (uint32_t item = exl2__json_first(r->j, single); item; item = exl2__json_next(r->j, single, item)) {
        uint32_t special = exl2__vocab_rules_get(r, exl2__json_get(r->j, item, "SpecialToken"), "id");
        uint32_t text = exl2__vocab_rules_get(r, exl2__json_get(r->j, item, "Sequence"), "id");
        if (special && !text_seen) {
            EXL2__TRY(exl2__vocab_rules_template_bos(r, processor, special));
        } else if (text && !text_seen && exl2__json_is(r->j, text, "A")) {
            text_seen = true;
        } else if (!special) {
            return exl2__vocab_rules_refuse(r, "post_processor with an item of single", item);
        }
    }
    return EXL2_OK;
}

static inline exl2_result exl2__vocab_rules_processor(exl2__vocab_rules_reader *r, uint32_t processor)
{
    if (processor == 0 || exl2__vocab_rules_is_type(r, processor, "ByteLevel")) {
        return EXL2_OK;
    }
    if (exl2__vocab_rules_is_type(r, processor, "TemplateProcessing")) {
        return exl2__vocab_rules_template(r, processor);
    }
    return exl2__vocab_rules_refuse(r, "post_processor", processor);
}

static inline exl2_result exl2__vocab_rules_post_processor(exl2__vocab_rules_reader *r, uint32_t token)
{
    if (!exl2__vocab_rules_is_type(r, token, "Sequence")) {
        return exl2__vocab_rules_processor(r, token);
    }
    uint32_t list = exl2__json_get(r->j, token, "processors");
    if (list == 0 || r->j->tokens[list].kind != EXL2__JSON_ARRAY) {
        return exl2__vocab_rules_malformed(r, "post_processor.processors", "a list");
    }
    for (uint32_t item = exl2__json_first(r->j, list); item; item = exl2__json_next(r->j, list, item)) {
        EXL2__TRY(exl2__vocab_rules_processor(r, item));
    }
    return EXL2_OK;
}

/* ---- model ---- */

/* Values that change how merging works and must be absent, null, false, 0 or "". */
static inline exl2_result exl2__vocab_rules_unused(const exl2__vocab_rules_reader *r, uint32_t model)
{
    static const char *const keys[][2] = {
        { "dropout", "model.dropout" },
        { "continuing_subword_prefix", "model.continuing_subword_prefix" },
        { "end_of_word_suffix", "model.end_of_word_suffix" },
        { "byte_fallback", "model.byte_fallback" }
    };
    for (size_t i = 0; i < EXL2__COUNT(keys); i++) {
        uint32_t token = exl2__json_get(r->j, model, keys[i][0]);
        uint64_t number = 1;
        if (token && r->j->tokens[token].kind != EXL2__JSON_FALSE && !exl2__json_is(r->j, token, "") &&
            !(exl2__json_u64(r->j, token, &number) && number == 0)) {
            return exl2__vocab_rules_refuse(r, keys[i][1], token);
        }
    }
    return EXL2_OK;
}

static inline exl2_result exl2__vocab_rules_model(exl2__vocab_rules_reader *r, uint32_t model)
{
    uint32_t type = exl2__json_get(r->j, model, "type");
    if (model == 0 || (type && !exl2__json_is(r->j, type, "BPE"))) { /* early files have no type */
        return exl2__vocab_rules_refuse(r, "model", model);
    }
    EXL2__TRY(exl2__vocab_rules_unused(r, model));
    EXL2__TRY(exl2__vocab_rules_flag(r, model, "ignore_merges", false, &r->out->ignore_merges));
    EXL2__TRY(exl2__vocab_rules_flag(r, model, "fuse_unk", false, &r->out->fuse_unk));
    r->out->unk_token = exl2__json_get(r->j, model, "unk_token");
    r->out->vocab = exl2__json_get(r->j, model, "vocab");
    r->out->merges = exl2__json_get(r->j, model, "merges");
    if (r->out->vocab == 0 || r->j->tokens[r->out->vocab].kind != EXL2__JSON_OBJECT) {
        return exl2__vocab_rules_malformed(r, "model.vocab", "an object");
    }
    if (r->out->merges == 0 || r->j->tokens[r->out->merges].kind != EXL2__JSON_ARRAY) {
        return exl2__vocab_rules_malformed(r, "model.merges", "a list");
    }
    if (r->out->unk_token && r->j->tokens[r->out->unk_token].kind != EXL2__JSON_STRING) {
        return exl2__vocab_rules_malformed(r, "model.unk_token", "a string");
    }
    return EXL2_OK;
}

/* Reads every component; truncation and padding do not concern an engine. Ids are below EXL2__VOCAB_RULES_IDS_MAX. */
EXL2__COLD
static exl2_result exl2__vocab_rules_read(exl2__ctx *c, const exl2__json *j, exl2__vocab_rules *out)
{
    exl2__vocab_rules_reader r = { c, j, out };
    *out = (exl2__vocab_rules){ 0 };
    out->bos = -1;
    if (j->tokens[0].kind != EXL2__JSON_OBJECT) {
        return exl2__vocab_rules_malformed(&r, "the root", "an object");
    }
    uint32_t normalizer = exl2__json_get(j, 0, "normalizer"), decoder = exl2__json_get(j, 0, "decoder");
    if (normalizer) {
        return exl2__vocab_rules_refuse(&r, "normalizer", normalizer);
    }
    EXL2__TRY(exl2__vocab_rules_model(&r, exl2__json_get(j, 0, "model")));
    EXL2__TRY(exl2__vocab_rules_pre_tokenizer(&r, exl2__json_get(j, 0, "pre_tokenizer")));
    if (!exl2__vocab_rules_is_type(&r, decoder, "ByteLevel")) {
        return exl2__vocab_rules_refuse(&r, "decoder", decoder);
    }
    EXL2__TRY(exl2__vocab_rules_post_processor(&r, exl2__json_get(j, 0, "post_processor")));
    out->added = exl2__json_get(j, 0, "added_tokens");
    if (out->added && j->tokens[out->added].kind != EXL2__JSON_ARRAY) {
        return exl2__vocab_rules_malformed(&r, "added_tokens", "a list");
    }
    return EXL2_OK;
}

#endif
