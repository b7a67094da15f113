/* banned.c: see banned.h.
   takes: people of the tavern.
   gives: what banned.h declares. */
#include "banned.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Bans the word's first token, if it is the only one or `part`: others would ban the beginnings of common words. */
static exl2_result add_banned(npc *n, exl2_model model, const char *text, size_t bytes, bool part)
{
    exl2_token ids[64];
    size_t count = 0;
    exl2_result result = exl2_tokenize(n->place->engine, model, text, bytes, EXL2_TEXT_PLAIN | EXL2_TEXT_NO_BOS, ids,
                                       sizeof ids / sizeof ids[0], &count);
    if (result >= 0 && count && (part || count == 1) && n->banned_count < TAVERN_BANNED_MAX) {
        n->banned[n->banned_count++] = ids[0];
    }
    return result;
}

/* A word of the plot, inside of a text and at its beginning. */
static exl2_result add_plot(npc *n, exl2_model model, const char *word, size_t bytes)
{
    exl2_result result = EXL2_OK;
    for (int i = 0; result >= 0 && i < 4; i++) {
        char text[64];
        int letter = i % 2 ? toupper((unsigned char)word[0]) : tolower((unsigned char)word[0]);
        int length = snprintf(text, sizeof text, "%s%c%.*s", i / 2 ? "" : " ", letter,
                              (int)(bytes < 60 ? bytes : 60) - 1, word + 1);
        result = add_banned(n, model, text, (size_t)length, false);
    }
    return result;
}

static exl2_result add_stranger(npc *n, exl2_model model, const char *word)
{
    char text[64];
    int length = snprintf(text, sizeof text, " %.60s", word);
    return add_banned(n, model, text, (size_t)length, true);
}

exl2_result banned_learn(npc *n)
{
    exl2_session_info info;
    exl2_result result = exl2_session_get(n->place->engine, n->session, &info);
    const char *at = n->who->plot ? n->who->plot : "";
    for (size_t bytes; result >= 0 && (bytes = strcspn(at, " ")) > 0; at += bytes + (at[bytes] == ' ')) {
        result = add_plot(n, info.model, at, bytes);
    }
    n->plot_count = n->banned_count;
    for (uint32_t i = 0; result >= 0 && i < CAST_SIZE; i++) {
        const character *who = n->place->npcs[i].who;
        const char *blank = strrchr(who->role, ' '), *role = blank ? blank + 1 : who->role;
        if (who != n->who) {
            result = add_stranger(n, info.model, who->name);
            result = result < 0 ? result : add_stranger(n, info.model, role);
        }
    }
    return result;
}

void banned_note_copies(npc *n, const example *const asides[2])
{
    for (int i = 0; i < 2; i++) {
        const char *answer = asides[i] ? asides[i]->answer : "";
        snprintf(n->copied[i], sizeof n->copied[i], "%.*s", (int)strcspn(answer, ".!?"), answer);
    }
}

void banned_phrases(npc *n)
{
    n->never_count = n->who->never_count;
    memcpy(n->never, n->who->never, n->never_count * sizeof *n->never);
    for (int i = 0; n->state.aside && i < 2; i++) {
        if (n->copied[i][0]) {
            n->never[n->never_count++] = n->copied[i];
        }
    }
}
