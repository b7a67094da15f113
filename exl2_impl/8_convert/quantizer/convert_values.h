/* convert_values.h: finds weights that cannot be quantized, before hours of work.
   takes: the weights of the source.
   gives: exl2__convert_values. */
#ifndef EXL2__CONVERT_VALUES_H
#define EXL2__CONVERT_VALUES_H

#include "convert_plan.h"

/* Are all weights of a part halves (f16 or bf16) that can be quantized? This is fast. */
EXL2__PRIVATE bool exl2__convert_values_fit(const exl2__cpu_part *p)
{
    uint16_t most = p->source == EXL2__CPU_BF16 ? 0x46FF : 0x77FF; /* the largest one below 32752, and 32752 */
    bool larger = p->source != EXL2__CPU_BF16 && p->source != EXL2__CPU_F16;
    for (uint32_t strip = 0; strip < p->strips && !larger; strip++) {
        const uint16_t *w = (const uint16_t *)(const void *)(p->data + strip * p->strip_bytes);
        uint32_t over = 0;
        for (size_t i = 0; i < (size_t)p->in * EXL2__CPU_STRIP; i++) {
            over |= (uint32_t)((w[i] & 0x7FFF) > most);
        }
        larger = over != 0;
    }
    return !larger;
}

/* Linear layers from `first` on. */
typedef struct exl2__convert_values_job {
    exl2__convert *v;
    uint32_t first;
} exl2__convert_values_job;

/* Task: finds the first weight of a linear that cannot be quantized. */
EXL2__PRIVATE void exl2__convert_values_of(void *arg, uint32_t index)
{
    const exl2__convert_values_job *job = (const exl2__convert_values_job *)arg;
    exl2__linear *linear = &job->v->linears.items[job->first + index];
    const exl2__cpu_part *p = exl2__linears_part(&job->v->source, linear);
    linear->bad = false;
    if (exl2__convert_values_fit(p)) {
        return;
    }
    for (uint32_t first = 0; first < linear->out; first += EXL2__PANELS_LANES) { /* strips, as they lie in memory */
        uint32_t end = exl2__min32(first + EXL2__PANELS_LANES, linear->out);
        for (uint32_t i = 0; i < linear->in; i++) {
            for (uint32_t column = first; column < end; column++) {
                float w = exl2__cpu_matrix_weight(p, i, column);
                if (!(w <= EXL2__QUANTIZE_MAX && w >= -EXL2__QUANTIZE_MAX)) {
                    linear->bad = true;
                    linear->bad_in = i;
                    linear->bad_out = column;
                    return;
                }
            }
        }
    }
}

/* Fails if a number of the source cannot become FP16, or cannot be quantized. Hours later it would fail, too. */
EXL2__PRIVATE exl2_result exl2__convert_values(exl2__convert *v)
{
    uint32_t layers = v->source.plan.shape.layers;
    exl2__convert_values_job head = { v, v->linears.first[layers] };
    for (uint32_t layer = 0; layer < layers; layer++) {
        exl2__convert_values_job job = { v, v->linears.first[layer] };
        EXL2__TRY(exl2__runner_hold(&v->source, layer));
        exl2__tasks_run(v->c, v->linears.first[layer + 1] - job.first, exl2__convert_values_of, &job);
    }
    exl2__tasks_run(v->c, v->linears.count - head.first, exl2__convert_values_of, &head);
    for (uint32_t i = 0; i < v->linears.count; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        if (linear->bad) {
            return exl2__fail(v->c, EXL2_ERR_FORMAT, "%s has a weight (output %u, input %u) that is not finite or "
                              "larger than 32752", linear->name, linear->bad_out, linear->bad_in);
        }
    }
    return exl2__convert_write_dry(&v->write, true, NULL);
}

#endif
