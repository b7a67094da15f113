/* model_rope_read.h: reads the settings of RoPE from config.json.
   takes: config.json, untrusted; the number of rotated elements.
   gives: exl2__rope_read. */
#ifndef EXL2__MODEL_ROPE_READ_H
#define EXL2__MODEL_ROPE_READ_H

#include "fields.h"
#include "model_rope.h"

/* Where the key of a scaling may be. Newer files have one object for each kind of layer. */
#define EXL2__ROPE_NAMES(key) \
    EXL2__FIELD_NAMES("rope_scaling->" key, "rope_parameters->full_attention->" key, "rope_parameters->" key)

EXL2__PRIVATE exl2_result exl2__rope_read_kind(const exl2__fields *f, exl2__rope *rope)
{
    static const struct { const char *name; exl2__rope_kind kind; } kinds[] = {
        { "default", EXL2__ROPE_PLAIN },   { "mrope", EXL2__ROPE_PLAIN },     { "linear", EXL2__ROPE_LINEAR },
        { "llama3", EXL2__ROPE_LLAMA3 },   { "dynamic", EXL2__ROPE_DYNAMIC }, { "yarn", EXL2__ROPE_YARN },
        { "su", EXL2__ROPE_LONGROPE },     { "longrope", EXL2__ROPE_LONGROPE },
    };
    exl2__field_names names[2] = { EXL2__ROPE_NAMES("rope_type"), EXL2__ROPE_NAMES("type") };
    rope->kind = EXL2__ROPE_PLAIN;
    for (int i = 0; i < 2 && rope->kind == EXL2__ROPE_PLAIN; i++) { /* of two keys, the one that is not "default" */
        const char *name = NULL;
        uint32_t token = exl2__fields_find(f, names[i], &name), k = 0;
        while (token && k < EXL2__COUNT(kinds) && !exl2__json_is(&f->json, token, kinds[k].name)) {
            k++;
        }
        if (k == EXL2__COUNT(kinds)) {
            return exl2__fields_unsupported(f, name, token, "linear, dynamic, yarn, longrope and llama3 scaling");
        }
        rope->kind = token ? kinds[k].kind : EXL2__ROPE_PLAIN;
    }
    if (rope->kind == EXL2__ROPE_DYNAMIC && exl2__fields_find(f, EXL2__ROPE_NAMES("alpha"), NULL)) {
        rope->kind = EXL2__ROPE_ALPHA;
    }
    if (rope->kind == EXL2__ROPE_YARN && exl2__fields_find(f, EXL2__ROPE_NAMES("long_factor"), NULL)) {
        rope->kind = EXL2__ROPE_LONGROPE; /* early files of Phi-3 call it so */
    }
    return EXL2_OK;
}

/* A number that the scaling requires. */
EXL2__PRIVATE exl2_result exl2__rope_read_number(const exl2__fields *f, exl2__field_names names, double min,
                                                 const char *allowed, double *out)
{
    bool present;
    EXL2__TRY(exl2__fields_f64(f, names, min, 1e9, allowed, out, &present));
    return present ? EXL2_OK : exl2__fields_missing(f, names[0]);
}

/* The original context of a scaling, which may stand at the top level; `absent`: its value without the key, 0 = it is
   required. */
EXL2__PRIVATE exl2_result exl2__rope_read_original(const exl2__fields *f, double absent, double *out)
{
    exl2__field_names names = EXL2__FIELD_NAMES("rope_scaling->original_max_position_embeddings",
                                                "rope_parameters->full_attention->original_max_position_embeddings",
                                                "rope_parameters->original_max_position_embeddings",
                                                "original_max_position_embeddings");
    bool present;
    *out = absent;
    EXL2__TRY(exl2__fields_f64(f, names, 1, 1e9, "a number of at least 1", out, &present));
    return present || absent > 0 ? EXL2_OK : exl2__fields_missing(f, "original_max_position_embeddings");
}

EXL2__PRIVATE exl2_result exl2__rope_read_llama3(const exl2__fields *f, exl2__rope *rope)
{
    EXL2__TRY(exl2__rope_read_number(f, EXL2__ROPE_NAMES("factor"), 1, "a number of at least 1", &rope->factor));
    EXL2__TRY(exl2__rope_read_number(f, EXL2__ROPE_NAMES("low_freq_factor"), 1e-9, "a number above 0", &rope->low));
    EXL2__TRY(exl2__rope_read_number(f, EXL2__ROPE_NAMES("high_freq_factor"), 1e-9, "a number above 0", &rope->high));
    EXL2__TRY(exl2__rope_read_original(f, 0, &rope->original_context_max));
    if (rope->high <= rope->low) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT,
                          "%s: high_freq_factor of the RoPE scaling must be greater than low_freq_factor", f->label);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__rope_read_yarn(const exl2__fields *f, uint32_t context_max, exl2__rope *rope)
{
    EXL2__TRY(exl2__rope_read_original(f, context_max, &rope->original_context_max));
    rope->factor = context_max > rope->original_context_max ? context_max / rope->original_context_max : 1;
    EXL2__TRY(exl2__fields_f64(f, EXL2__ROPE_NAMES("factor"), 1, 1e9, "a number of at least 1", &rope->factor, NULL));
    rope->high = 32;
    rope->low = 1;
    EXL2__TRY(exl2__fields_f64(f, EXL2__ROPE_NAMES("beta_fast"), 1e-9, 1e9, "a number above 0", &rope->high, NULL));
    EXL2__TRY(exl2__fields_f64(f, EXL2__ROPE_NAMES("beta_slow"), 1e-9, 1e9, "a number above 0", &rope->low, NULL));
    EXL2__TRY(exl2__fields_f64(f, EXL2__ROPE_NAMES("attention_factor"), 1e-6, 1e6, "a number above 0",
                               &rope->attention_factor, NULL));
    EXL2__TRY(exl2__fields_f64(f, EXL2__ROPE_NAMES("mscale"), 0, 1e6, "a number from 0 to 1e6", &rope->mscale, NULL));
    EXL2__TRY(exl2__fields_f64(f, EXL2__ROPE_NAMES("mscale_all_dim"), 0, 1e6, "a number from 0 to 1e6",
                               &rope->mscale_all, NULL));
    rope->rounded = true;
    EXL2__TRY(exl2__fields_bool(f, EXL2__ROPE_NAMES("truncate"), &rope->rounded, NULL));
    if (rope->high <= rope->low || rope->theta <= 1) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT,
                          "%s: YaRN needs beta_fast greater than beta_slow, and rope_theta greater than 1", f->label);
    }
    return EXL2_OK;
}

/* One divisor for each frequency. */
EXL2__PRIVATE exl2_result exl2__rope_read_factors(const exl2__fields *f, exl2__field_names names, uint32_t count,
                                                  float *out)
{
    const char *name = names[0];
    uint32_t list = exl2__fields_find(f, names, &name), i = 0;
    if (!list) {
        return exl2__fields_missing(f, name);
    }
    if (f->json.tokens[list].kind != EXL2__JSON_ARRAY || f->json.tokens[list].count != count) {
        char allowed[64];
        exl2__format(allowed, sizeof allowed, "a list of %u numbers", count);
        return exl2__fields_bad(f, name, list, allowed);
    }
    for (uint32_t at = exl2__json_first(&f->json, list); at; at = exl2__json_next(&f->json, list, at)) {
        double value;
        if (!exl2__json_f64(&f->json, at, &value) || value < 1e-6 || value > 1e6) {
            return exl2__fields_bad(f, name, at, "numbers from 1e-6 to 1e6 in this list");
        }
        out[i++] = (float)value;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__rope_read_longrope(const exl2__fields *f, uint32_t rotary, uint32_t context_max,
                                                   exl2__rope *rope)
{
    EXL2__TRY(exl2__rope_read_original(f, 0, &rope->original_context_max));
    rope->factor = context_max / rope->original_context_max;
    EXL2__TRY(exl2__fields_f64(f, EXL2__ROPE_NAMES("factor"), 1e-6, 1e9, "a number above 0", &rope->factor, NULL));
    EXL2__TRY(exl2__rope_read_factors(f, EXL2__ROPE_NAMES("short_factor"), rotary / 2, rope->short_factor));
    EXL2__TRY(exl2__rope_read_factors(f, EXL2__ROPE_NAMES("long_factor"), rotary / 2, rope->long_factor));
    return exl2__fields_f64(f, EXL2__ROPE_NAMES("attention_factor"), 1e-6, 1e6, "a number above 0",
                            &rope->attention_factor, NULL);
}

/* The axes of M-RoPE, where a file has them. Text has the same position on all axes, so that what cannot be read is
   left out. */
EXL2__PRIVATE exl2_result exl2__rope_read_axes(const exl2__fields *f, uint32_t rotary, exl2__rope *rope)
{
    uint32_t list = exl2__fields_find(f, EXL2__ROPE_NAMES("mrope_section"), NULL), sum = 0, i = 0;
    bool three = list && f->json.tokens[list].kind == EXL2__JSON_ARRAY && f->json.tokens[list].count == 3;
    for (uint32_t at = three ? exl2__json_first(&f->json, list) : 0; at; at = exl2__json_next(&f->json, list, at)) {
        double value = 0;
        three = exl2__json_f64(&f->json, at, &value) && value >= 0 && value <= rotary && three;
        rope->section[i] = three ? (uint32_t)value : 0;
        sum += rope->section[i++];
    }
    if (!three || sum != rotary / 2) {
        memset(rope->section, 0, sizeof rope->section);
    }
    return exl2__fields_bool(f, EXL2__ROPE_NAMES("mrope_interleaved"), &rope->interleaved, NULL);
}

/* rotary: number of rotated elements of a head. context_max: tokens that the model was trained for. */
EXL2__PRIVATE exl2_result exl2__rope_read(const exl2__fields *f, uint32_t rotary, uint32_t context_max,
                                          exl2__rope *rope)
{
    *rope = (exl2__rope){ .theta = 10000 };
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("rope_theta", "attn_config->rope_theta"), 1, 1e30,
                               "a number of at least 1", &rope->theta, NULL));
    /* Files that transformers 5 rewrote may have both; it reads this one. */
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("rope_parameters->full_attention->rope_theta",
                                                    "rope_parameters->rope_theta"), 1, 1e30,
                               "a number of at least 1", &rope->theta, NULL));
    EXL2__TRY(exl2__rope_read_axes(f, rotary, rope));
    EXL2__TRY(exl2__rope_read_kind(f, rope));
    switch (rope->kind) {
    case EXL2__ROPE_PLAIN:
        break;
    case EXL2__ROPE_LINEAR:
        return exl2__rope_read_number(f, EXL2__ROPE_NAMES("factor"), 1, "a number of at least 1", &rope->factor);
    case EXL2__ROPE_LLAMA3:
        return exl2__rope_read_llama3(f, rope);
    case EXL2__ROPE_DYNAMIC:
        EXL2__TRY(exl2__rope_read_original(f, context_max, &rope->original_context_max));
        return exl2__rope_read_number(f, EXL2__ROPE_NAMES("factor"), 1, "a number of at least 1", &rope->factor);
    case EXL2__ROPE_ALPHA:
        return exl2__rope_read_number(f, EXL2__ROPE_NAMES("alpha"), 1e-6, "a number above 0", &rope->factor);
    case EXL2__ROPE_YARN:
        return exl2__rope_read_yarn(f, context_max, rope);
    case EXL2__ROPE_LONGROPE:
        return exl2__rope_read_longrope(f, rotary, context_max, rope);
    }
    return EXL2_OK;
}

#endif
