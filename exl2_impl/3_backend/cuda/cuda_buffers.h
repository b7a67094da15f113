/* cuda_buffers.h: device memory of a model besides its weights: KV pages, activations, logits and the data of a pass.
   takes: a plan; an arena, dry or not.
   gives: exl2__cuda_buffers, exl2__cuda_buffers_layout; exl2__cuda_pass, exl2__cuda_graphs.
   owns:  nothing; the memory is the model's. */
#ifndef EXL2__CUDA_BUFFERS_H
#define EXL2__CUDA_BUFFERS_H

#include "../../../kernels_src/lora_experts_args.h"
#include "../../../kernels_src/lora_wg_args.h"
#include "../../../kernels_src/steer_args.h"
#include "../../../kernels_src/attend_args.h"
#include "../../../kernels_src/expert_args.h"
#include "../../../kernels_src/gemv_args.h"
#include "../../../kernels_src/peers_args.h"
#include "cuda_matrix.h"
#include "cuda_exl3_plan.h"
#include "cuda_grouped_plan.h"
#include "cuda_timing.h"
#include "cuda_sample.h"
#include "cuda_tower_plan.h"

#ifndef EXL2__CUDA_GEMM_ROWS_MIN
#define EXL2__CUDA_GEMM_ROWS_MIN 17u /* rows of sampled tokens from which GEMM is faster than GEMV (H200) */
#endif
#define EXL2__CUDA_GEMV_ROWS (EXL2__CUDA_GEMM_ROWS_MIN - 1) /* most rows of sampled tokens by GEMV */
/* Most sampled rows of a pass with adapters; at most EXL2__CUDA_SAMPLED_ROWS. */
#define EXL2__CUDA_LORA_ROWS ((uint32_t)EXL2K_LORA_ROWS)
#define EXL2__CUDA_LORA_ACT_ROWS 256u /* rows with adapters whose gate and up are stored before the activation */
#ifndef EXL2__CUDA_LORA_TURNS
#define EXL2__CUDA_LORA_TURNS (1u << 16) /* passes with adapters until their values of t are cleared */
#endif
#define EXL2__CUDA_SAMPLED_ROWS 8u /* rows of sampled tokens in a pass, unless more sequences have one each */
#define EXL2__CUDA_LOGIT_ROWS 64u  /* most rows of sampled tokens that are one group, and whose pass can repeat */
#define EXL2__CUDA_BIASES_MAX (1024u + EXL2__LOGIT_EXTRAS_MAX) /* for each row; a job's text block has room for 1024 */
#define EXL2__CUDA_FEW_ROWS 8u      /* rows that cost about as much time as two */
#define EXL2__CUDA_GRAPH_ROWS 64u   /* most rows of a pass that captured graphs can run: one group of logit rows */
#define EXL2__CUDA_SPLIT_ROWS 16u   /* rows that split matrices process at a time; at least EXL2__CUDA_GEMV_ROWS */
#define EXL2__CUDA_ALONE_ROWS 256u  /* the same of prompts, if gate or up is of EXL3 and the other is not */
#define EXL2__CUDA_ROPE_WHOLE_MAX (16u << 20) /* bytes of all tables of RoPE; larger ones are divided */
#define EXL2__CUDA_SUMS 3u /* buffers of sums of squares: for the current norm, the previous and the next one */

/* Buffers of models with experts, else all 0. E: experts, k: experts of a row, U: experts that a slice of
   EXL2K_EXPERT_ROWS rows uses at most. */
typedef struct exl2__cuda_routed {
    uint64_t logits;     /* f32 [R, logits_pitch] */
    uint64_t choice;     /* u32 [R, k] */
    uint64_t weight;     /* f32 [R, k] */
    uint64_t tickets;    /* u32 [R] */
    uint64_t shared;     /* f32 [R] weight of the shared expert; 0: it is 1, or there is none */
    uint64_t x;          /* fp16 [R, x_pitch] normalised rows, in the order of the experts or in natural order */
    uint64_t gathered;   /* fp16 [U, EXL2K_EXPERT_ROWS, x_pitch] in the order of each expert */
    uint64_t h;          /* fp16 [U, EXL2K_EXPERT_ROWS, h_pitch]; of EXL3 [EXL2K_EXL3_ROWS * k, h_pitch] */
    uint64_t grouped;    /* scratch memory of passes of many rows (cuda_grouped_plan.h) */
    uint32_t logits_pitch, h_pitch;
    uint32_t used_max;   /* U */
} exl2__cuda_routed;

typedef struct exl2__cuda_buffers { /* device addresses; R: rows of a pass, L: logit rows, D: rows that decode */
    uint64_t pages;      /* [layers of the span without window parts, pages, page_bytes] */
    uint64_t parts;      /* [layers of the span with window parts, window_pages, page_bytes] */
    uint64_t expanded;   /* of a quantized cache: [pages] of fp16, K and V of one layer for prefill; else 0 */
    uint64_t rope;       /* f32 [ropes, lines, head_dim / 2, 2]; see exl2__cuda_rope_divided */
    uint64_t unrotated;  /* f32 [head_dim / 2, 2]: angles of 0, for layers without RoPE */
    uint64_t axes;       /* u8 [head_dim / 2]: exl2k_turn_args.axes; 0: positions have one axis */
    uint64_t residual;   /* f32 [R, hidden] */
    uint64_t handed;     /* f32 [R, hidden] of a later span: the residual of the span before; then its sums of squares,
                            of the norm that follows and of the one before, each f32 [EXL2__CUDA_GEMV_ROWS, slots] */
    uint64_t x;          /* fp16 [R, x_pitch] */
    uint64_t x2;         /* the same in the order of gate_up, with parallel blocks; else 0. Also tiles for `out` */
    uint64_t branch;     /* f32 [R, hidden] result of a block before its norm, with norms after blocks; else 0 */
    uint64_t qkv;        /* f32 [R, qkv_pitch]: after the first rows of h */
    uint64_t attended;   /* fp16 [R, attended_pitch]: if it is as wide as x, after the first rows of x */
    uint64_t h;          /* fp16 [R, h_pitch] */
    uint64_t all_heads;  /* f32 [R, exl2__cuda_all_pitch] q and k of all heads of the model, for norms of all of them
                            where several GPUs share every matrix; else 0 */
    uint64_t natural;    /* fp16 [R, attended_pitch] where several GPUs share every matrix: what attention has written
                            here, in natural order; else 0 */
    uint64_t meet;       /* exl2k_meet_state of such a GPU; else 0 */
    uint64_t given;      /* of such a GPU: exl2__cuda_given_buffer, which the others write, too; else 0 */
    exl2__cuda_routed routed;
    uint64_t sums[EXL2__CUDA_SUMS]; /* f32 [R, EXL2K_SLOTS_MAX] */
    uint64_t strip_sums; /* where several GPUs share every matrix: f32 [EXL2__CUDA_SUMS, EXL2__CUDA_GIVEN_ROWS,
                            exl2__cuda_given_strips]; else 0 */
    uint64_t group_sums; /* there f32 [EXL2__CUDA_SUMS, EXL2__CUDA_GIVEN_ROWS, 8]: exl2k_peers.groups_out; else 0 */
    uint64_t partial, attend_tickets; /* exl2k_attend_args, for D rows; partial begins at logits */
    uint64_t gemm_partial, gemm_tickets; /* exl2k_gemm_args; gemm_partial begins at logits */
    uint64_t exl3_partial, exl3_tickets, exl3_rotated; /* exl2k_exl3_args; exl3_partial begins at logits */
    uint64_t exl3_alone; /* exl3_partial of one row */
    uint64_t exl3_decoded, exl3_decoded_bytes; /* exl2k_exl3_args.decoded, twice so many bytes; 0: none */
    uint64_t head_x;     /* fp16 [L, x_pitch] */
    uint64_t head_sums[2]; /* f32 [L, EXL2K_SLOTS_MAX]: for the current norm, for the previous one */
    uint64_t lora_tables, lora_t, lora_turn; /* exl2k_lora_gemv_args; 0: the model has no adapters */
    uint64_t lora_t_bytes;
    uint64_t lora_rows_t, lora_act; /* exl2k_lora_rows_args: t, from. t of exl2k_lora_wg_args lies over both */
    uint64_t lora_zeros; /* exl2k_lora_wg_args */
    uint64_t lora_experts_t, lora_experts; /* exl2k_lora_experts_args: t, out of up; 0: no experts, or no adapters */
    uint64_t steers, steered; /* exl2k_steer_args: vectors, added; 0: the model has no control vectors */
    uint64_t split_x, split_out; /* cuda_split.h: fp16 [16, x_pitch]; f32 [exl2__cuda_split_rows_max, 2 inter] */
    uint64_t logits, adjusted, keys, key_sums, sample_states, sample_bins; /* exl2k_sample_args */
#ifndef EXL2_NO_VISION
    exl2__cuda_tower_buffers tower; /* of a plan with a tower, else zeros */
    uint64_t deep;                  /* f32 [row_levels - 1, rows_max, hidden]: what the rows of a pass have for the
                                       first layers; 0: rows have one vector, or the span has other layers */
#endif
    uint64_t data;       /* [data_bytes] data that changes from pass to pass */
    uint64_t kept;       /* [EXL2__STEP_GROUPS, data_bytes] of one of several spans: `data` of each group of a pass */
    uint64_t data_bytes;
    uint64_t given_sums; /* bytes of EXL2__CUDA_GIVEN_SUMS */
    uint64_t zeroed, zeroed_bytes; /* must be zero before the first pass: padding is read, never written */
    uint32_t x_pitch, qkv_pitch, attended_pitch, h_pitch, stride; /* in elements; stride: pitch of logits */
    uint32_t page_bytes; /* bytes of a page in one layer */
    uint32_t head_rows;  /* ceil(query heads of a K/V head / EXL2K_HEAD_TILE) */
    exl2k_result *results; /* [EXL2K_RESULT_SETS, L] pinned; the set of a fence is fence % EXL2K_RESULT_SETS */
    uint32_t *stop;      /* pinned, after them: exl2k_meet_args.stop */
    float *crossing;     /* [R, hidden] pinned, after them: rows that cross to the host; NULL: none do */
    exl2__cuda_event *fences[EXL2K_RESULT_SETS]; /* the event of a fence, at the same index */
} exl2__cuda_buffers;

/* The current pass, as its launches see it. */
typedef struct exl2__cuda_pass {
    uint64_t groups;     /* exl2k_pass, one for each group of logit rows; at least one */
    uint64_t windowed;   /* exl2k_pass for attention of layers with window parts: its page tables are those of parts */
    uint64_t rows, samplings, copies, part_copies;
    uint64_t masks;      /* masks of the rows that have one, each aligned to 16 bytes */
    uint64_t loras;      /* exl2k_lora_pass, if rows have adapters and not `apart` */
    uint64_t sets, row_sets; /* exl2k_lora_set, and u16 of each row, if `apart` or `experts` */
    uint64_t row_steers, steers; /* exl2k_steer_args: row_sets, sets; if rows have control vectors */
    uint64_t turns;      /* exl2k_turn_args.turns, if `turned` */
    bool settled;        /* the product before has normalised the residual, and settle has nothing to do */
    uint64_t turned_x, turned_h; /* suh of the EXL3 matrix for which b.exl3_rotated has the row of x, or of h; 0: it has
                                    none */
    uint32_t row_count;  /* rows of launches; of a captured pass those of its class: exl2k_pass has its own */
    uint32_t longest_context; /* tokens that the row with the longest context attends to */
    uint32_t splits;     /* splits of attention that a graph is captured for; 0: what longest_context needs */
    uint32_t tile_count, norm; /* norm: index of the sums of squares of the norm that the next product applies */
    bool first_norm;     /* that norm is the first one of the pass */
    bool captured;       /* decodes few enough rows: offsets of its data depend on row_count only, as graphs need */
    bool decodes;        /* as exl2__step.decodes: the head reads all rows */
    bool adapted;        /* rows have adapters (cuda_lora.h), */
    bool apart;          /* and what these add to a product is computed by kernels of their own, */
    bool narrow;         /* or they add to q, k and v alone, */
    bool experts;        /* or they add to experts, too: such a pass is never captured */
    bool steered;        /* rows have control vectors (cuda_steer.h) */
    bool turned;         /* angles of some rows are not those of their places: exl2k_attend_turn rotates q and k */
    bool prompts;        /* rows of prompts: attention for prefill */
    bool parts;          /* pages have window parts */
    bool by_gemm;        /* rows of prompts, or many of sampled tokens: then norms are separate kernels */
    bool by_wg;          /* by wgmma: inputs of products are tiles (kernels_src/wg_tiles.cuh) */
    bool chained;        /* the preceding kernel belongs to the pass: the next one may start while it ends */
} exl2__cuda_pass;

#define EXL2__CUDA_SPLIT_CLASSES 4u

/* The most rows of each class of passes that graphs are captured for. A pass runs by the graph of its class, and CTAs
   of rows that it does not have leave at once. In passes by GEMM all products compute these rows, too; nothing reads
   them. */
static const uint32_t exl2__cuda_class_most[EXL2__CUDA_ROW_CLASSES] = {
    1, EXL2__CUDA_FEW_ROWS, EXL2__CUDA_GEMV_ROWS, 24, 32, 48, EXL2__CUDA_GRAPH_ROWS
};

/* The class of passes of `rows` rows; EXL2__CUDA_ROW_CLASSES: more than a graph can run. */
static inline uint32_t exl2__cuda_row_class(uint32_t rows)
{
    uint32_t i = 0;
    while (i < EXL2__CUDA_ROW_CLASSES && exl2__cuda_class_most[i] < rows) {
        i++;
    }
    return i;
}

/* Whether more than 8 rows may decode together, for which there are products of 16 rows. */
static inline bool exl2__cuda_many_decode(const exl2__plan *p) { return p->sequences_max > EXL2__CUDA_FEW_ROWS; }

/* Rows that a graph of the class is captured for. Buffers of logits have room for 16 rows, or for all sequences. */
static inline uint32_t exl2__cuda_class_rows(const exl2__plan *p, uint32_t row_class)
{
    uint32_t rows = exl2__cuda_class_most[row_class];
    return rows <= EXL2__CUDA_GEMV_ROWS ? rows : exl2__min32(rows, p->sequences_max);
}

/* Classes of passes with adapters that graphs are captured for; 0: there are no such passes. */
static inline uint32_t exl2__cuda_lora_classes(const exl2__plan *p)
{
    return p->lora_max ? exl2__cuda_row_class(EXL2__CUDA_LORA_ROWS) + 1 : 0;
}

/* Most rows of a pass that the model has graphs for. */
static inline uint32_t exl2__cuda_graph_rows(const exl2__plan *p)
{
    uint32_t rows = exl2__min32(exl2__max32(p->sequences_max, EXL2__CUDA_FEW_ROWS), EXL2__CUDA_GRAPH_ROWS);
    return exl2__cuda_class_rows(p, exl2__cuda_row_class(rows));
}

/* Kinds of graphs: of passes without adapters, with adapters, and with such that add to q, k and v alone; then the same
   with control vectors. */
enum { EXL2__CUDA_GRAPH_PLAIN, EXL2__CUDA_GRAPH_ADAPTED, EXL2__CUDA_GRAPH_NARROW, EXL2__CUDA_GRAPH_STEERED };
#define EXL2__CUDA_GRAPH_KINDS (2u * EXL2__CUDA_GRAPH_STEERED)

static inline uint32_t exl2__cuda_graph_kind(const exl2__cuda_pass *pass)
{
    uint32_t kind = pass->narrow ? EXL2__CUDA_GRAPH_NARROW : pass->adapted ? EXL2__CUDA_GRAPH_ADAPTED : 0;
    return kind + (pass->steered ? EXL2__CUDA_GRAPH_STEERED : 0);
}

/* Graphs of passes that decode, by their class of rows. */
typedef struct exl2__cuda_graphs {
    exl2__cuda_graph_exec *whole[EXL2__CUDA_ROW_CLASSES][EXL2__CUDA_SPLIT_CLASSES];  /* entire passes; none by GEMM */
    exl2__cuda_graph_exec *layers[EXL2__CUDA_ROW_CLASSES][EXL2__CUDA_SPLIT_CLASSES]; /* without head, sampling */
    exl2__cuda_graph_exec *head[EXL2__CUDA_ROW_CLASSES];  /* all of the head's units at once; NULL: there is one */
    exl2__cuda_graph_exec **unit[EXL2__CUDA_ROW_CLASSES]; /* [units] graphs of single units */
    uint32_t units[EXL2__CUDA_ROW_CLASSES];
} exl2__cuda_graphs;

static inline uint32_t exl2__cuda_pitch(uint32_t elements)
{
    return (uint32_t)exl2__align_up(elements, 64) + 64; /* up to 32 elements after the last one are read */
}

/* Bits of codes in the pages of a quantized cache. */
static inline uint32_t exl2__cuda_key_bits(exl2_kv format) { return format == EXL2_KV_Q4 ? 4 : 8; }
static inline uint32_t exl2__cuda_value_bits(exl2_kv format) { return format == EXL2_KV_Q8 ? 8 : 4; }

/* Bytes of a page of one layer: PAGES or CODES of attend_args.h. */
static inline uint32_t exl2__cuda_page_bytes(const exl2__shape *s, exl2_kv format)
{
    uint32_t bits = exl2__cuda_key_bits(format) + exl2__cuda_value_bits(format);
    return s->kv_heads * EXL2K_PAGE_TOKENS
         * (format == EXL2_KV_FP16 ? 4 * s->head_dim : EXL2K_CODES_GROUPS(s->head_dim) * 4 * (bits + 1));
}

/* Are tables of RoPE divided? See rope_divided in attend_args.h. */
static inline bool exl2__cuda_rope_divided(const exl2__plan *p)
{
    return (uint64_t)p->rope_count * p->context_max * p->shape.head_dim * sizeof(float) > EXL2__CUDA_ROPE_WHOLE_MAX;
}

/* Bytes of one table of RoPE. */
static inline uint64_t exl2__cuda_rope_bytes(const exl2__plan *p)
{
    uint64_t lines = exl2__cuda_rope_divided(p) ? exl2__div_up(p->context_max, EXL2K_ROPE_BLOCK) + EXL2K_ROPE_BLOCK
                                                : p->context_max;
    return exl2__align_up(lines * p->shape.head_dim * sizeof(float), EXL2__CUDA_ALIGN);
}

/* Most rows whose gate and up, before the activation, there is room for. */
static inline uint32_t exl2__cuda_split_rows_max(const exl2__plan *p)
{
    uint32_t alone = p->shape.mixes_exl3 ? exl2__min32(p->rows_max, EXL2__CUDA_ALONE_ROWS) : 0;
    return exl2__max32(EXL2__CUDA_SPLIT_ROWS, alone);
}

/* Buffers of models with experts that need not be zero. */
EXL2__PRIVATE void exl2__cuda_buffers_routed(exl2__cuda_buffers *b, const exl2__plan *p, exl2__cuda_arena *a)
{
    const exl2__experts *e = &p->shape.experts;
    exl2__cuda_routed *routed = &b->routed;
    uint64_t rows = p->rows_max;
    *routed = (exl2__cuda_routed){ 0 };
    if (e->count == 0) {
        return;
    }
    routed->logits_pitch = e->count + e->shared_switch;
    routed->h_pitch = exl2__cuda_pitch(e->inter);
    routed->used_max = (uint32_t)exl2__min64((uint64_t)EXL2K_EXPERT_ROWS * e->active, e->count);
    routed->logits = exl2__cuda_arena_take(a, rows * routed->logits_pitch * sizeof(float));
    routed->choice = exl2__cuda_arena_take(a, rows * e->active * sizeof(uint32_t));
    routed->weight = exl2__cuda_arena_take(a, rows * e->active * sizeof(float));
#ifndef EXL2_NO_MOE
    routed->grouped = exl2__cuda_arena_take(a, exl2__cuda_grouped_scratch_bytes(p->rows_max, e->active, e->count,
                                                                                p->shape.hidden, e->inter,
                                                                                p->shape.exl3 != 0));
#endif
    routed->shared = e->shared_switch ? exl2__cuda_arena_take(a, rows * sizeof(float)) : 0;
}

/* Buffers of models with experts whose padding must be zero. */
EXL2__PRIVATE void exl2__cuda_buffers_routed_zeroed(exl2__cuda_buffers *b, const exl2__plan *p, exl2__cuda_arena *a)
{
    exl2__cuda_routed *routed = &b->routed;
    uint64_t slots = (uint64_t)routed->used_max * EXL2K_EXPERT_ROWS;
    uint64_t of_exl3 = EXL2K_EXL3_ROWS * p->shape.experts.active;
    if (slots > 0) {
        routed->tickets = exl2__cuda_arena_take(a, p->rows_max * sizeof(uint32_t));
        routed->x = exl2__cuda_arena_take(a, p->rows_max * b->x_pitch * 2ull);
        routed->gathered = exl2__cuda_arena_take(a, slots * b->x_pitch * 2);
        slots = p->shape.exl3 ? exl2__max64(slots, of_exl3) : slots;
        routed->h = exl2__cuda_arena_take(a, slots * routed->h_pitch * 2);
    }
}

/* The most rows of sampled tokens in a pass. */
static inline uint32_t exl2__cuda_sampled_rows(const exl2__plan *p)
{
    return exl2__max32(p->sequences_max, EXL2__CUDA_SAMPLED_ROWS);
}

/* As exl2k_lora_gemv_args.rank_stride. */
static inline uint32_t exl2__cuda_lora_rank_stride(const exl2__plan *p)
{
    return (uint32_t)exl2__align_up(p->lora_rank_max, 8);
}

/* Matrices of an adapter's table. */
static inline uint32_t exl2__cuda_lora_table(const exl2__plan *p)
{
    return p->shape.layers * exl2__lora_places(p->shape.experts.count);
}

/* Adapters that a row may have. */
static inline uint32_t exl2__cuda_lora_uses(const exl2__plan *p) { return exl2__min32(p->lora_max, EXL2K_LORA_USES); }

/* Blocks of t of a part, as in exl2k_lora_wg_args. */
static inline uint32_t exl2__cuda_lora_blocks(const exl2__plan *p)
{
    return (uint32_t)exl2__div_up(p->lora_rank_max, EXL2K_LORA_WG_BLOCK);
}

/* Bytes of exl2k_lora_rows_args.t. */
static inline uint64_t exl2__cuda_lora_rows_t_bytes(const exl2__plan *p)
{
    uint64_t parts = (uint64_t)p->rows_max * exl2__cuda_lora_uses(p) * EXL2K_LORA_PARTS;
    return exl2__align_up(parts * exl2__cuda_lora_rank_stride(p) * sizeof(float), EXL2__CUDA_ALIGN);
}

/* Bytes of what rows of prompts with adapters have between kernels: t and what the activation reads, or t as products
   by wgmma read it. */
static inline uint64_t exl2__cuda_lora_rows_bytes(const exl2__plan *p)
{
    uint64_t act = (uint64_t)exl2__min32(p->rows_max, EXL2__CUDA_LORA_ACT_ROWS) * 2 * p->shape.inter * sizeof(float);
    uint64_t blocks = (uint64_t)exl2__cuda_lora_uses(p) * EXL2K_LORA_PARTS * exl2__cuda_lora_blocks(p);
    return exl2__max64(exl2__cuda_lora_rows_t_bytes(p) + act, blocks * exl2__align_up(p->rows_max, 8) * 128);
}

/* Bytes of what passes with adapters have besides exl2k_pass, rows and samplings. */
static inline uint64_t exl2__cuda_lora_data_bytes(const exl2__plan *p)
{
    uint64_t rows = exl2__max32(p->rows_max, EXL2__CUDA_LORA_ROWS);
    uint64_t sets = exl2__max32(p->sequences_max, EXL2__CUDA_LORA_ROWS) * sizeof(exl2k_lora_set);
    return sizeof(exl2k_lora_pass) + sets + exl2__align_up(rows * sizeof(exl2k_u16), 16);
}

/* Bytes of exl2k_lora_gemv_args.t. */
static inline uint64_t exl2__cuda_lora_t_bytes(const exl2__plan *p)
{
    uint64_t rows = (uint64_t)p->lora_max * EXL2K_LORA_PARTS * EXL2K_LORA_ROWS;
    return rows * exl2__cuda_lora_rank_stride(p) * 8;
}

/* Layers with control vectors: those whose MLPs the device computes. The host adds those of the others. */
static inline uint32_t exl2__cuda_steer_layers(const exl2__plan *p)
{
    return exl2__plan_span(p) - (p->streamed.parts ? 0 : p->host_mlps);
}

/* Bytes of what passes with control vectors have: a number of each row, and the sets of the pass. Captured passes may
   have more rows than the plan. */
static inline uint64_t exl2__cuda_steer_data_bytes(const exl2__plan *p)
{
    uint64_t rows = exl2__max32(p->rows_max, EXL2__CUDA_GRAPH_ROWS);
    uint64_t sets = exl2__max32(p->sequences_max, EXL2__CUDA_GRAPH_ROWS) * sizeof(exl2k_steer_set);
    return exl2__align_up(rows * sizeof(exl2k_u16), 16) + exl2__align_up(sets, 16);
}

/* Elements of a row of q and k of all heads; 0: there are no such rows. */
static inline uint32_t exl2__cuda_all_pitch(const exl2__plan *p)
{
    bool all = exl2__columns_are_cut(&p->columns) && p->shape.qk_norm == EXL2__QK_NORM_WHOLE;
    return all ? (uint32_t)exl2__align_up((p->columns.heads + p->columns.kv_heads) * p->shape.head_dim, 4) : 0;
}

/* Where the sums of squares of the norm that follows begin in what a span hands over; those of the one before follow.
   Only passes of few rows have them. */
static inline uint64_t exl2__cuda_handed_sums(const exl2__plan *p)
{
    return exl2__align_up((uint64_t)p->rows_max * p->shape.hidden * sizeof(float), EXL2__CUDA_ALIGN);
}

#define EXL2__CUDA_HANDED_SLOTS (EXL2__CUDA_GEMV_ROWS * EXL2K_SLOTS_MAX * (uint64_t)sizeof(float))

static inline uint64_t exl2__cuda_handed_bytes(const exl2__plan *p)
{
    return exl2__cuda_handed_sums(p) + 2 * EXL2__CUDA_HANDED_SLOTS;
}

/* Whether positions of rows may have three axes. */
static inline bool exl2__cuda_turns(const exl2__plan *p)
{
#ifndef EXL2_NO_VISION
    return p->turns;
#else
    (void)p;
    return false;
#endif
}

/* Upper bound of the data of a pass: passes and rows, page tables, tiles, samplings and their lists, each aligned to
   16. */
EXL2__PRIVATE uint64_t exl2__cuda_data_bytes(const exl2__plan *p)
{
    uint64_t rows = exl2__max32(p->rows_max, EXL2__CUDA_GEMV_ROWS), sequences = p->sequences_max;
    uint64_t sampled = exl2__cuda_sampled_rows(p);
    uint64_t group = p->shape.heads / p->shape.kv_heads;
    uint64_t bytes = exl2__div_up(rows, p->logit_rows_max) * sizeof(exl2k_pass) + rows * sizeof(exl2k_row);
    bytes += sequences * (p->context_max / EXL2__PAGE_TOKENS) * sizeof(uint32_t);
    bytes += (rows * group / EXL2K_TILE_PAIRS + sequences) * sizeof(exl2k_tile);
    bytes += (uint64_t)p->pages * sizeof(exl2__page_copy) + rows * sizeof(exl2k_sampling);
    if (p->window_pages) { /* the same of window parts */
        bytes += sizeof(exl2k_pass) + sequences * (p->context_max / EXL2__PAGE_TOKENS) * sizeof(uint32_t);
        bytes += (uint64_t)p->pages * sizeof(exl2__page_copy) + 16;
    }
    bytes += sampled * ((uint64_t)p->context_max * sizeof(uint32_t) + EXL2__CUDA_BIASES_MAX * sizeof(exl2k_bias));
    bytes += sampled * exl2__bit_words(p->shape.vocab) * sizeof(uint32_t); /* masks */
    bytes += p->lora_max ? exl2__cuda_lora_data_bytes(p) : 0;
    bytes += p->steer_max ? exl2__cuda_steer_data_bytes(p) : 0;
    bytes += exl2__cuda_turns(p) ? rows * 3 * sizeof(int32_t) + 16 : 0;
    return exl2__align_up(bytes + 64 + sampled * 3 * 16, EXL2__CUDA_ALIGN);
}

/* Buffers that are never in use at the same time share memory: logits and what sampling derives from them, partial sums
   of GEMM, partial results of attention. */
EXL2__PRIVATE void exl2__cuda_buffers_scratch(exl2__cuda_buffers *b, const exl2__plan *p, const exl2__cuda_device *gpu,
                                              exl2__cuda_arena *a)
{
    const exl2__shape *s = &p->shape;
    uint64_t rows = p->logit_rows_max, begin = a->used;
    uint64_t blocks = exl2__cuda_sample_chunks(s->vocab) * (EXL2K_SAMPLE_CHUNK / EXL2K_SAMPLE_BLOCK);
    uint64_t others = (uint64_t)exl2__cuda_sampled_rows(p) * s->heads * EXL2K_SPLITS_MAX
                      * (s->head_dim + EXL2K_SPLIT_EXTRA) * sizeof(float);
    b->logits = exl2__cuda_arena_take(a, rows * b->stride * sizeof(float));
    b->adjusted = exl2__cuda_arena_take(a, rows * b->stride * sizeof(float));
    b->keys = exl2__cuda_arena_take(a, rows * 2 * blocks * sizeof(uint32_t));
    b->key_sums = exl2__cuda_arena_take(a, rows * blocks * sizeof(uint64_t));
    b->partial = b->gemm_partial = b->exl3_partial = b->logits;
    others = exl2__max64(others, exl2__cuda_gemm_partial_max(gpu->sm_count));
#if EXL2__EXL3
    others = exl2__max64(others, exl2__cuda_exl3_partial_max(s, exl2__cuda_sampled_rows(p), gpu->sm_count));
#endif
    exl2__cuda_arena_take(a, others - exl2__min64(others, a->used - begin));
    b->exl3_decoded_bytes = 0;
#if EXL2__EXL3
    b->exl3_decoded_bytes = exl2__cuda_exl3_decoded_max(s, gpu, p->rows_max);
    b->exl3_decoded = b->exl3_decoded_bytes ? exl2__cuda_arena_take(a, 2 * b->exl3_decoded_bytes) : 0;
    b->exl3_rotated = exl2__cuda_arena_take(a, exl2__cuda_exl3_rotated_max(s, p->rows_max, b->exl3_decoded_bytes > 0));
#endif
}

/* Buffers that other GPUs write in passes of one row; then those of passes of 2 to 16 rows. */
typedef enum exl2__cuda_given_buffer {
    EXL2__CUDA_GIVEN_X, EXL2__CUDA_GIVEN_MLP_X, EXL2__CUDA_GIVEN_H, EXL2__CUDA_GIVEN_HEAD_X,
    EXL2__CUDA_GIVEN_SUMS, /* f32 [EXL2__CUDA_SUMS, exl2__cuda_given_strips] */
    EXL2__CUDA_GIVEN_ATTENDED,
    EXL2__CUDA_GIVEN_INBOX, EXL2__CUDA_GIVEN_H_INBOX, /* exl2k_peers.inbox of `out` and `down`; of gate and up */
    EXL2__CUDA_GIVEN_ATTENDED_INBOX, /* exl2k_attend_args.inbox */
    EXL2__CUDA_GIVEN_COUNT
} exl2__cuda_given_buffer;

#define EXL2__CUDA_GIVEN_ROWS 16u /* most rows of an inbox */
#define EXL2__CUDA_GROUPS_BYTES (EXL2__CUDA_GIVEN_ROWS * 8ull * sizeof(float)) /* sums of groups of slots, of a norm */

/* Sums of squares, one for each strip, rounded up to 16 bytes. */
static inline uint32_t exl2__cuda_given_strips(const exl2__shape *s)
{
    return (uint32_t)exl2__align_up(exl2__align_up(s->hidden, 32) / EXL2__CUDA_STRIP, 4);
}

/* Bytes of a buffer. */
static inline uint64_t exl2__cuda_given_bytes(const exl2__cuda_buffers *b, exl2__cuda_given_buffer which)
{
    switch (which) {
    case EXL2__CUDA_GIVEN_H: return 2ull * b->h_pitch;
    case EXL2__CUDA_GIVEN_ATTENDED: return 2ull * b->attended_pitch;
    case EXL2__CUDA_GIVEN_SUMS: return b->given_sums;
    case EXL2__CUDA_GIVEN_INBOX: return b->x_pitch / 16ull * EXL2__CUDA_GIVEN_ROWS
                                         * (EXL2K_PEERS_STRIP + EXL2K_PEERS_SQUARE);
    case EXL2__CUDA_GIVEN_ATTENDED_INBOX: return 2ull * EXL2__CUDA_GIVEN_ROWS * b->attended_pitch;
    case EXL2__CUDA_GIVEN_H_INBOX: return b->h_pitch / 16ull * EXL2__CUDA_GIVEN_ROWS * EXL2K_PEERS_STRIP;
    default: return 2ull * b->x_pitch;
    }
}

/* Where the buffer begins in `given`. EXL2__CUDA_GIVEN_COUNT: bytes of all. */
static inline uint64_t exl2__cuda_given_at(const exl2__cuda_buffers *b, exl2__cuda_given_buffer which)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < (uint32_t)which; i++) {
        at += exl2__cuda_given_bytes(b, (exl2__cuda_given_buffer)i);
    }
    return at;
}

/* Buffers that must be zero before the first pass: padding that kernels read, and counters. h and qkv, x and attended
   are in use at the same time only in passes of few rows: the second buffer of a pair begins after the rows of such a
   pass. With parallel blocks gate_up runs before attention, so h and qkv are in use at the same time in all passes.
   GEMM reads padding up to a multiple of 32 inputs, which qkv would overwrite if it shared memory with that padding. */
EXL2__PRIVATE void exl2__cuda_buffers_zeroed(exl2__cuda_buffers *b, const exl2__plan *p, uint32_t sms,
                                             exl2__cuda_arena *a)
{
    const exl2__shape *s = &p->shape;
    uint64_t rows = exl2__align_up(p->rows_max, 8); /* tiles have multiples of 8 rows */
    uint64_t apart = exl2__min64(rows, EXL2__CUDA_GEMV_ROWS), logits = p->logit_rows_max;
    uint64_t x_bytes = b->x_pitch * 2ull, h_bytes = b->h_pitch * 2ull, used = a->used;
    bool alike = exl2__shape_attended(s) == s->hidden;
    b->x = exl2__cuda_arena_take(a, (rows + (alike ? apart : 0)) * x_bytes);
    b->attended = alike ? b->x + apart * x_bytes : exl2__cuda_arena_take(a, rows * b->attended_pitch * 2);
    b->x2 = s->parallel ? exl2__cuda_arena_take(a, rows * x_bytes) : 0;
    bool shared = exl2__columns_are_cut(&p->columns);
    b->natural = shared ? exl2__cuda_arena_take(a, rows * b->attended_pitch * 2) : 0;
    uint64_t all_bytes = (uint64_t)exl2__cuda_all_pitch(p) * sizeof(float);
    b->all_heads = all_bytes ? exl2__cuda_arena_take(a, rows * all_bytes) : 0;
    b->meet = shared ? exl2__cuda_arena_take(a, sizeof(exl2k_meet_state)) : 0;
    b->given_sums = EXL2__CUDA_SUMS * exl2__cuda_given_strips(s) * (uint64_t)sizeof(float);
    b->given = shared ? exl2__cuda_arena_take(a, exl2__cuda_given_at(b, EXL2__CUDA_GIVEN_COUNT)) : 0;
    b->strip_sums = shared ? exl2__cuda_arena_take(a, b->given_sums * EXL2__CUDA_GIVEN_ROWS) : 0;
    b->group_sums = shared ? exl2__cuda_arena_take(a, EXL2__CUDA_SUMS * EXL2__CUDA_GROUPS_BYTES) : 0;
    apart = s->inter % 32 || s->parallel ? rows : apart;
    b->h = exl2__cuda_arena_take(a, exl2__max64(rows * h_bytes, apart * h_bytes + rows * b->qkv_pitch * sizeof(float)));
    b->qkv = b->h + apart * h_bytes;
    b->head_x = exl2__cuda_arena_take(a, exl2__align_up(logits, 8) * x_bytes);
    for (uint32_t i = 0; i < EXL2__COUNT(b->head_sums); i++) {
        b->head_sums[i] = exl2__cuda_arena_take(a, logits * EXL2K_SLOTS_MAX * sizeof(float));
    }
    b->split_x = exl2__cuda_arena_take(a, EXL2__CUDA_SPLIT_ROWS * x_bytes);
    for (uint32_t i = 0; i < EXL2__CUDA_SUMS; i++) {
        b->sums[i] = exl2__cuda_arena_take(a, rows * EXL2K_SLOTS_MAX * sizeof(float));
    }
    b->gemm_tickets = exl2__cuda_arena_take(a, exl2__cuda_gemm_tickets_max(sms));
    uint64_t tables = (uint64_t)p->lora_max * exl2__cuda_lora_table(p) * sizeof(exl2k_lora_matrix);
    b->lora_tables = p->lora_max ? exl2__cuda_arena_take(a, tables) : 0;
    b->lora_t_bytes = exl2__cuda_lora_t_bytes(p);
    b->lora_t = p->lora_max ? exl2__cuda_arena_take(a, b->lora_t_bytes) : 0;
    b->lora_turn = p->lora_max ? exl2__cuda_arena_take(a, 16) : 0;
    b->lora_zeros = p->lora_max ? exl2__cuda_arena_take(a, EXL2K_LORA_WG_ZEROS) : 0;
#if EXL2__EXL3
    b->exl3_tickets = exl2__cuda_arena_take(a, exl2__cuda_exl3_tickets_max(s));
    b->exl3_alone = exl2__cuda_arena_take(a, exl2__cuda_exl3_alone_max(s, sms));
#endif
    b->attend_tickets = exl2__cuda_arena_take(a, (uint64_t)exl2__cuda_sampled_rows(p) * s->kv_heads
                                                      * b->head_rows * 4);
    b->sample_states = exl2__cuda_arena_take(a, logits * sizeof(exl2k_sample_state));
    b->sample_bins = exl2__cuda_arena_take(a, logits * sizeof(exl2k_sample_bins));
    exl2__cuda_buffers_routed_zeroed(b, p, a);
    b->zeroed = b->x;
    b->zeroed_bytes = a->used - used;
}

EXL2__PRIVATE void exl2__cuda_buffers_layout(exl2__cuda_buffers *b, const exl2__plan *p, const exl2__cuda_device *gpu,
                                             exl2__cuda_arena *a)
{
    const exl2__shape *s = &p->shape;
    b->x_pitch = exl2__cuda_pitch(s->hidden);
    b->attended_pitch = exl2__cuda_pitch(exl2__shape_attended(s));
    b->h_pitch = exl2__cuda_pitch(s->inter);
    b->qkv_pitch = (s->heads + 2 * s->kv_heads) * s->head_dim;
    b->stride = (uint32_t)exl2__align_up(s->vocab, 64);
    b->page_bytes = exl2__cuda_page_bytes(s, p->kv);
    b->head_rows = (uint32_t)exl2__div_up(s->heads / s->kv_heads, EXL2K_HEAD_TILE);
    b->data_bytes = exl2__cuda_data_bytes(p);
    uint64_t windowed = exl2__plan_place(p, exl2__plan_end(p), true);
    b->pages = exl2__cuda_arena_take(a, (exl2__plan_span(p) - windowed) * p->pages * b->page_bytes);
    b->parts = windowed ? exl2__cuda_arena_take(a, windowed * p->window_pages * b->page_bytes) : 0;
    b->expanded = p->kv == EXL2_KV_FP16 ? 0
                : exl2__cuda_arena_take(a, (uint64_t)p->pages * exl2__cuda_page_bytes(s, EXL2_KV_FP16));
    b->rope = exl2__cuda_arena_take(a, p->rope_count * exl2__cuda_rope_bytes(p));
    b->unrotated = exl2__cuda_arena_take(a, s->head_dim * sizeof(float));
    b->axes = exl2__cuda_turns(p) ? exl2__cuda_arena_take(a, s->head_dim / 2) : 0;
    b->residual = exl2__cuda_arena_take(a, (uint64_t)p->rows_max * s->hidden * sizeof(float));
    b->handed = exl2__plan_first(p) > 0 ? exl2__cuda_arena_take(a, exl2__cuda_handed_bytes(p)) : 0;
    b->branch = s->post_norms ? exl2__cuda_arena_take(a, (uint64_t)p->rows_max * s->hidden * sizeof(float)) : 0;
    b->split_out = exl2__cuda_arena_take(a, (uint64_t)exl2__cuda_split_rows_max(p) * 2 * s->inter * sizeof(float));
    b->lora_rows_t = p->lora_max ? exl2__cuda_arena_take(a, exl2__cuda_lora_rows_bytes(p)) : 0;
    b->lora_act = p->lora_max ? b->lora_rows_t + exl2__cuda_lora_rows_t_bytes(p) : 0;
    uint64_t lora_slots = p->lora_max ? EXL2K_EXPERT_ROWS * (uint64_t)s->experts.active : 0;
    uint64_t lora_slot = (uint64_t)exl2__cuda_lora_uses(p) * 2 * exl2__cuda_lora_rank_stride(p);
    b->lora_experts_t = lora_slots ? exl2__cuda_arena_take(a, lora_slots * lora_slot * sizeof(float)) : 0;
    b->lora_experts = lora_slots ? exl2__cuda_arena_take(a, lora_slots * 2 * s->experts.inter * sizeof(float)) : 0;
    uint64_t steer_row = (uint64_t)exl2__cuda_steer_layers(p) * s->hidden * sizeof(float);
    b->steers = p->steer_max ? exl2__cuda_arena_take(a, p->steer_max * steer_row) : 0;
    b->steered = p->steer_max ? exl2__cuda_arena_take(a, EXL2K_STEER_ROWS * steer_row) : 0;
    b->data = exl2__cuda_arena_take(a, b->data_bytes);
    bool spans = exl2__plan_span(p) < s->layers;
    b->kept = spans ? exl2__cuda_arena_take(a, EXL2__STEP_GROUPS * b->data_bytes) : 0;
    exl2__cuda_buffers_routed(b, p, a);
    exl2__cuda_buffers_scratch(b, p, gpu, a);
    exl2__cuda_buffers_zeroed(b, p, gpu->sm_count, a);
#ifndef EXL2_NO_VISION
    memset(&b->tower, 0, sizeof b->tower);
    if (p->tower) {
        exl2__cuda_tower_layout(&b->tower, p->tower, &p->tower_limits, a);
    }
    uint64_t deep = exl2__plan_first(p) == 0 ? exl2__max32(s->row_levels, 1) - 1 : 0;
    b->deep = deep ? exl2__cuda_arena_take(a, deep * p->rows_max * s->hidden * sizeof(float)) : 0;
#endif
}

#endif
