/* embed.c: writes the kernel sources as C: one table of pieces, each some whole lines, so that they stay readable in
   the single header, C11's limit of 4,095 bytes a literal is kept, and no pointer needs a relocation. A piece may hold
   the end of one file and the beginning of the next. The comment at the head of a file is for readers of kernels_src:
   "#line N" stands in its place. A tab stands for four spaces of an indent, which saves 7 %.
   The files of the folder `convert` come last, for builds with EXL2_CONVERT only.
   With --texts, it writes the documents of text files as string literals. With --files, it writes whole files as
   arrays, since a literal has a limit.
   takes: embed KERNELS_SRC OUT [DEPFILE]: the modules that kernels.def.h names, and all that they include;
          embed --texts OUT FILE ...: files of UTF-8, in which lines "%%" separate documents;
          embed --files OUT FILE ...: files of UTF-8.
   gives: OUT, for 3_backend/cuda/cuda_source.h, 8_convert/quantizer/spare_texts.h or demo/serve/page.c; stops with one
          sentence and exit code 1 on a file that is not there. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024
#define NAME_BYTES 48 /* EXL2__CUDA_SOURCE_NAME_MAX */
#define FILES_MAX 256
#define PIECE_BYTES 4096 /* with the NUL */
#define LIST "kernels.def.h"
#define TEXT_COLUMNS 110 /* a literal of a document continues on the next line from here on */

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

/* The whole file with a NUL after it; lines end in '\n' alone. */
static char *read_file(const char *path)
{
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
        if (text[i] == 0) {
            stop("%s has a NUL in it", path);
        }
        if (text[i] != '\r') {
            text[kept++] = text[i];
        }
    }
    text[kept] = 0;
    return text;
}

/* A file of the folder of kernels. */
static char *read_text(const char *name)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        stop("the path of %s is too long", name);
    }
    char *text = read_file(path);
    if (strchr(text, '\t')) {
        stop("%s has a tab in it", path);
    }
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

/* Reads the file unless it was read already. */
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

/* A byte of a string literal. Bytes outside of ASCII become octal escapes; \? because of trigraphs. Returns the columns
   that it takes. */
static int write_byte(char byte)
{
    unsigned char c = (unsigned char)byte;
    if (c == '\n') {
        return fprintf(out, "\\n");
    }
    if (c == '"' || c == '\\' || c == '?') {
        return fprintf(out, "\\%c", c);
    }
    return fprintf(out, c < 32 || c > 126 ? "\\%03o" : "%c", (unsigned)c);
}

/* One line as a string, after `tabs` tabs. */
static void write_line(size_t tabs, const char *line, size_t bytes, bool ended)
{
    fputs("\n    \"", out);
    for (size_t i = 0; i < tabs; i++) {
        fputs("\\t", out);
    }
    for (size_t i = 0; i < bytes; i++) {
        write_byte(line[i]);
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

/* ---- documents ---- */

static void create_out(void)
{
    out = fopen(out_path, "wb");
    if (!out) {
        stop("cannot write %s", out_path);
    }
}

static void close_out(void)
{
    FILE *written = out;
    out = NULL;
    if (fclose(written) != 0) {
        remove(out_path);
        stop("cannot write %s", out_path);
    }
}

/* Bytes of the UTF-8 sequence that begins with this byte; 0: none does. */
static size_t utf8_bytes(unsigned char first)
{
    return first < 0x80 ? 1 : first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3
        : first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

static void check_utf8(const char *path, const char *text)
{
    for (const char *at = text; *at;) {
        size_t bytes = utf8_bytes((unsigned char)*at), good = bytes != 0;
        while (good < bytes && ((unsigned char)at[good] & 0xC0) == 0x80) {
            good++;
        }
        if (bytes == 0 || good < bytes) {
            stop("%s is not UTF-8 at byte %zu", path, (size_t)(at - text));
        }
        at += bytes;
    }
}

/* One document as string literals, which C joins. They end after a line end or a space, if there is one. */
static void write_document(const char *path, const char *text, size_t bytes)
{
    int columns = 0;
    if (bytes == 0 || bytes >= PIECE_BYTES) {
        stop("%s has a document of %zu bytes: 1 to %d are allowed", path, bytes, PIECE_BYTES - 1);
    }
    fputs("\n    \"", out);
    for (size_t i = 0; i < bytes; i++) {
        columns += write_byte(text[i]);
        bool gap = (text[i] == '\n' && columns >= TEXT_COLUMNS / 2) || (text[i] == ' ' && columns >= TEXT_COLUMNS - 10)
            || columns >= TEXT_COLUMNS;
        if (gap && i + 1 < bytes) {
            fputs("\"\n    \"", out);
            columns = 0;
        }
    }
    fputs("\",", out);
}

/* The documents of a file; the last line end belongs to none. */
static void write_documents(const char *path)
{
    static const char between[] = "\n%%\n";
    char *text = read_file(path);
    size_t bytes = strlen(text);
    if (bytes == 0 || text[bytes - 1] != '\n') {
        stop("%s does not end with a line end", path);
    }
    check_utf8(path, text);
    text[bytes - 1] = 0;
    const char *slash = strrchr(path, '/'), *next;
    fprintf(out, "\n    /* %s */", slash ? slash + 1 : path);
    for (const char *at = text; at; at = next ? next + sizeof between - 1 : NULL) {
        next = strstr(at, between);
        write_document(path, at, next ? (size_t)(next - at) : strlen(at));
    }
    free(text);
}

static int embed_texts(char **paths, int count)
{
    create_out();
    fputs("    /* Made by exl2_impl/tools/embed.c of text files. */", out);
    for (int i = 0; i < count; i++) {
        write_documents(paths[i]);
    }
    fputc('\n', out);
    close_out();
    return 0;
}

/* ---- whole files ---- */

#define ARRAY_COLUMNS 116

static void write_array(size_t index, const char *text)
{
    int columns = fprintf(out, "static const char embedded_%zu[] = {", index);
    for (; *text; text++) {
        if (columns == 0 || columns > ARRAY_COLUMNS) {
            columns = fprintf(out, "\n    ") - 1;
        }
        columns += fprintf(out, (unsigned char)*text < 128 ? "%d," : "(char)%d,", (unsigned char)*text);
    }
    fputs("0 };\n", out);
}

/* An array for each file, with a NUL after it, and a table of their names and bytes without the NUL. */
static int embed_files(char **paths, int count)
{
    create_out();
    fputs("/* Made by exl2_impl/tools/embed.c of whole files. */\n", out);
    for (int i = 0; i < count; i++) {
        char *text = read_file(paths[i]);
        check_utf8(paths[i], text);
        write_array((size_t)i, text);
        free(text);
    }
    fputs("static const embedded_file embedded_files[] = {\n", out);
    for (int i = 0; i < count; i++) {
        const char *slash = strrchr(paths[i], '/');
        fprintf(out, "    { \"%s\", embedded_%d, sizeof embedded_%d - 1 },\n", slash ? slash + 1 : paths[i], i, i);
    }
    fputs("};\n", out);
    close_out();
    return 0;
}

int main(int argc, char **argv)
{
    bool texts = argc >= 4 && strcmp(argv[1], "--texts") == 0, whole = argc >= 4 && strcmp(argv[1], "--files") == 0;
    if (!texts && !whole && argc != 3 && argc != 4) {
        fputs("usage: embed KERNELS_SRC OUT [DEPFILE]\n       embed --texts|--files OUT FILE ...\n", stderr);
        return 2;
    }
    if (whole) {
        out_path = argv[2];
        return embed_files(argv + 3, argc - 3);
    }
    if (texts) {
        out_path = argv[2];
        return embed_texts(argv + 3, argc - 3);
    }
    folder = argv[1];
    out_path = argv[2];
    char *list = read_text(LIST);
    add_modules(list);
    free(list);
    for (size_t i = 0; i < file_count; i++) {
        add_includes(files[i].text);
    }
    create_out();
    write_all();
    close_out();
    if (argc == 4) {
        write_dependencies(argv[3]);
    }
    for (size_t i = 0; i < file_count; i++) {
        free(files[i].text);
    }
    return 0;
}
