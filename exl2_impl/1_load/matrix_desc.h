/* matrix_desc.h: how the loader describes one linear layer to a backend, and where the layer may be in the files.
   takes: the tensor table.
   gives: exl2__dtype, exl2__group, exl2__matrix_kind, exl2__matrix_kind_name, exl2__matrix_view, exl2__affine,
          exl2__exl3, exl2__matrix_is_exl3, exl2__matrix_desc, exl2__matrix_stored, exl2__matrix_dequantize,
          exl2__matrix_source. */
#ifndef EXL2__MATRIX_DESC_H
#define EXL2__MATRIX_DESC_H

#include "../0_base/hash_sums.h"
#include "exl3_decode.h"
#include "quant_config.h"
#include "tensor_table.h"

typedef enum exl2__dtype { EXL2__F16, EXL2__BF16, EXL2__F32 } exl2__dtype;

/* Weights of the kinds: EXL2: fp16((code - 2^(bits-1)) * scale). DENSE: floats. AFFINE: fp16((code - zero) * scale),
   with a zero of its own for each group and column: GPTQ and AWQ. EXL3: codes of a trellis between two Hadamard
   transforms; EXL3_TABLE: an embedding in such codes. */
typedef enum exl2__matrix_kind {
    EXL2__MATRIX_EXL2, EXL2__MATRIX_DENSE, EXL2__MATRIX_AFFINE, EXL2__MATRIX_EXL3, EXL2__MATRIX_EXL3_TABLE
} exl2__matrix_kind;

static inline const char *exl2__matrix_kind_name(exl2__matrix_kind kind)
{
    static const char *const names[] = { "EXL2", "dense", "GPTQ or AWQ", "EXL3", "EXL3" };
    return names[kind];
}

static inline bool exl2__matrix_is_exl3(exl2__matrix_kind kind)
{
    return EXL2__EXL3 && kind >= EXL2__MATRIX_EXL3;
}

/* Input rows [row, row + rows), in packed order, have codes of `bits` bits, which begin at word row `word` of the codes
   (docs/formats.md, "EXL2: groups"). */
typedef struct exl2__group {
    uint32_t row, rows, word;
    uint32_t bits;
} exl2__group;

/* Where the outputs of a matrix lie in a tensor that may hold others beside it. Output o is row
   first + o / run * step + o % run of the tensor [rows, in]; if transposed, this column of [in, columns], which is the
   stack-th one of such matrices in the tensor. In GPTQ and AWQ tensors it is always a column, without a stack. A tensor
   of its own [rows, columns] may have more rows and columns than the matrix: the padding of EXL3. */
typedef struct exl2__matrix_view {
    uint64_t first;
    uint32_t run, step;
    bool transposed;
    uint32_t stack;
    uint64_t columns;
} exl2__matrix_view;

/* How the files hold an affine matrix, for the loader alone. */
typedef struct exl2__affine {
    const exl2__tensor *zeros, *scales, *group_index; /* qzeros, scales, g_idx or NULL */
    uint32_t bits, group_rows; /* of all groups; the last group may have fewer rows */
    uint32_t columns;          /* of the tensors, which may hold several matrices */
    bool awq;                  /* words hold 8 columns of a row, else rows of a column */
    uint32_t zero_add;         /* zero = stored value + zero_add */
    bool symmetric;            /* config.json says that all zeros are 2^(bits-1) */
    bool sorted;               /* the packed order is not that of the file; known once the tables are read */
    uint32_t *raw;             /* memory for what is read from the file, while the matrix is read */
    exl2__hash_sums *content;  /* of AWQ: the hash of content_id.h, to which codes are added as they are read; NULL:
                                  not wanted */
} exl2__affine;

/* How the files hold an EXL3 matrix: y = H (H (x * in_scales) W) * out_scales + bias, with W [in_stored, out_stored] of
   tiles of 16 x 16 weights (exl3_decode.h) and H the Hadamard transform of 128 adjacent values. `data` is [in_stored /
   16, out_stored / 16, words] of 16 bits: its rows, of which `words` of the desc is the number, have out_stored / 16
   tiles. x is extended by zeros, and y is cut, to the model's widths. */
typedef struct exl2__exl3 {
    exl2__exl3_codebook codebook;
    uint32_t words;            /* 16-bit words of a tile: 16 K. TABLE: of a ring with its scale: 1 + 16 K; each of the
                                  `out` rows has in_stored / 256 rings */
    uint32_t in_stored;        /* in, rounded up to a multiple of 128; TABLE: of 256 */
    bool in_packed, out_packed; /* the file has signs in the place of scales */
    const exl2__tensor *in_scales, *out_scales; /* suh, svh; TABLE: signs, NULL */
} exl2__exl3;

/* PRODUCT: y = x W. ROWS: an embedding, one row per token. Beside PRODUCT: the matrices of an MLP, of an expert, and of
   a router. The outputs of UP (gate and up) are the inputs of the DOWN that is loaded before it. */
enum {
    EXL2__USE_PRODUCT = 1, EXL2__USE_ROWS = 2, EXL2__USE_UP = 4, EXL2__USE_DOWN = 8, EXL2__USE_EXPERT = 16,
    EXL2__USE_EXPERT_UP = EXL2__USE_UP | EXL2__USE_EXPERT, EXL2__USE_EXPERT_DOWN = EXL2__USE_DOWN | EXL2__USE_EXPERT,
    EXL2__USE_ROUTER = 32, EXL2__USE_NATURAL = 64
};

/* One linear layer y[out] = x[in] W (+ bias), checked by the loader. */
typedef struct exl2__matrix_desc {
    const char *name;             /* "model.layers.0.self_attn.q_proj", for messages */
    uint32_t in, out, out_stored; /* out_stored: out rounded up to a multiple of 32, EXL3: of 128; the padding is never
                                     used */
    exl2__matrix_kind kind;
    exl2__dtype dtype;            /* DENSE, which is [out, in] of this type */
    const exl2__tensor *data, *bias_data; /* the tensor that is read in slices, and that of the bias or NULL */
    exl2__matrix_view view;       /* DENSE, AFFINE: where the matrix lies in `data`, and the bias in `bias_data` */
    uint32_t group_count, words;  /* EXL2, AFFINE: groups, and word rows of the codes [words, out_stored]; EXL3: rows of
                                     `data` */
    bool has_bias;
    bool padded;                  /* DENSE: the tensor has more rows or columns than the matrix: padding of EXL3 */
    uint32_t uses;                /* EXL2__USE_*: how the model uses the matrix */
    uint32_t unit;                /* columns that stay together where devices share a matrix; 0: as columns.h says */
    uint32_t expert, experts;     /* EXPERT: the expert, and the number of experts of its layer */
    uint32_t streamed;            /* 1 + the part of exl2__streamed that it belongs to; 0: it stays in the backend's
                                     memory */
    exl2__affine affine;          /* AFFINE */
    exl2__exl3 exl3;              /* EXL3, EXL3_TABLE */
    bool dequantized;             /* `kind` is DENSE for the backend, but the files hold codes of the kind `stored` */
    exl2__matrix_kind stored;
    /* The members above are known from file headers alone (but that a bias of GPTQ with zeros alone is dropped), and
       matrix_bytes reads no others (but `groups`, if the backend sets needs_groups). The members below are valid while
       the matrix is read. */
    const exl2__group *groups;    /* [group_count] */
    const uint32_t *scale_codes;  /* EXL2: [group_count, out_stored / 8] q_scale as stored */
    const uint16_t *scale_max;    /* EXL2: [group_count] f16: fp16(q_scale_max * prescale / 256) */
    const uint16_t *scales;       /* AFFINE: [group_count, out_stored] f16; 0 in the padding */
    const uint16_t *zeros;        /* AFFINE: [group_count, out_stored] integers from 0 to 256 */
    const uint32_t *inverse_perm; /* EXL2, AFFINE: [in] packed row of each input feature */
    const uint16_t *in_scales;    /* EXL3: [in_stored] f16, finite; EXL3_TABLE: signs [in_stored] */
    const uint16_t *out_scales;   /* EXL3: [out_stored] f16, finite */
    const float *bias;            /* [out] or NULL */
    const uint32_t *order;        /* dequantized: [in] input feature of each packed row */
    uint32_t *codes;              /* dequantized: [words, EXL2__MATRIX_COLUMNS] memory for codes of some columns; EXL3:
                                     exl2__exl3_codes_bytes */
} exl2__matrix_desc;

#define EXL2__MATRIX_COLUMNS 32u /* that are dequantized at once */

/* How the files hold the matrix. */
static inline exl2__matrix_kind exl2__matrix_stored(const exl2__matrix_desc *d)
{
    return d->dequantized ? d->stored : d->kind;
}

/* Lets the backend have a matrix of codes as a dense one. */
static inline void exl2__matrix_dequantize(exl2__matrix_desc *d)
{
    d->dequantized = true;
    d->stored = d->kind;
    d->kind = EXL2__MATRIX_DENSE;
    d->dtype = exl2__matrix_is_exl3(d->stored) ? EXL2__F32 : EXL2__F16;
    if (d->stored != EXL2__MATRIX_AFFINE) {
        d->view = (exl2__matrix_view){ 0, d->out, d->out, false, 0, d->out };
    }
}

/* Where a matrix may be: in tensors of its own, or in a part of another one. */
typedef struct exl2__matrix_source {
    const char *key;        /* without ".weight" */
    const char *fused;      /* the same of a tensor with several matrices, for files without `key`; NULL or "": none */
    uint64_t fused_rows;    /* outputs of all matrices in it, or in each of its stack */
    uint32_t stack;         /* number of tensors that it is a stack of: [stack, rows, columns] or [stack * rows,
                               columns]; 0: it is [rows, columns] */
    exl2__matrix_view view; /* where this one is in it */
    bool own_transposed;    /* the tensor of `key` is transposed */
    const exl2__quant *quant; /* what config.json says of GPTQ and AWQ; NULL: nothing */
} exl2__matrix_source;

#define EXL2__MATRIX_IN_MAX 65535u /* inputs of a matrix of codes: its permutation is used with 16 bits per entry */

/* Row (or column, if transposed) of the tensor that holds output `o`. */
static inline uint64_t exl2__matrix_view_at(const exl2__matrix_view *v, uint32_t o)
{
    return v->first + (uint64_t)(o / v->run) * v->step + o % v->run;
}

#endif
