/* import_rig.h: what the import tests share: a context whose only file in memory is model.gguf and which can be made to
   fail, the folder that an import writes, and checks that it holds the tiny Llama's values. */
#ifndef IMPORT_RIG_H
#define IMPORT_RIG_H

#define EXL2_CONVERT
#include "private/import.h"
#include "check.h"
#include "gguf_llama.h"
#include "matrix_decode.h"
#include "tensors_open.h"

#include <math.h>

/* ---- a context whose only file in memory is model.gguf, and which can be made to fail ---- */

typedef struct rig {
    exl2__ctx c;
    gguf_bytes file;
    uint32_t allocations_left, reads_left; /* allocations and reads that succeed before one fails */
    uint32_t open_files, calls, stop_at;   /* calls: calls of the progress function */
    float last;
    bool falling; /* progress decreased, or left 0..1 */
} rig;

static char out_dir[512], work_dir[600];

static void *rig_open(void *user, const char *path, uint64_t *bytes)
{
    rig *r = (rig *)user;
    if (strcmp(path, "model.gguf") == 0) {
        *bytes = r->file.bytes;
        r->open_files++;
        return r;
    }
    exl2_files files = exl2__platform_files();
    return files.open(files.user, path, bytes);
}

static bool rig_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    exl2_files files = exl2__platform_files();
    (void)user;
    return files.list(files.user, dir, index, name, cap);
}

static int64_t rig_read(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    rig *r = (rig *)user;
    exl2_files files = exl2__platform_files();
    if (file != r) {
        return files.read(files.user, file, offset, dst, bytes);
    }
    if (r->reads_left-- == 0) {
        r->reads_left = 0;
        return -1;
    }
    size_t rest = offset < r->file.bytes ? r->file.bytes - (size_t)offset : 0;
    bytes = bytes < rest ? bytes : rest;
    memcpy(dst, r->file.data + offset, bytes);
    return (int64_t)bytes;
}

static void rig_close(void *user, void *file)
{
    rig *r = (rig *)user;
    exl2_files files = exl2__platform_files();
    if (file == r) {
        r->open_files--;
    } else {
        files.close(files.user, file);
    }
}

static void *rig_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    rig *r = (rig *)user;
    exl2_allocator plain = exl2__platform_allocator();
    if (r->allocations_left == 0) {
        return NULL;
    }
    r->allocations_left--;
    return plain.alloc_fn(plain.user, bytes, align, tag);
}

static void rig_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    exl2_allocator plain = exl2__platform_allocator();
    (void)user;
    plain.free_fn(plain.user, memory, bytes, tag);
}

static void rig_make(rig *r, gguf_bytes file)
{
    memset(r, 0, sizeof *r);
    r->file = file;
    r->allocations_left = r->reads_left = UINT32_MAX;
    exl2_allocator allocator = { .alloc_fn = rig_alloc, .free_fn = rig_free, .user = r };
    exl2_files files = { rig_open, rig_list, rig_read, rig_close, r };
    r->c.allocator = allocator;
    r->c.files = files;
}

static bool rig_progress(void *user, float done, const char *what)
{
    rig *r = (rig *)user;
    r->falling = r->falling || done < r->last || done > 1 || !what || !*what;
    r->last = done;
    return ++r->calls != r->stop_at;
}

/* Runs tasks from the last to the first: results must not depend on the order. */
static void backwards(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    while (count > 0) {
        task(arg, --count);
    }
}

static exl2_import_desc describe(rig *r)
{
    exl2_import_desc d = { 0 };
    d.gguf_path = "model.gguf";
    d.out_dir = out_dir;
    d.progress = rig_progress;
    d.user = r;
    return d;
}

static bool there(const char *dir)
{
    char name[300];
    exl2_files files = exl2__platform_files();
    return files.list(files.user, dir, 0, name, sizeof name);
}

static void remove_out(void)
{
    CHECK(exl2__folder_remove(out_dir));
}

/* Nothing is open, allocated or on disk. */
static void check_clean(const rig *r)
{
    CHECK_INT(r->open_files, 0);
    CHECK_INT(r->c.host_bytes, 0);
    CHECK(!there(out_dir));
    CHECK(!exl2__platform_remove_dir(out_dir));
    CHECK(!there(work_dir));
    CHECK(!exl2__platform_remove_dir(work_dir));
}

static const llama_options small = { 64, 96, 2, 4, 2, 16, 83, true, false, false, NULL, 0, NULL, NULL, NULL, NULL };
static const llama_options wide = { 256, 288, 2, 4, 2, 64, 101, false, true, false, NULL, 0, NULL, NULL, NULL, NULL };

/* ---- the output ---- */

static void check_matrix(exl2__ctx *c, const exl2__tensors *t, const llama_wanted *w, const char *name, uint32_t bits,
                         uint32_t group)
{
    static const double bounds[9] = { 0, 0, 0.5, 0.26, 0.14, 0.072, 0.038, 0, 0.0105 };
    exl2__matrix_desc desc;
    uint16_t *got = matrix_load(c, t, name, w->in, w->out, &desc);
    if (!got) {
        return;
    }
    double error = 0, power = 0;
    uint32_t padding = 0;
    for (uint32_t j = 0; j < w->in; j++) {
        for (uint32_t n = 0; n < desc.out_stored; n++) {
            double value = (double)exl2__f16_to_f32(got[(size_t)j * desc.out_stored + n]);
            double wanted = n < w->out ? (double)w->numbers[(size_t)n * w->in + j] : 0;
            padding += n >= w->out && value != 0;
            error += (value - wanted) * (value - wanted);
            power += wanted * wanted;
        }
    }
    CHECK_INT(padding, 0);
    CHECK_INT(desc.group_count, (w->in + group - 1) / group);
    CHECK_INT(desc.words, w->in * bits / 32);
    if (!CHECK(sqrt(error / power) < bounds[bits])) {
        printf("  %s, %u bits in groups of %u: error %.4f\n", name, bits, group, sqrt(error / power));
    }
    free(got);
    CHECK_INT(desc.has_bias, w->bias != NULL);
}

static void check_floats(exl2__ctx *c, const exl2__tensors *t, const char *name, const float *wanted, uint32_t count)
{
    float *got = (float *)malloc(count * sizeof(float));
    uint32_t differ = 0;
    if (!CHECK_INT(exl2__tensor_floats(c, t, name, count, got), EXL2_OK)) {
        printf("  %s: %s\n", name, c->error.text);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            float half = exl2__f16_to_f32(exl2__f32_to_f16(wanted[i]));
            differ += exl2__float_bits(got[i]) != exl2__float_bits(half);
        }
    }
    CHECK_INT(differ, 0);
    free(got);
}

static void check_embedding(exl2__ctx *c, const exl2__tensors *t, const llama_wanted *w)
{
    const exl2__tensor *entry = exl2__tensors_find(t, "model.embed_tokens.weight");
    size_t count = (size_t)w->in * w->out;
    if (!CHECK(entry && entry->rank == 2 && entry->dims[0] == w->out && entry->dims[1] == w->in &&
               entry->bytes == count * 2)) {
        return;
    }
    uint16_t *got = (uint16_t *)malloc(count * 2);
    CHECK_INT(exl2__tensors_read(c, t, entry, 0, got, entry->bytes), EXL2_OK);
    uint32_t differ = 0;
    for (size_t i = 0; i < count; i++) {
        differ += got[i] != exl2__f32_to_f16(w->numbers[i]);
    }
    CHECK_INT(differ, 0);
    free(got);
}

static void check_folder(const llama_model *l, const llama_options *o, uint32_t bits, uint32_t group,
                         uint32_t head_bits)
{
    exl2__ctx c = { 0 };
    exl2__tensors t;
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    if (!CHECK_INT(tensors_open(&c, out_dir, &t), EXL2_OK)) {
        printf("  %s\n", c.error.text);
        return;
    }
    static const float zeros[512] = { 0 };
    for (uint32_t i = 0; i < l->count; i++) {
        const llama_wanted *w = &l->wanted[i];
        char name[128];
        if (strcmp(w->name, "model.embed_tokens") == 0) {
            check_embedding(&c, &t, w);
        } else if (strstr(w->name, "norm")) {
            snprintf(name, sizeof name, "%s.weight", w->name);
            check_floats(&c, &t, name, w->numbers, w->in);
        } else {
            bool head = strcmp(w->name, "lm_head") == 0, output = strstr(w->name, "o_proj") != NULL;
            llama_wanted changed = *w;
            float all_zero[1];
            changed.bias =
                output && o->attention_bias ? all_zero : w->bias; /* config.json has one flag for q, k, v, o */
            check_matrix(&c, &t, &changed, w->name, head ? head_bits : bits, group);
            snprintf(name, sizeof name, "%s.bias", w->name);
            if (changed.bias) {
                check_floats(&c, &t, name, output ? zeros : w->bias, w->out);
            }
        }
    }
    if (o->tied) {
        check_matrix(&c, &t, llama_find(l, "model.embed_tokens"), "lm_head", head_bits, group);
    }
    exl2__tensors_close(&c, &t);
    CHECK_INT(c.host_bytes, 0);
}

/* ---- rejected files ---- */

static void check_refused(const char *what, const llama_options *o, exl2_result code, const char *piece)
{
    llama_model l;
    rig r;
    llama_make(&l, o);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    exl2_result result = exl2__import_gguf(&r.c, &d);
    if (!CHECK_INT(result, code) || !CHECK(strstr(r.c.error.text, piece) && strstr(r.c.error.text, "model.gguf"))) {
        printf("  %s: \"%s\" should hold \"%s\"\n", what, r.c.error.text, piece);
    }
    check_clean(&r);
    llama_free(&l);
}

/* Makes a folder for this process. Called first in every main. */
static void import_start(void)
{
    const char *temporary = getenv("TMPDIR");
    snprintf(out_dir, sizeof out_dir, "%s/exl2-import-%llx", temporary && *temporary ? temporary : "/tmp",
             (unsigned long long)exl2__platform_entropy(out_dir));
    snprintf(work_dir, sizeof work_dir, "%s.unfinished", out_dir);
}

#endif
