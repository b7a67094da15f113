/* safetensors.c: fuzz target: any bytes as a safetensors file, all of whose matrices and vectors are read, and as the
   index of two such files.
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -DTEST_WHOLE -I. -Ibuild/tests
   tests/fuzz/safetensors.c -lm. The suite runs it with run_seeds.c. */
#include "../memory_files.h"
#include "../tensors_open.h"

#include "private/arch_rows.h"
#include "private/dequantize_exl3.h"
#include "private/matrix_tables.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Reads a matrix with the sizes that the file itself claims, as if config.json agreed with it. */
static void read_matrix(memory_files *m, const exl2__tensors *t, const char *key)
{
    const exl2__tensor *perm = exl2__tensors_find_part(t, key, "q_invperm"), *weight = exl2__matrix_data(t, key,
                                                                                                         perm == NULL);
    uint64_t in = perm ? perm->dims[0] : weight ? weight->dims[1] : 0, out = weight ? weight->dims[perm ? 1 : 0] : 0;
    exl2__matrix_desc desc;
    exl2__matrix_tables tables;
    if (in > 65536 || out > 65536 || exl2__matrix_find(&m->c, t, key, (uint32_t)in, (uint32_t)out, &desc) < 0 ||
        exl2__matrix_tables_open(&m->c, t, 1.0f, &desc, &tables) < 0) {
        return;
    }
    uint32_t row = 0, word = 0;
    for (uint32_t g = 0; g < desc.group_count; g++) { /* groups cover rows and words without gaps */
        const exl2__group *group = &desc.groups[g];
        require(group->row == row && group->word == word && group->rows % 32 == 0 && group->rows > 0);
        row += group->rows;
        word += group->rows * group->bits / 32;
    }
    require(desc.kind == EXL2__MATRIX_DENSE || exl2__matrix_is_exl3(desc.kind)
            || (row == desc.in && word == desc.words));
    exl2__matrix_tables_close(&m->c, &tables);
}

/* Reads a matrix of GPTQ or AWQ with the number of inputs that some width would give it, and all of its codes. */
static void read_affine(memory_files *m, const exl2__tensors *t, const char *key)
{
    static const uint32_t widths[] = { 2, 3, 4, 8, 0 }; /* 0: AWQ */
    const exl2__tensor *codes = exl2__tensors_find_part(t, key, "qweight");
    for (uint32_t i = 0; codes && i < EXL2__COUNT(widths); i++) {
        exl2__quant quant = { widths[i] ? EXL2__QUANT_GPTQ : EXL2__QUANT_AWQ, 0, 0, false, false, i % 2 };
        exl2__matrix_source source = { .key = key, .quant = &quant };
        exl2__matrix_desc desc;
        exl2__matrix_tables tables;
        uint64_t rows = codes->dims[0], columns = codes->dims[1];
        uint64_t in = widths[i] ? rows * 32 / widths[i] : rows, out = widths[i] ? columns : columns * 8;
        if (rows > 65536 || columns > 4096 || in > 65536 ||
            exl2__matrix_find_source(&m->c, t, &source, (uint32_t)in, (uint32_t)out, &desc) < 0 ||
            exl2__matrix_tables_open(&m->c, t, 1.0f, &desc, &tables) < 0) {
            continue;
        }
        for (uint32_t k = 0; k < desc.in; k++) {
            require(desc.inverse_perm[k] < desc.in);
        }
        uint32_t unit = exl2__affine_unit(&desc);
        uint32_t *words = (uint32_t *)malloc((size_t)unit * desc.out_stored * sizeof *words);
        for (uint32_t row = 0; row < desc.words; row += unit) {
            require(exl2__affine_read_words(&m->c, t, &desc, row, unit, words) <= 0);
        }
        free(words);
        exl2__matrix_tables_close(&m->c, &tables);
    }
}

/* Decodes the first outputs of a matrix of EXL3, or the first rows of an embedding, with the sizes that the file
   claims. */
static void read_exl3(memory_files *m, const exl2__tensors *t, const char *key)
{
    const exl2__tensor *trellis = exl2__tensors_find_part(t, key, "trellis");
    exl2__matrix_desc desc;
    exl2__matrix_tables tables;
    uint64_t in = trellis ? trellis->dims[0] * 16 : 0, out = trellis ? trellis->dims[1] * 16 : 0;
    bool table = trellis && trellis->rank == 2;
    if (!trellis || trellis->dims[0] > 256 || trellis->dims[1] > 1024 ||
        (table ? exl2__matrix_find_table(&m->c, t, key, 300, 1, &desc)
               : exl2__matrix_find(&m->c, t, key, (uint32_t)in, (uint32_t)out, &desc)) < 0) {
        return;
    }
    require(exl2__matrix_is_exl3(desc.kind) && exl2__exl3_is_tile(table ? 16 : desc.exl3.words));
    exl2__matrix_dequantize(&desc);
    if (exl2__matrix_tables_open(&m->c, t, 1.0f, &desc, &tables) < 0) {
        return;
    }
    uint32_t rows = exl2__min32(desc.out, 2);
    float *values = (float *)malloc((size_t)rows * desc.in * sizeof *values);
    require(exl2__dequantize_exl3_rows(&m->c, t, &desc, 0, rows, values) == EXL2_OK);
    free(values);
    exl2__matrix_tables_close(&m->c, &tables);
}

/* The same bytes as an index beside two files with copies of a tensor. */
static void read_index(memory_files *m, const uint8_t *data, size_t size)
{
    static const char header[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    uint8_t file[sizeof header + 8] = { sizeof header - 1 };
    exl2__tensors t;
    memcpy(file + 8, header, sizeof header - 1);
    memory_make(m);
    memory_add(m, "model.safetensors.index.json", data, size);
    memory_add(m, "a.safetensors", file, sizeof file);
    memory_add(m, "b.safetensors", file, sizeof file);
    if (tensors_open_renamed(&m->c, "folder", NULL, &t) == EXL2_OK) { /* the index has chosen */
        require(t.count == 1 && t.files.count >= 1 && t.entries[0].file < t.files.count);
        exl2__tensors_close(&m->c, &t);
    }
    require(m->open_files == 0 && m->c.host_bytes == 0);
    memory_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static memory_files m;
    exl2__tensors t;
    memory_make(&m);
    m.c.host_bytes_max = (uint64_t)64 << 20;
    memory_add(&m, "model-00001-of-00002.safetensors", data, size);
    exl2__arch arch; /* names as one family or another has them, chosen by the size */
    exl2__arch_resolve(&exl2__archs[size % EXL2__COUNT(exl2__archs)], &arch);
    if (tensors_open_renamed(&m.c, "folder", arch.renames, &t) == EXL2_OK) {
        for (uint32_t i = 0; i < t.count && i < 100; i++) {
            const exl2__tensor *e = &t.entries[i];
            float values[64];
            char key[256];
            require(e->offset <= size && e->bytes <= size - e->offset && exl2__tensors_find(&t, e->name) == e);
            const char *dot = strrchr(e->name, '.');
            snprintf(key, sizeof key, "%.*s", (int)(dot ? dot - e->name : 0), e->name);
            read_matrix(&m, &t, key);
            read_affine(&m, &t, key);
            read_exl3(&m, &t, key);
            exl2__tensor_floats(&m.c, &t, e->name, e->dims[0] < 64 ? (uint32_t)e->dims[0] : 64, values);
        }
        exl2__tensors_close(&m.c, &t);
    }
    memory_free(&m);
    read_index(&m, data, size);
    require(check_failures == 0);
    return 0;
}
