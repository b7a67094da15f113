/* evening.h: an evening in the Drowned Lantern without a picture: what the terminal and the window share. It loads the
   model in slices of frames, fills the tavern, runs the visitor's lines, gives the engine its budget of each frame, and
   measures.
   takes: options, the visitor's lines, the end of each frame.
   gives: evening_args_check, evening_open, evening_begin, evening_prepare, evening_line, evening_run, evening_step,
          evening_measure, evening_frame_p99, evening_memory_cap, evening_card, evening_is_good, evening_close,
          EVENING_ARGS, EVENING_MORE_ARGS, EVENING_DEFAULTS.
   owns:  the engine, the tavern, the people, the script and the figures. */
#ifndef NPC_EVENING_H
#define NPC_EVENING_H

#include "../common/args.h"
#include "../common/host.h"
#include "../common/images.h"
#include "../common/trace.h"
#include "commands.h"
#include "end_card.h"
#include "patrons.h"
#include "script.h"

#ifndef NPC_PEOPLE
#define NPC_PEOPLE "demo/npc"
#endif

typedef struct evening_options {
    const char *model, *people, *script, *json, *png, *transcript, *trace;
    uint32_t cpu_us, gpu_us, turns, patrons;
    uint64_t memory;      /* cap of the engine's memory, bytes; 0 = no cap */
    arg_texts loras;      /* NAME=FOLDER[:SCALE]: adapters of people */
    arg_texts moods;      /* NAME=FILE[:FACTOR]: control vectors of people */
    bool worker;
    tavern_options tavern;
    exl2_model_desc desc; /* of the model: what the flags say */
    images_options images;
    host_options host;
} evening_options;

#define EVENING_DEFAULTS                                                                                           \
    {                                                                                                              \
        .people = NPC_PEOPLE, .transcript = "lantern.txt", .cpu_us = 4000, .gpu_us = 4000,                         \
        .tavern = { .seed = 2, .temperature = 0.4f }, .desc.context_max = TAVERN_CONTEXT                           \
    }

/* Rows of a flag table. */
#define EVENING_ARGS(o)                                                                                            \
    { "--model", ARG_TEXT, &(o).model, "DIR", "model folder; required" },                                          \
    { "--cpu-us", ARG_U32, &(o).cpu_us, "N", "CPU microseconds per frame for the engine (4000)" },                 \
    { "--gpu-us", ARG_U32, &(o).gpu_us, "N", "GPU microseconds per frame, if it runs on a GPU (4000)" },           \
    { "--seed", ARG_U32, &(o).tavern.seed, "N", "the same seed and lines give the same answers (2)" },             \
    { "--temperature", ARG_FLOAT, &(o).tavern.temperature, "X",                                                    \
      "above 1: more random; below 1: less; 0 = greedy (0.4)" },                                                   \
    { "--worker", ARG_BOOL, &(o).worker, NULL, "a thread of the engine does the work, with these budgets" },       \
    { "--one-by-one", ARG_BOOL, &(o).tavern.one_by_one, NULL, "samples every token in a pass of its own" },        \
    { "--patrons", ARG_U32, &(o).patrons, "N", "people who murmur while nobody speaks with you, at most 48 (0)" }, \
    { "--script", ARG_TEXT, &(o).script, "FILE", "file with what the visitor does, a line each" }

#define EVENING_MORE_ARGS(o)                                                                                       \
    { "--transcript", ARG_TEXT, &(o).transcript, "FILE", "file that /transcript writes (lantern.txt)" },           \
    { "--trace", ARG_TEXT, &(o).trace, "FILE",                                                                     \
      "CSV file to write: predicted and measured time of each step's parts" },                                     \
    { "--people", ARG_TEXT, &(o).people, "DIR",                                                                    \
      "folder with world.txt and the people's files (the demo's own)" },                                           \
    { "--context", ARG_U32, &(o).desc.context_max, "N", "tokens that each person remembers (2048)" },              \
    { "--lora", ARG_TEXTS, &(o).loras, "NAME=DIR[:S]",                                                             \
      "an adapter (LoRA) of a person, with factor S (1); may be repeated" },                                       \
    { "--mood", ARG_TEXTS, &(o).moods, "NAME=FILE[:X]",                                                            \
      "a control vector of a person, with factor X (1), which F6 and F7 move; may be repeated" },                  \
    { "--memory", ARG_MIB, &(o).memory, "SIZE", "most memory of the engine, in MiB or such as 2GB (no limit)" },   \
    IMAGES_ROOM((o).images, "(0)"),                                                                                \
    HOST_ROPE_ARGS((o).desc),                                                                                      \
    HOST_ARGS((o).host)

typedef struct evening {
    const evening_options *options;
    host host;
    cast cast;
    tavern tavern;
    patrons patrons;
    visitor visitor;
    script script;
    bool model_ready, open;       /* open: the persona of every person is in the cache */
    bool unlimited;               /* a step has no budget: it runs a whole forward pass */
    bool talk;                    /* a person speaks in this frame */
    float loaded;                 /* share of the model that is loaded, 0..1 */
    uint64_t last_ns, talk_ns;    /* end of the last frame; time of the frames with talk */
    exl2_engine_stats at_ready, now; /* now: at the end of the last frame */
    uint32_t pages_used, pages_shared, pages_cached; /* the most at one time */
    samples frames, steps;        /* ms */
    trace trace;
} evening;

/* Checks the values of the flags above; prints what is wrong. */
args_result evening_args_check(const args_desc *d, const evening_options *o);
/* A function that returns bool has printed a message to stderr if it returns false. `e` must be zeroed before, and keep
   its address. evening_open reads the files and opens the engine; the caller then sets visitor.view. */
bool evening_open(evening *e, const evening_options *o);
bool evening_begin(evening *e);                /* begins to load the model */
/* For each frame until `open`: loads the model, then prefills the world and the personas. */
bool evening_prepare(evening *e, char *status, size_t cap);
const char *evening_line(evening *e);          /* the script's line of this frame, or NULL */
/* Runs a line, and ends pauses. If the engine fails, the next evening_step says so. */
void evening_run(evening *e, const char *line);
/* Gives the engine its budget of this frame, less the time that hushes and grammars have already used; *step_ms: the
   time of both. */
bool evening_step(evening *e, double *step_ms);
double evening_measure(evening *e, uint64_t end_ns, double step_ms); /* at the end of a frame; returns its ms */
double evening_frame_p99(const evening *e);    /* of the newest frames */
uint64_t evening_memory_cap(const evening *e); /* bytes: the cap, or what was planned if there is none */
end_card evening_card(evening *e);
bool evening_is_good(const evening *e);        /* every turn was valid, and the script came to its end */
bool evening_close(evening *e);                /* also for a zeroed or partly opened evening */

#endif
