/* npc_parts.c: the parts of npc that need no engine: editing a line, wrapping, which facts a question recalls, whom a
   reply points at. */
#include "../../demo/npc/cast.c"
#include "../../demo/npc/line_edit.c"
#include "../../demo/npc/recall.c"
#include "../../demo/npc/turn.c"
#include "../../demo/npc/wrap.c"

#include "../../demo/common/json_in.c"
#include "../../demo/common/memory.c"
#include "../check.h"

#define LEFT "\x1b[D"
#define RIGHT "\x1b[C"
#define UP "\x1b[A"
#define DOWN "\x1b[B"
#define HOME "\x1b[H"
#define END "\x1b[F"
#define DELETE "\x1b[3~"

/* cast.c reads files; no test here does. */
char *text_file_read(const char *path, size_t *bytes)
{
    (void)path;
    *bytes = 0;
    return NULL;
}

/* ---- typing ---- */

static line_edit edit;

static line_key type(const char *keys)
{
    line_key key = LINE_TYPING;
    for (; *keys; keys++) {
        key = line_edit_byte(&edit, (unsigned char)*keys);
    }
    return key;
}

/* The keys on an empty line leave this text; '|' is the cursor. */
static void typed(const char *keys, const char *wanted)
{
    char got[LINE_BYTES_MAX + 2];
    edit = (line_edit){ 0 };
    type(keys);
    snprintf(got, sizeof got, "%.*s|%s", (int)edit.at, edit.now.text, edit.now.text + edit.at);
    CHECK_TEXT(got, wanted);
    CHECK_INT(edit.now.bytes, strlen(edit.now.text));
}

static void keys_edit(void)
{
    typed("ale", "ale|");
    typed("ale" LEFT LEFT "x", "ax|le");
    typed("ale" LEFT LEFT LEFT LEFT RIGHT "x", "ax|le");
    typed("ale" RIGHT RIGHT "x", "alex|");
    typed("ale" HOME "x", "x|ale");
    typed("ale\x1b[1~x", "x|ale");
    typed("ale\x1bOHx\x1bOFy", "xaley|");
    typed("ale" HOME END "x" HOME "\x1b[4~y", "alexy|");
    typed("ale" HOME DELETE, "|le");
    typed("ale" DELETE, "ale|");
    typed("ale" LEFT "\x7F", "a|e");
    typed("ale" HOME "\x7F\b", "|ale");
    typed("ale\x01x\x05y", "xaley|");
    typed("ale" LEFT "\x15", "|e");
    typed("ale" LEFT "\x0B", "al|");
    typed("one two  \x17x", "one x|");
    typed("one two" LEFT "\x17", "one |o");
    typed("\x17\x15\x0B\x7F" DELETE LEFT RIGHT UP DOWN, "|");
    typed("ale" LEFT "\x04", "al|");
    typed("a\x1b[1;5Db", "b|a");                   /* Ctrl-Left is Left */
    typed("a\x1b[200~b\x1b[19~c\x1bxd", "abcd|");  /* unknown sequences do nothing */
    typed("a\tb\x02\x06\x07", "ab|");
    edit = (line_edit){ 0 };
    CHECK_INT(type("a\x04\x7F"), LINE_TYPING);
    CHECK_INT(type("\x04"), LINE_CLOSED);
    CHECK_INT(type("a\x1b[15~"), LINE_SAVE);
    CHECK_INT(type("\x1b[17~"), LINE_LESS);
    CHECK_INT(type("\x1b[18~"), LINE_MORE);
    CHECK_INT(type("b\x1b[20~"), LINE_LOAD);
    CHECK_TEXT(edit.now.text, "ab");
}

static void utf8_stays_whole(void)
{
    typed("\xC3\xA9\xE2\x82\xAC" LEFT "x", "\xC3\xA9x|\xE2\x82\xAC");
    typed("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x7F\x7F", "\xC3\xA9|");
    typed("\xC3\xA9\xE2\x82\xAC" HOME DELETE, "|\xE2\x82\xAC");
    typed("a\xE2\x82" "b\x82\xFF\xC0\x80", "ab|"); /* incomplete code points and invalid bytes */
    typed("a\xC3" LEFT "\xA9", "\xC3\xA9|a");      /* a code point is inserted when it is complete */
}

static void lines_have_a_stated_limit(void)
{
    edit = (line_edit){ 0 };
    for (int i = 0; i < LINE_BYTES_MAX - 1; i++) {
        line_edit_byte(&edit, 'a');
    }
    CHECK(!edit.full);
    type("\xC3\xA9"); /* all of its bytes or none */
    CHECK(edit.full);
    CHECK_INT(edit.now.bytes, LINE_BYTES_MAX - 1);
    type("b");
    CHECK(!edit.full);
    type("c");
    CHECK(edit.full);
    CHECK_INT(edit.now.bytes, LINE_BYTES_MAX);
    CHECK_INT(edit.now.text[LINE_BYTES_MAX - 1], 'b');
    type("\x7F");
    CHECK(!edit.full);
    CHECK_INT(type("d\n"), LINE_ENTERED);
    CHECK_INT(strlen(edit.entered.text), LINE_BYTES_MAX);
    CHECK_INT(edit.now.bytes, 0);
}

static void lines_come_back(void)
{
    char number[16];
    edit = (line_edit){ 0 };
    CHECK_INT(type("one\ntwo\ntwo\n\nthr" UP), LINE_TYPING);
    CHECK_TEXT(edit.entered.text, ""); /* neither the empty line nor the second "two" is kept */
    CHECK_TEXT(edit.now.text, "two");
    CHECK_INT(edit.at, 3);
    type(UP UP UP);
    CHECK_TEXT(edit.now.text, "one");
    type("x" DOWN);
    CHECK_TEXT(edit.now.text, "two");
    type(DOWN DOWN);
    CHECK_TEXT(edit.now.text, "thr");
    type(UP UP "!\n");
    CHECK_TEXT(edit.entered.text, "one!");
    CHECK_TEXT(edit.now.text, "");
    type(UP);
    CHECK_TEXT(edit.now.text, "one!");
    for (int i = 0; i < LINE_HISTORY + 5; i++) {
        snprintf(number, sizeof number, "\x15%d\n", i);
        type(number);
    }
    for (int i = 0; i < LINE_HISTORY + 5; i++) {
        type(UP);
    }
    CHECK_TEXT(edit.now.text, "5"); /* the oldest of LINE_HISTORY */
}

static void view(const char *keys, uint32_t columns, const char *wanted)
{
    char got[256];
    edit = (line_edit){ 0 };
    type(keys);
    line_view v = line_edit_view(&edit, columns);
    snprintf(got, sizeof got, "%.*s|%.*s", (int)v.cursor, v.text, (int)(v.bytes - v.cursor), v.text + v.cursor);
    CHECK_TEXT(got, wanted);
}

static void the_cursor_is_seen(void)
{
    view("", 5, "|");
    view("abcd", 5, "abcd|");
    view("abcdef", 5, "cdef|");
    view("abcdef" LEFT LEFT LEFT, 5, "abc|d");
    view("abcdef" HOME, 5, "|abcd");
    view("a\xC3\xA9\xE2\x82\xAC" "b", 4, "\xE2\x82\xAC" "b|");
}

/* ---- wrapping ---- */

static void wrapped(uint32_t columns, const char *const *pieces, const char *wanted)
{
    char got[256];
    wrap w = { .columns = columns };
    for (; *pieces; pieces++) {
        if ((*pieces)[0] == '\x1b') {
            wrap_style(&w, *pieces);
        } else {
            wrap_words(&w, *pieces);
        }
    }
    wrap_row(&w);
    wrap_end(&w);
    snprintf(got, sizeof got, "%.*s", (int)w.out.bytes, w.out.data);
    free(w.out.data);
    CHECK_TEXT(got, wanted);
    uint32_t rows = 0;
    for (const char *at = got; (at = strchr(at, '\n')); at++) {
        rows++;
    }
    CHECK_INT(w.rows, rows);
}

#define E4 "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"
#define EURO2 "\xE2\x82\xAC\xE2\x82\xAC"
#define WRAPPED(columns, wanted, ...) wrapped(columns, (const char *const[]){ __VA_ARGS__, NULL }, wanted)

static void words_stay_whole(void)
{
    WRAPPED(11, "one two\n  three\n", "one two three");
    WRAPPED(14, "one two three\n", "one two three");
    WRAPPED(13, "one two\n  three\n", "one two three");
    WRAPPED(11, "one two\n  (three\n  four)\n", "one two", " (", "three four", ")"); /* a word of several pieces */
    WRAPPED(11, "one two\n  three_\n", "one two thr", "ee", "_");
    WRAPPED(11, "\x1b[1mone\x1b[0m: two\n  \x1b[2mthree\x1b[0m\n", "\x1b[1m", "one", "\x1b[0m", ": two ", "\x1b[2m",
            "three", "\x1b[0m");
    WRAPPED(8, "abcdefg\n  hijkl\n  mn op\n", "abcdefghijklmn op");    /* a word longer than a row */
    WRAPPED(8, "ab\n  cdefg\n  hij\n", "ab cdefghij");
    WRAPPED(20, "  a   b\n", "  a   b");                               /* blanks inside a row are kept */
    WRAPPED(8, "abcd\n  efgh\n", "abcd   ", "  efgh");                 /* a row does not end with blanks */
    WRAPPED(20, "a b c\n", "a\tb\nc");
    WRAPPED(10, E4 " " EURO2 "\n", E4 " " EURO2); /* of 4 columns each: those of E4 are narrow */
    WRAPPED(9, E4 "\n  " EURO2 "\n", E4 " " EURO2); /* those of EURO2 may be wide */
    WRAPPED(20, "\n", "");
}

/* ---- facts that a question recalls ---- */

static void the_same_does_not_come_twice(void)
{
    character who = { .examples = { { .question = "Who took the key?" }, { .question = "Where is the key now?" } },
                      .example_count = 2 };
    recollection m = { 0 };
    CHECK(recall(&who, &m, "Who took it, the key?") == &who.examples[0]);
    CHECK(recall(&who, &m, "Who took the key?") == &who.examples[1]);
    CHECK(recall(&who, &m, "Who took the key?") == &who.examples[0]);
    CHECK(recall(&who, &m, "Do you like dogs?") == NULL);
    CHECK(recall(&who, &m, "Who took the key?") == &who.examples[0]);
}

/* Words that only end or begin with a common one are no sign, nor are fillers. What asks about the plot always has an
   example, of those about the plot. */
static void plots_are_recalled(void)
{
    character who = { .examples = { { .question = "What happened at midnight?" },
                                    { .question = "Did you take the key?" }, { .question = "Who is the thief?" },
                                    { .question = "What do you want?" } },
                      .example_count = 4, .plot = "key stole thief" };
    recollection m = { 0 };
    CHECK(recall(&who, &m, "Do you dream at night?") == NULL);
    CHECK(recall(&who, &m, "What do you do about it?") == NULL);
    CHECK(recall(&who, &m, "What happened?") == &who.examples[0]);
    CHECK(recall(&who, &m, "I say that somebody STOLE it.") == &who.examples[1]);
    CHECK(recall(&who, &m, "And stole it again!") == &who.examples[2]);
    CHECK(cast_is_plot(&who, "the Key.") && cast_is_plot(&who, "thief") && !cast_is_plot(&who, "keyhole, monkey"));
    who.plot = NULL;
    CHECK(!cast_is_plot(&who, "the key") && recall(&who, &m, "I say that somebody stole it.") == NULL);
}

/* Whether the list has this evasion. */
static bool offers(const char *const *list, uint32_t count, const char *evasion)
{
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        found = found || list[i] == evasion;
    }
    return found;
}

static void evasions_rest(void)
{
    character who = { .evasions = { "One.", "Two, love.", "Three.", "Four.", "Five." }, .evasion_count = 5 };
    const char *list[CAST_EVASIONS_MAX];
    recollection m = { 0 };
    CHECK_INT(recall_evasions(&who, &m, list), 5);
    recall_used(&who, &m, "Two, l"); /* it was cut off */
    CHECK_INT(recall_evasions(&who, &m, list), 4);
    CHECK(!offers(list, 4, who.evasions[1]));
    recall_used(&who, &m, "");
    recall_used(&who, &m, "Six.");
    CHECK_INT(m.count, 1);
    recall_used(&who, &m, "Five.");
    CHECK_INT(recall_evasions(&who, &m, list), 3);
    recall_used(&who, &m, "One.");
    CHECK_INT(recall_evasions(&who, &m, list), 3);
    CHECK(offers(list, 3, who.evasions[1]) && !offers(list, 3, who.evasions[4]) && !offers(list, 3, who.evasions[0]));
    for (int i = 0; i < 40; i++) { /* who always says the first one that does not rest says all but two */
        uint32_t count = recall_evasions(&who, &m, list);
        CHECK_INT(count, 3);
        recall_used(&who, &m, list[0]);
    }
    who.evasion_count = 0;
    CHECK_INT(recall_evasions(&who, &m, list), 0);
}

/* ---- replies ---- */

static turn read_turn(const char *say, const char *act, const char *target, bool valid)
{
    turn_state s = { .targets = { "Stranger", "Osric", "Pike" }, .target_count = 3 };
    char json[TURN_BYTES];
    turn t;
    int bytes = snprintf(json, sizeof json, "{\"say\":\"%s\",\"mood\":\"sly\",\"act\":\"%s\",\"target\":\"%s\","
                                            "\"trust\":0}", say, act, target);
    CHECK(turn_read(&s, json, (size_t)bytes, &t) == valid);
    return t;
}

/* The schema and the check of an answer that follows an example. */
static void answers_follow_examples(void)
{
    turn_state s = { .things = { "ale" }, .targets = { "Stranger", "Osric" }, .thing_count = 1, .target_count = 2 };
    turn_state free = s;
    char schema[TURN_SCHEMA_BYTES];
    turn t;
#define FOLLOW(answer, all, act, target) (s.whole = (all), turn_follow(&s, answer, act, target))
    CHECK(FOLLOW("Of course. An ale is one penny.", false, "give ale", "Stranger"));
    turn_schema(&s, schema);
    CHECK(strstr(schema, "^Of course[.] An[ !#-;=?-Z_a-z]{0,") && strstr(schema, "\"act\":{\"enum\":[\"give ale\"]"));
    CHECK(strstr(schema, "\"target\":{\"enum\":[\"Stranger\"]"));
#define ANSWER(text, act) \
    "{\"say\":\"" text "\",\"mood\":\"sly\",\"act\":\"" act "\",\"target\":\"Stranger\",\"trust\":0}"
#define READ(text, act) turn_read(&s, ANSWER(text, act), strlen(ANSWER(text, act)), &t)
    CHECK(READ("Of course. An ale, love.", "give ale") && t.thing == s.things[0]);
    CHECK(!READ("An ale, love.", "give ale"));
    s = free;
    CHECK(FOLLOW("I have no key. (Search me?)", true, "give key", "Osric") == false); /* it ends with ')' */
    CHECK(FOLLOW("I have no key. Search me?", true, "give key", "Osric"));
    CHECK_TEXT(s.act, "none"); /* that thing is not there */
    turn_schema(&s, schema);
    CHECK(strstr(schema, "\"^I have no key[.] Search me[?]$\"") != NULL);
    CHECK(READ("I have no key. Search me?", "none") && !READ("I have no key. I just took it.", "none"));
    s = free;
    CHECK(FOLLOW("Yes, love.", false, NULL, "Osric") && s.says[s.says_bytes] == 0); /* it has few words */
    CHECK(!FOLLOW("\"No,\" says she.", false, NULL, "Osric") && !FOLLOW("no.", true, NULL, "Osric"));
#undef READ
#undef ANSWER
#undef FOLLOW
}

static void who_is_named_is_pointed_at(void)
{
    CHECK_TEXT(read_turn("I saw Pike there.", "point", "Stranger", true).target, "Pike");
    CHECK_TEXT(read_turn("Osric, not Pike.", "point", "Pike", true).target, "Osric");
    CHECK_TEXT(read_turn("It was you!", "point", "Stranger", true).target, "Stranger");
    CHECK_TEXT(read_turn("I saw Pike there.", "nod", "Stranger", true).target, "Stranger");
    read_turn("I saw Pike there.", "point", "Marla", false); /* she is not present */
}

static void evasions_are_the_only_words(void)
{
    turn_state s = { .things = { "ale" }, .targets = { "Stranger" }, .thing_count = 1, .target_count = 1,
                     .evasions = { "Ask the sea.", "Who knows?" }, .evasion_count = 2 };
    char schema[TURN_SCHEMA_BYTES];
    turn t;
    turn_schema(&s, schema);
    CHECK(strstr(schema, "\"say\":{\"enum\":[\"Ask the sea.\",\"Who knows?\"]}") != NULL);
    CHECK(strstr(schema, "\"act\":{\"enum\":[\"none\"]}") != NULL);
#define READ(text) turn_read(&s, text, strlen(text), &t)
    CHECK(READ("{\"say\":\"Who knows?\",\"mood\":\"sly\",\"act\":\"none\",\"target\":\"Stranger\",\"trust\":0}"));
    CHECK(!READ("{\"say\":\"I know.\",\"mood\":\"sly\",\"act\":\"none\",\"target\":\"Stranger\",\"trust\":0}"));
#undef READ
    CHECK(turn_can_say("Who knows?") && !turn_can_say("\"Who\" knows?") && !turn_can_say("who knows?"));
}

int main(void)
{
    keys_edit();
    utf8_stays_whole();
    lines_have_a_stated_limit();
    lines_come_back();
    the_cursor_is_seen();
    words_stay_whole();
    the_same_does_not_come_twice();
    plots_are_recalled();
    evasions_rest();
    answers_follow_examples();
    who_is_named_is_pointed_at();
    evasions_are_the_only_words();
    return check_done();
}
