/* tokenize.c: `exl2 tokenize`: converts text to ids and back, one JSON object per line.
   takes: a folder with tokenizer files; {"text", "special", "add_bos"} or {"ids", "skip_special"} on stdin.
   gives: cli_tokenize. */
#include "../common/memory.h"
#include "cli.h"
#include "ids.h"
#include "lines.h"

#include <stdlib.h>

/* Is the member present, and of this kind? */
static bool member_is(const json_value *request, const char *key, json_kind kind)
{
    const json_value *member = json_member(request, key);
    return member && member->kind == kind;
}

static void encode(host *h, const json_value *request, void *user)
{
    (void)user;
    const json_value *text = json_member(request, "text");
    uint32_t flags = member_is(request, "special", JSON_FALSE) ? EXL2_TEXT_PLAIN : 0;
    flags |= member_is(request, "add_bos", JSON_FALSE) ? EXL2_TEXT_NO_BOS : 0;
    ids list;
    if (!text || text->kind != JSON_TEXT) {
        lines_error("\"text\" is missing or not a string");
        return;
    }
    if (ids_from_text(h->engine, h->model, text->text, text->text_bytes, flags, &list) < 0) {
        lines_engine_error(h);
    } else {
        json_out j = { .file = stdout };
        json_out_object(&j, NULL);
        json_out_ids(&j, "ids", list.items, list.count);
        json_out_end(&j);
    }
    free(list.items);
}

static void decode(host *h, const json_value *request, void *user)
{
    (void)user;
    uint32_t flags = member_is(request, "skip_special", JSON_TRUE) ? EXL2_TEXT_SKIP_MARKERS : 0;
    ids list;
    if (!ids_from_json(json_member(request, "ids"), &list)) {
        lines_error("\"ids\" is missing or not an array of token ids");
        free(list.items);
        return;
    }
    char *text = NULL;
    size_t need = list.count * 8 + 16;
    exl2_result result;
    do {
        size_t cap = need + 1;
        text = memory_grow(text, cap, 1);
        result = exl2_detokenize(h->engine, h->model, list.items, list.count, flags, text, cap, &need);
    } while (result == EXL2_ERR_TOO_SMALL);
    lines_text(h, result, "text", text, need);
    free(text);
    free(list.items);
}

int cli_tokenize(int argc, char **argv)
{
    const char *path = NULL;
    bool backwards = false;
    const arg positional[] = { { "MODEL", ARG_TEXT, &path, NULL, "folder with tokenizer.json; needs no weights" } };
    const arg flags[] = {
        { "--decode", ARG_BOOL, &backwards, NULL, "the other way round: {\"ids\", \"skip_special\"} to {\"text\"}" },
    };
    const args_desc d = { "exl2 tokenize",
                          "Turns {\"text\", \"special\", \"add_bos\"} on each line of stdin into {\"ids\"}. BOS comes "
                          "first if the tokenizer's files say so; no other file is read.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    return lines_run(path, backwards ? decode : encode, NULL);
}
