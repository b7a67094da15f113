/* cuda_streamed.c: models on the fake GPU whose MLPs, or experts, the CPU computes, but not for rows of prompts: their
   weights are copied to the GPU while a pass runs. Every product of such a pass must find the bytes that it finds in
   the same model without offload: in whole passes and in frames, by a GPU that works at once and by a late one, on two
   GPUs, after parking. Caps and fields say how much memory it needs. Allocations and calls fail once.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_ways.h"

#define STRIDE (CHECK_SANITIZED ? 9u : 3u)
#define PRODUCTS_MAX 8192u

/* ---- what products read ---- */

typedef struct products {
    uint64_t hash[2][PRODUCTS_MAX]; /* of each GPU */
    uint32_t count[2], experts;     /* experts: launches for these */
} products;

static products *watched; /* of passes of prompts: the jobs here sample one token each, from the prompt's last row */

static uint64_t hash_bytes(uint64_t hash, const void *data, uint64_t bytes)
{
    const uint8_t *at = data;
    for (uint64_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 0x100000001B3u;
    }
    return hash;
}

/* The chunk tables, biases and the begin of the strips: addresses are not part of it. */
static uint64_t hash_matrix(uint64_t hash, const exl2k_matrix *m)
{
    for (uint32_t i = 0; i < m->parts && i < EXL2K_PARTS_MAX; i++) {
        const exl2k_part *p = &m->part[i];
        uint64_t chunks = p->chunk_count * sizeof(exl2k_chunk), bias = p->bias ? p->columns * sizeof(float) : 0;
        hash = hash_bytes(hash, fake_model_at(p->chunks, chunks), chunks);
        hash = hash_bytes(hash, fake_model_at(p->base, 16), 16);
        hash = bias ? hash_bytes(hash, fake_model_at(p->bias, bias), bias) : hash;
    }
    return hash;
}

static uint64_t hash_experts(uint64_t address, uint32_t count)
{
    uint64_t hash = 1;
    for (uint32_t i = 0; i < count; i++) {
        const exl2k_expert *e = fake_model_at(address + i * sizeof *e, sizeof *e);
        hash = hash_matrix(hash_matrix(hash, &e->up), &e->down);
    }
    return hash;
}

static uint32_t experts; /* of the model */

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    uint64_t hash = 0;
    if (strncmp(function, "exl2k_shuffle_codes", 19) == 0 || strcmp(function, "exl2k_shuffle_dense") == 0) {
        const exl2k_shuffle_args *a = arguments; /* a sign of the matrix at the begin of its strips */
        if (a->first == 0) {
            memcpy(fake_model_at(a->base, 16), fake_model_at(a->source, 16), 16);
        }
    } else if (strncmp(function, "exl2k_gemm", 10) == 0) {
        hash = hash_matrix(2, &((const exl2k_gemm_args *)arguments)->matrix);
    } else if (strncmp(function, "exl2k_grouped_gemm", 18) == 0) {
        hash = hash_experts(((const exl2k_grouped_gemm_args *)arguments)->experts, experts);
    } else if (strncmp(function, "exl2k_expert1", 13) == 0 || strncmp(function, "exl2k_expert8", 13) == 0) {
        hash = hash_experts(((const exl2k_expert_args *)arguments)->experts, experts);
    }
    uint32_t gpu = (uint32_t)fake.running % 2;
    if (watched && hash && watched->count[gpu] < PRODUCTS_MAX) {
        watched->experts += strncmp(function, "exl2k_gemm", 10) != 0;
        watched->hash[gpu][watched->count[gpu]++] = hash;
    }
    fake_model_run(function, arguments, grid);
}

static exl2_model_desc desc_of(const char *name, uint32_t mlps)
{
    const char *path = strchr(name, '/') ? check_shared(name) : rig_golden(name);
    return (exl2_model_desc){ .path = path, .prefill_chunk = 32, .batch_max = 4,
                              .cache.tokens = 16 * EXL2__PAGE_TOKENS, .cache.no_reuse = true,
                              .cache.full = strcmp(name, "starcoder2") == 0,
                              .offload = mlps ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE, .host_mlps = mlps,
                              .on_event = cuda_hear_load };
}

/* A prompt of four passes, and one of a few rows. */
static void read_prompts(cuda_life *l, const exl2_step_desc *step, products *out)
{
    exl2_token longer[100];
    for (uint32_t i = 0; i < EXL2__COUNT(longer); i++) {
        longer[i] = (exl2_token)(20 + i * 7 % 200);
    }
    memset(out, 0, sizeof *out);
    watched = out;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t rows = i ? 5 : 100;
        CHECK_INT(exl2_session_open(l->e, l->model, &l->a), EXL2_OK);
        exl2_job_desc d = cuda_job(l->a, longer + i, rows, 1, &cuda_said[0]);
        CHECK_INT(exl2_job_start(l->e, &d, NULL), EXL2_OK);
        for (uint32_t n = 0; n < 100000 && exl2_step(l->e, step) != EXL2_IDLE;) {
            n++;
        }
        CHECK(cuda_said[0].done_events == 1 && cuda_said[0].result == EXL2_OK);
        CHECK_INT(exl2_session_close(l->e, l->a), EXL2_OK);
    }
    watched = NULL;
}

/* Whether b follows a somewhere. */
static bool follows(const products *x, uint32_t gpu, uint64_t a, uint64_t b)
{
    uint32_t i = 0;
    while (i + 1 < x->count[gpu] && (x->hash[gpu][i] != a || x->hash[gpu][i + 1] != b)) {
        i++;
    }
    return i + 1 < x->count[gpu];
}

/* Frames have passes of fewer rows, so more of them; but one product follows another as in the other model. */
static void check_same(const char *what, const products *a, const products *b)
{
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        const uint64_t *hash = b->hash[gpu];
        uint32_t i = 1;
        while (i < b->count[gpu] && follows(a, gpu, hash[i - 1], hash[i])) {
            i++;
        }
        bool begins = a->count[gpu] == 0 ? b->count[gpu] == 0 : hash[0] == a->hash[gpu][0];
        if (!CHECK(begins && i >= b->count[gpu])) {
            printf("  %s: %u and %u products of GPU %u, as they must be up to %u\n", what, a->count[gpu],
                   b->count[gpu], gpu, i);
        }
    }
    CHECK(a->count[0] > 0 && b->count[0] > 0);
}

/* The device works late, at once, or late with copies that are as early as they can be; whole passes or frames. */
static void read_in_all_ways(cuda_life *l, const char *name, const products *whole)
{
    static const exl2_step_desc steps[] = { { .wait = true }, { .gpu_us = 1 },
                                            { .cpu_us = 100, .gpu_us = 50, .wait = true } };
    static products now;
    for (uint32_t i = 0; i < 3 * EXL2__COUNT(steps); i++) {
        fake.eager = i % 3 == 1;
        fake.ahead = i % 3 == 2;
        read_prompts(l, &steps[i / 3], &now);
        check_same(name, whole, &now);
    }
    fake.eager = fake.ahead = false;
}

/* ---- one model ---- */

static void model(const char *name, uint32_t mlps, uint32_t cards)
{
    static const exl2_device_desc both[2] = { { .pick = EXL2_PICK_INDEX }, { .pick = EXL2_PICK_INDEX, .index = 1 } };
    static const exl2_card two[2] = { { .device = 0 }, { .device = 1 } };
    static products whole, seen;
    exl2_model_info info, other;
    exl2_engine_stats stats;
    for (uint32_t turn = 0; turn < 3; turn++) { /* without offload; streamed; streamed with keep_packed */
        machine_make();
        fake.run = run;
        fake.device_count = (int)cards;
        fake.devices[1] = fake.devices[0];
        fake.devices[1].uuid[0]++;
        fake.devices[1].luid[0]++;
        exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
        cuda_way_count_memory(&d);
        d.devices = both;
        d.device_count = cards;
        cuda_life l = { .e = NULL };
        exl2_model_desc m = desc_of(name, turn ? mlps : 0);
        m.keep_packed = turn == 2;
        m.cards = cards > 1 ? two : NULL;
        m.card_count = cards > 1 ? 2 : 0;
        CHECK_INT(exl2_open(&d, &l.e), EXL2_OK);
        CHECK_INT(exl2_model_measure(l.e, &m, &other), EXL2_OK);
        exl2_stats(l.e, &stats);
        uint64_t before = stats.host_bytes;
        if (!CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK)) {
            rig_fail(l.e, name, EXL2_ERR_INTERNAL);
        }
        CHECK_INT(exl2_model_get(l.e, l.model, &info), EXL2_OK);
        exl2_stats(l.e, &stats);
        experts = info.experts;
        CHECK(!info.host_prompts && info.host_mlps == (turn ? mlps * cards : 0));
        CHECK(other.weight_bytes == info.weight_bytes && other.device_bytes == info.device_bytes);
        CHECK_INT(stats.device_bytes, info.device_bytes);
        uint64_t planned = info.weight_bytes + info.cache_bytes + info.scratch_bytes - info.device_bytes;
        CHECK(stats.host_peak - before <= planned);
        if (turn == 0) {
            read_prompts(&l, &(exl2_step_desc){ .wait = true }, &whole);
        }
        read_in_all_ways(&l, name, &whole);
        CHECK((whole.experts > 0) == (experts > 0));
        if (turn) {
            CHECK_INT(exl2_model_park(l.e, l.model, true), EXL2_OK);
            CHECK_INT(fake.allocated, 0);
            CHECK_INT(cuda_load_again(l.e, l.model), EXL2_OK);
            read_prompts(&l, &(exl2_step_desc){ .wait = true }, &seen);
            check_same("after parking", &whole, &seen);
            exl2_engine_stats again;
            exl2_stats(l.e, &again);
            CHECK(again.device_bytes == stats.device_bytes && again.host_bytes == stats.host_bytes);
        }
        exl2_close(l.e);
        CHECK_INT(cuda_way_host_bytes, 0);
        machine_end();
    }
}

/* ---- caps ---- */

static exl2_model_info got;

/* Loads within caps, 0: none. Returns the number of MLPs that the CPU has, or the error. */
static int load_within(const char *name, uint64_t device_cap, uint64_t host_cap, uint32_t mlps, bool host_prompts)
{
    exl2_engine *e = NULL;
    exl2_engine_stats stats;
    exl2_model loaded;
    uint64_t open_bytes = 0;
    exl2_result r = EXL2_OK;
    for (uint32_t turn = 0; turn < 2; turn++) { /* first it learns what an engine needs */
        machine_make();
        exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
        d.device_bytes_max = device_cap;
        d.host_bytes_max = turn && host_cap ? open_bytes + host_cap : 0;
        CHECK_INT(exl2_open(&d, &e), EXL2_OK);
        exl2_stats(e, &stats);
        open_bytes = stats.host_bytes;
        exl2_model_desc m = desc_of(name, mlps);
        m.offload = EXL2_OFFLOAD_AUTO;
        m.host_prompts = host_prompts;
        r = turn ? exl2_model_load(e, &m, &loaded) : EXL2_OK;
        if (turn && r >= 0) {
            CHECK_INT(exl2_model_get(e, loaded, &got), EXL2_OK);
            exl2_stats(e, &stats);
            CHECK(!device_cap || (fake.most <= device_cap && stats.device_peak <= device_cap));
            CHECK(!host_cap || stats.host_peak <= open_bytes + host_cap);
            CHECK_INT(stats.device_bytes, got.device_bytes);
        }
        exl2_close(e);
        machine_end();
    }
    return r < 0 ? r : (int)got.host_mlps;
}

static uint64_t host_needs(void)
{
    return got.weight_bytes + got.cache_bytes + got.scratch_bytes - got.device_bytes;
}

/* As many MLPs on the CPU as the desc says, if there is room for areas; else prompts have the CPU. */
static void caps(const char *name, uint32_t layers, uint32_t areas)
{
    uint64_t device[2][8] = { { 0 } }, host[2] = { 0 };
    for (uint32_t n = 1; n <= layers; n++) {
        for (uint32_t by_host = 0; by_host < 2; by_host++) {
            CHECK_INT(load_within(name, 0, 0, n, by_host), n);
            CHECK_INT(got.host_prompts, by_host || n <= areas);
            CHECK_INT(got.cards[0].host_prompts, got.host_prompts);
            device[by_host][n] = got.device_bytes;
            host[by_host] = host_needs();
        }
        if (n <= areas) {
            CHECK(device[0][n] == device[1][n] && host[0] == host[1]);
            continue;
        }
        CHECK(device[0][n] > device[1][n] && host[0] > host[1]);
        CHECK_INT(load_within(name, device[0][n], 0, n, false), n);
        CHECK(!got.host_prompts);
        CHECK_INT(load_within(name, device[0][n] - 1, 0, n, false), n);
        CHECK(got.host_prompts && got.device_bytes == device[1][n]);
        CHECK_INT(load_within(name, 0, host[0], n, false), n);
        CHECK(!got.host_prompts);
        CHECK_INT(load_within(name, 0, host[0] - 1, n, false), n);
        CHECK(got.host_prompts && host_needs() == host[1]);
        CHECK_INT(load_within(name, 0, host[1] - 1, n, false), EXL2_ERR_BUDGET);
    }
    for (uint32_t n = 1; n <= layers; n++) { /* the fewest: fewer than twice as many for areas, too */
        uint32_t more = n;
        while (more <= layers && (more <= areas || device[0][more] > device[1][n])) {
            more++;
        }
        bool streams = more <= layers && more < 2 * n;
        CHECK_INT(load_within(name, device[1][n], 0, 0, false), streams ? more : n);
        CHECK_INT(got.host_prompts, !streams);
        CHECK_INT(load_within(name, device[1][n], 0, 0, true), n);
        CHECK(got.host_prompts);
    }
}

static void refusals(void)
{
    machine_make();
    exl2_engine *e = cuda_open();
    exl2_model_desc m = desc_of("exl2-mixed", 0);
    exl2_model_info info;
    m.host_prompts = true;
    CHECK_INT(exl2_model_measure(e, &m, &info), EXL2_ERR_ARG);
    exl2_close(e);
    machine_end();
}

/* ---- saves ---- */

/* K and V of prompts depend on what computes them: they are restored where that is the same. */
static void saves(void)
{
    static uint8_t saved[1u << 20];
    size_t bytes = 0;
    for (uint32_t turn = 0; turn < 3; turn++) {
        machine_make();
        fake.run = run;
        cuda_life l = { .e = cuda_open() };
        exl2_model_desc m = desc_of("exl2-mixed", 2);
        exl2_session_info info;
        m.host_prompts = turn == 2;
        CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK);
        CHECK_INT(exl2_session_open(l.e, l.model, &l.a), EXL2_OK);
        if (turn == 0) {
            exl2_job_desc d = cuda_job(l.a, cuda_prompt, 8, 9, &cuda_said[0]);
            CHECK_INT(cuda_run(&l, &d, 1), EXL2_OK);
            CHECK_INT(exl2_session_save(l.e, l.a, EXL2_SAVE_KV, saved, sizeof saved, &bytes), EXL2_OK);
        } else {
            CHECK_INT(exl2_session_restore(l.e, l.a, saved, bytes), EXL2_OK);
            CHECK_INT(exl2_session_get(l.e, l.a, &info), EXL2_OK);
            CHECK_INT(info.tokens_cached, turn == 1 ? 16 : 0);
        }
        exl2_close(l.e);
        machine_end();
    }
}

/* ---- faults ---- */

static bool life(const cuda_way *w, uint32_t n)
{
    machine_make();
    fake.run = run;
    cuda_way_set(w);
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    cuda_life l = { .late = w->late };
    cuda_way_count_memory(&d);
    CHECK_INT(exl2_open(&d, &l.e), EXL2_OK);
    cuda_way_fail(w, n);
    exl2_result r = cuda_use(&l);
    bool failed = cuda_way_failed();
    cuda_way_end(w, n, &l, r, failed);
    return failed;
}

/* Every number of MLPs that needs areas, and caps. */
static void all_of(const char *name)
{
    exl2_model_info info;
    machine_make();
    exl2_engine *e = cuda_open();
    exl2_model_desc m = desc_of(name, 0);
    CHECK_INT(exl2_model_measure(e, &m, &info), EXL2_OK);
    exl2_close(e);
    machine_end();
    uint32_t areas = info.experts ? 2 : 1;
    for (uint32_t mlps = areas + 1; mlps <= info.layers; mlps++) {
        model(name, mlps, 1);
    }
    if (info.layers >= 2 * (areas + 1)) {
        model(name, areas + 1, 2);
    }
    if (CHECK(info.layers < 8)) {
        caps(name, info.layers, areas);
    }
}

int main(void)
{
    static const cuda_way bad[] = {
        { "device allocations", "cuMemAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "pinned allocations", "cuMemHostAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "host allocations", NULL, 0, 0, true, false, true, 1 },
        { "calls", NULL, 1, 11, true, false, false, 5 * STRIDE },
        { "calls of a late device", NULL, 1, 11, false, true, false, 11 * STRIDE },
        { "faults", "cuStreamWaitEvent", EXL2__CUDA_ILLEGAL_ADDRESS, 1, true, false, false, 3 },
    };
    static const char *const models[] = { "exl2-mixed", "cohere", "gemma2", "starcoder2", "mixed-kinds", "awq",
                                          "smollm3", "granite" };
    machine_drop_cache();
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        all_of(models[i]);
    }
    refusals();
    saves();
    cuda_host_mlps = 2;
    cuda_ways_good(life);
    cuda_ways_sweep(life, bad, EXL2__COUNT(bad));
    all_of("fixtures/arch/qwen2-moe"); /* with experts, and a shared one; the other's first layer has none */
    all_of("fixtures/arch/glm4-moe");
    machine_drop_cache();
    fake_reset();
    return check_done();
}
