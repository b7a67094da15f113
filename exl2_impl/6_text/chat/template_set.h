/* template_set.h: opens the chat templates of a model folder and picks one for a conversation.
   takes: a model folder, its tokenizer.
   gives: exl2__template_set_pick, exl2__template_set_close; exl2__template_set_reader and exl2__template_set_begin,
          _slice and _end, which work in slices.
   owns:  the templates, until exl2__template_set_close; a file, until exl2__template_set_end. */
#ifndef EXL2__TEMPLATE_SET_H
#define EXL2__TEMPLATE_SET_H

#include "../../0_base/log.h"
#include "../../1_load/json_file.h"
#include "template_guard.h"

#define EXL2__TEMPLATE_SET_FILE_MAX ((uint64_t)16 << 20)
#define EXL2__TEMPLATE_SET_MAX 6u /* published folders have at most three */

typedef struct exl2__template_set {
    exl2__template item[EXL2__TEMPLATE_SET_MAX];
    char name[EXL2__TEMPLATE_SET_MAX][32];
    uint32_t count;
    uint64_t bytes; /* size of all templates and their guards */
} exl2__template_set;

EXL2__PRIVATE void exl2__template_set_close(exl2__ctx *c, exl2__template_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        exl2__template_close(c, &set->item[i]);
    }
    memset(set, 0, sizeof *set);
}

/* ---- opening ---- */

/* Adds the template in a JSON string. */
EXL2__PRIVATE exl2_result exl2__template_set_add(exl2__ctx *c, exl2__template_set *set, const exl2__json *j,
                                                 uint32_t name, uint32_t text)
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
EXL2__PRIVATE exl2_result exl2__template_set_json(exl2__ctx *c, exl2__template_set *set, const exl2__json *j)
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

/* The state of reading: the files in order, then the guards of the templates. */
typedef struct exl2__template_set_reader {
    exl2__ctx *c;
    const char *dir;
    const exl2__vocab *vocab; /* NULL: no guards */
    exl2__template_set *set;
    exl2__file_reader jinja;
    exl2__json_file json;
    uint32_t file;            /* the next of exl2__template_set_files */
    uint32_t guarded;         /* templates that have their guards */
    bool jinja_read, json_open;
} exl2__template_set_reader;

static const char *const exl2__template_set_files[] = { "chat_template.json", "tokenizer_config.json" };

/* Begins to read the templates of a model folder into *set: chat_template.jinja, else chat_template of
   chat_template.json, else that of tokenizer_config.json. After a failure, too, the caller ends r. */
EXL2__PRIVATE exl2_result exl2__template_set_begin(exl2__template_set_reader *r, exl2__ctx *c, const char *dir,
                                                   const exl2__vocab *vocab, exl2__template_set *set)
{
    memset(r, 0, sizeof *r);
    memset(set, 0, sizeof *set);
    r->c = c;
    r->dir = dir;
    r->vocab = vocab;
    r->set = set;
    return exl2__file_reader_open(c, dir, "chat_template.jinja", EXL2__TEMPLATE_SET_FILE_MAX, &r->jinja);
}

EXL2__PRIVATE exl2_result exl2__template_set_read_jinja(exl2__template_set_reader *r, exl2__work *work)
{
    const exl2__blob *text = &r->jinja.blob;
    EXL2__TRY_DONE(exl2__file_reader_slice(r->c, &r->jinja, work));
    if (text->data) {
        EXL2__TRY(exl2__file_check_text(r->c, r->jinja.name, text));
        EXL2__TRY(exl2__template_open(r->c, text->data, (size_t)text->bytes, &r->set->item[0]));
        r->set->count = 1;
    }
    exl2__file_reader_close(r->c, &r->jinja);
    r->jinja_read = true;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_set_read_json(exl2__template_set_reader *r, exl2__work *work)
{
    const char *name = exl2__template_set_files[r->file];
    const exl2__json *j = &r->json.parse.j;
    if (!r->json_open) {
        r->json_open = true;
        EXL2__TRY(exl2__json_file_open(r->c, r->dir, name, EXL2__TEMPLATE_SET_FILE_MAX, NULL, &r->json));
    }
    EXL2__TRY_DONE(exl2__json_file_slice(r->c, &r->json, work));
    if (j->tokens && j->tokens[0].kind != EXL2__JSON_OBJECT) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, "%s: expected an object at the top level", name);
    }
    if (j->tokens) {
        EXL2__TRY(exl2__template_set_json(r->c, r->set, j));
    }
    exl2__json_file_close(r->c, &r->json);
    r->json_open = false;
    r->file++;
    return EXL2_OK;
}

/* Makes the guard of one template. */
EXL2__PRIVATE exl2_result exl2__template_set_guard(exl2__template_set_reader *r)
{
    exl2__template *t = &r->set->item[r->guarded++];
    if (t->rejected.code < 0) {
        exl2__log(r->c, EXL2_LOG_WARN, EXL2_LOG_ID_TEMPLATE_UNUSABLE, "%s", t->rejected.text);
    }
    const exl2__vocab *v = r->vocab;
    EXL2__TRY(v ? exl2__template_guard(r->c, t, v) : EXL2_OK);
    exl2__template_input tokens = { NULL, 0, NULL, v ? v->bos_text : NULL, v ? v->eos_text : NULL,
                                    v ? v->unk_text : NULL, v ? v->pad_text : NULL, NULL, NULL, NULL, NULL };
    EXL2__TRY(exl2__template_probe(r->c, t, &tokens));
    r->set->bytes += t->bytes + t->guard_bytes;
    return EXL2_OK;
}

/* Reads on, in slices. If the folder has no template, the result is EXL2_OK with count 0. A rejected template is
   EXL2_OK, too, with a warning in the log: the model loads and accepts raw prompts, and exl2__template_render fails
   with the reason. */
EXL2__PRIVATE exl2_result exl2__template_set_slice(exl2__template_set_reader *r, exl2__work *work)
{
    if (!r->jinja_read) {
        EXL2__TRY_DONE(exl2__template_set_read_jinja(r, work));
    }
    while (r->set->count == 0 && r->file < EXL2__COUNT(exl2__template_set_files)) {
        EXL2__TRY_DONE(exl2__template_set_read_json(r, work));
    }
    while (r->guarded < r->set->count) {
        if (!exl2__work_spend_all(work)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__template_set_guard(r));
    }
    return EXL2_OK;
}

/* Frees what reading needed. Accepts a zeroed reader. */
EXL2__PRIVATE void exl2__template_set_end(exl2__template_set_reader *r)
{
    if (r->c) {
        exl2__file_reader_close(r->c, &r->jinja);
        exl2__json_file_close(r->c, &r->json);
    }
    memset(r, 0, sizeof *r);
}

/* ---- choosing ---- */

EXL2__PRIVATE exl2__template *exl2__template_set_find(exl2__template_set *set, const char *name)
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
EXL2__PRIVATE exl2__template *exl2__template_set_pick(exl2__template_set *set, const char *name, bool tools)
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
