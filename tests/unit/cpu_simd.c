/* cpu_simd.c: order of sums. The result of a position of a sequence (its residual row, its logits, its K and V) has the
   same bits alone, together with seven other sequences, in chunks of any size, in passes of any mix, in any split of a
   phase, and with any number of tasks in any order, wherever the stack lies. The vector paths have the same bits as
   each other. Also with a cache of codes. `cpu_simd bits` prints a hash of what plain C computes: it must be the same
   for every compiler, its options, and every CPU (hosts.c, case `plain`). */
#define EXL2__CPU_TASK_COST 1 /* so that every stage is split into tasks */
#include "cpu_paths.h"

EXL2__ROUND_TWICE_BEGIN /* the inputs, too, are the same for every compiler */
#include "cpu_synth.h"
EXL2__ROUND_TWICE_END

#define SEQUENCES 8u
#define LENGTH 70u /* crosses a page boundary */
#define PAGES_EACH 2u
#define ROWS_MAX 40u
#define LOGIT_GROUP 8u

/* ---- task functions of applications, each with its own order ---- */

static uint64_t shuffle_state;
static uint32_t tasks_run;

static void forwards(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    for (uint32_t i = 0; i < count; i++) {
        task(arg, i);
    }
    tasks_run += count;
}

static void backwards(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    for (uint32_t i = count; i > 0; i--) {
        task(arg, i - 1);
    }
    tasks_run += count;
}

static uint32_t shuffle_bits(void)
{
    shuffle_state = shuffle_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(shuffle_state >> 33);
}

static void shuffled(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    uint32_t order[EXL2__CPU_TASKS_MAX];
    (void)user;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = shuffle_bits() % (i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        task(arg, order[i]);
    }
    tasks_run += count;
}

/* ---- ways to run the same sequences ---- */

typedef struct way {
    const exl2__cpu_ops *ops;
    void (*host)(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg);
    uint32_t width;     /* number of tasks */
    uint32_t items;     /* items of a phase per call; 0 = all */
    uint32_t together;  /* number of sequences in a pass */
    uint32_t rows;      /* rows of each sequence in a pass; 0 = random */
} way;

typedef struct record {
    float *residual;  /* [SEQUENCES, LENGTH, hidden] after the last layer */
    float *logits;    /* [SEQUENCES, LENGTH, vocab] */
    uint16_t *pages;  /* in the device's layout */
    size_t residual_bytes, logit_bytes, page_bytes;
} record;

static void record_free(record *r)
{
    free(r->residual);
    free(r->logits);
    free(r->pages);
    *r = (record){ 0 };
}

static const exl2__cpu_ops *ops_to_use;

static void use_ops(exl2__device *d)
{
    exl2__cpu_of(d)->ops = ops_to_use;
}

static exl2_token token_of(const synth_shape *s, uint32_t sequence, uint32_t position)
{
    return (exl2_token)((sequence * 131 + position * 29 + position * position) % s->vocab);
}

/* Runs a pass over these rows, all of which want logits, and puts the results into `r`. */
static void run_pass(synth_model *m, const synth_shape *s, const exl2__step_row *rows, uint32_t count, uint32_t items,
                     record *r)
{
    static uint32_t tables[SEQUENCES][PAGES_EACH];
    const uint32_t *table_of[SEQUENCES];
    exl2__logit_row logits[ROWS_MAX];
    const exl2__cpu_device *d = exl2__cpu_of(m->d);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        for (uint32_t p = 0; p < PAGES_EACH; p++) {
            tables[i][p] = (i * PAGES_EACH + p) * 5 % (SEQUENCES * PAGES_EACH);
        }
        table_of[i] = tables[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        logits[i] = (exl2__logit_row){ .row = i, .use = EXL2__LOGIT_SCORE };
    }
    exl2__step step = { .rows = rows, .row_count = count, .sequence_count = SEQUENCES, .page_tables = table_of,
                        .logits = logits, .logit_count = count };
    synth_layers(m, &step, items);
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)rows[i].sequence * LENGTH + rows[i].position;
        memcpy(r->residual + at * s->hidden, d->residual + (size_t)i * d->hidden_stride, s->hidden * sizeof(float));
    }
    for (uint32_t first = 0; first < count; first += LOGIT_GROUP) {
        uint32_t group = exl2__min32(count - first, LOGIT_GROUP);
        synth_phase(m, EXL2__PHASE_head, NULL, first, group, items);
        for (uint32_t i = 0; i < group; i++) {
            size_t at = (size_t)rows[first + i].sequence * LENGTH + rows[first + i].position;
            memcpy(r->logits + at * s->vocab, d->logits + (size_t)i * d->vocab_stride, s->vocab * sizeof(float));
        }
    }
}

/* Computes all positions of all sequences. */
static record run_way(const synth_shape *s, const way *w)
{
    synth_model m;
    exl2_parallel parallel = { 0 };
    record r = { 0 };
    uint32_t done[SEQUENCES] = { 0 }, first = 0, left = SEQUENCES * LENGTH;
    parallel.run = w->host;
    parallel.width = w->width;
    ops_to_use = w->ops;
    synth_model_open(&m, &exl2__cpu_backend, s, 42, parallel, ROWS_MAX, 128, SEQUENCES * PAGES_EACH, use_ops);
    r.residual_bytes = SEQUENCES * LENGTH * s->hidden * sizeof(float);
    r.logit_bytes = SEQUENCES * LENGTH * s->vocab * sizeof(float);
    r.page_bytes = (size_t)m.pages.size;
    r.residual = (float *)synth_alloc(r.residual_bytes);
    r.logits = (float *)synth_alloc(r.logit_bytes);
    r.pages = (uint16_t *)synth_alloc(r.page_bytes);
    while (left) {
        exl2__step_row rows[ROWS_MAX];
        uint32_t count = 0;
        for (uint32_t i = 0; i < w->together; i++) {
            uint32_t sequence = (first + i) % SEQUENCES;
            uint32_t wanted = w->rows ? w->rows : shuffle_bits() % 14;
            for (uint32_t k = 0; k < wanted && done[sequence] < LENGTH && count < ROWS_MAX; k++) {
                exl2_token token = token_of(s, sequence, done[sequence]);
                rows[count++] = (exl2__step_row){ .token = token, .position = done[sequence], .sequence = sequence };
                done[sequence]++;
            }
        }
        first += w->together;
        if (count) {
            run_pass(&m, s, rows, count, w->items, &r);
        }
        left -= count;
    }
    memcpy(r.pages, m.pages.base, r.page_bytes);
    synth_model_close(&m);
    return r;
}

/* The same, with the stack moved by `offset` bytes. 0, 16, 32 and 48 are all cases of a stack aligned to 16. */
static record run_offset(const synth_shape *s, const way *w, size_t offset)
{
    volatile char moved[offset + 1];
    moved[offset] = 0;
    (void)moved;
    return run_way(s, w);
}

static void check_same(const record *got, const record *wanted, const way *w, const synth_shape *s)
{
    bool same = memcmp(got->pages, wanted->pages, wanted->page_bytes) == 0
             && memcmp(got->residual, wanted->residual, wanted->residual_bytes) == 0
             && memcmp(got->logits, wanted->logits, wanted->logit_bytes) == 0;
    if (!CHECK(same)) {
        printf("  %s, hidden %u, %u tasks, %u items, %u sequences of %u rows\n", w->ops->name, s->hidden, w->width,
               w->items, w->together, w->rows);
    }
}

/* All ways on one path, or the first four: without `all`, and with sanitizers. `wanted` is the result alone, one row at
   a time. */
static void check_ways(const synth_shape *s, const exl2__cpu_ops *ops, const record *wanted, bool all)
{
    const way ways[] = {
        { ops, NULL, 0, 0, SEQUENCES, 1 },          { ops, NULL, 0, 0, 1, 12 },  { ops, shuffled, 5, 0, 5, 0 },
        { ops, NULL, 0, 1, 3, 5 },                  { ops, NULL, 0, 0, 1, 2 },   { ops, NULL, 0, 0, 1, 7 },
        { ops, NULL, 0, 0, 1, 13 },                 { ops, NULL, 0, 0, 1, 40 },  { ops, forwards, 2, 0, SEQUENCES, 1 },
        { ops, backwards, 3, 0, SEQUENCES, 3 },     { ops, shuffled, 64, 3, 4, 0 }, { ops, backwards, 64, 0, 2, 0 },
        { ops, shuffled, 7, 2, SEQUENCES, 0 },
    };
    for (uint32_t i = 0; i < (all && !CHECK_SANITIZED ? EXL2__COUNT(ways) : 4); i++) {
        uint32_t before = tasks_run;
        record got = run_offset(s, &ways[i], i % 4 * 16);
        check_same(&got, wanted, &ways[i], s);
        CHECK((tasks_run > before) == (ways[i].host != NULL));
        record_free(&got);
    }
}

/* FNV-1a */
static uint64_t hash_of(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001B3u;
    }
    return hash;
}

static uint64_t hash_plain(const synth_shape *shapes, const exl2_kv *formats, size_t count)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t s = 0; s < count; s++) {
        synth_kv = formats[s];
        const way some = { &exl2__cpu_plain_ops, NULL, 0, 0, 1, 5 };
        record r = run_way(&shapes[s], &some);
        hash = hash_of(hash, r.residual, r.residual_bytes);
        hash = hash_of(hash, r.logits, r.logit_bytes);
        hash = hash_of(hash, r.pages, r.page_bytes);
        record_free(&r);
    }
    return hash;
}

int main(int argc, char **argv)
{
    only_path = argc > 1 ? argv[1] : NULL;
    static const synth_shape shapes[] = {
        { 96, 160, 2, 4, 2, 32, 77, 1, false, true, true, false },
        { 256, 352, 1, 8, 1, 64, 100, 3, false, false, false, false },
        { 64, 128, 2, 7, 1, 32, 64, 16, false, false, false, false },
        { 70, 51, 2, 6, 3, 20, 45, 0, true, true, true, false },
        { 96, 160, 2, 4, 2, 32, 77, SYNTH_AFFINE + 1, false, true, false, false },
        { 256, 352, 1, 8, 1, 64, 100, SYNTH_AFFINE + 6, false, false, false, true },
        { 96, 160, 2, 4, 2, 32, 77, 1, false, true, true, false },
        { 64, 96, 2, 9, 3, 48, 45, 2, true, false, true, false },
        { 64, 128, 2, 7, 1, 64, 64, 16, false, false, false, false },
    };
    static const exl2_kv formats[EXL2__COUNT(shapes)] = { [6] = EXL2_KV_Q8, EXL2_KV_Q6, EXL2_KV_Q4 };
    shuffle_state = 9;
    if (argc > 1 && strcmp(argv[1], "bits") == 0) {
        printf("%016llx\n", (unsigned long long)hash_plain(shapes, formats, EXL2__COUNT(shapes)));
        return 0;
    }
    for (uint32_t s = 0; s < EXL2__COUNT(shapes); s++) {
        const way alone = { &exl2__cpu_phases_ops, NULL, 0, 0, 1, 1 };
        synth_kv = formats[s];
        if (runs(alone.ops) && (s == 0 || s == 4 || s == 7)) { /* slow, so few shapes and a few ways */
            record wanted = run_way(&shapes[s], &alone);
            check_ways(&shapes[s], alone.ops, &wanted, false);
            record_free(&wanted);
        }
        way plain = alone;
        plain.ops = &exl2__cpu_plain_ops;
        if (runs(plain.ops) && !(CHECK_SANITIZED && shapes[s].hidden > 100)) { /* sanitizers make plain C slow */
            record wanted = run_way(&shapes[s], &plain);
            check_ways(&shapes[s], plain.ops, &wanted, s % 3 == 0);
            record_free(&wanted);
        }
#if defined(EXL2__CPU_FAST) && EXL2__NEON_SIMD
        way fast = alone;
        fast.ops = &exl2__cpu_neon_ops;
        if (runs(fast.ops)) {
            record wanted = run_way(&shapes[s], &fast);
            check_ways(&shapes[s], &exl2__cpu_neon_ops, &wanted, s % 3 == 0);
            record_free(&wanted);
        }
#elif defined(EXL2__CPU_FAST)
        if (runs(&exl2__cpu_avx2_ops)) {
            way fast = alone;
            fast.ops = &exl2__cpu_avx2_ops;
            record wanted = run_way(&shapes[s], &fast);
            check_ways(&shapes[s], &exl2__cpu_avx2_ops, &wanted, s % 3 == 0);
            if (runs(&exl2__cpu_avx512_ops)) {
                fast.ops = &exl2__cpu_avx512_ops;
                record got = run_way(&shapes[s], &fast);
                check_same(&got, &wanted, &fast, &shapes[s]);
                check_ways(&shapes[s], &exl2__cpu_avx512_ops, &wanted, s % 3 == 0);
                record_free(&got);
            }
            record_free(&wanted);
        }
#endif
    }
    return check_done();
}
