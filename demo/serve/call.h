/* call.h: one request to generate, from its checked JSON to the last byte of its answer.
   takes: an exchange, a model, a request.
   gives: call, choice; call_begin, call_record, call_gone, call_room, call_cancel.
   owns:  the request, its runs, and what is written of its answer.

   A request has prompts x n choices, each with a run of the engine's thread. Records of a run become text, the text
   becomes parts (content, reasoning, calls of tools: turn.h), and parts become chunks of a stream or grow until the
   whole answer is written (answer.h). */
#ifndef DEMO_CALL_H
#define DEMO_CALL_H

#include "answer_responses.h"
#include "request.h"
#include "server.h"

typedef struct tool_call { /* that the model has made */
    char id[30];           /* "call_" and 24 hex digits */
    buffer name, arguments;
} tool_call;

#define CALL_TOOLS_MAX 8u  /* calls of one answer */

typedef struct choice {
    call *call;
    uint32_t index, prompt;
    engine_run run;
    exl2_token *ids;          /* the prompt as ids, where it was long or is echoed; NULL: as text or messages. Owned by
                                 the first choice of a prompt */
    size_t id_count;
    bool echoes;              /* the prompt's text has not yet been given */
    struct turn *turn;        /* reasoning and tools; NULL: all text is content */
    bool started, ended, told; /* told: the chunk with the finish_reason was sent */
    buffer content, reasoning;
    tool_call calls[CALL_TOOLS_MAX];
    uint32_t call_count;
    buffer logprobs;          /* chat: items; completions: the members, see answer_logprobs.c */
    buffer token_texts, token_logprobs, token_tops, token_offsets;
    uint32_t offset;          /* code points of the text so far */
    exl2_stop stop;
    exl2_job_stats stats;     /* of the newest job */
    uint32_t prompt_tokens, cached_tokens, new_tokens, reasoning_tokens; /* of all jobs */
    uint64_t prefill_ns, decode_ns;
    uint64_t first_ns, last_ns; /* when the first and the newest text came; 0: none yet */
} choice;

struct call {
    owner owner;
    server *server;
    http_exchange *x;         /* NULL: the client has gone, or the answer is complete */
    model *model;
    request request;
    choice *choices;
    uint32_t count, ended;
    engine_batch batch;
    engine_run **runs;
    char id[40];              /* "chatcmpl-..." */
    char *template_text;      /* a copy of --template's, which may be switched while it waits; NULL: the model's */
    int64_t created;
    uint64_t begin_ns;
    bool begun;               /* the stream's head is sent */
    bool failed;              /* an error was told */
    bool paused;              /* the stream is full */
    buffer chunk;             /* scratch of a chunk */
    responses responses;      /* of /v1/responses */
    adapter *adapters[EXL2_JOB_LORAS]; /* that it uses, and how */
    exl2_lora_use uses[EXL2_JOB_LORAS];
    uint32_t use_count, uses_epoch; /* uses_epoch: engine_epoch of the handles */
    call *next, **link;
};

/* Takes the request (it is empty afterwards) and answers the exchange in the end; if it cannot begin, at once. */
void call_begin(server *s, http_exchange *x, model *m, request *r);
void call_record(choice *c, const engine_record *r); /* in the order of engine_read */
void call_records_end(choice *c);                    /* after the last record of an engine_take; may free the call */
void call_gone(call *c);                             /* on_gone: the exchange is invalid */
void call_room(call *c);                             /* on_room */
void call_end_all(server *s, const char *why);       /* fails all calls: the server stops */
/* Ends all its runs; the client hears the message with this status, or as an error event. */
void call_fail(call *c, int status, const char *code, const char *message);
void call_lacks_memory(call *c); /* fails it: some of its answer could not be kept */

#endif
