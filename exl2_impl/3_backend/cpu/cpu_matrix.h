/* cpu_matrix.h: the CPU's packing of weights: strips of 32 columns, packed while they are read.
   takes: checked matrix descriptions, then their words or rows in file order.
   gives: exl2__cpu_part, exl2__cpu_matrix, exl2__cpu_matrix_bytes, exl2__cpu_matrix_make, exl2__cpu_matrix_feed,
          exl2__cpu_matrix_line, exl2__cpu_matrix_pitch, exl2__cpu_matrix_code, exl2__cpu_matrix_weight.
   owns:  nothing; everything lies in the caller's arena for weights.

   ORDER OF SUMS. It is the same for one row, any batch, any chunk, any number of threads and every instruction set, so
   that results are equal bit for bit; but in plain C (cpu_plain.h) "fma" is a product and a sum, each rounded. A strip
   is 32 columns. A block is 32 packed rows, all of one group.
       block sum = a chain of fused multiply-adds over the block's rows, ascending; one chain per column
       total     = fma(scale of the group, block sum, total), block by block, ascending, from 0
       y         = total + bias
   Dense matrices have the scale 1, and a shorter last block if `in` is not a multiple of 32.

   LAYOUT of codes. A chain is as slow as its additions, one after the other, and 32 columns are too few chains to keep
   a CPU busy meanwhile. So a kernel for one row computes two strips at once, a pair, and a pair lies in memory in the
   order in which the kernel reads it. It consists of lines, each of 64 bytes for either strip. A group begins with a
   line of scales, [2 strips, 32] f16, and of zeros if the matrix is affine. Then come its words: two lines are a row,
   [2 strips, 32] u32. If the number of strips is odd, the last strip lies alone, with lines of 64 bytes.

   AFFINE matrices (GPTQ, AWQ) have a zero for each group and column in the place of 2^(b-1). The difference is one more
   term, the first of the block's chain; the codes and all other terms are those of EXL2:
       block sum begins with fma(2^(b-1) - zero, sum of x over the block, what EXL2 begins with; see FIELDS)
   The sum of x is taken in the order of cpu_vector.h. (The reference subtracts the zero from each code.)

   FIELDS. A block of b-bit codes is b words per column, [b, 32 columns]. The fast kernels extract a code from its word
   with one AND and convert it without a shift: the field at bit p gives code * 2^p, and the input was multiplied by
   2^-p before. For this no code may lie in two words, and the field that ends at bit 31 must be signed:
       2, 4, 8 bits: as stored, row r at bit r * b of the block; the top code of each word has its highest bit flipped,
                     so that the signed conversion gives (code - 2^(b-1)) * 2^p
       3, 5, 6 bits: word w holds rows w * f .. w * f + f - 1 (f = 30 / b), from bit 0 on. Bits 31..30 of the b words
                     are free. Together these b pairs are one more word, whose bits 2w and 2w + 1, counted from bit
                     32 - 2b, are pair w. It holds row 30 at bit 32 - 2b, and row 31, its highest bit flipped, at bit
                     32 - b
   Example, b = 3: rows 30 and 31 have the codes 5 (101) and 6 (110, flipped 010). That is 010101 from bit 26 on, so
   pairs 0, 1 and 2 are 01: each of the three words has 01 in its bits 31..30.
   The conversion of an unsigned field gives code, not code - 2^(b-1). The difference, the sum of -2^(b-1) * x over the
   block, depends only on the input row, and the chain starts from it. (The reference subtracts for each code.) */
#ifndef EXL2__CPU_MATRIX_H
#define EXL2__CPU_MATRIX_H

#include "../../0_base/half.h"
#include "../../2_graph/phases.h"

#define EXL2__CPU_STRIP 32u /* columns */
#define EXL2__CPU_PAIR (2 * EXL2__CPU_STRIP)
#define EXL2__CPU_BLOCK 32u /* packed rows */
#define EXL2__CPU_LINE 64u  /* bytes of a strip in a line */

typedef enum exl2__cpu_source {
    EXL2__CPU_CODES, EXL2__CPU_AFFINE, EXL2__CPU_F16, EXL2__CPU_BF16, EXL2__CPU_F32,
    EXL2__CPU_EXL3, EXL2__CPU_EXL3_TABLE
} exl2__cpu_source;

typedef struct exl2__cpu_block { /* 32 packed rows of one group */
    uint32_t line, scale;        /* the first line of its `bits` rows of words; the line of its group's scales */
    uint16_t group;
    uint16_t bits;
} exl2__cpu_block;

typedef struct exl2__cpu_exl3 { /* of parts of the sources EXL3 and EXL3_TABLE; cpu_exl3.h */
    exl2__exl3_codebook codebook;
    uint32_t words;              /* of a tile; of a ring with its scale */
    uint32_t width;              /* inputs of the model; the part's `in` is a multiple of 128 */
    const uint16_t *in_scales;   /* [in] f16; of a table: signs */
    const uint16_t *out_scales;  /* [strips * 32, rounded up to 128] f16; 0 beyond `out` */
} exl2__cpu_exl3;

typedef struct exl2__cpu_part {
    exl2__cpu_source source;
    uint32_t in, out, strips, blocks;
    uint32_t input_part;           /* the first part of the matrix with the same gathered input; may be this part */
    uint32_t fed_block, fed_words; /* codes: the block that is being read, and how many of its words have been read */
    uint32_t fed_rows, fed_strips; /* rows of the slice that are done; strips of the next row that are done */
    uint64_t strip_bytes;
    uint8_t *data;                 /* codes: see LAYOUT; dense: [strips, in, 32] of the source type */
    const exl2__cpu_block *block;  /* [blocks] codes only */
    const uint16_t *order;         /* [in] input feature of each packed row, codes only */
    const float *bias;             /* [strips, 32] or NULL */
    exl2__cpu_exl3 exl3;
    const exl2__matrix_desc *desc; /* only while the matrix is read */
} exl2__cpu_part;

typedef struct exl2__cpu_matrix {
    uint32_t count;
    exl2__cpu_part *parts;
} exl2__cpu_matrix;

/* Is it a GPTQ or AWQ matrix? A build without them leaves out what depends on it. */
static inline bool exl2__cpu_matrix_is_affine(exl2__cpu_source source)
{
    return EXL2__GPTQ && source == EXL2__CPU_AFFINE;
}

/* Is it a matrix of EXL3? A build without them leaves out what depends on it. */
static inline bool exl2__cpu_matrix_is_exl3(exl2__cpu_source source)
{
    return EXL2__EXL3 && source == EXL2__CPU_EXL3;
}

/* Are the weights codes in the packing of this file? (Else they are floats, or EXL3.) */
static inline bool exl2__cpu_matrix_is_codes(exl2__cpu_source source) { return source <= EXL2__CPU_AFFINE; }

/* Number of start values of the chains of `rows` input rows: one for each block, and a sum of x if the part is
   affine. */
static inline size_t exl2__cpu_matrix_start(const exl2__cpu_part *p, uint32_t rows)
{
    return (size_t)rows * p->blocks * (exl2__cpu_matrix_is_affine(p->source) ? 2 : 1);
}

/* Number of codes that a word holds; and do two more codes lie in the top bits of all words? */
static inline uint32_t exl2__cpu_matrix_fields(uint32_t bits) { return 32 / bits; }
static inline bool exl2__cpu_matrix_has_tops(uint32_t bits) { return 32 % bits != 0; }

static inline uint32_t exl2__cpu_matrix_dense_bytes(exl2__cpu_source source) { return source == EXL2__CPU_F32 ? 4 : 2; }

/* Codes: the number of words from a line to the next, and the address of a line of the pair that `strip` belongs to. In
   a line, or row, the elements of the strip begin at (strip % 2) * 32. */
static inline uint32_t exl2__cpu_matrix_pitch(const exl2__cpu_part *p, uint32_t strip)
{
    return (strip | 1u) < p->strips ? EXL2__CPU_STRIP : EXL2__CPU_STRIP / 2;
}

static inline uint32_t *exl2__cpu_matrix_line(const exl2__cpu_part *p, uint32_t strip, uint32_t line)
{
    uint32_t *pair = (uint32_t *)(void *)(p->data + (strip & ~1u) * p->strip_bytes);
    return pair + (size_t)line * exl2__cpu_matrix_pitch(p, strip);
}

/* Words from a row of a strip to the same row of the next strip; 0 if there is none, or if it is laid out otherwise. */
static inline size_t exl2__cpu_matrix_ahead(const exl2__cpu_part *p, uint32_t strip)
{
    bool alike = strip + 1 < p->strips && exl2__cpu_matrix_pitch(p, strip + 1) == exl2__cpu_matrix_pitch(p, strip);
    return !alike ? 0 : strip % 2 == 0 ? EXL2__CPU_STRIP : (size_t)p->strip_bytes / 2 - EXL2__CPU_STRIP;
}

/* First bit of the code of a block's row, in its word or in the word that is made of the top bits. */
static inline uint32_t exl2__cpu_matrix_bit(uint32_t bits, uint32_t row)
{
    uint32_t fields = exl2__cpu_matrix_fields(bits);
    return row < fields * bits ? row % fields * bits : 32 - (32 - row) * bits;
}

/* ---- layout ---- */

/* The memory of one part. */
typedef struct exl2__cpu_part_memory {
    uint8_t *data;
    exl2__cpu_block *block;
    uint16_t *order;
    float *bias;
    uint16_t *in_scales, *out_scales; /* EXL3 */
    uint64_t data_bytes;
} exl2__cpu_part_memory;

/* Bytes before and after the tiles of a matrix of EXL3 that kernels may read, but do not use. */
#define EXL2__CPU_EXL3_MARGIN 128u
#define EXL2__CPU_EXL3_STRIPS 4u /* of a Hadamard transform of outputs */

/* Bytes of a column of 16 outputs of EXL3; of a row of a table. */
static inline uint64_t exl2__cpu_matrix_exl3_bytes(const exl2__matrix_desc *desc)
{
    uint64_t group = desc->kind == EXL2__MATRIX_EXL3 ? 16 : EXL2__EXL3_TABLE_BLOCK;
    return desc->exl3.in_stored / group * desc->exl3.words * sizeof(uint16_t);
}

EXL2__PRIVATE exl2__cpu_part_memory exl2__cpu_matrix_alloc_exl3(exl2__arena *a, const exl2__matrix_desc *desc)
{
    exl2__cpu_part_memory m = { 0 };
    bool table = desc->kind == EXL2__MATRIX_EXL3_TABLE;
    m.data_bytes = exl2__cpu_matrix_exl3_bytes(desc) * (table ? desc->out : desc->out_stored / 16);
    m.data = (uint8_t *)exl2__arena_alloc(a, m.data_bytes + (table ? 0 : 2 * EXL2__CPU_EXL3_MARGIN));
    m.data = m.data && !table ? m.data + EXL2__CPU_EXL3_MARGIN : m.data;
    m.in_scales = (uint16_t *)exl2__arena_alloc(a, desc->exl3.in_stored * sizeof(uint16_t));
    m.out_scales = (uint16_t *)exl2__arena_alloc(a, table ? 0 : desc->out_stored * sizeof(uint16_t));
    if (desc->has_bias) {
        m.bias = (float *)exl2__arena_alloc_zeroed(a, exl2__align_up(desc->out, EXL2__CPU_STRIP) * sizeof *m.bias);
    }
    return m;
}

/* Lines of a group before its words: scales, and zeros. */
static inline uint32_t exl2__cpu_matrix_tables(const exl2__matrix_desc *desc)
{
    return desc->kind == EXL2__MATRIX_AFFINE ? 2 : 1;
}

/* From an arena; with a dry arena this only measures. */
EXL2__PRIVATE exl2__cpu_part_memory exl2__cpu_matrix_alloc(exl2__arena *a, const exl2__matrix_desc *desc)
{
    exl2__cpu_part_memory m = { 0 };
    if (exl2__matrix_is_exl3(desc->kind)) {
        return exl2__cpu_matrix_alloc_exl3(a, desc);
    }
    uint64_t columns = exl2__align_up(desc->out, EXL2__CPU_STRIP);
    uint64_t element = desc->dtype == EXL2__F32 ? 4 : 2;
    bool dense = desc->kind == EXL2__MATRIX_DENSE;
    uint64_t lines = 2 * (uint64_t)desc->words + exl2__cpu_matrix_tables(desc) * desc->group_count;
    m.data_bytes = dense ? columns * desc->in * element : columns / EXL2__CPU_STRIP * lines * EXL2__CPU_LINE;
    m.data = (uint8_t *)exl2__arena_alloc(a, m.data_bytes);
    if (!dense) {
        m.block = (exl2__cpu_block *)exl2__arena_alloc(a, desc->in / EXL2__CPU_BLOCK * sizeof *m.block);
        m.order = (uint16_t *)exl2__arena_alloc(a, desc->in * sizeof *m.order);
    }
    if (desc->has_bias) {
        m.bias = (float *)exl2__arena_alloc_zeroed(a, columns * sizeof *m.bias);
    }
    return m;
}

/* Bytes that exl2__cpu_matrix_make allocates for the same parts. */
EXL2__PRIVATE uint64_t exl2__cpu_matrix_bytes(const exl2__matrix_desc *parts, uint32_t count)
{
    exl2__arena dry = { 0 };
    exl2__arena_alloc(&dry, sizeof(exl2__cpu_matrix));
    exl2__arena_alloc(&dry, count * sizeof(exl2__cpu_part));
    for (uint32_t i = 0; i < count; i++) {
        exl2__cpu_matrix_alloc(&dry, &parts[i]);
    }
    return dry.used;
}

/* Fills blocks and order. */
EXL2__PRIVATE void exl2__cpu_matrix_fill(const exl2__cpu_part_memory *m, const exl2__matrix_desc *desc)
{
    uint32_t tables = exl2__cpu_matrix_tables(desc);
    for (uint32_t g = 0; g < desc->group_count; g++) {
        const exl2__group *group = &desc->groups[g];
        uint32_t scale = 2 * group->word + g * tables;
        for (uint32_t row = 0; row < group->rows; row += EXL2__CPU_BLOCK) {
            uint32_t line = scale + tables + row * group->bits / 16;
            exl2__cpu_block block = { line, scale, (uint16_t)g, (uint16_t)group->bits };
            m->block[(group->row + row) / EXL2__CPU_BLOCK] = block;
        }
    }
    for (uint32_t j = 0; j < desc->in; j++) {
        m->order[desc->inverse_perm[j]] = (uint16_t)j;
    }
}

/* The same for EXL3. Nothing lies in the margins and in out_scales beyond `out`. */
EXL2__PRIVATE void exl2__cpu_matrix_fill_exl3(const exl2__cpu_part_memory *m, const exl2__matrix_desc *desc,
                                              exl2__cpu_part *p)
{
    const exl2__exl3 *e = &desc->exl3;
    bool table = desc->kind == EXL2__MATRIX_EXL3_TABLE;
    p->source = table ? EXL2__CPU_EXL3_TABLE : EXL2__CPU_EXL3;
    p->in = table ? desc->in : e->in_stored;
    p->blocks = (uint32_t)exl2__div_up(p->in, EXL2__CPU_BLOCK);
    p->strip_bytes = table ? 0 : 2 * exl2__cpu_matrix_exl3_bytes(desc);
    p->exl3 = (exl2__cpu_exl3){ e->codebook, e->words, desc->in, m->in_scales, m->out_scales };
    memcpy(m->in_scales, desc->in_scales, e->in_stored * sizeof *m->in_scales);
    if (!table) {
        memset(m->data - EXL2__CPU_EXL3_MARGIN, 0, EXL2__CPU_EXL3_MARGIN);
        memset(m->data + m->data_bytes, 0, EXL2__CPU_EXL3_MARGIN);
        memset(m->out_scales, 0, desc->out_stored * sizeof *m->out_scales);
        memcpy(m->out_scales, desc->out_scales, desc->out * sizeof *m->out_scales);
    }
}

/* Can both parts use one gathered input? They do if each packed row has the same feature and the same field in both. */
EXL2__PRIVATE bool exl2__cpu_matrix_same_input(const exl2__cpu_part *a, const exl2__cpu_part *b)
{
    bool same = a->source == b->source && a->in == b->in;
    if (exl2__cpu_matrix_is_exl3(a->source)) { /* each has scales of its own */
        return false;
    }
    if (!exl2__cpu_matrix_is_codes(a->source)) {
        return same && !exl2__cpu_matrix_is_codes(b->source);
    }
    for (uint32_t i = 0; same && i < a->blocks; i++) {
        same = a->block[i].bits == b->block[i].bits;
    }
    return same && memcmp(a->order, b->order, a->in * sizeof *a->order) == 0;
}

/* Allocates the parts in `a` and fills in all but the weights, which exl2__cpu_matrix_feed adds. */
EXL2__PRIVATE exl2_result exl2__cpu_matrix_make(exl2__ctx *c, exl2__arena *a, const exl2__matrix_desc *descs,
                                                uint32_t count, exl2__cpu_matrix **out)
{
    exl2__cpu_matrix *m = (exl2__cpu_matrix *)exl2__arena_alloc_zeroed(a, sizeof *m);
    exl2__cpu_part *parts = (exl2__cpu_part *)exl2__arena_alloc_zeroed(a, count * sizeof *parts);
    for (uint32_t i = 0; i < count; i++) {
        const exl2__matrix_desc *desc = &descs[i];
        exl2__cpu_part_memory memory = exl2__cpu_matrix_alloc(a, desc);
        bool dense = desc->kind == EXL2__MATRIX_DENSE, exl3 = exl2__matrix_is_exl3(desc->kind);
        if (!dense && !exl3 && (desc->in > 65536 || desc->in % EXL2__CPU_BLOCK)) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED,
                              "%s has %u input features; only multiples of 32 up to 65536 are supported", desc->name,
                              desc->in);
        }
        if (a->used > a->size) {
            return exl2__fail(c, EXL2_ERR_INTERNAL, "%s: the arena for weights is smaller than the sum of matrix_bytes",
                              desc->name);
        }
        exl2__cpu_part *p = &parts[i];
        p->source = desc->kind == EXL2__MATRIX_EXL2 ? EXL2__CPU_CODES
                  : desc->kind == EXL2__MATRIX_AFFINE ? EXL2__CPU_AFFINE
                  : desc->dtype == EXL2__F32 ? EXL2__CPU_F32
                  : desc->dtype == EXL2__BF16 ? EXL2__CPU_BF16 : EXL2__CPU_F16;
        p->in = desc->in;
        p->out = desc->out;
        p->strips = (uint32_t)exl2__div_up(desc->out, EXL2__CPU_STRIP);
        p->blocks = (uint32_t)exl2__div_up(desc->in, EXL2__CPU_BLOCK);
        p->strip_bytes = memory.data_bytes / p->strips;
        p->data = memory.data;
        p->block = memory.block;
        p->order = memory.order;
        p->bias = memory.bias;
        p->desc = desc;
        if (exl3) {
            exl2__cpu_matrix_fill_exl3(&memory, desc, p);
        } else if (!dense) {
            exl2__cpu_matrix_fill(&memory, desc);
        } else if (desc->out % EXL2__CPU_STRIP) { /* padding columns of the last strip */
            memset(p->data + (p->strips - 1) * p->strip_bytes, 0, (size_t)p->strip_bytes);
        }
        if (memory.bias) {
            memcpy(memory.bias, desc->bias, desc->out * sizeof *memory.bias);
        }
        for (p->input_part = 0; p->input_part < i && !exl2__cpu_matrix_same_input(&parts[p->input_part], p);
             p->input_part++) {
        }
    }
    m->count = count;
    m->parts = parts;
    *out = m;
    return EXL2_OK;
}

/* ---- weights, while they are read ---- */

/* Converts one block of one strip from the stored bits to our fields. The codes of a column are one stream of bits: its
   bits 30w .. 30w + 29 are bits 0 .. 29 of word w, and its last 2b bits are the word of the top bits. Rows are
   `to_pitch` and `from_pitch` words apart; `to` and `from` may be the same. */
EXL2__PRIVATE void exl2__cpu_matrix_pack(uint32_t *to, size_t to_pitch, const uint32_t *from, size_t from_pitch,
                                         uint32_t bits)
{
    uint32_t tops[EXL2__CPU_STRIP], packed[EXL2__CPU_STRIP]; /* no pointers, so that compilers use vectors */
    bool has_tops = exl2__cpu_matrix_has_tops(bits);
    memcpy(tops, from + (bits - 1) * from_pitch, sizeof tops);
    for (uint32_t w = bits; w-- > 0;) { /* descending: a word needs the one before as it was stored */
        const uint32_t *word = from + w * from_pitch, *before = w > 0 ? word - from_pitch : tops;
        uint32_t carry = 2 * w, kept = w > 0 ? (1u << carry) - 1 : 0, top = 32 - 2 * bits + carry;
        for (uint32_t n = 0; !has_tops && n < EXL2__CPU_STRIP; n++) {
            packed[n] = word[n] ^ 0x80000000u;
        }
        for (uint32_t n = 0; has_tops && n < EXL2__CPU_STRIP; n++) {
            uint32_t fields = (word[n] << carry | (before[n] >> ((32 - carry) & 31) & kept)) & 0x3FFFFFFFu;
            packed[n] = fields | (tops[n] ^ 0x80000000u) >> top << 30;
        }
        memcpy(to + w * to_pitch, packed, sizeof packed);
    }
}

/* The scales of group g for the 16 values of a code of q_scale. A scale of EXL2 is fp16((qs + 1)^2 * scale_max),
   rounded in this order, where qs is the code (docs/formats.md, "EXL2: scales"). */
EXL2__COLD
EXL2__PRIVATE void exl2__cpu_matrix_levels(const exl2__matrix_desc *desc, uint32_t g, uint16_t *levels)
{
    for (uint32_t level = 0; level < 16; level++) {
        float square = (float)((level + 1) * (level + 1));
        levels[level] = exl2__f32_to_f16(square * exl2__f16_to_f32(desc->scale_max[g]));
    }
}

/* Fills the scales of group g in a strip, and the zeros as 2^(bits-1) - zero. */
EXL2__NOINLINE
EXL2__PRIVATE void exl2__cpu_matrix_fill_tables(const exl2__cpu_part *p, uint32_t strip, const exl2__cpu_block *block,
                                                const uint16_t *levels)
{
    const exl2__matrix_desc *desc = p->desc;
    uint32_t first = strip * EXL2__CPU_STRIP, in_line = strip % 2 * EXL2__CPU_STRIP;
    uint16_t *scale = (uint16_t *)(void *)exl2__cpu_matrix_line(p, strip, block->scale) + in_line;
    uint16_t *zero = (uint16_t *)(void *)exl2__cpu_matrix_line(p, strip, block->scale + 1) + in_line;
    if (p->source == EXL2__CPU_CODES) {
        const uint32_t *codes = desc->scale_codes + ((size_t)block->group * desc->out_stored + first) / 8;
        for (uint32_t n = 0; n < EXL2__CPU_STRIP; n++) {
            scale[n] = levels[codes[n / 8] >> (n % 8 * 4) & 15u];
        }
        return;
    }
    size_t from = (size_t)block->group * desc->out_stored + first;
    for (uint32_t n = 0; n < EXL2__CPU_STRIP; n++) {
        scale[n] = desc->scales[from + n];
        zero[n] = exl2__f32_to_f16((float)(1u << (block->bits - 1)) - (float)desc->zeros[from + n]);
    }
}

/* Adds the first of `rows` rows of words, or a whole block if it begins here and lies in these rows. A row goes to its
   strips as it is stored, until the last one completes the block. *count: the number of rows added. */
EXL2__PRIVATE exl2_result exl2__cpu_matrix_feed_codes(exl2__cpu_part *p, const uint32_t *words, uint32_t rows,
                                                      uint32_t *count, exl2__work *work)
{
    const exl2__cpu_block *block = &p->block[p->fed_block];
    uint32_t bits = block->bits;
    bool starts = p->fed_words == 0 && (p->fed_block == 0 || block[-1].group != block->group);
    bool whole = p->fed_words == 0 && rows >= bits;
    uint16_t levels[16] = { 0 };
    *count = whole ? bits : 1;
    if (starts && p->source == EXL2__CPU_CODES) {
        exl2__cpu_matrix_levels(p->desc, block->group, levels);
    }
    for (; p->fed_strips < p->strips; p->fed_strips++) {
        uint32_t s = p->fed_strips, *to = exl2__cpu_matrix_line(p, s, block->line) + s % 2 * EXL2__CPU_STRIP;
        const uint32_t *from = words + (size_t)s * EXL2__CPU_STRIP;
        size_t to_pitch = 2 * exl2__cpu_matrix_pitch(p, s), from_pitch = (size_t)p->strips * EXL2__CPU_STRIP;
        if (!exl2__work_spend(work, (starts ? 60 : 0) + 40 * *count)) {
            return EXL2_PENDING;
        }
        if (starts) {
            exl2__cpu_matrix_fill_tables(p, s, block, levels);
        }
        if (whole) {
            exl2__cpu_matrix_pack(to, to_pitch, from, from_pitch, bits);
            continue;
        }
        memcpy(to + p->fed_words * to_pitch, from, EXL2__CPU_STRIP * sizeof *words);
        if (p->fed_words + 1 == bits) {
            exl2__cpu_matrix_pack(to, to_pitch, to, to_pitch, bits);
        }
    }
    p->fed_strips = 0;
    p->fed_words += *count;
    if (p->fed_words == bits) {
        p->fed_words = 0;
        p->fed_block++;
    }
    return EXL2_OK;
}

/* Stores the output features [row, row + rows), which lie in one strip, transposed: in tiles, so that each line of the
   rows is read from memory once. */
EXL2__PRIVATE void exl2__cpu_matrix_feed_dense(exl2__cpu_part *p, uint32_t row, uint32_t rows, const void *data)
{
    uint8_t *strip = p->data + row / EXL2__CPU_STRIP * p->strip_bytes;
    uint32_t column = row % EXL2__CPU_STRIP;
    bool wide = exl2__cpu_matrix_dense_bytes(p->source) == 4;
    const uint32_t *from4 = (const uint32_t *)data;
    uint32_t *to4 = (uint32_t *)(void *)strip + column;
    const uint16_t *from2 = (const uint16_t *)data;
    uint16_t *to2 = (uint16_t *)(void *)strip + column;
    for (uint32_t begin = 0; begin < p->in; begin += EXL2__CPU_BLOCK) {
        uint32_t end = exl2__min32(begin + EXL2__CPU_BLOCK, p->in);
        for (uint32_t n = 0; n < rows; n++) {
            size_t before = (size_t)n * p->in;
            for (uint32_t k = begin; k < end; k++) {
                if (wide) {
                    to4[k * EXL2__CPU_STRIP + n] = from4[before + k];
                } else {
                    to2[k * EXL2__CPU_STRIP + n] = from2[before + k];
                }
            }
        }
    }
}

/* Adds one row of EXL3's tiles, or of a table. */
EXL2__PRIVATE exl2_result exl2__cpu_matrix_feed_exl3(exl2__cpu_part *p, uint32_t row, const uint8_t *data,
                                                     exl2__work *work)
{
    size_t bytes = p->exl3.words * sizeof(uint16_t), columns = p->desc->out_stored / 16;
    if (p->source == EXL2__CPU_EXL3_TABLE) {
        bytes = (size_t)exl2__cpu_matrix_exl3_bytes(p->desc);
        if (!exl2__work_spend(work, 10 + bytes / 8)) {
            return EXL2_PENDING;
        }
        memcpy(p->data + row * bytes, data, bytes);
        return EXL2_OK;
    }
    for (; p->fed_strips < columns; p->fed_strips++) { /* columns of tiles */
        if (!exl2__work_spend(work, 10 + bytes / 8)) {
            return EXL2_PENDING;
        }
        memcpy(p->data + ((size_t)p->fed_strips * (p->in / 16) + row) * bytes, data + p->fed_strips * bytes, bytes);
    }
    p->fed_strips = 0;
    return EXL2_OK;
}

/* Adds the next rows of a part. Rows come in file order without gaps, any number per slice. PENDING: the slice of work
   is used up; the next call gets the same rows. */
EXL2__PRIVATE exl2_result exl2__cpu_matrix_feed(exl2__cpu_part *p, const exl2__rows_slice *slice, exl2__work *work)
{
    bool exl3 = exl2__cpu_matrix_is_exl3(p->source) || p->source == EXL2__CPU_EXL3_TABLE;
    size_t row_bytes = p->source == EXL2__CPU_EXL3_TABLE ? (size_t)exl2__cpu_matrix_exl3_bytes(p->desc)
                     : exl3 ? (size_t)p->desc->out_stored / 16 * p->exl3.words * sizeof(uint16_t)
                     : exl2__cpu_matrix_is_codes(p->source)
                     ? (size_t)p->strips * EXL2__CPU_STRIP * sizeof(uint32_t)
                     : (size_t)p->in * exl2__cpu_matrix_dense_bytes(p->source);
    for (uint32_t step = 1; p->fed_rows < slice->rows; p->fed_rows += step) {
        uint32_t row = slice->row + p->fed_rows;
        const uint8_t *data = (const uint8_t *)slice->data + p->fed_rows * row_bytes;
        if (exl3) {
            EXL2__TRY_DONE(exl2__cpu_matrix_feed_exl3(p, row, data, work));
        } else if (exl2__cpu_matrix_is_codes(p->source)) {
            EXL2__TRY_DONE(exl2__cpu_matrix_feed_codes(p, (const uint32_t *)(const void *)data,
                                                       slice->rows - p->fed_rows, &step, work));
        } else {
            step = exl2__min32(slice->rows - p->fed_rows, EXL2__CPU_STRIP - row % EXL2__CPU_STRIP);
            if (!exl2__work_spend(work, (uint64_t)step * p->in)) {
                return EXL2_PENDING;
            }
            exl2__cpu_matrix_feed_dense(p, row, step, data);
        }
    }
    p->fed_rows = 0;
    return EXL2_OK;
}

/* ---- single weights, for the reference and for tests ---- */

/* code - 2^(b-1) at a packed row of a column. */
EXL2__PRIVATE int32_t exl2__cpu_matrix_code(const exl2__cpu_part *p, uint32_t packed_row, uint32_t column)
{
    const exl2__cpu_block *block = &p->block[packed_row / EXL2__CPU_BLOCK];
    uint32_t strip = column / EXL2__CPU_STRIP, row_words = 2 * exl2__cpu_matrix_pitch(p, strip);
    const uint32_t *words = exl2__cpu_matrix_line(p, strip, block->line) + column % EXL2__CPU_PAIR;
    uint32_t bits = block->bits, row = packed_row % EXL2__CPU_BLOCK;
    uint32_t fields = exl2__cpu_matrix_fields(bits), bit = exl2__cpu_matrix_bit(bits, row);
    uint32_t word = 0;
    if (row < fields * bits) {
        word = words[row / fields * row_words];
    } else {
        for (uint32_t w = 0; w < bits; w++) {
            word = word >> 2 | (words[w * row_words] & 0xC0000000u);
        }
    }
    uint32_t flip = bit + bits == 32 ? 1u << (bits - 1) : 0;
    return (int32_t)((word >> bit & ((1u << bits) - 1)) ^ flip) - (1 << (bits - 1));
}

/* The scale of a block's group in a column, or with next = 1 its zero, as it is stored. */
EXL2__PRIVATE float exl2__cpu_matrix_scale(const exl2__cpu_part *p, uint32_t block, uint32_t next, uint32_t column)
{
    const uint32_t *line = exl2__cpu_matrix_line(p, column / EXL2__CPU_STRIP, p->block[block].scale + next);
    return exl2__f16_to_f32(((const uint16_t *)(const void *)line)[column % EXL2__CPU_PAIR]);
}

/* The code of a packed row of a column minus its zero, which is 2^(b-1) in EXL2. */
EXL2__PRIVATE float exl2__cpu_matrix_level(const exl2__cpu_part *p, uint32_t packed_row, uint32_t column)
{
    float code = (float)exl2__cpu_matrix_code(p, packed_row, column);
    return !exl2__cpu_matrix_is_affine(p->source) ? code
         : code + exl2__cpu_matrix_scale(p, packed_row / EXL2__CPU_BLOCK, 1, column);
}

/* A dense weight, or fp16((code - zero) * scale) of a code, whose `row` is a packed row. */
EXL2__PRIVATE float exl2__cpu_matrix_weight(const exl2__cpu_part *p, uint32_t row, uint32_t column)
{
    if (exl2__cpu_matrix_is_codes(p->source)) {
        float q = exl2__cpu_matrix_level(p, row, column);
        float scale = exl2__cpu_matrix_scale(p, row / EXL2__CPU_BLOCK, 0, column);
        return exl2__f16_to_f32(exl2__f32_to_f16(q * scale));
    }
    const uint8_t *strip = p->data + column / EXL2__CPU_STRIP * p->strip_bytes;
    size_t at = (size_t)row * EXL2__CPU_STRIP + column % EXL2__CPU_STRIP;
    if (p->source == EXL2__CPU_F32) {
        return ((const float *)(const void *)strip)[at];
    }
    uint16_t half = ((const uint16_t *)(const void *)strip)[at];
    return p->source == EXL2__CPU_F16 ? exl2__f16_to_f32(half) : exl2__bf16_to_f32(half);
}

#endif
