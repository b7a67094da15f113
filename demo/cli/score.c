/* score.c: `exl2 score`: computes how likely each token of a text is, in one piece or in windows. Rows of pictures are
   read, but not scored.
   takes: a model folder; texts, or ids with pictures.
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
#include <string.h>

#define SCORE_STEP_US 100000u /* Ctrl-C is checked after each step of this length */

typedef struct score_options {
    const char *path, *ids_file;
    arg_texts text_files;
    uint64_t bytes;
    uint32_t skip, top;
    uint64_t memory;    /* MiB; 0: the model is loaded as a whole */
    uint32_t length, stride; /* of the windows, in tokens; 0 = the whole text, and `length` */
    bool bos, by_position, json;
    images_options images;
    host_options host;
    exl2_model_desc model;
} score_options;

/* Sums over scored tokens. */
typedef struct sum {
    double nll;
    uint64_t tokens;
} sum;

/* Tokens by the number of tokens before them in their window: in the k-th row 8 * 2^k to 16 * 2^k - 1, in the first one
   0 to 15. */
#define SCORE_RANGES 20

/* Position p predicts token p + 1, so n tokens have n - 1 positions, less those that would predict a picture's row.
   What belongs to a window is that of the last one. */
typedef struct score {
    const score_options *options;
    host *host;
    ids text;           /* as given, but with pictures: after expand() with what stands for them */
    ids window;         /* what the model reads: part of the text, after BOS with --bos */
    images images;
    bool *is_row;       /* [n] */
    exl2_session session;
    uint32_t count;     /* n: tokens with rows */
    uint32_t positions; /* received so far */
    float *logprob;     /* [positions] log-probability of the token that is predicted */
    float *logsumexp;   /* [positions] */
    exl2_alt *top;      /* [positions, options->top] most likely first */
    uint32_t windows;
    uint64_t tokens;    /* of all texts */
    sum all, ranges[SCORE_RANGES];
    host_end end;
} score;

static exl2_flow on_event(void *user, const exl2_event *event)
{
    score *s = user;
    host_end_take(&s->end, event);
    if (event->kind == EXL2_EVENT_PREFILL) {
        if (!s->options->length) {
            progress_show_stage(&s->host->bar, (double)event->progress, "reading the text");
        }
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

/* path NULL: --ids-file. */
static bool read_text(score *s, const char *path)
{
    const score_options *o = s->options;
    free(s->text.items);
    s->text = (ids){ NULL, 0 };
    if (!path) {
        return ids_from_json_file(o->ids_file, &s->text);
    }
    size_t bytes;
    char *text = text_file_read(path, &bytes);
    if (!text) {
        return false;
    }
    bytes = o->bytes < bytes ? (size_t)o->bytes : bytes;
    uint32_t flags = o->bos ? EXL2_TEXT_NO_BOS : 0;
    exl2_result result = ids_from_text(s->host->engine, s->host->model, text, bytes, flags, &s->text);
    free(text);
    if (result < 0) {
        host_failed(s->host);
    }
    return result >= 0;
}

/* Tokens of a window, BOS not counted. */
static size_t window_length(const score *s)
{
    return s->options->length ? s->options->length : s->text.count;
}

/* false, with a printed message: fewer tokens than a score needs, or more than the context holds. */
static bool check_length(const score *s)
{
    const score_options *o = s->options;
    size_t least = (size_t)o->skip + 2 - o->bos, length = window_length(s);
    if (s->text.count < least) {
        fprintf(stderr, "the text has %zu tokens; with --skip %u at least %zu are needed\n", s->text.count, o->skip,
                least);
        return false;
    }
    if (!o->memory && length + o->bos > s->host->info.context_max) { /* else exl2_compare knows it */
        fprintf(stderr, o->length ? "--length is %zu, but the model's context holds %u\n"
                : "the text has %zu tokens, but the model's context holds %u; score windows of it, see --length and "
                  "--stride\n", length, s->host->info.context_max);
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
        s->window.items = memory_grow(s->window.items, count + 1, sizeof *s->window.items);
        r = exl2_session_tokens(e, s->session, s->window.items, count, &count);
    }
    r = r < 0 ? r : exl2_session_pictures(e, s->session, NULL, 0, &pictures);
    exl2_picture *list = memory_take(pictures + 1, sizeof *list);
    r = r < 0 ? r : exl2_session_pictures(e, s->session, list, pictures, &pictures);
    s->window.count = r < 0 ? 0 : count;
    free(s->is_row);
    s->is_row = memory_take(count + 1, sizeof *s->is_row);
    for (size_t k = 0; r >= 0 && k < pictures; k++) {
        for (uint32_t i = list[k].from; i < list[k].from + list[k].count; i++) {
            s->is_row[i] = s->window.items[i] == s->window.items[list[k].from]; /* the first place is a row */
        }
    }
    free(list);
    return r;
}

/* Runs the model over the window. false: failed, message printed. */
static bool read_window(score *s)
{
    exl2_job job;
    exl2_job_size size;
    exl2_engine *e = s->host->engine;
    exl2_job_desc d = { .prompt = { .tokens = s->window.items, .token_count = s->window.count,
                                    .images = s->images.handles, .image_count = s->images.made },
                        .prefill_only = true, .score_prompt = true, .alts_per_token = s->options->top,
                        .loras = s->host->loras.uses, .lora_count = s->host->loras.count,
                        .steers = s->host->steers.uses, .steer_count = s->host->steers.count,
                        .on_event = on_event, .user = s };
    exl2_result result = exl2_session_open(e, s->host->model, &s->session);
    d.session = s->session;
    result = result < 0 ? result : exl2_job_measure(e, &d, &size);
    if (result >= 0 && size.prompt_tokens > s->count) {
        s->logprob = memory_grow(s->logprob, size.prompt_tokens, sizeof *s->logprob);
        s->logsumexp = memory_grow(s->logsumexp, size.prompt_tokens, sizeof *s->logsumexp);
        s->top = memory_grow(s->top, (size_t)size.prompt_tokens * s->options->top + 1, sizeof *s->top);
    }
    s->count = result < 0 ? 0 : size.prompt_tokens;
    s->positions = 0;
    s->end = (host_end){ 0 };
    result = result < 0 ? result : exl2_job_start(e, &d, &job);
    while (result >= 0 && !s->end.done) {
        result = host_step(s->host, job, SCORE_STEP_US);
    }
    if (result >= 0 && !host_end_good(s->host, &s->end)) {
        return false;
    }
    result = result < 0 ? result : expand(s);
    exl2_session_close(e, s->session);
    s->windows++;
    return result >= 0 || host_failed(s->host) == 0;
}

/* Adds the window's tokens from `first` on to the sums. */
static void add_window(score *s, size_t first, sum *file)
{
    uint32_t p = 0;
    for (size_t i = 1; i < s->window.count && p < s->positions; i++) {
        if (s->is_row[i]) {
            continue;
        }
        double nll = -(double)s->logprob[p++];
        size_t before = i - s->options->bos, range = 0;
        while (range + 1 < SCORE_RANGES && before >= (size_t)16 << range) {
            range++;
        }
        sum *sums[] = { file, &s->all, &s->ranges[range] };
        for (size_t k = 0; k < 3 && i >= first && before + s->options->bos > s->options->skip; k++) {
            sums[k]->nll += nll;
            sums[k]->tokens++;
        }
    }
}

/* Scores the text in windows that begin every `stride` tokens, each token in the first window that has it, as
   Hugging Face's "Perplexity of fixed-length models" does. false: failed, message printed. */
static bool score_text(score *s, sum *file)
{
    const score_options *o = s->options;
    size_t length = window_length(s), stride = o->stride ? o->stride : length, end = 0;
    for (size_t begin = 0; end < s->text.count; begin += stride) {
        size_t scored = end;
        end = s->text.count - begin < length ? s->text.count : begin + length;
        s->window.count = end - begin + o->bos;
        s->window.items = memory_grow(s->window.items, s->window.count, sizeof *s->window.items);
        s->window.items[0] = s->host->info.bos;
        memcpy(s->window.items + o->bos, s->text.items + begin, (end - begin) * sizeof *s->window.items);
        if (!read_window(s)) {
            return false;
        }
        add_window(s, scored - begin + o->bos, file);
        progress_show_stage(&s->host->bar, (double)end / (double)s->text.count, "reading the text");
    }
    progress_end(&s->host->bar);
    return true;
}

static bool on_layer(void *user, const char *stage, float done)
{
    (void)stage;
    progress_show_stage(user, (double)done, "reading the text");
    return !interrupted();
}

/* The same windows, through a model that is read layer by layer if need be. false: failed, message printed. */
static bool score_by_layer(score *s, sum *file)
{
    const score_options *o = s->options;
    size_t length = window_length(s), stride = o->stride ? o->stride : length, count = s->text.count, windows = 1;
    exl2_error error = { 0 };
    exl2_compare_info info;
    while ((windows - 1) * stride + length < count) {
        windows++;
    }
    size_t row = (length < count ? length : count) + o->bos;
    exl2_token *tokens = memory_take(windows * row, sizeof *tokens);
    float *nll = memory_take(windows * row, sizeof *nll);
    exl2_compare_desc d = { .a_dir = o->path, .tokens = tokens, .row = (uint32_t)row, .nll = nll,
                            .host_bytes_max = o->memory, .progress = on_layer, .user = &s->host->bar,
                            .parallel = pool_hook(s->host->pool), .error = &error };
    for (size_t i = 0; i < windows; i++) { /* all but the last one have `row` tokens */
        size_t begin = i * stride, some = count - begin < length ? count - begin : length;
        tokens[d.token_count] = s->host->info.bos;
        memcpy(tokens + d.token_count + o->bos, s->text.items + begin, some * sizeof *tokens);
        d.token_count += some + o->bos;
    }
    bool good = exl2_compare(&d, &info) >= 0;
    progress_end(&s->host->bar);
    s->logprob = memory_grow(s->logprob, row, sizeof *s->logprob);
    s->is_row = memory_grow(s->is_row, row, sizeof *s->is_row);
    s->window.items = memory_grow(s->window.items, row, sizeof *s->window.items);
    memset(s->is_row, 0, row * sizeof *s->is_row);
    for (size_t i = 0, at = 0, end = 0; good && i < windows; i++, at += s->window.count) {
        size_t begin = i * stride, scored = end;
        s->window.count = d.token_count - at < row ? (size_t)d.token_count - at : row;
        end = begin + s->window.count - o->bos;
        memcpy(s->window.items, tokens + at, s->window.count * sizeof *tokens);
        s->positions = (uint32_t)s->window.count - 1;
        for (uint32_t p = 0; p < s->positions; p++) {
            s->logprob[p] = -nll[at + p + 1];
        }
        add_window(s, scored - begin + o->bos, file);
        s->windows++;
    }
    free(tokens);
    free(nll);
    if (!good) {
        fprintf(stderr, "%s\n", error.text);
    }
    return good;
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

static double mean(const sum *s)
{
    return s->nll / (double)(s->tokens ? s->tokens : 1);
}

static void print_ranges(const score *s, json_out *j)
{
    if (j) {
        json_out_array(j, "by_position");
    }
    for (uint32_t k = 0; k < SCORE_RANGES; k++) {
        uint32_t from = k ? 8u << k : 0, to = (16u << k) - 1;
        if (s->ranges[k].tokens == 0) {
            continue;
        }
        if (!j) {
            printf("after %7u to %7u tokens: %8llu scored, nll %.5f, perplexity %.3f\n", from, to,
                   (unsigned long long)s->ranges[k].tokens, mean(&s->ranges[k]), exp(mean(&s->ranges[k])));
            continue;
        }
        json_out_object(j, NULL);
        json_out_uint(j, "from", from);
        json_out_uint(j, "to", to);
        json_out_uint(j, "scored", s->ranges[k].tokens);
        json_out_number(j, "nll", mean(&s->ranges[k]));
        json_out_number(j, "perplexity", exp(mean(&s->ranges[k])));
        json_out_end(j);
    }
    if (j) {
        json_out_end(j);
    }
}

static void print_score(const score *s, const sum *files)
{
    const score_options *o = s->options;
    double nll = mean(&s->all);
    uint32_t count = o->text_files.count;
    if (!o->json) {
        for (uint32_t i = 0; i < count && count > 1; i++) {
            printf("%s: %llu tokens scored, nll %.5f, perplexity %.3f\n", o->text_files.items[i],
                   (unsigned long long)files[i].tokens, mean(&files[i]), exp(mean(&files[i])));
        }
        printf("%llu tokens, nll %.5f, perplexity %.3f\n", (unsigned long long)s->tokens, nll, exp(nll));
        if (o->by_position) {
            print_ranges(s, NULL);
        }
        return;
    }
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_uint(&j, "tokens", s->tokens);
    json_out_uint(&j, "scored", s->all.tokens);
    json_out_uint(&j, "windows", s->windows);
    json_out_number(&j, "nll", nll);
    json_out_number(&j, "perplexity", exp(nll));
    if (count > 1) {
        json_out_array(&j, "files");
        for (uint32_t i = 0; i < count; i++) {
            json_out_object(&j, NULL);
            json_out_string(&j, "file", o->text_files.items[i]);
            json_out_uint(&j, "scored", files[i].tokens);
            json_out_number(&j, "nll", mean(&files[i]));
            json_out_number(&j, "perplexity", exp(mean(&files[i])));
            json_out_end(&j);
        }
        json_out_end(&j);
    }
    if (o->by_position) {
        print_ranges(s, &j);
    }
    if (s->windows == 1) {
        json_out_uint(&j, "image_rows", s->end.stats.image_rows);
        json_out_ids(&j, "ids", s->window.items, s->window.count);
    }
    if (o->top) {
        print_tops(&j, s);
    }
    json_out_end(&j);
}

/* What --memory cannot do: it runs the model on the CPU, and keeps no K and V. */
static args_result check_memory(const args_desc *d, const score_options *o)
{
    const exl2_model_desc *m = &o->model;
    const struct { const char *flag; bool set; } others[] = {
        { "--image", o->images.files.count > 0 }, { "--top", o->top > 0 }, { "--lora", o->host.loras.count > 0 },
        { "--context", m->context_max > 0 }, { "--rope-scale", m->rope_scale > 0 },
        { "--rope-alpha", m->rope_alpha > 0 }, { "--yarn", m->yarn_factor > 0 }, { "--cache", o->host.cache > 0 },
        { "--cache-tokens", o->host.cache_tokens > 0 },
        { "--cache-host", o->host.cache_host > 0 }, { "--experts", o->host.experts > 0 },
        { "--backend cuda", o->host.backend == HOST_CUDA }, { "--device", o->host.device.count > 0 },
        { "--cards", o->host.cards.count > 0 }, { "--split", o->host.split > 0 },
        { "--gpu-bytes", o->host.gpu_bytes > 0 }, { "--host-mlps", o->host.host_mlps > 0 },
        { "--host-prompts", o->host.host_prompts },
    };
    for (size_t i = 0; o->memory && i < ARGS_COUNT(others); i++) {
        if (others[i].set) {
            return args_wrong(d, "%s and --memory are both set: a model that is read layer by layer runs on the CPU, "
                              "as its folder says", others[i].flag);
        }
    }
    return ARGS_OK;
}

static args_result check_flags(const args_desc *d, const score_options *o)
{
    if (!o->text_files.count == !o->ids_file) {
        return args_wrong(d, "give either --text-file or --ids-file");
    }
    if (o->stride && !o->length) {
        return args_wrong(d, "--stride needs --length");
    }
    if (o->stride > o->length) {
        return args_wrong(d, "--stride must be at most --length, or tokens between two windows would be left out");
    }
    if (o->length == 1 && !o->bos) {
        return args_wrong(d, "--length must be at least 2: the first token of a window is not scored");
    }
    if (o->images.files.count > 0 && (o->length || o->bos)) {
        return args_wrong(d, "--image cannot be combined with --length and --bos");
    }
    if (o->top && (o->length || o->text_files.count > 1)) {
        return args_wrong(d, "--top needs one text, in one piece");
    }
    if (o->bytes < UINT64_MAX && o->ids_file) {
        return args_wrong(d, "--bytes needs --text-file");
    }
    if (images_wrong(&o->images)) {
        return args_wrong(d, "%s", images_wrong(&o->images));
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
        { "--text-file", ARG_TEXTS, &o.text_files, "FILE", "text to score; may be repeated" },
        { "--bytes", ARG_U64, &o.bytes, "N", "scores only the first N bytes of each text (all)" },
        { "--ids-file", ARG_TEXT, &o.ids_file, "FILE", "token ids to score: a JSON array" },
        { "--image", ARG_TEXTS, &o.images.files, "FILE",
          "a picture, for which --ids-file has the id of the model's mark once; may be repeated" },
        IMAGES_VIDEO(o.images),
        IMAGES_LIMITS(o.images),
        { "--skip", ARG_U32, &o.skip, "N", "tokens of a window before the first one that is scored (0)" },
        { "--length", ARG_U32, &o.length, "N", "reads windows of N tokens (the whole text at once)" },
        { "--stride", ARG_U32, &o.stride, "N", "tokens from one window to the next (--length)" },
        { "--bos", ARG_BOOL, &o.bos, NULL, "begins each window with BOS, so that its first token is scored, too" },
        { "--by-position", ARG_BOOL, &o.by_position, NULL,
          "also prints figures by the number of tokens before a token" },
        { "--memory", ARG_MIB, &o.memory, "SIZE",
          "most memory, in MiB or such as 8GB; a model that does not fit is read layer by layer, on the CPU (no "
          "limit)" },
        { "--top", ARG_U32, &o.top, "K", "with --json: prints the K largest logits of each position" },
        HOST_LORA_ARG(o.host),
        HOST_STEER_ARG(o.host),
        HOST_CONTEXT_ARGS(o.model),
        HOST_ARGS(o.host),
        { "--json", ARG_BOOL, &o.json, NULL, "prints JSON" },
    };
    const args_desc d = { "exl2 score",
                          "Measures how well the model predicts a text: mean negative log-likelihood and perplexity.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = host_parse(&d, argc, argv, &o.host);
    if (parsed == ARGS_OK) {
        parsed = check_flags(&d, &o);
        parsed = parsed == ARGS_OK ? check_memory(&d, &o) : parsed;
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    host h = { 0 };
    static score s; /* its pictures are many */
    sum files[ARGS_LIST_MAX] = { { 0, 0 } };
    s.options = &o;
    s.host = &h;
    o.model.path = o.path;
    bool good = images_read(&s.images, &o.images);
    if (good && o.memory) {
        o.host.backend = HOST_CPU;
        good = host_open(&h, &o.host) && (o.ids_file || host_load_text(&h, o.path));
        good = good && (exl2_model_measure(h.engine, &o.model, &h.info) >= 0 || host_failed(&h) == 0);
    } else if (good) {
        images_room(&s.images, &o.images, s.images.count, &o.model);
        good = host_open(&h, &o.host) && host_load(&h, &o.model, 1);
    }
    if (good && !images_make(&s.images, h.engine, h.model)) {
        good = host_failed(&h) == 0;
    }
    if (good && o.bos && h.info.bos < 0) {
        fprintf(stderr, "%s has no BOS token, which --bos needs\n", o.path);
        good = false;
    }
    for (uint32_t i = 0; good && i < (o.ids_file ? 1 : o.text_files.count); i++) {
        good = read_text(&s, o.ids_file ? NULL : o.text_files.items[i]) && check_length(&s)
            && (o.memory ? score_by_layer(&s, &files[i]) : score_text(&s, &files[i]));
        s.tokens += s.images.count ? s.window.count : s.text.count;
    }
    if (good) {
        print_score(&s, files);
    }
    images_close(&s.images, h.engine);
    host_close(&h);
    free(s.is_row);
    free(s.text.items);
    free(s.window.items);
    free(s.logprob);
    free(s.logsumexp);
    free(s.top);
    return good ? 0 : 1;
}
