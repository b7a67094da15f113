/* tavern.h: three people who share one past. The world is prefilled once; each person's session is a fork of it, so
   its KV pages exist once. A session is a play that goes on: "Stranger: ..." and the person's name are appended, and
   the model writes the line, as a job; several run side by side.
   takes: a loaded model, a cast.
   gives: tavern_open, tavern_ask, tavern_shout, tavern_hush, tavern_close.
   owns:  the conversations, all lines that were said. The sessions end with the engine.
   next:  transcript.h */
#ifndef NPC_TAVERN_H
#define NPC_TAVERN_H

#include "../common/host.h"
#include "cast.h"
#include "exl2.h"

#define TAVERN_LINE_TOKENS 60   /* a line never has more */
#define TAVERN_ENOUGH_TOKENS 24 /* from here on it ends with its sentence */
#define TAVERN_CONTEXT 2048     /* tokens a person has in mind; then the older half of the talk is forgotten */

typedef struct tavern tavern;

typedef struct npc {
    tavern *place;
    const character *who;
    exl2_session session;
    exl2_job job;             /* id 0: silent */
    bool waits;               /* the job is paused, see tavern.hear_tokens */
    size_t line;              /* index of the line that is being said */
    uint32_t past_tokens;     /* world, persona and examples: what is never forgotten */
    char *talk;               /* [talk_bytes] what was said since then, NUL behind it */
    size_t talk_bytes;
    uint32_t reused_tokens;   /* what the newest job found in the cache */
} npc;

typedef struct tavern_line { /* something that was said */
    const npc *by;            /* NULL: the player, */
    const char *to;           /* to this name */
    char *text;               /* [bytes] so far, NUL behind it */
    size_t bytes, cap;
    bool ended;
    exl2_stop stop;
    uint64_t asked_ns;
    double first_ms;          /* from the question to the first word */
    uint32_t tokens, prompt_tokens; /* said; computed before it */
    uint32_t reused_tokens;         /* found in the cache */
} tavern_line;

struct tavern { /* zeroed: closed */
    exl2_engine *engine;
    const cast *people;
    uint64_t seed;            /* with a line's number, at least 1, added: never 0, for which the engine draws one */
    exl2_session world;
    npc npcs[CAST_SIZE];
    uint32_t ready;           /* people who have their persona in the cache */
    tavern_line *lines;       /* [count] in the order in which they began */
    size_t count, cap;
    uint32_t hear_tokens;     /* a speaker who has said so many tokens is paused; 0 = never */
    uint64_t hush_ns;         /* inside exl2_step to end lines at once; the frame loop counts and clears it */
    uint64_t prompt_computed, prompt_reused; /* tokens, over all jobs */
    char error[sizeof(((exl2_error *)0)->text)]; /* of a job that failed, else "" */
};

/* Those that return bool give false when the engine refuses, with the sentence in t->error. */
bool tavern_open(tavern *t, const host *h, const cast *c, uint32_t seed); /* frames later, tavern_is_ready */
bool tavern_is_ready(const tavern *t);
bool tavern_ask(tavern *t, npc *n, const char *text); /* whoever is asked while he speaks stops speaking */
bool tavern_shout(tavern *t, const char *text);       /* all answer, in one batch */
uint32_t tavern_hush(tavern *t);                      /* everybody stops mid-word; how many there were */
void tavern_go_on(tavern *t);                         /* ends pauses, and hear_tokens */
uint32_t tavern_speakers(const tavern *t);
bool tavern_waits(const tavern *t);                   /* every speaker is paused, or there is none */
npc *tavern_find(tavern *t, const char *name, size_t bytes); /* in any case; NULL = nobody */
void tavern_close(tavern *t);                         /* after host_close, which ends its jobs */

#endif
