/* kernels.c: every kernel compiles for every architecture that it exists for, without spills, stack, local memory,
   warnings, serialized wgmma, or more than 48 KiB of static shared memory. The list of kernels is complete and has no
   others.
   While the kernels are those of tests/golden/kernels.txt, every twelfth module is compiled, for 9.0, unless
   EXL2_TEST_ALL is set (tests/run.sh --all). When all architectures have passed, it prints what to write there.
   takes: NVRTC: EXL2_NVRTC, or the one next to the nvcc on PATH; run in the root of the tree. By hand also a module and
          an architecture: `kernels gemv1.cu 89` compiles and prints the assembler's report. nvdisasm (sass.h), if there
          is one, to count the instructions of products of one row.
   gives: exit code 77 without NVRTC.
   owns:  reports of modules that compiled, in $XDG_CACHE_HOME/exl2-kernel-reports or ~/.cache/exl2-kernel-reports. A
          module is compiled again when its key changes: its text with all that it includes, options, architecture, and
          every byte of the NVRTC library. The checks read a kept report as they read a new one. */
#define _XOPEN_SOURCE 700
#define EXL2_KERNEL_DIR "kernels_src"
#include "private/cuda_kernels.h"
#include "check.h"
#include "sass.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATIC_SHARED_MAX 49152
#define THREADS 4

static const uint32_t archs[] = { 75, 80, 86, 89, 90, 100, 120 };
#define ARCHS (sizeof archs / sizeof archs[0])

static exl2__cuda_nvrtc nvrtc;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the check counters, stdout and the next task */
static uint32_t modules[EXL2__KERNEL_COUNT], module_count, next_task;
static const char *only_module;
static uint32_t only_arch;
static bool few; /* every twelfth module, for 90 */
static char reports[3000];    /* the folder of kept reports; empty: none are kept */
static uint64_t nvrtc_hash;   /* of the library's version and bytes */
static uint32_t compiled, kept;

static void line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user;
    (void)level;
    (void)id;
    (void)code;
    printf("%s\n", text);
}

/* Hashes the library that was opened from this path. A name without a folder is the loader's to find: nothing is kept
   then, as the file is not known. */
static bool hash_nvrtc(const char *path)
{
    static char bytes[1 << 20];
    int version[2] = { 0, 0 };
    FILE *file = strchr(path, '/') ? fopen(path, "rb") : NULL;
    if (!file || nvrtc.version(&version[0], &version[1]) != 0) {
        return false;
    }
    nvrtc_hash = exl2__hash(version, sizeof version);
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, file)) > 0;) {
        nvrtc_hash = exl2__hash_words(bytes, got, nvrtc_hash);
    }
    bool whole = !ferror(file);
    fclose(file);
    return whole;
}

/* Finds or makes the folder of kept reports, if NVRTC's file could be read. */
static void open_reports(const char *nvrtc_path)
{
    const char *cache = check_env("XDG_CACHE_HOME"), *home = check_env("HOME");
    if (!hash_nvrtc(nvrtc_path)) {
        return;
    }
    if (cache) {
        snprintf(reports, sizeof reports, "%s", cache);
    } else if (home) {
        snprintf(reports, sizeof reports, "%s/.cache", home);
    } else {
        return;
    }
    mkdir(reports, 0755);
    strncat(reports, "/exl2-kernel-reports", sizeof reports - strlen(reports) - 1);
    mkdir(reports, 0755);
    if (access(reports, W_OK) != 0) {
        reports[0] = 0;
    }
}

static bool open_beside(const char *folder)
{
    static const char *const names[] = { "libnvrtc.so.13", "libnvrtc.so.12" };
    static const char *const places[] = { "lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu" };
    char path[4200], why[200];
    for (size_t p = 0; p < 4; p++) {
        for (size_t n = 0; n < 2; n++) {
            snprintf(path, sizeof path, "%s/%s/%s", folder, places[p], names[n]);
            if (exl2__cuda_nvrtc_open(path, &nvrtc, why, sizeof why) == EXL2_OK) {
                open_reports(path);
                return true;
            }
        }
    }
    return false;
}

/* Opens $EXL2_NVRTC, or else the NVRTC of the toolkit whose nvcc comes first on PATH. */
static bool open_nvrtc(void)
{
    char why[200], *path = getenv("PATH"), copy[16384], file[4096], real[4096];
    const char *given = check_env("EXL2_NVRTC");
    if (given) {
        bool open = exl2__cuda_nvrtc_open(given, &nvrtc, why, sizeof why) == EXL2_OK;
        if (open) {
            open_reports(given);
        }
        return open;
    }
    snprintf(copy, sizeof copy, "%s:/usr/local/cuda/bin", path ? path : "");
    for (char *folder = strtok(copy, ":"); folder; folder = strtok(NULL, ":")) {
        snprintf(file, sizeof file, "%s/nvcc", folder);
        if (realpath(file, real)) {
            for (int up = 0; up < 2; up++) { /* TOOLKIT/bin/nvcc */
                char *slash = strrchr(real, '/');
                *(slash ? slash : real) = 0;
            }
            if (open_beside(real)) {
                return true;
            }
        }
    }
    return false;
}

/* The number before `unit` in a line; 0 if the line has no such unit. */
static long number_before(const char *text, size_t bytes, const char *unit)
{
    size_t length = strlen(unit);
    for (size_t i = 0; i + length <= bytes; i++) {
        if (memcmp(text + i, unit, length) == 0) {
            size_t start = i;
            while (start > 0 && (text[start - 1] == ' ' || (text[start - 1] >= '0' && text[start - 1] <= '9'))) {
                start--;
            }
            return strtol(text + start, NULL, 10);
        }
    }
    return 0;
}

/* ---- the assembler's report ---- */

static void check_line(const char *what, const char *text, size_t bytes)
{
    static const char *const never[] = { " bytes stack frame", " bytes spill stores", " bytes spill loads",
                                         " bytes lmem" };
    for (size_t i = 0; i < 4; i++) {
        long count = number_before(text, bytes, never[i]);
        check_count++;
        if (count != 0) {
            check_failures++;
            printf("%s: %.*s\n", what, (int)bytes, text);
            return;
        }
    }
    long shared = number_before(text, bytes, " bytes smem");
    check_count++;
    if (shared > STATIC_SHARED_MAX) {
        check_failures++;
        printf("%s: %ld bytes of static shared memory, at most %d: %.*s\n", what, shared, STATIC_SHARED_MAX, (int)bytes,
               text);
    }
}

/* Whether the list has this function of this module. */
static bool listed(const char *module, const char *function, size_t bytes)
{
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        const exl2__cuda_kernel_row *row = &exl2__cuda_kernel_rows[i];
        if (strcmp(row->module, module) == 0 && strlen(row->function) == bytes
            && memcmp(row->function, function, bytes) == 0) {
            return true;
        }
    }
    return false;
}

static void check_log(const char *what, const char *module, const char *log)
{
    static const char entry[] = "Compiling entry function '";
    for (const char *at = log; *at;) {
        size_t bytes = strcspn(at, "\n");
        check_line(what, at, bytes);
        at += bytes + (at[bytes] != 0);
    }
    /* (C75..) are remarks about wgmma: products that wait for each other, fences that were missing */
    if (strstr(log, "warning") || strstr(log, "Warning") || strstr(log, "(C75")) {
        check_failures++;
        printf("%s: warnings:\n%s\n", what, log);
    }
    for (const char *at = log; (at = strstr(at, entry)) != NULL;) {
        at += sizeof entry - 1;
        size_t bytes = strcspn(at, "'\n");
        check_count++;
        if (!listed(module, at, bytes)) {
            check_failures++;
            printf("%s: kernels.def.h does not list %.*s\n", what, (int)bytes, at);
        }
    }
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        char quoted[160];
        snprintf(quoted, sizeof quoted, "%s%s'", entry, exl2__cuda_kernel_rows[i].function);
        if (strcmp(exl2__cuda_kernel_rows[i].module, module) == 0 && !strstr(log, quoted)) {
            check_failures++;
            printf("%s: has no kernel %s\n", what, exl2__cuda_kernel_rows[i].function);
        }
    }
}

/* The most instructions of a pair of whole chunks of 2, 3 and 4 bits: their number decides the speed of decode. */
static void check_pairs(const exl2__blob *image)
{
    static const long most[3] = { 355, 395, 345 };
    long counts[3];
    if (!sass_available()) {
        printf("no nvdisasm (EXL2_NVDISASM): instructions were not counted\n");
        return;
    }
    sass_pairs(image->data, image->bytes, counts);
    printf("a pair of chunks of 2, 3 and 4 bits: %ld, %ld, %ld instructions\n", counts[0], counts[1], counts[2]);
    for (int i = 0; i < 3; i++) {
        CHECK(counts[i] > 0 && counts[i] <= most[i]);
    }
}

/* ---- kept reports: the key on the first line, then the report ---- */

static void report_path(const char *key, char *path, size_t cap)
{
    snprintf(path, cap, "%s/%s-%016llx", reports, key, (unsigned long long)nvrtc_hash);
}

/* The report that is kept under this key, with a zero behind it; NULL: none. The caller frees it. */
static char *report_load(const char *key)
{
    char path[3200], first[EXL2__CUDA_KEY_MAX + 2];
    struct stat status;
    char *report = NULL;
    report_path(key, path, sizeof path);
    FILE *file = reports[0] && !only_module ? fopen(path, "rb") : NULL;
    if (!file) {
        return NULL;
    }
    if (fgets(first, sizeof first, file) && strncmp(first, key, strlen(key)) == 0 && first[strlen(key)] == '\n'
        && fstat(fileno(file), &status) == 0) {
        size_t bytes = (size_t)status.st_size - strlen(first);
        report = (char *)malloc(bytes + 1);
        if (report && fread(report, 1, bytes, file) == bytes) {
            report[bytes] = 0;
        } else {
            free(report);
            report = NULL;
        }
    }
    fclose(file);
    return report;
}

/* Keeps a report. The file appears whole or not at all, as several programs may run at once. */
static void report_store(const char *key, const char *report)
{
    char path[3200], beside[3300];
    report_path(key, path, sizeof path);
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    FILE *file = reports[0] ? fopen(beside, "wb") : NULL;
    if (!file) {
        return;
    }
    bool written = fprintf(file, "%s\n%s", key, report) > 0;
    written = fclose(file) == 0 && written;
    if (!written || rename(beside, path) != 0) {
        remove(beside);
    }
}

/* ---- tasks: one module for one architecture ---- */

/* The counts of instructions need the image, so this module is compiled each time where they can be counted. */
static bool counts_pairs(const char *module, uint32_t arch)
{
    return arch == 90 && strcmp(module, "gemv1_large.cu") == 0;
}

static void compile(exl2__ctx *c, const char *module, uint32_t arch)
{
    exl2__cuda_source source = { 0 };
    exl2__cuda_compile job = { .nvrtc = &nvrtc, .source = &source, .target = { arch, false } };
    exl2__blob image = { 0 }, log = { 0 };
    char what[80], target[16], key[EXL2__CUDA_KEY_MAX];
    char *report = NULL;
    uint64_t start = exl2__platform_ns();
    exl2__cuda_target_name(job.target, target, sizeof target);
    snprintf(what, sizeof what, "%s for %s", module, target);
    job.options[job.option_count++] = "--ptxas-options=-v";
    exl2_result result = exl2__cuda_source_open(c, NULL, module, &source);
    if (result == EXL2_OK) {
        exl2__cuda_key(&source, job.target, job.options, job.option_count, key);
        report = counts_pairs(module, arch) && sass_available() ? NULL : report_load(key);
    }
    if (result == EXL2_OK && !report) {
        exl2__cuda_compile_run(&job);
        result = exl2__cuda_compile_finish(c, &job, &image, &log);
    }
    pthread_mutex_lock(&lock);
    CHECK_INT(result, EXL2_OK);
    if (result == EXL2_OK) {
        check_log(what, module, report ? report : log.data);
        if (only_module) {
            printf("%s", log.data);
        }
        if (counts_pairs(module, arch)) {
            check_pairs(&image);
        }
        if (report) {
            kept++;
        } else {
            compiled++;
            report_store(key, log.data);
            printf("%s: %llu bytes, %llu ms\n", what, (unsigned long long)image.bytes,
                   (unsigned long long)((exl2__platform_ns() - start) / 1000000));
        }
    } else {
        printf("%s: %s\n", what, c->error.text);
    }
    pthread_mutex_unlock(&lock);
    free(report);
    exl2__cuda_compile_close(&job);
    exl2__blob_close(c, &image);
    exl2__blob_close(c, &log);
    exl2__cuda_source_close(c, &source);
}

/* ---- have the kernels changed? ---- */

/* Adds the names and bytes of the files of a folder and of its folders, in the order of their names. */
static uint64_t hash_folder(const char *folder, uint64_t hash)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[1024];
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && stat(path, &status) == 0) {
            size_t bytes;
            char *text = S_ISDIR(status.st_mode) ? NULL : check_read(path, &bytes);
            hash = exl2__hash_mix(hash ^ exl2__hash(path, strlen(path)));
            hash = text ? exl2__hash_mix(hash ^ exl2__hash(text, bytes)) : hash_folder(path, hash);
            free(text);
        }
        free(entries[i]);
    }
    CHECK(count > 0);
    free(count > 0 ? entries : NULL);
    return hash;
}

static bool is_golden(const char *hash)
{
    char *known = check_read("tests/golden/kernels.txt", NULL);
    bool same = strncmp(known, hash, strlen(hash)) == 0;
    free(known);
    return same;
}

static void *work(void *arg)
{
    exl2__ctx c = { .allocator = exl2__platform_allocator(), .files = exl2__platform_files() };
    c.logger = (exl2_logger){ line, NULL, EXL2_LOG_ERROR };
    for (;;) {
        pthread_mutex_lock(&lock);
        uint32_t task = next_task++;
        pthread_mutex_unlock(&lock);
        if (task >= module_count * ARCHS) {
            return arg;
        }
        const char *module = exl2__cuda_kernel_rows[modules[task / ARCHS]].module;
        uint32_t arch = archs[task % ARCHS];
        if ((!only_module || strcmp(only_module, module) == 0) && (!only_arch || only_arch == arch)
            && (!few || (arch == 90 && task / ARCHS % 12 == 0)) && exl2__cuda_module_exists(module, arch)) {
            compile(&c, module, arch);
        }
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    only_module = argc > 1 ? argv[1] : NULL;
    only_arch = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    if (!open_nvrtc()) {
        check_skip("no NVRTC (EXL2_NVRTC, or a toolkit whose nvcc is on PATH)");
    }
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        if (exl2__cuda_module_of(i) == i) {
            modules[module_count++] = i;
        }
    }
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)hash_folder(EXL2_KERNEL_DIR, 1));
    bool golden = is_golden(hash);
    few = golden && !only_module && !getenv("EXL2_TEST_ALL");
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_create(&threads[i], NULL, work, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%u reports are new, %u were kept%s%s\n", compiled, kept, reports[0] ? " in " : "", reports);
    exl2__cuda_nvrtc_close(&nvrtc);
    if (few) {
        printf("the kernels have not changed: only every twelfth module was compiled, for 90\n");
    } else if (!golden && !only_module) {
        printf("the kernels have changed: if all checks passed, write %s into tests/golden/kernels.txt\n", hash);
    }
    return check_done();
}
