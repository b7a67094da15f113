/* content_id.h: a number that says which model a folder holds, so that a saved session is not restored in another one.
   takes: the model folder, its tensor table.
   gives: exl2__content_id.
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

/* out: 16 bytes, over config.json, the names, types, shapes of all tensors, and the first 4 KiB of each. */
EXL2__COLD
static exl2_result exl2__content_id(exl2__ctx *c, const char *dir, const exl2__tensors *tensors, uint8_t *out)
{
    uint64_t id[2] = { 1, 2 };
    uint8_t part[EXL2__CONTENT_ID_PART];
    exl2__blob config;
    EXL2__TRY(exl2__file_read_all(c, dir, "config.json", EXL2__CONTENT_ID_CONFIG_MAX, &config));
    exl2__content_id_add(id, config.data, (size_t)config.bytes);
    exl2__blob_close(c, &config);
    for (uint32_t i = 0; i < tensors->count; i++) {
        const exl2__tensor *t = &tensors->entries[i];
        uint64_t bytes = exl2__min64(t->bytes, sizeof part);
        EXL2__TRY(exl2__tensors_read(c, tensors, t, 0, part, bytes));
        exl2__content_id_add(id, t->name, strlen(t->name));
        exl2__content_id_add(id, &t->type, sizeof t->type);
        exl2__content_id_add(id, t->dims, sizeof t->dims);
        exl2__content_id_add(id, part, (size_t)bytes);
    }
    exl2__store64(out, id[0]);
    exl2__store64(out + 8, id[1]);
    return EXL2_OK;
}

#endif
