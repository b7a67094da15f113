/* cuda_device.c: opening and losing devices, memory under its cap, copies through the pinned ring, and the failure of
   each call of the driver, compiler, allocator or hook: the right code, a message, nothing left behind. */
#include "../device/fake_rig.h"

/* ---- contexts ---- */

/* The application's current context is the same before and after every call. A context that was passed in is not
   destroyed. */
static void test_contexts(void)
{
    exl2__cuda_device d;
    rig_make();
    rig_three_devices();
    void *host = fake_host_context(1);
    exl2_device_desc desc = { .pick = EXL2_PICK_CONTEXT, .cuda_context = host };
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(fake.context_depth, 1);
    CHECK_INT(d.info.index, 2);
    CHECK(d.retained);
    exl2__cuda_device_close(&d);
    rig.settings.device = &desc;
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(d.info.index, 1);
    CHECK(!d.retained);
    CHECK_INT(fake.devices[1].retained, 0);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK);
    exl2__cuda_device_leave(&d);
    CHECK_INT(fake.context_depth, 1);
    exl2__cuda_device_close(&d);
    fake_host_context_end(host);
    desc.cuda_context = NULL;
    CHECK_INT(rig_open(&d, true), EXL2_ERR_ARG);
    rig_end();
}

static void test_shared_bytes(void)
{
    exl2__cuda_device d;
    exl2_device_desc desc = { 0 };
    rig_make();
    rig.settings.device = &desc;
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(d.shared_bytes, 101376);
    exl2__cuda_device_close(&d);
    desc.shared_bytes_max = 49152;
    desc.stream_priority = -9;
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(d.shared_bytes, 49152);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
}

/* ---- memory ---- */

static void test_memory(void)
{
    exl2__cuda_device d;
    uint64_t a, b;
    rig_make();
    rig.settings.device_bytes_max = 1 << 20;
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_alloc(&d, 0, EXL2_MEM_KV, &a), EXL2_OK);
    CHECK_INT(a, 0);
    CHECK_INT(exl2__cuda_device_alloc(&d, 1 << 19, EXL2_MEM_KV, &a), EXL2_OK);
    uint32_t calls = fake.calls;
    CHECK_INT(exl2__cuda_device_alloc(&d, (1 << 19) + 1, EXL2_MEM_KV, &b), EXL2_ERR_BUDGET);
    CHECK_INT(fake.calls, calls); /* the cap is checked before the driver is called */
    CHECK_INT(b, 0);
    CHECK_TEXT(rig.files.c.error.text,
               "524289 bytes of GPU memory would exceed device_bytes_max (1048576 bytes, 524288 in use)");
    CHECK_INT(exl2__cuda_device_alloc(&d, 1 << 19, EXL2_MEM_KV, &b), EXL2_OK);
    exl2__cuda_device_free(&d, a, 1 << 19, EXL2_MEM_KV);
    CHECK_INT(d.bytes, 1 << 19);
    CHECK_INT(d.peak, 1 << 20);
    CHECK_INT(fake.allocated, 1 << 19);
    exl2__cuda_device_free(&d, b, 1 << 19, EXL2_MEM_KV);
    d.bytes_max = 0;
    CHECK_INT(exl2__cuda_device_alloc(&d, (uint64_t)2 << 30, EXL2_MEM_KV, &b), EXL2_ERR_DEVICE_MEMORY);
    CHECK_TEXT(rig.files.c.error.text,
               "GPU 0 (FakeForce 4090) could not allocate 2147483648 bytes; this engine uses 0 bytes of its memory");
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
}

/* The dry run predicts exactly the bytes of the real run. */
static void test_arena(void)
{
    exl2__cuda_device d;
    rig_make();
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    exl2__cuda_arena dry = { 0 }, arena;
    CHECK_INT(exl2__cuda_arena_take(&dry, 1), 0);
    CHECK_INT(exl2__cuda_arena_take(&dry, 257), 0);
    CHECK_INT(dry.used, 768);
    CHECK_INT(exl2__cuda_arena_open(&d, &arena, dry.used, EXL2_MEM_SCRATCH), EXL2_OK);
    CHECK_INT(exl2__cuda_arena_take(&arena, 1) % EXL2__CUDA_ALIGN, 0);
    CHECK_INT(exl2__cuda_arena_take(&arena, 257), (long long)arena.base + 256);
    CHECK_INT(exl2__cuda_arena_take(&arena, 1), 0);
    CHECK_INT(exl2__cuda_arena_take(&dry, UINT64_MAX), 0);
    CHECK_INT(dry.used, (long long)(UINT64_MAX / 2));
    exl2__cuda_arena_close(&d, &arena);
    CHECK_INT(d.bytes, 0);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
}

typedef struct hook_state {
    uint64_t bytes, refuse_at, asked;
    exl2__cuda_driver driver;
} hook_state;

static uint64_t hook_alloc(void *user, uint32_t device, uint64_t bytes, exl2_mem tag)
{
    hook_state *h = user;
    uint64_t address = 0;
    CHECK(device == 0 && tag == EXL2_MEM_WEIGHTS);
    if (++h->asked == h->refuse_at || h->driver.memory_alloc(&address, (size_t)bytes) != 0) {
        return 0;
    }
    h->bytes += bytes;
    return address;
}

static void hook_free(void *user, uint32_t device, uint64_t address, uint64_t bytes, exl2_mem tag)
{
    hook_state *h = user;
    CHECK(device == 0 && tag == EXL2_MEM_WEIGHTS);
    h->bytes -= bytes;
    h->driver.memory_free(address);
}

static void test_hooks(void)
{
    exl2__cuda_device d;
    uint64_t a, b;
    rig_make();
    hook_state h = { .refuse_at = 2, .driver = fake_driver() };
    rig.files.c.allocator.device_alloc_fn = hook_alloc;
    rig.files.c.allocator.device_free_fn = hook_free;
    rig.files.c.allocator.user = &h;
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_alloc(&d, 1000, EXL2_MEM_WEIGHTS, &a), EXL2_OK);
    CHECK_INT(h.bytes, 1000);
    CHECK_INT(exl2__cuda_device_alloc(&d, 1000, EXL2_MEM_WEIGHTS, &b), EXL2_ERR_DEVICE_MEMORY);
    CHECK_TEXT(rig.files.c.error.text, "the application's device allocator returned no memory for 1000 bytes");
    CHECK_INT(d.bytes, 1000);
    exl2__cuda_device_free(&d, a, 1000, EXL2_MEM_WEIGHTS);
    CHECK_INT(h.bytes, 0);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
}

/* ---- work ---- */

static exl2__cuda_grid grid_of(uint32_t shared_bytes, bool programmatic)
{
    return (exl2__cuda_grid){
        .x = 4, .y = 1, .threads = 128, .shared_bytes = shared_bytes, .programmatic = programmatic
    };
}

/* Copies bytes through the ring in more pieces than it has slots, moves them with a kernel, and copies them back. */
static exl2_result work(exl2__cuda_device *d, exl2__cuda_ring *ring, exl2__cuda_arena *arena, void **back)
{
    void *slot;
    uint64_t from, to;
    EXL2__TRY(exl2__cuda_device_kernels(d, NULL));
    EXL2__TRY(exl2__cuda_arena_open(d, arena, 8192, EXL2_MEM_WEIGHTS));
    from = exl2__cuda_arena_take(arena, 4096);
    to = exl2__cuda_arena_take(arena, 4096);
    EXL2__TRY(exl2__cuda_ring_open(d, ring, 3, 500, d->stream));
    EXL2__TRY(exl2__cuda_pin(d, 4096, back));
    for (uint32_t i = 0; i < 8; i++) {
        exl2_result taken = exl2__cuda_ring_take(d, ring, 512, i % 2 == 0, &slot);
        while (taken == EXL2_PENDING) {
            CHECK(!slot);
            taken = exl2__cuda_ring_take(d, ring, 512, false, &slot);
        }
        EXL2__TRY(taken);
        memset(slot, (int)i + 1, 512);
        EXL2__TRY(exl2__cuda_ring_copy(d, ring, from + i * 512, 0, 256));
        EXL2__TRY(exl2__cuda_ring_copy(d, ring, from + i * 512 + 256, 256, 256));
        EXL2__TRY(exl2__cuda_ring_next(d, ring));
    }
    fake_two_args move = { to, from, 4096 };
    fake_one_args fill = { to + 4092, 0x77777777, 1 };
    EXL2__TRY(exl2__cuda_device_launch(d, EXL2__KERNEL_exl2k_two, grid_of(60000, false), &move));
    EXL2__TRY(exl2__cuda_device_launch(d, EXL2__KERNEL_exl2k_one, grid_of(0, true), &fill));
    EXL2__TRY(exl2__cuda_device_check(d, d->driver.copy_down(*back, to, 4096, d->stream), "copying results"));
    return exl2__cuda_device_check(d, d->driver.stream_wait(d->stream), "waiting");
}

/* Opens, works and closes; returns the first error. Everything is closed, whatever failed. */
static exl2_result life(void)
{
    exl2__cuda_device d;
    exl2__cuda_ring ring = { 0 };
    exl2__cuda_arena arena = { 0 };
    void *back = NULL;
    exl2_result result = rig_open(&d, true);
    if (result == EXL2_OK) {
        result = exl2__cuda_device_enter(&d);
        bool entered = result == EXL2_OK;
        result = entered ? work(&d, &ring, &arena, &back) : result;
        bool right = true;
        for (uint32_t i = 0; result == EXL2_OK && i < 4092; i++) {
            right &= ((uint8_t *)back)[i] == i / 512 + 1;
        }
        CHECK(right && (result < 0 || ((uint8_t *)back)[4095] == 0x77));
        if (d.lost && entered) {
            CHECK_INT(exl2__cuda_device_enter(&d), EXL2_ERR_DEVICE_LOST);
        }
        exl2__cuda_ring_close(&d, &ring);
        exl2__cuda_unpin(&d, back, 4096);
        exl2__cuda_arena_close(&d, &arena);
        CHECK_INT(d.bytes, 0);
        if (entered) {
            exl2__cuda_device_leave(&d);
        }
    }
    exl2__cuda_device_close(&d);
    return result;
}

/* An asynchronous copy must read what the slot held when it was sent: the ring waits before it hands the slot out
   again. */
static void test_work(void)
{
    rig_drop_cache();
    rig_make();
    CHECK_INT(life(), EXL2_OK);
    CHECK_INT(fake.launches, 2);
    rig_end();
}

/* Small copies share a slot without waiting, until one does not fit. Closing the ring waits for them, too. */
static void test_ring_shared(void)
{
    exl2__cuda_device d;
    exl2__cuda_ring ring;
    uint64_t to;
    void *slots[4];
    static const uint64_t at[4] = { 0, 256, 1024, 1280 }; /* 512 bytes do not fit after the first two */
    rig_make();
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_alloc(&d, 4096, EXL2_MEM_SCRATCH, &to), EXL2_OK);
    CHECK_INT(exl2__cuda_ring_open(&d, &ring, 2, 1024, d.upload), EXL2_OK);
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t bytes = i == 2 ? 200 : 100 + i;
        CHECK_INT(exl2__cuda_ring_take(&d, &ring, i == 2 ? 1000 : bytes, false, &slots[i]), EXL2_OK);
        CHECK_INT((uint8_t *)slots[i] - ring.memory, at[i]);
        memset(slots[i], (int)i + 1, bytes);
        CHECK_INT(exl2__cuda_ring_send(&d, &ring, to + i * 1024, bytes), EXL2_OK);
    }
    CHECK_INT(*(uint8_t *)fake_memory(to, 1), 0xA5); /* nothing has waited yet */
    exl2__cuda_ring_close(&d, &ring);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(*(uint8_t *)fake_memory(to + i * 1024 + 99, 1), i + 1);
    }
    exl2__cuda_device_free(&d, to, 4096, EXL2_MEM_SCRATCH);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
}

/* All slots can be filled without waiting; then the first must be free again. */
static void test_ring(void)
{
    exl2__cuda_device d;
    exl2__cuda_ring ring;
    uint64_t to;
    void *slots[4], *slot;
    rig_make();
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_alloc(&d, 4096, EXL2_MEM_SCRATCH, &to), EXL2_OK);
    uint64_t before = rig.files.c.host_bytes;
    CHECK_INT(exl2__cuda_ring_open(&d, &ring, 4, 1000, d.upload), EXL2_OK);
    CHECK_INT(rig.files.c.host_bytes, (long long)before + 4096);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(exl2__cuda_ring_take(&d, &ring, 1024, false, &slots[i]), EXL2_OK);
        CHECK_INT(exl2__cuda_ring_take(&d, &ring, 1024, false, &slot), EXL2_OK);
        CHECK(slot == slots[i] && (i == 0 || (uint8_t *)slot == (uint8_t *)slots[i - 1] + 1024));
        memset(slot, (int)i, 1024);
        CHECK_INT(exl2__cuda_ring_copy(&d, &ring, to + i * 1024, 0, 1024), EXL2_OK);
        CHECK_INT(exl2__cuda_ring_next(&d, &ring), EXL2_OK);
    }
    CHECK_INT(exl2__cuda_ring_take(&d, &ring, 1024, false, &slot), EXL2_PENDING);
    CHECK_INT(exl2__cuda_ring_take(&d, &ring, 1024, true, &slot), EXL2_OK);
    CHECK(slot == slots[0]);
    CHECK_INT(*(uint8_t *)fake_memory(to, 1), 0);
    CHECK_INT(*(uint8_t *)fake_memory(to + 1024, 1), 0xA5); /* nothing has waited for the second copy yet */
    exl2__cuda_ring_close(&d, &ring);
    CHECK_INT(*(uint8_t *)fake_memory(to + 3072, 1), 3);
    exl2__cuda_device_free(&d, to, 4096, EXL2_MEM_SCRATCH);
    rig.files.c.host_bytes_max = 8192;
    CHECK_INT(exl2__cuda_ring_open(&d, &ring, 4, 4096, d.upload), EXL2_ERR_BUDGET);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
}

/* Launches are captured once and replayed with the arguments of the capture. */
static void test_graph(void)
{
    exl2__cuda_device d;
    exl2__cuda_graph *graph;
    exl2__cuda_graph_exec *exec;
    uint64_t a;
    uint32_t back = 0;
    rig_make();
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK);
    CHECK_INT(exl2__cuda_device_alloc(&d, 64, EXL2_MEM_SCRATCH, &a), EXL2_OK);
    fake_one_args fill = { a, 5, 16 };
    CHECK_INT(d.driver.capture_begin(d.stream, EXL2__CUDA_CAPTURE_RELAXED), 0);
    CHECK_INT(exl2__cuda_device_launch(&d, EXL2__KERNEL_exl2k_one, grid_of(0, true), &fill), EXL2_OK);
    CHECK_INT(d.driver.capture_end(d.stream, &graph), 0);
    fill.value = 6;
    CHECK_INT(d.driver.graph_make(&exec, graph, 0), 0);
    CHECK_INT(d.driver.graph_free(graph), 0);
    CHECK_INT(d.driver.stream_wait(d.stream), 0);
    CHECK_INT(*(uint32_t *)fake_memory(a, 4), 0xA5A5A5A5);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(d.driver.fill32(a, 0, 16, d.stream), 0);
        CHECK_INT(d.driver.graph_launch(exec, d.stream), 0);
        CHECK_INT(d.driver.copy_down(&back, a + 60, 4, d.stream), 0);
        CHECK_INT(back, 5);
    }
    CHECK_INT(d.driver.graph_exec_free(exec), 0);
    exl2__cuda_device_free(&d, a, 64, EXL2_MEM_SCRATCH);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
}

/* ---- everything fails once ---- */

static void sweep(int code, exl2_result wanted, exl2_result wanted_too, bool cached)
{
    uint32_t n = 1;
    for (bool failed = true; failed; n++) {
        if (!cached) {
            rig_drop_cache();
        }
        rig_make();
        fake.fail_at = n;
        fake.fail_code = code;
        fake.fail_nvrtc = 11;
        exl2_result result = life();
        failed = fake.failed[0] != 0;
        bool compiler = strncmp(fake.failed, "nvrtc", 5) == 0;
        bool fits = result == EXL2_OK || result == wanted || result == wanted_too || result == EXL2_ERR_NO_DEVICE
                    || (compiler && (result == EXL2_ERR_COMPILE || result == EXL2_ERR_NO_COMPILER));
        bool told = result == EXL2_OK || (strlen(rig.files.c.error.text) > 20 && rig.files.c.error.code == result);
        if (!CHECK(fits && told) || fake_leaks()) {
            printf("  call %u, %s with %d: result %d, \"%s\"\n", n, fake.failed, code, (int)result,
                   rig.files.c.error.text);
        }
        rig_end();
    }
    CHECK(n > (cached ? 60 : 70)); /* at least this many calls from open to close */
}

/* Fails one allocation; the user pointer counts down to it. */
static void *refuse_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    uint32_t *left = user;
    return *left && --*left == 0 ? NULL : exl2__platform_alloc(NULL, bytes, align, tag);
}

static void sweep_host(void)
{
    exl2_result result = EXL2_ERR_MEMORY;
    for (uint32_t n = 1; result != EXL2_OK; n++) {
        uint32_t left = n;
        rig_drop_cache();
        rig_make();
        rig.files.c.allocator.alloc_fn = refuse_alloc;
        rig.files.c.allocator.user = &left;
        result = life();
        CHECK(result == EXL2_OK || result == EXL2_ERR_MEMORY);
        rig_end();
    }
    rig_make();
    rig.files.c.host_bytes_max = 4096; /* less than the compile jobs of the modules need */
    CHECK_INT(life(), EXL2_ERR_BUDGET);
    rig_end();
}

/* A kernel that faults: the message names it, freeing still works, and the device can be opened again once the context
   has been destroyed. */
static void test_lost(void)
{
    exl2__cuda_device d;
    rig_make();
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK);
    fake.fail_at = 1;
    fake.fail_code = EXL2__CUDA_ILLEGAL_ADDRESS;
    fake_one_args fill = { 0, 0, 0 };
    CHECK_INT(exl2__cuda_device_launch(&d, EXL2__KERNEL_exl2k_one, grid_of(0, false), &fill), EXL2_ERR_DEVICE_LOST);
    CHECK_TEXT(rig.files.c.error.text, "GPU 0 (FakeForce 4090) was lost while launching exl2k_one (CUDA_ERROR_700): "
                                       "close the engine; the GPU may be usable again only in a new process");
    CHECK_INT(rig.files.c.error.native, 700);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_ERR_DEVICE_LOST);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    fake.lost = 0;
    CHECK_INT(life(), EXL2_OK);
    rig_end();
}

int main(void)
{
    test_contexts();
    test_shared_bytes();
    test_memory();
    test_arena();
    test_hooks();
    test_work();
    test_ring_shared();
    test_ring();
    test_graph();
    test_lost();
    sweep(EXL2__CUDA_OUT_OF_MEMORY, EXL2_ERR_DEVICE_MEMORY, EXL2_ERR_MEMORY, false);
    sweep(EXL2__CUDA_LAUNCH_FAILED, EXL2_ERR_DEVICE_LOST, EXL2_ERR_DEVICE_LOST, false);
    sweep(EXL2__CUDA_NOT_PERMITTED, EXL2_ERR_INTERNAL, EXL2_ERR_COMPILE, false);
    sweep_host();
    rig_make();
    CHECK_INT(life(), EXL2_OK); /* fills the cache */
    rig_end();
    sweep(EXL2__CUDA_LAUNCH_FAILED, EXL2_ERR_DEVICE_LOST, EXL2_ERR_DEVICE_LOST, true);
    rig_drop_cache();
    fake_reset();
    return check_done();
}
