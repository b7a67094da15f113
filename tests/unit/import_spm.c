/* import_spm.c: SentencePiece vocabularies of GGUF files: the merges made from scores, the order of pieces, and the
   tokenizers of Gemma 3 and Llama 2 as their GGUF files have them, compared with the tokenizers library. */
#define _POSIX_C_SOURCE 200809L
#define EXL2_CONVERT
#include "private/import.h"
#include "../gguf_maker.h"
#include "../memory_files.h"
#include "../text_unpack.h"
#include "../vocab_open.h"

#include <time.h>

#define MARK "\xE2\x96\x81" /* U+2581 */

static char out_dir[512];

typedef struct piece {
    const char *text;
    float score;
    uint32_t type;
} piece;

static void put_float(gguf_bytes *b, float value)
{
    gguf_put32(b, exl2__float_bits(value));
}

static void add_vocabulary(gguf_maker *m, const piece *pieces, uint32_t count)
{
    gguf_key_text(m, "tokenizer.ggml.model", "llama");
    gguf_key_array(m, "tokenizer.ggml.tokens", 8, count);
    for (uint32_t i = 0; i < count; i++) {
        gguf_put_text(&m->keys, pieces[i].text);
    }
    gguf_key_array(m, "tokenizer.ggml.scores", 6, count);
    for (uint32_t i = 0; i < count; i++) {
        put_float(&m->keys, pieces[i].score);
    }
    gguf_key_array(m, "tokenizer.ggml.token_type", 5, count);
    for (uint32_t i = 0; i < count; i++) {
        gguf_put32(&m->keys, pieces[i].type);
    }
}

/* Writes the tokenizer of the GGUF file into out_dir. */
static exl2_result write_tokenizer(gguf_maker *m, uint32_t vocab, char error[256])
{
    static memory_files files;
    exl2__gguf g;
    exl2__import_text text = { 0 };
    gguf_bytes file = gguf_finish(m);
    memory_make(&files);
    memory_add(&files, "model.gguf", file.data, file.bytes);
    exl2_result result = exl2__gguf_open(&files.c, "folder/model.gguf", &g);
    if (result == EXL2_OK) {
        result = exl2__import_text_read(&g, vocab, false, &text);
        CHECK(exl2__platform_make_dir(out_dir));
        result = result == EXL2_OK ? exl2__import_text_write(&files.c, out_dir, &text, 512) : result;
        exl2__import_text_close(&text);
        exl2__gguf_close(&g);
    }
    snprintf(error, 256, "%s", files.c.error.text);
    CHECK_INT(files.c.host_bytes, 0);
    memory_free(&files);
    free(file.data);
    return result;
}

/* ---- a small vocabulary ---- */

static const piece small[] = {
    { "<unk>", 0, 2 }, { "<s>", 0, 3 }, { "</s>", 0, 3 }, { "<0x0A>", 0, 6 }, { "<0xE2>", 0, 6 }, { "<0x82>", 0, 6 },
    { "<0xAC>", 0, 6 }, { "  ", -1000, 4 }, { "   ", -1000, 4 }, { "[gone]", 0, 5 },
    /* the scores say the order, not the ids */
    { MARK "a", -3, 1 }, { "ab", -2, 1 }, { "bc", -1, 1 }, { "abc", -4, 1 }, { MARK, -9, 1 }, { "a", -10, 1 },
    { "b", -11, 1 }, { "c", -12, 1 }, { "\xC3\xA9", -13, 1 }, { "\xC3\xA9" "a", -0.5f, 1 },
};

static void test_merges(void)
{
    /* Longest user-defined piece first, then by score; of one piece, the longest left half first. */
    static const char *const wanted[][2] = {
        { MARK MARK, MARK }, { MARK, MARK MARK }, { MARK, MARK }, { "\xC3\xA9", "a" }, { "b", "c" }, { "a", "b" },
        { MARK, "a" }, { "ab", "c" }, { "a", "bc" },
    };
    gguf_maker m = { 0 };
    char path[600], error[256];
    exl2__ctx c = rows_ctx();
    exl2__json j;
    size_t bytes;
    add_vocabulary(&m, small, EXL2__COUNT(small));
    if (!CHECK_INT(write_tokenizer(&m, 64, error), EXL2_OK)) {
        printf("  %s\n", error);
        return;
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", out_dir);
    char *text = check_read(path, &bytes);
    CHECK_INT(exl2__json_open(&c, path, text, bytes, &j), EXL2_OK);
    uint32_t model = exl2__json_get(&j, 0, "model"), merges = exl2__json_get(&j, model, "merges"), i = 0;
    for (uint32_t t = exl2__json_first(&j, merges); t; t = exl2__json_next(&j, merges, t), i++) {
        uint32_t left = exl2__json_first(&j, t), right = exl2__json_next(&j, t, left);
        if (!CHECK(i < EXL2__COUNT(wanted) && exl2__json_is(&j, left, wanted[i][0]) &&
                   exl2__json_is(&j, right, wanted[i][1]))) {
            printf("  merge %u\n", i);
        }
    }
    CHECK_INT(i, EXL2__COUNT(wanted));
    uint32_t vocab = exl2__json_get(&j, model, "vocab"), added = exl2__json_get(&j, 0, "added_tokens");
    uint64_t id = 0;
    CHECK(exl2__json_u64(&j, exl2__json_get(&j, vocab, MARK MARK), &id) && id == 7);
    CHECK(!exl2__json_get(&j, vocab, "[gone]"));
    CHECK_INT(j.tokens[vocab].count, EXL2__COUNT(small) - 1);
    CHECK_INT(j.tokens[added].count, 5); /* three control tokens, two user-defined */
    CHECK(exl2__json_is(&j, exl2__json_get(&j, model, "unk_token"), "<unk>"));
    exl2__json_close(&c, &j);
    free(text);
}

static void check_ids(const exl2__vocab *v, exl2__ctx *c, const char *text, const exl2_token *wanted, uint32_t count)
{
    rows_state s = { c, (exl2__vocab *)(uintptr_t)v, "small" };
    exl2_token *got = NULL;
    size_t n = encode(&s, text, strlen(text), NULL, 0, &got);
    if (!CHECK(n == count && memcmp(got, wanted, count * sizeof *got) == 0)) {
        printf("  \"%s\" has %zu ids, expected %u\n", text, n, count);
    }
    free(got);
}

static void test_small(bool prefix)
{
    gguf_maker m = { 0 };
    char error[256];
    exl2__ctx c = rows_ctx();
    exl2__vocab v;
    add_vocabulary(&m, small, EXL2__COUNT(small));
    gguf_key_u32(&m, "tokenizer.ggml.bos_token_id", 1);
    if (!prefix) {
        gguf_key_bool(&m, "tokenizer.ggml.add_space_prefix", false);
    }
    CHECK_INT(write_tokenizer(&m, 64, error), EXL2_OK);
    c.files = exl2__platform_files();
    if (CHECK_INT(vocab_open(&c, out_dir, &v), EXL2_OK)) {
        const exl2_token joined[] = { 10, 12 }, bare[] = { 13 }, bytes[] = { 4, 5, 6, 3 };
        const exl2_token marked[] = { 14, 4, 5, 6, 3 };
        check_ids(&v, &c, "abc", prefix ? joined : bare, prefix ? 2 : 1); /* bc, then the mark with a */
        check_ids(&v, &c, "\xE2\x82\xAC\n", prefix ? marked : bytes, prefix ? 5 : 4);
        exl2__vocab_close(&c, &v);
    } else {
        printf("  %s\n", c.error.text);
    }
    CHECK(exl2__folder_remove(out_dir));
}

/* Pieces so long that finding the merges would last minutes. */
static void test_long(void)
{
    static char texts[64][32768];
    static piece pieces[64];
    gguf_maker m = { 0 };
    char error[256];
    for (uint32_t i = 0; i < 64; i++) {
        memset(texts[i], 'a', sizeof texts[i] - 1);
        texts[i][i] = 'b';
        pieces[i] = (piece){ texts[i], -(float)i, 1 };
    }
    add_vocabulary(&m, pieces, 64);
    CHECK_INT(write_tokenizer(&m, 64, error), EXL2_ERR_UNSUPPORTED);
    CHECK(strstr(error, "too long") != NULL);
    CHECK(exl2__folder_remove(out_dir));
}

/* ---- published tokenizers ---- */

/* Puts the tokens of a tokenizer.json into a GGUF file, as llama.cpp's converter does. The scores of SentencePiece are
   minus the rank, and ids are in that order; spaces_last: runs of spaces have the score -1e9, as Llama 2's have. */
static uint32_t add_published(gguf_maker *m, const exl2__json *j, bool spaces_last)
{
    uint32_t vocab = exl2__json_get(j, exl2__json_get(j, 0, "model"), "vocab"), count = j->tokens[vocab].count;
    uint32_t added = exl2__json_get(j, 0, "added_tokens");
    for (uint32_t t = exl2__json_first(j, added); t; t = exl2__json_next(j, added, t)) {
        uint64_t id = 0; /* an added token may follow the vocabulary */
        exl2__json_u64(j, exl2__json_get(j, t, "id"), &id);
        count = id == count ? count + 1 : count;
    }
    uint32_t *types = (uint32_t *)calloc(count, sizeof *types), *keys = (uint32_t *)calloc(count, sizeof *keys);
    char text[512];
    for (uint32_t t = exl2__json_first(j, vocab); t; t = exl2__json_next(j, vocab, t)) {
        uint64_t id = count;
        CHECK(exl2__json_u64(j, t + 1, &id) && id < count);
        keys[id] = t;
        text[exl2__json_text(j, t, text, sizeof text - 1)] = 0;
        types[id] = strncmp(text, "<0x", 3) == 0 && strlen(text) == 6 ? 6 : 1;
    }
    for (uint32_t t = exl2__json_first(j, added); t; t = exl2__json_next(j, added, t)) {
        uint64_t id = 0;
        bool special = false;
        CHECK(exl2__json_u64(j, exl2__json_get(j, t, "id"), &id) &&
              exl2__json_bool(j, exl2__json_get(j, t, "special"), &special));
        keys[id < count ? id : 0] = exl2__json_get(j, t, "content");
        types[id < count ? id : 0] = exl2__json_is(j, exl2__json_get(j, t, "content"), "<unk>") ? 2 : special ? 3 : 4;
    }
    gguf_key_text(m, "tokenizer.ggml.model", "llama");
    gguf_key_array(m, "tokenizer.ggml.tokens", 8, count);
    for (uint32_t id = 0; id < count; id++) {
        text[exl2__json_text(j, keys[id], text, sizeof text - 1)] = 0; /* the longest text has 93 bytes */
        for (char *at; types[id] == 4 && (at = strstr(text, MARK)) != NULL;) {
            *at = ' ';
            memmove(at + 1, at + 3, strlen(at + 3) + 1);
        }
        gguf_put_text(&m->keys, text);
    }
    gguf_key_array(m, "tokenizer.ggml.scores", 6, count);
    for (uint32_t id = 0; id < count; id++) {
        text[exl2__json_text(j, keys[id], text, sizeof text - 1)] = 0;
        bool run = spaces_last && strncmp(text, MARK MARK, 6) == 0 && strspn(text, MARK) == strlen(text);
        put_float(&m->keys, types[id] != 1 ? 0 : run ? -1e9f : -(float)id);
    }
    gguf_key_array(m, "tokenizer.ggml.token_type", 5, count);
    for (uint32_t id = 0; id < count; id++) {
        gguf_put32(&m->keys, types[id]);
    }
    free(types);
    free(keys);
    return count;
}

static void check_published(const char *dir, bool prefix, uint32_t bos, uint32_t merges)
{
    exl2__ctx c = rows_ctx();
    exl2__json j;
    exl2__vocab v;
    gguf_maker m = { 0 };
    char path[600], error[256];
    size_t bytes;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    char *text = text_unpack(path, &bytes);
    if (!CHECK(text != NULL) || !CHECK_INT(exl2__json_open(&c, path, text, bytes, &j), EXL2_OK)) {
        return;
    }
    uint32_t count = add_published(&m, &j, prefix);
    CHECK_INT(j.tokens[exl2__json_get(&j, exl2__json_get(&j, 0, "model"), "merges")].count, merges);
    exl2__json_close(&c, &j);
    free(text);
    gguf_key_u32(&m, "tokenizer.ggml.bos_token_id", bos);
    gguf_key_bool(&m, "tokenizer.ggml.add_space_prefix", prefix);
    clock_t start = clock();
    CHECK_INT(write_tokenizer(&m, count, error), EXL2_OK);
    printf("%s: %u pieces, %.2f s of one core\n", dir, count, (double)(clock() - start) / CLOCKS_PER_SEC);
    snprintf(path, sizeof path, "%s/tokenizer.json", out_dir);
    text = check_read(path, &bytes);
    CHECK_INT(exl2__json_open(&c, path, text, bytes, &j), EXL2_OK);
    CHECK_INT(j.tokens[exl2__json_get(&j, exl2__json_get(&j, 0, "model"), "merges")].count, merges);
    exl2__json_close(&c, &j);
    free(text);
    c.files = exl2__platform_files();
    if (CHECK_INT(vocab_open(&c, out_dir, &v), EXL2_OK)) {
        rows_state s = { &c, &v, NULL };
        text_rows(&s, dir, "encode.jsonl", 600, encode_row);
        text_rows(&s, dir, "decode.jsonl", 100, decode_row);
        text_rows(&s, dir, "stream.jsonl", 100, stream_row);
        exl2__vocab_close(&c, &v);
    } else {
        printf("  %s\n", c.error.text);
    }
    CHECK(exl2__folder_remove(out_dir));
}

int main(void)
{
    const char *temporary = getenv("TMPDIR");
    char dir[1200];
    snprintf(out_dir, sizeof out_dir, "%s/exl2-spm-%llx", temporary && *temporary ? temporary : "/tmp",
             (unsigned long long)exl2__platform_entropy(out_dir));
    test_merges();
    CHECK(exl2__folder_remove(out_dir));
    test_small(true);
    test_small(false);
    test_long();
    const char *root = check_shared("fixtures/tokenizers/README.md");
    snprintf(dir, sizeof dir, "%.*s/llama2", (int)(strlen(root) - 10), root);
    check_published(dir, true, 1, 58980);
    snprintf(dir, sizeof dir, "%.*s/gemma3", (int)(strlen(root) - 10), root);
    check_published(dir, false, 2, 514906);
    return check_done();
}
