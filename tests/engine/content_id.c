/* content_id.c: a model's content_id is the same on the CPU and on a GPU (the fake driver), also where the GPU gets
   matrices of codes as FP16 and the CPU does not; loaded at once or in slices, and by plain C; and it is another one
   when any tensor has another byte. Models are random, in all kinds of matrices, and those of tests/golden/models. */
#include "../device/fake_engine.h"
#include "../mixed_model.h"
#include "rig.h"

#define GPTQ ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":false," \
             "\"desc_act\":false,\"dynamic\":{\"+:.*\":{}}}"
#define AWQ ",\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemm\"," \
            "\"zero_point\":true}"

typedef struct way {
    exl2_backend backend;
    exl2_cpu_path path;
    bool slices;
} way;

/* How one bit of the folder is changed. */
static struct change {
    exl2_files files;
    uint64_t at; /* byte of a file of tensors; 0: none */
} change;

static int64_t read_changed(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    int64_t got = change.files.read(user, file, offset, dst, bytes);
    if (change.at >= offset && got > 0 && change.at - offset < (uint64_t)got && change.at > 0) {
        ((uint8_t *)dst)[change.at - offset] ^= 1;
    }
    return got;
}

/* Loads the model and gives its id. dequantized: matrices that the backend gets as FP16. */
static exl2_result load(const exl2_files *files, const char *path, way w, uint8_t id[16], uint32_t *dequantized)
{
    exl2_engine *e = NULL;
    exl2_error error;
    exl2_model m;
    exl2_model_info info = { 0 };
    machine_make();
    exl2_engine_desc d = machine_desc(w.backend, &error);
    d.cpu_path_max = w.path;
    d.files = *files;
    exl2_model_desc model = { .path = path, .context_max = 128 };
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    exl2_result result = w.slices ? exl2_model_open(e, &model, &m) : exl2_model_load(e, &model, &m);
    while (w.slices && (result = exl2_model_state(e, m)) == EXL2_PENDING) {
        exl2_event event;
        exl2_step(e, &(exl2_step_desc){ .cpu_us = 1 });
        while (exl2_next_event(e, &event)) {
        }
    }
    if (result == EXL2_OK) {
        CHECK_INT(exl2_model_get(e, m, &info), EXL2_OK);
    }
    memcpy(id, info.content_id, sizeof info.content_id);
    *dequantized = info.dequantized;
    exl2_close(e);
    machine_end();
    return result;
}

/* Returns the number of matrices that the GPU gets as FP16. */
static uint32_t check_ways(const exl2_files *files, const char *path, const char *what, uint8_t id[16])
{
    static const way ways[] = { { EXL2_BACKEND_CPU, EXL2_CPU_AUTO, true }, { EXL2_BACKEND_CPU, EXL2_CPU_C, false },
                                { EXL2_BACKEND_CUDA, EXL2_CPU_AUTO, false }, { EXL2_BACKEND_CUDA, EXL2_CPU_C, true } };
    static const uint8_t none[16];
    uint32_t dequantized;
    uint8_t other[16];
    CHECK_INT(load(files, path, (way){ EXL2_BACKEND_CPU, EXL2_CPU_AUTO, false }, id, &dequantized), EXL2_OK);
    CHECK_INT(dequantized, 0);
    CHECK(memcmp(id, none, 16) != 0);
    for (size_t i = 0; i < EXL2__COUNT(ways); i++) {
        CHECK_INT(load(files, path, ways[i], other, &dequantized), EXL2_OK);
        if (!CHECK(memcmp(id, other, 16) == 0)) {
            printf("  %s: another id, way %u\n", what, (unsigned)i);
        }
    }
    return dequantized;
}

/* In each tensor one bit of a byte near the end; the file's data begin at `data`. */
static void check_bits(const exl2_files *files, const char *path, const uint8_t *file, size_t bytes,
                       const uint8_t id[16])
{
    uint64_t data = 8 + exl2__load64(file);
    const char *text = (const char *)file + 8, *at = text;
    uint32_t count = 0;
    change.files = *files;
    exl2_files changed = *files;
    changed.read = read_changed;
    while ((at = strstr(at, "\"data_offsets\":[")) != NULL && at < text + data - 8) {
        unsigned long long begin = 0, end = 0;
        at += strlen("\"data_offsets\":[");
        CHECK_INT(sscanf(at, "%llu,%llu", &begin, &end), 2);
        change.at = data + begin + ((end - begin) * 7 / 8 & ~1ull); /* the lower byte of a half or of a word */
        CHECK(change.at < bytes);
        for (uint32_t i = 0; i < 2; i++) {
            uint8_t other[16];
            uint32_t dequantized;
            way w = { i ? EXL2_BACKEND_CUDA : EXL2_BACKEND_CPU, EXL2_CPU_AUTO, false };
            bool loaded = load(&changed, path, w, other, &dequantized) == EXL2_OK;
            if (!CHECK(!loaded || memcmp(id, other, 16) != 0)) {
                printf("  byte %llu does not change the id\n", (unsigned long long)change.at);
            }
            count += loaded;
        }
    }
    change.at = 0;
    CHECK(count >= 30);
}

int main(void)
{
    static const struct { const char *kinds[2], *config; bool experts; } cases[] = {
        { { "wwwwwww", "wwdwwwd" }, AWQ, false }, { { "dwwwdww", "wdwwwdw" }, AWQ, false },
        { { "ggggggg", "ggdgggd" }, GPTQ, false }, { { "dgggdgg", "gbggbgg" }, GPTQ, false },
        { { "aaaaaad", "aadaaaa" }, GPTQ, false }, { { "832d238", "d8g2a3d" }, GPTQ, false },
        { { "eeeeggg", "ggggeee" }, GPTQ, false }, { { "eedeged", "geggeea" }, GPTQ, false },
        { { "eedeeee", "eeeedde" }, "", false }, { { "ddddddd", "bbbbbbb" }, "", false },
        { { "ggggggdggggggggg", "aaaagegaaaaaaaaa" }, GPTQ, true },
    };
    static const char *const goldens[] = { "exl2-4bit", "exl2-mixed", "exl2-qwen3-moe", "gptq-phi3", "awq", "orion",
                                           "mixed-kinds", "qwen3", "starcoder2" };
    uint8_t id[16], before[16] = { 0 };
    uint32_t dequantized = 0;
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        static mixed_model x;
        memset(&x, 0, sizeof x);
        x.kinds[0] = cases[i].kinds[0];
        x.kinds[1] = cases[i].kinds[1];
        x.config = cases[i].config;
        x.experts = cases[i].experts;
        x.state = (uint32_t)i + 1;
        mixed_make(&x);
        exl2_files files = mixed_files(&x);
        dequantized += check_ways(&files, "mixed", x.kinds[1], id);
        CHECK(memcmp(id, before, 16) != 0);
        memcpy(before, id, 16);
        check_bits(&files, "mixed", x.file, x.file_bytes, id);
        mixed_free(&x);
    }
    CHECK(dequantized >= 40);
    exl2_files files = exl2__platform_files();
    for (size_t i = 0; i < EXL2__COUNT(goldens); i++) {
        check_ways(&files, rig_golden(goldens[i]), goldens[i], id);
        CHECK(memcmp(id, before, 16) != 0);
        memcpy(before, id, 16);
    }
    printf("the GPU got %u matrices of codes as FP16\n", (unsigned)dequantized);
    machine_drop_cache();
    return check_done();
}
