/* tower_shape.h: widths of a tower's matrices, and the numbers of its parts: tensors, or matrices with their biases.
   takes: an exl2__vision_config.
   gives: exl2__tower_merged, exl2__tower_patch_inputs, exl2__tower_middle, exl2__tower_parts. */
#ifndef EXL2__TOWER_SHAPE_H
#define EXL2__TOWER_SHAPE_H

#include "../../1_load/vision_size.h"

#ifndef EXL2_NO_VISION

/* Parts before the layers; then those of each layer; then those of the projector of each level. A part that a family
   does not have keeps its number. */
enum {
    EXL2__TOWER_PATCH, EXL2__TOWER_CLASS, EXL2__TOWER_POSITIONS, EXL2__TOWER_PRE_NORM, EXL2__TOWER_POST_NORM,
    EXL2__TOWER_HEAD_PARTS
};
enum {
    EXL2__TOWER_NORM_1, EXL2__TOWER_NORM_2, EXL2__TOWER_Q, EXL2__TOWER_K, EXL2__TOWER_V, EXL2__TOWER_O,
    EXL2__TOWER_GATE, EXL2__TOWER_UPPER, EXL2__TOWER_LOWER, EXL2__TOWER_LAYER_PARTS /* Q: or q, k and v together */
};
enum {
    EXL2__TOWER_NORM, EXL2__TOWER_MERGING, EXL2__TOWER_FIRST, EXL2__TOWER_SECOND, EXL2__TOWER_PROJECTOR_PARTS
};

/* Inputs of the projector's first matrix. */
static inline uint32_t exl2__tower_merged(const exl2__vision_config *v)
{
    return v->row->merge == EXL2__VISION_MERGE_MEAN ? v->width : v->width * v->merge * v->merge;
}

static inline uint32_t exl2__tower_patch_inputs(const exl2__vision_config *v)
{
    return 3 * v->frames * v->patch * v->patch;
}

/* Outputs of linear1. */
static inline uint32_t exl2__tower_middle(const exl2__vision_config *v)
{
    return v->row->pairs_of_frames ? exl2__tower_merged(v) : v->hidden;
}

static inline uint32_t exl2__tower_parts(const exl2__vision_config *v)
{
    return EXL2__TOWER_HEAD_PARTS + v->layers * EXL2__TOWER_LAYER_PARTS
         + v->levels * EXL2__TOWER_PROJECTOR_PARTS;
}

#endif
#endif
