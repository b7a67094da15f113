/* gguf.c: the GGUF reader: block goldens of the gguf Python package, a file of every value type, hand-made malformed
   files. */
#define EXL2_CONVERT
#include "private/gguf.h"
#include "private/json.h"
#include "../check.h"
#include "../gguf_maker.h"
#include "../memory_files.h"

/* ---- blocks ---- */

static uint8_t from_hex(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void test_type(const exl2__json *j, uint32_t name, uint32_t entry)
{
    static float out[512];
    static uint8_t blocks[512 * 4];
    char label[16] = { 0 }, hex[4096 + 1];
    uint64_t id = 0, items = 0, bytes = 0;
    uint32_t differ = 0, count = 0;
    exl2__json_text(j, name, label, sizeof label - 1);
    CHECK(exl2__json_u64(j, exl2__json_get(j, entry, "ggml_type"), &id));
    CHECK(exl2__json_u64(j, exl2__json_get(j, entry, "block_elements"), &items));
    CHECK(exl2__json_u64(j, exl2__json_get(j, entry, "block_bytes"), &bytes));
    const exl2__gguf_type *type = exl2__gguf_types_find((uint32_t)id);
    if (!CHECK(type != NULL)) {
        return;
    }
    CHECK_TEXT(type->name, label);
    CHECK_INT(type->items, items);
    CHECK_INT(type->bytes, bytes);
    CHECK(type->items <= EXL2__GGUF_TYPES_ITEMS_MAX);
    size_t digits = exl2__json_text(j, exl2__json_get(j, entry, "hex"), hex, sizeof hex);
    CHECK_INT(digits, 512 / items * bytes * 2);
    for (size_t i = 0; i < digits / 2; i++) {
        blocks[i] = (uint8_t)(from_hex(hex[2 * i]) << 4 | from_hex(hex[2 * i + 1]));
    }
    exl2__gguf_types_read(type, blocks, 512, out);
    uint32_t values = exl2__json_get(j, entry, "values");
    for (uint32_t t = exl2__json_first(j, values); t; t = exl2__json_next(j, values, t)) {
        double wanted = 0;
        CHECK(exl2__json_f64(j, t, &wanted));
        differ += exl2__float_bits(out[count]) != exl2__float_bits((float)wanted);
        count++;
    }
    CHECK_INT(count, 512);
    if (!CHECK_INT(differ, 0)) {
        printf("  type %s\n", label);
    }
}

/* Returns the number of types in the file. */
static uint32_t test_blocks(const char *path)
{
    memory_files m;
    exl2__json j;
    size_t bytes;
    uint32_t types = 0;
    char *text = check_read(path, &bytes);
    memory_make(&m);
    if (CHECK_INT(exl2__json_open(&m.c, path, text, bytes, &j), EXL2_OK)) {
        for (uint32_t name = exl2__json_first(&j, 0); name; name = exl2__json_next(&j, 0, name)) {
            test_type(&j, name, name + 1);
            types++;
        }
    }
    exl2__json_close(&m.c, &j);
    memory_free(&m);
    free(text);
    return types;
}

/* ---- a valid file ---- */

static gguf_bytes make_good(uint32_t version)
{
    gguf_maker m = { 0 };
    uint8_t numbers[64 * 4];
    m.version = version;
    for (size_t i = 0; i < sizeof numbers; i++) {
        numbers[i] = (uint8_t)(i * 7);
    }
    gguf_key_text(&m, "general.architecture", "llama");
    gguf_key_u32(&m, "a.u32", 4000000);
    gguf_key(&m, "a.u8", 0);
    gguf_put(&m.keys, "\xC8", 1);
    gguf_key(&m, "a.i8", 1);
    gguf_put(&m.keys, "\xFF", 1);
    gguf_key(&m, "a.i16", 3);
    gguf_put(&m.keys, "\x34\x12", 2);
    gguf_key(&m, "a.u64", 10);
    gguf_put64(&m.keys, 77);
    gguf_key(&m, "a.big", 10);
    gguf_put64(&m.keys, (uint64_t)1 << 32);
    gguf_key(&m, "a.f64", 12);
    gguf_put64(&m.keys, 0x3FF8000000000000u); /* 1.5 */
    gguf_key_f32(&m, "a.f32", 0.25f);
    gguf_key(&m, "a.nan", 6);
    gguf_put32(&m.keys, 0x7FC00000u);
    gguf_key_bool(&m, "a.bool", true);
    gguf_key_array(&m, "a.texts", 8, 2);
    gguf_put_text(&m.keys, "one");
    gguf_put_text(&m.keys, "");
    gguf_key_array(&m, "a.ints", 5, 3);
    for (uint32_t i = 0; i < 3; i++) {
        gguf_put32(&m.keys, i + 10);
    }
    gguf_key_array(&m, "a.none", 4, 0);
    /* Data out of order: the second entry comes first in the file. */
    gguf_info(&m, "late.weight", 0, 32, 2, 256);
    gguf_info(&m, "early.weight", 8, 64, 0, 0);
    gguf_put(&m.data, numbers, 68);
    gguf_pad(&m.data, 32);
    while (m.data.bytes < 256) {
        gguf_put(&m.data, "\0", 1);
    }
    gguf_put(&m.data, numbers, 256);
    return gguf_finish(&m);
}

static void test_keys(exl2__ctx *c, const exl2__gguf *g)
{
    uint32_t number = 5;
    float real = -1;
    bool yes = false;
    exl2__gguf_text text = { NULL, 0 };
    const exl2__gguf_pair *pair;
    CHECK_INT(exl2__gguf_get_u32(g, "no.such", &number), EXL2_OK);
    CHECK_INT(number, 5);
    CHECK_INT(exl2__gguf_get_u32(g, "a.u32", &number), EXL2_OK);
    CHECK_INT(number, 4000000);
    CHECK_INT(exl2__gguf_get_u32(g, "a.u8", &number), EXL2_OK);
    CHECK_INT(number, 200);
    CHECK_INT(exl2__gguf_get_u32(g, "a.i16", &number), EXL2_OK);
    CHECK_INT(number, 0x1234);
    CHECK_INT(exl2__gguf_get_u32(g, "a.u64", &number), EXL2_OK);
    CHECK_INT(number, 77);
    CHECK_INT(exl2__gguf_get_u32(g, "a.i8", &number), EXL2_ERR_FORMAT);
    check_error(c, "a.i8 is -1", "out of range", "a negative count");
    CHECK_INT(exl2__gguf_get_u32(g, "a.big", &number), EXL2_ERR_FORMAT);
    CHECK_INT(exl2__gguf_get_u32(g, "a.f32", &number), EXL2_ERR_FORMAT);
    check_error(c, "a.f32 is of type f32", "expected an integer", "a float where a count is wanted");
    CHECK_INT(exl2__gguf_get_u32(g, "a.ints", &number), EXL2_ERR_FORMAT);
    CHECK_INT(exl2__gguf_get_f32(g, "a.f32", &real), EXL2_OK);
    CHECK(real == 0.25f);
    CHECK_INT(exl2__gguf_get_f32(g, "a.f64", &real), EXL2_OK);
    CHECK(real == 1.5f);
    CHECK_INT(exl2__gguf_get_f32(g, "a.nan", &real), EXL2_ERR_FORMAT);
    CHECK_INT(exl2__gguf_get_f32(g, "a.u32", &real), EXL2_ERR_FORMAT);
    CHECK_INT(exl2__gguf_get_bool(g, "a.bool", &yes), EXL2_OK);
    CHECK(yes);
    CHECK_INT(exl2__gguf_get_bool(g, "a.u8", &yes), EXL2_ERR_FORMAT);
    CHECK_INT(exl2__gguf_get_text(g, "general.architecture", &text), EXL2_OK);
    CHECK(text.bytes == 5 && memcmp(text.data, "llama", 5) == 0);
    CHECK_INT(exl2__gguf_get_text(g, "a.texts", &text), EXL2_ERR_FORMAT);
    CHECK_INT(exl2__gguf_get_array(g, "a.ints", EXL2__GGUF_I32, &pair), EXL2_OK);
    CHECK_INT(pair->count, 3);
    CHECK_INT(exl2__load32(pair->data + 8), 12);
    CHECK_INT(exl2__gguf_get_array(g, "a.ints", EXL2__GGUF_STRING, &pair), EXL2_ERR_FORMAT);
    check_error(c, "array of i32", "expected an array of string", "an array of the wrong kind");
    CHECK_INT(exl2__gguf_get_array(g, "a.texts", EXL2__GGUF_STRING, &pair), EXL2_OK);
    text = exl2__gguf_string_at(pair->data);
    CHECK(pair->count == 2 && text.bytes == 3 && memcmp(text.data, "one", 3) == 0);
    CHECK_INT(exl2__gguf_get_array(g, "no.such", EXL2__GGUF_I32, &pair), EXL2_OK);
    CHECK(pair == NULL);
}

static void test_good(uint32_t version, size_t piece)
{
    memory_files m;
    exl2__gguf g;
    float numbers[64];
    uint8_t raw[256];
    gguf_bytes file = make_good(version);
    memory_make(&m);
    m.piece = piece;
    memory_add(&m, "good.gguf", file.data, file.bytes);
    if (CHECK_INT(exl2__gguf_open(&m.c, "x/good.gguf", &g), EXL2_OK)) {
        CHECK_INT(g.version, version);
        CHECK_INT(g.pair_count, 14);
        test_keys(&m.c, &g);
        const exl2__gguf_tensor *late = exl2__gguf_tensor_find(&g, "late.weight"),
                                *early = exl2__gguf_tensor_find(&g, "early.weight");
        CHECK(early == g.tensors && late == g.tensors + 1);
        CHECK(exl2__gguf_tensor_find(&g, "late") == NULL);
        CHECK_INT(early->bytes, 68);
        CHECK_INT(late->bytes, 256);
        CHECK_INT(late->dims[0], 32);
        CHECK_INT(late->dims[1], 2);
        CHECK_INT(early->offset % 32, 0);
        CHECK_INT(late->offset - early->offset, 256);
        CHECK_INT(exl2__gguf_read(&g, late->offset, raw, late->bytes), EXL2_OK);
        exl2__gguf_types_read(late->type, raw, 64, numbers);
        CHECK_INT(exl2__float_bits(numbers[1]), 0x312A231Cu); /* bytes 4 * 7 .. 7 * 7 */
        CHECK_INT(exl2__gguf_read(&g, g.file_bytes - 4, raw, 8), EXL2_ERR_IO);
    }
    exl2__gguf_close(&g);
    exl2__gguf_close(&g);
    memory_free(&m);
    free(file.data);
}

/* ---- invalid files ---- */

static void check_refused(const char *what, gguf_bytes file, exl2_result code, const char *piece, const char *other)
{
    memory_files m;
    exl2__gguf g;
    memory_make(&m);
    memory_add(&m, "bad.gguf", file.data, file.bytes);
    exl2_result result = exl2__gguf_open(&m.c, "x/bad.gguf", &g);
    if (!CHECK_INT(result, code)) {
        printf("  %s: \"%s\"\n", what, m.c.error.text);
    }
    check_error(&m.c, piece, other, what);
    check_error(&m.c, "x/bad.gguf", ".", what);
    exl2__gguf_close(&g);
    memory_free(&m);
    free(file.data);
}

static gguf_maker with_key(void)
{
    gguf_maker m = { 0 };
    gguf_key_text(&m, "general.architecture", "llama");
    return m;
}

static gguf_bytes cut(gguf_bytes file, size_t bytes)
{
    file.bytes = bytes;
    return file;
}

static gguf_bytes text_file(const char *text)
{
    gguf_bytes file = { 0 };
    file.bytes = strlen(text);
    file.data = malloc(file.bytes);
    memcpy(file.data, text, file.bytes);
    return file;
}

static void test_bad_start(void)
{
    gguf_maker m = with_key();
    check_refused("an empty file", cut(gguf_finish(&m), 0), EXL2_ERR_FORMAT, "not a GGUF", "GGUF");
    m = with_key();
    check_refused("a pointer", text_file("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n"),
                  EXL2_ERR_FORMAT, "a Git LFS pointer", "git lfs pull");
    check_refused("a page", text_file("<!DOCTYPE html>\n<html>"), EXL2_ERR_FORMAT, "a web page", "download it again");
    gguf_bytes zeros = gguf_finish(&m);
    memset(zeros.data, 0, zeros.bytes);
    check_refused("zeros", zeros, EXL2_ERR_FORMAT, "full of zeros", "download it again");
    m = with_key();
    gguf_bytes file = gguf_finish(&m);
    file.data[3] = 'f';
    check_refused("another magic", file, EXL2_ERR_FORMAT, "not a GGUF", "GGUF");
    m = with_key();
    check_refused("magic alone", cut(gguf_finish(&m), 4), EXL2_ERR_FORMAT, "ends after 4 bytes", "header");
    m = with_key();
    m.version = 1;
    check_refused("version 1", gguf_finish(&m), EXL2_ERR_UNSUPPORTED, "version 1", "2 and 3");
    m = with_key();
    m.version = 0x03000000;
    check_refused("big-endian", gguf_finish(&m), EXL2_ERR_UNSUPPORTED, "big-endian", "little");
    m = with_key();
    m.add_keys = (uint64_t)1 << 60;
    check_refused("2^60 keys", gguf_finish(&m), EXL2_ERR_FORMAT, "1152921504606846977 keys", "4096");
    m = with_key();
    m.add_tensors = 70000;
    check_refused("70,000 tensors", gguf_finish(&m), EXL2_ERR_FORMAT, "70000 tensors", "8192");
    m = with_key();
    m.add_keys = 1;
    check_refused("a key too few", gguf_finish(&m), EXL2_ERR_FORMAT, "name of key 1",
                  "0 bytes"); /* the padding is read as a length */
    m = with_key();
    m.unpadded = true;
    m.add_tensors = 1;
    check_refused("a tensor too few", gguf_finish(&m), EXL2_ERR_FORMAT, "inside its header", "ends");
}

static void test_bad_keys(void)
{
    gguf_maker m = with_key();
    gguf_key_u32(&m, "general.architecture", 1);
    check_refused("a key twice", gguf_finish(&m), EXL2_ERR_FORMAT, "two keys", "general.architecture");
    m = with_key();
    gguf_key_u32(&m, "", 1);
    check_refused("an empty name", gguf_finish(&m), EXL2_ERR_FORMAT, "name of key 1", "0 bytes");
    m = with_key();
    gguf_put64(&m.keys, UINT64_MAX);
    m.key_count++;
    check_refused("a name of 2^64 bytes", gguf_finish(&m), EXL2_ERR_FORMAT, "name of key 1",
                  "18446744073709551615 bytes");
    m = with_key();
    gguf_key_u32(&m, "a\nb", 1);
    check_refused("a line break in a name", gguf_finish(&m), EXL2_ERR_FORMAT, "name of key 1", "byte 10 at 1");
    m = with_key();
    gguf_key(&m, "a.b", 13);
    gguf_put64(&m.keys, 0);
    check_refused("value type 13", gguf_finish(&m), EXL2_ERR_FORMAT, "a.b", "value type 13");
    m = with_key();
    gguf_key_array(&m, "a.b", 99, 1);
    gguf_put64(&m.keys, 0);
    check_refused("item type 99", gguf_finish(&m), EXL2_ERR_FORMAT, "a.b", "value type 99");
    m = with_key();
    gguf_key_array(&m, "a.b", 9, 1);
    gguf_put64(&m.keys, 0);
    check_refused("nested arrays", gguf_finish(&m), EXL2_ERR_UNSUPPORTED, "a.b", "array of arrays");
    m = with_key();
    gguf_key_array(&m, "a.b", 10, ((uint64_t)1 << 61) + 1);
    gguf_put64(&m.keys, 0);
    check_refused("2^61 + 1 numbers of 8 bytes", gguf_finish(&m), EXL2_ERR_FORMAT, "inside its header", "ends");
    m = with_key();
    gguf_key_array(&m, "a.b", 8, UINT64_MAX);
    gguf_put_text(&m.keys, "x");
    check_refused("2^64 strings", gguf_finish(&m), EXL2_ERR_FORMAT, "inside its header", "ends");
    m = with_key();
    gguf_key(&m, "a.b", 8);
    gguf_put64(&m.keys, UINT64_MAX - 3);
    check_refused("a string of 2^64 - 4 bytes", gguf_finish(&m), EXL2_ERR_FORMAT, "inside its header", "ends");
    m = with_key();
    gguf_key(&m, "a.b", 7);
    gguf_put(&m.keys, "\x02", 1);
    check_refused("a bool of 2", gguf_finish(&m), EXL2_ERR_FORMAT, "a.b", "bool with the value 2");
    m = with_key();
    gguf_key_u32(&m, "general.alignment", 24);
    check_refused("alignment 24", gguf_finish(&m), EXL2_ERR_FORMAT, "general.alignment is 24", "power of two");
    m = with_key();
    gguf_key_u32(&m, "general.alignment", 0);
    check_refused("alignment 0", gguf_finish(&m), EXL2_ERR_FORMAT, "general.alignment is 0", "power of two");
}

static void test_bad_tensors(void)
{
    static const uint8_t data[512] = { 0 };
    gguf_maker m = with_key();
    gguf_info(&m, "t", 99, 32, 0, 0);
    gguf_put(&m.data, data, sizeof data);
    check_refused("type 99", gguf_finish(&m), EXL2_ERR_UNSUPPORTED, "tensor t", "GGML type 99");
    m = with_key();
    gguf_info(&m, "t", 0, (uint64_t)1 << 32, (uint64_t)1 << 32, 0);
    check_refused("2^64 numbers", gguf_finish(&m), EXL2_ERR_FORMAT, "tensor t",
                  "impossible shape 4294967296 x 4294967296");
    m = with_key();
    gguf_info(&m, "t", 12, (uint64_t)1 << 56, 0, 0);
    check_refused("2^56 numbers", gguf_finish(&m), EXL2_ERR_FORMAT, "tensor t", "impossible shape");
    m = with_key();
    gguf_info(&m, "t", 0, 0, 0, 0);
    check_refused("a dimension of 0", gguf_finish(&m), EXL2_ERR_FORMAT, "tensor t", "impossible shape 0 x 1");
    m = with_key();
    gguf_info(&m, "t", 8, 48, 0, 0);
    gguf_put(&m.data, data, sizeof data);
    check_refused("half a block", gguf_finish(&m), EXL2_ERR_FORMAT, "rows of 48", "multiple of 32 for Q8_0");
    m = with_key();
    gguf_put_text(&m.infos, "t");
    gguf_put32(&m.infos, 5);
    gguf_put(&m.infos, data, 64);
    m.tensor_count++;
    check_refused("five dimensions", gguf_finish(&m), EXL2_ERR_FORMAT, "tensor t", "5 dimensions");
    m = with_key();
    gguf_info(&m, "t", 0, 32, 0, 8);
    gguf_put(&m.data, data, sizeof data);
    check_refused("offset 8", gguf_finish(&m), EXL2_ERR_FORMAT, "begins at 8", "multiple of 32");
    m = with_key();
    gguf_info(&m, "t", 0, 128, 0, 32);
    gguf_put(&m.data, data, 512);
    check_refused("past the end", gguf_finish(&m), EXL2_ERR_FORMAT, "tensor t ends at", "truncated");
    m = with_key();
    gguf_info(&m, "t", 0, 32, 0, UINT64_MAX - 31);
    gguf_put(&m.data, data, 512);
    check_refused("offset 2^64 - 32", gguf_finish(&m), EXL2_ERR_FORMAT, "tensor t ends at", "truncated");
    m = with_key();
    gguf_info(&m, "t", 0, 32, 0, 0);
    gguf_info(&m, "u", 0, 32, 0, 96);
    gguf_put(&m.data, data, 512);
    check_refused("overlap", gguf_finish(&m), EXL2_ERR_FORMAT, "tensors t and u", "overlap");
    m = with_key();
    gguf_info(&m, "t", 0, 32, 0, 0);
    gguf_info(&m, "t", 0, 32, 0, 128);
    gguf_put(&m.data, data, 512);
    check_refused("a tensor twice", gguf_finish(&m), EXL2_ERR_FORMAT, "two tensors", "called t");
}

/* Every proper prefix of a valid file is rejected, without a leak. */
static void test_prefixes(void)
{
    gguf_bytes file = make_good(3);
    for (size_t bytes = 0; bytes < file.bytes; bytes++) {
        memory_files m;
        exl2__gguf g;
        memory_make(&m);
        memory_add(&m, "cut.gguf", file.data, bytes);
        exl2_result result = exl2__gguf_open(&m.c, "x/cut.gguf", &g);
        if (!CHECK_INT(result, EXL2_ERR_FORMAT)) {
            printf("  prefix of %zu bytes: \"%s\"\n", bytes, m.c.error.text);
        }
        memory_free(&m);
    }
    free(file.data);
}

/* A header longer than the first block that is read. */
static void test_long_header(void)
{
    memory_files m;
    exl2__gguf g;
    gguf_maker maker = { 0 };
    uint32_t count = 700000;
    gguf_key_array(&maker, "many.texts", 8, count);
    for (uint32_t i = 0; i < count; i++) {
        gguf_put64(&maker.keys, 0);
    }
    gguf_key_u32(&maker, "last", 42);
    gguf_bytes file = gguf_finish(&maker);
    memory_make(&m);
    memory_add(&m, "long.gguf", file.data, file.bytes);
    uint32_t last = 0;
    CHECK_INT(exl2__gguf_open(&m.c, "x/long.gguf", &g), EXL2_OK);
    CHECK_INT(exl2__gguf_get_u32(&g, "last", &last), EXL2_OK);
    CHECK_INT(last, 42);
    CHECK(file.bytes > (4u << 20));
    exl2__gguf_close(&g);
    memory_free(&m);
    free(file.data);
}

/* ---- a file of 8 GiB: its header, then bytes that say in which GiB they lie ---- */

static void *far_open(void *user, const char *path, uint64_t *bytes)
{
    (void)path;
    *bytes = exl2__align_up(((gguf_bytes *)user)->bytes, 32) + ((uint64_t)8 << 30) + 128;
    return user;
}

static int64_t far_read(void *user, void *file, uint64_t offset, void *out, size_t bytes)
{
    const gguf_bytes *header = (const gguf_bytes *)user;
    (void)file;
    for (size_t i = 0; i < bytes; i++, offset++) {
        ((uint8_t *)out)[i] = offset < header->bytes ? header->data[offset] : (uint8_t)(offset >> 30);
    }
    return (int64_t)bytes;
}

static void far_close(void *user, void *file)
{
    (void)user;
    (void)file;
}

static void test_far(void)
{
    exl2__ctx c = { 0 };
    exl2__gguf g;
    gguf_maker m = with_key();
    uint8_t raw[128] = { 0 };
    gguf_info(&m, "far", 0, 32, 0, (uint64_t)8 << 30);
    gguf_info(&m, "large", 0, 65536, 32768, 0);
    gguf_bytes header = gguf_finish(&m);
    exl2_files files = { far_open, NULL, far_read, far_close, &header };
    c.allocator = exl2__platform_allocator();
    c.files = files;
    if (CHECK_INT(exl2__gguf_open(&c, "far.gguf", &g), EXL2_OK)) {
        const exl2__gguf_tensor *large = exl2__gguf_tensor_find(&g, "large"), *far = exl2__gguf_tensor_find(&g, "far");
        CHECK(large->bytes == (uint64_t)8 << 30 && far->offset == large->offset + large->bytes);
        CHECK_INT(exl2__gguf_read(&g, far->offset, raw, far->bytes), EXL2_OK);
        CHECK(raw[0] == 8 && raw[127] == 8);
        CHECK_INT(exl2__gguf_read(&g, ((uint64_t)8 << 30) - 1, raw, 1), EXL2_OK);
        CHECK_INT(raw[0], 7);
    } else {
        printf("  %s\n", c.error.text);
    }
    exl2__gguf_close(&g);
    CHECK_INT(c.host_bytes, 0);
    free(header.data);
}

static void test_io(void)
{
    memory_files m;
    exl2__gguf g;
    gguf_bytes file = make_good(3);
    memory_make(&m);
    memory_add(&m, "good.gguf", file.data, file.bytes);
    CHECK_INT(exl2__gguf_open(&m.c, "x/other.gguf", &g), EXL2_ERR_IO);
    check_error(&m.c, "x/other.gguf", "no such file", "an absent file");
    m.fail_reads = true;
    CHECK_INT(exl2__gguf_open(&m.c, "x/good.gguf", &g), EXL2_ERR_IO);
    m.fail_reads = false;
    m.files[0].there = 40;
    CHECK_INT(exl2__gguf_open(&m.c, "x/good.gguf", &g), EXL2_ERR_IO);
    memory_free(&m);
    free(file.data);
}

int main(void)
{
    CHECK_INT(test_blocks(EXL2_GOLDEN_DIR "/gguf/blocks.json"), 15);
    CHECK_INT(test_blocks(EXL2_GOLDEN_DIR "/gguf/mxfp4.json"), 1);
    test_good(2, 0);
    test_good(3, 7);
    test_bad_start();
    test_bad_keys();
    test_bad_tensors();
    test_prefixes();
    test_long_header();
    test_far();
    test_io();
    return check_done();
}
