/* grammar_rig.h: what the tests of grammars without a model share: one tokenizer with the table of its tokens, random
   numbers, grammars, and texts that fit them or do not.
   takes: private/grammar.h. A test opens `vocab` and makes `table`.
   gives: context, vocab, table, random_number, open_grammar, fits_at_once, check_lines. */
#ifndef GRAMMAR_RIG_H
#define GRAMMAR_RIG_H

#include "grammar_judge.h"
#include "text_rows.h"
#include "private/grammar.h"
#include "vocab_open.h"

static exl2__ctx context;
static exl2__vocab vocab;
static exl2__grammar_vocab table;
static uint64_t random_state = 88172645463325252u;

static uint32_t random_number(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) % below);
}

static bool open_grammar(exl2_grammar_kind kind, const char *source, uint64_t cache_bytes, exl2__grammar *g)
{
    exl2_result result = exl2__grammar_open(&context, kind, false, source, strlen(source), &table, cache_bytes, g);
    if (result < 0) {
        printf("%.60s: %s\n", source, context.error.text);
    }
    return CHECK(result == EXL2_OK);
}

/* Is it a whole text of the grammar? */
static bool fits_at_once(exl2__grammar *g, const char *text, size_t bytes)
{
    exl2__grammar_state *s = &g->mask.states;
    uint32_t state = exl2__grammar_state_next(s, exl2__grammar_state_start(s), text, bytes);
    return state != EXL2__GRAMMAR_STATE_DEAD && s->states[state].may_end;
}

/* Each line fits, or does not. */
static void check_lines(exl2__grammar *g, const char *source, const char *lines, bool wanted)
{
    for (const char *line = lines; *line;) {
        size_t bytes = strcspn(line, "\n");
        if (!CHECK(fits_at_once(g, line, bytes) == wanted)) {
            printf("  %s: %.*s\n", source, (int)bytes, line);
        }
        line += bytes + (line[bytes] == '\n');
    }
}

#endif
