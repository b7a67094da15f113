/* cuda_tower_load.h: writes the weights of a tower into device memory, as its kernels read them.
   takes: values and rows of a tower's parts, as the reader has them (vision/tower_read.h).
   gives: exl2__cuda_tower_supports, _weight_bytes, _values, _rows of the backend's towers; exl2__cuda_tower_tables. */
#ifndef EXL2__CUDA_TOWER_LOAD_H
#define EXL2__CUDA_TOWER_LOAD_H

#include "cuda_load.h"

#include <math.h>

#ifndef EXL2_NO_VISION

/* What the backend does not compute, in words; NULL: it computes everything. */
EXL2__PRIVATE const char *exl2__cuda_tower_missing(const exl2__plan *p)
{
    const exl2__vision_config *v = p->tower;
    bool apart = v->levels > 1 || v->whole; /* its rows are not computed as others */
    return v->head_dim > EXL2K_TOWER_DIM_MAX ? "towers with heads of more than 128 elements"
         : v->width > EXL2K_TOWER_WIDTH_MAX  ? "towers of more than 4,096 channels"
         : v->row->rope && v->head_dim % 4   ? "towers with RoPE and heads whose size is no multiple of 4"
         : v->mrope && p->shape.qk_norm == EXL2__QK_NORM_HEADS_ROTATED
             ? "pictures in text models that normalise q and k after RoPE"
         : p->lora_max && apart              ? "pictures of this family together with adapters"
                                             : NULL;
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_supports(exl2__device *device, const exl2__plan *plan)
{
    const char *missing = exl2__cuda_tower_missing(plan);
    return missing ? exl2__fail(exl2__cuda_of(device)->c, EXL2_ERR_UNSUPPORTED,
                                "the CUDA backend does not compute %s; EXL2_BACKEND_CPU does", missing) : EXL2_OK;
}

EXL2__PRIVATE uint64_t exl2__cuda_tower_weight_bytes(const exl2__vision_config *v)
{
    return exl2__cuda_tower_weights_of(v).bytes;
}

/* Where the lines of a part go. */
typedef struct exl2__cuda_tower_place {
    uint64_t weight, bias;
    uint32_t pitch, offset, step, lines, dim, turned; /* as in exl2k_tower_weights_args */
    bool transposed;
} exl2__cuda_tower_place;

EXL2__PRIVATE exl2__cuda_tower_place exl2__cuda_tower_place_norm(exl2__cuda_tower_norm n)
{
    return (exl2__cuda_tower_place){ .weight = n.weight, .bias = n.bias, .pitch = 1, .step = 8 };
}

EXL2__PRIVATE exl2__cuda_tower_place exl2__cuda_tower_place_matrix(exl2__cuda_tower_matrix m, uint32_t offset,
                                                                   uint32_t step)
{
    return (exl2__cuda_tower_place){ .weight = m.weight, .bias = m.bias, .offset = offset, .step = step,
                                     .lines = EXL2K_TOWER_LINES(m.columns) };
}

EXL2__PRIVATE exl2__cuda_tower_place exl2__cuda_tower_place_head(const exl2__cuda_tower_weights *w, uint64_t base,
                                                                 uint32_t width, uint32_t part)
{
    exl2__cuda_tower_place place = { .pitch = 1, .step = 8 };
    switch (part) {
    case EXL2__TOWER_PATCH:
        place = exl2__cuda_tower_place_matrix(w->patch, 0, 8);
        break;
    case EXL2__TOWER_CLASS:
        place.weight = w->class_row;
        break;
    case EXL2__TOWER_POSITIONS:
        place.weight = w->positions;
        place.pitch = width;
        break;
    default:
        place = exl2__cuda_tower_place_norm(part == EXL2__TOWER_PRE_NORM ? w->pre_norm : w->post_norm);
        break;
    }
    place.weight += base;
    place.bias += base;
    return place;
}

EXL2__PRIVATE exl2__cuda_tower_place exl2__cuda_tower_place_layer(const exl2__vision_config *v,
                                                                  const exl2__cuda_tower_layer *layer, uint32_t part)
{
    switch (part) {
    case EXL2__TOWER_NORM_1:
        return exl2__cuda_tower_place_norm(layer->norm1);
    case EXL2__TOWER_NORM_2:
        return exl2__cuda_tower_place_norm(layer->norm2);
    case EXL2__TOWER_O:
        return exl2__cuda_tower_place_matrix(layer->out, 0, 8);
    case EXL2__TOWER_GATE:
        return exl2__cuda_tower_place_matrix(layer->up, 0, 16);
    case EXL2__TOWER_UPPER:
        return exl2__cuda_tower_place_matrix(layer->up, v->row->gated ? 8 : 0, v->row->gated ? 16 : 8);
    case EXL2__TOWER_LOWER:
        return exl2__cuda_tower_place_matrix(layer->down, 0, 8);
    default: {
        exl2__cuda_tower_place place = exl2__cuda_tower_place_matrix(layer->qkv, (part - EXL2__TOWER_Q) * v->width, 8);
        place.dim = v->head_dim;
        place.turned = v->row->rope ? 2 * v->width : 0;
        return place;
    }
    }
}

EXL2__PRIVATE exl2__cuda_tower_place exl2__cuda_tower_place_of(const exl2__cuda_model *m, uint32_t part)
{
    const exl2__vision_config *v = m->plan->tower;
    exl2__cuda_tower_weights w = exl2__cuda_tower_weights_of(v);
    if (part < EXL2__TOWER_HEAD_PARTS) {
        return exl2__cuda_tower_place_head(&w, m->tower.base, v->width, part);
    }
    part -= EXL2__TOWER_HEAD_PARTS;
    if (part < v->layers * EXL2__TOWER_LAYER_PARTS) {
        exl2__cuda_tower_layer layer = exl2__cuda_tower_layer_of(&w, m->tower.base, part / EXL2__TOWER_LAYER_PARTS);
        return exl2__cuda_tower_place_layer(v, &layer, part % EXL2__TOWER_LAYER_PARTS);
    }
    part -= v->layers * EXL2__TOWER_LAYER_PARTS;
    exl2__cuda_tower_level level = exl2__cuda_tower_level_of(&w, m->tower.base, part / EXL2__TOWER_PROJECTOR_PARTS);
    switch (part % EXL2__TOWER_PROJECTOR_PARTS) {
    case EXL2__TOWER_NORM:
        return exl2__cuda_tower_place_norm(level.norm);
    case EXL2__TOWER_MERGING:
        return exl2__cuda_tower_place_matrix(level.merge, 0, 8);
    case EXL2__TOWER_SECOND:
        return exl2__cuda_tower_place_matrix(level.linear2, 0, 8);
    default: {
        exl2__cuda_tower_place place = exl2__cuda_tower_place_matrix(level.linear1, 0, 8);
        place.transposed = v->row->transposed;
        return place;
    }
    }
}

/* Uploads `rows` rows of `in` elements, and writes them to their places. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_put(exl2__cuda_model *m, exl2k_tower_weights_args a, const void *data,
                                               uint32_t rows)
{
    uint64_t bytes = (uint64_t)rows * a.in * (a.type == EXL2K_TOWER_F32 ? 4 : 2);
    EXL2__TRY(exl2__cuda_staging_reserve(m, exl2__max64(bytes, EXL2__CUDA_SLOT_BYTES)));
    EXL2__TRY(exl2__cuda_upload(m, m->staging, data, bytes));
    a.from = m->staging;
    for (uint32_t done = 0, some; done < rows; done += some) { /* the grid's y has a limit */
        some = exl2__min32(rows - done, 32768);
        exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(a.in, 256), .y = some, .threads = 256 };
        EXL2__TRY(exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_tower_weights, grid, &a));
        a.from += bytes / rows * some;
        a.first += some;
    }
    return EXL2_OK;
}

/* Takes the memory of the weights, and clears it: what no tensor fills is padding, or a bias that there is not. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_open(exl2__cuda_model *m)
{
    uint64_t bytes = exl2__cuda_tower_weights_of(m->plan->tower).bytes;
    if (m->tower.base) {
        return EXL2_OK;
    }
    m->tower.base = exl2__cuda_arena_take(&m->weights, bytes);
    if (!m->tower.base) {
        return exl2__fail(m->c, EXL2_ERR_INTERNAL, "the weights of a tower need %llu bytes, which were not planned",
                          (unsigned long long)bytes);
    }
    return exl2__cuda_device_check(m->gpu, m->gpu->driver.fill8(m->tower.base, 0, (size_t)bytes, m->gpu->stream),
                                   "clearing the weights of a tower");
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_put_values(exl2__cuda_model *m, uint32_t part, bool bias,
                                                      const float *values, uint32_t count)
{
    EXL2__TRY(exl2__cuda_tower_open(m));
    exl2__cuda_tower_place place = exl2__cuda_tower_place_of(m, part);
    exl2k_tower_weights_args a = { .to = bias ? place.bias : place.weight, .in = 1, .type = EXL2K_TOWER_F32,
                                   .pitch = 1, .offset = place.offset, .step = place.step, .dim = place.dim,
                                   .turned = place.turned };
    return exl2__cuda_tower_put(m, a, values, count);
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_values(exl2__device *device, uint32_t part, bool bias, const float *values,
                                                  uint32_t count)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_tower_put_values(m, part, bias, values, count));
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_put_rows(exl2__cuda_model *m, uint32_t part, uint32_t in, exl2__dtype type,
                                                    const exl2__rows_slice *slice)
{
    EXL2__TRY(exl2__cuda_tower_open(m));
    exl2__cuda_tower_place place = exl2__cuda_tower_place_of(m, part);
    exl2k_tower_weights_args a = { .to = place.weight, .in = in, .first = slice->row, .type = (uint32_t)type,
                                   .pitch = place.pitch, .offset = place.offset, .step = place.step,
                                   .transposed = place.transposed, .lines = place.lines, .dim = place.dim,
                                   .turned = place.turned };
    return exl2__cuda_tower_put(m, a, slice->data, slice->rows);
}

EXL2__PRIVATE exl2_result exl2__cuda_tower_rows(exl2__device *device, uint32_t part, uint32_t in, exl2__dtype type,
                                                const exl2__rows_slice *slice)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_tower_put_rows(m, part, in, type, slice));
}

/* ---- tables ---- */

/* The angles of lines (axis 0) or columns (1), of places [first, first + count). */
EXL2__PRIVATE void exl2__cuda_tower_angles(const exl2__vision_config *v, uint32_t axis, uint32_t first, uint32_t count,
                                           float *out)
{
    uint32_t quarter = v->head_dim / 4;
    bool split = v->row->rope == EXL2__VISION_ROPE_SPLIT;
    for (uint32_t i = 0; i < count; i++, out += 2 * quarter) {
        for (uint32_t j = 0; j < quarter; j++) {
            double power = (4.0 * j + (split && axis ? 2 : 0)) / v->head_dim;
            double angle = (first + i) * pow(v->theta, -power);
            out[j] = (float)cos(angle);
            out[quarter + j] = (float)sin(angle);
        }
    }
}

/* Fills what does not depend on a picture: angles, the values of bytes, and the padding of heads. */
EXL2__PRIVATE exl2_result exl2__cuda_tower_tables(exl2__cuda_model *m)
{
    const exl2__vision_config *v = m->plan->tower;
    const exl2__cuda_tower_buffers *b = &m->b.tower;
    uint64_t line_bytes = v->head_dim / 4 * 2 * sizeof(float);
    uint32_t most = (uint32_t)(m->ring.slot_bytes / exl2__max64(line_bytes, 1));
    for (uint32_t i = 0, some; b->angles && i < 2 * b->sides; i += some) {
        void *slot;
        uint32_t axis = i / b->sides;
        some = exl2__min32((axis + 1) * b->sides - i, most);
        EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, some * line_bytes, true, &slot));
        exl2__cuda_tower_angles(v, axis, i - axis * b->sides, some, (float *)slot);
        EXL2__TRY(exl2__cuda_ring_send(m->gpu, &m->ring, b->angles + i * line_bytes, some * line_bytes));
    }
    float level[3 * 256];
    for (uint32_t i = 0; i < 3 * 256; i++) {
        double scaled = exl2__mul_double(i % 256, v->rescale) - v->mean[i / 256];
        level[i] = (float)(scaled / v->std[i / 256]);
    }
    EXL2__TRY(exl2__cuda_upload(m, b->levels, level, sizeof level));
    uint64_t heads = 3ull * b->rows_max * v->heads * exl2__cuda_tower_dim(v->head_dim) * 2;
    return exl2__cuda_device_check(m->gpu, m->gpu->driver.fill8(b->heads, 0, (size_t)heads, m->gpu->stream),
                                   "clearing buffers");
}

#endif
#endif
