/* cuda_convert.c: the converter's stages on a GPU over the fake driver, whose kernels do nothing: opening and not
   opening, the caps of host and device memory, weights that make room and come back, and the failure of each call: an
   error with a message, nothing left behind. tests/device/convert.c and solve.c compare numbers on a GPU. */
#define _POSIX_C_SOURCE 200809L
#include "private/convert.h"
#include "../../kernels_src/attend_args.h"
#include "../convert_rig.h"
#include "../device/fake_engine.h"
#include "../device/gpu_product.h"

#define IN 96u
#define COLUMNS 64u
#define ROWS 40u

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

static exl2_result solve_all(exl2__ctx *c, exl2__gpu *g, exl2__factor *f, exl2__correct *k, const exl2__cpu_part *p)
{
    static const exl2__group groups[2] = { { 0, 64, 0, 4 }, { 64, 32, 8, 3 } };
    static uint16_t values[COLUMNS * IN];
    double losses[EXL2__LOSSES_WIDTHS * (IN / 32)], energy;
    exl2__solve s;
    EXL2__TRY(exl2__solve_open(c, f, COLUMNS, groups, 2, &s));
    exl2_result r = exl2__solve_load(c, &s, p, COLUMNS - 5);
    r = r < 0 ? r : exl2__correct_finish(k, f);
    r = r < 0 ? r : exl2__correct_weights(c, k, &s);
    r = r < 0 ? r : exl2__losses_run(c, &s, losses);
    r = r < 0 ? r : exl2__solve_run(c, &s);
    r = r < 0 ? r : exl2__solve_energy(c, &s, true, &energy);
    r = r < 0 ? r : exl2__solve_energy(c, &s, false, &energy);
    r = r < 0 ? r : exl2__solve_values(c, &s, values);
    r = r < 0 ? r : exl2__gpu_solve_values(&s.on_gpu, p, NULL);
    exl2__gpu_solve_swap(g, p);
    exl2__gpu_solve_swap(g, p);
    exl2__gpu_solve_restore(g, p);
    exl2__solve_close(c, &s);
    return r;
}

static void ignore(void *user, uint32_t row, const float *logits)
{
    (void)user;
    (void)row;
    (void)logits;
}

/* Passes through a model: one sequence from its embeddings to its logits, states that come from the host and from the
   device, divergences. */
static exl2_result passes(exl2__runner *r, exl2__gpu *g)
{
    static const exl2_token ids[32] = { 5, 3, 8 };
    static float states[4 * 32 * 64];
    exl2__measure m = { .r = r, .ids = ids, .rows = 1, .length = 32, .probes = 1, .probe_length = 32, .gpu = g };
    double kls[32];
    CHECK(r->plan.shape.hidden <= 64);
    EXL2__TRY(exl2__runner_use(r, g, 0));
    g->planned[EXL2__GPU_STATES] = 32 * 64 * sizeof(float);
    EXL2__TRY(exl2__measure_open(&m));
    CHECK(m.before.gpu && m.states.gpu && exl2__runner_fits(r, 0));
    m.states.host = states;
    EXL2__TRY(exl2__measure_begin(&m));
    EXL2__TRY(exl2__measure_probes(&m));
    EXL2__TRY(exl2__measure_logits_gpu(&m, &m.before, kls));
    exl2__runner_states host = { states, 0 };
    EXL2__TRY(exl2__runner_states_sync(r, &m.states, 32, true));
    EXL2__TRY(exl2__measure_probe_layer(&m, 1, host, host, 4));
    EXL2__TRY(exl2__runner_begin(r, ids, 32));
    EXL2__TRY(exl2__runner_get(r, &m.states, 0, true));
    EXL2__TRY(exl2__runner_until(r, 0, EXL2__RUNNER_DOWN));
    CHECK_INT(g->in, r->load.config.inter);
    return exl2__runner_logits(r, ignore, NULL);
}

/* A layer with experts: its phases, the moments of its experts. */
static exl2_result experts(exl2__ctx *c, exl2__gpu *g, exl2__runner *r)
{
    static const exl2_token ids[32] = { 5, 3, 8 };
    exl2__measure m = { .r = r, .ids = ids, .rows = 1, .length = 32, .probes = 1, .probe_length = 32, .gpu = g };
    exl2__arena dry = { 0 }, memory;
    EXL2__TRY(exl2__runner_use(r, g, 0));
    exl2__measure_layout(&m, &dry);
    EXL2__TRY(exl2__arena_open(c, &memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__measure_layout(&m, &memory);
    exl2_result result = exl2__measure_open(&m);
    result = result < 0 ? result : exl2__measure_begin(&m);
    result = result < 0 ? result : exl2__measure_layer(&m, 0);
    uint32_t count = r->plan.shape.experts.count, active = r->plan.shape.experts.active;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < count; i++) {
        tokens += m.grams[EXL2__RUNNER_EXPERTS + i].tokens;
        CHECK(m.grams[EXL2__RUNNER_EXPERTS + i].tokens <= 32); /* a row chooses an expert once */
    }
    CHECK(exl2__runner_fits(r, 0) && (result < 0 || tokens == 32 * active));
    exl2__arena_close(c, &memory);
    return result;
}

/* Every stage once. */
static exl2_result stages(exl2__ctx *c, exl2__gpu *g)
{
    static float out[ROWS * COLUMNS];
    exl2k_u64 active;
    exl2__runner r;
    exl2__cpu_part a = part_of(0), b = part_of(1);
    exl2__gram gram = { .gpu = g, .number = EXL2__GPU_INPUTS - 1, .sum = moments };
    exl2__factor f;
    exl2__correct k = { .gpu = g };
    EXL2__TRY(exl2__correct_begin(&k, &gram, IN));
    EXL2__TRY(exl2__gpu_rows(g, rows, ROWS, IN));
    EXL2__TRY(exl2__gpu_correct_keep(g));
    EXL2__TRY(exl2__correct_add(c, &k, ROWS));
    EXL2__TRY(exl2__gram_finish(c, &gram));
    EXL2__TRY(gpu_product(g, &a, out));
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    EXL2__TRY(exl2__cuda_device_leave_with(g->d, exl2__gpu_act(g, &a, &b, EXL2K_ACT_SILU, 0, &active)));
    for (uint32_t i = 0; i < IN; i++) { /* the kernels have left zeros */
        moments[((size_t)(i / 32) * IN + i) * 32 + i % 32] = 1;
    }
    EXL2__TRY(exl2__factor_make(c, g, "test", moments, IN, &f));
    exl2_result result = solve_all(c, g, &f, &k, &b);
    exl2__factor_close(c, &f);
    EXL2__TRY(result);
    EXL2__TRY(exl2__runner_open(c, EXL2_GOLDEN_DIR "/models/qwen3", 32, NULL, &r));
    result = passes(&r, g);
    exl2__runner_close(&r);
    EXL2__TRY(result);
    EXL2__TRY(exl2__runner_open(c, EXL2_GOLDEN_DIR "/models/exl2-qwen3-moe", 32, NULL, &r));
    result = experts(c, g, &r);
    exl2__runner_close(&r);
    return result;
}

/* ---- tests ---- */

/* Each call of the driver fails once, with tests/run.sh --all; else every third one. */
static void test_failures(void)
{
    uint32_t failed = 0, each = getenv("EXL2_TEST_ALL") ? 1 : 3; /* odd, for both codes */
    for (uint32_t at = 1;; at += each) {
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
    CHECK(failed > 250 / each);
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
    CHECK_INT(gpu_product(&g, &a, out), EXL2_OK);
    CHECK_INT(gpu_product(&g, &b, out), EXL2_OK);
    CHECK_INT(g.weight_count, 2);
    CHECK_INT(exl2__cuda_device_enter(g.d), EXL2_OK);
    g.weights[0].kept = g.weights[0].memory; /* as while others are in their place */
    CHECK_INT(exl2__gpu_alloc(&g, (uint64_t)2 << 20, &block), EXL2_OK);
    CHECK_INT(g.weight_count, 1);
    g.weights[0].kept = block;
    CHECK_INT(exl2__gpu_alloc(&g, desc.device_bytes_max, &block), EXL2_ERR_BUDGET);
    CHECK_INT(block.bytes, 0);
    exl2__cuda_device_leave(g.d);
    CHECK_INT(gpu_product(&g, &b, out), EXL2_OK);
    CHECK_INT(g.weight_count, 2);
    CHECK(g.d->peak <= desc.device_bytes_max);
    exl2__gpu_close(&c, &g);
    CHECK_INT(fake_leaks(), 0);
    machine_end();
}

/* A conversion that ends once it has a plan: the fake GPU computes nothing. */
static void on_plan(void *user, const exl2_convert_plan *plan) { *(exl2_convert_plan *)user = *plan; }

static bool until_plan(void *user, const char *stage, float done)
{
    (void)stage;
    (void)done;
    return ((exl2_convert_plan *)user)->host_bytes == 0;
}

/* CANCELLED: it would have begun, as the plan says. (What the fake GPU leaves as moments may fail before that.) */
static exl2_result plan_of(exl2_backend backend, uint64_t host_max, uint64_t device_max, exl2_convert_plan *plan,
                           exl2__ctx *c)
{
    char work[700];
    exl2_convert_desc d = rig_desc(EXL2_GOLDEN_DIR "/models/qwen3", 2, 32);
    d.backend = backend;
    d.bpw = 4;
    d.device_bytes_max = device_max;
    d.kernel_cache = (exl2_kernel_cache){ machine_load, machine_store, NULL };
    d.on_plan = on_plan;
    d.progress = until_plan;
    d.user = plan;
    *plan = (exl2_convert_plan){ 0 };
    *c = context();
    c->host_bytes_max = host_max;
    machine_make();
    exl2_result result = exl2__convert_run(c, &d);
    CHECK_INT(c->host_bytes, 0);
    CHECK_INT(fake_leaks(), 0);
    machine_end();
    snprintf(work, sizeof work, "%s.work", out_dir);
    remove_folder(work);
    return plan->host_bytes ? EXL2_ERR_CANCELLED : result;
}

/* Caps of host and device memory: what does not fit a GPU is streamed; AUTO then chooses the CPU. */
static void test_caps(void)
{
    exl2__ctx c;
    exl2_convert_plan cpu, gpu, plan;
    const uint64_t pinned = EXL2__GPU_SLOTS * EXL2__GPU_SLOT_BYTES;
    rig_open(8 * 32, 320);
    CHECK_INT(plan_of(EXL2_BACKEND_CPU, 0, 0, &cpu, &c), EXL2_ERR_CANCELLED);
    CHECK_INT(plan_of(EXL2_BACKEND_CUDA, 0, 0, &gpu, &c), EXL2_ERR_CANCELLED);
    CHECK(cpu.host_bytes < pinned && gpu.host_bytes > pinned && !gpu.streamed);
    CHECK_INT(plan_of(EXL2_BACKEND_CUDA, gpu.host_bytes - 1, 0, &plan, &c), EXL2_ERR_CANCELLED);
    CHECK(plan.streamed && plan.host_bytes < gpu.host_bytes);
    uint64_t least = plan.host_bytes;
    CHECK_INT(plan_of(EXL2_BACKEND_CUDA, least - 1, 0, &plan, &c), EXL2_ERR_BUDGET);
    CHECK(strstr(c.error.text, "with one layer at a time") != NULL);
    CHECK_INT(plan_of(EXL2_BACKEND_AUTO, least - 1, 0, &plan, &c), EXL2_ERR_CANCELLED);
    CHECK(plan.host_bytes == cpu.host_bytes && !plan.streamed);
    CHECK_INT(plan_of(EXL2_BACKEND_CUDA, cpu.host_bytes, 0, &plan, &c), EXL2_ERR_BUDGET);
    CHECK_INT(plan_of(EXL2_BACKEND_AUTO, cpu.host_bytes, 0, &plan, &c), EXL2_ERR_CANCELLED);
    CHECK(plan.host_bytes == cpu.host_bytes);
    CHECK_INT(plan_of(EXL2_BACKEND_CUDA, 0, EXL2__GPU_SPARE_BYTES, &plan, &c), EXL2_ERR_BUDGET);
    CHECK(strstr(c.error.text, "of GPU memory, but has 256.0 MiB") != NULL);
    CHECK_INT(plan_of(EXL2_BACKEND_AUTO, 0, EXL2__GPU_SPARE_BYTES, &plan, &c), EXL2_ERR_CANCELLED);
    CHECK(plan.host_bytes == cpu.host_bytes);
    rig_close();
}

/* ---- bytes that are predicted ---- */

static bool within(const char *what, const char *name, uint64_t predicted, uint64_t used)
{
    double ratio = (double)used / (double)predicted;
    printf("%s: %s %llu predicted, %llu used, %.4f\n", what, name, (unsigned long long)predicted,
           (unsigned long long)used, ratio);
    return CHECK(ratio > (strstr(what, "capped") ? 0.97 : 0.98) && ratio < 1.02);
}

static void keep_plan(void *user, const exl2_convert_plan *plan) { *(exl2_convert_plan *)user = *plan; }

/* A whole conversion over the fake GPU, whose kernels leave zeros: what it says before it begins, and what it uses. */
static void check_bytes(const char *what, exl2_convert_desc d, uint64_t host_max, exl2_convert_plan *plan)
{
    char work[700];
    exl2_convert_info info;
    exl2__ctx c = context();
    d.backend = EXL2_BACKEND_CUDA;
    d.bpw = 4;
    d.kernel_cache = (exl2_kernel_cache){ machine_load, machine_store, NULL };
    d.on_plan = keep_plan;
    d.user = plan;
    d.info = &info;
    c.host_bytes_max = host_max;
    machine_make();
    fake.fresh = 0;
    snprintf(work, sizeof work, "%s.work", out_dir);
    if (CHECK_INT(exl2__convert_run(&c, &d), EXL2_OK)) {
        within(what, "device", plan->device_bytes, info.device_peak);
        within(what, "host", plan->host_bytes, info.host_peak);
        CHECK(info.device_peak <= fake.most && (!d.device_bytes_max || fake.most <= d.device_bytes_max));
    } else {
        printf("  %s: %s\n", what, c.error.text);
    }
    CHECK_INT(c.host_bytes, 0);
    CHECK_INT(fake_leaks(), 0);
    machine_end();
    remove_folder(out_dir);
    remove_folder(work);
}

static void test_bytes(void)
{
    exl2_convert_plan whole, plan;
    static const char *const models[] = { "qwen3", "exl2-qwen3-moe" };
    char dir[600], what[64];
    rig_open(40 * 64, 256);
    for (uint32_t i = 0; i < EXL2__COUNT(models); i++) {
        snprintf(dir, sizeof dir, "%s/models/%s", EXL2_GOLDEN_DIR, models[i]);
        exl2_convert_desc d = rig_desc(dir, 32, 64);
        check_bytes(models[i], d, 0, &whole);
        d.device_bytes_max = EXL2__GPU_SPARE_BYTES + whole.device_bytes / 100 * 95;
        snprintf(what, sizeof what, "%s capped", models[i]);
        check_bytes(what, d, 0, &plan);
        CHECK(plan.device_bytes < whole.device_bytes);
        d.device_bytes_max = 0;
        snprintf(what, sizeof what, "%s streamed", models[i]);
        check_bytes(what, d, whole.host_bytes - 1, &plan);
        CHECK(plan.streamed);
        snprintf(what, sizeof what, "%s corrected", models[i]);
        d.corrected = true;
        check_bytes(what, d, 0, &plan);
        snprintf(what, sizeof what, "%s measured", models[i]);
        d.corrected = false;
        d.measure_only = true;
        check_bytes(what, d, 0, &plan);
    }
    rig_close();
}

/* A work folder belongs to the backend, and the kind of GPU, that it was begun on. */
static void test_backend(void)
{
    static exl2__cuda_device device;
    exl2__ctx c = context();
    exl2__convert v = { .c = &c };
    char work[700];
    rig_open(8 * 32, 320);
    device.info = (exl2_device_info){ .name = "GPU A", .arch = 90 };
    device.sm_count = 132;
    for (uint32_t first = 0; first < 2; first++) { /* begun on the CPU; on a GPU */
        snprintf(work, sizeof work, "%s/work-%u", root, first);
        CHECK_INT(exl2__workdir_open(&c, work, "version: 3\n", &v.work), EXL2_OK);
        v.gpu.d = first ? &device : NULL;
        CHECK_INT(exl2__convert_keep_hardware(&v), EXL2_OK);
        CHECK_INT(exl2__convert_keep_hardware(&v), EXL2_OK);
        v.gpu.d = first ? NULL : &device;
        CHECK_INT(exl2__convert_keep_hardware(&v), EXL2_ERR_STATE);
        CHECK(strstr(c.error.text, first ? "was begun on a GPU (GPU A, 9.0, 132 SMs), and this is the CPU;"
                                         : "was begun on the CPU, and this is a GPU (GPU A, 9.0, 132 SMs);") != NULL);
        for (uint32_t i = 0; first && i < 3; i++) { /* another name, architecture, number of SMs */
            exl2__cuda_device was = device;
            device.info.name[4] = i == 0 ? 'B' : 'A';
            device.info.arch = i == 1 ? 89 : 90;
            device.sm_count = i == 2 ? 114 : 132;
            v.gpu.d = &device;
            CHECK_INT(exl2__convert_keep_hardware(&v), EXL2_ERR_STATE);
            device = was;
            CHECK_INT(exl2__convert_keep_hardware(&v), EXL2_OK);
        }
        if (first == 0) {
            exl2__workdir_close(&v.work);
        }
    }
    exl2__workdir_close(&v.work);
    CHECK_INT(exl2__workdir_open(&c, work, "version: 4\n", &v.work), EXL2_OK); /* nothing was finished in it */
    exl2__workdir_close(&v.work);
    rig_close();
}

/* Sets of kernels for games have none of the converter's, unless they are asked for. */
static void test_build(void)
{
    static const char *const modules[] = { "correct-", "experts-", "factor-", "half-", "losses-", "pass-",
                                           "solve-" };
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
            for (uint32_t k = 0; k < EXL2__COUNT(modules); k++) {
                found += strncmp(machine.entries[i].key, modules[k], strlen(modules[k])) == 0;
            }
        }
        CHECK_INT(found, converter ? EXL2__COUNT(modules) : 0);
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
    test_caps();
    test_bytes();
    test_backend();
    test_build();
    test_failures();
    machine_drop_cache();
    return check_done();
}
