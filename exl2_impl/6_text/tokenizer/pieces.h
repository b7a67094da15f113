/* pieces.h: the bytes of every token id, and a hash table that finds ids by bytes.
   takes: token strings of tokenizer.json, in which each character stands for one byte (ByteLevel), or U+2581 stands for
          a space (SentencePiece).
   gives: exl2__pieces, exl2__pieces_load, exl2__pieces_text, exl2__pieces_add, exl2__pieces_find.
   owns:  nothing; the arrays lie in the caller's arenas. */
#ifndef EXL2__PIECES_H
#define EXL2__PIECES_H

#include "../../0_base/arena.h"
#include "../unicode/unicode.h"

#define EXL2__PIECES_NONE UINT32_MAX

typedef enum exl2__pieces_flag {
    EXL2__PIECES_USED = 1,    /* the id has a piece */
    EXL2__PIECES_BYTES = 2,   /* the piece is in model.vocab, and merging can produce it */
    EXL2__PIECES_SPECIAL = 4,
    EXL2__PIECES_PLANNED = 8, /* an added token's content may become the id's piece */
    EXL2__PIECES_RAW = 16     /* a token such as <0xE2>: one byte, which may be a part of a character */
} exl2__pieces_flag;

#define EXL2__PIECES_MARK "\xE2\x96\x81" /* U+2581, the space of SentencePiece */

typedef struct exl2__pieces {
    char *text;          /* all pieces, in order of id; the 8 bytes before them are readable */
    uint32_t *starts;    /* [count + 1] piece i is text[starts[i] .. starts[i + 1]) */
    uint8_t *flags;      /* [count] exl2__pieces_flag */
    uint32_t *slots;     /* [mask + 1] open addressing over BYTES pieces: id + 1 in the low 23 bits, above them
                            9 bits of the hash; 0 = empty. NULL: ids cannot be found by bytes */
    uint32_t count, mask, longest;
    uint64_t probes;     /* slots that adding tried beyond the first ones */
    bool marked;         /* U+2581 is a space, and is stored as one; else characters stand for bytes */
    bool raw_bytes;      /* if `marked`: the decoder turns <0xHH> into a byte */
} exl2__pieces;

/* The inverse of GPT-2's byte map: the byte for which a character stands, or UINT32_MAX. 'A' stands for 0x41, U+0120
   for ' ', U+010A for '\n', U+00E9 for the single byte 0xE9. */
static inline uint32_t exl2__pieces_byte(uint32_t code)
{
    if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xFF && code != 0xAD)) {
        return code;
    }
    uint32_t n = code - 0x100; /* the other 68 bytes in order: 00-20, 7F-A0, AD */
    if (n <= 0x20) {
        return n;
    }
    return n <= 0x42 ? n - 0x21 + 0x7F : n == 0x43 ? 0xAD : UINT32_MAX;
}

/* Copies a token string as the bytes for which it stands, and returns their number; out may be text. If a character is
   not in the byte map, such as the space in "<a b>", the text is copied unchanged, as the ByteLevel decoder does, and
   *unmapped becomes true. */
EXL2__NOINLINE
EXL2__PRIVATE size_t exl2__pieces_unmap(char *out, const char *text, size_t bytes, bool *unmapped)
{
    size_t used = 0;
    for (int writes = 0; writes < 2; writes++) {
        used = 0;
        for (size_t at = 0; at < bytes; used++) {
            uint32_t code;
            at += exl2__unicode_next(text + at, bytes - at, &code);
            uint32_t byte = exl2__pieces_byte(code);
            if (byte == UINT32_MAX) {
                memmove(out, text, bytes);
                *unmapped = true;
                return bytes;
            }
            if (writes) {
                out[used] = (char)byte;
            }
        }
    }
    return used;
}

/* The byte of a string like <0x0A>, or -1. Its digits are capitals. */
EXL2__NOINLINE
EXL2__PRIVATE int exl2__pieces_raw(const char *text, size_t bytes)
{
    uint32_t value;
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || text[3] >= 'a' || text[4] >= 'a') {
        return -1;
    }
    return exl2__hex_read(text + 3, 2, 2, &value) == 2 ? (int)value : -1;
}

/* Copies text with a space for each U+2581, and returns the size; out may be text. *spaced becomes true if the text
   contains a real space. */
EXL2__NOINLINE
EXL2__PRIVATE size_t exl2__pieces_unmark(char *out, const char *text, size_t bytes, bool *spaced)
{
    size_t used = 0;
    for (size_t at = 0; at < bytes; used++) {
        bool mark = text[at] == EXL2__PIECES_MARK[0] && bytes - at >= 3 && memcmp(text + at, EXL2__PIECES_MARK, 3) == 0;
        *spaced = *spaced || text[at] == ' ';
        out[used] = mark ? ' ' : text[at];
        at += mark ? 3 : 1;
    }
    return used;
}

/* Decodes the most frequent kind of token string, all in one 64-bit word: at most eight bytes, of which the first
   character may be a space (written as U+2581 or U+0120) and all others stand for themselves. Returns the number of
   bytes that *word then has, or 0 for any other string. */
static inline size_t exl2__pieces_load_short(const exl2__pieces *p, uint64_t *word, size_t bytes)
{
    uint32_t lead = p->marked ? ((*word & 0xFFFFFF) == 0x8196E2) * 3u : ((*word & 0xFFFF) == 0xA0C4) * 2u;
    uint64_t rest = *word >> 8 * lead, other;
    if (p->marked) {
        other = exl2__eight_is(rest, 0xE2) | exl2__eight_is(rest, ' ');
    } else { /* bytes of the string (not the zeros after it) below 0x21 or above 0x7E */
        uint64_t used = UINT64_MAX >> (64 - 8 * bytes) >> 8 * lead;
        other = (((rest - EXL2__EIGHT(0x21u)) | rest) & EXL2__EIGHT(0x80u) & used) | exl2__eight_is(rest, 0x7F);
    }
    *word = lead ? rest << 8 | ' ' : rest;
    return other ? 0 : bytes - lead + (lead > 0);
}

/* Copies a token string as the bytes to which it decodes, and returns their number; out may be text. *kind becomes
   EXL2__PIECES_RAW for a <0xHH> that the decoder replaces by a byte, EXL2__PIECES_BYTES for a token that merging can
   produce, else 0. Merging cannot produce a string with a real space, because text has no spaces left when it is
   merged. The eight bytes before the end of `text` are readable, even if it is shorter; eight bytes at `out` are
   writable. */
EXL2__HOT
EXL2__PRIVATE size_t exl2__pieces_load(const exl2__pieces *p, char *out, const char *text, size_t bytes, uint8_t *kind)
{
    bool unmapped = false;
    int raw = p->marked && p->raw_bytes && bytes == 6 ? exl2__pieces_raw(text, bytes) : -1;
    *kind = EXL2__PIECES_BYTES;
    if (raw >= 0) {
        out[0] = (char)raw;
        *kind = EXL2__PIECES_RAW;
        return 1;
    }
    if (bytes - 1 < 8) {
        uint64_t word = exl2__eight_before(text + bytes, bytes);
        size_t used = exl2__pieces_load_short(p, &word, bytes);
        if (used) {
            exl2__store64(out, word);
            return used;
        }
    }
    bytes = p->marked ? exl2__pieces_unmark(out, text, bytes, &unmapped)
                      : exl2__pieces_unmap(out, text, bytes, &unmapped);
    *kind = unmapped ? 0 : EXL2__PIECES_BYTES;
    return bytes;
}

/* NULL for an id without a piece. */
static inline const char *exl2__pieces_text(const exl2__pieces *p, uint32_t id, size_t *bytes)
{
    if (id >= p->count || !(p->flags[id] & EXL2__PIECES_USED)) {
        *bytes = 0;
        return NULL;
    }
    *bytes = p->starts[id + 1] - p->starts[id];
    return p->text + p->starts[id];
}

/* Allocates the hash table for `entries` pieces, in memory that is zeroed already; with a dry arena it only counts
   bytes. */
static inline void exl2__pieces_make_slots(exl2__pieces *p, exl2__arena *arena, uint32_t entries)
{
    uint64_t slots = 16;
    while (slots < (uint64_t)entries * 2) {
        slots *= 2;
    }
    p->mask = (uint32_t)(slots - 1);
    p->slots = (uint32_t *)exl2__arena_alloc(arena, slots * sizeof *p->slots);
}

/* Ids are below 2^22 (EXL2__VOCAB_RULES_IDS_MAX). */
#define EXL2__PIECES_ID(slot) (((slot) & 0x7FFFFFu) - 1)
#define EXL2__PIECES_TAG(hash) ((uint32_t)((hash) >> 55) << 23)

/* The hash of text. `tail`: its last bytes % 8 bytes, as exl2__eight_load gives them. */
static inline uint64_t exl2__pieces_mix(const char *text, size_t bytes, uint64_t tail)
{
    uint64_t h = bytes;
    for (; bytes >= 8; text += 8, bytes -= 8) {
        h = (h ^ exl2__load64(text)) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    h = (h ^ tail) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 32) * 0x94D049BB133111EBu;
    return h ^ h >> 29;
}

static inline uint64_t exl2__pieces_hash(const char *text, size_t bytes)
{
    return exl2__pieces_mix(text, bytes, exl2__eight_load(text + (bytes & ~(size_t)7), bytes & 7));
}

/* Is text[0 .. bytes) the piece of this id? The id is below `count`. */
static inline bool exl2__pieces_is(const exl2__pieces *p, uint32_t id, const char *text, size_t bytes)
{
    uint32_t start = p->starts[id];
    return p->starts[id + 1] - start == bytes && exl2__eight_same(p->text + start, text, bytes);
}

/* The slot of the BYTES piece with this text, or the empty slot where it belongs. */
EXL2__HOT
EXL2__PRIVATE uint32_t exl2__pieces_slot(const exl2__pieces *p, const char *text, size_t bytes, uint64_t hash,
                                         uint64_t *probes)
{
    uint32_t at = (uint32_t)hash & p->mask, tag = EXL2__PIECES_TAG(hash);
    for (uint32_t slot; (slot = p->slots[at]) != 0; at = (at + 1) & p->mask, (*probes)++) {
        if ((slot & ~0x7FFFFFu) == tag && exl2__pieces_is(p, EXL2__PIECES_ID(slot), text, bytes)) {
            break;
        }
    }
    return at;
}

/* Id of the first piece whose slot has the same 9 bits of the hash, or EXL2__PIECES_NONE. The text is not compared. */
static inline uint32_t exl2__pieces_likely(const exl2__pieces *p, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & p->mask, tag = EXL2__PIECES_TAG(hash), slot;
    while ((slot = p->slots[at]) != 0 && (slot & ~0x7FFFFFu) != tag) {
        at = (at + 1) & p->mask;
    }
    return slot ? EXL2__PIECES_ID(slot) : EXL2__PIECES_NONE;
}

/* Adds a piece to the table; `hash` is the exl2__pieces_hash of its bytes. false: another piece has the same text, or
   the file's texts are crafted to collide in the table. */
static inline bool exl2__pieces_add(exl2__pieces *p, uint32_t id, uint64_t hash)
{
    const char *text = p->text + p->starts[id];
    size_t bytes = p->starts[id + 1] - p->starts[id];
    uint32_t at = exl2__pieces_slot(p, text, bytes, hash, &p->probes);
    bool exists = p->slots[at] != 0;
    p->slots[at] = EXL2__PIECES_TAG(hash) | (id + 1);
    return !exists && p->probes <= 16u * (uint64_t)p->mask + 4096;
}

/* Id of the BYTES piece with this text, or EXL2__PIECES_NONE. `hash` is the text's exl2__pieces_hash. */
static inline uint32_t exl2__pieces_at(const exl2__pieces *p, const char *text, size_t bytes, uint64_t hash)
{
    uint64_t probes = 0;
    uint32_t slot = bytes > p->longest ? 0 : p->slots[exl2__pieces_slot(p, text, bytes, hash, &probes)];
    return slot ? EXL2__PIECES_ID(slot) : EXL2__PIECES_NONE;
}

/* The same without a hash. */
EXL2__HOT
EXL2__PRIVATE uint32_t exl2__pieces_find(const exl2__pieces *p, const char *text, size_t bytes)
{
    return bytes > p->longest ? EXL2__PIECES_NONE
                              : exl2__pieces_at(p, text, bytes, exl2__pieces_hash(text, bytes));
}

#endif
