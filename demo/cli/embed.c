/* embed.c: `exl2 embed`: makes vectors of texts.
   takes: a model folder; a text, ids, or a file of JSON lines with one of them each.
   gives: cli_embed. */
#include "../common/host.h"
#include "../common/json_in.h"
#include "../common/json_out.h"
#include "../common/memory.h"
#include "../common/text_file.h"
#include "cli.h"
#include "embedding_jobs.h"
#include "ids.h"

#include <stdlib.h>
#include <string.h>

#define EMBED_JOBS 32u /* lines that are worked on together */

typedef struct embed_options {
    const char *path, *text, *text_file, *ids_file, *lines;
    uint32_t pool, layer; /* pool: exl2_embed_pool; 0 = what the folder says */
    bool no_unit, json;
    host_options host;
    exl2_model_desc model;
} embed_options;

typedef struct embed {
    const embed_options *options;
    host h;
    exl2_embed_desc desc;
    embedding_job items[EMBED_JOBS];
    uint32_t count; /* of those in work */
} embed;

static const char *const pool_names[] = { "off", "last", "mean", "first" };

/* Starts the job of a prompt; an error goes to the item. */
static void start(embed *x, exl2_prompt prompt)
{
    embedding_job *item = &x->items[x->count++];
    exl2_job_desc d = { .model = x->h.model, .prompt = prompt, .embed = x->desc, .loras = x->h.loras.uses,
                        .lora_count = x->h.loras.count, .on_event = embedding_jobs_hear, .user = item };
    item->done = item->good = false;
    item->error[0] = 0;
    if (exl2_job_start(x->h.engine, &d, NULL) < 0) {
        exl2_error error;
        exl2_last_error(x->h.engine, &error);
        snprintf(item->error, sizeof item->error, "%s", error.text);
        item->done = true;
    }
}

static void reject(embed *x, const char *sentence)
{
    embedding_job *item = &x->items[x->count++];
    item->done = true;
    item->good = false;
    snprintf(item->error, sizeof item->error, "%s", sentence);
}

static void print_item(const embed *x, const embedding_job *item, bool json)
{
    if (!json) {
        for (uint32_t i = 0; i < x->h.info.hidden; i++) {
            printf("%s%.9g", i ? " " : "", (double)item->values[i]);
        }
        printf("\n");
        return;
    }
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    if (!item->good) {
        json_out_string(&j, "error", item->error);
        json_out_end(&j);
        return;
    }
    json_out_string(&j, "pool", pool_names[x->desc.pool]);
    json_out_bool(&j, "unit", !x->desc.raw);
    json_out_uint(&j, "tokens", item->tokens);
    json_out_array(&j, "embedding");
    for (uint32_t i = 0; i < x->h.info.hidden; i++) {
        json_out_number(&j, NULL, (double)item->values[i]);
    }
    json_out_end(&j);
    json_out_end(&j);
}

/* ---- one text ---- */

/* Whether the prompt has anything to read; else a message is printed, for exit code 2. */
static bool check_text(const embed_options *o, size_t count, const char *what)
{
    if (count == 0) {
        fprintf(stderr, "there is no text to embed: %s is empty\n", o->text ? "--text" : what);
    }
    return count > 0;
}

static int run_one(embed *x)
{
    const embed_options *o = x->options;
    ids list = { NULL, 0 };
    char *text = NULL;
    size_t bytes = o->text ? strlen(o->text) : 0;
    int code = 1;
    exl2_prompt prompt = { .text = o->text, .text_bytes = bytes, .flags = EXL2_TEXT_END };
    if (o->text_file && (text = text_file_read(o->text_file, &bytes)) != NULL) {
        prompt.text = text;
        prompt.text_bytes = bytes;
    }
    bool there = o->ids_file ? ids_from_json_file(o->ids_file, &list) : prompt.text != NULL;
    if (o->ids_file) {
        prompt = (exl2_prompt){ .tokens = list.items, .token_count = list.count };
    }
    if (there && !check_text(o, o->ids_file ? list.count : bytes, o->ids_file ? o->ids_file : o->text_file)) {
        code = CLI_EXIT_USAGE;
    } else if (there) {
        start(x, prompt);
        if (embedding_jobs_finish(&x->h, x->items, x->count) && !x->items[0].good) {
            fprintf(stderr, "%s\n", x->items[0].error);
        } else if (x->items[0].good) {
            print_item(x, &x->items[0], o->json);
            code = 0;
        }
    }
    free(list.items);
    free(text);
    return code;
}

/* ---- lines ---- */

static void start_line(embed *x, const char *line, size_t bytes)
{
    const char *error;
    json_value *request = json_read(line, bytes, &error);
    const json_value *text = request ? json_member(request, "text") : NULL, *list = json_member(request, "ids");
    ids tokens = { NULL, 0 };
    if (!request || request->kind != JSON_OBJECT) {
        reject(x, request ? "the line is not a JSON object" : error);
    } else if (text && text->kind == JSON_TEXT && !list) {
        bool empty = text->text_bytes == 0;
        empty ? reject(x, "\"text\" is empty")
              : start(x, (exl2_prompt){ .text = text->text, .text_bytes = text->text_bytes, .flags = EXL2_TEXT_END });
    } else if (list && !text && ids_from_json(list, &tokens) && tokens.count) {
        start(x, (exl2_prompt){ .tokens = tokens.items, .token_count = tokens.count });
    } else {
        reject(x, "the line needs either \"text\", a string, or \"ids\", token ids");
    }
    free(tokens.items);
    json_free(request);
}

static bool print_items(embed *x)
{
    if (!embedding_jobs_finish(&x->h, x->items, x->count)) {
        return false;
    }
    for (uint32_t i = 0; i < x->count; i++) {
        print_item(x, &x->items[i], true);
    }
    x->count = 0;
    return true;
}

static int run_lines(embed *x)
{
    const char *name = x->options->lines;
    bool is_stdin = strcmp(name, "-") == 0, good = true;
    FILE *file = is_stdin ? stdin : text_file_open(name, "rb");
    char *line = NULL;
    size_t cap = 0, bytes, lines = 0;
    if (!file) {
        fprintf(stderr, "%s cannot be read\n", name);
        return 1;
    }
    while (good && !ferror(stdout) && text_line_read(file, &line, &cap, &bytes)) {
        lines++;
        start_line(x, line, bytes);
        good = x->count < EMBED_JOBS || print_items(x);
    }
    good = good && print_items(x);
    if (ferror(file)) {
        fprintf(stderr, "%s cannot be read\n", name);
        good = false;
    }
    free(line);
    if (!is_stdin) {
        fclose(file);
    }
    if (good && lines == 0) {
        fprintf(stderr, "there is no text to embed: %s is empty\n", name);
        return CLI_EXIT_USAGE;
    }
    return good ? 0 : 1;
}

/* ---- the command ---- */

static args_result check_flags(const args_desc *d, const embed_options *o)
{
    int given = (o->text != NULL) + (o->text_file != NULL) + (o->ids_file != NULL) + (o->lines != NULL);
    if (given == 0) {
        return args_wrong(d, "there is no text to embed: give --text, --text-file, --ids-file or --lines");
    }
    return given == 1 ? ARGS_OK : args_wrong(d, "give only one of --text, --text-file, --ids-file and --lines");
}

/* What the folder says of its embeddings, unless flags say otherwise. */
static void choose(embed *x)
{
    const embed_options *o = x->options;
    exl2_embed_pool own = x->h.info.embed_pool ? x->h.info.embed_pool : EXL2_EMBED_LAST;
    x->desc.pool = o->pool ? (exl2_embed_pool)o->pool : own;
    x->desc.raw = o->no_unit || x->h.info.embed_raw;
    x->desc.layer = o->layer;
    for (uint32_t i = 0; i < EMBED_JOBS; i++) {
        x->items[i].values = memory_take(x->h.info.hidden, sizeof(float));
    }
}

int cli_embed(int argc, char **argv)
{
    static embed x; /* it is large */
    embed_options o = { .host = { .max_jobs = EMBED_JOBS, .max_sessions = EMBED_JOBS } };
    const arg positional[] = { { "MODEL", ARG_TEXT, &o.path, NULL, "model folder" } };
    const arg flags[] = {
        { "--text", ARG_TEXT, &o.text, "T", "text to embed" },
        { "--text-file", ARG_TEXT, &o.text_file, "FILE", "file with a text to embed" },
        { "--ids-file", ARG_TEXT, &o.ids_file, "FILE", "token ids to embed: a JSON array" },
        { "--lines", ARG_TEXT, &o.lines, "FILE",
          "JSON lines with \"text\" or \"ids\", each answered by one; - = stdin" },
        { "--pool", ARG_CHOICE, &o.pool, "auto|last|mean|first",
          "whose states make the vector (what the folder says, else last)" },
        { "--no-unit", ARG_BOOL, &o.no_unit, NULL, "does not divide the vector by its length" },
        { "--layer", ARG_U32, &o.layer, "N", "the residual after block N (the states after the final norm)" },
        HOST_CONTEXT_ARGS(o.model),
        HOST_LORA_ARG(o.host),
        HOST_ARGS(o.host),
        { "--json", ARG_BOOL, &o.json, NULL, "prints JSON" },
    };
    const args_desc d = { "exl2 embed",
                          "Makes vectors of texts. Those of texts that mean the same have a large dot product.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = host_parse(&d, argc, argv, &o.host);
    if (parsed == ARGS_OK) {
        parsed = check_flags(&d, &o);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    int code = 1;
    x.options = &o;
    o.model.path = o.path;
    if (host_open(&x.h, &o.host) && host_load(&x.h, &o.model, o.lines ? 2 : 1)) {
        choose(&x);
        code = o.lines ? run_lines(&x) : run_one(&x);
    }
    host_close(&x.h);
    for (uint32_t i = 0; i < EMBED_JOBS; i++) {
        free(x.items[i].values);
    }
    return code;
}
