/* convert_rig.h: what the tests of conversions share: a folder of their own, a file of ids to calibrate with, and
   removing folders.
   takes: exl2.h with EXL2_CONVERT, and 1_load/file.h, both included before.
   gives: root, out_dir, cal_file; rig_open, rig_desc, rig_close, remove_folder.
   owns:  the folder `root`, from rig_open to rig_close. */
#ifndef CONVERT_RIG_H
#define CONVERT_RIG_H

#include "private/platform_write.h"
#include "check.h"

#include <unistd.h>

static char root[512], out_dir[600], cal_file[600];

/* false: something in the folder cannot be removed. */
static inline bool remove_folder(const char *dir)
{
    char name[EXL2__FILE_NAME_MAX], path[1400];
    while (exl2__platform_entry(dir, 0, name, sizeof name)) {
        bool fits = snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path;
        if (!fits || (!exl2__platform_remove_file(path) && !remove_folder(path))) {
            return false;
        }
    }
    return exl2__platform_remove_dir(dir);
}

/* Makes `root`, and in it cal_file: a list of `ids` random ids below `vocab`. */
static inline void rig_open(uint32_t ids, uint32_t vocab)
{
    const char *temporary = check_env("TMPDIR");
    snprintf(root, sizeof root, "%s/exl2-convert-XXXXXX", temporary ? temporary : "/tmp");
    if (!CHECK(mkdtemp(root) != NULL)) {
        exit(check_done());
    }
    snprintf(out_dir, sizeof out_dir, "%s/out", root);
    snprintf(cal_file, sizeof cal_file, "%s/ids.json", root);
    FILE *file = fopen(cal_file, "wb");
    if (!CHECK(file != NULL)) {
        exit(check_done());
    }
    uint32_t state = 5;
    fputc('[', file);
    for (uint32_t i = 0; i < ids; i++) {
        state = state * 1664525u + 1013904223u;
        fprintf(file, "%s%u", i ? "," : "", (state >> 8) % vocab);
    }
    fputs("]\n", file);
    fclose(file);
}

/* A conversion of `source` into out_dir, with rows of cal_file; 0: the defaults of exl2_convert_desc. */
static inline exl2_convert_desc rig_desc(const char *source, uint32_t rows, uint32_t length)
{
    static const char *const files[1] = { cal_file };
    exl2_convert_desc d = { 0 };
    d.backend = EXL2_BACKEND_CPU; /* also on a machine with a GPU */
    d.source_dir = source;
    d.out_dir = out_dir;
    d.calibration_files = files;
    d.calibration_file_count = 1;
    d.rows = rows;
    d.length = length;
    return d;
}

static inline void rig_close(void)
{
    CHECK(remove_folder(root));
}

#endif
