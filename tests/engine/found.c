/* found.c: defects that the API fuzzer (tests/fuzz/api.c) found, each in its shortest form. */
#include "text_model.h"

static text_model fixture;
static rig_said said;
static exl2_token prompt[100];

/* ---- the message of a load that fails ---- */

/* At the last LOAD event, makes another call that fails. */
static exl2_flow fail_meanwhile(void *user, const exl2_event *event)
{
    exl2_session s = { 0 };
    if (event->result < 0) {
        CHECK_INT(exl2_session_close(*(exl2_engine **)user, s), EXL2_ERR_STALE);
    }
    return EXL2_CONTINUE;
}

/* exl2_last_error is the load's, whatever failed inside its callback. */
static void sentence_of_a_load(void)
{
    exl2_engine_desc d = text_engine(&fixture);
    exl2_model_desc good = text_folder();
    rig r = rig_open(&d, &good);
    exl2_model m;
    exl2_model_desc bad = { .path = "nowhere/at/all", .on_event = fail_meanwhile, .user = &r.engine };
    text_check_refused(&r, exl2_model_load(r.engine, &bad, &m), EXL2_ERR_IO, "nowhere/at/all");
    rig_close(&r);
}

/* ---- counters ---- */

static uint64_t allocated; /* calls of alloc_fn that returned memory */

static void *count_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    allocated++;
    return exl2__platform_alloc(user, bytes, align, tag);
}

static void check_counted(const rig *r)
{
    exl2_engine_stats stats;
    exl2_stats(r->engine, &stats);
    CHECK_INT(stats.allocations, allocated);
}

/* exl2_stats counts each allocation, even if the call failed or freed the memory before it returned. */
static void counts_of_calls_that_fail(void)
{
    exl2_engine_desc d = text_engine(&fixture);
    exl2_model_desc folder = text_folder();
    exl2_message message = { .role = "user", .text = "hello" };
    exl2_chat_desc chat = { .template_text = "{{ messages[0].content }}" };
    char out[64];
    exl2_token ids[64];
    size_t need;
    d.allocator = (exl2_allocator){ .alloc_fn = count_alloc, .free_fn = exl2__platform_free };
    allocated = 0;
    rig r = rig_open(&d, &folder);
    check_counted(&r);
    uint64_t before = allocated;
    CHECK_INT(exl2_chat_render(r.engine, r.model, &message, 1, &chat, out, sizeof out, &need), EXL2_OK);
    CHECK(allocated > before);
    check_counted(&r);
    exl2_job_desc job = rig_job(&r, NULL, 0, 5000, &said); /* more than the context can hold */
    job.prompt.messages = &message;
    job.prompt.message_count = 1;
    job.chat = chat;
    before = allocated;
    CHECK_INT(exl2_job_start(r.engine, &job, NULL), EXL2_ERR_CONTEXT_FULL);
    CHECK(allocated > before);
    check_counted(&r);
    before = allocated;
    CHECK_INT(exl2_tokenize(r.engine, r.model, "a\xFF z", 4, 0, ids, 64, &need), EXL2_OK); /* is not UTF-8 */
    CHECK(allocated > before);
    check_counted(&r);
    rig_close(&r);
}

/* ---- progress of a job ---- */

typedef struct counting {
    exl2_engine *engine;
    uint32_t heard, wrong;
} counting;

static exl2_flow count_beside(void *user, const exl2_event *event)
{
    counting *c = (counting *)user;
    exl2_job_info info;
    if (event->kind == EXL2_EVENT_TEXT) {
        c->heard += event->token_count;
        CHECK_INT(exl2_job_get(c->engine, event->job, &info), EXL2_OK);
        c->wrong += info.stats.new_tokens != c->heard;
    }
    return EXL2_CONTINUE;
}

/* exl2_job_get counts what was delivered, including the event that is being delivered. */
static void counts_of_a_job(void)
{
    rig r = text_load(&fixture);
    counting c = { r.engine, 0, 0 };
    exl2_job_desc d = rig_job(&r, prompt, 9, 12, &said);
    d.on_event = count_beside;
    d.user = &c;
    rig_run(&r, &d);
    CHECK_INT(c.heard, 12);
    CHECK_INT(c.wrong, 0);
    rig_close(&r);
}

/* ---- scores ---- */

static exl2_flow stop_at_once(void *user, const exl2_event *event)
{
    (void)user;
    return event->kind == EXL2_EVENT_PREFILL ? EXL2_STOP_JOB : EXL2_CONTINUE;
}

/* A prompt that was cut short stays in the history, and part of it is not cached. The next job computes that part, but
   scores only its own prompt. */
static void scores_of_the_own_prompt(void)
{
    exl2_engine_desc e = text_engine(&fixture);
    exl2_model_desc folder = text_folder();
    folder.prefill_chunk = 8;
    rig r = rig_open(&e, &folder);
    exl2_session s;
    exl2_session_info info;
    exl2_job_desc d = rig_job(&r, prompt, 40, 4, &said);
    CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
    d.session = s;
    d.on_event = stop_at_once;
    CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
    CHECK_INT(exl2_session_get(r.engine, s, &info), EXL2_OK);
    CHECK(info.tokens == 40 && info.tokens_cached < 40);
    d = rig_job(&r, prompt + 40, 5, 1, &said);
    d.session = s;
    d.score_prompt = true;
    memset(&said, 0, sizeof said);
    CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
    CHECK_INT(said.scored, 5);

    static rig_said whole; /* the same in one prompt: its last five scores are equal */
    d = rig_job(&r, prompt, 45, 1, &whole);
    d.score_prompt = true;
    CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
    CHECK_INT(whole.scored, 44);
    for (uint32_t i = 0; i < 5; i++) {
        CHECK(said.scores[i] <= whole.scores[39 + i] && said.scores[i] >= whole.scores[39 + i]);
    }
    rig_close(&r);
}

/* ---- own pages ---- */

/* The only page of the cache holds a history that the next conversation does not keep. The job rewinds it and so has
   the page that it needs. */
static void own_pages_are_enough(void)
{
    exl2_engine_desc e = text_engine(&fixture);
    exl2_model_desc folder = text_folder();
    folder.context_max = 64;
    folder.cache.tokens = 64;
    rig r = rig_open(&e, &folder);
    exl2_session s;
    exl2_message message = { .role = "user", .text = "hi" };
    CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
    exl2_job_desc d = rig_job(&r, prompt, 20, 2, &said);
    d.session = s;
    rig_run(&r, &d);
    d = rig_job(&r, NULL, 0, 3, &said);
    d.session = s;
    d.prompt.messages = &message;
    d.prompt.message_count = 1;
    memset(&said, 0, sizeof said);
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(said.done_events, 1);
    CHECK_INT(said.result, EXL2_OK);
    CHECK_INT(said.count, 3);
    rig_close(&r);
}

int main(void)
{
    static const char *const none[1];
    for (uint32_t i = 0; i < EXL2__COUNT(prompt); i++) {
        prompt[i] = (exl2_token)(5 + i * 37 % 250);
    }
    text_write(&fixture, none, 0, TEXT_CHAT_CONFIG);
    sentence_of_a_load();
    counts_of_calls_that_fail();
    counts_of_a_job();
    scores_of_the_own_prompt();
    own_pages_are_enough();
    return check_done();
}
