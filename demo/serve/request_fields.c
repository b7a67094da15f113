/* request_fields.c: see request_fields.h.
   takes: a tree of json_in.h.
   gives: what request_fields.h declares. */
#include "request_fields.h"

#include "buffer.h"
#include "request_names.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fields_fail(request_error *error, const char *param, const char *format, ...)
{
    if (!error->set) {
        va_list list;
        va_start(list, format);
        vsnprintf(error->message, sizeof error->message, format, list);
        va_end(list);
        snprintf(error->param, sizeof error->param, "%s", param ? param : "");
        error->code = "invalid_value";
        error->set = true;
    }
    return false;
}

void fields_within(request_error *error, const char *outer)
{
    char inner[sizeof error->param];
    size_t bytes = strlen(outer);
    if (error->set && error->param[0] && strncmp(error->param, outer, bytes) != 0) {
        memcpy(inner, error->param, sizeof inner);
        snprintf(error->param, sizeof error->param, "%.20s.%.40s", outer, inner);
    }
}

static bool is_among(const char *name, const char *names)
{
    size_t bytes = strlen(name);
    for (const char *at = names; *at;) {
        size_t count = strcspn(at, "|");
        if (count == bytes && memcmp(at, name, bytes) == 0) {
            return true;
        }
        at += count + (at[count] == '|');
    }
    return false;
}

const char *fields_names(const char *name)
{
    static const char *const all[] = NAMES_ALL;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (is_among(name, all[i])) {
            return all[i];
        }
    }
    return name;
}

static bool is_empty(const json_value *v)
{
    bool holds = v->kind == JSON_ARRAY || v->kind == JSON_OBJECT;
    return v->kind == JSON_NULL || (v->kind == JSON_TEXT && v->text_bytes == 0) || (holds && !v->child);
}

const json_value *fields_find(const fields *f, const char *names)
{
    for (const char *at = names; *at;) {
        char name[64];
        size_t bytes = strcspn(at, "|");
        snprintf(name, sizeof name, "%.*s", (int)bytes, at);
        const json_value *v = json_member(f->object, name);
        if (v && !is_empty(v)) {
            return v;
        }
        at += bytes + (at[bytes] == '|');
    }
    return NULL;
}

static const json_value *find(const fields *f, const char *names, json_kind kind, const char *what)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, names);
    bool good = v && (v->kind == kind || (kind == JSON_TRUE && v->kind == JSON_FALSE));
    if (v && !good) {
        fields_fail(f->error, v->key, "%s must be %s", v->key, what);
    }
    return good ? v : NULL;
}

bool fields_text(fields *f, const char *names, const char **out, size_t *bytes)
{
    const json_value *v = find(f, names, JSON_TEXT, "a text");
    if (v && !bytes && strlen(v->text) != v->text_bytes) {
        return fields_fail(f->error, v->key, "%s must not have a zero byte", v->key);
    }
    if (v) {
        *out = v->text;
        if (bytes) {
            *bytes = v->text_bytes;
        }
    }
    return v != NULL;
}

bool fields_bool(fields *f, const char *names, bool *out)
{
    const json_value *v = find(f, names, JSON_TRUE, "true or false");
    if (v) {
        *out = v->kind == JSON_TRUE;
    }
    return v != NULL;
}

bool fields_number(fields *f, const char *names, double least, double most, double *out)
{
    const json_value *v = find(f, names, JSON_NUMBER, "a number");
    if (v && !(v->number >= least && v->number <= most)) {
        return fields_fail(f->error, v->key, "%s must be from %.9g to %.9g, not %.9g", v->key, least, most, v->number);
    }
    if (v) {
        *out = v->number;
    }
    return v != NULL;
}

bool fields_whole(fields *f, const char *names, double least, double most, int64_t *out)
{
    const json_value *v = find(f, names, JSON_NUMBER, "a whole number");
    double number = 0;
    if (v && floor(v->number) != v->number) {
        return fields_fail(f->error, v->key, "%s must be a whole number, not %.9g", v->key, v->number);
    }
    if (!v || !fields_number(f, v->key, least, most, &number)) {
        return false;
    }
    *out = number >= 9.2e18 ? INT64_MAX : number <= -9.2e18 ? INT64_MIN : (int64_t)number;
    return true;
}

bool fields_object(fields *f, const char *names, const json_value **out)
{
    const json_value *v = find(f, names, JSON_OBJECT, "an object");
    *out = v ? v : *out;
    return v != NULL;
}

bool fields_array(fields *f, const char *names, size_t most, const json_value **out)
{
    const json_value *v = find(f, names, JSON_ARRAY, "an array");
    if (v && v->child_count > most) {
        return fields_fail(f->error, v->key, "%s has %zu items, and at most %zu are allowed", v->key, v->child_count,
                           most);
    }
    *out = v ? v : *out;
    return v != NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool keys_differ(const json_value *object, request_error *error)
{
    const char **keys = calloc(object->child_count, sizeof *keys);
    size_t count = 0;
    if (!keys) {
        return fields_fail(error, NULL, "there is no memory left for this request");
    }
    for (const json_value *v = object->child; v; v = v->next) {
        keys[count++] = v->key;
    }
    qsort((void *)keys, count, sizeof *keys, by_text);
    bool good = true;
    for (size_t i = 1; i < count && good; i++) {
        good = strcmp(keys[i - 1], keys[i]) != 0
            || fields_fail(error, keys[i], "the key '%.100s' comes twice in one object", keys[i]);
    }
    free((void *)keys);
    return good;
}

bool fields_unique(const json_value *tree, request_error *error)
{
    if (tree->kind == JSON_OBJECT && tree->child_count > 1 && !keys_differ(tree, error)) {
        return false;
    }
    for (const json_value *v = tree->child; v; v = v->next) { /* json_in.h limits the depth */
        if (!fields_unique(v, error)) {
            return false;
        }
    }
    return true;
}

json_value *fields_read(const char *body, size_t bytes, request_error *error)
{
    const char *why;
    json_value *tree = json_read_rules(body, bytes, &FIELDS_RULES, &why);
    if (!tree || tree->kind != JSON_OBJECT) {
        fields_fail(error, NULL, "The body is no JSON object%s%s.", tree ? "" : ": ", tree ? "" : why);
    } else if (!buffer_is_utf8(body, bytes)) {
        fields_fail(error, NULL, "The body is not UTF-8.");
    } else {
        fields_unique(tree, error);
    }
    if (error->set) {
        error->code = "invalid_json";
        error->param[0] = 0;
        json_free(tree);
        tree = NULL;
    }
    return tree;
}
