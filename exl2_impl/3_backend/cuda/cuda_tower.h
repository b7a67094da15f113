/* cuda_tower.h: encodes pictures on the device: which kernels each stage of a tower launches, and how the rows come
   back.
   takes: a model whose plan has a tower; a picture as resize.h has prepared it.
   gives: exl2__cuda_tower_begin, exl2__cuda_tower_step of the backend's towers; exl2__cuda_towers.

   A stage computes all rows of a tile. In steps with a budget it is cut into launches of at most EXL2__CUDA_UNIT_NS, by
   the picture's size and the speed of the device; no launch needs another one of its stage, and a row's bits do not
   depend on the cut.
   The stages are those of the CPU's tower (vision/tower_stages.h), which says where the formulas come from. */
#ifndef EXL2__CUDA_TOWER_H
#define EXL2__CUDA_TOWER_H

#include "cuda_queue.h"
#include "cuda_tower_load.h"

#ifndef EXL2_NO_VISION

#define EXL2__CUDA_TOWER_UP_BYTES (512u << 10)    /* bytes of pixels that are copied to the device at once */
#define EXL2__CUDA_TOWER_LAUNCH_NS 3000u          /* nanoseconds of a launch, besides its work */
#define EXL2__CUDA_TOWER_SM_FLOP_NS 1500u         /* operations of a multiprocessor in a nanosecond, before measured */

/* ---- a picture ---- */

/* Orders patches by windows. index [4, rows_max]: as exl2__cuda_tower_buffers.index. */
EXL2__PRIVATE void exl2__cuda_tower_arrange(exl2__cuda_tower *t, const exl2__vision_config *v, uint32_t rows_max)
{
    uint32_t s = v->merge, columns = t->size.width / v->patch, cells = columns / s, next = 0;
    uint32_t lines = t->size.height / v->patch / s;
    uint32_t *order = t->index, *at = order + rows_max, *segments = at + rows_max;
    for (uint32_t p = 0; !v->window && p < t->size.patches; p++) {
        order[p] = p;
    }
    for (uint32_t y = 0; v->window && y < lines; y += v->window) {
        for (uint32_t x = 0; x < cells; x += v->window) {
            uint32_t begin = next, high = exl2__min32(v->window, lines - y), wide = exl2__min32(v->window, cells - x);
            uint32_t end = begin + high * wide * s * s;
            for (uint32_t i = 0; next < end; i++, next++) {
                uint32_t cell = i / (s * s), line = (y + cell / wide) * s + i % (s * s) / s;
                order[next] = line * columns + (x + cell % wide) * s + i % s;
                segments[2 * next] = begin;
                segments[2 * next + 1] = end;
            }
        }
    }
    for (uint32_t row = 0; row < t->size.patches; row++) {
        at[order[row]] = row;
    }
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_open_picture(exl2__cuda_model *m, const exl2__vision_size *size,
                                                        const uint8_t *seen, float *rows)
{
    const exl2__vision_config *v = m->plan->tower;
    exl2__cuda_tower *t = &m->tower;
    t->size = *size;
    t->seen = seen;
    t->out = rows;
    t->rows = size->patches + v->class_row;
    t->out_rows = size->rows / size->tiles;
    t->tile = t->layer = t->level = t->row = 0;
    t->stage = EXL2__CUDA_TOWER_UPLOAD;
    t->sent = t->copied = 0;
    t->copying = t->chained = false;
    EXL2__ASSERT(t->rows <= m->b.tower.rows_max);
    exl2__cuda_tower_arrange(t, v, m->b.tower.rows_max);
    EXL2__TRY(exl2__cuda_upload(m, m->b.tower.index, t->index, 4ull * m->b.tower.rows_max * sizeof *t->index));
    int cleared = m->gpu->driver.fill8(m->b.tower.bad, 0, sizeof(uint32_t), m->gpu->stream);
    EXL2__TRY(exl2__cuda_device_check(m->gpu, cleared, "clearing buffers"));
    t->active = true;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_begin(exl2__device *device, const exl2__vision_size *size,
                                                 const uint8_t *seen, float *rows)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_tower_open_picture(m, size, seen, rows));
}

/* ---- launches ---- */

EXL2__PRIVATE exl2_result exl2__cuda_tower_launch(exl2__cuda_model *m, exl2__cuda_kernel kernel, exl2__cuda_grid grid,
                                                  const void *arguments)
{
    grid.programmatic = m->tower.chained;
    m->tower.chained = true;
    return exl2__cuda_device_launch(m->gpu, kernel, grid, arguments);
}

/* A kernel of products and its tiles, of EXL2K_TOWER_TILE rows. */
typedef struct exl2__cuda_tower_tile {
    exl2__cuda_kernel kernel;
    uint32_t columns, threads, shared_bytes;
    uint32_t splits; /* of k: CTAs of a cluster that share a tile */
} exl2__cuda_tower_tile;

/* Kernels by wgmma. Times on an H200, in ns: CTAs of an SM last begin + steps * step, for the steps (64 of k) of all of
   them. */
typedef struct exl2__cuda_tower_kind {
    exl2__cuda_kernel kernel;
    uint32_t columns, stages, begin, step;
} exl2__cuda_tower_kind;

#define EXL2__CUDA_TOWER_SPLIT_NS 2500u           /* what the CTAs of a cluster need to add their sums */
/* Shared memory of which two CTAs do not fit an SM. A launch starts while the one before ends, so CTAs that are fewer
   than SMs would else lie in pairs on the first SMs that are free. */
#define EXL2__CUDA_TOWER_ALONE_BYTES (116u << 10)

/* Predicted time of tiles that are each split into `splits` parts of `steps`. Two CTAs run on an SM if there are more
   than SMs. */
static inline uint64_t exl2__cuda_tower_ns(const exl2__cuda_tower_kind *kind, uint64_t tiles, uint32_t splits,
                                           uint64_t steps, uint32_t sms)
{
    uint64_t count = tiles * splits, rest = count % (2ull * sms);
    uint64_t two = kind->begin + 2 * steps * kind->step, one = kind->begin + steps * kind->step;
    return count / (2ull * sms) * two + (rest == 0 ? 0 : rest <= sms ? one : two)
         + (splits > 1 ? EXL2__CUDA_TOWER_SPLIT_NS : 0);
}

/* The kernel that ends first, for all rows of the stage. The sums of a row depend on the number of splits, so this
   depends on the device, the matrix and the picture's size alone. */
EXL2__PRIVATE exl2__cuda_tower_tile exl2__cuda_tower_tile_of(const exl2__cuda_model *m, uint32_t rows,
                                                             uint32_t columns, uint32_t k)
{
    static const exl2__cuda_tower_kind kinds[] = {
        { EXL2__KERNEL_exl2k_tower_wg_pair, 128, EXL2K_TOWER_PAIR_STAGES, 6100, 380 },
        { EXL2__KERNEL_exl2k_tower_wg_narrow, 64, EXL2K_TOWER_NARROW_STAGES, 5000, 205 },
    };
    exl2__cuda_tower_tile best = { EXL2__KERNEL_exl2k_tower_product, EXL2K_TOWER_TILE, 256, EXL2K_TOWER_SHARED, 1 };
    uint32_t sms = m->gpu->sm_count, steps = k / EXL2K_TOWER_DEPTH;
    uint32_t most = exl2__cuda_device_launches_with(m->gpu) ? EXL2K_TOWER_SPLITS_MAX : 1;
    bool room = m->gpu->shared_bytes >= EXL2__CUDA_TOWER_ALONE_BYTES;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; exl2__cuda_tower_by_wg(m->gpu) && i < EXL2__COUNT(kinds); i++) {
        const exl2__cuda_tower_kind *kind = &kinds[i];
        uint64_t tiles = exl2__div_up(rows, EXL2K_TOWER_TILE) * exl2__div_up(columns, kind->columns);
        uint32_t bytes = EXL2K_TOWER_WG_SHARED(EXL2K_TOWER_TILE + kind->columns, kind->stages);
        for (uint32_t splits = 1; splits <= most && splits <= steps; splits++) {
            bool alone = tiles * splits <= sms;
            uint64_t ns = exl2__cuda_tower_ns(kind, tiles, splits, exl2__div_up(steps, splits), sms);
            if ((splits == 1 || alone) && ns < least) {
                uint32_t shared = alone && room ? exl2__max32(bytes, EXL2__CUDA_TOWER_ALONE_BYTES) : bytes;
                least = ns;
                best = (exl2__cuda_tower_tile){ kind->kernel, kind->columns, EXL2K_TOWER_WG_THREADS, shared, splits };
            }
        }
    }
    return best;
}

/* Rows [row, end) of a product. all: rows of the stage. columns: of the result, without padding. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_multiply(exl2__cuda_model *m, const exl2__cuda_tower_matrix *w,
                                                    exl2k_tower_product_args a, uint32_t all, uint32_t row,
                                                    uint32_t end)
{
    uint32_t columns = w->columns;
    a.weight = w->weight;
    a.bias = w->bias;
    a.k = w->k;
    a.columns = w->columns;
    a.row = row;
    a.rows = end;
    if (a.kind == EXL2K_TOWER_ACT || a.kind == EXL2K_TOWER_GATED) { /* they write the padding, too */
        columns = exl2__max32(columns, a.out_pitch * (a.kind == EXL2K_TOWER_GATED ? 2 : 1));
    }
    exl2__cuda_tower_tile tile = exl2__cuda_tower_tile_of(m, all, columns, w->k);
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(end - row, EXL2K_TOWER_TILE) * tile.splits,
                             .y = (uint32_t)exl2__div_up(columns, tile.columns), .threads = tile.threads,
                             .shared_bytes = tile.shared_bytes, .cluster = tile.splits > 1 ? tile.splits : 0 };
    return exl2__cuda_tower_launch(m, tile.kernel, grid, &a);
}

/* As exl2k_tower_product_args.act. */
EXL2__PRIVATE void exl2__cuda_tower_act(exl2__vision_act act, exl2k_tower_product_args *a)
{
    a->plain = 0;
    a->act = act == EXL2__VISION_ACT_GELU ? EXL2K_TOWER_GELU : EXL2K_TOWER_LOGISTIC;
    a->linear = act == EXL2__VISION_ACT_GELU_TANH ? 1.5957691216f : act == EXL2__VISION_ACT_QUICK_GELU ? 1.702f : 1;
    a->cubic = act == EXL2__VISION_ACT_GELU_TANH ? 1.5957691216f * 0.044715f : 0;
}

/* Frames of the current tile that are on the device; patches have the last one twice if it is alone. */
static inline uint32_t exl2__cuda_tower_frames(const exl2__cuda_tower *t)
{
    return exl2__vision_tile_frames(&t->size, t->tile);
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_patches(exl2__cuda_model *m, uint32_t row, uint32_t end)
{
    const exl2__vision_config *v = m->plan->tower;
    exl2k_tower_patches_args a = { .pixels = m->b.tower.pixels, .order = m->b.tower.index,
                                   .levels = m->b.tower.levels, .out = m->b.tower.x, .row = row,
                                   .before = v->class_row, .patch = v->patch, .frames = v->frames,
                                   .columns = m->tower.size.width / v->patch, .line_bytes = m->tower.size.width * 3,
                                   .frame_bytes = exl2__cuda_tower_frames(&m->tower) > 1
                                                ? (uint32_t)exl2__vision_tile_bytes(&m->tower.size) : 0,
                                   .pitch = exl2__cuda_tower_pad(exl2__tower_patch_inputs(v)),
                                   .rows_max = m->b.tower.rows_max };
    exl2__cuda_grid grid = { .x = end - row, .y = 1, .threads = 256 };
    return exl2__cuda_tower_launch(m, EXL2__KERNEL_exl2k_tower_patches, grid, &a);
}

/* norm: its weight is 0 if there is none. wide: writes to the residual itself, else to x. placed: adds what the table
   of positions has for the row. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_normalize(exl2__cuda_model *m, exl2__cuda_tower_norm norm, bool rms,
                                                     float eps, bool wide, bool placed, uint32_t row, uint32_t end)
{
    const exl2__vision_config *v = m->plan->tower;
    const exl2__cuda_tower_buffers *b = &m->b.tower;
    exl2k_tower_norm_args a = { .x = b->residual, .out = wide ? b->residual : b->x, .weight = norm.weight,
                                .bias = norm.weight && !rms ? norm.bias : 0, .width = v->width, .pitch = b->pitch,
                                .out_pitch = b->pitch, .row = row, .rms = rms, .rows_max = wide ? 0 : b->rows_max,
                                .eps = eps };
    if (placed) {
        exl2__cuda_tower_weights w = exl2__cuda_tower_weights_of(v);
        a.table = m->tower.base + w.positions;
        a.order = b->index;
        a.class_row = m->tower.base + w.class_row;
        a.before = v->class_row;
        a.kind = v->row->table == EXL2__VISION_TABLE_PLACES     ? EXL2K_TOWER_TABLE_PLACES
                 : v->row->table == EXL2__VISION_TABLE_BILINEAR ? EXL2K_TOWER_TABLE_BILINEAR
                                                                : EXL2K_TOWER_TABLE_NONE;
        a.lines = m->tower.size.height / v->patch;
        a.columns = m->tower.size.width / v->patch;
        a.side = v->side;
    }
    exl2__cuda_grid grid = { .x = end - row, .y = 1, .threads = EXL2K_TOWER_NORM_THREADS };
    return exl2__cuda_tower_launch(m, EXL2__KERNEL_exl2k_tower_norm, grid, &a);
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_attend(exl2__cuda_model *m, uint32_t row, uint32_t end)
{
    const exl2__vision_config *v = m->plan->tower;
    const exl2__cuda_tower_buffers *b = &m->b.tower;
    bool windowed = v->window && !v->full[m->tower.layer];
    uint32_t dim = exl2__cuda_tower_dim(v->head_dim);
    double scale = 1.4426950408889634 * (double)(EXL2K_TOWER_SCALE * EXL2K_TOWER_SCALE) / sqrt((double)v->head_dim);
    exl2k_tower_attend_args a = { .heads_at = b->heads, .out = b->x, .row = row, .rows = m->tower.rows,
                                  .segments = windowed ? b->index + 2ull * b->rows_max * sizeof(uint32_t) : 0,
                                  .rows_max = b->rows_max, .heads = v->heads, .dim = v->head_dim,
                                  .scale = (float)scale };
    static const exl2__cuda_kernel kernels[][2] = { /* any, and by wgmma */
        { EXL2__KERNEL_exl2k_tower_attend32, EXL2__KERNEL_exl2k_tower_attend32 },
        { EXL2__KERNEL_exl2k_tower_attend64, EXL2__KERNEL_exl2k_tower_attend_wg64 },
        { EXL2__KERNEL_exl2k_tower_attend80, EXL2__KERNEL_exl2k_tower_attend_wg80 },
        { EXL2__KERNEL_exl2k_tower_attend128, EXL2__KERNEL_exl2k_tower_attend128 },
    };
    bool wg = !windowed && (dim == 64 || dim == 80) && exl2__cuda_tower_by_wg(m->gpu);
    uint32_t threads = wg && dim == 80 ? 384 : 256; /* two for each row */
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(end - row, threads / 2), .y = v->heads, .threads = threads,
                             .shared_bytes = wg ? EXL2K_TOWER_ATTEND_SHARED(dim) : 0 };
    return exl2__cuda_tower_launch(m, kernels[dim == 32 ? 0 : dim == 64 ? 1 : dim == 80 ? 2 : 3][wg], grid, &a);
}

/* Rows of the result. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_merge(exl2__cuda_model *m, const exl2__cuda_tower_level *level, uint32_t row,
                                                 uint32_t end)
{
    const exl2__vision_config *v = m->plan->tower;
    const exl2__cuda_tower_buffers *b = &m->b.tower;
    bool normed = v->row->names.norm && (m->tower.level || !v->row->norm_patches);
    exl2k_tower_merge_args a = { .x = b->residual, .out = b->merged, .width = v->width, .pitch = b->pitch,
                                 .at = b->index + b->rows_max * sizeof(uint32_t), .row = row, .side = v->merge,
                                 .out_pitch = exl2__cuda_tower_pad(exl2__tower_merged(v)),
                                 .columns = m->tower.size.width / v->patch, .before = v->class_row,
                                 .direct = v->class_row && v->keeps_class, .rms = v->row->norm_rms,
                                 .rows_max = (uint32_t)exl2__align_up(m->tower.out_rows, EXL2K_TOWER_TILE),
                                 .eps = v->projector_eps };
    a.cells = a.columns / v->merge;
    a.kind = v->row->merge == EXL2__VISION_MERGE_MEAN  ? EXL2K_TOWER_MEAN
             : v->row->merge == EXL2__VISION_MERGE_CYX ? EXL2K_TOWER_CYX
                                                       : EXL2K_TOWER_DYX;
    a.weight = normed ? level->norm.weight : 0;
    a.bias = normed && !v->row->norm_rms ? level->norm.bias : 0;
    /* With a norm each CTA of a row reads all of it. */
    exl2__cuda_grid grid = { .x = end - row, .y = normed ? 1 : (uint32_t)exl2__div_up(a.out_pitch, 1024),
                             .threads = 256 };
    return exl2__cuda_tower_launch(m, EXL2__KERNEL_exl2k_tower_merge, grid, &a);
}

/* ---- stages ---- */

/* The product of a stage. w.k 0: the stage is no product. */
typedef struct exl2__cuda_tower_product {
    exl2__cuda_tower_matrix w;
    exl2k_tower_product_args a;
} exl2__cuda_tower_product;

EXL2__PRIVATE exl2__cuda_tower_product exl2__cuda_tower_product_of(const exl2__cuda_model *m)
{
    const exl2__vision_config *v = m->plan->tower;
    const exl2__cuda_tower *t = &m->tower;
    const exl2__cuda_tower_buffers *b = &m->b.tower;
    exl2__cuda_tower_weights w = exl2__cuda_tower_weights_of(v);
    exl2__cuda_tower_layer layer = exl2__cuda_tower_layer_of(&w, t->base, t->layer);
    exl2__cuda_tower_level level = exl2__cuda_tower_level_of(&w, t->base, t->level);
    uint64_t out_max = exl2__align_up(t->out_rows, EXL2K_TOWER_TILE);
    exl2__cuda_tower_product p = { .a = { .x = b->x, .rows_max = b->rows_max, .out = b->residual,
                                          .out_pitch = b->pitch, .plain = EXL2K_TOWER_PLAIN } };
    uint64_t result = b->rows + ((uint64_t)t->tile * t->out_rows * v->levels + t->level) * v->hidden * sizeof(float);
    switch (t->stage) {
    case EXL2__CUDA_TOWER_EMBED:
        p.w = w.patch;
        p.w.weight += t->base;
        p.w.bias += t->base;
        break;
    case EXL2__CUDA_TOWER_QKV:
        p.w = layer.qkv;
        p.a.out = b->heads;
        p.a.kind = EXL2K_TOWER_HEADS;
        p.a.angles = b->angles;
        p.a.order = b->index;
        p.a.heads = v->heads;
        p.a.dim = v->head_dim;
        p.a.padded = exl2__cuda_tower_dim(v->head_dim);
        p.a.sides = b->sides;
        p.a.patches = t->size.width / v->patch;
        break;
    case EXL2__CUDA_TOWER_OUT:
        p.w = layer.out;
        p.a.kind = EXL2K_TOWER_ADD;
        break;
    case EXL2__CUDA_TOWER_UP:
        p.w = layer.up;
        p.a.out = b->inner;
        p.a.out_pitch = exl2__cuda_tower_pad(v->inter);
        p.a.kind = v->row->gated ? EXL2K_TOWER_GATED : EXL2K_TOWER_ACT;
        exl2__cuda_tower_act(v->act, &p.a);
        break;
    case EXL2__CUDA_TOWER_DOWN:
        p.w = layer.down;
        p.a.x = b->inner;
        p.a.kind = EXL2K_TOWER_ADD;
        break;
    case EXL2__CUDA_TOWER_MERGING:
        p.w = level.merge;
        p.a.x = b->merged;
        p.a.rows_max = (uint32_t)out_max;
        p.a.out = b->middle[0];
        p.a.kind = EXL2K_TOWER_ACT; /* a plain one: the result is an input again */
        break;
    case EXL2__CUDA_TOWER_LINEAR1:
        p.w = level.linear1;
        p.a.x = level.merge.k ? b->middle[0] : b->merged;
        p.a.rows_max = (uint32_t)out_max;
        p.a.out = level.linear2.k ? b->middle[1] : result;
        p.a.out_pitch = level.linear2.k ? level.linear2.k : v->levels * v->hidden;
        p.a.kind = level.linear2.k ? EXL2K_TOWER_ACT : EXL2K_TOWER_STORE;
        exl2__cuda_tower_act(v->projector_act, &p.a);
        break;
    case EXL2__CUDA_TOWER_LINEAR2:
        p.w = level.linear2;
        p.a.x = b->middle[1];
        p.a.rows_max = (uint32_t)out_max;
        p.a.out = result;
        p.a.out_pitch = v->levels * v->hidden;
        break;
    default:
        break;
    }
    return p;
}

/* Whether the stage has a launch in this family. */
EXL2__PRIVATE bool exl2__cuda_tower_has(const exl2__cuda_model *m)
{
    const exl2__vision_config *v = m->plan->tower;
    const exl2__vision_names *names = &v->row->names;
    bool last = m->tower.level == 0;
    switch (m->tower.stage) {
    case EXL2__CUDA_TOWER_PLACE:
        return v->row->table || v->class_row || names->pre_norm;
    case EXL2__CUDA_TOWER_POST_NORM:
        return last && v->post_norm && names->post_norm;
    case EXL2__CUDA_TOWER_PATCH_NORM:
        return last && names->norm && v->row->norm_patches;
    case EXL2__CUDA_TOWER_MERGING:
        return names->merge;
    case EXL2__CUDA_TOWER_LINEAR2:
        return names->linear2;
    default:
        return true;
    }
}

/* Rows of the current stage. */
static inline uint32_t exl2__cuda_tower_rows_now(const exl2__cuda_tower *t)
{
    return t->stage >= EXL2__CUDA_TOWER_MERGE ? t->out_rows : t->rows;
}

/* Estimated operations of a row of the current stage. Bytes count as the operations of their time. */
EXL2__PRIVATE uint64_t exl2__cuda_tower_row_flop(const exl2__cuda_model *m)
{
    const exl2__vision_config *v = m->plan->tower;
    uint32_t keys = v->window && !v->full[m->tower.layer] ? 128 : m->tower.rows;
    exl2__cuda_tower_product p = exl2__cuda_tower_product_of(m);
    if (p.w.k) {
        return 2ull * p.w.k * p.w.columns;
    }
    return m->tower.stage == EXL2__CUDA_TOWER_ATTEND ? 6ull * v->heads * exl2__cuda_tower_dim(v->head_dim) * keys
                                                     : 1000ull * v->width;
}

/* Launches rows [row, end) of the current stage. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_run(exl2__cuda_model *m, uint32_t row, uint32_t end)
{
    const exl2__vision_config *v = m->plan->tower;
    exl2__cuda_tower *t = &m->tower;
    exl2__cuda_tower_weights w = exl2__cuda_tower_weights_of(v);
    exl2__cuda_tower_layer layer = exl2__cuda_tower_layer_of(&w, t->base, t->layer);
    exl2__cuda_tower_level level = exl2__cuda_tower_level_of(&w, t->base, t->level);
    exl2__cuda_tower_product p = exl2__cuda_tower_product_of(m);
    if (p.w.k) {
        return exl2__cuda_tower_multiply(m, &p.w, p.a, exl2__cuda_tower_rows_now(t), row, end);
    }
    exl2__cuda_tower_norm norm = { 0, 0 };
    switch (t->stage) {
    case EXL2__CUDA_TOWER_PATCHES:
        return exl2__cuda_tower_patches(m, row, end);
    case EXL2__CUDA_TOWER_PLACE:
        norm = (exl2__cuda_tower_norm){ w.pre_norm.weight + t->base, w.pre_norm.bias + t->base };
        norm = v->row->names.pre_norm ? norm : (exl2__cuda_tower_norm){ 0, 0 };
        return exl2__cuda_tower_normalize(m, norm, v->row->rms, v->eps, true, true, row, end);
    case EXL2__CUDA_TOWER_NORM1:
        return exl2__cuda_tower_normalize(m, layer.norm1, v->row->rms, v->eps, false, false, row, end);
    case EXL2__CUDA_TOWER_ATTEND:
        return exl2__cuda_tower_attend(m, row, end);
    case EXL2__CUDA_TOWER_NORM2:
        return exl2__cuda_tower_normalize(m, layer.norm2, v->row->rms, v->eps, false, false, row, end);
    case EXL2__CUDA_TOWER_POST_NORM:
        norm = (exl2__cuda_tower_norm){ w.post_norm.weight + t->base, w.post_norm.bias + t->base };
        return exl2__cuda_tower_normalize(m, norm, v->row->rms, v->eps, true, false, row, end);
    case EXL2__CUDA_TOWER_PATCH_NORM:
        return exl2__cuda_tower_normalize(m, level.norm, v->row->norm_rms, v->projector_eps, true, false, row, end);
    default:
        return exl2__cuda_tower_merge(m, &level, row, end);
    }
}

/* The level that is projected after the current layer; 0: none. */
EXL2__PRIVATE uint32_t exl2__cuda_tower_level_now(const exl2__vision_config *v, uint32_t layer)
{
    for (uint32_t i = 1; i < v->levels; i++) {
        if (v->deep[i - 1] == layer) {
            return i;
        }
    }
    return 0;
}

/* Goes from a finished stage to the next one. */
EXL2__PRIVATE void exl2__cuda_tower_next(exl2__cuda_model *m)
{
    const exl2__vision_config *v = m->plan->tower;
    exl2__cuda_tower *t = &m->tower;
    bool more = t->layer + 1 < v->layers;
    t->row = 0;
    if (t->stage == EXL2__CUDA_TOWER_DOWN) {
        t->level = exl2__cuda_tower_level_now(v, t->layer);
        t->stage = t->level || !more ? EXL2__CUDA_TOWER_POST_NORM : EXL2__CUDA_TOWER_NORM1;
        t->layer += !t->level && more;
    } else if (t->stage == EXL2__CUDA_TOWER_LINEAR2 && t->level) {
        t->level = 0;
        t->stage = more ? EXL2__CUDA_TOWER_NORM1 : EXL2__CUDA_TOWER_POST_NORM;
        t->layer += more;
    } else if (t->stage == EXL2__CUDA_TOWER_LINEAR2) {
        t->layer = 0;
        t->sent = 0;
        t->stage = t->tile + 1 < t->size.tiles ? EXL2__CUDA_TOWER_UPLOAD : EXL2__CUDA_TOWER_CHECK;
        t->tile += t->tile + 1 < t->size.tiles;
    } else {
        t->stage = (exl2__cuda_tower_stage)(t->stage + 1);
    }
}

/* ---- steps ---- */

/* Copies the next pixels of the tile to the device. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_send(exl2__cuda_model *m)
{
    exl2__cuda_tower *t = &m->tower;
    uint64_t all = exl2__vision_tile_bytes(&t->size) * exl2__cuda_tower_frames(t);
    uint64_t bytes = exl2__min64(all - t->sent, EXL2__CUDA_TOWER_UP_BYTES);
    const uint8_t *from = t->seen + exl2__vision_tile_at(&t->size, t->tile) + t->sent;
    t->chained = false; /* the next kernel reads them */
    EXL2__TRY(exl2__cuda_upload(m, m->b.tower.pixels + t->sent, from, bytes));
    t->sent += bytes;
    if (t->sent == all) {
        exl2__cuda_tower_next(m);
    }
    return EXL2_OK;
}

/* Finds rows that are not finite; the result comes with the rows. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_check(exl2__cuda_model *m)
{
    const exl2__vision_config *v = m->plan->tower;
    exl2k_tower_check_args a = { .x = m->b.tower.rows, .bad = m->b.tower.bad,
                                 .count = (uint64_t)m->tower.size.rows * v->levels * v->hidden };
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__min64(exl2__div_up(a.count, 1024), 1024), .y = 1, .threads = 256 };
    m->tower.stage = EXL2__CUDA_TOWER_COPY;
    return exl2__cuda_tower_launch(m, EXL2__KERNEL_exl2k_tower_check, grid, &a);
}

static inline bool exl2__cuda_tower_is_late(uint64_t cpu_end_ns)
{
    return cpu_end_ns && exl2__platform_ns() >= cpu_end_ns;
}

/* Enqueues launches of about gpu_ns nanoseconds. *spent: their estimate. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_enqueue(exl2__cuda_model *m, uint64_t gpu_ns, uint64_t cpu_end_ns,
                                                   uint64_t *spent)
{
    exl2__cuda_tower *t = &m->tower;
    uint64_t flop_ns = (uint64_t)m->gpu->sm_count * EXL2__CUDA_TOWER_SM_FLOP_NS;
    for (bool first = true; t->stage < EXL2__CUDA_TOWER_CHECK; first = false) {
        if (!first && exl2__cuda_tower_is_late(cpu_end_ns)) {
            return EXL2_OK;
        }
        if (t->stage == EXL2__CUDA_TOWER_UPLOAD) {
            EXL2__TRY(exl2__cuda_tower_send(m));
            if (gpu_ns != UINT64_MAX) { /* copying to pinned memory has cost the thread time */
                return EXL2_OK;
            }
            continue;
        }
        if (!exl2__cuda_tower_has(m)) {
            exl2__cuda_tower_next(m);
            continue;
        }
        uint32_t all = exl2__cuda_tower_rows_now(t), left = all - t->row;
        uint64_t row_ns = exl2__cuda_tower_row_flop(m) * 1000 / flop_ns; /* of 1,000 rows */
        row_ns = exl2__max64(exl2__cuda_timing_ns(&m->timing, EXL2__CUDA_TIMING_TOWER, row_ns), 1);
        uint64_t room = gpu_ns - exl2__min64(gpu_ns, exl2__cuda_timing_ns(&m->timing, EXL2__CUDA_TIMING_TOWER, *spent));
        uint64_t fit = gpu_ns == UINT64_MAX ? left
                     : exl2__min64(exl2__min64(room, EXL2__CUDA_UNIT_NS) * 1000 / row_ns, left);
        if (fit < left) { /* whole tiles */
            fit = exl2__max64(fit / EXL2K_TOWER_TILE * EXL2K_TOWER_TILE, EXL2K_TOWER_TILE);
            fit = exl2__min64(fit, left);
        }
        uint64_t ns = exl2__cuda_tower_row_flop(m) * fit / flop_ns + EXL2__CUDA_TOWER_LAUNCH_NS;
        if (!first && exl2__cuda_timing_ns(&m->timing, EXL2__CUDA_TIMING_TOWER, ns) > room) {
            return EXL2_OK;
        }
        EXL2__TRY(exl2__cuda_tower_run(m, t->row, t->row + (uint32_t)fit));
        *spent += ns;
        t->row += (uint32_t)fit;
        if (t->row == all) {
            exl2__cuda_tower_next(m);
        }
    }
    return t->stage == EXL2__CUDA_TOWER_CHECK ? exl2__cuda_tower_check(m) : EXL2_OK;
}

/* Enqueues the copy of the next bytes of rows, and of what exl2k_tower_check has found. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_fetch(exl2__cuda_model *m, uint64_t bytes)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    exl2__cuda_tower *t = &m->tower;
    void *to = t->held ? (uint8_t *)t->out + t->copied : t->down;
    int result = driver->copy_down(to, m->b.tower.rows + t->copied, (size_t)bytes, m->gpu->stream);
    result = result == 0 ? driver->copy_down(t->down + EXL2__CUDA_TOWER_DOWN_BYTES, m->b.tower.bad, sizeof(uint32_t),
                                             m->gpu->stream) : result;
    result = result == 0 ? driver->event_record(t->done, m->gpu->stream) : result;
    exl2__cuda_device_flush(m->gpu);
    return exl2__cuda_device_check(m->gpu, result, "copying rows of a picture");
}

/* Whether the copy has ended; wait: waits until then. The first rows come after all of the tower's work, others
   soon. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_fetched(exl2__cuda_model *m, bool wait)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    exl2_result r = EXL2_PENDING;
    for (bool first = true; r == EXL2_PENDING && (first || wait); first = false) {
        if (!first && m->tower.copied == 0 && EXL2__PLATFORM_HAS_SLEEP_US) {
            exl2__platform_sleep_us(EXL2__CUDA_SLEEP_NS_MIN / 1000);
        }
        bool sleeps = wait && !EXL2__PLATFORM_HAS_SLEEP_US;
        int state = sleeps ? driver->event_wait(m->tower.done) : driver->event_query(m->tower.done);
        r = exl2__cuda_device_check(m->gpu, state, "encoding a picture");
    }
    return r;
}

/* Copies rows to the caller. OK: all are complete. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_copy(exl2__cuda_model *m, uint64_t cpu_end_ns, bool wait)
{
    const exl2__vision_config *v = m->plan->tower;
    exl2__cuda_tower *t = &m->tower;
    uint64_t all = (uint64_t)t->size.rows * v->levels * v->hidden * sizeof(float);
    while (t->copied < all) {
        uint64_t bytes = all - t->copied;
        bytes = t->held ? bytes : exl2__min64(bytes, EXL2__CUDA_TOWER_DOWN_BYTES);
        EXL2__TRY(t->copying ? EXL2_OK : exl2__cuda_tower_fetch(m, bytes));
        t->copying = true;
        EXL2__TRY_DONE(exl2__cuda_tower_fetched(m, wait));
        if (!t->held) {
            memcpy((uint8_t *)t->out + t->copied, t->down, (size_t)bytes);
        }
        t->copied += bytes;
        t->copying = false;
        if (t->copied < all && exl2__cuda_tower_is_late(cpu_end_ns)) {
            return EXL2_PENDING;
        }
    }
    t->active = false;
    uint32_t bad;
    memcpy(&bad, t->down + EXL2__CUDA_TOWER_DOWN_BYTES, sizeof bad);
    return bad ? exl2__fail(m->c, EXL2_ERR_FORMAT, "the tower of %s gives rows of a picture that are not finite",
                            v->family) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_advance(exl2__cuda_model *m, uint64_t gpu_ns, uint64_t cpu_end_ns, bool wait)
{
    exl2__cuda_tower *t = &m->tower;
    if (t->stage < EXL2__CUDA_TOWER_COPY && gpu_ns > 0) {
        uint64_t spent = 0;
        bool timed = gpu_ns != UINT64_MAX;
        t->chained = false; /* other work may have been enqueued since */
        EXL2__TRY(timed ? exl2__cuda_timing_begin(m->gpu, &m->timing) : EXL2_OK);
        EXL2__TRY(exl2__cuda_tower_enqueue(m, gpu_ns, cpu_end_ns, &spent));
        if (timed && spent > 0) {
            EXL2__TRY(exl2__cuda_timing_end(m->gpu, &m->timing, EXL2__CUDA_TIMING_TOWER, spent));
        }
        exl2__cuda_device_flush(m->gpu);
    }
    return t->stage == EXL2__CUDA_TOWER_COPY ? exl2__cuda_tower_copy(m, cpu_end_ns, wait) : EXL2_PENDING;
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_step(exl2__device *device, uint64_t gpu_ns, uint64_t cpu_end_ns, bool wait)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__ASSERT(m->tower.active);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_tower_advance(m, gpu_ns, cpu_end_ns, wait));
}

/* Pins the memory, so that rows are copied to it at once. Where the driver cannot, they go through `down`. */
EXL2__PRIVATE void exl2__cuda_tower_hold(exl2__device *device, void *memory, uint64_t bytes)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    const exl2__cuda_driver *driver = &m->gpu->driver;
    bool entered = driver->context_push(m->gpu->context) == 0;
    if (m->tower.held) {
        driver->stream_wait(m->gpu->stream);
        driver->host_unregister(m->tower.held);
        m->tower.held = NULL;
    }
    if (memory && entered && driver->host_register && driver->host_unregister) {
        int pinned = driver->host_register(memory, (size_t)bytes, EXL2__CUDA_HOST_PORTABLE);
        m->tower.held = pinned == 0 ? memory : NULL;
    }
    if (entered) {
        exl2__cuda_device_leave(m->gpu);
    }
}

static const exl2__backend_towers exl2__cuda_towers = {
    .supports = exl2__cuda_tower_supports,
    .weight_bytes = exl2__cuda_tower_weight_bytes,
    .values = exl2__cuda_tower_values,
    .rows = exl2__cuda_tower_rows,
    .hold = exl2__cuda_tower_hold,
    .begin = exl2__cuda_tower_begin,
    .step = exl2__cuda_tower_step,
};

#endif
#endif
