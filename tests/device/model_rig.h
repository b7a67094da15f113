/* model_rig.h: a whole model on one backend, and passes over texts whose logits the test can read.
   takes: a folder with a model; for CUDA an open exl2__cuda_device.
   gives: side with open and close; side_run, side_poison.
   owns:  the model, until side_close. */
#ifndef MODEL_RIG_H
#define MODEL_RIG_H

#include "other_gpu.h"

#include "private/model_config_read.h"
#include "private/forward_queue.h"
#include "private/weights_load.h"
#include "private/cpu.h"
#include "../weights_measure.h"
#include "gpu_rig.h"
#include "spread.h"

#include <math.h>

#ifndef TEXTS /* predict.c has larger passes */
#define TEXTS 16u
#define TEXT_TOKENS 256u
#define PAGES 67u /* prime, so that page numbers are scattered */
#define ROWS 160u
#endif
#define TEXT_PAGES (TEXT_TOKENS / EXL2__PAGE_TOKENS)
#define SEQUENCES 64u /* that the model is opened for: as many rows may decode together */
#define LAYERS_MAX 80u

/* Consecutive rows of a pass: positions [first, first + rows) of a text. */
typedef struct part {
    uint32_t text, first, rows;
} part;

typedef struct side {
    exl2__ctx c;
    const exl2__backend *b;
    exl2__device *d;
    exl2__weights load;
    exl2__plan plan;
    exl2__arena weights, pages, scratch;
    exl2__layer layers[LAYERS_MAX];
    exl2__matrix **experts; /* of all layers; NULL: the model has none */
    double frequency[128];
    exl2__rope_angles ropes[2];
    exl2__spans spans;
    exl2__forward forward;
    exl2__logit_result results[SEQUENCES];
    exl2_alt alts[SEQUENCES][EXL2_ALTS_MAX];
    /* the last pass */
    exl2__step_row rows[ROWS];
    exl2__logit_row logit_rows[ROWS];
    uint32_t row_count, logit_count;
    exl2_token drawn[ROWS];
    float *logits; /* [ROWS, vocab] in the order of logit_rows */
    exl2__row_kind kind; /* of all passes; MIXED: as side_run says */
    const float *inputs; /* [vocab, hidden] the vector of each token, given in its place; NULL: rows have tokens */
    bool hidden;   /* rows want their final hidden states, which take the place of logits in `logits` */
    bool by_unit;  /* the GPU runs unit by unit, as under a budget */
    bool by_kernel; /* the GPU runs no graphs */
} side;

static exl2_token texts[TEXTS][TEXT_TOKENS];
static uint32_t text_pages[TEXTS][TEXT_PAGES];

static inline void side_need(const side *s, exl2_result r)
{
    if (r < 0) {
        printf("%s: %s%s\n", s->b->name, s->c.error.text, gpu_ctx.error.text);
        exit(1);
    }
}

static inline void side_open(side *s, const exl2__backend *b, void *hardware, const char *path)
{
    exl2__arena dry[2] = { { 0 }, { 0 } };
    memset(s, 0, sizeof *s);
    s->b = b;
    s->c.allocator = exl2__platform_allocator();
    s->c.files = exl2__platform_files();
    s->c.parallel = spread_parallel();
    s->c.cpu_path = exl2__cpu_path_best();
    side_need(s, exl2__config_read(&s->c, path, &s->load.config));
    side_need(s, b->open(&s->c, hardware, &s->d));
    side_need(s, weights_measure(&s->c, &s->load, path, b, s->d));
    exl2__plan_make(&s->plan, &s->load.config, s->load.embed_rows, TEXT_TOKENS, ROWS, SEQUENCES);
    s->plan.shape.exl3 = s->load.has_exl3;
    s->plan.shape.mixes_exl3 = s->load.mixes_exl3;
    s->plan.logit_rows_max = exl2__max32(s->plan.logit_rows_max, exl2__min32(b->logit_rows, SEQUENCES));
    exl2__plan_ropes(&s->plan, &s->load.config, s->frequency, s->ropes);
    s->plan.rows_max = ROWS;
    s->plan.layers = s->layers;
    s->plan.pages = PAGES;
    if (!CHECK(s->plan.shape.layers <= LAYERS_MAX)) {
        exit(1);
    }
    exl2__plan_layers(&s->plan, &s->load.config, s->layers);
    uint64_t experts = exl2__plan_expert_pointers(&s->load.config);
    s->experts = experts ? (exl2__matrix **)calloc((size_t)experts, sizeof *s->experts) : NULL;
    if (experts && !s->experts) {
        exit(1);
    }
    exl2__plan_experts(&s->load.config, s->experts, s->layers);
    exl2_result r = EXL2_PENDING;
    while (r == EXL2_PENDING) { /* each call prepares a few kernels */
        r = exl2__backend_has_memory(b)
                ? b->memory->reserve(s->d, &s->load.weight_bytes)
                : exl2__arena_open(&s->c, &s->weights, s->load.weight_bytes, EXL2_MEM_WEIGHTS);
    }
    side_need(s, r);
    side_need(s, exl2__weights_begin(&s->c, &s->load));
    exl2__work all = exl2__work_all();
    side_need(s, exl2__weights_slice(&s->c, &s->load, &s->plan, b, s->d, &s->weights, &all));
    exl2__weights_close(&s->c, &s->load);
    side_need(s, b->prepare(s->d, &s->plan, &dry[0], &dry[1]));
    side_need(s, exl2__arena_open(&s->c, &s->pages, dry[0].used, EXL2_MEM_KV));
    side_need(s, exl2__arena_open(&s->c, &s->scratch, dry[1].used + EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH));
    side_need(s, b->prepare(s->d, &s->plan, &s->pages, &s->scratch));
    s->spans = (exl2__spans){ .span = { { .backend = b, .device = s->d, .end = s->plan.shape.layers } }, .count = 1 };
    s->forward = (exl2__forward){ .c = &s->c, .spans = &s->spans, .plan = &s->plan, .results = s->results };
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        s->results[i].alts = s->alts[i];
    }
    s->logits = (float *)malloc((size_t)ROWS * s->plan.shape.vocab * sizeof *s->logits);
    if (!s->logits) {
        exit(1);
    }
}

static inline void side_close(side *s)
{
    s->b->close(s->d);
    exl2__arena_close(&s->c, &s->weights);
    exl2__arena_close(&s->c, &s->pages);
    exl2__arena_close(&s->c, &s->scratch);
    CHECK_INT(s->c.host_bytes, 0);
    free(s->logits);
    free(s->experts);
}

/* Waits until the copy is complete. */
static inline void gpu_read(uint64_t from, void *to, size_t bytes)
{
    int result = gpu.driver.context_push(gpu.context);
    result = result == 0 ? gpu.driver.copy_down(to, from, bytes, gpu.stream) : result;
    result = result == 0 ? gpu.driver.stream_wait(gpu.stream) : result;
    exl2__cuda_device_leave(&gpu);
    if (!CHECK_INT(result, 0)) {
        exit(1);
    }
}

/* Copies tokens and logits of the group that was just sampled: rows [first, first + count) of the pass's logits. */
static inline void side_take(side *s, uint32_t first, uint32_t count)
{
    uint32_t vocab = s->plan.shape.vocab;
    for (uint32_t i = 0; i < count; i++) {
        float *to = s->logits + (size_t)(first + i) * vocab;
        s->drawn[first + i] = s->results[i].token;
        if (s->hidden) {
            side_need(s, s->b->hidden(s->d, s->logit_rows[first + i].row, 1, false, to));
        } else if (s->b == &exl2__cuda_backend) {
            const exl2__cuda_buffers *b = &exl2__cuda_of(s->d)->b;
            gpu_read(b->logits + (uint64_t)i * b->stride * 4, to, vocab * sizeof *to);
        } else {
            const exl2__cpu_device *d = exl2__cpu_of(s->d);
            memcpy(to, d->logits + (size_t)i * d->vocab_stride, vocab * sizeof *to);
        }
    }
}

/* Fills the used part of every row in the GPU's buffers with NaN. Padding becomes zero, because products read it. */
static inline void side_poison(const side *s)
{
    const exl2__cuda_buffers *b = &exl2__cuda_of(s->d)->b;
    const exl2__shape *shape = &s->plan.shape;
    const struct {
        uint64_t at, rows, used, pitch;
    } all[] = {
        { b->residual, ROWS, shape->hidden * 4, shape->hidden * 4 },
        { b->qkv, ROWS, b->qkv_pitch * 4, b->qkv_pitch * 4 },
        { b->x, ROWS, shape->hidden * 2, b->x_pitch * 2 },
        { b->attended, ROWS, shape->heads * shape->head_dim * 2, b->attended_pitch * 2 },
        { b->h, ROWS, shape->inter * 2, b->h_pitch * 2 },
        { b->head_x, s->plan.logit_rows_max, shape->hidden * 2, b->x_pitch * 2 },
        { b->logits, s->plan.logit_rows_max, shape->vocab * 4, b->stride * 4 },
    };
    int result = gpu.driver.context_push(gpu.context);
    for (size_t i = 0; i < EXL2__COUNT(all); i++) {
        uint8_t *image = (uint8_t *)calloc((size_t)all[i].rows, (size_t)all[i].pitch);
        for (uint64_t row = 0; image && row < all[i].rows; row++) {
            memset(image + row * all[i].pitch, 0xFF, (size_t)all[i].used);
        }
        result = image && result == 0
                   ? gpu.driver.copy_up(all[i].at, image, (size_t)(all[i].rows * all[i].pitch), gpu.stream) : -1;
        result = result == 0 ? gpu.driver.stream_wait(gpu.stream) : result;
        free(image);
    }
    exl2__cuda_device_leave(&gpu);
    if (!CHECK_INT(result, 0)) {
        exit(1);
    }
}

/* Runs a pass, with logits of every row if `every`, else of the last row of each part. Tokens are sampled greedily. If
   every part has one row the rows are of sampled tokens, else of prompts, unless s->kind says so. A pass of sampled
   tokens that all have logits may run as a graph. */
static inline void side_run(side *s, const part *parts, uint32_t count, bool every)
{
    static const exl2__sampling greedy = { .greedy = true, .temperature = 1, .top_p = 1, .repeat_penalty = 1 };
    const uint32_t *tables[TEXTS];
    exl2__forward_status status = EXL2__FORWARD_MORE;
    bool decodes = true, single = true;
    s->row_count = s->logit_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        tables[i] = text_pages[parts[i].text];
        single = single && parts[i].rows == 1;
        decodes = decodes && (parts[i].rows == 1 || every);
        for (uint32_t k = 0; k < parts[i].rows; k++) {
            uint32_t row = s->row_count++, position = parts[i].first + k;
            exl2_token token = texts[parts[i].text][position];
            s->rows[row] = (exl2__step_row){ .token = token, .position = position, .sequence = i };
            s->rows[row].vector = s->inputs ? s->inputs + (size_t)token * s->plan.shape.hidden : NULL;
            if (every || k + 1 == parts[i].rows) {
                s->logit_rows[s->logit_count++] = (exl2__logit_row){ .row = row, .use = EXL2__LOGIT_SAMPLE, .alts = 2,
                                                                     .sampling = &greedy,
                                                                     .sample_position = position + 1, .left = 1 };
                s->logit_rows[s->logit_count - 1].use = s->hidden ? EXL2__LOGIT_HIDDEN : EXL2__LOGIT_SAMPLE;
            }
        }
    }
    exl2__step step = { .rows = s->rows, .row_count = s->row_count, .sequence_count = count, .page_tables = tables,
                        .logits = s->logit_rows, .logit_count = s->logit_count,
                        .kind = s->kind != EXL2__ROWS_MIXED ? s->kind
                              : single ? EXL2__ROWS_SAMPLED : EXL2__ROWS_PROMPT };
    step.decodes = decodes && step.kind == EXL2__ROWS_SAMPLED && !s->hidden;
    step.repeats = step.decodes && single;
    side_need(s, exl2__forward_begin(&s->forward, &step));
    if (s->by_kernel) { /* as a pass that graphs cannot run */
        exl2__cuda_pass *pass = &exl2__cuda_of(s->d)->pass;
        pass->captured = false;
        pass->row_count = step.row_count;
    }
    while (status != EXL2__FORWARD_DONE) {
        exl2__queue_budget pace = { .timed = s->by_unit, .idle = { true }, .wait = true };
        side_need(s, exl2__backend_is_async(s->b) ? exl2__forward_queue(&s->forward, &pace, &status)
                                                  : exl2__forward_run(&s->forward, 0, true, &status));
        if (status == EXL2__FORWARD_RESULTS) {
            side_take(s, s->forward.logit0, s->forward.result_count);
        }
    }
}

#endif
