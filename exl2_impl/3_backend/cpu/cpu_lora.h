/* cpu_lora.h: what adapters add to products on the CPU, and their memory.
   takes: rows of activations in the order of the features; the sets of the step's rows.
   gives: exl2__cpu_lora_shrink, exl2__cpu_lora_expand, exl2__cpu_lora_stages, exl2__cpu_loras.
   owns:  the blocks of adapters, until `close`.

   t of a row, or of a slot of an expert, is computed where its input is gathered, and B t is added where its strips are
   multiplied; both read the row's set and nothing else of the pass. d->lora.t is [rows or slots, 3 parts, stride]; in a
   stride the adapters of the set follow each other, each with lora.rank_stride values. */
#ifndef EXL2__CPU_LORA_H
#define EXL2__CPU_LORA_H

#include "cpu_device.h"

/* Which rows of the step the rows of an input are: row i of it is row rows[i], or `first` + i with rows NULL; its t is
   that of index first + i. */
typedef struct exl2__cpu_lora_rows {
    const uint32_t *rows;
    uint32_t first;
} exl2__cpu_lora_rows;

/* The set of one of the rows; NULL: none. */
static inline const exl2__lora_set *exl2__cpu_lora_set(const exl2__cpu_device *d, const exl2__cpu_lora_rows *of,
                                                       uint32_t i)
{
    uint32_t index = d->step->row_loras[of->rows ? of->rows[i] : of->first + i];
    return index ? &d->step->lora_sets[index - 1] : NULL;
}

static inline exl2__real *exl2__cpu_lora_t(const exl2__cpu_device *d, const exl2__cpu_lora_rows *of, uint32_t i,
                                           uint32_t part)
{
    return d->lora.t + ((size_t)(of->first + i) * 3 + part) * d->lora.stride;
}

/* Does the pass have adapters, and does the operand, which is not the head, belong to a layer? */
static inline bool exl2__cpu_lora_any(const exl2__cpu_device *d, exl2__operand of)
{
    return d->lora.stride && d->step->row_loras && of.layer;
}

/* t of `n` rows x [n, stride] for one part of the operand. */
EXL2__PRIVATE void exl2__cpu_lora_shrink(const exl2__cpu_device *d, exl2__operand of, uint32_t part, uint32_t in,
                                         const exl2__cpu_lora_rows *rows, uint32_t n, const exl2__real *x,
                                         size_t stride)
{
    for (uint32_t i = 0; i < n; i++) {
        const exl2__lora_set *set = exl2__cpu_lora_set(d, rows, i);
        exl2__real *t = exl2__cpu_lora_t(d, rows, i, part);
        for (uint32_t u = 0; set && u < set->count; u++, t += d->lora.rank_stride) {
            const exl2__lora_matrix *m = exl2__operand_lora(set->uses[u].store, of, part);
            if (m->rank && m->shares) { /* the same A x; the powers of two of the parts of B may differ */
                float by = exl2__float_bits(m[-1].factor) << 1 ? m->factor / m[-1].factor : 0;
                for (uint32_t k = 0; k < m->rank; k++) {
                    t[k] = t[(ptrdiff_t)k - (ptrdiff_t)d->lora.stride] * (exl2__real)by;
                }
            } else if (m->rank) {
                d->ops->shrink((const uint16_t *)(uintptr_t)m->a, exl2__lora_a_stride(in), m->rank, in,
                               x + i * stride, (exl2__real)set->uses[u].scale * (exl2__real)m->factor, t);
            }
        }
    }
}

/* Adds B t to `count` columns from `column` on of `n` rows out [n, stride] of one part; out_columns: of the whole part.
   add 0 counts as 1. */
EXL2__PRIVATE void exl2__cpu_lora_expand(const exl2__cpu_device *d, exl2__operand of, uint32_t part,
                                         uint32_t out_columns, const exl2__cpu_lora_rows *rows, uint32_t n,
                                         uint32_t column, uint32_t count, exl2__real *out, size_t stride,
                                         exl2__real add)
{
    for (uint32_t i = 0; i < n; i++) {
        const exl2__lora_set *set = exl2__cpu_lora_set(d, rows, i);
        const exl2__real *t = exl2__cpu_lora_t(d, rows, i, part);
        for (uint32_t u = 0; set && u < set->count; u++, t += d->lora.rank_stride) {
            const exl2__lora_matrix *m = exl2__operand_lora(set->uses[u].store, of, part);
            if (m->rank) {
                d->ops->expand((const uint16_t *)(uintptr_t)m->b + column, exl2__lora_b_stride(out_columns), m->rank,
                               count, t, add != 0 ? add : 1, out + i * stride);
            }
        }
    }
}

/* Adds the adapters' multiply-adds to the costs of a phase's stages: its input, its strips. */
EXL2__PRIVATE void exl2__cpu_lora_stages(const exl2__cpu_device *d, exl2__phase phase, uint32_t rows,
                                         exl2__cpu_stage *stages)
{
    uint64_t ranks = d->lora.ranks, in = d->shape.hidden, parts = 1, each = 1; /* each: parts of an item of strips */
    switch (phase) {
    case EXL2__PHASE_qkv:
        parts = 3;
        break;
    case EXL2__PHASE_out:
        in = d->query_stride;
        break;
    case EXL2__PHASE_gate_up:
    case EXL2__PHASE_route:
        parts = each = 2;
        break;
    case EXL2__PHASE_down:
        in = d->shape.inter;
        break;
    case EXL2__PHASE_expert_up:
        parts = 2;
        each = 4; /* of pairs of strips */
        break;
    case EXL2__PHASE_expert_down:
        in = d->shape.experts.inter;
        each = 2 * (uint64_t)d->shape.experts.active;
        break;
    default:
        return;
    }
    stages[0].cost += ranks * in * parts * d->ops->tile_rows;
    stages[1].cost += ranks * each * rows * EXL2__CPU_STRIP;
}

/* ---- memory ---- */

EXL2__PRIVATE exl2_result exl2__cpu_lora_open(exl2__device *d, uint64_t bytes, uint64_t *block)
{
    void *memory;
    *block = 0;
    EXL2__TRY(exl2__alloc(exl2__cpu_of(d)->c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_WEIGHTS, &memory));
    *block = (uint64_t)(uintptr_t)memory;
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__cpu_lora_close(exl2__device *d, uint64_t block, uint64_t bytes)
{
    exl2__free(exl2__cpu_of(d)->c, (void *)(uintptr_t)block, bytes, EXL2_MEM_WEIGHTS);
}

EXL2__PRIVATE exl2_result exl2__cpu_lora_write(exl2__device *d, uint64_t at, const void *data, uint64_t bytes)
{
    (void)d;
    memcpy((void *)(uintptr_t)at, data, (size_t)bytes);
    return EXL2_OK;
}

static const exl2__backend_loras exl2__cpu_loras = {
    .open = exl2__cpu_lora_open, .close = exl2__cpu_lora_close, .write = exl2__cpu_lora_write,
};

#endif
