/* content_id.h: a number that says which model a folder holds, so that a saved session is not restored in another one.
   takes: the model folder, its tensor table.
   gives: exl2__content_id_begin, exl2__content_id_add_tensor.
   owns:  nothing. */
#ifndef EXL2__CONTENT_ID_H
#define EXL2__CONTENT_ID_H

#include "../0_base/hash.h"
#include "file.h"
#include "tensor_table.h"

#define EXL2__CONTENT_ID_PART 4096u /* bytes of each tensor that are read */
#define EXL2__CONTENT_ID_CONFIG_MAX ((uint64_t)64 << 20)

static inline void exl2__content_id_add(uint64_t id[2], const void *data, size_t bytes)
{
    id[0] = (id[0] ^ exl2__hash_words(data, bytes, id[1])) * 0x9E3779B97F4A7C15u;
    id[1] = (id[1] ^ exl2__hash_words(data, bytes, id[0])) * 0xC2B2AE3D27D4EB4Fu;
}

/* The id of config.json alone. */
EXL2__COLD
static exl2_result exl2__content_id_begin(exl2__ctx *c, const char *dir, uint64_t id[2])
{
    exl2__blob config;
    id[0] = 1;
    id[1] = 2;
    EXL2__TRY(exl2__file_read_all(c, dir, "config.json", EXL2__CONTENT_ID_CONFIG_MAX, &config));
    exl2__content_id_add(id, config.data, (size_t)config.bytes);
    exl2__blob_close(c, &config);
    return EXL2_OK;
}

/* Adds a tensor: its name, type and shape, and its first 4 KiB. */
EXL2__COLD
static exl2_result exl2__content_id_add_tensor(exl2__ctx *c, const exl2__tensors *tensors, uint32_t index,
                                              uint64_t id[2])
{
    const exl2__tensor *t = &tensors->entries[index];
    uint8_t part[EXL2__CONTENT_ID_PART];
    uint64_t bytes = exl2__min64(t->bytes, sizeof part);
    EXL2__TRY(exl2__tensors_read(c, tensors, t, 0, part, bytes));
    exl2__content_id_add(id, t->name, strlen(t->name));
    exl2__content_id_add(id, &t->type, sizeof t->type);
    exl2__content_id_add(id, t->dims, sizeof t->dims);
    exl2__content_id_add(id, part, (size_t)bytes);
    return EXL2_OK;
}

#endif
