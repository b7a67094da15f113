/* solve.c: the factorization, the search and the quantizer of one matrix, compared with the fixtures of the converter
   (tests/golden/convert, and the larger ones in $EXL2_TEST_DATA/convert/matrix). Losses are computed here, in double,
   from the words that a decoder reads. With -DRIG_BACKEND=EXL2_BACKEND_CUDA all of it runs on a GPU. */
#define EXL2_CONVERT
#include "../device/other_gpu.h"

#include "private/json.h"
#include "private/platform_alloc.h"
#include "private/losses.h"
#include "private/solve.h"
#include "../device/kernel_folder.h"
#include "../matrix_decode.h"

#include <math.h>
#include <time.h>

typedef struct problem {
    const char *name;
    uint32_t in, columns, tokens;
    double *h;      /* [in, in] x'x / tokens */
    float *gram;    /* the same in strips */
    uint16_t *weight; /* f16 [in, columns] */
    exl2__factor factor;
} problem;

#ifndef RIG_BACKEND
#define RIG_BACKEND EXL2_BACKEND_CPU
#endif

static exl2__ctx ctx;
static exl2__gpu device; /* not open: the CPU */
static exl2__json golden;
static char *golden_text;

static double number_of(uint32_t token)
{
    double value = 0;
    CHECK(exl2__json_f64(&golden, token, &value));
    return value;
}

static double member(uint32_t object, const char *key)
{
    return number_of(exl2__json_get(&golden, object, key));
}

/* Reads the weights and activations of a case, computes H and its factor. */
static problem problem_open(const char *name, const char *path)
{
    problem p = { .name = name };
    uint32_t object = exl2__json_get(&golden, 0, name);
    size_t bytes;
    char *file = check_read(path, &bytes);
    uint64_t header;
    memcpy(&header, file, 8);
    p.in = (uint32_t)member(object, "K");
    p.columns = (uint32_t)member(object, "N");
    p.tokens = (uint32_t)member(object, "tokens");
    size_t weights = (size_t)p.in * p.columns, inputs = (size_t)p.tokens * p.in;
    if (!CHECK_INT(bytes, 8 + header + 2 * (weights + inputs))) {
        exit(1);
    }
    p.weight = malloc(2 * weights);
    memcpy(p.weight, file + 8 + header, 2 * weights);
    uint16_t *halves = malloc(2 * inputs);
    memcpy(halves, file + 8 + header + 2 * weights, 2 * inputs);
    p.h = calloc((size_t)p.in * p.in, sizeof *p.h);
    p.gram = malloc((size_t)p.in * p.in * sizeof *p.gram);
    double *x = malloc(p.in * sizeof *x);
    for (uint32_t t = 0; t < p.tokens; t++) {
        for (uint32_t i = 0; i < p.in; i++) {
            x[i] = (double)exl2__f16_to_f32(halves[(size_t)t * p.in + i]);
        }
        for (uint32_t i = 0; i < p.in; i++) {
            for (uint32_t j = 0; j < p.in; j++) {
                p.h[(size_t)i * p.in + j] += x[i] * x[j];
            }
        }
    }
    for (uint32_t i = 0; i < p.in; i++) {
        for (uint32_t j = 0; j < p.in; j++) {
            p.h[(size_t)i * p.in + j] /= p.tokens;
            p.gram[((size_t)(j / 32) * p.in + i) * 32 + j % 32] = (float)p.h[(size_t)i * p.in + j];
        }
    }
    free(x);
    free(halves);
    free(file);
    exl2__gpu *gpu = exl2__gpu_is_open(&device) ? &device : NULL;
    if (!CHECK_INT(exl2__factor_make(&ctx, gpu, name, p.gram, p.in, &p.factor), EXL2_OK)) {
        printf("  %s\n", ctx.error.text);
        exit(1);
    }
    return p;
}

static void problem_close(problem *p)
{
    exl2__factor_close(&ctx, &p->factor);
    free(p->h);
    free(p->gram);
    free(p->weight);
}

/* tr((Q - W)' H (Q - W)) / tr(W' H W), undamped, in double; q: f16 [in, columns]. */
static double loss_of(const problem *p, const uint16_t *q)
{
    double loss = 0, power = 0;
    double *e = malloc(p->in * sizeof *e), *w = malloc(p->in * sizeof *w);
    for (uint32_t n = 0; n < p->columns; n++) {
        for (uint32_t i = 0; i < p->in; i++) {
            w[i] = (double)exl2__f16_to_f32(p->weight[(size_t)i * p->columns + n]);
            e[i] = (double)exl2__f16_to_f32(q[(size_t)i * p->columns + n]) - w[i];
        }
        for (uint32_t i = 0; i < p->in; i++) {
            double he = 0, hw = 0;
            for (uint32_t j = 0; j < p->in; j++) {
                he += p->h[(size_t)i * p->in + j] * e[j];
                hw += p->h[(size_t)i * p->in + j] * w[j];
            }
            loss += e[i] * he;
            power += w[i] * hw;
        }
    }
    free(e);
    free(w);
    return loss / power;
}

/* ---- factor ---- */

static void check_factor(const problem *p)
{
    uint32_t object = exl2__json_get(&golden, 0, p->name);
    uint32_t order = exl2__json_get(&golden, object, "perm_first_16");
    uint32_t first = exl2__json_get(&golden, object, "D_first_16");
    uint32_t at = exl2__json_first(&golden, order), d = exl2__json_first(&golden, first);
    double sum = 0, logs = 0;
    for (uint32_t i = 0; i < 16; i++) {
        CHECK_INT(p->factor.order[i], (int)number_of(at));
        double wanted = number_of(d), got = (double)p->factor.diagonal[i] * p->factor.mean;
        CHECK(fabs(got / wanted - 1) < 1e-3);
        at = exl2__json_next(&golden, order, at);
        d = exl2__json_next(&golden, first, d);
    }
    for (uint32_t i = 0; i < p->in; i++) {
        sum += (double)p->factor.diagonal[i] * p->factor.mean;
        logs += log((double)p->factor.diagonal[i] * p->factor.mean);
    }
    double wanted_sum = member(object, "D_sum"), wanted_mean = member(object, "D_geomean");
    printf("%s: D sum %.2e, geomean %.2e off\n", p->name, fabs(sum / wanted_sum - 1),
           fabs(exp(logs / p->in) / wanted_mean - 1));
    CHECK(fabs(sum / wanted_sum - 1) < 1e-4);
    CHECK(fabs(exp(logs / p->in) / wanted_mean - 1) < 1e-4);
}

/* ---- layouts ---- */

/* Opens *s with the weights. false: that failed. */
static bool solve_with(const problem *p, const exl2__group *groups, uint32_t count, exl2__solve *s)
{
    uint16_t *strips = malloc((size_t)p->in * p->columns * sizeof *strips);
    exl2__cpu_part part = { .source = EXL2__CPU_F16, .in = p->in, .out = p->columns, .strips = p->columns / 32 };
    part.strip_bytes = (uint64_t)p->in * 32 * sizeof *strips;
    part.data = (uint8_t *)strips;
    for (uint32_t i = 0; i < p->in; i++) {
        for (uint32_t n = 0; n < p->columns; n++) {
            strips[((size_t)(n / 32) * p->in + i) * 32 + n % 32] = p->weight[(size_t)i * p->columns + n];
        }
    }
    bool good = CHECK_INT(exl2__solve_open(&ctx, &p->factor, p->columns, groups, count, s), EXL2_OK)
             && CHECK_INT(exl2__solve_load(&ctx, s, &part, p->columns), EXL2_OK);
    free(strips);
    return good;
}

/* Packs what the quantizer made, decodes the words by the format's description, and compares each value. */
static uint16_t *decode(const problem *p, exl2__solve *s)
{
    exl2__matrix_desc desc = { 0 };
    uint32_t words = 0;
    for (uint32_t g = 0; g < s->group_count; g++) {
        words += s->groups[g].rows * s->groups[g].bits / 32;
    }
    uint32_t *packed = calloc((size_t)words * p->columns, 4);
    uint32_t *scales = calloc((size_t)s->group_count * p->columns / 8, 4);
    uint32_t *inverse = malloc(p->in * sizeof *inverse);
    uint16_t *scale_max = malloc(s->group_count * 2), *out = malloc((size_t)p->in * p->columns * 2);
    for (uint32_t g = 0; g < s->group_count; g++) {
        for (uint32_t strip = 0; strip < s->strips; strip++) {
            exl2__pack_codes(s->codes + ((size_t)strip * p->in + s->groups[g].row) * 32, s->groups[g].rows, 32, 32,
                             s->groups[g].bits, packed + (size_t)s->groups[g].word * p->columns + strip * 32,
                             p->columns);
        }
        exl2__pack_levels(s->levels + (size_t)g * p->columns, p->columns, scales + (size_t)g * (p->columns / 8));
        scale_max[g] = exl2__f32_to_f16(exl2__f16_to_f32(s->scale_max[g]) / 256);
    }
    for (uint32_t i = 0; i < p->in; i++) {
        inverse[p->factor.order[i]] = i;
    }
    desc.in = p->in;
    desc.out_stored = p->columns;
    desc.groups = s->groups;
    desc.scale_codes = scales;
    desc.scale_max = scale_max;
    desc.inverse_perm = inverse;
    matrix_decode(&desc, packed, out);
    uint32_t other = 0;
    uint16_t *values = malloc((size_t)p->in * p->columns * sizeof *values);
    CHECK_INT(exl2__solve_values(&ctx, s, values), EXL2_OK);
    for (uint32_t i = 0; i < p->in; i++) {
        for (uint32_t n = 0; n < p->columns; n++) {
            uint16_t value = values[((size_t)(n / 32) * p->in + i) * 32 + n % 32];
            other += exl2__f16_to_f32(value) != exl2__f16_to_f32(out[(size_t)i * p->columns + n]); /* -0 is 0 */
        }
    }
    CHECK_INT(other, 0);
    free(values);
    free(packed);
    free(scales);
    free(inverse);
    free(scale_max);
    return out;
}

/* On the CPU: plain C makes the same of the weights as the instruction set that *s was solved with. */
static void check_plain(const problem *p, const exl2__solve *s)
{
    exl2__solve plain;
    if (p->factor.on_gpu.gpu || !solve_with(p, s->groups, s->group_count, &plain)) {
        return;
    }
    plain.path = EXL2_CPU_C;
    CHECK_INT(exl2__solve_run(&ctx, &plain), EXL2_OK);
    CHECK(memcmp(s->codes, plain.codes, (size_t)p->in * p->columns) == 0);
    CHECK(memcmp(s->levels, plain.levels, (size_t)s->group_count * p->columns) == 0);
    CHECK(memcmp(s->scale_max, plain.scale_max, s->group_count * sizeof *s->scale_max) == 0);
    exl2__solve_close(&ctx, &plain);
}

static void check_layout(const problem *p, uint32_t layout, const char *name)
{
    exl2__group groups[256];
    uint32_t rows = exl2__json_get(&golden, layout, "rows"), bits = exl2__json_get(&golden, layout, "bits"), count = 0;
    uint32_t row = 0, word = 0, b = exl2__json_first(&golden, bits);
    exl2__solve s;
    for (uint32_t r = exl2__json_first(&golden, rows); r; r = exl2__json_next(&golden, rows, r)) {
        exl2__group group = { row, (uint32_t)number_of(r), word, (uint32_t)number_of(b) };
        groups[count++] = group;
        row += group.rows;
        word += group.rows * group.bits / 32;
        b = exl2__json_next(&golden, bits, b);
    }
    CHECK_INT(row, p->in);
    if (!solve_with(p, groups, count, &s)) {
        return;
    }
    clock_t start = clock();
    CHECK_INT(exl2__solve_run(&ctx, &s), EXL2_OK);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    check_plain(p, &s);
    uint16_t *q = decode(p, &s);
    double loss = loss_of(p, q), wanted = member(layout, "with_descent");
    printf("%s %s: loss %.5g, %.4f of the fixture's, %.4f of nearest, %.3f s\n", p->name, name, loss, loss / wanted,
           loss / member(layout, "nearest"), seconds);
    CHECK(loss <= 1.01 * wanted);
    double own, power;
    CHECK_INT(exl2__solve_energy(&ctx, &s, true, &own), EXL2_OK);
    CHECK_INT(exl2__solve_energy(&ctx, &s, false, &power), EXL2_OK);
    own /= power;
    if (!CHECK(fabs(own / loss - 1) < 1e-3)) {
        printf("  the quantizer's own loss is %.5g\n", own);
    }
    exl2__solve_close(&ctx, &s);
    free(q);
}

/* ---- losses of blocks ---- */

static void check_losses(const problem *p)
{
    static const char *const names[] = { "2", "3", "4", "5", "6", "8" };
    uint32_t object = exl2__json_get(&golden, 0, p->name), widths = exl2__json_get(&golden, object, "block_loss_32");
    double *got = malloc(EXL2__LOSSES_WIDTHS * (p->in / 32) * sizeof *got), power = member(object, "wHw");
    double above = 0, below = 0;
    exl2__group all = { 0, p->in, 0, 4 }; /* it is not used */
    exl2__solve s;
    if (!solve_with(p, &all, 1, &s)) {
        return;
    }
    clock_t start = clock();
    CHECK_INT(exl2__losses_run(&ctx, &s, got), EXL2_OK);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    for (uint32_t w = 0; w < EXL2__LOSSES_WIDTHS; w++) {
        uint32_t list = exl2__json_get(&golden, widths, names[w]), block = 0;
        double sum = 0, wanted = 0;
        for (uint32_t at = exl2__json_first(&golden, list); at; at = exl2__json_next(&golden, list, at), block++) {
            double one = number_of(at), off = got[w * (p->in / 32) + block] / power / one - 1;
            above = fmax(above, off);
            below = fmax(below, -off);
            sum += got[w * (p->in / 32) + block] / power;
            wanted += one;
        }
        CHECK_INT(block, p->in / 32);
        if (!CHECK(sum < 1.01 * wanted) || !CHECK(p->tokens < p->in || sum > 0.97 * wanted)) {
            printf("  %s, %s bits: all blocks lose %.4f of the fixture's\n", p->name, names[w], sum / wanted);
        }
    }
    printf("%s: losses of blocks: at most %.4f above, %.4f below the fixture's, %.3f s\n", p->name, above, below,
           seconds);
    CHECK(above < 0.05); /* of 32 x 64 weights at 8 bits; see `sum` above for whole matrices */
    exl2__solve_close(&ctx, &s);
    free(got);
}

static void check_case(const char *name, const char *path)
{
    problem p = problem_open(name, path);
    uint32_t object = exl2__json_get(&golden, 0, name), layouts = exl2__json_get(&golden, object, "layouts");
    check_factor(&p);
    check_losses(&p);
    for (uint32_t key = exl2__json_first(&golden, layouts); key; key = exl2__json_next(&golden, layouts, key)) {
        char text[32];
        text[exl2__json_text(&golden, key, text, sizeof text - 1)] = 0;
        check_layout(&p, key + 1, text);
    }
    problem_close(&p);
}

int main(void)
{
    size_t bytes;
    ctx.allocator = exl2__platform_allocator();
    ctx.files = exl2__platform_files();
    ctx.cpu_path = exl2__cpu_path_best();
    exl2_engine_desc engine = { .backend = RIG_BACKEND, .nvrtc_path = check_env("EXL2_NVRTC"),
                                .kernel_cache = kernel_folder() };
    if (exl2__gpu_open(&ctx, &engine, &device) < 0) {
        check_skip(ctx.error.text);
    }
    golden_text = check_read(EXL2_GOLDEN_DIR "/convert/matrix.json", &bytes);
    CHECK_INT(exl2__json_open(&ctx, "matrix.json", golden_text, bytes, &golden), EXL2_OK);
    check_case("hard", EXL2_GOLDEN_DIR "/convert/hard.safetensors");
    check_case("attn", check_shared("fixtures/convert/matrix/attn.safetensors"));
    check_case("down", check_shared("fixtures/convert/matrix/down.safetensors"));
    exl2__json_close(&ctx, &golden);
    free(golden_text);
    exl2__gpu_close(&ctx, &device);
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}
