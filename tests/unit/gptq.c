/* gptq.c: matrices of GPTQ and AWQ as the loader describes them, against a decoder of the file formats that is written
   here and against dequant.safetensors of the fixtures, bit for bit; the same in the CPU's packing. Every check of
   their tensors is tested by a matrix with one thing wrong. */
#include "private/matrix_tables.h"
#include "private/model_config_read.h"
#include "private/units.h"
#include "private/cpu_matrix.h"
#include "../memory_files.h"
#include "../model_maker.h"
#include "../tensors_open.h"

#ifndef EXL2_GOLDEN_DIR
#define EXL2_GOLDEN_DIR "tests/golden"
#endif

/* ---- the file formats, one value at a time ---- */

typedef struct file_matrix {
    uint32_t in, columns, bits;
    bool awq, v2;
    uint32_t *weights, *zeros;
    uint8_t *scales, *index; /* index: g_idx or NULL */
    uint32_t scale_type, index_bytes, groups, group_rows;
} file_matrix;

static void *read_part(exl2__ctx *c, const exl2__tensors *t, const char *key, const char *part,
                       const exl2__tensor **entry)
{
    *entry = exl2__tensors_find_part(t, key, part);
    if (!*entry) {
        return NULL;
    }
    void *memory = malloc((size_t)(*entry)->bytes + 8);
    CHECK_INT(exl2__tensors_read(c, t, *entry, 0, memory, (*entry)->bytes), EXL2_OK);
    return memory;
}

static file_matrix file_open(exl2__ctx *c, const exl2__tensors *t, const char *key, const exl2__quant *quant)
{
    const exl2__tensor *weights, *zeros, *scales, *index;
    file_matrix f = { 0 };
    f.weights = (uint32_t *)read_part(c, t, key, "qweight", &weights);
    f.zeros = (uint32_t *)read_part(c, t, key, "qzeros", &zeros);
    f.scales = (uint8_t *)read_part(c, t, key, "scales", &scales);
    f.index = (uint8_t *)read_part(c, t, key, "g_idx", &index);
    f.awq = quant->method == EXL2__QUANT_AWQ;
    f.v2 = quant->v2;
    f.groups = (uint32_t)scales->dims[0];
    f.columns = (uint32_t)scales->dims[1];
    f.bits = (uint32_t)(zeros->dims[1] * 32 / f.columns);
    f.in = (uint32_t)(f.awq ? weights->dims[0] : weights->dims[0] * 32 / f.bits);
    f.scale_type = scales->type;
    f.index_bytes = index && index->type == EXL2__TENSOR_I64 ? 8 : 4;
    f.group_rows = quant->group == UINT32_MAX ? f.in : quant->group ? quant->group : (f.in + f.groups - 1) / f.groups;
    bool any = false;
    for (uint32_t k = 0; f.index && k < f.in; k++) {
        any = any || f.index[f.index_bytes * k];
    }
    if (!any) { /* absent or all zeros: in the order of the rows */
        free(f.index);
        f.index = NULL;
    }
    return f;
}

static void file_close(file_matrix *f)
{
    free(f->weights);
    free(f->zeros);
    free(f->scales);
    free(f->index);
}

/* Bits [at, at + count) of a stream whose words are `step` words apart. */
static uint32_t stream(const uint32_t *words, size_t step, uint32_t at, uint32_t count)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < count; i++) {
        value |= (words[(at + i) / 32 * step] >> ((at + i) % 32) & 1u) << i;
    }
    return value;
}

static uint16_t file_weight(const file_matrix *f, uint32_t k, uint32_t n)
{
    static const uint32_t order[8] = { 0, 2, 4, 6, 1, 3, 5, 7 };
    uint32_t g = f->index ? f->index[f->index_bytes * k] : k / f->group_rows, nibble = 0;
    uint32_t code, zero;
    while (order[nibble] != n % 8) {
        nibble++;
    }
    if (f->awq) {
        code = f->weights[(size_t)k * (f->columns / 8) + n / 8] >> 4 * nibble & 15;
        zero = f->zeros[(size_t)g * (f->columns / 8) + n / 8] >> 4 * nibble & 15;
    } else {
        code = stream(f->weights + n, f->columns, k * f->bits, f->bits);
        zero = stream(f->zeros + (size_t)g * (f->columns * f->bits / 32), 1, n * f->bits, f->bits) + (f->v2 ? 0 : 1);
    }
    size_t at = (size_t)g * f->columns + n;
    float scale = exl2__tensor_float(f->scale_type, f->scales + at * exl2__tensor_type_bytes(f->scale_type));
    scale = exl2__f16_to_f32(exl2__f32_to_f16(scale));
    return exl2__f32_to_f16(exl2__f16_to_f32(exl2__f32_to_f16((float)((int)code - (int)zero))) * scale);
}

/* ---- the loader's description, and the CPU's packing ---- */

/* Reads the codes in slices of `step` units and gives them to the CPU's packing as well. */
static uint32_t *read_words(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc, uint32_t step,
                            exl2__cpu_part *part)
{
    uint32_t *words = (uint32_t *)malloc((size_t)desc->words * desc->out_stored * 4);
    uint32_t rows = step * exl2__affine_unit(desc);
    for (uint32_t row = 0; row < desc->words; row += rows) {
        uint32_t n = exl2__min32(rows, desc->words - row), *at = words + (size_t)row * desc->out_stored;
        memset(at, 0xA5, (size_t)n * desc->out_stored * 4);
        CHECK_INT(exl2__affine_read_words(c, t, desc, row, n, at), EXL2_OK);
        exl2__rows_slice slice = { row, n, at };
        exl2__work all = exl2__work_all();
        CHECK_INT(exl2__cpu_matrix_feed(part, &slice, &all), EXL2_OK);
    }
    return words;
}

/* AWQ's words as they are stored, in slices of two word rows, have the codes of `words`, and 0 in the padding. */
static void check_stored(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc, const uint32_t *words)
{
    static const uint32_t nibble[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }; /* of column n % 8 */
    uint32_t width = desc->out_stored / 8, wrong = 0, *stored = (uint32_t *)malloc(16 * (size_t)width * 4);
    for (uint32_t row = 0; row < desc->words; row += 2) {
        uint32_t rows = exl2__min32(2, desc->words - row);
        memset(stored, 0xA5, 16 * (size_t)width * 4);
        CHECK_INT(exl2__affine_read_stored(c, t, desc, row, rows, stored), EXL2_OK);
        for (uint32_t i = 0; i < rows * 8; i++) {
            for (uint32_t n = 0; n < desc->out_stored; n++) {
                uint32_t code = stored[(size_t)i * width + n / 8] >> 4 * nibble[n % 8] & 15;
                wrong += code != (words[(size_t)(row + i / 8) * desc->out_stored + n] >> i % 8 * 4 & 15);
            }
        }
    }
    CHECK_INT(wrong, 0);
    free(stored);
}

/* The value that the description gives; row: packed. */
static uint16_t described(const exl2__matrix_desc *desc, const uint32_t *words, uint32_t row, uint32_t n)
{
    uint32_t g = 0, bits = desc->affine.bits;
    while (row >= desc->groups[g].row + desc->groups[g].rows) {
        g++;
    }
    CHECK_INT(desc->groups[g].word, desc->groups[g].row * bits / 32);
    uint32_t code = stream(words + n, desc->out_stored, row * bits, bits);
    size_t at = (size_t)g * desc->out_stored + n;
    float level = (float)code - (float)desc->zeros[at];
    return exl2__f32_to_f16(level * exl2__f16_to_f32(desc->scales[at]));
}

/* Compares one matrix with the file's tensors `file_key`, from column `first` on, and with `wanted` [in, columns of it]
   if not NULL. */
static void check_matrix(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_source *source, const char *file_key,
                         uint32_t in, uint32_t out, uint32_t step, const uint16_t *wanted)
{
    exl2__matrix_desc desc;
    exl2__matrix_tables tables;
    exl2__cpu_matrix *made = NULL;
    exl2__arena weights;
    file_matrix f = file_open(c, t, file_key, source->quant);
    uint32_t wrong = 0, padding = 0;
    exl2_result result = exl2__matrix_find_source(c, t, source, in, out, &desc);
    result = result < 0 ? result : exl2__matrix_tables_open(c, t, 1.0f, &desc, &tables);
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("  %s\n", c->error.text);
        file_close(&f);
        return;
    }
    uint64_t bytes = exl2__cpu_matrix_bytes(&desc, 1);
    CHECK_INT(exl2__arena_open(c, &weights, bytes, EXL2_MEM_WEIGHTS), EXL2_OK);
    CHECK_INT(exl2__cpu_matrix_make(c, &weights, &desc, 1, &made), EXL2_OK);
    CHECK_INT(weights.used, bytes);
    uint32_t *words = read_words(c, t, &desc, step, made->parts);
    if (desc.affine.awq) {
        check_stored(c, t, &desc, words);
    }
    CHECK_INT(desc.in, f.in);
    for (uint32_t k = 0; k < in; k++) {
        uint32_t row = desc.inverse_perm[k];
        for (uint32_t n = 0; n < out; n++) {
            uint32_t column = (uint32_t)exl2__matrix_view_at(&desc.view, n);
            uint16_t right = file_weight(&f, k, column);
            float packed = exl2__cpu_matrix_weight(made->parts, row, n);
            wrong += described(&desc, words, row, n) != right || exl2__f32_to_f16(packed) != right;
            wrong += wanted && wanted[(size_t)k * f.columns + column] != right;
        }
        for (uint32_t n = out; n < desc.out_stored; n++) {
            padding += described(&desc, words, row, n) != 0;
        }
    }
    CHECK_INT(padding, 0);
    if (!CHECK_INT(wrong, 0)) {
        printf("  %s, %u bits, slices of %u\n", source->key, f.bits, step);
    }
    free(words);
    file_close(&f);
    exl2__arena_close(c, &weights);
    exl2__matrix_tables_close(c, &tables);
}

/* ---- goldens ---- */

/* All GPTQ and AWQ matrices of a model folder, by the units that its config.json gives. Returns their number. */
static uint32_t check_folder(const char *dir, uint32_t dequantized)
{
    exl2__ctx c = { .allocator = exl2__platform_allocator(), .files = exl2__platform_files() };
    static exl2__config config;
    exl2__tensors t;
    uint32_t matrices = 0, compared = 0;
    CHECK_INT(exl2__config_read(&c, dir, &config), EXL2_OK);
    if (!CHECK_INT(tensors_open(&c, dir, &t), EXL2_OK)) {
        printf("  %s: %s\n", dir, c.error.text);
        return 0;
    }
    for (uint32_t i = 0; i < exl2__unit_count(&config, false); i++) {
        static exl2__unit u;
        exl2__unit_make(&config, i, &u);
        for (uint32_t part = 0; part < u.count; part++) {
            bool own = exl2__tensors_find_part(&t, u.keys[part], "qweight") != NULL;
            const char *key = own ? u.keys[part] : u.fused[part];
            if (!key[0] || !exl2__tensors_find_part(&t, key, "qweight")) {
                continue;
            }
            const exl2__tensor *golden = exl2__tensors_find(&t, key); /* of dequant.safetensors */
            uint16_t *wanted = golden ? (uint16_t *)malloc((size_t)golden->bytes) : NULL;
            if (golden) {
                CHECK_INT(exl2__tensors_read(&c, &t, golden, 0, wanted, golden->bytes), EXL2_OK);
                compared++;
            }
            for (uint32_t step = 1; step < 8; step += 3) {
                check_matrix(&c, &t, &u.source[part], key, u.in, u.out[part], step, wanted);
            }
            free(wanted);
            matrices++;
        }
    }
    CHECK_INT(compared, dequantized);
    exl2__tensors_close(&c, &t);
    CHECK_INT(c.host_bytes, 0);
    return matrices;
}

/* ---- hand-made matrices ---- */

#define KEY "model.layers.0.mlp.down_proj"

typedef struct sample {
    maker m;
    exl2__quant quant;
    uint32_t in, out;
} sample;

/* A valid matrix: 64 inputs, `out` outputs, groups of 32 rows; `awq`: of AWQ, else of GPTQ with g_idx. */
static sample sample_make(uint32_t bits, uint32_t out, bool awq)
{
    sample s = { .quant = { EXL2__QUANT_GPTQ, bits, 32, true, false, false }, .in = 64, .out = out };
    uint8_t index[64 * 4] = { 0 };
    s.m.state = bits * 1000 + out;
    for (uint32_t k = 0; k < 64; k++) {
        index[4 * k] = (uint8_t)(k * 5 % 64 / 32); /* 32 rows of each group, mixed */
    }
    if (awq) {
        s.quant.method = EXL2__QUANT_AWQ;
        maker_add(&s.m, KEY, "qweight", "I32", 64, out / 8, 64 * out / 2, NULL);
    } else {
        maker_add(&s.m, KEY, "qweight", "I32", 2 * bits, out, 2 * bits * out * 4, NULL);
        maker_add(&s.m, KEY, "g_idx", "I32", 64, 0, sizeof index, index);
    }
    maker_add(&s.m, KEY, "qzeros", "I32", 2, out * bits / 32, 2 * out * bits / 8, NULL);
    maker_tensor *scales = maker_add(&s.m, KEY, "scales", "F16", 2, out, 2 * out * 2, NULL);
    for (uint32_t i = 0; i < 2 * out; i++) {
        maker_store(scales->data + 2 * i, 0x1800 + maker_random(&s.m) % 0x800, 2);
    }
    return s;
}

static exl2_result sample_open(const sample *s, memory_files *files, exl2__tensors *t)
{
    size_t bytes;
    uint8_t *file = maker_file(&s->m, &bytes);
    memory_make(files);
    memory_add(files, "m.safetensors", file, bytes);
    free(file);
    return tensors_open(&files->c, "folder", t);
}

static void sample_check(sample *s)
{
    memory_files files;
    exl2__tensors t;
    exl2__matrix_source source = { .key = KEY, .quant = &s->quant };
    if (CHECK_INT(sample_open(s, &files, &t), EXL2_OK)) {
        check_matrix(&files.c, &t, &source, KEY, s->in, s->out, 2, NULL);
        exl2__tensors_close(&files.c, &t);
    }
    CHECK_INT(files.c.host_bytes, 0);
    memory_free(&files);
    maker_free(&s->m);
}

static maker_tensor *part_of(sample *s, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", KEY, part);
    return maker_find(&s->m, name);
}

static void resize(sample *s, const char *part, uint64_t dim0, uint64_t dim1, size_t element)
{
    maker_tensor *t = part_of(s, part);
    t->dims[0] = dim0;
    t->dims[1] = dim1;
    t->bytes = (size_t)(dim0 * (dim1 ? dim1 : 1)) * element;
    t->data = (uint8_t *)realloc(t->data, t->bytes ? t->bytes : 1);
    memset(t->data, 0, t->bytes);
}

/* Writes the same values as scales of another type. */
static void retype_scales(sample *s, const char *dtype)
{
    maker_tensor *t = part_of(s, "scales");
    uint32_t size = strcmp(dtype, "F32") == 0 ? 4 : 2, count = 2 * s->out;
    uint8_t *data = (uint8_t *)malloc((size_t)count * size);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = exl2__float_bits(exl2__f16_to_f32(exl2__load16(t->data + 2 * i)) * 1.0009f);
        maker_store(data + (size_t)i * size, size == 4 ? bits : bits >> 16, size);
    }
    free(t->data);
    t->data = data;
    t->bytes = (size_t)count * size;
    strcpy(t->dtype, dtype);
}

/* The index as I64. */
static void widen_index(sample *s)
{
    maker_tensor *t = part_of(s, "g_idx");
    uint8_t *data = (uint8_t *)calloc(64, 8);
    for (uint32_t k = 0; k < 64; k++) {
        maker_store(data + 8 * k, exl2__load32(t->data + 4 * k), 8);
    }
    free(t->data);
    t->data = data;
    t->bytes = 64 * 8;
    strcpy(t->dtype, "I64");
}

static void check_samples(void)
{
    static const uint32_t bits[] = { 2, 3, 4, 8 };
    for (uint32_t i = 0; i < EXL2__COUNT(bits); i++) {
        for (uint32_t out = 32; out <= 96; out += bits[i] == 3 ? 32 : 16) {
            sample s = sample_make(bits[i], out, false);
            sample_check(&s);
            s = sample_make(bits[i], out, false);
            s.quant.v2 = true;
            widen_index(&s);
            sample_check(&s);
            s = sample_make(bits[i], out, false);
            maker_drop(&s.m, "g_idx");
            s.quant.bits = s.quant.group = 0; /* from the tensors */
            retype_scales(&s, out % 64 ? "F32" : "BF16");
            sample_check(&s);
            s = sample_make(bits[i], out, false);
            memset(part_of(&s, "g_idx")->data, 0, 64 * 4);
            memset(part_of(&s, "qzeros")->data, 0xFF, part_of(&s, "qzeros")->bytes); /* zero = 2^bits */
            sample_check(&s);
        }
    }
    for (uint32_t out = 32; out <= 96; out += 8) {
        sample s = sample_make(4, out, true);
        sample_check(&s);
    }
}

/* Biases of zeros are dropped, others are read, also in a part of a fused matrix. */
static void check_biases(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        sample s = sample_make(4, 64, false);
        memory_files files;
        exl2__tensors t;
        exl2__matrix_desc desc;
        exl2__matrix_tables tables;
        maker_tensor *bias = maker_add(&s.m, KEY, "bias", "F16", 64, 0, 128, NULL);
        memset(bias->data, 0, bias->bytes);
        maker_store(bias->data + 2 * 3, 0x8000, 2); /* -0 */
        maker_store(bias->data + 2 * 47, i % 2 ? 0x4000 : 0, 2);
        exl2__matrix_source source = { .key = i < 2 ? KEY : "up", .fused = KEY, .fused_rows = 64, .quant = &s.quant,
                                       .view = { 32, 32, 32, false } };
        CHECK_INT(sample_open(&s, &files, &t), EXL2_OK);
        CHECK_INT(exl2__matrix_find_source(&files.c, &t, &source, 64, i < 2 ? 64 : 32, &desc), EXL2_OK);
        CHECK_INT(desc.has_bias, i % 2);
        CHECK_INT(exl2__matrix_tables_open(&files.c, &t, 1.0f, &desc, &tables), EXL2_OK);
        CHECK(i % 2 ? desc.bias[i < 2 ? 47 : 15] == 2.0f && desc.bias[0] == 0.0f : desc.bias == NULL);
        exl2__matrix_tables_close(&files.c, &tables);
        exl2__tensors_close(&files.c, &t);
        memory_free(&files);
        maker_free(&s.m);
    }
}

/* ---- one thing wrong ---- */

static exl2_result sample_result(const sample *s, memory_files *files)
{
    exl2__tensors t;
    exl2__matrix_desc desc;
    exl2__matrix_tables tables;
    exl2__matrix_source source = { .key = KEY, .quant = s->quant.method == EXL2__QUANT_NONE ? NULL : &s->quant };
    exl2_result result = sample_open(s, files, &t);
    if (result >= 0) {
        result = exl2__matrix_find_source(&files->c, &t, &source, s->in, s->out, &desc);
        if (result >= 0) {
            result = exl2__matrix_tables_open(&files->c, &t, 1.0f, &desc, &tables);
        }
        if (result >= 0) {
            exl2__matrix_tables_close(&files->c, &tables);
        }
        exl2__tensors_close(&files->c, &t);
    }
    CHECK_INT(files->c.host_bytes, 0);
    return result;
}

/* Makes a valid matrix, runs `spoil` on it, and expects an error with both pieces in its message. */
#define BAD(awq, spoil, code, piece, other)                 \
    do {                                                    \
        memory_files files;                                 \
        sample s = sample_make(4, 64, awq);                 \
        spoil;                                              \
        CHECK_INT(sample_result(&s, &files), code);         \
        check_error(&files.c, piece, other, #spoil);        \
        memory_free(&files);                                \
        maker_free(&s.m);                                   \
    } while (0)

#define INDEX(k) (part_of(&s, "g_idx")->data + 4 * (k))

static void check_hostile(void)
{
    BAD(false, maker_drop(&s.m, "qzeros"), EXL2_ERR_FORMAT, KEY, "missing qzeros");
    BAD(true, maker_drop(&s.m, "scales"), EXL2_ERR_FORMAT, KEY, "missing scales");
    BAD(false, strcpy(part_of(&s, "qweight")->dtype, "F32"), EXL2_ERR_FORMAT, "qweight: expected I32", "found F32");
    BAD(false, (resize(&s, "scales", 2, 64, 4), strcpy(part_of(&s, "scales")->dtype, "I32")), EXL2_ERR_FORMAT,
        "scales: expected F16, BF16 or F32", "found I32");
    BAD(false, part_of(&s, "qzeros")->rank = 1, EXL2_ERR_FORMAT, "m.safetensors", "size does not match");
    /* sizes */
    BAD(false, s.in = 96, EXL2_ERR_FORMAT, "qweight [8, 64] does not fit 96 inputs", "64 outputs");
    BAD(false, s.in = 68, EXL2_ERR_UNSUPPORTED, "68 inputs and 64 outputs are not supported", "multiple of 32");
    BAD(false, (s.in = 0, resize(&s, "qweight", 0, 64, 4)), EXL2_ERR_UNSUPPORTED, "0 inputs", "not supported");
    BAD(false, s.out = 48, EXL2_ERR_FORMAT, "qweight [8, 64] does not fit", "48 outputs");
    BAD(false, resize(&s, "qweight", 10, 64, 4), EXL2_ERR_UNSUPPORTED, "5 bits", "only 2, 3, 4 and 8");
    BAD(false, resize(&s, "qweight", 2, 64, 4), EXL2_ERR_UNSUPPORTED, "1 bits", "only 2, 3, 4 and 8");
    BAD(false, s.quant.bits = 8, EXL2_ERR_FORMAT, "codes of 4 bits", "bits is 8");
    BAD(false, resize(&s, "qzeros", 2, 7, 4), EXL2_ERR_FORMAT, "qzeros [2, 7]", "64 columns of 4 bits");
    BAD(true, resize(&s, "qzeros", 2, 64, 4), EXL2_ERR_FORMAT, "qzeros [2, 64]", "64 columns of 4 bits");
    BAD(false, resize(&s, "qzeros", 3, 8, 4), EXL2_ERR_FORMAT, "qzeros [3, 8]", "scales [2, 64]");
    BAD(false, resize(&s, "scales", 2, 63, 2), EXL2_ERR_FORMAT, "scales [2, 63]", "64 columns");
    BAD(false, (resize(&s, "scales", 0, 64, 2), resize(&s, "qzeros", 0, 8, 4)), EXL2_ERR_FORMAT, "scales [0, 64]",
        "qzeros [0, 8]");
    BAD(false, s.quant.group = 64, EXL2_ERR_FORMAT, "2 groups of 64 rows", "64 inputs");
    BAD(false, s.quant.group = UINT32_MAX, EXL2_ERR_FORMAT, "2 groups of 64 rows", "64 inputs");
    BAD(false, (s.quant.group = 16, resize(&s, "scales", 4, 64, 2), resize(&s, "qzeros", 4, 8, 4)),
        EXL2_ERR_UNSUPPORTED, "groups of 16 rows", "multiples of 32");
    /* scales */
    BAD(false, maker_store(part_of(&s, "scales")->data + 2 * (64 + 7), 0x7C00, 2), EXL2_ERR_FORMAT,
        "group 1 and column 7", "infinite");
    BAD(true, maker_store(part_of(&s, "scales")->data + 2 * 63, 0xFE01, 2), EXL2_ERR_FORMAT, "group 0 and column 63",
        "NaN");
    BAD(false, (retype_scales(&s, "F32"), maker_store(part_of(&s, "scales")->data + 4 * 5, 0x47800000, 4)),
        EXL2_ERR_FORMAT, "group 0 and column 5", "infinite"); /* 65536 */
    /* g_idx */
    BAD(false, maker_store(INDEX(9), 2, 4), EXL2_ERR_FORMAT, "the group of row 9 is 2", "expected 0 to 1");
    BAD(false, maker_store(INDEX(63), 0xFFFFFFFF, 4), EXL2_ERR_FORMAT, "the group of row 63 is -1", "g_idx");
    BAD(false, (widen_index(&s), maker_store(part_of(&s, "g_idx")->data + 8 * 3, (uint64_t)1 << 32, 8)),
        EXL2_ERR_FORMAT, "row 3 is 4294967296", "expected 0 to 1");
    BAD(false, maker_store(INDEX(0), 1, 4), EXL2_ERR_FORMAT, "group 1 has more than 32 rows", "the same number");
    BAD(false, (memset(INDEX(0), 0, 256), maker_store(INDEX(63), 1, 4)), EXL2_ERR_FORMAT, "group 0 has 63 rows",
        "the same number");
    BAD(false, resize(&s, "g_idx", 32, 0, 4), EXL2_ERR_FORMAT, "g_idx: expected I32 or I64 [64]", "found I32 [32]");
    BAD(false, (resize(&s, "g_idx", 64, 0, 2), strcpy(part_of(&s, "g_idx")->dtype, "I16")), EXL2_ERR_FORMAT,
        "g_idx: expected I32", "found I16");
    /* one format read as another */
    BAD(true, s.quant.method = EXL2__QUANT_GPTQ, EXL2_ERR_FORMAT, "qweight [64, 8] has the shape of AWQ",
        "quant_method is not awq");
    BAD(true, s.quant.method = EXL2__QUANT_NONE, EXL2_ERR_FORMAT, "qweight [64, 8] has the shape of AWQ",
        "quant_method is not awq");
    BAD(false, s.quant.method = EXL2__QUANT_AWQ, EXL2_ERR_FORMAT, "qweight [8, 64] has the shape of GPTQ",
        "quant_method is awq");
    BAD(true, (s.in = 128, resize(&s, "qweight", 64, 16, 4)), EXL2_ERR_UNSUPPORTED, "gemv", "not supported");
    BAD(true, maker_add(&s.m, KEY, "g_idx", "I32", 64, 0, 256, NULL), EXL2_ERR_UNSUPPORTED, "AWQ matrices with g_idx",
        KEY);
    /* versions: a symmetric matrix has the zeros 8, stored as 7 in version 1 */
    BAD(false, (s.quant.symmetric = true, memset(part_of(&s, "qzeros")->data, 0x88, 64)), EXL2_ERR_FORMAT,
        "all zeros of this symmetric matrix are 9", "checkpoint_format gptq_v2");
    BAD(false, (s.quant.symmetric = s.quant.v2 = true, memset(part_of(&s, "qzeros")->data, 0x77, 64)), EXL2_ERR_FORMAT,
        "all zeros of this symmetric matrix are 7", "checkpoint_format gptq");
    BAD(false, maker_store(maker_add(&s.m, KEY, "bias", "F16", 64, 0, 128, NULL)->data + 2 * 5, 0x7E00, 2),
        EXL2_ERR_FORMAT, "down_proj.bias", "value 5 is not finite");
}

/* A symmetric matrix with the zeros of its own version is right. */
static void check_symmetric(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        sample s = sample_make(4, 64, false);
        s.quant.symmetric = true;
        s.quant.v2 = i == 1;
        memset(part_of(&s, "qzeros")->data, i ? 0x88 : 0x77, part_of(&s, "qzeros")->bytes);
        sample_check(&s);
    }
}

int main(void)
{
    static const struct { const char *name; uint32_t matrices, dequantized; } shared[] = {
        { "exl2/gptq-plain", 14, 14 }, { "exl2/gptq-act-order", 14, 14 }, { "exl2/gptq-v2", 14, 14 },
        { "arch/gptq-8bit", 14, 14 },  { "arch/gptq-3bit", 14, 14 },      { "arch/gptq-phi3", 14, 0 },
        { "arch/awq", 14, 14 },
    };
    check_samples();
    check_symmetric();
    check_biases();
    check_hostile();
    CHECK_INT(check_folder(EXL2_GOLDEN_DIR "/models/gptq-phi3", 0), 14);
    CHECK_INT(check_folder(EXL2_GOLDEN_DIR "/models/awq", 0), 14);
    CHECK_INT(check_folder(EXL2_GOLDEN_DIR "/models/mixed-kinds", 0), 8);
    if (!check_env("EXL2_TEST_DATA")) {
        printf("without shared data (EXL2_TEST_DATA): goldens of the repository only\n");
        return check_done();
    }
    for (size_t i = 0; i < EXL2__COUNT(shared); i++) {
        char relative[128];
        snprintf(relative, sizeof relative, "fixtures/%s", shared[i].name);
        CHECK_INT(check_folder(check_shared(relative), shared[i].dequantized), shared[i].matrices);
    }
    return check_done();
}
