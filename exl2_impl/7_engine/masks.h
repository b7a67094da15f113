/* masks.h: masks, which say what each row of the next pass may sample: one bit per token.
   takes: jobs with rows in a pass.
   gives: exl2__budget, exl2__masks_plan, exl2__masks_fill_due.
   owns:  nothing; the masks' memory is the batch's. */
#ifndef EXL2__MASKS_H
#define EXL2__MASKS_H

#include "../2_graph/forward.h"
#include "drafts.h"

#define EXL2__MASKS_NODES_MIN 1000u /* of a part; the time of one that visits fewer is not learned from */

/* What a step may use: exl2_step_desc, with the deadlines of this step. */
typedef struct exl2__budget {
    uint64_t deadline_ns; /* by exl2__platform_ns, for work on the CPU; 0 = none: one pass */
    uint64_t unit_ns;     /* most predicted time of a unit of work on the CPU; 0 = any */
    uint64_t gpu_ns;      /* GPU time to queue on the GPU of the model that may do least; 0 = one pass */
    uint64_t card_ns[EXL2_DEVICES_MAX]; /* with gpu_ns: on each GPU of the engine */
    bool wait;            /* may sleep until the GPU has finished a pass */
} exl2__budget;

/* Clears the bits of tokens that are not on the job's allow list; bits: [vocab]. */
EXL2__PRIVATE void exl2__masks_apply_allow(const exl2__job *job, uint32_t *bits, uint32_t vocab)
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
EXL2__PRIVATE exl2_result exl2__masks_set_healing(exl2_engine *e, const exl2__model *m, exl2__job *job, uint32_t *bits,
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
EXL2__PRIVATE exl2_result exl2__masks_set_grammar(exl2_engine *e, exl2__job *job, uint32_t *bits, uint32_t vocab,
                                                  bool *over)
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
EXL2__PRIVATE exl2_result exl2__masks_fill_bits(exl2_engine *e, exl2__model *m, exl2__job *job, uint32_t *bits,
                                                bool *over)
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
        const exl2__job *of = job->drafting.target ? job->drafting.target : job;
        if (s->rows) {
            bool samples = !s->prefill_only && s->rows == exl2__sequence_pending(s) + s->draft_count;
            s->mask_due = samples && (of->grammar.slot || of->lists.allow_count || exl2__jobs_heals(of));
            s->mask = s->mask_due ? next : NULL;
            s->mask_row = 0;
            next += s->mask_due ? (size_t)exl2__sequence_samples(s) * m->batch.mask_words : 0;
        }
    }
}

/* ---- one mask after the other ---- */

/* The job whose settings limit a row: of a drafter's row, the job that it drafts for. Its history is longer for a
   while, by the drafts before the row. */
typedef struct exl2__masks_row {
    exl2__job *job; /* NULL: the mask stays empty, which ends the drafts there */
    bool longer;
    exl2__drafts_place kept;
} exl2__masks_row;

/* Begins with the next row of `job`; *row must not move until _leave. */
static inline void exl2__masks_enter(exl2__job *job, exl2__masks_row *row)
{
    exl2__sequence *s = &job->sequence;
    exl2__job *of = job->drafting.target ? job->drafting.target : job;
    bool usable = !job->drafting.target || exl2__draft_models_owes(job);
    exl2__table *t = of->sequence.table;
    row->longer = job->drafting.target || s->mask_row > 0;
    row->job = usable && (!row->longer || exl2__drafts_begin(of, &row->kept)) ? of : NULL;
    if (row->job && job->drafting.target) {
        const exl2__table *drafted = s->table;
        memcpy(t->words + t->tokens, drafted->words + t->tokens, (drafted->tokens - t->tokens) * sizeof *t->words);
        t->tokens = drafted->tokens;
    } else if (row->job && row->longer) {
        t->tokens = s->draft_at + s->mask_row;
    }
}

static inline void exl2__masks_leave(exl2__masks_row *row)
{
    if (row->job && row->longer) {
        exl2__drafts_end(row->job, &row->kept);
    }
}

/* A part of the work on a job's masks. */
typedef struct exl2__masks_part {
    uint32_t nodes;  /* at most; 0: it costs little, or an error follows */
    bool prepares;   /* it begins or walks a mask of the grammar, from which the row's mask is made then */
    bool begins;
    uint64_t ns;     /* predicted */
} exl2__masks_part;

/* The next part for a job; most_ns: its predicted time, at most; 0: any. */
static inline exl2__masks_part exl2__masks_next_part(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                                     uint64_t most_ns)
{
    exl2__masks_part part = { 0 };
    exl2_token forced = -1;
    if (exl2__jobs_heals(job)) {
        part.nodes = m->vocab.id_count;
    } else if (exl2__forced_token(e, job, &forced) >= 0 && forced < 0) {
        part.nodes = exl2__grammars_cost(e, job);
        part.prepares = part.nodes > 0;
    }
    part.begins = part.prepares && !exl2__grammars_walks(job);
    if (part.prepares && most_ns) {
        float most = (float)most_ns / m->mask_ns;
        part.nodes = most < (float)part.nodes ? exl2__max32((uint32_t)most, EXL2__MASKS_NODES_MIN) : part.nodes;
    }
    part.ns = part.begins ? (uint64_t)m->mask_begin_ns : (uint64_t)((float)part.nodes * m->mask_ns);
    return part;
}

/* Fills in the mask of the row after all tokens of the history. If the job's text ends here, or the mask fails, the job
   ends, and its rows are ignored. */
static inline void exl2__masks_fill_first(exl2_engine *e, exl2__model *m, exl2__job *job, uint32_t *bits)
{
    bool over;
    exl2_result r = exl2__masks_fill_bits(e, m, job, bits, &over);
    job->sequence.draft_usable = 0;
    if (r < 0) {
        exl2__jobs_fail(e, job, r);
    } else if (over) {
        exl2__jobs_end_text(job, m);
    }
    job->sequence.mask_due = r >= 0 && !over && job->sequence.draft_count > 0;
}

/* Fills in the mask of a row after drafts, as if they were in the history. If it cannot be made, or the text would end
   there, it stays empty, and the rows from there on sample nothing. */
static inline void exl2__masks_fill_later(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2__masks_row *row,
                                          uint32_t *bits)
{
    exl2__sequence *s = &job->sequence;
    bool over = false, samples = job->drafting.target || exl2__sequence_samples_after(s, s->mask_row);
    bool usable = row->job && (!samples || (exl2__masks_fill_bits(e, m, row->job, bits, &over) >= 0 && !over));
    if (!usable && samples) {
        memset(bits, 0, m->batch.mask_words * sizeof *bits);
    }
    s->draft_usable = usable ? s->mask_row : s->draft_usable;
    s->mask_due = usable && s->mask_row < s->draft_count;
}

/* The mask of the job's next row. */
static inline uint32_t *exl2__masks_next(const exl2__model *m, const exl2__sequence *s)
{
    uint32_t *bits = s->mask;
    for (uint32_t i = 0; i < s->mask_row; i++) {
        bits += exl2__sequence_samples_after(s, i) ? m->batch.mask_words : 0;
    }
    return bits;
}

/* Fills in the mask of the job's next row. */
static inline void exl2__masks_fill(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2__masks_row *row)
{
    exl2__sequence *s = &job->sequence;
    if (s->mask_row == 0) {
        memset(s->mask, 0, (size_t)exl2__sequence_samples(s) * m->batch.mask_words * sizeof *s->mask);
    }
    if (row->longer || !row->job) {
        exl2__masks_fill_later(e, m, job, row, exl2__masks_next(m, s));
    } else {
        exl2__masks_fill_first(e, m, job, s->mask);
    }
    s->mask_row++;
}

static inline void exl2__masks_learn(exl2__model *m, const exl2__masks_part *part, uint64_t nodes, uint64_t ns)
{
    if (part->begins) {
        m->mask_begin_ns += exl2__mul_float(0.25f, (float)ns - m->mask_begin_ns);
    } else if (nodes >= EXL2__MASKS_NODES_MIN) {
        m->mask_ns += exl2__mul_float(0.25f, (float)ns / (float)nodes - m->mask_ns);
    }
}

/* Does the next part of a job's masks, unless it is expected to end after the deadline (0 = none): then false. The
   first part that costs anything is done in any case with *at_least_one. */
static inline bool exl2__masks_do_part(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2__budget *budget,
                                       bool *at_least_one)
{
    exl2__masks_row row;
    exl2__masks_part part = { 0 };
    uint64_t begin_ns = exl2__platform_ns();
    exl2__masks_enter(job, &row);
    if (row.job) {
        part = exl2__masks_next_part(e, m, row.job, budget->unit_ns);
    }
    bool fits = !budget->deadline_ns || *at_least_one || begin_ns + part.ns <= budget->deadline_ns;
    if (fits) {
        const char *name = part.prepares ? "exl2 state mask" : "exl2 mask";
        const exl2__grammar_slot *slot = row.job ? row.job->grammar.slot : NULL;
        const uint64_t *visited = slot && slot->made ? &slot->made->mask.nodes : NULL;
        uint64_t before = visited ? *visited : 0;
        exl2__zone_begin(&e->ctx, name);
        if (part.prepares) {
            exl2__grammars_prepare(row.job, part.nodes);
        } else {
            exl2__masks_fill(e, m, job, &row);
        }
        exl2__zone_end(&e->ctx);
        uint64_t ns = exl2__platform_ns() - begin_ns;
        exl2__zone_unit(&e->ctx, name, part.ns, ns);
        exl2__masks_learn(m, &part, visited ? *visited - before : part.nodes, ns);
        *at_least_one = *at_least_one && part.nodes == 0;
    }
    exl2__masks_leave(&row);
    return fits;
}

/* Fills in the masks of the pass that are due. false: because of the deadline some are left for later. */
static inline bool exl2__masks_fill_due(exl2_engine *e, exl2__model *m, const exl2__budget *budget, bool at_least_one)
{
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        while (job->sequence.rows && job->sequence.mask_due) {
            if (!exl2__masks_do_part(e, m, job, budget, &at_least_one)) {
                return false;
            }
        }
    }
    return true;
}

#endif
