/* patrons.h: people at the other tables. They murmur while nobody speaks with the player, at a lower priority than the
   people of the tavern, and fall silent when the player speaks. Each has a fork of the world's session and returns to
   it after a murmur, so a patron never needs more pages than one murmur fills.
   takes: a tavern that is ready.
   gives: patrons_open, patrons_hush, patrons_murmur.
   owns:  nothing; the sessions and the grammar end with the engine. */
#ifndef NPC_PATRONS_H
#define NPC_PATRONS_H

#include "tavern.h"

#define PATRONS_MAX 48
#define PATRONS_CACHE_TOKENS 192u /* of the cache for each: a page that begins with the world's end, and two more */
#define PATRONS_BYTES 96          /* of a murmur, with its NUL */

typedef struct patrons patrons;

typedef struct patron {
    patrons *all;
    exl2_session session;
    exl2_job job;               /* id 0: none */
    char text[PATRONS_BYTES];   /* [bytes] the murmur so far, ends with NUL */
    size_t bytes;
} patron;

struct patrons { /* zeroed: none */
    tavern *tavern;
    patron list[PATRONS_MAX];   /* [count] */
    uint32_t count;
    uint32_t world_tokens;      /* length of a session before a murmur */
    exl2_grammar grammar;
    bool silent;                /* all jobs are paused */
    uint32_t begun, murmurs;    /* murmurs that have begun, and ended */
    uint64_t tokens;            /* of all murmurs */
    char heard[PATRONS_BYTES];  /* the newest murmur that has ended; "" = none */
};

/* false: the engine fails; tavern->error has the message. */
bool patrons_open(patrons *p, tavern *t, uint32_t count);
void patrons_hush(patrons *p);      /* pauses all murmurs */
bool patrons_murmur(patrons *p);    /* for each frame in which nobody speaks: continues them, and begins another one */

#endif
