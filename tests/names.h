/* names.h: the rules of names: everything at file scope has our prefix, is static or public, and holds no state.
   takes: files of the tree, as tokens.
   gives: broken, require, find_file and the other helpers of all rules; check_macros, check_scope, check_prototypes.
   owns:  the list of files; the names that the file under check defines. */
#ifndef NAMES_H
#define NAMES_H

#include "source.h"

static source_file header;      /* exl2.h */
static source_file *files;      /* all files in the numbered folders of exl2_impl */
static size_t file_count;

static void broken(const source_file *file, int line, const char *rule, const char *what, size_t bytes)
{
    check_count++;
    check_failures++;
    printf("%s:%d: %s: %.*s\n", file->path, line, rule, (int)bytes, what);
}

static void require(bool holds, const source_file *file, int line, const char *rule, const char *what)
{
    check_count++;
    if (!holds) {
        check_count--;
        broken(file, line, rule, what, strlen(what));
    }
}

static bool exists(const char *path)
{
    char full[2 * SOURCE_PATH_BYTES];
    struct stat info;
    snprintf(full, sizeof full, "%s/%s", source_root, path);
    return stat(full, &info) == 0;
}

static int folder_number(const char *path)
{
    return strncmp(path, "exl2_impl/", 10) == 0 && isdigit((unsigned char)path[10]) ? path[10] - '0' : -1;
}

static const source_file *find_file(const char *path)
{
    for (size_t i = 0; i < file_count; i++) {
        if (strcmp(files[i].path, path) == 0) {
            return &files[i];
        }
    }
    return NULL;
}

static bool any_of(const char *name, size_t bytes, const char *const *list)
{
    for (; *list; list++) {
        if (strlen(*list) == bytes && memcmp(*list, name, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* A template header is included once per use, with macros of the including file. It has no guard and is not in the
   list. */
static bool is_template(const source_file *file)
{
    const char *ending = "_template.h";
    size_t bytes = strlen(file->path);
    return bytes > strlen(ending) && strcmp(file->path + bytes - strlen(ending), ending) == 0;
}

static bool in_header(const source_token *name)
{
    for (size_t i = 0; i < header.token_count; i++) {
        if (header.tokens[i].bytes == name->bytes && memcmp(header.tokens[i].text, name->text, name->bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Is it one of the files that call libc and the operating system? */
static bool is_platform(const source_file *file)
{
    static const char *const parts[] = { ".h", "_library.h", "_alloc.h", "_files.h", "_write.h" };
    const char head[] = "exl2_impl/0_base/platform";
    bool is = false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && strncmp(file->path, head, sizeof head - 1) == 0; i++) {
        is = is || strcmp(file->path + sizeof head - 1, parts[i]) == 0;
    }
    return is;
}

/* Those files and thread.h may declare names of the operating system. */
static bool calls_system(const source_file *file)
{
    return is_platform(file) || strcmp(file->path, "exl2_impl/0_base/thread.h") == 0;
}

static void check_name(const source_file *file, const source_token *name, const char *what, bool foreign)
{
    bool good = source_starts(name, "exl2__") || source_starts(name, "EXL2__") || foreign
        || ((source_starts(name, "exl2_") || source_starts(name, "EXL2_")) && in_header(name));
    check_count++;
    if (!good) {
        broken(file, name->line, what, name->text, name->bytes);
    }
}

/* Names that the file under check defines: functions with a body, types, tags, enum constants, macros, tables. */
static struct {
    source_token name;
    bool function; /* with a body, and not public */
} *defined;
static size_t defined_count, defined_room;

static void define_name(const source_token *name, bool function)
{
    if (defined_count == defined_room) {
        defined_room = 2 * defined_room + 256;
        defined = realloc(defined, defined_room * sizeof *defined);
    }
    defined[defined_count].name = *name;
    defined[defined_count++].function = function;
}

/* Macros of one letter, mostly X, are local: they are undefined in the same file. */
static void check_macros(const source_file *file)
{
    char guard[SOURCE_PATH_BYTES];
    const char *base = source_base(file->path);
    snprintf(guard, sizeof guard, "#ifndef EXL2__%.*s_H\n", (int)strcspn(base, "."), base);
    for (char *c = guard + 8; *c; c++) {
        *c = (char)toupper((unsigned char)*c);
    }
    require(is_template(file) || strstr(file->text, guard) != NULL, file, 1, "no include guard of its own", guard);
    for (size_t i = 1; i < file->token_count; i++) {
        const source_token *t = &file->tokens[i];
        if (!t->directive || !source_is(t, "define") || !source_is(t - 1, "#")) {
            continue;
        }
        if (t[1].bytes > 1) {
            check_name(file, t + 1, "macro without our prefix", false);
            define_name(t + 1, false);
            continue;
        }
        bool ended = false;
        for (size_t j = i + 1; j < file->token_count && !ended; j++) {
            const source_token *u = &file->tokens[j];
            ended = source_is(u, "undef") && u[1].bytes == 1 && *u[1].text == *t[1].text;
        }
        require(ended, file, t->line, "a macro of one letter that is never undefined", "#define");
    }
}

/* Index after the bracket that closes the one at `open`. */
static size_t skip_brackets(const source_file *file, size_t open)
{
    int depth = 0;
    for (size_t i = open; i < file->token_count; i++) {
        const source_token *t = &file->tokens[i];
        if (!t->directive && t->bytes == 1) {
            depth += strchr("([{", *t->text) != NULL;
            depth -= strchr(")]}", *t->text) != NULL;
            if (depth == 0) {
                return i + 1;
            }
        }
    }
    return file->token_count;
}

static bool macro_like(const source_token *t)
{
    static const char *const words[] = { "__attribute__", "__declspec", "_Static_assert", "_Alignas", NULL };
    bool upper = source_starts(t, "EXL2_");
    for (size_t i = 0; upper && i < t->bytes; i++) {
        upper = !islower((unsigned char)t->text[i]);
    }
    return upper || any_of(t->text, t->bytes, words);
}

static void check_enum(const source_file *file, size_t open, size_t end)
{
    for (size_t i = open + 1; i < end; i++) {
        const source_token *t = &file->tokens[i];
        if (t->name && !t->directive && (source_is(t - 1, "{") || source_is(t - 1, ","))) {
            check_name(file, t, "enum constant without our prefix", false);
            define_name(t, false);
        }
    }
}

/* `static` inside a function is state, unless const. */
static void check_body(const source_file *file, size_t open, size_t end)
{
    for (size_t i = open; i < end; i++) {
        if (source_is(&file->tokens[i], "static")) {
            bool constant = false;
            for (size_t j = i; j < end && !source_is(&file->tokens[j], ";") && !source_is(&file->tokens[j], "="); j++) {
                constant |= source_is(&file->tokens[j], "const");
            }
            require(constant, file, file->tokens[i].line, "state inside a function", "static without const");
        }
    }
}

typedef struct declaration { /* what the parser has seen since the last ';' or body */
    const source_token *name;
    /* typedef, const, static, EXL2_API, a name of the system; has (), has {} */
    bool type, fixed, local, public, foreign, function, body;
    bool word, bare, fast; /* EXL2__PRIVATE; static; inline */
} declaration;

/* Prototypes of private functions in the file under check. */
static source_token *prototypes;
static size_t prototype_count, prototype_room;

static void add_prototype(const source_token *name)
{
    if (prototype_count == prototype_room) {
        prototype_room = 2 * prototype_room + 16;
        prototypes = realloc(prototypes, prototype_room * sizeof *prototypes);
    }
    prototypes[prototype_count++] = *name;
}

static void check_declaration(const source_file *file, const declaration *d)
{
    if (!d->name) {
        return;
    }
    if (d->function && d->local && !d->body && !d->type && !d->public && !d->foreign) {
        add_prototype(d->name);
    }
    check_name(file, d->name, "name at file scope without our prefix", d->foreign);
    if (d->body || d->type || !d->function) {
        define_name(d->name, d->body && !d->public);
    }
    if (d->body && !d->local && !d->public) {
        broken(file, d->name->line, "function is neither static nor EXL2_API", d->name->text, d->name->bytes);
    }
    /* exl2_impl/tools/declare.c needs the word, at the beginning of the line. What has it is linked, so it is once in a
       program: not in a template. */
    require(!d->body || d->fast || !d->bare, file, d->name->line, "EXL2__PRIVATE is the word for this static",
            "function");
    require(!d->body || !d->word || !is_template(file), file, d->name->line, "make this function static inline",
            "EXL2__PRIVATE in a template");
    if (!d->type && !d->function && !d->fixed) {
        broken(file, d->name->line, "global variable that is not const", d->name->text, d->name->bytes);
    }
}

/* Walks the declarations at file scope. Skips function bodies, parameter lists and struct members. */
static void check_scope(const source_file *file)
{
    bool os_file = calls_system(file);
    declaration d = { 0 };
    for (size_t i = 0; i < file->token_count;) {
        const source_token *t = &file->tokens[i], *before = i ? t - 1 : &file->tokens[file->token_count];
        if (t->directive) {
            i++;
            continue;
        }
        d.type |= source_is(t, "typedef");
        d.fixed |= source_is(t, "const");
        /* an upper-case word may be a macro for `static`; nm checks the symbols */
        d.local |= source_is(t, "static") || (macro_like(t) && !source_is(t + 1, "("));
        d.public |= source_is(t, "EXL2_API");
        d.bare |= source_is(t, "static");
        d.fast |= source_is(t, "inline");
        if (source_is(t, "EXL2__PRIVATE")) {
            d.word = true;
            require(i == 0 || t->text[-1] == '\n', file, t->line, "does not stand at the beginning of its line",
                    "EXL2__PRIVATE");
        }
        d.foreign |= os_file && (source_is(t, "extern") || source_is(t, "__declspec"));
        if ((source_is(t, "struct") || source_is(t, "union") || source_is(t, "enum")) && t[1].name) {
            bool defines = source_is(t + 2, "{") || source_is(t + 2, ";");
            if (defines) {
                check_name(file, t + 1, "tag without our prefix", os_file && t[1].text[0] == '_');
                if (source_is(t + 2, "{")) {
                    define_name(t + 1, false);
                }
            }
            i += 2;
            if (source_is(t + 2, ";")) {
                d = (declaration){ 0 };
                i++;
            }
        } else if (source_is(t, "{")) {
            size_t end = skip_brackets(file, i);
            bool members = source_is(before, "struct") || source_is(before, "union") || source_is(before, "enum")
                || (i >= 2 && (source_is(t - 2, "struct") || source_is(t - 2, "union") || source_is(t - 2, "enum")));
            if (source_is(before, "enum") || (i >= 2 && source_is(t - 2, "enum"))) {
                check_enum(file, i, end);
            } else if (!members && !source_is(before, "=")) {
                d.body = d.function = true;
                check_body(file, i, end);
                check_declaration(file, &d);
                d = (declaration){ 0 };
            }
            i = end;
        } else if (source_is(t, "(")) {
            if (source_is(t + 1, "*") && !d.name) {
                d.name = t + 2;
                d.function = d.type;
            } else if (before->name && !macro_like(before) && !d.name) {
                d.name = before;
                d.function = true;
            }
            i = skip_brackets(file, i);
        } else if (source_is(t, ";") || source_is(t, ",") || source_is(t, "=") || source_is(t, "[")) {
            if (!d.name && before->name && !before->directive) {
                d.name = before;
            }
            if (source_is(t, ";") || source_is(t, ",")) {
                check_declaration(file, &d);
                d.name = NULL;
            }
            if (source_is(t, ";")) {
                d = (declaration){ 0 };
            }
            i = source_is(t, "[") ? skip_brackets(file, i) : i + 1;
        } else {
            i++;
        }
    }
}

/* A prototype of a private function stands in the file that defines the function: otherwise two files would call each
   other. Runs after check_scope. */
static void check_prototypes(const source_file *file)
{
    for (size_t i = 0; i < prototype_count; i++) {
        const source_token *name = &prototypes[i];
        bool here = false;
        for (size_t k = 0; k < defined_count && !here; k++) {
            here = defined[k].function && defined[k].name.bytes == name->bytes
                && memcmp(defined[k].name.text, name->text, name->bytes) == 0;
        }
        check_count++;
        if (!here) {
            broken(file, name->line, "prototype of a function that the file does not define", name->text, name->bytes);
        }
    }
}

#endif
