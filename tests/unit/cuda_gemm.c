/* cuda_gemm.c: launches of products of many rows: they fit, cover all inputs, and are equal for all row counts of a
   class. Rings and blocks of products of eight rows. */
#include "private/cuda_gemm_wg.h"
#include "private/cuda_matrix.h"
#include "../check.h"

static exl2k_matrix matrix_of(uint32_t parts, uint32_t columns, uint32_t rows)
{
    exl2k_matrix m = { .parts = parts, .rows = rows };
    for (uint32_t i = 0; i < parts; i++) {
        m.part[i].columns = columns;
        m.part[i].strips = (uint32_t)exl2__div_up(columns, 16);
        m.strips += m.part[i].strips;
    }
    return m;
}

static exl2k_gemm_args args_of(const exl2k_matrix *m, uint32_t kind, uint32_t rows)
{
    exl2k_gemm_args a = { .matrix = *m, .kind = kind, .rows = rows, .partial = 4096 };
    return a;
}

static void check_plan(const exl2k_matrix *m, uint32_t kind, uint32_t rows, uint32_t chunk, uint32_t sms,
                       uint32_t budget)
{
    exl2k_gemm_args a = args_of(m, kind, rows);
    exl2__cuda_gemm_plan plan = exl2__cuda_gemm_plan_make(&a, chunk, sms, budget);
    uint32_t halves = (uint32_t)exl2__div_up(m->rows, 32), strips = 0;
    for (uint32_t i = 0; i < (kind == EXL2K_GEMM_ACT ? 1 : m->parts); i++) {
        strips += (uint32_t)exl2__div_up(m->part[i].strips, EXL2K_GEMM_STRIPS);
    }
    CHECK(plan.rows == 32 || plan.rows == 64 || plan.rows == 128);
    CHECK_INT(a.row_blocks * 32, plan.rows);
    CHECK(plan.shared_bytes > 0 && plan.shared_bytes <= budget);
    CHECK(a.row_tiles * plan.rows >= rows && (a.row_tiles - 1) * plan.rows < rows);
    CHECK_INT(a.column_tiles, strips);
    CHECK(a.splits * a.halves >= halves && (a.splits - 1) * a.halves < halves);
    CHECK(a.splits == 1 || a.halves % 2 == 0);
    CHECK_INT(plan.ctas, a.splits > 1 ? a.row_tiles * a.column_tiles * a.splits
                                      : exl2__min32(a.row_tiles * a.column_tiles, sms));
    CHECK(a.splits == 1 || plan.ctas <= sms);
    CHECK(plan.partial_bytes <= exl2__cuda_gemm_partial_max(sms));
    CHECK((uint64_t)plan.tickets * 4 <= exl2__cuda_gemm_tickets_max(sms));
    CHECK(a.slot_bytes >= EXL2K_GEMM_ENTRY + 2 * chunk);
    CHECK(a.ring_bytes >= a.slot_bytes << a.slots_log);
    CHECK(a.ring_bytes >= EXL2K_GEMM_RESULT);
    CHECK(a.stages_log >= 2 && a.stage_mask == (1u << a.stages_log) - 1 && a.slot_mask == (1u << a.slots_log) - 1);
    uint32_t places = (a.stage_mask + 1) * plan.rows * 64;
    CHECK(plan.shared_bytes >= EXL2K_GEMM_BARRIERS + places + EXL2K_GEMM_WARPS * a.ring_bytes);
    CHECK(8 * (a.stage_mask + 1) <= EXL2K_GEMM_TILE_BARRIERS / 2 && 8 * (a.slot_mask + 1) <= 32);
    exl2k_gemm_args most = args_of(m, kind, exl2__cuda_gemm_class(rows) ? exl2__cuda_gemm_class(rows) : 100000);
    exl2__cuda_gemm_plan of_class = exl2__cuda_gemm_plan_make(&most, chunk, sms, budget);
    CHECK(of_class.rows == plan.rows && most.halves == a.halves);
}

static uint32_t cuts; /* plans with tiles that two CTAs compute */

/* Splits that are clusters, and tiles that two CTAs compute. `was`: the plan without them. */
static void check_prompt_plan(const exl2k_matrix *m, const exl2k_gemm_args *made, const exl2__cuda_gemm_plan *was,
                              uint32_t sms)
{
    exl2k_gemm_args a = *made;
    exl2__cuda_gemm_plan plan = *was;
    exl2__cuda_wg_plan_cluster(&a, &plan, sms);
    uint32_t works = a.row_tiles * a.column_tiles * a.splits;
    bool fits = a.kind != EXL2K_GEMM_ACT && a.splits == 2 && works <= plan.ctas && works <= sms;
    CHECK_INT(plan.cluster, fits ? a.splits : 0);
    CHECK(!plan.cluster || plan.ctas % plan.cluster == 0);
    exl2__cuda_wg_plan_cut(&a, &plan, sms);
    if (a.cut) {
        uint32_t rest = works % plan.ctas, halves = (uint32_t)exl2__div_up(m->rows, 32);
        CHECK(a.splits == 1 && plan.rows >= 128 && !plan.cluster && rest > 0 && works > plan.ctas);
        CHECK(rest <= plan.ctas - rest && halves >= 32);
        CHECK(a.cut % 2 == 0 && a.cut < halves && 2 * a.cut >= halves);
        CHECK(plan.partial_bytes == (uint64_t)rest * plan.rows * 512 && plan.tickets == rest * 8);
        CHECK(plan.partial_bytes <= exl2__cuda_gemm_partial_max(sms));
        CHECK((uint64_t)plan.tickets * 4 <= exl2__cuda_gemm_tickets_max(sms));
        cuts++;
    }
}

/* By wgmma: the splits are those of the class, which all sizes of tiles share. Two CTAs with tiles of up to 64 rows run
   on an SM, whose shared memory has 228 KiB, of which each CTA costs one. */
static void check_wg_plan(const exl2k_matrix *m, uint32_t kind, uint32_t rows, uint32_t sms, bool sampled,
                          uint32_t variant)
{
    exl2k_gemm_args a = args_of(m, kind, rows), most = args_of(m, kind, rows <= 256 ? 256 : 100000);
    exl2__cuda_gemm_plan plan = exl2__cuda_wg_plan_make(&a, sms, sampled, variant);
    uint32_t halves = (uint32_t)exl2__div_up(m->rows, 32), strips = kind == EXL2K_GEMM_ACT ? 4 : 8, columns = 0;
    for (uint32_t i = 0; i < (kind == EXL2K_GEMM_ACT ? 1 : m->parts); i++) {
        columns += (uint32_t)exl2__div_up(m->part[i].strips, strips);
    }
    CHECK(plan.rows == 64 || plan.rows == 128 || plan.rows == 256
          || (plan.rows == 32 && sampled && variant != 1 && rows <= 32));
    CHECK(plan.rows > 64 || 2 * (plan.shared_bytes + 1024) <= 228 * 1024);
    CHECK(a.row_tiles * plan.rows >= rows && (a.row_tiles - 1) * plan.rows < rows);
    CHECK_INT(a.column_tiles, columns);
    CHECK_INT(a.x_pitch, (rows + 7) / 8 * 8);
    CHECK(a.halves % 2 == 0 && a.splits * a.halves >= halves && (a.splits - 1) * a.halves < halves);
    CHECK_INT(plan.shared_bytes, EXL2K_WG_SHARED(plan.rows, variant == 2));
    CHECK(plan.shared_bytes <= 232448 && plan.shared_bytes <= EXL2K_WG_SHARED(256, variant == 2));
    CHECK(plan.ctas > 0 && plan.ctas <= (plan.rows <= 64 ? 2 : 1) * sms);
    CHECK(plan.partial_bytes <= exl2__cuda_gemm_partial_max(sms));
    CHECK((uint64_t)plan.tickets * 4 <= exl2__cuda_gemm_tickets_max(sms));
    exl2__cuda_wg_plan_make(&most, sms, sampled, variant);
    CHECK(most.halves == a.halves && most.splits == a.splits);
    exl2k_gemm_args few = a;
    if (!sampled && rows <= EXL2__CUDA_WG_FEW_ROWS) {
        exl2__cuda_wg_plan_few(&few, &plan, sms, variant);
        CHECK(few.halves == a.halves && few.splits == a.splits && few.x_pitch == a.x_pitch && few.row_tiles == 1);
        CHECK(plan.rows >= rows && (plan.rows == (plan.roles ? 16 : variant == 1 ? 64 : 32) || plan.rows / 2 < rows));
        CHECK(plan.roles == (variant == 0 && columns * a.splits <= sms));
        CHECK(plan.ctas > 0 && plan.ctas <= (plan.roles ? 1 : 2) * sms);
        CHECK(plan.shared_bytes <= EXL2K_WG_SHARED(256, variant == 2));
        CHECK(plan.roles || 2 * (plan.shared_bytes + 1024) <= 228 * 1024);
        CHECK(plan.partial_bytes <= exl2__cuda_gemm_partial_max(sms));
        CHECK((uint64_t)plan.tickets * 4 <= exl2__cuda_gemm_tickets_max(sms));
    }
    if (!sampled) {
        check_prompt_plan(m, &few, &plan, sms);
    }
    a.partial = 0;
    CHECK_INT(exl2__cuda_wg_plan_make(&a, sms, sampled, variant).partial_bytes, 0);
    CHECK_INT(a.splits, 1);
}

/* Gate and up of an 8B model, 16 slices in a strip, in products of eight rows. */
static void check_ring(uint32_t ctas, uint32_t budget, uint32_t stages, uint32_t block)
{
    exl2k_gemv_args a = { .kind = EXL2K_GEMV_ACT };
    a.matrix = (exl2k_matrix){ .parts = 2, .interleaved = 1, .slices = 16, .strips = 2 * 14336 / 16 };
    uint32_t shared = exl2__cuda_gemv_shared(&a, 2112, 8, ctas, budget, 0, false);
    CHECK(shared > 0 && shared <= budget);
    CHECK_INT(a.stages, stages);
    CHECK_INT(a.block, block);
}

static void check_rings(void)
{
    check_ring(132, 232448, 2, 7); /* all pairs of strips of a CTA at once */
    check_ring(132, 166912, 1, 7);
    check_ring(82, 101376, 1, 3);  /* a second stage would leave room for one pair */
    check_ring(128, 101376, 1, 3);
    check_ring(64, 232448, 2, 7);  /* 14 pairs: a second stage leaves room for nine, else there were as many blocks */
    exl2k_gemv_args a = { .kind = EXL2K_GEMV_ACT };
    a.matrix = (exl2k_matrix){ .parts = 2, .interleaved = 1, .slices = 16, .strips = 2 * 14336 / 16 };
    CHECK_INT(exl2__cuda_gemv_shared(&a, 2112, 8, 82, 48 * 1024, 0, false), 0); /* not even one pair fits */
}

/* The head of an 8B model, whose chunks add to running sums: all strips of a CTA at once. */
static void check_chain(uint32_t rows, uint32_t ctas, uint32_t stages, uint32_t block)
{
    exl2k_slice chunks[EXL2__CUDA_CHAIN_CHUNKS + 1] = { { 0 } };
    exl2k_gemv_args a = { .kind = EXL2K_GEMV_STORE };
    a.matrix = (exl2k_matrix){ .parts = 1, .slices = 1, .strips = 128256 / 16 };
    for (uint32_t i = 0; i < 37; i++) {
        chunks[i] = (exl2k_slice){ .chunk = (exl2k_u16)i, .count = 1 };
    }
    CHECK(exl2__cuda_gemv_shared(&a, 2112, rows, ctas, 232448, 0, false) > 0);
    exl2k_gemv_args plain = a;
    uint32_t shared = exl2__cuda_gemv_chain(&a, chunks, 37, rows, 232448), strip = rows * 64 + EXL2K_CHAIN_BYTES(3);
    CHECK_INT(a.stages, stages);
    CHECK_INT(a.block, block);
    CHECK(shared <= 232448 && shared > stages * EXL2K_GEMV_WARPS * a.slot_bytes + block * strip);
    CHECK(a.matrix.parts == 3 && a.matrix.slices == 16 && a.matrix.interleaved);
    for (uint32_t i = 0; i < 48; i++) {
        const exl2k_slice *slice = &a.matrix.part[i / 16].slice[i % 16];
        CHECK(i < 37 ? slice->chunk == i && slice->count == 1 : slice->count == 0);
    }
    exl2k_gemv_args same = plain;
    CHECK_INT(exl2__cuda_gemv_chain(&same, chunks, 37, rows, 96 * 1024), 0); /* not two slots */
    CHECK_INT(exl2__cuda_gemv_chain(&same, chunks, 0, rows, 232448), 0);
    CHECK_INT(exl2__cuda_gemv_chain(&same, chunks, 49, rows, 232448), 0);
    CHECK(memcmp(&same, &plain, sizeof same) == 0);
    same.matrix.slices = 2;
    CHECK_INT(exl2__cuda_gemv_chain(&same, chunks, 37, rows, 232448), 0);
    CHECK(exl2__cuda_gemv_shared(&plain, 2112, rows, 132 * 3, 232448, 0, false) > 0); /* 21 strips of a CTA */
    CHECK_INT(exl2__cuda_gemv_chain(&plain, chunks, 37, rows, 232448), 0);
}

/* Chunks as slices of their own, of a layout with one slice only. */
static void check_chain_layout(void)
{
    const exl2k_chunk chunks[3] = { { .offset16 = 0, .bytes16 = 132, .row = 0 },
                                    { .offset16 = 132, .bytes16 = 96, .row = 8 },
                                    { .offset16 = 228, .bytes16 = 40, .row = 12 } };
    exl2k_slice out[EXL2__CUDA_CHAIN_CHUNKS];
    exl2__cuda_layout l = { .slicing = { 1, 0 }, .count = 3 };
    CHECK_INT(exl2__cuda_layout_chain(&l, chunks, out), 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(out[i].offset16 == chunks[i].offset16 && out[i].sizes == chunks[i].bytes16);
        CHECK(out[i].chunk == i && out[i].count == 1 && out[i].row == chunks[i].row);
    }
    l.slicing.slices = 2;
    CHECK_INT(exl2__cuda_layout_chain(&l, chunks, out), 0);
    l.slicing = (exl2__cuda_slicing){ 1, 1 };
    CHECK_INT(exl2__cuda_layout_chain(&l, chunks, out), 0);
    l.slicing.rest = 0;
    l.count = EXL2__CUDA_CHAIN_CHUNKS + 1;
    CHECK_INT(exl2__cuda_layout_chain(&l, chunks, out), 0);
}

static void check_chains(void)
{
    check_chain(8, 132, 4, 61);
    check_chain(8, 120, 4, 67);
    check_chain(16, 132, 2, 61);
    check_chain_layout();
}

int main(void)
{
    static const uint32_t rows[] = { 1, 9, 32, 33, 64, 65, 127, 128, 129, 256, 257, 500, 512, 513, 2048, 8192 };
    static const uint32_t columns[] = { 16, 300, 4096, 28672 }, inputs[] = { 32, 96, 1000, 4096, 28672 };
    static const uint32_t forms[][2] = { { 49152, 1088 }, { 49152, 2048 }, { 101376, 2112 }, { 232448, 2112 } };
    static const uint32_t sms[] = { 1, 14, 132 };
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0] * 4 * 5 * 4 * 3; i++) {
        uint32_t k = i, r = rows[k % 16], n = columns[(k /= 16) % 4], in = inputs[(k /= 4) % 5], form = (k /= 5) % 4;
        exl2k_matrix one = matrix_of(1, n, in), two = matrix_of(2, n, in), three = matrix_of(3, n, in);
        uint32_t count = sms[k / 4 % 3], budget = forms[form][0], chunk = forms[form][1];
        check_plan(&one, EXL2K_GEMM_RESIDUAL, r, chunk, count, budget);
        check_plan(&two, EXL2K_GEMM_ACT, r, chunk, count, budget);
        check_plan(&one, EXL2K_GEMM_ACT, r, chunk, count, budget); /* no gate */
        check_plan(&three, EXL2K_GEMM_STORE, r, chunk, count, budget);
        for (uint32_t kind = 0; kind < 6; kind++) {
            check_wg_plan(&one, EXL2K_GEMM_RESIDUAL, r, count, kind & 1, kind / 2);
            check_wg_plan(&two, EXL2K_GEMM_ACT, r, count, kind & 1, kind / 2);
            check_wg_plan(&three, EXL2K_GEMM_STORE, r, count, kind & 1, kind / 2);
        }
    }
    exl2k_matrix m = matrix_of(1, 4096, 4096);
    exl2k_gemm_args a = args_of(&m, EXL2K_GEMM_STORE, 100);
    CHECK_INT(exl2__cuda_gemm_plan_make(&a, 2112, 132, 16384).rows, 0); /* no plan fits */
    a = args_of(&m, EXL2K_GEMM_STORE, 16);
    CHECK_INT(exl2__cuda_gemm_plan_make(&a, 2112, 132, 232448).rows, 32);
    CHECK_INT(a.splits, 8); /* 16 tiles of columns on 132 multiprocessors */
    CHECK_INT(exl2__cuda_wg_plan_make(&a, 132, false, 0).rows, 64);
    CHECK_INT(a.splits, 4); /* 32 tiles of columns */
    CHECK_INT(exl2__cuda_wg_plan_make(&a, 132, true, 0).rows, 32);
    CHECK_INT(a.splits, 8); /* two CTAs on an SM */
    m.widths = 1u << EXL2K_W4;
    CHECK(exl2__cuda_wg_serves(&m));
    m.widths |= 1u << EXL2K_W16;
    CHECK(!exl2__cuda_wg_serves(&m)); /* dense */
    m = matrix_of(1, 4096, 1000);
    CHECK(!exl2__cuda_wg_serves(&m)); /* part of a half */
    CHECK(cuts > 0);
    check_rings();
    check_chains();
    return check_done();
}
