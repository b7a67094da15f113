/* probe_args.h: arguments of the kernel that measures the bandwidth of device memory.
   takes: types.h.
   gives: exl2k_probe_args. */
#ifndef EXL2K_PROBE_ARGS_H
#define EXL2K_PROBE_ARGS_H

#include "types.h"

typedef struct exl2k_probe_args {
    exl2k_u64 from; /* `words` words of 16 bytes */
    exl2k_u64 to;   /* 4 bytes, written only if the sum equals `want` */
    exl2k_u64 words;
    exl2k_u32 want; /* compared with the sum, so that the compiler cannot drop the loads */
    exl2k_u32 unused;
} exl2k_probe_args;

#endif
