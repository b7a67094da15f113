/* cpu_double.h: the reference path built in double with unrounded K and V, as a backend next to the float one, and its
   buffers. cpu_double.c is that build; a test links it. */
#ifndef CPU_DOUBLE_H
#define CPU_DOUBLE_H

#include "private/phases.h"

/* Buffers that phases read and write: [rows, stride]; pages: [pages, elements of a page]. */
#define CPU_BUFFERS(X) X(residual) X(query) X(gate) X(logits) X(pages)

typedef enum cpu_buffer {
#define X(name) CPU_BUFFER_##name,
    CPU_BUFFERS(X)
#undef X
    CPU_BUFFER_COUNT
} cpu_buffer;

/* Expands to the members of a device that are in a cpu_view, whatever its arithmetic type. */
/* clang-format off */
#define CPU_VIEW_STRIDES(d)                                                               \
    { (d)->hidden_stride, (d)->query_stride, (d)->inter_stride, (d)->vocab_stride,        \
      (size_t)((d)->page_bytes / sizeof(exl2__kv)) }
/* clang-format on */

typedef struct cpu_double_view {
    double *buffer[CPU_BUFFER_COUNT];
    size_t stride[CPU_BUFFER_COUNT];
    double *key, *value; /* [rows, key_stride] of the last qkv, k rotated */
    size_t key_stride;
    /* K [kv_heads, dim, 64] of a page begins layer_stride after that of the previous layer. V [kv_heads, 64,
       value_stride] begins key_count after K. */
    size_t layer_stride, key_count, value_stride;
    double *branch; /* as the residual: a block's result before its norm; NULL without norms after blocks */
} cpu_double_view;

/* What `route` has left: the router's logits [rows, stride], and the choice and the weights [rows, active]. */
typedef struct cpu_double_routed {
    const double *logits;
    size_t stride;
    const uint32_t *choice;
    const double *weight;
} cpu_double_routed;

const exl2__backend *cpu_double_backend(void);
cpu_double_view cpu_double_look(exl2__device *d);
cpu_double_routed cpu_double_look_routed(exl2__device *d);

/* Replaces the choice and the weights of all rows. */
void cpu_double_choose(exl2__device *d, const uint32_t *choice, const float *weight);

#endif
