/* program.h: what the tests of programs share: run one with flags, read its output, check its message, and look into
   its JSON with the programs' own parser.
   takes: a program, a folder to write to.
   gives: program_set, program_run, program_run_full, program_read, program_write, program_make_model,
          program_sentence, program_parse, program_json, program_number, program_text, item.
   owns:  FOLDER/out and FOLDER/err; the caller frees what it gets. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "../../demo/common/json_in.c"
#include "../../demo/common/memory.c"
#include "../check.h"

#include <math.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

static char program[2048], folder[1024];

/* Empties the folder. The program's path becomes absolute, as tests also start it in other folders. */
static inline void program_set(const char *path, const char *work)
{
    char make[2200];
    char here[1000] = "";
    if (path[0] != '/' && CHECK(getcwd(here, sizeof here - 2) != NULL)) {
        strcat(here, "/");
    }
    CHECK((size_t)snprintf(program, sizeof program, "%s%s", here, path) < sizeof program);
    snprintf(folder, sizeof folder, "%s", work);
    snprintf(make, sizeof make, "rm -rf '%s' && mkdir -p '%s'", folder, folder);
    CHECK_INT(system(make), 0);
}

/* Runs the program with these flags, which may end in redirections, and returns its exit code. Without redirections,
   stdin is empty, and stdout and stderr go to FOLDER/out and FOLDER/err. */
static inline int program_run(const char *format, ...)
{
    char flags[4096], command[12000];
    va_list args;
    va_start(args, format);
    vsnprintf(flags, sizeof flags, format, args);
    va_end(args);
    snprintf(command, sizeof command, "</dev/null >'%s/out' 2>'%s/err' '%s' %s", folder, folder, program, flags);
    printf("+ %s\n", flags);
    fflush(stdout);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The same where no file may have more than 4 KiB, as on a full disk: writing more is an error. ignored: the signal
   that says so is ignored before the program begins. */
static inline int program_run_full(bool ignored, const char *flags)
{
    char command[8192];
    snprintf(command, sizeof command, "%sulimit -c 0; ulimit -f 8; exec '%s' %s </dev/null >'%s/out' 2>'%s/err'",
             ignored ? "trap '' XFSZ; " : "", program, flags, folder, folder);
    printf("+ ulimit -f 8; %s\n", flags);
    fflush(stdout);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A file of the folder, NUL-terminated. */
static inline char *program_read(const char *name)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return check_read(path, NULL);
}

static inline void program_write(const char *name, const char *text)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
        printf("cannot write %s\n", path);
        exit(1);
    }
}

/* A model that chats, in FOLDER/name, made by the program exl2: random weights of SmolLM2 135M's shape, perhaps with
   fewer layers, and its tokenizer and template. */
static inline void program_make_model(const char *exl2, const char *name, uint32_t layers, uint32_t seed)
{
    char command[6000];
    snprintf(command, sizeof command,
             "'%s' synth '%s/%s' --shape smollm2-135m --bpw 2.5 --layers %u --seed %u >'%s/out' "
             "&& cp '" EXL2_GOLDEN_DIR "/smollm2'/*.json '%s/%s'",
             exl2, folder, name, layers, seed, folder, folder, name);
    CHECK_INT(system(command), 0);
}

/* The program ended with this code and with one line on stderr that contains `part`. */
static inline void program_sentence(int got, int wanted, const char *part)
{
    char *err = program_read("err");
    char *end = strchr(err, '\n');
    CHECK_INT(got, wanted);
    if (!CHECK(strstr(err, part) != NULL) || !CHECK(end && end[1] == 0)) {
        printf("stderr: %s\n", err);
    }
    free(err);
}

/* The text as a tree; ends the test if it is not JSON. */
static inline json_value *program_parse(const char *text, size_t bytes)
{
    const char *error = NULL;
    json_value *root = json_read(text, bytes, &error);
    if (!root) {
        printf("%s: %.200s\n", error, text);
        exit(1);
    }
    return root;
}

/* The output of a run that must succeed: one JSON value. The tree points into *text; the caller frees both. */
static inline json_value *program_json(int code, char **text)
{
    char *err = program_read("err");
    *text = program_read("out");
    CHECK_INT(code, 0);
    CHECK_TEXT(err, "");
    free(err);
    return program_parse(*text, strlen(*text));
}

static inline double program_number(const json_value *object, const char *key)
{
    const json_value *value = json_member(object, key);
    return CHECK(value && value->kind == JSON_NUMBER) ? value->number : -1;
}

static inline const char *program_text(const json_value *object, const char *key) /* NULL: missing, or not a string */
{
    const json_value *value = json_member(object, key);
    return value && value->kind == JSON_TEXT ? value->text : NULL;
}

/* The element of an array; ends the test if there is none. */
static inline const json_value *item(const json_value *array, size_t index)
{
    const json_value *at = array ? array->child : NULL;
    while (at && index--) {
        at = at->next;
    }
    if (!at) {
        printf("an array is too short\n");
        exit(1);
    }
    return at;
}

#endif
