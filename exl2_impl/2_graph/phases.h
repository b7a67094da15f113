/* phases.h: THE BACKEND BOUNDARY. The code above asks for phases of a forward pass; a backend computes them.
   takes: checked model tensors once, then a step (rows, page tables, sampling) per pass.
   gives: EXL2__PHASES, exl2__phase, the structs that cross the boundary, exl2__backend and its optional tables.
   owns:  nothing; a backend owns weights, pages and scratch, in arenas sized by its own *_bytes functions. */
#ifndef EXL2__PHASES_H
#define EXL2__PHASES_H

#include "../0_base/arena.h"
#include "../1_load/arch.h"
#include "../1_load/matrix_desc.h"
#include "../1_load/model_experts.h"
#include "../1_load/vision_config.h"
#include "columns.h"
#include "lora.h"

#define EXL2__PAGE_TOKENS 64u /* tokens of a KV page */
#define EXL2__NO_PAGE UINT32_MAX

/* The list of phases. A pass runs copy_pages and embed, then the phases of each layer (exl2__layer.phases), then head
   and sample. Where a model is cut into spans (span.h), each has copy_pages, embed and its layers, and only the last
   one has head and sample: embed of a later span takes the rows that the span before hands over. In a layer with
   experts, gate_up and down compute the shared expert, if there is one. The function table, the names, the profiler
   zones and the parity test are all made from it. r = residual rows [rows, hidden] f32; K and V in pages are f16 or
   codes (exl2__plan.kv); all else is f32. norm is the RMSNorm or LayerNorm of the shape, or nothing where the layer
   has no weights for it; s = residual_scale. */
#define EXL2__PHASES(X)                                                                          \
    X(copy_pages) /* copies whole pages, for copy-on-write                                    */ \
    X(embed)      /* r = table[token] * embed_scale, or the row's vector (+ positions[position]);   \
                     in a later span r = the row that was handed over                     */ \
    X(qkv)        /* q, k, v = norm(r) * W (+ bias); norms and RoPE of q, k; k, v -> pages     */ \
    X(attend)     /* o = softmax(scale * q K^T, keys of the row's window up to its end) V       */ \
    X(out)        /* r += s * (o * W + bias); with a norm after it: keeps o * W + bias         */ \
    X(gate_up)    /* x = norm(r); h = act(x * Wg) * (x * Wu), or act(x * Wu) without a gate    */ \
    X(down)       /* r += s * (h * W + bias); with a norm after it: keeps h * W + bias         */ \
    X(route)      /* x = norm(r); chooses experts, and their weights w, from x * W (+ bias)    */ \
    X(expert_up)  /* h of each chosen expert, as in gate_up, times w                           */ \
    X(expert_down) /* r += s * (h * W + w * bias) of each chosen expert, in ascending order    */ \
    X(settle)     /* r += s * norm(what out or down has kept)                                  */ \
    X(steer)      /* r += factor * vector of each of the row's control vectors: after a layer   */ \
    X(head)       /* logits = norm(r) * W, scaled and capped, for rows that want logits        */ \
    X(sample)     /* penalties, biases, filters -> token; log-probabilities                   */

typedef enum exl2__phase {
#define X(name) EXL2__PHASE_##name,
    EXL2__PHASES(X)
#undef X
    EXL2__PHASE_COUNT
} exl2__phase;

/* ---- the model ---- */

typedef struct exl2__shape {
    uint32_t vocab, hidden, layers, heads, kv_heads, head_dim, inter; /* inter: the largest
                                   width of a dense MLP or a shared expert; 0 = there are none */
    uint32_t embed_rows;                                              /* rows of the embedding; may differ from vocab */
    uint32_t rotary;            /* the first elements of a head, which RoPE rotates; 0 = none */
    uint32_t attended;          /* elements of a row of attention, of all heads, where `heads` are those of one of
                                   several devices; 0: heads * head_dim */
    bool pairs;                 /* RoPE rotates (2i, 2i + 1), else (i, i + rotary / 2) */
    bool layer_norm;            /* all norms are LayerNorm, else RMSNorm */
    bool gated;                 /* the MLP has a gate: gate_up has 2 parts, else 1 */
    bool parallel;              /* gate_up runs before attention, and both results go into r at the end */
    exl2__act act;
    float act_limit;            /* L of EXL2__ACT_CLAMPED */
    exl2__experts experts;      /* count 0: no layer has experts */
    bool sinks;                 /* layers have sinks */
    exl2__qk_norm qk_norm;      /* NONE, HEADS, HEADS_ROTATED or WHOLE */
    bool windows, unrotated;    /* some layers have a window; some have no RoPE although `rotary` is not 0 */
    bool affine;                /* some matrices are of the kind EXL2__MATRIX_AFFINE */
    uint32_t columns_unit;      /* columns that stay together where devices share a matrix; 0: EXL2__COLUMNS_UNIT */
    uint32_t exl3;              /* matrices of the kind EXL2__MATRIX_EXL3, and embeddings: a bit for each
                                   exl2__exl3_codebook; 0: there are none */
    bool mixes_exl3;            /* matrices of EXL3 are multiplied with others, or before a `down` with codes */
    bool exl3_experts;          /* the experts of all layers that have any are of EXL3 */
    bool pre_norms, post_norms; /* layers have norms before their blocks; after them */
    float norm_eps, attn_scale;
    float embed_scale, residual_scale, logit_scale;
    float attn_softcap, final_softcap; /* x = cap * tanh(x / cap) of scores and logits; 0 = none */
    float clip_qkv;                    /* q, k, v are clamped to this absolute value; 0 = none */
    uint32_t row_levels;        /* vectors of a row that has one: those after the first are added to r after the layers
                                   0, 1 ..; 0 as 1 */
    float query_growth, query_context; /* q *= 1 + growth * ln(1 + floor(position / context)); growth 0 = none */
} exl2__shape;

/* Elements of a row of attention, of all heads of the model. */
static inline uint32_t exl2__shape_attended(const exl2__shape *s)
{
    return s->attended ? s->attended : s->heads * s->head_dim;
}

#define EXL2__NO_ROPE UINT32_MAX

/* One set of angles: that of position p is p * frequency[i]; magnitude: the factor of cosine and sine. */
typedef struct exl2__rope_angles {
    const double *frequency; /* [shape.rotary / 2] radians per position */
    double magnitude;
    const uint8_t *axis;     /* [shape.rotary / 2] 0 to 2: whose position turns this frequency; NULL: 0 everywhere */
} exl2__rope_angles;

/* Some rows of one matrix, in order. EXL2, affine: word rows [row, row + rows) of the codes, u32 [rows, out_stored].
   Dense: output features [row, row + rows), [rows, in] of the desc's dtype. Slices come in order, without gaps;
   `data` is aligned to 4 bytes. */
typedef struct exl2__rows_slice {
    uint32_t row, rows;
    const void *data;
} exl2__rows_slice;

typedef struct exl2__matrix exl2__matrix; /* one to three parts (q, k, v; gate, up) in the backend's own packing */
typedef struct exl2__vector exl2__vector; /* weights of norms */

typedef struct exl2__norm {
    exl2__vector *weight, *bias; /* weight NULL: there is no such norm; bias NULL: it has none */
} exl2__norm;

/* What a matrix is for in its layer. */
typedef enum exl2__role {
    EXL2__ROLE_QKV,     /* 3 parts */
    EXL2__ROLE_OUT,
    EXL2__ROLE_GATE_UP, /* 2 parts, or 1 without a gate; of a layer with experts: the shared expert's, or NULL */
    EXL2__ROLE_DOWN,    /* as GATE_UP */
    EXL2__ROLE_ROUTER,  /* 2 parts with shape.experts.shared_switch, which is the second one, else 1; or NULL */
    EXL2__ROLE_EXPERT_UP,   /* of each expert of a layer with experts: parts as GATE_UP */
    EXL2__ROLE_EXPERT_DOWN, /* of each expert: as DOWN */
    EXL2__ROLE_COUNT,
    EXL2__ROLE_SINGLES = EXL2__ROLE_EXPERT_UP /* a layer has one matrix of each role before this one */
} exl2__role;

typedef struct exl2__layer {
    uint32_t index;
    uint32_t window;             /* a row's attention sees its last `window` keys; UINT32_MAX = all */
    uint32_t rope;               /* index into exl2__plan.ropes, or EXL2__NO_ROPE */
    const exl2__phase *phases;   /* [phase_count] */
    uint32_t phase_count;
    exl2__matrix *matrix[EXL2__ROLE_SINGLES];
    exl2__vector *sinks;         /* [heads] a head's softmax has the term exp(sink) more in its sum; NULL: none */
    /* Of a layer with experts, else NULL: */
    exl2__vector *choice_bias;   /* [experts.count] added to scores for the choice only; NULL: none */
    exl2__matrix **experts[EXL2__ROLE_COUNT - EXL2__ROLE_SINGLES]; /* [experts.count] by role - SINGLES */
    exl2__norm attn_norm, attn_post_norm, mlp_norm, mlp_post_norm; /* post: of the block's result, in settle */
    exl2__norm q_norm, k_norm;   /* weights [heads, head_dim], [kv_heads, head_dim] */
} exl2__layer;

/* The place of a matrix in its layer. expert: its number, of roles from SINGLES on. */
static inline exl2__matrix **exl2__layer_matrix(exl2__layer *layer, exl2__role role, uint32_t expert)
{
    return role < EXL2__ROLE_SINGLES ? &layer->matrix[role] : &layer->experts[role - EXL2__ROLE_SINGLES][expert];
}

/* The matrix that a product multiplies rows by, and what it is for: whatever is added to the product depends on that.
   layer NULL: the head. */
typedef struct exl2__operand {
    const exl2__matrix *matrix;
    const exl2__layer *layer;
    exl2__role role;
    uint32_t expert;
} exl2__operand;

static inline exl2__operand exl2__operand_of(const exl2__layer *layer, exl2__role role)
{
    return (exl2__operand){ layer->matrix[role], layer, role, 0 };
}

static inline exl2__operand exl2__operand_of_expert(const exl2__layer *layer, exl2__role role, uint32_t expert)
{
    return (exl2__operand){ layer->experts[role - EXL2__ROLE_SINGLES][expert], layer, role, expert };
}

/* Index of a part of an operand among those of its layer, for exl2__lora_store. */
static inline uint32_t exl2__role_lora_place(exl2__role role, uint32_t expert, uint32_t part)
{
    static const uint8_t first[EXL2__ROLE_COUNT] = { [EXL2__ROLE_QKV] = 0, [EXL2__ROLE_OUT] = 3,
                                                     [EXL2__ROLE_GATE_UP] = 4, [EXL2__ROLE_DOWN] = 6,
                                                     [EXL2__ROLE_ROUTER] = EXL2__LORA_ROUTER,
                                                     [EXL2__ROLE_EXPERT_UP] = 0,
                                                     [EXL2__ROLE_EXPERT_DOWN] = 2 };
    uint32_t before = role < EXL2__ROLE_SINGLES ? 0 : EXL2__LORA_PARTS + EXL2__LORA_EXPERT_PARTS * expert;
    return before + first[role] + part;
}

/* What an adapter adds to a part of an operand of a layer. */
static inline const exl2__lora_matrix *exl2__operand_lora(const exl2__lora_store *store, exl2__operand of,
                                                           uint32_t part)
{
    return &store->matrices[(size_t)of.layer->index * store->places + exl2__role_lora_place(of.role, of.expert, part)];
}

/* The matrices of the host's MLPs with which a device computes rows of prompts (forward_host.h). They stay in pinned
   host memory, packed as the device has matrices, and come to one of two areas of its memory while such a pass runs.
   Parts are numbered in the order of their use: gate and up of a layer, then its down; or, where one of the layers has
   experts, all matrices of a layer. Part i comes to area i % 2. */
typedef struct exl2__streamed {
    uint32_t parts;              /* 0: there are none: the host computes rows of prompts, too */
    uint32_t first;              /* layer of part 0 */
    bool by_layer;               /* a part is all matrices of a layer */
    uint64_t area_bytes[2];      /* in the memory for weights */
    uint64_t host_bytes;         /* of all parts */
} exl2__streamed;

/* What a backend must know before it can prepare. The sizes are final. */
typedef struct exl2__plan {
    exl2__shape shape;            /* of the whole model */
    exl2__columns columns;        /* of a device that has some columns of all matrices; zeroed: it has all of them. Its
                                     heads and kv_heads are those of the shape, at least one each */
    uint32_t layers_before, layers_after; /* layers that other spans compute; 0, 0: the model is one span */
    uint32_t span;                /* its number among the spans */
    const exl2__rope_angles *ropes; /* [rope_count] */
    uint32_t rope_count;
    uint32_t rows_max;            /* rows of a pass */
    uint32_t picture_rows;        /* part of rows_max for a picture whose rows see each other, beside other rows */
    uint32_t logit_rows_max;      /* rows of a group: head and sample compute the logits of one group at a time */
    uint32_t sequences_max, pages;
    uint32_t window_pages;        /* parts of pages with K and V of the layers in `windowed`, of which a page then has
                                     none; 0: a page has K and V of all layers */
    const uint32_t *windowed;     /* a bit per layer */
    uint32_t host_pages;          /* slots of the cache's second tier */
    uint32_t lora_max, lora_rank_max; /* adapters; the largest rank of one. lora_max 0: rows have no adapters */
    uint32_t steer_max;           /* control vectors; 0: layers have no phase `steer` */
    uint32_t context, context_max; /* tokens of a sequence; context_max: rounded up to whole pages */
    exl2_kv kv;                   /* format of K and V in pages */
    exl2__layer *layers;          /* [shape.layers] */
    uint32_t host_mlps;           /* of a span: number of its last layers whose MLPs another backend computes
                                     (forward_host.h); these layers have no phases, matrices and norms of an MLP then */
    exl2__layer *host_layers;     /* [shape.layers] those MLPs, as that backend has them; NULL: there are none */
    exl2__streamed streamed;      /* of a span: of these layers */
    exl2__layer *prompt_layers;   /* [shape.layers] all layers, as spans with `streamed` compute rows of prompts; NULL:
                                     no span has it */
    exl2__matrix *embed, *head;   /* embed: a dense table of one part, read by row, which the first span has. head: of
                                     the last span. Tied models of one span have head = embed */
    exl2__matrix *positions;      /* a table of the same kind, or NULL */
    exl2__norm final_norm;
#ifndef EXL2_NO_VISION
    bool turns;                   /* positions of rows may have three axes */
    const exl2__vision_config *tower; /* of the first span, if the backend computes it (towers); else NULL. Of several
                                         devices that share every matrix only the first one has it */
    exl2__vision_limits tower_limits;
#endif
} exl2__plan;

/* The device computes the layers [exl2__plan_first, exl2__plan_end): its span. What comes after the last of them is the
   final norm and the head only in the last span. */
static inline uint32_t exl2__plan_first(const exl2__plan *p)
{
    return p->layers_before;
}

static inline uint32_t exl2__plan_end(const exl2__plan *p)
{
    return p->shape.layers - p->layers_after;
}

/* Number of layers of the span; a page and its window part have K and V of these. */
static inline uint32_t exl2__plan_span(const exl2__plan *p)
{
    return exl2__plan_end(p) - exl2__plan_first(p);
}

/* Do K and V of the layer lie in window parts? */
static inline bool exl2__plan_parts(const exl2__plan *p, uint32_t layer)
{
    return p->window_pages > 0 && p->windowed[layer / 32] >> layer % 32 & 1;
}

/* Number of the span's layers before `layer` whose K and V lie in window parts (parts), or in pages. Of a layer of the
   same kind it is the place in its part or page. */
static inline uint32_t exl2__plan_place(const exl2__plan *p, uint32_t layer, bool parts)
{
    uint32_t place = 0;
    for (uint32_t i = exl2__plan_first(p); i < layer; i++) {
        place += exl2__plan_parts(p, i) == parts;
    }
    return place;
}

static inline bool exl2__plan_has_head(const exl2__plan *p)
{
    return p->layers_after == 0;
}

/* Whether another backend computes the MLP of the span's layer `index`. */
static inline bool exl2__plan_is_host(const exl2__plan *p, uint32_t index)
{
    return index < exl2__plan_end(p) && index + p->host_mlps >= exl2__plan_end(p);
}

/* ---- one pass ---- */

typedef struct exl2__step_row { /* one position of one sequence; rows of a sequence are consecutive and ascending */
    exl2_token token;            /* less than shape.vocab; not used if the row has a vector */
    uint32_t position, sequence; /* its place: where K and V lie. sequence: index into exl2__step.page_tables */
    const float *vector;         /* [row_levels, hidden] its input in place of table[token] * embed_scale, or NULL */
    uint32_t later;              /* number of later places whose keys it sees, too; they have rows in this pass or in
                                    one before. So rows of one picture may see each other. 0: causal */
    int32_t turn[3];             /* its angles are those of the position `position + turn[axis]`, by the axis of each
                                    frequency; one axis: turn[0] */
} exl2__step_row;

/* The end of the keys that the row sees. The ends of a sequence's rows in a pass ascend with its rows. */
static inline uint32_t exl2__step_row_end(const exl2__step_row *row)
{
    return row->position + row->later + 1;
}

typedef struct exl2__page_copy { uint32_t from, to; } exl2__page_copy;

/* Kinds of rows. A backend with two_kinds computes them in two ways, and a pass has rows of one kind: so the bits of a
   row depend on its kind, and not on the other rows of its pass. */
typedef enum exl2__row_kind {
    EXL2__ROWS_MIXED,  /* all rows are computed alike */
    EXL2__ROWS_PROMPT,
    EXL2__ROWS_SAMPLED /* of tokens that were sampled, or forced, and of drafts */
} exl2__row_kind;

/* Resolved sampler settings: defaults have been replaced by their values. */
typedef struct exl2__sampling {
    bool greedy;
    uint32_t top_k;                     /* 0 = off */
    float temperature;                  /* > 0 */
    float top_p, min_p, repeat_penalty; /* 1, 0, 1 = off */
    uint64_t seed;
    const exl2_bias *bias;
    uint32_t bias_count;
    /* Settings that not every backend supports (exl2__backend.can_sample). 0 = off: */
    float frequency_penalty, presence_penalty;
    uint32_t penalty_range, penalty_decay; /* decay: number of tokens before the range over which penalties fade out */
    bool temperature_last;
    float smoothing, top_a, tail_free, typical, skew;
    float dynamic_min, dynamic_max, dynamic_exponent; /* on if max > min */
    float xtc_probability, xtc_threshold;
    bool (*xtc_keeps)(const void *user, exl2_token token); /* tokens that XTC never removes; NULL = none. Called from
                                                              any thread */
    const void *xtc_user;
    float mirostat_tau, mirostat_eta;
    float adaptive_target, adaptive_decay;
    float state;                        /* mirostat's mu, or adaptive-p's mean of the probabilities of earlier tokens:
                                           the present value, which belongs to the job */
} exl2__sampling;

/* Whether each token changes the settings of the next one. */
static inline bool exl2__sampling_has_state(const exl2__sampling *s)
{
    return s->mirostat_tau > 0 || s->adaptive_target > 0;
}

#define EXL2__LOGIT_EXTRAS_MAX 1024u /* entries of a row's own list of biases */

/* SAMPLE: the phase `sample` chooses a token. SCORE: it computes the log-probability of a given token. FETCH: the
   engine fetches the row's logits (exl2__backend.logits), may change them, and calls sample_row to choose a token.
   HIDDEN: the row wants no logits: the engine fetches its final hidden state (exl2__backend.hidden). A group of such
   rows alone has no phases head and sample; in a group with others they are computed for all. */
typedef enum exl2__logit_use {
    EXL2__LOGIT_SAMPLE, EXL2__LOGIT_SCORE, EXL2__LOGIT_FETCH, EXL2__LOGIT_HIDDEN
} exl2__logit_use;

typedef struct exl2__logit_row { /* a row that wants logits, or its hidden state; ascending by row */
    uint32_t row;                   /* index into exl2__step.rows */
    exl2__logit_use use;
    exl2_token target;              /* SCORE: the token whose log-probability is wanted */
    uint32_t alts;                  /* number of most likely tokens wanted, at most EXL2_ALTS_MAX */
    /* Used by SAMPLE and FETCH only: */
    const exl2__sampling *sampling;
    uint32_t layer;                 /* HIDDEN: 0 = after the final norm; n = the residual after layer n - 1, without
                                       that norm */
    const float *negative;          /* FETCH: logits [vocab] of the negative sequence; NULL = no guidance */
    float guidance;                 /* FETCH: scale of guidance, 1 = no effect */
    const uint32_t *mask;           /* [ceil(vocab / 32)] one bit per token, 1 = allowed; NULL = all. Filled in while
                                       the pass runs */
    uint64_t sample_position;       /* absolute position of the new token in its session */
    uint32_t attempt;               /* number of times that this position was rewound */
    const exl2_token *history;      /* [history_count] tokens that the penalties look at */
    uint32_t history_count;
    uint32_t history_max;           /* as tokens are sampled the history grows up to this; then it keeps the newest */
    const exl2_bias *extras;        /* biases of this one token, added after those of `sampling` */
    uint32_t extra_count;
    uint32_t left;                  /* tokens that may still be sampled, this one included; their pages are reserved */
} exl2__logit_row;

typedef struct exl2__logit_result {
    exl2_token token;       /* SAMPLE: the new one, -1 if none is allowed (all banned, or all NaN). SCORE: the target.
                               Else -1 */
    float logprob;          /* natural log of the raw softmax (before penalties and biases) at `token` */
    float logsumexp;        /* of the raw logits */
    float surprise;         /* SAMPLE with mirostat: -log2 of the token's probability among those not filtered out */
    float chance;           /* SAMPLE with adaptive-p: the token's probability before that filter */
    uint32_t alt_count;
    exl2_alt *alts;         /* [EXL2_ALTS_MAX] memory of the caller; most likely first, ties by lowest id */
} exl2__logit_result;

/* Most groups in which sampled rows pass through the spans of a model, so that one span computes a group while the span
   before computes another one: the first group of the next pass begins before the last one of this pass is sampled. */
#define EXL2__STEP_GROUPS 2u
#define EXL2__STEP_GROUPED_LEAST 9u /* least rows of such a pass: 8 rows take hardly longer than 4 (NOTES.md) */
#define EXL2__STEP_GROUPED_ROWS 16u /* most rows of such a pass: up to this number, the bits of a row do not depend on
                                       it */

typedef struct exl2__step { /* the arrays must live until the pass has ended */
    const exl2__step_row *rows;
    uint32_t row_count, sequence_count;
    const uint32_t *const *page_tables; /* [sequence_count][pages of the sequence] page numbers */
    const uint32_t *const *part_tables; /* the same for window parts: all that the rows see and fill, else 0. NULL:
                                           exl2__plan.window_pages is 0 */
    const exl2__page_copy *part_copies; /* [copy_count] of window parts, each with its page's copy; or NULL, as
                                           part_tables */
    const exl2__page_copy *copies; /* in order: a copy may overwrite a page that an earlier copy reads */
    uint32_t copy_count;
    const exl2__logit_row *logits;
    uint32_t logit_count;
    const uint16_t *row_loras; /* [row_count] 1 + index into lora_sets, 0: none; NULL: no row has a set */
    const exl2__lora_set *lora_sets; /* [lora_set_count] */
    uint32_t lora_set_count;
    bool adapted, steered;     /* one of these sets has an adapter, or a control vector */
    const float *handed; /* [row_count, hidden] for `embed` of a later span: rows that the span before has computed;
                            NULL with a queue */
    uint32_t rows_before; /* rows of the pass that come before rows[0], for which logits[].row counts them */
    uint32_t group, groups; /* groups > 1: the rows are one of that many groups of the pass, and a pass of their own */
    exl2__row_kind kind;
    bool decodes; /* no rows are of prompts, and every row wants logits (not HIDDEN): logits[i].row == i */
    bool repeats; /* besides, every row is the only one of its sequence, and a token is sampled from it */
    bool masked;  /* some rows have masks: `sample` has to wait until the masks are ready */
    bool tapped;  /* some rows want the residual after a layer before the last one: the pass stops there. Only without a
                     queue */
} exl2__step;

/* Whether a row of the group [first, first + count) of logit rows is HIDDEN; all: whether all are. */
static inline bool exl2__step_has_hidden(const exl2__step *s, uint32_t first, uint32_t count, bool all)
{
    uint32_t hidden = 0;
    for (uint32_t i = first; i < first + count; i++) {
        hidden += s->logits[i].use == EXL2__LOGIT_HIDDEN;
    }
    return hidden > 0 && (!all || hidden == count);
}

/* The part of a phase that one call computes. An item is the backend's own unit of work (exl2__backend.items gives the
   number of items of a phase); a phase is complete when every item was computed once, in ascending order. `head` and
   `sample` work on the logit rows [logit0, logit0 + logit_count) of the step, at most logit_rows_max of them. */
typedef struct exl2__range {
    uint32_t begin, end;
    uint32_t logit0, logit_count;
    exl2__phase before; /* of phase `settle`: the phase whose result it uses, out or down */
} exl2__range;

#define EXL2__PHASE_KINDS 38 /* kinds of items in a phase */

/* Consecutive items of equal cost, for budgets. */
typedef struct exl2__item_run {
    uint64_t cost; /* multiply-adds of one item; comparable among items of a kind */
    uint32_t kind; /* the time per multiply-add is learned for each phase and kind */
    uint32_t end;  /* the run ends before this item; 0: the phase has no such item */
} exl2__item_run;

typedef struct exl2__sample_run exl2__sample_run; /* of cpu_sample_run.h */
typedef struct exl2__device exl2__device; /* a span of a model on one backend: its weights, pages, scratch */

/* A page's K and V go to a slot in host memory (out), or come back. */
typedef struct exl2__tier_move {
    uint32_t slot, page;
    bool out;
} exl2__tier_move;

/* Functions of a backend that has its own memory, such as a GPU. It does not use the caller's arenas for weights and
   pages. */
typedef struct exl2__backend_memory {
    /* Rows of a pass where the application does not choose a number. */
    uint32_t (*prefill_chunk)(uint64_t weight_bytes);
    /* Of one device alone: bytes that the application's cap leaves there, UINT64_MAX: it has no cap; bytes that are
       still free there; peak read bandwidth of the memory, MB/s, 0: unknown. */
    uint64_t (*bytes_allowed)(const exl2__device *d);
    uint64_t (*bytes_free)(const exl2__device *d);
    uint32_t (*read_mbps)(const exl2__device *d);
    /* Bytes of buffers in addition to weights and pages. */
    uint64_t (*buffer_bytes)(const exl2__device *d, const exl2__plan *plan);
    /* Peak of the host memory that the backend allocates for the model in addition to the caller's arenas. ready: from
       `prepare` on; else while weights are loaded, in slices of at most slice_bytes. */
    uint64_t (*host_bytes)(const exl2__device *d, const exl2__plan *plan, uint64_t slice_bytes, bool ready);
    /* Prepares code and allocates the memory for weights, before the first matrix is made. PENDING: call it again.
       weight_bytes: one number, or one for each of several devices that share every matrix. */
    exl2_result (*reserve)(exl2__device *d, const uint64_t *weight_bytes);
    /* Where there are several such devices, else NULL: their number; exl2__backend.matrix_bytes of one of them. */
    uint32_t (*sharers)(const exl2__device *d);
    uint64_t (*own_bytes)(const exl2__device *d, uint32_t index, const exl2__matrix_desc *parts, uint32_t count);
    /* *out: a buffer of `bytes` bytes into which the next slice is read. The next call must be matrix_feed with
       slice->data == *out. May wait until an earlier copy from the buffer has ended. */
    exl2_result (*staging)(exl2__device *d, uint64_t bytes, void **out);
    /* Parking with a copy of the packed weights in host memory, of their size and a few KiB. keep_packed,
       after the last matrix: makes the copy. drop: gives back all memory but that; then reserve and restore, which
       fills the weights, and prepare. PENDING: the slice of work is used up; call it again. */
    exl2_result (*keep_packed)(exl2__device *d, exl2__work *work);
    void (*drop)(exl2__device *d);
    exl2_result (*restore)(exl2__device *d, exl2__work *work);
    /* After the last matrix of a part of exl2__plan.streamed (exl2__matrix_desc.streamed): copies the part to host
       memory. PENDING: the slice of work is used up; call it again. */
    exl2_result (*keep_streamed)(exl2__device *d, exl2__work *work);
    /* Slots of pages in host memory, after `reserve` and until `drop` or `close`. tier_open: PENDING: the slice of work
       is used up; call it again. tier_move enqueues copies, in their order, after the passes before and before those
       that follow. tier_ns: estimated time of the copy of a page, or of computing it among rows of a prompt. */
    exl2_result (*tier_open)(exl2__device *d, const exl2__plan *plan, uint32_t slots, exl2__work *work);
    exl2_result (*tier_move)(exl2__device *d, const exl2__tier_move *moves, uint32_t count);
    uint64_t (*tier_ns)(const exl2__device *d, bool copy);
} exl2__backend_memory;

/* Functions of an asynchronous backend. A pass is divided into units: `units` ranges of layers (the first one with page
   copies and embedding), then, for each group of logit rows, `head_units` ranges of the head's columns, the last one
   with sampling. These calls enqueue work and return. Times are estimates, learned from earlier runs. */
typedef struct exl2__backend_queue {
    uint32_t (*units)(const exl2__device *d); /* of the pass begun, without those of head and sampling */
    uint32_t (*head_units)(const exl2__device *d);
    /* Enqueues units [begin, end): in order, and at most one group of logit rows per call. */
    exl2_result (*enqueue)(exl2__device *d, uint32_t begin, uint32_t end, bool timed);
    uint64_t (*unit_ns)(const exl2__device *d, uint32_t unit);
    uint64_t (*queued_ns)(exl2__device *d);                   /* time of all timed units that have not ended yet */
    uint32_t (*rows_for)(const exl2__device *d, uint64_t ns); /* rows of a pass whose longest unit runs at most `ns` */
    /* Enqueues the upload of the masks of the pass begun. The caller has made them; head and sampling follow. */
    exl2_result (*masks_ready)(exl2__device *d);
    /* Enqueues the current pass, which `repeats`, once more, before its tokens are known to the caller. Every row
       continues, one position further, with the token that was sampled for it; rows that may sample no further token
       are left out. If the pass has masks, only the layers are enqueued: masks_ready and the other units follow.
       `begin` drops repeated passes that have not been used. */
    exl2_result (*repeat)(exl2__device *d);
    uint32_t (*ahead)(const exl2__device *d); /* passes worth repeating at once for a caller that waits for results */
    /* Spans of a model. link: after `open` of both, `before` is the span before; NULL: there is none any more. cross:
       enqueues the copy of what that span has computed in the pass begun, all of whose units there are enqueued; the
       units of this span follow, and compute what they would compute if the model were not cut. follow: before
       `repeat` of a span that is not the last one, enqueues the copy of the rows of the pass as sampling on the last
       one advances them. part_rows: a pass of `rows` rows of prompts may be cut into passes of this many rows, the last
       one of more, with the same bits; so the spans work at the same time. 0: it may not. select: all groups of a pass
       are begun before the first one is enqueued; the calls that follow are for this one. */
    void (*link)(exl2__device *d, exl2__device *before);
    uint32_t (*part_rows)(const exl2__device *d, uint32_t rows);
    exl2_result (*select)(exl2__device *d, uint32_t group);
    exl2_result (*cross)(exl2__device *d);
    exl2_result (*follow)(exl2__device *d, exl2__device *last);
    /* [rows of a pass, hidden] pinned memory of a span with host_mlps, n of them, through which rows of the residual
       cross. The last n + 1 of `units` are the parts of layers between two crossings. `enqueue` ends at a crossing at
       the latest: it copies the rows there and ends as a pass without logits does, with `collect`. Before the next unit
       the caller has put the rows there that the device continues with. */
    float *(*crossing)(exl2__device *d);
} exl2__backend_queue;

/* Functions of a backend that computes adapters (lora.h). */
typedef struct exl2__backend_loras {
    uint32_t rows; /* rows with adapters have passes of their own; most sampled rows of such a pass. 0: they have none
                      */
    /* Memory for an adapter. *block: its address there. */
    exl2_result (*open)(exl2__device *d, uint64_t bytes, uint64_t *block);
    void (*close)(exl2__device *d, uint64_t block, uint64_t bytes);
    /* Writes bytes at an address of a block that no pass uses yet. */
    exl2_result (*write)(exl2__device *d, uint64_t at, const void *data, uint64_t bytes);
    /* Where several devices share every matrix, else NULL: how many have a block; B of a part, f16 [rank, stride], of
       which each gets its columns; the table of an adapter, of which each gets one with its own addresses. */
    uint32_t (*copies)(const exl2__device *d);
    exl2_result (*write_b)(exl2__device *d, uint64_t at, const uint16_t *b, uint32_t rank, uint32_t stride,
                           exl2__operand of, uint32_t part);
    exl2_result (*write_table)(exl2__device *d, uint64_t at, const exl2__lora_matrix *table, uint64_t bytes);
    /* Where a matrix has its inputs and outputs: in_at [inputs of the part], out_at [outputs]: the place of each, which
       is the natural one before. NULL: all are in their natural order. Fails for an operand without adapters. */
    exl2_result (*order)(const exl2__device *d, exl2__operand of, uint32_t part, uint32_t *in_at, uint32_t *out_at);
} exl2__backend_loras;

#ifndef EXL2_NO_VISION
/* Functions of a backend that computes towers for pictures in its own memory, from a plan with a tower. Parts of a
   tower have the numbers of vision/tower_shape.h. */
typedef struct exl2__backend_towers {
    /* Fails if the backend does not compute this tower, or its pictures in the plan's text model. */
    exl2_result (*supports)(exl2__device *d, const exl2__plan *plan);
    /* Bytes of the tower's weights, which `reserve` must have room for besides the others. */
    uint64_t (*weight_bytes)(const exl2__vision_config *v);
    /* All values of a norm, of the class row, or of the bias of either. After the text model's weights. */
    exl2_result (*values)(exl2__device *d, uint32_t part, bool bias, const float *values, uint32_t count);
    /* Rows of `in` elements of a matrix, as the file has them: of a transposed matrix they are inputs. They may be
       freed when it returns. */
    exl2_result (*rows)(exl2__device *d, uint32_t part, uint32_t in, exl2__dtype type,
                        const exl2__rows_slice *slice);
    /* All pictures' rows will be written within this memory, which may be pinned for that, until `close` or `drop`, or
       until the call with NULL, which waits for what is written. */
    void (*hold)(exl2__device *d, void *memory, uint64_t bytes);
    /* As exl2__tower_begin of the CPU's (tower_run.h). */
    exl2_result (*begin)(exl2__device *d, const exl2__vision_size *size, const uint8_t *seen, float *rows);
    /* Enqueues work of about gpu_ns nanoseconds (0: none; else at least one launch; UINT64_MAX: all of it), until
       cpu_end_ns (0: no limit). PENDING: there is more, or it has not ended; OK: the rows are complete. wait: waits for
       the end. */
    exl2_result (*step)(exl2__device *d, uint64_t gpu_ns, uint64_t cpu_end_ns, bool wait);
} exl2__backend_towers;
#endif

typedef struct exl2__backend {
    const char *name; /* "cpu", "cuda" */
    const exl2__backend_memory *memory; /* NULL: the backend uses the caller's arenas. All of its functions are set, but
                                           those of one device alone, or of several devices */
    const exl2__backend_queue *queue;   /* all of its functions are set, but of a backend that is always one span those
                                           of spans; NULL: phases have ended when they return */
    const exl2__backend_loras *loras;   /* NULL: the backend computes no adapters */
#ifndef EXL2_NO_VISION
    const exl2__backend_towers *towers; /* NULL: the CPU's tower is used (vision/tower.h) */
#endif

    /* Opens a model. `hardware` belongs to the engine, and is NULL for "cpu". `close` accepts NULL. */
    exl2_result (*open)(exl2__ctx *c, void *hardware, exl2__device **out);
    void (*close)(exl2__device *d);

    /* Weights. The caller opens the arena `weights` with the sum of the *_bytes; the same calls in the same order then
       fit into it. */
    uint32_t decode_rows; /* rows of sampled tokens that a pass may have, unless more sequences have one each */
    uint32_t exact_rows;  /* two_kinds: rows of prompts in a pass up to which a row's bits do not depend on their number
                             */
    uint32_t logit_rows;  /* most rows of a group of logits, if as many sequences may run; up to 16 need not be asked */
    bool two_kinds;
    bool needs_groups; /* matrix_bytes reads the groups of its descs, too */
    bool one_kind;     /* matrices that are packed together are of one kind, and gate and up have codes if down has,
                          unless some are of EXL3; the experts of a layer are all affine, or none is */
    bool has_exl3;     /* computes with matrices and embeddings of EXL3 */
    uint64_t (*matrix_bytes)(const exl2__device *d, const exl2__matrix_desc *parts, uint32_t count);
    uint64_t (*vector_bytes)(const exl2__device *d, uint32_t count);
    /* *parts must live until all rows have been fed. */
    exl2_result (*matrix_make)(exl2__device *d, exl2__arena *weights, const exl2__matrix_desc *parts, uint32_t count,
                               exl2__matrix **out);
    /* PENDING: the slice of work is used up; call it again with the same rows. */
    exl2_result (*matrix_feed)(exl2__device *d, exl2__matrix *m, uint32_t part, const exl2__rows_slice *slice,
                               exl2__work *work);
    exl2_result (*vector_make)(exl2__device *d, exl2__arena *weights, const float *values, uint32_t count,
                               exl2__vector **out);

    /* Fails if the backend does not compute something that the shape asks for. NULL: it computes everything. */
    exl2_result (*supports)(exl2__device *d, const exl2__shape *shape);

    /* Pages, their window parts and scratch, from arenas. Empty arenas make it a dry run, which does not read
       plan->layers, embed and head. After `prepare` nothing allocates any more. part: bytes of a window part. */
    uint64_t (*page_bytes)(const exl2__device *d, const exl2__plan *plan, bool part);
    exl2_result (*prepare)(exl2__device *d, const exl2__plan *plan, exl2__arena *pages, exl2__arena *scratch);

    /* Gives memory to pages, or to window parts, that have none yet, before the first pass that writes to them. NULL:
       all have it. */
    exl2_result (*commit_pages)(exl2__device *d, const uint32_t *pages, uint32_t count, bool part);

    /* Copies K and V of a page, or of a window part, to host memory and back: page_bytes bytes in the backend's own
       layout, layer by layer. They wait for work that was enqueued before. */
    exl2_result (*page_get)(exl2__device *d, uint32_t page, bool part, void *out);
    exl2_result (*page_set)(exl2__device *d, uint32_t page, bool part, const void *in);

    /* Copies rows [begin, end) of the residual to out [rows of the pass, hidden], at their places, once all layers of
       the span have been computed. Nothing else crosses the border of two spans: `embed` of the next one computes from
       these rows alone what its first layer reads. NULL for a backend with a queue, which has `cross`. */
    exl2_result (*hand)(exl2__device *d, uint32_t begin, uint32_t end, float *out);

    /* A pass: `begin`, then every phase over all of its items, layer by layer; then `collect`. An item of `embed` in a
       later span is a row, or all rows. */
    exl2_result (*begin)(exl2__device *d, const exl2__step *step); /* *step must live until the pass has ended */
    uint32_t (*items)(const exl2__device *d, exl2__phase phase, const exl2__layer *layer,
                      const exl2__range *range); /* of the pass begun */
    /* The run that contains item `item` of a phase with `rows` rows. layer NULL: the run of any layer that costs most.
       NULL for a backend with a queue. */
    exl2__item_run (*item_run)(const exl2__device *d, exl2__phase phase, const exl2__layer *layer, uint32_t rows,
                               uint32_t item);
    /* Of the last span: results of a group after `sample`; with count 0, the end of a pass without logits. Returns
       PENDING if the backend has not finished and `wait` is false. */
    exl2_result (*collect)(exl2__device *d, uint32_t logit0, uint32_t count, bool wait, exl2__logit_result *results);

    /* Can the phase `sample` use these settings? If not, such rows must be FETCH. NULL: it can use all. */
    bool (*can_sample)(const exl2__sampling *sampling);
    /* Between collect and the next group: logits of the group's row `row`. They lie in memory of the backend, may be
       changed, and are valid until the next call. sample_row begins to sample from them; the caller runs all parts of
       *out before it calls sample_row again or runs the next phase. */
    exl2_result (*logits)(exl2__device *d, uint32_t row, float **out);
    exl2_result (*sample_row)(exl2__device *d, float *logits, const exl2__logit_row *row, exl2__logit_result *result,
                              exl2__sample_run **out);
    /* After collect, before the next pass: the final hidden states of the step's rows [row, row + count), out [count,
       hidden]: what the head multiplies, r after the model's last norm. raw: r itself, which a backend without a queue
       gives after any layer, too. */
    exl2_result (*hidden)(exl2__device *d, uint32_t row, uint32_t count, bool raw, float *out);

#define X(name) exl2_result (*name)(exl2__device *d, const exl2__layer *layer, const exl2__range *range);
    EXL2__PHASES(X) /* layer: NULL in phases outside of the layers */
#undef X
} exl2__backend;

static inline bool exl2__backend_has_memory(const exl2__backend *b)
{
    return b->memory != NULL;
}

static inline bool exl2__backend_is_async(const exl2__backend *b)
{
    return b->queue != NULL;
}

#endif
