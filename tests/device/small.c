/* small.c: the small kernels on the GPU (embedding, norms, RoPE table, page copies and fills, gathers) compared with
   references on the CPU.
   takes: nothing; a GPU.
   gives: exit code 0, 1, or 77 without a GPU. */
#include "private/half.h"
#include "private/cpu_sample_run.h"
#include "../../kernels_src/copy_args.h"
#include "../../kernels_src/embed_args.h"
#include "../../kernels_src/gather_args.h"
#include "../../kernels_src/norm_args.h"
#include "../../kernels_src/settle_args.h"
#include "../sample_reference.h"
#include "rig.h"

#define ROWS 5u    /* rows of a pass */
#define LAUNCHED 7u
#define SLOTS 40u
#define SLOTS_PITCH 256u

static uint64_t random_state = 29;

static float *random_floats(size_t count, double size)
{
    float *x = take(count * sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)((uniform(&random_state) * 2 - 1) * size);
    }
    return x;
}

static uint16_t *random_order(uint32_t count)
{
    uint16_t *map = take(count * sizeof *map);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)(mix(&random_state) % (i + 1));
        map[i] = map[j];
        map[j] = (uint16_t)i;
    }
    return map;
}

static void *downloaded(rig_buffer b)
{
    void *data = take(b.bytes);
    rig_download(b, 0, data, b.bytes);
    return data;
}

static bool is_poison(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (((const uint8_t *)data)[i] != 0xFF) {
            return false;
        }
    }
    return true;
}

/* ---- embedding ---- */

static void test_embed(const rig_module *m, uint32_t hidden, uint32_t kind, bool permuted, uint32_t parts,
                       bool positions)
{
    enum { TOKENS = 50 };
    uint32_t pitch = (hidden + 63) / 64 * 64 + 32, wrong = 0, value_bytes = kind == EXL2K_TABLE_F32 ? 4 : 2;
    float *values = random_floats((size_t)TOKENS * hidden, 40), *weight = random_floats(hidden, 2);
    uint16_t *map = random_order(hidden), *halves = take((size_t)TOKENS * hidden * 2);
    for (size_t i = 0; i < (size_t)TOKENS * hidden; i++) {
        uint32_t bits = exl2__float_bits(values[i]);
        halves[i] = kind == EXL2K_TABLE_F16 ? exl2__f32_to_f16(values[i]) : (uint16_t)(bits >> 16);
        if (kind != EXL2K_TABLE_F32) {
            values[i] = kind == EXL2K_TABLE_F16 ? exl2__f16_to_f32(halves[i])
                                                : exl2__bits_float((uint32_t)halves[i] << 16);
        }
    }
    exl2k_pass step = { .row_count = ROWS };
    exl2k_row rows[LAUNCHED] = { { .token = 3, .position = 7 }, { .token = TOKENS - 1, .position = 49 },
                                 { .token = TOKENS }, { .token = 3, .flags = EXL2K_ROW_DONE },
                                 { .token = 0, .position = TOKENS } };
    float scale = positions ? 1.375f : 1; /* learned positions are those of the table itself, in another place */
    rig_buffer b[] = {
        rig_buffer_of(&step, sizeof step), rig_buffer_of(rows, sizeof rows),
        rig_buffer_of(value_bytes == 4 ? (void *)values : (void *)halves, (size_t)TOKENS * hidden * value_bytes),
        rig_buffer_make(LAUNCHED * pitch * 4ull), rig_buffer_make(LAUNCHED * pitch * 2ull),
        rig_buffer_of(map, hidden * 2), rig_buffer_of(weight, hidden * 4),
        rig_buffer_make(LAUNCHED * SLOTS_PITCH * 4),
    };
    exl2k_embed_args a = { .pass = b[0].address, .rows = b[1].address, .table = b[2].address, .residual = b[3].address,
                           .out = b[4].address, .map = permuted ? b[5].address : 0, .weight = b[6].address,
                           .sums = b[7].address, .table_rows = TOKENS, .hidden = hidden, .kind = kind,
                           .residual_pitch = pitch, .out_pitch = pitch, .slots_pitch = SLOTS_PITCH, .slots = SLOTS,
                           .scale = scale };
    if (positions) {
        a.positions = b[2].address;
        a.position_rows = TOKENS;
        a.position_kind = kind;
    }
    rig_launch(m, "exl2k_embed", LAUNCHED, parts, EXL2K_EMBED_THREADS, 0, &a, sizeof a);
    float *residual = downloaded(b[3]), *sums = downloaded(b[7]);
    uint16_t *out = downloaded(b[4]);
    for (uint32_t r = 0; r < ROWS; r++) {
        double square = 0, sum = 0;
        if (rows[r].flags & EXL2K_ROW_DONE) {
            CHECK(is_poison(&residual[r * pitch], pitch * 4) && is_poison(&out[r * pitch], pitch * 2));
            CHECK(is_poison(&sums[r * SLOTS_PITCH], SLOTS * 4));
            continue;
        }
        for (uint32_t n = 0; n < hidden; n++) {
            float wanted = rows[r].token < TOKENS ? values[(size_t)rows[r].token * hidden + n] * scale : 0;
            uint32_t place = permuted ? map[n] : n;
            if (positions) { /* may be rounded once or twice */
                float got = residual[r * pitch + n], largest = fabsf(wanted);
                wanted += rows[r].position < TOKENS ? values[(size_t)rows[r].position * hidden + n] : 0;
                wrong += !(fabsf(got - wanted) <= 1e-6f * (largest + fabsf(wanted)));
                wanted = got;
            }
            square += (double)wanted * (double)wanted;
            wrong += residual[r * pitch + n] != wanted;
            wrong += out[r * pitch + place] != exl2__f32_to_f16(wanted * weight[n]);
        }
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            sum += (double)sums[r * SLOTS_PITCH + slot];
            wrong += slot >= parts && sums[r * SLOTS_PITCH + slot] != 0;
        }
        CHECK(fabs(sum - square) <= 1e-5 * square);
        CHECK(is_poison(&out[r * pitch + hidden], 64) && is_poison(&residual[r * pitch + hidden], 128));
    }
    CHECK_INT(wrong, 0);
    CHECK(is_poison(&residual[ROWS * pitch], 2 * pitch * 4) && is_poison(&out[ROWS * pitch], 2 * pitch * 2));
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    free(values); free(weight); free(map); free(halves); free(residual); free(sums); free(out);
}

/* Rows that another device hands over, with its sums of squares: the bits that the product there would have written.
   given: slots in use there. */
static void test_embed_handed(const rig_module *m, uint32_t hidden, uint32_t parts, uint32_t given, bool by_lanes)
{
    uint32_t pitch = (hidden + 63) / 64 * 64 + 32, wrong = 0;
    float *values = random_floats((size_t)LAUNCHED * hidden, 40), *weight = random_floats(hidden, 2);
    float *now = random_floats((size_t)LAUNCHED * SLOTS_PITCH, 900);
    float *before = random_floats((size_t)LAUNCHED * SLOTS_PITCH, 900);
    for (size_t i = 0; i < LAUNCHED * SLOTS_PITCH; i++) {
        now[i] = i % SLOTS_PITCH < given ? fabsf(now[i]) : 0;
        before[i] = i % SLOTS_PITCH < given ? fabsf(before[i]) : 0;
    }
    uint16_t *map = random_order(hidden);
    exl2k_pass step = { .row_count = ROWS };
    exl2k_row rows[LAUNCHED] = { { .token = 9, .flags = EXL2K_ROW_VECTOR }, { .token = 1 }, { .token = 2 },
                                 { .flags = EXL2K_ROW_DONE } };
    rig_buffer b[] = {
        rig_buffer_of(&step, sizeof step), rig_buffer_of(rows, sizeof rows),
        rig_buffer_of(values, (size_t)LAUNCHED * hidden * 4), rig_buffer_make(LAUNCHED * hidden * 4ull),
        rig_buffer_make(LAUNCHED * pitch * 2ull), rig_buffer_of(map, hidden * 2), rig_buffer_of(weight, hidden * 4),
        rig_buffer_make(LAUNCHED * SLOTS_PITCH * 4), rig_buffer_make(LAUNCHED * SLOTS_PITCH * 4),
        rig_buffer_of(now, LAUNCHED * SLOTS_PITCH * 4), rig_buffer_of(before, LAUNCHED * SLOTS_PITCH * 4),
    };
    exl2k_embed_args a = { .pass = b[0].address, .rows = b[1].address, .table = b[2].address, .residual = b[3].address,
                           .out = b[4].address, .map = b[5].address, .weight = b[6].address, .sums = b[7].address,
                           .sums_before = b[8].address, .handed_now = b[9].address, .handed_before = b[10].address,
                           .hidden = hidden, .kind = EXL2K_TABLE_HANDED, .residual_pitch = hidden, .out_pitch = pitch,
                           .slots_pitch = SLOTS_PITCH, .slots = SLOTS, .by_lanes = by_lanes, .eps = 1e-5f,
                           .inverse_hidden = 1.0f / (float)hidden };
    rig_launch(m, "exl2k_embed", LAUNCHED, parts, EXL2K_EMBED_THREADS, 0, &a, sizeof a);
    float *residual = downloaded(b[3]), *sums[2] = { downloaded(b[7]), downloaded(b[8]) };
    const float *from[2] = { now, before };
    uint16_t *out = downloaded(b[4]);
    for (uint32_t r = 0; r < ROWS; r++) {
        if (rows[r].flags & EXL2K_ROW_DONE) {
            CHECK(is_poison(&residual[(size_t)r * hidden], hidden * 4) && is_poison(&out[r * pitch], pitch * 2));
            continue;
        }
        double sum = 0;
        for (uint32_t slot = 0; slot < SLOTS_PITCH; slot++) {
            sum += (double)before[r * SLOTS_PITCH + slot];
        }
        double rho = 1 / sqrt(sum / hidden + 1e-5);
        for (uint32_t n = 0; n < hidden; n++) {
            float value = values[(size_t)r * hidden + n];
            double wanted = (double)value * (double)weight[n] * rho;
            double got = (double)exl2__f16_to_f32(out[r * pitch + map[n]]);
            wrong += residual[(size_t)r * hidden + n] != value;
            wrong += !(fabs(got - wanted) <= 6e-4 * fabs(wanted) + 1e-7);
        }
        for (uint32_t i = 0; i < 2; i++) {
            for (uint32_t slot = 0; slot < SLOTS; slot++) {
                float wanted = 0; /* slots that this device does not have are added to those that it has */
                for (uint32_t k = slot; k < SLOTS_PITCH; k += SLOTS) {
                    wanted += from[i][r * SLOTS_PITCH + k];
                }
                wrong += sums[i][r * SLOTS_PITCH + slot] != wanted;
            }
        }
    }
    CHECK_INT(wrong, 0);
    CHECK(is_poison(&residual[(size_t)ROWS * hidden], 2 * hidden * 4));
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    free(values); free(weight); free(now); free(before); free(map); free(residual); free(out);
    free(sums[0]); free(sums[1]);
}

/* ---- norm ---- */

/* Index of input n of a row in tiles of 32 inputs of TILE_ROWS rows: see wg_tiles.cuh. */
#define TILE_ROWS 8u
static size_t tile_index(uint32_t row, uint32_t n)
{
    return ((size_t)(n / 32) * TILE_ROWS + row) * 32 + ((n / 2 % 4) ^ (row / 2 % 4)) * 8 + n / 8 % 4 * 2 + n % 2;
}

/* tiled: the output has tiles, as gemm_wg reads them */
static void test_norm(const rig_module *m, uint32_t hidden, bool permuted, bool picked, bool tiled)
{
    uint32_t pitch = (hidden + 63) / 64 * 64 + 32, present = ROWS, wrong = 0;
    float *residual = random_floats((size_t)LAUNCHED * pitch, 3), *weight = random_floats(hidden, 2);
    uint16_t *map = random_order(hidden);
    exl2k_sampling samplings[LAUNCHED] = { { .row = 6 }, { .row = 0 }, { .row = 3 }, { .row = 3 }, { .row = 5 } };
    const float eps = 1e-5f;
    residual[7] = 3000; /* an outlier */
    rig_buffer b[] = {
        rig_buffer_of(&present, 4), rig_buffer_of(residual, (size_t)LAUNCHED * pitch * 4),
        rig_buffer_of(samplings, sizeof samplings),
        rig_buffer_of(weight, hidden * 4), rig_buffer_make(TILE_ROWS * pitch * 2ull), rig_buffer_of(map, hidden * 2),
    };
    exl2k_norm_args a = { .rows_at = b[0].address, .residual = b[1].address, .samplings = picked ? b[2].address : 0,
                          .weight = b[3].address, .out = b[4].address, .map = permuted ? b[5].address : 0,
                          .hidden = hidden, .residual_pitch = pitch, .out_pitch = pitch, .eps = eps,
                          .tile_rows = tiled ? TILE_ROWS : 0 };
    rig_launch(m, "exl2k_norm", LAUNCHED, 1, EXL2K_NORM_THREADS, 0, &a, sizeof a);
    uint16_t *out = downloaded(b[4]);
    for (uint32_t r = 0; r < ROWS; r++) {
        const float *x = residual + (size_t)(picked ? samplings[r].row : r) * pitch;
        double square = 0;
        for (uint32_t n = 0; n < hidden; n++) {
            square += (double)x[n] * (double)x[n];
        }
        double rho = 1 / sqrt(square / hidden + (double)eps);
        for (uint32_t n = 0; n < hidden; n++) {
            double wanted = (double)x[n] * rho * (double)weight[n];
            uint32_t place = permuted ? map[n] : n;
            uint16_t *at = &out[tiled ? tile_index(r, place) : r * pitch + place];
            double got = (double)exl2__f16_to_f32(*at);
            /* half a unit of fp16, plus 1e-5 for the norm itself */
            wrong += !(fabs(got - wanted) <= fabs(wanted) * (0x1p-11 + 1e-5) + 0x1p-25);
            *at = 0xFFFF;
        }
    }
    CHECK_INT(wrong, 0);
    CHECK(is_poison(out, TILE_ROWS * pitch * 2)); /* nothing else was written */
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    free(residual); free(weight); free(map); free(out);
}

/* Device time of a norm of many rows, permuted, as in a prompt. */
static void time_norm(const rig_module *m, uint32_t hidden, uint32_t rows)
{
    float *residual = random_floats((size_t)rows * hidden, 3);
    uint16_t *map = random_order(hidden);
    rig_buffer b[] = {
        rig_buffer_of(&rows, 4), rig_buffer_of(residual, (size_t)rows * hidden * 4),
        rig_buffer_of(residual, hidden * 4), rig_buffer_make((uint64_t)rows * (hidden + 64) * 2),
        rig_buffer_of(map, hidden * 2),
    };
    exl2k_norm_args a = { .rows_at = b[0].address, .residual = b[1].address, .weight = b[2].address,
                          .out = b[3].address, .map = b[4].address, .hidden = hidden, .residual_pitch = hidden,
                          .out_pitch = hidden + 64, .eps = 1e-5f };
    exl2__cuda_function *function = rig_function(m, "exl2k_norm");
    double best = 1e30;
    for (int i = 0; i < 20; i++) { /* clocks rise */
        rig_start();
        for (int k = 0; k < 16; k++) {
            rig_run(function, rows, 1, EXL2K_NORM_THREADS, 0, &a, sizeof a);
        }
        double us = rig_stop() / 16;
        best = us < best ? us : best;
    }
    printf("norm: %u rows of %u elements: %.1f us\n", rows, hidden, best);
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    free(residual); free(map);
}

/* step: positions from one line of the table to the next */
static void test_rope(const rig_module *m, uint32_t half, uint32_t positions, uint32_t step)
{
    double frequency[128], worst = 0;
    for (uint32_t i = 0; i < half; i++) {
        frequency[i] = pow(500000, -2.0 * i / (2 * half));
    }
    size_t pairs = (size_t)positions * half;
    rig_buffer b = rig_buffer_of(frequency, half * sizeof *frequency), table = rig_buffer_make(pairs * 8);
    exl2k_rope_args a = { .frequency = b.address, .table = table.address, .half = half, .positions = positions,
                          .step = step, .rotated = half, .magnitude = 1 };
    rig_launch(m, "exl2k_rope_table", (uint32_t)((pairs + 255) / 256), 1, 256, 0, &a, sizeof a);
    float *got = downloaded(table);
    for (size_t i = 0; i < pairs; i++) {
        double angle = (double)(i / half) * step * frequency[i % half];
        double error = fmax(fabs((double)got[2 * i] - cos(angle)), fabs((double)got[2 * i + 1] - sin(angle)));
        worst = error <= worst ? worst : error;
    }
    CHECK(worst < 1e-6);
    printf("rope: %u positions, %u apart, %u pairs: off by %.2g\n", positions, step, half, worst);
    free(got);
    rig_buffer_free(&b);
    rig_buffer_free(&table);
}

/* ---- settle ---- */

typedef struct settle_case {
    bool layer_norm, branch, identity, two, picked, tiled;
    double mean; /* of the residual; its deviation is about 1 */
} settle_case;

/* x in double, normalised in place. */
static void settle_norm(double *x, uint32_t count, bool layer_norm, const float *weight, const float *bias)
{
    double mean = 0, square = 0;
    for (uint32_t n = 0; n < count; n++) {
        mean += layer_norm ? x[n] / count : 0;
    }
    for (uint32_t n = 0; n < count; n++) {
        square += (x[n] - mean) * (x[n] - mean);
    }
    for (uint32_t n = 0; n < count; n++) {
        x[n] = (x[n] - mean) / sqrt(square / count + 1e-5) * (double)weight[n] + (layer_norm ? (double)bias[n] : 0);
    }
}

static void test_settle(const rig_module *m, uint32_t hidden, const settle_case *c)
{
    uint32_t pitch = (hidden + 63) / 64 * 64 + 32, present = ROWS, wrong = 0;
    size_t count = (size_t)LAUNCHED * hidden;
    float *residual = random_floats(count, 1.7), *branch = random_floats(count, 3), *vectors[4];
    double *sum = take(hidden * sizeof *sum), *y = take(hidden * sizeof *y), worst = 0;
    uint16_t *maps[2] = { random_order(hidden), random_order(hidden) };
    exl2k_sampling samplings[LAUNCHED] = { { .row = 6 }, { .row = 0 }, { .row = 3 }, { .row = 3 }, { .row = 5 } };
    const float scale = 0.75f;
    for (size_t i = 0; i < count; i++) {
        residual[i] += (float)c->mean;
        branch[i] += c->layer_norm ? 20 : 0;
    }
    for (uint32_t i = 0; i < 4; i++) {
        vectors[i] = random_floats(hidden, 2);
    }
    residual[7] = c->identity ? 70000 : residual[7]; /* is clamped */
    residual[8] = c->identity ? NAN : residual[8]; /* stays what it is */
    rig_buffer b[] = {
        rig_buffer_of(&present, 4), rig_buffer_of(samplings, sizeof samplings), rig_buffer_of(residual, count * 4),
        rig_buffer_of(branch, count * 4), rig_buffer_of(vectors[0], hidden * 4), rig_buffer_of(vectors[1], hidden * 4),
        rig_buffer_of(vectors[2], hidden * 4), rig_buffer_of(vectors[3], hidden * 4),
        rig_buffer_of(maps[0], hidden * 2), rig_buffer_of(maps[1], hidden * 2),
        rig_buffer_make(TILE_ROWS * pitch * 2ull), rig_buffer_make(TILE_ROWS * pitch * 2ull),
    };
    exl2k_settle_args a = { .rows_at = b[0].address, .samplings = c->picked ? b[1].address : 0,
                            .residual = b[2].address, .branch = c->branch ? b[3].address : 0,
                            .post_weight = b[4].address, .post_bias = c->layer_norm ? b[5].address : 0,
                            .weight = c->identity ? 0 : b[6].address, .bias = c->layer_norm ? b[7].address : 0,
                            .out = { b[10].address, c->two ? b[11].address : 0 },
                            .map = { c->two ? b[8].address : 0, b[9].address }, .hidden = hidden, .out_pitch = pitch,
                            .layer_norm = c->layer_norm, .eps = 1e-5f, .scale = scale,
                            .tile_rows = c->tiled ? TILE_ROWS : 0 };
    rig_launch(m, "exl2k_settle", LAUNCHED, 1, exl2k_settle_threads(hidden), 0, &a, sizeof a);
    float *got = downloaded(b[2]);
    uint16_t *out[2] = { downloaded(b[10]), downloaded(b[11]) };
    for (uint32_t r = 0; r < ROWS; r++) {
        size_t row = (size_t)(c->picked ? samplings[r].row : r) * hidden;
        for (uint32_t n = 0; n < hidden; n++) {
            y[n] = (double)branch[row + n];
        }
        settle_norm(y, hidden, c->layer_norm, vectors[0], vectors[1]);
        for (uint32_t n = 0; n < hidden; n++) {
            sum[n] = (double)residual[row + n] + (c->branch ? (double)scale * y[n] : 0);
            double off = fabs((double)got[row + n] - sum[n]);
            bool good = isnan(sum[n]) ? isnan(got[row + n]) : off <= 1e-5 * (1 + fabs(sum[n]));
            wrong += !good;
            y[n] = sum[n] = (double)got[row + n];
        }
        if (!c->identity) {
            settle_norm(y, hidden, c->layer_norm, vectors[2], vectors[3]);
        }
        for (uint32_t n = 0; n < hidden; n++) {
            uint32_t place = c->two ? maps[0][n] : n, other = maps[1][n];
            uint16_t *at = &out[0][c->tiled ? tile_index(r, place) : r * pitch + place], first = *at;
            uint16_t *second = &out[1][c->tiled ? tile_index(r, other) : r * pitch + other];
            wrong += c->two && *second != first;
            *at = *second = 0xFFFF;
            double wanted = fmin(y[n], 65504), half = fabs(wanted) * 0x1p-11;
            double off = fabs((double)exl2__f16_to_f32(first) - wanted);
            if (isnan(y[n])) {
                wrong += isnan(exl2__f16_to_f32(first)) ? 0 : 1;
                continue;
            }
            worst = off - half > worst ? off - half : worst;
            wrong += !(off <= half + 1e-3);
        }
    }
    CHECK_INT(wrong, 0);
    CHECK(is_poison(out[0], TILE_ROWS * pitch * 2) && is_poison(out[1], TILE_ROWS * pitch * 2)); /* nothing else */
    CHECK(memcmp(&got[ROWS * hidden], &residual[ROWS * hidden], 2 * hidden * 4) == 0);
    if (c->mean > 1) {
        printf("settle: %u elements with mean %g: off by %.1e and a rounding\n", hidden, c->mean, worst);
    }
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    for (uint32_t i = 0; i < 4; i++) {
        free(vectors[i]);
    }
    free(residual); free(branch); free(sum); free(y); free(maps[0]); free(maps[1]);
    free(got); free(out[0]); free(out[1]);
}

/* Device time of one launch for one row, in a graph of 64. */
static void time_settle(const rig_module *m, uint32_t hidden, bool branch)
{
    uint32_t present = 1;
    rig_buffer rows = rig_buffer_of(&present, 4), b[5];
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        b[i] = rig_buffer_make(hidden * 4 + 256);
        float *values = random_floats(hidden, 1);
        rig_upload(b[i], 0, values, hidden * 4);
        free(values);
    }
    uint16_t *order = random_order(hidden);
    rig_upload(b[4], 0, order, hidden * 2);
    free(order);
    exl2k_settle_args a = { .rows_at = rows.address, .residual = b[0].address, .branch = branch ? b[1].address : 0,
                            .post_weight = b[2].address, .weight = b[2].address, .out = { b[3].address, 0 },
                            .map = { b[4].address, 0 }, .hidden = hidden, .out_pitch = hidden + 64, .eps = 1e-5f,
                            .scale = 1e-3f, .layer_norm = !branch };
    rig_capture();
    rig.programmatic = true;
    exl2__cuda_function *function = rig_function(m, "exl2k_settle");
    for (uint32_t i = 0; i < 64; i++) {
        rig_run(function, 1, 1, exl2k_settle_threads(hidden), 0, &a, sizeof a);
    }
    rig.programmatic = false;
    exl2__cuda_graph_exec *graph = rig_captured();
    rig_replay(graph);
    rig_wait();
    rig_start();
    for (uint32_t i = 0; i < 10; i++) {
        rig_replay(graph);
    }
    printf("settle: one row of %u elements%s: %.2f us\n", hidden, branch ? " with a branch" : ", LayerNorm",
           rig_stop() / 640);
    rig.driver.graph_exec_free(graph);
    rig_buffer_free(&rows);
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
}

static void test_settles(const rig_module *m, uint32_t hidden)
{
    static const settle_case cases[] = {
        { false, true, false, false, false, false, 0 }, { false, true, true, false, false, false, 3 },
        { true, false, false, true, false, false, 0 },  { true, true, false, true, false, false, 100 },
        { true, false, false, false, false, false, 100 }, { false, false, false, false, true, false, 0 },
        { true, false, false, true, true, false, -100 }, { false, true, false, false, false, true, 0 },
        { true, false, false, true, false, true, 3 },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        if (!cases[i].tiled || (hidden % 32 == 0 && hidden <= EXL2K_SETTLE_STAGED)) {
            test_settle(m, hidden, &cases[i]);
        }
    }
    if (rig_is_timed()) {
        time_settle(m, hidden, false);
        time_settle(m, hidden, true);
    }
}

/* ---- copies ---- */

static void test_copies(const rig_module *m, uint32_t page_bytes, uint32_t layers)
{
    enum { PAGES = 9, COPIES = 20 };
    size_t bytes = (size_t)layers * PAGES * page_bytes;
    uint32_t copies[COPIES][2];
    uint8_t *pages = take(bytes);
    for (size_t i = 0; i < bytes; i++) {
        pages[i] = (uint8_t)mix(&random_state);
    }
    rig_buffer b = rig_buffer_of(pages, bytes);
    for (uint32_t i = 0; i < COPIES; i++) { /* many copies read a page that an earlier copy wrote */
        copies[i][0] = (uint32_t)(mix(&random_state) % PAGES);
        copies[i][1] = (uint32_t)(mix(&random_state) % PAGES);
        for (uint32_t l = 0; l < layers; l++) {
            uint8_t *layer = pages + (size_t)l * PAGES * page_bytes;
            memmove(layer + (size_t)copies[i][1] * page_bytes, layer + (size_t)copies[i][0] * page_bytes, page_bytes);
        }
    }
    rig_buffer list = rig_buffer_of(copies, sizeof copies);
    exl2k_copy_args a = { list.address, b.address, COPIES, PAGES, page_bytes, 0 };
    uint32_t grid = (page_bytes + 16 * EXL2K_COPY_THREADS - 1) / (16 * EXL2K_COPY_THREADS);
    rig_launch(m, "exl2k_copy_pages", grid, layers, EXL2K_COPY_THREADS, 0, &a, sizeof a);
    uint8_t *got = downloaded(b);
    CHECK(memcmp(got, pages, bytes) == 0);
    free(got);
    free(pages);
    rig_buffer_free(&b);
    rig_buffer_free(&list);
}

/* ---- parts with their own permutations ---- */

static void test_gather(const rig_module *m, uint32_t count)
{
    uint32_t pitch = (count + 63) / 64 * 64 + 64, wrong = 0;
    uint16_t *from = take((size_t)ROWS * pitch * 2), *map = random_order(count);
    for (size_t i = 0; i < (size_t)ROWS * pitch; i++) {
        from[i] = (uint16_t)mix(&random_state);
    }
    rig_buffer b[] = { rig_buffer_of(from, (size_t)ROWS * pitch * 2), rig_buffer_of(map, count * 2),
                       rig_buffer_make((ROWS + 1) * pitch * 2ull) };
    exl2k_gather_args a = { b[0].address, b[2].address, b[1].address, 0, count, pitch };
    rig_launch(m, "exl2k_gather", ROWS, 1, EXL2K_GATHER_THREADS, 0, &a, sizeof a);
    uint16_t *out = downloaded(b[2]);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t n = 0; n < count; n++) {
            wrong += out[r * pitch + map[n]] != from[r * pitch + n];
        }
        for (uint32_t n = count; n < pitch; n++) { /* products read the padding */
            wrong += out[r * pitch + n] != 0;
        }
    }
    CHECK_INT(wrong, 0);
    CHECK(is_poison(&out[ROWS * pitch], pitch * 2));
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    free(from); free(map); free(out);
}

static double activation(uint32_t act, double v)
{
    double cube = 0.7978845608028654 * (v + 0.044715 * v * v * v);
    return act == EXL2K_ACT_SILU ? v / (1 + exp(-v)) : act == EXL2K_ACT_GELU_TANH ? 0.5 * v * (1 + tanh(cube))
         : act == EXL2K_ACT_GELU ? 0.5 * v * erfc(-v / sqrt(2)) : v > 0 ? v * v : 0;
}

static void test_join(const rig_module *m, uint32_t count, uint32_t act)
{
    uint32_t pitch = (count + 63) / 64 * 64 + 64, wrong = 0;
    float *from = random_floats((size_t)ROWS * 2 * count, 6);
    from[0] = -200; /* exp(200) overflows a float */
    from[1] = 300;
    from[count + 1] = 400; /* 300 * 400 is clamped to the largest fp16 value */
    rig_buffer b[] = { rig_buffer_of(from, (size_t)ROWS * 2 * count * 4), rig_buffer_make((ROWS + 1) * pitch * 2ull) };
    exl2k_act_mul_args a = { b[0].address, b[1].address, 0, count, pitch, act, 0 };
    rig_launch(m, "exl2k_act_mul", ROWS, 1, EXL2K_GATHER_THREADS, 0, &a, sizeof a);
    uint16_t *out = downloaded(b[1]);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t n = 0; n < count; n++) {
            double gate = (double)from[r * 2 * count + n], up = (double)from[(r * 2 + 1) * count + n];
            double wanted = fmin(activation(act, gate) * up, 65504);
            double got = (double)exl2__f16_to_f32(out[r * pitch + n]);
            /* GELU's tail has an absolute error of 1e-7 times |gate| */
            double tail = act == EXL2K_ACT_GELU ? 2e-7 * fabs(gate * up) : 0;
            wrong += !(fabs(got - wanted) <= fabs(wanted) * (0x1p-11 + 1e-5) + 0x1p-25 + tail);
        }
        CHECK(is_poison(&out[r * pitch + count], (pitch - count) * 2));
    }
    CHECK_INT(wrong, 0);
    CHECK(is_poison(&out[ROWS * pitch], pitch * 2));
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    free(from); free(out);
}

int main(int argc, char **argv)
{
    static const uint32_t widths[] = { 64, 576, 577, 2048, 4096, 16384, 20000 };
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    rig_module embed = rig_load("embed.cu", NULL), norm = rig_load("norm.cu", NULL), copy = rig_load("copy.cu", NULL);
    rig_module gather = rig_load("gather.cu", NULL), settle = rig_load("settle.cu", NULL);
    for (size_t i = 0; i < EXL2__COUNT(widths); i++) {
        for (uint32_t kind = 0; kind < 3; kind++) {
            test_embed(&embed, widths[i], kind, (kind + i) % 2, kind == 0 ? 1 : kind == 1 ? 3 : SLOTS, false);
            test_embed(&embed, widths[i], kind, (kind + i) % 2, kind == 0 ? 1 : kind == 1 ? 3 : SLOTS, true);
        }
        for (uint32_t kind = 0; kind < 4; kind++) {
            test_embed_handed(&embed, widths[i], kind < 2 ? 1 : 3, kind % 2 ? SLOTS_PITCH : SLOTS, kind == 2);
        }
        for (uint32_t kind = 0; kind < 8; kind++) {
            test_norm(&norm, widths[i], kind & 1, kind & 2, kind & 4);
        }
    }
    if (rig_is_timed()) {
        time_norm(&norm, 4096, 2048);
        time_norm(&norm, 8192, 512);
    }
    for (size_t i = 0; i < EXL2__COUNT(widths); i++) {
        test_gather(&gather, widths[i]);
        test_join(&gather, widths[i], EXL2K_ACT_SILU + (uint32_t)(i % 4));
    }
    static const uint32_t settled[] = { 33, 576, 2048, 4096, 8192, 8193, 20000 };
    for (size_t i = 0; i < EXL2__COUNT(settled); i++) {
        test_settles(&settle, settled[i]);
    }
    test_rope(&norm, 2, 1u << 20, 1);
    test_rope(&norm, 40, 9000, 1);
    test_rope(&norm, 128, 4097, 1);
    test_rope(&norm, 64, 1u << 13, 128);
    test_copies(&copy, 16, 1);
    test_copies(&copy, 64 * 3 * 64 * 4, 3);
    test_copies(&copy, 5008, 2);
    rig_unload(&embed);
    rig_unload(&norm);
    rig_unload(&copy);
    rig_unload(&gather);
    rig_unload(&settle);
    rig_close();
    return check_done();
}
