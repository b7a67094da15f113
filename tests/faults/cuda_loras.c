/* cuda_loras.c: adapters over the fake driver: memory as it was predicted, what launches find in the tables of the
   adapters, text of the fake model with and without, closing, loading again, parking; models of one span and of two;
   products by wgmma. Adapters of routers and experts, also in EXL3, and of matrices whose parts order their inputs
   differently. */
#define _GNU_SOURCE /* mkdtemp */
#include "cuda_rig.h"

#include "../adapter_maker.h"

#include "../../kernels_src/exl3_expert_args.h"
#include "../../kernels_src/gather_args.h"
#include "../../kernels_src/lora_experts_args.h"
#include "../../kernels_src/lora_wg_args.h"
#include "../../kernels_src/route_args.h"

#include <unistd.h>

static rig_said said[6];

static const char *adapter(const char *name)
{
    static char path[2][1100];
    static uint32_t next;
    char *out = path[next++ % 2];
    snprintf(out, sizeof path[0], "%s/fixtures/lora/exl2-mixed/%s", check_env("EXL2_TEST_DATA"), name);
    return out;
}

static exl2_result load_model(exl2_engine *e, uint32_t loras, bool keep_packed, exl2_model *out)
{
    exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .prefill_chunk = 32, .batch_max = 4, .lora_max = loras,
                          .keep_packed = keep_packed };
    d.cache.tokens = 16 * EXL2__PAGE_TOKENS;
    return exl2_model_load(e, &d, out);
}

static uint32_t fused, many; /* products of sampled rows with adapters; launches for rows of prompts */
static uint32_t experts;     /* launches for experts */
static uint32_t routers;     /* launches whose outputs are logits of routers */
static uint32_t added;       /* products of experts in EXL3 that add what adapters add */
static uint32_t apart;       /* products whose adapters read another order of inputs */
static uint64_t expert_adds; /* what adapters add to gate and up of experts */
static uint64_t route_logits;
static uint32_t by_wg;       /* products by wgmma with adapters, */
static exl2k_lora_wg_args t_of_it; /* and what the kernel before one got */

/* The adapter of a slot, as a launch sees it: its numbers are in memory that is allocated. */
static void check_slot(uint64_t tables, uint32_t table, uint32_t place, uint32_t parts, uint32_t in, uint32_t slot)
{
    uint64_t at = tables + ((uint64_t)slot * table + place) * sizeof(exl2k_lora_matrix);
    const exl2k_lora_matrix *m = fake_memory(at, parts * sizeof *m);
    CHECK(m != NULL);
    for (uint32_t i = 0; m && i < parts; i++) {
        CHECK(m[i].rank <= 64);
        CHECK(m[i].rank == 0 || fake_memory(m[i].a, (uint64_t)m[i].rank * exl2__align_up(in, 16) * 2));
        CHECK(m[i].rank == 0 || fake_memory(m[i].b, (uint64_t)m[i].rank * 32 * 2));
    }
}

static void check_fused(const exl2k_lora_gemv_args *a)
{
    const exl2k_lora_pass *pass = fake_memory(a->pass, sizeof *pass);
    uint32_t uses = 0, scaled = 0;
    fused++;
    CHECK(pass && pass->count >= 1 && pass->count <= a->slots);
    for (uint32_t i = 0; pass && i < pass->count; i++) {
        check_slot(a->tables, a->table, a->place, a->gemv.matrix.parts, a->in, pass->slots[i]);
        for (uint32_t row = 0; row < EXL2K_LORA_ROWS; row++) {
            uses += pass->users[i] >> row & 1;
        }
        uint64_t at = a->tables + ((uint64_t)pass->slots[i] * a->table + a->place) * sizeof(exl2k_lora_matrix);
        const exl2k_lora_matrix *of = fake_memory(at, a->gemv.matrix.parts * sizeof *of);
        for (uint32_t part = 0; of && part < a->gemv.matrix.parts; part++) {
            CHECK(a->gemv.matrix.adapted || of[part].rank == 0);
        }
    }
    for (uint32_t i = 0; pass && i < pass->count * EXL2K_LORA_ROWS; i++) {
        float scale = pass->scale[i / EXL2K_LORA_ROWS][i % EXL2K_LORA_ROWS];
        scaled += scale > 0 || scale < 0;
    }
    CHECK(uses > 0 && uses == scaled);
    CHECK(a->x && fake_memory(a->x, a->in * sizeof(uint16_t)));
    apart += a->x != a->gemv.x;
}

/* Sets of `rows` rows of prompts. Returns the most adapters of one. */
static uint32_t check_sets(const exl2k_lora_wg_args *a)
{
    const uint16_t *row_sets = fake_memory(a->row_sets, a->rows * sizeof *row_sets);
    uint32_t uses = 0;
    for (uint32_t row = 0; CHECK(row_sets != NULL) && row < a->rows; row++) {
        const exl2k_lora_set *set = fake_memory(a->sets + (row_sets[row] - 1u) * sizeof *set, sizeof *set);
        CHECK(row_sets[row] > 0 && set && set->count <= EXL2K_LORA_USES);
        for (uint32_t i = 0; set && i < set->count; i++) {
            check_slot(a->tables, a->table, a->place, a->parts, a->in, set->slots[i]);
        }
        uses = set && set->count > uses ? set->count : uses;
    }
    return uses;
}

static void check_many(const exl2k_lora_rows_args *a)
{
    const exl2k_lora_wg_args of = { .row_sets = a->row_sets, .sets = a->sets, .tables = a->tables, .rows = a->rows,
                                    .table = a->table, .place = a->place, .parts = a->parts, .in = a->in };
    many++;
    routers += route_logits && a->out == route_logits;
    CHECK(check_sets(&of) <= a->uses);
}

/* t of products by wgmma: there is memory for the blocks of all uses, and for 8 rows of zeros. */
static void check_wg_t(const exl2k_lora_wg_args *a)
{
    uint32_t uses = check_sets(a);
    const uint8_t *zeros = fake_memory(a->zeros, EXL2K_LORA_WG_ZEROS);
    t_of_it = *a;
    many++;
    CHECK(a->tile_rows % 8 == 0 && a->tile_rows >= a->rows && a->in % 32 == 0 && a->blocks == 4);
    CHECK(fake_memory(a->t, (uint64_t)uses * a->parts * a->blocks * a->tile_rows * 128) != NULL);
    CHECK(fake_memory(a->row_sets, a->tile_rows * 2) && fake_memory(a->x, (uint64_t)a->tile_rows * a->in * 2));
    for (uint32_t i = 0; CHECK(zeros != NULL) && i < EXL2K_LORA_WG_ZEROS; i++) {
        CHECK(zeros[i] == 0);
    }
}

static void check_wg(const exl2k_gemm_lora_args *a)
{
    by_wg++;
    CHECK(memcmp(&a->lora, &t_of_it, sizeof t_of_it) == 0);
    CHECK(a->gemm.x == t_of_it.x && a->gemm.x_pitch == t_of_it.tile_rows && a->gemm.rows == t_of_it.rows);
}

static uint32_t expert_slot; /* 1 + slot of the one adapter that experts have; 0: any */

/* A slice of rows: what is added to each expert that a row may choose. */
static void check_experts(const exl2k_lora_experts_args *a)
{
    const uint32_t *rows = fake_memory(a->rows.rows_at, sizeof *rows);
    experts++;
    CHECK(rows && a->rows.first < *rows && a->parts == (a->down ? 1 : 2));
    for (uint32_t i = 0; rows && i < EXL2K_EXPERT_ROWS && a->rows.first + i < *rows; i++) {
        const uint16_t *set = fake_memory(a->row_sets + (a->rows.first + i) * sizeof *set, sizeof *set);
        uint64_t at = a->sets + (set && *set ? *set - 1u : 0) * sizeof(exl2k_lora_set);
        const exl2k_lora_set *uses = set && *set ? fake_memory(at, sizeof *uses) : NULL;
        CHECK(uses && uses->count > 0 && (!expert_slot || (uses->count == 1 && uses->slots[0] + 1u == expert_slot)));
        for (uint32_t u = 0; uses && u < uses->count; u++) {
            for (uint32_t e = 0; e < a->rows.count; e++) {
                check_slot(a->tables, a->table, a->place + e * a->step, a->parts, a->in, uses->slots[u]);
            }
        }
    }
    uint64_t slots = EXL2K_EXPERT_ROWS * a->rows.active, outs = a->down ? *rows * a->out_pitch : slots * 2 * a->columns;
    CHECK(fake_memory(a->t, slots * a->uses * a->parts * a->rank_stride * 4) && fake_memory(a->out, outs * 4));
    expert_adds = a->down ? expert_adds : a->out;
}

/* A slice of rows of experts in EXL3: gate and up get what the launch before has computed. */
static void check_expert_exl3(const exl2k_exl3_expert_args *a)
{
    const uint32_t *rows = fake_memory(a->product.rows_at, sizeof *rows);
    if (a->added) {
        added++;
        CHECK(a->product.kind == EXL2K_EXL3_ACT && a->added == expert_adds && a->product.rows <= EXL2K_EXPERT_ROWS);
    }
    CHECK(rows && a->product.before < *rows && a->product.before % EXL2K_EXPERT_ROWS == 0);
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    bool product = strncmp(function, "exl2k_gemv", 10) == 0;
    if (product && strstr(function, "_lora")) {
        check_fused((const exl2k_lora_gemv_args *)arguments);
    } else if (strncmp(function, "exl2k_gemm_wg", 13) == 0 && strstr(function, "_lora")) {
        check_wg((const exl2k_gemm_lora_args *)arguments);
    } else if (strncmp(function, "exl2k_lora_wg_t", 15) == 0) {
        check_wg_t((const exl2k_lora_wg_args *)arguments);
    } else if (strncmp(function, "exl2k_lora_experts", 18) == 0) {
        check_experts((const exl2k_lora_experts_args *)arguments);
    } else if (strncmp(function, "exl2k_lora", 10) == 0) {
        check_many((const exl2k_lora_rows_args *)arguments);
    } else if (strncmp(function, "exl2k_exl3_expert8", 18) == 0 || strncmp(function, "exl2k_exl3_expert16", 19) == 0) {
        check_expert_exl3((const exl2k_exl3_expert_args *)arguments);
    } else if (strcmp(function, "exl2k_route_many") == 0) {
        route_logits = ((const exl2k_route_args *)arguments)->logits;
    }
    fake_model_run(function, arguments, grid);
}

static exl2_engine_stats stats_of(exl2_engine *e)
{
    exl2_engine_stats stats;
    exl2_stats(e, &stats);
    return stats;
}

/* Jobs with a, b, both and none beside each other. */
static void run_jobs(exl2_engine *e, exl2_model model, exl2_lora a, exl2_lora b)
{
    const exl2_lora_use uses[2] = { { a, 1 }, { b, 0.5f } };
    exl2_session sessions[6];
    for (uint32_t i = 0; i < 6; i++) {
        CHECK_INT(exl2_session_open(e, model, &sessions[i]), EXL2_OK);
        exl2_job_desc d = cuda_job(sessions[i], cuda_prompt, EXL2__COUNT(cuda_prompt), 20, &said[i]);
        d.loras = uses + (i % 4 == 2);
        d.lora_count = i % 4 == 3 ? 2 : i % 4 > 0;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    }
    for (uint32_t i = 0; i < 10000 && exl2_step(e, &(exl2_step_desc){ .wait = true }) != EXL2_IDLE; i++) {
    }
    for (uint32_t i = 0; i < 6; i++) {
        if (!CHECK(said[i].done_events == 1 && said[i].result == EXL2_OK)) {
            printf("  job %u: %s\n", i, said[i].error);
        }
        cuda_expect_history(e, sessions[i], EXL2__COUNT(cuda_prompt), EXL2__COUNT(cuda_prompt) + 20);
        CHECK_INT(exl2_session_close(e, sessions[i]), EXL2_OK);
    }
}

/* hopper: the GPU has wgmma. */
static void check_use(bool keep_packed, bool hopper)
{
    machine_make();
    fake.run = run;
    fused = many = by_wg = 0;
    if (hopper) {
        fake.devices[0].arch_major = 9;
        fake.devices[0].arch_minor = 0;
        fake.devices[0].shared_optin = 232448;
    }
    exl2_engine *e = cuda_open();
    exl2_model model;
    exl2_lora a, b;
    exl2_lora_info info;
    CHECK_INT(load_model(e, 2, keep_packed, &model), EXL2_OK);
    exl2_engine_stats before = stats_of(e), loaded;
    exl2_lora_desc d = { .model = model, .path = adapter("a") };
    CHECK_INT(exl2_lora_measure(e, &d, &info), EXL2_OK);
    CHECK_INT(exl2_lora_load(e, &d, &a), EXL2_OK);
    loaded = stats_of(e);
    CHECK_INT(loaded.device_bytes - before.device_bytes, info.device_bytes);
    CHECK_INT(loaded.host_bytes - before.host_bytes, info.bytes - info.device_bytes);
    d.path = adapter("b");
    CHECK_INT(exl2_lora_load(e, &d, &b), EXL2_OK);
    loaded = stats_of(e);
    run_jobs(e, model, a, b);
    CHECK_INT(stats_of(e).allocations, loaded.allocations);
    CHECK(many > 0 && fused > 0 && fused % 8 == 0); /* four products of two layers */
    CHECK_INT(by_wg, hopper ? many : 0);
    CHECK_INT(exl2_lora_close(e, a), EXL2_OK);
    d.path = adapter("a");
    CHECK_INT(exl2_lora_load(e, &d, &a), EXL2_OK);
    run_jobs(e, model, a, b);
    CHECK_INT(exl2_model_park(e, model, true), EXL2_OK);
    CHECK(stats_of(e).device_bytes < before.device_bytes);
    CHECK_INT(exl2_model_park(e, model, false), EXL2_OK);
    for (uint32_t i = 0; i < 100000 && exl2_model_state(e, model) == EXL2_PENDING; i++) {
        exl2_step(e, NULL);
    }
    CHECK_INT(exl2_model_state(e, model), EXL2_OK);
    CHECK_INT(stats_of(e).device_bytes, loaded.device_bytes);
    run_jobs(e, model, a, b);
    CHECK_INT(exl2_lora_close(e, a), EXL2_OK);
    CHECK_INT(exl2_lora_close(e, b), EXL2_OK);
    CHECK_INT(stats_of(e).device_bytes, before.device_bytes);
    CHECK_INT(exl2_model_close(e, model), EXL2_OK);
    CHECK_INT(stats_of(e).device_bytes, 0);
    exl2_close(e);
    machine_end();
}

#define PROMPT 100u
#define SPOKEN 9u

/* A job with an adapter, whose prompt another one has computed, is saved after `polls` steps that do not wait, or once
   it has said SPOKEN tokens, and goes on from the snapshot. K and V of all that it has said come back, but of the last
   token, which has no row yet; before its first token those of whole pages that were found. Returns what came back. */
static uint32_t check_saved(exl2_engine *e, exl2_model model, const exl2_lora_use *use, uint32_t polls)
{
    static uint8_t saved[1u << 20];
    exl2_token prompt[PROMPT];
    exl2_session s[3];
    exl2_session_info info;
    size_t bytes;
    for (uint32_t i = 0; i < PROMPT; i++) {
        prompt[i] = (exl2_token)(20 + i * 7 % 200);
    }
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(exl2_session_open(e, model, &s[i]), EXL2_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job_desc d = cuda_job(s[i], prompt, PROMPT, SPOKEN + 11, &said[i]);
        said[i].stop_after = i * SPOKEN;
        said[i].flow = EXL2_PAUSE_JOB;
        d.loras = use;
        d.lora_count = 1;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        for (uint32_t k = 0; k < (i ? polls : UINT32_MAX) && said[i].text_events < (i ? SPOKEN : UINT32_MAX); k++) {
            if (exl2_step(e, &(exl2_step_desc){ .wait = i == 0 }) == EXL2_IDLE) {
                break;
            }
        }
    }
    CHECK_INT(exl2_session_save(e, s[1], EXL2_SAVE_KV, saved, sizeof saved, &bytes), EXL2_OK);
    uint32_t before = said[1].count; /* restoring ends the pass that is under way, which may say one more */
    CHECK_INT(exl2_session_restore(e, s[2], saved, bytes), EXL2_OK);
    CHECK_INT(exl2_session_get(e, s[2], &info), EXL2_OK);
    CHECK(info.tokens_cached >= (before ? PROMPT + before - 1 : PROMPT / 64 * 64));
    exl2_job_desc d = cuda_job(s[2], NULL, 0, 0, &said[2]);
    d.loras = use;
    d.lora_count = 1;
    d.resume = true;
    if (info.resumes) { /* it had begun */
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        CHECK_INT(exl2_session_close(e, s[1]), EXL2_OK);
        cuda_step_all(e, false, 0);
        CHECK_INT(before + said[2].count, said[0].count);
        CHECK(memcmp(said[2].ids, said[0].ids + before, said[2].count * sizeof *said[2].ids) == 0);
        cuda_expect_history(e, s[2], PROMPT, PROMPT + SPOKEN + 11);
    } else {
        CHECK_INT(exl2_session_close(e, s[1]), EXL2_OK);
    }
    CHECK_INT(exl2_session_close(e, s[0]), EXL2_OK);
    CHECK_INT(exl2_session_close(e, s[2]), EXL2_OK);
    return info.tokens_cached;
}

static void check_saves(void)
{
    machine_make();
    fake.run = run;
    exl2_engine *e = cuda_open();
    exl2_model model;
    exl2_lora a;
    CHECK_INT(load_model(e, 2, false, &model), EXL2_OK);
    exl2_lora_desc d = { .model = model, .path = adapter("a") };
    CHECK_INT(exl2_lora_load(e, &d, &a), EXL2_OK);
    const exl2_lora_use use = { a, 1 };
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t polls = 1; polls < 600; polls += 1 + polls / 8) {
        uint32_t cached = check_saved(e, model, &use, polls);
        least = cached < least ? cached : least;
        most = cached > most ? cached : most;
    }
    CHECK_INT(least, PROMPT / 64 * 64); /* the first pass was under way, which copies K and V of the rest */
    CHECK_INT(check_saved(e, model, &use, UINT32_MAX), PROMPT + SPOKEN - 1);
    CHECK(most > PROMPT);
    exl2_close(e);
    machine_end();
}

/* Opens a model of the fixtures. */
static exl2_model open_fixture(exl2_engine *e, const char *name)
{
    static char path[1100];
    exl2_model model = { 0 };
    exl2_model_info info;
    snprintf(path, sizeof path, "%s/fixtures/%s", check_env("EXL2_TEST_DATA"), name);
    exl2_model_desc m = { .path = path, .prefill_chunk = 32, .batch_max = 4, .lora_max = 2 };
    m.cache.tokens = 16 * EXL2__PAGE_TOKENS;
    CHECK_INT(exl2_model_measure(e, &m, &info), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &m, &model), EXL2_OK);
    CHECK_INT(stats_of(e).device_bytes, info.device_bytes);
    return model;
}

static exl2_lora load_from(exl2_engine *e, exl2_model model, const char *path)
{
    exl2_lora lora = { 0 };
    exl2_lora_desc d = { .model = model, .path = path };
    exl2_error error;
    if (!CHECK(exl2_lora_load(e, &d, &lora) == EXL2_OK)) {
        exl2_last_error(e, &error);
        printf("  %s: %s\n", path, error.text);
    }
    return lora;
}

static exl2_lora load_fixture(exl2_engine *e, exl2_model model, const char *name)
{
    static char path[1100];
    snprintf(path, sizeof path, "%s/fixtures/lora/%s", check_env("EXL2_TEST_DATA"), name);
    return load_from(e, model, path);
}

/* An adapter of these matrices. */
static exl2_lora load_made(exl2_engine *e, exl2_model model, const adapter_matrix *matrices, uint32_t count)
{
    char folder[] = "/tmp/exl2_lora_XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    adapter_write(folder, matrices, count);
    exl2_lora lora = load_from(e, model, folder);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? "adapter_config.json" : "adapter_model.safetensors");
        CHECK_INT(remove(path), 0);
    }
    CHECK_INT(rmdir(folder), 0);
    return lora;
}

/* Adapters of experts and of routers: in passes of few rows and in prompts, beside jobs without. */
static void check_expert_use(void)
{
    machine_make();
    fake.run = run;
    experts = many = 0;
    exl2_engine *e = cuda_open();
    exl2_model model = open_fixture(e, "arch/mixtral");
    exl2_lora a = load_fixture(e, model, "experts/a"), b = load_fixture(e, model, "experts/b");
    exl2_engine_stats loaded = stats_of(e);
    run_jobs(e, model, a, b);
    CHECK(experts > 0 && experts % 4 == 0);
    CHECK(routers > 0 && routers % 2 == 0); /* of two layers */
    CHECK_INT(stats_of(e).allocations, loaded.allocations);
    exl2_close(e);
    machine_end();
}

/* Rows of prompts whose adapters add to experts never share a pass with others: these would go through the experts as
   theirs do. */
static void check_expert_turns(void)
{
    static const adapter_matrix of_expert = { "model.layers.1.block_sparse_moe.experts.2.w1", 32, 64 };
    static const adapter_matrix of_attention = { "model.layers.0.self_attn.q_proj", 64, 64 };
    machine_make();
    fake.run = run;
    exl2_engine *e = cuda_open();
    exl2_model model = open_fixture(e, "arch/mixtral");
    exl2_lora a = load_made(e, model, &of_expert, 1), b = load_made(e, model, &of_attention, 1);
    const exl2_lora_use uses[2] = { { a, 1 }, { b, 1 } };
    exl2_session sessions[4];
    experts = 0;
    for (uint32_t i = 0; i < 4; i++) { /* the first one gets slot 0 */
        CHECK_INT(exl2_session_open(e, model, &sessions[i]), EXL2_OK);
        exl2_job_desc d = cuda_job(sessions[i], cuda_prompt, EXL2__COUNT(cuda_prompt), 1, &said[i]);
        d.prefill_only = true;
        d.loras = &uses[i % 2];
        d.lora_count = 1;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        expert_slot = 1;
        i == 0 ? cuda_step_all(e, false, 0) : (void)0;
    }
    cuda_step_all(e, false, 0);
    CHECK(experts > 4);
    expert_slot = 0;
    exl2_close(e);
    machine_end();
}

/* Experts in EXL3, and their router. */
static void check_expert_exl3_use(void)
{
    static const adapter_matrix of_a[] = {
        { "model.layers.0.block_sparse_moe.gate", 4, 128 },
        { "model.layers.0.block_sparse_moe.experts.1.w1", 128, 128 },
        { "model.layers.1.block_sparse_moe.experts.3.w2", 128, 128 }
    };
    static const adapter_matrix of_b[] = { { "model.layers.1.block_sparse_moe.experts.0.w3", 128, 128 } };
    machine_make();
    fake.run = run;
    experts = routers = added = 0;
    exl2_engine *e = cuda_open();
    exl2_model model = open_fixture(e, "exl3/exl3-mixtral");
    exl2_lora a = load_made(e, model, of_a, 3), b = load_made(e, model, of_b, 1);
    exl2_engine_stats loaded = stats_of(e);
    run_jobs(e, model, a, b);
    CHECK(experts > 0 && experts % 4 == 0 && routers > 0 && added > 0 && added % 2 == 0);
    CHECK_INT(stats_of(e).allocations, loaded.allocations);
    exl2_close(e);
    machine_end();
}

/* q, k and v, gate and up that order their inputs differently: A reads rows in the order of the file. */
static void check_apart_use(void)
{
    machine_make();
    fake.run = run;
    fused = many = apart = 0;
    exl2_engine *e = cuda_open();
    exl2_model model = open_fixture(e, "exl2/gptq-act-order");
    exl2_lora a = load_fixture(e, model, "gptq-act-order/a"), b = load_fixture(e, model, "gptq-act-order/a");
    run_jobs(e, model, a, b);
    CHECK(apart > 0 && apart < fused && many > 0);
    exl2_close(e);
    machine_end();
}

static uint32_t cut(uint32_t layers, uint32_t *ends)
{
    ends[0] = 1;
    ends[1] = layers;
    return 2;
}

int main(void)
{
    check_shared("fixtures/lora/README.md");
    machine_drop_cache();
    check_use(false, false);
    check_use(true, false);
    check_use(false, true);
    engine_rig.spans = cut;
    check_use(false, false);
    check_use(true, false);
    check_use(false, true);
    engine_rig.spans = NULL;
    check_expert_use();
    check_expert_turns();
    check_expert_exl3_use();
    check_apart_use();
    check_saves();
    machine_drop_cache();
    fake_reset();
    return check_done();
}
