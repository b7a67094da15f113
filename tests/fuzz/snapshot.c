/* snapshot.c: fuzz target: any bytes as a saved session. What is accepted can be saved again and gone on with; what is
   rejected leaves the session as it was. What the engine has saved is accepted and goes on, unless a grammar is in it,
   which may leave no token.
   The first byte says what the rest is. Without bit 4, a snapshot: bit 1 = content_id becomes the model's, bit 2 =
   the sum is mended. With bit 4, a job that is saved in the middle of its text, and what is changed in that snapshot
   before its sum is mended:
       bytes  what
       1      features of the job
       1      tokens that were heard before the save; bit 7: with K and V
       1      features that differ in the job which goes on
       4 n    edits: kind << 14, and a word's index from the job part on, which may be negative; a value
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -DEXL2_NO_CUDA -DTEST_WHOLE -I.
   -Ibuild/tests tests/fuzz/snapshot.c demo/common/exl2.c -lm. The suite runs it with run_seeds.c. */
#ifndef EXL2_GOLDEN_DIR
#define EXL2_GOLDEN_DIR "tests/golden"
#endif
#include "../engine/text_model.h"

#include "private/hash.h"
#include "private/unicode.h"

enum { STOPS = 1, BANS = 2, MIROSTAT = 4, HEALS = 8, ALTS = 16, SCHEMA = 32, REGEX = 64, CUTS = 128 };

#define MENDS_MODEL 1
#define MENDS_SUM 2
#define IS_JOB 4
#define EDIT_BYTES 4
#define NEW 60u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define require(holds) require_at(holds, __LINE__)

static void require_at(bool holds, int line)
{
    if (!holds) {
        fprintf(stderr, "snapshot.c:%d: does not hold\n", line);
        abort();
    }
}

static exl2_engine *engine;
static exl2_model model;
static exl2_model_info info;
static exl2_session session, source; /* source: of the jobs that are saved */
static exl2_grammar grammars[2];     /* SCHEMA, REGEX */
static text_model text;
static const exl2_token prompt[3] = { 5, 6, 7 };

static void open_once(void)
{
    static const char *const plan[] = { "fox is", " is", "ab", "abc", "\xC3", "\xA9", "a", "an", "and", "ant", " an",
                                        " a", "q", "qu", "que", " i", "zz", "z", "the", "he", "e\xC3", "\xA9t" };
    static const exl2_grammar_desc languages[2] = {
        { .kind = EXL2_GRAMMAR_JSON_SCHEMA,
          .source = "{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"properties\":{\"a\":{\"type\":\"string\","
                    "\"maxLength\":9},\"b\":{\"type\":\"integer\"}}}" },
        { .kind = EXL2_GRAMMAR_REGEX, .source = "([a-f]+ is ){3,}|(\xC3\xA9|q)*z" },
    };
    for (uint32_t i = 0; i < EXL2__COUNT(plan); i++) {
        text.planned[i] = 100 + (exl2_token)i;
    }
    text_write(&text, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    exl2_engine_desc e = text_engine(&text);
    exl2_model_desc m = text_folder();
    e.max_sessions = e.max_jobs = 2;
    m.cache.tokens = 1024;
    require(exl2_open(&e, &engine) == EXL2_OK && exl2_model_load(engine, &m, &model) == EXL2_OK);
    require(exl2_model_get(engine, model, &info) == EXL2_OK);
    require(exl2_session_open(engine, model, &session) == EXL2_OK);
    require(exl2_session_open(engine, model, &source) == EXL2_OK);
    for (uint32_t i = 0; i < 2; i++) {
        exl2_grammar_desc g = languages[i];
        g.model = model;
        require(exl2_grammar_make(engine, &g, &grammars[i]) == EXL2_OK);
    }
}

/* ---- jobs ---- */

typedef struct listener {
    uint32_t tokens, stop_at; /* stop_at 0: never */
    uint32_t done_events;
    uint32_t sum; /* every byte of an event is read */
} listener;

static exl2_flow hear(void *user, const exl2_event *event)
{
    listener *l = (listener *)user;
    require(event->kind != EXL2_EVENT_TEXT || exl2__unicode_valid(event->text, event->bytes));
    for (size_t i = 0; event->kind == EXL2_EVENT_TEXT && i <= event->bytes; i++) {
        l->sum += (uint8_t)event->text[i];
    }
    for (uint32_t i = 0; event->kind == EXL2_EVENT_TEXT && i < event->token_count; i++) {
        require(event->tokens[i].token >= 0 && event->tokens[i].token < (exl2_token)TEXT_VOCAB);
        for (uint32_t k = 0; k < event->alts_per_token; k++) {
            l->sum += (uint32_t)event->alts[i * event->alts_per_token + k].token;
        }
    }
    l->tokens += event->kind == EXL2_EVENT_TEXT ? event->token_count : 0;
    l->done_events += event->kind == EXL2_EVENT_DONE;
    return event->kind == EXL2_EVENT_TEXT && l->stop_at && l->tokens >= l->stop_at ? EXL2_STOP_JOB : EXL2_CONTINUE;
}

/* A job without prompt. */
static exl2_job_desc job_of(exl2_session s, uint32_t features, listener *l)
{
    static const char *const stops[] = { "abcdefgh", "fox is not" }, *const bans[] = { "ab", "q", "tt", " i", "zz" };
    static exl2_bias bias[12];
    *l = (listener){ 0 };
    exl2_job_desc d = { .session = s, .max_tokens = NEW, .on_event = hear, .user = l };
    d.sampler.preset = EXL2_PRESET_NEUTRAL;
    d.sampler.seed = 40 + features;
    if (features & STOPS) {
        d.stop_strings = stops;
        d.stop_string_count = EXL2__COUNT(stops);
    }
    if (features & BANS) {
        d.ban_strings = bans;
        d.ban_string_count = EXL2__COUNT(bans);
    }
    if ((features & MIROSTAT) && (features & BANS)) { /* adaptive-p has its state in the same place */
        d.sampler.adaptive_target = 0.4f;
    } else if (features & MIROSTAT) {
        d.sampler.mirostat_tau = 4;
        d.sampler.mirostat_eta = 0.3f;
    }
    if (features & CUTS) { /* first bytes of characters, most of which are not completed */
        for (uint32_t i = 0; i < 12; i++) {
            bias[i] = (exl2_bias){ text.byte_ids[0xC3 + i], 3 };
        }
        d.sampler.bias = bias;
        d.sampler.bias_count = 12;
    }
    d.heal_prompt = features & HEALS;
    d.alts_per_token = features & ALTS ? EXL2_ALTS_MAX : 0;
    d.grammar = features & SCHEMA ? grammars[0] : features & REGEX ? grammars[1] : d.grammar;
    return d;
}

/* The snapshot of a job in the middle of its text; that of the last call is kept. Returns its size, or 0. */
static size_t snapshot_of(uint32_t features, uint32_t heard, uint32_t flags, const uint8_t **out)
{
    static uint8_t bytes[1u << 18];
    static uint32_t last[3] = { UINT32_MAX };
    static size_t count;
    const uint32_t wanted[3] = { features, heard, flags };
    *out = bytes;
    if (memcmp(wanted, last, sizeof last) == 0) {
        return count;
    }
    memcpy(last, wanted, sizeof last);
    exl2_token ids[12];
    listener l;
    exl2_session_info s;
    exl2_job_desc d = job_of(source, features, &l);
    for (uint32_t i = 0; i < EXL2__COUNT(ids); i++) {
        ids[i] = text.byte_ids[(uint8_t)"a story of"[i % 10]];
    }
    ids[11] = text.byte_ids['a'];
    d.prompt.tokens = ids;
    d.prompt.token_count = EXL2__COUNT(ids);
    count = 0;
    require(exl2_session_rewind(engine, source, 0) == EXL2_OK);
    if (exl2_job_start(engine, &d, NULL) < 0) {
        return 0;
    }
    while (l.tokens < heard && !l.done_events) {
        exl2_step(engine, NULL);
    }
    require(exl2_session_save(engine, source, flags, bytes, sizeof bytes, &count) == EXL2_OK);
    require(exl2_session_get(engine, source, &s) == EXL2_OK);
    if (!l.done_events) {
        require(exl2_job_cancel(engine, s.busy_with) == EXL2_OK);
        exl2_step(engine, NULL);
    }
    require(l.done_events == 1);
    return count;
}

/* ---- what was restored ---- */

/* The session works: what was restored goes on, or is continued. own: it is what the engine saved. */
static void use(uint32_t features, bool own)
{
    static uint8_t again[1u << 18];
    exl2_session_info s;
    size_t need;
    listener l;
    require(exl2_session_get(engine, session, &s) == EXL2_OK && s.tokens <= s.context_max);
    require(exl2_session_save(engine, session, EXL2_SAVE_KV, again, sizeof again, &need) == EXL2_OK);
    require(exl2_session_restore(engine, session, again, need) == EXL2_OK);
    exl2_job_desc d = job_of(session, features, &l);
    d.resume = s.resumes;
    d.sampler.seed = own ? d.sampler.seed : 0;
    d.max_tokens = s.resumes ? 0 : NEW;
    l.stop_at = 24;
    exl2_result r = exl2_generate(engine, &d);
    require(r == EXL2_OK ? l.done_events == 1 : l.done_events <= 1 && !(own && s.resumes));
    if (r == EXL2_ERR_ARG && s.resumes) { /* without its job */
        d.resume = false;
        d.max_tokens = NEW;
        r = exl2_generate(engine, &d);
    }
    require(r == EXL2_OK || r == EXL2_ERR_ARG || r == EXL2_ERR_CONTEXT_FULL);
}

/* Restores `bytes` bytes into the session, which has a history, and uses it. */
static void restore(const uint8_t *data, size_t bytes, uint32_t features, bool own)
{
    listener l;
    exl2_job_desc d = job_of(session, 0, &l);
    exl2_session_info before, after;
    d.prompt.tokens = prompt;
    d.prompt.token_count = EXL2__COUNT(prompt);
    d.max_tokens = 0;
    d.prefill_only = true;
    require(exl2_session_rewind(engine, session, 0) == EXL2_OK && exl2_generate(engine, &d) == EXL2_OK);
    require(exl2_session_get(engine, session, &before) == EXL2_OK);
    if (exl2_session_restore(engine, session, data, bytes) == EXL2_OK) {
        use(features, own);
        return;
    }
    require(!own && exl2_session_get(engine, session, &after) == EXL2_OK && memcmp(&before, &after, sizeof after) == 0);
}

/* ---- what is restored ---- */

static void seal(uint8_t *data, size_t bytes)
{
    exl2__store64(data + bytes - 8, exl2__hash(data, bytes - 8));
}

/* Changes a word of a snapshot whose job part begins at word `job`: to the value, by the value, its upper half to the
   value; or puts up to 127 tokens before it. Returns the snapshot's new size. */
static size_t edit(uint8_t *copy, size_t bytes, uint32_t *job, uint32_t where, uint32_t value)
{
    uint32_t words = (uint32_t)bytes / 4 - 2, kind = where >> 14; /* without the sum */
    uint32_t index = (where & 0x2000 ? where | 0xFFFFE000u : where & 0x1FFF) + *job;
    uint8_t *at = copy + 4 * (size_t)(index % words);
    uint32_t word = exl2__load32(at), more = value & 127;
    if (kind == 3) {
        memmove(at + 4 * more, at, bytes - (size_t)(at - copy));
        for (uint32_t i = 0; i < more; i++) {
            exl2__store32(at + 4 * i, value >> 7);
        }
        exl2__store32(copy + 32, exl2__load32(copy + 32) + more);
        *job += more;
        return bytes + 4 * more;
    }
    value = value & 0x8000 ? value | 0xFFFF0000u : value;
    exl2__store32(at, kind == 1 ? word + value : kind == 2 ? (word & 0xFFFF) | value << 16 : value);
    return bytes;
}

static void restore_job(const uint8_t *data, size_t size)
{
    const uint8_t *good;
    size_t bytes = snapshot_of(data[0], data[1] & 0x3F, data[1] & 0x80 ? EXL2_SAVE_KV : 0, &good);
    if (!bytes) { /* features that exclude each other */
        return;
    }
    uint32_t job = 10 + exl2__load32(good + 32);
    uint8_t *room = (uint8_t *)malloc(bytes + 127 * size);
    memcpy(room, good, bytes);
    for (size_t i = 3; i + EDIT_BYTES <= size; i += EDIT_BYTES) {
        bytes = edit(room, bytes, &job, exl2__load16(data + i), exl2__load16(data + i + 2));
    }
    uint8_t *copy = (uint8_t *)realloc(room, bytes);
    seal(copy, bytes);
    restore(copy, bytes, data[0] ^ data[2], size < 3 + EDIT_BYTES && data[2] == 0 && !(data[0] & (SCHEMA | REGEX)));
    free(copy);
}

static void restore_bytes(const uint8_t *data, size_t bytes, uint32_t mends)
{
    uint8_t *copy = (uint8_t *)malloc(bytes + 1);
    memcpy(copy, data, bytes);
    if (mends & MENDS_MODEL && bytes >= 32) {
        memcpy(copy + 16, info.content_id, 16);
    }
    if (mends & MENDS_SUM && bytes >= 8) {
        seal(copy, bytes);
    }
    restore(copy, bytes, 0, false);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!engine) {
        open_once();
    }
    if (size >= 4 && data[0] & IS_JOB) {
        restore_job(data + 1, size - 1);
    } else if (size && size < 1u << 16) {
        restore_bytes(data + 1, size - 1, data[0]);
    }
    return 0;
}
