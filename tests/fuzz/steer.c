/* steer.c: fuzz target: control vectors for a model of 4 layers and 6 values. Any bytes are a GGUF file, and, if they
   do not begin with GGUF, a safetensors file. What is accepted has finite values and at least one vector.
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -DTEST_WHOLE -I. -Ibuild/tests
   tests/fuzz/steer.c -lm. The suite runs it with run_seeds.c. */
#include "../memory_files.h"

#include "private/steer_file.h"

#include <math.h>

#define LAYERS 4u
#define HIDDEN 6u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static void read_as(const char *name, const uint8_t *data, size_t size)
{
    static memory_files m;
    float *values = (float *)malloc(LAYERS * HIDDEN * sizeof *values); /* ASan sees a byte more */
    bool *has = (bool *)malloc(LAYERS * sizeof *has);
    char path[64];
    exl2__steer_file f = { values, has, LAYERS, HIDDEN };
    memory_make(&m);
    m.c.host_bytes_max = (uint64_t)64 << 20;
    memory_add(&m, name, data, size);
    snprintf(path, sizeof path, "folder/%s", name);
    exl2_result r = exl2__steer_file_read(&m.c, path, &f);
    uint32_t vectors = 0;
    for (uint32_t i = 0; r == EXL2_OK && i < LAYERS; i++) {
        for (uint32_t k = 0; has[i] && k < HIDDEN; k++) {
            require(isfinite(values[i * HIDDEN + k]));
        }
        vectors += has[i];
    }
    require(r == EXL2_OK ? vectors > 0 : r < 0 && strlen(m.c.error.text) > 10);
    require(m.open_files == 0 && m.c.host_bytes == 0);
    memory_free(&m);
    free(values);
    free(has);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_as("v.gguf", data, size);
    if (size < 4 || memcmp(data, "GGUF", 4) != 0) {
        read_as("v.safetensors", data, size);
    }
    require(check_failures == 0);
    return 0;
}
