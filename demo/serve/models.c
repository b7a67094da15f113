/* models.c: see models.h.
   takes: folders.
   gives: what models.h declares.
   owns:  the models of a server, until models_sweep or models_close. */
#include "models.h"

#include "../common/folder.h"
#include "../common/json_in.h"
#include "../common/text_file.h"
#include "adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEMPLATE_BYTES_MAX ((size_t)8 << 20) /* of a file that has a template */

/* ---- names and templates ---- */

static bool is_slash(char c)
{
#ifdef _WIN32
    return c == '/' || c == '\\';
#else
    return c == '/';
#endif
}

char *models_name(const char *path)
{
    size_t end = strlen(path), begin;
    while (end > 1 && is_slash(path[end - 1])) {
        end--;
    }
    for (begin = end; begin > 0 && !is_slash(path[begin - 1]); begin--) {
    }
    return buffer_copy(path + begin, end - begin);
}

/* chat_template of tokenizer_config.json: a text, or a list of named ones, of which "default" counts. */
static char *template_of_json(const char *text, size_t bytes)
{
    const char *error;
    json_value *tree = json_read(text, bytes, &error);
    const json_value *found = json_member(tree, "chat_template");
    if (found && found->kind == JSON_ARRAY) {
        const json_value *item = found->child;
        found = item ? json_member(item, "template") : NULL;
        for (; item; item = item->next) {
            const json_value *name = json_member(item, "name");
            if (name && name->kind == JSON_TEXT && strcmp(name->text, "default") == 0) {
                found = json_member(item, "template");
            }
        }
    }
    char *out = found && found->kind == JSON_TEXT ? buffer_copy(found->text, found->text_bytes) : NULL;
    json_free(tree);
    return out;
}

static char *read_template(const char *path)
{
    static const char *const files[] = { "chat_template.jinja", "tokenizer_config.json", "chat_template.json" };
    char *out = NULL;
    for (size_t i = 0; i < 3 && !out; i++) {
        char file[MODELS_PATH_MAX];
        size_t bytes = 0;
        snprintf(file, sizeof file, "%s/%s", path, files[i]);
        char *text = text_file_load(file, TEMPLATE_BYTES_MAX, &bytes);
        if (text && i > 0) {
            out = template_of_json(text, bytes);
            free(text);
        } else {
            out = text;
        }
    }
    return out;
}

const char *models_template(const server *s, const model *m)
{
    return s->template_text ? s->template_text : m->template_text;
}

/* ---- loading ---- */

static void free_model(model *m)
{
    adapters_close(m->server, m);
    engine_load_free_text(&m->load);
    free(m->name);
    free(m->path);
    free(m->draft_path);
    free(m->template_text);
    free(m);
}

static void set_cache(exl2_model_desc *d, const models_desc *from)
{
    static const char *const names[] = { "FP16", "Q8", "Q6", "Q4" };
    for (uint32_t i = 0; i < 4 && from->cache_mode; i++) {
        if (strcmp(from->cache_mode, names[i]) == 0) {
            d->cache.format = (exl2_kv)i;
        }
    }
    d->cache.tokens = from->cache_tokens;
}

model *models_load(server *s, const models_desc *from)
{
    const serve_options *o = s->options;
    uint32_t count = 0;
    model **end = &s->models;
    for (; *end; end = &(*end)->next) {
        count++;
    }
    model *m = count < SERVER_MODELS_MAX ? calloc(1, sizeof *m) : NULL;
    if (!m) {
        return NULL;
    }
    m->server = s;
    m->name = models_name(from->path);
    m->path = buffer_copy(from->path, strlen(from->path));
    m->has_draft = from->draft != NULL;
    m->draft_path = from->draft ? buffer_copy(from->draft, strlen(from->draft)) : NULL;
    if (!m->name || !m->path || (m->has_draft && !m->draft_path)) {
        free_model(m);
        return NULL;
    }
    m->template_text = read_template(m->path);
    m->created = (int64_t)time(NULL);
    exl2_model_desc d = o->model;
    d.path = m->path;
    d.context_max = from->context ? from->context : d.context_max;
    d.batch_max = from->batch ? from->batch : o->batch;
    d.rope_scale = from->rope_scale > 0 ? from->rope_scale : d.rope_scale;
    d.rope_alpha = from->rope_alpha > 0 ? from->rope_alpha : d.rope_alpha;
    d.grammars = !from->embeds;
    if (!from->embeds && (o->adapters || o->host.loras.count)) {
        d.lora_max = ADAPTERS_ROOM;
        d.lora_rank_max = ADAPTERS_RANK;
    }
    d.vision = from->embeds ? (exl2_vision_desc){ 0 } : d.vision;
    m->embeds = from->embeds;
    set_cache(&d, from);
    m->load =
        (engine_load){ .desc = d, .sequences = d.batch_max ? d.batch_max : 16, .on_news = loader_news, .user = m };
    if (m->has_draft) {
        m->draft = (engine_load){ .desc = { .path = m->draft_path, .context_max = d.context_max,
                                            .batch_max = d.batch_max },
                                  .sequences = m->load.sequences, .no_text = true, .on_news = loader_news,
                                  .user = m };
        m->load.draft = &m->draft;
        engine_load_begin(s->engine, &m->draft);
    }
    *end = m;
    engine_load_begin(s->engine, &m->load);
    return m;
}

void models_unload(model *m)
{
    if (!m->leaving) {
        m->leaving = true;
        engine_unload(m->server->engine, &m->load);
        if (m->has_draft) {
            engine_unload(m->server->engine, &m->draft);
        }
    }
}

void models_sweep(server *s)
{
    for (model **at = &s->models; *at;) {
        model *m = *at;
        bool out = m->leaving && m->load.state == ENGINE_UNLOADED && !m->calls
                && (!m->has_draft || m->draft.state == ENGINE_UNLOADED);
        if (out && !m->loader) {
            *at = m->next;
            free_model(m);
        } else {
            at = &m->next;
        }
    }
}

void models_close(server *s)
{
    while (s->models) {
        model *m = s->models;
        s->models = m->next;
        exl2_close(m->load.text_loading);
        free_model(m);
    }
}

/* ---- looking for one ---- */

static bool is_ready(const model *m)
{
    return m->load.state == ENGINE_READY && !m->leaving;
}

model *models_first(const server *s)
{
    for (model *m = s->models; m; m = m->next) {
        if (is_ready(m) && !m->embeds) {
            return m;
        }
    }
    return NULL;
}

bool models_all_ready(const server *s)
{
    for (const model *m = s->models; m; m = m->next) {
        if (!is_ready(m)) {
            return false;
        }
    }
    return s->models != NULL;
}

bool models_loading(const server *s)
{
    for (const model *m = s->models; m; m = m->next) {
        if (m->load.state == ENGINE_LOADING) {
            return true;
        }
    }
    return false;
}

static bool has_name(const server *s, const model *m, const char *name)
{
    if (strcmp(m->name, name) == 0) {
        return true;
    }
    for (uint32_t i = 0; i < s->options->aliases.count && m == s->models; i++) {
        if (strcmp(s->options->aliases.items[i], name) == 0) {
            return true;
        }
    }
    return false;
}

model *models_find(const server *s, const char *name, int *status, char *why, size_t cap)
{
    uint32_t ready = 0;
    model *first = models_first(s);
    for (model *m = s->models; m; m = m->next) {
        ready += is_ready(m) && !m->embeds;
        if (name && is_ready(m) && !m->embeds && has_name(s, m, name)) {
            return m;
        }
    }
    if (!first) {
        *status = 503;
        snprintf(why, cap, "%s", models_loading(s) ? "The model is still loading." : "No model is loaded.");
        return NULL;
    }
    if (!name || ready == 1) {
        return first;
    }
    *status = 404;
    int bytes = snprintf(why, cap, "There is no model '%.100s' here. The models are:", name);
    for (const model *m = s->models; m && bytes > 0 && (size_t)bytes < cap; m = m->next) {
        if (is_ready(m) && !m->embeds) {
            bytes += snprintf(why + bytes, cap - (size_t)bytes, " %s", m->name);
        }
    }
    return NULL;
}

model *models_embedder(const server *s, const char *name)
{
    model *found = NULL;
    for (model *m = s->models; m; m = m->next) {
        if (is_ready(m) && name && has_name(s, m, name)) {
            return m;
        }
        found = is_ready(m) && m->embeds ? m : found;
    }
    return found ? found : models_first(s);
}

typedef struct folder_search {
    const server *server;
    const char *name;
    buffer *list;
    bool found;
} folder_search;

bool models_folder_has(const char *folder, const char *name, const char *file, char *out, size_t cap)
{
    char path[MODELS_PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    if (bytes < 0 || (size_t)bytes >= sizeof path || (size_t)bytes >= cap) {
        return false;
    }
    snprintf(out, cap, "%s/%s", folder, name);
    FILE *found = text_file_open(path, "rb");
    if (found) {
        fclose(found);
    }
    return found != NULL;
}

static void compare_name(void *user, const char *name)
{
    folder_search *search = user;
    search->found = search->found || strcmp(name, search->name) == 0;
}

bool models_lists(const char *folder, const char *name)
{
    folder_search search = { .name = name };
    return folder && folder_each(folder, compare_name, &search) && search.found;
}

bool models_in(const char *folder, const char *name, const char *file, char *out, size_t cap)
{
    return models_lists(folder, name) && models_folder_has(folder, name, file, out, cap);
}

/* ---- JSON ---- */

static void put_card_head(buffer *out, const char *name, int64_t created)
{
    buffer_name(out, "id", name);
    buffer_name(out, "object", "model");
    buffer_int(out, "created", created);
    buffer_name(out, "owned_by", "exl2");
}

void models_card(const model *m, buffer *out, const char *key)
{
    static const char *const formats[] = { "FP16", "Q8", "Q6", "Q4" };
    const exl2_model_info *info = &m->load.info;
    const exl2_model_desc *d = &m->load.desc;
    const server *s = m->server;
    exl2_kv format = d->cache.format ? d->cache.format : (exl2_kv)s->options->host.cache;
    buffer_object(out, key);
    put_card_head(out, m->name, m->created);
    buffer_null(out, "logging");
    buffer_object(out, "parameters");
    buffer_uint(out, "max_seq_len", info->context_max);
    buffer_uint(out, "cache_size", info->cache_tokens);
    buffer_name(out, "cache_mode", formats[format]);
    buffer_number(out, "rope_scale", d->rope_scale > 0 ? d->rope_scale : 1);
    buffer_number(out, "rope_alpha", d->rope_alpha > 0 ? d->rope_alpha : 1);
    buffer_uint(out, "max_batch_size", d->batch_max ? d->batch_max : 16);
    buffer_uint(out, "chunk_size", d->prefill_chunk ? d->prefill_chunk : 1024);
    buffer_name(out, "prompt_template",
                s->template_text ? s->template_name : info->has_chat_template ? "default" : NULL);
    buffer_name(out, "prompt_template_content", models_template(s, m));
    buffer_bool(out, "use_vision", info->tower_bytes > 0);
    buffer_uint(out, "images_max", info->tower_bytes ? d->vision.images : 0); /* of a request */
    buffer_name(out, "arch", info->arch);
    buffer_number(out, "bits_per_weight", info->bits_per_weight);
    buffer_object(out, "memory");
    buffer_uint(out, "weights", info->weight_bytes);
    buffer_uint(out, "pages", info->cache_bytes);
    buffer_uint(out, "buffers", info->scratch_bytes);
    buffer_uint(out, "on_device", info->device_bytes);
    buffer_end(out);
    if (m->has_draft) {
        char *name = models_name(m->draft_path);
        buffer_object(out, "draft");
        put_card_head(out, name ? name : "", m->created);
        buffer_end(out);
        free(name);
    } else {
        buffer_null(out, "draft");
    }
    buffer_end(out);
    buffer_end(out);
}

static void list_entry(void *user, const char *name)
{
    folder_search *search = user;
    char path[MODELS_PATH_MAX];
    for (const model *m = search->server->models; m; m = m->next) {
        if (strcmp(m->name, name) == 0) {
            return;
        }
    }
    if (models_folder_has(search->server->options->folder, name, "config.json", path, sizeof path)) {
        buffer_object(search->list, NULL);
        put_card_head(search->list, name, 0);
        buffer_end(search->list);
    }
}

void models_list(const server *s, bool admin, buffer *out)
{
    buffer_object(out, NULL);
    buffer_name(out, "object", "list");
    buffer_array(out, "data");
    for (const model *m = s->models; m; m = m->next) {
        if (is_ready(m)) {
            models_card(m, out, NULL);
        }
    }
    for (uint32_t i = 0; i < s->options->aliases.count && s->models; i++) {
        buffer_object(out, NULL);
        put_card_head(out, s->options->aliases.items[i], s->models->created);
        buffer_end(out);
    }
    if (admin && s->options->folder) {
        folder_search search = { .server = s, .list = out };
        folder_each(s->options->folder, list_entry, &search);
    }
    buffer_end(out);
    buffer_end(out);
}
