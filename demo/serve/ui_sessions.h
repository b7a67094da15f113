/* ui_sessions.h: the chats of the page, kept as one JSON file each in a folder.
   takes: a folder, ids, and the JSON text of a chat as the page sends it.
   gives: ui_sessions_open, ui_sessions_list, ui_sessions_get, ui_sessions_put, ui_sessions_delete.
   owns:  nothing between two calls; the caller frees *body.

   A file is ID.jsonl. Its first line is {"revision":N,"updated":SECONDS,"bytes":N,"title":TEXT}, so that a list reads
   no chats; then comes the chat. It is written whole beside the older one, and then renamed. The revision counts the
   changes: who writes a chat names the revision that it has read, so of two tabs the second one is told, and nothing
   is lost. Any thread may call, one call at a time for a folder. */
#ifndef DEMO_UI_SESSIONS_H
#define DEMO_UI_SESSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UI_SESSIONS_ID_BYTES 16                          /* of [a-z0-9] */
#define UI_SESSIONS_BYTES_MAX ((size_t)16 * 1024 * 1024) /* of a chat */
#define UI_SESSIONS_COUNT_MAX 4096                       /* chats of a folder */
#define UI_SESSIONS_TITLE_BYTES 1280                     /* of a title as JSON, with its quotes */
#define UI_SESSIONS_WHY_BYTES 512                        /* of a sentence that says why a call failed */

typedef enum ui_sessions_result { /* each stands for the status of an answer */
    UI_SESSIONS_OK,        /* 200; 204 after a deletion */
    UI_SESSIONS_BAD,       /* 400: the id, the revision or the text is wrong */
    UI_SESSIONS_MISSING,   /* 404 */
    UI_SESSIONS_CONFLICT,  /* 409: the revision is not the newest */
    UI_SESSIONS_FULL,      /* 413: the text is too large, or there are too many chats */
    UI_SESSIONS_FAILED     /* 500: a file or the folder cannot be read or written, a file is damaged, or memory ends */
} ui_sessions_result;

/* The folder is made if it is absent (its parent is not). false: `why` says in one sentence what is wrong. */
bool ui_sessions_open(const char *folder, char why[UI_SESSIONS_WHY_BYTES]);

/* *body: {"sessions":[{"id","title","revision","updated"}]}, the latest change first, ended by NUL. A file with a
   damaged first line is listed with its id as its title, revision 0 and "damaged":true, so that it can be deleted. */
ui_sessions_result ui_sessions_list(const char *folder, char **body, size_t *bytes, char why[UI_SESSIONS_WHY_BYTES]);

/* *body: the object that was put, with the members "revision" and "updated" in front; ended by NUL. */
ui_sessions_result ui_sessions_get(const char *folder, const char *id, char **body, size_t *bytes,
                                   char why[UI_SESSIONS_WHY_BYTES]);

/* Stores an object. if_match: the header's text, the revision that was read, with or without quotes; NULL: the chat is
   new. Members "revision" and "updated" of the object are ignored. now: seconds since 1970. *revision: the new one, or
   after UI_SESSIONS_CONFLICT the newest one (0: the chat has been deleted). */
ui_sessions_result ui_sessions_put(const char *folder, const char *id, const char *if_match, const char *text,
                                   size_t bytes, int64_t now, uint64_t *revision, char why[UI_SESSIONS_WHY_BYTES]);

ui_sessions_result ui_sessions_delete(const char *folder, const char *id, char why[UI_SESSIONS_WHY_BYTES]);

#endif
