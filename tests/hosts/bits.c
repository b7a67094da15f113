/* bits.c: bits PATH MODEL ...: hashes of all logits that models compute on a path (c, avx2, avx512, neon). The prompt
   crosses a page; tokens are sampled with settings that edit logits. Serial passes must give the same hash as passes in
   steps of 1 us with 5 tasks in reverse order. One line per model, so that builds and machines can be compared. Exit
   code 77: this CPU has no such path. */
#include "exl2.h"

#include "../check.h"

#define PROMPT 70u /* tokens; the smallest context of the models has more */
#define TOKENS 10u /* to sample */

static exl2_cpu_path path;

typedef struct hashed {
    uint64_t hash; /* FNV-1a */
    uint32_t rows, tokens;
} hashed;

static void add(hashed *h, const void *data, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) {
        h->hash = (h->hash ^ at[i]) * 0x100000001B3u;
    }
}

static void hash_logits(void *user, exl2_job job, float *logits, uint32_t vocab)
{
    hashed *h = (hashed *)user;
    (void)job;
    add(h, logits, vocab * sizeof *logits);
    h->rows++;
}

static exl2_flow hash_tokens(void *user, const exl2_event *event)
{
    hashed *h = (hashed *)user;
    for (uint32_t i = 0; event->kind == EXL2_EVENT_TEXT && i < event->token_count; i++) {
        add(h, &event->tokens[i].token, sizeof event->tokens[i].token);
        h->tokens++;
    }
    return EXL2_CONTINUE;
}

static void backwards(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    for (uint32_t i = count; i > 0; i--) {
        task(arg, i - 1);
    }
}

static void need(exl2_engine *e, exl2_result r, const char *what)
{
    if (r < 0) {
        exl2_error error = { EXL2_OK, 0, "" };
        if (e) {
            exl2_last_error(e, &error);
        }
        printf("%s: %s %s\n", what, exl2_result_name(r), error.text);
        exit(1);
    }
}

static hashed run(const char *folder, bool split)
{
    hashed h = { 0xCBF29CE484222325u, 0, 0 };
    exl2_engine *e = NULL;
    exl2_engine_info info;
    exl2_model_info model;
    exl2_model m;
    exl2_token prompt[PROMPT];
    exl2_engine_desc engine_desc = { .backend = EXL2_BACKEND_CPU, .cpu_path_max = path };
    exl2_model_desc model_desc = { .path = folder };
    if (split) {
        engine_desc.parallel = (exl2_parallel){ .run = backwards, .width = 5 };
    }
    need(NULL, exl2_open(&engine_desc, &e), "exl2_open");
    exl2_engine_get(e, &info);
    if (info.cpu_path != path) {
        check_skip("this CPU has no such path");
    }
    need(e, exl2_model_load(e, &model_desc, &m), folder);
    need(e, exl2_model_get(e, m, &model), folder);
    for (uint32_t i = 0; i < PROMPT; i++) {
        prompt[i] = (exl2_token)((i * i * 7 + i * 31 + 5) % model.vocab);
    }
    exl2_job_desc job = { .model = m,
                          .prompt.tokens = prompt,
                          .prompt.token_count = PROMPT,
                          .max_tokens = TOKENS,
                          .sampler = { .seed = 5, .temperature = 0.9f, .min_p = 0.01f, .repeat_penalty = 1.1f,
                                       .frequency_penalty = 0.13f, .presence_penalty = 0.07f, .penalty_range = 8,
                                       .penalty_decay = 40, .mirostat_tau = 7 },
                          .on_logits = hash_logits,
                          .on_event = hash_tokens,
                          .user = &h };
    need(e, exl2_job_start(e, &job, NULL), folder);
    const exl2_step_desc slice = { .cpu_us = 1 };
    for (exl2_result r = EXL2_OK; r != EXL2_IDLE;) {
        r = exl2_step(e, split ? &slice : NULL);
        need(e, r, folder);
    }
    exl2_close(e);
    return h;
}

int main(int argc, char **argv)
{
    static const char *const paths[] = { "auto", "c", "avx2", "avx512", "neon" };
    for (size_t i = 0; argc > 1 && i < sizeof paths / sizeof paths[0]; i++) {
        path = strcmp(argv[1], paths[i]) == 0 ? (exl2_cpu_path)i : path;
    }
    if (argc < 3 || path == EXL2_CPU_AUTO) {
        fputs("usage: bits c|avx2|avx512|neon MODEL ...\n", stderr);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        hashed whole = run(argv[i], false), split = run(argv[i], true);
        const char *name = strrchr(argv[i], '/');
        CHECK(whole.rows > 1 && whole.tokens > 0);
        CHECK(whole.hash == split.hash);
        printf("%016llx %s\n", (unsigned long long)whole.hash, name ? name + 1 : argv[i]);
    }
    return check_done();
}
