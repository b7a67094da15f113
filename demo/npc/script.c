/* script.c: see script.h.
   takes: a text file.
   gives: what script.h declares.
   owns:  the text. */
#include "script.h"

#include "../common/memory.h"
#include "../common/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool script_read(script *s, const char *path)
{
    size_t bytes;
    *s = (script){ 0 };
    s->text = s->at = text_file_read(path, &bytes);
    return s->text != NULL;
}

/* One question in four goes to all. */
void script_make(script *s, uint32_t turns)
{
    static const char *const questions[] = {
        "Good evening.", "Give me the crown, please.", "What happened here tonight?", "Can I buy an ale?",
        "Who took the key?", "Give your spoon to Osric!", "What do you know about the ship?", "You are lying!",
        "I like this place. Do you trust me?", "Is the queen here? Give her the crown.", "Thank you.",
    };
    static const char *const names[] = { "/shout", "marla,", "osric,", "pike," };
    memory_text text = { 0 };
    char line[128];
    for (uint32_t i = 0, made = 0; made < turns; i++) {
        bool all = i % 4 == 0 && made + CAST_SIZE <= turns;
        int bytes = snprintf(line, sizeof line, "%s %s\nwait\n", names[all ? 0 : 1 + i % 3],
                             questions[i % (sizeof questions / sizeof questions[0])]);
        memory_text_add(&text, line, (size_t)bytes);
        made += all ? CAST_SIZE : 1;
    }
    *s = (script){ 0 };
    memory_text_add(&text, "", 1);
    s->text = s->at = text.data;
}

static char *take_line(script *s)
{
    char *line = s->at;
    size_t bytes = strcspn(line, "\r\n");
    s->at = line + bytes + (line[bytes] != 0);
    line[bytes] = 0;
    return line;
}

/* True for "hear 12"; gives the number, of at most nine digits. */
static bool is_number_line(const char *line, const char *word, uint32_t *number)
{
    size_t bytes = strlen(word), digits = strncmp(line, word, bytes) == 0 && line[bytes] == ' '
                                        ? strspn(line + bytes + 1, "0123456789") : 0;
    if (digits == 0 || digits > 9 || line[bytes + 1 + digits] != 0) {
        return false;
    }
    *number = (uint32_t)strtoul(line + bytes + 1, NULL, 10);
    return true;
}

static bool may_go_on(script *s, const tavern *t)
{
    if (s->frames) {
        s->frames--;
        return false;
    }
    if (t->hear_words) {
        return tavern_waits(t);
    }
    s->waits = s->waits && (tavern_speakers(t) > 0 || t->thinking > 0);
    return !s->waits;
}

/* A speaker who was paused by "hear" continues after the next command. */
const char *script_line(script *s, tavern *t)
{
    while (!s->ended && may_go_on(s, t)) {
        if (!*s->at) { /* nothing follows a last "hear": its speaker goes on */
            tavern_go_on(t);
            s->ended = tavern_speakers(t) == 0;
            s->waits = true;
            continue;
        }
        const char *line = take_line(s);
        if (strcmp(line, "wait") == 0) {
            s->waits = true;
        } else if (!is_number_line(line, "hear", &t->hear_words) && !is_number_line(line, "frames", &s->frames)
                   && line[0] && line[0] != '#') {
            return line;
        }
    }
    return NULL;
}

void script_listen(script *s, tavern *t)
{
    uint32_t tokens;
    size_t bytes = s->at ? strcspn(s->at, "\r\n") : 0;
    char line[32];
    if (bytes > 0 && bytes < sizeof line) {
        memcpy(line, s->at, bytes);
        line[bytes] = 0;
        if (is_number_line(line, "hear", &tokens)) {
            t->hear_words = tokens;
            take_line(s);
        }
    }
}

void script_close(script *s)
{
    free(s->text);
    *s = (script){ 0 };
}
