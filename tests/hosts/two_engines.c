/* two_engines.c: two engines on two threads. Each loads the tiny model MODEL/ and continues the first sequence of its
   golden.json. Both, and one engine that ran before them, must give the golden's greedy ids. Built with
   -fsanitize=thread, and with -ffast-math. */
#define _POSIX_C_SOURCE 200809L
#define EXL2_IMPLEMENTATION
#include "exl2.h"

#include "../check.h"

#include <pthread.h>

#define IDS_MAX 256

typedef struct ids {
    exl2_token at[IDS_MAX];
    size_t count;
} ids;

typedef struct talk { /* one engine's run */
    const char *model_path;
    const ids *prompt;
    ids reply;
    exl2_result result;
    exl2_error error;
} talk;

/* The first inner array of `"key": [[1, 2], ...`. */
static ids first_array(const char *json, const char *key)
{
    ids found = { { 0 }, 0 };
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(json, quoted);
    at = at ? strstr(at, "[") : NULL;
    while (at && *at && *at != ']' && found.count < IDS_MAX) {
        char *end;
        long value = strtol(at, &end, 10);
        if (end > at) {
            found.at[found.count++] = (exl2_token)value;
        }
        at = end > at ? end : at + 1;
    }
    return found;
}

static exl2_flow hear(void *user, const exl2_event *event)
{
    talk *t = (talk *)user;
    if (event->kind == EXL2_EVENT_TEXT) {
        for (uint32_t i = 0; i < event->token_count && t->reply.count < IDS_MAX; i++) {
            t->reply.at[t->reply.count++] = event->tokens[i].token;
        }
    }
    return EXL2_CONTINUE;
}

static void *run(void *user)
{
    talk *t = (talk *)user;
    exl2_engine *engine = NULL;
    exl2_model model = { 0 };
    exl2_engine_desc engine_desc = { .open_error = &t->error };
    exl2_model_desc model_desc = { .path = t->model_path };
    t->result = exl2_open(&engine_desc, &engine);
    if (t->result == EXL2_OK) {
        t->result = exl2_model_load(engine, &model_desc, &model);
    }
    if (t->result == EXL2_OK) {
        exl2_job_desc job = { .model = model,
                              .prompt.tokens = t->prompt->at,
                              .prompt.token_count = t->prompt->count,
                              .max_tokens = 12,
                              .sampler = { .preset = EXL2_PRESET_GREEDY },
                              .on_event = hear,
                              .user = t };
        t->result = exl2_generate(engine, &job);
    }
    if (engine && t->result < 0) {
        exl2_last_error(engine, &t->error);
    }
    exl2_close(engine);
    return NULL;
}

static void check_talk(const talk *t, const ids *wanted)
{
    if (!CHECK(t->result == EXL2_OK)) {
        printf("%s: %s\n", exl2_result_name(t->result), t->error.text);
    }
    CHECK_INT(t->reply.count, wanted->count);
    CHECK(memcmp(t->reply.at, wanted->at, sizeof wanted->at) == 0);
}

int main(int argc, char **argv)
{
    char golden_path[1024];
    if (argc != 2) {
        fputs("usage: two_engines MODEL\n", stderr);
        return 2;
    }
    snprintf(golden_path, sizeof golden_path, "%s/golden.json", argv[1]);
    char *golden = check_read(golden_path, NULL);
    ids prompt = first_array(golden, "tokens"), wanted = first_array(golden, "greedy");
    CHECK_INT(wanted.count, 12);
    static talk talks[3];
    for (int i = 0; i < 3; i++) {
        talks[i].model_path = argv[1];
        talks[i].prompt = &prompt;
    }
    run(&talks[0]);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, run, &talks[i + 1]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 3; i++) {
        check_talk(&talks[i], &wanted);
    }
    free(golden);
    return check_done();
}
