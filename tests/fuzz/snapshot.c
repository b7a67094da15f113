/* snapshot.c: fuzz target: any bytes as a saved session. What is accepted can be saved again and gone on with; what is
   rejected leaves the session as it was. The first byte says what is mended before, so that the later checks are
   reached: 1 = the model's content_id, 2 = the sum.
   By hand: clang -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/snapshot.c -lm, from the root of the repository.
   The suite runs it with run_seeds.c. */
#define EXL2_IMPLEMENTATION
#define EXL2_NO_CUDA
#include "../../exl2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static exl2_engine *engine;
static exl2_model_info info;
static exl2_session session;
static const exl2_token prompt[3] = { 5, 6, 7 };

static void open_once(void)
{
    exl2_model model = { 0 };
    exl2_engine_desc e = { .backend = EXL2_BACKEND_CPU, .max_sessions = 2, .max_jobs = 2 };
    exl2_model_desc m = { .path = "tests/golden/models/exl2-mixed", .context_max = 128, .cache.tokens = 256 };
    require(exl2_open(&e, &engine) == EXL2_OK && exl2_model_load(engine, &m, &model) == EXL2_OK);
    require(exl2_model_get(engine, model, &info) == EXL2_OK);
    require(exl2_session_open(engine, model, &session) == EXL2_OK);
}

static exl2_flow stop_soon(void *user, const exl2_event *event)
{
    uint32_t *texts = (uint32_t *)user;
    return event->kind == EXL2_EVENT_TEXT && ++*texts > 4 ? EXL2_STOP_JOB : EXL2_CONTINUE;
}

/* The session works: what was restored goes on, or is continued. */
static void use(void)
{
    static uint8_t again[1u << 20];
    exl2_session_info s;
    size_t need;
    uint32_t texts = 0;
    require(exl2_session_get(engine, session, &s) == EXL2_OK && s.tokens <= s.context_max);
    require(exl2_session_save(engine, session, EXL2_SAVE_KV, again, sizeof again, &need) == EXL2_OK);
    require(exl2_session_restore(engine, session, again, need) == EXL2_OK);
    exl2_job_desc d = { .session = session, .resume = s.resumes, .on_event = stop_soon, .user = &texts };
    exl2_result r = exl2_generate(engine, &d);
    d.prefill_only = true;
    r = r == EXL2_ERR_ARG && s.resumes ? exl2_generate(engine, &d) : r;
    require(r == EXL2_OK || r == EXL2_ERR_ARG || r == EXL2_ERR_CONTEXT_FULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t none[1];
    static uint8_t copy[1u << 16];
    if (!engine) {
        open_once();
    }
    size_t bytes = size ? size - 1 : 0;
    if (bytes > sizeof copy) {
        return 0;
    }
    memcpy(copy, size ? data + 1 : none, bytes);
    if (size && data[0] & 1 && bytes >= 32) {
        memcpy(copy + 16, info.content_id, 16);
    }
    if (size && data[0] & 2 && bytes >= 8) {
        exl2__store64(copy + bytes - 8, exl2__hash(copy, bytes - 8));
    }
    exl2_job_desc d = { .session = session, .prompt = { .tokens = prompt, .token_count = 3 }, .prefill_only = true };
    exl2_session_info before, after;
    require(exl2_session_rewind(engine, session, 0) == EXL2_OK && exl2_generate(engine, &d) == EXL2_OK);
    require(exl2_session_get(engine, session, &before) == EXL2_OK);
    if (exl2_session_restore(engine, session, copy, bytes) == EXL2_OK) {
        use();
        return 0;
    }
    require(exl2_session_get(engine, session, &after) == EXL2_OK && memcmp(&before, &after, sizeof after) == 0);
    return 0;
}
