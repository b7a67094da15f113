/* npc.c: the program npc from outside: its sentences when something is missing; on the real model one evening twice,
   with other budgets and another number of threads, which must be told in the same words; and many turns, each of which
   must be one that the game allows.
   takes: npc CASE PROGRAM FOLDER: "sentences", "script" or "turns", the program, a folder to write to.
   gives: exit code 0, 1 or 77 (no real model).
   owns:  FOLDER.
   next:  ../hosts/hosts.c */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

/* ---- sentences ---- */

static void case_sentences(void)
{
    program_sentence(program_run("%s", ""), 1, "npc needs a model");
    program_sentence(program_run("--model '%s'", folder), 1, "npc needs a terminal");
    program_sentence(program_run("--model '%s' --script '%s/none.txt'", folder, folder), 1, "none.txt: No such file");
    program_sentence(program_run("--model '%s' --script /dev/null", folder), 1, "config.json");
    program_sentence(program_run("--model '%s' --script /dev/null --people '%s'", folder, folder), 1,
                     "world.txt: No such file");
    program_sentence(program_run("--model"), 2, "--model");
    program_sentence(program_run("--cpu-us 0"), 2, "--cpu-us");
    program_sentence(program_run("--gpu-us 0"), 2, "--gpu-us");
    program_sentence(program_run("--turns 3 --script f"), 2, "give one of --script and --turns");
    CHECK_INT(program_run("--help"), 0);
}

/* ---- one evening, twice ---- */

static json_value *evening(const char *name, uint32_t cpu_us, uint32_t gpu_us, uint32_t threads)
{
    char file[64], to[1100];
    const char *error = NULL;
    snprintf(file, sizeof file, "%s.json", name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    int code = program_run("--model '%s' --script demo/npc/script.txt --json '%s.json' --png '%s.png' "
                           "--save '%s.txt' --cpu-us %u --gpu-us %u --threads %u --seed 7", check_model(), to, to, to,
                           cpu_us, gpu_us, threads);
    CHECK_INT(code, 0);
    char *json = program_read(file), *err = program_read("err");
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

static bool is_one_of(const char *text, const char *words)
{
    const char *at = text ? strstr(words, text) : NULL;
    return at && strchr("|", at[strlen(text)]);
}

/* What was done is what people can do, with what they hold; a line that was cut has done nothing. */
static void check_turn(const json_value *line)
{
    const char *thing = program_text(line, "thing"), *text = program_text(line, "text");
    if (strcmp(program_text(line, "stop"), "cancelled") == 0) {
        CHECK(!program_text(line, "act") && !thing);
        return;
    }
    CHECK_TEXT(program_text(line, "stop"), "grammar");
    CHECK(is_one_of(program_text(line, "mood"), "calm|warm|wary|angry|sly|tired|"));
    CHECK(is_one_of(program_text(line, "act"), "none|nod|laugh|point|give|"));
    CHECK(is_one_of(program_text(line, "target"), "Stranger|Marla|Osric|Pike|"));
    CHECK(strcmp(program_text(line, "npc"), program_text(line, "target")) != 0);
    CHECK(!thing || is_one_of(thing, "ale|soup|whistle|bread|hook|penny|"));
    CHECK(fabs(program_number(line, "trust")) <= 2);
    CHECK(text && strchr(".!?", text[strlen(text) - 1]));
}

/* Every line has words, every name speaks, all three answer the shout, one line is cut by /leave. */
static void check_lines(const json_value *report)
{
    const json_value *lines = json_member(report, "lines");
    uint32_t answers = 0, cut = 0, after_shout = 0;
    bool shouted = false;
    CHECK(lines && lines->kind == JSON_ARRAY && lines->child_count > 16);
    for (const json_value *l = lines ? lines->child : NULL; l; l = l->next) {
        const char *to = program_text(l, "to"), *stop = program_text(l, "stop");
        CHECK(program_text(l, "text") && program_text(l, "text")[0]);
        if (to) {
            shouted = strcmp(to, "all") == 0;
            continue;
        }
        answers++;
        after_shout += shouted;
        cut += stop && strcmp(stop, "cancelled") == 0;
        CHECK(program_text(l, "npc") != NULL && program_number(l, "tokens") > 0 && program_number(l, "ttft_ms") > 0);
        CHECK(program_number(l, "reused_tokens") > 100);
        check_turn(l);
    }
    CHECK(answers >= 10);
    CHECK_INT(after_shout, 3);
    CHECK_INT(cut, 1);
}

static void check_report(const json_value *report, uint32_t cpu_us, uint32_t gpu_us, uint32_t threads)
{
    const json_value *frames = json_member(report, "frames"), *pages = json_member(report, "pages");
    const json_value *prompt = json_member(report, "prompt");
    CHECK_INT(program_number(report, "seed"), 7);
    CHECK_INT(program_number(report, "cpu_us"), cpu_us);
    CHECK_INT(program_number(report, "gpu_us"), gpu_us);
    CHECK(program_text(report, "backend") != NULL);
    CHECK_INT(program_number(report, "threads"), threads);
    CHECK_INT(program_number(report, "allocations_since_load"), 0);
    CHECK(program_number(report, "turns") >= 10);
    CHECK_INT(program_number(report, "invalid_turns"), 0);
    CHECK(program_number(frames, "count") > 60);
    CHECK(program_number(frames, "p50_ms") > 0);
    CHECK(program_number(frames, "max_ms") >= program_number(frames, "p99_ms"));
    CHECK(program_number(frames, "over_budget") >= 0);
    CHECK(program_number(report, "tokens_per_s") > 0 && program_number(json_member(report, "ttft_ms"), "median") > 0);
    CHECK(program_number(pages, "shared") > 0 && program_number(pages, "used") > program_number(pages, "shared"));
    CHECK(program_number(prompt, "reused") > program_number(prompt, "computed"));
    check_lines(report);
}

static void case_script(void)
{
    json_value *a = evening("a", 8000, 300, 2), *b = evening("b", 40000, 9000, 1);
    check_report(a, 8000, 300, 2);
    check_report(b, 40000, 9000, 1);
    CHECK(program_text(a, "transcript_hash") && strlen(program_text(a, "transcript_hash")) == 16);
    CHECK_TEXT(program_text(a, "transcript_hash"), program_text(b, "transcript_hash"));
    char *said_a = program_read("a.txt"), *said_b = program_read("b.txt");
    CHECK_TEXT(said_a, said_b);
    CHECK(strstr(said_a, "You, to all: ") && strstr(said_a, "\nOsric: "));
    free(said_a);
    free(said_b);
    json_free(a);
    json_free(b);
}

#define TURNS 17 /* every question that the visitor has, once */

/* A visitor who asks for what does not exist. */
static void case_turns(void)
{
    char *text;
    CHECK_INT(program_run("--model '%s' --turns %d --threads 2 --cpu-us 100000 --json '%s/turns.json'", check_model(),
                          TURNS, folder), 0);
    text = program_read("turns.json");
    json_value *report = program_parse(text, strlen(text));
    CHECK_INT(program_number(report, "turns"), TURNS);
    CHECK_INT(program_number(report, "invalid_turns"), 0);
    for (const json_value *l = json_member(report, "lines")->child; l; l = l->next) {
        if (!program_text(l, "to")) {
            check_turn(l);
        }
    }
    json_free(report);
    free(text);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: npc CASE PROGRAM FOLDER\n", stderr);
        return 2;
    }
    program_set(argv[2], argv[3]);
    if (strcmp(argv[1], "sentences") == 0) {
        case_sentences();
    } else if (strcmp(argv[1], "script") == 0) {
        case_script();
    } else {
        case_turns();
    }
    return check_done();
}
