/* load_events.c: EXL2_EVENT_LOAD: what an application hears while a model loads, through the callback and through the
   queue; the last event says that the model is ready, or why it is not. */
#define _POSIX_C_SOURCE 200809L
#include "rig.h"

#include <unistd.h>

typedef struct load_said {
    uint32_t events, ended, other;
    float progress; /* of the latest event */
    bool rises;
    exl2_result result;
    uint64_t model;
    char error[256];
} load_said;

static exl2_flow hear(void *user, const exl2_event *ev)
{
    load_said *said = (load_said *)user;
    if (ev->kind != EXL2_EVENT_LOAD) {
        said->other++;
        return EXL2_CONTINUE;
    }
    said->rises = said->events == 0 ? ev->progress >= 0 : said->rises && ev->progress >= said->progress;
    said->rises = said->rises && ev->progress <= 1;
    said->events++;
    said->ended += ev->result != EXL2_PENDING;
    said->progress = ev->progress;
    said->result = ev->result;
    said->model = ev->model.id;
    CHECK((ev->error != NULL) == (ev->result < 0));
    CHECK(ev->job.id == 0 && ev->session.id == 0);
    CHECK(!ev->text && ev->bytes == 0 && !ev->tokens && ev->token_count == 0);
    CHECK(!ev->alts && ev->alts_per_token == 0 && !ev->logsumexp);
    snprintf(said->error, sizeof said->error, "%s", ev->error ? ev->error : "");
    return EXL2_STOP_JOB; /* has no effect here */
}

/* Begins the load and steps until it has ended. With `pull` there is no callback, and events are pulled after each
   step. */
static load_said load(exl2_engine *e, exl2_model_desc d, bool pull, exl2_model *m)
{
    load_said said = { 0 };
    exl2_event event;
    exl2_model_info info;
    exl2_error error;
    d.on_event = pull ? NULL : hear;
    d.user = pull ? NULL : &said;
    CHECK_INT(exl2_model_open(e, &d, m), EXL2_OK);
    CHECK_INT(said.events, 0); /* nothing is read and no event arrives before the first step */
    for (int steps = 0; steps < 1000000 && !said.ended; steps++) {
        exl2_step(e, &(exl2_step_desc){ .cpu_us = 1 });
        while (pull && exl2_next_event(e, &event)) {
            hear(&said, &event);
        }
        if (!said.ended) {
            CHECK_INT(exl2_model_state(e, *m), EXL2_PENDING);
        }
    }
    for (int steps = 0; steps < 3; steps++) {
        CHECK_INT(exl2_step(e, NULL), EXL2_IDLE);
    }
    CHECK(!exl2_next_event(e, &event));
    CHECK_INT(said.ended, 1); /* exactly one event is the last */
    CHECK_INT(said.other, 0);
    CHECK_INT(said.model, m->id);
    CHECK(said.rises);
    CHECK_INT(exl2_model_get(e, *m, &info), EXL2_OK);
    exl2_model wild = { 12345 };
    CHECK_INT(exl2_model_state(e, wild), EXL2_ERR_STALE); /* another error, after the load's */
    CHECK_INT(exl2_model_state(e, *m), said.result);
    exl2_last_error(e, &error);
    CHECK_INT(error.code, said.result < 0 ? said.result : EXL2_ERR_STALE);
    CHECK(said.result >= 0 || strcmp(error.text, said.error) == 0);
    return said;
}

/* The golden's folder with config.json only, or with a tensor file that was cut. */
static void make_folder(const char *dir, const char *file, long bytes)
{
    char command[3000];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s' && cp '%s/config.json' '%s'", dir, dir,
             rig_golden("exl2-4bit"), dir);
    CHECK_INT(system(command), 0);
    if (file) {
        snprintf(command, sizeof command, "head -c %ld '%s/%s' > '%s/%s'", bytes, rig_golden("exl2-4bit"), file, dir,
                 file);
        CHECK_INT(system(command), 0);
    }
}

int main(void)
{
    exl2_engine *e;
    exl2_model m;
    char dir[600];
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/exl2-load-%ld", base && *base ? base : "/tmp", (long)getpid());
    exl2_engine_desc engine = { .backend = RIG_BACKEND };
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    for (int pull = 0; pull < 2; pull++) {
        exl2_model_desc d = { .path = rig_golden("exl2-4bit") };
        load_said said = load(e, d, pull, &m);
        CHECK_INT(said.result, EXL2_OK);
        CHECK(said.progress >= 1 && said.events >= 5); /* two layers and a head give more events than 0 and 1 */
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);

        d.path = EXL2_GOLDEN_DIR "/smollm2";
        d.text_only = true;
        said = load(e, d, pull, &m);
        CHECK(said.result == EXL2_OK && said.progress >= 1);
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);

        d = (exl2_model_desc){ .path = dir };
        make_folder(dir, NULL, 0);
        said = load(e, d, pull, &m);
        CHECK(said.result == EXL2_ERR_IO && said.progress <= 0 && strstr(said.error, "no .safetensors files in"));
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);
        make_folder(dir, "output.safetensors", 60000);
        said = load(e, d, pull, &m);
        CHECK(said.result == EXL2_ERR_FORMAT && strstr(said.error, "lies outside the file"));
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    }
    /* The blocking call gives the callback the same events, and drops them if there is no callback. */
    load_said said = { 0 };
    exl2_event event;
    exl2_model_desc d = { .path = rig_golden("exl2-4bit"), .on_event = hear, .user = &said };
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK);
    CHECK(said.ended == 1 && said.result == EXL2_OK && said.progress >= 1 && said.rises && said.model == m.id);
    d.on_event = NULL;
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK);
    CHECK(!exl2_next_event(e, &event));
    exl2_close(e);
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CHECK_INT(system(command), 0);
    return check_done();
}
