/* cuda_lost.c: the fake device is lost in the middle of drafts, while the worker runs, while a model is parked, and
   while it loads again: every job has one end that says so, histories can be read and hold only right tokens, and the
   engine closes without leaks. Without drafts and worker: cuda_faults.c; single calls that fail: cuda_sweep.c.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_rig.h"

#define JOBS 3u
#define NEW 24u

static exl2_engine *e;
static exl2_model model, draft;
static exl2_session sessions[JOBS];
static exl2_token prompt[20];
/* Jobs: one alone, one with guesses from other histories, one with a draft model. */
static void begin(bool keep)
{
    exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .context_max = 256, .batch_max = 4, .keep_packed = keep,
                          .cache.tokens = 1024, .on_event = cuda_hear_load };
    machine_make();
    fake.run = fake_model_run;
    e = cuda_open();
    if (!CHECK(e != NULL) || !CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK) ||
        !CHECK_INT(exl2_model_load(e, &d, &draft), EXL2_OK)) {
        exit(1);
    }
    for (uint32_t i = 0; i < EXL2__COUNT(prompt); i++) {
        prompt[i] = (exl2_token)(20 + i * 7 % 200);
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK_INT(exl2_session_open(e, model, &sessions[i]), EXL2_OK);
    }
    exl2_job_desc first = cuda_job(sessions[0], prompt, EXL2__COUNT(prompt), NEW, &cuda_said[0]);
    CHECK_INT(exl2_generate(e, &first), EXL2_OK); /* a history to guess from */
    CHECK_INT(exl2_session_rewind(e, sessions[0], EXL2__COUNT(prompt)), EXL2_OK);
}

static void start(void)
{
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc d = cuda_job(sessions[i], prompt, i ? EXL2__COUNT(prompt) : 0, NEW, &cuda_said[i]);
        d.draft.ngram = i == 1;
        d.draft.model = i == 2 ? draft : d.draft.model;
        d.draft.tokens = i == 2 ? 4 : 0;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    }
}

static uint32_t ended(void)
{
    return cuda_said[0].done_events + cuda_said[1].done_events + cuda_said[2].done_events;
}

/* All tokens after the prompt are those of the fake model. */
static void check_histories(void)
{
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_token ids[256];
        size_t need = 0;
        uint32_t sum = 0, wrong = 0;
        CHECK_INT(exl2_session_tokens(e, sessions[i], ids, EXL2__COUNT(ids), &need), EXL2_OK);
        for (size_t k = 0; k < need; k++) {
            exl2_token right = k < EXL2__COUNT(prompt) ? prompt[k] : fake_model_say(sum, CUDA_VOCAB);
            wrong += ids[k] != right;
            sum = fake_model_hear(sum, (uint32_t)ids[k]);
        }
        CHECK_INT(wrong, 0);
        CHECK(cuda_said[i].done_events == 0 || need == EXL2__COUNT(prompt) + cuda_said[i].count
              || (cuda_said[i].count == 0 && need <= EXL2__COUNT(prompt)));
    }
}

/* After the loss: the ends of the jobs, the histories, and what the engine still answers. */
static void check_lost(void)
{
    static uint8_t saved[1 << 16];
    size_t need = 0;
    exl2_error error;
    exl2_model other;
    for (uint32_t i = 0; i < JOBS; i++) {
        const rig_said *s = &cuda_said[i];
        CHECK_INT(s->done_events, 1);
        CHECK(s->result == EXL2_OK ? s->count == NEW : s->result == EXL2_ERR_DEVICE_LOST);
        CHECK(s->result == EXL2_OK || (s->stop == EXL2_STOP_ERROR && strstr(s->error, "lost") != NULL));
    }
    check_histories();
    CHECK_INT(exl2_session_save(e, sessions[0], 0, saved, sizeof saved, &need), EXL2_OK);
    CHECK_INT(exl2_session_rewind(e, sessions[0], 3), EXL2_OK);
    CHECK_INT(exl2_session_restore(e, sessions[0], saved, need), EXL2_OK);
    check_histories();
    exl2_job_desc d = cuda_job(sessions[1], prompt, 1, 1, &cuda_said[1]);
    CHECK_INT(exl2_generate(e, &d), EXL2_ERR_DEVICE_LOST);
    CHECK_INT(cuda_load(e, &other), EXL2_ERR_DEVICE_LOST);
    exl2_last_error(e, &error);
    CHECK(error.code == EXL2_ERR_DEVICE_LOST && strstr(error.text, "lost") != NULL);
}

static void end(void)
{
    exl2_close(e);
    machine_end();
}

/* The device is lost at the n-th launch, or driver call, while all jobs speak. */
static void test_speaking(bool launch, bool worker, uint32_t gpu_us, uint32_t stride)
{
    uint32_t n = 1, lost = 0;
    for (bool came = true; came && n < 4000; n += stride) {
        begin(false);
        if (worker) {
            CHECK_INT(exl2_worker_start(e), EXL2_OK);
        }
        fake.fail_code = fake.fault_code = launch ? EXL2__CUDA_ILLEGAL_ADDRESS : EXL2__CUDA_UNKNOWN;
        start();
        *(launch ? &fake.fault_at : &fake.fail_at) = n;
        for (uint32_t i = 0; i < 200000 && ended() < JOBS; i++) {
            exl2_step(e, &(exl2_step_desc){ .wait = true, .gpu_us = gpu_us });
        }
        came = fake.lost != 0;
        if (worker) {
            CHECK_INT(exl2_worker_stop(e), EXL2_OK);
        }
        if (came) {
            check_lost();
            lost++;
        }
        end();
    }
    printf("lost at %u of %u %s%s\n", lost, n, launch ? "launches" : "calls", worker ? " of a worker" : "");
    CHECK(lost > 10 && n < 4000);
}

/* It is lost while the model is parked, or at the n-th call of loading it again. */
static void test_parked(bool keep, uint32_t stride)
{
    uint32_t n = 0, lost = 0;
    for (bool came = true; came && n < 4000; n += stride) {
        begin(keep);
        start();
        for (uint32_t i = 0; i < 4; i++) {
            exl2_step(e, &(exl2_step_desc){ .wait = true });
        }
        CHECK_INT(exl2_model_park(e, model, true), EXL2_OK);
        check_histories();
        fake.lost = n == 0 ? EXL2__CUDA_UNKNOWN : 0;
        fake.fail_code = EXL2__CUDA_UNKNOWN;
        fake.fail_at = n;
        check_histories();
        exl2_result loaded = cuda_load_again(e, model);
        came = n == 0 || fake.failed[0]; /* it may be a call of the compiler, with which no device is lost */
        if (fake.lost && loaded == EXL2_OK) { /* the last call was the first that failed: the jobs hear of it */
            cuda_step_all(e, false, 0);
            check_lost();
        } else if (fake.lost) {
            CHECK_INT(loaded, EXL2_ERR_DEVICE_LOST);
            CHECK_INT(exl2_model_state(e, model), EXL2_IDLE);
            CHECK_INT(ended(), 0); /* the jobs wait, as nothing of them was lost */
            check_histories();
            exl2_session_info info = { 0 };
            for (uint32_t i = 0; i < JOBS; i++) {
                CHECK_INT(exl2_session_get(e, sessions[i], &info), EXL2_OK);
                CHECK_INT(exl2_job_cancel(e, info.busy_with), EXL2_OK);
            }
            exl2_step(e, NULL);
            CHECK_INT(ended(), JOBS);
            check_histories();
            lost++;
        }
        end();
    }
    printf("lost at %u of %u calls of loading again\n", lost, n);
    CHECK(lost > 10 && n < 4000);
}

int main(void)
{
    test_speaking(true, false, 0, 7);
    test_speaking(false, false, 0, 17);
    test_speaking(true, false, 1, 17);
    test_speaking(true, true, 0, 17);
    test_speaking(false, true, 0, 29);
    test_parked(false, 22);
    test_parked(true, 5);
    machine_drop_cache();
    fake_reset();
    return check_done();
}
