/* engine_rig.h: puts the models of a test's engine onto the GPU. The engine does not choose CUDA by itself yet.
   takes: an engine without models.
   gives: rig_cuda_open, rig_cuda_close.
   owns:  the device, from open to close.
   next:  ../engine/rig.h */
#ifndef ENGINE_RIG_H
#define ENGINE_RIG_H

#include "../../exl2_impl/3_backend/cuda.h"
#include "kernel_folder.h"

static exl2__cuda_device rig_cuda;

/* Skips the test where there is no GPU. */
static inline void rig_cuda_open(exl2_engine *e)
{
    exl2__cuda_settings settings = { .cache = kernel_folder(), .quiet = true };
    if (exl2__cuda_device_open(&e->ctx, &rig_cuda, &settings) < 0) {
        check_skip(e->ctx.error.text);
    }
    e->backend = &exl2__cuda_backend;
    e->hardware = &rig_cuda;
}

/* After the engine's models are closed, before the engine is. */
static inline void rig_cuda_close(exl2_engine *e)
{
    if (e->hardware) {
        exl2__cuda_device_close(&rig_cuda);
        e->hardware = NULL;
    }
}

#endif
