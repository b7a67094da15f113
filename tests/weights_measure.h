/* weights_measure.h: reads the headers of a model at once, where the engine reads them in slices. */
#ifndef WEIGHTS_MEASURE_H
#define WEIGHTS_MEASURE_H

#include "private/weights_load.h"

static inline exl2_result weights_measure(exl2__ctx *c, exl2__weights *w, const char *dir, const exl2__backend *backend,
                                          const exl2__device *device)
{
    exl2__work all = exl2__work_all();
    exl2__weights_reader r;
    exl2__weights_read_begin(&r, c, w, dir, backend, device);
    exl2_result result = exl2__weights_read_slice(&r, &all);
    exl2__weights_read_end(&r);
    return result;
}

#endif
