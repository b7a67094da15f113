/* folder.h: an output folder that appears complete or not at all. It is written as OUT.unfinished next to OUT, and
   renamed at the end.
   takes: the path of the folder to create.
   gives: exl2__folder, exl2__folder_begin, exl2__folder_commit, exl2__folder_abandon.
   owns:  OUT.unfinished on disk, from begin until commit or abandon. */
#ifndef EXL2__FOLDER_H
#define EXL2__FOLDER_H

#include "../0_base/platform_write.h"
#include "../1_load/file.h"

#define EXL2__FOLDER_TAIL ".unfinished/output-00000-of-00000.safetensors" /* the longest text appended to OUT */

typedef struct exl2__folder {
    char final_path[EXL2__FILE_PATH_MAX], work_path[EXL2__FILE_PATH_MAX]; /* work_path "": not begun, or ended */
} exl2__folder;

/* Files that a conversion copies from its source, NULL at the end. An import writes some of them, too. */
static const char *const exl2__folder_copied[] = {
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "vocab.json", "merges.txt", "LICENSE",
    "LICENSE.txt", "NOTICE", "README.md", NULL
};

/* Can an import or a conversion have written a file of this name? No other file is ever deleted. */
static bool exl2__folder_is_output(const char *name)
{
    for (size_t i = 0; exl2__folder_copied[i]; i++) {
        if (strcmp(name, exl2__folder_copied[i]) == 0) {
            return true;
        }
    }
    if (strcmp(name, "config.json") == 0 || strcmp(name, "measurement.json") == 0) {
        return true;
    }
    size_t bytes = strlen(name), end = strlen(".safetensors");
    size_t stem = strncmp(name, "output", 6) == 0 ? 6 : strncmp(name, "model", 5) == 0 ? 5 : bytes;
    return bytes >= stem + end && strcmp(name + bytes - end, ".safetensors") == 0;
}

/* Finds an entry of `dir` that no import can have written: another name, a folder or a link. false: there is none. */
static bool exl2__folder_find_other(const char *dir, char name[EXL2__FILE_NAME_MAX])
{
    char path[EXL2__FILE_PATH_MAX + EXL2__FILE_NAME_MAX];
    for (uint32_t index = 0; exl2__platform_entry(dir, index, name, EXL2__FILE_NAME_MAX); index++) {
        exl2__format(path, sizeof path, "%s/%s", dir, name);
        if (!exl2__folder_is_output(name) || !exl2__platform_is_file(path)) {
            return true;
        }
    }
    return false;
}

/* Removes `dir`, which an import has created. false: it could not be removed. */
static bool exl2__folder_remove(const char *dir)
{
    char name[EXL2__FILE_NAME_MAX], path[EXL2__FILE_PATH_MAX + EXL2__FILE_NAME_MAX];
    uint32_t index = 0;
    while (exl2__platform_entry(dir, index, name, sizeof name)) {
        exl2__format(path, sizeof path, "%s/%s", dir, name);
        if (!exl2__folder_is_output(name) || !exl2__platform_remove_file(path)) {
            index++;
        }
    }
    return exl2__platform_remove_dir(dir);
}

/* Removes the unfinished folder of an import that was killed. If anything else is at `path`, it fails before it deletes
   a file. */
static exl2_result exl2__folder_clear(exl2__ctx *c, const char *path)
{
    char name[EXL2__FILE_NAME_MAX];
    if (exl2__platform_is_link(path)) {
        return exl2__fail(c, EXL2_ERR_STATE, "%s is a link; remove it or choose another folder", path);
    }
    if (exl2__folder_find_other(path, name)) {
        return exl2__fail(c, EXL2_ERR_STATE, "%s holds %s, which no import writes; remove that folder", path, name);
    }
    return exl2__folder_remove(path) ? EXL2_OK : exl2__fail(c, EXL2_ERR_IO, "%s: the folder cannot be removed", path);
}

/* Can a folder be created at `path`? It may be free or an empty folder. This is checked before hours of work, not
   after. */
static bool exl2__folder_is_free(const char *path)
{
    return exl2__platform_make_dir(path) ? exl2__platform_remove_dir(path)
                                         : exl2__platform_remove_dir(path) && exl2__platform_make_dir(path);
}

/* Creates an empty OUT.unfinished. The files of a killed import are removed from it. OUT must not exist, or be an empty
   folder. */
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
        return exl2__fail(c, EXL2_ERR_ARG, "out_dir has %zu bytes, expected 1 to %zu", bytes, bytes_max);
    }
    if (c->files.list(c->files.user, out_dir, 0, name, sizeof name)) {
        return exl2__fail(c, EXL2_ERR_STATE,
                          "%s exists and is not empty (it holds %s); remove it or choose another folder", out_dir,
                          name);
    }
    char work_path[EXL2__FILE_PATH_MAX];
    memcpy(f->final_path, out_dir, bytes); /* memcpy, because %.*s would drop a cut code point at the end */
    exl2__format(work_path, sizeof work_path, "%s.unfinished", f->final_path);
    if (!exl2__folder_is_free(f->final_path)) {
        return exl2__fail(c, EXL2_ERR_IO,
                          "%s: the folder cannot be created; its parent must be a writable folder, and at most an "
                          "empty folder may have its name", f->final_path);
    }
    if (!exl2__platform_make_dir(work_path)) {
        EXL2__TRY(exl2__folder_clear(c, work_path));
        if (!exl2__platform_make_dir(work_path)) {
            return exl2__fail(c, EXL2_ERR_IO, "%s: the folder cannot be created", work_path);
        }
    }
    memcpy(f->work_path, work_path, sizeof work_path);
    return EXL2_OK;
}

/* Renames OUT.unfinished to OUT. */
static exl2_result exl2__folder_commit(exl2__ctx *c, exl2__folder *f)
{
    exl2__platform_remove_dir(f->final_path); /* if it is empty; Windows cannot rename over it */
    if (!exl2__platform_rename(f->work_path, f->final_path)) {
        return exl2__fail(c, EXL2_ERR_IO, "%s: the folder cannot be renamed to %s", f->work_path, f->final_path);
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
