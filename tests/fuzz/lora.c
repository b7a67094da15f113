/* lora.c: fuzz target: adapters in peft's format for a small model. Bytes that begin with '{' are adapter_config.json
   beside good tensors, others are adapter_model.safetensors beside a good config. All numbers of what is accepted are
   read.
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -DTEST_WHOLE -I. -Ibuild/tests
   tests/fuzz/lora.c -lm. The suite runs it with run_seeds.c. */
#include "../memory_files.h"

#include "private/lora_match.h"
#include "private/model_config_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NAME "base_model.model.model.layers.0.mlp.down_proj.lora_"

static const char base[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":64,\"hidden_size\":32,"
    "\"intermediate_size\":48,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"rms_norm_eps\":1e-5}";
static const char config[] = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"down_proj\"]}";
static const char header[] = "{\"" NAME "A.weight\":{\"dtype\":\"F16\",\"shape\":[2,48],\"data_offsets\":[0,192]},"
    "\"" NAME "B.weight\":{\"dtype\":\"F16\",\"shape\":[32,2],\"data_offsets\":[192,320]}}";

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

/* The numbers of a tensor with the dims that the reader has accepted. */
static void read_numbers(memory_files *m, const exl2__lora_files *files, const exl2__tensor *t, uint64_t rows,
                         uint64_t columns)
{
    static float row[65536];
    require(t->dims[0] == rows && t->dims[1] == columns && columns <= EXL2__COUNT(row));
    for (uint64_t i = 0; i < rows; i++) {
        if (exl2__tensor_floats_range(&m->c, &files->tensors, t, i * columns, (uint32_t)columns, row) < 0) {
            return; /* NaN, or past the end of the file */
        }
    }
}

static void check_parts(memory_files *m, const exl2__lora_files *files, const exl2__unit *u)
{
    exl2__lora_part parts[3];
    require(exl2__lora_unit(&m->c, files, u, parts) == EXL2_OK);
    for (uint32_t i = 0; i < u->count; i++) {
        const exl2__lora_pair *pair = parts[i].pair;
        if (pair) {
            require(pair->rank >= 1 && pair->rank <= EXL2__LORA_RANK_MAX && isfinite(pair->factor));
            read_numbers(m, files, pair->a, pair->rank, u->in);
            read_numbers(m, files, pair->b, u->out[i], pair->rank);
        }
    }
}

static exl2_result read_adapter(memory_files *m, const exl2__config *k, exl2__lora_files *files)
{
    exl2__lora_files_reader r;
    exl2__lora_matcher matcher = { 0 };
    exl2__work work;
    exl2_result result;
    exl2__lora_files_read_begin(&r, &m->c, "folder", k->arch.renames, true, files);
    do {
        work = exl2__work_slice();
        result = exl2__lora_files_read_slice(&r, &work);
    } while (result == EXL2_PENDING);
    exl2__lora_files_read_end(&r);
    work = exl2__work_all();
    return result < 0 ? result : exl2__lora_match_slice(&m->c, files, k, &matcher, &work);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static memory_files m;
    static exl2__config k;
    uint8_t good[8 + sizeof header - 1 + 320] = { (sizeof header - 1) & 255, (sizeof header - 1) >> 8 };
    exl2__lora_files files;
    bool of_config = size && data[0] == '{';
    memcpy(good + 8, header, sizeof header - 1);
    memory_make(&m);
    m.c.host_bytes_max = (uint64_t)64 << 20;
    memory_add_text(&m, "config.json", base);
    require(exl2__config_read(&m.c, "folder", &k) == EXL2_OK);
    if (of_config) {
        memory_add(&m, "adapter_config.json", data, size);
    } else {
        memory_add_text(&m, "adapter_config.json", config);
    }
    memory_add(&m, EXL2__LORA_FILE, of_config ? good : data, of_config ? sizeof good : size);
    exl2_result result = read_adapter(&m, &k, &files);
    require((result < 0) == (m.c.error.text[0] != 0));
    require(result == EXL2_OK || result == EXL2_ERR_FORMAT || result == EXL2_ERR_UNSUPPORTED || result == EXL2_ERR_IO
            || result == EXL2_ERR_BUDGET);
    for (uint32_t i = 0, count = exl2__unit_count(&k, true); i < count && result == EXL2_OK; i++) {
        exl2__unit u;
        exl2__unit_make(&k, i, &u);
        if (!u.table) {
            check_parts(&m, &files, &u);
        }
    }
    exl2__lora_files_close(&m.c, &files);
    require(m.open_files == 0 && m.c.host_bytes == 0);
    memory_free(&m);
    return 0;
}
