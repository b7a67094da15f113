/* ptx_registers.c: gives the registers of a kernel their places in a warp's memory. PTX has a register for each value;
   here registers that are not alive at the same time share a place, so that a warp's registers stay in the CPU's cache.
   takes: ptx_parts.h.
   gives: ptx_registers_place. */
#include "ptx_parts.h"

typedef struct interval {
    uint32_t id, begin, end; /* the first step and the last one at which it is alive */
} interval;

typedef struct block {
    uint32_t begin, end;
    uint32_t next[2], nexts;
} block;

typedef struct flow {
    ptx_kernel *k;
    block *blocks;
    uint32_t block_count, words;
    uint64_t *in, *out, *used, *set; /* [blocks][words]: bits of registers */
} flow;

static void *memory_of(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        abort();
    }
    return memory;
}

/* A step begins a block if something jumps to it, or if the step before it jumps. */
static void blocks_find(flow *f)
{
    ptx_kernel *k = f->k;
    uint32_t *number = memory_of(k->step_count + 1, sizeof *number);
    number[0] = 1;
    for (uint32_t i = 0; i < k->step_count; i++) {
        if (k->steps[i].target != PTX_NEVER) {
            number[k->steps[i].target] = 1;
            number[i + 1] = 1;
        } else if (k->steps[i].run == ptx_exit) {
            number[i + 1] = 1;
        }
    }
    f->blocks = memory_of(k->step_count, sizeof *f->blocks);
    for (uint32_t i = 0; i < k->step_count; i++) {
        if (number[i]) {
            f->blocks[f->block_count++].begin = i;
        }
        f->blocks[f->block_count - 1].end = i + 1;
        number[i] = f->block_count - 1;
    }
    for (uint32_t b = 0; b < f->block_count; b++) {
        block *now = &f->blocks[b];
        const ptx_step *last = &k->steps[now->end - 1];
        bool always = last->guard == PTX_NO_OPERAND && (last->target != PTX_NEVER || last->run == ptx_exit);
        if (last->target != PTX_NEVER) {
            now->next[now->nexts++] = number[last->target];
        }
        if (!always && now->end < k->step_count) {
            now->next[now->nexts++] = b + 1;
        }
    }
    free(number);
}

static void bit_set(uint64_t *bits, uint32_t i) { bits[i / 64] |= 1ull << (i % 64); }
static bool bit_of(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

/* What a block reads before it writes it, and what it writes for all lanes. */
static void block_scan(flow *f, uint32_t b)
{
    uint64_t *used = f->used + (size_t)b * f->words, *set = f->set + (size_t)b * f->words;
    for (uint32_t i = f->blocks[b].begin; i < f->blocks[b].end; i++) {
        const ptx_step *s = &f->k->steps[i];
        for (uint32_t a = s->defs; a < s->args; a++) {
            if (s->arg[a] >= 0 && !bit_of(set, (uint32_t)s->arg[a])) {
                bit_set(used, (uint32_t)s->arg[a]);
            }
        }
        if (s->guard != PTX_NO_OPERAND) {
            if (!bit_of(set, (uint32_t)s->guard)) {
                bit_set(used, (uint32_t)s->guard);
            }
            continue; /* what it writes may keep its value */
        }
        for (uint32_t a = 0; a < s->defs; a++) {
            bit_set(set, (uint32_t)s->arg[a]);
        }
    }
}

static void liveness(flow *f)
{
    for (uint32_t b = 0; b < f->block_count; b++) {
        block_scan(f, b);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t b = f->block_count; b-- > 0;) {
            uint64_t *in = f->in + (size_t)b * f->words, *out = f->out + (size_t)b * f->words;
            const uint64_t *used = f->used + (size_t)b * f->words, *set = f->set + (size_t)b * f->words;
            for (uint32_t n = 0; n < f->blocks[b].nexts; n++) {
                const uint64_t *next = f->in + (size_t)f->blocks[b].next[n] * f->words;
                for (uint32_t w = 0; w < f->words; w++) {
                    out[w] |= next[w];
                }
            }
            for (uint32_t w = 0; w < f->words; w++) {
                uint64_t now = used[w] | (out[w] & ~set[w]);
                changed |= now != in[w];
                in[w] = now;
            }
        }
    }
}

static void extend(interval *v, uint32_t at)
{
    v->begin = at < v->begin ? at : v->begin;
    v->end = at > v->end ? at : v->end;
}

static void intervals_find(const flow *f, interval *all)
{
    for (uint32_t b = 0; b < f->block_count; b++) {
        const uint64_t *in = f->in + (size_t)b * f->words, *out = f->out + (size_t)b * f->words;
        for (uint32_t i = 0; i < f->words * 64; i++) {
            if (i % 64 == 0 && !in[i / 64] && !out[i / 64]) {
                i += 63;
                continue;
            }
            if (bit_of(in, i)) {
                extend(&all[i], f->blocks[b].begin);
            }
            if (bit_of(out, i)) {
                extend(&all[i], f->blocks[b].end - 1);
            }
        }
        for (uint32_t i = f->blocks[b].begin; i < f->blocks[b].end; i++) {
            const ptx_step *s = &f->k->steps[i];
            for (uint32_t a = 0; a < s->args; a++) {
                if (s->arg[a] >= 0) {
                    extend(&all[s->arg[a]], i);
                }
            }
            if (s->guard != PTX_NO_OPERAND) {
                extend(&all[s->guard], i);
            }
        }
    }
}

static int interval_compare(const void *a, const void *b)
{
    const interval *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->id > y->id) - (x->id < y->id);
}

/* Places the registers of one width behind `base`; returns the bytes that they need. places [registers]. Two registers
   of the same step never share a place, as a destination may be written before a source is read. */
static uint32_t width_place(const interval *sorted, uint32_t count, const uint8_t *widths, uint8_t width, uint32_t base,
                            uint32_t *places)
{
    uint32_t *ends = memory_of(count, sizeof *ends), slots = 0, size = width == 1 ? 4 : width * PTX_LANES;
    for (uint32_t i = 0; i < count; i++) {
        if (widths[sorted[i].id] != width || sorted[i].begin == UINT32_MAX) {
            continue;
        }
        uint32_t slot = 0;
        while (slot < slots && ends[slot] >= sorted[i].begin) {
            slot++;
        }
        slots += slot == slots;
        ends[slot] = sorted[i].end;
        places[sorted[i].id] = base + slot * size;
    }
    free(ends);
    return slots * size;
}

void ptx_registers_place(ptx_kernel *k, const uint8_t *widths, uint32_t registers)
{
    static const uint8_t order[] = { 16, 8, 4, 2, 1 };
    flow f = { .k = k, .words = (registers + 63) / 64 };
    blocks_find(&f);
    size_t bits = (size_t)f.block_count * f.words;
    f.in = memory_of(bits * 4, sizeof *f.in);
    f.out = f.in + bits;
    f.used = f.out + bits;
    f.set = f.used + bits;
    liveness(&f);
    interval *all = memory_of(f.words * 64, sizeof *all);
    for (uint32_t i = 0; i < f.words * 64; i++) {
        all[i] = (interval){ i, UINT32_MAX, 0 };
    }
    intervals_find(&f, all);
    qsort(all, registers, sizeof *all, interval_compare);
    uint32_t *places = memory_of(registers, sizeof *places);
    for (size_t i = 0; i < sizeof order; i++) {
        k->register_bytes += width_place(all, registers, widths, order[i], k->register_bytes, places);
    }
    k->register_bytes = (k->register_bytes + 63) / 64 * 64;
    for (uint32_t i = 0; i < k->step_count; i++) {
        ptx_step *s = &k->steps[i];
        for (uint32_t a = 0; a < s->args; a++) {
            s->arg[a] = s->arg[a] >= 0 ? (int32_t)places[s->arg[a]] : s->arg[a];
        }
        s->guard = s->guard == PTX_NO_OPERAND ? s->guard : (int32_t)places[s->guard];
    }
    free(places);
    free(all);
    free(f.in);
    free(f.blocks);
}
