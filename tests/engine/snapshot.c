/* snapshot.c: saved sessions. A job with stop strings, bans, healing, a schema, mirostat, adaptive-p or on_token is
   saved after every step and resumed in another engine: the text is the one that it would have been. Snapshots with K
   and V compute nothing again, and no other session finds them; those of another format are not used. Damaged and
   foreign ones are rejected, and the session stays as it was. */
#include "text_model.h"

#include "private/hash.h"

#define KINDS 11u
#define NEW 40u

static text_model model;
static const char *const plan[6] = { "fox", " is", "ab", "abc", "\xC3", "\xA9" };
static exl2_token prompt[90];
static rig_said whole, first, rest;
static uint8_t bytes[1u << 20];

static exl2_kv format; /* of the next engines */
static uint32_t warnings;

static void on_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user;
    (void)id;
    (void)code;
    warnings += level == EXL2_LOG_WARN && strstr(text, "layout") != NULL;
}

static rig open_engine(uint64_t tokens)
{
    exl2_engine_desc e = text_engine(&model);
    exl2_model_desc m = text_folder();
    m.cache.tokens = tokens;
    m.cache.format = format;
    e.log.line = on_line;
    return rig_open(&e, &m);
}

static exl2_token replace(void *user, exl2_job job, uint32_t position, exl2_token token)
{
    (void)user;
    (void)job;
    return position % 4 ? token : (token + (exl2_token)position) % TEXT_VOCAB;
}

/* The job of a kind, without prompt and session. */
static exl2_job_desc job_of(const rig *r, uint32_t kind, rig_said *said)
{
    static const char *const stops[] = { "abcdefgh", "zzzz" }, *const bans[] = { "ab", "q", "tt", " i" };
    static const char schema[] = "{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"properties\":{\"a\":{\"type\":"
                                 "\"string\",\"maxLength\":9},\"b\":{\"type\":\"integer\"}}}";
    static exl2_bias bias[12];
    static exl2_token few[6];
    exl2_job_desc d = rig_job(r, NULL, 0, NEW, said);
    memset(said, 0, sizeof *said);
    d.model.id = 0;
    d.sampler.preset = kind ? EXL2_PRESET_NEUTRAL : EXL2_PRESET_GREEDY;
    d.sampler.seed = 40 + kind;
    d.min_tokens = kind == 1 ? 12 : kind == 8 ? 30 : 0;
    if (kind == 1 || kind == 5 || kind == 9) {
        d.stop_strings = stops;
        d.stop_string_count = 2;
    }
    if (kind == 2 || kind == 5 || kind == 6 || kind >= 9) {
        d.ban_strings = bans;
        d.ban_string_count = 4;
    }
    d.heal_prompt = kind == 3;
    if (kind == 4) {
        exl2_grammar_desc g = { .model = r->model, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = schema };
        CHECK_INT(exl2_grammar_make(r->engine, &g, &d.grammar), EXL2_OK);
    }
    if (kind == 7) { /* first bytes of characters, most of which are not completed */
        for (uint32_t i = 0; i < 12; i++) {
            bias[i] = (exl2_bias){ model.byte_ids[0xC3 + i], 3 };
        }
        d.sampler.bias = bias;
        d.sampler.bias_count = 12;
    }
    if (kind == 8) { /* stop tokens that min_tokens bans */
        bias[0] = (exl2_bias){ model.byte_ids['e'], 4 };
        d.sampler.bias = bias;
        d.sampler.bias_count = 1;
        d.stop_tokens = &bias[0].token;
        d.stop_token_count = 1;
    }
    if (kind == 5 || kind == 6) {
        d.sampler.mirostat_tau = 4;
        d.sampler.mirostat_eta = 0.3f;
    }
    if (kind == 9) {
        d.sampler.adaptive_target = 0.5f;
        d.sampler.adaptive_decay = EXL2_OFF;
        d.sampler.min_p = 0.01f;
        for (uint32_t i = 0; i < 6; i++) { /* banned strings begin often, and are saved half said */
            few[i] = model.byte_ids[(uint8_t)"abtui "[i]];
        }
        d.sampler.allow = few;
        d.sampler.allow_count = 6;
    }
    d.on_token = kind == 10 ? replace : NULL;
    return d;
}

static exl2_session session_of(const rig *r)
{
    exl2_session s = { 0 };
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    return s;
}

static size_t save(const rig *r, exl2_session s, uint32_t flags)
{
    size_t need = 0, again = 0;
    CHECK_INT(exl2_session_save(r->engine, s, flags, NULL, 0, &need), EXL2_OK);
    CHECK_INT(exl2_session_save(r->engine, s, flags, bytes, need - 1, &again), EXL2_ERR_TOO_SMALL);
    CHECK(again == need && need <= sizeof bytes);
    CHECK_INT(exl2_session_save(r->engine, s, flags, bytes, need, &again), EXL2_OK);
    return need;
}

static exl2_session_info info_of(const rig *r, exl2_session s)
{
    exl2_session_info info = { 0 };
    CHECK_INT(exl2_session_get(r->engine, s, &info), EXL2_OK);
    return info;
}

static void start(const rig *r, exl2_job_desc *d)
{
    CHECK_INT(exl2_job_start(r->engine, d, NULL), EXL2_OK);
    if (d->grammar.id) {
        exl2_grammar_close(r->engine, d->grammar);
    }
}

/* `first` and then `rest` are the same as `whole`. */
static bool same_text(void)
{
    return first.count + rest.count == whole.count && rest.stop == whole.stop && rest.done_events == 1
        && memcmp(first.ids, whole.ids, first.count * sizeof *whole.ids) == 0
        && memcmp(rest.ids, whole.ids + first.count, rest.count * sizeof *whole.ids) == 0
        && first.bytes + rest.bytes == whole.bytes && memcmp(first.text, whole.text, first.bytes) == 0
        && memcmp(rest.text, whole.text + first.bytes, rest.bytes) == 0;
}

/* Saves the job after `steps` steps, and goes on in the other engine. false: the job had ended by then. */
static bool save_after(const rig *a, const rig *b, uint32_t kind, uint32_t steps, uint32_t cpu_us, uint32_t flags)
{
    exl2_session s = session_of(a), other = session_of(b);
    exl2_step_desc step = { .cpu_us = cpu_us };
    exl2_job_desc d = job_of(a, kind, &first);
    d.session = s;
    d.prompt.tokens = prompt;
    d.prompt.token_count = 90;
    start(a, &d);
    for (uint32_t i = 0; i < steps && !first.done_events; i++) {
        exl2_step(a->engine, &step);
    }
    bool runs = !first.done_events;
    size_t need = save(a, s, flags);
    exl2_session_info info = info_of(a, s);
    CHECK(flags || need <= 4 * (info.tokens + NEW) + 512);
    CHECK_INT(exl2_session_restore(b->engine, other, bytes, need), EXL2_OK);
    exl2_session_info restored = info_of(b, other);
    CHECK_INT(restored.tokens, info.tokens);
    CHECK(!flags || restored.tokens_cached + 1 + NEW >= info.tokens_cached);
    exl2_session_close(a->engine, s);
    rig_drain(a, 0);
    d = job_of(b, kind, &rest);
    d.session = other;
    d.resume = true;
    if (restored.resumes) {
        if (steps % 2) {
            d.sampler.seed = 0;
            d.max_tokens = d.min_tokens = 0;
        }
        exl2_job_size size;
        CHECK_INT(exl2_job_measure(b->engine, &d, &size), EXL2_OK);
        CHECK_INT(size.max_tokens, NEW);
        start(b, &d);
        rig_drain(b, 0);
        if (!CHECK(same_text())) {
            printf("  kind %u, saved after %u steps of %u us, %u + %u tokens of %u\n", (unsigned)kind, (unsigned)steps,
                   (unsigned)cpu_us, (unsigned)first.count, (unsigned)rest.count, (unsigned)whole.count);
        }
        CHECK_INT(rest.stats.new_tokens, rest.count);
        CHECK_INT(rest.stats.seed, 40 + kind);
        CHECK_INT(exl2_job_start(b->engine, &d, NULL), EXL2_ERR_ARG); /* twice */
    } else {
        CHECK(!runs || info.tokens == 0); /* it has ended, or it waits */
        if (d.grammar.id) {
            exl2_grammar_close(b->engine, d.grammar);
        }
    }
    exl2_session_close(b->engine, other);
    return runs;
}

static void every_step(const rig *a, const rig *b)
{
    uint32_t saves = 0;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        exl2_job_desc d = job_of(a, kind, &whole);
        exl2_session s = session_of(a);
        d.session = s;
        d.prompt.tokens = prompt;
        d.prompt.token_count = 90;
        start(a, &d);
        rig_drain(a, 0);
        CHECK(whole.done_events == 1 && whole.count > 10);
        exl2_session_close(a->engine, s);
        for (uint32_t steps = 0; save_after(a, b, kind, steps, 0, steps % 3 == 1 ? EXL2_SAVE_KV : 0); steps++) {
            saves++;
        }
        for (uint32_t steps = 1; save_after(a, b, kind, steps, 1, 0); steps += 1 + steps / 3) { /* in the prompt, too */
            saves++;
        }
    }
    printf("%u snapshots of running jobs\n", (unsigned)saves);
    CHECK(saves > 200);
}

/* A few snapshots, with K and V; the engines have a quantized cache. */
static void some_steps(const rig *a, const rig *b)
{
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        exl2_job_desc d = job_of(a, kind, &whole);
        d.model = a->model;
        d.prompt.tokens = prompt;
        d.prompt.token_count = 90;
        start(a, &d);
        rig_drain(a, 0);
        for (uint32_t steps = kind; steps < 40 && save_after(a, b, kind, steps, 0, EXL2_SAVE_KV); steps += 9) {
        }
    }
}

/* The sum of a snapshot that was edited. */
static void seal(uint8_t *data, size_t count)
{
    exl2__store64(data + count - 8, exl2__hash(data, count - 8));
}

static void check_rejected(const rig *r, exl2_session s, const uint8_t *data, size_t count, exl2_result wanted,
                           const char *piece)
{
    exl2_session_info before = info_of(r, s), after;
    text_check_refused(r, exl2_session_restore(r->engine, s, data, count), wanted, piece);
    after = info_of(r, s);
    CHECK(memcmp(&before, &after, sizeof after) == 0);
}

/* A snapshot of a running job with everything in it. */
static size_t snapshot_of(const rig *r, uint32_t flags)
{
    exl2_session s = session_of(r);
    exl2_job_desc d = job_of(r, 6, &first);
    d.session = s;
    d.prompt.tokens = prompt;
    d.prompt.token_count = 90;
    start(r, &d);
    while (first.count < 8) {
        exl2_step(r->engine, NULL);
    }
    size_t need = save(r, s, flags);
    exl2_session_close(r->engine, s);
    rig_drain(r, 0);
    return need;
}

static void damaged(const rig *r)
{
    static uint8_t good[1u << 20];
    exl2_session s = session_of(r);
    exl2_job_desc d = job_of(r, 0, &rest);
    d.session = s;
    d.prompt.tokens = prompt;
    d.prompt.token_count = 20;
    start(r, &d);
    rig_drain(r, 0);
    size_t count = snapshot_of(r, EXL2_SAVE_KV);
    memcpy(good, bytes, count);
    for (uint32_t i = 0; i < 5000; i++) {
        size_t at = (i * 7919u) % count;
        bytes[at] ^= (uint8_t)(1u << i % 8);
        exl2_result got = exl2_session_restore(r->engine, s, bytes, count);
        CHECK_INT(got, EXL2_ERR_FORMAT);
        bytes[at] = good[at];
        CHECK_INT(exl2_session_restore(r->engine, s, bytes, (i * 6151u) % count), EXL2_ERR_FORMAT);
    }
    CHECK_INT(info_of(r, s).tokens, 20 + rest.count);
    static const struct { uint32_t at, value; exl2_result result; const char *piece; } edits[] = {
        { 8, 2, EXL2_ERR_UNSUPPORTED, "version 2" },         { 16, 0, EXL2_ERR_ARG, "content_id" },
        { 32, UINT32_MAX, EXL2_ERR_FORMAT, "counts" },       { 32, 1u << 30, EXL2_ERR_FORMAT, "counts" },
        { 12, 67, EXL2_ERR_FORMAT, "counts" },               { 12, 1, EXL2_ERR_FORMAT, "counts" },
        { 12, 131, EXL2_ERR_FORMAT, "K and V" },             { 12, 259, EXL2_ERR_FORMAT, "counts" },
        { 12, 7, EXL2_ERR_FORMAT, "begun reply" },           { 12, 19, EXL2_ERR_FORMAT, "adapters" },
        { 36, UINT32_MAX, EXL2_ERR_FORMAT, "K and V" },      { 36, 0, EXL2_ERR_FORMAT, "K and V" },
        { 40, TEXT_VOCAB, EXL2_ERR_FORMAT, "vocabulary" },   { 40, 0x7FFFFFFF, EXL2_ERR_FORMAT, "vocabulary" },
    };
    for (uint32_t i = 0; i < EXL2__COUNT(edits); i++) {
        exl2__store32(bytes + edits[i].at, edits[i].value);
        seal(bytes, count);
        check_rejected(r, s, bytes, count, edits[i].result, edits[i].piece);
        memcpy(bytes, good, count);
    }
    uint32_t tokens = exl2__load32(good + 32);
    for (uint32_t i = 0; i < 17; i++) { /* the counts of the job: every field is checked */
        static const uint32_t wild[] = { UINT32_MAX, 0x7FFFFFFF, 600, 100000 };
        for (uint32_t k = 0; k < 4; k++) {
            exl2__store32(bytes + 40 + 4 * (tokens + i), wild[k]);
            seal(bytes, count);
            exl2_result got = exl2_session_restore(r->engine, s, bytes, count);
            bool any = i == 6 || i == 8 || i == 12 || i >= 14; /* attempt, shown, tried_at, seed, from */
            any = any || (i == 9 && k == 0) || (i == 10 && k >= 2); /* no healed token; a state near 0 */
            CHECK(got == EXL2_ERR_FORMAT || (any && got == EXL2_OK));
            if (got == EXL2_OK) { /* restored: a job goes on with it, or is rejected */
                d = job_of(r, 6, &rest);
                d.sampler.seed = 0;
                d.session = s;
                d.resume = true;
                got = exl2_job_start(r->engine, &d, NULL);
                CHECK(got == EXL2_OK || got == EXL2_ERR_ARG);
                rig_drain(r, 0);
            }
            memcpy(bytes, good, count);
        }
    }
    /* K and V of another layout: the tokens alone are restored, and one warning says so */
    const uint8_t *job = good + 40 + 4 * tokens;
    bytes[40 + 4 * tokens + 68 + 4 * (exl2__load32(job + 44) + exl2__load32(job + 52))] ^= 1;
    seal(bytes, count);
    CHECK_INT(exl2_session_restore(r->engine, s, bytes, count), EXL2_OK);
    CHECK(info_of(r, s).tokens_cached < 64 + 90); /* what others have computed may be found */
    exl2_session_close(r->engine, s);
}

/* Snapshots whose sum is right, and that no engine has made: another healed token, or one where none was, than the
   first new token begins with; more held tokens than a job with alternatives can hold. */
static void hostile(const rig *r)
{
    exl2_session s = session_of(r), from = session_of(r);
    uint32_t resumed = 0;
    for (uint32_t kind = 0; kind < 5; kind++) {
        exl2_job_desc d = job_of(r, kind, &first);
        d.session = from;
        d.prompt.tokens = prompt;
        d.prompt.token_count = 90;
        start(r, &d);
        while (first.count < 4 && !first.done_events) {
            exl2_step(r->engine, NULL);
        }
        static uint8_t good[4096];
        size_t count = save(r, from, 0);
        memcpy(good, bytes, count);
        exl2_session_info info = info_of(r, from);
        exl2_job_cancel(r->engine, info.busy_with);
        rig_drain(r, 0);
        CHECK_INT(exl2_session_rewind(r->engine, from, 0), EXL2_OK);
        uint32_t tokens = exl2__load32(good + 32);
        uint8_t *job = bytes + 40 + 4 * tokens;
        for (uint32_t i = 0; i < TEXT_VOCAB + 20; i++) {
            memcpy(bytes, good, count);
            exl2__store32(job + 36, i < TEXT_VOCAB ? i : UINT32_MAX);
            if (i >= TEXT_VOCAB) { /* nothing was delivered: all new tokens are held, up to all but the first */
                exl2__store32(job, exl2__load32(job) - 4 * (i - TEXT_VOCAB));
                exl2__store32(job + 4, 1);
                exl2__store32(job + 8, 0);
                exl2__store32(job + 16, 200);
            }
            seal(bytes, count);
            exl2_result got = exl2_session_restore(r->engine, s, bytes, count);
            CHECK(got == EXL2_OK || got == EXL2_ERR_FORMAT);
            if (got < 0) {
                continue;
            }
            d = job_of(r, kind, &rest);
            d.sampler.seed = 0;
            d.max_tokens = d.min_tokens = 0;
            d.session = s;
            d.resume = true;
            d.alts_per_token = EXL2_ALTS_MAX;
            got = exl2_job_start(r->engine, &d, NULL);
            CHECK(got == EXL2_OK || got == EXL2_ERR_ARG || got == EXL2_ERR_BUDGET);
            if (got < 0 && d.grammar.id) {
                exl2_grammar_close(r->engine, d.grammar);
            }
            rig_drain(r, 0);
            CHECK_INT(rest.done_events, got == EXL2_OK);
            resumed += got == EXL2_OK;
        }
    }
    CHECK(resumed > 20);
    exl2_session_close(r->engine, s);
    exl2_session_close(r->engine, from);
}

static uint32_t invalid_texts;

static exl2_flow hear_characters(void *user, const exl2_event *ev)
{
    invalid_texts += ev->kind == EXL2_EVENT_TEXT && !exl2__unicode_valid(ev->text, ev->bytes);
    return rig_hear(user, ev);
}

/* Snapshots whose job was heard up to a place within a character, or has shown a part of one. What goes on says whole
   characters: from the start of one, it says all that follow. */
static void characters(const rig *r)
{
    static const char said_so_far[] = "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z\xC3q\xC3\xA9";
    enum { COUNT = sizeof said_so_far - 1 };
    static const char *const heard[COUNT + 1] = { "\xC3\xA9\xE2\x82\xAC", NULL, "\xE2\x82\xAC", NULL, NULL,
                                                  "\xF0\x9F\x98\x80z", NULL, NULL, NULL, "z\xEF\xBF\xBDq",
                                                  "\xEF\xBF\xBDq", NULL, "\xC3\xA9", NULL, NULL };
    exl2_session s = session_of(r);
    static uint8_t good[4096];
    uint32_t accepted = 0, rejected = 0;
    size_t count = snapshot_of(r, 0);
    uint32_t tokens = exl2__load32(bytes + 32), lists = 4 * exl2__load32(bytes + 40 + 4 * tokens + 52);
    lists += 4 * exl2__load32(bytes + 40 + 4 * tokens + 44);
    count -= lists; /* a job without lists of tokens and states */
    for (uint32_t i = 0; i < COUNT; i++) {
        exl2__store32(bytes + 40 + 4 * (tokens - COUNT + i), (uint32_t)model.byte_ids[(uint8_t)said_so_far[i]]);
    }
    const uint32_t fields[14] = { tokens - COUNT, 1, 0, 0, 200, 0, 0, 0, 0, UINT32_MAX, 0, 0, 0, 0 };
    uint8_t *job = bytes + 40 + 4 * tokens;
    for (uint32_t i = 0; i < EXL2__COUNT(fields); i++) {
        exl2__store32(job + 4 * i, fields[i]);
    }
    memcpy(good, bytes, count);
    for (uint32_t i = 0; i < (COUNT + 1) * 8 * 2; i++) {
        uint32_t delivered = i / 16, shown = i / 2 % 8;
        memcpy(bytes, good, count);
        exl2__store32(job + 8, delivered);
        exl2__store32(job + 32, shown);
        seal(bytes, count);
        CHECK_INT(exl2_session_restore(r->engine, s, bytes, count), EXL2_OK);
        exl2_job_desc d = job_of(r, i % 2, &rest); /* with stop strings, or without */
        d.sampler.seed = 0;
        d.max_tokens = d.min_tokens = 0;
        d.on_event = hear_characters;
        d.session = s;
        d.resume = true;
        exl2_result got = exl2_job_start(r->engine, &d, NULL);
        CHECK(got == EXL2_OK || got == EXL2_ERR_ARG);
        rig_drain(r, 0);
        accepted += got == EXL2_OK;
        rejected += got < 0;
        bool begins = got == EXL2_OK && heard[delivered] && rest.bytes >= strlen(heard[delivered]);
        CHECK(!(shown == 0 && heard[delivered])
              || (begins && memcmp(rest.text, heard[delivered], strlen(heard[delivered])) == 0));
    }
    CHECK_INT(invalid_texts, 0);
    CHECK(accepted > 60 && rejected > 60);
    exl2_session_close(r->engine, s);
}

/* K and V of a snapshot, edited: the session that restores them uses them, a fork too, and nobody else. */
static void own_pages(void)
{
    rig a = open_engine(4096), b = open_engine(4096);
    size_t count = snapshot_of(&a, EXL2_SAVE_KV);
    memset(bytes + count - 8 - 4096, 0x3C, 4096);
    seal(bytes, count);
    exl2_session s = session_of(&b), fork;
    CHECK_INT(exl2_session_restore(b.engine, s, bytes, count), EXL2_OK);
    uint32_t cached = info_of(&b, s).tokens_cached;
    CHECK(cached >= 90);
    CHECK_INT(exl2_session_fork(b.engine, s, &fork), EXL2_OK);
    CHECK_INT(info_of(&b, fork).tokens_cached, cached);
    exl2_job_desc d = rig_job(&b, prompt, 90, 4, &rest);
    memset(&rest, 0, sizeof rest);
    CHECK_INT(exl2_generate(b.engine, &d), EXL2_OK);
    CHECK_INT(rest.stats.reused_tokens, 0);
    count = snapshot_of(&a, 0); /* the same history, whose K and V are not those of the older snapshot */
    CHECK_INT(exl2_session_restore(b.engine, s, bytes, count), EXL2_OK);
    CHECK_INT(info_of(&b, s).tokens_cached, 90); /* of the job above */
    rig_close(&a);
    rig_close(&b);
}

/* K and V of another format are not used, and one warning says so; the words are the same in the same format, whether
   they came with the snapshot or are computed again. */
static void other_formats(void)
{
    for (uint32_t from = EXL2_KV_FP16; from <= EXL2_KV_Q4; from++) {
        format = (exl2_kv)from;
        rig a = open_engine(4096);
        size_t count = snapshot_of(&a, EXL2_SAVE_KV);
        for (uint32_t to = EXL2_KV_FP16; to <= EXL2_KV_Q4; to++) {
            format = (exl2_kv)to;
            rig b = open_engine(4096);
            exl2_session s = session_of(&b);
            uint32_t before = warnings;
            CHECK_INT(exl2_session_restore(b.engine, s, bytes, count), EXL2_OK);
            CHECK_INT(warnings - before, from != to);
            CHECK(info_of(&b, s).tokens >= 90 && (info_of(&b, s).tokens_cached >= 90) == (from == to));
            exl2_job_desc d = job_of(&b, 6, &rest);
            d.sampler.seed = 0;
            d.session = s;
            d.resume = true;
            start(&b, &d);
            rig_drain(&b, 0);
            CHECK(rest.done_events == 1 && rest.count > 0);
            rig_close(&b);
        }
        rig_close(&a);
    }
    format = EXL2_KV_FP16;
}

/* A snapshot with K and V is restored while a pass still has rows of a job that was cancelled, and whose pages are
   free: they must not be written into those of the snapshot. */
static void while_a_pass_runs(void)
{
    static rig_said others[2];
    rig r = open_engine(1024);
    size_t count = snapshot_of(&r, EXL2_SAVE_KV);
    exl2_job_desc d = job_of(&r, 6, &whole);
    d.model = r.model;
    d.prompt.tokens = prompt;
    d.prompt.token_count = 90;
    rig_run(&r, &d);
    uint32_t delivered = exl2__load32(bytes + 40 + 4 * exl2__load32(bytes + 32) + 8);
    for (uint32_t steps = 1; steps < 24; steps++) {
        static exl2_token ids[120];
        exl2_step_desc unit = { .cpu_us = 1 };
        exl2_job cancelled;
        for (uint32_t i = 0; i < 120; i++) {
            ids[i] = (exl2_token)((i * 11 + steps) % 300);
        }
        d = rig_job(&r, ids + 60, 20, 60, &others[0]); /* its rows keep the pass going */
        memset(&others[0], 0, sizeof others[0]);
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        while (others[0].count < 2) {
            exl2_step(r.engine, NULL);
        }
        d = rig_job(&r, ids, 120, 4, &others[1]);
        CHECK_INT(exl2_job_start(r.engine, &d, &cancelled), EXL2_OK);
        for (uint32_t i = 0; i < steps; i++) {
            exl2_step(r.engine, &unit);
        }
        exl2_job_cancel(r.engine, cancelled);
        exl2_step(r.engine, &unit);
        exl2_session s = session_of(&r);
        CHECK_INT(exl2_session_restore(r.engine, s, bytes, count), EXL2_OK);
        rig_drain(&r, 0);
        d = job_of(&r, 6, &rest);
        d.session = s;
        d.resume = true;
        rig_run(&r, &d);
        CHECK(rest.count + delivered == whole.count
              && memcmp(rest.ids, whole.ids + delivered, rest.count * sizeof *rest.ids) == 0);
        exl2_session_close(r.engine, s);
    }
    rig_close(&r);
}

typedef struct starter {
    const rig *r;
    exl2_session s;
    exl2_job started;
} starter;

/* At the first text: starts a job in the session that is restored, whose events are polled, and cancels it. */
static exl2_flow start_there(void *user, const exl2_event *event)
{
    starter *x = (starter *)user;
    if (event->kind == EXL2_EVENT_TEXT && !x->started.id) {
        exl2_job_desc d = { .session = x->s, .prompt = { .tokens = prompt, .token_count = 10 }, .max_tokens = 4 };
        CHECK_INT(exl2_job_start(x->r->engine, &d, &x->started), EXL2_OK);
        CHECK_INT(exl2_job_cancel(x->r->engine, x->started), EXL2_OK);
    }
    return EXL2_CONTINUE;
}

/* A restore ends the pass in flight. A callback starts a job in the session then, and cancels it: the session is free
   again before its history is replaced, and the job's DONE can be polled after that. */
static void while_a_job_ends(void)
{
    static exl2_token ids[300];
    rig r = open_engine(1024);
    starter x = { .r = &r };
    exl2_step_desc unit = { .cpu_us = 1 };
    exl2_event event;
    size_t count = snapshot_of(&r, 0), need = 0;
    x.s = session_of(&r);
    CHECK_INT(exl2_session_restore(r.engine, x.s, bytes, count), EXL2_OK);
    CHECK_INT(exl2_session_tokens(r.engine, x.s, ids, 300, &need), EXL2_OK);
    exl2_job_desc d = { .model = r.model, .prompt = { .tokens = prompt, .token_count = 20 }, .max_tokens = 4 };
    d.on_event = start_there;
    d.user = &x;
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    exl2_step(r.engine, &unit);
    CHECK_INT(exl2_session_restore(r.engine, x.s, bytes, count), EXL2_OK);
    CHECK(x.started.id != 0);
    static exl2_token now[300];
    size_t now_need = 0;
    CHECK_INT(exl2_session_tokens(r.engine, x.s, now, 300, &now_need), EXL2_OK);
    CHECK(now_need == need && memcmp(now, ids, need * sizeof *ids) == 0);
    CHECK(exl2_next_event(r.engine, &event) && event.kind == EXL2_EVENT_DONE);
    CHECK(event.job.id == x.started.id && event.result == EXL2_ERR_CANCELLED);
    CHECK(!exl2_next_event(r.engine, &event));
    rig_drain(&r, 0);
    rig_close(&r);
}

static void misuse(const rig *r)
{
    exl2_session s = session_of(r);
    exl2_job_desc d = job_of(r, 6, &rest);
    size_t count = snapshot_of(r, 0), need;
    d.session = s;
    d.resume = true;
    text_check_refused(r, exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG, "no job to go on with");
    CHECK_INT(exl2_session_restore(r->engine, s, bytes, count), EXL2_OK);
    CHECK(info_of(r, s).resumes);
    d.sampler.seed = 5;
    text_check_refused(r, exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG, "seed is 5, but that of the");
    d.sampler.seed = 0;
    d.max_tokens = 7;
    text_check_refused(r, exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG, "7 and 0, but those of the");
    d.max_tokens = 0;
    d.prefill_only = true;
    text_check_refused(r, exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG, "prefill_only");
    d.prefill_only = false;
    d.prompt.tokens = prompt;
    d.prompt.token_count = 3;
    text_check_refused(r, exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG, "has its prompt already");
    d.prompt.tokens = NULL;
    d.prompt.token_count = 0;
    uint32_t tokens = info_of(r, s).tokens;
    CHECK_INT(save(r, s, 0), count); /* saved again before it goes on */
    exl2_session again = session_of(r);
    CHECK_INT(exl2_session_restore(r->engine, again, bytes, count), EXL2_OK);
    CHECK_INT(exl2_session_rewind(r->engine, again, tokens), EXL2_OK); /* the history is edited: nothing resumes */
    CHECK(!info_of(r, again).resumes);
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    text_check_refused(r, exl2_session_restore(r->engine, s, bytes, count), EXL2_ERR_STATE, "busy");
    rig_drain(r, 0);
    CHECK_INT(rest.done_events, 1);
    CHECK_INT(exl2_session_save(r->engine, s, 4, NULL, 0, &need), EXL2_ERR_ARG);
    text_model small = model; /* the same folder, but with a shorter context */
    exl2_engine_desc e = text_engine(&small);
    exl2_model_desc m = text_folder();
    m.context_max = 64;
    rig other = rig_open(&e, &m);
    exl2_session in_other = session_of(&other);
    check_rejected(&other, in_other, bytes, count, EXL2_ERR_CONTEXT_FULL, "a session holds 64");
    rig_close(&other);
    other = rig_load(rig_golden("exl2-4bit"));
    in_other = session_of(&other);
    check_rejected(&other, in_other, bytes, count, EXL2_ERR_ARG, "content_id");
    rig_close(&other);
    exl2_session_close(r->engine, s);
    exl2_session_close(r->engine, again);
}

int main(void)
{
    text_find_plan(&model, 6);
    text_write(&model, plan, 6, TEXT_CHAT_CONFIG);
    for (uint32_t i = 0; i < 90; i++) {
        prompt[i] = (exl2_token)(20 + i * 13 % 250);
    }
    prompt[89] = model.byte_ids['a'];
    rig a = open_engine(4096), b = open_engine(2048);
    every_step(&a, &b);
    damaged(&a);
    hostile(&a);
    characters(&a);
    misuse(&a);
    rig_close(&a);
    rig_close(&b);
    own_pages();
    while_a_pass_runs();
    while_a_job_ends();
    other_formats();
    format = EXL2_KV_Q6;
    a = open_engine(4096);
    b = open_engine(2048);
    some_steps(&a, &b);
    damaged(&a);
    rig_close(&a);
    rig_close(&b);
    return check_done();
}
