/* cuda_tier.c: the cache's second tier over the fake driver, whose kernels see what lies in each page: evicted pages go
   to host memory and come back to texts that need them, with the same words; where computing is faster nothing is
   copied; caps, park, cards; random sessions; copies and pinned memory that fail once.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_ways.h"

#define SESSIONS 12u
#define PROMPT 150u /* two whole pages, and one that is filled in part */
#define PAGES 8u    /* of the cache: of three sessions, or two at once */
#define NEW 6u

static rig_said said[SESSIONS];
static const exl2_card two_cards[2] = { { .device = 0 }, { .device = 1 } };
static uint32_t card_count;

/* A machine whose memory is so slow, or so fast, that a page is copied faster than it is computed, or not. */
static void make(bool slow)
{
    machine_make();
    fake.run = fake_model_run;
    fake.device_count = 2;
    fake.devices[1] = fake.devices[0];
    fake.devices[1].uuid[0] = 11;
    for (uint32_t i = 0; i < 2; i++) {
        fake.devices[i].memory_clock = slow ? 1 : fake.devices[i].memory_clock;
    }
}

static exl2_engine *open_engine(uint64_t host_bytes_max)
{
    static const exl2_device_desc picks[2] = { { .pick = EXL2_PICK_INDEX }, { .pick = EXL2_PICK_INDEX, .index = 1 } };
    exl2_engine *e = NULL;
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    d.devices = picks;
    d.device_count = 2;
    d.host_bytes_max = host_bytes_max;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    return e;
}

static exl2_model_desc model_desc(uint64_t host_bytes)
{
    exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .prefill_chunk = 64, .batch_max = 2, .context_max = 256,
                          .cards = two_cards, .card_count = card_count };
    d.cache.tokens = PAGES * EXL2__PAGE_TOKENS;
    d.cache.host_bytes = host_bytes;
    return d;
}

static exl2_engine_stats stats_of(exl2_engine *e)
{
    exl2_engine_stats stats;
    exl2_stats(e, &stats);
    return stats;
}

static uint64_t page_bytes_of(exl2_engine *e)
{
    exl2_model_desc d = model_desc(0);
    exl2_model_info info = { .vocab = 0 };
    CHECK_INT(exl2_model_measure(e, &d, &info), EXL2_OK);
    CHECK_INT(info.host_pages, 0);
    return info.cache_bytes / PAGES;
}

/* The text of a character: all begin alike. */
static void make_prompt(exl2_token *ids, uint32_t who)
{
    for (uint32_t i = 0; i < PROMPT; i++) {
        ids[i] = (exl2_token)(20 + (i < 40 ? i : i * (7 + who) + who) % 200);
    }
}

/* A turn of a session: `count` more tokens, then NEW of the model. exact: the estimate of what is found must agree. */
static void turn(exl2_engine *e, exl2_session s, const exl2_token *ids, uint32_t count, bool exact, rig_said *out)
{
    exl2_job_desc d = cuda_job(s, ids, count, NEW, out);
    exl2_job_size size;
    CHECK_INT(exl2_job_measure(e, &d, &size), EXL2_OK);
    CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    cuda_step_all(e, false, 0);
    CHECK_INT(out->result, EXL2_OK);
    CHECK(!exact || size.reused_tokens == out->stats.reused_tokens);
}

/* Rows of all passes so far. */
static uint64_t rows_so_far(void)
{
    return (uint64_t)fake_model_rows[FAKE_ROWS_PROMPT] + fake_model_rows[FAKE_ROWS_SAMPLED];
}

/* Each of many characters speaks, then each once more. Returns the rows that the second round has computed. */
static uint64_t evening(exl2_engine *e, exl2_model model)
{
    static exl2_token ids[PROMPT];
    exl2_session s[SESSIONS];
    for (uint32_t i = 0; i < SESSIONS; i++) {
        CHECK_INT(exl2_session_open(e, model, &s[i]), EXL2_OK);
        make_prompt(ids, i);
        turn(e, s[i], ids, PROMPT, true, &said[i]);
        cuda_expect_history(e, s[i], PROMPT, PROMPT + NEW);
    }
    uint64_t before = rows_so_far();
    for (uint32_t i = 0; i < SESSIONS; i++) {
        turn(e, s[i], cuda_prompt, 3, true, &said[i]);
    }
    uint64_t computed = rows_so_far() - before;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        static exl2_token history[256];
        size_t need;
        uint32_t sum = 0;
        CHECK_INT(exl2_session_tokens(e, s[i], history, 256, &need), EXL2_OK);
        CHECK_INT(need, PROMPT + 2 * NEW + 3);
        for (uint32_t k = 0; k < need; k++) { /* words of the fake model, which depend on all pages */
            bool own = (k >= PROMPT && k < PROMPT + NEW) || k >= PROMPT + NEW + 3;
            CHECK(!own || history[k] == fake_model_say(sum, CUDA_VOCAB));
            sum = fake_model_hear(sum, (uint32_t)history[k]);
        }
        CHECK_INT(exl2_session_close(e, s[i]), EXL2_OK);
    }
    return computed;
}

/* host_pages: of the tier. Returns the rows that the second round has computed. */
static uint64_t check_evening(uint32_t host_pages, bool slow, bool eager)
{
    exl2_model model;
    exl2_model_info info, measured;
    make(slow);
    fake.eager = eager;
    exl2_engine *e = open_engine(0);
    uint64_t page = page_bytes_of(e), host = stats_of(e).host_bytes;
    exl2_model_desc d = model_desc(host_pages * page + page / 2);
    d.keep_packed = eager;
    CHECK_INT(exl2_model_measure(e, &d, &measured), host_pages ? EXL2_OK : EXL2_ERR_ARG);
    if (!host_pages) {
        exl2_last_error(e, &cuda_error);
        CHECK(strstr(cuda_error.text, "but a page of K and V has ") != NULL);
        d.cache.host_bytes = 0;
    }
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    CHECK_INT(exl2_model_get(e, model, &info), EXL2_OK);
    CHECK_INT(info.host_pages, host_pages);
    exl2_engine_stats loaded = stats_of(e);
    uint64_t predicted = info.weight_bytes + info.cache_bytes + info.scratch_bytes - info.device_bytes;
    CHECK(loaded.host_peak - host <= predicted && loaded.host_bytes - host >= host_pages * page);
    uint64_t computed = evening(e, model);
    exl2_engine_stats after = stats_of(e);
    CHECK_INT(after.allocations, loaded.allocations);
    CHECK_INT(after.host_bytes, loaded.host_bytes);
    CHECK(after.pages_host <= host_pages && after.evictions > 0);
    CHECK((after.pages_out > 0) == (host_pages && slow) && (after.pages_in > 0) == (host_pages >= 40 && slow));
    printf("%u pages in host memory: %u out, %u in, %u rows in the second round\n", host_pages,
           (unsigned)after.pages_out, (unsigned)after.pages_in, (unsigned)computed);
    CHECK_INT(exl2_model_park(e, model, true), EXL2_OK);
    CHECK(stats_of(e).pages_host == 0 && stats_of(e).host_bytes + host_pages * page <= loaded.host_bytes);
    CHECK_INT(exl2_model_park(e, model, false), EXL2_OK);
    for (uint32_t i = 0; i < 100000 && exl2_model_state(e, model) == EXL2_PENDING; i++) {
        exl2_step(e, NULL);
    }
    CHECK_INT(stats_of(e).host_bytes, loaded.host_bytes);
    CHECK_INT(evening(e, model), computed);
    CHECK_INT(exl2_model_close(e, model), EXL2_OK);
    exl2_close(e);
    machine_end();
    return computed;
}

static void check_evenings(void)
{
    for (card_count = 0; card_count <= 2; card_count += 2) {
        for (uint32_t eager = 0; eager < 2; eager++) {
            uint64_t none = check_evening(0, true, eager), fast = check_evening(40, false, eager);
            CHECK_INT(fast, none);
            uint64_t all = check_evening(40, true, eager);
            CHECK(4 * all < none);
            CHECK(check_evening(14, true, eager) <= none && check_evening(3, true, eager) <= none);
        }
    }
    card_count = 0;
}

/* The caps of host memory count the tier. */
static void check_cap(void)
{
    exl2_model model;
    make(true);
    exl2_engine *e = open_engine(0);
    uint64_t page = page_bytes_of(e);
    exl2_model_desc d = model_desc(30 * page);
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    uint64_t peak = stats_of(e).host_peak;
    exl2_close(e);
    machine_end();
    make(true);
    e = open_engine(peak + (64 << 10)); /* what is planned is an upper bound */
    exl2_result r = exl2_model_load(e, &d, &model);
    CHECK(r == EXL2_OK || r == EXL2_ERR_BUDGET);
    CHECK(stats_of(e).host_peak <= peak + (64 << 10));
    d.cache.host_bytes = 300 * page;
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_ERR_BUDGET);
    exl2_close(e);
    machine_end();
}

/* What one tree of pages has in the tier, another one does not find, though the words are the same. */
static void check_roots(bool no_reuse)
{
    static exl2_token ids[PROMPT];
    exl2_session s[6];
    exl2_model model;
    make(true);
    exl2_engine *e = open_engine(0);
    exl2_model_desc d = model_desc(40 * page_bytes_of(e));
    d.cache.no_reuse = no_reuse;
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    for (uint32_t i = 0; i < 6; i++) { /* the last one says what the first one has said */
        CHECK_INT(exl2_session_open(e, model, &s[i]), EXL2_OK);
        make_prompt(ids, i % 5);
        turn(e, s[i], ids, PROMPT, true, &said[i]);
        cuda_expect_history(e, s[i], PROMPT, PROMPT + NEW);
    }
    CHECK_INT(said[5].stats.reused_tokens, no_reuse ? 0 : PROMPT - 1);
    CHECK_INT(stats_of(e).pages_in, no_reuse ? 0 : 3);
    turn(e, s[1], cuda_prompt, 3, true, &said[1]);
    CHECK(stats_of(e).pages_in >= (no_reuse ? 2 : 3));
    exl2_close(e);
    machine_end();
}

/* What a character of so many tokens that said eight words costs when it is spoken to again: rows and passes before its
   first word. Its pages lie in host memory. */
static void check_rest(uint32_t text, uint32_t rows, uint32_t passes)
{
    static exl2_token ids[1000];
    exl2_session s[6];
    exl2_model model;
    make(true);
    exl2_engine *e = open_engine(0);
    exl2_model_desc d = model_desc(120 * page_bytes_of(e));
    d.context_max = 1152;
    d.cache.tokens = 20 * EXL2__PAGE_TOKENS;
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    for (uint32_t i = 0; i < EXL2__COUNT(s); i++) {
        CHECK_INT(exl2_session_open(e, model, &s[i]), EXL2_OK);
        for (uint32_t k = 0; k < text; k++) {
            ids[k] = (exl2_token)(20 + k * (7 + i) % 200);
        }
        exl2_job_desc job = cuda_job(s[i], ids, text, 8, &said[i]);
        CHECK_INT(exl2_job_start(e, &job, NULL), EXL2_OK);
        cuda_step_all(e, false, 0);
    }
    uint64_t before = rows_so_far(), forwards = stats_of(e).forwards;
    exl2_job_desc job = cuda_job(s[0], ids, 12, 1, &said[0]);
    CHECK_INT(exl2_job_start(e, &job, NULL), EXL2_OK);
    cuda_step_all(e, false, 0);
    exl2_engine_stats stats = stats_of(e);
    printf("a history of %u tokens: %u rows in %u passes before the first word; %u pages out, %u in\n", text + 8,
           (unsigned)(rows_so_far() - before), (unsigned)(stats.forwards - forwards), (unsigned)stats.pages_out,
           (unsigned)stats.pages_in);
    CHECK_INT(rows_so_far() - before, rows);
    CHECK_INT(stats.forwards - forwards, passes);
    exl2_close(e);
    machine_end();
}

/* A turn of random length of one session. Returns whether there was one: a history that is too long is cut instead. */
static bool random_turn(exl2_engine *e, exl2_session s, uint32_t number, uint32_t who)
{
    static exl2_token ids[PROMPT], history[256];
    exl2_session_info info;
    CHECK_INT(exl2_session_get(e, s, &info), EXL2_OK);
    make_prompt(ids, number % 5);
    uint32_t count = info.tokens ? 1 + number % 20 : PROMPT - number % 50, sum = 0;
    if (info.tokens + count + NEW > 250) {
        CHECK_INT(exl2_session_rewind(e, s, number % 100), EXL2_OK);
        return false;
    }
    turn(e, s, ids, count, false, &said[who]);
    size_t need;
    CHECK_INT(exl2_session_tokens(e, s, history, 256, &need), EXL2_OK);
    for (uint32_t k = 0; k < need; k++) {
        CHECK(k + NEW < need || history[k] == fake_model_say(sum, CUDA_VOCAB));
        sum = fake_model_hear(sum, (uint32_t)history[k]);
    }
    return true;
}

/* One random thing that happens to session `who` of a model. Returns whether it was a turn. */
static bool random_move(exl2_engine *e, exl2_model model, exl2_session *s, uint32_t who, uint32_t what, uint32_t number)
{
    static uint8_t saved[1u << 20];
    exl2_session_info info = { .tokens = 0 };
    uint32_t other = (who + (what == 5 ? 1 : 3)) % SESSIONS;
    size_t bytes;
    if (!s[who].id) {
        CHECK_INT(exl2_session_open(e, model, &s[who]), EXL2_OK);
    }
    CHECK_INT(exl2_session_get(e, s[who], &info), EXL2_OK);
    if (what < 4) {
        return random_turn(e, s[who], number, who);
    }
    if (what == 4) {
        CHECK_INT(exl2_session_rewind(e, s[who], info.tokens ? number % info.tokens : 0), EXL2_OK);
    } else if (what == 6) {
        CHECK_INT(exl2_session_close(e, s[who]), EXL2_OK);
        s[who].id = 0;
    } else if (what == 5 || info.tokens) {
        if (s[other].id) {
            exl2_session_close(e, s[other]);
        }
        if (what == 5) {
            CHECK_INT(exl2_session_fork(e, s[who], &s[other]), EXL2_OK);
            return false;
        }
        CHECK_INT(exl2_session_save(e, s[who], EXL2_SAVE_KV, saved, sizeof saved, &bytes), EXL2_OK);
        CHECK_INT(exl2_session_open(e, model, &s[other]), EXL2_OK);
        CHECK_INT(exl2_session_restore(e, s[other], saved, bytes), EXL2_OK);
    }
    return false;
}

/* Random turns, rewinds, forks, closes and saves of sessions, of a model with a tier and of one without: both have the
   same histories, whose words are those of the fake model, which sees every page. */
static void check_random(uint32_t seed, bool no_reuse)
{
    static exl2_token history[2][256];
    exl2_session s[2][SESSIONS] = { { { 0 } } };
    exl2_model model[2];
    uint32_t state = seed, turns = 0;
    uint64_t rows[2] = { 0 };
    make(true);
    exl2_engine *e = open_engine(0);
    exl2_model_desc d = model_desc(9 * page_bytes_of(e));
    d.cache.no_reuse = no_reuse;
    CHECK_INT(exl2_model_load(e, &d, &model[0]), EXL2_OK);
    d.cache.host_bytes = 0;
    CHECK_INT(exl2_model_load(e, &d, &model[1]), EXL2_OK);
    for (uint32_t i = 0; i < 400; i++) {
        state = state * 1664525u + 1013904223u;
        uint32_t who = (state >> 8) % SESSIONS, what = (state >> 16) % 8, number = (state >> 20) % 200;
        size_t need[2] = { 0 };
        for (uint32_t k = 0; k < 2; k++) {
            uint64_t before = rows_so_far();
            turns += random_move(e, model[k], s[k], who, what, number);
            rows[k] += rows_so_far() - before;
            if (s[k][who].id) {
                CHECK_INT(exl2_session_tokens(e, s[k][who], history[k], 256, &need[k]), EXL2_OK);
            }
        }
        CHECK(need[0] == need[1] && memcmp(history[0], history[1], need[0] * sizeof history[0][0]) == 0);
    }
    exl2_engine_stats stats = stats_of(e);
    CHECK(turns > 200 && stats.pages_out > 20 && stats.pages_in > 5 && rows[0] < rows[1]);
    printf("%u turns: %u pages out, %u in; %u rows, without the tier %u\n", turns, (unsigned)stats.pages_out,
           (unsigned)stats.pages_in, (unsigned)rows[0], (unsigned)rows[1]);
    CHECK_INT(exl2_model_close(e, model[0]), EXL2_OK);
    CHECK_INT(exl2_model_close(e, model[1]), EXL2_OK);
    exl2_close(e);
    machine_end();
}

/* A model with a tier in which copies and allocations fail once; then it works again. */
static bool life(const cuda_way *w, uint32_t n)
{
    make(true);
    cuda_way_set(w);
    cuda_life l = { .e = open_engine(0), .late = w->late };
    exl2_model_desc d = model_desc(40000);
    static exl2_token ids[PROMPT];
    exl2_session s[4];
    fake.fail_at = n;
    exl2_result r = cuda_try(&l, exl2_model_load(l.e, &d, &l.model));
    for (uint32_t i = 0; i < 4 && r >= 0; i++) {
        make_prompt(ids, i);
        r = cuda_try(&l, exl2_session_open(l.e, l.model, &s[i]));
        exl2_job_desc job = cuda_job(s[i], ids, PROMPT, NEW, &cuda_said[0]);
        r = r < 0 ? r : cuda_run(&l, &job, 1);
    }
    for (uint32_t i = 0; i < 4 && r >= 0; i += 2) { /* two come back at once; the rows of one must wait */
        if (i == 2) {
            r = cuda_try(&l, exl2_session_rewind(l.e, s[3], PROMPT));
        }
        exl2_job_desc jobs[2] = { cuda_job(s[i], cuda_prompt, 3, NEW, &cuda_said[0]),
                                  cuda_job(s[i + 1], cuda_prompt, 3, NEW, &cuda_said[1]) };
        r = r < 0 ? r : cuda_run(&l, jobs, 2);
    }
    r = r < 0 ? r : exl2_model_close(l.e, l.model);
    bool failed = fake.failed[0] != 0;
    fake.fail_at = 0;
    cuda_way_end(w, n, &l, r, failed);
    return failed;
}

/* The last page of a session comes back by a copy that fails, while its job has no rows in the pass: that of another
   one has, of prompt tokens. Both fail, as neither has what it counts on, and then go on as if nothing was. */
static void check_lost_part(uint32_t n)
{
    static exl2_token ids[PROMPT];
    exl2_session s[3];
    exl2_model model;
    make(true);
    exl2_engine *e = open_engine(0);
    exl2_model_desc d = model_desc(40 * page_bytes_of(e));
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    for (uint32_t i = 0; i < 3; i++) { /* the third one takes the place of the last page of the first */
        CHECK_INT(exl2_session_open(e, model, &s[i]), EXL2_OK);
        make_prompt(ids, i);
        turn(e, s[i], ids, PROMPT, true, &said[i]);
    }
    CHECK_INT(stats_of(e).pages_out, 1);
    CHECK_INT(exl2_session_rewind(e, s[1], PROMPT), EXL2_OK);
    fake.fail_name = "cuMemcpy2DAsync";
    fake.fail_code = 1;
    fake.fail_at = n;
    for (uint32_t again = 0; again < 2; again++) {
        for (uint32_t i = 0; i < 2; i++) {
            exl2_job_desc job = cuda_job(s[i], cuda_prompt, 3, NEW, &said[i]);
            CHECK_INT(exl2_job_start(e, &job, NULL), EXL2_OK);
        }
        cuda_step_all(e, false, 0);
        for (uint32_t i = 0; i < 2; i++) {
            CHECK((said[i].result < 0) == !again);
        }
        fake.fail_at = 0;
    }
    cuda_expect_history(e, s[0], PROMPT + NEW + 6, PROMPT + NEW + 6 + NEW);
    cuda_expect_history(e, s[1], PROMPT + 6, PROMPT + 6 + NEW);
    exl2_close(e);
    machine_end();
}

int main(void)
{
    const cuda_way bad[] = {
        { "pinned allocations", "cuMemHostAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "copies down", "cuMemcpyDtoHAsync", 1, 1, true, false, false, 1 },
        { "copies up", "cuMemcpyHtoDAsync", 1, 1, true, false, false, 3 },
        { "copies of pages", "cuMemcpy2DAsync", 1, 1, true, false, false, 1 },
    };
    machine_drop_cache();
    check_evenings();
    check_cap();
    check_roots(false);
    check_roots(true);
    check_rest(1000, 13, 1);
    check_rest(200, 13, 1);
    check_lost_part(1);
    check_lost_part(2);
    for (uint32_t seed = 1; seed < 4; seed++) {
        check_random(seed, seed == 3);
    }
    cuda_ways_good(life);
    cuda_ways_sweep(life, bad, EXL2__COUNT(bad));
    machine_drop_cache();
    fake_reset();
    return check_done();
}
