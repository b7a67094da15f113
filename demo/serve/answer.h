/* answer.h: the bodies and chunks of an answer, in the shapes of OpenAI.
   takes: a call and its choices.
   gives: answer_ids, answer_whole, answer_started, answer_content, answer_reasoning, answer_call, answer_arguments,
          answer_finish, answer_end, answer_error_put, answer_error_event, answer_error_write.
   owns:  nothing; texts grow in the choice.

   A choice's content, reasoning and calls always grow in the choice. Where the call streams, each piece is also sent
   as a chunk at once. */
#ifndef DEMO_ANSWER_H
#define DEMO_ANSWER_H

#include "call.h"

void answer_started(choice *c);               /* the first chunk of a chat's choice */
/* record: what brought the text, for log-probabilities; NULL: none. */
void answer_content(choice *c, const char *text, size_t bytes, const engine_record *record);
void answer_echo(choice *c, const char *text, size_t bytes); /* the prompt, before all other text */
void answer_reasoning(choice *c, const char *text, size_t bytes);
void answer_call(choice *c);                  /* the newest of c->calls has its name */
void answer_arguments(choice *c, const char *text, size_t bytes); /* more of the newest call's arguments */
void answer_finish(choice *c);                /* the choice has ended */
void answer_end(call *c);                     /* all have: usage, [DONE] */
void answer_whole(const call *c, buffer *out); /* the answer that is not streamed */
void answer_ids(const exl2_token *ids, size_t count, bool with_ids, buffer *out); /* of endpoint_encode */
void answer_send(call *c);                    /* ends c->chunk, and sends it if the call streams */
void answer_error_put(buffer *b, const char *type, const char *code, const char *message); /* members of an object */
void answer_error_write(http_exchange *x, const char *type, const char *code, const char *message); /* as an event */
void answer_error_event(call *c, const char *type, const char *code, const char *message);
const char *answer_finish_reason(const choice *c);

/* answer_logprobs.c: adds the tokens of a record to the choice, or writes what was added as a member of b. */
void answer_logprobs_add(choice *c, const engine_record *record, const char *text, size_t bytes);
void answer_logprobs_prompt(choice *c, const engine_record *scores); /* echo: NULL: the first token, which has none */
void answer_logprobs_put(const choice *c, buffer *b);
void answer_logprobs_list(const choice *c, size_t from, buffer *b); /* of /v1/responses: those after `from` bytes */
void answer_logprobs_clear(choice *c);

#endif
