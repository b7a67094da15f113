/* turn.h: what a person may do in one turn: makes the JSON schema from the state of the game, and reads the answer.
   takes: who is present, what the person holds and trusts; JSON that may still be incomplete.
   gives: turn_can_say, turn_follow, turn_schema, turn_words, turn_named, turn_read. */
#ifndef NPC_TURN_H
#define NPC_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TURN_THINGS_MAX 16
#define TURN_TARGETS_MAX 8
#define TURN_SCHEMA_BYTES 4096
#define TURN_EVASIONS_MAX 16
#define TURN_BYTES 1024   /* most bytes of a turn */
#define TURN_SAY_MAX 142   /* most bytes of `say` */
#define TURN_TRUST_MAX 2 /* trust is -2..2, and a turn changes it by 1 at most */

typedef struct turn_state { /* state of the game when a turn begins; its texts must outlive it */
    const char *things[TURN_THINGS_MAX]; /* things that the person holds; no other thing can be given */
    const char *targets[TURN_TARGETS_MAX]; /* who is present */
    uint32_t thing_count, target_count;
    const char *evasions[TURN_EVASIONS_MAX]; /* [evasion_count] not 0: `say` is one of these, as no example fits */
    uint32_t evasion_count;
    const char *says;      /* answer of the example that fits; NULL: none */
    bool whole;            /* `say` is all of it, not its beginning */
    size_t says_bytes;     /* `say` begins with this many bytes of it; with all of them it is that answer */
    const char *act, *target; /* if `says`: the only ones */
    int trust;
} turn_state;

typedef struct turn {
    const char *mood, *act, *target; /* act: "none", "nod" ... or "give", with a thing */
    const char *thing;               /* one of turn_state.things, or NULL */
    int trust;
} turn;

bool turn_can_say(const char *text); /* one sentence or more of letters and punctuation that JSON does not escape */
/* Lets `say` begin with the first words of an example's answer, or be all of it if s->whole. false: no turn can say it.
   act NULL, or not possible now: "none". */
bool turn_follow(turn_state *s, const char *answer, const char *act, const char *target);
void turn_schema(const turn_state *s, char out[TURN_SCHEMA_BYTES]);
/* Writes the words of `say` that have arrived, with a NUL; returns their bytes. */
size_t turn_words(const char *json, size_t bytes, char out[TURN_BYTES]);
const char *turn_named(const turn_state *s, const char *words); /* the target that is named first; NULL: none */
bool turn_read(const turn_state *s, const char *json, size_t bytes, turn *out); /* false: not allowed in this state */

#endif
