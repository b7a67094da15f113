/* masks.h: masks, which say what each row of the next pass may sample: one bit per token.
   takes: jobs with rows in a pass.
   gives: exl2__masks_plan, exl2__masks_fill_due.
   owns:  nothing; the masks' memory is the batch's. */
#ifndef EXL2__MASKS_H
#define EXL2__MASKS_H

#include "../2_graph/forward.h"
#include "drafts.h"

#define EXL2__MASKS_COST_MIN 10000 /* nodes; the time of a mask that costs fewer is not learned from */

/* Clears the bits of tokens that are not on the job's allow list; bits: [vocab]. */
EXL2__COLD
static void exl2__masks_apply_allow(const exl2__job *job, uint32_t *bits, uint32_t vocab)
{
    uint32_t kept[EXL2__JOB_TEXT_BYTES / sizeof(exl2_token) / 32] = { 0 };
    for (uint32_t i = 0; i < job->lists.allow_count; i++) {
        uint32_t token = (uint32_t)job->lists.allow[i];
        kept[i / 32] |= (token < vocab ? bits[token / 32] >> (token & 31) & 1 : 0) << (i & 31);
    }
    memset(bits, 0, exl2__bit_words(vocab) * sizeof *bits);
    for (uint32_t i = 0; i < job->lists.allow_count; i++) {
        uint32_t token = (uint32_t)job->lists.allow[i];
        if (kept[i / 32] >> (i & 31) & 1) {
            bits[token / 32] |= 1u << (token & 31);
        }
    }
}

/* Sets the bits of tokens whose text begins with the text of the prompt's last token, which the first sampled token
   replaces, and goes on as the grammar allows. */
EXL2__COLD
static exl2_result exl2__masks_set_healing(exl2_engine *e, const exl2__model *m, exl2__job *job, uint32_t *bits,
                                           uint32_t words)
{
    size_t prefix_bytes;
    bool special;
    const char *prefix = exl2__vocab_piece(&m->vocab, job->healed, &prefix_bytes, &special);
    memset(bits, 0, words * sizeof *bits);
    for (uint32_t id = 0; id < exl2__min32(m->vocab.id_count, m->plan.shape.vocab); id++) {
        bool begins = exl2__jobs_can_replace(m, (exl2_token)id, prefix, prefix_bytes);
        if (begins && job->grammar.slot) {
            EXL2__TRY(exl2__grammars_heal(e, job, (exl2_token)id, &begins));
        }
        bits[id / 32] |= (uint32_t)begins << (id & 31);
    }
    return EXL2_OK;
}

/* The tokens that the grammar allows: the forced one alone, if there is one. *over: none, the text ends here. */
EXL2__COLD
static exl2_result exl2__masks_set_grammar(exl2_engine *e, exl2__job *job, uint32_t *bits, uint32_t vocab, bool *over)
{
    exl2_token forced;
    EXL2__TRY(exl2__forced_token(e, job, &forced));
    if (forced < 0 || (uint32_t)forced >= vocab) {
        return exl2__grammars_mask(e, job, bits, vocab, over);
    }
    memset(bits, 0, exl2__bit_words(vocab) * sizeof *bits);
    bits[forced / 32] |= 1u << forced % 32;
    return EXL2_OK;
}

/* The tokens of model `m`, the job's own or its draft model, that may be sampled: allowed by a healed token or the
   grammar (*over: it allows nothing), and by the allow list. */
EXL2__COLD
static exl2_result exl2__masks_fill_bits(exl2_engine *e, exl2__model *m, exl2__job *job, uint32_t *bits, bool *over)
{
    uint32_t vocab = m->plan.shape.vocab, words = exl2__bit_words(vocab);
    *over = false;
    if (exl2__jobs_heals(job)) {
        EXL2__TRY(exl2__masks_set_healing(e, m, job, bits, words));
    } else if (job->grammar.slot) {
        EXL2__TRY(exl2__masks_set_grammar(e, job, bits, vocab, over));
    } else {
        memset(bits, 0xFF, words * sizeof *bits);
    }
    if (job->lists.allow_count) {
        exl2__masks_apply_allow(job, bits, vocab);
    }
    return EXL2_OK;
}

/* Assigns memory to the masks of a pass. A row that samples has a mask if a grammar, an allow list or a healed token
   limits it; a drafter's row, if one limits its job. The masks are filled in while the pass runs. */
static inline void exl2__masks_plan(exl2_engine *e, exl2__model *m)
{
    uint32_t *next = m->batch.masks;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        exl2__sequence *s = &job->sequence;
        const exl2__job *of = job->drafts_for ? job->drafts_for : job;
        if (s->rows) {
            bool samples = !s->prefill_only && s->rows == exl2__sequence_pending(s) + s->draft_count;
            s->mask_due = samples && (of->grammar.slot || of->lists.allow_count || exl2__jobs_heals(of));
            s->mask = s->mask_due ? next : NULL;
            next += s->mask_due ? (size_t)exl2__sequence_samples(s) * m->batch.mask_words : 0;
        }
    }
}

/* Fills in the masks of the rows of drafts, each as if the drafts before it were in the history. If one cannot be made,
   or the text would end there, the rows from there on sample nothing. */
EXL2__COLD
static void exl2__masks_fill_drafts(exl2_engine *e, exl2__model *m, exl2__job *job)
{
    exl2__sequence *s = &job->sequence;
    exl2__drafts_place kept;
    uint32_t *bits = s->mask + (exl2__sequence_samples_after(s, 0) ? m->batch.mask_words : 0);
    s->draft_usable = 0;
    if (!exl2__drafts_begin(job, &kept)) {
        return;
    }
    for (uint32_t i = 1; i <= s->draft_count; i++) {
        bool over = false;
        s->table->tokens = s->draft_at + i;
        if (exl2__sequence_samples_after(s, i)) {
            if (exl2__masks_fill_bits(e, m, job, bits, &over) < 0 || over) {
                break;
            }
            bits += m->batch.mask_words;
        }
        s->draft_usable = i;
    }
    exl2__drafts_end(job, &kept);
}

/* Fills in the mask of a drafter's row: what its job may sample once the drafts so far are in the history. It stays
   empty, which ends the drafts, where it cannot be made, or where the text would end. */
EXL2__COLD
static void exl2__masks_fill_drafter(exl2_engine *e, exl2__model *m, const exl2__job *drafter, uint32_t *bits)
{
    exl2__job *job = drafter->drafts_for;
    exl2__table *t = job->sequence.table;
    const exl2__table *drafted = drafter->sequence.table;
    exl2__drafts_place kept;
    bool over = false;
    if (!exl2__draft_models_owes(drafter) || !exl2__drafts_begin(job, &kept)) {
        return;
    }
    memcpy(t->words + t->tokens, drafted->words + t->tokens, (drafted->tokens - t->tokens) * sizeof *t->words);
    t->tokens = drafted->tokens;
    if (exl2__masks_fill_bits(e, m, job, bits, &over) < 0 || over) {
        memset(bits, 0, m->batch.mask_words * sizeof *bits);
    }
    exl2__drafts_end(job, &kept);
}

/* Fills in the masks of a job's rows. If the job's text ends here, or the mask fails, the job ends, and its rows are
   ignored. */
static inline void exl2__masks_fill(exl2_engine *e, exl2__model *m, exl2__job *job)
{
    bool over;
    size_t words = (size_t)exl2__sequence_samples(&job->sequence) * m->batch.mask_words;
    memset(job->sequence.mask, 0, words * sizeof *job->sequence.mask);
    job->sequence.mask_due = false;
    if (job->drafts_for) {
        exl2__masks_fill_drafter(e, m, job, job->sequence.mask);
        return;
    }
    exl2_result r = exl2__masks_fill_bits(e, m, job, job->sequence.mask, &over);
    if (r < 0) {
        exl2__jobs_fail(e, job, r);
    } else if (over) {
        exl2__jobs_end_text(job, m);
    } else if (job->sequence.draft_count) {
        exl2__masks_fill_drafts(e, m, job);
    }
}

/* Estimated cost of the job's mask, in nodes; 0: it costs little, or an error follows. */
static inline uint32_t exl2__masks_cost(exl2_engine *e, const exl2__model *m, exl2__job *job)
{
    exl2_token forced = -1;
    bool heals = exl2__jobs_heals(job), known = !heals && exl2__forced_token(e, job, &forced) >= 0 && forced < 0;
    return heals ? m->vocab.id_count : known ? exl2__grammars_cost(e, job) : 0;
}

/* Fills in the masks of the pass that are due. false: because of the deadline (0 = none) some are left for later. */
static inline bool exl2__masks_fill_due(exl2_engine *e, exl2__model *m, uint64_t deadline_ns)
{
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        if (!job->sequence.rows || !job->sequence.mask_due) {
            continue;
        }
        uint64_t begin_ns = exl2__platform_ns();
        float cost = (float)exl2__masks_cost(e, m, job);
        if (deadline_ns && begin_ns + (uint64_t)(cost * m->mask_ns) > deadline_ns) {
            return false;
        }
        exl2__zone_begin(&e->ctx, "exl2 mask");
        exl2__masks_fill(e, m, job);
        exl2__zone_end(&e->ctx);
        if (cost >= EXL2__MASKS_COST_MIN) {
            m->mask_ns += exl2__mul_float(0.25f, (float)(exl2__platform_ns() - begin_ns) / cost - m->mask_ns);
        }
    }
    return true;
}

#endif
