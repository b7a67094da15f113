/* bits.c: a sequence gives the same ids and the same log-probabilities, bit for bit, alone, together with seven others,
   in prefill chunks of any size, in steps of any length, with any number of parallel tasks, cold, forked or resumed.
   With a Llama, a Qwen 3 MoE (experts of other bit widths), a Gemma 2 (windows, caps, norms after the blocks) and a
   Command R (parallel blocks, LayerNorm); two of them with a quantized cache, too.
   (unit/cpu_simd.c compares CPU paths and orders of tasks.) */
#include "../device/fake_driver.h"
#include "rig.h"

#define PROMPT 90
#define NEW 24

/* fake_engine.c makes tasks small; there is no GPU. */
void machine_tables(exl2__cuda_driver *driver, exl2__cuda_nvrtc *nvrtc)
{
    (void)driver;
    (void)nvrtc;
}

static exl2_token prompts[8][PROMPT];
static uint32_t tasks_run;

/* Runs tasks in reverse order, because results must not depend on the order. */
static void backwards(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    tasks_run += count;
    while (count) {
        task(arg, --count);
    }
}

static void check_same(const rig_said *got, const rig_said *wanted, const char *how)
{
    bool same = got->count == wanted->count && memcmp(got->ids, wanted->ids, got->count * sizeof(exl2_token)) == 0
             && memcmp(got->logprobs, wanted->logprobs, got->count * sizeof(float)) == 0;
    if (!CHECK(same)) {
        printf("  %s: ids or log-probabilities differ\n", how);
    }
}

static exl2_job_desc sampled(const rig *r, uint32_t i, rig_said *said)
{
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, prompts[i], PROMPT, NEW, said);
    d.sampler.preset = EXL2_PRESET_BALANCED;
    d.sampler.seed = 1000 + i;
    return d;
}

/* All ways to compute a sequence, with one model. */
static void check_model_bits(const char *path, exl2_kv format)
{
    static rig_said wanted[8], said[8];
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t k = 0; k < PROMPT; k++) {
            prompts[i][k] = (exl2_token)((i * 91 + k * k * 7 + k * 31) % 300);
        }
    }
    exl2_model_desc desc = { 0 };
    desc.path = path;
    desc.cache.format = format;
    desc.cache.tokens = 4096; /* for the pages of all sessions below */
    rig alone = rig_open(NULL, &desc);
    for (uint32_t i = 0; i < 8; i++) {
        exl2_job_desc d = sampled(&alone, i, &wanted[i]);
        rig_run(&alone, &d);
        CHECK(wanted[i].count == NEW || wanted[i].stop == EXL2_STOP_EOS);
        CHECK_INT(wanted[i].stats.seed, 1000 + i);
    }
    /* otherwise the comparison shows nothing */
    CHECK(memcmp(wanted[0].ids, wanted[1].ids, sizeof(exl2_token) * 4) != 0);

    /* all eight in one batch */
    for (uint32_t i = 0; i < 8; i++) {
        exl2_job job;
        exl2_job_desc d = sampled(&alone, i, &said[i]);
        CHECK_INT(exl2_job_start(alone.engine, &d, &job), EXL2_OK);
    }
    rig_drain(&alone, 0);
    for (uint32_t i = 0; i < 8; i++) {
        check_same(&said[i], &wanted[i], "in a batch of eight");
    }

    /* a repeat, in the shortest steps */
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job job;
        exl2_job_desc d = sampled(&alone, i, &said[i]);
        CHECK_INT(exl2_job_start(alone.engine, &d, &job), EXL2_OK);
    }
    rig_drain(&alone, 1);
    for (uint32_t i = 0; i < 2; i++) {
        check_same(&said[i], &wanted[i], "in the shortest steps");
    }

    /* on a fork whose prompt was prefilled by another job */
    exl2_session world, fork;
    exl2_session_open(alone.engine, alone.model, &world);
    exl2_job_desc fill = rig_job(&alone, prompts[3], PROMPT, 0, &said[3]);
    fill.session = world;
    fill.prefill_only = true;
    rig_run(&alone, &fill);
    exl2_session_fork(alone.engine, world, &fork);
    exl2_job_desc on_fork = sampled(&alone, 3, &said[3]);
    on_fork.session = fork;
    on_fork.prompt.tokens = NULL;
    on_fork.prompt.token_count = 0;
    rig_run(&alone, &on_fork);
    check_same(&said[3], &wanted[3], "on a fork");

    /* in two jobs: the second continues the session */
    exl2_session parts;
    exl2_session_open(alone.engine, alone.model, &parts);
    exl2_job_desc first = sampled(&alone, 5, &said[5]), second = sampled(&alone, 5, &said[6]);
    first.session = second.session = parts;
    first.max_tokens = 9;
    second.prompt.tokens = NULL;
    second.prompt.token_count = 0;
    second.max_tokens = NEW - 9;
    rig_run(&alone, &first);
    if (said[5].stop == EXL2_STOP_LENGTH) {
        rig_run(&alone, &second);
        memcpy(said[5].ids + said[5].count, said[6].ids, said[6].count * sizeof(exl2_token));
        memcpy(said[5].logprobs + said[5].count, said[6].logprobs, said[6].count * sizeof(float));
        said[5].count += said[6].count;
    }
    check_same(&said[5], &wanted[5], "in two jobs");
    rig_close(&alone);

    /* prefill in other chunks, with parallel tasks */
    static const uint32_t chunks[] = { 1, 7, 33, 64 };
    for (uint32_t c = 0; c < 4; c++) {
        exl2_engine_desc e = { 0 };
        e.parallel.run = backwards;
        e.parallel.width = c + 1;
        exl2_model_desc m = { 0 };
        m.path = path;
        m.cache.tokens = 4096;
        m.cache.format = format;
        m.prefill_chunk = chunks[c];
        m.batch_max = 1 + c;
        rig r = rig_open(&e, &m);
        tasks_run = 0;
        for (uint32_t i = 0; i < 4; i++) {
            exl2_job job;
            exl2_job_desc d = sampled(&r, i, &said[i]);
            CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
        }
        rig_drain(&r, 0);
        for (uint32_t i = 0; i < 4; i++) {
            check_same(&said[i], &wanted[i], "in other chunks, with tasks side by side");
        }
        CHECK((tasks_run > 0) == (c > 0));
        rig_close(&r);
    }
}

/* Arguments: "c" for plain C; folders of other models. */
int main(int argc, char **argv)
{
    static const char *const models[] = { "exl2-mixed", "exl2-qwen3-moe", "gemma2", "cohere" };
    rig_read_path(&argc, &argv);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        check_model_bits(rig_golden(models[i]), EXL2_KV_FP16);
    }
    check_model_bits(rig_golden("gemma2"), EXL2_KV_Q6);
    check_model_bits(rig_golden("exl2-4bit"), EXL2_KV_Q4);
    static const char *const exl3[] = { "fixtures/exl3/exl3-mixtral", "fixtures/exl3/exl3-qwen2-padded" };
    for (size_t i = 0; check_env("EXL2_TEST_DATA") && i < sizeof exl3 / sizeof exl3[0]; i++) {
        check_model_bits(check_shared(exl3[i]), EXL2_KV_FP16);
    }
    for (int i = 1; i < argc; i++) {
        check_model_bits(argv[i], EXL2_KV_FP16);
    }
    return check_done();
}
