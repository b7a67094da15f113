/* embed.c: writes the kernel sources as C: one table of pieces, each some whole lines, so that they stay readable in
   the single header, C11's limit of 4,095 bytes a literal is kept, and no pointer needs a relocation. A piece may hold
   the end of one file and the beginning of the next. The comment at the head of a file is for readers of kernels_src:
   "#line N" stands in its place. A tab stands for four spaces of an indent, which saves 7 %.
   The files of the folder `convert` come last, for builds with EXL2_CONVERT only.
   takes: embed KERNELS_SRC OUT [DEPFILE]: the modules that kernels.def.h names, and all that they include.
   gives: OUT, for 3_backend/cuda/cuda_source.h; stops with one sentence and exit code 1 on a file that is not there. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024
#define NAME_BYTES 48 /* EXL2__CUDA_SOURCE_NAME_MAX */
#define FILES_MAX 128
#define PIECE_BYTES 4096 /* with the NUL */
#define LIST "kernels.def.h"

typedef struct kernel_file {
    char name[NAME_BYTES];
    char *text;
} kernel_file;

typedef struct text_place { /* where a file begins in the table of pieces */
    size_t piece, at; /* at: byte of the piece */
    size_t bytes;     /* of the file */
} text_place;

static kernel_file files[FILES_MAX];
static size_t file_count;
static const char *folder, *out_path;
static FILE *out;

static void stop(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("embed: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    if (out) {
        fclose(out);
        remove(out_path);
    }
    exit(1);
}

/* The whole file of the folder with a NUL behind it; lines end in '\n' alone. */
static char *read_text(const char *name)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        stop("the path of %s is too long", name);
    }
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        stop("cannot read %s", path);
    }
    long size = ftell(file);
    rewind(file);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    if (!text || fread(text, 1, (size_t)size, file) != (size_t)size) {
        stop("cannot read %s", path);
    }
    fclose(file);
    size_t kept = 0;
    for (long i = 0; i < size; i++) {
        if (text[i] == 0 || text[i] == '\t') {
            stop("%s has a NUL or a tab in it", path);
        }
        if (text[i] != '\r') {
            text[kept++] = text[i];
        }
    }
    text[kept] = 0;
    return text;
}

/* Puts "#line N" in the place of the comment that the text begins with. */
static void drop_head(char *text, const char *name)
{
    char *end = strncmp(text, "/*", 2) == 0 ? strstr(text, "*/\n") : NULL;
    if (!end) {
        stop("%s does not begin with a comment", name);
    }
    unsigned line = 2;
    for (const char *at = text; at < end; at++) {
        line += *at == '\n';
    }
    char *rest = text + sprintf(text, "#line %u\n", line);
    memmove(rest, end + 3, strlen(end + 3) + 1);
}

/* Reads the file unless it is there already. */
static void add_file(const char *name, size_t bytes)
{
    for (size_t i = 0; i < file_count; i++) {
        if (strlen(files[i].name) == bytes && memcmp(files[i].name, name, bytes) == 0) {
            return;
        }
    }
    if (file_count == FILES_MAX || bytes >= NAME_BYTES) {
        stop("more than %d files, or a name longer than %d bytes: %.*s", FILES_MAX, NAME_BYTES - 1, (int)bytes, name);
    }
    kernel_file *file = &files[file_count++];
    memcpy(file->name, name, bytes);
    file->text = read_text(file->name);
    drop_head(file->text, file->name);
}

/* Adds every module of the list: what stands in quotes on the lines of its macro. */
static void add_modules(const char *list)
{
    for (const char *at = list; (at = strstr(at, "X(exl2k_")) != NULL; at++) {
        size_t line = strcspn(at, "\n");
        const char *name = memchr(at, '"', line);
        if (!name) {
            stop("%s: a kernel without its module: %.*s", LIST, (int)line, at);
        }
        name++;
        add_file(name, strcspn(name, "\"\n"));
    }
}

static void add_includes(const char *text)
{
    static const char directive[] = "#include \"";
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, directive, sizeof directive - 1) == 0) {
            const char *name = line + sizeof directive - 1;
            add_file(name, strcspn(name, "\"\n"));
        }
    }
}

/* One line as a string, after `tabs` tabs. Bytes outside of ASCII become octal escapes; \? because of trigraphs. */
static void write_line(size_t tabs, const char *line, size_t bytes, bool ended)
{
    fputs("\n    \"", out);
    for (size_t i = 0; i < tabs; i++) {
        fputs("\\t", out);
    }
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c == '"' || c == '\\' || c == '?') {
            fprintf(out, "\\%c", c);
        } else if (c < 32 || c > 126) {
            fprintf(out, "\\%03o", (unsigned)c);
        } else {
            fputc(c, out);
        }
    }
    fputs(ended ? "\\n\"" : "\"", out);
}

/* Adds the file's lines to the table, whose end is *end. *place: where the file begins. */
static void write_file(const kernel_file *file, text_place *end, text_place *place)
{
    if (!*file->text) {
        stop("%s is empty", file->name);
    }
    for (const char *at = file->text; *at;) {
        size_t bytes = strcspn(at, "\n"), tabs = strspn(at, " ") / 4, line_bytes = bytes - 3 * tabs + (at[bytes] != 0);
        if (line_bytes >= PIECE_BYTES) {
            stop("%s has a line of %zu bytes", file->name, bytes);
        }
        if (end->at + line_bytes >= PIECE_BYTES) {
            fputs(",", out);
            end->piece++;
            end->at = 0;
        }
        if (at == file->text) {
            *place = (text_place){ end->piece, end->at, strlen(file->text) };
            fprintf(out, "\n    /* %s */", file->name);
        }
        write_line(tabs, at + 4 * tabs, bytes - 4 * tabs, at[bytes] != 0);
        end->at += line_bytes;
        at += bytes + (at[bytes] != 0);
    }
}

static bool is_convert(const kernel_file *file) { return strncmp(file->name, "convert/", 8) == 0; }

/* The files of builds with EXL2_CONVERT begin a piece of their own. */
static void write_texts(bool convert, text_place *end, text_place places[FILES_MAX])
{
    for (size_t i = 0; i < file_count; i++) {
        if (is_convert(&files[i]) == convert) {
            write_file(&files[i], end, &places[i]);
        }
    }
    end->at = PIECE_BYTES;
}

static void write_places(bool convert, const text_place places[FILES_MAX])
{
    for (size_t i = 0; i < file_count; i++) {
        if (is_convert(&files[i]) == convert) {
            fprintf(out, "    { \"%s\", %zu, %zu, %zu },\n", files[i].name, places[i].piece, places[i].at,
                    places[i].bytes);
        }
    }
}

static void write_all(void)
{
    text_place places[FILES_MAX], end = { 0 };
    fputs("/* Made by exl2_impl/tools/embed.c of kernels_src. */\n", out);
    fprintf(out, "static const char exl2__kernel_text[][%d] = {", PIECE_BYTES);
    write_texts(false, &end, places);
    fputs("\n#ifdef EXL2_CONVERT\n", out);
    write_texts(true, &end, places);
    fputs("\n#endif\n};\nstatic const exl2__cuda_file exl2__cuda_files[] = {\n", out);
    write_places(false, places);
    fputs("#ifdef EXL2_CONVERT\n", out);
    write_places(true, places);
    fputs("#endif\n};\n", out);
}

static void write_dependencies(const char *path)
{
    FILE *file = fopen(path, "wb");
    if (!file) {
        stop("cannot write %s", path);
    }
    fprintf(file, "%s: %s/%s", out_path, folder, LIST);
    for (size_t i = 0; i < file_count; i++) {
        fprintf(file, " %s/%s", folder, files[i].name);
    }
    fputc('\n', file);
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) {
        fputs("usage: embed KERNELS_SRC OUT [DEPFILE]\n", stderr);
        return 2;
    }
    folder = argv[1];
    out_path = argv[2];
    char *list = read_text(LIST);
    add_modules(list);
    free(list);
    for (size_t i = 0; i < file_count; i++) {
        add_includes(files[i].text);
    }
    out = fopen(out_path, "wb");
    if (!out) {
        stop("cannot write %s", out_path);
    }
    write_all();
    if (fclose(out) != 0) {
        out = NULL;
        remove(out_path);
        stop("cannot write %s", out_path);
    }
    out = NULL;
    if (argc == 4) {
        write_dependencies(argv[3]);
    }
    for (size_t i = 0; i < file_count; i++) {
        free(files[i].text);
    }
    return 0;
}
