/* nfc.h: the Unicode normal forms NFD, NFC, NFKD and NFKC of one stretch of text at a time.
   takes: code points in an array, or valid UTF-8 to cut into stretches.
   gives: exl2__nfc, exl2__nfc_make, exl2__nfc_stretch, exl2__nfc_decompose, exl2__nfc_order, exl2__nfc_compose.
   owns:  nothing; the unpacked tables lie in the caller's arena. */
#ifndef EXL2__NFC_H
#define EXL2__NFC_H

#include "../../0_base/arena.h"
#include "../../0_base/bytes.h"
#include "nfc_table.h"
#include "nfkc.h"
#include "unicode.h"

#define EXL2__NFC_SLOTS 4096      /* more than twice the number of pairs */
#define EXL2__NFC_BLOCKS 1536     /* blocks of 128 code points; code points beyond them do not change */
#define EXL2__NFC_LONGEST EXL2__NFKC_LONGEST /* most code points that one becomes; 4 without compatibility mappings */
#define EXL2__NFC_PER_BYTE 6      /* most code points per UTF-8 byte of the original */

typedef struct exl2__nfc_pair {
    uint32_t code, first, second; /* code decomposes into first and second; second 0: into first only */
} exl2__nfc_pair;

typedef struct exl2__nfc {
    exl2__nfc_pair *pairs;        /* [EXL2__NFC_PAIRS] in order of code */
    uint16_t *slots;              /* [EXL2__NFC_SLOTS] hash table by (first, second): pair + 1 */
    uint32_t *classes;            /* [EXL2__NFC_RUNS][2] begin of a run; length << 8 | combining class */
    exl2__nfkc compatible;        /* used, too, if its codes are not NULL */
    uint8_t *touched;             /* bit per block: normalization may change or move some of its code points */
} exl2__nfc;

static inline uint32_t exl2__nfc_hash(uint32_t first, uint32_t second)
{
    return (first * 0x9E3779B1u ^ second * 0x85EBCA6Bu) >> 16;
}

static inline void exl2__nfc_touch(exl2__nfc *n, uint32_t code)
{
    n->touched[code >> 10] = (uint8_t)(n->touched[code >> 10] | 1u << (code >> 7 & 7));
}

/* Unpacks the tables; with a dry arena it only counts bytes. `compatible`: for NFKD and NFKC, too. */
EXL2__COLD
EXL2__PRIVATE void exl2__nfc_make(exl2__nfc *n, bool compatible, exl2__arena *arena)
{
    n->compatible = (exl2__nfkc){ 0 };
    if (compatible) {
        exl2__nfkc_make(&n->compatible, arena);
    }
    n->pairs = (exl2__nfc_pair *)exl2__arena_alloc(arena, EXL2__NFC_PAIRS * sizeof *n->pairs);
    n->slots = (uint16_t *)exl2__arena_alloc_zeroed(arena, EXL2__NFC_SLOTS * sizeof *n->slots);
    n->classes = (uint32_t *)exl2__arena_alloc(arena, EXL2__NFC_RUNS * 2 * sizeof *n->classes);
    n->touched = (uint8_t *)exl2__arena_alloc_zeroed(arena, EXL2__NFC_BLOCKS / 8);
    if (n->pairs == NULL) {
        return;
    }
    const uint8_t *at = exl2__nfc_decompositions;
    uint32_t code = 0, first = 0;
    for (uint32_t i = 0; i < EXL2__NFC_PAIRS; i++) {
        uint32_t kind = *at++;
        code += kind & 128 ? 1 : exl2__load_packed(&at);
        uint32_t step = exl2__load_packed(&at);
        first += step & 1 ? ~(step >> 1) : step >> 1;
        kind &= 127;
        exl2__nfc_pair pair = { code, first, kind < EXL2__COUNT(exl2__nfc_kinds) ? exl2__nfc_kinds[kind] : 0 };
        n->pairs[i] = pair;
        exl2__nfc_touch(n, code);
        if (kind < EXL2__NFC_EXCLUDED) {
            uint32_t slot = exl2__nfc_hash(first, pair.second) % EXL2__NFC_SLOTS;
            while (n->slots[slot]) {
                slot = (slot + 1) % EXL2__NFC_SLOTS;
            }
            n->slots[slot] = (uint16_t)(i + 1);
            exl2__nfc_touch(n, pair.second);
        }
    }
    at = exl2__nfc_classes;
    code = 0;
    for (uint32_t i = 0; i < EXL2__NFC_RUNS; i++) {
        code += exl2__load_packed(&at);
        n->classes[2 * i] = code;
        n->classes[2 * i + 1] = (uint32_t)at[0] << 8 | at[1];
        for (uint32_t end = code + at[0]; code < end; code++) {
            exl2__nfc_touch(n, code);
        }
        at += 2;
    }
    for (code = 0x1100; code < 0xD7A4; code = code == 0x1180 ? 0xAC00 : code + 128) { /* Hangul */
        exl2__nfc_touch(n, code);
    }
    exl2__nfc_touch(n, 0xD7A3);
    for (uint32_t i = 0; n->compatible.codes && i < EXL2__NFKC_COUNT; i++) {
        exl2__nfc_touch(n, n->compatible.codes[i]);
    }
}

static inline bool exl2__nfc_touched(const exl2__nfc *n, uint32_t code)
{
    return code < EXL2__NFC_BLOCKS * 128 && (n->touched[code >> 10] >> (code >> 7 & 7) & 1);
}

/* Canonical combining class; 0 for most code points. */
EXL2__NOINLINE
EXL2__PRIVATE uint32_t exl2__nfc_class(const exl2__nfc *n, uint32_t code)
{
    uint32_t low = 0, high = EXL2__NFC_RUNS;
    while (low < high) { /* the last run that begins at or before code is low - 1 */
        uint32_t middle = (low + high) / 2;
        if (n->classes[2 * middle] <= code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low && code - n->classes[2 * low - 2] < n->classes[2 * low - 1] >> 8 ? n->classes[2 * low - 1] & 255 : 0;
}

/* The pair into which `code` decomposes, or NULL. */
EXL2__NOINLINE
EXL2__PRIVATE const exl2__nfc_pair *exl2__nfc_find(const exl2__nfc *n, uint32_t code)
{
    uint32_t low = 0, high = EXL2__NFC_PAIRS;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (n->pairs[middle].code < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < EXL2__NFC_PAIRS && n->pairs[low].code == code ? &n->pairs[low] : NULL;
}

/* Writes the full decomposition of `code`, at most EXL2__NFC_LONGEST code points; returns their number. */
EXL2__NOINLINE
EXL2__PRIVATE uint32_t exl2__nfc_decompose(const exl2__nfc *n, uint32_t code, uint32_t *out)
{
    uint32_t tail[4], tails = 0, count = 0, s = code - 0xAC00;
    if (s < 11172) {
        out[0] = 0x1100 + s / 588;
        out[1] = 0x1161 + s % 588 / 28;
        out[2] = 0x11A7 + s % 28;
        return s % 28 ? 3 : 2;
    }
    for (const exl2__nfc_pair *p; (p = exl2__nfc_find(n, code)) != NULL && tails < 3;) {
        if (p->second) {
            tail[tails++] = p->second; /* a second one never decomposes further */
        }
        code = p->first;
    }
    tail[tails++] = code;
    while (tails) {
        uint32_t more = 1;
        code = tail[--tails];
        const uint32_t *compatible = exl2__nfkc_find(&n->compatible, code, &more);
        for (uint32_t i = 0; i < more && count < EXL2__NFC_LONGEST; i++) {
            out[count++] = compatible ? compatible[i] : code;
        }
    }
    return count;
}

/* The composition of two code points, or 0. */
static inline uint32_t exl2__nfc_together(const exl2__nfc *n, uint32_t first, uint32_t second)
{
    if (first - 0x1100 < 19 && second - 0x1161 < 21) {
        return 0xAC00 + ((first - 0x1100) * 21 + second - 0x1161) * 28;
    }
    if (first - 0xAC00 < 11172 && (first - 0xAC00) % 28 == 0 && second - 0x11A8 < 27) {
        return first + second - 0x11A7;
    }
    uint32_t slot = exl2__nfc_hash(first, second) % EXL2__NFC_SLOTS;
    for (; n->slots[slot]; slot = (slot + 1) % EXL2__NFC_SLOTS) {
        const exl2__nfc_pair *p = &n->pairs[n->slots[slot] - 1];
        if (p->first == first && p->second == second) {
            return p->code;
        }
    }
    return 0;
}

/* May text be cut before `code`? Yes, if its decomposition can neither move before nor compose with preceding text. */
EXL2__NOINLINE
EXL2__PRIVATE bool exl2__nfc_begins(const exl2__nfc *n, uint32_t code)
{
    uint32_t parts[EXL2__NFC_LONGEST];
    if (!exl2__nfc_touched(n, code) || code - 0xAC00 < 11172) {
        return true;
    }
    exl2__nfc_decompose(n, code, parts);
    if (exl2__nfc_class(n, parts[0]) || parts[0] - 0x1161 < 0x11C3 - 0x1161) {
        return false;
    }
    for (uint32_t i = 0; i < EXL2__NFC_EXCLUDED; i++) {
        if (exl2__nfc_kinds[i] == parts[0]) {
            return false;
        }
    }
    return true;
}

/* Size of the first stretch of text, which ends where text may be cut. *plain: the stretch is normalized already. */
static inline size_t exl2__nfc_stretch(const exl2__nfc *n, const char *text, size_t bytes, bool *plain)
{
    uint32_t code;
    size_t at = exl2__unicode_next(text, bytes, &code), length;
    *plain = !exl2__nfc_touched(n, code);
    for (; at < bytes; at += length) {
        length = exl2__unicode_next(text + at, bytes - at, &code);
        bool still = !exl2__nfc_touched(n, code);
        if (still != *plain || (!*plain && exl2__nfc_begins(n, code))) {
            break;
        }
    }
    if (*plain && at < bytes && !exl2__nfc_begins(n, code)) { /* the last one may compose with the next */
        size_t last = exl2__unicode_before(text, at);
        *plain = last > 0;
        for (at = last > 0 ? last : at; last == 0 && at < bytes; at += length) {
            length = exl2__unicode_next(text + at, bytes - at, &code);
            if (exl2__nfc_begins(n, code)) {
                break;
            }
        }
    }
    return at;
}

/* Sorts each run of code points with non-zero combining classes by class; the sort is stable. `other` has room for
   `count` code points. */
EXL2__PRIVATE void exl2__nfc_order(const exl2__nfc *n, uint32_t *codes, size_t count, uint32_t *other)
{
    for (size_t begin = 0, end; begin < count; begin = end + (end == begin)) {
        size_t starts[257] = { 0 };
        for (end = begin; end < count && exl2__nfc_class(n, codes[end]); end++) {
            starts[exl2__nfc_class(n, codes[end]) + 1]++;
        }
        for (uint32_t class = 1; class < 257 && end - begin > 1; class++) {
            starts[class] += starts[class - 1];
        }
        for (size_t i = begin; i < end && end - begin > 1; i++) {
            other[starts[exl2__nfc_class(n, codes[i])]++] = codes[i];
        }
        if (end - begin > 1) {
            memcpy(codes + begin, other, (end - begin) * sizeof *codes);
        }
    }
}

/* Composes in place, and returns the new number of code points. */
EXL2__PRIVATE size_t exl2__nfc_compose(const exl2__nfc *n, uint32_t *codes, size_t count)
{
    size_t starter = SIZE_MAX, used = 0;
    uint32_t before = 0; /* combining class of the last code point kept after the starter; 0: there is none */
    for (size_t i = 0; i < count; i++) {
        uint32_t class = exl2__nfc_class(n, codes[i]), joined = 0;
        bool next = starter != SIZE_MAX && used == starter + 1;
        if (starter != SIZE_MAX && (next || before < class)) {
            joined = exl2__nfc_together(n, codes[starter], codes[i]);
        }
        if (joined) {
            codes[starter] = joined;
            continue;
        }
        if (class == 0) {
            starter = used;
        }
        before = class;
        codes[used++] = codes[i];
    }
    return used;
}

#endif
