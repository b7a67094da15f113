/* bad_input.c: what a game may get wrong with sessions, snapshots, drafts, caches, the worker and parking. After each
   case: the right code with a message of one sentence, the history that the application could read before, and an
   engine that gives the words it gave before. The script that is no JSON: tests/programs/replay.c. */
#include "text_model.h"

#include "private/hash.h"

#define NEW 40u
#define PAGE 64u

static text_model model;
static const char *const plan[6] = { "fox", " is", "ab", "abc", "\xC3", "\xA9" };
static rig r;
static exl2_session talk;        /* a history of some turns; no case may change it */
static exl2_token history[512];
static size_t history_count;
static rig_said usual, said, others[64];
static uint8_t good[1u << 18], bytes[1u << 18];

/* ---- after each case ---- */

#define BAD(call, code, piece) check_bad((call), (code), (piece), __LINE__)
#define USABLE() check_usable(__LINE__)

static void check_bad(exl2_result got, exl2_result wanted, const char *piece, int line)
{
    exl2_error error;
    exl2_last_error(r.engine, &error);
    check_int(got, wanted, "the result", __FILE__, line);
    check_int(error.code, wanted, "the code of the message", __FILE__, line);
    const char *end = strstr(error.text, ". ");
    bool one = strlen(error.text) > 10 && !strchr(error.text, '\n') && (!end || end[2] < 'A' || end[2] > 'Z');
    if (!check_that(one && strstr(error.text, piece), piece, __FILE__, line)) {
        printf("  the message is \"%s\"\n", error.text);
    }
}

static exl2_session_info info_of(exl2_session s)
{
    exl2_session_info info = { 0 };
    CHECK_INT(exl2_session_get(r.engine, s, &info), EXL2_OK);
    return info;
}

static exl2_session session_of(exl2_model m)
{
    exl2_session s = { 0 };
    CHECK_INT(exl2_session_open(r.engine, m, &s), EXL2_OK);
    return s;
}

/* A job of `count` tokens, with the words of its seed. */
static exl2_job_desc job_of(uint32_t count, rig_said *to)
{
    exl2_job_desc d = rig_job(&r, text_prompt, EXL2__COUNT(text_prompt), count, to);
    memset(to, 0, sizeof *to);
    d.sampler.preset = EXL2_PRESET_NEUTRAL;
    d.sampler.seed = 7;
    return d;
}

static bool says_usual(const rig_said *s)
{
    return s->done_events == 1 && s->result == EXL2_OK && s->count == usual.count && s->bytes == usual.bytes
        && memcmp(s->ids, usual.ids, usual.count * sizeof *usual.ids) == 0
        && memcmp(s->text, usual.text, usual.bytes) == 0;
}

static void check_usable(int line)
{
    static exl2_token now[512];
    size_t count = 0;
    exl2_job_desc d = job_of(NEW, &said);
    check_int(exl2_generate(r.engine, &d), EXL2_OK, "a job after it", __FILE__, line);
    check_that(says_usual(&said), "the words after it", __FILE__, line);
    check_int(exl2_session_tokens(r.engine, talk, now, EXL2__COUNT(now), &count), EXL2_OK, "tokens", __FILE__, line);
    check_that(count == history_count && memcmp(now, history, count * sizeof *now) == 0, "the history after it",
               __FILE__, line);
}

static void begin(const exl2_model_desc *m)
{
    exl2_engine_desc e = text_engine(&model);
    r = rig_open(&e, m);
    exl2_job_desc d = job_of(NEW, &usual);
    rig_run(&r, &d);
    talk = session_of(r.model);
    for (uint32_t turn = 0; turn < 2; turn++) {
        d = job_of(NEW / 4, &said);
        d.model.id = 0;
        d.session = talk;
        rig_run(&r, &d);
    }
    CHECK_INT(exl2_session_tokens(r.engine, talk, history, EXL2__COUNT(history), &history_count), EXL2_OK);
    CHECK(history_count > NEW / 2);
    USABLE();
}

static void begin_usual(void)
{
    exl2_model_desc m = text_folder();
    m.cache.tokens = 2048;
    begin(&m);
}

/* ---- snapshots ---- */

static size_t save(exl2_session s, uint32_t flags)
{
    size_t need = 0;
    CHECK_INT(exl2_session_save(r.engine, s, flags, good, sizeof good, &need), EXL2_OK);
    memcpy(bytes, good, need);
    return need;
}

/* A snapshot of a job that speaks. */
static size_t save_running(uint32_t flags)
{
    exl2_session s = session_of(r.model);
    exl2_job_desc d = job_of(NEW, &said);
    d.model.id = 0;
    d.session = s;
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    while (said.count < 8) {
        exl2_step(r.engine, NULL);
    }
    size_t count = save(s, flags);
    CHECK_INT(exl2_session_close(r.engine, s), EXL2_OK);
    rig_drain(&r, 0);
    return count;
}

/* The sum of a snapshot that was edited. */
static void seal(size_t count)
{
    exl2__store64(bytes + count - 8, exl2__hash(bytes, count - 8));
}

static void snapshots(void)
{
    size_t count = save_running(0), with_kv;
    uint32_t tokens = exl2__load32(good + 32);
    for (size_t cut = 0; cut < count; cut++) { /* cut anywhere */
        BAD(exl2_session_restore(r.engine, talk, bytes, cut), EXL2_ERR_FORMAT, "snapshot");
    }
    for (size_t bit = 0; bit < 8 * count; bit++) { /* flipped anywhere */
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_INT(exl2_session_restore(r.engine, talk, bytes, count), EXL2_ERR_FORMAT);
        bytes[bit / 8] = good[bit / 8];
    }
    BAD(exl2_session_restore(r.engine, talk, NULL, count), EXL2_ERR_ARG, "NULL");
    exl2__store64(bytes + 32, 1ull << 63); /* 2^63 tokens: the count and the field after it */
    seal(count);
    BAD(exl2_session_restore(r.engine, talk, bytes, count), EXL2_ERR_FORMAT, "snapshot");
    exl2__store64(bytes + 32, UINT64_MAX);
    seal(count);
    BAD(exl2_session_restore(r.engine, talk, bytes, count), EXL2_ERR_FORMAT, "snapshot");
    memcpy(bytes, good, count);
    for (uint32_t i = 0; i < tokens; i++) { /* an id beyond the vocabulary, in each place, of either kind */
        for (uint32_t sampled = 0; sampled < 2; sampled++) {
            exl2__store32(bytes + 40 + 4 * i, (TEXT_VOCAB + i) | sampled << 31);
            seal(count);
            BAD(exl2_session_restore(r.engine, talk, bytes, count), EXL2_ERR_FORMAT, "vocabulary");
        }
        exl2__store32(bytes + 40 + 4 * i, exl2__load32(good + 40 + 4 * i));
    }
    USABLE();
    with_kv = save_running(EXL2_SAVE_KV); /* the same with K and V */
    for (size_t i = 0; i < 400; i++) {
        size_t at = i * 7919 % with_kv;
        BAD(exl2_session_restore(r.engine, talk, bytes, at), EXL2_ERR_FORMAT, "snapshot");
        bytes[at] ^= 0x10;
        BAD(exl2_session_restore(r.engine, talk, bytes, with_kv), EXL2_ERR_FORMAT, "snapshot");
        bytes[at] = good[at];
    }
    USABLE();
}

/* Of another model, and made for a longer context. */
static void foreign_snapshots(void)
{
    exl2_model other, narrow;
    exl2_model_desc d = text_folder(), small = { .path = rig_golden("exl2-4bit") };
    size_t count = save(talk, EXL2_SAVE_KV);
    exl2_model_info info;
    CHECK_INT(exl2_model_load(r.engine, &small, &other), EXL2_OK);
    exl2_session s = session_of(other);
    BAD(exl2_session_restore(r.engine, s, bytes, count), EXL2_ERR_ARG, "content_id");
    CHECK_INT(info_of(s).tokens, 0);
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    exl2_error error;
    char id[64] = "";
    exl2_last_error(r.engine, &error);
    for (uint32_t i = 0; i < 4; i++) { /* both ids are named */
        snprintf(id + 2 * i, sizeof id - 2 * i, "%02x", ((const uint8_t *)&info.content_id)[i]);
    }
    CHECK(strstr(error.text, id) != NULL);
    CHECK_INT(exl2_model_close(r.engine, other), EXL2_OK);
    d = text_folder();
    d.context_max = 24;
    CHECK_INT(exl2_model_load(r.engine, &d, &narrow), EXL2_OK);
    s = session_of(narrow);
    BAD(exl2_session_restore(r.engine, s, bytes, count), EXL2_ERR_CONTEXT_FULL, "24");
    CHECK_INT(info_of(s).tokens, 0);
    CHECK_INT(exl2_model_close(r.engine, narrow), EXL2_OK);
    USABLE();
}

/* ---- sessions ---- */

static void sessions(void)
{
    size_t count = save(talk, 0);
    exl2_session s = session_of(r.model);
    CHECK_INT(exl2_session_restore(r.engine, s, bytes, count), EXL2_OK);
    BAD(exl2_session_trim(r.engine, s, (uint32_t)history_count, 1), EXL2_ERR_ARG, "cannot be taken out");
    BAD(exl2_session_trim(r.engine, s, 0, (uint32_t)history_count + 1), EXL2_ERR_ARG, "cannot be taken out");
    BAD(exl2_session_trim(r.engine, s, UINT32_MAX, UINT32_MAX), EXL2_ERR_ARG, "cannot be taken out");
    BAD(exl2_session_rewind(r.engine, s, (uint32_t)history_count + 1), EXL2_ERR_ARG, "cannot be rewound");
    CHECK_INT(info_of(s).tokens, history_count);
    for (uint32_t heard = 0; heard < 12; heard += 4) { /* a job that waits, that reads and that speaks */
        exl2_job_desc d = job_of(NEW, &said);
        exl2_job job;
        d.model.id = 0;
        d.session = s;
        uint32_t before = info_of(s).tokens;
        CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
        while (said.count < heard) {
            exl2_step(r.engine, NULL);
        }
        uint32_t now = info_of(s).tokens;
        BAD(exl2_session_restore(r.engine, s, bytes, count), EXL2_ERR_STATE, "busy");
        BAD(exl2_session_trim(r.engine, s, 0, 1), EXL2_ERR_STATE, "busy");
        BAD(exl2_session_rewind(r.engine, s, 0), EXL2_ERR_STATE, "busy");
        BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_STATE, "busy");
        CHECK_INT(info_of(s).tokens, now);
        CHECK_INT(exl2_job_cancel(r.engine, job), EXL2_OK);
        rig_drain(&r, 0);
        CHECK(said.done_events == 1 && info_of(s).tokens >= before + said.count);
    }
    CHECK_INT(exl2_session_close(r.engine, s), EXL2_OK);
    USABLE();
}

/* Resume without a snapshot, with another seed or limit, twice. */
static void resumes(void)
{
    exl2_session s = session_of(r.model);
    exl2_job_desc d = job_of(0, &others[0]);
    d.model.id = 0;
    d.session = s;
    d.prompt = (exl2_prompt){ 0 };
    d.sampler.seed = 0;
    d.resume = true;
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG, "no job to go on with");
    size_t count = save(talk, 0);
    CHECK_INT(exl2_session_restore(r.engine, s, bytes, count), EXL2_OK); /* a snapshot without a job */
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG, "no job to go on with");
    count = save_running(0);
    uint32_t heard = said.count;
    CHECK_INT(exl2_session_restore(r.engine, s, bytes, count), EXL2_OK);
    CHECK(info_of(s).resumes);
    d.sampler.seed = 8;
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG, "seed is 8, but that of the snapshot is 7");
    d.sampler.seed = 0;
    d.max_tokens = NEW + 1;
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG, "41");
    d.max_tokens = 0;
    CHECK(info_of(s).resumes);
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_STATE, "busy");
    rig_drain(&r, 0);
    CHECK_INT(others[0].count, NEW - heard);
    CHECK(memcmp(others[0].ids, usual.ids + heard, others[0].count * sizeof *usual.ids) == 0);
    CHECK(!info_of(s).resumes);
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG, "no job to go on with");
    CHECK_INT(info_of(s).tokens, EXL2__COUNT(text_prompt) + NEW);
    CHECK_INT(exl2_session_close(r.engine, s), EXL2_OK);
    USABLE();
}

/* ---- drafts ---- */

static exl2_model load_draft(void)
{
    exl2_model_desc d = text_folder();
    exl2_model draft = { 0 };
    CHECK_INT(exl2_model_load(r.engine, &d, &draft), EXL2_OK);
    return draft;
}

static void drafts(void)
{
    exl2_job_desc d = job_of(NEW, &said);
    char *letter = strstr(model.tokenizer, "im_end") + 5; /* of a token */
    *letter = 'b';
    exl2_model foreign = load_draft();
    *letter = 'd';
    d.draft.model = foreign;
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG, "vocabulary");
    CHECK_INT(exl2_model_close(r.engine, foreign), EXL2_OK);
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_STALE, "draft model");
    d.draft.model = r.model;
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG, "draft for itself");
    for (uint32_t ngram = 0; ngram < 2; ngram++) { /* with guidance */
        exl2_model draft = load_draft();
        d = job_of(NEW, &said);
        d.draft.ngram = ngram;
        d.draft.model = ngram ? d.draft.model : draft;
        d.guidance = 2;
        d.negative_prompt.tokens = text_prompt;
        d.negative_prompt.token_count = 2;
        BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_ARG, "guidance cannot have drafts");
        CHECK_INT(exl2_model_close(r.engine, draft), EXL2_OK);
    }
    USABLE();
    for (uint32_t heard = 0; heard < NEW; heard += 5) { /* parked, and closed, at some moment; before the start, too */
        for (uint32_t what = 0; what < 3; what++) {
            exl2_model draft = load_draft();
            d = job_of(NEW, &others[0]);
            d.draft = (exl2_draft_desc){ .model = draft, .tokens = 4 };
            if (what == 2 && heard == 0) {
                CHECK_INT(exl2_model_park(r.engine, draft, true), EXL2_OK);
            }
            CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
            while (others[0].count < heard) {
                exl2_step(r.engine, &(exl2_step_desc){ .cpu_us = 1 });
            }
            if (what > 0) {
                CHECK_INT(exl2_model_park(r.engine, draft, true), EXL2_OK);
            }
            if (what == 2) {
                CHECK_INT(exl2_model_park(r.engine, draft, false), EXL2_OK);
            }
            if (what != 1) {
                CHECK_INT(exl2_model_close(r.engine, draft), EXL2_OK);
            }
            rig_drain(&r, 0);
            CHECK(says_usual(&others[0]));
            if (what == 1) {
                CHECK_INT(exl2_model_close(r.engine, draft), EXL2_OK);
            }
        }
    }
    USABLE();
}

/* ---- formats of the cache ---- */

static void formats(void)
{
    exl2_model_desc d = { .path = rig_golden("exl2-4bit") };
    exl2_model_info info;
    exl2_model m = { 77 };
    static const uint32_t wild[] = { EXL2_KV_Q4 + 1, 77, UINT32_MAX };
    for (uint32_t i = 0; i < EXL2__COUNT(wild); i++) {
        d.cache.format = (exl2_kv)wild[i];
        BAD(exl2_model_measure(r.engine, &d, &info), EXL2_ERR_ARG, "format");
        BAD(exl2_model_open(r.engine, &d, &m), EXL2_ERR_ARG, "format");
        BAD(exl2_model_load(r.engine, &d, &m), EXL2_ERR_ARG, "format");
    }
    d.path = rig_golden("awq"); /* heads of 24 */
    d.cache.format = EXL2_KV_Q4;
    BAD(exl2_model_measure(r.engine, &d, &info), EXL2_ERR_UNSUPPORTED, "24 elements");
    BAD(exl2_model_load(r.engine, &d, &m), EXL2_ERR_UNSUPPORTED, "24 elements");
    CHECK_INT(m.id, 0);
    USABLE();
}

/* ---- the worker ---- */

static exl2_result in_callback[2];

static exl2_flow stop_worker(void *user, const exl2_event *event)
{
    if (event->kind == EXL2_EVENT_TEXT && in_callback[0] == EXL2_OK) {
        in_callback[0] = exl2_worker_stop(r.engine);
        BAD(in_callback[0], EXL2_ERR_STATE, "callback");
        in_callback[1] = exl2_worker_start(r.engine);
        BAD(in_callback[1], EXL2_ERR_STATE, "callback");
    }
    return rig_hear(user, event);
}

static void workers(void)
{
    BAD(exl2_worker_stop(r.engine), EXL2_ERR_STATE, "worker");
    for (uint32_t with = 0; with < 2; with++) { /* a callback stops it, with a worker and without */
        exl2_job_desc d = job_of(NEW, &others[0]);
        if (with) {
            CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
            BAD(exl2_worker_start(r.engine), EXL2_ERR_STATE, "worker");
        }
        in_callback[0] = in_callback[1] = EXL2_OK;
        d.on_event = stop_worker;
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        while (!others[0].done_events) {
            exl2_step(r.engine, &(exl2_step_desc){ .wait = true });
        }
        CHECK(says_usual(&others[0]));
        CHECK(in_callback[0] == EXL2_ERR_STATE && in_callback[1] == EXL2_ERR_STATE);
        USABLE();
        if (with) {
            CHECK_INT(exl2_worker_stop(r.engine), EXL2_OK);
        }
    }
    BAD(exl2_worker_stop(r.engine), EXL2_ERR_STATE, "worker");
    USABLE();
    CHECK_INT(exl2_worker_start(r.engine), EXL2_OK); /* the engine is closed under it, while jobs speak */
    for (uint32_t i = 0; i < 4; i++) {
        exl2_job_desc d = job_of(400, &others[i]);
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    }
    while (others[0].count < 5) {
        exl2_step(r.engine, &(exl2_step_desc){ .wait = true });
    }
    exl2_close(r.engine);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(others[i].done_events == 1 && others[i].stop == EXL2_STOP_CANCELLED);
        CHECK(memcmp(others[i].ids, usual.ids, (others[i].count < NEW ? others[i].count : NEW)
                                                   * sizeof *usual.ids) == 0);
    }
}

/* ---- parking ---- */

static void parking(void)
{
    exl2_model loading;
    exl2_model_desc d = text_folder();
    CHECK_INT(exl2_model_open(r.engine, &d, &loading), EXL2_OK);
    for (uint32_t i = 0; exl2_model_state(r.engine, loading) == EXL2_PENDING; i++) {
        if (i % 4 == 0) {
            BAD(exl2_model_park(r.engine, loading, true), EXL2_ERR_STATE, "load");
            exl2_session s = { 0 };
            BAD(exl2_session_open(r.engine, loading, &s), EXL2_ERR_STATE, "");
        }
        exl2_step(r.engine, &(exl2_step_desc){ .cpu_us = 1 });
    }
    CHECK_INT(exl2_model_state(r.engine, loading), EXL2_OK);
    CHECK_INT(exl2_model_close(r.engine, loading), EXL2_OK);
    USABLE();
    CHECK_INT(exl2_model_park(r.engine, r.model, true), EXL2_OK);
    for (uint32_t i = 0; i < 64; i++) { /* they wait, however many there are */
        exl2_job_desc job = job_of(NEW, &others[i]);
        CHECK_INT(exl2_job_start(r.engine, &job, NULL), EXL2_OK);
    }
    exl2_job_desc more = job_of(NEW, &said);
    BAD(exl2_job_start(r.engine, &more, NULL), EXL2_ERR_BUDGET, "64"); /* max_jobs, not memory */
    BAD(exl2_generate(r.engine, &more), EXL2_ERR_BUDGET, "64");
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_INT(exl2_step(r.engine, NULL), EXL2_IDLE);
    }
    CHECK_INT(others[0].count + others[0].done_events, 0);
    CHECK_INT(exl2_session_tokens(r.engine, talk, NULL, 0, &(size_t){ 0 }), EXL2_OK);
    CHECK_INT(exl2_model_park(r.engine, r.model, false), EXL2_OK);
    BAD(exl2_model_park(r.engine, r.model, true), EXL2_ERR_STATE, "load");
    rig_drain(&r, 0);
    for (uint32_t i = 0; i < 64; i++) {
        CHECK(says_usual(&others[i]));
    }
    USABLE();
}

/* A load fails while the queue has no room for its event, and another call fails after it: the load keeps its own
   message. */
static void failed_load_waits(void)
{
    exl2_engine_desc e = text_engine(&model);
    exl2_model_desc m = text_folder(), none = { .path = "no/such/folder" };
    exl2_model failing;
    exl2_event event;
    exl2_error error;
    bool told = false;
    e.max_events = 1;
    r = rig_open(&e, &m);
    exl2_job_desc d = job_of(400, &said);
    d.on_event = NULL; /* nobody reads its events: the queue fills */
    d.min_tokens = d.max_tokens;
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(exl2_model_open(r.engine, &none, &failing), EXL2_OK);
    rig_drain(&r, 0);
    BAD(exl2_model_open(r.engine, NULL, &failing), EXL2_ERR_ARG, "NULL");
    rig_drain(&r, 0);
    CHECK_INT(exl2_model_state(r.engine, failing), EXL2_PENDING); /* until its event was delivered */
    for (uint32_t i = 0; i < 2000 && !told; i++) {
        while (exl2_next_event(r.engine, &event)) {
            told = told || event.kind == EXL2_EVENT_LOAD;
            if (event.kind == EXL2_EVENT_LOAD) {
                CHECK(event.result == EXL2_ERR_IO && strstr(event.error, none.path));
            }
        }
        exl2_step(r.engine, NULL);
    }
    CHECK(told);
    CHECK_INT(exl2_model_state(r.engine, failing), EXL2_ERR_IO);
    exl2_last_error(r.engine, &error);
    CHECK(error.code == EXL2_ERR_IO && strstr(error.text, none.path));
    exl2_close(r.engine);
}

/* ---- few pages ---- */

/* A pool of one page: jobs take turns, those that can never fit are rejected. */
static void one_page(void)
{
    exl2_model_desc m = text_folder();
    m.context_max = PAGE;
    m.cache.tokens = PAGE;
    begin(&m);
    exl2_engine_stats stats;
    exl2_stats(r.engine, &stats);
    CHECK_INT(stats.pages_total, 1);
    exl2_job_desc d = job_of(PAGE, &said);
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_CONTEXT_FULL, "64");
    d = job_of(NEW, &said);
    d.guidance = 2; /* needs a page for each of its two sequences */
    d.negative_prompt.tokens = text_prompt;
    d.negative_prompt.token_count = 2;
    BAD(exl2_job_start(r.engine, &d, NULL), EXL2_ERR_BUDGET, "page");
    exl2_session forks[4];
    for (uint32_t i = 0; i < 12; i++) {
        d = job_of(NEW, &others[i]);
        d.draft.ngram = i % 2;
        if (i % 3 == 0) {
            CHECK_INT(exl2_session_fork(r.engine, talk, &forks[i / 3]), EXL2_OK);
            CHECK_INT(exl2_session_rewind(r.engine, forks[i / 3], 0), EXL2_OK);
            d.model.id = 0;
            d.session = forks[i / 3];
        }
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    }
    rig_drain(&r, 100);
    for (uint32_t i = 0; i < 12; i++) {
        CHECK(says_usual(&others[i]));
    }
    USABLE();
    exl2_close(r.engine);
}

/* 64 jobs, each of which needs the whole pool: in whole passes, in small steps, with a worker, with priorities that
   preempt. */
static void whole_pool(void)
{
    exl2_model_desc m = text_folder();
    m.context_max = 2 * PAGE;
    m.cache.tokens = 2 * PAGE;
    begin(&m);
    exl2_job_desc alone = job_of(2 * PAGE - EXL2__COUNT(text_prompt), &said);
    static rig_said first;
    alone.min_tokens = alone.max_tokens;
    alone.user = &first;
    CHECK_INT(exl2_generate(r.engine, &alone), EXL2_OK);
    for (uint32_t way = 0; way < 3; way++) {
        exl2_step_desc step = { .cpu_us = way == 1 ? 50 : 0, .wait = way == 2 };
        uint32_t done = 0;
        if (way == 2) {
            CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
        }
        for (uint32_t i = 0; i < 64; i++) {
            exl2_job_desc d = alone;
            memset(&others[i], 0, sizeof others[i]);
            d.user = &others[i];
            d.priority = (int32_t)(i % 5);
            CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
            exl2_step(r.engine, &step);
        }
        while (done < 64) {
            exl2_step(r.engine, &step);
            done = 0;
            for (uint32_t i = 0; i < 64; i++) {
                done += others[i].done_events;
            }
        }
        for (uint32_t i = 0; i < 64; i++) {
            CHECK(others[i].result == EXL2_OK && others[i].stop == EXL2_STOP_LENGTH);
            CHECK(others[i].count == first.count
                  && memcmp(others[i].ids, first.ids, first.count * sizeof *first.ids) == 0);
        }
        USABLE();
        if (way == 2) {
            CHECK_INT(exl2_worker_stop(r.engine), EXL2_OK);
        }
    }
    exl2_close(r.engine);
}

int main(void)
{
    text_find_plan(&model, 6);
    text_write(&model, plan, 6, TEXT_CHAT_CONFIG);
    begin_usual();
    snapshots();
    foreign_snapshots();
    sessions();
    resumes();
    drafts();
    formats();
    parking();
    workers(); /* closes the engine */
    failed_load_waits();
    one_page();
    whole_pool();
    return check_done();
}
