/* measurement.c: fuzz target: what a conversion reads besides the model: measurement.json, ids for calibration, and
   files of the work folder. Bytes that begin with '{' are a measurement, those with '[' ids, others a file of the work
   folder. What is accepted must be what a conversion can go on with.
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -DTEST_WHOLE -I. -Ibuild
   -Ibuild/tests tests/fuzz/measurement.c -lm. The suite runs it with run_seeds.c. */
#define EXL2_CONVERT
#include "../memory_files.h"

#include "private/convert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { IN = 64, OUT = 32, CELLS = EXL2__LOSSES_WIDTHS * (IN / 32), VOCAB = 100 };

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Two matrices and a head. What was read must be numbers that an allocation can work on. */
static void read_measurement(exl2__ctx *c, const uint8_t *data, size_t size)
{
    exl2__linear items[3] = { { .in = IN, .out = OUT, .columns = OUT }, { .in = IN, .out = OUT, .columns = OUT } };
    exl2__measure_matrix measured[2] = { { 0 } };
    double losses[2][CELLS] = { { 0 } };
    uint8_t widths[2][IN / 32] = { { 0 } };
    exl2__linears linears = { .items = items, .count = 3, .head_bits = 6, .gated = true };
    exl2__blob blob = { .data = (char *)(uintptr_t)data, .bytes = size };
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(items[i].name, sizeof items[i].name, "model.layers.0.mlp.%s", i ? "up_proj" : "gate_proj");
        items[i].kind = EXL2__UNIT_GATE_UP;
        items[i].part = i;
        items[i].measured = &measured[i];
        items[i].losses = losses[i];
        items[i].widths = widths[i];
    }
    uint64_t budget = 5 * 2 * IN * OUT;
    exl2_result result = exl2__measurement_read(c, "measurement.json", &blob, &linears, 0x12345678u, budget);
    if (result == EXL2_OK && linears.chosen) { /* ExLlamaV2's: the widths are given */
        uint64_t bits = 0;
        for (uint32_t i = 0; i < 2; i++) {
            exl2__arena dry = { 0 };
            exl2__linear_codes codes;
            exl2__linear_codes_layout(&linears, &items[i], &codes, &dry);
            bits += exl2__linears_bits(&items[i], &codes);
            require(widths[i][0] < EXL2__LOSSES_WIDTHS && widths[i][1] <= widths[i][0]);
        }
        require(bits <= budget);
    } else if (result == EXL2_OK) {
        exl2__allocate_linear all[2];
        for (uint32_t i = 0; i < 2; i++) {
            for (uint32_t k = 0; k < CELLS; k++) {
                require(losses[i][k] >= 0 && losses[i][k] < 1e39);
            }
            require(measured[i].sensitivity >= 0 && measured[i].share >= 0 && measured[i].sensitivity < 1e39);
            all[i] = (exl2__allocate_linear){ IN, OUT, false, losses[i], widths[i] };
        }
        require(exl2__allocate_run(c, all, 2, budget) == EXL2_OK);
        require(exl2__allocate_bits(&all[0]) + exl2__allocate_bits(&all[1]) <= budget);
    }
}

static void read_ids(exl2__ctx *c, const uint8_t *data, size_t size)
{
    exl2__texts t = { .c = c };
    exl2__blob blob = { .data = (char *)(uintptr_t)data, .bytes = size };
    if (exl2__texts_add_json(&t, "ids.json", &blob, VOCAB) == EXL2_OK) {
        for (uint64_t i = 0; i < t.count; i++) {
            require(t.ids[i] >= 0 && t.ids[i] < VOCAB);
        }
    }
    exl2__texts_close(&t);
}

/* A file of the work folder is whole, or counts as one that is not there. */
static void read_kept(exl2__ctx *c, const uint8_t *data)
{
    exl2__workdir w = { .c = c, .dir = "folder" };
    uint32_t first[2] = { 0 };
    uint8_t second[5] = { 0 };
    exl2__workdir_piece pieces[2] = { { first, sizeof first }, { second, sizeof second } };
    bool found = false;
    if (exl2__workdir_load(&w, "layer-0.losses", pieces, 2, &found) == EXL2_OK && found) {
        uint64_t hashes[2] = { exl2__workdir_hash(0xCBF29CE484222325u, first, sizeof first),
                               exl2__workdir_hash(0xCBF29CE484222325u, second, sizeof second) };
        require(exl2__workdir_hash(0xCBF29CE484222325u, hashes, sizeof hashes) == exl2__load64(data + 16));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static memory_files m;
    memory_make(&m);
    m.c.host_bytes_max = (uint64_t)64 << 20;
    memory_add(&m, "layer-0.losses", data, size);
    if (size > 0 && data[0] == '{') {
        read_measurement(&m.c, data, size);
    } else if (size > 0 && data[0] == '[') {
        read_ids(&m.c, data, size);
    } else {
        read_kept(&m.c, data);
    }
    require(m.c.host_bytes == 0);
    memory_free(&m);
    require(check_failures == 0);
    return 0;
}
