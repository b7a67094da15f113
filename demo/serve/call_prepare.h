/* call_prepare.h: from a checked request to the desc of a job, and helpers of call.c.
   takes: a choice of a call.
   gives: call_prepare, call_choice_free, call_headers, call_echo, call_template, call_earlier; call_turn_text,
          call_turn_done.
   owns:  the ids of long prompts. */
#ifndef DEMO_CALL_PREPARE_H
#define DEMO_CALL_PREPARE_H

#include "call.h"

/* Fills in the choice's run. The error is for the client. */
void call_prepare(choice *c, request_error *error);
void call_choice_free(choice *c);
void call_headers(const call *c, char *out, size_t cap); /* x-warning, and that of a stream */
const char *call_template(const call *c); /* its text; NULL: none */
/* Earlier calls and their results as the template accepts them: as texts if it reads no calls, and with short ids if it
   is one of Mistral's. false: no memory. */
bool call_earlier(const server *s, const model *m, request *r);
void call_echo(choice *c); /* gives the prompt's text */

/* The part of a turn with reasoning or tools (call_turn.c). done: true if another job was started. */
bool call_turn_begin(choice *c, request_error *error);
void call_turn_text(choice *c, const engine_record *r);
bool call_turn_done(choice *c);
void call_turn_free(choice *c);

#endif
