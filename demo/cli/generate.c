/* generate.c: `exl2 generate`: one generation, streamed as text or as one JSON object at its end.
   takes: a model folder; a prompt, ids or a chat message.
   gives: cli_generate. */
#define _POSIX_C_SOURCE 200809L
#include "../common/host.h"
#include "../common/images.h"
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "../common/memory.h"
#include "../common/text_file.h"
#include "cli.h"
#include "ids.h"
#include "logprobs.h"
#include "sampling.h"
#include "template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GENERATE_STEP_US 30000u /* Ctrl-C is checked after each step of this length */

typedef struct generate_options {
    const char *path, *prompt, *prompt_file, *ids, *system, *begin, *template, *negative;
    arg_texts schemas, ebnfs, regexes, choices; /* the text fits them all */
    bool strict;
    bool chat, json, heal;
    images_options images;
    exl2_draft_desc guesses;
    const char *save, *load;
    bool save_kv;
    uint32_t save_after; /* tokens; 0 = at the end */
    uint32_t max_tokens, min_tokens;
    uint32_t logprobs; /* alternatives per token; UINT32_MAX: not requested */
    float guidance;
    arg_texts stops, bans;
    arg_numbers stop_ids;
    sampling_options sampling;
    host_options host;
    exl2_model_desc model;
} generate_options;

typedef struct generation {
    const generate_options *options;
    host *host;
    images images;
    char *file_text; /* content of --prompt-file */
    char *grammar_texts[EXL2_JOB_GRAMMARS]; /* [grammar_count] contents of --schema, --grammar and --choices */
    exl2_grammar_desc grammar_descs[EXL2_JOB_GRAMMARS];
    exl2_grammar grammars[EXL2_JOB_GRAMMARS];
    uint32_t grammar_count;
    const char *prompt;
    size_t prompt_bytes;
    ids prompt_ids; /* ids of --ids */
    exl2_message messages[3];
    exl2_chat_desc chat;
    char *template_text;
    exl2_session session;
    memory_text text; /* --json: the whole text */
    logprobs logprobs;
    exl2_token stop_tokens[ARGS_LIST_MAX + 1];
    const char *stop_strings[ARGS_LIST_MAX + 1];
    uint32_t written; /* ids printed, if there is no tokenizer */
    uint32_t delivered; /* tokens */
    host_end end;
} generation;

/* The job has delivered the tokens after which it is saved. */
static bool saves_now(const generation *g)
{
    return g->options->save_after > 0 && g->delivered >= g->options->save_after;
}

static exl2_flow on_event(void *user, const exl2_event *event)
{
    generation *g = user;
    host_end_take(&g->end, event);
    if (event->kind != EXL2_EVENT_TEXT) {
        return EXL2_CONTINUE;
    }
    bool rows = g->options->logprobs != UINT32_MAX;
    g->delivered += event->token_count;
    exl2_flow flow = saves_now(g) ? EXL2_PAUSE_JOB : EXL2_CONTINUE;
    if (rows) {
        logprobs_add(&g->logprobs, event);
    }
    if (g->options->json) {
        memory_text_add(&g->text, event->text, event->bytes);
        return flow;
    }
    if (rows) {
        logprobs_print(&g->logprobs, g->host);
    } else if (g->host->info.has_tokenizer) {
        fwrite(event->text, 1, event->bytes, stdout);
    }
    bool as_ids = !rows && !g->host->info.has_tokenizer; /* in the form that --ids accepts */
    for (uint32_t i = 0; as_ids && i < event->token_count; i++) {
        fprintf(stdout, "%s%d", g->written++ ? "," : "", event->tokens[i].token);
    }
    fflush(stdout);
    return ferror(stdout) ? EXL2_STOP_JOB : flow;
}

static args_result check(const args_desc *d, const generate_options *o)
{
    int sources = (o->prompt != NULL) + (o->prompt_file != NULL) + (o->ids != NULL);
    if (o->load && (sources > 0 || o->chat || o->heal)) {
        return args_wrong(d, "--load goes on with what was saved: give no prompt, --ids, --chat or --heal");
    }
    if (!o->load && sources != 1) {
        return args_wrong(d, "give exactly one of --prompt, --prompt-file and --ids");
    }
    if (o->load && o->images.files.count > 0) {
        return args_wrong(d, "--load goes on with what was saved: give no --image, but --images N for its pictures");
    }
    if (!o->save && (o->save_kv || o->save_after)) {
        return args_wrong(d, "%s needs --save", o->save_kv ? "--save-kv" : "--save-after");
    }
    if (images_wrong(&o->images)) {
        return args_wrong(d, "%s", images_wrong(&o->images));
    }
    if (o->template && !o->chat) {
        return args_wrong(d, "--template needs --chat");
    }
    if (o->chat && o->ids) {
        return args_wrong(d, "--chat needs --prompt or --prompt-file");
    }
    if ((o->system || o->begin) && !o->chat) {
        return args_wrong(d, "%s needs --chat", o->system ? "--system" : "--begin");
    }
    if (o->schemas.count + o->ebnfs.count + o->regexes.count + o->choices.count > EXL2_JOB_GRAMMARS) {
        return args_wrong(d, "give at most %d of --schema, --grammar, --regex and --choices", EXL2_JOB_GRAMMARS);
    }
    if (o->strict && !o->schemas.count) {
        return args_wrong(d, "--strict needs --schema");
    }
    for (uint32_t i = 0; i < ARGS_LIST_MAX; i++) {
        bool stop = i < o->stops.count && !o->stops.items[i][0], ban = i < o->bans.count && !o->bans.items[i][0];
        if (stop || ban) {
            return args_wrong(d, "%s must not be empty", stop ? "--stop" : "--ban-text");
        }
    }
    if (o->logprobs != UINT32_MAX && o->logprobs > EXL2_ALTS_MAX) {
        return args_wrong(d, "--logprobs must be at most %d", EXL2_ALTS_MAX);
    }
    if (!o->negative != !(o->guidance < 0 || o->guidance > 0)) {
        return args_wrong(d, "--guidance and --negative must be given together");
    }
    return ARGS_OK;
}

static void print_json(const generation *g, const exl2_token *history, size_t count)
{
    const exl2_job_stats *stats = &g->end.stats;
    exl2_engine_stats engine;
    exl2_stats(g->host->engine, &engine);
    size_t prompt = count - (stats->new_tokens < count ? stats->new_tokens : count);
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_ids(&j, "prompt_ids", history, prompt);
    json_out_ids(&j, "ids", history + prompt, count - prompt);
    json_out_text(&j, "text", g->text.data ? g->text.data : "", g->text.bytes);
    if (g->options->logprobs != UINT32_MAX) {
        logprobs_json(&g->logprobs, &j, "logprobs");
    }
    json_out_string(&j, "stop", host_stop_name(g->end.stop));
    json_out_object(&j, "stats");
    json_out_uint(&j, "prompt_tokens", stats->prompt_tokens);
    json_out_uint(&j, "reused_tokens", stats->reused_tokens);
    json_out_uint(&j, "image_rows", stats->image_rows);
    json_out_uint(&j, "new_tokens", stats->new_tokens);
    json_out_uint(&j, "forced_tokens", stats->forced_tokens);
    json_out_uint(&j, "drafted", stats->drafted);
    json_out_uint(&j, "accepted", stats->accepted);
    json_out_uint(&j, "forwards", engine.forwards);
    json_out_uint(&j, "seed", stats->seed);
    json_out_number(&j, "queued_s", (double)stats->queued_ns * 1e-9);
    json_out_number(&j, "prefill_s", (double)stats->prefill_ns * 1e-9);
    json_out_number(&j, "decode_s", (double)stats->decode_ns * 1e-9);
    json_out_number(&j, "load_s", g->host->load_seconds);
    json_out_end(&j);
    json_out_end(&j);
}

/* Ends the line of a streamed text, and prints figures on a terminal. */
static void print_end(const generation *g)
{
    const exl2_job_stats *stats = &g->end.stats;
    double seconds = (double)stats->decode_ns * 1e-9;
    if (g->options->logprobs == UINT32_MAX) { /* rows end their own lines */
        fputc('\n', stdout);
    }
    fflush(stdout);
    if (isatty(STDERR_FILENO) && seconds > 0) {
        fprintf(stderr, "[%s; prompt %u tokens, reply %u, %.1f per second; seed %llu]\n", host_stop_name(g->end.stop),
                stats->prompt_tokens, stats->new_tokens, (double)stats->new_tokens / seconds,
                (unsigned long long)stats->seed);
    }
}

/* Prints the result, also after Ctrl-C. false: failed, message printed. */
static bool report(const generation *g)
{
    if (!g->options->json) {
        print_end(g);
        return true;
    }
    size_t need = 0;
    exl2_session_tokens(g->host->engine, g->session, NULL, 0, &need);
    exl2_token *history = memory_take(need, sizeof *history);
    exl2_result result = exl2_session_tokens(g->host->engine, g->session, history, need, &need);
    if (result < 0) {
        host_failed(g->host);
    } else {
        print_json(g, history, need);
    }
    free(history);
    return result >= 0;
}

static void set_prompt(generation *g, exl2_job_desc *d)
{
    const generate_options *o = g->options;
    if (!o->chat) {
        d->prompt.images = g->images.handles;
        d->prompt.image_count = g->images.made;
    }
    if (o->ids) {
        d->prompt.tokens = g->prompt_ids.items;
        d->prompt.token_count = g->prompt_ids.count;
    } else if (o->chat) {
        if (o->system) {
            g->messages[d->prompt.message_count++] = (exl2_message){ .role = "system", .text = o->system };
        }
        g->messages[d->prompt.message_count++] = (exl2_message){ .role = "user", .text = g->prompt,
                                                                 .images = g->images.handles,
                                                                 .image_count = g->images.made };
        d->prompt.messages = g->messages;
        d->chat = g->chat;
        if (o->begin) {
            g->messages[d->prompt.message_count++] = (exl2_message){ .role = "assistant", .text = o->begin };
            d->chat.begun_reply = true;
        }
    } else {
        d->prompt.text = g->prompt;
        d->prompt.text_bytes = g->prompt_bytes;
    }
}

/* Writes the session to the file that --save names. false: failed, message printed. */
static bool save_session(const generation *g)
{
    size_t need = 0;
    uint32_t flags = (g->options->save_kv ? EXL2_SAVE_KV : 0) | EXL2_SAVE_IMAGES;
    bool good = exl2_session_save(g->host->engine, g->session, flags, NULL, 0, &need) >= 0;
    void *data = memory_take(need, 1);
    good = good && exl2_session_save(g->host->engine, g->session, flags, data, need, &need) >= 0;
    if (!good) {
        host_failed(g->host);
    }
    good = good && text_file_write(g->options->save, data, need);
    free(data);
    return good;
}

/* Reads the file that --load names. false: failed, message printed. *resumes: a job goes on. */
static bool load_session(const generation *g, bool *resumes)
{
    exl2_session_info info = { .resumes = false };
    size_t bytes = 0;
    char *data = text_file_read(g->options->load, &bytes);
    bool good = data && exl2_session_restore(g->host->engine, g->session, data, bytes) >= 0;
    if (data && !good) {
        host_failed(g->host);
    }
    free(data);
    exl2_session_get(g->host->engine, g->session, &info);
    *resumes = info.resumes;
    return good;
}

/* What ends the reply: the lists of the command line, and the end of a built-in chat format. */
static void set_stops(generation *g, exl2_job_desc *d)
{
    const generate_options *o = g->options;
    template_ending end = template_end(o->template, g->host->engine, g->host->model);
    for (uint32_t i = 0; i < o->stop_ids.count; i++) {
        g->stop_tokens[i] = (exl2_token)o->stop_ids.items[i];
    }
    for (uint32_t i = 0; i < o->stops.count; i++) {
        g->stop_strings[i] = o->stops.items[i];
    }
    g->stop_tokens[o->stop_ids.count] = end.tokens[0];
    g->stop_strings[o->stops.count] = end.strings[0];
    d->stop_tokens = g->stop_tokens;
    d->stop_token_count = o->stop_ids.count + end.token_count;
    d->stop_strings = g->stop_strings;
    d->stop_string_count = o->stops.count + end.string_count;
}

static int run(generation *g, const exl2_sampler_desc *sampler)
{
    const generate_options *o = g->options;
    exl2_job job;
    exl2_job_desc d = { .max_tokens = o->max_tokens, .sampler = *sampler, .ban_strings = o->bans.items,
                        .ban_string_count = o->bans.count, .min_tokens = o->min_tokens, .heal_prompt = o->heal,
                        .draft = o->guesses,
                        .loras = g->host->loras.uses, .lora_count = g->host->loras.count,
                        .steers = g->host->steers.uses, .steer_count = g->host->steers.count,
                        .alts_per_token = g->logprobs.per_token, .guidance = o->guidance, .on_event = on_event,
                        .user = g };
    set_stops(g, &d);
    if (!images_make(&g->images, g->host->engine, g->host->model)) {
        return host_failed(g->host);
    }
    if (o->host.draft && !host_load_draft(g->host, o->host.draft, 1, &d.draft.model)) {
        return 1;
    }
    const exl2_message negative[2] = { { .role = "user", .text = o->negative },
                                       { .role = "assistant", .text = o->begin } };
    if (o->negative && o->chat) {
        d.negative_prompt.messages = negative;
        d.negative_prompt.message_count = o->begin ? 2 : 1;
    } else {
        d.negative_prompt.text = o->negative;
    }
    if (o->stops.count + o->bans.count && !g->host->info.has_tokenizer) {
        fprintf(stderr, "%s has no tokenizer.json, which %s needs\n", o->path,
                o->stops.count ? "--stop" : "--ban-text");
        return 1;
    }
    bool good = true;
    for (uint32_t i = 0; i < g->grammar_count && good; i++) {
        g->grammar_descs[i].model = g->host->model;
        good = exl2_grammar_make(g->host->engine, &g->grammar_descs[i], &g->grammars[i]) >= 0;
    }
    d.grammars = g->grammars;
    d.grammar_count = g->grammar_count;
    if (!good || exl2_session_open(g->host->engine, g->host->model, &g->session) < 0) {
        return host_failed(g->host);
    }
    d.session = g->session;
    if (o->load) {
        if (!load_session(g, &d.resume)) {
            return 1;
        }
        if (!d.resume) {
            return report(g) ? 0 : 1;
        }
    } else {
        set_prompt(g, &d);
    }
    if (exl2_job_start(g->host->engine, &d, &job) < 0) {
        return host_failed(g->host);
    }
    while (!g->end.done && !(saves_now(g) && o->save)) {
        if (host_step(g->host, job, GENERATE_STEP_US) < 0) {
            return host_failed(g->host);
        }
    }
    if (!g->end.done) { /* --save-after */
        exl2_job_info info;
        exl2_job_get(g->host->engine, job, &info);
        g->end.stats = info.stats;
    }
    bool whole = g->end.stop == EXL2_STOP_CANCELLED || g->end.result >= 0;
    bool told = (!whole || report(g)) && host_end_good(g->host, &g->end);
    return (!o->save || save_session(g)) && told ? 0 : 1;
}

static bool read_prompt(generation *g)
{
    const generate_options *o = g->options;
    if (o->prompt_file) {
        g->file_text = text_file_read(o->prompt_file, &g->prompt_bytes);
        g->prompt = g->file_text;
        if (g->file_text && o->chat && strlen(g->file_text) < g->prompt_bytes) {
            fprintf(stderr, "%s has a zero byte, which a chat message cannot have\n", o->prompt_file);
            return false;
        }
        return g->file_text != NULL;
    }
    g->prompt = o->prompt;
    g->prompt_bytes = o->prompt ? strlen(o->prompt) : 0;
    return true;
}

/* Reads the files of --image, and gives the model room for them. */
static bool read_images(generation *g, exl2_model_desc *d)
{
    const images_options *o = &g->options->images;
    if (!images_read(&g->images, o)) {
        return false;
    }
    images_room(&g->images, o, g->images.count, d);
    return true;
}

/* Adds grammars of a kind. files: they are named by their files. */
static bool add_grammars(generation *g, exl2_grammar_kind kind, const arg_texts *texts, bool files)
{
    for (uint32_t i = 0; i < texts->count; i++) {
        uint32_t n = g->grammar_count++;
        exl2_grammar_desc *d = &g->grammar_descs[n];
        *d = (exl2_grammar_desc){ .kind = kind, .source = texts->items[i],
                                  .strict = kind == EXL2_GRAMMAR_JSON_SCHEMA && g->options->strict };
        if (files) {
            d->source = g->grammar_texts[n] = text_file_read(texts->items[i], &d->source_bytes);
        }
        if (!d->source) {
            return false;
        }
    }
    return true;
}

/* Makes the descs of the grammars; reads the files that the flags name. */
static bool read_grammars(generation *g)
{
    const generate_options *o = g->options;
    return add_grammars(g, EXL2_GRAMMAR_JSON_SCHEMA, &o->schemas, true)
        && add_grammars(g, EXL2_GRAMMAR_EBNF, &o->ebnfs, true)
        && add_grammars(g, EXL2_GRAMMAR_CHOICES, &o->choices, true)
        && add_grammars(g, EXL2_GRAMMAR_REGEX, &o->regexes, false);
}

int cli_generate(int argc, char **argv)
{
    generate_options o = { .logprobs = UINT32_MAX, .sampling = sampling_defaults() };
    const arg positional[] = { { "MODEL", ARG_TEXT, &o.path, NULL, "model folder" } };
    const arg flags[] = {
        { "--prompt", ARG_TEXT, &o.prompt, "T", "text to continue; may have markers such as <|im_start|>" },
        { "--prompt-file", ARG_TEXT, &o.prompt_file, "FILE", "file with the text to continue" },
        { "--ids", ARG_TEXT, &o.ids, "1,2", "token ids to continue" },
        { "--chat", ARG_BOOL, &o.chat, NULL, "the prompt is a user's message for the chat template" },
        { "--system", ARG_TEXT, &o.system, "T", "system message, with --chat" },
        { "--begin", ARG_TEXT, &o.begin, "T", "the beginning of the reply, which is continued; with --chat" },
        TEMPLATE_ARG(o.template),
        IMAGES_ARGS(o.images),
        { "--max-tokens", ARG_U32, &o.max_tokens, "N",
          "maximum tokens of the reply, also --max; 0 = 512, or what fits the context (0)" },
#define SAMPLING_OF o.sampling
        SAMPLING_ARGS,
#undef SAMPLING_OF
        { "--stop", ARG_TEXTS, &o.stops, "T", "text that ends the reply; may be repeated" },
        { "--stop-ids", ARG_NUMBERS, &o.stop_ids, "1,2", "tokens that end the reply, in addition to the model's" },
        { "--ban-text", ARG_TEXTS, &o.bans, "T", "text that must not occur, ignoring case; may be repeated" },
        { "--min-tokens", ARG_U32, &o.min_tokens, "N", "minimum tokens of the reply, also --min (0)" },
        { "--heal", ARG_BOOL, &o.heal, NULL, "token healing: the prompt may end within a word" },
        { "--ngram", ARG_BOOL, &o.guesses.ngram, NULL, "guesses tokens by what the text said before; same text" },
        { "--draft", ARG_TEXT, &o.host.draft, "DIR[@N]",
          "a smaller model of the same vocabulary that guesses tokens; @N: on GPU N" },
        { "--draft-tokens", ARG_U32, &o.guesses.tokens, "N", "most guesses in a pass (as many as pay, up to 15)" },
        { "--one-by-one", ARG_BOOL, &o.guesses.one_by_one, NULL,
          "samples every token in a pass of its own, forced ones, too" },
        { "--guidance", ARG_FLOAT, &o.guidance, "X", "above 1: away from --negative; below 1: towards it (off)" },
        { "--negative", ARG_TEXT, &o.negative, "T", "negative prompt for --guidance" },
        { "--schema", ARG_TEXTS, &o.schemas, "FILE", "generates JSON that fits the JSON schema in this file" },
        { "--strict", ARG_BOOL, &o.strict, NULL, "rejects keywords of --schema that would be ignored" },
        { "--grammar", ARG_TEXTS, &o.ebnfs, "FILE", "generates text that fits the EBNF in this file: root ::= ..." },
        { "--regex", ARG_TEXTS, &o.regexes, "R", "generates text that this expression matches completely" },
        { "--choices", ARG_TEXTS, &o.choices, "FILE",
          "generates one of the lines of this file; these four may be given up to 4 times: then all of them hold" },
        { "--save", ARG_TEXT, &o.save, "FILE", "saves the session to this file at the end" },
        { "--save-kv", ARG_BOOL, &o.save_kv, NULL, "with --save: K and V, too, so that --load computes nothing again" },
        { "--save-after", ARG_U32, &o.save_after, "N",
          "with --save: saves after N tokens, in the middle of the text, and ends" },
        { "--load", ARG_TEXT, &o.load, "FILE", "goes on with the job of a saved session; needs the flags of that job" },
        { "--logprobs", ARG_U32, &o.logprobs, "N", "prints log-probabilities of each token and the N likeliest" },
        HOST_LORA_ARG(o.host),
        HOST_STEER_ARG(o.host),
        HOST_CONTEXT_ARGS(o.model),
        HOST_ARGS(o.host),
        { "--json", ARG_BOOL, &o.json, NULL, "prints one JSON object instead of the text" },
    };
    const args_desc d = { "exl2 generate",
                          "Continues a text or token ids, or answers a chat message.\n"
                          "A model without a tokenizer accepts ids and generates ids.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    exl2_sampler_desc sampler;
    args_result parsed = host_parse(&d, argc, argv, &o.host);
    if (parsed == ARGS_OK) {
        parsed = check(&d, &o);
    }
    if (parsed == ARGS_OK) {
        parsed = sampling_desc(&d, &o.sampling, &sampler);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    host h = { 0 };
    static generation g; /* its pictures are many */
    g.options = &o;
    g.host = &h;
    g.logprobs.per_token = o.logprobs == UINT32_MAX ? 0 : o.logprobs;
    o.model.path = o.path;
    int code = 1;
    if (o.ids && !ids_from_commas(o.ids, &g.prompt_ids)) {
        code = cli_exit(args_wrong(&d, "--ids must be whole numbers separated by commas, not '%s'", o.ids));
    } else if (template_choose(o.template, &g.chat, &g.template_text) && read_prompt(&g) && read_grammars(&g)
               && read_images(&g, &o.model) && host_open(&h, &o.host) && host_load(&h, &o.model, 1)) {
        code = run(&g, &sampler);
    }
    images_close(&g.images, h.engine);
    host_close(&h);
    free(g.prompt_ids.items);
    free(g.template_text);
    free(g.file_text);
    for (uint32_t i = 0; i < g.grammar_count; i++) {
        free(g.grammar_texts[i]);
    }
    free(g.text.data);
    logprobs_free(&g.logprobs);
    return code;
}
