/* replay.c: a job's tokens are the same however they are computed: alone, beside others, in any steps, with pages
   found, evicted or never shared, on forks, after preemptions, cancelled and continued, saved and restored, drafted.
   Four prompts, each greedy, sampled, with a grammar and with banned texts; ids and log-probabilities bit for bit.
   (bits.c compares chunks and threads.) `replay q6`: with a quantized cache. `replay windows`: a layer sees a window of
   48 tokens, and its K and V are kept of few windows but in the first engine. tests/device runs it on the GPU. */
#define REPLAY_NEW 40u

#include "text_model.h"
#include "replay_rig.h"

static text_model model;
static exl2_kv format; /* of K and V: the program's argument */
static bool windows;
static const char *const plan[4] = { "fox", " is", "a", "b" };
static exl2_token prompts[REPLAY_PROMPTS][300];
static const uint32_t lengths[REPLAY_PROMPTS] = { 9, 64, 130, 290 };

static rig open_pool(uint64_t tokens, bool no_reuse)
{
    exl2_engine_desc e = text_engine(&model);
    exl2_model_desc m = text_folder();
    m.cache.tokens = tokens;
    m.cache.no_reuse = no_reuse;
    m.cache.format = format;
    m.prefill_chunk = 128; /* larger passes have other bits on a GPU */
    m.cache.full = no_reuse;
    m.batch_max = !windows ? 0 : tokens < 1024 ? 1 : 4; /* few windows */
    rig r = rig_open(&e, &m);
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    CHECK((info.window_tokens > 0) == (windows && !no_reuse) && info.window_tokens < tokens);
    return r;
}

/* The model with a window in one of its two layers. */
static void write_config(void)
{
    snprintf(model.config_json, sizeof model.config_json, "%s",
             "{\"architectures\":[\"MistralForCausalLM\"],\"vocab_size\":320,\"hidden_size\":128,"
             "\"intermediate_size\":160,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
             "\"head_dim\":32,\"hidden_act\":\"silu\",\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,"
             "\"rope_theta\":10000.0,\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2,"
             "\"sliding_window\":48,\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
             "\"quantization_config\":{\"quant_method\":\"exl2\",\"bits\":3.5,\"head_bits\":6}}");
}

static exl2_job_desc job_of(const rig *r, uint32_t i, rig_said *said)
{
    uint32_t p = i % REPLAY_PROMPTS;
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, prompts[p], lengths[p], REPLAY_NEW, said);
    d.sampler.seed = 100 + i + 17 * format + (windows ? 68 : 0); /* so that each time banned texts come up */
    replay_settings(r, i, "([a-z]{3,9} )*[a-z]+\\.", &d);
    return d;
}

/* A job that others preempt counts as waiting, and gets each text once. */
static void check_states(void)
{
    static rig_said low, high;
    exl2_job_info info;
    rig r = open_pool(512, false);
    memset(&high, 0, sizeof high);
    exl2_job_desc d = job_of(&r, 7, &low);
    exl2_job job = replay_start(&r, &d);
    while (low.count < 10) {
        replay_step(&r);
    }
    exl2_job_desc over = rig_job(&r, prompts[3], 290, 120, &high);
    over.priority = 1;
    CHECK_INT(exl2_job_start(r.engine, &over, NULL), EXL2_OK);
    do { /* on a GPU a pass may be under way */
        replay_step(&r);
        CHECK_INT(exl2_job_get(r.engine, job, &info), EXL2_OK);
    } while (RIG_BACKEND != EXL2_BACKEND_CPU && info.state != EXL2_JOB_QUEUED && high.count == 0);
    CHECK_INT(info.state, EXL2_JOB_QUEUED);
    CHECK_INT(low.done_events, 0);
    replay_drain(&r, 0);
    CHECK(high.done_events == 1 && high.count > 10);
    replay_got[7] = low;
    replay_check_same(7, "waited in between");
    rig_close(&r);
}

/* Saved after some tokens, and resumed in another session, whose K and V are computed again or come from the save. */
static void check_saved(const rig *r)
{
    static uint8_t saved[1u << 21];
    static rig_said rest;
    for (uint32_t i = 0; i < REPLAY_JOBS; i++) {
        rig_said *said = &replay_got[i];
        exl2_session from, to;
        size_t bytes;
        CHECK_INT(exl2_session_open(r->engine, r->model, &from), EXL2_OK);
        CHECK_INT(exl2_session_open(r->engine, r->model, &to), EXL2_OK);
        exl2_job_desc d = job_of(r, i, said);
        d.session = from;
        exl2_job job = replay_start(r, &d);
        while (said->count < 5 + i && said->done_events == 0) {
            replay_step(r);
        }
        if (said->done_events == 0) {
            uint32_t had = said->count, had_bytes = said->bytes;
            CHECK_INT(exl2_session_save(r->engine, from, i % 2 ? EXL2_SAVE_KV : 0, saved, sizeof saved, &bytes),
                      EXL2_OK);
            exl2_job_cancel(r->engine, job);
            replay_drain(r, 0);
            CHECK_INT(exl2_session_close(r->engine, from), EXL2_OK);
            CHECK_INT(exl2_session_restore(r->engine, to, saved, bytes), EXL2_OK);
            exl2_job_desc again = replay_rest(r, i, to, &rest);
            again.resume = true;
            replay_start(r, &again);
            replay_drain(r, 0);
            replay_join(said, &rest, had, had_bytes);
        }
        replay_check_same(i, "saved and restored");
        exl2_session_close(r->engine, from);
        exl2_session_close(r->engine, to);
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "fp16", "q8", "q6", "q4" };
    for (uint32_t f = 0; argc > 1 && f < 4; f++) {
        format = strcmp(argv[1], names[f]) == 0 ? (exl2_kv)f : format;
    }
    windows = argc > 1 && strcmp(argv[1], "windows") == 0;
    if (windows) {
        write_config();
    }
    text_find_plan(&model, 4);
    text_write(&model, plan, 4, TEXT_CHAT_CONFIG);
    for (uint32_t p = 0; p < REPLAY_PROMPTS; p++) {
        for (uint32_t k = 0; k < lengths[p]; k++) { /* the first 50 are common */
            prompts[p][k] = (exl2_token)(20 + (k * 13 + (k > 50 ? p * 7 * k : 0)) % 250);
        }
    }
    replay_job = job_of;
    rig apart = open_pool(16384, true);
    CHECK(replay_alone(&apart) > REPLAY_JOBS * REPLAY_NEW / 2);
    uint64_t bans = 0;
    for (uint32_t i = 12; i < 15; i++) {
        bans += replay_wanted[i].stats.bans_avoided;
    }
    CHECK(bans > 0);
    replay_together(&apart, 0, false, "together, nothing shared");
    rig_close(&apart);
    rig large = open_pool(16384, false), small = open_pool(512, false);
    replay_together(&large, 0, false, "together");
    replay_together(&large, 0, false, "together again, all found");
    replay_together(&large, 1, false, "in the shortest steps");
    replay_together(&large, 0, true, "with drafts");
    replay_together(&large, 1, true, "with drafts, in the shortest steps");
    replay_continued(&large, 7);
    check_saved(&large);
    replay_together(&small, 0, false, "in a small pool");
    replay_together(&small, 1, false, "in a small pool, in the shortest steps");
    replay_continued(&small, 7);
    CHECK(replay_preempted(&small, 5, 1) > 10);
    check_states();
    rig_close(&large);
    rig_close(&small);
    return check_done();
}
