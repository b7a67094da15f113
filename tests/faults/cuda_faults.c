/* cuda_faults.c: bad moments, over the fake driver: jobs are cancelled and objects closed between any two units of a
   pass, kernels fault and devices are lost in the middle of a token, memory caps are exact to the byte, drivers are
   older than the compiler, the application has a context of its own; devices of all kinds.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_rig.h"

static void make(bool late)
{
    machine_make();
    fake.run = fake_model_run;
    fake.eager = !late;
}

/* Opens an engine with the golden model and two sessions, and generates in session a, which then has 14 tokens. Exits
   if that fails. */
static cuda_life begin(bool late)
{
    cuda_life l = { .e = cuda_open(), .late = late };
    if (!CHECK(l.e != NULL) || !CHECK_INT(cuda_load(l.e, &l.model), EXL2_OK)) {
        exit(1);
    }
    exl2_session_open(l.e, l.model, &l.a);
    exl2_session_open(l.e, l.model, &l.b);
    CHECK_INT(cuda_use_alone(&l), EXL2_OK);
    return l;
}

static void end(cuda_life *l)
{
    exl2_close(l->e);
    machine_end();
}

/* ---- between any two units ---- */

typedef enum moment { CANCEL, CLOSE_SESSION, CLOSE_MODEL, CLOSE_ENGINE, MOMENTS } moment;

/* Starts two jobs, makes `steps` steps of one unit or a few, then does `what`. Returns false if the jobs had ended
   before. */
static bool happen(moment what, uint32_t steps, exl2_session a, exl2_session b, cuda_life *l)
{
    exl2_step_desc step = { .gpu_us = 1 };
    exl2_job jobs[2];
    exl2_token longer[40];
    exl2_result last = EXL2_OK;
    for (uint32_t i = 0; i < EXL2__COUNT(longer); i++) {
        longer[i] = (exl2_token)(30 + i);
    }
    exl2_job_desc d[2] = { cuda_job(a, cuda_prompt, 2, 4, &cuda_said[0]),
                           cuda_job(b, longer, EXL2__COUNT(longer), 4, &cuda_said[1]) };
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(exl2_job_start(l->e, &d[i], &jobs[i]), EXL2_OK);
    }
    for (uint32_t i = 0; i < steps && last != EXL2_IDLE; i++) {
        last = exl2_step(l->e, &step);
        CHECK_INT(fake.context_depth, 0);
    }
    if (what == CANCEL) {
        for (uint32_t i = 0; i < 2; i++) {
            exl2_result cancelled = exl2_job_cancel(l->e, jobs[i]);
            CHECK(cancelled == EXL2_OK || (cancelled == EXL2_ERR_STALE && cuda_said[i].done_events == 1));
        }
        cuda_step_all(l->e, true, 0);
    } else if (what == CLOSE_SESSION) {
        CHECK_INT(exl2_session_close(l->e, a), EXL2_OK);
        CHECK_INT(exl2_session_close(l->e, b), EXL2_OK);
        cuda_step_all(l->e, true, 1);
    } else if (what == CLOSE_MODEL) {
        CHECK_INT(exl2_model_close(l->e, l->model), EXL2_OK);
        CHECK_INT(fake.allocated, 0);
    } else {
        exl2_close(l->e);
    }
    CHECK_INT(cuda_said[0].done_events, 1);
    CHECK_INT(cuda_said[1].done_events, 1);
    return last != EXL2_IDLE;
}

/* Does `what` after every number of steps. If the engine stays open, new jobs must continue the histories correctly. */
static void test_borders(moment what)
{
    uint32_t steps = 0;
    bool more = true;
    make(true);
    cuda_life l = begin(true);
    for (; more && steps < 1000; steps++) {
        exl2_session a, b;
        if (what == CLOSE_MODEL || what == CLOSE_ENGINE) {
            exl2_session_open(l.e, l.model, &b);
            more = happen(what, steps, l.a, b, &l);
            l.e = what == CLOSE_ENGINE ? NULL : l.e;
            end(&l);
            make(true);
            l = begin(true);
            continue;
        }
        CHECK_INT(exl2_session_fork(l.e, l.a, &a), EXL2_OK);
        CHECK_INT(exl2_session_open(l.e, l.model, &b), EXL2_OK);
        more = happen(what, steps, a, b, &l);
        if (what == CANCEL) {
            exl2_session_info before, after;
            exl2_session_get(l.e, a, &before);
            exl2_job_desc d[2] = { cuda_job(a, cuda_prompt, 1, 2, &cuda_said[0]),
                                   cuda_job(b, cuda_prompt, 1, 2, &cuda_said[1]) };
            exl2_session_get(l.e, b, &after);
            CHECK_INT(cuda_run(&l, d, 2), EXL2_OK);
            cuda_expect_history(l.e, a, before.tokens + 1u, before.tokens + 3u);
            cuda_expect_history(l.e, b, after.tokens + 1u, after.tokens + 3u);
            exl2_session_close(l.e, a);
            exl2_session_close(l.e, b);
        }
    }
    CHECK(steps > 10 && steps < 1000);
    printf("borders: %u\n", steps);
    exl2_engine_stats stats;
    exl2_stats(l.e, &stats);
    CHECK_INT(stats.pages_used, 0); /* no job runs */
    end(&l);
}

/* ---- the device is lost ---- */

static void check_lost(cuda_life *l, size_t given)
{
    exl2_error error;
    exl2_session_info info;
    exl2_model model;
    cuda_step_all(l->e, l->late, 0);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(cuda_said[i].done_events, 1);
        CHECK_INT(cuda_said[i].result, EXL2_ERR_DEVICE_LOST);
        CHECK_INT(cuda_said[i].stop, EXL2_STOP_ERROR);
        CHECK(strstr(cuda_said[i].error, "lost") != NULL && strstr(cuda_said[i].error, "FakeForce") != NULL);
    }
    CHECK_INT(exl2_session_get(l->e, l->a, &info), EXL2_OK);
    CHECK(info.tokens >= given);
    cuda_expect_history(l->e, l->a, given, given + cuda_said[0].count);
    CHECK_INT(exl2_session_rewind(l->e, l->a, 3), EXL2_OK);
    cuda_expect_history(l->e, l->a, 3, 3);
    uint32_t launches = fake.launches;
    exl2_job_desc d = cuda_job(l->b, cuda_prompt, 1, 1, &cuda_said[0]);
    CHECK_INT(exl2_generate(l->e, &d), EXL2_ERR_DEVICE_LOST);
    CHECK_INT(cuda_load(l->e, &model), EXL2_ERR_DEVICE_LOST);
    exl2_last_error(l->e, &error);
    CHECK(error.code == EXL2_ERR_DEVICE_LOST && error.native != 0 && strstr(error.text, "was lost before") != NULL);
    CHECK_INT(fake.launches, launches);
}

/* The device is lost at the n-th launch (`launch`) or driver call while two jobs run, for every n. */
static void test_lost(bool launch, int code, bool late)
{
    uint32_t n = 1;
    for (bool came = true; came && n < 2000; n++) {
        make(late);
        cuda_life l = begin(late);
        exl2_job jobs[2];
        fake.fail_code = fake.fault_code = code;
        *(launch ? &fake.fault_at : &fake.fail_at) = n;
        exl2_job_desc d[2] = { cuda_job(l.a, cuda_prompt, 2, 4, &cuda_said[0]),
                               cuda_job(l.b, cuda_prompt, 2, 4, &cuda_said[1]) };
        for (uint32_t i = 0; i < 2; i++) {
            exl2_job_start(l.e, &d[i], &jobs[i]);
        }
        for (uint32_t i = 0; i < 2000 && cuda_said[0].done_events + cuda_said[1].done_events == 0; i++) {
            exl2_step(l.e, &(exl2_step_desc){ .wait = !late });
        }
        cuda_step_all(l.e, late, 0);
        came = cuda_said[0].result < 0 || cuda_said[1].result < 0;
        if (cuda_said[0].result < 0 && cuda_said[1].result < 0) { /* else one job had ended before */
            check_lost(&l, 16);
        }
        end(&l);
    }
    CHECK(n > 20 && n < 2000);
}

/* An application that lost its GPU can continue on the CPU. */
static void test_after_lost(void)
{
    make(false);
    cuda_life l = begin(false);
    fake.lost = EXL2__CUDA_UNKNOWN;
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_AUTO, &cuda_error);
    exl2_engine *e = NULL;
    exl2_model model;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(machine.warnings, 1);
    CHECK(strstr(machine.warning, "models run on the CPU: ") == machine.warning);
    CHECK_INT(cuda_load(e, &model), EXL2_OK);
    exl2_close(e);
    end(&l);
}

/* With AUTO an engine opens whatever driver call fails; if it does not use the GPU, it logs once why. */
static void test_auto(void)
{
    bool came = true;
    uint32_t n = 1, without = 0;
    for (; came && n < 1000; n++) {
        make(false);
        machine_drop_cache();
        fake.fail_at = n;
        fake.fail_code = 1;
        fake.fail_nvrtc = 11;
        exl2_engine_desc d = machine_desc(EXL2_BACKEND_AUTO, &cuda_error);
        exl2_engine *e = NULL;
        exl2_model model;
        exl2_engine_stats stats;
        CHECK_INT(exl2_open(&d, &e), EXL2_OK);
        came = fake.failed[0] != 0;
        fake.fail_at = 0;
        CHECK_INT(cuda_load(e, &model), EXL2_OK);
        exl2_stats(e, &stats);
        without += stats.device_bytes == 0;
        CHECK_INT(machine.warnings, stats.device_bytes == 0);
        CHECK_INT(machine.errors, 0);
        exl2_close(e);
        machine_end();
    }
    CHECK(without > 5 && n > 15 && n < 1000);
}

/* ---- memory ---- */

static uint64_t measured(void)
{
    exl2_model_info info = { .device_bytes = 0 };
    exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .prefill_chunk = 32, .batch_max = 4 };
    d.cache.tokens = 16 * EXL2__PAGE_TOKENS;
    exl2_engine *e = cuda_open();
    CHECK_INT(exl2_model_measure(e, &d, &info), EXL2_OK);
    exl2_close(e);
    return info.device_bytes;
}

/* The bytes that exl2_model_measure predicts are enough, and one byte less is not. The engine's count of device bytes
   equals the driver's. */
static void test_cap(void)
{
    make(false);
    uint64_t bytes = measured();
    CHECK(bytes > 0);
    for (uint32_t less = 0; less < 2; less++) {
        exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
        cuda_life l = { .e = NULL };
        exl2_engine_stats stats;
        exl2_error error;
        d.device_bytes_max = bytes - less;
        CHECK_INT(exl2_open(&d, &l.e), EXL2_OK);
        exl2_result r = cuda_load(l.e, &l.model);
        exl2_stats(l.e, &stats);
        CHECK(stats.device_peak <= bytes - less);
        CHECK_INT(stats.device_bytes, fake.allocated);
        if (less) {
            CHECK_INT(r, EXL2_ERR_BUDGET);
            exl2_last_error(l.e, &error);
            CHECK(strlen(error.text) > 20);
            CHECK_INT(fake.allocated, 0);
        } else if (CHECK_INT(r, EXL2_OK)) {
            exl2_session_open(l.e, l.model, &l.a);
            CHECK_INT(cuda_use_alone(&l), EXL2_OK);
        }
        end(&l);
    }
}

/* ---- host memory ---- */

static uint32_t model_blocks; /* host blocks that belong to a model and not to reading its headers */

static void *count_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    (void)user;
    model_blocks += tag != EXL2_MEM_GENERAL;
    return exl2__platform_alloc(NULL, bytes, align, tag);
}

/* Loads under a cap of host memory. The result must be OK, or BUDGET before any memory of the model was allocated on
   either side. Returns whether it was OK; then *over has the bytes by which the predicted peak exceeds the true one. */
static bool fits_host(const exl2_model_desc *m, uint64_t cap, uint64_t *over, uint64_t *cache)
{
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    exl2_engine *e;
    exl2_model model;
    exl2_model_info info = { .cache_bytes = 0 };
    exl2_engine_stats before, stats;
    make(false);
    d.host_bytes_max = cap;
    d.allocator.alloc_fn = count_alloc;
    d.allocator.free_fn = exl2__platform_free;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    exl2_stats(e, &before);
    model_blocks = 0;
    exl2_result r = exl2_model_load(e, m, &model);
    exl2_stats(e, &stats);
    CHECK(r == EXL2_OK || r == EXL2_ERR_BUDGET);
    if (r == EXL2_OK) {
        CHECK_INT(exl2_model_get(e, model, &info), EXL2_OK);
        CHECK(stats.host_peak <= cap);
        uint64_t peak = stats.host_peak - before.host_bytes + stats.device_peak;
        uint64_t predicted = info.weight_bytes + info.cache_bytes + info.scratch_bytes;
        CHECK(predicted >= peak);
        *over = predicted - peak;
        *cache = info.cache_bytes;
    } else if (!CHECK(stats.device_peak == 0 && model_blocks == 0)) {
        exl2_last_error(e, &cuda_error);
        printf("  cap %llu: BUDGET after %llu bytes on the GPU: %s\n", (unsigned long long)cap,
               (unsigned long long)stats.device_peak, cuda_error.text);
    }
    exl2_close(e);
    machine_end();
    return r == EXL2_OK;
}

/* Finds the smallest cap with which the model loads. With any larger cap it must load, too, with a cache that is not
   smaller; with any smaller cap it must not load. */
static void test_host_cap(uint32_t context_max, uint64_t cache_tokens)
{
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .prefill_chunk = 32, .batch_max = 4 };
    uint64_t low = 1u << 20, high = 256u << 20, over = 0, cache = 0, before = 0;
    m.context_max = context_max;
    m.cache.tokens = cache_tokens;
    CHECK(fits_host(&m, high, &over, &cache) && !fits_host(&m, low, &over, &cache));
    CHECK(over <= 1u << 20);
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        *(fits_host(&m, middle, &over, &cache) ? &high : &low) = middle;
    }
    for (uint64_t less = 1; less < 1u << 18; less += less < 16 ? 1 : less / 4) {
        CHECK(!fits_host(&m, high - less, &over, &cache));
    }
    for (uint64_t more = 0; more < 1u << 18; more += more < 16 ? 1 : more / 4) {
        CHECK(fits_host(&m, high + more, &over, &cache));
        CHECK(over <= 1u << 20);
        CHECK(cache >= before);
        before = cache;
    }
    printf("fits under %llu bytes of host memory\n", (unsigned long long)high);
}

static struct hook {
    uint64_t bytes;
    uint32_t asked, refuse_at;
} hook;

static uint64_t hook_alloc(void *user, uint32_t device, uint64_t bytes, exl2_mem tag)
{
    exl2__cuda_driver driver = fake_driver();
    uint64_t address = 0;
    (void)user, (void)device, (void)tag;
    CHECK_INT(fake.context_depth, 1);
    if (++hook.asked == hook.refuse_at || driver.memory_alloc(&address, (size_t)bytes) != 0) {
        return 0;
    }
    hook.bytes += bytes;
    return address;
}

static void hook_free(void *user, uint32_t device, uint64_t address, uint64_t bytes, exl2_mem tag)
{
    exl2__cuda_driver driver = fake_driver();
    (void)user, (void)device, (void)tag;
    CHECK_INT(fake.context_depth, 1);
    hook.bytes -= bytes;
    driver.memory_free(address);
}

static void test_hooks(void)
{
    for (uint32_t refuse = 1; refuse < 100; refuse++) {
        make(false);
        hook = (struct hook){ .refuse_at = refuse };
        exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
        d.allocator.device_alloc_fn = hook_alloc;
        d.allocator.device_free_fn = hook_free;
        cuda_life l = { .e = NULL };
        CHECK_INT(exl2_open(&d, &l.e), EXL2_OK);
        exl2_result r = cuda_use(&l);
        bool came = hook.asked >= refuse;
        CHECK_INT(r, came ? EXL2_ERR_DEVICE_MEMORY : EXL2_OK);
        CHECK_INT(hook.bytes, 0);
        end(&l);
        if (!came) {
            CHECK(refuse > 3);
            return;
        }
    }
    CHECK(false);
}

/* ---- devices, drivers, contexts ---- */

/* A device newer than the compiler needs PTX, which a driver older than the compiler rejects. */
static void test_old_driver(void)
{
    exl2_error error;
    exl2_model model;
    machine_drop_cache();
    make(false);
    fake.devices[0].arch_major = 13;
    fake.devices[0].arch_minor = 0;
    fake.driver_version = 12080;
    exl2_engine *e = cuda_open();
    CHECK_INT(cuda_load(e, &model), EXL2_ERR_COMPILE);
    exl2_last_error(e, &error);
    CHECK(strstr(error.text,
                 "the driver supports CUDA 12.8, but the kernel compiler is NVRTC 13.0: update the driver"));
    CHECK_INT(error.native, EXL2__CUDA_UNSUPPORTED_PTX);
    fake.driver_version = 13000; /* the driver has been updated, which needs a new process: a new engine here */
    exl2_close(e);
    machine_end();
    make(false);
    fake.devices[0].arch_major = 13;
    fake.devices[0].arch_minor = 0;
    cuda_life l = { .e = cuda_open() };
    CHECK_INT(cuda_use(&l), EXL2_OK);
    end(&l);
    machine_drop_cache();
}

/* Every device generates the same tokens, also with as little shared memory as graphics leaves. */
static void test_devices(void)
{
    static const int archs[] = { 75, 80, 86, 89, 90, 100, 120 };
    for (size_t i = 0; i < EXL2__COUNT(archs); i++) {
        for (uint32_t shared = 0; shared <= 49152; shared += 49152) {
            make(false);
            fake.devices[0].arch_major = archs[i] / 10;
            fake.devices[0].arch_minor = archs[i] % 10;
            fake.devices[0].sm_count = (int)(30 + 20 * i);
            fake.devices[0].shared_optin = archs[i] == 75 ? 65536 : 101376;
            exl2_device_desc device = { .shared_bytes_max = shared };
            exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
            d.devices = &device;
            d.device_count = 1;
            cuda_life l = { .e = NULL };
            CHECK_INT(exl2_open(&d, &l.e), EXL2_OK);
            if (!CHECK_INT(cuda_use(&l), EXL2_OK)) {
                printf("  architecture %d, shared memory %u: %s\n", archs[i], shared, l.error.text);
            }
            end(&l);
        }
    }
}

/* The application's own context stays current after every call, and is not destroyed. */
static void test_host_context(void)
{
    make(false);
    void *context = fake_host_context(0);
    exl2_device_desc device = { .pick = EXL2_PICK_CONTEXT, .cuda_context = context };
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    d.devices = &device;
    d.device_count = 1;
    cuda_life l = { .e = NULL };
    CHECK_INT(exl2_open(&d, &l.e), EXL2_OK);
    CHECK_INT(cuda_use(&l), EXL2_OK);
    CHECK_INT(fake.context_depth, 1);
    exl2_close(l.e);
    CHECK_INT(fake.context_depth, 1);
    CHECK_INT(fake.devices[0].retained, 0);
    fake_host_context_end(context);
    machine_end();
}

/* Two models on one device: one is closed while the other one runs. */
static void test_two_models(void)
{
    make(true);
    cuda_life l = begin(true), other = l;
    exl2_job job;
    CHECK_INT(cuda_load(l.e, &other.model), EXL2_OK);
    exl2_session_open(l.e, other.model, &other.a);
    uint64_t both = fake.allocated;
    exl2_job_desc d[2] = { cuda_job(l.a, cuda_prompt, 2, 9, &cuda_said[0]),
                           cuda_job(other.a, cuda_prompt, 2, 9, &cuda_said[1]) };
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(exl2_job_start(l.e, &d[i], &job), EXL2_OK);
    }
    for (uint32_t i = 0; i < 5; i++) {
        exl2_step(l.e, &(exl2_step_desc){ .gpu_us = 1 });
    }
    CHECK_INT(exl2_model_close(l.e, other.model), EXL2_OK);
    CHECK_INT(fake.allocated, both / 2);
    CHECK_INT(cuda_said[1].result, EXL2_ERR_CANCELLED);
    cuda_step_all(l.e, true, 0);
    CHECK_INT(cuda_said[0].result, EXL2_OK);
    cuda_expect_history(l.e, l.a, 16, 25);
    end(&l);
}

int main(void)
{
    machine_drop_cache();
    test_old_driver();
    test_devices();
    test_host_context();
    test_cap();
    test_hooks();
    test_two_models();
    test_host_cap(640, 1024);
    test_host_cap(640, 0);
    test_host_cap(65536, 262144); /* page tables of a pass need more than the ring of 2 MiB */
    for (int what = CANCEL; what < MOMENTS; what++) {
        test_borders((moment)what);
    }
    test_lost(true, EXL2__CUDA_ILLEGAL_ADDRESS, false);
    test_lost(true, EXL2__CUDA_ILLEGAL_INSTRUCTION, true);
    test_lost(false, EXL2__CUDA_DEVICE_UNAVAILABLE, false);
    test_lost(false, EXL2__CUDA_UNKNOWN, true);
    test_after_lost();
    test_auto();
    machine_drop_cache();
    fake_reset();
    return check_done();
}
