/* ui_sessions.c: the store of the page's chats: what is put comes back, revisions tell two tabs apart, and hostile ids,
   texts and damaged files give one sentence. */
#include "../../demo/serve/ui_sessions.c"

#include "../check.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID "abcdefghij012345"
#define OTHER "zzzzzzzzzzzzzzz9"

static char folder[] = "/tmp/exl2-ui-sessions-XXXXXX";
static char why[UI_SESSIONS_WHY_BYTES];

static ui_sessions_result put(const char *id, const char *if_match, const char *text, int64_t now, uint64_t *revision)
{
    why[0] = 0;
    return ui_sessions_put(folder, id, if_match, text, strlen(text), now, revision, why);
}

/* Puts a chat that must be refused with a sentence. */
static void refuses(ui_sessions_result wanted, const char *id, const char *if_match, const char *text)
{
    uint64_t revision = 99;
    CHECK_INT(put(id, if_match, text, 5, &revision), wanted);
    CHECK(why[0] != 0 && why[strlen(why) - 1] == '.');
}

static void gives(const char *id, const char *wanted)
{
    char *body = NULL;
    size_t bytes = 0;
    CHECK_INT(ui_sessions_get(folder, id, &body, &bytes, why), UI_SESSIONS_OK);
    CHECK_TEXT(body, wanted);
    CHECK_INT(bytes, strlen(wanted));
    free(body);
}

static void lists(const char *wanted)
{
    char *body = NULL;
    size_t bytes = 0;
    CHECK_INT(ui_sessions_list(folder, &body, &bytes, why), UI_SESSIONS_OK);
    CHECK_TEXT(body, wanted);
    CHECK_INT(bytes, strlen(wanted));
    free(body);
}

static void write_raw(const char *name, const char *text, size_t bytes)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(text, 1, bytes, file) == bytes);
    if (file) {
        fclose(file);
    }
}

static uint32_t files_in_folder(void)
{
    uint32_t count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        count += entry->d_name[0] != '.';
    }
    if (dir) {
        closedir(dir);
    }
    return count;
}

static void test_round(void)
{
    uint64_t revision = 0;
    lists("{\"sessions\":[]}");
    CHECK_INT(put(ID, NULL, "{\"title\": \"Käse \\u0041\", \"nodes\":[{\"a\":1}]}", 1000, &revision), UI_SESSIONS_OK);
    CHECK_INT(revision, 1);
    gives(ID, "{\"revision\":1,\"updated\":1000,\"title\": \"Käse \\u0041\",\"nodes\":[{\"a\":1}]}");
    CHECK_INT(put(OTHER, NULL, "{}", 2000, &revision), UI_SESSIONS_OK);
    gives(OTHER, "{\"revision\":1,\"updated\":2000}");
    lists("{\"sessions\":[{\"id\":\"" OTHER "\",\"title\":\"\",\"revision\":1,\"updated\":2000},"
          "{\"id\":\"" ID "\",\"title\":\"Käse \\u0041\",\"revision\":1,\"updated\":1000}]}");
    CHECK_INT(put(ID, "1", "{\"title\":null,\n\"x\":\"a\\nb\"}", 3000, &revision), UI_SESSIONS_OK);
    CHECK_INT(revision, 2);
    gives(ID, "{\"revision\":2,\"updated\":3000,\"title\":null,\"x\":\"a\\nb\"}");
    CHECK_INT(files_in_folder(), 2); /* nothing is left beside them */
}

/* What GET gave can be put again: the store's own members do not pile up. */
static void test_own_members(void)
{
    uint64_t revision = 0;
    static const char text[] = " { \"revision\":7,\"a\": [1, 2] ,\"updated\":{} , \"b\":{\"revision\":3}}";
    CHECK_INT(put(ID, "\"2\"", text, 1, &revision), UI_SESSIONS_OK);
    gives(ID, "{\"revision\":3,\"updated\":1,\"a\": [1, 2],\"b\":{\"revision\":3}}");
    CHECK_INT(put(ID, "3", "{\"revision\":3,\"updated\":1}", -5, &revision), UI_SESSIONS_OK);
    gives(ID, "{\"revision\":4,\"updated\":0}");
}

static void test_conflicts(void)
{
    uint64_t revision = 0;
    CHECK_INT(put(ID, "3", "{}", 1, &revision), UI_SESSIONS_CONFLICT);
    CHECK_INT(revision, 4);
    CHECK(strstr(why, "4") != NULL);
    CHECK_INT(put(ID, NULL, "{}", 1, &revision), UI_SESSIONS_CONFLICT); /* it is not new */
    CHECK_INT(put(ID, "5", "{}", 1, &revision), UI_SESSIONS_CONFLICT);
    CHECK_INT(put("0000000000000000", "1", "{}", 1, &revision), UI_SESSIONS_CONFLICT);
    CHECK_INT(revision, 0);
    CHECK_TEXT(why, "The chat has been deleted.");
    gives(ID, "{\"revision\":4,\"updated\":0}"); /* as it was */
}

static void test_hostile(void)
{
    static const char *const ids[] = { "", "a", "../../etc/passwd", "ABCDEFGHIJ012345", "abcdefghij01234", ID "6",
                                       "abcdefghij0123.5", "abcdefghij/12345", "abcdefghij0123\xC3\xA4",
                                       "..............." };
    static const char *const marks[] = { "", "0", "-1", "1x", "\"1", "1\"", "W/\"1\"", "*", "1 ", "00000000000000001" };
    static const char *const texts[] = { "", "x", "[]", "null", "1", "{\"a\":1", "{\"a\":1}}", "{\"title\":1}",
                                         "{\"a\":\"\xFF\"}", "{\"a\":\"\xC0\x80\"}", "{\"a\":\"\xED\xA0\x80\"}",
                                         "{\"a\":\"\xF0\x82\x82\xAC\"}", "{\"a\":\"\xE2\x82" };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        char *body = NULL;
        size_t bytes = 0;
        refuses(UI_SESSIONS_BAD, ids[i], NULL, "{}");
        CHECK_INT(ui_sessions_get(folder, ids[i], &body, &bytes, why), UI_SESSIONS_BAD);
        CHECK_INT(ui_sessions_delete(folder, ids[i], why), UI_SESSIONS_BAD);
        CHECK(body == NULL);
    }
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        refuses(UI_SESSIONS_BAD, ID, marks[i], "{}");
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        refuses(UI_SESSIONS_BAD, ID, "4", texts[i]);
    }
    char deep[400] = "{\"a\":", title[2000] = "{\"title\":\"";
    memset(deep + 5, '[', 300);
    refuses(UI_SESSIONS_BAD, ID, "4", deep);
    memset(title + 10, 't', UI_SESSIONS_TITLE_BYTES - 1);
    strcat(title, "\"}");
    refuses(UI_SESSIONS_BAD, ID, "4", title);
    memmove(title + 11, title + 12, strlen(title + 12) + 1); /* one byte shorter */
    uint64_t revision = 0;
    CHECK_INT(put("tttttttttttttttt", NULL, title, 1, &revision), UI_SESSIONS_OK);
    CHECK_INT(ui_sessions_delete(folder, "tttttttttttttttt", why), UI_SESSIONS_OK);
    gives(ID, "{\"revision\":4,\"updated\":0}");
    CHECK_INT(files_in_folder(), 2);
}

/* The same chat cut at every byte and with every byte changed: it is given as it was written, or is damaged. */
static void test_damaged(void)
{
    static const char whole[] = "{\"revision\":1,\"updated\":5,\"bytes\":13,\"title\":\"t\"}\n{\"title\":\"t\"}\n";
    const char *name = "dddddddddddddddd.jsonl";
    size_t bytes = sizeof whole - 1, head_bytes = strcspn(whole, "\n");
    for (size_t i = 0; i < 2 * bytes; i++) {
        char text[sizeof whole], *body = NULL;
        size_t got = 0, cut = i < bytes ? i : bytes;
        memcpy(text, whole, sizeof whole);
        if (i >= bytes) {
            text[i - bytes] ^= 1;
        }
        write_raw(name, text, cut);
        ui_sessions_result result = ui_sessions_get(folder, "dddddddddddddddd", &body, &got, why);
        CHECK(result == UI_SESSIONS_FAILED || (result == UI_SESSIONS_OK && i >= bytes));
        CHECK(result == UI_SESSIONS_OK || (body == NULL && strstr(why, "damaged") != NULL));
        free(body);
        CHECK_INT(ui_sessions_list(folder, &body, &got, why), UI_SESSIONS_OK);
        CHECK(strstr(body, "\"dddddddddddddddd\"") != NULL);
        CHECK(i >= bytes || i > head_bytes || strstr(body, "\"damaged\":true") != NULL);
        free(body);
    }
    write_raw(name, "junk", 4);
    refuses(UI_SESSIONS_FAILED, "dddddddddddddddd", "1", "{}");
    CHECK_INT(ui_sessions_delete(folder, "dddddddddddddddd", why), UI_SESSIONS_OK);
}

/* Files that are no chats are neither listed nor touched. */
static void test_strangers(void)
{
    char path[200];
    write_raw("notes.txt", "x", 1);
    write_raw("UPPERCASE0123456.jsonl", "x", 1);
    write_raw("abcdefghij012345.jsonl.part1", "x", 1);
    lists("{\"sessions\":[{\"id\":\"" OTHER "\",\"title\":\"\",\"revision\":1,\"updated\":2000},"
          "{\"id\":\"" ID "\",\"title\":\"\",\"revision\":4,\"updated\":0}]}");
    CHECK_INT(files_in_folder(), 5);
    snprintf(path, sizeof path, "%s/eeeeeeeeeeeeeeee.jsonl", folder);
    CHECK_INT(mkdir(path, 0700), 0); /* a folder where a file should be */
    char *body = NULL;
    size_t bytes = 0;
    CHECK_INT(ui_sessions_get(folder, "eeeeeeeeeeeeeeee", &body, &bytes, why), UI_SESSIONS_FAILED);
    rmdir(path);
}

static void test_limits(void)
{
    char name[40];
    uint64_t revision = 0;
    char *large = malloc(UI_SESSIONS_BYTES_MAX + 1);
    memset(large, ' ', UI_SESSIONS_BYTES_MAX + 1);
    memcpy(large, "{}", 2);
    CHECK_INT(ui_sessions_put(folder, ID, "4", large, UI_SESSIONS_BYTES_MAX + 1, 1, &revision, why), UI_SESSIONS_FULL);
    size_t values = 2000001, at = 6; /* in few bytes, but each takes memory */
    memcpy(large, "{\"a\":[", at);
    for (size_t i = 0; i < values; i++) {
        large[at++] = '0';
        large[at++] = i + 1 < values ? ',' : ']';
    }
    large[at++] = '}';
    CHECK_INT(ui_sessions_put(folder, ID, "4", large, at, 1, &revision, why), UI_SESSIONS_BAD);
    CHECK(strstr(why, "too many values") != NULL);
    free(large);
    for (int i = 0; i < UI_SESSIONS_COUNT_MAX - 2; i++) {
        snprintf(name, sizeof name, "%016d.jsonl", i);
        write_raw(name, "x", 1);
    }
    refuses(UI_SESSIONS_FULL, "nnnnnnnnnnnnnnnn", NULL, "{}");
    CHECK_INT(put(ID, "4", "{}", 1, &revision), UI_SESSIONS_OK); /* what is there can still be changed */
    CHECK_INT(ui_sessions_delete(folder, "0000000000000007", why), UI_SESSIONS_OK);
    CHECK_INT(put("nnnnnnnnnnnnnnnn", NULL, "{}", 1, &revision), UI_SESSIONS_OK);
}

static void test_open(void)
{
    char path[200];
    snprintf(path, sizeof path, "%s/new", folder);
    CHECK(ui_sessions_open(path, why) && ui_sessions_open(path, why));
    rmdir(path);
    snprintf(path, sizeof path, "%s/absent/new", folder);
    CHECK(!ui_sessions_open(path, why) && strstr(why, "cannot be made") != NULL);
    snprintf(path, sizeof path, "%s/notes.txt", folder);
    CHECK(!ui_sessions_open(path, why) && strstr(why, "cannot be read") != NULL);
    CHECK_INT(ui_sessions_delete(folder, "mmmmmmmmmmmmmmmm", why), UI_SESSIONS_MISSING);
}

static void remove_all(void)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        remove(path);
    }
    if (dir) {
        closedir(dir);
    }
    rmdir(folder);
}

int main(void)
{
    if (!mkdtemp(folder)) {
        check_skip("no folder can be made in /tmp");
    }
    test_round();
    test_own_members();
    test_conflicts();
    test_hostile();
    test_damaged();
    test_strangers();
    test_limits();
    test_open();
    remove_all();
    return check_done();
}
