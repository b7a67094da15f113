/* cuda_system.c: missing libraries, the list of devices, how one is chosen, and why a device is unsupported. */
#include "../device/fake_rig.h"

static void test_list(void)
{
    exl2_device_info info[2];
    uint32_t count;
    rig_make();
    rig_three_devices();
    exl2__cuda_driver driver = fake_driver();
    exl2__cuda_system_list(&driver, info, 2, &count);
    CHECK_INT(count, 3);
    CHECK_TEXT(info[0].name, "FakeForce 1080");
    CHECK(!info[0].usable);
    CHECK_TEXT(info[0].why_not, "its compute capability is 6.1, at least 7.5 is needed");
    CHECK(info[1].usable);
    CHECK_INT(info[1].arch, 89);
    CHECK_INT(info[1].index, 1);
    CHECK_INT(info[1].uuid[0], 11);
    CHECK_INT(info[1].luid[0], 12);
    CHECK_INT(info[1].bytes_total, 1 << 30);
    fake.devices[1].compute_mode = 2;
    exl2__cuda_system_list(&driver, info, 2, &count);
    CHECK_TEXT(info[1].why_not, "its compute mode prohibits new contexts");
    rig_end();
}

/* Opens the device that the desc chooses; returns its index, or the error. */
static int picked(exl2_device_desc desc)
{
    exl2__cuda_device d;
    rig.settings.device = &desc;
    exl2_result result = rig_open(&d, true);
    int index = result == EXL2_OK ? (int)d.info.index : (int)result;
    exl2__cuda_device_close(&d);
    rig.settings.device = NULL;
    return index;
}

static void test_pick(void)
{
    rig_make();
    rig_three_devices();
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_BEST }), 2);
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = 1 }), 1);
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = 0 }), EXL2_ERR_NO_DEVICE);
    CHECK_TEXT(rig.files.c.error.text,
               "GPU 0 (FakeForce 1080) cannot be used: its compute capability is 6.1, at least 7.5 is needed");
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = 3 }), EXL2_ERR_NO_DEVICE);
    CHECK_TEXT(rig.files.c.error.text, "there is no CUDA device 3: the driver lists 3");
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_UUID, .uuid = { 21, 2, 3 } }), 2);
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_UUID, .uuid = { 22, 2, 3 } }), EXL2_ERR_NO_DEVICE);
    CHECK_TEXT(rig.files.c.error.text, "none of the 3 CUDA devices has the given UUID");
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_LUID, .luid = { 12, 5 } }), 1);
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_LUID, .luid = { 13 } }), EXL2_ERR_NO_DEVICE);
    CHECK_INT(picked((exl2_device_desc){ .pick = (exl2_pick)9 }), EXL2_ERR_ARG);
    fake.device_count = 1;
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_BEST }), EXL2_ERR_NO_DEVICE);
    check_error(&rig.files.c, "FakeForce 1080", "at least 7.5", "the only device is too old");
    rig_end();
}

static void test_no_device(void)
{
    rig_make();
    fake.device_count = 0;
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_BEST }), EXL2_ERR_NO_DEVICE);
    CHECK_TEXT(rig.files.c.error.text, "no CUDA device: the driver (CUDA 13.0) lists none");
    fake.driver_version = 11080;
    CHECK_INT(picked((exl2_device_desc){ .pick = EXL2_PICK_BEST }), EXL2_ERR_NO_DEVICE);
    CHECK_TEXT(rig.files.c.error.text,
               "the NVIDIA driver is too old: it supports CUDA 11.8, at least 12.0 is needed");
    rig_end();
}

/* Libraries that are missing, and one that is something else. */
static void test_libraries(void)
{
    /* The real compiler stays loaded until the process ends: its C++ runtime allocates a block once and never frees
       that block, which LeakSanitizer reports as soon as the library is unloaded. */
    static exl2__cuda_nvrtc real;
    char why[160];
    exl2__cuda_driver driver;
    exl2__cuda_nvrtc nvrtc;
    CHECK_INT(exl2__cuda_driver_open("/nowhere/libcuda.so.1", &driver, why, sizeof why), EXL2_ERR_NO_DEVICE);
    CHECK_TEXT(why, "no CUDA driver: /nowhere/libcuda.so.1 is not installed");
    CHECK_INT(exl2__cuda_nvrtc_open("/nowhere/libnvrtc.so", &nvrtc, why, sizeof why), EXL2_ERR_NO_COMPILER);
    CHECK(!nvrtc.library && !nvrtc.compile);
    /* An empty path is none: the usual names are tried, which this machine may have. */
    exl2_result result = exl2__cuda_nvrtc_open("", &real, why, sizeof why);
    CHECK(result == EXL2_OK || (result == EXL2_ERR_NO_COMPILER && strstr(why, "libnvrtc.so") != NULL));
    result = exl2__cuda_driver_open("", &driver, why, sizeof why);
    CHECK(result == EXL2_OK || (result == EXL2_ERR_NO_DEVICE && strstr(why, "libcuda.so") != NULL));
    exl2__cuda_driver_close(&driver);
#if defined(__linux__)
    CHECK_INT(exl2__cuda_driver_open("libm.so.6", &driver, why, sizeof why), EXL2_ERR_NO_DEVICE);
    CHECK_TEXT(why, "the CUDA driver libm.so.6 is too old: it has no cuInit");
    CHECK(!driver.library && !driver.init);
    CHECK_INT(exl2__cuda_nvrtc_open("libm.so.6", &nvrtc, why, sizeof why), EXL2_ERR_NO_COMPILER);
    CHECK_TEXT(why, "no kernel compiler: libm.so.6 is too old, it has no nvrtcVersion");
#endif
}

int main(void)
{
    test_list();
    test_pick();
    test_no_device();
    test_libraries();
    fake_reset();
    return check_done();
}
