/* page.c: the files of the page in the program are those of the folder, byte for byte, each is found by its path, and
   they name no file that is missing.
   takes: the folder demo/serve/page. */
#include "../../demo/serve/page.h"

#include "../check.h"

#include <dirent.h>

#define PAGE_BYTES_MAX (150 * 1024) /* of all files together */

static const char *type_of(const char *name)
{
    const char *ending = strrchr(name, '.');
    return strcmp(ending, ".html") == 0 ? "text/html; charset=utf-8"
        : strcmp(ending, ".css") == 0 ? "text/css; charset=utf-8"
        : strcmp(ending, ".js") == 0 ? "text/javascript; charset=utf-8" : "image/svg+xml";
}

static const char *path_of(const char *name, char path[300])
{
    snprintf(path, 300, "/%s", name);
    return strcmp(name, "index.html") == 0 ? "/" : strcmp(name, "favicon.svg") == 0 ? "/favicon.ico" : path;
}

/* What stands between the quotes behind `before`, such as from "./dom.js", is a file of the page. */
static void check_names(const page_file *file, const char *before)
{
    for (const char *at = file->data; (at = strstr(at, before)) != NULL;) {
        char path[300];
        page_file found;
        at += strlen(before);
        snprintf(path, sizeof path, "/%.*s", (int)strcspn(at, "\""), at);
        check_that(page_find(path, &found), path, __FILE__, __LINE__);
    }
}

static size_t check_file(const char *folder, const char *name)
{
    char path[300], full[1024];
    size_t bytes = 0;
    page_file file = { 0 };
    snprintf(full, sizeof full, "%s/%s", folder, name);
    char *text = check_read(full, &bytes);
    check_that(page_find(path_of(name, path), &file), name, __FILE__, __LINE__);
    CHECK_INT(file.bytes, bytes);
    CHECK(file.bytes == bytes && memcmp(file.data, text, bytes + 1) == 0);
    CHECK_TEXT(file.type, type_of(name));
    check_names(&file, "from \"./");
    check_names(&file, "src=\"/");
    check_names(&file, "href=\"/");
    CHECK(strstr(text, "innerHTML") == NULL && strstr(text, "eval(") == NULL && strstr(text, " style=") == NULL);
    free(text);
    return bytes;
}

int main(int argc, char **argv)
{
    static const char *const absent[] = { "", "/page", "/page.css/", "//page.css", "/../page.h", "page.css", "/page.c",
                                          "/PAGE.CSS", "/page.css?x" };
    size_t bytes = 0, count = 0;
    page_file file;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    CHECK(folder != NULL);
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            bytes += check_file(argv[1], entry->d_name);
            count++;
        }
    }
    if (folder) {
        closedir(folder);
    }
    CHECK(count >= 3 && bytes <= PAGE_BYTES_MAX);
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        CHECK(!page_find(absent[i], &file));
    }
    CHECK(strstr(PAGE_POLICY, "default-src 'self'") != NULL && strstr(PAGE_POLICY, "unsafe") == NULL);
    return check_done();
}
