/* tavern.h: three people who know the same world. The world is prefilled once and each person's session is a fork of
   it, so its KV pages exist once. A session has the form of a play: "Stranger: ..." and the person's name are appended,
   and a job generates the person's turn; several jobs run at the same time. A turn is JSON, by a schema that is made
   from the current state of the game: words, mood, act, target, trust. The words stream; the act is done when the turn
   has ended. Only the words of a turn stay in the session, because a small model repeats what it reads often.
   takes: a loaded model, a cast.
   gives: tavern_open, tavern_ask, tavern_look, tavern_is_unsaid, tavern_shout, tavern_hush, tavern_resume,
          tavern_failed, tavern_close.
   owns:  the conversations and all lines. The sessions end with the engine. */
#ifndef NPC_TAVERN_H
#define NPC_TAVERN_H

#include "../common/host.h"
#include "../common/samples.h"
#include "cast.h"
#include "exl2.h"
#include "recall.h"
#include "turn.h"

#define TAVERN_TURN_TOKENS 110  /* most tokens of a turn; the grammar completes it within them */
#define TAVERN_BANNED_MAX 128
#define TAVERN_REPEAT_TOKENS 24 /* range of the repeat penalty: short, so that names and facts may return */
#define TAVERN_CONTEXT 2048     /* tokens of a session by default; when it is full the older half is dropped */

/* Smallest exl2_model_info.hidden at which a model reads the persona and answers in its own words. Narrower models
   (SmolLM2: 135M has 576, 360M has 960) repeat what they have just read, so they read examples. Wider models (1.7B has
   2048) would repeat the examples needlessly. */
#define TAVERN_OWN_WORDS 1024

typedef struct tavern tavern;
typedef struct npc npc;

typedef struct thing {
    char name[24];
    const npc *owner; /* NULL: the visitor */
} thing;

struct npc {
    tavern *place;
    const character *who;
    exl2_session session;
    exl2_lora_use lora;       /* of all jobs of the person; id 0: none */
    exl2_steer_use feels;     /* the same; its factor moves between two turns */
    exl2_job job;             /* job of the current turn; id 0: none */
    exl2_job thinks;          /* job that prefills the newest line while nobody asks; id 0: none */
    bool waits;               /* the job is paused; see tavern.hear_words */
    size_t line;              /* index of the line of the current turn */
    uint32_t past_tokens;     /* tokens of world, persona and examples, which are never dropped */
    char *talk;               /* [talk_bytes] text of the conversation since then, ends with NUL */
    size_t talk_bytes, talk_known; /* talk_known: bytes of `talk` that the session holds */
    uint32_t known_tokens;    /* tokens of the session with those bytes */
    uint32_t reused_tokens;   /* tokens that the newest job found in the cache */
    recollection recalled;    /* examples and evasions that were used lately; its `last` is of the current turn */
    const char *asked;        /* question of the current turn; NULL: of a restored evening */
    exl2_image picture;       /* of the current turn, which it leaves the session with; id 0: none */
    char together[2 * TURN_BYTES]; /* two questions in one, as the first was not answered */
    exl2_token banned[TAVERN_BANNED_MAX]; /* [banned_count] words of the plot, for answers in the model's own words */
    uint32_t banned_count;
    const char *mood;
    int trust;
    turn_state state;         /* of the game when the turn began */
    char said[TURN_BYTES];    /* [said_bytes] JSON of the turn so far, ends with NUL */
    size_t said_bytes;
};

typedef struct tavern_line { /* one line of the conversation */
    const npc *by;            /* NULL: the player */
    const char *to;           /* a line of the player: name of the person asked, or "all" */
    char *text;               /* [bytes] the words so far, ends with NUL */
    size_t bytes, cap;
    bool ended;
    exl2_stop stop;
    turn turn;                /* zeroed: no turn, or not complete */
    char deed[64];            /* the act in words; "" = none */
    uint64_t asked_ns;
    double first_ms;          /* from the question to the first word */
    uint32_t tokens, prompt_tokens; /* generated; computed of the prompt */
    uint32_t heard;           /* words that were shown, without an unfinished one */
    uint32_t reused_tokens;         /* tokens found in the cache */
} tavern_line;

struct tavern { /* zeroed: closed */
    exl2_engine *engine;
    const cast *people;
    exl2_token *ids;          /* [context] buffer for the tokens of a job's prompt */
    uint32_t context;         /* tokens of a session */
    bool own_words;           /* the model has at least TAVERN_OWN_WORDS */
    float temperature;        /* 0 = always the most likely token */
    bool one_by_one;          /* each token is sampled in a pass of its own */
    uint64_t seed;            /* a line's seed is this plus its number; never 0, which would mean a random seed */
    exl2_session world;
    npc npcs[CAST_SIZE];
    uint32_t ready;           /* number of people whose persona is in the cache */
    uint32_t thinking;        /* number of people with a `thinks` job; they can be asked all the same */
    tavern_line *lines;       /* [count] in order of their beginning */
    char *file;               /* the saved evening that texts point into; NULL: none was read */
    size_t count, cap;
    uint32_t hear_words;      /* a speaker is paused after this number of words; 0 = never */
    uint64_t extra_ns;        /* time in the engine outside of the frame's step; the frame loop reads and clears it */
    thing things[TURN_THINGS_MAX];
    uint32_t thing_count;
    uint32_t turns, invalid_turns; /* turns that have ended; those that the game does not allow. A turn that ended in a
                                      loop of words is allowed, but does nothing. */
    samples grammar_ms;       /* ms to make the grammar of each turn */
    uint64_t grammar_allocations;
    uint64_t prompt_computed, prompt_reused; /* tokens, over all jobs */
    uint64_t forgotten_tokens, kept_tokens;  /* trimmed from talks that outgrew the context; those that stayed */
    uint64_t spoken_tokens;                  /* tokens that were delivered */
    uint64_t turn_tokens, turn_passes;       /* of turns that ended with all their tokens */
    char error[sizeof(((exl2_error *)0)->text)]; /* message of a failure, else "" */
};

typedef struct tavern_options {
    uint32_t seed;
    float temperature;
    bool one_by_one;
    exl2_lora_use loras[CAST_SIZE]; /* adapter of each person; id 0: none */
    exl2_steer_use moods[CAST_SIZE]; /* control vector of each person; id 0: none */
} tavern_options;

/* A function that returns bool returns false if the engine fails; t->error then has the message. (tavern_is_ready and
   tavern_waits only ask.) */
bool tavern_open(tavern *t, const host *h, const cast *c, const tavern_options *o);
bool tavern_is_ready(const tavern *t);                /* becomes true some frames after tavern_open */
/* Ends a turn that the person is speaking. If it has not begun, the person hears both lines as one. */
bool tavern_ask(tavern *t, npc *n, const char *text);
/* Asks what the person sees. Only this turn has the picture; what was said of it stays. id: for the transcript. */
bool tavern_look(tavern *t, npc *n, exl2_image picture, const char *id);
bool tavern_is_unsaid(const tavern_line *l);          /* a turn that was ended before its first word: it is not shown */
bool tavern_shout(tavern *t, const char *text);       /* asks all three, in one batch */
uint32_t tavern_hush(tavern *t);                      /* ends all turns, mid-word; returns their number */
void tavern_go_on(tavern *t);                         /* ends pauses, and hear_words */
bool tavern_resume(tavern *t, npc *n, bool speaks);   /* goes on with the job of the person's restored session */
uint32_t tavern_speakers(const tavern *t);
double tavern_tokens_per_pass(const tavern *t);       /* that a pass brings a speaker, in turns that have ended */
bool tavern_waits(const tavern *t);                   /* every speaker is paused, or nobody speaks */
npc *tavern_find(tavern *t, const char *name, size_t bytes); /* ignores case; NULL = nobody */
const char *tavern_things(const tavern *t, const npc *owner, char *out, size_t cap); /* names, or "nothing" */
bool tavern_failed(tavern *t);                        /* notes the engine's newest error in t->error; false */
void tavern_close(tavern *t);                         /* call it after host_close, which ends the jobs */

#endif
