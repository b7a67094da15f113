/* cpu_fields.h: masks and scales of the fields of a block (see FIELDS in cpu_matrix.h).
   takes: nothing.
   gives: exl2__cpu_fields, exl2__cpu_fields_of. */
#ifndef EXL2__CPU_FIELDS_H
#define EXL2__CPU_FIELDS_H

#include "cpu_matrix.h"

typedef struct exl2__cpu_fields {
    uint32_t mask[18];             /* of the fields of a word; 16, 17: of rows 30, 31 in the word of the top bits */
    uint32_t fields;               /* of a word */
    float scale[EXL2__CPU_BLOCK];  /* 2^-p for a row whose code lies at bit p */
    float centre[EXL2__CPU_BLOCK]; /* -2^(b-1) where the field is unsigned, else 0 */
} exl2__cpu_fields;

#define EXL2__CPU_BITS(p, b) (((1u << (b)) - 1u) << (p))
#define EXL2__CPU_SHRINK(p) (1.0f / (float)(1u << (p)))
#define EXL2__CPU_TIMES2(...) __VA_ARGS__, __VA_ARGS__
#define EXL2__CPU_TIMES4(...) EXL2__CPU_TIMES2(EXL2__CPU_TIMES2(__VA_ARGS__))
#define EXL2__CPU_TIMES8(...) EXL2__CPU_TIMES4(__VA_ARGS__), EXL2__CPU_TIMES4(__VA_ARGS__)
#define M EXL2__CPU_BITS
#define S EXL2__CPU_SHRINK

static const exl2__cpu_fields exl2__cpu_fields_of[9] = {
    [2] = { { M(0, 2), M(2, 2), M(4, 2), M(6, 2), M(8, 2), M(10, 2), M(12, 2), M(14, 2), M(16, 2), M(18, 2), M(20, 2),
              M(22, 2), M(24, 2), M(26, 2), M(28, 2), M(30, 2) }, 16,
            { EXL2__CPU_TIMES2(S(0), S(2), S(4), S(6), S(8), S(10), S(12), S(14), S(16), S(18), S(20), S(22), S(24),
                               S(26), S(28), S(30)) },
            { EXL2__CPU_TIMES2(-2, -2, -2, -2, -2, -2, -2, -2, -2, -2, -2, -2, -2, -2, -2, 0) } },
    [3] = { { M(0, 3), M(3, 3), M(6, 3), M(9, 3), M(12, 3), M(15, 3), M(18, 3), M(21, 3), M(24, 3), M(27, 3),
              [16] = M(26, 3), M(29, 3) }, 10,
            { EXL2__CPU_TIMES2(S(0), S(3), S(6), S(9), S(12), S(15), S(18), S(21), S(24), S(27)),
              S(0), S(3), S(6), S(9), S(12), S(15), S(18), S(21), S(24), S(27), S(26), S(29) },
            { EXL2__CPU_TIMES2(-4, -4, -4, -4, -4, -4, -4, -4, -4, -4), EXL2__CPU_TIMES2(-4, -4, -4, -4, -4), -4, 0 } },
    [4] = { { M(0, 4), M(4, 4), M(8, 4), M(12, 4), M(16, 4), M(20, 4), M(24, 4), M(28, 4) }, 8,
            { EXL2__CPU_TIMES4(S(0), S(4), S(8), S(12), S(16), S(20), S(24), S(28)) },
            { EXL2__CPU_TIMES4(-8, -8, -8, -8, -8, -8, -8, 0) } },
    [5] = { { M(0, 5), M(5, 5), M(10, 5), M(15, 5), M(20, 5), M(25, 5), [16] = M(22, 5), M(27, 5) }, 6,
            { EXL2__CPU_TIMES4(S(0), S(5), S(10), S(15), S(20), S(25)),
              S(0), S(5), S(10), S(15), S(20), S(25), S(22), S(27) },
            { EXL2__CPU_TIMES8(-16, -16, -16), EXL2__CPU_TIMES2(-16, -16, -16), -16, 0 } },
    [6] = { { M(0, 6), M(6, 6), M(12, 6), M(18, 6), M(24, 6), [16] = M(20, 6), M(26, 6) }, 5,
            { EXL2__CPU_TIMES4(S(0), S(6), S(12), S(18), S(24)),
              EXL2__CPU_TIMES2(S(0), S(6), S(12), S(18), S(24)), S(20), S(26) },
            { EXL2__CPU_TIMES8(-32, -32, -32), EXL2__CPU_TIMES2(-32, -32, -32), -32, 0 } },
    [8] = { { M(0, 8), M(8, 8), M(16, 8), M(24, 8) }, 4,
            { EXL2__CPU_TIMES8(S(0), S(8), S(16), S(24)) },
            { EXL2__CPU_TIMES8(-128, -128, -128, 0) } },
};

#undef M
#undef S

#endif
