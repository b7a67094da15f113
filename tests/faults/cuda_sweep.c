/* cuda_sweep.c: makes the n-th call of the driver or of NVRTC fail, for n = 1, 2, 3 ... until a whole use of the engine
   (open, compile, load, generate, fork, cancel, close) succeeds. Each time the engine must return the right code with a
   message, or succeed if the call does not matter; nothing may leak; histories must be readable; and the engine must be
   usable again or, if the device is lost, close without errors.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_rig.h"

/* Every call in the plain build of tests/run.sh --all; else every third one, as each use lasts long. */
#define STRIDE (CHECK_SANITIZED || !getenv("EXL2_TEST_ALL") ? 3u : 1u)

typedef struct sweep_kind {
    const char *what;
    int code, nvrtc;    /* results of the call that fails: of the driver, of NVRTC */
    const char *name;   /* only calls of this name fail; NULL: all */
    uint32_t fault;     /* 1: launches fault, calls do not fail */
    bool cached;        /* kernels come from the cache */
    enum { EAGER, ASLEEP, LATE } when; /* the device works at once, while the engine sleeps, as late as it may */
    uint32_t each;      /* n grows by this number */
} sweep_kind;

/* ---- what a failure should look like ---- */

/* Whether the engine may succeed although this call failed: it gives only information, or releases something. */
static bool ignorable(const char *name)
{
    static const char *const names[] = {
        "cuDeviceGetName", "cuDeviceGetUuid", "cuDeviceGetLuid", "cuDeviceTotalMem", "cuCtxGetStreamPriorityRange",
        "cuCtxPopCurrent", "cuDevicePrimaryCtxRelease", "cuMemFree", "cuMemFreeHost", "cuStreamDestroy",
        "cuEventDestroy", "cuModuleUnload", "cuGraphDestroy", "cuGraphExecDestroy", "cuEventElapsedTime",
        "nvrtcDestroyProgram", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
        /* if one of these matters, a later call fails; and tokens are compared in any case */
        "cuDeviceGetAttribute", "cuCtxPushCurrent", "cuEventQuery", "cuEventSynchronize", "cuStreamSynchronize",
        "cuMemGetInfo",
    };
    for (size_t i = 0; i < EXL2__COUNT(names); i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether the failed call explains the engine's error code. */
static bool explains(const sweep_kind *k, const char *name, exl2_result r, bool opening)
{
    bool sticky = exl2__cuda_sticky(k->code), nvrtc = strncmp(name, "nvrtc", 5) == 0;
    if (nvrtc) {
        return r == EXL2_ERR_COMPILE || r == EXL2_ERR_NO_COMPILER;
    }
    if (opening && r == EXL2_ERR_NO_DEVICE) {
        return strncmp(name, "cuDevice", 8) == 0 || strcmp(name, "cuInit") == 0
               || strcmp(name, "cuDriverGetVersion") == 0;
    }
    if (sticky) {
        return r == EXL2_ERR_DEVICE_LOST;
    }
    if (k->code == EXL2__CUDA_OUT_OF_MEMORY) {
        return r == (strcmp(name, "cuMemHostAlloc") == 0 ? EXL2_ERR_MEMORY : EXL2_ERR_DEVICE_MEMORY);
    }
    bool kernel = strncmp(name, "cuModule", 8) == 0 || strncmp(name, "cuFunc", 6) == 0;
    return r == (kernel ? EXL2_ERR_COMPILE : EXL2_ERR_INTERNAL);
}

static void check_failure(const sweep_kind *k, uint32_t n, exl2_result r, const exl2_error *error, bool opening)
{
    char name[64];
    snprintf(name, sizeof name, "%s", k->fault ? "a kernel" : fake.failed);
    bool good = explains(k, name, r, opening) && error->code == r && strlen(error->text) > 20;
    if (!CHECK(good)) {
        printf("  %s: call %u, %s, failed: %s, error %s: %s\n", k->what, n, name, exl2_result_name(r),
               exl2_result_name(error->code), error->text);
    }
}

/* ---- one use of an engine ---- */

/* Sessions that were opened can still be read, even if the device is lost. */
static void check_histories(const cuda_life *l)
{
    const exl2_session sessions[3] = { l->a, l->b, l->c };
    exl2_session_info info;
    exl2_token ids[256];
    size_t need = 0;
    for (uint32_t i = 0; i < 3; i++) {
        if (sessions[i].id && exl2_session_get(l->e, sessions[i], &info) == EXL2_OK) {
            CHECK_INT(exl2_session_tokens(l->e, sessions[i], ids, EXL2__COUNT(ids), &need), EXL2_OK);
            CHECK_INT(need, info.tokens);
        }
    }
}

/* Uses an engine again after an error. Everything must work, or if the device is lost, fail with DEVICE_LOST. */
static void use_again(cuda_life *l)
{
    exl2_error error;
    check_histories(l);
    if (!fake.lost) {
        if (l->model.id) {
            CHECK_INT(exl2_model_close(l->e, l->model), EXL2_OK);
        }
        cuda_life again = { .e = l->e, .late = l->late };
        bool compiler = strcmp(fake.failed, "nvrtcVersion") != 0; /* not opened a second time */
        if (!CHECK_INT(cuda_use(&again), compiler ? EXL2_OK : EXL2_ERR_NO_COMPILER)) {
            printf("  not usable after %s: %s\n", fake.failed, again.error.text);
        }
        return;
    }
    uint32_t launches = fake.launches;
    if (l->model.id) {
        exl2_job_desc d = cuda_job(l->a, cuda_prompt, 2, 3, &cuda_said[0]);
        CHECK_INT(exl2_generate(l->e, &d), EXL2_ERR_DEVICE_LOST);
        exl2_last_error(l->e, &error);
        CHECK(error.code == EXL2_ERR_DEVICE_LOST && strstr(error.text, "lost") != NULL);
        check_histories(l);
    }
    CHECK_INT(fake.launches, launches);
    CHECK_INT(cuda_load(l->e, &l->model), EXL2_ERR_DEVICE_LOST);
}

/* Uses an engine in which the n-th call fails. Returns false if there were fewer than n calls. */
static bool life(const sweep_kind *k, uint32_t n)
{
    if (!k->cached) {
        machine_drop_cache();
    }
    machine_make();
    fake.run = fake_model_run;
    fake.eager = k->when == EAGER;
    fake.fail_code = fake.fault_code = k->code;
    fake.fail_nvrtc = k->nvrtc;
    fake.fail_name = k->name;
    *(k->fault ? &fake.fault_at : &fake.fail_at) = n;
    cuda_life l = { .e = cuda_open(), .late = k->when == LATE };
    exl2_result r = l.e ? cuda_use(&l) : cuda_error.code;
    bool came = fake.failed[0] || fake.lost;
    CHECK(r >= 0 || came);
    if (came && (r < 0 || !(ignorable(fake.failed) || l.unheard))) {
        check_failure(k, n, r, l.e ? &l.error : &cuda_error, l.e == NULL);
    }
    if (l.e && r < 0) {
        use_again(&l);
    }
    exl2_close(l.e);
    int before = check_failures;
    machine_end();
    if (check_failures != before) {
        printf("  after call %u: %s\n", n, fake.failed);
    }
    return came || fake.failed[0] || fake.lost;
}

/* Loads another model, in two tries, while the n-th call fails: the second one must succeed. Returns false if there
   were fewer than n calls. */
static bool load(const char *folder, uint32_t n)
{
    static const sweep_kind kind = { .what = "calls while loading", .code = 1, .nvrtc = 11 };
    exl2_model_desc d = { .path = folder, .prefill_chunk = 32, .batch_max = 4,
                          .cache.tokens = 16 * EXL2__PAGE_TOKENS };
    exl2_model model;
    exl2_error error = cuda_error;
    machine_make();
    fake.eager = true;
    exl2_engine *e = cuda_open();
    fake.fail_code = kind.code;
    fake.fail_nvrtc = kind.nvrtc;
    fake.fail_at = n;
    exl2_result r = e ? exl2_model_load(e, &d, &model) : cuda_error.code;
    char failed[64];
    snprintf(failed, sizeof failed, "%s", fake.failed);
    CHECK(e != NULL && (r >= 0 || failed[0]));
    if (r < 0) {
        exl2_last_error(e, &error);
        check_failure(&kind, n, r, &error, false);
        CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    } else {
        CHECK(!failed[0] || ignorable(failed));
    }
    exl2_close(e);
    machine_end();
    return failed[0] != 0;
}

/* Models whose matrices and phases are others: GPTQ with act order beside dense ones, experts, norms after blocks. */
static void sweep_loads(void)
{
    static const char *const models[] = { "mixed-kinds", "exl2-qwen3-moe", "gemma2" };
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        char folder[1024];
        uint32_t n = 1;
        snprintf(folder, sizeof folder, "%s", rig_golden(models[i]));
        while (n < 20000 && load(folder, n)) {
            n += STRIDE;
        }
        printf("loading %s: %u calls can fail\n", models[i], n - 1);
        CHECK(n > 20 && n < 20000);
    }
}

static void sweep(const sweep_kind *k)
{
    uint32_t n = 1;
    while (n < 20000 && life(k, n)) {
        n += k->each * STRIDE;
    }
    printf("%s: %u can fail\n", k->what, n - 1);
    CHECK(n > 2 && n < 20000);
}

int main(void)
{
    static const sweep_kind kinds[] = {
        { "calls", 1, 11, NULL, 0, false, EAGER, 1 },
        { "calls that end the context", EXL2__CUDA_ILLEGAL_ADDRESS, 11, NULL, 0, true, EAGER, 1 },
        { "allocations", EXL2__CUDA_OUT_OF_MEMORY, 1, "cuMemAlloc", 0, true, EAGER, 1 },
        { "pinned allocations", EXL2__CUDA_OUT_OF_MEMORY, 1, "cuMemHostAlloc", 0, true, EAGER, 1 },
        { "kernels that fault", EXL2__CUDA_LAUNCH_FAILED, 1, NULL, 1, true, EAGER, 1 },
        { "calls of a device that works while the host sleeps", 1, 11, NULL, 0, true, ASLEEP, 3 },
        { "kernels that fault while the host sleeps", EXL2__CUDA_ILLEGAL_ADDRESS, 1, NULL, 1, true, ASLEEP, 1 },
        { "calls of a late device", 1, 11, NULL, 0, true, LATE, 7 },
        { "kernels that fault late", EXL2__CUDA_ILLEGAL_ADDRESS, 1, NULL, 1, true, LATE, 3 },
    };
    machine_drop_cache();
    for (size_t i = 0; i < EXL2__COUNT(kinds); i++) {
        sweep(&kinds[i]);
    }
    sweep_loads();
    machine_drop_cache();
    fake_reset();
    return check_done();
}
