/* ptx_driver_work.c: streams, events, copies, launches and graphs of the driver over PTX.
   takes: ptx_driver_objects.h.
   gives: emu_queue, emu_pump, emu_finish, emu_ops_free, ptx_driver_sleep, emu_work_fill_table, which begins the turns
          of the machine's seed.
   owns:  nothing of its own: ops belong to their streams and graphs. */
#define _POSIX_C_SOURCE 200809L
#include "ptx_driver_objects.h"

#define STREAMS_MAX 256
#define QUERY_INSTRUCTIONS 50000u     /* that a query lets each stream run */
#define WAIT_INSTRUCTIONS 1000000u    /* between two looks of a call that waits */
#define TURN_INSTRUCTIONS 5000u       /* of a launch while others run, too */
#define WAITED_INSTRUCTIONS 1000000000u /* a launch that did not use so many, as it only waited, never ends */

static object *streams[STREAMS_MAX];
static int stream_count;
static uint32_t seed;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static uint32_t seed_next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* ---- ops ---- */

static void op_free(op *o)
{
    if (o->run) {
        ptx_end(o->run);
    }
    free(o->view);
    free(o->owned);
    free(o);
}

void emu_ops_free(op *first)
{
    while (first) {
        op *next = first->next;
        op_free(first);
        first = next;
    }
}

static op *stream_pop(object *s)
{
    op *o = s->first;
    s->first = o->next;
    s->last = s->first ? s->last : NULL;
    return o;
}

/* The GPU executes nothing any more. Events count as recorded, so that nothing waits for them. */
static void gpu_lose(int index, int result)
{
    emu_gpus[index].lost = result;
    for (int i = 0; i < stream_count; i++) {
        while (streams[i]->gpu == index && streams[i]->first) {
            op *o = stream_pop(streams[i]);
            if (o->kind == OP_RECORD) {
                o->object->done = o->turn;
            }
            op_free(o);
        }
    }
}

static void launch_start(const object *s, op *o)
{
    unsigned cluster = o->cluster ? o->cluster : 1, resident = (unsigned)emu_machine.sm_count / cluster * cluster;
    o->view = calloc(1, sizeof *o->view);
    if (!o->view) {
        abort();
    }
    o->view->gpu = s->gpu;
    ptx_launch l = {
        .kernel = o->object->kernel, .grid = { o->grid[0], o->grid[1], o->grid[2] },
        .block = { o->block[0], o->block[1], o->block[2] }, .cluster = o->cluster, .dynamic_bytes = o->shared_bytes,
        .resident = resident ? resident : cluster, .parameters = o->owned, .allowed = emu_view_allows,
        .user = o->view, .seed = emu_machine.seed ? seed_next() | 1 : 0, .gate = &o->gate
    };
    o->run = ptx_start(&l);
}

/* Returns whether the launch has ended. After a fault the GPU is lost, with this op. */
static bool launch_advance(const object *s, op *o, uint64_t instructions)
{
    if (!o->run) {
        launch_start(s, o);
    }
    int state = ptx_advance(o->run, instructions);
    o->given += instructions;
    if (state < 0) {
        fprintf(stderr, "ptx: GPU %d: %s\n", s->gpu, ptx_fault(o->run));
        gpu_lose(s->gpu, EXL2__CUDA_LAUNCH_FAILED);
    } else if (state > 0 && o->given > ptx_executed(o->run) + WAITED_INSTRUCTIONS) {
        fprintf(stderr, "ptx: GPU %d: kernel %s does not end: each of its warps waits\n", s->gpu, o->object->name);
        gpu_lose(s->gpu, EXL2__CUDA_LAUNCH_TIMEOUT);
    }
    return state == 0;
}

static void op_fill(const op *o)
{
    uint8_t *to = (uint8_t *)(uintptr_t)o->to;
    if (o->unit == 1) {
        memset(to, (int)o->value, o->bytes);
        return;
    }
    for (uint64_t i = 0; i < o->bytes; i += sizeof o->value) {
        memcpy(to + i, &o->value, sizeof o->value);
    }
}

/* Advances the launches that the stream begins with: the first one, and programmatic ones as soon as those before them
   let them start. Removes the first one if it has ended. */
static void launches_advance(object *s, uint64_t instructions)
{
    bool starts = true;
    for (op *o = s->first; o && o->kind == OP_LAUNCH && starts; o = o->next) {
        o->gate = o == s->first;
        bool ended = o->ended || launch_advance(s, o, instructions);
        if (emu_gpus[s->gpu].lost) { /* without any ops */
            return;
        }
        o->ended = ended;
        starts = (o->ended || ptx_released(o->run)) && o->next && o->next->programmatic;
    }
    if (s->first->ended) {
        op_free(stream_pop(s));
    }
}

/* Returns whether the op, which is no launch, is done. */
static bool op_advance(const op *o)
{
    switch (o->kind) {
    case OP_UP:
        memcpy((void *)(uintptr_t)o->to, o->source, o->bytes);
        return true;
    case OP_DOWN:
        memcpy(o->target, (const void *)(uintptr_t)o->from, o->bytes);
        return true;
    case OP_COPY:
        memmove((void *)(uintptr_t)o->to, (const void *)(uintptr_t)o->from, o->bytes);
        return true;
    case OP_FILL:
        op_fill(o);
        return true;
    case OP_RECORD:
        o->object->done = o->turn;
        o->object->ms = now_ms();
        return true;
    default: /* OP_WAIT */
        return o->object->kind != EVENT || o->object->done >= o->turn;
    }
}

/* Executes the stream's ops up to the end of one launch. Returns whether it got on. */
static bool stream_advance(object *s, uint64_t instructions)
{
    bool moved = false;
    while (s->first && s->first->kind != OP_LAUNCH) {
        if (!op_advance(s->first)) {
            return moved;
        }
        op_free(stream_pop(s));
        moved = true;
    }
    if (s->first) {
        bool overlaps = s->first->next && s->first->next->programmatic;
        launches_advance(s, overlaps && instructions > TURN_INSTRUCTIONS ? TURN_INSTRUCTIONS : instructions);
        return true;
    }
    return moved;
}

bool emu_pump(uint64_t instructions)
{
    int running = 0, first = emu_machine.seed && stream_count ? (int)(seed_next() % (uint32_t)stream_count) : 0;
    bool moved = false;
    for (int i = 0; i < stream_count; i++) {
        running += streams[i]->first && streams[i]->first->kind == OP_LAUNCH;
    }
    for (int i = 0; i < stream_count; i++) {
        uint64_t turn = emu_machine.seed ? seed_next() % TURN_INSTRUCTIONS + 1 : TURN_INSTRUCTIONS;
        moved |= stream_advance(streams[(first + i) % stream_count], running > 1 ? turn : instructions);
    }
    return moved;
}

/* The call waits: other threads may enqueue meanwhile. */
static void pump_or_fail(void)
{
    bool moved = emu_pump(WAIT_INSTRUCTIONS);
    emu_unlock(0);
    emu_lock();
    for (int i = 0; !moved && i < emu_machine.gpus; i++) {
        fprintf(stderr, "ptx: GPU %d: its streams wait for each other\n", i);
        gpu_lose(i, EXL2__CUDA_LAUNCH_TIMEOUT);
    }
}

void emu_finish(const object *stream)
{
    bool busy = true;
    while (busy) {
        busy = false;
        for (int i = 0; i < stream_count; i++) {
            busy = busy || (streams[i]->first && (!stream || streams[i] == stream));
        }
        if (busy) {
            pump_or_fail();
        }
    }
}

int ptx_driver_sleep(const struct timespec *time, struct timespec *left)
{
    double end = now_ms() + (double)time->tv_sec * 1e3 + (double)time->tv_nsec * 1e-6;
    emu_lock();
    bool moved = emu_pump(QUERY_INSTRUCTIONS), goes_on = moved;
    while (goes_on && now_ms() < end) {
        emu_unlock(0);
        emu_lock();
        goes_on = emu_pump(QUERY_INSTRUCTIONS);
    }
    emu_unlock(0);
    return moved ? 0 : nanosleep(time, left);
}

int emu_queue(exl2__cuda_stream *handle, op o)
{
    object *s = (object *)(void *)handle;
    const emu_gpu *g = emu_current();
    int result = !g ? EMU_INVALID_CONTEXT : !emu_good(s, STREAM) ? EMU_INVALID_HANDLE : g->lost;
    if (result == 0 && s->gpu != emu_index(g)) {
        result = emu_misuse(EMU_INVALID_HANDLE, "work is queued on a stream of another GPU");
    }
    op *copy = result == 0 ? malloc(sizeof *copy) : NULL;
    if (!copy) {
        free(o.owned);
        return result ? result : EXL2__CUDA_OUT_OF_MEMORY;
    }
    *copy = o;
    copy->next = NULL;
    op **first = s->capturing ? &s->recorded : &s->first, **last = s->capturing ? &s->recorded_last : &s->last;
    *(*first ? &(*last)->next : first) = copy;
    *last = copy;
    return 0;
}

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
    if (!g || g->lost || priority > 0 || priority < -5 || stream_count == STREAMS_MAX) {
        return g && g->lost ? g->lost : EMU_INVALID_CONTEXT;
    }
    emu_lock();
    object *s = streams[stream_count++] = emu_make(STREAM, emu_index(g));
    *stream = (exl2__cuda_stream *)(void *)s;
    return emu_unlock(0);
}

static int stream_free(exl2__cuda_stream *stream)
{
    if (!emu_good(stream, STREAM)) {
        return EMU_INVALID_HANDLE;
    }
    emu_lock();
    object *s = (object *)(void *)stream;
    emu_finish(s);
    int at = 0;
    while (streams[at] != s) {
        at++;
    }
    streams[at] = streams[--stream_count];
    emu_drop(s);
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
        emu_pump(QUERY_INSTRUCTIONS);
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
        pump_or_fail();
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
        emu_pump(QUERY_INSTRUCTIONS);
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
        pump_or_fail();
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
    seed = (uint32_t)emu_machine.seed;
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
