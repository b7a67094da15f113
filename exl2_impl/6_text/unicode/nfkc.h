/* nfkc.h: compatibility decompositions, which NFKD and NFKC use in addition to those of NFD and NFC.
   takes: code points.
   gives: exl2__nfkc, exl2__nfkc_make, exl2__nfkc_find.
   owns:  nothing; the unpacked tables lie in the caller's arena. */
#ifndef EXL2__NFKC_H
#define EXL2__NFKC_H

#include "../../0_base/arena.h"
#include "nfkc_table.h"

#define EXL2__NFKC_LONGEST 18 /* most code points that a decomposition has (that of U+FDFA) */

/* codes NULL: not used. */
typedef struct exl2__nfkc {
    uint32_t *codes;   /* [EXL2__NFKC_COUNT] code points that decompose, in order */
    uint32_t *text;    /* [EXL2__NFKC_TEXT] */
    uint16_t *starts;  /* [EXL2__NFKC_COUNT + 1] codes[i] becomes text[starts[i] .. starts[i + 1]) */
} exl2__nfkc;

static inline uint32_t exl2__nfkc_bit(uint32_t *at)
{
    uint32_t bit = (uint32_t)exl2__nfkc_bits[*at >> 3] >> (7 - (*at & 7)) & 1;
    (*at)++;
    return bit;
}

EXL2__PRIVATE uint32_t exl2__nfkc_number(uint32_t *at, uint32_t order)
{
    uint32_t bits = order + 1, value = 1;
    while (!exl2__nfkc_bit(at)) {
        bits++;
    }
    while (--bits) {
        value = value << 1 | exl2__nfkc_bit(at);
    }
    return value - (1u << order);
}

EXL2__PRIVATE uint32_t exl2__nfkc_signed(uint32_t *at, uint32_t order)
{
    uint32_t value = exl2__nfkc_number(at, order);
    return value & 1 ? ~(value >> 1) : value >> 1; /* two's complement */
}

/* Unpacks the table; with a dry arena it only counts bytes. The format is described in nfkc_table.h. */
EXL2__PRIVATE void exl2__nfkc_make(exl2__nfkc *n, exl2__arena *arena)
{
    n->codes = (uint32_t *)exl2__arena_alloc(arena, EXL2__NFKC_COUNT * sizeof *n->codes);
    n->text = (uint32_t *)exl2__arena_alloc(arena, EXL2__NFKC_TEXT * sizeof *n->text);
    n->starts = (uint16_t *)exl2__arena_alloc(arena, (EXL2__NFKC_COUNT + 1) * sizeof *n->starts);
    if (n->starts == NULL) {
        return;
    }
    uint32_t at = 0, code = UINT32_MAX, length = 1, used = 0, column[EXL2__NFKC_LONGEST] = { 0 };
    for (uint32_t i = 0; i < EXL2__NFKC_COUNT; i++) {
        n->codes[i] = code += 1 + exl2__nfkc_number(&at, 0);
        n->starts[i] = (uint16_t)used;
        length += exl2__nfkc_signed(&at, 0);
        for (uint32_t c = 0; c < EXL2__NFKC_LONGEST; c++) {
            if (c < length && exl2__nfkc_bit(&at)) {
                column[c] += exl2__nfkc_bit(&at) ? exl2__nfkc_signed(&at, 5) : 1;
            } else if (c >= length) {
                column[c] = column[length - 1];
            }
            if (c < length) {
                n->text[used++] = column[c];
            }
        }
    }
    n->starts[EXL2__NFKC_COUNT] = (uint16_t)used;
}

/* The decomposition of a code point, which has *count code points, or NULL. */
EXL2__PRIVATE const uint32_t *exl2__nfkc_find(const exl2__nfkc *n, uint32_t code, uint32_t *count)
{
    uint32_t low = 0, high = n->codes ? EXL2__NFKC_COUNT : 0;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (n->codes[middle] < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (n->codes == NULL || low == EXL2__NFKC_COUNT || n->codes[low] != code) {
        return NULL;
    }
    *count = (uint32_t)n->starts[low + 1] - n->starts[low];
    return n->text + n->starts[low];
}

#endif
