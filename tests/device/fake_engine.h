/* fake_engine.h: the whole engine over the fake driver, with a kernel cache in memory and a record of what the engine
   logs. Link fake_engine.c as the engine.
   takes: `machine`, which says whether a driver and a compiler are installed; `fake` of fake_driver.h.
   gives: machine_make, machine_desc, machine_drop_cache, machine_end; the cache's entries; warnings and errors.
   owns:  the cache, until machine_drop_cache. */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include "fake_driver.h"

#include "private/cuda.h"
#ifdef EXL2_CONVERT
#include "../../kernels_src/convert/convert_args.h"
#endif
#include "../../kernels_src/probe_args.h"
#include "../check.h"

#define MACHINE_ENTRIES 512

typedef struct machine_entry {
    char key[EXL2__CUDA_KEY_MAX];
    uint8_t *data;
    size_t bytes;
} machine_entry;

static struct machine {
    bool driver, compiler; /* whether each is installed */
    machine_entry entries[MACHINE_ENTRIES];
    uint32_t entry_count, stores;
    uint32_t warnings, errors; /* logged lines of that level */
    char warning[256], error[256]; /* last line of each level */
    exl2_log_id warning_id, error_id; /* log ids of those lines */
} machine;

static const fake_kernel machine_kernels[] = { EXL2__KERNELS(FAKE_KERNEL_ROW) };

void machine_tables(exl2__cuda_driver *driver, exl2__cuda_nvrtc *nvrtc)
{
    if (driver && machine.driver) {
        *driver = fake_driver();
    }
    if (nvrtc && machine.compiler) {
        *nvrtc = fake_nvrtc();
    }
}

static size_t machine_load(void *user, const char *key, void *out, size_t cap)
{
    (void)user;
    for (uint32_t i = 0; i < machine.entry_count; i++) {
        const machine_entry *e = &machine.entries[i];
        if (strcmp(e->key, key) == 0) {
            if (out && cap >= e->bytes) {
                memcpy(out, e->data, e->bytes);
            }
            return e->bytes;
        }
    }
    return 0;
}

static void machine_store(void *user, const char *key, const void *data, size_t bytes)
{
    uint32_t i = 0;
    (void)user;
    while (i < machine.entry_count && strcmp(machine.entries[i].key, key) != 0) {
        i++;
    }
    if (i == machine.entry_count && !CHECK(machine.entry_count++ < MACHINE_ENTRIES)) {
        exit(1);
    }
    machine_entry *e = &machine.entries[i];
    free(e->data);
    snprintf(e->key, sizeof e->key, "%s", key);
    e->data = malloc(bytes);
    memcpy(e->data, data, bytes);
    e->bytes = bytes;
    machine.stores++;
}

static void machine_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user;
    (void)code;
    bool error = level == EXL2_LOG_ERROR;
    machine.errors += error;
    machine.warnings += level == EXL2_LOG_WARN;
    *(error ? &machine.error_id : &machine.warning_id) = id;
    snprintf(error ? machine.error : machine.warning, sizeof machine.error, "%s", text);
}

static inline void machine_drop_cache(void)
{
    for (uint32_t i = 0; i < machine.entry_count; i++) {
        free(machine.entries[i].data);
    }
    memset(machine.entries, 0, sizeof machine.entries);
    machine.entry_count = machine.stores = 0;
}

/* A fresh machine with a driver and a compiler. The cache keeps its entries. */
static inline void machine_make(void)
{
    fake_reset();
    fake.kernels = machine_kernels;
    fake.kernel_count = EXL2__COUNT(machine_kernels);
    machine.driver = machine.compiler = true;
    machine.warnings = machine.errors = 0;
    machine.warning[0] = machine.error[0] = 0;
}

/* A desc with the cache and the log. If the machine has no compiler, the path hides the one of the system. */
static inline exl2_engine_desc machine_desc(exl2_backend backend, exl2_error *error)
{
    exl2_engine_desc d = { .backend = backend, .open_error = error };
    d.nvrtc_path = machine.compiler ? NULL : "/nowhere/libnvrtc.so";
    d.kernel_cache = (exl2_kernel_cache){ machine_load, machine_store, NULL };
    d.log.line = machine_line;
    return d;
}

/* Checks that no object of the fake driver and no device memory is left. */
static inline void machine_end(void)
{
    CHECK_INT(fake_leaks(), 0);
    CHECK_INT(fake.allocated, 0);
}

#endif
