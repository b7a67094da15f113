/* content_id.h: a number that says which model a folder holds, so that a saved session is not restored in another one.
   takes: the model folder, its tensor table; then all weights, while they are loaded.
   gives: exl2__content_id_begin, exl2__content_id_add_tensor; exl2__content_id_add_part, exl2__content_id_end.

   The id has two parts. The head is known from the headers: config.json and, of each tensor, its name, type, shape and
   first 4 KiB. (Up to release 0.2.0 it was the whole id.) The sum is over all that the model computes with: the hash of
   each part (hash_sums.h), with its place in the model. Parts may be added in any order, and the bytes of a part are
   hashed in the order of the file, in slices of any size, so the id is the same on every backend. */
#ifndef EXL2__CONTENT_ID_H
#define EXL2__CONTENT_ID_H

#include "../0_base/hash_sums.h"
#include "file.h"
#include "tensor_table.h"

#define EXL2__CONTENT_ID_PART 4096u /* bytes of each tensor that the head covers */
#define EXL2__CONTENT_ID_CONFIG_MAX ((uint64_t)64 << 20)

static inline void exl2__content_id_add(uint64_t id[2], const void *data, size_t bytes)
{
    id[0] = (id[0] ^ exl2__hash_words(data, bytes, id[1])) * 0x9E3779B97F4A7C15u;
    id[1] = (id[1] ^ exl2__hash_words(data, bytes, id[0])) * 0xC2B2AE3D27D4EB4Fu;
}

/* The head of config.json alone. */
EXL2__PRIVATE exl2_result exl2__content_id_begin(exl2__ctx *c, const char *dir, uint64_t head[2])
{
    exl2__blob config;
    head[0] = 1;
    head[1] = 2;
    EXL2__TRY(exl2__file_read_all(c, dir, "config.json", EXL2__CONTENT_ID_CONFIG_MAX, &config));
    exl2__content_id_add(head, config.data, (size_t)config.bytes);
    exl2__blob_close(c, &config);
    return EXL2_OK;
}

/* Adds a tensor to the head: its name, type and shape, and its first 4 KiB. */
EXL2__PRIVATE exl2_result exl2__content_id_add_tensor(exl2__ctx *c, const exl2__tensors *tensors, uint32_t index,
                                                      uint64_t head[2])
{
    const exl2__tensor *t = &tensors->entries[index];
    uint8_t part[EXL2__CONTENT_ID_PART];
    uint64_t bytes = exl2__min64(t->bytes, sizeof part);
    EXL2__TRY(exl2__tensors_read(c, tensors, t, 0, part, bytes));
    exl2__content_id_add(head, t->name, strlen(t->name));
    exl2__content_id_add(head, &t->type, sizeof t->type);
    exl2__content_id_add(head, t->dims, sizeof t->dims);
    exl2__content_id_add(head, part, (size_t)bytes);
    return EXL2_OK;
}

/* What a part is: the codes or dense weights of a matrix; its tables and bias; a norm. */
typedef enum exl2__content_id_kind {
    EXL2__CONTENT_ID_CODES, EXL2__CONTENT_ID_TABLES, EXL2__CONTENT_ID_VECTOR
} exl2__content_id_kind;

/* Ends the hash of a part, and adds it to the sum with its place: a unit and its matrix, or a layer and its vector.
   Each place is to be added once. */
static inline void exl2__content_id_add_part(uint64_t sum[2], exl2__hash_sums *part, uint32_t unit, uint32_t index,
                                             exl2__content_id_kind kind)
{
    uint64_t hash[2];
    exl2__hash_sums_end(part, exl2__hash_mix((uint64_t)unit << 32 | index << 8 | (uint32_t)kind), hash);
    sum[0] += hash[0];
    sum[1] += hash[1];
}

/* The id of the whole model. */
static inline void exl2__content_id_end(const uint64_t head[2], const uint64_t sum[2], uint8_t id[16])
{
    uint64_t whole[2] = { head[0], head[1] };
    exl2__content_id_add(whole, sum, 2 * sizeof *sum);
    exl2__store64(id, whole[0]);
    exl2__store64(id + 8, whole[1]);
}

#endif
