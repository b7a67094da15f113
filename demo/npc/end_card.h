/* end_card.h: the figures of a game: as text, JSON and a picture.
   takes: frame times, a tavern, the engine's statistics.
   gives: end_card_plan, end_card_print, end_card_save_json, end_card_save_png. */
#ifndef NPC_END_CARD_H
#define NPC_END_CARD_H

#include "../common/samples.h"
#include "patrons.h"

typedef struct end_card {
    const char *model; /* path of the model folder */
    uint32_t threads, cpu_us, gpu_us;
    bool on_gpu;
    tavern *tavern;
    const patrons *patrons;
    samples *frames;   /* ms of each frame since the tavern was ready */
    samples *steps;    /* ms of each frame inside exl2_step */
    double talk_seconds; /* time of the frames in which somebody was asked or spoke */
    uint64_t allocations; /* of the engine since the model was ready, without those for grammars */
    uint32_t pages_used, pages_shared, pages_cached; /* the most at one time */
    uint64_t plan_bytes; /* see end_card_plan */
    exl2_engine_stats stats;
} end_card;

uint64_t end_card_plan(const exl2_model_info *m); /* memory that the model needs when it is loaded, as planned */
void end_card_print(const end_card *c, void (*print)(void *user, const char *row), void *user);
/* These two print a message to stderr if the file cannot be written. Without stb_image_write no picture is made; this
   is printed, too, but is no failure. */
bool end_card_save_json(const end_card *c, const char *path);
bool end_card_save_png(const end_card *c, const char *path);

#endif
