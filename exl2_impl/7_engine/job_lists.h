/* job_lists.h: copies a job's sampler settings, stops and bans into the job.
   takes: exl2_job_desc.
   gives: exl2__job_lists_check_ids, exl2__job_lists_stops, exl2__job_lists_sampler.
   owns:  nothing; copies lie in the job's block. */
#ifndef EXL2__JOB_LISTS_H
#define EXL2__JOB_LISTS_H

#include "jobs.h"

EXL2__PRIVATE exl2_result exl2__job_lists_check_ids(exl2_engine *e, const exl2__model *m, const exl2_token *ids,
                                                    size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= m->plan.shape.vocab) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "%s %zu is id %d, but the vocabulary has %u tokens", what, i,
                              ids[i], m->plan.shape.vocab);
        }
    }
    return EXL2_OK;
}

/* ---- copies of lists and strings ---- */

/* Allocates from the job's text memory, aligned to 8 bytes. NULL: it is full. */
static inline void *exl2__job_lists_alloc(exl2__job *job, uint32_t *used, size_t bytes)
{
    uint64_t end = exl2__align_up((uint64_t)*used + bytes, 8);
    if (end > EXL2__JOB_TEXT_BYTES) {
        return NULL;
    }
    void *memory = (uint8_t *)job->block->text + *used;
    *used = (uint32_t)end;
    return memory;
}

/* Copies a list of ids and checks that the vocabulary has them. */
EXL2__PRIVATE exl2_result exl2__job_lists_ids(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                              const exl2_token *ids, uint32_t count, const char *what, uint32_t *used,
                                              const exl2_token **out)
{
    exl2_token *copy = (exl2_token *)exl2__job_lists_alloc(job, used, count * sizeof *copy);
    if (!copy) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "the job's lists of tokens and stops need more than %d bytes",
                          EXL2__JOB_TEXT_BYTES);
    }
    EXL2__TRY(exl2__job_lists_check_ids(e, m, ids, count, what));
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = ids[i];
    }
    *out = copy;
    return EXL2_OK;
}

/* Copies strings into the job's text memory. *longest grows to the bytes of the longest string. */
EXL2__PRIVATE exl2_result exl2__job_lists_strings(exl2_engine *e, exl2__job *job, const char *const *strings,
                                                  uint32_t count, const char *what, uint32_t *used, size_t *longest,
                                                  exl2__stops *out)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!strings[i] || !strings[i][0]) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "%s %u is empty", what, i);
        }
        size_t length = strlen(strings[i]);
        if (!exl2__unicode_valid(strings[i], length)) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "%s %u is not valid UTF-8: no text can contain it", what, i);
        }
        if (length > EXL2__JOB_STOP_BYTES_MAX) {
            return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "%s %u has %zu bytes, but at most %d are allowed", what, i,
                              length, EXL2__JOB_STOP_BYTES_MAX);
        }
        *longest = length > *longest ? length : *longest;
        bytes += length;
    }
    void *memory = exl2__job_lists_alloc(job, used, exl2__stops_bytes(count, bytes));
    if (!memory) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "the job's strings and lists of tokens need more than %d bytes",
                          EXL2__JOB_TEXT_BYTES);
    }
    exl2__stops_make(out, strings, count, memory);
    return EXL2_OK;
}

/* Lists the end and stop tokens, which min_tokens bans until that length. */
EXL2__PRIVATE exl2_result exl2__job_lists_ends(exl2_engine *e, const exl2__model *m, exl2__job *job, uint32_t *used)
{
    exl2__sequence *s = &job->sequence;
    uint32_t eos = m->weights.config.eos_count, count = eos + job->stops.token_count;
    exl2_token *ends = (exl2_token *)exl2__job_lists_alloc(job, used, count * sizeof *ends);
    if (!ends || count > EXL2__SEQUENCE_ENDS_MAX) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET,
                          "min_tokens bans %u end and stop tokens, but at most %u are allowed", count,
                          EXL2__SEQUENCE_ENDS_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        ends[i] = i < eos ? m->weights.config.eos[i] : job->stops.tokens[i - eos];
    }
    s->ends = ends;
    s->end_count = count;
    return EXL2_OK;
}

/* Copies everything that ends a text or is banned from it. */
EXL2__PRIVATE exl2_result exl2__job_lists_stops(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                                const exl2_job_desc *d, uint32_t *used)
{
    size_t longest = 0;
    EXL2__TRY(exl2__job_lists_strings(e, job, d->stop_strings, d->stop_string_count, "stop string", used, &longest,
                                    &job->stops.strings));
    job->bans.strings.fold = true;
    EXL2__TRY(exl2__job_lists_strings(e, job, d->ban_strings, d->ban_string_count, "ban string", used, &longest,
                                    &job->bans.strings));
    job->stops.token_count = d->stop_token_count;
    EXL2__TRY(exl2__job_lists_ids(e, m, job, d->stop_tokens, d->stop_token_count, "stop token", used,
                                &job->stops.tokens));
    if (d->resume ? e->sessions[job->session].resume.min_tokens : d->min_tokens) {
        EXL2__TRY(exl2__job_lists_ends(e, m, job, used));
    }
    const exl2__grammar_slot *g = exl2__objects_grammar(e, d->grammar);
    if (job->healed >= 0 && g && !g->made) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "heal_prompt cannot be used with a CUSTOM grammar");
    }
    uint64_t held = longest + 8; /* bound of the tokens that wait at the same time, of a byte each */
    job->delivery.held_tokens_max = EXL2__JOB_HELD_TOKENS;
    if (d->alts_per_token) {
        job->delivery.held_tokens_max = exl2__min32(EXL2__JOB_ALTS / d->alts_per_token, EXL2__JOB_HELD_TOKENS);
    }
    if (d->alts_per_token > EXL2_ALTS_MAX || held > job->delivery.held_tokens_max) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET,
                          "alts_per_token is %u, but at most %u is allowed with stop strings of %zu bytes",
                          d->alts_per_token,
                          (unsigned)exl2__min64(EXL2_ALTS_MAX, EXL2__JOB_ALTS / held), longest);
    }
    return EXL2_OK;
}

/* ---- tokens that DRY and XTC except ---- */

/* Whether the token's text has one of the characters, or the token is an added token. */
EXL2__PRIVATE bool exl2__job_lists_has_any(const exl2__vocab *v, exl2_token token, const char *characters)
{
    size_t bytes;
    bool special;
    const char *text = exl2__vocab_piece(v, token, &bytes, &special);
    for (uint32_t i = 0; i < v->added.count; i++) {
        special |= v->added.tokens[i].id == (uint32_t)token;
    }
    for (size_t i = 0; text && i < bytes && !special; i++) {
        special = text[i] && strchr(characters, text[i]);
    }
    return special;
}

EXL2__PRIVATE bool exl2__job_lists_breaks(const void *user, exl2_token token)
{
    const exl2__job_lists *l = &((const exl2__job *)user)->lists;
    if (l->dry_breakers.count == 0) {
        return exl2__job_lists_has_any(l->vocab, token, ".,!?<>[](){}\"\n\t");
    }
    size_t bytes, before, at;
    uint32_t which;
    bool special;
    const char *text = exl2__vocab_piece(l->vocab, token, &bytes, &special);
    return text && exl2__stops_match(&l->dry_breakers, text, bytes, &before, &at, &which);
}

EXL2__PRIVATE bool exl2__job_lists_keeps(const void *user, exl2_token token)
{
    const exl2__job_lists *l = &((const exl2__job *)user)->lists;
    return l->xtc_keep_count ? exl2__jobs_is_in(l->xtc_keep, l->xtc_keep_count, token)
                             : exl2__job_lists_has_any(l->vocab, token, "\n");
}

/* Sets the callbacks by which DRY and XTC ask about tokens. */
EXL2__PRIVATE exl2_result exl2__job_lists_callbacks(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                                    const exl2_sampler_desc *d, uint32_t *used)
{
    exl2__sequence *s = &job->sequence;
    size_t longest = 0;
    job->lists.vocab = &m->vocab;
    job->lists.xtc_keep_count = d->xtc_keep_count;
    EXL2__TRY(exl2__job_lists_ids(e, m, job, d->xtc_keep, d->xtc_keep_count, "xtc_keep", used, &job->lists.xtc_keep));
    if (d->dry_breaker_count && !m->vocab.present) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s has no tokenizer.json, which dry_breakers need", m->path);
    }
    EXL2__TRY(exl2__job_lists_strings(e, job, d->dry_breakers, d->dry_breaker_count, "dry_breaker", used, &longest,
                                    &job->lists.dry_breakers));
    s->sampling.xtc_keeps = m->vocab.present || d->xtc_keep_count ? exl2__job_lists_keeps : NULL;
    s->sampling.xtc_user = job;
    s->dry.breaks = m->vocab.present ? exl2__job_lists_breaks : NULL;
    s->dry.user = job;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__job_lists_sampler(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                                  const exl2_job_desc *d, uint32_t *used)
{
    exl2__sequence *s = &job->sequence;
    exl2_sampler_desc resolved;
    EXL2__TRY(exl2__sampler_resolve(&e->ctx, &m->weights.config.defaults, &d->sampler, &resolved));
    uint32_t biases = resolved.bias_count + resolved.ban_count;
    bool few = resolved.bias_count <= EXL2__JOB_TEXT_BYTES && resolved.ban_count <= EXL2__JOB_TEXT_BYTES;
    exl2_bias *bias = few ? (exl2_bias *)exl2__job_lists_alloc(job, used, biases * sizeof *bias) : NULL;
    if (!bias) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "the job's biases and stops need more than %d bytes",
                          EXL2__JOB_TEXT_BYTES);
    }
    for (uint32_t i = 0; i < resolved.bias_count; i++) {
        bias[i] = d->sampler.bias[i];
        EXL2__TRY(exl2__job_lists_check_ids(e, m, &bias[i].token, 1, "the token of a bias: number"));
    }
    EXL2__TRY(exl2__job_lists_check_ids(e, m, d->sampler.ban, resolved.ban_count, "banned token"));
    for (uint32_t i = resolved.bias_count; i < biases; i++) { /* after the biases, so that no bias undoes a ban */
        bias[i] = (exl2_bias){ d->sampler.ban[i - resolved.bias_count], exl2__minus_infinity() };
    }
    job->lists.allow_count = resolved.allow_count;
    EXL2__TRY(exl2__job_lists_ids(e, m, job, resolved.allow, resolved.allow_count, "allowed token", used,
                                  &job->lists.allow));
    resolved.bias_count = biases;
    resolved.bias = bias;
    job->stats.seed = d->sampler.seed ? d->sampler.seed : exl2__platform_entropy(job) | 1;
    exl2__sampler_make(&resolved, job->stats.seed, &s->sampling);
    s->penalty_range = exl2__sampler_penalty_range(&resolved);
    exl2__sampler_dry(&resolved, &s->dry);
    EXL2__TRY(exl2__job_lists_callbacks(e, m, job, &d->sampler, used));
    const exl2__backend *backend = exl2__objects_backend(m);
    s->fetches_logits = d->on_logits || (backend->can_sample && !backend->can_sample(&s->sampling));
    s->waits = s->fetches_logits || d->on_token || s->dry.multiplier > 0 || exl2__sampling_has_state(&s->sampling)
            || d->ban_string_count > 0;
    return EXL2_OK;
}

#endif
