/* kernel_folder.c: the kernel cache as a folder: where it is, entries kept and replaced, what cannot be written. */
#include "../../demo/common/kernel_folder.c"

#include "../check.h"

#include <dirent.h>

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
    CHECK_INT(files_in(root), 0); /* looking makes nothing */
    c.store(c.user, "one-sm_89-0", "first", 5);
    c.store(c.user, "two-sm_89-0", "", 0);
    CHECK_INT(c.load(c.user, "one-sm_89-0", NULL, 0), 5);
    CHECK_INT(c.load(c.user, "one-sm_89-0", text, 4), 5); /* too little room: nothing is written there */
    CHECK_TEXT(text, "");
    CHECK_INT(c.load(c.user, "one-sm_89-0", text, sizeof text), 5);
    CHECK_TEXT(text, "first");
    CHECK_INT(c.load(c.user, "two-sm_89-0", text, sizeof text), 0);
    c.store(c.user, "one-sm_89-0", "second", 6);
    CHECK_INT(c.load(c.user, "one-sm_89-0", text, sizeof text), 6);
    CHECK_TEXT(text, "second");
    CHECK_INT(f.stored, 3);
    CHECK_INT(f.stored_bytes, 11);
    CHECK_INT(files_in(path), 2); /* no part is left */
    CHECK_TEXT(f.error, "");
}

/* A file where the folder should be, and a disk that is full: told once, and nothing left behind. */
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

int main(void)
{
    char command[300];
    CHECK(mkdtemp(root) != NULL);
    test_places();
    test_entries();
    test_refused();
    snprintf(command, sizeof command, "rm -r '%s'", root);
    CHECK_INT(system(command), 0);
    return check_done();
}
