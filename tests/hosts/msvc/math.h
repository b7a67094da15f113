/* math.h: what exl2.h uses of the C library */
#ifndef MSVC_MATH_H
#define MSVC_MATH_H

double ceil(double x);
double copysign(double x, double y);
double cos(double x);
double erf(double x);
double exp(double x);
double exp2(double x);
double fabs(double x);
double floor(double x);
double fmod(double x, double y);
double fma(double x, double y, double z);
float fmaf(float x, float y, float z);
double log(double x);
double log2(double x);
double pow(double x, double y);
double sin(double x);
double sqrt(double x);
float sqrtf(float x);
double tanh(double x);

/* Neither is a constant: newer Windows SDKs compute NAN by a call. */
static inline float __ucrt_int_to_float(int bits)
{
    union {
        int bits;
        float value;
    } both = { bits };
    return both.value;
}
#define INFINITY __ucrt_int_to_float(0x7F800000)
#define NAN __ucrt_int_to_float(0x7FC00000)

#endif
