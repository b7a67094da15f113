/* commands.c: see commands.h.
   takes: lines.
   gives: what commands.h declares. */
#include "commands.h"

#include "../common/images.h"
#include "line_edit.h"
#include "saved.h"
#include "transcript.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool run_help(visitor *v, const char *rest);

void visitor_note(const visitor *v, const char *format, ...)
{
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    v->view.note(v->view.user, text);
}

static bool run_who(visitor *v, const char *rest)
{
    char things[256];
    (void)rest;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        const npc *n = &v->tavern->npcs[i];
        const character *who = n->who;
        exl2_session_info info = { 0 };
        exl2_session_get(v->tavern->engine, n->session, &info);
        visitor_note(v, "%-6s %s, %s; has in mind: %s.%s", who->name, who->role, n->mood, who->topic,
                    n == v->partner ? " You talk with this one." : "");
        visitor_note(v, "       trusts you %d of %d, holds %s", n->trust, TURN_TRUST_MAX,
                    tavern_things(v->tavern, n, things, sizeof things));
        visitor_note(v, "       context %u of %u tokens, %u pages, %u of them shared", info.tokens,
                    info.context_max, info.pages, info.pages_shared);
    }
    visitor_note(v, "You hold %s.", tavern_things(v->tavern, NULL, things, sizeof things));
    return true;
}

static bool run_talk(visitor *v, const char *rest)
{
    npc *n = tavern_find(v->tavern, rest, strlen(rest));
    if (!rest[0]) {
        visitor_note(v, "/talk needs a name; /who says who is here.");
    } else if (n) {
        v->partner = n;
        visitor_note(v, "You turn to %s, %s.", n->who->name, n->who->role);
    } else {
        visitor_note(v, "Nobody here is called '%s'. /who says who is here.", rest);
    }
    return true;
}

static bool run_shout(visitor *v, const char *rest)
{
    if (!rest[0]) {
        visitor_note(v, "/shout needs some words.");
        return true;
    }
    return tavern_shout(v->tavern, rest);
}

static bool run_leave(visitor *v, const char *rest)
{
    (void)rest;
    uint32_t cut = tavern_hush(v->tavern);
    v->view.show(v->view.user, false);
    if (v->partner) {
        visitor_note(v, "You walk away from %s%s.", v->partner->who->name, cut ? ", mid-word" : "");
    } else {
        visitor_note(v, cut ? "You turn away from all of them, mid-word."
                                   : "You stand alone at the fire already.");
    }
    v->partner = NULL;
    return true;
}

/* Shows the partner a picture. Its id is in the transcript. */
static bool run_look(visitor *v, const char *rest)
{
    char sentence[1280], id[33];
    exl2_session_info session = { 0 };
    exl2_model_info model;
    exl2_image image;
    exl2_image_info info;
    exl2_engine *e = v->tavern->engine;
    if (!rest[0] || !v->partner) {
        visitor_note(v, "%s", rest[0] ? "To whom? Begin with a name: 'marla, good evening'."
                                      : "/look needs a picture's file.");
        return true;
    }
    exl2_session_get(e, v->partner->session, &session);
    if (exl2_model_get(e, session.model, &model) < 0 || !model.tower) {
        visitor_note(v, "Nobody here sees pictures: that needs a model with a tower, and --images 1.");
        return true;
    }
    if (images_make_file(e, session.model, rest, &image, sentence, sizeof sentence) < 0) {
        visitor_note(v, "%s", sentence);
        return true;
    }
    exl2_image_get(e, image, &info);
    for (uint32_t i = 0; i < sizeof info.id; i++) {
        snprintf(id + 2 * i, 3, "%02x", info.id[i]);
    }
    bool good = tavern_look(v->tavern, v->partner, image, id);
    exl2_image_close(e, image); /* the turn keeps it */
    return good;
}

#define MOOD_STEP 0.05f

/* Moves the partner's mood, or says what it is. */
static bool run_mood(visitor *v, const char *rest)
{
    npc *n = v->partner;
    char *end;
    if (!n || !n->feels.steer.id) {
        visitor_note(v, n ? "%s has no mood of that kind: that needs --mood %s=FILE." : "Whose? Begin with a name: "
                     "'marla, good evening'.", n ? n->who->name : "", n ? n->who->name : "");
        return true;
    }
    float now = n->feels.factor < -100 ? 0 : n->feels.factor, factor = strtof(rest, &end);
    bool moves = strcmp(rest, "+") == 0 || strcmp(rest, "-") == 0;
    if (rest[0] && !moves && (*end || end == rest)) {
        visitor_note(v, "/mood needs + or - or a factor such as 0.1.");
        return true;
    }
    factor = moves ? now + (rest[0] == '+' ? MOOD_STEP : -MOOD_STEP) : rest[0] ? factor : now;
    factor = factor < -100 ? -100 : factor > 100 ? 100 : factor;
    n->feels.factor = factor > -0.001f && factor < 0.001f ? EXL2_OFF : factor;
    visitor_note(v, "%s's mood has the factor %.2f from the next answer on.", n->who->name, (double)factor);
    return true;
}

#define SAVE_PATH "lantern.save" /* in the working folder */

static bool run_save(visitor *v, const char *rest)
{
    char why[SAVED_WHY_BYTES];
    const char *path = rest[0] ? rest : SAVE_PATH;
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        const npc *n = &v->tavern->npcs[i];
        if (n->job.id && n->picture.id) {
            visitor_note(v, "%s looks at a picture: save when the answer is there.", n->who->name);
            return true;
        }
    }
    if (saved_write(v->tavern, v->partner, path, why)) {
        visitor_note(v, "%s: the evening so far; /load goes on with it", path);
    } else {
        visitor_note(v, "%s", why);
        v->failed = true;
    }
    return true;
}

/* The view shows the lines of the loaded evening again. */
static bool run_load(visitor *v, const char *rest)
{
    char why[SAVED_WHY_BYTES];
    const char *path = rest[0] ? rest : SAVE_PATH;
    if (saved_read(v->tavern, &v->partner, path, why)) {
        visitor_note(v, "%s: the evening goes on", path);
        v->view.show(v->view.user, true);
    } else {
        visitor_note(v, "%s", why);
        v->failed = true;
    }
    return true;
}

static bool run_transcript(visitor *v, const char *rest)
{
    const char *path = rest[0] ? rest : v->transcript_path;
    if (transcript_save(v->tavern, path)) {
        visitor_note(v, "%s: what was said so far", path);
    } else {
        visitor_note(v, "%s cannot be written: %s", path, strerror(errno));
        v->failed = true;
    }
    return true;
}

static bool run_quit(visitor *v, const char *rest)
{
    (void)rest;
    v->quits = true;
    return true;
}

static const struct {
    const char *name, *usage, *help;
    bool (*run)(visitor *v, const char *rest);
} commands[] = {
    { "/who", "/who", "who is here, what they have in mind, how full their context is", run_who },
    { "/talk", "/talk NAME", "turn to somebody; a line that begins with 'name,' does it too", run_talk },
    { "/look", "/look FILE", "show a picture to whom you talk with; needs --images", run_look },
    { "/shout", "/shout TEXT", "all three answer at once", run_shout },
    { "/leave", "/leave", "walk away: whoever speaks stops mid-word", run_leave },
    { "/mood", "/mood + - or X", "move the mood of whom you talk with (F7, F6; needs --mood)", run_mood },
    { "/save", "/save [FILE]", "keep the evening, mid-sentence too (F5; lantern.save)", run_save },
    { "/load", "/load [FILE]", "go on with a kept evening (F9)", run_load },
    { "/transcript", "/transcript [FILE]", "write down what was said", run_transcript },
    { "/help", "/help", "this list", run_help },
    { "/quit", "/quit", "go, and see the figures", run_quit },
};

#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static bool run_help(visitor *v, const char *rest)
{
    (void)rest;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        visitor_note(v, "%-18s %s", commands[i].usage, commands[i].help);
    }
    return true;
}

static bool run_slash(visitor *v, const char *line)
{
    size_t bytes = strcspn(line, " ");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strlen(commands[i].name) == bytes && memcmp(commands[i].name, line, bytes) == 0) {
            return commands[i].run(v, line + bytes + strspn(line + bytes, " "));
        }
    }
    visitor_note(v, "There is no %.*s; /help lists what there is.", (int)bytes, line);
    return true;
}

/* "marla, who was here?" is for Marla; a line without a name is for the current partner. */
bool command_run(visitor *v, const char *line)
{
    line += strspn(line, " ");
    if (strlen(line) > LINE_BYTES_MAX) {
        visitor_note(v, "Nobody listens to a line of more than %d bytes.", LINE_BYTES_MAX);
        return true;
    }
    if (!line[0]) {
        return true;
    }
    if (line[0] == '/') {
        return run_slash(v, line);
    }
    size_t bytes = strcspn(line, ",:");
    npc *named = tavern_find(v->tavern, line, bytes);
    if (named) {
        v->partner = named;
        line += bytes + (line[bytes] != 0);
        line += strspn(line, " ");
    }
    if (!line[0]) {
        return run_talk(v, named->who->name);
    }
    if (!v->partner) {
        visitor_note(v, "To whom? Begin with a name: 'marla, good evening'.");
        return true;
    }
    return tavern_ask(v->tavern, v->partner, line);
}
