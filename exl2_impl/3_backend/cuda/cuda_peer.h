/* cuda_peer.h: which GPUs of an engine reach each other's memory.
   takes: open devices.
   gives: exl2__cuda_peers_open, exl2__cuda_link_probe.
   owns:  nothing beyond a call; access, once enabled, is the context's until it ends.

   What the driver says is not enough: on some boards copies between GPUs end well and bring wrong data. So a pair has
   access only if a pattern came back right after it was copied there. */
#ifndef EXL2__CUDA_PEER_H
#define EXL2__CUDA_PEER_H

#include "cuda_ring.h"

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

/* ---- speed ---- */

#define EXL2__CUDA_LINK_BYTES (16u << 20)
#define EXL2__CUDA_LINK_FEW_BYTES (16u << 10) /* a row of a model with 4,096 elements */
#define EXL2__CUDA_LINK_RUNS 10u              /* the fastest run counts */

/* Copies from p->here to p->there and waits. host: pinned memory; NULL: directly. */
EXL2__PRIVATE exl2_result exl2__cuda_link_once(const exl2__cuda_pair *p, size_t bytes, void *host)
{
    exl2__cuda_device *one = p->one, *other = p->other;
    EXL2__TRY(exl2__cuda_device_enter(one));
    int result = host ? one->driver.copy_down(host, p->here, bytes, one->stream)
                      : one->driver.copy_peer(p->there, other->context, p->here, one->context, bytes, one->stream);
    result = result == 0 ? one->driver.stream_wait(one->stream) : result;
    EXL2__TRY(exl2__cuda_device_leave_with(one, exl2__cuda_device_check(one, result, "measuring copies")));
    if (!host) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_enter(other));
    result = other->driver.copy_up(p->there, host, bytes, other->stream);
    result = result == 0 ? other->driver.stream_wait(other->stream) : result;
    return exl2__cuda_device_leave_with(other, exl2__cuda_device_check(other, result, "measuring copies"));
}

/* *ns: of the fastest of some copies. */
EXL2__PRIVATE exl2_result exl2__cuda_link_runs(const exl2__cuda_pair *p, size_t bytes, void *host, uint64_t *ns)
{
    *ns = UINT64_MAX;
    for (uint32_t i = 0; i < EXL2__CUDA_LINK_RUNS; i++) {
        uint64_t begin_ns = exl2__platform_ns();
        EXL2__TRY(exl2__cuda_link_once(p, bytes, host));
        *ns = exl2__min64(*ns, exl2__max64(exl2__platform_ns() - begin_ns, 1));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_link_pair(const exl2__cuda_pair *p, void *host, exl2_link_speed *out)
{
    uint64_t few_ns, many_ns;
    EXL2__TRY(exl2__cuda_link_runs(p, EXL2__CUDA_LINK_FEW_BYTES, host, &few_ns));
    EXL2__TRY(exl2__cuda_link_runs(p, EXL2__CUDA_LINK_BYTES, host, &many_ns));
    out->us = (float)few_ns * 1e-3f;
    out->bytes_s = (uint64_t)((double)EXL2__CUDA_LINK_BYTES * 1e9 / (double)many_ns);
    return EXL2_OK;
}

/* As exl2_link_probe. */
EXL2__PRIVATE exl2_result exl2__cuda_link_probe(exl2__cuda_device *one, exl2__cuda_device *other, exl2_link_speed *out)
{
    exl2__cuda_pair p;
    void *host = NULL;
    out->direct = one->peers >> other->slot & 1;
    exl2_result r = exl2__cuda_pair_open(one, other, EXL2__CUDA_LINK_BYTES, &p);
    if (r >= 0 && !out->direct && (r = exl2__cuda_device_enter(one)) >= 0) {
        r = exl2__cuda_device_leave_with(one, exl2__cuda_pin(one, EXL2__CUDA_LINK_BYTES, &host));
    }
    r = r >= 0 ? exl2__cuda_link_pair(&p, host, out) : r;
    if (host && one->driver.context_push(one->context) == 0) {
        exl2__cuda_unpin(one, host, EXL2__CUDA_LINK_BYTES);
        exl2__cuda_device_leave(one);
    }
    exl2__cuda_pair_close(&p);
    return r;
}

#endif
