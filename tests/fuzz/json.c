/* json.c: fuzz target: any bytes as JSON, complete and incomplete, and as config.json and generation_config.json of a
   model.
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -DTEST_WHOLE -I. -Ibuild/tests
   tests/fuzz/json.c -lm. The suite runs it with run_seeds.c. */
#include "../memory_files.h"

#include "private/json_part.h"
#include "private/model_config_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Reads every token with every reader and follows every link. */
static void walk(const exl2__json *j)
{
    for (uint32_t i = 0; i < j->token_count; i++) {
        const exl2__json_token *t = &j->tokens[i];
        char text[16];
        uint64_t u = 0;
        int64_t s = 0;
        double f = 0;
        uint32_t children = 0, links = 0;
        require(t->begin <= t->end && t->end <= j->bytes && t->after > i && t->after <= j->token_count);
        require(exl2__json_text(j, i, text, sizeof text) <= t->end - t->begin);
        require(!exl2__json_is(j, i, "x") || t->kind == EXL2__JSON_STRING);
        bool is_u = exl2__json_u64(j, i, &u), is_s = exl2__json_i64(j, i, &s), is_f = exl2__json_f64(j, i, &f);
        require(!(is_u || is_s) || (is_f && t->kind == EXL2__JSON_NUMBER));
        require(!(is_u && is_s) || u == (uint64_t)s);
        require(!is_u || u > (uint64_t)1 << 53 || f == (double)u);
        for (uint32_t at = exl2__json_first(j, i); at && links < 64; at = exl2__json_next(j, i, at), links++) {
            children++;
        }
        require(children == (t->count < 64 ? t->count : 64));
    }
}

/* Reads longer and longer prefixes of a text, as while it is being generated. A value that was read may only grow, and
   no prefix of valid JSON (`json`) is rejected. */
static void grow(const uint8_t *data, size_t size, bool json)
{
    static const char *const paths[] = { "", "/a", "/model/vocab", "/rope_scaling/type", "/0/a", "/1", "/\xC3\xA9" };
    static char out[2][4096];
    for (size_t i = 0; i < EXL2__COUNT(paths); i++) {
        exl2__json_part before = { 0 };
        bool held = true;
        uint32_t turn = 0;
        for (size_t bytes = 0; bytes <= size; bytes += 1 + size / 64) {
            exl2__json_part now = { data, bytes, paths[i], out[turn++ % 2], sizeof out[0], 0, .at = 0 };
            bool good = exl2__json_part_read(&now);
            size_t both = before.used < sizeof out[0] ? before.used : sizeof out[0];
            require(held || !good);
            require(good || !json);
            require(now.used >= before.used && (both == 0 || memcmp(now.out, before.out, both) == 0));
            require(!before.whole || (now.whole && now.used == before.used));
            held = good;
            before = now;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static memory_files m;
    exl2__json j;
    exl2__config config;
    memory_make(&m);
    m.c.host_bytes_max = (uint64_t)64 << 20;
    if (exl2__json_open(&m.c, "input", (const char *)data, size, &j) == EXL2_OK) {
        walk(&j);
        grow(data, size, true);
        exl2__json_close(&m.c, &j);
    } else {
        grow(data, size, false);
    }
    memory_add(&m, "config.json", data, size);
    memory_add(&m, "generation_config.json", data, size);
    if (exl2__config_read(&m.c, "folder", &config) == EXL2_OK) {
        require(config.vocab && config.layers && config.heads % config.kv_heads == 0 && config.head_dim % 2 == 0);
    }
    memory_free(&m);
    require(check_failures == 0);
    return 0;
}
