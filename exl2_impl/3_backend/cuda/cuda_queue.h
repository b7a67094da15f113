/* cuda_queue.h: enqueues and times the units of a pass, repeats it before its tokens are known, collects results.
   takes: a current pass.
   gives: exl2__cuda_units, _queue, _unit_ns, _queued_ns, _rows_for, _repeat, _ahead, _collect, _row_logits,
          _row_sample, _row_hidden of the backend; _head_units, too.

   A fence is a sequence number that is enqueued after a group of logit rows has been sampled, or at the end of a pass
   without logits. Its event and its set of results are at fence % EXL2K_RESULT_SETS. Up to three fences are in flight:
   of the pass that is waited for, and of two repetitions. */
#ifndef EXL2__CUDA_QUEUE_H
#define EXL2__CUDA_QUEUE_H

#include "cuda_graph.h"

#include <math.h>

#ifndef EXL2__CUDA_UNIT_NS
#define EXL2__CUDA_UNIT_NS 250000u     /* target time of a unit of layers, or of columns of the head */
#endif
#define EXL2__CUDA_WHOLE_NS 15000000u /* longer passes run unit by unit, as a display driver may reset a busy GPU */
#define EXL2__CUDA_PAIR_NS 4000000u    /* longer passes are waited for one by one */
#define EXL2__CUDA_SLEEP_NS_MIN 20000u
#define EXL2__CUDA_ROWS_ALIKE 128u /* rows of prompts below which a pass costs hardly less time */
#define EXL2__CUDA_SLEEP_NS_MAX 500000000u
#define EXL2__CUDA_COPY_MBPS 20000u /* assumed speed of copies to the GPU, before one was measured */
#define EXL2__CUDA_OVERDUE_NS 1000000u /* results this much later than twice their prediction may never come */
#define EXL2__CUDA_FIRST_SLEEP_PART 2u    /* many rows: the first sleep is 1/2 of the prediction */
#define EXL2__CUDA_MANY_SLEEP_PART 32u    /* many rows: each further sleep is 1/32 of the time waited so far */
#define EXL2__CUDA_DECODE_SLEEP_PART 16u  /* decoding: each further sleep is 1/16 of the time waited so far */
#define EXL2__CUDA_LEARN_SHRINK_PART 64u  /* decoding: the prediction shrinks by 1/64 */
#define EXL2__CUDA_LEARN_GROW_PART 8u     /* decoding: the prediction grows by 1/8 at most */

/* ---- estimates ---- */

/* Estimated time of one row through a layer or the head: reading its bytes at half of the memory's bandwidth. */
static inline uint64_t exl2__cuda_read_ns(const exl2__cuda_model *m, uint64_t bytes)
{
    return bytes * 2000 / exl2__max32(m->gpu->memory_mbps, 1000) + 1;
}

/* Whether the unit, a layer of a pass of prompts, waits for weights that are copied to the device. */
static inline bool exl2__cuda_unit_waits(const exl2__cuda_model *m, uint32_t unit)
{
    bool layer = unit < exl2__cuda_layer_units(m);
    return layer && exl2__cuda_streamed_used(m) && exl2__plan_first(m->plan) + unit >= m->plan->streamed.first;
}

/* Estimated time of a unit, but for such copies. */
EXL2__PRIVATE uint64_t exl2__cuda_compute_ns(const exl2__cuda_model *m, uint32_t unit)
{
    uint32_t units = exl2__cuda_layer_units(m), size = m->plan->logit_rows_max;
    uint32_t first = unit < units ? 0 : (unit - units) / m->head_units * size;
    if (unit >= units && exl2__step_has_hidden(m->step, first, exl2__min32(size, m->step->logit_count - first), true)) {
        return 0;
    }
    uint32_t rows = exl2__max32(m->step->row_count, m->pass.prompts ? EXL2__CUDA_ROWS_ALIKE : 0);
    if (unit >= units) {
        uint64_t reads = exl2__div_up(exl2__max32(m->step->logit_count, 1), 16);
        return exl2__cuda_read_ns(m, m->head_bytes) * reads / m->head_units;
    }
    bool part = m->plan->host_mlps && unit + m->plan->host_mlps + 1 >= units;
    uint64_t ns = part ? exl2__cuda_read_ns(m, m->attention_bytes)
                       : exl2__cuda_read_ns(m, m->layer_bytes) * exl2__cuda_unit_layers(m);
    return ns + ns * rows / 64;
}

EXL2__PRIVATE uint64_t exl2__cuda_estimate_ns(const exl2__cuda_model *m, uint32_t unit)
{
    uint64_t ns = exl2__cuda_compute_ns(m, unit);
    const exl2__streamed *s = &m->plan->streamed;
    if (!exl2__cuda_unit_waits(m, unit)) {
        return ns;
    }
    uint64_t bytes = s->host_bytes / (exl2__plan_end(m->plan) - s->first); /* of a layer */
    return exl2__max64(ns, bytes * 1000 / EXL2__CUDA_COPY_MBPS);
}

static inline uint32_t exl2__cuda_pass_class(const exl2__cuda_model *m)
{
    return m->pass.prompts ? EXL2__CUDA_PASS_CLASSES - 1 : exl2__cuda_row_class(m->step->row_count);
}

/* Index into exl2__cuda_timing.factor, of units up to this one that are enqueued together: layers whose weights are
   copied come last. */
static inline uint32_t exl2__cuda_timing_class(const exl2__cuda_model *m, uint32_t unit)
{
    return exl2__cuda_unit_waits(m, unit) ? EXL2__CUDA_TIMING_STREAMED : exl2__cuda_pass_class(m);
}

EXL2__PRIVATE uint32_t exl2__cuda_units(const exl2__device *device)
{
    return exl2__cuda_layer_units(exl2__cuda_of(device));
}

EXL2__PRIVATE uint32_t exl2__cuda_head_units(const exl2__device *device)
{
    return exl2__cuda_of(device)->head_units;
}

EXL2__PRIVATE uint64_t exl2__cuda_unit_ns(const exl2__device *device, uint32_t unit)
{
    const exl2__cuda_model *m = exl2__cuda_of(device);
    return exl2__cuda_timing_ns(&m->timing, exl2__cuda_timing_class(m, unit), exl2__cuda_estimate_ns(m, unit));
}

/* Fewer than 8 rows cost as much time as 8. */
EXL2__PRIVATE uint32_t exl2__cuda_rows_for(const exl2__device *device, uint64_t ns)
{
    const exl2__cuda_model *m = exl2__cuda_of(device);
    uint64_t estimate_ns = exl2__cuda_read_ns(m, m->layer_bytes);
    uint64_t layer_ns = exl2__cuda_timing_ns(&m->timing, EXL2__CUDA_PASS_CLASSES - 1, estimate_ns);
    uint64_t rows = ns > layer_ns ? (ns - layer_ns) * 64 / layer_ns : 0;
    return (uint32_t)exl2__min64(exl2__max64(rows, EXL2__CUDA_FEW_ROWS), m->plan->rows_max);
}

EXL2__PRIVATE uint64_t exl2__cuda_queued_ns(exl2__device *device)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    if (m->timing.count == 0 || exl2__cuda_device_enter(m->gpu) < 0) {
        return 0;
    }
    uint64_t ns = exl2__cuda_timing_queued(m->gpu, &m->timing);
    exl2__cuda_device_leave(m->gpu);
    return ns;
}

/* ---- queueing ---- */

/* Enqueues a fence after the sampling of a group, or after a pass without logits. */
EXL2__PRIVATE exl2_result exl2__cuda_queue_fence(exl2__cuda_model *m)
{
    EXL2__TRY(exl2__cuda_cross_advance(m));
    EXL2__TRY(exl2__cuda_keep_group(m));
    int recorded = m->gpu->driver.event_record(m->b.fences[m->fences_queued % EXL2K_RESULT_SETS], m->gpu->stream);
    m->fence_steps[m->fences_queued % EXL2K_RESULT_SETS] = m->step;
    m->fences_queued++;
    exl2__cuda_device_flush(m->gpu);
    return exl2__cuda_device_check(m->gpu, recorded, "recording an event");
}

EXL2__PRIVATE exl2_result exl2__cuda_queue_units(exl2__cuda_model *m, uint32_t begin, uint32_t end)
{
    uint32_t layers = exl2__cuda_layer_units(m);
    bool head = m->step->logit_count && m->head_units;
    uint32_t crossing = exl2__cuda_host_first(m, layers);
    bool ends = head ? end > layers && (end - layers) % m->head_units == 0 : end == layers;
    if (begin == 0 && m->step->copy_count) {
        EXL2__TRY(exl2__cuda_do(m, EXL2__PHASE_copy_pages, NULL, NULL));
    }
    if (begin >= crossing && begin < layers) {
        EXL2__TRY(exl2__cuda_host_fetch(m));
    }
    uint32_t first = m->taken && begin == 0 && !m->pass.captured ? 1 : end; /* the span before may go on after it */
    if (m->step->row_count) {
        EXL2__TRY(m->pass.captured ? exl2__cuda_queue_graphs(m, begin, end) : exl2__cuda_queue_plain(m, begin, first));
    }
    if (begin == 0) {
        EXL2__TRY(exl2__cuda_cross_taken(m));
    }
    if (m->step->row_count && first < end) {
        EXL2__TRY(exl2__cuda_queue_plain(m, first, end));
    }
    bool crosses = end >= crossing && end < layers;
    if (crosses) {
        EXL2__TRY(exl2__cuda_host_send(m));
    }
    if (!crosses && (!ends || m->plan->layers_after)) {
        exl2__cuda_device_flush(m->gpu);
        return EXL2_OK;
    }
    return exl2__cuda_queue_fence(m);
}

EXL2__PRIVATE exl2_result exl2__cuda_queue_timed(exl2__cuda_model *m, uint32_t begin, uint32_t end)
{
    uint64_t estimate_ns = 0;
    for (uint32_t unit = begin; unit < end; unit++) {
        estimate_ns += exl2__cuda_estimate_ns(m, unit);
    }
    EXL2__TRY(exl2__cuda_timing_begin(m->gpu, &m->timing));
    EXL2__TRY(exl2__cuda_queue_units(m, begin, end));
    uint32_t layers = exl2__cuda_layer_units(m), last = begin < layers ? exl2__min32(end, layers) : end;
    return exl2__cuda_timing_end(m->gpu, &m->timing, exl2__cuda_timing_class(m, last - 1), estimate_ns);
}

EXL2__PRIVATE exl2_result exl2__cuda_queue(exl2__device *device, uint32_t begin, uint32_t end, bool timed)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, timed ? exl2__cuda_queue_timed(m, begin, end)
                                                      : exl2__cuda_queue_units(m, begin, end));
}

/* The sampling kernels advance the rows before this pass starts. With masks, only the layers are enqueued; head and
   sampling follow when the new masks are ready. */
EXL2__PRIVATE exl2_result exl2__cuda_repeat_pass(exl2__cuda_model *m)
{
    uint32_t end = exl2__cuda_layer_units(m) + (m->step->masked ? 0 : m->head_units);
    m->pass.longest_context++;
    m->kept[m->step->group].pass.longest_context = m->pass.longest_context;
    m->pass.chained = false; /* attention reads pages that the pass before has written, before it waits */
    EXL2__TRY(exl2__cuda_lora_turn(m));
    EXL2__TRY(m->pass.captured ? exl2__cuda_queue_graphs(m, 0, end) : exl2__cuda_queue_plain(m, 0, end));
    EXL2__TRY(exl2__cuda_cross_taken(m));
    if (m->step->masked || m->plan->layers_after) {
        exl2__cuda_device_flush(m->gpu);
        return EXL2_OK;
    }
    return exl2__cuda_queue_fence(m);
}

EXL2__PRIVATE exl2_result exl2__cuda_repeat(exl2__device *device)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_repeat_pass(m));
}

/* Waking up costs more CPU time than the rest of a token, so the thread sleeps once for two quick tokens. */
EXL2__PRIVATE uint32_t exl2__cuda_ahead(const exl2__device *device)
{
    const exl2__cuda_model *m = exl2__cuda_of(device);
    uint64_t row_ns = m->row_ns[exl2__cuda_pass_class(m)];
    return !m->step->masked && row_ns > 0 && row_ns < EXL2__CUDA_PAIR_NS ? 2 : 1;
}

/* ---- results ---- */

static inline const exl2k_result *exl2__cuda_results(const exl2__cuda_model *m, uint32_t fence)
{
    return m->b.results + fence % EXL2K_RESULT_SETS * m->plan->logit_rows_max;
}

/* Whether all results have arrived: every row's stamp, which the GPU writes last, is that of the fence. */
EXL2__PRIVATE bool exl2__cuda_results_arrived(const exl2__cuda_model *m, uint32_t fence, uint32_t count)
{
    const exl2k_result *results = exl2__cuda_results(m, fence);
    for (uint32_t i = 0; i < count; i++) {
        if (exl2__atomic_load64((const uint64_t *)(const void *)&results[i].stamp) >> 32 != fence + 1) {
            return false;
        }
    }
    return true;
}

/* The driver's result for the fence. Querying costs about a microsecond. */
static inline int exl2__cuda_fence_query(const exl2__cuda_model *m, uint32_t fence)
{
    return m->gpu->driver.event_query(m->b.fences[fence % EXL2K_RESULT_SETS]);
}

/* Whether the fence may still pass. */
static inline bool exl2__cuda_fence_waits(const exl2__cuda_model *m, uint32_t fence)
{
    return exl2__cuda_fence_query(m, fence) == EXL2__CUDA_NOT_READY && exl2__cuda_cross_check(m) == EXL2_OK;
}

/* Whether all results have arrived or, without results, whether the pass has ended. */
EXL2__PRIVATE bool exl2__cuda_fence_passed(const exl2__cuda_model *m, uint32_t fence, uint32_t count)
{
    return count > 0 ? exl2__cuda_results_arrived(m, fence, count)
                     : exl2__cuda_fence_query(m, fence) != EXL2__CUDA_NOT_READY;
}

/* ---- sleeping while the GPU works ---- */

/* A thread that waits in the driver costs CPU time, so the engine sleeps and looks at the results in between. A sleep
   costs microseconds, too, so its length is learned, in m->row_ns. Passes that decode cost the same time each: one
   sleep should be as long as the pass. The time per row of passes with many rows differs from prompt to prompt: the
   first sleep is half of the prediction, and short sleeps follow. */
typedef struct exl2__cuda_sleep {
    uint32_t fence;     /* the thread waits for this fence */
    uint32_t kind;      /* class of the pass: index into m->row_ns */
    bool many_rows;     /* the pass has rows of prompts */
    uint64_t rows;      /* multiples of row_ns that the wait lasts: rows, or passes that decode */
    uint32_t sleeps;    /* number of sleeps so far */
    uint64_t waited_ns; /* time waited so far */
} exl2__cuda_sleep;

/* If three passes that decode are in flight, the thread waits for two of them at once, as waking up costs more than the
   delay. */
EXL2__PRIVATE exl2__cuda_sleep exl2__cuda_sleep_begin(const exl2__cuda_model *m)
{
    uint32_t pair = m->fences_queued - m->fences_collected > 2;
    exl2__cuda_sleep s = { .fence = m->fences_collected + pair, .kind = exl2__cuda_pass_class(m) };
    s.many_rows = s.kind + 1 == EXL2__CUDA_PASS_CLASSES;
    uint32_t alike = exl2__cuda_streamed_used(m) ? m->plan->rows_max : EXL2__CUDA_ROWS_ALIKE; /* copies take as long */
    s.rows = s.many_rows ? exl2__max32(m->step->row_count, alike) : 1 + pair;
    return s;
}

static inline uint64_t exl2__cuda_first_sleep_ns(const exl2__cuda_sleep *s, uint64_t row_ns)
{
    return row_ns * s->rows / (s->many_rows ? EXL2__CUDA_FIRST_SLEEP_PART : 1);
}

static inline uint64_t exl2__cuda_next_sleep_ns(const exl2__cuda_sleep *s)
{
    return s->waited_ns / (s->many_rows ? EXL2__CUDA_MANY_SLEEP_PART : EXL2__CUDA_DECODE_SLEEP_PART);
}

/* The new row_ns. One sleep was enough: it may have been too long, so the next one is a little shorter. Several sleeps
   were needed: the prediction was too short, but the delay may have come from the CPU, so it grows by an eighth at
   most. */
EXL2__PRIVATE uint64_t exl2__cuda_learn_ns(const exl2__cuda_sleep *s, uint64_t row_ns)
{
    if (s->sleeps == 0) {
        return row_ns;
    }
    if (s->many_rows || row_ns == 0) {
        return s->waited_ns / s->rows;
    }
    if (s->sleeps == 1) {
        return row_ns - row_ns / EXL2__CUDA_LEARN_SHRINK_PART;
    }
    return exl2__min64(s->waited_ns / s->rows, row_ns + row_ns / EXL2__CUDA_LEARN_GROW_PART);
}

/* A lost GPU writes no results: when they are long overdue the driver is asked whether the fence can still pass. */
EXL2__PRIVATE bool exl2__cuda_sleep_is_lost(const exl2__cuda_model *m, const exl2__cuda_sleep *s)
{
    uint64_t overdue_ns = 2 * s->rows * m->row_ns[s->kind] + EXL2__CUDA_OVERDUE_NS;
    return s->sleeps > 1 && s->waited_ns > overdue_ns && !exl2__cuda_fence_waits(m, s->fence);
}

/* Sleeps until the results of the fence have arrived, or never will. */
EXL2__PRIVATE void exl2__cuda_back_off(exl2__cuda_model *m, uint32_t count)
{
    exl2__cuda_sleep s = exl2__cuda_sleep_begin(m);
    uint64_t begin_ns = exl2__platform_ns();
    while (!exl2__cuda_fence_passed(m, s.fence, count) && !exl2__cuda_sleep_is_lost(m, &s)) {
        uint64_t ns = s.sleeps ? exl2__cuda_next_sleep_ns(&s) : exl2__cuda_first_sleep_ns(&s, m->row_ns[s.kind]);
        ns = exl2__min64(exl2__max64(ns, EXL2__CUDA_SLEEP_NS_MIN), EXL2__CUDA_SLEEP_NS_MAX);
        exl2__platform_sleep_us((uint32_t)(ns / 1000));
        s.waited_ns = exl2__platform_ns() - begin_ns;
        s.sleeps++;
    }
    m->row_ns[s.kind] = exl2__cuda_learn_ns(&s, m->row_ns[s.kind]);
}

EXL2__PRIVATE exl2_result exl2__cuda_wait(exl2__cuda_model *m, uint32_t count)
{
    uint32_t fence = m->fences_collected;
    if (EXL2__PLATFORM_HAS_SLEEP_US) {
        exl2__cuda_back_off(m, count);
    }
    if (count > 0 && exl2__cuda_results_arrived(m, fence, count)) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_cross_check(m));
    return exl2__cuda_device_check(m->gpu, m->gpu->driver.event_wait(m->b.fences[fence % EXL2K_RESULT_SETS]),
                                   "running a pass");
}

/* EXL2_OK, or EXL2_PENDING while the pass runs. The driver is asked only if the results have not arrived. */
EXL2__PRIVATE exl2_result exl2__cuda_fence_check(exl2__cuda_model *m, uint32_t count)
{
    if (count > 0 && exl2__cuda_results_arrived(m, m->fences_collected, count)) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_cross_check(m));
    return exl2__cuda_device_check(m->gpu, exl2__cuda_fence_query(m, m->fences_collected), "running a pass");
}

EXL2__PRIVATE exl2_result exl2__cuda_collect(exl2__device *device, uint32_t logit0, uint32_t count, bool wait,
                                             exl2__logit_result *results)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    const exl2k_result *from = exl2__cuda_results(m, m->fences_collected);
    const exl2__step *step = m->fence_steps[m->fences_collected % EXL2K_RESULT_SETS];
    /* Rows without sampling have no results that could arrive: the fence alone says that the pass has ended. */
    uint32_t stamped = exl2__step_has_hidden(step, logit0, count, true) ? 0 : count;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    exl2_result r = wait ? exl2__cuda_wait(m, stamped) : exl2__cuda_fence_check(m, stamped);
    exl2__cuda_device_leave(m->gpu);
    if (r != EXL2_OK) {
        return r;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (step->logits[logit0 + i].use == EXL2__LOGIT_HIDDEN) {
            results[i] = (exl2__logit_result){ .token = -1, .alts = results[i].alts };
        } else {
            exl2__cuda_sample_result(&from[i], &results[i]);
        }
    }
    m->fences_collected++;
    return EXL2_OK;
}

/* ---- rows that are sampled on the CPU ---- */

/* Nothing is enqueued after the row's pass, as a pass with such rows is not repeated. */
EXL2__PRIVATE exl2_result exl2__cuda_row_logits(exl2__device *device, uint32_t row, float **out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    uint64_t from = m->b.logits + (uint64_t)row * m->b.stride * sizeof(float);
    uint64_t bytes = m->plan->shape.vocab * sizeof(float);
    *out = m->host_logits;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    int result = m->gpu->driver.copy_down(m->host_logits, from, (size_t)bytes, m->gpu->stream);
    result = result == 0 ? m->gpu->driver.stream_wait(m->gpu->stream) : result;
    exl2_result r = exl2__cuda_device_check(m->gpu, result, "copying logits to host memory");
    return exl2__cuda_device_leave_with(m->gpu, r);
}

EXL2__PRIVATE exl2_result exl2__cuda_row_sample(exl2__device *device, float *logits, const exl2__logit_row *row,
                                                exl2__logit_result *result, exl2__sample_run **out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    *out = &m->host_sampling;
    return exl2__sample_begin(*out, m->gpu->c->cpu_path, logits, m->plan->shape.vocab, row, m->host_scratch, result);
}

/* Copies floats [at, at + count) of a vector in device memory to pinned memory; count is at most the vocabulary. */
EXL2__PRIVATE exl2_result exl2__cuda_copy_floats(exl2__cuda_model *m, uint64_t from, size_t at, uint32_t count)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    int result = driver->copy_down(m->host_logits, from + at * sizeof(float), count * sizeof(float), m->gpu->stream);
    result = result == 0 ? driver->stream_wait(m->gpu->stream) : result;
    return exl2__cuda_device_check(m->gpu, result, "copying a hidden state to host memory");
}

/* Copies `count` floats to host memory, as many at once as pinned memory holds. */
EXL2__PRIVATE exl2_result exl2__cuda_copy_hidden(exl2__cuda_model *m, uint64_t from, size_t count, float *out)
{
    for (size_t at = 0; at < count;) {
        uint32_t some = (uint32_t)exl2__min64(m->plan->shape.vocab, count - at);
        EXL2__TRY(exl2__cuda_copy_floats(m, from, at, some));
        memcpy(out + at, m->host_logits, some * sizeof *out);
        at += some;
    }
    return EXL2_OK;
}

/* Divides a row by its length, as the norm does. Sums in double. */
static inline void exl2__cuda_hidden_scale(const exl2__shape *s, float *row)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < s->hidden; i++) {
        sum += (double)row[i];
    }
    double mean = s->layer_norm ? sum / s->hidden : 0;
    for (uint32_t i = 0; i < s->hidden; i++) {
        square += exl2__mul_double((double)row[i] - mean, (double)row[i] - mean);
    }
    double factor = 1 / sqrt(square / s->hidden + (double)s->norm_eps);
    for (uint32_t i = 0; i < s->hidden; i++) {
        row[i] = (float)(((double)row[i] - mean) * factor);
    }
}

/* The residual has the rows in f32, and they cost the CPU little: no kernel needs to know of it. */
EXL2__PRIVATE exl2_result exl2__cuda_hidden_rows(exl2__cuda_model *m, uint32_t row, uint32_t rows, bool raw, float *out)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__norm *norm = &m->plan->final_norm;
    uint64_t weight = exl2__cuda_values_or_none(norm->weight), bias = exl2__cuda_values_or_none(norm->bias);
    uint64_t residual = m->b.residual + (uint64_t)row * s->hidden * sizeof(float);
    uint32_t most = exl2__min32(s->vocab, s->hidden), count;
    EXL2__TRY(exl2__cuda_copy_hidden(m, residual, (size_t)rows * s->hidden, out));
    for (uint32_t r = 0; r < rows && !raw; r++) {
        exl2__cuda_hidden_scale(s, out + (size_t)r * s->hidden);
    }
    for (uint32_t at = 0; weight && !raw && at < s->hidden; at += count) {
        count = exl2__min32(most, s->hidden - at);
        EXL2__TRY(exl2__cuda_copy_floats(m, weight, at, count));
        for (size_t i = 0; i < (size_t)rows * count; i++) {
            out[i / count * s->hidden + at + i % count] *= m->host_logits[i % count];
        }
    }
    for (uint32_t at = 0; bias && !raw && at < s->hidden; at += count) {
        count = exl2__min32(most, s->hidden - at);
        EXL2__TRY(exl2__cuda_copy_floats(m, bias, at, count));
        for (size_t i = 0; i < (size_t)rows * count; i++) {
            out[i / count * s->hidden + at + i % count] += m->host_logits[i % count];
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_row_hidden(exl2__device *device, uint32_t row, uint32_t count, bool raw,
                                                float *out)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_hidden_rows(m, row, count, raw, out));
}

#endif
