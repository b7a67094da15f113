/* hidden.c: the final hidden state of a row, as the result of a pass that computes no logits. On the CPU the head,
   applied by hand, gives the logits of the same pass bit by bit. Over the fake driver no kernel runs for it, and its
   norm is that of the residual.
   takes: the goldens; the fake driver.
   gives: exit code 0 or 1. */
#include "bench.h"

#define STEP_ROWS 40u

typedef struct made {
    exl2__step step;
    exl2__step_row rows[STEP_ROWS];
    exl2__logit_row logits[STEP_ROWS];
    exl2__sampling greedy;
    uint32_t pages[1];
    const uint32_t *tables[1];
} made;

/* A step of one sequence on page 0, whose last `count` rows have logits of this use. */
static void made_make(const bench *b, made *x, uint32_t count, exl2__logit_use use)
{
    memset(x, 0, sizeof *x);
    bench_seed = 5;
    for (uint32_t i = 0; i < STEP_ROWS; i++) {
        exl2_token token = (exl2_token)(3 + bench_below(b->m->plan.shape.vocab - 3));
        x->rows[i] = (exl2__step_row){ .token = token, .position = i };
    }
    x->greedy = (exl2__sampling){ .greedy = true, .temperature = 1, .top_p = 1, .repeat_penalty = 1 };
    for (uint32_t i = 0; i < count; i++) {
        x->logits[i] = (exl2__logit_row){ .row = STEP_ROWS - count + i, .use = use, .sampling = &x->greedy, .left = 1 };
    }
    x->tables[0] = x->pages;
    x->step = (exl2__step){ .rows = x->rows, .row_count = STEP_ROWS, .sequence_count = 1, .page_tables = x->tables,
                            .logits = x->logits, .logit_count = count,
                            .kind = b->m->pages.sampled ? EXL2__ROWS_PROMPT : EXL2__ROWS_MIXED };
    if (exl2__spans_backend(&b->m->spans)->commit_pages) {
        CHECK_INT(exl2__spans_commit(&b->m->spans, x->pages, 1, false), EXL2_OK);
    }
}

static uint32_t heads, samples; /* calls of these phases */

static exl2_result count_head(exl2__device *d, const exl2__layer *layer, const exl2__range *range)
{
    heads++;
    return exl2__cpu_backend.head(d, layer, range);
}

static exl2_result count_sample(exl2__device *d, const exl2__layer *layer, const exl2__range *range)
{
    samples++;
    return exl2__cpu_backend.sample(d, layer, range);
}

/* Runs the step. Logits of FETCH rows go to logits [rows, vocab], hidden states to hidden [rows, hidden]. */
static void made_run(bench *b, const made *x, float *logits, float *hidden)
{
    exl2__forward *f = &b->m->forward;
    exl2__backend counts = *exl2__spans_backend(&b->m->spans);
    exl2__span *span = &b->m->spans.span[0];
    const exl2__backend *own = span->backend;
    exl2__forward_status status;
    heads = samples = 0;
    if (!exl2__backend_is_async(own)) {
        counts.head = count_head;
        counts.sample = count_sample;
        span->backend = &counts;
    }
    CHECK_INT(exl2__forward_begin(f, &x->step), EXL2_OK);
    do {
        exl2__queue_budget budget = { .wait = true };
        CHECK_INT(exl2__backend_is_async(own) ? exl2__forward_queue(f, &budget, &status)
                                              : exl2__forward_run(f, 0, true, &status), EXL2_OK);
        for (uint32_t i = 0; status == EXL2__FORWARD_RESULTS && i < f->result_count; i++) {
            const exl2__logit_row *row = &x->step.logits[f->logit0 + i];
            float *at;
            if (row->use == EXL2__LOGIT_HIDDEN) {
                CHECK_INT(f->results[i].token, -1);
                CHECK_INT(own->hidden(span->device, row->row, 1, false,
                                      hidden + row->row * b->m->plan.shape.hidden), EXL2_OK);
            } else if (row->use == EXL2__LOGIT_FETCH) {
                CHECK_INT(own->logits(span->device, i, &at), EXL2_OK);
                memcpy(logits + row->row * b->m->plan.shape.vocab, at, b->m->plan.shape.vocab * sizeof *at);
            }
        }
    } while (status != EXL2__FORWARD_DONE);
    span->backend = own;
}

/* The head's product of one row, as cpu.h has it. */
static void apply_head(const bench *b, const float *hidden, float *logits)
{
    exl2__cpu_device *d = exl2__cpu_of(b->m->spans.span[0].device);
    exl2__cpu_gather(d, exl2__cpu_head(d), 1, 0, 1, hidden, d->hidden_stride);
    exl2__cpu_multiply_rows(d, exl2__cpu_head(d), 0, 1, 0, d->vocab_stride / EXL2__CPU_STRIP, d->logits,
                            d->vocab_stride, 0);
    for (uint32_t i = 0; i < d->vocab_stride; i++) {
        d->logits[i] *= d->shape.logit_scale;
    }
    if (d->shape.final_softcap > 0) {
        d->ops->softcap(d->logits, d->vocab_stride, d->shape.final_softcap);
    }
    memcpy(logits, d->logits, d->shape.vocab * sizeof *logits);
}

static void test_hidden(const char *name)
{
    static float logits[STEP_ROWS * 1024], mixed[STEP_ROWS * 1024], by_hand[1024];
    static float hidden[STEP_ROWS * 1024], beside[STEP_ROWS * 1024];
    static made x;
    bench b = bench_open(name, EXL2_BACKEND_CPU, (exl2_model_desc){ .prefill_chunk = 64, .batch_max = 4 }, 0);
    uint32_t vocab = b.m->plan.shape.vocab, width = b.m->plan.shape.hidden, most = b.m->plan.logit_rows_max;
    made_make(&b, &x, STEP_ROWS, EXL2__LOGIT_FETCH);
    made_run(&b, &x, logits, NULL);
    CHECK(heads >= STEP_ROWS / most); /* fetched rows are sampled elsewhere */
    made_make(&b, &x, STEP_ROWS, EXL2__LOGIT_SCORE);
    made_run(&b, &x, NULL, NULL);
    CHECK(heads >= STEP_ROWS / most && samples >= STEP_ROWS / most);
    made_make(&b, &x, STEP_ROWS, EXL2__LOGIT_HIDDEN);
    made_run(&b, &x, NULL, hidden);
    CHECK_INT(heads + samples, 0);
    for (uint32_t i = 0; i < STEP_ROWS; i++) {
        apply_head(&b, hidden + i * width, by_hand);
        CHECK(memcmp(by_hand, logits + i * vocab, vocab * sizeof *by_hand) == 0);
    }
    made_make(&b, &x, STEP_ROWS, EXL2__LOGIT_HIDDEN); /* beside rows that want logits, in the first group alone */
    x.logits[0].use = x.logits[2].use = EXL2__LOGIT_FETCH;
    x.logits[1].use = EXL2__LOGIT_SCORE;
    made_run(&b, &x, mixed, beside);
    CHECK(heads > 0 && samples > 0);
    for (uint32_t i = 0; i < STEP_ROWS; i++) {
        CHECK(i < 3 || memcmp(beside + i * width, hidden + i * width, width * sizeof *hidden) == 0);
        CHECK(i != 0 || memcmp(mixed, logits, vocab * sizeof *logits) == 0);
        CHECK(i != 2 || memcmp(mixed + i * vocab, logits + i * vocab, vocab * sizeof *logits) == 0);
    }
    bench_close(&b);
}

static char kernels[2][4096]; /* of a pass, one after the other */
static uint32_t listed;

static void list_kernels(const char *function, const void *arguments, const unsigned grid[3])
{
    size_t used = strlen(kernels[listed]);
    snprintf(kernels[listed] + used, sizeof kernels[0] - used, "%s %u\n", function, grid[0]);
    bench_run(function, arguments, grid);
}

/* Over the fake driver: no kernel more than in a pass without logits; and the norm, of a residual that the test makes,
   against one in double. */
static void test_hidden_cuda(const char *name)
{
    static float hidden[STEP_ROWS * 1024];
    static made x;
    bench b = bench_open(name, EXL2_BACKEND_CUDA, (exl2_model_desc){ .prefill_chunk = 64, .batch_max = 4 }, 0);
    const exl2__shape *s = &b.m->plan.shape;
    exl2__cuda_model *gpu_model = exl2__cuda_of(b.m->spans.span[0].device);
    made_make(&b, &x, 0, EXL2__LOGIT_HIDDEN);
    made_run(&b, &x, NULL, NULL); /* after what loading has left to do */
    fake.run = list_kernels;
    memset(kernels, 0, sizeof kernels);
    for (listed = 0; listed < 2; listed++) {
        made_make(&b, &x, listed * STEP_ROWS, EXL2__LOGIT_HIDDEN);
        made_run(&b, &x, NULL, hidden);
    }
    CHECK(strlen(kernels[0]) > 100);
    CHECK_TEXT(kernels[1], kernels[0]);
    listed = 0;
    float *r = fake_memory(gpu_model->b.residual, STEP_ROWS * s->hidden * sizeof *r);
    const exl2__norm *norm = &b.m->plan.final_norm;
    const float *weight = fake_memory(exl2__cuda_values(norm->weight), s->hidden * sizeof *weight);
    const float *bias = norm->bias ? fake_memory(exl2__cuda_values(norm->bias), s->hidden * sizeof *bias) : NULL;
    for (uint32_t i = 0; r && i < STEP_ROWS * s->hidden; i++) {
        r[i] = 1 + (float)bench_below(1000) / 100;
    }
    exl2_result got = exl2__spans_backend(&b.m->spans)->hidden(b.m->spans.span[0].device, 7, 1, false, hidden);
    CHECK_INT(got, EXL2_OK);
    double mean = 0, square = 0, worst = 0;
    for (uint32_t i = 0; r && i < s->hidden; i++) {
        mean += s->layer_norm ? (double)r[7 * s->hidden + i] / s->hidden : 0;
    }
    for (uint32_t i = 0; r && i < s->hidden; i++) {
        square += pow((double)r[7 * s->hidden + i] - mean, 2) / s->hidden;
    }
    for (uint32_t i = 0; r && weight && i < s->hidden; i++) {
        double y = ((double)r[7 * s->hidden + i] - mean) / sqrt(square + (double)s->norm_eps) * (double)weight[i];
        worst = fmax(worst, fabs(y + (bias ? (double)bias[i] : 0) - (double)hidden[i]));
    }
    CHECK(worst < 1e-5);
    bench_close(&b);
}

/* The norm of a row, in double. */
static void norm_of(const bench *b, const float *row, double *out)
{
    const exl2__shape *s = &b->m->plan.shape;
    const exl2__norm *norm = &b->m->plan.final_norm;
    const float *weight = fake_memory(exl2__cuda_values(norm->weight), s->hidden * sizeof *weight);
    const float *bias = norm->bias ? fake_memory(exl2__cuda_values(norm->bias), s->hidden * sizeof *bias) : NULL;
    double mean = 0, square = 0;
    for (uint32_t i = 0; i < s->hidden; i++) {
        mean += s->layer_norm ? (double)row[i] / s->hidden : 0;
    }
    for (uint32_t i = 0; i < s->hidden; i++) {
        square += pow((double)row[i] - mean, 2) / s->hidden;
    }
    for (uint32_t i = 0; weight && i < s->hidden; i++) {
        out[i] = ((double)row[i] - mean) / sqrt(square + (double)s->norm_eps) * (double)weight[i];
        out[i] += bias ? (double)bias[i] : 0;
    }
}

static float embedded[1024];
static uint32_t embeddings;

static exl2_flow hear_vector(void *user, const exl2_event *event)
{
    (void)user;
    if (event->kind == EXL2_EVENT_EMBEDDING) {
        memcpy(embedded, event->values, event->value_count * sizeof *embedded);
        embeddings++;
    }
    return EXL2_CONTINUE;
}

/* Over the fake driver: a job of 100 tokens in chunks of 64 has the mean of rows that the test has put into the
   residual, which no kernel changes there; with and without the norm. Only the last block's residual can be read. */
static void test_embedding_cuda(const char *name)
{
    static double sum[1024], row[1024];
    static exl2_token ids[100];
    bench b = bench_open(name, EXL2_BACKEND_CUDA, (exl2_model_desc){ .prefill_chunk = 64, .batch_max = 4 }, 0);
    const exl2__shape *s = &b.m->plan.shape;
    float *r = fake_memory(exl2__cuda_of(b.m->spans.span[0].device)->b.residual, 64 * s->hidden * sizeof *r);
    bench_seed = 9;
    for (uint32_t i = 0; i < 100; i++) {
        ids[i] = (exl2_token)(3 + bench_below(s->vocab - 3));
    }
    for (uint32_t raw = 0; raw < 2; raw++) {
        exl2_job_desc d = { .model = b.model, .prompt = { .tokens = ids, .token_count = 100 }, .on_event = hear_vector,
                            .embed = { .pool = EXL2_EMBED_MEAN, .raw = true, .layer = raw ? s->layers : 0 } };
        for (uint32_t i = 0; r && i < 64 * s->hidden; i++) {
            r[i] = 1 + (float)bench_below(1000) / 100;
        }
        memset(sum, 0, sizeof sum);
        for (uint32_t i = 0; r && i < 100; i++) {
            const float *at = r + i % 64 * s->hidden;
            norm_of(&b, at, row);
            for (uint32_t k = 0; k < s->hidden; k++) {
                sum[k] += (raw ? (double)at[k] : row[k]) / 100;
            }
        }
        embeddings = 0;
        CHECK_INT(exl2_generate(b.e, &d), EXL2_OK);
        CHECK_INT(embeddings, 1);
        double worst = 0;
        for (uint32_t k = 0; k < s->hidden; k++) {
            worst = fmax(worst, fabs(sum[k] - (double)embedded[k]));
        }
        CHECK(worst < 1e-4);
        d.embed.layer = 1;
        exl2_error error = { 0 };
        CHECK_INT(exl2_job_start(b.e, &d, NULL), EXL2_ERR_UNSUPPORTED);
        exl2_last_error(b.e, &error);
        CHECK(strstr(error.text, "embed.layer is 1") != NULL);
    }
    bench_close(&b);
}

int main(int argc, char **argv)
{
    const char *const models[] = { "exl2-mixed", "gemma2", "starcoder2", "cohere", "granite", "exl2-qwen3-moe" };
    rig_read_path(&argc, &argv);
    for (uint32_t i = 0; i < EXL2__COUNT(models); i++) {
        test_hidden(models[i]);
        test_hidden_cuda(models[i]);
        test_embedding_cuda(models[i]);
    }
    machine_drop_cache();
    return check_done();
}
