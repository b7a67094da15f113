/* cuda_ring.h: pinned host memory: a ring of buffers for copies to the device, and plain blocks for results.
   takes: an open device whose context is current.
   gives: exl2__cuda_pin, exl2__cuda_unpin; exl2__cuda_ring with open, take, copy, send, next, close.
   owns:  the ring's memory and events, until close; pinned bytes count as host bytes. */
#ifndef EXL2__CUDA_RING_H
#define EXL2__CUDA_RING_H

#include "cuda_device.h"

#define EXL2__CUDA_RING_SLOTS_MAX 8u

/* *out: uninitialised pinned memory, counted and limited as host bytes. */
EXL2__PRIVATE exl2_result exl2__cuda_pin(exl2__cuda_device *d, uint64_t bytes, void **out)
{
    exl2__ctx *c = d->c;
    *out = NULL;
    if (bytes > exl2__alloc_room(c) || bytes > SIZE_MAX) {
        return exl2__fail(c, EXL2_ERR_BUDGET,
                          "pinning %llu bytes of host memory would exceed host_bytes_max (%llu bytes, %llu in use)",
                          (unsigned long long)bytes, (unsigned long long)c->host_bytes_max,
                          (unsigned long long)c->host_bytes);
    }
    int result = d->driver.host_alloc(out, (size_t)bytes, EXL2__CUDA_HOST_PORTABLE);
    if (result == EXL2__CUDA_OUT_OF_MEMORY) {
        *out = NULL;
        return exl2__cuda_fail(c, EXL2_ERR_MEMORY, result, "the driver could not pin %llu bytes of host memory",
                               (unsigned long long)bytes);
    }
    EXL2__TRY(exl2__cuda_device_check(d, result, "pinning host memory"));
    c->host_bytes += bytes;
    c->host_peak = c->host_bytes > c->host_peak ? c->host_bytes : c->host_peak;
    return EXL2_OK;
}

/* Does nothing for NULL. */
static inline void exl2__cuda_unpin(exl2__cuda_device *d, void *memory, uint64_t bytes)
{
    if (memory) {
        d->driver.host_free(memory);
        d->c->host_bytes -= bytes;
    }
}

/* A ring of slots that are filled in turn. A slot is free again when the copies from it have ended. Small copies may
   share a slot: to wait for each of them would cost more than to copy. */
typedef struct exl2__cuda_ring {
    uint8_t *memory; /* [slots, slot_bytes] */
    uint64_t slot_bytes;
    uint64_t used; /* bytes of the current slot that copies in flight read */
    uint32_t slots, next;
    exl2__cuda_stream *stream; /* the stream of all copies */
    exl2__cuda_event *done[EXL2__CUDA_RING_SLOTS_MAX];
    bool busy[EXL2__CUDA_RING_SLOTS_MAX];
} exl2__cuda_ring;

/* Closes the ring, also a zeroed or half-open one. Waits for copies in flight. */
EXL2__PRIVATE void exl2__cuda_ring_close(exl2__cuda_device *d, exl2__cuda_ring *r)
{
    if (r->used) {
        d->driver.stream_wait(r->stream);
    }
    for (uint32_t i = 0; i < r->slots; i++) {
        if (r->busy[i]) {
            d->driver.event_wait(r->done[i]);
        }
        if (r->done[i]) {
            d->driver.event_free(r->done[i]);
        }
    }
    exl2__cuda_unpin(d, r->memory, r->slots * r->slot_bytes);
    *r = (exl2__cuda_ring){ 0 };
}

EXL2__PRIVATE exl2_result exl2__cuda_ring_open(exl2__cuda_device *d, exl2__cuda_ring *r, uint32_t slots,
                                               uint64_t slot_bytes, exl2__cuda_stream *stream)
{
    void *memory;
    EXL2__ASSERT(slots > 0 && slots <= EXL2__CUDA_RING_SLOTS_MAX);
    *r = (exl2__cuda_ring){ .slot_bytes = exl2__align_up(slot_bytes, EXL2__CUDA_ALIGN), .stream = stream };
    EXL2__TRY(exl2__cuda_pin(d, slots * r->slot_bytes, &memory));
    r->memory = (uint8_t *)memory;
    r->slots = slots;
    for (uint32_t i = 0; i < slots; i++) {
        int made = d->driver.event_make(&r->done[i], EXL2__CUDA_EVENT_NO_TIMING);
        exl2_result result = exl2__cuda_device_check(d, made, "creating an event");
        if (result < 0) {
            exl2__cuda_ring_close(d, r);
            return result;
        }
    }
    return EXL2_OK;
}

/* No further copy uses the current slot. */
EXL2__PRIVATE exl2_result exl2__cuda_ring_next(exl2__cuda_device *d, exl2__cuda_ring *r)
{
    uint32_t slot = r->next;
    EXL2__TRY(exl2__cuda_device_check(d, d->driver.event_record(r->done[slot], r->stream), "recording an event"));
    r->busy[slot] = true;
    r->next = slot + 1 < r->slots ? slot + 1 : 0;
    r->used = 0;
    return EXL2_OK;
}

/* *out: `bytes` free bytes, at most slot_bytes, of the current slot or else of the next one. They stay the same until
   exl2__cuda_ring_send. wait false: PENDING, and *out NULL, while the device still reads the slot. */
EXL2__PRIVATE exl2_result exl2__cuda_ring_take(exl2__cuda_device *d, exl2__cuda_ring *r, uint64_t bytes, bool wait,
                                               void **out)
{
    *out = NULL;
    if (bytes > r->slot_bytes - r->used) {
        EXL2__TRY(exl2__cuda_ring_next(d, r));
    }
    if (r->busy[r->next]) {
        exl2__cuda_event *done = r->done[r->next];
        int state = wait ? d->driver.event_wait(done) : d->driver.event_query(done);
        exl2_result result = exl2__cuda_device_check(d, state, "copying to device memory");
        if (result != EXL2_OK) {
            return result;
        }
        r->busy[r->next] = false;
    }
    *out = r->memory + r->next * r->slot_bytes + r->used;
    return EXL2_OK;
}

/* Enqueues a copy of part of the bytes that take gave. */
EXL2__PRIVATE exl2_result exl2__cuda_ring_copy(exl2__cuda_device *d, const exl2__cuda_ring *r, uint64_t to,
                                               uint64_t offset, uint64_t bytes)
{
    const uint8_t *from = r->memory + r->next * r->slot_bytes + r->used + offset;
    EXL2__ASSERT(r->used + offset + bytes <= r->slot_bytes);
    int queued = bytes ? d->driver.copy_up(to, from, (size_t)bytes, r->stream) : 0;
    return exl2__cuda_device_check(d, queued, "copying to device memory");
}

/* Enqueues a copy of the first `bytes` that take gave. The next call of take gives those after them. */
EXL2__PRIVATE exl2_result exl2__cuda_ring_send(exl2__cuda_device *d, exl2__cuda_ring *r, uint64_t to, uint64_t bytes)
{
    EXL2__TRY(exl2__cuda_ring_copy(d, r, to, 0, bytes));
    r->used += exl2__align_up(bytes, EXL2__CUDA_ALIGN);
    return EXL2_OK;
}

#endif
