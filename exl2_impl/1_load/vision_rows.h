/* vision_rows.h: the supported towers, one row each.
   takes: nothing.
   gives: exl2__vision_rows, exl2__vision_row_find.

   A tower that differs from an existing row only in what a row can say needs a new row and nothing else. Sources: the
   families' modeling files in transformers 5. */
#ifndef EXL2__VISION_ROWS_H
#define EXL2__VISION_ROWS_H

#include "vision_config.h"

#ifndef EXL2_NO_VISION

#define EXL2__VISION_LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define EXL2__VISION_DEFAULTS(...) ((const exl2__field_default[]){ __VA_ARGS__, { NULL, 0 } })

/* Names in files before and since transformers 5. */
#define EXL2__VISION_RENAMES_WRAPPED \
    EXL2__VISION_LIST("^model.vision_tower.", "vision_tower.", "^vision_tower.vision_model.", "tower.", \
                      "^vision_tower.", "tower.", "^model.multi_modal_projector.", "projector.", \
                      "^multi_modal_projector.", "projector.")
#define EXL2__VISION_RENAMES_QWEN \
    EXL2__VISION_LIST("^model.visual.", "visual.", "^visual.merger.", "projector.", \
                      "^visual.deepstack_merger_list.", "projector.deepstack_merger_list.", "^visual.", "tower.")
#define EXL2__VISION_RENAMES_IDEFICS \
    EXL2__VISION_LIST("^model.vision_model.", "tower.", "^model.connector.", "projector.")

#define EXL2__VISION_NAMES_SIGLIP \
    .patch = "embeddings.patch_embedding", .positions = "embeddings.position_embedding", \
    .post_norm = "post_layernorm", .layers = "encoder.layers", .norm1 = "layer_norm1", .norm2 = "layer_norm2", \
    .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj", .out = "self_attn.out_proj", \
    .up = "mlp.fc1", .down = "mlp.fc2"
#define EXL2__VISION_NAMES_PIXTRAL \
    .patch = "patch_conv", .pre_norm = "ln_pre", .layers = "transformer.layers", .norm1 = "attention_norm", \
    .norm2 = "ffn_norm", .q = "attention.q_proj", .k = "attention.k_proj", .v = "attention.v_proj", \
    .out = "attention.o_proj", .gate = "feed_forward.gate_proj", .up = "feed_forward.up_proj", \
    .down = "feed_forward.down_proj", .linear1 = "linear_1", .linear2 = "linear_2"
#define EXL2__VISION_NAMES_QWEN \
    .patch = "patch_embed.proj", .layers = "blocks", .norm1 = "norm1", .norm2 = "norm2", .qkv = "attn.qkv", \
    .out = "attn.proj"

/* What files of SigLIP and CLIP have beside the tower. */
#define EXL2__VISION_IGNORED_CLIP \
    "tower.head.", "tower.visual_projection.", "tower.text_model.", "tower.embeddings.position_ids", \
    "tower.logit_"

#define EXL2__VISION_HALF { 0.5, 0.5, 0.5 }
#define EXL2__VISION_CLIP_MEAN { 0.48145466, 0.4578275, 0.40821073 }
#define EXL2__VISION_CLIP_STD { 0.26862954, 0.26130258, 0.27577711 }

#define EXL2__VISION_MARKS_IMAGE .mark = "<image>", .row = "<image>", .before = "", .after = "", .line = "", \
                                 .open = "", .close = ""
#define EXL2__VISION_MARKS_QWEN { .mark = "<|image_pad|>", .row = "<|image_pad|>", .video = "<|video_pad|>", \
                                  .before = "", .after = "", .line = "", .open = "<|vision_start|>", \
                                  .close = "<|vision_end|>" }
#define EXL2__VISION_MARKS_PIXTRAL { .mark = "[IMG]", .row = "[IMG]", .before = "", .after = "[IMG_END]", \
                                     .line = "[IMG_BREAK]", .open = "", .close = "", \
                                     .expand = EXL2__VISION_EXPAND_LINES }

#define EXL2__VISION_IDEFICS(model, title, ...) \
    { .type = model, .family = title, .renames = EXL2__VISION_RENAMES_IDEFICS, \
      .ignored = EXL2__VISION_LIST(EXL2__VISION_IGNORED_CLIP), .defaults = EXL2__VISION_DEFAULTS(__VA_ARGS__), \
      .names = { EXL2__VISION_NAMES_SIGLIP, .linear1 = "modality_projection.proj" }, \
      .marks = { EXL2__VISION_MARKS_IMAGE, .expand = EXL2__VISION_EXPAND_TILES }, \
      .table = EXL2__VISION_TABLE_PLACES, .rule = EXL2__VISION_RULE_TILES, .act = EXL2__VISION_ACT_GELU_TANH, \
      .filter = 1, .mean = EXL2__VISION_HALF, .std = EXL2__VISION_HALF }

static const exl2__vision_row exl2__vision_rows[] = {
    EXL2__VISION_IDEFICS("smolvlm", "SmolVLM",
        { "vision_config->hidden_size", 1152 }, { "vision_config->num_hidden_layers", 12 },
        { "vision_config->num_attention_heads", 16 }, { "vision_config->intermediate_size", 3072 },
        { "vision_config->patch_size", 32 }, { "vision_config->image_size", 224 }, { "scale_factor", 2 },
        { "vision_config->layer_norm_eps", 1e-6 }, { "size->longest_edge", 2048 },
        { "max_image_size->longest_edge", 512 }),
    EXL2__VISION_IDEFICS("idefics3", "Idefics3",
        { "vision_config->hidden_size", 1152 }, { "vision_config->num_hidden_layers", 12 },
        { "vision_config->num_attention_heads", 16 }, { "vision_config->intermediate_size", 3072 },
        { "vision_config->patch_size", 32 }, { "vision_config->image_size", 224 }, { "scale_factor", 2 },
        { "vision_config->layer_norm_eps", 1e-6 }, { "size->longest_edge", 1456 },
        { "max_image_size->longest_edge", 364 }),
    { .type = "gemma3", .family = "Gemma 3", .renames = EXL2__VISION_RENAMES_WRAPPED,
      .ignored = EXL2__VISION_LIST(EXL2__VISION_IGNORED_CLIP),
      .defaults = EXL2__VISION_DEFAULTS({ "vision_config->hidden_size", 1152 },
          { "vision_config->num_hidden_layers", 27 }, { "vision_config->num_attention_heads", 16 },
          { "vision_config->intermediate_size", 4304 }, { "vision_config->patch_size", 14 },
          { "vision_config->image_size", 896 }, { "vision_config->layer_norm_eps", 1e-6 },
          { "mm_tokens_per_image", 256 }, { "size->height", 896 }, { "size->width", 896 }),
      .names = { EXL2__VISION_NAMES_SIGLIP, .norm = "mm_soft_emb_norm", .linear1 = "mm_input_projection_weight" },
      .marks = { .mark = "<start_of_image>", .row = "<image_soft_token>", .before = "\n\n<start_of_image>",
                 .after = "<end_of_image>\n\n", .line = "", .open = "", .close = "" },
      .table = EXL2__VISION_TABLE_PLACES, .rule = EXL2__VISION_RULE_FIXED, .merge = EXL2__VISION_MERGE_MEAN,
      .act = EXL2__VISION_ACT_GELU_TANH, .norm_rms = true, .norm_plus_one = true, .transposed = true, .whole = true,
      .filter = 2, .mean = EXL2__VISION_HALF, .std = EXL2__VISION_HALF },
    { .type = "mistral3", .tower = "pixtral", .family = "Mistral 3", .renames = EXL2__VISION_RENAMES_WRAPPED,
      .ignored = EXL2__VISION_LIST("tower.patch_positional_embedding"),
      .defaults = EXL2__VISION_DEFAULTS({ "vision_config->hidden_size", 1024 },
          { "vision_config->num_hidden_layers", 24 }, { "vision_config->num_attention_heads", 16 },
          { "vision_config->intermediate_size", 4096 }, { "vision_config->patch_size", 14 },
          { "vision_config->rope_theta", 10000 }, { "spatial_merge_size", 2 }, { "size->longest_edge", 1540 }),
      .names = { EXL2__VISION_NAMES_PIXTRAL, .norm = "norm", .merge = "patch_merger.merging_layer" },
      .marks = EXL2__VISION_MARKS_PIXTRAL, .rope = EXL2__VISION_ROPE_SPLIT, .rule = EXL2__VISION_RULE_EDGE,
      .merge = EXL2__VISION_MERGE_CYX, .act = EXL2__VISION_ACT_SILU, .projector_act = EXL2__VISION_ACT_GELU,
      .rms = true, .fixed_eps = true, .gated = true, .norm_patches = true, .norm_rms = true, .norm_text_eps = true,
      .pick_layer = true, .filter = 3, .mean = EXL2__VISION_CLIP_MEAN, .std = EXL2__VISION_CLIP_STD },
    { .type = "llava", .tower = "pixtral", .family = "Pixtral", .renames = EXL2__VISION_RENAMES_WRAPPED,
      .ignored = EXL2__VISION_LIST("tower.patch_positional_embedding"),
      .defaults = EXL2__VISION_DEFAULTS({ "vision_config->hidden_size", 1024 },
          { "vision_config->num_hidden_layers", 24 }, { "vision_config->num_attention_heads", 16 },
          { "vision_config->intermediate_size", 4096 }, { "vision_config->patch_size", 16 },
          { "vision_config->rope_theta", 10000 }, { "spatial_merge_size", 1 }, { "size->longest_edge", 1024 }),
      .names = { EXL2__VISION_NAMES_PIXTRAL },
      .marks = EXL2__VISION_MARKS_PIXTRAL, .rope = EXL2__VISION_ROPE_SPLIT, .rule = EXL2__VISION_RULE_EDGE,
      .act = EXL2__VISION_ACT_SILU, .projector_act = EXL2__VISION_ACT_GELU, .rms = true, .fixed_eps = true,
      .gated = true, .pick_layer = true, .filter = 3, .mean = EXL2__VISION_CLIP_MEAN, .std = EXL2__VISION_CLIP_STD },
    { .type = "llava", .tower = "clip_vision_model", .family = "LLaVA (CLIP)", .renames = EXL2__VISION_RENAMES_WRAPPED,
      .ignored = EXL2__VISION_LIST(EXL2__VISION_IGNORED_CLIP, "tower.post_layernorm."),
      .defaults = EXL2__VISION_DEFAULTS({ "vision_config->hidden_size", 768 },
          { "vision_config->num_hidden_layers", 12 }, { "vision_config->num_attention_heads", 12 },
          { "vision_config->intermediate_size", 3072 }, { "vision_config->patch_size", 32 },
          { "vision_config->image_size", 224 }, { "vision_config->layer_norm_eps", 1e-5 },
          { "size->shortest_edge", 336 }, { "crop_size->height", 336 }, { "crop_size->width", 336 }),
      .names = { EXL2__VISION_NAMES_SIGLIP, .class_row = "embeddings.class_embedding", .pre_norm = "pre_layrnorm",
                 .linear1 = "linear_1", .linear2 = "linear_2" },
      .marks = { EXL2__VISION_MARKS_IMAGE }, .table = EXL2__VISION_TABLE_PLACES, .rule = EXL2__VISION_RULE_CROP,
      .act = EXL2__VISION_ACT_QUICK_GELU, .projector_act = EXL2__VISION_ACT_GELU, .pick_layer = true, .filter = 3,
      .mean = EXL2__VISION_CLIP_MEAN, .std = EXL2__VISION_CLIP_STD },
    { .type = "llava", .tower = "siglip_vision_model", .family = "LLaVA (SigLIP)",
      .renames = EXL2__VISION_RENAMES_WRAPPED,
      .ignored = EXL2__VISION_LIST(EXL2__VISION_IGNORED_CLIP, "tower.post_layernorm."),
      .defaults = EXL2__VISION_DEFAULTS({ "vision_config->hidden_size", 768 },
          { "vision_config->num_hidden_layers", 12 }, { "vision_config->num_attention_heads", 12 },
          { "vision_config->intermediate_size", 3072 }, { "vision_config->patch_size", 16 },
          { "vision_config->image_size", 224 }, { "vision_config->layer_norm_eps", 1e-6 },
          { "size->height", 384 }, { "size->width", 384 }),
      .names = { EXL2__VISION_NAMES_SIGLIP, .linear1 = "linear_1", .linear2 = "linear_2" },
      .marks = { EXL2__VISION_MARKS_IMAGE }, .table = EXL2__VISION_TABLE_PLACES, .rule = EXL2__VISION_RULE_FIXED,
      .act = EXL2__VISION_ACT_GELU_TANH, .projector_act = EXL2__VISION_ACT_GELU, .pick_layer = true, .filter = 3,
      .mean = EXL2__VISION_HALF, .std = EXL2__VISION_HALF },
    { .type = "qwen2_vl", .family = "Qwen2-VL", .renames = EXL2__VISION_RENAMES_QWEN,
      .ignored = EXL2__VISION_LIST(NULL),
      .defaults = EXL2__VISION_DEFAULTS({ "vision_config->embed_dim", 1280 }, { "vision_config->depth", 32 },
          { "vision_config->num_heads", 16 }, { "vision_config->mlp_ratio", 4 }, { "vision_config->patch_size", 14 },
          { "vision_config->spatial_merge_size", 2 }, { "vision_config->temporal_patch_size", 2 },
          { "min_pixels", 3136 }, { "max_pixels", 12845056 }),
      .names = { EXL2__VISION_NAMES_QWEN, .up = "mlp.fc1", .down = "mlp.fc2", .norm = "ln_q", .linear1 = "mlp.0",
                 .linear2 = "mlp.2" },
      .marks = EXL2__VISION_MARKS_QWEN, .rope = EXL2__VISION_ROPE_HALVES, .rule = EXL2__VISION_RULE_PIXELS,
      .act = EXL2__VISION_ACT_QUICK_GELU, .projector_act = EXL2__VISION_ACT_GELU, .fixed_eps = true,
      .norm_patches = true, .pairs_of_frames = true, .mrope = true, .filter = 3,
      .mean = EXL2__VISION_CLIP_MEAN, .std = EXL2__VISION_CLIP_STD },
    { .type = "qwen2_5_vl", .family = "Qwen2.5-VL", .renames = EXL2__VISION_RENAMES_QWEN,
      .ignored = EXL2__VISION_LIST(NULL),
      .defaults = EXL2__VISION_DEFAULTS({ "vision_config->hidden_size", 1280 }, { "vision_config->depth", 32 },
          { "vision_config->num_heads", 16 }, { "vision_config->intermediate_size", 3420 },
          { "vision_config->patch_size", 14 }, { "vision_config->spatial_merge_size", 2 },
          { "vision_config->temporal_patch_size", 2 }, { "vision_config->window_size", 112 },
          { "vision_config->tokens_per_second", 4 },
          { "min_pixels", 3136 }, { "max_pixels", 12845056 }),
      .names = { EXL2__VISION_NAMES_QWEN, .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj",
                 .norm = "ln_q", .linear1 = "mlp.0", .linear2 = "mlp.2" },
      .marks = EXL2__VISION_MARKS_QWEN, .rope = EXL2__VISION_ROPE_HALVES, .rule = EXL2__VISION_RULE_PIXELS,
      .act = EXL2__VISION_ACT_SILU, .projector_act = EXL2__VISION_ACT_GELU, .rms = true, .fixed_eps = true,
      .gated = true, .norm_patches = true, .norm_rms = true, .windows = true, .pairs_of_frames = true,
      .video_ticks = true, .mrope = true, .filter = 3, .mean = EXL2__VISION_CLIP_MEAN, .std = EXL2__VISION_CLIP_STD },
    { .type = "qwen3_vl", .family = "Qwen3-VL", .renames = EXL2__VISION_RENAMES_QWEN,
      .ignored = EXL2__VISION_LIST(NULL),
      .defaults = EXL2__VISION_DEFAULTS({ "vision_config->hidden_size", 1152 }, { "vision_config->depth", 27 },
          { "vision_config->num_heads", 16 }, { "vision_config->intermediate_size", 4304 },
          { "vision_config->patch_size", 16 }, { "vision_config->spatial_merge_size", 2 },
          { "vision_config->temporal_patch_size", 2 }, { "vision_config->num_position_embeddings", 2304 },
          { "min_pixels", 65536 }, { "max_pixels", 16777216 }),
      .names = { EXL2__VISION_NAMES_QWEN, .positions = "pos_embed", .up = "mlp.linear_fc1", .down = "mlp.linear_fc2",
                 .norm = "norm", .linear1 = "linear_fc1", .linear2 = "linear_fc2", .deep = "deepstack_merger_list" },
      .marks = EXL2__VISION_MARKS_QWEN, .rope = EXL2__VISION_ROPE_HALVES, .table = EXL2__VISION_TABLE_BILINEAR,
      .rule = EXL2__VISION_RULE_PIXELS, .act = EXL2__VISION_ACT_GELU_TANH, .projector_act = EXL2__VISION_ACT_GELU,
      .fixed_eps = true, .norm_patches = true, .pairs_of_frames = true, .video_in_all = true, .video_apart = true,
      .mrope = true, .filter = 3, .mean = EXL2__VISION_HALF, .std = EXL2__VISION_HALF },
};

/* The row of a model_type and vision_config.model_type; NULL: there is none. */
static inline const exl2__vision_row *exl2__vision_row_find(const char *type, const char *tower)
{
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__vision_rows); i++) {
        const exl2__vision_row *row = &exl2__vision_rows[i];
        if (strcmp(row->type, type) == 0 && (!row->tower || strcmp(row->tower, tower) == 0)) {
            return row;
        }
    }
    return NULL;
}

#endif
#endif
