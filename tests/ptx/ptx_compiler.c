/* ptx_compiler.c: an NVRTC that gives PTX, and keeps it on disk under the hash of all that it depends on, as compiling
   the engine's kernels takes longer than a test runs.
   takes: an open NVRTC; options with --gpu-architecture=compute_...; $XDG_CACHE_HOME, $HOME.
   gives: ptx_compiler_fill.
   owns:  programs, until program_free; files in exl2-ptx of the cache folder: KEY.ptx. */
#define _POSIX_C_SOURCE 200809L
#include "ptx_driver.h"

#include "private/hash_sums.h"

#include "../check.h"

#include <sys/stat.h>
#include <unistd.h>

#define SEEDS 2 /* hashes of a key, so that it has 128 bits */

static exl2__cuda_nvrtc real;

typedef struct program {
    exl2__cuda_program *real;
    uint64_t hash[SEEDS];
    char *text; /* PTX with its NUL; NULL: not compiled */
    size_t bytes;
} program;

/* ---- the key ---- */

static void key_add(program *p, const void *data, size_t bytes)
{
    for (uint64_t i = 0; i < SEEDS; i++) {
        uint64_t parts[3] = { p->hash[i], bytes, exl2__hash_words(data, bytes, p->hash[i] + i) };
        p->hash[i] = exl2__hash(parts, sizeof parts);
    }
}

static void key_add_text(program *p, const char *text)
{
    key_add(p, text, strlen(text));
}

/* The file that a program's PTX is kept in; false: there is no folder for it. */
static bool key_path(const program *p, char *path, size_t cap)
{
    const char *cache = check_env("XDG_CACHE_HOME"), *home = check_env("HOME");
    char folder[3072];
    if (!cache && !home) {
        return false;
    }
    snprintf(folder, sizeof folder, "%s%s", cache ? cache : home, cache ? "" : "/.cache");
    mkdir(folder, 0755);
    strncat(folder, "/exl2-ptx", sizeof folder - strlen(folder) - 1);
    mkdir(folder, 0755);
    snprintf(path, cap, "%s/%016llx%016llx.ptx", folder, (unsigned long long)p->hash[0],
             (unsigned long long)p->hash[1]);
    return true;
}

/* ---- files ---- */

static bool text_load(program *p, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        return false;
    }
    fclose(file);
    p->text = check_read(path, &p->bytes);
    p->bytes++; /* with its NUL */
    return p->bytes > 1;
}

/* Other programs may write the same file: each writes one of its own and renames it. */
static void text_keep(const program *p, const char *path)
{
    char own[4400];
    snprintf(own, sizeof own, "%s.%ld.%p", path, (long)getpid(), (const void *)p);
    FILE *file = fopen(own, "wb");
    bool written = file && fwrite(p->text, 1, p->bytes - 1, file) == p->bytes - 1;
    if (file) {
        written = fclose(file) == 0 && written;
        if (!written || rename(own, path) != 0) {
            remove(own);
        }
    }
}

/* ---- NVRTC's functions ---- */

static int program_make(exl2__cuda_program **out, const char *source, const char *name, int header_count,
                        const char *const *headers, const char *const *header_names)
{
    program *p = calloc(1, sizeof *p);
    int result = p ? real.program_make(&p->real, source, name, header_count, headers, header_names) : -1;
    if (result != 0) {
        free(p);
        return result;
    }
    key_add_text(p, name);
    key_add_text(p, source);
    for (int i = 0; i < header_count; i++) {
        key_add_text(p, header_names[i]);
        key_add_text(p, headers[i]);
    }
    *out = (exl2__cuda_program *)(void *)p;
    return 0;
}

static int program_free(exl2__cuda_program **out)
{
    program *p = (program *)(void *)*out;
    int result = real.program_free(&p->real);
    free(p->text);
    free(p);
    *out = NULL;
    return result;
}

static int compile(exl2__cuda_program *handle, int option_count, const char *const *options)
{
    program *p = (program *)(void *)handle;
    char path[4200];
    int version[2] = { 0, 0 }, result = real.version(&version[0], &version[1]);
    if (result != 0) {
        return result;
    }
    key_add(p, version, sizeof version);
    for (int i = 0; i < option_count; i++) {
        key_add_text(p, options[i]);
    }
    bool keeps = key_path(p, path, sizeof path);
    if (keeps && text_load(p, path)) {
        return 0;
    }
    result = real.compile(p->real, option_count, options);
    result = result == 0 ? real.ptx_bytes(p->real, &p->bytes) : result;
    p->text = result == 0 ? malloc(p->bytes) : NULL;
    result = result == 0 && !p->text ? -1 : result;
    result = result == 0 ? real.ptx(p->real, p->text) : result;
    if (result == 0 && keeps) {
        text_keep(p, path);
    }
    return result;
}

static int log_bytes(exl2__cuda_program *handle, size_t *bytes)
{
    return real.log_bytes(((program *)(void *)handle)->real, bytes);
}

static int log_text(exl2__cuda_program *handle, char *log)
{
    return real.log(((program *)(void *)handle)->real, log);
}

static int text_bytes(exl2__cuda_program *handle, size_t *bytes)
{
    *bytes = ((program *)(void *)handle)->bytes;
    return 0;
}

static int text_copy(exl2__cuda_program *handle, char *out)
{
    const program *p = (program *)(void *)handle;
    memcpy(out, p->text, p->bytes);
    return 0;
}

void ptx_compiler_fill(exl2__cuda_nvrtc *nvrtc)
{
    real = *nvrtc;
    nvrtc->program_make = program_make;
    nvrtc->program_free = program_free;
    nvrtc->compile = compile;
    nvrtc->log_bytes = log_bytes;
    nvrtc->log = log_text;
    nvrtc->cubin_bytes = nvrtc->ptx_bytes = text_bytes;
    nvrtc->cubin = nvrtc->ptx = text_copy;
}
