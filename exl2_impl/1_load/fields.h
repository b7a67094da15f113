/* fields.h: reads fields of a JSON config file by name, with types and bounds, and reports errors in them.
   takes: a file name; alternative names of a field, bounds.
   gives: exl2__field_default, exl2__fields, exl2__fields_open, exl2__fields_find; exl2__fields_bad,
          exl2__fields_missing, exl2__fields_unsupported; exl2__fields_u32, exl2__fields_f64, exl2__fields_bool.
   owns:  the file's text and tokens, until exl2__fields_close. */
#ifndef EXL2__FIELDS_H
#define EXL2__FIELDS_H

#include "../0_base/log.h"
#include "file.h"
#include "../0_base/json/json.h"

/* The value of a number that the file may leave out; `name` is the first name of the number. */
typedef struct exl2__field_default {
    const char *name;
    double value;
} exl2__field_default;

typedef struct exl2__fields {
    exl2__ctx *c;
    const char *label; /* "config.json" */
    exl2__blob text;
    exl2__json json;
    uint32_t nested; /* token of the object text_config, which multimodal models have; 0 = none */
    const exl2__field_default *defaults; /* ends with a name of NULL; NULL: there are none */
} exl2__fields;

/* Alternative names of one field, in order of preference, ended by NULL; "a->b" is the key b of the object a. */
typedef const char *const *exl2__field_names;

#define EXL2__FIELD_NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static inline void exl2__fields_close(exl2__fields *f)
{
    if (f->c) {
        exl2__json_close(f->c, &f->json);
        exl2__blob_close(f->c, &f->text);
    }
    *f = (exl2__fields){ 0 };
}

/* If an optional file does not exist, returns EXL2_OK with f->text.data NULL; close it all the same. On failure *f is
   zeroed. */
EXL2__PRIVATE exl2_result exl2__fields_open(exl2__ctx *c, const char *dir, const char *name, bool optional,
                                            exl2__fields *f)
{
    const uint64_t bytes_max = (uint64_t)16 << 20;
    *f = (exl2__fields){ 0 };
    f->c = c;
    f->label = name;
    exl2_result result = optional ? exl2__file_read_optional(c, dir, name, bytes_max, &f->text)
                                  : exl2__file_read_all(c, dir, name, bytes_max, &f->text);
    if (result == EXL2_OK && f->text.data) {
        result = exl2__file_check_text(c, name, &f->text);
        result = result < 0 ? result
               : exl2__json_open_whole(c, name, f->text.data, (size_t)f->text.bytes, NULL, true, &f->json);
        if (result == EXL2_OK && f->json.tokens[0].kind != EXL2__JSON_OBJECT) {
            result = exl2__fail(c, EXL2_ERR_FORMAT, "%s: expected an object at the top level", name);
        }
    }
    if (result < 0) {
        exl2__fields_close(f);
        return result;
    }
    f->nested = f->text.data ? exl2__json_get(&f->json, 0, "text_config") : 0;
    return EXL2_OK;
}

/* ---- finding ---- */

/* Token of the value of "key" or "outer->key" (with any number of arrows) in `object`, or 0. */
static inline uint32_t exl2__fields_at(const exl2__fields *f, uint32_t object, const char *name)
{
    for (const char *arrow; (arrow = strstr(name, "->")) != NULL; name = arrow + 2) {
        char outer[64];
        exl2__format(outer, sizeof outer, "%.*s", (int)(arrow - name), name);
        object = exl2__json_get(&f->json, object, outer);
        if (!object) {
            return 0;
        }
    }
    return exl2__json_get(&f->json, object, name);
}

/* Token of the first name whose value exists and is not null, at the top level and then in text_config; 0 if there is
   none. *found (may be NULL): that name. */
static inline uint32_t exl2__fields_find(const exl2__fields *f, exl2__field_names names, const char **found)
{
    const uint32_t objects[2] = { 0, f->nested };
    for (uint32_t pass = 0; pass < (f->nested ? 2u : 1u); pass++) {
        for (uint32_t i = 0; names[i]; i++) {
            uint32_t token = exl2__fields_at(f, objects[pass], names[i]);
            if (token) {
                if (found) {
                    *found = names[i];
                }
                return token;
            }
        }
    }
    return 0;
}

/* Does the file have one of the names (without arrows), with the value null? */
static inline bool exl2__fields_is_null(const exl2__fields *f, exl2__field_names names)
{
    const exl2__json *j = &f->json;
    const uint32_t objects[2] = { 0, f->nested };
    for (uint32_t pass = 0; pass < (f->nested ? 2u : 1u); pass++) {
        bool object = j->tokens[objects[pass]].kind == EXL2__JSON_OBJECT;
        uint32_t member = object ? exl2__json_first(j, objects[pass]) : 0;
        for (; member; member = exl2__json_next(j, objects[pass], member)) {
            for (uint32_t i = 0; names[i] && j->tokens[member + 1].kind == EXL2__JSON_NULL; i++) {
                if (exl2__json_is(j, member, names[i])) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* For a number that the file does not have: sets *value to its default. false: it has none. A null in the file means
   that the number is not wanted, and not that it has its default. */
static inline bool exl2__fields_default(const exl2__fields *f, exl2__field_names names, double *value)
{
    for (const exl2__field_default *d = f->defaults; d && d->name; d++) {
        if (strcmp(d->name, names[0]) == 0 && !exl2__fields_is_null(f, names)) {
            *value = d->value;
            return true;
        }
    }
    return false;
}

/* ---- errors ---- */

static inline exl2_result exl2__fields_missing(const exl2__fields *f, const char *name)
{
    return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: %s is missing", f->label, name);
}

/* The field's value as the file writes it, cut to 40 bytes; strings in quotes. Of lists and objects only the size. */
static inline void exl2__fields_value(const exl2__fields *f, uint32_t token, char out[48])
{
    const exl2__json_token *t = &f->json.tokens[token];
    const char *text = f->json.text + t->begin;
    size_t bytes = t->end - t->begin;
    const char *quote = t->kind == EXL2__JSON_STRING ? "'" : "";
    if (t->kind == EXL2__JSON_ARRAY || t->kind == EXL2__JSON_OBJECT) {
        exl2__format(out, 48, t->kind == EXL2__JSON_ARRAY ? "[%u values]" : "{%u members}", t->count);
        return;
    }
    bytes = bytes > 40 ? exl2__utf8_cut(text, 40) : bytes;
    exl2__format(out, 48, "%s%.*s%s", quote, (int)bytes, text, quote);
}

static inline exl2_result exl2__fields_bad(const exl2__fields *f, const char *name, uint32_t token, const char *allowed)
{
    char value[48];
    exl2__fields_value(f, token, value);
    return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: %s=%s is out of range, expected %s", f->label, name, value, allowed);
}

/* For a value that is well formed, but not the only one that is supported. */
static inline exl2_result exl2__fields_unsupported(const exl2__fields *f, const char *name, uint32_t token,
                                                   const char *same)
{
    char value[48];
    exl2__fields_value(f, token, value);
    return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: %s=%s is not supported, only %s", f->label, name, value, same);
}

/* ---- reading: if a field has none of its names, messages use the first one ---- */

/* If the field is absent, *out is its default in f->defaults, else *out keeps its value. For a required field the
   caller sets *out to 0 and gives a min of at least 1: its absence is then an error. */
static inline exl2_result exl2__fields_u32(const exl2__fields *f, exl2__field_names names, uint32_t min, uint32_t max,
                                           uint32_t *out)
{
    const char *name = names[0];
    uint32_t token = exl2__fields_find(f, names, &name);
    uint64_t value;
    double absent;
    if (!token && exl2__fields_default(f, names, &absent)) {
        *out = (uint32_t)absent;
    }
    if (!token) {
        return *out >= min ? EXL2_OK : exl2__fields_missing(f, name);
    }
    if (!exl2__json_u64(&f->json, token, &value) || value < min || value > max) {
        char allowed[64];
        exl2__format(allowed, sizeof allowed, "an integer from %u to %u", min, max);
        return exl2__fields_bad(f, name, token, allowed);
    }
    *out = (uint32_t)value;
    return EXL2_OK;
}

/* The same. *present (may be NULL): the field exists, or has a default. */
static inline exl2_result exl2__fields_f64(const exl2__fields *f, exl2__field_names names, double min, double max,
                                           const char *allowed, double *out, bool *present)
{
    const char *name = names[0];
    uint32_t token = exl2__fields_find(f, names, &name);
    double value;
    bool has_default = !token && exl2__fields_default(f, names, out);
    if (present) {
        *present = token != 0 || has_default;
    }
    if (!token) {
        return EXL2_OK;
    }
    if (!exl2__json_f64(&f->json, token, &value) || value < min || value > max) {
        return exl2__fields_bad(f, name, token, allowed);
    }
    *out = value;
    return EXL2_OK;
}

static inline exl2_result exl2__fields_bool(const exl2__fields *f, exl2__field_names names, bool *out, bool *present)
{
    const char *name = names[0];
    uint32_t token = exl2__fields_find(f, names, &name);
    if (present) {
        *present = token != 0;
    }
    if (token && !exl2__json_bool(&f->json, token, out)) {
        return exl2__fields_bad(f, name, token, "true or false");
    }
    return EXL2_OK;
}

#endif
