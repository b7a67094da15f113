/* affine_matrix.h: matrices of GPTQ (2, 3, 4 and 8 bits) and AWQ (gemm, 4 bits): finds and checks their tensors, reads
   scales and zeros, and reads their codes as the bit streams of EXL2, so that a backend sees one order of codes.
   takes: the tensor table, a layer key, the settings of config.json.
   gives: exl2__affine_find (headers only), exl2__affine_groups, exl2__affine_read_order, exl2__affine_read_group,
          exl2__affine_check_zeros, exl2__affine_zeros_are_v2, exl2__affine_read_words, exl2__affine_read_stored,
          exl2__affine_unit, exl2__affine_raw_bytes.

   GPTQ: qweight [in * bits / 32, out]: each column is one stream of codes, the first row in the lowest bits, as in
         EXL2. qzeros [groups, out * bits / 32]: the same along the columns. scales [groups, out]. g_idx [in], which may
         be absent: the group of each row. The packed order is that of the rows sorted by group; rows of a group keep
         their order. zero = stored value + 1, which may be 2^bits; checkpoint_format gptq_v2: zero = stored value.
   AWQ:  qweight [in, out / 8]: bits 4i .. 4i + 3 of a word are column 8n + (0 2 4 6 1 3 5 7)[i]. qzeros [groups,
         out / 8]: likewise, zero = stored value. scales [groups, out]. */
#ifndef EXL2__AFFINE_MATRIX_H
#define EXL2__AFFINE_MATRIX_H

#include "matrix_desc.h"

#if EXL2__GPTQ

/* Word rows that hold whole codes: slices begin and end between them. */
static inline uint32_t exl2__affine_unit(const exl2__matrix_desc *desc)
{
    return desc->affine.bits == 3 ? 3 : 1;
}

/* Bytes of affine.raw: g_idx as I64, one row of scales as F32, one row of zeros, or the words of a unit. */
static inline uint64_t exl2__affine_raw_bytes(const exl2__matrix_desc *desc)
{
    uint64_t words = exl2__max32(desc->affine.columns, exl2__affine_unit(desc) * desc->out) + 1; /* see _read_awq */
    return exl2__max64((uint64_t)desc->in * sizeof(uint64_t), words * sizeof(uint32_t));
}

/* ---- headers ---- */

/* Finds "<key>.<part>" of rank 2 and one of two types. */
EXL2__PRIVATE exl2_result exl2__affine_part(exl2__ctx *c, const exl2__tensors *t, const char *key, const char *part,
                                            bool floats, const exl2__tensor **out)
{
    const exl2__tensor *entry = *out = exl2__tensors_find_part(t, key, part);
    if (!entry) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: incomplete GPTQ or AWQ tensor set, missing %s", key, part);
    }
    bool typed = floats ? exl2__tensor_is_float(entry) : entry->type == EXL2__TENSOR_I32;
    if (!typed || entry->rank != 2) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.%s: expected %s of rank 2, found %s of rank %u",
                          t->files.items[entry->file].name, key, part, floats ? "F16, BF16 or F32" : "I32",
                          exl2__tensor_type_name(entry->type), entry->rank);
    }
    return EXL2_OK;
}

/* Decides by the shape of qweight between GPTQ, with its bits, and AWQ, and compares that with config.json. */
EXL2__PRIVATE exl2_result exl2__affine_check_shape(exl2__ctx *c, const exl2__tensors *t, const exl2__quant *quant,
                                                   const char *key, exl2__matrix_desc *desc)
{
    const char *file = t->files.items[desc->data->file].name;
    uint64_t rows = desc->data->dims[0], width = desc->data->dims[1], in = desc->in, columns = desc->affine.columns;
    uint32_t bits = (uint32_t)(rows <= in ? rows * 32 / in : 0);
    bool gptq = width == columns && rows < in && rows * 32 % in == 0, awq = rows == in && width * 8 == columns;
    desc->affine.awq = quant->method == EXL2__QUANT_AWQ;
    desc->affine.bits = desc->affine.awq ? 4 : bits;
    if (desc->affine.awq ? gptq : awq) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.qweight [%llu, %llu] has the shape of %s, but %s", file, key,
                          (unsigned long long)rows, (unsigned long long)width, desc->affine.awq ? "GPTQ" : "AWQ",
                          desc->affine.awq ? "quant_method is awq" : "quant_method is not awq");
    }
    if (!gptq && !awq && rows == columns && width * 8 == in) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED,
                          "%s: %s.qweight [%llu, %llu] has the shape of AWQ's version gemv, which is not supported",
                          file, key, (unsigned long long)rows, (unsigned long long)width);
    }
    if (!gptq && !awq) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s: %s.qweight [%llu, %llu] does not fit %u inputs and %u outputs, expected [%s, %u]", file,
                          key, (unsigned long long)rows, (unsigned long long)width, desc->in, desc->affine.columns,
                          desc->affine.awq ? "inputs" : "inputs * bits / 32",
                          desc->affine.awq ? desc->affine.columns / 8 : desc->affine.columns);
    }
    if (gptq && bits != 2 && bits != 3 && bits != 4 && bits != 8) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: %s: GPTQ with %u bits is not supported, only 2, 3, 4 and 8",
                          file, key, bits);
    }
    if (gptq && quant->bits && quant->bits != bits) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.qweight has codes of %u bits, but bits is %u in the config file",
                          file, key, bits, quant->bits);
    }
    return EXL2_OK;
}

/* Checks qzeros, scales and g_idx, and sets the groups. */
EXL2__PRIVATE exl2_result exl2__affine_check_groups(exl2__ctx *c, const exl2__tensors *t, const exl2__quant *quant,
                                                    const char *key, exl2__matrix_desc *desc)
{
    exl2__affine *a = &desc->affine;
    const char *file = t->files.items[desc->data->file].name;
    uint64_t count = a->scales->dims[0], bits = (uint64_t)a->columns * a->bits, size = 1;
    const exl2__tensor *index = a->group_index;
    if (bits % 32 != 0 || a->zeros->dims[1] != bits / 32 || a->zeros->dims[0] != count || count == 0 ||
        a->scales->dims[1] != a->columns) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s: %s: qzeros [%llu, %llu] and scales [%llu, %llu] do not fit %u columns of %u bits", file,
                          key, (unsigned long long)a->zeros->dims[0], (unsigned long long)a->zeros->dims[1],
                          (unsigned long long)count, (unsigned long long)a->scales->dims[1], a->columns, a->bits);
    }
    while (size * count < desc->in) {
        size *= 2;
    }
    size = quant->group ? exl2__min32(quant->group, desc->in) : count == 1 ? desc->in : size;
    if (exl2__div_up(desc->in, size) != count) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: %llu groups of %llu rows do not make %u inputs", file, key,
                          (unsigned long long)count, (unsigned long long)size, desc->in);
    }
    if (size % 32 != 0) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED,
                          "%s: %s: groups of %llu rows are not supported, only multiples of 32", file, key,
                          (unsigned long long)size);
    }
    if (index && ((index->type != EXL2__TENSOR_I32 && index->type != EXL2__TENSOR_I64) || index->rank != 1 ||
                  index->dims[0] != desc->in)) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.g_idx: expected I32 or I64 [%u], found %s [%llu] of rank %u",
                          file, key, desc->in, exl2__tensor_type_name(index->type), (unsigned long long)index->dims[0],
                          index->rank);
    }
    a->group_rows = (uint32_t)size;
    desc->group_count = (uint32_t)count;
    desc->words = desc->in / 32 * a->bits;
    return EXL2_OK;
}

/* Many exporters write biases of zeros: such a bias is dropped. */
EXL2__PRIVATE exl2_result exl2__affine_find_bias(exl2__ctx *c, const exl2__tensors *t, const char *key,
                                                 exl2__matrix_desc *desc)
{
    float values[512];
    desc->bias_data = exl2__tensors_find_part(t, key, "bias");
    if (!desc->bias_data) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__tensor_check_floats(c, t, desc->bias_data->name, desc->affine.columns));
    for (uint32_t i = 0, n; i < desc->affine.columns && !desc->has_bias; i += n) {
        n = exl2__min32(EXL2__COUNT(values), desc->affine.columns - i);
        EXL2__TRY(exl2__tensor_floats_range(c, t, desc->bias_data, i, n, values));
        for (uint32_t k = 0; k < n; k++) {
            desc->has_bias = desc->has_bias || (exl2__float_bits(values[k]) & 0x7FFFFFFF) != 0;
        }
    }
    return EXL2_OK;
}

/* Fills *desc from the headers of the tensors "<key>.*" with `columns` outputs, of which desc->view says which are
   this matrix. desc->name, in and out must be set. */
EXL2__PRIVATE exl2_result exl2__affine_find(exl2__ctx *c, const exl2__tensors *t, const exl2__quant *quant,
                                            const char *key, uint64_t columns, exl2__matrix_desc *desc)
{
    static const exl2__quant unknown = { EXL2__QUANT_NONE, 0, 0, false, false, false };
    exl2__affine *a = &desc->affine;
    const exl2__matrix_view *v = &desc->view;
    quant = quant ? quant : &unknown;
    desc->kind = EXL2__MATRIX_AFFINE;
    EXL2__TRY(exl2__affine_part(c, t, key, "qweight", false, &desc->data));
    EXL2__TRY(exl2__affine_part(c, t, key, "qzeros", false, &a->zeros));
    EXL2__TRY(exl2__affine_part(c, t, key, "scales", true, &a->scales));
    const char *file = t->files.items[desc->data->file].name;
    if (desc->in == 0 || desc->in % 32 != 0 || desc->in > EXL2__MATRIX_IN_MAX || columns == 0 || columns > INT32_MAX) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED,
                          "%s: %s: %u inputs and %llu outputs are not supported in GPTQ and AWQ, inputs must be a "
                          "multiple of 32 from 32 to %u", file, key, desc->in, (unsigned long long)columns,
                          EXL2__MATRIX_IN_MAX / 32 * 32);
    }
    a->columns = (uint32_t)columns;
    EXL2__TRY(exl2__affine_check_shape(c, t, quant, key, desc));
    a->group_index = exl2__tensors_find_part(t, key, "g_idx");
    if (a->awq && (a->group_index || v->first % 8 != 0 || v->run % 8 != 0 || v->step % 8 != 0)) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: %s: %s", file, key,
                          a->group_index ? "AWQ matrices with g_idx are not supported"
                                         : "the parts of this AWQ matrix are not multiples of 8 columns");
    }
    EXL2__TRY(exl2__affine_check_groups(c, t, quant, key, desc));
    a->zero_add = a->awq || quant->v2 ? 0 : 1;
    a->symmetric = quant->symmetric && !a->awq;
    return exl2__affine_find_bias(c, t, key, desc);
}

/* ---- scales, zeros, order ---- */

/* groups [group_count]: all have the same bits and, but for the last one, the same number of rows. */
EXL2__PRIVATE void exl2__affine_groups(const exl2__matrix_desc *desc, exl2__group *groups)
{
    for (uint32_t g = 0, row = 0; g < desc->group_count; g++, row += desc->affine.group_rows) {
        uint32_t rows = exl2__min32(desc->affine.group_rows, desc->in - row);
        groups[g] = (exl2__group){ row, rows, row / 32 * desc->affine.bits, desc->affine.bits };
    }
}

/* Reads g_idx and computes the packed row of each input row: rows are sorted by group. next: memory [group_count]. */
EXL2__PRIVATE exl2_result exl2__affine_read_order(exl2__ctx *c, const exl2__tensors *t, exl2__matrix_desc *desc,
                                                  const exl2__group *groups, uint32_t *next, uint32_t *inverse_perm)
{
    const exl2__affine *a = &desc->affine;
    const exl2__tensor *index = a->group_index;
    bool ordered = false; /* some row is in a group other than the first one */
    for (uint32_t k = 0; k < desc->in; k++) {
        inverse_perm[k] = k;
    }
    desc->affine.sorted = false;
    if (!index) {
        return EXL2_OK;
    }
    const char *file = t->files.items[index->file].name;
    bool wide = index->type == EXL2__TENSOR_I64;
    const uint8_t *raw = (const uint8_t *)a->raw;
    EXL2__TRY(exl2__tensors_read(c, t, index, 0, a->raw, index->bytes));
    memset(next, 0, desc->group_count * sizeof *next);
    for (uint32_t k = 0; k < desc->in; k++) {
        int64_t g = wide ? (int64_t)exl2__load64(raw + 8 * (size_t)k) : (int32_t)exl2__load32(raw + 4 * (size_t)k);
        if (g < 0 || g >= (int64_t)desc->group_count) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.g_idx: the group of row %u is %lld, expected 0 to %u", file,
                              desc->name, k, (long long)g, desc->group_count - 1);
        }
        ordered = ordered || g > 0;
        inverse_perm[k] = groups[g].row + next[g];
        if (++next[g] > groups[g].rows && ordered) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.g_idx: group %lld has more than %u rows, but all groups must "
                              "have the same number", file, desc->name, (long long)g, groups[g].rows);
        }
    }
    for (uint32_t k = 0; k < desc->in; k++) {
        inverse_perm[k] = ordered ? inverse_perm[k] : k; /* all zeros: the rows are in the order of their groups */
        desc->affine.sorted = desc->affine.sorted || inverse_perm[k] != k;
    }
    for (uint32_t g = 0; ordered && g < desc->group_count; g++) {
        if (next[g] != groups[g].rows) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s.g_idx: group %u has %u rows, expected %u; all groups must "
                              "have the same number", file, desc->name, g, next[g], groups[g].rows);
        }
    }
    return EXL2_OK;
}

/* Reads the scales of group g. Those of other types than F16 are rounded to F16. */
EXL2__PRIVATE exl2_result exl2__affine_read_scales(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                   uint32_t g, uint16_t *scales)
{
    const exl2__affine *a = &desc->affine;
    uint32_t type = a->scales->type, size = exl2__tensor_type_bytes(type);
    uint64_t row_bytes = (uint64_t)a->columns * size;
    bool f16 = type == EXL2__TENSOR_F16;
    EXL2__TRY(exl2__tensors_read(c, t, a->scales, g * row_bytes, a->raw, row_bytes));
    for (uint32_t n = 0; n < desc->out;) {
        uint64_t column = exl2__matrix_view_at(&desc->view, n);
        for (uint32_t end = n + exl2__min32(desc->view.run, desc->out - n); n < end; n++, column++) {
            const uint8_t *at = (const uint8_t *)a->raw + column * size;
            uint16_t half = f16 ? exl2__load16(at) : exl2__f32_to_f16(exl2__tensor_float(type, at));
            if ((half & 0x7C00) == 0x7C00) {
                return exl2__fail(c, EXL2_ERR_FORMAT,
                                  "%s: %s: the scale of group %u and column %llu is %s, expected a finite F16",
                                  t->files.items[a->scales->file].name, desc->name, g, (unsigned long long)column,
                                  half & 0x3FF ? "NaN" : "infinite");
            }
            scales[n] = half;
        }
    }
    return EXL2_OK;
}

/* The zero of a symmetric matrix under the other checkpoint_format. */
static inline uint32_t exl2__affine_other_zero(const exl2__affine *a)
{
    uint32_t half = 1u << (a->bits - 1);
    return a->zero_add ? half + 1 : half - 1;
}

/* Reads the zeros of group g. Returns through *others the number of zeros that a symmetric matrix would have in the
   other version of GPTQ. */
EXL2__PRIVATE exl2_result exl2__affine_read_zeros(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                  uint32_t g, uint16_t *zeros, uint64_t *others)
{
    static const uint8_t awq_nibble[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }; /* of column n % 8 */
    const exl2__affine *a = &desc->affine;
    uint64_t row_bytes = (uint64_t)a->columns * a->bits / 8;
    uint32_t mask = (1u << a->bits) - 1, other = exl2__affine_other_zero(a);
    EXL2__TRY(exl2__tensors_read(c, t, a->zeros, g * row_bytes, a->raw, row_bytes));
    for (uint32_t n = 0; n < desc->out;) {
        uint64_t column = exl2__matrix_view_at(&desc->view, n);
        for (uint32_t end = n + exl2__min32(desc->view.run, desc->out - n); n < end; n++, column++) {
            uint64_t bit = a->awq ? column / 8 * 32 + awq_nibble[column % 8] * 4u : column * a->bits;
            uint32_t shift = (uint32_t)(bit % 32);
            uint64_t word = exl2__load32(&a->raw[bit / 32]);
            word |= shift + a->bits > 32 ? (uint64_t)exl2__load32(&a->raw[bit / 32 + 1]) << 32 : 0;
            zeros[n] = (uint16_t)(((uint32_t)(word >> shift) & mask) + a->zero_add);
            *others += zeros[n] == other;
        }
    }
    return EXL2_OK;
}

/* Fills the rows of group g in scales and zeros [group_count, out_stored]. affine.raw must be set. */
EXL2__PRIVATE exl2_result exl2__affine_read_group(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                  uint32_t g, uint16_t *scales, uint16_t *zeros, uint64_t *others)
{
    size_t at = (size_t)g * desc->out_stored, padding = (desc->out_stored - desc->out) * sizeof(uint16_t);
    EXL2__TRY(exl2__affine_read_scales(c, t, desc, g, scales + at));
    EXL2__TRY(exl2__affine_read_zeros(c, t, desc, g, zeros + at, others));
    memset(scales + at + desc->out, 0, padding);
    memset(zeros + at + desc->out, 0, padding);
    return EXL2_OK;
}

/* *is stays true if all stored zeros of the tensor are 2^(bits-1). */
EXL2__PRIVATE exl2_result exl2__affine_zeros_are_v2(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                    bool *is)
{
    uint32_t words[3 * 256], wanted[3] = { 0 }, bits = desc->affine.bits; /* of any width, 3 words hold whole codes */
    const exl2__tensor *zeros = desc->affine.zeros;
    for (uint32_t bit = bits - 1; bit < 96; bit += bits) {
        wanted[bit / 32] |= 1u << bit % 32;
    }
    for (uint64_t at = 0, bytes; *is && at < zeros->bytes; at += bytes) {
        bytes = exl2__min64(zeros->bytes - at, sizeof words);
        EXL2__TRY(exl2__tensors_read(c, t, zeros, at, words, bytes));
        for (uint32_t i = 0; i < bytes / sizeof *words; i++) {
            *is = *is && exl2__load32(&words[i]) == wanted[i % 3];
        }
    }
    return EXL2_OK;
}

/* others: the sum of exl2__affine_read_zeros over all groups. */
EXL2__PRIVATE exl2_result exl2__affine_check_zeros(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                   uint64_t others)
{
    if (desc->affine.symmetric && others == (uint64_t)desc->group_count * desc->out) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s: %s: all zeros of this symmetric matrix are %u, which is right only with "
                          "checkpoint_format %s", t->files.items[desc->affine.zeros->file].name, desc->name,
                          exl2__affine_other_zero(&desc->affine), desc->affine.zero_add ? "gptq_v2" : "gptq");
    }
    return EXL2_OK;
}

/* ---- codes ---- */

/* Reads the matrix's columns of `count` rows of qweight to out [count, stride]; a row of the file holds a word for each
   `per` columns. */
EXL2__PRIVATE exl2_result exl2__affine_read_rows(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                 uint32_t row, uint32_t count, uint32_t per, uint32_t *out,
                                                 size_t stride)
{
    const exl2__matrix_view *v = &desc->view;
    uint64_t width = desc->data->dims[1];
    if (desc->out / per == width && stride == width) {
        return exl2__tensors_read(c, t, desc->data, row * width * 4, out, count * width * 4);
    }
    for (uint32_t i = 0; i < count; i++, out += stride) {
        for (uint32_t n = 0; n < desc->out; n += v->run) {
            uint64_t at = (row + i) * width + exl2__matrix_view_at(v, n) / per;
            uint32_t words = exl2__min32(v->run, desc->out - n) / per;
            EXL2__TRY(exl2__tensors_read(c, t, desc->data, at * 4, out + n / per, (uint64_t)words * 4));
        }
    }
    return EXL2_OK;
}

/* Adds code `from` of the words `raw` [.., count] to the zeroed words `out` [.., stride] as code `to`. */
EXL2__PRIVATE void exl2__affine_move_code(uint32_t bits, uint32_t count, const uint32_t *raw, uint32_t from,
                                          uint32_t *out, size_t stride, uint32_t to)
{
    uint32_t take = from * bits % 32, put = to * bits % 32, mask = (1u << bits) - 1;
    const uint32_t *low = raw + (size_t)(from * bits / 32) * count, *high = take + bits > 32 ? low + count : NULL;
    uint32_t *first = out + (size_t)(to * bits / 32) * stride, *second = put + bits > 32 ? first + stride : NULL;
    if (!high && !second) {
        for (uint32_t n = 0; n < count; n++) {
            first[n] |= (low[n] >> take & mask) << put;
        }
        return;
    }
    for (uint32_t n = 0; n < count; n++) {
        uint32_t code = (low[n] >> take | (high ? high[n] << (32 - take) : 0)) & mask;
        first[n] |= code << put;
        if (second) {
            second[n] |= code >> (32 - put);
        }
    }
}

/* Word rows [row, row + rows) in packed order. Each word of the file that holds a code of them is read once. */
EXL2__PRIVATE exl2_result exl2__affine_read_sorted(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                   uint32_t row, uint32_t rows, uint32_t *out)
{
    const exl2__affine *a = &desc->affine;
    uint32_t unit = exl2__affine_unit(desc), in_unit = unit * 32 / a->bits;
    uint32_t begin = row * 32 / a->bits, end = (row + rows) * 32 / a->bits; /* packed rows */
    memset(out, 0, (size_t)rows * desc->out_stored * sizeof *out);
    for (uint32_t k = 0; k < desc->in; k += in_unit) {
        bool read = false;
        for (uint32_t i = 0; i < in_unit; i++) {
            uint32_t to = desc->inverse_perm[k + i];
            if (to < begin || to >= end) {
                continue;
            }
            if (!read) {
                EXL2__TRY(exl2__affine_read_rows(c, t, desc, k / in_unit * unit, unit, 1, a->raw, desc->out));
                read = true;
            }
            exl2__affine_move_code(a->bits, desc->out, a->raw, i, out, desc->out_stored, to - begin);
        }
    }
    return EXL2_OK;
}

/* Adds the next rows of an AWQ file to the model's id. Here, as backends read them in two orders. */
static inline void exl2__affine_add_content(const exl2__ctx *c, const exl2__matrix_desc *desc, uint32_t count,
                                            const uint32_t *words, size_t stride)
{
    const exl2__affine *a = &desc->affine;
    for (uint32_t i = 0; a->content && i < count; i++, words += stride) {
        exl2__hash_sums_add(c->cpu_path, a->content, words, desc->out / 8 * sizeof *words);
    }
}

/* Word rows [row, row + rows) of an AWQ matrix as the file stores them: each is 8 rows [out_stored / 8]. */
EXL2__PRIVATE exl2_result exl2__affine_read_stored(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                   uint32_t row, uint32_t rows, uint32_t *out)
{
    uint32_t width = desc->out / 8, stride = desc->out_stored / 8;
    EXL2__TRY(exl2__affine_read_rows(c, t, desc, row * 8, rows * 8, 8, out, stride));
    exl2__affine_add_content(c, desc, rows * 8, out, stride);
    for (uint32_t i = 0; i < rows * 8; i++) {
        memset(out + (size_t)i * stride + width, 0, (stride - width) * sizeof *out);
    }
    return EXL2_OK;
}

/* Exchanges the codes of *b in `mask` for those of *a that lie `shift` bits higher. */
static inline void exl2__affine_swap(uint64_t *a, uint64_t *b, uint32_t shift, uint64_t mask)
{
    uint64_t changed = (*a >> shift ^ *b) & mask;
    *b ^= changed;
    *a ^= changed << shift;
}

/* Transposes two blocks of 8 x 8 codes of 4 bits, in the lower and the upper halves of w: code i of word r becomes code
   r of word i. */
static inline void exl2__affine_transpose(uint64_t w[8])
{
#define S(a, b, shift, mask) exl2__affine_swap(&w[a], &w[b], shift, mask)
    uint64_t two = 0x0000FFFF0000FFFF, four = 0x00FF00FF00FF00FF, eight = 0x0F0F0F0F0F0F0F0F;
    S(0, 4, 16, two), S(1, 5, 16, two), S(2, 6, 16, two), S(3, 7, 16, two);
    S(0, 2, 8, four), S(1, 3, 8, four), S(4, 6, 8, four), S(5, 7, 8, four);
    S(0, 1, 4, eight), S(2, 3, 4, eight), S(4, 5, 4, eight), S(6, 7, 4, eight);
#undef S
}

/* Word rows [row, row + rows) of an AWQ matrix: 8 rows of the file make one of them. */
EXL2__PRIVATE exl2_result exl2__affine_read_awq(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                uint32_t row, uint32_t rows, uint32_t *out)
{
    uint32_t width = desc->out / 8, *raw = desc->affine.raw;
    for (uint32_t r = 0; r < rows; r++, out += desc->out_stored) {
        EXL2__TRY(exl2__affine_read_rows(c, t, desc, (row + r) * 8, 8, 8, raw, width));
        exl2__affine_add_content(c, desc, 8, raw, width);
        for (uint32_t n = 0; n < width; n += 2) { /* an odd width: the second block ends in the padding */
            uint64_t w[8];
            for (uint32_t k = 0; k < 8; k++) {
                w[k] = exl2__load64(raw + (size_t)k * width + n);
            }
            exl2__affine_transpose(w);
            for (uint32_t k = 0; k < 4; k++) { /* word k is column 2 k, word k + 4 the next one */
                exl2__store64(out + 8 * (size_t)n + 2 * k, (uint32_t)w[k] | w[k + 4] << 32);
                exl2__store64(out + 8 * (size_t)n + 2 * k + 8, w[k] >> 32 | w[k + 4] >> 32 << 32);
            }
        }
        memset(out + desc->out, 0, (desc->out_stored - desc->out) * sizeof *out);
    }
    return EXL2_OK;
}

/* Reads word rows [row, row + rows) of the codes, in packed order, to out [rows, out_stored]; both are multiples of
   exl2__affine_unit. affine.raw, affine.sorted and inverse_perm must be set. */
EXL2__PRIVATE exl2_result exl2__affine_read_words(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                  uint32_t row, uint32_t rows, uint32_t *out)
{
    if (desc->affine.awq) {
        return exl2__affine_read_awq(c, t, desc, row, rows, out);
    }
    if (desc->affine.sorted) {
        return exl2__affine_read_sorted(c, t, desc, row, rows, out);
    }
    EXL2__TRY(exl2__affine_read_rows(c, t, desc, row, rows, 1, out, desc->out_stored));
    for (uint32_t r = 0; r < rows; r++) {
        memset(out + (size_t)r * desc->out_stored + desc->out, 0, (desc->out_stored - desc->out) * sizeof *out);
    }
    return EXL2_OK;
}

#endif
#endif
