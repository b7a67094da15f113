/* spoken.c: exl2_sentence: texts of several languages whose sentences are known, given whole, byte by byte, cut at any
   byte, and as a member of JSON that is still being written. */
#include "../../exl2.h"

#include "../check.h"

#define TEXT_MAX 1024

/* '|' stands after each sentence but the last, and is no part of the text. */
static const char *const texts[] = {
    /* English */
    "The door is open. |Come in! |Who are you?",
    "Dr. Smith and Mrs. Jones met Prof. Brown. |They left.",
    "J. R. R. Tolkien wrote it. |So do I. |You too?",
    "It costs 3.50 gold, i.e. more than you have. |Pay 5.|",
    "See No. 5 and Fig. 2. |No. |Never!",
    "At 5 p.m. the U.S. Army came. |At 6 p.m. |They left.",
    "\"Stop!\" he said. |\"Why?\" |\"Because.\" |(He ran.) |She \xE2\x80\x94 wait \xE2\x80\x94 stayed.",
    "\xE2\x80\x9CGo.\xE2\x80\x9D |\xE2\x80\x98No.\xE2\x80\x99 |*He sighs.* |Fine.",
    "What?! |Really... |Well\xE2\x80\xA6 maybe. |Hm... yes, hm.",
    "1. Open the door. |2. Take the key.\n|3. Run.",
    "First line\n|second line\n\n|Third. \r\n |Fourth",
    "Go to example.com or ask v1.2.3 of it. |It was in 1999. |Then 2000.",
    "He ate apples, pears, etc. and slept. |He owns Inc. |And Ltd. too.",
    "Mt. Doom, St. Peter, Capt. Ahab vs. Gen. Lee.",
    /* German */
    "Am 3. Mai kam Hr. M\xC3\xBCller, z.B. um 5.30 Uhr. |Er blieb. |Das 19. Jahrhundert. |Ich habe 3. |Du auch?",
    "Das ist bzw. war d.h. gut. |\xE2\x80\x9EKomm!\xE2\x80\x9C |\xC3\x84pfel? |Nr. 7 lebt.",
    /* French, Spanish, Italian, Portuguese */
    "M. Dupont arrive. |\xC2\xAB Viens ! \xC2\xBB |Mme. Curie est l\xC3\xA0. |\xC3\x89t\xC3\xA9 ? |Oui.",
    "Er geht. |\xC2\xBBKomm!\xC2\xAB |\xC2\xBB"
    "Da?\xC2\xAB |\xC2\xAB Non.\xC2\xA0\xC2\xBB, dit-il. |\xC2\xAB Si\xE2\x80\xAF! \xC2\xBB",
    "\xC2\xBFQui\xC3\xA9n es? |\xC2\xA1No! |La Sra. L\xC3\xB3pez y el Sr. Ruiz. |Ya.",
    "Il Sig. Rossi \xC3\xA8 qui. |\xC3\x88 vero? |S\xC3\xAC.",
    "O Dr. Silva chegou. |\xC3\x89 tarde! |N\xC3\xA3o?",
    /* Russian, Greek, Armenian */
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82! |\xD0\xA3\xD0\xBB. \xD0\x9B\xD0\xB5\xD0\xBD\xD0\xB8\xD0"
    "\xBD\xD0\xB0",
    "\xD0\x93\xD0\xB4\xD0\xB5 \xD0\xBE\xD0\xBD? \xE2\x80\x94 \xD0\xA2\xD0\xB0\xD0\xBC. |\xD0\x94\xD0\xB0.",
    "\xCE\xA0\xCE\xBF\xCF\x8D\xCD\xBE |\xCE\x95\xCE\xB4\xCF\x8E.",
    "\xD4\xB1\xD5\xB5\xD5\xB8\xD6\x89 |\xD5\x88\xD5\xB9\xD6\x89",
    /* Arabic, Urdu, Hindi, Burmese, Khmer, Amharic */
    "\xD9\x85\xD9\x86 \xD8\xA3\xD9\x86\xD8\xAA\xD8\x9F |\xD8\xA3\xD9\x86\xD8\xA7.",
    "\xDB\x81\xDB\x92\xDB\x94 |\xDA\xA9\xDB\x8C\xD8\xA7\xD8\x9F",
    "\xE0\xA4\xB9\xE0\xA5\x88\xE0\xA5\xA4 |\xE0\xA4\xB9\xE0\xA4\xBE\xE0\xA4\x81\xE0\xA5\xA5 |\xE0\xA4\xA8",
    "\xE1\x80\x80\xE1\x81\x8B |\xE1\x80\x81",
    "\xE1\x9E\x80\xE1\x9F\x94 |\xE1\x9E\x81",
    "\xE1\x88\x80\xE1\x8D\xA2 |\xE1\x88\x81",
    /* Chinese, Japanese, Korean */
    "\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82|\xE8\xB0\x81\xEF\xBC\x9F|\xE6\x88\x91\xEF\xBC\x81\xEF\xBC\x81|\xE5\xA5"
    "\xBD!|\xE5\xA5\xBD",
    "\xE3\x80\x8C\xE5\xBE\x85\xE3\x81\xA6\xE3\x80\x82\xE3\x80\x8D|\xE3\x80\x8C\xE3\x81\xAA\xE3\x81\x9C\xEF\xBC"
    "\x9F\xE3\x80\x8D |\xE3\x81\x9D\xE3\x81\x86",
    "\xEA\xB0\x80\xEB\x8B\xA4. |\xEC\x99\x9C? |\xEB\x84\xA4!",
    /* little, and nothing of the kind */
    "", " ", "\n", "...", "a", "  Hello. |Bye", ". |A", "Dr.", "3.", "I.", "no end at all, 12.5 % of it",
    "\xC3(\x80. |\xF0\x9F\x98\x80! |\xF0\x9F\x98\x80", "Bad\xFF. |\xFFxx. |Y\xE3\x80",
};

/* Writes the sentences of the text, with '|' between them. It is given `first` bytes, then `step` more each time. */
static void cut(const char *text, size_t bytes, size_t first, size_t step, char *out)
{
    size_t spoken = 0, used = 0, n;
    for (size_t have = first < bytes ? first : bytes;; have = have + step < bytes ? have + step : bytes) {
        bool whole = have == bytes;
        char *exact = malloc(have - spoken + 1); /* a read behind the end is an error of the sanitizers */
        memcpy(exact, text + spoken, have - spoken);
        size_t at = 0;
        while ((n = exl2_sentence(exact + at, have - spoken - at, whole)) > 0) {
            used += (size_t)snprintf(out + used, 2, "%s", used ? "|" : "");
            memcpy(out + used, exact + at, n);
            used += n;
            at += n;
        }
        free(exact);
        spoken += at;
        if (whole) {
            break;
        }
    }
    out[used] = 0;
    CHECK_INT(spoken, bytes);
}

static void check_sentences(const char *marked)
{
    char text[TEXT_MAX], wanted[TEXT_MAX], got[2 * TEXT_MAX];
    size_t bytes = 0, marked_bytes = strlen(marked);
    snprintf(wanted, sizeof wanted, "%s", marked);
    if (marked_bytes && marked[marked_bytes - 1] == '|') { /* nothing follows */
        wanted[marked_bytes - 1] = 0;
    }
    for (const char *at = wanted; *at; at++) {
        if (*at != '|') {
            text[bytes++] = *at;
        }
    }
    for (size_t step = 1; step < 4; step++) {
        cut(text, bytes, 0, step, got);
        CHECK_TEXT(got, wanted);
    }
    for (size_t first = 0; first <= bytes; first++) {
        cut(text, bytes, first, bytes, got);
        if (!CHECK_TEXT(got, wanted)) {
            printf("  cut at byte %zu\n", first);
            return;
        }
    }
}

/* A member of JSON, cut at any byte: its sentences are those of the member alone. */
static void in_json(void)
{
    static const char json[] = "{\"act\": \"none. \", \"say\": \"Dr. Who\\u003f No!\\nWell\\u2026 \\u00c9t\\u00e9. "
                               "3.5 \\\"e.g. gold.\\\" \\ud83d\\ude00\", \"end\": 1}";
    static const char wanted[] = "Dr. Who? |No!\n|Well\xE2\x80\xA6 |\xC3\x89t\xC3\xA9. |3.5 \"e.g. gold.\" |\xF0"
    "\x9F\x98\x80";
    for (size_t first = 1; first < sizeof json; first++) {
        char member[256], got[512];
        size_t spoken = 0, used = 0, need, n;
        bool whole = false;
        for (size_t have = first; !whole; have = sizeof json - 1) {
            CHECK_INT(exl2_json_text(json, have, "/say", member, sizeof member, &need, &whole), EXL2_OK);
            while ((n = exl2_sentence(member + spoken, need - spoken, whole)) > 0) {
                used += (size_t)snprintf(got + used, sizeof got - used, "%s%.*s", used ? "|" : "", (int)n,
                                         member + spoken);
                spoken += n;
            }
        }
        if (!CHECK_TEXT(got, wanted)) {
            printf("  cut at byte %zu\n", first);
            return;
        }
    }
}

/* Texts of random pieces: wherever they are cut, the sentences are the same, and nothing is lost. */
static void random_texts(void)
{
    static const char *const pieces[] = { "Dr", ".", ". ", "! ", "?", " ", "\n", "3", "Mai", "e.g.", "\"", "word",
                                          "Word", "\xE3\x80\x82", "\xE4\xBD\xA0", "\xE2\x80\xA6", "I", "\xC3", "\xF0"
                                          "\x9F", "U.S" };
    uint32_t state = 7;
    for (uint32_t round = 0; round < 2000; round++) {
        char text[256], whole[512], got[512];
        size_t bytes = 0;
        for (uint32_t i = 0; i < 12; i++) {
            state = state * 1664525u + 1013904223u;
            const char *piece = pieces[(state >> 16) % (sizeof pieces / sizeof pieces[0])];
            memcpy(text + bytes, piece, strlen(piece));
            bytes += strlen(piece);
        }
        cut(text, bytes, bytes, 1, whole);
        cut(text, bytes, 0, 1 + state % 5, got);
        CHECK_TEXT(got, whole);
        cut(text, bytes, (state >> 8) % (bytes + 1), bytes, got);
        CHECK_TEXT(got, whole);
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        check_sentences(texts[i]);
    }
    in_json();
    random_texts();
    CHECK_INT(exl2_sentence(NULL, 0, true), 0);
    CHECK_INT(exl2_sentence("Hi.", 0, true), 0);
    return check_done();
}
