/* types.h: the integer and float types that the backend and the kernels share. Every *_args.h uses only these types.
   takes: nothing; compiles as C11 and as CUDA C++ without any header.
   gives: exl2k_u8, exl2k_u16, exl2k_u32, exl2k_u64, exl2k_f32; EXL2K_ACT_*. */
#ifndef EXL2K_TYPES_H
#define EXL2K_TYPES_H

typedef unsigned char exl2k_u8;
typedef unsigned short exl2k_u16;
typedef unsigned int exl2k_u32;
typedef unsigned long long exl2k_u64; /* also the type of every device address */
typedef float exl2k_f32;

/* Activations of the MLP. */
enum { EXL2K_ACT_SILU = 1, EXL2K_ACT_GELU_TANH, EXL2K_ACT_GELU, EXL2K_ACT_RELU_SQUARED, EXL2K_ACT_CLAMPED };

#endif
