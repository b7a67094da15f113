/* misuse.c: every public function with no engine, no desc, no place for the answer, handles that name nothing, and
   descs that were never zeroed. Each call gives a code and a message and changes nothing. Rejected jobs: scheduling.c;
   rejected text: text.c and chat.c. */
#include "rig.h"

/* Ids of no object: zero, free slots, a slot beyond the last, another generation, no generation, no slot. */
static const uint64_t wild[] = { 0, 2, 0x100000002, 0x10000FFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x200000001,
                                 0x100000000, 1, 0x10001, 0xFFFFFFFF };

static exl2_engine *engine;

/* The call was rejected with this code, and the engine's most recent message belongs to it. */
static void check_refused(exl2_result got, exl2_result wanted, const char *call, const char *file, int line)
{
    exl2_error error;
    exl2_last_error(engine, &error);
    check_int(got, wanted, call, file, line);
    check_int(error.code, wanted, "the code of the message", file, line);
    check_that(strlen(error.text) > 10, call, file, line);
}

#define REFUSED(call, wanted) check_refused((call), (wanted), #call, __FILE__, __LINE__)

/* ---- no engine ---- */

static void no_engine(void)
{
    exl2_model model = { 1 };
    exl2_session session = { 1 };
    exl2_job job = { 1 };
    exl2_lora lora = { 1 };
    exl2_lora_desc ld = { .path = "." };
    exl2_lora_info li;
    exl2_steer steer = { 1 };
    exl2_steer_desc steer_desc = { .path = "x.gguf" };
    exl2_steer_info of_steer;
    exl2_image image = { 1 };
    exl2_image_desc id_of = { .width = 1, .height = 1, .pixels = "abc" };
    exl2_image_info ii;
    exl2_picture picture;
    float row;
    exl2_model_desc md = { 0 };
    exl2_model_info mi;
    exl2_session_info si;
    exl2_job_desc jd = { 0 };
    exl2_job_info ji;
    exl2_sampler_desc sd = { 0 };
    exl2_event event;
    exl2_error error;
    exl2_engine_stats stats;
    exl2_message message = { .role = "user", .text = "x" };
    exl2_token id = 0;
    char text[4];
    size_t need;
    md.path = ".";
    exl2_close(NULL);
    exl2_interrupt(NULL);
    memset(&error, 0xAA, sizeof error);
    memset(&stats, 0xAA, sizeof stats);
    exl2_last_error(NULL, &error);
    exl2_stats(NULL, &stats);
    /* an application that prints them prints no garbage */
    CHECK(error.code == 0 && error.text[0] == 0 && stats.steps == 0);
    exl2_engine_info ei;
    memset(&ei, 0xAA, sizeof ei);
    exl2_engine_get(NULL, &ei);
    CHECK(ei.max_jobs == 0 && ei.device.name[0] == 0);
    exl2_engine_get(NULL, NULL);
    exl2_last_error(NULL, NULL);
    exl2_stats(NULL, NULL);
    CHECK(!exl2_next_event(NULL, &event));
    CHECK_INT(exl2_step(NULL, NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_worker_start(NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_worker_stop(NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_model_measure(NULL, &md, &mi), EXL2_ERR_ARG);
    CHECK_INT(exl2_model_open(NULL, &md, &model), EXL2_ERR_ARG);
    CHECK_INT(exl2_model_load(NULL, &md, &model), EXL2_ERR_ARG);
    CHECK_INT(exl2_model_get(NULL, model, &mi), EXL2_ERR_ARG);
    CHECK_INT(exl2_model_state(NULL, model), EXL2_ERR_ARG);
    CHECK_INT(exl2_model_close(NULL, model), EXL2_ERR_ARG);
    CHECK_INT(exl2_model_park(NULL, model, true), EXL2_ERR_ARG);
    CHECK_INT(exl2_model_park(NULL, model, false), EXL2_ERR_ARG);
    CHECK_INT(exl2_lora_measure(NULL, &ld, &li), EXL2_ERR_ARG);
    CHECK_INT(exl2_lora_open(NULL, &ld, &lora), EXL2_ERR_ARG);
    CHECK_INT(exl2_lora_load(NULL, &ld, &lora), EXL2_ERR_ARG);
    CHECK_INT(exl2_lora_get(NULL, lora, &li), EXL2_ERR_ARG);
    CHECK_INT(exl2_lora_state(NULL, lora), EXL2_ERR_ARG);
    CHECK_INT(exl2_lora_close(NULL, lora), EXL2_ERR_ARG);
    CHECK_INT(exl2_steer_make(NULL, &steer_desc, &steer), EXL2_ERR_ARG);
    CHECK_INT(exl2_steer_get(NULL, steer, &of_steer), EXL2_ERR_ARG);
    CHECK_INT(exl2_steer_close(NULL, steer), EXL2_ERR_ARG);
    CHECK_INT(exl2_image_make(NULL, &id_of, &image), EXL2_ERR_ARG);
    CHECK_INT(exl2_image_get(NULL, image, &ii), EXL2_ERR_ARG);
    CHECK_INT(exl2_image_measure(NULL, &id_of, &ii), EXL2_ERR_ARG);
    CHECK_INT(exl2_image_seen(NULL, image, text, 4, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_image_rows(NULL, image, &row, 1, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_image_close(NULL, image), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_pictures(NULL, session, &picture, 1, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_tokenize(NULL, model, "x", 1, 0, &id, 1, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_detokenize(NULL, model, &id, 1, 0, text, 4, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_chat_render(NULL, model, &message, 1, NULL, text, 4, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_chat_tokenize(NULL, model, &(exl2_prompt){ .text = "x" }, NULL, &id, 1, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_open(NULL, model, &session), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_fork(NULL, session, &session), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_rewind(NULL, session, 0), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_trim(NULL, session, 0, 0), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_save(NULL, session, 0, NULL, 0, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_restore(NULL, session, text, 4), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_get(NULL, session, &si), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_tokens(NULL, session, &id, 1, &need), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_close(NULL, session), EXL2_ERR_ARG);
    CHECK_INT(exl2_sampler_resolve(NULL, model, &sd, &sd), EXL2_ERR_ARG);
    CHECK_INT(exl2_job_start(NULL, &jd, &job), EXL2_ERR_ARG);
    CHECK_INT(exl2_generate(NULL, &jd), EXL2_ERR_ARG);
    CHECK_INT(exl2_job_cancel(NULL, job), EXL2_ERR_ARG);
    CHECK_INT(exl2_job_get(NULL, job, &ji), EXL2_ERR_ARG);
    CHECK_INT(exl2_job_pause(NULL, job, true), EXL2_ERR_ARG);
    CHECK_INT(exl2_job_priority(NULL, job, 1), EXL2_ERR_ARG);
    CHECK(model.id == 1 && session.id == 1 && job.id == 1 && lora.id == 1 && image.id == 1);
    CHECK_TEXT(exl2_result_name(EXL2_ERR_TOO_SMALL), "EXL2_ERR_TOO_SMALL");
    CHECK_TEXT(exl2_result_name((exl2_result)-99), "unknown result");
    CHECK_INT(exl2_version(), EXL2_VERSION);
}

/* ---- opening ---- */

static void *no_memory(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    (void)user, (void)bytes, (void)align, (void)tag;
    return NULL;
}

static void *no_file(void *user, const char *path, uint64_t *bytes)
{
    (void)user, (void)path, (void)bytes;
    return NULL;
}

static void check_open(const exl2_engine_desc *given, exl2_result wanted, const char *piece)
{
    exl2_error error = { 0 };
    exl2_engine_desc d = *given;
    exl2_engine *e = engine;
    d.open_error = &error;
    CHECK_INT(exl2_open(&d, &e), wanted);
    CHECK(e == NULL);
    CHECK_INT(error.code, wanted);
    if (!CHECK(strstr(error.text, piece) != NULL)) {
        printf("  the message is \"%s\", it should hold \"%s\"\n", error.text, piece);
    }
}

static void opening(void)
{
    exl2_engine_desc d, zeroed = { 0 };
    exl2_engine *e = NULL;
    CHECK_INT(exl2_open(NULL, NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_open_versioned(&zeroed, EXL2_VERSION + 1, &e), EXL2_ERR_VERSION);
    memset(&d, 0xCD, sizeof d); /* as a debug build fills the stack: none of its pointers may be followed */
    CHECK_INT(exl2_open(&d, &e), EXL2_ERR_ARG);
    CHECK_INT(exl2_open_versioned(&d, EXL2_VERSION + 1, &e), EXL2_ERR_VERSION);
    d = zeroed;
    d.backend = (exl2_backend)77;
    check_open(&d, EXL2_ERR_ARG, "77");
    d.backend = EXL2_BACKEND_CPU;
    d.device_count = 1;
    check_open(&d, EXL2_ERR_ARG, "devices is NULL");
    d = zeroed;
    d.max_sessions = 65536;
    check_open(&d, EXL2_ERR_ARG, "65,535");
    d = zeroed;
    d.allocator.alloc_fn = no_memory;
    check_open(&d, EXL2_ERR_ARG, "free_fn");
    d.allocator.free_fn = exl2__platform_allocator().free_fn;
    check_open(&d, EXL2_ERR_MEMORY, "");
    d = zeroed;
    d.files.open = no_file;
    check_open(&d, EXL2_ERR_ARG, "files");
    d = zeroed;
    d.host_bytes_max = 1000;
    check_open(&d, EXL2_ERR_BUDGET, "");
    d = zeroed;
    d.cpu_path_max = (exl2_cpu_path)5;
    check_open(&d, EXL2_ERR_ARG, "cpu_path_max");
}

/* What exl2_open decided: the defaults, and the values of the desc. */
static void settled(void)
{
    exl2_engine *e;
    exl2_engine_info info;
    exl2_engine_desc d = { .backend = EXL2_BACKEND_CPU };
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    exl2_engine_get(e, &info);
    CHECK(info.backend == EXL2_BACKEND_CPU && info.device.name[0] == 0 && info.device.arch == 0);
    CHECK(info.max_models == 4 && info.max_sessions == 256 && info.max_jobs == 64 && info.max_events == 1024);
    CHECK(info.host_bytes_max == 0 && info.device_bytes_max == 0);
    exl2_cpu_path best = info.cpu_path;
    CHECK(best >= EXL2_CPU_C && best <= EXL2_CPU_NEON);
    exl2_close(e);
    for (int most = EXL2_CPU_C; most <= EXL2_CPU_NEON; most++) {
        d.cpu_path_max = (exl2_cpu_path)most;
        CHECK_INT(exl2_open(&d, &e), EXL2_OK);
        exl2_engine_get(e, &info);
        bool limits = best == EXL2_CPU_NEON ? most == EXL2_CPU_C : most < (int)best; /* others limit other CPUs */
        CHECK_INT(info.cpu_path, limits ? most : (int)best);
        exl2_close(e);
    }
    d = (exl2_engine_desc){ .max_models = 1, .max_sessions = 2, .max_jobs = 3, .max_events = 5,
                            .host_bytes_max = 1 << 30, .device_bytes_max = 1 << 29 };
    CHECK_INT(exl2_open(&d, &e), EXL2_OK); /* AUTO chooses one of the two */
    exl2_engine_get(e, &info);
    CHECK(info.backend == EXL2_BACKEND_CPU || (info.backend == EXL2_BACKEND_CUDA && info.device.name[0]));
    CHECK(info.max_models == 1 && info.max_sessions == 2 && info.max_jobs == 3 && info.max_events == 5);
    CHECK(info.host_bytes_max == 1 << 30 && info.device_bytes_max == 1 << 29);
    exl2_close(e);
}

/* ---- canaries: at both ends of every desc, and of a desc inside another ---- */

/* The call is rejected with either canary set, and the message names the struct and the canary. */
#define CANARIES(d, call, name)                                                                        \
    for (uint32_t end = 0; end < 2; end++) {                                                           \
        *(end ? &(d)._end_canary : &(d)._start_canary) = 5;                                            \
        REFUSED(call, EXL2_ERR_ARG);                                                                   \
        check_message(name, end ? "_end_canary is 5" : "_start_canary is 5", __LINE__);                \
        *(end ? &(d)._end_canary : &(d)._start_canary) = 0;                                            \
    }

static void check_message(const char *name, const char *canary, int line)
{
    exl2_error error;
    exl2_last_error(engine, &error);
    if (!check_that(strstr(error.text, name) && strstr(error.text, canary), canary, __FILE__, line)) {
        printf("  the message is \"%s\", it should hold \"%s\" and \"%s\"\n", error.text, name, canary);
    }
}

static void canaries_of_calls(const rig *r)
{
    static const exl2_token ids[4] = { 5, 6, 7, 8 };
    exl2_model_desc model = { .path = rig_golden("exl2-4bit") };
    exl2_job_desc job = rig_job(r, ids, 4, 4, NULL);
    exl2_grammar_desc grammar = { .model = r->model };
    exl2_sampler_desc sampler = { 0 }, resolved;
    exl2_step_desc step = { 0 };
    exl2_chat_desc chat = { 0 };
    const exl2_message message = { .role = "user", .text = "x" };
    exl2_model_info info;
    exl2_model m;
    exl2_grammar g;
    exl2_job_size size;
    size_t need;
    const exl2_prompt prompt = { .text = "x" };
    job.on_event = NULL;
    CANARIES(step, exl2_step(engine, &step), "exl2_step_desc");
    CANARIES(model, exl2_model_open(engine, &model, &m), "exl2_model_desc");
    CANARIES(model, exl2_model_load(engine, &model, &m), "exl2_model_desc");
    CANARIES(model, exl2_model_measure(engine, &model, &info), "exl2_model_desc");
    CANARIES(model.cache, exl2_model_load(engine, &model, &m), "exl2_cache_desc");
    CANARIES(model.cache, exl2_model_measure(engine, &model, &info), "exl2_cache_desc");
    CANARIES(chat, exl2_chat_render(engine, r->model, &message, 1, &chat, NULL, 0, &need), "exl2_chat_desc");
    CANARIES(chat, exl2_chat_tokenize(engine, r->model, &prompt, &chat, NULL, 0, &need), "exl2_chat_desc");
    CANARIES(sampler, exl2_sampler_resolve(engine, r->model, &sampler, &resolved), "exl2_sampler_desc");
    CANARIES(grammar, exl2_grammar_make(engine, &grammar, &g), "exl2_grammar_desc");
    CANARIES(job, exl2_job_start(engine, &job, NULL), "exl2_job_desc");
    CANARIES(job, exl2_job_measure(engine, &job, &size), "exl2_job_desc");
    CANARIES(job, exl2_generate(engine, &job), "exl2_job_desc");
    CANARIES(job.chat, exl2_job_start(engine, &job, NULL), "exl2_chat_desc");
    CANARIES(job.sampler, exl2_generate(engine, &job), "exl2_sampler_desc");
    CANARIES(job.draft, exl2_job_start(engine, &job, NULL), "exl2_draft_desc");
    CHECK_INT(exl2_step(engine, &step), EXL2_IDLE); /* no job has begun */
}

/* Descs of calls without an engine: the pointer to the error may itself be garbage. */
static void canaries_of_opening(void)
{
    exl2_device_desc device = { 0 };
    exl2_engine *e;
    for (uint32_t end = 0; end < 2; end++) {
        exl2_error error = { 0 };
        exl2_engine_desc d = { .open_error = &error };
        exl2_kernel_build_desc build = { .error = &error };
        *(end ? &d._end_canary : &d._start_canary) = 5;
        CHECK_INT(exl2_open(&d, &e), EXL2_ERR_ARG);
        *(end ? &build._end_canary : &build._start_canary) = 5;
        CHECK_INT(exl2_kernels_build(&build), EXL2_ERR_ARG);
        CHECK_INT(error.code, 0);
        d = (exl2_engine_desc){ .backend = EXL2_BACKEND_CPU, .devices = &device, .device_count = 1 };
        *(end ? &device._end_canary : &device._start_canary) = 5;
        check_open(&d, EXL2_ERR_ARG, "exl2_device_desc");
    }
    CHECK_INT(exl2_kernels_build(NULL), EXL2_ERR_ARG);
}

/* ---- NULL and nonsense, with an engine ---- */

static void models(const rig *r)
{
    exl2_model_desc d = { 0 };
    exl2_model_info info;
    exl2_model m = { 77 };
    REFUSED(exl2_model_open(engine, NULL, &m), EXL2_ERR_ARG);
    REFUSED(exl2_model_open(engine, &d, &m), EXL2_ERR_ARG);
    REFUSED(exl2_model_load(engine, NULL, &m), EXL2_ERR_ARG);
    REFUSED(exl2_model_measure(engine, NULL, &info), EXL2_ERR_ARG);
    memset(&d, 0xCD, sizeof d);
    REFUSED(exl2_model_open(engine, &d, &m), EXL2_ERR_ARG);
    REFUSED(exl2_model_load(engine, &d, &m), EXL2_ERR_ARG);
    REFUSED(exl2_model_measure(engine, &d, &info), EXL2_ERR_ARG);
    memset(&d, 0, sizeof d);
    d.path = rig_golden("exl2-4bit");
    REFUSED(exl2_model_open(engine, &d, NULL), EXL2_ERR_ARG);
    REFUSED(exl2_model_load(engine, &d, NULL), EXL2_ERR_ARG);
    REFUSED(exl2_model_measure(engine, &d, NULL), EXL2_ERR_ARG);
    REFUSED(exl2_model_get(engine, r->model, NULL), EXL2_ERR_ARG);
    d.prefill_chunk = 65537;
    REFUSED(exl2_model_open(engine, &d, &m), EXL2_ERR_ARG);
    d.prefill_chunk = 0;
    d.batch_max = 0xFFFFFFFF;
    REFUSED(exl2_model_open(engine, &d, &m), EXL2_ERR_ARG);
    d.batch_max = 0;
    d.cache.format = (exl2_kv)(EXL2_KV_Q4 + 1);
    REFUSED(exl2_model_open(engine, &d, &m), EXL2_ERR_ARG);
    REFUSED(exl2_model_measure(engine, &d, &info), EXL2_ERR_ARG);
    REFUSED(exl2_model_load(engine, &d, &m), EXL2_ERR_ARG);
    d.path = rig_golden("awq"); /* heads of 24 */
    d.cache.format = EXL2_KV_Q4;
    REFUSED(exl2_model_measure(engine, &d, &info), EXL2_ERR_UNSUPPORTED);
    exl2_error error;
    exl2_last_error(engine, &error);
    CHECK(strstr(error.text, "24 elements") != NULL);
    REFUSED(exl2_model_load(engine, &d, &m), EXL2_ERR_UNSUPPORTED);
    d.path = rig_golden("exl2-4bit");
    d.cache.format = EXL2_KV_FP16;
    d.context_max = 0xFFFFFFFF;
    REFUSED(exl2_model_measure(engine, &d, &info), EXL2_ERR_ARG);
    REFUSED(exl2_model_load(engine, &d, &m), EXL2_ERR_ARG);
    d.context_max = 0;
    d.cache.tokens = UINT64_MAX;
    CHECK_INT(exl2_model_measure(engine, &d, &info), EXL2_OK);
    CHECK(info.cache_bytes / info.cache_bytes_per_token > UINT32_MAX);
    REFUSED(exl2_model_load(engine, &d, &m), EXL2_ERR_MEMORY);
    d.cache.tokens = 0;
    char path[3000];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    d.path = path;
    REFUSED(exl2_model_open(engine, &d, &m), EXL2_ERR_ARG);
    d.path = "";
    CHECK_INT(exl2_model_load(engine, &d, &m), EXL2_ERR_IO);
    CHECK_INT(m.id, 0);
    d.path = "no/such/folder";
    REFUSED(exl2_model_load(engine, &d, &m), EXL2_ERR_IO);
    REFUSED(exl2_model_measure(engine, &d, &info), EXL2_ERR_IO);
}

static void texts(const rig *r)
{
    exl2_token id = 0;
    exl2_message message = { .role = "user", .text = "x" };
    size_t need = 5;
    char text[4];
    REFUSED(exl2_tokenize(engine, r->model, NULL, 1, 0, &id, 1, &need), EXL2_ERR_ARG);
    REFUSED(exl2_tokenize(engine, r->model, "x", 1, 0, NULL, 1, &need), EXL2_ERR_ARG);
    REFUSED(exl2_tokenize(engine, r->model, "x", 1, 0, &id, 1, NULL), EXL2_ERR_ARG);
    REFUSED(exl2_detokenize(engine, r->model, NULL, 1, 0, text, 4, &need), EXL2_ERR_ARG);
    REFUSED(exl2_detokenize(engine, r->model, &id, 1, 0, NULL, 4, &need), EXL2_ERR_ARG);
    REFUSED(exl2_detokenize(engine, r->model, &id, 1, 0, text, 4, NULL), EXL2_ERR_ARG);
    REFUSED(exl2_chat_render(engine, r->model, NULL, 1, NULL, text, 4, &need), EXL2_ERR_ARG);
    REFUSED(exl2_chat_render(engine, r->model, &message, 1, NULL, NULL, 4, &need), EXL2_ERR_ARG);
    REFUSED(exl2_chat_render(engine, r->model, &message, 1, NULL, text, 4, NULL), EXL2_ERR_ARG);
    const exl2_prompt prompt = { .text = "x" };
    REFUSED(exl2_chat_tokenize(engine, r->model, NULL, NULL, &id, 1, &need), EXL2_ERR_ARG);
    REFUSED(exl2_chat_tokenize(engine, r->model, &prompt, NULL, NULL, 1, &need), EXL2_ERR_ARG);
    REFUSED(exl2_chat_tokenize(engine, r->model, &prompt, NULL, &id, 1, NULL), EXL2_ERR_ARG);
}

static void sessions_and_sampling(const rig *r)
{
    exl2_session s;
    exl2_sampler_desc sampler = { 0 };
    size_t need;
    REFUSED(exl2_session_open(engine, r->model, NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_open(engine, r->model, &s), EXL2_OK);
    REFUSED(exl2_session_fork(engine, s, NULL), EXL2_ERR_ARG);
    REFUSED(exl2_session_get(engine, s, NULL), EXL2_ERR_ARG);
    REFUSED(exl2_session_tokens(engine, s, NULL, 1, &need), EXL2_ERR_ARG);
    REFUSED(exl2_session_tokens(engine, s, NULL, 0, NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_tokens(engine, s, NULL, 0, &need), EXL2_OK);
    CHECK_INT(need, 0);
    REFUSED(exl2_session_rewind(engine, s, 1), EXL2_ERR_ARG);
    REFUSED(exl2_session_trim(engine, s, 0, 1), EXL2_ERR_ARG);
    REFUSED(exl2_session_trim(engine, s, 1, 0), EXL2_ERR_ARG);
    REFUSED(exl2_session_trim(engine, s, 1, UINT32_MAX), EXL2_ERR_ARG);
    REFUSED(exl2_session_save(engine, s, 0, NULL, 1, &need), EXL2_ERR_ARG);
    REFUSED(exl2_session_save(engine, s, 0, NULL, 0, NULL), EXL2_ERR_ARG);
    REFUSED(exl2_session_save(engine, s, 8, NULL, 0, &need), EXL2_ERR_ARG);
    REFUSED(exl2_session_restore(engine, s, NULL, 0), EXL2_ERR_ARG);
    REFUSED(exl2_session_restore(engine, s, "", 0), EXL2_ERR_FORMAT);
    CHECK_INT(exl2_session_trim(engine, s, 0, 0), EXL2_OK);
    CHECK_INT(exl2_session_close(engine, s), EXL2_OK);
    REFUSED(exl2_sampler_resolve(engine, r->model, NULL, &sampler), EXL2_ERR_ARG);
    REFUSED(exl2_sampler_resolve(engine, r->model, &sampler, NULL), EXL2_ERR_ARG);
    sampler.bias_count = 1;
    REFUSED(exl2_sampler_resolve(engine, r->model, &sampler, &sampler), EXL2_ERR_ARG);
    sampler.bias_count = 0;
    sampler.preset = (exl2_preset)99;
    REFUSED(exl2_sampler_resolve(engine, r->model, &sampler, &sampler), EXL2_ERR_ARG);
}

/* A job is rejected by both functions that start one. No slot and no page leaks. */
static void check_job(const exl2_job_desc *d, exl2_result wanted, const char *what)
{
    exl2_engine_stats stats;
    exl2_job job = { 77 };
    check_refused(exl2_job_start(engine, d, &job), wanted, what, __FILE__, __LINE__);
    CHECK_INT(job.id, 77);
    check_refused(exl2_generate(engine, d), wanted, what, __FILE__, __LINE__);
    exl2_stats(engine, &stats);
    CHECK(stats.jobs_waiting == 0 && stats.jobs_active == 0 && stats.pages_used == 0);
}

static void jobs(const rig *r)
{
    static const exl2_token ids[200];
    static exl2_bias biases[2000];
    exl2_job_desc d, good = rig_job(r, ids, 4, 4, NULL);
    good.on_event = NULL;
    check_job(NULL, EXL2_ERR_ARG, "no desc");
    memset(&d, 0xCD, sizeof d);
    check_job(&d, EXL2_ERR_ARG, "never zeroed");
#define BAD(field, value, wanted) \
    d = good;                     \
    d.field = value;              \
    check_job(&d, wanted, #field)
    BAD(prompt.tokens, NULL, EXL2_ERR_ARG);
    BAD(prompt.message_count, 1, EXL2_ERR_ARG);
    BAD(prompt.text_bytes, 1, EXL2_ERR_ARG);
    BAD(negative_prompt.token_count, 1, EXL2_ERR_ARG);
    BAD(negative_prompt.message_count, 1, EXL2_ERR_ARG);
    BAD(negative_prompt.text_bytes, 1, EXL2_ERR_ARG);
    BAD(stop_string_count, 1, EXL2_ERR_ARG);
    BAD(stop_token_count, 1, EXL2_ERR_ARG);
    BAD(sampler.bias_count, 1, EXL2_ERR_ARG);
    BAD(sampler.ban_count, 1, EXL2_ERR_ARG);
    BAD(sampler.typical, 2, EXL2_ERR_ARG);
    BAD(ban_string_count, 1, EXL2_ERR_ARG);
    BAD(min_tokens, 100000, EXL2_ERR_ARG);
    BAD(sampler.preset, (exl2_preset)-1, EXL2_ERR_ARG);
    BAD(sampler.top_k, -5, EXL2_ERR_ARG);
    BAD(sampler.temperature, -1, EXL2_ERR_ARG);
    BAD(max_tokens, 0xFFFFFFFF, EXL2_ERR_CONTEXT_FULL);
    BAD(prompt.token_count, SIZE_MAX, EXL2_ERR_CONTEXT_FULL);
    BAD(alts_per_token, 0xFFFFFFFF, EXL2_ERR_BUDGET);
    BAD(session.id, 77, EXL2_ERR_STALE);
    d = good;
    d.sampler.bias = biases; /* more than is copied */
    d.sampler.bias_count = 2000;
    check_job(&d, EXL2_ERR_BUDGET, "2,000 biases");
    d = good;
    d.stop_tokens = (const exl2_token[]){ -1 };
    d.stop_token_count = 1;
    check_job(&d, EXL2_ERR_ARG, "a stop token that is none");
    CHECK_INT(exl2_job_start(engine, &good, NULL), EXL2_OK); /* the application need not keep the handle */
    rig_drain(r, 0);
    exl2_event event;
    uint32_t done = 0;
    while (exl2_next_event(engine, &event)) {
        done += event.kind == EXL2_EVENT_DONE;
    }
    CHECK_INT(done, 1);
    CHECK(!exl2_next_event(engine, NULL));
}

/* ---- handles ---- */

/* A handle that names nothing, passed to every function that accepts a handle of its type. */
static void stale_handle(uint64_t id)
{
    exl2_model model = { id };
    exl2_session session = { id }, to = { 77 };
    exl2_job job = { id };
    exl2_lora lora = { id };
    exl2_lora_desc lora_desc = { .model = model, .path = "." };
    exl2_lora_info li;
    exl2_steer steer = { id };
    exl2_steer_desc steer_desc = { .model = model, .path = "x.gguf" };
    exl2_steer_info of_steer;
    exl2_image image = { id };
    exl2_image_desc image_desc = { .model = model, .width = 1, .height = 1, .pixels = "abc" };
    exl2_image_info ii;
    exl2_model_info mi;
    exl2_session_info si;
    exl2_job_info ji;
    exl2_sampler_desc sampler = { 0 };
    exl2_message message = { .role = "user", .text = "x" };
    exl2_token token = 1;
    size_t need;
    REFUSED(exl2_model_get(engine, model, &mi), EXL2_ERR_STALE);
    REFUSED(exl2_model_state(engine, model), EXL2_ERR_STALE);
    REFUSED(exl2_model_close(engine, model), EXL2_ERR_STALE);
    REFUSED(exl2_lora_measure(engine, &lora_desc, &li), EXL2_ERR_STALE);
    REFUSED(exl2_lora_open(engine, &lora_desc, &lora), EXL2_ERR_STALE);
    REFUSED(exl2_lora_load(engine, &lora_desc, &lora), EXL2_ERR_STALE);
    REFUSED(exl2_lora_get(engine, lora, &li), EXL2_ERR_STALE);
    REFUSED(exl2_lora_state(engine, lora), EXL2_ERR_STALE);
    REFUSED(exl2_lora_close(engine, lora), EXL2_ERR_STALE);
    REFUSED(exl2_steer_make(engine, &steer_desc, &steer), EXL2_ERR_STALE);
    steer.id = id;
    REFUSED(exl2_steer_get(engine, steer, &of_steer), EXL2_ERR_STALE);
    REFUSED(exl2_steer_close(engine, steer), EXL2_ERR_STALE);
    REFUSED(exl2_image_make(engine, &image_desc, &image), EXL2_ERR_STALE);
    REFUSED(exl2_image_get(engine, image, &ii), EXL2_ERR_STALE);
    REFUSED(exl2_image_measure(engine, &image_desc, &ii), EXL2_ERR_STALE);
    REFUSED(exl2_image_seen(engine, image, NULL, 0, &need), EXL2_ERR_STALE);
    REFUSED(exl2_image_rows(engine, image, NULL, 0, &need), EXL2_ERR_STALE);
    REFUSED(exl2_image_close(engine, image), EXL2_ERR_STALE);
    REFUSED(exl2_session_pictures(engine, session, NULL, 0, &need), EXL2_ERR_STALE);
    REFUSED(exl2_tokenize(engine, model, "x", 1, 0, NULL, 0, &need), EXL2_ERR_STALE);
    REFUSED(exl2_detokenize(engine, model, &token, 1, 0, NULL, 0, &need), EXL2_ERR_STALE);
    REFUSED(exl2_chat_render(engine, model, &message, 1, NULL, NULL, 0, &need), EXL2_ERR_STALE);
    REFUSED(exl2_chat_tokenize(engine, model, &(exl2_prompt){ .text = "x" }, NULL, NULL, 0, &need), EXL2_ERR_STALE);
    REFUSED(exl2_session_open(engine, model, &to), EXL2_ERR_STALE);
    REFUSED(exl2_sampler_resolve(engine, model, &sampler, &sampler), EXL2_ERR_STALE);
    REFUSED(exl2_session_fork(engine, session, &to), EXL2_ERR_STALE);
    REFUSED(exl2_session_rewind(engine, session, 0), EXL2_ERR_STALE);
    REFUSED(exl2_session_trim(engine, session, 0, 0), EXL2_ERR_STALE);
    REFUSED(exl2_session_save(engine, session, 0, NULL, 0, &need), EXL2_ERR_STALE);
    REFUSED(exl2_session_restore(engine, session, "", 0), EXL2_ERR_STALE);
    REFUSED(exl2_session_get(engine, session, &si), EXL2_ERR_STALE);
    REFUSED(exl2_session_tokens(engine, session, NULL, 0, &need), EXL2_ERR_STALE);
    REFUSED(exl2_session_close(engine, session), EXL2_ERR_STALE);
    REFUSED(exl2_job_cancel(engine, job), EXL2_ERR_STALE);
    REFUSED(exl2_job_get(engine, job, &ji), EXL2_ERR_STALE);
    REFUSED(exl2_job_pause(engine, job, true), EXL2_ERR_STALE);
    REFUSED(exl2_job_priority(engine, job, 1), EXL2_ERR_STALE);
    exl2_job_desc d = { 0 };
    d.model = model;
    d.prompt.tokens = &token;
    d.prompt.token_count = 1;
    REFUSED(exl2_job_start(engine, &d, &job), EXL2_ERR_STALE);
    REFUSED(exl2_generate(engine, &d), EXL2_ERR_STALE);
    CHECK_INT(to.id, 77);
}

/* The internal session of a job is not the application's: its events show the handle, but no call accepts it. */
static exl2_flow borrow(void *user, const exl2_event *ev)
{
    exl2_session_info info;
    (void)user;
    if (ev->kind == EXL2_EVENT_TEXT) {
        REFUSED(exl2_session_get(engine, ev->session, &info), EXL2_ERR_STALE);
        REFUSED(exl2_session_close(engine, ev->session), EXL2_ERR_STALE);
        REFUSED(exl2_step(engine, NULL), EXL2_ERR_STATE);
        REFUSED(exl2_model_load(engine, NULL, NULL), EXL2_ERR_STATE);
        REFUSED(exl2_model_measure(engine, NULL, NULL), EXL2_ERR_STATE);
        CHECK(!exl2_next_event(engine, (exl2_event[1]){ { 0 } }));
    }
    return EXL2_CONTINUE;
}

static void handles(rig *r)
{
    static const exl2_token ids[4] = { 5, 6, 7, 8 };
    exl2_session s;
    for (uint32_t i = 0; i < EXL2__COUNT(wild); i++) {
        stale_handle(wild[i]);
    }
    exl2_job_desc d = rig_job(r, ids, 4, 4, NULL);
    d.on_event = borrow;
    CHECK_INT(exl2_generate(engine, &d), EXL2_OK);
    exl2_model old = r->model;
    CHECK_INT(exl2_model_state(engine, old), EXL2_OK);
    CHECK_INT(exl2_session_open(engine, old, &s), EXL2_OK);
    CHECK_INT(exl2_model_close(engine, old), EXL2_OK); /* closes the session, too */
    exl2_session_info info;
    REFUSED(exl2_session_get(engine, s, &info), EXL2_ERR_STALE);
    stale_handle(old.id);
    exl2_model_desc again = { 0 };
    again.path = rig_golden("exl2-4bit");
    CHECK_INT(exl2_model_load(engine, &again, &r->model), EXL2_OK);
    CHECK(r->model.id != old.id); /* the same slot, another generation */
    stale_handle(old.id);
}

/* A slot is reused until its 16 bits of generation would repeat. The first handles are still stale, of sessions and of
   jobs, and a cancel reaches no other job. */
static void old_handles(const rig *r)
{
    static const exl2_token ids[4] = { 5, 6, 7, 8 };
    static rig_said said;
    exl2_session first = { 0 }, s = { 0 };
    exl2_job old = { 0 }, job = { 0 };
    exl2_session_info info;
    exl2_job_desc d = rig_job(r, ids, 4, 4, &said);
    CHECK_INT(exl2_session_open(engine, r->model, &first), EXL2_OK);
    CHECK_INT(exl2_session_close(engine, first), EXL2_OK);
    CHECK_INT(exl2_job_start(engine, &d, &old), EXL2_OK);
    rig_drain(r, 0);
    uint32_t found = 0;
    for (uint32_t i = 0; i < 1u << 17; i++) {
        exl2_session_open(engine, r->model, &s);
        found += exl2_session_get(engine, first, &info) == EXL2_OK;
        exl2_session_close(engine, s);
    }
    CHECK_INT(found, 0);
    d.grammar.id = 77; /* the start fails after a slot was reserved */
    for (uint32_t i = 0; i < (1u << 16) - 1; i++) {
        CHECK_INT(exl2_job_start(engine, &d, &job), EXL2_ERR_STALE);
    }
    d.grammar.id = 0;
    CHECK_INT(exl2_job_start(engine, &d, &job), EXL2_OK);
    CHECK(job.id != old.id);
    REFUSED(exl2_job_cancel(engine, old), EXL2_ERR_STALE);
    rig_drain(r, 0);
    CHECK_INT(said.done_events, 2);
    CHECK_INT(said.result, EXL2_OK);
}

/* A handle that was never set has another message than one whose object has ended. */
static void unset_handles(const rig *r)
{
    static const exl2_token ids[4] = { 5, 6, 7, 8 };
    exl2_error error;
    exl2_session_info info;
    exl2_job_desc d = rig_job(r, ids, 4, 4, NULL);
    d.model.id = 0;
    REFUSED(exl2_job_start(engine, &d, NULL), EXL2_ERR_STALE);
    exl2_last_error(engine, &error);
    CHECK(strstr(error.text, "neither model nor session") && !strstr(error.text, "closed"));
    exl2_session none = { 0 }, ended;
    REFUSED(exl2_session_get(engine, none, &info), EXL2_ERR_STALE);
    exl2_last_error(engine, &error);
    CHECK(strstr(error.text, "is 0") && !strstr(error.text, "closed"));
    CHECK_INT(exl2_session_open(engine, r->model, &ended), EXL2_OK);
    CHECK_INT(exl2_session_close(engine, ended), EXL2_OK);
    REFUSED(exl2_session_get(engine, ended, &info), EXL2_ERR_STALE);
    exl2_last_error(engine, &error);
    char name[64];
    snprintf(name, sizeof name, "session handle %u.%u ", (unsigned)ended.id, (unsigned)(ended.id >> 32));
    CHECK(strstr(error.text, name) && strstr(error.text, "closed"));
}

int main(void)
{
    no_engine();
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-4bit");
    rig r = rig_open(NULL, &m);
    engine = r.engine;
    opening();
    settled();
    canaries_of_opening();
    canaries_of_calls(&r);
    models(&r);
    texts(&r);
    sessions_and_sampling(&r);
    jobs(&r);
    old_handles(&r);
    unset_handles(&r);
    handles(&r);
    rig_close(&r);
    return check_done();
}
