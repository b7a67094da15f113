/* product_speed.c: how fast decode products are: the linear layers of an 8B model of 4.0 bits a weight.
   takes: KERNELS_SRC ["profile": every product twice, for a profiler | options of gemv.cu ...]; a GPU.
   gives: microseconds and GB/s of each product, of a layer, of a chain of layers with and without overlapped launches.
   owns:  nothing that outlives the program.
   next:  rig.h */
#include "product_rig.h"

#define LAYERS 10 /* 10 * 109 MB: far more than any L2 */
#define REPEATS 15
#define HIDDEN 4096u
#define INTER 14336u

enum { QKV, OUT, GATE_UP, DOWN, UNITS };

static const char *const unit_names[UNITS] = { "qkv", "out", "gate_up", "down" };
static const char *const kernels[2][UNITS] = {
    { "exl2k_gemv1_store", "exl2k_gemv1_residual", "exl2k_gemv1_act", "exl2k_gemv1_residual" },
    { "exl2k_gemv8_store", "exl2k_gemv8_residual", "exl2k_gemv8_act", "exl2k_gemv8_residual" },
};

static product_matrix model[LAYERS][UNITS];
static rig_buffer y1, y2, qkv, h, residual, sums_a, sums_b, weight, map_hidden, map_inter;
static rig_module gemv, shuffle;

static void make_layer(product_matrix *layer, bool first)
{
    static const product_run attn = { 4, HIDDEN, 128 }, v = { 4, HIDDEN, 64 }, up = { 4, HIDDEN, 32 };
    static const product_run gate[] = { { 4, 416, 32 }, { 3, 3680, 32 } };
    static const product_run down[] = { { 8, 736, 32 }, { 4, INTER - 736, 128 } };
    product_part_make(&layer[QKV].part[0], &attn, 1, 4096, false);
    product_part_make(&layer[QKV].part[1], &attn, 1, 1024, false);
    product_part_make(&layer[QKV].part[2], &v, 1, 1024, false);
    product_part_make(&layer[OUT].part[0], &attn, 1, HIDDEN, false);
    product_part_make(&layer[GATE_UP].part[0], gate, 2, INTER, false);
    product_part_make(&layer[GATE_UP].part[1], &up, 1, INTER, false);
    product_part_make(&layer[DOWN].part[0], down, 2, HIDDEN, false);
    for (uint32_t i = 0; i < UNITS; i++) {
        product_lay(&layer[i], i == QKV ? 3 : i == GATE_UP ? 2 : 1, 0, EXL2__CUDA_CHUNK_BYTES);
        if (first) {
            product_pack(&layer[i], &shuffle, 1000, 0);
        }
    }
}

/* Layers beyond the first share its tables; their strips are random bytes. */
static void make_model(void)
{
    size_t block = 64u << 20;
    uint32_t *noise = product_take(block, 1);
    for (size_t i = 0; i < block / 4; i++) {
        noise[i] = product_random() ^ product_random() << 12;
    }
    make_layer(model[0], true);
    for (uint32_t l = 1; l < LAYERS; l++) {
        for (uint32_t i = 0; i < UNITS; i++) {
            product_matrix *m = &model[l][i];
            *m = model[0][i];
            m->strips = rig_buffer_make(m->bytes);
            for (uint64_t at = 0; at < m->bytes; at += block) {
                rig_upload(m->strips, at, noise, (size_t)exl2__min64(block, m->bytes - at));
            }
            for (uint32_t part = 0; part < m->count; part++) {
                m->device.part[part].base = m->strips.address + m->part[part].base;
            }
        }
    }
    free(noise);
}

static rig_buffer random_halves(size_t count)
{
    uint16_t *values = product_take(count, 2);
    for (size_t i = 0; i < count; i++) {
        values[i] = exl2__f32_to_f16(product_uniform());
    }
    rig_buffer b = rig_buffer_of(values, count * 2);
    free(values);
    return b;
}

static rig_buffer random_floats(size_t count)
{
    float *values = product_take(count, 4);
    for (size_t i = 0; i < count; i++) {
        values[i] = 1.1f + product_uniform();
    }
    rig_buffer b = rig_buffer_of(values, count * 4);
    free(values);
    return b;
}

static rig_buffer random_map(uint32_t count)
{
    uint16_t *map = product_take(count, 2);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = product_random() % (i + 1);
        map[i] = map[k];
        map[k] = (uint16_t)i;
    }
    rig_buffer b = rig_buffer_of(map, count * 2);
    free(map);
    return b;
}

typedef struct launch {
    exl2k_gemv_args args;
    exl2__cuda_function *function;
    uint32_t shared;
} launch;

static launch prepare(uint32_t layer, uint32_t unit, uint32_t rows, uint32_t stages)
{
    launch l = { .args = { .matrix = model[layer][unit].device, .rows = rows, .slots = (uint32_t)rig.sm_count,
                           .eps = 1e-5f, .inverse_hidden = 1.0f / HIDDEN, .out_half = 1 } };
    exl2k_gemv_args *a = &l.args;
    bool after_attention = unit == GATE_UP || unit == OUT;
    a->x = (unit == QKV ? y1 : unit == OUT ? qkv : unit == GATE_UP ? y2 : h).address;
    a->x_pitch = unit == OUT ? 6144 + 32 : unit == DOWN ? INTER + 32 : HIDDEN + 32;
    a->out = (unit == QKV ? qkv : unit == OUT ? y2 : unit == GATE_UP ? h : y1).address;
    a->out_pitch = unit == QKV ? 6144 + 32 : unit == GATE_UP ? INTER + 32 : HIDDEN + 32;
    a->map = unit == QKV ? 0 : unit == GATE_UP ? map_inter.address : map_hidden.address;
    a->residual = residual.address;
    a->residual_pitch = HIDDEN;
    a->weight = weight.address;
    /* out: reads a, writes b; gate_up: b over a; down: reads b, writes a; qkv: a over b */
    a->sums_now = unit == QKV ? sums_a.address : unit == GATE_UP ? sums_b.address : 0;
    a->sums_before = after_attention ? sums_a.address : sums_b.address;
    a->sums_out = after_attention ? sums_b.address : sums_a.address;
    uint32_t budget = (uint32_t)rig.shared_optin, ctas = (uint32_t)rig.sm_count;
    l.shared = exl2__cuda_gemv_shared(a, model[layer][unit].chunk_bytes, rows == 1 ? 1 : 8, unit == OUT || unit == DOWN,
                                      ctas, budget);
    if (stages && a->stages > stages) {
        l.shared -= (a->stages - stages) * EXL2K_GEMV_WARPS * a->slot_bytes;
        a->stages = stages;
    }
    l.shared = exl2__max32(l.shared, 120 * 1024);
    l.function = rig_function(&gemv, kernels[rows > 1][unit]);
    rig_try(rig.driver.function_set(l.function, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, (int)budget), "dynamic shared memory");
    return l;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median microseconds of a layer's units `first` .. `last`, over all layers in one graph. */
static double time_units(uint32_t first, uint32_t last, uint32_t rows, uint32_t stages, bool overlap)
{
    double times[REPEATS];
    rig.programmatic = overlap;
    rig_capture();
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t unit = first; unit <= last; unit++) {
            launch one = prepare(l, unit, rows, stages);
            rig_run(one.function, (uint32_t)rig.sm_count, 1, EXL2K_GEMV_THREADS, one.shared, &one.args,
                    sizeof one.args);
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

static double layer_bytes(uint32_t first, uint32_t last)
{
    double bytes = 0;
    for (uint32_t unit = first; unit <= last; unit++) {
        bytes += (double)model[0][unit].bytes;
    }
    return bytes;
}

static void time_shuffle(void)
{
    product_part *p = &model[0][DOWN].part[0];
    rig_buffer words = rig_buffer_of(p->words, (size_t)p->desc.words * p->desc.out_stored * 4);
    exl2k_shuffle_args a = { .source = words.address, .base = model[1][DOWN].device.part[0].base,
                             .chunks = model[0][DOWN].tables[0].address, .columns_from = 0,
                             .pitch = model[0][DOWN].device.part[0].pitch, .columns = p->desc.out_stored };
    rig_launch(&shuffle, "exl2k_shuffle_codes", a.columns / 32, p->layout.count, 256, 0, &a, sizeof a);
    rig_start();
    rig_launch(&shuffle, "exl2k_shuffle_codes", a.columns / 32, p->layout.count, 256, 0, &a, sizeof a);
    double us = rig_stop();
    printf("packing codes: %.1f us, %.0f GB/s of codes\n", us, (double)words.bytes / us * 1e-3);
    rig_buffer_free(&words);
}

/* Every product in turn, twice, on different layers. */
static void profile(void)
{
    gemv = rig_load("gemv.cu", "-DEXL2K_WIDTHS_MASK=38 -lineinfo");
    for (uint32_t i = 0; i < 2 * UNITS; i++) {
        launch one = prepare(i / UNITS, i % UNITS, 1, 4);
        rig_run(one.function, (uint32_t)rig.sm_count, 1, EXL2K_GEMV_THREADS, one.shared, &one.args, sizeof one.args);
    }
    rig_wait();
}

static void time_all(uint32_t rows, bool overlap)
{
    for (uint32_t unit = 0; unit < UNITS; unit++) {
        launch one = prepare(0, unit, rows, 4);
        double us = time_units(unit, unit, rows, 4, overlap);
        printf("  %u rows %-8s %7.2f us %7.0f GB/s   %u ways, %u stages of %u bytes, block %u\n", rows,
               unit_names[unit], us,
               layer_bytes(unit, unit) / us * 1e-3, one.args.matrix.ways, one.args.stages, one.args.slot_bytes,
               one.args.block);
    }
    for (uint32_t stages = 2; stages <= 4; stages++) {
        double us = time_units(QKV, DOWN, rows, stages, overlap);
        printf("  %u rows layer    %7.2f us %7.0f GB/s   at most %u stages; 32 layers %.0f us\n", rows, us,
               layer_bytes(QKV, DOWN) / us * 1e-3, stages, us * 32);
    }
}

static void time_options(const char *options)
{
    gemv = rig_load("gemv.cu", options);
    printf("%s: compiled in %.0f ms, %llu bytes\n", options, gemv.compile_ms, (unsigned long long)gemv.image_bytes);
    time_all(1, strstr(options, "PDL=1") != NULL);
    time_all(8, strstr(options, "PDL=1") != NULL);
    rig_unload(&gemv);
}

int main(int argc, char **argv)
{
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    shuffle = rig_load("shuffle.cu", NULL);
    make_model();
    y1 = random_halves(8 * (HIDDEN + 32));
    y2 = random_halves(8 * (HIDDEN + 32));
    qkv = random_halves(8 * (6144 + 32));
    h = random_halves(8 * (INTER + 32));
    residual = random_floats(8 * HIDDEN);
    sums_a = random_floats(8 * EXL2K_SLOTS_MAX);
    sums_b = random_floats(8 * EXL2K_SLOTS_MAX);
    weight = random_floats(HIDDEN);
    map_hidden = random_map(HIDDEN);
    map_inter = random_map(INTER);
    time_shuffle();
    if (argc > 2 && strcmp(argv[2], "profile") == 0) {
        profile();
        rig_close();
        return 0;
    }
    static const char *const options[] = { "-DEXL2K_PDL=1 -DEXL2K_WIDTHS_MASK=38",
                                           "-DEXL2K_PDL=1 -DEXL2K_WIDTHS_MASK=38 -DEXL2K_BULK=0",
                                           "-DEXL2K_PDL=0 -DEXL2K_WIDTHS_MASK=38" };
    for (int o = 2; o < argc; o++) {
        time_options(argv[o]);
    }
    for (uint32_t o = 0; o < sizeof options / sizeof options[0] && argc <= 2; o++) {
        time_options(options[o]);
    }
    rig_close();
    return 0;
}
