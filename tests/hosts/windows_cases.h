/* windows_cases.h: applications for Windows: by mingw, under wine, and as MSVC would compile them.
   takes: rig.h; mingw, clang and wine in PATH.
   gives: case_windows, case_wine, case_wine_clang, case_msvc, case_msvc_run. */
#ifndef HOSTS_WINDOWS_CASES_H
#define HOSTS_WINDOWS_CASES_H

#include "rig.h"

static void case_windows(void)
{
    const char *cc = "x86_64-w64-mingw32-gcc";
    need(cc);
    MUST("%s -std=c11 -O2 %s -I'%s' '%s/one_file.c' -o one_file.exe", cc, WARNINGS, dist, hosts);
    MUST("%s -std=c11 -O0 %s -DEXL2_CONVERT -c -I'%s' '%s/implementation.c' -o convert.o", cc, WARNINGS, dist, hosts);
    MUST("echo '#include <windows.h>' > both.c && cat '%s/implementation.c' >> both.c && %s -std=c11 -O0 -c -I'%s' "
         "both.c -o both.o",
         hosts, cc, dist);
    /* the server's sockets */
    MUST("%s -std=c11 -O0 -Wall -Wextra -Werror '%s/tests/serve/http_requests.c' '%s'/demo/serve/http*.c "
         "'%s/demo/serve/net.c' '%s/demo/common/clock.c' -o http.exe -lws2_32",
         cc, root, root, root, root);
}

/* ---- Windows, by wine ---- */

static const char mingw[] = "x86_64-w64-mingw32-gcc -std=c11 -D_FILE_OFFSET_BITS=64";

static void need_wine(void)
{
    char prefix[1200];
    need("x86_64-w64-mingw32-gcc");
    need("wine");
    snprintf(prefix, sizeof prefix, "%s/wine", build);
    setenv("WINEPREFIX", prefix, 1);
    setenv("WINEDEBUG", "-all", 1);
    setenv("DISPLAY", "", 1);
    setenv("LC_ALL", "C.UTF-8", 1); /* arguments are UTF-8 */
    if (run("wine cmd /c exit 2>/dev/null") != 0) {
        check_skip("wine does not start");
    }
}

/* The program `windows` under wine and ours, both with these arguments, print the same but for line ends. With npc the
   figures at the end differ, and what it saves as said.txt must have the same bytes. */
static void same_text(const char *windows, const char *ours, const char *arguments)
{
    MUST("rm -f said.txt && touch said.txt && wine %s %s >windows.txt && mv said.txt windows_said.txt && "
         "touch said.txt && '%s/demo/%s' %s >here.txt && cmp said.txt windows_said.txt",
         windows, arguments, build, ours, arguments);
    MUST("test -s here.txt && sed '/^The Drowned Lantern closes/,$d' here.txt >wanted.txt && "
         "tr -d '\\r' <windows.txt | sed '/^The Drowned Lantern closes/,$d' | cmp - wanted.txt");
}

/* engine.o, and the programs exl2, npc and room; frame and hello compile. */
static void wine_programs(void)
{
    MUST("%s -O1 %s -DEXL2_CONVERT -c '%s/demo/common/exl2.c' -o engine.o", mingw, tree, root);
    MUST("sources=$(ls '%s'/demo/cli/*.c '%s'/demo/serve/*.c '%s'/demo/common/*.c | grep -v common/exl2.c) && "
         "%s -O0 %s %s -DEXL2_CONVERT '-I%s/demo' '-I%s/demo/common' $sources engine.o -o exl2.exe -lshell32 -lws2_32",
         root, root, root, mingw, WARNINGS, tree, build, root);
    MUST("%s -O0 %s %s '%s/demo/frame.c' '%s'/demo/render/*.c $(ls '%s'/demo/common/*.c | grep -v common/exl2.c) "
         "engine.o -o frame.exe -lshell32 && %s -O0 %s %s '%s/demo/hello.c' -fsyntax-only",
         mingw, WARNINGS, tree, root, root, root, mingw, WARNINGS, tree, root);
    MUST("%s -O0 %s %s '-DNPC_PEOPLE=\"%s/demo/npc\"' '%s'/demo/npc.c '%s'/demo/npc/*.c "
         "$(ls '%s'/demo/common/*.c | grep -v 'common/exl2.c\\|common/wrap.c') engine.o -o npc.exe -lshell32",
         mingw, WARNINGS, tree, root, root, root, root);
    MUST("%s -O0 %s %s '%s'/demo/room.c '%s'/demo/room/*.c '%s'/demo/render/library.c '%s'/demo/npc/*.c "
         "$(ls '%s'/demo/common/*.c | grep -v 'common/exl2.c\\|common/wrap.c') engine.o -o room.exe -lshell32 -lgdi32",
         mingw, WARNINGS, tree, root, root, root, root, root);
}

/* Tests under wine: each is a program of its own, with an engine in it (hosts/reserve.c) or the one above. */
static void wine_tests(void)
{
    static const char *const tests[] = {
        "unit/cpu_path", "unit/json",   "unit/vocab",  "unit/words", "unit/bpe",         "unit/regex",    "unit/normal",
        "unit/encode",   "unit/stream", "unit/stops",  "unit/safetensors", "unit/cpu_simd", "unit/npc_parts",
        "engine/golden", "hosts/reserve",
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        bool engine = strcmp(tests[i], "engine/golden") == 0 || strcmp(tests[i], "unit/npc_parts") == 0;
        bool vectors = strcmp(tests[i], "unit/cpu_simd") == 0;
        MUST("%s %s %s %s '%s/tests/%s.c' %s -o test.exe && wine test.exe", mingw, vectors ? "-O2" : "-O0", tree,
             whole, root, tests[i], engine ? "engine.o" : "");
    }
    MUST("mkdir files && %s -O0 -Wall -Wextra -Wno-unused-function %s '%s/windows.c' engine.o -o windows.exe && "
         "wine windows.exe \"$PWD/files\" '%s/tests/golden/models/exl2-mixed'",
         mingw, tree, hosts, root);
}

#define KERNELS "kernels/f\xC3\xBCr \xE6\x97\xA5"

/* The driver and NVRTC are found by their names, compile, run, and are closed with nothing left over; the second start
   reads the kernels from their folder. */
static void wine_gpu(void)
{
    const char *generate = "wine gpu/exl2.exe generate --ids 1,5,9 --max 8 --greedy --backend cuda "
                           "--kernels '" KERNELS "'";
    MUST("mkdir gpu && cp exl2.exe gpu && %s -D_POSIX_C_SOURCE=200809L -O0 -Wall -Wextra %s %s -shared "
         "'%s/fake_library.c' $(ls '%s'/tests/device/fake_*.c | grep -v fake_engine) -o gpu/nvcuda.dll "
         "-Wl,-Bstatic -lpthread",
         mingw, tree, whole, hosts, root);
    MUST("! %s '%s/tests/golden/models/exl2-mixed' 2>log.txt && grep nvrtc64_130_0.dll log.txt", generate, root);
    MUST("cp gpu/nvcuda.dll gpu/nvrtc64_120_0.dll && wine gpu/exl2.exe info >log.txt 2>&1 && "
         "grep '^GPU 0 .*FakeForce 4090' log.txt");
    MUST("%s '%s/tests/golden/models/exl2-mixed' >text.txt 2>log.txt && grep '^0,0,0' text.txt && "
         "grep -c 'no launch, compiles, 0 left over, 0 bytes' log.txt && test $(ls '" KERNELS "' | wc -l) -gt 5 && "
         "grep -c 'launches, nothing compiled, 0 left over, 0 bytes' log.txt",
         generate, root);
    MUST("%s '%s/tests/golden/models/exl2-mixed' >text.txt 2>log.txt && grep '^0,0,0' text.txt && "
         "grep 'launches, nothing compiled, 0 left over, 0 bytes' log.txt && test $(wc -l <log.txt) = 1",
         generate, root);
}

/* Tests and programs built by mingw, under wine: the same checks, and the same bytes but for line ends. */
static void case_wine(void)
{
    const char *model = getenv("EXL2_TEST_MODEL");
    char arguments[2600];
    need_wine();
    wine_programs();
    wine_tests();
    wine_gpu();
    if (run("test -x '%s/demo/exl2'", build) != 0) {
        return; /* a build without the programs */
    }
    same_text("npc.exe", "npc", "--help");
    snprintf(arguments, sizeof arguments, "generate '%s/tests/golden/models/exl2-mixed' --ids 1,5,9 --max 16 --greedy "
             "--threads 2 --backend cpu", root);
    same_text("exl2.exe", "exl2", arguments);
    /* An empty folder whose name is not ASCII, and then a full one. */
    MUST("mkdir 'mod\xC3\xA8le \xE5\x86\x99' && cd mod* && "
         "wine ../exl2.exe synth \"$PWD\" --shape smollm2-135m --layers 1 --bpw 2.5 >/dev/null && test -s config.json");
    MUST("! wine exl2.exe synth 'mod\xC3\xA8le \xE5\x86\x99' --shape smollm2-135m 2>said.txt && "
         "grep 'is not an empty folder' said.txt && rm -r mod*");
    if (model) {
        snprintf(arguments, sizeof arguments, "generate '%s' --prompt 'Once upon a time' --max 16 --seed 3 --threads 2 "
                 "--backend cpu", model);
        same_text("exl2.exe", "exl2", arguments);
        MUST("printf 'marla, who took the key?\\nwait\\n/shout Listen, all of you!\\nwait\\n/transcript\\n' "
             ">script.txt");
        snprintf(arguments, sizeof arguments, "--model '%s' --script script.txt --transcript said.txt --cpu-us 200000 "
                 "--seed 7 --threads 2 --backend cpu", model);
        same_text("npc.exe", "npc", arguments);
        MUST("grep '^Pike: ' said.txt");
    }
}

/* clang for mingw, with the libraries of gcc. */
static void case_wine_clang(void)
{
    char arguments[1400];
    const char *clang = "clang --target=x86_64-w64-mingw32 -std=c11 -D_FILE_OFFSET_BITS=64 "
                        "-L$(dirname $(x86_64-w64-mingw32-gcc -print-libgcc-file-name))";
    need("clang");
    need_wine();
    MUST("%s -O2 %s %s '%s/tests/unit/cpu_simd.c' -o test.exe && wine test.exe", clang, tree, whole, root);
    MUST("%s -O0 %s %s -DEXL2_CONVERT '-I%s/demo' '-I%s/demo/common' '%s'/demo/cli/*.c '%s'/demo/serve/*.c "
         "'%s'/demo/common/*.c -o exl2.exe -lshell32 -lws2_32",
         clang, WARNINGS, tree, build, root, root, root, root);
    if (run("test -x '%s/demo/exl2'", build) == 0) {
        snprintf(arguments, sizeof arguments, "generate '%s/tests/golden/models/exl2-mixed' --ids 1,5,9 --max 16 "
                 "--greedy --threads 2 --backend cpu", root);
        same_text("exl2.exe", "exl2", arguments);
    }
}

/* ---- MSVC, by clang ---- */

#define CLANG_MSVC                                                                                                    \
    "clang --target=%s-pc-windows-msvc -fms-compatibility -fms-compatibility-version=19.29 -std=c11 -nostdlibinc "     \
    "-isystem '%s/msvc' -I'%s' -Wall -Wextra -Wpedantic -Wvla -Wconditional-uninitialized "                            \
    "-Wno-language-extension-token -Wno-unknown-pragmas -Werror %s '%s/implementation.c' %s"

/* Parses the single header for Windows by clang; `check` continues the command. clang does not have MSVC's pragma
   fp_contract. */
static void parse_msvc(const char *cpu, const char *options, const char *check)
{
    MUST(CLANG_MSVC, cpu, hosts, dist, options, hosts, check);
}

static void need_clang_for_msvc(void)
{
    need("clang");
    if (run("echo 'int x;' | clang --target=x86_64-pc-windows-msvc -fsyntax-only -x c - 2>/dev/null") != 0) {
        check_skip("this clang cannot compile for x86_64-pc-windows-msvc");
    }
}

/* MSVC is not here, so clang parses the header as clang-cl does, and then as MSVC would: without the name __clang__ all
   branches for MSVC are chosen. The folder msvc has as much of the system's headers as exl2.h needs; its vectors are
   those of clang. What clang accepts and MSVC rejects is looked for: words of GNU C; functions that /sdl rejects, which
   that folder declares as deprecated; pointers that may not be set; a minus before an unsigned number; strings of more
   than 4,095 bytes (by -Wpedantic). */
static void case_msvc(void)
{
    static const char *const cpus[] = { "x86_64", "aarch64" };
    need_clang_for_msvc();
    for (size_t i = 0; i < 2; i++) {
        parse_msvc(cpus[i], "-fsyntax-only", "");
        parse_msvc(cpus[i], "-fsyntax-only -DEXL2_CONVERT", "");
        parse_msvc(cpus[i], "-fsyntax-only -DEXL2_CONVERT -U__clang__", "");
        parse_msvc(cpus[i], "-fsyntax-only -DEXL2_STATIC -Wno-unused-function -DEXL2_NO_SIMD -U__clang__", "");
        parse_msvc(cpus[i], "-E -DEXL2_CONVERT -U__clang__",
                   "| awk '/^# / { ours = $3 ~ /exl2[.]h.$/ } ours' | sed -E 's/\"([^\"\\\\]|\\\\.)*\"//g; "
                   "s/__builtin_(va|offsetof|ia32)//g' >seen.c && test $(wc -l <seen.c) -gt 20000 && "
                   "grep -q _InterlockedExchange seen.c && ! grep -nE "
                   "'\\<__(attribute|asm|extension__|typeof|int128|builtin|atomic)|\\<(asm|typeof)\\>' seen.c");
    }
    parse_msvc("x86_64", "-fsyntax-only -DEXL2_CONVERT -U__clang__ -Xclang -ast-dump -fno-color-diagnostics",
               ">tree.txt && grep -q \"UnaryOperator.* prefix '-'\" tree.txt && ! grep -E "
               "\"UnaryOperator.*'(uint[0-9]+_t|size_t|unsigned [a-z ]+)'(:'[a-z ]+')? prefix '-'\" tree.txt");
}

/* The goldens with the engine compiled as clang-cl and as MSVC would see it, linked by mingw. MSVC needs no option for
   intrinsics, but clang does, and may then use AVX-512 anywhere. So that build runs only on a CPU with AVX-512. */
static void case_msvc_run(void)
{
    static const char *const options[] = {
        "-O0 -c -o engine.o",
        "-O0 -c -o engine.o -U__clang__ -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512vbmi "
        "-mavx512vbmi2 -mavx2 -mfma -mf16c -mxsave",
    };
    need_clang_for_msvc();
    need_wine();
    bool avx512 = cpu_has("avx512f avx512bw avx512dq avx512vl avx512_vnni avx512vbmi avx512_vbmi2");
    for (size_t i = 0; i < 2; i++) {
        parse_msvc("x86_64", options[i], "");
        MUST("%s -O0 %s %s '%s/msvc/crt.c' '%s/tests/engine/golden.c' engine.o -o golden.exe "
             "-Wl,--defsym=__chkstk=___chkstk_ms",
             mingw, tree, whole, hosts, root);
        if (i == 0 || avx512) {
            MUST("wine golden.exe");
        } else {
            printf("MSVC's branches were compiled and linked, but not run: this CPU has no AVX-512\n");
        }
    }
}

#endif
