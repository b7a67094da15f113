/* synth_shapes.h: the shapes of synthetic models: dimensions of published models, and how their families store them.
   takes: nothing.
   gives: synth_shape_find, synth_tower_size, SYNTH_SHAPES. */
#ifndef DEMO_CLI_SYNTH_SHAPES_H
#define DEMO_CLI_SYNTH_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

#define SYNTH_NORMS_MAX 4

typedef enum synth_qk_norm {
    SYNTH_QK_NONE,
    SYNTH_QK_HEADS, /* norms of q and k, of one head each */
    SYNTH_QK_WHOLE  /* of all heads together */
} synth_qk_norm;

/* What the config.json and the tensors of a family have that Llama's do not have, or have under other names. */
typedef struct synth_family {
    const char *architecture, *model_type, *activation;
    const char *members;               /* more members of config.json, as JSON; NULL: none */
    const char *norms[SYNTH_NORMS_MAX]; /* of a layer */
    const char *gate, *up, *down;      /* gate NULL: the MLP has none; with experts '#' is the number of the expert */
    const char *router;                /* NULL: no experts */
    const char *experts_key;           /* member of config.json with the number of experts */
    synth_qk_norm qk_norm;
    bool norm_biases;
    bool attention_biases, mlp_biases; /* of the router, too */
    bool qkv_biases;                   /* of q, k and v alone */
    bool sinks, tied;
} synth_family;

/* A tensor of a tower for pictures. '#' in the name is the number of a layer. Its size [rows, columns] is in letters:
   w width, 3 three times the width, i MLP, p inputs of a patch, n places, m merged patches, h width of the text model;
   0: there are no columns. */
typedef struct synth_part {
    const char *name;
    char rows, columns;
    bool norm, bias; /* norm: around 1 */
    bool bare;       /* without ".weight" */
} synth_part;

typedef struct synth_tower {
    const char *architecture, *model_type;
    const char *members;      /* more members of config.json */
    const char *preprocessor; /* preprocessor_config.json */
    const char *text, *head;  /* beginning of names of the text model, in the place of "model."; name of the head */
    bool flat;                /* config.json has no text_config */
    const synth_part *parts;  /* ended by a name that is NULL */
    uint32_t width, inter, layers, patch, frames, merge, places;
} synth_tower;

typedef struct synth_shape {
    const char *name;
    const synth_family *family;
    uint32_t hidden, inter, layers, heads, kv_heads, head_dim, vocab; /* inter: of an expert if there are experts */
    double rope_theta;
    uint32_t experts, active; /* 0: none */
    const synth_tower *tower; /* NULL: none */
} synth_shape;

/* The names of all shapes, for messages. */
#define SYNTH_SHAPES                                                                                         \
    "smollm2-135m, tinyllama-1.1b, llama3.2-3b, llama2-7b, llama3-8b, llama2-13b, llama2-70b, mistral-7b, " \
    "qwen3-8b, gemma2-9b, gemma3-1b, command-r7b, starcoder2-3b, olmoe-1b-7b, qwen3-30b-a3b, mixtral-8x7b, " \
    "gpt-oss-20b; with a tower for pictures: smolvlm-256m, qwen2.5-vl-3b, gemma3-4b, pixtral-12b"

uint32_t synth_tower_size(const synth_shape *s, char letter);
const synth_shape *synth_shape_find(const char *name); /* NULL: no shape has this name */

#endif
