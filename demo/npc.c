/* npc.c: The Drowned Lantern: a tavern at night, a stolen key, three people to talk with. It runs a 60 Hz loop in
   which the engine gets --cpu-us of CPU time per frame and, on a GPU, --gpu-us of GPU time. The visitor is a person at
   the terminal or a script.
   takes: a model folder, the people's files, a terminal or a script.
   gives: main.
   owns:  nothing beyond main. */
#include "common/clock.h"
#include "common/console.h"
#include "common/interrupt.h"
#include "common/pace.h"
#include "common/text_file.h"
#include "common/trace.h"
#include "npc/commands.h"
#include "npc/end_card.h"
#include "npc/keyboard.h"
#include "npc/patrons.h"
#include "npc/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef NPC_PEOPLE
#define NPC_PEOPLE "demo/npc"
#endif

#define LOADING_US 14000u /* engine time per frame while only the loading screen is shown */
#define GAUGE_FRAMES 30   /* the status row changes twice a second */
#define P99_FRAMES 600    /* frames of the status row's p99 */

typedef struct npc_options {
    const char *model, *people, *script, *json, *png, *transcript, *trace;
    uint32_t cpu_us, gpu_us, turns, patrons;
    bool worker;
    tavern_options tavern;
    exl2_model_desc desc; /* of the model: what the flags say */
    host_options host;
} npc_options;

typedef struct gauge { /* figures of the status row, over the last GAUGE_FRAMES frames */
    uint32_t frames;
    double step_ms, seconds;
    uint64_t tokens; /* tokens that were spoken before these frames */
    char text[160];
} gauge;

typedef struct game {
    const npc_options *options;
    host host;
    cast cast;
    tavern tavern;
    patrons patrons;
    visitor visitor;
    screen screen;
    keyboard keyboard;
    script script;
    bool model_ready, open;       /* open: the persona of every person is in the cache */
    float loaded;                 /* share of the model that is loaded, 0..1 */
    uint64_t display_ns, last_ns; /* refresh of the display; end of the last frame */
    uint64_t talk_ns;
    exl2_engine_stats at_ready;
    uint32_t pages_used, pages_shared, pages_cached; /* the most at one time */
    samples frames, steps;
    trace trace;
    gauge gauge;
} game;

/* ---- before the door opens ---- */

static exl2_flow on_load(void *user, const exl2_event *event)
{
    game *g = user;
    g->loaded = event->progress;
    return EXL2_CONTINUE;
}

static void on_warning(void *user, const char *text)
{
    screen_note(user, "Warning: %s", text);
}

static bool begin_loading(game *g)
{
    exl2_model_desc d = g->options->desc;
    d.path = g->options->model;
    d.on_event = on_load;
    d.user = g;
    d.grammars = true;
    d.experts_active = g->host.experts;
    d.cache.tokens = (uint64_t)d.context_max * CAST_SIZE /* the three contexts include the pages of the world */
                   + (uint64_t)g->options->patrons * PATRONS_CACHE_TOKENS;
    host_cache(&g->host, &d);
    if (exl2_model_open(g->host.engine, &d, &g->host.model) < 0) {
        host_failed(&g->host);
        return false;
    }
    if (g->options->worker && exl2_worker_start(g->host.engine) < 0) {
        host_failed(&g->host);
        return false;
    }
    return true;
}

static bool fill_tavern(game *g)
{
    if (!g->host.info.has_tokenizer) {
        fprintf(stderr, "%s has no tokenizer, which npc needs\n", g->options->model);
        return false;
    }
    g->model_ready = true;
    exl2_stats(g->host.engine, &g->at_ready);
    if (!tavern_open(&g->tavern, &g->host, &g->cast, &g->options->tavern)) {
        fprintf(stderr, "%s\n", g->tavern.error);
        return false;
    }
    return true;
}

static bool open_door(game *g)
{
    g->open = true;
    screen_note(&g->screen, "Marla, Osric and Pike look up. Begin with a name: 'marla, good evening'; "
                            "/help lists the rest.");
    return patrons_open(&g->patrons, &g->tavern, g->options->patrons);
}

/* One frame of the loading screen: loads the model, then prefills the world and the personas. */
static bool prepare(game *g)
{
    char status[80];
    exl2_step_desc slice = { .cpu_us = LOADING_US, .gpu_us = LOADING_US };
    exl2_engine_stats stats;
    uint64_t start = clock_ns();
    exl2_step(g->host.engine, &slice);
    trace_step(&g->trace, LOADING_US * UINT64_C(1000), clock_ns() - start);
    if (!g->model_ready) {
        exl2_result state = exl2_model_state(g->host.engine, g->host.model);
        if (state < 0 || exl2_model_get(g->host.engine, g->host.model, &g->host.info) < 0) {
            host_failed(&g->host);
            return false;
        }
        snprintf(status, sizeof status, "loading the model, %d%%", (int)(g->loaded * 100));
        if (state == EXL2_OK && !fill_tavern(g)) {
            return false;
        }
    } else {
        exl2_stats(g->host.engine, &stats);
        snprintf(status, sizeof status, "everybody remembers the evening, %u tokens", (unsigned)stats.tokens_in);
    }
    screen_draw(&g->screen, &g->tavern, &(screen_foot){ .status = status });
    pace_display(&g->display_ns);
    if (g->tavern.error[0] || (tavern_is_ready(&g->tavern) && !open_door(g))) {
        fprintf(stderr, "%s\n", g->tavern.error);
        return false;
    }
    return true;
}

/* ---- the evening ---- */

/* Of the newest frames: sorting all of a long evening would itself delay a frame. */
static double frame_p99(const game *g)
{
    size_t count = g->frames.count < P99_FRAMES ? g->frames.count : P99_FRAMES;
    samples newest = { .values = g->frames.values + g->frames.count - count, .count = count };
    double p99 = samples_percentile(&newest, 99);
    free(newest.sorted);
    return p99;
}

static void measure(game *g, double frame_ms, double step_ms, bool talk)
{
    gauge *m = &g->gauge;
    exl2_engine_stats s;
    exl2_stats(g->host.engine, &s);
    g->pages_used = s.pages_used > g->pages_used ? s.pages_used : g->pages_used;
    g->pages_shared = s.pages_shared > g->pages_shared ? s.pages_shared : g->pages_shared;
    g->pages_cached = s.pages_cached > g->pages_cached ? s.pages_cached : g->pages_cached;
    samples_add(&g->frames, frame_ms);
    samples_add(&g->steps, step_ms);
    m->step_ms = step_ms > m->step_ms ? step_ms : m->step_ms;
    m->seconds += talk ? frame_ms * 1e-3 : 0;
    if (++m->frames < GAUGE_FRAMES) {
        return;
    }
    double speed = m->seconds > 0 ? (double)(g->tavern.spoken_tokens - m->tokens) / m->seconds : 0;
    snprintf(m->text, sizeof m->text, "frame p99 %.1f ms  %.0f tok/s  %.1f a pass  pages %u (%u cached, %u shared)  "
             "%.0f of %.0f MB  engine %.1f of %.1f ms", frame_p99(g), speed, tavern_tokens_per_pass(&g->tavern),
             s.pages_used, s.pages_cached, s.pages_shared,
             (double)(s.host_bytes + s.device_bytes) * 1e-6, (double)end_card_plan(&g->host.info) * 1e-6, m->step_ms,
             g->options->cpu_us * 1e-3);
    m->frames = 0;
    m->step_ms = m->seconds = 0;
    m->tokens = g->tavern.spoken_tokens;
}

/* Runs the visitor's command of this frame, if there is one. false: failed; the message is in tavern.error. */
static bool visit(game *g)
{
    const char *line = g->script.text ? script_line(&g->script, &g->tavern) : keyboard_line(&g->keyboard);
    if (!line) {
        return true;
    }
    bool good = command_run(&g->visitor, line);
    tavern_go_on(&g->tavern);
    script_listen(&g->script, &g->tavern);
    return good;
}

static bool ended(const game *g)
{
    return g->visitor.quits || g->script.ended || g->keyboard.at_end || interrupted() || ferror(stdout);
}

/* Gives the engine its budget of this frame, less the time that hushes and grammars have already used. Returns the
   time of both in ms. */
static double step_engine(game *g)
{
    uint32_t extra_us = (uint32_t)(g->tavern.extra_ns / 1000), cpu_us = g->options->cpu_us;
    exl2_step_desc slice = { .cpu_us = cpu_us > extra_us ? cpu_us - extra_us : 1, .gpu_us = g->options->gpu_us };
    uint64_t start = clock_ns();
    exl2_step(g->host.engine, &slice);
    uint64_t ns = clock_ns() - start + g->tavern.extra_ns;
    g->tavern.extra_ns = 0;
    trace_step(&g->trace, cpu_us * UINT64_C(1000), ns);
    return (double)ns * 1e-6;
}

static bool run_frame(game *g)
{
    bool good = visit(g);
    bool talk = tavern_speakers(&g->tavern) > 0;
    if (talk || g->tavern.thinking) {
        patrons_hush(&g->patrons);
    } else {
        good = good && patrons_murmur(&g->patrons);
    }
    double step_ms = step_engine(g);
    if (!good || g->tavern.error[0]) {
        fprintf(stderr, "%s\n", g->tavern.error);
        return false;
    }
    screen_draw(&g->screen, &g->tavern, &(screen_foot){
        .status = g->gauge.text, .murmur = g->patrons.silent ? "" : g->patrons.heard,
        .typed = g->script.text ? NULL : &g->keyboard.line });
    uint64_t end = g->options->turns ? clock_ns() : pace_display(&g->display_ns);
    g->talk_ns += talk ? end - g->last_ns : 0;
    measure(g, (double)(end - g->last_ns) * 1e-6, step_ms, talk);
    g->last_ns = end;
    return true;
}

static bool run_game(game *g)
{
    bool good = begin_loading(g);
    g->display_ns = clock_ns();
    while (good && !g->open && !interrupted()) {
        good = prepare(g);
    }
    g->last_ns = g->display_ns = clock_ns();
    while (good && g->open && !ended(g)) {
        good = run_frame(g);
    }
    if (good && g->open) {
        tavern_hush(&g->tavern);
        screen_draw(&g->screen, &g->tavern, &(screen_foot){ 0 });
    }
    return good;
}

/* ---- afterwards ---- */

static bool say_goodbye(game *g)
{
    const npc_options *o = g->options;
    end_card c = { .model = o->model, .threads = pool_width(g->host.pool), .cpu_us = o->cpu_us, .gpu_us = o->gpu_us,
                   .on_gpu = host_on_gpu(&g->host), .tavern = &g->tavern, .patrons = &g->patrons, .frames = &g->frames,
                   .steps = &g->steps,
                   .talk_seconds = (double)g->talk_ns * 1e-9, .pages_used = g->pages_used,
                   .pages_shared = g->pages_shared, .pages_cached = g->pages_cached,
                   .plan_bytes = end_card_plan(&g->host.info) };
    exl2_stats(g->host.engine, &c.stats);
    c.allocations = c.stats.allocations - g->at_ready.allocations - g->tavern.grammar_allocations;
    end_card_print(&c, &g->screen);
    bool good = !o->json || end_card_save_json(&c, o->json);
    return (!o->png || end_card_save_png(&c, o->png)) && good;
}

/* Shows the room as a visitor sees it: the first paragraph of the world. Keys that are typed now are read when the
   tavern is open. */
static void show_room(game *g)
{
    const char *world = g->cast.world, *end = strstr(world, "\n\n");
    screen_open(&g->screen);
    if (!g->script.text && g->screen.live) {
        keyboard_open(&g->keyboard);
    }
    screen_heading(&g->screen, "The Drowned Lantern");
    screen_note(&g->screen, "%.*s", end ? (int)(end - world) : (int)strlen(world), world);
}

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

static bool can_visit(const npc_options *o)
{
    bool good = o->script || o->turns || (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
    if (!o->model) {
        fputs("npc needs a model: npc --model DIR; sh demo/run.sh fetches one\n", stderr);
        return false;
    }
    if (!good) {
        fputs("npc needs a terminal, or --script FILE, or --turns N\n", stderr);
    }
    return good && can_write(o->json) && can_write(o->png);
}

static int run(const npc_options *o)
{
    game g = { .options = o };
    g.visitor = (visitor){ .tavern = &g.tavern, .screen = &g.screen, .transcript_path = o->transcript };
    bool good = can_visit(o) && cast_read(&g.cast, o->people) && (!o->script || script_read(&g.script, o->script))
             && trace_open(&g.trace, o->trace);
    host_options traced = o->host;
    traced.zones = trace_zones(&g.trace);
    good = good && host_open(&g.host, &traced);
    if (good && o->turns) {
        script_make(&g.script, o->turns);
    }
    if (good) {
        show_room(&g);
        g.host.on_warning = on_warning;
        g.host.warning_user = &g.screen;
        good = run_game(&g);
        screen_close(&g.screen);
        keyboard_close(&g.keyboard);
        good = (!g.open || say_goodbye(&g)) && good;
    }
    if (good && g.tavern.invalid_turns) {
        fprintf(stderr, "%u of %u turns were not valid in the game\n", g.tavern.invalid_turns, g.tavern.turns);
        good = false;
    }
    if (good && g.script.text && (g.visitor.failed || interrupted())) {
        fprintf(stderr, "%s\n", g.visitor.failed ? "a file could not be written or read"
                                                 : "interrupted before the end of the script");
        good = false;
    }
    host_close(&g.host);
    tavern_close(&g.tavern);
    script_close(&g.script);
    cast_free(&g.cast);
    samples_free(&g.frames);
    samples_free(&g.steps);
    good = trace_close(&g.trace) && good;
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    interrupt_watch(); /* first, so that no Ctrl-C is lost */
    npc_options o = { .people = NPC_PEOPLE, .transcript = "lantern.txt", .cpu_us = 4000, .gpu_us = 4000,
                      .tavern = { .seed = 2, .temperature = 0.4f }, .desc.context_max = TAVERN_CONTEXT };
    const arg flags[] = {
        { "--model", ARG_TEXT, &o.model, "DIR", "model folder" },
        { "--cpu-us", ARG_U32, &o.cpu_us, "N", "CPU microseconds per frame for the engine (4000)" },
        { "--gpu-us", ARG_U32, &o.gpu_us, "N", "GPU microseconds per frame, if it runs on a GPU (4000)" },
        { "--seed", ARG_U32, &o.tavern.seed, "N", "the same seed and lines give the same answers (2)" },
        { "--temperature", ARG_FLOAT, &o.tavern.temperature, "X",
          "above 1: more random; below 1: less; 0: greedy (0.4)" },
        { "--worker", ARG_BOOL, &o.worker, NULL, "a thread of the engine does the work, with these budgets" },
        { "--one-by-one", ARG_BOOL, &o.tavern.one_by_one, NULL, "samples every token in a pass of its own" },
        { "--patrons", ARG_U32, &o.patrons, "N", "people who murmur while nobody speaks with you, at most 48 (0)" },
        { "--script", ARG_TEXT, &o.script, "F", "file with the visitor's lines" },
        { "--turns", ARG_U32, &o.turns, "N", "asks made-up questions until N turns are answered, without pauses" },
        { "--json", ARG_TEXT, &o.json, "F", "file to write at the end: all lines and figures, as JSON" },
        { "--png", ARG_TEXT, &o.png, "F", "PNG file to write at the end: picture of the frame times" },
        { "--transcript", ARG_TEXT, &o.transcript, "F", "file that /transcript writes (lantern.txt)" },
        { "--trace", ARG_TEXT, &o.trace, "F", "CSV file to write: predicted and measured time of each step's parts" },
        { "--people", ARG_TEXT, &o.people, "DIR", "folder with world.txt and the people's files" },
        { "--context", ARG_U32, &o.desc.context_max, "N", "tokens that each person remembers (2048)" },
        HOST_ROPE_ARGS(o.desc),
        HOST_ARGS(o.host),
    };
    const args_desc d = { "npc",
                          "The Drowned Lantern: talk with three people in a tavern, inside a 60 Hz loop.",
                          NULL, 0, 0, flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc - 1, console_start(argc, argv) + 1);
    if (parsed == ARGS_OK && o.script && o.turns) {
        parsed = args_wrong(&d, "give at most one of --script and --turns");
    }
    if (parsed == ARGS_OK && o.trace && o.worker) {
        parsed = args_wrong(&d, "--trace is of the main thread's steps: give it without --worker");
    }
    if (parsed == ARGS_OK && o.desc.context_max == 0) {
        parsed = args_wrong(&d, "--context must be at least 1");
    }
    if (parsed == ARGS_OK && o.patrons > PATRONS_MAX) {
        parsed = args_wrong(&d, "--patrons must be at most %u", PATRONS_MAX);
    }
    if (parsed == ARGS_OK && !(o.tavern.temperature >= 0 && o.tavern.temperature <= 100)) {
        parsed = args_wrong(&d, "--temperature must be 0 to 100");
    }
    if (parsed == ARGS_OK && (o.cpu_us == 0 || o.gpu_us == 0)) {
        parsed = args_wrong(&d, "--cpu-us and --gpu-us must be at least 1");
    }
    return parsed == ARGS_OK ? text_stdout_end(run(&o)) : parsed == ARGS_HELP ? text_stdout_end(0) : 2;
}
