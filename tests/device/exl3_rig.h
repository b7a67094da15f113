/* exl3_rig.h: random EXL3 matrices on a GPU, and products with them in double, for the programs that test EXL3 there.
   takes: rig.h; `rotate`, the loaded module exl3_rotate.cu, whose decoder gives the weights of the reference.
   gives: take, random_bits, uniform; matrix, matrix_random, matrix_open, matrix_close, matrix_part; multiply. */
#ifndef EXL3_RIG_H
#define EXL3_RIG_H

#include "private/bytes.h"
#include "private/half.h"
#include "private/cuda_exl3_plan.h"
#include "rig.h"

#include <math.h>

static rig_module rotate;
static uint64_t random_state = 0x9E3779B97F4A7C15u;

static uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20);
}

static float uniform(void) { return (float)(random_bits() & 0xFFFFFF) * (2.0f / 0x1000000) - 1.0f; }

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        printf("out of memory\n");
        exit(1);
    }
    return memory;
}

/* ---- one matrix of one part ---- */

typedef struct matrix {
    uint32_t in, out, columns, rate, book; /* in, out: with padding */
    uint16_t *words, *suh, *svh;
    float *bias;        /* [columns] or NULL */
    uint16_t *inner;    /* [in, out] as decoded on the GPU */
    rig_buffer trellis, suh_at, svh_at, bias_at;
} matrix;

static size_t matrix_words(const matrix *m) { return (size_t)m->in / 16 * (m->out / 16) * m->rate * 8; }

/* Uploads the matrix and decodes it. */
static void matrix_open(matrix *m)
{
    m->trellis = rig_buffer_of(m->words, matrix_words(m) * 2);
    m->suh_at = rig_buffer_of(m->suh, m->in * 2u);
    m->svh_at = rig_buffer_of(m->svh, m->out * 2u);
    m->bias_at = m->bias ? rig_buffer_of(m->bias, m->columns * sizeof(float)) : (rig_buffer){ 0, 0 };
    rig_buffer inner = rig_buffer_make((uint64_t)m->in * m->out * 2);
    exl2k_exl3_dump_args a = { .trellis = m->trellis.address, .out = inner.address, .columns = m->out,
                               .rate = m->rate, .book = m->book };
    rig_launch(&rotate, "exl2k_exl3_dump", m->in / 16, m->out / 128, EXL2K_EXL3_THREADS, 0, &a, sizeof a);
    m->inner = take((size_t)m->in * m->out, 2);
    rig_download(inner, 0, m->inner, (size_t)m->in * m->out * 2);
    rig_buffer_free(&inner);
}

static void matrix_close(matrix *m)
{
    rig_buffer_free(&m->trellis);
    rig_buffer_free(&m->suh_at);
    rig_buffer_free(&m->svh_at);
    rig_buffer_free(&m->bias_at);
    free(m->words);
    free(m->suh);
    free(m->svh);
    free(m->bias);
    free(m->inner);
    *m = (matrix){ 0 };
}

/* A random matrix: any words are a valid trellis. Outputs have about the size of the inputs. */
static matrix matrix_random(uint32_t in, uint32_t columns, uint32_t rate, uint32_t book, bool bias)
{
    matrix m = { .in = (uint32_t)exl2__align_up(in, 128), .out = (uint32_t)exl2__align_up(columns, 128),
                 .columns = columns, .rate = rate, .book = book };
    m.words = take(matrix_words(&m), 2);
    m.suh = take(m.in, 2);
    m.svh = take(m.out, 2);
    for (size_t i = 0; i < matrix_words(&m); i++) {
        m.words[i] = (uint16_t)random_bits();
    }
    for (uint32_t i = 0; i < m.in; i++) {
        m.suh[i] = exl2__f32_to_f16((uniform() + (uniform() < 0 ? -1.5f : 1.5f)) / sqrtf((float)in));
    }
    for (uint32_t i = 0; i < m.out; i++) { /* also in the padding, which must not matter */
        m.svh[i] = exl2__f32_to_f16(random_bits() % 50 ? uniform() + (uniform() < 0 ? -1.5f : 1.5f) : 0.0f);
    }
    m.bias = bias ? take(columns, sizeof(float)) : NULL;
    for (uint32_t i = 0; bias && i < columns; i++) {
        m.bias[i] = uniform();
    }
    matrix_open(&m);
    return m;
}

static exl2k_exl3_part matrix_part(const matrix *m, uint32_t column)
{
    return (exl2k_exl3_part){ .trellis = m->trellis.address, .suh = m->suh_at.address, .svh = m->svh_at.address,
                              .bias = m->bias_at.address, .out = m->out, .row_tiles = m->out / 16,
                              .columns = m->columns, .column = column, .rate = m->rate, .book = m->book };
}

/* ---- the reference ---- */

static void hadamard(double *v, uint32_t count)
{
    for (uint32_t first = 0; first < count; first += 128) {
        double *x = v + first;
        for (uint32_t h = 1; h < 128; h *= 2) {
            for (uint32_t i = 0; i < 128; i++) {
                if (!(i & h)) {
                    double a = x[i], b = x[i + h];
                    x[i] = a + b;
                    x[i + h] = a - b;
                }
            }
        }
        for (uint32_t i = 0; i < 128; i++) {
            x[i] /= sqrt(128.0);
        }
    }
}

/* y[columns] = x[in] times the matrix, with its bias. */
static void multiply(double *y, const matrix *m, const uint16_t *x, uint32_t in)
{
    double *turned = take(m->in, sizeof(double)), *sums = take(m->out, sizeof(double));
    for (uint32_t i = 0; i < in; i++) {
        turned[i] = (double)exl2__f16_to_f32(x[i]) * (double)exl2__f16_to_f32(m->suh[i]);
    }
    hadamard(turned, m->in);
    for (uint32_t i = 0; i < m->in; i++) {
        for (uint32_t n = 0; n < m->out; n++) {
            sums[n] += turned[i] * (double)exl2__f16_to_f32(m->inner[(size_t)i * m->out + n]);
        }
    }
    hadamard(sums, m->out);
    for (uint32_t n = 0; n < m->columns; n++) {
        y[n] = sums[n] * (double)exl2__f16_to_f32(m->svh[n]) + (m->bias ? (double)m->bias[n] : 0);
    }
    free(turned);
    free(sums);
}

#endif
