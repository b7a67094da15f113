/* kernel_folder.c: the kernel cache as a folder: where it is, how entries are kept and replaced, and what happens if it
   cannot be written. */
#include "../../demo/common/kernel_folder.c"

#include "../check.h"

#include <dirent.h>
#include <fcntl.h>

static char root[] = "/tmp/exl2-kernel-folder-XXXXXX";

static uint32_t files_in(const char *path)
{
    uint32_t count = 0;
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        count += entry->d_name[0] != '.';
    }
    if (dir) {
        closedir(dir);
    }
    return count;
}

static void test_places(void)
{
    static char long_path[2000];
    kernel_folder f;
    setenv("XDG_CACHE_HOME", "/caches", 1);
    setenv("HOME", "/home/you", 1);
    CHECK(kernel_folder_open(&f, "given"));
    CHECK_TEXT(f.path, "given");
    CHECK(kernel_folder_open(&f, NULL));
    CHECK_TEXT(f.path, "/caches/exl2");
    setenv("XDG_CACHE_HOME", "", 1);
    CHECK(kernel_folder_open(&f, NULL));
    CHECK_TEXT(f.path, "/home/you/.cache/exl2");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK(kernel_folder_open(&f, NULL));
    CHECK_TEXT(f.path, "");
    CHECK(kernel_folder_hook(&f).load == NULL && kernel_folder_hook(&f).store == NULL);
    memset(long_path, 'a', sizeof long_path - 1);
    CHECK(!kernel_folder_open(&f, long_path));
}

static void test_entries(void)
{
    char path[200], text[16] = "";
    kernel_folder f;
    snprintf(path, sizeof path, "%s/a/b", root);
    CHECK(kernel_folder_open(&f, path));
    exl2_kernel_cache c = kernel_folder_hook(&f);
    CHECK_INT(c.load(c.user, "one-sm_89-0", NULL, 0), 0);
    CHECK_INT(files_in(root), 0); /* looking up creates nothing */
    c.store(c.user, "one-sm_89-0", "first", 5);
    c.store(c.user, "two-sm_89-0", "", 0);
    CHECK_INT(c.load(c.user, "one-sm_89-0", NULL, 0), 5);
    CHECK_INT(c.load(c.user, "one-sm_89-0", text, 4), 5); /* the buffer is too small: nothing is written to it */
    CHECK_TEXT(text, "");
    CHECK_INT(c.load(c.user, "one-sm_89-0", text, sizeof text), 5);
    CHECK_TEXT(text, "first");
    CHECK_INT(c.load(c.user, "two-sm_89-0", text, sizeof text), 0);
    c.store(c.user, "one-sm_89-0", "second", 6);
    CHECK_INT(c.load(c.user, "one-sm_89-0", text, sizeof text), 6);
    CHECK_TEXT(text, "second");
    CHECK_INT(f.stored, 3);
    CHECK_INT(f.stored_bytes, 11);
    CHECK_INT(files_in(path), 2); /* no temporary file is left */
    CHECK_TEXT(f.error, "");
}

/* A file in place of the folder, and a full disk: one warning each, and nothing left behind. */
static void test_refused(void)
{
    char path[200];
    kernel_folder f;
    snprintf(path, sizeof path, "%s/a/b/one-sm_89-0", root); /* a file */
    CHECK(kernel_folder_open(&f, path));
    exl2_kernel_cache c = kernel_folder_hook(&f);
    c.store(c.user, "key", "data", 4);
    CHECK_INT(f.stored, 0);
    CHECK(strstr(f.error, "one-sm_89-0: ") != NULL);
    CHECK_INT(c.load(c.user, "key", NULL, 0), 0);
    CHECK(!write_file("/dev/full", "data", 4));
}

/* Makes a file of this name that was written `days` days ago. */
static void make_aged(const char *folder, const char *name, int days)
{
    char path[300];
    struct timespec times[2] = { { time(NULL) - (time_t)days * 24 * 3600, 0 } };
    times[1] = times[0];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK(write_file(path, "old", 3));
    CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool is_there(const char *folder, const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Storing an entry removes old entries of the same module and target, and nothing else. */
static void test_old_versions(void)
{
    static const struct {
        const char *name;
        int days;
        bool stays;
    } files[] = {
        { "gemv1-sm_89-0123456789abcdef", 31, false },
        { "gemv1-sm_89-00000000000000ff", 400, false },
        { "gemv1-sm_89-fedcba9876543210", 29, true },          /* too young to be removed */
        { "gemv1-sm_89-1111111111111111", 400, true },         /* the stored key itself: written anew */
        { "gemv1-sm_90a-0123456789abcdef", 400, true },        /* another target, */
        { "gemv8-sm_89-0123456789abcdef", 400, true },         /* another module, */
        { "gemv1-sm_89-0123456789abcdeg", 400, true },         /* not a hexadecimal digit */
        { "gemv1-sm_89-0123456789abcdef.part7", 400, true },
        { "gemv1-sm_89-0123456789abcde", 400, true },
        { "notes.txt", 400, true },
    };
    char path[200];
    kernel_folder f;
    snprintf(path, sizeof path, "%s/old", root);
    CHECK(make_folder(path) && kernel_folder_open(&f, path));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        make_aged(path, files[i].name, files[i].days);
    }
    exl2_kernel_cache c = kernel_folder_hook(&f);
    c.store(c.user, "gemv1-sm_89-1111111111111111", "new", 3);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (!CHECK(is_there(path, files[i].name) == files[i].stays)) {
            printf("  %s\n", files[i].name);
        }
    }
    c.store(c.user, "short", "new", 3); /* not a key in our format: nothing matches it */
    CHECK_INT(files_in(path), sizeof files / sizeof files[0] - 2 + 1);
    CHECK_TEXT(f.error, "");
}

int main(void)
{
    char command[300];
    CHECK(mkdtemp(root) != NULL);
    test_places();
    test_entries();
    test_refused();
    test_old_versions();
    snprintf(command, sizeof command, "rm -r '%s'", root);
    CHECK_INT(system(command), 0);
    return check_done();
}
