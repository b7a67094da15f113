/* safetensors.c: the tensor table of valid folders, every check of a header by a file that violates it, reads that
   return small pieces, end early or fail, sets of shards, indexes, and exl2__sort, which it uses. */
#include "../memory_files.h"
#include "../model_maker.h"
#include "../tensors_open.h"

#include "private/tensor_table.h"

/* Adds a file of `data_bytes` zeros after this header, in json_text's notation; length 0 = the header's own length. */
static void add_file(memory_files *m, const char *name, const char *header, uint64_t length, size_t data_bytes)
{
    size_t bytes = strlen(header);
    header = json_text(header);
    uint8_t *file = (uint8_t *)calloc(1, 8 + bytes + data_bytes);
    maker_store(file, length ? length : bytes, 8);
    memcpy(file + 8, header, bytes);
    memory_add(m, name, file, 8 + bytes + data_bytes);
    free(file);
}

/* ---- good folders ---- */

static void check_table(void)
{
    memory_files m;
    exl2__tensors t;
    memory_make(&m);
    add_file(&m, "b.safetensors",
             "{'__metadata__':{'x':'y'},'beta':{'dtype':'F32','shape':[2,3],'data_offsets':[4,28]},"
             "'alpha':{'shape':[],'dtype':'I32','data_offsets':[0,4]},"
             "'empty':{'dtype':'F16','shape':[0,4294967296,4294967296],'data_offsets':[2,2]}}   ", 0, 30);
    memory_add_text(&m, "config.json", "{}");
    memory_add_text(&m, ".safetensors", "not one");
    memory_add_text(&m, "model.safetensors.index.json", json_text("{'weight_map':{'gone':'x.safetensors'}}"));
    add_file(&m, "a.safetensors", "{'caf\\u00e9.weight':{'dtype':'F8_E4M3','shape':[1,2,3],'data_offsets':[0,6]},"
                                  "'new':{'dtype':'F4','shape':[3],'data_offsets':[6,8]}}", 0, 8);
    m.piece = 7;
    if (!CHECK_INT(tensors_open(&m.c, "any/folder", &t), EXL2_OK)) {
        printf("  %s\n", m.c.error.text);
        return;
    }
    CHECK_INT(t.count, 5);
    CHECK_INT(t.files.count, 2);
    CHECK_TEXT(t.files.items[0].name, "a.safetensors");
    CHECK_INT(m.open_files, 2);
    CHECK_INT(m.c.host_bytes, t.memory.size + t.files.memory.size);
    CHECK_INT(t.memory.used, t.memory.size);
    for (uint32_t i = 1; i < t.count; i++) {
        CHECK(strcmp(t.entries[i - 1].name, t.entries[i].name) < 0);
    }
    const exl2__tensor *beta = exl2__tensors_find(&t, "beta"), *alpha = exl2__tensors_find(&t, "alpha");
    CHECK(beta && beta->type == EXL2__TENSOR_F32 && beta->rank == 2 && beta->dims[0] == 2 && beta->dims[1] == 3 &&
          beta->bytes == 24);
    CHECK(alpha && alpha->rank == 0 && alpha->dims[0] == 1 && alpha->bytes == 4 && beta &&
          beta->offset == alpha->offset + 4);
    const exl2__tensor *cafe = exl2__tensors_find_part(&t, "caf\xC3\xA9", "weight"), *other = exl2__tensors_find(&t,
                                                                                                                 "new");
    CHECK(cafe && cafe->file == 0 && cafe->rank == 3 && cafe->bytes == 6);
    CHECK_TEXT(exl2__tensor_type_name(cafe ? cafe->type : 0), "F8_E4M3");
    CHECK(other && other->type == EXL2__TENSOR_UNKNOWN && other->bytes == 2);
    CHECK(exl2__tensors_find(&t, "gamma") == NULL);
    CHECK(exl2__tensors_find(&t, "") == NULL);
    CHECK(exl2__tensors_find_part(&t, "caf\xC3\xA9", "bias") == NULL);
    CHECK(m.warnings == 0);
    exl2__tensors_close(&m.c, &t);
    exl2__tensors_close(&m.c, &t);
    memory_free(&m);
}

static void check_values(void)
{
    static const uint8_t half[] = { 0x00, 0x3c, 0x01, 0x00, 0xff, 0x7b }, brain[] = { 0x80, 0x3f, 0x49, 0xc0, 0x00,
                                                                                      0x00 };
    memory_files m;
    maker k = { 0 };
    maker_add(&k, "half", "weight", "F16", 3, 0, 6, half);
    maker_add(&k, "brain", "weight", "BF16", 3, 0, 6, brain);
    maker_tensor *single = maker_add(&k, "single", "weight", "F32", 3000, 0, 12000, NULL);
    for (uint32_t i = 0; i < 3000; i++) {
        maker_store(single->data + 4 * i, exl2__float_bits((float)i), 4);
    }
    size_t bytes;
    uint8_t *file = maker_file(&k, &bytes);
    float *values = (float *)malloc(3000 * sizeof *values);
    exl2__tensors t;
    memory_make(&m);
    memory_add(&m, "m.safetensors", file, bytes);
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_OK);
    CHECK_INT(exl2__tensor_floats(&m.c, &t, "half.weight", 3, values), EXL2_OK);
    CHECK(values[0] == 1.0f && values[1] == 1.0f / 16777216.0f && values[2] == 65504.0f);
    CHECK_INT(exl2__tensor_floats(&m.c, &t, "brain.weight", 3, values), EXL2_OK);
    CHECK(values[0] == 1.0f && values[1] == -3.140625f && values[2] == 0.0f);
    CHECK_INT(exl2__tensor_floats(&m.c, &t, "single.weight", 3000, values), EXL2_OK);
    CHECK(values[0] == 0.0f && values[511] == 511.0f && values[512] == 512.0f && values[2999] == 2999.0f);
    CHECK_INT(exl2__tensor_floats(&m.c, &t, "single.weight", 2999, values), EXL2_ERR_FORMAT);
    check_error(&m.c, "'single.weight': wrong size [3000]", "expected [2999]", "size");
    CHECK_INT(exl2__tensor_floats(&m.c, &t, "double.weight", 3, values), EXL2_ERR_FORMAT);
    check_error(&m.c, "'double.weight'", "missing", "absent");
    /* Reads: a range of a tensor, past its end, a file that has shrunk, a disk that fails. */
    const exl2__tensor *entry = exl2__tensors_find(&t, "single.weight");
    CHECK_INT(exl2__tensors_read(&m.c, &t, entry, 4 * 1000, values, 8), EXL2_OK);
    CHECK(values[0] == 1000.0f && values[1] == 1001.0f);
    CHECK_INT(exl2__tensors_read(&m.c, &t, entry, 11996, values, 8), EXL2_ERR_INTERNAL);
    CHECK_INT(exl2__tensors_read(&m.c, &t, entry, UINT64_MAX, values, 8), EXL2_ERR_INTERNAL);
    m.files[0].there -= 100;
    CHECK_INT(exl2__tensor_floats(&m.c, &t, "single.weight", 3000, values), EXL2_ERR_IO);
    check_error(&m.c, "m.safetensors: 'single.weight'", "reached the end of the file", "short");
    m.fail_reads = true;
    CHECK_INT(exl2__tensors_read(&m.c, &t, entry, 0, values, 8), EXL2_ERR_IO);
    check_error(&m.c, "m.safetensors: 'single.weight'", "failed", "device");
    exl2__tensors_close(&m.c, &t);
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_ERR_IO);
    CHECK(t.entries == NULL && t.files.items == NULL);
    memory_free(&m);
    free(values);
    free(file);
    maker_free(&k);
}

/* ---- bad headers ---- */

static void check_bad(const char *header, uint64_t length, const char *piece, const char *other)
{
    memory_files m;
    exl2__tensors t;
    memory_make(&m);
    add_file(&m, "m.safetensors", header, length, 16);
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_ERR_FORMAT);
    CHECK(strstr(m.c.error.text, "m.safetensors") != NULL);
    check_error(&m.c, piece, other, header);
    CHECK(t.entries == NULL && t.files.items == NULL);
    memory_free(&m);
}

#define ENTRY(dtype, shape, offsets) "{'t':{'dtype':'" dtype "','shape':" shape ",'data_offsets':" offsets "}}"

static void check_headers(void)
{
    check_bad("{", 0, "not a safetensors file", "header of 1 bytes");
    check_bad("{}", 1, "not a safetensors file", "header of 1 bytes");
    check_bad("{}", 19, "not a safetensors file", "header of 19 bytes in a file of 26");
    check_bad("{}", (uint64_t)1 << 63, "not a safetensors file", "header of 9223372036854775808 bytes");
    check_bad("{}", UINT64_MAX, "not a safetensors file", "header of 18446744073709551615 bytes");
    check_bad(" {}", 0, "not a safetensors file", "");
    check_bad("{}", 10, "the header is not valid JSON", "nothing after the value");
    check_bad("{'t':", 0, "the header is not valid JSON", "a value at byte 5");
    check_bad("{'t':1}", 0, "malformed header near 't'", "an object");
    check_bad("{'t':{'dtype':'F16','shape':[8]}}", 0, "malformed header near 't'", "data_offsets");
    check_bad("{'t':{'dtype':16,'shape':[8],'data_offsets':[0,16]}}", 0, "malformed header near 't'", "dtype");
    check_bad("{'t':{'dtype':null,'shape':[8],'data_offsets':[0,16]}}", 0, "malformed header near 't'", "dtype");
    check_bad(ENTRY("F16", "[8]", "[0]"), 0, "malformed header near 't'", "two offsets");
    check_bad(ENTRY("F16", "[8]", "[0,16,16]"), 0, "malformed header near 't'", "two offsets");
    check_bad(ENTRY("F16", "[8]", "[0,'16']"), 0, "malformed header near 't'", "two offsets");
    check_bad(ENTRY("F16", "[8]", "[0,[]]"), 0, "malformed header near 't'", "two offsets");
    check_bad(ENTRY("F16", "[8]", "{'a':0}"), 0, "malformed header near 't'", "two offsets");
    check_bad(ENTRY("F16", "[8]", "[0,16.5]"), 0, "malformed header near 't'", "two offsets");
    check_bad(ENTRY("F16", "[8]", "[0,17]"), 0, "'t' lies outside the file (truncated download?)", "0 to 17 of 16");
    check_bad(ENTRY("F16", "[8]", "[16,0]"), 0, "'t' lies outside the file", "16 to 0");
    check_bad(ENTRY("F16", "[8]", "[18446744073709551608,18446744073709551615]"), 0, "'t' lies outside the file", "");
    check_bad(ENTRY("F16", "8", "[0,16]"), 0, "malformed header near 't'", "shape");
    check_bad(ENTRY("F16", "[-8]", "[0,16]"), 0, "malformed header near 't'", "shape");
    check_bad(ENTRY("F16", "[[8]]", "[0,16]"), 0, "malformed header near 't'", "shape");
    check_bad(ENTRY("F16", "[1,1,1,1,1,1,1,1,8]", "[0,16]"), 0, "malformed header near 't'", "at most 8 sizes");
    check_bad(ENTRY("F16", "[4294967296,4294967296,2]", "[0,0]"), 0, "malformed header near 't'", "product below 2^64");
    check_bad(ENTRY("F64", "[2305843009213693952]", "[0,0]"), 0, "'t' size does not match its shape", "0 bytes");
    check_bad(ENTRY("F16", "[7]", "[0,16]"), 0, "'t' size does not match its shape", "16 bytes, expected 14");
    check_bad(ENTRY("F16", "[]", "[0,16]"), 0, "'t' size does not match its shape", "expected 2");
    check_bad("{'a':{'dtype':'U8','shape':[8],'data_offsets':[0,8]},"
              "'b':{'dtype':'U8','shape':[8],'data_offsets':[7,15]}}",
              0, "'a' and 'b' overlap", "");
    check_bad("{'a':{'dtype':'U8','shape':[16],'data_offsets':[0,16]},"
              "'b':{'dtype':'U8','shape':[1],'data_offsets':[3,4]}}",
              0, "'a' and 'b' overlap", "");
    check_bad("{'a':{'dtype':'U8','shape':[8],'data_offsets':[8,16]},"
              "'e':{'dtype':'U8','shape':[0],'data_offsets':[9,9]},"
              "'b':{'dtype':'U8','shape':[8],'data_offsets':[8,16]}}", 0, "overlap", "'a'");
    check_bad("{'t':{'dtype':'U8','shape':[8],'data_offsets':[0,8]},"
              "'t':{'dtype':'U8','shape':[8],'data_offsets':[8,16]}}",
              0, "\"t\" twice in one object", "");
    check_bad("{'t':{'dtype':'U8','dtype':'I8','shape':[8],'data_offsets':[0,8]}}", 0, "\"dtype\" twice", "");
    check_bad("{'a\\u0000b':{'dtype':'U8','shape':[8],'data_offsets':[0,8]}}", 0, "malformed header near 'a'",
              "control character");
}

/* ---- folders ---- */

static void check_folders(void)
{
    static const char one[] = "{'model.norm':{'dtype':'U8','shape':[8],'data_offsets':[0,8]}}", none[] = "{}";
    memory_files m;
    exl2__tensors t;
    memory_make(&m);
    memory_add_text(&m, "config.json", "{}");
    CHECK_INT(tensors_open(&m.c, "some/where", &t), EXL2_ERR_IO);
    check_error(&m.c, "no .safetensors files in some/where", "", "empty");
    memory_add_text(&m, "empty.safetensors", "");
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_ERR_FORMAT);
    check_error(&m.c, "empty.safetensors: not a safetensors file", "file of 0", "empty file");
    memory_free(&m);

    memory_make(&m);
    add_file(&m, "z.safetensors", one, 0, 8);
    add_file(&m, "a.safetensors", one, 0, 8);
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_ERR_FORMAT);
    check_error(&m.c, "'model.norm' is in both a.safetensors and z.safetensors", "remove stale shards", "two files");
    memory_free(&m);

    /* shards 2 and 5 of 5 are missing; one shard is of another set; the last one's number is above its total */
    memory_make(&m);
    add_file(&m, "output-00003-of-00005.safetensors", none, 0, 0);
    add_file(&m, "output-00001-of-00005.safetensors", one, 0, 8);
    add_file(&m, "output-00004-of-00005.safetensors", none, 0, 0);
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_OK);
    CHECK_INT(m.warnings, 2);
    CHECK(strstr(m.warning, "shard 5 of 5 is missing") != NULL);
    CHECK_INT(m.warning_id, EXL2_LOG_ID_SHARD_MISSING);
    exl2__tensors_close(&m.c, &t);
    add_file(&m, "output-00002-of-00005.safetensors", none, 0, 0);
    add_file(&m, "output-00005-of-00005.safetensors", none, 0, 0);
    add_file(&m, "vision-00001-of-00001.safetensors", none, 0, 0);
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_OK);
    CHECK_INT(m.warnings, 2);
    exl2__tensors_close(&m.c, &t);
    add_file(&m, "vision-00002-of-00003.safetensors", none, 0, 0);
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_OK);
    CHECK_INT(m.warnings, 4);
    CHECK(strstr(m.warning, "shard 3 of 3 is missing") != NULL);
    exl2__tensors_close(&m.c, &t);
    memory_free(&m);

    memory_make(&m);
    char long_dir[1100];
    memset(long_dir, 'd', sizeof long_dir);
    long_dir[sizeof long_dir - 1] = 0;
    add_file(&m, "m.safetensors", one, 0, 8);
    CHECK_INT(tensors_open(&m.c, long_dir, &t), EXL2_ERR_ARG);
    m.c.host_bytes_max = 1000;
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_OK);
    exl2__tensors_close(&m.c, &t);
    for (uint64_t cap = 1; cap < 1000; cap++) { /* the cap is exceeded at each allocation in turn */
        m.c.host_bytes_max = cap;
        exl2_result result = tensors_open(&m.c, "f", &t);
        CHECK(result == EXL2_OK || result == EXL2_ERR_BUDGET);
        exl2__tensors_close(&m.c, &t);
        CHECK_INT(m.c.host_bytes, 0);
    }
    memory_free(&m);
}

/* ---- the index ---- */

#define ALONE(name) "{'" name "':{'dtype':'U8','shape':[8],'data_offsets':[0,8]}}"
#define BOTH(a, b) \
    "{'" a "':{'dtype':'U8','shape':[8],'data_offsets':[0,8]},'" b "':{'dtype':'U8','shape':[4],'data_offsets':[8,12]}}"

static void index_make(memory_files *m, const char *index)
{
    memory_make(m);
    memory_add_text(m, "model.safetensors.index.json", json_text(index));
    add_file(m, "a.safetensors", BOTH("x", "head"), 0, 12);
    add_file(m, "b.safetensors", BOTH("head", "y"), 0, 12);
}

/* The tensor `name` comes from this file, and is in the table once. */
static void check_from(const exl2__tensors *t, const char *name, const char *file)
{
    const exl2__tensor *entry = exl2__tensors_find(t, name);
    if (CHECK(entry != NULL)) {
        CHECK_TEXT(t->files.items[entry->file].name, file);
    }
}

static void check_index(void)
{
    static const char *const heads[] = { "a.safetensors", "b.safetensors" };
    memory_files m;
    exl2__tensors t;
    for (int i = 0; i < 2; i++) { /* either copy; `y` is not in the index, but alone */
        char index[200];
        snprintf(index, sizeof index, "{'metadata':{'total_size':1},'weight_map':{'x':'a.safetensors','head':'%s',"
                                      "'other':'b.safetensors'}}", heads[i]);
        index_make(&m, index);
        m.piece = 5;
        CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_OK);
        CHECK_INT(t.count, 3);
        check_from(&t, "head", heads[i]);
        check_from(&t, "x", "a.safetensors");
        check_from(&t, "y", "b.safetensors");
        CHECK_INT(m.c.host_bytes, t.memory.size + t.files.memory.size);
        CHECK_INT(m.warnings, 0);
        exl2__tensors_close(&m.c, &t);
        memory_free(&m);
    }
    /* Files that it does not name are not opened. A file that it names may be missing. */
    index_make(&m, "{'weight_map':{'x':'a.safetensors','y':'more.safetensors'}}");
    memory_add_text(&m, "c.safetensors", "no tensors");
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_OK);
    CHECK_INT(t.files.count, 1);
    CHECK_INT(m.open_files, 1);
    CHECK(exl2__tensors_find(&t, "y") == NULL);
    CHECK_INT(m.warnings, 1);
    CHECK_INT(m.warning_id, EXL2_LOG_ID_SHARD_MISSING);
    CHECK(strstr(m.warning, "model.safetensors.index.json names more.safetensors") != NULL);
    exl2__tensors_close(&m.c, &t);
    memory_free(&m);
    /* It counts neither if none of its files is there, nor without a weight_map: two copies are an error then. */
    static const char *const absent[] = {
        "{'weight_map':{'head':'model-00001-of-00002.safetensors'}}", "{'weight_map':{'head':'../a.safetensors'}}",
        "{'weight_map':{}}", "{'weight_map':['a.safetensors']}", "{'weight_map':{'head':{'file':'a.safetensors'}}}",
        "{'weight_map':{'head':'a.safetensors\\u0000'}}", "[]", "{}",
    };
    for (size_t i = 0; i < EXL2__COUNT(absent); i++) {
        index_make(&m, absent[i]);
        CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_ERR_FORMAT);
        check_error(&m.c, "'head' is in both a.safetensors and b.safetensors", "", absent[i]);
        CHECK_INT(m.warnings, 0);
        memory_free(&m);
    }
    /* No copy is in the file that it names. */
    index_make(&m, "{'weight_map':{'x':'a.safetensors','y':'b.safetensors','head':'c.safetensors'}}");
    add_file(&m, "c.safetensors", ALONE("z"), 0, 8);
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_ERR_FORMAT);
    check_error(&m.c, "'head' is in both", "", "stale index");
    memory_free(&m);
    /* A broken index is an error, not a silent choice. */
    index_make(&m, "{'weight_map':{'x':'a.safetensors'");
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_ERR_FORMAT);
    check_error(&m.c, "model.safetensors.index.json is not valid JSON", "", "cut");
    CHECK_INT(m.c.host_bytes, 0);
    memory_free(&m);
}

/* Hidden files are no weights, whatever they hold. */
static void check_hidden(void)
{
    memory_files m;
    exl2__tensors t;
    memory_make(&m);
    memory_add_text(&m, "._model.safetensors", "macOS");
    memory_add_text(&m, ".model.safetensors.incomplete.safetensors", "");
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_ERR_IO);
    check_error(&m.c, "no .safetensors files in f", "", "hidden");
    add_file(&m, "model.safetensors", ALONE("x"), 0, 8);
    CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_OK);
    CHECK(t.count == 1 && t.files.count == 1);
    exl2__tensors_close(&m.c, &t);
    memory_free(&m);
}

/* Other files in the place of weights. */
static void check_misplaced(void)
{
    static const char zeros[100];
    static const struct { const char *data; size_t bytes; const char *piece, *other; } cases[] = {
#define ROW(text, piece, other) { text, sizeof text - 1, piece, other },
        ROW("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234\n", "a Git LFS pointer",
            "git lfs pull")
        ROW("<!DOCTYPE html><html><body>404</body></html>", "a web page", "download it again")
        ROW("\n  <HTML>\n", "a web page", "")
        ROW("\xEF\xBB\xBF<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "a web page", "")
        ROW("Entry not found", "a text that begins with \"Entry not found\"", "not a safetensors file")
        ROW("GGUF\3\0\0\0\0\0\0\0\0\0\0\0", "a GGUF file", "exl2 import")
        ROW("PK\3\4\0\0\0\0\0\0\0\0", "PyTorch", "ZIP")
        { zeros, sizeof zeros, "full of zeros", "download it again" },
        { zeros, 1, "full of zeros", "" },
        ROW("\x80\x02}q\x01", "not a safetensors file", "header of")
#undef ROW
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        memory_files m;
        exl2__tensors t;
        memory_make(&m);
        memory_add(&m, "model.safetensors", cases[i].data, cases[i].bytes);
        CHECK_INT(tensors_open(&m.c, "f", &t), EXL2_ERR_FORMAT);
        check_error(&m.c, cases[i].piece, cases[i].other, cases[i].data);
        CHECK(strstr(m.c.error.text, "model.safetensors") != NULL);
        memory_free(&m);
    }
}

/* ---- sort ---- */

static bool less_u32(const void *items, uint32_t a, uint32_t b)
{
    const uint32_t *values = (const uint32_t *)items;
    return values[a] < values[b];
}

static void swap_u32(void *items, uint32_t a, uint32_t b)
{
    uint32_t *values = (uint32_t *)items, held = values[a];
    values[a] = values[b];
    values[b] = held;
}

static void check_sort(void)
{
    maker random = { 0 };
    for (uint32_t count = 0; count < 300; count++) {
        uint32_t values[300], sum = 0;
        for (uint32_t i = 0; i < count; i++) {
            values[i] = maker_random(&random) % (count + 1); /* with duplicates */
            sum += values[i] * values[i];
        }
        exl2__sort_items items = { values, less_u32, swap_u32 };
        exl2__sort(&items, count);
        bool ascending = true;
        for (uint32_t i = 0; i < count; i++) {
            sum -= values[i] * values[i];
            ascending = ascending && (i == 0 || values[i - 1] <= values[i]);
        }
        CHECK(ascending && sum == 0);
    }
}

int main(void)
{
    check_table();
    check_values();
    check_headers();
    check_folders();
    check_index();
    check_hidden();
    check_misplaced();
    check_sort();
    return check_done();
}
