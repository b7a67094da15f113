/* layers.c: the house rules that a program can check, over the whole source tree.
   takes: layers ROOT VERSION.
   gives: one line per broken rule, with file and line.
   owns:  nothing that outlives the program.
   next:  ../meson.build */
#include "source.h"

#define LINES_MAX 500

static source_file header;      /* exl2.h */
static source_file *files;      /* everything in the numbered folders of exl2_impl */
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

/* ---- file heads ---- */

static bool exists(const char *path)
{
    char full[2 * SOURCE_PATH_BYTES];
    struct stat info;
    snprintf(full, sizeof full, "%s/%s", source_root, path);
    return stat(full, &info) == 0;
}

/* Five labelled parts in the first comment: name, takes, gives, owns, next; `next` names a file that exists. */
static void check_head(const source_file *file)
{
    static const char *const labels[] = { "   takes: ", "   gives: ", "   owns:  ", "   next:  " };
    char first[SOURCE_PATH_BYTES], next[SOURCE_PATH_BYTES], path[SOURCE_PATH_BYTES];
    snprintf(first, sizeof first, "/* %s: ", source_base(file->path));
    require(strncmp(file->text, first, strlen(first)) == 0, file, 1, "the file must begin with", first);
    const char *end = strstr(file->text, "*/"), *at = file->text;
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        char line_start[32];
        snprintf(line_start, sizeof line_start, "\n%s", labels[i]);
        at = strstr(at, line_start);
        if (!at || at > end) {
            broken(file, 1, "the head lacks, or has in another order, the line", labels[i], strlen(labels[i]));
            return;
        }
        at += strlen(line_start);
    }
    snprintf(next, sizeof next, "%.*s", (int)strcspn(at, " ,;\n"), at);
    source_resolve(path, file->path, next);
    require(exists(path), file, 1, "`next:` names a file that is not there", next);
}

/* ---- includes ---- */

static void check_system_include(const source_file *file, int line, const char *name)
{
    static const char *const plain[] = { "stdbool.h", "stddef.h", "stdint.h", "stdarg.h", "string.h", "math.h", "limits.h", "float.h", NULL };
    static const char *const simd[] = { "immintrin.h", "intrin.h", NULL };
    static const char *const tools[] = { "stdio.h", "errno.h", NULL };
    int folder = folder_number(file->path);
    bool allowed = any_of(name, strlen(name), plain) || strcmp(file->path, "exl2_impl/0_base/platform.h") == 0
        || ((folder == 3 || strcmp(file->path, "exl2_impl/0_base/config.h") == 0) && any_of(name, strlen(name), simd))
        || (folder == 8 && any_of(name, strlen(name), tools));
    require(allowed, file, line, "this system header belongs into platform.h", name);
}

static void check_includes(const source_file *file)
{
    for (size_t i = 0; i < file->token_count; i++) {
        char name[SOURCE_PATH_BYTES], target[SOURCE_PATH_BYTES];
        bool quoted;
        if (!source_include(file, i, name, &quoted)) {
            continue;
        }
        int line = file->tokens[i].line;
        if (!quoted) {
            check_system_include(file, line, name);
            continue;
        }
        source_resolve(target, file->path, name);
        if (strcmp(target, "exl2.h") == 0) {
            require(strcmp(file->path, "exl2_impl/0_base/result.h") == 0, file, line, "only result.h includes it", name);
            continue;
        }
        require(find_file(target) != NULL, file, line, "no such file", name);
        require(folder_number(target) <= folder_number(file->path), file, line, "includes a higher folder", name);
    }
}

/* The list names every file once, in an order that depends on nothing below, each under its "defines:" line. */
static void check_list(void)
{
    source_file list = source_read("exl2_impl/exl2_impl.h");
    source_names seen = { 0 };
    check_head(&list);
    for (size_t i = 0; i < list.token_count; i++) {
        char name[SOURCE_PATH_BYTES], path[SOURCE_PATH_BYTES];
        bool quoted;
        if (!source_include(&list, i, name, &quoted)) {
            continue;
        }
        source_resolve(path, list.path, name);
        const source_file *file = find_file(path);
        require(file != NULL, &list, list.tokens[i].line, "no such file", name);
        const char *line_start = list.tokens[i - 1].text;
        const char *above = line_start - 1;
        while (above > list.text && above[-1] != '\n') {
            above--;
        }
        require(strncmp(above, "/* defines: ", 12) == 0, &list, list.tokens[i].line, "no \"defines:\" line above", name);
        for (size_t j = 0; file && j < file->token_count; j++) {
            char inner[SOURCE_PATH_BYTES], target[SOURCE_PATH_BYTES];
            if (!source_include(file, j, inner, &quoted) || !quoted) {
                continue;
            }
            source_resolve(target, file->path, inner);
            bool above_it = strcmp(target, "exl2.h") == 0;
            for (size_t k = 0; k < seen.count; k++) {
                above_it |= strcmp(seen.paths[k], target) == 0;
            }
            require(above_it, &list, list.tokens[i].line, "is listed before something that it includes", name);
        }
        source_add(&seen, path);
    }
    for (size_t i = 0; i < file_count; i++) {
        int times = 0;
        for (size_t k = 0; k < seen.count; k++) {
            times += strcmp(seen.paths[k], files[i].path) == 0;
        }
        require(times == 1, &files[i], 1, "must be in exl2_impl.h, once", files[i].path);
    }
}

/* ---- names ---- */

static bool in_header(const source_token *name)
{
    for (size_t i = 0; i < header.token_count; i++) {
        if (header.tokens[i].bytes == name->bytes && memcmp(header.tokens[i].text, name->text, name->bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* platform.h may also declare what belongs to the operating system. */
static void check_name(const source_file *file, const source_token *name, const char *what, bool foreign)
{
    bool good = source_starts(name, "exl2__") || source_starts(name, "EXL2__") || foreign
        || ((source_starts(name, "exl2_") || source_starts(name, "EXL2_")) && in_header(name));
    check_count++;
    if (!good) {
        broken(file, name->line, what, name->text, name->bytes);
    }
}

static void check_macros(const source_file *file)
{
    char guard[SOURCE_PATH_BYTES];
    const char *base = source_base(file->path);
    snprintf(guard, sizeof guard, "#ifndef EXL2__%.*s_H\n", (int)strcspn(base, "."), base);
    for (char *c = guard + 8; *c; c++) {
        *c = (char)toupper((unsigned char)*c);
    }
    require(strstr(file->text, guard) != NULL, file, 1, "no include guard of its own", guard);
    for (size_t i = 1; i < file->token_count; i++) {
        const source_token *t = &file->tokens[i];
        if (t->directive && source_is(t, "define") && source_is(t - 1, "#")) {
            if (!source_is(t + 1, "X")) {
                check_name(file, t + 1, "macro without our prefix", false);
                continue;
            }
            bool ended = false;
            for (size_t j = i + 1; j < file->token_count && !ended; j++) {
                ended = source_is(&file->tokens[j], "undef") && source_is(&file->tokens[j + 1], "X");
            }
            require(ended, file, t->line, "is never undefined", "X");
        }
    }
}

/* Index behind the bracket that closes the one at `open`. */
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
    bool type, fixed, local, public, foreign, function, body; /* typedef, const, static, EXL2_API, OS; has (), has {} */
} declaration;

static void check_declaration(const source_file *file, const declaration *d)
{
    if (!d->name) {
        return;
    }
    check_name(file, d->name, "name at file scope without our prefix", d->foreign);
    if (d->body && !d->local && !d->public) {
        broken(file, d->name->line, "function is neither static nor EXL2_API", d->name->text, d->name->bytes);
    }
    if (!d->type && !d->function && !d->fixed) {
        broken(file, d->name->line, "global variable that is not const", d->name->text, d->name->bytes);
    }
}

/* Walks the declarations at file scope. Function bodies, parameter lists, struct members are skipped. */
static void check_scope(const source_file *file)
{
    bool os_file = strcmp(file->path, "exl2_impl/0_base/platform.h") == 0;
    declaration d = { 0 };
    for (size_t i = 0; i < file->token_count;) {
        const source_token *t = &file->tokens[i], *before = i ? t - 1 : &file->tokens[file->token_count];
        if (t->directive) {
            i++;
            continue;
        }
        d.type |= source_is(t, "typedef");
        d.fixed |= source_is(t, "const");
        d.local |= source_is(t, "static");
        d.public |= source_is(t, "EXL2_API");
        d.foreign |= os_file && (source_is(t, "extern") || source_is(t, "__declspec"));
        if ((source_is(t, "struct") || source_is(t, "union") || source_is(t, "enum")) && t[1].name) {
            bool defines = source_is(t + 2, "{") || source_is(t + 2, ";");
            if (defines) {
                check_name(file, t + 1, "tag without our prefix", os_file && t[1].text[0] == '_');
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

/* ---- calls ---- */

static void check_calls(const source_file *file)
{
    static const char *const never[] = {
        "abort", "exit", "_Exit", "quick_exit", "atexit", "longjmp", "setjmp", "assert", "signal", "system", "getenv", "setlocale",
        "printf", "fprintf", "vprintf", "vfprintf", "sprintf", "snprintf", "vsprintf", "vsnprintf", "puts", "putchar", "perror",
        "malloc", "calloc", "realloc", "free", "aligned_alloc", "alloca", "qsort", "rand", "srand",
        "strtod", "strtof", "strtol", "strtoul", "atof", "atoi", "sscanf", "strtok", "isnan", "isinf", "isfinite", "isspace", "isalpha", NULL
    };
    static const char *const files_only[] = { "fopen", "fclose", "fread", "fwrite", "fseek", "ftell", "fputs", "remove", "rename", "errno", NULL };
    for (size_t i = 0; i < file->token_count; i++) {
        const source_token *t = &file->tokens[i];
        if (t->name && (any_of(t->text, t->bytes, never) || (folder_number(file->path) != 8 && any_of(t->text, t->bytes, files_only)))) {
            broken(file, t->line, "this name belongs into platform.h", t->text, t->bytes);
        }
    }
    check_count++;
}

/* ---- sizes, manual, users ---- */

static void check_sizes(void)
{
    static const char *const folders[] = { "exl2_impl", "demo", "tests" };
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        source_names names = { 0 };
        source_list(&names, folders[f], ".c", ".h");
        for (size_t i = 0; i < names.count; i++) {
            source_file file = source_read(names.paths[i]);
            bool generated = strcmp(file.path, "exl2_impl/6_text/unicode.h") == 0;
            require(generated || file.lines <= LINES_MAX, &file, file.lines, "split this file; lines allowed", "500");
            require(strchr(file.text, '\t') == NULL, &file, 1, "tab", "indent by four spaces");
        }
    }
}

static bool has_word(const char *text, const source_token *word)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)word->bytes, word->text);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += word->bytes) {
        char after = at[word->bytes];
        if ((at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_')) && !isalnum((unsigned char)after) && after != '_') {
            return true;
        }
    }
    return false;
}

/* Every public function is named in the manual, the top comment of exl2.h, and in one demo or test. */
static void check_manual(void)
{
    size_t manual_bytes = (size_t)(strstr(header.text, "*/") - header.text);
    char *manual = malloc(manual_bytes + 1);
    memcpy(manual, header.text, manual_bytes);
    manual[manual_bytes] = 0;
    source_names users = { 0 };
    source_list(&users, "demo", ".c", ".h");
    source_list(&users, "tests", ".c", ".h");
    for (size_t i = 0; i < header.token_count; i++) {
        const source_token *t = &header.tokens[i];
        if (!source_starts(t, "exl2_") || !source_is(t + 1, "(") || source_is(t + 2, "*")) {
            continue;
        }
        if (!has_word(manual, t)) {
            broken(&header, t->line, "the manual does not name", t->text, t->bytes);
        }
        bool used = false;
        for (size_t u = 0; u < users.count && !used; u++) {
            used = has_word(source_read(users.paths[u]).text, t);
        }
        if (!used) {
            broken(&header, t->line, "no demo and no test uses", t->text, t->bytes);
        }
        check_count += 2;
    }
    free(manual);
}

/* A test that Meson does not know never runs. Hosts are named in hosts.c. */
static void check_tests_run(void)
{
    source_names tests = { 0 };
    source_file list = source_read("tests/meson.build"), hosts = source_read("tests/hosts/hosts.c");
    source_list(&tests, "tests", ".c", ".c");
    for (size_t i = 0; i < tests.count; i++) {
        const char *base = source_base(tests.paths[i]);
        const char *text = strncmp(tests.paths[i], "tests/hosts/", 12) == 0 && strcmp(base, "hosts.c") != 0 ? hosts.text : list.text;
        char quoted[SOURCE_PATH_BYTES];
        snprintf(quoted, sizeof quoted, "'%.*s'", (int)strcspn(base, "."), base);
        bool runs = strstr(text, quoted) || strstr(text, base) || strncmp(tests.paths[i], "tests/subproject/", 17) == 0;
        require(runs, &list, 1, "no test runs", tests.paths[i]);
    }
}

static void check_version(const char *version)
{
    int major = 0, minor = 0, patch = 0;
    char line[64];
    sscanf(version, "%d.%d.%d", &major, &minor, &patch);
    snprintf(line, sizeof line, "#define EXL2_VERSION %d ", major * 10000 + minor * 100 + patch);
    require(strstr(header.text, line) != NULL, &header, 1, "EXL2_VERSION is not that of meson.build", version);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: layers ROOT VERSION\n", stderr);
        return 2;
    }
    source_root = argv[1];
    header = source_read("exl2.h");
    source_names names = { 0 };
    source_list(&names, "exl2_impl", ".h", ".inc");
    files = calloc(names.count + 1, sizeof *files);
    for (size_t i = 0; i < names.count; i++) {
        if (folder_number(names.paths[i]) >= 0) {
            files[file_count++] = source_read(names.paths[i]);
        }
    }
    for (size_t i = 0; i < file_count; i++) {
        check_head(&files[i]);
        check_includes(&files[i]);
        check_macros(&files[i]);
        check_scope(&files[i]);
        if (strcmp(files[i].path, "exl2_impl/0_base/platform.h") != 0) {
            check_calls(&files[i]);
        }
    }
    check_list();
    check_sizes();
    check_manual();
    check_tests_run();
    check_version(argv[2]);
    return check_done();
}
