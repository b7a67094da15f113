/* json_file.h: reads and parses a JSON file in slices.
   takes: a folder, a name in it, a maximum size.
   gives: exl2__json_file, exl2__json_file_open, exl2__json_file_slice, exl2__json_file_close.
   owns:  the file's text and tokens, until exl2__json_file_close. */
#ifndef EXL2__JSON_FILE_H
#define EXL2__JSON_FILE_H

#include "../0_base/json/json.h"
#include "file.h"

/* Zeroed: no file. */
typedef struct exl2__json_file {
    exl2__file_reader reader;
    exl2__json_parse parse;
    const char *const *flat_keys; /* as for exl2__json_parse_begin */
} exl2__json_file;

static inline void exl2__json_file_close(exl2__ctx *c, exl2__json_file *f)
{
    exl2__json_parse_close(c, &f->parse);
    exl2__file_reader_close(c, &f->reader);
}

EXL2__PRIVATE exl2_result exl2__json_file_open(exl2__ctx *c, const char *dir, const char *name, uint64_t bytes_max,
                                               const char *const *flat_keys, exl2__json_file *f)
{
    memset(f, 0, sizeof *f);
    f->flat_keys = flat_keys;
    return exl2__file_reader_open(c, dir, name, bytes_max, &f->reader);
}

/* OK: f->parse.j is the file. If there is no such file, its `tokens` are NULL. */
EXL2__PRIVATE exl2_result exl2__json_file_slice(exl2__ctx *c, exl2__json_file *f, exl2__work *work)
{
    const exl2__blob *text = &f->reader.blob;
    EXL2__TRY_DONE(exl2__file_reader_slice(c, &f->reader, work));
    if (!text->data) {
        return EXL2_OK;
    }
    if (!f->parse.j.text) {
        EXL2__TRY(exl2__file_check_text(c, f->reader.name, text));
        EXL2__TRY(exl2__json_parse_begin(c, &f->parse, f->reader.name, text->data, (size_t)text->bytes, f->flat_keys));
        f->parse.scan.nonfinite = true;
    }
    return exl2__json_parse_slice(c, &f->parse, work);
}

#endif
