/* npc.c: the program npc from outside: its messages when something is missing; on the real model the same evening
   twice, with different budgets and numbers of threads, which must give the same words; many turns, each of which the
   game must allow; answers to npc_questions.txt, whose questions the game was not written for, by the most likely
   tokens; and to npc_accusations.txt, which must not make anybody admit or deny the theft, with five seeds.
   Evenings that are saved in the middle of a sentence, and go on in another process.
   takes: npc CASE PROGRAM FOLDER: "sentences", "script", "saves", "turns", "questions" or "accusations", the program,
          a folder to write to.
   gives: exit code 0, 1 or 77 (no real model).
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

/* ---- messages ---- */

static void case_sentences(void)
{
    program_sentence(program_run("%s", ""), 1, "npc needs a model");
    program_sentence(program_run("--model '%s'", folder), 1, "npc needs a terminal");
    program_sentence(program_run("--model '%s' --script '%s/none.txt'", folder, folder), 1, "none.txt: No such file");
    program_sentence(program_run("--model '%s' --script /dev/null", folder), 1, "config.json");
    program_sentence(program_run("--model '%s' --script /dev/null --people '%s'", folder, folder), 1,
                     "world.txt: No such file");
    program_sentence(program_run("--model '%s' --turns 1 --json '%s/none/f'", folder, folder), 1,
                     "/none/f cannot be written: No such file");
    program_sentence(program_run("--model '%s' --turns 1 --png '%s'", folder, folder), 1, "cannot be written: Is a");
    program_sentence(program_run("--model '%s' --turns 1 --threads 65", folder), 1, "--threads must be at most 64");
    program_sentence(program_run("--model"), 2, "--model");
    program_sentence(program_run("--cpu-us 0"), 2, "--cpu-us");
    program_sentence(program_run("--gpu-us 0"), 2, "--gpu-us");
    program_sentence(program_run("--temperature -1"), 2, "--temperature");
    program_sentence(program_run("--context 0"), 2, "--context");
    program_sentence(program_run("--patrons 49"), 2, "--patrons must be at most 48");
    program_sentence(program_run("--patrons -1"), 2, "--patrons must be a whole number");
    program_sentence(program_run("--turns 3 --script f"), 2, "give at most one of --script and --turns");
    CHECK_INT(program_run("--help"), 0);
}

/* Ctrl-C before anything is loaded: the program ends with code 1, and is not killed. It waits in opening world.txt,
   which is a pipe here; a pipe that a reader has opened can be opened to write. */
static void case_interrupt(void)
{
    char path[1200];
    int status = 0;
    snprintf(path, sizeof path, "%s/world.txt", folder);
    CHECK_INT(mkfifo(path, 0600), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGINT, SIG_DFL);
        execl(program, program, "--model", folder, "--turns", "1", "--people", folder, (char *)NULL);
        _exit(127);
    }
    int to = open(path, O_WRONLY);
    CHECK(child > 0 && to >= 0);
    CHECK_INT(kill(child, SIGINT), 0);
    close(to);
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    CHECK_INT(unlink(path), 0);
}

/* ---- one evening, twice: the second time by the worker, with people at the other tables ---- */

static json_value *evening(const char *name, uint32_t cpu_us, uint32_t gpu_us, uint32_t threads, const char *more)
{
    char file[64], to[1100];
    const char *error = NULL;
    snprintf(file, sizeof file, "%s.json", name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    int code = program_run("--model '%s' --script demo/npc/script.txt --json '%s.json' --png '%s.png' "
                           "--transcript '%s.txt' --cpu-us %u --gpu-us %u --threads %u --seed 7 %s", check_model(), to,
                           to, to, cpu_us, gpu_us, threads, more);
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

/* The actions are possible ones, with things that the character holds. A line that was cut has no action. */
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

/* Every line has words, every character speaks, all three answer the shout, one line is cut by /leave. */
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
    CHECK(program_number(pages, "cached") > 0 && program_number(pages, "total") >= program_number(pages, "used"));
    CHECK(program_number(report, "tokens_per_pass") > 1);
    const json_value *memory = json_member(report, "memory");
    CHECK(program_number(memory, "host_bytes") > 0 && program_number(memory, "planned_bytes") > 0);
    CHECK(program_number(memory, "host_peak") >= program_number(memory, "host_bytes"));
    CHECK(program_number(memory, "device_peak") >= program_number(memory, "device_bytes"));
    CHECK(program_number(prompt, "reused") > program_number(prompt, "computed"));
    check_lines(report);
}

static void case_script(void)
{
    json_value *a = evening("a", 8000, 300, 2, ""), *b = evening("b", 40000, 9000, 1, "--worker --patrons 12");
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

/* ---- evenings that are saved and go on ---- */

/* Plays the script, and gives what was said. */
static char *played(const char *name, const char *script, int code, const char *more)
{
    char file[64];
    snprintf(file, sizeof file, "%s.script", name);
    program_write(file, script);
    CHECK_INT(program_run("--model '%s' --script '%s/%s' --transcript '%s/%s.txt' --json '%s/%s.json' --seed 5 "
                          "--cpu-us 100000 --threads 2 %s", check_model(), folder, file, folder, name, folder, name,
                          more), code);
    snprintf(file, sizeof file, "%s.txt", name);
    return program_read(file);
}

static void same_evening(const char *name, const char *said, char *again)
{
    printf("%s\n", name);
    CHECK_TEXT(again, said);
    free(again);
}

static uint64_t sum_of(const unsigned char *data, size_t bytes)
{
    uint64_t sum = 0xCBF29CE484222325u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ data[i]) * 0x100000001B3u;
    }
    return sum;
}

#define DAMAGED 240
#define SAVED_HEAD 20 /* magic, version, hash of the people */

/* Writes copies of the saved evening, each cut or with a byte changed. Most have a sum that fits again, so that the
   values behind it are read. Returns the script that loads them all. */
static char *damaged_copies(const char *from)
{
    size_t bytes;
    char path[1100], *script = calloc(DAMAGED + 2, 1200);
    snprintf(path, sizeof path, "%s/%s", folder, from);
    char *good = check_read(path, &bytes), *copy = malloc(bytes);
    for (uint32_t i = 0; i < DAMAGED; i++) {
        size_t kept = i % 8 == 7 ? bytes * i / DAMAGED : bytes, at = bytes - 9 - i * (bytes - 9) / DAMAGED / 2;
        memcpy(copy, good, bytes);
        if (i < SAVED_HEAD + 4) {
            at = i;
        }
        copy[at] = (char)(i % 3 == 0 ? 0xFF : i % 3 == 1 ? copy[at] + 1 : copy[at] ^ 0x80);
        if (kept > 8 && i % 16 != 3) {
            uint64_t sum = sum_of((unsigned char *)copy, kept - 8);
            memcpy(copy + kept - 8, &sum, 8);
        }
        snprintf(path, sizeof path, "%s/damaged%u", folder, i);
        FILE *file = fopen(path, "wb");
        CHECK(file && fwrite(copy, 1, kept, file) == kept);
        fclose(file);
        sprintf(script + strlen(script), "/load %s\n", path);
    }
    free(good);
    free(copy);
    return script;
}

/* The words are the same whether the evening goes on at once or in another process: saved in mid-sentence (one), before
   the first word (two), in silence (three); with other budgets, and by the worker. A damaged file changes nothing. */
static void case_saves(void)
{
    static const char one[] = "pike, How much do you owe Marla?\nhear 4\n", two[] = "osric, Did you leave the door?\n";
    static const char three[] = "wait\n";
    static const char rest[] = "marla, Give me a soup.\nwait\nmarla, Who are you?\nwait\n/transcript\n";
    char script[8192];
    snprintf(script, sizeof script, "marla, Can I buy an ale?\nwait\n%s/save %s/one\nwait\n%s/save %s/two\nwait\n"
             "/save %s/three\n%s", one, folder, two, folder, folder, rest);
    char *said = played("said", script, 0, "");
    CHECK(strstr(said, "\nPike: ") && strstr(said, "gives ale to Stranger") && strstr(said, "\nOsric: "));
    snprintf(script, sizeof script, "/load %s/one\nwait\n%s/save %s/two\n%s%s", folder, two, folder, three, rest);
    same_evening("one", said, played("again", script, 0, "--cpu-us 3000 --threads 1"));
    snprintf(script, sizeof script, "/load %s/two\nwait\n%s", folder, rest);
    same_evening("two", said, played("again", script, 0, "--worker --temperature 1.5 --seed 1"));
    snprintf(script, sizeof script, "marla, What happened here tonight?\nhear 3\n/load %s/three\n%s", folder, rest);
    same_evening("three", said, played("again", script, 0, ""));

    char *loads = damaged_copies("one");
    snprintf(script, sizeof script, "/load %s/one\nwait\n%s/save %s/two\n%s%s", folder, two, folder, three, rest);
    char *all = calloc(strlen(loads) + strlen(script) + 1, 1);
    sprintf(all, "%s%s", loads, script);
    same_evening("damaged", said, played("again", all, 1, "--worker"));
    program_sentence(1, 1, "a file could not be written or read");
    char *out = program_read("out");
    CHECK(strstr(out, "/damaged1 is no saved evening\n") && strstr(out, "its sum is not that of its bytes\n"));
    CHECK(strstr(out, "but this program reads 3\n") && strstr(out, "with other people"));
    CHECK(strstr(out, "its values do not fit together\n"));
    free(out);
    /* A load that fails in mid-sentence: the speaker goes on. */
    snprintf(script, sizeof script, "marla, Can I buy an ale?\nwait\n%s/load %s/damaged1\nwait\n%swait\n%s", one,
             folder, two, rest);
    same_evening("failed load", said, played("again", script, 1, ""));
    free(all);
    free(loads);
    free(said);
}

#define TURNS 17 /* every question of the visitor, once each */

/* A context that is too short for the world. */
static void case_context(void)
{
    program_sentence(program_run("--model '%s' --script /dev/null --context 100", check_model()), 1, "holds 100");
}

/* A visitor who asks for things that do not exist. */
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

/* ---- questions that the game was not written for ---- */

#define PEOPLE 3

static const char *const people[PEOPLE][4] = { { "Marla", "marla", "landlady", "demo/npc/marla.txt" },
                                               { "Osric", "osric", "guard", "demo/npc/osric.txt" },
                                               { "Pike", "pike", "smuggler", "demo/npc/pike.txt" } };

/* "I am Marla", "my name is Marla", "I'm the landlady", "call me a landlady", in any case. */
static bool says_to_be(const char *text, const char *somebody)
{
    static const char *const claims[] = { "i am", "i'm", "my name is", "call me" };
    static const char *const articles[] = { " ", " the ", " a " };
    char small[512], claim[64];
    size_t bytes = 0;
    bool found = false;
    for (; text[bytes] && bytes + 1 < sizeof small; bytes++) {
        small[bytes] = (char)tolower((unsigned char)text[bytes]);
    }
    small[bytes] = 0;
    for (size_t i = 0; i < 4 * 3; i++) {
        snprintf(claim, sizeof claim, "%s%s%s", claims[i / 3], articles[i % 3], somebody);
        found = found || strstr(small, claim) != NULL;
    }
    return found;
}

static bool mixes_up(const char *npc, const char *text)
{
    bool mixed = false;
    for (size_t i = 0; i < PEOPLE; i++) {
        mixed = mixed || (strcmp(npc, people[i][0]) != 0
                          && (says_to_be(text, people[i][1]) || says_to_be(text, people[i][2])));
    }
    return mixed;
}

/* Some character file contains exactly these words. */
static bool is_written(const char *text)
{
    bool found = false;
    for (size_t i = 0; i < PEOPLE; i++) {
        char *file = check_read(people[i][3], NULL);
        found = found || strstr(file, text) != NULL;
        free(file);
    }
    return found;
}

#define PROMPT_MOST 80 /* tokens of a turn's prompt */
#define QUESTIONS 40
#define DISTINCT_LEAST 20 /* a person does not come back to a line before six others */
#define RESTS 5           /* evasions that are not said again */

/* A small model answers what no example fits by the evasions of a file, which do not come again soon. */
static void check_answers(const json_value *report)
{
    const json_value *said[QUESTIONS];
    uint32_t count = 0, distinct = 0, written = 0;
    for (const json_value *l = json_member(report, "lines")->child; l && count < QUESTIONS; l = l->next) {
        if (!program_text(l, "to")) {
            said[count++] = l;
        }
    }
    CHECK_INT(count, QUESTIONS);
    for (uint32_t i = 0; i < count; i++) {
        const char *text = program_text(said[i], "text"), *npc = program_text(said[i], "npc");
        bool known = false, again = false;
        for (uint32_t j = 0; j < i; j++) {
            bool same = strcmp(program_text(said[j], "text"), text) == 0;
            known = known || same;
            again = again || (same && j + RESTS >= i && strcmp(program_text(said[j], "npc"), npc) == 0);
        }
        check_turn(said[i]);
        distinct += !known;
        written += is_written(text);
        if (!CHECK(!again) || !CHECK(!mixes_up(npc, text))) {
            printf("%s: %s\n", npc, text);
        }
        CHECK(program_number(said[i], "prompt_tokens") <= PROMPT_MOST);
    }
    printf("%u answers, %u distinct, %u that a file has word for word\n", count, distinct, written);
    CHECK(distinct >= DISTINCT_LEAST);
}

static void case_questions(void)
{
    CHECK(mixes_up("Pike", "Well, I am Marla.") && mixes_up("Marla", "I'm a smuggler!"));
    CHECK(!mixes_up("Pike", "I am a smuggler, and I know Marla."));
    CHECK(is_written("I am Marla, the landlady.") && !is_written("I am Marla, the guard."));
    CHECK_INT(program_run("--model '%s' --script tests/programs/npc_questions.txt --temperature 0 --threads 2 "
                          "--cpu-us 100000 --json '%s/questions.json'", check_model(), folder), 0);
    char *text = program_read("questions.json");
    json_value *report = program_parse(text, strlen(text));
    CHECK_INT(program_number(report, "turns"), QUESTIONS);
    CHECK_INT(program_number(report, "invalid_turns"), 0);
    CHECK_INT(program_number(report, "allocations_since_load"), 0);
    check_answers(report);
    json_free(report);
    free(text);
}

/* ---- accusations ---- */

#define ACCUSATIONS 69
#define SLIPS_MOST 2 /* answers that say what they must not */

/* An answer in the model's own words that admits or denies the theft, or forgets who speaks. What a file has word for
   word is the author's. */
static bool slips(const char *text)
{
    static const char *const words[] = { "stole", "steal", "thief", "theft", "took", "take it", "not take", "taken",
                                         "guilty", "confess", "innocent", "I did it", "did not do", "didn't do",
                                         "it was me", "It was me", "not me", "the key", " AI", "language model",
                                         "computer", "I am a ship", "I was a ship", "robot", "machine" };
    bool found = false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        found = found || strstr(text, words[i]);
    }
    return found && !is_written(text);
}

static void check_accusations(uint32_t seed)
{
    uint32_t count = 0, slipped = 0;
    CHECK_INT(program_run("--model '%s' --script tests/programs/npc_accusations.txt --seed %u --threads 2 "
                          "--cpu-us 100000 --json '%s/accusations.json'", check_model(), seed, folder), 0);
    char *text = program_read("accusations.json");
    json_value *report = program_parse(text, strlen(text));
    for (const json_value *l = json_member(report, "lines")->child; l; l = l->next) {
        if (!program_text(l, "to")) {
            bool slip = slips(program_text(l, "text"));
            count++;
            slipped += slip;
            if (slip) {
                printf("seed %u, %s: %s\n", seed, program_text(l, "npc"), program_text(l, "text"));
            }
        }
    }
    CHECK_INT(count, ACCUSATIONS);
    CHECK(slipped <= SLIPS_MOST);
    json_free(report);
    free(text);
}

static void case_accusations(void)
{
    CHECK(slips("I just took it for a moment.") && slips("It was me.") && slips("As an AI, I cannot."));
    CHECK(!slips("Not me, love. Ask the man who owes money to everybody.") && !slips("Who knows?"));
    for (uint32_t seed = 1; seed <= 5; seed++) {
        check_accusations(seed);
    }
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
        case_interrupt();
    } else if (strcmp(argv[1], "script") == 0) {
        case_script();
    } else if (strcmp(argv[1], "saves") == 0) {
        case_saves();
    } else if (strcmp(argv[1], "questions") == 0) {
        case_questions();
    } else if (strcmp(argv[1], "accusations") == 0) {
        case_accusations();
    } else {
        case_context();
        case_turns();
    }
    return check_done();
}
