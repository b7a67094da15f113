/* convert_plan.c: what a conversion finds out before the work: sizes and needs against what is then made and used,
   numbers that FP16 cannot hold, memory, disks, rates; the size of the folder in place of a rate; and a disk that is
   full at each write once. */
#define _POSIX_C_SOURCE 200809L
#include "../convert_system.h"

#include "private/platform_write.h"
#include "../check.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a disk that can be full ---- */

enum { KEYS = 4096, HANDLES = 64 };

static struct {
    bool on;                  /* each operation fails once */
    uint64_t keys[KEYS];      /* operations that have failed */
    uint32_t count;
    char path[HANDLES][1024]; /* of open files */
    void *file[HANDLES];
    uint32_t number[HANDLES]; /* of writes to them */
    char failed[1024];        /* path of the latest failure */
    uint64_t disk_free;       /* what the system says */
} full_disk = { .disk_free = UINT64_MAX };

static uint32_t disk_find(const void *file)
{
    uint32_t i = 0;
    while (i + 1 < HANDLES && full_disk.file[i] != file) {
        i++;
    }
    return i;
}

/* Does this operation fail? Only once, and only one in each run. */
static bool disk_fails(char kind, const char *path, uint32_t number)
{
    uint64_t key = 1469598103934665603u + (uint64_t)kind + 1000u * number;
    for (const char *p = path; *p; p++) {
        key = (key ^ (uint8_t)*p) * 1099511628211u;
    }
    for (uint32_t i = 0; i < full_disk.count; i++) {
        if (full_disk.keys[i] == key) {
            return false;
        }
    }
    if (!full_disk.on || full_disk.count == KEYS || (CHECK_SANITIZED && key % 7 != 0)) {
        return false;
    }
    full_disk.keys[full_disk.count++] = key;
    full_disk.on = false;
    snprintf(full_disk.failed, sizeof full_disk.failed, "%s", path);
    return true;
}

static void *disk_create(const char *path)
{
    void *file = disk_fails('c', path, 0) ? NULL : exl2__platform_create(path);
    uint32_t i = disk_find(NULL);
    if (file) {
        full_disk.file[i] = file;
        full_disk.number[i] = 0;
        snprintf(full_disk.path[i], sizeof full_disk.path[i], "%s", path);
    }
    return file;
}

static bool disk_write(void *file, uint64_t offset, const void *data, size_t bytes)
{
    uint32_t i = disk_find(file);
    bool fails = disk_fails('w', full_disk.path[i], ++full_disk.number[i]);
    return !fails && exl2__platform_write(file, offset, data, bytes);
}

static bool disk_sync(void *file)
{
    return !disk_fails('s', full_disk.path[disk_find(file)], 0) && exl2__platform_sync(file);
}

static bool disk_finish(void *file)
{
    uint32_t i = disk_find(file);
    bool fails = disk_fails('f', full_disk.path[i], 0);
    full_disk.file[i] = NULL;
    return exl2__platform_finish(file) && !fails;
}

static bool disk_replace(const char *from, const char *to)
{
    return !disk_fails('r', from, 0) && exl2__platform_replace(from, to);
}

static bool disk_free(const char *path, uint64_t *bytes)
{
    bool known = exl2__platform_disk_free(path, bytes);
    CHECK(known && *bytes > 0); /* the system can say it */
    *bytes = full_disk.disk_free;
    return true;
}

static uint64_t clock_step; /* what the clock jumps by at each call */

static uint64_t clock_ns(void)
{
    static uint64_t jumped;
    jumped += clock_step;
    return exl2__platform_ns() + jumped;
}

#include "private/convert.h"
#include "../convert_rig.h"

enum { ROWS = 2, LENGTH = 32, VOCAB = 320 };

static char work_dir[640], source_dir[640];

static uint64_t folder_bytes(const char *dir)
{
    char name[EXL2__FILE_NAME_MAX], path[1400];
    uint64_t sum = 0;
    for (uint32_t i = 0; exl2__platform_entry(dir, i, name, sizeof name); i++) {
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", dir, name);
        CHECK(stat(path, &info) == 0);
        sum += (uint64_t)info.st_size;
    }
    return sum;
}

/* Copies a model of the goldens to source_dir. */
static void copy_model(const char *model)
{
    char path[1400], from[640], name[EXL2__FILE_NAME_MAX];
    remove_folder(source_dir);
    CHECK(exl2__platform_make_dir(source_dir));
    snprintf(from, sizeof from, "%s/models/%s", EXL2_GOLDEN_DIR, model);
    for (uint32_t i = 0; exl2__platform_entry(from, i, name, sizeof name); i++) {
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", from, name);
        char *data = check_read(path, &bytes);
        snprintf(path, sizeof path, "%s/%s", source_dir, name);
        FILE *file = fopen(path, "wb");
        CHECK(file && fwrite(data, 1, bytes, file) == bytes);
        fclose(file);
        free(data);
    }
}

/* Overwrites the first number of a tensor, which has two bytes. */
static void poison(const char *tensor, uint16_t number)
{
    char path[700], key[200];
    size_t bytes;
    snprintf(path, sizeof path, "%s/model.safetensors", source_dir);
    char *data = check_read(path, &bytes);
    uint64_t header = exl2__load64((const uint8_t *)data);
    unsigned long long at = 0;
    snprintf(key, sizeof key, "\"%s\"", tensor);
    data[8 + header - 1] = 0;
    const char *entry = strstr(data + 8, key), *offsets = entry ? strstr(entry, "\"data_offsets\"") : NULL;
    if (CHECK(offsets && sscanf(strchr(offsets, '['), "[%llu", &at) == 1)) {
        FILE *file = fopen(path, "r+b");
        fseek(file, (long)(8 + header + at), SEEK_SET);
        CHECK(fwrite(&number, 1, 2, file) == 2);
        fclose(file);
    }
    free(data);
}

/* Says that a tensor of F16 is one of BF16. The header needs a byte more, which is one of the spaces at its end. */
static void make_bf16(const char *tensor)
{
    char path[700], key[200];
    size_t bytes;
    snprintf(path, sizeof path, "%s/model.safetensors", source_dir);
    char *data = check_read(path, &bytes), *end = data + 8 + exl2__load64((const uint8_t *)data);
    snprintf(key, sizeof key, "\"%s\"", tensor);
    char *entry = strstr(data + 8, key), *type = entry ? strstr(entry, "F16") : NULL;
    if (CHECK(type && end[-1] == ' ')) {
        memmove(type + 1, type, (size_t)(end - type) - 1);
        *type = 'B';
    }
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(data, 1, bytes, file) == bytes);
    fclose(file);
    free(data);
}

/* ---- conversions ---- */

typedef struct watch {
    exl2_convert_plan plan;
    uint32_t plans, calls_before, calls;
    uint64_t bytes, most; /* memory */
} watch;

static void on_plan(void *user, const exl2_convert_plan *plan)
{
    watch *w = (watch *)user;
    w->plan = *plan;
    w->plans++;
    w->calls_before = w->calls;
}

static bool on_progress(void *user, const char *stage, float done)
{
    (void)stage;
    (void)done;
    ((watch *)user)->calls++;
    return true;
}

static void *heap_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    watch *w = (watch *)user;
    exl2_allocator plain = exl2__platform_allocator();
    w->bytes += bytes;
    w->most = w->bytes > w->most ? w->bytes : w->most;
    return plain.alloc_fn(plain.user, bytes, align, tag);
}

static void heap_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    exl2_allocator plain = exl2__platform_allocator();
    ((watch *)user)->bytes -= bytes;
    plain.free_fn(plain.user, memory, bytes, tag);
}

static exl2_convert_desc describe(watch *w)
{
    exl2_convert_desc d = rig_desc(source_dir, ROWS, LENGTH);
    d.progress = on_progress;
    d.on_plan = on_plan;
    d.user = w;
    return d;
}

static exl2_result run(const exl2_convert_desc *d, watch *w, exl2__ctx *c)
{
    *c = (exl2__ctx){ 0 };
    c->allocator = (exl2_allocator){ .alloc_fn = heap_alloc, .free_fn = heap_free, .user = w };
    c->files = exl2__platform_files();
    c->cpu_path = exl2__cpu_path_best();
    c->host_bytes_max = d->host_bytes_max;
    exl2_result result = exl2__convert_run(c, d);
    CHECK_INT(w->bytes, 0);
    return result;
}

static bool good(exl2_result result, const exl2__ctx *c)
{
    bool fine = CHECK_INT(result, EXL2_OK);
    if (!fine) {
        printf("  %s\n", c->error.text);
    }
    return fine;
}

/* What was foretold, and what was made and used. */
static void test_plan(void)
{
    static const char *const models[] = { "qwen3", "starcoder2", "exl2-qwen3-moe" };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        watch w = { 0 };
        exl2__ctx c;
        exl2_convert_desc d = describe(&w);
        copy_model(models[i]);
        remove_folder(out_dir);
        d.bpw = 4;
        d.head_bits = 8;
        d.work_dir = work_dir;
        if (good(run(&d, &w, &c), &c)) {
            uint64_t bytes = folder_bytes(out_dir), kept = folder_bytes(work_dir);
            printf("%s: %llu bytes, foretold %llu; disk %llu, foretold %llu; memory %llu, foretold %llu\n", models[i],
                   (unsigned long long)bytes, (unsigned long long)w.plan.bytes, (unsigned long long)(bytes + kept),
                   (unsigned long long)w.plan.disk_bytes, (unsigned long long)w.most,
                   (unsigned long long)w.plan.host_bytes);
            CHECK(w.plans == 1 && w.calls_before == 1 && w.calls > 5); /* after "load" alone */
            CHECK(bytes <= w.plan.bytes && (double)bytes > 0.99 * (double)w.plan.bytes);
            CHECK(w.plan.bytes_least < bytes && bytes < w.plan.bytes_most);
            CHECK(fabs((double)w.plan.bpw - 4) < 0.01 && w.plan.bpw_least > 2 && w.plan.bpw_most < 10);
            CHECK((double)(bytes + kept) < 1.02 * (double)w.plan.disk_bytes);
            CHECK((double)(bytes + kept) > 0.8 * (double)w.plan.disk_bytes);
            CHECK((double)w.most < 1.02 * (double)w.plan.host_bytes);
            CHECK((double)w.most > 0.9 * (double)w.plan.host_bytes);
        }
        remove_folder(work_dir);
    }
}

/* Both folders have the same files with the same bytes. */
static void check_same(const char *a, const char *b)
{
    char name[EXL2__FILE_NAME_MAX], path[1400];
    CHECK_INT(folder_bytes(a), folder_bytes(b));
    for (uint32_t i = 0; exl2__platform_entry(a, i, name, sizeof name); i++) {
        size_t sizes[2];
        snprintf(path, sizeof path, "%s/%s", a, name);
        char *x = check_read(path, &sizes[0]);
        snprintf(path, sizeof path, "%s/%s", b, name);
        char *y = check_read(path, &sizes[1]);
        CHECK(sizes[0] == sizes[1] && memcmp(x, y, sizes[0]) == 0);
        free(x);
        free(y);
    }
}

static const char *const twice[] = { "qwen3", "starcoder2", "exl2-qwen3-moe" };
static char first_dir[700];

/* A conversion of twice[i], without folders of earlier ones. */
static exl2_convert_desc describe_twice(size_t i, watch *w)
{
    copy_model(twice[i]);
    remove_folder(out_dir);
    remove_folder(first_dir);
    return describe(w);
}

/* A model that does not fit is streamed, within what was foretold, and the folder is the same. */
static void test_streamed(void)
{
    for (size_t i = 0; i < sizeof twice / sizeof twice[0]; i++) {
        watch w = { 0 };
        exl2__ctx c;
        exl2_convert_desc d = describe_twice(i, &w);
        d.bpw = 4;
        d.out_dir = first_dir;
        good(run(&d, &w, &c), &c);
        CHECK(!w.plan.streamed && !w.plan.own_text);
        uint64_t whole = w.most;
        d.out_dir = out_dir;
        d.host_bytes_max = w.plan.host_bytes - 1;
        w = (watch){ 0 };
        good(run(&d, &w, &c), &c);
        CHECK(w.plan.streamed && !w.plan.own_text && w.plan.host_bytes < d.host_bytes_max);
        printf("%s: memory %llu, foretold %llu; %llu with all weights\n", twice[i], (unsigned long long)w.most,
               (unsigned long long)w.plan.host_bytes, (unsigned long long)whole);
        CHECK(w.most <= w.plan.host_bytes && w.most < whole);
        check_same(first_dir, out_dir);
        d.host_bytes_max = w.plan.host_bytes; /* what was foretold is enough */
        remove_folder(out_dir);
        good(run(&d, &w, &c), &c);
        remove_folder(first_dir);
    }
}

static uint32_t stop_after; /* calls of on_progress; 0: never */

static bool on_progress_stops(void *user, const char *stage, float done)
{
    return on_progress(user, stage, done) && ((watch *)user)->calls != stop_after;
}

/* Corrected targets: other matrices, as good ones, within what was foretold. A conversion that was stopped anywhere
   continues, and one that is streamed makes the same folder. */
static void test_corrected(void)
{
    for (size_t i = 0; i < sizeof twice / sizeof twice[0]; i++) {
        watch w = { 0 };
        exl2__ctx c;
        exl2_convert_info plain = { 0 }, info = { 0 };
        exl2_convert_desc d = describe_twice(i, &w);
        d.bpw = 3;
        d.rows = 6;
        d.info = &plain;
        good(run(&d, &w, &c), &c);
        remove_folder(out_dir);
        d.corrected = true;
        d.out_dir = first_dir;
        d.info = &info;
        w = (watch){ 0 };
        good(run(&d, &w, &c), &c);
        printf("%s: KL %.4f, corrected %.4f; memory %llu, foretold %llu; %u calls\n", twice[i], plain.kl, info.kl,
               (unsigned long long)w.most, (unsigned long long)w.plan.host_bytes, w.calls);
        CHECK(w.most <= w.plan.host_bytes && info.kl != plain.kl && info.kl < 1.25 * plain.kl + 0.01);
        d.out_dir = out_dir;
        d.progress = on_progress_stops;
        d.host_bytes_max = w.plan.host_bytes - 1;
        clock_step = 51000000000u; /* the states are saved after each layer */
        uint32_t stops = 0;
        exl2_result result = EXL2_ERR_CANCELLED;
        for (stop_after = 4; result == EXL2_ERR_CANCELLED; stop_after += 3) { /* a call later each time: it ends */
            w = (watch){ 0 };
            result = run(&d, &w, &c);
            stops += result == EXL2_ERR_CANCELLED;
        }
        clock_step = 0;
        good(result, &c);
        CHECK(stops >= 3 && w.plan.streamed && w.most <= w.plan.host_bytes);
        check_same(first_dir, out_dir);
        remove_folder(first_dir);
    }
}

/* The folder has at most the size that was asked for, and not much less. */
static void test_size(void)
{
    watch w = { 0 };
    exl2__ctx c;
    exl2_convert_info info = { 0 };
    exl2_convert_desc d = describe(&w);
    copy_model("qwen3");
    d.bpw = 4;
    d.info = &info;
    remove_folder(out_dir);
    good(run(&d, &w, &c), &c);
    uint64_t least = w.plan.bytes_least, most = w.plan.bytes_most;
    float before = 0, head_before = 0;
    for (uint32_t i = 1; i < 4; i++) {
        w = (watch){ 0 };
        d = describe(&w);
        d.info = &info;
        d.size_bytes = least + (most - least) * i / 4;
        remove_folder(out_dir);
        if (good(run(&d, &w, &c), &c)) {
            uint64_t bytes = folder_bytes(out_dir);
            printf("%llu of %llu bytes: %.2f bits per weight, head %.2f, KL %.4f\n", (unsigned long long)bytes,
                   (unsigned long long)d.size_bytes, (double)info.bpw, (double)info.head_bpw, info.kl);
            CHECK(bytes <= d.size_bytes && bytes + 1024 > d.size_bytes && w.plan.bytes <= d.size_bytes);
            CHECK(info.bpw > before && info.head_bpw >= head_before && info.warning[0] == 0);
            before = info.bpw;
            head_before = info.head_bpw;
        }
    }
    CHECK(head_before > 5); /* the head has joined */
    d.head_bits = 3; /* a fixed head leaves more for the rest */
    remove_folder(out_dir);
    if (good(run(&d, &w, &c), &c)) {
        CHECK(folder_bytes(out_dir) <= d.size_bytes && info.head_bpw < 4.7f && info.bpw > before);
    }
    d.head_bits = 0;
    d.size_bytes = most * 2;
    remove_folder(out_dir);
    if (good(run(&d, &w, &c), &c)) {
        CHECK(strstr(info.warning, "more was asked for than this model can have, ") != NULL);
        CHECK(info.bpw > 8 && info.head_bpw > 8);
    }
}

static void check_rejected(const exl2_convert_desc *d, exl2_result code, const char *piece, const char *other)
{
    watch w = { 0 };
    exl2__ctx c;
    exl2_convert_desc own = *d;
    own.user = &w;
    remove_folder(out_dir);
    CHECK_INT(run(&own, &w, &c), code);
    if (!CHECK(strstr(c.error.text, piece) && strstr(c.error.text, other))) {
        printf("  \"%s\" should hold \"%s\" and \"%s\"\n", c.error.text, piece, other);
    }
    CHECK(w.plans == 0 && w.calls <= 1 && access(out_dir, F_OK) != 0);
    remove_folder(work_dir);
}

/* A work folder in OUT would be lost with it, or keep it from becoming complete. */
static void test_work_in_out(void)
{
    static const char *const places[] = { "%s", "%s/.", "%s/work", "%s.unfinished", "%s.unfinished/work" };
    char dir[700];
    exl2_convert_desc d = describe(NULL);
    copy_model("qwen3");
    d.bpw = 4;
    d.work_dir = dir;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        watch w = { 0 };
        exl2__ctx c;
        d.user = &w;
        snprintf(dir, sizeof dir, places[i], out_dir);
        remove_folder(out_dir);
        CHECK(exl2__platform_make_dir(out_dir));
        CHECK_INT(run(&d, &w, &c), EXL2_ERR_ARG);
        CHECK(strstr(c.error.text, "the work folder ") && strstr(c.error.text, " lies in "));
        snprintf(dir, sizeof dir, "%s.unfinished", out_dir);
        CHECK(w.plans == 0 && access(dir, F_OK) != 0);
    }
}

static void write_constant(const char *path, uint32_t id, uint32_t count)
{
    FILE *file = fopen(path, "wb");
    for (uint32_t i = 0; i < count; i++) {
        fprintf(file, "%s%u", i ? "," : "[", id);
    }
    fputs("]", file);
    fclose(file);
}

/* Two files with more rows than are wanted: rows of both are used. */
static void test_rows_of_files(void)
{
    watch w = { 0 };
    exl2__ctx c;
    char paths[2][700], path[1400];
    const char *files[2] = { paths[0], paths[1] };
    size_t bytes;
    exl2_convert_desc d = describe(&w);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/constant%u.json", root, i);
        write_constant(paths[i], 7 + i, 10 * LENGTH);
    }
    copy_model("qwen3");
    remove_folder(out_dir);
    d.bpw = 3;
    d.calibration_files = files;
    d.calibration_file_count = 2;
    d.work_dir = work_dir;
    good(run(&d, &w, &c), &c);
    snprintf(path, sizeof path, "%s/ids", work_dir);
    char *ids = check_read(path, &bytes);
    if (CHECK(bytes >= 3 * LENGTH * sizeof(exl2_token))) { /* two rows, and one that is kept out */
        static const exl2_token wanted[] = { 7, 7, 8 };
        for (uint32_t i = 0; i < 3 * LENGTH; i++) {
            exl2_token id;
            memcpy(&id, ids + bytes - 3 * LENGTH * sizeof id + i * sizeof id, sizeof id);
            CHECK_INT(id, wanted[i / LENGTH]);
        }
    }
    free(ids);
    remove_folder(work_dir);
}

/* After a rejected rate the work folder is gone. Where it was given it stays, and accepts another rate: nothing in it
   is worth keeping. */
static void test_second_try(void)
{
    watch w = { 0 };
    exl2__ctx c;
    exl2_convert_desc d = describe(&w);
    copy_model("qwen3");
    remove_folder(out_dir);
    d.bpw = 2.01f;
    CHECK_INT(run(&d, &w, &c), EXL2_ERR_ARG);
    CHECK(access(work_dir, F_OK) != 0);
    d.work_dir = work_dir;
    CHECK_INT(run(&d, &w, &c), EXL2_ERR_ARG);
    CHECK(access(work_dir, F_OK) == 0);
    d.bpw = 3;
    good(run(&d, &w, &c), &c);
    CHECK(access(work_dir, F_OK) == 0 && remove_folder(work_dir));
}

static void test_rejected(void)
{
    exl2_convert_desc d = describe(NULL);
    copy_model("qwen3");
    d.bpw = 4;
    d.size_bytes = 1 << 20;
    check_rejected(&d, EXL2_ERR_ARG, "size_bytes and bpw are both given", "");
    d.bpw = 0;
    d.measure_only = true;
    check_rejected(&d, EXL2_ERR_ARG, "size_bytes and measure_only are both given", "");
    d.size_bytes = 0;
    d.corrected = true;
    check_rejected(&d, EXL2_ERR_ARG, "corrected and measure_only are both given", "");
    d = describe(NULL);
    d.size_bytes = 20000;
    check_rejected(&d, EXL2_ERR_ARG, "the folder of this model can have 0.1 MiB to ", "; 0.1 MiB are too few");
    d = describe(NULL);
    d.bpw = 4;
    d.host_bytes_max = 6800000;
    check_rejected(&d, EXL2_ERR_BUDGET, "needs about 6.7 MiB of memory", "host_bytes_max is 6.5 MiB, with one layer at "
                   "a time");
    d.host_bytes_max = 0;
    full_disk.disk_free = 100000;
    check_rejected(&d, EXL2_ERR_IO, "the conversion needs ", "of disk, but 0.1 MiB are free there");
    d.work_dir = work_dir;
    full_disk.disk_free = 10000;
    check_rejected(&d, EXL2_ERR_IO, "out.work: the conversion needs ", "are free there");
    full_disk.disk_free = UINT64_MAX;
    d.work_dir = NULL;
    poison("model.layers.1.mlp.down_proj.weight", 0x7E00); /* NaN */
    check_rejected(&d, EXL2_ERR_FORMAT, "model.layers.1.mlp.down_proj has a weight (output 0, input 0) that is not "
                   "finite", "");
    copy_model("qwen3");
    make_bf16("model.layers.1.post_attention_layernorm.weight");
    poison("model.layers.1.post_attention_layernorm.weight", 0x7F00); /* 1.7e38 */
    check_rejected(&d, EXL2_ERR_FORMAT, "'model.layers.1.post_attention_layernorm.weight' has a number that is not "
                   "finite or larger than 65504", "");
    copy_model("qwen3");
}

/* Each write, sync and close of each file fails once, and the next run continues. */
static void test_full(void)
{
    watch w = { 0 };
    exl2__ctx c;
    exl2_convert_desc d = describe(&w);
    char path[700];
    size_t bytes, again = 0;
    uint32_t runs = 0;
    copy_model("qwen3");
    d.bpw = 4;
    remove_folder(out_dir);
    good(run(&d, &w, &c), &c);
    snprintf(path, sizeof path, "%s/output.safetensors", out_dir);
    char *whole = check_read(path, &bytes);
    remove_folder(out_dir);
    for (exl2_result result = EXL2_ERR_IO; result < 0 && runs < KEYS; runs++) {
        full_disk.on = true;
        result = run(&d, &w, &c);
        if (result < 0) {
            CHECK_INT(result, EXL2_ERR_IO);
            if (!CHECK(strstr(c.error.text, full_disk.failed) != NULL)) {
                printf("  \"%s\" should hold \"%s\"\n", c.error.text, full_disk.failed);
            }
            CHECK(access(out_dir, F_OK) != 0);
            snprintf(path, sizeof path, "%s.unfinished", out_dir);
            CHECK(access(path, F_OK) != 0);
        }
    }
    full_disk.on = false;
    printf("%u operations on files have failed\n", full_disk.count);
    CHECK(runs > (CHECK_SANITIZED ? 10 : 100) && full_disk.count + 1 == runs);
    snprintf(path, sizeof path, "%s/output.safetensors", out_dir);
    char *other = check_read(path, &again);
    CHECK(bytes == again && memcmp(whole, other, bytes) == 0 && access(work_dir, F_OK) != 0);
    free(whole);
    free(other);
}

int main(void)
{
    convert_system = (convert_system_calls){ .ns = clock_ns, .disk_free = disk_free, .create = disk_create,
                                             .write = disk_write, .sync = disk_sync, .finish = disk_finish,
                                             .replace = disk_replace };
    rig_open((ROWS + 2) * LENGTH, VOCAB);
    snprintf(work_dir, sizeof work_dir, "%s/out.work", root);
    snprintf(source_dir, sizeof source_dir, "%s/model", root);
    snprintf(first_dir, sizeof first_dir, "%s/first", root);
    test_plan();
    test_streamed();
    test_corrected();
    test_size();
    test_rejected();
    test_work_in_out();
    test_second_try();
    test_rows_of_files();
    test_full();
    rig_close();
    return check_done();
}
