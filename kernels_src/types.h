/* types.h: the words that host and kernels share; every *_args.h is made of these only.
   takes: nothing; compiles as C11 and as CUDA C without any header.
   gives: exl2k_u16, exl2k_u32, exl2k_u64, exl2k_f32.
   owns:  nothing.
   next:  matrix_args.h */
#ifndef EXL2K_TYPES_H
#define EXL2K_TYPES_H

typedef unsigned char exl2k_u8;
typedef unsigned short exl2k_u16;
typedef unsigned int exl2k_u32;
typedef unsigned long long exl2k_u64; /* also every device address */
typedef float exl2k_f32;

#endif
