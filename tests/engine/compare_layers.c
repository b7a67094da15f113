/* compare_layers.c: exl2_compare by layer, of one model, and with little memory: figures in float64 of layers.json; the
   divergence of a layer of B in A is that of a folder that has this layer's tensors from B; models that are read layer
   by layer have the same bits, in as many bytes as the message of BUDGET says; wrong arguments.
   takes: tests/golden.
   gives: exit code 0 or 1.
   owns:  a folder that it removes. */
#define _GNU_SOURCE /* mkdtemp */
#include "rig.h"

#include <stdlib.h>
#include <sys/stat.h>

#define TOKENS 48
#define LAYERS 8
#define PATH 600

static char root[300];

static void shell(const char *format, const char *a, const char *b)
{
    char command[2 * PATH + 32];
    snprintf(command, sizeof command, format, a, b);
    CHECK_INT(system(command), 0);
}

/* A copy of the model with bit 5 of every third number of projections flipped; of layer `only`, unless UINT32_MAX. */
static const char *changed(const char *name, uint32_t only, char out[PATH])
{
    char file[PATH + 32], layer[40];
    size_t bytes;
    exl2__json json;
    exl2__ctx c = { .allocator = exl2__platform_allocator() };
    snprintf(out, PATH, "%s/%s-%u", root, name, only);
    shell("cp -r '%s' '%s'", rig_golden(name), out);
    shell("chmod -R u+w '%s'%s", out, "");
    snprintf(file, sizeof file, "%s/model.safetensors", out);
    uint8_t *data = (uint8_t *)check_read(file, &bytes);
    uint64_t head;
    memcpy(&head, data, sizeof head);
    CHECK_INT(exl2__json_open(&c, file, (const char *)data + 8, (size_t)head, &json), EXL2_OK);
    snprintf(layer, sizeof layer, ".layers.%u.", only);
    for (uint32_t at = exl2__json_first(&json, 0); at; at = exl2__json_next(&json, 0, at)) {
        char tensor[200];
        double offsets[2] = { 0, 0 };
        tensor[exl2__json_text(&json, at, tensor, sizeof tensor - 1)] = 0; /* the key, whose value follows it */
        uint32_t list = exl2__json_get(&json, at + 1, "data_offsets"), item = list ? exl2__json_first(&json, list) : 0;
        for (uint32_t i = 0; i < 2 && item; i++, item = exl2__json_next(&json, list, item)) {
            exl2__json_f64(&json, item, &offsets[i]);
        }
        bool wanted = strstr(tensor, ".layers.") && strstr(tensor, "_proj.weight");
        if (wanted && (only == UINT32_MAX || strstr(tensor, layer))) {
            for (uint64_t i = (uint64_t)offsets[0]; i < (uint64_t)offsets[1]; i += 6) {
                data[8 + head + i] ^= 0x20;
            }
        }
    }
    FILE *f = fopen(file, "wb");
    if (CHECK(f != NULL)) {
        CHECK(fwrite(data, 1, bytes, f) == bytes);
        fclose(f);
    }
    exl2__json_close(&c, &json);
    free(data);
    return out;
}

typedef struct figures {
    exl2_result result;
    exl2_error error;
    exl2_compare_info info;
    exl2_compare_layer layers[LAYERS];
    float nll[TOKENS];
} figures;

static exl2_token tokens[TOKENS];
static uint32_t calls, cancel_at;

static bool on_progress(void *user, const char *stage, float done)
{
    float *last = (float *)user;
    CHECK(strcmp(stage, "compare") == 0 && done >= *last && done <= 1);
    *last = done;
    return ++calls != cancel_at;
}

/* b NULL: A alone. most: cap of memory. */
static figures compare(const char *a, const char *b, bool by_layer, uint32_t row, uint64_t most)
{
    static figures f;
    float last = 0;
    memset(&f, 0, sizeof f);
    calls = 0;
    exl2_compare_desc d = { .a_dir = a, .b_dir = b, .tokens = tokens, .token_count = TOKENS, .row = row, .nll = f.nll,
                            .layers = by_layer ? f.layers : NULL, .layer_max = LAYERS, .host_bytes_max = most,
                            .progress = on_progress, .user = &last, .error = &f.error };
    f.result = exl2_compare(&d, &f.info);
    CHECK(f.result < 0 || last >= 1);
    return f;
}

static bool same_bits(const figures *a, const figures *b)
{
    return memcmp(&a->info, &b->info, offsetof(exl2_compare_info, layers)) == 0 && a->info.layers == b->info.layers
        && memcmp(a->layers, b->layers, sizeof a->layers) == 0 && memcmp(a->nll, b->nll, sizeof a->nll) == 0;
}

static void check_golden(const char *b)
{
    rig_golden_file g;
    double wanted[TOKENS];
    rig_golden_open(EXL2_GOLDEN_DIR "/compare/layers.json", &g);
    CHECK_INT(rig_golden_ids(&g, exl2__json_get(&g.json, 0, "tokens"), tokens, TOKENS), TOKENS);
    char a[PATH];
    snprintf(a, sizeof a, "%s", rig_golden("smollm3"));
    figures f = compare(a, b, true, 24, 0);
    CHECK_INT(f.result, EXL2_OK);
    CHECK_INT(f.info.layers, 4);
    CHECK_INT(rig_golden_numbers(&g, exl2__json_get(&g.json, 0, "error"), wanted, LAYERS), 4);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(fabs(f.layers[i].error - wanted[i]) < 0.003 * wanted[i]);
    }
    CHECK_INT(rig_golden_numbers(&g, exl2__json_get(&g.json, 0, "kl"), wanted, LAYERS), 4);
    for (uint32_t i = 0; i < 4; i++) {
        printf("layer %u: error %.5f, KL %.6f, float64 %.6f\n", i, f.layers[i].error, f.layers[i].kl, wanted[i]);
        CHECK(fabs(f.layers[i].kl - wanted[i]) < 0.02 * wanted[i] + 1e-6);
    }
    CHECK_INT(rig_golden_numbers(&g, exl2__json_get(&g.json, 0, "nll"), wanted, TOKENS), TOKENS);
    for (uint32_t i = 0; i < TOKENS; i++) {
        CHECK(fabs((double)f.nll[i] - wanted[i]) < 0.02);
    }
    figures alone = compare(a, NULL, false, 24, 0);
    CHECK_INT(alone.result, EXL2_OK);
    CHECK(memcmp(alone.nll, f.nll, sizeof f.nll) == 0 && alone.info.layers == 0);
    CHECK(memcmp(&alone.info.nll_a, &f.info.nll_a, sizeof(double)) == 0 && alone.info.kl <= 0 && alone.info.top1 <= 0);
    rig_golden_close(&g);
}

/* The divergence of each layer is that of a folder in which only this layer is B's. */
static void check_swaps(const char *name)
{
    char a[PATH], b[PATH], mixed[PATH];
    snprintf(a, sizeof a, "%s", rig_golden(name));
    figures f = compare(a, changed(name, UINT32_MAX, b), true, 20, 0);
    CHECK_INT(f.result, EXL2_OK);
    for (uint32_t i = 0; i < f.info.layers; i++) {
        figures one = compare(a, changed(name, i, mixed), true, 20, 0);
        CHECK_INT(one.result, EXL2_OK);
        CHECK(f.layers[i].kl > 0 && memcmp(&one.info.kl, &f.layers[i].kl, sizeof(double)) == 0);
        for (uint32_t k = 0; k < i; k++) { /* what lies before it is A's */
            CHECK(one.layers[k].error <= 0 && one.layers[k].kl <= 0);
        }
    }
    figures itself = compare(a, a, true, 20, 0);
    CHECK(itself.info.kl < 1e-12 && itself.layers[0].error <= 0 && itself.layers[f.info.layers - 1].kl < 1e-12);
    CHECK(itself.info.top1 >= 1);
}

/* Bytes that the message of BUDGET asks for. */
static uint64_t needs_of(const figures *f)
{
    const char *at = strstr(f->error.text, "layer by layer needs ");
    return CHECK_INT(f->result, EXL2_ERR_BUDGET) && CHECK(at != NULL) ? strtoull(at + 21, NULL, 10) : 1;
}

/* With less and less memory: the same bits, until one sequence has no room. */
static void check_memory(const char *name, bool two, bool by_layer)
{
    char a[PATH], b[PATH];
    snprintf(a, sizeof a, "%s", rig_golden(name));
    const char *other = two ? changed(name, 1, b) : NULL;
    figures whole = compare(a, other, by_layer, 10, 0), low = { 0 };
    CHECK(whole.result == EXL2_OK && !whole.info.streamed);
    low.result = EXL2_ERR_BUDGET;
    uint64_t least = 1 << 14;
    while (low.result == EXL2_ERR_BUDGET && !strstr(low.error.text, "layer by layer")) { /* headers have room */
        least += 1 << 14;
        low = compare(a, other, by_layer, 10, least);
    }
    uint64_t needs = low.result < 0 ? needs_of(&low) : least;
    low = compare(a, other, by_layer, 10, needs - 1);
    CHECK_INT(needs_of(&low), needs);
    uint32_t streamed = 0, loaded = 0;
    for (uint64_t most = needs; most < needs * 4; most += needs / 24) {
        figures f = compare(a, other, by_layer, 10, most);
        CHECK_INT(f.result, EXL2_OK);
        CHECK(same_bits(&whole, &f));
        streamed += f.info.streamed;
        loaded += !f.info.streamed;
    }
    printf("%s: %llu bytes, %u of %u caps read it by layer\n", name, (unsigned long long)needs, streamed,
           streamed + loaded);
    CHECK(streamed > 0 && loaded > 0);
}

static void check_wrong(const char *b)
{
    static const exl2_token one[1] = { 5 };
    static exl2_compare_layer layers[LAYERS];
    exl2_compare_info info;
    exl2_error error;
    char a[PATH];
    snprintf(a, sizeof a, "%s", rig_golden("smollm3"));
    const exl2_compare_desc good = { .a_dir = a, .b_dir = b, .tokens = one, .token_count = 1, .layers = layers,
                                     .layer_max = 4, .error = &error };
    CHECK_INT(exl2_compare(&good, &info), EXL2_OK);
    exl2_compare_desc d = good;
    d.layer_max = 3;
    CHECK_INT(exl2_compare(&d, &info), EXL2_ERR_TOO_SMALL);
    CHECK(strstr(error.text, "has 4 layers, but layer_max is 3") != NULL);
    d = good;
    d.b_dir = NULL;
    CHECK_INT(exl2_compare(&d, &info), EXL2_ERR_ARG);
    CHECK(strstr(error.text, "layers needs two models") != NULL);
    d = good;
    char other[PATH];
    snprintf(other, sizeof other, "%s", rig_golden("qwen3"));
    d.b_dir = other;
    CHECK_INT(exl2_compare(&d, &info), EXL2_ERR_ARG);
    CHECK(strstr(error.text, "cannot replace each other") != NULL);
    d.layers = NULL;
    CHECK_INT(exl2_compare(&d, &info), EXL2_OK);
    for (cancel_at = 1; cancel_at < 8; cancel_at++) {
        CHECK_INT(compare(a, b, true, 24, 0).result, EXL2_ERR_CANCELLED);
    }
    cancel_at = 0;
}

int main(void)
{
    char b[PATH];
    snprintf(root, sizeof root, "%s/exl2-layers-XXXXXX", check_env("TMPDIR") ? check_env("TMPDIR") : "/tmp");
    if (!CHECK(mkdtemp(root) != NULL)) {
        return check_done();
    }
    changed("smollm3", UINT32_MAX, b);
    check_golden(b);
    check_swaps("gemma2");
    check_swaps("qwen3");
    check_memory("smollm3", true, true);
    check_memory("smollm3", true, false);
    check_memory("gemma2", false, false);
    check_wrong(b);
    shell("rm -rf '%s'%s", root, "");
    return check_done();
}
