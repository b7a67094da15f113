/* cuda_matrix.h: where the weights of a matrix lie in device memory: strips, chunks, slices, maps.
   takes: checked matrix descriptions.
   gives: exl2__cuda_limits, exl2__cuda_layout, exl2__cuda_slicing, exl2__cuda_layout_part, exl2__cuda_layout_slicing,
          exl2__cuda_layout_chain, exl2__cuda_matrix_firsts, exl2__cuda_gemv_shared, exl2__cuda_gemv_chain.

   kernels_src/matrix_args.h defines strips, records, chunks and slices. This file cuts them: groups of one width become
   a region, a region is divided into records, records of one region become chunks, and chunks are dealt to slices. */
#ifndef EXL2__CUDA_MATRIX_H
#define EXL2__CUDA_MATRIX_H

#include "../../../kernels_src/lora_args.h"
#include "../../2_graph/phases.h"

#define EXL2__CUDA_STRIP 16u         /* columns of a strip */
#define EXL2__CUDA_RECORD_ROWS 64u
#define EXL2__CUDA_HALF_ROWS 32u
#define EXL2__CUDA_CHUNK_BYTES 2112u /* four records of 4 bits and the scale words of eight groups */
#define EXL2__CUDA_REGIONS_MAX 6u    /* one for each width: 8, 6, 5, 4, 3, 2 bits, descending */
#define EXL2__CUDA_NO_GROUP 0xFFFFu
#define EXL2__CUDA_CHAIN_CHUNKS (EXL2K_PARTS_MAX * EXL2K_SLICES_MAX) /* most chunks that add to running sums */
#define EXL2__CUDA_CHAIN_STRIPS 32u  /* fewest strips of a CTA for which that pays */
#define EXL2__CUDA_CHUNK_RECORDS_LOST 4u /* cost of changing to the next chunk, in records */
#define EXL2__CUDA_CHUNK_COST 1536u      /* the same cost in bytes that could be read meanwhile */

/* Limits of the device that layouts are made for. */
typedef struct exl2__cuda_limits {
    uint32_t ctas;        /* CTAs of a product: one per SM */
    uint32_t chunk_bytes; /* bytes of the largest chunk of EXL2; at least 1088, one record of 8 bits. Chunks of dense
                             matrices have 2048; those of affine ones as many codes as with EXL2 */
    uint32_t shared_bytes; /* shared memory that a kernel may use */
} exl2__cuda_limits;

/* A run of groups of one width, or a whole dense matrix. */
typedef struct exl2__cuda_region {
    uint32_t row, rows, word, records;
    uint32_t bits;
    bool by_half; /* a group begins or ends inside of a record */
} exl2__cuda_region;

/* How the chunks of a strip are divided among warps. */
typedef struct exl2__cuda_slicing {
    uint32_t slices;
    uint32_t rest; /* 1: slices have equal numbers of chunks; leftover chunks go to the warps by strips */
} exl2__cuda_slicing;

typedef struct exl2__cuda_layout {
    const exl2__matrix_desc *desc;
    exl2__cuda_slicing slicing;
    uint32_t chunk_bytes;
    exl2k_chunk *chunks;        /* NULL: the layout is only measured */
    uint16_t (*group_of)[8];    /* group of each scale word of each chunk; NULL if chunks is */
    exl2__cuda_region regions[EXL2__CUDA_REGIONS_MAX];
    uint32_t region_count;
    uint32_t count;             /* number of chunks */
    uint64_t bytes;             /* bytes of a strip */
    uint64_t slice_bytes_max;
    uint32_t chunk_bytes_max;   /* bytes of the largest chunk */
    uint32_t widths;            /* bit EXL2K_Wn: chunks of this width occur */
    uint16_t slice[EXL2K_SLICES_MAX + 2]; /* slice i has chunks [slice[i], slice[i + 1]) */
    exl2k_slice entries[EXL2K_SLICES_MAX + 1]; /* for exl2k_part.slice; filled in if chunks is not NULL */
    uint32_t leftover;          /* leftover chunks, after the chunks of the slices */
    uint32_t group;             /* cursor into desc->groups */
} exl2__cuda_layout;

static inline uint32_t exl2__cuda_width(uint32_t bits)
{
    return bits == 16 ? EXL2K_W16 : bits == 8 ? EXL2K_W8 : bits - 2;
}

/* ---- regions ---- */

EXL2__PRIVATE void exl2__cuda_layout_regions(exl2__cuda_layout *l)
{
    const exl2__matrix_desc *d = l->desc;
    l->region_count = 0;
    if (d->kind == EXL2__MATRIX_DENSE) {
        exl2__cuda_region all = { 0, d->in, 0, (uint32_t)exl2__div_up(d->in, EXL2__CUDA_RECORD_ROWS), 16, false };
        l->regions[l->region_count++] = all;
        return;
    }
    for (uint32_t g = 0; g < d->group_count; g++) {
        const exl2__group *group = &d->groups[g];
        exl2__cuda_region *last = l->region_count ? &l->regions[l->region_count - 1] : NULL;
        if (!last || last->bits != group->bits) {
            exl2__cuda_region next = { group->row, 0, group->word, 0, group->bits, false };
            l->regions[l->region_count++] = next;
            last = &l->regions[l->region_count - 1];
        }
        last->by_half = last->by_half || last->rows % EXL2__CUDA_RECORD_ROWS != 0;
        last->rows += group->rows;
        last->records = (uint32_t)exl2__div_up(last->rows, EXL2__CUDA_RECORD_ROWS);
    }
    if (d->kind == EXL2__MATRIX_AFFINE && d->in % EXL2__CUDA_RECORD_ROWS != 0) {
        l->regions[0].by_half = true; /* codes of the padding do not decode to 0, so its scales must be 0 */
    }
}

/* The group of a packed row. Rows must be asked for in ascending order. */
EXL2__PRIVATE uint32_t exl2__cuda_layout_group(exl2__cuda_layout *l, uint32_t row)
{
    const exl2__group *groups = l->desc->groups;
    while (row >= groups[l->group].row + groups[l->group].rows) {
        l->group++;
    }
    return l->group;
}

/* ---- chunks ---- */

/* Fills in scale words, maxima and `ends` of a chunk of codes: records [first, first + chunk->records) of the
   region. */
EXL2__PRIVATE void exl2__cuda_chunk_groups(exl2__cuda_layout *l, const exl2__cuda_region *region, uint32_t first,
                                           exl2k_chunk *chunk, uint16_t *group_of)
{
    uint32_t end = region->row + region->rows, step = region->by_half ? EXL2__CUDA_HALF_ROWS : EXL2__CUDA_RECORD_ROWS;
    uint32_t row = region->row + first * EXL2__CUDA_RECORD_ROWS, last = row + chunk->records * EXL2__CUDA_RECORD_ROWS;
    for (uint32_t i = 0; row < last; i++, row += step) {
        uint32_t group = row < end ? exl2__cuda_layout_group(l, row) : EXL2__CUDA_NO_GROUP, next = row + step;
        bool has_maximum = l->desc->kind == EXL2__MATRIX_EXL2 && group != EXL2__CUDA_NO_GROUP && l->chunks;
        uint32_t maximum = has_maximum ? l->desc->scale_max[group] : 0;
        if (region->by_half) {
            group_of[chunk->groups++] = (uint16_t)group;
            chunk->maxima[i / 2] |= maximum << i % 2 * 16;
            continue;
        }
        chunk->maxima[i] = maximum | maximum << 16;
        if (next >= last || next >= end || exl2__cuda_layout_group(l, next) != group) {
            group_of[chunk->groups++] = (uint16_t)group;
            chunk->ends |= (exl2k_u8)(1u << i);
        }
    }
}

/* Appends the next chunk: records [first, first + records) of the region. */
EXL2__PRIVATE void exl2__cuda_layout_chunk(exl2__cuda_layout *l, const exl2__cuda_region *region, uint32_t first,
                                           uint32_t records)
{
    uint16_t unused[8], *group_of = l->chunks ? l->group_of[l->count] : unused;
    exl2k_chunk chunk = { .offset16 = (exl2k_u32)(l->bytes / 16), .width = (exl2k_u8)exl2__cuda_width(region->bits),
                          .records = (exl2k_u8)records, .by_half = region->by_half };
    uint32_t halves_left = (uint32_t)exl2__div_up(region->rows, EXL2__CUDA_HALF_ROWS) - 2 * first;
    chunk.row = (exl2k_u16)((region->row + first * EXL2__CUDA_RECORD_ROWS) / EXL2__CUDA_HALF_ROWS);
    chunk.halves = (exl2k_u8)exl2__min32(2 * records, halves_left);
    for (uint32_t i = 0; i < 8; i++) {
        group_of[i] = EXL2__CUDA_NO_GROUP;
    }
    if (l->desc->kind != EXL2__MATRIX_DENSE) {
        chunk.word = (exl2k_u16)(region->word + first * 2 * region->bits);
        exl2__cuda_chunk_groups(l, region, first, &chunk, group_of);
    }
    uint32_t group_bytes = l->desc->kind == EXL2__MATRIX_AFFINE ? EXL2K_AFFINE_BYTES : 8;
    uint32_t bytes = (uint32_t)exl2__align_up(records * region->bits * 128u + chunk.groups * group_bytes, 16);
    chunk.bytes16 = (exl2k_u16)(bytes / 16);
    l->chunk_bytes_max = exl2__max32(l->chunk_bytes_max, bytes);
    l->bytes += bytes;
    if (l->chunks) {
        l->chunks[l->count] = chunk;
    }
    l->count++;
}

/* Most records of a region that fit into a chunk. */
static inline uint32_t exl2__cuda_records_max(const exl2__cuda_layout *l, const exl2__cuda_region *region)
{
    uint32_t fit = (l->chunk_bytes - EXL2K_SCALE_BYTES_MAX) / (region->bits * 128u);
    return exl2__max32(1, exl2__min32(fit, EXL2K_CHUNK_RECORDS));
}

/* Number of chunks of a region if none has more than `most` records. */
static inline uint32_t exl2__cuda_region_chunks(const exl2__cuda_layout *l, const exl2__cuda_region *region,
                                                uint32_t most)
{
    return (uint32_t)exl2__div_up(region->records, exl2__min32(most, exl2__cuda_records_max(l, region)));
}

EXL2__PRIVATE uint32_t exl2__cuda_all_chunks(const exl2__cuda_layout *l, uint32_t most)
{
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < l->region_count; i++) {
        pieces += exl2__cuda_region_chunks(l, &l->regions[i], most);
    }
    return pieces;
}

/* Number of leftover chunks if a strip has `chunks` chunks. */
static inline uint32_t exl2__cuda_leftover(exl2__cuda_slicing slicing, uint32_t chunks)
{
    return slicing.rest && chunks >= slicing.slices ? chunks % slicing.slices : 0;
}

/* The limit of records for each chunk that makes the busiest slice least busy: small if the
   matrix has few records. */
EXL2__PRIVATE uint32_t exl2__cuda_layout_records(const exl2__cuda_layout *l)
{
    uint32_t best = EXL2K_CHUNK_RECORDS, least = UINT32_MAX;
    for (uint32_t most = EXL2K_CHUNK_RECORDS; most > 0; most--) {
        uint32_t chunks = exl2__cuda_all_chunks(l, most), left = exl2__cuda_leftover(l->slicing, chunks);
        uint32_t load = (4 * (uint32_t)exl2__div_up(chunks - left, l->slicing.slices) + left) *
                        (EXL2__CUDA_CHUNK_RECORDS_LOST + most);
        if (load < least) {
            least = load;
            best = most;
        }
    }
    return best;
}

/* Divides regions into chunks of nearly equal size and deals whole chunks to slices. A warp waits for its chunks one
   after the other, so a small chunk costs nearly as much time as a large one, and no slice should have more chunks than
   the others. */
EXL2__PRIVATE void exl2__cuda_layout_fill(exl2__cuda_layout *l)
{
    uint64_t slice_begin = 0;
    uint32_t slice = 0;
    exl2__cuda_layout_regions(l);
    l->count = l->group = l->widths = l->chunk_bytes_max = 0;
    l->bytes = l->slice_bytes_max = 0;
    memset(l->slice, 0, sizeof l->slice);
    uint32_t most = exl2__cuda_layout_records(l), all = exl2__cuda_all_chunks(l, most), slices = l->slicing.slices;
    l->leftover = exl2__cuda_leftover(l->slicing, all);
    for (uint32_t i = 0; i < l->region_count; i++) {
        const exl2__cuda_region *region = &l->regions[i];
        uint32_t first = 0;
        l->widths |= 1u << exl2__cuda_width(region->bits);
        for (uint32_t pieces = exl2__cuda_region_chunks(l, region, most); pieces > 0; pieces--) {
            uint32_t records = (uint32_t)exl2__div_up(region->records - first, pieces);
            for (; slice < exl2__min32(l->count * slices / (all - l->leftover), slices); slice_begin = l->bytes) {
                l->slice[++slice] = (uint16_t)l->count;
            }
            exl2__cuda_layout_chunk(l, region, first, records);
            l->slice_bytes_max = exl2__max64(l->slice_bytes_max, l->bytes - slice_begin);
            first += records;
        }
    }
    while (slice < EXL2K_SLICES_MAX + 1) {
        l->slice[++slice] = (uint16_t)l->count;
    }
}

/* Lays out one part. chunks == NULL: only counts chunks and bytes, from desc->groups. */
EXL2__PRIVATE void exl2__cuda_layout_part(exl2__cuda_layout *l, const exl2__matrix_desc *desc,
                                          exl2__cuda_slicing slicing, uint32_t chunk_bytes, exl2k_chunk *chunks,
                                          uint16_t (*group_of)[8])
{
    *l = (exl2__cuda_layout){ .desc = desc, .slicing = slicing, .chunk_bytes = chunk_bytes, .chunks = chunks,
                              .group_of = group_of };
    exl2__cuda_layout_fill(l);
    for (uint32_t i = 0; i < slicing.slices + (l->leftover > 0) && chunks; i++) {
        exl2k_slice *entry = &l->entries[i < slicing.slices ? i : EXL2K_SLICES_MAX];
        const exl2k_chunk *chunk = &chunks[l->slice[i]];
        entry->chunk = l->slice[i];
        entry->count = (exl2k_u16)(l->slice[i + 1] - l->slice[i]);
        for (uint32_t k = 0; k < entry->count && k < 4; k++) {
            entry->sizes |= (uint32_t)chunk[k].bytes16 << 8 * k;
        }
        if (entry->count > 0) {
            entry->offset16 = chunk->offset16;
            entry->row = chunk->row;
        }
    }
}

/* Each chunk of a part with one slice as a slice of its own, for exl2__cuda_gemv_chain. Returns their number; 0: there
   are several slices, or too many chunks. */
EXL2__PRIVATE uint32_t exl2__cuda_layout_chain(const exl2__cuda_layout *l, const exl2k_chunk *chunks, exl2k_slice *out)
{
    if (l->slicing.slices != 1 || l->slicing.rest || l->count > EXL2__CUDA_CHAIN_CHUNKS) {
        return 0;
    }
    for (uint32_t i = 0; i < l->count; i++) {
        out[i] = (exl2k_slice){ .offset16 = chunks[i].offset16, .sizes = chunks[i].bytes16, .chunk = (exl2k_u16)i,
                                .count = 1, .row = chunks[i].row };
    }
    return l->count;
}

/* ---- a whole matrix ---- */

static inline uint32_t exl2__cuda_strips(const exl2__matrix_desc *desc)
{
    bool dense = desc->kind == EXL2__MATRIX_DENSE;
    return (dense ? (uint32_t)exl2__align_up(desc->out, 32) : desc->out_stored) / EXL2__CUDA_STRIP;
}

/* The number of slices per strip that makes the busiest warp of a decode product least busy. Example: 9 records of K =
   576 on 16 warps with 20 strips for each CTA. 16 slices leave 7 warps idle; 3 slices of 3 records for each of 5 strips
   at a time keep 15 warps busy. */
EXL2__PRIVATE exl2__cuda_slicing exl2__cuda_layout_slicing(const exl2__matrix_desc *parts, uint32_t count,
                                                           const exl2__cuda_limits *limits)
{
    exl2__cuda_slicing best = { 1, 0 };
    uint32_t strips = 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        strips += exl2__cuda_strips(&parts[i]);
    }
    strips = count == 2 ? 2 * (uint32_t)exl2__div_up(strips / 2, limits->ctas)
                        : (uint32_t)exl2__div_up(strips, limits->ctas);
    /* Room must be left for one stage of dense chunks (2,048 bytes each), or for two stages of others. Chunks of affine
       matrices have more scale words than limits->chunk_bytes says. */
    uint32_t more = parts[0].kind == EXL2__MATRIX_AFFINE ? EXL2K_AFFINE_BYTES * 8 - EXL2K_SCALE_BYTES_MAX : 0;
    uint32_t ring = parts[0].kind == EXL2__MATRIX_DENSE ? 2048 : 2 * (limits->chunk_bytes + more);
    uint32_t rings = EXL2K_GEMV_WARPS * ring + EXL2K_GEMV_SMALL_BYTES;
    uint32_t one = (parts[0].kind == EXL2__MATRIX_DENSE ? ring : ring / 2) * EXL2K_GEMV_WARPS + EXL2K_GEMV8_SMALL_BYTES;
    rings = exl2__max32(rings, one); /* products of 8 rows may have one stage */
    uint32_t room = limits->shared_bytes > rings ? (limits->shared_bytes - rings) / (count == 2 ? 1024 : 512) : 1;
    uint32_t slices = exl2__max32(1, exl2__min32(room, EXL2K_SLICES_MAX)), each = count == 2 ? strips / 2 : strips;
    exl2__cuda_slicing slicing = { slices, 0 };
    for (; slicing.slices > 0; slicing.slices -= slicing.rest, slicing.rest ^= 1) {
        uint64_t busiest = 0, turns = exl2__div_up(each, EXL2K_GEMV_WARPS / slicing.slices);
        uint64_t last = exl2__div_up(each, EXL2K_GEMV_WARPS); /* strips whose leftover chunks a warp has */
        for (uint32_t i = 0; i < count; i++) {
            exl2__cuda_layout l;
            exl2__cuda_layout_part(&l, &parts[i], slicing, limits->chunk_bytes, NULL, NULL);
            uint64_t stages = exl2__div_up(l.count - l.leftover, slicing.slices) * exl2__div_up(turns, 2);
            stages += l.leftover * exl2__div_up(last, 2);
            uint64_t load = l.slice_bytes_max * turns + l.leftover * last * l.chunk_bytes_max;
            load += EXL2__CUDA_CHUNK_COST * stages;
            busiest = count == 2 ? busiest + load : exl2__max64(busiest, load);
        }
        if (busiest < least) {
            least = busiest;
            best = slicing;
        }
    }
    return best;
}

/* Upper bound of the chunks of a part with `in` inputs. */
static inline uint32_t exl2__cuda_layout_chunks_max(uint32_t in)
{
    return (uint32_t)exl2__div_up(in, EXL2__CUDA_RECORD_ROWS) + EXL2__CUDA_REGIONS_MAX;
}

/* Fills in where parts begin, from their numbers of strips. */
static inline void exl2__cuda_matrix_firsts(exl2k_matrix *m)
{
    m->part[0].first = 0;
    for (uint32_t i = 1; i < m->parts && !m->interleaved; i++) {
        m->part[i].first = m->part[i - 1].first + m->part[i - 1].strips;
    }
    m->second = m->parts > 1 && !m->interleaved ? m->part[1].first : UINT32_MAX;
    m->third = m->parts > 2 ? m->part[2].first : UINT32_MAX;
}

/* ---- shared memory of a decode product ---- */

/* Fills in what a launch of `ctas` CTAs needs in *a (a->matrix and a->kind are set) for `rows` 1, 8 or 16, within
   `budget` bytes. It picks the first ring that leaves room for all strips of a CTA in one block, else the first ring
   that fits. With eight rows a smaller ring is better where it halves the number of blocks, as on GPUs with 100 KiB of
   shared memory: each warp loads and prepares its inputs again in each block, which costs more instructions than the
   product with a strip, and these GPUs read too little memory for an SM to need deep rings. Blocks of a CTA have nearly
   equal size. slots: of adapters, if the launch adds what they add (lora_args.h); else 0. Returns dynamic shared memory
   of the launch, 0 if the budget is too small. */
static inline uint32_t exl2__cuda_gemv_shared(exl2k_gemv_args *a, uint32_t chunk_bytes, uint32_t rows, uint32_t ctas,
                                              uint32_t budget, uint32_t slots, bool affine)
{
    static const struct { uint32_t stages, slot_strips; } rings[] = { { 2, 2 }, { 3, 1 }, { 2, 1 }, { 1, 1 } };
    uint32_t last = rows == 16 ? 3 : 4, unit = a->matrix.interleaved ? 2 : 1;
    uint32_t strip = (a->matrix.slices + a->matrix.rest + (slots > 0)) * rows * 64 * unit; /* bytes of partial sums */
    if (rows == 16 && unit == 2) { /* of one part at a time, and the totals of gate */
        strip = strip / 2 + rows * 64;
    }
    uint32_t most = rows == 1 ? EXL2K_GEMV_THREADS / 16 : EXL2K_GEMV_SQUARES / rows;
    uint32_t own = exl2__max32(1, (uint32_t)exl2__div_up(a->matrix.strips / unit, ctas));
    uint32_t others = rows == 1 ? EXL2K_GEMV_SMALL_BYTES : EXL2K_GEMV8_SMALL_BYTES;
    others = rows == 16 ? EXL2K_GEMV16_SMALL_BYTES(affine) : others;
    others += slots ? EXL2K_LORA_SMALL_BYTES(slots) : 0;
    most = a->kind == EXL2K_GEMV_RESIDUAL ? most : 64;
    a->x_step = a->x_step ? a->x_step : EXL2K_STEP;
    a->out_step = a->out_step ? a->out_step : EXL2K_STEP;
    a->slot_bytes = chunk_bytes;
    a->strips_per_cta = a->matrix.strips / unit / ctas;
    a->ctas_with_more = a->matrix.strips / unit % ctas;
    a->slices_inverse = 256 / a->matrix.slices + 1;
    a->groups_inverse = 65536 / (EXL2K_GEMV_WARPS / a->matrix.slices) + 1;
    uint32_t best = last, fewest = 0, taken = 0, room = 0;
    for (uint32_t i = rows == 1 ? 0 : 2; i < last; i++) {
        uint32_t bytes = rings[i].stages * rings[i].slot_strips * EXL2K_GEMV_WARPS * chunk_bytes + others;
        uint32_t fit = bytes < budget ? exl2__min32((budget - bytes) / strip, most) : 0;
        uint32_t blocks = fit > 0 ? (uint32_t)exl2__div_up(own, fit) : UINT32_MAX;
        bool all = fit >= exl2__min32(own, most);
        if (fit > 0 && (all || best == last || (rows > 1 && blocks <= fewest / 2))) {
            best = i;
            fewest = blocks;
            taken = bytes;
            room = fit;
        }
        if (all) {
            break;
        }
    }
    if (best == last) {
        return 0;
    }
    a->stages = rings[best].stages;
    a->slot_strips = rings[best].slot_strips;
    a->block = (uint32_t)exl2__div_up(own, exl2__div_up(own, room));
    uint32_t needed = taken + a->block * strip;
    return slots ? exl2__max32(needed, EXL2K_LORA_SHRINK_BYTES(slots)) : needed;
}

/* Changes what exl2__cuda_gemv_shared has filled in for 8 or 16 rows of a matrix with one slice, whose chunks are the
   given ones, to a launch of kernels whose chunks add to running sums (gemv.cuh): one block, with as many slots as
   there is room for. Returns dynamic shared memory of that launch; 0: it cannot be or would not pay, and nothing is
   changed. */
static inline uint32_t exl2__cuda_gemv_chain(exl2k_gemv_args *a, const exl2k_slice *chunks, uint32_t count,
                                             uint32_t rows, uint32_t budget)
{
    exl2k_matrix *m = &a->matrix;
    uint32_t own = a->strips_per_cta + (a->ctas_with_more > 0), ring = EXL2K_GEMV_WARPS * a->slot_bytes;
    uint32_t rounds = (uint32_t)exl2__div_up(count, EXL2K_SLICES_MAX), strip = rows * 64 + EXL2K_CHAIN_BYTES(rounds);
    uint32_t bytes = (rows == 16 ? EXL2K_GEMV16_SMALL_BYTES(0) : EXL2K_GEMV8_SMALL_BYTES) + own * strip;
    if (m->parts != 1 || m->slices != 1 || m->rest || rounds == 0 || rounds > EXL2K_PARTS_MAX
        || own < EXL2__CUDA_CHAIN_STRIPS || bytes + 2 * ring > budget) {
        return 0;
    }
    for (uint32_t part = rounds; part-- > 0;) {
        m->part[part] = m->part[0];
        for (uint32_t i = 0; i < EXL2K_SLICES_MAX; i++) {
            uint32_t k = part * EXL2K_SLICES_MAX + i;
            m->part[part].slice[i] = k < count ? chunks[k] : (exl2k_slice){ 0 };
        }
    }
    m->parts = rounds;
    m->interleaved = 1; /* all begin with strip 0 */
    m->slices = EXL2K_SLICES_MAX;
    a->slices_inverse = 256 / EXL2K_SLICES_MAX + 1;
    a->groups_inverse = 65536 / (EXL2K_GEMV_WARPS / EXL2K_SLICES_MAX) + 1;
    a->block = own;
    a->slot_strips = 1;
    a->stages = rows == 16 ? 2 : exl2__min32(EXL2K_GEMV_STAGES_MAX, (budget - bytes) / ring);
    return bytes + a->stages * ring;
}

#endif
