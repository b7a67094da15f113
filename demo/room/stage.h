/* stage.h: who stands where in the room, how the player walks, and what a turn's act moves. It looks at the tavern and
   never changes it.
   takes: keys that are held, the tavern's lines.
   gives: stage_open, stage_hold, stage_walk, stage_watch, stage_anew, stage_go_to, stage_begin_talk, stage_near,
          stage_is_far, stage_line, stage_is_flying.
   owns:  nothing. */
#ifndef ROOM_STAGE_H
#define ROOM_STAGE_H

#include "../npc/tavern.h"
#include "window.h"

#define STAGE_PLAYER CAST_SIZE /* index of the player's actor */
#define STAGE_ACTORS (CAST_SIZE + 1)

typedef enum gesture { GESTURE_NONE, GESTURE_NOD, GESTURE_LAUGH, GESTURE_POINT, GESTURE_GIVE } gesture;

typedef struct actor {
    float x, y;              /* of the feet, in pixels of the canvas */
    bool left;               /* looks to the left */
    uint32_t steps;          /* frames of the current walk; 0 = stands */
    bool speaks;             /* words arrive */
    gesture gesture;
    uint32_t gesture_frames; /* of the gesture, so far */
    int at;                  /* index of the actor that the gesture is for */
    size_t line;             /* the newest line of the person, +1; 0 = none */
    bool open;               /* that line had not ended when it was seen last */
    uint32_t linger;         /* frames for which the bubble of an ended line stays */
} actor;

typedef struct flight { /* a thing that goes from hand to hand */
    char name[24];
    int from, to;           /* indices of actors */
    uint32_t frames;        /* so far; 0 = none */
} flight;

#define STAGE_FLIGHT_FRAMES 50u

typedef struct stage {
    actor actors[STAGE_ACTORS];
    bool held[KEY_COUNT];   /* arrow keys */
    bool goes;              /* the player walks to goal_x, goal_y without keys */
    float goal_x, goal_y;
    float talk_x, talk_y;   /* where the newest talk began */
    size_t seen;            /* lines of the tavern that were looked at */
    flight flight;
} stage;

void stage_open(stage *s);
void stage_hold(stage *s, window_key key, bool down); /* an arrow key; KEY_BLUR releases all of them */
bool stage_walk(stage *s);                            /* for each frame; true: the player walked by keys */
void stage_watch(stage *s, const tavern *t);          /* for each frame: bubbles and acts */
/* Another evening was loaded. partner: whom the player is with; -1: nobody. */
void stage_anew(stage *s, const tavern *t, int partner);
void stage_go_to(stage *s, int who);                  /* the player walks to the person, unless already there */
void stage_begin_talk(stage *s, int who);             /* the talk is where the person is; -1: where the player is */
int stage_near(const stage *s);                       /* the person whom the player could talk with; -1 = nobody */
bool stage_is_far(const stage *s);                    /* the player has left the place of the talk */
const tavern_line *stage_line(const stage *s, const tavern *t, int who); /* what the bubble says; NULL = no bubble */
bool stage_is_flying(const stage *s, const char *name);

#endif
