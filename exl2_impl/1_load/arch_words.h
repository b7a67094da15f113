/* arch_words.h: what a row says, in words: how a family differs from Llama, and the norms of a model.
   takes: a row of arch_rows.h; exl2__config.
   gives: exl2__arch_differences, exl2__arch_norms. */
#ifndef EXL2__ARCH_WORDS_H
#define EXL2__ARCH_WORDS_H

#include "arch_rows.h"
#include "model_config.h"

/* A trait whose value is `value` differs from Llama in these words. Those of a value that is Llama's are not asked. */
typedef struct exl2__arch_word {
    exl2__trait trait;
    uint8_t value;
    const char *words;
} exl2__arch_word;

static const exl2__arch_word exl2__arch_words[] = {
    { EXL2__TRAIT_NORM, EXL2__NORM_RMS_PLUS_ONE, "RMSNorm with weight + 1" },
    { EXL2__TRAIT_NORM, EXL2__NORM_LAYER, "LayerNorm" },
    { EXL2__TRAIT_NORM, EXL2__NORM_LAYER_PLUS_ONE, "LayerNorm with weight + 1" },
    { EXL2__TRAIT_PARALLEL, EXL2__YES, "attention and MLP in parallel" },
    { EXL2__TRAIT_PARALLEL, EXL2__BY_CONFIG, "attention and MLP in parallel by use_parallel_residual" },
    { EXL2__TRAIT_QK_NORM, EXL2__QK_NORM_HEADS, "norms of q and k by head" },
    { EXL2__TRAIT_QK_NORM, EXL2__QK_NORM_HEADS_ROTATED, "norms of q and k by head after RoPE" },
    { EXL2__TRAIT_QK_NORM, EXL2__QK_NORM_WHOLE, "norms of q and k over all heads" },
    { EXL2__TRAIT_QK_NORM, EXL2__QK_NORM_BY_CONFIG, "norms of q and k by use_qk_norm" },
    { EXL2__TRAIT_ACT, EXL2__ACT_GELU_TANH, "GELU" },
    { EXL2__TRAIT_ACT, EXL2__ACT_RELU_SQUARED, "squared ReLU" },
    { EXL2__TRAIT_ACT, EXL2__ACT_CLAMPED, "clamped SwiGLU" },
    { EXL2__TRAIT_GATED, EXL2__NO, "MLP without gate" },
    { EXL2__TRAIT_POSITIONS, EXL2__POSITIONS_PAIRS, "RoPE in pairs" },
    { EXL2__TRAIT_POSITIONS, EXL2__POSITIONS_LEARNED, "learned positions" },
    { EXL2__TRAIT_WINDOW, EXL2__WINDOW_ALL, "window in all layers" },
    { EXL2__TRAIT_WINDOW, EXL2__WINDOW_EVEN, "window in every second layer" },
    { EXL2__TRAIT_WINDOW, EXL2__WINDOW_BUT_FOURTH, "window in three of four layers" },
    { EXL2__TRAIT_WINDOW, EXL2__WINDOW_PATTERN, "window by sliding_window_pattern" },
    { EXL2__TRAIT_WINDOW, EXL2__WINDOW_ABOVE, "window in upper layers" },
    { EXL2__TRAIT_WINDOW, EXL2__WINDOW_UPPER, "window by use_sliding_window in upper layers" },
    { EXL2__TRAIT_WINDOW, EXL2__WINDOW_SWITCHED, "window by use_sliding_window" },
    { EXL2__TRAIT_WINDOW, EXL2__WINDOW_UNROTATED, "window by use_sliding_window in layers without RoPE" },
    { EXL2__TRAIT_UNROTATED, EXL2__UNROTATED_LISTED, "some layers without RoPE" },
    { EXL2__TRAIT_UNROTATED, EXL2__UNROTATED_FULL, "no RoPE in layers without a window" },
    { EXL2__TRAIT_UNROTATED, EXL2__UNROTATED_IF_WINDOW, "no RoPE in layers between those with a window" },
    { EXL2__TRAIT_LOCAL_ROPE, EXL2__LOCAL_ROPE_BASE, "another RoPE theta in layers with a window" },
    { EXL2__TRAIT_LOCAL_ROPE, EXL2__LOCAL_ROPE_PLAIN, "RoPE scaling in layers without a window only" },
    { EXL2__TRAIT_EMBED_SCALE, EXL2__EMBED_SCALE_ROOT, "scaled embedding" },
    { EXL2__TRAIT_TIED, EXL2__YES, "head shared with the embedding" },
    { EXL2__TRAIT_QKV_ORDER, EXL2__QKV_ORDER_GROUPS, "q, k and v in groups" },
    { EXL2__TRAIT_TRANSPOSED, EXL2__YES, "transposed matrices" },
    { EXL2__TRAIT_ROUTING, EXL2__ROUTING_SOFTMAX, "experts by softmax" },
    { EXL2__TRAIT_ROUTING, EXL2__ROUTING_SIGMOID, "experts by sigmoid" },
    { EXL2__TRAIT_NEEDS_BOS, EXL2__YES, "needs BOS" },
};

/* Numbers that mean a computation, where they are defaults of a row. */
static const struct { const char *number, *words; } exl2__arch_number_words[] = {
    { "partial_rotary_factor", "partial RoPE" },
    { "attn_logit_softcapping", "capped scores and logits" },
    { "logit_scale", "scaled logits" },
    { "attention_multiplier", "factors of embedding, blocks, scores and logits" },
};

/* What a model with a tower reads. */
#ifdef EXL2_NO_VISION
#define EXL2__ARCH_READS "text only"
#else
#define EXL2__ARCH_READS "reads pictures"
#endif

/* Appends the words to a list with commas. Returns its size, which is below cap. */
static inline size_t exl2__arch_add(char *out, size_t cap, size_t used, const char *words)
{
    size_t added = exl2__format(out + used, cap - used, "%s%s", used ? ", " : "", words);
    return exl2__min64(used + added, cap - 1);
}

/* Where the norms of blocks are. */
static inline const char *exl2__arch_norm_places(const exl2__arch *arch)
{
    return !arch->names[EXL2__NAME_ATTN_POST_NORM][0] ? "before blocks"
         : arch->names[EXL2__NAME_ATTN_NORM][0] ? "before and after blocks" : "after blocks";
}

/* Writes how the row differs from Llama: "LayerNorm, MLP without gate", or "" if only by names of its tensors. */
static inline void exl2__arch_differences(const exl2__arch_row *row, char *out, size_t cap)
{
    exl2__arch arch, llama;
    size_t used = 0;
    exl2__arch_resolve(row, &arch);
    exl2__arch_resolve(exl2__arch_find("LlamaForCausalLM"), &llama);
    out[0] = 0;
    if (arch.text_of_multimodal) {
        used = exl2__arch_add(out, cap, used, EXL2__ARCH_READS);
    }
    for (size_t i = 0; i < EXL2__COUNT(exl2__arch_words); i++) {
        const exl2__arch_word *word = &exl2__arch_words[i];
        if (arch.traits[word->trait] == word->value && llama.traits[word->trait] != word->value) {
            used = exl2__arch_add(out, cap, used, word->words);
        }
    }
    if (arch.names[EXL2__NAME_ATTN_POST_NORM][0]) {
        char norms[64];
        exl2__format(norms, sizeof norms, "norms %s", exl2__arch_norm_places(&arch));
        used = exl2__arch_add(out, cap, used, norms);
    }
    for (size_t i = 0; i < EXL2__COUNT(exl2__arch_number_words); i++) {
        for (const exl2__field_default *d = arch.defaults; d && d->name; d++) {
            if (strcmp(d->name, exl2__arch_number_words[i].number) == 0) {
                used = exl2__arch_add(out, cap, used, exl2__arch_number_words[i].words);
            }
        }
    }
    if (arch.names[EXL2__NAME_SHARED_UP][0]) {
        used = exl2__arch_add(out, cap, used, "shared expert");
    }
    if (arch.names[EXL2__NAME_SINKS][0]) {
        used = exl2__arch_add(out, cap, used, "attention sinks");
    }
    if (arch.names[EXL2__NAME_QKV][0]) {
        used = exl2__arch_add(out, cap, used, "q, k and v in one tensor");
    }
    if (strcmp(arch.names[EXL2__NAME_GATE_UP], llama.names[EXL2__NAME_GATE_UP]) != 0) {
        exl2__arch_add(out, cap, used, "gate and up in one tensor");
    }
}

/* Writes the norms of a model: "RMSNorm before blocks, of q and k by head". */
static inline void exl2__arch_norms(const exl2__config *config, char *out, size_t cap)
{
    static const char *const kinds[] = { "", "RMSNorm", "RMSNorm + 1", "LayerNorm", "LayerNorm + 1" };
    static const char *const qk[] = { "", "", ", of q and k by head", ", of q and k by head after RoPE",
                                      ", of q and k over all heads" };
    exl2__format(out, cap, "%s %s%s", kinds[config->arch.traits[EXL2__TRAIT_NORM]],
                 exl2__arch_norm_places(&config->arch), qk[config->qk_norm]);
}

#endif
