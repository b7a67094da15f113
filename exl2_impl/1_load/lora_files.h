/* lora_files.h: the pairs lora_A, lora_B of an adapter's folder, under the names that the base's matrices have in the
   engine.
   takes: a folder with adapter_config.json and adapter_model.safetensors, untrusted; the renames of the base's row.
   gives: exl2__lora_pair, exl2__lora_files, exl2__lora_files_find, exl2__lora_files_check_used, exl2__lora_files_close;
          exl2__lora_files_reader and exl2__lora_files_read_begin, _slice, _end, which work in slices.
   owns:  the tensor table, the open file and the names, until exl2__lora_files_close.

   A tensor is called "base_model.model." + the name of the base's matrix, as it was published, + ".lora_A.weight". Its
   module's name is what lies between, and the pair's name is that after the renames of the base's own tensors. */
#ifndef EXL2__LORA_FILES_H
#define EXL2__LORA_FILES_H

#include "../0_base/arena.h"
#include "lora_config.h"

#define EXL2__LORA_FILE "adapter_model.safetensors"
#define EXL2__LORA_WARNING_BYTES 128u

/* W + factor B A: A [rank, in], B [out, rank]. The shapes are checked for the rank only. */
typedef struct exl2__lora_pair {
    const char *name;             /* "model.layers.0.mlp.up_proj" */
    const exl2__tensor *a, *b;
    const exl2__tensor *magnitude; /* DoRA: [out], else NULL */
    uint32_t rank;
    double factor;                /* alpha / rank, or alpha / sqrt(rank) */
    bool used;                    /* exl2__lora_files_find has found it */
} exl2__lora_pair;

typedef struct exl2__lora_files {
    exl2__lora_config config;
    exl2__tensors tensors;
    exl2__lora_pair *pairs;       /* [count] sorted by name */
    uint32_t count, rank_max;
    exl2__arena memory;
    char warning[EXL2__LORA_WARNING_BYTES]; /* "" or a message for the application */
} exl2__lora_files;

static inline void exl2__lora_files_close(exl2__ctx *c, exl2__lora_files *f)
{
    exl2__lora_config_close(&f->config);
    exl2__tensors_close(c, &f->tensors);
    exl2__arena_close(c, &f->memory);
    *f = (exl2__lora_files){ 0 };
}

/* ---- names ---- */

typedef enum exl2__lora_half { EXL2__LORA_A, EXL2__LORA_B, EXL2__LORA_MAGNITUDE, EXL2__LORA_HALVES } exl2__lora_half;

/* Divides a tensor's name: *bytes of the module's name begin at *module. */
EXL2__PRIVATE exl2_result exl2__lora_files_split(exl2__ctx *c, const char *name, const char **module, size_t *bytes,
                                                 exl2__lora_half *half)
{
    static const char prefix[] = "base_model.model.";
    static const struct { const char *end; exl2__lora_half half; } ends[] = {
        { ".lora_A.weight", EXL2__LORA_A }, { ".lora_B.weight", EXL2__LORA_B },
        { ".lora_magnitude_vector", EXL2__LORA_MAGNITUDE }, { ".lora_magnitude_vector.weight", EXL2__LORA_MAGNITUDE },
    };
    size_t length = strlen(name), skip = sizeof prefix - 1;
    if (strstr(name, ".lora_embedding_")) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, EXL2__LORA_FILE ": '%s': adapters of the embedding are not "
                          "supported", name);
    }
    if (strstr(name, ".lora_A.bias") || strstr(name, ".lora_B.bias")) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, EXL2__LORA_FILE ": '%s': lora_bias: biases of an adapter are not "
                          "supported", name);
    }
    for (uint32_t i = 0; i < EXL2__COUNT(ends) && strncmp(name, prefix, skip) == 0; i++) {
        size_t end = strlen(ends[i].end);
        if (length > skip + end && length < EXL2__TENSORS_NAME_MAX && strcmp(name + length - end, ends[i].end) == 0) {
            *module = name + skip;
            *bytes = length - skip - end;
            *half = ends[i].half;
            return EXL2_OK;
        }
    }
    /* peft writes whole embeddings and heads beside pairs for them, and for a new vocabulary */
    bool wide = strstr(name, "lm_head.") || strstr(name, "embed_tokens.") || strstr(name, ".wte.");
    if (wide && strncmp(name, prefix, skip) == 0 && !strstr(name, ".lora_")) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, EXL2__LORA_FILE ": '%s' is a whole matrix: an embedding and a head "
                          "in an adapter, and pairs for them, are not supported", name);
    }
    return exl2__fail(c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' has no use: tensors of an adapter are named "
                      "base_model.model.<matrix>.lora_A.weight and .lora_B.weight", name);
}

/* ---- reading ---- */

typedef struct exl2__lora_files_reader {
    exl2__ctx *c;
    const char *dir;
    const char *const *renames;   /* of the base's row; or NULL */
    bool dora_wanted;
    exl2__lora_files *files;
    exl2__tensors_reader tensors;
    uint32_t stage;
    uint32_t at, entry;           /* positions in the stage, 0 at its begin */
    uint64_t name_bytes;
    char *names;                  /* where the next name is written */
} exl2__lora_files_reader;

EXL2__PRIVATE exl2_result exl2__lora_files_read_config(exl2__lora_files_reader *r, exl2__work *work)
{
    void *file = NULL;
    uint64_t bytes;
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    EXL2__TRY(exl2__lora_config_read(r->c, r->dir, r->dora_wanted, &r->files->config));
    EXL2__TRY(exl2__file_open(r->c, r->dir, EXL2__LORA_FILE, &file, &bytes));
    if (file) {
        r->c->files.close(r->c->files.user, file);
        return EXL2_OK;
    }
    EXL2__TRY(exl2__file_open(r->c, r->dir, "adapter_model.bin", &file, &bytes));
    if (!file) {
        return exl2__fail(r->c, EXL2_ERR_IO, "no " EXL2__LORA_FILE " in %s", r->dir);
    }
    r->c->files.close(r->c->files.user, file);
    return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED, "%s has adapter_model.bin, which is a pickle and may run any code; "
                      "save the adapter as " EXL2__LORA_FILE, r->dir);
}

EXL2__PRIVATE exl2_result exl2__lora_files_read_tensors(exl2__lora_files_reader *r, exl2__work *work)
{
    return exl2__tensors_read_slice(&r->tensors, work);
}

/* Writes the pair's name, as renamed, to out[EXL2__TENSORS_NAME_MAX]. */
EXL2__PRIVATE exl2_result exl2__lora_files_rename(const exl2__lora_files_reader *r, const char *module, size_t bytes,
                                                  char *out)
{
    static const char end[] = ".weight"; /* renames may ask for the dot after a name */
    char name[EXL2__TENSORS_NAME_MAX];
    exl2__format(name, sizeof name, "%.*s%s", (int)bytes, module, end);
    memcpy(out, name, strlen(name) + 1);
    if (r->renames) {
        exl2__tensors_new_name(name, r->renames, out);
    }
    size_t length = strlen(out);
    if (length < sizeof end || strcmp(out + length - (sizeof end - 1), end) != 0) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%.*s' names no matrix", (int)bytes, module);
    }
    out[length - (sizeof end - 1)] = 0;
    return EXL2_OK;
}

/* Counts the modules, whose tensors are adjacent in the sorted table, and the bytes of their names. */
EXL2__PRIVATE exl2_result exl2__lora_files_measure(exl2__lora_files_reader *r, exl2__work *work)
{
    exl2__lora_files *f = r->files;
    char name[EXL2__TENSORS_NAME_MAX];
    for (; r->at < f->tensors.count; r->at++) {
        const char *module;
        size_t bytes;
        exl2__lora_half half;
        if (!exl2__work_spend(work, 1000)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__lora_files_split(r->c, f->tensors.entries[r->at].name, &module, &bytes, &half));
        EXL2__TRY(exl2__lora_files_rename(r, module, bytes, name));
        f->count += half == EXL2__LORA_A;
        r->name_bytes += half == EXL2__LORA_A ? strlen(name) + 1 : 0;
    }
    if (f->count == 0) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__LORA_FILE " has no lora_A tensors");
    }
    uint64_t pairs = exl2__align_up(f->count * (uint64_t)sizeof *f->pairs, EXL2__ARENA_ALIGN);
    EXL2__TRY(exl2__arena_open(r->c, &f->memory, pairs + exl2__align_up(r->name_bytes, EXL2__ARENA_ALIGN),
                               EXL2_MEM_GENERAL));
    f->pairs = (exl2__lora_pair *)exl2__arena_alloc(&f->memory, pairs);
    r->names = (char *)exl2__arena_alloc(&f->memory, r->name_bytes);
    f->count = 0;
    return EXL2_OK;
}

/* Checks the halves of a module: present, of a type that is read, and of the rank that the config says. */
EXL2__PRIVATE exl2_result exl2__lora_files_check(exl2__ctx *c, const exl2__lora_files *f, const char *module,
                                                 const exl2__tensor *const half[EXL2__LORA_HALVES], uint32_t rank)
{
    static const char *const names[] = { "lora_A", "lora_B", "lora_magnitude_vector" };
    bool dora = f->config.dora;
    for (uint32_t i = 0; i < EXL2__LORA_HALVES; i++) {
        const exl2__tensor *t = half[i];
        if (!t && (i < EXL2__LORA_MAGNITUDE || dora)) {
            return exl2__fail(c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' has no %s", module, names[i]);
        }
        if (t && i == EXL2__LORA_MAGNITUDE && !dora) {
            return exl2__fail(c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' has no use, as use_dora is not true",
                              t->name);
        }
        if (t && !exl2__tensor_is_float(t)) {
            return exl2__fail(c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s': expected F16, BF16 or F32, found %s",
                              t->name, exl2__tensor_type_name(t->type));
        }
        uint32_t axis = i == EXL2__LORA_A ? 0 : 1;
        if (t && i < EXL2__LORA_MAGNITUDE && (t->rank != 2 || t->dims[axis] != rank)) {
            return exl2__fail(c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' has the shape [%llu, %llu], of rank %u, but "
                              "r is %u in adapter_config.json: expected %s", t->name, (unsigned long long)t->dims[0],
                              (unsigned long long)t->dims[1], t->rank, rank, axis ? "[out, r]" : "[r, in]");
        }
    }
    return EXL2_OK;
}

/* Fills in the pairs. */
EXL2__PRIVATE exl2_result exl2__lora_files_fill(exl2__lora_files_reader *r, exl2__work *work)
{
    exl2__lora_files *f = r->files;
    const exl2__tensor *entries = f->tensors.entries;
    uint64_t keys = f->config.rank_pattern ? f->config.fields.json.tokens[f->config.rank_pattern].count : 0;
    keys += f->config.alpha_pattern ? f->config.fields.json.tokens[f->config.alpha_pattern].count : 0;
    while (r->at < f->tensors.count) {
        const exl2__tensor *half[EXL2__LORA_HALVES] = { NULL };
        char module[EXL2__TENSORS_NAME_MAX], name[EXL2__TENSORS_NAME_MAX];
        const char *begin, *first = NULL;
        size_t bytes, length = 0;
        exl2__lora_half which;
        uint32_t rank;
        double factor;
        if (!exl2__work_spend(work, 2000 + 100 * keys)) {
            return EXL2_PENDING;
        }
        for (; r->at < f->tensors.count; r->at++) {
            EXL2__TRY(exl2__lora_files_split(r->c, entries[r->at].name, &begin, &bytes, &which));
            if (first && (bytes != length || memcmp(first, begin, bytes) != 0)) {
                break;
            }
            if (half[which]) { /* the magnitude under two names */
                return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' and '%s' are the same",
                                  half[which]->name, entries[r->at].name);
            }
            first = begin;
            length = bytes;
            half[which] = &entries[r->at];
        }
        exl2__format(module, sizeof module, "%.*s", (int)length, first);
        exl2__lora_config_module(&f->config, module, &rank, &factor);
        EXL2__TRY(exl2__lora_files_check(r->c, f, module, half, rank));
        EXL2__TRY(exl2__lora_files_rename(r, module, length, name));
        memcpy(r->names, name, strlen(name) + 1);
        f->pairs[f->count++] = (exl2__lora_pair){ r->names, half[EXL2__LORA_A], half[EXL2__LORA_B],
                                                  half[EXL2__LORA_MAGNITUDE], rank, factor, false };
        f->rank_max = exl2__max32(f->rank_max, rank);
        r->names += strlen(r->names) + 1;
    }
    return EXL2_OK;
}

static inline bool exl2__lora_files_less(const void *items, uint32_t a, uint32_t b)
{
    const exl2__lora_pair *pairs = (const exl2__lora_pair *)items;
    return strcmp(pairs[a].name, pairs[b].name) < 0;
}

static inline void exl2__lora_files_swap(void *items, uint32_t a, uint32_t b)
{
    exl2__lora_pair *pairs = (exl2__lora_pair *)items, held = pairs[a];
    pairs[a] = pairs[b];
    pairs[b] = held;
}

EXL2__PRIVATE exl2_result exl2__lora_files_sort(exl2__lora_files_reader *r, exl2__work *work)
{
    exl2__sort_items by_name = { r->files->pairs, exl2__lora_files_less, exl2__lora_files_swap };
    return exl2__sort_slice(&by_name, r->files->count, &r->at, work);
}

EXL2__PRIVATE exl2_result exl2__lora_files_check_names(exl2__lora_files_reader *r, exl2__work *work)
{
    const exl2__lora_pair *pairs = r->files->pairs;
    for (r->at = exl2__max32(r->at, 1); r->at < r->files->count; r->at++) {
        if (!exl2__work_spend(work, 20)) {
            return EXL2_PENDING;
        }
        if (strcmp(pairs[r->at - 1].name, pairs[r->at].name) == 0) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' and '%s' are of the same matrix",
                              pairs[r->at - 1].a->name, pairs[r->at].a->name);
        }
    }
    return EXL2_OK;
}

/* Warns of the first entry of target_modules that no tensor belongs to. `at`: its token. */
EXL2__PRIVATE exl2_result exl2__lora_files_check_targets(exl2__lora_files_reader *r, exl2__work *work)
{
    exl2__lora_files *f = r->files;
    const exl2__json *j = &f->config.fields.json;
    uint32_t list = f->config.targets;
    char key[EXL2__TENSORS_NAME_MAX], name[EXL2__TENSORS_NAME_MAX];
    r->at = r->at || !list ? r->at : exl2__json_first(j, list);
    for (; r->at; r->at = exl2__json_next(j, list, r->at), r->entry = 0) {
        bool found = !exl2__lora_config_text(j, r->at, key);
        for (; r->entry < f->tensors.count && !found; r->entry++) {
            const char *module;
            size_t bytes;
            exl2__lora_half half;
            if (!exl2__work_spend(work, 300)) {
                return EXL2_PENDING;
            }
            EXL2__TRY(exl2__lora_files_split(r->c, f->tensors.entries[r->entry].name, &module, &bytes, &half));
            exl2__format(name, sizeof name, "%.*s", (int)bytes, module);
            found = exl2__lora_config_is_end(name, key);
        }
        if (!found) {
            exl2__format(f->warning, sizeof f->warning, "target_modules names '%.*s', but no tensor belongs to it",
                         (int)exl2__min64(strlen(key), 60), key);
            return EXL2_OK;
        }
    }
    return EXL2_OK;
}

typedef exl2_result (*exl2__lora_files_stage)(exl2__lora_files_reader *r, exl2__work *work);

static const exl2__lora_files_stage exl2__lora_files_stages[] = {
    exl2__lora_files_read_config, exl2__lora_files_read_tensors, exl2__lora_files_measure, exl2__lora_files_fill,
    exl2__lora_files_sort, exl2__lora_files_check_names, exl2__lora_files_check_targets,
};

/* Begins to read a folder. dora_wanted: see exl2__lora_config_read. `dir` and `renames` must live until the end. */
EXL2__PRIVATE void exl2__lora_files_read_begin(exl2__lora_files_reader *r, exl2__ctx *c, const char *dir,
                                               const char *const *renames, bool dora_wanted, exl2__lora_files *files)
{
    memset(r, 0, sizeof *r);
    *files = (exl2__lora_files){ 0 };
    r->c = c;
    r->dir = dir;
    r->renames = renames;
    r->dora_wanted = dora_wanted;
    r->files = files;
    exl2__tensors_read_begin(&r->tensors, c, dir, NULL, &files->tensors);
    r->tensors.only = EXL2__LORA_FILE;
}

EXL2__PRIVATE exl2_result exl2__lora_files_read_slice(exl2__lora_files_reader *r, exl2__work *work)
{
    while (r->stage < EXL2__COUNT(exl2__lora_files_stages)) {
        EXL2__TRY_DONE(exl2__lora_files_stages[r->stage](r, work));
        r->stage++;
        r->at = r->entry = 0;
    }
    return EXL2_OK;
}

/* Frees what reading needed; if it was not finished, the files, too. Accepts a zeroed reader. */
EXL2__PRIVATE void exl2__lora_files_read_end(exl2__lora_files_reader *r)
{
    exl2__tensors_read_end(&r->tensors);
    if (r->c && r->stage < EXL2__COUNT(exl2__lora_files_stages)) {
        exl2__lora_files_close(r->c, r->files);
    }
    memset(r, 0, sizeof *r);
}

/* ---- use ---- */

/* The pair of a matrix, or NULL. */
static inline exl2__lora_pair *exl2__lora_files_find(const exl2__lora_files *f, const char *name)
{
    uint32_t low = 0, high = f->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        bool less = strcmp(f->pairs[middle].name, name) < 0;
        low = less ? middle + 1 : low;
        high = less ? high : middle;
    }
    if (low == f->count || strcmp(f->pairs[low].name, name) != 0) {
        return NULL;
    }
    f->pairs[low].used = true;
    return &f->pairs[low];
}

/* Fails for the first pair that no matrix has used, from *at on, in slices. *at is 0 at first. */
EXL2__PRIVATE exl2_result exl2__lora_files_check_used(exl2__ctx *c, const exl2__lora_files *f, uint32_t *at,
                                                      exl2__work *work)
{
    for (; *at < f->count; ++*at) {
        const char *name = f->pairs[*at].a->name;
        if (!exl2__work_spend(work, 20)) {
            return EXL2_PENDING;
        }
        if (f->pairs[*at].used) {
            continue;
        }
        bool tower = strstr(name, "vision") || strstr(name, "visual") || strstr(name, "multi_modal_projector")
                  || strstr(name, ".connector.");
        const char *own = f->pairs[*at].name; /* InternLM2 publishes its head as `output` */
        bool ends = strstr(name, "lm_head") || strstr(own, "lm_head") || strstr(name, "embed_tokens");
        if (tower || ends) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, EXL2__LORA_FILE ": '%s': adapters of %s are not supported",
                              name, tower ? "a vision tower" : "the embedding and of the head");
        }
        return exl2__fail(c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' has no use: this model has no such matrix",
                          name);
    }
    return EXL2_OK;
}

#endif
