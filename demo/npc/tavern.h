/* tavern.h: three people who share one past. The world is prefilled once; each person's session is a fork of it, so
   its KV pages exist once. A session is a play that goes on: "Stranger: ..." and the person's name are appended, and
   the model writes a turn, as a job; several run side by side. A turn is JSON that a schema of the game as it is now
   allows: words, mood, what he does, to whom, how far he trusts; the words stream, the rest is done at its end. Of a
   turn only the words stay in the session: a small model repeats what it reads again and again.
   takes: a loaded model, a cast.
   gives: tavern_open, tavern_ask, tavern_shout, tavern_hush, tavern_close.
   owns:  the conversations, all lines that were said. The sessions end with the engine. */
#ifndef NPC_TAVERN_H
#define NPC_TAVERN_H

#include "../common/host.h"
#include "../common/samples.h"
#include "cast.h"
#include "exl2.h"
#include "recall.h"
#include "turn.h"

#define TAVERN_TURN_TOKENS 110  /* a turn never has more, and is whole */
#define TAVERN_STRANGE_MAX (2 * (CAST_SIZE - 1))
#define TAVERN_REPEAT_TOKENS 24 /* no repeats inside a line, while names and facts may come back */
#define TAVERN_CONTEXT 2048     /* tokens a person has in mind; then the older half of the talk is forgotten */

/* exl2_model_info.hidden from which a model answers as the persona that it reads. Narrower models (SmolLM2: 135M has
   576, 360M has 960) say what they have just read, so they read examples; wider ones (1.7B has 2048) would only be made
   parrots by them. */
#define TAVERN_OWN_WORDS 1024

typedef struct tavern tavern;
typedef struct npc npc;

typedef struct thing {
    char name[24];
    const npc *owner;         /* NULL: the visitor */
} thing;

struct npc {
    tavern *place;
    const character *who;
    exl2_session session;
    exl2_job job;             /* id 0: silent */
    exl2_job thinks;          /* takes in what was said, while nobody asks; id 0: has it in mind */
    bool waits;               /* the job is paused, see tavern.hear_tokens */
    size_t line;              /* index of the line that is being said */
    uint32_t past_tokens;     /* world, persona and examples: what is never forgotten */
    char *talk;               /* [talk_bytes] what was said since then, NUL behind it; */
    size_t talk_bytes, talk_known; /* the first talk_known are in the session, which then has */
    uint32_t known_tokens;    /* so many tokens */
    uint32_t reused_tokens;   /* what the newest job found in the cache */
    recollection recalled;    /* what came to mind lately */
    exl2_token strange[TAVERN_STRANGE_MAX]; /* [strange_count] first tokens of the others' names and roles */
    uint32_t strange_count;
    const char *mood;
    int trust;
    turn_state state;         /* of the game when his turn began, */
    char said[TURN_BYTES];    /* [said_bytes] and the turn so far, as JSON, NUL behind it */
    size_t said_bytes;
};

typedef struct tavern_line { /* something that was said */
    const npc *by;            /* NULL: the player, */
    const char *to;           /* to this name */
    char *text;               /* [bytes] so far, NUL behind it */
    size_t bytes, cap;
    bool ended;
    exl2_stop stop;
    turn turn;                /* zeroed: none, or cut */
    char deed[64];            /* what was done, in words; "" = nothing */
    uint64_t asked_ns;
    double first_ms;          /* from the question to the first word */
    uint32_t tokens, prompt_tokens; /* said; computed before it */
    uint32_t heard;           /* tokens since its first word */
    uint32_t reused_tokens;         /* found in the cache */
} tavern_line;

struct tavern { /* zeroed: closed */
    exl2_engine *engine;
    const cast *people;
    bool own_words;           /* the model is wide enough for them */
    float temperature;        /* 0 = always the likeliest token */
    uint64_t seed;            /* with a line's number, at least 1, added: never 0, for which the engine draws one */
    exl2_session world;
    npc npcs[CAST_SIZE];
    uint32_t ready;           /* people who have their persona in the cache */
    uint32_t thinking;        /* people who take in what was said; they can be asked all the same */
    tavern_line *lines;       /* [count] in the order in which they began */
    size_t count, cap;
    uint32_t hear_tokens;     /* a speaker of whose words so many tokens were heard is paused; 0 = never */
    uint64_t extra_ns;        /* inside the engine but for the frame's step; the frame loop counts and clears it */
    thing things[TURN_THINGS_MAX];
    uint32_t thing_count;
    uint32_t turns, invalid_turns; /* that ended; that were not what the game allows */
    samples grammar_ms;       /* to make each turn's grammar */
    uint64_t grammar_allocations;
    uint64_t prompt_computed, prompt_reused; /* tokens, over all jobs */
    char error[sizeof(((exl2_error *)0)->text)]; /* of a job that failed, else "" */
};

/* Those that return bool give false when the engine refuses, with the sentence in t->error. */
bool tavern_open(tavern *t, const host *h, const cast *c, uint32_t seed, float temperature);
bool tavern_is_ready(const tavern *t);                /* some frames after tavern_open */
bool tavern_ask(tavern *t, npc *n, const char *text); /* whoever is asked while he speaks stops speaking */
bool tavern_shout(tavern *t, const char *text);       /* all answer, in one batch */
uint32_t tavern_hush(tavern *t);                      /* everybody stops mid-word; how many there were */
void tavern_go_on(tavern *t);                         /* ends pauses, and hear_tokens */
uint32_t tavern_speakers(const tavern *t);
bool tavern_waits(const tavern *t);                   /* every speaker is paused, or there is none */
npc *tavern_find(tavern *t, const char *name, size_t bytes); /* in any case; NULL = nobody */
const char *tavern_things(const tavern *t, const npc *owner, char *out, size_t cap); /* their names, or "nothing" */
void tavern_close(tavern *t);                         /* after host_close, which ends its jobs */

#endif
