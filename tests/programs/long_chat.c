/* long_chat.c: `exl2 chat` over 200 turns in a context of 1,024 tokens, with a model of random weights: no turn fails,
   forgotten turns are trimmed from the middle of the history, and the last reply is the one that the system message and
   the turns that are left give, as `exl2 replay` says it.
   takes: long_chat PROGRAM FOLDER: the program exl2, a folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#define TURNS 200u
#define NEWEST 45u /* turns that 1,024 tokens can hold, and some more */
#define SYSTEM "You keep the light of Saltmouth."

#define TURN_TOKENS_MIN 15u /* of a question, a reply and the markers of both, by SmolLM2's template */
#define TURN_TOKENS_MAX 26u

static char *said[TURNS]; /* the replies */
static uint32_t kept;     /* newest turns, before the last one, that chat had not forgotten */

static void put_json(memory_text *out, const char *text)
{
    for (; *text; text++) {
        memory_text_format(out, (unsigned char)*text < ' ' || *text == '"' || *text == '\\' ? "\\u%04x" : "%c",
                           (unsigned char)*text);
    }
}

static void put_message(memory_text *out, const char *role, const char *text)
{
    memory_text_format(out, "{\"role\":\"%s\",\"content\":\"", role);
    put_json(out, text);
    memory_text_format(out, "\"}%s", strcmp(role, "user") == 0 ? "" : ",");
}

static void question(char text[64], uint32_t turn)
{
    snprintf(text, 64, "What do you know about ship %u?", turn);
}

/* The last turn, asked after the `newest` turns before it. */
static void put_say(memory_text *out, bool system, uint32_t newest)
{
    char text[64];
    memory_text_format(out, "{\"op\":\"open\",\"s\":\"a\"}\n{\"op\":\"say\",\"s\":\"a\",\"max\":2,\"seed\":3,"
                       "\"temperature\":1,\"messages\":[");
    if (system) {
        put_message(out, "system", SYSTEM);
    }
    for (uint32_t i = TURNS - 1 - newest; i < TURNS; i++) {
        question(text, i);
        put_message(out, "user", text);
        if (i + 1 < TURNS) {
            memory_text_add(out, ",", 1);
            put_message(out, "assistant", said[i]);
        }
    }
    memory_text_format(out, "]}\n{\"op\":\"close\",\"s\":\"a\"}\n");
}

/* Reads the notes about forgotten turns. Only their own tokens were taken out: rewinding to the system message would
   take out those of the newer turns, too. */
static void read_notes(const char *err)
{
    uint32_t forgotten = 0, notes = 0, turns, tokens;
    for (const char *at = err, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, notes++) {
        if (CHECK_INT(sscanf(at, "(forgot the oldest %u turns, %u tokens)", &turns, &tokens), 2)) {
            CHECK(tokens >= TURN_TOKENS_MIN * turns && tokens <= TURN_TOKENS_MAX * turns);
            forgotten += turns;
        }
    }
    CHECK(notes > 4 && forgotten < TURNS);
    kept = TURNS - 1 - forgotten;
    CHECK(kept < NEWEST);
}

static void talk(void)
{
    char text[64], *out, *err;
    memory_text typed = { 0 };
    for (uint32_t i = 0; i < TURNS; i++) {
        question(text, i);
        memory_text_format(&typed, "%s\n", text);
    }
    memory_text_add(&typed, "", 1);
    program_write("typed", typed.data);
    free(typed.data);
    CHECK_INT(program_run("chat '%s/model' --system '" SYSTEM "' --temperature 1 --seed 3 --max 2 --context 1024 "
                          "<'%s/typed'", folder, folder), 0);
    err = program_read("err");
    read_notes(err);
    out = program_read("out");
    uint32_t count = 0;
    for (char *at = out, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, count++) {
        if (count < TURNS) {
            said[count] = memory_copy_text(at, (size_t)(end - at));
        }
    }
    if (!CHECK_INT(count, TURNS)) { /* with this seed no reply has a line end */
        exit(1);
    }
    free(out);
    free(err);
}

/* Whether the last reply comes after the turns that were kept; *others: after another number of turns. */
static bool same_reply(bool system, uint32_t *others)
{
    memory_text script = { 0 };
    uint32_t count = 0, equal = 0;
    bool same = false;
    for (uint32_t newest = 0; newest < NEWEST; newest++) {
        put_say(&script, system, newest);
    }
    memory_text_add(&script, "", 1);
    program_write("script", script.data);
    free(script.data);
    CHECK_INT(program_run("replay '%s/model' '%s/script' --json --context 4096", folder, folder), 0);
    char *out = program_read("out");
    for (char *at = out, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        json_value *line = program_parse(at, (size_t)(end - at));
        if (strcmp(program_text(line, "op"), "say") == 0) {
            bool equals = strcmp(program_text(line, "text"), said[TURNS - 1]) == 0;
            same = same || (equals && count == kept);
            equal += equals;
            count++;
        }
        json_free(line);
    }
    CHECK_INT(count, NEWEST);
    free(out);
    *others = equal - same;
    return same;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: long_chat PROGRAM FOLDER\n", stderr);
        return 2;
    }
    program_set(argv[1], argv[2]);
    program_make_model(program, "model", 1, 1);
    talk();
    uint32_t others;
    CHECK(same_reply(true, &others) && others == 0);
    CHECK(!same_reply(false, &others) && others == 0);
    for (uint32_t i = 0; i < TURNS; i++) {
        free(said[i]);
    }
    program_set(argv[1], argv[2]); /* the model is large */
    return check_done();
}
