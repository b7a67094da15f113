/* matrix_find.h: finds the tensors of one linear layer, checks their headers, and describes them for a backend. No
   tensor data is read.
   takes: the tensor table, a layer key, the sizes that config.json gives.
   gives: exl2__matrix_find, exl2__matrix_find_source, exl2__matrix_find_table, exl2__matrix_exists,
          exl2__matrix_data. */
#ifndef EXL2__MATRIX_FIND_H
#define EXL2__MATRIX_FIND_H

#include "affine_matrix.h"
#include "exl3_matrix.h"

/* The tensor that holds the weights, which are read in slices of rows: u32 [words, out_stored], or dense [out, in]. */
static inline const exl2__tensor *exl2__matrix_data(const exl2__tensors *t, const char *key, bool dense)
{
    return exl2__tensors_find_part(t, key, dense ? "weight" : "q_weight");
}

/* The same of a tensor with several matrices, or its bias. Tensors of all experts are named "<key>", "<key>_bias". */
static inline const exl2__tensor *exl2__matrix_fused(const exl2__tensors *t, const char *key, const char *part)
{
    char name[EXL2__TENSORS_NAME_MAX];
    const exl2__tensor *entry = exl2__tensors_find_part(t, key, part);
    exl2__format(name, sizeof name, "%s%s", key, strcmp(part, "bias") == 0 ? "_bias" : "");
    return entry ? entry : exl2__tensors_find(t, name);
}

/* Does the model have a matrix of any kind with this key? (lm_head may be missing: tied to model.embed_tokens.) */
static inline bool exl2__matrix_exists(const exl2__tensors *t, const char *key)
{
    return exl2__tensors_find_part(t, key, "q_weight") || exl2__tensors_find_part(t, key, "qweight") ||
           exl2__tensors_find_part(t, key, "weight") || exl2__exl3_exists(t, key);
}

/* Finds "<key>.<part>" of the given type and rank. */
static inline exl2_result exl2__matrix_part(exl2__ctx *c, const exl2__tensors *t, const char *key, const char *part,
                                            exl2__tensor_type type, uint32_t rank, const exl2__tensor **out)
{
    const exl2__tensor *entry = exl2__tensors_find_part(t, key, part);
    *out = entry;
    if (!entry) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: incomplete EXL2 tensor set, missing %s", key, part);
    }
    if (entry->type != type || entry->rank != rank) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.%s: expected %s of rank %u, found %s of rank %u",
                          t->files.items[entry->file].name, key, part, exl2__tensor_type_name(type), rank,
                          exl2__tensor_type_name(entry->type), entry->rank);
    }
    return EXL2_OK;
}

/* Fills *desc from the headers of the five EXL2 tensors. desc->name, in and out must be set. */
EXL2__PRIVATE exl2_result exl2__matrix_find_exl2(exl2__ctx *c, const exl2__tensors *t, exl2__matrix_desc *desc)
{
    const char *key = desc->name;
    const exl2__tensor *weight, *scale, *scale_max, *groups, *perm = exl2__tensors_find_part(t, key, "q_invperm");
    bool short_perm = perm && perm->type == EXL2__TENSOR_I16; /* from some converters; its values are read as u16 */
    EXL2__TRY(exl2__matrix_part(c, t, key, "q_weight", EXL2__TENSOR_I32, 2, &weight));
    EXL2__TRY(exl2__matrix_part(c, t, key, "q_scale", EXL2__TENSOR_I32, 2, &scale));
    EXL2__TRY(exl2__matrix_part(c, t, key, "q_scale_max", EXL2__TENSOR_F16, 1, &scale_max));
    EXL2__TRY(exl2__matrix_part(c, t, key, "q_groups", EXL2__TENSOR_I16, 1, &groups));
    EXL2__TRY(exl2__matrix_part(c, t, key, "q_invperm", short_perm ? EXL2__TENSOR_I16 : EXL2__TENSOR_I32, 1, &perm));
    const char *file = t->files.items[weight->file].name;
    uint64_t words = weight->dims[0], columns = weight->dims[1], count = scale_max->dims[0], in = perm->dims[0];
    if (count == 0 || groups->dims[0] % 2 != 0 || groups->dims[0] / 2 != count || scale->dims[0] != count) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s: %s: group tables disagree (%llu values in q_groups, %llu rows in q_scale, %llu maxima)",
                          file, key, (unsigned long long)groups->dims[0], (unsigned long long)scale->dims[0],
                          (unsigned long long)count);
    }
    if (columns % 32 != 0 || scale->dims[1] != columns / 8) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s: %s: rows of q_scale have %llu words, which do not fit %llu columns (a multiple of 32, "
                          "8 to a word)",
                          file, key, (unsigned long long)scale->dims[1], (unsigned long long)columns);
    }
    if (columns != desc->out_stored) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: q_weight has %llu outputs, expected %u (%u rounded up to 32)",
                          file, key, (unsigned long long)columns, desc->out_stored, desc->out);
    }
    if (in != desc->in) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: q_invperm has %llu inputs, expected %u", file, key,
                          (unsigned long long)in, desc->in);
    }
    if (in > EXL2__MATRIX_IN_MAX) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: %s: q_invperm has %llu inputs, at most %u are supported", file,
                          key, (unsigned long long)in, EXL2__MATRIX_IN_MAX);
    }
    if (words > in / 4 || words < in / 16 || count > in / 32) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s: %s: %llu groups in %llu word rows cannot hold %u inputs of 2 to 8 bits", file, key,
                          (unsigned long long)count, (unsigned long long)words, desc->in);
    }
    desc->data = weight;
    desc->group_count = (uint32_t)count;
    desc->words = (uint32_t)words;
    return EXL2_OK;
}

static inline exl2_result exl2__matrix_check_float(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *entry)
{
    return exl2__tensor_is_float(entry) ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: expected F16, BF16 or F32, found %s",
                      t->files.items[entry->file].name, entry->name, exl2__tensor_type_name(entry->type));
}

EXL2__PRIVATE exl2_result exl2__matrix_check_dense(exl2__ctx *c, const exl2__tensors *t, exl2__matrix_desc *desc)
{
    const exl2__tensor *weight = desc->data;
    EXL2__TRY(exl2__matrix_check_float(c, t, weight));
    desc->kind = EXL2__MATRIX_DENSE;
    desc->dtype = weight->type == EXL2__TENSOR_F16 ? EXL2__F16
                : weight->type == EXL2__TENSOR_BF16 ? EXL2__BF16 : EXL2__F32;
    return EXL2_OK;
}

/* Checks that the tensor is [rows, columns], or a stack of those. */
EXL2__PRIVATE exl2_result exl2__matrix_check_shape(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *weight,
                                                   uint32_t stack, uint64_t rows, uint64_t columns)
{
    if (stack && weight->rank == 3 && weight->dims[0] == stack && weight->dims[1] == rows &&
        weight->dims[2] == columns) {
        return EXL2_OK;
    }
    rows *= stack ? stack : 1;
    if (weight->rank != 2 || weight->dims[0] != rows || weight->dims[1] != columns) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: shape [%llu, %llu] of rank %u does not match [%llu, %llu]",
                          t->files.items[weight->file].name, weight->name, (unsigned long long)weight->dims[0],
                          (unsigned long long)weight->dims[1], weight->rank, (unsigned long long)rows,
                          (unsigned long long)columns);
    }
    return EXL2_OK;
}

/* Is any matrix of the folder EXL3? */
EXL2__PRIVATE bool exl2__matrix_any_exl3(const exl2__tensors *t)
{
    static const char part[] = ".trellis";
    for (uint32_t i = 0; i < t->count; i++) {
        size_t length = strlen(t->entries[i].name);
        if (length >= sizeof part && strcmp(t->entries[i].name + length + 1 - sizeof part, part) == 0) {
            return true;
        }
    }
    return false;
}

/* Is it the shape [out, in], rounded up as matrices of EXL3 are, and larger by that? */
static inline bool exl2__matrix_is_rounded(const exl2__tensor *w, uint32_t in, uint32_t out)
{
    return w->rank == 2 && (w->dims[0] > out || w->dims[1] > in) &&
           w->dims[0] == exl2__align_up(out, EXL2__EXL3_BLOCK) && w->dims[1] == exl2__align_up(in, EXL2__EXL3_BLOCK);
}

/* Is it a tensor of a folder of EXL3 that is larger than the matrix by padding? ExLlamaV3 leaves such matrices out of
   quantization. If config.json does not say that it is such a folder, another matrix does. */
static inline bool exl2__matrix_is_padded(const exl2__tensors *t, const exl2__matrix_source *source,
                                          const exl2__matrix_desc *desc)
{
    const exl2__quant *quant = source ? source->quant : NULL;
    return quant && exl2__matrix_is_rounded(desc->data, desc->in, desc->out) &&
           (quant->method == EXL2__QUANT_EXL3 ||
            (quant->method == EXL2__QUANT_NONE && exl2__matrix_any_exl3(t)));
}

/* source: NULL for an embedding. */
EXL2__PRIVATE exl2_result exl2__matrix_find_dense(exl2__ctx *c, const exl2__tensors *t,
                                                  const exl2__matrix_source *source, bool transposed,
                                                  exl2__matrix_desc *desc)
{
    desc->data = exl2__matrix_data(t, desc->name, true);
    if (!desc->data) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s: neither .q_weight, .qweight, .trellis nor .weight is in any .safetensors file",
                          desc->name);
    }
    desc->view = (exl2__matrix_view){ 0, desc->out, desc->out, transposed, 0, desc->out };
    EXL2__TRY(exl2__matrix_check_dense(c, t, desc));
    if (!transposed && exl2__matrix_is_padded(t, source, desc)) { /* cut to the model's size as it is read */
        desc->view.columns = desc->data->dims[1];
        desc->padded = true;
        return EXL2_OK;
    }
    desc->view.columns = transposed ? desc->out : desc->in;
    return exl2__matrix_check_shape(c, t, desc->data, 0, transposed ? desc->in : desc->out,
                                    transposed ? desc->out : desc->in);
}

/* A matrix that is a part of a tensor with several ones. */
EXL2__PRIVATE exl2_result exl2__matrix_find_fused(exl2__ctx *c, const exl2__tensors *t,
                                                  const exl2__matrix_source *source, exl2__matrix_desc *desc)
{
    uint64_t rows = source->view.transposed ? desc->in : source->fused_rows;
    uint64_t columns = source->view.transposed ? source->fused_rows : desc->in;
    desc->data = exl2__matrix_fused(t, source->fused, "weight");
    desc->view = source->view;
    desc->view.columns = columns;
    EXL2__TRY(exl2__matrix_check_dense(c, t, desc));
    EXL2__TRY(exl2__matrix_check_shape(c, t, desc->data, source->stack, rows, columns));
    desc->bias_data = exl2__matrix_fused(t, source->fused, "bias");
    desc->has_bias = desc->bias_data != NULL;
    if (desc->has_bias && source->stack) {
        EXL2__TRY(exl2__matrix_check_float(c, t, desc->bias_data));
        return exl2__matrix_check_shape(c, t, desc->bias_data, 0, source->stack, source->fused_rows);
    }
    return !desc->has_bias ? EXL2_OK
         : exl2__tensor_check_floats(c, t, desc->bias_data->name, (uint32_t)source->fused_rows);
}

/* A matrix of GPTQ or AWQ: "<key>.qweight", or a part of "<fused>.qweight". */
EXL2__PRIVATE exl2_result exl2__matrix_find_affine(exl2__ctx *c, const exl2__tensors *t,
                                                   const exl2__matrix_source *source, bool fused,
                                                   exl2__matrix_desc *desc)
{
#if EXL2__GPTQ
    desc->view = source->view;
    if (!fused) {
        desc->view = (exl2__matrix_view){ 0, desc->out, desc->out, false, 0, desc->out };
    }
    return exl2__affine_find(c, t, source->quant, fused ? source->fused : source->key,
                             fused ? source->fused_rows : desc->out, desc);
#else
    (void)t;
    (void)desc;
    return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: GPTQ and AWQ matrices (qweight) are not supported: "
                      EXL2__GPTQ_ABSENT, fused ? source->fused : source->key);
#endif
}

/* A matrix of EXL3: "<key>.trellis". */
EXL2__PRIVATE exl2_result exl2__matrix_find_exl3(exl2__ctx *c, const exl2__tensors *t, exl2__matrix_desc *desc,
                                                 bool table)
{
#if EXL2__EXL3
    return table ? exl2__exl3_find_table(c, t, desc) : exl2__exl3_find(c, t, desc);
#else
    (void)t;
    (void)table;
    return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: EXL3 matrices (trellis) are not supported: " EXL2__EXL3_ABSENT,
                      desc->name);
#endif
}

/* Fills *desc from headers, and checks them. source->key must outlive *desc. */
EXL2__PRIVATE exl2_result exl2__matrix_find_source(exl2__ctx *c, const exl2__tensors *t,
                                                   const exl2__matrix_source *source, uint32_t in, uint32_t out,
                                                   exl2__matrix_desc *desc)
{
    static const char *const parts[] = { "q_weight", "q_scale", "q_scale_max", "q_groups", "q_invperm" };
    const char *key = source->key;
    *desc = (exl2__matrix_desc){ 0 };
    desc->name = key;
    desc->in = in;
    desc->out = out;
    desc->out_stored = (uint32_t)exl2__align_up(out, 32);
    bool quantized = false, has_fused = source->fused && source->fused[0];
    if (exl2__exl3_exists(t, key)) {
        return exl2__matrix_find_exl3(c, t, desc, false);
    }
    for (uint32_t i = 0; i < EXL2__COUNT(parts); i++) {
        quantized = quantized || exl2__tensors_find_part(t, key, parts[i]);
    }
    if (!quantized && exl2__tensors_find_part(t, key, "qweight")) {
        return exl2__matrix_find_affine(c, t, source, false, desc);
    }
    if (!quantized && has_fused && !exl2__matrix_data(t, key, true)) {
        if (!source->stack && exl2__tensors_find_part(t, source->fused, "qweight")) {
            return exl2__matrix_find_affine(c, t, source, true, desc);
        }
        if (exl2__matrix_fused(t, source->fused, "weight")) {
            return exl2__matrix_find_fused(c, t, source, desc);
        }
    }
    EXL2__TRY(quantized ? exl2__matrix_find_exl2(c, t, desc)
                        : exl2__matrix_find_dense(c, t, source, source->own_transposed, desc));
    desc->bias_data = exl2__tensors_find_part(t, key, "bias");
    desc->has_bias = desc->bias_data != NULL;
    bool longer = desc->padded && desc->has_bias && desc->bias_data->dims[0] != out;
    uint64_t values = longer ? exl2__align_up(out, EXL2__EXL3_BLOCK) : out;
    return desc->has_bias ? exl2__tensor_check_floats(c, t, desc->bias_data->name, (uint32_t)values) : EXL2_OK;
}

/* The same for a matrix with tensors of its own. */
static inline exl2_result exl2__matrix_find(exl2__ctx *c, const exl2__tensors *t, const char *key, uint32_t in,
                                            uint32_t out, exl2__matrix_desc *desc)
{
    exl2__matrix_source source = { .key = key };
    return exl2__matrix_find_source(c, t, &source, in, out, desc);
}

/* The same for the embedding, which is dense or a table of EXL3. desc->out is its number of rows, which may differ from
   the size of the vocabulary. */
EXL2__PRIVATE exl2_result exl2__matrix_find_table(exl2__ctx *c, const exl2__tensors *t, const char *key, uint32_t in,
                                                  uint32_t vocab, exl2__matrix_desc *desc)
{
    const exl2__tensor *weight = exl2__matrix_data(t, key, true);
    if (exl2__exl3_exists(t, key)) {
        *desc = (exl2__matrix_desc){ .name = key, .in = in, .out = vocab };
        return exl2__matrix_find_exl3(c, t, desc, true);
    }
    uint64_t rows = weight && weight->rank == 2 ? weight->dims[0] : vocab;
    if (rows == 0 || rows > INT32_MAX) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.weight has %llu rows for vocabulary %u",
                          t->files.items[weight->file].name, key,
                          (unsigned long long)rows, vocab);
    }
    *desc = (exl2__matrix_desc){ 0 };
    desc->name = key;
    desc->in = in;
    desc->out = (uint32_t)rows;
    desc->out_stored = (uint32_t)exl2__align_up(rows, 32);
    return exl2__matrix_find_dense(c, t, NULL, false, desc);
}

#endif
