/* gguf.c: fuzz target: any bytes as a GGUF file, or after "PART" and a u32, the size of the first, as the two files of
   a model that is split. Runs the whole import, but writes nothing to the disk.
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -DTEST_WHOLE -I. -Ibuild/tests
   tests/fuzz/gguf.c -lm. The suite runs it with run_seeds.c. */
#define EXL2_CONVERT
#include "../memory_files.h"

#include "private/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Checks that tensors lie inside the file, in order; reads the first numbers of each. */
static void read_tensors(exl2__gguf *g)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const exl2__gguf_tensor *t = &g->tensors[i];
        uint8_t block[1024];
        float numbers[EXL2__GGUF_TYPES_ITEMS_MAX];
        require(t->offset >= end && t->bytes <= g->file_bytes && t->offset <= g->file_bytes - t->bytes);
        end = t->offset + t->bytes;
        if (i < 64 && t->type->read) {
            require(exl2__gguf_read(g, t->offset, block, t->type->bytes) == EXL2_OK);
            exl2__gguf_types_read(t->type, block, t->type->items, numbers);
        }
    }
}

/* Writes the files of the tokenizer into a writer that only counts bytes. */
static void write_text(exl2__gguf *g, const exl2__import_config *config)
{
    exl2__import_text text;
    exl2__write w;
    if (exl2__import_text_read(g, config->vocab, false, &text) == EXL2_OK && text.family) {
        require(exl2__write_open(g->ctx, NULL, &w) == EXL2_OK);
        exl2_result result = exl2__import_text_write_tokenizer(&w, &text);
        exl2__import_text_write_config(&w, &text, config->context);
        require(w.offset + w.used > 0 || result < 0);
        exl2__write_close(&w);
    }
    exl2__import_text_close(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static memory_files m;
    exl2__gguf g;
    memory_make(&m);
    m.c.host_bytes_max = (uint64_t)64 << 20;
    const char *path = size % 2 ? "folder/model-00001-of-00002.gguf" : "folder/model-00002-of-00002.gguf";
    if (size >= 8 && memcmp(data, "PART", 4) == 0) {
        size_t rest = size - 8, first = exl2__load32(data + 4) < rest ? exl2__load32(data + 4) : rest;
        memory_add(&m, "model-00001-of-00002.gguf", data + 8, first);
        memory_add(&m, "model-00002-of-00002.gguf", data + 8 + first, rest - first);
    } else {
        path = "folder/model.gguf";
        memory_add(&m, "model.gguf", data, size);
    }
    if (exl2__gguf_split_open(&m.c, path, &g) == EXL2_OK) {
        exl2__import_config config = { 0 };
        exl2__import_plan plan = { 0 };
        exl2__write w;
        config.bits = size % 2 ? EXL2__IMPORT_DENSE_BITS : 8;
        config.head_bits = 8;
        config.group = 32;
        read_tensors(&g);
        if (exl2__import_config_read(&g, &config) == EXL2_OK) {
            exl2__import_ids ids = { 1, 2, 3, 4, 5, 6 };
            write_text(&g, &config);
            exl2__import_plan_make(&g, &config, &plan);
            require(exl2__write_open(&m.c, NULL, &w) == EXL2_OK);
            exl2__import_config_write_model(&w, &config, &ids);
            require(exl2__write_close(&w) == EXL2_OK);
        }
        exl2__import_plan_close(&plan);
        exl2__gguf_close(&g);
    }
    memory_free(&m);
    require(check_failures == 0);
    return 0;
}
