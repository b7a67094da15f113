/* model_experts_read.h: reads what config.json says about experts: how many, how a row's experts are chosen, which
   layers have them.
   takes: the fields of config.json; a row.
   gives: exl2__experts_read, exl2__experts_read_layers; exl2__experts_reject in builds without experts. */
#ifndef EXL2__MODEL_EXPERTS_READ_H
#define EXL2__MODEL_EXPERTS_READ_H

#include "arch.h"
#include "model_experts.h"
#include "model_rope_read.h"

#ifndef EXL2_NO_MOE

#define EXL2__EXPERTS_COUNT_NAMES \
    EXL2__FIELD_NAMES("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", \
                      "ffn_config->moe_num_experts")

/* DBRX divides weights by their p-norm: moe_normalize_expert_weights is p, 1 if absent, null for no division. */
EXL2__PRIVATE exl2_result exl2__experts_read_norm(const exl2__fields *f, exl2__experts *out)
{
    const char *key = "moe_normalize_expert_weights";
    uint32_t object = exl2__fields_find(f, EXL2__FIELD_NAMES("ffn_config"), NULL);
    uint32_t member = object && f->json.tokens[object].kind == EXL2__JSON_OBJECT ? exl2__json_first(&f->json, object)
                                                                                 : 0;
    for (; member; member = exl2__json_next(&f->json, object, member)) {
        double power = 1;
        if (!exl2__json_is(&f->json, member, key)) {
            continue;
        }
        out->renormalized = f->json.tokens[member + 1].kind != EXL2__JSON_NULL;
        if (out->renormalized && (!exl2__json_f64(&f->json, member + 1, &power) || power < 1 || power > 1)) {
            return exl2__fields_unsupported(f, key, member + 1, "1 and null");
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__experts_read_weights(const exl2__fields *f, const exl2__arch *arch, exl2__experts *out)
{
    double renormalized = 0, scale = 1;
    bool flag = false, present = false;
    out->sigmoid = arch->traits[EXL2__TRAIT_ROUTING] == EXL2__ROUTING_SIGMOID;
    out->renormalized = arch->traits[EXL2__TRAIT_RENORMALIZED] == EXL2__YES;
    if (arch->traits[EXL2__TRAIT_RENORMALIZED] == EXL2__BY_CONFIG) {
        exl2__fields_default(f, EXL2__FIELD_NAMES("norm_topk_prob"), &renormalized);
        EXL2__TRY(exl2__fields_bool(f, EXL2__FIELD_NAMES("norm_topk_prob"), &flag, &present));
        out->renormalized = present ? flag : renormalized > 0;
    }
    EXL2__TRY(exl2__experts_read_norm(f, out));
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("routed_scaling_factor"), 1e-6, 1e6, "a number from 1e-6 to 1e6",
                               &scale, NULL));
    out->scale = (float)scale;
    uint32_t function = exl2__fields_find(f, EXL2__FIELD_NAMES("scoring_func"), NULL);
    const char *expected = out->sigmoid ? "sigmoid" : "softmax";
    return function && !exl2__json_is(&f->json, function, expected)
               ? exl2__fields_unsupported(f, "scoring_func", function, expected) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__experts_read_groups(const exl2__fields *f, exl2__experts *out)
{
    uint32_t groups = 1, active = 1;
    if (out->sigmoid) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("n_group"), 1, EXL2__EXPERTS_GROUPS_MAX, &groups));
        active = groups;
        EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("topk_group"), 1, groups, &active));
    }
    if (out->count % groups != 0 || out->active > (uint64_t)active * (out->count / groups)) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT,
                          "%s: n_group=%u and topk_group=%u do not fit %u experts of which %u are chosen: groups have "
                          "equal sizes, and the chosen groups hold all chosen experts", f->label, groups, active,
                          out->count, out->active);
    }
    out->groups = groups;
    out->groups_active = active;
    return EXL2_OK;
}

/* The shared expert: its width, or how many experts wide it is. */
EXL2__PRIVATE exl2_result exl2__experts_read_shared(const exl2__fields *f, const exl2__arch *arch, exl2__experts *out)
{
    uint32_t multiple = 0, width = 0;
    if (!arch->names[EXL2__NAME_SHARED_DOWN][0]) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("shared_expert_intermediate_size", "shared_intermediate_size"), 0,
                               1u << 20, &width));
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
                               0, 64, &multiple));
    if ((uint64_t)multiple * out->inter > 1u << 20) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: n_shared_experts=%u experts of width %u are too wide, at most %u",
                          f->label, multiple, out->inter, 1u << 20);
    }
    out->shared_inter = width ? width : multiple * out->inter;
    out->shared_switch = out->shared_inter && arch->names[EXL2__NAME_SHARED_SWITCH][0];
    return EXL2_OK;
}

/* `inter`: the width of a dense MLP, which is that of experts unless config.json has another one; 0 = not known. */
EXL2__PRIVATE exl2_result exl2__experts_read(const exl2__fields *f, const exl2__arch *arch, uint32_t inter,
                                             exl2__experts *out)
{
    *out = (exl2__experts){ 0 };
    if (arch->traits[EXL2__TRAIT_ROUTING] == EXL2__ROUTING_NONE) {
        return EXL2_OK;
    }
    out->inter = inter;
    EXL2__TRY(exl2__fields_u32(f, EXL2__EXPERTS_COUNT_NAMES, 1, EXL2__EXPERTS_MAX, &out->count));
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("num_experts_per_tok", "experts_per_token", "moe_k",
                                                    "ffn_config->moe_top_k"), 1, out->count, &out->active));
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("moe_intermediate_size"), 1, 1u << 20, &out->inter));
    EXL2__TRY(exl2__experts_read_weights(f, arch, out));
    EXL2__TRY(exl2__experts_read_groups(f, out));
    return exl2__experts_read_shared(f, arch, out);
}

/* mlp_layer_types ("sparse" or "dense") or is_moe_layer (true or false) for each layer. */
EXL2__PRIVATE exl2_result exl2__experts_read_list(const exl2__fields *f, const char *name, uint32_t list,
                                                  uint32_t layers, uint32_t *sparse)
{
    uint32_t layer = 0;
    if (f->json.tokens[list].kind != EXL2__JSON_ARRAY || f->json.tokens[list].count != layers) {
        char allowed[64];
        exl2__format(allowed, sizeof allowed, "a list with one value for each of the %u layers", layers);
        return exl2__fields_bad(f, name, list, allowed);
    }
    for (uint32_t at = exl2__json_first(&f->json, list); at; at = exl2__json_next(&f->json, list, at), layer++) {
        bool on = exl2__json_is(&f->json, at, "sparse");
        if (!on && !exl2__json_is(&f->json, at, "dense") && !exl2__json_bool(&f->json, at, &on)) {
            return exl2__fields_bad(f, name, at, "\"sparse\" or \"dense\", or true or false");
        }
        sparse[layer / 32] |= (uint32_t)on << (layer % 32);
    }
    return EXL2_OK;
}

/* mlp_only_layers: numbers of dense layers. */
EXL2__PRIVATE exl2_result exl2__experts_remove_layers(const exl2__fields *f, uint32_t layers, uint32_t *sparse)
{
    const char *name = "mlp_only_layers";
    uint32_t list = exl2__fields_find(f, EXL2__FIELD_NAMES(name), NULL);
    if (list && f->json.tokens[list].kind != EXL2__JSON_ARRAY) {
        return exl2__fields_bad(f, name, list, "a list of layers");
    }
    for (uint32_t at = list ? exl2__json_first(&f->json, list) : 0; at; at = exl2__json_next(&f->json, list, at)) {
        uint64_t layer;
        if (!exl2__json_u64(&f->json, at, &layer)) {
            return exl2__fields_bad(f, name, at, "the number of a layer");
        }
        if (layer < layers) {
            sparse[layer / 32] &= ~(1u << (layer % 32));
        }
    }
    return EXL2_OK;
}

/* Sets the bits of the layers that have experts, in sparse [layers / 32], which is 0. */
EXL2__PRIVATE exl2_result exl2__experts_read_layers(const exl2__fields *f, uint32_t layers, uint32_t *sparse)
{
    const char *name = NULL;
    uint32_t list = exl2__fields_find(f, EXL2__FIELD_NAMES("mlp_layer_types", "is_moe_layer"), &name);
    uint32_t begin = 0, step = 1;
    int64_t last = -1;
    if (list) {
        return exl2__experts_read_list(f, name, list, layers, sparse);
    }
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("first_k_dense_replace", "moe_layer_start_index"), 0, UINT32_MAX,
                               &begin));
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("decoder_sparse_step", "moe_layer_interval"), 1, UINT32_MAX,
                               &step));
    uint32_t end = exl2__fields_find(f, EXL2__FIELD_NAMES("moe_layer_end_index"), NULL);
    if (end && (!exl2__json_i64(&f->json, end, &last) || last < -1)) {
        return exl2__fields_bad(f, "moe_layer_end_index", end, "the number of a layer, or -1 for the last one");
    }
    for (uint32_t i = begin; i < layers && (last < 0 || i <= (uint64_t)last); i++) {
        sparse[i / 32] |= (uint32_t)((i + 1) % step == 0) << (i % 32);
    }
    return exl2__experts_remove_layers(f, layers, sparse);
}

#else

/* Fails for a row with experts. */
EXL2__PRIVATE exl2_result exl2__experts_reject(const exl2__fields *f, const exl2__arch *arch)
{
    return arch->traits[EXL2__TRAIT_ROUTING] == EXL2__ROUTING_NONE ? EXL2_OK
         : exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: %s has experts, and this build has EXL2_NO_MOE", f->label,
                      arch->name);
}

#endif
#endif
