/* soak.c: random opens, forks, jobs, cancels, pauses, trims, rewinds, saves and restores, with steps of every kind in
   between. The caps hold at all times, nothing is allocated after loading, and in the end no page is in use.
   soak SECONDS [SEED] runs that long, by hand; without an argument a fixed number of operations. */
#include "rig.h"

#define SESSIONS 24
#define JOBS 12
#define OPERATIONS 6000

static uint64_t seed = 1;

static uint32_t any(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

typedef struct talker {
    exl2_session session; /* id 0: closed */
    exl2_job job;         /* id 0: silent */
} talker;

static talker talkers[SESSIONS];
static uint64_t opens, tokens;

static exl2_flow hear(void *user, const exl2_event *event)
{
    talker *t = user;
    tokens += event->kind == EXL2_EVENT_TEXT ? event->token_count : 0;
    if (event->kind == EXL2_EVENT_DONE) {
        CHECK(event->result == EXL2_OK || event->result == EXL2_ERR_CANCELLED);
        t->job.id = 0;
    }
    return any(60) ? EXL2_CONTINUE : any(2) ? EXL2_STOP_JOB : EXL2_PAUSE_JOB;
}

static void say(const rig *r, talker *t)
{
    exl2_token ids[40];
    uint32_t count = 1 + any(40), jobs = 0;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        jobs += talkers[i].job.id != 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = (exl2_token)any(300);
    }
    exl2_job_desc d = { .session = t->session, .prompt = { .tokens = ids, .token_count = count },
                        .max_tokens = 1 + any(30), .priority = (int32_t)any(3), .draft.ngram = any(2) == 0,
                        .reserve = any(2) ? 1 + any(100) : 0,
                        .on_event = hear, .user = t };
    d.sampler.seed = 1 + any(1000);
    exl2_result result = jobs < JOBS ? exl2_job_start(r->engine, &d, &t->job) : EXL2_ERR_BUDGET;
    CHECK(result == EXL2_OK || result == EXL2_ERR_CONTEXT_FULL || result == EXL2_ERR_BUDGET);
    t->job.id = result == EXL2_OK ? t->job.id : 0;
    if (result == EXL2_ERR_CONTEXT_FULL) { /* an older half goes */
        exl2_session_info info;
        CHECK_INT(exl2_session_get(r->engine, t->session, &info), EXL2_OK);
        CHECK_INT(exl2_session_trim(r->engine, t->session, info.tokens / 4, info.tokens / 2), EXL2_OK);
    }
}

/* One random operation on one session. */
static void operate(const rig *r)
{
    static uint8_t saved[1 << 17];
    static size_t saved_bytes;
    talker *t = &talkers[any(SESSIONS)], *other = &talkers[any(SESSIONS)];
    exl2_engine *e = r->engine;
    exl2_session_info info;
    size_t need = 0;
    if (!t->session.id) {
        bool fork = other->session.id && any(2);
        CHECK_INT(fork ? exl2_session_fork(e, other->session, &t->session)
                       : exl2_session_open(e, r->model, &t->session), EXL2_OK);
        opens++;
        return;
    }
    CHECK_INT(exl2_session_get(e, t->session, &info), EXL2_OK);
    switch (any(12)) {
    case 0: /* of a busy session: its job is cancelled, and `t` must stay silent until its DONE */
        if (!t->job.id) {
            CHECK_INT(exl2_session_close(e, t->session), EXL2_OK);
            t->session.id = 0;
        }
        break;
    case 1:
        if (t->job.id) {
            exl2_job_cancel(e, t->job);
        }
        break;
    case 2:
        if (t->job.id) {
            exl2_job_pause(e, t->job, any(3) == 0);
        }
        break;
    case 3:
        if (!t->job.id) {
            CHECK_INT(exl2_session_rewind(e, t->session, any(info.tokens + 1)), EXL2_OK);
        }
        break;
    case 4:
        CHECK_INT(exl2_session_save(e, t->session, any(2) ? EXL2_SAVE_KV : 0, saved, sizeof saved, &need), EXL2_OK);
        saved_bytes = need;
        break;
    case 5:
        if (!t->job.id && saved_bytes) {
            CHECK_INT(exl2_session_restore(e, t->session, saved, saved_bytes), EXL2_OK);
        }
        break;
    default:
        if (!t->job.id) {
            say(r, t);
        }
        break;
    }
}

static void check_caps(const rig *r, const exl2_engine_desc *d, uint64_t allocations)
{
    exl2_engine_stats s;
    exl2_stats(r->engine, &s);
    CHECK(s.host_bytes <= d->host_bytes_max && s.host_peak <= d->host_bytes_max);
    CHECK(s.device_bytes <= d->device_bytes_max && s.device_peak <= d->device_bytes_max);
    CHECK_INT(s.allocations, allocations);
    CHECK(s.pages_used + s.pages_cached <= s.pages_total);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 0;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    exl2_engine_desc d = { .max_sessions = SESSIONS, .max_jobs = JOBS };
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .cache.tokens = 640 }; /* so that jobs evict and preempt */
    rig r = rig_open(&d, &m);
    exl2_engine_stats s;
    exl2_stats(r.engine, &s);
    d.host_bytes_max = s.host_peak; /* what loading needs is the cap from now on; a GPU's plan counts 1 MiB more */
    d.host_bytes_max += RIG_BACKEND == EXL2_BACKEND_CUDA ? 1u << 20 : 0;
    d.device_bytes_max = s.device_peak;
    rig_close(&r);
    r = rig_open(&d, &m);
    exl2_stats(r.engine, &s);
    uint64_t begin = exl2__platform_ns();
    for (uint64_t i = 0; seconds > 0 ? (double)(exl2__platform_ns() - begin) < seconds * 1e9 : i < OPERATIONS; i++) {
        operate(&r);
        if (any(2)) {
            exl2_step_desc step = { .cpu_us = any(3) ? any(400) : 0, .gpu_us = any(3) ? any(400) : 0 };
            exl2_step(r.engine, &step);
        }
        check_caps(&r, &d, s.allocations);
    }
    for (uint32_t round = 0; round < 100; round++) { /* every job ends by itself, as pages come back */
        for (uint32_t i = 0; i < SESSIONS; i++) {
            if (talkers[i].job.id) {
                exl2_job_pause(r.engine, talkers[i].job, false);
            }
        }
        rig_drain(&r, 0);
    }
    exl2_engine_stats after;
    exl2_stats(r.engine, &after);
    CHECK_INT(after.pages_used, 0);
    CHECK_INT(after.jobs_active + after.jobs_waiting, 0);
    CHECK(after.evictions > 0 && after.preemptions > 0);
    printf("%llu opens, %llu tokens, %llu evictions, %llu preemptions\n", (unsigned long long)opens,
           (unsigned long long)tokens, (unsigned long long)after.evictions, (unsigned long long)after.preemptions);
    rig_close(&r);
    return check_done();
}
