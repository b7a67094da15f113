/* cuda_convert.c: the converter's stages on a GPU over the fake driver, whose kernels do nothing: opening and not
   opening, the cap of device memory, weights that make room and come back, and the failure of each call: an error with
   a message, nothing left behind; conversions that a GPU cannot do yet. tests/device/convert.c and solve.c compare
   numbers on a GPU. */
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>

static void convert_tables(void *driver, void *nvrtc);
#define EXL2_CONVERT
#define EXL2__CUDA_TABLES(driver, nvrtc) convert_tables(driver, nvrtc)
#include "../../exl2_impl/8_convert/quantizer/convert.h"
#include "../../kernels_src/attend_args.h"
#include "../convert_rig.h"
#include "../device/fake_engine.h"

#define IN 96u
#define COLUMNS 64u
#define ROWS 40u

static void convert_tables(void *driver, void *nvrtc)
{
    machine_tables((exl2__cuda_driver *)driver, (exl2__cuda_nvrtc *)nvrtc);
}

static exl2_engine_desc describe(exl2_backend backend)
{
    return (exl2_engine_desc){ .backend = backend, .kernel_cache = { machine_load, machine_store, NULL } };
}

static exl2__ctx context(void)
{
    exl2__ctx c = { 0 };
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.cpu_path = exl2__cpu_path_best();
    return c;
}

/* ---- the stages ---- */

static float rows[ROWS * IN], moments[IN * IN];
static uint16_t weights[2][COLUMNS * IN];
static float bias[COLUMNS];

static exl2__cpu_part part_of(uint32_t index)
{
    exl2__cpu_part p = { .source = EXL2__CPU_F16, .in = IN, .out = COLUMNS, .strips = COLUMNS / 32 };
    p.strip_bytes = IN * 64;
    p.data = (uint8_t *)weights[index];
    p.bias = index ? bias : NULL;
    return p;
}

static exl2_result solve_all(exl2__ctx *c, exl2__gpu *g, exl2__factor *f, const exl2__cpu_part *p)
{
    static const exl2__group groups[2] = { { 0, 64, 0, 4 }, { 64, 32, 8, 3 } };
    static uint16_t values[COLUMNS * IN];
    double losses[EXL2__LOSSES_WIDTHS * (IN / 32)], energy;
    exl2__solve s;
    EXL2__TRY(exl2__solve_open(c, f, COLUMNS, groups, 2, &s));
    exl2_result r = exl2__solve_load(c, &s, p, COLUMNS - 5);
    r = r < 0 ? r : exl2__losses_run(c, &s, losses);
    r = r < 0 ? r : exl2__solve_run(c, &s);
    r = r < 0 ? r : exl2__solve_energy(c, &s, true, &energy);
    r = r < 0 ? r : exl2__solve_energy(c, &s, false, &energy);
    r = r < 0 ? r : exl2__solve_values(c, &s, values);
    r = r < 0 ? r : exl2__gpu_solve_values(&s.on_gpu, p, NULL);
    exl2__gpu_solve_restore(g, p);
    exl2__solve_close(c, &s);
    return r;
}

/* Every stage once. */
static exl2_result stages(exl2__ctx *c, exl2__gpu *g)
{
    static float out[ROWS * COLUMNS];
    exl2__cpu_part a = part_of(0), b = part_of(1);
    exl2__gram gram = { .gpu = g, .number = EXL2__GPU_INPUTS - 1, .sum = moments };
    exl2__factor f;
    EXL2__TRY(exl2__gram_begin(&gram, IN));
    EXL2__TRY(exl2__gpu_rows(g, rows, ROWS, IN));
    EXL2__TRY(exl2__gram_add(c, &gram, ROWS));
    EXL2__TRY(exl2__gram_finish(&gram));
    EXL2__TRY(exl2__gpu_product(g, &a, out));
    EXL2__TRY(exl2__gpu_act(g, &a, &b, EXL2K_ACT_SILU, 0));
    CHECK_INT(g->in, COLUMNS);
    for (uint32_t i = 0; i < IN; i++) { /* the kernels have left zeros */
        moments[((size_t)(i / 32) * IN + i) * 32 + i % 32] = 1;
    }
    EXL2__TRY(exl2__factor_make(c, g, "test", moments, IN, &f));
    exl2_result r = solve_all(c, g, &f, &b);
    exl2__factor_close(c, &f);
    return r;
}

/* ---- tests ---- */

static void test_failures(void)
{
    uint32_t failed = 0;
    for (uint32_t at = 1;; at++) {
        exl2__ctx c = context();
        exl2__gpu g;
        exl2_engine_desc desc = describe(EXL2_BACKEND_CUDA);
        machine_make();
        fake.fail_at = at;
        fake.fail_code = at % 2 ? EXL2__CUDA_OUT_OF_MEMORY : EXL2__CUDA_LAUNCH_FAILED;
        exl2_result r = exl2__gpu_open(&c, &desc, &g);
        r = r < 0 ? r : stages(&c, &g);
        bool done = fake.failed[0] == 0;
        if (r < 0) {
            failed++;
            CHECK(c.error.code == r && c.error.text[0]);
        } else if (done) {
            CHECK_INT(r, EXL2_OK);
        }
        exl2__gpu_close(&c, &g);
        CHECK_INT(c.host_bytes, 0);
        if (!CHECK_INT(fake_leaks(), 0)) {
            printf("  call %u, %s\n", at, fake.failed);
        }
        machine_end();
        if (done) {
            break;
        }
    }
    printf("%u calls have failed\n", failed);
    CHECK(failed > 150);
}

static void test_absent(void)
{
    exl2__ctx c = context();
    exl2__gpu g;
    exl2_engine_desc desc = describe(EXL2_BACKEND_AUTO);
    machine_make();
    machine.driver = false;
    CHECK_INT(exl2__gpu_open(&c, &desc, &g), EXL2_OK);
    CHECK(!exl2__gpu_is_open(&g));
    exl2__gpu_close(&c, &g);
    desc.backend = EXL2_BACKEND_CUDA;
    CHECK_INT(exl2__gpu_open(&c, &desc, &g), EXL2_ERR_NO_DEVICE);
    exl2__gpu_close(&c, &g);
    desc.backend = EXL2_BACKEND_CPU;
    machine.driver = true;
    CHECK_INT(exl2__gpu_open(&c, &desc, &g), EXL2_OK);
    CHECK(!exl2__gpu_is_open(&g));
    exl2__gpu_close(&c, &g);
    CHECK_INT(fake_leaks(), 0);
    machine_end();
}

/* Under a cap, weights make room for other memory, and are read again; what cannot fit is an error. */
static void test_cap(void)
{
    static float out[ROWS * COLUMNS];
    exl2__ctx c = context();
    exl2__gpu g;
    exl2__gpu_buffer block = { 0, 0 };
    exl2__cpu_part a = part_of(0), b = part_of(1);
    exl2_engine_desc desc = describe(EXL2_BACKEND_CUDA);
    machine_make();
    desc.device_bytes_max = EXL2__GPU_SPARE_BYTES + ((uint64_t)1 << 20);
    CHECK_INT(exl2__gpu_open(&c, &desc, &g), EXL2_OK);
    CHECK_INT(exl2__gpu_rows(&g, rows, ROWS, IN), EXL2_OK);
    CHECK_INT(exl2__gpu_product(&g, &a, out), EXL2_OK);
    CHECK_INT(exl2__gpu_product(&g, &b, out), EXL2_OK);
    CHECK_INT(g.weight_count, 2);
    CHECK_INT(exl2__cuda_device_enter(g.d), EXL2_OK);
    g.weights[0].kept = g.weights[0].memory; /* as while others are in their place */
    CHECK_INT(exl2__gpu_alloc(&g, (uint64_t)2 << 20, &block), EXL2_OK);
    CHECK_INT(g.weight_count, 1);
    g.weights[0].kept = block;
    CHECK_INT(exl2__gpu_alloc(&g, desc.device_bytes_max, &block), EXL2_ERR_BUDGET);
    CHECK_INT(block.bytes, 0);
    exl2__cuda_device_leave(g.d);
    CHECK_INT(exl2__gpu_product(&g, &b, out), EXL2_OK);
    CHECK_INT(g.weight_count, 2);
    CHECK(g.d->peak <= desc.device_bytes_max);
    exl2__gpu_close(&c, &g);
    CHECK_INT(fake_leaks(), 0);
    machine_end();
}

static void on_plan(void *user, const exl2_convert_plan *plan) { *(exl2_convert_plan *)user = *plan; }

/* Converts with all weights in memory or with less. AUTO: a GPU is there, but the CPU converts. */
static exl2_result convert(exl2_backend backend, bool corrected, uint64_t most, exl2_convert_plan *plan,
                           exl2_convert_info *info, exl2__ctx *c)
{
    exl2_convert_desc d = rig_desc(EXL2_GOLDEN_DIR "/models/qwen3", 2, 32);
    d.backend = backend;
    d.bpw = 4;
    d.corrected = corrected;
    d.host_bytes_max = most;
    d.kernel_cache = (exl2_kernel_cache){ machine_load, machine_store, NULL };
    d.on_plan = on_plan;
    d.user = plan;
    d.info = info;
    *c = context();
    c->host_bytes_max = most;
    machine_make();
    exl2_result result = exl2__convert_run(c, &d);
    CHECK_INT(c->host_bytes, 0);
    CHECK_INT(fake_leaks(), 0);
    machine_end();
    remove_folder(out_dir);
    return result;
}

static void test_cpu_only(void)
{
    exl2__ctx c;
    exl2_convert_plan plan = { 0 };
    exl2_convert_info info = { 0 };
    const uint64_t pinned = EXL2__GPU_SLOTS * EXL2__GPU_SLOT_BYTES;
    rig_open(8 * 32, 320);
    info.backend = EXL2_BACKEND_CUDA;
    CHECK_INT(convert(EXL2_BACKEND_AUTO, true, 0, &plan, &info, &c), EXL2_OK);
    CHECK(info.backend == EXL2_BACKEND_CPU && !plan.streamed);
    uint64_t whole = plan.host_bytes;
    CHECK_INT(convert(EXL2_BACKEND_CUDA, true, 0, &plan, &info, &c), EXL2_ERR_UNSUPPORTED);
    CHECK(strstr(c.error.text, "corrected works on the CPU only for now") != NULL);
    CHECK(whole < pinned);
    CHECK_INT(convert(EXL2_BACKEND_CUDA, false, pinned + 6500000, &plan, &info, &c), EXL2_ERR_UNSUPPORTED);
    CHECK(strstr(c.error.text, "host_bytes_max is 38.2 MiB, and a model is read layer by layer on the CPU") != NULL);
    info.backend = EXL2_BACKEND_CUDA;
    CHECK_INT(convert(EXL2_BACKEND_AUTO, false, pinned + 6500000, &plan, &info, &c), EXL2_OK);
    CHECK(info.backend == EXL2_BACKEND_CPU && plan.host_bytes < pinned);
    rig_close();
}

/* Sets of kernels for games have none of the converter's, unless they are asked for. */
static void test_build(void)
{
    static const char *const modules[] = { "factor-", "half-", "losses-", "solve-" };
    static const uint32_t archs[] = { 89 };
    uint32_t others = 0;
    for (uint32_t converter = 0; converter < 2; converter++) {
        exl2__ctx c = context();
        exl2_kernel_build_desc d = { .archs = archs, .arch_count = 1, .converter = converter != 0 };
        uint32_t found = 0;
        machine_drop_cache();
        machine_make();
        d.into.store = machine_store;
        CHECK_INT(exl2__hardware_build(&c, &d), EXL2_OK);
        for (uint32_t i = 0; i < machine.entry_count; i++) {
            for (uint32_t k = 0; k < 4; k++) {
                found += strncmp(machine.entries[i].key, modules[k], strlen(modules[k])) == 0;
            }
        }
        CHECK_INT(found, converter ? 4 : 0);
        others = converter ? others : machine.entry_count;
        CHECK(others > 10);
        CHECK_INT(machine.entry_count - found, others);
        machine_end();
    }
}

int main(void)
{
    test_absent();
    test_cap();
    test_cpu_only();
    test_build();
    test_failures();
    machine_drop_cache();
    return check_done();
}
