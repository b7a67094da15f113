/* lower.h: converts code points to lower case, one at a time.
   takes: code points.
   gives: exl2__lower, exl2__lower_next, exl2__lower_holds, EXL2__LOWER_GROWTH. */
#ifndef EXL2__LOWER_H
#define EXL2__LOWER_H

#include "../../0_base/bytes.h"

#define EXL2__LOWER_GROWTH 2 /* most output bytes per input byte (U+023A) */

/* Generated from Lowercase of tokenizers 0.23.3, which converts each code point independently (so a sigma at the end of
   a word becomes U+03C3). A run is a sequence of code points with the same distance to their lower-case forms. It has
   three numbers: its begin minus the previous run's begin; 2 (count - 1), plus 1 when only every other code point
   belongs to it; twice the distance, plus 1 when the lower-case form has the lower number. A number has 7 bits per
   byte, low bits first; 128 is set when more bytes follow. ASCII and U+0130 are left out. */
static const uint8_t exl2__lower_runs[] = {
    192, 1, 44, 64, 24, 12, 64, 40, 47, 2, 50, 5, 2, 7, 15, 2, 17, 45, 2, 46, 0, 243, 1, 1, 5, 2, 8, 0, 164, 3, 1, 3,
    2, 4, 0, 156, 3, 1, 0, 2, 2, 2, 154, 3, 2, 0, 2, 3, 0, 158, 1, 1, 0, 148, 3, 1, 0, 150, 3, 1, 0, 2, 2, 0, 154, 3,
    1, 0, 158, 3, 2, 0, 166, 3, 1, 0, 162, 3, 1, 0, 2, 4, 0, 166, 3, 1, 0, 170, 3, 2, 0, 172, 3, 1, 5, 2, 6, 0, 180, 3,
    1, 0, 2, 2, 0, 180, 3, 3, 0, 2, 2, 0, 180, 3, 1, 0, 2, 2, 2, 178, 3, 2, 3, 2, 4, 0, 182, 3, 1, 0, 2, 4, 0, 2, 8, 0,
    4, 1, 0, 2, 2, 0, 4, 1, 0, 2, 2, 0, 4, 1, 17, 2, 19, 17, 2, 19, 0, 4, 1, 3, 2, 4, 0, 195, 1, 1, 0, 113, 1, 39, 2,
    40, 0, 133, 2, 2, 17, 2, 24, 0, 214, 168, 1, 1, 0, 2, 2, 0, 199, 2, 1, 0, 208, 168, 1, 3, 0, 2, 2, 0, 135, 3, 1, 0,
    138, 1, 1, 0, 142, 1, 1, 9, 2, 170, 2, 3, 2, 6, 0, 2, 9, 0, 232, 1, 7, 0, 76, 2, 4, 74, 4, 0, 128, 1, 2, 2, 126, 3,
    32, 64, 18, 16, 64, 44, 0, 16, 9, 23, 2, 28, 0, 121, 3, 0, 2, 2, 0, 15, 1, 0, 2, 3, 4, 133, 2, 3, 30, 160, 1, 16,
    62, 64, 80, 33, 2, 42, 53, 2, 54, 0, 30, 1, 13, 2, 15, 95, 2, 97, 74, 96, 239, 22, 74, 192, 113, 39, 0, 192, 113,
    6, 0, 192, 113, 211, 5, 158, 1, 160, 223, 4, 80, 10, 16, 153, 17, 0, 2, 7, 84, 129, 47, 45, 4, 129, 47, 195, 2,
    149, 1, 2, 158, 1, 0, 255, 118, 2, 95, 2, 104, 14, 17, 16, 10, 17, 16, 14, 17, 16, 14, 17, 16, 10, 17, 17, 7, 17,
    15, 14, 17, 32, 14, 17, 16, 14, 17, 16, 14, 17, 16, 2, 17, 2, 2, 149, 1, 2, 0, 19, 12, 6, 173, 1, 4, 0, 19, 12, 2,
    17, 2, 2, 201, 1, 14, 2, 17, 2, 2, 225, 1, 2, 0, 15, 12, 2, 129, 2, 2, 2, 253, 1, 2, 0, 19, 170, 2, 0, 187, 117, 4,
    0, 255, 130, 1, 1, 0, 141, 129, 1, 7, 0, 56, 46, 30, 32, 35, 0, 2, 179, 6, 50, 52, 202, 14, 94, 96, 96, 0, 2, 2, 0,
    239, 167, 1, 1, 0, 205, 59, 1, 0, 207, 167, 1, 3, 5, 2, 6, 0, 185, 168, 1, 1, 0, 251, 167, 1, 1, 0, 191, 168, 1, 1,
    0, 189, 168, 1, 2, 0, 2, 3, 0, 2, 9, 2, 255, 168, 1, 2, 99, 2, 107, 3, 2, 7, 0, 2, 206, 242, 1, 45, 2, 64, 27, 2,
    162, 1, 13, 2, 16, 61, 2, 71, 3, 2, 4, 0, 137, 168, 4, 1, 9, 2, 13, 0, 2, 2, 0, 209, 148, 5, 3, 3, 2, 6, 19, 2, 20,
    0, 137, 149, 5, 1, 0, 159, 149, 5, 1, 0, 151, 149, 5, 1, 0, 131, 149, 5, 1, 0, 137, 149, 5, 2, 0, 165, 148, 5, 1,
    0, 213, 148, 5, 1, 0, 171, 148, 5, 1, 0, 192, 14, 1, 15, 2, 16, 0, 97, 1, 0, 135, 149, 5, 1, 0, 241, 168, 4, 1, 3,
    2, 4, 0, 207, 149, 5, 1, 15, 2, 16, 0, 131, 153, 5, 25, 0, 2, 172, 174, 1, 50, 64, 223, 9, 78, 80, 176, 1, 70, 80,
    192, 1, 20, 78, 12, 28, 78, 16, 12, 78, 8, 2, 78, 236, 13, 100, 128, 1, 208, 1, 42, 64, 208, 22, 62, 64, 160, 171,
    1, 62, 64, 96, 48, 54, 224, 244, 1, 66, 68
};

/* A run: every `step`-th code point of begin .. begin + length is converted by adding `way`, modulo 2^32. */
typedef struct exl2__lower_run {
    const uint8_t *at;
    uint32_t begin, length, step, way;
} exl2__lower_run;

/* Reads the next run; a zeroed *r gives the first. false: there are no more. */
EXL2__COLD
EXL2__PRIVATE bool exl2__lower_next(exl2__lower_run *r)
{
    r->at = r->at ? r->at : exl2__lower_runs;
    if (r->at == exl2__lower_runs + sizeof exl2__lower_runs) {
        return false;
    }
    r->begin += exl2__load_packed(&r->at);
    uint32_t length = exl2__load_packed(&r->at), way = exl2__load_packed(&r->at);
    r->step = 1 + (length & 1);
    r->length = (length >> 1) * r->step;
    r->way = way & 1 ? 0 - (way >> 1) : way >> 1;
    return true;
}

static inline bool exl2__lower_holds(const exl2__lower_run *r, uint32_t code)
{
    return code - r->begin <= r->length && (code - r->begin) % r->step == 0;
}

/* The lower-case form, or `code` itself. U+0130 becomes two code points: 'i', and U+0307 in *more; else *more is 0. */
EXL2__COLD
EXL2__PRIVATE uint32_t exl2__lower(uint32_t code, uint32_t *more)
{
    exl2__lower_run run = { 0 };
    *more = code == 0x130 ? 0x307 : 0;
    if (code < 0x80 || code == 0x130) {
        return code == 0x130 ? 'i' : code >= 'A' && code <= 'Z' ? code | 32 : code;
    }
    while (exl2__lower_next(&run) && run.begin <= code) {
        if (exl2__lower_holds(&run, code)) {
            return code + run.way;
        }
    }
    return code;
}

#endif
