/* call_turn.h: the state of a chat's choice with reasoning or tools, for call_turn.c and call_tools.c alone.
   takes: call.h.
   gives: turn, turn_phase; turn_tools_begin, turn_call_text, turn_is_marker, turn_inside, turn_prefix.
   owns:  nothing; call_turn_free frees a turn.

   A turn is a chain of jobs in one session. Each job has a phase:
     FREE     text is split into reasoning and content. With tools, the mark of a call is a stop string.
     HOLD     text is kept until its end, and then read as a whole, for a grammar of the client's own.
     THINK    reasoning only, until its closing tag, which is a stop string; or until the budget is used up.
     PROBE    with a schema and tools: the first token decides. Its text is taken back unless it is a mark.
     GRAMMAR  content under the schema.
     CALL     JSON of a call under the schema of the tools.
     AFTER    a call has ended: may another begin? */
#ifndef DEMO_CALL_TURN_H
#define DEMO_CALL_TURN_H

#include "call.h"
#include "reasoning.h"
#include "tools.h"
#include "tools_text.h"

typedef enum turn_phase {
    TURN_FREE,
    TURN_HOLD,
    TURN_THINK,
    TURN_PROBE,
    TURN_GRAMMAR,
    TURN_CALL,
    TURN_AFTER
} turn_phase;

typedef struct turn {
    turn_phase phase;
    reasoning_tags tags;
    reasoning splitter;
    bool inside;             /* the prompt ends inside of an open tag */
    bool calls;              /* there are tools that may be called */
    tools tools;
    tools_format format;
    const tools_marks *marks;
    tools_text text;         /* messages for a template that reads no tools */
    buffer schema;           /* of a call */
    tools_stream stream;
    buffer json;             /* of the call that is being written */
    uint32_t first_call;     /* calls before this JSON */
    buffer held;             /* content that may be a call; the text of HOLD */
    bool plain;              /* the content is none: nothing is held any more */
    const char *stops[REQUEST_STOPS_MAX + 1]; /* the request's, and one of ours as the last */
    bool has_stop;           /* the job has a stop string of ours */
    uint32_t stop_at;        /* index of that stop string */
    uint32_t given_count;    /* tokens of `given` */
    buffer opening, given;   /* text after the opening of the reply; what follows a job */
    bool has_format;
    exl2_grammar_desc grammar; /* of response_format or json_schema */
} turn;

/* call_tools.c: tools, their marks and their schema, which compiles; sets the messages of the desc. */
bool turn_tools_begin(choice *c, turn *t, request_error *error);
void turn_call_text(choice *c, turn *t, const char *text, size_t bytes); /* more JSON of a call */
void turn_held_end(choice *c, turn *t);                                   /* held text is read as a whole */
bool turn_is_marker(const choice *c, const char *text); /* the text is a special token, which text leaves out */

#endif
