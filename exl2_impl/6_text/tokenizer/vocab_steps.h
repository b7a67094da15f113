/* vocab_steps.h: reads normalizer, pre_tokenizer and decoder of tokenizer.json into steps, and rejects unsupported ones
   by their names.
   takes: the parsed tokenizer.json.
   gives: exl2__vocab_rules, exl2__vocab_rules_reader, exl2__vocab_rules_unsupported and other small helpers,
          exl2__vocab_steps_all. */
#ifndef EXL2__VOCAB_STEPS_H
#define EXL2__VOCAB_STEPS_H

#include "../../0_base/result.h"
#include "../../0_base/json/json.h"
#include "vocab.h"

#define EXL2__VOCAB_RULES_FILE "tokenizer.json"
#define EXL2__VOCAB_RULES_IDS_MAX (1u << 22) /* all ids are below it; the largest known vocabulary has 262,208 */

#define EXL2__VOCAB_STEPS_DEPTH_MAX 4 /* nesting of Sequences */

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
    exl2_token suffix[EXL2__VOCAB_PREFIX_MAX]; /* and after it */
    uint32_t prefix_count, suffix_count;
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
    bool ended;      /* the pre-tokenizer has had ByteLevel or Metaspace, which must be its last step */
} exl2__vocab_rules_reader;

/* ---- messages ---- */

/* `token`: the component or value that is not supported; 0 = null. */
EXL2__PRIVATE exl2_result exl2__vocab_rules_unsupported(const exl2__vocab_rules_reader *r, const char *what,
                                                        uint32_t token)
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

EXL2__PRIVATE exl2_result exl2__vocab_rules_malformed(const exl2__vocab_rules_reader *r, const char *what,
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
EXL2__PRIVATE exl2_result exl2__vocab_rules_flag(const exl2__vocab_rules_reader *r, uint32_t object, const char *key,
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
EXL2__PRIVATE exl2_result exl2__vocab_rules_id(const exl2__vocab_rules_reader *r, const char *what, uint32_t token,
                                               uint32_t *out)
{
    uint64_t id;
    *out = 0;
    if (!exl2__json_u64(r->j, token, &id)) {
        return exl2__vocab_rules_malformed(r, what, "a whole number");
    }
    if (id >= EXL2__VOCAB_RULES_IDS_MAX) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT,
                          EXL2__VOCAB_RULES_FILE ": %s is %llu, expected at most %u", what, (unsigned long long)id,
                          EXL2__VOCAB_RULES_IDS_MAX - 1);
    }
    *out = (uint32_t)id;
    return EXL2_OK;
}

/* Copies a string for a step to the pool; "" if `token` is 0. */
EXL2__PRIVATE const char *exl2__vocab_rules_text(exl2__vocab_rules_reader *r, uint32_t token, uint32_t *bytes)
{
    *bytes = token ? (uint32_t)exl2__json_text(r->j, token, NULL, 0) : 0;
    char *at = (char *)exl2__arena_alloc(r->pool, *bytes);
    if (at && *bytes) {
        exl2__json_text(r->j, token, at, SIZE_MAX);
    }
    return at;
}

/* Compiles a pattern to a program in the pool. It is not inlined, because the parser is large and on the stack. */
EXL2__NOINLINE
EXL2__PRIVATE exl2_result exl2__vocab_rules_regex(exl2__vocab_rules_reader *r, const char *what, const char *text,
                                                  size_t bytes, exl2__regex **out)
{
    exl2__regex_parser p;
    if (!exl2__regex_parse(&p, text, bytes)) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": %s with the pattern %.*s is not supported: it has %s", what,
                          (int)(bytes < 120 ? bytes : exl2__utf8_cut(text, 120)), text, p.rejected);
    }
    *out = exl2__regex_copy(&p, r->pool);
    return EXL2_OK;
}

/* The same for the JSON string `token`, which must not be 0. */
EXL2__PRIVATE exl2_result exl2__vocab_rules_pattern(exl2__vocab_rules_reader *r, const char *what, uint32_t token,
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

typedef exl2_result (*exl2__vocab_steps_read)(exl2__vocab_rules_reader *r, uint32_t token);

/* A type of component and the function that reads it. */
typedef struct exl2__vocab_steps_row {
    const char *type;
    exl2__vocab_steps_read read;
    bool byte_level; /* a decoder that needs the pre-tokenizer ByteLevel; the other decoders must not have it */
    bool last;       /* a pre-tokenizer after which no other may follow */
} exl2__vocab_steps_row;

/* The row of the component's type, or NULL. */
EXL2__PRIVATE const exl2__vocab_steps_row *exl2__vocab_steps_find(const exl2__vocab_rules_reader *r, uint32_t token,
                                                                  const exl2__vocab_steps_row *rows, size_t count)
{
    uint32_t type = exl2__json_get(r->j, token, "type");
    for (size_t i = 0; type && i < count; i++) {
        if (exl2__json_is(r->j, type, rows[i].type)) {
            return &rows[i];
        }
    }
    return NULL;
}

/* Reads the component or, if it is a Sequence, each component of its list `key`. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_each(exl2__vocab_rules_reader *r, const char *what, uint32_t token,
                                                 const char *key, exl2__vocab_steps_read read)
{
    if (!exl2__vocab_rules_is_type(r, token, "Sequence")) {
        return read(r, token);
    }
    uint32_t list = exl2__json_get(r->j, token, key);
    if (list == 0 || r->j->tokens[list].kind != EXL2__JSON_ARRAY) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_RULES_FILE ": %s.%s is not a list of components", what,
                          key);
    }
    if (r->depth == EXL2__VOCAB_STEPS_DEPTH_MAX) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT,
                          EXL2__VOCAB_RULES_FILE ": %s has Sequences nested more than %d deep", what,
                          EXL2__VOCAB_STEPS_DEPTH_MAX);
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

/* ---- normalizer: each function fills in the next step ---- */

EXL2__PRIVATE exl2__normal_step *exl2__vocab_steps_next_normal(const exl2__vocab_rules_reader *r)
{
    return &r->out->normal.steps[r->out->normal.count];
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_prepend(exl2__vocab_rules_reader *r, uint32_t token)
{
    exl2__normal_step *s = exl2__vocab_steps_next_normal(r);
    s->kind = EXL2__NORMAL_PREPEND;
    s->by = exl2__vocab_rules_text(r, exl2__json_get(r->j, token, "prepend"), &s->by_bytes);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_replace(exl2__vocab_rules_reader *r, uint32_t token)
{
    exl2__normal_step *s = exl2__vocab_steps_next_normal(r);
    uint32_t pattern = exl2__json_get(r->j, token, "pattern"), content = exl2__json_get(r->j, token, "content");
    uint32_t string = exl2__vocab_rules_get(r, pattern, "String"), regex = exl2__vocab_rules_get(r, pattern, "Regex");
    if (string && !exl2__json_is(r->j, string, "")) {
        s->text = exl2__vocab_rules_text(r, string, &s->text_bytes);
        r->spaceless = r->spaceless ||
                       (exl2__json_is(r->j, string, " ") && exl2__json_is(r->j, content, EXL2__PIECES_MARK));
    } else if (regex) {
        EXL2__TRY(exl2__vocab_rules_pattern(r, "normalizer Replace", regex, &s->regex));
    } else {
        return exl2__vocab_rules_unsupported(r, "normalizer Replace with the pattern", pattern);
    }
    s->kind = EXL2__NORMAL_REPLACE;
    s->by = exl2__vocab_rules_text(r, content, &s->by_bytes);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_lowercase(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)token;
    exl2__vocab_steps_next_normal(r)->kind = EXL2__NORMAL_LOWER;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_form(exl2__vocab_rules_reader *r, exl2__normal_kind kind, bool compatible)
{
    exl2__normal_rules *n = &r->out->normal;
    exl2__normal_step *s = exl2__vocab_steps_next_normal(r);
    s->kind = kind;
    s->compatible = compatible;
    n->needs_nfc = true;
    n->needs_nfkc = n->needs_nfkc || compatible;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_nfc(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)token;
    return exl2__vocab_steps_form(r, EXL2__NORMAL_NFC, false);
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_nfd(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)token;
    return exl2__vocab_steps_form(r, EXL2__NORMAL_NFD, false);
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_nfkc(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)token;
    return exl2__vocab_steps_form(r, EXL2__NORMAL_NFC, true);
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_nfkd(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)token;
    return exl2__vocab_steps_form(r, EXL2__NORMAL_NFD, true);
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_strip(exl2__vocab_rules_reader *r, uint32_t token)
{
    exl2__normal_step *s = exl2__vocab_steps_next_normal(r);
    s->kind = EXL2__NORMAL_STRIP;
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "strip_left", true, &s->left));
    return exl2__vocab_rules_flag(r, token, "strip_right", true, &s->right);
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_normalizer(exl2__vocab_rules_reader *r, uint32_t token)
{
    static const exl2__vocab_steps_row rows[] = {
        { .type = "Prepend", .read = exl2__vocab_steps_prepend },
        { .type = "Replace", .read = exl2__vocab_steps_replace },
        { .type = "Lowercase", .read = exl2__vocab_steps_lowercase },
        { .type = "NFC", .read = exl2__vocab_steps_nfc },
        { .type = "NFD", .read = exl2__vocab_steps_nfd },
        { .type = "NFKC", .read = exl2__vocab_steps_nfkc },
        { .type = "NFKD", .read = exl2__vocab_steps_nfkd },
        { .type = "Strip", .read = exl2__vocab_steps_strip }
    };
    exl2__normal_rules *n = &r->out->normal;
    const exl2__vocab_steps_row *row = exl2__vocab_steps_find(r, token, rows, EXL2__COUNT(rows));
    if (n->count == EXL2__NORMAL_STEPS_MAX) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": normalizer has more than %d steps, at most %d are supported",
                          EXL2__NORMAL_STEPS_MAX, EXL2__NORMAL_STEPS_MAX);
    }
    if (!row) {
        return exl2__vocab_rules_unsupported(r, "normalizer", token);
    }
    EXL2__TRY(row->read(r, token));
    n->count++;
    return EXL2_OK;
}

/* ---- pre_tokenizer: each function fills in and counts the next step; `behavior` and `invert` are already set ---- */

EXL2__PRIVATE exl2__words_step *exl2__vocab_steps_next_words(const exl2__vocab_rules_reader *r)
{
    return &r->out->words.steps[r->out->words.count];
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_byte_level(exl2__vocab_rules_reader *r, uint32_t token)
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

/* Reads when Metaspace adds a space. Files without prepend_scheme have add_prefix_space. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_prefix(const exl2__vocab_rules_reader *r, uint32_t token,
                                                   exl2__words_prefix *out)
{
    uint32_t scheme = exl2__json_get(r->j, token, "prepend_scheme");
    bool add;
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "add_prefix_space", true, &add));
    if (scheme == 0) {
        *out = add ? EXL2__WORDS_PREFIX_MARK : EXL2__WORDS_NO_PREFIX;
    } else if (exl2__json_is(r->j, scheme, "never")) {
        *out = EXL2__WORDS_NO_PREFIX;
    } else if (exl2__json_is(r->j, scheme, "first")) {
        *out = EXL2__WORDS_PREFIX_FIRST;
    } else if (exl2__json_is(r->j, scheme, "always")) {
        *out = EXL2__WORDS_PREFIX_MARK;
    } else {
        return exl2__vocab_rules_unsupported(r, "pre_tokenizer Metaspace with the prepend_scheme", scheme);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_metaspace(exl2__vocab_rules_reader *r, uint32_t token)
{
    exl2__words_rules *w = &r->out->words;
    uint32_t replacement = exl2__json_get(r->j, token, "replacement");
    bool split;
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "split", true, &split));
    EXL2__TRY(exl2__vocab_steps_prefix(r, token, &w->prefix));
    if (!exl2__json_is(r->j, replacement, EXL2__PIECES_MARK)) {
        return exl2__vocab_rules_unsupported(r, "pre_tokenizer Metaspace with the replacement", replacement);
    }
    w->prefix_step = w->count;
    w->steps[w->count].kind = EXL2__WORDS_MARKS;
    w->count += split;
    r->spaceless = true;
    return EXL2_OK;
}

/* Reads a regular expression as a hand-written scanner if there is one for it, else as a program. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_split_regex(exl2__vocab_rules_reader *r, uint32_t regex,
                                                        exl2__words_step *s)
{
    for (size_t i = 0; i < EXL2__COUNT(exl2__words_patterns); i++) {
        if (exl2__json_is(r->j, regex, exl2__words_patterns[i].text)) {
            s->kind = exl2__words_patterns[i].kind;
            s->value = exl2__words_patterns[i].value;
            return EXL2_OK;
        }
    }
    s->kind = EXL2__WORDS_REGEX;
    return exl2__vocab_rules_pattern(r, "pre_tokenizer Split", regex, &s->regex);
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_split(exl2__vocab_rules_reader *r, uint32_t token)
{
    exl2__words_step *s = exl2__vocab_steps_next_words(r);
    uint32_t pattern = exl2__json_get(r->j, token, "pattern");
    uint32_t string = exl2__vocab_rules_get(r, pattern, "String"), regex = exl2__vocab_rules_get(r, pattern, "Regex");
    if (string && !exl2__json_is(r->j, string, "")) {
        if (r->spaceless && exl2__json_is(r->j, string, " ")) {
            return EXL2_OK; /* the text has no space left */
        }
        s->kind = EXL2__WORDS_STRING;
        s->text = exl2__vocab_rules_text(r, string, &s->value);
    } else if (regex) {
        EXL2__TRY(exl2__vocab_steps_split_regex(r, regex, s));
    } else {
        return exl2__vocab_rules_unsupported(r, "pre_tokenizer Split with the pattern", pattern);
    }
    r->out->words.count++;
    return EXL2_OK;
}

/* Adds a step that looks for one character of these classes. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_classes(exl2__vocab_rules_reader *r, uint32_t classes,
                                                    exl2__words_behavior behavior)
{
    exl2__words_step *s = exl2__vocab_steps_next_words(r);
    s->kind = EXL2__WORDS_CLASS;
    s->value = classes;
    s->behavior = behavior;
    r->out->words.count++;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_digits(exl2__vocab_rules_reader *r, uint32_t token)
{
    bool individual;
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "individual_digits", false, &individual));
    return exl2__vocab_steps_classes(r, EXL2__UNICODE_NUMBERS,
                                     individual ? EXL2__WORDS_ISOLATED : EXL2__WORDS_CONTIGUOUS);
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_punctuation(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)token;
    uint32_t classes = EXL2__UNICODE_PUNCTUATION | EXL2__UNICODE_CONNECTOR | EXL2__WORDS_ASCII_SYMBOLS;
    return exl2__vocab_steps_classes(r, classes, exl2__vocab_steps_next_words(r)->behavior);
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_whitespace_split(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)token;
    return exl2__vocab_steps_classes(r, EXL2__UNICODE_SPACE, EXL2__WORDS_REMOVED);
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_delimiter(exl2__vocab_rules_reader *r, uint32_t token)
{
    exl2__words_step *s = exl2__vocab_steps_next_words(r);
    s->kind = EXL2__WORDS_STRING;
    s->behavior = EXL2__WORDS_REMOVED;
    s->text = exl2__vocab_rules_text(r, exl2__json_get(r->j, token, "delimiter"), &s->value);
    if (s->value == 0) {
        return exl2__vocab_rules_malformed(r, "pre_tokenizer.delimiter", "a character");
    }
    r->out->words.count++;
    return EXL2_OK;
}

/* The library's type Whitespace keeps words and runs of other characters, and removes the text between them. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_whitespace(exl2__vocab_rules_reader *r, uint32_t token)
{
    static const char words[] = "\\w+|[^\\w\\s]+";
    exl2__words_step *s = exl2__vocab_steps_next_words(r);
    (void)token;
    s->kind = EXL2__WORDS_REGEX;
    s->behavior = EXL2__WORDS_REMOVED;
    s->invert = true;
    EXL2__TRY(exl2__vocab_rules_regex(r, "pre_tokenizer Whitespace", words, sizeof words - 1, &s->regex));
    r->out->words.count++;
    return EXL2_OK;
}

/* Reads what becomes of the matches; ISOLATED if the component does not say. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_behavior(const exl2__vocab_rules_reader *r, uint32_t token,
                                                     exl2__words_behavior *out)
{
    static const struct {
        const char *name;
        exl2__words_behavior behavior;
    } rows[] = {
        { "Isolated", EXL2__WORDS_ISOLATED },
        { "Removed", EXL2__WORDS_REMOVED },
        { "MergedWithPrevious", EXL2__WORDS_MERGED_WITH_PREVIOUS },
        { "MergedWithNext", EXL2__WORDS_MERGED_WITH_NEXT },
        { "Contiguous", EXL2__WORDS_CONTIGUOUS }
    };
    uint32_t name = exl2__json_get(r->j, token, "behavior");
    *out = EXL2__WORDS_ISOLATED;
    for (size_t i = 0; name && i < EXL2__COUNT(rows); i++) {
        if (exl2__json_is(r->j, name, rows[i].name)) {
            *out = rows[i].behavior;
            return EXL2_OK;
        }
    }
    return name ? exl2__vocab_rules_unsupported(r, "pre_tokenizer with the behavior", name) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_pre_tokenizer(exl2__vocab_rules_reader *r, uint32_t token)
{
    static const exl2__vocab_steps_row rows[] = {
        { .type = "ByteLevel", .read = exl2__vocab_steps_byte_level, .last = true },
        { .type = "Metaspace", .read = exl2__vocab_steps_metaspace, .last = true },
        { .type = "Split", .read = exl2__vocab_steps_split },
        { .type = "Digits", .read = exl2__vocab_steps_digits },
        { .type = "Punctuation", .read = exl2__vocab_steps_punctuation },
        { .type = "WhitespaceSplit", .read = exl2__vocab_steps_whitespace_split },
        { .type = "CharDelimiterSplit", .read = exl2__vocab_steps_delimiter },
        { .type = "Whitespace", .read = exl2__vocab_steps_whitespace }
    };
    const exl2__vocab_steps_row *row = exl2__vocab_steps_find(r, token, rows, EXL2__COUNT(rows));
    exl2__words_step *s = exl2__vocab_steps_next_words(r);
    if (!row) {
        return exl2__vocab_rules_unsupported(r, "pre_tokenizer", token);
    }
    if (r->ended) {
        return exl2__vocab_rules_unsupported(r, "after pre_tokenizer ByteLevel or Metaspace, pre_tokenizer", token);
    }
    if (r->out->words.count + 2 > EXL2__WORDS_STEPS_MAX) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": pre_tokenizer has too many steps, at most %d are supported",
                          EXL2__WORDS_STEPS_MAX - 1);
    }
    *s = (exl2__words_step){ 0 };
    EXL2__TRY(exl2__vocab_steps_behavior(r, token, &s->behavior));
    if (!row->last) {
        EXL2__TRY(exl2__vocab_rules_flag(r, token, "invert", false, &s->invert));
    }
    r->ended = row->last;
    return row->read(r, token);
}

/* ---- decoder ---- */

/* ByteLevel and Fuse need no step: decoding joins the pieces anyway. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_decode_byte_level(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)r;
    (void)token;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_decode_fuse(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)token;
    r->fused = true;
    return EXL2_OK;
}

/* Strips the spaces that the pre-tokenizer added. Files without prepend_scheme have add_prefix_space. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_decode_metaspace(exl2__vocab_rules_reader *r, uint32_t token)
{
    uint32_t scheme = exl2__json_get(r->j, token, "prepend_scheme");
    bool add;
    EXL2__TRY(exl2__vocab_rules_flag(r, token, "add_prefix_space", true, &add));
    add = scheme ? !exl2__json_is(r->j, scheme, "never") : add;
    r->out->strip = add ? EXL2__VOCAB_STRIP_FIRST : 0;
    r->spaces = true;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_decode_replace(exl2__vocab_rules_reader *r, uint32_t token)
{
    uint32_t pattern = exl2__json_get(r->j, token, "pattern");
    if (!exl2__json_is(r->j, exl2__vocab_rules_get(r, pattern, "String"), EXL2__PIECES_MARK) ||
        !exl2__json_is(r->j, exl2__json_get(r->j, token, "content"), " ")) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": decoder Replace is supported only for U+2581 and a space");
    }
    r->spaces = true;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_decode_bytes(exl2__vocab_rules_reader *r, uint32_t token)
{
    (void)token;
    r->out->raw_bytes = true;
    return EXL2_OK;
}

/* Strips `start` spaces at the beginning of the text. Before Fuse they would be stripped from each piece. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_decode_strip(exl2__vocab_rules_reader *r, uint32_t token)
{
    uint64_t start, stop;
    if (!r->fused || !exl2__json_is(r->j, exl2__json_get(r->j, token, "content"), " ") ||
        !exl2__json_u64(r->j, exl2__json_get(r->j, token, "start"), &start) || start >= EXL2__VOCAB_STRIP_FIRST ||
        !exl2__json_u64(r->j, exl2__json_get(r->j, token, "stop"), &stop) || stop != 0) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": decoder Strip is supported only after Fuse, with content \" \", "
                          "start below %d and stop 0", EXL2__VOCAB_STRIP_FIRST);
    }
    r->out->strip = (uint8_t)start;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_steps_decoder(exl2__vocab_rules_reader *r, uint32_t token)
{
    static const exl2__vocab_steps_row rows[] = {
        { .type = "ByteLevel", .read = exl2__vocab_steps_decode_byte_level, .byte_level = true },
        { .type = "Metaspace", .read = exl2__vocab_steps_decode_metaspace },
        { .type = "Replace", .read = exl2__vocab_steps_decode_replace },
        { .type = "ByteFallback", .read = exl2__vocab_steps_decode_bytes },
        { .type = "Fuse", .read = exl2__vocab_steps_decode_fuse },
        { .type = "Strip", .read = exl2__vocab_steps_decode_strip }
    };
    const exl2__vocab_steps_row *row = exl2__vocab_steps_find(r, token, rows, EXL2__COUNT(rows));
    if (!row) {
        return exl2__vocab_rules_unsupported(r, "decoder", token);
    }
    if (row->byte_level != r->out->byte_level) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": decoder %s is not supported %s pre_tokenizer ByteLevel", row->type,
                          row->byte_level ? "without" : "with");
    }
    return row->read(r, token);
}

/* Reads all three components. */
EXL2__PRIVATE exl2_result exl2__vocab_steps_all(exl2__vocab_rules_reader *r)
{
    uint32_t normalizer = exl2__json_get(r->j, 0, "normalizer");
    uint32_t pre_tokenizer = exl2__json_get(r->j, 0, "pre_tokenizer"), decoder = exl2__json_get(r->j, 0, "decoder");
    if (normalizer) {
        EXL2__TRY(exl2__vocab_steps_each(r, "normalizer", normalizer, "normalizers", exl2__vocab_steps_normalizer));
    }
    if (pre_tokenizer) {
        EXL2__TRY(exl2__vocab_steps_each(r, "pre_tokenizer", pre_tokenizer, "pretokenizers",
                                         exl2__vocab_steps_pre_tokenizer));
    }
    if (decoder == 0) {
        return exl2__vocab_rules_unsupported(r, "decoder", 0);
    }
    EXL2__TRY(exl2__vocab_steps_each(r, "decoder", decoder, "decoders", exl2__vocab_steps_decoder));
    if (!r->out->byte_level && !r->spaceless) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": neither normalizer nor pre_tokenizer replaces spaces by U+2581, "
                          "and pre_tokenizer is not ByteLevel");
    }
    if (!r->out->byte_level && !r->spaces) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": the decoder does not replace U+2581 by spaces; a Metaspace or "
                          "Replace is expected in it");
    }
    return EXL2_OK;
}

#endif
