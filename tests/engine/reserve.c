/* reserve.c: a KV cache that is reserved when a model is loaded, and committed page by page at first use, as it is on
   Windows. A page that the system refuses ends its job with EXL2_ERR_BUDGET and one sentence; the other jobs of the
   pass and later jobs go on. The tokens are those that a cache with all of its memory gives. An application with an
   allocator of its own provides the cache's memory itself. */
#include "../engine_rig.h"
#include "rig.h"

#include "private/phases.h"
#include "private/platform_alloc.h"

#define CACHE_TOKENS (16 * EXL2__PAGE_TOKENS)

static uint32_t commits, commits_left = UINT32_MAX;
static size_t commit_bytes;

static bool commit_allowed(size_t bytes)
{
    commits++;
    commit_bytes += bytes;
    if (commits_left == 0) {
        return false;
    }
    commits_left -= commits_left != UINT32_MAX;
    return true;
}

static void *own_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    return exl2__platform_alloc(user, bytes, align, tag);
}

static rig load(bool own)
{
    exl2_engine_desc e = { 0 };
    exl2_model_desc m = { .path = rig_golden("exl2-4bit"), .context_max = CACHE_TOKENS };
    m.cache.tokens = CACHE_TOKENS;
    e.allocator = own ? (exl2_allocator){ .alloc_fn = own_alloc, .free_fn = exl2__platform_free } : e.allocator;
    commits = 0;
    commit_bytes = 0;
    return rig_open(&e, &m);
}

/* Runs a job of `count` prompt tokens and 8 more. */
static void run(const rig *r, const exl2_token *prompt, uint32_t count, rig_said *said)
{
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, prompt, count, 8, said);
    rig_run(r, &d);
    CHECK_INT(said->done_events, 1);
}

int main(void)
{
#ifndef EXL2__TEST_COMMIT /* else the engine is this program's own: hosts/reserve.c */
    engine_rig.commit = commit_allowed;
#endif
    static rig_said whole, said[2];
    static exl2_token prompt[200];
    for (uint32_t i = 0; i < EXL2__COUNT(prompt); i++) {
        prompt[i] = (exl2_token)(3 + i * 7 % 300);
    }
    rig r = load(true);
    run(&r, prompt, 100, &whole);
    CHECK_INT(commits, 0);
    rig_close(&r);

    r = load(false);
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    CHECK_INT(commits, 0);
    run(&r, prompt, 100, &said[0]); /* 108 tokens: two pages */
    CHECK_INT(commits, 2);
    CHECK_INT(commit_bytes, 2 * info.cache_bytes_per_token * EXL2__PAGE_TOKENS);
    CHECK(said[0].count == whole.count && whole.count == 8);
    CHECK(memcmp(said[0].ids, whole.ids, whole.count * sizeof *whole.ids) == 0);
    run(&r, prompt, 100, &said[0]); /* it shares the first page, and its second one is new */
    CHECK_INT(commits, 3);

    /* One more page: the job that needs two more fails, beside one that needs one. */
    memset(said, 0, sizeof said);
    commits_left = 1;
    exl2_job_desc d[2] = { rig_job(&r, prompt + 1, 40, 8, &said[0]), rig_job(&r, prompt + 2, 190, 8, &said[1]) };
    exl2_job jobs[2];
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(exl2_job_start(r.engine, &d[i], &jobs[i]), EXL2_OK);
    }
    rig_drain(&r, 0);
    CHECK(said[0].done_events == 1 && said[1].done_events == 1);
    CHECK_INT(said[0].result, EXL2_OK);
    CHECK_INT(said[0].count, 8);
    CHECK_INT(said[1].result, EXL2_ERR_BUDGET);
    CHECK(strstr(said[1].error, "the system has no memory for another page of the KV cache") != NULL);
    commits_left = UINT32_MAX;
    memset(&said[1], 0, sizeof said[1]);
    run(&r, prompt + 2, 190, &said[1]); /* the system has memory again */
    CHECK(said[1].result == EXL2_OK && said[1].count == 8);
    rig_close(&r);
    return check_done();
}
