/* replay_pictures.c: what replay.c says of texts, for prompts with pictures: a job's tokens are the same however they
   are computed: alone, beside others, in any steps and chunks, with pages found, evicted or never shared, with rows of
   pictures that were evicted and computed again, on forks, after preemptions, cancelled and continued, saved and
   restored, with drafts. Four prompts, each greedy, sampled, with a grammar that forces words and with banned texts;
   ids and log-probabilities bit for bit. Families: tiles; M-RoPE; pictures that are one pass; rows that are added
   after layers.
   takes: the shared fixtures (fixtures/vision).
   gives: exit code 0 or 1; 77 without fixtures. */
#include "rig.h"

#include "private/objects.h"

#define PROMPTS 4u
#define KINDS 4u
#define JOBS (PROMPTS * KINDS)
#define NEW 20u
#define SIDE 48u
#define LONG "It was a dark night at the lighthouse, and the keeper, who had seen many ships, said to his dog: "

typedef struct family {
    const char *name, *mark;
    uint32_t rows; /* that the pool of a small model holds: those of one picture */
    uint32_t tokens; /* of a small cache: one prompt with two pictures fits */
} family;

static const family families[] = {
    { "smolvlm", "<image>", 20, 256 },
    { "qwen2.5-vl", "<|image_pad|>", 4, 192 },
    { "gemma3", "<start_of_image>", 16, 192 },
    { "qwen3-vl", "<|image_pad|>", 4, 192 },
};

static const family *now;
static rig_said wanted[JOBS], got[JOBS];

static rig open_model(uint64_t tokens, bool no_reuse, uint32_t chunk, uint32_t rows)
{
    char below[256], path[1024];
    exl2_model_desc m = { 0 };
    snprintf(below, sizeof below, "fixtures/vision/%s/config.json", now->name);
    snprintf(path, sizeof path, "%s", check_shared(below));
    *strrchr(path, '/') = 0;
    m.path = path;
    m.cache.tokens = tokens;
    m.cache.no_reuse = no_reuse;
    m.prefill_chunk = chunk;
    m.grammars = true;
    m.vision.images = 4;
    m.vision.max_rows = now->rows;
    m.vision.rows = rows;
    m.vision.pixels_max = 4 * SIDE * SIDE;
    return rig_open(NULL, &m);
}

static exl2_image make(const rig *r, uint32_t seed)
{
    static uint8_t rgb[SIDE * SIDE * 3];
    uint32_t x = seed * 2654435761u + 1;
    for (uint32_t i = 0; i < sizeof rgb; i++) {
        x = x * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)(x >> 24);
    }
    exl2_image image = { 0 };
    exl2_image_desc d = { .model = r->model, .width = SIDE, .height = SIDE, .pixels = rgb, .silent = true };
    exl2_result result = exl2_image_make(r->engine, &d, &image);
    if (result < 0) {
        rig_fail(r->engine, "exl2_image_make", result);
    }
    return image;
}

/* Job i of 16. Its pictures and its grammar are closed once the job has started. */
static exl2_job_desc job_of(const rig *r, uint32_t i, rig_said *said)
{
    static const char *const bans[3] = { "a", "q", "t" };
    static exl2_image images[2];
    static char text[512];
    uint32_t p = i % PROMPTS, kind = i / PROMPTS;
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, NULL, 0, NEW, said);
    snprintf(text, sizeof text, "%sLook: %s What %s%s?", p == 3 ? LONG : "", now->mark,
             p == 2 ? "do you see now? " : "is it", p == 2 ? now->mark : "");
    images[0] = make(r, p == 1 ? 2 : p == 3 ? 3 : 1);
    images[1] = p == 2 ? make(r, 2) : images[0];
    d.prompt.text = text;
    d.prompt.images = images;
    d.prompt.image_count = p == 2 ? 2 : 1;
    d.prompt.flags = EXL2_TEXT_NO_BOS;
    d.sampler.preset = kind == 0 ? EXL2_PRESET_GREEDY : EXL2_PRESET_NEUTRAL;
    d.sampler.seed = 100 + i;
    if (kind == 2) {
        exl2_grammar_desc g = { .model = r->model, .kind = EXL2_GRAMMAR_REGEX,
                                .source = "I see (a|the) [a-z]{2,6} and no more\\." };
        CHECK_INT(exl2_grammar_make(r->engine, &g, &d.grammar), EXL2_OK);
    } else if (kind == 3) {
        d.ban_strings = bans;
        d.ban_string_count = 3;
    }
    return d;
}

static exl2_job start(const rig *r, const exl2_job_desc *d)
{
    exl2_job job = { 0 };
    exl2_result result = exl2_job_start(r->engine, d, &job);
    if (result < 0) {
        rig_fail(r->engine, "exl2_job_start", result);
    }
    for (size_t k = 0; k < d->prompt.image_count; k++) {
        CHECK_INT(exl2_image_close(r->engine, d->prompt.images[k]), EXL2_OK);
    }
    if (d->grammar.id) {
        exl2_grammar_close(r->engine, d->grammar);
    }
    return job;
}

/* The same job, without its prompt. */
static exl2_job_desc rest_of(const rig *r, uint32_t i, exl2_session s, rig_said *said)
{
    exl2_job_desc d = job_of(r, i, said);
    for (size_t k = 0; k < d.prompt.image_count; k++) {
        CHECK_INT(exl2_image_close(r->engine, d.prompt.images[k]), EXL2_OK);
    }
    d.prompt = (exl2_prompt){ 0 };
    d.model.id = 0;
    d.session = s;
    return d;
}

static void check_same(uint32_t i, const char *how)
{
    const rig_said *a = &got[i], *b = &wanted[i];
    bool same = a->count == b->count && a->stop == b->stop && a->bytes == b->bytes && a->done_events == 1
             && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0 && memcmp(a->text, b->text, a->bytes) == 0
             && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0;
    if (!CHECK(same)) {
        printf("  %s, %s: job %u differs: %s\n", now->name, how, (unsigned)i, a->error);
    }
}

static void step_once(const rig *r)
{
    exl2_step_desc step = { .wait = true };
    exl2_step(r->engine, &step);
}

typedef struct manner {
    const char *name;
    uint32_t us; /* of a step; 0: whole passes */
    bool drafts;
} manner;

static void check_together(const rig *r, manner m)
{
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(r, i, &got[i]);
        d.draft.ngram = m.drafts;
        start(r, &d);
    }
    rig_drain(r, m.us);
    for (uint32_t i = 0; i < JOBS; i++) {
        check_same(i, m.name);
    }
}

/* Jobs of a rising priority keep taking the pages of those that run. */
static void check_preempted(const rig *r)
{
    exl2_engine_stats stats;
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(r, i, &got[i]);
        d.priority = (int32_t)i;
        start(r, &d);
        for (uint32_t k = 0; k < 2 + i / 2; k++) {
            step_once(r);
        }
    }
    rig_drain(r, 0);
    exl2_stats(r->engine, &stats);
    CHECK(stats.preemptions > 4);
    for (uint32_t i = 0; i < JOBS; i++) {
        check_same(i, "preempted");
    }
}

/* What was said before a cut and what was said after it. */
static void join(rig_said *said, const rig_said *rest, uint32_t had, uint32_t had_bytes)
{
    memcpy(said->ids + had, rest->ids, rest->count * sizeof rest->ids[0]);
    memcpy(said->logprobs + had, rest->logprobs, rest->count * sizeof rest->logprobs[0]);
    memcpy(said->text + had_bytes, rest->text, rest->bytes);
    said->count = had + rest->count;
    said->bytes = had_bytes + rest->bytes;
    said->stop = rest->stop;
    said->done_events = rest->done_events;
    memcpy(said->error, rest->error, sizeof said->error);
}

/* Saved after some tokens, in each of the four ways, and resumed in a session of another engine. */
static void check_saved(const rig *r, const rig *other)
{
    static uint8_t saved[1u << 20];
    static rig_said rest;
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_session from, to;
        size_t bytes;
        bool kv = i & 1, images = i & 2;
        CHECK_INT(exl2_session_open(r->engine, r->model, &from), EXL2_OK);
        CHECK_INT(exl2_session_open(other->engine, other->model, &to), EXL2_OK);
        exl2_job_desc d = job_of(r, i, &got[i]);
        d.model.id = 0;
        d.session = from;
        exl2_job job = start(r, &d);
        while (got[i].count < 2 + i % 5 && got[i].done_events == 0) {
            step_once(r);
        }
        if (got[i].done_events == 0) {
            CHECK_INT(exl2_session_save(r->engine, from, (kv ? EXL2_SAVE_KV : 0) | (images ? EXL2_SAVE_IMAGES : 0),
                                        saved, sizeof saved, &bytes), EXL2_OK);
            uint32_t had = got[i].count, had_bytes = got[i].bytes;
            exl2_job_cancel(r->engine, job);
            rig_drain(r, 0);
            CHECK_INT(exl2_session_restore(other->engine, to, saved, bytes), EXL2_OK);
            exl2_job_desc again = rest_of(other, i, to, &rest); /* makes the pictures, and closes them */
            again.resume = true;
            start(other, &again);
            rig_drain(other, 0);
            join(&got[i], &rest, had, had_bytes);
        }
        check_same(i, "saved and restored");
        exl2_session_close(r->engine, from);
        exl2_session_close(other->engine, to);
    }
}

/* Cancelled after some tokens, and continued from the history in the same session or in a fork. */
static void check_continued(const rig *r)
{
    static rig_said rest;
    for (uint32_t i = 0; i < 2 * PROMPTS; i++) { /* sampling begins anew with the session's next draw */
        exl2_session s, fork;
        CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
        exl2_job_desc d = job_of(r, i, &got[i]);
        d.model.id = 0;
        d.session = s;
        exl2_job job = start(r, &d);
        while (got[i].count < 3 + i && got[i].done_events == 0) {
            step_once(r);
        }
        exl2_job_cancel(r->engine, job);
        rig_drain(r, 0);
        uint32_t had = got[i].count;
        CHECK_INT(exl2_session_fork(r->engine, s, &fork), EXL2_OK);
        for (uint32_t k = 0; k < 2 && had < wanted[i].count; k++) {
            exl2_job_desc again = rest_of(r, i, k ? fork : s, &rest);
            again.max_tokens = NEW - had;
            rig_run(r, &again);
            join(&got[i], &rest, had, 0);
            got[i].bytes = wanted[i].bytes; /* the text may have an incomplete code point at the cut */
            memcpy(got[i].text, wanted[i].text, wanted[i].bytes);
            check_same(i, k ? "continued in a fork" : "continued");
        }
        exl2_session_close(r->engine, s);
        exl2_session_close(r->engine, fork);
    }
}

static uint64_t passes_of(const rig *r)
{
    return ((exl2_engine *)r->engine)->models[0].images.passes;
}

static void check_family(void)
{
    exl2_engine_stats stats;
    rig apart = open_model(8192, true, 0, 0);
    uint32_t tokens = 0, forced = 0, bans = 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = job_of(&apart, i, &wanted[i]);
        start(&apart, &d);
        rig_drain(&apart, 0);
        CHECK_INT(wanted[i].done_events, 1);
        tokens += wanted[i].count;
        forced += wanted[i].stats.forced_tokens;
        bans += wanted[i].stats.bans_avoided;
    }
    CHECK(tokens > JOBS * NEW / 2 && forced > 0 && bans > 0);
    for (uint32_t k = 0; k < KINDS; k++) { /* the same text with another picture says something else */
        CHECK(k == 2 || memcmp(wanted[k * PROMPTS].logprobs, wanted[k * PROMPTS + 1].logprobs, sizeof(float)) != 0);
    }
    check_together(&apart, (manner){ .name = "together, nothing shared" });
    rig_close(&apart);
    rig large = open_model(8192, false, 0, 0), small = open_model(now->tokens, false, 0, now->rows);
    rig chunks = open_model(8192, false, 7, now->rows);
    check_together(&large, (manner){ .name = "together" });
    CHECK_INT(passes_of(&large), 3);
    check_together(&large, (manner){ .name = "together again, all found" });
    check_together(&large, (manner){ .name = "in the shortest steps", .us = 1 });
    check_together(&large, (manner){ .name = "with drafts", .drafts = true });
    check_together(&chunks, (manner){ .name = "in chunks" });
    check_together(&chunks, (manner){ .name = "in chunks and the shortest steps", .us = 1, .drafts = true });
    check_continued(&large);
    check_saved(&large, &small);
    check_together(&small, (manner){ .name = "in small pools" });
    check_together(&small, (manner){ .name = "in small pools, in the shortest steps", .us = 1 });
    check_continued(&small);
    check_preempted(&small);
    check_saved(&small, &large);
    exl2_stats(small.engine, &stats);
    CHECK(stats.evictions > 10 && passes_of(&small) > 10);
    printf("%s: %u preemptions, %u evictions, %u passes of the tower\n", now->name, (unsigned)stats.preemptions,
           (unsigned)stats.evictions, (unsigned)passes_of(&small));
    rig_close(&large);
    rig_close(&small);
    rig_close(&chunks);
}

int main(void)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        now = &families[i];
        check_family();
    }
    return check_done();
}
