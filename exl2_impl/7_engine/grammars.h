/* grammars.h: the grammars that the application has made, and the state of each job's text in its grammar.
   takes: exl2_grammar_desc; a job and its history.
   gives: exl2__grammars_make, _close, _close_all, _join, _leave, _accept, _forced, _cost, _walks, _prepare,
          _mask.
   owns:  a grammar's memory until it is closed and its last job has ended; a model's table of tokens. */
#ifndef EXL2__GRAMMARS_H
#define EXL2__GRAMMARS_H

#include "gate.h"

/* ---- made and closed by the application ---- */

/* A grammar that jobs have beside those of the application: without the tokens that a job's settings exclude, so that
   no end needs them; and what all its grammars allow, if it has several. The latter is kept for the next job with the
   same grammars, as long as all of them are open. */
typedef struct exl2__grammars_copy {
    exl2__grammar_slot slot;
    exl2__grammar made;
    exl2__grammar_slot *of[EXL2_JOB_GRAMMARS + 1]; /* the grammars that it is made of */
    uint32_t of_count;
    uint32_t banned[]; /* bits of the excluded tokens */
} exl2__grammars_copy;

static inline exl2__grammars_copy *exl2__grammars_copy_of(exl2__grammar_slot *slot)
{
    return (exl2__grammars_copy *)(void *)slot; /* its first member */
}

EXL2__PRIVATE void exl2__grammars_free_copy(exl2_engine *e, exl2__grammars_copy *copy)
{
    exl2__grammar_close(&e->ctx, &copy->made);
    exl2__free(&e->ctx, copy, copy->slot.own_bytes, EXL2_MEM_GENERAL);
}

/* Frees what is kept of the grammar and others. Its jobs have ended. */
EXL2__PRIVATE void exl2__grammars_forget(exl2_engine *e, const exl2__grammar_slot *g)
{
    for (uint32_t i = 0; i < e->max_sessions; i++) {
        exl2__grammars_copy *kept = exl2__grammars_copy_of(e->grammars[i].kept);
        bool of = false;
        for (uint32_t k = 0; kept && k < kept->of_count; k++) {
            of = of || kept->of[k] == g;
        }
        if (of) {
            EXL2__ASSERT(kept->slot.users == 0);
            e->grammars[i].kept = NULL;
            exl2__grammars_free_copy(e, kept);
        }
    }
}

EXL2__PRIVATE void exl2__grammars_free(exl2_engine *e, exl2__grammar_slot *g)
{
    exl2__grammars_forget(e, g);
    if (g->made) {
        exl2__grammar_close(&e->ctx, g->made);
        exl2__free(&e->ctx, g->made, sizeof *g->made, EXL2_MEM_GENERAL);
    }
    *g = (exl2__grammar_slot){ 0 };
    exl2__pool_free(&e->grammar_ids, (uint32_t)(g - e->grammars));
}

/* Frees the grammar now, or after its last job. */
EXL2__PRIVATE void exl2__grammars_close(exl2_engine *e, exl2__grammar_slot *g)
{
    g->closing = true;
    if (g->users == 0) {
        exl2__grammars_free(e, g);
    }
}

/* Frees all grammars of a model whose jobs have ended. */
EXL2__PRIVATE void exl2__grammars_close_all(exl2_engine *e, exl2__model *m)
{
    for (uint32_t i = 0; i < e->max_sessions; i++) {
        if (e->grammars[i].id && &e->models[e->grammars[i].model] == m) {
            exl2__grammars_free(e, &e->grammars[i]);
        }
    }
    exl2__grammar_vocab_close(&e->ctx, &m->grammar_vocab);
}

EXL2__PRIVATE exl2_result exl2__grammars_compile(exl2_engine *e, exl2__model *m, const exl2_grammar_desc *d,
                                                 exl2__grammar_slot *g)
{
    void *memory;
    size_t bytes = d->source_bytes || !d->source ? d->source_bytes : strlen(d->source);
    if (!m->grammar_vocab.vocab) {
        EXL2__TRY(exl2__grammar_vocab_open(&e->ctx, &m->vocab, &m->grammar_vocab));
    }
    EXL2__TRY(exl2__alloc(&e->ctx, sizeof *g->made, 16, EXL2_MEM_GENERAL, &memory));
    exl2_result r = exl2__grammar_open(&e->ctx, d->kind, d->strict, d->source, bytes, &m->grammar_vocab,
                                       d->cache_bytes, (exl2__grammar *)memory);
    if (r < 0) {
        exl2__free(&e->ctx, memory, sizeof *g->made, EXL2_MEM_GENERAL);
        return r;
    }
    g->made = (exl2__grammar *)memory;
    return EXL2_OK;
}

/* The caller has checked that the model has a tokenizer, unless the kind is CUSTOM. */
EXL2__PRIVATE exl2_result exl2__grammars_make(exl2_engine *e, exl2__model *m, const exl2_grammar_desc *d,
                                              exl2_grammar *out)
{
    EXL2__TRY(exl2__objects_not_closing(e, m));
    uint64_t id = exl2__pool_alloc(&e->grammar_ids);
    if (!id) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "all %u grammars are in use; raise max_sessions",
                          e->max_sessions);
    }
    exl2__grammar_slot *g = &e->grammars[exl2__pool_slot_of(id)];
    *g = (exl2__grammar_slot){ .id = id, .model = (uint32_t)(m - e->models), .allow = d->allow, .user = d->user,
                                 .prefer_end = d->prefer_end };
    exl2_result r = d->kind == EXL2_GRAMMAR_CUSTOM ? EXL2_OK : exl2__grammars_compile(e, m, d, g);
    if (r < 0) {
        exl2__grammars_free(e, g);
        return r;
    }
    out->id = id;
    return EXL2_OK;
}

/* ---- a job's text ---- */

static inline uint32_t exl2__grammars_words(const exl2__grammar_slot *g)
{
    return g->made->mask.vocab->words;
}

/* Tokens beyond the tokenizer's are in no text. */
EXL2__PRIVATE void exl2__grammars_copy_ban(exl2__grammars_copy *copy, exl2_token token, bool ban)
{
    uint32_t id = (uint32_t)token, bit = 1u << id % 32;
    if (id / 32 < exl2__grammars_words(copy->of[0])) {
        copy->banned[id / 32] = ban ? copy->banned[id / 32] | bit : copy->banned[id / 32] & ~bit;
    }
}

/* Whether settings of the job exclude tokens. */
EXL2__PRIVATE bool exl2__grammars_bans(const exl2__job *job)
{
    const exl2__sampling *s = &job->sequence.sampling;
    bool any = job->lists.allow_count > 0;
    for (uint32_t i = 0; i < s->bias_count; i++) {
        any = any || s->bias[i].add <= exl2__minus_infinity();
    }
    return any;
}

/* Begins a grammar of the job's own, made of `all` [count], with the tokens that the job excludes. */
EXL2__PRIVATE exl2_result exl2__grammars_begin_copy(exl2_engine *e, const exl2__job *job, exl2__grammar_slot **all,
                                                    uint32_t count, exl2__grammars_copy **out)
{
    const exl2__sampling *s = &job->sequence.sampling;
    const exl2__job_lists *lists = &job->lists;
    size_t words = exl2__grammars_words(all[0]) * sizeof(uint32_t), bytes = sizeof(exl2__grammars_copy) + words;
    void *memory;
    EXL2__TRY(exl2__alloc(&e->ctx, bytes, 16, EXL2_MEM_GENERAL, &memory));
    exl2__grammars_copy *copy = (exl2__grammars_copy *)memory;
    *copy = (exl2__grammars_copy){ 0 };
    memset(copy->banned, lists->allow_count ? 0xFF : 0, words);
    copy->slot = (exl2__grammar_slot){ .model = all[0]->model, .made = &copy->made, .own_bytes = bytes };
    copy->of_count = count;
    for (uint32_t i = 0; i < count; i++) {
        copy->of[i] = all[i];
        copy->slot.prefer_end = copy->slot.prefer_end || all[i]->prefer_end;
    }
    for (uint32_t i = 0; i < lists->allow_count; i++) {
        exl2__grammars_copy_ban(copy, lists->allow[i], false);
    }
    for (uint32_t i = 0; i < s->bias_count; i++) {
        if (s->bias[i].add <= exl2__minus_infinity()) {
            exl2__grammars_copy_ban(copy, s->bias[i].token, true);
        }
    }
    *out = copy;
    return EXL2_OK;
}

/* *slot: a copy for the job, if its settings change how texts of the grammar can end; else the grammar itself. */
EXL2__PRIVATE exl2_result exl2__grammars_restrict(exl2_engine *e, const exl2__job *job, exl2__grammar_slot *base,
                                                  exl2__grammar_slot **slot)
{
    exl2__grammars_copy *copy;
    bool same = !exl2__grammars_bans(job);
    *slot = base;
    if (same) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__grammars_begin_copy(e, job, &base, 1, &copy));
    exl2_result r = exl2__grammar_restrict(&e->ctx, base->made, copy->banned, &copy->made, &same);
    if (r < 0 || same) { /* `made` is closed */
        exl2__grammars_free_copy(e, copy);
        return r;
    }
    *slot = &copy->slot;
    return EXL2_OK;
}

/* Whether the copy is what these grammars have in common. */
static inline bool exl2__grammars_is_common(const exl2__grammars_copy *copy, exl2__grammar_slot *const *all,
                                            uint32_t count)
{
    return copy && copy->of_count == count && memcmp(copy->of, all, count * sizeof *all) == 0;
}

/* *slot: a grammar whose texts all of `all` [count] allow, and that can end as the job's settings want. It is kept with
   the first of them, if it bans nothing. */
EXL2__PRIVATE exl2_result exl2__grammars_intersect(exl2_engine *e, const exl2__job *job, exl2__grammar_slot **all,
                                                   uint32_t count, exl2__grammar_slot **slot)
{
    exl2__grammar *made[EXL2_JOB_GRAMMARS + 1];
    exl2__grammars_copy *own;
    for (uint32_t i = 0; i < count; i++) {
        made[i] = all[i]->made;
        if (!made[i]) {
            return exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED, "a CUSTOM grammar cannot be one of several grammars of a "
                              "job");
        }
    }
    exl2__grammars_copy *kept = exl2__grammars_copy_of(all[0]->kept);
    bool bans = exl2__grammars_bans(job);
    if (!bans && exl2__grammars_is_common(kept, all, count)) {
        *slot = &kept->slot;
        return EXL2_OK;
    }
    EXL2__TRY(exl2__grammars_begin_copy(e, job, all, count, &own));
    exl2_result r = exl2__grammar_intersect(&e->ctx, made, count, bans ? own->banned : NULL, &own->made);
    if (r < 0) {
        exl2__grammars_free_copy(e, own);
        return r;
    }
    if (!bans) {
        all[0]->kept = &own->slot;
        if (kept && kept->slot.users == 0) { /* else the last of its jobs frees it */
            exl2__grammars_free_copy(e, kept);
        }
    }
    *slot = &own->slot;
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__grammars_release(exl2_engine *e, exl2__grammar_slot *g)
{
    if (--g->users == 0 && g->closing) {
        exl2__grammars_free(e, g);
    }
}

/* Releases the grammar of a job that has ended. */
EXL2__PRIVATE void exl2__grammars_leave(exl2_engine *e, exl2__job *job)
{
    exl2__grammar_slot *g = job->grammar.slot;
    if (!g) {
        return;
    }
    job->grammar.slot = NULL;
    if (g->made) {
        exl2__grammar_mask_leave(&g->made->mask, &job->grammar.place);
    }
    if (!g->own_bytes) {
        exl2__grammars_release(e, g);
        return;
    }
    exl2__grammars_copy *own = exl2__grammars_copy_of(g);
    exl2__grammar_slot *of[EXL2_JOB_GRAMMARS + 1];
    uint32_t count = own->of_count;
    memcpy(of, own->of, sizeof of);
    if (--g->users == 0 && of[0]->kept != g) {
        exl2__grammars_free_copy(e, own);
    }
    for (uint32_t i = 0; i < count; i++) {
        exl2__grammars_release(e, of[i]);
    }
}

/* The different grammars of a desc: [EXL2_JOB_GRAMMARS + 1], *count of them. */
EXL2__PRIVATE exl2_result exl2__grammars_of_desc(exl2_engine *e, const exl2__job *job, const exl2_job_desc *d,
                                                 exl2__grammar_slot **all, uint32_t *count)
{
    *count = 0;
    if (d->grammar_count > EXL2_JOB_GRAMMARS) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the job names %u grammars, but `grammars` has at most %u",
                          d->grammar_count, EXL2_JOB_GRAMMARS);
    }
    for (uint32_t i = 0; i <= d->grammar_count; i++) {
        exl2_grammar handle = i < d->grammar_count ? d->grammars[i] : d->grammar;
        if (i == d->grammar_count && !handle.id) {
            break;
        }
        exl2__grammar_slot *g = exl2__objects_grammar(e, handle);
        bool again = false;
        if (!g) {
            return exl2__objects_stale(e, "grammar", handle.id);
        }
        if (g->model != job->model) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the job's grammar was made for another model");
        }
        for (uint32_t k = 0; k < *count; k++) {
            again = again || all[k] == g;
        }
        if (!again) {
            all[(*count)++] = g;
        }
    }
    return EXL2_OK;
}

/* Advances a job that begins over the beginning of its text that the prompt ends with. */
EXL2__PRIVATE exl2_result exl2__grammars_begin(exl2_engine *e, exl2__job *job)
{
    exl2__job_grammar *g = &job->grammar;
    const exl2__sequence *s = &job->sequence;
    uint32_t end = s->begun ? s->prompt_end : s->keep + s->prompt_count;
    for (; g->place_tokens < g->begun_tokens; g->place_tokens++) {
        uint32_t at = end - g->begun_tokens + g->place_tokens;
        exl2_token token = s->begun || at < s->keep ? exl2__table_token(s->table, at)
                                                      : (exl2_token)s->prompt[at - s->keep];
        size_t skip = g->place_tokens ? 0 : g->begun_skip;
        exl2_result r = exl2__grammar_mask_accept(&e->ctx, &g->slot->made->mask, &g->place, token, skip);
        if (r == EXL2_ERR_ARG) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "begun_reply: the grammar does not allow the begun text (its "
                              "token %u)", g->place_tokens);
        }
        EXL2__TRY(r);
    }
    return EXL2_OK;
}

/* Gives a job that begins the grammars of its desc; job->max_tokens, allow list and biases are set already. */
EXL2__PRIVATE exl2_result exl2__grammars_join(exl2_engine *e, exl2__job *job, const exl2_job_desc *d)
{
    exl2__grammar_slot *all[EXL2_JOB_GRAMMARS + 1];
    uint32_t count;
    EXL2__TRY(exl2__grammars_of_desc(e, job, d, all, &count));
    if (count == 0) {
        return EXL2_OK;
    }
    bool custom = count == 1 && !all[0]->made;
    EXL2__TRY(count > 1 ? exl2__grammars_intersect(e, job, all, count, &job->grammar.slot)
              : custom ? EXL2_OK : exl2__grammars_restrict(e, job, all[0], &job->grammar.slot));
    for (uint32_t i = 0; i < count; i++) {
        all[i]->users++;
    }
    if (custom) {
        job->grammar.slot = all[0];
        return EXL2_OK;
    }
    job->grammar.slot->users += job->grammar.slot->own_bytes > 0;
    exl2__grammar_mask *mask = &job->grammar.slot->made->mask;
    exl2_result r = exl2__grammar_mask_join(&e->ctx, mask, &job->grammar.place);
    r = r >= 0 ? exl2__grammars_begin(e, job) : r;
    uint32_t least = r >= 0 ? exl2__grammar_mask_shortest(mask, &job->grammar.place) : 0;
    if (least > job->max_tokens && !job->sequence.prefill_only) {
        r = exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "the shortest text of the grammar needs at least %u tokens, "
                       "but max_tokens is %u", least, job->max_tokens);
    }
    if (r < 0) {
        exl2__grammars_leave(e, job);
    }
    return r;
}

/* Bytes of token `n` of the grammar's text that are no part of it: those before a begun reply, or of a healed token. */
static inline size_t exl2__grammars_skipped_bytes(const exl2__model *m, const exl2__job *job, uint32_t n)
{
    size_t bytes = 0;
    bool special;
    if (job->grammar.begun) {
        return n == 0 ? job->grammar.begun_skip : 0;
    }
    if (n == 0 && job->healed >= 0) {
        exl2__vocab_piece(&m->vocab, job->healed, &bytes, &special);
    }
    return bytes;
}

/* Whether the text ends here because it may. */
static inline bool exl2__grammars_prefers_end(const exl2__job *job)
{
    const exl2__grammar_slot *g = job->grammar.slot;
    return g->prefer_end && !exl2__sequence_is_short(&job->sequence)
        && exl2__grammar_mask_may_end(&g->made->mask, &job->grammar.place);
}

/* Advances the job's state to the end of its history; from the start again if the history was rewound. */
EXL2__PRIVATE exl2_result exl2__grammars_follow(exl2_engine *e, exl2__job *job)
{
    exl2__job_grammar *g = &job->grammar;
    exl2__grammar_mask *mask = &g->slot->made->mask;
    const exl2__sequence *s = &job->sequence;
    uint32_t begin = s->prompt_end - g->begun_tokens, new_tokens = s->table->tokens - begin;
    if (new_tokens < g->place_tokens) {
        exl2__grammar_mask_leave(mask, &g->place);
        g->place_tokens = 0;
        EXL2__TRY(exl2__grammar_mask_join(&e->ctx, mask, &g->place));
    }
    for (; g->place_tokens < new_tokens; g->place_tokens++) {
        exl2_token token = exl2__table_token(s->table, begin + g->place_tokens);
        size_t skipped = exl2__grammars_skipped_bytes(&e->models[job->model], job, g->place_tokens);
        EXL2__TRY(exl2__grammar_mask_accept(&e->ctx, mask, &g->place, token, skipped));
    }
    return EXL2_OK;
}

EXL2__PRIVATE bool exl2__grammars_is_text(const exl2__model *m, exl2_token token)
{
    size_t bytes;
    bool special;
    return exl2__vocab_piece(&m->vocab, token, &bytes, &special) && !special && bytes > 0;
}

/* Follows a token that was appended to the history. *stop: in, whether it is a stop token; out, whether it stops the
   text: one that has text does so only where the text may end with it. *whole: nothing may follow the token. */
EXL2__PRIVATE exl2_result exl2__grammars_accept(exl2_engine *e, exl2__job *job, exl2_token token, bool *stop,
                                                bool *whole)
{
    *whole = false;
    if (!job->grammar.slot || !job->grammar.slot->made || !exl2__grammars_is_text(&e->models[job->model], token)) {
        return EXL2_OK;
    }
    const exl2__grammar_mask *mask = &job->grammar.slot->made->mask;
    EXL2__TRY(exl2__grammars_follow(e, job));
    *stop = *stop && exl2__grammar_mask_may_end(mask, &job->grammar.place);
    *whole = exl2__grammar_mask_is_complete(mask, &job->grammar.place) || exl2__grammars_prefers_end(job);
    return EXL2_OK;
}

/* Whether a token that begins with the healed token's text may replace it. *allowed: with the rest of its text the
   grammar's text can begin, and end in time. */
EXL2__PRIVATE exl2_result exl2__grammars_heal(exl2_engine *e, exl2__job *job, exl2_token token, bool *allowed)
{
    const exl2__model *m = &e->models[job->model];
    const exl2__sequence *s = &job->sequence;
    exl2__grammar_mask *mask = &job->grammar.slot->made->mask;
    EXL2__TRY(exl2__grammars_follow(e, job));
    size_t skipped = exl2__grammars_skipped_bytes(m, job, job->grammar.begun_tokens);
    uint32_t next = exl2__grammar_mask_after(mask, &job->grammar.place, token, skipped);
    *allowed = next != EXL2__GRAMMAR_STATE_DEAD && next != EXL2__GRAMMAR_STATE_FULL
            && mask->states.states[next].tokens < s->tokens_end - s->table->tokens;
    return next == EXL2__GRAMMAR_STATE_FULL ? exl2__grammar_mask_full(&e->ctx) : EXL2_OK;
}

/* Allows the tokens of the list that have no text; called where the text may end. */
EXL2__PRIVATE void exl2__grammars_allow_stops(const exl2__model *m, const exl2_token *tokens, uint32_t count,
                                              uint32_t *bits, uint32_t vocab)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = (uint32_t)tokens[i];
        if (id < vocab && !exl2__grammars_is_text(m, tokens[i])) {
            bits[id / 32] |= 1u << id % 32;
        }
    }
}

EXL2__PRIVATE exl2_result exl2__grammars_compiled_mask(exl2_engine *e, exl2__job *job, uint32_t *out, uint32_t vocab,
                                                       bool *over)
{
    const exl2__model *m = &e->models[job->model];
    const exl2__sequence *s = &job->sequence;
    uint32_t words = exl2__bit_words(vocab), any = 0;
    const uint32_t *bits;
    bool may_end;
    EXL2__TRY(exl2__grammars_follow(e, job));
    EXL2__TRY(exl2__grammar_mask_get(&e->ctx, &job->grammar.slot->made->mask, &job->grammar.place,
                                     s->tokens_end - s->table->tokens, &bits, &may_end));
    for (uint32_t i = 0; i < words; i++) {
        out[i] = i < m->grammar_vocab.words ? bits[i] : 0;
        any |= out[i];
    }
    out[words - 1] &= vocab % 32 ? (1u << vocab % 32) - 1 : UINT32_MAX;
    *over = may_end && (!any || exl2__grammars_prefers_end(job));
    if (may_end) {
        exl2__grammars_allow_stops(m, m->weights.config.eos, m->weights.config.eos_count, out, vocab);
        exl2__grammars_allow_stops(m, job->stops.tokens, job->stops.token_count, out, vocab);
    }
    return EXL2_OK;
}

/* *token: the token that the job's compiled grammar forces after its history; -1: none. */
EXL2__PRIVATE exl2_result exl2__grammars_forced(exl2_engine *e, exl2__job *job, exl2_token *token)
{
    const exl2__sequence *s = &job->sequence;
    EXL2__TRY(exl2__grammars_follow(e, job));
    return exl2__grammar_forced_token(&e->ctx, &job->grammar.slot->made->mask, &job->grammar.place,
                                      s->tokens_end - s->table->tokens, token);
}

/* Estimated cost of the job's next mask, in nodes. A CUSTOM grammar's cost is unknown: 0. */
EXL2__PRIVATE uint32_t exl2__grammars_cost(exl2_engine *e, exl2__job *job)
{
    if (!job->grammar.slot || !job->grammar.slot->made || exl2__grammars_follow(e, job) < 0) {
        return 0;
    }
    return exl2__grammar_mask_cost(&job->grammar.slot->made->mask, &job->grammar.place,
                                   job->sequence.tokens_end - job->sequence.table->tokens);
}

/* For a job of which this cost is not 0: whether the next exl2__grammars_prepare walks nodes. */
static inline bool exl2__grammars_walks(exl2__job *job)
{
    const exl2__sequence *s = &job->sequence;
    return exl2__grammar_mask_walks(&job->grammar.slot->made->mask, &job->grammar.place,
                                    s->tokens_end - s->table->tokens);
}

/* Begins the mask that costs so much, or walks at most `most` nodes for it. */
static inline void exl2__grammars_prepare(exl2__job *job, uint32_t most)
{
    const exl2__sequence *s = &job->sequence;
    exl2__grammar_mask_prepare(&job->grammar.slot->made->mask, &job->grammar.place, s->tokens_end - s->table->tokens,
                               most);
}

/* Sets the bits of the tokens that may follow; out: [vocab] of the model that samples. *over: the text ends here. */
EXL2__PRIVATE exl2_result exl2__grammars_mask(exl2_engine *e, exl2__job *job, uint32_t *out, uint32_t vocab, bool *over)
{
    exl2__grammar_slot *g = job->grammar.slot;
    if (g->made) {
        return exl2__grammars_compiled_mask(e, job, out, vocab, over);
    }
    const exl2__model *m = &e->models[job->model];
    const exl2__sequence *s = &job->sequence;
    uint32_t words = exl2__bit_words(vocab), count = s->table->tokens - s->prompt_end;
    exl2_token *tokens = m->prompts + (size_t)(job - e->jobs) * m->plan.context_max; /* its prompt is in the history */
    exl2_job handle = { job->id };
    exl2__table_read(s->table, s->prompt_end, count, tokens);
    memset(out, 0, (size_t)words * sizeof *out);
    exl2__gate_call(e);
    *over = !g->allow(g->user, handle, tokens, count, out, words);
    exl2__gate_called(e);
    return EXL2_OK;
}

#endif
