/* tower_kernels.c: products and attention of towers at the widths of real models, on the GPU, compared with sums in
   double of some of their elements; the fixtures' models are narrow. And the time of each launch.
   takes: a GPU; `products` or `attention`: only these; `few`: small ones, for compute-sanitizer.
   gives: exit code 0, 1, or 77 without a GPU. */
#include "private/half.h"
#include "../../kernels_src/tower_args.h"
#include "rig.h"

#include <math.h>

#define SOME 400u /* elements of a result that are compared */

static uint32_t state = 7;
static bool few;

static uint32_t next(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static double in_range(double size) { return ((double)next() / (1 << 23) - 1) * size; }

/* fp16 [rows, pitch]; elements after `width` are zeros. */
static uint16_t *halves(uint64_t rows, uint32_t width, uint32_t pitch, double size)
{
    uint16_t *x = calloc((size_t)(rows * pitch), sizeof *x);
    for (uint64_t i = 0; i < rows * pitch; i++) {
        x[i] = i % pitch < width ? exl2__f32_to_f16((float)in_range(size)) : 0;
    }
    return x;
}

/* Where the kernels expect element `element` of a line. */
static uint64_t place(uint64_t line, uint32_t element, uint64_t lines)
{
    return (element / 64 * lines + line) * 64 + (element / 8 ^ line) % 8 * 8 + element % 8;
}

/* A copy in TILES of tower_args.h; lines after the last one are NaN. */
static rig_buffer tiles_of(const uint16_t *x, uint32_t lines, uint32_t pitch)
{
    uint32_t all = (lines + 127) / 128 * 128;
    uint16_t *to = malloc((size_t)all * pitch * 2);
    memset(to, 0xFF, (size_t)all * pitch * 2);
    for (uint32_t i = 0; i < lines; i++) {
        for (uint32_t k = 0; k < pitch; k++) {
            to[place(i, k, all)] = x[(uint64_t)i * pitch + k];
        }
    }
    rig_buffer b = rig_buffer_of(to, (size_t)all * pitch * 2);
    free(to);
    return b;
}

static double half_at(const uint16_t *x, uint64_t at) { return (double)exl2__f16_to_f32(x[at]); }

/* ---- products ---- */

typedef struct product_of {
    const char *file, *function;
    uint32_t columns, threads, shared_bytes;
    uint32_t splits; /* of k: CTAs of a cluster that share a tile */
} product_of;

typedef struct shape_of {
    uint32_t rows, k, columns, kind, dim; /* dim: of heads with angles, or of 54: none */
} shape_of;

/* ---- products that give heads ---- */

#define PATCHES 40u /* of a line */
#define SIDES 130u

static uint32_t head_padded(uint32_t dim) { return dim <= 64 ? 64 : 80; }

/* f32 [2, SIDES, 2, dim / 4]. */
static float *angles_of(uint32_t dim)
{
    uint32_t count = SIDES * (dim + 1);
    float *angles = calloc(count, sizeof *angles);
    for (uint32_t i = 0; i < count; i++) {
        angles[i] = (float)in_range(1);
    }
    return angles;
}

/* The order of rows: patches from the last one on. */
static uint32_t *order_of(uint32_t rows)
{
    uint32_t *order = calloc(rows, sizeof *order);
    for (uint32_t i = 0; i < rows; i++) {
        order[i] = rows - 1 - i;
    }
    return order;
}

/* y of column c of a head, and of its neighbour. */
static double rotated(const float *angles, uint32_t dim, uint32_t patch, uint32_t c, const double y[2])
{
    uint32_t quarter = dim / 4, pair = c % dim / 2;
    uint32_t line = pair < quarter ? patch / PATCHES : SIDES + patch % PATCHES;
    const float *angle = angles + line * 2 * quarter + pair % quarter;
    double cosine = (double)angle[0], sine = (double)angle[quarter];
    return c % 2 ? y[0] * cosine + y[1] * sine : y[0] * cosine - y[1] * sine;
}

/* ---- all products ---- */

static void launch(const rig_module *module, const product_of *p, uint32_t rows, uint32_t tiles,
                   const exl2k_tower_product_args *a)
{
    exl2k_tower_product_args copy = *a;
    void *arguments[1] = { &copy };
    if (p->splits == 1) {
        rig_launch(module, p->function, (rows + 127) / 128, tiles, p->threads, p->shared_bytes, a, sizeof *a);
        return;
    }
    exl2__cuda_function *function = rig_function(module, p->function);
    exl2__cuda_launch_attribute cluster = { .id = EXL2__CUDA_LAUNCH_CLUSTER, .value = { .xyz = { p->splits, 1, 1 } } };
    exl2__cuda_launch call = { { (rows + 127) / 128 * p->splits, tiles, 1 }, { p->threads, 1, 1 }, p->shared_bytes,
                               rig.stream, &cluster, 1 };
    rig_try(rig.driver.function_set(function, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, (int)p->shared_bytes), p->function);
    rig_try(rig.driver.launch_with(&call, function, arguments, NULL), "cuLaunchKernelEx");
}

static double activated(double v) { return v / (1 + exp(-1.702 * v)); }

static void products(const product_of *p)
{
    static const shape_of shapes[] = {
        { 4096, 1280, 6912, EXL2K_TOWER_ACT, 0 }, { 4096, 3456, 1280, EXL2K_TOWER_ADD, 0 },
        { 1024, 1280, 1280, EXL2K_TOWER_ADD, 0 }, { 1024, 3456, 1280, EXL2K_TOWER_ADD, 0 },
        { 1024, 768, 2304, EXL2K_TOWER_STORE, 0 }, { 1024, 3072, 768, EXL2K_TOWER_ADD, 0 },
        { 1000, 1152, 4304, EXL2K_TOWER_ACT, 0 },  { 1025, 1280, 3420, EXL2K_TOWER_GATED, 0 },
        { 64, 12288, 576, EXL2K_TOWER_STORE, 0 },  { 4096, 64, 1027, EXL2K_TOWER_ADD, 0 },
        { 260, 192, 100, EXL2K_TOWER_GATED, 0 },   { 4800, 1280, 3840, EXL2K_TOWER_STORE, 0 },
        { 4784, 1280, 3840, EXL2K_TOWER_HEADS, 80 }, { 1000, 1152, 3456, EXL2K_TOWER_HEADS, 72 },
        { 300, 192, 486, EXL2K_TOWER_HEADS, 54 },    { 130, 256, 320, EXL2K_TOWER_ADD, 0 },
        { 100, 320, 384, EXL2K_TOWER_HEADS, 64 },    { 70, 576, 77, EXL2K_TOWER_ACT, 0 },
    };
    if (!rig_exists(p->file)) {
        return;
    }
    rig_module module = rig_load(p->file, NULL);
    for (uint32_t n = 0; n < EXL2__COUNT(shapes); n++) {
        shape_of s = shapes[n];
        uint64_t tile_count = (uint64_t)((s.rows + 127) / 128) * ((s.columns + p->columns - 1) / p->columns);
        if ((few && (double)s.rows * s.k * s.columns > 1e8) || s.k / 64 < p->splits
            || (p->splits > 1 && tile_count * p->splits > 300)) { /* as the engine splits them */
            continue;
        }
        bool gated = s.kind == EXL2K_TOWER_GATED, heads = s.kind == EXL2K_TOWER_HEADS;
        bool half = s.kind == EXL2K_TOWER_ACT || gated || heads, turns = heads && s.dim != 54;
        uint32_t own = half && !heads ? (s.columns + 63) / 64 * 64 : s.columns, lines = own * (gated ? 2 : 1);
        uint32_t padded = head_padded(s.dim), wide = heads ? s.columns / s.dim * padded : own;
        uint32_t all = (lines + 127) / 128 * 128;
        uint16_t *x = halves(s.rows, s.k, s.k, 1.0 / 64), *w = halves(all, s.k, s.k, 2 / sqrt(s.k));
        float *bias = calloc(all, sizeof *bias), *old = calloc((size_t)s.rows * own, sizeof *old);
        for (uint32_t i = 0; i < all; i++) {
            bias[i] = (float)in_range(0.5);
        }
        for (uint64_t i = 0; i < (uint64_t)s.rows * own; i++) {
            old[i] = (float)in_range(1);
        }
        uint32_t rows_max = (s.rows + 127) / 128 * 128;
        size_t bytes = (size_t)(half ? rows_max : s.rows) * wide * (half ? 2 : 4);
        float *angles = angles_of(s.dim);
        uint32_t *order = order_of(s.rows);
        rig_buffer turned = rig_buffer_of(angles, SIDES * (s.dim + 1) * sizeof *angles);
        rig_buffer orders = rig_buffer_of(order, s.rows * sizeof *order);
        rig_buffer xs = tiles_of(x, s.rows, s.k), ws = tiles_of(w, all, s.k);
        rig_buffer biases = rig_buffer_of(bias, all * sizeof *bias), out = rig_buffer_make(bytes);
        void *got = malloc(bytes), *again = malloc(bytes);
        exl2k_tower_product_args a = { .x = xs.address, .weight = ws.address, .bias = biases.address,
                                       .out = out.address, .rows = s.rows, .rows_max = rows_max, .columns = lines,
                                       .k = s.k, .out_pitch = own, .kind = s.kind, .act = EXL2K_TOWER_LOGISTIC,
                                       .linear = 1.702f, .angles = turns ? turned.address : 0,
                                       .order = orders.address, .heads = heads ? s.columns / s.dim / 3 : 0,
                                       .dim = s.dim, .padded = padded, .sides = SIDES, .patches = PATCHES };
        uint32_t tiles = (lines + p->columns - 1) / p->columns;
        for (uint32_t part = 0; part < 2; part++) { /* at once; the last tiles, then the first ones */
            if (!half) {
                rig_upload(out, 0, old, bytes);
            }
            uint32_t rows = s.rows, cut = part ? (rows - 1) / 256 * 128 : 0;
            a.row = cut;
            launch(&module, p, rows - cut, tiles, &a);
            if (cut) {
                a.row = 0;
                a.rows = cut;
                launch(&module, p, cut, tiles, &a);
                a.rows = s.rows;
            }
            rig_download(out, 0, part ? again : got, bytes);
        }
        CHECK(memcmp(got, again, bytes) == 0);
        double worst = 0;
        for (uint32_t i = 0; i < SOME; i++) {
            uint32_t row = i < 4 ? s.rows - 1 : next() % s.rows, c = i < 4 ? own - 1 - i : next() % own;
            double y[2] = { 0, 0 };
            for (uint32_t j = 0; j < (gated || turns ? 2u : 1u); j++) {
                uint32_t line = gated ? c / 8 * 16 + c % 8 + 8 * j : turns ? c ^ j : c;
                for (uint32_t k = 0; k < s.k; k++) {
                    y[j] += half_at(x, (uint64_t)row * s.k + k) * half_at(w, (uint64_t)line * s.k + k);
                }
                y[j] = y[j] * 64 + (double)bias[line];
            }
            uint64_t at = (uint64_t)row * own + c;
            double want = gated                         ? activated(y[0]) * y[1]
                          : s.kind == EXL2K_TOWER_ACT   ? activated(y[0])
                          : s.kind == EXL2K_TOWER_ADD   ? y[0] + (double)old[at]
                          : turns && c < own / 3 * 2    ? rotated(angles, s.dim, order[row], c, y)
                                                        : y[0];
            double is = heads ? half_at(got, ((uint64_t)(c / s.dim) * rows_max + row) * padded + c % s.dim) * 64
                      : half  ? half_at(got, place(row, c, rows_max)) * 64 : (double)((float *)got)[at];
            double off = fabs(is - want) / (fabs(want) + 0.1);
            worst = off > worst || off != off ? off : worst;
        }
        CHECK(worst < (half ? 2e-3 : 2e-4));
        rig_start();
        for (uint32_t i = 0; i < 10; i++) {
            launch(&module, p, s.rows, tiles, &a);
        }
        double us = rig_stop() / 10;
        printf("%s in %u: %u x %u x %u, kind %u: off by %.1g; %.1f us, %.0f TFLOP/s\n", p->function, p->splits, s.rows,
               s.k, lines, s.kind, worst, us, 2e-6 * s.rows * s.k * lines / us);
        rig_buffer_free(&xs);
        rig_buffer_free(&ws);
        rig_buffer_free(&biases);
        rig_buffer_free(&out);
        rig_buffer_free(&turned);
        rig_buffer_free(&orders);
        free(angles);
        free(order);
        free(x);
        free(w);
        free(bias);
        free(old);
        free(got);
        free(again);
    }
    rig_unload(&module);
}

/* ---- attention ---- */

static void attention(const rig_module *module, const char *function, uint32_t padded, uint32_t dim, uint32_t threads,
                      uint32_t shared, uint32_t rows, uint32_t segment)
{
    if (few && rows > 300) {
        return;
    }
    const uint32_t heads = 16, pitch = (heads * dim + 63) / 64 * 64, rows_max = (rows + 127) / 128 * 128;
    uint64_t all = (uint64_t)heads * rows_max * padded;
    uint16_t *x = halves(3 * heads * (uint64_t)rows_max, dim, padded, 1.0 / 16);
    uint32_t *segments = calloc(rows, 2 * sizeof *segments);
    for (uint32_t i = 0; segment && i < rows; i++) { /* some are shorter */
        uint32_t first = i / segment * segment, middle = first + segment / 3;
        uint32_t end = i < middle ? middle : first + segment;
        segments[2 * i] = i < middle ? first : middle;
        segments[2 * i + 1] = end < rows ? end : rows;
    }
    for (uint32_t i = 0; i < dim && rows > 2; i++) { /* scores that grow late */
        uint64_t at = ((uint64_t)heads * rows_max + rows - 2) * padded + i;
        x[at] = exl2__f32_to_f16((float)half_at(x, at) * 16);
    }
    size_t bytes = (size_t)rows_max * pitch * 2;
    rig_buffer xs = rig_buffer_of(x, (size_t)all * 3 * 2), seen = rig_buffer_of(segments, (size_t)rows * 8);
    rig_buffer out = rig_buffer_make(bytes);
    uint16_t *got = malloc(bytes), *again = malloc(bytes);
    exl2k_tower_attend_args a = { .heads_at = xs.address, .segments = segment ? seen.address : 0, .out = out.address,
                                  .rows = rows, .rows_max = rows_max, .heads = heads, .dim = dim,
                                  .scale = (float)(64 * 64 * 1.4426950408889634 / sqrt(dim)) };
    for (uint32_t part = 0; part < 2; part++) {
        uint32_t cut = part ? (rows - 1) / 256 * 128 : 0;
        rig_poison(out);
        a.row = cut;
        rig_launch(module, function, (rows - cut + threads / 2 - 1) / (threads / 2), heads, threads, shared, &a,
                   sizeof a);
        if (cut) {
            a.row = 0;
            rig_launch(module, function, (cut + threads / 2 - 1) / (threads / 2), heads, threads, shared, &a, sizeof a);
        }
        rig_download(out, 0, part ? again : got, bytes);
    }
    CHECK(memcmp(got, again, bytes) == 0);
    double worst = 0, *weight = calloc(rows, sizeof *weight);
    for (uint32_t i = 0; i < SOME / 10; i++) {
        uint32_t row = i < 2 && i < rows ? rows - 1 - i : next() % rows, head = i < 2 ? heads - 1 : next() % heads;
        uint32_t begin = segment ? segments[2 * row] : 0, end = segment ? segments[2 * row + 1] : rows;
        uint64_t of = (uint64_t)head * rows_max * padded;
        double sum = 0, square = 0, differ = 0;
        for (uint32_t key = begin; key < end; key++) {
            double score = 0;
            for (uint32_t e = 0; e < dim; e++) {
                score += half_at(x, of + (uint64_t)row * padded + e)
                       * half_at(x, all + of + (uint64_t)key * padded + e);
            }
            weight[key] = exp2(score * (double)a.scale);
            sum += weight[key];
        }
        for (uint32_t e = 0; e < dim; e++) {
            double want = 0, is = half_at(got, place(row, head * dim + e, rows_max));
            for (uint32_t key = begin; key < end; key++) {
                want += weight[key] * half_at(x, 2 * all + of + (uint64_t)key * padded + e) / sum;
            }
            square += want * want;
            differ += (is - want) * (is - want);
        }
        double off = sqrt(differ / square);
        worst = off > worst || off != off ? off : worst;
    }
    CHECK(worst < 3e-3);
    rig_start();
    for (uint32_t i = 0; i < 10; i++) {
        rig_launch(module, function, (rows + threads / 2 - 1) / (threads / 2), heads, threads, shared, &a, sizeof a);
    }
    double us = rig_stop() / 10, seen_rows = segment ? 0 : rows;
    printf("%s: dim %u, %u rows, segments of %u: off by %.1g; %.1f us, %.0f TFLOP/s\n", function, dim, rows, segment,
           worst, us, 4e-6 * rows * seen_rows * dim * heads / us);
    rig_buffer_free(&xs);
    rig_buffer_free(&seen);
    rig_buffer_free(&out);
    free(x);
    free(segments);
    free(got);
    free(again);
    free(weight);
}

int main(int argc, char **argv)
{
    few = argc > 1 && strcmp(argv[1], "few") == 0;
    bool all = argc < 2 || few, attends_only = !all && strcmp(argv[1], "attention") == 0;
    static const product_of kernels[] = {
        { "tower_product.cu", "exl2k_tower_product", 128, 256, EXL2K_TOWER_SHARED, 1 },
#define PAIR(splits) \
    { "tower_wg.cu", "exl2k_tower_wg_pair", 128, 288, EXL2K_TOWER_WG_SHARED(256, EXL2K_TOWER_PAIR_STAGES), splits }
#define NARROW(splits) \
    { "tower_wg.cu", "exl2k_tower_wg_narrow", 64, 288, EXL2K_TOWER_WG_SHARED(192, EXL2K_TOWER_NARROW_STAGES), splits }
        PAIR(1), NARROW(1), PAIR(2), NARROW(2), PAIR(3), NARROW(3), NARROW(5), PAIR(8), NARROW(8),
    };
    static const struct { const char *function; uint32_t padded, dim, threads; } attends[] = {
        { "exl2k_tower_attend32", 32, 32, 256 },       { "exl2k_tower_attend64", 64, 64, 256 },
        { "exl2k_tower_attend80", 80, 80, 256 },       { "exl2k_tower_attend80", 80, 72, 256 },
        { "exl2k_tower_attend128", 128, 128, 256 },    { "exl2k_tower_attend128", 128, 96, 256 },
    };
    rig_open("kernels_src");
    for (uint32_t i = 0; !attends_only && i < EXL2__COUNT(kernels); i++) {
        products(&kernels[i]);
    }
    if (!all && !attends_only) {
        rig_close();
        return check_done();
    }
    rig_module module = rig_load("tower_attend.cu", NULL);
    for (uint32_t i = 0; i < EXL2__COUNT(attends); i++) {
        attention(&module, attends[i].function, attends[i].padded, attends[i].dim, attends[i].threads, 0, 1030, 0);
        attention(&module, attends[i].function, attends[i].padded, attends[i].dim, attends[i].threads, 0, 4096, 0);
        attention(&module, attends[i].function, attends[i].padded, attends[i].dim, attends[i].threads, 0, 1030, 64);
        attention(&module, attends[i].function, attends[i].padded, attends[i].dim, attends[i].threads, 0, 300, 70);
        attention(&module, attends[i].function, attends[i].padded, attends[i].dim, attends[i].threads, 0, 200, 0);
        attention(&module, attends[i].function, attends[i].padded, attends[i].dim, attends[i].threads, 0, 4096, 390);
    }
    rig_unload(&module);
    if (rig_exists("tower_attend_wg.cu")) {
        static const uint32_t dims[] = { 64, 56, 80, 72 };
        module = rig_load("tower_attend_wg.cu", NULL);
        for (uint32_t i = 0; i < EXL2__COUNT(dims); i++) {
            uint32_t padded = i < 2 ? 64 : 80;
            const char *function = i < 2 ? "exl2k_tower_attend_wg64" : "exl2k_tower_attend_wg80";
            static const uint32_t rows[] = { 4096, 1030, 1024, 300, 65, 1 };
            for (uint32_t n = 0; n < EXL2__COUNT(rows); n++) {
                uint32_t threads = i < 2 ? 256 : 384;
                attention(&module, function, padded, dims[i], threads, EXL2K_TOWER_ATTEND_SHARED(padded), rows[n],
                          0);
            }
        }
        rig_unload(&module);
    }
    rig_close();
    return check_done();
}
