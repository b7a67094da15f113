/* cuda_park.c: a model on the fake GPU that gives its memory back and loads again, from its files or from a copy of the
   packed weights; and the same with every driver call failing once.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_rig.h"

static exl2_result load(exl2_engine *e, bool keep, exl2_model *out)
{
    exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .prefill_chunk = 32, .batch_max = 4,
                          .cache.tokens = 16 * EXL2__PAGE_TOKENS, .keep_packed = keep, .on_event = cuda_hear_load,
                          .cache.format = keep ? EXL2_KV_Q4 : EXL2_KV_FP16 };
    return exl2_model_load(e, &d, out);
}

/* A job that speaks while its model is parked, after `steps` steps. */
static void test_parks(bool keep, uint32_t steps)
{
    cuda_life l = { .e = NULL };
    exl2_engine_stats before, parked, after;
    exl2_model_info info;
    machine_make();
    fake.run = fake_model_run;
    l.e = cuda_open();
    if (!CHECK(l.e != NULL) || !CHECK_INT(load(l.e, keep, &l.model), EXL2_OK)) {
        exit(1);
    }
    exl2_model_get(l.e, l.model, &info);
    exl2_session_open(l.e, l.model, &l.a);
    exl2_stats(l.e, &before);
    exl2_job_desc d = cuda_job(l.a, cuda_prompt, 8, 30, &cuda_said[0]);
    CHECK_INT(exl2_job_start(l.e, &d, NULL), EXL2_OK);
    for (uint32_t i = 0; i < steps; i++) {
        exl2_step(l.e, &(exl2_step_desc){ .wait = true });
    }
    CHECK_INT(exl2_model_park(l.e, l.model, true), EXL2_OK);
    exl2_stats(l.e, &parked);
    CHECK_INT(parked.device_bytes, 0);
    CHECK_INT(fake.allocated, 0);
    CHECK(before.device_bytes >= info.weight_bytes + info.cache_bytes);
    CHECK(keep ? parked.host_bytes > info.weight_bytes : parked.host_bytes < before.host_bytes);
    CHECK_INT(exl2_step(l.e, NULL), EXL2_IDLE);
    CHECK_INT(cuda_load_again(l.e, l.model), EXL2_OK);
    exl2_stats(l.e, &after);
    CHECK_INT(after.device_bytes, before.device_bytes);
    CHECK_INT(after.host_bytes, before.host_bytes);
    CHECK(after.host_peak <= info.weight_bytes + info.cache_bytes + info.scratch_bytes + (8u << 20));
    cuda_step_all(l.e, false, 0);
    CHECK_INT(cuda_said[0].count, 30);
    cuda_expect_history(l.e, l.a, 8, 38);
    exl2_close(l.e);
    machine_end();
}

/* Call n of parking and loading again fails: the model stays parked and loads at the second try, or nothing was lost by
   it. false: there are fewer calls. */
static bool test_fault(bool keep, uint32_t n, int code)
{
    cuda_life l = { .e = NULL };
    machine_make();
    fake.run = fake_model_run;
    l.e = cuda_open();
    if (!CHECK(l.e != NULL) || !CHECK_INT(load(l.e, keep, &l.model), EXL2_OK)) {
        exit(1);
    }
    exl2_session_open(l.e, l.model, &l.a);
    exl2_job_desc d = cuda_job(l.a, cuda_prompt, 8, 12, &cuda_said[0]);
    CHECK_INT(exl2_job_start(l.e, &d, NULL), EXL2_OK);
    exl2_step(l.e, &(exl2_step_desc){ .wait = true });
    exl2_step(l.e, &(exl2_step_desc){ .wait = true });
    fake.fail_code = code;
    fake.fail_at = n;
    CHECK_INT(exl2_model_park(l.e, l.model, true), EXL2_OK);
    exl2_result r = cuda_load_again(l.e, l.model);
    bool came = fake.failed[0] != 0;
    fake.fail_at = 0;
    if (r < 0) {
        CHECK_INT(exl2_model_state(l.e, l.model), EXL2_IDLE);
        CHECK_INT(cuda_load_again(l.e, l.model), EXL2_OK);
    }
    cuda_step_all(l.e, false, 0);
    if (cuda_said[0].result >= 0) { /* a job whose pass failed before the model was parked has ended */
        cuda_expect_history(l.e, l.a, 8, 20);
    }
    CHECK_INT(cuda_said[0].done_events, 1);
    exl2_close(l.e);
    CHECK_INT(fake.allocated, 0);
    return came;
}

int main(void)
{
    machine_drop_cache();
    for (uint32_t keep = 0; keep < 2; keep++) {
        for (uint32_t steps = 0; steps < 12; steps += 2) {
            test_parks(keep, steps);
        }
        uint32_t n = 1;
        while (n < 2000 && test_fault(keep, n, keep ? EXL2__CUDA_OUT_OF_MEMORY : 1)) {
            n += keep ? 1 : 4;
        }
        printf("about %u calls, %s\n", n, keep ? "from the copy" : "from the files");
        CHECK(n > 20 && n < 2000);
    }
    machine_drop_cache();
    fake_reset();
    return check_done();
}
