/* cuda_probe.h: measures the bandwidth of the device's memory, which bounds the speed of decoding.
   takes: an open device.
   gives: exl2__cuda_probe.
   owns:  nothing beyond a call. */
#ifndef EXL2__CUDA_PROBE_H
#define EXL2__CUDA_PROBE_H

#include "../../../kernels_src/probe_args.h"
#include "cuda_device.h"

#define EXL2__CUDA_PROBE_BYTES ((uint64_t)4 << 30) /* more than any cache holds; less on devices with less memory */
#define EXL2__CUDA_PROBE_ALIGN ((uint64_t)1 << 20)
#define EXL2__CUDA_PROBE_RUNS 10u                  /* the fastest run counts */

/* Bytes to measure with: half of the free memory, in whole MiB. */
EXL2__PRIVATE uint64_t exl2__cuda_probe_bytes(exl2__cuda_device *d)
{
    size_t bytes_free = 0, bytes_total = 0;
    d->driver.memory_info(&bytes_free, &bytes_total);
    uint64_t half = exl2__min64(exl2__cuda_device_room(d), bytes_free) / 2;
    uint64_t bytes = exl2__min64(half, EXL2__CUDA_PROBE_BYTES) / EXL2__CUDA_PROBE_ALIGN * EXL2__CUDA_PROBE_ALIGN;
    return exl2__max64(bytes, EXL2__CUDA_PROBE_ALIGN);
}

/* Reads the whole block with the engine's kernel, or copies its first half to the second with the driver. */
EXL2__PRIVATE exl2_result exl2__cuda_probe_once(exl2__cuda_device *d, uint64_t block, uint64_t bytes, bool copies)
{
    exl2__cuda_grid grid = { .x = d->sm_count * 4, .y = 1, .threads = 512 };
    exl2k_probe_args read = { block, block, bytes / 16, 1, 0 };
    if (!copies) {
        return exl2__cuda_device_launch(d, EXL2__KERNEL_exl2k_probe_read, grid, &read);
    }
    return exl2__cuda_device_check(d, d->driver.copy(block + bytes / 2, block, (size_t)bytes / 2, d->stream),
                                   "copying device memory");
}

/* Times the runs between two timestamps. *bytes_s: bytes per second of the fastest run. */
EXL2__PRIVATE exl2_result exl2__cuda_probe_runs(exl2__cuda_device *d, uint64_t block, uint64_t bytes, bool copies,
                                                exl2__cuda_event *const events[2], uint64_t *bytes_s)
{
    *bytes_s = 0;
    for (uint32_t i = 0; i < EXL2__CUDA_PROBE_RUNS; i++) {
        float milliseconds = 0;
        int result = d->driver.event_record(events[0], d->stream);
        EXL2__TRY(exl2__cuda_device_check(d, result, "recording a timestamp"));
        EXL2__TRY(exl2__cuda_probe_once(d, block, bytes, copies));
        result = d->driver.event_record(events[1], d->stream);
        result = result == 0 ? d->driver.event_wait(events[1]) : result;
        result = result == 0 ? d->driver.event_ms(&milliseconds, events[0], events[1]) : result;
        EXL2__TRY(exl2__cuda_device_check(d, result, "measuring its memory"));
        if (milliseconds > 0) {
            *bytes_s = exl2__max64(*bytes_s, (uint64_t)((double)bytes * 1e3 / (double)milliseconds));
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_probe_block(exl2__cuda_device *d, uint64_t block, uint64_t bytes,
                                                 exl2__cuda_event *const events[2], exl2_device_speed *out)
{
    int filled = d->driver.fill8(block, 0x5A, (size_t)bytes, d->stream);
    EXL2__TRY(exl2__cuda_device_check(d, filled, "filling device memory"));
    EXL2__TRY(exl2__cuda_probe_runs(d, block, bytes, false, events, &out->read_bytes_s));
    return exl2__cuda_probe_runs(d, block, bytes, true, events, &out->copy_bytes_s);
}

/* The context must be current. */
EXL2__PRIVATE exl2_result exl2__cuda_probe_all(exl2__cuda_device *d, exl2__cuda_event *events[2],
                                               exl2_device_speed *out)
{
    bool wanted[EXL2__KERNEL_COUNT] = { false };
    uint64_t block, bytes = exl2__cuda_probe_bytes(d);
    wanted[exl2__cuda_module_of(EXL2__KERNEL_exl2k_probe_read)] = true;
    EXL2__TRY(exl2__cuda_device_kernels(d, wanted));
    for (uint32_t i = 0; i < 2; i++) {
        int made = d->driver.event_make(&events[i], EXL2__CUDA_EVENT_PLAIN);
        EXL2__TRY(exl2__cuda_device_check(d, made, "creating an event"));
    }
    EXL2__TRY(exl2__cuda_device_alloc(d, bytes, EXL2_MEM_SCRATCH, &block));
    exl2_result r = exl2__cuda_probe_block(d, block, bytes, events, out);
    if (r < 0) {
        d->driver.stream_wait(d->stream); /* kernels may still use the block */
    }
    exl2__cuda_device_free(d, block, bytes, EXL2_MEM_SCRATCH);
    return r;
}

/* As exl2_device_probe. */
EXL2__PRIVATE exl2_result exl2__cuda_probe(exl2__cuda_device *d, exl2_device_speed *out)
{
    exl2__cuda_event *events[2] = { NULL, NULL };
    EXL2__TRY(exl2__cuda_device_enter(d));
    exl2_result r = exl2__cuda_probe_all(d, events, out);
    for (uint32_t i = 0; i < 2; i++) {
        if (events[i]) {
            d->driver.event_free(events[i]);
        }
    }
    exl2__cuda_device_leave(d);
    out->index = d->info.index;
    return r;
}

#endif
