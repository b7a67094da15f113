/* source.h: reads the source tree for tests/layers.c: files of a folder, C tokens, include lines.
   takes: paths relative to the root of the tree.
   gives: source_list, source_read, source_tokens, source_includes.
   owns:  texts and arrays live until the program ends. */
#ifndef SOURCE_H
#define SOURCE_H

#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

#define SOURCE_PATH_BYTES 512

typedef struct source_names {
    char (*paths)[SOURCE_PATH_BYTES];
    size_t count;
} source_names;

typedef struct source_token {
    const char *text;
    size_t bytes;
    int line;
    bool directive; /* part of a preprocessor line */
    bool name;      /* identifier or keyword */
} source_token;

typedef struct source_file {
    char path[SOURCE_PATH_BYTES]; /* relative to the root, with '/' */
    const char *text;
    source_token *tokens; /* without comments; a string is one token; the last token is empty */
    size_t token_count;
    int lines;
} source_file;

static const char *source_root = ".";

static void source_add(source_names *names, const char *path)
{
    if ((names->count & (names->count - 1)) == 0) {
        names->paths = realloc(names->paths, (names->count ? names->count * 2 : 1) * sizeof *names->paths);
    }
    snprintf(names->paths[names->count++], sizeof *names->paths, "%s", path);
}

static int source_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Appends every file below `folder` whose name ends in one of the two endings, sorted. */
static void source_list(source_names *names, const char *folder, const char *ending1, const char *ending2)
{
    char full[2 * SOURCE_PATH_BYTES];
    snprintf(full, sizeof full, "%s/%s", source_root, folder);
    DIR *dir = opendir(full);
    size_t first = names->count;
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char path[SOURCE_PATH_BYTES];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        snprintf(full, sizeof full, "%s/%s", source_root, path);
        const char *ending = strrchr(entry->d_name, '.');
        if (entry->d_name[0] == '.' || stat(full, &info) != 0) {
            continue;
        }
        if (S_ISDIR(info.st_mode)) {
            source_list(names, path, ending1, ending2);
        } else if (ending && (strcmp(ending, ending1) == 0 || strcmp(ending, ending2) == 0)) {
            source_add(names, path);
        }
    }
    if (dir) {
        closedir(dir);
    }
    if (names->count > first) {
        qsort(names->paths + first, names->count - first, sizeof *names->paths, source_compare);
    }
}

static bool source_is(const source_token *token, const char *text)
{
    return token->bytes == strlen(text) && memcmp(token->text, text, token->bytes) == 0;
}

static bool source_starts(const source_token *token, const char *prefix)
{
    return token->bytes >= strlen(prefix) && memcmp(token->text, prefix, strlen(prefix)) == 0;
}

/* Length of the comment, string, name, number or punctuation that begins at p. */
static size_t source_piece(const char *p)
{
    size_t n = 1;
    if (p[0] == '/' && p[1] == '*') {
        const char *end = strstr(p + 2, "*/");
        return end ? (size_t)(end - p) + 2 : strlen(p);
    }
    if (p[0] == '/' && p[1] == '/') {
        return strcspn(p, "\n");
    }
    if (p[0] == '"' || p[0] == '\'') {
        while (p[n] && p[n] != p[0]) {
            n += p[n] == '\\' && p[n + 1] ? 2 : 1;
        }
        return n + (p[n] != 0);
    }
    if (isalnum((unsigned char)p[0]) || p[0] == '_') {
        while (isalnum((unsigned char)p[n]) || p[n] == '_') {
            n++;
        }
        return n;
    }
    return p[0] == '-' && p[1] == '>' ? 2 : 1;
}

static void source_tokens(source_file *file)
{
    size_t room = 1024;
    file->tokens = malloc(room * sizeof *file->tokens);
    bool directive = false, line_start = true;
    int line = 1;
    for (const char *p = file->text; *p;) {
        if (*p == '\n') {
            line++;
            line_start = true;
            directive = false;
            p++;
        } else if (p[0] == '\\' && p[1] == '\n') {
            line++;
            p += 2;
        } else if (isspace((unsigned char)*p)) {
            p++;
        } else {
            size_t bytes = source_piece(p);
            bool comment = p[0] == '/' && (p[1] == '*' || p[1] == '/');
            directive |= line_start && *p == '#';
            if (!comment) {
                line_start = false;
                source_token token = { p, bytes, line, directive, isalpha((unsigned char)*p) || *p == '_' };
                file->tokens[file->token_count++] = token;
            }
            for (size_t i = 0; i < bytes; i++) {
                line += p[i] == '\n';
            }
            p += bytes;
        }
        if (file->token_count + 1 >= room) {
            room *= 2;
            file->tokens = realloc(file->tokens, room * sizeof *file->tokens);
        }
    }
    file->tokens[file->token_count] = (source_token){ "", 0, line, false, false };
    file->lines = line - 1;
}

static source_file source_read(const char *path)
{
    source_file file = { 0 };
    char full[2 * SOURCE_PATH_BYTES];
    snprintf(file.path, sizeof file.path, "%s", path);
    snprintf(full, sizeof full, "%s/%s", source_root, path);
    file.text = check_read(full, NULL);
    source_tokens(&file);
    return file;
}

/* Last part of a path. */
static const char *source_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "a/b/c.h" and "../d.h" give "a/d.h". */
static void source_resolve(char *out, const char *from, const char *name)
{
    int bytes = (int)(source_base(from) - from);
    while (strncmp(name, "../", 3) == 0 && bytes > 0) {
        name += 3;
        bytes--;
        while (bytes > 0 && from[bytes - 1] != '/') {
            bytes--;
        }
    }
    snprintf(out, SOURCE_PATH_BYTES, "%.*s%s", bytes, from, name);
}

/* Whether token i is the `include` of an include line; name: the text between the quotes or brackets. */
static bool source_include(const source_file *file, size_t i, char *name, bool *quoted)
{
    const source_token *t = &file->tokens[i];
    if (!t->directive || !source_is(t, "include") || i == 0 || !source_is(t - 1, "#")) {
        return false;
    }
    *quoted = t[1].text[0] == '"';
    const char *start = t[1].text + 1;
    snprintf(name, SOURCE_PATH_BYTES, "%.*s", (int)strcspn(start, *quoted ? "\"\n" : ">\n"), start);
    return true;
}

#endif
