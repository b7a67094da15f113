/* cuda_cache.h: compiled modules in the application's kernel cache: names of entries, and how damage is detected.
   takes: the application's cache hook, an open source, a target.
   gives: exl2__cuda_key; exl2__cuda_cache_load, exl2__cuda_cache_store.
   owns:  nothing; a loaded entry is the caller's.

   An entry, little-endian: 0 "EXL2KRN1" | 8 u64 hash of the key | 16 u32 NVRTC version (13000 = 13.0) | 20 u32 1 = PTX,
   0 = machine code | 24 u64 bytes of the image | 32 u64 hash of bytes 0..31 and of the image | 40 the image. */
#ifndef EXL2__CUDA_CACHE_H
#define EXL2__CUDA_CACHE_H

#include "cuda_compile.h"

#define EXL2__CUDA_KEY_MAX 64u
#define EXL2__CUDA_ENTRY_HEAD 40u
#define EXL2__CUDA_ENTRY_BYTES_MAX ((size_t)64 << 20)

/* Key of an entry, such as "gemv-sm_89-0123456789abcdef": module, target, and a hash of sources, of all options that
   NVRTC gets, and of EXL2_VERSION. more [count]: options beside those of every module. Computing it needs no NVRTC,
   whose version is not part of it: an application with a compiler and one without share entries. */
EXL2__PRIVATE void exl2__cuda_key(const exl2__cuda_source *source, exl2__cuda_target target, const char *const *more,
                                  uint32_t count, char key[EXL2__CUDA_KEY_MAX])
{
    char name[16], digits[17], architecture[48];
    const char *options[EXL2__CUDA_OPTIONS_ALL];
    exl2__cuda_target_name(target, name, sizeof name);
    count = exl2__cuda_target_options(target, more, count, architecture, options);
    uint64_t hash[2] = { exl2__cuda_source_hash(source), EXL2_VERSION }, all = exl2__hash(hash, sizeof hash);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t pair[2] = { all, exl2__hash(options[i], strlen(options[i])) };
        all = exl2__hash(pair, sizeof pair);
    }
    for (int i = 15; i >= 0; i--, all >>= 4) {
        digits[i] = "0123456789abcdef"[all & 15];
    }
    digits[16] = 0;
    const char *folder = strchr(source->names[0], '/'), *module = folder ? folder + 1 : source->names[0];
    size_t stem = strcspn(module, ".");
    exl2__format(key, EXL2__CUDA_KEY_MAX, "%.*s-%s-%s", (int)(stem < 28 ? stem : 28), module, name, digits);
}

/* What stands at byte 32 of an entry. head: its bytes 0..31. */
static inline uint64_t exl2__cuda_entry_hash(const void *head, const void *image, size_t bytes)
{
    return exl2__hash_words(image, bytes, exl2__hash(head, 32));
}

/* Whether the bytes are an undamaged entry of this key. */
EXL2__PRIVATE bool exl2__cuda_entry_valid(const char *key, const uint8_t *entry, size_t bytes)
{
    return bytes > EXL2__CUDA_ENTRY_HEAD && memcmp(entry, "EXL2KRN1", 8) == 0
           && exl2__load64(entry + 8) == exl2__hash(key, strlen(key))
           && exl2__load64(entry + 24) == bytes - EXL2__CUDA_ENTRY_HEAD
           && exl2__load64(entry + 32) == exl2__cuda_entry_hash(entry, entry + EXL2__CUDA_ENTRY_HEAD,
                                                                bytes - EXL2__CUDA_ENTRY_HEAD);
}

/* *entry: the whole entry, with its image at EXL2__CUDA_ENTRY_HEAD and a NUL after it; empty if the cache has none. A
   damaged entry counts as missing, with a warning. */
EXL2__PRIVATE exl2_result exl2__cuda_cache_load(exl2__ctx *c, const exl2_kernel_cache *cache, const char *key,
                                                exl2__blob *entry)
{
    void *memory;
    *entry = (exl2__blob){ 0 };
    size_t bytes = cache->load ? cache->load(cache->user, key, NULL, 0) : 0;
    if (bytes == 0) {
        return EXL2_OK;
    }
    if (bytes <= EXL2__CUDA_ENTRY_BYTES_MAX) {
        EXL2__TRY(exl2__alloc(c, (uint64_t)bytes + 1, sizeof(uint64_t), EXL2_MEM_GENERAL, &memory));
        *entry = (exl2__blob){ (char *)memory, bytes };
        entry->data[bytes] = 0;
        if (cache->load(cache->user, key, entry->data, bytes) == bytes
            && exl2__cuda_entry_valid(key, (const uint8_t *)memory, bytes)) {
            return EXL2_OK;
        }
        exl2__blob_close(c, entry);
    }
    exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_KERNEL_ENTRY_DAMAGED,
              "entry %s of the kernel cache is damaged and was ignored", key);
    return EXL2_OK;
}

/* Makes *entry from the image, in the form of exl2__cuda_cache_load, and stores it. */
EXL2__PRIVATE exl2_result exl2__cuda_cache_store(exl2__ctx *c, const exl2_kernel_cache *cache, const char *key,
                                                 uint32_t nvrtc_version, bool ptx, const exl2__blob *image,
                                                 exl2__blob *entry)
{
    void *memory;
    uint64_t bytes = EXL2__CUDA_ENTRY_HEAD + image->bytes;
    *entry = (exl2__blob){ 0 };
    EXL2__TRY(exl2__alloc(c, bytes + 1, sizeof(uint64_t), EXL2_MEM_GENERAL, &memory));
    uint8_t *head = (uint8_t *)memory;
    *entry = (exl2__blob){ (char *)memory, bytes };
    memcpy(head, "EXL2KRN1", 8);
    exl2__store64(head + 8, exl2__hash(key, strlen(key)));
    exl2__store32(head + 16, nvrtc_version);
    exl2__store32(head + 20, ptx);
    exl2__store64(head + 24, image->bytes);
    exl2__store64(head + 32, exl2__cuda_entry_hash(head, image->data, (size_t)image->bytes));
    memcpy(head + EXL2__CUDA_ENTRY_HEAD, image->data, (size_t)image->bytes);
    head[bytes] = 0;
    if (cache->store) {
        cache->store(cache->user, key, head, (size_t)bytes);
    }
    return EXL2_OK;
}

#endif
