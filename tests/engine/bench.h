/* bench.h: one model in an engine whose objects the test sees and changes, on the CPU or over the fake driver. It has
   room for vectors. A test includes it once, instead of rig.h, and links fake_engine.c.
   takes: the goldens; the fake driver.
   gives: bench, bench_open, bench_close, bench_run, bench_embedding, bench_below. */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>
#include <stdlib.h>

#include "../device/fake_model.h"
#include "private/public.h"
#include "private/cpu.h"
#include "rig.h"

#define VECTORS_MAX 4096u

/* ---- a model with room for vectors ---- */

typedef struct bench {
    exl2_engine *e;
    exl2_model model;
    exl2__model *m;
    exl2__arena memory;
    rig r;
} bench;

/* Element n of row `row` of a table in the memory of the fake device. */
static inline float bench_table_at(uint64_t table, uint32_t kind, uint32_t hidden, uint32_t row, uint32_t n)
{
    uint64_t at = (uint64_t)row * hidden + n;
    uint32_t bytes = kind == EXL2K_TABLE_F32 ? 4 : 2, value = 0;
    memcpy(&value, fake_model_at(table + at * bytes, bytes), bytes);
    return kind == EXL2K_TABLE_F16 ? exl2__f16_to_f32((uint16_t)value)
                                   : exl2__bits_float(kind == EXL2K_TABLE_F32 ? value : value << 16);
}

/* The fake driver's model knows tokens only: a vector becomes the token whose row of the embedding it is, or, if there
   is none, a number of its bytes. */
static inline void bench_run(const char *function, const void *arguments, const unsigned grid[3])
{
    const exl2k_embed_args *a = arguments;
    const exl2k_pass *pass = strcmp(function, "exl2k_embed") == 0 ? fake_model_at(a->pass, sizeof *pass) : NULL;
    for (uint32_t i = 0; pass && i < grid[0] && i < pass->row_count; i++) {
        exl2k_row *row = fake_model_at(a->rows + i * sizeof *row, sizeof *row);
        const float *given = fake_model_at(a->residual + (uint64_t)i * a->residual_pitch * 4, a->hidden * 4);
        if (!(row->flags & EXL2K_ROW_VECTOR)) {
            continue;
        }
        row->token = (uint32_t)exl2__hash_words(given, a->hidden * sizeof *given, 0) | 1u << 30;
        for (uint32_t token = 0; token < a->table_rows; token++) {
            uint32_t n = 0;
            for (float value; n < a->hidden; n++) {
                value = bench_table_at(a->table, a->kind, a->hidden, token, n) * a->scale;
                if (memcmp(&given[n], &value, sizeof value) != 0) {
                    break;
                }
            }
            row->token = n == a->hidden ? token : row->token;
        }
    }
    fake_model_run(function, arguments, grid);
}

static inline bench bench_open(const char *name, exl2_backend backend, exl2_model_desc desc, uint32_t room)
{
    bench b = { 0 };
    exl2_error error = { EXL2_OK, 0, "" };
    exl2__arena dry = { 0 };
    machine_make();
    fake.run = bench_run;
    exl2_engine_desc d = machine_desc(backend, &error);
    d.cpu_path_max = rig_path_max;
    if (exl2_open(&d, &b.e) < 0) {
        printf("exl2_open: %s\n", error.text);
        exit(1);
    }
    desc.path = rig_golden(name);
    exl2_result r = exl2_model_load(b.e, &desc, &b.model);
    if (r < 0) {
        rig_fail(b.e, name, r);
    }
    b.m = exl2__objects_model(b.e, b.model);
    b.r = (rig){ b.e, b.model };
    exl2__vectors_make(&b.m->vectors, &dry, b.m->plan.shape.hidden, room);
    CHECK_INT(exl2__arena_open(&b.e->ctx, &b.memory, dry.used, EXL2_MEM_GENERAL), EXL2_OK);
    exl2__vectors_make(&b.m->vectors, &b.memory, b.m->plan.shape.hidden, room);
    return b;
}

static inline void bench_close(bench *b)
{
    exl2__arena memory = b->memory;
    exl2_model_close(b->e, b->model);
    exl2__arena_close(&b->e->ctx, &memory);
    exl2_close(b->e);
    machine_end();
}

/* The vector that the embedding gives for a token. */
static inline const float *bench_embedding(const bench *b, exl2_token token)
{
    static float out[8192];
    const exl2__shape *s = &b->m->plan.shape;
    bool cuda = exl2__backend_has_memory(exl2__spans_backend(&b->m->spans));
    for (uint32_t i = 0; i < s->hidden; i++) {
        const exl2__cuda_matrix *table = exl2__cuda_matrix_of(b->m->plan.embed);
        out[i] = cuda ? bench_table_at(table->table, table->feed[0].type, s->hidden, (uint32_t)token, i)
               : exl2__cpu_matrix_weight(&exl2__cpu_matrix_of(b->m->plan.embed)->parts[0], i, (uint32_t)token);
        out[i] *= s->embed_scale;
    }
    return out;
}

static uint64_t bench_seed;

static inline uint32_t bench_below(uint32_t n)
{
    bench_seed = bench_seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(bench_seed >> 33) % n;
}

#endif
