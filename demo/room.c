/* room.c: The Drowned Lantern in a window: the evening of npc.c with the same people, turns, lines and saves, and a
   room to walk in. Who walks away from a speaker ends the sentence in mid-word; what a turn does moves in the picture;
   a graph shows what the engine takes of each frame.
   takes: a model folder, the people's files, a display; a person at the keyboard or a script.
   gives: main.
   owns:  nothing beyond main. */
#include "common/clock.h"
#include "common/console.h"
#include "common/interrupt.h"
#include "common/pace.h"
#include "common/picture.h"
#include "common/text_file.h"
#include "npc/evening.h"
#include "npc/line_edit.h"
#include "room/bubbles.h"
#include "room/canvas.h"
#include "room/figures.h"
#include "room/keys.h"
#include "room/panel.h"
#include "room/scenery.h"
#include "room/stage.h"
#include "room/window.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HEIGHT 280             /* of the picture: the room and the panel */
#define PNG_SCALE 2
#define BYTES_PER_TOKEN 4.2f   /* of English: how much of the texts is in the cache, for the progress bar */

typedef struct room {
    evening evening;
    window *window;
    canvas picture, back;      /* back: what never moves */
    stage stage;
    panel panel;
    line_edit typed;
    keys keys;
    bool closed;
    uint32_t frame;            /* since the program began */
    uint32_t frames_left;      /* of --frames; 0 = no limit */
    uint64_t display_ns;
} room;

/* ---- what the player learns ---- */

static int partner_of(const room *r)
{
    const npc *n = r->evening.visitor.partner;
    return n ? (int)(n - r->evening.tavern.npcs) : -1;
}

static void note(void *user, const char *text)
{
    room *r = user;
    panel_note(&r->panel, text);
}

static void warn(void *user, const char *text)
{
    room *r = user;
    visitor_note(&r->evening.visitor, "Warning: %s", text);
}

static void show(void *user, bool anew)
{
    room *r = user;
    if (anew) {
        stage_anew(&r->stage, &r->evening.tavern, partner_of(r));
    }
}

/* ---- what the player does ---- */

static const char help[] =
    "Arrow keys          walk. Who stands before somebody talks with that one.\n"
    "Letters, Enter      say it. 'marla, good evening' calls her from anywhere.\n"
    "/shout TEXT         all three answer at once.\n"
    "Walk away           whoever speaks with you stops, in mid-word.\n"
    "F5, F9              save, and go on with what was saved, in mid-sentence too.\n"
    "F2                  takes the engine's budget away, or gives it back: watch the graph.\n"
    "F3                  who is here, what they hold, how full their context is.\n"
    "Page up, page down  older lines.  Home, End, Delete: edit.  Escape: empty line, no page.\n"
    "/help               all commands, which are those of the terminal.  /quit: go.";

/* Runs a line. A question that it asked brings the player to the person. */
static void run_line(room *r, const char *line)
{
    evening *e = &r->evening;
    size_t before = e->tavern.count;
    r->panel.note[0] = 0;
    r->panel.note_frames = 0;
    evening_run(e, line);
    for (size_t i = before; i < e->tavern.count; i++) {
        const tavern_line *l = &e->tavern.lines[i];
        if (!l->by && l->to) {
            const npc *n = tavern_find(&e->tavern, l->to, strlen(l->to));
            int who = n ? (int)(n - e->tavern.npcs) : -1;
            stage_begin_talk(&r->stage, who);
            if (who >= 0) {
                stage_go_to(&r->stage, who);
            }
        }
    }
}

static void type(room *r, const char *bytes)
{
    for (; *bytes; bytes++) {
        if (line_edit_byte(&r->typed, (unsigned char)*bytes) == LINE_ENTERED) {
            run_line(r, r->typed.entered.text);
        }
    }
}

/* Keys of the window become the bytes that a terminal sends for them, which line_edit.h reads. */
static void use_key(room *r, const window_event *event)
{
    switch (event->key) {
    case KEY_TEXT: type(r, event->text); break;
    case KEY_ENTER: type(r, "\r"); break;
    case KEY_BACKSPACE: type(r, "\b"); break;
    case KEY_DELETE: type(r, "\x1b[3~"); break;
    case KEY_HOME: type(r, "\x1b[H"); break;
    case KEY_END: type(r, "\x1b[F"); break;
    case KEY_PAGE_UP: type(r, "\x1b[A"); break;
    case KEY_PAGE_DOWN: type(r, "\x1b[B"); break;
    case KEY_ESCAPE:
        type(r, "\x1b[F\x15"); /* End, and Ctrl-U */
        r->panel.note_frames = 0;
        break;
    case KEY_F1:
        r->panel.note[0] = 0;
        panel_note(&r->panel, help);
        break;
    case KEY_F2: r->evening.unlimited = !r->evening.unlimited; break;
    case KEY_F3: run_line(r, "/who"); break;
    case KEY_F5: run_line(r, "/save"); break;
    case KEY_F9: run_line(r, "/load"); break;
    default: stage_hold(&r->stage, event->key, event->down);
    }
}

/* The script's keys of this frame; false: it has none that is known. */
static bool play_script(room *r)
{
    window_event event;
    const char *line;
    if (keys_wait(&r->keys) && r->keys.frames > 0) {
        return true;
    }
    while (keys_next(&r->keys, &event)) {
        use_key(r, &event);
    }
    line = evening_line(&r->evening);
    if (line && !keys_begin(&r->keys, line)) {
        fprintf(stderr, "'%.60s' is no key: press f1, f2, f3, f5, f9 or escape; hold left, right, up or down N\n",
                line);
        return false;
    }
    while (line && keys_next(&r->keys, &event)) {
        use_key(r, &event);
    }
    return true;
}

static bool take_keys(room *r)
{
    window_event event;
    bool scripted = r->evening.script.text != NULL;
    while (window_next(r->window, &event)) {
        r->closed = r->closed || event.key == KEY_CLOSE;
        if (event.key != KEY_CLOSE && !scripted && r->evening.open) {
            use_key(r, &event);
        }
    }
    return !scripted || !r->evening.open || play_script(r);
}

/* Whoever is near becomes the partner; walking away ends the talk. */
static void walk(room *r)
{
    evening *e = &r->evening;
    if (!stage_walk(&r->stage)) {
        return;
    }
    if (stage_is_far(&r->stage)) {
        if (tavern_speakers(&e->tavern) > 0) {
            run_line(r, "/leave");
        }
        e->visitor.partner = NULL;
    }
    int near = stage_near(&r->stage);
    if (!e->visitor.partner && near >= 0 && tavern_speakers(&e->tavern) == 0) {
        e->visitor.partner = &e->tavern.npcs[near];
        stage_begin_talk(&r->stage, near);
    }
}

/* ---- frames ---- */

/* Things that people hold stand beside them: on the bar, on the floor, on the table. */
static void draw_things(room *r, int who)
{
    static const int places[CAST_SIZE][2] = { { 356, 126 }, { 60, 150 }, { 232, 161 } };
    const tavern *t = &r->evening.tavern;
    int x = places[who][0], y = places[who][1];
    for (uint32_t i = 0; i < t->thing_count; i++) {
        if (t->things[i].owner == &t->npcs[who] && !stage_is_flying(&r->stage, t->things[i].name)) {
            figure_thing(&r->picture, x, y, t->things[i].name);
            x += who == 2 ? 16 : -14;
            x += x < 344 && who == 0 ? 90 : 0; /* on her other side */
        }
    }
}

/* From hand to hand, in a bow. */
static void draw_flight(room *r)
{
    const flight *f = &r->stage.flight;
    int from_x, from_y, to_x, to_y, at = (int)f->frames, all = (int)STAGE_FLIGHT_FRAMES;
    if (f->frames == 0) {
        return;
    }
    figure_hand(&r->stage, f->from, &from_x, &from_y);
    figure_hand(&r->stage, f->to, &to_x, &to_y);
    int bow = 60 * at * (all - at) / (all * all);
    figure_thing(&r->picture, from_x + (to_x - from_x) * at / all, from_y + (to_y - from_y) * at / all - bow, f->name);
}

/* Who stands further back is drawn first, and so are the bar and the table. */
static void draw_people(room *r)
{
    const stage *s = &r->stage;
    bool before_table = s->actors[STAGE_PLAYER].y > SCENERY_TABLE_Y;
    figure_draw(&r->picture, s, 0, r->frame);
    scenery_bar(&r->picture);
    draw_things(r, 0);
    draw_things(r, 1);
    figure_draw(&r->picture, s, 1, r->frame);
    figure_draw(&r->picture, s, 2, r->frame);
    if (!before_table) {
        figure_draw(&r->picture, s, STAGE_PLAYER, r->frame);
    }
    scenery_table(&r->picture);
    draw_things(r, 2);
    if (before_table) {
        figure_draw(&r->picture, s, STAGE_PLAYER, r->frame);
    }
}

static void draw_room(room *r)
{
    canvas_copy(&r->picture, &r->back);
    scenery_move(&r->picture, r->frame);
    draw_people(r);
    draw_flight(r);
}

static void draw_evening(room *r)
{
    const evening *e = &r->evening;
    draw_room(r);
    bubbles_draw(&r->picture, &r->stage, &e->tavern, partner_of(r), r->frame);
    panel_draw(&r->picture, &r->panel, e, &r->stage, &r->typed, r->frame);
    if (r->panel.note_frames && panel_note_is_long(&r->panel)) {
        bubbles_page(&r->picture, r->panel.note);
    }
}

/* Of all that has to be done before the door opens: loading the weights is half of it, reading the texts the other. */
static float loaded(const evening *e)
{
    size_t bytes = strlen(e->cast.world);
    for (int i = 0; i < CAST_SIZE; i++) {
        const character *who = &e->cast.people[i];
        bytes += strlen(who->persona);
        for (uint32_t k = 0; k < who->example_count; k++) {
            bytes += strlen(who->examples[k].question) + strlen(who->examples[k].answer) + 20; /* the names */
        }
    }
    float read = e->model_ready ? (float)e->now.tokens_in * BYTES_PER_TOKEN / (float)bytes : 0;
    return 0.5f * (e->model_ready ? 1 : e->loaded) + 0.5f * (read < 1 ? read : 1);
}

static bool prepare(room *r)
{
    char status[80];
    take_keys(r);
    bool good = evening_prepare(&r->evening, status, sizeof status);
    if (good && !r->evening.open) {
        draw_room(r);
        panel_draw_loading(&r->picture, &r->evening, status, loaded(&r->evening), r->frame);
        window_show(r->window, &r->picture);
        pace_display(&r->display_ns);
    }
    r->frame++;
    return good;
}

static bool run_frame(room *r)
{
    evening *e = &r->evening;
    double step_ms;
    bool good = take_keys(r);
    walk(r);
    if (!evening_step(e, &step_ms) || !good) {
        return false;
    }
    stage_watch(&r->stage, &e->tavern);
    draw_evening(r);
    window_show(r->window, &r->picture);
    double frame_ms = evening_measure(e, pace_display(&r->display_ns), step_ms);
    panel_measure(&r->panel, e, frame_ms, step_ms);
    r->frame++;
    return true;
}

static bool ended(room *r)
{
    bool last = r->frames_left > 0 && --r->frames_left == 0;
    return last || r->closed || r->evening.visitor.quits || r->evening.script.ended || interrupted();
}

static bool run_game(room *r)
{
    evening *e = &r->evening;
    bool good = evening_begin(e);
    r->display_ns = clock_ns();
    while (good && !e->open && !r->closed && !interrupted()) {
        good = prepare(r);
    }
    e->last_ns = r->display_ns = clock_ns();
    while (good && e->open) {
        good = run_frame(r);
        if (ended(r)) {
            break;
        }
    }
    return good;
}

/* ---- afterwards ---- */

static bool save_png(const room *r, const char *path)
{
    if (!picture_can_save()) {
        printf("no picture: this build has no stb_image_write\n");
        return true;
    }
    if (!canvas_save_png(&r->picture, PNG_SCALE, path)) {
        fprintf(stderr, "%s cannot be written: %s\n", path, strerror(errno));
        return false;
    }
    printf("%s: picture of the last frame\n", path);
    return true;
}

static void print_row(void *user, const char *row)
{
    (void)user;
    puts(row);
}

static bool say_goodbye(room *r)
{
    const evening_options *o = r->evening.options;
    tavern_hush(&r->evening.tavern);
    end_card c = evening_card(&r->evening);
    puts("The Drowned Lantern closes.");
    end_card_print(&c, print_row, NULL);
    bool good = !o->json || end_card_save_json(&c, o->json);
    return (!o->png || save_png(r, o->png)) && good;
}

static int run(const evening_options *o, uint32_t frames)
{
    room r = { .picture = canvas_open(SCENERY_WIDTH, HEIGHT), .back = canvas_open(SCENERY_WIDTH, HEIGHT),
               .frames_left = frames };
    evening *e = &r.evening;
    bool good = o->model != NULL;
    if (!good) {
        fputs("room needs a model: room --model DIR; sh demo/run.sh --window fetches one\n", stderr);
    }
    good = good && (r.window = window_open("The Drowned Lantern", &r.picture)) != NULL && evening_open(e, o);
    if (good) {
        e->host.on_warning = warn;
        e->host.warning_user = &r;
        e->visitor.view = (visitor_view){ .user = &r, .note = note, .show = show };
        scenery_paint(&r.back);
        stage_open(&r.stage);
        good = run_game(&r);
        good = (!e->open || say_goodbye(&r)) && good;
    }
    good = good && evening_is_good(e);
    good = evening_close(e) && good;
    window_close(r.window);
    canvas_close(&r.picture);
    canvas_close(&r.back);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    interrupt_watch(); /* first, so that no Ctrl-C is lost */
    evening_options o = EVENING_DEFAULTS;
    uint32_t frames = 0;
    const arg flags[] = {
        EVENING_ARGS(o),
        { "--frames", ARG_U32, &frames, "N", "ends after N frames of the evening" },
        { "--json", ARG_TEXT, &o.json, "FILE", "file to write at the end: all lines and figures, as JSON" },
        { "--png", ARG_TEXT, &o.png, "FILE", "PNG file to write at the end: the last frame" },
        EVENING_MORE_ARGS(o),
    };
    const args_desc d = { "room",
                          "The Drowned Lantern in a window: walk, and talk with three people, at 60 Hz.",
                          NULL, 0, 0, flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc - 1, console_start(argc, argv) + 1);
    if (parsed == ARGS_OK) {
        parsed = evening_args_check(&d, &o);
    }
    return parsed == ARGS_OK ? text_stdout_end(run(&o, frames)) : parsed == ARGS_HELP ? text_stdout_end(0) : 2;
}
