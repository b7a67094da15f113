/* cuda_attend.c: the launches of attention over the fake driver: splits within windows, tables of RoPE, caps, and the
   kernel before attention for layers with norms of q and k, bounds, or queries that grow.
   takes: the golden model exl2-4bit, whose shape and layers are changed after its weights are loaded.
   gives: exit code 0 or 1. */
#include "../../exl2.h"

#include "private/model_config_read.h"
#include "private/weights_load.h"
#include "private/cuda.h"
#include "../../kernels_src/probe_args.h"
#include "../check.h"
#include "../device/fake_driver.h"
#include "../weights_measure.h"

#define CONTEXT 4096u
#define ROWS 20u
#define LAUNCHES 32u

static const fake_kernel kernels[] = { EXL2__KERNELS(FAKE_KERNEL_ROW) };

/* ---- launches of attention and of RoPE's tables, as the fake GPU runs them ---- */

typedef struct launch {
    char function[64];
    uint32_t grid[3];
    exl2k_attend_args attend;
    exl2k_prepare_args prepare;
    exl2k_rope_args rope;
} launch;

static launch launches[LAUNCHES];
static uint32_t launch_count;

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    bool attends = strncmp(function, "exl2k_attend_", 13) == 0;
    bool prepares = strcmp(function, "exl2k_attend_prepare") == 0;
    bool tables = strcmp(function, "exl2k_rope_table") == 0;
    if (!attends && !tables) {
        return;
    }
    CHECK(launch_count < LAUNCHES);
    launch *l = &launches[launch_count++ % LAUNCHES];
    *l = (launch){ .grid = { grid[0], grid[1], grid[2] } };
    snprintf(l->function, sizeof l->function, "%s", function);
    if (tables) {
        l->rope = *(const exl2k_rope_args *)arguments;
    } else if (prepares) {
        l->prepare = *(const exl2k_prepare_args *)arguments;
    } else {
        l->attend = *(const exl2k_attend_args *)arguments;
    }
}

/* ---- a model ---- */

static struct rig {
    exl2__ctx c;
    exl2__cuda_device gpu;
    exl2__device *d;
    exl2__weights load;
    exl2__plan plan;
    exl2__arena none, scratch;
    exl2__layer layers[8];
    double frequency[256];
    exl2__rope_angles ropes[2];
} rig;

static exl2_kv rig_format; /* of K and V of the next model */

static exl2_result rig_load(void)
{
    const exl2__backend *b = &exl2__cuda_backend;
    const char *dir = check_env("EXL2_GOLDEN_DIR") ? check_env("EXL2_GOLDEN_DIR") : EXL2_GOLDEN_DIR;
    exl2__arena dry[2] = { { 0 }, { 0 } };
    char path[1024];
    snprintf(path, sizeof path, "%s/models/exl2-4bit", dir);
    EXL2__TRY(exl2__config_read(&rig.c, path, &rig.load.config));
    EXL2__TRY(b->open(&rig.c, &rig.gpu, &rig.d));
    EXL2__TRY(weights_measure(&rig.c, &rig.load, path, b, rig.d));
    exl2__plan_make(&rig.plan, &rig.load.config, rig.load.embed_rows, CONTEXT, 16, ROWS);
    exl2__plan_ropes(&rig.plan, &rig.load.config, rig.frequency, rig.ropes);
    rig.ropes[1] = (exl2__rope_angles){ .frequency = rig.ropes[0].frequency, .magnitude = 2 };
    rig.plan.rope_count = 2;
    rig.plan.shape.rotary /= 2;
    rig.plan.shape.clip_qkv = 1; /* loads the kernel of norms and bounds, too */
    rig.plan.layers = rig.layers;
    rig.plan.kv = rig_format;
    rig.plan.pages = 1;
    exl2__plan_layers(&rig.plan, &rig.load.config, rig.layers);
    EXL2__TRY(b->prepare(rig.d, &rig.plan, &dry[0], &dry[1]));
    exl2_result r = EXL2_PENDING;
    while (r == EXL2_PENDING) { /* compiles a few kernels at a time */
        EXL2__TRY(r = b->memory->reserve(rig.d, &rig.load.weight_bytes));
    }
    EXL2__TRY(exl2__weights_begin(&rig.c, &rig.load));
    r = EXL2_PENDING;
    while (r == EXL2_PENDING) {
        exl2__work work = exl2__work_slice();
        EXL2__TRY(r = exl2__weights_slice(&rig.c, &rig.load, &rig.plan, b, rig.d, &rig.none, &work));
    }
    EXL2__TRY(exl2__arena_open(&rig.c, &rig.scratch, 1 << 16, EXL2_MEM_SCRATCH));
    r = b->prepare(rig.d, &rig.plan, &rig.none, &rig.scratch);
    rig.plan.shape.clip_qkv = 0;
    return r;
}

static void rig_make_on(int arch, uint32_t shared_bytes_max)
{
    exl2_device_desc desc = { .shared_bytes_max = shared_bytes_max };
    exl2__cuda_settings settings = { .device = &desc };
    fake_reset();
    fake.kernels = kernels;
    fake.kernel_count = EXL2__COUNT(kernels);
    fake.run = run;
    fake.devices[0].shared_optin = 232448; /* as an H200 has */
    fake.devices[0].arch_major = arch / 10;
    fake.devices[0].arch_minor = arch % 10;
    memset(&rig, 0, sizeof rig);
    launch_count = 0;
    rig.c.allocator = exl2__platform_allocator();
    rig.c.files = exl2__platform_files();
    rig.gpu.driver = fake_driver();
    rig.gpu.compiler.nvrtc = fake_nvrtc();
    CHECK_INT(exl2__cuda_device_open(&rig.c, &rig.gpu, &settings), EXL2_OK);
    if (!CHECK_INT(rig_load(), EXL2_OK)) {
        printf("  %s\n", rig.c.error.text);
        exit(1);
    }
    CHECK_INT(exl2__cuda_device_enter(&rig.gpu), EXL2_OK);
    CHECK_INT(rig.gpu.driver.stream_wait(rig.gpu.stream), 0); /* runs the kernels that were enqueued so far */
    exl2__cuda_device_leave(&rig.gpu);
}

static void rig_make(void)
{
    rig_make_on(89, 0);
}

static void rig_end(void)
{
    exl2__weights_close(&rig.c, &rig.load);
    exl2__cuda_backend.close(rig.d);
    exl2__arena_close(&rig.c, &rig.scratch);
    exl2__cuda_device_close(&rig.gpu);
    CHECK_INT(rig.c.host_bytes, 0);
    CHECK_INT(fake_leaks(), 0);
}

static exl2__cuda_model *model(void) { return exl2__cuda_of(rig.d); }

/* Runs attention of layer 0 for the current pass. */
static void attend(void)
{
    exl2__cuda_model *m = model();
    CHECK_INT(exl2__cuda_device_enter(m->gpu), EXL2_OK);
    launch_count = 0;
    m->pass.chained = false;
    CHECK_INT(exl2__cuda_do(m, EXL2__PHASE_attend, &rig.layers[0], NULL), EXL2_OK);
    CHECK_INT(m->gpu->driver.stream_wait(m->gpu->stream), 0);
    exl2__cuda_device_leave(m->gpu);
}

/* Attention in a pass of `count` rows, of sampled tokens or of prompts, each of a sequence of its own with `tokens`
   tokens or one more. */
static void attend_rows_of(uint32_t count, uint32_t tokens, bool prompts)
{
    static uint32_t table[CONTEXT / EXL2K_PAGE_TOKENS];
    static const uint32_t *tables[ROWS];
    exl2__step_row rows[ROWS];
    exl2__step step = { .rows = rows, .row_count = count, .sequence_count = count, .page_tables = tables,
                        .kind = prompts ? EXL2__ROWS_PROMPT : EXL2__ROWS_SAMPLED };
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = (exl2__step_row){ .token = 0, .position = tokens - 1 + i % 2, .sequence = i };
        tables[i] = table;
    }
    CHECK_INT(exl2__cuda_backend.begin(rig.d, &step), EXL2_OK);
    attend();
}

static void attend_rows(uint32_t count, uint32_t tokens)
{
    attend_rows_of(count, tokens, false);
}

/* The launch of this function; the first one if there are several. */
static const launch *launched(const char *function)
{
    static const launch none;
    for (uint32_t i = 0; i < launch_count && i < LAUNCHES; i++) {
        if (strncmp(launches[i].function, function, strlen(function)) == 0) {
            return &launches[i];
        }
    }
    return &none;
}

/* ---- checks ---- */

static void test_windows(void)
{
    static const struct { uint32_t window, tokens, splits; } cases[] = {
        { UINT32_MAX, 200, 1 }, { UINT32_MAX, 1000, 8 },
        { UINT32_MAX, 2048, 16 }, /* rows of 2,048 tokens have 16 splits, rows of 2,049 have 11 */
        { UINT32_MAX, 3000, 16 },
        { 1, 3000, 1 }, { 200, 3000, 1 }, { 1024, 3000, 8 }, { 1024, 500, 4 }, { 2048, 4000, 16 }, { 2049, 4000, 16 },
    };
    rig_make();
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        rig.layers[0].window = cases[i].window;
        attend_rows(ROWS, cases[i].tokens);
        const launch *l = launched("exl2k_attend_decode");
        CHECK_INT(launch_count, 1);
        CHECK_INT(l->grid[0], cases[i].splits);
        CHECK_INT(l->attend.window, exl2__min32(cases[i].window, EXL2K_WINDOW_MAX));
        /* A graph has its class of splits, or fewer. */
        model()->pass = exl2__cuda_pass_captured(model(), 1, 0);
        model()->pass.splits = EXL2K_SPLITS_MAX;
        attend();
        CHECK_INT(launched("exl2k_attend_decode")->grid[0], exl2__cuda_splits(cases[i].window));
    }
    rig_end();
}

/* Splits are a cluster where all CTAs of the launch can be on the SMs at once. */
static void test_clusters(void)
{
    rig_make_on(90, 0);
    for (uint32_t rows = 1; rows <= ROWS; rows++) {
        uint32_t before = fake.clusters;
        attend_rows(rows, 1000);
        const unsigned *grid = launched("exl2k_attend_decode")->grid;
        CHECK_INT(grid[0], 8);
        CHECK_INT(fake.clusters - before, grid[0] * grid[1] * grid[2] <= model()->gpu->sm_count);
    }
    uint32_t before = fake.clusters;
    CHECK(before > 0 && before < ROWS);
    attend_rows(1, 200);
    attend_rows(1, 2000);
    CHECK_INT(fake.clusters, before); /* 1 split; 16 */
    rig_end();
}

/* One table for each kind of angles, and a line of angles of 0. */
static void test_rope(void)
{
    rig_make();
    const exl2__cuda_buffers *b = &model()->b;
    uint32_t half = rig.plan.shape.head_dim / 2, tables = 0;
    uint64_t bytes = exl2__cuda_rope_bytes(&rig.plan);
    CHECK(bytes >= (uint64_t)CONTEXT * half * 8 && b->unrotated == b->rope + 2 * bytes);
    for (uint32_t i = 0; i < launch_count; i++) {
        const exl2k_rope_args *a = &launches[i].rope;
        if (strcmp(launches[i].function, "exl2k_rope_table") == 0) {
            bool rotates = tables < 2;
            CHECK(a->table == (rotates ? b->rope + tables * bytes : b->unrotated) && a->half == half);
            CHECK_INT(a->positions, rotates ? CONTEXT : 1);
            CHECK_INT(a->step, 1);
            CHECK_INT(a->rotated, rotates ? half / 2 : 0);
            CHECK(!rotates || (double)a->magnitude == rig.ropes[tables].magnitude);
            tables++;
        }
    }
    CHECK_INT(tables, 3);
    for (uint32_t rope = 0; rope < 3; rope++) {
        for (uint32_t pairs = 0; pairs < 2; pairs++) {
            rig.layers[0].rope = rope < 2 ? rope : EXL2__NO_ROPE;
            rig.plan.shape.pairs = pairs;
            attend_rows(1, 100);
            const exl2k_attend_args *a = &launched("exl2k_attend_decode")->attend;
            CHECK(a->rope == (rope < 2 ? b->rope + rope * bytes : b->unrotated));
            CHECK_INT(a->rope_divided, 0);
            CHECK_INT(a->rope_pitch, rope < 2 ? half : 0);
            CHECK_INT(a->rope_split, rope == 2 ? half : pairs ? 0 : half / 2);
        }
    }
    rig_end();
}

/* Tables of more than EXL2__CUDA_ROPE_WHOLE_MAX bytes are divided: 2^20 positions and one more. */
static void test_divided(void)
{
    static const struct { uint32_t positions, step; double magnitude; } expected[] = {
        { EXL2K_ROPE_BLOCK, 1, 1 }, { (1u << 13) + 1, EXL2K_ROPE_BLOCK, 3 }
    };
    rig_make();
    exl2__cuda_model *m = model();
    uint32_t half = rig.plan.shape.head_dim / 2;
    uint64_t before = exl2__cuda_rope_bytes(&rig.plan), table = m->b.rope;
    rig.plan.context_max = (1u << 20) + 1;
    rig.plan.rope_count = 1;
    rig.ropes[0].magnitude = 3;
    CHECK(exl2__cuda_rope_divided(&rig.plan) && exl2__cuda_rope_bytes(&rig.plan) < ((1u << 13) + 130) * half * 8 + 512);
    CHECK(before >= (uint64_t)CONTEXT * half * 8);
    launch_count = 0;
    CHECK_INT(exl2__cuda_device_enter(m->gpu), EXL2_OK);
    CHECK_INT(exl2__cuda_make_ropes(m, &rig.plan), EXL2_OK);
    CHECK_INT(m->gpu->driver.stream_wait(m->gpu->stream), 0);
    exl2__cuda_device_leave(m->gpu);
    CHECK_INT(launch_count, 3);
    for (uint32_t i = 0; i < 2; i++) {
        const exl2k_rope_args *a = &launches[i].rope;
        CHECK(a->table == table && a->half == half && (double)a->magnitude == expected[i].magnitude);
        CHECK(a->positions == expected[i].positions && a->step == expected[i].step);
        table += (uint64_t)a->positions * half * 8;
    }
    attend_rows(1, 100);
    CHECK(launched("exl2k_attend_decode")->attend.rope_divided == 1);
    CHECK(launched("exl2k_attend_decode")->attend.rope == m->b.rope);
    rig_end();
}

static void test_cap(void)
{
    rig_make();
    rig.plan.shape.attn_scale = 0.25f;
    attend_rows(1, 100);
    CHECK(launched("exl2k_attend_decode")->attend.scale == 0.25f);
    CHECK(launched("exl2k_attend_decode")->attend.tanh_scale == 0);
    rig.plan.shape.attn_softcap = 50;
    attend_rows(1, 100);
    CHECK(launched("exl2k_attend_decode")->attend.scale == 50);
    CHECK(launched("exl2k_attend_decode")->attend.tanh_scale == 0.25f / 50);
    rig_end();
}

static void test_prepare(void)
{
    rig_make();
    exl2__shape *s = &rig.plan.shape;
    exl2__layer *l = &rig.layers[0];
    uint64_t rope = model()->b.rope, unrotated = model()->b.unrotated;
    attend_rows(ROWS, 100);
    CHECK_INT(launch_count, 1); /* a layer without norms, bounds or growth: attention alone */
    s->clip_qkv = 8;
    attend_rows(ROWS, 100);
    const launch *p = &launches[0];
    CHECK_INT(launch_count, 2);
    CHECK_TEXT(p->function, "exl2k_attend_prepare");
    uint32_t of_q = (s->heads + EXL2K_PREPARE_HEADS - 1) / EXL2K_PREPARE_HEADS;
    uint32_t of_k = (s->kv_heads + EXL2K_PREPARE_HEADS - 1) / EXL2K_PREPARE_HEADS;
    CHECK(p->grid[0] == ROWS && p->grid[1] == of_q + 2 * of_k);
    CHECK(p->prepare.clip == 8 && p->prepare.weight[0] == 0 && p->prepare.rope == 0 && p->prepare.growth == 0);
    CHECK(p->prepare.qkv == model()->b.qkv && p->prepare.pitch == model()->b.qkv_pitch);
    CHECK(launched("exl2k_attend_decode")->attend.rope == rope);
    s->clip_qkv = 0;
    s->query_growth = 0.5f;
    s->query_context = 100;
    attend_rows(1, 100);
    CHECK(launch_count == 2 && launches[0].prepare.growth == 0.5f && launches[0].prepare.context == 100);
    CHECK_INT(launches[0].grid[1], of_q + of_k);
    s->query_growth = 0;
    l->q_norm = l->attn_norm;
    l->k_norm = (exl2__norm){ l->mlp_norm.weight, NULL };
    s->qk_norm = EXL2__QK_NORM_HEADS;
    /* Attention applies norms of heads without biases, in steps that decode. */
    attend_rows(1, 100);
    CHECK_INT(launch_count, 1);
    CHECK(launches[0].attend.norm[0] == exl2__cuda_values(l->attn_norm.weight));
    CHECK(launches[0].attend.norm[1] == exl2__cuda_values(l->mlp_norm.weight));
    CHECK(launches[0].attend.norm_eps == s->norm_eps);
    attend_rows_of(1, 100, true);
    CHECK(strcmp(launches[0].function, "exl2k_attend_prepare") == 0 && launches[1].attend.norm[0] == 0);
    s->clip_qkv = 8;
    attend_rows(1, 100);
    CHECK(launch_count == 2 && launches[0].prepare.clip == 8 && launches[1].attend.norm[0] == 0);
    s->clip_qkv = 0;
    l->k_norm.bias = l->attn_norm.weight;
    attend_rows(1, 100);
    CHECK(launches[1].attend.norm[0] == 0 && launches[1].attend.norm[1] == 0);
    CHECK_INT(launch_count, 2);
    CHECK(launches[0].prepare.weight[0] == exl2__cuda_values(l->attn_norm.weight));
    CHECK(launches[0].prepare.weight[1] == exl2__cuda_values(l->mlp_norm.weight));
    CHECK(launches[0].prepare.bias[0] == 0 && launches[0].prepare.bias[1] == launches[0].prepare.weight[0]);
    CHECK(launches[0].prepare.eps == s->norm_eps && !launches[0].prepare.whole && !launches[0].prepare.layer_norm);
    s->qk_norm = EXL2__QK_NORM_WHOLE;
    s->layer_norm = true;
    attend_rows(1, 100);
    CHECK(launches[0].prepare.whole && launches[0].prepare.layer_norm && launches[0].prepare.part_heads >= s->heads);
    CHECK_INT(launches[0].grid[1], 2);
    /* Norms after RoPE: the kernel rotates, attention does not. */
    s->qk_norm = EXL2__QK_NORM_HEADS_ROTATED;
    attend_rows(1, 100);
    CHECK(launches[0].prepare.rope == rope && launches[0].prepare.rope_pitch == s->head_dim / 2);
    CHECK(launches[1].attend.rope == unrotated && launches[1].attend.rope_pitch == 0);
    rig_end();
}

/* Prompts: by wgmma on Hopper, if there is enough shared memory; only the kernels that run are loaded. */
static void test_prompts(void)
{
    static const struct { int arch; uint32_t shared_bytes_max; bool wg; } cases[] = {
        { 90, 0, true }, { 90, 99 << 10, false }, { 89, 0, false }, { 100, 0, false },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        rig_make_on(cases[i].arch, cases[i].shared_bytes_max);
        const exl2__shape *s = &rig.plan.shape;
        uint32_t table[CONTEXT / EXL2K_PAGE_TOKENS] = { 0 }, tiles = (ROWS * s->heads / s->kv_heads + 127) / 128;
        const uint32_t *tables[] = { table };
        exl2__step_row rows[ROWS];
        exl2__step step = { .rows = rows, .row_count = ROWS, .sequence_count = 1, .page_tables = tables,
                            .kind = EXL2__ROWS_PROMPT };
        for (uint32_t r = 0; r < ROWS; r++) {
            rows[r] = (exl2__step_row){ .token = 0, .position = r, .sequence = 0 };
        }
        CHECK_INT(exl2__cuda_backend.begin(rig.d, &step), EXL2_OK);
        attend();
        const launch *wg = launched("exl2k_attend_wg64"), *other = launched("exl2k_attend_prefill64");
        CHECK((wg->grid[0] > 0) == cases[i].wg && (other->grid[0] > 0) == !cases[i].wg);
        CHECK_TEXT(launches[0].function, "exl2k_attend_store");
        CHECK_INT(cases[i].wg ? wg->grid[0] * wg->grid[1] * wg->grid[2] : other->grid[0] * other->grid[1],
                  tiles * s->kv_heads);
        CHECK((model()->gpu->kernels.functions[EXL2__KERNEL_exl2k_attend_wg64] != NULL) == cases[i].wg);
        CHECK((model()->gpu->kernels.functions[EXL2__KERNEL_exl2k_attend_prefill64] != NULL) == !cases[i].wg);
        CHECK(!model()->gpu->kernels.functions[EXL2__KERNEL_exl2k_attend_wg128]);
        CHECK(!wg->attend.rotated);
        /* Where RoPE rotates whole heads in halves, the kernel that stores K and V of short prompts rotates queries. */
        rig.plan.shape.rotary = s->head_dim;
        attend();
        CHECK_TEXT(launches[0].function, cases[i].wg ? "exl2k_attend_store_queries" : "exl2k_attend_store");
        CHECK_INT(launched("exl2k_attend_wg64")->attend.rotated, cases[i].wg);
        CHECK_INT(launches[0].grid[0], ROWS);
        uint32_t threads = (s->heads + 2 * s->kv_heads) * s->head_dim / 16;
        CHECK(!cases[i].wg || launches[0].grid[1] == exl2__div_up(threads, EXL2K_QUERIES_THREADS));
        model()->pass.row_count = EXL2__CUDA_ROTATED_ROWS + 1;
        attend();
        CHECK_TEXT(launches[0].function, "exl2k_attend_store");
        CHECK_INT(launched("exl2k_attend_wg64")->attend.rotated, 0);
        rig_end();
    }
}

/* A quantized cache: which kernels are loaded and launched, and bytes of its pages, by format and head size. */
static void test_codes(void)
{
    static const struct { uint32_t dim, bytes[4]; } heads[] = { /* of K and V of a token in one head */
        { 128, { 512, 272, 208, 144 } }, { 64, { 256, 136, 104, 72 } }, { 96, { 384, 204, 156, 108 } },
        { 80, { 320, 204, 156, 108 } }, /* a group of 16 has the room of 32 */
        { 256, { 1024, 544, 416, 288 } }, { 16, { 64, 68, 52, 36 } },
    };
    rig_make();
    CHECK(model()->gpu->kernels.functions[EXL2__KERNEL_exl2k_attend_codes64] == NULL && model()->b.expanded == 0);
    CHECK(model()->gpu->kernels.functions[EXL2__KERNEL_exl2k_attend_quantize] == NULL);
    rig_end();
    /* One unit a warp, and the kernel's static memory, fit into 48 KiB. */
    for (uint32_t dim = 16; dim <= 256; dim += 16) {
        uint32_t warps = dim <= 128 ? EXL2K_WARPS128 : EXL2K_WARPS256, of_class = 64u << exl2__cuda_head_class(dim);
        uint32_t slot = EXL2K_CODES_SLOT(8, 8, of_class / 32);
        CHECK(warps * exl2__max32(slot, EXL2K_SUMS_BYTES(of_class)) + (dim <= 128 ? 8192 : 11264) <= 48 << 10);
    }
    for (rig_format = EXL2_KV_Q8; rig_format <= EXL2_KV_Q4; rig_format++) {
        rig_make();
        exl2__shape s = rig.plan.shape;
        for (size_t i = 0; i < EXL2__COUNT(heads); i++) {
            s.head_dim = heads[i].dim;
            CHECK_INT(exl2__cuda_page_bytes(&s, EXL2_KV_FP16), 64 * s.kv_heads * heads[i].bytes[0]);
            CHECK_INT(exl2__cuda_page_bytes(&s, rig_format), 64 * s.kv_heads * heads[i].bytes[rig_format]);
        }
        const exl2__cuda_buffers *b = &model()->b;
        uint32_t key_bits = rig_format == EXL2_KV_Q4 ? 4 : 8, value_bits = rig_format == EXL2_KV_Q8 ? 8 : 4;
        CHECK(model()->gpu->kernels.functions[EXL2__KERNEL_exl2k_attend_codes64] != NULL);
        CHECK(model()->gpu->kernels.functions[EXL2__KERNEL_exl2k_attend_decode64] == NULL);
        CHECK(b->expanded >= b->pages + (uint64_t)rig.plan.shape.layers * rig.plan.pages * b->page_bytes);
        static const uint32_t few[] = { 1, EXL2K_KEPT, ROWS };
        for (size_t i = 0; i < EXL2__COUNT(few); i++) {
            uint32_t rows = few[i], many = rows > EXL2K_KEPT;
            attend_rows(rows, 1000);
            const launch *store = &launches[0], *l = &launches[many];
            CHECK_INT(launch_count, many ? 2 : 1); /* a few rows store their K and V themselves */
            CHECK_INT(l->attend.stores, !many);
            CHECK_TEXT(l->function, "exl2k_attend_codes64");
            if (many) {
                CHECK_TEXT(store->function, "exl2k_attend_quantize");
                CHECK(store->grid[0] == rows && store->grid[1] * 4 >= rig.plan.shape.kv_heads * 2);
            }
            CHECK_INT(l->grid[0], 8);
            CHECK(l->attend.key_bits == key_bits && l->attend.value_bits == value_bits);
            CHECK_INT(l->attend.page_bytes, exl2__cuda_page_bytes(&rig.plan.shape, rig_format));
            CHECK(l->attend.stages >= 1 && l->attend.stages <= 8 && l->attend.ring_bytes % 16 == 0);
            CHECK(l->attend.ring_bytes >= EXL2K_SUMS_BYTES(64));
            CHECK(l->attend.ring_bytes
                  >= l->attend.stages
                         * EXL2K_CODES_SLOT(key_bits, value_bits, 2));
        }
        /* Attention from codes does not apply norms: a kernel before it does. */
        rig.layers[0].q_norm = rig.layers[0].k_norm = rig.layers[0].attn_norm;
        rig.plan.shape.qk_norm = EXL2__QK_NORM_HEADS;
        attend_rows(1, 100);
        CHECK_TEXT(launches[0].function, "exl2k_attend_prepare");
        CHECK(launch_count == 2 && launches[1].attend.norm[0] == 0 && launches[1].attend.norm[1] == 0);
        rig.plan.shape.qk_norm = EXL2__QK_NORM_NONE;
        rig.layers[0].q_norm = rig.layers[0].k_norm = (exl2__norm){ 0 };
        /* Prompts read fp16 pages of this layer. */
        attend_rows_of(ROWS, 1000, true);
        CHECK_TEXT(launches[0].function, "exl2k_attend_quantize");
        CHECK_TEXT(launches[1].function, "exl2k_attend_expand");
        CHECK(launches[1].attend.expanded == b->expanded && launches[1].attend.pages == b->pages);
        CHECK_INT(launches[1].grid[0], ROWS);
        CHECK(launches[1].grid[1] == rig.plan.shape.kv_heads && launches[1].grid[0] * launches[1].grid[2] >= 16);
        CHECK_TEXT(launches[2].function, "exl2k_attend_prefill64");
        CHECK(launches[2].attend.pages == b->expanded);
        CHECK_INT(launches[2].attend.page_bytes, exl2__cuda_page_bytes(&rig.plan.shape, EXL2_KV_FP16));
        rig_end();
    }
    rig_format = EXL2_KV_FP16;
}

/* What attention computes is not rejected; heads of other sizes are. */
static void test_supports(void)
{
    rig_make();
    exl2__shape s = rig.plan.shape;
    s.windows = s.unrotated = s.pairs = true;
    s.qk_norm = EXL2__QK_NORM_HEADS_ROTATED;
    s.attn_softcap = 50;
    s.clip_qkv = 8;
    s.query_growth = 0.1f;
    CHECK_INT(exl2__cuda_backend.supports(rig.d, &s), EXL2_OK);
    for (uint32_t dim = 4; dim <= 264; dim += 4) {
        s.head_dim = dim;
        exl2_result r = exl2__cuda_check_shape(model(), &s);
        CHECK_INT(r, dim % 8 == 0 && dim <= 256 ? EXL2_OK : EXL2_ERR_UNSUPPORTED);
    }
    rig_end();
}

int main(void)
{
    test_windows();
    test_clusters();
    test_rope();
    test_divided();
    test_cap();
    test_prepare();
    test_prompts();
    test_codes();
    test_supports();
    fake_reset();
    return check_done();
}
