/* saved.c: see saved.h.
   takes: the state of a tavern, exl2_session_save.
   gives: what saved.h declares.
   owns:  nothing beyond a call.

   Little endian: 8 bytes of magic, the version, a hash of the people's files, the three sessions as the engine saves
   them, the state of the game, and an FNV-1a sum of all bytes before it. A text is its length (4 bytes; ABSENT = NULL),
   its bytes and a NUL, so that the tavern can point into the file. */
#include "saved.h"

#include "../common/hash.h"
#include "../common/memory.h"
#include "../common/text_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "EXL2TAVN"
#define VERSION 3u
#define ABSENT UINT32_MAX
#define HEAD_BYTES 20u
#define SUM_BYTES 8u
#define FILE_MAX ((size_t)1 << 26) /* bytes; an evening of 10,000 lines has 2 MB */
#define LINE_BYTES 60u     /* bytes of the shortest line in the file */
#define BEGIN_STEPS 1000   /* steps until every turn has begun */

/* One description of the state serves both directions: each function below writes *value, or reads it. */
typedef struct stream {
    bool reads, bad;       /* bad: what was read cannot be */
    memory_text out;
    char *at, *end;        /* when reading: what is left */
} stream;

/* ---- values ---- */

static void put_number(stream *x, uint64_t *value, uint32_t bytes, uint64_t most)
{
    if (!x->reads) {
        for (uint32_t i = 0; i < bytes; i++) {
            memory_text_add(&x->out, &(char){ (char)(*value >> 8 * i) }, 1);
        }
        return;
    }
    *value = 0;
    x->bad = x->bad || (size_t)(x->end - x->at) < bytes;
    for (uint32_t i = 0; !x->bad && i < bytes; i++) {
        *value |= (uint64_t)(unsigned char)*x->at++ << 8 * i;
    }
    x->bad = x->bad || *value > most;
    *value = x->bad ? 0 : *value;
}

static void put_u64(stream *x, uint64_t *value)
{
    put_number(x, value, 8, UINT64_MAX);
}

static void put_u32(stream *x, uint32_t *value, uint32_t most)
{
    uint64_t wide = *value;
    put_number(x, &wide, 4, most);
    *value = (uint32_t)wide;
}

static void put_size(stream *x, size_t *value, size_t most)
{
    uint64_t wide = *value;
    put_number(x, &wide, 8, most);
    *value = (size_t)wide;
}

static void put_bool(stream *x, bool *value)
{
    uint32_t wide = *value;
    put_u32(x, &wide, 1);
    *value = wide != 0;
}

static void put_trust(stream *x, int *value)
{
    uint32_t wide = (uint32_t)(*value + TURN_TRUST_MAX);
    put_u32(x, &wide, 2 * TURN_TRUST_MAX);
    *value = (int)wide - TURN_TRUST_MAX;
}

/* Bytes of any kind; reading, *data points into the file. */
static void put_bytes(stream *x, char **data, size_t *bytes)
{
    put_size(x, bytes, x->reads ? (size_t)(x->end - x->at) : SIZE_MAX);
    x->bad = x->bad || (x->reads && *bytes > (size_t)(x->end - x->at));
    if (!x->reads) {
        memory_text_add(&x->out, *data, *bytes);
    } else {
        *bytes = x->bad ? 0 : *bytes;
        *data = x->at;
        x->at += *bytes;
    }
}

/* A text without control characters, which a terminal would obey; *text points into the file. */
static void put_text(stream *x, const char **text)
{
    uint32_t bytes = *text ? (uint32_t)strlen(*text) : ABSENT;
    put_u32(x, &bytes, ABSENT);
    if (!x->reads) {
        memory_text_add(&x->out, *text ? *text : "", *text ? bytes + 1 : 0);
        return;
    }
    *text = NULL;
    x->bad = x->bad || (bytes != ABSENT && (bytes >= (size_t)(x->end - x->at) || x->at[bytes] != 0));
    for (uint32_t i = 0; !x->bad && bytes != ABSENT && i < bytes; i++) {
        unsigned char byte = (unsigned char)x->at[i];
        x->bad = (byte < ' ' && byte != '\n' && byte != '\t') || byte == 0x7F;
    }
    if (!x->bad && bytes != ABSENT) {
        *text = x->at;
        x->at += bytes + 1;
    }
}

/* A text that must be there. */
static void put_words(stream *x, const char **text)
{
    put_text(x, text);
    x->bad = x->bad || !*text;
    *text = *text ? *text : "";
}

static void put_array(stream *x, char *text, size_t cap)
{
    const char *words = text;
    put_words(x, &words);
    if (x->reads) {
        x->bad = x->bad || strlen(words) >= cap;
        snprintf(text, cap, "%s", x->bad ? "" : words);
    }
}

/* A person of the tavern `home`, or NULL. */
static void put_npc(stream *x, tavern *home, const npc **n)
{
    uint32_t at = *n ? (uint32_t)(*n - home->npcs) + 1 : 0;
    put_u32(x, &at, CAST_SIZE);
    *n = at ? &home->npcs[at - 1] : NULL;
}

/* ---- the state: of `t`, whose people are those of `home` ---- */

static void put_line(stream *x, tavern *home, tavern_line *l)
{
    const char *text = l->text;
    uint32_t stop = (uint32_t)l->stop;
    uint64_t first_us = (uint64_t)(l->first_ms * 1000);
    put_npc(x, home, &l->by);
    put_text(x, &l->to);
    put_words(x, &text);
    put_bool(x, &l->ended);
    put_u32(x, &stop, EXL2_STOP_LOOP);
    put_text(x, &l->turn.mood);
    put_text(x, &l->turn.act);
    put_text(x, &l->turn.target);
    put_text(x, &l->turn.thing);
    put_trust(x, &l->turn.trust);
    put_array(x, l->deed, sizeof l->deed);
    put_number(x, &first_us, 8, UINT32_MAX);
    put_u32(x, &l->tokens, UINT32_MAX);
    put_u32(x, &l->prompt_tokens, UINT32_MAX);
    put_u32(x, &l->heard, UINT32_MAX);
    put_u32(x, &l->reused_tokens, UINT32_MAX);
    if (x->reads) {
        x->bad = x->bad || (!l->by && (!l->ended || !l->to));
        l->bytes = strlen(text);
        l->cap = l->bytes + 1;
        l->text = memory_copy_text(text, l->bytes);
        l->stop = (exl2_stop)stop;
        l->first_ms = (double)first_us * 1e-3;
    }
}

static void put_lines(stream *x, tavern *home, tavern *t)
{
    put_size(x, &t->count, x->reads ? (size_t)(x->end - x->at) / LINE_BYTES : SIZE_MAX);
    if (x->reads) {
        t->cap = t->count;
        t->lines = t->count ? memory_take(t->count, sizeof *t->lines) : NULL;
    }
    for (size_t i = 0; i < t->count && !x->bad; i++) {
        put_line(x, home, &t->lines[i]);
    }
}

/* The things that the person held when the turn began. */
static void put_state(stream *x, tavern *home, npc *n)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < n->state.thing_count; i++) {
        for (uint32_t j = 0; j < home->thing_count; j++) {
            held |= (n->state.things[i] == home->things[j].name ? 1u : 0) << j;
        }
    }
    bool evades = n->state.evasion_count > 0;
    put_u32(x, &held, (1u << home->thing_count) - 1);
    put_bool(x, &evades);
    put_bool(x, &n->state.whole);
    put_trust(x, &n->state.trust);
    if (x->reads) { /* after put_recalled, as the turn began with the same recollection */
        n->state.evasion_count = evades ? recall_evasions(n->who, &n->recalled, n->state.evasions) : 0;
        n->state.thing_count = 0;
        for (uint32_t i = 0; i < home->thing_count; i++) {
            if (held >> i & 1) {
                n->state.things[n->state.thing_count++] = home->things[i].name;
            }
        }
    }
}

static void put_recalled(stream *x, npc *n)
{
    uint32_t last = n->recalled.last ? (uint32_t)(n->recalled.last - n->who->examples) + 1 : 0;
    put_u32(x, &last, n->who->example_count);
    n->recalled.last = last ? &n->who->examples[last - 1] : NULL;
    put_u32(x, &n->recalled.count, UINT32_MAX / 2);
    for (uint32_t i = 0; i < CAST_EVASIONS_MAX; i++) {
        put_u32(x, &n->recalled.used[i], UINT32_MAX / 2);
    }
}

/* The factor of a mood as its bits: a person who was speaking goes on with the same one. */
static void put_factor(stream *x, float *value)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    put_u32(x, &bits, UINT32_MAX);
    memcpy(value, &bits, sizeof bits);
    x->bad = x->bad || !((*value >= -100 && *value <= 100) || (*value >= EXL2_OFF && *value <= EXL2_OFF));
}

static void put_person(stream *x, tavern *home, npc *n, bool *speaks)
{
    const char *talk = n->talk ? n->talk : "";
    put_bool(x, speaks);
    put_size(x, &n->line, SIZE_MAX);
    put_u32(x, &n->past_tokens, UINT32_MAX);
    put_u32(x, &n->known_tokens, UINT32_MAX);
    put_words(x, &talk);
    put_size(x, &n->talk_known, strlen(talk));
    put_recalled(x, n);
    put_words(x, &n->mood);
    put_trust(x, &n->trust);
    put_state(x, home, n);
    put_array(x, n->said, sizeof n->said);
    put_factor(x, &n->feels.factor);
    if (x->reads) {
        n->said_bytes = strlen(n->said);
        n->talk_bytes = strlen(talk);
        n->talk = memory_take(n->talk_bytes + 2, 1); /* an empty talk has a byte after its NUL, too: see forget_half */
        memcpy(n->talk, talk, n->talk_bytes);
    }
}

/* The temperature as its bits. */
static void put_temperature(stream *x, float *value)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    put_u32(x, &bits, UINT32_MAX);
    memcpy(value, &bits, sizeof bits);
    x->bad = x->bad || !(*value >= 0 && *value <= 100);
}

static void put_game(stream *x, tavern *home, tavern *t, const npc **partner, bool speaks[CAST_SIZE])
{
    put_number(x, &t->seed, 8, UINT32_MAX);
    put_temperature(x, &t->temperature);
    put_u32(x, &t->turns, UINT32_MAX);
    put_u32(x, &t->invalid_turns, UINT32_MAX);
    put_npc(x, home, partner);
    for (uint32_t i = 0; i < t->thing_count; i++) {
        put_npc(x, home, &t->things[i].owner);
    }
    put_lines(x, home, t);
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        put_person(x, home, &t->npcs[i], &speaks[i]);
    }
}

/* ---- hashes ---- */

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return text ? hash_bytes(hash, text, strlen(text) + 1) : hash_bytes(hash, "\1", 1);
}

static uint64_t hash_example(uint64_t hash, const example *e)
{
    return hash_text(hash_text(hash_text(hash_text(hash, e->question), e->answer), e->act), e->at);
}

/* Of everything that the people's files say. */
static uint64_t hash_cast(const cast *c)
{
    uint64_t hash = hash_text(HASH_BEGIN, c->world);
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        const character *who = &c->people[i];
        hash = hash_text(hash_text(hash_text(hash, who->name), who->role), who->mood);
        hash = hash_text(hash_text(hash_text(hash, who->holds), who->persona), who->plot);
        for (uint32_t j = 0; j < who->example_count; j++) {
            hash = hash_example(hash, &who->examples[j]);
        }
        for (uint32_t j = 0; j < who->evasion_count; j++) {
            hash = hash_text(hash, who->evasions[j]);
        }
    }
    return hash;
}

static bool engine_says(const tavern *t, char why[SAVED_WHY_BYTES], const char *path)
{
    exl2_error error;
    exl2_last_error(t->engine, &error);
    snprintf(why, SAVED_WHY_BYTES, "%s: %s", path, error.text);
    return false;
}

/* ---- write ---- */

/* A job that still waits is in no snapshot, so steps are run until none does. */
static bool all_begun(tavern *t)
{
    bool begun = false;
    for (uint32_t step = 0; !begun && step < BEGIN_STEPS; step++) {
        begun = true;
        for (uint32_t i = 0; i < CAST_SIZE; i++) {
            const npc *n = &t->npcs[i];
            exl2_job_info info = { 0 };
            exl2_job job = n->job.id ? n->job : n->thinks;
            if (job.id && exl2_job_get(t->engine, job, &info) >= 0 && info.state == EXL2_JOB_QUEUED) {
                begun = false;
            }
        }
        if (!begun) {
            exl2_step(t->engine, &(exl2_step_desc){ .cpu_us = 1, .gpu_us = 1, .wait = true });
        }
    }
    return begun;
}

/* Pauses all jobs, so that nothing is said while the sessions are saved one after the other; then continues those that
   `hear` does not hold. */
static void pause_all(tavern *t, bool pause)
{
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        npc *n = &t->npcs[i];
        exl2_job job = n->job.id ? n->job : n->thinks;
        if (job.id && !n->waits) {
            exl2_job_pause(t->engine, job, pause);
        }
    }
}

static exl2_result put_sessions(stream *x, const tavern *t)
{
    exl2_result result = EXL2_OK;
    for (uint32_t i = 0; result >= 0 && i < CAST_SIZE; i++) {
        size_t need = 0;
        result = exl2_session_save(t->engine, t->npcs[i].session, 0, NULL, 0, &need);
        char *data = memory_take(need + 1, 1);
        result = result < 0 ? result : exl2_session_save(t->engine, t->npcs[i].session, 0, data, need, &need);
        put_bytes(x, &data, &need);
        free(data);
    }
    return result;
}

bool saved_write(tavern *t, const npc *partner, const char *path, char why[SAVED_WHY_BYTES])
{
    stream x = { 0 };
    bool speaks[CAST_SIZE];
    uint32_t version = VERSION;
    uint64_t people = hash_cast(t->people);
    if (!all_begun(t)) {
        snprintf(why, SAVED_WHY_BYTES, "%s is not written: somebody has been asked but has not begun to think", path);
        return false;
    }
    pause_all(t, true);
    memory_text_add(&x.out, MAGIC, 8);
    put_u32(&x, &version, VERSION);
    put_u64(&x, &people);
    exl2_result result = put_sessions(&x, t);
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        speaks[i] = t->npcs[i].job.id != 0;
    }
    put_game(&x, t, t, &partner, speaks);
    pause_all(t, false);
    uint64_t sum = hash_bytes(HASH_BEGIN, x.out.data, x.out.bytes);
    put_u64(&x, &sum);
    bool good = result >= 0 || engine_says(t, why, path);
    if (good && !text_file_replace(path, x.out.data, x.out.bytes)) {
        snprintf(why, SAVED_WHY_BYTES, "%s cannot be written: %s", path, strerror(errno));
        good = false;
    }
    free(x.out.data);
    return good;
}

/* ---- read ---- */

typedef struct sessions { /* snapshots inside of the file */
    char *data[CAST_SIZE];
    size_t bytes[CAST_SIZE];
} sessions;

/* Checks what the values must have in common. `home`: the tavern that t will be copied to. */
static bool fits_together(const tavern *home, const tavern *t, const bool speaks[CAST_SIZE])
{
    size_t open = 0, speakers = 0;
    bool good = true;
    for (size_t i = 0; i < t->count; i++) {
        open += !t->lines[i].ended;
    }
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        const npc *n = &t->npcs[i];
        speakers += speaks[i];
        good = good && n->past_tokens > 0 && n->past_tokens <= n->known_tokens;
        good = good && (!speaks[i] || (n->line < t->count && t->lines[n->line].by == &home->npcs[i]
                                       && !t->lines[n->line].ended));
    }
    return good && open == speakers;
}

static void free_evening(tavern *t)
{
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        free(t->npcs[i].talk);
    }
    for (size_t i = 0; t->lines && i < t->count; i++) {
        free(t->lines[i].text);
    }
    free(t->lines);
    free(t->file);
}

/* Reads the file's bytes into `fresh`, which is a copy of t without what an evening owns. */
static bool read_evening(tavern *t, tavern *fresh, size_t bytes, const npc **partner, bool speaks[CAST_SIZE],
                         sessions *s, const char *path, char why[SAVED_WHY_BYTES])
{
    stream x = { .reads = true, .at = fresh->file, .end = fresh->file + bytes };
    uint32_t version = 0;
    uint64_t people = 0, sum = 0;
    if (bytes < HEAD_BYTES + SUM_BYTES || memcmp(x.at, MAGIC, 8) != 0) {
        snprintf(why, SAVED_WHY_BYTES, "%s is no saved evening", path);
        return false;
    }
    stream last = { .reads = true, .at = x.end - SUM_BYTES, .end = x.end };
    put_u64(&last, &sum);
    x.at += 8;
    x.end -= SUM_BYTES;
    put_u32(&x, &version, UINT32_MAX);
    put_u64(&x, &people);
    if (version != VERSION) {
        snprintf(why, SAVED_WHY_BYTES, "%s has version %u, but this program reads %u", path, version, VERSION);
        return false;
    }
    if (sum != hash_bytes(HASH_BEGIN, fresh->file, bytes - SUM_BYTES)) {
        snprintf(why, SAVED_WHY_BYTES, "%s is damaged: its sum is not that of its bytes", path);
        return false;
    }
    if (people != hash_cast(t->people)) {
        snprintf(why, SAVED_WHY_BYTES, "%s is of an evening with other people: their files are not the same", path);
        return false;
    }
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        put_bytes(&x, &s->data[i], &s->bytes[i]);
    }
    put_game(&x, t, fresh, partner, speaks);
    if (x.bad || x.at != x.end || !fits_together(t, fresh, speaks)) {
        snprintf(why, SAVED_WHY_BYTES, "%s is damaged: its values do not fit together", path);
        return false;
    }
    return true;
}

/* Restores the sessions into new ones, so that the old ones stay if one is rejected. */
static bool restore_sessions(tavern *fresh, const sessions *s, const bool speaks[CAST_SIZE], const char *path,
                             char why[SAVED_WHY_BYTES])
{
    exl2_session_info info;
    exl2_result result = exl2_session_get(fresh->engine, fresh->world, &info);
    exl2_model model = info.model;
    for (uint32_t i = 0; result >= 0 && i < CAST_SIZE; i++) {
        npc *n = &fresh->npcs[i];
        result = exl2_session_open(fresh->engine, model, &n->session);
        result = result < 0 ? result : exl2_session_restore(fresh->engine, n->session, s->data[i], s->bytes[i]);
        result = result < 0 ? result : exl2_session_get(fresh->engine, n->session, &info);
        if (result >= 0 && (info.tokens < n->known_tokens || (speaks[i] && !info.resumes))) {
            snprintf(why, SAVED_WHY_BYTES, "%s is damaged: what %s said does not fit the game", path, n->who->name);
            return false;
        }
    }
    return result >= 0 || engine_says(fresh, why, path);
}

/* Continues the turns in the new sessions. Nothing is heard before the next step, so a failure can still be undone. */
static bool resume_turns(tavern *t, const bool speaks[CAST_SIZE], const char *path, char why[SAVED_WHY_BYTES])
{
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        if (!tavern_resume(t, &t->npcs[i], speaks[i])) {
            snprintf(why, SAVED_WHY_BYTES, "%s: %s", path, t->error);
            return false;
        }
    }
    return true;
}

/* What an evening owns, and its jobs; the rest of the tavern stays. */
static tavern without_evening(const tavern *t)
{
    tavern fresh = *t;
    fresh.lines = NULL;
    fresh.count = fresh.cap = 0;
    fresh.file = NULL;
    fresh.thinking = 0;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        npc *n = &fresh.npcs[i];
        n->session = (exl2_session){ 0 };
        n->job = n->thinks = (exl2_job){ 0 };
        n->waits = false;
        n->talk = NULL;
    }
    return fresh;
}

static void close_sessions(const tavern *t)
{
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        if (t->npcs[i].session.id) {
            exl2_session_close(t->engine, t->npcs[i].session); /* ends its job; the tavern ignores that job's DONE */
        }
    }
}

bool saved_read(tavern *t, npc **partner, const char *path, char why[SAVED_WHY_BYTES])
{
    tavern old, fresh;
    const npc *talks = NULL;
    bool speaks[CAST_SIZE] = { false };
    sessions s = { 0 };
    size_t bytes = 0;
    char *file = text_file_load(path, FILE_MAX, &bytes);
    if (!file) {
        snprintf(why, SAVED_WHY_BYTES, "%s cannot be read: %s", path,
                 errno == EFBIG ? "it is larger than 64 MiB" : strerror(errno));
        return false;
    }
    pause_all(t, true); /* with a worker, calls that wait deliver text, which changes *t */
    fresh = without_evening(t);
    fresh.file = file;
    bool good = read_evening(t, &fresh, bytes, &talks, speaks, &s, path, why)
             && restore_sessions(&fresh, &s, speaks, path, why);
    old = *t; /* a job may have ended meanwhile */
    if (good) {
        *t = fresh;
        good = resume_turns(t, speaks, path, why);
        fresh = *t;
    }
    close_sessions(good ? &old : &fresh);
    free_evening(good ? &old : &fresh);
    if (good) {
        *partner = talks ? t->npcs + (talks - t->npcs) : NULL;
        return true;
    }
    old.grammar_ms = fresh.grammar_ms; /* grammars were made, and took time */
    old.extra_ns = fresh.extra_ns;
    old.grammar_allocations = fresh.grammar_allocations;
    *t = old;
    pause_all(t, false);
    return false;
}
