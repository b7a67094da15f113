/* turn.c: see turn.h.
   takes: the state of the game, JSON.
   gives: what turn.h declares. */
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
#define BEGIN_WORDS 3 /* of an example's answer; then a small model that has read the example finds its way */

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

/* Letters as a regular expression inside of JSON: what has a meaning there becomes a class of its own. */
static void put_pattern(writer *w, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        put(w, strchr(".?*+()$|", text[i]) ? "[%c]" : "%c", text[i]);
    }
}

/* What a turn may say, as the patterns below allow it. */
bool turn_can_say(const char *text)
{
    size_t bytes = strlen(text);
    bool good = bytes >= 4 && bytes <= TURN_SAY_MAX && text[0] >= 'A' && text[0] <= 'Z';
    good = good && strchr(".!?", text[bytes - 1]);
    for (size_t i = 0; good && i < bytes; i++) {
        good = text[i] >= ' ' && text[i] <= 'z' && !strchr("\"<>[\\]^`", text[i]);
    }
    return good;
}

static bool can_act(const turn_state *s, const char *act)
{
    bool can = false;
    for (size_t i = 0; i < COUNT(acts); i++) {
        can = can || strcmp(acts[i], act) == 0;
    }
    for (uint32_t i = 0; i < s->thing_count; i++) {
        can = can || (strncmp(act, GIVE, sizeof GIVE - 1) == 0 && strcmp(act + sizeof GIVE - 1, s->things[i]) == 0);
    }
    return can;
}

bool turn_follow(turn_state *s, const char *answer, const char *act, const char *target)
{
    size_t bytes = 0;
    if (!turn_can_say(answer)) {
        return false;
    }
    for (int i = 0; i < BEGIN_WORDS && answer[bytes]; i++) {
        bytes += strcspn(answer + bytes + 1, " ") + 1;
    }
    s->says = answer;
    s->says_bytes = s->whole ? strlen(answer) : bytes;
    s->act = act && can_act(s, act) ? act : acts[0];
    s->target = target;
    return true;
}

/* `say` comes first because the player waits for it. It has plain letters and punctuation, and ends with a sentence. */
static void put_say(writer *w, const turn_state *s)
{
    if (s->evasion_count) {
        put_enum(w, "say", s->evasions, s->evasion_count, "");
        put(w, "]},");
        return;
    }
    put(w, "\"say\":{\"type\":\"string\",\"pattern\":\"^");
    if (s->says && !s->says[s->says_bytes]) {
        put_pattern(w, s->says, s->says_bytes);
        put(w, "$\"},");
    } else if (s->says) {
        put_pattern(w, s->says, s->says_bytes);
        put(w, "[ !#-;=?-Z_a-z]{0,%d}[.!?]$\"},", TURN_SAY_MAX - 1 - (int)s->says_bytes);
    } else {
        put(w, "[A-Z][ !#-;=?-Z_a-z]{2,%d}[.!?]$\"},", TURN_SAY_MAX - 2);
    }
}

void turn_schema(const turn_state *s, char out[TURN_SCHEMA_BYTES])
{
    writer w = { out, 0 };
    put(&w, "{\"type\":\"object\",\"properties\":{");
    put_say(&w, s);
    put_enum(&w, "mood", moods, COUNT(moods), "");
    put_enum(&w, "act", s->says ? &s->act : acts, s->says || s->evasion_count ? 1 : COUNT(acts), "]},");
    for (uint32_t i = 0; !s->says && !s->evasion_count && i < s->thing_count; i++) {
        put(&w, ",\"" GIVE "%s\"", s->things[i]);
    }
    put_enum(&w, "target", s->says ? &s->target : s->targets, s->says ? 1 : s->target_count, "]},");
    put(&w, "]},\"trust\":{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}},"
            "\"required\":[\"say\",\"mood\",\"act\",\"target\",\"trust\"]}",
        s->trust > -TURN_TRUST_MAX ? s->trust - 1 : s->trust, s->trust < TURN_TRUST_MAX ? s->trust + 1 : s->trust);
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
    good = good && say && say->kind == JSON_TEXT && say->text_bytes >= 4 && say->text_bytes <= TURN_SAY_MAX
        && strchr(".!?", say->text[say->text_bytes - 1])
        && (!s->evasion_count || one_of(root, "say", s->evasions, s->evasion_count))
        && (!s->says || strncmp(say->text, s->says, s->says_bytes) == 0)
        && (!s->says || s->says[s->says_bytes] || say->text_bytes == s->says_bytes);
    bool points = good && strcmp(out->act, "point") == 0;
    const char *named = points ? turn_named(s, say->text) : NULL;
    out->target = named ? named : out->target;
    json_free(root);
    return good;
}
