/* cuda_families.c: launches of passes over the fake driver, for models whose blocks differ from Llama's: which kernels
   run and how often, where the inputs of products come from, and that captured passes launch the same whatever their
   rows are, and what passes launch that are not captured. */
#include "../../exl2.h"

#define EXL2__CUDA_LARGE_HIDDEN 250u /* the hidden size from which matrices are large, in place of 4,096 */
#include "private/cuda.h"
#include "../../kernels_src/probe_args.h"
#include "../device/fake_gpu.h"
#include "../device/phase_pass.h"
#include "cpu_synth.h"

/* ---- the launches of a pass ---- */

#define LAUNCHES_MAX 256u

typedef struct launched {
    char function[32];
    unsigned grid[3];
    exl2k_settle_args settle; /* of exl2k_settle */
    uint64_t x, out;          /* of products, of exl2k_norm and exl2k_wg_order; out of attention of sampled rows */
    uint32_t kind;
    uint32_t x_pitch, x_step, out_pitch, out_step; /* of products of few rows; out_* of attention */
    uint32_t tile_rows;       /* of inputs or results that are tiles; 0: there are none */
    uint64_t partial;         /* where products by GEMM may put sums of splits */
    uint64_t rows_at;         /* of products */
} launched;

static launched launches[LAUNCHES_MAX];
static uint32_t launch_count;

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    launched *l = &launches[launch_count];
    if (strncmp(function, "exl2k_shuffle", 13) == 0 || !CHECK(launch_count + 1 < LAUNCHES_MAX)) {
        return;
    }
    *l = (launched){ .grid = { grid[0], grid[1], grid[2] } };
    snprintf(l->function, sizeof l->function, "%s", function);
    if (strcmp(function, "exl2k_settle") == 0) {
        memcpy(&l->settle, arguments, sizeof l->settle);
        l->tile_rows = l->settle.tile_rows;
    } else if (strncmp(function, "exl2k_gemv", 10) == 0) {
        const exl2k_gemv_args *a = (const exl2k_gemv_args *)arguments;
        l->x = a->x;
        l->out = a->out;
        l->rows_at = a->rows_at;
        l->kind = a->kind;
        l->x_pitch = a->x_pitch;
        l->x_step = a->x_step;
        l->out_pitch = a->out_pitch;
        l->out_step = a->out_step;
    } else if (strncmp(function, "exl2k_gemm", 10) == 0) {
        const exl2k_gemm_args *a = (const exl2k_gemm_args *)arguments;
        l->x = a->x;
        l->out = a->out;
        l->kind = a->kind == EXL2K_GEMM_ACT ? EXL2K_GEMV_ACT : EXL2K_GEMV_STORE;
        l->tile_rows = strncmp(function, "exl2k_gemm_wg", 13) == 0 ? a->x_pitch : 0;
        l->partial = a->partial;
        l->rows_at = a->rows_at;
    } else if (strcmp(function, "exl2k_norm") == 0) {
        const exl2k_norm_args *a = (const exl2k_norm_args *)arguments;
        l->out = a->out;
        l->tile_rows = a->tile_rows;
    } else if (strcmp(function, "exl2k_wg_order") == 0) {
        const exl2k_wg_order_args *a = (const exl2k_wg_order_args *)arguments;
        l->x = a->from;
        l->out = a->to;
        l->tile_rows = a->rows;
    } else if (strncmp(function, "exl2k_attend_decode", 19) == 0 || strncmp(function, "exl2k_attend_codes", 18) == 0) {
        const exl2k_attend_args *a = (const exl2k_attend_args *)arguments;
        l->out = a->out;
        l->kind = EXL2K_GEMV_ACT; /* writes what a product reads */
        l->out_pitch = a->out_pitch;
        l->out_step = a->out_gap + EXL2K_STEP;
    }
    launch_count++;
}

static uint32_t count_of(const char *function)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < launch_count; i++) {
        count += strcmp(launches[i].function, function) == 0;
    }
    return count;
}

/* ---- models ---- */

typedef struct family_case {
    synth_family family;
    synth_shape shape;
    uint32_t settles; /* of a pass that decodes */
    bool any;         /* products for any family */
} family_case;

#define SHAPE(layers, bias, dense) { 128, 160, layers, 4, 2, 64, 300, 3, dense, bias, false, true }
#define AFFINE { 128, 160, 2, 4, 2, 64, 300, SYNTH_AFFINE + 3, false, true, false, true }

static const family_case cases[] = {
    { { .act = EXL2__ACT_SILU }, SHAPE(2, false, false), 0, false },
    { { .act = EXL2__ACT_SILU, .embed_scale = 12 }, SHAPE(2, false, false), 0, false },
    { { .act = EXL2__ACT_GELU_TANH }, SHAPE(2, false, false), 0, true },
    { { .act = EXL2__ACT_RELU_SQUARED, .ungated = true }, SHAPE(2, false, false), 0, true },
    { { .act = EXL2__ACT_SILU, .residual_scale = 0.5f }, SHAPE(2, false, false), 0, true },
    { { .act = EXL2__ACT_SILU, .logit_scale = 0.5f }, SHAPE(2, false, false), 0, true },
    { { .act = EXL2__ACT_SILU, .final_softcap = 30 }, SHAPE(2, false, false), 0, true },
    { { .act = EXL2__ACT_GELU_TANH, .ungated = true, .layer_norm = true, .positions = true }, SHAPE(3, true, false), 7,
      true },
    { { .act = EXL2__ACT_GELU_TANH, .post_norms = true }, SHAPE(2, false, false), 5, true },
    { { .act = EXL2__ACT_SILU, .post_norms = true, .no_pre_norms = true }, SHAPE(2, false, false), 5, true },
    { { .act = EXL2__ACT_SILU, .parallel = true, .layer_norm = true }, SHAPE(3, false, false), 4, true },
    { { .act = EXL2__ACT_GELU, .parallel = true, .layer_norm = true, .ungated = true }, SHAPE(3, true, true), 4, true },
    { { .act = EXL2__ACT_SILU }, AFFINE, 0, false },
    { { .act = EXL2__ACT_GELU_TANH, .post_norms = true }, AFFINE, 5, true },
};

/* Enqueues a whole pass and waits for it. */
static void run_pass(synth_model *m, const exl2__step *step)
{
    synth_need(m, m->b->begin(m->d, step));
    synth_need(m, exl2__cuda_device_enter(&gpu));
    CHECK_INT(gpu.driver.stream_wait(gpu.stream), 0);
    exl2__cuda_device_leave(&gpu);
    launch_count = 0;
    uint32_t units = m->b->queue->units(m->d);
    synth_need(m, m->b->queue->enqueue(m->d, 0, units + (step->logit_count > 0), false));
    synth_need(m, exl2__cuda_device_enter(&gpu));
    CHECK_INT(gpu.driver.stream_wait(gpu.stream), 0);
    exl2__cuda_device_leave(&gpu);
    exl2__cuda_of(m->d)->fences_collected = exl2__cuda_of(m->d)->fences_queued;
}

/* ---- checks ---- */

/* Products are those for any family, or those for Llama, never both; or all are those for affine matrices. */
static void check_kernels(const family_case *c)
{
    bool affine = c->shape.mix >= SYNTH_AFFINE;
    for (uint32_t i = 0; i < launch_count; i++) {
        const char *name = launches[i].function;
        bool product = strncmp(name, "exl2k_gemv", 10) == 0 || strcmp(name, "exl2k_gemm") == 0
                       || strcmp(name, "exl2k_gemm_any") == 0 || strcmp(name, "exl2k_gemm_affine") == 0;
        CHECK(!product || (strstr(name, "_affine") != NULL) == affine);
        CHECK(!product || affine || (strstr(name, "_any") != NULL) == c->any);
    }
}

/* q, k, v and gate, up read what the last `settle` has written for them: gate and up the second order if there is
   one. Block results without a norm after them leave the next inputs to `settle`. */
static void check_chain(const family_case *c)
{
    const exl2k_settle_args *last = NULL;
    uint32_t read = 0;
    for (uint32_t i = 0; i < launch_count && c->settles; i++) {
        const launched *l = &launches[i];
        last = strcmp(l->function, "exl2k_settle") == 0 ? &l->settle : last;
        if (last && l->kind == EXL2K_GEMV_ACT && l->x) {
            CHECK(l->x == (last->out[1] ? last->out[1] : last->out[0]));
            CHECK((last->out[1] != 0) == (c->family.parallel && !c->shape.dense));
            read++;
        }
        if (l->kind == EXL2K_GEMV_RESIDUAL) {
            CHECK(l->out == 0);
        }
    }
    CHECK(read == (c->settles ? c->shape.layers : 0));
}

static void check_settles(const family_case *c, const synth_model *m, uint32_t rows)
{
    uint32_t branches = 0, seen = 0;
    for (uint32_t i = 0; i < launch_count; i++) {
        const exl2k_settle_args *a = &launches[i].settle;
        if (strcmp(launches[i].function, "exl2k_settle") == 0) {
            CHECK(launches[i].grid[0] == rows && a->hidden == c->shape.hidden);
            CHECK_INT(a->layer_norm, c->family.layer_norm);
            CHECK((a->branch != 0) == (a->post_weight != 0) && (a->branch || a->out[0]));
            CHECK(a->scale == m->plan.shape.residual_scale);
            /* The tables of the next launch: all but the last launch of a pass have them. */
            CHECK_INT(a->soon_map != 0 || a->soon[0] != 0, seen + 1 < c->settles);
            seen++;
            CHECK_INT(a->late, 3 * exl2__cuda_residual_ctas(exl2__cuda_of(m->d))
                                   <= 2 * exl2__cuda_of(m->d)->limits.ctas);
            branches += a->branch != 0;
        }
    }
    CHECK_INT(branches, c->family.post_norms ? 2 * c->shape.layers : 0);
}

/* Buffers that a pass of many rows needs at the same time are apart. */
static void check_buffers(const family_case *c, const synth_model *m)
{
    const exl2__cuda_buffers *b = &exl2__cuda_of(m->d)->b;
    uint64_t rows = m->plan.rows_max, h_end = b->h + rows * b->h_pitch * 2;
    CHECK((b->x2 != 0) == c->family.parallel && (b->branch != 0) == c->family.post_norms);
    if (c->family.parallel) {
        CHECK(b->qkv >= h_end && (b->x2 >= b->x + rows * b->x_pitch * 2 || b->x2 + rows * b->x_pitch * 2 <= b->x));
    }
}

/* Passes that decode 2 to 8 rows launch the same kernels with the same grids, however many rows there are, and so do
   passes of 9 to 16. */
static void check_decodes(const family_case *c, synth_model *m)
{
    static made_step made;
    static launched first[LAUNCHES_MAX];
    uint32_t first_count = 0;
    for (uint32_t rows = 1; rows <= EXL2__CUDA_GEMV_ROWS; rows++) {
        pass p = { 0 };
        for (uint32_t i = 0; i < rows; i++) {
            p.sequence[i] = (made_rows){ 3 + 5 * i, 1 };
        }
        make_step(&made, &c->shape, &p, EXL2__ROWS_SAMPLED);
        made.step.decodes = true;
        made.step.logit_count = 0;
        for (uint32_t row = 0; row < rows; row++) {
            make_logits(&made, row);
        }
        run_pass(m, &made.step);
        CHECK_INT(count_of("exl2k_settle"), c->settles);
        check_kernels(c);
        if (rows <= 8) { /* more rows are two products here, of which the second reads later rows */
            check_chain(c);
        }
        check_settles(c, m, rows == 1 ? 1 : rows <= 8 ? 8 : 16);
        if (rows == 2 || rows == 9) {
            memcpy(first, launches, sizeof first);
            first_count = launch_count;
        }
        CHECK(rows < 2 || launch_count == first_count);
        CHECK(count_of("exl2k_gemv16") == 0); /* no such GPU */
        for (uint32_t i = 0; i < launch_count && rows > 2; i++) {
            CHECK(strcmp(first[i].function, launches[i].function) == 0
                  && memcmp(first[i].grid, launches[i].grid, sizeof first[i].grid) == 0);
        }
    }
}

/* Passes with prompts. The rows that want logits are settled for the head apart; without such rows the last block needs
   no `settle`, unless its norm follows. */
static void check_prompts(const family_case *c, synth_model *m)
{
    static made_step made;
    for (uint32_t i = 0; i < EXL2__COUNT(passes); i++) {
        uint32_t groups = 0, settles = c->settles;
        make_step(&made, &c->shape, &passes[i], EXL2__ROWS_PROMPT);
        groups = (uint32_t)exl2__div_up(made.step.logit_count, m->plan.logit_rows_max);
        for (uint32_t unit = 0; unit < 2; unit++) { /* with logits, then without */
            if (unit == 1) {
                made.step.logit_count = groups = 0;
            }
            synth_need(m, m->b->begin(m->d, &made.step));
            launch_count = 0;
            uint32_t units = m->b->queue->units(m->d);
            synth_need(m, m->b->queue->enqueue(m->d, 0, units, false));
            for (uint32_t g = 0; g < groups; g++) {
                synth_need(m, m->b->queue->enqueue(m->d, units + g, units + g + 1, false));
            }
            synth_need(m, exl2__cuda_device_enter(&gpu));
            CHECK_INT(gpu.driver.stream_wait(gpu.stream), 0);
            exl2__cuda_device_leave(&gpu);
            exl2__cuda_of(m->d)->fences_collected = exl2__cuda_of(m->d)->fences_queued;
            uint32_t needed = settles == 0 ? 0 : settles - !c->family.post_norms + groups;
            CHECK_INT(count_of("exl2k_settle"), needed);
            CHECK(c->settles == 0 || count_of("exl2k_norm") + count_of("exl2k_head_rows") == 0);
            check_kernels(c);
        }
    }
}

static void check_case(const family_case *c)
{
    exl2_parallel none = { 0 };
    synth_model m;
    gpu_open(89, 232448, run);
    synth_now = &c->family;
    synth_model_open_on(&m, &exl2__cuda_backend, &gpu, &c->shape, 7, none, ROWS_MAX, CONTEXT, PAGES, NULL);
    CHECK(exl2__cuda_missing(&m.plan.shape) == NULL);
    CHECK((gpu.kernels.functions[EXL2__KERNEL_exl2k_settle] != NULL) || c->settles == 0);
    check_buffers(c, &m);
    check_decodes(c, &m);
    check_prompts(c, &m);
    synth_model_close(&m);
    gpu_close();
    synth_now = &synth_llama;
}

/* ---- products by wgmma ---- */

/* The launch before number `end` that has written to the address; NULL: none. */
static const launched *writer_of(uint64_t address, uint32_t end)
{
    for (uint32_t i = end; i-- > 0;) {
        const launched *l = &launches[i];
        if (l->out == address || l->settle.out[0] == address || l->settle.out[1] == address) {
            return l;
        }
    }
    return NULL;
}

/* Every product of a pass of prompts, or of many rows, reads tiles that a norm, act(gate) * up or the kernel of
   attention's order has written there last, and no kernel of gemm.cu runs. Nothing but attention's results is put in
   order by a kernel of its own. Other passes have no tiles. */
static void check_tiles(synth_model *m, const pass *p, const synth_shape *shape)
{
    static made_step made;
    make_step(&made, shape, p, false);
    made.step.logit_count = 0;
    bool many = made.step.kind == EXL2__ROWS_PROMPT || made.step.row_count >= EXL2__CUDA_GEMM_ROWS_MIN;
    uint32_t rows = many ? (made.step.row_count + 7) / 8 * 8 : 0, products = 0;
    run_pass(m, &made.step);
    for (uint32_t i = 0; i < launch_count; i++) {
        const launched *l = &launches[i];
        if (strncmp(l->function, "exl2k_gemm", 10) == 0) {
            const launched *from = writer_of(l->x, i);
            bool product = from && strncmp(from->function, "exl2k_gemm", 10) == 0;
            CHECK(l->tile_rows == rows && from && (!product || from->kind == EXL2K_GEMV_ACT));
            CHECK(from && from->tile_rows == rows);
            products++;
        } else if (strcmp(l->function, "exl2k_norm") == 0 || strcmp(l->function, "exl2k_wg_order") == 0
                   || strcmp(l->function, "exl2k_settle") == 0) {
            CHECK_INT(l->tile_rows, rows);
        }
    }
    CHECK(!many || products == 4 * shape->layers);
    CHECK_INT(count_of("exl2k_wg_order"), many ? shape->layers : 0);
    CHECK(!many || count_of("exl2k_attend_permute") == 0);
}

/* Products of few rows read tiles where the last product that wrote there, or attention, has written the same tiles,
   and only there. */
static void check_few_tiles(synth_model *m, const synth_shape *shape, uint32_t rows)
{
    static made_step made;
    const pass p = { { { 55, rows } }, false };
    bool sixteen = !exl2__cuda_needs_any(&m->plan.shape);
    bool folds = exl2__cuda_folds(&m->plan.shape);
    uint32_t tiled = 0, lanes = rows < 2 || !folds ? 0 : rows <= 8 ? 8 : rows <= 16 && sixteen ? 16 : 0;
    make_step(&made, shape, &p, EXL2__ROWS_SAMPLED);
    made.step.logit_count = 0;
    run_pass(m, &made.step);
    for (uint32_t i = 0; i < launch_count; i++) {
        const launched *l = &launches[i], *writer = NULL;
        for (uint32_t k = 0; k < i && l->x_step; k++) {
            bool writes = launches[k].out_step && launches[k].kind != EXL2K_GEMV_STORE && launches[k].out == l->x;
            writer = writes ? &launches[k] : writer;
        }
        if (l->x_step > EXL2K_STEP || (writer && folds)) {
            CHECK(writer && l->x_step == writer->out_step && l->x_pitch == writer->out_pitch);
        }
        CHECK(l->x_step <= EXL2K_STEP || (l->x_step == EXL2K_STEP * lanes && l->x_pitch == EXL2K_STEP / 2));
        tiled += l->x_step > EXL2K_STEP;
    }
    CHECK_INT(tiled, lanes ? 4 * shape->layers - 1 : 0); /* all but the first q, k, v's */
}

/* 17 sampled rows that all want logits: the head is one product, too, whose inputs are tiles. It has no splits, as
   their sums would lie where the logits are. */
static void check_head(synth_model *m, const synth_shape *shape)
{
    static made_step made;
    static const pass rows = { { { 55, 17 } }, false };
    const exl2__cuda_buffers *b = &exl2__cuda_of(m->d)->b;
    make_step(&made, shape, &rows, EXL2__ROWS_SAMPLED);
    made.step.decodes = true;
    made.step.logit_count = 0;
    for (uint32_t row = 0; row < made.step.row_count; row++) {
        make_logits(&made, row);
    }
    run_pass(m, &made.step);
    bool affine = shape->mix >= SYNTH_AFFINE;
    if (exl2__cuda_needs_any(&m->plan.shape)) { /* its head is scaled or capped by gemv alone */
        CHECK_INT(count_of("exl2k_gemm_wg64_any"), 4 * shape->layers);
        CHECK(count_of("exl2k_gemv8_any") > 0);
        return;
    }
    CHECK_INT(count_of(affine ? "exl2k_gemm_wg32_affine" : "exl2k_gemm_wg32"), 4 * shape->layers + 1);
    CHECK_INT(count_of("exl2k_gemv1") + count_of("exl2k_gemv8") + count_of("exl2k_gemv16"), 0);
    for (uint32_t i = 0; i < launch_count; i++) {
        const launched *l = &launches[i];
        CHECK(l->out != b->logits || (l->x == b->head_x && l->partial == 0));
        CHECK((l->out != b->logits && l->out != b->head_x) || l->tile_rows == 24);
    }
}

/* A pass of sampled rows that all want logits. */
static void run_sampled(synth_model *m, const synth_shape *shape, uint32_t rows)
{
    static made_step made;
    const pass p = { { { 55, rows } }, false };
    make_step(&made, shape, &p, EXL2__ROWS_SAMPLED);
    made.step.decodes = true;
    made.step.logit_count = 0;
    for (uint32_t row = 0; row < rows; row++) {
        make_logits(&made, row);
    }
    run_pass(m, &made.step);
}

static void check_same_launches(const launched *wanted, uint32_t count)
{
    for (uint32_t i = 0; i < count && CHECK_INT(launch_count, count); i++) {
        const launched *a = &wanted[i], *b = &launches[i];
        CHECK(strcmp(a->function, b->function) == 0 && memcmp(a->grid, b->grid, sizeof a->grid) == 0);
        CHECK(a->x == b->x && a->out == b->out && a->x_pitch == b->x_pitch && a->kind == b->kind);
        CHECK(a->tile_rows == b->tile_rows && a->partial == b->partial && a->rows_at == 0 && b->rows_at == 0);
    }
}

/* Sampled rows by GEMM: the graphs of a pass launch what it launches without graphs, in the same order with the same
   grids. A pass of fewer rows launches the same as one of as many rows as its class has. */
static void check_many(synth_model *m, const synth_shape *shape)
{
    static const uint32_t counts[] = { 24, 32 }, fewer[] = { 17, 25 };
    static launched graph[LAUNCHES_MAX];
    exl2__cuda_model *model = exl2__cuda_of(m->d);
    for (uint32_t i = 0; i < EXL2__COUNT(counts); i++) {
        run_sampled(m, shape, counts[i]);
        uint32_t count = launch_count;
        memcpy(graph, launches, sizeof graph);
        CHECK(model->pass.captured && model->pass.by_gemm && model->pass.row_count == counts[i]);
        synth_need(m, exl2__cuda_device_enter(&gpu));
        launch_count = 0;
        model->pass.captured = model->pass.chained = false;
        synth_need(m, exl2__cuda_queue_plain(model, 0, exl2__cuda_layer_units(model) + model->head_units));
        CHECK_INT(gpu.driver.stream_wait(gpu.stream), 0);
        exl2__cuda_device_leave(&gpu);
        check_same_launches(graph, count);
        run_sampled(m, shape, fewer[i]);
        CHECK(model->pass.captured && model->pass.row_count == counts[i]);
        check_same_launches(graph, count);
    }
}

/* A model that wgmma does not serve only because of its matrices loads gemm.cu late. */
static void check_late(const synth_model *m, const synth_shape *shape, bool wanted)
{
    static const exl2__cuda_kernel late[] = { EXL2__KERNEL_exl2k_gemm, EXL2__KERNEL_exl2k_gemm_affine,
                                              EXL2__KERNEL_exl2k_gemm_any };
    exl2__cuda_device_enter(&gpu);
    for (uint32_t i = 0; i < EXL2__COUNT(late); i++) {
        gpu.driver.module_unload(gpu.kernels.modules[late[i]]);
        gpu.kernels.modules[late[i]] = NULL;
        gpu.kernels.functions[late[i]] = NULL;
    }
    CHECK_INT(exl2__cuda_prepare_products(exl2__cuda_of(m->d), &m->plan), EXL2_OK);
    exl2__cuda_device_leave(&gpu);
    CHECK((gpu.kernels.functions[late[0]] != NULL) == (wanted && !exl2__cuda_needs_any(&m->plan.shape)));
    CHECK((gpu.kernels.functions[late[1]] != NULL) == (wanted && shape->mix >= SYNTH_AFFINE));
    CHECK((gpu.kernels.functions[late[2]] != NULL) == (wanted && exl2__cuda_needs_any(&m->plan.shape)));
}

/* A model on a GPU of compute capability 9.0 whose products of many rows run by wgmma, if `wanted`. */
static void check_wg(int arch, int shared_bytes, const synth_shape *shape, bool wanted)
{
    exl2_parallel none = { 0 };
    synth_model m;
    gpu_open(arch, shared_bytes, run);
    synth_model_open_on(&m, &exl2__cuda_backend, &gpu, shape, 7, none, ROWS_MAX, CONTEXT, PAGES, NULL);
    CHECK_INT(exl2__cuda_of(m.d)->has_wg, wanted);
    CHECK((gpu.kernels.functions[EXL2__KERNEL_exl2k_gemm_wg256] != NULL) == (arch == 90));
    CHECK((gpu.kernels.functions[EXL2__KERNEL_exl2k_gemm_wg256_affine] != NULL) == (arch == 90));
    if (synth_sequences > EXL2__CUDA_GEMV_ROWS) {
        check_many(&m, shape);
    }
    check_late(&m, shape, exl2__cuda_may_wg(&gpu, &m.plan.shape) && !wanted);
    for (uint32_t i = 0; i < EXL2__COUNT(passes) && wanted; i++) {
        check_tiles(&m, &passes[i], shape);
    }
    static const uint32_t few[] = { 1, 2, 8, 9, 16 };
    for (uint32_t i = 0; i < EXL2__COUNT(few) && wanted; i++) {
        check_few_tiles(&m, shape, few[i]);
    }
    if (wanted) {
        check_head(&m, shape);
    }
    synth_model_close(&m);
    gpu_close();
}

/* Other families: norms after blocks, parallel blocks, factors; not without a gate, nor with heads too wide for x2. */
static void test_wg_families(void)
{
    static const struct {
        synth_family family;
        synth_shape shape;
        bool wanted;
    } served[] = {
        { { .act = EXL2__ACT_GELU_TANH, .post_norms = true }, SHAPE(2, true, false), true },
        { { .act = EXL2__ACT_SILU, .post_norms = true, .no_pre_norms = true }, SHAPE(2, true, false), true },
        { { .act = EXL2__ACT_SILU, .parallel = true, .layer_norm = true },
          { 256, 160, 2, 4, 2, 64, 300, 3, false, true, false, true }, true },
        { { .act = EXL2__ACT_SILU, .residual_scale = 0.5f }, SHAPE(2, true, false), true },
        { { .act = EXL2__ACT_SILU, .parallel = true }, SHAPE(2, true, false), false },
        { { .act = EXL2__ACT_GELU, .post_norms = true }, SHAPE(2, true, false), false },
        { { .act = EXL2__ACT_SILU, .layer_norm = true }, SHAPE(2, true, false), true },
        { { .act = EXL2__ACT_GELU_TANH, .ungated = true, .post_norms = true }, SHAPE(2, true, false), false },
        { { .act = EXL2__ACT_GELU_TANH, .post_norms = true }, AFFINE, false },
    };
    synth_sequences = synth_logits = 32;
    for (uint32_t i = 0; i < EXL2__COUNT(served); i++) {
        synth_now = &served[i].family;
        check_wg(90, 232448, &served[i].shape, served[i].wanted);
    }
    synth_now = &synth_llama;
    synth_sequences = 16;
    synth_logits = 8;
}

static void test_wg(void)
{
    static const synth_shape plain = SHAPE(2, true, false), dense = SHAPE(2, false, true), affine = AFFINE;
    synth_sequences = synth_logits = 32;
    check_wg(90, 232448, &plain, true);
    synth_sequences = 16;
    synth_logits = 8;
    check_wg(89, 232448, &plain, false);
    check_wg(100, 232448, &plain, false);
    check_wg(90, 101376, &plain, false); /* too little shared memory */
    check_wg(90, 232448, &dense, false);
    synth_sequences = synth_logits = 32;
    check_wg(90, 232448, &affine, true);
    check_wg(89, 232448, &plain, false); /* by gemm.cu, also as graphs */
    check_wg(89, 232448, &affine, false);
    check_wg(90, 232448, &dense, false);
    synth_sequences = 16;
    synth_logits = 8;
    check_wg(89, 232448, &affine, false);
}

/* On Hopper attention of more CTAs than run at a time has CTAs half as large, if heads have 65 to 128 elements. */
static void test_crowd(void)
{
    static const struct { int arch; uint32_t kv_heads, dim, rows; bool crowd; } crowds[] = {
        { 90, 2, 128, 24, true }, { 90, 1, 128, 24, false }, { 90, 2, 64, 24, false }, { 90, 2, 128, 16, false },
        { 89, 2, 128, 24, false },
    };
    exl2_parallel none = { 0 };
    synth_sequences = synth_logits = 32;
    for (size_t i = 0; i < EXL2__COUNT(crowds); i++) {
        const synth_shape shape = { 256, 160, 2, 4, crowds[i].kv_heads, crowds[i].dim, 300, 3,
                                    false, true, false, true };
        synth_model m;
        gpu_open(crowds[i].arch, 232448, run);
        synth_model_open_on(&m, &exl2__cuda_backend, &gpu, &shape, 7, none, ROWS_MAX, CONTEXT, PAGES, NULL);
        run_sampled(&m, &shape, crowds[i].rows);
        CHECK_INT(count_of("exl2k_attend_decode_crowd128"), crowds[i].crowd ? shape.layers : 0);
        synth_model_close(&m);
        gpu_close();
    }
    synth_sequences = 16;
    synth_logits = 8;
}

/* A model with experts runs with the least shared memory: static and dynamic memory of each launch fit. */
static void test_experts(void)
{
    static const synth_family family = {
        .act = EXL2__ACT_SILU, .choice_bias = 2,
        .experts = { .count = 60, .active = 5, .inter = 32, .shared_inter = 64, .sigmoid = true, .renormalized = true,
                     .groups = 6, .groups_active = 3, .scale = 2.5f }
    };
    static const synth_shape shape = { 128, 64, 1, 4, 2, 64, 99, 31, false, false, false, true };
    static made_step made;
    exl2_parallel none = { 0 };
    synth_model m;
    gpu_open(90, 49152, run);
    synth_now = &family;
    synth_model_open_on(&m, &exl2__cuda_backend, &gpu, &shape, 7, none, ROWS_MAX, CONTEXT, PAGES, NULL);
    for (uint32_t rows = 1; rows <= EXL2__CUDA_GEMV_ROWS; rows++) {
        pass p = { { { 3, rows } }, false };
        make_step(&made, &shape, &p, EXL2__ROWS_SAMPLED);
        made.step.logit_count = 0;
        run_pass(&m, &made.step);
        CHECK(count_of("exl2k_expert1") + count_of("exl2k_expert8") > 0);
    }
    synth_model_close(&m);
    gpu_close();
    synth_now = &synth_llama;
}

/* Passes of one and of two rows use the kernels for large matrices alone, if `wanted`, or never. */
static void check_large(int arch, const synth_shape *shape, bool wanted)
{
    static made_step made;
    exl2_parallel none = { 0 };
    synth_model m;
    gpu_open(arch, 232448, run);
    synth_model_open_on(&m, &exl2__cuda_backend, &gpu, shape, 7, none, ROWS_MAX, CONTEXT, PAGES, NULL);
    for (uint32_t rows = 1; rows <= 2; rows++) {
        const pass p = { { { 5, 1 }, { 9, rows - 1 } }, false };
        make_step(&made, shape, &p, EXL2__ROWS_SAMPLED);
        made.step.decodes = true;
        made.step.logit_count = 0;
        run_pass(&m, &made.step);
        uint32_t large = count_of(rows == 1 ? "exl2k_gemv1_large" : "exl2k_gemv8_large"), products = 4 * shape->layers;
        CHECK_INT(large, wanted ? products : 0);
        CHECK(wanted || count_of(rows == 1 ? "exl2k_gemv1" : "exl2k_gemv8") == products || shape->mix >= SYNTH_AFFINE);
    }
    synth_model_close(&m);
    gpu_close();
}

static void test_large(void)
{
    static const synth_shape large = { 256, 160, 2, 4, 2, 64, 300, 3, false, true, false, true }, affine = AFFINE;
    static const synth_shape small = { 192, 160, 2, 4, 2, 64, 300, 3, false, true, false, true };
    check_large(90, &large, true);
    check_large(89, &large, false);
    check_large(90, &small, false);
    check_large(90, &affine, false);
}

/* The modules that a model compiles: products of one kind, and `settle` only if it runs. */
static void test_modules(void)
{
    for (uint32_t i = 0; i < 32; i++) {
        bool wanted[EXL2__KERNEL_COUNT], any = i & 1, settles = i & 2, affine = i & 4, hopper = i & 8;
        bool by_wg = hopper && !(any && affine), large = hopper && (i & 16);
        exl2__cuda_needs needs = { .arch = hopper ? 90 : 89, .head_class = 64, .any = any, .large = large,
                                   .affine = affine, .settles = settles, .by_wg = by_wg };
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv1_affine] == affine);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_affine] == (affine && !by_wg));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv8_affine] == affine);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv1] == (!any && !large) && wanted[EXL2__KERNEL_exl2k_gemv1_any] == any);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv8] == (!any && !large) && wanted[EXL2__KERNEL_exl2k_gemv8_any] == any);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv1_large] == (!any && large));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv8_large] == (!any && large));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv8_head] == (!any && large && !affine));
        CHECK(!wanted[EXL2__KERNEL_exl2k_gemv16_head]);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm] == (!any && !by_wg));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_any] == (any && !by_wg));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg64] == (by_wg && !affine && !any));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg16_roles] == (by_wg && !affine && !any));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg256_affine] == (by_wg && affine));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg128_any] == (by_wg && any));
        CHECK(wanted[EXL2__KERNEL_exl2k_wg_order] == by_wg);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg32] == (by_wg && !affine && !any));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg32_affine] == (by_wg && affine && !any));
        CHECK(!wanted[EXL2__KERNEL_exl2k_gemm_wg64_lora] && !wanted[EXL2__KERNEL_exl2k_lora_wg_t16]);
        CHECK(wanted[EXL2__KERNEL_exl2k_settle] == settles);
        CHECK(!wanted[EXL2__KERNEL_exl2k_grouped_sort] && !wanted[EXL2__KERNEL_exl2k_grouped_gemm]);
        CHECK(!wanted[EXL2__KERNEL_exl2k_grouped_gemm32] && !wanted[EXL2__KERNEL_exl2k_grouped_gemm_affine]);
        CHECK(wanted[EXL2__KERNEL_exl2k_attend_prefill64] && !wanted[EXL2__KERNEL_exl2k_attend_prefill128]);
        CHECK(!wanted[EXL2__KERNEL_exl2k_attend_wg64]);
        needs.attend_wg = needs.crowd = true;
        needs.by_wg = !any;
        needs.arch = 90;
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg32] == (!any && !affine));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg32_affine] == (!any && affine));
        CHECK(!wanted[EXL2__KERNEL_exl2k_attend_prefill64] && !wanted[EXL2__KERNEL_exl2k_attend_wg128]);
        CHECK(wanted[EXL2__KERNEL_exl2k_attend_wg64] && wanted[EXL2__KERNEL_exl2k_attend_decode64]);
        CHECK(!wanted[EXL2__KERNEL_exl2k_attend_decode_few64] && !wanted[EXL2__KERNEL_exl2k_attend_decode_crowd128]);
        needs.attend_few = true;
        needs.crowd = false; /* up to 16 rows */
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(wanted[EXL2__KERNEL_exl2k_attend_decode_few64] && !wanted[EXL2__KERNEL_exl2k_attend_decode64]);
        CHECK(!wanted[EXL2__KERNEL_exl2k_attend_decode_few128]);
        needs.head_class = 128;
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(wanted[EXL2__KERNEL_exl2k_attend_decode_few128] && !wanted[EXL2__KERNEL_exl2k_attend_decode_crowd128]);
        needs.crowd = true;
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(wanted[EXL2__KERNEL_exl2k_attend_decode128] && wanted[EXL2__KERNEL_exl2k_attend_decode_crowd128]);
        needs.head_class = 64;
        needs.many = needs.crowd = true;
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(wanted[EXL2__KERNEL_exl2k_attend_decode_few64] && wanted[EXL2__KERNEL_exl2k_attend_decode64]);
        needs.codes = true;
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(!wanted[EXL2__KERNEL_exl2k_attend_decode_few64] && !wanted[EXL2__KERNEL_exl2k_attend_decode64]);
        needs.loras = true;
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg64_lora] == (needs.by_wg && !affine));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemm_wg256_affine_lora] == (needs.by_wg && affine));
        CHECK(!wanted[EXL2__KERNEL_exl2k_gemm_wg128_any_lora]); /* here by_wg says that `any` is not set */
        CHECK(wanted[EXL2__KERNEL_exl2k_lora_wg_t16] == needs.by_wg && wanted[EXL2__KERNEL_exl2k_lora_rows_t]);
        needs.loras = needs.codes = false;
        needs.experts = true;
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(wanted[EXL2__KERNEL_exl2k_grouped_sort] && wanted[EXL2__KERNEL_exl2k_grouped_gemm]);
        CHECK(wanted[EXL2__KERNEL_exl2k_grouped_gemm32]);
        CHECK(wanted[EXL2__KERNEL_exl2k_grouped_gemm_affine] == affine);
        CHECK(wanted[EXL2__KERNEL_exl2k_expert1] && wanted[EXL2__KERNEL_exl2k_expert8]);
        needs.steers = needs.exl3_experts = true; /* none of those, and what all kinds share */
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(!wanted[EXL2__KERNEL_exl2k_expert1] && !wanted[EXL2__KERNEL_exl2k_expert8_affine]);
        CHECK(!wanted[EXL2__KERNEL_exl2k_expert1_steer] && !wanted[EXL2__KERNEL_exl2k_grouped_gemm]);
        CHECK(!wanted[EXL2__KERNEL_exl2k_grouped_gemm32] && wanted[EXL2__KERNEL_exl2k_grouped_sort]);
        CHECK(wanted[EXL2__KERNEL_exl2k_route_one]);
        CHECK(!wanted[EXL2__KERNEL_exl2k_gemv1_peers]);
        needs.columns = needs.many = true;
        exl2__cuda_modules_of(&needs, wanted);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv16_head] == (!any && !affine));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv1_peers] == (!any && !affine && !large));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv1_large_peers] == (!any && !affine && large));
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv8_peers] == wanted[EXL2__KERNEL_exl2k_gemv1_peers]);
        CHECK(wanted[EXL2__KERNEL_exl2k_gemv8_large_peers] == wanted[EXL2__KERNEL_exl2k_gemv1_large_peers]);
    }
}

int main(void)
{
    test_modules();
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        check_case(&cases[i]);
    }
    test_wg();
    test_large();
    test_wg_families();
    test_crowd();
    test_experts();
    fake_reset();
    return check_done();
}
