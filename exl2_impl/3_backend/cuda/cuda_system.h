/* cuda_system.h: lists the CUDA devices, says which of them can be used, and picks the one that the application names.
   takes: a path to the driver or NULL; the application's exl2_device_desc.
   gives: exl2__cuda_system_open, exl2__cuda_system_list, exl2__cuda_system_pick.
   owns:  nothing but what exl2__cuda_driver_open opens. */
#ifndef EXL2__CUDA_SYSTEM_H
#define EXL2__CUDA_SYSTEM_H

#include "cuda_api.h"

/* Opens and initializes the driver, whose table may be filled already (tests). A failure is not logged: `why` (cap
   bytes) gets the message. */
EXL2__PRIVATE exl2_result exl2__cuda_system_open(const char *path, exl2__cuda_driver *driver, int *version, char *why,
                                                 size_t cap)
{
    *version = 0;
    if (!driver->init) {
        EXL2__TRY(exl2__cuda_driver_open(path, driver, why, cap));
    }
    int result = driver->driver_version(version);
    if (result == 0 && *version < EXL2__CUDA_DRIVER_MIN) {
        exl2__format(why, cap, "the NVIDIA driver is too old: it supports CUDA %d.%d, at least %d.%d is needed",
                     *version / 1000, *version % 1000 / 10, EXL2__CUDA_DRIVER_MIN / 1000,
                     EXL2__CUDA_DRIVER_MIN % 1000 / 10);
        exl2__cuda_driver_close(driver);
        return EXL2_ERR_NO_DEVICE;
    }
    int count = 0;
    result = result == 0 ? driver->init(0) : result;
    result = result == 0 ? driver->device_count(&count) : result;
    if (result != 0 || count <= 0) {
        if (result == 0 || result == EXL2__CUDA_NO_DEVICE) {
            exl2__format(why, cap, "no CUDA device: the driver (CUDA %d.%d) lists none", *version / 1000,
                         *version % 1000 / 10);
        } else {
            exl2__format(why, cap, "the NVIDIA driver could not be initialized: %s",
                         exl2__cuda_result_name(driver, result));
        }
        exl2__cuda_driver_close(driver);
        return EXL2_ERR_NO_DEVICE;
    }
    return EXL2_OK;
}

/* An attribute of a device; 0 if the driver does not report it. */
static inline int exl2__cuda_system_attribute(const exl2__cuda_driver *driver, int device, int attribute)
{
    int value = 0;
    return driver->device_attribute(&value, attribute, device) == 0 ? value : 0;
}

/* Describes one device, without making a context. */
EXL2__PRIVATE void exl2__cuda_system_describe(const exl2__cuda_driver *driver, uint32_t index, exl2_device_info *out)
{
    int device = 0;
    size_t bytes = 0;
    unsigned mask = 0;
    *out = (exl2_device_info){ .index = index };
    int result = driver->device_get(&device, (int)index);
    if (result != 0) {
        exl2__format(out->why_not, sizeof out->why_not, "the driver cannot open it (%s)",
                     exl2__cuda_result_name(driver, result));
        return;
    }
    if (driver->device_name(out->name, (int)sizeof out->name, device) != 0) {
        exl2__format(out->name, sizeof out->name, "CUDA device %u", index);
    }
    out->name[sizeof out->name - 1] = 0;
    if (driver->device_uuid(out->uuid, device) != 0) {
        memset(out->uuid, 0, sizeof out->uuid);
    }
    if (!driver->device_luid || driver->device_luid((char *)out->luid, &mask, device) != 0) {
        memset(out->luid, 0, sizeof out->luid); /* only Windows has LUIDs */
    }
    out->bytes_total = driver->device_bytes(&bytes, device) == 0 ? bytes : 0;
    int major = exl2__cuda_system_attribute(driver, device, EXL2__CUDA_ARCH_MAJOR), minor = 0;
    result = driver->device_attribute(&minor, EXL2__CUDA_ARCH_MINOR, device);
    out->arch = (uint32_t)(major * 10 + minor);
    if (result != 0 || major <= 0) {
        exl2__format(out->why_not, sizeof out->why_not, "the driver does not report its compute capability");
    } else if (out->arch < EXL2__CUDA_ARCH_MIN) {
        exl2__format(out->why_not, sizeof out->why_not, "its compute capability is %u.%u, at least %u.%u is needed",
                     out->arch / 10, out->arch % 10, EXL2__CUDA_ARCH_MIN / 10, EXL2__CUDA_ARCH_MIN % 10);
    } else if (exl2__cuda_system_attribute(driver, device, EXL2__CUDA_COMPUTE_MODE) == 2) {
        exl2__format(out->why_not, sizeof out->why_not, "its compute mode prohibits new contexts");
    }
    out->usable = out->why_not[0] == 0;
}

/* Describes up to `cap` devices. *count: number of devices, which may exceed cap. */
EXL2__PRIVATE void exl2__cuda_system_list(const exl2__cuda_driver *driver, exl2_device_info *out, uint32_t cap,
                                          uint32_t *count)
{
    int found = 0;
    *count = driver->device_count(&found) == 0 && found > 0 ? (uint32_t)found : 0;
    for (uint32_t i = 0; i < *count && i < cap; i++) {
        exl2__cuda_system_describe(driver, i, &out[i]);
    }
}

/* Rank of a device: clock times width of its memory, as the speed of decoding depends on memory bandwidth. */
EXL2__PRIVATE uint64_t exl2__cuda_system_rank(const exl2__cuda_driver *driver, uint32_t index)
{
    int device = 0;
    if (driver->device_get(&device, (int)index) != 0) {
        return 0;
    }
    int clock = exl2__cuda_system_attribute(driver, device, EXL2__CUDA_MEMORY_CLOCK);
    int width = exl2__cuda_system_attribute(driver, device, EXL2__CUDA_MEMORY_WIDTH);
    return clock > 0 && width > 0 ? (uint64_t)clock * (uint64_t)width : 1;
}

/* Finds the device of the application's own context. */
EXL2__PRIVATE exl2_result exl2__cuda_system_of_context(exl2__ctx *c, const exl2__cuda_driver *driver, void *context,
                                                       uint32_t count, uint32_t *index)
{
    int device = 0, listed = 0;
    exl2__cuda_context *popped;
    if (!context) {
        return exl2__fail(c, EXL2_ERR_ARG, "EXL2_PICK_CONTEXT needs a cuda_context, but it is NULL");
    }
    int result = driver->context_push((exl2__cuda_context *)context);
    if (result == 0) {
        result = driver->context_device(&device);
        driver->context_pop(&popped);
    }
    for (*index = 0; result == 0 && *index < count; ++*index) {
        if (driver->device_get(&listed, (int)*index) == 0 && listed == device) {
            return EXL2_OK;
        }
    }
    return exl2__cuda_fail(c, EXL2_ERR_ARG, result, "cuda_context is not a live CUDA context of a listed device (%s)",
                           exl2__cuda_result_name(driver, result));
}

EXL2__PRIVATE bool exl2__cuda_system_matches(const exl2_device_info *info, const exl2_device_desc *d)
{
    switch (d->pick) {
    case EXL2_PICK_UUID:
        return memcmp(info->uuid, d->uuid, sizeof info->uuid) == 0;
    case EXL2_PICK_LUID:
        return memcmp(info->luid, d->luid, sizeof info->luid) == 0;
    default:
        return info->index == d->index;
    }
}

/* Picks the usable device that ranks first. If there is none, the message says why the last one cannot be used. */
EXL2__PRIVATE exl2_result exl2__cuda_system_best(exl2__ctx *c, const exl2__cuda_driver *driver, uint32_t count,
                                                 exl2_device_info *out)
{
    uint64_t best = 0;
    exl2_device_info info = { 0 };
    for (uint32_t i = 0; i < count; i++) {
        exl2__cuda_system_describe(driver, i, &info);
        uint64_t rank = info.usable ? exl2__cuda_system_rank(driver, i) : 0;
        if (rank > best) {
            best = rank;
            *out = info;
        }
    }
    return best ? EXL2_OK : exl2__fail(c, EXL2_ERR_NO_DEVICE, "GPU %s cannot be used: %s", info.name, info.why_not);
}

/* Picks the device that the application names. It exists and can be used, or the message says what is wrong. */
EXL2__PRIVATE exl2_result exl2__cuda_system_pick(exl2__ctx *c, const exl2__cuda_driver *driver,
                                                 const exl2_device_desc *d, exl2_device_info *out)
{
    int found = 0;
    uint32_t count = driver->device_count(&found) == 0 && found > 0 ? (uint32_t)found : 0;
    exl2_device_desc wanted = *d;
    *out = (exl2_device_info){ 0 };
    if (d->pick == EXL2_PICK_BEST) {
        return exl2__cuda_system_best(c, driver, count, out);
    }
    if (d->pick == EXL2_PICK_CONTEXT) {
        EXL2__TRY(exl2__cuda_system_of_context(c, driver, d->cuda_context, count, &wanted.index));
    } else if (d->pick > EXL2_PICK_CONTEXT) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_device_desc.pick is %d, which is not an exl2_pick", (int)d->pick);
    }
    for (uint32_t i = 0; i < count; i++) {
        exl2__cuda_system_describe(driver, i, out);
        if (!exl2__cuda_system_matches(out, &wanted)) {
            continue;
        }
        return out->usable ? EXL2_OK
                           : exl2__fail(c, EXL2_ERR_NO_DEVICE, "GPU %u (%s) cannot be used: %s", i, out->name,
                                        out->why_not);
    }
    *out = (exl2_device_info){ 0 };
    const char *by = d->pick == EXL2_PICK_UUID ? "the given UUID" : d->pick == EXL2_PICK_LUID ? "the given LUID" : NULL;
    return by ? exl2__fail(c, EXL2_ERR_NO_DEVICE, "none of the %u CUDA devices has %s", count, by)
              : exl2__fail(c, EXL2_ERR_NO_DEVICE, "there is no CUDA device %u: the driver lists %u", d->index, count);
}

#endif
