/* folder.h: an output folder that appears whole or not at all: written as OUT.unfinished beside it, renamed at the end.
   takes: the path of the folder to make.
   gives: exl2__folder, exl2__folder_begin, exl2__folder_commit, exl2__folder_abandon.
   owns:  OUT.unfinished on disk, from begin until commit or abandon. */
#ifndef EXL2__FOLDER_H
#define EXL2__FOLDER_H

#include "../0_base/platform.h"
#include "../1_load/file.h"

#define EXL2__FOLDER_TAIL ".unfinished/output-00000-of-00000.safetensors" /* the longest text put behind OUT */

typedef struct exl2__folder {
    char final_path[EXL2__FILE_PATH_MAX], work_path[EXL2__FILE_PATH_MAX]; /* "": not begun */
} exl2__folder;

/* What a run of ours can have left behind; nothing else is ever deleted. */
static bool exl2__folder_is_ours(const char *name)
{
    static const char *const names[] = { "config.json", "generation_config.json", "tokenizer.json",
                                         "tokenizer_config.json" };
    for (size_t i = 0; i < EXL2__COUNT(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    size_t bytes = strlen(name), end = strlen(".safetensors");
    return strncmp(name, "output", 6) == 0 && bytes >= 6 + end && strcmp(name + bytes - end, ".safetensors") == 0;
}

/* What in `dir` is not of an import: another name, a folder, a link. false: nothing is. */
static bool exl2__folder_foreign(const char *dir, char name[EXL2__FILE_NAME_MAX])
{
    char path[EXL2__FILE_PATH_MAX + EXL2__FILE_NAME_MAX];
    for (uint32_t index = 0; exl2__platform_entry(dir, index, name, EXL2__FILE_NAME_MAX); index++) {
        exl2__format(path, sizeof path, "%s/%s", dir, name);
        if (!exl2__folder_is_ours(name) || !exl2__platform_is_file(path)) {
            return true;
        }
    }
    return false;
}

/* Removes `dir`, which a run of ours has made; false: it is still there. */
static bool exl2__folder_remove(const char *dir)
{
    char name[EXL2__FILE_NAME_MAX], path[EXL2__FILE_PATH_MAX + EXL2__FILE_NAME_MAX];
    uint32_t index = 0;
    while (exl2__platform_entry(dir, index, name, sizeof name)) {
        exl2__format(path, sizeof path, "%s/%s", dir, name);
        if (!exl2__folder_is_ours(name) || !exl2__platform_remove_file(path)) {
            index++;
        }
    }
    return exl2__platform_remove_dir(dir);
}

/* Takes away what a killed run left at `path`. Anything else there is refused before a file is deleted. */
static exl2_result exl2__folder_clear(exl2__ctx *c, const char *path)
{
    char name[EXL2__FILE_NAME_MAX];
    if (exl2__platform_is_link(path)) {
        return exl2__fail(c, EXL2_ERR_STATE, "%s is a link; remove it or choose another folder", path);
    }
    if (exl2__folder_foreign(path, name)) {
        return exl2__fail(c, EXL2_ERR_STATE, "%s holds %s, which is not of an import; remove that folder", path, name);
    }
    return exl2__folder_remove(path) ? EXL2_OK : exl2__fail(c, EXL2_ERR_IO, "%s: cannot be removed", path);
}

/* A folder could take this name: it is free, or that of an empty folder. Known before hours of work, not after. */
static bool exl2__folder_is_free(const char *path)
{
    return exl2__platform_make_dir(path) ? exl2__platform_remove_dir(path)
                                         : exl2__platform_remove_dir(path) && exl2__platform_make_dir(path);
}

/* Makes OUT.unfinished, empty; takes away what a killed run left there. OUT must not exist, or be empty. */
static exl2_result exl2__folder_begin(exl2__ctx *c, exl2__folder *f, const char *out_dir)
{
    char name[EXL2__FILE_NAME_MAX];
    size_t bytes = strlen(out_dir);
    while (bytes > 1 && (out_dir[bytes - 1] == '/' || out_dir[bytes - 1] == '\\')) {
        bytes--;
    }
    *f = (exl2__folder){ { 0 }, { 0 } };
    size_t bytes_max = EXL2__FILE_PATH_MAX - sizeof EXL2__FOLDER_TAIL;
    if (bytes == 0 || bytes > bytes_max) {
        return exl2__fail(c, EXL2_ERR_ARG, "out_dir has %zu bytes; 1 to %zu are possible", bytes, bytes_max);
    }
    if (c->files.list(c->files.user, out_dir, 0, name, sizeof name)) {
        return exl2__fail(c, EXL2_ERR_STATE,
                          "%s exists and is not empty (it holds %s); remove it or choose another folder", out_dir,
                          name);
    }
    char work_path[EXL2__FILE_PATH_MAX];
    memcpy(f->final_path, out_dir, bytes); /* as it is: %.*s would leave out the beginning of a code point at its end */
    exl2__format(work_path, sizeof work_path, "%s.unfinished", f->final_path);
    if (!exl2__folder_is_free(f->final_path)) {
        return exl2__fail(c, EXL2_ERR_IO,
                          "%s: cannot be made; its parent must be a folder that may be written to, and nothing of that "
                          "name be there but an empty folder",
                          f->final_path);
    }
    if (!exl2__platform_make_dir(work_path)) {
        EXL2__TRY(exl2__folder_clear(c, work_path));
        if (!exl2__platform_make_dir(work_path)) {
            return exl2__fail(c, EXL2_ERR_IO, "%s: cannot be made", work_path);
        }
    }
    memcpy(f->work_path, work_path, sizeof work_path);
    return EXL2_OK;
}

/* OUT.unfinished becomes OUT. */
static exl2_result exl2__folder_commit(exl2__ctx *c, exl2__folder *f)
{
    exl2__platform_remove_dir(f->final_path); /* an empty one; Windows does not rename over it */
    if (!exl2__platform_rename(f->work_path, f->final_path)) {
        return exl2__fail(c, EXL2_ERR_IO, "%s: cannot be renamed to %s", f->work_path, f->final_path);
    }
    f->work_path[0] = 0;
    return EXL2_OK;
}

/* Removes OUT.unfinished unless it was committed. Accepts zeroed ones. */
static void exl2__folder_abandon(exl2__folder *f)
{
    if (f->work_path[0]) {
        exl2__folder_remove(f->work_path);
        f->work_path[0] = 0;
    }
}

#endif
