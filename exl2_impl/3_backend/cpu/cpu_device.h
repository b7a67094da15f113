/* cpu_device.h: one model on the CPU: the layout of its memory, and how work is divided among the application's
   threads.
   takes: a plan, arenas for pages and scratch, a step per pass.
   gives: exl2__cpu_device, exl2__cpu_device_prepare, exl2__cpu_device_commit, exl2__cpu_device_begin, exl2__cpu_share,
          exl2__cpu_device_split; exl2__cpu_stage; exl2__cpu_norm_or_copy, exl2__cpu_activate.
   owns:  nothing; pages and scratch lie in the caller's arenas. */
#ifndef EXL2__CPU_DEVICE_H
#define EXL2__CPU_DEVICE_H

#include "../../2_graph/phases.h"
#include "cpu_codes.h"
#include "../sample/cpu_sample_run.h"

#define EXL2__CPU_TASKS_MAX 64u
#ifndef EXL2__CPU_TASK_COST
#define EXL2__CPU_TASK_COST 150000u /* multiply-adds per task, at least: about 4 us */
#endif
#ifndef EXL2__CPU_SHARE_COST
#define EXL2__CPU_SHARE_COST (2 * EXL2__CPU_TASK_COST) /* of one of several shares of a task, at least */
#endif
#define EXL2__CPU_SHARES 4u /* of a task, at most, on average */

typedef struct exl2__cpu_rows { /* consecutive rows of one sequence, a tile of attention */
    uint32_t row, count;
} exl2__cpu_rows;

typedef struct exl2__cpu_task { /* scratch of one of the tasks that run in parallel */
    exl2__real *rows;           /* [tile_rows, hidden] normalised rows */
    exl2__real *query;          /* [head_dim, tile_queries] */
    exl2__real *weighted;       /* [tile_queries, value_stride] weighted sums of V */
    exl2__real *scores;         /* [tile_queries, context_max] */
    exl2__kv *key;              /* [head_dim] */
    exl2__real *pairs;          /* [rotary] a head whose pairs are being separated */
    void *sample;               /* scratch of exl2__sample_row and _begin */
    /* Only if layers have experts: */
    double *scores_of_experts;  /* [2, experts] */
    exl2__real *gathered, *centre; /* [tile_rows, hidden], [tile_rows, hidden / 32] input of a tile of slots */
} exl2__cpu_task;

/* An expert that some row uses: `rows` slots, in tiles [tile, tile + tiles). */
typedef struct exl2__cpu_expert {
    uint32_t index, rows, tile, tiles;
} exl2__cpu_expert;

typedef struct exl2__cpu_slots { /* a tile: slots [slot, slot + count) of one expert (see cpu_experts.h) */
    uint32_t expert, slot, count;
} exl2__cpu_slots;

/* What the phase `route` finds out about the rows of a layer, and the buffers of experts; S = rows_max * active is the
   largest number of slots. */
typedef struct exl2__cpu_routed {
    uint32_t router_stride, expert_stride; /* experts and their width, rounded up to whole strips */
    exl2__real *x;               /* [rows_max, hidden_stride] normalised rows */
    exl2__real *logits;          /* [rows_max, router_stride] */
    exl2__real *shared;          /* [rows_max, 32] the weight of the shared expert, in the first element */
    uint32_t *choice;            /* [rows_max, active] experts, ascending */
    exl2__real *weight;          /* [rows_max, active] */
    uint32_t *slot_row;          /* [S] */
    exl2__real *slot_weight;     /* [S] */
    exl2__cpu_slots *tiles;      /* [tile_count], at most S; ascending by expert */
    exl2__cpu_expert *experts;   /* [expert_count], at most S; ascending */
    uint32_t *next;              /* [experts + 1] */
    exl2__real *input, *centre;  /* [S, widest], [S, widest / 32] gathered inputs of tiles */
    exl2__real *h;               /* [S, expert_stride] */
    uint32_t expert_count, tile_count;
} exl2__cpu_routed;

/* Adapters: t of rows and slots (cpu_lora.h). */
typedef struct exl2__cpu_lora {
    uint32_t rank_stride, stride; /* of one adapter, of a part of a row; 0: the model has none */
    uint32_t ranks;               /* of the current pass: the ranks of the largest set; 0: no row has adapters */
    exl2__real *t;                /* [rows_max or slots, 3, stride] */
} exl2__cpu_lora;

#define EXL2__CPU_PART 0x80000000u /* bit of exl2__cpu_device.places */

typedef struct exl2__cpu_device {
    exl2__ctx *c;
    const exl2__cpu_ops *ops;
    exl2__shape shape;
    uint32_t first_layer, layers; /* of the span */
    uint32_t rows_max, logit_rows_max, context_max; /* logit_rows_max: 0 in a span without a head */
    uint32_t tasks;               /* maximum number of parallel tasks */
    /* Lengths of rows in elements, rounded up to whole strips: */
    uint32_t hidden_stride, query_stride, key_stride, inter_stride, vocab_stride;
    uint32_t value_stride;        /* elements of one token and head in a V page, with padding */
    uint64_t key_count, layer_bytes, page_bytes; /* key_count: number of elements of K of one layer in a page of f16 */
    uint64_t part_bytes;          /* of a window part; 0: pages have K and V of all layers */
    exl2_kv kv;                   /* format of the pages */
    const exl2__matrix *embed, *head, *positions;
    exl2__norm final_norm;
    uint8_t *pages;               /* [pages, page_bytes] */
    uint8_t *parts;               /* [window_pages, part_bytes] */
    uint32_t *places;             /* [layers] place of the layer in its page, or EXL2__CPU_PART and that in its window
                                     part; NULL: pages have K and V of all layers, in order */
    bool *committed;              /* [pages] NULL: all pages have memory */
    bool *part_committed;         /* [window_pages] */
    exl2__real *residual;         /* [rows_max, hidden_stride] */
    exl2__real *query;            /* [rows_max, query_stride]; attention writes its result here */
    exl2__real *key, *value;      /* [rows_max, key_stride] */
    exl2__real *gate, *up;        /* [rows_max, inter_stride]; share memory with query, key, value unless `parallel` */
    exl2__real *branch;           /* [rows_max, hidden_stride] result of a block before its norm, with post_norms */
    exl2__real *input, *centre;   /* inputs of up to three parts; see exl2__cpu_input */
    exl2__cpu_routed routed;
    exl2__cpu_lora lora;
    exl2__real *logits;           /* [logit_rows_max, vocab_stride] */
    float *sample_logits;         /* [tasks, vocab], only if exl2__real is not float */
    uint32_t rope_count;
    double *frequency;            /* [rope_count, rotary / 2] */
    double *magnitude;            /* [rope_count] */
    uint8_t *axis;                /* [rope_count, rotary / 2] */
    float *cosine, *sine;         /* [rope_count, rows_max, rotary / 2] RoPE angles of the step's rows */
    exl2__cpu_rows *attend_rows;  /* [attend_count] the step's rows, divided into tiles for attention */
    exl2__cpu_task *task;         /* [tasks] */
    exl2__logit_result *results;  /* [logit_rows_max] */
    exl2_alt *alts;               /* [logit_rows_max, EXL2_ALTS_MAX] */
    exl2__sample_run sampling;    /* a row that is sampled in parts, in a step with a budget or for the engine */
    uint32_t sampled_row, sampled_parts; /* in such a step: its index in the group; parts of its pass that are done */
    const exl2__step *step;
    uint32_t attend_count, attend_keys; /* attend_keys: the longest context of the step's rows */
} exl2__cpu_device;

/* The type that the boundary declares opaque. */
static inline exl2__cpu_device *exl2__cpu_of(const exl2__device *d)
{
    return (exl2__cpu_device *)(void *)(uintptr_t)d;
}

/* ---- layout ---- */

EXL2__PRIVATE void exl2__cpu_device_measure(exl2__cpu_device *d, const exl2__plan *plan)
{
    const exl2__shape *s = &plan->shape;
    d->shape = *s;
    d->rows_max = exl2__max32(plan->rows_max, 1);
    d->first_layer = exl2__plan_first(plan);
    d->layers = exl2__plan_span(plan);
    d->logit_rows_max = exl2__plan_has_head(plan) ? exl2__max32(plan->logit_rows_max, 1) : 0;
    d->context_max = plan->context_max;
    d->rope_count = plan->rope_count;
    d->hidden_stride = (uint32_t)exl2__align_up(s->hidden, EXL2__CPU_STRIP);
    d->query_stride = (uint32_t)exl2__align_up(s->heads * s->head_dim, EXL2__CPU_STRIP);
    d->key_stride = (uint32_t)exl2__align_up(s->kv_heads * s->head_dim, EXL2__CPU_STRIP);
    d->inter_stride = (uint32_t)exl2__align_up(s->inter, EXL2__CPU_STRIP);
    d->vocab_stride = (uint32_t)exl2__align_up(s->vocab, EXL2__CPU_STRIP);
    d->lora.rank_stride = plan->lora_max ? (uint32_t)exl2__align_up(plan->lora_rank_max, 8) : 0;
    d->lora.stride = d->lora.rank_stride * exl2__min32(plan->lora_max, EXL2_JOB_LORAS);
    d->kv = plan->kv;
    d->value_stride = (uint32_t)exl2__align_up(s->head_dim, d->kv == EXL2_KV_FP16 ? 16 : EXL2__CPU_CODES_GROUP);
    d->routed.router_stride = (uint32_t)exl2__align_up(s->experts.count, EXL2__CPU_STRIP);
    d->routed.expert_stride = (uint32_t)exl2__align_up(s->experts.inter, EXL2__CPU_STRIP);
    d->key_count = (uint64_t)s->kv_heads * s->head_dim * EXL2__PAGE_TOKENS;
    d->layer_bytes = (d->key_count + (uint64_t)s->kv_heads * d->value_stride * EXL2__PAGE_TOKENS) * sizeof(exl2__kv);
    if (d->kv != EXL2_KV_FP16) {
        d->layer_bytes = s->kv_heads * exl2__cpu_codes_head_bytes(s->head_dim, d->kv);
    }
    uint32_t windowed = exl2__plan_place(plan, exl2__plan_end(plan), true);
    d->page_bytes = d->layer_bytes * (d->layers - windowed);
    d->part_bytes = d->layer_bytes * windowed;
}

EXL2__PRIVATE exl2__real *exl2__cpu_device_alloc(exl2__arena *a, uint64_t rows, uint64_t stride)
{
    return (exl2__real *)exl2__arena_alloc(a, rows * stride * sizeof(exl2__real));
}

/* Elements of the room for an input of `in` features of one row. Parts that are not EXL3 have as much in a model with
   EXL3, so that inputs of both kinds lie one after the other. */
static inline uint32_t exl2__cpu_device_room(const exl2__cpu_device *d, uint32_t in)
{
    return d->shape.exl3 ? (uint32_t)exl2__align_up(in, EXL2__EXL3_BLOCK) : in;
}

/* Start values, of EXL2__CPU_BLOCK features each, in the same room. */
static inline uint32_t exl2__cpu_device_centres(const exl2__cpu_device *d, uint32_t in)
{
    return (uint32_t)exl2__div_up(exl2__cpu_device_room(d, in), EXL2__CPU_BLOCK) * (d->shape.affine ? 2 : 1);
}

/* Strips that are computed at once, as one item: all outputs of a transform in a model with EXL3. */
static inline uint32_t exl2__cpu_device_item(const exl2__cpu_device *d)
{
    return d->shape.exl3 ? EXL2__CPU_EXL3_STRIPS : 1;
}

/* Items of a row of `stride` elements. */
static inline uint32_t exl2__cpu_device_items(const exl2__cpu_device *d, uint32_t stride)
{
    return (uint32_t)exl2__div_up(stride, exl2__cpu_device_item(d) * EXL2__CPU_STRIP);
}

EXL2__PRIVATE void exl2__cpu_device_layout_task(const exl2__cpu_device *d, exl2__arena *a, exl2__cpu_task *task)
{
    uint32_t queries = d->ops->tile_queries;
    task->rows = exl2__cpu_device_alloc(a, d->ops->tile_rows, d->hidden_stride);
    task->query = exl2__cpu_device_alloc(a, queries, d->shape.head_dim);
    task->weighted = exl2__cpu_device_alloc(a, queries, d->value_stride);
    task->scores = exl2__cpu_device_alloc(a, queries, d->context_max);
    task->key = (exl2__kv *)exl2__arena_alloc(a, d->shape.head_dim * sizeof(exl2__kv));
    task->pairs = exl2__cpu_device_alloc(a, 1, d->shape.rotary);
    task->sample = exl2__arena_alloc(a, d->logit_rows_max ? exl2__sample_scratch_bytes(d->shape.vocab) : 0);
    if (exl2__experts_any(&d->shape.experts)) {
        task->scores_of_experts = (double *)exl2__arena_alloc(a, 2 * (uint64_t)d->shape.experts.count * sizeof(double));
        task->gathered = exl2__cpu_device_alloc(a, d->ops->tile_rows, exl2__cpu_device_room(d, d->hidden_stride));
        task->centre = exl2__cpu_device_alloc(a, d->ops->tile_rows, exl2__cpu_device_centres(d, d->hidden_stride));
    }
}

EXL2__PRIVATE void exl2__cpu_device_layout_routed(const exl2__cpu_device *d, exl2__arena *a, exl2__cpu_routed *routed)
{
    uint64_t rows = d->rows_max, active = d->shape.experts.active, slots = rows * active;
    uint32_t widest = exl2__cpu_device_room(d, exl2__max32(d->hidden_stride, routed->expert_stride));
    routed->x = exl2__cpu_device_alloc(a, rows, d->hidden_stride);
    routed->logits = exl2__cpu_device_alloc(a, rows, routed->router_stride);
    routed->shared = exl2__cpu_device_alloc(a, rows, EXL2__CPU_STRIP);
    routed->choice = (uint32_t *)exl2__arena_alloc(a, slots * sizeof *routed->choice);
    routed->weight = exl2__cpu_device_alloc(a, rows, active);
    routed->slot_row = (uint32_t *)exl2__arena_alloc(a, slots * sizeof *routed->slot_row);
    routed->slot_weight = exl2__cpu_device_alloc(a, rows, active);
    routed->tiles = (exl2__cpu_slots *)exl2__arena_alloc(a, slots * sizeof *routed->tiles);
    routed->experts = (exl2__cpu_expert *)exl2__arena_alloc(a, slots * sizeof *routed->experts);
    routed->next = (uint32_t *)exl2__arena_alloc(a, ((uint64_t)d->shape.experts.count + 1) * sizeof *routed->next);
    routed->input = exl2__cpu_device_alloc(a, slots, widest);
    routed->centre = exl2__cpu_device_alloc(a, slots, exl2__cpu_device_centres(d, widest));
    routed->h = exl2__cpu_device_alloc(a, slots, routed->expert_stride);
}

EXL2__PRIVATE void exl2__cpu_device_layout(exl2__cpu_device *d, exl2__arena *a)
{
    const exl2__shape *s = &d->shape;
    uint64_t rows = d->rows_max, wide = exl2__max32(d->rows_max, d->logit_rows_max);
    uint64_t attention = (uint64_t)d->query_stride + 2 * (uint64_t)d->key_stride;
    uint64_t input = exl2__max64(3 * (uint64_t)exl2__cpu_device_room(d, d->hidden_stride),
                                 exl2__cpu_device_room(d, exl2__max32(d->inter_stride, d->query_stride)));
    d->residual = exl2__cpu_device_alloc(a, rows, d->hidden_stride);
    uint64_t mlp = 2 * (uint64_t)d->inter_stride;
    exl2__real *work = exl2__cpu_device_alloc(a, rows, s->parallel ? attention + mlp : exl2__max64(attention, mlp));
    d->branch = s->post_norms ? exl2__cpu_device_alloc(a, rows, d->hidden_stride) : NULL;
    if (work) {
        d->query = work;
        d->gate = s->parallel ? work + rows * attention : work;
        d->key = d->query + rows * d->query_stride;
        d->value = d->key + rows * d->key_stride;
        d->up = d->gate + rows * d->inter_stride;
    }
    d->input = exl2__cpu_device_alloc(a, wide, input);
    d->centre = exl2__cpu_device_alloc(a, wide, input / EXL2__CPU_BLOCK * (s->affine ? 2 : 1));
    if (d->lora.stride) {
        uint64_t slots = rows * exl2__max32(s->experts.active, 1);
        d->lora.t = exl2__cpu_device_alloc(a, slots, 3 * (uint64_t)d->lora.stride);
    }
    if (exl2__experts_any(&s->experts)) {
        exl2__cpu_device_layout_routed(d, a, &d->routed);
    }
    d->logits = exl2__cpu_device_alloc(a, d->logit_rows_max, d->vocab_stride);
#ifdef EXL2__REAL
    d->sample_logits = (float *)exl2__arena_alloc(a, (uint64_t)d->tasks * s->vocab * sizeof(float));
#endif
    uint64_t angles = (uint64_t)d->rope_count * (s->rotary / 2);
    d->frequency = (double *)exl2__arena_alloc(a, angles * sizeof(double));
    d->magnitude = (double *)exl2__arena_alloc(a, d->rope_count * sizeof(double));
    d->axis = (uint8_t *)exl2__arena_alloc(a, (uint64_t)d->rope_count * (d->shape.rotary / 2));
    d->cosine = (float *)exl2__arena_alloc(a, rows * angles * sizeof(float));
    d->sine = (float *)exl2__arena_alloc(a, rows * angles * sizeof(float));
    d->attend_rows = (exl2__cpu_rows *)exl2__arena_alloc(a, rows * sizeof *d->attend_rows);
    d->results = (exl2__logit_result *)exl2__arena_alloc(a, d->logit_rows_max * sizeof *d->results);
    d->alts = (exl2_alt *)exl2__arena_alloc(a, (uint64_t)d->logit_rows_max * EXL2_ALTS_MAX * sizeof *d->alts);
    d->task = (exl2__cpu_task *)exl2__arena_alloc(a, d->tasks * sizeof *d->task);
    for (uint32_t i = 0; i < d->tasks; i++) {
        exl2__cpu_task measured;
        exl2__cpu_device_layout_task(d, a, d->task ? &d->task[i] : &measured);
    }
}

/* Allocates pages and scratch; with dry arenas it only measures. */
EXL2__PRIVATE exl2_result exl2__cpu_device_prepare(exl2__cpu_device *d, const exl2__plan *plan, exl2__arena *pages,
                                                   exl2__arena *scratch)
{
    uint64_t bytes;
    exl2__cpu_device_measure(d, plan);
    exl2__mul64(d->page_bytes, plan->pages, &bytes);
    d->pages = (uint8_t *)exl2__arena_alloc(pages, bytes);
    d->committed = d->c->reserves_cache ? (bool *)exl2__arena_alloc_zeroed(scratch, plan->pages) : NULL;
    d->parts = NULL;
    d->places = NULL;
    d->part_committed = NULL;
    if (plan->window_pages) {
        exl2__mul64(d->part_bytes, plan->window_pages, &bytes);
        d->parts = (uint8_t *)exl2__arena_alloc(pages, bytes);
        d->places = (uint32_t *)exl2__arena_alloc(scratch, d->layers * sizeof *d->places);
        d->part_committed = d->c->reserves_cache ? (bool *)exl2__arena_alloc_zeroed(scratch, plan->window_pages) : NULL;
    }
    exl2__cpu_device_layout(d, scratch);
    if (!pages->base || !scratch->base) {
        return EXL2_OK;
    }
    for (uint32_t i = 0; d->places && i < d->layers; i++) {
        bool part = exl2__plan_parts(plan, d->first_layer + i);
        d->places[i] = exl2__plan_place(plan, d->first_layer + i, part) | (part ? EXL2__CPU_PART : 0);
    }
    if (pages->used > pages->size || scratch->used > scratch->size) {
        return exl2__fail(d->c, EXL2_ERR_INTERNAL, "cpu: the arenas for pages and scratch are smaller than measured");
    }
    for (uint32_t i = 0; i < d->rope_count; i++) {
        uint32_t half = d->shape.rotary / 2;
        memcpy(d->frequency + (size_t)i * half, plan->ropes[i].frequency, half * sizeof(double));
        d->magnitude[i] = plan->ropes[i].magnitude;
        for (uint32_t k = 0; k < half; k++) {
            d->axis[(size_t)i * half + k] = plan->ropes[i].axis ? plan->ropes[i].axis[k] : 0;
        }
    }
    d->embed = plan->embed;
    d->positions = plan->positions;
    d->head = plan->head;
    d->final_norm = plan->final_norm;
    return EXL2_OK;
}

/* Commits those of the pages, or window parts, that have no memory yet. */
EXL2__PRIVATE exl2_result exl2__cpu_device_commit(exl2__cpu_device *d, const uint32_t *pages, uint32_t count, bool part)
{
    bool *committed = part ? d->part_committed : d->committed;
    uint64_t bytes = part ? d->part_bytes : d->page_bytes;
    for (uint32_t i = 0; committed && bytes && i < count; i++) {
        uint8_t *page = (part ? d->parts : d->pages) + pages[i] * bytes;
        if (!committed[pages[i]] && !exl2__platform_commit(page, (size_t)bytes)) {
            return exl2__fail(d->c, EXL2_ERR_BUDGET,
                              "the system has no memory for another page of the KV cache (%llu bytes): close other "
                              "programs, or load the model with a smaller cache.tokens", (unsigned long long)bytes);
        }
        committed[pages[i]] = true;
    }
    return EXL2_OK;
}

/* ---- a pass ---- */

/* Index of the first angle of a row in `cosine` and `sine`. */
EXL2__PRIVATE size_t exl2__cpu_device_angles(const exl2__cpu_device *d, uint32_t rope, uint32_t row)
{
    return ((size_t)rope * d->rows_max + row) * (d->shape.rotary / 2);
}

/* Divides the rows into tiles for attention, whose rows share their pages, and computes the angles of RoPE. */
EXL2__PRIVATE void exl2__cpu_device_begin(exl2__cpu_device *d, const exl2__step *step)
{
    uint32_t most = exl2__max32(d->ops->tile_queries / (d->shape.heads / d->shape.kv_heads), 1);
    uint32_t half = d->shape.rotary / 2;
    d->step = step;
    d->attend_count = 0;
    d->attend_keys = 0;
    d->lora.ranks = 0;
    for (uint32_t i = 0; i < step->lora_set_count; i++) {
        uint32_t ranks = 0;
        for (uint32_t u = 0; u < step->lora_sets[i].count; u++) {
            ranks += step->lora_sets[i].uses[u].store->rank_max;
        }
        d->lora.ranks = exl2__max32(d->lora.ranks, ranks);
    }
    for (uint32_t r = 0; r < step->row_count; r++) {
        exl2__cpu_rows *last = d->attend_count ? &d->attend_rows[d->attend_count - 1] : NULL;
        if (last && last->count < most && step->rows[last->row].sequence == step->rows[r].sequence) {
            last->count++;
        } else {
            d->attend_rows[d->attend_count++] = (exl2__cpu_rows){ r, 1 };
        }
        d->attend_keys = exl2__max32(d->attend_keys, exl2__step_row_end(&step->rows[r]));
        for (uint32_t i = 0; i < d->rope_count * half; i++) {
            int64_t position = (int64_t)step->rows[r].position + step->rows[r].turn[d->axis[i]];
            double angle = (double)position * d->frequency[i], magnitude = d->magnitude[i / half];
            size_t at = exl2__cpu_device_angles(d, i / half, r) + i % half;
            d->cosine[at] = (float)(magnitude * cos(angle));
            d->sine[at] = (float)(magnitude * sin(angle));
        }
    }
}

/* Do K and V of the layer lie in window parts? */
static inline bool exl2__cpu_device_parts(const exl2__cpu_device *d, uint32_t layer)
{
    return d->places && d->places[layer - d->first_layer] & EXL2__CPU_PART;
}

/* K and V of a layer of the span in a page, or in a window part if the layer has its K and V there. */
EXL2__PRIVATE uint8_t *exl2__cpu_device_layer(const exl2__cpu_device *d, uint32_t page, uint32_t layer)
{
    uint32_t place = d->places ? d->places[layer - d->first_layer] : layer - d->first_layer;
    return place & EXL2__CPU_PART
        ? d->parts + page * d->part_bytes + (place & ~EXL2__CPU_PART) * d->layer_bytes
        : d->pages + page * d->page_bytes + place * d->layer_bytes;
}

/* K [kv_heads, head_dim, 64] of a layer of the span in a page. V [kv_heads, 64, value_stride] follows key_count
   elements later. */
EXL2__PRIVATE exl2__kv *exl2__cpu_device_page(const exl2__cpu_device *d, uint32_t page, uint32_t layer)
{
    return (exl2__kv *)(void *)exl2__cpu_device_layer(d, page, layer);
}

/* K or V of a head in a page of codes. */
EXL2__PRIVATE exl2__cpu_codes exl2__cpu_device_codes(const exl2__cpu_device *d, uint32_t page, uint32_t layer,
                                                     uint32_t head, bool value)
{
    uint64_t at = d->layer_bytes / d->shape.kv_heads * head;
    return exl2__cpu_codes_of(exl2__cpu_device_layer(d, page, layer) + at, d->shape.head_dim, d->kv, value);
}

/* Number of tiles for products with `rows` rows. */
EXL2__PRIVATE uint32_t exl2__cpu_device_tiles(const exl2__cpu_device *d, uint32_t rows)
{
    return exl2__cpu_tiles(rows, d->ops->tile_rows);
}

/* The norm of x [count], with the norm's weights from index `first` on. x and out may be the same. */
EXL2__PRIVATE void exl2__cpu_norm(const exl2__cpu_device *d, const exl2__norm *norm, uint32_t first,
                                  const exl2__real *x, uint32_t count, exl2__real *out)
{
    const float *weight = (const float *)(const void *)norm->weight + first;
    const float *bias = norm->bias ? (const float *)(const void *)norm->bias + first : NULL;
    if (d->shape.layer_norm) {
        exl2__cpu_phases_layer_norm(x, weight, bias, count, (exl2__real)d->shape.norm_eps, out);
    } else {
        d->ops->norm(x, weight, count, (exl2__real)d->shape.norm_eps, out);
    }
}

/* ---- threads ---- */

/* Items [begin, end) of a stage, computed by one task at a time. */
typedef struct exl2__cpu_share {
    exl2__cpu_device *d;
    const exl2__layer *layer; /* NULL in phases outside of the layers */
    const exl2__range *range; /* of the phase */
    uint32_t begin, end;
    uint32_t task;            /* index into d->task, the scratch to use */
} exl2__cpu_share;

/* The share of items of strips as a share of strips, of a row of `stride` elements. */
static inline exl2__cpu_share exl2__cpu_device_strips(const exl2__cpu_share *s, uint32_t stride)
{
    uint32_t each = exl2__cpu_device_item(s->d), all = (uint32_t)exl2__div_up(stride, EXL2__CPU_STRIP);
    exl2__cpu_share strips = *s;
    strips.begin = exl2__min32(s->begin * each, all);
    strips.end = exl2__min32(s->end * each, all);
    return strips;
}

typedef void (*exl2__cpu_work)(const exl2__cpu_share *s);

typedef struct exl2__cpu_stage {
    exl2__cpu_work work;
    uint32_t items;
    uint64_t cost; /* multiply-adds of one item, roughly */
} exl2__cpu_stage;

/* Computes one share. Where a test emulates a slow core, the share then lasts as long as the test wants. */
static inline void exl2__cpu_device_share(exl2__cpu_work work, const exl2__cpu_share *s)
{
#ifdef EXL2__TEST_SLOW
    uint64_t begin_ns = exl2__platform_ns();
    work(s);
    EXL2__TEST_SLOW(exl2__platform_ns() - begin_ns);
#else
    work(s);
#endif
}

/* A stage in more shares than tasks, because cores differ: some are slower, some are busy with the game. Task i
   computes share i, and then, as often as it is ready, the next share that no task has. */
typedef struct exl2__cpu_split {
    exl2__cpu_work work;
    exl2__cpu_share all; /* all items */
    uint32_t shares;
    uint32_t next;       /* the first share that no task has; atomic */
} exl2__cpu_split;

EXL2__PRIVATE void exl2__cpu_device_task(void *argument, uint32_t index)
{
    exl2__cpu_split *split = (exl2__cpu_split *)argument;
    const exl2__cpu_share all = split->all;
    uint32_t items = all.end - all.begin, shares = split->shares;
    for (uint32_t i = index; i < shares; i = exl2__atomic_add(&split->next, 1)) {
        exl2__cpu_share s = all;
        s.begin = all.begin + exl2__cpu_share_start(items, shares, i);
        s.end = all.begin + exl2__cpu_share_start(items, shares, i + 1);
        s.task = index;
        exl2__cpu_device_share(split->work, &s);
    }
}

/* Computes all items: on the application's threads, if it provides them and `cost` (multiply-adds) is large enough. The
   number of shares is a multiple of the number of tasks, so that equal cores end together. */
EXL2__PRIVATE void exl2__cpu_device_split(exl2__cpu_work work, const exl2__cpu_share *all, uint64_t cost)
{
    const exl2_parallel *parallel = &all->d->c->parallel;
    uint32_t items = all->end - all->begin, most = exl2__min32(items, all->d->tasks);
    uint32_t tasks = (uint32_t)exl2__min64(cost / EXL2__CPU_TASK_COST + 1, most);
    if (tasks <= 1) {
        exl2__cpu_device_share(work, all);
    } else {
        uint64_t share_cost = EXL2__CPU_SHARE_COST * (uint64_t)tasks, each = (cost + share_cost / 2) / share_cost;
        each = exl2__max64(exl2__min64(each, exl2__min32(EXL2__CPU_SHARES, items / tasks)), 1);
        exl2__cpu_split split = { work, *all, (uint32_t)each * tasks, tasks };
        parallel->run(parallel->user, tasks, exl2__cpu_device_task, &split);
    }
}

/* ---- rows ---- */

/* The norm of a row of the residual, or the row itself where the layer has no such norm. */
EXL2__PRIVATE void exl2__cpu_norm_or_copy(const exl2__cpu_device *d, const exl2__norm *norm, const exl2__real *from,
                                          exl2__real *to)
{
    if (norm->weight) {
        exl2__cpu_norm(d, norm, 0, from, d->shape.hidden, to);
    } else {
        memcpy(to, from, d->shape.hidden * sizeof *to);
    }
}

/* gate [count] = act(gate) * up, or act(gate) where `up` is NULL; count is a multiple of 32. `up` may be changed. */
EXL2__PRIVATE void exl2__cpu_activate(const exl2__cpu_device *d, exl2__real *gate, exl2__real *up, uint32_t count)
{
    exl2__real limit = (exl2__real)d->shape.act_limit;
    if (d->shape.act != EXL2__ACT_CLAMPED) {
        d->ops->activate(d->shape.act, gate, up, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) { /* g sigmoid(1.702 g) = silu(1.702 g) / 1.702 */
        gate[i] = (gate[i] > limit ? limit : gate[i]) * (exl2__real)1.702;
        up[i] = ((up[i] > limit ? limit : up[i] < -limit ? -limit : up[i]) + 1) * (exl2__real)(1 / 1.702);
    }
    d->ops->activate(EXL2__ACT_SILU, gate, up, count);
}

#endif
