/* stage.c: see stage.h.
   takes: nothing.
   gives: what stage.h declares. */
#include "stage.h"

#include "scenery.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SPEED 1.7f          /* pixels a frame */
#define LANE_Y 198.0f       /* the row in which nothing stands in the way */
#define NEAR 40.0f          /* from the place where one talks with somebody */
#define FAR 84.0f
#define GESTURE_FRAMES 80u
#define LINGER_FRAMES 150u  /* frames that every bubble stays */
#define LINGER_LETTER 3u    /* further frames for each of its letters */

/* Marla is behind the bar, Osric at the door, Pike at the table. */
static const struct {
    float x, y;              /* of the person */
    float talk_x, talk_y;    /* where the player stands to talk */
    bool left;
} places[STAGE_ACTORS] = {
    { 404, 146, 382, 178, true }, { 92, 152, 128, 164, false }, { 274, 164, 204, 184, true }, { 168, 192, 0, 0, true },
};

void stage_open(stage *s)
{
    *s = (stage){ 0 };
    for (int i = 0; i < STAGE_ACTORS; i++) {
        s->actors[i] = (actor){ .x = places[i].x, .y = places[i].y, .left = places[i].left };
    }
}

/* ---- the player walks ---- */

void stage_hold(stage *s, window_key key, bool down)
{
    if (key == KEY_BLUR) {
        memset(s->held, 0, sizeof s->held);
    } else {
        s->held[key] = down;
        s->goes = s->goes && !down;
    }
}

static bool is_free(float x, float y)
{
    bool bar = x > SCENERY_BAR_X - 12 && y < SCENERY_BAR_Y + 8;
    bool barrels = x > 274 && x < 340 && y < SCENERY_FLOOR + 20;
    bool table = fabsf(x - SCENERY_TABLE_X) < 40 && y > SCENERY_TABLE_Y - 18 && y < SCENERY_TABLE_Y + 8;
    bool osric = fabsf(x - places[1].x) < 20 && y < places[1].y + 6;
    return x > 14 && x < SCENERY_WIDTH - 14 && y > SCENERY_FLOOR + 10 && y < SCENERY_HEIGHT - 5 && !bar && !barrels
        && !table && !osric;
}

/* Goes as far as nothing stands in the way, along a wall too. */
static void move(actor *a, float dx, float dy)
{
    float x = a->x, y = a->y;
    a->x = is_free(a->x + dx, a->y) ? a->x + dx : a->x;
    a->y = is_free(a->x, a->y + dy) ? a->y + dy : a->y;
    a->left = dx < 0 || (a->left && dx <= 0);
    a->steps = fabsf(a->x - x) + fabsf(a->y - y) > 0.01f ? a->steps + 1 : 0;
}

static float toward(float from, float to)
{
    return to - from > SPEED ? SPEED : to - from < -SPEED ? -SPEED : to - from;
}

static void go(stage *s)
{
    actor *a = &s->actors[STAGE_PLAYER];
    bool across = fabsf(a->x - s->goal_x) > 3;
    move(a, toward(a->x, s->goal_x), toward(a->y, across ? LANE_Y : s->goal_y) * 0.7f);
    s->goes = a->steps > 0;
}

bool stage_walk(stage *s)
{
    float dx = (float)s->held[KEY_RIGHT] - (float)s->held[KEY_LEFT];
    float dy = (float)s->held[KEY_DOWN] - (float)s->held[KEY_UP];
    bool keys = dx != 0 || dy != 0;
    if (s->goes) {
        go(s);
    } else {
        float length = dx != 0 && dy != 0 ? 0.7f : 1;
        move(&s->actors[STAGE_PLAYER], dx * SPEED * length, dy * SPEED * length * 0.7f);
    }
    return keys;
}

/* ---- where one talks ---- */

/* Pixels to a place; a row counts more than a column, as the floor is seen from the front. */
static float distance(const stage *s, float x, float y)
{
    const actor *a = &s->actors[STAGE_PLAYER];
    return hypotf(a->x - x, (a->y - y) * 1.4f);
}

void stage_begin_talk(stage *s, int who)
{
    s->talk_x = who < 0 ? s->actors[STAGE_PLAYER].x : places[who].talk_x;
    s->talk_y = who < 0 ? s->actors[STAGE_PLAYER].y : places[who].talk_y;
}

void stage_go_to(stage *s, int who)
{
    if (distance(s, places[who].talk_x, places[who].talk_y) > NEAR) {
        s->goes = true;
        s->goal_x = places[who].talk_x;
        s->goal_y = places[who].talk_y;
    }
}

int stage_near(const stage *s)
{
    int near = -1;
    float least = NEAR;
    for (int i = 0; i < CAST_SIZE; i++) {
        float far = distance(s, places[i].talk_x, places[i].talk_y);
        near = far < least ? i : near;
        least = far < least ? far : least;
    }
    return near;
}

bool stage_is_far(const stage *s)
{
    return distance(s, s->talk_x, s->talk_y) > FAR;
}

/* ---- lines and acts ---- */

static int index_of(const tavern *t, const char *name)
{
    for (int i = 0; i < CAST_SIZE; i++) {
        if (strcmp(t->npcs[i].who->name, name) == 0) {
            return i;
        }
    }
    return STAGE_PLAYER; /* "Stranger" */
}

static void begin_gesture(stage *s, const tavern *t, int who, const turn *what)
{
    static const char *const names[] = { "", "nod", "laugh", "point", "give" };
    actor *a = &s->actors[who];
    a->gesture = GESTURE_NONE;
    for (int i = GESTURE_NOD; what->act && i <= GESTURE_GIVE; i++) {
        a->gesture = strcmp(what->act, names[i]) == 0 ? (gesture)i : a->gesture;
    }
    if (a->gesture == GESTURE_NONE) {
        return;
    }
    a->gesture_frames = 0;
    a->at = index_of(t, what->target);
    a->left = s->actors[a->at].x < a->x;
    if (what->thing) {
        s->flight = (flight){ .from = who, .to = a->at, .frames = 1 };
        snprintf(s->flight.name, sizeof s->flight.name, "%s", what->thing);
    }
}

static void watch_actor(stage *s, const tavern *t, int who)
{
    actor *a = &s->actors[who];
    const tavern_line *l = a->line ? &t->lines[a->line - 1] : NULL;
    a->linger -= a->linger > 0;
    a->gesture_frames += a->gesture != GESTURE_NONE;
    if (a->gesture_frames > GESTURE_FRAMES) {
        a->gesture = GESTURE_NONE;
    }
    if (l && a->open && l->ended) {
        a->open = false;
        a->linger = LINGER_FRAMES + LINGER_LETTER * (uint32_t)l->bytes;
        begin_gesture(s, t, who, &l->turn);
    }
    a->speaks = l && a->open && l->bytes > 0 && !t->npcs[who].waits;
    if (a->open) {
        a->left = s->actors[STAGE_PLAYER].x < a->x;
    }
}

void stage_watch(stage *s, const tavern *t)
{
    for (; s->seen < t->count; s->seen++) {
        const tavern_line *l = &t->lines[s->seen];
        if (l->by) {
            actor *a = &s->actors[l->by - t->npcs];
            a->line = s->seen + 1;
            a->open = true;
            a->gesture = GESTURE_NONE;
        }
    }
    for (int i = 0; i < CAST_SIZE; i++) {
        watch_actor(s, t, i);
    }
    s->flight.frames = s->flight.frames && s->flight.frames < STAGE_FLIGHT_FRAMES ? s->flight.frames + 1 : 0;
}

void stage_anew(stage *s, const tavern *t, int partner)
{
    s->seen = 0;
    s->flight.frames = 0;
    for (int i = 0; i < CAST_SIZE; i++) {
        s->actors[i].line = 0;
        s->actors[i].open = false;
        s->actors[i].gesture = GESTURE_NONE;
    }
    for (; s->seen < t->count; s->seen++) { /* what ended before the save is over; its acts were seen */
        const tavern_line *l = &t->lines[s->seen];
        if (l->by) {
            s->actors[l->by - t->npcs].line = s->seen + 1;
            s->actors[l->by - t->npcs].open = !l->ended;
            s->actors[l->by - t->npcs].linger = 0;
        }
    }
    if (partner >= 0) {
        s->actors[STAGE_PLAYER].x = places[partner].talk_x;
        s->actors[STAGE_PLAYER].y = places[partner].talk_y;
    }
    stage_begin_talk(s, partner);
    s->goes = false;
}

const tavern_line *stage_line(const stage *s, const tavern *t, int who)
{
    const actor *a = &s->actors[who];
    const tavern_line *l = a->line ? &t->lines[a->line - 1] : NULL;
    return l && !tavern_is_unsaid(l) && (a->open || a->linger) ? l : NULL;
}

bool stage_is_flying(const stage *s, const char *name)
{
    return s->flight.frames > 0 && strcmp(s->flight.name, name) == 0;
}
