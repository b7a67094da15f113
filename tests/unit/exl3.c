/* exl3.c: matrices and embeddings of EXL3 as the loader describes them, against fixtures/exl3/matrix, whose weights are
   ExLlamaV3's to the bit and whose products were computed in float64: the decoder of the format, and each path of the
   CPU, whose bits must not depend on the rows of a batch and on how outputs are divided; and exl2_dump. Every check of
   their tensors is tested by a matrix with one thing wrong. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "private/matrix_tables.h"
#include "private/dequantize_exl3.h"
#include "private/units.h"
#define CPU_PATHS_EXL3
#include "cpu_paths.h"
#include "../memory_files.h"
#include "../model_maker.h"
#include "../tensors_open.h"

#include <math.h>
#include <unistd.h>

/* ---- codebooks ---- */

static uint32_t crc32(const uint8_t *data, size_t bytes)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        }
    }
    return ~crc;
}

static void codebooks(void)
{
    static const uint32_t sums[] = { [EXL2__EXL3_3INST] = 0x4c83d524, [EXL2__EXL3_MCG] = 0xd2d13c52,
                                     [EXL2__EXL3_MUL1] = 0x2bdf05c5 };
    static uint8_t halves[65536 * 2];
    for (uint32_t b = 0; b < 3; b++) {
        for (uint32_t s = 0; s < 65536; s++) {
            maker_store(halves + 2 * s, exl2__exl3_value((exl2__exl3_codebook)b, s), 2);
        }
        CHECK_INT(crc32(halves, sizeof halves), sums[b]);
    }
}

/* ---- the matrices of the fixtures ---- */

/* One folder in memory with the tensors of a maker. */
typedef struct folder {
    memory_files m;
    exl2__tensors t;
} folder;

static exl2_result folder_open(folder *f, const maker *from)
{
    size_t bytes;
    uint8_t *file = maker_file(from, &bytes);
    memory_make(&f->m);
    memory_add(&f->m, "model.safetensors", file, bytes);
    free(file);
    return tensors_open(&f->m.c, "memory", &f->t);
}

static void folder_close(folder *f)
{
    exl2__tensors_close(&f->m.c, &f->t);
    memory_free(&f->m);
}

static maker_tensor *add_shape(maker *m, const char *key, const char *part, const char *dtype, uint32_t rank,
                               const uint64_t *dims, size_t bytes, const void *data)
{
    maker_tensor *t = maker_add(m, key, part, dtype, 0, 0, bytes, data);
    t->rank = rank;
    memcpy(t->dims, dims, rank * sizeof *dims);
    return t;
}

typedef struct fixture {
    folder f;
    uint8_t *file;       /* model.safetensors, with the matrix "m" */
    size_t file_bytes;
    uint16_t *inner, *x; /* [in, out]; [2, in] */
    double *y;           /* [2, out] */
    uint32_t in, out;
} fixture;

static void *tensor_data(exl2__ctx *c, const exl2__tensors *t, const char *name, const exl2__tensor **entry)
{
    *entry = exl2__tensors_find(t, name);
    if (!*entry) {
        return NULL;
    }
    void *memory = malloc((size_t)(*entry)->bytes);
    CHECK_INT(exl2__tensors_read(c, t, *entry, 0, memory, (*entry)->bytes), EXL2_OK);
    return memory;
}

/* Opens a file of the fixtures as the matrix "m". */
static bool fixture_open(fixture *x, const char *name)
{
    static const char *const parts[] = { "trellis", "suh", "svh", "mcg", "mul1" };
    char path[300];
    snprintf(path, sizeof path, "fixtures/exl3/matrix/%s.safetensors", name);
    FILE *file = fopen(check_shared(path), "rb");
    if (!file) {
        return false;
    }
    static uint8_t bytes[1 << 20];
    size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    memory_files raw;
    exl2__tensors t;
    const exl2__tensor *entry;
    maker m = { .count = 0 };
    memory_make(&raw);
    memory_add(&raw, "model.safetensors", bytes, count);
    CHECK_INT(tensors_open(&raw.c, "memory", &t), EXL2_OK);
    for (size_t i = 0; i < EXL2__COUNT(parts); i++) {
        void *data = tensor_data(&raw.c, &t, parts[i], &entry);
        if (data) {
            add_shape(&m, "m", parts[i], exl2__tensor_type_name(entry->type), entry->rank, entry->dims,
                      (size_t)entry->bytes, data);
        }
        free(data);
    }
    x->inner = (uint16_t *)tensor_data(&raw.c, &t, "inner", &entry);
    x->in = (uint32_t)entry->dims[0];
    x->out = (uint32_t)entry->dims[1];
    x->x = (uint16_t *)tensor_data(&raw.c, &t, "x", &entry);
    x->y = (double *)tensor_data(&raw.c, &t, "y", &entry);
    exl2__tensors_close(&raw.c, &t);
    memory_free(&raw);
    CHECK_INT(folder_open(&x->f, &m), EXL2_OK);
    x->file = maker_file(&m, &x->file_bytes);
    maker_free(&m);
    return true;
}

static void fixture_close(fixture *x)
{
    folder_close(&x->f);
    free(x->file);
    free(x->inner);
    free(x->x);
    free(x->y);
}

/* A matrix in the CPU's packing. */
typedef struct packed {
    exl2__matrix_desc desc;
    exl2__matrix_tables tables;
    exl2__arena arena;
    exl2__cpu_matrix *matrix;
    uint16_t *file; /* its rows, as they are read */
} packed;

/* Slices of work may be so small that a row of tiles needs several. */
static void packed_feed(exl2__ctx *c, const exl2__tensors *t, packed *p)
{
    const exl2__matrix_desc *d = &p->desc;
    uint32_t rows = d->kind == EXL2__MATRIX_EXL3_TABLE ? d->out : d->words, tiles = d->out_stored / 16;
    size_t row = d->kind == EXL2__MATRIX_EXL3_TABLE ? (size_t)d->data->bytes / rows : (size_t)tiles * d->exl3.words * 2;
    p->file = (uint16_t *)malloc(row * rows);
    CHECK_INT(exl2__tensors_read(c, t, d->data, 0, p->file, row * rows), EXL2_OK);
    for (uint32_t i = 0, n; i < rows; i += n) {
        n = exl2__min32(i % 3 + 1, rows - i);
        exl2__rows_slice slice = { i, n, (uint8_t *)p->file + i * row };
        exl2__work work = { 100 };
        while (exl2__cpu_matrix_feed(p->matrix->parts, &slice, &work) == EXL2_PENDING) {
            work.left = 100;
        }
    }
}

static void packed_open(exl2__ctx *c, const exl2__tensors *t, packed *p)
{
    CHECK_INT(exl2__matrix_tables_open(c, t, 1.0f, &p->desc, &p->tables), EXL2_OK);
    uint64_t bytes = exl2__cpu_matrix_bytes(&p->desc, 1);
    CHECK_INT(exl2__arena_open(c, &p->arena, bytes, EXL2_MEM_GENERAL), EXL2_OK);
    memset(p->arena.base, 0xA5, (size_t)bytes);
    CHECK_INT(exl2__cpu_matrix_make(c, &p->arena, &p->desc, 1, &p->matrix), EXL2_OK);
    CHECK_INT(p->arena.used, bytes);
    packed_feed(c, t, p);
}

static void packed_close(exl2__ctx *c, packed *p)
{
    free(p->file);
    exl2__arena_close(c, &p->arena);
    exl2__matrix_tables_close(c, &p->tables);
}

static void check_inner(const fixture *x, const packed *p)
{
    uint32_t wrong = 0, tiles = x->out / 16, words = p->desc.exl3.words;
    uint16_t *got = (uint16_t *)malloc((size_t)x->in * x->out * 2);
    for (uint32_t i = 0; i < x->in / 16; i++) {
        for (uint32_t j = 0; j < tiles; j++) {
            exl2__exl3_tile(p->desc.exl3.codebook, words, p->file + ((size_t)i * tiles + j) * words,
                            got + (size_t)i * 16 * x->out + j * 16, x->out);
        }
    }
    for (size_t i = 0; i < (size_t)x->in * x->out; i++) {
        wrong += got[i] != x->inner[i];
    }
    CHECK_INT(wrong, 0);
    free(got);
}

#define ROWS 41u /* more than a chunk of cpu_exl3_template.h */

/* Products of `rows` rows, which are the two of the fixture in turn. out [rows, width]. */
static void multiply(const exl2__cpu_ops *ops, const exl2__cpu_part *p, const float *x, uint32_t rows, float *out,
                     bool divided)
{
    float *memory = (float *)malloc((size_t)rows * p->in * sizeof *memory);
    exl2__cpu_input input = { memory, NULL, rows, ops->tile_rows };
    for (uint32_t t = 0; t < exl2__cpu_tiles(rows, ops->tile_rows); t++) {
        uint32_t row = exl2__cpu_tile_start(rows, ops->tile_rows, t);
        uint32_t n = exl2__cpu_tile_start(rows, ops->tile_rows, t + 1) - row;
        (ops->exl3_gather ? ops->exl3_gather : exl2__cpu_exl3_gather)(p, x + (size_t)row * p->exl3.width,
                                                                      p->exl3.width, n, memory + (size_t)row * p->in);
    }
    for (uint32_t begin = 0, end; begin < p->strips; begin = end) {
        end = divided ? exl2__min32(begin + 4, p->strips) : p->strips;
        (ops->exl3_product ? ops->exl3_product : exl2__cpu_exl3_product)(p, &input, begin, end, out, p->strips * 32, 0);
    }
    free(memory);
}

/* Is y within 2e-6 of its greatest value, and the same for every number of rows? */
static void check_product(const fixture *x, const packed *p, const exl2__cpu_ops *ops)
{
    static const uint32_t counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 25, ROWS };
    const exl2__cpu_part *part = p->matrix->parts;
    float *in = (float *)malloc((size_t)ROWS * x->in * sizeof *in), *one = (float *)malloc((size_t)2 * x->out * 4);
    float *all = (float *)malloc((size_t)ROWS * x->out * sizeof *all);
    for (uint32_t i = 0; i < ROWS * x->in; i++) {
        in[i] = exl2__f16_to_f32(x->x[i % (2 * x->in)]);
    }
    double most = 0, error = 0;
    uint32_t differ = 0;
    for (uint32_t r = 0; r < 2; r++) {
        multiply(ops, part, in + (size_t)r * x->in, 1, one + (size_t)r * x->out, true);
        for (uint32_t n = 0; n < x->out; n++) {
            size_t at = (size_t)r * x->out + n;
            most = fmax(most, fabs(x->y[at]));
            error = fmax(error, fabs((double)one[at] - x->y[at]));
        }
    }
    CHECK(error <= 2e-6 * most);
    for (size_t i = 0; i < EXL2__COUNT(counts); i++) {
        multiply(ops, part, in, counts[i], all, i % 2);
        for (uint32_t r = 0; r < counts[i]; r++) {
            differ += memcmp(all + (size_t)r * x->out, one + (size_t)(r % 2) * x->out, x->out * sizeof *all) != 0;
        }
    }
    CHECK_INT(differ, 0);
    free(in);
    free(one);
    free(all);
}

/* The dense weights of the model's own basis make the same products. */
static void check_dense(const fixture *x, exl2__matrix_desc desc)
{
    exl2__ctx *c = (exl2__ctx *)(uintptr_t)&x->f.m.c;
    exl2__matrix_tables tables;
    float *w = (float *)malloc((size_t)x->in * x->out * sizeof *w);
    double most = 0, error = 0;
    exl2__matrix_dequantize(&desc);
    CHECK_INT(exl2__matrix_tables_open(c, &x->f.t, 1.0f, &desc, &tables), EXL2_OK);
    for (uint32_t row = 0, rows; row < x->out; row += rows) { /* not in whole blocks */
        rows = exl2__min32(row ? 100 : 60, x->out - row);
        CHECK_INT(exl2__dequantize_exl3_rows(c, &x->f.t, &desc, row, rows, w + (size_t)row * x->in), EXL2_OK);
    }
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t n = 0; n < x->out; n++) {
            double y = 0, wanted = x->y[r * x->out + n];
            for (uint32_t i = 0; i < x->in; i++) {
                y += (double)exl2__f16_to_f32(x->x[r * x->in + i]) * (double)w[(size_t)n * x->in + i];
            }
            most = fmax(most, fabs(wanted));
            error = fmax(error, fabs(y - wanted));
        }
    }
    CHECK(error <= 2e-6 * most);
    exl2__matrix_tables_close(c, &tables);
    free(w);
}

/* ---- exl2_dump ---- */

static char dump_dir[600], dump_model[640], dump_file[640];

static void dump_open(void)
{
    const char *temporary = check_env("TMPDIR");
    snprintf(dump_dir, sizeof dump_dir, "%.500s/exl2-dump-XXXXXX", temporary ? temporary : "/tmp");
    if (!CHECK(mkdtemp(dump_dir) != NULL)) {
        exit(check_done());
    }
    snprintf(dump_model, sizeof dump_model, "%s/model.safetensors", dump_dir);
    snprintf(dump_file, sizeof dump_file, "%s/m.f16", dump_dir);
}

static void dump_close(void)
{
    remove(dump_model);
    CHECK_INT(rmdir(dump_dir), 0); /* there is no other file */
}

static void dump_write_model(const uint8_t *bytes, size_t count)
{
    FILE *file = fopen(dump_model, "wb");
    CHECK(file && fwrite(bytes, 1, count, file) == count);
    if (file) {
        fclose(file);
    }
}

static exl2_result dump(const char *matrix, const char *out, exl2_error *error, exl2_dump_info *info)
{
    exl2_dump_desc d = { .model_dir = dump_dir, .matrix = matrix, .out_path = out, .error = error };
    return exl2_dump(&d, info);
}

/* Is the file that exl2_dump writes the matrix of the fixture? */
static void check_dump(const fixture *x, const exl2__matrix_desc *desc)
{
    static const char *const codebooks[] = { "3inst", "mcg", "mul1" };
    exl2_error error = { 0 };
    exl2_dump_info info;
    uint32_t wrong = 0;
    uint8_t two[2];
    dump_write_model(x->file, x->file_bytes);
    CHECK_INT(dump("m", dump_file, &error, &info), EXL2_OK);
    CHECK_INT(info.in, x->in);
    CHECK_INT(info.out, x->out);
    CHECK_INT((int)(info.bits * 16), (int)desc->exl3.words);
    CHECK(strcmp(info.codebook, codebooks[desc->exl3.codebook]) == 0);
    FILE *file = fopen(dump_file, "rb");
    if (!CHECK(file != NULL)) {
        return;
    }
    for (size_t i = 0; i < (size_t)x->in * x->out; i++) {
        wrong += fread(two, 1, 2, file) != 2 || (two[0] | two[1] << 8) != x->inner[i];
    }
    CHECK_INT(wrong, 0);
    CHECK(fgetc(file) == EOF);
    fclose(file);
    remove(dump_file);
}

/* Each refusal says why, and leaves the files as they were. */
static void check_dump_refuses(const fixture *x)
{
    exl2_error error = { 0 };
    exl2_dump_info info;
    exl2_dump_desc garbage = { ._start_canary = 5 };
    dump_write_model(x->file, x->file_bytes);
    CHECK_INT(exl2_dump(NULL, &info), EXL2_ERR_ARG);
    CHECK_INT(exl2_dump(&garbage, &info), EXL2_ERR_ARG);
    CHECK_INT(dump("", dump_file, &error, &info), EXL2_ERR_ARG);
    CHECK_INT(dump("n", dump_file, &error, &info), EXL2_ERR_ARG);
    CHECK(strcmp(error.text, "there is no tensor n.trellis: exl2_dump writes matrices of EXL3 only") == 0);
    CHECK_INT(dump("m", dump_model, &error, &info), EXL2_ERR_ARG); /* a file of the model's */
    CHECK(strstr(error.text, "model.safetensors exists already: remove it, or choose another file") != NULL);
    CHECK_INT(info.in, 0);
    CHECK_INT(dump("m", "/nowhere/m.f16", &error, &info), EXL2_ERR_IO);
    CHECK(strcmp(error.text, "/nowhere/m.f16: the file cannot be created") == 0);
    CHECK_INT(dump("m", dump_file, &error, &info), EXL2_OK);
    remove(dump_file);
    dump_write_model(x->file, x->file_bytes / 2); /* cut in a trellis */
    CHECK_INT(dump("m", dump_file, &error, &info), EXL2_ERR_FORMAT);
    CHECK(fopen(dump_file, "rb") == NULL);
}

static void matrices(void)
{
    static const char *const codebooks[] = { "3inst", "mcg", "mul1" };
    static const char *const rates[] = { "1", "2", "3", "4", "5", "6", "7", "8", "1.5", "2.5", "3.5" };
    uint32_t count = 0;
    dump_open();
    for (uint32_t b = 0; b < 3; b++) {
        for (size_t k = 0; k < EXL2__COUNT(rates); k++) {
            char name[32];
            fixture x;
            packed p = { .arena = { 0 } };
            snprintf(name, sizeof name, "%s-%s", codebooks[b], rates[k]);
            if ((k >= 8 && b < 2) || !fixture_open(&x, name)) {
                continue;
            }
            exl2__ctx *c = &x.f.m.c;
            int before = check_failures;
            CHECK_INT(exl2__matrix_find(c, &x.f.t, "m", x.in, x.out, &p.desc), EXL2_OK);
            CHECK_INT(p.desc.exl3.codebook, b);
            CHECK_INT(p.desc.exl3.words, (int)(atof(rates[k]) * 16));
            packed_open(c, &x.f.t, &p);
            check_inner(&x, &p);
            check_dense(&x, p.desc);
            check_dump(&x, &p.desc);
            if (count == 0) {
                check_dump_refuses(&x);
            }
            for (uint32_t o = 0; o < EXL2__COUNT(all_ops); o++) {
                if (runs(all_ops[o])) {
                    check_product(&x, &p, all_ops[o]);
                }
            }
            if (check_failures != before) {
                printf("  in %s\n", name);
            }
            packed_close(c, &p);
            fixture_close(&x);
            count++;
        }
    }
    dump_close();
    CHECK_INT(count, 27);
}

/* ---- paths against each other, at widths that are padded ---- */

static uint64_t up(uint64_t n) { return (n + 127) / 128 * 128; }

/* A matrix "m" with random words. Scales beyond the width are there: garbage that nothing may use. */
static void add_random(maker *m, uint32_t in, uint32_t out, uint32_t words, const char *codebook, uint32_t bias)
{
    uint64_t shape[] = { up(in) / 16, up(out) / 16, words };
    add_shape(m, "m", "trellis", "I16", 3, shape, (size_t)(shape[0] * shape[1] * words * 2), NULL);
    for (uint32_t side = 0; side < 2; side++) {
        uint64_t n = side ? up(out) : up(in);
        maker_tensor *t = maker_add(m, "m", side ? "svh" : "suh", "F16", n, 0, (size_t)n * 2, NULL);
        for (size_t i = 0; i < n; i++) {
            maker_store(t->data + 2 * i, (maker_random(m) % 2 << 15) + 0x2C00 + maker_random(m) % 0x400, 2);
        }
    }
    if (codebook) {
        uint32_t factor = strcmp(codebook, "mcg") == 0 ? EXL2__EXL3_MCG_FACTOR : EXL2__EXL3_MUL1_FACTOR;
        add_shape(m, "m", codebook, "I32", 0, shape, 4, &factor);
    }
    if (bias) {
        maker_tensor *t = maker_add(m, "m", "bias", "F16", bias, 0, bias * 2, NULL);
        for (size_t i = 0; i < bias; i++) {
            maker_store(t->data + 2 * i, 0x3800 + maker_random(m) % 0x400, 2);
        }
    }
}

/* Every path against the reference, which computes in the same order but without fused operations; and the SIMD paths
   against each other, bit for bit. */
static void paths(void)
{
    static const struct { uint32_t in, out, words, bias; const char *codebook; } cases[] = {
        { 160, 80, 64, 128, "mul1" }, { 192, 301, 48, 301, "mcg" }, { 128, 33, 24, 0, "mul1" },
        { 300, 128, 16, 128, NULL },  { 256, 100, 128, 0, "mcg" },  { 100, 140, 56, 140, "mul1" },
        { 384, 257, 32, 0, "mul1" },  { 640, 64, 80, 0, NULL },     { 256, 129, 96, 0, "mul1" },
        { 129, 127, 112, 127, "mcg" }, { 1, 1, 40, 1, "mul1" },     { 1280, 160, 64, 0, "mcg" },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        uint32_t in = cases[i].in, out = cases[i].out, rows = (uint32_t)(5 + 8 * (i % 3)), width = (out + 31) / 32 * 32;
        uint32_t differ = 0, far = 0;
        maker m = { .count = 0, .state = (uint32_t)i + 1u };
        folder f;
        packed p = { .arena = { 0 } };
        add_random(&m, in, out, cases[i].words, cases[i].codebook, cases[i].bias);
        CHECK_INT(folder_open(&f, &m), EXL2_OK);
        CHECK_INT(exl2__matrix_find(&f.m.c, &f.t, "m", in, out, &p.desc), EXL2_OK);
        packed_open(&f.m.c, &f.t, &p);
        float *x = (float *)malloc((size_t)rows * in * 4), *wanted = (float *)malloc((size_t)rows * width * 4);
        float *got = (float *)malloc((size_t)rows * width * 4), *simd = NULL;
        for (uint32_t k = 0; k < rows * in; k++) {
            x[k] = (float)((int32_t)(maker_random(&m) % 2001) - 1000) / 700.0f;
        }
        multiply(all_ops[0], p.matrix->parts, x, rows, wanted, true);
        for (uint32_t o = 1; o < EXL2__COUNT(all_ops); o++) {
            if (!runs(all_ops[o])) {
                continue;
            }
            multiply(all_ops[o], p.matrix->parts, x, rows, got, o % 2);
            for (uint32_t k = 0; k < rows * width; k++) {
                float w = wanted[k];
                far += k % width >= out ? got[k] != 0 && p.matrix->parts->bias == NULL
                                        : !(fabs((double)got[k] - (double)w) <= 2e-5);
            }
            if (o < 2) { /* plain C */
                continue;
            }
            differ += simd && memcmp(simd, got, (size_t)rows * width * 4) != 0;
            if (!simd) {
                simd = (float *)malloc((size_t)rows * width * 4);
                memcpy(simd, got, (size_t)rows * width * 4);
            }
        }
        CHECK_INT(far, 0);
        CHECK_INT(differ, 0);
        free(x);
        free(wanted);
        free(got);
        free(simd);
        packed_close(&f.m.c, &p);
        folder_close(&f);
        maker_free(&m);
    }
}

/* What lies in the padding changes no bit: other words, scales and biases there. */
static void padding(void)
{
    float y[2][96], x[150];
    for (uint32_t k = 0; k < 150; k++) {
        x[k] = (float)k / 100 - 0.7f;
    }
    for (uint32_t other = 0; other < 2; other++) {
        maker m = { .count = 0, .state = 7 };
        folder f;
        packed p = { .arena = { 0 } };
        add_random(&m, 150, 70, 64, "mul1", 128);
        for (uint32_t i = 70; other && i < 128; i++) {
            maker_store(maker_find(&m, "svh")->data + 2 * i, 0x7BFF, 2);
            maker_store(maker_find(&m, "bias")->data + 2 * i, 0x4400, 2);
        }
        for (uint32_t i = 150; other && i < 256; i++) {
            maker_store(maker_find(&m, "suh")->data + 2 * i, 0x7BFF, 2);
        }
        CHECK_INT(folder_open(&f, &m), EXL2_OK);
        CHECK_INT(exl2__matrix_find(&f.m.c, &f.t, "m", 150, 70, &p.desc), EXL2_OK);
        packed_open(&f.m.c, &f.t, &p);
        multiply(all_ops[1], p.matrix->parts, x, 1, y[other], true);
        packed_close(&f.m.c, &p);
        folder_close(&f);
        maker_free(&m);
    }
    CHECK(memcmp(y[0], y[1], 70 * sizeof(float)) == 0);
}

/* ---- tensors with one thing wrong ---- */

typedef void (*spoil)(maker *m);

static uint64_t spoiled[3];

static maker_tensor *replace(maker *m, const char *part, const char *dtype, uint32_t rank, uint64_t a, uint64_t b,
                             uint64_t c, size_t size)
{
    uint64_t dims[] = { a, b, c };
    size_t count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        count *= (size_t)dims[i];
    }
    maker_drop(m, part);
    return add_shape(m, "m", part + 2, dtype, rank, dims, count * size, NULL);
}

static void half(maker *m, const char *part, uint32_t at, uint16_t bits)
{
    maker_store(maker_find(m, part)->data + 2 * (size_t)at, bits, 2);
}

static void spoil_rank2(maker *m) { replace(m, "m.trellis", "I16", 2, 16, 8 * 64, 0, 2); }
static void spoil_type(maker *m) { replace(m, "m.trellis", "F16", 3, 16, 8, 64, 2); }
static void spoil_words17(maker *m) { replace(m, "m.trellis", "I16", 3, 16, 8, 17, 2); }
static void spoil_words0(maker *m) { replace(m, "m.trellis", "I16", 3, 16, 8, 0, 2); }
static void spoil_words136(maker *m) { replace(m, "m.trellis", "I16", 3, 16, 8, 136, 2); }
static void spoil_half(maker *m)
{
    replace(m, "m.trellis", "I16", 3, 16, 8, 24, 2);
    maker_drop(m, "m.mul1");
}
static void spoil_in(maker *m) { replace(m, "m.trellis", "I16", 3, 12, 8, 64, 2); }
static void spoil_out(maker *m) { replace(m, "m.trellis", "I16", 3, 16, 16, 64, 2); }
static void spoil_empty(maker *m) { replace(m, "m.trellis", "I16", 3, 0, 8, 64, 2); }
static void spoil_suh_short(maker *m) { replace(m, "m.suh", "F16", 1, 200, 0, 0, 2); }
static void spoil_suh_bf16(maker *m) { replace(m, "m.suh", "BF16", 1, 256, 0, 0, 2); }
static void spoil_suh_inf(maker *m) { half(m, "m.suh", 3, 0x7C00); }
static void spoil_svh_nan(maker *m) { half(m, "m.svh", 127, 0x7E00); }
static void spoil_no_suh(maker *m) { maker_drop(m, "m.suh"); }
static void spoil_no_svh(maker *m) { maker_drop(m, "m.svh"); }
static void spoil_su(maker *m)
{
    maker_drop(m, "m.suh");
    maker_add(m, "m", "su", "I16", 15, 0, 30, NULL);
}
static void spoil_both(maker *m)
{
    uint32_t factor = EXL2__EXL3_MCG_FACTOR;
    add_shape(m, "m", "mcg", "I32", 0, spoiled, 4, &factor);
}
static void spoil_two(maker *m) { replace(m, "m.mul1", "I32", 1, 2, 0, 0, 4); }
static void spoil_f32(maker *m) { replace(m, "m.mul1", "F32", 0, 0, 0, 0, 4); }
static void spoil_factor(maker *m) { maker_store(maker_find(m, "m.mul1")->data, 0x12345678, 4); }
static void spoil_bias_long(maker *m) { replace(m, "m.bias", "F16", 1, 129, 0, 0, 2); }
static void spoil_bias_nan(maker *m) { half(m, "m.bias", 100, 0x7E01); }
static void spoil_scale(maker *m) { maker_add(m, "m", "scale", "F16", 1, 0, 2, NULL); }
static void spoil_scale_f64(maker *m) { maker_add(m, "m", "scale", "F64", 1, 0, 8, NULL); }

/* Values that are unusual, but right. */
static void fine_zeros(maker *m)
{
    memset(maker_find(m, "m.svh")->data, 0, 200);
    memset(maker_find(m, "m.suh")->data, 0, 2);
    half(m, "m.suh", 1, 0x8001);
}
static void fine_packed(maker *m)
{
    maker_drop(m, "m.suh");
    maker_add(m, "m", "su", "I16", 16, 0, 32, NULL);
}
static void fine_both_scales(maker *m) { maker_add(m, "m", "su", "I16", 3, 0, 6, NULL); }
static void fine_bias_short(maker *m) { replace(m, "m.bias", "F32", 1, 5, 0, 0, 4)->data[3] = 0; }
static void fine_huge(maker *m) { half(m, "m.suh", 0, 0x7B53); /* 6e4 */ }

static void bad_input(void)
{
    static const struct { spoil change; exl2_result result; const char *name, *text; } cases[] = {
        { spoil_rank2, EXL2_ERR_FORMAT, "m.trellis", "rank 2" },
        { spoil_type, EXL2_ERR_FORMAT, "m.trellis", "F16" },
        { spoil_words17, EXL2_ERR_FORMAT, "m.trellis", "17 words" },
        { spoil_words0, EXL2_ERR_FORMAT, "m.trellis", "0 words" },
        { spoil_words136, EXL2_ERR_FORMAT, "m.trellis", "136 words" },
        { spoil_half, EXL2_ERR_FORMAT, "m.trellis", "mul1" },
        { spoil_in, EXL2_ERR_FORMAT, "m.trellis", "expected 16 x 8" },
        { spoil_out, EXL2_ERR_FORMAT, "m.trellis", "expected 16 x 8" },
        { spoil_empty, EXL2_ERR_FORMAT, "m.trellis", "0 x 8" },
        { spoil_suh_short, EXL2_ERR_FORMAT, "m.suh", "256" },
        { spoil_suh_bf16, EXL2_ERR_FORMAT, "m.suh", "BF16" },
        { spoil_suh_inf, EXL2_ERR_FORMAT, "m.suh", "value 3 is not finite" },
        { spoil_svh_nan, EXL2_ERR_FORMAT, "m.svh", "value 127 is not finite" },
        { spoil_no_suh, EXL2_ERR_FORMAT, "m:", "missing suh or su" },
        { spoil_no_svh, EXL2_ERR_FORMAT, "m:", "missing svh or sv" },
        { spoil_su, EXL2_ERR_FORMAT, "m.su", "expected I16 [16]" },
        { spoil_both, EXL2_ERR_FORMAT, "m has", "both mcg and mul1" },
        { spoil_two, EXL2_ERR_FORMAT, "m.mul1", "one I32" },
        { spoil_f32, EXL2_ERR_FORMAT, "m.mul1", "F32" },
        { spoil_factor, EXL2_ERR_UNSUPPORTED, "m.mul1", "0x12345678" },
        { spoil_bias_long, EXL2_ERR_FORMAT, "m.bias", "129" },
        { spoil_bias_nan, EXL2_ERR_FORMAT, "m.bias", "not finite" },
        { spoil_scale, EXL2_ERR_UNSUPPORTED, "m.scale", "0.0.1" },
        { spoil_scale_f64, EXL2_ERR_UNSUPPORTED, "m.scale", "0.0.1" },
        { fine_zeros, EXL2_OK, "", "" },
        { fine_packed, EXL2_OK, "", "" },
        { fine_both_scales, EXL2_OK, "", "" },
        { fine_bias_short, EXL2_OK, "", "" },
        { fine_huge, EXL2_OK, "", "" },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        maker m = { .count = 0, .state = 99 };
        folder f;
        exl2__matrix_desc desc;
        exl2__matrix_tables tables = { 0 };
        add_random(&m, 200, 101, 64, "mul1", 128);
        cases[i].change(&m);
        CHECK_INT(folder_open(&f, &m), EXL2_OK);
        exl2_result result = exl2__matrix_find(&f.m.c, &f.t, "m", 200, 101, &desc);
        result = result < 0 ? result : exl2__matrix_tables_open(&f.m.c, &f.t, 1.0f, &desc, &tables);
        if (!CHECK_INT(result, cases[i].result)) {
            printf("  case %zu: %s\n", i, f.m.c.error.text);
        } else if (result < 0) {
            check_error(&f.m.c, cases[i].name, cases[i].text, "EXL3");
        }
        exl2__matrix_tables_close(&f.m.c, &tables);
        folder_close(&f);
        maker_free(&m);
    }
}

/* A plain weight beside a trellis is not used, and the log says so once. */
static void weight_beside(void)
{
    maker m = { .count = 0, .state = 5 };
    folder f;
    exl2__matrix_desc desc;
    exl2__matrix_tables tables = { 0 };
    add_random(&m, 128, 128, 48, "mcg", 0);
    maker_add(&m, "m", "weight", "F16", 128, 128, 128 * 128 * 2, NULL);
    CHECK_INT(folder_open(&f, &m), EXL2_OK);
    CHECK_INT(exl2__matrix_find(&f.m.c, &f.t, "m", 128, 128, &desc), EXL2_OK);
    CHECK_INT(desc.kind, EXL2__MATRIX_EXL3);
    CHECK_INT(exl2__matrix_tables_open(&f.m.c, &f.t, 1.0f, &desc, &tables), EXL2_OK);
    CHECK_INT(f.m.warnings, 1);
    CHECK_INT(f.m.warning_id, EXL2_LOG_ID_COPY_IGNORED);
    for (uint32_t i = 0; i < f.t.count; i++) {
        CHECK(f.t.entries[i].used);
    }
    exl2__matrix_tables_close(&f.m.c, &tables);
    folder_close(&f);
    maker_free(&m);
}

/* A plain weight of a folder of EXL3 may be padded on either side, its bias, too; both are cut. config.json says that
   it is such a folder, or another matrix does (`beside`). */
static void plain_padded(void)
{
    const exl2__quant_method exl3 = EXL2__QUANT_EXL3, none = EXL2__QUANT_NONE;
    const struct { uint32_t in, out, bias; exl2__quant_method method; bool beside; exl2_result result; } cases[] = {
        { 128, 101, 128, exl3, false, EXL2_OK }, { 128, 101, 101, exl3, false, EXL2_OK },
        { 100, 128, 128, exl3, false, EXL2_OK }, { 100, 101, 128, exl3, false, EXL2_OK },
        { 128, 101, 102, exl3, false, EXL2_ERR_FORMAT }, { 128, 128, 256, exl3, false, EXL2_ERR_FORMAT },
        { 100, 101, 128, none, true, EXL2_OK }, { 128, 128, 128, none, true, EXL2_OK },
        { 100, 101, 128, none, false, EXL2_ERR_FORMAT }, { 100, 101, 128, EXL2__QUANT_EXL2, true, EXL2_ERR_FORMAT },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        maker m = { .count = 0, .state = 8 };
        folder f;
        exl2__quant quant = { .method = cases[i].method };
        exl2__matrix_source source = { .key = "m", .quant = &quant };
        exl2__matrix_desc desc;
        exl2__matrix_tables tables = { 0 };
        maker_add(&m, "m", "weight", "F16", up(cases[i].out), up(cases[i].in), 128 * 128 * 2, NULL);
        const float *bias = (const float *)(const void *)
            maker_add(&m, "m", "bias", "F32", cases[i].bias, 0, cases[i].bias * 4, NULL)->data;
        for (uint32_t n = 0; n < cases[i].bias; n++) {
            maker_store(m.tensors[1].data + 4 * n, 0x3F800000 + (n << 8), 4);
        }
        if (cases[i].beside) {
            maker_add(&m, "n", "trellis", "I16", 1, 0, 2, NULL);
        }
        CHECK_INT(folder_open(&f, &m), EXL2_OK);
        exl2_result result = exl2__matrix_find_source(&f.m.c, &f.t, &source, cases[i].in, cases[i].out, &desc);
        result = result < 0 ? result : exl2__matrix_tables_open(&f.m.c, &f.t, 1.0f, &desc, &tables);
        CHECK_INT(result, cases[i].result);
        CHECK(result < 0 || memcmp(desc.bias, bias, cases[i].out * sizeof *bias) == 0);
        exl2__matrix_tables_close(&f.m.c, &tables);
        folder_close(&f);
        maker_free(&m);
    }
}

/* ---- embeddings ---- */

static void embeddings(void)
{
    static const struct {
        uint64_t words, signs;
        const char *without;
        uint32_t rank;
        const char *type, *text;
    } cases[] = {
        { 2 * 81, 256, NULL, 2, "I16", NULL },       { 2 * 17, 256, NULL, 2, "I16", NULL },
        { 2 * 129, 256, NULL, 2, "I16", NULL },      { 2 * 80, 256, NULL, 2, "I16", "words" },
        { 2 * 81 + 1, 256, NULL, 2, "I16", "words" }, { 2 * 145, 256, NULL, 2, "I16", "words" },
        { 2, 256, NULL, 2, "I16", "words" },         { 2 * 81, 128, NULL, 2, "I16", "signs" },
        { 2 * 81, 256, "e.signs", 2, "I16", "without signs" }, { 2 * 81, 256, NULL, 3, "I16", "rank 3" },
        { 2 * 81, 256, NULL, 2, "U16", "U16" },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        maker m = { .count = 0, .state = 3 };
        folder f;
        exl2__matrix_desc desc;
        uint64_t shape[] = { 40, cases[i].words, 1 }, signs[] = { 2, cases[i].signs };
        add_shape(&m, "e", "trellis", cases[i].type, cases[i].rank, shape, (size_t)(40 * cases[i].words * 2), NULL);
        maker_tensor *s = add_shape(&m, "e", "signs", "F16", 2, signs, (size_t)(4 * cases[i].signs), NULL);
        for (size_t k = 0; k < s->bytes / 2; k++) {
            maker_store(s->data + 2 * k, 0x3C00, 2);
        }
        if (cases[i].without) {
            maker_drop(&m, cases[i].without);
        }
        CHECK_INT(folder_open(&f, &m), EXL2_OK);
        exl2_result result = exl2__matrix_find_table(&f.m.c, &f.t, "e", 300, 40, &desc);
        CHECK_INT(result, cases[i].text ? EXL2_ERR_FORMAT : EXL2_OK);
        if (cases[i].text) {
            check_error(&f.m.c, "e.", cases[i].text, "embedding");
        } else {
            CHECK(desc.out == 40 && desc.exl3.words * 2 == cases[i].words);
            CHECK_INT(exl2__matrix_find_table(&f.m.c, &f.t, "e", 300, 41, &desc), EXL2_ERR_FORMAT);
        }
        folder_close(&f);
        maker_free(&m);
    }
}

int main(int argc, char **argv)
{
    only_path = argc > 1 ? argv[1] : NULL;
    codebooks();
    paths();
    padding();
    bad_input();
    weight_beside();
    plain_padded();
    embeddings();
    matrices();
    return check_done();
}
