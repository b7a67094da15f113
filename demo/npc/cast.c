/* cast.c: see cast.h.
   takes: text files.
   gives: what cast.h declares.
   owns:  the texts of a cast. */
#include "cast.h"

#include "../common/text_file.h"
#include "turn.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVASIONS_BEGIN "For what nobody asked before:"

static const char *const files[CAST_SIZE] = { "marla.txt", "osric.txt", "pike.txt" };

/* Returns the next line without its line end, and moves *at after it. NULL at the end of the text. */
static char *take_line(char **at)
{
    char *line = *at;
    if (!line || !*line) {
        return NULL;
    }
    size_t bytes = strcspn(line, "\r\n");
    *at = line + bytes + (line[bytes] == '\r') + (line[bytes + (line[bytes] == '\r')] == '\n');
    line[bytes] = 0;
    return line;
}

static void cut_blanks_at_end(char *text)
{
    size_t bytes = strlen(text);
    while (bytes && strchr(" \r\n", text[bytes - 1])) {
        text[--bytes] = 0;
    }
}

/* Reads "key: value" lines up to the empty line. Returns the first invalid line, or NULL. */
static const char *read_keys(character *c, char **at)
{
    char *line;
    while ((line = take_line(at)) && line[0]) {
        char *colon = strstr(line, ": ");
        if (!colon) {
            return line;
        }
        const char *value = colon + 2;
        *colon = 0;
        if (strcmp(line, "name") == 0) {
            c->name = value;
        } else if (strcmp(line, "role") == 0) {
            c->role = value;
        } else if (strcmp(line, "mood") == 0) {
            c->mood = value;
        } else if (strcmp(line, "topic") == 0) {
            c->topic = value;
        } else if (strcmp(line, "holds") == 0) {
            c->holds = value;
        } else if (strcmp(line, "plot") == 0) {
            c->plot = value;
        } else if (strcmp(line, "colour") == 0) {
            c->colour = (uint32_t)strtoul(value, NULL, 10) & 0xFF;
        } else {
            return line;
        }
    }
    return NULL;
}

/* Cuts the act off an answer such as "An ale is one penny. [give ale]"; NULL: it has none. */
static char *take_act(char *answer)
{
    char *open = strrchr(answer, '['), *close = open ? strchr(open, ']') : NULL;
    if (!close || close[1] || open < answer + 2) {
        return NULL;
    }
    *close = open[-1] = 0;
    return open + 1;
}

/* Cuts the name off an act such as "point at Pike"; NULL: it has none. */
static const char *take_at(char *act)
{
    char *at = act ? strstr(act, " at ") : NULL;
    if (!at) {
        return NULL;
    }
    *at = 0;
    return at + 4;
}

/* Reads the lines after EVASIONS_BEGIN. Returns the first one that is too many, or that no turn can say, or NULL. */
static const char *read_evasions(character *c, char *at)
{
    char *line;
    while ((line = take_line(&at))) {
        if (!line[0]) {
            continue;
        }
        if (c->evasion_count == CAST_EVASIONS_MAX || !turn_can_say(line)) {
            return line;
        }
        c->evasions[c->evasion_count++] = line;
    }
    return NULL;
}

/* Reads "> " lines and their answers, and then the evasions. Returns the first invalid line, or NULL. */
static const char *read_examples(character *c, char *at)
{
    char *question;
    while ((question = take_line(&at))) {
        if (!question[0]) {
            continue;
        }
        if (strcmp(question, EVASIONS_BEGIN) == 0) {
            return read_evasions(c, at);
        }
        char *answer = take_line(&at);
        if (strncmp(question, "> ", 2) != 0 || !answer || !answer[0] || c->example_count == CAST_EXAMPLES_MAX) {
            return question;
        }
        char *act = take_act(answer);
        c->examples[c->example_count++] =
            (example){ .question = question + 2, .answer = answer, .at = take_at(act), .act = act };
    }
    return NULL;
}

static bool read_character(character *c, const char *path)
{
    size_t bytes;
    c->file = text_file_read(path, &bytes);
    if (!c->file) {
        return false;
    }
    char *at = c->file;
    const char *wrong = read_keys(c, &at);
    if (!wrong) {
        char *examples = strstr(at, "\n> ");
        c->persona = at;
        if (examples) {
            *examples = 0;
            wrong = read_examples(c, examples + 1);
        }
        cut_blanks_at_end(at);
    }
    if (wrong) {
        fprintf(stderr, "%s: '%.60s' is neither 'key: value' nor something that a person can say\n", path, wrong);
        return false;
    }
    if (!c->name || !c->role || !c->mood || !c->topic || !c->persona[0]) {
        fprintf(stderr, "%s must have a name, a role, a mood, a topic and a persona\n", path);
        return false;
    }
    return true;
}

static bool same_letters(const char *a, const char *b, size_t bytes)
{
    size_t same = 0;
    while (same < bytes && tolower((unsigned char)a[same]) == tolower((unsigned char)b[same])) {
        same++;
    }
    return same == bytes;
}

bool cast_is_plot(const character *who, const char *text)
{
    bool found = false;
    for (size_t bytes; *text && !found; text += bytes ? bytes : 1) {
        for (bytes = 0; isalpha((unsigned char)text[bytes]); bytes++) {
        }
        size_t known = 0;
        for (const char *at = who->plot ? who->plot : ""; bytes && *at && !found; at += known + (at[known] == ' ')) {
            known = strcspn(at, " ");
            found = known == bytes && same_letters(at, text, bytes);
        }
    }
    return found;
}

bool cast_read(cast *c, const char *folder)
{
    char path[1024];
    size_t bytes;
    *c = (cast){ 0 };
    snprintf(path, sizeof path, "%s/world.txt", folder);
    c->world = text_file_read(path, &bytes);
    bool good = c->world != NULL;
    if (good) {
        cut_blanks_at_end(c->world);
    }
    for (uint32_t i = 0; good && i < CAST_SIZE; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        good = read_character(&c->people[i], path);
    }
    if (!good) {
        cast_free(c);
    }
    return good;
}

void cast_free(cast *c)
{
    for (uint32_t i = 0; i < CAST_SIZE; i++) {
        free(c->people[i].file);
    }
    free(c->world);
    *c = (cast){ 0 };
}
