/* exl3.c: see exl3.h.
   takes: *.safetensors and config.json of a folder.
   gives: what exl3.h declares.
   owns:  the headers of all files, while they are counted. */
#include "exl3.h"

#include "../common/folder.h"
#include "../common/json_in.h"
#include "../common/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX ((uint64_t)100 << 20)
#define CONFIG_MAX ((size_t)16 << 20)

/* The parts of a matrix may be in different files. So the tensors of all headers are counted together. */
typedef struct reader {
    const char *folder;
    json_value **headers;
    char **texts;               /* into which the headers point */
    const json_value **tensors; /* [count], sorted by name */
    size_t headers_count, count;
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

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const json_value *const *)a)->key, (*(const json_value *const *)b)->key);
}

/* The tensor "<key>.<part>". */
static const json_value *part_of(const reader *r, const char *key, size_t key_bytes, const char *part)
{
    char name[512];
    json_value wanted = { .key = name };
    const json_value *at = &wanted;
    snprintf(name, sizeof name, "%.*s.%s", (int)key_bytes, key, part);
    const json_value **found = bsearch(&at, (const void *)r->tensors, r->count, sizeof *r->tensors, by_name);
    return found ? *found : NULL;
}

/* Bits of the scales of `count` inputs or outputs; early files have signs alone. */
static uint64_t scale_bits(const reader *r, const char *key, size_t key_bytes, const char *scales, uint64_t count)
{
    return part_of(r, key, key_bytes, scales) ? count * 16 : count;
}

static void add_matrix(exl3_summary *s, const reader *r, const json_value *trellis)
{
    const char *name = trellis->key;
    size_t key = strlen(name) - strlen(".trellis");
    uint64_t a = dimension(trellis, 0), b = dimension(trellis, 1), words = dimension(trellis, 2);
    if (words == 0) { /* an embedding: [rows, groups (1 + 16 K)] with signs [groups, 256] */
        const json_value *signs = part_of(r, name, key, "signs");
        uint64_t groups = signs ? dimension(signs, 0) : 0;
        s->embedding = (exl3_bits){ a * b * 16 + groups * 4096, a * groups * 256 };
        return;
    }
    exl3_bits *sum = strstr(name, "lm_head.") ? &s->head : &s->layers;
    bool mcg = part_of(r, name, key, "mcg") != NULL, mul1 = part_of(r, name, key, "mul1") != NULL;
    sum->bits += a * b * words * 16 + scale_bits(r, name, key, "suh", a * 16) + scale_bits(r, name, key, "svh", b * 16);
    sum->weights += a * b * 256;
    s->rates[words / 8 <= 16 ? words / 8 : 16]++;
    s->codebooks[mcg ? 1 : mul1 ? 2 : 0]++;
    s->matrices++;
}

/* Is it a matrix of another kind: of two dimensions, but no embedding and no copy beside a trellis? */
static bool is_other(const reader *r, const json_value *tensor)
{
    const char *name = tensor->key;
    bool dense = ends_with(name, ".weight") && dimension(tensor, 1) > 0 && !strstr(name, "embed");
    size_t key = strlen(name) - strlen(".weight");
    return (dense && !part_of(r, name, key, "trellis")) || ends_with(name, ".q_weight") ||
           ends_with(name, ".qweight");
}

/* Sorts the tensors of all headers. A name that another file repeats is counted once. */
static void list_tensors(reader *r)
{
    size_t all = 0;
    for (size_t i = 0; i < r->headers_count; i++) {
        all += r->headers[i]->child_count;
    }
    r->tensors = calloc(all + 1, sizeof *r->tensors);
    for (size_t i = 0; r->tensors && i < r->headers_count; i++) {
        for (const json_value *tensor = r->headers[i]->child; tensor; tensor = tensor->next) {
            r->tensors[r->count++] = tensor;
        }
    }
    r->failed = r->failed || !r->tensors;
    if (r->count == 0) {
        return;
    }
    qsort((void *)r->tensors, r->count, sizeof *r->tensors, by_name);
    size_t kept = 1;
    for (size_t i = 1; i < r->count; i++) {
        if (by_name(&r->tensors[i], &r->tensors[kept - 1]) != 0) {
            r->tensors[kept++] = r->tensors[i];
        }
    }
    r->count = kept;
}

static void add_tensors(const reader *r, exl3_summary *out)
{
    for (size_t i = 0; i < r->count; i++) {
        const json_value *tensor = r->tensors[i];
        if (ends_with(tensor->key, ".trellis")) {
            add_matrix(out, r, tensor);
        } else if (is_other(r, tensor)) {
            uint32_t n = out->other_count++;
            if (n < EXL3_OTHERS) {
                snprintf(out->others[n], sizeof out->others[n], "%s", tensor->key);
            }
        }
    }
}

/* Keeps a header and its text. false: no memory. */
static bool add_header(reader *r, json_value *header, char *text)
{
    size_t bytes = (r->headers_count + 1) * sizeof(void *);
    json_value **headers = realloc((void *)r->headers, bytes);
    r->headers = headers ? headers : r->headers;
    char **texts = realloc((void *)r->texts, bytes);
    r->texts = texts ? texts : r->texts;
    if (headers && texts) {
        headers[r->headers_count] = header;
        texts[r->headers_count++] = text;
    }
    return headers && texts;
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
    if (!header || header->kind != JSON_OBJECT || !add_header(r, header, text)) {
        r->failed = true;
        json_free(header);
        free(text);
    }
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
    reader r = { .folder = folder };
    *out = (exl3_summary){ .matrices = 0 };
    bool read = folder_each(folder, read_file, &r);
    list_tensors(&r);
    read = read && !r.failed;
    if (read) {
        add_tensors(&r, out);
    }
    for (size_t i = 0; i < r.headers_count; i++) {
        json_free(r.headers[i]);
        free(r.texts[i]);
    }
    free((void *)r.headers);
    free((void *)r.texts);
    free((void *)r.tensors);
    if (read && out->matrices) {
        read_config(folder, out);
    }
    return read && out->matrices;
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
