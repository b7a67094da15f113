/* cuda_cross.h: what passes between the spans of a model: rows to the next span, sampled tokens to the earlier ones.
   takes: spans with a current pass.
   gives: exl2__cuda_link, exl2__cuda_part_rows, exl2__cuda_cross, exl2__cuda_follow of the backend;
          exl2__cuda_select; exl2__cuda_cross_open, _close, _taken, _advance, _check, exl2__cuda_keep_group.
   owns:  pinned memory and events, until close.

   Everything is enqueued, and no thread waits: events order the streams of two spans. A span writes its rows to the
   next one's buffer `handed` itself if its GPU reaches that memory (cuda_peer.h); else they pass through pinned
   memory. */
#ifndef EXL2__CUDA_CROSS_H
#define EXL2__CUDA_CROSS_H

#include "cuda_settle.h"

/* Whether the GPU of the span before writes to the memory of this one. */
static inline bool exl2__cuda_crosses_directly(const exl2__cuda_model *m)
{
    return m->from == m->gpu || m->from->peers >> m->gpu->slot & 1;
}

/* Pinned bytes through which rows pass from the span before; 0: they pass directly, or there is none. */
static inline uint64_t exl2__cuda_handing_bytes(const exl2__cuda_model *m, const exl2__plan *p)
{
    return m->before && !exl2__cuda_crosses_directly(m) ? exl2__cuda_handed_bytes(p) : 0;
}

#define EXL2__CUDA_NEXT_ROWS_BYTES (EXL2__STEP_GROUPS * EXL2__CUDA_GRAPH_ROWS * (uint64_t)sizeof(exl2k_row))

/* ---- open and close ---- */

EXL2__PRIVATE void exl2__cuda_link(exl2__device *device, exl2__device *before)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    m->before = exl2__cuda_of(before);
    m->from = m->before ? m->before->gpu : NULL;
}

static inline exl2_result exl2__cuda_cross_event(exl2__cuda_device *d, exl2__cuda_event **event)
{
    int made = d->driver.event_make(event, EXL2__CUDA_EVENT_NO_TIMING);
    return exl2__cuda_device_check(d, made, "creating an event");
}

/* The context of the span is current. */
EXL2__PRIVATE exl2_result exl2__cuda_cross_open(exl2__cuda_model *m)
{
    exl2__cuda_device *gpu = m->gpu;
    void *memory;
    if (!m->before) {
        return EXL2_OK;
    }
    if (exl2__plan_has_head(m->plan)) {
        EXL2__TRY(exl2__cuda_pin(gpu, EXL2__CUDA_NEXT_ROWS_BYTES, &memory));
        m->next_rows = (exl2k_row *)memory;
        for (uint32_t i = 0; i < EXL2__STEP_GROUPS; i++) {
            EXL2__TRY(exl2__cuda_cross_event(gpu, &m->advanced[i]));
        }
    }
    uint64_t bytes = exl2__cuda_handing_bytes(m, m->plan);
    if (bytes) {
        EXL2__TRY(exl2__cuda_pin(gpu, bytes, &memory));
        m->handing = (uint8_t *)memory;
        m->handing_bytes = bytes;
    }
    EXL2__TRY(exl2__cuda_cross_event(gpu, &m->taken));
    EXL2__TRY(exl2__cuda_device_enter(m->from));
    return exl2__cuda_device_leave_with(m->from, exl2__cuda_cross_event(m->from, &m->arrived));
}

/* The context of the span is current, and its stream has ended. */
EXL2__PRIVATE void exl2__cuda_cross_close(exl2__cuda_model *m)
{
    if (m->arrived) { /* `before` may be closed */
        bool entered = m->from->driver.context_push(m->from->context) == 0;
        m->from->driver.event_free(m->arrived);
        if (entered) {
            exl2__cuda_device_leave(m->from);
        }
    }
    exl2__cuda_event *events[] = { m->taken, m->advanced[0], m->advanced[1] };
    for (uint32_t i = 0; i < EXL2__COUNT(events); i++) {
        if (events[i]) {
            m->gpu->driver.event_free(events[i]);
        }
    }
    exl2__cuda_unpin(m->gpu, m->handing, m->handing_bytes);
    exl2__cuda_unpin(m->gpu, m->next_rows, EXL2__CUDA_NEXT_ROWS_BYTES);
    m->arrived = m->taken = NULL;
    memset(m->advanced, 0, sizeof m->advanced);
    m->handing = NULL;
    m->handing_bytes = 0;
    m->next_rows = NULL;
}

#ifndef EXL2__CUDA_PARTS_MAX
#define EXL2__CUDA_PARTS_MAX 4u
#endif
#ifndef EXL2__CUDA_PART_ROWS
#define EXL2__CUDA_PART_ROWS 512u /* least rows of a part of a prompt by wgmma; else an eighth more */
#endif

/* The bits of products by GEMM depend on the class of the number of rows, and parts must be of the class of the whole
   pass: more than 256 rows by wgmma (cuda_gemm_wg.h), else more than 512 (cuda_gemm.h). */
EXL2__PRIVATE uint32_t exl2__cuda_part_rows(const exl2__device *device, uint32_t rows)
{
    uint32_t least = EXL2__CUDA_PART_ROWS + (exl2__cuda_of(device)->has_wg ? 0 : EXL2__CUDA_PART_ROWS / 8);
    uint32_t parts = exl2__min32(rows / least, EXL2__CUDA_PARTS_MAX);
    return parts > 1 ? rows / parts / 8 * 8 : 0;
}

/* ---- rows to the next span ---- */

/* Enqueues the copy of `bytes` bytes of the span before to offset `at` of m->b.handed, on the stream of that span,
   whose context is current. Without direct access only to pinned memory. */
static inline int exl2__cuda_cross_copy(const exl2__cuda_model *m, uint64_t at, uint64_t from, uint64_t bytes)
{
    const exl2__cuda_device *gpu = m->from;
    const exl2__cuda_driver *driver = &gpu->driver;
    uint64_t to = m->b.handed + at;
    return m->handing ? driver->copy_down(m->handing + at, from, (size_t)bytes, gpu->stream)
         : gpu == m->gpu ? driver->copy(to, from, (size_t)bytes, gpu->stream)
                         : driver->copy_peer(to, m->gpu->context, from, gpu->context, (size_t)bytes, gpu->stream);
}

/* The parts of what the span before hands over in this pass: addresses, and their places in m->b.handed. */
typedef struct exl2__cuda_handing {
    uint64_t from[3], at[3], bytes[3];
    uint32_t count;
} exl2__cuda_handing;

EXL2__PRIVATE exl2__cuda_handing exl2__cuda_handing_of(const exl2__cuda_model *m)
{
    const exl2__cuda_model *before = m->before;
    uint64_t rows = before->step->row_count, sums = exl2__cuda_handed_sums(m->plan);
    uint32_t norm = 2 * exl2__plan_first(m->plan); /* two in each layer, as in exl2__cuda_queue_layer */
    exl2__cuda_handing x = { .count = 1 };
    x.from[0] = before->b.residual;
    x.bytes[0] = rows * m->plan->shape.hidden * sizeof(float);
    if (exl2__cuda_takes_sums(m)) {
        x.from[1] = before->b.sums[norm % EXL2__CUDA_SUMS];
        x.from[2] = before->b.sums[(norm - 1) % EXL2__CUDA_SUMS];
        x.at[1] = sums;
        x.at[2] = sums + EXL2__CUDA_HANDED_SLOTS;
        x.bytes[1] = x.bytes[2] = exl2__cuda_slots((uint32_t)rows);
        x.count = 3;
    }
    return x;
}

/* On the stream of the span before: writes the rows of this pass, once this span has read those of the last one. */
EXL2__PRIVATE exl2_result exl2__cuda_cross_send(exl2__cuda_model *m, const exl2__cuda_handing *x)
{
    exl2__cuda_device *gpu = m->from;
    int result = gpu->driver.stream_wait_event(gpu->stream, m->taken, 0);
    for (uint32_t i = 0; i < x->count && result == 0; i++) {
        result = exl2__cuda_cross_copy(m, x->at[i], x->from[i], x->bytes[i]);
    }
    result = result == 0 ? gpu->driver.event_record(m->arrived, gpu->stream) : result;
    m->before->pass.chained = false; /* the next kernel writes to what is copied */
    exl2__cuda_device_flush(gpu);
    return exl2__cuda_device_check(gpu, result, "handing rows to a span");
}

/* On the stream of this span: the kernels that follow read the rows. */
EXL2__PRIVATE exl2_result exl2__cuda_cross_take(exl2__cuda_model *m, const exl2__cuda_handing *x)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    int result = driver->stream_wait_event(m->gpu->stream, m->arrived, 0);
    for (uint32_t i = 0; i < x->count && result == 0 && m->handing; i++) {
        result = driver->copy_up(m->b.handed + x->at[i], m->handing + x->at[i], (size_t)x->bytes[i], m->gpu->stream);
    }
    m->pass.chained = false;
    return exl2__cuda_device_check(m->gpu, result, "taking rows of a span");
}

EXL2__PRIVATE exl2_result exl2__cuda_cross(exl2__device *device)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    exl2__cuda_handing x = exl2__cuda_handing_of(m);
    EXL2__TRY(exl2__cuda_device_enter(m->from));
    EXL2__TRY(exl2__cuda_device_leave_with(m->from, exl2__cuda_cross_send(m, &x)));
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_cross_take(m, &x));
}

/* Called once the kernels that read the rows have been enqueued. */
static inline exl2_result exl2__cuda_cross_taken(exl2__cuda_model *m)
{
    int recorded = m->taken ? m->gpu->driver.event_record(m->taken, m->gpu->stream) : 0;
    return exl2__cuda_device_check(m->gpu, recorded, "recording an event");
}

/* ---- sampled tokens to earlier spans ---- */

/* After the sampling of a pass that repeats, before anything else on the stream of the last span: its rows to pinned
   memory. The copy before has been read there: this pass was made from it. */
EXL2__PRIVATE exl2_result exl2__cuda_cross_advance(exl2__cuda_model *m)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    uint32_t group = m->step->group;
    size_t bytes = m->step->row_count * sizeof(exl2k_row);
    if (!m->before || !m->step->repeats || m->step->row_count > EXL2__CUDA_GRAPH_ROWS) {
        return EXL2_OK;
    }
    int result = driver->copy_down(m->next_rows + (size_t)group * EXL2__CUDA_GRAPH_ROWS, m->pass.rows, bytes,
                                   m->gpu->stream);
    result = result == 0 ? driver->event_record(m->advanced[group], m->gpu->stream) : result;
    m->pass.chained = false;
    return exl2__cuda_device_check(m->gpu, result, "copying sampled tokens");
}

EXL2__PRIVATE exl2_result exl2__cuda_follow(exl2__device *device, exl2__device *last)
{
    exl2__cuda_model *m = exl2__cuda_of(device), *l = exl2__cuda_of(last);
    const exl2k_row *from = l->next_rows + (size_t)m->step->group * EXL2__CUDA_GRAPH_ROWS;
    size_t bytes = m->step->row_count * sizeof *from;
    EXL2__ASSERT(m->step->row_count <= EXL2__CUDA_GRAPH_ROWS);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    int result = m->gpu->driver.stream_wait_event(m->gpu->stream, l->advanced[m->step->group], 0);
    result = result == 0 ? m->gpu->driver.copy_up(m->pass.rows, from, bytes, m->gpu->stream) : result;
    m->pass.chained = false;
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_device_check(m->gpu, result, "copying sampled tokens"));
}

/* ---- groups ---- */

/* Graphs know one place for the data of a pass, so that of a group is copied there before the group, and back after it
   has been sampled. Each group counts fences of its own pass alone, so its ticket is set anew. */
EXL2__PRIVATE exl2_result exl2__cuda_select_group(exl2__cuda_model *m, uint32_t group)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    const exl2__cuda_kept *kept = &m->kept[group];
    uint64_t from = m->b.kept + group * m->b.data_bytes;
    m->pass = kept->pass;
    m->step = kept->step;
    m->pass.chained = false;
    int result = driver->copy(m->b.data, from, (size_t)kept->bytes, m->gpu->stream);
    result = result == 0 ? driver->fill32(m->pass.groups + offsetof(exl2k_pass, ticket), m->fences_queued, 1,
                                          m->gpu->stream) : result;
    return exl2__cuda_device_check(m->gpu, result, "beginning a group of rows");
}

EXL2__PRIVATE exl2_result exl2__cuda_select(exl2__device *device, uint32_t group)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_select_group(m, group));
}

/* After the sampling of a group: what sampling has changed is kept. */
EXL2__PRIVATE exl2_result exl2__cuda_keep_group(exl2__cuda_model *m)
{
    uint32_t group = m->step->group;
    if (m->step->groups <= 1) {
        return EXL2_OK;
    }
    uint64_t to = m->b.kept + group * m->b.data_bytes;
    m->pass.chained = false;
    m->kept[group].pass = m->pass;
    int result = m->gpu->driver.copy(to, m->b.data, (size_t)m->kept[group].bytes, m->gpu->stream);
    return exl2__cuda_device_check(m->gpu, result, "keeping a group of rows");
}

/* ---- failures ---- */

/* Fails if the GPU of an earlier span is lost: what this span waits for would never come. The context of this span is
   current. */
EXL2__PRIVATE exl2_result exl2__cuda_cross_check(const exl2__cuda_model *m)
{
    for (const exl2__cuda_model *at = m->before; at; at = at->before) {
        EXL2__TRY(exl2__cuda_device_enter(at->gpu));
        int state = at->gpu->driver.stream_query(at->gpu->stream);
        exl2_result r = state == EXL2__CUDA_NOT_READY ? EXL2_OK
                                                      : exl2__cuda_device_check(at->gpu, state, "running a pass");
        EXL2__TRY(exl2__cuda_device_leave_with(at->gpu, r));
    }
    return EXL2_OK;
}

#endif
