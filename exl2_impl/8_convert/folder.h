/* folder.h: an output folder that appears complete or not at all. It is written as OUT.unfinished next to OUT, and
   renamed at the end.
   takes: the path of the folder to create.
   gives: exl2__folder, exl2__folder_begin, exl2__folder_commit, exl2__folder_abandon; exl2__folder_path and
          exl2__folder_lies_in, which check paths.
   owns:  OUT.unfinished on disk, from begin until commit or abandon.

   Beside OUT.unfinished is a locked file, OUT.unfinished.lock, until OUT is complete. So two runs do not write to one
   folder, and a folder without that file was not begun by this program and is left alone. */
#ifndef EXL2__FOLDER_H
#define EXL2__FOLDER_H

#include "../0_base/platform_write.h"
#include "../1_load/file.h"

#define EXL2__FOLDER_TAIL ".unfinished/output-00000-of-00000.safetensors" /* the longest text appended to OUT */

#define EXL2__FOLDER_LOCK ".lock"   /* end of the name of OUT.unfinished's locked file */
#define EXL2__FOLDER_DEPTH_MAX 256u    /* folders of a path that are looked at */

typedef struct exl2__folder {
    char final_path[EXL2__FILE_PATH_MAX], work_path[EXL2__FILE_PATH_MAX]; /* work_path "": not begun, or ended */
    char lock_path[EXL2__FILE_PATH_MAX];
    void *lock; /* NULL: not begun, or ended */
} exl2__folder;

/* Files that a conversion copies from its source, NULL at the end. An import writes some of them, too. */
static const char *const exl2__folder_copied[] = {
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "preprocessor_config.json",
    "processor_config.json", "video_preprocessor_config.json", "vocab.json", "merges.txt", "LICENSE", "LICENSE.txt",
    "NOTICE", "README.md", NULL
};

/* Can an import or a conversion have written a file of this name? No other file is ever deleted. */
EXL2__PRIVATE bool exl2__folder_is_output(const char *name)
{
    for (size_t i = 0; exl2__folder_copied[i]; i++) {
        if (strcmp(name, exl2__folder_copied[i]) == 0) {
            return true;
        }
    }
    if (strcmp(name, "config.json") == 0 || strcmp(name, "measurement.json") == 0
        || strcmp(name, "calibration.json") == 0) {
        return true;
    }
    size_t bytes = strlen(name), end = strlen(".safetensors");
    size_t stem = strncmp(name, "output", 6) == 0 ? 6 : strncmp(name, "model", 5) == 0 ? 5 : bytes;
    return bytes >= stem + end && strcmp(name + bytes - end, ".safetensors") == 0;
}

/* Finds an entry of `dir` that no import can have written: another name, a folder or a link. false: there is none. */
EXL2__PRIVATE bool exl2__folder_find_other(const char *dir, char name[EXL2__FILE_NAME_MAX])
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

/* Removes the files that a conversion or an import has written. */
EXL2__PRIVATE void exl2__folder_empty(const char *dir)
{
    char name[EXL2__FILE_NAME_MAX], path[EXL2__FILE_PATH_MAX + EXL2__FILE_NAME_MAX];
    uint32_t index = 0;
    while (exl2__platform_entry(dir, index, name, sizeof name)) {
        exl2__format(path, sizeof path, "%s/%s", dir, name);
        if (!exl2__folder_is_output(name) || !exl2__platform_remove_file(path)) {
            index++;
        }
    }
}

/* Removes `dir`, which a conversion or an import has created. false: it could not be removed. */
EXL2__PRIVATE bool exl2__folder_remove(const char *dir)
{
    exl2__folder_empty(dir);
    return exl2__platform_remove_dir(dir);
}

/* ---- paths ---- */

/* Copies a path without slashes at its end. `name`: of the desc's member, for the message. */
EXL2__PRIVATE exl2_result exl2__folder_path(exl2__ctx *c, const char *name, const char *path,
                                            char out[EXL2__FILE_PATH_MAX])
{
    size_t bytes = strlen(path), bytes_max = EXL2__FILE_PATH_MAX - sizeof EXL2__FOLDER_TAIL;
    while (bytes > 1 && (path[bytes - 1] == '/' || path[bytes - 1] == '\\')) {
        bytes--;
    }
    if (bytes == 0) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s is an empty string", name);
    }
    if (bytes > bytes_max) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s has %zu bytes, expected 1 to %zu", name, bytes, bytes_max);
    }
    memcpy(out, path, bytes); /* memcpy, because %.*s would drop a cut code point at the end */
    out[bytes] = 0;
    return EXL2_OK;
}

/* The last name of a path without slashes at its end. */
EXL2__PRIVATE const char *exl2__folder_name(const char *path)
{
    const char *name = path;
    for (const char *at = path; *at; at++) {
        name = (*at == '/' || *at == '\\') && at[1] ? at + 1 : name;
    }
    return name;
}

/* The folder that a path without slashes at its end lies in, by its text. */
EXL2__PRIVATE void exl2__folder_parent(const char *path, char out[EXL2__FILE_PATH_MAX])
{
    size_t bytes = (size_t)(exl2__folder_name(path) - path);
    while (bytes > 1 && (path[bytes - 1] == '/' || path[bytes - 1] == '\\')) {
        bytes--;
    }
    exl2__format(out, EXL2__FILE_PATH_MAX, "%s", bytes ? path : ".");
    out[bytes ? bytes : 1] = 0;
}

EXL2__PRIVATE bool exl2__folder_exists(const char *path)
{
    char inside[EXL2__FILE_PATH_MAX + 4];
    exl2__format(inside, sizeof inside, "%s/.", path);
    return exl2__platform_same(inside, path);
}

/* Are two folders the same, or will they be when both are made? */
EXL2__PRIVATE bool exl2__folder_is(const char *a, const char *b)
{
    char x[EXL2__FILE_PATH_MAX], y[EXL2__FILE_PATH_MAX], above[EXL2__FILE_PATH_MAX];
    exl2__format(x, sizeof x, "%s", a);
    exl2__format(y, sizeof y, "%s", b);
    for (uint32_t depth = 0; depth < EXL2__FOLDER_DEPTH_MAX && !exl2__folder_exists(x) && !exl2__folder_exists(y);
         depth++) {
        if (strcmp(exl2__folder_name(x), exl2__folder_name(y)) != 0) {
            return false;
        }
        exl2__folder_parent(x, above);
        memcpy(x, above, sizeof x);
        exl2__folder_parent(y, above);
        memcpy(y, above, sizeof y);
    }
    return exl2__platform_same(x, y);
}

/* Is the folder `path`, which may not exist yet, `dir` itself or in it? Links and names do not matter: folders that
   exist are compared, upwards from `path`. */
EXL2__PRIVATE bool exl2__folder_lies_in(const char *path, const char *dir)
{
    char at[EXL2__FILE_PATH_MAX + 3 * EXL2__FOLDER_DEPTH_MAX + 4], above[sizeof at];
    uint32_t depth = 0;
    exl2__format(at, sizeof at, "%s", path);
    for (; depth < EXL2__FOLDER_DEPTH_MAX && !exl2__folder_exists(at); depth++) {
        if (exl2__folder_is(at, dir)) {
            return true;
        }
        exl2__folder_parent(at, above);
        memcpy(at, above, sizeof at);
    }
    for (; depth < EXL2__FOLDER_DEPTH_MAX && !exl2__platform_same(at, dir); depth++) {
        exl2__format(above, sizeof above, "%s/..", at);
        if (exl2__platform_same(at, above)) {
            return false; /* the root */
        }
        memcpy(at, above, sizeof at);
    }
    return depth < EXL2__FOLDER_DEPTH_MAX;
}

/* ---- OUT.unfinished ---- */

/* Locks the file of a folder that only one run may write to. *lock is NULL after a failure. */
EXL2__PRIVATE exl2_result exl2__folder_lock(exl2__ctx *c, const char *dir, const char *path, void **lock)
{
    uint32_t holder;
    *lock = exl2__platform_lock(path, &holder);
    if (!*lock && holder == UINT32_MAX) { /* it has just begun: its number is not written yet */
        return exl2__fail(c, EXL2_ERR_STATE, "%s is in use by another process; wait until it ends, or choose another "
                          "folder", dir);
    }
    if (!*lock && holder) {
        return exl2__fail(c, EXL2_ERR_STATE, "%s is in use by process %u; wait until it ends, or choose another folder",
                          dir, holder);
    }
    return *lock ? EXL2_OK : exl2__fail(c, EXL2_ERR_IO, "%s: the file cannot be written", path);
}

/* Is the folder at `path` an unfinished one of a run that was killed? It is not if it is a link, holds files that no
   run writes, or was not begun: nothing has locked it. */
EXL2__PRIVATE exl2_result exl2__folder_check_left(exl2__ctx *c, const char *path, bool begun)
{
    char name[EXL2__FILE_NAME_MAX];
    if (exl2__platform_is_link(path)) {
        return exl2__fail(c, EXL2_ERR_STATE, "%s is a link; remove it or choose another folder", path);
    }
    if (!exl2__folder_exists(path)) {
        return exl2__fail(c, EXL2_ERR_IO, "%s: the folder cannot be created", path);
    }
    if (exl2__folder_find_other(path, name)) {
        return exl2__fail(c, EXL2_ERR_STATE, "%s holds %s, which no import writes; remove that folder", path, name);
    }
    if (!begun && exl2__platform_entry(path, 0, name, sizeof name)) {
        return exl2__fail(c, EXL2_ERR_STATE, "%s holds %s, and no import has begun that folder; move it away, or "
                          "remove it", path, name);
    }
    return EXL2_OK;
}

/* Can a folder be created at `path`? It may be free or an empty folder. This is checked before hours of work, not
   after. */
EXL2__PRIVATE bool exl2__folder_is_free(const char *path)
{
    return exl2__platform_make_dir(path) ? exl2__platform_remove_dir(path)
                                         : exl2__platform_remove_dir(path) && exl2__platform_make_dir(path);
}

/* Creates an empty OUT.unfinished. The files of a killed import are removed from it. OUT must not exist, or be an empty
   folder. */
EXL2__PRIVATE exl2_result exl2__folder_begin(exl2__ctx *c, exl2__folder *f, const char *out_dir)
{
    char name[EXL2__FILE_NAME_MAX], work_path[EXL2__FILE_PATH_MAX];
    memset(f, 0, sizeof *f);
    EXL2__TRY(exl2__folder_path(c, "out_dir", out_dir, f->final_path));
    if (c->files.list(c->files.user, out_dir, 0, name, sizeof name)) {
        return exl2__fail(c, EXL2_ERR_STATE,
                          "%s exists and is not empty (it holds %s); remove it or choose another folder", out_dir,
                          name);
    }
    if (!exl2__folder_is_free(f->final_path)) {
        return exl2__fail(c, EXL2_ERR_IO,
                          "%s: the folder cannot be created; its parent must be a writable folder, and at most an "
                          "empty folder may have its name", f->final_path);
    }
    exl2__format(work_path, sizeof work_path, "%s.unfinished", f->final_path);
    exl2__format(f->lock_path, sizeof f->lock_path, "%s%s", work_path, EXL2__FOLDER_LOCK);
    bool begun = exl2__platform_is_file(f->lock_path);
    EXL2__TRY(exl2__folder_lock(c, work_path, f->lock_path, &f->lock));
    exl2_result result = exl2__platform_make_dir(work_path) ? EXL2_OK : exl2__folder_check_left(c, work_path, begun);
    if (result < 0) {
        if (begun) {
            exl2__platform_finish(f->lock); /* the file stays, and says again that the folder was begun */
        } else {
            exl2__platform_unlock(f->lock, f->lock_path);
        }
        f->lock = NULL;
        return result;
    }
    exl2__folder_empty(work_path);
    memcpy(f->work_path, work_path, sizeof work_path);
    return EXL2_OK;
}

/* Renames OUT.unfinished to OUT, and waits until that is on the disk. */
EXL2__PRIVATE exl2_result exl2__folder_commit(exl2__ctx *c, exl2__folder *f)
{
    char parent[EXL2__FILE_PATH_MAX];
    exl2__platform_sync_dir(f->work_path);
    exl2__platform_remove_dir(f->final_path); /* if it is empty; Windows cannot rename over it */
    if (!exl2__platform_rename(f->work_path, f->final_path)) {
        return exl2__fail(c, EXL2_ERR_IO, "%s: the folder cannot be renamed to %s", f->work_path, f->final_path);
    }
    exl2__folder_parent(f->final_path, parent);
    exl2__platform_sync_dir(parent);
    exl2__platform_unlock(f->lock, f->lock_path);
    f->lock = NULL;
    f->work_path[0] = 0;
    return EXL2_OK;
}

/* Removes OUT.unfinished unless it was committed. Accepts zeroed ones. */
EXL2__PRIVATE void exl2__folder_abandon(exl2__folder *f)
{
    if (f->lock) {
        exl2__folder_remove(f->work_path);
        exl2__platform_unlock(f->lock, f->lock_path);
        f->lock = NULL;
        f->work_path[0] = 0;
    }
}

#endif
