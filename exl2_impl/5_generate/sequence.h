/* sequence.h: the part of a job that scheduling needs: a history, tokens to append to it, how to sample the next token.
   takes: a session's table, the prompt's token ids, a resolved sampler.
   gives: exl2__sequence.
   owns:  nothing; the job that contains it owns the memory that the pointers point to. */
#ifndef EXL2__SEQUENCE_H
#define EXL2__SEQUENCE_H

#include "../4_cache/table.h"
#include "dry.h"

#define EXL2__SEQUENCE_TRIED_MAX 64 /* tokens banned at one position after rewinds; then a banned string is accepted */
#define EXL2__SEQUENCE_DRAFT_MAX 15u /* rows of a pass after the one that has to be computed */
#define EXL2__SEQUENCE_ENDS_MAX 256 /* end tokens that are banned below a minimum length */

/* A sequence first waits for pages, then it is active. The tokens of an active sequence that have no K and V yet are
   its pending rows: many during prefill, one during decode. A sequence that is preempted waits again; it has begun, so
   its prompt and the tokens sampled so far are in the history, and their K and V are found or computed again. */
typedef struct exl2__sequence exl2__sequence;

struct exl2__sequence {
    bool live;                    /* false: an empty slot */
    bool active;                  /* it has pages */
    bool begun;                   /* the prompt is in the history */
    bool held;                    /* paused, or the event queue is full: it is not started and gets no rows */
    bool drafting;                /* it waits for drafts: it gets no rows */
    bool leaves_last;             /* the last row stays pending, as no token is sampled now */
    bool leaving;                 /* scratch while sequences to preempt are chosen: this one is among them so far */
    bool blocked;                 /* in the current pass another sequence computes what this one needs */
    bool pictured;                /* its next row is of a picture whose rows are not there yet */
    uint32_t picture_at;          /* the place of the first row of such a picture, if it is not the next; 0 = none */
    bool apart;                   /* the current pass has rows of another kind (exl2__lora_rows) than this sequence */
    bool prefill_only, score_prompt;
    exl2_embed_pool pool;         /* of hidden states: those rows of the prompt are wanted */
    uint32_t pool_layer;          /* as exl2__logit_row.layer */
    int32_t priority;
    uint64_t order;               /* order of the calls that started jobs; of equal priorities the lower is first */
    uint32_t skips;               /* number of later sequences that were started before this one */
    exl2__table *table;
    const exl2__lora_set *loras;  /* adapters and control vectors of its rows; NULL: none */
    const uint32_t *prompt;       /* [prompt_count] while waiting: words to append, as words of a history; each is a
                                     use of the vector that it names until `begun` */
    uint32_t prompt_count;
    uint32_t keep;                /* while waiting: tokens of the old history to keep */
    uint32_t prompt_end;          /* length of the history including the prompt */
    uint32_t tokens_end;          /* largest length of the history */
    uint32_t reserve;             /* tokens after the history for which pages are promised; 0 = up to tokens_end */
    uint32_t final_end;           /* length of the history that no rewind shortens any more: what was delivered */
    uint32_t computed_end;        /* length of the history up to which rows of this job were computed */
    uint32_t passes_missed;       /* passes in a row in which its prompt got no rows */
    uint32_t preempt_from;        /* length of the history before which it is not preempted (again) */
    uint32_t alts;
    exl2__sampling sampling;
    int32_t penalty_range;        /* tokens; 0 = none, -1 = all */
    exl2__dry dry;
    bool fetches_logits;          /* EXL2__LOGIT_FETCH: the backend cannot sample, or a callback reads the logits */
    bool waits;                   /* the engine must see the sampled token before the next row: no pass is repeated */
    const exl2_token *ends;       /* [end_count] end tokens, banned until the history has min_end tokens */
    uint32_t end_count, min_end;
    exl2_token tried[EXL2__SEQUENCE_TRIED_MAX]; /* [tried_count] tokens that are banned at position tried_at */
    uint32_t tried_count, tried_at;
    uint32_t attempt;             /* number of rewinds so far */
    exl2__sequence *negative;     /* guidance: the sequence of the negative prompt, started together with this one and
                                     sampled in the same passes; NULL = no guidance, or this is the negative one */
    exl2__sequence *positive;     /* in the negative sequence: the positive one; else NULL */
    uint32_t rows_most;           /* limit of its rows in the next pass; 0 = none */
    uint32_t rows;                /* rows in the current pass; 0 = it is not in the pass */
    /* Tokens that may follow the history: guesses, and tokens that are forced after them. They lie in the history's
       memory after its end, until others are appended there. Rows of the current pass follow those that are pending. */
    exl2_token draft[EXL2__SEQUENCE_DRAFT_MAX]; /* [draft_count] at positions draft_at ... */
    uint32_t draft_count, draft_at;
    uint32_t draft_forced;        /* bit i: draft[i] is forced, so no token is sampled from the row before it */
    uint32_t draft_usable;        /* drafts after which a token can be sampled, as far as masks are known */
    uint32_t *mask;               /* for the current pass: one bit per token, 1 = allowed; NULL = all are allowed.
                                     [rows that sample][words] */
    bool mask_due;                /* not all masks are filled in yet */
    uint32_t mask_row;            /* the row whose mask is next, as the number of drafts before it */
};

/* Do its rows have adapters? Those with control vectors alone share passes with all others. */
static inline bool exl2__sequence_is_adapted(const exl2__sequence *s)
{
    return s->loras && s->loras->count > 0;
}

/* Does one of its adapters add to routers or experts? */
static inline bool exl2__sequence_adapts_experts(const exl2__sequence *s)
{
    bool experts = false;
    for (uint32_t i = 0; s->loras && i < s->loras->count; i++) {
        experts = experts || s->loras->uses[i].store->experts;
    }
    return experts;
}

/* The higher priority is first; of equal ones, the sequence that was started earlier. */
static inline bool exl2__sequence_before(const exl2__sequence *a, const exl2__sequence *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->order < b->order;
}

/* Length of the history that pages are promised for when it has `tokens` tokens. */
static inline uint32_t exl2__sequence_promise(const exl2__sequence *s, uint32_t tokens)
{
    uint32_t reserve = exl2__max32(s->reserve, EXL2__PAGE_TOKENS); /* fewer would have to be promised at each step */
    return s->reserve && s->tokens_end > tokens && s->tokens_end - tokens > reserve ? tokens + reserve : s->tokens_end;
}

/* The other sequence of the pair under guidance, or NULL. */
static inline exl2__sequence *exl2__sequence_pair(const exl2__sequence *s)
{
    return s->negative ? s->negative : s->positive;
}

static inline uint32_t exl2__sequence_pending(const exl2__sequence *s)
{
    return s->table->tokens - s->table->cached;
}

/* Are end tokens banned at this position by a minimum length? */
static inline bool exl2__sequence_is_short_at(const exl2__sequence *s, uint32_t position)
{
    return s->end_count > 0 && position < s->min_end;
}

static inline bool exl2__sequence_is_short(const exl2__sequence *s)
{
    return exl2__sequence_is_short_at(s, s->table->tokens);
}

/* Is a token sampled from the row of draft[i - 1], for the position of draft[i]? Row 0 is the one before all drafts. */
static inline bool exl2__sequence_samples_after(const exl2__sequence *s, uint32_t i)
{
    return i >= s->draft_count || !(s->draft_forced >> i & 1);
}

/* Rows of the current pass from which a token is sampled, if all pending rows are in it. */
static inline uint32_t exl2__sequence_samples(const exl2__sequence *s)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i <= s->draft_count; i++) {
        rows += exl2__sequence_samples_after(s, i);
    }
    return rows;
}

/* Is the prompt computed, and are there tokens after it? */
static inline bool exl2__sequence_decodes(const exl2__sequence *s)
{
    return s->table->tokens > s->prompt_end && s->table->cached >= s->prompt_end;
}

/* Rows of the prompt that will be computed and have a next token in the prompt, which can be scored. */
static inline uint32_t exl2__sequence_unscored(const exl2__sequence *s)
{
    return s->prompt_end > s->table->cached + 1 ? s->prompt_end - 1 - s->table->cached : 0;
}

/* Where the prompt begins in the history. */
static inline uint32_t exl2__sequence_begin(const exl2__sequence *s)
{
    return s->begun ? s->prompt_end - s->prompt_count : exl2__min32(s->keep, s->table->tokens);
}

/* Whether the embedding needs all rows of the prompt. FIRST needs its first one, which is as good as all. */
static inline bool exl2__sequence_pools_all(const exl2__sequence *s)
{
    return s->pool == EXL2_EMBED_MEAN || s->pool == EXL2_EMBED_FIRST;
}

/* Whether the hidden state of the row at `position` is wanted, of an active sequence. What was computed before, as it
   may be after a preemption, is part of the embedding already. */
static inline bool exl2__sequence_pools(const exl2__sequence *s, uint32_t position)
{
    uint32_t begin = exl2__sequence_begin(s);
    bool wanted = s->pool == EXL2_EMBED_LAST ? position + 1 == s->prompt_end
                : s->pool == EXL2_EMBED_FIRST ? position == begin : s->pool == EXL2_EMBED_MEAN;
    return wanted && position >= begin && position < s->prompt_end
        && (position >= s->computed_end || s->pool == EXL2_EMBED_LAST);
}

/* Number of tokens whose K and V may be found: all but the last, whose logits are needed; of a scored prompt only those
   before the row that scores its first token, of one whose hidden states are needed those before it, and what this job
   has computed itself. */
static inline uint32_t exl2__sequence_reuse(const exl2__sequence *s, uint32_t tokens)
{
    uint32_t begin = exl2__sequence_begin(s), reuse = tokens - 1;
    if (exl2__sequence_pools_all(s) && s->computed_end < begin + s->prompt_count) {
        return exl2__min32(reuse, exl2__max32(s->computed_end, begin));
    }
    if (s->score_prompt && s->computed_end < begin + s->prompt_count) {
        reuse = exl2__min32(reuse, s->computed_end > begin ? s->computed_end : exl2__max32(begin, 1) - 1);
    }
    return reuse;
}

/* The same for K and V that are copied from another page. The last row of a pair, and one that stays pending, has to
   wait for a later pass, so the copy leaves a row before it for this one. */
static inline uint32_t exl2__sequence_copied(const exl2__sequence *s, uint32_t tokens)
{
    uint32_t reuse = exl2__sequence_reuse(s, tokens);
    bool last_waits = exl2__sequence_pair(s) || s->leaves_last;
    return reuse - (last_waits && reuse == tokens - 1);
}

/* The history that the sequence starts with. */
static inline exl2__table_text exl2__sequence_text(const exl2__sequence *s)
{
    uint32_t keep = s->begun ? s->table->tokens : exl2__sequence_begin(s), more = s->begun ? 0 : s->prompt_count;
    return (exl2__table_text){ s->table, keep, s->prompt, keep + more, exl2__sequence_copied(s, keep + more) };
}

/* Number of tokens that may lie in pages of other jobs, too: those that this job neither computes nor rewinds. */
static inline uint32_t exl2__sequence_shared(const exl2__sequence *s, uint32_t tokens)
{
    return exl2__min32(exl2__sequence_reuse(s, tokens), (s->begun ? s->final_end : tokens) - 1);
}

#endif
