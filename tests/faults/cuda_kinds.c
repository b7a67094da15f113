/* cuda_kinds.c: rows of two kinds over the fake driver: no pass has both, and K and V are always computed as their
   words say: found, evicted, preempted, restored, with drafts and without; also with window parts of pages. Prompts
   have only ids that are never sampled, so that the fake kernels know each row's kind.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_rig.h"

#define SESSIONS 6u
#define MOVES 1500u

static exl2_engine *e;
static exl2_model model;

static uint32_t below(uint32_t bound)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % bound;
}

static bool slow;          /* the GPU is so slow that the head is cut into units */
static bool windows;       /* a model with windows in two of its four layers, which keep K and V of few windows */
static uint32_t head_parts; /* products of later columns of the head, in one pass at least */

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    const exl2k_gemv_args *a = (const exl2k_gemv_args *)arguments;
    bool product = strncmp(function, "exl2k_gemv", 10) == 0;
    head_parts += product && a->matrix.parts == 1 && a->matrix.part[0].column > 0;
    fake_model_run(function, arguments, grid);
}

static void begin(uint32_t pages, uint32_t batch)
{
    static uint32_t turn;
    exl2_model_desc d = { .cache.format = (exl2_kv)(turn++ % 4) };
    machine_make();
    fake.run = run;
    fake.devices[0].memory_clock /= slow ? 1000 : 1;
    fake.eager = true;
    head_parts = 0;
    fake_model_kinds = true;
    memset(fake_model_rows, 0, sizeof fake_model_rows);
    d.path = rig_golden(windows ? "gemma2" : "exl2-mixed");
    d.prefill_chunk = 128;
    d.context_max = 512;
    d.batch_max = batch;
    d.cache.tokens = pages * EXL2__PAGE_TOKENS;
    e = cuda_open();
    if (!CHECK(e != NULL) || !CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK)) {
        exit(1);
    }
    exl2_model_info info;
    CHECK_INT(exl2_model_get(e, model, &info), EXL2_OK);
    CHECK((info.window_tokens > 0) == windows && info.window_tokens < d.cache.tokens);
}

static void end(void)
{
    exl2_close(e);
    machine_end();
}

/* `count` ids that begin as those of every other prompt. */
static exl2_token *prompt_of(uint32_t count)
{
    static exl2_token ids[512];
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = (exl2_token)(3 + i * i % 11 % (FAKE_MODEL_FIRST - 3));
    }
    return ids;
}

/* Every token of the history that can be sampled must be the one that the fake model says. */
static void check_history(exl2_session s)
{
    static exl2_token ids[512];
    size_t need = 0;
    uint32_t sum = 0, wrong = 0;
    CHECK_INT(exl2_session_tokens(e, s, ids, EXL2__COUNT(ids), &need), EXL2_OK);
    for (size_t i = 0; i < need; i++) {
        wrong += ids[i] >= (exl2_token)FAKE_MODEL_FIRST && ids[i] != fake_model_say(sum, CUDA_VOCAB);
        sum = fake_model_hear(sum, (uint32_t)ids[i]);
    }
    CHECK_INT(wrong, 0);
}

static exl2_engine_stats stats_of(void)
{
    exl2_engine_stats stats;
    exl2_stats(e, &stats);
    return stats;
}

/* A history that was evicted is computed again in passes of its kinds: 70 rows, then 8 at a time. */
static void test_again(void)
{
    exl2_session s, other;
    begin(4, 2);
    exl2_session_open(e, model, &s);
    exl2_session_open(e, model, &other);
    exl2_job_desc d = cuda_job(s, prompt_of(70), 70, 40, &cuda_said[0]);
    CHECK_INT(exl2_generate(e, &d), EXL2_OK);
    CHECK_INT(fake_model_rows[FAKE_ROWS_PROMPT], 70);
    CHECK_INT(fake_model_rows[FAKE_ROWS_SAMPLED], 39);
    exl2_job_desc evicts = cuda_job(other, prompt_of(9) + 1, 8, 240, &cuda_said[1]);
    CHECK_INT(exl2_generate(e, &evicts), EXL2_OK);
    memset(fake_model_rows, 0, sizeof fake_model_rows);
    uint64_t forwards = stats_of().forwards;
    d = cuda_job(s, NULL, 0, 1, &cuda_said[0]);
    CHECK_INT(exl2_generate(e, &d), EXL2_OK);
    CHECK_INT(fake_model_rows[FAKE_ROWS_PROMPT], 70);
    CHECK_INT(fake_model_rows[FAKE_ROWS_SAMPLED], 40);
    CHECK_INT(stats_of().forwards - forwards, 1 + 5);
    check_history(s);
    end();
}

/* Drafts out of another session's history are right, and ride as rows of sampled tokens. */
static void test_drafts(bool timed)
{
    exl2_session s[3];
    begin(16, 4);
    for (uint32_t i = 0; i < 3; i++) {
        exl2_session_open(e, model, &s[i]);
    }
    exl2_job_desc d = cuda_job(s[0], prompt_of(20), 20, 60, &cuda_said[0]);
    CHECK_INT(exl2_generate(e, &d), EXL2_OK);
    exl2_engine_stats before = stats_of();
    for (uint32_t i = 1; i < 3; i++) {
        d = cuda_job(s[i], prompt_of(20), 20, 60, &cuda_said[i]);
        d.draft.ngram = true;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    }
    cuda_step_all(e, false, timed ? 1 : 0);
    exl2_engine_stats after = stats_of();
    CHECK(after.accepted - before.accepted > (timed ? 10 : 60) && after.forwards - before.forwards < 60);
    for (uint32_t i = 0; i < 3; i++) {
        check_history(s[i]);
        CHECK_INT(cuda_said[i].count, 60);
    }
    printf("%u tokens in %u passes\n", 120, (unsigned)(after.forwards - before.forwards));
    end();
}

/* A second model that is always right drafts for the first. */
static exl2_job_desc draft_job(exl2_session *s)
{
    exl2_model_desc d = { .path = rig_golden(windows ? "gemma2" : "exl2-mixed"), .context_max = 512, .batch_max = 4 };
    d.cache.tokens = windows ? 2048 : 512;
    exl2_model draft = { 0 };
    CHECK_INT(exl2_model_load(e, &d, &draft), EXL2_OK);
    CHECK_INT(exl2_session_open(e, model, s), EXL2_OK);
    exl2_job_desc job = cuda_job(*s, prompt_of(20), 20, 60, &cuda_said[0]);
    job.draft = (exl2_draft_desc){ .model = draft, .tokens = 4 };
    return job;
}

static void test_draft_model(bool timed)
{
    exl2_session s;
    begin(16, 4);
    exl2_job_desc d = draft_job(&s);
    CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    cuda_step_all(e, false, timed ? 1 : 0);
    check_history(s);
    exl2_engine_stats stats = stats_of();
    CHECK(cuda_said[0].count == 60 && stats.accepted == stats.drafted);
    CHECK(stats.accepted > (timed ? 3u : 0u)); /* it costs as much as the model: where passes run ahead, few pay */
    CHECK(stats.jobs_active + stats.jobs_waiting == 0 && stats.pages_used == 0);
    printf("60 tokens in %u passes, %u drafts\n", (unsigned)stats.forwards, (unsigned)stats.accepted);
    end();
}

/* A GPU on which the head is several units: only steps with a budget see them, and the tokens are the same, with a
   grammar, too, whose masks come before the head. */
static void test_slow_head(void)
{
    static const exl2_step_desc steps[] = { { .wait = true }, { .wait = true, .gpu_us = 1 }, { .gpu_us = 60 } };
    uint32_t counts[3], parts[3];
    slow = true;
    for (uint32_t i = 0; i < EXL2__COUNT(steps); i++) {
        static uint32_t asked;
        exl2_session s[3];
        exl2_grammar g;
        begin(16, 4);
        exl2_grammar_desc gd = { .model = model, .kind = EXL2_GRAMMAR_CUSTOM, .allow = cuda_allow, .user = &asked };
        CHECK_INT(exl2_grammar_make(e, &gd, &g), EXL2_OK);
        for (uint32_t k = 0; k < 3; k++) {
            CHECK_INT(exl2_session_open(e, model, &s[k]), EXL2_OK);
            exl2_job_desc d = cuda_job(s[k], prompt_of(20 + 60 * k), 20 + 60 * k, 30, &cuda_said[k]);
            d.grammar = k == 2 ? g : d.grammar;
            CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        }
        for (counts[i] = 0; counts[i] < 100000 && exl2_step(e, &steps[i]) != EXL2_IDLE; counts[i]++) {
        }
        CHECK(cuda_said[0].count == 30 && cuda_said[1].count == 30);
        CHECK_INT(cuda_said[2].count, CUDA_MASKED);
        check_history(s[0]);
        check_history(s[1]);
        parts[i] = head_parts;
        exl2_grammar_close(e, g);
        end();
    }
    printf("later columns of the head: %u, %u, %u products in %u, %u, %u steps\n", parts[0], parts[1], parts[2],
           counts[0], counts[1], counts[2]);
    CHECK(parts[0] == 0 && parts[1] >= 30 && counts[1] > 2 * counts[0]);
    slow = false;
}

/* The device is lost, or a driver call fails, while a model drafts: the job ends, and its history can be read. */
static void test_draft_faults(int code)
{
    uint32_t n = 1, failed = 0;
    for (bool came = true; came && n < 5000; n += 13) {
        exl2_session s;
        begin(16, 4);
        exl2_job_desc d = draft_job(&s);
        fake.fail_code = code;
        fake.fail_at = n;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        cuda_step_all(e, false, 0);
        came = fake.failed[0] != 0;
        CHECK_INT(cuda_said[0].done_events, 1);
        CHECK(came || cuda_said[0].count == 60);
        failed += cuda_said[0].result < 0;
        check_history(s);
        end();
    }
    CHECK(failed > 10 && n > 200 && n < 5000);
}

/* Random jobs in few pages, with drafts, forks, cancels, saves and priorities. */
static void test_moves(uint32_t gpu_us, bool drafts)
{
    static uint8_t saved[1u << 20];
    static rig_said said[SESSIONS];
    exl2_session s[SESSIONS] = { { 0 } };
    exl2_job jobs[SESSIONS] = { { 0 } };
    size_t bytes = 0;
    begin(windows ? 14 : 8, 3);
    fake_model_windows = 0;
    fake_model_guesses = drafts;
    for (uint32_t move = 0; move < MOVES * (slow ? 6 : 1); move++) {
        uint32_t i = below(SESSIONS), action = below(32);
        exl2_session_info info = { 0 };
        exl2_step_desc step = { .gpu_us = gpu_us, .wait = below(2) > 0 };
        if (!s[i].id) {
            uint32_t from = below(SESSIONS);
            exl2_result r = s[from].id ? exl2_session_fork(e, s[from], &s[i]) : exl2_session_open(e, model, &s[i]);
            s[i].id = r < 0 ? 0 : s[i].id;
            continue;
        }
        exl2_session_get(e, s[i], &info);
        if (action < 8 && info.tokens < 380 && !info.busy_with.id) {
            uint32_t count = info.tokens && below(3) ? below(3) : drafts ? 70 : 1 + below(99);
            exl2_job_desc d = cuda_job(s[i], prompt_of(100), count, 1 + below(30), &said[i]);
            d.priority = (int32_t)below(3);
            d.draft.ngram = drafts;
            d.score_prompt = below(6) == 0;
            CHECK_INT(exl2_job_start(e, &d, &jobs[i]), EXL2_OK);
        } else if (action == 8) {
            exl2_job_cancel(e, jobs[i]);
        } else if (action == 9 && !info.busy_with.id) {
            check_history(s[i]);
            exl2_session_close(e, s[i]);
            s[i].id = 0;
        } else if (action == 10 && !info.busy_with.id) {
            CHECK_INT(exl2_session_save(e, s[i], below(2) ? EXL2_SAVE_KV : 0, saved, sizeof saved, &bytes), EXL2_OK);
        } else if (action == 11 && !info.busy_with.id && bytes) {
            CHECK_INT(exl2_session_restore(e, s[i], saved, bytes), EXL2_OK);
        } else {
            exl2_step(e, &step);
        }
    }
    cuda_step_all(e, false, gpu_us);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (s[i].id) {
            check_history(s[i]);
        }
    }
    exl2_engine_stats stats = stats_of();
    printf("%u evictions, %u preemptions, %u of %u drafts accepted\n", (unsigned)stats.evictions,
           (unsigned)stats.preemptions, (unsigned)stats.accepted, (unsigned)stats.drafted);
    CHECK(stats.evictions > 50 && stats.preemptions > 5 && (stats.accepted > 15) == drafts);
    CHECK((fake_model_windows > 1000) == windows);
    end();
}

int main(void)
{
    test_again();
    test_drafts(false);
    test_drafts(true);
    test_draft_model(false);
    test_draft_model(true);
    test_slow_head();
    test_draft_faults(EXL2__CUDA_OUT_OF_MEMORY);
    test_draft_faults(EXL2__CUDA_UNKNOWN);
    test_moves(0, false);
    test_moves(0, true);
    test_moves(1, false);
    test_moves(1, true);
    slow = true;
    test_moves(1, true);
    slow = false;
    windows = true;
    test_draft_model(false);
    test_moves(0, false);
    test_moves(0, true);
    test_moves(1, true);
    return check_done();
}
