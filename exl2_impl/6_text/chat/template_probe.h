/* template_probe.h: finds out by rendering whether a chat template reads the variable `tools` and the tool calls of a
   message. Templates that ignore them drop them without an error.
   takes: a parsed template, the texts of its special tokens.
   gives: exl2__template_probe, exl2__template_probe_render. */
#ifndef EXL2__TEMPLATE_PROBE_H
#define EXL2__TEMPLATE_PROBE_H

#include "template.h"

#define EXL2__TEMPLATE_PROBE_BYTES (256u << 10) /* block of a probe's render; a probe that needs more is skipped */
#define EXL2__TEMPLATE_PROBE_STEPS (EXL2__TEMPLATE_STEPS_MAX / 16)

/* Renders into a block of EXL2__TEMPLATE_PROBE_BYTES, in at most `steps`, without a trace of errors. false: the render
   failed. */
EXL2__PRIVATE bool exl2__template_probe_render(const exl2__ctx *c, const exl2__template *t,
                                               const exl2__template_input *in, uint32_t steps, void *block,
                                               const char **text, size_t *bytes, const uint8_t **marks)
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
    run->steps = EXL2__TEMPLATE_STEPS_MAX - steps;
    return exl2__template_set_input(run, in) == EXL2_OK &&
           exl2__template_finish(run, text, bytes, marks) == EXL2_OK;
}

EXL2__PRIVATE bool exl2__template_probe_has(const char *text, size_t bytes, const char word[9])
{
    for (size_t at = 0; at + 8 <= bytes; at++) {
        if (memcmp(text + at, word, 8) == 0) {
            return true;
        }
    }
    return false;
}

/* Sets t->reads_tools and t->reads_tool_calls. in: the special tokens. Templates differ in the conversations that they
   accept, so several are tried: parts of one, with and without tools. */
EXL2__PRIVATE exl2_result exl2__template_probe(exl2__ctx *c, exl2__template *t, const exl2__template_input *tokens)
{
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"exl2tool\",\"description\":\"d\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"]}}}]";
    static const char calls[] = "[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"exl2call\","
        "\"arguments\":{\"a\":\"b\"}}}]";
    static const uint8_t parts[][2] = { { 1, 1 }, { 0, 2 }, { 1, 2 }, { 1, 3 }, { 0, 4 } }; /* first message, count */
    exl2_message talk[4] = { { .role = "system", .text = "s" }, { .role = "user", .text = "u" },
                             { .role = "assistant", .text = "", .tool_calls = calls },
                             { .role = "tool", .text = "r", .name = "f", .tool_call_id = "abcdefghi" } };
    exl2_chat_desc chat = { .now = "2025-01-01 00:00:00" };
    exl2__template_input in = *tokens;
    void *block = NULL;
    t->reads_tools = t->reads_tool_calls = false;
    if (!t->block) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__alloc(c, EXL2__TEMPLATE_PROBE_BYTES, 16, EXL2_MEM_SCRATCH, &block));
    in.chat = &chat;
    in.tool_calls = NULL;
    in.begun = NULL;
    for (size_t i = 0; i < 2 * EXL2__COUNT(parts) && !(t->reads_tools && t->reads_tool_calls); i++) {
        const char *text;
        const uint8_t *marks;
        size_t bytes;
        chat.tools = i % 2 ? NULL : tools;
        in.messages = talk + parts[i / 2][0];
        in.message_count = parts[i / 2][1];
        if (exl2__template_probe_render(c, t, &in, EXL2__TEMPLATE_PROBE_STEPS / 8, block, &text, &bytes, &marks)) {
            t->reads_tools = t->reads_tools || exl2__template_probe_has(text, bytes, "exl2tool");
            t->reads_tool_calls = t->reads_tool_calls || exl2__template_probe_has(text, bytes, "exl2call");
        }
    }
    exl2__free(c, block, EXL2__TEMPLATE_PROBE_BYTES, EXL2_MEM_SCRATCH);
    return EXL2_OK;
}

#endif
