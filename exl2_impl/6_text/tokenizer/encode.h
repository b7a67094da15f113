/* encode.h: text -> token ids.
   takes: untrusted text, an open exl2__vocab.
   gives: exl2__encode, exl2__encode_marks.
   owns:  memory during a call, in three cases only: a copy of text that is not valid UTF-8, work space for words of
          more than EXL2__VOCAB_WORD_BYTES, normalized text of more than EXL2__VOCAB_NORMAL_BYTES. */
#ifndef EXL2__ENCODE_H
#define EXL2__ENCODE_H

#include "vocab.h"

#define EXL2__ENCODE_BYTES_MAX (EXL2__NORMAL_BYTES_MAX / 3) /* replacing invalid bytes by U+FFFD may triple a text */

/* Which bytes of a text come from messages, so that they form no special token. */
typedef struct exl2__encode_marks {
    const uint8_t *from_message; /* bit per byte of text, LSB first; NULL: none comes from a message */
    const uint32_t *guarded;     /* bit per added token: treated like a special token; NULL: none is */
} exl2__encode_marks;

typedef struct exl2__encode_job {
    exl2__ctx *c;
    const exl2__vocab *v;
    const char *text;       /* the whole text */
    const uint8_t *marks;   /* exl2__encode_marks.from_message of it */
    const uint32_t *guarded;
    bool plain;
    exl2_token *out;
    size_t cap, count;      /* count continues to grow beyond cap */
    exl2__normal_text normal[2]; /* normalized text of one gap between added tokens */
    uint64_t allowed;            /* bytes that the normalizer may still produce in all gaps together */
} exl2__encode_job;

static inline void exl2__encode_emit(exl2__encode_job *e, uint32_t id)
{
    if (e->count < e->cap) {
        e->out[e->count] = (exl2_token)id;
    }
    e->count++;
}

/* ---- words ---- */

/* The token of the character text[0 .. bytes), or EXL2__PIECES_NONE. U+2581 counts as a space. */
static inline uint32_t exl2__encode_character(const exl2__vocab *v, const char *text, uint32_t bytes)
{
    if (bytes == 3 && memcmp(text, EXL2__PIECES_MARK, 3) == 0) {
        return v->byte_ids[' '];
    }
    return bytes == 1 ? v->byte_ids[(uint8_t)*text] : exl2__pieces_find(&v->pieces, text, bytes);
}

/* Writes the symbols with which merging of a word begins, and returns their number. There is one per byte, or, in
   vocabularies where U+2581 is a space, one per character. There a character without a token becomes one symbol per
   byte, provided that byte_fallback is set and all its bytes have tokens. */
EXL2__NOINLINE
EXL2__PRIVATE uint32_t exl2__encode_symbols(const exl2__vocab *v, const exl2__word *word, exl2__bpe_symbol *s)
{
    uint32_t count = 0, code, length = 1;
    bool unknown_before = false, lead = word->lead;
    for (const char *at = word->text, *end = at + word->bytes; lead || at < end; at += length) {
        if (v->pieces.marked || lead) {
            length = lead ? 0 : exl2__unicode_next(at, (size_t)(end - at), &code);
        } else {
            length = 1;
        }
        const char *character = lead ? " " : at;
        uint32_t bytes = lead ? 1 : length, first = count;
        uint32_t id = exl2__encode_character(v, character, bytes);
        lead = false;
        for (uint32_t i = 0; id == EXL2__PIECES_NONE && v->byte_fallback && i < bytes; i++) {
            s[count++].id = v->raw_ids[(uint8_t)character[i]];
            if (s[count - 1].id == EXL2__PIECES_NONE) {
                count = first;
                break;
            }
        }
        bool unknown = id == EXL2__PIECES_NONE && count == first;
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

/* The token whose text is the whole word, or EXL2__PIECES_NONE. `work` has room for the word. */
static inline uint32_t exl2__encode_whole(const exl2__vocab *v, const exl2__word *word, void *work)
{
    if (!word->lead && !v->pieces.marked) {
        return exl2__pieces_find(&v->pieces, word->text, word->bytes);
    }
    bool spaced = false;
    char *joined = (char *)work;
    joined[0] = ' ';
    memcpy(joined + word->lead, word->text, word->bytes);
    size_t bytes = word->bytes + word->lead;
    return exl2__pieces_find(&v->pieces, joined,
                             v->pieces.marked ? exl2__pieces_unmark(joined, joined, bytes, &spaced) : bytes);
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

static inline exl2_result exl2__encode_words(exl2__encode_job *e, const char *text, size_t bytes, bool first)
{
    exl2__words words = exl2__words_of(&e->v->words, text, bytes, first);
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

/* ---- added tokens: first those with normalized = false. The text between them is normalized and searched for those
   with normalized = true; the text between these is cut into words. ---- */

static inline exl2_result exl2__encode_gap(exl2__encode_job *e, uint32_t set, const char *text, size_t bytes,
                                           bool first);

/* `first`: the text is the beginning of the whole text. */
EXL2__PRIVATE exl2_result exl2__encode_set(exl2__encode_job *e, uint32_t set, const char *text, size_t bytes,
                                           bool first)
{
    exl2__added_scan scan = { 0 };
    scan.added = &e->v->added;
    scan.set = set;
    scan.text = text;
    scan.bytes = bytes;
    scan.forbidden = e->marks;
    scan.guarded = e->guarded;
    scan.forbidden_at = (size_t)(text - e->text);
    scan.plain = e->plain;
    exl2__added_match match;
    while (exl2__added_next(&scan, &match)) {
        EXL2__TRY(exl2__encode_gap(e, set, text + match.gap, match.begin - match.gap, first && match.gap == 0));
        exl2__encode_emit(e, match.token->id);
    }
    return exl2__encode_gap(e, set, text + scan.done, bytes - scan.done, first && scan.done == 0);
}

/* Normalizes a gap between tokens with normalized = false, and encodes it. */
static inline exl2_result exl2__encode_normal(exl2__encode_job *e, const char *text, size_t bytes, bool first)
{
    const char *whole = e->text;
    const uint8_t *marks = e->marks;
    bool forged = e->v->added.count > e->v->added.raw_count; /* else the gap is not searched, and needs no marks */
    exl2__normal_view view = { text, bytes, forged ? marks : NULL, (size_t)(text - whole) };
    EXL2__TRY(exl2__normal_run(e->c, &e->v->normal, e->normal, &view, &e->allowed));
    e->text = view.text - view.marks_at; /* marks_at is 0 in rewritten text */
    e->marks = view.marks;
    exl2_result result = exl2__encode_set(e, 1, view.text, view.bytes, first);
    e->text = whole;
    e->marks = marks;
    return result;
}

/* Two levels: set 0 calls set 1, which calls words. */
static inline exl2_result exl2__encode_gap(exl2__encode_job *e, uint32_t set, const char *text, size_t bytes,
                                           bool first)
{
    return bytes == 0 ? EXL2_OK
         : set == 0 ? exl2__encode_normal(e, text, bytes, first) : exl2__encode_words(e, text, bytes, first);
}

/* ---- text that is not valid UTF-8 ---- */

/* Copies the text and its marks, with U+FFFD for each maximal invalid part, and returns the size of the copy. out NULL:
   only counts. */
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

EXL2__PRIVATE exl2_result exl2__encode_repaired(exl2__encode_job *e, size_t bytes)
{
    size_t repaired = exl2__encode_repair(e, bytes, NULL, NULL), mark_bytes = e->marks ? repaired / 8 + 1 : 0;
    void *memory;
    EXL2__TRY(exl2__alloc(e->c, repaired + mark_bytes, 1, EXL2_MEM_GENERAL, &memory));
    uint8_t *marks = (uint8_t *)memory + repaired;
    memset(marks, 0, mark_bytes);
    exl2__encode_repair(e, bytes, (char *)memory, marks);
    e->text = (const char *)memory;
    e->marks = e->marks ? marks : NULL;
    e->allowed = exl2__normal_allowance(repaired);
    exl2_result result = exl2__encode_set(e, 0, e->text, repaired, true);
    exl2__free(e->c, memory, repaired + mark_bytes, EXL2_MEM_GENERAL);
    return result;
}

/* Writes the ids of the text, at most `cap` of them, and their full number to *need. BOS is not added.
   marks: NULL: no byte is marked. A special or guarded token that touches a marked byte is not matched; it stays text.
   flags: EXL2_TEXT_PLAIN matches no special token at all.
   Fails with EXL2_ERR_TOO_SMALL when cap is below *need (the error record then stays as it is), with FORMAT when the
   normalizer exceeds its limit, and when memory is short. */
EXL2__PRIVATE exl2_result exl2__encode(exl2__ctx *c, const exl2__vocab *v, const char *text, size_t bytes,
                                       const exl2__encode_marks *marks, uint32_t flags, exl2_token *out, size_t cap,
                                       size_t *need)
{
    *need = 0;
    if (!v->present) {
        return exl2__fail(c, EXL2_ERR_STATE,
                          "the model folder has no tokenizer.json: it can run token ids, but not text");
    }
    if (bytes >= EXL2__ENCODE_BYTES_MAX) {
        return exl2__fail(c, EXL2_ERR_ARG, "the text has %zu bytes, at most %u can be tokenized at once", bytes,
                          EXL2__ENCODE_BYTES_MAX - 1);
    }
    exl2__encode_job e = { .c = c, .v = v, .text = text, .marks = marks ? marks->from_message : NULL,
                           .guarded = marks ? marks->guarded : NULL, .plain = (flags & EXL2_TEXT_PLAIN) != 0,
                           .out = out, .cap = cap, .allowed = exl2__normal_allowance(bytes) };
    e.normal[0] = exl2__normal_borrow(v->rewritten[0], EXL2__VOCAB_NORMAL_BYTES);
    e.normal[1] = exl2__normal_borrow(v->rewritten[1], EXL2__VOCAB_NORMAL_BYTES);
    bool valid = exl2__unicode_valid(text, bytes);
    exl2_result result = valid ? exl2__encode_set(&e, 0, text, bytes, true) : exl2__encode_repaired(&e, bytes);
    exl2__normal_free(c, &e.normal[0]);
    exl2__normal_free(c, &e.normal[1]);
    EXL2__TRY(result);
    *need = e.count;
    return e.count > cap ? EXL2_ERR_TOO_SMALL : EXL2_OK;
}

#endif
