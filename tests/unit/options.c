/* options.c: the choice among the layouts of ExLlamaV2's measurement.json: the exact optima of a file that ExLlamaV2
   wrote (tests/golden/convert), and all choices of small problems; files that are rejected. */
#define EXL2_CONVERT
#include "private/measurement.h"
#include "../check.h"

#include <math.h>

enum { LAYERS = 6, PARTS = 7, HIDDEN = 576, INNER = 1536, GROUP = 192, SLOTS = LAYERS * PARTS + 1 };

static exl2__ctx ctx;
static exl2__linear items[SLOTS];
static exl2__measure_matrix measured[SLOTS];
static uint8_t widths[SLOTS][INNER / 32];

/* The linears of the model that the file is of: six layers of SmolLM2. */
static exl2__linears make_linears(void)
{
    static const struct {
        const char *name;
        exl2__unit_kind kind;
        uint32_t part, in, out;
    } parts[PARTS] = {
        { "self_attn.q_proj", EXL2__UNIT_QKV, 0, HIDDEN, HIDDEN },
        { "self_attn.k_proj", EXL2__UNIT_QKV, 1, HIDDEN, GROUP },
        { "self_attn.v_proj", EXL2__UNIT_QKV, 2, HIDDEN, GROUP },
        { "self_attn.o_proj", EXL2__UNIT_OUT, 0, HIDDEN, HIDDEN },
        { "mlp.gate_proj", EXL2__UNIT_GATE_UP, 0, HIDDEN, INNER },
        { "mlp.up_proj", EXL2__UNIT_GATE_UP, 1, HIDDEN, INNER },
        { "mlp.down_proj", EXL2__UNIT_DOWN, 0, INNER, HIDDEN },
    };
    exl2__linears s = { .items = items, .count = SLOTS, .head_bits = 6, .gated = true };
    memset(items, 0, sizeof items);
    for (uint32_t i = 0; i + 1 < SLOTS; i++) {
        exl2__linear *linear = &items[i];
        uint32_t part = i % PARTS;
        linear->kind = parts[part].kind;
        linear->part = parts[part].part;
        linear->layer = i / PARTS;
        linear->in = parts[part].in;
        linear->out = linear->columns = parts[part].out;
        linear->measured = &measured[i];
        linear->widths = widths[i];
        snprintf(linear->name, sizeof linear->name, "model.layers.%u.%s", linear->layer, parts[part].name);
    }
    items[SLOTS - 1].layer = EXL2__LINEARS_NO_LAYER;
    return s;
}

static uint64_t linears_bits(const exl2__linears *s)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i + 1 < s->count; i++) {
        exl2__arena dry = { 0 };
        exl2__linear_codes codes;
        exl2__linear_codes_layout(s, &s->items[i], &codes, &dry);
        bits += exl2__linears_bits(&s->items[i], &codes);
    }
    return bits;
}

static exl2_result read_text(char *text, size_t bytes, exl2__linears *s, uint64_t budget)
{
    exl2__blob blob = { .data = text, .bytes = bytes };
    return exl2__measurement_read(&ctx, "measurement.json", &blob, s, 1, budget);
}

static double number_of(const exl2__json *j, uint32_t token)
{
    double value = 0;
    CHECK(exl2__json_f64(j, token, &value));
    return value;
}

static void test_golden(void)
{
    size_t bytes, golden_bytes;
    exl2__json j;
    char *text = check_read(EXL2_GOLDEN_DIR "/convert/measurement.json", &bytes);
    char *golden = check_read(EXL2_GOLDEN_DIR "/convert/measurement_golden.json", &golden_bytes);
    CHECK_INT(exl2__json_open(&ctx, "golden", golden, golden_bytes, &j), EXL2_OK);
    double weights = number_of(&j, exl2__json_get(&j, 0, "weights"));
    uint32_t all = exl2__json_get(&j, 0, "optimum"), rates = 0;
    for (uint32_t key = exl2__json_first(&j, all); key; key = exl2__json_next(&j, all, key), rates++) {
        exl2__linears s = make_linears();
        char rate[8] = { 0 };
        snprintf(rate, sizeof rate, "%.*s", (int)(j.tokens[key].end - j.tokens[key].begin),
                 golden + j.tokens[key].begin);
        double wanted = number_of(&j, exl2__json_get(&j, key + 1, "total_bits"));
        uint64_t budget = (uint64_t)(atof(rate) * weights);
        if (!CHECK_INT(read_text(text, bytes, &s, budget), EXL2_OK)) {
            printf("  %s\n", ctx.error.text);
            continue;
        }
        printf("%s bits per weight: %llu bits, wanted %.0f\n", rate, (unsigned long long)linears_bits(&s), wanted);
        CHECK(s.chosen && (double)linears_bits(&s) == wanted && linears_bits(&s) <= budget);
        CHECK(items[0].measured->share == 1);
    }
    CHECK_INT(rates, 5);
    exl2__json_close(&ctx, &j);
    free(golden);
    free(text);
}

/* ---- small problems ---- */

enum { MODULES = 4, CHOICES = 5 };

static uint64_t state = 7;

static uint32_t random_below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

/* Four modules of five choices: every choice is tried. Errors of the choices need not fall with the bits. */
static void test_small(void)
{
    static exl2__options_way ways[MODULES * EXL2__OPTIONS_WAYS], next[EXL2__OPTIONS_WAYS * EXL2__OPTIONS_MAX];
    for (uint32_t round = 0; round < 400; round++) {
        exl2__options_module modules[MODULES + 1] = { { 0 } };
        exl2__options_choice choices[MODULES * CHOICES];
        uint32_t kept[MODULES];
        exl2__options o = { .c = &ctx, .modules = modules, .choices = choices, .ways = ways, .next = next, .kept = kept,
                            .count = MODULES };
        uint64_t least = 0;
        for (uint32_t i = 0; i < MODULES; i++) {
            uint64_t fewest = UINT64_MAX;
            modules[i] = (exl2__options_module){ .first = i * CHOICES, .count = CHOICES };
            for (uint32_t k = 0; k < CHOICES; k++) {
                double error = 1.0 / (1 + random_below(1000));
                choices[i * CHOICES + k] = (exl2__options_choice){ 100 + random_below(100), error, 0 };
                fewest = exl2__min64(fewest, choices[i * CHOICES + k].bits);
            }
            least += fewest;
        }
        uint64_t budget = least + random_below(200), bits = 0;
        double best = 1e300, got = 0;
        for (uint32_t code = 0; code < 5 * 5 * 5 * 5; code++) {
            uint64_t sum = 0;
            double error = 0;
            for (uint32_t i = 0, rest = code; i < MODULES; i++, rest /= CHOICES) {
                sum += choices[i * CHOICES + rest % CHOICES].bits;
                error += choices[i * CHOICES + rest % CHOICES].error;
            }
            best = sum <= budget && error < best ? error : best;
        }
        exl2__options_choose(&o, budget);
        for (uint32_t i = 0; i < MODULES; i++) {
            bits += choices[i * CHOICES + modules[i].best].bits;
            got += choices[i * CHOICES + modules[i].best].error;
        }
        if (!CHECK(bits <= budget && fabs(got - best) < 1e-12)) {
            printf("  round %u: %.9f, the best is %.9f\n", round, got, best);
        }
    }
}

/* ---- what is rejected ---- */

static void check_rejected(const char *from, const char *to, double bpw, exl2_result code, const char *piece)
{
    size_t bytes;
    exl2__linears s = make_linears();
    char *text = check_read(EXL2_GOLDEN_DIR "/convert/measurement.json", &bytes), *at = strstr(text, from);
    if (CHECK(at != NULL && strlen(from) == strlen(to))) {
        memcpy(at, to, strlen(to));
    }
    CHECK_INT(read_text(text, bytes, &s, (uint64_t)(bpw * 21233664)), code);
    if (!CHECK(strstr(ctx.error.text, piece) != NULL)) {
        printf("  \"%s\" should hold \"%s\"\n", ctx.error.text, piece);
    }
    CHECK(!s.chosen);
    free(text);
}

static void test_rejected(void)
{
    check_rejected("layers.0", "layers.0", 2.0, EXL2_ERR_ARG, "its smallest layouts have");
    check_rejected("layers.5.mlp", "layers.6.mlp", 4, EXL2_ERR_ARG, "is of another model");
    check_rejected("\"total_bits\":1", "\"total_bits\":2", 4, EXL2_ERR_ARG, "is of another model");
    check_rejected("\"accuracy\":0", "\"accuracy\":5", 4, EXL2_ERR_FORMAT, "\"accuracy\" from 0 to 1");
    check_rejected("\"accuracy\"", "\"accurate\"", 4, EXL2_ERR_FORMAT, "\"accuracy\" from 0 to 1");
    check_rejected("[3,2]", "[2,3]", 4, EXL2_ERR_ARG, "is of another model"); /* rising widths */
    check_rejected("\"3\":64", "\"3\":60", 4, EXL2_ERR_ARG, "is of another model");
    check_rejected("\"bits_prop\":[0.05", "\"bits_prop\":[9.05", 4, EXL2_ERR_ARG, "is of another model");
    check_rejected("\"bits_prop\":[0.05,0.95", "\"bits_prop\":[0.05,0.15", 4, EXL2_ERR_ARG, "is of another model");
    exl2__linears s = make_linears();
    size_t bytes;
    char *text = check_read(EXL2_GOLDEN_DIR "/convert/measurement.json", &bytes);
    s.head_bits = 0;
    CHECK_INT(read_text(text, bytes, &s, 80000000), EXL2_ERR_ARG);
    CHECK(strstr(ctx.error.text, "set head_bits") != NULL);
    free(text);
}

int main(void)
{
    ctx.allocator = exl2__platform_allocator();
    test_golden();
    test_small();
    test_rejected();
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}
