/* amalgamate.c: writes the single header. exl2.h and everything that it includes by "..." become one file; each file
   is inlined once, where it is first included (x_template.h: wherever it is included). System includes stay. Headers
   that host and kernels share come from kernels_src, what embed.c made (.inc) from the folder of COMMIT_FILE.
   takes: amalgamate ROOT COMMIT_FILE OUT [STAMP DEPFILE], or amalgamate ROOT COMMIT_FILE --install PATH under Meson.
   gives: OUT; stops with one sentence and exit code 1 on a cycle, an include from a higher folder, or a file that
          exl2_impl/exl2_impl.h does not list. */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <direct.h>
#define make_folder(path) _mkdir(path)
#else
#include <sys/stat.h>
#define make_folder(path) mkdir(path, 0777)
#endif

#define PATH_BYTES 1024
#define FILES_MAX 512
#define MADE_MAX 8
#define HEADER "exl2.h"
#define LIST "exl2_impl/exl2_impl.h"

typedef struct source { /* a file of the amalgam; paths are relative to the root, with '/' */
    char path[PATH_BYTES];
    bool listed; /* in exl2_impl.h, or a template */
    bool open;   /* being written: its own includes are not done yet */
    bool done;
} source;

static source sources[FILES_MAX];
static size_t source_count;
static const char *root;
static char made_folder[PATH_BYTES]; /* where generated files lie */
static char made[MADE_MAX][PATH_BYTES]; /* those that are included */
static size_t made_count;
static FILE *out;
static char out_path[PATH_BYTES]; /* while it is being written, so that no half of it stays behind */

static void stop(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("amalgamate: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    if (out) {
        fclose(out);
        remove(out_path);
    }
    exit(1);
}

static void join(char *joined, const char *folder, const char *name)
{
    int bytes = snprintf(joined, PATH_BYTES, "%s/%s", folder, name);
    if (bytes < 0 || bytes >= PATH_BYTES) {
        stop("the path %s/%s is too long", folder, name);
    }
}

/* The whole file with a NUL after it; lines end in '\n' alone. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        stop("cannot read %s", path);
    }
    size_t used = 0, room = 1 << 16;
    char *text = malloc(room);
    for (size_t got = 1; text && got; used += got) {
        if (room - used < 2) {
            room *= 2;
            char *larger = realloc(text, room);
            if (!larger) {
                break;
            }
            text = larger;
        }
        got = fread(text + used, 1, room - used - 1, file);
    }
    if (!text || ferror(file) || !feof(file)) {
        stop("cannot read %s", path);
    }
    fclose(file);
    size_t kept = 0;
    for (size_t i = 0; i < used; i++) {
        if (text[i] != '\r') {
            text[kept++] = text[i];
        }
    }
    text[kept] = 0;
    return text;
}

static char *read_source(const char *path)
{
    char full[PATH_BYTES];
    join(full, root, path);
    return read_text(full);
}

static source *find_source(const char *path)
{
    for (size_t i = 0; i < source_count; i++) {
        if (strcmp(sources[i].path, path) == 0) {
            return &sources[i];
        }
    }
    return NULL;
}

static source *add_source(const char *path)
{
    if (source_count == FILES_MAX) {
        stop("more than %d files", FILES_MAX);
    }
    source *s = &sources[source_count++];
    snprintf(s->path, sizeof s->path, "%s", path);
    return s;
}

/* "exl2_impl/0_base/json/json.h", "../0_base/alloc.h" -> "exl2_impl/0_base/alloc.h". */
static void resolve(char *resolved, const char *from, const char *name)
{
    char work[PATH_BYTES];
    const char *slash = strrchr(from, '/');
    int folder_bytes = slash ? (int)(slash - from) + 1 : 0;
    if (snprintf(work, sizeof work, "%.*s%s", folder_bytes, from, name) >= (int)sizeof work) {
        stop("%s: the include \"%s\" is too long", from, name);
    }
    char *end = resolved;
    for (const char *part = work; *part;) {
        size_t bytes = strcspn(part, "/");
        if (bytes == 2 && memcmp(part, "..", 2) == 0) {
            if (end == resolved) {
                stop("%s: the include \"%s\" leaves the source tree", from, name);
            }
            do {
                end--;
            } while (end > resolved && *end != '/');
        } else if (!(bytes == 1 && *part == '.')) {
            if (end > resolved) {
                *end++ = '/';
            }
            memcpy(end, part, bytes);
            end += bytes;
        }
        part += bytes + (part[bytes] == '/');
    }
    *end = 0;
}

/* N of "exl2_impl/N_name/file.h"; -1 for anything else. */
static int folder_number(const char *path)
{
    const char *prefix = "exl2_impl/";
    const char *folder = path + strlen(prefix);
    bool numbered = strncmp(path, prefix, strlen(prefix)) == 0 && isdigit((unsigned char)folder[0]) && folder[1] == '_';
    return numbered ? folder[0] - '0' : -1;
}

/* A template is inlined wherever it is included: each time the includer's macros make other functions of it. */
static bool is_template(const char *path)
{
    const char *ending = "_template.h";
    size_t bytes = strlen(path);
    return bytes > strlen(ending) && strcmp(path + bytes - strlen(ending), ending) == 0;
}

/* What the CPU and kernels share: each file that includes it lists it. */
static bool is_kernel_header(const char *path)
{
    const char *prefix = "kernels_src/";
    size_t bytes = strlen(path);
    return strncmp(path, prefix, strlen(prefix)) == 0 && strcmp(path + bytes - 2, ".h") == 0;
}

/* Made by a tool of ours. */
static bool is_made(const char *path)
{
    size_t bytes = strlen(path);
    return bytes > 4 && strcmp(path + bytes - 4, ".inc") == 0;
}

/* The name in a line `#include "name"`, or false. */
static bool quoted_include(const char *line, size_t bytes, char *name)
{
    const char *p = line, *end = line + bytes;
    while (p < end && isspace((unsigned char)*p)) {
        p++;
    }
    if (p == end || *p++ != '#') {
        return false;
    }
    while (p < end && isspace((unsigned char)*p)) {
        p++;
    }
    if (end - p < 7 || memcmp(p, "include", 7) != 0) {
        return false;
    }
    p += 7;
    while (p < end && isspace((unsigned char)*p)) {
        p++;
    }
    if (p == end || *p++ != '"') {
        return false;
    }
    const char *quote = memchr(p, '"', (size_t)(end - p));
    if (!quote || quote - p >= PATH_BYTES) {
        return false;
    }
    memcpy(name, p, (size_t)(quote - p));
    name[quote - p] = 0;
    return true;
}

/* Whether the text after this line is inside a block comment. */
static bool comment_after(const char *line, size_t bytes, bool inside)
{
    char quote = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = line[i], next = i + 1 < bytes ? line[i + 1] : 0;
        if (inside) {
            if (c == '*' && next == '/') {
                inside = false;
                i++;
            }
        } else if (quote) {
            if (c == '\\') {
                i++;
            } else if (c == quote) {
                quote = 0;
            }
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '/' && next == '/') {
            break;
        } else if (c == '/' && next == '*') {
            inside = true;
            i++;
        }
    }
    return inside;
}

typedef void (*line_fn)(const char *path, const char *line, size_t bytes, const char *include);

/* Calls fn for every line; `include` is the name in a "..." include outside comments, else NULL. */
static void each_line(const char *path, line_fn fn)
{
    char *text = read_source(path);
    bool comment = false;
    for (const char *line = text; *line;) {
        size_t bytes = strcspn(line, "\n");
        char name[PATH_BYTES];
        bool found = !comment && quoted_include(line, bytes, name);
        comment = comment_after(line, bytes, comment);
        fn(path, line, bytes, found ? name : NULL);
        line += bytes + (line[bytes] == '\n');
    }
    free(text);
}

static void list_line(const char *path, const char *line, size_t bytes, const char *include)
{
    (void)line;
    (void)bytes;
    if (include) {
        char target[PATH_BYTES];
        resolve(target, path, include);
        if (find_source(target)) {
            stop("%s lists %s twice", path, target);
        }
        if (folder_number(target) < 0) {
            stop("%s lists %s, which is not in a numbered folder", path, target);
        }
        add_source(target)->listed = true;
    }
}

static void write_line(const char *path, const char *line, size_t bytes, const char *include);

static void write_source(const char *from, source *s)
{
    if (s->open) {
        stop("%s includes %s, which includes it (a cycle)", from, s->path);
    }
    if (s->done && !is_template(s->path)) {
        return;
    }
    s->open = true;
    if (s->listed) {
        fprintf(out, "/* ======== begin %s ======== */\n", s->path);
    }
    each_line(s->path, write_line);
    if (s->listed) {
        fprintf(out, "/* ======== end %s ======== */\n", s->path);
    }
    s->open = false;
    s->done = true;
}

static void write_made(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (made_count == MADE_MAX) {
        stop("more than %d generated files", MADE_MAX);
    }
    join(made[made_count], made_folder, name);
    char *text = read_text(made[made_count++]);
    fprintf(out, "/* ======== begin %s ======== */\n%s/* ======== end %s ======== */\n", name, text, name);
    free(text);
}

static void write_line(const char *path, const char *line, size_t bytes, const char *include)
{
    if (!include) {
        fwrite(line, 1, bytes, out);
        fputc('\n', out);
        return;
    }
    char target[PATH_BYTES];
    resolve(target, path, include);
    if (strcmp(target, HEADER) == 0 && folder_number(path) == 0) {
        return; /* the declarations stand above the implementation */
    }
    if (is_made(target)) {
        write_made(target);
        return;
    }
    source *s = find_source(target);
    if (!s && (is_template(target) || is_kernel_header(target))) {
        s = add_source(target);
        s->listed = true;
    }
    if (!s || (!s->listed && strcmp(path, HEADER) != 0)) {
        stop("%s includes %s, which " LIST " does not list", path, target);
    }
    if (folder_number(path) >= 0 && folder_number(target) > folder_number(path)) {
        stop("%s includes %s, which lies in a higher folder", path, target);
    }
    write_source(path, s);
}

static void make_parents(const char *path)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *p = folder + 1; *p; p++) {
        if (*p == '/') {
            *p = 0;
            make_folder(folder); /* it may be there; opening the file says what is wrong */
            *p = '/';
        }
    }
}

static FILE *create(const char *path)
{
    FILE *file = fopen(path, "wb");
    if (!file) {
        stop("cannot write %s", path);
    }
    return file;
}

static void finish(FILE *file, const char *path)
{
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        remove(path);
        stop("cannot write %s", path);
    }
}

static void write_header(const char *commit)
{
    make_parents(out_path);
    out = create(out_path);
    fprintf(out, "/* exl2.h as one file, of commit %.*s. Generated: change the source tree, never this file. */\n",
            (int)strcspn(commit, "\n"), commit);
    write_source("the command line", find_source(HEADER));
    for (size_t i = 0; i < source_count; i++) {
        if (!sources[i].done) {
            stop("%s was never included", sources[i].path);
        }
    }
    FILE *written = out;
    out = NULL;
    finish(written, out_path);
}

static void write_depfile(const char *path, const char *stamp)
{
    FILE *file = create(path);
    fprintf(file, "%s:", stamp);
    for (size_t i = 0; i < made_count; i++) {
        fprintf(file, " %s", made[i]);
    }
    for (size_t i = 0; i < source_count; i++) {
        fputs(" \\\n ", file);
        char full[PATH_BYTES];
        join(full, root, sources[i].path);
        for (const char *c = full; *c; c++) {
            fprintf(file, *c == ' ' ? "\\%c" : "%c", *c);
        }
    }
    fputc('\n', file);
    finish(file, path);
}

/* Meson gives install scripts the prefix, with DESTDIR in front, in the environment. */
static void set_install_path(const char *relative)
{
    const char *prefix = getenv("MESON_INSTALL_DESTDIR_PREFIX");
    if (!prefix) {
        stop("--install works only as an install script of Meson");
    }
    join(out_path, prefix, relative);
}

int main(int argc, char **argv)
{
    bool install = argc == 5 && strcmp(argv[3], "--install") == 0;
    if (!install && argc != 4 && argc != 6) {
        fputs("usage: amalgamate ROOT COMMIT_FILE OUT [STAMP DEPFILE]\n", stderr);
        return 2;
    }
    root = argv[1];
    char *commit = read_text(argv[2]);
    const char *slash = strrchr(argv[2], '/');
    snprintf(made_folder, sizeof made_folder, "%.*s", slash ? (int)(slash - argv[2]) : 1, slash ? argv[2] : ".");
    if (install) {
        set_install_path(argv[4]);
    } else {
        snprintf(out_path, sizeof out_path, "%s", argv[3]);
    }
    add_source(HEADER);
    add_source(LIST);
    each_line(LIST, list_line);
    write_header(commit);
    if (argc == 6) {
        finish(create(argv[4]), argv[4]);
        write_depfile(argv[5], argv[4]);
    }
    free(commit);
    return 0;
}
