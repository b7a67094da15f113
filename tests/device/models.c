/* models.c: whole models on the GPU: logits and greedy text compared with the CPU's, and logits that stay equal bit for
   bit whatever rows of their kind share the pass. Rows that are given as the embeddings of their tokens have the bits
   of the tokens; final hidden states are compared with the CPU's.
   takes: [goldens | exl3 | folders of models; default: the goldens, and those of EXL3 in $EXL2_TEST_DATA]; a GPU;
          $EXL2_TEST_KERNELS, $EXL2_TEST_LARGE. A folder with a tokenizer.json counts as a trained model.
   gives: exit code 0, 1, or 77 without a GPU; the largest difference of logits of each model. */
#define EXL2__CUDA_UNIT_NS 4u /* heads are cut, too, where passes run unit by unit */
#define EXL2__CUDA_LARGE_HIDDEN (check_env("EXL2_TEST_LARGE") ? 0u : 4096u) /* 0: all matrices are large */

#include "model_rig.h"

#define REPEATS 1000u
#define GREEDY_TOKENS 48u

/* Bounds of the relative error: the norm of the difference over the norm of a row of logits. A whole model may be off
   by 2e-3, and models of `exl2 synth` stay below that. Two kinds of models amplify rounding errors: the goldens, which
   have random weights and only 64 or 128 features, and trained models. This was measured on the CPU alone, by rounding
   to fp16 up or down at random. With q, the attention weights and all inputs of products rounded in this way, the
   goldens are off by 3e-3 to 1.2e-2; SmolLM2-135M, with only the inputs of products rounded, by 4.2e-3 to 2.8e-2. */
#define OFF_MAX 2e-3
#define OFF_MAX_SENSITIVE 1.5e-2
#define OFF_MAX_ROUTED 5e-2 /* with experts: rounding moves their weights (2.1e-2 seen) */

/* Two logits of the router that differ by less, as a part of the largest one, may change places by rounding. Then the
   row has another expert, and its logits have no bound. */
#define ROUTER_TIE 1e-2
#define TIES_MAX 4u /* of some 250 rows that are compared */

static side cpu, cuda;

static uint32_t number(uint32_t below)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void make_texts(uint32_t vocab)
{
    for (uint32_t i = 0; i < TEXTS; i++) {
        for (uint32_t k = 0; k < TEXT_TOKENS; k++) {
            texts[i][k] = (exl2_token)number(vocab);
        }
        for (uint32_t k = 0; k < TEXT_PAGES; k++) {
            text_pages[i][k] = (i * TEXT_PAGES + k) * 7 % PAGES;
        }
    }
}

/* ---- how close the CPU's choice of experts was ---- */

static double router_lead[ROWS]; /* of the rows of the CPU's last pass: how far the last logit that was chosen leads the
                                    best one that was not, as a part of the largest; the least of all layers */

/* Notes how close the choice of a row's experts was. logits: [count], of which the `active` highest are chosen. */
static double lead_of(const exl2__real *logits, uint32_t count, uint32_t active)
{
    double chosen = INFINITY, other = -INFINITY, largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t higher = 0;
        for (uint32_t k = 0; k < count; k++) {
            higher += logits[k] > logits[i] || (logits[k] == logits[i] && k < i);
        }
        chosen = higher < active ? fmin(chosen, (double)logits[i]) : chosen;
        other = higher < active ? other : fmax(other, (double)logits[i]);
        largest = fmax(largest, fabs((double)logits[i]));
    }
    return (chosen - other) / largest;
}

/* The CPU's phase `expert_up`, which first notes how close the choices of its layer were. */
static exl2_result expert_up_noting(exl2__device *device, const exl2__layer *layer, const exl2__range *range)
{
    const exl2__cpu_device *d = exl2__cpu_of(device);
    for (uint32_t row = 0; row < d->step->row_count; row++) {
        const exl2__real *logits = d->routed.logits + (size_t)row * d->routed.router_stride;
        double lead = lead_of(logits, d->shape.experts.count, d->shape.experts.active);
        router_lead[row] = fmin(router_lead[row], lead);
    }
    return exl2__cpu_backend.expert_up(device, layer, range);
}

/* ---- logits against the CPU's ---- */

static double worst_off, worst_logit, off_max;
static uint32_t ties; /* rows that were off by more than off_max, with a tie in a router */

/* Compares row i of the logits of the last pass. Returns the largest difference of a logit, INFINITY if an expert may
   have changed places with another. */
static double compare_row(uint32_t i)
{
    uint32_t vocab = cpu.plan.shape.vocab;
    const float *got = cuda.logits + (size_t)i * vocab, *wanted = cpu.logits + (size_t)i * vocab;
    double error = 0, size = 0, largest = 0;
    for (uint32_t k = 0; k < vocab; k++) {
        double off = got[k] == got[k] ? fabs((double)got[k] - (double)wanted[k]) : INFINITY;
        error += off * off;
        size += (double)wanted[k] * (double)wanted[k];
        largest = off > largest ? off : largest;
    }
    double relative = sqrt(error / size);
    if (relative > off_max && router_lead[cpu.logit_rows[i].row] < ROUTER_TIE) {
        ties++;
        return INFINITY;
    }
    worst_off = relative <= worst_off ? worst_off : relative;
    worst_logit = largest <= worst_logit ? worst_logit : largest;
    if (!CHECK(relative <= off_max)) {
        printf("    %u rows, row of logits %u: off by %.1e; closest choice of an expert: %.1e\n", cpu.row_count, i,
               relative, router_lead[cpu.logit_rows[i].row]);
    }
    return largest;
}

static void run_both(const part *parts, uint32_t count, bool every)
{
    for (uint32_t row = 0; row < ROWS; row++) {
        router_lead[row] = INFINITY;
    }
    side_run(&cpu, parts, count, every);
    side_run(&cuda, parts, count, every);
}

static void both(const part *parts, uint32_t count, bool every)
{
    run_both(parts, count, every);
    for (uint32_t i = 0; i < cpu.logit_count; i++) {
        compare_row(i);
    }
}

static void test_logits(void)
{
    static const part prompt[] = { { 0, 0, 40 } }, next[] = { { 0, 40, 1 } };
    static const part odd[] = { { 1, 0, 7 }, { 2, 0, 17 }, { 3, 0, 9 } };
    static const part mixed[] = { { 0, 41, 1 }, { 1, 7, 1 }, { 4, 0, 33 }, { 2, 17, 2 } };
    static const part batch[] = { { 0, 42, 1 }, { 1, 8, 1 }, { 2, 19, 1 }, { 3, 9, 1 }, { 4, 33, 1 } };
    static const part many[] = { { 5, 0, 97 }, { 0, 43, 1 }, { 6, 0, 31 } };
    static const part long_one[] = { { 5, 97, 130 } }, sampled[] = { { 6, 31, 29 } };
    both(prompt, 1, true);
    both(next, 1, true);
    both(odd, 3, true);
    both(mixed, 4, true);
    both(batch, 5, true);
    both(many, 3, false);
    both(long_one, 1, false);
    cuda.kind = EXL2__ROWS_SAMPLED;
    both(sampled, 1, true);
    cuda.kind = EXL2__ROWS_MIXED;
}

/* Greedy continuation of text 7. Both backends sample the same token wherever the likeliest token leads by more than
   twice the largest difference of a logit. Both continue with the GPU's token. Returns the number of equal tokens. */
static uint32_t test_greedy(void)
{
    uint32_t same = 0;
    for (uint32_t i = 0; i < GREEDY_TOKENS; i++) {
        part p = { 7, i ? 15 + i : 0, i ? 1 : 16 };
        run_both(&p, 1, false);
        double off = compare_row(0), gap = (double)cpu.alts[0][0].logprob - (double)cpu.alts[0][1].logprob;
        CHECK(cuda.drawn[0] == cpu.drawn[0] || gap <= 2 * off);
        same += cuda.drawn[0] == cpu.drawn[0];
        texts[7][16 + i] = cuda.drawn[0];
    }
    return same;
}

/* ---- the same bits ---- */

static float *kept; /* a row of logits */

static void keep(uint32_t i)
{
    memcpy(kept, cuda.logits + (size_t)i * cuda.plan.shape.vocab, cuda.plan.shape.vocab * sizeof *kept);
}

static bool same_as_kept(uint32_t i)
{
    return memcmp(kept, cuda.logits + (size_t)i * cuda.plan.shape.vocab, cuda.plan.shape.vocab * sizeof *kept) == 0;
}

/* The logits of the first part of `alone` equal those of part i of `among` bit for bit. K and V of the positions before
   every part are already in the pages. */
static void check_same(const part *alone, uint32_t alone_count, const part *among, uint32_t among_count, uint32_t i)
{
    side_run(&cuda, alone, alone_count, false);
    keep(0);
    side_run(&cuda, among, among_count, false);
    if (!CHECK(same_as_kept(i))) {
        printf("    position %u of %u rows is not as among %u rows\n", alone->first, alone->rows, cuda.row_count);
    }
}

/* A row of a sampled token has the same bits among up to 16 rows, also among rows of its own text. */
static void test_sampled(void)
{
    static const part one[] = { { 8, 40, 1 } }, two[] = { { 9, 70, 1 }, { 8, 40, 1 } };
    static const part many[] = { { 9, 70, 1 },  { 10, 3, 1 }, { 11, 64, 1 }, { 8, 40, 1 }, { 12, 127, 1 }, { 13, 0, 1 },
                                 { 14, 9, 1 },  { 15, 99, 1 }, { 0, 0, 1 }, { 1, 0, 1 }, { 2, 0, 1 }, { 3, 0, 1 },
                                 { 4, 0, 1 }, { 5, 0, 1 }, { 6, 0, 1 }, { 7, 0, 1 } };
    static const part before[] = { { 8, 0, 40 }, { 9, 0, 70 } }, more[] = { { 10, 0, 3 }, { 11, 0, 64 }, { 14, 0, 9 } };
    static const part last[] = { { 12, 0, 127 } }, last_too[] = { { 15, 0, 99 } };
    static const uint32_t counts[] = { 4, 7, 8, 9, 16 }, lengths[] = { 2, 3, 8, 9, 16 };
    side_run(&cuda, before, 2, false);
    side_run(&cuda, more, 3, false);
    side_run(&cuda, last, 1, false);
    side_run(&cuda, last_too, 1, false);
    check_same(one, 1, two, 2, 1);
    for (uint32_t i = 0; i < EXL2__COUNT(counts); i++) {
        check_same(one, 1, many, counts[i], 3);
    }
    for (uint32_t i = 0; i < EXL2__COUNT(lengths); i++) { /* one after the other, then in one pass with drafts */
        for (uint32_t k = 0; k < lengths[i]; k++) {
            part single = { 8, 40 + k, 1 };
            side_run(&cuda, &single, 1, false);
        }
        keep(0);
        part together[] = { { 8, 40, lengths[i] } }, after = { 8, 40 + lengths[i] - 1, 1 };
        cuda.kind = EXL2__ROWS_SAMPLED;
        side_run(&cuda, together, 1, true);
        CHECK(same_as_kept(lengths[i] - 1));
        side_run(&cuda, together, 1, false);
        CHECK(same_as_kept(0));
        cuda.kind = EXL2__ROWS_MIXED;
        side_run(&cuda, &after, 1, false);
        CHECK(same_as_kept(0));
    }
}

/* A row of a sampled token has the same bits among 17 to 64 rows: as graphs, whose further rows hold NaNs, unit by
   unit, and kernel by kernel. */
static void test_many_sampled(void)
{
    static const uint32_t rows[] = { 64, 63, 48, 33, 32, 31, 24, 17 };
    static const char *const ways[] = { "as graphs", "unit by unit", "kernel by kernel" };
    cuda.kind = EXL2__ROWS_SAMPLED;
    for (uint32_t i = 0; i < EXL2__COUNT(rows) * EXL2__COUNT(ways); i++) {
        uint32_t count = rows[i / EXL2__COUNT(ways)], way = i % EXL2__COUNT(ways);
        part together = { 8, 40, count };
        side_poison(&cuda);
        cuda.by_unit = way == 1;
        cuda.by_kernel = way == 2;
        side_run(&cuda, &together, 1, true);
        if (i == 0) {
            keep(16);
        }
        if (!CHECK(same_as_kept(16))) {
            printf("    a row among %u rows of sampled tokens, %s, is not as among 64\n", count, ways[way]);
        }
    }
    cuda.by_unit = cuda.by_kernel = false;
    cuda.kind = EXL2__ROWS_MIXED;
}

/* Logits of position 127 after 128 rows of a prompt in passes of `rows` rows, beside `others` rows of another one. */
static void read_prompt(uint32_t rows, uint32_t others)
{
    cuda.kind = EXL2__ROWS_PROMPT;
    for (uint32_t first = 0; first < 128; first += rows) {
        part parts[] = { { 13, first, exl2__min32(rows, 128 - first) }, { 14, 0, others } };
        side_run(&cuda, parts, others ? 2 : 1, false);
    }
    cuda.kind = EXL2__ROWS_MIXED;
}

/* A row of a prompt has the same bits in passes of up to 128 rows. */
static void test_prompts(void)
{
    static const uint32_t rows[] = { 1, 2, 8, 9, 16, 17, 32, 33, 64, 65, 97 };
    read_prompt(128, 0);
    keep(0);
    for (uint32_t i = 0; i < EXL2__COUNT(rows); i++) {
        read_prompt(rows[i], 0);
        if (!CHECK(same_as_kept(0))) {
            printf("    a prompt in passes of %u rows is not as in one of 128\n", rows[i]);
        }
    }
    read_prompt(16, 21);
    CHECK(same_as_kept(0));
    read_prompt(96, 32);
    CHECK(same_as_kept(0));
}

/* A pass as one graph and the same pass unit by unit give the same bits. */
static void test_units(void)
{
    static const part one[] = { { 8, 40, 1 } }, three[] = { { 8, 40, 1 }, { 9, 70, 1 }, { 11, 64, 1 } };
    static const part prompt[] = { { 13, 0, 33 }, { 8, 40, 1 } };
    const part *const passes[] = { one, three, prompt };
    for (uint32_t i = 0; i < 3; i++) {
        side_run(&cuda, passes[i], i == 0 ? 1 : i == 1 ? 3 : 2, false);
        keep(cuda.logit_count - 1);
        cuda.by_unit = true;
        side_run(&cuda, passes[i], i == 0 ? 1 : i == 1 ? 3 : 2, false);
        cuda.by_unit = false;
        CHECK(same_as_kept(cuda.logit_count - 1));
    }
}

/* Rows that are given as the embeddings of their tokens have the bits of the tokens: of prompts in small passes, in
   large ones, and of a graph. */
static void test_vectors(void)
{
    static const part prompt[] = { { 13, 0, 33 }, { 8, 40, 1 } }, many[] = { { 13, 0, 150 } };
    static const part one[] = { { 8, 40, 1 } }, three[] = { { 8, 40, 1 }, { 9, 70, 1 }, { 11, 64, 1 } };
    static const struct { const part *parts; uint32_t count; } given[] = {
        { prompt, 2 }, { many, 1 }, { one, 1 }, { three, 3 }
    };
    const exl2__shape *s = &cpu.plan.shape;
    const exl2__cpu_part *table = &exl2__cpu_matrix_of(cpu.plan.embed)->parts[0];
    if (table->source == EXL2__CPU_EXL3_TABLE) { /* each backend decodes it with its own last bits */
        return;
    }
    float *inputs = (float *)malloc((size_t)s->vocab * s->hidden * sizeof *inputs);
    for (uint32_t i = 0; inputs && i < s->vocab * s->hidden; i++) {
        inputs[i] = exl2__cpu_matrix_weight(table, i % s->hidden, i / s->hidden) * s->embed_scale;
    }
    for (uint32_t i = 0; inputs && i < EXL2__COUNT(given); i++) {
        side_run(&cuda, given[i].parts, given[i].count, false);
        keep(cuda.logit_count - 1);
        side_poison(&cuda);
        cuda.inputs = inputs;
        side_run(&cuda, given[i].parts, given[i].count, false);
        cuda.inputs = NULL;
        CHECK(same_as_kept(cuda.logit_count - 1));
    }
    CHECK(inputs != NULL);
    free(inputs);
}

/* Final hidden states, of prompts and of sampled rows; the passes after them have the bits that they had before. */
static void test_hidden(void)
{
    static const part prompt[] = { { 13, 0, 33 }, { 14, 0, 1 } }, one[] = { { 14, 0, 1 } }, many[] = { { 13, 0, 150 } };
    static const part kept_row[] = { { 8, 40, 1 } };
    static const struct { const part *parts; uint32_t count; bool every; } wanted[] = {
        { prompt, 2, false }, { prompt, 2, true }, { one, 1, false }, { many, 1, false }
    };
    uint32_t vocab = cpu.plan.shape.vocab, hidden = cpu.plan.shape.hidden;
    side_run(&cuda, kept_row, 1, false);
    keep(0);
    for (uint32_t i = 0; i < EXL2__COUNT(wanted) && CHECK(hidden <= vocab); i++) {
        cpu.hidden = cuda.hidden = true;
        cuda.by_unit = i == 1;
        side_run(&cpu, wanted[i].parts, wanted[i].count, wanted[i].every);
        side_run(&cuda, wanted[i].parts, wanted[i].count, wanted[i].every);
        cpu.hidden = cuda.hidden = cuda.by_unit = false;
        for (uint32_t r = 0; r < cpu.logit_count; r++) {
            const float *got = cuda.logits + (size_t)r * vocab, *right = cpu.logits + (size_t)r * vocab;
            double error = 0, size = 0;
            for (uint32_t n = 0; n < hidden; n++) {
                error += pow((double)got[n] - (double)right[n], 2);
                size += pow((double)right[n], 2);
            }
            CHECK(sqrt(error / size) <= off_max && cuda.drawn[r] == -1);
        }
        side_run(&cuda, kept_row, 1, false);
        CHECK(same_as_kept(0));
    }
}

static void repeat(const part *parts, uint32_t count, uint32_t times)
{
    uint32_t different = 0;
    side_run(&cuda, parts, count, false);
    keep(cuda.logit_count - 1);
    for (uint32_t i = 0; i < times; i++) {
        side_run(&cuda, parts, count, false);
        different += !same_as_kept(cuda.logit_count - 1);
    }
    CHECK_INT(different, 0);
}

static void test_repeats(void)
{
    static const part one[] = { { 8, 40, 1 } }, three[] = { { 8, 40, 1 }, { 9, 70, 1 }, { 11, 64, 1 } };
    static const part prompt[] = { { 13, 0, 33 } }, many[] = { { 13, 0, 150 } };
    repeat(one, 1, REPEATS);
    repeat(three, 3, REPEATS);
    repeat(prompt, 1, REPEATS / 20);
    repeat(many, 1, REPEATS / 20);
}

/* ---- kernels that sleep ---- */

#define SLEEPS 10u

static const struct {
    part parts[8];
    uint32_t count;
} passes[] = {
    { { { 8, 0, 40 } }, 1 },
    { { { 8, 40, 1 } }, 1 },
    { { { 9, 0, 70 }, { 8, 41, 1 }, { 10, 0, 3 } }, 3 },
    { { { 8, 42, 1 }, { 9, 70, 1 }, { 10, 3, 1 } }, 3 },
    { { { 11, 0, 150 } }, 1 },
    { { { 8, 43, 1 }, { 9, 71, 1 }, { 10, 4, 1 }, { 11, 150, 1 }, { 12, 0, 1 }, { 13, 0, 1 }, { 14, 0, 1 },
        { 15, 0, 1 } }, 8 },
    { { { 11, 151, 100 }, { 8, 44, 1 } }, 2 },
};

/* Runs all passes in order, each over poisoned buffers. Their logits are written to `to`, [passes][8, vocab]; if
   `check`, they are compared with the logits at `to` instead. */
static void run_passes(float *to, bool check)
{
    size_t vocab = cuda.plan.shape.vocab;
    for (size_t i = 0; i < EXL2__COUNT(passes); i++, to += 8 * vocab) {
        side_poison(&cuda);
        side_run(&cuda, passes[i].parts, passes[i].count, false);
        if (!check) {
            memcpy(to, cuda.logits, cuda.logit_count * vocab * sizeof *to);
        } else if (!CHECK(memcmp(to, cuda.logits, cuda.logit_count * vocab * sizeof *to) == 0)) {
            printf("    pass %zu of %u rows has other bits when kernels sleep\n", i, cuda.row_count);
        }
    }
}

/* Kernels that sleep at random where a race is possible (exl2k_sleep in base.cuh) give the same bits. */
static void test_sleep(const char *path)
{
    static const char *const options[] = { "-DEXL2K_SLEEP=7", NULL };
    float *wanted = (float *)calloc(EXL2__COUNT(passes) * 8 * cuda.plan.shape.vocab, sizeof *wanted);
    if (!wanted) {
        exit(1);
    }
    run_passes(wanted, false);
    side_close(&cuda);
    gpu_close();
    gpu_open(options, 0);
    side_open(&cuda, &exl2__cuda_backend, &gpu, path);
    for (uint32_t i = 0; i < SLEEPS; i++) {
        run_passes(wanted, true);
    }
    free(wanted);
}

/* ---- a model ---- */

static void run_model(const char *path)
{
    exl2__backend noting = exl2__cpu_backend;
    noting.expert_up = expert_up_noting;
    worst_off = worst_logit = 0;
    ties = 0;
    gpu_open(NULL, 0);
    side_open(&cpu, &noting, NULL, path);
    side_open(&cuda, &exl2__cuda_backend, &gpu, path);
    make_texts(cpu.plan.shape.vocab);
    kept = (float *)calloc(cpu.plan.shape.vocab, sizeof *kept);
    test_logits();
    uint32_t same = test_greedy();
    test_sampled();
    test_many_sampled();
    test_prompts();
    test_units();
    test_vectors();
    test_hidden();
    test_repeats();
    test_sleep(path);
    CHECK(ties <= TIES_MAX);
    printf("%s: logits off by %.1e, one by %.2g; greedy text: %u of %u tokens the same; ties of experts: %u\n", path,
           worst_off, worst_logit, same, GREEDY_TOKENS, ties);
    free(kept);
    side_close(&cuda);
    side_close(&cpu);
    gpu_close();
}

int main(int argc, char **argv)
{
    static const char *const stored[] = { "exl2-mixed", "exl2-4bit", "llama3-rope", "qwen3" };
    static const char *const of_exl3[] = { "exl3-llama", "exl3-qwen3", "exl3-qwen2-padded", "exl3-mixtral" };
    const char *golden = check_env("EXL2_GOLDEN_DIR") ? check_env("EXL2_GOLDEN_DIR") : EXL2_GOLDEN_DIR;
    bool goldens = argc < 2 || strcmp(argv[1], "goldens") == 0, exl3 = argc < 2 || strcmp(argv[1], "exl3") == 0;
    char path[1024];
    for (int i = 1; i < argc && !goldens && !exl3; i++) {
        snprintf(path, sizeof path, "%s/tokenizer.json", argv[i]);
        FILE *trained = fopen(path, "rb");
        off_max = trained ? OFF_MAX_SENSITIVE : OFF_MAX;
        if (trained) {
            fclose(trained);
        }
        run_model(argv[i]);
    }
    off_max = OFF_MAX_SENSITIVE;
    for (size_t i = 0; i < EXL2__COUNT(stored) && goldens; i++) {
        snprintf(path, sizeof path, "%s/models/%s", golden, stored[i]);
        run_model(path);
    }
    const char *shared = check_env("EXL2_TEST_DATA");
    for (size_t i = 0; i < EXL2__COUNT(of_exl3) && exl3 && shared; i++) {
        snprintf(path, sizeof path, "%s/fixtures/exl3/%s", shared, of_exl3[i]);
        off_max = strstr(of_exl3[i], "mixtral") ? OFF_MAX_ROUTED : OFF_MAX_SENSITIVE;
        run_model(path);
    }
    return check_done();
}
