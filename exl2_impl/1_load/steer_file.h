/* steer_file.h: the vectors of a file with a control vector: GGUF as llama.cpp writes it, or safetensors.
   takes: a path, untrusted; the number of layers and the width of the model.
   gives: exl2__steer_file, exl2__steer_file_read.

   A tensor is called direction.N and has as many values as the residual: what is added to it after layer N, counted
   from 0. (llama.cpp adds it there, too, and accepts no direction.0.) The layers without a tensor have no vector. */
#ifndef EXL2__STEER_FILE_H
#define EXL2__STEER_FILE_H

#include "tensor_table.h"

#define EXL2__STEER_FILE_HEAD_MAX ((uint64_t)16 << 20) /* bytes of a GGUF file besides the vectors of all layers */
#define EXL2__STEER_FILE_DEPTH 4u                      /* arrays in arrays */

/* Where the vectors go. */
typedef struct exl2__steer_file {
    float *values;           /* [layers, hidden] */
    bool *has;               /* [layers] the file has one */
    uint32_t layers, hidden;
} exl2__steer_file;

/* The layer of a tensor, which must be the first for it. */
EXL2__PRIVATE exl2_result exl2__steer_file_layer(exl2__ctx *c, const exl2__steer_file *f, const char *file,
                                                 const char *name, uint32_t *layer)
{
    static const char prefix[] = "direction.";
    const char *digits = name + sizeof prefix - 1;
    size_t count = strncmp(name, prefix, sizeof prefix - 1) == 0 ? strspn(digits, "0123456789") : 0;
    if (count == 0 || count > 6 || digits[count] || (digits[0] == '0' && count > 1)) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s' has no use: tensors of a control vector are named direction.N",
                          file, name);
    }
    uint32_t number = 0;
    for (size_t i = 0; i < count; i++) {
        number = number * 10 + (uint32_t)(digits[i] - '0');
    }
    if (number >= f->layers) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s' has no use: the layers of this model are 0 to %u", file, name,
                          f->layers - 1);
    }
    if (f->has[number]) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s has '%s' twice", file, name);
    }
    *layer = number;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__steer_file_check_width(exl2__ctx *c, const exl2__steer_file *f, const char *file,
                                                       const char *name, uint32_t rank, uint64_t width)
{
    return rank == 1 && width == f->hidden ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s' has the shape [%llu] of rank %u, but the residual of this model "
                      "has %u values", file, name, (unsigned long long)width, rank, f->hidden);
}

/* ---- safetensors ---- */

EXL2__PRIVATE exl2_result exl2__steer_file_tensors(exl2__ctx *c, const exl2__tensors *t, const char *file,
                                                   exl2__steer_file *f)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const exl2__tensor *entry = &t->entries[i];
        uint32_t layer = 0;
        EXL2__TRY(exl2__steer_file_layer(c, f, file, entry->name, &layer));
        EXL2__TRY(exl2__steer_file_check_width(c, f, file, entry->name, entry->rank, entry->dims[0]));
        EXL2__TRY(exl2__tensor_floats(c, t, entry->name, f->hidden, f->values + (size_t)layer * f->hidden));
        f->has[layer] = true;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__steer_file_safetensors(exl2__ctx *c, const char *dir, const char *file,
                                                       exl2__steer_file *f)
{
    exl2__tensors tensors;
    exl2__tensors_reader reader;
    exl2__work all = exl2__work_all();
    exl2__tensors_read_begin(&reader, c, dir, NULL, &tensors);
    reader.only = file;
    exl2_result r = exl2__tensors_read_slice(&reader, &all);
    exl2__tensors_read_end(&reader);
    EXL2__TRY(r);
    r = exl2__steer_file_tensors(c, &tensors, file, f);
    exl2__tensors_close(c, &tensors);
    return r;
}

/* ---- GGUF ---- */

/* Reads a file's bytes in order. After its end, all that is read is 0. */
typedef struct exl2__steer_cursor {
    const char *file;
    const uint8_t *data;
    uint64_t bytes, at;
    bool ended;
} exl2__steer_cursor;

/* The next `count` bytes; NULL: the file ends before. */
static inline const uint8_t *exl2__steer_file_take(exl2__steer_cursor *g, uint64_t count)
{
    g->ended = g->ended || count > g->bytes - g->at;
    const uint8_t *at = g->ended ? NULL : g->data + g->at;
    g->at += g->ended ? 0 : count;
    return at;
}

static inline uint32_t exl2__steer_file_u32(exl2__steer_cursor *g)
{
    const uint8_t *at = exl2__steer_file_take(g, 4);
    return at ? exl2__load32(at) : 0;
}

static inline uint64_t exl2__steer_file_u64(exl2__steer_cursor *g)
{
    const uint8_t *at = exl2__steer_file_take(g, 8);
    return at ? exl2__load64(at) : 0;
}

/* Copies a text, if it fits, to out[cap]; else *out is "". */
EXL2__PRIVATE void exl2__steer_file_text(exl2__steer_cursor *g, char *out, size_t cap)
{
    uint64_t bytes = exl2__steer_file_u64(g);
    const uint8_t *text = exl2__steer_file_take(g, bytes);
    out[0] = 0;
    if (text && bytes < cap) {
        memcpy(out, text, (size_t)bytes);
        out[bytes] = 0;
    }
}

/* Skips `count` values of a type. */
EXL2__PRIVATE void exl2__steer_file_skip(exl2__steer_cursor *g, uint32_t type, uint64_t count)
{
    static const uint8_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 }; /* 8: a text; 9: an array */
    struct { uint32_t type; uint64_t left; } open[EXL2__STEER_FILE_DEPTH] = { { type, count } };
    for (uint32_t depth = 1; depth > 0 && !g->ended;) {
        uint32_t now = open[depth - 1].type, size = now < EXL2__COUNT(sizes) ? sizes[now] : 0;
        uint64_t left = open[depth - 1].left, bytes = 0;
        if (size || left == 0) {
            g->ended = g->ended || !exl2__mul64(left, size, &bytes);
            exl2__steer_file_take(g, bytes);
            depth--;
            continue;
        }
        open[depth - 1].left--;
        if (now == 8) {
            exl2__steer_file_take(g, exl2__steer_file_u64(g));
        } else if (now == 9 && depth < EXL2__STEER_FILE_DEPTH) {
            open[depth].type = exl2__steer_file_u32(g);
            open[depth++].left = exl2__steer_file_u64(g);
        } else {
            g->ended = true;
        }
    }
}

EXL2__PRIVATE exl2_result exl2__steer_file_malformed(exl2__ctx *c, const exl2__steer_cursor *g, const char *what)
{
    return exl2__fail(c, EXL2_ERR_FORMAT, "%s is not the GGUF file of a control vector: %s", g->file, what);
}

/* Reads the pairs of keys and values; *align: of the tensors. */
EXL2__PRIVATE exl2_result exl2__steer_file_keys(exl2__ctx *c, exl2__steer_cursor *g, uint64_t count, uint64_t *align)
{
    *align = 32;
    for (uint64_t i = 0; i < count && !g->ended; i++) {
        char key[64];
        exl2__steer_file_text(g, key, sizeof key);
        uint32_t type = exl2__steer_file_u32(g);
        if (type == 4 && strcmp(key, "general.alignment") == 0) {
            *align = exl2__steer_file_u32(g);
        } else {
            exl2__steer_file_skip(g, type, 1);
        }
    }
    if (g->ended) {
        return exl2__steer_file_malformed(c, g, "it ends, or has an unknown type, among its keys");
    }
    bool good = *align > 0 && *align <= 1u << 20 && (*align & (*align - 1)) == 0;
    return good ? EXL2_OK : exl2__steer_file_malformed(c, g, "general.alignment is no power of 2");
}

/* Reads `values` as they lie in the file. */
EXL2__PRIVATE exl2_result exl2__steer_file_floats(exl2__ctx *c, const char *file, const char *name, const uint8_t *raw,
                                                  uint32_t count, float *out)
{
    for (uint32_t i = 0; i < count; i++) {
        out[i] = exl2__bits_float(exl2__load32(raw + 4 * (size_t)i));
        if (!exl2__float_is_finite(out[i])) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s': value %u is not finite", file, name, i);
        }
    }
    return EXL2_OK;
}

/* Reads the entries of tensors, and their values from `begin` on; g is at the first entry. */
EXL2__PRIVATE exl2_result exl2__steer_file_entries(exl2__ctx *c, exl2__steer_cursor *g, uint64_t count, uint64_t begin,
                                                   exl2__steer_file *f)
{
    for (uint64_t i = 0; i < count; i++) {
        char name[64];
        uint32_t layer = 0;
        exl2__steer_file_text(g, name, sizeof name);
        uint32_t rank = exl2__steer_file_u32(g);
        uint64_t width = rank ? exl2__steer_file_u64(g) : 0;
        exl2__steer_file_skip(g, 10, rank > 1 ? rank - 1 : 0);
        uint32_t type = exl2__steer_file_u32(g);
        uint64_t offset = exl2__steer_file_u64(g), bytes = (uint64_t)f->hidden * 4;
        if (g->ended) {
            return exl2__steer_file_malformed(c, g, "it ends among its tensors' entries");
        }
        if (begin == 0) {
            continue; /* only looks for the end of the entries */
        }
        EXL2__TRY(exl2__steer_file_layer(c, f, g->file, name, &layer));
        EXL2__TRY(exl2__steer_file_check_width(c, f, g->file, name, rank, width));
        if (type != 0) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: '%s' is of type %u of GGUF, but a control vector has F32 "
                              "(type 0)", g->file, name, type);
        }
        if (begin > g->bytes || offset > g->bytes - begin || bytes > g->bytes - begin - offset) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s' lies beyond the end of the file", g->file, name);
        }
        EXL2__TRY(exl2__steer_file_floats(c, g->file, name, g->data + begin + offset, f->hidden,
                                          f->values + (size_t)layer * f->hidden));
        f->has[layer] = true;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__steer_file_gguf(exl2__ctx *c, const char *file, const exl2__blob *blob,
                                                exl2__steer_file *f)
{
    exl2__steer_cursor g = { .file = file, .data = (const uint8_t *)blob->data, .bytes = blob->bytes };
    const uint8_t *magic = exl2__steer_file_take(&g, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0) {
        return exl2__steer_file_malformed(c, &g, "it does not begin with GGUF");
    }
    uint32_t version = exl2__steer_file_u32(&g);
    uint64_t tensors = exl2__steer_file_u64(&g), keys = exl2__steer_file_u64(&g), align;
    if (g.ended) {
        return exl2__steer_file_malformed(c, &g, "it ends after a few bytes");
    }
    if (version < 2 || version > 3) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s has version %u of GGUF, but 2 and 3 are supported", file,
                          version);
    }
    if (tensors > f->layers) {
        return exl2__steer_file_malformed(c, &g, "it has more tensors than this model has layers");
    }
    EXL2__TRY(exl2__steer_file_keys(c, &g, keys, &align));
    exl2__steer_cursor end = g;
    EXL2__TRY(exl2__steer_file_entries(c, &end, tensors, 0, f));
    return exl2__steer_file_entries(c, &g, tensors, exl2__align_up(end.at, align), f);
}

/* ---- either ---- */

/* Reads the file into f->values and f->has. On failure they hold anything. */
EXL2__PRIVATE exl2_result exl2__steer_file_read(exl2__ctx *c, const char *path, exl2__steer_file *f)
{
    char dir[EXL2__FILE_PATH_MAX];
    const char *name = path;
    for (const char *at = path; *at; at++) {
        name = *at == '/' || *at == '\\' ? at + 1 : name;
    }
    exl2__format(dir, sizeof dir, "%.*s", name == path ? 1 : (int)(name - path - (name - path > 1)),
                 name == path ? "." : path);
    memset(f->has, 0, f->layers * sizeof *f->has);
    if (exl2__tensor_files_is_safetensors(name)) {
        EXL2__TRY(exl2__steer_file_safetensors(c, dir, name, f));
    } else {
        exl2__blob blob;
        uint64_t most = (uint64_t)f->layers * f->hidden * 4 + EXL2__STEER_FILE_HEAD_MAX;
        EXL2__TRY(exl2__file_read_all(c, dir, name, most, &blob));
        exl2_result r = exl2__steer_file_gguf(c, name, &blob, f);
        exl2__blob_close(c, &blob);
        EXL2__TRY(r);
    }
    for (uint32_t i = 0; i < f->layers; i++) {
        if (f->has[i]) {
            return EXL2_OK;
        }
    }
    return exl2__fail(c, EXL2_ERR_FORMAT, "%s has no tensor direction.N", name);
}

#endif
