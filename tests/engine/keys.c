/* keys.c: a saved session goes to an engine that computes otherwise: other RoPE, experts, cache format, CPU path,
   weights, or an earlier release. Its history is kept, and K and V are used only where they are the same as if they
   were computed again. The judge is a session of the same engine that computes the whole history itself: it says the
   same words with the same log-probabilities. */
#include "rig.h"

#include "private/hash.h"

#define NEW 12u

static exl2_token prompt[100];
static rig_said said, judge;
static uint8_t bytes[1u << 20];

/* ---- a folder whose config.json and one byte of whose tensors may be others ---- */

static struct folder {
    const char *config; /* in place of config.json; NULL: as it is */
    uint64_t at;        /* this byte of output.safetensors is changed; 0: none */
    uint8_t change;     /* bits that are flipped */
    uint32_t kv, earlier; /* log lines */
} folder;

typedef struct folder_file {
    void *inner;
    const char *text;
    bool tensors;
} folder_file;

static void *folder_open(void *user, const char *path, uint64_t *size)
{
    struct folder *f = (struct folder *)user;
    folder_file file = { NULL, NULL, strstr(path, ".safetensors") != NULL };
    if (f->config && strstr(path, "/config.json")) {
        file.text = f->config;
        *size = strlen(f->config);
    } else if (!(file.inner = exl2__platform_files().open(NULL, path, size))) {
        return NULL;
    }
    folder_file *copy = (folder_file *)malloc(sizeof *copy);
    *copy = file;
    return copy;
}

static bool folder_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    (void)user;
    return exl2__platform_files().list(NULL, dir, index, name, cap);
}

static int64_t folder_read(void *user, void *handle, uint64_t offset, void *dst, size_t count)
{
    const struct folder *f = (const struct folder *)user;
    const folder_file *file = (const folder_file *)handle;
    if (file->text) {
        memcpy(dst, file->text + offset, count);
        return (int64_t)count;
    }
    int64_t got = exl2__platform_files().read(NULL, file->inner, offset, dst, count);
    if (file->tensors && f->at && f->at >= offset && f->at < offset + count) {
        ((uint8_t *)dst)[f->at - offset] ^= f->change;
    }
    return got;
}

static void folder_close(void *user, void *handle)
{
    folder_file *file = (folder_file *)handle;
    (void)user;
    if (file->inner) {
        exl2__platform_files().close(NULL, file->inner);
    }
    free(file);
}

static void on_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    struct folder *f = (struct folder *)user;
    (void)level;
    (void)code;
    CHECK(!strchr(text, '\n'));
    f->kv += id == EXL2_LOG_ID_SNAPSHOT_KV;
    f->earlier += id == EXL2_LOG_ID_SNAPSHOT_EARLIER;
}

static exl2_engine_desc engine_desc(void)
{
    exl2_engine_desc d = { .backend = RIG_BACKEND };
    d.files = (exl2_files){ folder_open, folder_list, folder_read, folder_close, &folder };
    d.log = (exl2_logger){ .line = on_line, .user = &folder };
    return d;
}

/* ---- settings ---- */

typedef struct setting {
    exl2_model_desc model;
    const char *config;
    exl2_cpu_path path;
    uint32_t same; /* settings with the same number compute the same K and V; 0: it is not checked */
} setting;

static rig open_setting(const char *path, const setting *s)
{
    exl2_engine_desc e = engine_desc();
    exl2_model_desc m = s->model;
    folder = (struct folder){ .config = s->config };
    e.cpu_path_max = s->path;
    m.path = path;
    m.cache.tokens = 1024;
    m.context_max = m.context_max ? m.context_max : 128;
    return rig_open(&e, &m);
}

static exl2_session new_session(const rig *r)
{
    exl2_session s = { 0 };
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    return s;
}

static exl2_session_info info_of(const rig *r, exl2_session s)
{
    exl2_session_info info = { 0 };
    CHECK_INT(exl2_session_get(r->engine, s, &info), EXL2_OK);
    return info;
}

/* Saves a session with K and V after a prompt and some new tokens. */
static size_t save(const rig *r)
{
    exl2_session s = new_session(r);
    size_t need = 0;
    exl2_job_desc d = rig_job(r, prompt, 90, 6, &said);
    d.session = s;
    memset(&said, 0, sizeof said);
    rig_run(r, &d);
    CHECK_INT(exl2_session_save(r->engine, s, EXL2_SAVE_KV, bytes, sizeof bytes, &need), EXL2_OK);
    exl2_session_close(r->engine, s);
    return need;
}

/* The session says what one says that computes all of its history here. */
static void check_words(const rig *r, exl2_session s)
{
    static exl2_token history[128];
    size_t count = 0;
    exl2_session other = new_session(r);
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 128, &count), EXL2_OK);
    exl2_job_desc d = rig_job(r, NULL, 0, NEW, &said);
    d.model.id = 0;
    d.session = s;
    memset(&said, 0, sizeof said);
    memset(&judge, 0, sizeof judge);
    rig_run(r, &d);
    d = rig_job(r, history, (uint32_t)count, NEW, &judge);
    d.session = other;
    rig_run(r, &d);
    CHECK_INT(judge.stats.reused_tokens, 0);
    CHECK(said.count == judge.count && judge.count > 0);
    CHECK(memcmp(said.ids, judge.ids, judge.count * sizeof *judge.ids) == 0);
    CHECK(memcmp(said.logprobs, judge.logprobs, judge.count * sizeof *judge.logprobs) == 0);
    exl2_session_close(r->engine, other);
}

static void check_pair(const char *path, const setting *from, const setting *to)
{
    rig a = open_setting(path, from);
    size_t count = save(&a);
    rig_close(&a);
    rig b = open_setting(path, to);
    exl2_session s = new_session(&b);
    if (from->config != to->config) { /* another config.json is another model */
        CHECK_INT(exl2_session_restore(b.engine, s, bytes, count), EXL2_ERR_ARG);
        rig_close(&b);
        return;
    }
    CHECK_INT(exl2_session_restore(b.engine, s, bytes, count), EXL2_OK);
    exl2_session_info info = info_of(&b, s);
    CHECK_INT(info.tokens, 96);
    CHECK(folder.kv == (info.tokens_cached == 0) && folder.earlier == 0);
    if (from->same && to->same) {
        CHECK_INT(folder.kv, from->same != to->same);
    }
    check_words(&b, s);
    rig_close(&b);
}

static void check_settings(const char *name, const setting *settings, uint32_t count)
{
    char path[1024];
    snprintf(path, sizeof path, "%s", rig_golden(name));
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < count; k++) {
            check_pair(path, &settings[i], &settings[k]);
        }
    }
}

#define LLAMA(scaling)                                                                                         \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":320,\"hidden_size\":128,\"intermediate_size\":160," \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,"                \
    "\"hidden_act\":\"silu\",\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"      \
    "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2,\"rope_scaling\":" scaling "}"

static void other_settings(void)
{
    static const setting plain[] = {
        { .same = 1 },
        { .same = 1, .model = { .context_max = 512, .prefill_chunk = 32, .batch_max = 3 } }, /* a patch raises it */
        { .same = 2, .model = { .rope_scale = 2 } },
        { .same = 3, .model = { .rope_alpha = 2 } },
        { .same = 4, .model = { .rope_alpha = 2, .rope_scale = 2 } },
        { .same = 5, .model = { .yarn_factor = 4 } },
        { .same = 6, .model = { .cache.format = EXL2_KV_Q8 } },
    };
    static const char dynamic[] = LLAMA("{\"type\":\"dynamic\",\"factor\":4.0}");
    static const char yarn[] = LLAMA("{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":128}");
    static const char stretched[] = LLAMA("{\"type\":\"linear\",\"factor\":2.0}");
    static const setting by_context[] = {
        { .same = 1, .config = dynamic },
        { .same = 2, .config = dynamic, .model = { .context_max = 256 } },
        { .same = 3, .config = dynamic, .model = { .context_max = 512 } },
    };
    static const setting by_yarn[] = {
        { .config = yarn },
        { .config = yarn, .model = { .context_max = 512 } },
        { .same = 2, .config = stretched },
    };
    static const setting longrope[] = { /* the original context is 16 */
        { .same = 1 },
        { .same = 1, .model = { .context_max = 110 } },
        { .same = 2, .model = { .rope_alpha = 4 } },
    };
    static const setting experts[] = {
        { .same = 1 },
        { .same = 1, .model = { .experts_active = 2 } },
        { .same = 2, .model = { .experts_active = 3 } },
        { .same = 3, .model = { .experts_active = 1 } },
    };
    check_settings("exl2-4bit", plain, EXL2__COUNT(plain));
    check_settings("exl2-4bit", by_context, EXL2__COUNT(by_context));
    check_settings("exl2-4bit", by_yarn, EXL2__COUNT(by_yarn));
    check_settings("phi3-longrope", longrope, EXL2__COUNT(longrope));
    check_settings("exl2-qwen3-moe", experts, EXL2__COUNT(experts));
}

/* Plain C has other bits than SIMD, whose paths are one family. */
static void other_paths(void)
{
    exl2_engine_info info = { 0 };
    rig r = open_setting(rig_golden("exl2-4bit"), &(setting){ 0 });
    exl2_engine_get(r.engine, &info);
    rig_close(&r);
    bool simd = info.cpu_path != EXL2_CPU_C && info.backend == EXL2_BACKEND_CPU;
    bool wide = info.cpu_path == EXL2_CPU_AVX512;
    setting paths[] = { { .same = simd ? 2 : 1 },
                        { .same = info.backend == EXL2_BACKEND_CPU ? 1 : 2, .path = EXL2_CPU_C },
                        { .same = 2, .path = EXL2_CPU_AVX2 } };
    paths[1].same = info.backend == EXL2_BACKEND_CPU ? 1 : paths[0].same;
    check_settings("exl2-4bit", paths, wide ? 3 : 2);
}

/* ---- other weights ---- */

/* The data range of each tensor in the header of a file. */
static uint32_t read_ranges(const char *file, uint64_t (*ranges)[2], uint32_t cap)
{
    size_t size;
    char *text = check_read(file, &size);
    uint64_t header = exl2__load64(text);
    uint32_t count = 0;
    text[8 + header] = 0; /* the first byte of the data is not needed */
    for (char *at = strstr(text + 8, "data_offsets"); at && count < cap; at = strstr(at + 1, "data_offsets")) {
        unsigned long long begin, end;
        if (sscanf(strchr(at, '['), "[%llu,%llu]", &begin, &end) == 2 && end > begin) {
            ranges[count][0] = 8 + header + begin;
            ranges[count++][1] = 8 + header + end;
        }
    }
    free(text);
    return count;
}

static bool is_zero(const uint8_t *id)
{
    static const uint8_t none[16];
    return memcmp(id, none, 16) == 0;
}

/* One bit of a tensor is another one: the model's id is another one, and it rejects what the first model saved. */
static void other_weights(const char *name)
{
    static uint64_t ranges[400][2];
    char path[1024], file[sizeof path + 32];
    uint32_t changed = 0, deep = 0;
    snprintf(path, sizeof path, "%s", rig_golden(name));
    snprintf(file, sizeof file, "%s/output.safetensors", path);
    FILE *there = fopen(file, "rb");
    if (!there) {
        snprintf(file, sizeof file, "%s/model.safetensors", path);
    } else {
        fclose(there);
    }
    uint32_t count = read_ranges(file, ranges, 400);
    exl2_model_info info = { 0 }, again = { 0 };
    rig r = open_setting(path, &(setting){ 0 });
    exl2_model_desc m = { .path = path, .context_max = 128 };
    CHECK_INT(exl2_model_measure(r.engine, &m, &info), EXL2_OK);
    CHECK(is_zero(info.content_id)); /* it reads no weights */
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    CHECK(!is_zero(info.content_id));
    size_t saved = save(&r);
    exl2_session s;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t size = ranges[i][1] - ranges[i][0], at = size - 1 - size / 5;
        exl2_model other = { 0 };
        folder.at = ranges[i][0] + (at & ~(uint64_t)1); /* the lower byte of a half */
        folder.change = 1;
        if (exl2_model_load(r.engine, &m, &other) < 0) { /* such as a permutation that is none any more */
            continue;
        }
        CHECK_INT(exl2_model_get(r.engine, other, &again), EXL2_OK);
        if (!CHECK(memcmp(info.content_id, again.content_id, 16) != 0)) {
            printf("  %s: byte %llu of the file does not change the id\n", name, (unsigned long long)folder.at);
        }
        CHECK_INT(exl2_session_open(r.engine, other, &s), EXL2_OK);
        CHECK_INT(exl2_session_restore(r.engine, s, bytes, saved), EXL2_ERR_ARG);
        CHECK_INT(exl2_model_close(r.engine, other), EXL2_OK);
        changed++;
        deep += at >= 4096;
    }
    folder.at = folder.kv = 0;
    exl2_model same = { 0 }; /* in slices of a frame */
    CHECK_INT(exl2_model_open(r.engine, &m, &same), EXL2_OK);
    while (exl2_model_state(r.engine, same) == EXL2_PENDING) {
        exl2_step(r.engine, &(exl2_step_desc){ .cpu_us = 1 });
    }
    CHECK_INT(exl2_model_get(r.engine, same, &again), EXL2_OK);
    CHECK(memcmp(info.content_id, again.content_id, 16) == 0);
    CHECK_INT(exl2_session_open(r.engine, same, &s), EXL2_OK);
    CHECK_INT(exl2_session_restore(r.engine, s, bytes, saved), EXL2_OK);
    CHECK(folder.kv == 0 && info_of(&r, s).tokens_cached + 1 >= info_of(&r, s).tokens);
    printf("%s: %u of %u tensors changed, %u of them behind 4 KiB\n", name, (unsigned)changed, (unsigned)count,
           (unsigned)deep);
    CHECK(changed >= 10 && deep >= 4);
    rig_close(&r);
}

/* ---- saves of release 0.2.0 ---- */

/* tests/golden/snapshot/0.2.0.bin: the history of 24 + 8 tokens, and the job. Its words go on as those of that release;
   a snapshot with K and V that names its model in this way is computed again. */
static void earlier_release(void)
{
    static const exl2_token wanted[] = { 24,  239, 239, 92, 281, 239, 66,  248, 281, 239, 66,
                                         24,  66,  24,  66, 24,  184, 281, 201, 246, 277, 248 };
    char path[1024];
    size_t size;
    snprintf(path, sizeof path, "%s/snapshot/0.2.0.bin", EXL2_GOLDEN_DIR);
    char *golden = check_read(path, &size);
    rig r = open_setting(rig_golden("exl2-4bit"), &(setting){ 0 });
    exl2_session s = new_session(&r);
    CHECK_INT(exl2_session_restore(r.engine, s, golden, size), EXL2_OK);
    CHECK(folder.earlier == 1 && folder.kv == 0);
    exl2_session_info info = info_of(&r, s);
    CHECK(info.tokens == 32 && info.tokens_cached == 0 && info.resumes);
    exl2_job_desc d = { .session = s, .resume = true, .sampler.preset = EXL2_PRESET_NEUTRAL, .on_event = rig_hear,
                        .user = &said };
    memset(&said, 0, sizeof said);
    rig_run(&r, &d);
    CHECK(said.count == EXL2__COUNT(wanted) && memcmp(said.ids, wanted, sizeof wanted) == 0);

    size_t count = save(&r);
    memcpy(bytes + 16, golden + 16, 16);
    exl2__store64(bytes + count - 8, exl2__hash(bytes, count - 8));
    s = new_session(&r);
    CHECK_INT(exl2_session_restore(r.engine, s, bytes, count), EXL2_OK);
    CHECK(folder.earlier == 2 && folder.kv == 0);
    CHECK(info_of(&r, s).tokens == 96 && info_of(&r, s).tokens_cached == 0);
    rig_close(&r);
    free(golden);
}

int main(void)
{
    for (uint32_t i = 0; i < 100; i++) {
        prompt[i] = (exl2_token)(20 + i * 13 % 250);
    }
    other_settings();
    other_paths();
    other_weights("exl2-4bit");
    other_weights("exl2-qwen3-moe");
    other_weights("gptq-phi3");
    other_weights("awq");
    other_weights("llama3-rope");
    other_weights("starcoder2");
    earlier_release();
    return check_done();
}
