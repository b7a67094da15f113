/* kernel_folder.h: a kernel cache for tests that keeps each entry in a file of a folder, named by the entry's key.
   takes: $EXL2_TEST_KERNELS, or a folder that build_kernels.c fills.
   gives: kernel_folder_of, kernel_folder. */
#ifndef KERNEL_FOLDER_H
#define KERNEL_FOLDER_H

#include "../check.h"

static inline FILE *kernel_folder_file(void *user, const char *key, const char *mode)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", (const char *)user, key);
    return fopen(path, mode);
}

static inline size_t kernel_folder_load(void *user, const char *key, void *out, size_t cap)
{
    FILE *file = kernel_folder_file(user, key, "rb");
    size_t bytes = 0;
    if (!file) {
        return 0;
    }
    if (out) {
        bytes = fread(out, 1, cap, file);
    } else if (fseek(file, 0, SEEK_END) == 0) {
        bytes = (size_t)ftell(file);
    }
    fclose(file);
    return bytes;
}

static inline void kernel_folder_store(void *user, const char *key, const void *data, size_t bytes)
{
    FILE *file = kernel_folder_file(user, key, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        printf("cannot write %s/%s\n", (const char *)user, key);
        exit(1);
    }
}

static inline exl2_kernel_cache kernel_folder_of(char *folder)
{
    return (exl2_kernel_cache){ kernel_folder_load, kernel_folder_store, folder };
}

/* The cache in folder $EXL2_TEST_KERNELS. If that is not set, there is no cache: each program compiles its kernels. */
static inline exl2_kernel_cache kernel_folder(void)
{
    char *folder = getenv("EXL2_TEST_KERNELS");
    return folder && *folder ? kernel_folder_of(folder) : (exl2_kernel_cache){ 0 };
}

#endif
