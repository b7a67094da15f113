/* check.h: the test harness. A test is a program. Each CHECK that fails prints its place, and the test continues. The
   exit code is 0 (all checks passed), 1 (some failed) or 77 (skipped; the reason is on stdout).
   Data: tests/golden (in the repository, through EXL2_GOLDEN_DIR), the shared fixtures in $EXL2_TEST_DATA, and the real
   model unpacked in $EXL2_TEST_MODEL. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Built with the address sanitizer: statistics are then taken over fewer repetitions. */
#if defined(__SANITIZE_ADDRESS__)
#define CHECK_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CHECK_SANITIZED 1
#endif
#endif
#ifndef CHECK_SANITIZED
#define CHECK_SANITIZED 0
#endif

static int check_failures, check_count;

#define CHECK(condition) check_that((condition) != 0, #condition, __FILE__, __LINE__)
#define CHECK_INT(got, wanted) check_int((long long)(got), (long long)(wanted), #got, __FILE__, __LINE__)
#define CHECK_TEXT(got, wanted) check_text((got), (wanted), #got, __FILE__, __LINE__)

static inline int check_that(int holds, const char *what, const char *file, int line)
{
    check_count++;
    if (!holds) {
        check_failures++;
        printf("%s:%d: failed: %s\n", file, line, what);
    }
    return holds;
}

static inline int check_int(long long got, long long wanted, const char *what, const char *file, int line)
{
    check_count++;
    if (got != wanted) {
        check_failures++;
        printf("%s:%d: %s is %lld, wanted %lld\n", file, line, what, got, wanted);
    }
    return got == wanted;
}

static inline int check_text(const char *got, const char *wanted, const char *what, const char *file, int line)
{
    check_count++;
    if (!got || strcmp(got, wanted) != 0) {
        check_failures++;
        printf("%s:%d: %s is \"%s\", wanted \"%s\"\n", file, line, what, got ? got : "(null)", wanted);
        return 0;
    }
    return 1;
}

/* CPU time of this program: for bounds that catch quadratic work, as other programs do not lengthen it. */
static inline double check_cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static inline void check_skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    exit(77);
}

static inline int check_done(void)
{
    if (check_count == 0) {
        printf("nothing was checked\n");
        return 1;
    }
    printf("%d checks, %d failed\n", check_count, check_failures);
    return check_failures != 0;
}

/* The environment variable; NULL if it is not set or empty. */
static inline const char *check_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Path below the shared data; skips the test if the data is missing. The path stays valid for the next three calls. */
static inline const char *check_shared(const char *relative)
{
    static char paths[4][1024];
    static int next;
    const char *root = check_env("EXL2_TEST_DATA");
    char *path = paths[next++ & 3];
    snprintf(path, sizeof paths[0], "%s/%s", root ? root : "../shared", relative);
    FILE *file = fopen(path, "rb");
    if (!file) {
        check_skip("no shared test data (set EXL2_TEST_DATA)");
    }
    fclose(file);
    return path;
}

/* Folder of the unpacked real model; skips the test if it is missing. */
static inline const char *check_model(void)
{
    const char *path = check_env("EXL2_TEST_MODEL");
    if (!path) {
        check_skip("no real model (tests/run.sh unpacks it and sets EXL2_TEST_MODEL)");
    }
    return path;
}

/* The whole file, NUL-terminated; exits with a failure if it cannot be read. */
static inline char *check_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        printf("cannot read %s\n", path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    fseek(file, 0, SEEK_SET);
    char *data = malloc((size_t)size + 1);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) {
        printf("cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    data[size] = 0;
    if (bytes) {
        *bytes = (size_t)size;
    }
    return data;
}

#endif
