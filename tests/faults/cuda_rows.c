/* cuda_rows.c: passes of up to 64 sampled rows over the fake driver: a step makes few driver calls and launches no
   kernel by itself, however many rows its pass has; every text is right, also when jobs end one after the other; and
   each driver call of loading such a model and of running it fails once.
   takes: the goldens.
   gives: exit code 0 or 1; driver calls of a pass, by its rows. */
#include "cuda_rig.h"

#define ROWS_MAX 64u
#define CALLS_MAX 12u /* driver calls of a pass: 1 or 2 graphs, an event, the context, and what waits for results */

static rig_said said[ROWS_MAX];
static exl2_session sessions[ROWS_MAX];
static uint32_t sampled; /* passes that sampled */

static void run_counted(const char *function, const void *arguments, const unsigned grid[3])
{
    sampled += strcmp(function, "exl2k_sample_token") == 0;
    fake_model_run(function, arguments, grid);
}

static exl2_result load(cuda_life *l, uint32_t rows)
{
    exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .batch_max = rows };
    d.cache.tokens = 2 * ROWS_MAX * EXL2__PAGE_TOKENS;
    return cuda_try(l, exl2_model_load(l->e, &d, &l->model));
}

/* Starts a job for each row, whose prompt has two tokens. steady: all are as long; else each is longer than the one
   before. */
static exl2_result start(cuda_life *l, uint32_t rows, uint32_t tokens, bool steady)
{
    exl2_job job;
    for (uint32_t i = 0; i < rows; i++) {
        EXL2__TRY(cuda_try(l, exl2_session_open(l->e, l->model, &sessions[i])));
        exl2_job_desc d = cuda_job(sessions[i], cuda_prompt, 2, tokens + (steady ? 0 : i), &said[i]);
        EXL2__TRY(cuda_try(l, exl2_job_start(l->e, &d, &job)));
    }
    return EXL2_OK;
}

static void end(cuda_life *l)
{
    exl2_close(l->e);
    machine_end();
}

/* ---- driver calls of a step ---- */

/* Driver calls of a pass that decodes `rows` rows, as a mean over many; *launches: those of kernels. */
static double calls_of(uint32_t rows, uint32_t *launches)
{
    enum { TOKENS = 60, BEGIN = 10, PASSES = 40 };
    const exl2_step_desc step = { .wait = true };
    machine_make();
    fake.run = run_counted;
    cuda_life l = { .e = cuda_open() };
    CHECK_INT(load(&l, ROWS_MAX), EXL2_OK);
    CHECK_INT(start(&l, rows, TOKENS, true), EXL2_OK);
    for (sampled = 0; sampled < BEGIN && exl2_step(l.e, &step) != EXL2_IDLE;) {
    }
    uint32_t first = sampled, calls = fake.calls, kernels = fake.launches;
    while (sampled < first + PASSES && exl2_step(l.e, &step) != EXL2_IDLE) {
    }
    double each = (double)(fake.calls - calls) / (sampled - first);
    *launches = fake.launches - kernels;
    cuda_step_all(l.e, false, 0);
    for (uint32_t i = 0; i < rows; i++) {
        cuda_expect_history(l.e, sessions[i], 2, 2 + TOKENS);
    }
    end(&l);
    return each;
}

static void test_calls(void)
{
    static const uint32_t rows[] = { 1, 8, 16, 17, 24, 32, 33, 64 };
    for (uint32_t i = 0; i < EXL2__COUNT(rows); i++) {
        uint32_t launches;
        double calls = calls_of(rows[i], &launches);
        printf("%u rows: %.1f driver calls a pass, %u launches in 40 passes\n", rows[i], calls, launches);
        CHECK(launches == 0 && calls <= CALLS_MAX);
    }
}

/* Jobs end one after the other, so that passes of every number of rows from 64 down to 1 follow each other, as whole
   passes and unit by unit. */
static void test_ends(uint32_t gpu_us)
{
    machine_make();
    fake.run = run_counted;
    cuda_life l = { .e = cuda_open() };
    CHECK_INT(load(&l, 64), EXL2_OK);
    CHECK_INT(start(&l, 64, 3, false), EXL2_OK);
    cuda_step_all(l.e, false, gpu_us);
    for (uint32_t i = 0; i < 64; i++) {
        cuda_expect_history(l.e, sessions[i], 2, 5 + i);
    }
    end(&l);
}

/* ---- failures ---- */

/* Calls that give only information, release something, or whose failure a later call repeats. */
static bool matters(const char *name)
{
    static const char *const matter[] = { "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
                                          "cuGraphLaunch", "cuLaunchKernel", "cuMemAlloc", "cuEventRecord" };
    for (size_t i = 0; i < EXL2__COUNT(matter); i++) {
        if (strcmp(matter[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Loads a model for 20 sequences and runs 20 jobs while the n-th call of the name fails. Returns false if there were
   fewer than n. */
static bool life(const char *name, uint32_t n, uint32_t gpu_us)
{
    enum { ROWS = 20, TOKENS = 4 };
    machine_make();
    fake.run = run_counted;
    fake.eager = true;
    cuda_life l = { .e = cuda_open() };
    fake.fail_code = 1;
    fake.fail_name = name;
    fake.fail_at = n;
    exl2_result r = load(&l, ROWS);
    r = r < 0 ? r : start(&l, ROWS, TOKENS, true);
    if (r >= 0) {
        cuda_step_all(l.e, false, gpu_us);
    }
    for (uint32_t i = 0; i < ROWS && r >= 0; i++) {
        CHECK_INT(said[i].done_events, 1);
        r = cuda_keep(&l, &said[i]);
    }
    bool failed = fake.failed[0] != 0;
    CHECK(failed || r == EXL2_OK);
    if (failed && (r < 0 || matters(fake.failed))) {
        CHECK(r < 0 && strlen(l.error.text) > 20 && (r == EXL2_ERR_INTERNAL || !name));
    }
    fake.fail_at = 0;
    if (r < 0) { /* the engine works on */
        if (l.model.id) {
            CHECK_INT(exl2_model_close(l.e, l.model), EXL2_OK);
        }
        CHECK_INT(load(&l, ROWS), EXL2_OK);
        CHECK_INT(start(&l, ROWS, TOKENS, true), EXL2_OK);
        cuda_step_all(l.e, false, gpu_us);
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        cuda_expect_history(l.e, sessions[i], 2, 2 + TOKENS);
    }
    end(&l);
    return failed;
}

static void test_failures(void)
{
    static const struct {
        const char *name;
        uint32_t gpu_us, each; /* each: n grows by so many */
    } kinds[] = {
        { "cuStreamBeginCapture", 0, 1 }, { "cuStreamEndCapture", 0, 1 }, { "cuGraphInstantiateWithFlags", 0, 1 },
        { "cuGraphLaunch", 0, 1 }, { "cuGraphLaunch", 1, 1 }, { "cuLaunchKernel", 0, 3 }, { NULL, 0, 1 }
    };
    for (size_t i = 0; i < EXL2__COUNT(kinds); i++) {
        uint32_t n = 1;
        while (n < 20000 && life(kinds[i].name, n, kinds[i].gpu_us)) {
            n += kinds[i].each * (CHECK_SANITIZED ? 3 : 1);
        }
        printf("%s: %u can fail\n", kinds[i].name ? kinds[i].name : "calls", n - 1);
        CHECK(n > 2 && n < 20000);
    }
}

int main(void)
{
    machine_drop_cache();
    test_calls();
    test_ends(0);
    test_ends(1);
    test_failures();
    machine_drop_cache();
    fake_reset();
    return check_done();
}
