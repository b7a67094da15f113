/* windows.c: a model whose layers with a window keep K and V of their windows only, against the same model with
   cache.full: random prompts, rewinds, trims, forks, saves, restores and parks in a small pool give the same ids and
   log-probabilities, bit for bit. Histories that were given up count as not cached, and prompts as not reused. */
#include "rig.h"

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

int main(void)
{
    check_words(rig_golden("gemma2"));
    check_words(rig_golden("starcoder2"));
    return check_done();
}
