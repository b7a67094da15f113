/* declare.c: writes headers that declare the engine's private functions, so that a test calls them and links one
   compiled engine in place of compiling what it includes. In each header of exl2_impl the body of a function that is
   EXL2__PRIVATE or EXL2_API becomes a semicolon, and comments go; types, macros, constants and inline functions stay.
   All headers are in one folder, as their names are unique. With TEST_WHOLE defined each of them is the engine's own
   file with all bodies.
   takes: declare ROOT OUT_FOLDER; ROOT is absolute. The list in exl2_impl/exl2_impl.h.
   gives: a header for each file; one that would not change is not written, so that nothing is compiled again for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1200

static const char *root;

static void stop(const char *why, const char *what)
{
    fprintf(stderr, "declare: %s %s\n", why, what);
    exit(1);
}

/* The whole file with a NUL after it; NULL: there is none. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        return NULL;
    }
    long bytes = ftell(file);
    char *text = bytes < 0 ? NULL : calloc((size_t)bytes + 1, 1);
    rewind(file);
    if (!text || fread(text, 1, (size_t)bytes, file) != (size_t)bytes) {
        stop("cannot read", path);
    }
    fclose(file);
    return text;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- text that grows ---- */

typedef struct text {
    char *at;
    size_t bytes, room;
} text;

static void put(text *t, const char *from, size_t bytes)
{
    if (t->bytes + bytes + 1 > t->room) {
        t->room = (t->bytes + bytes + 1) * 2;
        t->at = realloc(t->at, t->room);
        if (!t->at) {
            stop("no memory for", from);
        }
    }
    memcpy(t->at + t->bytes, from, bytes);
    t->bytes += bytes;
    t->at[t->bytes] = 0;
}

static void put_words(text *t, const char *words)
{
    put(t, words, strlen(words));
}

/* ---- one header ---- */

/* Where the string or character constant that begins at `p` ends. */
static const char *past_literal(const char *p)
{
    char quote = *p++;
    for (; *p && *p != quote; p++) {
        p += *p == '\\' && p[1];
    }
    return *p ? p + 1 : p;
}

/* The text without comments and empty lines, so that an edit of a comment changes no header. */
static char *without_comments(const char *p)
{
    text out = { 0 };
    put_words(&out, "");
    while (*p) {
        const char *from = p;
        if (p[0] == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");
            p = end ? end + 2 : p + strlen(p);
            put(&out, " ", *p != '\n');
        } else if (*p == '"' || *p == '\'') {
            p = past_literal(p);
            put(&out, from, (size_t)(p - from));
        } else if (*p == '\n') {
            while (out.bytes > 0 && out.at[out.bytes - 1] == ' ') {
                out.bytes--;
            }
            put(&out, p, out.bytes > 0 && out.at[out.bytes - 1] != '\n');
            p++;
        } else {
            put(&out, p++, 1);
        }
    }
    return out.at;
}

/* From "(" to after its ")". NULL: it does not end. */
static const char *past_parameters(const char *open)
{
    int depth = 0;
    for (const char *p = open; *p; p++) {
        depth += (*p == '(') - (*p == ')');
        if (depth == 0) {
            return p + 1;
        }
    }
    return NULL;
}

/* `p` is after the parameters of a function. Returns what follows the function, or NULL if it has no body. A body of
   several lines ends with the first line that begins with "}": the source tree is indented so. */
static const char *past_body(const char *p)
{
    const char *body = strpbrk(p, "{;");
    if (!body || *body == ';') {
        return NULL;
    }
    const char *line_end = strchr(body, '\n'), *end = strstr(body, "\n}");
    if (line_end && line_end[-1] == '}') {
        return line_end;
    }
    return end ? end + 2 : NULL;
}

/* Writes the name by which a header of OUT_FOLDER includes what the engine's file `path` includes as `name`: the base
   name if the list has that file, else (exl2.h, headers shared with kernels, templates) its path from ROOT. */
static void put_include(const char *path, const char *name, size_t bytes, text *out)
{
    char full[2 * PATH_BYTES], folder[PATH_BYTES];
    if (bytes >= PATH_BYTES) {
        stop("a path is too long in", path);
    }
    if (bytes > 4 && strncmp(name + bytes - 4, ".inc", 4) == 0) { /* made by the build */
        put(out, name, bytes);
        return;
    }
    snprintf(folder, sizeof folder, "exl2_impl/%.*s", (int)(base_of(path) - path) - 1, path);
    for (; bytes > 3 && strncmp(name, "../", 3) == 0; name += 3, bytes -= 3) {
        char *slash = strrchr(folder, '/');
        *(slash ? slash : folder) = 0;
    }
    snprintf(full, sizeof full, "%s%s%.*s", folder, *folder ? "/" : "", (int)bytes, name);
    if (strncmp(full, "exl2_impl/", 10) == 0 && !strstr(full, "_template.h")) {
        put_words(out, base_of(full));
        return;
    }
    put_words(out, root);
    put_words(out, "/");
    put_words(out, full);
}

/* Copies a header; the bodies of private and public functions become semicolons. */
static void declare(const char *path, const char *from, text *out)
{
    for (const char *line = from; *line;) {
        const char *end = line + strcspn(line, "\n"), *quote = strchr(line, '"');
        if (strncmp(line, "EXL2__PRIVATE ", 14) == 0 || strncmp(line, "EXL2_API ", 9) == 0) {
            const char *open = strchr(line, '('), *parameters = open ? past_parameters(open) : NULL;
            const char *after = parameters ? past_body(parameters) : NULL;
            if (after) {
                put(out, line, (size_t)(parameters - line));
                put_words(out, ";");
                line = after;
                continue;
            }
        }
        if (strncmp(line, "#include \"", 10) == 0 && quote) {
            size_t bytes = strcspn(quote + 1, "\"");
            put(out, line, (size_t)(quote + 1 - line));
            put_include(path, quote + 1, bytes, out);
            line = quote + 1 + bytes;
        }
        end += *end == '\n';
        put(out, line, (size_t)(end - line));
        line = end;
    }
}

/* Writes the header for the engine's file `path`, which may be unchanged. */
static void write_header(const char *folder, const char *path)
{
    char full[PATH_BYTES], out_path[PATH_BYTES];
    text out = { 0 };
    snprintf(full, sizeof full, "%s/exl2_impl/%s", root, path);
    snprintf(out_path, sizeof out_path, "%s/%s", folder, base_of(path));
    char *from = read_text(full), *old = read_text(out_path);
    if (!from) {
        stop("cannot read", full);
    }
    char *code = without_comments(from);
    put_words(&out, "#ifdef TEST_WHOLE\n#include \"");
    put_words(&out, full);
    put_words(&out, "\"\n#else\n");
    declare(path, code, &out);
    put_words(&out, "#endif\n");
    if (!old || strcmp(old, out.at) != 0) {
        FILE *file = fopen(out_path, "wb");
        if (!file || fwrite(out.at, 1, out.bytes, file) != out.bytes || fclose(file) != 0) {
            stop("cannot write", out_path);
        }
    }
    free(out.at);
    free(code);
    free(from);
    free(old);
}

int main(int argc, char **argv)
{
    static const char before[] = "\n#include \"";
    char list_path[PATH_BYTES];
    if (argc != 3) {
        fputs("usage: declare ROOT OUT_FOLDER\n", stderr);
        return 2;
    }
    root = argv[1];
    snprintf(list_path, sizeof list_path, "%s/exl2_impl/exl2_impl.h", root);
    char *list = read_text(list_path);
    if (!list) {
        stop("cannot read", list_path);
    }
    for (char *p = list; (p = strstr(p, before)) != NULL;) {
        p += sizeof before - 1;
        size_t bytes = strcspn(p, "\"");
        p[bytes] = 0;
        write_header(argv[2], p);
        p += bytes + 1;
    }
    free(list);
    return 0;
}
