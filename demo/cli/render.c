/* render.c: `exl2 render`: renders chat messages with a chat template, one JSON object per line.
   takes: a folder with tokenizer files; {"messages", "tools", "documents", "add_generation_prompt",
          "continue_final_message", "kwargs", "template"} on stdin.
   gives: cli_render. */
#include "../common/memory.h"
#include "../common/text_file.h"
#include "cli.h"
#include "lines.h"
#include "template.h"

#include <stdlib.h>
#include <string.h>

/* Copy of the source text of the value, to be freed; NULL if there is no value. */
static char *copy_raw(const json_value *value)
{
    return value ? memory_copy_text(value->raw, value->raw_bytes) : NULL;
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

static void answer(host *h, const json_value *request, void *user)
{
    exl2_chat_desc d = *(const exl2_chat_desc *)user;
    const json_value *list = json_member(request, "messages"), *name = json_member(request, "template");
    const json_value *open_reply = json_member(request, "add_generation_prompt");
    const json_value *begun = json_member(request, "continue_final_message");
    bool opens = open_reply && open_reply->kind == JSON_TRUE;
    d.begun_reply = d.begun_reply || (begun && begun->kind == JSON_TRUE);
    if (opens && d.begun_reply) {
        lines_error("a reply that is begun has its opening: \"add_generation_prompt\" must not be true");
        return;
    }
    if (!list || list->kind != JSON_ARRAY) {
        lines_error("\"messages\" is missing or not an array");
        return;
    }
    exl2_message *messages = memory_take(list->child_count, sizeof *messages);
    char *tools = copy_raw(json_member(request, "tools")), *documents = copy_raw(json_member(request, "documents"));
    char *variables = copy_raw(json_member(request, "kwargs"));
    size_t count = 0;
    for (const json_value *item = list->child; item; item = item->next, count++) {
        const json_value *role = json_member(item, "role");
        messages[count].fields = copy_raw(item);
        messages[count].role = role && role->kind == JSON_TEXT ? role->text : NULL;
    }
    d.tools = tools;
    d.documents = documents;
    d.variables = variables;
    d.template_name = name && name->kind == JSON_TEXT && !d.template_text ? name->text : d.template_name;
    d.close_reply = !opens;
    render(h, messages, count, &d);
    while (count-- > 0) {
        free((void *)(uintptr_t)messages[count].fields);
    }
    free(variables);
    free(documents);
    free(tools);
    free(messages);
}

int cli_render(int argc, char **argv)
{
    const char *path = NULL, *template = NULL, *tokens = NULL;
    exl2_chat_desc chat = { 0 };
    const arg positional[] = { { "MODEL", ARG_TEXT, &path, NULL, "folder with tokenizer files; needs no weights" } };
    const arg flags[] = {
        TEMPLATE_ARG(template),
        { "--tokens", ARG_TEXT, &tokens, "FILE",
          "JSON object {\"bos_token\": ..} that replaces the model's special tokens" },
        { "--continue", ARG_BOOL, &chat.begun_reply, NULL,
          "the last message begins the reply: ends after its text, like \"continue_final_message\"" },
        { "--now", ARG_TEXT, &chat.now, "T", "'YYYY-MM-DD HH:MM:SS' for strftime_now (the clock)" },
    };
    const args_desc d = { "exl2 render",
                          "Turns {\"messages\", \"tools\", \"documents\", \"add_generation_prompt\",\n"
                          "\"continue_final_message\", \"kwargs\", \"template\"} on each line of stdin into\n"
                          "{\"rendered\"} or {\"error\"}.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    char *text = NULL, *tokens_text = NULL;
    size_t bytes;
    bool good = template_choose(template, &chat, &text);
    if (good && tokens) {
        chat.special_tokens = tokens_text = text_file_read(tokens, &bytes);
        good = tokens_text != NULL;
    }
    int code = good ? lines_run(path, answer, &chat) : 1;
    free(tokens_text);
    free(text);
    return code;
}
