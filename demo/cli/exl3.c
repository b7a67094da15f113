/* exl3.c: see exl3.h.
   takes: *.safetensors and config.json of a folder.
   gives: what exl3.h declares.
   owns:  one header, while it is read. */
#include "exl3.h"

#include "../common/folder.h"
#include "../common/json_in.h"
#include "../common/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX ((uint64_t)100 << 20)
#define CONFIG_MAX ((size_t)16 << 20)

typedef struct reader {
    const char *folder;
    exl3_summary *out;
    bool failed;
} reader;

static bool ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), wanted = strlen(end);
    return bytes >= wanted && strcmp(text + bytes - wanted, end) == 0;
}

/* Dimension `index` of a tensor, or 0. */
static uint64_t dimension(const json_value *tensor, uint32_t index)
{
    const json_value *shape = json_member(tensor, "shape");
    const json_value *one = shape ? shape->child : NULL;
    for (; one && index > 0; index--) {
        one = one->next;
    }
    return one && one->kind == JSON_NUMBER && one->number > 0 && one->number < 1e12 ? (uint64_t)one->number : 0;
}

/* The tensor "<key>.<part>" of the same file. */
static const json_value *part_of(const json_value *header, const char *key, size_t key_bytes, const char *part)
{
    char name[512];
    snprintf(name, sizeof name, "%.*s.%s", (int)key_bytes, key, part);
    return json_member(header, name);
}

static void add_matrix(exl3_summary *s, const json_value *header, const char *name, const json_value *trellis)
{
    size_t key = strlen(name) - strlen(".trellis");
    uint64_t a = dimension(trellis, 0), b = dimension(trellis, 1), words = dimension(trellis, 2);
    if (words == 0) { /* an embedding: [rows, groups (1 + 16 K)] with signs [groups, 256] */
        const json_value *signs = part_of(header, name, key, "signs");
        uint64_t groups = signs ? dimension(signs, 0) : 0;
        s->embedding = (exl3_bits){ a * b * 16 + groups * 4096, a * groups * 256 };
        return;
    }
    exl3_bits *sum = strstr(name, "lm_head.") ? &s->head : &s->layers;
    bool mcg = part_of(header, name, key, "mcg") != NULL, mul1 = part_of(header, name, key, "mul1") != NULL;
    sum->bits += a * b * words * 16 + (a + b) * 16 * 16;
    sum->weights += a * b * 256;
    s->rates[words / 8 <= 16 ? words / 8 : 16]++;
    s->codebooks[mcg ? 1 : mul1 ? 2 : 0]++;
    s->matrices++;
}

/* Is it a matrix of another kind: of two dimensions, but no embedding and no copy beside a trellis? */
static bool is_other(const json_value *header, const json_value *tensor)
{
    const char *name = tensor->key;
    bool dense = ends_with(name, ".weight") && dimension(tensor, 1) > 0 && !strstr(name, "embed");
    size_t key = strlen(name) - strlen(".weight");
    return (dense && !part_of(header, name, key, "trellis")) || ends_with(name, ".q_weight") ||
           ends_with(name, ".qweight");
}

static void add_file(reader *r, const json_value *header)
{
    for (const json_value *tensor = header->child; tensor; tensor = tensor->next) {
        if (ends_with(tensor->key, ".trellis")) {
            add_matrix(r->out, header, tensor->key, tensor);
        } else if (is_other(header, tensor)) {
            uint32_t n = r->out->other_count++;
            if (n < EXL3_OTHERS) {
                snprintf(r->out->others[n], sizeof r->out->others[n], "%s", tensor->key);
            }
        }
    }
}

static void read_file(void *user, const char *name)
{
    reader *r = user;
    char path[4096];
    uint8_t prefix[8];
    const char *error = NULL;
    if (!ends_with(name, ".safetensors") || name[0] == '.') {
        return;
    }
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    FILE *file = text_file_open(path, "rb");
    uint64_t bytes = 0;
    char *text = NULL;
    if (file && fread(prefix, 1, sizeof prefix, file) == sizeof prefix) {
        for (int i = 0; i < 8; i++) {
            bytes |= (uint64_t)prefix[i] << (8 * i);
        }
        text = bytes <= HEADER_MAX ? malloc((size_t)bytes + 1) : NULL;
    }
    json_value *header = NULL;
    if (text && fread(text, 1, (size_t)bytes, file) == bytes) {
        header = json_read(text, (size_t)bytes, &error);
    }
    r->failed = r->failed || !header || header->kind != JSON_OBJECT;
    if (header && header->kind == JSON_OBJECT) {
        add_file(r, header);
    }
    json_free(header);
    free(text);
    if (file) {
        fclose(file);
    }
}

static void copy_value(const json_value *object, const char *key, char *out, size_t cap)
{
    const json_value *value = object ? json_member(object, key) : NULL;
    if (value && value->kind == JSON_TEXT) {
        snprintf(out, cap, "%s", value->text);
    } else if (value && value->kind == JSON_NUMBER) {
        snprintf(out, cap, "%g", value->number);
    }
}

static void read_config(const char *folder, exl3_summary *out)
{
    char path[4096];
    const char *error;
    size_t bytes;
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *text = text_file_load(path, CONFIG_MAX, &bytes);
    json_value *config = text ? json_read(text, bytes, &error) : NULL;
    const json_value *quant = config ? json_member(config, "quantization_config") : NULL;
    copy_value(quant, "version", out->version, sizeof out->version);
    copy_value(quant, "bits", out->bits, sizeof out->bits);
    copy_value(quant, "head_bits", out->head_bits, sizeof out->head_bits);
    json_free(config);
    free(text);
}

bool exl3_read(const char *folder, exl3_summary *out)
{
    reader r = { .folder = folder, .out = out };
    *out = (exl3_summary){ .matrices = 0 };
    if (!folder_each(folder, read_file, &r) || r.failed || out->matrices == 0) {
        return false;
    }
    read_config(folder, out);
    return true;
}

/* Bits of a weight of a and b together. */
static double mean(exl3_bits a, exl3_bits b)
{
    uint64_t weights = a.weights + b.weights;
    return weights ? (double)(a.bits + b.bits) / (double)weights : 0;
}

static const char *const codebooks[3] = { "3inst", "mcg", "mul1" };

void exl3_print(const exl3_summary *s)
{
    const exl3_bits none = { 0, 0 };
    printf("%-18s %s%s; %.3f bits per weight, %.3f without the head", "EXL3", s->version[0] ? "version " : "no version",
           s->version, mean(s->layers, s->head), mean(s->layers, none));
    if (s->head.weights) {
        printf(", head %.3f", mean(s->head, none));
    }
    if (s->embedding.weights) {
        printf(", embedding %.3f", mean(s->embedding, none));
    }
    printf("\n%-18s", "matrices by bits");
    for (uint32_t i = 0; i < 17; i++) {
        if (s->rates[i]) {
            printf(" %g: %u", i / 2.0, s->rates[i]);
        }
    }
    printf("\n%-18s", "codebooks");
    for (uint32_t i = 0; i < 3; i++) {
        if (s->codebooks[i]) {
            printf(" %s: %u", codebooks[i], s->codebooks[i]);
        }
    }
    printf("\n");
    for (uint32_t i = 0; i < s->other_count && i < EXL3_OTHERS; i++) {
        printf("%-18s %s\n", i ? "" : "not EXL3", s->others[i]);
    }
    if (s->other_count > EXL3_OTHERS) {
        printf("%-18s and %u more\n", "", s->other_count - EXL3_OTHERS);
    }
}

void exl3_print_json(json_out *j, const exl3_summary *s)
{
    const exl3_bits none = { 0, 0 };
    json_out_object(j, "exl3");
    json_out_string(j, "version", s->version[0] ? s->version : NULL);
    json_out_string(j, "bits", s->bits[0] ? s->bits : NULL);
    json_out_string(j, "head_bits", s->head_bits[0] ? s->head_bits : NULL);
    json_out_number(j, "average", mean(s->layers, s->head));
    json_out_number(j, "average_without_head", mean(s->layers, none));
    json_out_number(j, "head", mean(s->head, none));
    json_out_number(j, "embedding", mean(s->embedding, none));
    json_out_array(j, "rates");
    for (uint32_t i = 0; i < 17; i++) {
        if (s->rates[i]) {
            json_out_object(j, NULL);
            json_out_number(j, "bits", i / 2.0);
            json_out_uint(j, "matrices", s->rates[i]);
            json_out_end(j);
        }
    }
    json_out_end(j);
    json_out_object(j, "codebooks");
    for (uint32_t i = 0; i < 3; i++) {
        json_out_uint(j, codebooks[i], s->codebooks[i]);
    }
    json_out_end(j);
    json_out_array(j, "others");
    for (uint32_t i = 0; i < s->other_count && i < EXL3_OTHERS; i++) {
        json_out_string(j, NULL, s->others[i]);
    }
    json_out_end(j);
    json_out_end(j);
}
