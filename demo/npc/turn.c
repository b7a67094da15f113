/* turn.c: see turn.h.
   takes: the state of the game, JSON.
   gives: what turn.h declares.
   owns:  nothing. */
#include "turn.h"

#include "../common/json_in.h"
#include "exl2.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const moods[] = { "calm", "warm", "wary", "angry", "sly", "tired" };
static const char *const acts[] = { "none", "nod", "laugh", "point" };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define GIVE "give "

/* ---- the schema ---- */

typedef struct writer {
    char *out;
    size_t used;
} writer;

static void put(writer *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int bytes = vsnprintf(w->out + w->used, TURN_SCHEMA_BYTES - w->used, format, list);
    va_end(list);
    w->used += (size_t)bytes < TURN_SCHEMA_BYTES - w->used ? (size_t)bytes : TURN_SCHEMA_BYTES - w->used - 1;
}

static void put_enum(writer *w, const char *name, const char *const *values, size_t count, const char *before)
{
    put(w, "%s\"%s\":{\"enum\":[", before, name);
    for (size_t i = 0; i < count; i++) {
        put(w, "%s\"%s\"", i ? "," : "", values[i]);
    }
}

/* `say` comes first because the player waits for it. It has plain letters and punctuation, and ends with a sentence. */
void turn_schema(const turn_state *s, char out[TURN_SCHEMA_BYTES])
{
    writer w = { out, 0 };
    put(&w, "{\"type\":\"object\",\"properties\":{\"say\":{\"type\":\"string\",\"pattern\":\"^[A-Z]");
    if (s->aside) {
        put(&w, "[ ',0-9A-Za-z-]{%d,%d}", TURN_ASIDE_MIN - 2, TURN_ASIDE_MAX - 2);
    } else {
        put(&w, "[ !#-;=?-Z_a-z]{2,%d}", TURN_SAY_MAX - 2);
    }
    put(&w, "[.!?]$\"},");
    put_enum(&w, "mood", moods, COUNT(moods), "");
    put_enum(&w, "act", acts, COUNT(acts), "]},");
    for (uint32_t i = 0; i < s->thing_count; i++) {
        put(&w, ",\"" GIVE "%s\"", s->things[i]);
    }
    put_enum(&w, "target", s->targets, s->target_count, "]},");
    put(&w, "]},\"trust\":{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}},"
            "\"required\":[\"say\",\"mood\",\"act\",\"target\",\"trust\"]}",
        s->trust > -TURN_TRUST_MAX ? s->trust - 1 : s->trust, s->trust < TURN_TRUST_MAX ? s->trust + 1 : s->trust);
}

size_t turn_example(const char *mood, const char *say, const char *act, const char *target, char *out, size_t cap)
{
    int bytes = snprintf(out, cap, "{\"say\":\"%s\",\"mood\":\"%s\",\"act\":\"%s\",\"target\":\"%s\","
                                   "\"trust\":%d}", say, mood, act ? act : "none", target,
                         !act ? 0 : strcmp(act, "laugh") == 0 ? -1 : 1);
    return (size_t)bytes < cap ? (size_t)bytes : cap - 1;
}

/* ---- the answer ---- */

size_t turn_words(const char *json, size_t bytes, char out[TURN_BYTES])
{
    size_t said = 0;
    return exl2_json_text(json, bytes, "/say", out, TURN_BYTES, &said, NULL) == EXL2_OK ? said : 0;
}

/* The entry of the list that equals the member's text; NULL: none does. */
static const char *one_of(const json_value *root, const char *key, const char *const *list, size_t count)
{
    const json_value *value = json_member(root, key);
    for (size_t i = 0; value && value->kind == JSON_TEXT && i < count; i++) {
        if (strcmp(value->text, list[i]) == 0) {
            return list[i];
        }
    }
    return NULL;
}

static bool read_act(const turn_state *s, const json_value *root, turn *out)
{
    const json_value *act = json_member(root, "act");
    out->act = one_of(root, "act", acts, COUNT(acts));
    for (uint32_t i = 0; !out->act && act && act->kind == JSON_TEXT && i < s->thing_count; i++) {
        if (strncmp(act->text, GIVE, sizeof GIVE - 1) == 0 && strcmp(act->text + sizeof GIVE - 1, s->things[i]) == 0) {
            out->act = "give";
            out->thing = s->things[i];
        }
    }
    return out->act != NULL;
}

const char *turn_named(const turn_state *s, const char *words)
{
    const char *first = NULL, *named = NULL;
    for (uint32_t i = 0; i < s->target_count; i++) {
        const char *at = strstr(words, s->targets[i]);
        if (at && (!first || at < first)) {
            first = at;
            named = s->targets[i];
        }
    }
    return named;
}

/* Checks the rules of the schema independently of the grammar. The target of "point" is the person whom the words name,
   if they name one. */
bool turn_read(const turn_state *s, const char *json, size_t bytes, turn *out)
{
    const char *error;
    json_value *root = json_read(json, bytes, &error);
    const json_value *trust = json_member(root, "trust"), *say = json_member(root, "say");
    *out = (turn){ 0 };
    out->mood = one_of(root, "mood", moods, COUNT(moods));
    out->target = one_of(root, "target", s->targets, s->target_count);
    out->trust = trust && trust->kind == JSON_NUMBER ? (int)trust->number : TURN_TRUST_MAX + 1;
    bool good = read_act(s, root, out) && out->mood && out->target && root->child_count == 5;
    good = good && out->trust >= -TURN_TRUST_MAX && out->trust <= TURN_TRUST_MAX && out->trust >= s->trust - 1
        && out->trust <= s->trust + 1 && (double)out->trust >= trust->number && (double)out->trust <= trust->number;
    good = good && say && say->kind == JSON_TEXT && say->text_bytes >= (s->aside ? TURN_ASIDE_MIN : 4)
        && say->text_bytes <= (s->aside ? TURN_ASIDE_MAX : TURN_SAY_MAX)
        && strchr(".!?", say->text[say->text_bytes - 1])
        && (!s->aside || strcspn(say->text, ".!?") == say->text_bytes - 1);
    bool points = good && strcmp(out->act, "point") == 0;
    const char *named = points ? turn_named(s, say->text) : NULL;
    out->target = named ? named : out->target;
    json_free(root);
    return good;
}
