/* forward.c: passes of a backend with two kinds of items. A budget is compared with the time of the next items, not
   with that of smaller items of the same phase, and a unit has no more items than its own limit holds. Masks are
   requested once, before sampling. Passes of an asynchronous backend: a step enqueues no more units than its thread has
   time for. */
#include "private/forward_queue.h"
#include "private/plan.h"
#include "../check.h"

#define TILES 10u
#define STRIPS 40u
#define AN_HOUR_NS (3600u * 1000000000ull)

static struct { exl2__phase phase; uint32_t begin, end; } calls[2000];
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
static exl2__spans spans;

static exl2__forward make(void)
{
    exl2__forward f = { .c = &context, .spans = &spans, .plan = &plan };
    spans = (exl2__spans){ .span = { { .backend = &backend, .end = 2 } }, .count = 1 };
    plan.layers = layers;
    plan.shape.layers = 2;
    plan.rows_max = 64;
    plan.logit_rows_max = 4;
    layers[1].index = 1;
    for (uint32_t i = 0; i < 2; i++) {
        layers[i].phases = exl2__plan_plain_phases;
        layers[i].phase_count = EXL2__COUNT(exl2__plan_plain_phases) - 1; /* without `steer` */
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

/* A unit has no more items than its own limit holds, however far the deadline is; but at least one. */
static void short_units(void)
{
    static const struct { uint64_t unit_ns; uint32_t strips; } rows[] = {
        { 450000, 4 }, { 100000, 1 }, { 99999, 1 }, { 1, 1 }, { 1000000000, STRIPS }, { 0, STRIPS }
    };
    for (uint32_t i = 0; i < EXL2__COUNT(rows); i++) {
        exl2__forward f = make();
        exl2__step step = step_of(3, false);
        exl2__forward_status status = EXL2__FORWARD_MORE;
        exl2__item_run strip = alike(NULL, EXL2__PHASE_qkv, NULL, 3, TILES);
        f.phase = EXL2__PHASE_qkv;
        exl2__forward_learn(&f, &strip, 3, 1, 100000); /* 0.1 ms each */
        f.unit_ns = rows[i].unit_ns;
        CHECK_INT(exl2__forward_begin(&f, &step), EXL2_OK);
        CHECK_INT(exl2__forward_run(&f, exl2__platform_ns() + AN_HOUR_NS, true, &status), EXL2_OK);
        uint32_t at = 0;
        while (at < call_count && (calls[at].phase != EXL2__PHASE_qkv || calls[at].begin < TILES)) {
            at++;
        }
        CHECK(at < call_count && calls[at].begin == TILES);
        CHECK_INT(calls[at].end - TILES, rows[i].strips);
        CHECK_INT(status, EXL2__FORWARD_RESULTS);
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

/* ---- an asynchronous backend: a unit needs 1 ns of the device and 1 ms of the thread ---- */

#define UNITS 40u

static uint32_t units(const exl2__device *d)
{
    (void)d;
    return UNITS;
}

static uint64_t unit_ns(const exl2__device *d, uint32_t unit)
{
    (void)d;
    (void)unit;
    return 1;
}

static exl2_result enqueue(exl2__device *d, uint32_t first, uint32_t end, bool timed)
{
    (void)d;
    (void)timed;
    exl2__platform_sleep_us(1000 * (end - first));
    return EXL2_OK;
}

/* The units of a pass that one step enqueues, with `us` until its thread must return; negative: it should have. */
static uint32_t enqueued(exl2__forward *f, exl2__row_kind kind, exl2__queue_budget budget, int us)
{
    exl2__step step = step_of(1, false);
    exl2__forward_status status;
    step.kind = kind;
    step.logit_count = 0;
    CHECK_INT(exl2__forward_begin(f, &step), EXL2_OK);
    budget.cpu_end_ns = us ? exl2__platform_ns() + (uint64_t)(us * 1000) : 0;
    CHECK_INT(exl2__forward_queue(f, &budget, &status), EXL2_OK);
    return f->unit;
}

static void thread_time(void)
{
    static const exl2__backend_queue queue = { .units = units, .head_units = units, .enqueue = enqueue,
                                               .unit_ns = unit_ns };
    exl2__forward f = make();
    exl2__backend async = backend;
    exl2__queue_budget late = { .timed = true, .ns = { UNITS } }, idle = late, whole = { .timed = false };
    async.queue = &queue;
    spans.span[0].backend = &async;
    idle.idle[0] = true;
    CHECK_INT(enqueued(&f, EXL2__ROWS_PROMPT, late, -1), 0);
    CHECK_INT(enqueued(&f, EXL2__ROWS_PROMPT, idle, -1), 1); /* a pass goes on, however short the steps are */
    uint32_t some = enqueued(&f, EXL2__ROWS_PROMPT, idle, 8500); /* it has learned what a unit costs */
    CHECK(some >= 1 && some <= 8);
    CHECK(enqueued(&f, EXL2__ROWS_SAMPLED, late, 200) <= 200 * 1000 / EXL2__FORWARD_FIRST_ENQUEUE_NS);
    CHECK_INT(enqueued(&f, EXL2__ROWS_PROMPT, late, 0), UNITS);
    CHECK_INT(enqueued(&f, EXL2__ROWS_PROMPT, whole, -1), UNITS);
}

int main(void)
{
    kinds();
    ranges();
    short_units();
    masks();
    thread_time();
    return check_done();
}
