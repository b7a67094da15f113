/* vocab.h: a model's tokenizer in memory: bytes of every token, merges, added tokens, rules for words.
   takes: what vocab_read.h fills in.
   gives: exl2__vocab, exl2__vocab_close, exl2__vocab_piece, exl2__vocab_settle_bos, exl2__vocab_prefix,
          exl2__vocab_token.
   owns:  one block for all of it, until exl2__vocab_close. */
#ifndef EXL2__VOCAB_H
#define EXL2__VOCAB_H

#include "added.h"
#include "merges.h"
#include "normal.h"
#include "words.h"

#define EXL2__VOCAB_STRIP_FIRST 255 /* strip: all spaces that the first token begins with (Metaspace) */
#define EXL2__VOCAB_WORD_BYTES 4096 /* longer words are merged in memory of their own */

#define EXL2__VOCAB_PREFIX_MAX 4
#define EXL2__VOCAB_NORMAL_BYTES 16384 /* text that the normalizer makes longer takes memory of its own */

/* Zeroed: no tokenizer. Encoding uses `work` and the programs of patterns, so one thread at a time. */
typedef struct exl2__vocab {
    bool present;
    uint64_t bytes;                 /* size of the block */
    uint32_t id_count;              /* ids are below; some may have no piece */
    uint32_t piece_bytes_max;       /* of the longest piece */
    exl2_token bos, eos, unk, pad;  /* of tokenizer_config.json; -1 = none. bos: of the post-processor if it has one */
    exl2_token prefix[EXL2__VOCAB_PREFIX_MAX]; /* what comes before raw text, mostly bos */
    uint32_t prefix_count;
    int8_t add_bos;                 /* as the files say: 1 or 0; -1: they do not */
    const char *bos_text, *eos_text, *unk_text, *pad_text; /* of tokenizer_config.json, for templates; NULL = none */

    exl2__normal_rules normal;
    exl2__words_rules words;
    exl2__pieces pieces;
    exl2__bpe bpe;
    exl2__added added;
    uint32_t byte_ids[256];         /* first symbols; EXL2__PIECES_NONE: unk_id stands in */
    uint32_t raw_ids[256];          /* <0xHH>, for characters that have no token; EXL2__PIECES_NONE: unk_id */
    uint32_t unk_id;                /* of the model; EXL2__PIECES_NONE: such bytes vanish */
    bool ignore_merges, fuse_unk, byte_fallback;
    uint8_t strip;                  /* spaces that decoding takes off the beginning, or EXL2__VOCAB_STRIP_FIRST */
    char *rewritten[2];             /* exl2__normal_bytes(EXL2__VOCAB_NORMAL_BYTES); NULL: there is no normalizer */
    void *work;                     /* exl2__bpe_work_bytes(EXL2__VOCAB_WORD_BYTES) */
    exl2__arena memory;
} exl2__vocab;

/* Decoded bytes of the token, which need not be whole code points; NULL for ids without a piece. */
static inline const char *exl2__vocab_piece(const exl2__vocab *v, exl2_token id, size_t *bytes, bool *special)
{
    const char *text = exl2__pieces_text(&v->pieces, (uint32_t)id, bytes);
    *special = text && (v->pieces.flags[id] & EXL2__PIECES_SPECIAL);
    return text;
}

/* config.json comes in: its `bos` (-1 = none) is preferred to that of tokenizer_config.json, and comes before raw text
   where the files leave that open and it is `wanted`. */
EXL2__COLD
static void exl2__vocab_settle_bos(exl2__vocab *v, exl2_token bos, bool wanted)
{
    size_t bytes;
    if (v->prefix_count == 0) {
        v->bos = bos >= 0 ? bos : v->bos;
        v->prefix[0] = v->bos;
        v->prefix_count = v->add_bos != 0 && (v->add_bos == 1 || wanted) && v->bos >= 0 &&
                          exl2__pieces_text(&v->pieces, (uint32_t)v->bos, &bytes);
    }
}

/* Writes what comes before raw text, up to `cap` tokens of it; returns how many there are. */
static inline uint32_t exl2__vocab_prefix(const exl2__vocab *v, uint32_t flags, exl2_token *out, size_t cap)
{
    uint32_t count = flags & EXL2_TEXT_NO_BOS ? 0 : v->prefix_count;
    for (uint32_t i = 0; i < count && i < cap; i++) {
        out[i] = v->prefix[i];
    }
    return count;
}

/* The added token with this content, or -1. */
static inline exl2_token exl2__vocab_token(const exl2__vocab *v, const char *content, size_t bytes)
{
    const exl2__added_token *token = exl2__added_find(&v->added, content, bytes);
    for (uint32_t i = v->added.raw_count; !token && i < v->added.count; i++) { /* normalized: may read otherwise */
        size_t other_bytes;
        const char *other = exl2__pieces_text(&v->pieces, v->added.tokens[i].id, &other_bytes);
        token = other_bytes == bytes && memcmp(other, content, bytes) == 0 ? &v->added.tokens[i] : NULL;
    }
    return token ? (exl2_token)token->id : -1;
}

/* Zeroed, half-made and closed ones are fine. */
static void exl2__vocab_close(exl2__ctx *c, exl2__vocab *v)
{
    exl2__arena_close(c, &v->memory);
    *v = (exl2__vocab){ 0 };
}

#endif
