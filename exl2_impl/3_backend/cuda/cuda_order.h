/* cuda_order.h: in which order the inputs and the outputs of a matrix lie in device memory.
   takes: checked matrix descriptions.
   gives: exl2__cuda_order, exl2__cuda_down_order, exl2__cuda_order_in_memory, exl2__cuda_order_in_file,
          exl2__cuda_orders_differ. */
#ifndef EXL2__CUDA_ORDER_H
#define EXL2__CUDA_ORDER_H

#include "../../../kernels_src/matrix_args.h"
#include "../../2_graph/phases.h"

/* THE ORDER. Files of codes sort the inputs of a matrix by group: input i is packed row inverse_perm[i]. Strips in
   device memory keep this order, so x must be in it, too, when a product reads x.

   - Inputs. What writes x for a matrix (a norm, `settle`, attention, the router) permutes it by a table in device
     memory, `inputs`. Parts that share one order have the table of part 0. Parts that do not, which no known converter
     writes, are `apart`: x is written in the order of the file, and permuted for each part (cuda_split.h).
   - `down` has no table. Gate and up, which are loaded after it, store their outputs in the order of its inputs
     (`by_down`), columns and biases alike, so that h = act(gate) * up is the input of `down` as it is.
   - Everything else lies as in the file: inputs of dense matrices, and outputs of all matrices but gate and up.

   An index in the file becomes an index in memory by exl2__cuda_order_in_memory, and comes back by
   exl2__cuda_order_in_file. For an input of any matrix, ask about its own desc; for an output of gate or up, ask about
   the order of `down`. */
typedef struct exl2__cuda_order {
    uint64_t inputs[EXL2K_PARTS_MAX]; /* u16 [in] exl2__cuda_order_in_memory of each input; 0: as in the file */
    bool apart;                       /* of a layer's experts: each has an order of its own */
    bool by_down;
} exl2__cuda_order;

/* The order of inputs of the `down` that was made last, while its layer is loaded. */
typedef struct exl2__cuda_down_order {
    uint32_t count;     /* inputs, rounded up to a multiple of 32; 0: as in the file */
    void *host;         /* u16 [count] exl2__cuda_order_in_file of each packed row; the padding stays in its place */
    uint64_t device;    /* the same */
    uint64_t host_bytes, device_bytes;
} exl2__cuda_down_order;

/* Where an input of the file lies in memory. */
static inline uint16_t exl2__cuda_order_in_memory(const exl2__matrix_desc *part, uint32_t in_file)
{
    return (uint16_t)(part->kind == EXL2__MATRIX_DENSE ? in_file : part->inverse_perm[in_file]);
}

/* The way back, of the order of `down`. */
static inline uint32_t exl2__cuda_order_in_file(const exl2__cuda_down_order *down, uint32_t in_memory)
{
    return down->count ? ((const uint16_t *)down->host)[in_memory] : in_memory;
}

/* Whether parts order their inputs differently. In files of all known converters q, k and v share one order, and so do
   gate and up, but the format allows others. */
EXL2__PRIVATE bool exl2__cuda_orders_differ(const exl2__matrix_desc *parts, uint32_t count)
{
    for (uint32_t i = 1; i < count && parts->kind != EXL2__MATRIX_DENSE; i++) {
        if (memcmp(parts[i].inverse_perm, parts->inverse_perm, parts->in * sizeof(uint32_t)) != 0) {
            return true;
        }
    }
    return false;
}

#endif
