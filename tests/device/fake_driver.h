/* fake_driver.h: a CUDA driver and an NVRTC that keep books, so that the host side runs without a GPU. Copies are done
   in host memory, lazily and in the order of streams and events, as late as a device may do them; kernels are checked
   and handed to a callback; any call can be made to fail.
   takes: what the machine is like, in `fake`, after fake_reset.
   gives: fake_driver, fake_nvrtc: the tables; fake_leaks: what was not given back; fake_memory: bytes of the device.
   owns:  everything behind the handles; fake_reset frees it. */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <time.h>

/* For fake_engine.c, in place of nanosleep and clock_gettime, so in front of the engine's own files. While the host
   sleeps the device works until each stream has recorded an event; the clock goes by what sleeps ask for, and by a
   microsecond a look, so that what the engine learns of times does not depend on the machine. */
int fake_sleep(const struct timespec *time, struct timespec *left);
int fake_clock(int clock, struct timespec *time);

#include "../../exl2_impl/3_backend/cuda/cuda_api.h"

#define FAKE_DEVICES_MAX 4

typedef struct fake_device {
    char name[32];
    uint8_t uuid[16], luid[8];
    int arch_major, arch_minor, sm_count, memory_clock, memory_width, compute_mode, shared_optin;
    uint64_t bytes_total, bytes_used;
    int retained; /* of its primary context */
} fake_device;

typedef struct fake_kernel { /* a row of kernels.def.h */
    const char *function, *module;
    size_t argument_bytes;
    const char *dynamic; /* shared memory: NONE, BUDGET */
} fake_kernel;

/* The rows of the present EXL2__KERNELS, whose argument structs are known. */
#define FAKE_KERNEL_ROW(function, module, arguments, shared) { #function, module, sizeof(arguments), #shared },

typedef struct fake_state {
    /* the machine: fake_reset makes one device of 8.9, driver and NVRTC 13.0 */
    fake_device devices[FAKE_DEVICES_MAX];
    int device_count, driver_version, nvrtc_version;
    int archs[16], arch_count; /* that NVRTC knows */
    const fake_kernel *kernels;
    size_t kernel_count;
    /* Called when a launch is executed; NULL: it does nothing. May read and write device memory. */
    void (*run)(const char *function, const void *arguments, const unsigned grid[3]);
    bool eager;              /* the device does at once what is queued; else while the host sleeps, waits or asks */
    /* failing */
    uint32_t fail_at;        /* the n-th call from now fails, 1 = the next; 0 = none */
    const char *fail_name;   /* that counts calls of this name only; NULL: all */
    int fail_code;           /* with this; NVRTC's calls with fail_nvrtc */
    int fail_nvrtc;
    char failed[64];         /* the call that did */
    int lost;                /* a sticky result, which all later calls give */
    uint32_t fault_at;       /* the n-th launch to be executed from now faults, and the device is lost; 0 = none */
    int fault_code;
    /* books */
    uint32_t calls, launches, programs, compiles, module_loads;
    uint64_t allocated;      /* device bytes now */
    uint64_t copied;         /* bytes by copies from the device to itself */
    int context_depth;
    char misuse[160];        /* the first thing that a real driver would not have stood */
} fake_state;

extern fake_state fake;

void fake_reset(void);
exl2__cuda_driver fake_driver(void);
exl2__cuda_nvrtc fake_nvrtc(void);

/* For fake_engine.c: what the test fills the tables of the engine's driver and compiler with; either may be NULL. */
void machine_tables(exl2__cuda_driver *driver, exl2__cuda_nvrtc *nvrtc);

/* Prints each thing that still lives or was misused; returns how many. */
int fake_leaks(void);

/* Whether the number lies where device memory was given out, but in none that lives. */
bool fake_stale(uint64_t number);

/* Where [address, address + bytes) lies; NULL when that is not inside of one allocation. */
void *fake_memory(uint64_t address, uint64_t bytes);

/* A context that the host made itself, current until fake_host_context_end. */
void *fake_host_context(int device);
void fake_host_context_end(void *context);

/* Whether all of it lies in pinned memory. */
bool fake_pinned(const void *memory, size_t bytes);

/* For fake_nvrtc.c: counts a call; nonzero: it is the one that fails. Both print nothing. */
int fake_call(const char *name, bool nvrtc);
void fake_misuse(const char *what);
int fake_nvrtc_leaks(void);
void fake_nvrtc_reset(void);

#endif
