/* template_probe.h: finds out by rendering whether a chat template reads the variable `tools` and the tool calls of a
   message. Templates that ignore them drop them without an error.
   takes: a parsed template, the texts of its special tokens.
   gives: exl2__template_probe, exl2__template_probe_render.
   owns:  nothing. */
#ifndef EXL2__TEMPLATE_PROBE_H
#define EXL2__TEMPLATE_PROBE_H

#include "template.h"

#define EXL2__TEMPLATE_PROBE_BYTES (256u << 10) /* block of a probe's render; a probe that needs more is skipped */
#define EXL2__TEMPLATE_PROBE_STEPS (EXL2__TEMPLATE_STEPS_MAX / 16)
#define EXL2__TEMPLATE_PROBE_WORD "exl2probe" /* in no template; ASCII, because printed lists escape other characters */

/* Renders into a block of EXL2__TEMPLATE_PROBE_BYTES without a trace of errors. false: the render failed. */
static bool exl2__template_probe_render(const exl2__ctx *c, const exl2__template *t, const exl2__template_input *in,
                                        void *block, const char **text, size_t *bytes, const uint8_t **marks)
{
    /* A context without the logger and the error, because errors of a probe are not reported. The error is not copied:
       another thread may hold its lock at this moment, and the copy would stay locked for ever. */
    exl2__ctx quiet = { .allocator = c->allocator, .files = c->files, .zones = c->zones, .parallel = c->parallel,
                        .host_bytes = c->host_bytes, .host_peak = c->host_peak, .host_bytes_max = c->host_bytes_max,
                        .allocations = c->allocations };
    exl2__template_run *run;
    if (exl2__template_frame_open(&quiet, t, block, EXL2__TEMPLATE_PROBE_BYTES, &run) < 0) {
        return false;
    }
    run->steps = EXL2__TEMPLATE_STEPS_MAX - EXL2__TEMPLATE_PROBE_STEPS;
    return exl2__template_set_input(run, in) == EXL2_OK &&
           exl2__template_finish(run, text, bytes, marks) == EXL2_OK;
}

/* Whether the render of a conversation contains the word that only its tools or tool calls have. */
static bool exl2__template_probe_shows(const exl2__ctx *c, const exl2__template *t, exl2__template_input *in,
                                       void *block)
{
    const char *text;
    const uint8_t *marks;
    size_t bytes;
    if (!exl2__template_probe_render(c, t, in, block, &text, &bytes, &marks)) {
        return false;
    }
    for (size_t at = 0; at + sizeof EXL2__TEMPLATE_PROBE_WORD <= bytes + 1; at++) {
        if (memcmp(text + at, EXL2__TEMPLATE_PROBE_WORD, sizeof EXL2__TEMPLATE_PROBE_WORD - 1) == 0) {
            return true;
        }
    }
    return false;
}

/* Sets t->reads_tools and t->reads_tool_calls. in: the special tokens. Templates differ in the conversations that they
   accept, so several are tried. */
static exl2_result exl2__template_probe(exl2__ctx *c, exl2__template *t, const exl2__template_input *tokens)
{
    static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"" EXL2__TEMPLATE_PROBE_WORD
        "\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": "
        "{\"type\": \"string\", "
        "\"description\": \"d\"}}, \"required\": [\"a\"]}}}]";
    static const char plain_tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
        "\"description\": \"d\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";
    static const char calls[] = "[{\"id\": \"abcdefghi\", \"type\": \"function\", \"function\": {\"name\": "
        "\"" EXL2__TEMPLATE_PROBE_WORD "\", \"arguments\": {\"a\": \"b\"}}}]";
    static const exl2_message talk[] = {
        { .role = "system", .text = "s" }, { .role = "user", .text = "u" },
        { .role = "assistant", .text = "", .tool_calls = calls },
        { .role = "tool", .text = "r", .name = "f", .tool_call_id = "abcdefghi" },
    };
    static const exl2_message textless[] = {
        { .role = "user", .text = "u" }, { .role = "assistant", .tool_calls = calls },
        { .role = "tool", .text = "r", .name = "f", .tool_call_id = "abcdefghi" },
    };
    const struct {
        const exl2_message *messages;
        size_t count;
        const char *tools;
        bool *reads;
    } rows[] = {
        { talk + 1, 1, tools, &t->reads_tools }, { talk, 2, tools, &t->reads_tools },
        { talk + 1, 3, plain_tools, &t->reads_tool_calls }, { talk, 4, plain_tools, &t->reads_tool_calls },
        { talk + 1, 2, NULL, &t->reads_tool_calls }, { textless, 3, plain_tools, &t->reads_tool_calls },
        { textless, 2, NULL, &t->reads_tool_calls },
    };
    void *block = NULL;
    t->reads_tools = t->reads_tool_calls = false;
    if (!t->block) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__alloc(c, EXL2__TEMPLATE_PROBE_BYTES, 16, EXL2_MEM_SCRATCH, &block));
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        const exl2_chat_desc chat = { .now = "2025-01-01 00:00:00", .tools = rows[i].tools };
        exl2__template_input in = *tokens;
        in.messages = rows[i].messages;
        in.message_count = rows[i].count;
        in.chat = &chat;
        in.tool_calls = NULL;
        in.begun = NULL;
        *rows[i].reads = *rows[i].reads || exl2__template_probe_shows(c, t, &in, block);
    }
    exl2__free(c, block, EXL2__TEMPLATE_PROBE_BYTES, EXL2_MEM_SCRATCH);
    return EXL2_OK;
}

#endif
