/* arch.h: the supported architectures, one row each: the names of the tensors. A model that differs from Llama only in
   these names is a new row.
   takes: nothing.
   gives: exl2__linear, exl2__arch, exl2__archs, exl2__arch_key.
   owns:  nothing. */
#ifndef EXL2__ARCH_H
#define EXL2__ARCH_H

#include "../0_base/result.h"

/* The matrices of a layer, in the order in which they are loaded. */
typedef enum exl2__linear {
    EXL2__LINEAR_Q, EXL2__LINEAR_K, EXL2__LINEAR_V, EXL2__LINEAR_OUT,
    EXL2__LINEAR_GATE, EXL2__LINEAR_UP, EXL2__LINEAR_DOWN,
    EXL2__LINEAR_COUNT
} exl2__linear;

/* `name` is the string in config.json. The other members are tensor names without ".weight"; the prefix
   "model.layers.<index>." stands before those of a layer (docs/formats.md, "Model folder: tensor names"). */
typedef struct exl2__arch {
    const char *name;
    const char *embed, *final_norm, *head;
    const char *attn_norm, *mlp_norm;
    const char *linear[EXL2__LINEAR_COUNT];
} exl2__arch;

static const exl2__arch exl2__archs[] = {
    { "LlamaForCausalLM",
      "model.embed_tokens", "model.norm", "lm_head",
      "input_layernorm", "post_attention_layernorm",
      { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj" } },
};

#define EXL2__KEY_BYTES 96

/* Writes "model.layers.7.mlp.up_proj" into key[EXL2__KEY_BYTES], and returns it. */
static inline const char *exl2__arch_key(char *key, uint32_t layer, const char *name)
{
    exl2__format(key, EXL2__KEY_BYTES, "model.layers.%u.%s", layer, name);
    return key;
}

#endif
