/* cuda_peer.h: which GPUs of an engine reach each other's memory.
   takes: open devices.
   gives: exl2__cuda_peers_open, exl2__cuda_peer_probe.
   owns:  nothing beyond a call; access, once enabled, is the context's until it ends.

   What the driver says is not enough: on some boards copies between GPUs end well and bring wrong data. So a pair has
   access only if a pattern came back right after it was copied there. */
#ifndef EXL2__CUDA_PEER_H
#define EXL2__CUDA_PEER_H

#include "cuda_device.h"

#define EXL2__CUDA_PEER_WORDS 16384u /* of the pattern: 64 KiB */

/* One block on each of two GPUs. */
typedef struct exl2__cuda_pair {
    exl2__cuda_device *one, *other; /* copies run on the stream of `one` */
    uint64_t here, there, bytes;
} exl2__cuda_pair;

static inline void exl2__cuda_pair_close(exl2__cuda_pair *p)
{
    exl2__cuda_device *devices[] = { p->one, p->other };
    uint64_t blocks[] = { p->here, p->there };
    for (uint32_t i = 0; i < 2; i++) {
        if (devices[i]->driver.context_push(devices[i]->context) == 0) {
            exl2__cuda_device_free(devices[i], blocks[i], p->bytes, EXL2_MEM_STAGING);
            exl2__cuda_device_leave(devices[i]);
        }
    }
}

/* On failure, too, exl2__cuda_pair_close frees what there is. */
static inline exl2_result exl2__cuda_pair_open(exl2__cuda_device *one, exl2__cuda_device *other, uint64_t bytes,
                                               exl2__cuda_pair *p)
{
    *p = (exl2__cuda_pair){ .one = one, .other = other, .bytes = bytes };
    EXL2__TRY(exl2__cuda_device_enter(one));
    EXL2__TRY(exl2__cuda_device_leave_with(one, exl2__cuda_device_alloc(one, bytes, EXL2_MEM_STAGING, &p->here)));
    EXL2__TRY(exl2__cuda_device_enter(other));
    return exl2__cuda_device_leave_with(other, exl2__cuda_device_alloc(other, bytes, EXL2_MEM_STAGING, &p->there));
}

/* Lets kernels and copies of `one` reach the memory of `other`, which may have been done before. */
static inline bool exl2__cuda_peer_enable(const exl2__cuda_device *one, const exl2__cuda_device *other)
{
    const exl2__cuda_driver *driver = &one->driver;
    int can = 0;
    if (!driver->device_can_peer || !driver->context_peer || !driver->copy_peer
        || driver->device_can_peer(&can, one->device, other->device) != 0 || !can) {
        return false;
    }
    int result = driver->context_peer(other->context, 0);
    return result == 0 || result == EXL2__CUDA_PEER_ENABLED;
}

/* Copies the pattern there and back. The context of p->one is current. */
EXL2__PRIVATE bool exl2__cuda_peer_copies(const exl2__cuda_pair *p, const uint32_t *pattern, uint32_t *back)
{
    const exl2__cuda_driver *driver = &p->one->driver;
    exl2__cuda_context *one = p->one->context, *other = p->other->context;
    exl2__cuda_stream *stream = p->one->stream;
    size_t bytes = (size_t)p->bytes;
    int result = driver->copy_up(p->here, pattern, bytes, stream);
    result = result == 0 ? driver->copy_peer(p->there, other, p->here, one, bytes, stream) : result;
    result = result == 0 ? driver->fill8(p->here, 0, bytes, stream) : result;
    result = result == 0 ? driver->copy_peer(p->here, one, p->there, other, bytes, stream) : result;
    result = result == 0 ? driver->copy_down(back, p->here, bytes, stream) : result;
    int ended = driver->stream_wait(stream);
    return result == 0 && ended == 0 && memcmp(back, pattern, bytes) == 0;
}

/* pattern: twice EXL2__CUDA_PEER_WORDS words, for the pattern and for what comes back. */
EXL2__PRIVATE bool exl2__cuda_peer_try(exl2__cuda_device *one, exl2__cuda_device *other, uint32_t *pattern)
{
    exl2__cuda_pair p;
    bool reaches = false;
    for (uint32_t i = 0; i < EXL2__CUDA_PEER_WORDS; i++) {
        pattern[i] = (i + (one->slot << 20) + (other->slot << 24)) * 2654435761u;
    }
    if (exl2__cuda_device_enter(one) < 0) {
        return false;
    }
    bool enabled = exl2__cuda_peer_enable(one, other);
    exl2__cuda_device_leave(one);
    uint64_t bytes = EXL2__CUDA_PEER_WORDS * sizeof *pattern;
    if (!enabled || bytes > exl2__cuda_device_room(one) || bytes > exl2__cuda_device_room(other)) {
        return false;
    }
    exl2_result r = exl2__cuda_pair_open(one, other, bytes, &p);
    if (r >= 0 && exl2__cuda_device_enter(one) >= 0) {
        reaches = exl2__cuda_peer_copies(&p, pattern, pattern + EXL2__CUDA_PEER_WORDS);
        exl2__cuda_device_leave(one);
    }
    exl2__cuda_pair_close(&p);
    return reaches;
}

/* Finds out which of the devices [count] reach each other's memory; NULL: one that did not open. */
EXL2__PRIVATE exl2_result exl2__cuda_peers_open(exl2__ctx *c, void *const *devices, uint32_t count)
{
    void *memory;
    uint64_t bytes = 2 * EXL2__CUDA_PEER_WORDS * sizeof(uint32_t);
    EXL2__TRY(exl2__alloc(c, bytes, 16, EXL2_MEM_STAGING, &memory));
    for (uint32_t i = 0; i < count * count; i++) {
        exl2__cuda_device *one = (exl2__cuda_device *)devices[i / count];
        exl2__cuda_device *other = (exl2__cuda_device *)devices[i % count];
        if (one && other && one != other && exl2__cuda_peer_try(one, other, (uint32_t *)memory)) {
            one->peers |= 1u << other->slot;
        }
    }
    exl2__free(c, memory, bytes, EXL2_MEM_STAGING);
    return EXL2_OK;
}

#endif
