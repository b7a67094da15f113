/* render.c: `exl2 render`: chat messages to the text that the model's template makes of them, one JSON object a line.
   takes: a folder with tokenizer files; {"messages", "tools", "add_generation_prompt"} on stdin.
   gives: cli_render.
   owns:  nothing beyond the call.
   next:  bench.c */
#include "../common/memory.h"
#include "cli.h"
#include "lines.h"

#include <stdlib.h>
#include <string.h>

static bool has_zero(const json_value *text) /* the engine's texts end at one */
{
    return strlen(text->text) < text->text_bytes;
}

/* What is wrong with a message; NULL: nothing. */
static const char *find_fault(const json_value *role, const json_value *content)
{
    if (!role || role->kind != JSON_TEXT) {
        return "a message has no \"role\"";
    }
    if (content && content->kind != JSON_TEXT) {
        return "a message's \"content\" is neither a string nor null; content in parts is not supported";
    }
    if (has_zero(role) || (content && has_zero(content))) {
        return "a message holds the character U+0000";
    }
    return NULL;
}

/* [count] messages; their texts live in the tree. NULL, with the answer given: one is malformed. */
static exl2_message *read_messages(const json_value *array)
{
    exl2_message *messages = memory_take(array->child_count, sizeof *messages);
    exl2_message *next = messages;
    for (const json_value *item = array->child; item; item = item->next, next++) {
        const json_value *role = json_member(item, "role"), *content = json_member(item, "content");
        const char *fault = find_fault(role, content);
        if (fault) {
            lines_error(fault);
            free(messages);
            return NULL;
        }
        next->role = role->text;
        next->text = content ? content->text : NULL;
    }
    return messages;
}

static void render(host *h, const exl2_message *messages, size_t count, const exl2_chat_desc *d)
{
    char *text = NULL;
    size_t need = 4096;
    exl2_result result;
    do {
        size_t cap = need + 1;
        text = memory_grow(text, cap, 1);
        result = exl2_chat_render(h->engine, h->model, messages, count, d, text, cap, &need);
    } while (result == EXL2_ERR_TOO_SMALL);
    lines_text(h, result, "rendered", text, need);
    free(text);
}

static void answer(host *h, const json_value *request)
{
    const json_value *list = json_member(request, "messages"), *tools = json_member(request, "tools");
    const json_value *open_reply = json_member(request, "add_generation_prompt");
    if (!list || list->kind != JSON_ARRAY) {
        lines_error("\"messages\" is missing or is no array");
        return;
    }
    exl2_message *messages = read_messages(list);
    if (!messages) {
        return;
    }
    char *tools_text = tools ? memory_copy_text(tools->raw, tools->raw_bytes) : NULL;
    exl2_chat_desc d = { .tools = tools_text, .close_reply = !open_reply || open_reply->kind != JSON_TRUE };
    render(h, messages, list->child_count, &d);
    free(tools_text);
    free(messages);
}

int cli_render(int argc, char **argv)
{
    const char *path = NULL;
    const arg positional[] = { { "MODEL", ARG_TEXT, &path, NULL, "folder with tokenizer files; needs no weights" } };
    const args_desc d = { "exl2 render",
                          "Turns {\"messages\", \"tools\", \"add_generation_prompt\"} on each line of stdin into\n"
                          "{\"rendered\"} or {\"error\"}; of a message, role and content reach the template.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), NULL, 0 };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    return lines_run(path, answer);
}
