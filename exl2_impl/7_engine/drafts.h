/* drafts.h: guesses of a job's next tokens. Their rows ride in the pass, after the row that is sampled anyway. A token
   is sampled from each of them as if the drafts before it were in the history, and counts if they turn out to be. So
   the text is the same with drafts and without.
   takes: jobs that decode; sampled tokens; times of passes.
   gives: exl2__drafts_ask, _make, _wait, _confirm, _wants, _learn, _count; exl2__drafts_begin, _end for masks.h. */
#ifndef EXL2__DRAFTS_H
#define EXL2__DRAFTS_H

#include "../5_generate/ngram.h"
#include "draft_models.h"
#include "forced.h"

#define EXL2__DRAFTS_ROWS_MAX 16u     /* rows of a pass with drafts */
#define EXL2__DRAFTS_SCAN_MAX 32768u  /* tokens of other sessions in which one guess is looked for */
#define EXL2__DRAFTS_PROBE 16u        /* tokens after which a job drafts again although it did not pay */
#define EXL2__DRAFTS_FIRST_ROW 0.2f   /* a guess: time of one more row, in passes of one row */
#define EXL2__DRAFTS_FIRST_PASS 0.2f  /* a guess: time of a draft model's pass, in the same unit */

/* ---- a history that is longer for a while ---- */

/* The end of a job's history, and its place in its grammar, while the history is lengthened by drafts. */
typedef struct exl2__drafts_place {
    uint32_t tokens, place_tokens;
    exl2__grammar_mask_place place;
} exl2__drafts_place;

/* Remembers both; *kept must not move until _end. false: the grammar has too many places. */
EXL2__PRIVATE bool exl2__drafts_begin(exl2__job *job, exl2__drafts_place *kept)
{
    kept->tokens = job->sequence.table->tokens;
    kept->place_tokens = job->grammar.place_tokens;
    exl2__grammar_slot *g = job->grammar.slot;
    return !g || !g->made || exl2__grammar_mask_copy(&g->made->mask, &job->grammar.place, &kept->place);
}

EXL2__PRIVATE void exl2__drafts_end(exl2__job *job, exl2__drafts_place *kept)
{
    job->sequence.table->tokens = kept->tokens;
    if (job->grammar.slot && job->grammar.slot->made) {
        job->grammar.place = kept->place;
        job->grammar.place_tokens = kept->place_tokens;
        exl2__grammar_mask_leave(&job->grammar.slot->made->mask, &kept->place);
    }
}

/* ---- guesses ---- */

/* Guesses the tokens after the job's history: what its drafter has sampled, else from the history itself, else from
   those of other sessions. */
EXL2__PRIVATE uint32_t exl2__drafts_guess(exl2_engine *e, exl2__model *m, const exl2__job *job, exl2_token *out,
                                          uint32_t most)
{
    const exl2__table *t = job->sequence.table;
    exl2_token last[EXL2__NGRAM_MAX], *text = m->batch.history; /* no pass uses it now */
    uint32_t scanned = 0, found;
    const exl2__job *drafter = job->drafting.drafter;
    if (drafter && drafter->drafting.ready && exl2__draft_models_is_asked(drafter)) {
        const exl2__table *from = drafter->sequence.table;
        found = exl2__min32(most, from->tokens - t->tokens);
        exl2__table_read(from, t->tokens, found, out);
        return found;
    }
    if (!job->drafting.ngram) {
        return 0;
    }
    uint32_t count = exl2__table_read_last(t, EXL2__NGRAM_MAX, last);
    uint32_t tokens = exl2__table_read(t, 0, t->tokens, text); /* vectors are no part of a text */
    found = exl2__ngram_follow(text, tokens, last, count, true, out, most);
    for (uint32_t i = 0; !found && i < e->max_sessions && scanned < EXL2__DRAFTS_SCAN_MAX; i++) {
        const exl2__session *other = &e->sessions[i];
        if (!other->id || &e->models[other->model] != m || &other->table == t) {
            continue;
        }
        tokens = exl2__table_read(&other->table, 0, other->table.tokens, text);
        found = exl2__ngram_follow(text, tokens, last, count, false, out, most);
        scanned += other->table.tokens;
    }
    return found;
}

/* Whether the job can go on with this token, and needs a token after it. */
EXL2__PRIVATE bool exl2__drafts_continue(exl2_engine *e, exl2__job *job, exl2_token token)
{
    const exl2__model *m = &e->models[job->model];
    const exl2__config *config = &m->weights.config;
    exl2__grammar_slot *g = job->grammar.slot;
    if ((uint32_t)token >= m->plan.shape.vocab /* the draft model's may have more rows */
        || exl2__forced_is_banned(job, token) || exl2__jobs_is_in(config->eos, config->eos_count, token)
        || exl2__jobs_is_in(job->stops.tokens, job->stops.token_count, token)) {
        return false;
    }
    if (g && g->made) {
        uint32_t next = exl2__grammars_follow(e, job) < 0 ? EXL2__GRAMMAR_STATE_DEAD
                      : exl2__grammar_mask_after(&g->made->mask, &job->grammar.place, token, 0);
        return next != EXL2__GRAMMAR_STATE_DEAD && next != EXL2__GRAMMAR_STATE_FULL
            && g->made->mask.states.states[next].count > 0;
    }
    return true;
}

/* Writes the job's drafts: guesses that its settings and its grammar allow, and what the grammar forces after them. */
EXL2__PRIVATE void exl2__drafts_write(exl2_engine *e, exl2__model *m, exl2__job *job, uint32_t most)
{
    exl2__sequence *s = &job->sequence;
    exl2_token guess[EXL2__SEQUENCE_DRAFT_MAX], token = -1;
    uint32_t guesses = exl2__drafts_guess(e, m, job, guess, most), used = 0;
    exl2__drafts_place kept;
    s->draft_at = s->table->tokens;
    if (guesses == 0 || !exl2__drafts_begin(job, &kept)) {
        return;
    }
    for (uint32_t i = 0; i < most; i++) {
        bool failed = !job->one_by_one && exl2__forced_token(e, job, &token) < 0, forced = token >= 0;
        failed |= forced && i == 0; /* the history had no room for it */
        token = forced ? token : used < guesses ? guess[used] : -1;
        if (failed || token < 0 || !exl2__drafts_continue(e, job, token)) {
            break;
        }
        used = used < guesses && guess[used] == token ? used + 1 : guesses; /* a guess that went astray is over */
        s->draft[s->draft_count++] = token;
        s->draft_forced |= (uint32_t)forced << i;
        exl2__table_append(s->table, &m->pages, token, true);
        token = -1;
    }
    exl2__drafts_end(job, &kept);
}

/* ---- how many ---- */

/* Estimated time of a pass, in passes of one row. */
static inline float exl2__drafts_time(const exl2__model *m, uint32_t rows)
{
    float row = m->draft_row_time[exl2__forward_class(rows)];
    return 1 + exl2__mul_float((float)(rows - 1), row > 0 ? row : EXL2__DRAFTS_FIRST_ROW);
}

/* Learns from a pass that only decoded. */
static inline void exl2__drafts_learn(exl2__model *m, uint32_t rows, uint64_t ns)
{
    float time = (float)ns;
    if (rows == 1 || m->draft_pass_ns <= 0) {
        float one = rows == 1 ? time : time / exl2__drafts_time(m, rows);
        m->draft_pass_ns = m->draft_pass_ns <= 0 ? one
                         : m->draft_pass_ns + exl2__mul_float(0.1f, one - m->draft_pass_ns);
    } else if (rows <= EXL2__DRAFTS_ROWS_MAX) {
        float *row = &m->draft_row_time[exl2__forward_class(rows)];
        float more = (time / m->draft_pass_ns - 1) / (float)(rows - 1);
        more = more < 0.01f ? 0.01f : more > 1 ? 1 : more;
        *row = *row <= 0 ? more : *row + exl2__mul_float(0.1f, more - *row);
    }
}

/* The probability that the job's next draft after the first `count` is accepted with all before it. */
static inline float exl2__drafts_chance(const exl2__job *job, uint32_t count)
{
    float chance = 1;
    for (uint32_t i = 0; i <= count; i++) {
        chance *= job->sequence.draft_forced >> i & 1 ? 1 : job->drafting.rate;
    }
    return chance;
}

/* Whether the job drafts although it did not pay, as it has not drafted for a while. */
static inline bool exl2__drafts_may_probe(const exl2__job *job)
{
    return job->sequence.table->tokens - job->drafting.last >= EXL2__DRAFTS_PROBE;
}

/* Shares the rows out, one after the other, to the job whose next draft is the likeliest, while that makes the tokens
   of a pass grow faster than its time. */
static inline void exl2__drafts_share(exl2_engine *e, exl2__model *m, uint32_t rows, uint32_t jobs, uint32_t rows_max)
{
    float tokens = (float)jobs;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        job->drafting.wanted = 0;
        if (job->sequence.draft_count && exl2__drafts_may_probe(job) && rows + 2 <= rows_max) {
            job->drafting.wanted = exl2__min32(2, job->sequence.draft_count);
            rows += job->drafting.wanted;
        }
    }
    while (rows < rows_max) {
        exl2__job *best = NULL;
        float most = 0;
        for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
            bool more = job->drafting.wanted < job->sequence.draft_count;
            float chance = more ? exl2__drafts_chance(job, job->drafting.wanted) : 0;
            best = chance > most ? job : best;
            most = chance > most ? chance : most;
        }
        if (!best || (tokens + most) * exl2__drafts_time(m, rows) <= tokens * exl2__drafts_time(m, rows + 1)) {
            break;
        }
        tokens += most;
        best->drafting.wanted++;
        rows++;
    }
}

/* Whether the job's next rows, which decode, may be in the pass that is being planned. */
static inline bool exl2__drafts_is_due(const exl2__model *m, const exl2__job *job)
{
    const exl2__sequence *s = &job->sequence;
    return s->active && !s->held && !s->drafting && exl2__schedule_decodes(s, &m->pages) && exl2__sequence_decodes(s);
}

/* Makes the drafts of the next pass, which has rows of this kind. None where a prompt is read: such a pass has rows
   enough. */
static inline void exl2__drafts_make(exl2_engine *e, exl2__model *m, exl2__row_kind kind)
{
    uint32_t rows = 0, jobs = 0, drafting = 0;
    uint32_t most = exl2__min32(EXL2__DRAFTS_ROWS_MAX, exl2__objects_backend(m)->decode_rows);
    m->pass_reads = kind == EXL2__ROWS_PROMPT;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        exl2__sequence *s = &job->sequence;
        s->draft_count = s->draft_forced = s->draft_usable = 0;
        if (exl2__drafts_is_due(m, job)) {
            rows += exl2__sequence_pending(s);
            drafting += job->drafting.on;
            jobs++;
        } else {
            m->pass_reads |= kind == EXL2__ROWS_MIXED && s->active && !s->held;
        }
    }
    if (!drafting || m->pass_reads || rows >= most) {
        return;
    }
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        exl2__sequence *s = &job->sequence;
        uint32_t left = s->tokens_end - s->table->tokens;
        if (job->drafting.on && exl2__drafts_is_due(m, job) && left > 1) {
            m->guesses |= job->drafting.ngram;
            exl2__drafts_write(e, m, job, exl2__min32(exl2__min32(left - 1, most - rows), job->drafting.most));
        }
    }
    exl2__drafts_share(e, m, rows, jobs, most);
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        exl2__sequence *s = &job->sequence;
        s->draft_count = s->draft_usable = job->drafting.wanted;
        bool tried = s->draft_count || (job->drafting.drafter && exl2__draft_models_is_asked(job->drafting.drafter));
        job->drafting.last = tried ? s->table->tokens : job->drafting.last;
    }
}

/* How many tokens the job's drafter is asked for: as many as make the tokens of both models' passes grow faster than
   their time; where none does, two after some passes, to see whether they are accepted now. */
static inline uint32_t exl2__drafts_length(const exl2_engine *e, const exl2__model *m, const exl2__job *job)
{
    const exl2__model *draft = &e->models[job->drafting.drafter->model];
    bool known = m->draft_pass_ns > 0 && draft->draft_pass_ns > 0;
    float each = known ? draft->draft_pass_ns / m->draft_pass_ns : EXL2__DRAFTS_FIRST_PASS;
    float chance = 1, tokens = 1, best = 1;
    uint32_t count = 0, left = job->sequence.tokens_end - job->sequence.table->tokens;
    uint32_t most = exl2__min32(exl2__min32(left - 1, exl2__objects_backend(m)->decode_rows - 1), job->drafting.most);
    for (uint32_t i = 1; i <= most; i++) {
        chance *= job->drafting.rate;
        tokens += chance;
        float rate = tokens / (exl2__drafts_time(m, i + 1) + exl2__mul_float(each, (float)i));
        count = rate > best ? i : count;
        best = rate > best ? rate : best;
    }
    return count == 0 && exl2__drafts_may_probe(job) ? exl2__min32(2, most) : count;
}

/* Before a pass is planned: asks drafters for tokens, and lets jobs wait for those that were asked. */
static inline void exl2__drafts_ask(exl2_engine *e, exl2__model *m)
{
    m->guesses = false;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        exl2__sequence *s = &job->sequence;
        s->drafting = false;
        if (!job->drafting.drafter || !exl2__drafts_is_due(m, job) || s->tokens_end <= s->table->tokens + 1) {
            continue;
        }
        if (!exl2__draft_models_is_asked(job->drafting.drafter) && exl2__draft_models_can_draft(job)) {
            uint32_t count = exl2__drafts_length(e, m, job);
            if (count > 0) {
                exl2__draft_models_ask(e, job, count);
                m->asked = true;
            }
        }
        s->drafting = job->drafting.drafter->sequence.active && exl2__draft_models_owes(job->drafting.drafter);
        m->guesses |= !exl2__draft_models_can_draft(job); /* soon it can */
    }
}

/* Whether a job waits for its drafter. Then there is work even if the step found none: if the drafter's model had its
   share first, the drafter did not know yet that the job goes on after a pause; if it had its share last, the drafter
   may have ended since the job began to wait. */
static inline bool exl2__drafts_wait(const exl2_engine *e)
{
    bool any = false;
    for (uint32_t i = 0; i < e->job_ids.end; i++) {
        const exl2__sequence *s = &e->jobs[i].sequence;
        any = any || (s->live && s->active && !s->held && s->drafting);
    }
    return any;
}

/* ---- results ---- */

/* Number of leading drafts that are in the history now. */
static inline uint32_t exl2__drafts_kept(const exl2__sequence *s)
{
    uint32_t kept = 0;
    while (kept < s->draft_count && s->draft_at + kept < s->table->tokens
           && exl2__table_token(s->table, s->draft_at + kept) == s->draft[kept]) {
        kept++;
    }
    return kept;
}

/* Whether the token sampled for this position counts: the history ends there, with the drafts before that row, no ban
   has rewound it since the pass began, and nothing has stopped the job meanwhile. */
static inline bool exl2__drafts_wants(exl2_engine *e, const exl2__job *job, uint64_t position, uint32_t attempt)
{
    const exl2__sequence *s = &job->sequence;
    uint32_t ahead = (uint32_t)position - s->draft_at;
    if (!s->draft_count || ahead == 0) {
        return true;
    }
    exl2__lock(&e->lock);
    bool stopped = job->shared.cancel == job->id || job->shared.pause == job->id;
    exl2__unlock(&e->lock);
    return !stopped && !job->delivery.text_due && !job->delivery.progress_due && position == s->table->tokens
        && attempt == s->attempt && ahead <= s->draft_usable && exl2__drafts_kept(s) >= ahead;
}

/* After a token was sampled for `position` and appended, perhaps with forced ones after it: K and V of the drafts among
   them are in the cache. */
static inline void exl2__drafts_confirm(exl2_engine *e, exl2__model *m, exl2__job *job, uint64_t position)
{
    exl2__sequence *s = &job->sequence;
    uint32_t kept = s->draft_count ? exl2__drafts_kept(s) : 0, at = (uint32_t)position - s->draft_at;
    if (kept) { /* the newest token stays pending, for its logits */
        uint32_t computed = exl2__min32(s->draft_at + kept, s->table->tokens - 1);
        exl2__table_computed(s->table, &m->pages, computed - exl2__min32(computed, s->table->cached));
        s->computed_end = exl2__max32(s->computed_end, s->table->cached);
    }
    if (at < s->draft_count && !(s->draft_forced >> at & 1)) {
        bool accepted = kept > at;
        job->drafting.rate += exl2__mul_float(0.08f, (accepted ? 1.0f : 0.0f) - job->drafting.rate);
        job->stats.accepted += accepted;
        e->stats.accepted += accepted;
    }
}

/* Counts the guesses of the pass, without the forced tokens among the drafts. */
static inline void exl2__drafts_count(exl2_engine *e, exl2__job *job)
{
    for (uint32_t i = 0; i < job->sequence.draft_count; i++) {
        uint32_t guessed = !(job->sequence.draft_forced >> i & 1);
        job->stats.drafted += guessed;
        e->stats.drafted += guessed;
    }
}

#endif
