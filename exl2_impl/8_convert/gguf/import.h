/* import.h: imports a GGUF file into a folder with a model, which is created completely or not at all.
   takes: exl2_import_desc.
   gives: exl2_import_gguf; exl2__import_gguf, which does the same with a given context; exl2__import_outline.
   owns:  all files and memory of an import, until it returns. */
#ifndef EXL2__IMPORT_H
#define EXL2__IMPORT_H

#include "../folder.h"
#include "import_config_write.h"
#include "import_model.h"
#include "import_text_write.h"

#ifdef EXL2_NO_FILES
#error "EXL2_CONVERT reads and writes files: it cannot be used with EXL2_NO_FILES"
#endif

/* All that an import holds, freed in one place. */
typedef struct exl2__import {
    exl2__gguf gguf;
    exl2__import_config config;
    exl2__import_text text;
    exl2__import_plan plan;
    exl2__folder folder;
} exl2__import;

EXL2__PRIVATE exl2_result exl2__import_check(exl2__ctx *c, const exl2_import_desc *d, exl2__import_config *config)
{
    EXL2__TRY(EXL2__CHECK_ZEROED(c, d, exl2_import_desc));
    config->bits = d->bits ? d->bits : 8;
    config->group = d->group ? d->group : 32;
    config->head_bits = d->head_bits ? d->head_bits : 8;
    if (!d->gguf_path || !d->out_dir) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_import_desc.%s is NULL", d->gguf_path ? "out_dir" : "gguf_path");
    }
    if (!d->gguf_path[0] || !d->out_dir[0]) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s is an empty string", d->gguf_path[0] ? "out_dir" : "gguf_path");
    }
    bool dense = config->bits == EXL2__IMPORT_DENSE_BITS;
    if (dense && (d->group || d->head_bits)) {
        return exl2__fail(c, EXL2_ERR_ARG, "bits is %u, so nothing is quantized, and group and head_bits must be 0",
                          config->bits);
    }
    if ((!exl2__pack_bits_valid(config->bits) && !dense) || !exl2__pack_bits_valid(config->head_bits)) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "bits is %u and head_bits is %u, expected 2, 3, 4, 5, 6 or 8, or 16 for bits", config->bits,
                          config->head_bits);
    }
    if (config->group != 32 && config->group != 64 && config->group != 128) {
        return exl2__fail(c, EXL2_ERR_ARG, "group is %u, expected 32, 64 or 128", config->group);
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__import_describe(const exl2__import *im, exl2_import_info *info)
{
    const char *tokenizer = !im->text.family ? "none" : exl2__import_text_is_spm(&im->text) ? "spm" : "bpe";
    exl2__format(info->arch, sizeof info->arch, "%s", im->config.arch.name);
    exl2__format(info->from, sizeof info->from, "%s", im->config.family->gguf);
    exl2__format(info->tokenizer, sizeof info->tokenizer, "%s", tokenizer);
    exl2__format(info->warning, sizeof info->warning, "%s", im->text.warning);
    info->tensors = im->gguf.tensor_count;
    info->bits = im->config.bits;
}

/* Everything is read and checked before the first byte is written. outline: NULL, or only headers are written of the
   files of tensors, and it gets their size. */
EXL2__PRIVATE exl2_result exl2__import_steps(exl2__ctx *c, const exl2_import_desc *d, exl2__import *im,
                                             uint64_t *outline)
{
    EXL2__TRY(exl2__import_check(c, d, &im->config));
    EXL2__TRY(exl2__gguf_split_open(c, d->gguf_path, &im->gguf));
    EXL2__TRY(exl2__import_config_read(&im->gguf, &im->config));
    EXL2__TRY(exl2__import_text_read(&im->gguf, im->config.vocab, d->no_tokenizer, &im->text));
    EXL2__TRY(exl2__import_plan_make(&im->gguf, &im->config, &im->plan));
    EXL2__TRY(exl2__folder_begin(c, &im->folder, d->out_dir));
    EXL2__TRY(exl2__import_config_write(c, im->folder.work_path, &im->config, &im->text.ids));
    EXL2__TRY(exl2__import_text_write(c, im->folder.work_path, &im->text, im->config.context));
    EXL2__TRY(outline ? exl2__import_model_outline(&im->plan, im->folder.work_path, outline)
                      : exl2__import_model_run(&im->plan, d, im->folder.work_path, EXL2__SHARDS_BYTES));
    EXL2__TRY(exl2__folder_commit(c, &im->folder));
    if (d->info) {
        exl2__import_describe(im, d->info);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_folder(exl2__ctx *c, const exl2_import_desc *d, uint64_t *outline)
{
    exl2__import im;
    memset(&im, 0, sizeof im);
    exl2_result result = exl2__import_steps(c, d, &im, outline);
    exl2__import_plan_close(&im.plan);
    exl2__import_text_close(&im.text);
    exl2__gguf_close(&im.gguf);
    exl2__folder_abandon(&im.folder);
    return result;
}

EXL2__PRIVATE exl2_result exl2__import_gguf(exl2__ctx *c, const exl2_import_desc *d)
{
    return exl2__import_folder(c, d, NULL);
}

/* Makes the folder, but with files of tensors that end after their headers. *bytes: what they would have. */
EXL2__PRIVATE exl2_result exl2__import_outline(exl2__ctx *c, const exl2_import_desc *d, uint64_t *bytes)
{
    return exl2__import_folder(c, d, bytes);
}

EXL2_API exl2_result exl2_import_gguf(const exl2_import_desc *d)
{
    exl2__ctx c;
    if (!d) {
        return EXL2_ERR_ARG;
    }
    memset(&c, 0, sizeof c);
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.cpu_path = exl2__cpu_path_best();
    c.parallel = d->parallel;
    exl2_result result = exl2__import_gguf(&c, d);
    if (!d->_start_canary && !d->_end_canary && d->error) { /* else d->error may be garbage, too */
        *d->error = c.error;
    }
    return result;
}

#endif
