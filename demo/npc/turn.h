/* turn.h: what a person may do in one turn: a JSON schema of the game as it is now, and what came of it.
   takes: who is present, what the person holds, his trust; JSON as it comes.
   gives: turn_schema, turn_example, turn_words, turn_named, turn_read.
   owns:  nothing. */
#ifndef NPC_TURN_H
#define NPC_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TURN_THINGS_MAX 16
#define TURN_TARGETS_MAX 8
#define TURN_SCHEMA_BYTES 2048
#define TURN_BYTES 1024   /* of a turn at most */
#define TURN_SAY_MAX 142   /* bytes of what is said, */
#define TURN_ASIDE_MIN 12  /* and of an aside */
#define TURN_ASIDE_MAX 92
#define TURN_TRUST_MAX 2 /* trust is -2..2, and changes by one at a time */

typedef struct turn_state { /* when the turn begins; the texts outlive it */
    const char *things[TURN_THINGS_MAX]; /* that he can give away: what is not here cannot be given */
    const char *targets[TURN_TARGETS_MAX]; /* who is present */
    uint32_t thing_count, target_count;
    bool aside;            /* he is asked what nobody asked before: one short sentence, as small models ramble */
    int trust;
} turn_state;

typedef struct turn {
    const char *mood, *act, *target; /* act: "none", "nod" ...; of "give": the thing is not NULL */
    const char *thing;               /* one of the state's */
    int trust;
} turn;

void turn_schema(const turn_state *s, char out[TURN_SCHEMA_BYTES]);
/* The answer as a person would have given it, to be read as an example: act may be NULL. */
size_t turn_example(const char *mood, const char *say, const char *act, const char *target, char *out, size_t cap);
/* The words of `say`, as far as they have come, NUL behind them; how many bytes. */
size_t turn_words(const char *json, size_t bytes, char out[TURN_BYTES]);
const char *turn_named(const turn_state *s, const char *words); /* the target whose name comes first; NULL: none */
bool turn_read(const turn_state *s, const char *json, size_t bytes, turn *out); /* false: no turn of this state */

#endif
