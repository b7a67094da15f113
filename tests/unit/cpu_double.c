/* cpu_double.c: the reference path in double; see cpu_double.h. */
#define EXL2__REAL double
#define EXL2__TEST_F32_KV
#include "private/cpu.h"
#include "cpu_double.h"

const exl2__backend *cpu_double_backend(void)
{
    return &exl2__cpu_backend;
}

cpu_double_view cpu_double_look(exl2__device *device)
{
    exl2__cpu_device *d = exl2__cpu_of(device);
    cpu_double_view v = {
        { d->residual, d->query, d->gate, d->logits, (double *)(void *)d->pages }, CPU_VIEW_STRIDES(d),
        d->key, d->value, d->key_stride, (size_t)(d->layer_bytes / sizeof(exl2__kv)), (size_t)d->key_count,
        d->value_stride, d->branch
    };
    return v;
}

cpu_double_routed cpu_double_look_routed(exl2__device *device)
{
    const exl2__cpu_routed *r = &exl2__cpu_of(device)->routed;
    return (cpu_double_routed){ r->logits, r->router_stride, r->choice, r->weight };
}

void cpu_double_choose(exl2__device *device, const uint32_t *choice, const float *weight)
{
    exl2__cpu_device *d = exl2__cpu_of(device);
    exl2__cpu_share share = { .d = d };
    for (uint32_t i = 0; i < d->step->row_count * d->shape.experts.active; i++) {
        d->routed.choice[i] = choice[i];
        d->routed.weight[i] = (double)weight[i];
    }
    exl2__cpu_route_sort(&share);
}
