/* template_set.h: opens the chat templates of a model folder and picks one for a conversation.
   takes: a model folder, its tokenizer.
   gives: exl2__template_set_open, exl2__template_set_pick, exl2__template_set_close.
   owns:  the templates, until exl2__template_set_close. */
#ifndef EXL2__TEMPLATE_SET_H
#define EXL2__TEMPLATE_SET_H

#include "../../0_base/log.h"
#include "../../1_load/fields.h"
#include "template_guard.h"

#define EXL2__TEMPLATE_SET_MAX 6u /* published folders have at most three */

typedef struct exl2__template_set {
    exl2__template item[EXL2__TEMPLATE_SET_MAX];
    char name[EXL2__TEMPLATE_SET_MAX][32];
    uint32_t count;
    uint64_t bytes; /* size of all templates and their guards */
} exl2__template_set;

static void exl2__template_set_close(exl2__ctx *c, exl2__template_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        exl2__template_close(c, &set->item[i]);
    }
    memset(set, 0, sizeof *set);
}

/* ---- opening ---- */

/* Adds the template in a JSON string. */
static exl2_result exl2__template_set_add(exl2__ctx *c, exl2__template_set *set, const exl2__json *j, uint32_t name,
                                          uint32_t text)
{
    void *memory = NULL;
    if (set->count == EXL2__TEMPLATE_SET_MAX) {
        exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_TEMPLATES_LEFT_OUT,
                  "the model folder has more than %u chat templates: the rest is left out", EXL2__TEMPLATE_SET_MAX);
        return EXL2_OK;
    }
    size_t bytes = exl2__json_text(j, text, NULL, 0), name_bytes = name ? exl2__json_text(j, name, NULL, 0) : 0;
    if (name_bytes >= sizeof set->name[0]) {
        return EXL2_OK;
    }
    exl2__template *item = &set->item[set->count];
    EXL2__TRY(exl2__alloc(c, bytes, 16, EXL2_MEM_SCRATCH, &memory));
    exl2__json_text(j, text, (char *)memory, bytes);
    exl2_result result = exl2__template_open(c, (const char *)memory, bytes, item);
    exl2__free(c, memory, bytes, EXL2_MEM_SCRATCH);
    EXL2__TRY(result);
    if (name) {
        exl2__json_text(j, name, set->name[set->count], name_bytes);
    }
    set->count++;
    return EXL2_OK;
}

/* chat_template: a text, or a list of {"name", "template"}. */
static exl2_result exl2__template_set_json(exl2__ctx *c, exl2__template_set *set, const exl2__json *j)
{
    uint32_t token = exl2__json_get(j, 0, "chat_template");
    if (!token || j->tokens[token].kind == EXL2__JSON_STRING) {
        return token ? exl2__template_set_add(c, set, j, 0, token) : EXL2_OK;
    }
    for (uint32_t item = exl2__json_first(j, token); item; item = exl2__json_next(j, token, item)) {
        uint32_t name = exl2__json_get(j, item, "name"), text = exl2__json_get(j, item, "template");
        if (name && text && j->tokens[name].kind == EXL2__JSON_STRING && j->tokens[text].kind == EXL2__JSON_STRING) {
            EXL2__TRY(exl2__template_set_add(c, set, j, name, text));
        }
    }
    return EXL2_OK;
}

static exl2_result exl2__template_set_read(exl2__ctx *c, const char *dir, exl2__template_set *set)
{
    static const char *const files[] = { "chat_template.json", "tokenizer_config.json" };
    exl2__blob file = { 0 };
    EXL2__TRY(exl2__file_read_optional(c, dir, "chat_template.jinja", (uint64_t)16 << 20, &file));
    exl2_result result = EXL2_OK;
    if (file.data) {
        result = exl2__template_open(c, file.data, (size_t)file.bytes, &set->item[0]);
        set->count = result == EXL2_OK;
    }
    exl2__blob_close(c, &file);
    for (size_t i = 0; i < EXL2__COUNT(files) && result == EXL2_OK && set->count == 0; i++) {
        exl2__fields config = { 0 };
        result = exl2__fields_open(c, dir, files[i], true, &config);
        if (result == EXL2_OK && config.text.data) {
            result = exl2__template_set_json(c, set, &config.json);
        }
        exl2__fields_close(&config);
    }
    return result;
}

/* Opens the templates of a model folder: chat_template.jinja, else chat_template of chat_template.json, else that of
   tokenizer_config.json. If the folder has none, the result is EXL2_OK with count 0. A rejected template is EXL2_OK,
   too, with a warning in the log: the model loads and accepts raw prompts, and exl2__template_render fails with the
   reason. `vocab` NULL: no guard. */
static exl2_result exl2__template_set_open(exl2__ctx *c, const char *dir, const exl2__vocab *vocab,
                                           exl2__template_set *set)
{
    memset(set, 0, sizeof *set);
    exl2_result result = exl2__template_set_read(c, dir, set);
    for (uint32_t i = 0; i < set->count && result == EXL2_OK; i++) {
        exl2__template *t = &set->item[i];
        if (t->rejected.code < 0) {
            exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_TEMPLATE_UNUSABLE, "%s", t->rejected.text);
        }
        result = vocab ? exl2__template_guard(c, t, vocab) : EXL2_OK;
        set->bytes += t->bytes + t->guard_bytes;
    }
    if (result < 0) {
        exl2__template_set_close(c, set);
    }
    return result;
}

/* ---- choosing ---- */

static exl2__template *exl2__template_set_find(exl2__template_set *set, const char *name)
{
    for (uint32_t i = 0; i < set->count; i++) {
        if (strcmp(set->name[i], name) == 0) {
            return &set->item[i];
        }
    }
    return NULL;
}

/* The template `name`, where "default" may be the one without a name. With name NULL: "tool_use" if there are tools,
   else "default", else the one without a name. NULL: not found. */
static exl2__template *exl2__template_set_pick(exl2__template_set *set, const char *name, bool tools)
{
    exl2__template *found = NULL;
    if (name) {
        found = exl2__template_set_find(set, name);
        return found || strcmp(name, "default") != 0 ? found : exl2__template_set_find(set, "");
    }
    found = tools ? exl2__template_set_find(set, "tool_use") : NULL;
    found = found ? found : exl2__template_set_find(set, "default");
    return found ? found : exl2__template_set_find(set, "");
}

#endif
