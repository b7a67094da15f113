/* vision_config.h: what the files of a model say of its tower for pictures, after the rules of its family.
   takes: what vision_read.h found.
   gives: exl2__vision_row, exl2__vision_marks, exl2__vision_config, exl2__vision_limits, exl2__vision_size and their
          parts.

   A patch is p x p pixels. Merge x merge patches become one row, the vector that the text model reads in the place of a
   token. A tile is what the tower sees in one pass: a whole picture, a square of a larger one, or two frames of a
   video, whose patches have pixels of both. */
#ifndef EXL2__VISION_CONFIG_H
#define EXL2__VISION_CONFIG_H

#include "fields.h"

#ifndef EXL2_NO_VISION

#define EXL2__VISION_LAYERS_MAX 256u
#define EXL2__VISION_DEEP_MAX 8u       /* deepstack levels */
#define EXL2__VISION_SIDE_MAX 131072u  /* pixels of a side of a picture, before it is resized */
#define EXL2__VISION_FPS_MIN 0.001
#define EXL2__VISION_FPS_MAX 1000.0
#define EXL2__VISION_TIME_MAX 1048576.0 /* positions of a video's time */
#define EXL2__VISION_PIXELS_MAX (1u << 26) /* pixels of a side times a side after resizing, at most */

typedef enum exl2__vision_act {
    EXL2__VISION_ACT_GELU = 1, EXL2__VISION_ACT_GELU_TANH, EXL2__VISION_ACT_QUICK_GELU, EXL2__VISION_ACT_SILU
} exl2__vision_act;

/* How a patch knows its place. ROPE_HALVES: angles of the line of a patch come from the frequencies 0, 1 .. d/4 - 1 of
   a head of d/2 elements, then the same of its column. ROPE_SPLIT: the line uses the even ones of the d/2 frequencies
   of a head of d elements, the column the odd ones. */
typedef enum exl2__vision_rope {
    EXL2__VISION_ROPE_NONE, EXL2__VISION_ROPE_HALVES, EXL2__VISION_ROPE_SPLIT
} exl2__vision_rope;

/* BILINEAR: the table has side x side places, which are stretched over the picture, corners on corners. */
typedef enum exl2__vision_table {
    EXL2__VISION_TABLE_NONE, EXL2__VISION_TABLE_PLACES, EXL2__VISION_TABLE_BILINEAR
} exl2__vision_table;

/* The rule that gives the size of the resized picture (vision_size.h). */
typedef enum exl2__vision_rule {
    EXL2__VISION_RULE_FIXED,  /* height x width of the file */
    EXL2__VISION_RULE_CROP,   /* the shorter side to `edge`, then the centre */
    EXL2__VISION_RULE_EDGE,   /* the longer side to at most `edge`, then up to whole rows */
    EXL2__VISION_RULE_PIXELS, /* whole rows, and a number of pixels from `pixels_min` to `pixels_max` */
    EXL2__VISION_RULE_TILES   /* tiles and the whole */
} exl2__vision_rule;

/* How patches become the input of the projector. DYX: merge x merge patches one after the other, row by row; CYX: each
   channel of all of them; MEAN: their mean. */
typedef enum exl2__vision_merge {
    EXL2__VISION_MERGE_DYX, EXL2__VISION_MERGE_CYX, EXL2__VISION_MERGE_MEAN
} exl2__vision_merge;

/* What the prompt has in place of a picture. ROWS: before, the rows, after. LINES: after each line of rows `line`, but
   after the last one `after`. TILES: that of SmolVLM and Idefics3. */
typedef enum exl2__vision_expand {
    EXL2__VISION_EXPAND_ROWS, EXL2__VISION_EXPAND_LINES, EXL2__VISION_EXPAND_TILES
} exl2__vision_expand;

/* Texts: each is one special token of the tokenizer, or "", or has plain text such as "\n\n" around it. */
typedef struct exl2__vision_marks {
    const char *mark;           /* what a template writes for a picture */
    const char *row;            /* the token of a row */
    const char *video;          /* both, for a video; NULL: the family has none */
    const char *before, *after; /* of all rows, in place of the mark */
    const char *line;           /* after each line of rows but the last one */
    const char *open, *close;   /* around the mark, in a text that has none */
    exl2__vision_expand expand;
} exl2__vision_marks;

/* Names of tensors, after the row's renames, without ".weight". A name without a tensor is NULL. Those of a layer begin
   after "tower.", the layers' name and the number of the layer. */
typedef struct exl2__vision_names {
    const char *patch, *class_row, *positions, *pre_norm, *post_norm;
    const char *layers;                      /* "encoder.layers" */
    const char *norm1, *q, *k, *v, *qkv, *out, *norm2, *gate, *up, *down;
    const char *norm, *merge, *linear1, *linear2; /* of the projector; linear2 NULL: it is one matrix */
    const char *deep;                        /* of projectors after layers: "deepstack_merger_list" */
} exl2__vision_names;

/* A family of towers. The numbers that a file may leave out are `defaults`, by names of vision_read.h. */
typedef struct exl2__vision_row {
    const char *type;                /* model_type of config.json */
    const char *tower;               /* vision_config.model_type; NULL: any */
    const char *family;
    const char *const *renames;      /* pairs, ended by NULL: to "tower." and "projector." */
    const char *const *ignored;      /* beginnings of names of tensors without use, ended by NULL */
    const exl2__field_default *defaults;
    exl2__vision_names names;
    exl2__vision_marks marks;
    exl2__vision_rope rope;
    exl2__vision_table table;
    exl2__vision_rule rule;
    exl2__vision_merge merge;
    exl2__vision_act act, projector_act; /* defaults of hidden_act and projector_hidden_act */
    bool rms;                        /* norms of layers are RMSNorm, else LayerNorm */
    bool fixed_eps;                  /* eps of the tower is not in the file */
    bool gated;                      /* the MLP has a gate */
    bool norm_patches;               /* the projector's norm is of each patch before merging, else of what is merged */
    bool norm_rms, norm_plus_one, norm_text_eps; /* the projector's norm: RMSNorm; 1 + weight; eps of the text model */
    bool transposed;                 /* linear1 is stored [in, out], without ".weight" */
    bool windows;                    /* some layers have windows */
    bool pick_layer;                 /* vision_feature_layer, vision_feature_select_strategy */
    bool pairs_of_frames;            /* a patch has two frames: the family has videos */
    bool video_ticks;                /* a video's positions of time go by seconds (tokens_per_second) */
    bool video_in_all;               /* min_pixels and max_pixels of a video are of all its frames, else of each */
    bool video_apart;                /* rows of each pair of frames have marks and positions as a picture's, and their
                                        time before them as text; else a video's rows stand together */
    bool whole, mrope;               /* as in exl2__vision_config */
    uint32_t filter;                 /* the default of resample */
    double mean[3], std[3];          /* defaults */
} exl2__vision_row;

typedef struct exl2__vision_config {
    const exl2__vision_row *row;
    const char *family;
    uint32_t hidden;                 /* floats of a row: the width of the text model */
    uint32_t levels;                 /* vectors of a row: 1 + those that are added after the text layers 0, 1 .. */
    uint32_t row_id, mark_id, video_id; /* token ids of config.json; UINT32_MAX: look up the text of `marks` */
    bool whole;                      /* rows of one picture see each other */
    bool mrope;                      /* tokens have three positions */
    exl2__vision_marks marks;
    /* The tower. */
    uint32_t width, layers, heads, head_dim, inter; /* layers: those that are computed */
    uint32_t patch, frames, merge;   /* frames of a patch: 1 or 2 */
    uint32_t side;                   /* of the table of positions, in patches; 0: there is none */
    uint32_t window;                 /* side of a window in cells of merge x merge patches; 0 = none */
    bool full[EXL2__VISION_LAYERS_MAX]; /* layers without a window */
    uint32_t deep[EXL2__VISION_DEEP_MAX]; /* [levels - 1] after these layers a projector makes a level; ascending */
    exl2__vision_act act, projector_act;
    bool class_row, keeps_class;     /* the first row is of no patch; it is projected, too */
    bool post_norm;                  /* the row's post_norm is used */
    float eps, projector_eps;
    double theta;
    /* From bytes to pixels: (byte * rescale - mean) / std. */
    uint32_t filter;                 /* 1 Lanczos, 2 bilinear, 3 bicubic */
    double rescale, mean[3], std[3];
    uint32_t high, wide;             /* FIXED; CROP: of the centre */
    uint32_t edge, tile;             /* tile: of TILES */
    bool splits;                     /* TILES: larger pictures are cut */
    uint64_t pixels_min, pixels_max; /* PIXELS */
    uint64_t video_min, video_max;   /* the same of a video */
    uint32_t ticks;                  /* positions of time in a second of a video; 0: one for each pair of frames */
} exl2__vision_config;

/* What the application allows; 0: the model's own rule. */
typedef struct exl2__vision_limits {
    uint32_t max_rows, max_tiles;
} exl2__vision_limits;

#define EXL2__VISION_RESIZES_MAX 3u

/* What a picture becomes. */
typedef struct exl2__vision_size {
    uint32_t width, height;          /* of a tile, in pixels */
    uint32_t tiles, tile_rows, tile_columns; /* tile_rows * tile_columns + 1 for the whole; or 1, 0, 0; of a video the
                                        pairs of frames, 0, 0 */
    uint32_t grid[3];                /* pairs of frames of a video, else 1; lines, columns of rows of a tile */
    uint32_t frames;                 /* of a video; 0: a picture. The last one of an odd number is two */
    double fps;                      /* frames of the video in a second */
    uint32_t rows;                   /* of all tiles */
    uint32_t patches;                /* of a tile, without the class row */
    uint64_t seen_bytes;             /* RGB of all tiles, or frames, one below the other, the whole one last */
    uint32_t resizes;                /* one after the other */
    struct { uint32_t width, height; } resize[EXL2__VISION_RESIZES_MAX];
} exl2__vision_size;

/* Bytes of RGB of one tile, or of one frame of a video. */
static inline uint64_t exl2__vision_tile_bytes(const exl2__vision_size *s)
{
    return (uint64_t)s->width * s->height * 3;
}

/* Where the RGB of a tile begins among those of all, and how many frames it has there: 1 or 2. */
static inline uint64_t exl2__vision_tile_at(const exl2__vision_size *s, uint32_t tile)
{
    return exl2__vision_tile_bytes(s) * tile * (s->frames ? 2 : 1);
}

static inline uint32_t exl2__vision_tile_frames(const exl2__vision_size *s, uint32_t tile)
{
    return s->frames >= 2 * tile + 2 ? 2 : 1;
}

#endif
#endif
