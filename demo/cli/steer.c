/* steer.c: `exl2 steer`: makes a control vector from two lists of texts.
   takes: a model folder; two files with as many lines.
   gives: cli_steer.

   Line i of both files is a pair: two texts that differ only in what the vector is to express. The model reads each
   text, and the residuals of its last token after each layer are kept. The vector of a layer is the mean of plus -
   minus or, with --pca, the first principal component of these differences d: the direction u for which the sum of
   (u d)^2 over all pairs is largest, times the mean of u d. */
#include "../common/host.h"
#include "../common/memory.h"
#include "../common/text_file.h"
#include "cli.h"
#include "embedding_jobs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEER_JOBS 32u    /* residuals that are asked for together */
#define STEER_TEXTS_MAX 4096u
#define STEER_ROUNDS 200u /* of the power iteration */

typedef struct steer_options {
    const char *path, *plus, *minus, *out;
    bool pca;
    host_options host;
    exl2_model_desc model;
} steer_options;

typedef struct steer_texts {
    char *memory;
    const char *lines[STEER_TEXTS_MAX];
    uint32_t count;
} steer_texts;

typedef struct steer {
    const steer_options *options;
    host h;
    steer_texts sides[2];   /* plus, minus */
    float *states;          /* [layers, texts, 2, hidden] */
    float *vectors;         /* [layers, hidden] */
} steer;

/* ---- texts ---- */

/* Divides the file into lines, without empty ones. In a line, \n is a line break. */
static bool read_texts(const char *path, steer_texts *t)
{
    size_t bytes;
    t->memory = text_file_read(path, &bytes);
    if (!t->memory) {
        return false;
    }
    for (char *line = t->memory, *end; line && *line; line = end) {
        size_t length = strcspn(line, "\r\n"), used = 0;
        end = line[length] ? line + length + 1 : NULL;
        line[length] = 0;
        for (size_t i = 0; i < length; i++) {
            bool feed = line[i] == '\\' && line[i + 1] == 'n';
            line[used++] = (char)(feed ? '\n' : line[i]);
            i += feed;
        }
        line[used] = 0;
        if (used && t->count == STEER_TEXTS_MAX) {
            fprintf(stderr, "%s has more than %u texts\n", path, STEER_TEXTS_MAX);
            return false;
        }
        if (used) {
            t->lines[t->count++] = line;
        }
    }
    return true;
}

static bool read_sides(steer *x)
{
    const steer_options *o = x->options;
    if (!read_texts(o->plus, &x->sides[0]) || !read_texts(o->minus, &x->sides[1])) {
        return false;
    }
    uint32_t plus = x->sides[0].count, minus = x->sides[1].count;
    if (plus == 0 || plus != minus) {
        fprintf(stderr, plus != minus ? "%s has %u texts, but %s has %u: line i of one belongs to line i of the other\n"
                                      : "%s has no text\n", o->plus, plus, o->minus, minus);
        return false;
    }
    return true;
}

/* ---- residuals ---- */

/* Waits for the items. false: one of them failed, message printed. */
static bool finish(steer *x, const embedding_job *items, uint32_t count)
{
    if (!embedding_jobs_finish(&x->h, items, count)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!items[i].good) {
            fprintf(stderr, "%s\n", items[i].error);
            return false;
        }
    }
    return true;
}

/* The residuals of one text's last token after all layers: the first one reads the text, the others find its K and
   V. */
static bool read_states(steer *x, uint32_t text, uint32_t side)
{
    static embedding_job items[STEER_JOBS];
    uint32_t layers = x->h.info.layers, hidden = x->h.info.hidden, texts = x->sides[0].count, count = 0;
    for (uint32_t layer = 0; layer < layers; layer++) {
        size_t at = ((size_t)layer * texts + text) * 2 + side;
        items[count] = (embedding_job){ .values = x->states + at * hidden };
        exl2_job_desc d = { .model = x->h.model, .prompt.text = x->sides[side].lines[text],
                            .embed = { .pool = EXL2_EMBED_LAST, .raw = true, .layer = layer + 1 },
                            .on_event = embedding_jobs_hear, .user = &items[count++] };
        if (exl2_job_start(x->h.engine, &d, NULL) < 0) {
            host_failed(&x->h);
            return false;
        }
        if (layer == 0 || layer + 1 == layers || count == STEER_JOBS) {
            if (!finish(x, items, count)) {
                return false;
            }
            count = 0;
        }
    }
    return true;
}

/* ---- vectors ---- */

/* Difference of a pair. */
static double difference(const float *pair, uint32_t hidden, uint32_t i)
{
    return (double)pair[i] - (double)pair[hidden + i];
}

/* The mean difference of a layer's pairs. */
static void find_mean(const float *states, uint32_t texts, uint32_t hidden, double *out)
{
    for (uint32_t i = 0; i < hidden; i++) {
        double sum = 0;
        for (uint32_t t = 0; t < texts; t++) {
            sum += difference(states + (size_t)t * 2 * hidden, hidden, i);
        }
        out[i] = sum / texts;
    }
}

static double length_of(const double *v, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += v[i] * v[i];
    }
    return sqrt(sum);
}

/* The first component of the differences, by power iteration from their mean on; v: the mean, then the component times
   the mean's part along it. next: [hidden] */
static void find_component(const float *states, uint32_t texts, uint32_t hidden, double *v, double *next)
{
    double length = length_of(v, hidden), along = length;
    if (length <= 0) {
        return;
    }
    double *mean = memory_take(hidden, sizeof *mean);
    memcpy(mean, v, hidden * sizeof *mean);
    for (uint32_t round = 0; round < STEER_ROUNDS && length > 0; round++) {
        memset(next, 0, hidden * sizeof *next);
        for (uint32_t i = 0; i < hidden; i++) {
            v[i] /= length;
        }
        for (uint32_t t = 0; t < texts; t++) {
            const float *pair = states + (size_t)t * 2 * hidden;
            double dot = 0;
            for (uint32_t i = 0; i < hidden; i++) {
                dot += v[i] * difference(pair, hidden, i);
            }
            for (uint32_t i = 0; i < hidden; i++) {
                next[i] += dot * difference(pair, hidden, i);
            }
        }
        memcpy(v, next, hidden * sizeof *v);
        length = length_of(v, hidden);
    }
    along = 0;
    for (uint32_t i = 0; i < hidden; i++) {
        v[i] /= length > 0 ? length : 1;
        along += v[i] * mean[i];
    }
    for (uint32_t i = 0; i < hidden; i++) {
        v[i] *= along;
    }
    free(mean);
}

static void find_vectors(steer *x)
{
    uint32_t layers = x->h.info.layers, hidden = x->h.info.hidden, texts = x->sides[0].count;
    double *v = memory_take(hidden, sizeof *v), *next = memory_take(hidden, sizeof *next);
    for (uint32_t layer = 0; layer < layers; layer++) {
        const float *states = x->states + (size_t)layer * texts * 2 * hidden;
        find_mean(states, texts, hidden, v);
        if (x->options->pca) {
            find_component(states, texts, hidden, v, next);
        }
        for (uint32_t i = 0; i < hidden; i++) {
            x->vectors[(size_t)layer * hidden + i] = (float)v[i];
        }
    }
    free(v);
    free(next);
}

/* ---- the file ---- */

static void put_number(memory_text *m, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        memory_text_add(m, &(char){ (char)(value >> 8 * i) }, 1);
    }
}

static void put_text(memory_text *m, const char *text)
{
    put_number(m, strlen(text), 8);
    memory_text_add(m, text, strlen(text));
}

/* GGUF, version 3: a control vector as llama.cpp writes it, from layer 1 on. */
static void write_gguf(const steer *x, memory_text *m)
{
    uint32_t layers = x->h.info.layers, hidden = x->h.info.hidden;
    memory_text_add(m, "GGUF", 4);
    put_number(m, 3, 4);
    put_number(m, layers - 1, 8);
    put_number(m, 3, 8);
    put_text(m, "general.architecture");
    put_number(m, 8, 4); /* a text */
    put_text(m, "controlvector");
    put_text(m, "controlvector.model_hint");
    put_number(m, 8, 4);
    put_text(m, x->h.info.arch);
    put_text(m, "controlvector.layer_count");
    put_number(m, 5, 4); /* i32 */
    put_number(m, layers - 1, 4);
    for (uint32_t layer = 1; layer < layers; layer++) {
        char name[32];
        snprintf(name, sizeof name, "direction.%u", layer);
        put_text(m, name);
        put_number(m, 1, 4);
        put_number(m, hidden, 8);
        put_number(m, 0, 4); /* F32 */
        put_number(m, (uint64_t)(layer - 1) * ((hidden * 4 + 31) / 32 * 32), 8);
    }
}

static void write_safetensors(const steer *x, memory_text *m)
{
    uint32_t layers = x->h.info.layers, hidden = x->h.info.hidden;
    memory_text header = { 0 };
    memory_text_add(&header, "{", 1);
    for (uint32_t layer = 1; layer < layers; layer++) {
        char entry[160];
        size_t at = (size_t)(layer - 1) * hidden * 4;
        int bytes = snprintf(entry, sizeof entry,
                             "%s\"direction.%u\":{\"dtype\":\"F32\",\"shape\":[%u],\"data_offsets\":[%zu,%zu]}",
                             layer > 1 ? "," : "", layer, hidden, at, at + hidden * 4);
        memory_text_add(&header, entry, (size_t)bytes);
    }
    memory_text_add(&header, "}", 1);
    put_number(m, header.bytes, 8);
    memory_text_add(m, header.data, header.bytes);
    free(header.data);
}

static bool is_gguf(const char *path)
{
    size_t bytes = strlen(path);
    return bytes > 5 && strcmp(path + bytes - 5, ".gguf") == 0;
}

static bool is_safetensors(const char *path)
{
    size_t bytes = strlen(path);
    return bytes > 12 && strcmp(path + bytes - 12, ".safetensors") == 0;
}

static bool write_file(const steer *x)
{
    memory_text m = { 0 };
    uint32_t layers = x->h.info.layers, hidden = x->h.info.hidden;
    bool gguf = is_gguf(x->options->out);
    (gguf ? write_gguf : write_safetensors)(x, &m);
    for (uint32_t layer = 1; layer < layers; layer++) {
        while (gguf && m.bytes % 32) {
            put_number(&m, 0, 1);
        }
        for (uint32_t i = 0; i < hidden; i++) {
            uint32_t bits;
            memcpy(&bits, &x->vectors[(size_t)layer * hidden + i], sizeof bits);
            put_number(&m, bits, 4);
        }
    }
    bool good = text_file_write(x->options->out, m.data, m.bytes);
    free(m.data);
    return good;
}

static int run(steer *x)
{
    uint32_t texts = x->sides[0].count, layers = x->h.info.layers, hidden = x->h.info.hidden;
    if (layers < 2) {
        fprintf(stderr, "%s has a single layer: a file of llama.cpp has vectors from the second one on\n",
                x->options->path);
        return 1;
    }
    x->states = memory_take((size_t)layers * texts * 2, hidden * sizeof *x->states);
    x->vectors = memory_take(layers, hidden * sizeof *x->vectors);
    for (uint32_t i = 0; i < 2 * texts; i++) {
        if (!read_states(x, i / 2, i % 2)) {
            return 1;
        }
    }
    find_vectors(x);
    if (!write_file(x)) {
        return 1;
    }
    printf("%s: vectors of the layers 1 to %u, of %u pairs of texts (%s)\n", x->options->out, layers - 1, texts,
           x->options->pca ? "first component" : "mean difference");
    return 0;
}

int cli_steer(int argc, char **argv)
{
    static steer x; /* it is large */
    steer_options o = { .host = { .max_jobs = STEER_JOBS, .max_sessions = STEER_JOBS } };
    const arg positional[] = { { "MODEL", ARG_TEXT, &o.path, NULL, "model folder" },
                               { "OUT", ARG_TEXT, &o.out, NULL, "file to write: .gguf or .safetensors" } };
    const arg flags[] = {
        { "--plus", ARG_TEXT, &o.plus, "FILE",
          "file with a text in each line, what the vector adds; \\n: a line break" },
        { "--minus", ARG_TEXT, &o.minus, "FILE",
          "file with as many texts: line i is the opposite of line i of --plus" },
        { "--pca", ARG_BOOL, &o.pca, NULL, "first component of the differences, in place of their mean" },
        HOST_CONTEXT_ARGS(o.model),
        HOST_ARGS(o.host),
    };
    const args_desc d = { "exl2 steer",
                          "Makes a control vector of pairs of texts: the difference of their residuals by layer.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = host_parse(&d, argc, argv, &o.host);
    if (parsed == ARGS_OK && (!o.plus || !o.minus)) {
        parsed = args_wrong(&d, "give both --plus and --minus");
    }
    if (parsed == ARGS_OK && !is_gguf(o.out) && !is_safetensors(o.out)) {
        parsed = args_wrong(&d, "%s ends neither in .gguf nor in .safetensors", o.out);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    x.options = &o;
    o.model.path = o.path;
    o.model.batch_max = STEER_JOBS;
    int code = 1;
    if (read_sides(&x) && host_open(&x.h, &o.host) && host_load(&x.h, &o.model, 4)) {
        code = run(&x);
    }
    host_close(&x.h);
    free(x.sides[0].memory);
    free(x.sides[1].memory);
    free(x.states);
    free(x.vectors);
    return code;
}
