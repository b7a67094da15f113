/* cards_rig.h: a machine with three fake GPUs, whose kernels get addresses of their own GPU alone; models on several of
   them, with device memory as planned on each.
   takes: fake_model.h; the goldens.
   gives: make, open_cards, load_planned, card_bytes; counts of launches.
   owns:  nothing. */
#ifndef CARDS_RIG_H
#define CARDS_RIG_H

#include "cuda_ways.h"

#define CARDS 3u

static const exl2_device_desc picks[CARDS] = { { .pick = EXL2_PICK_INDEX, .index = 0 },
                                               { .pick = EXL2_PICK_INDEX, .index = 1 },
                                               { .pick = EXL2_PICK_INDEX, .index = 2 } };

static uint32_t embedded;            /* rows of launches of the first span */
static uint32_t passes_of[64];       /* passes of the first span with so many rows */
static uint32_t launches_on[3];      /* launches on each GPU */
static uint32_t towers_on[3], turns_on[3], added_on[3]; /* of these, for pictures */

/* ---- the fake GPUs ---- */

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    const fake_kernel *kernel = machine_kernels;
    bool own = true;
    launches_on[fake.running]++;
    added_on[fake.running] += strcmp(function, "exl2k_tower_add") == 0;
    towers_on[fake.running] += strncmp(function, "exl2k_tower", 11) == 0 && strcmp(function, "exl2k_tower_add") != 0;
    turns_on[fake.running] += strcmp(function, "exl2k_attend_turn") == 0;
    while (strcmp(kernel->function, function) != 0) {
        kernel++;
    }
    for (size_t at = 0; at + 8 <= kernel->argument_bytes; at += 8) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)arguments + at, sizeof word);
        int device = fake_device_of(word);
        own = own && (device < 0 || device == fake.running);
    }
    if (!CHECK(own)) {
        printf("  %s on GPU %d has an address of another one\n", function, fake.running);
    }
    if (strcmp(function, "exl2k_embed") == 0) { /* of a later span: rows that were handed over, as in cuda_spans.c */
        const exl2k_embed_args *a = arguments;
        const exl2k_pass *pass = fake_model_at(a->pass, sizeof *pass);
        embedded += a->kind == EXL2K_TABLE_HANDED ? 0 : grid[0];
        passes_of[pass->row_count % 64] += a->kind != EXL2K_TABLE_HANDED;
        for (uint32_t i = 0; i < grid[0] && i < pass->row_count; i++) {
            exl2k_row *row = fake_model_at(a->rows + i * sizeof *row, sizeof *row);
            if (row->flags & EXL2K_ROW_VECTOR) {
                continue;
            }
            if (a->kind == EXL2K_TABLE_HANDED) {
                uint64_t from = a->table + (uint64_t)i * a->hidden * sizeof(float);
                CHECK_INT((uint32_t)*(float *)fake_model_at(from, sizeof(float)), row->token);
            }
            uint64_t to = a->residual + (uint64_t)i * a->residual_pitch * sizeof(float);
            *(float *)fake_model_at(to, sizeof(float)) = (float)row->token;
        }
    }
    fake_model_run(function, arguments, grid);
}

static int peers; /* of all pairs of the machine, as fake.peer */

/* A machine with three GPUs; the memory of the last one is half as fast. */
static void make(void)
{
    machine_make();
    for (uint32_t i = 0; i < CARDS * CARDS; i++) {
        fake.peer[i / CARDS][i % CARDS] = i / CARDS == i % CARDS ? FAKE_PEER_NONE : peers;
    }
    fake.run = run;
    fake.device_count = CARDS;
    for (int i = 1; i < (int)CARDS; i++) {
        fake.devices[i] = fake.devices[0];
        fake.devices[i].uuid[0] = (uint8_t)(10 + i);
    }
    fake.devices[2].memory_width /= 2;
}

static exl2_engine *open_cards(exl2_backend backend, const exl2_device_desc *devices, uint32_t count,
                               exl2_result wanted)
{
    exl2_engine *e = NULL;
    exl2_engine_desc d = machine_desc(backend, &cuda_error);
    d.devices = devices;
    d.device_count = count;
    cuda_error = (exl2_error){ EXL2_OK, 0, "" };
    CHECK_INT(exl2_open(&d, &e), wanted);
    CHECK((e != NULL) == (wanted >= 0));
    return e;
}

static uint64_t card_bytes(const exl2_card_info *c) { return c->weight_bytes + c->cache_bytes + c->scratch_bytes; }

/* Loads the model, and compares its plan with the memory of each GPU. */
static exl2_model_info load_planned(exl2_engine *e, const exl2_model_desc *d, exl2_model *m)
{
    exl2_model_info measured, info = { .vocab = 0 };
    exl2_engine_stats stats;
    uint64_t before[CARDS], weights = 0, cache = 0, all = 0;
    for (uint32_t i = 0; i < CARDS; i++) {
        before[i] = fake.devices[i].bytes_used;
    }
    CHECK_INT(exl2_model_measure(e, d, &measured), EXL2_OK);
    if (!CHECK_INT(exl2_model_load(e, d, m), EXL2_OK)) {
        rig_fail(e, "exl2_model_load", EXL2_ERR_INTERNAL);
    }
    CHECK_INT(exl2_model_get(e, *m, &info), EXL2_OK);
    CHECK(memcmp(measured.cards, info.cards, sizeof info.cards) == 0 && measured.card_count == info.card_count);
    exl2_stats(e, &stats);
    uint32_t layer = 0;
    for (uint32_t i = 0; i < info.card_count; i++) {
        const exl2_card_info *c = &info.cards[i];
        CHECK(c->first_layer == layer && c->layers > 0);
        layer += c->layers;
        weights += c->weight_bytes;
        cache += c->cache_bytes;
        all += card_bytes(c);
        CHECK_INT(fake.devices[c->device].bytes_used - before[c->device], card_bytes(c));
        CHECK_INT(stats.devices_bytes[c->device], fake.devices[c->device].bytes_used);
        CHECK(d->card_count == 0 || !d->cards[i].bytes_max || card_bytes(c) <= d->cards[i].bytes_max);
    }
    CHECK(layer == info.layers && weights + info.host_weight_bytes == info.weight_bytes && cache == info.cache_bytes);
    CHECK_INT(all, info.device_bytes);
    return info;
}

#endif
