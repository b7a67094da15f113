/* product_speed.c: the speed of decode products: all linear layers of four models, one after the other.
   takes: KERNELS_SRC [-u] [-l] [-1] [-p] [-r STAGES,STRIPS] [NVRTC options ...]; a GPU. -u: times each product alone,
          too. -l: 1 and 8 rows use the kernels for large matrices. -1: only the first model. -p: runs each product of 8
          and of 16 rows once, for a profiler. -r: uses a ring with these sizes for one row.
   gives: for 1, 8 and 16 rows: microseconds per layer with plain launches, in a graph, and in a graph with programmatic
          edges; TB/s. */
#include "product_rig.h"

#define REPEATS 15
#define UNIT_RUNS 3

enum { QKV, OUT, GATE_UP, DOWN, UNITS };
typedef enum launch_mode { PLAIN, GRAPH, OVERLAPPED, MODES } launch_mode;

static const char *const unit_names[UNITS] = { "qkv", "out", "gate_up", "down" };

/* Bit widths as the converter mixes them for models of this size. layers: enough to be larger than the L2 cache, if the
   model itself is. */
typedef struct speed_model {
    const char *name;
    uint32_t hidden, inter, values, layers;
    product_run attn[UNIT_RUNS], gate[UNIT_RUNS], up[UNIT_RUNS], down[UNIT_RUNS]; /* rows 0: all rows that remain */
} speed_model;

static const speed_model models[] = {
    { "llama3-8b 4.0", 4096, 14336, 1024, 10, { { 4, 0, 128 } }, { { 4, 416, 32 }, { 3, 0, 32 } }, { { 4, 0, 32 } },
      { { 8, 736, 32 }, { 4, 0, 128 } } },
    { "tinyllama 4.0", 2048, 5632, 256, 22, { { 4, 0, 128 } }, { { 4, 224, 32 }, { 3, 0, 32 } }, { { 4, 0, 32 } },
      { { 8, 288, 32 }, { 4, 0, 128 } } },
    { "smollm2-135m 4.0", 576, 1536, 192, 30, { { 5, 64, 64 }, { 4, 0, 64 } }, { { 5, 64, 64 }, { 4, 0, 64 } },
      { { 5, 160, 32 }, { 4, 0, 32 } }, { { 6, 160, 32 }, { 4, 0, 128 } } },
    { "llama2-70b 2.5", 8192, 28672, 1024, 4, { { 3, 4096, 64 }, { 2, 0, 64 } }, { { 3, 1024, 64 }, { 2, 0, 64 } },
      { { 3, 3072, 64 }, { 2, 0, 64 } }, { { 5, 1440, 32 }, { 3, 8192, 64 }, { 2, 0, 64 } } },
};

#define LAYERS_MAX 32

static product_matrix model[LAYERS_MAX][UNITS];
static const speed_model *now;
static rig_buffer y1, y2, qkv, h, residual, sums_a, sums_b, weight, map_hidden;
static rig_module gemv[3]; /* for 1, 8 and 16 rows */
static uint32_t ring_stages, ring_side;
static bool large;

/* Makes the tables of a part; its strips hold random bytes. */
static void make_part(product_part *p, const product_run *runs, uint32_t in, uint32_t out)
{
    exl2__matrix_desc *d = &p->desc;
    *d = (exl2__matrix_desc){ .name = "random", .out = out, .out_stored = out };
    p->groups = product_take(65536 / 32, sizeof *p->groups);
    p->bias = product_take(out, 4);
    for (uint32_t i = 0; d->in < in; i++) {
        uint32_t end = runs[i].rows ? d->in + runs[i].rows : in;
        while (d->in < end) {
            uint32_t rows = exl2__min32(end - d->in, runs[i].group);
            p->groups[d->group_count++] = (exl2__group){ d->in, rows, d->words, runs[i].bits };
            d->in += rows;
            d->words += rows * runs[i].bits / 32;
        }
    }
    p->scale_max = product_take(d->group_count, 2);
    for (uint32_t g = 0; g < d->group_count; g++) {
        p->scale_max[g] = exl2__f32_to_f16(2e-4f / (float)(1u << (p->groups[g].bits - 1)));
    }
    d->groups = p->groups;
    d->scale_max = p->scale_max;
}

static void make_layer(product_matrix *layer)
{
    make_part(&layer[QKV].part[0], now->attn, now->hidden, now->hidden);
    make_part(&layer[QKV].part[1], now->attn, now->hidden, now->values);
    make_part(&layer[QKV].part[2], now->attn, now->hidden, now->values);
    make_part(&layer[OUT].part[0], now->attn, now->hidden, now->hidden);
    make_part(&layer[GATE_UP].part[0], now->gate, now->hidden, now->inter);
    make_part(&layer[GATE_UP].part[1], now->up, now->hidden, now->inter);
    make_part(&layer[DOWN].part[0], now->down, now->inter, now->hidden);
    for (uint32_t i = 0; i < UNITS; i++) {
        product_lay(&layer[i], i == QKV ? 3 : i == GATE_UP ? 2 : 1, 0, EXL2__CUDA_CHUNK_BYTES);
    }
}

/* All layers share the tables of the first one. */
static void make_model(void)
{
    static uint32_t *noise;
    size_t block = 64u << 20;
    if (!noise) {
        noise = product_take(block, 1);
        for (size_t i = 0; i < block / 4; i++) {
            noise[i] = product_random() ^ product_random() << 12;
        }
    }
    for (uint32_t l = 0; l < now->layers; l++) {
        if (l == 0) {
            make_layer(model[0]);
        }
        for (uint32_t i = 0; i < UNITS; i++) {
            product_matrix *m = &model[l][i];
            if (l > 0) {
                *m = model[0][i];
                m->strips = rig_buffer_make(m->bytes);
            }
            for (uint64_t at = 0; at < m->bytes; at += block) {
                rig_upload(m->strips, at, noise, (size_t)exl2__min64(block, m->bytes - at));
            }
            for (uint32_t part = 0; part < m->count; part++) {
                m->device.part[part].base = m->strips.address + m->part[part].base;
            }
        }
    }
}

static void free_model(void)
{
    for (uint32_t i = 0; i < UNITS; i++) {
        for (uint32_t l = 1; l < now->layers; l++) {
            rig_buffer_free(&model[l][i].strips);
        }
        product_free(&model[0][i]);
    }
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

static void make_values(void)
{
    y1 = product_random_halves(16 * (now->hidden + 32));
    y2 = product_random_halves(16 * (now->hidden + 32));
    qkv = product_random_halves(16 * (now->hidden + 2 * now->values + 32));
    h = product_random_halves(16 * (now->inter + 32));
    residual = random_floats(16 * now->hidden);
    sums_a = random_floats(16 * EXL2K_SLOTS_MAX);
    sums_b = random_floats(16 * EXL2K_SLOTS_MAX);
    weight = random_floats(now->hidden);
    map_hidden = product_random_map(now->hidden);
}

static void free_values(void)
{
    rig_buffer *all[] = { &y1, &y2, &qkv, &h, &residual, &sums_a, &sums_b, &weight, &map_hidden };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        rig_buffer_free(all[i]);
    }
}

typedef struct launch {
    exl2k_gemv_args args;
    exl2__cuda_function *function;
    uint32_t shared;
} launch;

static launch prepare(uint32_t layer, uint32_t unit, uint32_t rows)
{
    static const uint32_t kinds[] = { EXL2K_GEMV_STORE, EXL2K_GEMV_RESIDUAL, EXL2K_GEMV_ACT, EXL2K_GEMV_RESIDUAL };
    launch l = { .args = { .matrix = model[layer][unit].device, .rows = rows, .slots = (uint32_t)rig.sm_count,
                           .kind = kinds[unit], .eps = 1e-5f, .inverse_hidden = 1.0f / (float)now->hidden,
                           .out_half = 1, .scale = 1, .act = EXL2K_ACT_SILU } };
    exl2k_gemv_args *a = &l.args;
    bool after_attention = unit == GATE_UP || unit == OUT;
    uint32_t wide = now->hidden + 2 * now->values + 32, budget = (uint32_t)rig.shared_optin;
    a->x = (unit == QKV ? y1 : unit == OUT ? qkv : unit == GATE_UP ? y2 : h).address;
    a->x_pitch = unit == OUT ? wide : unit == DOWN ? now->inter + 32 : now->hidden + 32;
    a->out = (unit == QKV ? qkv : unit == OUT ? y2 : unit == GATE_UP ? h : y1).address;
    a->out_pitch = unit == QKV ? wide : unit == GATE_UP ? now->inter + 32 : now->hidden + 32;
    a->map = unit == OUT || unit == DOWN ? map_hidden.address : 0;
    a->residual = residual.address;
    a->residual_pitch = now->hidden;
    a->weight = weight.address;
    /* Two buffers hold the sums of squares in turn. out reads A and writes B; down reads B and writes A. gate_up scales
       by the norm of B over that of A, qkv by the norm of A over that of B. */
    a->sums_now = unit == QKV ? sums_a.address : unit == GATE_UP ? sums_b.address : 0;
    a->sums_before = after_attention ? sums_a.address : sums_b.address;
    a->sums_out = after_attention ? sums_b.address : sums_a.address;
    if (rows > 1 && unit != OUT) { /* tiles, as in the engine */
        a->x_pitch = EXL2K_STEP / 2;
        a->x_step = EXL2K_STEP * rows;
    }
    if (rows > 1 && unit != QKV) {
        a->out_pitch = EXL2K_STEP / 2;
        a->out_step = EXL2K_STEP * rows;
    }
    uint32_t ctas = (uint32_t)rig.sm_count;
    l.shared = exl2__cuda_gemv_shared(a, model[layer][unit].chunk_bytes, rows, ctas, budget, 0, false);
    if (ring_stages && rows == 1) {
        l.shared += (ring_stages * ring_side - a->stages * a->slot_strips) * EXL2K_GEMV_WARPS * a->slot_bytes;
        a->stages = ring_stages;
        a->slot_strips = ring_side;
    }
    static const char *const names[][3] = { { "exl2k_gemv1", "exl2k_gemv8", "exl2k_gemv16" },
                                            { "exl2k_gemv1_large", "exl2k_gemv8_large", "exl2k_gemv16" } };
    l.function = rig_function(&gemv[rows / 8], names[large][rows / 8]);
    rig_try(rig.driver.function_set(l.function, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, (int)budget), "dynamic shared memory");
    return l;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void queue(const launch *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        rig_run(all[i].function, (uint32_t)rig.sm_count, 1, EXL2K_GEMV_THREADS, all[i].shared, &all[i].args,
                sizeof all[i].args);
    }
}

/* Microseconds per layer of units `first` to `last`: median over runs of all layers. */
static double time_units(uint32_t first, uint32_t last, uint32_t rows, launch_mode mode)
{
    static launch all[LAYERS_MAX * UNITS];
    double times[REPEATS];
    uint32_t count = 0;
    exl2__cuda_graph_exec *graph = NULL;
    for (uint32_t l = 0; l < now->layers; l++) {
        for (uint32_t unit = first; unit <= last; unit++) {
            all[count++] = prepare(l, unit, rows);
        }
    }
    rig.programmatic = mode == OVERLAPPED;
    if (mode != PLAIN) {
        rig_capture();
        queue(all, count);
        graph = rig_captured();
        rig_replay(graph);
    } else {
        queue(all, count);
    }
    rig_wait();
    for (uint32_t i = 0; i < REPEATS; i++) {
        rig_start();
        if (mode != PLAIN) {
            rig_replay(graph);
        } else {
            queue(all, count);
        }
        times[i] = rig_stop();
    }
    if (graph) {
        rig_try(rig.driver.graph_exec_free(graph), "cuGraphExecDestroy");
    }
    qsort(times, REPEATS, sizeof times[0], compare);
    return times[REPEATS / 2] / now->layers;
}

static double layer_bytes(uint32_t first, uint32_t last)
{
    double bytes = 0;
    for (uint32_t unit = first; unit <= last; unit++) {
        bytes += (double)model[0][unit].bytes;
    }
    return bytes;
}

/* Runs each product of 8 and of 16 rows once, one after the other. */
static void profile_model(void)
{
    rig.programmatic = false;
    for (uint32_t rows = 8; rows <= 16; rows += 8) {
        for (uint32_t unit = 0; unit < UNITS; unit++) {
            launch one = prepare(0, unit, rows);
            queue(&one, 1);
            rig_wait();
        }
    }
}

static void time_model(bool units)
{
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t rows = i ? 8 * i : 1;
        double us[MODES];
        for (uint32_t mode = 0; mode < MODES; mode++) {
            us[mode] = time_units(QKV, DOWN, rows, mode);
        }
        printf("  %-16s %u rows: %6.2f plain, %6.2f graph, %6.2f us a layer overlapped, %.2f TB/s\n", now->name, rows,
               us[PLAIN], us[GRAPH], us[OVERLAPPED], layer_bytes(QKV, DOWN) / us[OVERLAPPED] * 1e-6);
        for (uint32_t unit = 0; unit < UNITS && units; unit++) {
            launch one = prepare(0, unit, rows);
            double alone = time_units(unit, unit, rows, OVERLAPPED);
            printf("    %-8s %6.2f us %5.2f TB/s   %2u slices, %u x %u x %u, block %u\n", unit_names[unit], alone,
                   layer_bytes(unit, unit) / alone * 1e-6, one.args.matrix.slices,
                   one.args.stages, one.args.slot_strips,
                   one.args.slot_bytes, one.args.block);
        }
    }
}

int main(int argc, char **argv)
{
    char options[256] = "";
    bool units = false, profile = false;
    uint32_t count = sizeof models / sizeof models[0];
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "-u") == 0) {
            units = true;
        } else if (strcmp(argv[i], "-p") == 0) {
            profile = true;
        } else if (strcmp(argv[i], "-1") == 0) {
            count = 1;
        } else if (strcmp(argv[i], "-l") == 0) {
            large = true;
        } else if (strcmp(argv[i], "-r") == 0 && i + 1 < argc) {
            ring_stages = (uint32_t)atoi(argv[++i]);
            ring_side = strchr(argv[i], ',') ? (uint32_t)atoi(strchr(argv[i], ',') + 1) : 1;
        } else {
            snprintf(options + strlen(options), sizeof options - strlen(options), " %s", argv[i]);
        }
    }
    static const char *const sources[][3] = { { "gemv1.cu", "gemv8.cu", "gemv16.cu" },
                                              { "gemv1_large.cu", "gemv8_large.cu", "gemv16.cu" } };
    for (size_t i = 0; i < 3; i++) {
        gemv[i] = rig_load(sources[large][i], options);
        printf("%s%s: compiled in %.0f ms\n", sources[large][i], options, gemv[i].compile_ms);
    }
    for (uint32_t i = 0; i < count; i++) {
        now = &models[i];
        make_model();
        make_values();
        if (profile) {
            profile_model();
        } else {
            time_model(units);
        }
        free_values();
        free_model();
    }
    for (size_t i = 0; i < 3; i++) {
        rig_unload(&gemv[i]);
    }
    rig_close();
    return check_done();
}
