/* grammar.h: compiles a grammar of any kind; the result says which tokens may come next.
   takes: the source text and its kind; a model's token table (exl2__grammar_vocab), which must outlive the grammar.
   gives: exl2__grammar, exl2__grammar_open, exl2__grammar_restrict, exl2__grammar_intersect, exl2__grammar_close.
   owns:  the automaton, its states and its masks, from open to close. */
#ifndef EXL2__GRAMMAR_H
#define EXL2__GRAMMAR_H

#include "grammar_branch.h"
#include "grammar_common.h"
#include "grammar_forced.h"

#define EXL2__GRAMMAR_CACHE_BYTES (4u << 20)
#define EXL2__GRAMMAR_SOURCE_MAX (1u << 20)
#define EXL2__GRAMMAR_INTERSECT_PLACES (1u << 15)     /* states of an intersection, at most */
#define EXL2__GRAMMAR_INTERSECT_BYTES ((uint64_t)8 << 20) /* memory for those of each grammar meanwhile */

/* Jobs use only `mask`: exl2__grammar_mask_join, _get, _accept, _shortest, _leave, and exl2__grammar_forced_token. */
typedef struct exl2__grammar {
    exl2__grammar_link link;
    exl2__grammar_mask mask;
    uint64_t cache_bytes;
} exl2__grammar;

EXL2__PRIVATE void exl2__grammar_close(exl2__ctx *c, exl2__grammar *g)
{
    exl2__grammar_mask_close(c, &g->mask);
    exl2__grammar_link_close(c, &g->link);
}

EXL2__PRIVATE void exl2__grammar_read(exl2__grammar_code *g, exl2_grammar_kind kind, const char *source, size_t bytes,
                                      const exl2__grammar_vocab *vocab, bool strict)
{
    switch (kind) {
    case EXL2_GRAMMAR_JSON:
        exl2__grammar_branch_read(g, "{}", 2, vocab, false);
        break;
    case EXL2_GRAMMAR_JSON_SCHEMA:
        exl2__grammar_branch_read(g, source, bytes, vocab, strict);
        break;
    case EXL2_GRAMMAR_REGEX:
        exl2__grammar_code_rule(g);
        exl2__grammar_code_define(g, 0, exl2__grammar_regex_read(g, source, bytes, true));
        break;
    case EXL2_GRAMMAR_EBNF:
        exl2__grammar_ebnf_read(g, source, bytes);
        break;
    default:
        exl2__grammar_ebnf_choices(g, source, bytes);
        break;
    }
}

/* *g must not move while it is open. A cache_bytes of 0 means CACHE_BYTES. `strict` is that of exl2_grammar_desc. */
EXL2__PRIVATE exl2_result exl2__grammar_open(exl2__ctx *c, exl2_grammar_kind kind, bool strict, const char *source,
                                             size_t bytes, const exl2__grammar_vocab *vocab, uint64_t cache_bytes,
                                             exl2__grammar *g)
{
    static const char *const labels[] = { "grammar", "schema", "regex", "grammar", "choices" };
    exl2__grammar_code code;
    size_t mark = exl2__utf8_mark(source, bytes);
    source += mark;
    bytes -= mark;
    *g = (exl2__grammar){ .cache_bytes = cache_bytes ? cache_bytes : EXL2__GRAMMAR_CACHE_BYTES };
    if (bytes > EXL2__GRAMMAR_SOURCE_MAX) {
        return exl2__fail(c, EXL2_ERR_BUDGET,
                          "%s: the source has %zu bytes; at most %u are supported", labels[kind], bytes,
                          EXL2__GRAMMAR_SOURCE_MAX);
    }
    exl2_result result = exl2__grammar_code_open(c, &code, labels[kind]);
    if (result == EXL2_OK) {
        exl2__grammar_read(&code, kind, source, bytes, vocab, strict);
        result = exl2__grammar_link_open(&code, vocab, &g->link);
    }
    if (result == EXL2_OK && exl2__grammar_link_is_empty(&g->link)) {
        result = code.doubt[0] ? exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s", code.doubt)
            : exl2__fail(c, EXL2_ERR_FORMAT, "%s: no text matches, or the model has no tokens for the bytes of one",
                         code.label);
    }
    exl2__grammar_code_close(&code);
    if (result == EXL2_OK) {
        result = exl2__grammar_mask_open(c, &g->link, vocab, g->cache_bytes, &g->mask);
    }
    if (result < 0) {
        exl2__grammar_close(c, g);
    }
    return result;
}

/* The grammar for texts without the banned tokens (bits, as in a mask), with states and masks of its own; `from` must
   outlive it, and *g must not move. *same: bans change nothing, and *g is closed. EXL2_ERR_ARG: no text is left. */
EXL2__PRIVATE exl2_result exl2__grammar_restrict(exl2__ctx *c, const exl2__grammar *from, const uint32_t *banned,
                                                 exl2__grammar *g, bool *same)
{
    const exl2__grammar_vocab *vocab = from->mask.vocab;
    *g = (exl2__grammar){ 0 };
    exl2_result result = exl2__grammar_link_restrict(c, &from->link, vocab, banned, &g->link, same);
    if (result >= 0 && !*same) {
        result = exl2__grammar_mask_open(c, &g->link, vocab, from->cache_bytes, &g->mask);
    }
    if (result < 0) {
        exl2__grammar_close(c, g);
    }
    return result;
}

/* The grammar for texts that each of `from` [count] allows; all of them must outlive it, and *g must not move. Its
   masks are what theirs have in common, and each text can end. banned: bits of tokens that no end may need, or NULL.
   EXL2_ERR_ARG: no text fits all of them. */
EXL2__COLD
EXL2__PRIVATE exl2_result exl2__grammar_intersect(exl2__ctx *c, exl2__grammar *const *from, uint32_t count,
                                                  const uint32_t *banned, exl2__grammar *g)
{
    exl2__grammar_code code;
    exl2__grammar_product product;
    exl2__grammar_mask_bound *bounds = NULL;
    const exl2__grammar_vocab *vocab = from[0]->mask.vocab;
    *g = (exl2__grammar){ .mask.vocab = vocab, .mask.factor_count = count };
    EXL2__TRY(exl2__grammar_code_open(c, &code, "grammars"));
    exl2__grammar_product_open(&code, vocab, &product);
    product.places_max = EXL2__GRAMMAR_INTERSECT_PLACES;
    for (uint32_t i = 0; i < count; i++) {
        exl2__grammar_product_link(&product, &from[i]->link, EXL2__GRAMMAR_INTERSECT_BYTES);
        g->cache_bytes = exl2__max64(g->cache_bytes, from[i]->cache_bytes);
        g->mask.factors[i] = &from[i]->mask;
    }
    bool any = exl2__grammar_product_walk(&product);
    exl2_result r = code.result;
    if (any) {
        r = exl2__grammar_common_open(c, &product, banned, &g->link, &g->mask.states, &bounds, &any);
    }
    exl2__grammar_product_close(&product);
    exl2__grammar_code_close(&code);
    g->mask.bounds = bounds;
    if (r == EXL2_OK && !any) {
        r = exl2__fail(c, EXL2_ERR_ARG, "no text fits all %u grammars of the job", count);
    }
    if (r == EXL2_OK) {
        r = exl2__grammar_mask_open_slots(c, exl2__max64(g->cache_bytes, EXL2__GRAMMAR_MASK_CACHE_MIN), &g->mask);
    }
    if (r < 0) {
        exl2__grammar_close(c, g);
    }
    return r;
}

#endif
