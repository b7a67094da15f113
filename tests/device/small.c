/* small.c: the small kernels on the GPU (embedding, norm, RoPE table, page copies and fills, gathers) compared with
   references on the CPU.
   takes: nothing; a GPU.
   gives: exit code 0, 1, or 77 without a GPU.
   owns:  nothing that outlives the program. */
#include "../../exl2_impl/0_base/half.h"
#include "../../exl2_impl/3_backend/sample/cpu_sample.h"
#include "../../kernels_src/copy_args.h"
#include "../../kernels_src/embed_args.h"
#include "../../kernels_src/gather_args.h"
#include "../../kernels_src/norm_args.h"
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

static void test_embed(const rig_module *m, uint32_t hidden, uint32_t kind, bool permuted, uint32_t parts)
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
    exl2k_row rows[LAUNCHED] = { { .token = 3 }, { .token = TOKENS - 1 }, { .token = TOKENS },
                                 { .token = 3, .flags = EXL2K_ROW_DONE }, { .token = 0 } };
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
                           .residual_pitch = pitch, .out_pitch = pitch, .slots_pitch = SLOTS_PITCH, .slots = SLOTS };
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
            float wanted = rows[r].token < TOKENS ? values[(size_t)rows[r].token * hidden + n] : 0;
            uint32_t place = permuted ? map[n] : n;
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

/* ---- norm ---- */

static void test_norm(const rig_module *m, uint32_t hidden, bool permuted, bool picked)
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
        rig_buffer_of(weight, hidden * 4), rig_buffer_make(LAUNCHED * pitch * 2ull), rig_buffer_of(map, hidden * 2),
    };
    exl2k_norm_args a = { .rows_at = b[0].address, .residual = b[1].address, .samplings = picked ? b[2].address : 0,
                          .weight = b[3].address, .out = b[4].address, .map = permuted ? b[5].address : 0,
                          .hidden = hidden, .residual_pitch = pitch, .out_pitch = pitch, .eps = eps };
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
            double got = (double)exl2__f16_to_f32(out[r * pitch + (permuted ? map[n] : n)]);
            /* half a unit of fp16, plus 1e-5 for the norm itself */
            wrong += !(fabs(got - wanted) <= fabs(wanted) * (0x1p-11 + 1e-5) + 0x1p-25);
        }
        CHECK(is_poison(&out[r * pitch + hidden], 64));
    }
    CHECK_INT(wrong, 0);
    CHECK(is_poison(&out[ROWS * pitch], 2 * pitch * 2));
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    free(residual); free(weight); free(map); free(out);
}

static void test_rope(const rig_module *m, uint32_t half, uint32_t positions)
{
    double frequency[128], worst = 0;
    for (uint32_t i = 0; i < half; i++) {
        frequency[i] = pow(500000, -2.0 * i / (2 * half));
    }
    size_t pairs = (size_t)positions * half;
    rig_buffer b = rig_buffer_of(frequency, half * sizeof *frequency), table = rig_buffer_make(pairs * 8);
    exl2k_rope_args a = { b.address, table.address, half, positions, half, 1.0f };
    rig_launch(m, "exl2k_rope_table", (uint32_t)((pairs + 255) / 256), 1, 256, 0, &a, sizeof a);
    float *got = downloaded(table);
    for (size_t i = 0; i < pairs; i++) {
        double angle = (double)(i / half) * frequency[i % half];
        double error = fmax(fabs((double)got[2 * i] - cos(angle)), fabs((double)got[2 * i + 1] - sin(angle)));
        worst = error <= worst ? worst : error;
    }
    CHECK(worst < 1e-6);
    printf("rope: %u positions, %u pairs: off by %.2g\n", positions, half, worst);
    free(got);
    rig_buffer_free(&b);
    rig_buffer_free(&table);
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
        CHECK(is_poison(&out[r * pitch + count], (pitch - count) * 2));
    }
    CHECK_INT(wrong, 0);
    CHECK(is_poison(&out[ROWS * pitch], pitch * 2));
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    free(from); free(map); free(out);
}

static void test_join(const rig_module *m, uint32_t count, bool permuted)
{
    uint32_t pitch = (count + 63) / 64 * 64 + 64, wrong = 0;
    float *from = random_floats((size_t)ROWS * 2 * count, 6);
    uint16_t *map = random_order(count);
    from[0] = -200; /* exp(200) overflows a float */
    from[1] = 300;
    from[count + 1] = 400; /* 300 * 400 is clamped to the largest fp16 value */
    rig_buffer b[] = { rig_buffer_of(from, (size_t)ROWS * 2 * count * 4), rig_buffer_of(map, count * 2),
                       rig_buffer_make((ROWS + 1) * pitch * 2ull) };
    exl2k_silu_mul_args a = { b[0].address, b[2].address, permuted ? b[1].address : 0, 0, count, pitch };
    rig_launch(m, "exl2k_silu_mul", ROWS, 1, EXL2K_GATHER_THREADS, 0, &a, sizeof a);
    uint16_t *out = downloaded(b[2]);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t n = 0; n < count; n++) {
            double gate = (double)from[r * 2 * count + n], up = (double)from[(r * 2 + 1) * count + n];
            double wanted = fmin(gate / (1 + exp(-gate)) * up, 65504);
            double got = (double)exl2__f16_to_f32(out[r * pitch + (permuted ? map[n] : n)]);
            wrong += !(fabs(got - wanted) <= fabs(wanted) * (0x1p-11 + 1e-5) + 0x1p-25);
        }
        CHECK(is_poison(&out[r * pitch + count], (pitch - count) * 2));
    }
    CHECK_INT(wrong, 0);
    CHECK(is_poison(&out[ROWS * pitch], pitch * 2));
    for (size_t i = 0; i < EXL2__COUNT(b); i++) {
        rig_buffer_free(&b[i]);
    }
    free(from); free(map); free(out);
}

int main(int argc, char **argv)
{
    static const uint32_t widths[] = { 64, 576, 577, 2048, 4096, 16384, 20000 };
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    rig_module embed = rig_load("embed.cu", NULL), norm = rig_load("norm.cu", NULL), copy = rig_load("copy.cu", NULL);
    rig_module gather = rig_load("gather.cu", NULL);
    for (size_t i = 0; i < EXL2__COUNT(widths); i++) {
        for (uint32_t kind = 0; kind < 3; kind++) {
            test_embed(&embed, widths[i], kind, (kind + i) % 2, kind == 0 ? 1 : kind == 1 ? 3 : SLOTS);
        }
        for (uint32_t kind = 0; kind < 4; kind++) {
            test_norm(&norm, widths[i], kind & 1, kind & 2);
        }
    }
    for (size_t i = 0; i < EXL2__COUNT(widths); i++) {
        test_gather(&gather, widths[i]);
        test_join(&gather, widths[i], i % 2);
    }
    test_rope(&norm, 2, 1u << 20);
    test_rope(&norm, 40, 9000);
    test_rope(&norm, 128, 4097);
    test_copies(&copy, 16, 1);
    test_copies(&copy, 64 * 3 * 64 * 4, 3);
    test_copies(&copy, 5008, 2);
    rig_unload(&embed);
    rig_unload(&norm);
    rig_unload(&copy);
    rig_unload(&gather);
    rig_close();
    return check_done();
}
