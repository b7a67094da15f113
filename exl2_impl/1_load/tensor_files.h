/* tensor_files.h: finds and opens the *.safetensors files of a model folder: all, or those that an index names.
   takes: a folder.
   gives: exl2__tensor_files, exl2__tensor_files_reader, exl2__tensor_files_names, exl2__tensor_files_one,
          exl2__tensor_files_mark, exl2__tensor_files_slice, exl2__tensor_files_close.
   owns:  the open files, until exl2__tensor_files_close. */
#ifndef EXL2__TENSOR_FILES_H
#define EXL2__TENSOR_FILES_H

#include "../0_base/arena.h"
#include "../0_base/log.h"
#include "../0_base/sort.h"
#include "file.h"

#define EXL2__TENSOR_FILES_MAX 512u

typedef struct exl2__tensor_file {
    void *handle; /* handle of the files hook; NULL: not open */
    uint64_t bytes;
    char name[EXL2__FILE_NAME_MAX];
    bool marked;  /* an index names it */
} exl2__tensor_file;

typedef struct exl2__tensor_files {
    exl2__tensor_file *items; /* [count], sorted by name */
    uint32_t count;
    exl2__arena memory;
} exl2__tensor_files;

static inline void exl2__tensor_files_close(exl2__ctx *c, exl2__tensor_files *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->items[i].handle) {
            c->files.close(c->files.user, t->items[i].handle);
        }
    }
    exl2__arena_close(c, &t->memory);
    *t = (exl2__tensor_files){ 0 };
}

static inline bool exl2__tensor_files_less(const void *items, uint32_t a, uint32_t b)
{
    const exl2__tensor_file *files = (const exl2__tensor_file *)items;
    return strcmp(files[a].name, files[b].name) < 0;
}

static inline void exl2__tensor_files_swap(void *items, uint32_t a, uint32_t b)
{
    exl2__tensor_file *files = (exl2__tensor_file *)items, held = files[a];
    files[a] = files[b];
    files[b] = held;
}

/* Names that begin with a dot are those of macOS, and of downloads that have not ended. */
static inline bool exl2__tensor_files_is_safetensors(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t bytes = strlen(name);
    return bytes >= sizeof suffix && name[0] != '.' && strcmp(name + bytes - (sizeof suffix - 1), suffix) == 0;
}

/* The state of opening: a first pass over the folder counts the files, a second one notes their names, an index may
   mark some of them, and then they are opened. Zeroed: at its beginning. */
typedef struct exl2__tensor_files_reader {
    uint32_t entry, found; /* the next entry of the folder, files found so far in this pass */
    uint32_t opened, marked;
    bool chosen;           /* only the marked files are left, if there are any */
} exl2__tensor_files_reader;

#define EXL2__TENSOR_FILES_COST 20000 /* of listing an entry or opening a file, as exl2__work_spend counts it */

/* Goes on with a pass over the folder until it has found `cap` *.safetensors files; `files` NULL: only counts. */
EXL2__PRIVATE exl2_result exl2__tensor_files_list(exl2__ctx *c, const char *dir, exl2__tensor_files_reader *r,
                                                  exl2__tensor_file *files, uint32_t cap, exl2__work *work)
{
    char name[EXL2__FILE_NAME_MAX];
    for (; r->found < cap; r->entry++) {
        if (!exl2__work_spend(work, EXL2__TENSOR_FILES_COST)) {
            return EXL2_PENDING;
        }
        if (!c->files.list(c->files.user, dir, r->entry, name, sizeof name)) {
            break;
        }
        name[sizeof name - 1] = 0;
        if (exl2__tensor_files_is_safetensors(name)) {
            if (files) {
                memcpy(files[r->found].name, name, strlen(name) + 1);
            }
            r->found++;
        }
    }
    return EXL2_OK;
}

/* The decimal number in the `digits` characters at p; UINT32_MAX if one of them is no digit. */
static inline uint32_t exl2__tensor_files_digits(const char *p, size_t digits)
{
    uint32_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return UINT32_MAX;
        }
        value = value * 10 + (uint32_t)(p[i] - '0');
    }
    return value;
}

/* "output-00002-of-00003.safetensors" is shard 2 of 3. *stem: number of bytes before "-00002". */
static inline bool exl2__tensor_files_shard(const char *name, size_t *stem, uint32_t *index, uint32_t *total)
{
    static const size_t tail = sizeof "-00002-of-00003.safetensors" - 1;
    size_t bytes = strlen(name);
    if (bytes < tail) {
        return false;
    }
    const char *p = name + bytes - tail;
    *stem = bytes - tail;
    *index = exl2__tensor_files_digits(p + 1, 5);
    *total = exl2__tensor_files_digits(p + 10, 5);
    return p[0] == '-' && memcmp(p + 6, "-of-", 4) == 0 && *index != UINT32_MAX && *total != UINT32_MAX;
}

static inline void exl2__tensor_files_warn_gap(exl2__ctx *c, const char *name, uint32_t from, uint32_t before,
                                               uint32_t total)
{
    if (from < before && from <= total) {
        exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_SHARD_MISSING, "shard %u of %u is missing, in the set of %s", from,
                  total, name);
    }
}

/* Warns about missing shards. The files are sorted, so the shards of a set follow each other. */
static inline void exl2__tensor_files_check_shards(exl2__ctx *c, const exl2__tensor_files *t)
{
    size_t set_stem = 0;
    uint32_t next = 0, set_total = 0; /* next: the shard expected next; 0 = not in a set */
    for (uint32_t i = 0; i < t->count; i++) {
        const char *name = t->items[i].name, *last = t->items[i ? i - 1 : 0].name;
        size_t stem = 0;
        uint32_t index = 0, total = 0;
        bool shard = exl2__tensor_files_shard(name, &stem, &index, &total);
        bool same = shard && next && total == set_total && stem == set_stem && memcmp(name, last, stem) == 0;
        if (next && !same) {
            exl2__tensor_files_warn_gap(c, last, next, set_total + 1, set_total);
        }
        if (shard) {
            exl2__tensor_files_warn_gap(c, name, same ? next : 1, index, total);
        }
        next = shard ? index + 1 : 0;
        set_stem = shard ? stem : 0;
        set_total = shard ? total : 0;
    }
    if (next) {
        exl2__tensor_files_warn_gap(c, t->items[t->count - 1].name, next, set_total + 1, set_total);
    }
}

/* After the first pass: allocates the list. */
EXL2__PRIVATE exl2_result exl2__tensor_files_alloc(exl2__ctx *c, const char *dir, exl2__tensor_files *t, uint32_t count)
{
    if (count == 0) {
        return exl2__fail(c, EXL2_ERR_IO, "no .safetensors files in %s", dir);
    }
    if (count > EXL2__TENSOR_FILES_MAX) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "more than %u .safetensors files in %s", EXL2__TENSOR_FILES_MAX,
                          dir);
    }
    uint64_t bytes = exl2__align_up(count * (uint64_t)sizeof *t->items, EXL2__ARENA_ALIGN);
    EXL2__TRY(exl2__arena_open(c, &t->memory, bytes, EXL2_MEM_GENERAL));
    t->items = (exl2__tensor_file *)exl2__arena_alloc_zeroed(&t->memory, bytes);
    t->count = count;
    return EXL2_OK;
}

/* The list is this one file. After a failure, too, the caller closes *t. */
EXL2__PRIVATE exl2_result exl2__tensor_files_one(exl2__ctx *c, const char *dir, exl2__tensor_files *t, const char *name)
{
    EXL2__TRY(exl2__tensor_files_alloc(c, dir, t, 1));
    exl2__format(t->items[0].name, sizeof t->items[0].name, "%s", name);
    return EXL2_OK;
}

/* Lists the folder's files, in slices. After a failure, too, the caller closes *t. */
EXL2__PRIVATE exl2_result exl2__tensor_files_names(exl2__ctx *c, const char *dir, exl2__tensor_files *t,
                                                   exl2__tensor_files_reader *r, exl2__work *work)
{
    if (!t->items) {
        EXL2__TRY_DONE(exl2__tensor_files_list(c, dir, r, NULL, EXL2__TENSOR_FILES_MAX + 1, work));
        EXL2__TRY(exl2__tensor_files_alloc(c, dir, t, r->found));
        r->entry = r->found = 0;
    }
    EXL2__TRY_DONE(exl2__tensor_files_list(c, dir, r, t->items, t->count, work));
    t->count = r->found;
    exl2__sort_items items = { t->items, exl2__tensor_files_less, exl2__tensor_files_swap };
    exl2__sort(&items, t->count);
    return EXL2_OK;
}

/* An index names this file. false: the folder does not have it. */
EXL2__PRIVATE bool exl2__tensor_files_mark(exl2__tensor_files *t, exl2__tensor_files_reader *r, const char *name)
{
    uint32_t low = 0, high = t->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(t->items[middle].name, name);
        if (order == 0) {
            r->marked += !t->items[middle].marked;
            t->items[middle].marked = true;
            return true;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return false;
}

/* Opens the marked files, or all if none is marked, in slices. After a failure, too, the caller closes *t. */
EXL2__PRIVATE exl2_result exl2__tensor_files_slice(exl2__ctx *c, const char *dir, exl2__tensor_files *t,
                                                   exl2__tensor_files_reader *r, exl2__work *work)
{
    if (!r->chosen) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < t->count; i++) {
            if (t->items[i].marked || r->marked == 0) {
                t->items[kept++] = t->items[i];
            }
        }
        t->count = kept;
        r->chosen = true;
    }
    for (; r->opened < t->count; r->opened++) {
        exl2__tensor_file *f = &t->items[r->opened];
        if (!exl2__work_spend(work, EXL2__TENSOR_FILES_COST)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__file_open(c, dir, f->name, &f->handle, &f->bytes));
        if (!f->handle) {
            return exl2__fail(c, EXL2_ERR_IO, "%s in %s cannot be opened", f->name, dir);
        }
    }
    exl2__tensor_files_check_shards(c, t);
    return EXL2_OK;
}

#endif
