/* grammar_judge.h: lets Python judge texts that grammars accepted (grammar_judge.py). $EXL2_JUDGE_ROWS: a file to which
   the texts are appended, to be judged elsewhere: python3 tests/grammar_judge.py FILE */
#ifndef GRAMMAR_JUDGE_H
#define GRAMMAR_JUDGE_H

#include "check.h"

#include <unistd.h>

typedef struct judge {
    char folder[32], rows_path[64];
    const char *kept; /* NULL: the texts are judged here and then removed */
    FILE *rows;
} judge;

static judge judge_open(void)
{
    judge j = { .folder = "/tmp/exl2_grammar_XXXXXX", .kept = check_env("EXL2_JUDGE_ROWS") };
    CHECK(mkdtemp(j.folder) != NULL);
    snprintf(j.rows_path, sizeof j.rows_path, "%s/rows.bin", j.folder);
    j.rows = fopen(j.kept ? j.kept : j.rows_path, "ab");
    if (!CHECK(j.rows != NULL)) {
        exit(1);
    }
    return j;
}

/* letter: s for a schema, r for a regular expression, n for one that must not match. */
static void judge_add(judge *j, char letter, const char *source, const char *text, size_t bytes)
{
    fprintf(j->rows, "%c %zu %zu\n%s", letter, strlen(source), bytes, source);
    fwrite(text, 1, bytes, j->rows);
}

/* Uses the first Python in PATH, or else the system's. If it has no jsonschema, prints so. */
static void judge_close(judge *j)
{
    static const char *const pythons[] = { "python3", "/usr/bin/python3" };
    int code = 127 * 256;
    CHECK(fclose(j->rows) == 0);
    fflush(stdout);
    for (size_t i = 0; !j->kept && i < 2 && (code == 77 * 256 || code == 127 * 256); i++) {
        char command[1200];
        snprintf(command, sizeof command, "%s '%s/../grammar_judge.py' '%s' 2>/dev/null", pythons[i], EXL2_GOLDEN_DIR,
                 j->rows_path);
        code = system(command);
    }
    if (j->kept) {
        printf("to be judged: %s\n", j->kept);
    } else if (code == 77 * 256 || code == 127 * 256) {
        printf("not judged: no python3 with jsonschema\n");
    } else {
        CHECK_INT(code, 0);
    }
    remove(j->rows_path);
    rmdir(j->folder);
}

#endif
