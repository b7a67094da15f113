/* forward.c: passes of a backend with two kinds of items. A budget is compared with the time of the next items, not
   with that of smaller items of the same phase. Masks are requested once, before sampling. */
#include "../../exl2_impl/2_graph/forward.h"
#include "../../exl2_impl/2_graph/plan.h"
#include "../check.h"

#define TILES 10u
#define STRIPS 40u
#define AN_HOUR_NS (3600u * 1000000000ull)

static struct { exl2__phase phase; uint32_t begin, end; } calls[200];
static uint32_t call_count, collected;

static exl2_result begin(exl2__device *d, const exl2__step *step)
{
    (void)d;
    (void)step;
    call_count = collected = 0;
    return EXL2_OK;
}

static uint32_t items(const exl2__device *d, exl2__phase phase, const exl2__layer *layer, const exl2__range *range)
{
    (void)d;
    (void)layer;
    (void)range;
    return phase == EXL2__PHASE_copy_pages ? 0 : TILES + STRIPS;
}

static exl2__item_run alike(const exl2__device *d, exl2__phase phase, const exl2__layer *layer, uint32_t rows,
                            uint32_t item)
{
    (void)d;
    (void)layer;
    (void)phase;
    return item < TILES ? (exl2__item_run){ 10, 0, TILES }
        : item < TILES + STRIPS ? (exl2__item_run){ 1000ull * rows, 1, TILES + STRIPS } : (exl2__item_run){ 0, 0, 0 };
}

static exl2_result collect(exl2__device *d, uint32_t logit0, uint32_t count, bool wait, exl2__logit_result *results)
{
    (void)d;
    (void)logit0;
    (void)wait;
    (void)results;
    collected += count;
    return EXL2_OK;
}

static void note(exl2__phase phase, const exl2__range *range)
{
    if (CHECK(call_count < EXL2__COUNT(calls))) {
        calls[call_count].phase = phase;
        calls[call_count].begin = range->begin;
        calls[call_count++].end = range->end;
    }
}

#define X(name) \
    static exl2_result run_##name(exl2__device *d, const exl2__layer *layer, const exl2__range *range) \
    { \
        (void)d; \
        (void)layer; \
        note(EXL2__PHASE_##name, range); \
        return EXL2_OK; \
    }
EXL2__PHASES(X)
#undef X

static const exl2__backend backend = {
    .name = "noted", .begin = begin, .items = items, .item_run = alike, .collect = collect,
#define X(name) .name = run_##name,
    EXL2__PHASES(X)
#undef X
};

static exl2__ctx context;
static exl2__layer layers[2];
static exl2__plan plan;

static exl2__forward make(void)
{
    exl2__forward f = { .c = &context, .backend = &backend, .plan = &plan };
    plan.layers = layers;
    plan.shape.layers = 2;
    plan.rows_max = 64;
    plan.logit_rows_max = 4;
    layers[1].index = 1;
    for (uint32_t i = 0; i < 2; i++) {
        layers[i].phases = exl2__plan_plain_phases;
        layers[i].phase_count = EXL2__COUNT(exl2__plan_plain_phases);
    }
    return f;
}

static exl2__step step_of(uint32_t rows, bool masked)
{
    static const exl2__logit_row logits[1] = { { 0 } };
    return (exl2__step){ .row_count = rows, .logits = logits, .logit_count = 1, .masked = masked };
}

/* The cost of tiles predicts nothing about strips, for any number of rows. */
static void kinds(void)
{
    exl2__forward f = make();
    f.phase = EXL2__PHASE_gate_up;
    for (uint32_t i = 0; i < 20; i++) {
        exl2__item_run tile = alike(NULL, EXL2__PHASE_gate_up, NULL, 64, 0);
        exl2__item_run strip = alike(NULL, EXL2__PHASE_gate_up, NULL, 64, TILES);
        exl2__forward_learn(&f, &strip, 64, 5, 5 * 2000000); /* 2 ms each */
        for (uint32_t k = 0; k < 50; k++) {
            exl2__forward_learn(&f, &tile, 64, 5, 5 * 10); /* 10 ns each */
        }
        CHECK_INT(exl2__forward_fit(&f, &strip, 64, 4100000), 2);
        CHECK(exl2__forward_fit(&f, &tile, 64, 4100000) > 400000);
    }
    exl2__item_run strip = alike(NULL, EXL2__PHASE_gate_up, NULL, 64, TILES);
    f.phase = EXL2__PHASE_down;
    /* a guess, because nothing was measured for this phase */
    CHECK_INT(exl2__forward_fit(&f, &strip, 64, 7000000), 1093);
    CHECK_INT(exl2__forward_rows_for(&f, 10000000), 64);
    CHECK_INT(exl2__forward_rows_for(&f, 1000000), 32); /* a strip of gate_up costs 2 ms at 64 rows */
    CHECK_INT(exl2__forward_rows_for(&f, 1), 1);
}

/* With a deadline no call crosses from one kind to the next; without one, each phase is one call. */
static void ranges(void)
{
    for (uint32_t timed = 0; timed < 2; timed++) {
        exl2__forward f = make();
        exl2__step step = step_of(3, false);
        exl2__forward_status status = EXL2__FORWARD_MORE;
        CHECK_INT(exl2__forward_begin(&f, &step), EXL2_OK);
        uint64_t deadline = timed ? exl2__platform_ns() + AN_HOUR_NS : 0;
        CHECK_INT(exl2__forward_run(&f, deadline, true, &status), EXL2_OK);
        CHECK_INT(status, EXL2__FORWARD_RESULTS);
        CHECK_INT(exl2__forward_run(&f, deadline, true, &status), EXL2_OK);
        CHECK(status == EXL2__FORWARD_DONE && !f.active && collected == 1);
        uint32_t phases = 1 + 2 * 5 + 2, at = 0;
        CHECK_INT(call_count, phases * (timed ? 2 : 1));
        for (uint32_t i = 0; i < call_count; i++) {
            CHECK_INT(calls[i].begin, at);
            CHECK_INT(calls[i].end, timed && at == 0 ? TILES : TILES + STRIPS);
            at = calls[i].end == TILES + STRIPS ? 0 : calls[i].end;
        }
    }
}

/* Nothing is sampled before the masks are ready. */
static void masks(void)
{
    exl2__forward f = make();
    exl2__step step = step_of(1, true);
    exl2__forward_status status = EXL2__FORWARD_MORE;
    CHECK_INT(exl2__forward_begin(&f, &step), EXL2_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(exl2__forward_run(&f, 0, true, &status), EXL2_OK);
        CHECK(status == EXL2__FORWARD_MASKS && f.active && f.masks == EXL2__MASKS_WANTED);
        CHECK(call_count == 12 && calls[call_count - 1].phase == EXL2__PHASE_head);
    }
    CHECK_INT(exl2__forward_masked(&f), EXL2_OK);
    CHECK_INT(exl2__forward_run(&f, 0, true, &status), EXL2_OK);
    CHECK(status == EXL2__FORWARD_RESULTS && call_count == 13 && calls[12].phase == EXL2__PHASE_sample);
    CHECK_INT(exl2__forward_run(&f, 0, true, &status), EXL2_OK);
    CHECK(status == EXL2__FORWARD_DONE && !f.active);
}

int main(void)
{
    kinds();
    ranges();
    masks();
    return check_done();
}
