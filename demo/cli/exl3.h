/* exl3.h: what `exl2 info` says of a folder of EXL3, from the headers of its files.
   takes: a model folder.
   gives: exl3_summary, exl3_read, exl3_print, exl3_print_json. */
#ifndef DEMO_CLI_EXL3_H
#define DEMO_CLI_EXL3_H

#include "../common/json_out.h"

#include <stdbool.h>
#include <stdint.h>

#define EXL3_OTHERS 16u

typedef struct exl3_bits { /* of some matrices */
    uint64_t bits, weights;
} exl3_bits;

typedef struct exl3_summary {
    char version[32], bits[32], head_bits[32]; /* as config.json says; "" where it does not */
    exl3_bits layers, head, embedding;         /* with scales; padding counts as weights */
    uint32_t rates[17];                        /* matrices by 2 K: of 1.5 bits at 3 */
    uint32_t codebooks[3];                     /* matrices of 3INST, MCG, MUL1 */
    uint32_t matrices, other_count;            /* matrices of another kind */
    char others[EXL3_OTHERS][96];              /* names of the first ones */
} exl3_summary;

bool exl3_read(const char *folder, exl3_summary *out); /* false: it has no trellis, or cannot be read */
void exl3_print(const exl3_summary *s);
void exl3_print_json(json_out *j, const exl3_summary *s);

#endif
