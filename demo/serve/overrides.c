/* overrides.c: see overrides.h. The text of a file becomes JSON (overrides_yaml.c) and then rows.
   takes: the text of a file, bodies of requests.
   gives: what overrides.h declares.
   owns:  the rows. */
#include "overrides.h"

#include "request.h"
#include "request_names.h"

#include <stdlib.h>
#include <string.h>

const char overrides_safe_defaults[] = "temperature:\n  override: 0.8\n  force: false\n"
                                       "top_p:\n  override: 0.9\n  force: false\n";

/* ---- reading ---- */

/* Would a request with this value be refused? */
static bool check_row(const overrides_row *row, uint32_t vocab, request_error *error)
{
    static const char *const needs[] = { "\"prompt\":\"x\"", "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" };
    request_limits limits = { .vocab = vocab, .preset = EXL2_PRESET_NEUTRAL };
    for (int kind = REQUEST_COMPLETION; kind <= REQUEST_CHAT && !error->set; kind++) {
        request r = { 0 };
        buffer body = { 0 };
        buffer_format(&body, "{%s", needs[kind]);
        buffer_string(&body, ",");
        buffer_text(&body, NULL, row->field, strlen(row->field));
        buffer_format(&body, ":%s}", row->value);
        if (body.failed) {
            fields_fail(error, NULL, "there is no memory left for the overrides");
        } else {
            request_read(&r, (request_kind)kind, body.data, body.bytes, &limits, error);
        }
        request_free(&r);
        buffer_free(&body);
    }
    return !error->set;
}

static bool read_row(const json_value *v, uint32_t vocab, overrides *out, request_error *error)
{
    static const char *const never[] = { "prompt", "messages", "model", "input" };
    const json_value *value = json_member(v, "override");
    fields f = { v, error };
    overrides_row row = { 0 };
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        if (strcmp(v->key, never[i]) == 0) {
            return fields_fail(error, v->key, "%s cannot be overridden", v->key);
        }
    }
    if (v->kind != JSON_OBJECT) {
        return fields_fail(error, v->key, "the override of '%.60s' must have members override, force, additive",
                           v->key);
    }
    fields_bool(&f, "force", &row.force);
    fields_bool(&f, "additive", &row.additive);
    fields_within(error, v->key);
    if (error->set || !value) { /* null: nothing is overridden */
        return !error->set;
    }
    if (row.additive && value->kind != JSON_ARRAY && value->kind != JSON_TEXT) {
        return fields_fail(error, v->key, "the override of '%.60s' is additive, but no list", v->key);
    }
    if (out->count == OVERRIDES_MAX) {
        return fields_fail(error, v->key, "there are more than %u overrides", OVERRIDES_MAX);
    }
    row.field = buffer_copy(v->key, strlen(v->key));
    row.value = buffer_copy(value->raw, value->raw_bytes);
    out->row[out->count++] = row;
    if (!row.field || !row.value) {
        return fields_fail(error, NULL, "there is no memory left for the overrides");
    }
    return check_row(&row, vocab, error);
}

bool overrides_read(const char *text, size_t bytes, uint32_t vocab, overrides *out, request_error *error)
{
    const char *why = json_no_memory;
    buffer json = { 0 };
    size_t spaces = 0;
    while (spaces < bytes && text[spaces] && strchr(" \t\r\n", text[spaces])) {
        spaces++;
    }
    if (spaces < bytes && text[spaces] == '{') {
        buffer_add(&json, text, bytes);
    } else if (!overrides_yaml(text, bytes, &json, error)) {
        buffer_free(&json);
        return false;
    }
    json_value *tree = json.failed ? NULL : json_read(json.data, json.bytes, &why);
    if (!tree || tree->kind != JSON_OBJECT) {
        fields_fail(error, NULL, "the overrides are no JSON object%s%s", tree ? "" : ": ", tree ? "" : why);
    } else {
        fields_unique(tree, error);
    }
    for (const json_value *v = error->set ? NULL : tree->child; v && !error->set; v = v->next) {
        read_row(v, vocab, out, error);
    }
    json_free(tree);
    buffer_free(&json);
    if (error->set) {
        overrides_free(out);
    }
    return !error->set;
}

/* ---- applying ---- */

static const overrides_row *row_of(const overrides *o, const char *field)
{
    const char *names = fields_names(field);
    for (uint32_t i = 0; i < o->count; i++) {
        if (strcmp(fields_names(o->row[i].field), names) == 0) {
            return &o->row[i];
        }
    }
    return NULL;
}

/* The items of a list, or one item, as JSON inside of an array. Ids may be a text with commas. */
static void put_items(buffer *out, const json_value *v, bool ids)
{
    bool plain = ids && v->kind == JSON_TEXT && v->text[strspn(v->text, "0123456789, ")] == 0;
    if (plain) {
        for (const char *at = v->text + strspn(v->text, ", "); *at;) {
            size_t digits = strspn(at, "0123456789");
            buffer_raw(out, NULL, at, digits);
            at += digits + strspn(at + digits, ", ");
        }
        return;
    }
    for (const json_value *item = v->kind == JSON_ARRAY ? v->child : v; item;
         item = v->kind == JSON_ARRAY ? item->next : NULL) {
        buffer_raw(out, NULL, item->raw, item->raw_bytes);
    }
}

static void put_both(buffer *out, const overrides_row *row, const json_value *given)
{
    const char *error, *names = fields_names(row->field);
    bool ids = strcmp(names, NAMES_BANNED_TOKENS) == 0 || strcmp(names, NAMES_ALLOWED_TOKENS) == 0;
    json_value *ours = json_read(row->value, strlen(row->value), &error);
    buffer_array(out, row->field);
    if (given) {
        put_items(out, given, ids);
    }
    if (ours) {
        put_items(out, ours, ids);
    }
    buffer_end(out);
    out->failed = out->failed || !ours;
    json_free(ours);
}

bool overrides_apply(const overrides *o, const char *body, size_t bytes, buffer *out)
{
    const char *error = NULL;
    json_value *tree = o->count ? json_read_rules(body, bytes, &FIELDS_RULES, &error) : NULL;
    if (!tree || tree->kind != JSON_OBJECT) {
        buffer_add(out, body, bytes);
        json_free(tree);
        return !out->failed && error != json_no_memory;
    }
    fields f = { tree, NULL };
    buffer_object(out, NULL);
    for (const json_value *v = tree->child; v; v = v->next) {
        const overrides_row *row = row_of(o, v->key);
        bool replaced = row && (row->force || row->additive || !fields_find(&f, fields_names(row->field)));
        if (!replaced) {
            buffer_raw(out, v->key, v->raw, v->raw_bytes);
        }
    }
    for (uint32_t i = 0; i < o->count; i++) {
        const overrides_row *row = &o->row[i];
        const json_value *given = fields_find(&f, fields_names(row->field));
        if (row->additive) {
            put_both(out, row, row->force ? NULL : given);
        } else if (row->force || !given) {
            buffer_raw(out, row->field, row->value, strlen(row->value));
        }
    }
    buffer_end(out);
    json_free(tree);
    return !out->failed;
}

void overrides_json(const overrides *o, const char *key, buffer *out)
{
    buffer_object(out, key);
    for (uint32_t i = 0; i < o->count; i++) {
        buffer_object(out, o->row[i].field);
        buffer_raw(out, "override", o->row[i].value, strlen(o->row[i].value));
        buffer_bool(out, "force", o->row[i].force);
        buffer_bool(out, "additive", o->row[i].additive);
        buffer_end(out);
    }
    buffer_end(out);
}

void overrides_free(overrides *o)
{
    for (uint32_t i = 0; i < o->count; i++) {
        free(o->row[i].field);
        free(o->row[i].value);
    }
    *o = (overrides){ 0 };
}
