/* cuda_kernels.c: loading modules from the cache, from the compiler and without a compiler: keys, entries, targets,
   failures. */
#define EXL2__CUDA_THREADS_FOR_ALL 2u
#include "../device/fake_rig.h"

/* ---- keys and sources ---- */

static void key_of(const char *module, exl2__cuda_target target, const char *option, char *key)
{
    exl2__cuda_source source;
    CHECK_INT(exl2__cuda_source_open(&rig.files.c, NULL, module, &source), EXL2_OK);
    exl2__cuda_key(&source, target, &option, option ? 1 : 0, key);
    exl2__cuda_source_close(&rig.files.c, &source);
}

static void test_source(void)
{
    exl2__cuda_source s;
    rig_make();
    CHECK_INT(exl2__cuda_source_open(&rig.files.c, NULL, "two.cu", &s), EXL2_OK);
    CHECK_INT(s.count, 4);
    CHECK_TEXT(s.names[0], "two.cu");
    CHECK_TEXT(s.names[1], "base.cuh");
    CHECK_TEXT(s.names[2], "two_args.h");
    CHECK_TEXT(s.names[3], "types.h");
    CHECK_TEXT(s.texts[3].data, "typedef int word;\n");
    exl2__cuda_source_close(&rig.files.c, &s);
    CHECK_INT(exl2__cuda_source_open(&rig.files.c, NULL, "three.cu", &s), EXL2_ERR_IO);
    CHECK_TEXT(rig.files.c.error.text, "no three.cu in kernels");
    memory_add_text(&rig.files, "bad.cu", "#include \"missing.h\"\n");
    CHECK_INT(exl2__cuda_source_open(&rig.files.c, NULL, "bad.cu", &s), EXL2_ERR_IO);
    CHECK_TEXT(rig.files.c.error.text, "no missing.h in kernels");
    memory_add_text(&rig.files, "long.cu",
                    "#include \"a_name_that_is_longer_than_what_fits_into_the_table_of_names.h\"\n");
    CHECK_INT(exl2__cuda_source_open(&rig.files.c, NULL, "long.cu", &s), EXL2_ERR_INTERNAL);
    rig_end();
}

static void test_keys(void)
{
    char base[EXL2__CUDA_KEY_MAX], other[EXL2__CUDA_KEY_MAX];
    rig_make();
    key_of("one.cu", (exl2__cuda_target){ 89, false }, NULL, base);
    CHECK(strncmp(base, "one-sm_89-", 10) == 0 && strlen(base) == 26);
    key_of("one.cu", (exl2__cuda_target){ 89, false }, NULL, other);
    CHECK_TEXT(other, base);
    key_of("one.cu", (exl2__cuda_target){ 89, false }, "-DTRACE=1", other);
    CHECK(strcmp(other, base) != 0);
    key_of("one.cu", (exl2__cuda_target){ 89, true }, NULL, other);
    CHECK(strncmp(other, "one-compute_89-", 15) == 0);
    key_of("one.cu", (exl2__cuda_target){ 90, false }, NULL, other);
    CHECK(strncmp(other, "one-sm_90a-", 11) == 0);
    rig.files.files[4].data[8] = 'l'; /* a header that a header includes */
    key_of("one.cu", (exl2__cuda_target){ 89, false }, NULL, other);
    CHECK(strcmp(other, base) != 0);
    rig_end();
}

/* Every flipped bit and every truncation is detected. */
static void test_entries(void)
{
    static const char key[] = "one-sm_89-0123456789abcdef";
    exl2__blob image = { (char *)(uintptr_t) "machine code", 12 }, entry;
    exl2_kernel_cache none = { 0 };
    rig_make();
    exl2__ctx *c = &rig.files.c;
    CHECK_INT(exl2__cuda_cache_store(c, &none, key, 13000, false, &image, &entry), EXL2_OK);
    uint8_t *data = (uint8_t *)entry.data;
    size_t bytes = (size_t)entry.bytes;
    CHECK_INT(bytes, 52);
    CHECK(exl2__cuda_entry_valid(key, data, bytes));
    CHECK(!exl2__cuda_entry_valid("one-sm_86-0123456789abcdef", data, bytes));
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        data[bit / 8] = (uint8_t)(data[bit / 8] ^ 1 << bit % 8);
        CHECK(!exl2__cuda_entry_valid(key, data, bytes));
        data[bit / 8] = (uint8_t)(data[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t cut = 0; cut < bytes; cut++) {
        CHECK(!exl2__cuda_entry_valid(key, data, cut));
    }
    exl2__blob_close(c, &entry);
    rig_end();
}

/* ---- a device's modules ---- */

/* Opens a device, loads all modules, closes it; returns the result of loading. */
static exl2_result life(bool compiler)
{
    exl2__cuda_device d;
    exl2_result result = rig_open(&d, compiler);
    CHECK_INT(result, EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    result = exl2__cuda_device_kernels(&d, NULL);
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT && result == EXL2_OK; i++) {
        bool exists = i != EXL2__KERNEL_exl2k_wide || d.info.arch == 90;
        CHECK((d.kernels.functions[i] != NULL) == exists);
    }
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    return result;
}

/* The digits of the key for these options of NVRTC. */
static void key_of_options(const char *module, const char *const *options, uint32_t count, char digits[17])
{
    exl2__cuda_source source;
    CHECK_INT(exl2__cuda_source_open(&rig.files.c, NULL, module, &source), EXL2_OK);
    uint64_t pair[2] = { exl2__cuda_source_hash(&source), EXL2_VERSION }, all = exl2__hash(pair, sizeof pair);
    for (uint32_t i = 0; i < count; i++) {
        pair[0] = all;
        pair[1] = exl2__hash(options[i], strlen(options[i]));
        all = exl2__hash(pair, sizeof pair);
    }
    snprintf(digits, 17, "%016llx", (unsigned long long)all);
    exl2__cuda_source_close(&rig.files.c, &source);
}

/* The key holds every option that the compiler got, also those of all modules. */
static void test_options(void)
{
    char key[EXL2__CUDA_KEY_MAX], digits[17];
    const char *options[8], *fewer[8];
    rig_make();
    rig_drop_cache();
    CHECK_INT(life(true), EXL2_OK);
    CHECK(fake.option_count >= 3 && fake.option_count <= 8);
    for (uint32_t i = 0; i < fake.option_count; i++) {
        options[i] = fake.options[i];
    }
    key_of("two.cu", (exl2__cuda_target){ 89, false }, NULL, key);
    key_of_options("two.cu", options, fake.option_count, digits);
    CHECK_TEXT(strrchr(key, '-') + 1, digits);
    for (uint32_t left = 0; left < fake.option_count; left++) {
        for (uint32_t i = 0; i + 1 < fake.option_count; i++) {
            fewer[i] = options[i + (i >= left)];
        }
        key_of_options("two.cu", fewer, fake.option_count - 1, digits);
        CHECK(strcmp(strrchr(key, '-') + 1, digits) != 0);
    }
    rig_end();
}

static void test_cold_and_warm(void)
{
    rig_drop_cache();
    rig_make();
    CHECK_INT(life(true), EXL2_OK);
    CHECK_INT(fake.compiles, 2); /* one.cu is compiled once for its two kernels */
    CHECK_INT(rig.stores, 2);
    rig_end();
    rig_make();
    CHECK_INT(life(false), EXL2_OK);
    CHECK_INT(fake.compiles, 0);
    CHECK_INT(fake.module_loads, 2);
    rig_end();
}

/* Loads modules one by one, as steps do. Modules that are loaded are not loaded again. */
static void test_slices(void)
{
    exl2__cuda_device d;
    bool wanted[EXL2__KERNEL_COUNT] = { false };
    rig_drop_cache();
    rig_make();
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    wanted[EXL2__KERNEL_exl2k_two] = true;
    CHECK_INT(exl2__cuda_device_kernels(&d, wanted), EXL2_OK);
    CHECK(!d.kernels.functions[EXL2__KERNEL_exl2k_one] && d.kernels.functions[EXL2__KERNEL_exl2k_two]);
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK);
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_OK);
    CHECK_INT(fake.compiles, 2);
    CHECK_INT(fake.module_loads, 2);
    CHECK_INT(d.compiler.compiled, 2);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
}

/* Number of calls that load the three modules of a GPU of compute capability 9.0. */
static uint32_t calls_on(uint32_t threads)
{
    exl2__cuda_device d;
    uint32_t calls = 1;
    rig_make();
    fake.devices[0].arch_major = 9;
    fake.devices[0].arch_minor = 0;
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    while (exl2__cuda_device_kernels_slice(&d, NULL, threads) == EXL2_PENDING && calls < 9) {
        CHECK_INT(fake.module_loads, calls);
        calls++;
    }
    CHECK_INT(fake.module_loads, 3);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
    return calls;
}

/* A step compiles a module with one thread, all with many (here two, as there are three modules), and loads one from
   the cache. */
static void test_steps(void)
{
    static const uint32_t threads[] = { 0, 1, 2, 16 }, cold[] = { 1, 3, 1, 1 };
    for (size_t i = 0; i < EXL2__COUNT(threads); i++) {
        rig_drop_cache();
        CHECK_INT(calls_on(threads[i]), cold[i]);
        CHECK_INT(calls_on(threads[i]), threads[i] ? 3 : 1);
    }
}

static void test_no_compiler(void)
{
    rig_drop_cache();
    rig_make();
    CHECK_INT(life(false), EXL2_ERR_NO_COMPILER);
    CHECK_TEXT(rig.files.c.error.text, "kernel one.cu for sm_89 is not in the kernel cache, and there is no kernel "
                                       "compiler: /nowhere/libnvrtc.so (NVRTC) cannot be opened");
    rig_end();
    rig_make(); /* makes entries for 8.6 and 9.0 */
    exl2__cuda_compiler k = { .nvrtc = fake_nvrtc(), .cache = rig.settings.cache };
    uint32_t archs[] = { 86, 90 };
    CHECK_INT(exl2__cuda_kernels_build(&rig.files.c, &k, archs, 2, false), EXL2_OK);
    CHECK_INT(rig.stores, 5); /* wide_wg.cu is for 9.0 only */
    exl2__cuda_compiler_close(&k);
    CHECK_INT(life(false), EXL2_OK); /* 8.9 can run 8.6 */
    fake.devices[0].arch_minor = 0;  /* 8.0 cannot */
    CHECK_INT(life(false), EXL2_ERR_NO_COMPILER);
    fake.devices[0].arch_major = 9;
    CHECK_INT(life(false), EXL2_OK);
    fake.devices[0].arch_minor = 1;  /* sm_90a runs on 9.0 only */
    CHECK_INT(life(false), EXL2_ERR_NO_COMPILER);
    rig_end();
}

/* An architecture that NVRTC does not support: PTX of the highest one below. */
static void test_ptx(void)
{
    rig_drop_cache();
    rig_make();
    fake.devices[0].arch_minor = 7;
    CHECK_INT(life(true), EXL2_OK);
    CHECK(strncmp(rig.entries[0].key, "one-compute_86-", 15) == 0);
    CHECK_INT(life(true), EXL2_OK);
    CHECK_INT(fake.compiles, 2);
    fake.driver_version = 12040;
    CHECK_INT(life(true), EXL2_ERR_COMPILE);
    CHECK_TEXT(rig.files.c.error.text, "kernel one.cu: the driver supports CUDA 12.4, but the kernel compiler is "
                                       "NVRTC 13.0: update the driver, or use an older NVRTC");
    CHECK_INT(rig.files.c.error.native, EXL2__CUDA_UNSUPPORTED_PTX);
    rig_end();
    rig_make();
    fake.arch_count = 1;
    fake.archs[0] = 100;
    CHECK_INT(life(true), EXL2_ERR_COMPILE);
    CHECK_TEXT(rig.files.c.error.text, "this NVRTC supports no architecture from 75 to 89");
    rig_end();
}

/* Damaged entries are compiled again, and so are intact ones that the driver rejects. */
static void test_damaged(void)
{
    rig_drop_cache();
    rig_make();
    CHECK_INT(life(true), EXL2_OK);
    for (size_t at = 0; at < rig.entries[0].bytes; at += 7) {
        rig.entries[0].data[at] ^= 4;
        uint32_t warnings = rig.files.warnings, stores = rig.stores;
        CHECK_INT(life(true), EXL2_OK);
        CHECK_INT(rig.stores, stores + 1);
        CHECK_INT(rig.files.warnings, warnings + 1);
        CHECK_INT(rig.files.warning_id, EXL2_LOG_ID_KERNEL_ENTRY_DAMAGED);
    }
    rig.entries[1].bytes = 20;
    CHECK_INT(life(false), EXL2_ERR_NO_COMPILER);
    check_error(&rig.files.c, "two.cu", "not in the kernel cache", "a cut entry without a compiler");
    CHECK_INT(life(true), EXL2_OK);
    uint8_t *data = rig.entries[0].data;
    size_t image = rig.entries[0].bytes - EXL2__CUDA_ENTRY_HEAD;
    memset(data + EXL2__CUDA_ENTRY_HEAD, 'x', image - 1);
    exl2__store64(data + 32, exl2__cuda_entry_hash(data, data + EXL2__CUDA_ENTRY_HEAD, image));
    CHECK(exl2__cuda_entry_valid(rig.entries[0].key, data, rig.entries[0].bytes));
    CHECK_INT(life(false), EXL2_ERR_COMPILE);
    check_error(&rig.files.c, "the driver could not load kernel one.cu (CUDA_ERROR_200): not an image", "", "refused");
    CHECK(strstr(rig.lines, "second line") != NULL);
    uint32_t stores = rig.stores;
    CHECK_INT(life(true), EXL2_OK);
    CHECK_INT(rig.stores, stores + 1);
    CHECK(strstr(rig.files.warning, "it is compiled again") != NULL);
    CHECK_INT(rig.files.warning_id, EXL2_LOG_ID_KERNEL_ENTRY_REJECTED);
    rig_end();
}

static void test_compile_error(void)
{
    rig_drop_cache();
    rig_make();
    memory_file *file = &rig.files.files[1];
    free(file->data);
    file->data = (uint8_t *)malloc(9);
    memcpy(file->data, "\n#error x", 9);
    file->bytes = file->there = 9;
    CHECK_INT(life(true), EXL2_ERR_COMPILE);
    CHECK_TEXT(rig.files.c.error.text,
               "kernel two.cu does not compile for sm_89 (NVRTC 6): two.cu(2): error: asked to fail");
    CHECK_INT(rig.files.c.error.native, 6);
    CHECK(strstr(rig.lines, "NVRTC reports for two.cu, target sm_89:\n"
                            "two.cu(1): warning: first\ntwo.cu(2): error: asked to fail\n"
                            "1 error detected.\n") != NULL);
    CHECK_INT(rig.stores, 1); /* one.cu was stored nevertheless */
    rig_end();
}

/* A kernel that is in the list and missing in the module. */
static void test_missing_kernel(void)
{
    rig_drop_cache();
    rig_make();
    fake.kernel_count = 2;
    CHECK_INT(life(true), EXL2_ERR_COMPILE);
    CHECK_TEXT(rig.files.c.error.text, "kernel exl2k_again of one.cu cannot be used (CUDA_ERROR_500)");
    exl2__cuda_device d;
    CHECK_INT(rig_open(&d, true), EXL2_OK);
    CHECK_INT(exl2__cuda_device_enter(&d), EXL2_OK);
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_ERR_COMPILE);
    /* a module without the kernel does not count as loaded */
    CHECK_INT(exl2__cuda_device_kernels(&d, NULL), EXL2_ERR_COMPILE);
    exl2__cuda_device_leave(&d);
    exl2__cuda_device_close(&d);
    rig_end();
}

/* Kernel sets for shipping: built without a driver, complete for each architecture. */
static void test_build(void)
{
    static const uint32_t archs[] = { 75, 80, 86, 89, 90, 100, 120 }, odd[] = { 89, 87 };
    rig_drop_cache();
    rig_make();
    exl2__cuda_compiler k = { .nvrtc = fake_nvrtc(), .cache = rig.settings.cache };
    CHECK_INT(exl2__cuda_kernels_build(&rig.files.c, &k, archs, 7, false), EXL2_OK);
    CHECK_INT(rig.entry_count, 15);
    CHECK_INT(k.compiled, 15);
    CHECK_INT(exl2__cuda_kernels_build(&rig.files.c, &k, archs, 7, false), EXL2_OK); /* what it has stays */
    CHECK_INT(k.compiled, 15);
    k.cache.load = NULL; /* whoever cannot read entries gets them all again */
    CHECK_INT(exl2__cuda_kernels_build(&rig.files.c, &k, archs, 1, false), EXL2_OK);
    CHECK(k.compiled > 15);
    CHECK_INT(rig.entry_count, 15);
    k.cache.load = rig.settings.cache.load;
    CHECK_INT(exl2__cuda_kernels_build(&rig.files.c, &k, odd, 2, false), EXL2_ERR_UNSUPPORTED);
    CHECK_TEXT(rig.files.c.error.text, "this NVRTC (13.0) generates no machine code for compute capability 8.7");
    exl2__cuda_compiler_close(&k);
    k.nvrtc_path = "/nowhere/libnvrtc.so";
    CHECK_INT(exl2__cuda_kernels_build(&rig.files.c, &k, archs, 7, false), EXL2_ERR_NO_COMPILER);
    CHECK_TEXT(rig.files.c.error.text,
               "kernels cannot be built: no kernel compiler: /nowhere/libnvrtc.so (NVRTC) cannot be opened");
    exl2__cuda_compiler_close(&k);
    for (uint32_t i = 0; i < 7; i++) {
        fake.devices[0].arch_major = (int)archs[i] / 10;
        fake.devices[0].arch_minor = (int)archs[i] % 10;
        CHECK_INT(life(false), EXL2_OK);
    }
    CHECK_INT(fake.module_loads, 15);
    rig_end();
}

static void side_by_side(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    ++*(uint32_t *)user;
    for (uint32_t i = count; i-- > 0;) {
        task(arg, i);
    }
}

static void test_parallel(void)
{
    uint32_t runs = 0;
    rig_drop_cache();
    rig_make();
    rig.files.c.parallel = (exl2_parallel){ side_by_side, 2, &runs };
    CHECK_INT(life(true), EXL2_OK);
    CHECK_INT(runs, 1);
    CHECK_INT(fake.compiles, 2);
    CHECK_INT(life(true), EXL2_OK);
    CHECK_INT(runs, 1);
    rig_end();
}

int main(void)
{
    test_source();
    test_keys();
    test_entries();
    test_options();
    test_cold_and_warm();
    test_slices();
    test_steps();
    test_no_compiler();
    test_ptx();
    test_damaged();
    test_compile_error();
    test_missing_kernel();
    test_build();
    test_parallel();
    rig_drop_cache();
    fake_reset();
    return check_done();
}
