/* dump.h: writes a matrix of EXL3 as it is decoded, so that its bits can be compared with those of other programs.
   takes: a model folder, the matrix's name in its files, the path of a new file.
   gives: exl2_dump. */
#ifndef EXL2__DUMP_H
#define EXL2__DUMP_H

#include "../0_base/alloc.h"
#include "../1_load/dequantize_exl3.h"
#include "write.h"

#if EXL2__EXL3

/* Finds a matrix by its name; the model's own widths are not asked for. */
EXL2__PRIVATE exl2_result exl2__dump_find(exl2__ctx *c, const exl2__tensors *t, const char *name,
                                          exl2__matrix_desc *desc)
{
    const exl2__tensor *trellis = exl2__tensors_find_part(t, name, "trellis");
    if (!trellis) {
        return exl2__fail(c, EXL2_ERR_ARG, "there is no tensor %s.trellis: exl2_dump writes matrices of EXL3 only",
                          name);
    }
    if (trellis->rank != 3 || trellis->dims[0] > UINT32_MAX / 16 || trellis->dims[1] > UINT32_MAX / 16) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s.trellis has rank %u and is no matrix of tiles%s", name,
                          trellis->rank, trellis->rank == 2 ? ": embeddings have no rotated matrix" : "");
    }
    desc->name = name;
    desc->in = (uint32_t)trellis->dims[0] * 16;
    desc->out = (uint32_t)trellis->dims[1] * 16;
    return exl2__exl3_find(c, t, desc);
}

/* Writes W [in, out], 16 rows at a time. */
EXL2__PRIVATE exl2_result exl2__dump_rows(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                          exl2__write *w)
{
    uint16_t block[16 * EXL2__EXL3_BLOCK];
    uint64_t bytes = (uint64_t)16 * desc->out_stored * sizeof *block;
    void *memory;
    EXL2__TRY(exl2__alloc(c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &memory));
    uint8_t *rows = (uint8_t *)memory;
    exl2_result result = EXL2_OK;
    for (uint32_t i = 0; i < desc->exl3.in_stored / 16 && result >= 0; i++) {
        for (uint32_t b = 0; b < desc->out_stored / EXL2__EXL3_BLOCK && result >= 0; b++) {
            result = exl2__dequantize_exl3_tiles(c, t, desc, i, b, block);
            for (uint32_t k = 0; k < 16 * EXL2__EXL3_BLOCK && result >= 0; k++) {
                size_t at = (size_t)(k / EXL2__EXL3_BLOCK) * desc->out_stored + b * EXL2__EXL3_BLOCK
                          + k % EXL2__EXL3_BLOCK;
                rows[2 * at] = (uint8_t)block[k];
                rows[2 * at + 1] = (uint8_t)(block[k] >> 8);
            }
        }
        if (result >= 0) {
            exl2__write_raw(w, (const char *)rows, bytes);
            result = w->result;
        }
    }
    exl2__free(c, memory, bytes, EXL2_MEM_GENERAL);
    return result;
}

EXL2__PRIVATE exl2_result exl2__dump_file(exl2__ctx *c, const exl2_dump_desc *d, exl2_dump_info *out)
{
    exl2__work all = exl2__work_all();
    exl2__tensors_reader reader;
    exl2__tensors tensors;
    exl2__matrix_desc desc = { 0 };
    exl2__write w = { 0 };
    exl2__tensors_read_begin(&reader, c, d->model_dir, NULL, &tensors);
    exl2_result result = exl2__tensors_read_slice(&reader, &all);
    exl2__tensors_read_end(&reader);
    EXL2__TRY(result);
    result = exl2__dump_find(c, &tensors, d->matrix, &desc);
    if (result >= 0 && exl2__platform_is_file(d->out_path)) { /* it might be one of the model's */
        result = exl2__fail(c, EXL2_ERR_ARG, "%s exists already: remove it, or choose another file", d->out_path);
    }
    if (result >= 0) {
        result = exl2__write_open(c, d->out_path, &w);
        result = result < 0 ? result : w.result < 0 ? w.result : exl2__dump_rows(c, &tensors, &desc, &w);
        bool made = w.file != NULL;
        exl2_result closed = exl2__write_close(&w);
        result = result < 0 ? result : closed;
        if (result < 0 && made) {
            exl2__platform_remove_file(d->out_path);
        }
    }
    if (result >= 0) {
        static const char *const codebooks[] = { "3inst", "mcg", "mul1" };
        out->in = desc.exl3.in_stored;
        out->out = desc.out_stored;
        out->bits = (float)desc.exl3.words / 16;
        exl2__format(out->codebook, sizeof out->codebook, "%s", codebooks[desc.exl3.codebook]);
    }
    exl2__tensors_close(c, &tensors);
    return result;
}

#else

EXL2__PRIVATE exl2_result exl2__dump_file(exl2__ctx *c, const exl2_dump_desc *d, exl2_dump_info *out)
{
    (void)d;
    (void)out;
    return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "matrices of EXL3 cannot be read: " EXL2__EXL3_ABSENT);
}

#endif

EXL2__PRIVATE exl2_result exl2__dump_run(exl2__ctx *c, const exl2_dump_desc *d, exl2_dump_info *out)
{
    EXL2__TRY(EXL2__CHECK_ZEROED(c, d, exl2_dump_desc));
    if (!d->model_dir || !d->matrix || !d->out_path || !d->model_dir[0] || !d->matrix[0] || !d->out_path[0]) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_dump needs a model folder, a matrix and the path of a file");
    }
    return exl2__dump_file(c, d, out);
}

EXL2_API exl2_result exl2_dump(const exl2_dump_desc *d, exl2_dump_info *out)
{
    exl2__ctx c = { 0 };
    if (!d || !out) {
        return EXL2_ERR_ARG;
    }
    *out = (exl2_dump_info){ 0 };
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    exl2_result result = exl2__dump_run(&c, d, out);
    if (!d->_start_canary && !d->_end_canary && d->error) { /* else d->error may be garbage, too */
        *d->error = c.error;
    }
    return result;
}

#endif
