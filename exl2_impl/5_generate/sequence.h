/* sequence.h: what scheduling knows about a job: a history, tokens to append to it, how to sample the next.
   takes: a session's table, the prompt's ids, a resolved sampler.
   gives: exl2__sequence.
   owns:  nothing; the job that embeds it owns the memory behind the pointers. */
#ifndef EXL2__SEQUENCE_H
#define EXL2__SEQUENCE_H

#include "../4_cache/table.h"
#include "dry.h"

#define EXL2__SEQUENCE_TRIED_MAX 64 /* tokens tried in vain at a position; then a banned string is let through */
#define EXL2__SEQUENCE_ENDS_MAX 256 /* end tokens that a minimum length bans */

/* A sequence is waiting (for pages), then active. While active, the tokens of its history that have no K and V yet
   are its pending rows: many during prefill, one per decoded token. */
typedef struct exl2__sequence exl2__sequence;

struct exl2__sequence {
    bool live;                    /* false: an empty slot */
    bool active;                  /* pages are reserved and the prompt is in the history */
    bool held;                    /* paused, or its events have no room: not started, and no rows for now */
    bool prefill_only, score_prompt;
    int32_t priority;
    uint64_t order;               /* of start; ties of priority go to the lower one */
    uint32_t skips;               /* times that a later sequence was started before this one */
    exl2__table *table;
    const exl2_token *prompt;     /* [prompt_count] what to append, while waiting */
    uint32_t prompt_count;
    uint32_t keep;                /* tokens of the old history to keep, while waiting */
    uint32_t prompt_end;          /* history length with the prompt */
    uint32_t tokens_end;          /* history length that pages are reserved for */
    uint32_t alts;
    exl2__sampling sampling;
    int32_t penalty_range;        /* tokens; 0 = none, -1 = all */
    exl2__dry dry;
    bool fetches_logits;                 /* the engine draws: the backend cannot, or the host looks at logits */
    bool waits;                   /* the next row of this one cannot begin before its token is known here */
    const exl2_token *ends;       /* [end_count] not drawn before the history has min_end tokens */
    uint32_t end_count, min_end;
    exl2_token tried[EXL2__SEQUENCE_TRIED_MAX]; /* [tried_count] not drawn at position tried_at */
    uint32_t tried_count, tried_at;
    uint32_t attempt;             /* how often the history was taken back */
    exl2__sequence *counterpart;      /* guidance: starts with this one, and draws in the same passes; */
    bool is_negative;                 /* it is the partner that decides when */
    uint32_t rows_most;           /* in the next pass; 0 = as many as there are */
    uint32_t rows;                /* rows of the pass that is going on; 0 = not in it */
    uint32_t *mask;               /* of that pass: a bit for each token that may be drawn; NULL = all may */
    bool mask_due;                /* it is not filled in yet */
};

/* Higher priority first, then the earlier one. */
static inline bool exl2__sequence_before(const exl2__sequence *a, const exl2__sequence *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->order < b->order;
}

static inline uint32_t exl2__sequence_pending(const exl2__sequence *s)
{
    return s->table->tokens - s->table->cached;
}

/* A minimum length bans end tokens now. */
static inline bool exl2__sequence_is_short(const exl2__sequence *s)
{
    return s->end_count > 0 && s->table->tokens < s->min_end;
}

static inline bool exl2__sequence_decodes(const exl2__sequence *s)
{
    return s->table->tokens > s->prompt_end;
}

#endif
