/* windows.c: a model whose layers with a window keep K and V of their windows only, against the same model with
   cache.full: random prompts, rewinds, trims, forks, saves, restores and parks in a small pool give the same ids and
   log-probabilities, bit for bit. Histories that were given up count as not cached, and prompts as not reused. */
#include "rig.h"

#include "private/windows.h"
#include "private/plan.h"

#define SESSIONS 4u
#define CONTEXT 1024u
#define MOVES 420u
#define GROUP 3u /* jobs that are started together */
#define WINDOW 32u

typedef struct side { /* one of the two models */
    rig r;
    exl2_session sessions[SESSIONS];
    rig_said said[GROUP];
    uint64_t prompt_tokens, reused, saved_kv;
} side;

static side sides[2]; /* with cache.full, and without */
static uint8_t bytes[1u << 22];
static struct { uint32_t jobs, less, equal, restores, parks, trims, rewinds, forks; } seen;

static uint32_t below(uint32_t limit)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % limit);
}

static exl2_model_desc model_of(const char *path, bool full)
{
    exl2_model_desc m = { .path = path, .context_max = CONTEXT, .batch_max = 2, .prefill_chunk = 64 };
    m.cache.tokens = 3 * CONTEXT;
    m.cache.full = full;
    return m;
}

static exl2_model_info info_of(const rig *r)
{
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r->engine, r->model, &info), EXL2_OK);
    return info;
}

static void open_sides(const char *path)
{
    for (uint32_t k = 0; k < 2; k++) {
        side *x = &sides[k];
        exl2_model_desc m = model_of(path, k == 0);
        memset(x, 0, sizeof *x);
        x->r = rig_open(NULL, &m);
        for (uint32_t i = 0; i < SESSIONS; i++) {
            CHECK_INT(exl2_session_open(x->r.engine, x->r.model, &x->sessions[i]), EXL2_OK);
        }
    }
    exl2_model_info full = info_of(&sides[0].r), parts = info_of(&sides[1].r);
    CHECK(full.window_tokens == 0 && full.window_bytes == 0);
    CHECK(parts.window_tokens > 0 && parts.window_tokens < 3 * CONTEXT && parts.window_bytes > 0);
    CHECK(parts.cache_bytes < full.cache_bytes);
    printf("%s: %llu bytes of cache, %llu with windows (of %llu tokens)\n", path, (unsigned long long)full.cache_bytes,
           (unsigned long long)parts.cache_bytes, (unsigned long long)parts.window_tokens);
}

static uint32_t tokens_of(uint32_t i)
{
    exl2_session_info a, b;
    CHECK_INT(exl2_session_get(sides[0].r.engine, sides[0].sessions[i], &a), EXL2_OK);
    CHECK_INT(exl2_session_get(sides[1].r.engine, sides[1].sessions[i], &b), EXL2_OK);
    CHECK_INT(a.tokens, b.tokens);
    CHECK(b.tokens_cached <= b.tokens);
    seen.less += b.tokens_cached < a.tokens_cached;
    seen.equal += b.tokens_cached == a.tokens_cached && a.tokens_cached > WINDOW;
    return a.tokens;
}

/* Jobs in up to GROUP sessions, in steps of one pass each. */
static void run_jobs(uint32_t first, uint32_t count)
{
    static exl2_token prompts[GROUP][400];
    uint32_t lengths[GROUP], news[GROUP], seed = below(100000) + 1, room[GROUP];
    bool greedy = below(2), common = below(3) == 0;
    for (uint32_t g = 0; g < count; g++) {
        room[g] = CONTEXT - tokens_of((first + g) % SESSIONS);
        lengths[g] = 1 + below(below(3) ? 40 : 300);
        news[g] = 1 + below(below(2) ? 20 : 90);
        if (lengths[g] + news[g] > room[g]) {
            for (uint32_t k = 0; k < 2; k++) {
                exl2_session s = sides[k].sessions[(first + g) % SESSIONS];
                CHECK_INT(exl2_session_rewind(sides[k].r.engine, s, 0), EXL2_OK);
            }
        }
        for (uint32_t i = 0; i < lengths[g]; i++) {
            prompts[g][i] = common ? (exl2_token)(3 + i * 7 % 250) : (exl2_token)(3 + below(250));
        }
    }
    for (uint32_t k = 0; k < 2; k++) {
        side *x = &sides[k];
        for (uint32_t g = 0; g < count; g++) {
            exl2_job job;
            memset(&x->said[g], 0, sizeof x->said[g]);
            exl2_job_desc d = rig_job(&x->r, prompts[g], lengths[g], news[g], &x->said[g]);
            d.model.id = 0;
            d.session = x->sessions[(first + g) % SESSIONS];
            d.sampler.preset = greedy ? EXL2_PRESET_GREEDY : EXL2_PRESET_NEUTRAL;
            d.sampler.seed = seed + g;
            CHECK_INT(exl2_job_start(x->r.engine, &d, &job), EXL2_OK);
        }
        rig_drain(&x->r, 0);
    }
    for (uint32_t g = 0; g < count; g++) {
        const rig_said *a = &sides[0].said[g], *b = &sides[1].said[g];
        bool same = a->done_events == 1 && b->done_events == 1 && a->result == EXL2_OK && a->count == b->count
                 && a->count > 0 && a->stop == b->stop && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0
                 && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0;
        CHECK(same);
        for (uint32_t k = 0; k < 2; k++) {
            sides[k].prompt_tokens += sides[k].said[g].stats.prompt_tokens;
            sides[k].reused += sides[k].said[g].stats.reused_tokens;
        }
        seen.jobs++;
    }
}

/* Session `from` becomes session `to`, by a fork or by a snapshot with or without K and V. */
static void copy_session(uint32_t from, uint32_t to, uint32_t how)
{
    for (uint32_t k = 0; k < 2; k++) {
        side *x = &sides[k];
        if (how == 0) {
            CHECK_INT(exl2_session_close(x->r.engine, x->sessions[to]), EXL2_OK);
            CHECK_INT(exl2_session_fork(x->r.engine, x->sessions[from], &x->sessions[to]), EXL2_OK);
            continue;
        }
        size_t need = 0;
        uint32_t flags = how == 1 ? EXL2_SAVE_KV : 0;
        CHECK_INT(exl2_session_save(x->r.engine, x->sessions[from], flags, bytes, sizeof bytes, &need), EXL2_OK);
        CHECK_INT(exl2_session_restore(x->r.engine, x->sessions[to], bytes, need), EXL2_OK);
        x->saved_kv += how == 1 ? need : 0;
    }
    *(how == 0 ? &seen.forks : &seen.restores) += 1;
}

static void park(void)
{
    for (uint32_t k = 0; k < 2; k++) {
        CHECK_INT(exl2_model_park(sides[k].r.engine, sides[k].r.model, true), EXL2_OK);
        CHECK_INT(exl2_model_park(sides[k].r.engine, sides[k].r.model, false), EXL2_OK);
        rig_drain(&sides[k].r, 0);
    }
    seen.parks++;
}

/* Tells both models to forget tokens of session i. */
static void edit(uint32_t i, bool trims)
{
    uint32_t tokens = tokens_of(i), from = below(tokens + 1), count = below(tokens - from + 1);
    for (uint32_t k = 0; k < 2; k++) {
        exl2_session s = sides[k].sessions[i];
        CHECK_INT(trims ? exl2_session_trim(sides[k].r.engine, s, from, count)
                        : exl2_session_rewind(sides[k].r.engine, s, from), EXL2_OK);
    }
    *(trims ? &seen.trims : &seen.rewinds) += 1;
}

static void check_words(const char *path)
{
    memset(&seen, 0, sizeof seen);
    open_sides(path);
    for (uint32_t move = 0; move < MOVES; move++) {
        uint32_t action = below(16), i = below(SESSIONS);
        if (action < 9) {
            run_jobs(i, 1 + below(GROUP));
        } else if (action < 11) {
            edit(i, false);
        } else if (action < 12) {
            edit(i, true);
        } else if (action < 15) {
            copy_session(i, (i + 1 + below(SESSIONS - 1)) % SESSIONS, action - 12);
        } else if (move % 8 == 0) {
            park();
        }
    }
    printf("%u jobs; histories: %u with less in the cache, %u with as much; %u rewinds, %u trims, %u forks, "
           "%u restores, %u parks; %llu and %llu of %llu tokens of prompts reused\n", seen.jobs, seen.less, seen.equal,
           seen.rewinds, seen.trims, seen.forks, seen.restores, seen.parks, (unsigned long long)sides[0].reused,
           (unsigned long long)sides[1].reused, (unsigned long long)sides[0].prompt_tokens);
    CHECK(seen.less > 20 && seen.equal > 20 && seen.parks > 0 && seen.restores > 20 && seen.forks > 10);
    CHECK(sides[1].saved_kv < sides[0].saved_kv);
    for (uint32_t k = 0; k < 2; k++) {
        rig_close(&sides[k].r);
    }
}

/* ---- what is found again ---- */

/* A job alone, in session i or in none. Returns how many tokens of the prompt were reused on both sides. */
static uint32_t run_alone(const exl2_token *ids, uint32_t count, uint32_t news, uint32_t i, uint32_t *full)
{
    for (uint32_t k = 0; k < 2; k++) {
        side *x = &sides[k];
        memset(&x->said[0], 0, sizeof x->said[0]);
        exl2_job_desc d = rig_job(&x->r, ids, count, news, &x->said[0]);
        if (i < SESSIONS) {
            d.model.id = 0;
            d.session = x->sessions[i];
        }
        rig_run(&x->r, &d);
    }
    CHECK(sides[0].said[0].count == sides[1].said[0].count
          && memcmp(sides[0].said[0].ids, sides[1].said[0].ids, sides[0].said[0].count * sizeof(exl2_token)) == 0);
    *full = sides[0].said[0].stats.reused_tokens;
    return sides[1].said[0].stats.reused_tokens;
}

static uint32_t cached(uint32_t k, uint32_t i)
{
    exl2_session_info info;
    CHECK_INT(exl2_session_get(sides[k].r.engine, sides[k].sessions[i], &info), EXL2_OK);
    return info.tokens_cached;
}

/* The next turn of a session finds all, although longer texts have used the windows since. After a rewind into its
   middle it finds nothing. Of texts with a common beginning that is longer than the window, the second one may have to
   compute it again, but the third one finds it. */
static void check_found(const char *path)
{
    static exl2_token ids[700], other[700];
    uint32_t full;
    open_sides(path);
    for (uint32_t i = 0; i < 700; i++) {
        ids[i] = (exl2_token)(3 + below(250));
        other[i] = (exl2_token)(3 + below(250));
    }
    run_alone(ids, 500, 30, 0, &full);
    run_alone(other, 700, 30, 1, &full);
    CHECK(cached(0, 0) == cached(1, 0) && cached(1, 0) >= 500);
    run_alone(ids + 500, 20, 30, 0, &full);
    CHECK(cached(0, 0) == cached(1, 0) && cached(1, 0) >= 550);
    for (uint32_t k = 0; k < 2; k++) {
        CHECK_INT(exl2_session_rewind(sides[k].r.engine, sides[k].sessions[0], 250), EXL2_OK);
    }
    CHECK_INT(cached(0, 0), 250);
    CHECK_INT(cached(1, 0), 0);
    run_alone(ids + 600, 20, 30, 0, &full);
    for (uint32_t i = 0; i < 5; i++) { /* 400 tokens are common */
        for (uint32_t n = 400; n < 650; n++) {
            other[n] = (exl2_token)(3 + below(250));
        }
        uint32_t reused = run_alone(other, 650, 10, SESSIONS, &full);
        CHECK(reused <= full && (i == 0 || full >= 384));
        CHECK(i < 2 || reused >= 384);
        printf("%u of %u tokens found\n", reused, full);
    }
    for (uint32_t k = 0; k < 2; k++) {
        rig_close(&sides[k].r);
    }
}

/* ---- the plan ---- */

static exl2_model_info measure(const rig *r, uint32_t batch, uint64_t tokens, bool full)
{
    exl2_model_desc m = { .path = rig_golden("gemma2"), .context_max = 32768, .batch_max = batch };
    exl2_model_info info;
    m.cache.tokens = tokens;
    m.cache.full = full;
    CHECK_INT(exl2_model_measure(r->engine, &m, &info), EXL2_OK);
    CHECK_INT(info.cache_tokens, tokens);
    return info;
}

static void check_plan(void)
{
    rig r = rig_load(rig_golden("gemma2"));
    static const uint32_t batches[] = { 0, 1, 4, 16, 64 };
    exl2_model_info full = measure(&r, 0, 32768, true);
    CHECK(full.window_tokens == 0 && full.cache_bytes == 32768 * full.cache_bytes_per_token);
    for (uint32_t i = 0; i < EXL2__COUNT(batches); i++) { /* windows of 32 tokens in two of four layers */
        exl2_model_info info = measure(&r, batches[i], 32768, false);
        uint32_t contexts = 32768 / info.context_max, usual = contexts < 4 ? 4 : contexts > 16 ? 16 : contexts;
        uint32_t jobs = batches[i] ? batches[i] : usual, parts = jobs * (1 + 2) + 1024 / 64 + 1;
        CHECK_INT(info.window_tokens, parts * 64);
        CHECK_INT(info.window_bytes, parts * 64 * info.cache_bytes_per_token / 2);
        CHECK_INT(info.cache_bytes, 32768 * info.cache_bytes_per_token / 2 + info.window_bytes);
        CHECK(info.cache_bytes_per_token == full.cache_bytes_per_token);
        CHECK(info.scratch_bytes > measure(&r, batches[i], 32768, true).scratch_bytes);
    }
    CHECK_INT(measure(&r, 0, 64 * (4 * 3 + 17), false).window_tokens, 0); /* as many pages as parts */
    CHECK(measure(&r, 0, 64 * (4 * 3 + 18), false).window_tokens > 0);
    rig_close(&r);
    /* Gemma 3 4B: windows of 1,024 tokens in 29 of 34 layers, by passes of 1,024 or 2,048 rows. */
    for (uint32_t rows = 1024; rows <= 2048; rows *= 2) {
        exl2__plan p = { .sequences_max = 16, .context_max = 32768 };
        uint32_t each = exl2__windows_each(1024), beside = exl2__windows_rows(rows, 0);
        uint32_t parts = exl2__plan_window_pages(&p, 512, 0, each, beside);
        CHECK(5 * 512 + 29 * parts <= 0.3 * 34 * 512);
        CHECK_INT(exl2__plan_window_pages(&p, 8 * 512, 0, each, beside), 8 * each + beside); /* eight contexts */
    }
}

int main(void)
{
    check_plan();
    check_found(rig_golden("gemma2"));
    check_words(rig_golden("gemma2"));
    check_words(rig_golden("starcoder2"));
    return check_done();
}
