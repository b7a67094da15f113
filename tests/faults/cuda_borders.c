/* cuda_borders.c: a model that is cut into spans computes what it computes in one: behind each border the same kernels
   run with the same arguments, and where norms are folded into products they get the sums of squares that the last
   product before the border has written. Fake GPU; tests/device/cards.c compares the bits.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_rig.h"

#include "private/objects.h"

#define LAUNCHES_MAX 4000u
#define WORDS_MAX 160u

typedef struct launch {
    char function[40];
    unsigned grid[3];
    uint32_t words;
    uint64_t word[WORDS_MAX]; /* of the arguments; addresses are replaced by what lies there */
} launch;

typedef struct trace {
    launch launches[LAUNCHES_MAX];
    uint32_t count, handed; /* handed: rows that later spans have taken */
} trace;

static trace whole, cut;
static trace *writing;
static const exl2_engine *running;
static uint32_t cut_count;
static float sums[2]; /* that the last product with sums, and the one before, have written for row 0 */
static float next_sum;

static uint32_t cut_layers(uint32_t layers, uint32_t *ends)
{
    uint32_t count = exl2__min32(cut_count, layers);
    for (uint32_t i = 0; i < count; i++) {
        ends[i] = layers * (i + 1) / count;
    }
    return count;
}

/* ---- arguments ---- */

/* A number for what lies at the address: weights, K and V, or a buffer of exl2__cuda_buffers and an offset in it. */
static uint64_t place_of(uint64_t address)
{
    const exl2__spans *s = &running->models[0].spans;
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__cuda_model *m = exl2__cuda_of(s->span[i].device);
        const uint64_t *buffers = (const uint64_t *)(const void *)&m->b;
        uint64_t best = UINT64_MAX, count = offsetof(exl2__cuda_buffers, data_bytes) / sizeof *buffers;
        if (address - m->weights.base < m->weights.size
            || address - (uint64_t)(uintptr_t)m->b.results < m->results_bytes) { /* those of sampling, pinned */
            return UINT64_MAX;
        }
        if (address - m->pass_memory.base >= m->pass_memory.size) {
            continue;
        }
        for (uint64_t k = 0; k < count; k++) {
            bool in = buffers[k] >= m->pass_memory.base && address >= buffers[k];
            best = in && (best == UINT64_MAX || buffers[k] > buffers[best]) ? k : best;
        }
        bool page = buffers[best] == m->b.pages; /* their place depends on the layers of the span */
        return UINT64_MAX - 1 - (best << 32 | (page ? 0 : address - buffers[best]));
    }
    return address;
}

static bool is(const char *function, const char *prefix)
{
    return strncmp(function, prefix, strlen(prefix)) == 0;
}

static void write_launch(const char *function, const void *arguments, const unsigned grid[3])
{
    const fake_kernel *kernel = machine_kernels;
    while (strcmp(kernel->function, function) != 0) {
        kernel++;
    }
    if (!CHECK(writing->count < LAUNCHES_MAX && kernel->argument_bytes <= WORDS_MAX * 8)) {
        return;
    }
    launch *l = &writing->launches[writing->count++];
    *l = (launch){ .words = (uint32_t)(kernel->argument_bytes / 8) };
    snprintf(l->function, sizeof l->function, "%s", function);
    memcpy(l->grid, grid, sizeof l->grid);
    memcpy(l->word, arguments, (size_t)l->words * 8);
    if (is(function, "exl2k_gemv")) { /* the first product of a span reads rows where it may read tiles */
        exl2k_gemv_args *a = (exl2k_gemv_args *)(void *)l->word;
        a->x_pitch = a->x_step = 0;
    }
    for (uint32_t i = 0; i < l->words; i++) {
        l->word[i] = place_of(l->word[i]);
    }
}

/* ---- what crosses ---- */

static float *float_at(uint64_t address)
{
    return fake_model_at(address, sizeof(float));
}

/* A product with sums writes a number of its own for row 0. */
static void write_sums(uint64_t sums_out)
{
    if (sums_out) {
        sums[1] = sums[0];
        sums[0] = next_sum += 1;
        *float_at(sums_out) = sums[0];
    }
}

static void check_handed(const exl2k_embed_args *a)
{
    const exl2k_pass *pass = fake_model_at(a->pass, sizeof *pass);
    for (uint32_t i = 0; i < pass->row_count; i++) {
        const exl2k_row *row = fake_model_at(a->rows + i * sizeof *row, sizeof *row);
        float *residual = float_at(a->residual + (uint64_t)i * a->residual_pitch * sizeof(float));
        if (a->kind == EXL2K_TABLE_HANDED) {
            *residual = *float_at(a->table + (uint64_t)i * a->hidden * sizeof(float));
            CHECK_INT((uint32_t)*residual, row->token);
            writing->handed++;
        } else {
            *residual = (float)row->token;
        }
    }
    if (a->kind == EXL2K_TABLE_HANDED && a->handed_now) {
        CHECK(*float_at(a->handed_now) == sums[0] && *float_at(a->handed_before) == sums[1]);
        *float_at(a->sums) = sums[0];
        *float_at(a->sums_before) = sums[1];
    }
}

/* The sums that a product reads are those of the two norms before it. */
static void check_sums(const exl2k_gemv_args *a)
{
    if (a->sums_now && a->kind != EXL2K_GEMV_RESIDUAL && !a->before) {
        CHECK(*float_at(a->sums_now) == sums[0]);
        CHECK(!a->sums_before || *float_at(a->sums_before) == sums[1]);
    }
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    const exl2k_gemv_args *gemv = arguments;
    const exl2k_expert_args *expert = arguments;
    const exl2k_embed_args *embed = arguments;
    bool first = is(function, "exl2k_embed"), settle = is(function, "exl2k_settle");
    if (first) {
        check_handed(embed);
        if (embed->kind != EXL2K_TABLE_HANDED && embed->out) {
            write_sums(embed->sums);
        }
    } else if (is(function, "exl2k_gemv")) {
        check_sums(gemv);
        write_sums(gemv->kind == EXL2K_GEMV_RESIDUAL && gemv->before == 0 ? gemv->sums_out : 0);
    } else if (is(function, "exl2k_expert1") || is(function, "exl2k_expert8")) {
        write_sums(expert->down && expert->rows.first == 0 ? expert->sums_out : 0);
    }
    if (!settle && !(first && embed->kind == EXL2K_TABLE_HANDED)) { /* a border divides what settle does */
        write_launch(function, arguments, grid);
    }
    fake_model_run(function, arguments, grid);
}

/* ---- passes ---- */

/* Three jobs, one after the other; or, unit by unit, two of them at the same time. (Without a budget, rows of several
   jobs pass through spans in groups, which one span has not.) */
static void use(const char *name, uint32_t spans, uint32_t gpu_us, trace *out)
{
    machine_make();
    cut_count = spans;
    fake.run = run;
    fake.eager = true;
    fake.fresh = 0;
    fake.devices[0].arch_major = 9;
    fake.devices[0].arch_minor = 0;
    fake.devices[0].shared_optin = 227 << 10;
    memset(out, 0, sizeof *out);
    writing = out;
    next_sum = 0;
    exl2_engine *e = cuda_open();
    running = e;
    exl2_model model;
    exl2_session s[3];
    exl2_model_desc m = { .path = rig_golden(name), .prefill_chunk = 32, .batch_max = 4 };
    if (!CHECK_INT(exl2_model_load(e, &m, &model), EXL2_OK)) {
        rig_fail(e, name, EXL2_ERR_INTERNAL);
    }
    out->count = 0;
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(exl2_session_open(e, model, &s[i]), EXL2_OK);
        exl2_job_desc d = cuda_job(s[i], cuda_prompt, i == 0 ? 8 : 5 + i, 6 + i, &cuda_said[i]);
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        if (i == 0 || gpu_us == 0) {
            cuda_step_all(e, false, gpu_us);
        }
    }
    cuda_step_all(e, false, gpu_us);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(cuda_said[i].done_events == 1 && cuda_said[i].result == EXL2_OK);
    }
    exl2_close(e);
    machine_end();
}

static void compare(const char *name, uint32_t spans)
{
    uint32_t i = 0;
    CHECK_INT(cut.count, whole.count);
    while (i < cut.count && i < whole.count
           && memcmp(&cut.launches[i], &whole.launches[i], sizeof *whole.launches) == 0) {
        i++;
    }
    if (!CHECK(i == whole.count)) {
        printf("  %s in %u spans: launch %u of %u is %s, in one span %s\n", name, spans, i, whole.count,
               cut.launches[i].function, whole.launches[i].function);
        for (uint32_t k = 0; k < WORDS_MAX; k++) {
            if (cut.launches[i].word[k] != whole.launches[i].word[k]) {
                printf("    word %u: %llx, %llx\n", k, (unsigned long long)cut.launches[i].word[k],
                       (unsigned long long)whole.launches[i].word[k]);
            }
        }
    }
}

int main(void)
{
    static const char *const models[] = { "exl2-mixed", "exl2-qwen3-moe", "smollm3", "qwen3", "gptq-phi3",
                                          "mixed-kinds", "gemma2", "cohere", "orion", "starcoder2" };
    engine_rig.spans = cut_layers;
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        for (uint32_t gpu_us = 0; gpu_us < 2; gpu_us++) {
            use(models[i], 1, gpu_us, &whole);
            CHECK(whole.count > 100 && whole.handed == 0);
            for (uint32_t spans = 2; spans <= 8; spans += spans == 3 ? 5 : 1) {
                use(models[i], spans, gpu_us, &cut);
                CHECK(cut.handed > 30);
                compare(models[i], spans);
            }
        }
        printf("%s: %u launches\n", models[i], whole.count);
    }
    machine_drop_cache();
    fake_reset();
    return check_done();
}
