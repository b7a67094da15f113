/* fake_nvrtc.c: a kernel compiler that checks its arguments and returns made-up images.
   takes: fake; a source with a line that begins with "#error" does not compile. A module with "_wg" in its name
          compiles only for sm_90a.
   gives: fake_nvrtc; the image of a module is a text such as "FAKE sm_89 13000 gemv1.cu", which the fake driver loads.
   owns:  programs, until program_free or fake_reset. */
#include "fake_driver.h"

#include <stdio.h>
#include <stdlib.h>

enum { INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

typedef struct program {
    char name[64], image[128], log[256];
    bool fails, ptx;
    struct program *next;
} program;

static program *programs;

#define CALL(name)                           \
    do {                                     \
        int fails_ = fake_call(name, true);  \
        if (fails_) {                        \
            return fails_;                   \
        }                                    \
    } while (0)

static bool lives(const exl2__cuda_program *handle)
{
    for (const program *p = programs; p; p = p->next) {
        if (p == (const program *)(const void *)handle) {
            return true;
        }
    }
    fake_misuse("an NVRTC program that does not live");
    return false;
}

int fake_nvrtc_leaks(void)
{
    int count = 0;
    for (program *p = programs; p; p = p->next) {
        printf("fake: left over: NVRTC program of %s\n", p->name);
        count++;
    }
    return count;
}

void fake_nvrtc_reset(void)
{
    while (programs) {
        program *next = programs->next;
        free(programs);
        programs = next;
    }
}

static int version(int *major, int *minor)
{
    CALL("nvrtcVersion");
    *major = fake.nvrtc_version / 1000;
    *minor = fake.nvrtc_version % 1000 / 10;
    return 0;
}

static int arch_count(int *count)
{
    CALL("nvrtcGetNumSupportedArchs");
    *count = fake.arch_count;
    return 0;
}

static int archs(int *out)
{
    CALL("nvrtcGetSupportedArchs");
    memcpy(out, fake.archs, (size_t)fake.arch_count * sizeof *out);
    return 0;
}

static int program_make(exl2__cuda_program **out, const char *source, const char *name, int header_count,
                        const char *const *headers, const char *const *header_names)
{
    CALL("nvrtcCreateProgram");
    for (int i = 0; i < header_count; i++) {
        if (!headers[i] || !header_names[i]) {
            return INVALID_INPUT;
        }
    }
    program *p = calloc(1, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", name);
    p->fails = strstr(source, "\n#error") != NULL;
    p->next = programs;
    programs = p;
    fake.programs++;
    *out = (exl2__cuda_program *)(void *)p;
    return 0;
}

static int program_free(exl2__cuda_program **handle)
{
    int result = fake_call("nvrtcDestroyProgram", true);
    if (!lives(*handle)) {
        return INVALID_PROGRAM;
    }
    program **at = &programs, *dead = (program *)(void *)*handle;
    while (*at != dead) {
        at = &(*at)->next;
    }
    *at = dead->next;
    free(dead);
    *handle = NULL;
    return result;
}

/* The target must be one that the compiler supports; the options must name the dialect and -default-device. */
static int compile(exl2__cuda_program *handle, int option_count, const char *const *options)
{
    static const char flag[] = "--gpu-architecture=";
    program *p = (program *)(void *)handle;
    const char *target = NULL;
    bool dialect = false, device = false, known = false;
    CALL("nvrtcCompileProgram");
    if (!lives(handle)) {
        return INVALID_PROGRAM;
    }
    for (int i = 0; i < option_count; i++) {
        target = strncmp(options[i], flag, sizeof flag - 1) == 0 ? options[i] + sizeof flag - 1 : target;
        dialect |= strcmp(options[i], "--std=c++17") == 0;
        device |= strcmp(options[i], "-default-device") == 0;
        snprintf(fake.options[i % 8], sizeof fake.options[0], "%s", options[i]);
    }
    fake.option_count = (uint32_t)option_count;
    for (int i = 0; i < fake.arch_count && target; i++) {
        char name[16];
        exl2__format(name, sizeof name, "sm_%d%s", fake.archs[i], fake.archs[i] == 90 ? "a" : "");
        known |= strcmp(name, target) == 0;
        exl2__format(name, sizeof name, "compute_%d", fake.archs[i]);
        known |= strcmp(name, target) == 0;
    }
    if (!known || !dialect || !device) {
        return INVALID_OPTION;
    }
    if (p->fails || (strstr(p->name, "_wg") && strcmp(target, "sm_90a") != 0)) {
        snprintf(p->log, sizeof p->log, "%s(1): warning: first\n%s(2): error: asked to fail\n1 error detected.\n",
                 p->name, p->name);
        return COMPILATION;
    }
    p->ptx = strncmp(target, "compute", 7) == 0;
    snprintf(p->image, sizeof p->image, "FAKE %s %d %s", target, fake.nvrtc_version, p->name);
    fake.compiles++;
    return 0;
}

static int log_bytes(exl2__cuda_program *handle, size_t *bytes)
{
    CALL("nvrtcGetProgramLogSize");
    *bytes = strlen(((program *)(void *)handle)->log) + 1;
    return lives(handle) ? 0 : INVALID_PROGRAM;
}

static int get_log(exl2__cuda_program *handle, char *log)
{
    CALL("nvrtcGetProgramLog");
    memcpy(log, ((program *)(void *)handle)->log, strlen(((program *)(void *)handle)->log) + 1);
    return lives(handle) ? 0 : INVALID_PROGRAM;
}

static int image_bytes(exl2__cuda_program *handle, size_t *bytes, bool ptx)
{
    const program *p = (program *)(void *)handle;
    *bytes = p->ptx == ptx && p->image[0] ? strlen(p->image) + 1 : 0;
    return lives(handle) ? 0 : INVALID_PROGRAM;
}

static int cubin_bytes(exl2__cuda_program *handle, size_t *bytes)
{
    CALL("nvrtcGetCUBINSize");
    return image_bytes(handle, bytes, false);
}

static int ptx_bytes(exl2__cuda_program *handle, size_t *bytes)
{
    CALL("nvrtcGetPTXSize");
    return image_bytes(handle, bytes, true);
}

static int image(exl2__cuda_program *handle, char *out)
{
    CALL("nvrtcGetCUBIN or nvrtcGetPTX");
    const program *p = (program *)(void *)handle;
    memcpy(out, p->image, strlen(p->image) + 1);
    return lives(handle) ? 0 : INVALID_PROGRAM;
}

exl2__cuda_nvrtc fake_nvrtc(void)
{
    exl2__cuda_nvrtc n = { 0 };
    n.version = version;
    n.arch_count = arch_count;
    n.archs = archs;
    n.program_make = program_make;
    n.program_free = program_free;
    n.compile = compile;
    n.log_bytes = log_bytes;
    n.log = get_log;
    n.cubin_bytes = cubin_bytes;
    n.cubin = image;
    n.ptx_bytes = ptx_bytes;
    n.ptx = image;
    return n;
}
