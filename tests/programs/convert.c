/* convert.c: `exl2 convert` from outside: killed at random moments, with every number of threads, from every kind of
   folder, and from folders and files that are not what they should be.
   takes: convert PROGRAM FOLDER. PROGRAM: the program exl2; FOLDER: a folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { VOCAB = 320, ROWS = 24, LENGTH = 64, KILLS = 20, KILLS_MOST = 400, THREADS = 8 };

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t count)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % count;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Runs a command of the shell; true: it succeeded. */
static bool shell(const char *format, ...)
{
    char command[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command) == 0;
}

static bool exists(const char *name)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Random ids, as many as the rows and those that are kept out need. */
static void write_ids(void)
{
    char text[8 * (ROWS + 2) * LENGTH + 8];
    size_t used = 0;
    for (uint32_t i = 0; i < (ROWS + 2) * LENGTH; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%c%u", i ? ',' : '[', random_below(VOCAB));
    }
    snprintf(text + used, sizeof text - used, "]\n");
    program_write("ids.json", text);
}

/* FOLDER/`out` has the same files with the same bytes as FOLDER/whole. */
static bool is_whole(const char *out)
{
    return shell("diff -r '%s/whole' '%s/%s'", folder, folder, out);
}

/* ---- kills ---- */

/* Starts a conversion to FOLDER/killed, and kills it after a while. true: it ended before. */
static bool start_and_kill(const char *model, double after)
{
    char ids[1100], out[1100], source[1100];
    snprintf(ids, sizeof ids, "%s/ids.json", folder);
    snprintf(out, sizeof out, "%s/killed", folder);
    snprintf(source, sizeof source, "%s", model);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char log[1100];
        snprintf(log, sizeof log, "%s/killed.log", folder);
        if (freopen(log, "w", stdout) && dup2(1, 2) == 2) {
            execl(program, program, "convert", source, out, "--bpw", "4", "--cal", ids, "--rows", "24", "--length",
                  "64", "--backend", "cpu", "--threads", "2", (char *)NULL);
        }
        _exit(127);
    }
    double end = seconds() + after;
    int status = 0;
    struct timespec pause = { 0, 200000 };
    while (seconds() < end && waitpid(child, &status, WNOHANG) == 0) {
        nanosleep(&pause, NULL);
    }
    if (kill(child, SIGKILL) < 0) {
        return CHECK(WIFEXITED(status)) && CHECK_INT(WEXITSTATUS(status), 0);
    }
    CHECK(waitpid(child, &status, 0) == child || WIFEXITED(status));
    return WIFEXITED(status) && CHECK_INT(WEXITSTATUS(status), 0);
}

/* At least twenty kills, each at a random moment of a whole run: OUT exists whole or not at all, finished parts are
   used, and in the end the bytes are those of a run that nobody killed. */
static void check_kills(const char *model)
{
    uint32_t kills = 0, ends = 0;
    double start = seconds();
    CHECK_INT(program_run("convert '%s' '%s/whole' --bpw 4 --cal '%s/ids.json' --rows 24 --length 64 --backend cpu "
                          "--threads 2", model, folder, folder), 0);
    double whole = seconds() - start;
    for (uint32_t i = 0; (kills < KILLS || ends == 0) && i < KILLS_MOST; i++) {
        /* short at first, so that one conversion is killed several times; longer and longer, so that it ends */
        bool ended = start_and_kill(model, whole * (kills % 5 + 1) * 0.2 * (0.1 + random_below(1000) * 1e-3));
        kills += !ended;
        ends += ended;
        CHECK(!ended || (exists("killed") && !exists("killed.work") && !exists("killed.unfinished")));
        if (exists("killed")) { /* a kill may come when all is done but removing the work folder */
            CHECK(is_whole("killed"));
            CHECK(shell("rm -rf '%s/killed' '%s/killed.work'", folder, folder));
        }
    }
    printf("%u kills, %u conversions ended; a whole one lasts %.3f s\n", kills, ends, whole);
    CHECK(kills >= KILLS && ends > 0);
    int code = program_run("convert '%s' '%s/killed' --bpw 4 --cal '%s/ids.json' --rows 24 --length 64 --backend cpu",
                           model, folder, folder);
    CHECK_INT(code, 0);
    CHECK(is_whole("killed"));
}

/* ---- threads ---- */

static void check_threads(const char *model)
{
    for (uint32_t threads = 1; threads <= THREADS; threads++) {
        CHECK(shell("rm -rf '%s/threads'", folder));
        CHECK_INT(program_run("convert '%s' '%s/threads' --bpw 4 --cal '%s/ids.json' --rows 24 --length 64 "
                              "--backend cpu --threads %u", model, folder, folder, threads), 0);
        CHECK(is_whole("threads"));
    }
}

/* ---- sources ---- */

/* Each kind of folder becomes one that `compare` accepts, and those that were quantized before give one warning. */
static void check_kinds(const char *models)
{
    static const struct {
        const char *name, *warning;
    } kinds[] = { { "llama3-rope", NULL }, { "exl2-4bit", "(EXL2)" }, { "gptq-phi3", "(GPTQ or AWQ)" },
                  { "awq", "(GPTQ or AWQ)" }, { "exl2-qwen3-moe", "(EXL2)" } };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char *text;
        CHECK(shell("rm -rf '%s/kind'", folder));
        int code = program_run("convert '%s/%s' '%s/kind' --bpw 5 --cal '%s/ids.json' --rows 6 --length 64 "
                               "--backend cpu", models, kinds[i].name, folder, folder);
        char *said = program_read("err"), *warning = strstr(said, "warning: ");
        CHECK_INT(code, 0);
        CHECK((warning != NULL) == (kinds[i].warning != NULL));
        CHECK(!warning || (strstr(warning, kinds[i].warning) && !strstr(warning + 1, "warning: ")));
        free(said);
        code = program_run("compare '%s/%s' '%s/kind' --ids-file '%s/ids.json' --rows-of 64 --json", models,
                           kinds[i].name, folder, folder);
        json_value *compared = program_json(code, &text);
        printf("%s: KL %.4f\n", kinds[i].name, program_number(compared, "kl"));
        CHECK(program_number(compared, "kl") > 0 && program_number(compared, "kl") < 1);
        json_free(compared);
        free(text);
    }
}

/* ---- what is not as it should be ---- */

static void check_rejected(const char *source, const char *part)
{
    CHECK(shell("rm -rf '%s/bad' '%s/bad.work'", folder, folder));
    program_sentence(program_run("convert '%s' '%s/bad' --bpw 4 --cal '%s/ids.json' --rows 6 --length 64 --backend cpu",
                                 source, folder, folder), 1, part);
    CHECK(!exists("bad") && !exists("bad.unfinished") && !exists("bad.work")); /* nothing was finished */
}

/* Sources that end early, have no layers, or were changed after a run began; a job file of somebody else. */
static void check_bad(const char *model)
{
    char source[1100];
    snprintf(source, sizeof source, "%s/source", folder);
    CHECK(shell("rm -rf '%s' && cp -r '%s' '%s' && chmod -R u+w '%s'", source, model, source, source));
    CHECK(shell("truncate -s -1000 '%s/model.safetensors'", source));
    check_rejected(source, "model.safetensors");
    CHECK(shell("truncate -s 7 '%s/model.safetensors'", source));
    check_rejected(source, "model.safetensors");
    CHECK(shell("cp '%s/model.safetensors' '%s/'", model, source));
    CHECK(shell("sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 0/' '%s/config.json'", source));
    check_rejected(source, "num_hidden_layers");
    CHECK(shell("cp '%s/config.json' '%s/' && truncate -s 100 '%s/config.json'", model, source, source));
    check_rejected(source, "config.json");
    CHECK(shell("cp '%s/config.json' '%s/'", model, source));
    /* the work folder of a killed run, and then another source */
    CHECK(shell("rm -rf '%s/bad' '%s/bad.work'", folder, folder));
    CHECK(shell("cp -r '%s/kept' '%s/bad.work'", folder, folder));
    CHECK(shell("sed -i 's/\"rope_theta\": 1000000.0/\"rope_theta\": 1000000.5/' '%s/config.json'", source));
    program_sentence(program_run("convert '%s' '%s/bad' --bpw 4 --cal '%s/ids.json' --rows 24 --length 64 "
                                 "--backend cpu", source, folder, folder), 1, "source differs");
    CHECK(!exists("bad"));
}

/* A job file that is damaged, empty, much too long or not text is another conversion's, if something is finished in
   the folder: nothing in it is used or deleted. */
static void check_jobs(const char *model)
{
    static const struct {
        const char *command, *part; /* of the message */
    } changes[] = { { ": >", "version differs" }, { "head -c 40 /dev/zero >", "version differs" },
                    { "head -c 100000 /dev/urandom >", "job.txt has 100000 bytes" }, { "sed -i 1d", "version differs" },
                    { "sed -i 's/^rows: .*/rows: 4294967295/'", "rows differs (it has 'rows: 4294967295'" } };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        CHECK(shell("rm -rf '%s/bad' '%s/bad.work' && cp -r '%s/kept' '%s/bad.work'", folder, folder, folder, folder));
        CHECK(shell("%s '%s/bad.work/job.txt' && cp -r '%s/bad.work' '%s/before'", changes[i].command, folder, folder,
                    folder));
        program_sentence(program_run("convert '%s' '%s/bad' --bpw 4 --cal '%s/ids.json' --rows 24 --length 64 "
                                     "--backend cpu", model, folder, folder), 1, changes[i].part);
        CHECK(shell("diff -r '%s/before' '%s/bad.work' && rm -rf '%s/before'", folder, folder, folder));
        CHECK(!exists("bad"));
    }
}

/* Calls that somebody might try: each gives one sentence, and leaves nothing behind. */
static void check_calls(const char *model)
{
    static const struct {
        const char *flags, *ids;
        int code;
        const char *part; /* of the message */
    } calls[] = { { "--bpw 4 --length 64", "", 1, "odd.json is not valid JSON" },
                  { "--bpw 4 --length 64", "[]", 2, "calibration has 0 ids" },
                  { "--bpw 4 --length 64", "[1,2,3]", 2, "calibration has 3 ids, but at least two rows of 64" },
                  { "--bpw 4 --length 64", "[319,320]", 1, "odd.json: expected ids below 320" },
                  { "--bpw 4 --length 64", "[-1]", 1, "odd.json: expected ids below 320" },
                  { "--bpw 4 --length 64", "{\"ids\":[1]}", 1, "odd.json: expected an array of ids" },
                  { "--bpw 4 --length 5000", NULL, 2, "has a context of 128 tokens, fewer than the 5000 of a row" },
                  { "--bpw 4 --length 9000", NULL, 2, "expected at most 65536 rows, of 32 to 8192 tokens" },
                  { "--bpw 2", NULL, 2, "this model can have 2.55 to 8.55 bits per weight" },
                  { "--bpw 100", NULL, 2, "bpw must be from 2 to 16" },
                  { "--bpw 4 --head-bits 7", NULL, 2, "head_bits is 7" } };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const char *ids = calls[i].ids ? "odd.json" : "ids.json";
        program_write("odd.json", calls[i].ids ? calls[i].ids : "");
        program_sentence(program_run("convert '%s' '%s/odd' %s --cal '%s/%s' --backend cpu", model, folder,
                                     calls[i].flags, folder, ids), calls[i].code, calls[i].part);
        CHECK(!exists("odd") && !exists("odd.unfinished") && !exists("odd.work"));
    }
    /* the place of the work folder, or of the output, is a file */
    program_write("odd.work", "mine");
    program_sentence(program_run("convert '%s' '%s/odd' --bpw 4 --cal '%s/ids.json' --backend cpu", model, folder,
                                 folder), 1, "odd.work");
    CHECK(!exists("odd") && shell("grep -q mine '%s/odd.work' && rm '%s/odd.work'", folder, folder));
    program_write("odd", "mine");
    program_sentence(program_run("convert '%s' '%s/odd' --bpw 4 --cal '%s/ids.json' --backend cpu", model, folder,
                                 folder), 1, "odd: the folder cannot be created");
    CHECK(!exists("odd.work") && shell("grep -q mine '%s/odd' && rm '%s/odd'", folder, folder));
}

/* ---- paths ---- */

/* In FOLDER/paths are the models m, x.unfinished and y.work, and a link to m. Each call is rejected in one sentence,
   and changes nothing. */
static void check_paths(const char *model)
{
    static const struct {
        const char *source, *out, *flags;
        const char *part; /* of the message */
    } calls[] = { { "", "o", "", "SOURCE is an empty path" },
                  { "m", "", "", "OUT is an empty path" },
                  { "m", "o", "--work ''", "--work is an empty path" },
                  { "m", "o", "--work=", "--work is an empty path" },
                  { "m", "o", "--cal ''", "--cal is an empty path" },
                  { "m", "o", "--measurement ''", "--measurement is an empty path" },
                  { "m", "m", "", "the output folder m lies in the source m;" },
                  { "m/", "m//", "", "lies in the source m;" },
                  { "m", "m/x", "", "the output folder m/x lies in the source m;" },
                  { "m", "m/x/", "", "lies in the source m;" },
                  { "m", "./m/../m/x", "", "lies in the source m;" },
                  { "m", "link/x", "", "the output folder link/x lies in the source m;" },
                  { "link", "m/x", "", "the output folder m/x lies in the source link;" },
                  { "m", "link", "", "the output folder link lies in the source m;" },
                  { "m", "o", "--work m", "the work folder m lies in the source m;" },
                  { "m", "o", "--work m/w", "the work folder m/w lies in the source m;" },
                  { "m", "o", "--work link/w", "the work folder link/w lies in the source m;" },
                  { "m", "o", "--work .", "the output folder o lies in the work folder .;" },
                  { "m", "o", "--work o", "the work folder o lies in the output folder o;" },
                  { "m", "o", "--work o/w", "the work folder o/w lies in the output folder o;" },
                  { "m", "o", "--work o.unfinished", "the work folder o.unfinished lies in the unfinished folder" },
                  { "m", "new/o", "--work new", "the output folder new/o lies in the work folder new;" },
                  { "x.unfinished", "x", "", "the unfinished folder x.unfinished lies in the source x.unfinished;" },
                  { "y.work", "y", "", "the work folder y.work lies in the source y.work;" },
                  { "y.work", "./y", "", "the work folder ./y.work lies in the source y.work;" } };
    CHECK(shell("mkdir '%s/paths' && cd '%s/paths' && for d in m x.unfinished y.work; do cp -r '%s' $d; done && "
                "chmod -R u+w . && ln -s m link && cp -r . ../paths-before", folder, folder, model));
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        char command[6000];
        snprintf(command, sizeof command, "cd '%s/paths' && '%s' convert '%s' '%s' --bpw 4 --cal ../ids.json --rows 24 "
                 "--length 64 --backend cpu %s </dev/null >../out 2>../err", folder, program, calls[i].source,
                 calls[i].out, calls[i].flags);
        printf("+ convert '%s' '%s' %s\n", calls[i].source, calls[i].out, calls[i].flags);
        fflush(stdout);
        int status = system(command);
        program_sentence(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 2, calls[i].part);
        if (!CHECK(shell("diff -r --no-dereference '%s/paths-before' '%s/paths'", folder, folder))) {
            CHECK(shell("rm -rf '%s/paths' && cp -r '%s/paths-before' '%s/paths'", folder, folder, folder));
        }
    }
}

/* Folders that no conversion began are left as they are, even if files in them have names that one would write. */
static void check_others(const char *model)
{
    static const struct {
        const char *make, *part; /* of the message */
    } folders[] = { { "mkdir bad.work && echo keep >bad.work/ids", "bad.work is not empty, and no job.txt" },
                    { "mkdir bad.work && echo keep >bad.work/source-code.c", "bad.work holds source-code.c" },
                    { "mkdir bad.work && echo keep >bad.work/ids.csv", "bad.work holds ids.csv" },
                    { "mkdir bad.work && echo keep >bad.work/layer-notes.txt", "bad.work holds layer-notes.txt" },
                    { "mkdir bad.work && echo keep >bad.work/layer-1.losses.bak", "bad.work holds layer-1.losses.bak" },
                    { "mkdir bad.work && echo keep >bad.work/layer-1-2", "bad.work holds layer-1-2," },
                    { "mkdir bad.work && echo keep >bad.work/head-of-state.jpg", "bad.work holds head-of-state.jpg" },
                    { "mkdir bad.work && echo keep >bad.work/states.json", "bad.work holds states.json" },
                    { "mkdir bad.work && echo keep >bad.work/job.txt", "bad.work holds a job.txt that no conversion" },
                    { "mkdir bad.work && echo keep >bad.work/job.txt.old", "bad.work holds job.txt.old" },
                    { "mkdir -p bad.work/source && echo keep >bad.work/source/config.json", "bad.work is not empty" },
                    { "cp -r kept bad.work && rm bad.work/job.txt", "bad.work is not empty, and no job.txt" },
                    { "cp -r kept bad.work && echo keep >bad.work/ids.txt", "bad.work holds ids.txt" },
                    { "mkdir bad.unfinished && echo keep >bad.unfinished/model.safetensors", "bad.unfinished holds" },
                    { "mkdir bad.unfinished && echo keep >bad.unfinished/README.md", "bad.unfinished holds" },
                    { "ln -s whole bad.unfinished", "bad.unfinished is a link" } };
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        CHECK(shell("cd '%s' && rm -rf bad bad.work bad.unfinished before && %s && mkdir before && "
                    "cp -r bad.* before/", folder, folders[i].make));
        printf("%s\n", folders[i].make);
        program_sentence(program_run("convert '%s' '%s/bad' --bpw 4 --cal '%s/ids.json' --rows 24 --length 64 "
                                     "--backend cpu", model, folder, folder), 1, folders[i].part);
        CHECK(shell("cd '%s' && for f in before/*; do diff -r --no-dereference $f ${f#before/} || exit 1; done",
                    folder));
        CHECK(!exists("bad"));
    }
    CHECK(shell("cd '%s' && rm -rf bad bad.work bad.unfinished before", folder));
}

/* ---- a source that changes ---- */

/* A work folder in which all is finished, and then a source with another byte somewhere: what was made does not belong
   to it. A new README changes no number. */
static void check_changed(const char *model)
{
    static const struct {
        const char *command, *part; /* part NULL: the conversion continues */
    } changes[] = {
        { "printf x | dd of=model.safetensors bs=1 seek=$(($(wc -c <model.safetensors) - 1)) conv=notrunc", "source" },
        { "printf x | dd of=model.safetensors bs=1 seek=$(($(wc -c <model.safetensors) / 2)) conv=notrunc", "source" },
        { "printf x | dd of=model.safetensors bs=1 seek=$(($(wc -c <model.safetensors) / 3)) conv=notrunc", "source" },
        { "printf '\\001' | dd of=model.safetensors bs=1 seek=99999 conv=notrunc && "
          "touch -r ../kept/ids model.safetensors", "source" },
        { "echo >>config.json", "source" },
        { "echo '{}' >tokenizer_config.json", "tokenizer" },
        { "echo '{}' >generation_config.json", "tokenizer" },
        { "echo new >README.md", NULL },
        { "touch model.safetensors && mv model.safetensors m && cp m model.safetensors && rm m", NULL } };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        CHECK(shell("cd '%s' && rm -rf bad bad.work source && cp -r kept bad.work && cp -r '%s' source && "
                    "chmod -R u+w source && cd source && (%s) 2>../dd.log", folder, model, changes[i].command));
        printf("%s\n", changes[i].command);
        int code = program_run("convert '%s/source' '%s/bad' --bpw 4 --cal '%s/ids.json' --rows 24 --length 64 "
                               "--backend cpu", folder, folder, folder);
        if (changes[i].part) {
            char part[64];
            snprintf(part, sizeof part, "bad.work belongs to another conversion: %s differs", changes[i].part);
            program_sentence(code, 1, part);
            CHECK(shell("diff -r '%s/kept' '%s/bad.work'", folder, folder) && !exists("bad"));
        } else {
            CHECK_INT(code, 0);
            CHECK(shell("cd '%s' && rm -f bad/README.md", folder) && is_whole("bad") && !exists("bad.work"));
        }
    }
}

/* ---- two at once ---- */

/* While one conversion works, here stopped, a second one to the same folder, or with the same work folder, is rejected
   and says who has it; that one is killed, and leaves no lock. */
static void check_two(const char *model)
{
    char ids[1100], out[1100], work[1100], source[1100], part[1200];
    snprintf(ids, sizeof ids, "%s/ids.json", folder);
    snprintf(out, sizeof out, "%s/two", folder);
    snprintf(work, sizeof work, "%s/two-work", folder);
    snprintf(source, sizeof source, "%s", model);
    bool stopped = false;
    pid_t child = -1;
    for (uint32_t i = 0; i < KILLS_MOST && !stopped; i++) {
        CHECK(shell("rm -rf '%s' '%s' '%s.unfinished'", out, work, out));
        fflush(stdout);
        child = fork();
        if (child == 0) {
            execl(program, program, "convert", source, out, "--bpw", "4", "--cal", ids, "--rows", "24", "--length",
                  "64", "--backend", "cpu", "--threads", "1", "--work", work, (char *)NULL);
            _exit(127);
        }
        struct timespec pause = { 0, 100000 };
        while (!exists("two-work/ids-rows") && waitpid(child, NULL, WNOHANG) == 0) {
            nanosleep(&pause, NULL);
        }
        kill(child, SIGSTOP);
        stopped = exists("two.unfinished") && waitpid(child, NULL, WNOHANG) == 0;
        if (!stopped) {
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
        }
    }
    CHECK(stopped);
    snprintf(part, sizeof part, "two.unfinished is in use by process %ld;", (long)child);
    program_sentence(program_run("convert '%s' '%s' --bpw 4 --cal '%s' --rows 24 --length 64 --backend cpu --work '%s'",
                                 source, out, ids, work), 1, part);
    snprintf(part, sizeof part, "two-work is in use by process %ld;", (long)child);
    program_sentence(program_run("convert '%s' '%s2' --bpw 4 --cal '%s' --rows 24 --length 64 --backend cpu "
                                 "--work '%s'", source, out, ids, work), 1, part);
    CHECK(exists("two.unfinished") && exists("two-work/ids-rows") && !exists("two2") && !exists("two2.unfinished"));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_INT(program_run("convert '%s' '%s' --bpw 4 --cal '%s' --rows 24 --length 64 --backend cpu --work '%s'",
                          source, out, ids, work), 0);
    CHECK(is_whole("two") && !exists("two.unfinished") && !exists("two-work/exl2.lock") && exists("two-work/job.txt")
          && !exists("two.unfinished.lock"));
}

/* ---- a model without a tokenizer ---- */

/* It is converted with random ids, as one that `synth` makes; without them the message names the flag. */
static void check_random(const char *model)
{
    program_sentence(program_run("convert '%s' '%s/random' --bpw 4 --rows 4 --length 64 --backend cpu", model, folder),
                     2, "random_ids, --random-ids");
    CHECK_INT(program_run("convert '%s' '%s/random' --bpw 4 --rows 4 --length 64 --backend cpu --random-ids", model,
                          folder), 0);
    CHECK(shell("grep -q '\"dataset\": \"(random ids)\"' '%s/random/config.json'", folder));
    CHECK_INT(program_run("generate '%s/random' --ids 5,6,7 --max 3 --backend cpu", folder), 0);
    program_sentence(program_run("convert '%s' '%s/both' --bpw 4 --cal '%s/ids.json' --random-ids --backend cpu", model,
                                 folder, folder), 2, "calibration_files and random_ids are both given");
}

int main(int argc, char **argv)
{
    char model[1100];
    if (argc != 3) {
        return 1;
    }
    program_set(argv[1], argv[2]);
    write_ids();
    snprintf(model, sizeof model, "%s/models/qwen3", EXL2_GOLDEN_DIR);
    check_kills(model);
    check_threads(model);
    check_kinds(EXL2_GOLDEN_DIR "/models");
    CHECK_INT(program_run("convert '%s' '%s/first' --bpw 4 --cal '%s/ids.json' --rows 24 --length 64 --backend cpu "
                          "--work '%s/kept'", model, folder, folder, folder), 0);
    check_bad(model);
    check_jobs(model);
    check_calls(model);
    check_paths(model);
    check_others(model);
    check_changed(model);
    check_two(model);
    check_random(model);
    return check_done();
}
