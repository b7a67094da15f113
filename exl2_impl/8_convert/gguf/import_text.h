/* import_text.h: reads the tokenizer.* keys of a GGUF file: byte-level BPE, or SentencePiece's BPE.
   takes: an open GGUF file.
   gives: exl2__import_text, exl2__import_text_family, exl2__import_text_read, exl2__import_text_close.
   owns:  the token table, until exl2__import_text_close. */
#ifndef EXL2__IMPORT_TEXT_H
#define EXL2__IMPORT_TEXT_H

#include "import_config.h"

#define EXL2__IMPORT_TEXT_REGEXES 6u /* most patterns of a family */

/* How text is cut into words before merging. GGUF stores only a name for this. */
typedef struct exl2__import_text_family {
    const char *pre; /* values of tokenizer.ggml.pre, with spaces between them; NULL: SentencePiece */
    bool nfc, digits, add_bos, ignore_merges; /* digits: each is a word; add_bos: the default */
    const char *regexes[EXL2__IMPORT_TEXT_REGEXES]; /* applied in order; none: ByteLevel's default, which is GPT-2's */
} exl2__import_text_family;

#define EXL2__IMPORT_TEXT_ENGLISH "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

/* Llama 3's pattern. `digits` is the regex quantifier for the digits of a word. */
#define EXL2__IMPORT_TEXT_CL100K(digits)                                       \
    EXL2__IMPORT_TEXT_ENGLISH "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* GPT-4o's pattern, and Tekken's: words are cut before an upper-case letter. `end` may follow a word. */
#define EXL2__IMPORT_TEXT_O200K(end, digits)                                                                        \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" end                 \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" end "|\\p{N}" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define EXL2__IMPORT_TEXT_GPT4O EXL2__IMPORT_TEXT_O200K(EXL2__IMPORT_TEXT_ENGLISH "?", "{1,3}")

/* U+4E00 to U+9FA5, U+3040 to U+309F, U+30A0 to U+30FF */
#define EXL2__IMPORT_TEXT_CJK \
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+"

/* U+4E00 to U+9FA5, U+0800 to U+4E00, U+AC00 to U+D7FF */
#define EXL2__IMPORT_TEXT_EASTERN "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+"

/* DeepSeek's letters: those with a case, of the scripts that its tokenizer lists */
#define EXL2__IMPORT_TEXT_CASED \
    "A-Za-z\\u00B5\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u01BA\\u01BC-\\u01BF\\u01C4-\\u0293\\u0295-\\u02AF" \
    "\\u0370-\\u0373\\u0376\\u0377\\u037B-\\u037D\\u037F\\u0386\\u0388-\\u038A\\u038C\\u038E-\\u03A1" \
    "\\u03A3-\\u03F5\\u03F7-\\u0481\\u048A-\\u052F\\u0531-\\u0556\\u10A0-\\u10C5\\u13A0-\\u13F5\\u13F8-\\u13FD" \
    "\\u1C90-\\u1CBA\\u1CBD-\\u1CBF\\u1D00-\\u1D2B\\u1D6B-\\u1D77\\u1D79-\\u1D9A\\u1E00-\\u1F15\\u1F18-\\u1F1D" \
    "\\u1F20-\\u1F45\\u1F48-\\u1F4D\\u1F50-\\u1F57\\u1F59\\u1F5B\\u1F5D\\u1F5F-\\u1F7D\\u1F80-\\u1FB4" \
    "\\u1FB6-\\u1FBC\\u1FBE\\u1FC2-\\u1FC4\\u1FC6-\\u1FCC\\u1FD0-\\u1FD3\\u1FD6-\\u1FDB\\u1FE0-\\u1FEC" \
    "\\u1FF2-\\u1FF4\\u1FF6-\\u1FFC\\u2102\\u2107\\u210A-\\u2113\\u2115\\u2119-\\u211D\\u2124\\u2126\\u2128" \
    "\\u212A-\\u212D\\u212F-\\u2134\\u2139\\u213C-\\u213F\\u2145-\\u2149\\u214E\\u2183\\u2184\\u2C00-\\u2C7B" \
    "\\u2C7E-\\u2CE4\\u2CEB-\\u2CEE\\u2CF2\\u2CF3\\uA640-\\uA66D\\uA680-\\uA69B\\uA722-\\uA76F\\uA771-\\uA787" \
    "\\uA78B-\\uA78E\\uAB70-\\uABBF\\uFB00-\\uFB06\\uFB13-\\uFB17\\uFF21-\\uFF3A\\uFF41-\\uFF5A" \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}" \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

typedef struct exl2__import_text {
    exl2__gguf *g;
    const exl2__import_text_family *family; /* NULL: the file has no tokenizer that is imported */
    exl2__arena memory;
    exl2__gguf_text *tokens; /* [count] */
    const uint8_t *types;    /* [count] i32; NULL: all are NORMAL */
    uint32_t count;
    const exl2__gguf_pair *merges; /* BPE */
    const uint8_t *scores;         /* [count] f32; SentencePiece */
    char *marked;                  /* texts of user-defined pieces with U+2581 instead of spaces */
    exl2__strtab names;
    exl2__import_ids ids;
    exl2__gguf_text chat_template;
    bool add_bos, add_eos, prefix_space;
    char warning[256];             /* what should be known of the folder's tokenizer, or "" */
} exl2__import_text;

/* Values of tokenizer.ggml.token_type. */
typedef enum exl2__import_text_type {
    EXL2__IMPORT_TEXT_NORMAL = 1,
    EXL2__IMPORT_TEXT_UNKNOWN,
    EXL2__IMPORT_TEXT_CONTROL,
    EXL2__IMPORT_TEXT_USER,
    EXL2__IMPORT_TEXT_UNUSED,
    EXL2__IMPORT_TEXT_BYTE
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

EXL2__PRIVATE const char *exl2__import_text_name(const void *owner, uint32_t entry, size_t *bytes)
{
    const exl2__gguf_text *token = &((const exl2__import_text *)owner)->tokens[entry];
    *bytes = (size_t)token->bytes;
    return token->data;
}

/* Is the name one of the words of the list? */
EXL2__PRIVATE bool exl2__import_text_lists(const char *list, exl2__gguf_text name)
{
    for (const char *end; *list; list = *end ? end + 1 : end) {
        end = strchr(list, ' ') ? strchr(list, ' ') : list + strlen(list);
        if ((size_t)(end - list) == name.bytes && memcmp(list, name.data, (size_t)name.bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* The families, under the names that llama.cpp gives them. Where it approximates the pattern of the published
   tokenizer.json, this is the published one. */
EXL2__PRIVATE const exl2__import_text_family *exl2__import_text_find_pre(exl2__gguf_text pre)
{
    static const exl2__import_text_family families[] = {
        { .pre = "smollm starcoder refact exaone codeshell minerva-7b mellum2", .digits = true },
        { .pre = "command-r", .digits = true, .nfc = true },
        { .pre = "gpt-2 phi-2 exaone4 mpt jais trillion granite-docling gigachat a.x-4.0 mellum" },
        { .pre = "olmo", .nfc = true },
        { .pre = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", .add_bos = true,
          .ignore_merges = true, .regexes = { EXL2__IMPORT_TEXT_CL100K("{1,3}") } },
        { .pre = "dbrx smaug-bpe chatglm-bpe glm4", .regexes = { EXL2__IMPORT_TEXT_CL100K("{1,3}") } },
        { .pre = "qwen2 deepseek-r1-qwen megrez kormo", .nfc = true, .regexes = { EXL2__IMPORT_TEXT_CL100K("") } },
        { .pre = "stablelm2 hunyuan solar-open", .regexes = { EXL2__IMPORT_TEXT_CL100K("") } },
        { .pre = "seed-coder",
          .regexes = { EXL2__IMPORT_TEXT_ENGLISH "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}"
                       "| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" } },
        { .pre = "gpt-4o llama4 kanana2 minimax-m2", .regexes = { EXL2__IMPORT_TEXT_GPT4O } },
        { .pre = "tekken", .add_bos = true, .ignore_merges = true, .regexes = { EXL2__IMPORT_TEXT_O200K("", "") } },
        { .pre = "hunyuan-dense deepseek-v3",
          .regexes = { "\\p{N}{1,3}", EXL2__IMPORT_TEXT_CJK,
                       "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                       "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"
                       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" } },
        { .pre = "deepseek-llm",
          .regexes = { "[\r\n]", "\\s?[" EXL2__IMPORT_TEXT_CASED "]+",
                       "\\s?[!-/:-~\\uFF01-\\uFF0F\\uFF1A-\\uFF5E\\u2018-\\u201F\\u3000-\\u3002]+", "\\s+$",
                       EXL2__IMPORT_TEXT_EASTERN, "\\p{N}+" } },
        { .pre = "deepseek-coder",
          .regexes = { "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", EXL2__IMPORT_TEXT_EASTERN, "\\p{N}" } },
        { .pre = "superbpe", /* the second is (?=(\d{3})+(?!\d)), whose matches are empty, as text between them */
          .regexes = { "\\p{N}+", "[\\s\\S](?:(?!(?:\\d{3})+(?!\\d))[\\s\\S])*" } },
        { .pre = "viking",
          .regexes = { " ?[^(\\s|.,!?\\u2026\\u3002\\uFF0C\\u3001\\u0964\\u06D4\\u060C)]+", "\\p{N}" } },
        { .pre = "exaone-moe",
          .regexes = { EXL2__IMPORT_TEXT_ENGLISH "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
                       "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" } },
        { .pre = "tiny_aya", /* \b after a digit is (?!\w) */
          .regexes = { "\\d{1,3}(?=(?:\\d{3})*(?!\\w))", EXL2__IMPORT_TEXT_GPT4O } },
        { .pre = "default",
          .regexes = { "[\\p{P}\\$\\+<=>\\^~\\|]+",
                       "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "\\p{N}+",
                       "[0-9][0-9][0-9]" } },
    };
    for (size_t i = 0; i < EXL2__COUNT(families); i++) {
        if (exl2__import_text_lists(families[i].pre, pre)) {
            return &families[i];
        }
    }
    return NULL;
}

/* Finds the family; NULL: the folder gets no tokenizer, and the warning says why. `without`: it is not wanted. */
EXL2__PRIVATE exl2_result exl2__import_text_find_family(exl2__import_text *t, bool without)
{
    static const exl2__import_text_family spm = { .pre = NULL, .add_bos = true };
    exl2__gguf_text model = { NULL, 0 }, pre = { NULL, 0 };
    char name[32];
    EXL2__TRY(exl2__gguf_get_text(t->g, "tokenizer.ggml.model", &model));
    EXL2__TRY(exl2__gguf_get_text(t->g, "tokenizer.ggml.pre", &pre));
    if (model.bytes == 0 || exl2__import_config_is(model, "none") || exl2__import_config_is(model, "no_vocab")) {
        exl2__format(t->warning, sizeof t->warning, "the GGUF file has no tokenizer, so the folder has none");
        return EXL2_OK;
    }
    bool bpe = exl2__import_config_is(model, "gpt2");
    if (bpe && pre.bytes == 0) {
        pre = (exl2__gguf_text){ "default", 7 };
        exl2__format(t->warning, sizeof t->warning,
                     "the file does not name its pre-tokenizer, so text is cut into words as llama.cpp's default does, "
                     "which may not be what the model was trained with");
    }
    t->family = exl2__import_config_is(model, "llama") ? &spm : bpe ? exl2__import_text_find_pre(pre) : NULL;
    if (!t->family && !without) {
        return exl2__fail(t->g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: tokenizer.ggml.%s is %s, which is not imported; with no_tokenizer (--no-tokenizer) the "
                          "model is imported without its tokenizer", t->g->path, bpe ? "pre" : "model",
                          exl2__import_config_show(bpe ? pre : model, name));
    }
    if (without) {
        t->family = NULL;
        exl2__format(t->warning, sizeof t->warning, "no tokenizer was wanted, so the folder has none");
    }
    return EXL2_OK;
}

static inline bool exl2__import_text_is_spm(const exl2__import_text *t)
{
    return t->family && !t->family->pre;
}

/* marked_bytes: size of t->marked. */
EXL2__PRIVATE void exl2__import_text_layout(exl2__import_text *t, exl2__arena *a, uint64_t marked_bytes)
{
    t->marked = (char *)exl2__arena_alloc(a, marked_bytes);
    t->tokens = (exl2__gguf_text *)exl2__arena_alloc(a, (uint64_t)t->count * sizeof *t->tokens);
    exl2__strtab_make(&t->names, a, t->count);
    t->names.name = exl2__import_text_name;
    t->names.owner = t;
}

/* Bytes of the texts of user-defined pieces with spaces, once U+2581 replaces the spaces. */
EXL2__PRIVATE uint64_t exl2__import_text_marked_bytes(const exl2__import_text *t, const exl2__gguf_pair *tokens)
{
    uint64_t bytes = 0;
    const uint8_t *at = tokens->data;
    for (uint32_t id = 0; id < t->count; id++) {
        exl2__gguf_text text = exl2__gguf_string_at(at);
        bytes += exl2__import_text_type_of(t, id) == EXL2__IMPORT_TEXT_USER ? 3 * text.bytes : 0;
        at += 8 + text.bytes;
    }
    return exl2__import_text_is_spm(t) ? bytes : 0;
}

/* The converter writes spaces for the U+2581 of user-defined pieces. *used: bytes of t->marked. */
EXL2__PRIVATE exl2__gguf_text exl2__import_text_mark(exl2__import_text *t, exl2__gguf_text text, uint64_t *used)
{
    char *out = t->marked + *used;
    uint64_t bytes = 0;
    if (!memchr(text.data, ' ', (size_t)text.bytes)) {
        return text;
    }
    for (uint64_t i = 0; i < text.bytes; i++) {
        if (text.data[i] == ' ') {
            memcpy(out + bytes, "\xE2\x96\x81", 3);
            bytes += 3;
        } else {
            out[bytes++] = text.data[i];
        }
    }
    *used += bytes;
    return (exl2__gguf_text){ out, bytes };
}

/* Checks type and score of a token. */
EXL2__PRIVATE exl2_result exl2__import_text_check(const exl2__import_text *t, uint32_t id)
{
    uint32_t type = exl2__import_text_type_of(t, id);
    if (type < EXL2__IMPORT_TEXT_NORMAL || type > EXL2__IMPORT_TEXT_BYTE) {
        return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT, "%s: tokenizer.ggml.token_type[%u] is %d, expected 1 to 6",
                          t->g->path, id, (int32_t)type);
    }
    if (t->scores && !exl2__float_is_finite(exl2__bits_float(exl2__load32(t->scores + (size_t)id * 4)))) {
        return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT, "%s: tokenizer.ggml.scores[%u] is not a finite number",
                          t->g->path, id);
    }
    return EXL2_OK;
}

/* Enters every token that is not UNUSED. Two tokens with the same text are rejected, since a vocabulary maps a text to
   one id. */
EXL2__PRIVATE exl2_result exl2__import_text_enter(exl2__import_text *t, const exl2__gguf_pair *tokens)
{
    const uint8_t *at = tokens->data;
    uint64_t marked = 0;
    for (uint32_t id = 0; id < t->count; id++) {
        uint32_t slot = 0;
        t->tokens[id] = exl2__gguf_string_at(at);
        at += 8 + t->tokens[id].bytes;
        EXL2__TRY(exl2__import_text_check(t, id));
        if (exl2__import_text_type_of(t, id) == EXL2__IMPORT_TEXT_UNUSED) {
            continue;
        }
        if (t->tokens[id].bytes == 0) {
            return exl2__fail(t->g->ctx, EXL2_ERR_FORMAT, "%s: tokenizer.ggml.tokens[%u] is empty", t->g->path, id);
        }
        if (exl2__import_text_is_spm(t) && exl2__import_text_type_of(t, id) == EXL2__IMPORT_TEXT_USER) {
            t->tokens[id] = exl2__import_text_mark(t, t->tokens[id], &marked);
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

EXL2__PRIVATE exl2_result exl2__import_text_read_tables(exl2__import_text *t, uint32_t vocab)
{
    exl2__gguf *g = t->g;
    bool spm = exl2__import_text_is_spm(t);
    const exl2__gguf_pair *tokens, *types, *scores;
    EXL2__TRY(exl2__gguf_get_array(g, "tokenizer.ggml.tokens", EXL2__GGUF_STRING, &tokens));
    EXL2__TRY(exl2__gguf_get_array(g, "tokenizer.ggml.token_type", EXL2__GGUF_I32, &types));
    EXL2__TRY(exl2__gguf_get_array(g, "tokenizer.ggml.merges", EXL2__GGUF_STRING, &t->merges));
    EXL2__TRY(exl2__gguf_get_array(g, "tokenizer.ggml.scores", EXL2__GGUF_F32, &scores));
    if (!tokens || !(spm ? scores : t->merges)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key tokenizer.ggml.%s is missing", g->path,
                          !tokens ? "tokens" : spm ? "scores" : "merges");
    }
    if (tokens->count > vocab || (types && types->count != tokens->count)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: tokenizer.ggml has %llu tokens and %llu token types, expected as many of each, at most "
                          "%u (rows of the embedding)", g->path, (unsigned long long)tokens->count,
                          (unsigned long long)(types ? types->count : tokens->count), vocab);
    }
    if (spm && scores->count != tokens->count) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tokenizer.ggml has %llu tokens and %llu scores, expected as "
                          "many of each", g->path, (unsigned long long)tokens->count,
                          (unsigned long long)scores->count);
    }
    t->count = (uint32_t)tokens->count;
    t->types = types ? types->data : NULL;
    t->scores = spm ? scores->data : NULL;
    exl2__arena measure = { 0 };
    uint64_t marked_bytes = exl2__import_text_marked_bytes(t, tokens);
    exl2__import_text_layout(t, &measure, marked_bytes);
    EXL2__TRY(exl2__arena_open(g->ctx, &t->memory, measure.used, EXL2_MEM_GENERAL));
    exl2__import_text_layout(t, &t->memory, marked_bytes);
    EXL2__TRY(exl2__import_text_enter(t, tokens));
    return exl2__import_config_ids(g, t->count, &t->ids);
}

/* Reads and checks the tokenizer. *t must be closed, even after a failure, and must not be moved. vocab: rows of the
   embedding. without: the folder shall get no tokenizer. */
EXL2__PRIVATE exl2_result exl2__import_text_read(exl2__gguf *g, uint32_t vocab, bool without, exl2__import_text *t)
{
    *t = (exl2__import_text){ 0 };
    t->g = g;
    t->ids = (exl2__import_ids){ -1, -1, -1, -1, -1, -1 };
    EXL2__TRY(exl2__import_text_find_family(t, without));
    if (!t->family) {
        return exl2__import_config_ids(g, vocab, &t->ids);
    }
    EXL2__TRY(exl2__import_text_read_tables(t, vocab));
    t->add_bos = t->family->add_bos;
    t->prefix_space = exl2__import_text_is_spm(t);
    EXL2__TRY(exl2__gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos));
    EXL2__TRY(exl2__gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos));
    EXL2__TRY(exl2__gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->prefix_space));
    t->add_bos = t->add_bos && t->ids.bos >= 0;
    t->add_eos = t->add_eos && t->ids.eos >= 0;
    return exl2__gguf_get_text(g, "tokenizer.chat_template", &t->chat_template);
}

EXL2__PRIVATE void exl2__import_text_close(exl2__import_text *t)
{
    if (t->g) {
        exl2__arena_close(t->g->ctx, &t->memory);
    }
    *t = (exl2__import_text){ 0 };
}

#endif
