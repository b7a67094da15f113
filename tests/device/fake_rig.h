/* fake_rig.h: a few small kernels with sources in memory, a kernel cache in memory, and devices of the fake driver.
   takes: fake_driver.h; include this before anything else that includes cuda_kernels.h.
   gives: rig_make, rig_open, rig_end; cache_entry and the cache's counters.
   owns:  everything in `rig`, until rig_end. */
#ifndef FAKE_RIG_H
#define FAKE_RIG_H

#include <stdint.h>

#define EXL2_KERNEL_DIR "kernels" /* a folder in memory */
#define EXL2__KERNELS(X)                               \
    X(exl2k_one, "one.cu", fake_one_args, NONE)        \
    X(exl2k_two, "two.cu", fake_two_args, BUDGET)      \
    X(exl2k_again, "one.cu", fake_two_args, BUDGET)    \
    X(exl2k_wide, "wide_wg.cu", fake_one_args, NONE)
typedef struct fake_one_args {
    uint64_t to;
    uint32_t value, count;
} fake_one_args;
typedef struct fake_two_args {
    uint64_t to, from, bytes;
} fake_two_args;

#include "private/cuda_ring.h"
#include "../memory_files.h"
#include "fake_driver.h"

#define RIG_ENTRIES 32

typedef struct cache_entry {
    char key[EXL2__CUDA_KEY_MAX];
    uint8_t *data;
    size_t bytes;
} cache_entry;

static struct rig {
    memory_files files;
    cache_entry entries[RIG_ENTRIES];
    uint32_t entry_count, stores, misses;
    exl2__cuda_settings settings;
    uint32_t errors; /* logged errors */
    char lines[2048]; /* all logged lines */
} rig;

static const fake_kernel rig_kernels[] = { EXL2__KERNELS(FAKE_KERNEL_ROW) };

static size_t rig_load(void *user, const char *key, void *out, size_t cap)
{
    (void)user;
    for (uint32_t i = 0; i < rig.entry_count; i++) {
        if (strcmp(rig.entries[i].key, key) == 0) {
            if (cap >= rig.entries[i].bytes) {
                memcpy(out, rig.entries[i].data, rig.entries[i].bytes);
            }
            return rig.entries[i].bytes;
        }
    }
    rig.misses++;
    return 0;
}

static void rig_store(void *user, const char *key, const void *data, size_t bytes)
{
    (void)user;
    uint32_t i = 0;
    while (i < rig.entry_count && strcmp(rig.entries[i].key, key) != 0) {
        i++;
    }
    if (i == rig.entry_count) {
        CHECK(rig.entry_count < RIG_ENTRIES);
        rig.entry_count++;
    }
    free(rig.entries[i].data);
    snprintf(rig.entries[i].key, sizeof rig.entries[i].key, "%s", key);
    rig.entries[i].data = malloc(bytes);
    memcpy(rig.entries[i].data, data, bytes);
    rig.entries[i].bytes = bytes;
    rig.stores++;
}

static void rig_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    memory_line(user, level, id, code, text);
    if (level == EXL2_LOG_ERROR) {
        rig.errors++;
        size_t used = strlen(rig.lines);
        snprintf(rig.lines + used, sizeof rig.lines - used, "%s\n", text);
    }
}

/* Executes the kernels: exl2k_one fills words, the others copy bytes. */
static void rig_run(const char *function, const void *arguments, const unsigned grid[3])
{
    (void)grid;
    if (strcmp(function, "exl2k_one") == 0) {
        const fake_one_args *a = arguments;
        uint32_t *to = fake_memory(a->to, a->count * sizeof *to);
        for (uint32_t i = 0; to && i < a->count; i++) {
            to[i] = a->value;
        }
    } else {
        const fake_two_args *a = arguments;
        void *to = fake_memory(a->to, a->bytes), *from = fake_memory(a->from, a->bytes);
        if (to && from) {
            memmove(to, from, (size_t)a->bytes);
        }
    }
}

static void rig_drop_cache(void)
{
    for (uint32_t i = 0; i < rig.entry_count; i++) {
        free(rig.entries[i].data);
        rig.entries[i] = (cache_entry){ 0 };
    }
    rig.entry_count = rig.stores = rig.misses = 0;
}

/* A fresh machine. The cache keeps its entries. */
static void rig_make(void)
{
    fake_reset();
    fake.kernels = rig_kernels;
    fake.kernel_count = EXL2__COUNT(rig_kernels);
    fake.run = rig_run;
    memory_make(&rig.files);
    rig.files.c.logger.line = rig_line;
    rig.errors = 0;
    rig.lines[0] = 0;
    memory_add_text(&rig.files, "one.cu", "#include \"base.cuh\"\nvoid one();\n");
    memory_add_text(&rig.files, "two.cu", "#include \"base.cuh\"\n#include \"two_args.h\"\nvoid two();\n");
    memory_add_text(&rig.files, "base.cuh", "#include \"types.h\"\n");
    memory_add_text(&rig.files, "two_args.h", "#include \"types.h\"\nstruct two;\n");
    memory_add_text(&rig.files, "types.h", "typedef int word;\n");
    memory_add_text(&rig.files, "wide_wg.cu", "void wide();\n");
    rig.settings = (exl2__cuda_settings){ .cache = { rig_load, rig_store, NULL } };
}

/* A machine with three devices: the first is fast but too old, the third is faster than the second. */
static void rig_three_devices(void)
{
    fake.device_count = 3;
    fake.devices[1] = fake.devices[2] = fake.devices[0];
    snprintf(fake.devices[0].name, sizeof fake.devices[0].name, "FakeForce 1080");
    fake.devices[0].arch_major = 6;
    fake.devices[0].arch_minor = 1;
    fake.devices[0].memory_width = 4096;
    fake.devices[1].uuid[0] = 11;
    fake.devices[1].luid[0] = 12;
    fake.devices[2].uuid[0] = 21;
    fake.devices[2].luid[0] = 22;
    fake.devices[2].memory_width = 512;
}

/* Opens a device of the fake driver. compiler: whether NVRTC is installed. */
static exl2_result rig_open(exl2__cuda_device *d, bool compiler)
{
    *d = (exl2__cuda_device){ .driver = fake_driver() };
    if (compiler) {
        d->compiler.nvrtc = fake_nvrtc();
    } else {
        rig.settings.nvrtc_path = "/nowhere/libnvrtc.so";
    }
    return exl2__cuda_device_open(&rig.files.c, d, &rig.settings);
}

/* Checks that no object of the fake driver and no device memory is left. */
static void rig_end(void)
{
    CHECK_INT(fake_leaks(), 0);
    CHECK_INT(fake.allocated, 0);
    memory_free(&rig.files);
}

#endif
