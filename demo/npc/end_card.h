/* end_card.h: what the evening cost, in figures: as text, JSON and a picture.
   takes: frame times, a tavern, the engine's statistics.
   gives: end_card_print, end_card_save_json, end_card_save_png.
   owns:  nothing; lists are sorted in place. */
#ifndef NPC_END_CARD_H
#define NPC_END_CARD_H

#include "../common/samples.h"
#include "screen.h"

typedef struct end_card {
    const char *model; /* path of its folder */
    uint32_t threads, cpu_us, gpu_us;
    bool on_gpu;
    tavern *tavern;
    samples *frames;   /* ms of every frame since the tavern was ready */
    samples *steps;    /* of it inside exl2_step */
    double talk_seconds; /* frames in which somebody was asked or spoke */
    uint64_t talk_tokens;
    uint64_t allocations; /* of the engine since the model was ready, but for grammars */
    exl2_engine_stats stats;
} end_card;

void end_card_print(const end_card *c, screen *s);
/* These two print one sentence to stderr when the file cannot be written; without stb_image_write there is no picture,
   which is said and no failure. */
bool end_card_save_json(const end_card *c, const char *path);
bool end_card_save_png(const end_card *c, const char *path);

#endif
