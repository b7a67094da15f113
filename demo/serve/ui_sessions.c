/* ui_sessions.c: see ui_sessions.h.
   takes: files, through demo/common.
   gives: what ui_sessions.h declares. */
#define _POSIX_C_SOURCE 200809L
#include "ui_sessions.h"

#include "../common/folder.h"
#include "../common/json_in.h"
#include "../common/text_file.h"
#include "buffer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096
#define HEAD_BYTES (UI_SESSIONS_TITLE_BYTES + 256) /* of a file's first line, at most */
#define ENDING ".jsonl"
#define VALUES_MAX 2000000u /* of a chat that a client sends: a value takes some hundred bytes of memory */
#define WHOLE_MAX 9007199254740991.0 /* JSON's readers hold such numbers exactly */

/* ---- names ---- */

static ui_sessions_result fail(ui_sessions_result result, char why[UI_SESSIONS_WHY_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, UI_SESSIONS_WHY_BYTES, format, args);
    va_end(args);
    return result;
}

/* The only names that reach the file system. */
static bool is_id(const char *id, size_t bytes)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    return bytes == UI_SESSIONS_ID_BYTES && strspn(id, letters) >= bytes;
}

static ui_sessions_result path_of(char path[PATH_BYTES], const char *folder, const char *id,
                                  char why[UI_SESSIONS_WHY_BYTES])
{
    if (!is_id(id, strlen(id))) {
        return fail(UI_SESSIONS_BAD, why, "The id of a chat has 16 characters of a to z and 0 to 9.");
    }
    if (snprintf(path, PATH_BYTES, "%s/%s" ENDING, folder, id) >= PATH_BYTES) {
        return fail(UI_SESSIONS_FAILED, why, "The path of the folder of chats is too long.");
    }
    return UI_SESSIONS_OK;
}

/* ---- the names in a folder ---- */

typedef char chat_id[UI_SESSIONS_ID_BYTES + 1];

typedef struct id_list {
    buffer names; /* chat_id, one after another */
    const chat_id *ids;
    size_t count;
} id_list;

/* Adds the file if it is a chat's: what else is in the folder is left alone. */
static void add_name(void *user, const char *name)
{
    id_list *list = user;
    chat_id id;
    size_t bytes = strcspn(name, ".");
    if (is_id(name, bytes) && strcmp(name + bytes, ENDING) == 0) {
        snprintf(id, sizeof id, "%.*s", UI_SESSIONS_ID_BYTES, name);
        buffer_add(&list->names, id, sizeof id);
    }
}

static ui_sessions_result no_memory(char why[UI_SESSIONS_WHY_BYTES])
{
    return fail(UI_SESSIONS_FAILED, why, "There is no memory left for the chats.");
}

static ui_sessions_result read_names(const char *folder, id_list *list, char why[UI_SESSIONS_WHY_BYTES])
{
    *list = (id_list){ 0 };
    if (!folder_each(folder, add_name, list)) {
        return fail(UI_SESSIONS_FAILED, why, "The folder of chats cannot be read: %s.", strerror(errno));
    }
    list->ids = (const chat_id *)(const void *)list->names.data;
    list->count = list->names.bytes / sizeof(chat_id);
    return list->names.failed ? no_memory(why) : UI_SESSIONS_OK;
}

/* ---- one file: a line with what the list needs, and then the chat ---- */

typedef struct head {
    uint64_t revision;
    int64_t updated;     /* seconds since 1970 */
    size_t bytes;        /* of the chat, without the line end after it */
    char title[UI_SESSIONS_TITLE_BYTES + 1]; /* as JSON, with its quotes */
} head;

/* A whole number from `least` to 2^53 - 1? */
static bool is_whole(const json_value *value, double least)
{
    return value && value->kind == JSON_NUMBER && value->number >= least && value->number <= WHOLE_MAX
        && value->number == (double)(int64_t)value->number;
}

static bool is_title(const json_value *title)
{
    return title && title->kind == JSON_TEXT && title->raw_bytes <= UI_SESSIONS_TITLE_BYTES;
}

static ui_sessions_result damaged(const char *id, char why[UI_SESSIONS_WHY_BYTES])
{
    return fail(UI_SESSIONS_FAILED, why, "The file of chat %s is damaged.", id);
}

/* Reads the line at text[0..bytes). */
static ui_sessions_result read_head(head *h, const char *text, size_t bytes, const char *id,
                                    char why[UI_SESSIONS_WHY_BYTES])
{
    const char *error = NULL;
    json_value *root = json_read(text, bytes, &error);
    const json_value *revision = json_member(root, "revision"), *updated = json_member(root, "updated");
    const json_value *session = json_member(root, "bytes"), *title = json_member(root, "title");
    bool good = is_whole(revision, 1) && is_whole(updated, 0) && is_whole(session, 2) && is_title(title);
    *h = (head){ 0 };
    if (good) {
        h->revision = (uint64_t)revision->number;
        h->updated = (int64_t)updated->number;
        h->bytes = (size_t)session->number;
        memcpy(h->title, title->raw, title->raw_bytes);
    }
    json_free(root);
    return good ? UI_SESSIONS_OK : damaged(id, why);
}

static ui_sessions_result no_file(const char *id, char why[UI_SESSIONS_WHY_BYTES])
{
    return errno == ENOENT ? fail(UI_SESSIONS_MISSING, why, "There is no chat %s.", id)
        : fail(UI_SESSIONS_FAILED, why, "The file of chat %s cannot be read: %s.", id,
               errno == EFBIG ? "it is too large" : strerror(errno));
}

/* Reads the first line of a file, and nothing of the chat. */
static ui_sessions_result load_head(head *h, const char *path, const char *id, char why[UI_SESSIONS_WHY_BYTES])
{
    char line[HEAD_BYTES];
    FILE *file = text_file_open(path, "rb");
    if (!file) {
        return no_file(id, why);
    }
    size_t got = fread(line, 1, sizeof line, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    const char *end = memchr(line, '\n', got);
    if (failed) {
        return fail(UI_SESSIONS_FAILED, why, "The file of chat %s cannot be read.", id);
    }
    return end ? read_head(h, line, (size_t)(end - line), id, why) : damaged(id, why);
}

/* ---- open and list ---- */

bool ui_sessions_open(const char *folder, char why[UI_SESSIONS_WHY_BYTES])
{
    id_list list;
    if (!folder_make(folder) && errno != EEXIST) {
        fail(UI_SESSIONS_FAILED, why, "The folder of chats %s cannot be made: %s.", folder, strerror(errno));
        return false;
    }
    bool good = read_names(folder, &list, why) == UI_SESSIONS_OK;
    buffer_free(&list.names);
    return good;
}

typedef struct list_row {
    const char *id;
    head head;      /* revision 0: the file is damaged */
} list_row;

static int newest_first(const void *a, const void *b)
{
    const list_row *x = a, *y = b;
    int64_t one = x->head.updated, other = y->head.updated;
    return one != other ? (one < other) - (one > other) : strcmp(x->id, y->id);
}

static void add_row(buffer *out, const list_row *row)
{
    const head *h = &row->head;
    bool damaged = h->revision == 0;
    buffer_object(out, NULL);
    buffer_name(out, "id", row->id);
    if (damaged) {
        buffer_name(out, "title", row->id);
    } else {
        buffer_raw(out, "title", h->title, strlen(h->title));
    }
    buffer_uint(out, "revision", h->revision);
    buffer_int(out, "updated", h->updated);
    if (damaged) {
        buffer_bool(out, "damaged", true);
    }
    buffer_end(out);
}

/* Gives the text to the caller, or says that there is none. */
static ui_sessions_result give(buffer *out, char **body, size_t *bytes, char why[UI_SESSIONS_WHY_BYTES])
{
    if (out->failed) {
        buffer_free(out);
        return no_memory(why);
    }
    *body = out->data;
    *bytes = out->bytes;
    return UI_SESSIONS_OK;
}

ui_sessions_result ui_sessions_list(const char *folder, char **body, size_t *bytes, char why[UI_SESSIONS_WHY_BYTES])
{
    id_list list;
    buffer out = { 0 };
    size_t count = 0;
    ui_sessions_result result = read_names(folder, &list, why);
    list_row *rows = result == UI_SESSIONS_OK ? calloc(list.count + 1, sizeof *rows) : NULL;
    if (!rows) {
        buffer_free(&list.names);
        return result == UI_SESSIONS_OK ? no_memory(why) : result;
    }
    for (size_t i = 0; i < list.count; i++) {
        char path[PATH_BYTES], reason[UI_SESSIONS_WHY_BYTES];
        rows[count].id = list.ids[i];
        result = path_of(path, folder, list.ids[i], reason);
        result = result == UI_SESSIONS_OK ? load_head(&rows[count].head, path, list.ids[i], reason) : result;
        count += result != UI_SESSIONS_MISSING; /* deleted since */
    }
    qsort(rows, count, sizeof *rows, newest_first);
    buffer_object(&out, NULL);
    buffer_array(&out, "sessions");
    for (size_t i = 0; i < count; i++) {
        add_row(&out, &rows[i]);
    }
    buffer_end(&out);
    buffer_end(&out);
    free(rows);
    buffer_free(&list.names);
    return give(&out, body, bytes, why);
}

/* ---- get ---- */

/* The chat inside of a file's text: an object of as many bytes as the first line says. */
static ui_sessions_result find_session(head *h, const char *text, size_t bytes, const char *id, const char **session,
                                       char why[UI_SESSIONS_WHY_BYTES])
{
    const char *end = memchr(text, '\n', bytes), *error = NULL;
    if (!end) {
        return damaged(id, why);
    }
    ui_sessions_result result = read_head(h, text, (size_t)(end - text), id, why);
    if (result != UI_SESSIONS_OK) {
        return result;
    }
    size_t rest = bytes - (size_t)(end + 1 - text);
    json_value *root = rest == h->bytes + 1 ? json_read(end + 1, h->bytes, &error) : NULL;
    bool good = root && root->kind == JSON_OBJECT && end[1] == '{';
    json_free(root);
    *session = end + 1;
    return good ? UI_SESSIONS_OK : damaged(id, why);
}

ui_sessions_result ui_sessions_get(const char *folder, const char *id, char **body, size_t *bytes,
                                   char why[UI_SESSIONS_WHY_BYTES])
{
    char path[PATH_BYTES];
    const char *session = NULL;
    head h;
    size_t all = 0;
    buffer out = { 0 };
    ui_sessions_result result = path_of(path, folder, id, why);
    if (result != UI_SESSIONS_OK) {
        return result;
    }
    char *text = text_file_load(path, UI_SESSIONS_BYTES_MAX + HEAD_BYTES, &all);
    if (!text) {
        return no_file(id, why);
    }
    result = find_session(&h, text, all, id, &session, why);
    if (result == UI_SESSIONS_OK) {
        bool empty = h.bytes == 2;
        buffer_format(&out, "{\"revision\":%" PRIu64 ",\"updated\":%" PRId64 "%s", h.revision, h.updated,
                      empty ? "" : ",");
        buffer_add(&out, session + 1, h.bytes - 1);
        result = give(&out, body, bytes, why);
    }
    free(text);
    return result;
}

/* ---- put ---- */

/* The number of an If-Match header: 12 or "12". 0: none was given. */
static ui_sessions_result read_revision(const char *text, uint64_t *revision, char why[UI_SESSIONS_WHY_BYTES])
{
    *revision = 0;
    if (!text) {
        return UI_SESSIONS_OK;
    }
    size_t quote = *text == '"', digits = strspn(text + quote, "0123456789");
    bool good = digits > 0 && digits <= 15 && strcmp(text + quote + digits, quote ? "\"" : "") == 0;
    for (size_t i = 0; good && i < digits; i++) {
        *revision = *revision * 10 + (uint64_t)(text[quote + i] - '0');
    }
    return good && *revision > 0 ? UI_SESSIONS_OK
        : fail(UI_SESSIONS_BAD, why, "If-Match is the revision that was read, a number from 1 on.");
}

static bool is_own_member(const json_value *member)
{
    return strcmp(member->key, "revision") == 0 || strcmp(member->key, "updated") == 0;
}

/* The object's text without the members that the store adds. A member's text begins after the value before it. */
static void add_members(buffer *out, const json_value *session)
{
    const char *at = session->raw + 1;
    size_t before = out->bytes;
    buffer_add(out, "{", 1);
    for (const json_value *m = session->child; m; m = m->next) {
        at += strspn(at, " \t\r\n,");
        if (!is_own_member(m)) {
            buffer_add(out, ",", out->bytes > before + 1);
            buffer_add(out, at, (size_t)(m->raw + m->raw_bytes - at));
        }
        at = m->raw + m->raw_bytes;
    }
    buffer_add(out, "}", 1);
}

/* Is the newest revision the one that the caller has read? */
static ui_sessions_result compare_revision(const char *folder, const char *path, const char *id, uint64_t read,
                                           uint64_t *newest, char why[UI_SESSIONS_WHY_BYTES])
{
    head h = { 0 };
    ui_sessions_result result = load_head(&h, path, id, why);
    if (result != UI_SESSIONS_OK && result != UI_SESSIONS_MISSING) {
        return result;
    }
    *newest = h.revision;
    if (h.revision != read) {
        return h.revision == 0 ? fail(UI_SESSIONS_CONFLICT, why, "The chat has been deleted.")
            : fail(UI_SESSIONS_CONFLICT, why, "The chat has been changed: its revision is %" PRIu64 ".", h.revision);
    }
    if (h.revision == 0) {
        id_list list;
        result = read_names(folder, &list, why);
        buffer_free(&list.names);
        if (result == UI_SESSIONS_OK && list.count >= UI_SESSIONS_COUNT_MAX) {
            return fail(UI_SESSIONS_FULL, why, "There are %d chats already; delete one first.", UI_SESSIONS_COUNT_MAX);
        }
        return result;
    }
    return UI_SESSIONS_OK;
}

static ui_sessions_result write_session(const char *path, const char *id, const head *h, const buffer *session,
                                        char why[UI_SESSIONS_WHY_BYTES])
{
    buffer out = { 0 };
    buffer_format(&out, "{\"revision\":%" PRIu64 ",\"updated\":%" PRId64 ",\"bytes\":%zu,\"title\":%s}\n",
                  h->revision, h->updated, session->bytes, h->title);
    buffer_add(&out, session->data ? session->data : "", session->bytes);
    buffer_add(&out, "\n", 1);
    if (session->failed || out.failed) {
        buffer_free(&out);
        return no_memory(why);
    }
    bool good = text_file_replace(path, out.data, out.bytes);
    int why_not = errno;
    buffer_free(&out);
    return good ? UI_SESSIONS_OK
        : fail(UI_SESSIONS_FAILED, why, "The file of chat %s cannot be written: %s.", id, strerror(why_not));
}

ui_sessions_result ui_sessions_put(const char *folder, const char *id, const char *if_match, const char *text,
                                   size_t bytes, int64_t now, uint64_t *revision, char why[UI_SESSIONS_WHY_BYTES])
{
    char path[PATH_BYTES];
    const char *error = NULL;
    uint64_t read = 0;
    head h = { .updated = now > 0 ? now : 0, .title = "\"\"" };
    buffer session = { 0 };
    *revision = 0;
    ui_sessions_result result = path_of(path, folder, id, why);
    result = result == UI_SESSIONS_OK ? read_revision(if_match, &read, why) : result;
    if (result == UI_SESSIONS_OK && bytes > UI_SESSIONS_BYTES_MAX) {
        result = fail(UI_SESSIONS_FULL, why, "A chat has at most %zu bytes.", UI_SESSIONS_BYTES_MAX);
    }
    if (result == UI_SESSIONS_OK && !buffer_is_utf8(text, bytes)) { /* one such chat would break the list */
        result = fail(UI_SESSIONS_BAD, why, "The chat is no UTF-8.");
    }
    if (result != UI_SESSIONS_OK) {
        return result;
    }
    json_value *root = json_read_rules(text, bytes, &(json_rules){ .values_max = VALUES_MAX }, &error);
    const json_value *title = json_member(root, "title");
    if (!root && error == json_no_memory) {
        result = no_memory(why);
    } else if (!root || root->kind != JSON_OBJECT || (title && !is_title(title))) {
        result = fail(UI_SESSIONS_BAD, why, "The chat is no JSON object with a title of at most %d bytes%s%s.",
                      UI_SESSIONS_TITLE_BYTES, error ? ": " : "", error ? error : "");
    }
    result = result == UI_SESSIONS_OK ? compare_revision(folder, path, id, read, revision, why) : result;
    if (result == UI_SESSIONS_OK) {
        h.revision = read + 1;
        if (title) {
            memcpy(h.title, title->raw, title->raw_bytes);
            h.title[title->raw_bytes] = 0;
        }
        add_members(&session, root);
        result = write_session(path, id, &h, &session, why);
        *revision = result == UI_SESSIONS_OK ? h.revision : 0;
    }
    json_free(root);
    buffer_free(&session);
    return result;
}

/* ---- delete ---- */

ui_sessions_result ui_sessions_delete(const char *folder, const char *id, char why[UI_SESSIONS_WHY_BYTES])
{
    char path[PATH_BYTES];
    ui_sessions_result result = path_of(path, folder, id, why);
    if (result != UI_SESSIONS_OK) {
        return result;
    }
    FILE *file = text_file_open(path, "rb");
    if (!file) {
        return no_file(id, why);
    }
    fclose(file);
    folder_remove_file(path);
    file = text_file_open(path, "rb");
    if (file) {
        fclose(file);
        return fail(UI_SESSIONS_FAILED, why, "The file of chat %s cannot be deleted.", id);
    }
    return UI_SESSIONS_OK;
}
