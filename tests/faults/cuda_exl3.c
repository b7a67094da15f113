/* cuda_exl3.c: models of EXL3 on the fake GPU: what they are planned to need and use, parking and loading again,
   prompts whose strips are decoded once, experts, EXL3 beside other kinds, what is rejected, adapters and control
   vectors.
   takes: $EXL2_TEST_DATA: fixtures/exl3.
   gives: exit code 0, 1, or 77 without the fixtures. */
#define _GNU_SOURCE /* mkdtemp */
#include "../adapter_maker.h"
#include "cuda_rig.h"

#include "../mixed_model.h"

#include <unistd.h>

static const char *folder; /* of the models */
static mixed_model mixed;  /* the model "mixed" */
static uint32_t products, many, crowds, embeddings, experts, grouped; /* launches of EXL3 kernels; crowds: 17 to 64
                                                                          rows; grouped: experts, many rows */

/* All memory that a product with experts may touch belongs to the model. */
static void check_experts(const exl2k_exl3_expert_args *x, bool few, uint32_t tile_rows, const unsigned grid[3])
{
    const exl2k_exl3_args *a = &x->product;
    uint64_t slots = (uint64_t)a->rows * x->active, outs = a->kind == EXL2K_EXL3_RESIDUAL ? a->rows : slots;
    uint64_t size = a->kind == EXL2K_EXL3_ACT || a->out_half ? 2 : 4;
    CHECK(fake_memory(x->experts, (uint64_t)x->count * EXL2K_EXL3_EXPERT_PARTS * sizeof(exl2k_exl3_part)) != NULL);
    CHECK(fake_memory(a->out, outs * a->out_pitch * size) != NULL);
    CHECK_INT(a->blocks, (a->in + 127) / 128);
    if (!few) {
        CHECK(fake_memory(a->rotated, (slots + tile_rows) * a->blocks * 256) != NULL);
        CHECK(grid[0] == x->strips && x->part < EXL2K_EXL3_EXPERT_PARTS);
        return;
    }
    bool down = a->kind == EXL2K_EXL3_RESIDUAL;
    CHECK(grid[0] == x->strips * a->parts && grid[1] == slots * a->splits && slots <= 16 * x->active);
    CHECK(fake_memory(a->partial, grid[0] * a->splits * slots * 512) != NULL);
    CHECK(fake_memory(a->tickets, (down ? 1 : slots) * x->strips * 4) != NULL);
    CHECK(fake_memory(a->x, (down ? slots : a->rows) * a->x_pitch * 2) != NULL);
}

/* So does the memory of the sums that CTAs of a strip exchange: `rows` rows of 128 floats, unless a CTA is alone. */
static void check_sums(const exl2k_exl3_args *a, uint32_t rows)
{
    uint64_t strips = 0;
    for (uint32_t i = 0; i < a->parts; i++) {
        strips += a->part[i].out / 128;
    }
    bool alone = rows == a->rows && !(a->kind == EXL2K_EXL3_ACT && a->parts == 2); /* one split */
    if (rows > 0 && !alone) {
        CHECK(fake_memory(a->partial, strips * rows * 512) != NULL);
        CHECK(fake_memory(a->tickets, strips * 4) != NULL);
    }
}

static struct wides {
    uint32_t strips, products, turned, norms, rotates; /* launches; turned: products that transform for down */
    uint64_t decoded, bytes, before; /* what strips were decoded last, and where those of the product before lay */
    bool early; /* a launch decoded where strips of the product before lay */
} wides;

/* Strips of a prompt that are decoded, and the product that reads them. */
static void check_wide(const char *function, const exl2k_exl3_args *a, const unsigned grid[3])
{
    uint64_t bytes = 0, row_bytes = (uint64_t)a->rotated_rows * a->blocks * 256;
    for (uint32_t i = a->first; i < a->first + a->count; i++) {
        bytes += (uint64_t)a->part[i].out / 128 * a->blocks * 2 * EXL2K_EXL3_WIDE_STRIP;
    }
    CHECK(fake_memory(a->decoded, bytes) != NULL);
    if (strcmp(function, "exl2k_exl3_wide") != 0) {
        CHECK_INT(grid[0], bytes / (a->blocks * 2 * EXL2K_EXL3_WIDE_STRIP));
        CHECK_INT(grid[1], (a->blocks * 2 + EXL2K_EXL3_STRIPS_STAGES - 1) / EXL2K_EXL3_STRIPS_STAGES);
        wides.early = wides.early || a->decoded == wides.before;
        wides.strips++;
        wides.bytes = wides.decoded + wides.bytes == a->decoded ? wides.bytes + bytes : bytes;
        wides.decoded = a->decoded + bytes - wides.bytes;
        return;
    }
    CHECK(grid[0] == a->rotated_rows / 256 && a->rotated_rows % 256 == 0 && a->rows >= EXL2__CUDA_EXL3_WIDE_ROWS);
    CHECK(a->decoded == wides.decoded && bytes == wides.bytes); /* these strips were decoded for it */
    CHECK(fake_memory(a->rotated, a->parts * row_bytes) != NULL);
    CHECK(a->next_suh == 0 || fake_memory(a->next_rotated, (uint64_t)a->rotated_rows * a->next_blocks * 256) != NULL);
    CHECK(a->next_suh == 0 || a->next_rotated >= a->rotated + a->parts * row_bytes);
    wides.turned += a->next_suh != 0;
    wides.before = a->decoded;
    wides.bytes = wides.decoded = 0;
    wides.products++;
}

static uint32_t adapted; /* rows with adapters, of all launches that compute t or add B t */

/* A launch for adapters: its rows have none, or that of slot 0, which adds rank 2 or nothing to each part. */
static void check_adapters(const exl2k_lora_rows_args *a)
{
    const uint16_t *row_sets = fake_memory(a->row_sets, a->rows * sizeof *row_sets);
    CHECK(a->parts >= 1 && a->parts <= EXL2K_LORA_PARTS);
    for (uint32_t row = 0; CHECK(row_sets != NULL) && row < a->rows; row++) {
        uint64_t at = a->sets + (row_sets[row] - 1u) * sizeof(exl2k_lora_set);
        const exl2k_lora_set *set = row_sets[row] ? fake_memory(at, sizeof *set) : NULL;
        CHECK(row_sets[row] == 0 || (set && set->count == 1 && set->slots[0] == 0));
        for (uint32_t i = 0; set && i < a->parts; i++) {
            uint64_t entry = a->tables + (a->place + i) * sizeof(exl2k_lora_matrix);
            const exl2k_lora_matrix *m = fake_memory(entry, sizeof *m);
            CHECK(m && (m->rank == 0 || (m->rank == 2 && fake_memory(m->a, 2 * a->in * 2)
                                         && fake_memory(m->b, 2 * a->columns[i] * 2))));
        }
        adapted += set != NULL;
    }
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    if (strncmp(function, "exl2k_lora_rows", 15) == 0) {
        check_adapters(arguments);
    }
    CHECK(!strstr(function, "_lora") || strncmp(function, "exl2k_lora_rows", 15) == 0);
    bool one = strncmp(function, "exl2k_exl3_one_", 15) == 0;
    bool few = one || strncmp(function, "exl2k_exl3_gemv", 15) == 0;
    products += few;
    many += strncmp(function, "exl2k_exl3_gemm", 15) == 0 || strncmp(function, "exl2k_exl3_wg", 13) == 0;
    crowds += strncmp(function, "exl2k_exl3_crowd", 16) == 0 && strtoul(function + 16, NULL, 10) > 16;
    embeddings += strcmp(function, "exl2k_exl3_embed") == 0;
    if (strncmp(function, "exl2k_exl3_expert", 17) == 0 && strcmp(function, "exl2k_exl3_expert_rotate") != 0) {
        bool one_by_one = strncmp(function, "exl2k_exl3_expert_", 18) != 0;
        experts += one_by_one;
        grouped += !one_by_one;
        check_experts((const exl2k_exl3_expert_args *)arguments, one_by_one, strstr(function, "_wg_") ? 128 : 64, grid);
    }
    if (strncmp(function, "exl2k_exl3_strips", 17) == 0 || strcmp(function, "exl2k_exl3_wide") == 0) {
        check_wide(function, arguments, grid);
    }
    if (strcmp(function, "exl2k_exl3_norm_rows") == 0) {
        const exl2k_exl3_settle_args *a = arguments;
        uint64_t bytes = (uint64_t)a->parts * a->rotated_rows * a->settle.hidden * 2;
        CHECK(fake_memory(a->rotated, bytes) != NULL && a->rotated_rows >= grid[0]);
        wides.norms++;
    }
    wides.rotates += strcmp(function, "exl2k_exl3_rotate") == 0;
    CHECK(strncmp(function, "exl2k_exl3", 10) != 0 || (grid[0] > 0 && grid[1] > 0));
    if (few || strncmp(function, "exl2k_exl3_g", 12) == 0 || strncmp(function, "exl2k_exl3_w", 12) == 0) {
        const exl2k_exl3_args *a = (const exl2k_exl3_args *)arguments;
        CHECK(a->parts > 0 && a->splits > 0 && a->part[0].trellis % 256 == 0 && a->x % 8 == 0);
        check_sums(a, few ? a->splits * a->rows : strstr(function, "_half_") ? 128 : 0);
        CHECK(!one || a->rows == 1);
    }
    if (strncmp(function, "exl2k_exl3_crowd", 16) == 0) {
        const exl2k_exl3_args *a = (const exl2k_exl3_args *)arguments;
        uint32_t rows = (uint32_t)strtoul(function + 16, NULL, 10);
        CHECK(a->rows > 1 && a->rows <= rows && a->rotated_rows == rows && (rows <= 16 || a->rows_at == 0));
        CHECK(fake_memory(a->rotated, (uint64_t)a->parts * a->blocks * rows * 256) != NULL);
        CHECK_INT(grid[1], a->splits);
        check_sums(a, a->splits * a->rows);
    }
    fake_model_run(function, arguments, grid);
}

static exl2_model_desc desc_of(const char *name, bool keep)
{
    static char path[1200];
    snprintf(path, sizeof path, "%s%s%s", mixed.file ? "" : folder, mixed.file ? "" : "/", name);
    return (exl2_model_desc){ .path = path, .prefill_chunk = 32, .batch_max = 4,
                              .cache.tokens = 4 * EXL2__PAGE_TOKENS, .keep_packed = keep };
}

/* 20 rows of a prompt, then tokens; the model is parked in between, and its weights may come back elsewhere.
   least: products of few rows in a pass, without experts. */
static void test_model(const char *name, uint32_t least, bool embeds, bool sparse, bool keep)
{
    static exl2_token ids[20];
    exl2_engine_stats before, parked, after;
    exl2_model_info plan;
    exl2_error error = { 0 };
    exl2_model model;
    exl2_session s;
    machine_make();
    fake.run = run;
    products = many = embeddings = experts = grouped = 0;
    exl2_engine *e = NULL;
    exl2_engine_desc engine = machine_desc(EXL2_BACKEND_CUDA, &error);
    exl2_model_desc d = desc_of(name, keep);
    if (mixed.file) {
        engine.files = mixed_files(&mixed);
    }
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    if (!CHECK(e != NULL) || !CHECK_INT(exl2_model_measure(e, &d, &plan), EXL2_OK)
        || !CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK)) {
        exl2_last_error(e, &error);
        printf("    %s: %s\n", name, error.text);
        exit(1);
    }
    exl2_stats(e, &before);
    CHECK_INT(plan.device_bytes, before.device_bytes);
    printf("%s %s: %llu bytes planned, %llu used\n", name, mixed.file ? mixed.kinds[0] : "",
           (unsigned long long)plan.device_bytes,
           (unsigned long long)before.device_bytes);
    for (uint32_t i = 0; i < EXL2__COUNT(ids); i++) {
        ids[i] = (exl2_token)(3 + i);
    }
    CHECK_INT(exl2_session_open(e, model, &s), EXL2_OK);
    exl2_job_desc job = cuda_job(s, ids, EXL2__COUNT(ids), 10, &cuda_said[0]);
    CHECK_INT(exl2_job_start(e, &job, NULL), EXL2_OK);
    for (uint32_t i = 0; i < 3; i++) {
        exl2_step(e, &(exl2_step_desc){ .wait = true });
    }
    CHECK_INT(exl2_model_park(e, model, true), EXL2_OK);
    exl2_stats(e, &parked);
    CHECK_INT(parked.device_bytes, 0);
    CHECK_INT(exl2_model_park(e, model, false), EXL2_OK);
    cuda_step_all(e, false, 0);
    exl2_stats(e, &after);
    CHECK_INT(after.device_bytes, before.device_bytes);
    CHECK_INT(cuda_said[0].count, 10);
    CHECK(many >= least); /* gate and up are two launches, but the head is none */
    CHECK(products >= least);
    CHECK(sparse ? experts >= 2 * 2 && grouped >= 2 * 3 : experts + grouped == 0);
    CHECK_INT(embeddings > 0, embeds);
    exl2_close(e);
    machine_end();
}

/* Passes of `count` sampled rows, as graphs or not. */
static void test_crowd(const char *name, uint32_t count)
{
    exl2_engine_stats stats;
    exl2_model_info plan;
    exl2_model model;
    exl2_session s[80];
    machine_make();
    fake.run = run;
    fake.devices[0].arch_major = 9;
    fake.devices[0].arch_minor = 0;
    fake.devices[0].shared_optin = 232448;
    crowds = 0;
    exl2_engine *e = cuda_open();
    exl2_model_desc d = desc_of(name, false);
    d.batch_max = count;
    d.cache.tokens = count * EXL2__PAGE_TOKENS;
    CHECK_INT(exl2_model_measure(e, &d, &plan), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    exl2_stats(e, &stats);
    CHECK_INT(plan.device_bytes, stats.device_bytes);
    for (uint32_t i = 0; i < count; i++) {
        CHECK_INT(exl2_session_open(e, model, &s[i]), EXL2_OK);
        exl2_job_desc job = cuda_job(s[i], cuda_prompt, 2, 10, &cuda_said[i % 3]);
        CHECK_INT(exl2_job_start(e, &job, NULL), EXL2_OK);
    }
    cuda_step_all(e, false, 0);
    for (uint32_t i = 0; i < count; i++) {
        cuda_expect_history(e, s[i], 2, 12);
    }
    CHECK(crowds >= 9); /* four products of two layers, and the head */
    exl2_close(e);
    machine_end();
}

/* Passes of 1,850 and of 50 rows of a prompt, on Hopper: of the first one strips are decoded once, in two places by
   turns. plain: norms and up transform what the next product reads, but not attention; otherwise there are sizes with
   padding. */
static void test_wide(const char *name, bool plain)
{
    static exl2_token ids[1900];
    exl2_engine_stats stats;
    exl2_model_info plan;
    exl2_model model;
    exl2_session s;
    machine_make();
    fake.run = run;
    fake.devices[0].arch_major = 9;
    fake.devices[0].arch_minor = 0;
    fake.devices[0].shared_optin = 232448;
    wides = (struct wides){ 0 };
    exl2_engine *e = cuda_open();
    exl2_model_desc d = desc_of(name, false);
    d.batch_max = 1;
    d.prefill_chunk = 1850;
    d.context_max = 2048;
    d.cache.tokens = 2048;
    CHECK_INT(exl2_model_measure(e, &d, &plan), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    exl2_stats(e, &stats);
    CHECK_INT(plan.device_bytes, stats.device_bytes);
    for (uint32_t i = 0; i < EXL2__COUNT(ids); i++) {
        ids[i] = (exl2_token)(3 + i % 200);
    }
    CHECK_INT(exl2_session_open(e, model, &s), EXL2_OK);
    exl2_job_desc job = cuda_job(s, ids, EXL2__COUNT(ids), 2, &cuda_said[0]);
    CHECK_INT(exl2_job_start(e, &job, NULL), EXL2_OK);
    cuda_step_all(e, false, 0);
    CHECK_INT(cuda_said[0].count, 2);
    printf("%s: %u launches decode strips, %u products, %u transform, %u norms, %u rotates\n", name, wides.strips,
           wides.products, wides.turned, wides.norms, wides.rotates);
    CHECK(wides.products >= 2 * 5 && wides.strips >= wides.products && !wides.early);
    CHECK(plain ? wides.turned == 2 && wides.norms == 2 * 4 : wides.turned + wides.norms == 0);
    exl2_close(e);
    machine_end();
}

/* least: products of EXL3 matrices in a pass. */
static void test_mixed(const char *first, const char *second, bool sparse, uint32_t least)
{
    mixed = (mixed_model){ .kinds = { first, second }, .config = "", .experts = sparse, .state = 5 };
    mixed_make(&mixed);
    for (uint32_t keep = 0; keep < 2; keep++) {
        test_model("mixed", least, false, sparse, keep);
    }
    mixed_free(&mixed);
}

/* Loads a model while the n-th call of the driver fails: then it loads again. Returns false if there were fewer than n
   calls. */
static bool load_again(const char *name, uint32_t n)
{
    exl2_error error = { 0 };
    exl2_engine *e = NULL;
    exl2_model model;
    machine_make();
    fake.run = run;
    exl2_engine_desc engine = machine_desc(EXL2_BACKEND_CUDA, &error);
    exl2_model_desc d = desc_of(name, false);
    if (mixed.file) {
        engine.files = mixed_files(&mixed);
    }
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    fake.fail_code = 2; /* out of memory */
    fake.fail_at = n;
    exl2_result r = exl2_model_load(e, &d, &model);
    bool failed = fake.failed[0] != 0;
    if (r != EXL2_OK) {
        exl2_last_error(e, &error);
        CHECK(failed && error.code == r && error.text[0]);
        CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    }
    exl2_close(e);
    machine_end();
    return failed;
}

static void sweep(const char *name)
{
    uint32_t n = 1;
    while (n < 20000 && load_again(name, n)) {
        n += 7;
    }
    printf("loading %s: %u calls can fail\n", name, n - 1);
    CHECK(n > 50 && n < 20000);
}

/* A layer of which only some experts are of EXL3 is rejected with one message, and the engine stays usable. */
static void test_refused(void)
{
    exl2_error error;
    exl2_engine *e = NULL;
    exl2_model model;
    mixed = (mixed_model){ .kinds = { "ttttttttttttettt", "eeeeeeeeeeeeeeee" }, .config = "", .experts = true,
                           .state = 5 };
    mixed_make(&mixed);
    machine_make();
    fake.run = run;
    exl2_engine_desc engine = machine_desc(EXL2_BACKEND_CUDA, &error);
    engine.files = mixed_files(&mixed);
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    exl2_model_desc d = desc_of("mixed", false);
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_ERR_UNSUPPORTED);
    exl2_last_error(e, &error);
    CHECK(strstr(error.text, "layer 0 has experts of EXL3 and others") != NULL);
    exl2_model_info info;
    CHECK_INT(exl2_model_measure(e, &d, &info), EXL2_ERR_UNSUPPORTED);
    mixed_free(&mixed);
    mixed.kinds[0] = "ttttttttttttmttt";
    mixed_make(&mixed);
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    exl2_close(e);
    machine_end();
    mixed_free(&mixed);
}

/* Jobs without an adapter, with one, with a control vector, and with both, beside each other. */
static void test_adapters(const char *name)
{
    static const adapter_matrix matrices[] = { { "model.layers.0.self_attn.q_proj", 128, 128 },
                                               { "model.layers.1.self_attn.o_proj", 128, 128 } };
    static float values[2 * 128];
    char dir[] = "/tmp/exl2_lora_XXXXXX", path[64];
    exl2_model_info plan;
    exl2_engine_stats stats;
    exl2_model model;
    exl2_session s[4];
    exl2_lora_use lora = { { 0 }, 0.5f };
    exl2_steer_use steer = { { 0 }, 0.5f };
    machine_make();
    fake.run = run;
    adapted = 0;
    CHECK(mkdtemp(dir) != NULL);
    adapter_write(dir, matrices, 2);
    exl2_engine *e = cuda_open();
    exl2_model_desc d = desc_of(name, false);
    d.lora_max = d.steer_max = 1;
    CHECK_INT(exl2_model_measure(e, &d, &plan), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &d, &model), EXL2_OK);
    exl2_stats(e, &stats);
    CHECK_INT(plan.device_bytes, stats.device_bytes);
    values[5] = 1;
    exl2_lora_desc l = { .model = model, .path = dir };
    exl2_steer_desc v = { .model = model, .values = values, .layer_count = 2 };
    CHECK_INT(exl2_lora_load(e, &l, &lora.lora), EXL2_OK);
    CHECK_INT(exl2_steer_make(e, &v, &steer.steer), EXL2_OK);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(exl2_session_open(e, model, &s[i]), EXL2_OK);
        exl2_job_desc job = cuda_job(s[i], cuda_prompt, 8, 10, &cuda_said[i % 3]);
        job.loras = &lora;
        job.lora_count = i & 1;
        job.steers = &steer;
        job.steer_count = i >> 1;
        CHECK_INT(exl2_job_start(e, &job, NULL), EXL2_OK);
    }
    cuda_step_all(e, false, 0);
    for (uint32_t i = 0; i < 4; i++) {
        cuda_expect_history(e, s[i], 8, 18);
    }
    CHECK(adapted > 2 * 18);
    exl2_close(e);
    machine_end();
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, i ? "adapter_config.json" : "adapter_model.safetensors");
        remove(path);
    }
    rmdir(dir);
}

int main(void)
{
    folder = check_shared("fixtures/exl3");
    test_adapters("exl3-llama");
    test_adapters("exl3-mixtral");
    for (uint32_t keep = 0; keep < 2; keep++) {
        test_model("exl3-llama", 9, false, false, keep);
        test_model("exl3-qwen3", 9, true, false, keep);
        test_model("exl3-qwen2-padded", 9, false, false, keep);
        test_model("exl3-mixtral", 3, false, true, keep); /* an `out` is dense */
    }
    test_crowd("exl3-llama", 20);
    test_crowd("exl3-qwen3", 40);
    test_crowd("exl3-mixtral", 17);
    test_crowd("exl3-llama", 64);
    test_wide("exl3-llama", true);
    test_wide("exl3-qwen3", true);
    test_wide("exl3-qwen2-padded", false);
    test_mixed("teettet", "ettette", false, 7); /* EXL3 beside EXL2 */
    test_mixed("tdetbte", "eeetmde", false, 6); /* and dense matrices */
    test_mixed("eeetttttttmmmmmm", "tttttttmmmtttmmm", true, 3);
    sweep("exl3-mixtral");
    mixed = (mixed_model){ .kinds = { "teettet", "dttette" }, .config = "", .state = 6 };
    mixed_make(&mixed);
    sweep("mixed");
    mixed_free(&mixed);
    test_refused();
    return check_done();
}
