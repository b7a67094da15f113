/* load_slices.c: a load stops when its budget is used up, wherever it is. The clock of this engine counts its basic
   blocks (counted_engine.c), two to a nanosecond, and bytes that are read, four to a nanosecond; so the test does not
   depend on the machine. No step may pass its budget by more than a millisecond, with tokenizers of any size, on the
   CPU and on the fake GPU. A load that is given up after any slice, or whose n-th allocation fails, frees everything.
   Allocations are few. */
#define _POSIX_C_SOURCE 200809L
#include "../device/fake_engine.h"
#include "../model_maker.h"
#include "../vocab_maker.h"
#include "rig.h"

#include <unistd.h>

#define BUDGET_US 2000u
#define UNIT_NS 1000000u

int counted_clock(int clock, struct timespec *time);
void counted_slow(uint64_t ns);
void __sanitizer_cov_trace_pc(void);

static uint64_t half_ns;

void __sanitizer_cov_trace_pc(void)
{
    half_ns++;
}

static uint64_t clock_ns(void)
{
    return half_ns / 2;
}

int counted_clock(int clock, struct timespec *time)
{
    (void)clock;
    time->tv_sec = (time_t)(clock_ns() / 1000000000u);
    time->tv_nsec = (long)(clock_ns() % 1000000000u);
    return 0;
}

void counted_slow(uint64_t ns) /* no slower core is emulated here */
{
    (void)ns;
}

/* ---- hooks ---- */

static uint32_t open_files, allocations_left; /* allocations_left: before the one that fails; UINT32_MAX: none */

static void *noted_open(void *user, const char *path, uint64_t *bytes)
{
    void *file = exl2__platform_open(user, path, bytes);
    open_files += file != NULL;
    return file;
}

static int64_t counted_read(void *user, void *file, uint64_t offset, void *out, size_t bytes)
{
    half_ns += bytes / 2;
    return exl2__platform_read(user, file, offset, out, bytes);
}

static void noted_close(void *user, void *file)
{
    open_files--;
    exl2__platform_close(user, file);
}

static void *failing_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    if (allocations_left != UINT32_MAX && allocations_left-- == 0) {
        allocations_left = UINT32_MAX;
        return NULL;
    }
    return exl2__platform_alloc(user, bytes, align, tag);
}

static exl2_engine *open_engine(exl2_backend backend)
{
    exl2_engine *e = NULL;
    exl2_error error;
    exl2_engine_desc d = machine_desc(backend, &error);
    d.files = (exl2_files){ noted_open, exl2__platform_list, counted_read, noted_close, NULL };
    d.allocator = (exl2_allocator){ .alloc_fn = failing_alloc, .free_fn = exl2__platform_free };
    machine_make();
    allocations_left = UINT32_MAX;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    return e;
}

static uint64_t host_bytes(exl2_engine *e)
{
    exl2_engine_stats stats;
    exl2_stats(e, &stats);
    return stats.host_bytes;
}

/* ---- steps ---- */

/* Loads with a budget. Returns the longest step in nanoseconds of the clock. */
static uint64_t longest_step(exl2_backend backend, const exl2_model_desc *d, uint32_t budget_us, uint32_t *steps)
{
    exl2_engine *e = open_engine(backend);
    exl2_model m;
    uint64_t longest = 0;
    CHECK_INT(exl2_model_open(e, d, &m), EXL2_OK);
    for (*steps = 0; exl2_model_state(e, m) == EXL2_PENDING && *steps < 100000; ++*steps) {
        exl2_event event;
        uint64_t begin = clock_ns();
        exl2_step(e, &(exl2_step_desc){ .cpu_us = budget_us });
        longest = clock_ns() - begin > longest ? clock_ns() - begin : longest;
        while (exl2_next_event(e, &event)) {
        }
    }
    CHECK_INT(exl2_model_state(e, m), EXL2_OK);
    exl2_close(e);
    CHECK_INT(open_files, 0);
    return longest;
}

/* most_ns: of a unit */
static void check_steps(exl2_backend backend, const char *what, const exl2_model_desc *d, uint64_t most_ns)
{
    uint32_t steps, slices;
    uint64_t step_ns = longest_step(backend, d, BUDGET_US, &steps), unit_ns = longest_step(backend, d, 1, &slices);
    printf("%s, %s: %u steps, the longest of %.2f ms; %u units, the longest of %.2f ms\n", what,
           backend == EXL2_BACKEND_CPU ? "CPU" : "GPU", steps, (double)step_ns * 1e-6, slices, (double)unit_ns * 1e-6);
    CHECK(step_ns <= BUDGET_US * 1000u + UNIT_NS);
    CHECK(unit_ns <= most_ns);
}

/* ---- giving up ---- */

/* Closes the model after `most` slices. Returns whether the load had ended before. base: host bytes without the model;
   0: not known. */
static bool give_up(exl2_engine *e, const exl2_model_desc *d, uint32_t most, uint64_t base)
{
    exl2_model m;
    CHECK_INT(exl2_model_open(e, d, &m), EXL2_OK);
    for (uint32_t i = 0; i < most && exl2_model_state(e, m) == EXL2_PENDING; i++) {
        exl2_step(e, &(exl2_step_desc){ .cpu_us = 1 });
    }
    bool ended = exl2_model_state(e, m) != EXL2_PENDING;
    exl2_event event;
    while (exl2_next_event(e, &event)) {
    }
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    CHECK(base == 0 || host_bytes(e) == base);
    CHECK_INT(open_files, 0);
    return ended;
}

static void check_giving_up(exl2_backend backend, const exl2_model_desc *d, uint32_t stride)
{
    exl2_engine *e = open_engine(backend);
    CHECK(give_up(e, d, 100000, 0)); /* what a backend keeps for later models is allocated now */
    uint64_t base = host_bytes(e);
    uint32_t most = 0;
    while (!give_up(e, d, most, base)) {
        most += stride;
    }
    CHECK(most > 4 * stride);
    /* A failed load frees what its readers held, before the model is closed. */
    for (uint32_t n = 0; n < 5000; n++) {
        exl2_model m;
        CHECK_INT(exl2_model_open(e, d, &m), EXL2_OK);
        allocations_left = n;
        while (exl2_model_state(e, m) == EXL2_PENDING) {
            exl2_step(e, &(exl2_step_desc){ .cpu_us = 1 });
        }
        bool failed = allocations_left == UINT32_MAX;
        allocations_left = UINT32_MAX;
        CHECK_INT(exl2_model_state(e, m), failed ? EXL2_ERR_MEMORY : EXL2_OK);
        exl2_event event;
        while (exl2_next_event(e, &event)) {
        }
        exl2_model_close(e, m);
        CHECK_INT(host_bytes(e), base);
        CHECK_INT(open_files, 0);
        if (!failed) {
            CHECK(n > 10);
            break;
        }
    }
    exl2_close(e);
}

/* Nothing is allocated for the matrix of an expert: loading a model of 2 layers, each of 4 matrices, a router and 18
   matrices of experts, calls the allocator at most 8 times a layer, and 25 times for the model. */
static void check_allocations(exl2_backend backend, const exl2_model_desc *d)
{
    exl2_engine *e = open_engine(backend);
    exl2_engine_stats before, after;
    exl2_model m;
    CHECK_INT(exl2_model_load(e, d, &m), EXL2_OK); /* what a backend keeps for later models is allocated now */
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    exl2_stats(e, &before);
    CHECK_INT(exl2_model_load(e, d, &m), EXL2_OK);
    exl2_stats(e, &after);
    printf("%s: %u allocations\n", backend == EXL2_BACKEND_CPU ? "CPU" : "GPU",
           (uint32_t)(after.allocations - before.allocations));
    CHECK(after.allocations - before.allocations <= 2 * 8 + 25);
    exl2_close(e);
    CHECK_INT(open_files, 0);
}

/* This engine is one without the converter. */
static void check_no_converter(void)
{
    static const uint32_t archs[] = { 75 };
    exl2_error error = { 0 };
    exl2_kernel_build_desc d = { .archs = archs, .arch_count = 1, .converter = true, .error = &error };
    d.into.store = machine_store;
    machine_make();
    CHECK_INT(exl2_kernels_build(&d), EXL2_ERR_UNSUPPORTED);
    CHECK_TEXT(error.text, "exl2_kernel_build_desc.converter needs a build with EXL2_CONVERT");
}

int main(void)
{
    char dir[600], wide_dir[700], command[8192];
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/exl2-slices-%ld", base && *base ? base : "/tmp", (long)getpid());
    snprintf(command, sizeof command, "mkdir '%s' '%s/model' && ln -s '%s'/* '%s/model' && ln -s '%s'/tok* '%s/model'",
             dir, dir, rig_golden("exl2-mixed"), dir, rig_golden("../tokenizer/lower"), dir);
    CHECK_INT(system(command), 0);
    CHECK(vocab_maker_write(dir, 262144));
    snprintf(wide_dir, sizeof wide_dir, "%s/wide", dir);
    snprintf(command, sizeof command, "mkdir '%s' && ln -s '%s'/tok* '%s'", wide_dir,
             rig_golden("../tokenizer/lower"), wide_dir);
    CHECK_INT(system(command), 0);
    maker_write_wide(wide_dir, 262144);
    char model[700], sparse_dir[1024];
    snprintf(sparse_dir, sizeof sparse_dir, "%s", rig_golden("exl2-qwen3-moe"));
    snprintf(model, sizeof model, "%s/model", dir);
    exl2_model_desc tiny = { .path = model, .grammars = true };
    exl2_model_desc small = { .path = rig_golden("../smollm2"), .text_only = true, .grammars = true };
    exl2_model_desc large = { .path = dir, .text_only = true, .grammars = true };
    exl2_model_desc wide = { .path = wide_dir };
    exl2_model_desc sparse = { .path = sparse_dir };
    for (int gpu = 0; gpu < 2; gpu++) {
        exl2_backend backend = gpu ? EXL2_BACKEND_CUDA : EXL2_BACKEND_CPU;
        check_steps(backend, "tiny", &tiny, UNIT_NS);
        check_steps(backend, "49k tokens", &small, UNIT_NS);
        /* its head has two groups, where a real one may have a hundred: their number must not matter */
        check_steps(backend, "262k outputs", &wide, UNIT_NS / 2);
        check_giving_up(backend, &tiny, 1);
        check_allocations(backend, &sparse);
    }
    check_steps(EXL2_BACKEND_CPU, "262k tokens", &large, UNIT_NS);
    check_giving_up(EXL2_BACKEND_CPU, &small, 17);
    check_no_converter();
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CHECK_INT(system(command), 0);
    machine_drop_cache();
    return check_done();
}
