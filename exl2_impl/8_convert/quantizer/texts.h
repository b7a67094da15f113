/* texts.h: the ids that calibration runs on: those of the application's files, or of the spare texts and of text that
   the model writes itself.
   takes: exl2_convert_desc, a source model.
   gives: exl2__texts, exl2__texts_make, exl2__texts_random, exl2__texts_close; exl2__texts_check_file,
          exl2__texts_measure.
   owns:  the ids, until exl2__texts_close; an engine, until a function returns. */
#ifndef EXL2__TEXTS_H
#define EXL2__TEXTS_H

#include "../../0_base/hash.h"
#include "../../0_base/json/json.h"
#include "../../1_load/file.h"
#include "../../7_engine/public.h"
#include "spare_texts.h"
#include "spare_texts.h"

#define EXL2__TEXTS_FILE_MAX ((uint64_t)1 << 30)
#define EXL2__TEXTS_CONTEXT 640u      /* of a session in which the model writes; three quarters are for its own text */
#define EXL2__TEXTS_ROUNDS_MAX 64u    /* how often all openings are used, at most */
#define EXL2__TEXTS_BATCH 16u
#define EXL2__TEXTS_BATCH_GPU 192u    /* if its memory has room for them */

typedef struct exl2__texts {
    exl2__ctx *c;
    exl2_token *ids; /* [count] */
    uint64_t count, capacity;
    uint64_t spread; /* number of the first ones that are of texts which may be longer than needed: rows are spread over
                        them */
} exl2__texts;

/* Beginnings of texts in several languages and of code, and requests for the chat template. */
static const char *const exl2__texts_openings[] = {
    "The", "In the", "Once upon a time", "A", "It was", "According to", "# Introduction\n", "##", "Abstract",
    "Question:", "1.", "Dear", "\"", "The history of", "When I", "During the", "def ", "import ", "#include <",
    "class ", "function ", "/*", "SELECT ", "<html>", "{\"", "$", "public static", "fn main", "#!/bin/sh\n", "Usage:",
    "Der", "Die", "Das ist", "Le", "La", "Les", "El", "Los", "Il", "O", "De",
    "\xD0\x92", "\xD0\xAD\xD1\x82\xD0\xBE", "\xE8\xBF\x99", "\xE4\xB8\xAD\xE5\x9B\xBD",
    "\xE3\x81\x93\xE3\x82\x8C\xE3\x81\xAF", "\xE6\x97\xA5\xE6\x9C\xAC", "\xED\x95\x9C\xEA\xB5\xAD", "\xCE\x97",
    "\xD9\x87\xD8\xB0\xD8\xA7"
};
static const char *const exl2__texts_requests[] = {
    "Hello! Who are you?", "Explain how rain forms.", "Write a short story about a lighthouse.",
    "What is the capital of France, and what is it known for?", "Write a function that reverses a list in Python.",
    "Give me a recipe for bread.", "What are the rules of chess?", "Describe a dragon that guards a library.",
    "How do I learn to play the guitar?", "Summarize the life of Ada Lovelace.", "Translate 'good morning' to Spanish.",
    "Name five ways to save energy at home.", "What is 17 times 23? Explain each step.", "Tell me a joke.",
    "Write a letter to a friend who has moved away.", "You are a merchant in a fantasy town. What do you sell?",
    "Why is the sky blue?", "Compare cats and dogs as pets.", "Write a poem about the sea.",
    "What happened in the year 1969?", "How does a computer store numbers?", "Give a plan for a day in Rome."
};

EXL2__PRIVATE void exl2__texts_close(exl2__texts *t)
{
    if (t->c) {
        exl2__free(t->c, t->ids, t->capacity * sizeof *t->ids, EXL2_MEM_GENERAL);
    }
    *t = (exl2__texts){ 0 };
}

/* Makes room for `more` ids, and returns where they belong. */
EXL2__PRIVATE exl2_result exl2__texts_room(exl2__texts *t, uint64_t more, exl2_token **out)
{
    if (t->count + more > t->capacity) {
        void *memory;
        uint64_t capacity = exl2__max64(t->capacity * 2, t->count + more + 4096);
        EXL2__TRY(exl2__alloc(t->c, capacity * sizeof *t->ids, EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &memory));
        if (t->count) {
            memcpy(memory, t->ids, (size_t)t->count * sizeof *t->ids);
        }
        exl2__free(t->c, t->ids, t->capacity * sizeof *t->ids, EXL2_MEM_GENERAL);
        t->ids = (exl2_token *)memory;
        t->capacity = capacity;
    }
    *out = t->ids + t->count;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__texts_engine_failed(exl2__texts *t, const exl2_engine *e, exl2_result result)
{
    exl2_error error;
    exl2_last_error(e, &error);
    return exl2__fail(t->c, result, "%s", error.text);
}

/* ---- files ---- */

/* Reads a file of any path into *out. */
EXL2__PRIVATE exl2_result exl2__texts_read(exl2__ctx *c, const char *path, exl2__blob *out)
{
    const char *name = strrchr(path, '/');
    char dir[EXL2__FILE_PATH_MAX] = ".";
    if (name) {
        size_t bytes = (size_t)(name - path) + (name == path);
        if (bytes >= sizeof dir) {
            return exl2__fail(c, EXL2_ERR_ARG, "the path %s is too long", path);
        }
        memcpy(dir, path, bytes);
        dir[bytes] = 0;
    }
    exl2_result result = exl2__file_read_optional(c, dir, name ? name + 1 : path, EXL2__TEXTS_FILE_MAX, out);
    return result < 0 ? result : out->data ? EXL2_OK : exl2__fail(c, EXL2_ERR_IO, "%s: no such file", path);
}

/* flags: of exl2_tokenize. */
EXL2__PRIVATE exl2_result exl2__texts_add_text(exl2__texts *t, exl2_engine *e, exl2_model model, const char *text,
                                               size_t bytes, uint32_t flags)
{
    exl2_token *out;
    size_t need = 0;
    exl2_result result = exl2_tokenize(e, model, text, bytes, flags, NULL, 0, &need);
    if (result < 0) {
        return exl2__texts_engine_failed(t, e, result);
    }
    EXL2__TRY(exl2__texts_room(t, need, &out));
    result = exl2_tokenize(e, model, text, bytes, flags, out, need, &need);
    if (result < 0) {
        return exl2__texts_engine_failed(t, e, result);
    }
    t->count += need;
    return EXL2_OK;
}

EXL2__PRIVATE bool exl2__texts_ends(const char *path, const char *end)
{
    size_t bytes = strlen(path), tail = strlen(end);
    return bytes >= tail && strcmp(path + bytes - tail, end) == 0;
}

/* Fails for a file of another kind. dir: the source, for the message. */
EXL2__PRIVATE exl2_result exl2__texts_check_file(exl2__ctx *c, const char *dir, const char *path, bool has_tokenizer)
{
    bool ids = exl2__texts_ends(path, ".json");
    if (!ids && !exl2__texts_ends(path, ".txt") && !exl2__texts_ends(path, ".jsonl")) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: calibration files are .txt, .json (ids or rows of ids) or "
                          ".jsonl (an object with \"text\" in each line, which most data sets can be saved as)", path);
    }
    if (!ids && !has_tokenizer) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s has no tokenizer, so calibration files must be .json with ids", dir);
    }
    return EXL2_OK;
}

/* Adds the ids of an array, or of an array of arrays. */
EXL2__PRIVATE exl2_result exl2__texts_add_ids(exl2__texts *t, const char *path, const exl2__json *j, uint32_t list,
                                              uint32_t vocab)
{
    for (uint32_t at = exl2__json_first(j, list); at; at = exl2__json_next(j, list, at)) {
        uint64_t id;
        exl2_token *out;
        if (list == 0 && j->tokens[at].kind == EXL2__JSON_ARRAY) {
            EXL2__TRY(exl2__texts_add_ids(t, path, j, at, vocab));
            continue;
        }
        if (!exl2__json_u64(j, at, &id) || id >= vocab) {
            return exl2__fail(t->c, EXL2_ERR_FORMAT, "%s: expected ids below %u, or rows of ids", path, vocab);
        }
        EXL2__TRY(exl2__texts_room(t, 1, &out));
        *out = (exl2_token)id;
        t->count++;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__texts_add_json(exl2__texts *t, const char *path, const exl2__blob *blob, uint32_t vocab)
{
    exl2__json j;
    EXL2__TRY(exl2__json_open(t->c, path, blob->data, (size_t)blob->bytes, &j));
    exl2_result result = j.tokens[0].kind == EXL2__JSON_ARRAY
        ? exl2__texts_add_ids(t, path, &j, 0, vocab)
        : exl2__fail(t->c, EXL2_ERR_FORMAT, "%s: expected an array of ids, or of rows of ids", path);
    exl2__json_close(t->c, &j);
    return result;
}

/* Adds a conversation, as the model's chat template renders it. line [bytes]: what the tokens of j point into. */
EXL2__PRIVATE exl2_result exl2__texts_add_messages(exl2__texts *t, exl2_engine *e, exl2_model model,
                                                   const exl2__json *j, uint32_t list, const char *line, size_t bytes)
{
    exl2_chat_desc chat = { 0 };
    exl2__arena dry = { 0 }, memory;
    uint32_t count = j->tokens[list].count;
    size_t need = 0, n = 0;
    chat.close_reply = true;
    exl2__arena_alloc(&dry, count * sizeof(exl2_message));
    exl2__arena_alloc(&dry, bytes + 1);
    EXL2__TRY(exl2__arena_open(t->c, &memory, dry.used, EXL2_MEM_GENERAL));
    exl2_message *messages = (exl2_message *)exl2__arena_alloc_zeroed(&memory, count * sizeof *messages);
    char *copy = (char *)exl2__arena_alloc(&memory, bytes + 1), *text = NULL;
    memcpy(copy, line, bytes);
    for (uint32_t at = exl2__json_first(j, list); at; at = exl2__json_next(j, list, at)) {
        copy[j->tokens[at].end] = 0; /* in place of the comma or bracket after the message */
        messages[n++].fields = copy + j->tokens[at].begin;
    }
    exl2_result result = exl2_chat_render(e, model, messages, n, &chat, NULL, 0, &need);
    void *rendered = NULL;
    size_t room = need + 1;
    result = result < 0 && result != EXL2_ERR_TOO_SMALL ? exl2__texts_engine_failed(t, e, result)
           : exl2__alloc(t->c, room, 1, EXL2_MEM_GENERAL, &rendered);
    if (result >= 0) {
        text = (char *)rendered;
        result = exl2_chat_render(e, model, messages, n, &chat, text, room, &need);
        result = result < 0 ? exl2__texts_engine_failed(t, e, result)
               : exl2__texts_add_text(t, e, model, text, need, EXL2_TEXT_NO_BOS);
        exl2__free(t->c, rendered, room, EXL2_MEM_GENERAL);
    }
    exl2__arena_close(t->c, &memory);
    return result;
}

/* Adds the "text" of each line, or its "messages". */
EXL2__PRIVATE exl2_result exl2__texts_add_lines(exl2__texts *t, exl2_engine *e, exl2_model model, const char *path,
                                                const exl2__blob *blob)
{
    uint32_t number = 1;
    for (uint64_t at = 0; at < blob->bytes; number++) {
        const char *line = blob->data + at, *end = (const char *)memchr(line, '\n', (size_t)(blob->bytes - at));
        size_t bytes = end ? (size_t)(end - line) : (size_t)(blob->bytes - at);
        at += bytes + 1;
        if (bytes == 0) {
            continue;
        }
        exl2__json j;
        void *memory;
        char label[EXL2__FILE_PATH_MAX + 16];
        exl2__format(label, sizeof label, "%s: line %u", path, number);
        EXL2__TRY(exl2__json_open(t->c, label, line, bytes, &j));
        uint32_t text = exl2__json_get(&j, 0, "text"), list = exl2__json_get(&j, 0, "messages");
        if (text == 0 && list != 0 && j.tokens[list].kind == EXL2__JSON_ARRAY) {
            exl2_result added = exl2__texts_add_messages(t, e, model, &j, list, line, bytes);
            exl2__json_close(t->c, &j);
            if (added < 0) { /* the chat template does not know of which file */
                exl2_error why = t->c->error;
                return exl2__fail(t->c, added == EXL2_ERR_ARG ? EXL2_ERR_FORMAT : added, "%s: %s", label, why.text);
            }
            continue;
        }
        if (text == 0 || j.tokens[text].kind != EXL2__JSON_STRING) {
            exl2__json_close(t->c, &j);
            return exl2__fail(t->c, EXL2_ERR_FORMAT, "%s has neither a string \"text\" nor a list \"messages\"",
                              label);
        }
        exl2_result result = exl2__alloc(t->c, bytes + 1, 1, EXL2_MEM_GENERAL, &memory); /* unescaped it is shorter */
        if (result >= 0) {
            size_t used = exl2__json_text(&j, text, (char *)memory, bytes + 1);
            result = exl2__texts_add_text(t, e, model, (const char *)memory, used, 0);
            exl2__free(t->c, memory, bytes + 1, EXL2_MEM_GENERAL);
        }
        exl2__json_close(t->c, &j);
        EXL2__TRY(result);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__texts_add_file(exl2__texts *t, exl2_engine *e, exl2_model model, const char *path,
                                               uint32_t vocab)
{
    exl2__blob blob;
    EXL2__TRY(exl2__texts_read(t->c, path, &blob));
    exl2_result result = exl2__texts_ends(path, ".txt")
        ? exl2__texts_add_text(t, e, model, blob.data, (size_t)blob.bytes, 0)
        : exl2__texts_ends(path, ".json") ? exl2__texts_add_json(t, path, &blob, vocab)
                                          : exl2__texts_add_lines(t, e, model, path, &blob);
    exl2__blob_close(t->c, &blob);
    return result;
}

/* ---- the model's own text ---- */

/* A session in which the model writes. */
typedef struct exl2__texts_session {
    exl2_session session;
    bool open, running; /* open: there is one; running: its job is */
    exl2_error *failed; /* code OK, or of the first job that failed */
} exl2__texts_session;

EXL2__PRIVATE exl2_flow exl2__texts_event(void *user, const exl2_event *event)
{
    exl2__texts_session *s = (exl2__texts_session *)user;
    if (event->kind == EXL2_EVENT_DONE) {
        s->running = false;
        if (event->result < 0 && s->failed->code >= 0) {
            s->failed->code = event->result;
            exl2__format(s->failed->text, sizeof s->failed->text, "%s", event->error);
        }
    }
    return EXL2_CONTINUE;
}

/* Progress of texts: called with the share of tokens that there are; false = cancel. */
typedef bool (*exl2__texts_progress)(void *user, double done);

/* How text is written: opening after opening, in an order that mixes languages and conversations; round after round. As
   soon as a session ends, another begins in its place. */
typedef struct exl2__texts_plan {
    uint32_t openings, batch, tokens; /* tokens: of a session */
    uint64_t seed;
    exl2__config_rope rope;
    uint32_t rows, length; /* ids that are wanted in all */
    exl2__texts_progress progress;
    void *user;
    uint32_t number;       /* of the next opening, which counts on through all rounds */
    exl2_error failed;     /* of the first job that failed */
    exl2__texts_session sessions[EXL2__TEXTS_BATCH_GPU]; /* [batch]; jobs know them until the engine closes */
} exl2__texts_plan;

/* Starts the job that continues the next opening. */
EXL2__PRIVATE exl2_result exl2__texts_start(exl2__texts *t, exl2_engine *e, exl2_model model, exl2__texts_plan *p,
                                            exl2__texts_session *s)
{
    uint32_t plain = (uint32_t)EXL2__COUNT(exl2__texts_openings), round = p->number / p->openings;
    uint32_t index = p->number % p->openings * 29 % p->openings; /* 29 is prime to 50 and 72 */
    exl2_message message = { 0 };
    exl2_job_desc d = { 0 };
    exl2_result result = exl2_session_open(e, model, &s->session);
    d.session = s->session;
    d.max_tokens = p->tokens;
    d.sampler.seed = p->seed + (uint64_t)round * 1000 + index + 1;
    d.sampler.temperature = 0.9f;
    d.sampler.top_k = 200;
    d.sampler.top_p = 1;
    d.on_event = exl2__texts_event;
    d.user = s;
    if (index < plain) {
        d.prompt.text = exl2__texts_openings[index];
    } else {
        message.role = "user";
        message.text = exl2__texts_requests[index - plain];
        d.prompt.messages = &message;
        d.prompt.message_count = 1;
    }
    *s = (exl2__texts_session){ s->session, true, true, &p->failed };
    result = result < 0 ? result : exl2_job_start(e, &d, NULL);
    p->number++;
    return result < 0 ? exl2__texts_engine_failed(t, e, result) : EXL2_OK;
}

/* Adds what a session holds, and closes it. */
EXL2__PRIVATE exl2_result exl2__texts_take(exl2__texts *t, exl2_engine *e, exl2__texts_session *s)
{
    exl2_token *out;
    size_t need = 0;
    exl2_session_tokens(e, s->session, NULL, 0, &need);
    EXL2__TRY(exl2__texts_room(t, need, &out));
    exl2_result result = exl2_session_tokens(e, s->session, out, need, &need);
    if (result < 0) {
        return exl2__texts_engine_failed(t, e, result);
    }
    t->count += need;
    s->open = false;
    exl2_session_close(e, s->session);
    return EXL2_OK;
}

/* Takes the sessions whose jobs have ended, and begins others in their places. *open: all sessions then; *tokens: that
   they hold. */
EXL2__PRIVATE exl2_result exl2__texts_turn(exl2__texts *t, exl2_engine *e, exl2_model model, exl2__texts_plan *p,
                                           uint32_t *open, uint64_t *tokens)
{
    *open = 0;
    *tokens = 0;
    for (uint32_t i = 0; i < p->batch; i++) {
        exl2__texts_session *s = &p->sessions[i];
        size_t held = 0;
        if (s->open && !s->running) {
            EXL2__TRY(exl2__texts_take(t, e, s));
        }
        if (!s->open && p->number < EXL2__TEXTS_ROUNDS_MAX * p->openings) {
            EXL2__TRY(exl2__texts_start(t, e, model, p, s));
        }
        if (s->open) {
            exl2_session_tokens(e, s->session, NULL, 0, &held);
        }
        *open += s->open;
        *tokens += held;
    }
    return EXL2_OK;
}

/* Adds `wanted` ids, or fewer if all openings were used often. Sessions that still run when all together hold as many
   are cut there. */
EXL2__PRIVATE exl2_result exl2__texts_write(exl2__texts *t, exl2_engine *e, exl2_model model, exl2__texts_plan *p,
                                            uint64_t wanted)
{
    uint64_t first = t->count, tokens;
    uint32_t open;
    for (;;) {
        exl2_step_desc step = { 0 };
        EXL2__TRY(exl2__texts_turn(t, e, model, p, &open, &tokens));
        uint64_t done = t->count - first + tokens;
        if (open == 0 || done >= wanted) {
            break;
        }
        exl2_result result = exl2_step(e, &step);
        if (result < 0) {
            return exl2__texts_engine_failed(t, e, result);
        }
        if (p->failed.code < 0) {
            return exl2__fail(t->c, p->failed.code, "the model failed to write its own text: %s", p->failed.text);
        }
        if (p->progress && !p->progress(p->user, (double)done / (double)wanted)) {
            return exl2__fail(t->c, EXL2_ERR_CANCELLED, "the conversion was cancelled");
        }
    }
    for (uint32_t i = 0; i < p->batch; i++) {
        if (p->sessions[i].open) {
            EXL2__TRY(exl2__texts_take(t, e, &p->sessions[i]));
        }
    }
    return EXL2_OK;
}

/* ---- all ---- */

/* desc: which backend, or NULL: the CPU. */
EXL2__PRIVATE exl2_result exl2__texts_open(exl2__ctx *c, const exl2_engine_desc *desc, exl2_engine **e)
{
    exl2_engine_desc d = desc ? *desc : (exl2_engine_desc){ .backend = EXL2_BACKEND_CPU };
    exl2_error error = { 0 };
    d.max_jobs = EXL2__TEXTS_BATCH_GPU;
    d.parallel = c->parallel;
    d.allocator = c->allocator;
    d.files = c->files;
    d.host_bytes_max = c->host_bytes_max > c->host_bytes ? c->host_bytes_max - c->host_bytes : c->host_bytes_max;
    d.open_error = &error;
    exl2_result result = exl2_open(&d, e);
    return result < 0 ? exl2__fail(c, result, "%s", error.text) : EXL2_OK;
}

/* Reads the headers of the source, and fills in how it is loaded. batch: sessions that it writes at once; 0: none.
   rope: in place of its own. */
EXL2__PRIVATE exl2_result exl2__texts_model(exl2_engine *e, const char *dir, uint32_t batch,
                                            const exl2__config_rope *rope, exl2_model_desc *d, exl2_model_info *info)
{
    *d = (exl2_model_desc){ 0 };
    d->path = dir;
    d->rope_scale = rope->scale;
    d->rope_alpha = rope->alpha;
    d->yarn_factor = rope->yarn;
    EXL2__TRY(exl2_model_measure(e, d, info));
    d->text_only = batch == 0;
    if (batch) {
        d->context_max = exl2__min32(EXL2__TEXTS_CONTEXT, info->context_max);
        d->batch_max = batch;
        d->cache.tokens = batch * exl2__align_up(d->context_max, EXL2__PAGE_TOKENS);
    }
    return EXL2_OK;
}

/* Sessions that write at once for rows of `length` tokens: no more than these need, about. */
static inline uint32_t exl2__texts_batch(bool gpu, uint32_t rows, uint32_t length)
{
    uint64_t sessions = (uint64_t)rows * length / (EXL2__TEXTS_CONTEXT * 3 / 4) + 1;
    return (uint32_t)exl2__min64(exl2__align_up(sessions, EXL2__TEXTS_BATCH),
                                 gpu ? EXL2__TEXTS_BATCH_GPU : EXL2__TEXTS_BATCH);
}

/* What the model needs to write its own text for rows of `length` tokens: memory, and device memory. Reads headers. */
EXL2__PRIVATE exl2_result exl2__texts_measure(exl2__ctx *c, const exl2_engine_desc *desc, const char *dir,
                                              uint32_t rows, uint32_t length, const exl2__config_rope *rope,
                                              uint64_t *bytes, uint64_t *device_bytes, bool *has_tokenizer)
{
    exl2__texts t = { 0 };
    exl2_engine *e = NULL;
    exl2_model_desc d;
    exl2_model_info info = { 0 };
    EXL2__TRY(exl2__texts_open(c, desc, &e));
    t.c = c;
    exl2_result result = exl2__texts_model(e, dir, exl2__texts_batch(desc != NULL, rows, length), rope, &d, &info);
    result = result < 0 ? result : exl2_model_measure(e, &d, &info);
    *device_bytes = info.device_bytes;
    *bytes = info.weight_bytes + info.cache_bytes + info.scratch_bytes - info.device_bytes;
    *has_tokenizer = info.has_tokenizer;
    result = result < 0 ? exl2__texts_engine_failed(&t, e, result) : EXL2_OK;
    exl2_close(e);
    return result;
}

/* Adds the spare texts, each as a document. */
EXL2__PRIVATE exl2_result exl2__texts_add_spare(exl2__texts *t, exl2_engine *e, exl2_model model)
{
    for (size_t i = 0; i < EXL2__COUNT(exl2__spare_texts); i++) {
        EXL2__TRY(exl2__texts_add_text(t, e, model, exl2__spare_texts[i], strlen(exl2__spare_texts[i]), 0));
    }
    return EXL2_OK;
}

/* Loads the source, which writes *batch sessions at once; fewer, if a GPU has no memory for as many. */
EXL2__PRIVATE exl2_result exl2__texts_load(exl2__texts *t, exl2_engine *e, const char *dir, uint32_t *batch,
                                           const exl2__config_rope *rope, exl2_model_desc *d, exl2_model_info *info,
                                           exl2_model *model)
{
    exl2_result result = exl2__texts_model(e, dir, *batch, rope, d, info);
    result = result < 0 || !info->has_tokenizer ? result : exl2_model_load(e, d, model);
    if ((result == EXL2_ERR_BUDGET || result == EXL2_ERR_DEVICE_MEMORY) && *batch > EXL2__TEXTS_BATCH) {
        *batch = exl2__max32(*batch / 2, EXL2__TEXTS_BATCH);
        return exl2__texts_load(t, e, dir, batch, rope, d, info, model);
    }
    return result < 0 ? exl2__texts_engine_failed(t, e, result) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__texts_fill(exl2__texts *t, exl2_engine *e, const char *dir, const char *const *files,
                                           uint32_t file_count, bool own, uint32_t vocab, exl2__texts_plan *p)
{
    exl2_model model = { 0 };
    exl2_model_info info = { 0 };
    exl2_model_desc d;
    p->batch = own ? p->batch : 0;
    EXL2__TRY(exl2__texts_load(t, e, dir, &p->batch, &p->rope, &d, &info, &model));
    for (uint32_t i = 0; i < file_count; i++) {
        EXL2__TRY(exl2__texts_add_file(t, e, model, files[i], vocab));
    }
    if (file_count == 0) {
        EXL2__TRY(exl2__texts_add_spare(t, e, model));
    }
    t->spread = t->count;
    if (!own) {
        return EXL2_OK;
    }
    p->openings = (uint32_t)EXL2__COUNT(exl2__texts_openings);
    p->openings += info.has_chat_template ? (uint32_t)EXL2__COUNT(exl2__texts_requests) : 0;
    p->tokens = d.context_max * 3 / 4;
    uint64_t rows = p->rows - exl2__min64(t->spread / p->length, p->rows / 2);
    return exl2__texts_write(t, e, model, p, rows * p->length);
}

/* Collects ids below `vocab`: those of all files, which exl2__texts_check_file has accepted; without files those of the
   spare texts. If `own`, text follows that the model writes, so that half of `rows` rows of `length` ids are of either,
   or more of its own where the spare texts are too short. `dir`: the source. desc: as of exl2__texts_open. */
EXL2__PRIVATE exl2_result exl2__texts_make(exl2__ctx *c, const exl2_engine_desc *desc, const char *dir,
                                           const char *const *files, uint32_t file_count, bool own, uint32_t rows,
                                           uint32_t length, uint64_t seed, uint32_t vocab,
                                           const exl2__config_rope *rope, exl2__texts_progress progress, void *user,
                                           exl2__texts *t)
{
    exl2_engine *e = NULL;
    *t = (exl2__texts){ 0 };
    t->c = c;
    EXL2__TRY(exl2__texts_open(c, desc, &e));
    bool gpu = desc && desc->backend == EXL2_BACKEND_CUDA;
    exl2__texts_plan plan = { .batch = exl2__texts_batch(gpu, rows, length), .seed = seed, .rows = rows,
                              .length = length, .rope = *rope, .progress = progress, .user = user };
    exl2_result result = exl2__texts_fill(t, e, dir, files, file_count, own, vocab, &plan);
    for (uint64_t i = 0; i < t->count && result >= 0; i++) {
        if (t->ids[i] < 0 || (uint32_t)t->ids[i] >= vocab) { /* an added token without a row in the embedding */
            result = exl2__fail(c, EXL2_ERR_FORMAT, "the tokenizer of %s gives id %d, but the vocabulary has %u", dir,
                                t->ids[i], vocab);
        }
    }
    exl2_close(e);
    return result;
}

/* Makes `count` ids below `vocab`, all equally likely. */
EXL2__PRIVATE exl2_result exl2__texts_random(exl2__ctx *c, uint64_t count, uint64_t seed, uint32_t vocab,
                                             exl2__texts *t)
{
    exl2_token *out;
    *t = (exl2__texts){ 0 };
    t->c = c;
    EXL2__TRY(exl2__texts_room(t, count, &out));
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t key[2] = { seed, i };
        out[i] = (exl2_token)((exl2__hash(key, sizeof key) >> 32) * vocab >> 32);
    }
    t->count = t->spread = count;
    return EXL2_OK;
}

#endif
