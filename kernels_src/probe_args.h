/* probe_args.h: arguments of the bandwidth probe.
   takes: types.h.
   gives: exl2k_probe_args.
   owns:  nothing.
   next:  probe.cu */
#ifndef EXL2K_PROBE_ARGS_H
#define EXL2K_PROBE_ARGS_H

#include "types.h"

typedef struct exl2k_probe_args {
    exl2k_u64 from;  /* `words` 16-byte words */
    exl2k_u64 to;    /* 4 bytes, written only if the sum says so */
    exl2k_u64 words;
    exl2k_u32 want;  /* the sum that is written; it keeps the compiler from dropping the loads */
    exl2k_u32 unused;
} exl2k_probe_args;

#endif
