/* vision_read.h: reads the numbers of a tower for pictures from config.json, preprocessor_config.json and
   video_preprocessor_config.json.
   takes: a model's folder, untrusted; its text model's config.
   gives: exl2__vision_config_read.

   Since transformers 5 the other files may be the objects image_processor and video_processor of processor_config.json.
   Without them the family's defaults hold for pictures, and the numbers of pictures for videos. */
#ifndef EXL2__VISION_READ_H
#define EXL2__VISION_READ_H

#include "model_config.h"
#include "vision_rows.h"

#include <math.h>

#ifndef EXL2_NO_VISION

#define EXL2__VISION_FIELD(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* Chooses the row by model_type and the tower's model_type. */
EXL2__PRIVATE exl2_result exl2__vision_read_row(const exl2__fields *f, exl2__vision_config *out)
{
    char type[64] = "", tower[64] = "";
    uint32_t at = exl2__json_get(&f->json, 0, "model_type");
    uint32_t inner = exl2__fields_find(f, EXL2__VISION_FIELD("vision_config->model_type"), NULL);
    if (!at || f->json.tokens[at].kind != EXL2__JSON_STRING) {
        return exl2__fields_missing(f, "model_type");
    }
    exl2__json_text(&f->json, at, type, sizeof type - 1);
    if (inner && f->json.tokens[inner].kind == EXL2__JSON_STRING) {
        exl2__json_text(&f->json, inner, tower, sizeof tower - 1);
    }
    out->row = exl2__vision_row_find(type, tower);
    if (!exl2__json_get(&f->json, 0, "vision_config")) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: there is no vision_config: a model of the type '%s' reads "
                          "no pictures", f->label, type);
    }
    if (!out->row) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: pictures of a model of the type '%s' with a tower of the "
                          "type '%s' are not supported", f->label, type, tower);
    }
    out->family = out->row->family;
    out->marks = out->row->marks;
    out->whole = out->row->whole;
    out->mrope = out->row->mrope;
    return EXL2_OK;
}

/* An activation by name; absent: `otherwise`. */
EXL2__PRIVATE exl2_result exl2__vision_read_act(const exl2__fields *f, const char *name, exl2__vision_act otherwise,
                                                exl2__vision_act *out)
{
    static const struct { const char *name; exl2__vision_act act; } acts[] = {
        { "gelu", EXL2__VISION_ACT_GELU }, { "gelu_pytorch_tanh", EXL2__VISION_ACT_GELU_TANH },
        { "quick_gelu", EXL2__VISION_ACT_QUICK_GELU }, { "silu", EXL2__VISION_ACT_SILU },
    };
    uint32_t token = exl2__fields_find(f, EXL2__VISION_FIELD(name), NULL);
    *out = otherwise;
    for (uint32_t i = 0; token && i < EXL2__COUNT(acts); i++) {
        if (exl2__json_is(&f->json, token, acts[i].name)) {
            *out = acts[i].act;
            return EXL2_OK;
        }
    }
    return token ? exl2__fields_unsupported(f, name, token, "gelu, gelu_pytorch_tanh, quick_gelu or silu") : EXL2_OK;
}

/* A list of ascending layers, all below `layers`. Absent: it is empty. */
EXL2__PRIVATE exl2_result exl2__vision_read_layers(const exl2__fields *f, const char *name, uint32_t layers,
                                                   uint32_t most, uint32_t *out, uint32_t *count)
{
    uint32_t token = exl2__fields_find(f, EXL2__VISION_FIELD(name), NULL);
    bool good = !token || (f->json.tokens[token].kind == EXL2__JSON_ARRAY && f->json.tokens[token].count <= most);
    *count = 0;
    for (uint32_t at = token && good ? exl2__json_first(&f->json, token) : 0; at && good;
         at = exl2__json_next(&f->json, token, at)) {
        uint64_t layer = 0;
        good = exl2__json_u64(&f->json, at, &layer) && layer < layers && (*count == 0 || layer > out[*count - 1]);
        out[*count] = (uint32_t)layer;
        *count += good;
    }
    return good ? EXL2_OK : exl2__fields_bad(f, name, token, "a list of ascending layers of the tower");
}

EXL2__PRIVATE exl2_result exl2__vision_read_sizes(const exl2__fields *f, exl2__vision_config *out)
{
    const exl2__vision_row *row = out->row;
    bool qwen = row->pairs_of_frames;
    bool ratio = qwen && !row->gated && row->table == EXL2__VISION_TABLE_NONE; /* Qwen2-VL: hidden_size is the text's */
    uint32_t times = 0, channels = 3;
    EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD(ratio ? "vision_config->embed_dim"
                                                           : "vision_config->hidden_size"),
                               1, 16384, &out->width));
    EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD(qwen ? "vision_config->depth"
                                                          : "vision_config->num_hidden_layers"),
                               1, EXL2__VISION_LAYERS_MAX, &out->layers));
    EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD(qwen ? "vision_config->num_heads"
                                                          : "vision_config->num_attention_heads"),
                               1, 1024, &out->heads));
    if (ratio) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->mlp_ratio"), 1, 64, &times));
        out->inter = times * out->width;
    } else {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->intermediate_size"), 1, 131072, &out->inter));
    }
    EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->patch_size", "vision_config->spatial_patch_size"),
                               1, 128, &out->patch));
    EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->in_channels", "vision_config->in_chans",
                                                     "vision_config->num_channels"), 3, 3, &channels));
    out->frames = 1;
    if (qwen) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->temporal_patch_size"), 2, 2, &out->frames));
    }
    out->head_dim = out->width / out->heads;
    EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->head_dim"), 1, 1024, &out->head_dim));
    if ((uint64_t)out->heads * out->head_dim != out->width) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: vision_config: %u heads of %u elements do not make the width %u",
                          f->label, out->heads, out->head_dim, out->width);
    }
    if (row->rope && out->head_dim % 4) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: vision_config: heads of %u elements cannot be rotated in two "
                          "directions, only multiples of 4", f->label, out->head_dim);
    }
    return EXL2_OK;
}

/* The merge of patches to rows, and the table of positions. */
EXL2__PRIVATE exl2_result exl2__vision_read_grid(const exl2__fields *f, exl2__vision_config *out)
{
    const exl2__vision_row *row = out->row;
    uint32_t image = 0, places = 0, rows = 0;
    out->merge = 1;
    if (row->pairs_of_frames) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->spatial_merge_size"), 1, 16, &out->merge));
    } else if (row->rule == EXL2__VISION_RULE_EDGE) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("spatial_merge_size"), 1, 16, &out->merge));
    } else if (row->rule == EXL2__VISION_RULE_TILES) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("scale_factor"), 1, 16, &out->merge));
    }
    if (row->table == EXL2__VISION_TABLE_PLACES) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->image_size"), 1, 16384, &image));
        out->side = image / out->patch;
        bool floors = row->pick_layer && row->rule == EXL2__VISION_RULE_FIXED; /* SigLIP of 384 pixels, patches of 14 */
        if ((image % out->patch && !floors) || out->side == 0) {
            return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: vision_config: image_size %u is not a multiple of patch_size "
                              "%u", f->label, image, out->patch);
        }
        out->high = out->wide = out->tile = image;
    } else if (row->table == EXL2__VISION_TABLE_BILINEAR) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->num_position_embeddings"), 1, 1u << 20,
                                   &places));
        out->side = (uint32_t)(sqrt((double)places) + 0.5);
        if (out->side * out->side != places) {
            return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: vision_config: num_position_embeddings %u is not a square "
                              "number", f->label, places);
        }
    }
    if (row->merge == EXL2__VISION_MERGE_MEAN) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("mm_tokens_per_image"), 1, 1u << 20, &rows));
        uint32_t lines = (uint32_t)(sqrt((double)rows) + 0.5);
        if (lines * lines != rows || lines > out->side || out->side % lines) {
            return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: mm_tokens_per_image %u is not the square of a number "
                              "that divides %u patches", f->label, rows, out->side);
        }
        out->merge = out->side / lines;
    }
    if (out->side && row->table == EXL2__VISION_TABLE_PLACES && out->side % out->merge) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: %u patches a side cannot be merged by %u", f->label, out->side,
                          out->merge);
    }
    return EXL2_OK;
}

/* The layer whose output is used, and whether the class row is. Pixtral and Mistral 3 use the last layer by default. */
EXL2__PRIVATE exl2_result exl2__vision_read_pick(const exl2__fields *f, exl2__vision_config *out)
{
    bool last = out->row->rule == EXL2__VISION_RULE_EDGE, apart = out->row->norm_patches; /* Mistral 3: no strategy */
    double pick = last ? -1 : -2; /* the default of LlavaConfig */
    uint32_t at = exl2__fields_find(f, EXL2__VISION_FIELD("vision_feature_layer"), NULL);
    uint32_t strategy = apart ? 0 : exl2__fields_find(f, EXL2__VISION_FIELD("vision_feature_select_strategy"), NULL);
    if (at && f->json.tokens[at].kind == EXL2__JSON_ARRAY) {
        return exl2__fields_unsupported(f, "vision_feature_layer", at, "one layer");
    }
    if (at && (!exl2__json_f64(&f->json, at, &pick) || pick != floor(pick))) {
        return exl2__fields_bad(f, "vision_feature_layer", at, "an integer");
    }
    double layers = pick < 0 ? (double)out->layers + 1 + pick : pick;
    if (layers < 1 || layers > (double)out->layers) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: vision_feature_layer is %d, but the tower has %u layers",
                          f->label, pick < -1e6 || pick > 1e6 ? 0 : (int)pick, out->layers);
    }
    out->layers = (uint32_t)layers;
    out->keeps_class = strategy ? exl2__json_is(&f->json, strategy, "full") : last;
    if (strategy && !out->keeps_class && !exl2__json_is(&f->json, strategy, "default")) {
        return exl2__fields_bad(f, "vision_feature_select_strategy", strategy, "default or full");
    }
    if (!out->class_row && !out->keeps_class) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: vision_feature_select_strategy=default drops a row of the "
                          "picture, as this tower has no class row; only full is supported", f->label);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vision_read_tower(const exl2__fields *f, const exl2__config *text,
                                                  exl2__vision_config *out)
{
    const exl2__vision_row *row = out->row;
    double eps = row->rule == EXL2__VISION_RULE_EDGE ? 1e-5 : 1e-6;
    uint32_t count = 0, full[EXL2__VISION_LAYERS_MAX], size = 0;
    EXL2__TRY(exl2__vision_read_sizes(f, out));
    EXL2__TRY(exl2__vision_read_grid(f, out));
    EXL2__TRY(exl2__vision_read_act(f, "vision_config->hidden_act", row->act, &out->act));
    EXL2__TRY(exl2__vision_read_act(f, "projector_hidden_act", row->projector_act, &out->projector_act));
    if (row->norm_patches && !row->norm_text_eps) {
        out->projector_act = row->projector_act; /* Qwen's is not in the file */
    }
    if (!row->fixed_eps) {
        EXL2__TRY(exl2__fields_f64(f, EXL2__VISION_FIELD("vision_config->layer_norm_eps"), 1e-12, 1,
                                   "a number from 1e-12 to 1", &eps, NULL));
    }
    out->eps = (float)eps;
    out->projector_eps = row->norm_text_eps ? text->norm_eps : (float)eps;
    out->theta = 10000;
    if (row->rope == EXL2__VISION_ROPE_SPLIT) {
        EXL2__TRY(exl2__fields_f64(f, EXL2__VISION_FIELD("vision_config->rope_theta",
                                                         "vision_config->rope_parameters->rope_theta"), 1, 1e12,
                                   "a number from 1 to 1e12", &out->theta, NULL));
    }
    out->class_row = row->names.class_row != NULL;
    out->post_norm = row->names.post_norm && !row->pick_layer;
    if (row->pick_layer) {
        EXL2__TRY(exl2__vision_read_pick(f, out));
    }
    out->levels = 1;
    if (row->names.deep) {
        EXL2__TRY(exl2__vision_read_layers(f, "vision_config->deepstack_visual_indexes", out->layers,
                                           EXL2__VISION_DEEP_MAX, out->deep, &count));
        out->levels = 1 + count;
    }
    if (row->video_ticks) {
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->tokens_per_second"), 1, 1000, &out->ticks));
    }
    if (row->windows) {
        uint32_t cell = out->patch * out->merge;
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("vision_config->window_size"), 1, 16384, &size));
        EXL2__TRY(exl2__vision_read_layers(f, "vision_config->fullatt_block_indexes", out->layers, out->layers, full,
                                           &count));
        out->window = size / cell;
        if (out->window == 0) {
            return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: vision_config: window_size %u is less than a row of the "
                              "text, %u pixels", f->label, size, cell);
        }
        for (uint32_t i = 0; i < count; i++) {
            out->full[full[i]] = true;
        }
    }
    for (uint32_t i = 0; !row->windows && i < out->layers; i++) {
        out->full[i] = true;
    }
    return EXL2_OK;
}

/* The id of a token, if the file has it. */
EXL2__PRIVATE exl2_result exl2__vision_read_id(const exl2__fields *f, exl2__field_names names, uint32_t *out)
{
    *out = UINT32_MAX;
    return exl2__fields_find(f, names, NULL) ? exl2__fields_u32(f, names, 0, EXL2__CONFIG_VOCAB_MAX, out) : EXL2_OK;
}

/* ---- preprocessor_config.json ---- */

/* Three numbers; absent: `otherwise`. */
EXL2__PRIVATE exl2_result exl2__vision_read_three(const exl2__fields *f, const char *name, double least,
                                                  const double *otherwise, double *out)
{
    uint32_t token = f->text.data ? exl2__fields_find(f, EXL2__VISION_FIELD(name), NULL) : 0, i = 0;
    bool good = !token || (f->json.tokens[token].kind == EXL2__JSON_ARRAY && f->json.tokens[token].count == 3);
    memcpy(out, otherwise, 3 * sizeof *out);
    for (uint32_t at = token && good ? exl2__json_first(&f->json, token) : 0; at && good;
         at = exl2__json_next(&f->json, token, at), i++) {
        good = exl2__json_f64(&f->json, at, &out[i]) && out[i] >= least && out[i] <= 1000;
    }
    return good ? EXL2_OK : exl2__fields_bad(f, name, token, "three numbers, of image_std above 0");
}

/* A step of preprocessing that is not left out. */
EXL2__PRIVATE exl2_result exl2__vision_read_step(const exl2__fields *f, const char *name)
{
    bool on = true;
    EXL2__TRY(exl2__fields_bool(f, EXL2__VISION_FIELD(name), &on, NULL));
    return on ? EXL2_OK : exl2__fields_unsupported(f, name, exl2__fields_find(f, EXL2__VISION_FIELD(name), NULL),
                                                   "true");
}

EXL2__PRIVATE exl2_result exl2__vision_read_target(const exl2__fields *f, exl2__vision_config *out)
{
    const uint32_t most = 16384;
    uint32_t image = out->high, low = 0, high = 0;
    bool crops = out->row->rule == EXL2__VISION_RULE_CROP;
    switch (out->row->rule) {
    case EXL2__VISION_RULE_CROP:
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("size->shortest_edge", "size"), 1, most, &out->edge));
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("crop_size->height", "crop_size"), 1, most, &out->high));
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("crop_size->width", "crop_size"), 1, most, &out->wide));
        break;
    case EXL2__VISION_RULE_FIXED:
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("size->height", "size"), 1, most, &out->high));
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("size->width", "size"), 1, most, &out->wide));
        break;
    case EXL2__VISION_RULE_EDGE:
        return exl2__fields_u32(f, EXL2__VISION_FIELD("size->longest_edge"), 1, 8192, &out->edge);
    case EXL2__VISION_RULE_PIXELS:
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("min_pixels", "size->shortest_edge"), 1,
                                   EXL2__VISION_PIXELS_MAX, &low));
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("max_pixels", "size->longest_edge"), 1,
                                   EXL2__VISION_PIXELS_MAX, &high));
        out->pixels_min = low;
        out->pixels_max = high;
        return low <= high ? EXL2_OK : exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: min_pixels %u is more than max_pixels %u",
                                                  f->label, low, high);
    case EXL2__VISION_RULE_TILES:
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("size->longest_edge"), 1, 4096, &out->edge));
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("max_image_size->longest_edge"), 1, most, &out->high));
        out->wide = out->high;
        out->splits = true;
        EXL2__TRY(exl2__fields_bool(f, EXL2__VISION_FIELD("do_image_splitting"), &out->splits, NULL));
        break;
    }
    if (out->row->rule == EXL2__VISION_RULE_TILES && out->high % 2) { /* a side that is made even would exceed it */
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: tiles of %u pixels are not supported, only of an even "
                          "number", f->label, out->high);
    }
    if (out->high != image || out->wide != image) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: pictures of %u x %u pixels do not fit the tower's %u x %u",
                          f->label, out->wide, out->high, image, image);
    }
    return crops && out->edge < out->high
               ? exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: size.shortest_edge %u is less than the crop of %u",
                            f->label, out->edge, out->high)
               : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vision_read_pixels(const exl2__fields *f, exl2__vision_config *out)
{
    const exl2__vision_row *row = out->row;
    bool pan = false;
    out->filter = row->filter;
    out->rescale = 1.0 / 255;
    if (f->text.data) {
        bool pads = false, squares = row->pick_layer && row->rule != EXL2__VISION_RULE_EDGE;
        EXL2__TRY(row->rule == EXL2__VISION_RULE_CROP ? exl2__vision_read_step(f, "do_center_crop") : EXL2_OK);
        EXL2__TRY(squares ? exl2__fields_bool(f, EXL2__VISION_FIELD("do_pad"), &pads, NULL) : EXL2_OK);
        if (pads) { /* LLaVA's own processor pads to a square with the mean color */
            return exl2__fields_unsupported(f, "do_pad", exl2__fields_find(f, EXL2__VISION_FIELD("do_pad"), NULL),
                                            "false");
        }
        EXL2__TRY(exl2__vision_read_step(f, "do_resize"));
        EXL2__TRY(exl2__vision_read_step(f, "do_rescale"));
        EXL2__TRY(exl2__vision_read_step(f, "do_normalize"));
        EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("resample"), 1, 3, &out->filter));
        EXL2__TRY(exl2__fields_f64(f, EXL2__VISION_FIELD("rescale_factor"), 1e-6, 1000, "a number from 1e-6 to 1000",
                                   &out->rescale, NULL));
        EXL2__TRY(exl2__fields_bool(f, EXL2__VISION_FIELD("do_pan_and_scan"), &pan, NULL));
    }
    EXL2__TRY(exl2__vision_read_three(f, "image_mean", -1000, row->mean, out->mean));
    EXL2__TRY(exl2__vision_read_three(f, "image_std", 1e-6, row->std, out->std));
    if (pan) {
        exl2__log(f->c, EXL2_LOG_WARN, EXL2_LOG_ID_SETTING_IGNORED, "%s: do_pan_and_scan is not done: the model sees "
                  "the whole picture alone", f->label);
    }
    return exl2__vision_read_target(f, out);
}

/* Opens a file of preprocessing, or processor_config.json if that has the object; f->text.data NULL: there is none. */
EXL2__PRIVATE exl2_result exl2__vision_read_open(exl2__ctx *c, const char *path, const char *file, const char *object,
                                                 exl2__fields *f)
{
    EXL2__TRY(exl2__fields_open(c, path, file, true, f));
    if (!f->text.data) {
        exl2__fields_close(f);
        EXL2__TRY(exl2__fields_open(c, path, "processor_config.json", true, f));
        f->nested = f->text.data ? exl2__json_get(&f->json, 0, object) : 0;
        if (f->text.data && !f->nested) {
            exl2__fields_close(f);
        }
    }
    f->c = c;
    f->label = f->text.data ? f->label : file;
    return EXL2_OK;
}

/* Numbers of a file that is missing are found among the defaults. */
EXL2__PRIVATE exl2_result exl2__vision_read_prepare(exl2__ctx *c, const char *path, exl2__vision_config *out)
{
    exl2__fields f;
    EXL2__TRY(exl2__vision_read_open(c, path, "preprocessor_config.json", "image_processor", &f));
    exl2__json_token none = { 0 };
    bool missing = !f.text.data;
    if (missing) { /* an empty object, which belongs to nobody */
        exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_SETTING_IGNORED, "preprocessor_config.json is missing: pictures are "
                  "prepared by the defaults of the family");
        none.kind = EXL2__JSON_OBJECT;
        none.after = 1;
        f.json.tokens = &none;
        f.json.text = "{}";
    }
    f.defaults = out->row->defaults;
    exl2_result r = exl2__vision_read_pixels(&f, out);
    if (missing) {
        f.json = (exl2__json){ 0 };
    }
    exl2__fields_close(&f);
    return r;
}

/* What the file of videos says, in place of what holds for pictures. */
EXL2__PRIVATE exl2_result exl2__vision_read_video_pixels(const exl2__fields *f, exl2__vision_config *out)
{
    exl2__vision_config v = *out;
    uint32_t low = (uint32_t)v.video_min, high = (uint32_t)v.video_max;
    bool capped = false;
    EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("min_pixels", "size->shortest_edge"), 1, EXL2__VISION_PIXELS_MAX,
                               &low));
    EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("max_pixels", "size->longest_edge"), 1, EXL2__VISION_PIXELS_MAX,
                               &high));
    EXL2__TRY(exl2__fields_u32(f, EXL2__VISION_FIELD("resample"), 1, 3, &v.filter));
    EXL2__TRY(exl2__fields_f64(f, EXL2__VISION_FIELD("rescale_factor"), 1e-6, 1000, "a number from 1e-6 to 1000",
                               &v.rescale, NULL));
    EXL2__TRY(exl2__vision_read_three(f, "image_mean", -1000, out->mean, v.mean));
    EXL2__TRY(exl2__vision_read_three(f, "image_std", 1e-6, out->std, v.std));
    bool same = v.filter == out->filter && memcmp(&v.rescale, &out->rescale, sizeof v.rescale) == 0
             && memcmp(v.mean, out->mean, sizeof v.mean) == 0 && memcmp(v.std, out->std, sizeof v.std) == 0;
    if (!same) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: resample, rescale_factor, image_mean or image_std of videos "
                          "differs from that of pictures, which is not supported", f->label);
    }
    if (low > high) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: min_pixels %u is more than max_pixels %u", f->label, low, high);
    }
    EXL2__TRY(exl2__fields_bool(f, EXL2__VISION_FIELD("cap_pixels_per_frame"), &capped, NULL));
    if (capped) {
        exl2__log(f->c, EXL2_LOG_WARN, EXL2_LOG_ID_SETTING_IGNORED, "%s: cap_pixels_per_frame is not done: frames of "
                  "short videos are larger than in transformers", f->label);
    }
    out->video_min = low;
    out->video_max = high;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vision_read_video(exl2__ctx *c, const char *path, exl2__vision_config *out)
{
    exl2__fields f;
    exl2_result r = EXL2_OK;
    out->video_min = out->pixels_min;
    out->video_max = out->pixels_max;
    if (!out->row->pairs_of_frames) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__vision_read_open(c, path, "video_preprocessor_config.json", "video_processor", &f));
    if (f.text.data) {
        r = exl2__vision_read_video_pixels(&f, out);
    }
    exl2__fields_close(&f);
    return r;
}

/* path: the folder; text: its text model. Fails with UNSUPPORTED where there is no such row, with FORMAT for bad
   values. */
static inline exl2_result exl2__vision_config_read(exl2__ctx *c, const char *path, const exl2__config *text,
                                                   exl2__vision_config *out)
{
    exl2__fields f;
    *out = (exl2__vision_config){ 0 };
    EXL2__TRY(exl2__fields_open(c, path, "config.json", false, &f));
    exl2_result r = exl2__vision_read_row(&f, out);
    out->hidden = text->hidden;
    if (r == EXL2_OK) {
        f.defaults = out->row->defaults;
        r = exl2__vision_read_tower(&f, text, out);
        r = r < 0 ? r : exl2__vision_read_id(&f, EXL2__VISION_FIELD("image_token_id", "image_token_index"),
                                             &out->row_id);
        r = r < 0 ? r : exl2__vision_read_id(&f, EXL2__VISION_FIELD("boi_token_index", "boi_token_id"), &out->mark_id);
        r = r < 0 ? r : exl2__vision_read_id(&f, EXL2__VISION_FIELD("video_token_id", "video_token_index"),
                                             &out->video_id);
        out->mark_id = strcmp(out->marks.mark, out->marks.row) == 0 ? out->row_id : out->mark_id;
    }
    exl2__fields_close(&f);
    r = r < 0 ? r : exl2__vision_read_prepare(c, path, out);
    return r < 0 ? r : exl2__vision_read_video(c, path, out);
}

#endif
#endif
