/* own_thread.c: the recipe of the manual (A THREAD OF ITS OWN), word for word, with the lists that it leaves out: the
   engine on a thread of its own, requests to it, events back to the main thread. Run it by hand with TSan, too. */
#include "rig.h"

#include <pthread.h>

#define LIST_MAX 4096
#define LONG_TOKENS 2000 /* fewer than RIG_TOKENS */

typedef struct note { /* a copy of an event, whose pointers do not outlive the next exl2_next_event */
    exl2_event_kind kind;
    void *user;
    exl2_job job;
    exl2_token token;
    exl2_result result;
} note;

typedef struct speaker { /* the target of `user`; only the main thread uses it */
    rig_said said;
    exl2_token prompt[8];
    exl2_job job;
} speaker;

static struct list {
    pthread_mutex_t lock;
    pthread_cond_t more;
    bool quit, news;
    exl2_job_desc wanted[64];
    uint32_t wanted_count;
    note notes[LIST_MAX];
    uint32_t note_count;
} list = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

/* Queues an event for the main thread; called with the lock held. */
static void put_note(const exl2_event *ev)
{
    if (CHECK(list.note_count < LIST_MAX)) {
        list.notes[list.note_count++] = (note){ ev->kind, ev->user, ev->job,
                                                 ev->token_count ? ev->tokens[0].token : -1, ev->result };
    }
}

static bool take_wanted(exl2_job_desc *d)
{
    bool any = list.wanted_count > 0;
    if (any) {
        *d = list.wanted[0];
        memmove(list.wanted, list.wanted + 1, --list.wanted_count * sizeof *d);
    }
    return any;
}

/* ---- the recipe ---- */

static void *engine_thread(void *arg)
{
    exl2_engine *e = arg;
    exl2_job_desc d;
    exl2_event ev;
    pthread_mutex_lock(&list.lock);
    while (!list.quit) {
        while (take_wanted(&d)) {
            CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        }
        pthread_mutex_unlock(&list.lock);
        exl2_result r = exl2_step(e, &(exl2_step_desc){ .wait = true });
        pthread_mutex_lock(&list.lock);
        while (exl2_next_event(e, &ev)) {
            put_note(&ev);
            r = EXL2_OK;
        }
        while (r == EXL2_IDLE && !list.news) {
            pthread_cond_wait(&list.more, &list.lock);
        }
        list.news = false;
    }
    pthread_mutex_unlock(&list.lock);
    return NULL;
}

/* ---- the main thread ---- */

static void wake(void)
{
    list.news = true;
    pthread_cond_signal(&list.more);
}

static void want(speaker *s, const rig *r, uint32_t max_tokens)
{
    exl2_job_desc d = rig_job(r, s->prompt, 8, max_tokens, NULL);
    d.on_event = NULL;
    d.user = s;
    pthread_mutex_lock(&list.lock);
    list.wanted[list.wanted_count++] = d;
    wake();
    pthread_mutex_unlock(&list.lock);
}

/* One frame: handles the queued events; returns how many jobs ended. */
static uint32_t hear(void)
{
    uint32_t done = 0;
    pthread_mutex_lock(&list.lock);
    for (uint32_t i = 0; i < list.note_count; i++) {
        const note *n = &list.notes[i];
        speaker *s = (speaker *)n->user;
        if (n->kind == EXL2_EVENT_TEXT) {
            s->said.ids[s->said.count++] = n->token;
        }
        s->job = n->job;
        s->said.result = n->result;
        s->said.done_events += n->kind == EXL2_EVENT_DONE;
        done += n->kind == EXL2_EVENT_DONE;
    }
    list.note_count = 0;
    pthread_mutex_unlock(&list.lock);
    return done;
}

int main(void)
{
    static speaker speakers[12];
    static rig_said alone;
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 4096 };
    rig r = rig_open(NULL, &m);
    exl2_engine_stats stats;
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, engine_thread, r.engine), 0);
    for (uint32_t turn = 0; turn < 3; turn++) { /* between the rounds the thread sleeps */
        uint32_t done = 0;
        for (uint32_t i = turn * 4; i < turn * 4 + 4; i++) {
            for (uint32_t k = 0; k < 8; k++) {
                speakers[i].prompt[k] = (exl2_token)(10 + i * 3 + k);
            }
            want(&speakers[i], &r, 12);
        }
        while (done < 4) {
            done += hear();
            exl2_stats(r.engine, &stats); /* allowed from any thread */
        }
    }
    static speaker long_one = { .prompt = { 5, 6, 7, 8, 9, 10, 11, 12 } };
    want(&long_one, &r, LONG_TOKENS);
    while (long_one.said.count == 0) {
        hear();
    }
    exl2_job_cancel(r.engine, long_one.job); /* EXL2_ERR_STALE, if this thread slept through all of its tokens */
    pthread_mutex_lock(&list.lock);
    wake();
    pthread_mutex_unlock(&list.lock);
    while (long_one.said.done_events == 0) {
        hear();
    }
    CHECK(long_one.said.result == EXL2_ERR_CANCELLED || long_one.said.count == LONG_TOKENS);

    pthread_mutex_lock(&list.lock);
    list.quit = true;
    wake();
    pthread_mutex_unlock(&list.lock);
    CHECK_INT(pthread_join(thread, NULL), 0);
    for (uint32_t i = 0; i < EXL2__COUNT(speakers); i++) { /* each gives what it gives alone */
        exl2_job_desc d = rig_job(&r, speakers[i].prompt, 8, 12, &alone);
        memset(&alone, 0, sizeof alone);
        rig_run(&r, &d);
        CHECK_INT(speakers[i].said.done_events, 1);
        CHECK_INT(speakers[i].said.count, alone.count);
        CHECK(memcmp(speakers[i].said.ids, alone.ids, alone.count * sizeof *alone.ids) == 0);
    }
    rig_close(&r);
    return check_done();
}
