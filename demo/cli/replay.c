/* replay.c: `exl2 replay`: conversations as JSON lines, each answered by a JSON line: what a script does to sessions
   and jobs, so that the same texts can be made in many ways and compared.
   takes: a model folder, a script, pictures that it names.
   gives: cli_replay. */
#define _POSIX_C_SOURCE 200809L
#include "../common/clock.h"
#include "../common/host.h"
#include "../common/images.h"
#include "../common/interrupt.h"
#include "../common/json_in.h"
#include "../common/json_out.h"
#include "../common/memory.h"
#include "../common/text_file.h"
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLAY_SESSIONS 1024
#define REPLAY_LORAS 8
#define REPLAY_NAME 64
#define REPLAY_PICTURES 64 /* of a line */

/* A session of the script, and its newest job. */
typedef struct talk {
    char name[REPLAY_NAME]; /* "" = unused */
    exl2_session session;
    bool running, ended;    /* ended: its line is not printed yet */
    uint32_t order;         /* of the end */
    char op[8];
    char *id;               /* the line's "id" as JSON, or NULL */
    exl2_job job;
    memory_text text;
    exl2_token *ids;
    size_t id_count, id_cap;
    host_end end;
    uint64_t *delivered;    /* tokens of all jobs */
} talk;

typedef struct pictures {
    exl2_image handles[REPLAY_PICTURES];
    uint32_t count;
    exl2_result result;  /* of making them */
    char sentence[1280]; /* why it failed */
} pictures;

typedef struct adapter {
    char name[REPLAY_NAME]; /* "" = unused */
    exl2_lora lora;
} adapter;

typedef struct replay {
    host host;
    const char *path, *script;
    exl2_model_desc model;
    exl2_step_desc step;
    host_options options;
    images_options images;
    exl2_image *kept; /* [kept_count] pictures of the operation "image" */
    size_t kept_count;
    bool worker; /* --worker */
    bool json; /* accepted: the answers are JSON in any case */
    talk talks[REPLAY_SESSIONS];
    adapter adapters[REPLAY_LORAS];
    uint64_t delivered;
    uint32_t ends;
    const json_value *line;
    uint32_t line_number;
} replay;

/* ---- values of a line ---- */

static const char *text_of(const replay *r, const char *key)
{
    const json_value *v = json_member(r->line, key);
    return v && v->kind == JSON_TEXT ? v->text : NULL;
}

static double number_of(const replay *r, const char *key, double otherwise)
{
    const json_value *v = json_member(r->line, key);
    return v && v->kind == JSON_NUMBER ? v->number : otherwise;
}

static uint32_t count_of(const replay *r, const char *key)
{
    double value = number_of(r, key, 0);
    return value >= 0 && value <= 4294967295.0 ? (uint32_t)value : UINT32_MAX;
}

static bool is_set(const replay *r, const char *key)
{
    const json_value *v = json_member(r->line, key);
    return v && v->kind == JSON_TRUE;
}

/* What a line may have. A boolean has the kind JSON_TRUE here, a number that counts something JSON_NULL. */
static const struct { const char *key; json_kind kind; } keys[] = {
    { "op", JSON_TEXT }, { "s", JSON_TEXT }, { "from", JSON_TEXT }, { "file", JSON_TEXT }, { "text", JSON_TEXT },
    { "ids", JSON_ARRAY }, { "messages", JSON_ARRAY }, { "images", JSON_ARRAY }, { "schema", JSON_OBJECT },
    { "max", JSON_NULL }, { "reserve", JSON_NULL }, { "seed", JSON_NULL }, { "tokens", JSON_NULL },
    { "count", JSON_NULL }, { "from_token", JSON_NULL }, { "temperature", JSON_NUMBER }, { "priority", JSON_NUMBER },
    { "greedy", JSON_TRUE }, { "prefill", JSON_TRUE }, { "ngram", JSON_TRUE }, { "one_by_one", JSON_TRUE },
    { "hold", JSON_TRUE }, { "kv", JSON_TRUE }, { "begun", JSON_TRUE },
    { "name", JSON_TEXT }, { "folder", JSON_TEXT }, { "loras", JSON_ARRAY },
};

/* Checks the members of the line. sentence [cap]: what is wrong, if the result is false. */
static bool check_line(const replay *r, char *sentence, size_t cap)
{
    static const char *const names[] = { "a count", "false", "true or false", "a number", "a text", "a list",
                                         "an object" };
    for (const json_value *v = r->line->child; v; v = v->next) {
        size_t i = 0;
        while (i < sizeof keys / sizeof keys[0] && strcmp(keys[i].key, v->key) != 0) {
            i++;
        }
        if (v->kind == JSON_NULL || strcmp(v->key, "id") == 0) {
            continue;
        }
        if (i == sizeof keys / sizeof keys[0]) {
            snprintf(sentence, cap, "a line cannot have \"%.40s\"", v->key);
            return false;
        }
        json_kind kind = v->kind == JSON_FALSE ? JSON_TRUE : v->kind;
        if (kind == JSON_NUMBER && keys[i].kind == JSON_NULL) {
            kind = v->number >= 0 && strspn(v->raw, "0123456789") == v->raw_bytes ? JSON_NULL : JSON_NUMBER;
        }
        if (kind != keys[i].kind) {
            snprintf(sentence, cap, "\"%s\" must be %s", v->key, names[keys[i].kind]);
            return false;
        }
    }
    return true;
}

/* ---- answers ---- */

static void begin_answer(json_out *j, const char *op, const char *session, const char *id)
{
    *j = (json_out){ .file = stdout };
    json_out_object(j, NULL);
    json_out_string(j, "op", op);
    if (session) {
        json_out_string(j, "s", session);
    }
    if (id) {
        json_value *value = json_read(id, strlen(id), &(const char *){ NULL });
        if (value && value->kind == JSON_NUMBER) {
            json_out_number(j, "id", value->number);
        } else if (value && value->kind == JSON_TEXT) {
            json_out_text(j, "id", value->text, value->text_bytes);
        }
        json_free(value);
    }
}

static char *line_id(const replay *r)
{
    const json_value *id = json_member(r->line, "id");
    return id ? memory_copy_text(id->raw, id->raw_bytes) : NULL;
}

/* The line of an operation that has ended: its error, if result < 0. ms below 0: without the time that it needed. */
static void answer_timed(const replay *r, exl2_result result, const char *sentence, double ms)
{
    json_out j;
    exl2_error error = { 0 };
    char *id = line_id(r);
    begin_answer(&j, text_of(r, "op") ? text_of(r, "op") : "", text_of(r, "s"), id);
    if (result < 0) {
        exl2_last_error(r->host.engine, &error);
        json_out_string(&j, "error", exl2_result_name(result));
        json_out_string(&j, "sentence", sentence ? sentence : error.text);
    }
    if (ms >= 0) {
        json_out_number(&j, "ms", ms);
    }
    json_out_end(&j);
    free(id);
}

static void answer(const replay *r, exl2_result result, const char *sentence)
{
    answer_timed(r, result, sentence, -1);
}

static void answer_job(talk *t)
{
    json_out j;
    const exl2_job_stats *s = &t->end.stats;
    begin_answer(&j, t->op, t->name, t->id);
    json_out_ids(&j, "ids", t->ids, t->id_count);
    json_out_text(&j, "text", t->text.data ? t->text.data : "", t->text.bytes);
    json_out_string(&j, "stop", host_stop_name(t->end.stop));
    if (t->end.result < 0 && t->end.stop != EXL2_STOP_CANCELLED) {
        json_out_string(&j, "error", exl2_result_name(t->end.result));
        json_out_string(&j, "sentence", t->end.error);
    }
    json_out_uint(&j, "prompt_tokens", s->prompt_tokens);
    json_out_uint(&j, "reused_tokens", s->reused_tokens);
    json_out_uint(&j, "image_rows", s->image_rows);
    json_out_uint(&j, "new_tokens", s->new_tokens);
    json_out_uint(&j, "forced_tokens", s->forced_tokens);
    json_out_uint(&j, "drafted", s->drafted);
    json_out_uint(&j, "accepted", s->accepted);
    json_out_uint(&j, "seed", s->seed);
    json_out_number(&j, "first_ms", (double)(s->queued_ns + s->prefill_ns) * 1e-6);
    json_out_end(&j);
    t->ended = false;
}

/* ---- sessions ---- */

static talk *find(replay *r, const char *name)
{
    for (size_t i = 0; name && i < REPLAY_SESSIONS; i++) {
        if (r->talks[i].name[0] && strcmp(r->talks[i].name, name) == 0) {
            return &r->talks[i];
        }
    }
    return NULL;
}

static void forget(talk *t)
{
    free(t->id);
    free(t->ids);
    free(t->text.data);
    *t = (talk){ .name = "" };
}

/* An unused place with the name. NULL: there is none, or the name is in use or too long; the error was answered. */
static talk *place(replay *r, const char *name)
{
    if (!name || !name[0] || strlen(name) >= REPLAY_NAME || find(r, name)) {
        answer(r, EXL2_ERR_ARG, "\"s\" must be a new name of at most 63 bytes");
        return NULL;
    }
    for (size_t i = 0; i < REPLAY_SESSIONS; i++) {
        if (!r->talks[i].name[0]) {
            strcpy(r->talks[i].name, name);
            return &r->talks[i];
        }
    }
    answer(r, EXL2_ERR_BUDGET, "there are 1,024 sessions already");
    return NULL;
}

/* from: the session to fork, or NULL. */
static void open_session(replay *r, talk *from)
{
    talk *t = place(r, text_of(r, "s"));
    if (t) {
        exl2_result result = from ? exl2_session_fork(r->host.engine, from->session, &t->session)
                                  : exl2_session_open(r->host.engine, r->host.model, &t->session);
        answer(r, result, NULL);
        if (result < 0) {
            forget(t);
        }
    }
}

static void save(replay *r, talk *t)
{
    const char *path = text_of(r, "file");
    size_t need = 0;
    uint32_t flags = (is_set(r, "kv") ? EXL2_SAVE_KV : 0) | EXL2_SAVE_IMAGES;
    exl2_result result = exl2_session_save(r->host.engine, t->session, flags, NULL, 0, &need);
    uint8_t *data = memory_take(need, 1);
    result = result < 0 ? result : exl2_session_save(r->host.engine, t->session, flags, data, need, &need);
    if (result < 0 || !path || !path[0]) {
        bool named = path && path[0];
        answer(r, named ? result : EXL2_ERR_ARG, named ? NULL : "\"file\" is missing");
    } else {
        answer(r, text_file_write(path, data, need) ? EXL2_OK : EXL2_ERR_IO, "the file cannot be written");
    }
    free(data);
}

static void load(replay *r, talk *t)
{
    const char *path = text_of(r, "file");
    size_t bytes = 0;
    bool named = path && path[0];
    char *data = named ? text_file_read(path, &bytes) : NULL;
    if (!data) {
        answer(r, named ? EXL2_ERR_IO : EXL2_ERR_ARG, named ? "the file cannot be read" : "\"file\" is missing");
        return;
    }
    answer(r, exl2_session_restore(r->host.engine, t->session, data, bytes), NULL);
    free(data);
}

/* ---- adapters ---- */

/* The adapter of this name; name NULL: an unused place. NULL: there is none. */
static adapter *find_adapter(replay *r, const char *name)
{
    for (size_t i = 0; i < REPLAY_LORAS; i++) {
        adapter *a = &r->adapters[i];
        if (name ? a->name[0] && strcmp(a->name, name) == 0 : !a->name[0]) {
            return a;
        }
    }
    return NULL;
}

static void load_adapter(replay *r, talk *none)
{
    (void)none;
    const char *name = text_of(r, "name"), *folder = text_of(r, "folder");
    exl2_lora_desc d = { .model = r->host.model, .path = folder };
    adapter *a = find_adapter(r, NULL);
    if (!name || !name[0] || strlen(name) >= REPLAY_NAME || find_adapter(r, name)) {
        answer(r, EXL2_ERR_ARG, "\"name\" must be a new name of at most 63 bytes");
    } else if (!folder || !folder[0]) {
        answer(r, EXL2_ERR_ARG, "\"folder\" is missing");
    } else if (!a) {
        answer(r, EXL2_ERR_BUDGET, "there are 8 adapters already");
    } else {
        exl2_result result = exl2_lora_load(r->host.engine, &d, &a->lora);
        answer(r, result, NULL);
        strcpy(a->name, result < 0 ? "" : name);
    }
}

static void close_adapter(replay *r, talk *none)
{
    (void)none;
    const char *name = text_of(r, "name");
    adapter *a = name && name[0] ? find_adapter(r, name) : NULL;
    answer(r, a ? exl2_lora_close(r->host.engine, a->lora) : EXL2_ERR_STALE, a ? NULL : "no adapter has this name");
    if (a) {
        a->name[0] = 0;
    }
}

/* The job's adapters: "loras" is a list of [name, factor]. NULL, or what is wrong. */
static const char *set_loras(replay *r, exl2_lora_use uses[EXL2_JOB_LORAS], uint32_t *count)
{
    const json_value *list = json_member(r->line, "loras");
    for (const json_value *v = list ? list->child : NULL; v; v = v->next) {
        const json_value *name = v->kind == JSON_ARRAY ? v->child : NULL, *scale = name ? name->next : NULL;
        bool pair = scale && !scale->next && name->kind == JSON_TEXT && scale->kind == JSON_NUMBER;
        const adapter *a = pair ? find_adapter(r, name->text) : NULL;
        if (!a || *count == EXL2_JOB_LORAS) {
            return !pair ? "\"loras\" must be a list of [name, factor]" : !a ? "no adapter has this name"
                         : "a job has at most 8 adapters";
        }
        float factor = scale->number < 0 || scale->number > 0 ? (float)scale->number : (float)EXL2_OFF;
        factor = scale->number <= EXL2_OFF ? EXL2_OFF - 1 : factor; /* out of range, not left out */
        uses[(*count)++] = (exl2_lora_use){ a->lora, factor };
    }
    return NULL;
}

/* ---- jobs ---- */

static exl2_flow on_event(void *user, const exl2_event *event)
{
    talk *t = user;
    host_end_take(&t->end, event);
    if (event->kind == EXL2_EVENT_TEXT) {
        memory_text_add(&t->text, event->text, event->bytes);
        for (uint32_t i = 0; i < event->token_count; i++) {
            if (t->id_count == t->id_cap) {
                t->id_cap = t->id_cap ? t->id_cap * 2 : 64;
                t->ids = memory_grow(t->ids, t->id_cap, sizeof *t->ids);
            }
            t->ids[t->id_count++] = event->tokens[i].token;
        }
        *t->delivered += event->token_count;
    }
    return EXL2_CONTINUE;
}

static exl2_result step(replay *r)
{
    exl2_result result = exl2_step(r->host.engine, &r->step);
    for (size_t i = 0; i < REPLAY_SESSIONS; i++) {
        talk *t = &r->talks[i];
        if (t->running && t->end.done) {
            t->running = false;
            t->ended = true;
            t->order = r->ends++;
        }
    }
    return result;
}

/* Makes the pictures that `list` names, after those that p has. Returns how many. */
static size_t show(const replay *r, const json_value *list, pictures *p)
{
    size_t before = p->count;
    for (const json_value *v = list && list->kind == JSON_ARRAY ? list->child : NULL; v && p->result >= 0;
         v = v->next) {
        if (v->kind != JSON_TEXT || p->count == REPLAY_PICTURES) {
            snprintf(p->sentence, sizeof p->sentence, "\"images\" must be a list of at most 64 files");
            p->result = EXL2_ERR_ARG;
        } else {
            p->result = images_make_file(r->host.engine, r->host.model, v->text, &p->handles[p->count], p->sentence,
                                         sizeof p->sentence);
            p->count += p->result >= 0;
        }
    }
    return p->count - before;
}

/* The messages of the line; pictures of the line itself stand in the last one. */
static exl2_message *read_messages(const replay *r, const json_value *messages, pictures *p)
{
    exl2_message *list = memory_take(messages->child_count + 1, sizeof *list);
    size_t n = 0;
    for (const json_value *v = messages->child; v; v = v->next) {
        const json_value *role = json_member(v, "role"), *content = json_member(v, "content");
        exl2_message *m = &list[n++];
        *m = (exl2_message){ .role = role && role->kind == JSON_TEXT ? role->text : NULL,
                             .text = content && content->kind == JSON_TEXT ? content->text : "",
                             .images = p->handles + p->count };
        m->image_count = show(r, json_member(v, "images"), p);
        m->image_count += v->next ? 0 : show(r, json_member(r->line, "images"), p);
    }
    return list;
}

/* The prompt of the line. *memory: what it needs, to be freed; *p: its pictures, to be closed. */
static void set_prompt(const replay *r, exl2_job_desc *d, void **memory, pictures *p)
{
    const json_value *ids = json_member(r->line, "ids"), *messages = json_member(r->line, "messages");
    const json_value *text = json_member(r->line, "text");
    size_t n = 0;
    if (messages) {
        d->prompt.messages = *memory = read_messages(r, messages, p);
        d->prompt.message_count = messages->child_count;
        d->chat.begun_reply = is_set(r, "begun");
        return;
    }
    d->prompt.images = p->handles;
    d->prompt.image_count = show(r, json_member(r->line, "images"), p);
    if (ids) {
        exl2_token *tokens = memory_take(ids->child_count + 1, sizeof *tokens);
        for (const json_value *v = ids->child; v; v = v->next) {
            bool whole = v->kind == JSON_NUMBER && v->number >= -1 && v->number < 2147483647.0;
            tokens[n++] = whole ? (exl2_token)v->number : -1;
        }
        d->prompt.tokens = *memory = tokens;
        d->prompt.token_count = n;
    } else if (text && text->kind == JSON_TEXT) {
        d->prompt.text = text->text;
        d->prompt.text_bytes = text->text_bytes;
    }
}

static void close_pictures(const replay *r, const exl2_image *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        exl2_image_close(r->host.engine, list[i]);
    }
}

static void set_sampler(const replay *r, exl2_sampler_desc *s)
{
    const json_value *seed = json_member(r->line, "seed");
    s->preset = is_set(r, "greedy") ? EXL2_PRESET_GREEDY : EXL2_PRESET_MODEL;
    s->temperature = (float)number_of(r, "temperature", 0);
    s->seed = seed && seed->kind == JSON_NUMBER ? strtoull(seed->raw, NULL, 10) : 0;
}

static void start(replay *r, talk *t, bool resume)
{
    void *memory = NULL;
    double priority = number_of(r, "priority", 0);
    exl2_job_desc d = { .session = t->session, .max_tokens = count_of(r, "max"),
                        .reserve = count_of(r, "reserve"), .resume = resume,
                        .prefill_only = is_set(r, "prefill"),
                        .priority = (int32_t)(priority < -1e9 ? -1e9 : priority > 1e9 ? 1e9 : priority),
                        .draft = { .ngram = is_set(r, "ngram"), .one_by_one = is_set(r, "one_by_one") },
                        .on_event = on_event, .user = t };
    exl2_lora_use uses[EXL2_JOB_LORAS];
    const json_value *schema = json_member(r->line, "schema");
    pictures shown = { .count = 0 };
    exl2_result result = EXL2_OK;
    const char *wrong = set_loras(r, uses, &d.lora_count);
    d.loras = uses;
    if (t->running || t->ended) {
        wrong = "the session has a job whose end was not answered yet: run first";
    }
    if (wrong) {
        answer(r, t->running || t->ended ? EXL2_ERR_STATE : EXL2_ERR_ARG, wrong);
        return;
    }
    set_prompt(r, &d, &memory, &shown);
    set_sampler(r, &d.sampler);
    if (schema) {
        exl2_grammar_desc g = { .model = r->host.model, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = schema->raw,
                                .source_bytes = schema->raw_bytes };
        result = exl2_grammar_make(r->host.engine, &g, &d.grammar);
    }
    t->id_count = t->text.bytes = 0;
    t->end = (host_end){ 0 };
    t->delivered = &r->delivered;
    result = shown.result < 0 ? shown.result : result;
    result = result < 0 ? result : exl2_job_start(r->host.engine, &d, &t->job);
    if (result < 0) {
        answer(r, result, shown.result < 0 ? shown.sentence : NULL);
    } else {
        free(t->id);
        t->id = line_id(r);
        strcpy(t->op, resume ? "resume" : "say");
        t->running = true;
    }
    if (d.grammar.id) {
        exl2_grammar_close(r->host.engine, d.grammar);
    }
    close_pictures(r, shown.handles, shown.count); /* the job keeps what it needs */
    free(memory);
    if (result >= 0 && is_set(r, "hold")) {
        answer(r, EXL2_OK, NULL);
    }
    while (result >= 0 && t->running && !is_set(r, "hold") && !interrupted()) {
        step(r);
    }
    if (t->ended && !is_set(r, "hold")) {
        answer_job(t);
    }
}

static void say(replay *r, talk *t)
{
    start(r, t, false);
}

static void resume(replay *r, talk *t)
{
    start(r, t, true);
}

/* Steps until nothing runs, or until that many tokens were delivered; then a line for each job that has ended. */
static void run(replay *r, talk *none)
{
    (void)none;
    json_out j;
    char *id = line_id(r);
    uint32_t tokens = count_of(r, "tokens"), ended = 0;
    uint64_t until = r->delivered + tokens;
    while ((tokens == 0 || r->delivered < until) && step(r) != EXL2_IDLE && !interrupted()) {
    }
    for (size_t i = 0; i < REPLAY_SESSIONS; i++) {
        ended += r->talks[i].ended;
    }
    begin_answer(&j, "run", NULL, id);
    json_out_uint(&j, "ended", ended);
    json_out_end(&j);
    for (; ended > 0; ended--) {
        talk *next = NULL;
        for (size_t i = 0; i < REPLAY_SESSIONS; i++) {
            talk *t = &r->talks[i];
            next = t->ended && (!next || t->order < next->order) ? t : next;
        }
        answer_job(next);
    }
    free(id);
}

static void park(replay *r, talk *none)
{
    (void)none;
    uint64_t begin = clock_ns();
    exl2_result result = exl2_model_park(r->host.engine, r->host.model, true);
    answer_timed(r, result, NULL, (double)(clock_ns() - begin) * 1e-6);
}

/* Loads the parked model again, and steps until that has ended. */
static void unpark(replay *r, talk *none)
{
    (void)none;
    exl2_engine *e = r->host.engine;
    uint64_t begin = clock_ns();
    exl2_result result = exl2_model_park(e, r->host.model, false);
    while (result >= 0 && exl2_model_state(e, r->host.model) == EXL2_PENDING && !interrupted()) {
        step(r);
    }
    exl2_error error = { 0 };
    exl2_last_error(e, &error); /* of a model that stays parked */
    bool parked = result >= 0 && exl2_model_state(e, r->host.model) == EXL2_IDLE;
    answer_timed(r, parked ? error.code : result, NULL, (double)(clock_ns() - begin) * 1e-6);
}

/* Makes a picture, which stays open until "images_close". */
static void keep_picture(replay *r, talk *none)
{
    (void)none;
    const char *path = text_of(r, "file");
    char sentence[1280] = "\"file\" is missing";
    r->kept = memory_grow(r->kept, r->kept_count + 1, sizeof *r->kept);
    exl2_result result = EXL2_ERR_ARG;
    if (path && path[0]) {
        result = images_make_file(r->host.engine, r->host.model, path, &r->kept[r->kept_count], sentence,
                                  sizeof sentence);
    }
    r->kept_count += result >= 0;
    answer(r, result, sentence);
}

static void forget_pictures(replay *r, talk *none)
{
    (void)none;
    close_pictures(r, r->kept, r->kept_count);
    r->kept_count = 0;
    answer(r, EXL2_OK, NULL);
}

static void stats(replay *r, talk *none)
{
    (void)none;
    json_out j;
    exl2_engine_stats s;
    char *id = line_id(r);
    exl2_stats(r->host.engine, &s);
    begin_answer(&j, "stats", NULL, id);
    json_out_uint(&j, "tokens_in", s.tokens_in);
    json_out_uint(&j, "tokens_out", s.tokens_out);
    json_out_uint(&j, "forwards", s.forwards);
    json_out_uint(&j, "pages_total", s.pages_total);
    json_out_uint(&j, "pages_used", s.pages_used);
    json_out_uint(&j, "pages_cached", s.pages_cached);
    json_out_uint(&j, "pages_shared", s.pages_shared);
    json_out_uint(&j, "evictions", s.evictions);
    json_out_uint(&j, "preemptions", s.preemptions);
    json_out_uint(&j, "allocations", s.allocations);
    json_out_uint(&j, "host_bytes", s.host_bytes);
    json_out_uint(&j, "device_bytes", s.device_bytes);
    json_out_end(&j);
    free(id);
}

/* ---- the script ---- */

static void rewind_session(replay *r, talk *t)
{
    answer(r, exl2_session_rewind(r->host.engine, t->session, count_of(r, "tokens")), NULL);
}

static void trim(replay *r, talk *t)
{
    uint32_t from = count_of(r, "from_token");
    answer(r, exl2_session_trim(r->host.engine, t->session, from, count_of(r, "count")), NULL);
}

static void cancel(replay *r, talk *t)
{
    if (t->job.id) {
        answer(r, exl2_job_cancel(r->host.engine, t->job), NULL);
    } else {
        answer(r, EXL2_ERR_STALE, "the session has no job");
    }
}

static void close_session(replay *r, talk *t)
{
    if (t->running || t->ended) {
        answer(r, EXL2_ERR_STATE, "the session has a job whose end was not answered yet: run first");
        return;
    }
    answer(r, exl2_session_close(r->host.engine, t->session), NULL);
    forget(t);
}

/* session: the member that names an open session, which the operation gets; NULL: it gets none. */
static const struct { const char *name, *session; void (*obey)(replay *r, talk *t); } operations[] = {
    { "open", NULL, open_session }, { "fork", "from", open_session }, { "close", "s", close_session },
    { "say", "s", say }, { "resume", "s", resume }, { "cancel", "s", cancel },
    { "rewind", "s", rewind_session }, { "trim", "s", trim }, { "save", "s", save }, { "load", "s", load },
    { "image", NULL, keep_picture }, { "images_close", NULL, forget_pictures },
    { "run", NULL, run }, { "stats", NULL, stats }, { "park", NULL, park }, { "unpark", NULL, unpark },
    { "lora", NULL, load_adapter }, { "unlora", NULL, close_adapter },
};

static void obey(replay *r)
{
    enum { COUNT = sizeof operations / sizeof operations[0] };
    const char *op = text_of(r, "op");
    char sentence[128];
    size_t i = 0;
    while (op && i < COUNT && strcmp(operations[i].name, op) != 0) {
        i++;
    }
    if (!check_line(r, sentence, sizeof sentence)) {
        answer(r, EXL2_ERR_ARG, sentence);
    } else if (!op || i == COUNT) {
        answer(r, EXL2_ERR_ARG, op ? "no such \"op\"" : "\"op\" is missing");
    } else {
        talk *t = operations[i].session ? find(r, text_of(r, operations[i].session)) : NULL;
        if (operations[i].session && !t) {
            answer(r, EXL2_ERR_STALE, "no session has this name");
        } else {
            operations[i].obey(r, t);
        }
    }
    fflush(stdout);
}

/* Returns the exit code: 1 for a line that is no JSON object. */
static int read_script(replay *r, FILE *file)
{
    char *line = NULL;
    size_t cap = 0, bytes;
    int code = 0;
    while (code == 0 && !interrupted() && text_line_read(file, &line, &cap, &bytes)) {
        const char *error;
        r->line_number++;
        if (bytes == 0) {
            continue;
        }
        json_value *value = json_read(line, bytes, &error);
        if (value && value->kind == JSON_OBJECT) {
            r->line = value;
            obey(r);
        } else {
            fprintf(stderr, "line %u of the script is no JSON object: %s\n", r->line_number,
                    value ? "it is another value" : error);
            code = 1;
        }
        json_free(value);
    }
    free(line);
    return interrupted() ? 1 : code;
}

static int replay_script(replay *r)
{
    bool from_stdin = strcmp(r->script, "-") == 0;
    FILE *file = from_stdin ? stdin : text_file_open(r->script, "rb");
    if (!file) {
        fprintf(stderr, "%s: %s\n", r->script, strerror(errno));
        return 1;
    }
    interrupt_watch();
    int code = read_script(r, file);
    if (!from_stdin) {
        fclose(file);
    }
    return code;
}

/* Opens the model so that a script may load adapters, unless they are not computed there. */
static bool load_model(replay *r)
{
    exl2_model_desc d = r->model;
    exl2_model_info plan;
    d.lora_max = REPLAY_LORAS;
    host_place(&r->host, &d);
    r->model.lora_max = exl2_model_measure(r->host.engine, &d, &plan) == EXL2_ERR_UNSUPPORTED ? 0 : REPLAY_LORAS;
    return host_load(&r->host, &r->model, 2);
}

int cli_replay(int argc, char **argv)
{
    replay *r = memory_take(1, sizeof *r);
    *r = (replay){ .step = { .wait = true } };
    const arg positional[] = { { "MODEL", ARG_TEXT, &r->path, NULL, "model folder" },
                               { "SCRIPT", ARG_TEXT, &r->script, NULL, "JSON lines; - = stdin" } };
    const arg flags[] = {
        { "--json", ARG_BOOL, &r->json, NULL, "nothing: answers always are JSON lines" },
        { "--cpu-us", ARG_U32, &r->step.cpu_us, "N", "CPU microseconds of a step (a whole pass)" },
        { "--gpu-us", ARG_U32, &r->step.gpu_us, "N", "GPU microseconds of a step (a whole pass)" },
        { "--worker", ARG_BOOL, &r->worker, NULL, "a thread of the engine does the work" },
        { "--keep-packed", ARG_BOOL, &r->model.keep_packed, NULL,
          "parked models are loaded again from a copy in host memory" },
        { "--no-reuse", ARG_BOOL, &r->model.cache.no_reuse, NULL, "sessions share K and V with their forks only" },
        { "--batch", ARG_U32, &r->model.batch_max, "N", "most sequences of a pass (16)" },
        { "--prefill-chunk", ARG_U32, &r->model.prefill_chunk, "N", "most rows of a pass (1024)" },
        IMAGES_ROOM(r->images, "(0)"),
        HOST_CONTEXT_ARGS(r->model),
        HOST_ARGS(r->options),
    };
    const args_desc d = { "exl2 replay",
                          "Runs conversations from JSON lines and answers each with a JSON line.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = host_parse(&d, argc, argv, &r->options);
    int code = cli_exit(parsed);
    if (parsed == ARGS_OK) {
        r->model.path = r->path;
        images_room(&(images){ 0 }, &r->images, 0, &r->model);
        r->step.wait = r->worker || (r->step.cpu_us == 0 && r->step.gpu_us == 0);
        bool loaded = host_open(&r->host, &r->options) && load_model(r);
        bool works = loaded && (!r->worker || exl2_worker_start(r->host.engine) == EXL2_OK);
        code = works ? replay_script(r) : loaded ? host_failed(&r->host) : 1;
        host_close(&r->host);
    }
    for (size_t i = 0; i < REPLAY_SESSIONS; i++) {
        forget(&r->talks[i]);
    }
    free(r->kept);
    free(r);
    return code;
}
