/* describe.c: describes the declarations of exl2.h for generators of bindings, as one JSON text: constants, enums,
   structs with the place of each member, callbacks, functions; and of each pointer what it points to, how many there
   are, and how long it must stay valid.
   takes: describe EXL2_H LAYOUTS: the header; a file with a line "TYPE.MEMBER OFFSET BYTES" for each member.
   gives: the JSON on stdout. A declaration that it does not understand ends it with a message and code 1. */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 64
#define FIELDS_MAX 128

static void stop(const char *why, const char *what)
{
    fprintf(stderr, "describe: %s %s\n", why, what);
    exit(1);
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        stop("cannot open", path);
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

/* ---- the parts of the output, in the order in which they are written ---- */

enum { CONSTANTS, ALIASES, HANDLES, ENUMS, CALLBACKS, STRUCTS, FUNCTIONS, PARTS };
static const char *const part_names[PARTS] = { "constants", "aliases", "handles", "enums", "callbacks", "structs",
                                               "functions" };
static struct { char *at; size_t bytes, room; } parts[PARTS];

static void put(int part, const char *format, ...)
{
    va_list args;
    for (;;) {
        size_t left = parts[part].room - parts[part].bytes;
        va_start(args, format);
        int bytes = vsnprintf(parts[part].at ? parts[part].at + parts[part].bytes : NULL, left, format, args);
        va_end(args);
        if (bytes < 0) {
            stop("cannot write", part_names[part]);
        }
        if ((size_t)bytes < left) {
            parts[part].bytes += (size_t)bytes;
            return;
        }
        parts[part].room = (parts[part].room + (size_t)bytes + 1) * 2;
        parts[part].at = realloc(parts[part].at, parts[part].room);
        if (!parts[part].at) {
            stop("no memory for", part_names[part]);
        }
    }
}

/* Begins an item of a part. */
static void put_item(int part)
{
    put(part, parts[part].bytes ? ",\n    " : "    ");
}

/* ---- tokens: identifiers, numbers and single signs; comments and lines of the preprocessor lie between them ---- */

static const char *at;          /* what follows the current token */
static char token[NAME_BYTES];  /* "": the declarations have ended */
static char tag[NAME_BYTES];    /* "A nb" of the last comment that begins with "[A nb]" */
static bool for_convert;        /* the current token is inside of #ifdef EXL2_CONVERT */
static char conditions[8][NAME_BYTES];
static int depth;

/* A line such as #define NAME 4096: a constant. Conditions are followed; what only C++ or the preprocessor reads is
   left out. */
static void read_directive(const char *line)
{
    char word[16] = "", name[NAME_BYTES] = "", value[NAME_BYTES] = "";
    sscanf(line, "# %15[a-z] %63[A-Za-z0-9_] %63[-()0-9]", word, name, value);
    if (strncmp(word, "if", 2) == 0) {
        snprintf(conditions[depth++ & 7], NAME_BYTES, "%s", name);
    } else if (strcmp(word, "endif") == 0) {
        depth--;
    } else if (strcmp(word, "define") == 0 && strspn(value, "-()0123456789") == strlen(value) && value[0]) {
        put_item(CONSTANTS);
        put(CONSTANTS, "{\"name\": \"%s\", \"value\": %ld}", name, strtol(value + (value[0] == '('), NULL, 10));
    }
}

static bool within(const char *condition)
{
    bool found = false;
    for (int i = 0; i < depth; i++) {
        found = found || strcmp(conditions[i], condition) == 0;
    }
    return found;
}

static void next(void)
{
    do {
        at += strspn(at, " \t\n");
        while (*at == '#' || strncmp(at, "/*", 2) == 0) {
            if (*at == '#') {
                read_directive(at);
                at += strcspn(at, "\n");
            } else {
                sscanf(at, "/* [%63[A-Za-z ]]", tag);
                at = strstr(at, "*/") + 2;
            }
            at += strspn(at, " \t\n");
        }
        size_t bytes = 0;
        while (isalnum((unsigned char)at[bytes]) || at[bytes] == '_') {
            bytes++;
        }
        bytes += bytes == 0 && at[0];
        snprintf(token, sizeof token, "%.*s", (int)bytes, at);
        at += bytes;
        if (depth == 0) { /* the header's guard has ended */
            token[0] = 0;
        }
    } while (token[0] && within("__cplusplus"));
    for_convert = within("EXL2_CONVERT");
}

static bool is(const char *text)
{
    return strcmp(token, text) == 0;
}

static bool accept(const char *text)
{
    bool same = is(text);
    if (same) {
        next();
    }
    return same;
}

static void expect(const char *text)
{
    if (!accept(text)) {
        fprintf(stderr, "describe: '%s' where '%s' is expected, before: %.60s\n", token, text, at);
        exit(1);
    }
}

static void take(char *out)
{
    snprintf(out, NAME_BYTES, "%s", token);
    next();
}

/* The value of a constant of the header. */
static long constant(const char *name)
{
    char key[NAME_BYTES + 32];
    snprintf(key, sizeof key, "\"name\": \"%s\", \"value\": ", name);
    for (int part = CONSTANTS; part <= ENUMS; part++) {
        const char *found = parts[part].at ? strstr(parts[part].at, key) : NULL;
        if (found) {
            return strtol(found + strlen(key), NULL, 10);
        }
    }
    stop("no value of", name);
    return 0;
}

/* A number, a constant, or the quotient of two. */
static long read_number(void)
{
    char text[NAME_BYTES];
    take(text);
    long value = isdigit((unsigned char)text[0]) ? strtol(text, NULL, 10) : constant(text);
    return accept("/") ? value / read_number() : value;
}

/* ---- members and parameters ---- */

typedef struct field {
    char type[NAME_BYTES], name[NAME_BYTES];
    bool constant;       /* const T */
    int stars;
    long array;          /* T name[array]; 0: no array */
    char *function;      /* JSON of the result and the parameters of a pointer to a function; else NULL */
} field;

static char *read_parameters(const char *result, int result_stars);

/* The type before one or more names. */
static void read_base(field *f)
{
    memset(f, 0, sizeof *f);
    f->constant = accept("const");
    accept("struct");
    take(f->type);
}

static void read_declarator(field *f)
{
    while (accept("*")) {
        f->stars++;
        accept("const");
    }
    if (accept("(")) {
        int stars = f->stars;
        expect("*");
        take(f->name);
        expect(")");
        f->function = read_parameters(f->type, stars);
        return;
    }
    take(f->name);
    if (accept("[")) {
        f->array = read_number();
        expect("]");
    }
}

/* The field that counts what `f` points to, or NULL: its own name or its singular with _count or _bytes, or one of the
   usual names of a length. */
static const char *count_of(const field *f, const field *fields, size_t count)
{
    static const char *const lengths[] = { "n", "bytes", "cap", "count", "member_count" };
    char wanted[4][NAME_BYTES + 8];
    size_t length = strlen(f->name);
    snprintf(wanted[0], sizeof wanted[0], "%s_count", f->name);
    snprintf(wanted[1], sizeof wanted[1], "%.*s_count", (int)(length ? length - 1 : 0), f->name);
    snprintf(wanted[2], sizeof wanted[2], "%s_bytes", f->name);
    snprintf(wanted[3], sizeof wanted[3], "token_count"); /* alternatives and sums of an event's tokens */
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < count; i++) {
            bool own = k < 3 || strcmp(f->name, "alts") == 0 || strcmp(f->name, "logsumexp") == 0;
            if (own && strcmp(fields[i].name, wanted[k]) == 0) {
                return fields[i].name;
            }
        }
    }
    for (size_t i = 0; i + 1 < count; i++) { /* the length stands beside its pointer */
        for (size_t k = 0; k < sizeof lengths / sizeof lengths[0] && &fields[i] == f; k++) {
            if (strcmp(fields[i + 1].name, lengths[k]) == 0) {
                return fields[i + 1].name;
            }
        }
    }
    return NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), wanted = strlen(end);
    return bytes >= wanted && strcmp(text + bytes - wanted, end) == 0;
}

/* How long a pointer in `type` must stay valid, or is valid. "call": until the call returns that gets it; "object": as
   long as the engine, model or job that it was given to; "event": until the callback returns or the next
   exl2_next_event; "static": always. type NULL: a parameter. */
static const char *lifetime(const char *type, const field *f)
{
    static const char *const hooks[] = { "exl2_allocator", "exl2_files", "exl2_kernel_cache", "exl2_logger",
                                         "exl2_zones", "exl2_parallel" };
    bool object = f->function || strcmp(f->name, "user") == 0 || strcmp(f->name, "cuda_context") == 0
               || ends_with(f->type, "_fn");
    for (size_t i = 0; type && i < sizeof hooks / sizeof hooks[0]; i++) {
        object = object || strcmp(type, hooks[i]) == 0;
    }
    bool described = type && (ends_with(type, "_info") || strcmp(type, "exl2_layout") == 0);
    return object && type ? "object" : type && strcmp(type, "exl2_event") == 0 ? "event"
         : described ? "static" : "call";
}

/* What a pointer is, as members of an object. */
static void put_pointer(int part, const char *type, const field *f, const field *fields, size_t count)
{
    bool text = strcmp(f->type, "char") == 0, opaque = strcmp(f->type, "exl2_engine") == 0;
    const char *number = count_of(f, fields, count);
    const char *kind = f->function || ends_with(f->type, "_fn") ? "function"
                     : strcmp(f->name, "user") == 0 || strcmp(f->name, "cuda_context") == 0 ? "opaque"
                     : opaque ? f->stars > 1 ? "out" : "opaque"
                     : text && f->constant ? f->stars > 1 ? "texts" : "text"
                     : !f->constant ? number ? "out array" : "out"
                     : strcmp(f->type, "void") == 0 ? "bytes" : number ? "array" : "struct";
    put(part, ", \"pointer\": \"%s\"", kind);
    if (number && strcmp(kind, "out") != 0 && strcmp(kind, "opaque") != 0 && strcmp(kind, "function") != 0) {
        put(part, ", \"count\": \"%s%s\"", number, strcmp(f->name, "alts") == 0 ? " * alts_per_token" : "");
    }
    put(part, ", \"valid\": \"%s\"", lifetime(type, f));
}

static void put_field(int part, const char *type, const field *f, const field *fields, size_t count)
{
    put(part, "{\"name\": \"%s\", \"type\": \"%s", f->name, f->function ? "function" : f->constant ? "const " : "");
    put(part, "%s%.*s\"", f->function ? "" : f->type, f->function ? 0 : f->stars, "***");
    if (f->array) {
        put(part, ", \"array\": %ld", f->array);
    }
    if (f->stars > 0 || f->function || ends_with(f->type, "_fn")) {
        put_pointer(part, type, f, fields, count);
    }
    if (f->function) {
        put(part, ", %s", f->function);
    }
}

static size_t read_parameter_list(field *fields)
{
    size_t count = 0;
    expect("(");
    while (!accept(")")) {
        if (count == FIELDS_MAX) {
            stop("too many parameters before", at);
        }
        read_base(&fields[count]);
        if (strcmp(fields[count].type, "void") == 0 && is(")")) {
            continue;
        }
        read_declarator(&fields[count++]);
        accept(",");
    }
    return count;
}

static void put_parameters(int part, const field *fields, size_t count)
{
    put(part, "\"parameters\": [");
    for (size_t i = 0; i < count; i++) {
        put(part, i ? ", " : "");
        put_field(part, NULL, &fields[i], fields, count);
        put(part, "}");
    }
    put(part, "]");
}

/* JSON of the result and the parameters, written after the part's end and cut off again. */
static char *read_parameters(const char *result, int result_stars)
{
    field *fields = calloc(FIELDS_MAX, sizeof *fields);
    if (!fields) {
        stop("no memory for", result);
    }
    size_t count = read_parameter_list(fields), before = parts[CALLBACKS].bytes;
    put(CALLBACKS, "\"result\": \"%s%.*s\", ", result, result_stars, "**");
    put_parameters(CALLBACKS, fields, count);
    char *json = calloc(parts[CALLBACKS].bytes - before + 1, 1);
    if (!json) {
        stop("no memory for", result);
    }
    memcpy(json, parts[CALLBACKS].at + before, parts[CALLBACKS].bytes - before);
    parts[CALLBACKS].bytes = before;
    parts[CALLBACKS].at[before] = 0;
    free(fields);
    return json;
}

/* ---- declarations ---- */

static char *layouts;

/* The place of a member. */
static void find_place(const char *type, const char *member, unsigned *offset, unsigned *bytes)
{
    char key[2 * NAME_BYTES + 4];
    snprintf(key, sizeof key, "\n%s.%s ", type, member);
    const char *found = strstr(layouts, key);
    if (!found && strncmp(layouts, key + 1, strlen(key + 1)) == 0) {
        found = layouts - 1;
    }
    if (!found || sscanf(found + strlen(key), "%u %u", offset, bytes) != 2) {
        stop("no place of", key + 1);
    }
}

static void put_condition(int part)
{
    put(part, for_convert ? ", \"needs\": \"EXL2_CONVERT\"" : "");
}

static void read_struct(void)
{
    char type[NAME_BYTES];
    static field fields[FIELDS_MAX];
    size_t count = 0;
    take(type);
    if (!accept("{")) { /* typedef struct exl2_engine exl2_engine; */
        put_item(HANDLES);
        put(HANDLES, "{\"name\": \"%s\", \"is\": \"pointer\"}", type);
        expect(type);
        expect(";");
        return;
    }
    while (!accept("}")) {
        field base;
        read_base(&base);
        do {
            if (count == FIELDS_MAX) {
                stop("too many members of", type);
            }
            fields[count] = base;
            read_declarator(&fields[count++]);
        } while (accept(","));
        expect(";");
    }
    if (count == 1 && strcmp(fields[0].name, "id") == 0) {
        put_item(HANDLES);
        put(HANDLES, "{\"name\": \"%s\", \"is\": \"struct of one uint64_t, by value\"}", type);
    } else {
        put_item(STRUCTS);
        put(STRUCTS, "{\"name\": \"%s\"", type);
        put_condition(STRUCTS);
        put(STRUCTS, ", \"members\": [\n");
        for (size_t i = 0; i < count; i++) {
            unsigned offset = 0, bytes = 0;
            find_place(type, fields[i].name, &offset, &bytes);
            put(STRUCTS, "        ");
            put_field(STRUCTS, type, &fields[i], fields, count);
            put(STRUCTS, ", \"offset\": %u, \"bytes\": %u}%s\n", offset, bytes, i + 1 < count ? "," : "");
            free(fields[i].function);
        }
        put(STRUCTS, "    ]}");
    }
    expect(type);
    expect(";");
}

static void read_enum(void)
{
    char type[NAME_BYTES], name[NAME_BYTES];
    long value = -1;
    bool first = true;
    take(type);
    expect("{");
    put_item(ENUMS);
    put(ENUMS, "{\"name\": \"%s\"", type);
    put_condition(ENUMS);
    put(ENUMS, ", \"values\": [");
    while (!accept("}")) {
        take(name);
        value++;
        if (accept("=")) {
            bool negative = accept("-");
            value = read_number() * (negative ? -1 : 1);
            while (accept("<")) { /* A << B */
                value = accept("<") ? value << read_number() : value;
            }
        }
        put(ENUMS, "%s{\"name\": \"%s\", \"value\": %ld}", first ? "" : ", ", name, value);
        first = false;
        accept(",");
    }
    put(ENUMS, "]}");
    expect(type);
    expect(";");
}

static void read_typedef(void)
{
    if (accept("struct")) {
        read_struct();
        return;
    }
    if (accept("enum")) {
        read_enum();
        return;
    }
    field f;
    read_base(&f);
    read_declarator(&f);
    int part = f.function ? CALLBACKS : ALIASES;
    put_item(part);
    put(part, "{\"name\": \"%s\", ", f.name);
    put(part, f.function ? "%s}" : "\"is\": \"%s\"}", f.function ? f.function : f.type);
    free(f.function);
    expect(";");
}

static void read_function(void)
{
    static field fields[FIELDS_MAX];
    field f;
    char threads[NAME_BYTES];
    bool needs_threads = within("EXL2_NO_THREADS");
    snprintf(threads, sizeof threads, "%s", tag);
    read_base(&f);
    while (accept("*")) {
        f.stars++;
    }
    take(f.name);
    bool for_one = threads[0] == 'E';
    put_item(FUNCTIONS);
    put(FUNCTIONS, "{\"name\": \"%s\"", f.name);
    put_condition(FUNCTIONS);
    put(FUNCTIONS, ", \"threads\": \"%s\", \"waits\": %s", for_one ? "one at a time" : "any",
        strstr(threads, "wait") ? "true" : "false");
    put(FUNCTIONS, "%s, \"result\": \"%s%s%.*s\", ", needs_threads ? ", \"needs\": \"no EXL2_NO_THREADS\"" : "",
        f.constant ? "const " : "", f.type, f.stars, "**");
    put_parameters(FUNCTIONS, fields, read_parameter_list(fields));
    put(FUNCTIONS, "}");
    expect(";");
}

/* A function that is not exported: its body goes. */
static void skip_inline(void)
{
    int open = 0;
    while (!is("{")) {
        next();
    }
    do {
        open += is("{") - is("}");
        next();
    } while (open > 0);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: describe EXL2_H LAYOUTS\n", stderr);
        return 2;
    }
    const char *header = read_text(argv[1]);
    layouts = read_text(argv[2]);
    at = strstr(header, "#ifndef EXL2_H\n");
    if (!at) {
        stop("no declarations in", argv[1]);
    }
    next();
    while (token[0]) {
        if (accept("typedef")) {
            read_typedef();
        } else if (accept("EXL2_API")) {
            read_function();
        } else if (is("static")) {
            skip_inline();
        } else {
            expect("a declaration");
        }
    }
    printf("{\n  \"about\": \"The declarations of exl2.h, written by exl2_impl/tools/describe.c. Offsets and bytes are "
           "those of 64-bit Linux and Windows; an enum has 4 bytes, bool has 1.\"");
    for (int part = 0; part < PARTS; part++) {
        printf(",\n  \"%s\": [\n%s\n  ]", part_names[part], parts[part].at ? parts[part].at : "");
    }
    printf("\n}\n");
    return fflush(stdout) != 0 || ferror(stdout);
}
