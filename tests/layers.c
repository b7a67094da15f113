/* layers.c: the house rules that a program can check, over the whole source tree.
   takes: layers ROOT VERSION.
   gives: one line per broken rule, with file and line. */
#include "engine_lines.h"

#define LINES_MAX 800
#define LINES_WARN 500
#define COLUMNS_MAX 120

/* ---- file heads ---- */

/* The first comment has labelled parts: name, takes, gives, and owns where the file owns something. */
static void check_head(const source_file *file)
{
    static const char *const labels[] = { "   takes: ", "   gives: ", "   owns:  " };
    const size_t optional = 2; /* labels from here on may be absent */
    char first[SOURCE_PATH_BYTES + 8];
    snprintf(first, sizeof first, "/* %s: ", source_base(file->path));
    require(strncmp(file->text, first, strlen(first)) == 0, file, 1, "the file must begin with", first);
    const char *end = strstr(file->text, "*/"), *at = file->text;
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        char line_start[32];
        snprintf(line_start, sizeof line_start, "\n%s", labels[i]);
        const char *found = strstr(at, line_start);
        if (!found || found > end) {
            bool misplaced = (found = strstr(file->text, line_start)) != NULL && found < end;
            if (i >= optional && !misplaced) {
                continue;
            }
            broken(file, 1, "the head lacks, or has in another order, the line", labels[i], strlen(labels[i]));
            return;
        }
        at = found + strlen(line_start);
    }
}

static bool defines(const char *name, size_t bytes)
{
    for (size_t i = 0; i < defined_count; i++) {
        if (defined[i].name.bytes == bytes && memcmp(defined[i].name.text, name, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* The names in the head's `gives:` part are defined in the file. Runs after check_macros and check_scope. */
static void check_gives(const source_file *file)
{
    const char *at = strstr(file->text, "\n   gives: "), *end = at ? strstr(at, "*/") : NULL;
    const char *owns = at ? strstr(at, "\n   owns:  ") : NULL, *blank = at ? strstr(at, "\n\n") : NULL;
    end = owns && owns < end ? owns : end;
    end = blank && blank < end ? blank : end;
    while (at && end && at < end) {
        size_t bytes = 0;
        while (isalnum((unsigned char)at[bytes]) || at[bytes] == '_') {
            bytes++;
        }
        bool ours = bytes > 5 && (strncmp(at, "exl2_", 5) == 0 || strncmp(at, "EXL2_", 5) == 0);
        check_count += ours;
        if (ours && at[bytes] != '*' && !defines(at, bytes)) {
            broken(file, 1, "`gives:` names what the file does not define", at, bytes);
        }
        at += bytes ? bytes : 1;
    }
}

/* ---- rooms: the folder of a file, such as exl2_impl/6_text/chat ---- */

static size_t room_bytes(const char *path)
{
    return (size_t)(source_base(path) - path);
}

static bool same_room(const char *a, const char *b)
{
    return room_bytes(a) == room_bytes(b) && strncmp(a, b, room_bytes(a)) == 0;
}

/* A function's name has a word of its file's name, the name of its room, or that of a type that the file defines.
   Functions of 0_base are used everywhere and have names of their own. */
static void check_functions(const source_file *file)
{
    char words[2 * SOURCE_PATH_BYTES];
    snprintf(words, sizeof words, "%.*s_%.*s", (int)strcspn(source_base(file->path), "."), source_base(file->path),
             (int)room_bytes(file->path) - 1, file->path);
    for (size_t i = 0; i < defined_count && folder_number(file->path) > 0; i++) {
        const source_token *name = &defined[i].name;
        bool bears = !defined[i].function || !source_starts(name, "exl2__");
        for (const char *word = words; !bears && *word; word += strspn(word, "_/")) {
            size_t bytes = strcspn(word, "_/");
            bears = name->bytes >= 6 + bytes && strncmp(name->text + 6, word, bytes) == 0;
            word += bytes;
        }
        for (size_t k = 0; k < defined_count && !bears; k++) {
            const source_token *type = &defined[k].name;
            bears = !defined[k].function && name->bytes > type->bytes && name->text[type->bytes] == '_'
                && strncmp(name->text, type->text, type->bytes) == 0;
        }
        check_count++;
        if (!bears) {
            broken(file, name->line, "bears no name of its file, its room or a type in it", name->text, name->bytes);
        }
    }
}

/* ---- includes ---- */

static void check_system_include(const source_file *file, int line, const char *name)
{
    static const char *const plain[] = { "stdbool.h", "stddef.h", "stdint.h", "stdarg.h", "string.h",
                                         "math.h",    "limits.h", "float.h",  NULL };
    static const char *const tools[] = { "stdio.h", "errno.h", NULL };
    int folder = folder_number(file->path);
    const char *tail = strstr(name, "intrin.h"); /* immintrin.h and its parts */
    bool is_simd = (tail && tail[sizeof "intrin.h" - 1] == 0) || strcmp(name, "arm_neon.h") == 0;
    bool allowed = any_of(name, strlen(name), plain) || calls_system(file)
        || (is_simd && (strcmp(file->path, "exl2_impl/0_base/simd.h") == 0
                        || (strcmp(file->path, "exl2_impl/0_base/config.h") == 0 && strcmp(name, "intrin.h") == 0)))
        || (folder == 8 && any_of(name, strlen(name), tools));
    require(allowed, file, line, "this system header belongs in platform.h", name);
}

/* Targets outside the engine: headers that are shared with kernels, and what embed.c made. */
static bool is_outside(const char *target)
{
    return strcmp(source_base(target), "exl2_kernels.inc") == 0 || strcmp(source_base(target), "exl2_texts.inc") == 0
        || (strncmp(target, "kernels_src/", 12) == 0 && exists(target));
}

/* May the file include this target outside the engine? Texts are of the converter, all else of the backends. */
static bool may_include(const char *path, const char *target)
{
    bool convert = strncmp(path, "exl2_impl/8_convert/", 20) == 0;
    bool gpu = folder_number(path) == 3 || strncmp(path, "exl2_impl/8_convert/gpu/", 24) == 0;
    return is_outside(target) && (strcmp(source_base(target), "exl2_texts.inc") == 0 ? convert : gpu);
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
            require(strcmp(file->path, "exl2_impl/0_base/result.h") == 0, file, line, "only result.h includes it",
                    name);
            continue;
        }
        if (may_include(file->path, target)) {
            continue;
        }
        require(find_file(target) != NULL, file, line, "no such file", name);
        require(folder_number(target) <= folder_number(file->path), file, line, "includes a higher folder", name);
    }
}

/* The files of a room are adjacent in the list. From its own numbered folder a file includes only its room, or a room
   that is complete before it. */
static void check_rooms(const source_names *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const source_file *file = find_file(list->paths[i]);
        size_t first = i;
        while (first > 0 && same_room(list->paths[first - 1], list->paths[i])) {
            first--;
        }
        for (size_t k = 0; file && k < first; k++) {
            require(!same_room(list->paths[k], list->paths[i]), file, 1, "does not stand in exl2_impl.h with its room",
                    list->paths[i]);
        }
        for (size_t t = 0; file && t < file->token_count; t++) {
            char name[SOURCE_PATH_BYTES], target[SOURCE_PATH_BYTES];
            bool quoted;
            if (!source_include(file, t, name, &quoted) || !quoted) {
                continue;
            }
            source_resolve(target, file->path, name);
            if (folder_number(target) != folder_number(file->path) || same_room(target, file->path)) {
                continue;
            }
            for (size_t k = i; k < list->count; k++) {
                require(!same_room(target, list->paths[k]), file, file->tokens[t].line,
                        "includes a room that is not complete above its own", name);
            }
        }
    }
}

/* The list names every file once, in an order in which no file needs a later one. */
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
        for (size_t j = 0; file && j < file->token_count; j++) {
            char inner[SOURCE_PATH_BYTES], target[SOURCE_PATH_BYTES];
            if (!source_include(file, j, inner, &quoted) || !quoted) {
                continue;
            }
            source_resolve(target, file->path, inner);
            const source_file *part = find_file(target);
            bool above_it = strcmp(target, "exl2.h") == 0 || (part && is_template(part)) || is_outside(target);
            for (size_t k = 0; k < seen.count; k++) {
                above_it |= strcmp(seen.paths[k], target) == 0;
            }
            require(above_it, &list, list.tokens[i].line, "is listed before something that it includes", name);
        }
        source_add(&seen, path);
    }
    check_rooms(&seen);
    for (size_t i = 0; i < file_count; i++) {
        int times = 0;
        for (size_t k = 0; k < seen.count; k++) {
            times += strcmp(seen.paths[k], files[i].path) == 0;
        }
        bool listed = !is_template(&files[i]);
        require(times == listed, &files[i], 1, "must be in exl2_impl.h, once", files[i].path);
    }
}

/* ---- calls ---- */

static void check_calls(const source_file *file)
{
    static const char *const never[] = {
        "abort",   "exit",     "_Exit",    "quick_exit",    "atexit",  "longjmp", "setjmp",  "assert",
        "signal",  "system",   "getenv",   "setlocale",     "printf",  "fprintf", "vprintf", "vfprintf",
        "sprintf", "snprintf", "vsprintf", "vsnprintf",     "puts",    "putchar", "perror",  "malloc",
        "calloc",  "realloc",  "free",     "aligned_alloc", "alloca",  "qsort",   "rand",    "srand",
        "strtod",  "strtof",   "strtol",   "strtoul",       "atof",    "atoi",    "sscanf",  "strtok",
        "isnan",   "isinf",    "isfinite", "isspace",       "isalpha", NULL
    };
    static const char *const files_only[] = { "fopen", "fclose", "fread",  "fwrite", "fseek", "ftell",
                                              "fputs", "remove", "rename", "errno",  NULL };
    for (size_t i = 0; i < file->token_count; i++) {
        const source_token *t = &file->tokens[i];
        bool called = t->name && !(i > 0 && source_is(t - 1, "undef"));
        bool plain_files = folder_number(file->path) == 8;
        if (called && (any_of(t->text, t->bytes, never) || (!plain_files && any_of(t->text, t->bytes, files_only)))) {
            broken(file, t->line, "this name belongs in platform.h", t->text, t->bytes);
        }
    }
    check_count++;
}

/* ---- sizes, manual, users ---- */

/* Columns are counted in code points. */
static void check_columns(const source_file *file)
{
    int line = 1, columns = 0;
    for (const char *at = file->text; *at; at++) {
        if (*at == '\n') {
            require(columns <= COLUMNS_MAX, file, line, "break this line; columns allowed", "120");
            line++;
            columns = 0;
        } else {
            columns += ((unsigned char)*at & 0xC0) != 0x80;
        }
    }
}

static void check_sizes(void)
{
    static const char *const folders[] = { "exl2_impl", "demo", "tests" };
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        source_names names = { 0 };
        source_list(&names, folders[f], ".c", ".h");
        for (size_t i = 0; i < names.count; i++) {
            source_file file = source_read(names.paths[i]);
            bool generated = strcmp(file.path, "exl2_impl/6_text/unicode/unicode.h") == 0;
            require(generated || file.lines <= LINES_MAX, &file, file.lines, "split this file; lines allowed", "800");
            require(strchr(file.text, '\t') == NULL, &file, 1, "tab", "indent by four spaces");
            check_columns(&file);
        }
    }
    check_columns(&header);
}

static bool has_word(const char *text, const source_token *word)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)word->bytes, word->text);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += word->bytes) {
        char after = at[word->bytes];
        if ((at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_')) && !isalnum((unsigned char)after)
            && after != '_') {
            return true;
        }
    }
    return false;
}

/* One row of layouts.h: is the member of a public struct listed there? */
static void check_member(const source_file *layouts, const source_token *type, const source_token *member)
{
    char row[256];
    snprintf(row, sizeof row, "EXL2__MEMBER(%.*s, %.*s)", (int)type->bytes, type->text, (int)member->bytes,
             member->text);
    require(strstr(layouts->text, row) != NULL, &header, member->line, "layouts.h lacks", row);
}

/* Bindings compare their structs with layouts.h, so it lists each member of each public struct. A member's name stands
   before ',', ';' or '[', or in the parentheses of a pointer to a function: (*name). */
static void check_layouts(void)
{
    if (!exists("exl2_impl/7_engine/layouts.h")) {
        return; /* the small trees of tests/tree.c */
    }
    source_file layouts = source_read("exl2_impl/7_engine/layouts.h");
    const source_token *t = header.tokens;
    size_t structs = 0;
    for (size_t i = 0; i + 3 < header.token_count; i++) {
        if (!source_is(&t[i], "typedef") || !source_is(&t[i + 1], "struct") || !source_is(&t[i + 3], "{")) {
            continue;
        }
        const source_token *type = &t[i + 2];
        int depth = 0; /* of parentheses and brackets */
        structs++;
        for (i += 4; i < header.token_count && !source_is(&t[i], "}"); i++) {
            bool pointer = source_is(&t[i], "(") && source_is(&t[i + 1], "*") && source_is(&t[i + 3], ")");
            bool ends = source_is(&t[i + 1], ",") || source_is(&t[i + 1], ";") || source_is(&t[i + 1], "[");
            if (depth == 0 && pointer) {
                check_member(&layouts, type, &t[i + 2]);
            } else if (depth == 0 && t[i].name && ends) {
                check_member(&layouts, type, &t[i]);
            }
            depth += source_is(&t[i], "(") || source_is(&t[i], "[");
            depth -= source_is(&t[i], ")") || source_is(&t[i], "]");
        }
    }
    require(structs > 40, &header, 1, "finds too few", "structs");
}

/* Every public function is named in the manual, which is the top comment of exl2.h, and is used by a demo or test. */
static void check_manual(void)
{
    size_t manual_bytes = (size_t)(strstr(header.text, "*/") - header.text);
    char *manual = malloc(manual_bytes + 1);
    memcpy(manual, header.text, manual_bytes);
    manual[manual_bytes] = 0;
    source_names users = { 0 };
    source_list(&users, "demo", ".c", ".h");
    source_list(&users, "tests", ".c", ".h");
    source_file *texts = calloc(users.count + 1, sizeof *texts);
    for (size_t u = 0; u < users.count; u++) {
        texts[u] = source_read(users.paths[u]);
    }
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
            used = has_word(texts[u].text, t);
        }
        if (!used) {
            broken(&header, t->line, "no demo and no test uses", t->text, t->bytes);
        }
        check_count += 2;
    }
    free(manual);
}

/* A test that is missing in meson.build never runs. The tests in tests/hosts are named in hosts.c or
   windows_cases.h. */
static void check_tests_run(void)
{
    source_names tests = { 0 };
    source_file list = source_read("tests/meson.build"), hosts = source_read("tests/hosts/hosts.c");
    source_file windows = source_read("tests/hosts/windows_cases.h");
    source_list(&tests, "tests", ".c", ".c");
    for (size_t i = 0; i < tests.count; i++) {
        const char *base = source_base(tests.paths[i]);
        bool host = strncmp(tests.paths[i], "tests/hosts/", 12) == 0 && strcmp(base, "hosts.c") != 0;
        const char *text = host ? hosts.text : list.text;
        char quoted[SOURCE_PATH_BYTES];
        snprintf(quoted, sizeof quoted, "'%.*s'", (int)strcspn(base, "."), base);
        bool runs = strstr(text, quoted) || strstr(text, base) || (host && strstr(windows.text, base))
                 || strncmp(tests.paths[i], "tests/subproject/", 17) == 0;
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

/* ---- documents ---- */

/* Is `name` a file of the tree, as a path from the root or as the end of one: cpu.h, cpu/cpu.h? */
static bool in_tree(const source_names *tree, const char *name)
{
    size_t bytes = strlen(name);
    for (size_t i = 0; i < tree->count; i++) {
        size_t whole = strlen(tree->paths[i]);
        if (whole > bytes && tree->paths[i][whole - bytes - 1] == '/'
            && strcmp(tree->paths[i] + whole - bytes, name) == 0) {
            return true;
        }
    }
    return exists(name);
}

/* The words between two backticks that end as a file of the tree does. NAME is a placeholder; build/ is generated. */
static void check_span(const source_file *file, int line, const char *at, const char *end, const source_names *tree)
{
    static const char *const endings[] = { ".h", ".c", ".cu", ".cuh", ".sh", ".md", NULL };
    while (at < end) {
        char name[SOURCE_PATH_BYTES];
        size_t bytes = 0;
        while (at + bytes < end && (isalnum((unsigned char)at[bytes]) || strchr("_./-", at[bytes]))) {
            bytes++;
        }
        snprintf(name, sizeof name, "%.*s", (int)bytes, at);
        const char *ending = strrchr(name, '.');
        if (ending && any_of(ending, strlen(ending), endings) && ending != name && !strstr(name, "NAME")
            && name[0] != '/' && strncmp(name, "build/", 6) != 0) {
            require(in_tree(tree, name), file, line, "names a file that does not exist", name);
        }
        at += bytes ? bytes : 1;
    }
}

/* "](path)": the path of a link begins at the document's folder. */
static void check_link(const source_file *file, int line, const char *at)
{
    char name[SOURCE_PATH_BYTES], path[SOURCE_PATH_BYTES];
    size_t bytes = strcspn(at, ")#\n");
    if (bytes > 0 && memchr(at, ':', bytes) == NULL) {
        snprintf(name, sizeof name, "%.*s", (int)bytes, at);
        source_resolve(path, file->path, name);
        require(exists(path), file, line, "links to a file that does not exist", name);
    }
}

static void check_document(const char *path, const source_names *tree)
{
    char full[2 * SOURCE_PATH_BYTES];
    source_file file = { 0 };
    snprintf(file.path, sizeof file.path, "%s", path);
    snprintf(full, sizeof full, "%s/%s", source_root, path);
    file.text = check_read(full, NULL);
    int line = 1;
    const char *span = NULL; /* after the backtick that opened it */
    bool fenced = false;     /* in a block of code, which may name files of an application */
    for (const char *at = file.text; *at; at++) {
        if (strncmp(at, "```", 3) == 0) {
            fenced = !fenced;
            at += 2;
        } else if (*at == '`' && !fenced) {
            if (span) {
                check_span(&file, line, span, at, tree);
            }
            span = span ? NULL : at + 1;
        } else if (!fenced && !span && strncmp(at, "](", 2) == 0) {
            check_link(&file, line, at + 2);
        }
        line += *at == '\n';
    }
}

/* Each file that the documents name exists. */
static void check_documents(void)
{
    static const char *const folders[] = { "exl2_impl", "demo", "tests", "kernels_src" };
    source_names tree = { 0 }, documents = { 0 };
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        source_list(&tree, folders[i], ".c", ".h");
        source_list(&tree, folders[i], ".cu", ".cuh");
        source_list(&tree, folders[i], ".sh", ".md");
    }
    source_list(&documents, "exl2_impl/docs", ".md", ".md");
    source_add(&documents, "CONTRIBUTING.md");
    source_add(&documents, "README.md");
    source_list(&documents, "demo", ".md", ".md");
    for (size_t i = 0; i < documents.count; i++) {
        if (exists(documents.paths[i])) {
            check_document(documents.paths[i], &tree);
        }
    }
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
        defined_count = prototype_count = 0;
        check_head(&files[i]);
        check_includes(&files[i]);
        check_macros(&files[i]);
        check_scope(&files[i]);
        check_prototypes(&files[i]);
        check_gives(&files[i]);
        check_functions(&files[i]);
        if (!is_platform(&files[i])) {
            check_calls(&files[i]);
        }
    }
    check_list();
    check_sizes();
    check_manual();
    check_layouts();
    check_tests_run();
    check_engine_lines();
    check_documents();
    check_version(argv[2]);
    return check_done();
}
