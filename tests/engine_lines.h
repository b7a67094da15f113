/* engine_lines.h: the rule that keeps tests quick to compile: a test program includes at most 10,000 lines of the
   engine, or it stands in a list of tests/meson.build with its reason.
   takes: tests/meson.build: the lists `whole` (programs that compile what they include) and `deep` (programs that see
          much of the engine).
   gives: check_engine_lines. */
#ifndef ENGINE_LINES_H
#define ENGINE_LINES_H

#include "names.h"

#define ENGINE_LINES_MAX 10000u

/* What one program includes. */
typedef struct inclusion {
    source_names seen;
    size_t lines;
    bool implementation; /* something defines EXL2_IMPLEMENTATION */
} inclusion;

/* Is this the first token of an engine's function that exl2_impl/tools/declare.c turns into a prototype? */
static bool is_declared(const source_file *file, size_t i)
{
    const source_token *t = &file->tokens[i];
    bool begins = i == 0 || t->text[-1] == '\n';
    return begins && !t->directive && (source_is(t, "EXL2__PRIVATE") || source_is(t, "EXL2_API"));
}

/* Lines with code, as declare.c writes them: without comments, and without bodies of functions that a test links. */
static size_t count_lines(const source_file *file)
{
    size_t lines = 0;
    int last = 0;
    for (size_t i = 0; i < file->token_count;) {
        size_t open = i + 1, next = i + 1;
        while (is_declared(file, i) && open < file->token_count && !source_is(&file->tokens[open], "{")
               && !source_is(&file->tokens[open], ";")) {
            next = ++open;
        }
        for (size_t k = i; k < next; k++) {
            lines += file->tokens[k].line != last;
            last = file->tokens[k].line;
        }
        bool body = is_declared(file, i) && source_is(&file->tokens[open], "{");
        i = body ? skip_brackets(file, open) : next;
    }
    return lines;
}

/* The engine's file that a test includes as "private/NAME.h". */
static const source_file *find_private(const char *name)
{
    for (size_t i = 0; i < file_count; i++) {
        if (strcmp(source_base(files[i].path), source_base(name)) == 0) {
            return &files[i];
        }
    }
    return NULL;
}

static bool first_time(inclusion *x, const char *path)
{
    for (size_t i = 0; i < x->seen.count; i++) {
        if (strcmp(x->seen.paths[i], path) == 0) {
            return false;
        }
    }
    source_add(&x->seen, path);
    return true;
}

/* Adds a file and all that it includes. Lines of tests, kernels and exl2.h do not count. A test that includes a file of
   exl2_impl by its path compiles all of it, so that counts as everything. A program that includes another one's .c file
   sets other switches, so that file's EXL2_IMPLEMENTATION does not count. */
static void include_file(inclusion *x, const source_file *file, bool own)
{
    bool engine = folder_number(file->path) >= 0;
    x->lines += engine ? count_lines(file) : 0;
    for (size_t i = 1; i < file->token_count; i++) {
        char name[SOURCE_PATH_BYTES], target[SOURCE_PATH_BYTES];
        bool quoted;
        const source_token *t = &file->tokens[i];
        x->implementation |= own && !engine && t->directive && source_is(t, "EXL2_IMPLEMENTATION")
                          && source_is(t - 1, "define");
        if (!source_include(file, i, name, &quoted) || !quoted) {
            continue;
        }
        source_resolve(target, file->path, name);
        const source_file *part = engine ? find_file(target) : NULL;
        if (strncmp(name, "private/", 8) == 0) {
            part = find_private(name);
            require(part != NULL, file, t->line, "exl2_impl has no such file", name);
        } else if (!engine && folder_number(target) >= 0) {
            x->implementation = true;
        }
        if (part && first_time(x, part->path)) {
            include_file(x, part, own);
        } else if (!part && strncmp(target, "tests/", 6) == 0 && exists(target) && first_time(x, target)) {
            source_file *test = malloc(sizeof *test);
            *test = source_read(target);
            include_file(x, test, own && strcmp(target + strlen(target) - 2, ".c") != 0);
        }
    }
}

/* Does the list of tests/meson.build have the program? A list is NAME = { 'program': reason, ... }. What is in
   tests/device is called device_NAME there, what is in tests/fuzz fuzz_NAME, in tests/programs exl2_NAME. golden.c is
   several programs. */
static bool is_listed(const source_file *build, const char *list, const char *path)
{
    char start[64], names[2][SOURCE_PATH_BYTES];
    snprintf(start, sizeof start, "\n%s = {", list);
    const char *from = strstr(build->text, start), *end = from ? strchr(from, '}') : NULL;
    bool device = strncmp(path, "tests/device/", 13) == 0, fuzz = strncmp(path, "tests/fuzz/", 11) == 0;
    bool program = strncmp(path, "tests/programs/", 15) == 0;
    const char *prefix = device ? "device_" : fuzz ? "fuzz_" : program ? "exl2_" : "", *endings[] = { "", "_exact" };
    for (size_t i = 0; from && i < 2; i++) {
        snprintf(names[i], sizeof names[i], "'%s%.*s%s':", prefix, (int)strcspn(source_base(path), "."),
                 source_base(path), endings[i]);
        const char *found = strstr(from, names[i]);
        if (found && found < end) {
            return true;
        }
    }
    return false;
}

/* tests/hosts and tests/subproject are applications: to compile the whole engine is what they test. */
static void check_engine_lines(void)
{
    source_names tests = { 0 };
    source_file build = source_read("tests/meson.build");
    source_list(&tests, "tests", ".c", ".c");
    for (size_t i = 0; i < tests.count; i++) {
        const char *path = tests.paths[i];
        if (strncmp(path, "tests/hosts/", 12) == 0 || strncmp(path, "tests/subproject/", 17) == 0) {
            continue;
        }
        inclusion x = { 0 };
        source_file file = source_read(path);
        include_file(&x, &file, true);
        bool whole = is_listed(&build, "whole", path), deep = is_listed(&build, "deep", path);
        require(!x.implementation || whole, &file, 1, "compiles the engine, and is not in `whole` of tests/meson.build",
                path);
        require(x.implementation || x.lines <= ENGINE_LINES_MAX || whole || deep, &file, 1,
                "includes more than 10,000 lines of the engine, and is not in a list of tests/meson.build", path);
        require(!deep || x.lines > ENGINE_LINES_MAX, &file, 1,
                "needs no place in `deep` of tests/meson.build: it includes at most 10,000 lines of the engine", path);
    }
}

#endif
