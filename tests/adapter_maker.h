/* adapter_maker.h: writes an adapter in peft's format: F32, of rank 2 and alpha 4, with numbers that are all different.
   takes: a folder that exists; names and shapes of matrices.
   gives: adapter_matrix, adapter_write. */
#ifndef ADAPTER_MAKER_H
#define ADAPTER_MAKER_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct adapter_matrix {
    const char *name; /* "model.layers.0.self_attn.q_proj" */
    uint32_t out, in;
} adapter_matrix;

static inline void adapter_write(const char *dir, const adapter_matrix *matrices, uint32_t count)
{
    char path[1200], header[8192] = "{";
    size_t used = 1;
    uint64_t at = 0;
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    FILE *file = fopen(path, "wb");
    if (file) {
        fputs("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"bias\":\"none\",\"target_modules\":\"all-linear\"}",
              file);
        fclose(file);
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        const adapter_matrix *m = &matrices[i / 2];
        uint32_t rows = i % 2 ? m->out : 2, columns = i % 2 ? 2 : m->in;
        uint64_t bytes = (uint64_t)rows * columns * 4;
        used += (size_t)snprintf(header + used, sizeof header - used, "%s\"base_model.model.%s.lora_%c.weight\":{"
                                 "\"dtype\":\"F32\",\"shape\":[%u,%u],\"data_offsets\":[%llu,%llu]}", i ? "," : "",
                                 m->name, i % 2 ? 'B' : 'A', rows, columns, (unsigned long long)at,
                                 (unsigned long long)(at + bytes));
        at += bytes;
    }
    used += (size_t)snprintf(header + used, sizeof header - used, "}");
    while (used % 8) {
        header[used++] = ' ';
    }
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    file = fopen(path, "wb");
    if (file) {
        uint64_t bytes = used;
        fwrite(&bytes, sizeof bytes, 1, file);
        fwrite(header, 1, used, file);
        for (uint64_t i = 0; i < at / 4; i++) {
            float number = (float)((double)(i * 7919 % 1009) / 5000 - 0.1);
            fwrite(&number, sizeof number, 1, file);
        }
        fclose(file);
    }
}

#endif
