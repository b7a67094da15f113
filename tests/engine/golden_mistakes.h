/* golden_mistakes.h: mistakes in what a model is loaded from, which its golden must detect.
   takes: golden_mistake, before a model is opened.
   gives: the engine's readers of config.json, of a layer's units and of a matrix's tensors, each with the mistake; the
          engine that is included after this file calls them. */
#ifndef GOLDEN_MISTAKES_H
#define GOLDEN_MISTAKES_H

#include "private/matrix_find.h"
#include "private/model_config_read.h"
#include "private/units.h"

typedef enum golden_mistakes {
    MISTAKE_NONE,
    MISTAKE_WINDOW,   /* windows are one token longer */
    MISTAKE_ROPE,     /* RoPE rotates pairs for halves, and halves for pairs */
    MISTAKE_NORM,     /* norms without their + 1 */
    MISTAKE_BIAS,     /* matrices without biases */
    MISTAKE_GATE,     /* gate and up swapped */
    MISTAKE_SOFTMAX,  /* softmax of the router over the chosen experts instead of all, and the other way round */
    MISTAKE_ZEROS     /* zeros of GPTQ without their + 1 */
} golden_mistakes;

static golden_mistakes golden_mistake;

static exl2_result mistaken_config(exl2__ctx *c, const char *dir, exl2__config *out)
{
    exl2_result result = exl2__config_read(c, dir, out);
    uint8_t *traits = out->arch.traits;
    switch (golden_mistake) {
    case MISTAKE_WINDOW:
        out->window++;
        break;
    case MISTAKE_ROPE:
        traits[EXL2__TRAIT_POSITIONS] = traits[EXL2__TRAIT_POSITIONS] == EXL2__POSITIONS_PAIRS
                                      ? EXL2__POSITIONS_HALVES : EXL2__POSITIONS_PAIRS;
        break;
    case MISTAKE_NORM:
        traits[EXL2__TRAIT_NORM] = traits[EXL2__TRAIT_NORM] == EXL2__NORM_RMS_PLUS_ONE ? EXL2__NORM_RMS
                                 : traits[EXL2__TRAIT_NORM];
        break;
    case MISTAKE_SOFTMAX:
        out->experts.renormalized = !out->experts.renormalized;
        break;
    case MISTAKE_ZEROS:
        out->quant.v2 = true;
        break;
    default:
        break;
    }
    return result;
}

static void mistaken_unit(const exl2__config *c, uint32_t index, exl2__unit *u)
{
    exl2__unit_make(c, index, u);
    if (golden_mistake == MISTAKE_GATE && u->kind == EXL2__UNIT_GATE_UP && u->count == 2) {
        exl2__matrix_source gate = u->source[0];
        u->source[0] = u->source[1];
        u->source[1] = gate;
    }
}

static exl2_result mistaken_matrix(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_source *source,
                                   uint32_t in, uint32_t out, exl2__matrix_desc *desc)
{
    exl2_result result = exl2__matrix_find_source(c, t, source, in, out, desc);
    desc->has_bias = desc->has_bias && golden_mistake != MISTAKE_BIAS;
    return result;
}

#define exl2__config_read mistaken_config
#define exl2__unit_make mistaken_unit
#define exl2__matrix_find_source mistaken_matrix

#endif
