/* exl3_experts.c: experts in EXL3 on the GPU: products of few rows, and grouped ones of many, against a reference in
   double; each row has the same bits alone and among others.
   takes: [kernels_src [few | speed]]; a GPU.
   gives: exit code 0, 1, or 77 without a GPU; the largest errors. speed: times of a layer of Qwen3-30B-A3B instead. */
#include "private/cuda_grouped_plan.h"
#include "exl3_rig.h"

#define SPLITS_MAX 8
#define SCALE 0.5f /* of the residual */

static rig_module few[3], gemm[3], wg[3], rows_module, sort; /* wg: not loaded: the GPU has none */
static const char *const book_names[] = { "3inst", "mcg", "mul1" };
static double worst_h, worst_result;

/* A layer, and rows that have chosen experts. */
typedef struct layer {
    uint32_t count, active, hidden, inter, parts, rows, x_pitch, h_pitch;
    matrix *m; /* [count, EXL2K_EXL3_EXPERT_PARTS] */
    uint32_t books[EXL2K_EXL3_EXPERT_PARTS];
    uint32_t *choice;
    float *weight, *before; /* before: [rows, hidden], which results are added to */
    uint16_t *x;
    double *h, *result; /* [slots, inter], [rows, hidden] */
    rig_buffer experts, choice_at, weight_at, x_at, h_at, out, partial, tickets, scratch, rows_at;
} layer;

static double act(double gate) { return gate / (1 + exp(-gate)); }

/* Chooses `active` experts, in ascending order. */
static void choose(const layer *l, uint32_t *choice)
{
    uint32_t left = l->active;
    for (uint32_t e = 0; e < l->count; e++) {
        if (random_bits() % (l->count - e) < left) {
            choice[l->active - left--] = e;
        }
    }
}

static void layer_expect(layer *l)
{
    double *gate = take(l->inter, sizeof(double)), *up = take(l->inter, sizeof(double));
    double *y = take(l->hidden, sizeof(double));
    uint16_t *h = take(l->inter, 2);
    for (uint32_t slot = 0; slot < l->rows * l->active; slot++) {
        const matrix *m = &l->m[l->choice[slot] * EXL2K_EXL3_EXPERT_PARTS];
        const uint16_t *x = l->x + (size_t)(slot / l->active) * l->x_pitch;
        double *result = l->result + (size_t)(slot / l->active) * l->hidden;
        multiply(gate, &m[0], x, l->hidden);
        if (l->parts == 2) {
            multiply(up, &m[1], x, l->hidden);
        }
        for (uint32_t i = 0; i < l->inter; i++) {
            double value = act(gate[i]) * (l->parts == 2 ? up[i] : 1);
            l->h[(size_t)slot * l->inter + i] = value;
            h[i] = exl2__f32_to_f16((float)value);
        }
        multiply(y, &m[EXL2K_EXL3_EXPERT_PARTS - 1], h, l->inter);
        for (uint32_t n = 0; n < l->hidden; n++) {
            result[n] += (double)SCALE * (double)l->weight[slot] * y[n];
        }
    }
    free(gate);
    free(up);
    free(y);
    free(h);
}

static void layer_open(layer *l)
{
    static const uint32_t rates[] = { 8, 6, 4, 16, 2, 10, 12, 14, 5, 7, 3 };
    uint32_t parts = l->count * EXL2K_EXL3_EXPERT_PARTS, slots = l->rows * l->active;
    exl2k_exl3_part *records = take(parts, sizeof *records);
    l->m = take(parts, sizeof *l->m);
    l->x_pitch = (uint32_t)exl2__align_up(l->hidden, 64) + 64;
    l->h_pitch = (uint32_t)exl2__align_up(l->inter, 64) + 64;
    for (uint32_t i = 0; i < parts; i++) { /* every rate and codebook, also in one expert */
        uint32_t part = i % EXL2K_EXL3_EXPERT_PARTS, rate = rates[random_bits() % 11];
        bool down = part == EXL2K_EXL3_EXPERT_PARTS - 1;
        uint32_t book = rate % 2 ? EXL2K_EXL3_MUL1 : random_bits() % 3;
        if (part == 1 && l->parts == 1) {
            continue;
        }
        l->m[i] = matrix_random(down ? l->inter : l->hidden, down ? l->hidden : l->inter, rate, book, i % 2 == 0);
        records[i] = matrix_part(&l->m[i], 0);
        l->books[part] |= 1u << book;
    }
    l->choice = take(slots, 4);
    l->weight = take(slots, 4);
    l->x = take((size_t)l->rows * l->x_pitch, 2);
    l->before = take((size_t)l->rows * l->hidden, 4);
    l->h = take((size_t)slots * l->inter, sizeof(double));
    l->result = take((size_t)l->rows * l->hidden, sizeof(double));
    for (uint32_t row = 0; row < l->rows; row++) {
        choose(l, l->choice + row * l->active);
        for (uint32_t i = 0; i < l->x_pitch; i++) { /* NaN beyond the inputs, which must not matter */
            l->x[(size_t)row * l->x_pitch + i] = i < l->hidden ? exl2__f32_to_f16(uniform()) : 0x7FFF;
        }
        for (uint32_t n = 0; n < l->hidden; n++) {
            l->before[(size_t)row * l->hidden + n] = uniform();
            l->result[(size_t)row * l->hidden + n] = (double)l->before[(size_t)row * l->hidden + n];
        }
    }
    for (uint32_t i = 0; i < slots; i++) {
        l->weight[i] = 0.5f * uniform() + 0.6f;
    }
    layer_expect(l);
    uint64_t strips = exl2__div_up(l->hidden, 128) + 2 * exl2__div_up(l->inter, 128);
    l->experts = rig_buffer_of(records, parts * sizeof *records);
    l->choice_at = rig_buffer_of(l->choice, slots * 4u);
    l->weight_at = rig_buffer_of(l->weight, slots * 4u);
    l->x_at = rig_buffer_of(l->x, (size_t)l->rows * l->x_pitch * 2);
    l->h_at = rig_buffer_make((uint64_t)slots * l->h_pitch * 2);
    l->out = rig_buffer_make((uint64_t)l->rows * l->hidden * 4);
    l->partial = rig_buffer_make(strips * SPLITS_MAX * 16 * l->active * 512);
    l->tickets = rig_buffer_make((uint64_t)16 * l->active * strips * 4);
    l->scratch = rig_buffer_make(exl2__cuda_grouped_scratch_bytes(l->rows, l->active, l->count, l->hidden, l->inter,
                                                                  true));
    l->rows_at = rig_buffer_make(16);
    void *zeros = take(l->tickets.bytes, 1);
    rig_upload(l->tickets, 0, zeros, l->tickets.bytes);
    free(zeros);
    free(records);
}

static void layer_close(layer *l)
{
    rig_buffer *buffers[] = { &l->experts, &l->choice_at, &l->weight_at, &l->x_at, &l->h_at, &l->out, &l->partial,
                              &l->tickets, &l->scratch, &l->rows_at };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
    for (uint32_t i = 0; i < l->count * EXL2K_EXL3_EXPERT_PARTS; i++) {
        if (l->m[i].words) {
            matrix_close(&l->m[i]);
        }
    }
    free(l->m);
    free(l->choice);
    free(l->weight);
    free(l->x);
    free(l->before);
    free(l->h);
    free(l->result);
}

/* ---- launches, as the engine makes them (cuda_exl3_experts.h) ---- */

/* Rows [first, first + rows) of the layer. */
typedef struct shot {
    uint32_t first, rows, splits[2]; /* splits: few rows, of up and of down */
    bool many, by_wg;
    bool fewer; /* few rows: device memory says one row less than the launch has */
} shot;

static exl2k_exl3_expert_args args_of(const layer *l, const shot *s)
{
    uint64_t slot = (uint64_t)s->first * l->active;
    return (exl2k_exl3_expert_args){ .product = { .rows = s->rows, .parts = 1, .splits = 1, .scale = 1,
                                                  .act = EXL2K_ACT_SILU },
                                     .experts = l->experts.address, .choice = l->choice_at.address + slot * 4,
                                     .weight = l->weight_at.address + slot * 4, .count = l->count,
                                     .active = l->active };
}

static void launch_few(const layer *l, const shot *s, bool down)
{
    exl2k_exl3_expert_args a = args_of(l, s);
    exl2k_exl3_args *p = &a.product;
    uint32_t books = down ? l->books[2] : l->books[0] | l->books[1];
    p->rows_at = s->fewer ? l->rows_at.address : 0;
    p->partial = l->partial.address;
    p->tickets = l->tickets.address;
    p->kind = down ? EXL2K_EXL3_RESIDUAL : EXL2K_EXL3_ACT;
    p->first = down ? 2 : 0;
    p->parts = down ? 1 : l->parts;
    p->in = down ? l->inter : l->hidden;
    p->blocks = (uint32_t)exl2__div_up(p->in, 128);
    p->splits = s->splits[down];
    p->x = down ? l->h_at.address : l->x_at.address + (uint64_t)s->first * l->x_pitch * 2;
    p->x_pitch = down ? l->h_pitch : l->x_pitch;
    p->out = down ? l->out.address + (uint64_t)s->first * l->hidden * 4 : l->h_at.address;
    p->out_pitch = down ? l->hidden : l->h_pitch;
    p->scale = down ? SCALE : 1;
    a.strips = (uint32_t)exl2__div_up(down ? l->hidden : l->inter, 128);
    uint32_t shared = EXL2K_EXL3_EXPERT_SHARED(p->rows, (uint32_t)exl2__div_up(p->blocks, p->splits));
    for (uint32_t book = 0; book < 3; book++) {
        if (books >> book & 1) {
            exl2__cuda_kernel kernel = exl2__cuda_exl3_expert(book, p->rows);
            rig_launch(&few[book], exl2__cuda_kernel_rows[kernel].function, a.strips * p->parts,
                       p->rows * a.active * p->splits, EXL2K_EXL3_THREADS, shared, &a, sizeof a);
        }
    }
}

static void launch_rotate(const layer *l, const exl2__cuda_grouped *g, exl2k_exl3_expert_rotate_args r, uint32_t parts,
                          bool natural)
{
    r.experts = l->experts.address;
    r.blocks = (uint32_t)exl2__div_up(r.in, 128);
    r.natural = natural;
    r.step = (uint64_t)g->rows * g->active * r.blocks * 256;
    rig_launch(&rows_module, "exl2k_exl3_expert_rotate", g->rows * g->active,
               (uint32_t)exl2__div_up(r.blocks, EXL2K_EXL3_WARPS) * parts, EXL2K_EXL3_THREADS, 0, &r, sizeof r);
}

static void launch_part(const layer *l, exl2k_exl3_expert_args a, uint32_t part, bool by_wg)
{
    uint32_t tile_rows = by_wg ? EXL2K_EXL3_EXPERT_TILE_MAX : EXL2K_EXL3_GEMM_ROWS, slots = a.product.rows * a.active;
    a.part = part;
    for (uint32_t book = 0; book < 3; book++) {
        if (l->books[part] >> book & 1) {
            exl2__cuda_kernel kernel = exl2__cuda_exl3_expert_gemm(book, by_wg);
            rig_launch(by_wg ? &wg[book] : &gemm[book], exl2__cuda_kernel_rows[kernel].function, a.strips,
                       slots / tile_rows + exl2__min32(slots, a.count), EXL2K_EXL3_THREADS,
                       by_wg ? EXL2K_EXL3_EXPERT_WG_SHARED : EXL2K_EXL3_GEMM_SHARED, &a, sizeof a);
        }
    }
}

static void launch_planned(const exl2__cuda_grouped_launch *launch, size_t bytes)
{
    rig_launch(&sort, exl2__cuda_kernel_rows[launch->kernel].function, launch->grid.x, launch->grid.y,
               launch->grid.threads, launch->grid.shared_bytes, &launch->args, bytes);
}

static void launch_many(const layer *l, const shot *s)
{
    exl2k_exl3_expert_args a = args_of(l, s);
    exl2k_exl3_args *p = &a.product;
    exl2__cuda_grouped g = { .choice = a.choice, .weight = a.weight, .scratch = l->scratch.address,
                             .out = l->out.address + (uint64_t)s->first * l->hidden * 4, .rows = s->rows,
                             .active = l->active, .count = l->count, .hidden = l->hidden, .inter = l->inter,
                             .parts = l->parts, .out_pitch = l->hidden, .scale = SCALE, .add = true };
    exl2__cuda_grouped_layout at = exl2__cuda_grouped_layout_exl3(s->rows, l->active, l->count, l->hidden, l->inter);
    exl2__cuda_grouped_plan plan = { 0 };
    exl2__cuda_grouped_sort(&plan, &g, &at, s->by_wg ? EXL2K_EXL3_EXPERT_TILE_MAX : EXL2K_EXL3_GEMM_ROWS);
    exl2__cuda_grouped_sum(&plan, &g, &at);
    exl2k_exl3_expert_rotate_args r = { .pairs = g.scratch + at.pairs, .x_pitch = l->x_pitch, .in = l->hidden,
                                        .x = l->x_at.address + (uint64_t)s->first * l->x_pitch * 2,
                                        .rotated = g.scratch + at.results };
    a.tiles = g.scratch + at.tiles;
    a.tile_count = g.scratch + at.tile_count;
    a.strips = (uint32_t)exl2__div_up(l->inter, 128);
    p->in = l->hidden;
    p->blocks = (uint32_t)exl2__div_up(p->in, 128);
    p->rotated = r.rotated;
    p->out = g.scratch + at.h;
    p->out_pitch = at.h_pitch;
    p->out_half = 1;
    launch_planned(&plan.launch[0], sizeof plan.launch[0].args.sort);
    launch_rotate(l, &g, r, l->parts, s->by_wg);
    if (l->parts == 2) {
        p->kind = EXL2K_EXL3_STORE;
        launch_part(l, a, 0, s->by_wg);
        p->rotated += (uint64_t)s->rows * l->active * p->blocks * 256;
    }
    p->kind = EXL2K_EXL3_ACT;
    p->parts = l->parts;
    launch_part(l, a, l->parts - 1, s->by_wg);
    r.x = r.rotated = p->rotated = p->out;
    r.x_pitch = at.h_pitch;
    r.in = p->in = l->inter;
    r.by_place = 1;
    r.first = 2;
    launch_rotate(l, &g, r, 1, s->by_wg);
    a.strips = (uint32_t)exl2__div_up(l->hidden, 128);
    p->blocks = (uint32_t)exl2__div_up(p->in, 128);
    p->kind = EXL2K_EXL3_STORE;
    p->parts = 1;
    p->out = g.scratch + at.results;
    p->out_pitch = at.pitch;
    p->out_half = 0;
    launch_part(l, a, 2, s->by_wg);
    launch_planned(&plan.launch[1], sizeof plan.launch[1].args.sum);
}

/* ---- checks ---- */

/* The largest error of h, in the layout of few rows, against the largest value. */
static double h_error(const layer *l, const shot *s)
{
    uint32_t slots = (s->rows - s->fewer) * l->active;
    uint16_t *h = take((size_t)slots * l->h_pitch, 2);
    double error = 0, most = 0;
    rig_download(l->h_at, 0, h, (size_t)slots * l->h_pitch * 2);
    for (uint32_t slot = 0; slot < slots; slot++) {
        for (uint32_t i = 0; i < l->inter; i++) {
            double e = l->h[(size_t)(s->first * l->active + slot) * l->inter + i];
            double d = fabs((double)exl2__f16_to_f32(h[(size_t)slot * l->h_pitch + i]) - e);
            most = fmax(most, fabs(e));
            error = d <= error ? error : d;
        }
    }
    free(h);
    return error / most;
}

/* Runs a shot; returns all rows of the output. */
static float *shoot(layer *l, const shot *s)
{
    size_t count = (size_t)l->rows * l->hidden;
    float *got = take(count, 4);
    rig_upload(l->out, 0, l->before, count * 4);
    rig_poison(l->h_at);
    rig_poison(l->partial);
    rig_poison(l->scratch);
    if (s->many) {
        launch_many(l, s);
    } else {
        uint32_t rows = s->rows - s->fewer;
        rig_upload(l->rows_at, 0, &rows, 4);
        launch_few(l, s, false);
        double error = h_error(l, s);
        worst_h = error <= worst_h ? worst_h : error;
        if (!CHECK(error < 2e-3)) {
            printf("    h: %u experts, rows %u, splits %u: error %.2e\n", l->count, s->rows, s->splits[0], error);
        }
        launch_few(l, s, true);
    }
    rig_download(l->out, 0, got, count * 4);
    return got;
}

/* Rows of the shot are right, all others are as before. */
static void check_shot(layer *l, const shot *s)
{
    float *got = shoot(l, s);
    uint32_t end = s->first + s->rows - s->fewer, wrong = 0;
    double error = 0, most = 0;
    for (size_t i = 0; i < (size_t)l->rows * l->hidden; i++) {
        uint32_t row = (uint32_t)(i / l->hidden);
        if (row < s->first || row >= end) {
            wrong += got[i] != l->before[i];
            continue;
        }
        double d = fabs((double)got[i] - l->result[i]);
        most = fmax(most, fabs(l->result[i]));
        error = d <= error ? error : d;
    }
    error /= most;
    worst_result = error <= worst_result ? worst_result : error;
    if (!CHECK(error < 3e-3 && wrong == 0)) {
        printf("    %u experts, %u active, %u to %u, rows %u from %u, splits %u and %u, %s: error %.2e, %u others\n",
               l->count, l->active, l->hidden, l->inter, s->rows, s->first, s->splits[0], s->splits[1],
               !s->many ? "few" : s->by_wg ? "wgmma" : "many", error, wrong);
    }
    free(got);
}

/* A row has the same bits alone and among the shot's. */
static void check_alone(layer *l, const shot *s, uint32_t row)
{
    float *all = shoot(l, s);
    shot one = *s;
    one.first += row;
    one.rows = 1;
    float *alone = shoot(l, &one);
    size_t at = (size_t)one.first * l->hidden;
    if (!CHECK_INT(memcmp(alone + at, all + at, l->hidden * sizeof(float)), 0)) {
        printf("    %u experts: row %u of %u, %s\n", l->count, row, s->rows, s->many ? "many" : "few");
    }
    free(all);
    free(alone);
}

static void check_layer(layer *l)
{
    static const uint32_t some[] = { 1, 2, 5, 8, 9, 16 };
    uint32_t blocks[2] = { (uint32_t)exl2__div_up(l->hidden, 128), (uint32_t)exl2__div_up(l->inter, 128) };
    shot s = { 0 };
    for (uint32_t i = 0; i < 6; i++) {
        s = (shot){ .rows = some[i], .first = random_bits() % (l->rows - some[i] + 1), .fewer = i % 2 == 1 };
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t most = exl2__min32(blocks[k], SPLITS_MAX);
            s.splits[k] = i == 0 ? 1 : i == 1 ? most : 1 + random_bits() % most;
        }
        check_shot(l, &s);
    }
    s.fewer = false;
    s.rows = 16;
    s.first = random_bits() % (l->rows - 15);
    check_alone(l, &s, 0);
    check_alone(l, &s, 7);
    check_alone(l, &s, 15);
    for (uint32_t by_wg = 0; by_wg < (wg[0].module ? 2u : 1u); by_wg++) {
        uint32_t rows[] = { 1, 17, l->rows };
        for (uint32_t i = 0; i < 3; i++) {
            s = (shot){ .rows = rows[i], .first = random_bits() % (l->rows - rows[i] + 1), .many = true,
                        .by_wg = by_wg };
            check_shot(l, &s);
        }
        check_alone(l, &s, 0);
        check_alone(l, &s, l->rows / 2);
        check_alone(l, &s, l->rows - 1);
    }
    uint32_t *tickets = take(l->tickets.bytes, 1), left = 0;
    rig_download(l->tickets, 0, tickets, l->tickets.bytes);
    for (uint64_t i = 0; i < l->tickets.bytes / 4; i++) {
        left += tickets[i] != 0;
    }
    CHECK_INT(left, 0);
    free(tickets);
}

/* ---- speed ---- */

#define REPEATS 9
#define CHOICES 8 /* sets of experts, so that the cache does not have them */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median microseconds of the layer, over CHOICES sets one after the other, as a graph. */
static double time_layer(layer *l, shot s, uint64_t choices)
{
    double us[REPEATS];
    rig_capture();
    for (uint32_t i = 0; i < CHOICES; i++) {
        l->choice_at.address = choices + (uint64_t)i * l->rows * l->active * 4;
        if (s.many) {
            launch_many(l, &s);
        } else {
            launch_few(l, &s, false);
            launch_few(l, &s, true);
        }
    }
    exl2__cuda_graph_exec *graph = rig_captured();
    for (uint32_t i = 0; i < REPEATS; i++) {
        rig_start();
        rig_replay(graph);
        us[i] = rig_stop() / CHOICES;
    }
    rig_try(rig.driver.graph_exec_free(graph), "cuGraphExecDestroy");
    qsort(us, REPEATS, sizeof us[0], compare_doubles);
    l->choice_at.address = choices;
    return us[REPEATS / 2];
}

static void speed_rate(uint32_t rate)
{
    static const uint32_t rows[] = { 1, 2, 4, 8, 16, 128, 512, 2048 };
    layer l = { .count = 128, .active = 8, .hidden = 2048, .inter = 768, .parts = 2, .rows = 2048, .x_pitch = 2112,
                .h_pitch = 832, .books = { 4, 4, 4 } };
    uint64_t bytes = (uint64_t)l.hidden * l.inter * rate / 16, slots = (uint64_t)l.rows * l.active;
    uint32_t parts = l.count * EXL2K_EXL3_EXPERT_PARTS, sms = (uint32_t)rig.sm_count;
    uint32_t *choice = take(slots * CHOICES, 4);
    uint16_t *words = take(bytes * parts / 2, 2), *halves = take((size_t)l.rows * l.x_pitch, 2);
    float *weights = take(slots, 4);
    exl2k_exl3_part *records = take(parts, sizeof *records);
    for (uint64_t i = 0; i < bytes * parts / 2; i++) {
        words[i] = (uint16_t)random_bits();
    }
    for (size_t i = 0; i < (size_t)l.rows * l.x_pitch; i++) {
        halves[i] = exl2__f32_to_f16(uniform() * 0.1f);
    }
    for (uint64_t i = 0; i < (uint64_t)l.rows * CHOICES; i++) {
        choose(&l, choice + i * l.active);
    }
    for (uint64_t i = 0; i < slots; i++) {
        weights[i] = 0.125f;
    }
    rig_buffer trellis = rig_buffer_of(words, bytes * parts), scales = rig_buffer_of(halves, 2 * 4096);
    rig_buffer choices = rig_buffer_of(choice, slots * CHOICES * 4);
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t out = i % EXL2K_EXL3_EXPERT_PARTS == 2 ? l.hidden : l.inter;
        records[i] = (exl2k_exl3_part){ .trellis = trellis.address + i * bytes, .suh = scales.address,
                                        .svh = scales.address, .out = out, .row_tiles = out / 16, .columns = out,
                                        .rate = rate, .book = EXL2K_EXL3_MUL1 };
    }
    exl2__shape shape = { .hidden = l.hidden, .gated = true, .exl3 = 4,
                          .experts = { .count = l.count, .active = l.active, .inter = l.inter } };
    shot s = { .by_wg = wg[EXL2K_EXL3_MUL1].module != NULL };
    s.splits[0] = exl2__cuda_exl3_expert_splits(&shape, false, sms);
    s.splits[1] = exl2__cuda_exl3_expert_splits(&shape, true, sms);
    l.experts = rig_buffer_of(records, parts * sizeof *records);
    l.choice_at = choices;
    l.weight_at = rig_buffer_of(weights, slots * 4);
    l.x_at = rig_buffer_of(halves, (size_t)l.rows * l.x_pitch * 2);
    l.h_at = rig_buffer_make(slots * l.h_pitch * 2);
    l.out = rig_buffer_make((uint64_t)l.rows * l.hidden * 4);
    l.partial = rig_buffer_make(exl2__cuda_exl3_partial_max(&shape, 1, sms));
    l.tickets = rig_buffer_make(65536);
    l.scratch = rig_buffer_make(exl2__cuda_grouped_scratch_bytes(l.rows, l.active, l.count, l.hidden, l.inter, true));
    void *zeros = take((size_t)l.rows * l.hidden, 4);
    rig_upload(l.tickets, 0, zeros, l.tickets.bytes);
    rig_upload(l.out, 0, zeros, l.out.bytes);
    printf("%3.1f bits, splits %u and %u:", rate / 2.0, s.splits[0], s.splits[1]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        s.rows = rows[i];
        s.many = rows[i] > 16;
        printf("  %u: %.1f", rows[i], time_layer(&l, s, choices.address));
        fflush(stdout);
    }
    printf(" us\n");
    rig_buffer *buffers[] = { &trellis, &scales, &choices, &l.experts, &l.weight_at, &l.x_at, &l.h_at, &l.out,
                              &l.partial, &l.tickets, &l.scratch };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
    void *memory[] = { choice, words, halves, weights, records, zeros };
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        free(memory[i]);
    }
}

int main(int argc, char **argv)
{
    static const layer layers[] = {
        { .count = 4, .active = 2, .hidden = 128, .inter = 128, .parts = 2, .rows = 300 },
        { .count = 8, .active = 3, .hidden = 200, .inter = 150, .parts = 2, .rows = 70 },
        { .count = 16, .active = 4, .hidden = 1100, .inter = 300, .parts = 2, .rows = 30 },
        { .count = 5, .active = 5, .hidden = 256, .inter = 130, .parts = 2, .rows = 140 },
        { .count = 3, .active = 1, .hidden = 130, .inter = 70, .parts = 1, .rows = 90 },
        { .count = 40, .active = 8, .hidden = 256, .inter = 128, .parts = 2, .rows = 60 },
        { .count = 12, .active = 6, .hidden = 300, .inter = 1200, .parts = 2, .rows = 20 },
    };
    size_t count = argc > 2 && strcmp(argv[2], "few") == 0 ? 2 : sizeof layers / sizeof layers[0];
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    rotate = rig_load("exl3_rotate.cu", NULL);
    rows_module = rig_load("exl3_expert_rows.cu", NULL);
    sort = rig_load("grouped_rows.cu", NULL);
    for (uint32_t book = 0; book < 3; book++) {
        char name[64];
        snprintf(name, sizeof name, "exl3_expert_%s.cu", book_names[book]);
        few[book] = rig_load(name, NULL);
        snprintf(name, sizeof name, "exl3_expert_gemm_%s.cu", book_names[book]);
        gemm[book] = rig_load(name, NULL);
        snprintf(name, sizeof name, "exl3_expert_wg_%s.cu", book_names[book]);
        wg[book] = rig_exists(name) ? rig_load(name, NULL) : (rig_module){ 0 };
    }
    bool times = argc > 2 && strcmp(argv[2], "speed") == 0;
    if (times) {
        rig.programmatic = true;
        printf("us of a layer's experts, MUL1, by rows, median of %d\n", REPEATS);
        speed_rate(8);
        speed_rate(6);
    }
    for (size_t i = 0; i < count && !times; i++) {
        layer l = layers[i];
        layer_open(&l);
        check_layer(&l);
        layer_close(&l);
    }
    printf("largest errors of checks: %.2e of h, %.2e of results\n", worst_h, worst_result);
    rig_unload(&rotate);
    rig_unload(&rows_module);
    rig_unload(&sort);
    for (uint32_t book = 0; book < 3; book++) {
        rig_unload(&few[book]);
        rig_unload(&gemm[book]);
        if (wg[book].module) {
            rig_unload(&wg[book]);
        }
    }
    rig_close();
    return check_done();
}
