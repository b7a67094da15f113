/* cuda_tower_plan.h: device memory of a tower for pictures: where its weights lie, and its buffers.
   takes: a tower's config, an application's limits; an arena, dry or not.
   gives: exl2__cuda_tower_weights, exl2__cuda_tower_weights_of, exl2__cuda_tower_layer_of, exl2__cuda_tower_level_of;
          exl2__cuda_tower_buffers, exl2__cuda_tower_layout; exl2__cuda_tower_dim.
   owns:  nothing; the memory is the model's.

   All places follow from the config: a norm without a bias, or a bias that the file does not have, has zeros. */
#ifndef EXL2__CUDA_TOWER_PLAN_H
#define EXL2__CUDA_TOWER_PLAN_H

#include "../../../kernels_src/tower_args.h"
#include "../vision/tower_shape.h"
#include "cuda_device.h"

#ifndef EXL2_NO_VISION

#define EXL2__CUDA_TOWER_DOWN_BYTES (1u << 20) /* of rows that are copied to host memory at once */

/* Offsets in the memory of weights, or addresses. */
typedef struct exl2__cuda_tower_norm {
    uint64_t weight, bias; /* f32 */
} exl2__cuda_tower_norm;

typedef struct exl2__cuda_tower_matrix {
    uint64_t weight, bias; /* fp16 [EXL2K_TOWER_LINES(columns), k] in TILES of tower_args.h; f32 */
    uint32_t columns, k;   /* columns: without padding; k: inputs with padding; 0: there is no such matrix */
} exl2__cuda_tower_matrix;

typedef struct exl2__cuda_tower_layer {
    exl2__cuda_tower_norm norm1, norm2;
    exl2__cuda_tower_matrix qkv, out, up, down; /* up: gate and up by turns, if there is a gate */
} exl2__cuda_tower_layer;

typedef struct exl2__cuda_tower_level {
    exl2__cuda_tower_norm norm;
    exl2__cuda_tower_matrix merge, linear1, linear2;
} exl2__cuda_tower_level;

typedef struct exl2__cuda_tower_weights {
    exl2__cuda_tower_matrix patch;
    uint64_t class_row, positions;  /* f32 [width]; f32 [places, width] */
    exl2__cuda_tower_norm pre_norm, post_norm;
    exl2__cuda_tower_layer layer;   /* the first one; each begins layer_bytes after the one before */
    exl2__cuda_tower_level level;   /* the same of projectors */
    uint64_t layer_bytes, level_bytes, bytes;
} exl2__cuda_tower_weights;

static inline uint32_t exl2__cuda_tower_pad(uint32_t count)
{
    return (uint32_t)exl2__align_up(count, EXL2K_TOWER_DEPTH);
}

static inline uint64_t exl2__cuda_tower_take(uint64_t *used, uint64_t bytes)
{
    uint64_t at = *used;
    *used = exl2__align_up(at + bytes, EXL2__CUDA_ALIGN);
    return at;
}

EXL2__PRIVATE exl2__cuda_tower_norm exl2__cuda_tower_take_norm(uint64_t *used, uint32_t count)
{
    exl2__cuda_tower_norm norm;
    norm.weight = exl2__cuda_tower_take(used, count * sizeof(float));
    norm.bias = exl2__cuda_tower_take(used, count * sizeof(float));
    return norm;
}

EXL2__PRIVATE exl2__cuda_tower_matrix exl2__cuda_tower_take_matrix(uint64_t *used, uint32_t in, uint32_t out)
{
    exl2__cuda_tower_matrix m = { 0 };
    uint64_t rows = EXL2K_TOWER_LINES((uint64_t)out);
    m.columns = out;
    m.k = exl2__cuda_tower_pad(in);
    m.weight = exl2__cuda_tower_take(used, rows * m.k * 2);
    m.bias = exl2__cuda_tower_take(used, rows * sizeof(float));
    return m;
}

/* Offsets of all weights. */
EXL2__PRIVATE exl2__cuda_tower_weights exl2__cuda_tower_weights_of(const exl2__vision_config *v)
{
    const exl2__vision_names *names = &v->row->names;
    exl2__cuda_tower_weights w;
    uint64_t used = 0, begin;
    uint32_t merged = exl2__tower_merged(v), middle = exl2__tower_middle(v);
    memset(&w, 0, sizeof w);
    w.patch = exl2__cuda_tower_take_matrix(&used, exl2__tower_patch_inputs(v), v->width);
    w.class_row = exl2__cuda_tower_take(&used, v->class_row ? v->width * sizeof(float) : 0);
    uint64_t places = names->positions ? (uint64_t)v->side * v->side + v->class_row : 0;
    w.positions = exl2__cuda_tower_take(&used, places * v->width * sizeof(float));
    w.pre_norm = exl2__cuda_tower_take_norm(&used, v->width);
    w.post_norm = exl2__cuda_tower_take_norm(&used, v->width);
    begin = used;
    w.layer.norm1 = exl2__cuda_tower_take_norm(&used, v->width);
    w.layer.norm2 = exl2__cuda_tower_take_norm(&used, v->width);
    w.layer.qkv = exl2__cuda_tower_take_matrix(&used, v->width, 3 * v->width);
    w.layer.out = exl2__cuda_tower_take_matrix(&used, v->width, v->width);
    uint32_t up = v->row->gated ? 2 * (uint32_t)exl2__align_up(v->inter, 8) : v->inter;
    w.layer.up = exl2__cuda_tower_take_matrix(&used, v->width, up);
    w.layer.down = exl2__cuda_tower_take_matrix(&used, v->inter, v->width);
    w.layer_bytes = used - begin;
    used = begin + w.layer_bytes * v->layers;
    begin = used;
    w.level.norm = exl2__cuda_tower_take_norm(&used, exl2__max32(merged, v->width));
    if (names->merge) {
        w.level.merge = exl2__cuda_tower_take_matrix(&used, merged, v->width);
    }
    w.level.linear1 = exl2__cuda_tower_take_matrix(&used, names->merge ? v->width : merged,
                                                   names->linear2 ? middle : v->hidden);
    if (names->linear2) {
        w.level.linear2 = exl2__cuda_tower_take_matrix(&used, middle, v->hidden);
    }
    w.level_bytes = used - begin;
    w.bytes = begin + w.level_bytes * v->levels;
    return w;
}

static inline void exl2__cuda_tower_move_norm(exl2__cuda_tower_norm *n, uint64_t by)
{
    n->weight += by;
    n->bias += by;
}

static inline void exl2__cuda_tower_move_matrix(exl2__cuda_tower_matrix *m, uint64_t by)
{
    m->weight += by;
    m->bias += by;
}

/* Layer `index`, or the projector of level `index`, in memory that begins at `base`. */
EXL2__PRIVATE exl2__cuda_tower_layer exl2__cuda_tower_layer_of(const exl2__cuda_tower_weights *w, uint64_t base,
                                                               uint32_t index)
{
    exl2__cuda_tower_layer layer = w->layer;
    uint64_t by = base + index * w->layer_bytes;
    exl2__cuda_tower_move_norm(&layer.norm1, by);
    exl2__cuda_tower_move_norm(&layer.norm2, by);
    exl2__cuda_tower_move_matrix(&layer.qkv, by);
    exl2__cuda_tower_move_matrix(&layer.out, by);
    exl2__cuda_tower_move_matrix(&layer.up, by);
    exl2__cuda_tower_move_matrix(&layer.down, by);
    return layer;
}

EXL2__PRIVATE exl2__cuda_tower_level exl2__cuda_tower_level_of(const exl2__cuda_tower_weights *w, uint64_t base,
                                                               uint32_t index)
{
    exl2__cuda_tower_level level = w->level;
    uint64_t by = base + index * w->level_bytes;
    exl2__cuda_tower_move_norm(&level.norm, by);
    exl2__cuda_tower_move_matrix(&level.merge, by);
    exl2__cuda_tower_move_matrix(&level.linear1, by);
    exl2__cuda_tower_move_matrix(&level.linear2, by);
    return level;
}

/* The class of kernels of attention for heads of `dim` elements. */
static inline uint32_t exl2__cuda_tower_dim(uint32_t dim)
{
    return dim <= 32 ? 32 : dim <= 64 ? 64 : dim <= 80 ? 80 : 128;
}

/* Whether products run by wgmma. */
static inline bool exl2__cuda_tower_by_wg(const exl2__cuda_device *gpu)
{
    return gpu->info.arch == 90 && gpu->shared_bytes >= EXL2K_TOWER_WG_SHARED(256, EXL2K_TOWER_PAIR_STAGES);
}

/* Device addresses. R: rows of a tile, whole tiles of a product; O: rows of its result. */
typedef struct exl2__cuda_tower_buffers {
    uint64_t pixels;    /* u8, of one tile, or of two frames */
    uint64_t index;     /* u32 [4, R]: the patch of each row, the row of each patch, segments [R, 2] */
    uint64_t angles;    /* f32 [2, sides, 2, head_dim / 4]; 0: the family has none */
    uint64_t levels;    /* f32 [3, 256] */
    uint64_t residual;  /* f32 [R, pitch] */
    uint64_t x;         /* fp16 [R, widest of patches and width], as all inputs of products in TILES of tower_args.h */
    uint64_t inner;     /* fp16 [R, inter] in TILES: between the products of an MLP */
    uint64_t heads;     /* fp16 [3, heads, R, dim], padded with zeros */
    uint64_t merged, middle[2]; /* fp16 [O, ..]: inputs of the projector's matrices */
    uint64_t rows;      /* f32 [rows of the largest picture, levels, hidden] */
    uint64_t bad;       /* u32 */
    uint32_t rows_max;  /* R */
    uint32_t sides;     /* lines and columns of patches, at most, each */
    uint32_t pitch;
} exl2__cuda_tower_buffers;

EXL2__PRIVATE void exl2__cuda_tower_layout(exl2__cuda_tower_buffers *b, const exl2__vision_config *v,
                                           const exl2__vision_limits *limits, exl2__cuda_arena *a)
{
    exl2__vision_size most;
    exl2__vision_largest(v, limits, &most);
    uint32_t side = v->merge, out = (uint32_t)exl2__align_up(most.rows / most.tiles, EXL2K_TOWER_TILE);
    uint64_t rows = exl2__align_up(most.patches + 1, EXL2K_TOWER_TILE);
    b->rows_max = (uint32_t)rows;
    b->sides = most.grid[1] * side;
    b->pitch = exl2__cuda_tower_pad(v->width);
    b->pixels = exl2__cuda_arena_take(a, most.seen_bytes / most.tiles * v->frames);
    b->index = exl2__cuda_arena_take(a, 4 * rows * sizeof(uint32_t));
    b->angles = v->row->rope ? exl2__cuda_arena_take(a, (uint64_t)b->sides * v->head_dim * sizeof(float)) : 0;
    b->levels = exl2__cuda_arena_take(a, 3 * 256 * sizeof(float));
    b->residual = exl2__cuda_arena_take(a, rows * b->pitch * sizeof(float));
    uint32_t inputs = exl2__max32(b->pitch, exl2__cuda_tower_pad(exl2__tower_patch_inputs(v)));
    b->x = exl2__cuda_arena_take(a, rows * inputs * 2);
    b->inner = exl2__cuda_arena_take(a, rows * exl2__cuda_tower_pad(v->inter) * 2);
    b->heads = exl2__cuda_arena_take(a, 3 * rows * v->heads * exl2__cuda_tower_dim(v->head_dim) * 2);
    b->merged = exl2__cuda_arena_take(a, (uint64_t)out * exl2__cuda_tower_pad(exl2__tower_merged(v)) * 2);
    b->middle[0] = exl2__cuda_arena_take(a, v->row->names.merge ? (uint64_t)out * b->pitch * 2 : 0);
    b->middle[1] = exl2__cuda_arena_take(a, (uint64_t)out * exl2__cuda_tower_pad(exl2__tower_middle(v)) * 2);
    b->rows = exl2__cuda_arena_take(a, (uint64_t)most.rows * v->levels * v->hidden * sizeof(float));
    b->bad = exl2__cuda_arena_take(a, sizeof(uint32_t));
}

#endif
#endif
