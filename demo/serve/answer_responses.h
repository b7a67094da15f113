/* answer_responses.h: answers of /v1/responses: items of an output, and the events of OpenAI in their order.
   takes: a choice; what answer.c gets of it.
   gives: responses, responses_started, responses_text, responses_call, responses_arguments, responses_end,
          responses_whole, responses_error, responses_free.
   owns:  the items that have ended. */
#ifndef DEMO_ANSWER_RESPONSES_H
#define DEMO_ANSWER_RESPONSES_H

#include "buffer.h"

#include <stdbool.h>

struct call;
struct choice;

typedef enum responses_item { RESPONSES_NONE, RESPONSES_MESSAGE, RESPONSES_REASONING, RESPONSES_CALL } responses_item;

typedef struct responses { /* zeroed: before the first item */
    responses_item open;  /* the item that is being written */
    char id[40];          /* of it */
    size_t from;          /* bytes of the choice's content or reasoning before it */
    size_t logprobs_from; /* bytes of the choice's log-probabilities that events have had */
    uint32_t index;       /* of it in the output */
    uint32_t sequence;    /* number of the next event */
    buffer items;         /* JSON of the items that have ended, with commas */
} responses;

void responses_started(struct choice *c);
/* Before the text is added to the choice. */
void responses_text(struct choice *c, responses_item kind, const char *text, size_t bytes);
void responses_call(struct choice *c); /* the newest of c->calls has its name */
void responses_arguments(struct choice *c, const char *text, size_t bytes);
void responses_finish(struct choice *c); /* the choice has ended */
void responses_end(struct call *c);      /* the last event */
void responses_whole(const struct call *c, buffer *out);
void responses_error(struct call *c, const char *code, const char *message);
void responses_free(responses *r);

#endif
