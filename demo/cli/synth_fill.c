/* synth_fill.c: see synth_fill.h.
   takes: a tensor of the plan.
   gives: what synth_fill.h declares.
   owns:  one chunk, during a call. */
#include "synth_fill.h"

#include "../../exl2_impl/0_base/half.h"
#include "../common/memory.h"

#include <math.h>
#include <stdlib.h>

#define CHUNK_BYTES (1u << 20) /* the longest permutation and row of zeros fit, too */

typedef struct sink {
    bool (*put)(void *user, const void *data, size_t bytes);
    void *user;
    uint64_t *chunk; /* [CHUNK_BYTES] */
} sink;

/* splitmix64 of a counter, so any word of any tensor can be computed in any order. */
static uint64_t random_word(uint64_t seed, uint64_t counter)
{
    uint64_t x = (seed + 1) * 0xD1342543DE82EF95u + counter * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Approximately normal, mean 0, deviation 1: the scaled sum of four uniform numbers (variance 1/12 each). */
static float random_normal(uint64_t seed, uint64_t counter)
{
    uint64_t word = random_word(seed, counter);
    uint64_t sum = (word & 0xFFFF) + (word >> 16 & 0xFFFF) + (word >> 32 & 0xFFFF) + (word >> 48);
    return ((float)sum * (1.0f / 65536.0f) - 2.0f) * 1.7320508f;
}

static bool put(const sink *s, const void *data, size_t bytes)
{
    return s->put(s->user, data, bytes);
}

static bool put_words(sink *s, const synth_tensor *t)
{
    uint64_t counter = 0;
    for (uint64_t left = t->bytes; left > 0;) {
        size_t bytes = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        for (size_t i = 0; i < (bytes + 7) / 8; i++) {
            s->chunk[i] = random_word(t->seed, counter++);
        }
        if (!put(s, s->chunk, bytes)) {
            return false;
        }
        left -= bytes;
    }
    return true;
}

static bool put_normals(sink *s, const synth_tensor *t)
{
    uint16_t *halves = (uint16_t *)(void *)s->chunk;
    uint64_t counter = 0;
    for (uint64_t left = t->bytes / 2; left > 0;) {
        size_t count = left < CHUNK_BYTES / 2 ? (size_t)left : CHUNK_BYTES / 2;
        for (size_t i = 0; i < count; i++) {
            halves[i] = exl2__f32_to_f16(t->mean + t->deviation * random_normal(t->seed, counter++));
        }
        if (!put(s, halves, count * 2)) {
            return false;
        }
        left -= count;
    }
    return true;
}

/* A uniform code of b bits has the deviation sqrt((4^b - 1) / 12). The scale of a column is
   scale_max * (1..16)^2 / 256, typically scale_max * 110 / 256. With these scale_max values the weights have a
   deviation of about 0.02. */
static bool put_group_tables(sink *s, const synth_tensor *t)
{
    synth_group groups[SYNTH_GROUPS_MAX];
    uint16_t out[SYNTH_GROUPS_MAX * 2];
    uint32_t count = synth_groups(t->mix, t->rows, groups);
    for (uint32_t g = 0; g < count; g++) {
        if (t->fill == SYNTH_GROUPS) {
            out[g * 2] = (uint16_t)groups[g].bits;
            out[g * 2 + 1] = (uint16_t)groups[g].word_row;
        } else {
            double code_deviation = sqrt((pow(4, groups[g].bits) - 1) / 12);
            out[g] = exl2__f32_to_f16((float)(0.02 / code_deviation * 256 / 110));
        }
    }
    return put(s, out, (size_t)t->bytes);
}

static bool put_permutation(sink *s, const synth_tensor *t)
{
    int32_t *order = (int32_t *)(void *)s->chunk;
    for (uint32_t i = 0; i < t->rows; i++) { /* Fisher-Yates shuffle, from the front */
        uint32_t from = (uint32_t)(random_word(t->seed, i) % (i + 1));
        order[i] = order[from];
        order[from] = (int32_t)i;
    }
    return put(s, order, (size_t)t->bytes);
}

/* Rows of words that hold the same code in each column, one after the other: 3 words hold 32 codes of 3 bits. */
static bool put_codes(sink *s, const synth_tensor *t)
{
    uint32_t *words = (uint32_t *)(void *)s->chunk, columns = (uint32_t)t->shape[1];
    for (uint32_t word = 0; word < columns; word++) {
        words[word] = 0;
        for (uint32_t bit = 0; bit < 32; bit++) {
            words[word] |= (t->code >> (word * 32 + bit) % t->bits & 1u) << bit;
        }
    }
    bool good = true;
    for (uint64_t row = 0; good && row < t->shape[0]; row++) {
        good = put(s, words, columns * sizeof *words);
    }
    return good;
}

static bool put_index(sink *s, const synth_tensor *t)
{
    int32_t *index = (int32_t *)(void *)s->chunk;
    for (uint32_t row = 0; row < t->shape[0]; row++) {
        index[row] = (int32_t)(row / t->rows);
    }
    return put(s, index, (size_t)t->bytes);
}

static bool put_tensor(sink *s, const synth_tensor *t)
{
    switch (t->fill) {
    case SYNTH_WORDS:
        return put_words(s, t);
    case SYNTH_NORMAL:
        return put_normals(s, t);
    case SYNTH_SCALE_MAX:
    case SYNTH_GROUPS:
        return put_group_tables(s, t);
    case SYNTH_PERM:
        return put_permutation(s, t);
    case SYNTH_CODES:
        return put_codes(s, t);
    case SYNTH_INDEX:
        return put_index(s, t);
    case SYNTH_NUMBER:
        return put(s, &t->code, sizeof t->code);
    }
    return false;
}

bool synth_fill_tensor(const synth_tensor *t, bool (*put_fn)(void *user, const void *data, size_t bytes), void *user)
{
    sink s = { put_fn, user, memory_take(CHUNK_BYTES, 1) };
    bool good = put_tensor(&s, t);
    free(s.chunk);
    return good;
}
