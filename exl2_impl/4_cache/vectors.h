/* vectors.h: inputs of rows that are no tokens: vectors, which stand for one position each.
   takes: vectors of the width of the model's residual; histories and pages whose words name them.
   gives: exl2__vectors, exl2__vectors_make, _is, _add, _data, _use, _drop, _room, _number.

   A vector takes the place of what the embedding gives for a token, after its scale (Gemma multiplies embeddings by
   sqrt(hidden), but not what stands for a picture). Learned positions are added to it as to a token's embedding.

   A word of a history is a token's id, or that of a row of a picture (pictures.h), or EXL2__WORD_VECTOR and the index
   of a vector here. Each word of a history, of a page and of a waiting prompt is a use of its vector. A vector lives
   until its last use ends, and only then may its index name another one: so equal words are equal inputs, and pages
   can be compared by their words. Two vectors with the same bytes are one vector. A row of a pass needs no use of its
   own: its history has one, and after the end of that use nothing reads the results of the row. */
#ifndef EXL2__VECTORS_H
#define EXL2__VECTORS_H

#include "../0_base/hash.h"
#include "pictures.h"

#define EXL2__WORD_SAMPLED 0x80000000u /* bit of a word, and what exl2__pages.sampled may be */
#define EXL2__NO_VECTOR UINT32_MAX

typedef struct exl2__vectors {
    uint32_t width, count; /* floats of a vector; vectors that there is room for. Zeroed: a model without vectors */
    uint32_t free_count;
    float *data;           /* [count + 1, width]; the last one is scratch of _add */
    uint32_t *uses;        /* [count] */
    uint32_t *free_list;   /* [free_count], room for count: a stack */
    uint32_t *buckets;     /* [count] first vector with a hash */
    uint32_t *same_hash;   /* [count] next one in its bucket */
    uint32_t *numbers;     /* [count] scratch of one call: numbers of vectors in a snapshot, or words by number */
    exl2__pictures pictures;
} exl2__vectors;

static inline void exl2__vectors_make(exl2__vectors *v, exl2__arena *arena, uint32_t width, uint32_t count)
{
    EXL2__ASSERT(count < EXL2__WORD_PICTURE);
    *v = (exl2__vectors){ .width = width, .count = count, .free_count = count };
    v->data = (float *)exl2__arena_alloc(arena, ((uint64_t)count + 1) * width * sizeof *v->data);
    v->uses = (uint32_t *)exl2__arena_alloc_zeroed(arena, (uint64_t)count * sizeof *v->uses);
    v->free_list = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *v->free_list);
    v->buckets = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *v->buckets);
    v->same_hash = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *v->same_hash);
    v->numbers = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *v->numbers);
    for (uint32_t i = 0; v->numbers && i < count; i++) {
        v->free_list[i] = count - 1 - i; /* index 0 is used first */
        v->buckets[i] = EXL2__NO_VECTOR;
    }
}

/* Is the word a vector's, or that of a row of a picture? */
static inline bool exl2__vectors_is(uint32_t word)
{
    return word & EXL2__WORD_VECTOR;
}

static inline uint32_t exl2__vectors_index(uint32_t word)
{
    return word & (EXL2__WORD_VECTOR - 1);
}

/* [width]; it stays where it is while the vector lives. */
static inline float *exl2__vectors_at(const exl2__vectors *v, uint32_t index)
{
    return v->data + (size_t)index * v->width;
}

static inline const float *exl2__vectors_data(const exl2__vectors *v, uint32_t word)
{
    uint32_t index = exl2__vectors_index(word);
    if (exl2__pictures_is(word)) {
        const exl2__picture *picture = &v->pictures.picture[exl2__pictures_of(word)];
        EXL2__ASSERT(picture->data && exl2__pictures_row(word) < picture->rows);
        return picture->data + (size_t)exl2__pictures_row(word) * v->pictures.row_floats;
    }
    EXL2__ASSERT(exl2__vectors_is(word) && index < v->count && v->uses[index] > 0);
    return exl2__vectors_at(v, index);
}

/* Number of vectors that can be added. */
static inline uint32_t exl2__vectors_room(const exl2__vectors *v)
{
    return v->free_count;
}

static inline uint32_t *exl2__vectors_bucket(const exl2__vectors *v, const float *vector)
{
    return &v->buckets[exl2__hash_words(vector, v->width * sizeof *vector, 0) % v->count];
}

/* The word of a vector with these bytes, [width] floats of any alignment, of which the caller has one use.
   EXL2__NO_VECTOR: there is no room for it. */
static inline uint32_t exl2__vectors_add(exl2__vectors *v, const void *vector)
{
    size_t bytes = v->width * sizeof *v->data;
    uint32_t index = v->free_count ? v->free_list[v->free_count - 1] : v->count;
    memcpy(exl2__vectors_at(v, index), vector, bytes);
    uint32_t *first = exl2__vectors_bucket(v, exl2__vectors_at(v, index)), same = *first;
    while (same != EXL2__NO_VECTOR && memcmp(exl2__vectors_at(v, same), vector, bytes) != 0) {
        same = v->same_hash[same];
    }
    if (same == EXL2__NO_VECTOR && v->free_count == 0) {
        return EXL2__NO_VECTOR;
    }
    if (same == EXL2__NO_VECTOR) {
        v->free_count--;
        v->same_hash[index] = *first;
        *first = same = index;
    }
    v->uses[same]++;
    return EXL2__WORD_VECTOR | same;
}

/* Each of these words is one use more of its vector. v NULL, or without vectors: the words are tokens. */
static inline void exl2__vectors_use(exl2__vectors *v, const uint32_t *words, uint32_t count)
{
    bool any = v && (v->free_count < v->count || v->pictures.live > 0);
    for (uint32_t i = 0; any && i < count; i++) {
        if (exl2__pictures_is(words[i])) {
            exl2__pictures_use(&v->pictures, words[i], true);
        } else if (exl2__vectors_is(words[i])) {
            EXL2__ASSERT(exl2__vectors_index(words[i]) < v->count && v->uses[exl2__vectors_index(words[i])] > 0);
            v->uses[exl2__vectors_index(words[i])]++;
        }
    }
}

/* Ends the uses of these words. */
static inline void exl2__vectors_drop(exl2__vectors *v, const uint32_t *words, uint32_t count)
{
    bool any = v && (v->free_count < v->count || v->pictures.live > 0);
    for (uint32_t i = 0; any && i < count; i++) {
        uint32_t index = exl2__vectors_index(words[i]);
        if (exl2__pictures_is(words[i])) {
            exl2__pictures_use(&v->pictures, words[i], false);
            continue;
        }
        if (!exl2__vectors_is(words[i])) {
            continue;
        }
        EXL2__ASSERT(index < v->count && v->uses[index] > 0);
        if (--v->uses[index] == 0) {
            uint32_t *at = exl2__vectors_bucket(v, exl2__vectors_at(v, index));
            while (*at != index) {
                at = &v->same_hash[*at];
            }
            *at = v->same_hash[index];
            v->free_list[v->free_count++] = index;
        }
    }
}

/* Numbers the vectors of these words in the order in which they first occur: v->numbers[index]. Returns how many there
   are. */
static inline uint32_t exl2__vectors_number(exl2__vectors *v, const uint32_t *words, uint32_t count)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        v->numbers[i] = EXL2__NO_VECTOR;
    }
    for (uint32_t i = 0; i < count && v->count > 0; i++) {
        uint32_t index = exl2__vectors_index(words[i]);
        bool vector = exl2__vectors_is(words[i]) && !exl2__pictures_is(words[i]);
        if (vector && v->numbers[index] == EXL2__NO_VECTOR) {
            v->numbers[index] = next++;
        }
    }
    return next;
}

#endif
