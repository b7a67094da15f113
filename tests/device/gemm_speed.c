/* gemm_speed.c: the speed of products of 9 and more rows: the linear layers of an 8B model with 4.0 bits per weight.
   takes: KERNELS_SRC [profile | affine | prompt] [ROWS ...]; a GPU. profile: runs every product once, for a profiler;
          affine: 4 bits in groups of 128, as GPTQ and AWQ have them; prompt: up to 64 rows are of prompts, too, and not
          of sampled tokens, which have other splits.
   gives: microseconds and TFLOP/s of each product and of a layer, in a graph with programmatic edges. */
#include "gemm_rig.h"

#define LAYERS 4 /* 4 * 109 MB, more than any L2 cache holds */
#define REPEATS 5
#define HIDDEN 4096u
#define INTER 14336u
#define ROWS_MAX 2048u

enum { QKV, OUT, GATE_UP, DOWN, UNITS };

static const char *const unit_names[UNITS] = { "qkv", "out", "gate_up", "down" };
static product_matrix model[LAYERS][UNITS];
static rig_buffer x, h, out, residual;
static rig_module gemm, shuffle;
static gemm_wg wg;
static bool by_wg, affine, prompt; /* by_wg: by wgmma instead of gemm.cu */
static gemm_scratch scratch;

static void make_layer(product_matrix *layer)
{
    static const product_run codes[2] = { { PRODUCT_AFFINE + 4, HIDDEN, 128 }, { PRODUCT_AFFINE + 4, INTER, 128 } };
    static const product_run attn = { 4, HIDDEN, 128 }, v = { 4, HIDDEN, 64 }, up = { 4, HIDDEN, 32 };
    static const product_run gate[] = { { 4, 416, 32 }, { 3, 3680, 32 } };
    static const product_run down[] = { { 8, 736, 32 }, { 4, INTER - 736, 128 } };
    product_part_make(&layer[QKV].part[0], affine ? codes : &attn, 1, 4096, false);
    product_part_make(&layer[QKV].part[1], affine ? codes : &attn, 1, 1024, false);
    product_part_make(&layer[QKV].part[2], affine ? codes : &v, 1, 1024, false);
    product_part_make(&layer[OUT].part[0], affine ? codes : &attn, 1, HIDDEN, false);
    product_part_make(&layer[GATE_UP].part[0], affine ? codes : gate, affine ? 1 : 2, INTER, false);
    product_part_make(&layer[GATE_UP].part[1], affine ? codes : &up, 1, INTER, false);
    product_part_make(&layer[DOWN].part[0], affine ? codes + 1 : down, affine ? 1 : 2, HIDDEN, false);
    for (uint32_t i = 0; i < UNITS; i++) {
        product_lay(&layer[i], i == QKV ? 3 : i == GATE_UP ? 2 : 1, 0, EXL2__CUDA_CHUNK_BYTES);
        product_pack(&layer[i], &shuffle, 1000, NULL);
    }
}

/* All layers share the tables of the first one, and have copies of its strips. */
static void make_model(void)
{
    make_layer(model[0]);
    for (uint32_t i = 0; i < UNITS; i++) {
        uint8_t *strips = product_take((size_t)model[0][i].bytes, 1);
        rig_download(model[0][i].strips, 0, strips, (size_t)model[0][i].bytes);
        for (uint32_t l = 1; l < LAYERS; l++) {
            product_matrix *m = &model[l][i];
            *m = model[0][i];
            m->strips = rig_buffer_of(strips, (size_t)m->bytes);
            for (uint32_t part = 0; part < m->count; part++) {
                m->device.part[part].base = m->strips.address + m->part[part].base;
            }
        }
        free(strips);
    }
}

static exl2k_gemm_args prepare(uint32_t layer, uint32_t unit, uint32_t rows, exl2__cuda_gemm_plan *plan)
{
    exl2k_gemm_args a = { .rows = rows, .scale = 1, .act = EXL2K_ACT_SILU, .x = (unit == DOWN ? h : x).address,
                          .x_pitch = unit == DOWN ? INTER + 64 : HIDDEN + 64 };
    a.kind = unit == QKV ? EXL2K_GEMM_STORE : unit == GATE_UP ? EXL2K_GEMM_ACT : EXL2K_GEMM_RESIDUAL;
    a.out = unit == QKV || unit == GATE_UP ? out.address : residual.address;
    a.out_pitch = unit == QKV ? 6144 : unit == GATE_UP ? INTER + 64 : HIDDEN;
    if (by_wg) {
        a.out_pitch = unit == GATE_UP ? exl2__cuda_wg_rows(rows) : a.out_pitch;
        *plan = gemm_wg_prepare(&a, &model[layer][unit], &scratch, rows <= 64 && !prompt);
        return a;
    }
    *plan = gemm_prepare(&a, &model[layer][unit], &scratch, (uint32_t)rig.shared_optin);
    return a;
}

static int compare(const void *a, const void *b)
{
    double one = *(const double *)a, two = *(const double *)b;
    return (one > two) - (one < two);
}

/* Microseconds per layer of units `first` to `last`: median over runs of one graph with all layers. */
static double time_units(uint32_t first, uint32_t last, uint32_t rows)
{
    double times[REPEATS];
    rig_capture();
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t unit = first; unit <= last; unit++) {
            exl2__cuda_gemm_plan plan;
            exl2k_gemm_args a = prepare(l, unit, rows, &plan);
            if (by_wg) {
                gemm_wg_run(&wg, &model[l][unit], &a, &plan);
            } else {
                gemm_run(&gemm, &a, &plan);
            }
        }
    }
    exl2__cuda_graph_exec *graph = rig_captured();
    rig_replay(graph);
    rig_wait();
    for (uint32_t i = 0; i < REPEATS; i++) {
        rig_start();
        rig_replay(graph);
        times[i] = rig_stop();
    }
    rig_try(rig.driver.graph_exec_free(graph), "cuGraphExecDestroy");
    qsort(times, REPEATS, sizeof times[0], compare);
    return times[REPEATS / 2] / LAYERS;
}

static void time_rows(uint32_t rows)
{
    double layer = 0;
    for (uint32_t unit = 0; unit < UNITS; unit++) {
        exl2__cuda_gemm_plan plan;
        const exl2k_matrix *m = &model[0][unit].device;
        exl2k_gemm_args a = prepare(0, unit, rows, &plan);
        double us = time_units(unit, unit, rows), columns = (double)m->part[0].columns + m->part[1].columns;
        columns += (double)m->part[2].columns;
        layer += 2e-6 * rows * m->rows * columns;
        printf("%5u rows %-8s %8.1f us %5.0f TFLOP/s   ", rows, unit_names[unit], us,
               2e-6 * rows * m->rows * columns / us);
        printf("%u a tile, %u x %u tiles, %u splits, %u CTAs, %u stages, %u slots, %u bytes\n", plan.rows, a.row_tiles,
               a.column_tiles, a.splits, plan.ctas, a.stage_mask + 1, a.slot_mask + 1, plan.shared_bytes);
    }
    double us = time_units(QKV, DOWN, rows);
    printf("%5u rows layer    %8.1f us %5.0f TFLOP/s   32 layers: %.2f ms, %.0f rows/s\n", rows, us, layer / us,
           us * 0.032, rows / (us * 32e-6));
    fflush(stdout);
}

/* With both kernels, where the GPU has both. */
static void time_both(uint32_t rows)
{
    time_rows(rows);
    if (rig_exists("gemm_wg256.cu")) {
        by_wg = true;
        for (uint32_t i = 0; i < (prompt ? 2u : 1u); i++) {
            gemm_wg_clusters = gemm_wg_cuts = i == 0;
            printf("by wgmma%s:\n", i ? ", no clusters and cuts" : "");
            time_rows(rows);
        }
        gemm_wg_clusters = gemm_wg_cuts = true;
        by_wg = false;
    }
}

static void profile(uint32_t rows)
{
    for (uint32_t unit = 0; unit < UNITS; unit++) {
        exl2__cuda_gemm_plan plan;
        by_wg = rig_exists("gemm_wg256.cu");
        exl2k_gemm_args a = prepare(0, unit, rows, &plan);
        if (by_wg) {
            gemm_wg_run(&wg, &model[0][unit], &a, &plan);
        } else {
            gemm_run(&gemm, &a, &plan);
        }
        rig_wait();
    }
}

int main(int argc, char **argv)
{
    static const uint32_t rows[] = { 9, 16, 32, 64, 96, 128, 256, 512, 1024, 2048 };
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    shuffle = rig_load("shuffle.cu", NULL);
    affine = argc > 2 && strcmp(argv[2], "affine") == 0;
    bool profiled = argc > 2 && strcmp(argv[2], "profile") == 0;
    prompt = profiled || (argc > 2 && strcmp(argv[2], "prompt") == 0);
    rig.programmatic = true;
    gemm = rig_load(affine ? "gemm_affine.cu" : "gemm.cu", NULL);
    if (rig_exists("gemm_wg256.cu")) {
        wg = gemm_wg_open(affine);
    }
    make_model();
    x = product_random_halves(ROWS_MAX * (HIDDEN + 64) + 64);
    h = product_random_halves(ROWS_MAX * (INTER + 64) + 64);
    out = rig_buffer_make((uint64_t)ROWS_MAX * (INTER + 64) * 4);
    residual = rig_buffer_make(ROWS_MAX * HIDDEN * 4);
    scratch = gemm_scratch_open(64u << 20);
    int first = affine || prompt ? 3 : 2;
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0] && argc <= first; i++) {
        time_both(rows[i]);
    }
    for (int i = first; i < argc; i++) {
        (profiled ? profile : time_both)((uint32_t)strtoul(argv[i], NULL, 10));
    }
    rig_close();
    return 0;
}
