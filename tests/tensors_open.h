/* tensors_open.h: opens the tensor files of a folder at once, where the engine reads them in slices. */
#ifndef TENSORS_OPEN_H
#define TENSORS_OPEN_H

#include "private/tensor_table.h"

/* On failure *t is zeroed. renames: of a family, or NULL. */
static inline exl2_result tensors_open_renamed(exl2__ctx *c, const char *dir, const char *const *renames,
                                               exl2__tensors *t)
{
    exl2__work all = exl2__work_all();
    exl2__tensors_reader r;
    exl2__tensors_read_begin(&r, c, dir, renames, t);
    exl2_result result = exl2__tensors_read_slice(&r, &all);
    exl2__tensors_read_end(&r);
    return result;
}

static inline exl2_result tensors_open(exl2__ctx *c, const char *dir, exl2__tensors *t)
{
    return tensors_open_renamed(c, dir, NULL, t);
}

#endif
