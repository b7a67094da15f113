/* score.c: `exl2 score`: computes how likely each token of a text is. Rows of pictures are read, but not scored.
   takes: a model folder; a text, or ids with pictures.
   gives: cli_score. */
#include "../common/host.h"
#include "../common/images.h"
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "../common/memory.h"
#include "../common/text_file.h"
#include "cli.h"
#include "ids.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SCORE_STEP_US 100000u /* Ctrl-C is checked after each step of this length */

typedef struct score_options {
    const char *path, *text_file, *ids_file;
    uint64_t bytes;
    uint32_t skip, top;
    bool json;
    images_options images;
    host_options host;
    exl2_model_desc model;
} score_options;

/* Position p predicts token p + 1, so n tokens have n - 1 positions, less those that would predict a picture's row. */
typedef struct score {
    const score_options *options;
    host *host;
    ids text;           /* as given; after expand() with what stands for pictures */
    images images;
    bool *is_row;       /* [n] */
    exl2_session session;
    uint32_t count;     /* n: tokens with rows */
    uint32_t positions; /* received so far */
    float *logprob;     /* [positions] log-probability of the token that is predicted */
    float *logsumexp;   /* [positions] */
    exl2_alt *top;      /* [positions, options->top] most likely first */
    host_end end;
} score;

static exl2_flow on_event(void *user, const exl2_event *event)
{
    score *s = user;
    host_end_take(&s->end, event);
    if (event->kind == EXL2_EVENT_PREFILL) {
        progress_show(&s->host->bar, (double)event->progress, "reading the text");
        for (uint32_t i = 0; i < event->token_count && s->positions + 1 < s->count; i++) {
            uint32_t at = s->positions++;
            s->logprob[at] = event->tokens[i].logprob;
            s->logsumexp[at] = event->logsumexp[i];
            for (uint32_t k = 0; k < s->options->top; k++) {
                s->top[(size_t)at * s->options->top + k] = event->alts[(size_t)i * event->alts_per_token + k];
            }
        }
    }
    return EXL2_CONTINUE;
}

static bool read_text(score *s)
{
    const score_options *o = s->options;
    if (o->ids_file) {
        return ids_from_json_file(o->ids_file, &s->text);
    }
    size_t bytes;
    char *text = text_file_read(o->text_file, &bytes);
    if (!text) {
        return false;
    }
    bytes = o->bytes < bytes ? (size_t)o->bytes : bytes;
    exl2_result result = ids_from_text(s->host->engine, s->host->model, text, bytes, 0, &s->text);
    free(text);
    if (result < 0) {
        host_failed(s->host);
    }
    return result >= 0;
}

/* false, with a printed message: fewer tokens than a score needs, or more than the context holds. */
static bool check_length(const score *s)
{
    size_t least = (size_t)s->options->skip + 2;
    if (s->text.count < least) {
        fprintf(stderr, "the text has %zu tokens; with --skip %u at least %zu are needed\n", s->text.count,
                s->options->skip, least);
        return false;
    }
    if (s->text.count > s->host->info.context_max) {
        fprintf(stderr, "the text has %zu tokens, but the model's context holds %u; score less, see --bytes\n",
                s->text.count, s->host->info.context_max);
        return false;
    }
    return true;
}

/* Replaces the ids by those of the session's history, which has a mark for each row of a picture. */
static exl2_result expand(score *s)
{
    exl2_engine *e = s->host->engine;
    size_t count = 0, pictures = 0;
    exl2_result r = exl2_session_tokens(e, s->session, NULL, 0, &count);
    if (r >= 0) {
        s->text.items = memory_grow(s->text.items, count + 1, sizeof *s->text.items);
        r = exl2_session_tokens(e, s->session, s->text.items, count, &count);
    }
    r = r < 0 ? r : exl2_session_pictures(e, s->session, NULL, 0, &pictures);
    exl2_picture *list = memory_take(pictures + 1, sizeof *list);
    r = r < 0 ? r : exl2_session_pictures(e, s->session, list, pictures, &pictures);
    s->text.count = r < 0 ? 0 : count;
    s->is_row = memory_take(count + 1, sizeof *s->is_row);
    for (size_t k = 0; r >= 0 && k < pictures; k++) {
        for (uint32_t i = list[k].from; i < list[k].from + list[k].count; i++) {
            s->is_row[i] = s->text.items[i] == s->text.items[list[k].from]; /* the first place is a row */
        }
    }
    free(list);
    return r;
}

static int read_with_model(score *s)
{
    exl2_job job;
    exl2_job_size size;
    exl2_engine *e = s->host->engine;
    exl2_job_desc d = { .prompt = { .tokens = s->text.items, .token_count = s->text.count,
                                    .images = s->images.handles, .image_count = s->images.made },
                        .prefill_only = true, .score_prompt = true, .alts_per_token = s->options->top,
                        .loras = s->host->loras.uses, .lora_count = s->host->loras.count,
                        .on_event = on_event, .user = s };
    exl2_result result = exl2_session_open(e, s->host->model, &s->session);
    d.session = s->session;
    result = result < 0 ? result : exl2_job_measure(e, &d, &size);
    if (result < 0) {
        return host_failed(s->host);
    }
    s->count = size.prompt_tokens;
    s->logprob = memory_take(s->count, sizeof *s->logprob);
    s->logsumexp = memory_take(s->count, sizeof *s->logsumexp);
    s->top = memory_take((size_t)s->count * s->options->top, sizeof *s->top);
    result = exl2_job_start(e, &d, &job);
    while (result >= 0 && !s->end.done) {
        result = host_step(s->host, job, SCORE_STEP_US);
    }
    progress_end(&s->host->bar);
    if (result >= 0 && !host_end_good(s->host, &s->end)) {
        return 1;
    }
    result = result < 0 ? result : expand(s);
    return result < 0 ? host_failed(s->host) : 0;
}

static void print_tops(json_out *j, const score *s)
{
    uint32_t top = s->options->top;
    json_out_array(j, "top_ids");
    for (uint32_t p = 0; p < s->positions; p++) {
        json_out_array(j, NULL);
        for (uint32_t k = 0; k < top; k++) {
            json_out_int(j, NULL, s->top[(size_t)p * top + k].token);
        }
        json_out_end(j);
    }
    json_out_end(j);
    json_out_array(j, "top_logits");
    for (uint32_t p = 0; p < s->positions; p++) {
        json_out_array(j, NULL);
        for (uint32_t k = 0; k < top; k++) {
            json_out_number(j, NULL, (double)s->top[(size_t)p * top + k].logprob + (double)s->logsumexp[p]);
        }
        json_out_end(j);
    }
    json_out_end(j);
    json_out_array(j, "logsumexp");
    for (uint32_t p = 0; p < s->positions; p++) {
        json_out_number(j, NULL, (double)s->logsumexp[p]);
    }
    json_out_end(j);
}

static void print_score(const score *s)
{
    double sum = 0;
    uint32_t scored = 0, p = 0;
    for (size_t i = 1; i < s->text.count && p < s->positions; i++) {
        if (!s->is_row[i]) {
            sum -= i > s->options->skip ? (double)s->logprob[p] : 0;
            scored += i > s->options->skip;
            p++;
        }
    }
    double nll = sum / (double)(scored ? scored : 1);
    if (!s->options->json) {
        printf("%zu tokens, nll %.5f, perplexity %.3f\n", s->text.count, nll, exp(nll));
        return;
    }
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_uint(&j, "tokens", s->text.count);
    json_out_number(&j, "nll", nll);
    json_out_number(&j, "perplexity", exp(nll));
    json_out_uint(&j, "image_rows", s->end.stats.image_rows);
    json_out_ids(&j, "ids", s->text.items, s->text.count);
    if (s->options->top) {
        print_tops(&j, s);
    }
    json_out_end(&j);
}

static args_result check_flags(const args_desc *d, const score_options *o)
{
    if (!o->text_file == !o->ids_file) {
        return args_wrong(d, "give exactly one of --text-file and --ids-file");
    }
    if (o->bytes < UINT64_MAX && o->ids_file) {
        return args_wrong(d, "--bytes needs --text-file");
    }
    if (o->images.files.count > 0 && !o->ids_file) {
        return args_wrong(d, "--image needs --ids-file");
    }
    if (o->top && !o->json) {
        return args_wrong(d, "--top needs --json");
    }
    if (o->top > EXL2_ALTS_MAX) {
        return args_wrong(d, "--top must be at most %d", EXL2_ALTS_MAX);
    }
    return ARGS_OK;
}

int cli_score(int argc, char **argv)
{
    score_options o = { .bytes = UINT64_MAX };
    const arg positional[] = { { "MODEL", ARG_TEXT, &o.path, NULL, "model folder" } };
    const arg flags[] = {
        { "--text-file", ARG_TEXT, &o.text_file, "F", "text to score" },
        { "--bytes", ARG_U64, &o.bytes, "N", "scores only the first N bytes (all)" },
        { "--ids-file", ARG_TEXT, &o.ids_file, "F", "token ids to score: a JSON array" },
        { "--image", ARG_TEXTS, &o.images.files, "FILE",
          "a picture, for which --ids-file has the id of the model's mark once; may be repeated" },
        IMAGES_LIMITS(o.images),
        { "--skip", ARG_U32, &o.skip, "N", "tokens before the first one that is scored (0)" },
        { "--top", ARG_U32, &o.top, "K", "with --json: prints the K largest logits of each position" },
        HOST_LORA_ARG(o.host),
        HOST_CONTEXT_ARGS(o.model),
        HOST_ARGS(o.host),
        { "--json", ARG_BOOL, &o.json, NULL, "prints JSON" },
    };
    const args_desc d = { "exl2 score",
                          "Measures how well the model predicts a text: mean negative log-likelihood and perplexity.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed == ARGS_OK) {
        parsed = check_flags(&d, &o);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    host h = { 0 };
    static score s; /* its pictures are many */
    s.options = &o;
    s.host = &h;
    o.model.path = o.path;
    int code = 1;
    if (images_read(&s.images, &o.images)) {
        images_room(&s.images, &o.images, s.images.count, &o.model);
        if (host_open(&h, &o.host) && host_load(&h, &o.model, 1) && read_text(&s) && check_length(&s)) {
            code = images_make(&s.images, h.engine, h.model) ? read_with_model(&s) : host_failed(&h);
        }
    }
    if (code == 0) {
        print_score(&s);
    }
    images_close(&s.images, h.engine);
    host_close(&h);
    free(s.is_row);
    free(s.text.items);
    free(s.logprob);
    free(s.logsumexp);
    free(s.top);
    return code;
}
