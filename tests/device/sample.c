/* sample.c: sampling on the GPU compared with the CPU backend: every result must be equal bit for bit.
   takes: [kernels_src [test | time]]; a GPU.
   gives: exit code 0, 1, or 77 without a GPU. */
#include "private/cuda_sample.h"
#include "../sample_reference.h"
#include "rig.h"

#define ROWS 16u
#define HISTORY 300u
#define BIASES 40u
#define MASK_WORDS 9376u

typedef struct bench {
    rig_module module;
    uint32_t vocab, stride;
    float *logits; /* [ROWS, stride] */
    rig_buffer step, rows, samplings, device_logits, adjusted, keys, sums, states, bins, results, history, bias, masks;
} bench;

static exl2k_result host_results[EXL2K_RESULT_SETS * ROWS];
static uint64_t random_state = 11;

static bench bench_open(const rig_module *module, uint32_t vocab)
{
    bench b = { .module = *module, .vocab = vocab, .stride = (vocab + 63) / 64 * 64 };
    uint64_t blocks = (uint64_t)exl2__cuda_sample_chunks(vocab) * (EXL2K_SAMPLE_CHUNK / EXL2K_SAMPLE_BLOCK);
    exl2k_sample_state zeros[ROWS] = { 0 };
    static const exl2k_sample_bins bins[ROWS];
    exl2k_row rows[ROWS] = { 0 };
    exl2k_pass step = { 0 };
    b.logits = take((size_t)ROWS * b.stride * sizeof *b.logits);
    b.step = rig_buffer_of(&step, sizeof step);
    b.rows = rig_buffer_of(rows, sizeof rows);
    b.samplings = rig_buffer_make(ROWS * sizeof(exl2k_sampling));
    b.device_logits = rig_buffer_make(ROWS * b.stride * 4ull);
    b.adjusted = rig_buffer_make(ROWS * b.stride * 4ull);
    b.keys = rig_buffer_make(ROWS * 2 * blocks * 4);
    b.sums = rig_buffer_make(ROWS * blocks * 8);
    b.states = rig_buffer_of(zeros, sizeof zeros);
    b.bins = rig_buffer_of(bins, sizeof bins);
    b.results = rig_buffer_make(sizeof host_results);
    b.history = rig_buffer_make(ROWS * HISTORY * 4);
    b.bias = rig_buffer_make(ROWS * BIASES * sizeof(exl2k_bias));
    b.masks = rig_buffer_make(ROWS * MASK_WORDS * 4);
    return b;
}

static void bench_close(bench *b)
{
    rig_buffer *all[] = { &b->step, &b->rows, &b->samplings, &b->device_logits, &b->adjusted, &b->keys, &b->sums,
                          &b->states, &b->bins, &b->results, &b->history, &b->bias, &b->masks };
    for (size_t i = 0; i < EXL2__COUNT(all); i++) {
        rig_buffer_free(all[i]);
    }
    free(b->logits);
}

/* turn: 0: as many CTAs as the backend launches; else other numbers for exl2k_sample_token each turn. */
static void launch(const bench *b, uint32_t rows, uint32_t turn)
{
    exl2k_sample_args a = { .pass = b->step.address, .rows = b->rows.address, .samplings = b->samplings.address,
                            .logits = b->device_logits.address, .adjusted = b->adjusted.address,
                            .keys = b->keys.address, .sums = b->sums.address, .states = b->states.address,
                            .bins = b->bins.address,
                            .results = b->results.address, .vocab = b->vocab, .stride = b->stride, .rows_max = ROWS,
                            .chunks = exl2__cuda_sample_chunks(b->vocab) };
    uint32_t ctas = turn ? 1 + turn * 7 % a.chunks : exl2__cuda_sample_ctas(a.chunks, rows, (uint32_t)rig.sm_count);
    rig_launch(&b->module, "exl2k_sample_keys", a.chunks, rows, EXL2K_SAMPLE_THREADS, 0, &a, sizeof a);
    rig_launch(&b->module, "exl2k_sample_token", ctas, rows, EXL2K_SAMPLE_THREADS, 0, &a, sizeof a);
}

static uint32_t ticket_of(const bench *b)
{
    exl2k_pass step;
    rig_download(b->step, 0, &step, sizeof step);
    CHECK_INT(step.sampled, 0);
    return step.ticket;
}

/* ---- rows against the CPU ---- */

typedef struct wanted_row {
    exl2__sampling sampling;
    exl2__logit_row row;
    exl2_token history[HISTORY];
    exl2_bias bias[BIASES];
    uint32_t mask[MASK_WORDS];
} wanted_row;

/* Makes a row with unusual settings: tokens outside the vocabulary, tokens listed twice, scores and alternatives. */
static void wanted_fill(wanted_row *w, uint32_t vocab, uint32_t index, exl2__sampling sampling)
{
    *w = (wanted_row){ .sampling = sampling };
    for (uint32_t i = 0; i < HISTORY; i++) {
        w->history[i] = (exl2_token)(mix(&random_state) % (vocab + vocab / 8 + 1));
    }
    for (uint32_t i = 0; i < BIASES; i++) {
        uint32_t range = index % 3 == 0 ? BIASES : vocab + 2;
        w->bias[i].token = (exl2_token)(mix(&random_state) % range);
        w->bias[i].add = (float)(uniform(&random_state) * 6 - 3);
    }
    w->bias[0].add = index % 5 == 4 ? MINUS_INF : w->bias[0].add;
    w->sampling.seed = mix(&random_state);
    w->sampling.bias = w->bias;
    w->sampling.bias_count = index % 4 == 3 ? BIASES : 0;
    w->row.row = index;
    w->row.use = index % 7 == 6 ? EXL2__LOGIT_SCORE : EXL2__LOGIT_SAMPLE;
    w->row.target = (exl2_token)(mix(&random_state) % (vocab + 1));
    w->row.alts = index % 3 == 1 ? 1 + (uint32_t)(mix(&random_state) % EXL2_ALTS_MAX) : 0;
    w->row.sampling = &w->sampling;
    w->row.sample_position = mix(&random_state) >> (index % 2 ? 0 : 40);
    w->row.history = w->history;
    w->row.history_count = HISTORY - index;
    for (uint32_t i = 0; i < MASK_WORDS; i++) { /* allow half of the tokens, an eighth, or very few, sometimes none */
        uint32_t bits = (uint32_t)mix(&random_state);
        uint32_t few = bits & (uint32_t)mix(&random_state) & (uint32_t)mix(&random_state);
        w->mask[i] = index % 8 == 1 ? bits : index % 8 == 3 ? few : mix(&random_state) % 256 == 0 ? few : 0;
    }
    w->row.mask = index % 2 ? w->mask : NULL;
}

static void upload_row(const bench *b, const wanted_row *w, uint32_t index)
{
    exl2__cuda_lists lists = { .history = b->history.address + index * HISTORY * 4,
                               .bias = b->bias.address + index * BIASES * sizeof(exl2k_bias),
                               .mask = w->row.mask ? b->masks.address + index * sizeof w->mask : 0,
                               .history_size = HISTORY };
    exl2k_sampling draw = exl2__cuda_sample_settings(&w->row, &lists, false, 0);
    exl2k_bias bias[BIASES];
    for (uint32_t i = 0; i < BIASES; i++) {
        bias[i] = (exl2k_bias){ (uint32_t)w->bias[i].token, w->bias[i].add };
    }
    rig_upload(b->samplings, index * sizeof draw, &draw, sizeof draw);
    rig_upload(b->history, index * HISTORY * 4, w->history, sizeof w->history);
    rig_upload(b->bias, index * sizeof bias, bias, sizeof bias);
    rig_upload(b->masks, index * sizeof w->mask, w->mask, sizeof w->mask);
}

static void compare_row(const bench *b, const wanted_row *w, const exl2k_result *from, uint32_t index)
{
    exl2_alt alts[EXL2_ALTS_MAX], device_alts[EXL2_ALTS_MAX];
    exl2__logit_result wanted = { .alts = alts }, got = { .alts = device_alts };
    void *scratch = take(exl2__sample_scratch_bytes(b->vocab));
    float *copy = take(b->stride * sizeof *copy);
    memcpy(copy, b->logits + (size_t)index * b->stride, b->vocab * sizeof *copy);
    CHECK_INT(exl2__sample_row(exl2__cpu_path_best(), copy, b->vocab, &w->row, scratch, &wanted), EXL2_OK);
    exl2__cuda_sample_result(from, &got);
    bool same = got.token == wanted.token && got.alt_count == wanted.alt_count
             && memcmp(&got.logprob, &wanted.logprob, 4) == 0 && memcmp(&got.logsumexp, &wanted.logsumexp, 4) == 0;
    for (uint32_t i = 0; i < wanted.alt_count && same; i++) {
        same = alts[i].token == device_alts[i].token && memcmp(&alts[i].logprob, &device_alts[i].logprob, 4) == 0;
    }
    if (!CHECK(same)) {
        const exl2__sampling *s = &w->sampling;
        printf("  vocab %u row %u: token %d, wanted %d; logprob %g, %g; sum %g, %g; %u alternatives, %u; T %g k %u "
               "p %g min %g r %g greedy %d biases %u\n", b->vocab, index, got.token, wanted.token,
               (double)got.logprob, (double)wanted.logprob, (double)got.logsumexp, (double)wanted.logsumexp,
               got.alt_count, wanted.alt_count, (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p,
               (double)s->repeat_penalty, s->greedy, s->bias_count);
    }
    free(scratch);
    free(copy);
}

/* Compares all settings on the bench's logits, ROWS at a time. Every launch is repeated and must give the same. */
static void compare_all(const bench *b)
{
    exl2__sampling cases[] = {
        settings(1, 0, 1, 0, 1),           settings(0.3f, 0, 1, 0, 1.3f),    settings(0.8f, 0, 1, 0.05f, 1.1f),
        settings(1, 40, 0.9f, 0, 1),       settings(1.7f, 50, 0.8f, 0, 1),   settings(1, 0, 0.95f, 0, 1),
        settings(2.5f, 0, 0.5f, 0.1f, 1),  settings(1, 5000, 1, 0, 1.2f),    settings(1, 0, 0.999f, 0.001f, 1),
        settings(0.7f, 20, 0.97f, 0.02f, 0.8f), settings(1, 1, 1, 0, 1),     settings(1, 0, 1, 1, 1),
        settings(30, 0, 0.9f, 0, 1),       settings(1, 0, 1e-7f, 0, 1),      settings(1, 64, 1, 1e-9f, 1),
        settings(1, 3000, 0.9f, 0, 1),     settings(1, 0, 1, 0, 1),          settings(1, 0, 1, 0, 1.2f),
        settings(0.01f, 0, 0.9f, 0, 1.5f), settings(1, 2, 0.5f, 0.5f, 1),    settings(1, 0, 0.9f, 1e-4f, 1.1f),
    };
    static wanted_row rows[ROWS];
    cases[16].greedy = cases[17].greedy = true;
    exl2k_pass step = { .logit_count = ROWS, .ticket = ticket_of(b) };
    rig_upload(b->step, 0, &step, sizeof step);
    rig_upload(b->device_logits, 0, b->logits, ROWS * b->stride * 4ull);
    for (uint32_t first = 0; first < EXL2__COUNT(cases); first += 5) { /* rows of several kinds get each setting */
        for (uint32_t i = 0; i < ROWS; i++) {
            wanted_fill(&rows[i], b->vocab, i, cases[(first + i) % EXL2__COUNT(cases)]);
            upload_row(b, &rows[i], i);
        }
        uint32_t ticket = ticket_of(b);
        launch(b, ROWS, first);
        launch(b, ROWS, first + 1);
        CHECK_INT(ticket_of(b), ticket + 2);
        rig_download(b->results, 0, host_results, sizeof host_results);
        for (uint32_t i = 0; i < ROWS; i++) {
            const exl2k_result *got = &host_results[ticket % EXL2K_RESULT_SETS * ROWS + i];
            const exl2k_result *again = &host_results[(ticket + 1) % EXL2K_RESULT_SETS * ROWS + i];
            CHECK_INT(got->stamp >> 32, ticket + 1);
            CHECK_INT(again->stamp - got->stamp, 1ll << 32);
            CHECK(got->sum == again->sum && got->alt_count == again->alt_count);
            compare_row(b, &rows[i], got, i);
        }
    }
}

/* Logits that models do not give: ties, infinities, NaN, subnormal numbers, rows of minus infinity. */
static void spoil(bench *b, uint32_t kind)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        float *x = b->logits + (size_t)r * b->stride;
        for (uint32_t i = 0; i < b->vocab; i++) {
            uint64_t dice = mix(&random_state);
            switch (kind + r % 3) {
            case 0: x[i] = (float)(int)(dice % 5); break;
            case 1: x[i] = 0.25f; break;
            case 2: x[i] = dice % 9 > 1 ? (float)(dice % 100) / 10 : dice % 9 ? NEGATIVE_NAN : NOT_A_NUMBER; break;
            case 3: x[i] = dice % (b->vocab / 2 + 1) == 0 ? PLUS_INF : (float)(dice % 7); break;
            case 4: x[i] = dice % 2 ? MINUS_ZERO : 0.0f; break;
            case 5: x[i] = r == 2 ? MINUS_INF : dice % 3 ? MINUS_INF : -3e38f; break;
            default: x[i] = r & 1 ? NOT_A_NUMBER : (float)(dice % 1000) * 1e-41f; break;
            }
        }
    }
}

static void test_rows(const rig_module *module)
{
    static const uint32_t vocabs[] = { 1, 2, 63, 64, 65, 1000, 4096, 4097, 49152, 152064, 300000 };
    for (size_t v = 0; v < EXL2__COUNT(vocabs); v++) {
        bench b = bench_open(module, vocabs[v]);
        memset(b.logits, 0xFF, (size_t)ROWS * b.stride * 4);
        for (uint32_t r = 0; r < ROWS; r++) {
            fill_logits(b.logits + (size_t)r * b.stride, b.vocab, 1 + r % 3 * 4, mix(&random_state));
        }
        compare_all(&b);
        for (uint32_t kind = 0; kind < 5 && vocabs[v] <= 49152; kind += 2) {
            spoil(&b, kind);
            compare_all(&b);
        }
        bench_close(&b);
    }
}

/* ---- rows that continue on the GPU ---- */

static void test_ahead(const rig_module *module, exl2__sampling sampling)
{
    enum { PASSES = 24, SIZE = 8 };
    bench b = bench_open(module, 5000);
    static wanted_row rows[2];
    exl2k_pass step = { .logit_count = 2 };
    uint32_t tokens[2][PASSES];
    exl2k_row state[ROWS] = { { 0, 100, 0, 0 }, { 0, 7, 1, 0 } };
    for (uint32_t r = 0; r < 2; r++) {
        fill_logits(b.logits + r * b.stride, b.vocab, 1, r + 3);
    }
    rig_upload(b.device_logits, 0, b.logits, 2 * b.stride * 4ull);
    for (uint32_t r = 0; r < 2; r++) { /* expected tokens, by the CPU: the last 8 tokens are penalised */
        wanted_fill(&rows[r], b.vocab, 0, sampling);
        rows[r].row.row = r;
        rows[r].row.history_count = 0;
        for (uint32_t pass = 0; pass < PASSES; pass++) {
            exl2_alt alts[EXL2_ALTS_MAX];
            exl2__logit_result result = { .alts = alts };
            exl2__logit_row row = rows[r].row;
            float *copy = take(b.stride * sizeof *copy);
            void *scratch = take(exl2__sample_scratch_bytes(b.vocab));
            uint32_t known = exl2__min32(pass, SIZE);
            memcpy(copy, b.logits + r * b.stride, b.vocab * sizeof *copy);
            row.history = (const exl2_token *)&tokens[r][pass - known];
            row.history_count = known;
            row.sample_position += pass;
            CHECK_INT(exl2__sample_row(exl2__cpu_path_best(), copy, b.vocab, &row, scratch, &result), EXL2_OK);
            tokens[r][pass] = (uint32_t)result.token;
            free(copy);
            free(scratch);
        }
    }
    for (uint32_t r = 0; r < 2; r++) {
        exl2__cuda_lists lists = { .history = b.history.address + r * HISTORY * 4, .history_size = SIZE };
        exl2k_sampling draw = exl2__cuda_sample_settings(&rows[r].row, &lists, true, r == 0 ? PASSES - 4 : 1000);
        rig_upload(b.samplings, r * sizeof draw, &draw, sizeof draw);
    }
    rig_upload(b.step, 0, &step, sizeof step);
    rig_upload(b.rows, 0, state, sizeof state);
    const uint32_t end[2] = { PASSES - 4, 1000 };
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        launch(&b, ROWS, pass); /* the launch has more rows than the pass */
        rig_download(b.results, 0, host_results, sizeof host_results);
        rig_download(b.rows, 0, state, sizeof state);
        for (uint32_t r = 0; r < 2; r++) {
            uint32_t wanted = pass < end[r] ? tokens[r][pass] : EXL2K_NO_TOKEN, moves = exl2__min32(pass + 1, end[r]);
            CHECK_INT((uint32_t)host_results[pass % EXL2K_RESULT_SETS * ROWS + r].stamp, wanted);
            CHECK_INT(host_results[pass % EXL2K_RESULT_SETS * ROWS + r].stamp >> 32, pass + 1);
            CHECK_INT(state[r].position, (r == 0 ? 100u : 7u) + moves);
            CHECK_INT(state[r].token, tokens[r][moves - 1]);
            CHECK_INT(state[r].flags, pass + 1 >= end[r] ? EXL2K_ROW_DONE : 0);
        }
    }
    bench_close(&b);
}

/* ---- time ---- */

static void time_rows(const rig_module *module, uint32_t vocab, const char *what, exl2__sampling s, double spread,
                      uint32_t alts, uint32_t rows)
{
    enum { REPEATS = 50 };
    bench b = bench_open(module, vocab);
    static wanted_row w;
    exl2k_pass step = { .logit_count = rows };
    double best = 1e30;
    for (uint32_t r = 0; r < rows; r++) {
        fill_logits(b.logits + (size_t)r * b.stride, vocab, spread, r + 1);
        wanted_fill(&w, vocab, 0, s);
        w.row.alts = alts;
        w.row.row = r;
        upload_row(&b, &w, r);
    }
    rig_upload(b.device_logits, 0, b.logits, rows * b.stride * 4ull);
    rig_upload(b.step, 0, &step, sizeof step);
    rig_capture();
    for (uint32_t i = 0; i < REPEATS; i++) {
        launch(&b, rows, 0);
    }
    exl2__cuda_graph_exec *graph = rig_captured();
    for (int i = 0; i < 30; i++) { /* clocks rise */
        rig_replay(graph);
    }
    for (int i = 0; i < 5; i++) {
        rig_start();
        rig_replay(graph);
        double us = rig_stop() / REPEATS;
        best = us < best ? us : best;
    }
    printf("sample: %-28s vocab %6u, %2u rows: %6.1f us\n", what, vocab, rows, best);
    bench_close(&b);
}

static void time_all(const rig_module *module)
{
    exl2__sampling greedy = settings(1, 0, 1, 0, 1);
    greedy.greedy = true;
    time_rows(module, 49152, "greedy", greedy, 6, 0, 1);
    time_rows(module, 128256, "greedy", greedy, 6, 0, 1);
    time_rows(module, 152064, "greedy", greedy, 6, 0, 1);
    time_rows(module, 152064, "greedy", greedy, 6, 0, 8);
    time_rows(module, 152064, "neutral", settings(1, 0, 1, 0, 1), 6, 0, 1);
    time_rows(module, 152064, "min-p, penalty", settings(0.8f, 0, 1, 0.05f, 1.1f), 6, 0, 1);
    time_rows(module, 152064, "top-k 40, top-p 0.9", settings(1, 40, 0.9f, 0, 1), 6, 0, 1);
    time_rows(module, 152064, "top-p 0.9", settings(1, 0, 0.9f, 0, 1), 6, 0, 1);
    time_rows(module, 152064, "top-p 0.9, flat logits", settings(1, 0, 0.9f, 0, 1), 1, 0, 1);
    time_rows(module, 152064, "greedy, 64 alternatives", greedy, 6, 64, 1);
}

int main(int argc, char **argv)
{
    bool test = argc < 3 || strcmp(argv[2], "test") == 0, time = argc < 3 || strcmp(argv[2], "time") == 0;
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    rig_module module = rig_load("sample.cu", NULL);
    printf("sample.cu: compiled in %.0f ms\n", module.compile_ms);
    if (test) {
        test_rows(&module);
        exl2__sampling greedy = settings(1, 0, 1, 0, 1.5f);
        greedy.greedy = true;
        test_ahead(&module, settings(0.9f, 0, 0.95f, 0, 1.5f));
        test_ahead(&module, settings(1.2f, 30, 0.9f, 0.01f, 1.3f));
        test_ahead(&module, greedy);
    }
    if (time) {
        time_all(&module);
    }
    rig_unload(&module);
    rig_close();
    return test ? check_done() : 0;
}
