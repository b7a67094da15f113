/* vocab_open.h: opens a tokenizer at once, where the engine reads it in slices. */
#ifndef VOCAB_OPEN_H
#define VOCAB_OPEN_H

#include "private/vocab_read.h"

/* On failure *out is zeroed. */
static inline exl2_result vocab_open(exl2__ctx *c, const char *dir, exl2__vocab *out)
{
    exl2__work all = exl2__work_all();
    exl2__vocab_reader r;
    exl2_result result = exl2__vocab_read_begin(&r, c, dir, out);
    result = result < 0 ? result : exl2__vocab_read_slice(&r, &all);
    exl2__vocab_read_end(&r);
    return result;
}

#endif
