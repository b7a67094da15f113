/* ptx_driver_queue.c: the streams of the driver over PTX: what is queued on them, and how all of them get on in turn.
   takes: ptx_driver_objects.h; ops of ptx_driver_work.c.
   gives: emu_stream_make, emu_stream_drop, emu_queue, emu_pump, emu_pump_or_fail, emu_finish, emu_ops_free,
          emu_seed_begin, ptx_driver_sleep.
   owns:  the list of streams, and their ops. */
#define _POSIX_C_SOURCE 200809L
#include "ptx_driver_objects.h"

#define STREAMS_MAX 256
#define WAIT_INSTRUCTIONS 1000000u      /* between two looks of a call that waits */
#define TURN_INSTRUCTIONS 5000u         /* of a launch while others run, too */
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

void emu_seed_begin(void)
{
    seed = (uint32_t)emu_machine.seed;
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
    unsigned required = ptx_cluster(o->object->kernel), cluster = required ? required : o->cluster ? o->cluster : 1;
    unsigned resident = (unsigned)emu_machine.sm_count / cluster * cluster;
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

void emu_pump_or_fail(void)
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
            emu_pump_or_fail();
        }
    }
}

int ptx_driver_sleep(const struct timespec *time, struct timespec *left)
{
    double end = now_ms() + (double)time->tv_sec * 1e3 + (double)time->tv_nsec * 1e-6;
    emu_lock();
    bool moved = emu_pump(EMU_QUERY_INSTRUCTIONS), goes_on = moved;
    while (goes_on && now_ms() < end) {
        emu_unlock(0);
        emu_lock();
        goes_on = emu_pump(EMU_QUERY_INSTRUCTIONS);
    }
    emu_unlock(0);
    return moved ? 0 : nanosleep(time, left);
}

object *emu_stream_make(int gpu)
{
    if (stream_count == STREAMS_MAX) {
        return NULL;
    }
    return streams[stream_count++] = emu_make(STREAM, gpu);
}

void emu_stream_drop(object *s)
{
    int at = 0;
    emu_finish(s);
    while (streams[at] != s) {
        at++;
    }
    streams[at] = streams[--stream_count];
    emu_drop(s);
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
