/* fake_library.c: the fake driver and compiler as a library with the real names of their functions: copies of it named
   as the real ones are found and loaded as those are. Queued work is done at once; launches compute nothing.
   takes: fake_driver.c, fake_memory.c, fake_work.c and fake_nvrtc.c of tests/device; x86-64.
   gives: the functions of the driver and of NVRTC. When it is unloaded it prints to stderr what was called and what is
          left over.
   owns:  what they own. */
#include "../../exl2_impl/3_backend/cuda/cuda.h"

#include "../../kernels_src/probe_args.h"
#include "../device/fake_driver.h"

static const fake_kernel kernels[] = { EXL2__KERNELS(FAKE_KERNEL_ROW) };

#define X(member, name, needed, parameters) void *fake_address_##member;
EXL2__CUDA_DRIVER_FUNCTIONS(X)
EXL2__CUDA_NVRTC_FUNCTIONS(X)
#undef X

/* The functions of the library, each of which jumps to an address: so their parameters need not be repeated. This one,
   which contains them, is never called. */
__attribute__((used)) static void functions(void)
{
#define X(member, name, needed, parameters) \
    __asm__ volatile(".globl " name "\n" name ":\njmp *fake_address_" #member "(%rip)\n");
    EXL2__CUDA_DRIVER_FUNCTIONS(X)
    EXL2__CUDA_NVRTC_FUNCTIONS(X)
#undef X
}

__attribute__((constructor)) static void loaded(void)
{
    exl2__cuda_driver driver = fake_driver();
    exl2__cuda_nvrtc nvrtc = fake_nvrtc();
#define X(member, name, needed, parameters) memcpy(&fake_address_##member, &driver.member, sizeof(void *));
    EXL2__CUDA_DRIVER_FUNCTIONS(X)
#undef X
#define X(member, name, needed, parameters) memcpy(&fake_address_##member, &nvrtc.member, sizeof(void *));
    EXL2__CUDA_NVRTC_FUNCTIONS(X)
#undef X
    fake_reset();
    fake.kernels = kernels;
    fake.kernel_count = EXL2__COUNT(kernels);
    fake.eager = true;
}

__attribute__((destructor)) static void unloaded(void)
{
    int left = fake_leaks();
    fprintf(stderr, "fake library: %s, %s, %d left over, %llu bytes of device memory left over\n",
            fake.launches ? "launches" : "no launch", fake.compiles ? "compiles" : "nothing compiled", left,
            (unsigned long long)fake.allocated);
}
