/* convert.c: a fuzzer of conversions that are stopped, meet failing disks and other processes, and whose source
   changes. A sequence is some runs of one conversion, of a tiny model, into one folder. At a random call that writes,
   syncs, renames or removes, the process is killed (also in the middle of a write), the call or all calls from there on
   fail, the source becomes another one, perhaps only for a while, or a second process converts the same. Between runs
   the source may change, or only its times, and folders may be removed. These hold:
     - after a success the output is, byte for byte, that of a clean conversion of the source as it is, or, if it
       changed meanwhile, as it was;
     - at any time the output folder is whole, or it is empty or does not exist;
     - a failure has one sentence, and is none of the engine's own faults (INTERNAL);
     - a second process fails with a sentence, or succeeds;
     - in the end, with nothing in its way, the conversion goes on and succeeds, unless its parts are of another source,
       and then it says so, and succeeds once they are removed.

       fuzz_convert [--begin SEED] [--count SEQUENCES]   runs these sequences, as CI does
       fuzz_convert --seconds S [--begin SEED]           runs sequences for S seconds
   takes: models/qwen3 of tests/golden.
   gives: exit code 0 or 1. A finding names its seed, which repeats it. */
#define _GNU_SOURCE
#define EXL2_CONVERT
#include "../../exl2.h"
#include "private/hash.h"
#include "private/file.h"
#include "../convert_rig.h"
#include "../convert_system.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { ROWS = 6, LENGTH = 32, VOCAB = 320, RUNS = 6 };

/* What the source is: the golden, or it with some weights negated, another epsilon, spaces after the header of the
   tensors, or another file that is copied. */
enum { BASE, WEIGHTS, CONFIG, LONGER, COPIED, SOURCES };

enum { NOTHING, KILL, TEAR, FAIL, FAIL_ALL, CHANGE, SECOND, THINGS, BACK };

static char source_dir[600], work_dir[700];
static uint64_t clean[SOURCES]; /* hashes of the outputs */
static uint32_t calls_most;     /* of a clean conversion */
static uint64_t seed;
static uint32_t sequences, totals[THINGS], successes;

/* How a run is disturbed, in the process of that run. */
static struct disturbance {
    uint32_t what, at, calls; /* before call `at` */
    uint32_t source;          /* CHANGE: becomes this one */
    bool replaced;            /* CHANGE: by new files, else in the old ones */
    uint32_t back, origin;    /* CHANGE: after so many more calls it becomes `origin` again; 0: never */
} now;

/* What a run tells the fuzzer. */
typedef struct outcome {
    bool killed;
    int32_t result;
    uint32_t changed; /* the source has become another one */
    uint32_t calls;
    char text[sizeof((exl2_error *)0)->text];
} outcome;

static uint32_t draw(uint32_t below)
{
    static uint64_t state;
    static uint64_t of_seed;
    if (of_seed != seed) {
        of_seed = seed;
        state = exl2__hash_mix(seed);
    }
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 32) * below >> 32);
}

static void finding(const char *what, const char *text)
{
    printf("  seed %llu: %s%s%s\n", (unsigned long long)seed, what, *text ? ": " : "", text);
}

/* ---- the source ---- */

static void write_file(const char *path, const void *data, size_t bytes, bool replaced)
{
    char other[800];
    snprintf(other, sizeof other, "%s.new", path);
    FILE *file = fopen(replaced ? other : path, "wb");
    if (!CHECK(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0)) {
        exit(1);
    }
    if (replaced) {
        CHECK(rename(other, path) == 0);
    }
}

/* Writes a file of the source as `source` has it, if it differs. */
static void put_file(const char *name, uint32_t source, bool replaced)
{
    char path[800], old_path[800];
    size_t bytes, old_bytes = 0;
    bool copied = strcmp(name, "generation_config.json") == 0;
    snprintf(path, sizeof path, "%s/models/qwen3/%s", EXL2_GOLDEN_DIR, copied ? "config.json" : name);
    snprintf(old_path, sizeof old_path, "%s/%s", source_dir, name);
    char *data = check_read(path, &bytes), *old = access(old_path, F_OK) == 0 ? check_read(old_path, &old_bytes) : NULL;
    if (!CHECK(data != NULL)) {
        exit(1);
    }
    data = realloc(data, bytes + 64);
    bool tensors = strcmp(name, "model.safetensors") == 0;
    if (tensors && source == WEIGHTS) {
        for (size_t i = 0; i < 200; i++) {
            data[(bytes * 5 / 8 | 1) + 2 * i] ^= (char)0x80;
        }
    } else if (tensors && source == LONGER) {
        uint64_t header = exl2__load64(data);
        memmove(data + 16 + header, data + 8 + header, bytes - 8 - header);
        memset(data + 8 + header, ' ', 8);
        exl2__store64(data, header + 8);
        bytes += 8;
    } else if (source == CONFIG && strcmp(name, "config.json") == 0) {
        char *eps = strstr(data, "1e-06");
        if (CHECK(eps != NULL)) {
            memcpy(eps, "1e-05", 5);
        }
    } else if (copied) {
        bytes = (size_t)snprintf(data, 64, "{\"temperature\": %s}\n", source == COPIED ? "0.7" : "0.5");
    }
    if (!old || old_bytes != bytes || memcmp(old, data, bytes) != 0) {
        write_file(old_path, data, bytes, replaced);
    }
    free(data);
    free(old);
}

static void put_source(uint32_t source, bool replaced)
{
    put_file("config.json", source, replaced);
    put_file("model.safetensors", source, replaced);
    put_file("generation_config.json", source, replaced);
}

/* New times of the files, and nothing else. */
static void put_times(void)
{
    char name[EXL2__FILE_NAME_MAX], path[1000];
    struct timespec times[2] = { { 1000000000 + draw(1000000), 0 }, { 1000000000 + draw(1000000), 0 } };
    for (uint32_t i = 0; exl2__platform_entry(source_dir, i, name, sizeof name); i++) {
        snprintf(path, sizeof path, "%s/%s", source_dir, name);
        CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
    }
}

/* ---- one run ---- */

static int32_t convert(char *text, size_t cap)
{
    exl2_error error = { 0 };
    exl2_convert_desc d = rig_desc(source_dir, ROWS, LENGTH);
    d.bpw = 4;
    d.error = &error;
    int32_t result = exl2_convert(&d);
    snprintf(text, cap, "%s", error.text);
    return result;
}

static bool is_sentence(const outcome *o)
{
    size_t bytes = strlen(o->text);
    return bytes > 20 && !strchr(o->text, '\n') && o->result != EXL2_ERR_INTERNAL;
}

/* Runs a conversion in a process of its own. */
static outcome run(struct disturbance disturbance)
{
    outcome o = { .killed = true };
    int ends[2], status = 0;
    fflush(stdout);
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        check_failures = 0; /* those of this run */
        now = disturbance;
        o.result = convert(o.text, sizeof o.text);
        o.killed = false;
        o.calls = now.calls;
        o.changed = disturbance.what == CHANGE && now.what != CHANGE && now.source != disturbance.origin;
        fflush(stdout);
        _exit(write(ends[1], &o, sizeof o) == (ssize_t)sizeof o && check_failures == 0 ? 0 : 1);
    }
    close(ends[1]);
    bool told = child > 0 && read(ends[0], &o, sizeof o) == (ssize_t)sizeof o;
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    o.killed = !told;
    bool as_asked = told ? WIFEXITED(status) && WEXITSTATUS(status) == 0
                         : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                           && (disturbance.what == KILL || disturbance.what == TEAR);
    if (!CHECK(as_asked)) {
        finding("a run crashed", o.text);
    }
    return o;
}

/* A second process converts the same. While the first one works, it is rejected. */
static void run_second(void)
{
    outcome o = run((struct disturbance){ 0 });
    if (!CHECK(!o.killed && (o.result == EXL2_OK || is_sentence(&o)))) {
        finding("the second process", o.text);
    }
}

/* Before each call. */
static int fuzz_at(void)
{
    bool due = now.what != NOTHING && now.calls++ >= now.at;
    now.calls += now.what == NOTHING;
    if (!due || now.what == TEAR) { /* of TEAR: the next write is torn */
        return 0;
    }
    struct disturbance was = now;
    if (was.what == KILL) {
        kill(getpid(), SIGKILL);
    }
    if (was.what == FAIL || was.what == FAIL_ALL) {
        now.what = was.what == FAIL ? NOTHING : FAIL_ALL;
        errno = ENOSPC;
        return 1;
    }
    now.what = NOTHING;
    if (was.what == CHANGE || was.what == BACK) {
        now.source = was.what == BACK ? was.origin : was.source;
        put_source(now.source, was.replaced);
        if (was.what == CHANGE && was.back) {
            now.what = BACK;
            now.at = now.calls + was.back - 1;
        }
    } else {
        run_second();
    }
    return 0;
}

static ssize_t fuzz_write(int file, const void *data, size_t bytes, off_t at)
{
    if (fuzz_at()) {
        return -1;
    }
    if (now.what == TEAR && now.calls > now.at && bytes > 1) {
        if (pwrite(file, data, bytes / 2, at) >= 0) {
            kill(getpid(), SIGKILL);
        }
    }
    return pwrite(file, data, bytes, at);
}

/* ---- the output ---- */

/* A hash of the names and bytes in a folder; 0: it does not exist, or is empty. */
static uint64_t folder_hash(const char *dir)
{
    char name[EXL2__FILE_NAME_MAX], path[1000];
    uint64_t sum = 0;
    for (uint32_t i = 0; exl2__platform_entry(dir, i, name, sizeof name); i++) {
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", dir, name);
        char *data = check_read(path, &bytes);
        if (CHECK(data != NULL)) {
            sum += exl2__hash_words(data, bytes, exl2__hash(name, strlen(name)));
        }
        free(data);
    }
    return sum;
}

/* Is the output, if there is one, that of a clean conversion of one of the two sources? */
static bool is_output_of(uint64_t hash, uint32_t source, uint32_t other)
{
    return hash == clean[source] || hash == clean[other];
}

static bool is_output(uint64_t hash)
{
    bool found = hash == 0;
    for (uint32_t i = 0; i < SOURCES; i++) {
        found = found || hash == clean[i];
    }
    return found;
}

static void make_clean(void)
{
    for (uint32_t i = 0; i < SOURCES; i++) {
        char text[1024];
        put_source(i, false);
        outcome o = run((struct disturbance){ 0 });
        if (!CHECK(!o.killed && o.result == EXL2_OK)) {
            snprintf(text, sizeof text, "%s", o.text);
            printf("  %s\n", text);
            exit(check_done());
        }
        calls_most = o.calls;
        clean[i] = folder_hash(out_dir);
        CHECK(clean[i] != 0 && access(work_dir, F_OK) != 0);
        CHECK(remove_folder(out_dir));
    }
    CHECK(clean[WEIGHTS] != clean[BASE] && clean[CONFIG] != clean[BASE] && clean[COPIED] != clean[BASE]);
}

/* ---- a sequence ---- */

/* One disturbed run. Gives the source that it leaves. */
static uint32_t run_disturbed(uint32_t source)
{
    struct disturbance d = { draw(THINGS), draw(calls_most + 2), 0, draw(SOURCES), draw(2) == 0,
                             draw(2) * (1 + draw(calls_most)), source };
    bool existed = folder_hash(out_dir) != 0;
    outcome o = run(d);
    /* A change may have come before a run was killed, or be the last thing that it did. */
    uint32_t after = o.changed ? d.source : source;
    uint64_t hash = folder_hash(out_dir);
    totals[d.what]++;
    if (!CHECK(is_output(hash))) {
        finding("the output is of no source", o.text);
        printf("    what %u at %u, source %u, then %u, hash %llx of", d.what, d.at, source, d.source,
               (unsigned long long)hash);
        for (uint32_t i = 0; i < SOURCES; i++) {
            printf(" %llx", (unsigned long long)clean[i]);
        }
        printf("\n");
    }
    if (!o.killed && o.result == EXL2_OK) {
        successes++;
        if (!CHECK(!existed && is_output_of(hash, source, after))) {
            finding("the output is of another source", "");
        }
        CHECK(access(work_dir, F_OK) != 0 || d.what == FAIL || d.what == FAIL_ALL);
    } else if (!o.killed && !CHECK(o.result < 0 && is_sentence(&o))) {
        finding("no sentence", o.text);
    }
    if (!o.killed && d.what == NOTHING && !existed && o.result < 0
        && !CHECK(strstr(o.text, "belongs to another conversion: "))) {
        finding("an undisturbed run failed", o.text);
    }
    return after;
}

/* Without anything in its way. */
static void run_to_the_end(uint32_t source)
{
    remove_folder(out_dir);
    outcome o = run((struct disturbance){ 0 });
    if (o.result < 0 && CHECK(strstr(o.text, "belongs to another conversion: source differs")
                              || strstr(o.text, "belongs to another conversion: tokenizer differs"))) {
        CHECK(remove_folder(work_dir));
        o = run((struct disturbance){ 0 });
    }
    if (!CHECK(!o.killed && o.result == EXL2_OK && folder_hash(out_dir) == clean[source])) {
        finding("the last run", o.text);
    }
    CHECK(access(work_dir, F_OK) != 0);
    remove_folder(out_dir);
}

static void run_sequence(void)
{
    uint32_t source = draw(SOURCES), runs = 1 + draw(RUNS);
    put_source(source, false);
    for (uint32_t i = 0; i < runs; i++) {
        source = run_disturbed(source);
        if (draw(4) == 0) {
            source = draw(SOURCES);
            put_source(source, draw(2) == 0);
        }
        if (draw(4) == 0) {
            put_times();
        }
        if (folder_hash(out_dir) && draw(8) > 0) {
            CHECK(remove_folder(out_dir));
        }
        if (draw(8) == 0) {
            remove_folder(work_dir);
        }
    }
    run_to_the_end(source);
    sequences++;
}

int main(int argc, char **argv)
{
    uint64_t begin = 1, count = 0;
    double seconds = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        begin = strcmp(argv[i], "--begin") == 0 ? strtoull(argv[i + 1], NULL, 10) : begin;
        count = strcmp(argv[i], "--count") == 0 ? strtoull(argv[i + 1], NULL, 10) : count;
        seconds = strcmp(argv[i], "--seconds") == 0 ? strtod(argv[i + 1], NULL) : seconds;
    }
    convert_system = (convert_system_calls){ .at = fuzz_at, .pwrite = fuzz_write };
    rig_open((ROWS + 2) * LENGTH, VOCAB);
    snprintf(source_dir, sizeof source_dir, "%s/source", root);
    snprintf(work_dir, sizeof work_dir, "%s.work", out_dir);
    CHECK(exl2__platform_make_dir(source_dir));
    make_clean();
    count = count ? count : seconds > 0 ? UINT64_MAX / 2 : 20;
    uint64_t end_ns = seconds > 0 ? exl2__platform_ns() + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    for (seed = begin; seed - begin < count && exl2__platform_ns() < end_ns && check_failures < 20; seed++) {
        run_sequence();
    }
    printf("%u sequences, %u calls in a clean run; runs: %u undisturbed, %u killed, %u torn, %u with a failing call, "
           "%u with a full disk, %u with a changed source, %u with a second process; %u succeeded\n", sequences,
           calls_most, totals[NOTHING], totals[KILL], totals[TEAR], totals[FAIL], totals[FAIL_ALL], totals[CHANGE],
           totals[SECOND], successes);
    rig_close();
    return check_done();
}
