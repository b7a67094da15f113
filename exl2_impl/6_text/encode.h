/* encode.h: text -> token ids.
   takes: untrusted text, an open exl2__vocab.
   gives: exl2__encode.
   owns:  a temporary copy of text that is not valid UTF-8, and work space for words above EXL2__VOCAB_WORD_BYTES; other
          text takes no memory.
   next:  stream.h */
#ifndef EXL2__ENCODE_H
#define EXL2__ENCODE_H

#include "vocab.h"

#define EXL2__ENCODE_BYTES_MAX (1u << 29) /* U+FFFD may triple a text, and a word has less than 2^31 symbols */

typedef struct exl2__encode_job {
    exl2__ctx *c;
    const exl2__vocab *v;
    const char *text;       /* all of it; marks has a bit per byte */
    const uint8_t *marks;   /* or NULL */
    bool plain;
    exl2_token *out;
    size_t cap, count;      /* count goes on beyond cap */
} exl2__encode_job;

static inline void exl2__encode_emit(exl2__encode_job *e, uint32_t id)
{
    if (e->count < e->cap) {
        e->out[e->count] = (exl2_token)id;
    }
    e->count++;
}

/* ---- words ---- */

/* First symbols of a word, one per byte; returns how many. */
static inline uint32_t exl2__encode_symbols(const exl2__vocab *v, const exl2__word *word, exl2__bpe_symbol *s)
{
    uint32_t count = 0;
    bool unknown_before = false;
    for (size_t i = 0; i < word->bytes + word->lead; i++) {
        uint8_t byte = word->lead ? (i ? (uint8_t)word->text[i - 1] : ' ') : (uint8_t)word->text[i];
        uint32_t id = v->byte_ids[byte];
        bool unknown = id == EXL2__PIECES_NONE;
        if (unknown) {
            id = unknown_before && v->fuse_unk ? EXL2__PIECES_NONE : v->unk_id;
        }
        unknown_before = unknown;
        if (id != EXL2__PIECES_NONE) {
            s[count++].id = id;
        }
    }
    return count;
}

/* The token that is the whole word, or EXL2__PIECES_NONE. `work` has room for the word. */
static inline uint32_t exl2__encode_whole(const exl2__vocab *v, const exl2__word *word, void *work)
{
    if (!word->lead || word->bytes + 1 > v->piece_bytes_max) {
        return exl2__pieces_find(&v->pieces, word->text, word->bytes + word->lead);
    }
    char *joined = (char *)work;
    joined[0] = ' ';
    memcpy(joined + 1, word->text, word->bytes);
    return exl2__pieces_find(&v->pieces, joined, word->bytes + 1);
}

static inline void exl2__encode_merge(exl2__encode_job *e, const exl2__word *word, void *work)
{
    const exl2__vocab *v = e->v;
    if (v->ignore_merges) {
        uint32_t whole = exl2__encode_whole(v, word, work);
        if (whole != EXL2__PIECES_NONE) {
            exl2__encode_emit(e, whole);
            return;
        }
    }
    exl2__bpe_symbol *s = (exl2__bpe_symbol *)work;
    uint32_t count = exl2__encode_symbols(v, word, s);
    if (count == 0) {
        return;
    }
    exl2__bpe_run(&v->bpe, work, count);
    for (uint32_t at = 0; at != EXL2__BPE_NONE; at = s[at].next) {
        exl2__encode_emit(e, s[at].id);
    }
}

static inline exl2_result exl2__encode_words(exl2__encode_job *e, const char *text, size_t bytes)
{
    exl2__words words = exl2__words_of(&e->v->words, text, bytes);
    exl2__word word;
    while (exl2__words_next(&words, &word)) {
        size_t symbols = word.bytes + word.lead;
        if (symbols <= EXL2__VOCAB_WORD_BYTES) {
            exl2__encode_merge(e, &word, e->v->work);
            continue;
        }
        void *work;
        uint64_t work_bytes = exl2__bpe_work_bytes(symbols);
        EXL2__TRY(exl2__alloc(e->c, work_bytes, sizeof(uint64_t), EXL2_MEM_GENERAL, &work));
        exl2__encode_merge(e, &word, work);
        exl2__free(e->c, work, work_bytes, EXL2_MEM_GENERAL);
    }
    return EXL2_OK;
}

/* ---- added tokens: first those with normalized = false, then in each gap the others, then words ---- */

static inline exl2_result exl2__encode_gap(exl2__encode_job *e, uint32_t set, const char *text, size_t bytes);

static exl2_result exl2__encode_set(exl2__encode_job *e, uint32_t set, const char *text, size_t bytes)
{
    exl2__added_scan scan = { 0 };
    scan.added = &e->v->added;
    scan.set = set;
    scan.text = text;
    scan.bytes = bytes;
    scan.forbidden = e->marks;
    scan.forbidden_at = (size_t)(text - e->text);
    scan.plain = e->plain;
    exl2__added_match match;
    while (exl2__added_next(&scan, &match)) {
        EXL2__TRY(exl2__encode_gap(e, set, text + match.gap, match.begin - match.gap));
        exl2__encode_emit(e, match.token->id);
    }
    return exl2__encode_gap(e, set, text + scan.done, bytes - scan.done);
}

/* Two levels: set 0 calls set 1, which calls words. */
static inline exl2_result exl2__encode_gap(exl2__encode_job *e, uint32_t set, const char *text, size_t bytes)
{
    return set == 0 ? exl2__encode_set(e, 1, text, bytes) : exl2__encode_words(e, text, bytes);
}

/* ---- text that is not valid UTF-8 ---- */

/* Copies text with U+FFFD for each maximal invalid part, and its marks; returns the size. out NULL: only counts. */
static inline size_t exl2__encode_repair(const exl2__encode_job *e, size_t bytes, char *out, uint8_t *marks)
{
    size_t used = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t code, length = exl2__unicode_next(e->text + at, bytes - at, &code);
        bool bad = code >= EXL2__UNICODE_BAD;
        const char *piece = bad ? EXL2__UNICODE_REPLACEMENT : e->text + at;
        uint32_t piece_bytes = bad ? 3 : length;
        for (uint32_t i = 0; out && i < piece_bytes; i++) {
            size_t from = bad ? at : at + i, to = used + i;
            out[to] = piece[i];
            if (e->marks && (e->marks[from >> 3] >> (from & 7) & 1)) {
                marks[to >> 3] = (uint8_t)(marks[to >> 3] | 1u << (to & 7));
            }
        }
        used += piece_bytes;
        at += length;
    }
    return used;
}

static exl2_result exl2__encode_repaired(exl2__encode_job *e, size_t bytes)
{
    size_t repaired = exl2__encode_repair(e, bytes, NULL, NULL), mark_bytes = e->marks ? repaired / 8 + 1 : 0;
    void *memory;
    EXL2__TRY(exl2__alloc(e->c, repaired + mark_bytes, 1, EXL2_MEM_GENERAL, &memory));
    uint8_t *marks = (uint8_t *)memory + repaired;
    memset(marks, 0, mark_bytes);
    exl2__encode_repair(e, bytes, (char *)memory, marks);
    e->text = (const char *)memory;
    e->marks = e->marks ? marks : NULL;
    exl2_result result = exl2__encode_set(e, 0, e->text, repaired);
    exl2__free(e->c, memory, repaired + mark_bytes, EXL2_MEM_GENERAL);
    return result;
}

/* Ids of the text, up to cap of them; *need: all of them. BOS is not added. from_message: NULL, or a bit per byte of
   text, LSB first: special tokens that touch a marked byte are not looked for, they stay text. flags: EXL2_TEXT_PLAIN
   looks for no special token at all. EXL2_ERR_TOO_SMALL when cap is below *need (this one leaves the error record as it
   is); else fails only for want of memory. */
static exl2_result exl2__encode(exl2__ctx *c, const exl2__vocab *v, const char *text, size_t bytes,
                                const uint8_t *from_message, uint32_t flags, exl2_token *out, size_t cap, size_t *need)
{
    *need = 0;
    if (!v->present) {
        return exl2__fail(c, EXL2_ERR_STATE,
                          "the model folder has no tokenizer.json: it can run token ids, but not text");
    }
    if (bytes >= EXL2__ENCODE_BYTES_MAX) {
        return exl2__fail(c, EXL2_ERR_ARG, "the text has %zu bytes, tokens can be made of less than %u at once", bytes,
                          EXL2__ENCODE_BYTES_MAX);
    }
    exl2__encode_job e = { c, v, text, from_message, (flags & EXL2_TEXT_PLAIN) != 0, out, cap, 0 };
    bool valid = exl2__unicode_valid(text, bytes);
    EXL2__TRY(valid ? exl2__encode_set(&e, 0, text, bytes) : exl2__encode_repaired(&e, bytes));
    *need = e.count;
    return e.count > cap ? EXL2_ERR_TOO_SMALL : EXL2_OK;
}

#endif
