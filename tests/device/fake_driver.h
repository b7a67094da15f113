/* fake_driver.h: a CUDA driver and an NVRTC that record every object and every misuse, so that the CPU code of the CUDA
   backend runs without a GPU. Copies are done in host memory, in the order of streams and events, as late as a device
   may do them; launches are checked and passed to a callback; any call can be made to fail.
   takes: the description of the machine in `fake`, after fake_reset.
   gives: fake_driver, fake_nvrtc: the tables; fake_leaks: number of leaks; fake_memory: access to device memory.
   owns:  the objects of all handles; fake_reset frees them. */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include "../engine_rig.h"

#include <stdint.h>
#include <time.h>

/* The tests' engine calls these two in place of nanosleep and clock_gettime (fake_engine.c); for counted_engine.c they
   are declared before the engine's files. During a sleep the device works until each stream has recorded an event. The
   clock advances by the length of each sleep and by a microsecond per reading, so that the times that the engine
   measures do not depend on the machine. */
int fake_sleep(const struct timespec *time, struct timespec *left);
int fake_clock(int clock, struct timespec *time);

#include "private/cuda_api.h"

#define FAKE_DEVICES_MAX 8

typedef struct fake_device {
    char name[32];
    uint8_t uuid[16], luid[8];
    int arch_major, arch_minor, sm_count, memory_clock, memory_width, compute_mode, shared_optin;
    uint64_t bytes_total, bytes_used;
    int retained; /* reference count of its primary context */
} fake_device;

typedef struct fake_kernel { /* a row of kernels.def.h */
    const char *function, *module;
    size_t argument_bytes;
    const char *dynamic; /* dynamic shared memory: NONE or BUDGET */
} fake_kernel;

/* For EXL2__KERNELS, after the definitions of the kernels' argument structs. */
#define FAKE_KERNEL_ROW(function, module, arguments, shared) { #function, module, sizeof(arguments), #shared },

typedef struct fake_state {
    /* the machine: fake_reset makes one device of 8.9, driver and NVRTC 13.0 */
    fake_device devices[FAKE_DEVICES_MAX];
    int device_count, driver_version, nvrtc_version;
    int archs[16], arch_count; /* architectures that NVRTC supports */
    const fake_kernel *kernels;
    size_t kernel_count;
    /* Called when a launch is executed, and may access device memory; NULL: launches do nothing. */
    void (*run)(const char *function, const void *arguments, const unsigned grid[3]);
    int running;             /* device of the launch that `run` is called for */
    uint32_t cluster;        /* CTAs of its clusters */
    int fresh;               /* what each byte of new device memory is */
    bool eager;              /* queued work is executed at once; else when a call sleeps, waits or queries */
    bool ahead;              /* before each launch other streams have made all copies that wait for nothing */
    /* Whether copies from device i reach the memory of device j, and what they bring there. fake_reset: NONE. */
    enum { FAKE_PEER_NONE, FAKE_PEER_GOOD, FAKE_PEER_WRONG } peer[FAKE_DEVICES_MAX][FAKE_DEVICES_MAX];
    /* failing */
    uint32_t fail_at;        /* the n-th call from now fails, 1 = the next; 0 = none */
    const char *fail_name;   /* fail_at counts only calls of this name; NULL: all calls */
    int fail_code;           /* result of a driver call that fails; fail_nvrtc: of an NVRTC call */
    int fail_nvrtc;
    char failed[64];         /* name of the call that failed */
    int lost;                /* a sticky error, which all later calls return; 0 = none */
    bool lost_alone;         /* set by a test: only the GPU that gives the error is lost, */
    int lost_device;         /* which is this one; the others work */
    uint32_t fault_at;       /* the n-th launch executed from now faults, and the device is lost; 0 = none */
    int fault_code;
    /* records */
    uint32_t calls, launches, clusters, programs, compiles, module_loads; /* clusters: launches with clusters */
    char options[8][48];        /* of the module that was compiled last */
    uint32_t option_count;
    uint64_t allocated;      /* bytes of device memory that are allocated now */
    uint64_t most;           /* the same at its peak */
    uint32_t peer_copies;    /* copies from one device to another */
    uint64_t copied;         /* bytes of all copies from device memory to device memory */
    int context_depth;
    char misuse[160];        /* the first misuse: something that a real driver or GPU would not tolerate */
} fake_state;

extern fake_state fake;

void fake_reset(void);
exl2__cuda_driver fake_driver(void);
exl2__cuda_nvrtc fake_nvrtc(void);

/* Defined by the test, for fake_engine.c: fills in the tables of driver and compiler; either pointer may be NULL. */
void machine_tables(exl2__cuda_driver *driver, exl2__cuda_nvrtc *nvrtc);

/* Prints each object that still lives and each misuse. Returns their number. */
int fake_leaks(void);

/* The device whose memory has this address; -1: none. */
int fake_device_of(uint64_t address);

/* Whether the number is an address of device memory that has been freed. */
bool fake_stale(uint64_t number);

/* The host memory that stands for [address, address + bytes); NULL if that is not inside one allocation. */
void *fake_memory(uint64_t address, uint64_t bytes);

/* Makes a context as an application does for itself; it is current until fake_host_context_end. */
void *fake_host_context(int device);
void fake_host_context_end(void *context);

/* Whether the whole range lies in pinned memory. */
bool fake_pinned(const void *memory, size_t bytes);

/* For fake_nvrtc.c. fake_call counts a call and returns the error code if this call is to fail, else 0; fake_misuse
   records a misuse. Neither prints anything. */
int fake_call(const char *name, bool nvrtc);
void fake_misuse(const char *what);
int fake_nvrtc_leaks(void);
void fake_nvrtc_reset(void);

#endif
