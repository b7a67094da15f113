/* endpoints_overrides.c: values of request fields that the server's owner sets.
   takes: --override FILE; bodies of /v1/sampling/override/switch.
   gives: endpoint_overrides, endpoint_override_switch, endpoint_override_unload, overrides_load of endpoints.h.
   owns:  the server's overrides. */
#include "../common/folder.h"
#include "../common/json_in.h"
#include "../common/text_file.h"
#include "endpoints.h"
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 20)

/* Replaces the server's overrides. On an error they stay as they were. */
static bool take(server *s, const char *name, const char *text, size_t bytes, uint32_t vocab, request_error *error)
{
    overrides *fresh = calloc(1, sizeof *fresh);
    if (!fresh) {
        return fields_fail(error, NULL, "there is no memory left for the overrides");
    }
    if (!overrides_read(text, bytes, vocab, fresh, error)) {
        free(fresh);
        return false;
    }
    overrides_free(&s->overrides);
    s->overrides = *fresh;
    free(fresh);
    snprintf(s->override_name, sizeof s->override_name, "%.100s", name);
    return true;
}

bool overrides_load(server *s, const char *path, uint32_t vocab, char *why, size_t cap)
{
    request_error error = { 0 };
    size_t bytes = 0;
    char *text = text_file_load(path, FILE_BYTES_MAX, &bytes);
    if (!text) {
        snprintf(why, cap, "%.200s cannot be read", path);
        return false;
    }
    bool good = take(s, path, text, bytes, vocab, &error);
    snprintf(why, cap, "%.100s: %.300s", path, error.message);
    free(text);
    return good;
}

/* ---- lists ---- */

static bool is_preset(const char *name, size_t *stem)
{
    static const char *const ends[] = { ".yml", ".yaml" };
    size_t bytes = strlen(name);
    for (size_t i = 0; i < 2; i++) {
        size_t end = strlen(ends[i]);
        if (bytes > end && strcmp(name + bytes - end, ends[i]) == 0) {
            *stem = bytes - end;
            return true;
        }
    }
    return false;
}

static void list_preset(void *user, const char *name)
{
    size_t stem;
    if (is_preset(name, &stem)) {
        buffer_text(user, NULL, name, stem);
    }
}

void endpoint_overrides(const endpoint_request *r)
{
    const server *s = r->server;
    buffer out = { 0 };
    buffer_object(&out, NULL);
    buffer_name(&out, "selected_preset", s->override_name[0] ? s->override_name : NULL);
    overrides_json(&s->overrides, "overrides", &out);
    buffer_array(&out, "presets");
    buffer_name(&out, NULL, "safe_defaults");
    if (r->admin && s->options->folder) {
        folder_each(s->options->folder, list_preset, &out);
    }
    buffer_end(&out);
    buffer_end(&out);
    endpoint_json(r, 200, &out);
}

/* ---- switch ---- */

typedef struct preset_search {
    const char *name;
    char file[256]; /* "": not found */
} preset_search;

static void compare_preset(void *user, const char *name)
{
    preset_search *search = user;
    size_t stem;
    if (is_preset(name, &stem) && strlen(search->name) == stem && strncmp(search->name, name, stem) == 0
        && strlen(name) < sizeof search->file) {
        snprintf(search->file, sizeof search->file, "%s", name);
    }
}

static bool take_preset(server *s, const char *name, uint32_t vocab, request_error *error)
{
    char path[MODELS_PATH_MAX];
    preset_search search = { .name = name };
    size_t bytes = 0;
    if (strcmp(name, "safe_defaults") == 0) {
        return take(s, name, overrides_safe_defaults, strlen(overrides_safe_defaults), vocab, error);
    }
    if (s->options->folder) {
        folder_each(s->options->folder, compare_preset, &search);
    }
    if (!search.file[0]) {
        return fields_fail(error, "preset", "there is no preset '%.100s'", name);
    }
    snprintf(path, sizeof path, "%s/%s", s->options->folder, search.file);
    char *text = text_file_load(path, FILE_BYTES_MAX, &bytes);
    bool good = text ? take(s, name, text, bytes, vocab, error)
                     : fields_fail(error, "preset", "the preset '%.100s' cannot be read", name);
    free(text);
    return good;
}

void endpoint_override_switch(const endpoint_request *r)
{
    const model *m = models_first(r->server);
    json_value *tree = endpoint_body(r);
    request_error error = { 0 };
    const json_value *rows = NULL;
    const char *name = NULL;
    if (!tree) {
        return;
    }
    uint32_t vocab = m ? m->load.info.vocab : INT32_MAX;
    fields f = { tree, &error };
    if (fields_text(&f, "preset", &name, NULL)) {
        take_preset(r->server, name, vocab, &error);
    } else if (fields_object(&f, "overrides", &rows)) {
        take(r->server, "", rows->raw, rows->raw_bytes, vocab, &error);
    } else {
        fields_fail(&error, "preset", "preset or overrides is missing");
    }
    if (error.set) {
        endpoint_bad(r->x, &error);
    } else {
        endpoint_ok(r);
    }
    json_free(tree);
}

void endpoint_override_unload(const endpoint_request *r)
{
    overrides_free(&r->server->overrides);
    r->server->override_name[0] = 0;
    endpoint_ok(r);
}
