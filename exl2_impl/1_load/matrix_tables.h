/* matrix_tables.h: reads and checks everything of a linear layer but its weights: groups, scales, permutation, bias.
   takes: a matrix that exl2__matrix_find has described.
   gives: exl2__matrix_groups_read; exl2__matrix_tables_begin and exl2__matrix_tables_slice, which work in slices;
          exl2__matrix_tables_open, which reads all at once.
   owns:  the memory of an exl2__matrix_tables, until exl2__matrix_tables_close. */
#ifndef EXL2__MATRIX_TABLES_H
#define EXL2__MATRIX_TABLES_H

#include "matrix_find.h"

#ifndef EXL2__MATRIX_SCALES_READ
#define EXL2__MATRIX_SCALES_READ (32u << 10) /* bytes of q_scale in each read, unless one group has more */
#endif

typedef struct exl2__matrix_tables {
    exl2__arena memory;
    exl2__group *groups;    /* [group_count] */
    uint32_t *scale_codes;  /* [group_count, out_stored / 8] */
    uint16_t *scale_max;    /* [group_count] */
    uint16_t *scales, *zeros; /* [group_count, out_stored] */
    uint32_t *inverse_perm; /* [in] */
    float *bias;            /* [out] */
    uint32_t *raw;          /* [group_count] q_groups as stored: bits | word << 16; affine: rows found of each group */
    uint32_t *affine_raw;   /* exl2__affine.raw */
    uint32_t *order, *codes; /* dequantized: see exl2__matrix_desc */
    uint16_t *in_scales, *out_scales; /* EXL3: see exl2__matrix_desc */
    uint32_t *seen;         /* [in / 32 + 1] one bit per packed row: set if inverse_perm contains the row */
    uint32_t next_group;    /* the first group whose scales have not been read */
    uint64_t others;        /* affine: see exl2__affine_read_zeros */
} exl2__matrix_tables;

static inline void exl2__matrix_tables_close(exl2__ctx *c, exl2__matrix_tables *tables)
{
    exl2__arena_close(c, &tables->memory);
    *tables = (exl2__matrix_tables){ 0 };
}

/* Bytes of `codes`: some columns of all rows, or all columns of the three rows that 3 bits may need together. */
static inline uint64_t exl2__matrix_codes_bytes(const exl2__matrix_desc *desc)
{
    if (exl2__matrix_is_exl3(exl2__matrix_stored(desc))) {
        return exl2__exl3_codes_bytes(desc);
    }
    uint64_t words = (uint64_t)desc->words * EXL2__MATRIX_COLUMNS;
    return exl2__max64(words, 3 * (uint64_t)desc->out_stored) * sizeof(uint32_t);
}

/* Allocates all tables in the arena tables->memory; with a dry arena this only measures. */
static inline void exl2__matrix_tables_layout(const exl2__matrix_desc *desc, exl2__matrix_tables *tables)
{
    exl2__arena *a = &tables->memory;
    uint64_t groups = desc->group_count, in = desc->in;
    exl2__matrix_kind stored = exl2__matrix_stored(desc);
    if (stored == EXL2__MATRIX_EXL2) {
        tables->groups = (exl2__group *)exl2__arena_alloc(a, groups * sizeof(exl2__group));
        tables->scale_codes = (uint32_t *)exl2__arena_alloc(a, groups * (desc->out_stored / 8) * sizeof(uint32_t));
        tables->scale_max = (uint16_t *)exl2__arena_alloc(a, groups * sizeof(uint16_t));
        tables->inverse_perm = (uint32_t *)exl2__arena_alloc(a, in * sizeof(uint32_t));
        tables->raw = (uint32_t *)exl2__arena_alloc(a, groups * sizeof(uint32_t));
        tables->seen = (uint32_t *)exl2__arena_alloc_zeroed(a, (in / 32 + 1) * sizeof(uint32_t));
    }
#if EXL2__GPTQ
    if (stored == EXL2__MATRIX_AFFINE) {
        tables->groups = (exl2__group *)exl2__arena_alloc(a, groups * sizeof(exl2__group));
        tables->scales = (uint16_t *)exl2__arena_alloc(a, groups * desc->out_stored * sizeof(uint16_t));
        tables->zeros = (uint16_t *)exl2__arena_alloc(a, groups * desc->out_stored * sizeof(uint16_t));
        tables->inverse_perm = (uint32_t *)exl2__arena_alloc(a, in * sizeof(uint32_t));
        tables->raw = (uint32_t *)exl2__arena_alloc(a, groups * sizeof(uint32_t));
        tables->affine_raw = (uint32_t *)exl2__arena_alloc(a, exl2__affine_raw_bytes(desc));
    }
#endif
    if (exl2__matrix_is_exl3(stored)) {
        tables->in_scales = (uint16_t *)exl2__arena_alloc(a, desc->exl3.in_stored * sizeof(uint16_t));
        tables->out_scales = (uint16_t *)exl2__arena_alloc(a, stored == EXL2__MATRIX_EXL3
                                                                  ? desc->out_stored * sizeof(uint16_t) : 0);
    }
    if (desc->dequantized) {
        tables->order = exl2__matrix_is_exl3(stored) ? NULL
                      : (uint32_t *)exl2__arena_alloc(a, in * sizeof(uint32_t));
        tables->codes = (uint32_t *)exl2__arena_alloc(a, exl2__matrix_codes_bytes(desc));
    }
    if (desc->has_bias) {
        tables->bias = (float *)exl2__arena_alloc(a, desc->out * sizeof(float));
    }
}

/* Host bytes that exl2__matrix_tables_open allocates for this matrix. */
static inline uint64_t exl2__matrix_tables_bytes(const exl2__matrix_desc *desc)
{
    exl2__matrix_tables dry = { 0 };
    exl2__matrix_tables_layout(desc, &dry);
    return dry.memory.used;
}

static inline exl2_result exl2__matrix_read(exl2__ctx *c, const exl2__tensors *t, const char *key, const char *part,
                                            void *out)
{
    const exl2__tensor *entry = exl2__tensors_find_part(t, key, part);
    return exl2__tensors_read(c, t, entry, 0, out, entry->bytes);
}

/* Fills `groups` from q_groups, whose u16 are: bits of group 0, first word row of group 0, bits of group 1, ... With
   q_groups = 4 0 3 4 and 10 word rows, group 0 has (4 - 0) * 32 / 4 = 32 rows, group 1 (10 - 4) * 32 / 3 = 64. */
EXL2__PRIVATE exl2_result exl2__matrix_read_groups(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                   exl2__matrix_tables *tables)
{
    const char *key = desc->name, *file = t->files.items[exl2__matrix_data(t, key, false)->file].name;
    EXL2__TRY(exl2__matrix_read(c, t, key, "q_groups", tables->raw));
    uint64_t row = 0;
    for (uint32_t g = 0; g < desc->group_count; g++) {
        uint32_t pair = exl2__load32(&tables->raw[g]), bits = pair & 0xFFFF, word = pair >> 16;
        uint32_t end = g + 1 < desc->group_count ? exl2__load32(&tables->raw[g + 1]) >> 16 : desc->words;
        if (bits < 2 || bits > 8 || bits == 7) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: group %u has unsupported width %u bits", file, key, g, bits);
        }
        if (g > 0 && bits > tables->groups[g - 1].bits) {
            return exl2__fail(c, EXL2_ERR_FORMAT,
                              "%s: %s: group bit widths are not in descending order (group %u has %u after %u)",
                              file, key, g, bits, tables->groups[g - 1].bits);
        }
        if ((g == 0 && word != 0) || word >= end || end > desc->words) {
            return exl2__fail(c, EXL2_ERR_FORMAT,
                              "%s: %s: group %u starts at packed row %u, the next at %u (not rising, or past end %u)",
                              file, key, g, word, end, desc->words);
        }
        uint32_t stream = (end - word) * 32; /* bits of one column */
        if (stream % bits != 0 || stream / bits % 32 != 0) {
            return exl2__fail(c, EXL2_ERR_FORMAT,
                              "%s: %s: group %u covers a fractional number of rows (%u words of %u-bit codes)",
                              file, key, g, end - word, bits);
        }
        exl2__group group = { (uint32_t)row, stream / bits, word, bits };
        tables->groups[g] = group;
        row += group.rows;
    }
    if (row != desc->in) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: q_groups has %llu inputs, expected %u", file, key,
                          (unsigned long long)row, desc->in);
    }
    return EXL2_OK;
}

/* The product is rounded to fp16 here, as ExLlamaV2 rounds it: the quantizer chose the codes for that very scale
   (docs/formats.md, "EXL2: scales"). */
EXL2__PRIVATE exl2_result exl2__matrix_read_scale_max(exl2__ctx *c, const exl2__tensors *t,
                                                      const exl2__matrix_desc *desc, float prescale,
                                                      exl2__matrix_tables *tables)
{
    uint32_t zeros = 0;
    EXL2__TRY(exl2__matrix_read(c, t, desc->name, "q_scale_max", tables->scale_max));
    for (uint32_t g = 0; g < desc->group_count; g++) {
        uint16_t half = exl2__load16(&tables->scale_max[g]);
        bool infinite = (half & 0x7C00) == 0x7C00, negative = half > 0x8000;
        if (infinite || negative) {
            return exl2__fail(c, EXL2_ERR_FORMAT,
                              "%s: %s: scale of group %u is %s (0x%x), expected a finite number >= 0",
                              t->files.items[exl2__matrix_data(t, desc->name, false)->file].name, desc->name, g,
                              !infinite ? "negative" : (half & 0x3FF) ? "NaN" : "infinite", half);
        }
        zeros += (half & 0x7FFF) == 0;
        tables->scale_max[g] = exl2__f32_to_f16(exl2__f16_to_f32(half) * (prescale / 256.0f));
    }
    if (zeros) {
        exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_ZERO_SCALES, "%s: %u of %u groups have the scale 0", desc->name, zeros,
                  desc->group_count);
    }
    return EXL2_OK;
}

/* The codes of the scales of groups [g, g + count). */
EXL2__PRIVATE exl2_result exl2__matrix_read_scales(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                   uint32_t g, uint32_t count, uint32_t *scale_codes)
{
    const exl2__tensor *entry = exl2__tensors_find_part(t, desc->name, "q_scale");
    uint64_t row = desc->out_stored / 8, words = count * row;
    uint32_t *codes = scale_codes + g * row;
    EXL2__TRY(exl2__tensors_read(c, t, entry, g * row * sizeof *codes, codes, words * sizeof *codes));
    for (uint64_t i = 0; i < words; i++) {
        codes[i] = exl2__load32(&codes[i]);
    }
    return EXL2_OK;
}

/* Reads q_invperm (I32 or I16) into inverse_perm, and checks that it holds each of 0 .. in - 1 once. */
EXL2__PRIVATE exl2_result exl2__matrix_read_perm(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                 exl2__matrix_tables *tables)
{
    const exl2__tensor *perm = exl2__tensors_find_part(t, desc->name, "q_invperm");
    uint32_t size = exl2__tensor_type_bytes(perm->type);
    /* Values of 2 bytes are read into the upper half of the array, so that widening them from the front in place never
       overwrites a value that is still to be read. */
    uint8_t *raw = (uint8_t *)tables->inverse_perm + (uint64_t)desc->in * (sizeof(uint32_t) - size);
    EXL2__TRY(exl2__tensors_read(c, t, perm, 0, raw, perm->bytes));
    for (uint32_t j = 0; j < desc->in; j++) {
        uint32_t i = size == 2 ? exl2__load16(raw + 2 * (uint64_t)j) : exl2__load32(raw + 4 * (uint64_t)j);
        if (i >= desc->in || (tables->seen[i / 32] >> (i % 32) & 1)) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: q_invperm is not a permutation (value %lld at %u, %s)",
                              t->files.items[perm->file].name, desc->name,
                              size == 2 ? (long long)i : (long long)(int32_t)i, j,
                              i >= desc->in ? "out of range" : "seen before");
        }
        tables->seen[i / 32] |= 1u << (i % 32);
        tables->inverse_perm[j] = i;
    }
    return EXL2_OK;
}

/* bias [out]; each read covers as many outputs as lie close together. */
EXL2__PRIVATE exl2_result exl2__matrix_read_bias(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                 float *bias)
{
    float values[256];
    if (desc->kind == EXL2__MATRIX_EXL2) {
        return exl2__tensor_floats_range(c, t, desc->bias_data, 0, desc->out, bias);
    }
#if EXL2__EXL3
    if (exl2__matrix_stored(desc) == EXL2__MATRIX_EXL3) {
        return exl2__exl3_read_bias(c, t, desc, bias);
    }
#endif
    const exl2__matrix_view *v = &desc->view;
    for (uint32_t i = 0, n; i < desc->out; i += n) {
        uint64_t first = exl2__matrix_view_at(v, i), span = 1;
        for (n = 1; i + n < desc->out && exl2__matrix_view_at(v, i + n) - first < EXL2__COUNT(values); n++) {
            span = exl2__matrix_view_at(v, i + n) - first + 1;
        }
        uint64_t before = v->transposed ? v->stack * v->columns : 0;
        EXL2__TRY(exl2__tensor_floats_range(c, t, desc->bias_data, before + first, (uint32_t)span, values));
        for (uint32_t k = 0; k < n; k++) {
            bias[i + k] = values[exl2__matrix_view_at(v, i + k) - first];
        }
    }
    return EXL2_OK;
}

/* Bytes that exl2__matrix_groups_read allocates for this matrix. */
static inline uint64_t exl2__matrix_groups_bytes(const exl2__matrix_desc *desc)
{
    return exl2__align_up(desc->group_count * sizeof(exl2__group), EXL2__ARENA_ALIGN)
         + exl2__align_up(desc->group_count * sizeof(uint32_t), EXL2__ARENA_ALIGN);
}

/* Reads and checks only the groups, and sets desc->groups, in the arena `a`. The groups of an affine matrix are known
   from headers; dense matrices and those of EXL3 have none. */
EXL2__PRIVATE exl2_result exl2__matrix_groups_read(exl2__ctx *c, const exl2__tensors *t, exl2__matrix_desc *desc,
                                                   exl2__arena *a)
{
    exl2__matrix_tables tables = { 0 };
    if (desc->kind == EXL2__MATRIX_DENSE || exl2__matrix_is_exl3(desc->kind)) {
        return EXL2_OK;
    }
    tables.groups = (exl2__group *)exl2__arena_alloc(a, desc->group_count * sizeof *tables.groups);
    tables.raw = (uint32_t *)exl2__arena_alloc(a, desc->group_count * sizeof *tables.raw);
    desc->groups = tables.groups;
#if EXL2__GPTQ
    if (desc->kind == EXL2__MATRIX_AFFINE) {
        exl2__affine_groups(desc, tables.groups);
        return EXL2_OK;
    }
#endif
    return exl2__matrix_read_groups(c, t, desc, &tables);
}

/* Begins to read and check everything but the weights of a matrix that exl2__matrix_find has described. *tables must be
   zeroed, but for `memory` with exl2__matrix_tables_bytes bytes free. prescale is usually 1 (docs/formats.md, "EXL2:
   scales"). */
EXL2__PRIVATE exl2_result exl2__matrix_tables_begin(exl2__ctx *c, const exl2__tensors *t, float prescale,
                                                    exl2__matrix_desc *desc, exl2__matrix_tables *tables)
{
    exl2__matrix_kind stored = exl2__matrix_stored(desc);
    exl2__matrix_tables_layout(desc, tables);
    desc->groups = tables->groups;
    desc->scale_codes = tables->scale_codes;
    desc->scale_max = tables->scale_max;
    desc->scales = tables->scales;
    desc->zeros = tables->zeros;
    desc->inverse_perm = tables->inverse_perm;
    desc->bias = tables->bias;
    desc->order = tables->order;
    desc->codes = tables->codes;
    desc->in_scales = tables->in_scales;
    desc->out_scales = tables->out_scales;
#if EXL2__GPTQ
    if (stored == EXL2__MATRIX_AFFINE) {
        desc->affine.raw = tables->affine_raw;
        exl2__affine_groups(desc, tables->groups);
        EXL2__TRY(exl2__affine_read_order(c, t, desc, tables->groups, tables->raw, tables->inverse_perm));
    }
#endif
    if (stored == EXL2__MATRIX_EXL2) {
        EXL2__TRY(exl2__matrix_read_groups(c, t, desc, tables));
        EXL2__TRY(exl2__matrix_read_scale_max(c, t, desc, prescale, tables));
        EXL2__TRY(exl2__matrix_read_perm(c, t, desc, tables));
    }
#if EXL2__EXL3
    if (exl2__matrix_is_exl3(stored)) {
        EXL2__TRY(exl2__exl3_read_tables(c, t, desc, tables->in_scales, tables->out_scales));
    }
#endif
    for (uint32_t i = 0; tables->order && i < desc->in; i++) {
        tables->order[tables->inverse_perm[i]] = i;
    }
    return desc->has_bias ? exl2__matrix_read_bias(c, t, desc, tables->bias) : EXL2_OK;
}

/* Reads the scales, and the zeros of an affine matrix, in slices. */
EXL2__PRIVATE exl2_result exl2__matrix_tables_slice(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                    exl2__matrix_tables *tables, exl2__work *work)
{
    exl2__matrix_kind stored = exl2__matrix_stored(desc);
    bool affine = stored == EXL2__MATRIX_AFFINE;
    uint32_t count = affine ? 1 : exl2__max32(EXL2__MATRIX_SCALES_READ * 2 / desc->out_stored, 1); /* in each read */
    for (; stored != EXL2__MATRIX_DENSE && tables->next_group < desc->group_count; tables->next_group += count) {
        count = exl2__min32(count, desc->group_count - tables->next_group);
        if (!exl2__work_spend(work, (uint64_t)count * desc->out_stored * (affine ? 10 : 1) / 2)) {
            return EXL2_PENDING;
        }
#if EXL2__GPTQ
        if (affine) {
            EXL2__TRY(exl2__affine_read_group(c, t, desc, tables->next_group, tables->scales, tables->zeros,
                                              &tables->others));
            continue;
        }
#endif
        EXL2__TRY(exl2__matrix_read_scales(c, t, desc, tables->next_group, count, tables->scale_codes));
    }
#if EXL2__GPTQ
    return affine ? exl2__affine_check_zeros(c, t, desc, tables->others) : EXL2_OK;
#else
    return EXL2_OK;
#endif
}

/* The same at once; it also opens tables->memory. On failure *tables is zeroed. */
static inline exl2_result exl2__matrix_tables_open(exl2__ctx *c, const exl2__tensors *t, float prescale,
                                                   exl2__matrix_desc *desc, exl2__matrix_tables *tables)
{
    *tables = (exl2__matrix_tables){ 0 };
    EXL2__TRY(exl2__arena_open(c, &tables->memory, exl2__matrix_tables_bytes(desc), EXL2_MEM_GENERAL));
    exl2__work all = exl2__work_all();
    exl2_result result = exl2__matrix_tables_begin(c, t, prescale, desc, tables);
    result = result < 0 ? result : exl2__matrix_tables_slice(c, t, desc, tables, &all);
    if (result < 0) {
        exl2__matrix_tables_close(c, tables);
    }
    return result;
}

#endif
