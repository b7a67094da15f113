/* model_layers_read.h: reads from config.json how layers differ: windows, layers without RoPE, layers with experts.
   takes: the fields of config.json, untrusted, and a config that has the architecture and the sizes.
   gives: exl2__layers_read. */
#ifndef EXL2__MODEL_LAYERS_READ_H
#define EXL2__MODEL_LAYERS_READ_H

#include "fields.h"
#include "model_config.h"
#include "model_experts_read.h"

static inline void exl2__layers_mark(uint32_t *bits, uint32_t layer, bool on)
{
    bits[layer / 32] |= (uint32_t)on << (layer % 32);
}

#define EXL2__WINDOW_NAMES EXL2__FIELD_NAMES("sliding_window", "sliding_window_size")

/* layer_types: "full_attention" or "sliding_attention" for each layer. */
EXL2__PRIVATE exl2_result exl2__layers_read_types(const exl2__fields *f, uint32_t list, exl2__config *out)
{
    uint32_t layer = 0;
    if (f->json.tokens[list].kind != EXL2__JSON_ARRAY || f->json.tokens[list].count != out->layers) {
        char allowed[64];
        exl2__format(allowed, sizeof allowed, "a list with one word for each of the %u layers", out->layers);
        return exl2__fields_bad(f, "layer_types", list, allowed);
    }
    for (uint32_t at = exl2__json_first(&f->json, list); at; at = exl2__json_next(&f->json, list, at)) {
        bool slides = exl2__json_is(&f->json, at, "sliding_attention");
        if (!slides && !exl2__json_is(&f->json, at, "full_attention")) {
            return exl2__fields_unsupported(f, "layer_types", at, "full_attention and sliding_attention");
        }
        exl2__layers_mark(out->windowed, layer++, slides);
    }
    return EXL2_OK;
}

/* EXL2__WINDOW_PATTERN: sliding_window_pattern is a period (the last layer of each has no window), or a text with a
   letter for each layer of a period: L with a window, G without; with letters the last layer of all has none. */
EXL2__PRIVATE exl2_result exl2__layers_read_pattern(const exl2__fields *f, exl2__config *out)
{
    exl2__field_names names = EXL2__FIELD_NAMES("sliding_window_pattern", "_sliding_window_pattern");
    uint32_t token = exl2__fields_find(f, names, NULL), period = 1;
    char letters[65] = "";
    if (token && f->json.tokens[token].kind == EXL2__JSON_STRING) {
        size_t bytes = exl2__json_text(&f->json, token, letters, sizeof letters - 1);
        if (bytes == 0 || bytes >= sizeof letters || strspn(letters, "LG") != bytes) {
            return exl2__fields_bad(f, names[0], token, "a number, or up to 64 letters L and G");
        }
        period = (uint32_t)bytes;
    } else {
        EXL2__TRY(exl2__fields_u32(f, names, 1, EXL2__CONFIG_LAYERS_MAX, &period));
    }
    for (uint32_t i = 0; i < out->layers; i++) {
        bool windowed = letters[0] ? letters[i % period] == 'L' && i + 1 < out->layers : (i + 1) % period != 0;
        exl2__layers_mark(out->windowed, i, windowed);
    }
    return EXL2_OK;
}

/* Is there a window, and are windows not switched off? */
EXL2__PRIVATE exl2_result exl2__layers_have_window(const exl2__fields *f, const exl2__config *c, bool *out)
{
    uint8_t rule = c->arch.traits[EXL2__TRAIT_WINDOW];
    bool used = rule < EXL2__WINDOW_UPPER; /* unless the file says otherwise: those rules need use_sliding_window */
    double by_default;
    EXL2__TRY(exl2__fields_bool(f, EXL2__FIELD_NAMES("use_sliding_window"), &used, NULL));
    *out = used && rule != EXL2__WINDOW_NEVER
           && (exl2__fields_find(f, EXL2__WINDOW_NAMES, NULL)
               || exl2__fields_default(f, EXL2__WINDOW_NAMES, &by_default));
    return EXL2_OK;
}

/* Which layers have a window, and how many tokens it has. */
EXL2__PRIVATE exl2_result exl2__layers_read_windows(const exl2__fields *f, exl2__config *out)
{
    uint8_t rule = out->arch.traits[EXL2__TRAIT_WINDOW];
    uint32_t list = exl2__fields_find(f, EXL2__FIELD_NAMES("layer_types"), NULL), from = 0;
    bool has_window;
    EXL2__TRY(exl2__layers_have_window(f, out, &has_window));
    if (!has_window) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__fields_u32(f, EXL2__WINDOW_NAMES, 1, EXL2__CONFIG_CONTEXT_MAX, &out->window));
    if (list) {
        return exl2__layers_read_types(f, list, out);
    }
    if (rule == EXL2__WINDOW_PATTERN) {
        return exl2__layers_read_pattern(f, out);
    }
    if (rule == EXL2__WINDOW_UPPER || rule == EXL2__WINDOW_ABOVE) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("max_window_layers"), 0, UINT32_MAX, &from));
    }
    for (uint32_t i = from; i < out->layers; i++) {
        exl2__layers_mark(out->windowed, i, rule == EXL2__WINDOW_EVEN ? i % 2 == 0
                                          : rule == EXL2__WINDOW_BUT_FOURTH ? i % 4 != 0
                                          : rule != EXL2__WINDOW_UNROTATED || exl2__config_layer(out->unrotated, i));
    }
    return EXL2_OK;
}

/* EXL2__UNROTATED_LISTED: no_rope_layers has a 0 for each layer without RoPE; without the list every
   no_rope_layer_interval-th layer is one. */
EXL2__PRIVATE exl2_result exl2__layers_read_no_rope(const exl2__fields *f, exl2__config *out)
{
    uint32_t list = exl2__fields_find(f, EXL2__FIELD_NAMES("no_rope_layers"), NULL), interval = 4, layer = 0;
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("no_rope_layer_interval"), 1, 1u << 30, &interval));
    if (!list) {
        for (uint32_t i = 0; i < out->layers; i++) {
            exl2__layers_mark(out->unrotated, i, (i + 1) % interval == 0);
        }
        return EXL2_OK;
    }
    if (f->json.tokens[list].kind != EXL2__JSON_ARRAY || f->json.tokens[list].count < out->layers) {
        char allowed[64];
        exl2__format(allowed, sizeof allowed, "a list with a number for each of the %u layers", out->layers);
        return exl2__fields_bad(f, "no_rope_layers", list, allowed);
    }
    for (uint32_t at = exl2__json_first(&f->json, list); at && layer < out->layers;
         at = exl2__json_next(&f->json, list, at)) {
        uint64_t rotated;
        if (!exl2__json_u64(&f->json, at, &rotated) || rotated > 1) {
            return exl2__fields_bad(f, "no_rope_layers", at, "0 or 1");
        }
        exl2__layers_mark(out->unrotated, layer++, rotated == 0);
    }
    return EXL2_OK;
}

#ifndef EXL2_NO_MOE
/* Experts and the layers that have them. */
EXL2__PRIVATE exl2_result exl2__layers_read_experts(const exl2__fields *f, exl2__config *out)
{
    uint64_t all = 0; /* experts of all layers */
    EXL2__TRY(exl2__experts_read(f, &out->arch, out->inter, &out->experts));
    if (!out->experts.count) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__experts_read_layers(f, out->layers, out->sparse));
    for (uint32_t i = 0; i < out->layers; i++) {
        all += exl2__config_layer(out->sparse, i) ? out->experts.count : 0;
    }
    if (all > EXL2__EXPERTS_ALL_MAX) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED,
                          "%s: the layers have %llu experts in all, at most %u are supported", f->label,
                          (unsigned long long)all, EXL2__EXPERTS_ALL_MAX);
    }
    if (all == 0) {
        out->experts = (exl2__experts){ 0 };
    }
    return exl2__fields_u32(f, EXL2__FIELD_NAMES("num_nextn_predict_layers"), 0, EXL2__CONFIG_LAYERS_MAX,
                            &out->draft_layers);
}
#endif

EXL2__PRIVATE exl2_result exl2__layers_read(const exl2__fields *f, exl2__config *out)
{
    uint8_t rule = out->arch.traits[EXL2__TRAIT_UNROTATED];
#ifndef EXL2_NO_MOE
    EXL2__TRY(exl2__layers_read_experts(f, out));
#endif
    if (rule == EXL2__UNROTATED_LISTED) {
        EXL2__TRY(exl2__layers_read_no_rope(f, out));
    }
    EXL2__TRY(exl2__layers_read_windows(f, out));
    bool full = rule == EXL2__UNROTATED_FULL || (rule == EXL2__UNROTATED_IF_WINDOW && out->window > 0);
    for (uint32_t i = 0; full && i < out->layers; i++) {
        exl2__layers_mark(out->unrotated, i, !exl2__config_layer(out->windowed, i));
    }
    return EXL2_OK;
}

#endif
