/* workdir.h: the folder in which a conversion keeps what it has finished, so that a killed one continues.
   takes: a path, a text that says what the conversion is.
   gives: exl2__workdir, exl2__workdir_open, exl2__workdir_close, exl2__workdir_save, exl2__workdir_load,
          exl2__workdir_bytes, exl2__workdir_has_parts, exl2__workdir_remove.
   owns:  the lock of the folder, until exl2__workdir_close; files of the names that exl2__workdir_is_ours accepts, in a
          folder that it has made, or that was empty, or that holds its job.txt.

   A file appears whole or not at all: it is written under another name, reaches the disk, and is then renamed. Its head
   holds the size and a hash of the data and of what the conversion is, so that a damaged file, and one of another
   conversion, counts as one that is not there. */
#ifndef EXL2__WORKDIR_H
#define EXL2__WORKDIR_H

#include "../../0_base/hash.h"
#include "../../0_base/platform_write.h"
#include "../../1_load/file.h"
#include "../folder.h"
#include "../tasks.h"

#define EXL2__WORKDIR_MAGIC 0x324B524F574C5845u /* "EXLWORK2" */
#ifndef EXL2__WORKDIR_CHUNK
#define EXL2__WORKDIR_CHUNK ((uint64_t)1 << 20) /* bytes of a file that one task hashes */
#endif
#define EXL2__WORKDIR_HASH 0xCBF29CE484222325u
#define EXL2__WORKDIR_TEXT "job.txt"
#define EXL2__WORKDIR_TEXT_BEGIN "version: "
#define EXL2__WORKDIR_LOCK "exl2.lock" /* the locked file of a folder in which a conversion works */
#define EXL2__WORKDIR_TEXT_MAX 65536u
#define EXL2__WORKDIR_DIR_MAX (EXL2__FILE_PATH_MAX - 64)

typedef struct exl2__workdir {
    exl2__ctx *c;
    char dir[EXL2__FILE_PATH_MAX];
    uint64_t job; /* a hash of what the conversion is */
    void *lock;   /* NULL: the folder is not open */
} exl2__workdir;

typedef struct exl2__workdir_head {
    uint64_t magic, bytes, hash;
} exl2__workdir_head;

/* Data of a file, in pieces. */
typedef struct exl2__workdir_piece {
    void *data;
    uint64_t bytes;
} exl2__workdir_piece;

/* Moves *name past a number; false: there is none. */
EXL2__PRIVATE bool exl2__workdir_skip_number(const char **name)
{
    size_t digits = strspn(*name, "0123456789");
    *name += digits;
    return digits > 0;
}

/* Is the rest of a name `end`, perhaps with ".part"? */
EXL2__PRIVATE bool exl2__workdir_ends(const char *rest, const char *end)
{
    size_t bytes = strlen(end);
    return strncmp(rest, end, bytes) == 0 && (rest[bytes] == 0 || strcmp(rest + bytes, ".part") == 0);
}

/* Is it the name of a file or folder that a conversion writes? No other one is ever deleted. */
EXL2__PRIVATE bool exl2__workdir_is_ours(const char *name)
{
    static const char *const names[] = { EXL2__WORKDIR_TEXT, EXL2__WORKDIR_TEXT "-backend", "ids", "ids-rows", "states",
                                         "states-of-both", "head-codes", "head-moments", "head-losses", "source",
                                         "source.unfinished", "source.unfinished.lock", "source-outline",
                                         "source-outline.unfinished", "source-outline.unfinished.lock",
                                         EXL2__WORKDIR_LOCK };
    bool ours = false;
    for (size_t i = 0; i < EXL2__COUNT(names); i++) {
        ours = ours || exl2__workdir_ends(name, names[i]);
    }
    if (strncmp(name, "layer-", 6) != 0) {
        return ours;
    }
    name += 6;
    if (!exl2__workdir_skip_number(&name)) {
        return false;
    }
    if (*name != '-') {
        return exl2__workdir_ends(name, ".losses");
    }
    name++;
    return exl2__workdir_skip_number(&name) && (exl2__workdir_ends(name, ".codes") || exl2__workdir_ends(name,
                                                                                                         ".moments"));
}

EXL2__PRIVATE void exl2__workdir_path(const exl2__workdir *w, const char *name, const char *tail,
                                      char path[EXL2__FILE_PATH_MAX])
{
    exl2__format(path, EXL2__FILE_PATH_MAX, "%s/%s%s", w->dir, name, tail);
}

/* FNV-1a over eight bytes at a time, in four chains, because some files have gigabytes; continues from `hash`. */
EXL2__PRIVATE uint64_t exl2__workdir_hash(uint64_t hash, const void *data, uint64_t bytes)
{
    const uint8_t *p = (const uint8_t *)data;
    uint64_t chains[4] = { hash, hash + 1, hash + 2, hash + 3 }, words[4];
    for (; bytes >= sizeof words; bytes -= sizeof words, p += sizeof words) {
        memcpy(words, p, sizeof words);
        for (uint32_t i = 0; i < 4; i++) {
            chains[i] = (chains[i] ^ words[i]) * 0x100000001B3u;
            chains[i] ^= chains[i] >> 29;
        }
    }
    for (uint32_t i = 0; i < 4; i++) {
        hash = (hash ^ chains[i]) * 0x100000001B3u;
        hash ^= hash >> 29;
    }
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = (hash ^ word) * 0x100000001B3u;
        hash ^= hash >> 29;
    }
    for (; bytes > 0; bytes--, p++) {
        hash = (hash ^ *p) * 0x100000001B3u;
    }
    return hash;
}

/* Chunks of the pieces of a file that are hashed, and read or written, together. */
typedef struct exl2__workdir_chunks {
    const char *name;
    void *file;
    bool reads;
    struct {
        uint8_t *data;
        uint64_t at, bytes; /* at: in the file */
        uint64_t hash;
    } items[EXL2__TASKS_TRY_MAX];
} exl2__workdir_chunks;

/* Part: one chunk. */
EXL2__PRIVATE exl2_result exl2__workdir_chunk(exl2__ctx *c, void *arg, uint32_t index)
{
    exl2__workdir_chunks *k = (exl2__workdir_chunks *)arg;
    uint8_t *data = k->items[index].data;
    uint64_t bytes = k->items[index].bytes;
    if (k->reads) {
        EXL2__TRY(exl2__file_read_at(c, k->name, k->file, k->items[index].at, data, bytes));
    }
    k->items[index].hash = exl2__workdir_hash(EXL2__WORKDIR_HASH, data, bytes);
    return EXL2_OK;
}

/* Reads or writes all pieces of a file from behind its head on, and makes the head: the hash is of those of the
   chunks. */
EXL2__PRIVATE exl2_result exl2__workdir_pass(const exl2__workdir *w, const char *name, void *file, bool reads,
                                             const exl2__workdir_piece *pieces, uint32_t count,
                                             exl2__workdir_head *head)
{
    exl2__workdir_chunks k = { .name = name, .file = file, .reads = reads };
    uint64_t in_piece = 0;
    *head = (exl2__workdir_head){ EXL2__WORKDIR_MAGIC, 0, EXL2__WORKDIR_HASH ^ w->job };
    for (uint32_t piece = 0, chunks; piece < count;) {
        for (chunks = 0; piece < count && chunks < EXL2__TASKS_TRY_MAX;) {
            uint64_t bytes = exl2__min64(pieces[piece].bytes - in_piece, EXL2__WORKDIR_CHUNK);
            k.items[chunks].data = (uint8_t *)pieces[piece].data + in_piece;
            k.items[chunks].at = sizeof *head + head->bytes;
            k.items[chunks].bytes = bytes;
            chunks += bytes > 0;
            head->bytes += bytes;
            in_piece += bytes;
            if (in_piece == pieces[piece].bytes) {
                piece++;
                in_piece = 0;
            }
        }
        EXL2__TRY(exl2__tasks_try(w->c, chunks, exl2__workdir_chunk, &k));
        for (uint32_t i = 0; i < chunks; i++) {
            head->hash = exl2__workdir_hash(head->hash, &k.items[i].hash, sizeof k.items[i].hash);
            if (!reads && !exl2__platform_write(file, k.items[i].at, k.items[i].data, (size_t)k.items[i].bytes)) {
                return EXL2_ERR_IO;
            }
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__workdir_save(const exl2__workdir *w, const char *name,
                                             const exl2__workdir_piece *pieces, uint32_t count)
{
    char path[EXL2__FILE_PATH_MAX], final_path[EXL2__FILE_PATH_MAX];
    exl2__workdir_head head = { 0 };
    exl2__workdir_path(w, name, ".part", path);
    exl2__workdir_path(w, name, "", final_path);
    void *file = exl2__platform_create(path);
    bool good = file && exl2__workdir_pass(w, name, file, false, pieces, count, &head) >= 0;
    good = good && exl2__platform_write(file, 0, &head, sizeof head);
    good = good && exl2__platform_sync(file);
    good = (!file || exl2__platform_finish(file)) && good;
    good = good && exl2__platform_replace(path, final_path);
    return good ? EXL2_OK : exl2__fail(w->c, EXL2_ERR_IO, "%s: writing failed (disk full?)", path);
}

/* *found: the file exists, whole, and has exactly the size of the pieces, which are then filled in. */
EXL2__PRIVATE exl2_result exl2__workdir_load(const exl2__workdir *w, const char *name,
                                             const exl2__workdir_piece *pieces, uint32_t count, bool *found)
{
    exl2__workdir_head head, wanted = { 0 };
    uint64_t bytes, sum = sizeof head;
    void *file;
    *found = false;
    EXL2__TRY(exl2__file_open(w->c, w->dir, name, &file, &bytes));
    for (uint32_t i = 0; i < count; i++) {
        sum += pieces[i].bytes;
    }
    exl2_result result = EXL2_OK;
    if (file && bytes == sum) {
        result = exl2__file_read_at(w->c, name, file, 0, &head, sizeof head);
        result = result < 0 ? result : exl2__workdir_pass(w, name, file, true, pieces, count, &wanted);
        *found = result >= 0 && memcmp(&head, &wanted, sizeof head) == 0;
    }
    if (file) {
        w->c->files.close(w->c->files.user, file);
    }
    return result;
}

/* Bytes of the files in a folder, without those of other folders in it. */
EXL2__PRIVATE uint64_t exl2__workdir_bytes(exl2__ctx *c, const char *dir)
{
    char name[EXL2__FILE_NAME_MAX];
    uint64_t sum = 0, bytes;
    void *file;
    for (uint32_t i = 0; c->files.list(c->files.user, dir, i, name, sizeof name); i++) {
        if (exl2__file_open(c, dir, name, &file, &bytes) >= 0 && file) {
            sum += bytes;
            c->files.close(c->files.user, file);
        }
    }
    return sum;
}

/* Finds the first line that differs, and names what is before its colon. */
EXL2__PRIVATE exl2_result exl2__workdir_differs(const exl2__workdir *w, const char *old, const char *text)
{
    while (*old && *text) {
        size_t a = strcspn(old, "\n"), b = strcspn(text, "\n");
        if (a != b || memcmp(old, text, a) != 0) {
            break;
        }
        old += a + (old[a] == '\n');
        text += b + (text[b] == '\n');
    }
    int name = (int)strcspn(text, ":\n"), before = (int)strcspn(old, "\n"), now = (int)strcspn(text, "\n");
    return exl2__fail(w->c, EXL2_ERR_STATE, "%s belongs to another conversion: %.*s differs (it has '%.*s', now '%.*s')"
                      "; remove that folder, or choose another one", w->dir, name, text, before, old, now, text);
}

/* Is anything in the folder besides what says which conversion it is? */
EXL2__PRIVATE bool exl2__workdir_has_parts(const exl2__workdir *w)
{
    char name[EXL2__FILE_NAME_MAX];
    bool parts = false;
    for (uint32_t i = 0; exl2__platform_entry(w->dir, i, name, sizeof name); i++) {
        bool text = strncmp(name, EXL2__WORKDIR_TEXT, strlen(EXL2__WORKDIR_TEXT)) == 0;
        parts = parts || (!text && strcmp(name, EXL2__WORKDIR_LOCK) != 0);
    }
    return parts;
}

/* Fails if the folder is not a conversion's work folder. *begun: it is that of `text`. With another text it is
   rejected, unless nothing has been finished in it. */
EXL2__PRIVATE exl2_result exl2__workdir_check(const exl2__workdir *w, const char *text, bool *begun)
{
    char name[EXL2__FILE_NAME_MAX];
    exl2__blob old;
    bool parts = exl2__workdir_has_parts(w);
    for (uint32_t i = 0; exl2__platform_entry(w->dir, i, name, sizeof name); i++) {
        if (!exl2__workdir_is_ours(name)) {
            return exl2__fail(w->c, EXL2_ERR_STATE, "%s holds %s, which no conversion writes; choose another folder",
                              w->dir, name);
        }
    }
    EXL2__TRY(exl2__file_read_optional(w->c, w->dir, EXL2__WORKDIR_TEXT, EXL2__WORKDIR_TEXT_MAX, &old));
    exl2_result result = EXL2_OK;
    *begun = old.data && strcmp(old.data, text) == 0;
    if (!old.data && parts) {
        result = exl2__fail(w->c, EXL2_ERR_STATE, "%s is not empty, and no " EXL2__WORKDIR_TEXT
                            " says that a conversion made it; choose another folder", w->dir);
    } else if (old.data && !*begun && parts) {
        result = exl2__workdir_differs(w, old.data, text);
    } else if (old.data && strncmp(old.data, EXL2__WORKDIR_TEXT_BEGIN, strlen(EXL2__WORKDIR_TEXT_BEGIN)) != 0) {
        result = exl2__fail(w->c, EXL2_ERR_STATE, "%s holds a " EXL2__WORKDIR_TEXT " that no conversion has written; "
                            "choose another folder", w->dir);
    }
    exl2__blob_close(w->c, &old);
    return result;
}

EXL2__PRIVATE exl2_result exl2__workdir_write_text(const exl2__workdir *w, const char *text)
{
    char path[EXL2__FILE_PATH_MAX], final_path[EXL2__FILE_PATH_MAX];
    exl2__workdir_path(w, EXL2__WORKDIR_TEXT, ".part", path);
    exl2__workdir_path(w, EXL2__WORKDIR_TEXT, "", final_path);
    void *file = exl2__platform_create(path);
    bool good = file && exl2__platform_write(file, 0, text, strlen(text)) && exl2__platform_sync(file);
    good = (!file || exl2__platform_finish(file)) && good;
    good = good && exl2__platform_replace(path, final_path);
    exl2__platform_sync_dir(w->dir); /* so that no part is on the disk without it */
    return good ? EXL2_OK : exl2__fail(w->c, EXL2_ERR_IO, "%s: the file cannot be written; its parent must be a "
                                       "writable folder", path);
}

/* Lets others work in the folder. Accepts zeroed ones. */
EXL2__PRIVATE void exl2__workdir_close(exl2__workdir *w)
{
    char path[EXL2__FILE_PATH_MAX];
    if (w->lock) {
        exl2__workdir_path(w, EXL2__WORKDIR_LOCK, "", path);
        exl2__platform_unlock(w->lock, path);
        w->lock = NULL;
    }
}

/* Opens or makes the folder, for this conversion alone. text: lines "name: value"; the first is the version. */
EXL2__PRIVATE exl2_result exl2__workdir_open(exl2__ctx *c, const char *dir, const char *text, exl2__workdir *w)
{
    char lock[EXL2__FILE_PATH_MAX];
    bool begun = false;
    *w = (exl2__workdir){ c, { 0 }, exl2__workdir_hash(EXL2__WORKDIR_HASH, text, strlen(text)), NULL };
    if (exl2__format(w->dir, EXL2__WORKDIR_DIR_MAX, "%s", dir) != strlen(dir)) {
        return exl2__fail(c, EXL2_ERR_ARG, "the path of the work folder is longer than %d bytes",
                          EXL2__WORKDIR_DIR_MAX - 1);
    }
    exl2__workdir_path(w, EXL2__WORKDIR_LOCK, "", lock);
    if (!exl2__platform_make_dir(dir)) {
        if (!exl2__folder_exists(dir)) {
            return exl2__fail(c, EXL2_ERR_IO, "%s: the folder cannot be created; its parent must be a writable folder, "
                              "and no file may have its name", dir);
        }
        if (!exl2__platform_is_file(lock)) { /* nothing is written into a folder that may be somebody else's */
            EXL2__TRY(exl2__workdir_check(w, text, &begun));
        }
    }
    EXL2__TRY(exl2__folder_lock(c, dir, lock, &w->lock));
    exl2_result result = exl2__workdir_check(w, text, &begun);
    result = result < 0 || begun ? result : exl2__workdir_write_text(w, text);
    if (result < 0) {
        exl2__workdir_close(w);
    }
    return result;
}

/* Removes what a conversion has written into the folder, which is open, and the folder if nothing else is in it. Its
   job.txt is removed after all parts, so that a removal that is killed can be done again. */
EXL2__PRIVATE void exl2__workdir_remove(exl2__workdir *w)
{
    char name[EXL2__FILE_NAME_MAX], path[EXL2__FILE_PATH_MAX];
    uint32_t index = 0;
    while (exl2__platform_entry(w->dir, index, name, sizeof name)) {
        bool stays = strcmp(name, EXL2__WORKDIR_LOCK) == 0 || strcmp(name, EXL2__WORKDIR_TEXT) == 0;
        exl2__workdir_path(w, name, "", path);
        if (stays || !exl2__workdir_is_ours(name) || !(exl2__platform_remove_file(path) || exl2__folder_remove(path))) {
            index++;
        }
    }
    exl2__workdir_path(w, EXL2__WORKDIR_TEXT, "", path);
    exl2__platform_remove_file(path);
    exl2__workdir_close(w);
    exl2__platform_remove_dir(w->dir);
}

#endif
