/* request.h: the JSON of a request to generate, checked, as one struct.
   takes: the body of /v1/completions, /v1/chat/completions, /v1/responses.
   gives: request_read, request_read_ids, request_read_loras, request_free, request_free_pixels.
   owns:  a request's texts and lists, until request_free.

   Nothing here knows the model but by the limits. Values that need it (the length of the prompt, a template's refusal,
   a grammar) are checked by the engine, before the first byte of the answer. */
#ifndef DEMO_REQUEST_H
#define DEMO_REQUEST_H

#include "buffer.h"
#include "../common/picture_file.h"
#include "exl2.h"
#include "request_fields.h"
#include "sampling_fields.h"

#define REQUEST_CHOICES_MAX 16u
#define REQUEST_PROMPTS_MAX 64u
#define REQUEST_STOPS_MAX 128u
#define REQUEST_TOOLS_MAX 128u
#define REQUEST_ALTS_MAX 20u
#define REQUEST_MESSAGES_MAX 8192u
#define REQUEST_PIXELS_MAX 8294400u /* of a picture: 3840 x 2160; what the server's models have room for */
#define REQUEST_PIXEL_BYTES ((uint64_t)128 << 20) /* of all pictures of a request, decoded */
#define REQUEST_ASKED_MAX 16u
#define REQUEST_LIST_BYTES 1500u /* of all stop strings: what the engine's lists hold */

typedef enum request_kind { REQUEST_COMPLETION, REQUEST_CHAT, REQUEST_RESPONSES } request_kind;

typedef struct request_prompt { /* of a completion: a text or ids */
    const char *text;
    size_t bytes;
    exl2_token *tokens; /* NULL: it is a text */
    size_t token_count;
} request_prompt;

typedef struct request_lora {
    const char *name;
    double scaling; /* 0: it is left out */
} request_lora;

typedef struct request_asked { /* JSON of a member, in asked_texts */
    const char *name; /* a constant */
    size_t at, bytes;
} request_asked;

typedef enum request_choice { REQUEST_TOOL_AUTO, REQUEST_TOOL_NONE, REQUEST_TOOL_REQUIRED } request_choice;

typedef struct request_limits {
    uint32_t vocab;
    exl2_preset preset;      /* of settings that are absent */
    uint32_t pictures_max;   /* of a request */
    const char *no_pictures; /* why pictures_max is 0: one sentence; NULL: the model has no tower */
} request_limits;

typedef struct request { /* zeroed: nothing to free */
    request_kind kind;
    const request_limits *limits; /* during request_read */
    char *body;              /* during request_read: a copy; `raw` of the tree points into it */
    json_value *tree;        /* during request_read; RESPONSES: of the body as a chat, and so is `body` */
    char *kept;              /* texts of the tree that the members below point to */
    request_asked asked[REQUEST_ASKED_MAX]; /* RESPONSES: members of the body, which the answer repeats */
    uint32_t asked_count;
    buffer asked_texts;
    buffer texts;            /* JSON that was made for the engine; not moved after request_read */
    buffer warnings;         /* names of settings without effect, with commas; for x-warning */
    const char *model;       /* NULL: none given */
    bool stream, include_usage;
    bool counts, no_ids;     /* of endpoint_encode: the answer is the prompt's ids, or their number alone */
    uint32_t n;
    /* Completions. */
    request_prompt prompts[REQUEST_PROMPTS_MAX];
    uint32_t prompt_count;
    bool echo, no_bos;
    /* Chat. */
    exl2_message *messages;
    size_t message_count;
    picture_file *pictures;  /* [picture_count] of all messages, in their order */
    exl2_image *images;      /* [picture_count] handles, made on the engine's thread; messages point to them */
    uint32_t picture_count;
    uint64_t picture_bytes;  /* of their pixels */
    buffer calls;            /* texts of call_earlier */
    const char *tools;       /* JSON array, also with tool_choice none; NULL: none */
    uint32_t tool_count;
    request_choice tool_choice;
    const char *tool_names[REQUEST_TOOLS_MAX]; /* AUTO, REQUIRED: the tools that may be called, of `tools` */
    uint32_t tool_name_count; /* 0: all of them */
    bool parallel_tools;
    const char *variables;   /* JSON object for the template; NULL: none */
    const char *prefix;      /* text after the opening of the reply; NULL: none */
    bool begun_reply;        /* the last message is continued */
    bool close_reply;        /* the prompt ends without the opening of a reply */
    int64_t reasoning_budget; /* tokens; -1: no limit */
    request_lora loras[EXL2_JOB_LORAS]; /* adapters */
    uint32_t lora_count;     /* 0: none named */
    /* Limits. */
    uint32_t max_tokens;     /* 0: what the context leaves */
    bool no_new_tokens;      /* echo with max_tokens 0: the prompt is scored only */
    uint32_t min_tokens;
    const char *stops[REQUEST_STOPS_MAX];
    uint32_t stop_count;
    exl2_token *stop_tokens; /* [stop_token_count] */
    uint32_t stop_token_count;
    const char *bans[REQUEST_STOPS_MAX];
    uint32_t ban_count;
    bool no_end, heal, show_markers;
    /* What is sampled. */
    sampling sampling;
    double guidance;         /* 0: off */
    const char *negative;
    bool logprobs;
    uint32_t top_logprobs;
    /* What the text may be. */
    bool has_grammar;
    bool whole_text;         /* the grammar is about all of the text, reasoning included (regex, grammar_string) */
    exl2_grammar_kind grammar;
    const char *source;
    size_t source_bytes;
    bool strict;
} request;

/* Reads the body. false: *error says what is wrong; free the request then, too. */
bool request_read(request *r, request_kind kind, const char *body, size_t bytes, const request_limits *limits,
                  request_error *error);
void request_free(request *r);
void request_free_pixels(request *r); /* of its pictures; the handles stay */

/* The ids of a list, which the caller frees; NULL: the error is set, for the member `param`. */
exl2_token *request_read_ids(request_error *error, const json_value *list, const char *param, uint32_t vocab,
                             size_t *count);
/* [{"name", "scaling"}] of a member named loras. false: it is absent or wrong. Names must differ. */
bool request_read_loras(fields *f, request_lora *out, uint32_t most, uint32_t *count);
/* The end of request_read: copies the texts that the request points to, and frees its tree and its body. */
bool request_keep(request *r, request_error *error);
/* The part about messages, tools and template; by request_read. */
bool request_read_chat(request *r, fields *f);
/* The body of /v1/responses as that of a chat, appended to *out; by request_read. */
bool request_responses_chat(const json_value *tree, buffer *out, request_error *error);
/* JSON array of messages -> r->messages; their texts lie in r->texts or the tree. */
bool request_read_messages(request *r, const json_value *list, request_error *error);
bool request_is_picture(const json_value *part); /* Is the part of a message's content a picture? */
/* Adds the picture of a part to r->pictures. */
bool request_read_picture(request *r, const json_value *part, request_error *error);

#endif
