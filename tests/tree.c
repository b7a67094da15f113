/* tree.c: the rules that amalgamate and layers enforce, each tried on a small source tree that violates it.
   takes: tree AMALGAMATE LAYERS FOLDER; FOLDER is emptied.
   gives: a failed check for every rule whose violation passed.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <stdbool.h>
#include <sys/wait.h>

static const char *amalgamate, *layers, *folder;

#define HEAD(name) "/* " name ": a file.\n   takes: nothing.\n   gives: nothing. */\n"
#define GUARD(name) "#ifndef EXL2__" name "_H\n#define EXL2__" name "_H\n"

static const char good_header[] =
    "/* exl2.h: a manual with #include \"exl2.h\" and\n   #include \"exl2.h\"\n   exl2_go. */\n"
    "#ifndef EXL2_H\n#define EXL2_H\n"
    "#define EXL2_VERSION 102 /* 0.1.2 */\nEXL2_API int exl2_go(void);\n#endif\n"
    "#ifdef EXL2_IMPLEMENTATION\n#include \"exl2_impl/exl2_impl.h\"\n#endif\n";
static const char good_list[] =
    HEAD("exl2_impl.h")
    "#include \"0_base/result.h\"\n#include \"1_load/b.h\"\n";
static const char good_result[] =
    HEAD("result.h") GUARD("RESULT") "#include \"../../exl2.h\"\n#include <stdint.h>\ntypedef enum "
                                                      "exl2__kind { EXL2__ONE, EXL2__TWO } exl2__kind;\n"
                                                      "static const int exl2__table[] = { 1, 2 };\nstatic inline int "
                                                      "exl2__one(void)\n{\n    return exl2__table[0];\n}\n#endif\n";
static const char good_b[] =
    HEAD("b.h") GUARD("B") "#include \"../0_base/result.h\"\n#define X(n) EXL2__##n,\n#undef "
                                           "X\nEXL2_API int exl2_go(void)\n{\n    return exl2__one();\n}\n"
    "EXL2__PRIVATE int exl2__b(int a);\nEXL2__PRIVATE int exl2__b(int a)\n{\n    return a;\n}\n#endif\n";
static const char good_test[] = "int main(void) { return exl2_go(); }\n";

static void write_file(const char *path, const char *text)
{
    char full[1200];
    snprintf(full, sizeof full, "%s/%s", folder, path);
    FILE *file = fopen(full, "wb");
    if (CHECK(file != NULL)) {
        fputs(text, file);
        fclose(file);
    }
}

static void write_tree(void)
{
    char command[1200];
    snprintf(command, sizeof command,
             "rm -rf '%s' && mkdir -p '%s/exl2_impl/0_base' '%s/exl2_impl/1_load' '%s/exl2_impl/3_backend' "
             "'%s/kernels_src' '%s/tests/hosts'", folder, folder, folder, folder, folder, folder);
    CHECK(system(command) == 0);
    write_file("commit.txt", "0123abcd\n");
    write_file("exl2.h", good_header);
    write_file("exl2_impl/exl2_impl.h", good_list);
    write_file("exl2_impl/0_base/result.h", good_result);
    write_file("exl2_impl/1_load/b.h", good_b);
    write_file("tests/go.c", good_test);
    write_file("tests/hosts/hosts.c", "\n");
    write_file("tests/hosts/windows_cases.h", "\n");
    write_file("tests/meson.build", "'go' 'hosts'\n");
}

/* Runs a tool on the tree and returns its exit code. Its output is in FOLDER/said. */
static int run(const char *tool)
{
    char command[4096];
    if (tool == amalgamate) {
        snprintf(command, sizeof command, "'%s' '%s' '%s/commit.txt' '%s/out/exl2.h' > '%s/said' 2>&1", tool, folder,
                 folder, folder, folder);
    } else {
        snprintf(command, sizeof command, "'%s' '%s' 0.1.2 > '%s/said' 2>&1", tool, folder, folder);
    }
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The tool fails on the tree as it is now, and prints `wanted`. */
static void check_says(const char *tool, const char *wanted)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/said", folder);
    CHECK_INT(run(tool), 1);
    char *said = check_read(path, NULL);
    if (!CHECK(strstr(said, wanted) != NULL)) {
        printf("wanted \"%s\" in:\n%s\n", wanted, said);
    }
    free(said);
}

static void check_good_tree(void)
{
    char path[1200];
    write_tree();
    write_file("README.md", "`go.c`, `1_load/b.h`, `exl2.h`, `demo/NAME.c`, `build/x.h`, "
                            "[here](tests/go.c), [web](https://a.b/c.h):\n"
                            "```c\n/* `game.c` */\n```\n");
    CHECK_INT(run(layers), 0);
    CHECK_INT(run(amalgamate), 0);
    snprintf(path, sizeof path, "%s/out/exl2.h", folder);
    char *text = check_read(path, NULL);
    CHECK(strstr(text, "commit 0123abcd.") != NULL && strchr(text, '\n') > strstr(text, "commit 0123abcd."));
    CHECK(strstr(text, "   #include \"exl2.h\"\n") != NULL);       /* the manual stays */
    CHECK(strstr(text, "\n#include \"") == NULL);                  /* nothing else is included */
    CHECK(strstr(text, "#include <stdint.h>\n") != NULL);
    const char *one = strstr(text, "exl2__one(void)");
    CHECK(one != NULL && strstr(one + 1, "exl2__one(void)") == NULL); /* once */
    CHECK(strstr(text, "begin exl2_impl/0_base/result.h") < one && one < strstr(text, "end exl2_impl/0_base/result.h"));
    free(text);
}

/* A template header reaches the single header twice, once per use. The list does not name it. */
static void check_template(void)
{
    char path[1200];
    write_tree();
    write_file("exl2_impl/1_load/t_template.h",
               HEAD("t_template.h") "static inline int EXL2__T_NAME(void)\n{\n    return 1;\n}\n");
    write_file("exl2_impl/1_load/b.h",
               HEAD("b.h") GUARD(
                   "B") "#include \"../0_base/result.h\"\n#define EXL2__T_NAME exl2__first\n#include \"t_template.h\"\n"
                        "#define EXL2__T_NAME exl2__second\n#include \"t_template.h\"\nEXL2_API int exl2_go(void)\n{\n "
                        "   return 1;\n}\n#endif\n");
    CHECK_INT(run(layers), 0);
    CHECK_INT(run(amalgamate), 0);
    snprintf(path, sizeof path, "%s/out/exl2.h", folder);
    char *text = check_read(path, NULL);
    const char *first = strstr(text, "begin exl2_impl/1_load/t_template.h");
    CHECK(first != NULL && strstr(first + 1, "begin exl2_impl/1_load/t_template.h") != NULL);
    free(text);
}

/* Headers shared with kernels and the output of embed.c are inlined for the backends only. */
static void check_kernels(void)
{
    static const char k[] = HEAD("k.h") GUARD("K") "#include \"../0_base/result.h\"\n#include "
        "\"../../kernels_src/args.h\"\n#include \"exl2_kernels.inc\" /* text */\n#endif\n";
    char path[1200], list[1200];
    write_tree();
    snprintf(list, sizeof list, "%s#include \"3_backend/k.h\"\n", good_list);
    write_file("exl2_impl/exl2_impl.h", list);
    write_file("exl2_impl/3_backend/k.h", k);
    write_file("kernels_src/args.h", "struct exl2k_args;\n");
    write_file("exl2_kernels.inc", "struct exl2__made;\n"); /* next to commit.txt */
    CHECK_INT(run(layers), 0);
    CHECK_INT(run(amalgamate), 0);
    snprintf(path, sizeof path, "%s/out/exl2.h", folder);
    char *text = check_read(path, NULL);
    CHECK(strstr(text, "\nstruct exl2k_args;\n") != NULL && strstr(text, "\nstruct exl2__made;\n") != NULL);
    CHECK(strstr(text, "\n#include \"") == NULL);
    free(text);
    write_file("exl2_impl/1_load/b.h", HEAD("b.h") GUARD("B") "#include \"../../kernels_src/args.h\"\n"
               "#include \"../0_base/result.h\"\nEXL2_API int exl2_go(void)\n{\n    return 1;\n}\n#endif\n");
    check_says(layers, "no such file: ../../kernels_src/args.h");
}

/* The other output of embed.c is for the converter only. Both outputs are prerequisites of the single header. */
static void check_texts(void)
{
    static const char k[] = HEAD("k.h") GUARD("K") "#include \"../0_base/result.h\"\n#include \"exl2_kernels.inc\"\n"
        "#endif\n";
    static const char t[] = HEAD("t.h") GUARD("T") "#include \"../0_base/result.h\"\n"
        "static const char *const exl2__t[] = {\n#include \"exl2_texts.inc\"\n};\n#endif\n";
    char path[1200], list[1200], command[4096];
    write_tree();
    snprintf(command, sizeof command, "mkdir '%s/exl2_impl/8_convert'", folder);
    CHECK(system(command) == 0);
    snprintf(list, sizeof list, "%s#include \"3_backend/k.h\"\n#include \"8_convert/t.h\"\n", good_list);
    write_file("exl2_impl/exl2_impl.h", list);
    write_file("exl2_impl/3_backend/k.h", k);
    write_file("exl2_impl/8_convert/t.h", t);
    write_file("exl2_kernels.inc", "struct exl2__made;\n");
    write_file("exl2_texts.inc", "    \"a text\",\n");
    CHECK_INT(run(layers), 0);
    snprintf(command, sizeof command, "'%s' '%s' '%s/commit.txt' '%s/out/exl2.h' '%s/stamp' '%s/deps'", amalgamate,
             folder, folder, folder, folder, folder);
    CHECK(system(command) == 0);
    snprintf(path, sizeof path, "%s/out/exl2.h", folder);
    char *text = check_read(path, NULL);
    CHECK(strstr(text, "\nstruct exl2__made;\n") != NULL && strstr(text, "\n    \"a text\",\n") != NULL);
    free(text);
    snprintf(path, sizeof path, "%s/deps", folder);
    text = check_read(path, NULL);
    CHECK(strstr(text, "/exl2_kernels.inc") != NULL && strstr(text, "/exl2_texts.inc") != NULL);
    free(text);
    write_file("exl2_impl/3_backend/k.h", HEAD("k.h") GUARD("K") "#include \"../0_base/result.h\"\n"
               "static const char *const exl2__k[] = {\n#include \"exl2_texts.inc\"\n};\n#endif\n");
    check_says(layers, "no such file: exl2_texts.inc");
}

/* Rooms are folders below a numbered folder. The files of a room are adjacent in the list, and a room includes only
   rooms that are complete before it. */
#define ROOM_FILE(name, guard, more) HEAD(name) GUARD(guard) "#include \"../../0_base/result.h\"\n" more "#endif\n"

static void check_rooms(void)
{
    static const char *const orders[][4] = {
        { "1_load/x/c.h", "1_load/x/d.h", "1_load/y/e.h", NULL },
        { "1_load/x/c.h", "1_load/y/e.h", "1_load/x/d.h", "does not stand in exl2_impl.h with its room" },
    };
    for (size_t i = 0; i < 3; i++) {
        char list[2000], command[1300];
        const char *const *order = orders[i % 2];
        write_tree();
        snprintf(command, sizeof command, "mkdir -p '%s/exl2_impl/1_load/x' '%s/exl2_impl/1_load/y'", folder, folder);
        CHECK(system(command) == 0);
        write_file("exl2_impl/1_load/x/c.h", ROOM_FILE("c.h", "C", ""));
        write_file("exl2_impl/1_load/x/d.h", ROOM_FILE("d.h", "D", ""));
        write_file("exl2_impl/1_load/y/e.h", ROOM_FILE("e.h", "E", "#include \"../x/c.h\"\n"));
        if (i == 2) {
            write_file("exl2_impl/1_load/x/d.h", ROOM_FILE("d.h", "D", "#include \"../y/e.h\"\n"));
        }
        snprintf(list, sizeof list, "%s", good_list);
        for (size_t k = 0; k < 3; k++) {
            size_t used = strlen(list);
            snprintf(list + used, sizeof list - used, "#include \"%s\"\n", order[k]);
        }
        write_file("exl2_impl/exl2_impl.h", list);
        if (i == 0) {
            CHECK_INT(run(layers), 0);
        } else {
            check_says(layers, i == 1 ? order[3] : "includes a room that is not complete above its own");
        }
    }
}

static const struct {
    const char *path, *text, *says; /* one file of the good tree is replaced; says: what the tool must print */
} amalgam_cases[] = {
    { "exl2_impl/0_base/result.h", "#include \"../1_load/b.h\"\n", "higher folder" },
    { "exl2_impl/0_base/result.h", "#include \"result.h\"\n", "cycle" },
    { "exl2_impl/1_load/b.h", "#include \"c.h\"\n", "does not list" },
    { "exl2_impl/1_load/b.h", "#include \"../../../c.h\"\n", "leaves the source tree" },
    { "exl2_impl/exl2_impl.h", "#include \"0_base/result.h\"\n#include \"1_load/b.h\"\n#include \"1_load/b.h\"\n",
      "twice" },
    { "exl2_impl/exl2_impl.h", "#include \"0_base/result.h\"\n#include \"tools/b.h\"\n", "not in a numbered folder" },
    { "exl2_impl/exl2_impl.h", "#include \"0_base/result.h\"\n#include \"1_load/gone.h\"\n", "cannot read" },
};

#define BAD_B(code)                                                                                                    \
    HEAD("b.h")                                                                                        \
    GUARD("B") "#include \"../0_base/result.h\"\nEXL2_API int exl2_go(void)\n{\n    return 1;\n}\n" code "#endif\n"

static const struct {
    const char *path, *text, *says;
} layer_cases[] = {
    { "exl2_impl/0_base/result.h",
      HEAD("result.h") GUARD("RESULT") "#include \"../1_load/b.h\"\n#endif\n", "higher folder" },
    { "exl2_impl/1_load/b.h", HEAD("c.h") GUARD("B") "#endif\n", "must begin with" },
    { "exl2_impl/1_load/b.h",
      "/* b.h: a.\n   takes: x\n   owns:  y\n   gives: z */\n" GUARD("B") "#endif\n", "the head lacks" },
    { "exl2_impl/1_load/b.h",
      "/* b.h: a.\n   takes: x\n   gives: exl2__gone.\n   owns:  y */\n" GUARD("B") "#endif\n",
      "`gives:` names what the file does not define: exl2__gone" },
    { "exl2_impl/1_load/b.h", BAD_B("static int exl2__other(void)\n{\n    return 1;\n}\n"), "bears no name" },
    { "exl2_impl/1_load/b.h", HEAD("b.h") "#ifndef B_H\n#define EXL2__B_H\n#endif\n", "include guard" },
    { "exl2_impl/1_load/b.h", HEAD("b.h") GUARD("B") "#include \"../../exl2.h\"\n#endif\n",
      "only result.h" },
    { "exl2_impl/1_load/b.h", BAD_B("#include <stdlib.h>\n"), "system header" },
    { "exl2_impl/1_load/b.h", BAD_B("#include \"gone.h\"\n"), "no such file" },
    { "exl2_impl/1_load/b.h", BAD_B("#define HELLO 1\n"), "macro without our prefix: HELLO" },
    { "exl2_impl/1_load/b.h", BAD_B("#define X(n)\n"), "never undefined" },
    { "exl2_impl/1_load/b.h", BAD_B("static int helper(int a)\n{\n    return a;\n}\n"), "without our prefix: helper" },
    { "exl2_impl/1_load/b.h", BAD_B("typedef struct exl2__s { int a; } plain;\n"), "without our prefix: plain" },
    { "exl2_impl/1_load/b.h", BAD_B("typedef int (*callback)(int a);\n"), "without our prefix: callback" },
    { "exl2_impl/1_load/b.h", BAD_B("struct tag {\n    int a;\n};\n"), "tag without our prefix: tag" },
    { "exl2_impl/1_load/b.h", BAD_B("enum exl2__e { EXL2__A, RED };\n"), "enum constant without our prefix: RED" },
    { "exl2_impl/1_load/b.h", BAD_B("static int exl2__counter;\n"), "global variable" },
    { "exl2_impl/1_load/b.h", BAD_B("static int exl2__slots[4] = { 0 };\n"), "global variable" },
    { "exl2_impl/1_load/b.h", BAD_B("int exl2__b_open(void)\n{\n    return 1;\n}\n"), "neither static nor EXL2_API" },
    { "exl2_impl/1_load/b.h", BAD_B("EXL2__PRIVATE int exl2__b(int a);\nEXL2__PRIVATE int exl2__b_next(int a)\n{\n"
      "    return exl2__b(a);\n}\n"), "prototype of a function that the file does not define: exl2__b" },
    { "exl2_impl/1_load/b.h", BAD_B("static int exl2__b(void)\n{\n    static int calls;\n    return ++calls;\n}\n"),
      "state inside a function" },
    { "exl2_impl/1_load/b.h", BAD_B("static int exl2__b(void)\n{\n    return 1;\n}\n"),
      "EXL2__PRIVATE is the word for this static" },
    { "exl2_impl/1_load/b.h", BAD_B("#define EXL2__FAST\nEXL2__FAST EXL2__PRIVATE int exl2__b(void)\n{\n"
                                    "    return 1;\n}\n"),
      "does not stand at the beginning of its line: EXL2__PRIVATE" },
    { "exl2_impl/1_load/b_template.h", HEAD("b_template.h") "EXL2__PRIVATE int exl2__b(void)\n{\n    return 1;\n}\n",
      "make this function static inline" },
    { "tests/go.c", "#define EXL2_IMPLEMENTATION\n#include \"../exl2.h\"\nint main(void) { return exl2_go(); }\n",
      "compiles the engine, and is not in `whole`" },
    { "tests/go.c", "#include \"../exl2_impl/1_load/b.h\"\nint main(void) { return exl2_go(); }\n",
      "compiles the engine, and is not in `whole`" },
    { "tests/go.c", "#include \"private/gone.h\"\nint main(void) { return exl2_go(); }\n",
      "exl2_impl has no such file: private/gone.h" },
    { "tests/meson.build", "'go' 'hosts'\ndeep = { 'go': 'sees it' }\n", "needs no place in `deep`" },
    { "exl2_impl/1_load/b.h", BAD_B("static void *exl2__b(void)\n{\n    return malloc(3);\n}\n"),
      "platform.h: malloc" },
    { "exl2_impl/1_load/b.h", BAD_B("#define EXL2__STOP() abort()\n"), "platform.h: abort" },
    { "exl2_impl/1_load/b.h", BAD_B("\t\n"), "tab" },
    { "exl2_impl/1_load/c.h", HEAD("c.h") GUARD("C") "#endif\n", "must be in exl2_impl.h" },
    { "exl2_impl/exl2_impl.h",
      HEAD("exl2_impl.h") "#include \"1_load/b.h\"\n#include \"0_base/result.h\"\n",
      "before something" },
    { "exl2.h", "/* exl2.h: a manual of exl2_going. */\n#define EXL2_VERSION 102 /**/\nEXL2_API int exl2_go(void);\n",
      "the manual does not name: exl2_go" },
    { "exl2.h", "/* exl2.h: exl2_go */\n#define EXL2_VERSION 103 /**/\nEXL2_API int exl2_go(void);\n", "EXL2_VERSION" },
    { "tests/go.c", "int main(void) { return 0; }\n", "no demo and no test uses: exl2_go" },
    { "tests/forgotten.c", "int main(void) { return 0; }\n", "no test runs: tests/forgotten.c" },
    { "README.md", "See `1_load/b.h`, `go.c` and\n`tests/gone.c`.\n",
      "README.md:2: names a file that does not exist: tests/gone.c" },
    { "CONTRIBUTING.md", "`cc gone.h` builds it.\n", "names a file that does not exist: gone.h" },
    { "README.md", "[here](tests/go.c) and [there](tests/gone.c#top)\n",
      "links to a file that does not exist: tests/gone.c" },
};

static void check_long_file(void)
{
    static char text[20000];
    write_tree();
    for (int i = 0; i < 801; i++) {
        strcat(text, "\n");
    }
    write_file("tests/go.c", text);
    check_says(layers, "split this file");
}

/* A test that includes b.h, which has `count` lines with a semicolon between the texts. */
static void write_large(const char *begin, int count, const char *end)
{
    static char text[200000];
    snprintf(text, sizeof text, "%s%s%s", HEAD("b.h") GUARD("B"), "#include \"../0_base/result.h\"\n"
             "EXL2_API int exl2_go(void)\n{\n    return 1;\n}\n", begin);
    char *at = text + strlen(text);
    for (int i = 0; i < count; i++) {
        at += sprintf(at, "\n;");
    }
    strcat(at, end);
    strcat(text, "\n#endif\n");
    write_file("exl2_impl/1_load/b.h", text);
}

/* Prototypes, types and inline functions count, but no bodies, comments or empty lines. What is in a list may have
   more. */
static void check_engine_lines(void)
{
    static const char says[] = "includes more than 10,000 lines of the engine";
    static const struct { const char *begin, *end, *list; bool large; } cases[] = {
        { "typedef struct exl2__b {", "} exl2__b;", "", true },
        { "static inline int exl2__b(void)\n{", "}", "", true },
        { "EXL2__PRIVATE int exl2__b(void)\n{", "}", "", false },
        { "/*", "*/", "", false },
        { "typedef struct exl2__b {", "} exl2__b;", "deep = { 'go': 'sees it' }\n", false },
        { "typedef struct exl2__b {", "} exl2__b;", "whole = { 'go': 'compiles it' }\n", false },
        { "typedef struct exl2__b {", "} exl2__b;", "whole = { 'gone': 'compiles it' }\n'go':\n", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char build[200], path[1200];
        write_tree();
        write_large(cases[i].begin, 10000, cases[i].end);
        write_file("tests/go.c", "#include \"rig.h\"\nint main(void) { return exl2_go(); }\n");
        write_file("tests/rig.h", "#include \"private/b.h\"\n");
        snprintf(build, sizeof build, "'go' 'hosts'\n%s", cases[i].list);
        write_file("tests/meson.build", build);
        run(layers);
        snprintf(path, sizeof path, "%s/said", folder);
        char *said = check_read(path, NULL);
        if (!CHECK_INT(strstr(said, says) != NULL, cases[i].large)) {
            printf("case %zu:\n%s\n", i, said);
        }
        free(said);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: tree AMALGAMATE LAYERS FOLDER\n", stderr);
        return 2;
    }
    amalgamate = argv[1];
    layers = argv[2];
    folder = argv[3];
    check_good_tree();
    check_template();
    check_kernels();
    check_texts();
    check_rooms();
    for (size_t i = 0; i < sizeof amalgam_cases / sizeof amalgam_cases[0]; i++) {
        write_tree();
        write_file(amalgam_cases[i].path, amalgam_cases[i].text);
        check_says(amalgamate, amalgam_cases[i].says);
    }
    for (size_t i = 0; i < sizeof layer_cases / sizeof layer_cases[0]; i++) {
        write_tree();
        write_file(layer_cases[i].path, layer_cases[i].text);
        check_says(layers, layer_cases[i].says);
    }
    check_long_file();
    check_engine_lines();
    return check_done();
}
