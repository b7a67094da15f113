/* tools.h: calls of tools: how each family of models writes them, the schema that a call must fit, and the reading of
   calls out of text.
   takes: the tools of a request as JSON, a template's text, texts of replies.
   gives: tools_of_template, tools_marks_of, tools_open, tools_keep, tools_close, tools_find, tools_schema,
          tools_relax, tools_parse, tools_parsed_free, tools_may_begin, tools_stream_next, tools_stream_free.
   owns:  a tools' tree until tools_close; a parsed reply's texts until tools_parsed_free.

   Pure functions: nothing here knows a model or a job. `false` from one that writes into a buffer means that memory ran
   out, unless its comment says more. */
#ifndef DEMO_TOOLS_H
#define DEMO_TOOLS_H

#include "../common/json_in.h"
#include "buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOOLS_MAX 128u
#define TOOLS_CALLS_MAX 8u /* calls of one reply */

/* ---- formats ---- */

typedef enum tools_format { TOOLS_AUTO, TOOLS_NONE, TOOLS_HERMES, TOOLS_LLAMA3, TOOLS_MISTRAL } tools_format;

typedef struct tools_marks { /* constants; no member is NULL */
    const char *mark;      /* begins a call in the text: a stop string where the model may choose */
    const char *after;     /* is given between the mark, once the model has written it, and the call's JSON */
    const char *forced;    /* is given at the beginning of a reply that must be a call; may be "" */
    const char *close;     /* is given after a call's JSON, before the model may open another */
    const char *arguments; /* name of the member of a call's JSON with its arguments */
    bool again;            /* the mark may come again after `close` */
    bool list;             /* the JSON is an array of calls; then nothing follows it */
} tools_marks;

/* text: the chat template; NULL counts as one without marks. Never AUTO or NONE: hermes if it has none of the marks. */
tools_format tools_of_template(const char *text);
const tools_marks *tools_marks_of(tools_format format); /* AUTO and NONE: those of hermes */

/* ---- the tools of a request ---- */

typedef struct tools_tool {
    const char *name;
    const json_value *parameters; /* the schema of its arguments; NULL: any object */
    bool strict;
    bool barred; /* it must not be called */
} tools_tool;

typedef struct tools { /* zeroed: none, nothing to free */
    json_value *tree;
    tools_tool tool[TOOLS_MAX];
    uint32_t count;
} tools;

/* json: request.tools, which must stay. false: memory, or no list of {"type", "function": {"name", ...}}. */
bool tools_open(tools *t, const char *json);
void tools_keep(tools *t, const char *const *names, uint32_t count); /* bars all others; count 0: none */
void tools_close(tools *t);
const tools_tool *tools_find(const tools *t, const char *name, size_t bytes); /* NULL: none that may be called */

/* The JSON schema of one call of a tool that is not barred (of 1 to `most` calls where the format's JSON is a list),
   appended to *out. Each tool's parameters get an $id of their own, so that their $refs hold. */
bool tools_schema(const tools *t, tools_format format, uint32_t most, buffer *out);
/* exl2_grammar_make has refused `schema` with this message ("... line L, column C, ..."): takes the keyword at that
   place out, and appends the tool's name and the keyword to *warnings ("get_weather: if"), with ", " before it where it
   is not empty. Then the caller compiles again. false: there is nothing that may be left out, memory ran out, or the
   tool has strict = true; the caller then answers 400 with the message. The schema got smaller at every true. */
bool tools_relax(const tools *t, buffer *schema, const char *message, buffer *warnings);

/* ---- calls out of text ---- */

typedef struct tools_call {
    const char *name;      /* ends with NUL; one of the request's tools */
    const char *arguments; /* the model's own bytes; ends with NUL */
    size_t bytes;
} tools_call;

typedef struct tools_parsed { /* zeroed: nothing to free */
    tools_call call[TOOLS_CALLS_MAX];
    uint32_t count;
    buffer content; /* the text without the calls, and without white space around it where there are calls */
    buffer texts;   /* what the calls point into */
} tools_parsed;

/* A whole reply that no grammar has bound. What looks like a call but is none (no JSON object, no name of a tool,
   arguments that are no object, one call too many) stays content, byte for byte. */
bool tools_parse(const tools *t, tools_format format, const char *text, size_t bytes, tools_parsed *out);
void tools_parsed_free(tools_parsed *p);
/* May the reply so far be a call that has no mark (llama3: it begins with a brace)? Such text is held back until it is
   whole, and then parsed. */
bool tools_may_begin(tools_format format, const char *text, size_t bytes);

/* ---- a call as it is being written ---- */

typedef struct tools_stream { /* zeroed: at the beginning of the JSON of a call, or of a list of calls */
    uint32_t call;   /* of the list, from 0; 0 where the JSON is one call */
    bool named;      /* its name was given */
    size_t sent;     /* bytes of its arguments that were given */
    buffer value;    /* what the last piece points into */
} tools_stream;

typedef struct tools_piece { /* valid until the next call with the same stream */
    uint32_t call;
    const char *name; /* ends with NUL; set once for each call, with no arguments in the same piece; else NULL */
    const char *text; /* the next bytes of the arguments as the model wrote them, whole characters; NULL with a name */
    size_t bytes;
} tools_piece;

/* json: all of the JSON so far, under the grammar of tools_schema. Call it until it returns false: nothing new, or
   value.failed. */
bool tools_stream_next(tools_stream *s, tools_format format, const char *json, size_t bytes, tools_piece *out);
void tools_stream_free(tools_stream *s);

#endif
