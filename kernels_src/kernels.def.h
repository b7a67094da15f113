/* kernels.def.h: THE LIST OF KERNELS: host tables, builds and checks are made from it.
   takes: nothing.
   gives: EXL2__KERNELS(X): X(function, module file, argument struct, dynamic shared memory).
   owns:  nothing.
   next:  gemv_args.h

   Dynamic shared memory: NONE, or BUDGET (the host computes it, up to the device's shared_bytes_max). */
#ifndef EXL2K_KERNELS_DEF_H
#define EXL2K_KERNELS_DEF_H

#define EXL2__KERNELS(X)                                                                     \
    X(exl2k_probe_read, "probe.cu", exl2k_probe_args, NONE)                                  \
    X(exl2k_probe_copy, "probe.cu", exl2k_probe_args, NONE)                                  \
    X(exl2k_shuffle_codes, "shuffle.cu", exl2k_shuffle_args, NONE)                           \
    X(exl2k_shuffle_dense, "shuffle.cu", exl2k_shuffle_args, NONE)                           \
    X(exl2k_shuffle_scales, "shuffle.cu", exl2k_shuffle_args, NONE)                          \
    X(exl2k_gemv1_store, "gemv.cu", exl2k_gemv_args, BUDGET)                                 \
    X(exl2k_gemv1_residual, "gemv.cu", exl2k_gemv_args, BUDGET)                              \
    X(exl2k_gemv1_act, "gemv.cu", exl2k_gemv_args, BUDGET)                                   \
    X(exl2k_gemv1_head, "gemv.cu", exl2k_gemv_args, BUDGET)                                  \
    X(exl2k_gemv8_store, "gemv.cu", exl2k_gemv_args, BUDGET)                                 \
    X(exl2k_gemv8_residual, "gemv.cu", exl2k_gemv_args, BUDGET)                              \
    X(exl2k_gemv8_act, "gemv.cu", exl2k_gemv_args, BUDGET)                                   \
    X(exl2k_gemv8_head, "gemv.cu", exl2k_gemv_args, BUDGET)

#endif
