/* template_set_open.h: opens the chat templates of a folder at once, where the engine reads them in slices. */
#ifndef TEMPLATE_SET_OPEN_H
#define TEMPLATE_SET_OPEN_H

#include "private/template_set.h"

/* On failure *set is zeroed. */
static inline exl2_result template_set_open(exl2__ctx *c, const char *dir, exl2__template_set *set)
{
    exl2__work all = exl2__work_all();
    exl2__template_set_reader r;
    exl2_result result = exl2__template_set_begin(&r, c, dir, NULL, set);
    result = result < 0 ? result : exl2__template_set_slice(&r, &all);
    exl2__template_set_end(&r);
    if (result < 0) {
        exl2__template_set_close(c, set);
    }
    return result;
}

#endif
