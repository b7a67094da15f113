/* lora_config.h: adapter_config.json of a LoRA adapter in peft's format: rank and alpha of each module; what is not
   supported is rejected, and the message names it.
   takes: an adapter's folder, untrusted.
   gives: exl2__lora_config, exl2__lora_config_read, exl2__lora_config_close, exl2__lora_config_module,
          exl2__lora_config_is_end, EXL2__LORA_RANK_MAX.
   owns:  the file's text and tokens, until exl2__lora_config_close. */
#ifndef EXL2__LORA_CONFIG_H
#define EXL2__LORA_CONFIG_H

#include "fields.h"
#include "tensor_table.h"

#include <math.h>

#define EXL2__LORA_RANK_MAX 256u
#define EXL2__LORA_KEYS_MAX 8192u /* of rank_pattern, of alpha_pattern, of target_modules */

typedef struct exl2__lora_config {
    exl2__fields fields;
    uint32_t rank;
    double alpha;
    bool rslora;  /* the factor is alpha / sqrt(rank), else alpha / rank */
    bool dora;    /* rows of W + factor B A are scaled to magnitudes */
    uint32_t rank_pattern, alpha_pattern; /* tokens of objects whose keys are ends of modules' names; 0: none */
    uint32_t targets;                     /* token of the list target_modules; 0: it is no list */
} exl2__lora_config;

static inline void exl2__lora_config_close(exl2__lora_config *k)
{
    exl2__fields_close(&k->fields);
    *k = (exl2__lora_config){ 0 };
}

/* Is `key` the name, or its end after a dot? So peft matches keys of patterns and entries of target_modules. */
static inline bool exl2__lora_config_is_end(const char *name, const char *key)
{
    size_t bytes = strlen(name), end = strlen(key);
    return end <= bytes && strcmp(name + bytes - end, key) == 0 && (end == bytes || name[bytes - end - 1] == '.');
}

/* A token's text. false: it is no string, longer than a tensor's name, or has a NUL. */
static inline bool exl2__lora_config_text(const exl2__json *j, uint32_t token, char out[EXL2__TENSORS_NAME_MAX])
{
    size_t bytes = exl2__json_text(j, token, out, EXL2__TENSORS_NAME_MAX - 1);
    bool fits = j->tokens[token].kind == EXL2__JSON_STRING && bytes < EXL2__TENSORS_NAME_MAX - 1;
    out[fits ? bytes : 0] = 0;
    return fits && strlen(out) == bytes;
}

/* ---- what is not supported ---- */

/* A field that is absent, null, false, or an empty list or object is off. */
static inline bool exl2__lora_config_is_off(const exl2__json *j, uint32_t token)
{
    const exl2__json_token *t = &j->tokens[token];
    bool container = t->kind == EXL2__JSON_ARRAY || t->kind == EXL2__JSON_OBJECT;
    return token == 0 || t->kind == EXL2__JSON_FALSE || (container && t->count == 0);
}

/* Fields that change what is computed. `reason` ends the message that begins with the field's name. */
EXL2__PRIVATE exl2_result exl2__lora_config_check_unsupported(const exl2__fields *f)
{
    static const struct { const char *name, *reason; } fields[] = {
        { "modules_to_save", "whole matrices in an adapter are not supported, only pairs lora_A, lora_B" },
        { "lora_bias", "biases of an adapter are not supported" },
        { "target_parameters", "adapters of single parameters, such as of all experts in one tensor, are not "
                               "supported" },
        { "layer_replication", "an adapter that repeats layers is not supported" },
        { "alora_invocation_tokens", "an adapter that begins in the middle of a text is not supported" },
        { "trainable_token_indices", "new rows of the embedding are not supported" },
        { "use_qalora", "QALoRA is not supported" },
        { "arrow_config", "routing between adapters is not supported" },
        { "use_bdlora", "block-diagonal matrices (BD-LoRA) are not supported" },
        { "kasa_config", "KaSA, which changes the base, is not supported" },
        { "monteclora_config", "MonteCLoRA is not supported" },
    };
    for (uint32_t i = 0; i < EXL2__COUNT(fields); i++) {
        uint32_t token = exl2__fields_find(f, EXL2__FIELD_NAMES(fields[i].name), NULL);
        if (exl2__lora_config_is_off(&f->json, token)) {
            continue;
        }
        char first[EXL2__TENSORS_NAME_MAX] = "";
        if (f->json.tokens[token].kind == EXL2__JSON_ARRAY) {
            exl2__lora_config_text(&f->json, exl2__json_first(&f->json, token), first);
        }
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: %s is set%s%s%s: %s", f->label, fields[i].name,
                          first[0] ? " to '" : "", first, first[0] ? "' ..." : "", fields[i].reason);
    }
    uint32_t bias = exl2__fields_find(f, EXL2__FIELD_NAMES("bias"), NULL);
    return bias && !exl2__json_is(&f->json, bias, "none") ? exl2__fields_unsupported(f, "bias", bias, "'none'")
                                                           : EXL2_OK;
}

/* Ways to begin a training that take a part of the base away and put it into A and B. The pairs belong to a base that
   peft makes anew whenever it reads such an adapter; with the base as it was they give wrong numbers. */
EXL2__PRIVATE exl2_result exl2__lora_config_check_begin(const exl2__fields *f)
{
    static const char *const ways[] = { "pissa", "corda", "olora", "OLoRA", "loftq", "lora_ga" };
    uint32_t token = exl2__fields_find(f, EXL2__FIELD_NAMES("init_lora_weights"), NULL);
    char way[EXL2__TENSORS_NAME_MAX];
    for (uint32_t i = 0; token && exl2__lora_config_text(&f->json, token, way) && i < EXL2__COUNT(ways); i++) {
        if (strncmp(way, ways[i], strlen(ways[i])) == 0) { /* "pissa_niter_16" */
            return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: init_lora_weights='%s' is not supported: such an "
                              "adapter belongs to a base from which a part was taken; save it with peft's "
                              "path_initial_model_for_weight_conversion, which makes a plain one", f->label, way);
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__lora_config_check_kind(const exl2__fields *f, bool dora_wanted, exl2__lora_config *out)
{
    uint32_t type = exl2__fields_find(f, EXL2__FIELD_NAMES("peft_type"), NULL);
    if (!type) {
        return exl2__fields_missing(f, "peft_type");
    }
    if (!exl2__json_is(&f->json, type, "LORA")) {
        return exl2__fields_unsupported(f, "peft_type", type, "'LORA'");
    }
    EXL2__TRY(exl2__fields_bool(f, EXL2__FIELD_NAMES("use_dora"), &out->dora, NULL));
    return out->dora && !dora_wanted
               ? exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: use_dora is true: DoRA scales the rows of the base's "
                            "matrices, which an adapter cannot do while the base stays as it is; merge it into the "
                            "source instead (exl2 convert --lora)", f->label) : EXL2_OK;
}

/* ---- numbers ---- */

/* Checks every key and value of a pattern. */
EXL2__PRIVATE exl2_result exl2__lora_config_check_pattern(const exl2__fields *f, const char *field, uint32_t object)
{
    const exl2__json *j = &f->json;
    char key[EXL2__TENSORS_NAME_MAX], name[EXL2__TENSORS_NAME_MAX + 32];
    bool rank = strcmp(field, "rank_pattern") == 0;
    if (j->tokens[object].kind != EXL2__JSON_OBJECT || j->tokens[object].count > EXL2__LORA_KEYS_MAX) {
        return exl2__fields_bad(f, field, object, "an object with at most 8192 members");
    }
    for (uint32_t at = exl2__json_first(j, object); at; at = exl2__json_next(j, object, at)) {
        uint64_t integer;
        double number;
        if (!exl2__lora_config_text(j, at, key)) {
            return exl2__fields_bad(f, field, at, "names of modules");
        }
        for (const char *p = key; *p; p++) {
            bool plain = (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_'
                      || *p == '.' || *p == '-';
            if (!plain) {
                return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: %s: the key '%s' is an expression; only names of "
                                  "modules, or their ends, are supported", f->label, field, key);
            }
        }
        exl2__format(name, sizeof name, "%s: '%s'", field, key);
        bool fits = rank ? exl2__json_u64(j, at + 1, &integer) && integer >= 1 && integer <= EXL2__LORA_RANK_MAX
                         : exl2__json_f64(j, at + 1, &number) && number >= -1e6 && number <= 1e6;
        if (!fits) {
            return exl2__fields_bad(f, name, at + 1, rank ? "an integer from 1 to 256" : "a number up to 1e6");
        }
    }
    return EXL2_OK;
}

/* The value of the first key that is the module's name or its end; 0: there is none. */
static inline uint32_t exl2__lora_config_pattern(const exl2__json *j, uint32_t object, const char *module)
{
    char key[EXL2__TENSORS_NAME_MAX];
    for (uint32_t at = object ? exl2__json_first(j, object) : 0; at; at = exl2__json_next(j, object, at)) {
        if (exl2__lora_config_text(j, at, key) && exl2__lora_config_is_end(module, key)) {
            return at + 1;
        }
    }
    return 0;
}

/* Rank and factor of a module, by the name that peft knows it by. */
EXL2__PRIVATE void exl2__lora_config_module(const exl2__lora_config *k, const char *module, uint32_t *rank,
                                            double *factor)
{
    const exl2__json *j = &k->fields.json;
    uint32_t own_rank = exl2__lora_config_pattern(j, k->rank_pattern, module);
    uint32_t own_alpha = exl2__lora_config_pattern(j, k->alpha_pattern, module);
    uint64_t r = k->rank;
    double alpha = k->alpha;
    if (own_rank) {
        exl2__json_u64(j, own_rank, &r);
    }
    if (own_alpha) {
        exl2__json_f64(j, own_alpha, &alpha);
    }
    *rank = (uint32_t)r;
    *factor = alpha / (k->rslora ? sqrt((double)r) : (double)r);
}

EXL2__PRIVATE exl2_result exl2__lora_config_read_numbers(exl2__lora_config *k)
{
    const exl2__fields *f = &k->fields;
    bool has_alpha;
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("r"), 1, EXL2__LORA_RANK_MAX, &k->rank));
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("lora_alpha"), -1e6, 1e6, "a number up to 1e6",
                               &k->alpha, &has_alpha));
    if (!has_alpha) {
        return exl2__fields_missing(f, "lora_alpha");
    }
    EXL2__TRY(exl2__fields_bool(f, EXL2__FIELD_NAMES("use_rslora"), &k->rslora, NULL));
    k->rank_pattern = exl2__fields_find(f, EXL2__FIELD_NAMES("rank_pattern"), NULL);
    k->alpha_pattern = exl2__fields_find(f, EXL2__FIELD_NAMES("alpha_pattern"), NULL);
    EXL2__TRY(k->rank_pattern ? exl2__lora_config_check_pattern(f, "rank_pattern", k->rank_pattern) : EXL2_OK);
    EXL2__TRY(k->alpha_pattern ? exl2__lora_config_check_pattern(f, "alpha_pattern", k->alpha_pattern) : EXL2_OK);
    k->targets = exl2__fields_find(f, EXL2__FIELD_NAMES("target_modules"), NULL);
    if (k->targets && f->json.tokens[k->targets].kind != EXL2__JSON_ARRAY) {
        k->targets = 0; /* an expression: the tensors say what it means */
    }
    return k->targets && f->json.tokens[k->targets].count > EXL2__LORA_KEYS_MAX
               ? exl2__fields_bad(f, "target_modules", k->targets, "at most 8192 names") : EXL2_OK;
}

/* dora_wanted: the caller can merge DoRA, so use_dora is no error. On failure *out is zeroed. */
EXL2__PRIVATE exl2_result exl2__lora_config_read(exl2__ctx *c, const char *dir, bool dora_wanted,
                                                 exl2__lora_config *out)
{
    *out = (exl2__lora_config){ 0 };
    EXL2__TRY(exl2__fields_open(c, dir, "adapter_config.json", false, &out->fields));
    exl2_result r = exl2__lora_config_check_kind(&out->fields, dora_wanted, out);
    r = r < 0 ? r : exl2__lora_config_check_unsupported(&out->fields);
    r = r < 0 ? r : exl2__lora_config_check_begin(&out->fields);
    r = r < 0 ? r : exl2__lora_config_read_numbers(out);
    if (r < 0) {
        exl2__lora_config_close(out);
    }
    return r;
}

#endif
