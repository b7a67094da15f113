/* tier_speed.c: the cache's second tier on a GPU: many characters with a history each that together do not fit the
   cache; the time to the first word of each in a second round, with the tier and without, beside what a copy of its
   pages costs. Figures only.
   takes: tier_speed MODEL [characters] [tokens]; by default 200 of 1,000.
   gives: exit code 0, 1, or 77 without a GPU or a model. */
#define RIG_BACKEND EXL2_BACKEND_CUDA
#include "../engine/rig.h"

#include <stdlib.h>

#define CHARACTERS_MAX 1000u
#define TOKENS_MAX 8000u
#define NEW_TOKENS 8u

static double seconds(void)
{
    return 1e-9 * (double)exl2__platform_ns();
}

static rig_said said;

/* One turn. Returns the time to the first word. */
static double turn(const rig *r, exl2_session s, const exl2_token *ids, uint32_t count)
{
    exl2_job_desc d = rig_job(r, ids, count, NEW_TOKENS, &said);
    said.text_events = said.done_events = said.count = 0;
    d.model.id = 0;
    d.session = s;
    double begin = seconds(), first = 0;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    while (!said.done_events) {
        exl2_step(r->engine, &(exl2_step_desc){ .wait = true });
        first = first > 0 || said.count == 0 ? first : seconds() - begin;
    }
    CHECK_INT(said.result, EXL2_OK);
    return first;
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *path, uint32_t characters, uint32_t tokens, bool tier)
{
    static exl2_token ids[TOKENS_MAX];
    static exl2_session s[CHARACTERS_MAX];
    static double first[CHARACTERS_MAX];
    exl2_engine_desc e = { .max_sessions = characters + 1 };
    exl2_model_desc m = { .path = path, .context_max = tokens + 512 };
    exl2_model_info info = { .vocab = 0 };
    exl2_engine_stats stats;
    m.cache.tokens = 16384;
    rig r = rig_open(&e, &m);
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    if (tier) {
        rig_close(&r);
        m.cache.host_bytes = (uint64_t)characters * (tokens + 128) * info.cache_bytes_per_token;
        r = rig_open(&e, &m);
        CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    }
    for (uint32_t i = 0; i < characters; i++) {
        for (uint32_t k = 0; k < tokens; k++) {
            ids[k] = (exl2_token)(10 + (i * 7919u + k * (104729u + i)) % (info.vocab - 20));
        }
        CHECK_INT(exl2_session_open(r.engine, r.model, &s[i]), EXL2_OK);
        turn(&r, s[i], ids, tokens);
    }
    for (uint32_t i = 0; i < characters; i++) {
        first[i] = turn(&r, s[i], ids, 12);
    }
    exl2_stats(r.engine, &stats);
    uint64_t pages = (tokens + NEW_TOKENS - 1 + 63) / 64; /* the last one is filled in part */
    double last = first[characters - 1], bytes = (double)(pages * 64 * info.cache_bytes_per_token);
    qsort(first, characters, sizeof *first, by_time);
    printf("%s: first word of the last of %u characters %.2f ms, median %.2f, slowest %.2f; %u pages of %u in host "
           "memory, %u out, %u in; %.1f MB come back for each\n", tier ? "with the tier" : "without", characters,
           1e3 * last, 1e3 * first[characters / 2], 1e3 * first[characters - 1], stats.pages_host, info.host_pages,
           (unsigned)stats.pages_out, (unsigned)stats.pages_in, bytes * 1e-6);
    rig_close(&r);
}

int main(int argc, char **argv)
{
    uint32_t characters = argc > 2 ? (uint32_t)atoi(argv[2]) : 200, tokens = argc > 3 ? (uint32_t)atoi(argv[3]) : 1000;
    const char *path = argc > 1 ? argv[1] : check_env("EXL2_TEST_MODEL");
    if (!path) {
        check_skip("tier_speed needs a model folder");
    }
    if (characters > CHARACTERS_MAX || tokens > TOKENS_MAX || characters == 0) {
        printf("at most %u characters with %u tokens\n", CHARACTERS_MAX, TOKENS_MAX);
        return 1;
    }
    measure(path, characters, tokens, false);
    measure(path, characters, tokens, true);
    return check_done();
}
