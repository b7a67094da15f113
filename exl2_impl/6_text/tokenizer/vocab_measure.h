/* vocab_measure.h: the first pass over tokenizer.json: computes how much memory the tokenizer needs, and lays it out.
   takes: the parsed files.
   gives: exl2__vocab_reader; the stages of reading up to exl2__vocab_open_memory; exl2__vocab_simplify,
          exl2__vocab_layout.
   owns:  nothing; vocab_read.h frees what the reader holds. */
#ifndef EXL2__VOCAB_MEASURE_H
#define EXL2__VOCAB_MEASURE_H

#include "../../0_base/log.h"
#include "../../1_load/json_file.h"
#include "vocab.h"
#include "vocab_names.h"
#include "vocab_rules.h"

#define EXL2__VOCAB_FILE_MAX ((uint64_t)1 << 28)
#define EXL2__VOCAB_ADDED_COST 700 /* an element of added_tokens, as exl2__work_spend counts it */

typedef struct exl2__vocab_entry {
    uint32_t begin, end; /* place of its string in the file */
    uint32_t id, bytes;  /* bytes of the decoded string */
    uint8_t kind;
    bool escaped;
} exl2__vocab_entry;

/* The state of reading. It works in stages (vocab_read.h), each of them in slices. */
typedef struct exl2__vocab_reader {
    exl2__ctx *c;
    exl2__vocab *v;
    const char *dir;
    uint32_t stage;
    uint64_t at;          /* position in the stage, 0 at its begin: an entry, a byte, a token of added_tokens */
    bool missing;         /* there is no tokenizer.json */
    exl2__json_file file, config_file;
    exl2__json j, config; /* those of the files; config.tokens NULL: there is no tokenizer_config.json */
    exl2__json_walk walk;
    exl2__merges_reader merges;
    exl2__vocab_rules rules;
    exl2__arena scratch;
    char *buffer;         /* room for two unescaped strings of the files and 16 bytes; 8 bytes before it are readable */
    exl2__vocab_entry *entries; /* [vocab_count] entries of model.vocab, in scratch */
    exl2__arena pool;     /* strings and programs of the rules, in the tokenizer's block */
    exl2__merges_gaps *gaps; /* in the tokenizer's block */
    exl2__normal_text normal[2];
    uint64_t normal_allowed; /* bytes that the normalizer may still produce from added tokens */
    bool keep_slots;      /* encoding, too, looks up pieces by their bytes */
    uint32_t vocab_count, added_count;
    uint32_t normalized_count; /* number of added tokens with normalized = true */
    uint64_t text_bytes;  /* size of all pieces, contents of added tokens, and texts of named tokens, in this order */
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

/* Decodes a token string of the file into r->buffer, and returns the number of bytes. */
static inline size_t exl2__vocab_read_bytes(exl2__vocab_reader *r, const exl2__json *j, uint32_t token, uint8_t *kind)
{
    size_t bytes;
    const char *text = exl2__json_view(j, token, r->buffer, &bytes);
    return exl2__pieces_load(&r->v->pieces, r->buffer, text, bytes, kind);
}

/* *out: the text by which the added token is found, which is its content or, if the token says so, its normalized
   content. r->buffer has the content. */
EXL2__PRIVATE exl2_result exl2__vocab_pattern(exl2__vocab_reader *r, const exl2__added_token *token,
                                              exl2__normal_view *out)
{
    *out = (exl2__normal_view){ r->buffer, token->bytes, NULL, 0 };
    if (token->normalized) {
        EXL2__TRY(exl2__normal_run(r->c, &r->rules.normal, r->normal, out, &r->normal_allowed));
    }
    return out->bytes <= EXL2__ADDED_BYTES_MAX ? EXL2_OK
         : exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                      EXL2__VOCAB_RULES_FILE ": the normalizer makes %zu bytes of added token %u, at most %u are "
                      "supported", out->bytes, token->id, EXL2__ADDED_BYTES_MAX);
}

/* Reads the next entry of added_tokens after r->at (0 at first) whose content is not empty. r->at is 0 at the end. */
EXL2__PRIVATE exl2_result exl2__vocab_read_added(exl2__vocab_reader *r, exl2__added_token *out, uint32_t *content)
{
    exl2__vocab_rules_reader in = { .c = r->c, .j = &r->j };
    uint32_t list = r->rules.added, item = (uint32_t)r->at;
    for (;;) {
        item = item ? exl2__json_next(&r->j, list, item) : list ? exl2__json_first(&r->j, list) : 0;
        r->at = item;
        if (item == 0) {
            return EXL2_OK;
        }
        *out = (exl2__added_token){ 0 };
        *content = exl2__json_get(&r->j, item, "content");
        uint32_t id = exl2__json_get(&r->j, item, "id");
        if (*content == 0 || r->j.tokens[*content].kind != EXL2__JSON_STRING || id == 0) {
            return exl2__vocab_rules_malformed(&in, "an element of added_tokens", "an object with id and content");
        }
        EXL2__TRY(exl2__vocab_read_id(r, &r->j, "an id of added_tokens", id, &out->id));
        EXL2__TRY(exl2__vocab_rules_flag(&in, item, "special", false, &out->special));
        EXL2__TRY(exl2__vocab_rules_flag(&in, item, "single_word", false, &out->single_word));
        EXL2__TRY(exl2__vocab_rules_flag(&in, item, "lstrip", false, &out->lstrip));
        EXL2__TRY(exl2__vocab_rules_flag(&in, item, "rstrip", false, &out->rstrip));
        EXL2__TRY(exl2__vocab_rules_flag(&in, item, "normalized", !out->special, &out->normalized));
        size_t bytes = exl2__json_text(&r->j, *content, NULL, 0);
        if (bytes > EXL2__ADDED_BYTES_MAX) {
            return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                              EXL2__VOCAB_RULES_FILE ": added token %u has %zu bytes, at most %u are supported",
                              out->id, bytes, EXL2__ADDED_BYTES_MAX);
        }
        out->bytes = (uint32_t)bytes;
        if (bytes) { /* the library ignores tokens with empty content */
            return EXL2_OK;
        }
    }
}

/* ---- sizes ---- */

/* Size of the longest string, including those in the containers that are not parsed. */
static inline size_t exl2__vocab_longest_string(const exl2__json *j)
{
    size_t longest = exl2__max32(j->flat[0].longest, j->flat[1].longest);
    for (uint32_t i = 0; i < j->token_count; i++) {
        size_t bytes = j->tokens[i].end - j->tokens[i].begin;
        longest = j->tokens[i].kind == EXL2__JSON_STRING && bytes > longest ? bytes : longest;
    }
    return longest;
}

/* Unpacks the Unicode tables if a step needs them; with a dry arena it only counts bytes. */
static inline void exl2__vocab_make_nfc(exl2__vocab_reader *r, exl2__arena *arena)
{
    if (r->rules.normal.needs_nfc) {
        exl2__nfc_make(&r->rules.normal.nfc, r->rules.normal.needs_nfkc, arena);
    }
}

/* Allocates the memory for strings and programs to which the rules point. */
static inline exl2__arena exl2__vocab_pool(exl2__vocab_reader *r, exl2__arena *arena)
{
    exl2__arena pool = { (uint8_t *)exl2__arena_alloc(arena, r->rules.pool_bytes), r->rules.pool_bytes, 0, arena->tag };
    return pool;
}

/* Allocates memory that is needed only while reading: the string buffer, the entries of model.vocab, and the hash table
   of pieces unless encoding needs it, too. With a dry arena it only counts bytes. */
EXL2__PRIVATE void exl2__vocab_layout_scratch(exl2__vocab_reader *r, exl2__arena *arena)
{
    size_t longest = exl2__vocab_longest_string(&r->j), other = exl2__vocab_longest_string(&r->config);
    char *buffer = (char *)exl2__arena_alloc(arena, 2 * (uint64_t)(longest > other ? longest : other) + 24);
    r->buffer = buffer ? buffer + 8 : NULL;
    r->pool = exl2__vocab_pool(r, arena);
    r->entries = (exl2__vocab_entry *)exl2__arena_alloc(arena, (uint64_t)r->j.flat[0].members * sizeof *r->entries);
    exl2__vocab_make_nfc(r, arena);
    if (!r->keep_slots) {
        exl2__pieces_make_slots(&r->v->pieces, arena, r->j.flat[0].members);
    }
}

/* Reads the rules with their strings and programs into r->pool. The Unicode tables stay as they are. */
EXL2__PRIVATE exl2_result exl2__vocab_pool_rules(exl2__vocab_reader *r)
{
    exl2__nfc nfc = r->rules.normal.nfc;
    exl2_result result = exl2__vocab_rules_read(r->c, &r->j, &r->pool, &r->rules);
    r->rules.normal.nfc = nfc;
    return result;
}

EXL2__PRIVATE exl2_result exl2__vocab_open_scratch(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__arena dry = { 0 };
    exl2__work_spend(work, r->j.token_count + (uint64_t)r->config.token_count); /* to find the longest string */
    exl2__vocab_layout_scratch(r, &dry);
    return exl2__arena_open(r->c, &r->scratch, dry.used, EXL2_MEM_GENERAL);
}

EXL2__PRIVATE exl2_result exl2__vocab_clear_scratch(exl2__vocab_reader *r, exl2__work *work)
{
    EXL2__TRY_DONE(exl2__arena_clear(&r->scratch, &r->at, work));
    exl2__vocab_layout_scratch(r, &r->scratch);
    EXL2__TRY(exl2__vocab_pool_rules(r));
    exl2__json_walk_begin(&r->walk, &r->j, &r->j.flat[0]);
    return EXL2_OK;
}

/* Reads the entries of model.vocab. */
EXL2__HOT
EXL2__PRIVATE exl2_result exl2__vocab_measure_pieces(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__json_walk *walk = &r->walk;
    while (exl2__work_spend(work, 100)) {
        if (!exl2__json_walk_next(walk)) {
            return exl2__json_walk_end(r->c, EXL2__VOCAB_RULES_FILE, walk);
        }
        exl2__vocab_entry *e = &r->entries[r->vocab_count++];
        EXL2__TRY(exl2__vocab_read_id(r, &walk->view, "an id of model.vocab", 2, &e->id));
        e->begin = walk->tokens[1].begin;
        e->end = walk->tokens[1].end;
        e->escaped = walk->tokens[1].escaped;
        e->bytes = (uint32_t)exl2__vocab_read_bytes(r, &walk->view, 1, &e->kind);
        r->text_bytes += e->bytes;
    }
    return EXL2_PENDING;
}

EXL2__PRIVATE exl2_result exl2__vocab_measure_added(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__added_token token;
    uint32_t content;
    uint8_t kind;
    while (exl2__work_spend(work, EXL2__VOCAB_ADDED_COST)) {
        EXL2__TRY(exl2__vocab_read_added(r, &token, &content));
        if (r->at == 0) {
            return EXL2_OK;
        }
        exl2__normal_view pattern;
        exl2__json_text(&r->j, content, r->buffer, SIZE_MAX);
        EXL2__TRY(exl2__vocab_pattern(r, &token, &pattern));
        r->added_count++;
        r->normalized_count += token.normalized;
        r->text_bytes += pattern.bytes + exl2__vocab_read_bytes(r, &r->j, content, &kind);
    }
    return EXL2_PENDING;
}

EXL2__PRIVATE exl2_result exl2__vocab_measure_names(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__work_spend(work, r->config.token_count); /* for the keys of added_tokens_decoder */
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

/* Drops a normalizer that only replaces spaces by U+2581 and perhaps prepends one: words.h treats both characters
   alike, and can add a space itself. The normalizer stays if added tokens are searched for in normalized text. */
EXL2__PRIVATE void exl2__vocab_simplify(exl2__vocab_reader *r)
{
    exl2__normal_rules *n = &r->rules.normal;
    exl2__words_rules *w = &r->rules.words;
    const exl2__normal_step *last = &n->steps[n->count ? n->count - 1 : 0];
    bool prepend = n->count == 2 && n->steps[0].kind == EXL2__NORMAL_PREPEND && n->steps[0].by_bytes &&
                   exl2__words_mark(n->steps[0].by, n->steps[0].by + n->steps[0].by_bytes) == n->steps[0].by_bytes;
    bool replace = n->count > 0 && last->kind == EXL2__NORMAL_REPLACE && !last->regex && last->text_bytes == 1 &&
                   *last->text == ' ' && last->by_bytes == 3 && memcmp(last->by, EXL2__PIECES_MARK, 3) == 0;
    if (r->v->pieces.marked && r->normalized_count == 0 && w->count == 0 && w->prefix == EXL2__WORDS_NO_PREFIX &&
        replace && (n->count == 1 || prepend)) {
        w->prefix = prepend ? EXL2__WORDS_PREFIX_TWICE : EXL2__WORDS_NO_PREFIX;
        w->prefix_step = 0;
        n->count = 0;
    }
}

/* Allocates the tokenizer's arrays, in memory that is zeroed already; with a dry arena it only counts bytes. */
EXL2__PRIVATE void exl2__vocab_layout(exl2__vocab_reader *r, exl2__arena *arena)
{
    exl2__vocab *v = r->v;
    v->pieces.count = v->id_count;
    v->pieces.starts = (uint32_t *)exl2__arena_alloc(arena, ((uint64_t)v->id_count + 1) * sizeof(uint32_t));
    v->pieces.flags = (uint8_t *)exl2__arena_alloc(arena, v->id_count);
    exl2__arena_alloc(arena, 8); /* a short piece is read as the eight bytes before its end */
    v->pieces.text = (char *)exl2__arena_alloc(arena, r->text_bytes);
    if (r->keep_slots) {
        exl2__pieces_make_slots(&v->pieces, arena, r->vocab_count);
    }
    exl2__bpe_make(&v->bpe, arena, r->j.flat[1].members);
    v->added.tokens = (exl2__added_token *)exl2__arena_alloc(arena, r->added_count * sizeof(exl2__added_token));
    v->added.text = v->pieces.text;
    v->work = exl2__arena_alloc(arena, exl2__bpe_work_bytes(EXL2__VOCAB_WORD_BYTES));
    for (int i = 0; i < 2 && r->rules.normal.count; i++) {
        v->rewritten[i] = (char *)exl2__arena_alloc(arena, exl2__normal_bytes(EXL2__VOCAB_NORMAL_BYTES));
    }
    r->gaps = (exl2__merges_gaps *)exl2__arena_alloc(arena, sizeof *r->gaps);
    r->pool = exl2__vocab_pool(r, arena);
    exl2__vocab_make_nfc(r, arena);
}

EXL2__PRIVATE exl2_result exl2__vocab_open_memory(exl2__vocab_reader *r, exl2__work *work)
{
    exl2__arena dry = { 0 };
    (void)work;
    exl2__vocab_simplify(r);
    exl2__vocab_layout(r, &dry);
    return exl2__arena_open(r->c, &r->v->memory, dry.used, EXL2_MEM_GENERAL);
}

/* Then reads the rules once more: their strings and programs lie in the tokenizer's block from now on. */
EXL2__PRIVATE exl2_result exl2__vocab_clear_memory(exl2__vocab_reader *r, exl2__work *work)
{
    EXL2__TRY_DONE(exl2__arena_clear(&r->v->memory, &r->at, work));
    exl2__vocab_layout(r, &r->v->memory);
    r->v->bytes = r->v->memory.size;
    EXL2__TRY(exl2__vocab_pool_rules(r));
    exl2__vocab_simplify(r);
    return EXL2_OK;
}

#endif
