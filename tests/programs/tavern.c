/* tavern.c: the program npc with a model of random weights, whose turns are quick: the same evening with other budgets,
   threads, caches, ways of sampling and people at the other tables has the same words; turns that run in circles; a
   talk that outgrows the context.
   takes: tavern NPC FOLDER EXL2 [short]: both programs, a folder to write to; short: fewer evenings.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "terminal.h"

static json_value *report_of(const char *model, const char *flags, char **text)
{
    int code = program_run("--model '%s/%s' --json '%s/report.json' %s", folder, model, folder, flags);
    char *err = program_read("err");
    CHECK_INT(code, 0);
    CHECK_TEXT(err, "");
    free(err);
    *text = program_read("report.json");
    return program_parse(*text, strlen(*text));
}

/* ---- the same words ---- */

static const char evening[] = "frames 12\nmarla, Good evening.\nwait\nframes 12\n"
                              "/shout Which of you has the key?\nwait\npike, Tell me about your friends.\n"
                              "hear 4\n/leave\nframes 12\nWhat now?\n"
                              "osric, Did you see the ship?\nhear 3\n";

/* One sentence: what the patrons' grammar allows. */
static bool is_murmur(const char *text)
{
    static const char allowed[] = " ',0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-";
    size_t bytes = strlen(text), letters = strspn(text + 1, allowed);
    return bytes >= 12 && bytes <= 94 && text[0] >= 'A' && text[0] <= 'Z' && letters == bytes - 2
        && strchr(".!?", text[bytes - 1]);
}

static void check_patrons(const json_value *report, uint32_t count)
{
    const json_value *patrons = json_member(report, "patrons");
    uint32_t murmurs = (uint32_t)program_number(patrons, "murmurs");
    const char *heard = program_text(patrons, "heard");
    CHECK_INT(program_number(patrons, "count"), count);
    CHECK(count ? program_number(patrons, "tokens") > 0 : program_number(patrons, "tokens") < 1);
    CHECK(murmurs ? is_murmur(heard) : heard && !heard[0]);
}

/* Every `step`-th of the runs below. */
static void same_words(size_t step)
{
    static const struct {
        const char *flags;
        uint32_t patrons;
        bool one_by_one;
    } runs[] = {
        { "--cpu-us 100000 --threads 2", 0, false },
        { "--cpu-us 2000 --threads 1", 0, false },
        { "--cpu-us 4000 --worker", 0, false },
        { "--cpu-us 100000 --one-by-one", 0, true },
        { "--cpu-us 100000 --patrons 12", 12, false },
        { "--cpu-us 2500 --threads 1 --patrons 12 --worker", 12, false },
        { "--cpu-us 8000 --patrons 48 --one-by-one", 48, true },
    };
    char script[8192], flags[4096], wanted[32] = "", *said = NULL, *text;
    snprintf(script, sizeof script, "%s/save %s/saved\nwait\n/transcript\n", evening, folder);
    program_write("evening", script);
    snprintf(script, sizeof script, "frames 9\n/load %s/saved\nwait\n/transcript\n", folder);
    program_write("second", script);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i += step) {
        snprintf(flags, sizeof flags, "--script '%s/evening' --transcript '%s/said' %s", folder, folder, runs[i].flags);
        json_value *report = report_of("model", flags, &text);
        const char *hash = program_text(report, "transcript_hash");
        if (i == 0) {
            snprintf(wanted, sizeof wanted, "%s", hash ? hash : "");
            said = program_read("said");
        }
        CHECK_INT(strlen(wanted), 16);
        CHECK_TEXT(hash, wanted);
        CHECK_INT(program_number(report, "invalid_turns"), 0);
        CHECK_INT(program_number(report, "loops"), 0);
        CHECK_INT(program_number(report, "allocations_since_load"), 0);
        CHECK((program_number(report, "tokens_per_pass") > 1.1) == !runs[i].one_by_one);
        check_patrons(report, runs[i].patrons);
        json_free(report);
        free(text);
    }
    /* The last run's evening goes on from the middle of Osric's sentence. */
    snprintf(flags, sizeof flags, "--script '%s/second' --transcript '%s/said' --patrons 12", folder, folder);
    json_value *report = report_of("model", flags, &text);
    char *again = program_read("said");
    CHECK_TEXT(again, said);
    CHECK_TEXT(program_text(report, "transcript_hash"), wanted);
    json_free(report);
    free(text);
    free(again);
    free(said);
}

/* Patrons never murmur while somebody is asked or speaks: with no pause between the turns there is only the frame in
   which the visit ends, where one of them begins a sentence of at most 40 tokens. */
static void silent_patrons(void)
{
    char *text;
    json_value *report = report_of("model", "--turns 8 --patrons 12 --cpu-us 20000", &text);
    CHECK_INT(program_number(report, "turns"), 8);
    CHECK(program_number(json_member(report, "patrons"), "murmurs") <= 1);
    CHECK(program_number(json_member(report, "patrons"), "tokens") <= 40);
    json_free(report);
    free(text);
}

/* On a terminal the newest murmur stands above the status row, and the end card counts them. */
static void seen_murmurs(void)
{
    program_write("quiet", "frames 60\n");
    char *shown = terminal_run(120, "", "--model '%s/model' --script '%s/quiet' --patrons 3 --cpu-us 100000",
                               folder, folder);
    CHECK(strstr(shown, "From another table: ") != NULL);
    CHECK(strstr(shown, "3 who murmured ") != NULL);
    CHECK(strstr(shown, "frame p99 ") && strstr(shown, " tok/s  ") && strstr(shown, " a pass  pages ")
          && strstr(shown, " shared)  ") && strstr(shown, " MB  engine "));
    free(shown);
}

/* A line that is typed before the person has begun: nothing is cut off, and the person answers both lines at once.
   Until then there are dots beside the name, from the first frame. */
static void patient_speakers(void)
{
    char script[2048];
    snprintf(script, sizeof script, "marla, Good evening.\nframes 1\nmarla, Tell me about the sea.\nwait\n"
             "osric, Did you see the ship?\nframes 1\n/leave\n/transcript %s/said\n", folder);
    program_write("patient", script);
    char *shown = terminal_run(120, "", "--model '%s/model' --script '%s/patient' --cpu-us 500 --threads 1", folder,
                               folder);
    CHECK(strstr(shown, "Marla\x1b[0m: .") != NULL);
    CHECK(strstr(shown, "Osric\x1b[0m: .") != NULL);
    char *said = program_read("said"), *answer = strstr(said, "\nMarla: ");
    CHECK(strstr(said, "Good evening.\n\nYou, to Marla: Tell me about the sea.\nMarla: ") != NULL);
    CHECK(answer && !strstr(answer + 1, "\nMarla: ") && !strstr(said, "\nOsric: ") && !strstr(said, "\342\200\224"));
    free(said);
    free(shown);
}

/* A save that cannot be completed leaves the older file as it was: here no file may have more than 4 KiB. */
static void kept_save(void)
{
    char command[8192], path[1200];
    size_t before_bytes, after_bytes;
    snprintf(path, sizeof path, "%s/saved", folder);
    char *before = check_read(path, &before_bytes);
    snprintf(command, sizeof command, "marla, Good evening.\nhear 2\n/save %s/saved\nwait\n", folder);
    program_write("large", command);
    snprintf(command, sizeof command,
             "trap '' XFSZ; ulimit -f 8; '%s' --model '%s/model' --script '%s/large' >/dev/null 2>'%s/err'",
             program, folder, folder, folder);
    int status = system(command);
    program_sentence(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 1, "a file could not be written or read");
    char *after = check_read(path, &after_bytes);
    CHECK(before_bytes > 4096 && after_bytes == before_bytes && memcmp(after, before, before_bytes) == 0);
    snprintf(command, sizeof command, "ls '%s' | grep -q part", folder);
    CHECK(system(command) != 0); /* no half-written file is left */
    free(before);
    free(after);
}

/* ---- circles ---- */

/* A turn that runs in a circle ends there and does nothing; it is no error. */
static void circles(void)
{
    char *text;
    uint32_t loops = 0;
    json_value *report = report_of("circles", "--turns 8 --temperature 0 --cpu-us 100000", &text);
    for (const json_value *l = json_member(report, "lines")->child; l; l = l->next) {
        const char *stop = program_text(l, "stop");
        if (stop && strcmp(stop, "loop") == 0) {
            loops++;
            CHECK(!program_text(l, "act") && program_number(l, "tokens") >= 32);
        }
    }
    CHECK(loops > 0);
    CHECK_INT(program_number(report, "loops"), loops);
    CHECK_INT(program_number(report, "turns"), 8);
    CHECK_INT(program_number(report, "invalid_turns"), 0);
    json_free(report);
    free(text);
}

/* ---- a short context ---- */

/* Forty turns in a context that holds about six: none fails, and each person keeps the world, the persona and the
   tokens of the newer half of the talk. */
static void long_talk(void)
{
    char *text;
    json_value *report = report_of("model", "--turns 40 --context 1024 --cpu-us 100000", &text);
    uint32_t answers = 0;
    for (const json_value *l = json_member(report, "lines")->child; l; l = l->next) {
        if (!program_text(l, "to")) {
            answers++;
            CHECK_TEXT(program_text(l, "stop"), "grammar");
            CHECK(program_number(l, "reused_tokens") > 500);
        }
    }
    CHECK_INT(answers, 40);
    CHECK_INT(program_number(report, "invalid_turns"), 0);
    double forgotten = program_number(json_member(report, "prompt"), "forgotten");
    CHECK(forgotten > 0 && program_number(json_member(report, "prompt"), "kept") > forgotten / 4);
    json_free(report);
    free(text);
}

int main(int argc, char **argv)
{
    bool brief = argc == 5;
    if (argc != 4 && !brief) {
        fputs("usage: tavern NPC FOLDER EXL2 [short]\n", stderr);
        return 2;
    }
    program_set(argv[1], argv[2]);
    program_make_model(argv[3], "model", 1, 1); /* its turns are quick */
    same_words(brief ? 5 : 1);
    kept_save();
    seen_murmurs();
    patient_speakers();
    if (!brief) {
        silent_patrons();
        program_make_model(argv[3], "circles", 2, 3);
        circles();
        long_talk();
    }
    program_set(argv[1], argv[2]); /* the models are large */
    return check_done();
}
