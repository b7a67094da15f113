/* predict.c: how fast a model can be at most on a GPU that is not at hand, from counts of what its code does: kernels
   of a pass run here (other_gpu.h), ncu counts their instructions, bytes, wavefronts of shared memory and tensor
   products, and a GPU of the market does them at its own rates. predict.sh runs all of it. README.md says what is
   assumed.
   takes: list                 prints a line for each GPU: its number, EXL2_TEST_ARCH, EXL2_TEST_SMS
          run FOLDER           runs passes of 1, 8 and 512 rows of a model, for ncu --profile-from-start off; a GPU
          table NUMBER LAYERS  reads ncu's CSV (--page raw) from stdin; LAYERS: of the whole model, as the one that ran
                               may have fewer
   gives: exit code 0, 1, or 77 without a GPU. */
#define TEXTS 8u
#define TEXT_TOKENS 576u
#define PAGES 73u
#define ROWS 512u

#include "model_rig.h"

/* ---- GPUs of the market, from their makers' data sheets ---- */

typedef struct target {
    const char *name;
    int arch, sms;
    double ghz, gbps; /* boost clock; memory bandwidth, GB/s */
} target;

static const target targets[] = {
    { "RTX 3060", 86, 28, 1.777, 360 },  { "RTX 3090", 86, 82, 1.695, 936 },   { "RTX 4060", 89, 24, 2.460, 272 },
    { "RTX 4070", 89, 46, 2.475, 504 },  { "RTX 4090", 89, 128, 2.520, 1008 }, { "RTX 5090", 120, 170, 2.407, 1792 },
};

/* A clock of an SM of all of these GPUs: warp instructions that it issues, wavefronts of shared memory, and products of
   its tensor cores with sums in float (half of their rate with sums in fp16). */
#define ISSUES 4.0
#define WAVEFRONTS 1.0
#define PRODUCTS 256.0
#define MMA_PRODUCTS 2048.0 /* of an instruction m16n8k16 */

/* ---- running ---- */

static const uint32_t passes[] = { 1, 8, ROWS };
#define PASSES (sizeof passes / sizeof passes[0])

/* Calls cuProfilerStart or cuProfilerStop. */
static void profile(const char *name)
{
    int(EXL2__CUDA_CALL * function)(void);
    if (CHECK(exl2__platform_symbol(gpu.driver.library, name, &function))) {
        CHECK_INT(exl2__cuda_device_enter(&gpu), EXL2_OK);
        CHECK_INT(function(), 0);
        exl2__cuda_device_leave(&gpu);
    }
}

static void run_pass(side *s, uint32_t rows, bool counted)
{
    part parts[TEXTS] = { { 0, 0, rows } };
    for (uint32_t i = 0; i < rows && rows <= TEXTS; i++) {
        parts[i] = (part){ i, ROWS, 1 };
    }
    if (counted) {
        profile("cuProfilerStart");
    }
    side_run(s, parts, rows <= TEXTS ? rows : 1, false);
    if (counted) {
        profile("cuProfilerStop");
    }
}

static int run(const char *folder)
{
    static side s;
    gpu_open(NULL, 0);
    side_open(&s, &exl2__cuda_backend, &gpu, folder);
    s.by_unit = true;
    for (uint32_t i = 0; i < TEXTS; i++) {
        for (uint32_t k = 0; k < TEXT_TOKENS; k++) {
            texts[i][k] = (exl2_token)((i * 131 + k * 7) % s.plan.shape.vocab);
        }
        for (uint32_t k = 0; k < TEXT_PAGES; k++) {
            text_pages[i][k] = (i * TEXT_PAGES + k) % PAGES;
        }
        side_run(&s, &(part){ i, 0, ROWS }, 1, false);
    }
    for (uint32_t i = 0; i < 2 * PASSES; i++) { /* all of them first without being counted */
        run_pass(&s, passes[i % PASSES], i >= PASSES);
    }
    side_close(&s);
    gpu_close();
    return check_done();
}

/* ---- reading ncu's CSV ---- */

enum { BYTES_READ, BYTES_WRITTEN, INSTRUCTIONS, SHARED, TENSOR, TIME, METRICS };

static const char *const metrics[METRICS] = {
    "dram__bytes_read.sum", "dram__bytes_write.sum", "smsp__inst_executed.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "smsp__inst_executed_pipe_tensor", "gpu__time_duration.sum",
};

#define FIELDS_MAX 1024 /* the page has several hundred attributes of the GPU, too */
#define LINE_MAX_BYTES 65536

/* Splits a line of CSV in place. Returns the number of its fields. */
static uint32_t split(char *line, char **fields)
{
    uint32_t count = 0;
    for (char *at = line; *at && *at != '\n' && count < FIELDS_MAX;) {
        bool quoted = *at == '"';
        char *to = at += quoted, *start = at;
        while (*at && *at != '\n' && (quoted ? *at != '"' : *at != ',')) {
            *to++ = *at++;
        }
        at += quoted && *at == '"';
        at += *at == ',';
        *to = 0;
        fields[count++] = start;
    }
    return count;
}

/* "1,234.5" */
static double number_of(const char *text)
{
    double value = 0, unit = 1;
    bool fraction = false;
    for (; (*text >= '0' && *text <= '9') || *text == ',' || *text == '.'; text++) {
        fraction = fraction || *text == '.';
        if (*text >= '0' && *text <= '9') {
            value = value * 10 + (*text - '0');
            unit = fraction ? unit / 10 : unit;
        }
    }
    return value * unit;
}

/* ---- classes of kernels ---- */

enum { QKV, OUT, GATE_UP, DOWN, ATTEND, NORM, HEAD, OTHER, CLASSES };

static const char *const class_names[CLASSES] = { "qkv", "out", "gate_up", "down", "attend", "norm", "head", "other" };

typedef struct counts {
    double sum[CLASSES][METRICS];
    uint32_t products, layers; /* launches of products, and of attention */
} counts;

/* The class of the next kernel of a pass: products of a layer come in the order of their classes. */
static int class_of(counts *c, const char *kernel, uint32_t layers)
{
    if (strncmp(kernel, "exl2k_gem", 9) == 0) {
        uint32_t i = c->products++;
        return i < 4 * layers ? (int)(i % 4) : HEAD;
    }
    bool attends = strncmp(kernel, "exl2k_attend", 12) == 0;
    return attends ? ATTEND : strncmp(kernel, "exl2k_norm", 10) == 0 ? NORM : OTHER;
}

typedef struct launch {
    char kernel[64];
    double value[METRICS];
} launch;

#define LAUNCHES_MAX 4096

static launch launches[LAUNCHES_MAX];
static uint32_t launch_count;
static double here_sms, here_ghz; /* of the GPU that ran them */

/* The number in the column of this name; 0: there is none. */
static double column_of(char **names, char **fields, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return number_of(fields[i]);
        }
    }
    return 0;
}

/* Reads all launches. false: the table lacks a metric that must be there; its name has been printed. */
static bool read_launches(FILE *file)
{
    static char head[LINE_MAX_BYTES], line[LINE_MAX_BYTES];
    static char *names[FIELDS_MAX], *fields[FIELDS_MAX];
    int kernel = -1, column[METRICS] = { -1, -1, -1, -1, -1, -1 };
    uint32_t names_count = 0;
    while (fgets(kernel < 0 ? head : line, LINE_MAX_BYTES, file)) {
        if (kernel < 0) { /* until the row with the columns' names */
            names_count = head[0] == '"' ? split(head, names) : 0;
            for (uint32_t i = 0; i < names_count; i++) {
                kernel = strcmp(names[i], "Kernel Name") == 0 ? (int)i : kernel;
                for (uint32_t m = 0; m < METRICS; m++) {
                    column[m] = strncmp(names[i], metrics[m], strlen(metrics[m])) == 0 ? (int)i : column[m];
                }
            }
            continue;
        }
        uint32_t count = line[0] == '"' ? split(line, fields) : 0;
        if (count <= (uint32_t)kernel || strncmp(fields[kernel], "exl2k_", 6) != 0 || launch_count == LAUNCHES_MAX) {
            continue; /* the row of units */
        }
        launch *l = &launches[launch_count++];
        snprintf(l->kernel, sizeof l->kernel, "%s", fields[kernel]);
        uint32_t both = exl2__min32(count, names_count);
        here_sms = column_of(names, fields, both, "device__attribute_multiprocessor_count");
        here_ghz = column_of(names, fields, both, "device__attribute_clock_rate") * 1e-6;
        for (uint32_t m = 0; m < METRICS; m++) {
            l->value[m] = column[m] >= 0 && (uint32_t)column[m] < count ? number_of(fields[column[m]]) : 0;
        }
    }
    for (uint32_t m = 0; m < METRICS; m++) {
        if (kernel < 0 || column[m] < 0) {
            printf("ncu's table has no %s\n", kernel < 0 ? "Kernel Name" : metrics[m]);
            return false;
        }
    }
    return true;
}

/* ---- prediction ---- */

/* Sums up a pass: launches [*first, end of the pass), which begins with the embedding. layers: of the whole model. */
static counts sum_pass(uint32_t *first, uint32_t layers)
{
    counts c = { .products = 0 };
    uint32_t end = *first + 1;
    while (end < launch_count && strncmp(launches[end].kernel, "exl2k_embed", 11) != 0) {
        end++;
    }
    for (uint32_t i = *first; i < end; i++) {
        bool rows = strncmp(launches[i].kernel, "exl2k_attend_decode", 19) == 0;
        c.layers += rows || strncmp(launches[i].kernel, "exl2k_attend_prefill", 20) == 0;
    }
    for (uint32_t i = *first; i < end; i++) {
        int class = class_of(&c, launches[i].kernel, c.layers);
        double scale = class < HEAD && c.layers > 0 ? (double)layers / c.layers : 1;
        for (uint32_t m = 0; m < METRICS; m++) {
            c.sum[class][m] += scale * launches[i].value[m];
        }
    }
    *first = end;
    return c;
}

enum { BY_MEMORY, BY_ISSUE, BY_SHARED, BY_TENSOR, RATES };

static const char *const rate_names[RATES] = { "memory", "instructions", "shared memory", "tensor cores" };

/* The milliseconds of a class of kernels at each rate of the GPU. */
static void times_of(const target *g, const double sum[METRICS], double ms[RATES])
{
    double clocks = g->sms * g->ghz * 1e6; /* of all SMs, in a millisecond */
    ms[BY_MEMORY] = (sum[BYTES_READ] + sum[BYTES_WRITTEN]) / (g->gbps * 1e6);
    ms[BY_ISSUE] = sum[INSTRUCTIONS] / (ISSUES * clocks);
    ms[BY_SHARED] = sum[SHARED] / (WAVEFRONTS * clocks);
    ms[BY_TENSOR] = sum[TENSOR] * MMA_PRODUCTS / (PRODUCTS * clocks);
}

/* Prints what each class of kernels of a pass costs, and the pass: by the slowest of its rates, and, if the GPU here
   has as many SMs, not faster than so many SMs here at the other one's clock, which also wait for latencies. */
static void predict_pass(const target *g, const counts *c, uint32_t rows)
{
    double total = 0, with_here = 0, by[RATES] = { 0 }, most_ms = 0;
    int most = 0;
    bool as_many = g->sms <= here_sms && here_ghz > 0;
    printf("  %u row%s, ms by: memory, instructions, shared memory, tensor cores; %s\n", rows, rows > 1 ? "s" : "",
           as_many ? "as many SMs here at its clock" : "here");
    for (int class = 0; class < CLASSES; class++) {
        double ms[RATES], here = c->sum[class][TIME] * 1e-6 * (as_many ? here_ghz / g->ghz : 1);
        int rate = 0;
        times_of(g, c->sum[class], ms);
        for (int r = 1; r < RATES; r++) {
            rate = ms[r] > ms[rate] ? r : rate;
        }
        total += ms[rate];
        with_here += fmax(ms[rate], here);
        by[rate] += ms[rate];
        if (ms[rate] > most_ms) {
            most = class;
            most_ms = ms[rate];
        }
        printf("    %-8s %8.3f %8.3f %8.3f %8.3f; %8.3f\n", class_names[class], ms[BY_MEMORY], ms[BY_ISSUE],
               ms[BY_SHARED], ms[BY_TENSOR], here);
    }
    printf("  %u row%s: %.2f ms, %.0f tokens/s;", rows, rows > 1 ? "s" : "", total, rows / total * 1e3);
    for (int r = 0; r < RATES; r++) {
        if (by[r] > 0.01 * total) {
            printf(" %s %.0f %%", rate_names[r], by[r] / total * 100);
        }
    }
    printf(", most of it %s", class_names[most]);
    if (as_many) {
        printf("; not faster than as many SMs here: %.2f ms, %.0f tokens/s", with_here, rows / with_here * 1e3);
    }
    printf("\n");
}

static int table(uint32_t number, uint32_t layers)
{
    if (number >= EXL2__COUNT(targets) || layers == 0 || !read_launches(stdin)) {
        return 1;
    }
    const target *g = &targets[number];
    uint32_t first = 0;
    printf("%s: %d SMs of %d.%d at %.3f GHz, %.0f GB/s\n", g->name, g->sms, g->arch / 10, g->arch % 10, g->ghz,
           g->gbps);
    for (uint32_t i = 0; i < PASSES; i++) {
        if (!CHECK(first < launch_count)) {
            break;
        }
        counts c = sum_pass(&first, layers);
        CHECK(c.layers > 0 && c.products > 4 * c.layers);
        predict_pass(g, &c, passes[i]);
    }
    CHECK_INT(first, launch_count);
    return check_done();
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t i = 0; i < EXL2__COUNT(targets); i++) {
            printf("%zu %d %d\n", i, targets[i].arch, targets[i].sms);
        }
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "run") == 0) {
        return run(argv[2]);
    }
    if (argc == 4 && strcmp(argv[1], "table") == 0) {
        return table((uint32_t)strtoul(argv[2], NULL, 10), (uint32_t)strtoul(argv[3], NULL, 10));
    }
    printf("predict list | run FOLDER | table NUMBER LAYERS\n");
    return 1;
}
