/* cuda_host.h: layers whose MLPs the host computes: how rows of the residual cross to it and back, and the units of
   such layers.
   takes: a model with a current pass, whose plan has host_mlps.
   gives: exl2__cuda_host_plain, exl2__cuda_host_first, exl2__cuda_host_back, exl2__cuda_host_send,
          exl2__cuda_host_fetch; exl2__cuda_crossing of the backend.
   owns:  nothing; the rows lie in the model's pinned memory.

   Such layers are the last n of the span. After the units of whole layers come n + 1 units; rows cross after each of
   these but the last. A unit has what follows the crossing before it, and what comes before its own: the norm after the
   MLP of a layer, and attention of the next one. With parallel blocks the MLP comes first and attention follows: the
   first unit has nothing to launch. Captured graphs contain no copies; they are enqueued between graphs. */
#ifndef EXL2__CUDA_HOST_H
#define EXL2__CUDA_HOST_H

#include "cuda_phases.h"

/* Number of the span's first layers whose MLPs the device computes. */
static inline uint32_t exl2__cuda_host_plain(const exl2__cuda_model *m)
{
    return exl2__plan_span(m->plan) - m->plan->host_mlps;
}

/* Of `units` units with layers, the one before which rows cross first; `units`: they do not cross. */
static inline uint32_t exl2__cuda_host_first(const exl2__cuda_model *m, uint32_t units)
{
    return units - m->plan->host_mlps;
}

/* The host has added a layer's MLP to the residual: adds what rows of pictures have after the layer, and prepares what
   the next norm and its readers need. */
EXL2__PRIVATE exl2_result exl2__cuda_host_back(exl2__cuda_model *m, const exl2__layer *layer)
{
    EXL2__TRY(exl2__cuda_add_deep(m, layer));
    if (!exl2__cuda_folds(&m->plan->shape)) {
        return exl2__cuda_settle(m, (exl2__cuda_settling){ NULL, exl2__cuda_next_attention(m, layer), 0 }, NULL);
    }
    if (m->pass.by_gemm) { /* the norm is a kernel of its own, before its reader */
        return EXL2_OK;
    }
    m->pass.norm = 2 * (layer->index + 1) % EXL2__CUDA_SUMS;
    exl2__cuda_follower next = exl2__cuda_follower_of(m, layer);
    exl2k_embed_args a = exl2__cuda_embed_args(m);
    a.kind = EXL2K_TABLE_GIVEN;
    a.out = m->b.x;
    a.map = exl2__cuda_inputs(next.reader);
    a.weight = exl2__cuda_values(next.norm->weight);
    return exl2__cuda_embed(m, &a);
}

/* Enqueues the copy of the pass's rows to pinned memory. The next kernel may not write to the residual meanwhile. */
EXL2__PRIVATE exl2_result exl2__cuda_host_send(exl2__cuda_model *m)
{
    size_t bytes = (size_t)m->step->row_count * m->plan->shape.hidden * sizeof(float);
    m->pass.chained = false;
    return exl2__cuda_device_check(m->gpu, m->gpu->driver.copy_down(m->b.crossing, m->b.residual, bytes,
                                                                    m->gpu->stream), "copying rows to the CPU");
}

/* Enqueues the copy back. */
EXL2__PRIVATE exl2_result exl2__cuda_host_fetch(exl2__cuda_model *m)
{
    size_t bytes = (size_t)m->step->row_count * m->plan->shape.hidden * sizeof(float);
    m->pass.chained = false; /* the next kernel reads them */
    return exl2__cuda_device_check(m->gpu, m->gpu->driver.copy_up(m->b.residual, m->b.crossing, bytes, m->gpu->stream),
                                   "copying rows from the CPU");
}

EXL2__PRIVATE float *exl2__cuda_crossing(exl2__device *device)
{
    return exl2__cuda_of(device)->b.crossing;
}

#endif
