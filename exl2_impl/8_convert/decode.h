/* decode.h: the FP16 weights that the codes of a matrix stand for, which are exact.
   takes: a part of the CPU backend with codes.
   gives: exl2__decode, exl2__decode_part. */
#ifndef EXL2__DECODE_H
#define EXL2__DECODE_H

#include "../3_backend/cpu/cpu_matrix.h"
#include "tasks.h"

typedef struct exl2__decode {
    const exl2__cpu_part *part;
    uint16_t *to; /* [strips, in, 32] in the order of the inputs */
} exl2__decode;

/* The words that hold the codes of a packed row of a strip. */
EXL2__PRIVATE void exl2__decode_words(const exl2__cpu_part *p, uint32_t strip, const exl2__cpu_block *block,
                                      uint32_t row, uint32_t words[EXL2__CPU_STRIP])
{
    const uint32_t *line = exl2__cpu_matrix_line(p, strip, block->line) + strip % 2 * EXL2__CPU_STRIP;
    uint32_t fields = exl2__cpu_matrix_fields(block->bits), pitch = 2 * exl2__cpu_matrix_pitch(p, strip);
    if (row < fields * block->bits) {
        memcpy(words, line + row / fields * pitch, EXL2__CPU_STRIP * sizeof *words);
        return;
    }
    memset(words, 0, EXL2__CPU_STRIP * sizeof *words);
    for (uint32_t w = 0; w < block->bits; w++, line += pitch) { /* two codes more lie in the top bits of all words */
        for (uint32_t n = 0; n < EXL2__CPU_STRIP; n++) {
            words[n] = words[n] >> 2 | (line[n] & 0xC0000000u);
        }
    }
}

/* Task: one strip. What lies beyond the outputs is 0. */
EXL2__PRIVATE void exl2__decode_strip(void *arg, uint32_t strip)
{
    const exl2__decode *job = (const exl2__decode *)arg;
    const exl2__cpu_part *p = job->part;
    uint32_t columns = exl2__min32(p->out - strip * EXL2__CPU_STRIP, EXL2__CPU_STRIP);
    uint16_t *to = job->to + (size_t)strip * p->in * EXL2__CPU_STRIP;
    float scale[EXL2__CPU_STRIP] = { 0 }, zero[EXL2__CPU_STRIP] = { 0 };
    for (uint32_t i = 0; i < p->in; i++) {
        const exl2__cpu_block *block = &p->block[i / EXL2__CPU_BLOCK];
        uint32_t words[EXL2__CPU_STRIP], bits = block->bits, half = 1u << (bits - 1);
        uint32_t bit = exl2__cpu_matrix_bit(bits, i % EXL2__CPU_BLOCK), flip = bit + bits == 32 ? half : 0;
        uint16_t *row = to + (size_t)p->order[i] * EXL2__CPU_STRIP;
        for (uint32_t n = 0; i % EXL2__CPU_BLOCK == 0 && n < columns; n++) {
            uint32_t column = strip * EXL2__CPU_STRIP + n;
            bool affine = exl2__cpu_matrix_is_affine(p->source);
            scale[n] = exl2__cpu_matrix_scale(p, i / EXL2__CPU_BLOCK, 0, column);
            zero[n] = affine ? exl2__cpu_matrix_scale(p, i / EXL2__CPU_BLOCK, 1, column) : 0;
        }
        exl2__decode_words(p, strip, block, i % EXL2__CPU_BLOCK, words);
        for (uint32_t n = 0; n < columns; n++) {
            int32_t code = (int32_t)((words[n] >> bit & (2 * half - 1)) ^ flip) - (int32_t)half;
            row[n] = exl2__f32_to_f16(((float)code + zero[n]) * scale[n]);
        }
        memset(row + columns, 0, (EXL2__CPU_STRIP - columns) * sizeof *row);
    }
}

/* to [strips, in, 32]: the weights of a part with codes. */
EXL2__PRIVATE void exl2__decode_part(const exl2__ctx *c, const exl2__cpu_part *part, uint16_t *to)
{
    exl2__decode job = { part, to };
    exl2__tasks_run(c, part->strips, exl2__decode_strip, &job);
}

#endif
