/* simd.h: the compiler's headers of intrinsics, which are large: only files with vectors include this one.
   takes: EXL2__X86_SIMD, EXL2__NEON_SIMD.
   gives: the intrinsics of x86 or of ARM. */
#ifndef EXL2__SIMD_H
#define EXL2__SIMD_H

#include "config.h"

#if EXL2__X86_SIMD && !EXL2__MSVC /* config.h has included those of MSVC */
/* The header has functions that call malloc and free, which applications may have defined as macros. */
#pragma push_macro("malloc")
#pragma push_macro("free")
#undef malloc
#undef free
#include <immintrin.h>
#if defined(__clang__) && defined(_MSC_VER) /* immintrin.h of clang-cl before 20 leaves out what /arch does not name */
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <f16cintrin.h>
#include <fmaintrin.h>
#include <avx512fintrin.h>
#include <avx512bwintrin.h>
#include <avx512dqintrin.h>
#include <avx512vlintrin.h>
#include <avx512vnniintrin.h>
#include <avx512vbmiintrin.h>
#include <avx512vbmi2intrin.h>
#if EXL2__AVX_VNNI
#include <avxvnniintrin.h>
#endif
#endif
#pragma pop_macro("free")
#pragma pop_macro("malloc")
#endif

#if EXL2__NEON_SIMD
#include <arm_neon.h>
#endif

#endif
