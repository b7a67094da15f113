/* gguf_types.h: the tensor types of GGUF: the size of a block, and how its numbers are decoded.
   takes: stored blocks.
   gives: exl2__gguf_types_find, exl2__gguf_types_read. */
#ifndef EXL2__GGUF_TYPES_H
#define EXL2__GGUF_TYPES_H

#include "../../0_base/bytes.h"
#include "../../0_base/half.h"

/* Every product below is exact in float (at most 24 bits), so compilers that contract or reorder it get the same value.
   A block of a quantized type has 32 or 256 numbers. In those with 16 bytes of 4-bit codes, the numbers i and 16 + i
   share a byte. */

EXL2__PRIVATE void exl2__gguf_types_f32(const uint8_t *p, float *out)
{
    out[0] = exl2__bits_float(exl2__load32(p));
}

EXL2__PRIVATE void exl2__gguf_types_f16(const uint8_t *p, float *out)
{
    out[0] = exl2__f16_to_f32(exl2__load16(p));
}

EXL2__PRIVATE void exl2__gguf_types_bf16(const uint8_t *p, float *out)
{
    out[0] = exl2__bf16_to_f32(exl2__load16(p));
}

/* f16 d, 16 bytes: d * (q - 8) */
EXL2__PRIVATE void exl2__gguf_types_q4_0(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p));
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)((p[2 + i] & 15) - 8);
        out[16 + i] = d * (float)((p[2 + i] >> 4) - 8);
    }
}

/* f16 d, f16 m, 16 bytes: d * q + m */
EXL2__PRIVATE void exl2__gguf_types_q4_1(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p)), m = exl2__f16_to_f32(exl2__load16(p + 2));
    for (int i = 0; i < 16; i++) {
        out[i] = d * (float)(p[4 + i] & 15) + m;
        out[16 + i] = d * (float)(p[4 + i] >> 4) + m;
    }
}

/* f16 d, u32 with the fifth bits, 16 bytes: d * (q - 16) */
EXL2__PRIVATE void exl2__gguf_types_q5_0(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p));
    uint32_t high = exl2__load32(p + 2);
    for (int i = 0; i < 16; i++) {
        int low_half = (p[6 + i] & 15) | (int)(high >> i & 1) << 4;
        int high_half = (p[6 + i] >> 4) | (int)(high >> (16 + i) & 1) << 4;
        out[i] = d * (float)(low_half - 16);
        out[16 + i] = d * (float)(high_half - 16);
    }
}

/* f16 d, f16 m, u32 with the fifth bits, 16 bytes: d * q + m */
EXL2__PRIVATE void exl2__gguf_types_q5_1(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p)), m = exl2__f16_to_f32(exl2__load16(p + 2));
    uint32_t high = exl2__load32(p + 4);
    for (int i = 0; i < 16; i++) {
        int low_half = (p[8 + i] & 15) | (int)(high >> i & 1) << 4;
        int high_half = (p[8 + i] >> 4) | (int)(high >> (16 + i) & 1) << 4;
        out[i] = d * (float)low_half + m;
        out[16 + i] = d * (float)high_half + m;
    }
}

/* f16 d, 32 signed bytes: d * q */
EXL2__PRIVATE void exl2__gguf_types_q8_0(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p));
    for (int i = 0; i < 32; i++) {
        out[i] = d * (float)(int8_t)p[2 + i];
    }
}

/* 16 bytes, each a scale (low nibble) and a min (high nibble) for 16 numbers; 64 bytes of 2-bit codes; f16 d; f16 dmin.
   Byte 32 h + i of the codes holds the numbers 128 h + i, + 32, + 64 and + 96, low bits first. */
EXL2__PRIVATE void exl2__gguf_types_q2_k(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p + 80)), dmin = exl2__f16_to_f32(exl2__load16(p + 82));
    for (int i = 0; i < 256; i++) {
        int scale = p[i / 16], code = p[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        out[i] = d * (float)(scale & 15) * (float)code - dmin * (float)(scale >> 4);
    }
}

/* 32 bytes of third bits (if the bit is not set, 4 is subtracted), 64 bytes of 2-bit codes as in Q2_K, 12 bytes of
   6-bit scales, f16 d. Scale s has its low 4 bits in nibble s / 8 of byte s % 8, its high 2 bits at bit 2 (s / 4) of
   byte 8 + s % 4. */
EXL2__PRIVATE void exl2__gguf_types_q3_k(const uint8_t *p, float *out)
{
    const uint8_t *scales = p + 96;
    float d = exl2__f16_to_f32(exl2__load16(p + 108));
    for (int i = 0; i < 256; i++) {
        int s = i / 16;
        int scale = (scales[s % 8] >> (s / 8 * 4) & 15) | (scales[8 + s % 4] >> (s / 4 * 2) & 3) << 4;
        int code = p[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        int high = p[i % 32] >> (i / 32) & 1;
        out[i] = d * (float)(scale - 32) * (float)(code - (high ? 0 : 4));
    }
}

/* 6-bit scale and min of run s (0..7) of 32 numbers, from the 12 bytes of scales in Q4_K and Q5_K. */
static inline void exl2__gguf_types_k_scale(const uint8_t *scales, int s, int *scale, int *min)
{
    if (s < 4) {
        *scale = scales[s] & 63;
        *min = scales[s + 4] & 63;
    } else {
        *scale = (scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4;
        *min = (scales[s + 4] >> 4) | (scales[s] >> 6) << 4;
    }
}

/* f16 d, f16 dmin, 12 bytes of scales, 128 bytes of codes. Byte 32 h + i of the codes holds the numbers 64 h + i (low
   nibble) and 64 h + 32 + i. */
EXL2__PRIVATE void exl2__gguf_types_q4_k(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p)), dmin = exl2__f16_to_f32(exl2__load16(p + 2));
    for (int s = 0; s < 8; s++) {
        int scale, min;
        exl2__gguf_types_k_scale(p + 4, s, &scale, &min);
        float step = d * (float)scale, offset = dmin * (float)min;
        for (int i = 0; i < 32; i++) {
            out[32 * s + i] = step * (float)(p[16 + s / 2 * 32 + i] >> (s % 2 * 4) & 15) - offset;
        }
    }
}

/* As Q4_K, with 32 bytes of fifth bits (run s: bit s of byte i) between the scales and the codes. */
EXL2__PRIVATE void exl2__gguf_types_q5_k(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p)), dmin = exl2__f16_to_f32(exl2__load16(p + 2));
    for (int s = 0; s < 8; s++) {
        int scale, min;
        exl2__gguf_types_k_scale(p + 4, s, &scale, &min);
        float step = d * (float)scale, offset = dmin * (float)min;
        for (int i = 0; i < 32; i++) {
            int code = (p[48 + s / 2 * 32 + i] >> (s % 2 * 4) & 15) | (p[16 + i] >> s & 1) << 4;
            out[32 * s + i] = step * (float)code - offset;
        }
    }
}

/* 128 bytes with the low 4 bits of the codes (byte 64 h + i: the numbers 128 h + i and 128 h + 64 + i), 64 bytes with
   the high 2 bits, ordered as the codes of Q2_K, 16 signed scales, f16 d. */
EXL2__PRIVATE void exl2__gguf_types_q6_k(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p + 208));
    for (int i = 0; i < 256; i++) {
        int low = p[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
        int high = p[128 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
        out[i] = d * (float)(int8_t)p[192 + i / 16] * (float)((low | high << 4) - 32);
    }
}

static inline float exl2__gguf_types_iq4(uint32_t code)
{
    static const int8_t values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    return (float)values[code & 15];
}

/* f16 d, 16 bytes: d * value of the code */
EXL2__PRIVATE void exl2__gguf_types_iq4_nl(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p));
    for (int i = 0; i < 16; i++) {
        out[i] = d * exl2__gguf_types_iq4(p[2 + i]);
        out[16 + i] = d * exl2__gguf_types_iq4(p[2 + i] >> 4);
    }
}

/* f16 d, u16 with the high 2 bits of 8 scales, 4 bytes with their low 4 bits, 8 runs of 16 bytes as in IQ4_NL. */
EXL2__PRIVATE void exl2__gguf_types_iq4_xs(const uint8_t *p, float *out)
{
    float d = exl2__f16_to_f32(exl2__load16(p));
    int high = exl2__load16(p + 2);
    for (int s = 0; s < 8; s++) {
        int scale = (p[4 + s / 2] >> (s % 2 * 4) & 15) | (high >> (2 * s) & 3) << 4;
        float step = d * (float)(scale - 32);
        for (int i = 0; i < 16; i++) {
            uint32_t code = p[8 + 16 * s + i];
            out[32 * s + i] = step * exl2__gguf_types_iq4(code);
            out[32 * s + 16 + i] = step * exl2__gguf_types_iq4(code >> 4);
        }
    }
}

/* u8 e: scale 2^(e - 128), half of the format's own, as the values below are doubled; 16 bytes of E2M1 codes. A scale
   of 2^-128 is a subnormal number, so the product is exact all the same. */
EXL2__PRIVATE void exl2__gguf_types_mxfp4(const uint8_t *p, float *out)
{
    static const int8_t values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    float scale = exl2__bits_float(p[0] < 2 ? 0x00200000u << p[0] : (uint32_t)(p[0] - 1) << 23);
    for (int i = 0; i < 16; i++) {
        out[i] = scale * (float)values[p[1 + i] & 15];
        out[16 + i] = scale * (float)values[p[1 + i] >> 4];
    }
}

typedef struct exl2__gguf_type {
    uint32_t id;           /* ggml_type, as stored */
    uint32_t items, bytes; /* numbers and bytes of a block */
    const char *name;
    void (*read)(const uint8_t *block, float *out); /* NULL: not supported; the name is for messages */
} exl2__gguf_type;

#define EXL2__GGUF_TYPES_ITEMS_MAX 256u /* numbers in the largest block */

/* NULL: no such type. */
EXL2__PRIVATE const exl2__gguf_type *exl2__gguf_types_find(uint32_t id)
{
    static const exl2__gguf_type types[] = {
        { 0, 1, 4, "F32", exl2__gguf_types_f32 },
        { 1, 1, 2, "F16", exl2__gguf_types_f16 },
        { 2, 32, 18, "Q4_0", exl2__gguf_types_q4_0 },
        { 3, 32, 20, "Q4_1", exl2__gguf_types_q4_1 },
        { 6, 32, 22, "Q5_0", exl2__gguf_types_q5_0 },
        { 7, 32, 24, "Q5_1", exl2__gguf_types_q5_1 },
        { 8, 32, 34, "Q8_0", exl2__gguf_types_q8_0 },
        { 10, 256, 84, "Q2_K", exl2__gguf_types_q2_k },
        { 11, 256, 110, "Q3_K", exl2__gguf_types_q3_k },
        { 12, 256, 144, "Q4_K", exl2__gguf_types_q4_k },
        { 13, 256, 176, "Q5_K", exl2__gguf_types_q5_k },
        { 14, 256, 210, "Q6_K", exl2__gguf_types_q6_k },
        { 16, 256, 66, "IQ2_XXS", NULL },
        { 17, 256, 74, "IQ2_XS", NULL },
        { 18, 256, 98, "IQ3_XXS", NULL },
        { 19, 256, 50, "IQ1_S", NULL },
        { 20, 32, 18, "IQ4_NL", exl2__gguf_types_iq4_nl },
        { 21, 256, 110, "IQ3_S", NULL },
        { 22, 256, 82, "IQ2_S", NULL },
        { 23, 256, 136, "IQ4_XS", exl2__gguf_types_iq4_xs },
        { 24, 1, 1, "I8", NULL },
        { 25, 1, 2, "I16", NULL },
        { 26, 1, 4, "I32", NULL },
        { 27, 1, 8, "I64", NULL },
        { 28, 1, 8, "F64", NULL },
        { 29, 256, 56, "IQ1_M", NULL },
        { 30, 1, 2, "BF16", exl2__gguf_types_bf16 },
        { 34, 256, 54, "TQ1_0", NULL },
        { 35, 256, 66, "TQ2_0", NULL },
        { 39, 32, 17, "MXFP4", exl2__gguf_types_mxfp4 },
        { 40, 64, 36, "NVFP4", NULL },
    };
    for (size_t i = 0; i < EXL2__COUNT(types); i++) {
        if (types[i].id == id) {
            return &types[i];
        }
    }
    return NULL;
}

/* Decodes `items` numbers, a multiple of the type's block, from stored blocks. */
EXL2__PRIVATE void exl2__gguf_types_read(const exl2__gguf_type *type, const uint8_t *blocks, uint64_t items, float *out)
{
    for (uint64_t done = 0; done < items; done += type->items) {
        type->read(blocks, out + done);
        blocks += type->bytes;
    }
}

#endif
