/* steps.c: the CPU time of passes of 1 to 64 sampled rows on a GPU, for a model of 32 layers. It is a gate: without
   graphs each kernel of a pass is launched by itself, and a pass of 32 rows takes about a millisecond of a thread.
   takes: a GPU; $EXL2_TEST_KERNELS.
   gives: exit code 0, 1, or 77 without a GPU; CPU microseconds of a pass, by rows. */
#define SYNTH_LAYERS 32

#include "../../exl2.h"

#define CONTEXT 128u
#define PAGES 131u /* prime */
#define ROWS_MAX 64u
#define SEQUENCES_MAX 64u
#define LOGITS_MAX 64u

#include "../unit/made_step.h"
#include "gpu_rig.h"
#include "spread.h"

#define PASSES 200u
#define ROUNDS 5u        /* the least mean counts, as other programs may disturb a round */
#define PASS_US_MAX 200.0 /* of a pass by graphs */

static synth_model model;
static made_step made;
static exl2__logit_result results[ROWS_MAX];
static exl2_alt alts[ROWS_MAX][EXL2_ALTS_MAX];

/* A step of `rows` sequences, each with one sampled row. */
static void make_step(uint32_t vocab, uint32_t rows)
{
    static made_rows sequences[SEQUENCES_MAX];
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++) {
        sequences[i] = (made_rows){ 70, i < rows };
    }
    made_step_place(&made, sequences, vocab, false);
    made.greedy = (exl2__sampling){ .greedy = true, .temperature = 1, .top_p = 1, .repeat_penalty = 1 };
    made.step.kind = EXL2__ROWS_SAMPLED;
    made.step.decodes = true;
    for (uint32_t i = 0; i < rows; i++) {
        made.logits[i] = (exl2__logit_row){ .row = i, .use = EXL2__LOGIT_SAMPLE, .sampling = &made.greedy,
                                            .sample_position = 71, .left = 1 };
        results[i].alts = alts[i];
    }
    made.step.logit_count = rows;
}

static void run_pass(bool graphs)
{
    synth_need(&model, model.b->begin(model.d, &made.step));
    exl2__cuda_pass *pass = &exl2__cuda_of(model.d)->pass;
    CHECK(pass->captured);
    if (!graphs) {
        pass->captured = false;
        pass->row_count = made.step.row_count;
    }
    uint32_t units = model.b->queue->units(model.d) + model.b->queue->head_units(model.d);
    synth_need(&model, model.b->queue->enqueue(model.d, 0, units, false));
    synth_need(&model, model.b->collect(model.d, 0, made.step.logit_count, true, results));
}

/* CPU microseconds of a pass. */
static double pass_us(bool graphs)
{
    double least = 1e9;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < 20; i++) { /* graphs are uploaded, and the length of a sleep is learned */
            run_pass(graphs);
        }
        double begin = check_cpu_seconds();
        for (uint32_t i = 0; i < PASSES; i++) {
            run_pass(graphs);
        }
        double us = (check_cpu_seconds() - begin) * 1e6 / PASSES;
        least = us < least ? us : least;
    }
    return least;
}

int main(void)
{
    static const synth_shape shape = { 128, 160, SYNTH_LAYERS, 4, 2, 64, 300, 3, false, false, false, true };
    static const uint32_t rows[] = { 1, 8, 16, 24, 32, 48, 64 };
    synth_sequences = synth_logits = 64;
    gpu_open(NULL, 0);
    synth_model_open_on(&model, &exl2__cuda_backend, &gpu, &shape, 7, spread_parallel(), ROWS_MAX, CONTEXT, PAGES,
                        NULL);
    for (uint32_t i = 0; i < EXL2__COUNT(rows); i++) {
        make_step(shape.vocab, rows[i]);
        double by_graphs = pass_us(true), by_kernels = pass_us(false);
        printf("%2u rows: %.0f us of CPU time a pass, without graphs %.0f us\n", rows[i], by_graphs, by_kernels);
        CHECK(by_graphs < PASS_US_MAX);
    }
    synth_model_close(&model);
    gpu_close();
    return check_done();
}
