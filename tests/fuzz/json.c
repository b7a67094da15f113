/* json.c: fuzz target: any bytes as JSON, and as config.json and generation_config.json of a model.
   By hand: clang -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/json.c -lm; in the suite with run_seeds.c. */
#include "../memory_files.h"

#include "../../exl2_impl/1_load/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Reads every token in every way and follows every link. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static memory_files m;
    exl2__json j;
    exl2__config config;
    memory_make(&m);
    m.c.host_bytes_max = (uint64_t)64 << 20;
    if (exl2__json_open(&m.c, "input", (const char *)data, size, &j) == EXL2_OK) {
        walk(&j);
        exl2__json_close(&m.c, &j);
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
