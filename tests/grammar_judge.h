/* grammar_judge.h: Python's opinion of texts: jsonschema for schemas, re for regular expressions. */
#ifndef GRAMMAR_JUDGE_H
#define GRAMMAR_JUDGE_H

#include "check.h"

#include <unistd.h>

static const char judge_program[] =
    "import sys,json,re\n"
    "try:\n import jsonschema\nexcept ImportError: sys.exit(77)\n"
    "f=open(sys.argv[1],'rb')\nbad=count=0\nchecks={}\n"
    "for line in f:\n"
    " kind,source,text=line.split()\n source=f.read(int(source)); text=f.read(int(text)); count+=1\n"
    " try:\n"
    "  t=text.decode()\n"
    "  if source not in checks: checks[source]=re.compile(source.decode()) if kind==b'r' else "
    "jsonschema.Draft202012Validator(json.loads(source),format_checker=jsonschema.FormatChecker())\n"
    "  if kind==b'r': assert checks[source].fullmatch(t)\n"
    "  else: checks[source].validate(json.loads(t))\n"
    " except Exception as e: bad+=1; print(source[:80],text[:200],str(e)[:200])\n"
    "print(count-bad,'of',count,'texts are valid')\n"
    "sys.exit(bad>0)\n";

typedef struct judge {
    char folder[32], rows_path[64], program_path[64];
    FILE *rows;
} judge;

static judge judge_open(void)
{
    judge j = { .folder = "/tmp/exl2_grammar_XXXXXX" };
    CHECK(mkdtemp(j.folder) != NULL);
    snprintf(j.rows_path, sizeof j.rows_path, "%s/rows.bin", j.folder);
    snprintf(j.program_path, sizeof j.program_path, "%s/judge.py", j.folder);
    FILE *program = fopen(j.program_path, "wb");
    j.rows = fopen(j.rows_path, "wb");
    if (!CHECK(program && j.rows)) {
        exit(1);
    }
    fputs(judge_program, program);
    fclose(program);
    return j;
}

/* letter: s for a schema, r for a regular expression. */
static void judge_add(judge *j, char letter, const char *source, const char *text, size_t bytes)
{
    fprintf(j->rows, "%c %zu %zu\n%s", letter, strlen(source), bytes, source);
    fwrite(text, 1, bytes, j->rows);
}

/* The first Python in the path or else the system's; without jsonschema it says so. */
static void judge_close(judge *j)
{
    static const char *const pythons[] = { "python3", "/usr/bin/python3" };
    int code = 127 * 256;
    fclose(j->rows);
    fflush(stdout);
    for (size_t i = 0; i < 2 && (code == 77 * 256 || code == 127 * 256); i++) {
        char command[192];
        snprintf(command, sizeof command, "%s '%s' '%s' 2>/dev/null", pythons[i], j->program_path, j->rows_path);
        code = system(command);
    }
    if (code == 77 * 256 || code == 127 * 256) {
        printf("not judged: no python3 with jsonschema\n");
    } else {
        CHECK_INT(code, 0);
    }
    remove(j->rows_path);
    remove(j->program_path);
    rmdir(j->folder);
}

#endif
