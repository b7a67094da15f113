/* arch.h: what distinguishes one model family from another: names of tensors, and traits of the computation.
   takes: nothing.
   gives: exl2__name, exl2__norm_kind, exl2__qk_norm, exl2__act, exl2__trait and the values of each trait;
          exl2__arch_name, exl2__arch_row, exl2__arch, exl2__arch_key, exl2__arch_expert_key.

   A family is a row of exl2__archs (arch_rows.h). A row inherits from the row named in `like`, and says only what
   differs from it. */
#ifndef EXL2__ARCH_H
#define EXL2__ARCH_H

#include "fields.h"

/* Names that a row gives. Those of tensors are without ".weight", but for SINKS and CHOICE_BIAS; before those of a
   layer stands "model.layers.<index>.". A name "" means that the family has no such tensor. */
typedef enum exl2__name {
    EXL2__NAME_EMBED, EXL2__NAME_POSITIONS, /* tables [vocabulary, hidden], [positions, hidden] */
    EXL2__NAME_FINAL_NORM, EXL2__NAME_HEAD,
    /* Of a layer: */
    EXL2__NAME_ATTN_NORM, EXL2__NAME_ATTN_POST_NORM, /* before attention; of its result, before the residual */
    EXL2__NAME_MLP_NORM, EXL2__NAME_MLP_POST_NORM,
    EXL2__NAME_Q_NORM, EXL2__NAME_K_NORM,
    EXL2__NAME_Q, EXL2__NAME_K, EXL2__NAME_V, EXL2__NAME_OUT,
    EXL2__NAME_GATE, EXL2__NAME_UP, EXL2__NAME_DOWN,
    EXL2__NAME_QKV, EXL2__NAME_GATE_UP, /* several matrices in one tensor, where the file has no single ones */
    EXL2__NAME_SINKS,                   /* logits of attention's sinks [heads] */
    /* Of a layer with experts. '#' stands for the number of the expert: */
    EXL2__NAME_ROUTER, EXL2__NAME_CHOICE_BIAS, /* [experts, hidden]; [experts] added to scores for the choice only */
    EXL2__NAME_EXPERT_GATE, EXL2__NAME_EXPERT_UP, EXL2__NAME_EXPERT_DOWN,
    EXL2__NAME_EXPERTS_GATE, EXL2__NAME_EXPERTS_UP, /* all experts in one tensor, where the file has no single ones */
    EXL2__NAME_EXPERTS_GATE_UP, EXL2__NAME_EXPERTS_DOWN,
    EXL2__NAME_SHARED_GATE, EXL2__NAME_SHARED_UP, EXL2__NAME_SHARED_DOWN, /* the expert that every row uses */
    EXL2__NAME_SHARED_GATE_UP,          /* the first two in one tensor */
    EXL2__NAME_SHARED_SWITCH,           /* [1, hidden]: its sigmoid is the weight of the shared expert */
    EXL2__NAME_EPS,                     /* not a tensor: the key of config.json that has the norms' epsilon */
    EXL2__NAME_COUNT
} exl2__name;

/* y = x / sqrt(mean(x^2) + eps) * w (RMS), or y = (x - mean) / sqrt(variance + eps) * w + b (LAYER; b may be absent).
   PLUS_ONE: the file holds w - 1. */
typedef enum exl2__norm_kind {
    EXL2__NORM_RMS = 1, EXL2__NORM_RMS_PLUS_ONE, EXL2__NORM_LAYER, EXL2__NORM_LAYER_PLUS_ONE
} exl2__norm_kind;

/* Norms of q and k: of each head, or of the whole vector. */
typedef enum exl2__qk_norm {
    EXL2__QK_NORM_NONE = 1,
    EXL2__QK_NORM_HEADS,
    EXL2__QK_NORM_HEADS_ROTATED, /* after RoPE */
    EXL2__QK_NORM_WHOLE,
    EXL2__QK_NORM_BY_CONFIG      /* in rows only: HEADS if config.json has "use_qk_norm": true, else NONE */
} exl2__qk_norm;

/* Activation of the MLP: h = act(gate) * up, or h = act(up) without a gate. GELU_TANH is the approximation
   x sigmoid(1.5957691 (x + 0.044715 x^3)), GELU the exact one with erf. CLAMPED, which needs a gate:
   h = (clamp(up, -L, L) + 1) g sigmoid(1.702 g), g = min(gate, L). */
typedef enum exl2__act {
    EXL2__ACT_SILU = 1, EXL2__ACT_GELU_TANH, EXL2__ACT_GELU, EXL2__ACT_RELU_SQUARED, EXL2__ACT_CLAMPED
} exl2__act;

/* Traits that a row gives. 0 in a row: as in the row that it is like. */
typedef enum exl2__trait {
    EXL2__TRAIT_NORM,        /* exl2__norm_kind */
    EXL2__TRAIT_QK_NORM,     /* exl2__qk_norm */
    EXL2__TRAIT_ACT,         /* exl2__act that the family uses unless config.json names another one of its kind */
    EXL2__TRAIT_GATED,       /* exl2__answer: the MLP has a gate */
    EXL2__TRAIT_PARALLEL,    /* exl2__answer: attention and MLP read the same norm. BY_CONFIG: use_parallel_residual */
    EXL2__TRAIT_POSITIONS,   /* exl2__positions */
    EXL2__TRAIT_WINDOW,      /* exl2__window_rule */
    EXL2__TRAIT_UNROTATED,   /* exl2__unrotated_rule: layers without RoPE */
    EXL2__TRAIT_LOCAL_ROPE,  /* exl2__local_rope: RoPE of the layers with a window */
    EXL2__TRAIT_EMBED_SCALE, /* exl2__embed_scale */
    EXL2__TRAIT_TIED,        /* exl2__answer: without a head tensor, the embedding is the head. BY_CONFIG: if
                                tie_word_embeddings is true */
    EXL2__TRAIT_NEEDS_BOS,   /* exl2__answer: the family fails on texts without BOS */
    EXL2__TRAIT_QKV_ORDER,   /* exl2__qkv_order */
    EXL2__TRAIT_TRANSPOSED,  /* exl2__answer: dense matrices of layers are stored [in, out] */
    EXL2__TRAIT_ROUTING,     /* exl2__routing */
    EXL2__TRAIT_RENORMALIZED, /* exl2__answer: the weights of the chosen experts add up to 1. BY_CONFIG:
                                 norm_topk_prob */
    EXL2__TRAIT_EXPERTS_ORDER, /* exl2__experts_order */
    EXL2__TRAIT_GOLDEN,      /* exl2__answer: the tests have a model of this family. Not inherited */
    EXL2__TRAIT_COUNT
} exl2__trait;

typedef enum exl2__answer { EXL2__NO = 1, EXL2__YES, EXL2__BY_CONFIG } exl2__answer;

/* RoPE rotates the pairs (i, i + R/2) or (2i, 2i + 1) of the first R elements of a head; LEARNED: a table of vectors
   that are added to the embedding. */
typedef enum exl2__positions {
    EXL2__POSITIONS_HALVES = 1, EXL2__POSITIONS_PAIRS, EXL2__POSITIONS_LEARNED
} exl2__positions;

/* Which layers have the window, if config.json does not list them (layer_types). */
typedef enum exl2__window_rule {
    EXL2__WINDOW_NEVER = 1, /* not even then */
    EXL2__WINDOW_BUT_FOURTH, /* all but layers 0, 4, 8 ... */
    EXL2__WINDOW_ALL,
    EXL2__WINDOW_EVEN,      /* layers 0, 2, 4 ... */
    EXL2__WINDOW_PATTERN,   /* all but every P-th layer, P = sliding_window_pattern */
    EXL2__WINDOW_ABOVE,     /* layers from max_window_layers on */
    EXL2__WINDOW_UPPER,     /* the same, if use_sliding_window is true */
    EXL2__WINDOW_SWITCHED,  /* all, if use_sliding_window is true */
    EXL2__WINDOW_UNROTATED  /* layers without RoPE, if use_sliding_window is true */
} exl2__window_rule;

typedef enum exl2__unrotated_rule {
    EXL2__UNROTATED_NONE = 1,
    EXL2__UNROTATED_LISTED,   /* no_rope_layers, or every no_rope_layer_interval-th layer */
    EXL2__UNROTATED_FULL,     /* layers without a window */
    EXL2__UNROTATED_IF_WINDOW /* the same, if any layer has a window */
} exl2__unrotated_rule;

typedef enum exl2__local_rope {
    EXL2__LOCAL_ROPE_SAME = 1,
    EXL2__LOCAL_ROPE_BASE,   /* theta is rope_local_base_freq, without scaling */
    EXL2__LOCAL_ROPE_PLAIN   /* the same theta, without scaling */
} exl2__local_rope;

typedef enum exl2__embed_scale { EXL2__EMBED_SCALE_NONE = 1, EXL2__EMBED_SCALE_ROOT } exl2__embed_scale; /* sqrt(H) */

/* Rows of a tensor that holds q, k and v: all of q, then k, then v; or for each K/V head its heads of q, then its k,
   then its v. */
typedef enum exl2__qkv_order { EXL2__QKV_ORDER_BLOCKS = 1, EXL2__QKV_ORDER_GROUPS } exl2__qkv_order;

/* Scores of experts: softmax or sigmoid of the router's logits. */
typedef enum exl2__routing { EXL2__ROUTING_NONE = 1, EXL2__ROUTING_SOFTMAX, EXL2__ROUTING_SIGMOID } exl2__routing;

/* Tensors of all experts, E of them, I = width of an expert, H = hidden:
   ROWS             gate and up [E, 2 I, H], or [E, I, H] each; down [E, H, I]
   DOWN_TRANSPOSED  the same, but down [E, I, H]
   COLUMNS          gate and up [E, H, 2 I], columns gate, up, gate, up ...; down [E, I, H] */
typedef enum exl2__experts_order {
    EXL2__EXPERTS_ROWS = 1, EXL2__EXPERTS_DOWN_TRANSPOSED, EXL2__EXPERTS_COLUMNS
} exl2__experts_order;

typedef struct exl2__arch_name {
    exl2__name name;
    const char *text; /* NULL: the end of a list */
} exl2__arch_name;

/* A row: what differs from the row named in `like`. Its lists end with a NULL. */
typedef struct exl2__arch_row {
    const char *name;              /* the string in config.json's `architectures` */
    const char *type;              /* the string in `model_type` */
    const char *family;            /* for people: "Gemma 2" */
    const char *like;              /* name of the row that this one inherits from; NULL: this row says everything */
    const char *const *renames;    /* pairs: text in a tensor's name, its replacement; '^': at the beginning only.
                                      Applied in order. NULL: as in `like` */
    bool text_of_multimodal;       /* the model has a tower for pictures, which it reads if vision.images asks */
    const char *tower;             /* of rows of one name, it is the one for models whose vision_config has this
                                      model_type; NULL: for all others. The first row has NULL */
    const exl2__field_default *defaults; /* numbers that config.json may leave out. NULL: as in `like` */
    const exl2__arch_name *names;
    uint8_t traits[EXL2__TRAIT_COUNT];
} exl2__arch_row;

/* A family: its row with all that it inherits. */
typedef struct exl2__arch {
    const char *name, *type, *family;
    const char *const *renames;
    bool text_of_multimodal;
    const exl2__field_default *defaults;
    const char *names[EXL2__NAME_COUNT];
    uint8_t traits[EXL2__TRAIT_COUNT];
} exl2__arch;

#define EXL2__KEY_BYTES 96

/* Writes "model.layers.7.mlp.up_proj" into key[EXL2__KEY_BYTES], and returns it. */
static inline const char *exl2__arch_key(char *key, uint32_t layer, const char *name)
{
    exl2__format(key, EXL2__KEY_BYTES, "model.layers.%u.%s", layer, name);
    return key;
}

/* The same; '#' in the name is replaced by the number of the expert. */
static inline const char *exl2__arch_expert_key(char *key, uint32_t layer, uint32_t expert, const char *name)
{
    const char *number = strchr(name, '#');
    int before = number ? (int)(number - name) : (int)strlen(name);
    exl2__format(key, EXL2__KEY_BYTES, "model.layers.%u.%.*s", layer, before, name);
    if (number) {
        size_t used = strlen(key);
        exl2__format(key + used, EXL2__KEY_BYTES - used, "%u%s", expert, number + 1);
    }
    return key;
}

#endif
