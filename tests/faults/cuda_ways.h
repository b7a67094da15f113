/* cuda_ways.h: what the tests of cut models share: a model is used once without a failure in each way that the fake GPU
   can work, then again and again while one call or allocation after the other fails.
   takes: cuda_rig.h; a function that uses a model once.
   gives: cuda_way_count_memory, cuda_way_host_bytes, cuda_way, cuda_way_set, cuda_way_fail, cuda_way_failed,
          cuda_way_end, cuda_ways_good, cuda_ways_sweep. */
#ifndef CUDA_WAYS_H
#define CUDA_WAYS_H

#include "cuda_rig.h"

/* A part of the distance between calls that fail: shorter in the plain build of tests/run.sh --all. */
#define CUDA_WAY_STRIDE (CHECK_SANITIZED || !getenv("EXL2_TEST_ALL") ? 9u : 3u)

/* ---- host memory that is counted ---- */

static uint32_t cuda_way_alloc_fails_at; /* the n-th allocation from now fails; 0: none */
static bool cuda_way_alloc_failed;
static uint64_t cuda_way_host_bytes;

static void *cuda_way_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    bool fails = cuda_way_alloc_fails_at == 1;
    cuda_way_alloc_failed = cuda_way_alloc_failed || fails;
    cuda_way_alloc_fails_at -= cuda_way_alloc_fails_at > 0;
    void *memory = fails ? NULL : exl2__platform_alloc(user, bytes, align, tag);
    cuda_way_host_bytes += memory ? bytes : 0;
    return memory;
}

static void cuda_way_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    cuda_way_host_bytes -= memory ? bytes : 0;
    exl2__platform_free(user, memory, bytes, tag);
}

static inline void cuda_way_count_memory(exl2_engine_desc *d)
{
    d->allocator.alloc_fn = cuda_way_alloc;
    d->allocator.free_fn = cuda_way_free;
}

/* ---- ways ---- */

typedef struct cuda_way {
    const char *what, *name; /* name: only calls of this name fail; NULL: all */
    int code, nvrtc;         /* results of driver and NVRTC calls that fail */
    bool eager, late;
    bool host;               /* allocations of host memory fail, not calls: of an engine with cuda_way_count_memory */
    uint32_t each;           /* distance between the calls that fail */
} cuda_way;

/* Uses an engine in which the n-th call or allocation after opening fails; 0: none. Returns whether one failed. */
typedef bool cuda_way_life(const cuda_way *w, uint32_t n);

static inline void cuda_way_set(const cuda_way *w)
{
    fake.eager = w->eager;
    fake.fail_code = w->code;
    fake.fail_nvrtc = w->nvrtc;
    fake.fail_name = w->name;
}

/* From now on call or allocation n fails; 0: none. */
static inline void cuda_way_fail(const cuda_way *w, uint32_t n)
{
    cuda_way_alloc_failed = false;
    *(w->host ? &cuda_way_alloc_fails_at : &fake.fail_at) = n;
}

/* Whether one failed. From now on none does. */
static inline bool cuda_way_failed(void)
{
    fake.fail_at = cuda_way_alloc_fails_at = 0;
    return fake.failed[0] || cuda_way_alloc_failed;
}

/* After a use with the result r, in which call n failed or none: the error must say what failed, and the engine must
   work again. Closes the engine. */
static inline void cuda_way_end(const cuda_way *w, uint32_t n, cuda_life *l, exl2_result r, bool failed)
{
    CHECK(r >= 0 || (failed && l->error.code == r && strlen(l->error.text) > 20));
    if (r < 0 && l->model.id) {
        exl2_model_close(l->e, l->model); /* STALE where the use had closed it, or had loaded none */
    }
    cuda_life again = { .e = l->e, .late = w->late };
    if (r < 0 && !fake.lost && !CHECK_INT(cuda_use(&again), EXL2_OK)) {
        printf("  not usable after %s: %s\n", fake.failed, again.error.text);
    }
    exl2_close(l->e);
    CHECK_INT(cuda_way_host_bytes, 0);
    int before = check_failures;
    machine_end();
    if (check_failures != before) {
        printf("  %s, after call %u: %s\n", w->what, n, fake.failed);
    }
}

static inline void cuda_ways_good(cuda_way_life *life)
{
    static const cuda_way ways[] = { { .what = "at once", .eager = true },
                                     { .what = "while the host sleeps" },
                                     { .what = "late", .late = true } };
    for (size_t i = 0; i < EXL2__COUNT(ways); i++) {
        CHECK(!life(&ways[i], 0));
    }
}

static inline void cuda_ways_sweep(cuda_way_life *life, const cuda_way *ways, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t n = 1;
        while (n < 20000 && life(&ways[i], n)) {
            n += ways[i].each;
        }
        printf("%s: %u can fail\n", ways[i].what, n - 1);
        CHECK(n > 2 && n < 20000);
    }
}

#endif
