/* other_gpu.c: a GPU of compute capability 9.0 that stands in for every other kind, over the fake driver, which loads
   only images that such a GPU runs: the engine sees the other GPU's attributes, and loads PTX.
   takes: the fake driver.
   gives: exit code. */
#define _XOPEN_SOURCE 700
#include "../device/other_gpu.h"

#include "private/cuda.h"
#include "../device/fake_driver.h"
#include "../../kernels_src/probe_args.h"

static const fake_kernel kernels[] = { EXL2__KERNELS(FAKE_KERNEL_ROW) };

/* A machine with one H100. */
static void machine_make(void)
{
    fake_reset();
    fake.kernels = kernels;
    fake.kernel_count = EXL2__COUNT(kernels);
    fake.devices[0].arch_major = 9;
    fake.devices[0].arch_minor = 0;
    fake.devices[0].sm_count = 132;
    fake.devices[0].shared_optin = 232448;
}

static void test_kind(const char *arch, const char *sms, uint32_t sm_count, uint32_t shared_bytes)
{
    exl2__ctx c = { .allocator = exl2__platform_allocator(), .files = exl2__platform_files() };
    exl2__cuda_device d = { 0 };
    exl2__cuda_settings settings = { 0 };
    machine_make();
    CHECK_INT(setenv("EXL2_TEST_ARCH", arch, 1), 0);
    CHECK_INT(setenv("EXL2_TEST_SMS", sms, 1), 0);
    d.driver = fake_driver();
    d.compiler.nvrtc = fake_nvrtc();
    other_gpu_tables(&d.driver, &d.compiler.nvrtc);
    CHECK_INT(exl2__cuda_device_open(&c, &d, &settings), EXL2_OK);
    CHECK_INT(d.info.arch, *arch ? strtoul(arch, NULL, 10) : 90);
    CHECK_INT(d.sm_count, sm_count);
    CHECK_INT(d.shared_bytes, shared_bytes);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    if (!CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK)) {
        printf("  %s\n", c.error.text);
    }
    bool has = d.kernels.functions[EXL2__KERNEL_exl2k_gemv16] != NULL;
    CHECK(has == exl2__cuda_module_exists("gemv16.cu", d.info.arch));
    /* More shared memory than the other GPU has is refused, though the GPU at hand has it. */
    exl2__cuda_function *function = d.kernels.functions[EXL2__KERNEL_exl2k_gemv8];
    CHECK_INT(d.driver.function_set(function, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, (int)shared_bytes), 0);
    CHECK(d.driver.function_set(function, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, (int)shared_bytes + 1) != 0);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    CHECK_INT(c.host_bytes, 0);
    CHECK_INT(fake_leaks(), 0);
}

int main(void)
{
    test_kind("75", "", 46, 64 << 10);
    test_kind("80", "", 108, 163 << 10);
    test_kind("86", "", 28, 99 << 10);
    test_kind("86", "82", 82, 99 << 10);
    test_kind("89", "128", 128, 99 << 10);
    test_kind("100", "", 148, 227 << 10);
    test_kind("120", "", 170, 99 << 10);
    test_kind("", "", 132, 227 << 10);
    test_kind("", "28", 28, 227 << 10);
    return check_done();
}
