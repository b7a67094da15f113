/* fake_tower.h: the kernels of towers (tower_args.h) in plain C, for the fake driver: so the host code of a tower is
   checked against goldens without a GPU. They follow what tower_args.h says, and share no code with the kernels.
   takes: launches, as fake.run.
   gives: fake_tower_run.
   owns:  nothing. */
#ifndef FAKE_TOWER_H
#define FAKE_TOWER_H

#include "fake_model.h"

#include "private/half.h"

#include <math.h>

/* Array element `at` of device memory; every access is checked. */
static inline float *fake_tower_f32(uint64_t address, uint64_t at)
{
    return (float *)fake_model_at(address + at * 4, 4);
}

static inline uint32_t fake_tower_u32(uint64_t address, uint64_t at)
{
    return *(uint32_t *)fake_model_at(address + at * 4, 4);
}

static inline float fake_tower_half(uint64_t address, uint64_t at)
{
    return exl2__f16_to_f32(*(uint16_t *)fake_model_at(address + at * 2, 2));
}

static inline void fake_tower_set_half(uint64_t address, uint64_t at, float value)
{
    *(uint16_t *)fake_model_at(address + at * 2, 2) = exl2__f32_to_f16(value);
}

/* TILES of tower_args.h: where element `element` of a line is. */
static uint64_t fake_tower_at(uint32_t line, uint32_t element, uint32_t lines)
{
    if (lines % EXL2K_TOWER_TILE || line >= lines) {
        fake_misuse("a line of a tower's tiles is outside of them");
    }
    return ((uint64_t)(element / 64) * lines + line) * 64 + (element / 8 % 8 ^ line % 8) * 8 + element % 8;
}

static void fake_tower_weights(const exl2k_tower_weights_args *a, const unsigned grid[3])
{
    for (uint32_t y = 0; y < grid[1]; y++) {
        for (uint32_t i = 0; i < a->in; i++) {
            uint64_t from = (uint64_t)y * a->in + i;
            uint16_t bits = a->type == EXL2K_TOWER_F32 ? 0 : *(uint16_t *)fake_model_at(a->from + from * 2, 2);
            float v = a->type == EXL2K_TOWER_F32    ? *fake_tower_f32(a->from, from)
                      : a->type == EXL2K_TOWER_BF16 ? exl2__bf16_to_f32(bits)
                                                    : exl2__f16_to_f32(bits);
            uint32_t n = a->first + y, line = a->transposed ? i : n, element = a->transposed ? n : i;
            uint32_t place = a->offset + line / 8 * a->step + line % 8;
            if (place < a->turned) { /* line i of a head, and i + dim / 2 */
                uint32_t of = place % a->dim;
                place += of % (a->dim / 2) * 2 + of / (a->dim / 2) - of;
            }
            if (a->lines) {
                fake_tower_set_half(a->to, fake_tower_at(place, element, a->lines), v);
            } else {
                *fake_tower_f32(a->to, (uint64_t)place * a->pitch + element) = v;
            }
        }
    }
}

static void fake_tower_patches(const exl2k_tower_patches_args *a, uint32_t rows)
{
    for (uint32_t row = a->row; row < a->row + rows; row++) {
        uint32_t patch = row < a->before ? 0 : fake_tower_u32(a->order, row - a->before), at = 0;
        for (uint32_t channel = 0; channel < 3; channel++) {
            for (uint32_t f = 0; f < a->frames; f++) {
                for (uint32_t i = 0; i < a->patch * a->patch; i++, at++) {
                    uint32_t y = patch / a->columns * a->patch + i / a->patch;
                    uint32_t x = patch % a->columns * a->patch + i % a->patch;
                    uint64_t pixel = a->pixels + (uint64_t)f * a->frame_bytes + (uint64_t)y * a->line_bytes + x * 3;
                    uint8_t byte = *(uint8_t *)fake_model_at(pixel + channel, 1);
                    float v = row < a->before ? 0 : *fake_tower_f32(a->levels, channel * 256 + byte);
                    fake_tower_set_half(a->out, fake_tower_at(row, at, a->rows_max), v / EXL2K_TOWER_SCALE);
                }
            }
        }
        for (; at < a->pitch; at++) {
            fake_tower_set_half(a->out, fake_tower_at(row, at, a->rows_max), 0);
        }
    }
}

/* y [count] becomes its norm. weight 0: it stays. */
static void fake_tower_normalize(float *y, uint32_t count, uint64_t weight, uint64_t bias, bool rms, float eps)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += (double)y[i];
    }
    double mean = rms ? 0 : sum / count;
    for (uint32_t i = 0; i < count; i++) {
        square += ((double)y[i] - mean) * ((double)y[i] - mean);
    }
    double factor = 1 / sqrt(square / count + (double)eps);
    for (uint32_t i = 0; weight && i < count; i++) {
        double v = ((double)y[i] - mean) * factor * (double)*fake_tower_f32(weight, i);
        y[i] = (float)(v + (bias ? (double)*fake_tower_f32(bias, i) : 0));
    }
}

static double fake_tower_place(const exl2k_tower_norm_args *a, uint32_t line, uint32_t column, uint32_t i)
{
    return (double)*fake_tower_f32(a->table, ((uint64_t)line * a->side + column) * a->width + i);
}

static void fake_tower_norm(const exl2k_tower_norm_args *a, uint32_t rows)
{
    static float y[8192];
    for (uint32_t row = a->row; row < a->row + rows; row++) {
        bool first = row < a->before;
        uint32_t patch = a->kind && !first ? fake_tower_u32(a->order, row - a->before) : 0;
        for (uint32_t i = 0; i < a->width; i++) {
            y[i] = first ? *fake_tower_f32(a->class_row, i) : *fake_tower_f32(a->x, (uint64_t)row * a->pitch + i);
            if (a->kind == EXL2K_TOWER_TABLE_PLACES) {
                y[i] += *fake_tower_f32(a->table, (uint64_t)(first ? 0 : patch + a->before) * a->width + i);
            } else if (a->kind == EXL2K_TOWER_TABLE_BILINEAR) {
                uint32_t last = a->side - 1;
                double line = a->lines > 1 ? (double)(patch / a->columns) * last / (a->lines - 1) : 0;
                double column = a->columns > 1 ? (double)(patch % a->columns) * last / (a->columns - 1) : 0;
                uint32_t l = (uint32_t)line, c = (uint32_t)column, l1 = l < last ? l + 1 : l, c1 = c < last ? c + 1 : c;
                double right = column - c;
                double up = fake_tower_place(a, l, c, i) * (1 - right) + fake_tower_place(a, l, c1, i) * right;
                double low = fake_tower_place(a, l1, c, i) * (1 - right) + fake_tower_place(a, l1, c1, i) * right;
                y[i] += (float)(up * (1 - (line - l)) + low * (line - l));
            }
        }
        fake_tower_normalize(y, a->width, a->weight, a->bias, a->rms, a->eps);
        for (uint32_t i = 0; i < a->out_pitch; i++) {
            float v = i < a->width ? y[i] : 0;
            if (a->rows_max) {
                fake_tower_set_half(a->out, fake_tower_at(row, i, a->rows_max), v / EXL2K_TOWER_SCALE);
            } else {
                *fake_tower_f32(a->out, (uint64_t)row * a->out_pitch + i) = v;
            }
        }
    }
}

static double fake_tower_act(const exl2k_tower_product_args *a, double v)
{
    double z = (double)a->plain + (double)a->linear * v + (double)a->cubic * v * v * v;
    return a->act == EXL2K_TOWER_GELU ? v * 0.5 * (1 + erf(v / sqrt(2.0))) : v / (1 + exp(-z));
}

/* y of a row and a column. */
static double fake_tower_y(const exl2k_tower_product_args *a, uint32_t row, uint32_t column)
{
    double sum = 0;
    for (uint32_t k = 0; k < a->k; k++) {
        sum += (double)fake_tower_half(a->x, fake_tower_at(row, k, a->rows_max))
             * (double)fake_tower_half(a->weight, fake_tower_at(column, k, EXL2K_TOWER_LINES(a->columns)));
    }
    return sum * (double)EXL2K_TOWER_SCALE + (double)*fake_tower_f32(a->bias, column);
}

/* y of q, k or v, rotated: the pairs of a head are neighbours. */
static void fake_tower_set_head(const exl2k_tower_product_args *a, uint32_t row, uint32_t column)
{
    uint32_t head = column / a->dim, i = column % a->dim, quarter = a->dim / 4, pair = i / 2;
    double y = fake_tower_y(a, row, column);
    if (a->angles && head < 2 * a->heads) {
        uint32_t patch = fake_tower_u32(a->order, row);
        uint32_t line = pair < quarter ? patch / a->patches : a->sides + patch % a->patches;
        uint64_t at = (uint64_t)line * 2 * quarter + pair % quarter;
        double c = (double)*fake_tower_f32(a->angles, at), s = (double)*fake_tower_f32(a->angles, at + quarter);
        double other = fake_tower_y(a, row, i % 2 ? column - 1 : column + 1);
        y = i % 2 ? y * c + other * s : y * c - other * s;
    }
    fake_tower_set_half(a->out, ((uint64_t)head * a->rows_max + row) * a->padded + i,
                        (float)(y / (double)EXL2K_TOWER_SCALE));
}

/* whole: k is not split. */
static void fake_tower_product(const exl2k_tower_product_args *a, const unsigned grid[3], uint32_t tile_columns,
                               bool whole)
{
    bool half = a->kind == EXL2K_TOWER_ACT || a->kind == EXL2K_TOWER_GATED, gated = a->kind == EXL2K_TOWER_GATED;
    uint32_t columns = half ? a->out_pitch * (gated ? 2 : 1) : a->columns;
    if (grid[0] != (a->rows - a->row + EXL2K_TOWER_TILE - 1) / EXL2K_TOWER_TILE * fake.cluster
        || grid[1] != (columns + tile_columns - 1) / tile_columns || a->k % EXL2K_TOWER_DEPTH
        || fake.cluster > a->k / EXL2K_TOWER_DEPTH || (fake.cluster > 1 && whole)) {
        fake_misuse("a product of a tower has the wrong grid");
    }
    for (uint32_t row = a->row; row < a->rows; row++) {
        for (uint32_t c = 0; c < (half ? a->out_pitch : a->columns); c++) {
            uint64_t to = (uint64_t)row * a->out_pitch + c;
            if (a->kind == EXL2K_TOWER_HEADS) {
                fake_tower_set_head(a, row, c);
                continue;
            }
            double y = fake_tower_y(a, row, gated ? c / 8 * 16 + c % 8 : c);
            if (gated) {
                y = fake_tower_act(a, y) * fake_tower_y(a, row, c / 8 * 16 + c % 8 + 8);
            } else if (half) {
                y = fake_tower_act(a, y);
            }
            if (half) {
                fake_tower_set_half(a->out, fake_tower_at(row, c, a->rows_max), (float)(y / (double)EXL2K_TOWER_SCALE));
            } else {
                float *out = fake_tower_f32(a->out, to);
                *out = (float)(a->kind == EXL2K_TOWER_ADD ? (double)*out + y : y);
            }
        }
    }
}

static void fake_tower_attend(const exl2k_tower_attend_args *a, const unsigned grid[3], uint32_t padded,
                              uint32_t tile_rows)
{
    static double weight[8192];
    uint64_t all = (uint64_t)a->heads * a->rows_max * padded;
    uint32_t end_row = a->row + grid[0] * tile_rows;
    for (uint32_t row = a->row; row < end_row && row < a->rows; row++) {
        uint32_t begin = a->segments ? fake_tower_u32(a->segments, 2ull * row) : 0;
        uint32_t end = a->segments ? fake_tower_u32(a->segments, 2ull * row + 1) : a->rows;
        for (uint32_t head = 0; head < grid[1]; head++) {
            uint64_t of = (uint64_t)head * a->rows_max * padded;
            double most = -1e300, sum = 0;
            for (uint32_t key = begin; key < end; key++) {
                weight[key] = 0;
                for (uint32_t i = 0; i < padded; i++) {
                    weight[key] += (double)fake_tower_half(a->heads_at, of + (uint64_t)row * padded + i)
                                 * (double)fake_tower_half(a->heads_at, all + of + (uint64_t)key * padded + i);
                }
                weight[key] *= (double)a->scale;
                most = fmax(most, weight[key]);
            }
            for (uint32_t key = begin; key < end; key++) {
                weight[key] = exp2(weight[key] - most);
                sum += weight[key];
            }
            for (uint32_t i = 0; i < a->dim; i++) {
                double v = 0;
                for (uint32_t key = begin; key < end; key++) {
                    v += weight[key] * (double)fake_tower_half(a->heads_at, 2 * all + of + (uint64_t)key * padded + i);
                }
                fake_tower_set_half(a->out, fake_tower_at(row, head * a->dim + i, a->rows_max), (float)(v / sum));
            }
        }
    }
}

static void fake_tower_merge(const exl2k_tower_merge_args *a, uint32_t rows)
{
    static float y[32768];
    uint32_t many = a->side * a->side, count = a->direct || a->kind == EXL2K_TOWER_MEAN ? a->width : a->width * many;
    for (uint32_t row = a->row; row < a->row + rows; row++) {
        memset(y, 0, count * sizeof *y);
        for (uint32_t k = 0; k < (a->direct ? 1 : many); k++) {
            uint32_t line = a->direct ? 0 : row / a->cells * a->side + k / a->side;
            uint32_t column = a->direct ? 0 : row % a->cells * a->side + k % a->side;
            uint32_t from = a->direct ? row : a->before + fake_tower_u32(a->at, line * a->columns + column);
            for (uint32_t i = 0; i < a->width; i++) {
                float v = *fake_tower_f32(a->x, (uint64_t)from * a->pitch + i);
                uint32_t at = a->direct || a->kind == EXL2K_TOWER_MEAN ? i
                              : a->kind == EXL2K_TOWER_CYX             ? i * many + k
                                                                       : k * a->width + i;
                y[at] += a->kind == EXL2K_TOWER_MEAN && !a->direct ? v / (float)many : v;
            }
        }
        fake_tower_normalize(y, count, a->weight, a->bias, a->rms, a->eps);
        for (uint32_t i = 0; i < a->out_pitch; i++) {
            fake_tower_set_half(a->out, fake_tower_at(row, i, a->rows_max), i < count ? y[i] / EXL2K_TOWER_SCALE : 0);
        }
    }
}

static void fake_tower_check(const exl2k_tower_check_args *a)
{
    for (uint64_t i = 0; i < a->count; i++) {
        if (!isfinite(*fake_tower_f32(a->x, i))) {
            *(uint32_t *)fake_model_at(a->bad, 4) = 1;
        }
    }
}

/* Kernels of towers; all others as fake_model_run. */
static void fake_tower_run(const char *function, const void *arguments, const unsigned grid[3])
{
    if (strcmp(function, "exl2k_tower_weights") == 0) {
        fake_tower_weights(arguments, grid);
    } else if (strcmp(function, "exl2k_tower_patches") == 0) {
        fake_tower_patches(arguments, grid[0]);
    } else if (strcmp(function, "exl2k_tower_norm") == 0) {
        fake_tower_norm(arguments, grid[0]);
    } else if (strcmp(function, "exl2k_tower_product") == 0 || strncmp(function, "exl2k_tower_wg_", 15) == 0) {
        fake_tower_product(arguments, grid, strcmp(function, "exl2k_tower_wg_narrow") == 0 ? 64 : 128,
                           strcmp(function, "exl2k_tower_product") == 0);
    } else if (strncmp(function, "exl2k_tower_attend", 18) == 0) {
        bool wg = function[18] == '_';
        uint32_t dim = (uint32_t)strtoul(function + (wg ? 21 : 18), NULL, 10);
        fake_tower_attend(arguments, grid, dim, wg && dim == 80 ? 192 : EXL2K_TOWER_TILE);
    } else if (strcmp(function, "exl2k_tower_merge") == 0) {
        fake_tower_merge(arguments, grid[0]);
    } else if (strcmp(function, "exl2k_tower_check") == 0) {
        fake_tower_check(arguments);
    } else {
        fake_model_run(function, arguments, grid);
    }
}

#endif
