/* normal.c: the normalizer's steps: normal forms compared with the tokenizers library (tests/golden/README.md), marks
   that move with the text, and time. */
#include "../text_rows.h"
#include "private/normal.h"

static exl2__nfc tables;
static exl2__normal_text buffers[2];

static void check_form(exl2__ctx *c, exl2__normal_kind kind, bool compatible, const char *text, size_t bytes,
                       const exl2__json *j, const char *key, int line)
{
    exl2__normal_rules rules = { .steps = { { .kind = kind, .compatible = compatible } }, .count = 1, .nfc = tables };
    exl2__normal_view view = { text, bytes, NULL, 0 };
    uint64_t allowed = exl2__normal_allowance(bytes);
    size_t wanted_bytes;
    char *wanted = rows_text(j, exl2__json_get(j, 0, key), &wanted_bytes);
    CHECK(exl2__normal_run(c, &rules, buffers, &view, &allowed) == EXL2_OK);
    if (!CHECK(view.bytes == wanted_bytes && memcmp(view.text, wanted, wanted_bytes) == 0)) {
        printf("    line %d: %s of \"%s\" is \"%.*s\", wanted \"%s\"\n", line, key, text, (int)view.bytes, view.text,
               wanted);
    }
    free(wanted);
}

static void normal_row(void *user, const exl2__json *j, int line)
{
    size_t bytes;
    char *text = rows_text(j, exl2__json_get(j, 0, "text"), &bytes);
    check_form(user, EXL2__NORMAL_NFC, false, text, bytes, j, "nfc", line);
    check_form(user, EXL2__NORMAL_NFD, false, text, bytes, j, "nfd", line);
    free(text);
}

static void compatible_row(void *user, const exl2__json *j, int line)
{
    size_t bytes;
    char *text = rows_text(j, exl2__json_get(j, 0, "text"), &bytes);
    check_form(user, EXL2__NORMAL_NFC, true, text, bytes, j, "nfkc", line);
    check_form(user, EXL2__NORMAL_NFD, true, text, bytes, j, "nfkd", line);
    free(text);
}

/* Text and marks ('#': marked) after the steps, as "text|##  ". */
static const char *run(exl2__ctx *c, const exl2__normal_rules *rules, const char *text, const char *marks)
{
    static char line[256];
    uint8_t bits[16] = { 0 };
    size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes; i++) {
        bits[(i + 3) >> 3] = (uint8_t)(bits[(i + 3) >> 3] | (marks[i] == '#') << ((i + 3) & 7));
    }
    exl2__normal_view view = { text, bytes, bits, 3 };
    uint64_t allowed = exl2__normal_allowance(bytes);
    CHECK(exl2__normal_run(c, rules, buffers, &view, &allowed) == EXL2_OK);
    int used = snprintf(line, sizeof line, "%.*s|", (int)view.bytes, view.text);
    for (size_t i = 0; i < view.bytes; i++) {
        line[used++] = exl2__normal_marked(&view, i) ? '#' : ' ';
    }
    line[used] = 0;
    return line;
}

static void check_steps(exl2__ctx *c)
{
    exl2__normal_rules rules = { .count = 2, .nfc = tables };
    rules.steps[0] = (exl2__normal_step){ .kind = EXL2__NORMAL_PREPEND, .by = "_", .by_bytes = 1 };
    rules.steps[1] = (exl2__normal_step){ .kind = EXL2__NORMAL_REPLACE, .text = " ", .text_bytes = 1,
                                          .by = "\xE2\x96\x81", .by_bytes = 3 };
    CHECK_TEXT(run(c, &rules, "a b", " ##"), "_a\xE2\x96\x81" "b|  ####");
    CHECK_TEXT(run(c, &rules, "", ""), "|");
    rules.steps[0] = (exl2__normal_step){ .kind = EXL2__NORMAL_STRIP, .left = true, .right = true };
    CHECK_TEXT(run(c, &rules, "  a b\n\xC2\xA0", "#   ####"), "a\xE2\x96\x81" "b|    #");
    CHECK_TEXT(run(c, &rules, " \n", "##"), "|");
    rules.steps[1] = (exl2__normal_step){ .kind = EXL2__NORMAL_NFC };
    rules.steps[0].right = false;
    CHECK_TEXT(run(c, &rules, " <e\xCC\x81>x ", "   ##  # "), "<\xC3\xA9>x | ##  #");
    /* a step after Strip reads the buffer that the step before Strip wrote, and writes the other one */
    rules.count = 3;
    rules.steps[0] = (exl2__normal_step){ .kind = EXL2__NORMAL_LOWER };
    rules.steps[1] = (exl2__normal_step){ .kind = EXL2__NORMAL_STRIP, .left = true };
    rules.steps[2] = (exl2__normal_step){ .kind = EXL2__NORMAL_REPLACE, .text = "a", .text_bytes = 1,
                                          .by = "<xyz>", .by_bytes = 5 };
    CHECK_TEXT(run(c, &rules, " AABBAACC", " #   ### "), "<xyz><xyz>bb<xyz><xyz>cc|#####       ########### ");
}

/* The time for a megabyte of the worst kinds is nearly linear. */
static void check_time(exl2__ctx *c)
{
    static const char *const kinds[] = { "\xCC\x81", "\xCC\x81\xCC\xA3", "e\xCC\x81", "\xEA\xB0\x80",
                                        "\xE3\x81\x8C", "\xEF\xB7\xBA", "a" };
    exl2__normal_rules rules = { .steps = { { .kind = EXL2__NORMAL_NFC, .compatible = true } }, .count = 1,
                                 .nfc = tables };
    char *text = malloc((1 << 20) + 8);
    for (size_t k = 0; k < EXL2__COUNT(kinds); k++) {
        size_t unit = strlen(kinds[k]), bytes = 0;
        for (; bytes < 1 << 20; bytes += unit) {
            memcpy(text + bytes, kinds[k], unit);
        }
        exl2__normal_view view = { text, bytes, NULL, 0 };
        uint64_t allowed = exl2__normal_allowance(bytes);
        double start = check_cpu_seconds();
        CHECK(exl2__normal_run(c, &rules, buffers, &view, &allowed) == EXL2_OK);
        double seconds = check_cpu_seconds() - start;
        printf("NFKC of 1 MiB of \"%s\": %.3f s\n", kinds[k], seconds);
        CHECK(seconds < 20);
    }
    free(text);
}

int main(void)
{
    exl2__ctx c = rows_ctx();
    exl2__arena dry = { 0 }, arena;
    exl2__nfc_make(&tables, true, &dry);
    CHECK(exl2__arena_open(&c, &arena, dry.used, EXL2_MEM_GENERAL) == EXL2_OK);
    exl2__nfc_make(&tables, true, &arena);
    CHECK_INT(arena.used, dry.used);
    CHECK(rows_each(&c, EXL2_GOLDEN_DIR "/tokenizer/normal.jsonl", normal_row, &c) >= 400);
    CHECK_INT(rows_each(&c, EXL2_GOLDEN_DIR "/tokenizer/compatible.jsonl", compatible_row, &c), 262);
    check_steps(&c);
    check_time(&c);
    exl2__normal_free(&c, &buffers[0]);
    exl2__normal_free(&c, &buffers[1]);
    exl2__arena_close(&c, &arena);
    CHECK_INT(c.host_bytes, 0);
    return check_done();
}
