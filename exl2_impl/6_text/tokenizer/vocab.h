/* vocab.h: a model's tokenizer in memory: bytes of every token, merges, added tokens, rules for words.
   takes: what vocab_read.h fills in.
   gives: exl2__vocab, exl2__vocab_close, exl2__vocab_piece, exl2__vocab_choose_bos, exl2__vocab_prefix,
          exl2__vocab_suffix, exl2__vocab_token.
   owns:  one block for all of it, until exl2__vocab_close. */
#ifndef EXL2__VOCAB_H
#define EXL2__VOCAB_H

#include "added.h"
#include "merges.h"
#include "normal.h"
#include "words.h"

#define EXL2__VOCAB_STRIP_FIRST 255 /* strip: all spaces with which the first token begins (Metaspace) */
#define EXL2__VOCAB_WORD_BYTES 4096 /* for longer words, work space is allocated */

#define EXL2__VOCAB_PREFIX_MAX 4
#define EXL2__VOCAB_NORMAL_BYTES 16384 /* for longer normalized text, memory is allocated */

/* Zeroed: no tokenizer. Encoding writes to `work` and to the regex programs: one thread at a time. */
typedef struct exl2__vocab {
    bool present;
    uint64_t bytes;                 /* size of the block */
    uint32_t id_count;              /* all ids are below it; some may have no piece */
    uint32_t piece_bytes_max;       /* size of the longest piece */
    exl2_token bos, eos, unk, pad;  /* from tokenizer_config.json; bos: the post-processor's, if any; -1 = none */
    exl2_token prefix[EXL2__VOCAB_PREFIX_MAX]; /* tokens put before raw text, mostly bos */
    exl2_token suffix[EXL2__VOCAB_PREFIX_MAX]; /* tokens that EXL2_TEXT_END puts after raw text */
    uint32_t prefix_count, suffix_count;
    int8_t add_bos;                 /* 1 or 0 as the files say; -1: they do not say */
    const char *bos_text, *eos_text, *unk_text, *pad_text; /* from tokenizer_config.json, for templates; NULL = none */

    exl2__normal_rules normal;
    exl2__words_rules words;
    exl2__pieces pieces;
    exl2__bpe bpe;
    exl2__added added;
    uint32_t byte_ids[256];         /* token of each single byte; EXL2__PIECES_NONE: unk_id is used */
    uint32_t raw_ids[256];          /* token <0xHH> of each byte or EXL2__PIECES_NONE, for characters without a token */
    uint32_t unk_id;                /* model.unk_token; EXL2__PIECES_NONE: text without a token is dropped */
    bool ignore_merges, fuse_unk, byte_fallback;
    uint8_t strip;                  /* spaces that decoding strips at the beginning, or EXL2__VOCAB_STRIP_FIRST */
    char *rewritten[2];             /* [exl2__normal_bytes(EXL2__VOCAB_NORMAL_BYTES)]; NULL: there is no normalizer */
    void *work;                     /* [exl2__bpe_work_bytes(EXL2__VOCAB_WORD_BYTES)] */
    exl2__arena memory;
} exl2__vocab;

/* Decoded bytes of the token, which need not be whole code points; NULL for ids without a piece. */
static inline const char *exl2__vocab_piece(const exl2__vocab *v, exl2_token id, size_t *bytes, bool *special)
{
    const char *text = exl2__pieces_text(&v->pieces, (uint32_t)id, bytes);
    *special = text && (v->pieces.flags[id] & EXL2__PIECES_SPECIAL);
    return text;
}

/* Decides on BOS once config.json is known. Its `bos` (-1 = none) replaces that of tokenizer_config.json. It is put
   before raw text if the files say so, or if they leave it open and it is `wanted`. A prefix from the post-processor
   stays as it is. */
EXL2__PRIVATE void exl2__vocab_choose_bos(exl2__vocab *v, exl2_token bos, bool wanted)
{
    size_t bytes;
    if (v->prefix_count == 0) {
        v->bos = bos >= 0 ? bos : v->bos;
        v->prefix[0] = v->bos;
        v->prefix_count = v->add_bos != 0 && (v->add_bos == 1 || wanted) && v->bos >= 0 &&
                          exl2__pieces_text(&v->pieces, (uint32_t)v->bos, &bytes);
    }
}

/* Writes the tokens that come before raw text, at most `cap` of them, and returns their full number. */
static inline uint32_t exl2__vocab_prefix(const exl2__vocab *v, uint32_t flags, exl2_token *out, size_t cap)
{
    uint32_t count = flags & EXL2_TEXT_NO_BOS ? 0 : v->prefix_count;
    for (uint32_t i = 0; i < count && i < cap; i++) {
        out[i] = v->prefix[i];
    }
    return count;
}

/* The same for the tokens that come after raw text. */
static inline uint32_t exl2__vocab_suffix(const exl2__vocab *v, uint32_t flags, exl2_token *out, size_t cap)
{
    uint32_t count = flags & EXL2_TEXT_END ? v->suffix_count : 0;
    for (uint32_t i = 0; i < count && i < cap; i++) {
        out[i] = v->suffix[i];
    }
    return count;
}

/* The added token with this content, or -1. */
static inline exl2_token exl2__vocab_token(const exl2__vocab *v, const char *content, size_t bytes)
{
    const exl2__added_token *token = exl2__added_find(&v->added, content, bytes);
    for (uint32_t i = v->added.raw_count; !token && i < v->added.count; i++) { /* if normalized differs */
        size_t other_bytes;
        const char *other = exl2__pieces_text(&v->pieces, v->added.tokens[i].id, &other_bytes);
        token = other_bytes == bytes && memcmp(other, content, bytes) == 0 ? &v->added.tokens[i] : NULL;
    }
    return token ? (exl2_token)token->id : -1;
}

/* Accepts zeroed, partly opened and closed ones. */
EXL2__PRIVATE void exl2__vocab_close(exl2__ctx *c, exl2__vocab *v)
{
    exl2__arena_close(c, &v->memory);
    *v = (exl2__vocab){ 0 };
}

#endif
