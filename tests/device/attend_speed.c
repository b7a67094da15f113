/* attend_speed.c: the time of attention: of prompts, by each kernel that the GPU has; and of single rows between the
   products qkv and out, in graphs with plain and with overlapping launches.
   takes: KERNELS_SRC [prefill | codes | TOKENS ...]; a GPU. prefill: prompts only. codes: rows of 8B's shape by each
          format of the cache, each of a sequence of its own or all of one. TOKENS: length of a split.
   gives: microseconds per layer. Of prompts: the time of the kernel alone. Of single rows: the time of the chain qkv,
          attention, out minus that of the chain qkv, out; and the time of attention alone. */
#include "product_rig.h"

#include "attend_rig.h"

#define LAYERS 12u
#define REPEATS 9

typedef struct shape {
    const char *name;
    uint32_t heads, kv_heads, dim, stages;
} shape;

typedef struct chain {
    const attend_modules *modules;
    const attend_scene *scene;
    uint64_t pages;       /* [LAYERS, layer_bytes] */
    uint64_t layer_bytes;
    uint32_t rows, stages;
    bool products, attention;
} chain;

enum { QKV, OUT, UNITS };

static product_matrix model[LAYERS][UNITS];
static rig_module gemv[2]; /* for one row, for several */
static rig_buffer x, residual, sums, weight;

/* The weights are arbitrary bytes, since only the time matters. */
static void make_model(const shape *s)
{
    uint32_t hidden = s->heads * s->dim, kv = s->kv_heads * s->dim;
    const product_run run = { 4, hidden, 64 };
    product_matrix *first = model[0];
    product_part_make(&first[QKV].part[0], &run, 1, hidden, false);
    product_part_make(&first[QKV].part[1], &run, 1, kv, false);
    product_part_make(&first[QKV].part[2], &run, 1, kv, false);
    product_part_make(&first[OUT].part[0], &run, 1, hidden, false);
    for (uint32_t unit = 0; unit < UNITS; unit++) {
        product_lay(&first[unit], unit == QKV ? 3 : 1, 0, EXL2__CUDA_CHUNK_BYTES);
        for (uint32_t l = 0; l < LAYERS; l++) {
            product_matrix *m = &model[l][unit];
            if (l > 0) {
                *m = first[unit];
                m->strips = rig_buffer_make(m->bytes);
                for (uint32_t part = 0; part < m->count; part++) {
                    m->device.part[part].base = m->strips.address + m->part[part].base;
                }
            }
            rig_try(rig.driver.fill8(m->strips.address, 0x11, (size_t)m->bytes, rig.stream), "cuMemsetD8Async");
        }
    }
}

static void free_model(void)
{
    for (uint32_t unit = 0; unit < UNITS; unit++) {
        for (uint32_t l = 1; l < LAYERS; l++) {
            rig_buffer_free(&model[l][unit].strips);
        }
        product_free(&model[0][unit]);
    }
}

static void launch_product(const chain *c, uint32_t layer, uint32_t unit)
{
    const attend_scene *s = c->scene;
    uint32_t hidden = s->heads * s->dim, ctas = (uint32_t)rig.sm_count;
    exl2k_gemv_args a = { .matrix = model[layer][unit].device, .rows = c->rows, .slots = ctas, .eps = 1e-5f,
                          .inverse_hidden = 1.0f / (float)hidden, .residual = residual.address,
                          .residual_pitch = hidden, .weight = weight.address, .sums_before = sums.address,
                          .scale = 1 };
    a.x = unit == QKV ? x.address : s->out.address;
    a.x_pitch = unit == QKV ? hidden + 64 : s->out_pitch;
    a.out = unit == QKV ? s->inputs.address : x.address;
    a.out_pitch = unit == QKV ? s->qkv_pitch : hidden + 64;
    a.sums_out = unit == QKV ? 0 : sums.address;
    a.kind = unit == QKV ? EXL2K_GEMV_STORE : EXL2K_GEMV_RESIDUAL;
    uint32_t shared = exl2__cuda_gemv_shared(&a, model[layer][unit].chunk_bytes, c->rows == 1 ? 1 : 8, ctas,
                                             (uint32_t)rig.shared_optin, 0);
    bool several = c->rows > 1;
    exl2__cuda_function *function = rig_function(&gemv[several], several ? "exl2k_gemv8" : "exl2k_gemv1");
    rig_try(rig.driver.function_set(function, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, rig.shared_optin), "shared memory");
    rig_run(function, ctas, 1, EXL2K_GEMV_THREADS, shared, &a, sizeof a);
}

static int ascending(const void *a, const void *b)
{
    double p = *(const double *)a, q = *(const double *)b;
    return (p > q) - (p < q);
}

/* Median of the microseconds per layer. */
static double time_chain(const chain *c)
{
    double times[REPEATS];
    attend_decode_launch(c->modules, c->scene, c->rows, c->stages, c->pages); /* sets the limit of shared memory */
    rig_wait();
    rig_capture();
    for (uint32_t l = 0; l < LAYERS; l++) {
        if (c->products) {
            launch_product(c, l, QKV);
        }
        if (c->attention) {
            attend_decode_launch(c->modules, c->scene, c->rows, c->stages, c->pages + l * c->layer_bytes);
        }
        if (c->products) {
            launch_product(c, l, OUT);
        }
    }
    exl2__cuda_graph_exec *graph = rig_captured();
    for (int i = 0; i < 4; i++) {
        rig_replay(graph);
    }
    rig_wait();
    for (int i = 0; i < REPEATS; i++) {
        rig_start();
        rig_replay(graph);
        times[i] = rig_stop() / LAYERS;
    }
    rig_try(rig.driver.graph_exec_free(graph), "cuGraphExecDestroy");
    qsort(times, REPEATS, sizeof times[0], ascending);
    return times[REPEATS / 2];
}

/* Microseconds that attention adds to a layer. */
static double time_between(chain c)
{
    c.products = true;
    c.attention = false;
    double without = time_chain(&c);
    c.attention = true;
    return time_chain(&c) - without;
}

static void time_shape(const attend_modules *m, const shape *sh, uint32_t split_tokens, uint32_t context,
                       uint32_t rows, bool overlap, bool early)
{
    attend_sequence sequences[ATTEND_SEQUENCES] = { { 0, 0 } };
    attend_scene s;
    for (uint32_t i = 0; i < rows; i++) {
        sequences[i] = (attend_sequence){ context - 1, 1 };
    }
    attend_kind kind = attend_plain(sh->heads, sh->kv_heads, sh->dim);
    attend_scene_make(&s, &kind, sequences, ATTEND_UNWRITTEN);
    uint32_t splits = exl2__min32((context - 1) / split_tokens + 1, EXL2K_SPLITS_MAX);
    splits = context <= EXL2K_SPLIT_SINGLE ? 1 : splits;
    for (s.splits = 1; s.splits < splits; s.splits *= 2) {
    }
    s.early = early;
    rig.programmatic = overlap;
    attend_upload(&s, 0, s.rows);
    rig_buffer pages = rig_buffer_make(s.pages.bytes * LAYERS);
    rig_try(rig.driver.fill8(pages.address, 0x21, (size_t)pages.bytes, rig.stream), "cuMemsetD8Async");
    chain c = { m, &s, pages.address, s.pages.bytes, rows, sh->stages, false, true };
    double alone = time_chain(&c), between = time_between(c);
    printf("  %-9s context %5u, %u rows, %2u splits of %3u, %u stages, %-22s %7.2f us between products, %7.2f alone\n",
           sh->name, context, rows, splits, split_tokens, sh->stages,
           early ? "overlapping, early:" : overlap ? "overlapping:" : "plain:", between, alone);
    rig_buffer_free(&pages);
    attend_scene_free(&s);
}

/* ---- formats of the cache ---- */

/* Stages as exl2__cuda_decode chooses them. */
static uint32_t stages_of(const attend_scene *s, uint32_t rows)
{
    uint32_t kind = attend_class(s), slot = EXL2K_SUMS_BYTES(64u << kind), warps = EXL2K_WARPS128;
    slot = s->codes ? EXL2K_CODES_SLOT(s->key_bits, s->value_bits, 2u << kind) : slot;
    return exl2__min32((rows == 1 ? 128u << 10 : s->codes ? 96u << 10 : 64u << 10) / (warps * slot), 8);
}

/* together: the rows are of one sequence, as with drafts. */
static void time_format(const attend_modules *m, exl2_kv format, uint32_t context, uint32_t rows, bool together)
{
    attend_sequence sequences[ATTEND_SEQUENCES] = { { context - 1, together ? rows : 1 } };
    attend_scene s;
    for (uint32_t i = 1; i < rows && !together; i++) {
        sequences[i] = (attend_sequence){ context - 1, 1 };
    }
    attend_kind kind = attend_plain(32, 8, 128);
    kind.format = format;
    attend_scene_make(&s, &kind, sequences, ATTEND_UNWRITTEN | ATTEND_PERMUTED);
    s.splits = attend_splits(&s, 0, s.rows);
    s.no_cluster = s.splits * s.kv_heads * rows > (uint32_t)rig.sm_count; /* as exl2__cuda_decode */
    s.early = 1;
    s.stores = rows <= EXL2K_KEPT;
    attend_upload(&s, 0, s.rows);
    rig_buffer pages = rig_buffer_make(s.pages.bytes * LAYERS);
    rig_try(rig.driver.fill8(pages.address, 0x21, (size_t)pages.bytes, rig.stream), "cuMemsetD8Async");
    chain c = { m, &s, pages.address, s.pages.bytes, rows, stages_of(&s, rows), false, true };
    double alone = time_chain(&c), between = time_between(c);
    printf("  %-4s context %5u, %u rows%-16s %7.2f us between products, %7.2f alone\n", attend_formats[format], context,
           rows, together ? " of one sequence" : "", between, alone);
    rig_buffer_free(&pages);
    attend_scene_free(&s);
}

static void time_formats(void)
{
    static const uint32_t contexts[] = { 128, 1024, 8192, 32768 }, rows[] = { 1, 4, 6, 6 };
    const shape sh = { "8B", 32, 8, 128, 0 };
    attend_modules m = attend_modules_load(NULL);
    gemv[0] = rig_load("gemv1.cu", NULL);
    gemv[1] = rig_load("gemv8.cu", NULL);
    rig.programmatic = true;
    make_model(&sh);
    for (size_t i = 0; i < EXL2__COUNT(contexts) * EXL2__COUNT(rows); i++) {
        uint32_t context = contexts[i / 4];
        for (uint32_t format = EXL2_KV_FP16; format <= EXL2_KV_Q4 && (i % 4 < 2 || context < 8192); format++) {
            time_format(&m, (exl2_kv)format, context, rows[i % 4], i % 4 == 3);
        }
    }
    free_model();
}

static void time_split(const shape *shapes, size_t count, uint32_t tokens)
{
    static const uint32_t contexts[] = { 128, 256, 512, 2048, 6144 };
    char options[96];
    attend_modules m[2];
    rig_module products[2][2]; /* [overlapping launches][several rows] */
    for (int overlap = 0; overlap < 2; overlap++) {
        snprintf(options, sizeof options, "-DEXL2K_PDL=%d -DEXL2K_SPLIT_TOKENS=%u", overlap, tokens);
        m[overlap] = attend_modules_load(options);
        snprintf(options, sizeof options, "-DEXL2K_PDL=%d", overlap);
        products[overlap][0] = rig_load("gemv1.cu", options);
        products[overlap][1] = rig_load("gemv8.cu", options);
    }
    for (size_t i = 0; i < count; i++) {
        make_model(&shapes[i]);
        for (size_t k = 0; k < EXL2__COUNT(contexts) * 2; k++) {
            uint32_t context = contexts[k / 2], rows = k % 2 ? 6 : 1;
            for (uint32_t mode = rows == 1 ? 0 : 2; mode < 3; mode++) {
                memcpy(gemv, products[mode > 0], sizeof gemv);
                time_shape(&m[mode > 0], &shapes[i], tokens, context, rows, mode > 0, mode == 2);
            }
        }
        free_model();
    }
}

/* ---- prompts ---- */

typedef struct prompt {
    uint32_t heads, kv_heads, dim, before, rows, window; /* tokens before the prompt's rows */
} prompt;

/* Median of the microseconds of a kernel: attention, or the one that stores K and V. */
static double time_rows(const attend_modules *m, const attend_scene *s, bool stores)
{
    enum { LAUNCHES = 16 };
    double times[REPEATS];
    exl2k_attend_args a = attend_args(s, 1, s->pages.address);
    for (int i = -4; i < REPEATS; i++) { /* at first clocks rise */
        rig_start();
        for (int k = 0; k < LAUNCHES; k++) {
            if (stores) {
                attend_launch(&m->store, "exl2k_attend_store", s->rows, 1, 1, 256, 0, &a, false);
            } else {
                attend_rows_launch(m, s, s->rows, &a);
            }
        }
        double us = rig_stop() / LAUNCHES;
        if (i >= 0) {
            times[i] = us;
        }
    }
    qsort(times, REPEATS, sizeof times[0], ascending);
    return times[REPEATS / 2];
}

static void time_prompt(const attend_modules *m, const prompt *p)
{
    attend_sequence sequences[ATTEND_SEQUENCES] = { { p->before, p->rows } };
    attend_scene s;
    attend_kind kind = attend_plain(p->heads, p->kv_heads, p->dim);
    kind.window = p->window;
    attend_scene_make(&s, &kind, sequences, ATTEND_UNWRITTEN);
    rig_try(rig.driver.fill8(s.pages.address, 0x21, (size_t)s.pages.bytes, rig.stream), "cuMemsetD8Async");
    attend_prefill(m, &s, 0, s.rows); /* stores K and V of the rows */
    double flops = 4.0 * p->heads * p->dim * p->rows * (p->before + p->rows / 2.0), old = time_rows(m, &s, false);
    printf("  %2u/%u heads of %3u, %4u rows after %4u tokens, window %4u: ", p->heads, p->kv_heads, p->dim, p->rows,
           p->before, p->window);
    printf("stores %5.1f us, attends %7.1f us (%3.0f TFLOP/s)", time_rows(m, &s, true), old, flops / old * 1e-6);
    if (attend_has_wg(p->dim)) {
        s.wg = (uint32_t)rig.sm_count;
        double us = time_rows(m, &s, false);
        printf(", by wgmma %7.1f us (%3.0f TFLOP/s)", us, flops / us * 1e-6);
    }
    printf("\n");
    attend_scene_free(&s);
}

static void time_prompts(void)
{
    static const prompt prompts[] = {
        { 32, 8, 128, 0, 16, 0 }, { 32, 8, 128, 0, 128, 0 }, { 32, 8, 128, 0, 512, 0 }, { 32, 8, 128, 0, 1024, 0 },
        { 32, 8, 128, 0, 2048, 0 }, { 32, 8, 128, 0, 4096, 0 }, { 32, 8, 128, 2048, 2048, 0 },
        { 32, 8, 128, 2048, 2048, 1024 }, { 32, 32, 128, 0, 2048, 0 }, { 32, 4, 64, 0, 2048, 0 },
        { 9, 3, 64, 0, 512, 0 }, { 9, 3, 64, 0, 2048, 0 },
    };
    attend_modules m = attend_modules_load(NULL);
    printf("attention of a prompt in one layer:\n");
    for (size_t i = 0; i < EXL2__COUNT(prompts); i++) {
        time_prompt(&m, &prompts[i]);
    }
}

int main(int argc, char **argv)
{
    static const shape shapes[] = { { "8B", 32, 8, 128, 2 }, { "8B", 32, 8, 128, 4 }, { "tinyllama", 32, 4, 64, 4 },
                                    { "tinyllama", 32, 4, 64, 8 }, { "SmolLM2", 9, 3, 64, 8 } };
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    rig_buffer *all[] = { &x, &residual, &sums, &weight };
    bool prompts = argc > 2 && strcmp(argv[2], "prefill") == 0, codes = argc > 2 && strcmp(argv[2], "codes") == 0;
    if (argc <= 2 || prompts) {
        time_prompts();
    }
    for (size_t i = 0; i < EXL2__COUNT(all); i++) {
        *all[i] = rig_buffer_make(8 * (4096 + 64) * 4);
        rig_try(rig.driver.fill8(all[i]->address, 0x3C, (size_t)all[i]->bytes, rig.stream), "cuMemsetD8Async");
    }
    for (int i = 2; i < argc && !prompts && !codes; i++) {
        time_split(shapes, EXL2__COUNT(shapes), (uint32_t)strtoul(argv[i], NULL, 10));
    }
    if (codes) {
        time_formats();
    }
    if (argc <= 2) {
        time_split(shapes, EXL2__COUNT(shapes), EXL2K_SPLIT_TOKENS);
    }
    rig_close();
    return 0;
}
