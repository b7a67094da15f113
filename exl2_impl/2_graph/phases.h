/* phases.h: THE BACKEND BOUNDARY. Everything above asks for phases of a forward pass; everything below does them.
   takes: checked model tensors once, then a step (rows, page tables, sampling) per pass.
   gives: EXL2__PHASES, the structs that cross the boundary, exl2__backend.
   owns:  nothing; a backend owns weights, pages and scratch, in arenas whose size `measure` gave. */
#ifndef EXL2__PHASES_H
#define EXL2__PHASES_H

#include "../0_base/arena.h"
#include "../1_load/exl2_matrix.h"

#define EXL2__PAGE_TOKENS 64u /* tokens of a KV page */
#define EXL2__NO_PAGE UINT32_MAX

/* The one list: vtable, names, profiler zones and the parity test are made from it, in the order of a pass.
   r = residual rows [rows, hidden] f32; K and V pages are f16; everything else f32. */
#define EXL2__PHASES(X)                                                                          \
    X(copy_pages) /* whole pages, for copy-on-write                                           */ \
    X(embed)      /* r = table[token]                                                         */ \
    X(qkv)        /* x = rmsnorm(r) * w; q, k, v = x * W (+ bias); RoPE on q, k; k, v -> pages */ \
    X(attend)     /* o = softmax(scale * q K^T, keys 0..position of the row) V                 */ \
    X(out)        /* r += o * W (+ bias)                                                      */ \
    X(gate_up)    /* x = rmsnorm(r) * w; h = silu(x * Wg) * (x * Wu)                          */ \
    X(down)       /* r += h * W (+ bias)                                                      */ \
    X(head)       /* x = rmsnorm(r) * w; logits = x * W, for rows that want them              */ \
    X(sample)     /* penalties, bias, filters, draw -> token; log-probabilities               */

typedef enum exl2__phase {
#define X(name) EXL2__PHASE_##name,
    EXL2__PHASES(X)
#undef X
    EXL2__PHASE_COUNT
} exl2__phase;

/* ---- what a model is made of ---- */

typedef struct exl2__shape {
    uint32_t vocab, hidden, layers, heads, kv_heads, head_dim, inter; /* inter: width of the MLP */
    uint32_t embed_rows;                                              /* rows of the embedding; may differ from vocab */
    float norm_eps, attn_scale;
} exl2__shape;

/* Some rows of one matrix, in file order. EXL2: word rows [row, row + rows) of q_weight, u32 [rows, out_stored].
   Dense: output features [row, row + rows), [rows, in] of the desc's dtype. Slices come in order, without gaps;
   `data` is aligned to 4 bytes. */
typedef struct exl2__rows_slice {
    uint32_t row, rows;
    const void *data;
} exl2__rows_slice;

typedef struct exl2__matrix exl2__matrix; /* parts (q, k, v or gate, up or one) packed as the backend likes */
typedef struct exl2__vector exl2__vector; /* norm weights */

typedef struct exl2__layer {
    uint32_t index;
    exl2__matrix *qkv, *out, *gate_up, *down; /* qkv: 3 parts; gate_up: 2 parts */
    exl2__vector *attn_norm, *mlp_norm;
} exl2__layer;

/* What a backend must know before it can prepare; sizes are final. */
typedef struct exl2__plan {
    exl2__shape shape;
    const double *rope_frequency; /* [head_dim / 2] radians per position; NeoX pairs (i, i + head_dim / 2) */
    uint32_t rows_max;            /* rows of a pass */
    uint32_t logit_rows_max;      /* rows whose logits exist at a time (head and sample work on such a group) */
    uint32_t sequences_max, context_max, pages; /* context_max: a multiple of the page size */
    exl2__layer *layers;          /* [shape.layers] */
    exl2__matrix *embed, *head;   /* dense 1-part table read by row; may be the same matrix (tied) */
    exl2__vector *final_norm;
} exl2__plan;

/* ---- what changes per pass ---- */

typedef struct exl2__step_row { /* one position of one sequence; rows of a sequence are consecutive and ascending */
    exl2_token token;
    uint32_t position, sequence; /* sequence: index into exl2__step.page_tables */
} exl2__step_row;

typedef struct exl2__page_copy { uint32_t from, to; } exl2__page_copy;

/* A resolved sampler: every field means what it says, nothing is "default" any more. */
typedef struct exl2__sampling {
    bool greedy;
    uint32_t top_k;                     /* 0 = off */
    float temperature;                  /* > 0 */
    float top_p, min_p, repeat_penalty; /* 1, 0, 1 = off */
    uint64_t seed;
    const exl2_bias *bias;
    uint32_t bias_count;
    /* What not every backend draws with (exl2__backend.draws). 0 = off: */
    float frequency_penalty, presence_penalty;
    uint32_t penalty_range, penalty_decay; /* decay: tokens behind the range over which penalties fade */
    bool temperature_last;
    float smoothing, top_a, tail_free, typical, skew;
    float dynamic_min, dynamic_max, dynamic_exponent; /* on if max > min */
    float xtc_probability, xtc_threshold;
    bool (*xtc_keeps)(const void *user, exl2_token token); /* what it never takes; from any thread; NULL = nothing */
    const void *xtc_user;
    float mirostat_tau, mirostat_eta, mirostat_mu; /* mu: of the job, as it is now */
} exl2__sampling;

#define EXL2__LOGIT_EXTRAS_MAX 1024u /* entries of a row's own list */

/* HOST: the engine takes the row's logits (exl2__backend.logits) and draws (exl2__backend.draw). */
typedef enum exl2__logit_use { EXL2__LOGIT_SAMPLE, EXL2__LOGIT_SCORE, EXL2__LOGIT_FETCH } exl2__logit_use;

typedef struct exl2__logit_row { /* a row that wants logits, ascending by row */
    uint32_t row;                   /* into exl2__step.rows */
    exl2__logit_use use;
    exl2_token target;              /* SCORE: the token whose log-probability is wanted */
    uint32_t alts;                  /* likeliest tokens wanted, at most EXL2_ALTS_MAX */
    const exl2__sampling *sampling; /* DRAW, HOST, and so on with what follows */
    const float *negative;          /* HOST: logits [vocab] of guidance, NULL = none; */
    float guidance;                 /* how far from those */
    const uint32_t *mask;           /* [ceil(vocab / 32)] a bit for each token that may be drawn; NULL = all. Filled in
                                       while the pass is under way */
    uint64_t sample_position;         /* DRAW: absolute position of the new token in its session; */
    uint32_t attempt;               /* and how often that position was taken back */
    const exl2_token *history;      /* DRAW: tokens that the repeat penalty looks at, */
    uint32_t history_count;
    uint32_t history_max;           /* and how many they may become, the newest ones, as tokens are drawn */
    const exl2_bias *extras;        /* added behind the sampling's biases: of this token alone */
    uint32_t extra_count;
    uint32_t left;                  /* DRAW: tokens that may still be drawn, this one included; pages are there */
} exl2__logit_row;

typedef struct exl2__logit_result {
    exl2_token token;       /* DRAW: the drawn one, -1 if none is allowed (all banned, or all NaN); SCORE: the target */
    float logprob;          /* natural log of the raw softmax (before penalties and bias) at `token` */
    float logsumexp;        /* of the raw logits */
    float surprise;         /* DRAW with mirostat: -log2 of the token's share of those that were left */
    uint32_t alt_count;
    exl2_alt *alts;         /* [EXL2_ALTS_MAX], memory of whoever reads the result; descending, ties by lowest id */
} exl2__logit_result;

typedef struct exl2__step { /* the arrays live until the pass has ended */
    const exl2__step_row *rows;
    uint32_t row_count, sequence_count;
    const uint32_t *const *page_tables; /* [sequence_count][pages of the sequence] page numbers */
    const exl2__page_copy *copies; /* in order: a later one may overwrite a page that an earlier one reads */
    uint32_t copy_count;
    const exl2__logit_row *logits;
    uint32_t logit_count;
    bool decodes; /* every row is the only one of its sequence, and draws */
    bool masked;  /* some rows have masks: nothing is drawn before they are there */
} exl2__step;

/* The part of a phase that one call does. Items are the backend's own unit of work (exl2__backend.items says how
   many a phase has); a phase is done when every item was done once, ascending. `head` and `sample` work on the
   logit rows [logit0, logit0 + logit_count) of the step, at most logit_rows_max. */
typedef struct exl2__range {
    uint32_t begin, end;
    uint32_t logit0, logit_count;
} exl2__range;

#define EXL2__PHASE_KINDS 3 /* of items in a phase */

typedef struct exl2__item_run {
    uint64_t cost; /* multiply-adds of an item, in proportion among items of a kind */
    uint32_t kind; /* what a multiply-add takes depends on it, and on the phase; */
    uint32_t end;  /* items up to here are of it. 0: there is no such item */
} exl2__item_run;

typedef struct exl2__device exl2__device; /* one model on one backend: its weights, pages, scratch */

typedef struct exl2__backend {
    const char *name; /* "cpu", "cuda" */
    /* Life. `open` takes the device struct itself from the heap; close accepts NULL. */
    exl2_result (*open)(exl2__ctx *c, void *hardware, exl2__device **out); /* hardware: the engine's, NULL for "cpu" */
    void (*close)(exl2__device *d);
    /* Weights. The caller opens `weights` with the sum of the *_bytes; the same calls in the same order then fit. */
    bool needs_groups; /* matrix_bytes reads the groups of its descs, too */
    uint64_t (*matrix_bytes)(const exl2__device *d, const exl2__matrix_desc *parts, uint32_t count);
    uint64_t (*vector_bytes)(const exl2__device *d, uint32_t count);
    exl2_result (*matrix_make)(exl2__device *d, exl2__arena *weights, const exl2__matrix_desc *parts, uint32_t count,
                               exl2__matrix **out);
    exl2_result (*matrix_feed)(exl2__device *d, exl2__matrix *m, uint32_t part, const exl2__rows_slice *slice);
    /* Of a backend that lends the memory which slices are read into, else NULL: *out has room for `bytes`, and is the
       next matrix_feed's slice->data; nothing else is made or fed in between. May wait for a copy from there. */
    exl2_result (*stage)(exl2__device *d, uint64_t bytes, void **out);
    exl2_result (*vector_make)(exl2__device *d, exl2__arena *weights, const float *values, uint32_t count,
                               exl2__vector **out);
    /* Of a backend with memory of its own, else NULL: rows of a pass if the host does not say how many; bytes that it
       has left, bytes of its buffers besides weights and pages; code and memory for the weights, before any is made:
       PENDING, call it again. It leaves the caller's arenas of weights and pages alone. */
    uint32_t (*prefill_chunk)(uint64_t weight_bytes);
    uint64_t (*room)(const exl2__device *d);
    uint64_t (*buffer_bytes)(const exl2__device *d, const exl2__plan *plan);
    /* Peak of the host bytes that the backend allocates for the model outside of the caller's arenas: while weights are
       loaded in slices of at most slice_bytes, or (ready) from prepare on. */
    uint64_t (*host_bytes)(const exl2__device *d, const exl2__plan *plan, uint64_t slice_bytes, bool ready);
    exl2_result (*reserve)(exl2__device *d, uint64_t weight_bytes);
    /* Pages and scratch, from arenas; dry arenas measure (plan->layers, embed ... are not read then). After it nothing
       allocates. */
    uint64_t (*page_bytes)(const exl2__device *d, const exl2__plan *plan);
    exl2_result (*prepare)(exl2__device *d, const exl2__plan *plan, exl2__arena *pages, exl2__arena *scratch);
    /* A pass: begin, then every phase over all its items, layer by layer; then the results. */
    exl2_result (*begin)(exl2__device *d, const exl2__step *step); /* *step lives until the pass is over */
    uint32_t (*items)(const exl2__device *d, exl2__phase phase, const exl2__range *logits);  /* of the step begun */
    /* Item `item` of a phase at `rows` rows, and which ones behind it are alike: a guide for budgets. Of a backend that
       queues: NULL. */
    exl2__item_run (*alike)(const exl2__device *d, exl2__phase phase, uint32_t rows, uint32_t item);
    /* After `sample`, or (count 0) at the end of a pass without logits. PENDING, if not told to wait, while a device is
       still at it. */
    exl2_result (*collect)(exl2__device *d, uint32_t logit0, uint32_t count, bool wait, exl2__logit_result *results);
    /* Whether it draws with these settings; if not, rows have to be HOST. NULL: with all. */
    bool (*draws)(const exl2__sampling *sampling);
    /* After collect, until the next group: logits of the group's row `row`, in memory of the backend's, which may be
       changed and which the next call may overwrite. draw: the chain of sampling on them. */
    exl2_result (*logits)(exl2__device *d, uint32_t row, float **out);
    exl2_result (*draw)(exl2__device *d, float *logits, const exl2__logit_row *row, exl2__logit_result *result);
    /* Of a backend whose device works by itself, else NULL. A pass is cut into units: `units` ranges of layers (copies
       and embedding in the first), then one of head and sampling for each group of logit rows. They are only queued.
       Times are what the device is expected to take, learnt from what it took. */
    uint32_t (*units)(const exl2__device *d); /* of the pass begun */
    exl2_result (*queue)(exl2__device *d, uint32_t begin, uint32_t end, bool timed); /* at most one group; in order */
    uint64_t (*unit_ns)(const exl2__device *d, uint32_t unit);
    uint64_t (*queued_ns)(exl2__device *d);                     /* of what was queued, timed, and has not ended */
    uint32_t (*rows_for)(const exl2__device *d, uint64_t ns);   /* rows of a pass none of whose units takes longer */
    /* The masks of the pass that was begun are there: takes them to the device, in front of head and sampling. */
    exl2_result (*masks)(exl2__device *d);
    /* Queues a pass that decodes once more, before its tokens are known here: every row goes on with the token that it
       drew, by one position; one that may draw no more is left out. Of a pass with masks only the layers: new masks and
       the rest follow. `begin` drops such a pass. ahead: how many are worth queueing at once, for who waits. */
    exl2_result (*repeat)(exl2__device *d);
    uint32_t (*ahead)(const exl2__device *d);
#define X(name) exl2_result (*name)(exl2__device *d, const exl2__layer *layer, const exl2__range *range);
    EXL2__PHASES(X) /* layer: NULL outside the layers */
#undef X
} exl2__backend;

#endif
