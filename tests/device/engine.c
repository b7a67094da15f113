/* engine.c: the CUDA backend phase by phase against the CPU backend: the same tiny models, the same passes.
   takes: [folders of models, else the goldens]; a GPU.
   gives: exit code 0, 1, or 77 without a GPU; the largest relative error of every phase.
   owns:  nothing that outlives the program.
   next:  sample.c

   After each phase the CPU takes over what the GPU has, so that every phase is compared from the same input. Off: the
   norm of the difference over the norm of what is wanted. Rounding to fp16 is off by 2^-11 / sqrt(3) = 2.8e-4, sums in
   float by 1e-6:
     embed                nothing is rounded
     qkv, head            the normalised row is rounded
     attend               q and the weights of V are, and the output
     gate_up              the normalised row, which both factors see, and their product
     out, down            nothing: their inputs are on both sides what the phase before has rounded
   and with many rows the weights too, as the file format has it; the CPU has factored ones.
   Sampling is compared bit by bit, on the GPU's own logits. */
#define EXL2_IMPLEMENTATION
#include "../../exl2.h"

#include "../../exl2_impl/3_backend/cuda.h"
#include "../check.h"

#include <math.h>

#define OFF_MAX_copy_pages 0
#define OFF_MAX_embed 0
#define OFF_MAX_qkv 6e-4
#define OFF_MAX_attend 1e-3
#define OFF_MAX_out 1e-5
#define OFF_MAX_gate_up 1.2e-3
#define OFF_MAX_down 1e-5
#define OFF_MAX_head 6e-4
#define OFF_MAX_sample 0
#define PAGES 24u
#define SEQUENCES 6u
#define ROWS 160u
#define CONTEXT_PAGES 2u

static const double off_max[EXL2__PHASE_COUNT] = {
#define X(name) OFF_MAX_##name,
    EXL2__PHASES(X)
#undef X
};

static double worst[EXL2__PHASE_COUNT];
static uint32_t compared[EXL2__PHASE_COUNT];

/* ---- a model on either side ---- */

typedef struct side {
    exl2__ctx c;
    const exl2__backend *b;
    exl2__device *d;
    exl2__weights load;
    exl2__plan plan;
    exl2__arena weights, pages, scratch;
    exl2__layer layers[8];
    double frequency[128];
} side;

static exl2__cuda_device gpu;
static side cpu, cuda;

static void need(const side *s, exl2_result r)
{
    if (r < 0) {
        printf("%s: %s\n", s->b->name, s->c.error.text);
        exit(1);
    }
}

static void side_begin(side *s, const exl2__backend *b)
{
    *s = (side){ .b = b };
    s->c.allocator = exl2__platform_allocator();
    s->c.files = exl2__platform_files();
}

static void side_load(side *s, const char *path, void *hardware)
{
    exl2__arena dry[2] = { { 0 }, { 0 } };
    need(s, exl2__config_read(&s->c, path, &s->load.config));
    need(s, s->b->open(&s->c, hardware, &s->d));
    need(s, exl2__weights_measure(&s->c, &s->load, path, s->b, s->d));
    exl2__plan_make(&s->plan, &s->load.config, s->load.embed_rows, CONTEXT_PAGES * EXL2__PAGE_TOKENS, ROWS, SEQUENCES);
    exl2__config_rope(&s->load.config, s->frequency);
    s->plan.rope_frequency = s->frequency;
    s->plan.rows_max = ROWS;
    s->plan.layers = s->layers;
    s->plan.pages = PAGES;
    CHECK(s->plan.shape.layers <= EXL2__COUNT(s->layers));
    for (uint32_t i = 0; i < s->plan.shape.layers; i++) {
        s->layers[i].index = i;
    }
    if (s->b->reserve) {
        need(s, s->b->reserve(s->d, s->load.weight_bytes));
    } else {
        need(s, exl2__arena_open(&s->c, &s->weights, s->load.weight_bytes, EXL2_MEM_WEIGHTS));
    }
    need(s, exl2__weights_begin(&s->c, &s->load));
    while (!exl2__weights_done(&s->load)) {
        need(s, exl2__weights_slice(&s->c, &s->load, &s->plan, s->b, s->d, &s->weights));
    }
    exl2__weights_close(&s->c, &s->load);
    need(s, s->b->prepare(s->d, &s->plan, &dry[0], &dry[1]));
    need(s, exl2__arena_open(&s->c, &s->pages, dry[0].used, EXL2_MEM_KV));
    need(s, exl2__arena_open(&s->c, &s->scratch, dry[1].used + EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH));
    need(s, s->b->prepare(s->d, &s->plan, &s->pages, &s->scratch));
}

static void side_close(side *s)
{
    s->b->close(s->d);
    exl2__arena_close(&s->c, &s->weights);
    exl2__arena_close(&s->c, &s->pages);
    exl2__arena_close(&s->c, &s->scratch);
}

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) {
        exit(1);
    }
    return memory;
}

/* Waits for the device. */
static void *download(uint64_t from, size_t bytes)
{
    void *to = take(bytes);
    need(&cuda, exl2__cuda_device_enter(&gpu));
    need(&cuda, exl2__cuda_device_check(&gpu, gpu.driver.copy_down(to, from, bytes, gpu.stream), "copying from it"));
    need(&cuda, exl2__cuda_device_check(&gpu, gpu.driver.stream_wait(gpu.stream), "running a phase"));
    exl2__cuda_device_leave(&gpu);
    return to;
}

/* ---- passes ---- */

typedef struct pass { /* rows that each sequence goes on by; `fork`: sequence 5 becomes a copy of 0 first */
    uint32_t rows[SEQUENCES];
    bool fork;
} pass;

static const pass passes[] = {
    { { 40 }, false },
    { { 1 }, false },                    /* one row alone */
    { { 0, 70, 3, 1 }, false },
    { { 1, 1, 1, 1 }, false },           /* a row each */
    { { 23, 1, 61, 0, 19 }, false },     /* across a page; so many rows that products are by gemm */
    { { 1, 0, 0, 0, 0, 1 }, true },
    { { 1, 1, 1, 1, 1, 1 }, false },
    { { 0, 0, 0, 100 }, false },
    { { 0, 0, 0, 2, 1 }, false },
};

typedef struct made {
    exl2__step step;
    exl2__step_row rows[ROWS];
    exl2__logit_row logits[ROWS];
    exl2__sampling sampling;
    exl2__page_copy copies[1];
    const uint32_t *tables[SEQUENCES];
} made;

static uint32_t length[SEQUENCES], table[SEQUENCES][CONTEXT_PAGES], pages_taken;

static uint32_t number(uint32_t below)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void make_pass(made *m, const pass *p, uint32_t vocab)
{
    memset(m, 0, sizeof *m);
    m->sampling = (exl2__sampling){ .greedy = true, .temperature = 1, .top_p = 1, .repeat_penalty = 1 };
    if (p->fork) {
        table[5][0] = pages_taken++ * 7 % PAGES;
        length[5] = 41;
        m->copies[0] = (exl2__page_copy){ table[0][0], table[5][0] };
        m->step.copy_count = 1;
    }
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        uint32_t first = length[i], end = length[i] + p->rows[i];
        for (uint32_t t = first; t < end; t++) {
            uint32_t row = m->step.row_count++;
            exl2_token token = (exl2_token)number(vocab), target = (exl2_token)number(vocab);
            if (t % EXL2__PAGE_TOKENS == 0) {
                table[i][t / EXL2__PAGE_TOKENS] = pages_taken++ * 7 % PAGES;
            }
            m->rows[row] = (exl2__step_row){ token, t, m->step.sequence_count };
            m->logits[row] = (exl2__logit_row){ .row = row, .use = t + 1 < end ? EXL2__LOGIT_SCORE : EXL2__LOGIT_DRAW,
                                                .target = target, .alts = 8, .sampling = &m->sampling,
                                                .draw_position = t + 1 };
        }
        length[i] = end;
        if (first < end) {
            m->tables[m->step.sequence_count++] = table[i];
        }
    }
    m->step.rows = m->rows;
    m->step.page_tables = m->tables;
    m->step.copies = m->copies;
    m->step.logits = m->logits;
    m->step.logit_count = m->step.row_count;
}

/* ---- comparisons ---- */

typedef struct distance { double error, size; } distance;

static void measure(distance *d, double got, double wanted)
{
    d->error += got == got ? (got - wanted) * (got - wanted) : INFINITY;
    d->size += wanted * wanted;
}

static void judge(exl2__phase phase, const char *what, uint32_t layer, uint32_t rows, distance d)
{
    double off = sqrt(d.error / (d.size > 0 ? d.size : 1));
    bool rounded = phase != EXL2__PHASE_embed && rows >= EXL2__CUDA_MANY_ROWS;
    worst[phase] = off <= worst[phase] ? worst[phase] : off;
    compared[phase]++;
    if (!CHECK(off <= off_max[phase] + (rounded ? 3e-4 : 0))) {
        printf("    %s, layer %u, %u rows: off by %.1e\n", what, layer, rows, off);
    }
}

static void check_residual(exl2__phase phase, const made *m, uint32_t layer)
{
    const exl2__cuda_model *g = exl2__cuda_of(cuda.d);
    const exl2__cpu_device *d = exl2__cpu_of(cpu.d);
    uint32_t hidden = cpu.plan.shape.hidden, rows = m->step.row_count;
    float *got = (float *)download(g->b.residual, (size_t)rows * hidden * 4);
    distance off = { 0, 0 };
    for (uint32_t i = 0; i < rows * hidden; i++) {
        float *mine = &d->residual[i / hidden * d->hidden_stride + i % hidden];
        measure(&off, (double)got[i], (double)*mine);
        *mine = got[i];
    }
    judge(phase, "residual", layer, rows, off);
    free(got);
}

/* The CPU has rotated q and k, and scaled q. */
static double rotated(const float *x, uint32_t i, uint32_t position)
{
    uint32_t dim = cpu.plan.shape.head_dim, half = dim / 2, pair = i % dim % half;
    double angle = position * cpu.frequency[pair], c = cos(angle), s = sin(angle);
    return i % dim < half ? (double)x[i] * c - (double)x[i + half] * s : (double)x[i] * c + (double)x[i - half] * s;
}

static void check_qkv(const made *m, uint32_t layer)
{
    const exl2__cuda_model *g = exl2__cuda_of(cuda.d);
    exl2__cpu_device *d = exl2__cpu_of(cpu.d);
    const exl2__shape *s = &cpu.plan.shape;
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, rows = m->step.row_count;
    float *got = (float *)download(g->b.qkv, (size_t)rows * g->b.qkv_pitch * 4);
    distance off[3] = { { 0, 0 }, { 0, 0 }, { 0, 0 } };
    for (uint32_t row = 0; row < rows; row++) {
        const float *from = got + (size_t)row * g->b.qkv_pitch;
        uint32_t position = m->rows[row].position;
        for (uint32_t i = 0; i < q; i++) {
            double turned = rotated(from, i, position) * (double)s->attn_scale;
            measure(&off[0], turned, (double)d->query[row * d->query_stride + i]);
        }
        for (uint32_t i = 0; i < kv; i++) {
            measure(&off[1], rotated(from + q, i, position), (double)d->key[row * d->key_stride + i]);
            measure(&off[2], (double)from[q + kv + i], (double)d->value[row * d->key_stride + i]);
        }
        memcpy(d->query + row * d->query_stride, from, q * sizeof *from);
        memcpy(d->key + row * d->key_stride, from + q, kv * sizeof *from);
        memcpy(d->value + row * d->key_stride, from + q + kv, kv * sizeof *from);
        exl2__cpu_attend_store(d, layer, row, 0);
    }
    judge(EXL2__PHASE_qkv, "q", layer, rows, off[0]);
    judge(EXL2__PHASE_qkv, "k", layer, rows, off[1]);
    judge(EXL2__PHASE_qkv, "v", layer, rows, off[2]);
    free(got);
}

/* Halves in the order of the matrix that reads them, against floats in natural order. */
static void check_halves(exl2__phase phase, const made *m, uint32_t layer, uint64_t at, uint32_t pitch, uint32_t count,
                         const exl2__matrix *reader, float *wanted, size_t stride)
{
    uint32_t rows = m->step.row_count;
    uint64_t map_at = exl2__cuda_matrix_of(reader)->map;
    uint16_t *got = (uint16_t *)download(at, (size_t)rows * pitch * 2);
    uint16_t *map = map_at ? (uint16_t *)download(map_at, count * 2) : NULL;
    distance off = { 0, 0 };
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t i = 0; i < count; i++) {
            uint32_t place = map ? map[i] : i;
            float value = exl2__f16_to_f32(got[(size_t)row * pitch + place]);
            measure(&off, (double)value, (double)wanted[row * stride + i]);
            wanted[row * stride + i] = value;
        }
        for (uint32_t i = count; i < pitch; i++) { /* what products read behind the last element */
            if (got[(size_t)row * pitch + i] != 0) {
                off.error = INFINITY;
            }
        }
    }
    judge(phase, phase == EXL2__PHASE_attend ? "attention" : "h", layer, rows, off);
    free(got);
    free(map);
}

static void check_logits(const made *m, const exl2__range *range)
{
    const exl2__cuda_model *g = exl2__cuda_of(cuda.d);
    const exl2__cpu_device *d = exl2__cpu_of(cpu.d);
    uint32_t vocab = cpu.plan.shape.vocab;
    float *got = (float *)download(g->b.logits, (size_t)range->logit_count * g->b.stride * 4);
    distance off = { 0, 0 };
    for (uint32_t row = 0; row < range->logit_count; row++) {
        for (uint32_t i = 0; i < vocab; i++) {
            measure(&off, (double)got[(size_t)row * g->b.stride + i], (double)d->logits[row * d->vocab_stride + i]);
        }
    }
    judge(EXL2__PHASE_head, "logits", 0, range->logit_count, off);
    free(got);
    (void)m;
}

/* The device's results are those that the CPU draws from the device's logits. */
static void check_results(const made *m, const exl2__range *range)
{
    const exl2__cuda_model *g = exl2__cuda_of(cuda.d);
    exl2_alt alts[2][EXL2_ALTS_MAX], device_alts[EXL2__LOGIT_ROWS][EXL2_ALTS_MAX];
    exl2__logit_result results[EXL2__LOGIT_ROWS] = { { 0 } };
    float *logits = (float *)download(g->b.logits, (size_t)range->logit_count * g->b.stride * 4);
    for (uint32_t i = 0; i < range->logit_count; i++) {
        results[i].alts = device_alts[i];
    }
    need(&cuda, cuda.b->collect(cuda.d, range->logit0, range->logit_count, true, results));
    for (uint32_t i = 0; i < range->logit_count; i++) {
        exl2__logit_result wanted = { .alts = alts[0] };
        need(&cpu, exl2__sample_row(logits + (size_t)i * g->b.stride, cpu.plan.shape.vocab,
                                    &m->logits[range->logit0 + i], exl2__cpu_of(cpu.d)->task[0].sample, &wanted));
        CHECK_INT(results[i].token, wanted.token);
        CHECK(results[i].logprob == wanted.logprob && results[i].logsumexp == wanted.logsumexp);
        CHECK_INT(results[i].alt_count, wanted.alt_count);
        CHECK(memcmp(device_alts[i], alts[0], wanted.alt_count * sizeof(exl2_alt)) == 0);
        compared[EXL2__PHASE_sample]++;
    }
    free(logits);
}

static void check_phase(exl2__phase phase, const made *m, uint32_t layer, const exl2__range *range)
{
    const exl2__cuda_model *g = exl2__cuda_of(cuda.d);
    const exl2__cpu_device *d = exl2__cpu_of(cpu.d);
    const exl2__shape *s = &cpu.plan.shape;
    switch (phase) {
    case EXL2__PHASE_embed:
    case EXL2__PHASE_out:
    case EXL2__PHASE_down: check_residual(phase, m, layer); break;
    case EXL2__PHASE_qkv: check_qkv(m, layer); break;
    case EXL2__PHASE_attend:
        check_halves(phase, m, layer, g->b.attended, g->b.attended_pitch, s->heads * s->head_dim,
                     cuda.layers[layer].out, d->query, d->query_stride);
        break;
    case EXL2__PHASE_gate_up:
        check_halves(phase, m, layer, g->b.h, g->b.h_pitch, s->inter, cuda.layers[layer].down, d->gate,
                     d->inter_stride);
        break;
    case EXL2__PHASE_head: check_logits(m, range); break;
    case EXL2__PHASE_sample: check_results(m, range); break;
    default: break; /* copies: attention reads them */
    }
}

/* ---- the loop ---- */

static void do_phase(side *s, exl2__phase phase, const exl2__layer *layer, exl2__range range)
{
    range.end = s->b->items(s->d, phase, &range);
    if (range.end == 0) {
        return;
    }
    switch (phase) {
#define X(name) case EXL2__PHASE_##name: need(s, s->b->name(s->d, layer, &range)); break;
        EXL2__PHASES(X)
#undef X
    case EXL2__PHASE_COUNT: break;
    }
}

static void both(exl2__phase phase, const made *m, uint32_t layer, exl2__range range)
{
    bool inside = phase >= EXL2__PHASE_qkv && phase <= EXL2__PHASE_down;
    do_phase(&cpu, phase, inside ? &cpu.layers[layer] : NULL, range);
    do_phase(&cuda, phase, inside ? &cuda.layers[layer] : NULL, range);
    check_phase(phase, m, layer, &range);
}

static void run_pass(made *m)
{
    exl2__range all = { 0 };
    need(&cpu, cpu.b->begin(cpu.d, &m->step));
    need(&cuda, cuda.b->begin(cuda.d, &m->step));
    both(EXL2__PHASE_copy_pages, m, 0, all);
    both(EXL2__PHASE_embed, m, 0, all);
    for (uint32_t layer = 0; layer < cpu.plan.shape.layers; layer++) {
        for (uint32_t phase = EXL2__PHASE_qkv; phase <= EXL2__PHASE_down; phase++) {
            both((exl2__phase)phase, m, layer, all);
        }
    }
    for (uint32_t first = 0; first < m->step.logit_count; first += EXL2__LOGIT_ROWS) {
        exl2__range group = { .logit0 = first,
                              .logit_count = exl2__min32(m->step.logit_count - first, EXL2__LOGIT_ROWS) };
        both(EXL2__PHASE_head, m, 0, group);
        both(EXL2__PHASE_sample, m, 0, group);
    }
}

static void run_model(const char *path)
{
    static made m;
    exl2__cuda_settings settings = { .optional = true };
    side_begin(&cpu, &exl2__cpu_backend);
    side_begin(&cuda, &exl2__cuda_backend);
    if (exl2__cuda_device_open(&cuda.c, &gpu, &settings) < 0) {
        check_skip(cuda.c.error.text);
    }
    side_load(&cpu, path, NULL);
    side_load(&cuda, path, &gpu);
    pages_taken = 0;
    memset(length, 0, sizeof length);
    for (size_t i = 0; i < EXL2__COUNT(passes); i++) {
        make_pass(&m, &passes[i], cpu.plan.shape.vocab);
        run_pass(&m);
    }
    side_close(&cuda);
    side_close(&cpu);
    CHECK_INT(gpu.bytes, 0);
    exl2__cuda_device_close(&gpu);
    CHECK_INT(cuda.c.host_bytes, 0);
    CHECK_INT(cpu.c.host_bytes, 0);
}

int main(int argc, char **argv)
{
    static const char *const names[EXL2__PHASE_COUNT] = {
#define X(name) #name,
        EXL2__PHASES(X)
#undef X
    };
    static const char *const stored[] = { "exl2-mixed", "exl2-4bit", "llama3-rope" };
    const char *golden = getenv("EXL2_GOLDEN_DIR") ? getenv("EXL2_GOLDEN_DIR") : EXL2_GOLDEN_DIR;
    for (int i = 1; i < argc; i++) {
        run_model(argv[i]);
    }
    for (size_t i = 0; i < EXL2__COUNT(stored) && argc < 2; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/models/%s", golden, stored[i]);
        run_model(path);
    }
    for (uint32_t phase = EXL2__PHASE_embed; phase < EXL2__PHASE_COUNT; phase++) {
        printf("%-8s %5u comparisons, off by %.1e\n", names[phase], compared[phase], worst[phase]);
        CHECK(compared[phase] > 0);
    }
    return check_done();
}
