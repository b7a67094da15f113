/* import_spm.h: makes the merges of a SentencePiece vocabulary, which has scores instead, and writes them.
   takes: the vocabulary, as import_text.h has read it.
   gives: exl2__import_spm_write.
   owns:  the order of the pieces, until exl2__import_spm_write returns.

   SentencePiece's BPE joins the two neighbours that make the piece with the highest score. So each way to cut a piece
   into two pieces is a merge, and merges are ordered by the score of their result. User-defined pieces, mostly runs of
   spaces or line ends, come before all others, the longest first. */
#ifndef EXL2__IMPORT_SPM_H
#define EXL2__IMPORT_SPM_H

#include "../write.h"
#include "import_text.h"

/* Bound of the sum of the squared lengths of all pieces, in bytes: the time that cutting them costs. Gemma 3 has
   2.6e7. */
#define EXL2__IMPORT_SPM_WORK ((uint64_t)1 << 30)

typedef struct exl2__import_spm {
    const exl2__import_text *text;
    uint32_t *order; /* [count] ids of normal and user-defined pieces */
    uint32_t count;
} exl2__import_spm;

static inline float exl2__import_spm_score(const exl2__import_text *t, uint32_t id)
{
    return exl2__bits_float(exl2__load32(t->scores + (size_t)id * 4));
}

/* Does the piece `a` of the order come before `b`? */
EXL2__PRIVATE bool exl2__import_spm_before(const void *owner, uint32_t a, uint32_t b)
{
    const exl2__import_spm *s = (const exl2__import_spm *)owner;
    const exl2__import_text *t = s->text;
    uint32_t ids[2] = { s->order[a], s->order[b] };
    bool user[2];
    for (uint32_t i = 0; i < 2; i++) {
        user[i] = exl2__import_text_type_of(t, ids[i]) == EXL2__IMPORT_TEXT_USER;
    }
    if (user[0] != user[1]) {
        return user[0];
    }
    if (user[0] && t->tokens[ids[0]].bytes != t->tokens[ids[1]].bytes) {
        return t->tokens[ids[0]].bytes > t->tokens[ids[1]].bytes;
    }
    float scores[2] = { exl2__import_spm_score(t, ids[0]), exl2__import_spm_score(t, ids[1]) };
    if (!user[0] && (scores[0] < scores[1] || scores[0] > scores[1])) {
        return scores[0] > scores[1];
    }
    return ids[0] < ids[1];
}

EXL2__PRIVATE void exl2__import_spm_swap(void *owner, uint32_t a, uint32_t b)
{
    const exl2__import_spm *s = (const exl2__import_spm *)owner;
    uint32_t kept = s->order[a];
    s->order[a] = s->order[b];
    s->order[b] = kept;
}

/* Lists and sorts the pieces that merges can make. */
EXL2__PRIVATE exl2_result exl2__import_spm_sort(exl2__import_spm *s)
{
    const exl2__import_text *t = s->text;
    uint64_t work = 0;
    for (uint32_t id = 0; id < t->count; id++) {
        uint32_t type = exl2__import_text_type_of(t, id);
        uint64_t bytes = exl2__min64(t->tokens[id].bytes, 1u << 16);
        if (type == EXL2__IMPORT_TEXT_NORMAL || type == EXL2__IMPORT_TEXT_USER) {
            s->order[s->count++] = id;
            work += bytes * bytes;
        }
        if (work > EXL2__IMPORT_SPM_WORK) {
            return exl2__fail(t->g->ctx, EXL2_ERR_UNSUPPORTED,
                              "%s: tokenizer.ggml.tokens[%u]: the texts of the vocabulary are too long to find its "
                              "merges", t->g->path, id);
        }
    }
    exl2__sort_items items = { s, exl2__import_spm_before, exl2__import_spm_swap };
    exl2__sort(&items, s->count);
    return EXL2_OK;
}

/* Writes the merges that make piece `id`, that with the longest left half first. */
EXL2__PRIVATE void exl2__import_spm_write_piece(exl2__write *w, const exl2__import_text *t, uint32_t id,
                                                const char **comma)
{
    const char *what = "a token of tokenizer.ggml.tokens", *data = t->tokens[id].data;
    uint64_t bytes = t->tokens[id].bytes;
    for (uint64_t cut = bytes - 1; cut > 0; cut--) {
        bool inside = ((uint8_t)data[cut] & 0xC0) == 0x80; /* of a character */
        if (inside || exl2__strtab_find(&t->names, data, (size_t)cut, NULL) == UINT32_MAX ||
            exl2__strtab_find(&t->names, data + cut, (size_t)(bytes - cut), NULL) == UINT32_MAX) {
            continue;
        }
        exl2__write_format(w, "%s[", *comma);
        exl2__write_quoted(w, what, data, cut);
        exl2__write_format(w, ", ");
        exl2__write_quoted(w, what, data + cut, bytes - cut);
        exl2__write_format(w, "]");
        *comma = ",\n";
    }
}

/* Writes the elements of the list "merges". */
EXL2__PRIVATE exl2_result exl2__import_spm_write(exl2__write *w, const exl2__import_text *t)
{
    exl2__import_spm s = { .text = t };
    exl2__arena memory = { 0 };
    const char *comma = "\n";
    uint64_t bytes = exl2__align_up((uint64_t)t->count * sizeof *s.order, EXL2__ARENA_ALIGN);
    EXL2__TRY(exl2__arena_open(t->g->ctx, &memory, bytes, EXL2_MEM_GENERAL));
    s.order = (uint32_t *)exl2__arena_alloc(&memory, bytes);
    exl2_result result = exl2__import_spm_sort(&s);
    for (uint32_t i = 0; result == EXL2_OK && i < s.count; i++) {
        exl2__import_spm_write_piece(w, t, s.order[i], &comma);
    }
    exl2__arena_close(t->g->ctx, &memory);
    return result;
}

#endif
