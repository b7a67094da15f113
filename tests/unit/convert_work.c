/* convert_work.c: the work folder of a conversion: which names are ours, whose parts count, one run at a time; a source
   that changes while it is converted; rows of random ids; where folders lie. */
#define _POSIX_C_SOURCE 200809L
#define EXL2_CONVERT
#include "private/convert.h"
#include "../convert_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 12, LENGTH = 64, VOCAB = 320 };

static char work_dir[640], source_dir[640];

static exl2__ctx context(void)
{
    exl2__ctx c = { 0 };
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.cpu_path = exl2__cpu_path_best();
    return c;
}

static void make_source(void)
{
    char command[2000];
    remove_folder(source_dir);
    snprintf(command, sizeof command, "cp -r '%s/models/qwen3' '%s' && chmod -R u+w '%s'", EXL2_GOLDEN_DIR, source_dir,
             source_dir);
    CHECK_INT(system(command), 0);
}

/* ---- names ---- */

static void test_names(void)
{
    static const char *const ours[] = { "job.txt", "job.txt.part", "job.txt-backend", "ids", "ids.part", "ids-rows",
                                        "states", "states-of-both.part", "head-codes", "head-moments", "head-losses",
                                        "layer-0.losses", "layer-12.losses.part", "layer-3-14.codes",
                                        "layer-3-14.moments.part", "source", "source-outline", "source.unfinished",
                                        "source.unfinished.lock", "exl2.lock" };
    static const char *const others[] = { "", "job", "job.txt.old", "ids.csv", "ids-", "states.json", "head-",
                                          "head-codes2", "layer-", "layer-1", "layer-1.codes", "layer-1-2.losses",
                                          "layer-x.losses", "layer-1-.codes", "layer--1.codes", "layer-1-2.codes.bak",
                                          "layer-notes.txt", "source-code.c", "sources", "IDS", ".part",
                                          "exl2.lock2" };
    for (size_t i = 0; i < EXL2__COUNT(ours); i++) {
        if (!CHECK(exl2__workdir_is_ours(ours[i]))) {
            printf("  %s\n", ours[i]);
        }
    }
    for (size_t i = 0; i < EXL2__COUNT(others); i++) {
        if (!CHECK(!exl2__workdir_is_ours(others[i]))) {
            printf("  %s\n", others[i]);
        }
    }
}

/* ---- parts ---- */

/* A part counts for the conversion that wrote it alone, also if its file is moved to another one's folder. */
static void test_parts(void)
{
    exl2__ctx c = context();
    exl2__workdir first, second, third;
    uint32_t value = 77, got = 0;
    exl2__workdir_piece piece = { &value, sizeof value }, read = { &got, sizeof got };
    bool found = true;
    char other[700], command[2000], holder[64];
    snprintf(other, sizeof other, "%s/other.work", root);
    CHECK_INT(exl2__workdir_open(&c, work_dir, "version: 5\nseed: 1\n", &first), EXL2_OK);
    CHECK_INT(exl2__workdir_open(&c, other, "version: 5\nseed: 2\n", &second), EXL2_OK);
    CHECK_INT(exl2__workdir_save(&first, "ids", &piece, 1), EXL2_OK);
    snprintf(command, sizeof command, "cp '%s/ids' '%s/'", work_dir, other);
    CHECK_INT(system(command), 0);
    CHECK_INT(exl2__workdir_load(&second, "ids", &read, 1, &found), EXL2_OK);
    CHECK(!found);
    CHECK_INT(exl2__workdir_load(&first, "ids", &read, 1, &found), EXL2_OK);
    CHECK(found && got == 77);
    /* one at a time, in one process, too */
    CHECK_INT(exl2__workdir_open(&c, work_dir, "version: 5\nseed: 1\n", &third), EXL2_ERR_STATE);
    snprintf(holder, sizeof holder, "out.work is in use by process %ld;", (long)getpid());
    CHECK(strstr(c.error.text, holder) != NULL && !third.lock);
    exl2__workdir_close(&first);
    CHECK_INT(exl2__workdir_open(&c, work_dir, "version: 5\nseed: 2\n", &third), EXL2_ERR_STATE);
    CHECK(strstr(c.error.text, "seed differs") != NULL && !third.lock);
    CHECK_INT(exl2__workdir_open(&c, work_dir, "version: 5\nseed: 1\n", &third), EXL2_OK);
    exl2__workdir_remove(&third);
    exl2__workdir_remove(&second);
    CHECK(access(work_dir, F_OK) != 0 && access(other, F_OK) != 0);
}

/* ---- a source that changes while it is converted ---- */

typedef struct change {
    const char *stage; /* the source changes when it is first reported */
    uint64_t at;       /* which byte of the weights */
    bool done;
    const char *back;  /* it changes back when this stage is first reported; NULL: it stays so */
    uint64_t every;    /* not 0: each of so many bytes from there on changes, too */
    exl2_convert_plan plan;
} change;

static void change_bytes(const change *s)
{
    char path[700];
    snprintf(path, sizeof path, "%s/model.safetensors", source_dir);
    FILE *file = fopen(path, "r+b");
    if (CHECK(file != NULL)) {
        uint64_t at = s->at;
        do {
            fseek(file, (long)at, SEEK_SET);
            int byte = fgetc(file);
            if (byte == EOF) {
                break;
            }
            fseek(file, (long)at, SEEK_SET);
            fputc(byte ^ 1, file);
            at += s->every;
        } while (s->every);
        fclose(file);
    }
}

static bool on_progress(void *user, const char *stage, float done)
{
    change *s = (change *)user;
    (void)done;
    if (s->stage && !s->done && strcmp(stage, s->stage) == 0) {
        change_bytes(s);
        s->done = true;
    } else if (s->done && s->back && strcmp(stage, s->back) == 0) {
        change_bytes(s);
        s->back = NULL;
    }
    return true;
}

/* Whenever it changes, and wherever: there is no output, and no part of both is kept. */
static void test_changes(void)
{
    static const char *const stages[] = { "measure", "quantize", "write", "compare" };
    char path[700];
    struct stat about;
    make_source();
    snprintf(path, sizeof path, "%s/model.safetensors", source_dir);
    CHECK(stat(path, &about) == 0);
    for (size_t i = 0; i < EXL2__COUNT(stages); i++) {
        exl2__ctx c = context();
        change s = { stages[i], (uint64_t)about.st_size * (i + 4) / 8, false, NULL, 0, { .bytes = 0 } };
        exl2_convert_desc d = rig_desc(source_dir, ROWS, LENGTH);
        d.bpw = 4;
        d.progress = on_progress;
        d.user = &s;
        CHECK_INT(exl2__convert_run(&c, &d), EXL2_ERR_STATE);
        if (!CHECK(s.done && strstr(c.error.text, "/source has changed while it was converted; convert it again"))) {
            printf("  %s: %s\n", stages[i], c.error.text);
        }
        CHECK(access(out_dir, F_OK) != 0 && access(work_dir, F_OK) != 0);
        CHECK_INT(c.host_bytes, 0);
    }
}

/* A hash of the files in out_dir; 0: there are none. */
static uint64_t output_hash(void)
{
    char name[EXL2__FILE_NAME_MAX], path[1000];
    uint64_t sum = 0;
    for (uint32_t i = 0; exl2__platform_entry(out_dir, i, name, sizeof name); i++) {
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", out_dir, name);
        char *data = check_read(path, &bytes);
        sum += CHECK(data != NULL) ? exl2__hash_words(data, bytes, exl2__hash(name, strlen(name))) : 0;
        free(data);
    }
    return sum;
}

static void on_plan(void *user, const exl2_convert_plan *plan)
{
    ((change *)user)->plan = *plan;
}

/* The source is another one for a while, and at the end it is what it was. A conversion that has read some of the other
   one, as a streamed one does, fails; the others make what they make of it undisturbed. */
static void test_changes_back(void)
{
    static const struct { const char *stage, *back; bool streamed; } cases[] = {
        { NULL, NULL, false },          { "measure", "write", false }, { "measure", "quantize", true },
        { "measure", "write", true },   { "quantize", "write", true }, { "write", "compare", true },
    };
    uint64_t host_bytes = 0, clean = 0;
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        exl2__ctx c = context();
        change s = { cases[i].stage, 70001, false, cases[i].back, 512, { .bytes = 0 } };
        exl2_convert_desc d = rig_desc(source_dir, ROWS, LENGTH);
        make_source();
        d.bpw = 4;
        d.progress = on_progress;
        d.on_plan = on_plan;
        d.user = &s;
        c.host_bytes_max = d.host_bytes_max = cases[i].streamed ? host_bytes - 1 : 0;
        exl2_result result = exl2__convert_run(&c, &d);
        host_bytes = i ? host_bytes : s.plan.host_bytes;
        CHECK(s.plan.streamed == cases[i].streamed && s.done == (i > 0));
        if (!CHECK(result == (cases[i].streamed ? EXL2_ERR_STATE : EXL2_OK) && (result < 0 || !s.back))) {
            printf("  %s to %s: %d, %s\n", cases[i].stage, cases[i].back, (int)result, c.error.text);
        }
        CHECK(result == EXL2_OK || strstr(c.error.text, "/source has changed while it was converted; convert it "));
        CHECK((result == EXL2_OK) == (output_hash() != 0) && access(work_dir, F_OK) != 0);
        clean = clean ? clean : output_hash();
        CHECK(result != EXL2_OK || output_hash() == clean);
        CHECK_INT(c.host_bytes, 0);
        remove_folder(out_dir);
    }
}

/* ---- another CPU ---- */

static bool on_progress_stops(void *user, const char *stage, float done)
{
    (void)user;
    return strcmp(stage, "quantize") != 0 || done < 0.5f;
}

/* A folder that was begun by one path of the CPU is not continued by another one. */
static void test_paths(void)
{
    static const exl2_cpu_path paths[] = { EXL2_CPU_C, EXL2_CPU_AVX2, EXL2_CPU_AVX512 };
    exl2_cpu_path best = exl2__cpu_path_best();
    uint64_t clean = 0;
    make_source();
    for (size_t i = 0; i < EXL2__COUNT(paths); i++) {
        exl2__ctx c = context();
        exl2_convert_desc d = rig_desc(source_dir, ROWS, LENGTH);
        d.bpw = 4;
        d.progress = on_progress_stops;
        if (paths[i] == best || (best > EXL2_CPU_AVX512 && i > 0) || paths[i] > best) {
            continue; /* it is this one, or this CPU has it not */
        }
        CHECK_INT(exl2__convert_run(&c, &d), EXL2_ERR_CANCELLED);
        c = context();
        c.cpu_path = paths[i];
        d.progress = NULL;
        CHECK_INT(exl2__convert_run(&c, &d), EXL2_ERR_STATE);
        if (!CHECK(strstr(c.error.text, "another conversion: cpu path differs (it has 'cpu path: ") != NULL)) {
            printf("  %s\n", c.error.text);
        }
        c = context();
        CHECK_INT(exl2__convert_run(&c, &d), EXL2_OK);
        clean = clean ? clean : output_hash();
        CHECK(output_hash() == clean && access(work_dir, F_OK) != 0);
        remove_folder(out_dir);
    }
}

/* ---- files ---- */

/* The same bytes are other ids in a file with another ending. */
static void test_endings(void)
{
    exl2__ctx c = context();
    exl2__convert v = { .c = &c };
    char path[700];
    uint64_t hashes[2] = { 0, 0 };
    static const char *const names[] = { "same.txt", "same.jsonl" };
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        FILE *file = fopen(path, "wb");
        CHECK(file && fputs("{\"text\": \"a\"}", file) >= 0);
        fclose(file);
        CHECK_INT(exl2__convert_file_hash(&v, path, &hashes[i]), EXL2_OK);
    }
    CHECK(hashes[0] != hashes[1]);
}

/* ---- random ids ---- */

static exl2_result random_ids(uint64_t seed, exl2_token ids[13 * LENGTH])
{
    char path[700];
    size_t bytes;
    exl2__ctx c = context();
    exl2_convert_desc d = rig_desc(source_dir, ROWS, LENGTH);
    d.bpw = 4;
    d.calibration_file_count = 0;
    d.random_ids = true;
    d.seed = seed;
    d.measure_only = true;
    remove_folder(out_dir);
    exl2_result result = exl2__convert_run(&c, &d);
    snprintf(path, sizeof path, "%s/calibration.json", out_dir);
    char *text = result < 0 ? NULL : check_read(path, &bytes), *at = text;
    for (uint32_t i = 0; at && i < 13 * LENGTH; i++) {
        at += strcspn(at, "0123456789");
        ids[i] = (exl2_token)strtol(at, &at, 10);
    }
    CHECK(at && strspn(at, "]\n") == strlen(at));
    free(text);
    return result;
}

/* All ids occur about equally often: of 832 ids in 8 parts of the vocabulary 104 each, with a standard deviation of
   9.5. The seed decides. */
static void test_random(void)
{
    static exl2_token first[13 * LENGTH], again[13 * LENGTH], other[13 * LENGTH];
    uint32_t counts[8] = { 0 };
    make_source();
    CHECK_INT(random_ids(7, first), EXL2_OK);
    CHECK_INT(random_ids(7, again), EXL2_OK);
    CHECK_INT(random_ids(8, other), EXL2_OK);
    CHECK(memcmp(first, again, sizeof first) == 0 && memcmp(first, other, sizeof first) != 0);
    for (uint32_t i = 0; i < EXL2__COUNT(first); i++) {
        if (CHECK(first[i] >= 0 && first[i] < VOCAB)) {
            counts[first[i] / (VOCAB / 8)]++;
        }
    }
    for (uint32_t i = 0; i < 8; i++) {
        CHECK(counts[i] > 55 && counts[i] < 153); /* 5 standard deviations */
    }
}

/* ---- where folders lie ---- */

static void test_places(void)
{
    static const struct {
        const char *path, *dir;
        bool inside;
    } cases[] = { { "a", "a", true },        { "a/b", "a", true },    { "a/new/x", "a", true },
                  { "ab", "a", false },      { "a", "a/b", false },   { "link/b", "a", true },
                  { "a/b", "link", true },   { "a/../c", "a", false }, { "a/b/..", "a", true },
                  { "new", "new", true },    { "new/x", "new", true }, { "new", "newer", false },
                  { "new", "new/x", false }, { "a/file", "a", true },  { "link", "a", true },
                  { "x/new", "y/new", false } };
    char path[700], dir[700], command[2000];
    snprintf(command, sizeof command, "cd '%s' && mkdir -p places/a/b places/c && cd places && ln -s a link && "
             ": >a/file", root);
    CHECK_INT(system(command), 0);
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        snprintf(path, sizeof path, "%s/places/%s", root, cases[i].path);
        snprintf(dir, sizeof dir, "%s/places/%s", root, cases[i].dir);
        if (!CHECK(exl2__folder_lies_in(path, dir) == cases[i].inside)) {
            printf("  %s in %s\n", cases[i].path, cases[i].dir);
        }
    }
    CHECK(exl2__folder_lies_in(root, "/") && !exl2__folder_lies_in("/", root) && !exl2__folder_lies_in(".", root));
    CHECK(exl2__folder_lies_in("tests", ".") && exl2__folder_lies_in("none", "."));
}

/* Each path of the desc may not be empty, nor NULL in a list. */
static void test_empty(void)
{
    const char *files[1] = { "" };
    for (uint32_t i = 0; i < 6; i++) {
        static const char *const parts[] = { "source_dir is an empty string", "out_dir is an empty string",
                                             "work_dir is an empty string", "calibration_files[0] is an empty string",
                                             "calibration_files[0] is NULL", "measurement_file is an empty string" };
        exl2__ctx c = context();
        exl2_convert_desc d = rig_desc(source_dir, ROWS, LENGTH);
        d.bpw = 4;
        d.source_dir = i == 0 ? "" : d.source_dir;
        d.out_dir = i == 1 ? "" : d.out_dir;
        d.work_dir = i == 2 ? "" : NULL;
        d.calibration_files = i == 3 || i == 4 ? files : d.calibration_files;
        files[0] = i == 4 ? NULL : "";
        d.measurement_file = i == 5 ? "" : NULL;
        remove_folder(out_dir);
        CHECK_INT(exl2__convert_run(&c, &d), EXL2_ERR_ARG);
        if (!CHECK(strcmp(c.error.text, parts[i]) == 0)) {
            printf("  %s\n", c.error.text);
        }
        CHECK(access(out_dir, F_OK) != 0 && access(work_dir, F_OK) != 0);
    }
}

static void test_empty_compare(void)
{
    const exl2_token tokens[2] = { 1, 2 };
    for (uint32_t i = 0; i < 2; i++) {
        exl2_error error = { 0 };
        exl2_compare_info info;
        exl2_compare_desc d = { 0 };
        d.a_dir = i == 0 ? "" : source_dir;
        d.b_dir = i == 1 ? "" : source_dir;
        d.tokens = tokens;
        d.token_count = 2;
        d.error = &error;
        CHECK_INT(exl2_compare(&d, &info), EXL2_ERR_ARG);
        CHECK(strstr(error.text, i == 0 ? "a_dir is an empty string" : "b_dir is an empty string") != NULL);
    }
}

int main(void)
{
    rig_open((ROWS + 2) * LENGTH, VOCAB);
    snprintf(work_dir, sizeof work_dir, "%s/out.work", root);
    snprintf(source_dir, sizeof source_dir, "%s/source", root);
    test_names();
    test_parts();
    test_changes();
    test_changes_back();
    test_paths();
    test_endings();
    test_random();
    test_places();
    test_empty();
    test_empty_compare();
    rig_close();
    return check_done();
}
