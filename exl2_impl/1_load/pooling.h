/* pooling.h: how a folder of sentence-transformers makes one vector of a text: 1_Pooling/config.json and modules.json.
   Both files are optional. What they ask for and this engine does not compute is no error here: the model still
   generates. A job that asks for an embedding fails with the reason.
   takes: a model folder, untrusted.
   gives: exl2__pooling, exl2__pooling_read. */
#ifndef EXL2__POOLING_H
#define EXL2__POOLING_H

#include "fields.h"

#define EXL2__POOLING_FILE "1_Pooling/config.json"
#define EXL2__POOLING_MODULES "modules.json"

typedef struct exl2__pooling {
    exl2_embed_pool pool;   /* OFF: the folder does not say */
    bool raw;               /* modules.json normalizes nothing */
    char unsupported[160];  /* why the folder's embeddings cannot be computed; "" = they can */
} exl2__pooling;

static inline void exl2__pooling_reject(exl2__pooling *out, const char *format, const char *name)
{
    if (!out->unsupported[0]) {
        exl2__format(out->unsupported, sizeof out->unsupported, format, name);
    }
}

/* Takes the mode of this name, such as "mean_tokens". */
static inline void exl2__pooling_mode(exl2__pooling *out, const char *name)
{
    static const struct {
        const char *name;
        exl2_embed_pool pool;
    } modes[] = { { "lasttoken", EXL2_EMBED_LAST }, { "mean_tokens", EXL2_EMBED_MEAN }, { "mean", EXL2_EMBED_MEAN },
                  { "cls_token", EXL2_EMBED_FIRST }, { "cls", EXL2_EMBED_FIRST } };
    exl2_embed_pool pool = EXL2_EMBED_OFF;
    for (size_t i = 0; i < EXL2__COUNT(modes); i++) {
        pool = strcmp(modes[i].name, name) == 0 ? modes[i].pool : pool;
    }
    if (pool == EXL2_EMBED_OFF) {
        exl2__pooling_reject(out, EXL2__POOLING_FILE ": the pooling mode '%s' is not supported", name);
    } else if (out->pool != EXL2_EMBED_OFF && out->pool != pool) {
        exl2__pooling_reject(out, EXL2__POOLING_FILE ": several pooling modes, such as '%s', are not supported", name);
    }
    out->pool = pool;
}

/* The modes: a boolean "pooling_mode_NAME" for each, or "pooling_mode" with a name. */
EXL2__PRIVATE exl2_result exl2__pooling_read_modes(const exl2__fields *f, exl2__pooling *out)
{
    static const char key[] = "pooling_mode";
    const exl2__json *j = &f->json;
    for (uint32_t m = exl2__json_first(j, 0); m; m = exl2__json_next(j, 0, m)) {
        char name[64] = "", value[64] = "";
        bool on = false;
        size_t bytes = exl2__json_text(j, m, name, sizeof name - 1);
        if (bytes >= sizeof name || strncmp(name, key, sizeof key - 1) != 0) {
            continue;
        }
        const char *mode = name + sizeof key - 1;
        bool one = mode[0] == 0 && j->tokens[m + 1].kind == EXL2__JSON_STRING;
        if (one) {
            size_t length = exl2__json_text(j, m + 1, value, sizeof value - 1);
            exl2__pooling_mode(out, length < sizeof value ? value : "");
        } else if (mode[0] != '_' || !exl2__json_bool(j, m + 1, &on)) {
            return exl2__fields_bad(f, name, m + 1, mode[0] ? "true or false" : "a name");
        } else if (on) {
            exl2__pooling_mode(out, mode + 1);
        }
    }
    return EXL2_OK;
}

/* modules.json: a list of {"path", "type"}: Transformer, Pooling and perhaps Normalize. */
EXL2__PRIVATE exl2_result exl2__pooling_read_modules(exl2__ctx *c, const exl2__json *j, exl2__pooling *out)
{
    bool normalizes = false;
    if (j->tokens[0].kind != EXL2__JSON_ARRAY) {
        return exl2__fail(c, EXL2_ERR_FORMAT, EXL2__POOLING_MODULES ": expected a list at the top level");
    }
    for (uint32_t m = exl2__json_first(j, 0); m; m = exl2__json_next(j, 0, m)) {
        char type[128] = "";
        uint32_t token = j->tokens[m].kind == EXL2__JSON_OBJECT ? exl2__json_get(j, m, "type") : 0;
        uint32_t path = token ? exl2__json_get(j, m, "path") : 0;
        size_t bytes = token && j->tokens[token].kind == EXL2__JSON_STRING
                     ? exl2__json_text(j, token, type, sizeof type - 1) : sizeof type;
        if (bytes >= sizeof type) {
            return exl2__fail(c, EXL2_ERR_FORMAT, EXL2__POOLING_MODULES ": expected objects with a type of at most 127 "
                              "bytes");
        }
        const char *dot = strrchr(type, '.'), *name = dot ? dot + 1 : type;
        if (strcmp(name, "Pooling") == 0 && path && !exl2__json_is(j, path, "1_Pooling")) {
            exl2__pooling_reject(out, EXL2__POOLING_MODULES ": a module '%s' in another folder than 1_Pooling is not "
                                 "supported", name);
        } else if (strcmp(name, "Normalize") == 0) {
            normalizes = true;
        } else if (strcmp(name, "Transformer") != 0 && strcmp(name, "Pooling") != 0) {
            exl2__pooling_reject(out, EXL2__POOLING_MODULES ": the module '%s' is not supported", name);
        }
    }
    out->raw = !normalizes;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__pooling_open_modules(exl2__ctx *c, const char *dir, exl2__pooling *out)
{
    exl2__blob text = { 0 };
    exl2__json json = { 0 };
    exl2_result r = exl2__file_read_optional(c, dir, EXL2__POOLING_MODULES, 1u << 20, &text);
    if (r == EXL2_OK && text.data) {
        r = exl2__file_check_text(c, EXL2__POOLING_MODULES, &text);
        r = r < 0 ? r : exl2__json_open(c, EXL2__POOLING_MODULES, text.data, (size_t)text.bytes, &json);
        r = r < 0 ? r : exl2__pooling_read_modules(c, &json, out);
        exl2__json_close(c, &json);
    }
    exl2__blob_close(c, &text);
    return r;
}

/* Reads both files, if they exist. */
EXL2__PRIVATE exl2_result exl2__pooling_read(exl2__ctx *c, const char *dir, exl2__pooling *out)
{
    exl2__fields f;
    *out = (exl2__pooling){ .pool = EXL2_EMBED_OFF };
    EXL2__TRY(exl2__fields_open(c, dir, EXL2__POOLING_FILE, true, &f));
    exl2_result r = f.text.data ? exl2__pooling_read_modes(&f, out) : EXL2_OK;
    exl2__fields_close(&f);
    EXL2__TRY(r);
    return exl2__pooling_open_modules(c, dir, out);
}

#endif
