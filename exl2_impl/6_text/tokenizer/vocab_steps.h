/* vocab_steps.h: reads normalizer, pre_tokenizer and decoder of tokenizer.json into steps, and rejects unsupported ones
   by their names.
   takes: the parsed tokenizer.json.
   gives: exl2__vocab_rules, its reader, small readers of values, and readers of the three.
   owns:  nothing. */
#ifndef EXL2__VOCAB_STEPS_H
#define EXL2__VOCAB_STEPS_H

#include "../../0_base/result.h"
#include "../../0_base/json/json.h"
#include "vocab.h"

#define EXL2__VOCAB_RULES_FILE "tokenizer.json"
#define EXL2__VOCAB_RULES_IDS_MAX (1u << 22) /* all ids are below it; the largest known vocabulary has 262,208 */

typedef struct exl2__vocab_rules {
    exl2__normal_rules normal;
    exl2__words_rules words;
    uint64_t pool_bytes; /* size of the strings and programs to which `normal` and `words` point */
    bool byte_level;     /* characters of the vocabulary stand for bytes; else U+2581 stands for a space */
    bool raw_bytes;      /* the decoder turns <0xHH> into a byte */
    uint8_t strip;       /* spaces that the decoder strips at the beginning, or EXL2__VOCAB_STRIP_FIRST */
    bool byte_fallback;  /* a character without a token becomes a <0xHH> per byte */
    bool ignore_merges;  /* a word that is a token is encoded as that token, without merging */
    bool fuse_unk;
    uint32_t unk_token;  /* JSON token of model.unk_token; 0 = none: text without a token is dropped */
    uint32_t vocab, merges, added; /* JSON tokens of model.vocab, model.merges, added_tokens (0 = none) */
    exl2_token prefix[EXL2__VOCAB_PREFIX_MAX]; /* tokens that the post-processor puts before the text */
    uint32_t prefix_count;
} exl2__vocab_rules;

typedef struct exl2__vocab_rules_reader {
    exl2__ctx *c;
    const exl2__json *j;
    exl2__vocab_rules *out;
    exl2__arena *pool; /* memory for strings and programs; if dry, they are only counted */
    uint32_t depth;  /* nesting of Sequences */
    bool spaceless;  /* a step has replaced every space by U+2581 */
    bool fused;      /* the decoder has joined the pieces (Fuse) */
    bool spaces;     /* the decoder has replaced U+2581 by spaces */
    bool cut;        /* the pre-tokenizer has had ByteLevel or Metaspace, which must be its last step */
} exl2__vocab_rules_reader;

/* ---- messages ---- */

/* `token`: the component or value that is not supported; 0 = null. */
EXL2__COLD
static exl2_result exl2__vocab_rules_refuse(const exl2__vocab_rules_reader *r, const char *what, uint32_t token)
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

EXL2__COLD
static exl2_result exl2__vocab_rules_malformed(const exl2__vocab_rules_reader *r, const char *what,
                                                      const char *wanted)
{
    return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_RULES_FILE ": %s is not %s", what, wanted);
}

/* ---- small readers ---- */

static inline bool exl2__vocab_rules_is_type(const exl2__vocab_rules_reader *r, uint32_t token, const char *type)
{
    return token && exl2__json_is(r->j, exl2__json_get(r->j, token, "type"), type);
}

/* As exl2__json_get; 0 if `object` is 0. */
static inline uint32_t exl2__vocab_rules_get(const exl2__vocab_rules_reader *r, uint32_t object, const char *key)
{
    return object ? exl2__json_get(r->j, object, key) : 0;
}

/* Reads a boolean, or `otherwise` if it is absent. */
EXL2__COLD
static exl2_result exl2__vocab_rules_flag(const exl2__vocab_rules_reader *r, uint32_t object, const char *key,
                                                 bool otherwise, bool *out)
{
    uint32_t token = exl2__json_get(r->j, object, key);
    *out = otherwise;
    if (token && !exl2__json_bool(r->j, token, out)) {
        return exl2__vocab_rules_malformed(r, key, "true or false");
    }
    return EXL2_OK;
}

/* Reads an id, and checks it against the limit. */
EXL2__COLD
static exl2_result exl2__vocab_rules_id(const exl2__vocab_rules_reader *r, const char *what, uint32_t token,
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

/* Copies a string for a step to the pool; "" if `token` is 0. */
EXL2__COLD
static const char *exl2__vocab_rules_text(exl2__vocab_rules_reader *r, uint32_t token, uint32_t *bytes)
{
    *bytes = token ? (uint32_t)exl2__json_text(r->j, token, NULL, 0) : 0;
    char *at = (char *)exl2__arena_alloc(r->pool, *bytes);
    if (at && *bytes) {
        exl2__json_text(r->j, token, at, SIZE_MAX);
    }
    return at;
}

/* Compiles a pattern to a program in the pool. */
EXL2__COLD
static exl2_result exl2__vocab_rules_regex(exl2__vocab_rules_reader *r, const char *what, const char *text,
                                           size_t bytes, exl2__regex **out)
{
    exl2__regex_parser p;
    if (!exl2__regex_parse(&p, text, bytes)) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": %s with the pattern %.*s is not supported: it has %s", what,
                          (int)(bytes < 120 ? bytes : exl2__utf8_cut(text, 120)), text, p.refused);
    }
    *out = exl2__regex_copy(&p, r->pool);
    return EXL2_OK;
}

/* The same for the JSON string `token`, which must not be 0. */
EXL2__COLD
static exl2_result exl2__vocab_rules_pattern(exl2__vocab_rules_reader *r, const char *what, uint32_t token,
                                             exl2__regex **out)
{
    void *text;
    size_t bytes = exl2__json_text(r->j, token, NULL, 0);
    EXL2__TRY(exl2__alloc(r->c, bytes + 1, 1, EXL2_MEM_GENERAL, &text));
    exl2__json_text(r->j, token, (char *)text, bytes);
    exl2_result result = exl2__unicode_valid((char *)text, bytes)
                       ? exl2__vocab_rules_regex(r, what, (char *)text, bytes, out)
                       : exl2__vocab_rules_malformed(r, what, "valid UTF-8");
    exl2__free(r->c, text, bytes + 1, EXL2_MEM_GENERAL);
    return result;
}

/* The string's index in `names`, which ends with NULL; -1 = none of them. */
static inline int exl2__vocab_steps_choice(const exl2__vocab_rules_reader *r, uint32_t token, const char *const *names)
{
    for (int i = 0; token && names[i]; i++) {
        if (exl2__json_is(r->j, token, names[i])) {
            return i;
        }
    }
    return -1;
}

typedef exl2_result (*exl2__vocab_steps_read)(exl2__vocab_rules_reader *r, uint32_t token);

/* Reads the component or, if it is a Sequence, each component of its list `key`. */
EXL2__COLD
static exl2_result exl2__vocab_steps_each(exl2__vocab_rules_reader *r, const char *what, uint32_t token,
                                          const char *key, exl2__vocab_steps_read read)
{
    if (!exl2__vocab_rules_is_type(r, token, "Sequence")) {
        return read(r, token);
    }
    uint32_t list = exl2__json_get(r->j, token, key);
    if (list == 0 || r->j->tokens[list].kind != EXL2__JSON_ARRAY || r->depth == 4) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_RULES_FILE ": %s.%s is not a list of components", what,
                          key);
    }
    exl2_result result = EXL2_OK;
    r->depth++;
    for (uint32_t item = exl2__json_first(r->j, list); item && result == EXL2_OK;
         item = exl2__json_next(r->j, list, item)) {
        result = exl2__vocab_steps_each(r, what, item, key, read);
    }
    r->depth--;
    return result;
}

/* ---- normalizer ---- */

EXL2__COLD
static exl2_result exl2__vocab_steps_normalizer(exl2__vocab_rules_reader *r, uint32_t token)
{
    static const char *const forms[] = { "NFC", "NFD", "NFKC", "NFKD", NULL };
    exl2__normal_rules *n = &r->out->normal;
    exl2__normal_step *s = &n->steps[n->count];
    int form = exl2__vocab_steps_choice(r, exl2__json_get(r->j, token, "type"), forms);
    uint32_t pattern = exl2__json_get(r->j, token, "pattern"), regex = exl2__vocab_rules_get(r, pattern, "Regex");
    uint32_t string = exl2__vocab_rules_get(r, pattern, "String");
    if (n->count == EXL2__NORMAL_STEPS_MAX) {
        return exl2__vocab_rules_refuse(r, "normalizer with more than 8 steps, of which one is", token);
    }
    if (exl2__vocab_rules_is_type(r, token, "Prepend")) {
        s->kind = EXL2__NORMAL_PREPEND;
        s->by = exl2__vocab_rules_text(r, exl2__json_get(r->j, token, "prepend"), &s->by_bytes);
    } else if (exl2__vocab_rules_is_type(r, token, "Replace") && string && !exl2__json_is(r->j, string, "")) {
        s->kind = EXL2__NORMAL_REPLACE;
        s->text = exl2__vocab_rules_text(r, string, &s->text_bytes);
        s->by = exl2__vocab_rules_text(r, exl2__json_get(r->j, token, "content"), &s->by_bytes);
        r->spaceless = r->spaceless || (exl2__json_is(r->j, string, " ") &&
                                        exl2__json_is(r->j, exl2__json_get(r->j, token, "content"), EXL2__PIECES_MARK));
    } else if (exl2__vocab_rules_is_type(r, token, "Replace") && regex) {
        s->kind = EXL2__NORMAL_REPLACE;
        EXL2__TRY(exl2__vocab_rules_pattern(r, "normalizer Replace", regex, &s->regex));
        s->by = exl2__vocab_rules_text(r, exl2__json_get(r->j, token, "content"), &s->by_bytes);
    } else if (exl2__vocab_rules_is_type(r, token, "Lowercase")) {
        s->kind = EXL2__NORMAL_LOWER;
    } else if (form >= 0) {
        s->kind = form & 1 ? EXL2__NORMAL_NFD : EXL2__NORMAL_NFC;
        s->compatible = form >= 2;
        n->needs_nfc = true;
        n->needs_nfkc = n->needs_nfkc || s->compatible;
    } else if (exl2__vocab_rules_is_type(r, token, "Strip")) {
        s->kind = EXL2__NORMAL_STRIP;
        EXL2__TRY(exl2__vocab_rules_flag(r, token, "strip_left", true, &s->left));
        EXL2__TRY(exl2__vocab_rules_flag(r, token, "strip_right", true, &s->right));
    } else {
        return exl2__vocab_rules_refuse(r, "normalizer", token);
    }
    n->count++;
    return EXL2_OK;
}

/* ---- pre_tokenizer ---- */

EXL2__COLD
static exl2_result exl2__vocab_steps_byte_level(exl2__vocab_rules_reader *r, uint32_t token)
{
    exl2__words_rules *w = &r->out->words;
    bool regex, prefix;
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "use_regex", true, &regex));
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "add_prefix_space", true, &prefix));
    w->prefix = prefix ? EXL2__WORDS_PREFIX : EXL2__WORDS_NO_PREFIX;
    w->prefix_step = w->count;
    w->steps[w->count].kind = EXL2__WORDS_GPT2;
    w->count += regex;
    r->out->byte_level = true;
    return EXL2_OK;
}

EXL2__COLD
static exl2_result exl2__vocab_steps_metaspace(exl2__vocab_rules_reader *r, uint32_t token)
{
    static const char *const schemes[] = { "never", "first", "always", NULL };
    exl2__words_rules *w = &r->out->words;
    uint32_t scheme = exl2__json_get(r->j, token, "prepend_scheme");
    int choice = exl2__vocab_steps_choice(r, scheme, schemes);
    bool split, legacy;
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "split", true, &split));
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "add_prefix_space", true, &legacy));
    if (!exl2__json_is(r->j, exl2__json_get(r->j, token, "replacement"), EXL2__PIECES_MARK) ||
        (scheme && choice < 0)) {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer with a replacement or prepend_scheme unknown to us:", token);
    }
    w->prefix = choice == 0 || (!scheme && !legacy) ? EXL2__WORDS_NO_PREFIX
              : choice == 1 ? EXL2__WORDS_PREFIX_FIRST : EXL2__WORDS_PREFIX_MARK;
    w->prefix_step = w->count;
    w->steps[w->count].kind = EXL2__WORDS_MARKS;
    w->count += split;
    r->spaceless = true;
    return EXL2_OK;
}

EXL2__COLD
static exl2_result exl2__vocab_steps_split(exl2__vocab_rules_reader *r, uint32_t token)
{
    exl2__words_step *s = &r->out->words.steps[r->out->words.count];
    uint32_t pattern = exl2__json_get(r->j, token, "pattern"), regex = exl2__vocab_rules_get(r, pattern, "Regex");
    uint32_t string = exl2__vocab_rules_get(r, pattern, "String");
    if (string && !exl2__json_is(r->j, string, "")) {
        if (r->spaceless && exl2__json_is(r->j, string, " ")) {
            return EXL2_OK; /* the text has no space left */
        }
        s->kind = EXL2__WORDS_STRING;
        s->text = exl2__vocab_rules_text(r, string, &s->value);
    } else {
        uint32_t at = 0;
        while (at < EXL2__COUNT(exl2__words_patterns) && !exl2__json_is(r->j, regex, exl2__words_patterns[at].text)) {
            at++;
        }
        if (regex == 0) {
            return exl2__vocab_rules_refuse(r, "pre_tokenizer without a pattern:", token);
        }
        s->kind = EXL2__WORDS_REGEX;
        if (at < EXL2__COUNT(exl2__words_patterns)) {
            s->kind = exl2__words_patterns[at].kind;
            s->value = exl2__words_patterns[at].value;
        } else {
            EXL2__TRY(exl2__vocab_rules_pattern(r, "pre_tokenizer Split", regex, &s->regex));
        }
    }
    r->out->words.count++;
    return EXL2_OK;
}

EXL2__COLD
static exl2_result exl2__vocab_steps_pre_tokenizer(exl2__vocab_rules_reader *r, uint32_t token)
{
    static const char *const types[] = { "ByteLevel", "Metaspace", "Split", "Digits", "Punctuation",
                                         "WhitespaceSplit", "CharDelimiterSplit", "Whitespace", NULL };
    static const char words[] = "\\w+|[^\\w\\s]+";
    static const char *const behaviors[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                             "Contiguous", NULL };
    exl2__words_rules *w = &r->out->words;
    exl2__words_step *s = &w->steps[w->count];
    uint32_t behavior = exl2__json_get(r->j, token, "behavior");
    int type = exl2__vocab_steps_choice(r, exl2__json_get(r->j, token, "type"), types);
    int how = behavior ? exl2__vocab_steps_choice(r, behavior, behaviors) : 0;
    if (type < 0) {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer", token);
    }
    if (r->cut || w->count + 2 > EXL2__WORDS_STEPS_MAX) {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer Sequence that goes on after its end with", token);
    }
    if (how < 0) {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer with the behavior", behavior);
    }
    r->cut = type < 2;
    *s = (exl2__words_step){ 0 };
    s->behavior = (exl2__words_behavior)how;
    if (type < 2) {
        return type == 0 ? exl2__vocab_steps_byte_level(r, token) : exl2__vocab_steps_metaspace(r, token);
    }
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "invert", false, &s->invert));
    if (type == 2) {
        return exl2__vocab_steps_split(r, token);
    }
    s->kind = EXL2__WORDS_CLASS;
    s->value = type == 4 ? 1u << 16 | EXL2__UNICODE_PUNCTUATION | EXL2__UNICODE_CONNECTOR : EXL2__UNICODE_SPACE;
    s->behavior = type >= 5 ? EXL2__WORDS_REMOVED : s->behavior;
    if (type == 3) {
        bool individual;
        EXL2__TRY(exl2__vocab_rules_flag(r, token, "individual_digits", false, &individual));
        s->value = EXL2__UNICODE_NUMBERS;
        s->behavior = individual ? EXL2__WORDS_ISOLATED : EXL2__WORDS_CONTIGUOUS;
    } else if (type == 6) {
        s->kind = EXL2__WORDS_STRING;
        s->text = exl2__vocab_rules_text(r, exl2__json_get(r->j, token, "delimiter"), &s->value);
        if (s->value == 0) {
            return exl2__vocab_rules_malformed(r, "pre_tokenizer.delimiter", "a character");
        }
    } else if (type == 7) { /* text between matches is removed */
        s->kind = EXL2__WORDS_REGEX;
        s->invert = true;
        EXL2__TRY(exl2__vocab_rules_regex(r, "pre_tokenizer", words, sizeof words - 1, &s->regex));
    }
    w->count++;
    return EXL2_OK;
}

/* ---- decoder ---- */

EXL2__COLD
static exl2_result exl2__vocab_steps_decoder(exl2__vocab_rules_reader *r, uint32_t token)
{
    static const char *const types[] = { "ByteLevel", "Metaspace", "Replace", "ByteFallback", "Fuse", "Strip", NULL };
    exl2__vocab_rules *out = r->out;
    int type = exl2__vocab_steps_choice(r, exl2__json_get(r->j, token, "type"), types);
    uint32_t content = exl2__json_get(r->j, token, "content");
    uint64_t start = 0, stop = 0;
    bool legacy, fine = type >= 0 && out->byte_level == (type == 0);
    if (type == 1) {
        EXL2__TRY(exl2__vocab_rules_flag(r, token, "add_prefix_space", true, &legacy));
        uint32_t scheme = exl2__json_get(r->j, token, "prepend_scheme");
        out->strip = (scheme ? exl2__json_is(r->j, scheme, "never") : !legacy) ? 0 : EXL2__VOCAB_STRIP_FIRST;
    } else if (type == 2) {
        uint32_t pattern = exl2__json_get(r->j, token, "pattern");
        fine = fine && exl2__json_is(r->j, exl2__vocab_rules_get(r, pattern, "String"), EXL2__PIECES_MARK) &&
               exl2__json_is(r->j, content, " ");
    } else if (type == 5) {
        fine = fine && r->fused && exl2__json_is(r->j, content, " ") &&
               exl2__json_u64(r->j, exl2__json_get(r->j, token, "start"), &start) && start < EXL2__VOCAB_STRIP_FIRST &&
               exl2__json_u64(r->j, exl2__json_get(r->j, token, "stop"), &stop) && stop == 0;
        out->strip = (uint8_t)start;
    }
    out->raw_bytes = out->raw_bytes || type == 3;
    r->fused = r->fused || type == 4;
    r->spaces = r->spaces || type == 1 || type == 2;
    return fine ? EXL2_OK : exl2__vocab_rules_refuse(r, "decoder", token);
}

/* Reads all three components. */
EXL2__COLD
static exl2_result exl2__vocab_steps_all(exl2__vocab_rules_reader *r)
{
    uint32_t normalizer = exl2__json_get(r->j, 0, "normalizer"), cut = exl2__json_get(r->j, 0, "pre_tokenizer");
    uint32_t decoder = exl2__json_get(r->j, 0, "decoder");
    if (normalizer) {
        EXL2__TRY(exl2__vocab_steps_each(r, "normalizer", normalizer, "normalizers", exl2__vocab_steps_normalizer));
    }
    if (cut) {
        EXL2__TRY(exl2__vocab_steps_each(r, "pre_tokenizer", cut, "pretokenizers", exl2__vocab_steps_pre_tokenizer));
    }
    if (decoder == 0) {
        return exl2__vocab_rules_refuse(r, "decoder", 0);
    }
    EXL2__TRY(exl2__vocab_steps_each(r, "decoder", decoder, "decoders", exl2__vocab_steps_decoder));
    if (!r->out->byte_level && !r->spaceless) {
        return exl2__vocab_rules_refuse(r, "pre_tokenizer and normalizer that keep spaces, with the decoder", decoder);
    }
    return r->out->byte_level || r->spaces ? EXL2_OK
         : exl2__vocab_rules_refuse(r, "decoder that keeps U+2581:", decoder);
}

#endif
