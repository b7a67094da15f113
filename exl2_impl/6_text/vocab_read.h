/* vocab_read.h: tokenizer.json -> a tokenizer in memory.
   takes: a model folder with tokenizer.json, and tokenizer_config.json if there is one.
   gives: exl2__vocab_open.
   owns:  what reading needs besides the tokenizer's block, until open returns.
   next:  encode.h */
#ifndef EXL2__VOCAB_READ_H
#define EXL2__VOCAB_READ_H

#include "../0_base/log.h"
#include "../1_load/file.h"
#include "vocab.h"
#include "vocab_names.h"
#include "vocab_rules.h"

#define EXL2__VOCAB_FILE_MAX ((uint64_t)1 << 28)

typedef struct exl2__vocab_entry {
    uint32_t begin, end; /* of its string in the file */
    uint32_t id, bytes;  /* decoded */
    uint8_t kind;
} exl2__vocab_entry;

typedef struct exl2__vocab_reader {
    exl2__ctx *c;
    exl2__vocab *v;
    exl2__blob file, config_file;
    exl2__json j, config; /* config.tokens NULL: no such file */
    exl2__vocab_rules rules;
    exl2__arena scratch;
    char *buffer;         /* room for any two strings of the files, unescaped */
    exl2__vocab_entry *entries; /* [vocab_count] of model.vocab, in scratch */
    char *pool;           /* strings of the rules, in the block */
    exl2__merges_gaps *gaps; /* in the block */
    exl2__normal_text normal[2];
    bool keep_slots;      /* encoding finds pieces by their bytes too */
    uint32_t vocab_count, added_count;
    uint64_t text_bytes;  /* pieces, then contents of added tokens, then named texts */
    uint32_t text_used;
} exl2__vocab_reader;

static inline exl2_result exl2__vocab_read_id(exl2__vocab_reader *r, const exl2__json *j, const char *what,
                                              uint32_t token, uint32_t *out)
{
    exl2__vocab_rules_reader rules = { .c = r->c, .j = j };
    EXL2__TRY(exl2__vocab_rules_id(&rules, what, token, out));
    r->v->id_count = exl2__max32(r->v->id_count, *out + 1);
    return EXL2_OK;
}

/* A string of tokenizer.json as the bytes that it stands for, in r->buffer. */
static inline size_t exl2__vocab_read_bytes(exl2__vocab_reader *r, const exl2__json *j, uint32_t token, uint8_t *kind)
{
    size_t bytes = exl2__json_text(j, token, r->buffer, SIZE_MAX);
    return exl2__pieces_load(&r->v->pieces, r->buffer, bytes, kind);
}

/* What text has to read for the added token to be found in it, in *out: its content, or what the normalizer makes of
   that. r->buffer has the content. */
static exl2_result exl2__vocab_pattern(exl2__vocab_reader *r, const exl2__added_token *token, exl2__normal_view *out)
{
    *out = (exl2__normal_view){ r->buffer, token->bytes, NULL, 0 };
    return token->normalized ? exl2__normal_run(r->c, &r->rules.normal, r->normal, out) : EXL2_OK;
}

/* The next entry of added_tokens after *item (0 at first) that has a content; *item 0 at the end. */
EXL2__COLD
static exl2_result exl2__vocab_read_added(exl2__vocab_reader *r, uint32_t *item, exl2__added_token *out,
                                          uint32_t *content)
{
    exl2__vocab_rules_reader in = { .c = r->c, .j = &r->j };
    uint32_t list = r->rules.added;
    for (;;) {
        *item = *item ? exl2__json_next(&r->j, list, *item) : list ? exl2__json_first(&r->j, list) : 0;
        if (*item == 0) {
            return EXL2_OK;
        }
        *out = (exl2__added_token){ 0 };
        *content = exl2__json_get(&r->j, *item, "content");
        uint32_t id = exl2__json_get(&r->j, *item, "id");
        if (*content == 0 || r->j.tokens[*content].kind != EXL2__JSON_STRING || id == 0) {
            return exl2__vocab_rules_malformed(&in, "an element of added_tokens", "an object with id and content");
        }
        EXL2__TRY(exl2__vocab_read_id(r, &r->j, "an id of added_tokens", id, &out->id));
        EXL2__TRY(exl2__vocab_rules_flag(&in, *item, "special", false, &out->special));
        EXL2__TRY(exl2__vocab_rules_flag(&in, *item, "single_word", false, &out->single_word));
        EXL2__TRY(exl2__vocab_rules_flag(&in, *item, "lstrip", false, &out->lstrip));
        EXL2__TRY(exl2__vocab_rules_flag(&in, *item, "rstrip", false, &out->rstrip));
        EXL2__TRY(exl2__vocab_rules_flag(&in, *item, "normalized", !out->special, &out->normalized));
        size_t bytes = exl2__json_text(&r->j, *content, NULL, 0);
        if (bytes > EXL2__ADDED_BYTES_MAX) {
            return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                              EXL2__VOCAB_RULES_FILE ": added token %u has %zu bytes, at most %u are supported",
                              out->id, bytes, EXL2__ADDED_BYTES_MAX);
        }
        out->bytes = (uint32_t)bytes;
        if (bytes) { /* the library ignores empty ones */
            return EXL2_OK;
        }
    }
}

/* ---- first pass: sizes ---- */

/* Of all strings, those of containers that stayed unread included. */
static inline size_t exl2__vocab_longest_string(const exl2__json *j)
{
    size_t longest = exl2__max32(j->flat[0].longest, j->flat[1].longest);
    for (uint32_t i = 0; i < j->token_count; i++) {
        size_t bytes = j->tokens[i].end - j->tokens[i].begin;
        longest = j->tokens[i].kind == EXL2__JSON_STRING && bytes > longest ? bytes : longest;
    }
    return longest;
}

/* With a dry arena it only counts. */
static inline void exl2__vocab_make_nfc(exl2__vocab_reader *r, exl2__arena *arena)
{
    if (r->rules.normal.needs_nfc) {
        exl2__nfc_make(&r->rules.normal.nfc, arena);
    }
}

/* Scratch for reading: the string buffer, and the way from bytes to ids unless encoding needs it too. */
static exl2_result exl2__vocab_open_scratch(exl2__vocab_reader *r)
{
    size_t longest = exl2__vocab_longest_string(&r->j), other = exl2__vocab_longest_string(&r->config);
    uint64_t buffer_bytes = 2 * (uint64_t)(longest > other ? longest : other) + 1;
    exl2__arena dry = { 0 };
    exl2__pieces pieces = { 0 };
    exl2__arena_take(&dry, buffer_bytes);
    exl2__arena_take(&dry, r->rules.pool_bytes);
    exl2__arena_take(&dry, (uint64_t)r->j.flat[0].members * sizeof *r->entries);
    exl2__vocab_make_nfc(r, &dry);
    if (!r->keep_slots) {
        exl2__pieces_make_slots(&pieces, &dry, r->j.flat[0].members);
    }
    EXL2__TRY(exl2__arena_open(r->c, &r->scratch, dry.used, EXL2_MEM_GENERAL));
    r->buffer = (char *)exl2__arena_take(&r->scratch, buffer_bytes);
    EXL2__TRY(exl2__vocab_rules_read(r->c, &r->j, (char *)exl2__arena_take(&r->scratch, r->rules.pool_bytes),
                                     &r->rules));
    r->entries = (exl2__vocab_entry *)exl2__arena_take(&r->scratch,
                                                       (uint64_t)r->j.flat[0].members * sizeof *r->entries);
    exl2__vocab_make_nfc(r, &r->scratch);
    if (!r->keep_slots) {
        exl2__pieces_make_slots(&r->v->pieces, &r->scratch, r->j.flat[0].members);
    }
    return EXL2_OK;
}

static exl2_result exl2__vocab_measure(exl2__vocab_reader *r)
{
    uint8_t kind;
    exl2__json_walk walk;
    exl2__json_walk_begin(&walk, &r->j, &r->j.flat[0]);
    while (exl2__json_walk_next(&walk)) {
        exl2__vocab_entry *e = &r->entries[r->vocab_count++];
        EXL2__TRY(exl2__vocab_read_id(r, &walk.view, "an id of model.vocab", 2, &e->id));
        e->begin = walk.tokens[1].begin;
        e->end = walk.tokens[1].end;
        e->bytes = (uint32_t)exl2__vocab_read_bytes(r, &walk.view, 1, &e->kind);
        r->text_bytes += e->bytes;
    }
    EXL2__TRY(exl2__json_walk_end(r->c, EXL2__VOCAB_RULES_FILE, &walk));
    exl2__added_token token;
    for (uint32_t item = 0, content;;) {
        EXL2__TRY(exl2__vocab_read_added(r, &item, &token, &content));
        if (item == 0) {
            break;
        }
        exl2__normal_view pattern;
        exl2__json_text(&r->j, content, r->buffer, SIZE_MAX);
        EXL2__TRY(exl2__vocab_pattern(r, &token, &pattern));
        r->added_count++;
        r->text_bytes += pattern.bytes + exl2__vocab_read_bytes(r, &r->j, content, &kind);
    }
    for (int role = 0; role < EXL2__VOCAB_NAMES_ROLES; role++) {
        uint32_t text = exl2__vocab_names_text(&r->config, (exl2__vocab_names_role)role);
        r->text_bytes += text ? exl2__json_text(&r->config, text, NULL, 0) + 1 : 0;
    }
    EXL2__TRY(exl2__vocab_names_ids(r->c, &r->config, EXL2__VOCAB_RULES_IDS_MAX, &r->v->id_count));
    if (r->text_bytes > UINT32_MAX) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": the tokens have %llu bytes, at most 2^32 - 1 are supported",
                          (unsigned long long)r->text_bytes);
    }
    return EXL2_OK;
}

/* With a dry arena it only counts. */
static void exl2__vocab_layout(exl2__vocab_reader *r, exl2__arena *arena)
{
    exl2__vocab *v = r->v;
    v->pieces.count = v->id_count;
    v->pieces.starts = (uint32_t *)exl2__arena_take_zeroed(arena, ((uint64_t)v->id_count + 1) * sizeof(uint32_t));
    v->pieces.flags = (uint8_t *)exl2__arena_take_zeroed(arena, v->id_count);
    v->pieces.text = (char *)exl2__arena_take(arena, r->text_bytes);
    if (r->keep_slots) {
        exl2__pieces_make_slots(&v->pieces, arena, r->vocab_count);
    }
    exl2__bpe_make(&v->bpe, arena, r->j.flat[1].members);
    v->added.tokens = (exl2__added_token *)exl2__arena_take(arena, r->added_count * sizeof(exl2__added_token));
    v->added.text = v->pieces.text;
    v->work = exl2__arena_take(arena, exl2__bpe_work_bytes(EXL2__VOCAB_WORD_BYTES));
    r->gaps = (exl2__merges_gaps *)exl2__arena_take(arena, sizeof *r->gaps);
    r->pool = (char *)exl2__arena_take(arena, r->rules.pool_bytes);
    exl2__vocab_make_nfc(r, arena);
}

/* ---- second pass: contents ---- */

/* The length of every piece goes to starts[id + 1], then becomes an offset. */
static exl2_result exl2__vocab_fill_starts(exl2__vocab_reader *r)
{
    exl2__pieces *p = &r->v->pieces;
    uint8_t kind;
    for (const exl2__vocab_entry *e = r->entries; e < r->entries + r->vocab_count; e++) {
        if (p->flags[e->id]) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_RULES_FILE ": model.vocab has the id %u twice", e->id);
        }
        p->starts[e->id + 1] = e->bytes;
        p->flags[e->id] = (uint8_t)(EXL2__PIECES_USED | e->kind);
    }
    exl2__added_token token;
    for (uint32_t item = 0, content;;) {
        EXL2__TRY(exl2__vocab_read_added(r, &item, &token, &content));
        if (item == 0) {
            break;
        }
        if (!(p->flags[token.id] & EXL2__PIECES_USED)) {
            if (p->flags[token.id] & EXL2__PIECES_PLANNED) {
                return exl2__fail(r->c, EXL2_ERR_FORMAT,
                                  EXL2__VOCAB_RULES_FILE ": added_tokens has the id %u twice", token.id);
            }
            p->starts[token.id + 1] = (uint32_t)exl2__vocab_read_bytes(r, &r->j, content, &kind);
            p->flags[token.id] = (uint8_t)(EXL2__PIECES_PLANNED | (kind & EXL2__PIECES_RAW));
        }
    }
    for (uint32_t i = 0; i < p->count; i++) {
        p->longest = exl2__max32(p->longest, p->starts[i + 1]);
        p->starts[i + 1] += p->starts[i];
    }
    r->text_used = p->starts[p->count];
    return EXL2_OK;
}

static exl2_result exl2__vocab_fill_pieces(exl2__vocab_reader *r)
{
    exl2__vocab *v = r->v;
    exl2__pieces *p = &v->pieces;
    exl2__json_token string = { 0, 0, 0, 0, EXL2__JSON_STRING };
    exl2__json view = { .text = r->file.data, .tokens = &string };
    memset(v->raw_ids, 0xFF, sizeof v->raw_ids);
    for (const exl2__vocab_entry *e = r->entries; e < r->entries + r->vocab_count; e++) {
        uint8_t kind;
        uint32_t id = e->id;
        string.begin = e->begin;
        string.end = e->end;
        exl2__vocab_read_bytes(r, &view, 0, &kind);
        int raw = kind & EXL2__PIECES_RAW ? (uint8_t)r->buffer[0] : exl2__pieces_raw(r->buffer, e->bytes);
        memcpy(p->text + p->starts[id], r->buffer, e->bytes);
        if (raw >= 0) {
            v->raw_ids[raw] = id;
        }
        if ((kind & EXL2__PIECES_BYTES) && !exl2__pieces_add(p, id)) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT,
                              EXL2__VOCAB_RULES_FILE ": the text of token %u comes twice in model.vocab, or the texts "
                              "were made to collide", id);
        }
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        char text = (char)(uint8_t)byte;
        v->byte_ids[byte] = exl2__pieces_find(p, &text, 1);
    }
    return EXL2_OK;
}

/* What the file says of encoding and decoding; and where U+2581 is a space, text is cut before each one that no merge
   crosses, which changes nothing but the time. */
static void exl2__vocab_fill_rules(exl2__vocab_reader *r)
{
    exl2__vocab *v = r->v;
    v->normal = r->rules.normal;
    v->words = r->rules.words;
    v->ignore_merges = r->rules.ignore_merges;
    v->fuse_unk = r->rules.fuse_unk;
    v->byte_fallback = r->rules.byte_fallback;
    v->strip = r->rules.strip;
    if (v->pieces.marked && !v->ignore_merges && v->byte_ids[' '] != EXL2__PIECES_NONE) {
        exl2__words_step *s = &v->words.steps[v->words.count++];
        *s = (exl2__words_step){ 0 };
        s->kind = EXL2__WORDS_MARKS;
        s->kept = r->gaps->kept;
    }
}

/* Copies text behind the texts that are there; returns its offset. */
static inline uint32_t exl2__vocab_keep_text(exl2__vocab_reader *r, const char *text, size_t bytes)
{
    uint32_t at = r->text_used;
    memcpy(r->v->pieces.text + at, text, bytes);
    r->text_used += (uint32_t)bytes;
    return at;
}

/* Where an added token's content is in the vocabulary, its id there counts, as in the library. */
static exl2_result exl2__vocab_place_added(exl2__vocab_reader *r, exl2__added_token *token, uint32_t content)
{
    exl2__pieces *p = &r->v->pieces;
    uint8_t kind;
    exl2__normal_view pattern;
    exl2__json_text(&r->j, content, r->buffer, SIZE_MAX);
    EXL2__TRY(exl2__vocab_pattern(r, token, &pattern));
    token->at = exl2__vocab_keep_text(r, pattern.text, pattern.bytes);
    size_t bytes = exl2__pieces_load(p, r->buffer, token->bytes, &kind);
    token->bytes = (uint32_t)pattern.bytes;
    uint32_t known = kind & EXL2__PIECES_BYTES ? exl2__pieces_find(p, r->buffer, bytes) : EXL2__PIECES_NONE;
    if (known != EXL2__PIECES_NONE) {
        token->id = known;
    } else if (!(p->flags[token->id] & EXL2__PIECES_USED)) {
        memcpy(p->text + p->starts[token->id], r->buffer, bytes);
        p->flags[token->id] |= EXL2__PIECES_USED;
    } else {
        size_t other_bytes;
        const char *other = exl2__pieces_text(p, token->id, &other_bytes);
        if (other_bytes != bytes || memcmp(other, r->buffer, bytes) != 0) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT,
                              EXL2__VOCAB_RULES_FILE ": added token \"%.*s\" has the id %u of \"%.*s\"",
                              (int)token->bytes, r->v->added.text + token->at, token->id, (int)other_bytes, other);
        }
    }
    p->flags[token->id] |= token->special ? EXL2__PIECES_SPECIAL : 0;
    return EXL2_OK;
}

static exl2_result exl2__vocab_fill_added(exl2__vocab_reader *r)
{
    exl2__added *a = &r->v->added;
    exl2__added_token token;
    for (uint32_t item = 0, content;;) {
        EXL2__TRY(exl2__vocab_read_added(r, &item, &token, &content));
        if (item == 0) {
            break;
        }
        EXL2__TRY(exl2__vocab_place_added(r, &token, content));
        a->tokens[a->count] = token;
        a->count += token.bytes > 0;
    }
    uint32_t twice = exl2__added_sort(a);
    if (twice != EXL2__ADDED_NONE) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT,
                          EXL2__VOCAB_RULES_FILE ": added_tokens has \"%.*s\" twice", (int)a->tokens[twice].bytes,
                          a->text + a->tokens[twice].at);
    }
    return EXL2_OK;
}

/* Id of the token whose string is in r->buffer, or EXL2__PIECES_NONE. Changes the buffer. */
static inline uint32_t exl2__vocab_resolve(exl2__vocab_reader *r, size_t bytes)
{
    exl2_token added = exl2__vocab_token(r->v, r->buffer, bytes);
    uint8_t kind;
    bytes = exl2__pieces_load(&r->v->pieces, r->buffer, bytes, &kind);
    if (added >= 0) {
        return (uint32_t)added;
    }
    return kind & EXL2__PIECES_BYTES ? exl2__pieces_find(&r->v->pieces, r->buffer, bytes) : EXL2__PIECES_NONE;
}

static void exl2__vocab_fill_names(exl2__vocab_reader *r)
{
    exl2__vocab *v = r->v;
    const char **texts[EXL2__VOCAB_NAMES_ROLES] = { &v->bos_text, &v->eos_text, &v->unk_text, &v->pad_text };
    exl2_token *ids[EXL2__VOCAB_NAMES_ROLES] = { &v->bos, &v->eos, &v->unk, &v->pad };
    for (int role = 0; role < EXL2__VOCAB_NAMES_ROLES; role++) {
        uint32_t token = exl2__vocab_names_text(&r->config, (exl2__vocab_names_role)role);
        *ids[role] = -1;
        if (token) {
            size_t bytes = exl2__json_text(&r->config, token, r->buffer, SIZE_MAX);
            r->buffer[bytes] = 0;
            *texts[role] = v->pieces.text + exl2__vocab_keep_text(r, r->buffer, bytes + 1);
            uint32_t id = exl2__vocab_resolve(r, bytes);
            *ids[role] = id == EXL2__PIECES_NONE ? -1 : (exl2_token)id;
        }
    }
}

/* tokenizer_config.json decides whether BOS comes before raw text, else the post-processor by having one. */
static exl2_result exl2__vocab_fill_bos(exl2__vocab_reader *r)
{
    exl2__vocab *v = r->v;
    int32_t add_bos = exl2__vocab_names_flag(&r->config, "add_bos_token");
    size_t bytes;
    if (r->rules.bos >= 0 && !exl2__pieces_text(&v->pieces, (uint32_t)r->rules.bos, &bytes)) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT,
                          EXL2__VOCAB_RULES_FILE ": post_processor puts token %d before the text, which has no text",
                          r->rules.bos);
    }
    v->bos = r->rules.bos >= 0 ? r->rules.bos : v->bos;
    v->add_bos = v->bos >= 0 && (add_bos >= 0 ? add_bos == 1 : r->rules.bos >= 0);
    if (exl2__vocab_names_flag(&r->config, "add_eos_token") == 1) {
        exl2__log(r->c, EXL2_LOG_WARN, EXL2__VOCAB_NAMES_FILE ": add_eos_token is ignored, nothing is put behind text");
    }
    return EXL2_OK;
}

static exl2_result exl2__vocab_fill_unk(exl2__vocab_reader *r)
{
    r->v->unk_id = EXL2__PIECES_NONE;
    if (r->rules.unk_token == 0) {
        return EXL2_OK;
    }
    r->v->unk_id = exl2__vocab_resolve(r, exl2__json_text(&r->j, r->rules.unk_token, r->buffer, SIZE_MAX));
    if (r->v->unk_id == EXL2__PIECES_NONE) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_RULES_FILE ": model.unk_token is no token of the file");
    }
    return EXL2_OK;
}

/* ---- opening ---- */

static exl2_result exl2__vocab_read_json(exl2__vocab_reader *r, const char *dir)
{
    EXL2__TRY(exl2__file_read_optional(r->c, dir, EXL2__VOCAB_RULES_FILE, EXL2__VOCAB_FILE_MAX, &r->file));
    if (!r->file.data) {
        return EXL2_OK;
    }
    static const char *const unread[EXL2__JSON_FLAT_MAX] = { "vocab", "merges" };
    EXL2__TRY(exl2__json_open_flat(r->c, EXL2__VOCAB_RULES_FILE, r->file.data, (size_t)r->file.bytes, unread, &r->j));
    EXL2__TRY(exl2__vocab_rules_read(r->c, &r->j, NULL, &r->rules));
    r->v->pieces.marked = !r->rules.byte_level;
    r->v->pieces.raw_bytes = r->rules.raw_bytes;
    r->keep_slots = r->rules.ignore_merges || !r->rules.byte_level;
    EXL2__TRY(exl2__file_read_optional(r->c, dir, EXL2__VOCAB_NAMES_FILE, EXL2__VOCAB_FILE_MAX, &r->config_file));
    if (r->config_file.data) {
        const exl2__blob *f = &r->config_file;
        EXL2__TRY(exl2__json_open(r->c, EXL2__VOCAB_NAMES_FILE, f->data, (size_t)f->bytes, &r->config));
        if (r->config.tokens[0].kind != EXL2__JSON_OBJECT) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__VOCAB_NAMES_FILE " is not an object");
        }
    }
    return EXL2_OK;
}

static exl2_result exl2__vocab_read(exl2__vocab_reader *r, const char *dir)
{
    exl2__vocab *v = r->v;
    EXL2__TRY(exl2__vocab_read_json(r, dir));
    if (!r->file.data) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__vocab_open_scratch(r));
    EXL2__TRY(exl2__vocab_measure(r));
    exl2__arena dry = { 0 };
    exl2__vocab_layout(r, &dry);
    EXL2__TRY(exl2__arena_open(r->c, &v->memory, dry.used, EXL2_MEM_GENERAL));
    exl2__vocab_layout(r, &v->memory);
    v->bytes = v->memory.size;
    exl2__nfc nfc = r->rules.normal.nfc;
    EXL2__TRY(exl2__vocab_rules_read(r->c, &r->j, r->pool, &r->rules));
    r->rules.normal.nfc = nfc;
    EXL2__TRY(exl2__vocab_fill_starts(r));
    EXL2__TRY(exl2__vocab_fill_pieces(r));
    EXL2__TRY(exl2__merges_read(r->c, &r->j, &r->j.flat[1], &v->pieces, r->buffer, &v->bpe, r->gaps));
    exl2__vocab_fill_rules(r);
    EXL2__TRY(exl2__vocab_fill_added(r));
    exl2__vocab_fill_names(r);
    EXL2__TRY(exl2__vocab_fill_bos(r));
    EXL2__TRY(exl2__vocab_fill_unk(r));
    if (!r->keep_slots) {
        v->pieces.slots = NULL; /* in scratch */
    }
    v->piece_bytes_max = v->pieces.longest;
    v->present = true;
    return EXL2_OK;
}

/* Reads the tokenizer of the model folder `dir`. No tokenizer.json: EXL2_OK and out->present is false. A component that
   we do not have is EXL2_ERR_UNSUPPORTED with its name. On failure *out is zeroed. */
static exl2_result exl2__vocab_open(exl2__ctx *c, const char *dir, exl2__vocab *out)
{
    exl2__vocab_reader r = { 0 };
    *out = (exl2__vocab){ 0 };
    r.c = c;
    r.v = out;
    exl2_result result = exl2__vocab_read(&r, dir);
    exl2__arena_close(c, &r.scratch);
    exl2__normal_free(c, &r.normal[0]);
    exl2__normal_free(c, &r.normal[1]);
    exl2__json_close(c, &r.j);
    exl2__json_close(c, &r.config);
    exl2__blob_close(c, &r.file);
    exl2__blob_close(c, &r.config_file);
    if (result < 0) {
        exl2__vocab_close(c, out);
    }
    return result;
}

#endif
