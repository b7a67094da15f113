/* embeddings.c: see embeddings.h.
   takes: bodies of /v1/embeddings; records of the engine's thread.
   gives: what embeddings.h declares.
   owns:  the requests, until their runs have ended. */
#include "embeddings.h"

#include "../common/clock.h"
#include "../common/json_in.h"
#include "metrics.h"
#include "models.h"
#include "request_fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUTS_MAX 2048u /* texts of a request, as OpenAI has it */

typedef struct input { /* a text on its way to its vector */
    embeddings *of;
    engine_run run;
    exl2_token *ids;  /* NULL: it is a text */
    char *text;
    float *values;    /* [hidden] */
    uint32_t tokens;
    bool ended;
} input;

struct embeddings {
    owner owner;
    server *server;
    http_exchange *x; /* NULL: the client has gone, or the answer is complete */
    model *model;
    input *inputs;
    engine_run **runs;
    engine_batch batch;
    uint32_t count, ended, width; /* width: values of a vector in the answer */
    bool base64, cuts;            /* cuts: `dimensions` was given */
    uint64_t begin_ns;
    embeddings *next, **link;
};

/* ---- the end ---- */

static void free_request(embeddings *e)
{
    for (uint32_t i = 0; i < e->count; i++) {
        engine_run_free(e->server->engine, &e->inputs[i].run);
        free(e->inputs[i].ids);
        free(e->inputs[i].text);
        free(e->inputs[i].values);
    }
    if (e->link) {
        *e->link = e->next;
        if (e->next) {
            e->next->link = e->link;
        }
    }
    e->model->calls--;
    free(e->inputs);
    free((void *)e->runs);
    free(e);
}

static void cancel_runs(embeddings *e)
{
    for (uint32_t i = 0; i < e->count; i++) {
        if (!e->inputs[i].ended) {
            engine_cancel(e->server->engine, &e->inputs[i].run);
        }
    }
}

static void fail(embeddings *e, int status, const char *code, const char *message)
{
    http_exchange *x = e->x;
    if (x) {
        e->x = NULL;
        http_set_user(x, NULL);
        endpoint_fail(x, status, code, message);
        e->server->metrics.cancelled_error += status >= 500;
        cancel_runs(e);
    }
}

/* Keeps the first `width` values, with length 1. */
static void cut(const embeddings *e, float *values)
{
    double square = 0;
    for (uint32_t i = 0; i < e->width; i++) {
        square += (double)values[i] * (double)values[i];
    }
    for (uint32_t i = 0; i < e->width && square > 0; i++) {
        values[i] = (float)((double)values[i] / sqrt(square));
    }
}

/* The values as little-endian bytes, in base64. */
static void put_base64(buffer *out, const float *values, uint32_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bytes = (size_t)count * 4;
    buffer text = { 0 };
    for (size_t at = 0; at < bytes; at += 3) {
        uint32_t group = 0;
        char four[4];
        for (size_t i = 0; i < 3; i++) {
            uint32_t word = 0;
            if (at + i < bytes) {
                memcpy(&word, &values[(at + i) / 4], 4);
            }
            group = group << 8 | (word >> 8 * ((at + i) % 4) & 255u);
        }
        for (size_t i = 0; i < 4; i++) {
            bool filled = at + i <= bytes; /* of the last group, a byte more than digits */
            four[i] = filled ? digits[group >> (18 - 6 * i) & 63u] : '=';
        }
        buffer_add(&text, four, 4);
    }
    out->failed = out->failed || text.failed;
    buffer_text(out, "embedding", text.data ? text.data : "", text.bytes);
    buffer_free(&text);
}

static void put_vector(const embeddings *e, buffer *out, uint32_t index)
{
    float *values = e->inputs[index].values;
    if (e->cuts) {
        cut(e, values);
    }
    buffer_object(out, NULL);
    buffer_name(out, "object", "embedding");
    buffer_uint(out, "index", index);
    if (e->base64) {
        put_base64(out, values, e->width);
    } else {
        buffer_array(out, "embedding");
        for (uint32_t i = 0; i < e->width; i++) {
            buffer_number(out, NULL, (double)values[i]);
        }
        buffer_end(out);
    }
    buffer_end(out);
}

static void answer(embeddings *e)
{
    buffer out = { 0 };
    uint64_t tokens = 0;
    http_exchange *x = e->x;
    buffer_object(&out, NULL);
    buffer_name(&out, "object", "list");
    buffer_array(&out, "data");
    for (uint32_t i = 0; i < e->count; i++) {
        put_vector(e, &out, i);
        tokens += e->inputs[i].tokens;
    }
    buffer_end(&out);
    buffer_name(&out, "model", e->model->name);
    buffer_object(&out, "usage");
    buffer_uint(&out, "prompt_tokens", tokens);
    buffer_uint(&out, "total_tokens", tokens);
    buffer_end(&out);
    buffer_end(&out);
    if (out.failed) {
        fail(e, 500, "out_of_memory", "There is no memory left for the answer.");
    } else {
        e->x = NULL;
        http_set_user(x, NULL);
        http_answer(x, 200, "application/json", NULL, out.data, out.bytes);
    }
    buffer_free(&out);
}

/* ---- records ---- */

static void on_refused(embeddings *e, const engine_record *r)
{
    char message[512];
    bool long_text = r->result == EXL2_ERR_CONTEXT_FULL && r->context_max;
    bool ours = r->refusal == ENGINE_BY_MEMORY || r->result == EXL2_ERR_MEMORY || r->result == EXL2_ERR_DEVICE_LOST
             || r->result == EXL2_ERR_DEVICE_MEMORY || r->result == EXL2_ERR_INTERNAL;
    snprintf(message, sizeof message, "%s", r->text ? r->text : "");
    if (long_text) {
        snprintf(message, sizeof message, "This model's maximum context length is %u tokens. However, an input has %u "
                 "tokens. Please shorten it.", r->context_max, r->prompt_tokens);
    }
    fail(e, r->refusal == ENGINE_BY_MODEL ? 503 : ours ? 500 : 400,
         long_text ? "context_length_exceeded" : ours ? "engine_failed" : "invalid_value", message);
}

void embeddings_record(engine_run *run, const engine_record *r)
{
    input *in = run->user;
    embeddings *e = in->of;
    size_t bytes = (size_t)e->model->load.info.hidden * sizeof(float);
    if (r->kind == ENGINE_VECTOR && r->bytes == bytes) {
        memcpy(in->values, r->text, bytes);
    } else if (r->kind == ENGINE_REFUSED || r->kind == ENGINE_DONE) {
        in->ended = true;
        in->tokens = r->stats.prompt_tokens;
        e->ended++;
        e->server->metrics.tokens_reused += r->stats.reused_tokens;
    }
    if (r->kind == ENGINE_REFUSED && r->result != EXL2_ERR_CANCELLED) {
        on_refused(e, r);
    } else if (r->kind == ENGINE_DONE && r->stop == EXL2_STOP_CANCELLED) {
        fail(e, 503, "unloaded", "The model was unloaded while it read.");
    } else if (r->kind == ENGINE_DONE && r->result < 0) {
        fail(e, 500, "engine_failed", r->text ? r->text : "The engine has failed.");
    }
}

void embeddings_records_end(engine_run *run)
{
    embeddings *e = ((input *)run->user)->of;
    if (e->ended < e->count) {
        return;
    }
    if (e->x) {
        answer(e);
    }
    metrics_add(&e->server->metrics.request, (double)(clock_ns() - e->begin_ns) * 1e-9);
    free_request(e);
}

void embeddings_gone(embeddings *e)
{
    e->x = NULL;
    e->server->metrics.cancelled_gone++;
    cancel_runs(e);
}

void embeddings_end_all(server *s, const char *why)
{
    for (embeddings *e = s->embeddings; e; e = e->next) {
        s->metrics.cancelled_shutdown += e->x != NULL;
        fail(e, 503, "shutting_down", why);
    }
}

/* ---- the beginning ---- */

/* Fills in the prompt of one input: a text, or a list of ids. */
static bool read_input(fields *f, embeddings *e, input *in, const json_value *value)
{
    exl2_prompt *p = &in->run.desc.prompt;
    if (value->kind == JSON_TEXT && value->text_bytes) {
        in->text = buffer_copy(value->text, value->text_bytes);
        *p = (exl2_prompt){ .text = in->text, .text_bytes = value->text_bytes, .flags = EXL2_TEXT_END };
        return in->text || fields_fail(f->error, NULL, "There is no memory left for the request.");
    }
    if (value->kind != JSON_ARRAY || !value->child_count) {
        return fields_fail(f->error, "input", value->kind == JSON_TEXT || value->kind == JSON_ARRAY
                           ? "input is empty, or has an empty text"
                           : "input must be a text, a list of texts, a list of token ids, or a list of such lists");
    }
    size_t count = 0;
    in->ids = request_read_ids(f->error, value, "input", e->model->load.info.vocab, &count);
    *p = (exl2_prompt){ .tokens = in->ids, .token_count = count };
    return in->ids != NULL;
}

static bool read_body(fields *f, embeddings *e)
{
    const exl2_model_info *info = &e->model->load.info;
    const json_value *given = json_member(f->object, "input"), *adapters = json_member(f->object, "loras");
    const char *format = "float";
    int64_t dimensions = 0;
    if (!given) {
        return fields_fail(f->error, "input", "input is missing");
    }
    if (adapters && adapters->kind != JSON_NULL && !(adapters->kind == JSON_ARRAY && !adapters->child_count)) {
        return fields_fail(f->error, "loras", "vectors are made without adapters, so loras must be absent");
    }
    bool many = given->kind == JSON_ARRAY && given->child && given->child->kind != JSON_NUMBER;
    size_t count = many ? given->child_count : 1;
    fields_text(f, "encoding_format", &format, NULL);
    e->cuts = fields_whole(f, "dimensions", 1, info->hidden, &dimensions);
    e->width = e->cuts ? (uint32_t)dimensions : info->hidden;
    e->base64 = strcmp(format, "base64") == 0;
    if (!e->base64 && strcmp(format, "float") != 0) {
        return fields_fail(f->error, "encoding_format", "encoding_format must be float or base64");
    }
    if (count > INPUTS_MAX) {
        return fields_fail(f->error, "input", "input has %zu texts; at most %u are allowed", count, INPUTS_MAX);
    }
    e->inputs = calloc(count, sizeof *e->inputs);
    e->runs = calloc(count, sizeof *e->runs);
    const json_value *value = many ? given->child : given;
    for (size_t i = 0; i < count && e->inputs && e->runs && !f->error->set; i++, value = value->next) {
        input *in = &e->inputs[e->count++];
        in->of = e;
        in->values = malloc((size_t)info->hidden * sizeof(float));
        in->run = (engine_run){ .load = &e->model->load, .user = in };
        in->run.desc.embed = (exl2_embed_desc){
            .pool = info->embed_pool ? info->embed_pool : EXL2_EMBED_LAST, .raw = info->embed_raw
        };
        e->runs[i] = &in->run;
        if (!in->values) {
            return fields_fail(f->error, NULL, "There is no memory left for the request.");
        }
        read_input(f, e, in, value);
    }
    return e->inputs && e->runs ? !f->error->set
                                : fields_fail(f->error, NULL, "There is no memory left for the request.");
}

/* The model of --embeddings, or one that the request names, or the first one. NULL: an answer was given. */
static model *find_model(const endpoint_request *r, const json_value *tree)
{
    const json_value *named = json_member(tree, "model");
    model *m = models_embedder(r->server, named && named->kind == JSON_TEXT ? named->text : NULL);
    if (!m) {
        endpoint_error(r, 503, "no_model", models_loading(r->server) ? "The model is still loading."
                                                                     : "No model is loaded.");
    }
    return m;
}

void endpoint_embeddings(const endpoint_request *r)
{
    server *s = r->server;
    request_error error = { 0 };
    if (s->stopping || engine_waiting(s->engine) >= s->options->queue) {
        endpoint_error(r, s->stopping ? 503 : 429, s->stopping ? "shutting_down" : "queue_full",
                       s->stopping ? "The server is shutting down." : "Too many requests wait already.");
        return;
    }
    json_value *tree = endpoint_body(r);
    model *m = tree ? find_model(r, tree) : NULL;
    embeddings *e = m ? calloc(1, sizeof *e) : NULL;
    if (!e) {
        json_free(tree);
        if (m) {
            endpoint_error(r, 500, "out_of_memory", "There is no memory left for the request.");
        }
        return;
    }
    *e = (embeddings){ .owner = { OWNER_EMBEDDINGS }, .server = s, .x = r->x, .model = m,
                       .begin_ns = clock_ns() };
    m->calls++;
    fields f = { tree, &error };
    bool good = read_body(&f, e);
    json_free(tree);
    if (!good) {
        endpoint_bad(r->x, &error);
        free_request(e);
        return;
    }
    e->next = s->embeddings;
    e->link = &s->embeddings;
    if (e->next) {
        e->next->link = &e->next;
    }
    s->embeddings = e;
    e->batch = (engine_batch){ .runs = e->runs, .count = e->count };
    http_set_user(r->x, e);
    http_drop_body(r->x);
    engine_submit(s->engine, &e->batch);
}
