/* keys.c: see keys.h.
   takes: a file; the system's random numbers.
   gives: what keys.h declares. */
#define _POSIX_C_SOURCE 200809L
#ifdef _WIN32
#define _CRT_RAND_S /* rand_s of stdlib.h */
#endif
#include "keys.h"

#include "../common/clock.h"
#include "../common/folder.h"
#include "../common/text_file.h"
#include "../common/wide.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX (64u << 10)
#define LOOK_NS 1000000000u /* the file's time is looked at once a second */

#ifdef _WIN32
bool keys_random(void *out, size_t bytes)
{
    unsigned char *at = out;
    unsigned int number;
    for (size_t i = 0; i < bytes; i++) {
        if (rand_s(&number) != 0) {
            return false;
        }
        at[i] = (unsigned char)(number >> 8);
    }
    return true;
}

static bool about(const char *path, int64_t *changed, uint64_t *bytes)
{
    wchar_t at[1024];
    struct _stat64 s;
    if (_wstat64(wide_path(path, at, 1024), &s) != 0) {
        return false;
    }
    *changed = (int64_t)s.st_mtime;
    *bytes = (uint64_t)s.st_size;
    return true;
}

static FILE *make_private(const char *path)
{
    return text_file_open(path, "wbx"); /* the user's folder is private already */
}
#else
#include <fcntl.h>
#include <unistd.h>

bool keys_random(void *out, size_t bytes)
{
    FILE *file = fopen("/dev/urandom", "rb");
    bool good = file && fread(out, 1, bytes, file) == bytes;
    if (file) {
        fclose(file);
    }
    return good;
}

static bool about(const char *path, int64_t *changed, uint64_t *bytes)
{
    struct stat s;
    if (stat(path, &s) != 0) {
        return false;
    }
    *changed = (int64_t)s.st_mtime * 1000 + (int64_t)(s.st_mtim.tv_nsec / 1000000);
    *bytes = (uint64_t)s.st_size;
    return true;
}

static FILE *make_private(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    return file < 0 ? NULL : fdopen(file, "wb");
}
#endif

/* ---- the file ---- */

static bool read_line(keys *k, const char *line, size_t bytes)
{
    static const struct { const char *name; keys_level level; } rows[] = { { "api_key:", KEYS_API },
                                                                           { "admin_key:", KEYS_ADMIN } };
    for (size_t i = 0; i < 2; i++) {
        size_t name = strlen(rows[i].name);
        if (bytes < name || memcmp(line, rows[i].name, name) != 0) {
            continue;
        }
        while (name < bytes && strchr(" \t\"'", line[name])) {
            name++;
        }
        while (bytes > name && strchr(" \t\r\"'", line[bytes - 1])) {
            bytes--;
        }
        if (name < bytes && bytes - name < KEYS_BYTES && k->count < KEYS_MAX) {
            keys_entry *entry = &k->entries[k->count++];
            *entry = (keys_entry){ .level = rows[i].level };
            memcpy(entry->text, line + name, bytes - name);
            return true;
        }
        return false;
    }
    return bytes == 0 || line[0] == '#' || line[0] == '\r';
}

/* Reads all lines; a file that cannot be read now leaves the keys as they were. */
static bool load(keys *k, bool says)
{
    size_t bytes = 0;
    char *text = text_file_load(k->path, FILE_BYTES_MAX, &bytes);
    if (!text) {
        if (says) {
            fprintf(stderr, "%s: %s\n", k->path, strerror(errno));
        }
        return false;
    }
    k->count = 0;
    uint32_t number = 0;
    for (char *at = text, *end = text + bytes; at < end;) {
        size_t line = strcspn(at, "\n");
        number++;
        if (!read_line(k, at, line)) {
            fprintf(stderr, "%s: line %u is neither 'api_key: TEXT' nor 'admin_key: TEXT'; it is ignored\n", k->path,
                    number);
        }
        at += line + 1;
    }
    free(text);
    return true;
}

static bool default_path(keys *k)
{
#ifdef _WIN32
    const char *base = getenv("APPDATA"), *inside = "";
#else
    const char *base = getenv("XDG_CONFIG_HOME"), *inside = "";
    if (!base || !*base) {
        base = getenv("HOME");
        inside = "/.config";
    }
#endif
    if (!base || !*base) {
        fputs("there is no folder for the keys, since HOME is not set; give --keys FILE or --no-auth\n", stderr);
        return false;
    }
    int bytes = snprintf(k->path, sizeof k->path, "%s%s", base, inside);
    folder_make(k->path);
    bytes += snprintf(k->path + bytes, sizeof k->path - (size_t)bytes, "/exl2");
    folder_make(k->path);
    bytes += snprintf(k->path + bytes, sizeof k->path - (size_t)bytes, "/keys");
    return (size_t)bytes < sizeof k->path;
}

static bool make_file(const char *path)
{
    unsigned char random[2][16];
    FILE *file = keys_random(random, sizeof random) ? make_private(path) : NULL;
    if (!file) {
        fprintf(stderr, "%s: cannot be made: %s\n", path, strerror(errno));
        return false;
    }
    for (int i = 0; i < 2; i++) {
        fputs(i ? "admin_key: " : "api_key: ", file);
        for (int j = 0; j < 16; j++) {
            fprintf(file, "%02x", random[i][j]);
        }
        fputc('\n', file);
    }
    if (fclose(file) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    return true;
}

bool keys_open(keys *k, const char *path)
{
    if (path && strlen(path) >= sizeof k->path) {
        fputs("the path of the keys is too long\n", stderr);
        return false;
    }
    if (path) {
        snprintf(k->path, sizeof k->path, "%s", path);
    } else if (!default_path(k)) {
        return false;
    }
    if (!about(k->path, &k->changed, &k->bytes)) {
        if (path) {
            fprintf(stderr, "%s: %s\n", path, strerror(errno));
            return false;
        }
        if (!make_file(k->path)) {
            return false;
        }
        about(k->path, &k->changed, &k->bytes);
    }
    if (!load(k, true)) {
        return false;
    }
    if (!k->count) {
        fprintf(stderr, "%s: has no key\n", k->path);
    }
    return k->count > 0;
}

static void look_again(keys *k)
{
    int64_t changed;
    uint64_t bytes, now = clock_ns();
    if (now - k->looked_ns < LOOK_NS) {
        return;
    }
    k->looked_ns = now;
    if (about(k->path, &changed, &bytes) && (changed != k->changed || bytes != k->bytes) && load(k, false)) {
        k->changed = changed;
        k->bytes = bytes;
    }
}

/* ---- keys ---- */

/* Compares in a time that does not depend on where the texts differ. */
static bool same(const char *given, size_t bytes, const char *key)
{
    size_t length = strlen(key);
    unsigned char differ = (unsigned char)(bytes != length);
    for (size_t i = 0; i < bytes; i++) {
        differ |= (unsigned char)(given[i] ^ key[length ? i % length : 0]);
    }
    return differ == 0;
}

static keys_level level_of(const keys *k, const char *given, bool admin_only)
{
    keys_level best = KEYS_NONE;
    size_t bytes = given ? strlen(given) : 0;
    for (uint32_t i = 0; i < k->count && bytes; i++) {
        bool fits = same(given, bytes, k->entries[i].text) && (!admin_only || k->entries[i].level == KEYS_ADMIN);
        best = fits && k->entries[i].level > best ? k->entries[i].level : best;
    }
    return best;
}

static const char *after_bearer(const char *value)
{
    static const char word[] = "bearer";
    for (size_t i = 0; value && i < sizeof word - 1; i++) {
        if ((value[i] | 0x20) != word[i]) {
            return NULL;
        }
    }
    if (!value || value[sizeof word - 1] != ' ') {
        return NULL;
    }
    value += sizeof word - 1;
    return value + strspn(value, " ");
}

keys_level keys_right(keys *k, const char *admin, const char *api, const char *authorization)
{
    if (k->open_to_all) {
        return KEYS_ADMIN;
    }
    look_again(k);
    keys_level level = level_of(k, admin, true);
    level = level ? level : level_of(k, api, false);
    return level ? level : level_of(k, after_bearer(authorization), false);
}

const char *keys_first(const keys *k, keys_level level)
{
    for (uint32_t i = 0; i < k->count; i++) {
        if (k->entries[i].level == level) {
            return k->entries[i].text;
        }
    }
    return NULL;
}
