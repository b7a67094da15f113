/* text_model.h: a tiny model that generates the text that a test plans. Sampled with a fixed seed, the model of the
   goldens gives the same ids each time; its tokenizer is made afterwards, so that these ids have the texts of the plan.
   The folder is the golden one behind a files hook that adds tokenizer.json and tokenizer_config.json from memory.
   Include it after rig.h. */
#ifndef TEXT_MODEL_H
#define TEXT_MODEL_H

#include "rig.h"

#include "private/pieces.h"

#define TEXT_VOCAB 320
#define TEXT_PLAN_MAX 32
#define TEXT_CHAT_CONFIG                                                        \
    "{'bos_token':'<s>','eos_token':'</s>','add_bos_token':true,"               \
    "'chat_template':'{{ bos_token }}{% for m in messages %}"                   \
    "<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"       \
    "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}'}"

/* The ids of the markers are not in the plan. BOS and EOS are those of config.json. */
static const char *const text_markers[] = { "<s>", "</s>", "<|im_start|>", "<|im_end|>" };

typedef struct text_model {
    char tokenizer[65536], config[8192]; /* "" = the file is missing */
    char config_json[4096];              /* "" = the disk's */
    exl2_token planned[TEXT_PLAN_MAX];   /* ids that the planned job gives, all different */
    exl2_token marker[4];
    exl2_token byte_ids[256];
    uint64_t seed;
} text_model;

/* ---- the files hook ---- */

typedef struct text_file {
    void *inner; /* the disk's */
    const char *text;
} text_file;

static void *text_open(void *user, const char *path, uint64_t *bytes)
{
    const text_model *m = (const text_model *)user;
    const char *base = strrchr(path, '/');
    const char *text = !base ? "" : strcmp(base, "/tokenizer.json") == 0 ? m->tokenizer
                     : strcmp(base, "/tokenizer_config.json") == 0 ? m->config
                     : strcmp(base, "/config.json") == 0 ? m->config_json : "";
    text_file file = { NULL, text };
    if (*text) {
        *bytes = strlen(text);
    } else if (!(file.inner = exl2__platform_files().open(NULL, path, bytes))) {
        return NULL;
    }
    text_file *copy = (text_file *)malloc(sizeof *copy);
    *copy = file;
    return copy;
}

static bool text_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    (void)user;
    return exl2__platform_files().list(NULL, dir, index, name, cap);
}

static int64_t text_read(void *user, void *handle, uint64_t offset, void *dst, size_t bytes)
{
    const text_file *file = (const text_file *)handle;
    (void)user;
    if (file->inner) {
        return exl2__platform_files().read(NULL, file->inner, offset, dst, bytes);
    }
    memcpy(dst, file->text + offset, bytes);
    return (int64_t)bytes;
}

static void text_close(void *user, void *handle)
{
    text_file *file = (text_file *)handle;
    (void)user;
    if (file->inner) {
        exl2__platform_files().close(NULL, file->inner);
    }
    free(file);
}

static inline exl2_engine_desc text_engine(text_model *m)
{
    exl2_engine_desc d = { 0 };
    d.backend = RIG_BACKEND;
    d.files = (exl2_files){ text_open, text_list, text_read, text_close, m };
    return d;
}

static inline exl2_model_desc text_folder(void)
{
    exl2_model_desc d = { 0 };
    d.path = rig_golden("exl2-mixed");
    d.context_max = 512; /* four times the context that the model was made for, because there is one token per byte */
    return d;
}

static inline rig text_load(text_model *m)
{
    exl2_engine_desc engine = text_engine(m);
    exl2_model_desc model = text_folder();
    return rig_open(&engine, &model);
}

/* No job finds K and V of another one, so a test says what each reuses without looking at those before it. */
static inline rig text_load_apart(text_model *m)
{
    exl2_engine_desc engine = text_engine(m);
    exl2_model_desc model = text_folder();
    model.cache.no_reuse = true;
    return rig_open(&engine, &model);
}

/* The call failed with the code, and the message contains `piece`. */
static inline void text_check_refused(const rig *r, exl2_result got, exl2_result wanted, const char *piece)
{
    exl2_error error;
    exl2_last_error(r->engine, &error);
    CHECK_INT(got, wanted);
    CHECK_INT(error.code, wanted);
    if (!CHECK(strstr(error.text, piece) != NULL)) {
        printf("  the message is \"%s\", it should hold \"%s\"\n", error.text, piece);
    }
}

/* Runs the job, and keeps what it says in *said, as a text. */
static inline exl2_result text_generate(const rig *r, exl2_job_desc *d, rig_said *said)
{
    memset(said, 0, sizeof *said);
    d->user = said;
    exl2_result result = exl2_generate(r->engine, d);
    said->text[said->bytes] = 0;
    return result;
}

#define TEXT_LETTERS 29u

/* A greedy job of a session whose text has only letters, '"', '}' and spaces. bias: [TEXT_LETTERS], which must stay. */
static inline exl2_job_desc text_letters_job(const rig *r, const text_model *m, exl2_session s, uint32_t max_tokens,
                                             exl2_bias *bias, rig_said *said)
{
    exl2_job_desc d = rig_job(r, NULL, 0, max_tokens, said);
    for (uint32_t i = 0; i < TEXT_LETTERS; i++) {
        bias[i] = (exl2_bias){ m->byte_ids[i < 26 ? 'a' + (int)i : (int)"\"} "[i - 26]], 1000 };
    }
    d.session = s;
    d.sampler.bias = bias;
    d.sampler.bias_count = TEXT_LETTERS;
    return d;
}

/* ---- the plan ---- */

static const exl2_token text_prompt[] = { 40, 41, 42, 43, 44, 45 };

/* The job whose ids are planned: sampled without filters. */
static inline exl2_job_desc text_job(const rig *r, const text_model *m, uint32_t max_tokens, rig_said *said)
{
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), max_tokens, said);
    d.sampler.preset = EXL2_PRESET_NEUTRAL;
    d.sampler.seed = m->seed;
    return d;
}

static inline bool text_all_different(const rig_said *said, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (said->ids[i] == said->ids[k]) {
                return false;
            }
        }
        if (said->ids[i] <= 2) { /* BOS, EOS, padding */
            return false;
        }
    }
    return said->count >= count;
}

/* Finds a seed whose first `count` ids are all different, and keeps them. */
static inline void text_find_plan(text_model *m, uint32_t count)
{
    static rig_said said;
    rig r = text_load(m);
    for (m->seed = 1; m->seed < 5000; m->seed++) {
        memset(&said, 0, sizeof said);
        exl2_job_desc d = text_job(&r, m, count, &said);
        rig_run(&r, &d);
        if (text_all_different(&said, count)) {
            memcpy(m->planned, said.ids, count * sizeof *m->planned);
            rig_close(&r);
            return;
        }
    }
    printf("no seed gives %u different ids\n", count);
    exit(1);
}

/* ---- tokenizer.json ---- */

static inline size_t text_put_string(char *out, size_t cap, const char *text)
{
    size_t used = 0;
    for (; *text; text++) { /* in GPT-2's byte map, as \u escapes */
        uint32_t code = 0;
        while (exl2__pieces_byte(code) != (uint8_t)*text) {
            code++;
        }
        used += (size_t)snprintf(out + used, cap - used, "\\u%04x", code);
    }
    return used;
}

/* Reserves the lowest free id from *next on. */
static inline exl2_token text_free_id(bool *taken, uint32_t *next)
{
    while (*next < TEXT_VOCAB && taken[*next]) {
        (*next)++;
    }
    CHECK(*next < TEXT_VOCAB);
    taken[*next] = true;
    return (exl2_token)*next;
}

/* Writes a tokenizer in which planned id i has the text plan[i] ("@" and a number: that marker), every byte has a
   token, and there are no merges. config: tokenizer_config.json with ' in place of ". */
static inline void text_write(text_model *m, const char *const *plan, uint32_t count, const char *config)
{
    bool taken[TEXT_VOCAB] = { true, true, true }, has_byte[256] = { false };
    uint32_t next = 3;
    size_t used = 0, cap = sizeof m->tokenizer;
    exl2_token markers[4] = { 1, 2, -1, -1 };
    char *out = m->tokenizer;
    for (uint32_t i = 0; i < count; i++) {
        taken[m->planned[i]] = true;
        if (plan[i][0] == '@') {
            markers[plan[i][1] - '0'] = m->planned[i];
        }
    }
    used += (size_t)snprintf(out, cap,
                             "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                             "\"decoder\":{\"type\":\"ByteLevel\"},"
                             "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"\\u0100\":0");
    has_byte[0] = true;
    m->byte_ids[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (plan[i][0] != '@') {
            used += (size_t)snprintf(out + used, cap - used, ",\"");
            used += text_put_string(out + used, cap - used, plan[i]);
            used += (size_t)snprintf(out + used, cap - used, "\":%d", m->planned[i]);
            if (!plan[i][1]) {
                has_byte[(uint8_t)plan[i][0]] = true;
                m->byte_ids[(uint8_t)plan[i][0]] = m->planned[i];
            }
        }
    }
    for (uint32_t byte = 1; byte < 256; byte++) {
        if (!has_byte[byte]) {
            char text[2] = { (char)(uint8_t)byte, 0 };
            m->byte_ids[byte] = text_free_id(taken, &next);
            used += (size_t)snprintf(out + used, cap - used, ",\"");
            used += text_put_string(out + used, cap - used, text);
            used += (size_t)snprintf(out + used, cap - used, "\":%d", m->byte_ids[byte]);
        }
    }
    used += (size_t)snprintf(out + used, cap - used, "}},\"added_tokens\":[");
    for (uint32_t i = 0; i < 4; i++) {
        m->marker[i] = markers[i] >= 0 ? markers[i] : text_free_id(taken, &next);
        used += (size_t)snprintf(out + used, cap - used, "%s{\"id\":%d,\"content\":\"%s\",\"special\":true}",
                                 i ? "," : "", m->marker[i], text_markers[i]);
    }
    used += (size_t)snprintf(out + used, cap - used, "]}");
    CHECK(used < cap);
    snprintf(m->config, sizeof m->config, "%s", config);
    for (char *p = m->config; *p; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
}

#endif
