/* replay_pictures.c: what replay.c says of texts, for prompts with pictures: a job's tokens are the same however they
   are computed: alone, beside others, in any steps and chunks, with pages found, evicted or never shared, with rows of
   pictures that were evicted and computed again, on forks, after preemptions, cancelled and continued, saved and
   restored, with drafts. Four prompts, each greedy, sampled, with a grammar that forces words and with banned texts;
   ids and log-probabilities bit for bit. Families: tiles; M-RoPE; pictures that are one pass; rows that are added
   after layers; videos.
   takes: the shared fixtures (fixtures/vision).
   gives: exit code 0 or 1; 77 without fixtures. */
#define REPLAY_NEW 20u

#include "replay_rig.h"

#include "private/objects.h"

#define SIDE 48u
#define FRAMES_MAX 5u
#define LONG "It was a dark night at the lighthouse, and the keeper, who had seen many ships, said to his dog: "

typedef struct family {
    const char *name, *mark;
    uint32_t rows; /* that the pool of a small model holds: those of one picture */
    uint32_t tokens; /* of a small cache: one prompt with two pictures fits */
    uint32_t frames; /* of videos in place of pictures; 0: none */
} family;

static const family families[] = {
    { "smolvlm", "<image>", 20, 256, 0 },
    { "qwen2.5-vl", "<|image_pad|>", 4, 192, 0 },
    { "gemma3", "<start_of_image>", 16, 192, 0 },
    { "qwen3-vl", "<|image_pad|>", 4, 192, 0 },
    { "qwen2.5-vl", "<|video_pad|>", 6, 192, 5 },
};

static const family *now;

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
    m.vision.pixels_max = 4 * SIDE * SIDE * (now->frames ? now->frames : 1);
    return rig_open(NULL, &m);
}

static exl2_image make(const rig *r, uint32_t seed)
{
    static uint8_t rgb[SIDE * SIDE * 3 * FRAMES_MAX];
    uint32_t x = seed * 2654435761u + 1;
    for (uint32_t i = 0; i < sizeof rgb; i++) {
        x = x * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)(x >> 24);
    }
    exl2_image image = { 0 };
    exl2_image_desc d = { .model = r->model, .width = SIDE, .height = SIDE, .pixels = rgb,
                          .frames = now->frames, .fps = now->frames ? 3 : 0, .silent = true };
    exl2_result result = exl2_image_make(r->engine, &d, &image);
    if (result < 0) {
        rig_fail(r->engine, "exl2_image_make", result);
    }
    return image;
}

static exl2_job_desc job_of(const rig *r, uint32_t i, rig_said *said)
{
    static exl2_image images[2];
    static char text[512];
    uint32_t p = i % REPLAY_PROMPTS;
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, NULL, 0, REPLAY_NEW, said);
    snprintf(text, sizeof text, "%sLook: %s What %s%s?", p == 3 ? LONG : "", now->mark,
             p == 2 ? "do you see now? " : "is it", p == 2 ? now->mark : "");
    images[0] = make(r, p == 1 ? 2 : p == 3 ? 3 : 1);
    images[1] = p == 2 ? make(r, 2) : images[0];
    d.prompt.text = text;
    d.prompt.images = images;
    d.prompt.image_count = p == 2 ? 2 : 1;
    d.prompt.flags = EXL2_TEXT_NO_BOS;
    d.sampler.seed = 100 + i;
    replay_settings(r, i, "I see (a|the) [a-z]{2,6} and no more\\.", &d);
    return d;
}

/* Saved after some tokens, in each of the four ways, and resumed in a session of another engine. */
static void check_saved(const rig *r, const rig *other)
{
    static uint8_t saved[1u << 20];
    static rig_said rest;
    for (uint32_t i = 0; i < REPLAY_JOBS; i++) {
        exl2_session from, to;
        size_t bytes;
        bool kv = i & 1, images = i & 2;
        CHECK_INT(exl2_session_open(r->engine, r->model, &from), EXL2_OK);
        CHECK_INT(exl2_session_open(other->engine, other->model, &to), EXL2_OK);
        exl2_job_desc d = job_of(r, i, &replay_got[i]);
        d.session = from;
        exl2_job job = replay_start(r, &d);
        while (replay_got[i].count < 2 + i % 5 && replay_got[i].done_events == 0) {
            replay_step(r);
        }
        if (replay_got[i].done_events == 0) {
            CHECK_INT(exl2_session_save(r->engine, from, (kv ? EXL2_SAVE_KV : 0) | (images ? EXL2_SAVE_IMAGES : 0),
                                        saved, sizeof saved, &bytes), EXL2_OK);
            uint32_t had = replay_got[i].count, had_bytes = replay_got[i].bytes;
            exl2_job_cancel(r->engine, job);
            replay_drain(r, 0);
            CHECK_INT(exl2_session_restore(other->engine, to, saved, bytes), EXL2_OK);
            exl2_job_desc again = replay_rest(other, i, to, &rest); /* makes the pictures, and closes them */
            again.resume = true;
            replay_start(other, &again);
            replay_drain(other, 0);
            replay_join(&replay_got[i], &rest, had, had_bytes);
        }
        replay_check_same(i, "saved and restored");
        exl2_session_close(r->engine, from);
        exl2_session_close(other->engine, to);
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
    uint32_t tokens = replay_alone(&apart);
    uint64_t forced = 0, bans = 0;
    for (uint32_t i = 0; i < REPLAY_JOBS; i++) {
        forced += replay_wanted[i].stats.forced_tokens;
        bans += replay_wanted[i].stats.bans_avoided;
    }
    CHECK(tokens > REPLAY_JOBS * REPLAY_NEW / 2 && forced > 0 && bans > 0);
    for (uint32_t k = 0; k < REPLAY_KINDS; k++) { /* the same text with another picture says something else */
        const rig_said *said = &replay_wanted[k * REPLAY_PROMPTS];
        CHECK(k == 2 || memcmp(said[0].logprobs, said[1].logprobs, sizeof(float)) != 0);
    }
    replay_together(&apart, 0, false, "together, nothing shared");
    rig_close(&apart);
    rig large = open_model(8192, false, 0, 0), small = open_model(now->tokens, false, 0, now->rows);
    rig chunks = open_model(8192, false, 7, now->rows);
    replay_together(&large, 0, false, "together");
    CHECK_INT(passes_of(&large), 3);
    replay_together(&large, 0, false, "together again, all found");
    replay_together(&large, 1, false, "in the shortest steps");
    replay_together(&large, 0, true, "with drafts");
    replay_together(&chunks, 0, false, "in chunks");
    replay_together(&chunks, 1, true, "in chunks and the shortest steps");
    replay_continued(&large, 3);
    check_saved(&large, &small);
    replay_together(&small, 0, false, "in small pools");
    replay_together(&small, 1, false, "in small pools, in the shortest steps");
    replay_continued(&small, 3);
    CHECK(replay_preempted(&small, 2, 2) > 4);
    check_saved(&small, &large);
    exl2_stats(small.engine, &stats);
    CHECK(stats.evictions > 10 && passes_of(&small) > 10);
    printf("%s%u evictions, %u passes of the tower\n", replay_what, (unsigned)stats.evictions,
           (unsigned)passes_of(&small));
    rig_close(&large);
    rig_close(&small);
    rig_close(&chunks);
}

int main(void)
{
    replay_job = job_of;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        char what[32];
        now = &families[i];
        snprintf(what, sizeof what, "%s: ", now->name);
        replay_what = what;
        check_family();
    }
    return check_done();
}
