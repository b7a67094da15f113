/* cli_lines.h: commands of exl2 that read a JSON value in each line, and answer in a line.
   takes: the program (program.h); goldens of tests/golden.
   gives: TOKENIZER, same_numbers, check_lines, check_bad_lines. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include "program.h"

#define TOKENIZER EXL2_GOLDEN_DIR "/smollm2"

static bool same_numbers(const json_value *a, const json_value *b)
{
    const json_value *x = a ? a->child : NULL, *y = b ? b->child : NULL;
    while (x && y && x->number >= y->number && x->number <= y->number) {
        x = x->next;
        y = y->next;
    }
    return a && b && !x && !y;
}

/* Runs the command on a file of goldens. The `key` of each answer must equal the golden's. */
static void check_lines(const char *command, const char *goldens, const char *key)
{
    size_t rows = 0, errors = 0;
    CHECK_INT(program_run("%s <'%s'", command, goldens), 0);
    char *text = program_read("out"), *wanted_text = check_read(goldens, NULL), *got = text, *wanted = wanted_text;
    while (*wanted && *got) {
        size_t wanted_bytes = strcspn(wanted, "\n"), got_bytes = strcspn(got, "\n");
        json_value *row = program_parse(wanted, wanted_bytes), *answer = program_parse(got, got_bytes);
        const json_value *value = json_member(row, key), *said = json_member(answer, key);
        bool good = value && said && value->kind == said->kind;
        if (!value) {
            good = !said && program_text(answer, "error");
            errors++;
        } else if (good && value->kind == JSON_TEXT) {
            good = value->text_bytes == said->text_bytes && memcmp(value->text, said->text, value->text_bytes) == 0;
        } else if (good) {
            good = same_numbers(value, said);
        }
        if (!CHECK(good)) {
            printf("%.*s\n%.*s\n", (int)wanted_bytes, wanted, (int)got_bytes, got);
        }
        json_free(row);
        json_free(answer);
        wanted += wanted_bytes + (wanted[wanted_bytes] != 0);
        got += got_bytes + (got[got_bytes] != 0);
        rows++;
    }
    CHECK(*wanted == 0 && *got == 0);
    printf("%zu rows, %zu of them errors\n", rows, errors);
    CHECK(rows > 20 && errors < rows / 2);
    free(text);
    free(wanted_text);
}

/* A line that cannot be answered gives an error, and the next line is answered. */
static void check_bad_lines(void)
{
    program_write("in", "\n[]\n{\"text\": 1}\n{\"text\": \"a\n{\"ids\": [1]}\n{\"text\": \"Hello\"}\n");
    CHECK_INT(program_run("tokenize '%s' <'%s/in'", TOKENIZER, folder), 0);
    char *text = program_read("out"), *at = text;
    for (int line = 0; line < 6 && *at; line++) {
        size_t bytes = strcspn(at, "\n");
        json_value *answer = program_parse(at, bytes);
        CHECK((program_text(answer, "error") != NULL) == (line < 5));
        CHECK((json_member(answer, "ids") != NULL) == (line == 5));
        json_free(answer);
        at += bytes + 1;
    }
    CHECK(*at == 0);
    free(text);
}

#endif
