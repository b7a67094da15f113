/* fake_memory.c: memory and streams of the fake driver. Work is queued, and executed only when a call waits for it,
   asks for its state, or sleeps.
   takes: fake_objects.h.
   gives: fake_queue, fake_run_until, fake_sleep, fake_clock, fake_fill_memory.
   owns:  nothing of its own. */
#include "fake_objects.h"

static uint64_t next_op = 1, clock_ticks, host_ns;

/* ---- execution ---- */

static void *device_bytes(uint64_t address, uint64_t bytes)
{
    void *memory = fake_memory(address, bytes);
    if (!memory) {
        fake_misuse("a copy or fill outside of device memory");
    }
    return memory;
}

/* Executes what other streams have queued, up to a launch, or to a wait for what has not happened. */
static void run_ahead(const object *stream)
{
    for (object *o = fake_first(); o; o = o->next) {
        while (o->kind == STREAM && o != stream && !o->waiting && o->first && o->first->kind != OP_LAUNCH
               && (o->first->kind != OP_WAIT || !o->first->object || o->first->object->id >= o->first->from)) {
            fake_run_until(o, o->first->id);
        }
    }
}

/* Checks that no argument is an address of freed memory; then runs the kernel. */
static void launch(const object *stream, const op *o)
{
    const uint8_t *arguments = o->owned;
    for (uint64_t at = 0, number; at + 8 <= o->bytes; at += 8) {
        memcpy(&number, arguments + at, sizeof number);
        if (fake_stale(number)) {
            fake_misuse("a kernel with the address of memory that is gone");
        }
    }
    if (fake.fault_at && --fake.fault_at == 0) {
        fake_lose(stream->context, fake.fault_code);
    } else if (fake.run) {
        if (fake.ahead) {
            run_ahead(stream);
        }
        fake.running = stream->context->device;
        fake.cluster = o->cluster;
        fake.run(o->object->name, arguments, o->grid);
    }
}

/* Executes one op. A lost device executes nothing. */
static void execute(object *stream, op *o)
{
    if (fake_is_lost(stream->context)) {
        return;
    }
    uint8_t *to = o->kind == OP_UP || o->kind == OP_COPY || o->kind == OP_FILL
                      ? device_bytes(o->to, o->bytes * (o->kind == OP_FILL ? o->unit : 1)) : o->target;
    const void *from = o->kind == OP_DOWN || o->kind == OP_COPY ? device_bytes(o->from, o->bytes) : o->source;
    switch (o->kind) {
    case OP_COPY:
        if (o->to < o->from + o->bytes && o->from < o->to + o->bytes) {
            fake_misuse("a copy onto itself");
        }
        fake.copied += o->bytes;
        /* fall through */
    case OP_UP:
    case OP_DOWN:
        if (to && from) {
            memmove(to, from, (size_t)o->bytes);
        }
        break;
    case OP_FILL:
        if (to && o->unit == 1) {
            memset(to, (int)o->value, (size_t)o->bytes);
        }
        for (uint64_t i = 0; to && o->unit == 4 && i < o->bytes; i++) {
            memcpy(to + 4 * i, &o->value, 4);
        }
        break;
    case OP_LAUNCH:
        launch(stream, o);
        break;
    case OP_RECORD:
        o->object->ms = (double)++clock_ticks * 0.01;
        break;
    case OP_WAIT:
        if (o->object && o->object != stream) {
            stream->waiting = true;
            fake_run_until(o->object, o->from);
            stream->waiting = false;
        }
        break;
    }
}

void fake_run_until(object *stream, uint64_t id)
{
    while (stream->first && stream->first->id <= id) {
        op *o = stream->first;
        stream->first = o->next;
        stream->last = stream->first ? stream->last : NULL;
        stream->id = o->id;
        execute(stream, o);
        o->next = NULL;
        fake_ops_free(o);
    }
}

int fake_sleep(const struct timespec *time, struct timespec *left)
{
    bool worked = false;
    host_ns += (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
    for (object *o = fake_first(); o; o = o->next) {
        for (bool recorded = false; o->kind == STREAM && o->first && !recorded; worked = true) {
            recorded = o->first->kind == OP_RECORD;
            fake_run_until(o, o->first->id);
        }
    }
    return worked ? 0 : nanosleep(time, left);
}

int fake_clock(int clock, struct timespec *time)
{
    (void)clock;
    host_ns += 1000;
    time->tv_sec = (time_t)(host_ns / 1000000000u);
    time->tv_nsec = (long)(host_ns % 1000000000u);
    return 0;
}

int fake_queue(exl2__cuda_stream *handle, op o)
{
    object *stream = (object *)(void *)handle;
    if (!fake_current()) {
        free(o.owned);
        fake_misuse("work queued without a context");
        return INVALID_CONTEXT;
    }
    if (!fake_good(stream, STREAM)) {
        free(o.owned);
        return INVALID_HANDLE;
    }
    if (stream->context->device != fake_current()->device) {
        fake_misuse("work queued on a stream of another device");
    }
    op *copy = malloc(sizeof *copy);
    *copy = o;
    copy->id = next_op++;
    copy->next = NULL;
    op **first = stream->capturing ? &stream->recorded : &stream->first;
    op **last = stream->capturing ? &stream->recorded_last : &stream->last;
    *(*first ? &(*last)->next : first) = copy;
    *last = copy;
    if (o.kind == OP_RECORD) {
        o.object->stream = stream;
        o.object->id = copy->id;
    }
    if (fake.eager && !stream->capturing) {
        fake_run_until(stream, UINT64_MAX);
    }
    return 0;
}

/* ---- memory ---- */

static int memory_info(size_t *bytes_free, size_t *bytes_total)
{
    CALL("cuMemGetInfo");
    object *context = fake_current();
    if (!context) {
        return INVALID_CONTEXT;
    }
    const fake_device *d = &fake.devices[context->device];
    *bytes_free = (size_t)(d->bytes_total - d->bytes_used);
    *bytes_total = (size_t)d->bytes_total;
    return 0;
}

/* New memory is filled with 0xA5 by default, so that reading it before writing gives wrong results. */
static int memory_alloc(uint64_t *address, size_t bytes)
{
    CALL("cuMemAlloc");
    object *context = fake_current();
    if (!context) {
        return INVALID_CONTEXT;
    }
    fake_device *d = &fake.devices[context->device];
    if (bytes == 0 || bytes > d->bytes_total - d->bytes_used) {
        return bytes ? EXL2__CUDA_OUT_OF_MEMORY : INVALID_VALUE;
    }
    object *o = fake_make(MEMORY);
    o->device = context->device;
    o->bytes = bytes;
    *address = fake_place(o);
    o->memory = fake_block(bytes);
    memset(o->memory, fake.fresh, bytes);
    d->bytes_used += bytes;
    fake.allocated += bytes;
    fake.most = fake.allocated > fake.most ? fake.allocated : fake.most;
    return 0;
}

static int memory_free(uint64_t address)
{
    int result = fake_call("cuMemFree", false);
    for (object *o = fake_first(); o; o = o->next) {
        if (o->kind == MEMORY && o->address == address) {
            fake_finish(); /* the real call waits, too */
            fake.devices[o->device].bytes_used -= o->bytes;
            fake.allocated -= o->bytes;
            fake_drop(o);
            return fake_current() ? result : INVALID_CONTEXT;
        }
    }
    fake_misuse("device memory freed that is not allocated");
    return INVALID_VALUE;
}

static int host_alloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    CALL("cuMemHostAlloc");
    if (!fake_current()) {
        return INVALID_CONTEXT;
    }
    object *o = fake_make(PINNED);
    o->bytes = bytes;
    o->memory = *memory = malloc(bytes);
    memset(o->memory, 0xA5, bytes);
    return 0;
}

static int host_free(void *memory)
{
    int result = fake_call("cuMemFreeHost", false);
    for (object *o = fake_first(); o; o = o->next) {
        if (o->kind == PINNED && o->memory == memory) {
            fake_finish();
            fake_drop(o);
            return result;
        }
    }
    fake_misuse("pinned memory freed that is not allocated");
    return INVALID_VALUE;
}

/* Memory of the application is pinned. */
static int host_register(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    CALL("cuMemHostRegister");
    if (!fake_current()) {
        return INVALID_CONTEXT;
    }
    object *o = fake_make(PINNED);
    o->bytes = bytes;
    o->memory = memory;
    return 0;
}

static int host_unregister(void *memory)
{
    int result = fake_call("cuMemHostUnregister", false);
    for (object *o = fake_first(); o; o = o->next) {
        if (o->kind == PINNED && o->memory == memory) {
            fake_finish();
            o->memory = NULL; /* it stays the application's */
            fake_drop(o);
            return result;
        }
    }
    fake_misuse("memory is no longer pinned that was not");
    return INVALID_VALUE;
}

/* ---- copies ---- */

/* Pinned memory is read when the copy is executed; pageable memory is read at once. */
static int copy_up(uint64_t to, const void *from, size_t bytes, exl2__cuda_stream *stream)
{
    CALL("cuMemcpyHtoDAsync");
    op o = { .kind = OP_UP, .to = to, .bytes = bytes, .source = from };
    if (!fake_pinned(from, bytes)) {
        o.source = o.owned = memcpy(malloc(bytes ? bytes : 1), from, bytes);
    }
    return fake_queue(stream, o);
}

static int copy_down(void *to, uint64_t from, size_t bytes, exl2__cuda_stream *stream)
{
    CALL("cuMemcpyDtoHAsync");
    int result = fake_queue(stream, (op){ .kind = OP_DOWN, .from = from, .bytes = bytes, .target = to });
    if (result == 0 && !fake_pinned(to, bytes) && !((object *)(void *)stream)->capturing) {
        fake_run_until((object *)(void *)stream, UINT64_MAX); /* a copy to pageable memory is synchronous */
    }
    return result;
}

/* Between pinned memory and the device. */
static int copy_rows(const exl2__cuda_copy_rows *c, exl2__cuda_stream *stream)
{
    CALL("cuMemcpy2DAsync");
    bool up = c->from.kind == EXL2__CUDA_MEMORY_HOST;
    const exl2__cuda_rows *host = up ? &c->from : &c->to, *device = up ? &c->to : &c->from;
    int result = 0;
    if (host->kind != EXL2__CUDA_MEMORY_HOST || device->kind != EXL2__CUDA_MEMORY_DEVICE || host->array || device->array
        || c->bytes > host->pitch || c->bytes > device->pitch || device->pitch > INT32_MAX || host->x + host->y > 0
        || device->x + device->y > 0) {
        fake_misuse("a copy of rows that is not between host and device");
        return INVALID_VALUE;
    }
    for (size_t i = 0; i < c->rows && result == 0; i++) {
        uint8_t *memory = (uint8_t *)host->host + i * host->pitch;
        uint64_t at = device->device + i * device->pitch;
        if (!fake_pinned(memory, c->bytes)) {
            fake_misuse("a copy of rows of memory that is not pinned");
        }
        result = fake_queue(stream, up ? (op){ .kind = OP_UP, .to = at, .bytes = c->bytes, .source = memory }
                                       : (op){ .kind = OP_DOWN, .from = at, .bytes = c->bytes, .target = memory });
    }
    return result;
}

static int copy(uint64_t to, uint64_t from, size_t bytes, exl2__cuda_stream *stream)
{
    CALL("cuMemcpyDtoDAsync");
    return fake_queue(stream, (op){ .kind = OP_COPY, .to = to, .from = from, .bytes = bytes });
}

static int copy_peer(uint64_t to, exl2__cuda_context *to_context, uint64_t from, exl2__cuda_context *from_context,
                     size_t bytes, exl2__cuda_stream *stream)
{
    CALL("cuMemcpyPeerAsync");
    const object *own = fake_current(), *ends[] = { (object *)(void *)to_context, (object *)(void *)from_context };
    const uint64_t at[] = { to, from };
    bool wrong = false;
    for (uint32_t i = 0; i < 2; i++) {
        if (!fake_lives(ends[i], CONTEXT) || fake_device_of(at[i]) != ends[i]->device) {
            fake_misuse("a copy between devices with the context of another one");
            return INVALID_VALUE;
        }
        if (ends[i] != own && !(own->peers >> ends[i]->device & 1)) {
            fake_misuse("a copy to or from a device whose memory the context does not reach");
        }
        wrong = wrong || (ends[i] != own && fake.peer[own->device][ends[i]->device] == FAKE_PEER_WRONG);
    }
    fake.peer_copies += ends[0] != ends[1];
    return fake_queue(stream, (op){ .kind = OP_COPY, .to = to, .from = from, .bytes = bytes - (wrong ? 4 : 0) });
}

static int fill8(uint64_t to, unsigned char value, size_t count, exl2__cuda_stream *stream)
{
    CALL("cuMemsetD8Async");
    return fake_queue(stream, (op){ .kind = OP_FILL, .to = to, .bytes = count, .value = value, .unit = 1 });
}

static int fill32(uint64_t to, unsigned value, size_t count, exl2__cuda_stream *stream)
{
    CALL("cuMemsetD32Async");
    return fake_queue(stream, (op){ .kind = OP_FILL, .to = to, .bytes = count, .value = value, .unit = 4 });
}

/* ---- streams and events ---- */

static int stream_make(exl2__cuda_stream **stream, unsigned flags, int priority)
{
    (void)flags;
    CALL("cuStreamCreateWithPriority");
    if (!fake_current() || priority > 0 || priority < -5) {
        fake_misuse("a stream without a context, or of an impossible priority");
        return INVALID_CONTEXT;
    }
    *stream = (exl2__cuda_stream *)(void *)fake_make(STREAM);
    return 0;
}

static int stream_free(exl2__cuda_stream *stream)
{
    int result = fake_call("cuStreamDestroy", false);
    if (!fake_good(stream, STREAM)) {
        return INVALID_HANDLE;
    }
    fake_run_until((object *)(void *)stream, UINT64_MAX);
    for (object *o = fake_first(); o; o = o->next) {
        o->stream = o->stream == (object *)(void *)stream ? NULL : o->stream;
    }
    fake_drop((object *)(void *)stream);
    return result;
}

static int waits(exl2__cuda_stream *stream)
{
    if (!fake_good(stream, STREAM)) {
        return INVALID_HANDLE;
    }
    return ((object *)(void *)stream)->capturing ? 900 : 0;
}

static int stream_wait(exl2__cuda_stream *stream)
{
    CALL("cuStreamSynchronize");
    int result = waits(stream);
    if (result == 0) {
        fake_run_until((object *)(void *)stream, UINT64_MAX);
    }
    return result;
}

/* Each query executes one more op. */
static int stream_query(exl2__cuda_stream *handle)
{
    CALL("cuStreamQuery");
    object *stream = (object *)(void *)handle;
    int result = waits(handle);
    if (result == 0 && stream->first) {
        fake_run_until(stream, stream->first->id);
        return EXL2__CUDA_NOT_READY;
    }
    return result;
}

static int event_make(exl2__cuda_event **event, unsigned flags)
{
    (void)flags;
    CALL("cuEventCreate");
    if (!fake_current()) {
        return INVALID_CONTEXT;
    }
    *event = (exl2__cuda_event *)(void *)fake_make(EVENT);
    return 0;
}

static int event_free(exl2__cuda_event *event)
{
    int result = fake_call("cuEventDestroy", false);
    object *o = (object *)(void *)event;
    if (!fake_good(event, EVENT)) {
        return INVALID_HANDLE;
    }
    if (o->stream) {
        fake_run_until(o->stream, o->id);
    }
    fake_drop(o);
    return result;
}

static int event_record(exl2__cuda_event *event, exl2__cuda_stream *stream)
{
    CALL("cuEventRecord");
    if (!fake_good(event, EVENT)) {
        return INVALID_HANDLE;
    }
    return fake_queue(stream, (op){ .kind = OP_RECORD, .object = (object *)(void *)event });
}

static int event_query(exl2__cuda_event *event)
{
    CALL("cuEventQuery");
    object *o = (object *)(void *)event;
    if (!fake_good(event, EVENT)) {
        return INVALID_HANDLE;
    }
    if (o->stream && o->stream->first && o->stream->id < o->id) {
        fake_run_until(o->stream, o->stream->first->id);
        return EXL2__CUDA_NOT_READY;
    }
    return 0;
}

static int event_wait(exl2__cuda_event *event)
{
    CALL("cuEventSynchronize");
    object *o = (object *)(void *)event;
    if (!fake_good(event, EVENT)) {
        return INVALID_HANDLE;
    }
    if (o->stream) {
        fake_run_until(o->stream, o->id);
    }
    return 0;
}

static int event_ms(float *milliseconds, exl2__cuda_event *start, exl2__cuda_event *end)
{
    CALL("cuEventElapsedTime");
    if (!fake_good(start, EVENT) || !fake_good(end, EVENT)) {
        return INVALID_HANDLE;
    }
    *milliseconds = (float)(((object *)(void *)end)->ms - ((object *)(void *)start)->ms);
    return 0;
}

static int stream_wait_event(exl2__cuda_stream *stream, exl2__cuda_event *event, unsigned flags)
{
    (void)flags;
    CALL("cuStreamWaitEvent"); /* another device's event, too */
    object *o = (object *)(void *)event;
    if (!fake_lives(event, EVENT)) {
        return INVALID_HANDLE;
    }
    return fake_queue(stream, (op){ .kind = OP_WAIT, .object = o->stream, .from = o->id });
}

void fake_fill_memory(exl2__cuda_driver *d)
{
    d->memory_info = memory_info;
    d->memory_alloc = memory_alloc;
    d->memory_free = memory_free;
    d->host_alloc = host_alloc;
    d->host_free = host_free;
    d->host_register = host_register;
    d->host_unregister = host_unregister;
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
}
