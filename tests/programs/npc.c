/* npc.c: the program npc from outside: its sentences when something is missing, and on the real model one evening
   twice, with another budget and another number of threads, which must be told in the same words.
   takes: npc CASE PROGRAM FOLDER: "sentences" or "script", the program, a folder to write to.
   gives: exit code 0, 1 or 77 (no real model).
   owns:  FOLDER.
   next:  ../hosts/hosts.c */
#define _POSIX_C_SOURCE 200809L
#include "../../demo/common/json_in.c"
#include "../../demo/common/memory.c"
#include "../check.h"

#include <stdarg.h>
#include <sys/wait.h>

static char program[1024], folder[1024];

/* Runs npc with these flags; stdout and stderr go to FOLDER/out and FOLDER/err. Its exit code. */
static int run(const char *format, ...)
{
    char flags[4096], command[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(flags, sizeof flags, format, args);
    va_end(args);
    snprintf(command, sizeof command, "'%s' %s </dev/null >'%s/out' 2>'%s/err'", program, flags, folder, folder);
    printf("+ npc %s\n", flags);
    fflush(stdout);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *read_back(const char *name)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return check_read(path, NULL);
}

/* ---- sentences ---- */

static void check_sentence(int got, int wanted, const char *part)
{
    char *err = read_back("err");
    CHECK_INT(got, wanted);
    char *end = strchr(err, '\n');
    if (!CHECK(strstr(err, part) != NULL) || !CHECK(end && end[1] == 0)) {
        printf("stderr: %s\n", err);
    }
    free(err);
}

static void case_sentences(void)
{
    check_sentence(run("%s", ""), 1, "npc needs a model");
    check_sentence(run("--model '%s'", folder), 1, "npc needs a terminal");
    check_sentence(run("--model '%s' --script '%s/none.txt'", folder, folder), 1, "none.txt: No such file");
    check_sentence(run("--model '%s' --script /dev/null", folder), 1, "config.json");
    check_sentence(run("--model '%s' --script /dev/null --people '%s'", folder, folder), 1, "world.txt: No such file");
    check_sentence(run("--model"), 2, "--model");
    check_sentence(run("--cpu-us 0"), 2, "--cpu-us");
    CHECK_INT(run("--help"), 0);
}

/* ---- one evening, twice ---- */

static double number(const json_value *report, const char *object, const char *key)
{
    const json_value *value = json_member(object ? json_member(report, object) : report, key);
    return CHECK(value && value->kind == JSON_NUMBER) ? value->number : -1;
}

static const char *text(const json_value *object, const char *key)
{
    const json_value *value = json_member(object, key);
    return value && value->kind == JSON_TEXT ? value->text : NULL;
}

static json_value *evening(const char *name, uint32_t cpu_us, uint32_t threads)
{
    char file[64], to[1100];
    const char *error = NULL;
    snprintf(file, sizeof file, "%s.json", name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    CHECK_INT(run("--model '%s' --script demo/npc/script.txt --json '%s.json' --png '%s.png' --save '%s.txt' "
                  "--cpu-us %u --threads %u --seed 7", check_model(), to, to, to, cpu_us, threads), 0);
    char *json = read_back(file), *err = read_back("err");
    CHECK_TEXT(err, "");
    json_value *report = json_read(json, strlen(json), &error);
    if (!report) {
        printf("%s: %s\n", file, error);
        exit(1);
    }
    free(json);
    free(err);
    return report;
}

/* Every line has words, every name speaks, all three answer the shout, one line is cut by /leave. */
static void check_lines(const json_value *report)
{
    const json_value *lines = json_member(report, "lines");
    uint32_t answers = 0, cut = 0, after_shout = 0;
    bool shouted = false;
    CHECK(lines && lines->kind == JSON_ARRAY && lines->child_count > 16);
    for (const json_value *l = lines ? lines->child : NULL; l; l = l->next) {
        const char *to = text(l, "to"), *stop = text(l, "stop");
        CHECK(text(l, "text") && text(l, "text")[0]);
        if (to) {
            shouted = strcmp(to, "all") == 0;
            continue;
        }
        answers++;
        after_shout += shouted;
        cut += stop && strcmp(stop, "cancelled") == 0;
        CHECK(text(l, "npc") != NULL && number(l, NULL, "tokens") > 0 && number(l, NULL, "ttft_ms") > 0);
        CHECK(number(l, NULL, "reused_tokens") > 100);
    }
    CHECK(answers >= 10);
    CHECK_INT(after_shout, 3);
    CHECK_INT(cut, 1);
}

static void check_report(const json_value *report, uint32_t cpu_us, uint32_t threads)
{
    CHECK_INT(number(report, NULL, "seed"), 7);
    CHECK_INT(number(report, NULL, "cpu_us"), cpu_us);
    CHECK_INT(number(report, NULL, "threads"), threads);
    CHECK_INT(number(report, NULL, "allocations_since_load"), 0);
    CHECK(number(report, "frames", "count") > 60);
    CHECK(number(report, "frames", "p50_ms") > 0);
    CHECK(number(report, "frames", "max_ms") >= number(report, "frames", "p99_ms"));
    CHECK(number(report, "frames", "over_budget") >= 0);
    CHECK(number(report, NULL, "tokens_per_s") > 0 && number(report, "ttft_ms", "median") > 0);
    CHECK(number(report, "pages", "shared") > 0 && number(report, "pages", "used") > number(report, "pages", "shared"));
    CHECK(number(report, "prompt", "reused") > number(report, "prompt", "computed"));
    check_lines(report);
}

static void case_script(void)
{
    json_value *a = evening("a", 8000, 2), *b = evening("b", 40000, 1);
    check_report(a, 8000, 2);
    check_report(b, 40000, 1);
    CHECK(text(a, "transcript_hash") && strlen(text(a, "transcript_hash")) == 16);
    CHECK_TEXT(text(a, "transcript_hash"), text(b, "transcript_hash"));
    char *said_a = read_back("a.txt"), *said_b = read_back("b.txt");
    CHECK_TEXT(said_a, said_b);
    CHECK(strstr(said_a, "You, to all: ") && strstr(said_a, "\nOsric: "));
    free(said_a);
    free(said_b);
    json_free(a);
    json_free(b);
}

int main(int argc, char **argv)
{
    char make[2200];
    if (argc != 4) {
        fputs("usage: npc CASE PROGRAM FOLDER\n", stderr);
        return 2;
    }
    snprintf(program, sizeof program, "%s", argv[2]);
    snprintf(folder, sizeof folder, "%s", argv[3]);
    snprintf(make, sizeof make, "rm -rf '%s' && mkdir -p '%s'", folder, folder);
    CHECK(system(make) == 0);
    if (strcmp(argv[1], "sentences") == 0) {
        case_sentences();
    } else {
        case_script();
    }
    return check_done();
}
