/* cuda_group_towers.h: pictures of a model that several GPUs share by columns: the first GPU has the whole tower.
   takes: a group whose first plan has a tower.
   gives: exl2__cuda_group_towers.

   Rows of pictures go to host memory, and from there to all GPUs, as vectors of the rows of passes. */
#ifndef EXL2__CUDA_GROUP_TOWERS_H
#define EXL2__CUDA_GROUP_TOWERS_H

#include "cuda_group_members.h"

#ifndef EXL2_NO_VISION

static inline exl2__device *exl2__cuda_group_first(const exl2__device *device)
{
    return exl2__cuda_group_of(device)->of[0];
}

EXL2__PRIVATE exl2_result exl2__cuda_group_tower_supports(exl2__device *device, const exl2__plan *plan)
{
    return exl2__cuda_tower_supports(exl2__cuda_group_first(device), plan);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_tower_values(exl2__device *device, uint32_t part, bool bias,
                                                        const float *values, uint32_t count)
{
    return exl2__cuda_tower_values(exl2__cuda_group_first(device), part, bias, values, count);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_tower_rows(exl2__device *device, uint32_t part, uint32_t in,
                                                      exl2__dtype type, const exl2__rows_slice *slice)
{
    return exl2__cuda_tower_rows(exl2__cuda_group_first(device), part, in, type, slice);
}

EXL2__PRIVATE void exl2__cuda_group_tower_hold(exl2__device *device, void *memory, uint64_t bytes)
{
    exl2__cuda_tower_hold(exl2__cuda_group_first(device), memory, bytes);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_tower_begin(exl2__device *device, const exl2__vision_size *size,
                                                       const uint8_t *seen, float *rows)
{
    return exl2__cuda_tower_begin(exl2__cuda_group_first(device), size, seen, rows);
}

/* The streams of the other GPUs wait for the tower's work that is enqueued: kernels of later passes would else wait for
   the first GPU, and give up after 2 s. */
EXL2__PRIVATE exl2_result exl2__cuda_group_tower_wait(const exl2__cuda_group *g)
{
    const exl2__cuda_model *first = exl2__cuda_of(g->of[0]);
    EXL2__TRY(exl2__cuda_device_enter(first->gpu));
    int recorded = first->gpu->driver.event_record(first->tower.queued, first->gpu->stream);
    exl2__cuda_device_flush(first->gpu);
    exl2_result r = exl2__cuda_device_check(first->gpu, recorded, "recording an event");
    EXL2__TRY(exl2__cuda_device_leave_with(first->gpu, r));
    for (uint32_t i = 1; i < g->count; i++) {
        exl2__cuda_model *m = exl2__cuda_of(g->of[i]);
        EXL2__TRY(exl2__cuda_device_enter(m->gpu));
        int waits = m->gpu->driver.stream_wait_event(m->gpu->stream, first->tower.queued, 0);
        r = exl2__cuda_device_check(m->gpu, waits, "waiting for a picture");
        EXL2__TRY(exl2__cuda_device_leave_with(m->gpu, r));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_tower_step(exl2__device *device, uint64_t gpu_ns, uint64_t cpu_end_ns,
                                                      bool wait)
{
    exl2_result r = exl2__cuda_tower_step(exl2__cuda_group_first(device), gpu_ns, cpu_end_ns, wait);
    if (r != EXL2_PENDING || gpu_ns == 0) {
        return r;
    }
    EXL2__TRY(exl2__cuda_group_tower_wait(exl2__cuda_group_of(device)));
    return EXL2_PENDING;
}

static const exl2__backend_towers exl2__cuda_group_towers = {
    .supports = exl2__cuda_group_tower_supports,
    .weight_bytes = exl2__cuda_tower_weight_bytes,
    .values = exl2__cuda_group_tower_values,
    .rows = exl2__cuda_group_tower_rows,
    .hold = exl2__cuda_group_tower_hold,
    .begin = exl2__cuda_group_tower_begin,
    .step = exl2__cuda_group_tower_step,
};

#endif
#endif
