/* gguf_split.h: opens a model that is one GGUF file, or several, as llama-gguf-split writes them:
   NAME-00001-of-00003.gguf and so on. The first part has the keys, and each part has some of the tensors.
   takes: the path of the file, or of any part; the others lie in the same folder.
   gives: exl2__gguf_split_open.
   owns:  nothing; parts belong to the exl2__gguf, which has the keys of the first part and the tensors of all. */
#ifndef EXL2__GGUF_SPLIT_H
#define EXL2__GGUF_SPLIT_H

#include "gguf.h"

#define EXL2__GGUF_SPLIT_MAX 512u /* most parts; all are open at the same time */
#define EXL2__GGUF_SPLIT_END 20u  /* bytes of "-00001-of-00003.gguf" */

/* Writes the end of the name of part `number`, which counts from 0: "-00001-of-00003.gguf". */
EXL2__PRIVATE void exl2__gguf_split_end(char out[EXL2__GGUF_SPLIT_END + 1], uint32_t number, uint32_t count)
{
    uint32_t one = number + 1;
    memcpy(out, "-00000-of-00000.gguf", EXL2__GGUF_SPLIT_END + 1);
    for (uint32_t place = 5; place > 0; place--) {
        out[place] = (char)('0' + one % 10);
        out[place + 9] = (char)('0' + count % 10);
        one /= 10;
        count /= 10;
    }
}

/* Checks what the named file says about itself. */
EXL2__PRIVATE exl2_result exl2__gguf_split_check(const exl2__gguf *named, uint32_t count)
{
    char end[EXL2__GGUF_SPLIT_END + 1];
    uint32_t number = 0;
    size_t bytes = strlen(named->path);
    EXL2__TRY(exl2__gguf_get_u32(named, "split.no", &number));
    if (count > EXL2__GGUF_SPLIT_MAX || number >= count) {
        return exl2__fail(named->ctx, EXL2_ERR_FORMAT, "%s: split.no is %u and split.count is %u, expected a number "
                          "below the count, and a count of at most %u", named->path, number, count,
                          EXL2__GGUF_SPLIT_MAX);
    }
    exl2__gguf_split_end(end, number, count);
    if (bytes <= EXL2__GGUF_SPLIT_END || strcmp(named->path + bytes - EXL2__GGUF_SPLIT_END, end) != 0) {
        return exl2__fail(named->ctx, EXL2_ERR_FORMAT, "%s: the file is part %u of %u of a model, so its name must end "
                          "in %s, and the others must lie beside it", named->path, number + 1, count, end);
    }
    return EXL2_OK;
}

/* Does a key of the part, other than those of the split, have another value in the first part? */
EXL2__PRIVATE const exl2__gguf_pair *exl2__gguf_split_differs(const exl2__gguf *first, const exl2__gguf *part)
{
    for (uint32_t i = 0; i < part->pair_count; i++) {
        const exl2__gguf_pair *b = &part->pairs[i];
        uint32_t entry = exl2__strtab_find(&first->pair_names, b->name.data, (size_t)b->name.bytes, NULL);
        const exl2__gguf_pair *a = entry == UINT32_MAX ? b : &first->pairs[entry];
        bool same = a->kind == b->kind && a->item_kind == b->item_kind && a->count == b->count && a->bytes == b->bytes
                    && memcmp(a->data, b->data, (size_t)a->bytes) == 0;
        if (!same && (b->name.bytes < 6 || memcmp(b->name.data, "split.", 6) != 0)) {
            return b;
        }
    }
    return NULL;
}

/* Opens part `number`, and checks that it belongs to the first one. g->parts[number].path is set. */
EXL2__PRIVATE exl2_result exl2__gguf_split_part(exl2__gguf *g, uint32_t number)
{
    exl2__ctx *c = g->ctx;
    exl2__gguf *part = &g->parts[number];
    const char *path = part->path;
    uint64_t bytes;
    uint32_t own_number = 0, own_count = 0;
    void *file = c->files.open(c->files.user, path, &bytes);
    if (!file) {
        return exl2__fail(c, EXL2_ERR_IO, "%s: part %u of the %u parts of the model is missing: there is no file %s, "
                          "or it cannot be opened", g->path, number + 1, g->part_count, path);
    }
    c->files.close(c->files.user, file);
    EXL2__TRY(exl2__gguf_open(c, path, part));
    part->begin = g->file_bytes;
    EXL2__TRY(exl2__gguf_get_u32(part, "split.no", &own_number));
    EXL2__TRY(exl2__gguf_get_u32(part, "split.count", &own_count));
    if (own_number != number || own_count != g->part_count) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: the file says that it is part %u of %u, expected part %u of %u",
                          path, own_number + 1, own_count, number + 1, g->part_count);
    }
    const exl2__gguf_pair *other = exl2__gguf_split_differs(&g->parts[0], part);
    if (other) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: the file is part of another model than %s: their keys %.*s differ",
                          path, g->parts[0].path, EXL2__GGUF_NAME(other->name));
    }
    g->tensor_count += part->tensor_count;
    return exl2__add64(g->file_bytes, part->file_bytes, &g->file_bytes) ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_FORMAT, "%s: the parts together have more than 2^64 bytes", path);
}

/* Enters the tensors of all parts into one table. Their order stays that of the offsets. */
EXL2__PRIVATE exl2_result exl2__gguf_split_tensors(exl2__gguf *g)
{
    exl2__arena measure = { 0 };
    uint32_t used = 0, wanted = g->tensor_count;
    EXL2__TRY(exl2__gguf_get_u32(&g->parts[0], "split.tensors.count", &wanted));
    if (wanted != g->tensor_count || wanted > EXL2__GGUF_TENSORS_MAX) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: the parts of the model have %u tensors, expected %u "
                          "(split.tensors.count of the first one), and at most %u", g->path, g->tensor_count, wanted,
                          EXL2__GGUF_TENSORS_MAX);
    }
    exl2__gguf_layout(g, &measure);
    EXL2__TRY(exl2__arena_open(g->ctx, &g->tables, measure.used, EXL2_MEM_GENERAL));
    exl2__gguf_layout(g, &g->tables);
    for (uint32_t i = 0; i < g->part_count; i++) {
        const exl2__gguf *part = &g->parts[i];
        for (uint32_t k = 0; k < part->tensor_count; k++) {
            g->tensors[used] = part->tensors[k];
            g->tensors[used].offset += part->begin;
            EXL2__TRY(exl2__gguf_enter(g, &g->tensor_names, "tensor", part->tensors[k].name, used));
            used++;
        }
    }
    return EXL2_OK;
}

/* Allocates the parts and their paths; with a dry arena it only counts bytes. */
EXL2__PRIVATE void exl2__gguf_split_layout(exl2__gguf *g, exl2__arena *a)
{
    size_t bytes = strlen(g->path) + 1;
    g->parts = (exl2__gguf *)exl2__arena_alloc_zeroed(a, g->part_count * sizeof *g->parts);
    for (uint32_t i = 0; i < g->part_count; i++) {
        char *path = (char *)exl2__arena_alloc(a, bytes);
        if (path) {
            memcpy(path, g->path, bytes);
            exl2__gguf_split_end(path + bytes - 1 - EXL2__GGUF_SPLIT_END, i, g->part_count);
            g->parts[i].path = path;
        }
    }
}

/* Makes *g, which is closed but for its context, its path and its number of parts, the whole of all parts. */
EXL2__PRIVATE exl2_result exl2__gguf_split_join(exl2__gguf *g)
{
    exl2__arena measure = { 0 };
    exl2__gguf_split_layout(g, &measure);
    EXL2__TRY(exl2__arena_open(g->ctx, &g->header, measure.used, EXL2_MEM_GENERAL));
    exl2__gguf_split_layout(g, &g->header);
    for (uint32_t i = 0; i < g->part_count; i++) {
        EXL2__TRY(exl2__gguf_split_part(g, i));
    }
    EXL2__TRY(exl2__gguf_split_tensors(g));
    g->version = g->parts[0].version;
    g->pairs = g->parts[0].pairs;
    g->pair_count = g->parts[0].pair_count;
    g->pair_names = g->parts[0].pair_names;
    return EXL2_OK;
}

/* Opens and checks a model; on failure *g is closed. `path` must outlive *g, and *g must not be moved. */
EXL2__PRIVATE exl2_result exl2__gguf_split_open(exl2__ctx *c, const char *path, exl2__gguf *g)
{
    uint32_t count = 1;
    EXL2__TRY(exl2__gguf_open(c, path, g));
    exl2_result result = exl2__gguf_get_u32(g, "split.count", &count);
    if (result == EXL2_OK && count > 1) {
        result = exl2__gguf_split_check(g, count);
        exl2__gguf_close(g); /* it is opened again as one of the parts */
        *g = (exl2__gguf){ .ctx = c, .path = path, .part_count = count };
        result = result == EXL2_OK ? exl2__gguf_split_join(g) : result;
    }
    if (result < 0) {
        exl2__gguf_close(g);
    }
    return result;
}

#endif
