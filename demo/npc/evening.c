/* evening.c: see evening.h.
   takes: the engine's events.
   gives: what evening.h declares.
   owns:  what evening.h says. */
#include "evening.h"

#include "../common/clock.h"
#include "../common/interrupt.h"
#include "../common/text_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOADING_US 14000u /* engine time per frame while only the loading screen is shown */
#define P99_FRAMES 600    /* frames of evening_frame_p99 */

/* ---- options ---- */

args_result evening_args_check(const args_desc *d, const evening_options *o)
{
    if (o->trace && o->worker) {
        return args_wrong(d, "--trace is of the main thread's steps: give it without --worker");
    }
    if (o->desc.context_max == 0) {
        return args_wrong(d, "--context must be at least 1");
    }
    if (o->patrons > PATRONS_MAX) {
        return args_wrong(d, "--patrons must be at most %u", PATRONS_MAX);
    }
    if (!(o->tavern.temperature >= 0 && o->tavern.temperature <= 100)) {
        return args_wrong(d, "--temperature must be 0 to 100");
    }
    if (o->cpu_us == 0 || o->gpu_us == 0) {
        return args_wrong(d, "--cpu-us and --gpu-us must be at least 1");
    }
    return ARGS_OK;
}

/* ---- before the door opens ---- */

/* Is it possible to write the file at the end? */
static bool can_write(const char *path)
{
    text_file_part f;
    if (path && !text_file_begin(&f, path)) {
        fprintf(stderr, "%s cannot be written: %s\n", path, strerror(errno));
        return false;
    }
    if (path) {
        text_file_end(&f, false); /* an older file stays */
    }
    return true;
}

bool evening_open(evening *e, const evening_options *o)
{
    e->options = o;
    e->visitor = (visitor){ .tavern = &e->tavern, .transcript_path = o->transcript };
    bool good = can_write(o->json) && can_write(o->png) && cast_read(&e->cast, o->people)
             && (!o->script || script_read(&e->script, o->script))
             && trace_open(&e->trace, o->trace);
    host_options traced = o->host;
    traced.zones = trace_zones(&e->trace);
    traced.bytes_max = o->memory;
    good = good && host_open(&e->host, &traced);
    if (good && o->turns) {
        script_make(&e->script, o->turns);
    }
    return good;
}

static exl2_flow on_load(void *user, const exl2_event *event)
{
    evening *e = user;
    e->loaded = event->progress;
    return EXL2_CONTINUE;
}

bool evening_begin(evening *e)
{
    const evening_options *o = e->options;
    exl2_model_desc d = o->desc;
    d.path = o->model;
    d.on_event = on_load;
    d.user = e;
    d.grammars = true;
    images_room(&(images){ 0 }, &o->images, 0, &d);
    d.experts_active = e->host.experts;
    d.cache.tokens = (uint64_t)d.context_max * CAST_SIZE /* the three contexts include the pages of the world */
                   + (uint64_t)o->patrons * PATRONS_CACHE_TOKENS;
    host_place(&e->host, &d);
    loras_plan(&d, o->loras.count);
    d.steer_max = o->moods.count;
    if (exl2_model_open(e->host.engine, &d, &e->host.model) < 0
        || (o->worker && exl2_worker_start(e->host.engine) < 0)) {
        host_failed(&e->host);
        return false;
    }
    return true;
}

/* Whether `bytes` bytes of the text are the person's name, in capitals or not. */
static bool is_name(const character *who, const char *text, size_t bytes)
{
    size_t same = 0;
    while (same < bytes && tolower((unsigned char)who->name[same]) == tolower((unsigned char)text[same])) {
        same++;
    }
    return same == bytes && who->name[bytes] == 0;
}

/* Divides NAME=FILE. *person: whose it is. NULL, with a message printed: it names nobody. */
static const char *file_of(const evening *e, const char *flag, const char *text, uint32_t *person)
{
    const char *equals = strchr(text, '=');
    *person = 0;
    while (equals && *person < CAST_SIZE && !is_name(&e->cast.people[*person], text, (size_t)(equals - text))) {
        ++*person;
    }
    if (!equals || *person == CAST_SIZE) {
        fprintf(stderr, "%s %s: it must begin with the name of a person and '=', each name once\n", flag, text);
        return NULL;
    }
    return equals + 1;
}

/* Loads the adapters and the control vectors of the people. false, with a message printed: one of them failed, or names
   nobody. */
static bool load_adapters(evening *e, tavern_options *out)
{
    const arg_texts *adapters = &e->options->loras, *moods = &e->options->moods;
    for (uint32_t i = 0; i < adapters->count + moods->count; i++) {
        bool adapter = i < adapters->count;
        const char *flag = adapter ? "--lora" : "--mood";
        const char *text = adapter ? adapters->items[i] : moods->items[i - adapters->count];
        uint32_t person;
        const char *file = file_of(e, flag, text, &person);
        loras lora = { .count = 0 };
        steers mood = { .count = 0 };
        if (!file) {
            return false;
        }
        if (adapter ? out->loras[person].lora.id : out->moods[person].steer.id) {
            fprintf(stderr, "%s %s: each person can have one\n", flag, text);
            return false;
        }
        const arg_texts one = { { file }, 1 };
        if (adapter ? !loras_load(e->host.engine, e->host.model, &one, &lora)
                    : !steers_load(e->host.engine, e->host.model, &one, &mood)) {
            return false;
        }
        if (adapter) {
            out->loras[person] = lora.uses[0];
        } else {
            out->moods[person] = mood.uses[0];
        }
    }
    return true;
}

static bool fill_tavern(evening *e)
{
    tavern_options o = e->options->tavern;
    if (!e->host.info.has_tokenizer) {
        fprintf(stderr, "%s has no tokenizer, which the tavern needs\n", e->options->model);
        return false;
    }
    if (!load_adapters(e, &o)) {
        return false;
    }
    e->model_ready = true;
    exl2_stats(e->host.engine, &e->at_ready);
    return tavern_open(&e->tavern, &e->host, &e->cast, &o);
}

static bool open_door(evening *e)
{
    e->open = true;
    visitor_note(&e->visitor, "Marla, Osric and Pike look up. Begin with a name: 'marla, good evening'; "
                              "/help lists the rest.");
    char offload[160];
    if (host_offload_text(&e->host.info, offload, sizeof offload)) {
        visitor_note(&e->visitor, "%s", offload);
    }
    return patrons_open(&e->patrons, &e->tavern, e->options->patrons);
}

bool evening_prepare(evening *e, char *status, size_t cap)
{
    exl2_step_desc slice = { .cpu_us = LOADING_US, .gpu_us = LOADING_US };
    uint64_t start = clock_ns();
    bool good = true;
    exl2_step(e->host.engine, &slice);
    trace_step(&e->trace, LOADING_US * UINT64_C(1000), clock_ns() - start);
    exl2_stats(e->host.engine, &e->now);
    if (!e->model_ready) {
        exl2_result state = exl2_model_state(e->host.engine, e->host.model);
        if (state < 0 || exl2_model_get(e->host.engine, e->host.model, &e->host.info) < 0) {
            host_failed(&e->host);
            return false;
        }
        snprintf(status, cap, "loading the model, %d%%", (int)(e->loaded * 100));
        good = state != EXL2_OK || fill_tavern(e);
    } else {
        snprintf(status, cap, "everybody remembers the evening, %u tokens", (unsigned)e->now.tokens_in);
        good = !e->tavern.error[0] && (!tavern_is_ready(&e->tavern) || open_door(e));
    }
    if (!good && e->tavern.error[0]) {
        fprintf(stderr, "%s\n", e->tavern.error);
    }
    return good;
}

/* ---- the evening ---- */

const char *evening_line(evening *e)
{
    return e->script.text ? script_line(&e->script, &e->tavern) : NULL;
}

void evening_run(evening *e, const char *line)
{
    command_run(&e->visitor, line); /* the message of a failure is in tavern.error */
    tavern_go_on(&e->tavern);
    script_listen(&e->script, &e->tavern);
}

static double give_budget(evening *e)
{
    uint32_t extra_us = (uint32_t)(e->tavern.extra_ns / 1000), cpu_us = e->options->cpu_us;
    exl2_step_desc slice = { .cpu_us = cpu_us > extra_us ? cpu_us - extra_us : 1, .gpu_us = e->options->gpu_us };
    uint64_t start = clock_ns();
    exl2_step(e->host.engine, e->unlimited ? &(exl2_step_desc){ 0 } : &slice);
    uint64_t ns = clock_ns() - start + e->tavern.extra_ns;
    e->tavern.extra_ns = 0;
    trace_step(&e->trace, cpu_us * UINT64_C(1000), ns);
    return (double)ns * 1e-6;
}

bool evening_step(evening *e, double *step_ms)
{
    bool good = true;
    e->talk = tavern_speakers(&e->tavern) > 0;
    if (e->talk || e->tavern.thinking) {
        patrons_hush(&e->patrons);
    } else {
        good = patrons_murmur(&e->patrons);
    }
    *step_ms = give_budget(e);
    if (!good || e->tavern.error[0]) {
        fprintf(stderr, "%s\n", e->tavern.error);
        return false;
    }
    return true;
}

double evening_measure(evening *e, uint64_t end_ns, double step_ms)
{
    double frame_ms = (double)(end_ns - e->last_ns) * 1e-6;
    exl2_engine_stats *s = &e->now;
    exl2_stats(e->host.engine, s);
    e->talk_ns += e->talk ? end_ns - e->last_ns : 0;
    e->last_ns = end_ns;
    e->pages_used = s->pages_used > e->pages_used ? s->pages_used : e->pages_used;
    e->pages_shared = s->pages_shared > e->pages_shared ? s->pages_shared : e->pages_shared;
    e->pages_cached = s->pages_cached > e->pages_cached ? s->pages_cached : e->pages_cached;
    samples_add(&e->frames, frame_ms);
    samples_add(&e->steps, step_ms);
    return frame_ms;
}

/* Sorting all of a long evening would itself delay a frame. */
double evening_frame_p99(const evening *e)
{
    size_t count = e->frames.count < P99_FRAMES ? e->frames.count : P99_FRAMES;
    samples newest = { .values = e->frames.values + e->frames.count - count, .count = count };
    double p99 = samples_percentile(&newest, 99);
    free(newest.sorted);
    return p99;
}

uint64_t evening_memory_cap(const evening *e)
{
    return e->options->memory ? e->options->memory : end_card_plan(&e->host.info);
}

/* ---- afterwards ---- */

end_card evening_card(evening *e)
{
    const evening_options *o = e->options;
    end_card c = { .model = o->model, .threads = pool_width(e->host.pool), .cpu_us = o->cpu_us, .gpu_us = o->gpu_us,
                   .on_gpu = host_on_gpu(&e->host), .tavern = &e->tavern, .patrons = &e->patrons, .frames = &e->frames,
                   .steps = &e->steps,
                   .talk_seconds = (double)e->talk_ns * 1e-9, .pages_used = e->pages_used,
                   .pages_shared = e->pages_shared, .pages_cached = e->pages_cached,
                   .plan_bytes = end_card_plan(&e->host.info) };
    exl2_stats(e->host.engine, &c.stats);
    c.allocations = c.stats.allocations - e->at_ready.allocations - e->tavern.grammar_allocations;
    return c;
}

bool evening_is_good(const evening *e)
{
    bool good = e->tavern.invalid_turns == 0;
    if (!good) {
        fprintf(stderr, "%u of %u turns were not valid in the game\n", e->tavern.invalid_turns, e->tavern.turns);
    }
    if (good && e->script.text && (e->visitor.failed || interrupted())) {
        fprintf(stderr, "%s\n", e->visitor.failed ? "a file could not be written or read"
                                                  : "interrupted before the end of the script");
        good = false;
    }
    return good;
}

bool evening_close(evening *e)
{
    host_close(&e->host);
    tavern_close(&e->tavern);
    script_close(&e->script);
    cast_free(&e->cast);
    samples_free(&e->frames);
    samples_free(&e->steps);
    return trace_close(&e->trace);
}
