/* gemm_wg.cuh: the product of many rows by wgmma, on sm_90a: 32, 64, 128 or 256 rows x 128 columns per CTA, weights
   decoded in registers.
   takes: base.cuh, gemm_weights.cuh, gemm_results.cuh (parts of them), gemm_wg_args.h, wg.cuh.
   gives: exl2k_wg_products: the body of a kernel.
   owns:  nothing; included by gemm_wg32.cu to gemm_wg256.cu, by their twins for affine matrices and any family, and by
          gemm_wg_lora.cuh, whose products add what adapters add (LORAS: exl2k_lora_wg_args).

   A CTA has three warp groups of 128 threads. Groups 0 and 1 multiply: each has 64 columns, and each of its warps one
   strip. The third group copies: warp 0 the inputs, warps 1 and 2 the weights of groups 0 and 1.

   OPERANDS. A of wgmma is 64 columns of the matrix x 16 inputs, in registers: the lane words of a record decode to it
   as they are. B is N rows x 16 inputs in shared memory. It has the inputs in the order of the record's steps:
   position 16 j + 8 i + 2 t + e of 32 inputs is input 8 t + 4 j + 2 i + e (t 0..3, the others 0 or 1), which is input
   e of pair 2 i of step j in lane t (unpack.cuh).

   Whoever writes the inputs writes them in this order, as tiles (wg_tiles.cuh): then 32 inputs of all rows of a CTA,
   which is what half of a record needs, are one bulk copy.

   PIPELINE. For half of a record a warp group decodes 64 columns x 32 inputs, starts two products, and waits for those
   of the half before. So the operands of the two halves take turns, and decoding overlaps with the products of both
   groups. The words of the next record are loaded meanwhile. There is a loop for each width. Where the assembler does
   not see which operands are in use, it waits after each product (remarks C7513, C7520; tests/kernels.c looks for
   them).

   Tiles of up to 64 rows: issuing instructions is what counts, and products are short. Two CTAs run on an SM, and a warp
   waits for all products of a record before it decodes the next one, so that the loops of all widths share the registers
   of their operands.

   BITS. The sums of a row are one chain over K in every size of tile, so they depend on the matrix and, if K is split,
   on the splits; never on the other rows and not on N.

   WHERE TIME GOES: see tests/device/NOTES.md. Products alone take 1,190 us for a layer of 8B and 2,048 rows on an H100,
   decoding adds little, and the inputs, which come from L2, a fifth. */
#ifndef EXL2K_GEMM_WG_CUH
#define EXL2K_GEMM_WG_CUH

#include "base.cuh"
#include "gemm_wg_args.h"
#include "gemm_results.cuh"
#include "gemm_weights.cuh"
#include "wg.cuh"
#include "wg_tiles.cuh"

#if __CUDA_ARCH__ == 900

/* ---- wgmma ---- */

#define EXL2K_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
                    "+f"(d[i + 6]), "+f"(d[i + 7])
#define EXL2K_D32(i) EXL2K_D8(i), EXL2K_D8(i + 8), EXL2K_D8(i + 16), EXL2K_D8(i + 24)
#define EXL2K_D0_TO_15 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define EXL2K_D0_TO_31 EXL2K_D0_TO_15 \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define EXL2K_D32_TO_63 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define EXL2K_D64_TO_127 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define EXL2K_A4 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b)
/* A product of n rows up to its sums, and after its operand A. low: operand with the low word of the descriptor. */
#define EXL2K_WGMMA(n, low) \
    "{\n.reg .b64 b;\nmov.b64 b, {%" #low ", 0x80000020};\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {"
#define EXL2K_WGMMA_END ", b, 1, 1, 1, 0;\n}"

/* Starts d[64 x N] += a[64 x 16] b[16 x N]. Lane 4 g + t of warp w has in d[4 i + e]: column 16 w + g + 8 (e / 2), row
   8 i + 2 t + e % 2. b: descriptor of the inputs. */
template <u32 N> EXL2K_FN void exl2k_wgmma(f32 *d, const u32 a[4], u32 b)
{
    if constexpr (N == 32) {
        asm volatile(EXL2K_WGMMA(32, 20) EXL2K_D0_TO_15
                     "}, {%16, %17, %18, %19}" EXL2K_WGMMA_END : EXL2K_D8(0), EXL2K_D8(8) : EXL2K_A4);
    } else if constexpr (N == 64) {
        asm volatile(EXL2K_WGMMA(64, 36) EXL2K_D0_TO_31
                     "}, {%32, %33, %34, %35}" EXL2K_WGMMA_END : EXL2K_D32(0) : EXL2K_A4);
    } else if constexpr (N == 128) {
        asm volatile(EXL2K_WGMMA(128, 68) EXL2K_D0_TO_31
                     EXL2K_D32_TO_63 "}, {%64, %65, %66, %67}" EXL2K_WGMMA_END
                     : EXL2K_D32(0), EXL2K_D32(32) : EXL2K_A4);
    } else {
        asm volatile(EXL2K_WGMMA(256, 132) EXL2K_D0_TO_31
                     EXL2K_D32_TO_63 EXL2K_D64_TO_127 "}, {%128, %129, %130, %131}" EXL2K_WGMMA_END
                     : EXL2K_D32(0), EXL2K_D32(32), EXL2K_D32(64), EXL2K_D32(96) : EXL2K_A4);
    }
}

/* ---- a CTA's shared memory ---- */

/* Stages hold two halves of N rows. Halves are numbered from the first of the kernel on; a tile begins with an even
   number. Slots hold a chunk of four strips, with its table entry, for a warp group. */
typedef struct exl2k_wg_shared {
    u32 base;    /* barriers: u64 [16] stages full, [16] empty; then for each warp group [8] slots full, [8] empty; then
                    u32: this CTA is the last split of its tile */
    u32 full;    /* barriers of the slots of this thread's warp group */
    u32 inputs;  /* stages */
    u32 weights; /* slots of this thread's warp group */
    u32 exchange; /* results on their way between the groups */
} exl2k_wg_shared;

enum { EXL2K_WG_EMPTY = 128, EXL2K_WG_SLOT_BARRIERS = 256, EXL2K_WG_SLOT_EMPTY = 64, EXL2K_WG_LAST = 512 };

/* group: which warp group's weights. */
template <u32 N> EXL2K_FN exl2k_wg_shared exl2k_wg_shared_of(u32 base, u32 group)
{
    constexpr u32 weights = EXL2K_GEMM_BARRIERS + N * 128 * EXL2K_WG_STAGES(N);
    constexpr u32 ring = EXL2K_WG_SLOT_BYTES(EXL2K_AFFINE) * EXL2K_WG_SLOTS(N, EXL2K_AFFINE);
    exl2k_wg_shared s = { base, base + EXL2K_WG_SLOT_BARRIERS + group * 128, base + EXL2K_GEMM_BARRIERS,
                          base + weights + group * ring, base + weights + 2 * ring };
    return s;
}

/* LORAS of products that add nothing. */
typedef struct exl2k_wg_no_loras {
} exl2k_wg_no_loras;

template <class LORAS> EXL2K_FN constexpr bool exl2k_wg_adapts(void) { return sizeof(LORAS) != sizeof(exl2k_wg_no_loras); }

/* A stage or slot, from the number of stages or slots before it: its barrier and the parity of its round. */
typedef struct exl2k_wg_place {
    u32 index, parity;
} exl2k_wg_place;

template <u32 COUNT> EXL2K_FN exl2k_wg_place exl2k_wg_place_of(u32 number)
{
    exl2k_wg_place p = { number % COUNT, number / COUNT & 1 };
    return p;
}

/* A barrier of the two warp groups that multiply. */
EXL2K_FN void exl2k_wg_sync(void) { asm volatile("bar.sync 1, 256;" ::: "memory"); }

/* ---- tiles of the output ---- */

/* One tile of the output, and one split of K, for one warp group. */
typedef struct exl2k_wg_job {
    u32 part, strip; /* of warp 0 of the group */
    u32 row;         /* first row */
    u32 low, high;   /* the records that begin in these halves */
    u32 end;         /* the tile's inputs are the halves [low, end) */
} exl2k_wg_job;

template <u32 N> EXL2K_FN exl2k_wg_job exl2k_wg_job_of(const exl2k_gemm_args &a, u32 work, u32 group)
{
    const exl2k_matrix &m = a.matrix;
    u32 tile = work / a.splits, column = tile / a.row_tiles, halves = (m.rows + 31) / 32;
    exl2k_wg_job p = { 0, 0, tile % a.row_tiles * N, work % a.splits * a.halves, 0, 0 };
    p.high = exl2k_min(p.low + a.halves, halves);
    p.end = exl2k_min(p.high + 1, halves);
    if (a.kind == EXL2K_GEMM_ACT) { /* group 0 has four strips of gate, group 1 the same strips of up */
        p.part = group;
        p.strip = column * 4;
        return p;
    }
    /* Columns of tiles follow one another part by part; find the tile's part. */
    for (u32 i = 0; i + 1 < EXL2K_PARTS_MAX; i++) {
        u32 tiles = (m.part[i].strips + 7) / 8;
        if (p.part == i && i + 1 < m.parts && column >= tiles) {
            column -= tiles;
            p.part++;
        }
    }
    p.strip = column * 8 + group * 4;
    return p;
}

EXL2K_FN u32 exl2k_wg_works(const exl2k_gemm_args &a) { return a.row_tiles * a.column_tiles * a.splits; }

/* Whether it is the last split of its tile, which adds what adapters add. */
EXL2K_FN bool exl2k_wg_is_last(const exl2k_gemm_args &a, u32 work) { return work % a.splits + 1 == a.splits; }

/* ---- what adapters add: nothing; gemm_wg_lora.cuh has the other functions of these names ---- */

/* The first adapter of a tile. */
template <u32 N> EXL2K_FN u32 exl2k_wg_lora_first(const exl2k_gemm_args &, const exl2k_wg_no_loras &, const exl2k_wg_job &)
{
    return 0;
}

/* Copies t of a tile, from the first adapter on. count: stages before, and then after it. */
template <u32 N>
EXL2K_FN void exl2k_wg_copy_t(const exl2k_gemm_args &, const exl2k_wg_no_loras &, const exl2k_wg_shared &,
                              const exl2k_wg_job &, u32, u32 &)
{
}

/* Copies B of a warp group's columns of a tile. count: slots before, and then after it. */
template <u32 N>
EXL2K_FN void exl2k_wg_copy_b(const exl2k_gemm_args &, const exl2k_wg_no_loras &, const exl2k_wg_shared &,
                              const exl2k_wg_job &, u32, u32 &)
{
}

/* d += B t over all blocks of the tile. Returns after the last product has ended. */
template <u32 N, class CURSOR>
EXL2K_FN void exl2k_wg_add_loras(f32 *, CURSOR &, const exl2k_wg_no_loras &, const exl2k_wg_shared &, bool)
{
}

/* ---- the warps that copy ---- */

/* Copies the inputs of all tiles of this CTA, two halves at a time. One thread runs it; with adapters one warp. */
template <u32 N, class LORAS>
EXL2K_FN void exl2k_wg_copy_inputs(const exl2k_gemm_args &a, const LORAS &l, const exl2k_wg_shared &s)
{
    u32 count = 0, copies = !exl2k_wg_adapts<LORAS>() || threadIdx.x % EXL2K_WARP == 0;
#pragma unroll 1
    for (u32 work = blockIdx.x; work < exl2k_wg_works(a); work += gridDim.x) {
        exl2k_wg_job p = exl2k_wg_job_of<N>(a, work, 0);
        auto use = exl2k_wg_lora_first<N>(a, l, p);
        if (exl2k_wg_adapts<LORAS>() && work == blockIdx.x) {
            exl2k_dependency_wait(); /* sets and tables are older than the kernel before */
        }
        u32 bytes = exl2k_min(N, a.x_pitch - p.row) * 64;
        u64 from = a.x + ((u64)p.low * a.x_pitch + p.row) * 64, next = (u64)a.x_pitch * 64;
#pragma unroll 1
        for (u32 half = p.low; half < p.end && copies; half += 2, count++, from += 2 * next) {
            exl2k_wg_place stage = exl2k_wg_place_of<EXL2K_WG_STAGES(N)>(count);
            u32 full = s.base + stage.index * 8, to = s.inputs + stage.index * N * 128, two = half + 1 < p.end;
            exl2k_barrier_wait(full + EXL2K_WG_EMPTY, stage.parity ^ 1); /* passes in the first round */
            exl2k_barrier_expect(full, bytes << two);
            exl2k_weights_bulk(to, from, bytes, full);
            if (two) {
                exl2k_weights_bulk(to + N * 64, from + next, bytes, full);
            }
        }
        if (exl2k_wg_adapts<LORAS>()) {
            count += copies ? 0 : (p.end - p.low + 1) / 2;
            if (exl2k_wg_is_last(a, work)) {
                exl2k_wg_copy_t<N>(a, l, s, p, use, count);
            }
        }
    }
}

/* Copies the chunks of a warp group's four strips: lanes 0 to 3 a strip each, lane 4 the table entry. */
template <u32 N, class LORAS>
EXL2K_FN void exl2k_wg_copy_weights(const exl2k_gemm_args &a, const LORAS &l, const exl2k_wg_shared &s, u32 group)
{
    u32 lane = threadIdx.x % EXL2K_WARP, count = 0;
#pragma unroll 1
    for (u32 work = blockIdx.x; work < exl2k_wg_works(a); work += gridDim.x) {
        exl2k_wg_job p = exl2k_wg_job_of<N>(a, work, group);
        const exl2k_part &q = a.matrix.part[p.part];
        auto use = exl2k_wg_lora_first<N>(a, l, p);
        /* strips beyond the last repeat the last, and are never stored */
        u64 strip = q.base + (u64)exl2k_min(p.strip + lane % 4, q.strips - 1) * q.pitch;
        u32 to = lane == 4 ? 0 : EXL2K_GEMM_ENTRY + lane * EXL2K_WG_CHUNK_BYTES(EXL2K_AFFINE);
        /* Each lane reads one table entry; then the warp copies those chunks that the split has records of. */
#pragma unroll 1
        for (u32 first = 0; first < q.chunk_count; first += EXL2K_WARP) {
            uint4 c = make_uint4(0, 0, 0, 0);
            if (first + lane < q.chunk_count) {
                c = exl2k_load_constant4(q.chunks + (first + lane) * sizeof(exl2k_chunk));
            }
            u32 row = c.y & 0xFFFF, after = row + 2 * (c.z >> 8 & 255); /* the last record begins at after - 2 */
            u32 wanted = __ballot_sync(EXL2K_ALL, c.y >> 16 && row < p.high && after >= p.low + 2);
#pragma unroll 1
            for (; wanted; wanted &= wanted - 1, count++) {
                exl2k_wg_place slot = exl2k_wg_place_of<EXL2K_WG_SLOTS(N, EXL2K_AFFINE)>(count);
                u32 index = __ffs(wanted) - 1, offset16 = __shfl_sync(EXL2K_ALL, c.x, index);
                u32 bytes = (__shfl_sync(EXL2K_ALL, c.y, index) >> 16) * 16, full = s.full + slot.index * 8;
                exl2k_barrier_wait(full + EXL2K_WG_SLOT_EMPTY, slot.parity ^ 1);
                if (lane == 0) {
                    exl2k_barrier_expect(full, EXL2K_GEMM_ENTRY + 4 * bytes);
                }
                __syncwarp();
                if (lane < 5) {
                    u64 from = lane == 4 ? q.chunks + (first + index) * sizeof(exl2k_chunk) : strip + offset16 * 16ull;
                    exl2k_weights_bulk(s.weights + slot.index * EXL2K_WG_SLOT_BYTES(EXL2K_AFFINE) + to, from,
                                       lane == 4 ? EXL2K_GEMM_ENTRY : bytes, full);
                }
            }
        }
        if (exl2k_wg_adapts<LORAS>() && exl2k_wg_is_last(a, work)) {
            exl2k_wg_copy_b<N>(a, l, s, p, use, count);
        }
    }
}

/* ---- records ---- */

/* Where a warp group is. */
typedef struct exl2k_wg_cursor {
    u32 slots;        /* slots before the open one */
    u32 halves;       /* halves before the next record */
    u32 released;     /* stages released so far */
    u32 slot, codes, scales; /* shared addresses: of the open slot, of this warp's codes, of this lane's scale words */
    u32 offsets;      /* a byte for each record: offset of its scale words, + 1 if its second half has others */
    u32 record;       /* the next record */
#if EXL2K_WG_PACKED
    u32 packed;       /* width, last << 8, whole << 16 */
#else
    u32 width;        /* of the open chunk */
    u32 whole;        /* records that have two halves */
    u32 last;         /* the chunk's records that begin in the tile's halves end here */
#endif
} exl2k_wg_cursor;

#if EXL2K_WG_PACKED
EXL2K_FN u32 exl2k_wg_width(const exl2k_wg_cursor &c) { return c.packed & 255; }
EXL2K_FN u32 exl2k_wg_last(const exl2k_wg_cursor &c) { return c.packed >> 8 & 255; }
EXL2K_FN u32 exl2k_wg_whole(const exl2k_wg_cursor &c) { return c.packed >> 16; }
EXL2K_FN void exl2k_wg_set(exl2k_wg_cursor &c, u32 width, u32 last, u32 whole)
{
    c.packed = width | last << 8 | whole << 16;
}
#else
EXL2K_FN u32 exl2k_wg_width(const exl2k_wg_cursor &c) { return c.width; }
EXL2K_FN u32 exl2k_wg_last(const exl2k_wg_cursor &c) { return c.last; }
EXL2K_FN u32 exl2k_wg_whole(const exl2k_wg_cursor &c) { return c.whole; }
EXL2K_FN void exl2k_wg_set(exl2k_wg_cursor &c, u32 width, u32 last, u32 whole)
{
    c.width = width;
    c.last = last;
    c.whole = whole;
}
#endif

/* A record on its way to operands: its words, and its inputs. */
typedef struct exl2k_wg_record {
    u32 w[8], scales[2], maxima; /* scale words of both halves */
    u32 others[2];               /* affine: those of column g + 8; the ones above are of column g */
    u32 half;                    /* number of its first half */
} exl2k_wg_record;

/* The codes of this warp's strip in a slot. */
EXL2K_FN u32 exl2k_wg_codes(u32 slot)
{
    return slot + EXL2K_GEMM_ENTRY + threadIdx.x / EXL2K_WARP % 4 * EXL2K_WG_CHUNK_BYTES(EXL2K_AFFINE);
}

/* Low word of the descriptor of a half of the inputs. The high word is that of all (EXL2K_WGMMA): 64-byte swizzle, 512
   bytes from 8 rows to the next 8. */
template <u32 N> EXL2K_FN u32 exl2k_wg_inputs(const exl2k_wg_shared &s, u32 number)
{
    return (1u << 16 | s.inputs >> 4) + number % (2 * EXL2K_WG_STAGES(N)) * (N * 4);
}

/* Whether a half has arrived; exl2k_wg_wait_inputs waits for it. */
template <u32 N> EXL2K_FN u32 exl2k_wg_inputs_arrived(const exl2k_wg_shared &s, u32 number)
{
    exl2k_wg_place stage = exl2k_wg_place_of<EXL2K_WG_STAGES(N)>(number / 2);
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(s.base + stage.index * 8), "r"(stage.parity) : "memory");
    return done;
}

template <u32 N> EXL2K_FN void exl2k_wg_wait_inputs(const exl2k_wg_shared &s, u32 number)
{
    exl2k_wg_place stage = exl2k_wg_place_of<EXL2K_WG_STAGES(N)>(number / 2);
    exl2k_barrier_wait(s.base + stage.index * 8, stage.parity);
}

/* Releases the stage before the one that has half `until`, unless it has been: a record ends at most one. Each warp
   arrives for itself, as only its own products are known to have ended. */
template <u32 N> EXL2K_FN void exl2k_wg_release(exl2k_wg_cursor &c, const exl2k_wg_shared &s, u32 until)
{
    u32 due = c.released != until / 2 && threadIdx.x % EXL2K_WARP == 0;
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p mbarrier.arrive.shared.b64 _, [%0];\n}"
                 ::"r"(s.base + EXL2K_WG_EMPTY + c.released % EXL2K_WG_STAGES(N) * 8), "r"(due) : "memory");
    c.released = until / 2;
}

/* The offsets of the scale words of a chunk's records, from `ends` and `by_half` of its table entry. */
EXL2K_FN u32 exl2k_wg_offsets(u32 ends, u32 by_half)
{
    u32 offsets = 0x19110901u; /* 2 words for each record */
    if (!by_half) {
        u32 ended = ends * 4; /* a byte for each record: 4 if a group ended with the record before */
        offsets = (ended & 4) << 8 | (ended & 8) << 15 | (ended & 16) << 22;
        offsets += offsets << 8;
        offsets += offsets << 16;
    }
    return offsets;
}

/* Opens the chunk whose first half is at most `half`, at its first record that begins in the tile's halves. */
template <u32 N>
EXL2K_FN void exl2k_wg_open(exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p, u32 half)
{
    exl2k_wg_place slot = exl2k_wg_place_of<EXL2K_WG_SLOTS(N, EXL2K_AFFINE)>(c.slots);
    exl2k_barrier_wait(s.full + slot.index * 8, slot.parity);
    c.slot = s.weights + slot.index * EXL2K_WG_SLOT_BYTES(EXL2K_AFFINE);
    uint4 entry = exl2k_shared_load4(c.slot);
    u32 row = entry.y & 0xFFFF, records = entry.z >> 8 & 255, groups = entry.z >> 16 & 255;
    u32 width = __shfl_sync(EXL2K_ALL, entry.z & 255, 0);
    c.offsets = exl2k_wg_offsets(entry.w & 255, entry.z >> 24);
    c.record = row < p.low ? (p.low - row + 1) / 2 : 0;
    exl2k_wg_set(c, width, exl2k_min(records, (p.high - row + 1) / 2), (entry.w >> 8 & 255) / 2);
    c.codes = exl2k_wg_codes(c.slot);
    c.scales = c.codes + records * exl2k_bits(width) * 128
               + exl2k_scales_of_lane(groups, threadIdx.x % EXL2K_WARP);
    if (row + 2 * c.record > half) { /* the first half belongs to a record of the split before */
        exl2k_wg_wait_inputs<N>(s, c.halves++);
    }
}

/* Opens the next chunk after the last record of a chunk; false at the end of the tile. */
template <u32 N> EXL2K_FN bool exl2k_wg_next(exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p)
{
    uint4 entry = exl2k_shared_load4(c.slot);
    u32 half = (entry.y & 0xFFFF) + exl2k_min(2 * exl2k_wg_last(c), entry.w >> 8 & 255);
    exl2k_barrier_arrive(s.full + EXL2K_WG_SLOT_EMPTY + c.slots % EXL2K_WG_SLOTS(N, EXL2K_AFFINE) * 8);
    c.slots++;
    if (half >= p.high) {
        return false;
    }
    exl2k_wg_open<N>(c, s, p, half);
    return true;
}

template <u32 W> EXL2K_FN void exl2k_wg_load(exl2k_wg_record &r, exl2k_wg_cursor &c)
{
    u32 offset = exl2k_permute_bytes(c.offsets, 0, 0x4440u + c.record);
    u32 at = c.scales + (offset & 0xFC) * (EXL2K_GROUP_BYTES / 4);
    exl2k_lane_words<W>(c.codes + c.record * (exl2k_width<W>::bits * 128), threadIdx.x % EXL2K_WARP, r.w);
    if (EXL2K_AFFINE) {
#pragma unroll
        for (u32 half = 0; half < 2; half++, at += (offset & 1) * EXL2K_GROUP_BYTES) {
            uint2 words = exl2k_shared_load2(at);
            r.scales[half] = words.x;
            r.others[half] = words.y;
        }
    } else {
        r.scales[0] = exl2k_shared_load(at);
        r.scales[1] = exl2k_shared_load(at + (offset & 1) * 4);
        r.maxima = exl2k_shared_load(c.slot + 16 + c.record * 4);
    }
    r.half = c.halves;
    c.halves += c.record < exl2k_wg_whole(c) ? 2 : 1;
    c.record++;
}

/* The scales of half of a record: of column g, and of column g + 8, in both halves of a pair; affine: then the zeros. */
EXL2K_FN uint4 exl2k_wg_scales(const exl2k_wg_record &r, u32 half)
{
    if (EXL2K_AFFINE) {
        u32 left = r.scales[half], right = r.others[half];
        return make_uint4(exl2k_permute_bytes(left, 0, 0x1010u), exl2k_permute_bytes(right, 0, 0x1010u),
                          exl2k_permute_bytes(left, 0, 0x3232u), exl2k_permute_bytes(right, 0, 0x3232u));
    }
    u32 maximum = exl2k_permute_bytes(r.maxima, 0, half ? 0x3232u : 0x1010u);
    u32 pair = exl2k_scale_pair(r.scales[half], threadIdx.x % EXL2K_WARP / 4, maximum);
    return make_uint4(exl2k_permute_bytes(pair, 0, 0x1010u), exl2k_permute_bytes(pair, 0, 0x3232u), 0, 0);
}

/* Decodes step j of a record to weights: fp16(code * scale), affine: fp16(fp16(code - zero) * scale). */
template <u32 W> EXL2K_FN void exl2k_wg_decode(u32 a[4], const exl2k_wg_record &r, u32 j, const uint4 &scales)
{
    exl2k_decode<W, false>(r.w, j, a);
#pragma unroll
    for (u32 i = 0; EXL2K_AFFINE && i < 4; i++) {
        a[i] = exl2k_sub2(a[i], i % 2 ? scales.w : scales.z);
    }
    a[0] = exl2k_mul2(a[0], scales.x);
    a[1] = exl2k_mul2(a[1], scales.y);
    a[2] = exl2k_mul2(a[2], scales.x);
    a[3] = exl2k_mul2(a[3], scales.y);
}

/* ---- sums ---- */

/* Decodes half of a record, starts its products, and waits for those of the half before. */
template <u32 N, u32 W> EXL2K_FN void exl2k_wg_half(f32 *d, u32 op[2][4], const exl2k_wg_record &r, u32 half,
                                                    u32 number, u32 last, const exl2k_wg_shared &s)
{
    /* Ask for the inputs before decoding, so that the answer is ready after it. The record's second half may be in the
       next stage. */
    u32 arrived = half == 1 || exl2k_wg_inputs_arrived<N>(s, last);
    uint4 scales = exl2k_wg_scales(r, half);
    exl2k_wg_decode<W>(op[0], r, 2 * half, scales);
    exl2k_wg_decode<W>(op[1], r, 2 * half + 1, scales);
    if (!arrived) {
        exl2k_wg_wait_inputs<N>(s, last);
    }
    u32 b = exl2k_wg_inputs<N>(s, number);
    exl2k_wg_begin();
    exl2k_wgmma<N>(d, op[0], b);
    exl2k_wgmma<N>(d, op[1], b + 2); /* the next 16 inputs: 32 bytes */
    exl2k_wg_commit();
    exl2k_wg_wait<1>();
}

/* d += W x over the records from the cursor's on that have the width W; false at the end of the tile. */
template <u32 N, u32 W>
EXL2K_FN bool exl2k_wg_region(f32 *d, exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) == 0) {
        return false;
    }
    exl2k_operand op;
    exl2k_wg_record r;
    exl2k_wg_load<W>(r, c);
#pragma unroll 1
    for (;;) {
        exl2k_wg_half<N, W>(d, op, r, 0, r.half, c.halves - 1, s);
        exl2k_wg_release<N>(c, s, r.half);
        /* A missing second half has weights of 0, so any finite inputs serve. */
        exl2k_wg_half<N, W>(d, op + 2, r, 1, c.halves - 1, c.halves - 1, s);
        if (c.record == exl2k_wg_last(c)) {
            bool more = exl2k_wg_next<N>(c, s, p);
            if (!more || exl2k_wg_width(c) != W) {
                exl2k_wg_wait<0>();
                return more;
            }
        }
        exl2k_wg_load<W>(r, c);
        if (N <= 64) {
            exl2k_wg_wait<0>();
        }
    }
}

/* d = W x over the records that begin in the tile's halves. */
template <u32 N>
EXL2K_FN void exl2k_wg_sum(f32 *d, exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p)
{
    u32 end = c.halves + p.end - p.low;
#pragma unroll
    for (u32 i = 0; i < N / 2; i++) {
        d[i] = 0.0f;
    }
    exl2k_wg_open<N>(c, s, p, p.low);
    bool more = true;
#pragma unroll 1
    while (more) {
        switch (exl2k_wg_width(c)) {
        case EXL2K_W2: more = exl2k_wg_region<N, EXL2K_W2>(d, c, s, p); break;
        case EXL2K_W3: more = exl2k_wg_region<N, EXL2K_W3>(d, c, s, p); break;
        case EXL2K_W4: more = exl2k_wg_region<N, EXL2K_W4>(d, c, s, p); break;
        case EXL2K_W5: more = exl2k_wg_region<N, EXL2K_W5>(d, c, s, p); break;
        case EXL2K_W6: more = exl2k_wg_region<N, EXL2K_W6>(d, c, s, p); break;
        default: more = exl2k_wg_region<N, EXL2K_W8>(d, c, s, p); break;
        }
    }
    /* Without this the compiler may copy sums before the wait. */
#pragma unroll
    for (u32 i = 0; i < N / 2; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
    /* The last half may belong to a record of the next split. */
    if (c.halves != end) {
        exl2k_wg_wait_inputs<N>(s, c.halves++);
    }
    c.halves = end + end % 2;
#pragma unroll 1
    while (c.released != c.halves / 2) {
        exl2k_wg_release<N>(c, s, 2 * c.released + 2);
    }
}

/* ---- splits ---- */

/* Stores the sums of a split; whether this warp (ACT: this CTA, as the groups exchange sums) is the last to do so of
   those that have the same columns and rows. A block has [N / 8][256 threads] times four sums. */
template <u32 N>
EXL2K_FN bool exl2k_wg_split_ends(const f32 *d, const exl2k_gemm_args &a, const exl2k_wg_shared &s, u32 work)
{
    bool act = a.kind == EXL2K_GEMM_ACT;
    u64 own = a.partial + (u64)work * (N * 512) + threadIdx.x * 16;
    u64 ticket = a.tickets + (work / a.splits * 8 + (act ? 0 : threadIdx.x / EXL2K_WARP)) * 4;
    u32 last = 0;
#pragma unroll
    for (u32 i = 0; i < N / 8; i++) {
        exl2k_store4(own + i * 4096, make_uint4(__float_as_uint(d[4 * i]), __float_as_uint(d[4 * i + 1]),
                                                __float_as_uint(d[4 * i + 2]), __float_as_uint(d[4 * i + 3])));
    }
    if (act) {
        exl2k_wg_sync();
    }
    __syncwarp();
    if (act ? threadIdx.x == 0 : threadIdx.x % EXL2K_WARP == 0) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory"); /* of all that arrived at the barrier before */
        last = atomicInc((u32 *)ticket, a.splits - 1) == a.splits - 1;
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        exl2k_shared_store(s.base + EXL2K_WG_LAST, last);
    }
    if (act) {
        exl2k_wg_sync();
        return exl2k_shared_load(s.base + EXL2K_WG_LAST);
    }
    return __shfl_sync(EXL2K_ALL, last, 0);
}

/* Adds up 16 sums of a thread over all splits, in their order: of blocks b to b + 3 of eight rows. BATCH: splits whose
   sums are loaded at a time. */
template <u32 N, u32 BATCH> EXL2K_FN void exl2k_wg_join(f32 *d, const exl2k_gemm_args &a, u32 work, u32 b)
{
    u64 from = a.partial + (u64)(work / a.splits * a.splits) * (N * 512) + threadIdx.x * 16 + b * 4096;
#pragma unroll
    for (u32 i = 0; i < 16; i++) {
        d[i] = 0.0f;
    }
#pragma unroll 1
    for (u32 split = 0; split < a.splits; split += BATCH) {
        uint4 v[BATCH][4];
#pragma unroll
        for (u32 i = 0; i < BATCH * 4; i++) {
            u32 number = exl2k_min(split + i / 4, a.splits - 1);
            v[i / 4][i % 4] = exl2k_load4(from + (u64)number * (N * 512) + i % 4 * 4096);
        }
#pragma unroll
        for (u32 i = 0; i < BATCH * 4; i++) {
            if (split + i / 4 < a.splits) {
                d[4 * (i % 4)] += __uint_as_float(v[i / 4][i % 4].x);
                d[4 * (i % 4) + 1] += __uint_as_float(v[i / 4][i % 4].y);
                d[4 * (i % 4) + 2] += __uint_as_float(v[i / 4][i % 4].z);
                d[4 * (i % 4) + 3] += __uint_as_float(v[i / 4][i % 4].w);
            }
        }
    }
}

/* ---- results ---- */

/* Rows below x of a column are stored, rows below y are added to. */
EXL2K_FN void exl2k_wg_put(uint2 below, u32 row, u64 at, f32 v)
{
    exl2k_sleep(32);
    asm volatile("{\n.reg .pred p, q;\nsetp.lt.u32 p, %0, %1;\nsetp.lt.u32 q, %0, %2;\n@p st.global.f32 [%3], %4;\n"
                 "@q red.relaxed.gpu.global.add.f32 [%3], %4;\n}"
                 ::"r"(row), "r"(below.x), "r"(below.y), "l"(at), "f"(v) : "memory");
}

/* STORE and RESIDUAL of COUNT sums of a thread, whose rows begin with `first` of the tile. Eight lanes have eight
   columns of one row, which are 32 bytes of it. One thread adds to an output, so the order of additions does not
   matter. */
template <u32 COUNT>
EXL2K_FN void exl2k_wg_store(const f32 *d, const exl2k_gemm_args &a, const exl2k_wg_job &p, u32 first)
{
    u32 lane = threadIdx.x % EXL2K_WARP, n = (p.strip + threadIdx.x / EXL2K_WARP % 4) * 16 + lane / 4;
    const exl2k_part &q = a.matrix.part[p.part];
    f32 left = exl2k_bias_of(q, n), right = exl2k_bias_of(q, n + 8);
    f32 scale = EXL2K_ANY && a.kind == EXL2K_GEMM_RESIDUAL ? a.scale : 1.0f;
    u32 row = p.row + first + lane % 4 * 2, line = a.out_pitch * 4, add = a.kind == EXL2K_GEMM_RESIDUAL;
    uint2 all = make_uint2(add ? 0 : a.rows, add ? a.rows : 0), none = make_uint2(0, 0);
    uint2 left_rows = n < q.columns ? all : none, right_rows = n + 8 < q.columns ? all : none;
    u64 at = a.out + ((u64)row * a.out_pitch + q.column + n) * 4;
#pragma unroll
    for (u32 i = 0; i < COUNT; i += 4, row += 8, at += 8 * (u64)line) {
        exl2k_wg_put(left_rows, row, at, (d[i] + left) * scale);
        exl2k_wg_put(left_rows, row + 1, at + line, (d[i + 1] + left) * scale);
        exl2k_wg_put(right_rows, row, at + 32, (d[i + 2] + right) * scale);
        exl2k_wg_put(right_rows, row + 1, at + line + 32, (d[i + 3] + right) * scale);
    }
}

/* Transposes an 8 x 8 matrix of halves: a lane 4 g + t gives elements 2 t, 2 t + 1 of row g, and gets these of the
   transposed matrix. */
EXL2K_FN u32 exl2k_wg_transpose(u32 v)
{
    u32 d;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(v));
    return d;
}

/* SiLU or GELU by tanh, which are both v / (1 + e^-(linear v + cubic v^3)): without a branch, as the code is repeated for
   each sum. */
EXL2K_FN f32 exl2k_wg_gate(f32 v, f32 linear, f32 cubic)
{
    return EXL2K_ANY ? v * exl2k_reciprocal(1.0f + __expf(-v * fmaf(cubic * v, v, linear))) : exl2k_silu_quick(v);
}

/* ACT: act(gate) * up. The groups exchange sums: group 0 gets both factors of the first half of the rows, group 1 of
   the second. The results are tiles as the inputs are, and the columns are in the order of their reader: lane t of a row has
   columns 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of the strip, which are half of chunk t (wg_tiles.cuh). */
template <u32 N> EXL2K_FN void exl2k_wg_act(const f32 *d, const exl2k_gemm_args &a, const exl2k_wg_shared &s,
                                            const exl2k_wg_job &p)
{
    constexpr u32 blocks = N / 16, step = blocks < 4 ? blocks : 4; /* blocks of 8 rows for each group */
    u32 lane = threadIdx.x % EXL2K_WARP, group = threadIdx.x / 128, strip = p.strip + threadIdx.x / EXL2K_WARP % 4;
    u32 n = strip * 16 + lane / 4, row = p.row + group * (N / 2) + lane / 4;
    u32 mine = s.exchange + threadIdx.x * 16, other = s.exchange + (threadIdx.x ^ 128) * 16;
    const exl2k_part &gate_part = a.matrix.part[0], &up_part = a.matrix.part[1];
    f32 gate_bias[2] = { exl2k_bias_of(gate_part, n), exl2k_bias_of(gate_part, n + 8) };
    f32 up_bias[2] = { exl2k_bias_of(up_part, n), exl2k_bias_of(up_part, n + 8) };
    bool tanh = a.act == EXL2K_ACT_GELU_TANH; /* exl2k_gelu_tanh */
    f32 linear = tanh ? 1.5957691216f : 1.0f, cubic = tanh ? 1.5957691216f * 0.044715f : 0.0f;
    u64 at = a.out + exl2k_wg_chunk_at(strip / 2, lane % 4, row, a.out_pitch) + strip % 2 * 8;
#pragma unroll
    for (u32 block = 0; block < blocks; block += step) {
        f32 kept[4 * step];
#pragma unroll
        for (u32 i = 0; i < step; i++) {
            u32 sent[4];
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                f32 low = d[4 * (block + i) + e], high = d[4 * (blocks + block + i) + e];
                kept[4 * i + e] = group ? high : low;
                sent[e] = __float_as_uint(group ? low : high);
            }
            exl2k_shared_store4(mine + i * 4096, make_uint4(sent[0], sent[1], sent[2], sent[3]));
        }
        exl2k_wg_sync();
#pragma unroll
        for (u32 i = 0; i < step; i++) {
            uint4 got = exl2k_shared_load4(other + i * 4096);
            u32 word[4] = { got.x, got.y, got.z, got.w };
            f32 h[4];
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                f32 v = __uint_as_float(word[e]), gate = group ? v : kept[4 * i + e], up = group ? kept[4 * i + e] : v;
                h[e] = exl2k_clamp_f16(exl2k_wg_gate(gate + gate_bias[e / 2], linear, cubic) * (up + up_bias[e / 2]));
            }
            u32 left = exl2k_wg_transpose(exl2k_pack_f16(h[0], h[1]));
            u32 right = exl2k_wg_transpose(exl2k_pack_f16(h[2], h[3]));
            if (row + (block + i) * 8 < a.rows && strip < gate_part.strips) {
                exl2k_store2(at + (block + i) * 512, left, right);
            }
        }
        exl2k_wg_sync();
    }
}

/* ---- the kernel ---- */

/* All tiles of a warp group that multiplies. */
template <u32 N, class LORAS>
EXL2K_FN void exl2k_wg_multiply(const exl2k_gemm_args &a, const LORAS &l, const exl2k_wg_shared &s, u32 group)
{
    exl2k_wg_cursor c = { 0 };
#pragma unroll 1
    for (u32 work = blockIdx.x; work < exl2k_wg_works(a); work += gridDim.x) {
        f32 d[N / 2];
        exl2k_wg_sum<N>(d, c, s, exl2k_wg_job_of<N>(a, work, group));
        asm volatile("" : "+r"(work)); /* the tile is computed again, as the sums need the registers */
        if (exl2k_wg_adapts<LORAS>() && exl2k_wg_is_last(a, work)) {
            exl2k_wg_add_loras<N>(d, c, l, s, a.kind == EXL2K_GEMM_ACT);
        }
        exl2k_wg_job p = exl2k_wg_job_of<N>(a, work, group);
        if (a.splits > 1) {
            if (!exl2k_wg_split_ends<N>(d, a, s, work)) {
                continue;
            }
            if (a.kind != EXL2K_GEMM_ACT) { /* stored as they are added up: that leaves registers for loads */
                constexpr u32 batch = N == 64 && (EXL2K_AFFINE || exl2k_wg_adapts<LORAS>()) ? 2 : 4; /* registers */
#pragma unroll 1
                for (u32 b = 0; b < N / 8; b += 4) {
                    f32 some[16];
                    exl2k_wg_join<N, batch>(some, a, work, b);
                    exl2k_wg_store<16>(some, a, p, b * 8);
                }
                continue;
            }
#pragma unroll
            for (u32 b = 0; b < N / 8; b += 4) {
                exl2k_wg_join<N, 1>(d + 4 * b, a, work, b);
            }
        }
        if (a.kind == EXL2K_GEMM_ACT) {
            exl2k_wg_act<N>(d, a, s, p);
        } else {
            exl2k_wg_store<N / 2>(d, a, p, 0);
        }
    }
}

template <u32 N, class LORAS> EXL2K_FN void exl2k_wg_products(const exl2k_gemm_args &a, const LORAS &l)
{
    constexpr u32 copying = !exl2k_wg_adapts<LORAS>() ? 40 : N <= 64 ? 64 : 56; /* registers of a thread */
    constexpr u32 multiplying = (N <= 64 ? 96 : 232) - (exl2k_wg_adapts<LORAS>() ? 8 : 0);
    extern __shared__ __align__(1024) uint4 exl2k_dynamic[];
    u32 group = threadIdx.x / 128, warp = threadIdx.x / EXL2K_WARP % 4, copied = group < 2 ? group : warp == 2;
    exl2k_wg_shared s = exl2k_wg_shared_of<N>(exl2k_shared(exl2k_dynamic), copied);
    if (threadIdx.x < 16) { /* stages: one thread that copies, eight warps that read */
        exl2k_barrier_init(s.base + threadIdx.x * 8, 1);
        exl2k_barrier_init(s.base + EXL2K_WG_EMPTY + threadIdx.x * 8, 8);
    } else if (threadIdx.x < 16 + 2 * EXL2K_WG_SLOTS(N, EXL2K_AFFINE)) { /* slots of both groups: one warp that copies, four that
                                                              read; their lanes arrive one by one, as racecheck needs */
        u32 i = threadIdx.x - 16, full = s.base + EXL2K_WG_SLOT_BARRIERS + i / EXL2K_WG_SLOTS(N, EXL2K_AFFINE) * 128;
        exl2k_barrier_init(full + i % EXL2K_WG_SLOTS(N, EXL2K_AFFINE) * 8, 1);
        exl2k_barrier_init(full + EXL2K_WG_SLOT_EMPTY + i % EXL2K_WG_SLOTS(N, EXL2K_AFFINE) * 8, 4 * EXL2K_WARP);
    }
    exl2k_barrier_init_fence();
    __syncthreads();
    exl2k_dependency_release();
    if (group == 2) {
        exl2k_registers_less<copying>();
        if (warp == 0) {
            if (!exl2k_wg_adapts<LORAS>()) {
                exl2k_dependency_wait();
            }
            if (exl2k_wg_adapts<LORAS>() || threadIdx.x % EXL2K_WARP == 0) {
                exl2k_wg_copy_inputs<N>(a, l, s);
            }
        } else if (warp < 3) {
            exl2k_wg_copy_weights<N>(a, l, s, copied);
        }
    } else {
        exl2k_registers_more<multiplying>();
        exl2k_dependency_wait();
        exl2k_wg_multiply<N>(a, l, s, group);
    }
}

template <u32 N> EXL2K_FN void exl2k_wg_products(const exl2k_gemm_args &a)
{
    exl2k_wg_products<N>(a, exl2k_wg_no_loras());
}

#endif
#endif
