/* ptx_driver_work.c: copies, streams, events, launches and graphs of the driver over PTX: its calls, which queue ops.
   takes: ptx_driver_objects.h.
   gives: emu_work_fill_table, which begins the turns of the machine's seed.
   owns:  ops of graphs. */
#include "ptx_driver_objects.h"

/* ---- copies: rejected at once if they leave a block ---- */

static int queue_copy(exl2__cuda_stream *stream, op o)
{
    int gpu = emu_current() ? emu_index(emu_current()) : 0;
    bool to = o.kind == OP_DOWN || emu_reaches(gpu, o.to, o.bytes);
    bool from = (o.kind != OP_DOWN && o.kind != OP_COPY) || emu_reaches(gpu, o.from, o.bytes);
    if (o.bytes && !(to && from)) {
        free(o.owned);
        return emu_misuse(EMU_INVALID_VALUE, "a copy or fill leaves its block of device memory");
    }
    return emu_queue(stream, o);
}

/* Pinned memory is read when the copy is executed; pageable memory is read at once. */
static int copy_up(uint64_t to, const void *from, size_t bytes, exl2__cuda_stream *stream)
{
    emu_lock();
    op o = { .kind = OP_UP, .to = to, .bytes = bytes, .source = from };
    if (!emu_pinned(from, bytes) && bytes && emu_good(stream, STREAM) && !((object *)(void *)stream)->capturing) {
        o.owned = malloc(bytes);
        if (!o.owned) {
            abort();
        }
        o.source = memcpy(o.owned, from, bytes);
    }
    return emu_unlock(queue_copy(stream, o));
}

/* A copy to pageable memory is synchronous. */
static int copy_down(void *to, uint64_t from, size_t bytes, exl2__cuda_stream *stream)
{
    emu_lock();
    int result = queue_copy(stream, (op){ .kind = OP_DOWN, .from = from, .bytes = bytes, .target = to });
    object *s = (object *)(void *)stream;
    if (result == 0 && !emu_pinned(to, bytes) && !s->capturing) {
        emu_finish(s);
        result = emu_gpus[s->gpu].lost;
    }
    return emu_unlock(result);
}

/* Between pinned memory and the device. */
static int copy_rows(const exl2__cuda_copy_rows *c, exl2__cuda_stream *stream)
{
    bool up = c->from.kind == EXL2__CUDA_MEMORY_HOST;
    const exl2__cuda_rows *host = up ? &c->from : &c->to, *device = up ? &c->to : &c->from;
    int result = 0;
    if (host->kind != EXL2__CUDA_MEMORY_HOST || device->kind != EXL2__CUDA_MEMORY_DEVICE || host->array || device->array
        || c->bytes > host->pitch || c->bytes > device->pitch || host->x + host->y + device->x + device->y > 0) {
        return emu_misuse(EMU_INVALID_VALUE, "a copy of rows that is not between host and device");
    }
    emu_lock();
    for (size_t i = 0; i < c->rows && result == 0; i++) {
        uint8_t *memory = (uint8_t *)host->host + i * host->pitch;
        uint64_t at = device->device + i * device->pitch;
        if (!emu_pinned(memory, c->bytes)) {
            result = emu_misuse(EMU_INVALID_VALUE, "a copy of rows of memory that is not pinned");
        } else {
            result = queue_copy(stream, up ? (op){ .kind = OP_UP, .to = at, .bytes = c->bytes, .source = memory }
                                           : (op){ .kind = OP_DOWN, .from = at, .bytes = c->bytes, .target = memory });
        }
    }
    return emu_unlock(result);
}

static int copy(uint64_t to, uint64_t from, size_t bytes, exl2__cuda_stream *stream)
{
    emu_lock();
    if (to < from + bytes && from < to + bytes) {
        return emu_unlock(emu_misuse(EMU_INVALID_VALUE, "a copy onto itself"));
    }
    return emu_unlock(queue_copy(stream, (op){ .kind = OP_COPY, .to = to, .from = from, .bytes = bytes }));
}

static int copy_peer(uint64_t to, exl2__cuda_context *to_context, uint64_t from, exl2__cuda_context *from_context,
                     size_t bytes, exl2__cuda_stream *stream)
{
    const object *ends[] = { (object *)(void *)to_context, (object *)(void *)from_context };
    const uint64_t at[] = { to, from };
    emu_lock();
    for (uint32_t i = 0; i < 2; i++) {
        const block *b = emu_block_of(at[i], bytes);
        if (!emu_good(ends[i], CONTEXT) || !b || b->gpu != ends[i]->gpu) {
            return emu_unlock(emu_misuse(EMU_INVALID_VALUE, "a copy between GPUs with the context of another one"));
        }
    }
    return emu_unlock(queue_copy(stream, (op){ .kind = OP_COPY, .to = to, .from = from, .bytes = bytes }));
}

static int fill8(uint64_t to, unsigned char value, size_t count, exl2__cuda_stream *stream)
{
    emu_lock();
    return emu_unlock(queue_copy(stream, (op){ .kind = OP_FILL, .to = to, .bytes = count, .value = value, .unit = 1 }));
}

static int fill32(uint64_t to, unsigned value, size_t count, exl2__cuda_stream *stream)
{
    op o = { .kind = OP_FILL, .to = to, .bytes = (uint64_t)count * 4, .value = value, .unit = 4 };
    emu_lock();
    return emu_unlock(to % 4 ? emu_misuse(EMU_INVALID_VALUE, "a fill of words that is not aligned")
                             : queue_copy(stream, o));
}

/* ---- streams and events ---- */

static int stream_make(exl2__cuda_stream **stream, unsigned flags, int priority)
{
    (void)flags;
    const emu_gpu *g = emu_current();
    if (!g || g->lost || priority > 0 || priority < -5) {
        return g && g->lost ? g->lost : EMU_INVALID_CONTEXT;
    }
    emu_lock();
    object *s = emu_stream_make(emu_index(g));
    *stream = (exl2__cuda_stream *)(void *)s;
    return emu_unlock(s ? 0 : EMU_INVALID_CONTEXT);
}

static int stream_free(exl2__cuda_stream *stream)
{
    if (!emu_good(stream, STREAM)) {
        return EMU_INVALID_HANDLE;
    }
    emu_lock();
    emu_stream_drop((object *)(void *)stream);
    return emu_unlock(0);
}

/* What a call that waits for the stream, or asks for its state, returns now; EXL2__CUDA_NOT_READY: work is queued. */
static int stream_state(const object *s)
{
    if (!emu_good(s, STREAM)) {
        return EMU_INVALID_HANDLE;
    }
    return s->capturing ? EMU_CAPTURE_UNSUPPORTED : emu_gpus[s->gpu].lost ? emu_gpus[s->gpu].lost
         : s->first ? EXL2__CUDA_NOT_READY : 0;
}

static int stream_wait(exl2__cuda_stream *stream)
{
    emu_lock();
    const object *s = (const object *)(const void *)stream;
    int result = stream_state(s);
    if (result == EXL2__CUDA_NOT_READY) {
        emu_finish(s);
        result = emu_gpus[s->gpu].lost;
    }
    return emu_unlock(result);
}

static int stream_query(exl2__cuda_stream *stream)
{
    emu_lock();
    const object *s = (const object *)(const void *)stream;
    int result = stream_state(s);
    if (result == EXL2__CUDA_NOT_READY) {
        emu_pump(EMU_QUERY_INSTRUCTIONS);
        result = stream_state(s);
    }
    return emu_unlock(result);
}

static int event_make(exl2__cuda_event **event, unsigned flags)
{
    (void)flags;
    const emu_gpu *g = emu_current();
    if (!g || g->lost) {
        return g ? g->lost : EMU_INVALID_CONTEXT;
    }
    emu_lock();
    *event = (exl2__cuda_event *)(void *)emu_make(EVENT, emu_index(g));
    return emu_unlock(0);
}

/* Ops may still record it or wait for it. */
static int event_free(exl2__cuda_event *event)
{
    const object *e = (const object *)(const void *)event;
    if (!emu_good(event, EVENT)) {
        return EMU_INVALID_HANDLE;
    }
    emu_lock();
    while (e->done < e->queued) {
        emu_pump_or_fail();
    }
    emu_drop((object *)(void *)event);
    return emu_unlock(0);
}

/* Whether the stream is being captured; the engine captures launches alone. */
static bool captures(const exl2__cuda_stream *stream)
{
    const object *s = (const object *)(const void *)stream;
    return emu_good(s, STREAM) && s->capturing;
}

static int event_record(exl2__cuda_event *event, exl2__cuda_stream *stream)
{
    object *e = (object *)(void *)event;
    if (!emu_good(event, EVENT) || captures(stream)) {
        return emu_misuse(EMU_INVALID_HANDLE, "an event is recorded that does not live, or in a capture");
    }
    emu_lock();
    int result = emu_queue(stream, (op){ .kind = OP_RECORD, .object = e, .turn = e->queued + 1 });
    e->queued += result == 0;
    return emu_unlock(result);
}

static int event_query(exl2__cuda_event *event)
{
    const object *e = (const object *)(const void *)event;
    if (!emu_good(event, EVENT)) {
        return EMU_INVALID_HANDLE;
    }
    emu_lock();
    if (e->done < e->queued) {
        emu_pump(EMU_QUERY_INSTRUCTIONS);
    }
    int lost = emu_gpus[e->gpu].lost;
    return emu_unlock(lost ? lost : e->done < e->queued ? EXL2__CUDA_NOT_READY : 0);
}

static int event_wait(exl2__cuda_event *event)
{
    const object *e = (const object *)(const void *)event;
    if (!emu_good(event, EVENT)) {
        return EMU_INVALID_HANDLE;
    }
    emu_lock();
    while (e->done < e->queued) {
        emu_pump_or_fail();
    }
    return emu_unlock(emu_gpus[e->gpu].lost);
}

static int event_ms(float *milliseconds, exl2__cuda_event *start, exl2__cuda_event *end)
{
    const object *from = (const object *)(const void *)start, *to = (const object *)(const void *)end;
    if (!emu_good(from, EVENT) || !emu_good(to, EVENT)) {
        return EMU_INVALID_HANDLE;
    }
    *milliseconds = (float)(to->ms - from->ms);
    return from->done < from->queued || to->done < to->queued ? EXL2__CUDA_NOT_READY : 0;
}

/* Of another GPU, too. An event that was never recorded is no obstacle. */
static int stream_wait_event(exl2__cuda_stream *stream, exl2__cuda_event *event, unsigned flags)
{
    object *e = (object *)(void *)event;
    if (!emu_good(event, EVENT) || flags || captures(stream)) {
        return emu_misuse(EMU_INVALID_HANDLE, "a wait for an event that does not live, or in a capture");
    }
    emu_lock();
    return emu_unlock(emu_queue(stream, (op){ .kind = OP_WAIT, .object = e, .turn = e->queued }));
}

/* ---- launches ---- */

static bool launch_fits(const object *f, const exl2__cuda_launch *l)
{
    unsigned threads = l->block[0] * l->block[1] * l->block[2];
    bool grid = l->grid[0] && l->grid[1] && l->grid[2] && l->grid[0] <= INT32_MAX && l->grid[1] <= 65535
             && l->grid[2] <= 65535;
    return grid && threads && threads <= ptx_threads_max(f->kernel) && threads <= 1024 && l->block[2] <= 64
        && l->shared_bytes <= f->dynamic_max;
}

static int launch_any(const exl2__cuda_launch *l, unsigned cluster, bool programmatic, exl2__cuda_function *function,
                      void **arguments)
{
    object *f = (object *)(void *)function;
    const emu_gpu *g = emu_current();
    if (!emu_good(function, FUNCTION) || !g || f->gpu != emu_index(g)) {
        return emu_misuse(EMU_INVALID_HANDLE, "a launch of a function that the context does not have");
    }
    if (!launch_fits(f, l) || !arguments || !arguments[0]) {
        return emu_misuse(EMU_INVALID_VALUE, "a launch of no or too many threads, with too much shared memory, or "
                                             "without arguments");
    }
    uint32_t bytes = ptx_parameter_bytes(f->kernel);
    op o = { .kind = OP_LAUNCH, .object = f, .grid = { l->grid[0], l->grid[1], l->grid[2] },
             .block = { l->block[0], l->block[1], l->block[2] }, .cluster = cluster,
             .shared_bytes = l->shared_bytes, .programmatic = programmatic, .bytes = bytes,
             .owned = malloc(bytes ? bytes : 1) };
    if (!o.owned) {
        abort();
    }
    memcpy(o.owned, arguments[0], bytes);
    emu_lock();
    return emu_unlock(emu_queue(l->stream, o));
}

static int launch(exl2__cuda_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_bytes, exl2__cuda_stream *stream,
                  void **arguments, void **extra)
{
    exl2__cuda_launch l = { { grid_x, grid_y, grid_z }, { block_x, block_y, block_z }, shared_bytes, stream, NULL, 0 };
    return extra ? EMU_INVALID_VALUE : launch_any(&l, 0, false, function, arguments);
}

static int launch_with(const exl2__cuda_launch *l, exl2__cuda_function *function, void **arguments, void **extra)
{
    unsigned size = 0;
    bool programmatic = false;
    for (unsigned i = 0; i < l->attribute_count; i++) {
        const exl2__cuda_launch_attribute *attribute = &l->attributes[i];
        const unsigned *cluster = attribute->value.xyz;
        bool fits = attribute->id == EXL2__CUDA_LAUNCH_PROGRAMMATIC
                 || (attribute->id == EXL2__CUDA_LAUNCH_CLUSTER && cluster[0] > 0 && cluster[0] <= 8
                     && l->grid[0] % cluster[0] == 0 && cluster[1] == 1 && cluster[2] == 1);
        if (!fits || emu_machine.arch < 90) {
            return emu_misuse(EMU_INVALID_VALUE, "an attribute of a launch that the GPU does not have");
        }
        size = attribute->id == EXL2__CUDA_LAUNCH_CLUSTER ? cluster[0] : size;
        programmatic = programmatic || (attribute->id == EXL2__CUDA_LAUNCH_PROGRAMMATIC && attribute->value.on);
    }
    return extra ? EMU_INVALID_VALUE : launch_any(l, size, programmatic, function, arguments);
}

/* ---- graphs: a recorded list, replayed ---- */

static op *op_copy(const op *from)
{
    op *to = malloc(sizeof *to);
    if (!to) {
        abort();
    }
    *to = *from;
    to->next = NULL;
    if (from->owned) {
        to->owned = malloc(from->bytes ? from->bytes : 1);
        if (!to->owned) {
            abort();
        }
        memcpy(to->owned, from->owned, from->bytes);
    }
    return to;
}

static int capture_begin(exl2__cuda_stream *stream, int mode)
{
    object *s = (object *)(void *)stream;
    if (!emu_good(stream, STREAM) || s->capturing || mode < 0 || mode > 2) {
        return EMU_INVALID_VALUE;
    }
    s->capturing = true;
    return 0;
}

static int capture_end(exl2__cuda_stream *stream, exl2__cuda_graph **graph)
{
    object *s = (object *)(void *)stream;
    *graph = NULL;
    if (!emu_good(stream, STREAM) || !s->capturing) {
        return EMU_INVALID_VALUE;
    }
    emu_lock();
    object *g = emu_make(GRAPH, s->gpu);
    g->first = s->recorded;
    s->recorded = s->recorded_last = NULL;
    s->capturing = false;
    *graph = (exl2__cuda_graph *)(void *)g;
    return emu_unlock(0);
}

static int graph_make(exl2__cuda_graph_exec **exec, exl2__cuda_graph *graph, unsigned long long flags)
{
    if (!emu_good(graph, GRAPH) || flags) {
        return EMU_INVALID_VALUE;
    }
    emu_lock();
    object *e = emu_make(EXEC, ((object *)(void *)graph)->gpu);
    op **end = &e->first;
    for (const op *o = ((object *)(void *)graph)->first; o; o = o->next) {
        *end = op_copy(o);
        end = &(*end)->next;
    }
    *exec = (exl2__cuda_graph_exec *)(void *)e;
    return emu_unlock(0);
}

static int graph_free(exl2__cuda_graph *graph)
{
    if (!emu_good(graph, GRAPH)) {
        return EMU_INVALID_HANDLE;
    }
    emu_lock();
    emu_drop((object *)(void *)graph);
    return emu_unlock(0);
}

static int graph_exec_free(exl2__cuda_graph_exec *exec)
{
    if (!emu_good(exec, EXEC)) {
        return EMU_INVALID_HANDLE;
    }
    emu_lock();
    emu_drop((object *)(void *)exec);
    return emu_unlock(0);
}

static int graph_launch(exl2__cuda_graph_exec *exec, exl2__cuda_stream *stream)
{
    int result = 0;
    if (!emu_good(exec, EXEC)) {
        return EMU_INVALID_HANDLE;
    }
    emu_lock();
    for (const op *o = ((object *)(void *)exec)->first; o && result == 0; o = o->next) {
        op *copied = op_copy(o);
        result = emu_queue(stream, *copied); /* now owns copied->owned */
        free(copied);
    }
    return emu_unlock(result);
}

void emu_work_fill_table(exl2__cuda_driver *d)
{
    emu_seed_begin();
    d->copy_up = copy_up;
    d->copy_down = copy_down;
    d->copy_rows = copy_rows;
    d->copy = copy;
    d->copy_peer = copy_peer;
    d->fill8 = fill8;
    d->fill32 = fill32;
    d->stream_make = stream_make;
    d->stream_free = stream_free;
    d->stream_wait = stream_wait;
    d->stream_query = stream_query;
    d->stream_wait_event = stream_wait_event;
    d->event_make = event_make;
    d->event_free = event_free;
    d->event_record = event_record;
    d->event_query = event_query;
    d->event_wait = event_wait;
    d->event_ms = event_ms;
    d->launch = launch;
    d->launch_with = launch_with;
    d->capture_begin = capture_begin;
    d->capture_end = capture_end;
    d->graph_make = graph_make;
    d->graph_free = graph_free;
    d->graph_launch = graph_launch;
    d->graph_exec_free = graph_exec_free;
}
