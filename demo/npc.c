/* npc.c: The Drowned Lantern: a tavern at night, a stolen key, three people to talk with. It runs a 60 Hz loop in
   which the engine gets --cpu-us of CPU time per frame and, on a GPU, --gpu-us of GPU time. The visitor is a person at
   the terminal or a script. demo/room.c is the same evening in a window.
   takes: a model folder, the people's files, a terminal or a script.
   gives: main.
   owns:  nothing beyond main. */
#include "common/clock.h"
#include "common/console.h"
#include "common/interrupt.h"
#include "common/pace.h"
#include "common/text_file.h"
#include "npc/evening.h"
#include "npc/keyboard.h"
#include "npc/screen.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GAUGE_FRAMES 30   /* the status row changes twice a second */

typedef struct gauge { /* figures of the status row, over the last GAUGE_FRAMES frames */
    uint32_t frames;
    double step_ms, seconds;
    uint64_t tokens; /* tokens that were spoken before these frames */
    char text[160];
} gauge;

typedef struct game {
    evening evening;
    screen screen;
    keyboard keyboard;
    uint64_t display_ns; /* refresh of the display */
    gauge gauge;
} game;

/* ---- what the player learns ---- */

static void on_warning(void *user, const char *text)
{
    screen_note(user, "Warning: %s", text);
}

static void note(void *user, const char *text)
{
    game *g = user;
    screen_note(&g->screen, "%s", text);
}

static void show(void *user, bool anew)
{
    game *g = user;
    if (anew) {
        g->screen.stands = 0; /* all lines are printed again */
    } else {
        screen_draw(&g->screen, &g->evening.tavern, &(screen_foot){ 0 });
    }
}

static bool prepare(game *g)
{
    char status[80];
    bool good = evening_prepare(&g->evening, status, sizeof status);
    if (good && !g->evening.open) {
        screen_draw(&g->screen, &g->evening.tavern, &(screen_foot){ .status = status });
        pace_display(&g->display_ns);
    }
    return good;
}

/* ---- the evening ---- */

static void measure(game *g, uint64_t end, double step_ms)
{
    gauge *m = &g->gauge;
    evening *e = &g->evening;
    const exl2_engine_stats *s = &e->now;
    double frame_ms = evening_measure(e, end, step_ms);
    m->step_ms = step_ms > m->step_ms ? step_ms : m->step_ms;
    m->seconds += e->talk ? frame_ms * 1e-3 : 0;
    if (++m->frames < GAUGE_FRAMES) {
        return;
    }
    double speed = m->seconds > 0 ? (double)(e->tavern.spoken_tokens - m->tokens) / m->seconds : 0;
    snprintf(m->text, sizeof m->text, "frame p99 %.1f ms  %.0f tok/s  %.1f a pass  pages %u (%u cached, %u shared)  "
             "%.0f of %.0f MB  engine %.1f of %.1f ms", evening_frame_p99(e), speed,
             tavern_tokens_per_pass(&e->tavern), s->pages_used, s->pages_cached, s->pages_shared,
             (double)(s->host_bytes + s->device_bytes) * 1e-6, (double)end_card_plan(&e->host.info) * 1e-6, m->step_ms,
             e->options->cpu_us * 1e-3);
    m->frames = 0;
    m->step_ms = m->seconds = 0;
    m->tokens = e->tavern.spoken_tokens;
}

static bool ended(const game *g)
{
    return g->evening.visitor.quits || g->evening.script.ended || g->keyboard.at_end || interrupted() || ferror(stdout);
}

static bool run_frame(game *g)
{
    evening *e = &g->evening;
    double step_ms;
    const char *line = e->script.text ? evening_line(e) : keyboard_line(&g->keyboard);
    if (line) {
        evening_run(e, line);
    }
    if (!evening_step(e, &step_ms)) {
        return false;
    }
    screen_draw(&g->screen, &e->tavern, &(screen_foot){
        .status = g->gauge.text, .murmur = e->patrons.silent ? "" : e->patrons.heard,
        .typed = e->script.text ? NULL : &g->keyboard.line });
    measure(g, e->options->turns ? clock_ns() : pace_display(&g->display_ns), step_ms);
    return true;
}

static bool run_game(game *g)
{
    evening *e = &g->evening;
    bool good = evening_begin(e);
    g->display_ns = clock_ns();
    while (good && !e->open && !interrupted()) {
        good = prepare(g);
    }
    e->last_ns = g->display_ns = clock_ns();
    while (good && e->open && !ended(g)) {
        good = run_frame(g);
    }
    if (good && e->open) {
        tavern_hush(&e->tavern);
        screen_draw(&g->screen, &e->tavern, &(screen_foot){ 0 });
    }
    return good;
}

/* ---- afterwards ---- */

static bool say_goodbye(game *g)
{
    const evening_options *o = g->evening.options;
    end_card c = evening_card(&g->evening);
    screen_heading(&g->screen, "The Drowned Lantern closes.");
    end_card_print(&c, note, g);
    screen_close(&g->screen);
    bool good = !o->json || end_card_save_json(&c, o->json);
    return (!o->png || end_card_save_png(&c, o->png)) && good;
}

/* Shows the room as a visitor sees it: the first paragraph of the world. Keys that are typed now are read when the
   tavern is open. */
static void show_room(game *g)
{
    const char *world = g->evening.cast.world, *end = strstr(world, "\n\n");
    screen_open(&g->screen);
    if (!g->evening.script.text && g->screen.live) {
        keyboard_open(&g->keyboard);
    }
    screen_heading(&g->screen, "The Drowned Lantern");
    screen_note(&g->screen, "%.*s", end ? (int)(end - world) : (int)strlen(world), world);
}

static bool can_visit(const evening_options *o)
{
    bool good = o->script || o->turns || (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
    if (!o->model) {
        fputs("npc needs a model: npc --model DIR; sh demo/run.sh fetches one\n", stderr);
        return false;
    }
    if (!good) {
        fputs("npc needs a terminal, or --script FILE, or --turns N\n", stderr);
    }
    return good;
}

static int run(const evening_options *o)
{
    game g = { 0 };
    evening *e = &g.evening;
    bool good = can_visit(o) && evening_open(e, o);
    if (good) {
        show_room(&g);
        e->host.on_warning = on_warning;
        e->host.warning_user = &g.screen;
        e->visitor.view = (visitor_view){ .user = &g, .note = note, .show = show };
        good = run_game(&g);
        screen_close(&g.screen);
        keyboard_close(&g.keyboard);
        good = (!e->open || say_goodbye(&g)) && good;
    }
    good = good && evening_is_good(e);
    good = evening_close(e) && good;
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    interrupt_watch(); /* first, so that no Ctrl-C is lost */
    evening_options o = EVENING_DEFAULTS;
    const arg flags[] = {
        EVENING_ARGS(o),
        { "--turns", ARG_U32, &o.turns, "N", "asks made-up questions until N turns are answered, without pauses" },
        { "--json", ARG_TEXT, &o.json, "FILE", "file to write at the end: all lines and figures, as JSON" },
        { "--png", ARG_TEXT, &o.png, "FILE", "PNG file to write at the end: picture of the frame times" },
        EVENING_MORE_ARGS(o),
    };
    const args_desc d = { "npc",
                          "The Drowned Lantern: talk with three people in a tavern, inside a 60 Hz loop.",
                          NULL, 0, 0, flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc - 1, console_start(argc, argv) + 1);
    if (parsed == ARGS_OK && o.script && o.turns) {
        parsed = args_wrong(&d, "give at most one of --script and --turns");
    }
    if (parsed == ARGS_OK) {
        parsed = evening_args_check(&d, &o);
    }
    return parsed == ARGS_OK ? text_stdout_end(run(&o)) : parsed == ARGS_HELP ? text_stdout_end(0) : 2;
}
