/* exl3_matrix.h: matrices and embeddings of EXL3: finds and checks their tensors, reads their scales, signs and bias.
   takes: the tensor table, a layer key, the sizes that config.json gives.
   gives: exl2__exl3_exists, exl2__exl3_find, exl2__exl3_find_table (headers only), exl2__exl3_row_bytes,
          exl2__exl3_codes_bytes, exl2__exl3_read_tables,
          exl2__exl3_read_bias.

   N.trellis I16 [in / 16, out / 16, 16 K], N.suh F16 [in], N.svh F16 [out], or N.su I16 [in / 16], N.sv I16 [out / 16]:
   signs alone. in and out are the model's widths, rounded up to multiples of 128. N.mcg or N.mul1, I32, one element:
   the codebook; neither: 3INST. N.bias, at most out long. An embedding is N.trellis I16 [rows, groups (1 + 16 K)] and
   N.signs F16 [groups, 256]. */
#ifndef EXL2__EXL3_MATRIX_H
#define EXL2__EXL3_MATRIX_H

#include "matrix_desc.h"

/* Does the key have a matrix or an embedding of EXL3? */
static inline bool exl2__exl3_exists(const exl2__tensors *t, const char *key)
{
    return exl2__tensors_find_part(t, key, "trellis") != NULL;
}

/* Bytes of a row in the file: of tiles, or of an embedding. */
static inline uint64_t exl2__exl3_row_bytes(const exl2__matrix_desc *desc)
{
    uint64_t count = exl2__matrix_stored(desc) == EXL2__MATRIX_EXL3 ? desc->out_stored / 16
                                                       : desc->exl3.in_stored / EXL2__EXL3_TABLE_BLOCK;
    return count * desc->exl3.words * sizeof(uint16_t);
}

/* Bytes of desc->codes of a matrix that is dequantized: 128 outputs of all inputs, but at least a row of the file. */
static inline uint64_t exl2__exl3_codes_bytes(const exl2__matrix_desc *desc)
{
    uint64_t block = (uint64_t)desc->exl3.in_stored * EXL2__EXL3_BLOCK * sizeof(float);
    return exl2__max64(exl2__matrix_stored(desc) == EXL2__MATRIX_EXL3 ? block : 0, exl2__exl3_row_bytes(desc));
}

#if EXL2__EXL3

static inline const char *exl2__exl3_file(const exl2__tensors *t, const exl2__tensor *entry)
{
    return t->files.items[entry->file].name;
}

/* Fails unless the tensor has this type and shape [count], or [count, columns] with columns not 0. */
EXL2__PRIVATE exl2_result exl2__exl3_check(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *entry,
                                           exl2__tensor_type type, uint64_t count, uint64_t columns)
{
    uint32_t rank = columns ? 2 : 1;
    bool fits = entry->type == type && entry->rank == rank && entry->dims[0] == count;
    if (!fits || (columns && entry->dims[1] != columns)) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: expected %s [%llu%s], found %s [%llu, %llu] of rank %u",
                          exl2__exl3_file(t, entry), entry->name, exl2__tensor_type_name(type),
                          (unsigned long long)count, columns ? ", 256" : "", exl2__tensor_type_name(entry->type),
                          (unsigned long long)entry->dims[0], (unsigned long long)entry->dims[1], entry->rank);
    }
    return EXL2_OK;
}

/* Finds the scales of a side, or its signs, for `count` inputs or outputs. Scales win over signs. */
EXL2__PRIVATE exl2_result exl2__exl3_find_scales(exl2__ctx *c, const exl2__tensors *t, const char *key,
                                                 const char *scales, const char *signs, uint64_t count,
                                                 const exl2__tensor **out, bool *packed)
{
    const exl2__tensor *whole = exl2__tensors_find_part(t, key, scales), *bits = exl2__tensors_find_part(t, key, signs);
    *out = whole ? whole : bits;
    *packed = !whole;
    if (!*out) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: incomplete EXL3 tensor set, missing %s or %s", key, scales,
                          signs);
    }
    return *packed ? exl2__exl3_check(c, t, bits, EXL2__TENSOR_I16, count / 16, 0)
                   : exl2__exl3_check(c, t, whole, EXL2__TENSOR_F16, count, 0);
}

/* The codebook, which a tensor names that holds its multiplier. */
EXL2__PRIVATE exl2_result exl2__exl3_find_codebook(exl2__ctx *c, const exl2__tensors *t, const char *key,
                                                   exl2__exl3_codebook *out)
{
    const exl2__tensor *mcg = exl2__tensors_find_part(t, key, "mcg"), *mul1 = exl2__tensors_find_part(t, key, "mul1");
    const exl2__tensor *entry = mcg ? mcg : mul1;
    uint32_t wanted = mcg ? EXL2__EXL3_MCG_FACTOR : EXL2__EXL3_MUL1_FACTOR, found = 0;
    *out = mcg ? EXL2__EXL3_MCG : mul1 ? EXL2__EXL3_MUL1 : EXL2__EXL3_3INST;
    if (mcg && mul1) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s has both mcg and mul1, which are two codebooks",
                          exl2__exl3_file(t, mcg), key);
    }
    if (!entry) {
        return EXL2_OK;
    }
    if (entry->type != EXL2__TENSOR_I32 || entry->bytes != sizeof found) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: expected one I32, found %llu bytes of %s",
                          exl2__exl3_file(t, entry), entry->name, (unsigned long long)entry->bytes,
                          exl2__tensor_type_name(entry->type));
    }
    EXL2__TRY(exl2__tensors_read(c, t, entry, 0, &found, sizeof found));
    found = exl2__load32(&found);
    return found == wanted ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: %s: the multiplier 0x%x is not supported, only 0x%x (ExLlamaV3 "
                      "0.0.3 to 0.0.8 wrote others)", exl2__exl3_file(t, entry), entry->name, found, wanted);
}

/* Fills *desc from the headers of the tensors "<key>.*". desc->name, in and out must be set. */
EXL2__PRIVATE exl2_result exl2__exl3_find(exl2__ctx *c, const exl2__tensors *t, exl2__matrix_desc *desc)
{
    const char *key = desc->name;
    exl2__exl3 *e = &desc->exl3;
    const exl2__tensor *trellis = exl2__tensors_find_part(t, key, "trellis");
    const exl2__tensor *scale = exl2__tensors_find_part(t, key, "scale");
    const char *file = exl2__exl3_file(t, trellis);
    uint64_t in = exl2__align_up(desc->in, EXL2__EXL3_BLOCK), out = exl2__align_up(desc->out, EXL2__EXL3_BLOCK);
    if (trellis->type != EXL2__TENSOR_I16 || trellis->rank != 3) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: expected I16 of rank 3, found %s of rank %u", file,
                          trellis->name, exl2__tensor_type_name(trellis->type), trellis->rank);
    }
    if (!exl2__exl3_is_tile(trellis->dims[2])) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: tiles of %llu words are no rate of EXL3 (16 to 128 in steps of "
                          "16, 24, 40, 56)", file, trellis->name, (unsigned long long)trellis->dims[2]);
    }
    if (in == 0 || out == 0 || trellis->dims[0] != in / 16 || trellis->dims[1] != out / 16) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: %llu x %llu tiles of 16 do not fit %u inputs and %u outputs, "
                          "expected %llu x %llu (each rounded up to a multiple of 128)", file, trellis->name,
                          (unsigned long long)trellis->dims[0], (unsigned long long)trellis->dims[1], desc->in,
                          desc->out, (unsigned long long)(in / 16), (unsigned long long)(out / 16));
    }
    if (in > UINT32_MAX || out > UINT32_MAX || in * out > (uint64_t)1 << 40) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: %s: %llu x %llu weights are not supported, at most 2^40", file,
                          trellis->name, (unsigned long long)in, (unsigned long long)out);
    }
    if (scale && scale->bytes == exl2__tensor_type_bytes(scale->type)) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: %s: the scale of a whole matrix (drafts before EXL3 0.0.1) is "
                          "not supported", exl2__exl3_file(t, scale), scale->name);
    }
    EXL2__TRY(exl2__exl3_find_codebook(c, t, key, &e->codebook));
    e->words = (uint32_t)trellis->dims[2];
    if (exl2__exl3_is_half_rate(e->words) && e->codebook != EXL2__EXL3_MUL1) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: tiles of %u words need the codebook mul1", file, trellis->name,
                          e->words);
    }
    EXL2__TRY(exl2__exl3_find_scales(c, t, key, "suh", "su", in, &e->in_scales, &e->in_packed));
    EXL2__TRY(exl2__exl3_find_scales(c, t, key, "svh", "sv", out, &e->out_scales, &e->out_packed));
    desc->kind = EXL2__MATRIX_EXL3;
    desc->data = trellis;
    desc->words = (uint32_t)(in / 16);
    desc->out_stored = (uint32_t)out;
    e->in_stored = (uint32_t)in;
    desc->bias_data = exl2__tensors_find_part(t, key, "bias");
    desc->has_bias = desc->bias_data != NULL;
    const exl2__tensor *bias = desc->bias_data;
    if (bias && (!exl2__tensor_is_float(bias) || bias->rank != 1 || bias->dims[0] > out)) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: expected at most %llu values F16 or F32, found %s [%llu] of "
                          "rank %u", exl2__exl3_file(t, bias), bias->name, (unsigned long long)out,
                          exl2__tensor_type_name(bias->type), (unsigned long long)bias->dims[0], bias->rank);
    }
    exl2__tensors_find_part(t, key, "weight"); /* so that a plain copy counts as used; see exl2__exl3_read_tables */
    return EXL2_OK;
}

/* The same for an embedding with desc->out rows or more. */
EXL2__PRIVATE exl2_result exl2__exl3_find_table(exl2__ctx *c, const exl2__tensors *t, exl2__matrix_desc *desc)
{
    const exl2__tensor *trellis = exl2__tensors_find_part(t, desc->name, "trellis");
    const exl2__tensor *signs = exl2__tensors_find_part(t, desc->name, "signs");
    const char *file = exl2__exl3_file(t, trellis);
    uint64_t groups = exl2__exl3_groups(desc->in), width = trellis->dims[1], ring = groups ? width / groups : 0;
    if (trellis->type != EXL2__TENSOR_I16 || trellis->rank != 2 || !signs) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s: %s: an embedding is I16 of rank 2 with %s.signs, found %s of rank %u%s", file,
                          trellis->name, desc->name, exl2__tensor_type_name(trellis->type), trellis->rank,
                          signs ? "" : " without signs");
    }
    if (groups == 0 || width % groups != 0 || ring % 16 != 1 || ring < 17 || ring > 129) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: rows of %llu words are not %llu groups of 1 + 16 K words, K "
                          "from 1 to 8", file, trellis->name, (unsigned long long)width, (unsigned long long)groups);
    }
    if (trellis->dims[0] < desc->out || trellis->dims[0] > INT32_MAX) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s has %llu rows for vocabulary %u", file, trellis->name,
                          (unsigned long long)trellis->dims[0], desc->out);
    }
    EXL2__TRY(exl2__exl3_check(c, t, signs, EXL2__TENSOR_F16, groups, EXL2__EXL3_TABLE_BLOCK));
    desc->kind = EXL2__MATRIX_EXL3_TABLE;
    desc->data = trellis;
    desc->out = (uint32_t)trellis->dims[0];
    desc->out_stored = (uint32_t)exl2__align_up(desc->out, 32);
    desc->words = desc->out;
    desc->exl3 = (exl2__exl3){ .codebook = EXL2__EXL3_MUL1, .words = (uint32_t)ring,
                               .in_stored = (uint32_t)groups * EXL2__EXL3_TABLE_BLOCK, .in_scales = signs };
    exl2__tensors_find_part(t, desc->name, "weight");
    return EXL2_OK;
}

/* ---- tables ---- */

/* Scales [count] as f16. */
EXL2__PRIVATE exl2_result exl2__exl3_read_scales(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *entry,
                                                 bool packed, uint32_t count, uint16_t *out)
{
    uint16_t *raw = packed ? out + (count - count / 16) : out; /* signs: read to the end, so that none is overwritten */
    EXL2__TRY(exl2__tensors_read(c, t, entry, 0, raw, entry->bytes));
    for (uint32_t i = 0; packed && i < count; i += 16) {
        uint32_t bits = exl2__load16(&raw[i / 16]);
        for (uint32_t k = 0; k < 16; k++) {
            out[i + k] = bits >> k & 1 ? 0xBC00 : 0x3C00; /* -1, 1 */
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        out[i] = exl2__load16(&out[i]);
        if ((out[i] & 0x7C00) == 0x7C00) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: value %u is not finite", exl2__exl3_file(t, entry),
                              entry->name, i);
        }
    }
    return EXL2_OK;
}

/* in_scales [in_stored], out_scales [out_stored]; of a table in_scales has the signs, and out_scales is not used. */
EXL2__PRIVATE exl2_result exl2__exl3_read_tables(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                 uint16_t *in_scales, uint16_t *out_scales)
{
    const exl2__exl3 *e = &desc->exl3;
    const exl2__tensor *copy = exl2__tensors_find_part(t, desc->name, "weight");
    if (copy) {
        exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_COPY_IGNORED, "%s: %s is not used, as there is %s",
                  exl2__exl3_file(t, copy), copy->name, desc->data->name);
    }
    EXL2__TRY(exl2__exl3_read_scales(c, t, e->in_scales, e->in_packed, e->in_stored, in_scales));
    return exl2__matrix_stored(desc) == EXL2__MATRIX_EXL3_TABLE ? EXL2_OK
         : exl2__exl3_read_scales(c, t, e->out_scales, e->out_packed, desc->out_stored, out_scales);
}

/* bias [out]. The file's may be shorter, or longer by the padding. */
EXL2__PRIVATE exl2_result exl2__exl3_read_bias(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                               float *bias)
{
    float padding[EXL2__EXL3_BLOCK];
    uint32_t all = (uint32_t)desc->bias_data->dims[0], count = exl2__min32(all, desc->out);
    memset(bias, 0, desc->out * sizeof *bias);
    EXL2__TRY(exl2__tensor_floats_range(c, t, desc->bias_data, 0, count, bias));
    return exl2__tensor_floats_range(c, t, desc->bias_data, count, all - count, padding); /* checks them */
}

#endif
#endif
