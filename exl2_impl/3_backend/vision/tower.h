/* tower.h: a tower for pictures on the CPU: its weights, and the layout of its memory.
   takes: an exl2__vision_config, an application's limits, the CPU backend's device of the model.
   gives: exl2__tower, exl2__tower_prepare, exl2__tower_operations.
   owns:  nothing; weights and scratch lie in the caller's arenas.

   Everything is float but the weights. A tile is one pass of `rows_max` rows at most, which are patches in the order of
   their windows, after the class row if there is one. Stages that treat rows alone have blocks of EXL2__TOWER_BLOCK
   rows, so that their buffers are small. Products have chunks of EXL2__TOWER_CHUNK rows and strips of 32 columns.

   ATTENTION needs no code of its own: scores are a product of queries with a matrix whose columns are keys, [strips of
   32 keys, head_dim, 32]; its result is a product of weights with a matrix whose rows are values, [strips of 32
   elements, keys, 32]. Both are matrices of f32 as those of cpu_matrix.h, which the backend's product reads. The sums
   of a row depend on its segment alone: on its window, or on the tile. */
#ifndef EXL2__TOWER_H
#define EXL2__TOWER_H

#include "../cpu/cpu.h"
#include "tower_shape.h"
#include "vision_tasks.h"

#ifndef EXL2_NO_VISION

#define EXL2__TOWER_BLOCK 240u  /* rows: whole chunks */
#define EXL2__TOWER_CHUNK 48u   /* rows: whole tiles of every instruction set */
#define EXL2__TOWER_QUERIES 24u /* queries that attention computes together, at most */

typedef struct exl2__tower_norm {
    float *weight, *bias; /* weight NULL: there is none */
} exl2__tower_norm;

typedef struct exl2__tower_layer {
    exl2__tower_norm norm1, norm2;
    exl2__cpu_matrix *qkv[3];           /* q, k, v; or one matrix of all three, NULL, NULL */
    exl2__cpu_matrix *out, *gate, *up, *down; /* gate NULL: the MLP has none */
} exl2__tower_layer;

typedef struct exl2__tower_projector {
    exl2__tower_norm norm;
    exl2__cpu_matrix *merge, *linear1, *linear2; /* merge, linear2: NULL if the family has none */
} exl2__tower_projector;

/* Queries [row, row + count), which see the keys [begin, end). */
typedef struct exl2__tower_queries {
    uint32_t row, count, begin, end;
} exl2__tower_queries;

typedef struct exl2__tower_task { /* scratch of one task */
    float *rows;             /* [tile_rows, widest input] */
    float *patch;            /* [width] */
    float *query;            /* [QUERIES, head_dim] */
    float *scores, *weights; /* [QUERIES, score_stride] */
    float *result;           /* [QUERIES, value_strips * 32] */
    float *cosine, *sine;    /* [head_dim / 2] */
} exl2__tower_task;

/* The stages of a pass, in order. From NORM1 on they repeat for each layer, from COMBINE on for each projector. */
typedef enum exl2__tower_stage {
    EXL2__TOWER_ANGLES,  /* RoPE: cosines and sines of lines and columns */
    EXL2__TOWER_PATCHES, EXL2__TOWER_EMBED, EXL2__TOWER_PLACES, /* pixels; their product; positions, the first norm */
    EXL2__TOWER_NORM1, EXL2__TOWER_QKV, EXL2__TOWER_STORE,      /* STORE: RoPE, keys and values */
    EXL2__TOWER_ATTEND,
    EXL2__TOWER_OUT_INPUT, EXL2__TOWER_OUT, EXL2__TOWER_NORM2, EXL2__TOWER_UP, EXL2__TOWER_DOWN_INPUT,
    EXL2__TOWER_DOWN,
    EXL2__TOWER_COMBINE, EXL2__TOWER_MERGE, EXL2__TOWER_LINEAR1_INPUT, EXL2__TOWER_LINEAR1,
    EXL2__TOWER_LINEAR2_INPUT, EXL2__TOWER_LINEAR2, EXL2__TOWER_GIVE, /* patches to rows; the result */
    EXL2__TOWER_STAGES
} exl2__tower_stage;

typedef struct exl2__tower {
    exl2__ctx *c;
    exl2__vision_config config;
    uint64_t weight_bytes;       /* what exl2__tower_read_weights fills */
    exl2__tower_layer *layers;   /* [config.layers] */
    exl2__tower_projector projector[1 + EXL2__VISION_DEEP_MAX]; /* [config.levels] */
    exl2__cpu_matrix *patch, *positions; /* positions: a table, whose rows are outputs; or NULL */
    float *class_row;            /* [width] or NULL */
    exl2__tower_norm pre_norm, post_norm;

    /* Memory. */
    exl2__device *cpu;
    const exl2__cpu_ops *ops;
    uint32_t tasks, rows_max, sides_max; /* sides_max: lines and columns of patches, at most, each */
    uint32_t stride, inter_stride, qkv_stride; /* of rows of the residual, of the MLP, of q, k and v together */
    uint32_t input_most, middle_most;    /* widest input and result of a product */
    uint32_t key_strips, value_strips;   /* of a head */
    uint32_t score_stride;
    float *residual, *query;     /* [rows_max, stride]; attention writes its result over the query */
    float *key;                  /* [heads, key_strips, head_dim, 32] */
    float *value;                /* [heads, value_strips, rows_max, 32] */
    float *input;                /* [BLOCK, input_most] in tiles, as exl2__cpu_input */
    float *middle, *up;          /* [BLOCK, middle_most], [BLOCK, inter_stride] results of products */
    float *angles;               /* [2, sides_max, head_dim / 2] of lines, of columns: cosines, then sines */
    uint32_t *order, *at;        /* [rows_max] the patch of a row, and the row of a patch, without the class row */
    exl2__tower_queries *windowed, *full; /* of layers with windows, and of the others */
    exl2__tower_task *task;      /* [tasks] */
    float level[3][256];         /* of a byte of a channel */
    float ns_per_cost[EXL2__TOWER_STAGES]; /* learned; 0: not known yet */

    /* The pass. */
    exl2__vision_size size;
    const uint8_t *seen;
    float *rows;                 /* [size.rows, levels, hidden] */
    bool active;
    uint32_t patch_rows, rows_now, out_rows; /* lines of patches; rows of the tile in the tower and of its result */
    uint32_t windowed_count, full_count;
    uint32_t tile, layer, level_now, block, stage, item; /* what comes next */
    uint32_t bad;                /* atomic: some row is not finite */
} exl2__tower;

/* Operations of products and of attention for a picture of this size, by the shapes in the files. */
static inline uint64_t exl2__tower_operations(const exl2__vision_config *v, const exl2__vision_size *s)
{
    uint64_t width = v->width, rows = s->patches + v->class_row, side = (uint64_t)v->patch * v->merge;
    uint64_t cell = (uint64_t)v->merge * v->merge, merged = exl2__tower_merged(v), middle = exl2__tower_middle(v);
    uint64_t lines = s->height / side, cells = s->width / side, in_window = 0;
    for (uint64_t y = 0; v->window && y < lines; y += v->window) {
        for (uint64_t x = 0; x < cells; x += v->window) {
            uint64_t seen = exl2__min64(v->window, lines - y) * exl2__min64(v->window, cells - x) * cell;
            in_window += seen * seen;
        }
    }
    uint64_t all = 2 * (uint64_t)s->patches * exl2__tower_patch_inputs(v) * width;
    for (uint32_t i = 0; i < v->layers; i++) {
        all += 2 * rows * width * (4 * width + (v->row->gated ? 3u : 2u) * (uint64_t)v->inter);
        all += 4 * (v->full[i] ? rows * rows : in_window) * width;
    }
    uint64_t first = v->row->names.merge ? merged * width : 0, second = v->row->names.linear2 ? middle * v->hidden : 0;
    uint64_t linear1 = (v->row->names.merge ? width : merged) * (v->row->names.linear2 ? middle : v->hidden);
    all += 2 * (uint64_t)(s->rows / s->tiles) * v->levels * (first + linear1 + second);
    return all * s->tiles;
}

static inline uint32_t exl2__tower_pad(uint32_t count)
{
    return (uint32_t)exl2__align_up(count, EXL2__CPU_STRIP);
}

EXL2__PRIVATE void exl2__tower_measure(exl2__tower *t, const exl2__vision_limits *limits)
{
    const exl2__vision_config *v = &t->config;
    exl2__vision_size most;
    exl2__vision_largest(v, limits, &most);
    t->rows_max = most.patches + 1;
    t->sides_max = most.grid[1] * v->merge;
    t->stride = exl2__tower_pad(v->width);
    t->inter_stride = exl2__tower_pad(v->inter);
    t->qkv_stride = v->row->names.qkv ? exl2__tower_pad(3 * v->width) : 3 * t->stride;
    t->input_most = exl2__max32(exl2__max32(exl2__tower_patch_inputs(v), v->inter),
                                exl2__max32(exl2__tower_merged(v), exl2__max32(exl2__tower_middle(v), v->width)));
    t->middle_most = exl2__max32(exl2__max32(t->qkv_stride, t->inter_stride),
                                 exl2__max32(exl2__tower_pad(exl2__tower_middle(v)), exl2__tower_pad(v->hidden)));
    t->key_strips = exl2__tower_pad(t->rows_max) / EXL2__CPU_STRIP;
    t->value_strips = exl2__tower_pad(v->head_dim) / EXL2__CPU_STRIP;
    t->score_stride = (uint32_t)exl2__align_up(t->rows_max, 64) + 64;
}

EXL2__PRIVATE float *exl2__tower_alloc(exl2__arena *a, uint64_t rows, uint64_t columns)
{
    return (float *)exl2__arena_alloc(a, rows * columns * sizeof(float));
}

/* Lays out the scratch for the largest picture under the limits; a dry arena measures. cpu: the device whose threads
   and instruction set compute. t->config must be set. */
static inline void exl2__tower_prepare(exl2__tower *t, exl2__device *cpu, const exl2__vision_limits *limits,
                                       exl2__arena *a)
{
    const exl2__vision_config *v = &t->config;
    t->cpu = cpu;
    t->ops = exl2__cpu_of(cpu)->ops;
    t->tasks = exl2__vision_tasks(cpu);
    exl2__tower_measure(t, limits);
    uint64_t rows = t->rows_max, half = v->head_dim / 2;
    t->residual = exl2__tower_alloc(a, rows, t->stride);
    t->query = exl2__tower_alloc(a, rows, t->stride);
    t->key = exl2__tower_alloc(a, (uint64_t)v->heads * t->key_strips, v->head_dim * EXL2__CPU_STRIP);
    t->value = exl2__tower_alloc(a, (uint64_t)v->heads * t->value_strips, rows * EXL2__CPU_STRIP);
    t->input = exl2__tower_alloc(a, EXL2__TOWER_BLOCK, t->input_most);
    t->middle = exl2__tower_alloc(a, EXL2__TOWER_BLOCK, t->middle_most);
    t->up = exl2__tower_alloc(a, v->row->gated ? EXL2__TOWER_BLOCK : 0, t->inter_stride);
    t->angles = exl2__tower_alloc(a, v->row->rope ? 2 * (uint64_t)t->sides_max : 0, half);
    t->order = (uint32_t *)exl2__arena_alloc(a, rows * sizeof *t->order);
    t->at = (uint32_t *)exl2__arena_alloc(a, rows * sizeof *t->at);
    /* A window has merge * merge patches at least, and its last queries may be few. */
    t->windowed = (exl2__tower_queries *)exl2__arena_alloc(a, (v->window ? rows : 0) * sizeof *t->windowed);
    t->full = (exl2__tower_queries *)exl2__arena_alloc(a, rows * sizeof *t->full);
    t->task = (exl2__tower_task *)exl2__arena_alloc(a, t->tasks * sizeof *t->task);
    for (uint32_t i = 0; i < t->tasks; i++) {
        exl2__tower_task task;
        task.rows = exl2__tower_alloc(a, t->ops->tile_rows, t->input_most);
        task.patch = exl2__tower_alloc(a, 1, v->width);
        task.query = exl2__tower_alloc(a, EXL2__TOWER_QUERIES, v->head_dim);
        task.scores = exl2__tower_alloc(a, EXL2__TOWER_QUERIES, t->score_stride);
        task.weights = exl2__tower_alloc(a, EXL2__TOWER_QUERIES, t->rows_max);
        task.result = exl2__tower_alloc(a, EXL2__TOWER_QUERIES, t->value_strips * EXL2__CPU_STRIP);
        task.cosine = exl2__tower_alloc(a, 1, half);
        task.sine = exl2__tower_alloc(a, 1, half);
        if (t->task) {
            t->task[i] = task;
        }
    }
}

#endif
#endif
