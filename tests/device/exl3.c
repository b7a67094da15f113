/* exl3.c: EXL3 matrices on the GPU: decoded values to the bit, and products of few and of many rows.
   takes: [kernels_src [few | speed [2 K ...] | profile 2K ROWS ... | splits 2K ROWS ... | crowd 2K ROWS ...]];
          $EXL2_TEST_DATA: fixtures/exl3/matrix; a GPU.
   gives: exit code 0, 1, or 77 without a GPU or without the fixtures; the largest errors. speed: figures of one layer
          of 8B instead, for each rate and codebook. profile: each product of that layer once, for ncu;
          splits: times of MUL1 at one rate, then those of few rows by the number of splits; crowd: the same of 2 to 64
          rows, and without exl3_crowd.cuh.

   The fixtures pin the decoder (exl2k_exl3_dump). Products of other shapes are compared with a reference in double that
   starts from what the decoder gave. */
#include "exl3_alone.h"

#define ROWS 300 /* of inputs */

static double worst_single, worst_half;

static double expected(const bench *b, const shot *s, uint32_t row, uint32_t n)
{
    const double *value = b->value + (size_t)(s->first + row) * b->columns;
    if (s->kind == EXL2K_EXL3_ACT) {
        double gate = value[n] / (1 + exp(-value[n]));
        return b->parts == 1 ? gate : gate * value[b->part[0].columns + n];
    }
    if (s->kind == EXL2K_EXL3_RESIDUAL) {
        return (double)b->before[(size_t)(s->first + row) * b->columns + n] + (double)s->scale * value[n];
    }
    double y = (double)s->scale * value[n];
    return s->cap > 0 ? (double)s->cap * tanh(y / (double)s->cap) : y;
}

/* The largest error of a shot, against the largest value. Rows that the pass does not have must not be written. */
static double shot_error(bench *b, const shot *s, float **keep)
{
    uint32_t width, rows = s->rows - s->fewer, untouched = 0;
    float *got = shoot(b, s, &width);
    double error = 0, most = 0;
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t n = 0; n < width; n++) {
            double e = expected(b, s, row, n), d = fabs((double)got[(size_t)row * width + n] - e);
            most = fmax(most, fabs(e));
            error = d <= error ? error : d;
        }
    }
    for (uint32_t n = 0; n < width && s->fewer; n++) {
        float v = got[(size_t)rows * width + n];
        untouched += s->kind == EXL2K_EXL3_RESIDUAL ? v == b->before[(size_t)(s->first + rows) * b->columns + n]
                                                    : isnan(v) != 0;
    }
    CHECK_INT(untouched, s->fewer ? width : 0);
    if (keep) {
        *keep = got;
    } else {
        free(got);
    }
    return most > 0 ? error / most : error; /* the pass may have no row at all */
}

static void check_shot(bench *b, const shot *s)
{
    double error = shot_error(b, s, NULL);
    double *worst = s->kind == EXL2K_EXL3_ACT || s->out_half ? &worst_half : &worst_single;
    *worst = error > *worst ? error : *worst;
    if (!CHECK(error < 2e-3)) {
        printf("    in %u, parts %u, rate %u, book %u, kind %u, first %u, rows %u, splits %u, %s: error %.2e\n", b->in,
               b->parts, b->part[0].rate, b->part[0].book, s->kind, s->first, s->rows, s->splits,
               way_names[s->by], error);
    }
}

/* A row has the same bits alone and among others, and with smaller slabs. */
static void check_alone(bench *b, shot s, uint32_t row)
{
    uint32_t width, alone_width;
    float *all = shoot(b, &s, &width);
    shot one = s;
    one.first += row;
    one.rows = s.by == CROWD && s.rows > 16 ? 17 : 1; /* up to 16 rows are another kind */
    slab_bytes = 48 << 10;
    float *alone = shoot(b, &one, &alone_width);
    slab_bytes = slab_bytes_max();
    if (!CHECK_INT(memcmp(alone, all + (size_t)row * width, width * sizeof(float)), 0)) {
        printf("    in %u, rate %u, kind %u: row %u of %u, %s\n", b->in, b->part[0].rate, s.kind, row, s.rows,
               way_names[s.by]);
    }
    free(all);
    free(alone);
}

/* A row of a few has the bits that it has alone, by the product of few rows. */
static void check_one_row(bench *b, shot s)
{
    uint32_t width, row = s.rows - 1 - s.fewer;
    float *all = shoot(b, &s, &width);
    s.first += row;
    s.rows = 1;
    s.by = FEW;
    s.fewer = false;
    float *alone = shoot(b, &s, &width);
    if (!CHECK_INT(memcmp(alone, all + (size_t)row * width, width * sizeof(float)), 0)) {
        printf("    in %u, rate %u, kind %u: row %u is another one alone\n", b->in, b->part[0].rate, s.kind, row);
    }
    free(all);
    free(alone);
}

/* Products of 2 to 64 rows by exl3_crowd.cuh. */
static void check_crowd(bench *b, uint32_t kind)
{
    static const uint32_t rows[] = { 17, 24, 32, 33, 48, 64 };
    uint32_t blocks = (uint32_t)exl2__div_up(b->in, 128);
    shot s = { .kind = kind, .scale = 1, .by = CROWD };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        s.rows = rows[i];
        s.first = random_bits() % 20;
        s.splits = i == 0 ? 1 : i == 1 ? blocks : 1 + random_bits() % blocks;
        check_shot(b, &s);
    }
    check_alone(b, s, 0);
    check_alone(b, s, 31);
    check_alone(b, s, 63);
    for (s.rows = 2; s.rows <= 16; s.rows += 7) { /* 2, 9 and 16 rows have the bits of one row */
        s.splits = 1 + random_bits() % blocks;
        s.fewer = s.rows == 9;
        check_shot(b, &s);
        check_one_row(b, s);
    }
}

/* Products by exl3_wide.cuh have the bits of exl3_wg.cuh; what they transform for the next matrix has those of
   exl2k_exl3_rotate. */
static void check_wide(bench *b, uint32_t kind)
{
    uint32_t width, padded = (uint32_t)exl2__align_up(ROWS, EXL2K_EXL3_TILE_MAX);
    shot s = { .kind = kind, .scale = kind == EXL2K_EXL3_RESIDUAL ? 0.5f : 1, .splits = 1, .by = WIDE };
    for (uint32_t i = 0; i < 4; i++) {
        static const uint32_t rows[] = { ROWS, 1, 256, 257 };
        s.rows = rows[i];
        s.fewer = i == 3;
        s.out_half = i == 1 && kind == EXL2K_EXL3_STORE;
        wide_strips = i == 2 ? 4 : 2;
        check_shot(b, &s);
        float *got = shoot(b, &s, &width);
        s.by = MANY;
        float *expect = shoot(b, &s, &width);
        s.by = WIDE;
        CHECK_INT(memcmp(got, expect, (size_t)(s.rows - s.fewer) * width * sizeof(float)), 0);
        free(got);
        free(expect);
    }
    if (kind != EXL2K_EXL3_ACT || b->parts != 2 || b->columns / 2 % EXL2K_EXL3_BLOCK != 0) {
        return;
    }
    s.rows = ROWS;
    s.fewer = false;
    s.by = MANY;
    free(shoot(b, &s, &width));
    uint16_t *suh = take(width, 2);
    for (uint32_t i = 0; i < width; i++) {
        suh[i] = exl2__f32_to_f16(uniform());
    }
    rig_buffer suh_at = rig_buffer_of(suh, width * 2u);
    uint64_t bytes = (uint64_t)padded * width * 2;
    rig_buffer next[2] = { rig_buffer_make(bytes), rig_buffer_make(bytes) };
    exl2k_exl3_rotate_args r = { .suh = { suh_at.address }, .x = b->out.address, .rotated = next[0].address,
                                 .rows = ROWS, .rotated_rows = ROWS, .in = width, .blocks = width / 128,
                                 .x_pitch = width, .order = EXL2K_EXL3_TILES };
    rig_launch(&rotate, "exl2k_exl3_rotate", (uint32_t)exl2__div_up(width / 128, EXL2K_EXL3_WARPS), ROWS,
               EXL2K_EXL3_THREADS, 0, &r, sizeof r);
    s.by = WIDE;
    s.next_suh = suh_at.address;
    s.next_rotated = next[1].address;
    free(shoot(b, &s, &width));
    check_equal(next[0], next[1]);
    free(suh);
    rig_buffer_free(&suh_at);
    rig_buffer_free(&next[0]);
    rig_buffer_free(&next[1]);
}

/* Every rate and codebook by exl3_wide.cuh; columns that are no multiple of 128, parts of several codebooks. */
static void check_wides(void)
{
    static const uint32_t rates[] = { 2, 4, 6, 8, 10, 12, 14, 16, 3, 5, 7 };
    by_wg = true;
    for (uint32_t i = 0; i < 24; i++) {
        uint32_t book = i < 8 ? EXL2K_EXL3_3INST : i < 16 ? EXL2K_EXL3_MCG : EXL2K_EXL3_MUL1;
        uint32_t rate = i % 8 == 7 && book == EXL2K_EXL3_MUL1 ? 7 : rates[i % 8], parts = 1 + i % 3;
        uint32_t in = 100 + random_bits() % 1100;
        bench b = { .parts = parts };
        for (uint32_t p = 0; p < parts; p++) {
            uint32_t columns = i % 4 == 0 ? 256u : 130 + random_bits() % 126 + 256 * (random_bits() % 2);
            columns = parts == 2 && p == 1 ? b.part[0].columns : columns;
            b.part[p] = matrix_random(in, columns, rate, p == 1 ? EXL2K_EXL3_MUL1 : book, p == 0 && i % 2 == 0);
        }
        bench_open(&b, in, ROWS);
        check_wide(&b, EXL2K_EXL3_STORE);
        if (parts == 1) {
            check_wide(&b, EXL2K_EXL3_RESIDUAL);
        }
        if (parts < 3) {
            check_wide(&b, EXL2K_EXL3_ACT);
        }
        bench_close(&b);
    }
    by_wg = false;
}

static void check_bench(bench *b)
{
    static const uint32_t few[] = { 1, 2, 7, 8, 9, 16, 1, 1 }, many[] = { 1, 17, 64, 65, 128, 130 };
    uint32_t blocks = (uint32_t)exl2__div_up(b->in, 128);
    uint32_t kinds[3] = { EXL2K_EXL3_STORE, EXL2K_EXL3_RESIDUAL, EXL2K_EXL3_ACT };
    for (uint32_t k = 0; k < (b->parts == 3 ? 1 : 3); k++) {
        if (kinds[k] == EXL2K_EXL3_RESIDUAL && b->parts != 1) {
            continue;
        }
        shot s = { .kind = kinds[k], .scale = k == 1 ? 0.5f : 1, .by = FEW };
        for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
            s.rows = few[i];
            s.first = random_bits() % 20;
            s.splits = 1 + random_bits() % blocks;
            s.splits = i == 0 ? 1 : i == 1 ? blocks : s.splits;
            s.fewer = i % 2 == 1;
            s.cap = k == 0 && i == 2 ? 3.0f : 0;
            s.out_half = k == 0 && i == 3;
            slab_bytes = i % 2 ? slab_bytes_max() : 48 << 10;
            check_shot(b, &s);
        }
        s = (shot){ .kind = kinds[k], .scale = 1, .by = FEW, .rows = 16, .splits = 1 + random_bits() % blocks };
        check_alone(b, s, 0);
        check_alone(b, s, 5);
        check_alone(b, s, 13);
        s.rows = 8;
        check_alone(b, s, 7);
        if (lone[0].module) {
            check_turned(b, kinds[k]);
        }
        if (crowd[0].module) {
            check_crowd(b, kinds[k]);
        }
        s = (shot){ .kind = kinds[k], .scale = 1, .splits = 1 };
        for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
            s.rows = many[i];
            s.fewer = i % 2 == 1;
            check_shot(b, &s);
        }
        s = (shot){ .kind = kinds[k], .scale = 1, .splits = 1, .rows = 130 };
        check_alone(b, s, 3);
        check_alone(b, s, 129);
        if (wg[0].module) {
            by_wg = true;
            for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
                s.rows = many[i];
                s.fewer = i % 2 == 1;
                check_shot(b, &s);
            }
            s.rows = ROWS; /* two tiles */
            s.fewer = false;
            check_shot(b, &s);
            check_alone(b, s, 3);
            check_alone(b, s, 129);
            check_alone(b, s, ROWS - 1);
            by_wg = false;
        }
    }
    uint32_t tickets[1024], left = 0;
    rig_download(b->tickets, 0, tickets, sizeof tickets);
    for (uint32_t i = 0; i < 1024; i++) {
        left += tickets[i] != 0;
    }
    CHECK_INT(left, 0);
    uint32_t *alone = take(b->alone.bytes, 1);
    rig_download(b->alone, 0, alone, b->alone.bytes);
    for (uint64_t i = 0; i < b->alone.bytes / 4; i++) {
        left += alone[i] != 0;
    }
    CHECK_INT(left, 0);
    free(alone);
}

/* ---- fixtures ---- */

typedef struct file {
    char *bytes, *data;
    uint32_t shape[3];
} file;

/* Finds a tensor of a safetensors file; NULL: it has none. */
static void *tensor(file *f, const char *name)
{
    char key[64];
    unsigned long long begin = 0;
    snprintf(key, sizeof key, "\"%s\"", name);
    char *at = strstr(f->bytes + 8, key), *offsets = at ? strstr(at, "\"data_offsets\"") : NULL;
    char *shape = at ? strstr(at, "\"shape\"") : NULL;
    if (!offsets || !shape || sscanf(strchr(offsets, '['), "[%llu", &begin) != 1) {
        return NULL;
    }
    f->shape[0] = f->shape[1] = f->shape[2] = 0;
    sscanf(strchr(shape, '['), "[%u, %u, %u]", &f->shape[0], &f->shape[1], &f->shape[2]);
    if (f->shape[1] == 0) {
        sscanf(strchr(shape, '['), "[%u,%u,%u]", &f->shape[0], &f->shape[1], &f->shape[2]);
    }
    return f->data + begin;
}

static bool file_open(file *f, const char *path)
{
    FILE *from = fopen(path, "rb");
    long bytes = 0;
    uint64_t head = 0;
    if (!from) {
        return false;
    }
    bool good = fseek(from, 0, SEEK_END) == 0 && (bytes = ftell(from)) > 8 && fseek(from, 0, SEEK_SET) == 0;
    f->bytes = take((size_t)bytes + 1, 1);
    good = good && fread(f->bytes, 1, (size_t)bytes, from) == (size_t)bytes;
    fclose(from);
    memcpy(&head, f->bytes, 8);
    f->data = f->bytes + 8 + head;
    return good;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = take(bytes, 1);
    memcpy(to, from, bytes);
    return to;
}

static const char *const book_names[] = { "3inst", "mcg", "mul1" };

/* One of the 27 matrices: decoded values are the fixture's to the bit, y follows from x. */
static void check_fixture(const char *folder, uint32_t book, uint32_t rate)
{
    char path[1200];
    file f = { 0 };
    bench b = { .parts = 1 };
    matrix *m = &b.part[0];
    snprintf(path, sizeof path, rate % 2 ? "%s/%s-%u.5.safetensors" : "%s/%s-%u.safetensors", folder,
             book_names[book], rate / 2);
    if (!CHECK(file_open(&f, path))) {
        printf("    %s cannot be read\n", path);
        return;
    }
    void *words = tensor(&f, "trellis");
    *m = (matrix){ .in = f.shape[0] * 16, .out = f.shape[1] * 16, .columns = f.shape[1] * 16, .rate = f.shape[2] / 8,
                   .book = book };
    CHECK_INT(m->rate, rate);
    m->words = copy_of(words, matrix_words(m) * 2);
    m->suh = copy_of(tensor(&f, "suh"), m->in * 2u);
    m->svh = copy_of(tensor(&f, "svh"), m->out * 2u);
    matrix_open(m);
    uint32_t wrong = 0;
    const uint16_t *inner = tensor(&f, "inner"), *x = tensor(&f, "x");
    for (size_t i = 0; i < (size_t)m->in * m->out; i++) {
        wrong += inner[i] != m->inner[i];
    }
    if (!CHECK_INT(wrong, 0)) {
        printf("    %s: %u of %u values differ\n", path, wrong, m->in * m->out);
    }
    bench_open(&b, m->in, 2);
    for (uint32_t row = 0; row < 2; row++) {
        memcpy(b.x + (size_t)row * b.x_pitch, x + (size_t)row * m->in, m->in * 2u);
    }
    rig_upload(b.x_at, 0, b.x, 2u * b.x_pitch * 2);
    memcpy(b.value, tensor(&f, "y"), 2u * m->out * sizeof(double));
    shot s = { .kind = EXL2K_EXL3_STORE, .rows = 2, .splits = 1, .scale = 1, .by = FEW };
    check_shot(&b, &s);
    s.by = MANY;
    check_shot(&b, &s);
    bench_close(&b);
    free(f.bytes);
}

static void check_fixtures(void)
{
    char folder[1000];
    snprintf(folder, sizeof folder, "%s/fixtures/exl3/matrix", check_env("EXL2_TEST_DATA"));
    for (uint32_t book = 0; book < 3; book++) {
        for (uint32_t rate = 2; rate <= 16; rate++) {
            if (rate % 2 == 0 || (book == EXL2K_EXL3_MUL1 && rate < 8)) {
                check_fixture(folder, book, rate);
            }
        }
    }
}

static void check_random(uint32_t count)
{
    static const uint32_t rates[] = { 2, 4, 6, 8, 10, 12, 14, 16, 3, 5, 7 };
    for (uint32_t i = 0; i < count; i++) { /* every rate and codebook; sizes with padding; one, two and three parts */
        uint32_t book = i / 2 % 3, rate = rates[i % 11], parts = 1 + i % 3, in = 100 + random_bits() % 1100;
        book = rate % 2 ? EXL2K_EXL3_MUL1 : book;
        bench b = { .parts = parts };
        for (uint32_t p = 0; p < parts; p++) {
            uint32_t columns = parts == 2 && p == 1 ? b.part[0].columns : 50 + random_bits() % 250;
            bool other = i % 5 == 4 && p == 1; /* another rate and codebook in one matrix */
            b.part[p] = matrix_random(in, columns, other ? rates[(i + 3) % 8] : rate, other ? (book + 1) % 3 : book,
                                      i % 2 == 0 && p == 0);
        }
        bench_open(&b, in, ROWS);
        check_bench(&b);
        bench_close(&b);
    }
}

/* ---- speed ---- */

static bool no_crowd; /* 17 to 64 rows by the product of many rows */

#define LAYERS 4
#define UNITS 4
#define REPEATS 9

typedef struct unit {
    const char *name;
    uint32_t in, parts, out[3], kind;
} unit;

static const unit units[UNITS] = { { "qkv", 4096, 3, { 4096, 1024, 1024 }, EXL2K_EXL3_STORE },
                                   { "out", 4096, 1, { 4096, 0, 0 }, EXL2K_EXL3_RESIDUAL },
                                   { "gate_up", 4096, 2, { 14336, 14336, 0 }, EXL2K_EXL3_ACT },
                                   { "down", 14336, 1, { 4096, 0, 0 }, EXL2K_EXL3_RESIDUAL } };

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Buffers of measurements: weights of LAYERS layers, inputs, results, sums and tickets, transformed inputs. */
typedef struct track {
    rig_buffer weights, x, out, scratch, rotated, alone, decoded;
} track;

/* Launches the product of a unit with the weights of one layer. splits: 0: as the engine. */
static void launch_unit(const unit *u, uint32_t rate, uint32_t book, uint32_t rows, const track *t, uint32_t layer,
                        uint32_t splits)
{
    uint32_t strips = 0;
    uint64_t at = t->weights.address;
    for (uint32_t i = 0; i < u->parts; i++) {
        strips += u->out[i] / 128;
        at += (uint64_t)layer * u->in * u->out[i] * rate / 16;
    }
    exl2k_exl3_args a = { .x = t->x.address, .out = t->out.address, .partial = t->scratch.address + 65536,
                          .tickets = t->scratch.address, .rows = rows, .parts = u->parts, .in = u->in,
                          .blocks = u->in / 128, .x_pitch = u->in, .out_pitch = u->out[0] + u->out[1] + u->out[2],
                          .kind = u->kind, .scale = 1, .act = EXL2K_ACT_SILU };
    a.splits = splits ? splits : rows > 16 ? exl2__cuda_exl3_crowd_splits(strips, a.blocks, (uint32_t)rig.sm_count)
                                           : exl2__cuda_exl3_splits(strips, a.blocks, (uint32_t)rig.sm_count);
    for (uint32_t i = 0, column = 0; i < u->parts; column += u->out[i++]) {
        a.part[i] = (exl2k_exl3_part){ .trellis = at, .suh = t->x.address, .svh = t->x.address, .out = u->out[i],
                                       .row_tiles = u->out[i] / 16, .columns = u->out[i],
                                       .column = u->kind == EXL2K_EXL3_ACT ? 0 : column, .rate = rate,
                                       .book = book };
        at += (uint64_t)u->in * u->out[i] * rate / 16;
    }
    bool is_crowd = rows <= 64 && (rows > 16 || exl2__cuda_exl3_by_crowd(&a)) && crowd[book].module && !no_crowd;
    wide_strips = 32;
    bool is_wide = rows >= EXL2__CUDA_EXL3_WIDE_ROWS && wide.module;
    launch_product(a, is_crowd ? CROWD : rows <= 16 ? FEW : is_wide ? WIDE : MANY,
                   t->rotated.address, t->alone.address, t->decoded.address);
}

/* Median microseconds of LAYERS launches, one after the other, as a graph. */
static double time_unit(const unit *u, uint32_t rate, uint32_t book, uint32_t rows, const track *t, uint32_t splits)
{
    double us[REPEATS];
    rig_capture();
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        launch_unit(u, rate, book, rows, t, layer, splits);
    }
    exl2__cuda_graph_exec *graph = rig_captured();
    for (uint32_t i = 0; i < REPEATS; i++) {
        rig_start();
        rig_replay(graph);
        us[i] = rig_stop() / LAYERS;
    }
    rig_try(rig.driver.graph_exec_free(graph), "cuGraphExecDestroy");
    qsort(us, REPEATS, sizeof us[0], compare_doubles);
    return us[REPEATS / 2];
}

static rig_buffer random_buffer(uint64_t bytes, bool halves)
{
    uint16_t *values = take(bytes / 2, 2);
    for (uint64_t i = 0; i < bytes / 2; i++) {
        values[i] = halves ? exl2__f32_to_f16(uniform() * 0.1f) : (uint16_t)random_bits();
    }
    rig_buffer b = rig_buffer_of(values, bytes);
    free(values);
    return b;
}

static track track_open(void)
{
    static const uint8_t zeros[65536];
    uint64_t largest = 4096ull * 28672 * 2 * LAYERS; /* bytes at 16 bits */
    track t = { .weights = random_buffer(largest / 2, false), .x = random_buffer(2048ull * 14336 * 2, true),
                .out = rig_buffer_make(2048ull * 28672 * 4), .scratch = rig_buffer_make(64 << 20),
                .rotated = rig_buffer_make(3ull * 2048 * 14336 * 2), .alone = rig_buffer_make(16 << 20),
                .decoded = rig_buffer_make(exl2__cuda_exl3_decoded_bytes(2 * 32, 14336 / 128)) };
    void *nothing = take(t.alone.bytes, 1);
    rig_upload(t.alone, 0, nothing, t.alone.bytes);
    free(nothing);
    rig_upload(t.scratch, 0, zeros, sizeof zeros);
    rig.programmatic = true;
    return t;
}

static void track_close(track *t)
{
    rig_buffer *buffers[] = { &t->weights, &t->x, &t->out, &t->rotated, &t->alone, &t->scratch,
                              &t->decoded };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
}

static void speed(int count, char **rates, bool single)
{
    static const uint32_t rows[] = { 1, 8, 16, 17, 32, 64, 128, 2048 };
    static const char *const few[] = { "8", "6", "5" };
    track t = track_open();
    printf("us of a product of 8B, median of %d; TB/s of one row\n", REPEATS);
    for (uint32_t book = 3; book-- > (single ? 2u : 0u);) { /* MUL1 first */
        for (int i = 0; i < (count ? count : 3); i++) {
            uint32_t rate = (uint32_t)strtoul(count ? rates[i] : few[i], NULL, 10);
            if (rate < 2 || rate > 16 || (rate % 2 && (rate > 7 || book != EXL2K_EXL3_MUL1))) {
                continue;
            }
            for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
                by_wg = wg[book].module != NULL;
                double sum = 0, bytes = 0;
                printf("%-5s %3.1f bits %4u rows:", book_names[book], rate / 2.0, rows[r]);
                for (uint32_t k = 0; k < UNITS; k++) {
                    const unit *u = &units[k];
                    double us = time_unit(u, rate, book, rows[r], &t, 0);
                    uint32_t outs = u->out[0] + u->out[1] + u->out[2];
                    sum += us;
                    bytes += (double)u->in * outs * rate / 16;
                    printf("  %s %.1f", u->name, us);
                }
                printf("  sum %.1f us, %.2f TB/s\n", sum, bytes / sum * 1e-6);
                fflush(stdout);
            }
        }
    }
    track_close(&t);
}

/* Times of each product of few rows by its number of splits, at one rate of MUL1. */
static void sweep(uint32_t rate, uint32_t rows)
{
    track t = track_open();
    for (uint32_t k = 0; k < UNITS; k++) {
        printf("%s, %u rows:", units[k].name, rows);
        for (uint32_t splits = 1; splits <= 32 && splits <= units[k].in / 128; splits += splits < 8 ? 1 : splits / 4) {
            if ((uint64_t)splits * (units[k].out[0] + units[k].out[1] + units[k].out[2]) * rows * 4 < 63 << 20) {
                printf("  %u %.1f", splits, time_unit(&units[k], rate, EXL2K_EXL3_MUL1, rows, &t, splits));
            }
        }
        printf(" us\n");
    }
    track_close(&t);
}

/* Launches each product once, at one rate of MUL1, for a profiler. */
static void profile(uint32_t rate, int count, char **rows)
{
    track t = track_open();
    by_wg = wg[EXL2K_EXL3_MUL1].module != NULL;
    for (int i = 0; i < count; i++) {
        for (uint32_t k = 0; k < UNITS; k++) {
            launch_unit(&units[k], rate, EXL2K_EXL3_MUL1, (uint32_t)strtoul(rows[i], NULL, 10), &t, 0, 0);
        }
    }
    rig_wait();
    track_close(&t);
}

int main(int argc, char **argv)
{
    if (!check_env("EXL2_TEST_DATA")) {
        check_skip("no EXL2_TEST_DATA");
    }
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    slab_bytes = slab_bytes_max();
    rotate = rig_load("exl3_rotate.cu", NULL);
    settle = rig_exists("exl3_settle.cu") ? rig_load("exl3_settle.cu", NULL) : (rig_module){ 0 };
    plain_settle = rig_load("settle.cu", NULL);
    wide = rig_exists("exl3_wide_wg.cu") ? rig_load("exl3_wide_wg.cu", NULL) : (rig_module){ 0 };
    bool figures = argc > 2 && strcmp(argv[2], "few") != 0, single = figures && strcmp(argv[2], "speed") != 0;
    for (uint32_t book = single ? EXL2K_EXL3_MUL1 : 0; book < 3; book++) {
        char name[64];
        snprintf(name, sizeof name, "exl3_gemv_%s.cu", book_names[book]);
        gemv[book] = rig_load(name, NULL);
        snprintf(name, sizeof name, "exl3_one_%s.cu", book_names[book]);
        lone[book] = rig_exists(name) ? rig_load(name, NULL) : (rig_module){ 0 };
        snprintf(name, sizeof name, "exl3_gemm_%s.cu", book_names[book]);
        gemm[book] = rig_load(name, NULL);
        snprintf(name, sizeof name, "exl3_crowd_%s.cu", book_names[book]);
        crowd[book] = rig_exists(name) ? rig_load(name, NULL) : (rig_module){ 0 };
        snprintf(name, sizeof name, "exl3_crowd16_%s.cu", book_names[book]);
        crowd16[book] = rig_exists(name) ? rig_load(name, NULL) : (rig_module){ 0 };
        snprintf(name, sizeof name, "exl3_wg_%s.cu", book_names[book]);
        wg[book] = rig_exists(name) ? rig_load(name, NULL) : (rig_module){ 0 };
    }
    if (argc > 2 && strcmp(argv[2], "speed") == 0) {
        speed(argc - 3, argv + 3, false);
    } else if (argc > 4 && strcmp(argv[2], "splits") == 0) {
        speed(1, argv + 3, true);
        for (int i = 4; i < argc; i++) {
            sweep((uint32_t)strtoul(argv[3], NULL, 10), (uint32_t)strtoul(argv[i], NULL, 10));
        }
    } else if (argc > 4 && strcmp(argv[2], "crowd") == 0) {
        speed(1, argv + 3, true);
        for (int i = 4; i < argc; i++) {
            sweep((uint32_t)strtoul(argv[3], NULL, 10), (uint32_t)strtoul(argv[i], NULL, 10));
        }
        no_crowd = true;
        speed(1, argv + 3, true);
    } else if (argc > 4 && strcmp(argv[2], "profile") == 0) {
        profile((uint32_t)strtoul(argv[3], NULL, 10), argc - 4, argv + 4);
    } else {
        check_fixtures();
        for (uint32_t hidden = 128; hidden <= 16384 && settle.module; hidden += hidden < 5120 ? 1664 : 3712) {
            check_settle(hidden);
            if (hidden <= EXL2K_EXL3_NORM_MAX) {
                check_settle_rows(hidden);
            }
        }
        for (uint32_t i = 0; i < 4 && settle.module && rig.sm_count >= 32; i++) { /* else the engine does not, either */
            static const uint32_t widths[] = { 128, 1024, 2176, 4096 };
            check_norm(widths[i], i % 3);
        }
        if (wide.module) {
            check_wides();
        }
        check_random(argc > 2 && strcmp(argv[2], "few") == 0 ? 4 : 22);
        printf("largest errors: %.2e of f32 results, %.2e of halves\n", worst_single, worst_half);
    }
    rig_unload(&rotate);
    rig_unload(&plain_settle);
    if (wide.module) {
        rig_unload(&wide);
    }
    for (uint32_t book = single ? EXL2K_EXL3_MUL1 : 0; book < 3; book++) {
        rig_unload(&gemv[book]);
        rig_unload(&gemm[book]);
        if (wg[book].module) {
            rig_unload(&wg[book]);
        }
        if (crowd[book].module) {
            rig_unload(&crowd[book]);
            rig_unload(&crowd16[book]);
            rig_unload(&lone[book]);
        }
    }
    rig_close();
    return check_done();
}
