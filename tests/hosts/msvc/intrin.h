/* intrin.h: what exl2.h uses of the intrinsics of MSVC; vectors are those of clang */
#ifndef MSVC_INTRIN_H
#define MSVC_INTRIN_H

#if defined(_M_X64)
#include <immintrin.h>
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
#endif

void __yield(void);
void __cpuidex(int out[4], int leaf, int subleaf);
long _InterlockedOr(volatile long *at, long value);
__int64 _InterlockedOr64(volatile __int64 *at, __int64 value);
long _InterlockedExchange(volatile long *at, long value);
unsigned char _BitScanForward64(unsigned long *bit, unsigned __int64 word);

#endif
