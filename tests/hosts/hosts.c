/* hosts.c: builds applications as users would, by calling the compilers, and checks the results.
   takes: hosts CASE SOURCE_ROOT BUILD_ROOT; the compilers in PATH.
   gives: exit code 0, 1 or 77 (a compiler of the case is absent).
   owns:  BUILD_ROOT/hosts/CASE/. */
#define _POSIX_C_SOURCE 200809L
#include "rig.h"
#include "windows_cases.h"

/* The header without the implementation. */
static void case_header_c(void)
{
    const char *cc[2];
    for (size_t i = compilers(c_compilers, cc); i-- > 0;) {
        MUST("%s -std=c11 %s -fsyntax-only -I'%s' '%s/declarations.c'", cc[i], WARNINGS, root, hosts);
        MUST("%s -std=c11 %s -DEXL2_CONVERT -fsyntax-only -I'%s' '%s/declarations.c'", cc[i], WARNINGS, root, hosts);
        MUST("%s -std=c11 %s -fsyntax-only -I'%s' '%s/declarations.c'", cc[i], WARNINGS, dist, hosts);
    }
}

static void case_header_cpp(void)
{
    const char *cc[2];
    for (size_t i = compilers(cpp_compilers, cc); i-- > 0;) {
        MUST("%s -x c++ -std=c++11 %s -DEXL2_CONVERT -fsyntax-only -I'%s' '%s/declarations.c'", cc[i], WARNINGS, root,
             hosts);
        MUST("%s -x c++ -std=c++17 %s -DEXL2_CONVERT -fsyntax-only -I'%s' '%s/declarations.c'", cc[i], WARNINGS, root,
             hosts);
        MUST("%s -x c++ -std=c++11 %s -fsyntax-only -I'%s' '%s/declarations.c'", cc[i], WARNINGS, dist, hosts);
    }
}

/* The whole engine in one file, from the tree and from the single header. Both are the same code, so each commit parses
   that of the tree, and compiles and runs the single header. The case `size` gives the warnings of an optimized build
   in each commit. */
static void case_one_file(void)
{
    const char *cc[2];
    for (size_t i = compilers(c_compilers, cc); i-- > 0;) {
        bool parse = !everything();
        MUST("%s -std=c11 -O%d %s %s '%s/one_file.c' %s", cc[i], everything() ? 2 : 0, WARNINGS, tree, hosts,
             parse ? "-fsyntax-only" : "-o tree -lm && ./tree");
    }
}

static void case_dist(void)
{
    const char *cc[2];
    MUST("head -n 1 '%s/exl2.h' | grep -q 'of commit [0-9a-z]'", dist);
    /* The only include left is in the manual's example. */
    MUST("! grep '^ *# *include *\"' '%s/exl2.h' | grep -v '^       #include \"exl2.h\"$'", dist);
    for (size_t i = compilers(c_compilers, cc); i-- > 0;) {
        bool parse = i > 0 && !everything();
        MUST("cp '%s/exl2.h' '%s/one_file.c' . && %s -std=c11 -O0 %s one_file.c %s", dist, hosts, cc[i], WARNINGS,
             parse ? "-fsyntax-only" : "-o dist -lm && ./dist");
    }
}

/* Switches that an application may set. Each commit parses them with clang, and compiles only what runs. */
static void case_switches(void)
{
    static const struct {
        const char *option, *object; /* an engine with the option, and the file that it becomes */
        const char *absent;          /* a word that is not in the object; NULL: none is known */
    } switches[] = { { "-DEXL2_CONVERT", "convert.o", NULL },
                     { "-DEXL2_NO_FILES", "no_files.o", NULL },
                     { "-DEXL2_NO_SIMD", "no_simd.o", NULL },
                     { "-DEXL2_NO_EXL3", "no_exl3.o", NULL },
                     { "-DEXL2_NO_MOE", "no_moe.o", "block_sparse_moe" },        /* names of tensors of experts */
                     { "-DEXL2_NO_VISION", "no_vision.o", "modality_projection" }, /* of towers */
                     { "-DEXL2_NO_THREADS", "no_threads.o", "pthread" },
                     { "-std=gnu17", "gnu17.o", NULL },
                     { "'-DEXL2_KERNEL_DIR=\"kernels\"'", "kernel_dir.o", NULL } };
    const char *cc[2];
    const char *compiler = cc[compilers(c_compilers, cc) - 1];
    bool parse = !everything() && strcmp(compiler, "clang") == 0;
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        const char *object = switches[i].object;
        MUST("%s -std=c11 -O0 %s %s %s %s '%s/implementation.c' -o %s", compiler, WARNINGS, switches[i].option,
             parse ? "-fsyntax-only" : "-c", tree, hosts, object);
        if (!parse && switches[i].absent) {
            MUST("! grep -q %s %s", switches[i].absent, object);
        }
    }
    MUST("%s -std=c11 -O0 %s -DEXL2_NO_CUDA '-DEXL2_ASSERT(c)=((c)?(void)0:__builtin_trap())' -I'%s' '%s/one_file.c' "
         "-o no_cuda -lm && ./no_cuda",
         compiler, WARNINGS, root, hosts); /* and without exl2_kernels.inc */
    /* Debian has no headers of 32-bit programs, but those of 64 bits do, with an empty gnu/stubs-32.h. */
    const char *bits32 = "-m32 -I. -idirafter /usr/include/x86_64-linux-gnu";
    if (run("mkdir gnu && : >gnu/stubs-32.h && echo '#include <string.h>' | %s %s -E - >/dev/null 2>&1", compiler,
            bits32) == 0) {
        MUST("! %s %s -std=c11 %s -fsyntax-only '%s/implementation.c' 2>log", compiler, bits32, tree, hosts);
        MUST("grep -q 'needs a 64-bit target' log");
    }
    /* One model says in config.json that it is GPTQ, the other only by its tensors. */
    MUST("mkdir plain && cp '%s/tests/golden/models/gptq-phi3/'* plain && chmod u+w plain/* && "
         "sed -i 's/\"quant_method\"/\"method\"/; s/\"checkpoint_format\"/\"format\"/' plain/config.json", root);
    MUST("%s -std=c11 -O0 %s -I'%s' '%s/no_gptq.c' -o no_gptq -lm && ./no_gptq '%s/tests/golden/models/exl2-mixed' "
         "'%s/tests/golden/models/gptq-phi3' '%s/tests/golden/models/awq' plain",
         compiler, WARNINGS, root, hosts, root, root, root);
}

/* With this option the implementation does not compile, and gives one message, which has `words`. */
static void one_message(const char *compiler, const char *option, const char *words)
{
    MUST("for folder in '%s' '%s'; do ! %s %s -I\"$folder\" -I'%s' -c file.c -o file.o 2>said.txt && "
         "test $(grep -c 'error:' said.txt) = 1 && grep -q 'error: .*%s' said.txt || "
         "{ head -n 20 said.txt; exit 1; }; done", root, dist, compiler, option, build, words);
}

/* The implementation as C++, or as C below C11, is one mistake and gives one message. (MSVC without /std does not
   define __STDC_VERSION__.) From C11 on there is none. Each commit parses the last two, and preprocesses the
   others, which would give the message, too; other cases parse C11. */
static void case_languages(void)
{
    static const char *const pairs[][2] = { { "-std=c89", "c11" }, { "-std=gnu89", "gnu11" }, { "-std=c99", "c17" },
                                            { "-std=gnu99", "gnu17" }, { "-std=c11 -U__STDC_VERSION__", "c2x" } };
    const char *cc[2];
    MUST("printf '#define EXL2_IMPLEMENTATION\\n#include \"exl2.h\"\\n' > file.c");
    for (size_t i = compilers(c_compilers, cc); i-- > 0;) {
        for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
            one_message(cc[i], pairs[k][0], "the implementation is C11");
            bool parse = everything() || k == 3 || k == 4;
            MUST("%s -std=%s %s %s file.c", cc[i], pairs[k][1], parse ? "-fsyntax-only" : "-E -o all.i", tree);
        }
    }
    for (size_t i = compilers(cpp_compilers, cc); i-- > 0;) {
        one_message(cc[i], "-x c++ -std=c++17", "Define EXL2_IMPLEMENTATION in one .c file");
    }
}

/* What optimizers assume of the code: no warning at any level of any compiler. The tree has the same code as the single
   header. */
static void case_optimizers(void)
{
    static const char *const levels[] = { "-O3", "-Og", "-Os" }; /* -O0 and -O2: the other cases */
    const char *cc[2];
    for (size_t i = compilers(c_compilers, cc); i-- > 0;) {
        for (size_t level = 0; level < sizeof levels / sizeof levels[0]; level++) {
            MUST("%s -std=c11 %s %s -DEXL2_CONVERT -c %s '%s/implementation.c' -o level.o", cc[i], levels[level],
                 WARNINGS, tree, hosts);
        }
    }
}

/* README's command lines for builds without Meson, run as they are written, make the same file but for the commit in
   its first line. */
static void case_by_hand(void)
{
    need("cc");
    MUST("cp -r '%s/exl2.h' '%s/exl2_impl' '%s/kernels_src' '%s/README.md' . && chmod -R u+w .", root, root, root,
         root);
    MUST("awk '/^Without Meson/ { found = 1; next } found && /^    / { print substr($0, 5); lines++; next } "
         "found && lines { exit }' README.md > lines.sh && test $(wc -l < lines.sh) -le 6 && sh -ex lines.sh");
    MUST("tail -n +2 build/dist/exl2.h > by_hand.h && tail -n +2 '%s/exl2.h' | cmp - by_hand.h", dist);
    MUST("head -n 1 build/dist/exl2.h | grep -q 'of commit [0-9a-z]'");
}

static void case_two_files(void)
{
    const char *cc[2];
    for (size_t i = compilers(c_compilers, cc); i-- > 0;) {
        MUST("%s -std=c11 %s %s -c '%s/implementation.c' -o %s.o", cc[i], WARNINGS, tree, hosts, cc[i]);
        MUST("%s -std=c11 %s %s '%s/declarations.c' %s.o -o two -lm && ./two", cc[i], WARNINGS, tree, hosts, cc[i]);
    }
    if (have("g++") && have("gcc")) { /* with the object that gcc made above */
        MUST("g++ -std=c++11 %s %s -x c++ '%s/declarations.c' -x none gcc.o -o mixed -lm && ./mixed", WARNINGS, tree,
             hosts);
    }
}

/* A private copy adds no symbol, even though the application does not call all of it. */
static void case_static(void)
{
    const char *cc[2];
    for (size_t i = compilers(c_compilers, cc); i-- > 0;) {
        MUST("%s -std=c11 %s -Wno-unused-function -DEXL2_STATIC -c %s '%s/one_file.c' -o static.o", cc[i], WARNINGS,
             tree, hosts);
        MUST("%s static.o -o static -lm && ./static", cc[i]);
        MUST("test \"$(nm -g --defined-only static.o | awk '{print $NF}')\" = main");
    }
}

static void case_macros(void)
{
    const char *cc[2];
    for (size_t i = compilers(c_compilers, cc); i-- > 0;) {
        MUST("%s -std=c11 -Werror=implicit-function-declaration -I'%s' '%s/macros.c' -o macros -lm && ./macros", cc[i],
             dist, hosts);
        MUST("%s -std=c11 -Werror=implicit-function-declaration -DEXL2_CONVERT -c -I'%s' '%s/macros.c' -o convert.o",
             cc[i], dist, hosts);
    }
}

/* Every line of the file `name` in the work folder is a word of `allowed` or begins with `prefix`. */
static void check_words(const char *name, const char *allowed, const char *prefix)
{
    char path[1400];
    snprintf(path, sizeof path, "%s/%s", work, name);
    char *text = check_read(path, NULL);
    for (char *word = strtok(text, "\n"); word; word = strtok(NULL, "\n")) {
        char spaced[256];
        snprintf(spaced, sizeof spaced, " %s ", word);
        bool good = strstr(allowed, spaced) || (prefix && strncmp(word, prefix, strlen(prefix)) == 0);
        if (!CHECK(good)) {
            printf("symbol %s (%s)\n", word, name);
        }
    }
    free(text);
}

/* What an engine may use of the C library: host memory, text, mathematics, plain files, a clock, the driver. */
static const char engine_symbols[] =
    " memcpy memmove memset memcmp memchr strlen strcmp strncmp strchr strrchr strstr strcspn strspn"
    " erf exp expf exp2 exp2f log logf log2 log2f log1p pow powf sqrt sqrtf sin sinf cos cosf sincos sincosf tanh tanhf"
    " floor floorf ceil ceilf rint rintf nearbyint nearbyintf lrint lrintf llrint llrintf round roundf lround llround "
    "trunc truncf"
    " fmod fmodf ldexp ldexpf frexp frexpf fabs fabsf fmax fmaxf fmin fminf fma fmaf cbrt"
    " aligned_alloc free madvise open close pread fstat opendir readdir closedir __errno_location clock_gettime "
    "time localtime_r nanosleep dlopen dlsym dlclose timespec_get"
    " pthread_create pthread_join pthread_self pthread_equal pthread_mutex_init pthread_mutex_destroy"
    " pthread_mutex_lock pthread_mutex_unlock pthread_cond_init pthread_cond_destroy pthread_cond_signal"
    " pthread_cond_wait pthread_cond_timedwait"
    " _GLOBAL_OFFSET_TABLE_ __stack_chk_fail __cpu_model __cpu_indicator_init ";

static const char convert_symbols[] = " pwrite fopen fclose fread fwrite fseek fseeko ftell ftello fflush ferror feof "
                                      "remove rename unlink mkdir rmdir stat statvfs readlink fsync fcntl "
                                      "flock getpid ";

/* writable.txt lists symbols in writable sections, except those that only the loader writes to (.data.rel.ro). */
static void check_symbols(const char *object, const char *allowed)
{
    MUST("nm -g --defined-only %s | awk '{print $NF}' > defined.txt", object);
    MUST("nm -u %s | awk '{sub(/64$/, \"\", $NF); print $NF}' > undefined.txt", object); /* open64: _FILE_OFFSET_BITS */
    MUST("nm -f sysv %s | awk -F '[ |]+' '$NF ~ /^([.](data|bss|tdata|tbss)|[*]COM[*])/ && $NF !~ /rel[.]ro/ "
         "{print $1}' > writable.txt", object);
    check_words("defined.txt", "", "exl2_");
    check_words("undefined.txt", allowed, NULL);
    check_words("writable.txt", "", NULL);
    MUST("! grep -q exl2__ defined.txt && grep -q exl2_step defined.txt");
}

/* With EXL2_CONVERT (section 12 of the manual); case_size builds without it. */
static void case_symbols(void)
{
    char all[2 * sizeof engine_symbols];
    need("gcc");
    need("nm");
    if (everything() || run("cp '%s'/libengine.a.p/*.o symbols.o", build) != 0) {
        MUST("gcc -std=c11 -O2 -U_FORTIFY_SOURCE -DEXL2_CONVERT -c %s '%s/implementation.c' -o symbols.o", tree, hosts);
    }
    snprintf(all, sizeof all, "%s%s", engine_symbols, convert_symbols);
    check_symbols("symbols.o", all);
}

/* The size ledger: text + data by room, from the sizes of the symbols, compared with tests/golden/size.txt (bytes and
   room, one line each). A room that grows by more than 2 % (and 128 bytes) fails until its line in that file is changed
   in the same commit, so that growth is noticed and intended. exl2_impl/docs/measured.md has the sum, in KB. Inlined
   code counts where it is inlined. Strings and jump tables have no symbols and share one line. Unwind tables, which in
   C only debuggers and profilers read, are not counted. Compilers other than gcc 12 for x86-64 give other sizes: for
   them only the limits are checked. The object is that of the shared library, which the build has made. */
static void case_size(void)
{
    need("gcc");
    need("size");
    if (run("cp '%s'/libexl2.so*.p/*.o size.o && readelf --debug-dump=info size.o | grep -m 1 DW_AT_producer | "
            "grep -q 'GNU C11.* -O2 .*-fPIC'", build) != 0) { /* no library, or one with other options */
        MUST("gcc -std=c11 -O2 %s -g -fPIC -fvisibility=hidden -c %s '%s/exl2_impl/tools/library.c' -o size.o",
             WARNINGS, tree, root);
    }
    check_symbols("size.o", engine_symbols);
    MUST("nm -S -l -t d size.o > symbols.txt");
    MUST("awk '$4 == \"exl2__kernel_text\" { print $2 + 0 }' symbols.txt > kernels.txt");
    MUST("size -A size.o | awk '/^[.](text|rodata|data)/ { bytes += $2 } END { print bytes }' > total.txt");
    MUST("awk -F '\t' -v total=$(cat total.txt) -v kernels=$(cat kernels.txt) '"
         "split($1, part, \" \") == 4 && part[4] != \"exl2__kernel_text\" { room = $2; "
         "if (!sub(/.*exl2_impl\\//, \"\", room)) { room = \"elsewhere\" } sub(/\\/[^\\/]*$/, \"\", room); "
         "bytes[room] += part[2]; sum += part[2] } "
         "END { for (room in bytes) { print bytes[room], room } print total - kernels - sum, \"strings\" }' "
         "symbols.txt | sort -k 2 > ledger.txt");
    MUST("awk -v total=$(cat total.txt) -v kernels=$(cat kernels.txt) 'BEGIN { engine = total - kernels; "
         "print \"text + data:\", engine, \"and kernels:\", kernels; exit !(kernels > 0) }'");
    bool known = run("gcc -dumpmachine | grep -q ^x86_64 && gcc -dumpversion | grep -q '^12'") == 0;
    MUST("awk -v check=%d 'NR == FNR { before[$2] = $1; next } "
         "{ grown = before[$2] == \"\" || $1 > before[$2] * 1.02 + 128; bad += grown; "
         "printf \"%%8d %%8d  %%s%%s\\n\", before[$2], $1, $2, "
         "grown ? \"  grew by more than 2 %%: change its line in tests/golden/size.txt in this commit\" : \"\" } "
         "END { exit check && bad > 0 }' '%s/tests/golden/size.txt' ledger.txt",
         known, root);
}

static void case_fast_math(void)
{
    const char *cc[2];
    for (size_t i = compilers(c_compilers, cc); i-- > 0;) {
        MUST("%s -std=c11 -O2 -ffast-math %s %s '%s/two_engines.c' -o fast -lm -lpthread", cc[i], WARNINGS, tree,
             hosts);
        MUST("./fast '%s/tests/golden/models/exl2-mixed'", root);
    }
}

/* setarch: the thread sanitizer fails with some address layouts. Where randomization may not be turned off, try
   without. */
static void case_threads(void)
{
    need("gcc");
    if (run("echo 'int main(void) { return 0; }' > empty.c && gcc -fsanitize=thread empty.c -o empty 2>/dev/null")
        != 0) {
        check_skip("no thread sanitizer");
    }
    const char *quiet = run("setarch -R true 2>/dev/null") == 0 ? "setarch -R " : "";
    if (run("%s./empty", quiet) != 0) {
        check_skip("the thread sanitizer does not start on this kernel");
    }
    MUST("gcc -std=c11 -O1 -g -fsanitize=thread %s '%s/two_engines.c' -o two_engines -lm -lpthread", tree, hosts);
    MUST("TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 %s./two_engines '%s/tests/golden/models/exl2-mixed'",
         quiet, root);
}

/* Instructions that move a vector of 32 or 64 bytes to or from memory, and fault where it is not aligned. */
#define ALIGNED_MOVE "vmov(aps|apd|dqa|dqa32|dqa64) .*([(].*%%[yz]mm|%%[yz]mm.*[(])"

/* gcc for Windows misplaces large vectors on the stack (see config.h). The cure is forced on here: no aligned move may
   be left, however -flto cuts the program into assembler files. gcc -O0 without the cure has such moves. */
static void case_unaligned(void)
{
    static const char *const options[] = { "-O0", "-O3", "-O2 -flto", "-O2 -flto -flto-partition=max",
                                           "-O0 -flto -flto-partition=max" };
    const char *compile = "gcc -std=c11 -Wall -Wextra -Wno-unused-function";
    need("gcc");
    need("objdump");
    if (run("echo '#ifndef __x86_64__\n#error\n#endif' | gcc -E - >/dev/null 2>&1") != 0) {
        check_skip("not x86-64");
    }
    MUST("%s -O0 %s '%s/simd.c' -o aligned -lm", compile, tree, hosts);
    MUST("objdump -d aligned | grep -qE '" ALIGNED_MOVE "'");
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        MUST("%s %s -DEXL2__TEST_UNALIGNED_MOVES %s '%s/simd.c' -o simd%zu -lm 2>log || { cat log; false; }", compile,
             options[i], tree, hosts, i);
        MUST("./simd%zu && objdump -d simd%zu >code && test $(grep -c '%%[yz]mm' code) -gt 1000", i, i);
        MUST("! grep -E '" ALIGNED_MOVE "' code");
    }
    /* the whole header, as an application compiles it */
    MUST("%s -O2 -DEXL2_NO_CUDA -DEXL2__TEST_UNALIGNED_MOVES -c -I'%s' '%s/implementation.c' -o header.o", compile,
         dist, hosts);
    MUST("objdump -d header.o >code && test $(grep -c '%%[yz]mm' code) -gt 1000");
    MUST("! grep -E '" ALIGNED_MOVE "' code");
}

/* Plain C has the same bits whatever the compiler and its options are, also where a CPU has fused multiply-adds. */
static void case_plain(void)
{
    static const struct { const char *compiler, *options, *runner; } builds[] = {
        { "gcc", "-std=c11 -O0", "" }, { "gcc", "-std=gnu11 -O2 -march=native", "" },
        { "clang", "-O2 -march=native", "" }, { "aarch64-linux-gnu-gcc", "-std=gnu11 -O2 -static", "qemu-aarch64" },
    };
    int built = 0;
    for (size_t i = 0; i < sizeof builds / sizeof builds[0]; i++) {
        if (!have(builds[i].compiler) || (builds[i].runner[0] && !have(builds[i].runner))) {
            continue;
        }
        MUST("%s %s %s %s '%s/tests/unit/cpu_simd.c' -o plain -lm -lpthread && %s ./plain bits >bits%d && "
             "cmp bits0 bits%d",
             builds[i].compiler, builds[i].options, tree, whole, root, builds[i].runner, built, built);
        built++;
    }
    if (built < 2) {
        check_skip("fewer than two compilers");
    }
}

/* Small golden models of all formats and of what families differ in; those of EXL3 lie among the shared fixtures. */
#define BITS_MODELS "awq cohere exl2-4bit exl2-mixed exl2-qwen3-moe gemma2 gptq-phi3 llama3-rope mixed-kinds " \
                    "phi3-longrope qwen3 smollm3 starcoder2"
static char bits_models[4096];
static int bits_lines; /* of a list of hashes: one for each model, and a last one */

static void find_bits_models(void)
{
    static const char *const exl3[] = { "exl3-llama", "exl3-mixtral", "exl3-qwen2-padded", "exl3-qwen3" };
    const char *data = check_env("EXL2_TEST_DATA");
    size_t used = (size_t)snprintf(bits_models, sizeof bits_models, "%s", BITS_MODELS);
    bits_lines = 14;
    for (size_t i = 0; i < sizeof exl3 / sizeof exl3[0]; i++) {
        char folder[1200];
        snprintf(folder, sizeof folder, "%s%s/fixtures/exl3/%s", data ? data : root, data ? "" : "/../shared", exl3[i]);
        if (run("test -f '%s/config.json'", folder) == 0) {
            used += (size_t)snprintf(bits_models + used, sizeof bits_models - used, " '%s'", folder);
            bits_lines++;
        }
    }
}

/* Builds tests/hosts/bits.c and the engine with this compiler. gnu17: -std=c11 forbids gcc to contract products. */
static void build_bits(const char *compile, const char *name)
{
    MUST("%s -std=gnu17 %s -DEXL2_NO_CUDA -I'%s' -I'%s/tests' '%s/implementation.c' '%s/bits.c' -o %s -lm", compile,
         WARNINGS, root, root, hosts, hosts, name);
}

/* The hashes of a path: NAME-PATH.txt. false: this CPU has no such path. */
static bool run_bits(const char *runner, const char *name, const char *path)
{
    int code = run("cd '%s/tests/golden/models' && %s '%s/%s' %s %s > '%s/%s-%s.txt'", root, runner, work, name, path,
                   bits_models, work, name, path);
    if (code != 77) {
        CHECK_INT(code, 0);
    }
    return code == 0;
}

/* The bits of AVX2 and AVX-512 are the same, and each path's bits are the same with every compiler and with options
   that allow it to contract products. (bits.c compares tasks and budgets.) */
static void case_bits(void)
{
    static const char *const paths[] = { "avx2", "avx512" };
    static const struct {
        const char *name, *compile;
    } builds[] = { { "gcc", "gcc -O2" }, { "clang", "clang -O2" }, { "fma", "gcc -O1 -mavx2 -mfma" } };
    need("gcc");
    if (run("echo '#ifndef __x86_64__\n#error\n#endif' | gcc -E - >/dev/null 2>&1") != 0) {
        check_skip("not x86-64");
    }
    find_bits_models();
    for (size_t i = 0; i < sizeof builds / sizeof builds[0]; i++) {
        if (i == 1 && !have("clang")) {
            continue;
        }
        build_bits(builds[i].compile, builds[i].name);
        for (size_t k = 0; k < 2 && run_bits("", builds[i].name, paths[k]); k++) {
            MUST("test $(wc -l < gcc-avx2.txt) = %d && cmp gcc-avx2.txt %s-%s.txt", bits_lines, builds[i].name,
                 paths[k]);
        }
    }
}

/* A CPU with AVX2 alone, which qemu is here: AVX-512 instructions stand in functions of that path only, and the engine
   does not choose them. */
static void case_avx2_only(void)
{
    char job[2400];
    need("objdump");
    need("qemu-x86_64");
    if (run("echo '#ifndef __x86_64__\n#error\n#endif' | gcc -E - >/dev/null 2>&1") != 0) {
        check_skip("not x86-64");
    }
    if (run("test -f '%s/libengine.a' -a -x '%s/demo/exl2'", build, build) != 0) {
        check_skip("a build without the programs");
    }
    MUST("objdump -d --no-show-raw-insn '%s/libengine.a' | awk '/^[0-9a-f]+ </ { of = $2 } "
         "/%%zmm|%%k[0-7]|%%[xy]mm(1[6-9]|2[0-9]|3[01])/ { print of }' | sort -u >wide.txt && "
         "grep -q avx512 wide.txt && ! grep -vE 'avx512|cpu_vnni' wide.txt",
         build);
    MUST("env -u EXL2_TEST_DATA qemu-x86_64 -cpu Haswell '%s/tests/test_golden'", build);
    snprintf(job, sizeof job, "generate '%s/tests/golden/models/exl2-mixed' --ids 1,5,9 --max 16 --greedy --threads 1 "
             "--backend cpu", root);
    MUST("qemu-x86_64 -cpu Haswell '%s/demo/exl2' %s >haswell.txt && '%s/demo/exl2' %s --cpu-path avx2 >here.txt && "
         "test -s here.txt && cmp haswell.txt here.txt", build, job, build, job);
    MUST("qemu-x86_64 -cpu Haswell '%s/demo/exl2' info '%s/tests/golden/models/exl2-mixed' | grep -w avx2", build,
         root);
    MUST("qemu-x86_64 -cpu Haswell '%s/demo/exl2' %s --cpu-path avx512 | cmp - here.txt", build, job);
}

/* Cross-compiled for aarch64 and run under qemu: the bits of AVX2, tests of the NEON path and of goldens, and the
   program exl2. */
static void case_aarch64(void)
{
    static const char *const tests[][2] = { { "unit/cpu_path", "" }, { "unit/cpu_matrix", "neon" },
                                            { "unit/cpu_phases", "neon" }, { "unit/exl2_matrix", "" },
                                            { "engine/golden", "" } };
    static const char *const levels[] = { "-O0", "-O3", "-O2 -flto=2" };
    const char *model = getenv("EXL2_TEST_MODEL"), *cc = "aarch64-linux-gnu-gcc";
    char compile[4096];
    need(cc);
    need("qemu-aarch64");
    snprintf(compile, sizeof compile, "%s -static -std=gnu17 %s -DEXL2_NO_CUDA -I'%s/tests' %s", cc, WARNINGS, root,
             tree);
    MUST("%s -O2 -DEXL2_CONVERT -c '%s/implementation.c' -o engine.o", compile, hosts);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) { /* all SIMD code, and no warning */
        MUST("%s %s -Wno-unused-function '%s/simd.c' -o simd -lm && qemu-aarch64 ./simd", compile, levels[i], hosts);
    }
    if (have("clang") && run("echo 'int x;' | clang --target=aarch64-linux-gnu -c -x c - -o x.o 2>/dev/null") == 0) {
        MUST("clang --target=aarch64-linux-gnu -isystem /usr/aarch64-linux-gnu/include -std=gnu17 %s -O2 -I'%s' "
             "-Wno-unused-function -c '%s/simd.c' -o simd.o", WARNINGS, root, hosts);
    }
    /* Plain C has products that are added to something as fused operations only in conversions. */
    MUST("%s-objdump -d engine.o | awk '/^[0-9a-f]+ </ { of = $2 } /\tfn?m(add|sub)\t|\tfml[as]\t/ { print of }' | "
         "sort -u >fused.txt && grep -q cpu_neon_tile_1 fused.txt && "
         "! grep -vE '^<exl2_(compare>|_(cpu_(neon|vector)_|gguf_types_|import_|quantize_|allocate_|compare_|convert_|"
         "factor_|solve_|gram_|losses_|measure_|measurement_|options_|texts_|correct_|streams_))' fused.txt",
         "aarch64-linux-gnu");
    MUST("%s -O1 '%s/bits.c' engine.o -o arm -lm", compile, hosts);
    find_bits_models();
    run_bits("qemu-aarch64", "arm", "neon");
    if (run("gcc -std=c11 %s -I'%s' -I'%s/tests' '%s/bits.c' '%s/libengine.a' -o here -lm 2>/dev/null", WARNINGS, root,
            root, hosts, build) != 0) {
        build_bits("gcc -O1", "here"); /* a build without the programs, or with another compiler */
    }
    if (run_bits("", "here", "avx2")) {
        MUST("test $(wc -l < arm-neon.txt) = %d && cmp here-avx2.txt arm-neon.txt", bits_lines);
    }
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        MUST("%s -O2 %s '%s/tests/%s.c' %s%s%s -o test -lm && env -u EXL2_TEST_DATA qemu-aarch64 ./test %s",
             compile, whole, root, tests[i][0], i == 4 ? "engine.o" : "", i == 2 ? root : "",
             i == 2 ? "/tests/unit/cpu_double.c" : "", tests[i][1]);
    }
    if (run("test -x '%s/demo/exl2'", build) != 0) {
        return; /* a build without the programs */
    }
    MUST("sources=$(ls '%s'/demo/cli/*.c '%s'/demo/serve/*.c '%s'/demo/common/*.c | grep -v common/exl2.c) && "
         "%s -O0 -DEXL2_CONVERT '-I%s/demo' '-I%s/demo/common' $sources engine.o -o exl2 -lm -lpthread",
         root, root, root, compile, build, root);
    for (int i = 0; i < (model ? 2 : 1); i++) {
        char job[2000];
        snprintf(job, sizeof job, i ? "generate '%s' --prompt 'Once upon a time' --max 8 --greedy --threads 1"
                                    : "generate '%s/tests/golden/models/exl2-mixed' --ids 1,5,9 --max 16 --threads 1",
                 i ? model : root);
        MUST("qemu-aarch64 ./exl2 %s --seed 3 >arm.txt && '%s/demo/exl2' %s --seed 3 --backend cpu --cpu-path avx2 "
             ">here.txt && test -s here.txt && cmp arm.txt here.txt", job, build, job);
    }
}

/* ---- programs in README and in the manual ---- */

/* The number of files that match. */
static int count_files(const char *pattern)
{
    char command[1600], line[32] = "";
    snprintf(command, sizeof command, "cd '%s' && ls %s 2>/dev/null | wc -l", work, pattern);
    FILE *in = popen(command, "r");
    if (in) {
        if (!fgets(line, sizeof line, in)) {
            line[0] = 0;
        }
        pclose(in);
    }
    return atoi(line);
}

/* Every block with a main is a program that a user can paste: it compiles without a warning, and the first one runs.
   The model is a synthetic one, with a real tokenizer, where the programs look for it. */
static void case_examples(void)
{
    const char *c[2], *cpp[2];
    size_t c_count = compilers(c_compilers, c), cpp_count = compilers(cpp_compilers, cpp);
    MUST("awk '/^ *```/ { if (file != \"\") { close(file); file = \"\" } else if ($1 == \"```c\" || $1 == \"```cpp\") "
         "{ file = \"readme\" ++n ($1 == \"```c\" ? \".c\" : \".cpp\") } next } file != \"\" { print >file }' "
         "'%s/README.md'", root);
    MUST("awk '/^#/ { exit } /^       / || (!NF && file != \"\") { if (file == \"\") file = \"manual\" ++n \".c\"; "
         "print substr($0, 8) >file; next } file != \"\" { close(file); file = \"\" }' '%s/exl2.h'", root);
    MUST("awk '/^```/ { inside = $1 == \"```c\"; next } inside { print >\"players.c\" }' "
         "'%s/exl2_impl/docs/players.md'", root);
    MUST("rm $(grep -L '^ *int main(' readme*.c readme*.cpp manual*.c)");
    CHECK(count_files("readme*.c") > 0 && count_files("manual*.c") > 0 && count_files("readme*.cpp") > 0);
    CHECK(count_files("players.c") == 1);
    char engine[1200] = "engine.o";
    if (everything() || run("test -e '%s/libengine.a'", build) != 0) {
        MUST("%s -O0 -c -I'%s' '%s/implementation.c' -o engine.o", c[0], dist, hosts);
    } else {
        snprintf(engine, sizeof engine, "'%s/libengine.a'", build);
    }
    MUST("%s -std=c11 -Wall -Wextra -Werror -I'%s' readme1.c -o readme1 -lm -lpthread", c[0], dist);
    if (everything()) {
        for (size_t i = c_count; i-- > 0;) {
            MUST("for f in readme*.c manual*.c players.c; do %s -std=c11 -Wall -Wextra -Werror -I'%s' $f %s || exit 1; "
                 "done", c[i], dist, i == 0 ? "-o ${f%.c} -lm -lpthread" : "-fsyntax-only");
        }
    } else { /* all but the first link the engine */
        MUST("for f in readme*.c manual*.c players.c; do test $f = readme1.c || "
             "sed '/define EXL2_IMPLEMENTATION/d' $f | %s -std=c11 -Wall -Wextra -Werror -I'%s' -x c - "
             "-x none %s -o ${f%%.c} -lm -lpthread -ldl || exit 1; done", c[0], dist, engine);
    }
    for (size_t i = everything() ? cpp_count : 1; i-- > 0;) {
        MUST("for f in readme*.cpp; do for s in 11 17 20; do %s -std=c++$s -Wall -Wextra -Werror -I'%s' $f %s -o "
             "${f%%.cpp}_cpp -lm -lpthread -ldl || exit 1; done; done", cpp[i], dist, engine);
    }
    MUST("! sed '/stdio.h/d' readme1.c | %s -std=c11 -Wall -Wextra -Werror -I'%s' -fsyntax-only -x c - 2>/dev/null",
         c[0], dist);
    if (run("test -x '%s/demo/exl2'", build) != 0) {
        return; /* a build without the programs */
    }
    MUST("mkdir -p build/models && '%s/demo/exl2' synth build/models/smollm2-135m-instruct --shape smollm2-135m "
         "--layers 1 --bpw 2.5 >/dev/null && cp '%s'/tests/golden/smollm2/* build/models/smollm2-135m-instruct", build,
         root);
    /* whether the model is fast enough depends on what else runs here */
    MUST("./players nowhere build/models/smollm2-135m-instruct >said.txt; grep -q '^build/models/.* tokens/s$' "
         "said.txt && grep -q '^take ' said.txt && ! ./players nowhere >said.txt && grep -q '^take none' said.txt");
    MUST("for f in readme1 manual?* readme*_cpp; do case $f in *.*) ;; *) ./$f >said.txt && test -s said.txt || "
         "exit 1;; esac; done");
}

/* Compiles a file of tests/hosts, which includes a recipe of the manual. Each commit links the programs' engine. */
static void build_recipe(const char *compiler, const char *file, const char *program)
{
    char engine[1200] = "";
    if (!everything()) {
        snprintf(engine, sizeof engine, "'%s/libengine.a'", build);
    }
    MUST("sed '%s' '%s/%s' >%s && %s -std=c11 -Wall -Wextra -Werror -O1 -I. -I'%s' %s %s -o %s -lm -lpthread -ldl",
         engine[0] ? "/define EXL2_IMPLEMENTATION/d" : "", hosts, file, file, compiler, dist, file, engine, program);
}

/* The recipe of the manual that saves and loads in mid-sentence, as it is written, in a program around it. A talk that
   one process saves at each of three places, and another one loads, has the text of a talk that nobody saved. */
static void case_save(void)
{
    const char *c[2];
    compilers(c_compilers, c);
    if (run("test -x '%s/demo/exl2'", build) != 0) {
        printf("SKIP: a build without the programs\n");
        exit(77);
    }
    MUST("awk '/^   [^ ]/ && found && lines { exit } /^   Save and load in mid-sentence/ { found = 1 } "
         "found && /^       / { lines++; print substr($0, 8) }' '%s/exl2.h' >save_recipe.h && "
         "grep -q load_talk save_recipe.h", root);
    build_recipe(c[0], "save.c", "save");
    MUST("'%s/demo/exl2' synth model --shape smollm2-135m --layers 1 --bpw 2.5 >/dev/null && "
         "cp '%s'/tests/golden/smollm2/* model", build, root);
    MUST("./save model whole >whole.txt && test $(wc -c <whole.txt) -ge 100");
    MUST("for at in 1 40 90; do ./save model save $at saved >before.txt && ./save model load saved >after.txt && "
         "test $(wc -c <before.txt) -ge $at && test $(wc -c <before.txt) -lt $(wc -c <whole.txt) && "
         "test -s after.txt && cat before.txt after.txt | cmp - whole.txt || exit 1; done");
    MUST("head -c 200 saved >short && ! ./save model load short >after.txt");
}

/* The recipe of the manual for an NPC's memory, as it is written, in a program around it: of a thousand sentences the
   one that was asked for is the nearest, and nothing is allocated. */
static void case_memory(void)
{
    const char *c[2];
    compilers(c_compilers, c);
    if (run("test -x '%s/demo/exl2'", build) != 0) {
        printf("SKIP: a build without the programs\n");
        exit(77);
    }
    MUST("awk '/^   [^ ]/ && found && lines { exit } /^   A memory[.]/ { found = 1 } "
         "found && /^       / { lines++; print substr($0, 8) }' '%s/exl2.h' >memory_recipe.h && "
         "grep -q nearest memory_recipe.h", root);
    build_recipe(c[0], "memory.c", "memory");
    MUST("'%s/demo/exl2' synth model --shape smollm2-135m --layers 1 --bpw 2.5 >/dev/null && "
         "cp '%s'/tests/golden/smollm2/* model", build, root);
    MUST("./memory model >said.txt && test $(wc -l <said.txt) = 3");
}

/* As a Meson subproject of an application with a build folder of its own. */
static void case_subproject(void)
{
    need("meson");
    MUST("cp '%s/tests/subproject/meson.build' '%s/tests/subproject/main.c' . && mkdir subprojects && ln -s '%s' "
         "subprojects/exl2",
         root, root, root);
    MUST("meson setup out > setup.txt 2>&1 || { cat setup.txt; false; }");
    MUST("meson compile -C out > compile.txt 2>&1 || { cat compile.txt; false; }");
    MUST("./out/host && ./out/host_by_name");
    /* the application's build makes none of our programs and tests */
    MUST("test ! -e out/subprojects/exl2/demo/hello");
}

static void case_install(void)
{
    need("meson");
    MUST("meson install -C '%s' --no-rebuild --destdir '%s/to' > install.txt 2>&1 || { cat install.txt; false; }",
         build, work);
    /* the header alone; in a build with the library, that and its pkg-config file, too */
    MUST("test $(find to -type f ! -name 'libexl2.so*' ! -name exl2.pc | wc -l) = 1 && "
         "cmp \"$(find to -type f -name exl2.h)\" '%s/exl2.h'", dist);
}

/* The shared library: it exports the declared functions and nothing else; its names follow the version; a program finds
   it by pkg-config once it is installed; and the same program runs with the DLL. Each commit takes the library that it
   has built, and installs it below another root. */
static void case_library(void)
{
    need("meson");
    need("pkg-config");
    MUST("sed -n '/^#ifndef EXL2_H$/,/^#ifdef EXL2_CONVERT$/p' '%s/exl2.h' | "
         "sed -n 's/^EXL2_API .*[ *]\\(exl2_[a-z_]*\\)(.*/\\1/p' | sort >declared.txt && "
         "test $(wc -l <declared.txt) -ge 48", root);
    bool built = !everything() && run("test -e '%s/libexl2.so'", build) == 0;
    char out[1200] = "out", config[4096];
    if (built) {
        snprintf(out, sizeof out, "%s", build);
        snprintf(config, sizeof config, "export PKG_CONFIG_SYSROOT_DIR='%s/to' && "
                 "export PKG_CONFIG_LIBDIR=\"$(dirname $(find '%s/to' -name exl2.pc))\"", work, work);
    } else {
        snprintf(config, sizeof config, "export PKG_CONFIG_LIBDIR='%s/to/lib/pkgconfig'", work);
        MUST("meson setup out '%s' -Dlibrary=enabled -Ddemo=disabled -Dtests=disabled -Doptimization=0 "
             "--prefix='%s/to' --libdir=lib >setup.txt 2>&1 || { cat setup.txt; false; }", root, work);
        MUST("meson compile -C out >compile.txt 2>&1 || { cat compile.txt; false; }");
    }
    MUST("nm -D --defined-only '%s/libexl2.so' | awk '{ print $3 }' | sort >exported.txt && diff declared.txt "
         "exported.txt", out);
    MUST("version=$(sed -n \"s/.*version: '\\([0-9]*[.][0-9]*\\)[.].*/\\1/p;T;q\" '%s/meson.build') && "
         "objdump -p '%s/libexl2.so' | grep -q \"SONAME *libexl2.so.$version$\"", root, out);
    MUST("meson install -C '%s' --no-rebuild %s >install.txt 2>&1 || { cat install.txt; false; }", out,
         built ? "--destdir \"$PWD/to\"" : "");
    MUST("%s && cc -std=c11 %s $(pkg-config --cflags exl2) '%s/library_user.c' -o user $(pkg-config --libs exl2) "
         "-Wl,-rpath,\"$(dirname $(find '%s/to' -name libexl2.so))\" && ./user '%s/tests/golden/layouts.txt'", config,
         WARNINGS, hosts, work, root);
    if (everything() && have("x86_64-w64-mingw32-gcc") && have("wine")) {
        MUST("meson setup dll '%s' --cross-file '%s/mingw.ini' -Dlibrary=enabled -Ddemo=disabled -Dtests=disabled "
             "-Doptimization=0 >setup.txt 2>&1 || { cat setup.txt; false; }", root, hosts);
        MUST("meson compile -C dll >compile.txt 2>&1 || { cat compile.txt; false; }");
        MUST("x86_64-w64-mingw32-objdump -p dll/exl2.dll | "
             "sed -n '/Ordinal.Name Pointer/,/^$/s/.* \\(exl2_[a-z_]*\\)$/\\1/p' | sort >exported.txt && "
             "diff declared.txt exported.txt");
        MUST("x86_64-w64-mingw32-gcc -std=c11 -I'%s' '%s/library_user.c' -o dll/user.exe dll/exl2.dll.a "
             "-static-libgcc && cp '%s/tests/golden/layouts.txt' . && WINEDEBUG=-all wine dll/user.exe layouts.txt",
             dist, hosts, root);
    }
}

#define CASE(name) { #name, case_##name }
static const struct {
    const char *name;
    void (*test)(void);
} cases[] = {
    CASE(header_c), CASE(header_cpp), CASE(one_file), CASE(dist), CASE(switches), CASE(two_files), CASE(static),
    CASE(macros), CASE(symbols), CASE(size), CASE(fast_math), CASE(threads), CASE(windows), CASE(subproject),
    CASE(install), CASE(languages), CASE(optimizers), CASE(by_hand), CASE(unaligned), CASE(wine), CASE(plain),
    CASE(wine_clang), CASE(msvc), CASE(msvc_run), CASE(bits), CASE(aarch64), CASE(avx2_only), CASE(examples),
    CASE(memory), CASE(save), CASE(library),
};

int main(int argc, char **argv)
{
    char make[2600];
    if (argc != 4) {
        fputs("usage: hosts CASE SOURCE_ROOT BUILD_ROOT\n", stderr);
        return 2;
    }
    snprintf(root, sizeof root, "%s", argv[2]);
    snprintf(build, sizeof build, "%s", argv[3]);
    snprintf(hosts, sizeof hosts, "%s/tests/hosts", root);
    snprintf(dist, sizeof dist, "%s/dist", build);
    snprintf(tree, sizeof tree, "-I'%s' -I'%s'", root, build);
    snprintf(whole, sizeof whole, "-DTEST_WHOLE -Wno-unused-function '-DEXL2_GOLDEN_DIR=\"%s/tests/golden\"' "
             "-I'%s/tests' -I'%s/tests'", root, build, root);
    snprintf(work, sizeof work, "%s/hosts/%s", build, argv[1]);
    snprintf(make, sizeof make, "rm -rf '%s' && mkdir -p '%s'", work, work);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            CHECK(system(make) == 0);
            cases[i].test();
            return check_done();
        }
    }
    printf("no case %s\n", argv[1]);
    return 1;
}
