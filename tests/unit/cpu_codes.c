/* cpu_codes.c: K and V as codes. What is written to a page, against rotation and rounding in double; that a token is
   written without a change to another; scores and weighted sums on every path, and the phases qkv and attend of a
   model, against attention in double over what the pages say. The layout is read here by code of its own, as the head
   of cpu_codes.h describes it. (unit/cpu_simd.c compares bits of rows and of paths.) */
#include "small_tasks.h"

#include "cpu_paths.h"
#include "cpu_synth.h"

#define TOKENS EXL2__PAGE_TOKENS
#define DIM_MAX 256u

static const exl2_kv formats[] = { EXL2_KV_Q8, EXL2_KV_Q6, EXL2_KV_Q4 };
static const uint32_t bits_of[3][2] = { { 8, 8 }, { 8, 4 }, { 4, 4 } }; /* of K, of V */
static const uint32_t dims[] = { 16, 32, 48, 64, 80, 128, 256 };

/* ---- reading a page ---- */

/* Where K or V of a head in a page lie: bytes from the head's begin. */
static size_t codes_at(uint32_t f, uint32_t dim, bool value)
{
    return value ? (size_t)(dim + 31) / 32 * TOKENS * 4 * bits_of[f][0] : 0;
}

static size_t scales_at(uint32_t f, uint32_t dim, bool value)
{
    size_t groups = (dim + 31) / 32, codes = groups * TOKENS * 4 * (bits_of[f][0] + bits_of[f][1]);
    return codes + (value ? groups * TOKENS * 2 : 0);
}

static size_t head_bytes(uint32_t f, uint32_t dim)
{
    return scales_at(f, dim, true) + (size_t)(dim + 31) / 32 * TOKENS * 2;
}

/* The byte that has the code of dimension i, and the code's lowest bit in it. */
static size_t code_byte(uint32_t f, uint32_t dim, bool value, uint32_t token, uint32_t i, uint32_t *shift)
{
    uint32_t bits = bits_of[f][value], group = i / 32, in = i % 32;
    *shift = 0;
    if (value) {
        *shift = bits == 4 && in >= 16 ? 4 : 0;
        return codes_at(f, dim, true) + (size_t)(token * ((dim + 31) / 32) + group) * 4 * bits
             + (bits == 4 ? in % 16 : in);
    }
    uint32_t low = 32 - bits * (i % (32 / bits) + 1); /* of the word of 32 bits */
    *shift = low % 8;
    return ((size_t)(i / (32 / bits)) * TOKENS + token) * 4 + low / 8;
}

static int code_of(const uint8_t *head, uint32_t f, uint32_t dim, bool value, uint32_t token, uint32_t i)
{
    uint32_t shift, bits = bits_of[f][value];
    size_t at = code_byte(f, dim, value, token, i, &shift);
    int code = head[at] >> shift & ((1 << bits) - 1);
    return code >= 1 << (bits - 1) ? code - (1 << bits) : code;
}

static uint16_t scale_bits(const uint8_t *head, uint32_t f, uint32_t dim, bool value, uint32_t token, uint32_t group)
{
    uint16_t scale;
    memcpy(&scale, head + scales_at(f, dim, value) + ((size_t)group * TOKENS + token) * 2, 2);
    return scale;
}

static double value_of(const uint8_t *head, uint32_t f, uint32_t dim, bool value, uint32_t token, uint32_t i)
{
    return (double)exl2__f16_to_f32(scale_bits(head, f, dim, value, token, i / 32))
         * code_of(head, f, dim, value, token, i);
}

static double signs[32][32]; /* element (i, j) of a Hadamard matrix is (-1)^(bits that i and j have in common) */

static void make_signs(void)
{
    for (uint32_t i = 0; i < 32 * 32; i++) {
        signs[i / 32][i % 32] = 1;
        for (uint32_t common = i / 32 & i % 32; common; common &= common - 1) {
            signs[i / 32][i % 32] *= -1;
        }
    }
}

/* y [n] = H x for the group of n that begins at x. */
static void hadamard(const double *x, uint32_t n, double *y)
{
    for (uint32_t i = 0; i < n; i++) {
        y[i] = 0;
        for (uint32_t j = 0; j < n; j++) {
            y[i] += signs[i][j] * x[j];
        }
        y[i] /= sqrt((double)n);
    }
}

static void hadamard_all(const double *x, uint32_t dim, double *y)
{
    for (uint32_t i = 0; i < dim; i += 32) {
        hadamard(x + i, dim - i < 32 ? dim - i : 32, y + i);
    }
}

/* ---- writing ---- */

static uint32_t codes_checked, near_ties;

static void check_written(const uint8_t *head, uint32_t f, uint32_t dim, bool value, uint32_t token, const float *x)
{
    double wanted[DIM_MAX], rotated[DIM_MAX];
    uint32_t most = 1u << (bits_of[f][value] - 1), wrong = 0;
    for (uint32_t i = 0; i < dim; i++) {
        wanted[i] = (double)x[i];
    }
    hadamard_all(wanted, dim, rotated);
    for (uint32_t g = 0; g < (dim + 31) / 32; g++) {
        uint32_t n = dim - 32 * g < 32 ? dim - 32 * g : 32, far = 32 * g;
        for (uint32_t i = 32 * g; i < 32 * g + n; i++) {
            far = fabs(rotated[i]) > fabs(rotated[far]) ? i : far;
        }
        double exact = rotated[far] / -(double)most;
        double scale = (double)exl2__f16_to_f32(scale_bits(head, f, dim, value, token, g));
        wrong += !(fabs(scale - exact) <= fabs(exact) * (0x1p-11 + 1e-5) + 0x1p-25);
        for (uint32_t i = 32 * g; i < 32 * g + n && scale != 0; i++) {
            double at = rotated[i] / scale, nearest = floor(at + 0.5);
            int code = code_of(head, f, dim, value, token, i);
            nearest = nearest > most - 1 ? most - 1 : nearest < -(double)most ? -(double)most : nearest;
            bool tie = fabs(at - floor(at) - 0.5) < 1e-3;
            near_ties += tie;
            wrong += tie ? fabs(code - at) > 0.502 : code != (int)nearest;
            codes_checked++;
        }
        if (fabs(exact) > 1e-4) { /* not with a scale that lost its bits */
            wrong += code_of(head, f, dim, value, token, far) != -(int)most;
        }
        for (uint32_t i = n; i < 32 && value && bits_of[f][1] == 8; i++) {
            wrong += code_of(head, f, dim, value, token, 32 * g + i) != 0;
        }
    }
    if (!CHECK_INT(wrong, 0)) {
        printf("  format %u, dim %u, value %d\n", f + 1, dim, value);
    }
}

static void put(uint8_t *head, uint32_t f, uint32_t dim, bool value, uint32_t token, const float *x)
{
    float rotated[DIM_MAX];
    exl2__cpu_codes to = exl2__cpu_codes_of(head, dim, formats[f], value);
    memcpy(rotated, x, dim * sizeof *x);
    exl2__cpu_codes_rotate(rotated, dim, 1);
    exl2__cpu_codes_put(rotated, &to, token, value);
}

/* Bits that belong to one token keep the pattern if it was not written. */
static void check_others(const uint8_t *head, const uint8_t *before, uint32_t f, uint32_t dim, bool value,
                         uint32_t token)
{
    size_t bytes = head_bytes(f, dim), groups = (dim + 31) / 32, codes = 0, scales = 0;
    uint8_t *own = (uint8_t *)synth_alloc(bytes);
    uint32_t wrong = 0, shift;
    for (uint32_t i = 0; i < 32 * groups; i++) { /* with the padding of a group of 16 */
        own[code_byte(f, dim, value, token, i, &shift)] = 1;
    }
    for (size_t g = 0; g < groups; g++) {
        memset(own + scales_at(f, dim, value) + (g * TOKENS + token) * 2, 2, 2);
    }
    for (size_t i = 0; i < bytes; i++) {
        codes += own[i] == 1;
        scales += own[i] == 2;
        wrong += !own[i] && head[i] != before[i];
    }
    CHECK_INT(codes, groups * 4 * bits_of[f][value]);
    CHECK_INT(scales, groups * 2);
    CHECK_INT(wrong, 0);
    free(own);
}

static void test_written(void)
{
    for (uint32_t f = 0; f < 3; f++) {
        for (uint32_t d = 0; d < EXL2__COUNT(dims); d++) {
            uint32_t dim = dims[d];
            size_t bytes = head_bytes(f, dim);
            uint8_t *head = (uint8_t *)synth_alloc(bytes), *before = (uint8_t *)synth_alloc(bytes);
            CHECK_INT(exl2__cpu_codes_head_bytes(dim, formats[f]), bytes);
            CHECK(dim % 32 || bytes * 8 == (size_t)dim * TOKENS * (bits_of[f][0] + bits_of[f][1] + 1)); /* 8.5 + 8.5 */
            memset(head, 0xA5, bytes);
            for (uint32_t n = 0; n < 20; n++) {
                float x[DIM_MAX];
                uint32_t token = n < 2 ? n * 63 : synth_bits() % TOKENS;
                bool value = n % 2;
                float size = n % 5 == 4 ? 1e-5f : n % 5 == 3 ? 3000 : 1;
                for (uint32_t i = 0; i < dim; i++) {
                    x[i] = synth_float() * size * (synth_bits() % 16 ? 1 : 20);
                }
                memcpy(before, head, bytes);
                put(head, f, dim, value, token, x);
                check_written(head, f, dim, value, token, x);
                check_others(head, before, f, dim, value, token);
            }
            free(head);
            free(before);
        }
    }
    printf("%u codes, %u near the middle between two\n", codes_checked, near_ties);
    CHECK(codes_checked > 30000 && near_ties < codes_checked / 50);
}

/* Zeros are zeros, and what is not finite makes its group NaN or infinite, and no other. */
static void test_special(void)
{
    const float bad[3] = { (float)NAN, (float)INFINITY, -1e30f };
    uint8_t *head = (uint8_t *)synth_alloc(head_bytes(0, 64));
    for (uint32_t f = 0; f < 3; f++) {
        for (uint32_t n = 0; n < 8; n++) {
            float x[64] = { 0 };
            bool value = n % 2;
            uint32_t at = synth_bits() % 32, finite = 0;
            x[at] = n < 6 ? bad[n / 2] : 0;
            put(head, f, 64, value, 5, x);
            for (uint32_t i = 0; i < 32; i++) {
                finite += isfinite(value_of(head, f, 64, value, 5, i)) != 0;
                CHECK(value_of(head, f, 64, value, 5, 32 + i) == 0);
                CHECK(n < 6 || value_of(head, f, 64, value, 5, i) == 0);
            }
            CHECK_INT(finite, n < 6 ? 0 : 32);
        }
    }
    free(head);
}

/* ---- operations ---- */

/* Random codes and scales; NaN for the scales of tokens from `tokens` on. */
static void fill_head(uint8_t *head, uint32_t f, uint32_t dim, uint32_t tokens)
{
    for (size_t i = 0; i < head_bytes(f, dim); i++) {
        head[i] = (uint8_t)synth_bits();
    }
    for (uint32_t value = 0; value < 2; value++) {
        for (uint32_t i = 0; i < (dim + 31) / 32 * TOKENS; i++) {
            float scale = synth_float() / (float)(1u << bits_of[f][value]) * 4;
            uint16_t to = i % TOKENS < tokens ? exl2__f32_to_f16(scale) : 0x7E00;
            memcpy(head + scales_at(f, dim, value) + 2 * (size_t)i, &to, 2);
        }
    }
}

static double worst_score, worst_sum;

static void check_scores(const exl2__cpu_ops *ops, uint8_t *head, uint32_t f, uint32_t dim, uint32_t n, uint32_t tokens)
{
    static float q[DIM_MAX * 12], got[12 * TOKENS];
    double unit = ldexp(1, 32 - (int)bits_of[f][0]);
    exl2__cpu_codes k = exl2__cpu_codes_of(head, dim, formats[f], false);
    for (uint32_t i = 0; i < dim * n; i++) {
        q[i] = synth_float() / (float)unit;
    }
    ops->scores_of_codes(q, n, &k, tokens, got, TOKENS);
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t t = 0; t < tokens; t++) {
            double wanted = 0, reach = 0;
            for (uint32_t i = 0; i < dim; i++) {
                double term = (double)q[i * n + r] * unit * value_of(head, f, dim, false, t, i);
                wanted += term;
                reach += fabs(term);
            }
            worst_score = fmax(worst_score, fabs((double)got[r * TOKENS + t] - wanted) / reach);
            CHECK(fabs((double)got[r * TOKENS + t] - wanted) <= 1e-6 * reach);
        }
    }
}

static void check_weighted(const exl2__cpu_ops *ops, uint8_t *head, uint32_t f, uint32_t dim, uint32_t n,
                           uint32_t tokens)
{
    static float weights[12 * TOKENS], got[12 * DIM_MAX];
    double unit = ldexp(1, 32 - (int)bits_of[f][1]);
    uint32_t wide = (dim + 31) / 32 * 32;
    exl2__cpu_codes v = exl2__cpu_codes_of(head, dim, formats[f], true);
    for (uint32_t i = 0; i < n * TOKENS; i++) {
        weights[i] = i % TOKENS < tokens ? fabsf(synth_float()) : 0;
    }
    for (uint32_t i = 0; i < n * wide; i++) {
        got[i] = (float)(i % 3) * (float)unit; /* sums of earlier pages */
    }
    ops->weighted_codes(weights, TOKENS, n, &v, tokens, got);
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t i = 0; i < dim; i++) {
            double wanted = (r * wide + i) % 3, reach = wanted;
            for (uint32_t t = 0; t < tokens; t++) {
                double term = (double)weights[r * TOKENS + t] * value_of(head, f, dim, true, t, i);
                wanted += term;
                reach += fabs(term);
            }
            double off = fabs((double)got[r * wide + i] / unit - wanted);
            worst_sum = fmax(worst_sum, off / reach);
            CHECK(off <= 1e-6 * reach);
        }
    }
}

static void test_operations(void)
{
    for (uint32_t o = 0; o < EXL2__COUNT(all_ops); o++) {
        const exl2__cpu_ops *ops = all_ops[o];
        uint32_t most = ops->tile_queries;
        worst_score = worst_sum = 0;
        for (uint32_t i = 0; runs(ops) && i < 3 * EXL2__COUNT(dims) * most; i++) {
            uint32_t f = i % 3, dim = dims[i / 3 % EXL2__COUNT(dims)], n = i / 3 / EXL2__COUNT(dims) + 1;
            uint32_t tokens = i % 4 ? 1 + synth_bits() % TOKENS : TOKENS;
            uint8_t *head = (uint8_t *)synth_alloc(head_bytes(f, dim));
            fill_head(head, f, dim, tokens);
            check_scores(ops, head, f, dim, n, tokens);
            check_weighted(ops, head, f, dim, n, tokens);
            free(head);
        }
        if (runs(ops)) {
            printf("%-9s scores off by %.1e, sums by %.1e of 1e-06 of the sum of all terms\n", ops->name, worst_score,
                   worst_sum);
        }
    }
}

/* ---- the phases of a model ---- */

#define CONTEXT 256u
#define ROWS 20u

typedef struct attention { /* what differs from plain attention */
    uint32_t window;
    float softcap;
    bool sinks;
} attention;

static const attention attentions[] = { { UINT32_MAX, 0, false }, { 70, 0, false }, { UINT32_MAX, 2, true } };

static const synth_shape shapes[] = {
    { 96, 64, 2, 4, 2, 32, 77, 1, false, true, true, false },
    { 160, 64, 1, 6, 2, 16, 50, 2, false, false, true, false },
    { 64, 96, 1, 2, 1, 48, 64, 2, true, true, true, false },
    { 96, 32, 1, 9, 3, 64, 31, 9, false, false, true, false },
    { 64, 32, 1, 12, 1, 128, 31, 5, false, false, true, false },
};

static const exl2__cpu_ops *tested_ops;

static void use_tested_ops(exl2__device *d)
{
    exl2__cpu_of(d)->ops = tested_ops;
}

static const float sinks[12] = { 0.5f, -1, 2, 0, 0.25f, 1, -2, 3, 0.125f, 1.5f, -0.5f, 0 };

static void open_model(synth_model *m, const synth_shape *s, const attention *a, exl2_kv kv)
{
    exl2_parallel none = { 0 };
    synth_kv = kv;
    synth_model_open(m, &exl2__cpu_backend, s, 77, none, ROWS, CONTEXT, CONTEXT / TOKENS, use_tested_ops);
    exl2__cpu_of(m->d)->shape.attn_softcap = a->softcap;
    for (uint32_t i = 0; i < s->layers; i++) {
        m->layers[i].window = a->window;
        m->layers[i].sinks = a->sinks ? (exl2__vector *)(void *)(uintptr_t)sinks : NULL;
    }
    synth_kv = EXL2_KV_FP16;
}

static void run_phase(synth_model *m, exl2__phase phase, uint32_t layer)
{
    synth_phase(m, phase, &m->layers[layer], 0, 0, 0);
}

static double worst_attend, worst_key;

/* One row of attention in double: its q from a model whose cache is FP16, K and V from the pages of codes. */
static void check_row(const synth_model *coded, const synth_shape *s, const attention *a, uint32_t f, uint32_t layer,
                      const float *queries, uint32_t row, uint32_t position)
{
    static double score[CONTEXT];
    const exl2__cpu_device *d = exl2__cpu_of(coded->d);
    uint32_t dim = s->head_dim, group = s->heads / s->kv_heads;
    uint32_t first = position + 1 > a->window ? position + 1 - a->window : 0;
    for (uint32_t h = 0; h < s->heads; h++) {
        double largest = a->sinks ? (double)sinks[h] : -1e300, sum = 0, out[DIM_MAX] = { 0 }, back[DIM_MAX];
        const float *got = d->query + (size_t)row * d->query_stride + h * dim;
        double plain[DIM_MAX], q[DIM_MAX];
        for (uint32_t i = 0; i < dim; i++) {
            plain[i] = (double)queries[(size_t)row * d->query_stride + h * dim + i];
        }
        hadamard_all(plain, dim, q);
        for (uint32_t t = first; t <= position; t++) {
            const uint8_t *head = d->pages + t / TOKENS * d->page_bytes + layer * d->layer_bytes
                                + h / group * head_bytes(f, dim);
            score[t] = 0;
            for (uint32_t i = 0; i < dim; i++) {
                score[t] += q[i] * value_of(head, f, dim, false, t % TOKENS, i);
            }
            score[t] = a->softcap > 0 ? (double)a->softcap * tanh(score[t] / (double)a->softcap) : score[t];
            largest = fmax(largest, score[t]);
        }
        for (uint32_t t = first; t <= position; t++) {
            const uint8_t *head = d->pages + t / TOKENS * d->page_bytes + layer * d->layer_bytes
                                + h / group * head_bytes(f, dim);
            double weight = exp(score[t] - largest);
            sum += weight;
            for (uint32_t i = 0; i < dim; i++) {
                out[i] += weight * value_of(head, f, dim, true, t % TOKENS, i);
            }
        }
        sum += a->sinks ? exp((double)sinks[h] - largest) : 0;
        hadamard_all(out, dim, back);
        double most = 0, off = 0;
        for (uint32_t i = 0; i < dim; i++) {
            most = fmax(most, fabs(back[i] / sum));
            double difference = fabs((double)got[i] - back[i] / sum);
            off = !(difference <= off) ? difference : off; /* keeps a NaN */
        }
        worst_attend = fmax(worst_attend, off / most);
        if (!CHECK(off <= 8e-6 * most)) {
            printf("  %s: format %u, dim %u, row %u, head %u\n", tested_ops->name, f + 1, dim, row, h);
        }
    }
}

/* K in the pages of codes is that of the pages of FP16, up to half a step of its group. */
static void check_keys(const synth_model *plain, const synth_model *coded, const synth_shape *s, uint32_t f,
                       uint32_t layer, uint32_t position)
{
    const exl2__cpu_device *p = exl2__cpu_of(plain->d), *d = exl2__cpu_of(coded->d);
    uint32_t dim = s->head_dim, token = position % TOKENS;
    for (uint32_t h = 0; h < s->kv_heads; h++) {
        const uint8_t *head = d->pages + position / TOKENS * d->page_bytes + layer * d->layer_bytes
                            + h * head_bytes(f, dim);
        const uint16_t *pages = exl2__cpu_device_page(p, position / TOKENS, layer);
        for (uint32_t value = 0; value < 2; value++) {
            double k[DIM_MAX], key[DIM_MAX];
            for (uint32_t i = 0; i < dim; i++) {
                k[i] = value_of(head, f, dim, value, token, i);
            }
            hadamard_all(k, dim, key);
            for (uint32_t i = 0; i < dim; i += 32) {
                uint32_t n = dim - i < 32 ? dim - i : 32;
                double off = 0, size = 0;
                double step = (double)exl2__f16_to_f32(scale_bits(head, f, dim, value, token, i / 32));
                for (uint32_t j = i; j < i + n; j++) {
                    uint16_t half = value ? pages[p->key_count + ((size_t)h * TOKENS + token) * p->value_stride + j]
                                          : pages[((size_t)h * dim + j) * TOKENS + token];
                    double wanted = (double)exl2__f16_to_f32(half);
                    off += (key[j] - wanted) * (key[j] - wanted);
                    size += wanted * wanted;
                }
                /* An element is off by half a step; by a whole one where the largest positive code was too small. */
                CHECK(off <= n * step * step + 1e-6 * size && size > 0);
                worst_key = fmax(worst_key, sqrt(off / n) / fabs(step));
            }
        }
    }
}

static void check_attention(const synth_shape *s, const attention *a, uint32_t f)
{
    synth_model plain, coded;
    uint32_t pages[CONTEXT / TOKENS] = { 0, 1, 2, 3 }, position = 0;
    const uint32_t *tables[1] = { pages };
    open_model(&plain, s, a, EXL2_KV_FP16);
    open_model(&coded, s, a, formats[f]);
    const exl2__cpu_device *d = exl2__cpu_of(coded.d), *p = exl2__cpu_of(plain.d);
    float *queries = (float *)synth_alloc(ROWS * d->query_stride * sizeof *queries);
    CHECK_INT(d->page_bytes, s->layers * s->kv_heads * head_bytes(f, s->head_dim));
    for (uint32_t pass = 0; position < 200; pass++) { /* rows 1, 8, 15, 2, 9 ... */
        uint32_t count = pass * 7 % 20 + 1;
        exl2__step_row rows[ROWS];
        for (uint32_t i = 0; i < count; i++) {
            rows[i] = (exl2__step_row){ .token = (exl2_token)(synth_bits() % s->vocab), .position = position + i };
        }
        exl2__step step = { .rows = rows, .row_count = count, .sequence_count = 1, .page_tables = tables };
        CHECK_INT(coded.b->begin(coded.d, &step), EXL2_OK);
        CHECK_INT(plain.b->begin(plain.d, &step), EXL2_OK);
        run_phase(&coded, EXL2__PHASE_embed, 0);
        run_phase(&plain, EXL2__PHASE_embed, 0);
        for (uint32_t layer = 0; layer < s->layers; layer++) { /* both from the same residual */
            run_phase(&coded, EXL2__PHASE_qkv, layer);
            run_phase(&plain, EXL2__PHASE_qkv, layer);
            memcpy(queries, p->query, (size_t)count * p->query_stride * sizeof *queries);
            run_phase(&coded, EXL2__PHASE_attend, layer);
            for (uint32_t i = 0; i < count; i++) {
                if (i % 3 == 0) {
                    check_keys(&plain, &coded, s, f, layer, position + i);
                }
                if (i == pass % 8 || i + 1 == count) {
                    check_row(&coded, s, a, f, layer, queries, i, position + i);
                }
            }
        }
        position += count;
    }
    free(queries);
    synth_model_close(&plain);
    synth_model_close(&coded);
}

static void test_models(void)
{
    for (uint32_t o = 0; o < EXL2__COUNT(all_ops); o++) {
        tested_ops = all_ops[o];
        worst_attend = worst_key = 0;
        for (uint32_t i = 0; runs(tested_ops) && i < 3 * EXL2__COUNT(shapes); i++) {
            check_attention(&shapes[i / 3], &attentions[(i + i / 3) % EXL2__COUNT(attentions)], i % 3);
        }
        if (runs(tested_ops)) {
            printf("%-9s attention off by %.1e of 8e-06; a group of K or V by %.2f steps\n", tested_ops->name,
                   worst_attend, worst_key);
            CHECK(worst_key > 0.2);
        }
    }
}

int main(int argc, char **argv)
{
    make_tasks_small();
    only_path = argc > 1 ? argv[1] : NULL;
    make_signs();
    test_written();
    test_special();
    test_operations();
    test_models();
    return check_done();
}
