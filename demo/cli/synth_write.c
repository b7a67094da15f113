/* synth_write.c: see synth_write.h.
   takes: a plan.
   gives: what synth_write.h declares.
   owns:  the files that it makes, until they are complete. */
#define _POSIX_C_SOURCE 200809L
#include "synth_write.h"

#include "../common/folder.h"
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "../common/memory.h"
#include "../common/progress.h"
#include "../common/text_file.h"
#include "synth_fill.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARD_BYTES_MAX ((uint64_t)4 << 30)
#define INDEX_NAME "output.safetensors.index.json"
#define CONFIG_NAME "config.json"
#define PICTURES_NAME "preprocessor_config.json"
#define ADAPTER_CONFIG_NAME "adapter_config.json"

typedef struct writer {
    const synth_plan *plan;
    const char *folder;
    uint32_t *first; /* [shards + 1] index of the first tensor of each shard */
    uint32_t shards;
    uint64_t total, done; /* bytes of the shards */
    FILE *file;           /* the shard being written */
    progress bar;
    bool made_folder;
} writer;

static void file_path(const writer *w, const char *name, char path[4096])
{
    snprintf(path, 4096, "%s/%s", w->folder, name);
}

static void shard_name(const writer *w, uint32_t shard, char name[64])
{
    if (w->plan->rank) {
        snprintf(name, 64, "adapter_model.safetensors");
    } else if (w->shards == 1) {
        snprintf(name, 64, "output.safetensors");
    } else {
        snprintf(name, 64, "output-%05u-of-%05u.safetensors", shard + 1, w->shards);
    }
}

/* Appends bytes to the shard. false: write error, or Ctrl-C. */
static bool put(void *user, const void *data, size_t bytes)
{
    writer *w = user;
    if (interrupted() || fwrite(data, 1, bytes, w->file) != bytes) {
        return false;
    }
    w->done += bytes;
    progress_show_stage(&w->bar, (double)w->done / (double)w->total, "writing");
    return true;
}

/* Writes the header: its length, then {"name": {"dtype", "shape", "data_offsets"}, ...} with spaces up to a multiple
   of 8. */
static bool put_header(writer *w, uint32_t first, uint32_t end)
{
    char *text = NULL;
    size_t used = 0, cap = 0;
    uint64_t offset = 0;
    for (uint32_t i = first; i < end; i++) {
        const synth_tensor *t = &w->plan->tensors[i];
        unsigned long long begin = offset, stop = offset + t->bytes;
        char shape[128] = "[";
        for (uint32_t k = 0; k < sizeof t->shape / sizeof t->shape[0] && t->shape[k]; k++) {
            size_t at = strlen(shape);
            snprintf(shape + at, sizeof shape - at, "%s%llu", k ? ", " : "", (unsigned long long)t->shape[k]);
        }
        if (used + 512 > cap) {
            cap = cap ? cap * 2 : 1 << 16;
            text = memory_grow(text, cap, 1);
        }
        used += (size_t)snprintf(text + used, cap - used,
                                 "%s\"%s\": {\"dtype\": \"%s\", \"shape\": %s], \"data_offsets\": [%llu, %llu]}",
                                 i == first ? "{" : ", ", t->name, t->dtype, shape, begin, stop);
        offset += t->bytes;
    }
    text[used++] = '}';
    while (used % 8) {
        text[used++] = ' ';
    }
    uint8_t length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)((uint64_t)used >> (8 * i));
    }
    w->total += used + 8;
    bool good = put(w, length, 8) && put(w, text, used);
    free(text);
    return good;
}

static bool write_shard(writer *w, uint32_t shard)
{
    char name[64], path[4096];
    shard_name(w, shard, name);
    file_path(w, name, path);
    w->file = text_file_open(path, "wb");
    bool good = w->file && put_header(w, w->first[shard], w->first[shard + 1]);
    for (uint32_t i = w->first[shard]; good && i < w->first[shard + 1]; i++) {
        good = synth_fill_tensor(&w->plan->tensors[i], put, w);
    }
    int code = errno;
    if (w->file && fclose(w->file) != 0 && good) {
        code = errno;
        good = false;
    }
    if (!good) {
        progress_end(&w->bar);
        fprintf(stderr, "%s: %s\n", path, interrupted() ? "interrupted" : strerror(code));
    }
    return good;
}

/* How the matrices are stored; dense models have no such member. */
static void put_quantization(const synth_plan *p, json_out *j)
{
    json_out_object(j, "quantization_config");
    json_out_string(j, "quant_method", synth_format_name(p->format));
    if (p->format == SYNTH_EXL2) {
        json_out_string(j, "version", "0.3.2");
        json_out_number(j, "bits", p->bpw);
        json_out_uint(j, "head_bits", 6);
        json_out_object(j, "calibration");
        json_out_uint(j, "rows", 0);
        json_out_uint(j, "length", 0);
        json_out_string(j, "dataset", "(synthetic)");
        json_out_end(j);
    } else if (p->format == SYNTH_EXL3) {
        static const char *const names[SYNTH_CODEBOOKS] = { "mul1", "mcg", "3inst" };
        json_out_string(j, "version", "1.6.5");
        json_out_number(j, "bits", p->bpw);
        json_out_uint(j, "head_bits", 6);
        json_out_string(j, "codebook", names[p->codebook]);
    } else {
        json_out_uint(j, "bits", (uint64_t)p->bpw);
        json_out_uint(j, "group_size", synth_group_rows(&p->shape));
        json_out_bool(j, "lm_head", true);
    }
    if (p->format == SYNTH_GPTQ) {
        json_out_bool(j, "desc_act", false);
        json_out_string(j, "checkpoint_format", "gptq");
    } else if (p->format == SYNTH_AWQ) {
        json_out_bool(j, "zero_point", true);
        json_out_string(j, "version", "gemm");
    }
    json_out_end(j);
}

/* The members of config.json that say what the text model is. */
static void put_text(const synth_shape *s, json_out *j)
{
    const synth_family *f = s->family;
    json_out_uint(j, "hidden_size", s->hidden);
    json_out_uint(j, "intermediate_size", s->inter);
    json_out_uint(j, "num_hidden_layers", s->layers);
    json_out_uint(j, "num_attention_heads", s->heads);
    json_out_uint(j, "num_key_value_heads", s->kv_heads);
    json_out_uint(j, "head_dim", s->head_dim);
    json_out_uint(j, "vocab_size", s->vocab);
    json_out_number(j, "rms_norm_eps", 1e-5);
    json_out_number(j, "rope_theta", s->rope_theta);
    json_out_uint(j, "max_position_embeddings", 8192);
    json_out_string(j, "hidden_act", f->activation);
    json_out_bool(j, "tie_word_embeddings", f->tied);
    json_out_uint(j, "bos_token_id", 1);
    json_out_uint(j, "eos_token_id", 2);
    if (s->experts) {
        json_out_uint(j, f->experts_key, s->experts);
        json_out_uint(j, "num_experts_per_tok", s->active);
    }
    if (f->members) {
        fprintf(j->file, ", %s", f->members);
    }
}

static void put_config(const synth_plan *p, json_out *j)
{
    const synth_shape *s = &p->shape;
    const synth_tower *t = s->tower;
    json_out_object(j, NULL);
    json_out_array(j, "architectures");
    json_out_string(j, NULL, t ? t->architecture : s->family->architecture);
    json_out_end(j);
    json_out_string(j, "model_type", t ? t->model_type : s->family->model_type);
    json_out_string(j, "torch_dtype", "float16");
    if (t) {
        fprintf(j->file, ", %s", t->members);
    }
    if (t && !t->flat) {
        json_out_bool(j, "tie_word_embeddings", s->family->tied);
        json_out_object(j, "text_config");
        json_out_string(j, "model_type", s->family->model_type);
    }
    put_text(s, j);
    if (t && !t->flat) {
        json_out_end(j);
    }
    if (p->format != SYNTH_DENSE) {
        put_quantization(p, j);
    }
    json_out_end(j);
}

static void put_adapter_config(const synth_plan *p, json_out *j)
{
    json_out_object(j, NULL);
    json_out_string(j, "peft_type", "LORA");
    json_out_uint(j, "r", p->rank);
    json_out_uint(j, "lora_alpha", p->rank);
    json_out_string(j, "bias", "none");
    json_out_string(j, "target_modules", "all-linear");
    json_out_end(j);
}

static void put_index(const writer *w, json_out *j)
{
    json_out_object(j, NULL);
    json_out_object(j, "metadata");
    json_out_uint(j, "total_size", w->done);
    json_out_end(j);
    json_out_object(j, "weight_map");
    for (uint32_t shard = 0; shard < w->shards; shard++) {
        char name[64];
        shard_name(w, shard, name);
        for (uint32_t i = w->first[shard]; i < w->first[shard + 1]; i++) {
            json_out_string(j, w->plan->tensors[i].name, name);
        }
    }
    json_out_end(j);
    json_out_end(j);
}

static bool write_json(const writer *w, const char *name)
{
    char path[4096];
    file_path(w, name, path);
    FILE *file = text_file_open(path, "wb");
    bool good = file != NULL;
    if (good) {
        json_out j = { .file = file };
        if (strcmp(name, INDEX_NAME) == 0) {
            put_index(w, &j);
        } else if (strcmp(name, PICTURES_NAME) == 0) {
            fputs(w->plan->shape.tower->preprocessor, file);
        } else if (w->plan->rank) {
            put_adapter_config(w->plan, &j);
        } else {
            put_config(w->plan, &j);
        }
        good = !ferror(file);
        good = fclose(file) == 0 && good;
    }
    if (!good) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    }
    return good;
}

static bool make_folder(writer *w)
{
    w->made_folder = folder_make(w->folder);
    if (!w->made_folder && errno != EEXIST) {
        fprintf(stderr, "%s: %s\n", w->folder, strerror(errno));
        return false;
    }
    if (!w->made_folder && !folder_is_empty(w->folder)) {
        fprintf(stderr, "%s is not an empty folder; choose another one or remove it first\n", w->folder);
        return false;
    }
    return true;
}

static void remove_file(const writer *w, const char *name)
{
    char path[4096];
    file_path(w, name, path);
    folder_remove_file(path);
}

static const char *config_name(const writer *w)
{
    return w->plan->rank ? ADAPTER_CONFIG_NAME : CONFIG_NAME;
}

static void remove_all(const writer *w)
{
    for (uint32_t shard = 0; shard < w->shards; shard++) {
        char name[64];
        shard_name(w, shard, name);
        remove_file(w, name);
    }
    remove_file(w, INDEX_NAME);
    remove_file(w, config_name(w));
    remove_file(w, PICTURES_NAME);
    if (w->made_folder) {
        folder_remove(w->folder);
    }
}

/* Fills a shard with tensors until the next tensor would exceed the limit. */
static void divide(writer *w)
{
    const synth_plan *p = w->plan;
    uint64_t in_shard = 0;
    w->first = memory_take((size_t)p->count + 1, sizeof *w->first);
    for (uint32_t i = 0; i < p->count; i++) {
        if (in_shard + p->tensors[i].bytes > SHARD_BYTES_MAX && !p->rank) { /* an adapter has one file */
            w->first[++w->shards] = i;
            in_shard = 0;
        }
        in_shard += p->tensors[i].bytes;
        w->total += p->tensors[i].bytes;
    }
    w->first[++w->shards] = p->count;
}

bool synth_write(const synth_plan *p, const char *folder, uint64_t *file_bytes)
{
    writer w = { .plan = p, .folder = folder };
    if (!make_folder(&w)) {
        return false;
    }
    divide(&w);
    bool good = true;
    for (uint32_t shard = 0; good && shard < w.shards; shard++) {
        good = write_shard(&w, shard);
    }
    progress_end(&w.bar);
    bool pictures = p->shape.tower && !p->rank;
    good = good && (w.shards == 1 || write_json(&w, INDEX_NAME)) && (!pictures || write_json(&w, PICTURES_NAME));
    good = good && write_json(&w, config_name(&w));
    if (!good) {
        remove_all(&w);
    }
    *file_bytes = w.done;
    free(w.first);
    return good;
}
