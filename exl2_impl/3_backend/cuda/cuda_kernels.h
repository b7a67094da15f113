/* cuda_kernels.h: makes functions that can be launched from the list of kernels: out of the cache, or by the compiler,
   and through the driver.
   takes: kernels_src/kernels.def.h, a driver with a current context, the application's cache hook, NVRTC's path.
   gives: exl2__cuda_kernel; exl2__cuda_compiler with close; exl2__cuda_kernels with find, load, close, build.
   owns:  NVRTC, until exl2__cuda_compiler_close; loaded modules, until exl2__cuda_kernels_close. */
#ifndef EXL2__CUDA_KERNELS_H
#define EXL2__CUDA_KERNELS_H

#include "cuda_cache.h"

#ifndef EXL2__KERNELS /* tests define their own lists */
#include "../../../kernels_src/kernels.def.h"
#endif

/* ---- the list ---- */

#define X(function, module, arguments, shared) EXL2__KERNEL_##function,
typedef enum exl2__cuda_kernel { EXL2__KERNELS(X) EXL2__KERNEL_COUNT } exl2__cuda_kernel;
#undef X

enum { EXL2__CUDA_DYNAMIC_NONE, EXL2__CUDA_DYNAMIC_BUDGET };

typedef struct exl2__cuda_kernel_row {
    const char *function, *module;
    int dynamic; /* dynamic shared memory of launches: none, or up to the device's budget */
} exl2__cuda_kernel_row;

#define X(function, module, arguments, shared) { #function, module, EXL2__CUDA_DYNAMIC_##shared },
static const exl2__cuda_kernel_row exl2__cuda_kernel_rows[] = { EXL2__KERNELS(X) };
#undef X

/* A module is identified by the number of its first kernel. */
static inline uint32_t exl2__cuda_module_of(uint32_t kernel)
{
    uint32_t first = 0;
    while (strcmp(exl2__cuda_kernel_rows[first].module, exl2__cuda_kernel_rows[kernel].module) != 0) {
        first++;
    }
    return first;
}

/* The class of head sizes that a module of attention is made for, from its name: 64 for "attend_decode64.cu"; 0: any
   model. */
static inline uint32_t exl2__cuda_module_class(const char *module)
{
    size_t end = strncmp(module, "attend_", 7) == 0 ? strcspn(module, ".") : 0, at = end;
    uint32_t number = 0;
    while (at > 0 && module[at - 1] >= '0' && module[at - 1] <= '9') {
        at--;
    }
    for (; at < end; at++) {
        number = number * 10 + (uint32_t)(module[at] - '0');
    }
    return number;
}

/* Whether a module exists for this architecture. Those with "_wg" in their names (products by warpgroups: wgmma) exist
   for Hopper only. So do products of 16 rows and of large matrices: they need all registers that a thread may have, and
   only there they are measured and compiled without local memory; and those of one row and of 2 to 64 rows of EXL3
   ("_one", "_crowd"). Attention by smaller CTAs ("_crowd") was measured only there. */
static inline bool exl2__cuda_module_exists(const char *module, uint32_t arch)
{
    bool hopper = strstr(module, "_wg") || strstr(module, "_large") || strstr(module, "_crowd");
    hopper = hopper || strstr(module, "_one_") || strcmp(module, "exl3_settle.cu") == 0;
    hopper = hopper || strcmp(module, "gemv8_head.cu") == 0;
    return arch == 90 || !(hopper || strncmp(module, "gemv16", 6) == 0);
}

/* Do only conversions use the module? Builds without EXL2_CONVERT have none of these. */
static inline bool exl2__cuda_module_converts(const char *module) { return strncmp(module, "convert/", 8) == 0; }

/* What decides which modules a model needs. */
typedef struct exl2__cuda_needs {
    uint32_t arch;       /* 90: compute capability 9.0 */
    uint32_t head_class; /* 0: only what every model needs */
    bool any;            /* products for any family, in place of those for Llama */
    bool large;          /* products of large matrices, in place of those for Llama */
    bool affine;         /* products of affine matrices, beside the others */
    uint32_t exl3;       /* products of EXL3 matrices: bit EXL2K_EXL3_* for each codebook */
    bool exl3_wg;        /* those of many rows by wgmma */
    bool settles;        /* norms are not folded into products */
    bool experts;        /* some layers have experts */
    bool exl3_experts;   /* all of them are of EXL3 */
    bool by_wg;          /* products of many rows by wgmma, unless the matrices are of other kinds */
    bool attend_wg;      /* attention in prefill by wgmma */
    bool codes;          /* a quantized cache */
    bool attend_few;     /* attention in decode of up to 16 rows by kernels without norms */
    bool many, crowd;    /* more than 8, more than 16 rows may decode together */
    bool loras, steers;  /* the model may have adapters, control vectors */
    bool tower;          /* the model has a tower for pictures */
    bool tower_wg;       /* its products run by wgmma */
    bool deep;           /* rows of pictures are added after layers, too */
    bool turns;          /* positions of rows may have three axes */
    bool columns;        /* several GPUs share every matrix */
} exl2__cuda_needs;

/* Whether the module has products of EXL3 matrices that the model has. */
static inline bool exl2__cuda_module_exl3(const exl2__cuda_needs *n, const char *module)
{
    static const char *const books[] = { "_3inst.cu", "_mcg.cu", "_mul1.cu" };
    bool wg = strstr(module, "_wg_") != NULL, gemm = strstr(module, "_gemm_") != NULL;
    bool wanted = n->exl3 && (strcmp(module, "exl3_rotate.cu") == 0 || strcmp(module, "exl3_embed.cu") == 0
                              || strcmp(module, "exl3_settle.cu") == 0);
    wanted = wanted || (n->exl3 && n->exl3_wg && strcmp(module, "exl3_wide_wg.cu") == 0);
    bool expert = strncmp(module, "exl3_expert", 11) == 0;
    bool crowd = strstr(module, "_crowd_") != NULL; /* of more than 16 rows */
    if ((n->exl3_wg ? gemm : wg) || (expert && !n->experts) || (crowd && !n->crowd)) {
        return false;
    }
    wanted = wanted || (n->exl3 && strcmp(module, "exl3_expert_rows.cu") == 0);
    for (uint32_t i = 0; i < EXL2__COUNT(books); i++) {
        wanted = wanted || (n->exl3 >> i & 1 && strstr(module, books[i]));
    }
    return wanted;
}

/* A module's name begins with the family of its kernels, such as "gemv". What follows says what they are for: _affine,
   _large and _any the matrices or families (exl2__cuda_needs), _lora and _steer rows with adapters or control vectors,
   _wg wgmma, _peers several GPUs that share every matrix, and a number the most rows or the class of head sizes. */

static inline bool exl2__cuda_module_is(const char *module, const char *name) { return strcmp(module, name) == 0; }

static inline bool exl2__cuda_module_begins(const char *module, const char *with)
{
    return strncmp(module, with, strlen(with)) == 0;
}

static inline bool exl2__cuda_module_has(const char *module, const char *part) { return strstr(module, part) != NULL; }

/* "gemm": products of many rows. */
static inline bool exl2__cuda_module_gemm(const exl2__cuda_needs *n, const char *module)
{
    bool affine = exl2__cuda_module_has(module, "_affine"), any = exl2__cuda_module_has(module, "_any");
    if (exl2__cuda_module_begins(module, "gemm_wg")) {
        bool kind = affine == n->affine && any == n->any;
        kind = kind && (n->loras || !exl2__cuda_module_has(module, "_lora.cu"));
        return n->by_wg && (kind || exl2__cuda_module_is(module, "gemm_wg_order.cu"));
    }
    /* By wgmma, these are loaded late if the model's matrices need them. */
    return !n->by_wg && (affine ? n->affine : any == n->any);
}

/* "gemv": products of few rows. */
static inline bool exl2__cuda_module_gemv(const exl2__cuda_needs *n, const char *module)
{
    bool affine = exl2__cuda_module_has(module, "_affine"), any = exl2__cuda_module_has(module, "_any");
    bool large = exl2__cuda_module_has(module, "_large"), sixteen = exl2__cuda_module_begins(module, "gemv16");
    bool plain = !n->any && !n->affine && !n->exl3;
    if (exl2__cuda_module_has(module, "_lora.cu")) { /* smaller matrices have those for any family */
        return n->loras && !n->exl3 && (affine ? n->affine : large == (n->large && !n->any));
    }
    if (exl2__cuda_module_has(module, "_peers.cu")) {
        return n->columns && plain && (sixteen ? n->many : large == n->large);
    }
    if (exl2__cuda_module_has(module, "_head.cu")) {
        return plain && (sixteen ? n->many : n->large);
    }
    if (exl2__cuda_module_has(module, "_steer.cu") && (!n->steers || n->settles)) {
        return false; /* settle.cu has its own */
    }
    bool rows = !sixteen || (n->many && !n->any);
    return rows && (affine ? n->affine : any ? n->any : !n->any && (sixteen || large == n->large));
}

/* "expert" and "grouped": products of experts. */
static inline bool exl2__cuda_module_experts(const exl2__cuda_needs *n, const char *module)
{
    bool product = exl2__cuda_module_begins(module, "expert1") || exl2__cuda_module_begins(module, "expert8")
                || exl2__cuda_module_begins(module, "grouped_gemm");
    bool kind = n->affine || !exl2__cuda_module_has(module, "_affine");
    bool added = n->steers || n->loras || !exl2__cuda_module_has(module, "_steer.cu");
    return n->experts && kind && added && !(product && n->exl3_experts);
}

static inline bool exl2__cuda_module_attend(const exl2__cuda_needs *n, const char *module)
{
    uint32_t class = exl2__cuda_module_class(module);
    bool fits = class == 0 || class == n->head_class, wg = exl2__cuda_module_begins(module, "attend_wg");
    if (exl2__cuda_module_is(module, "attend_turn.cu")) {
        return n->turns;
    }
    if (exl2__cuda_module_is(module, "attend_prepare.cu")) {
        return false;
    }
    if (exl2__cuda_module_begins(module, "attend_decode")) {
        bool few = exl2__cuda_module_begins(module, "attend_decode_few");
        bool crowd = exl2__cuda_module_begins(module, "attend_decode_crowd");
        return fits && !n->codes && (few ? n->attend_few : n->crowd || (!crowd && !n->attend_few));
    }
    if (exl2__cuda_module_begins(module, "attend_codes") || exl2__cuda_module_is(module, "attend_quantize.cu")) {
        return fits && n->codes;
    }
    return fits && (wg || exl2__cuda_module_begins(module, "attend_prefill") ? wg == n->attend_wg : true);
}

static inline bool exl2__cuda_module_lora(const exl2__cuda_needs *n, const char *module)
{
    return n->loras && (n->experts || !exl2__cuda_module_is(module, "lora_experts.cu"))
        && (n->by_wg || !exl2__cuda_module_is(module, "lora_wg.cu"));
}

static inline bool exl2__cuda_module_tower(const exl2__cuda_needs *n, const char *module)
{
    bool wg = exl2__cuda_module_has(module, "_wg"), product = exl2__cuda_module_is(module, "tower_product.cu");
    bool adds = n->deep && exl2__cuda_module_is(module, "tower.cu");
    return adds || (n->tower && (wg ? n->tower_wg : !product || !n->tower_wg));
}

static inline bool exl2__cuda_module_wanted(const exl2__cuda_needs *n, const char *module)
{
    static const struct {
        const char *family;
        bool (*wanted)(const exl2__cuda_needs *n, const char *module);
    } families[] = { { "exl3", exl2__cuda_module_exl3 },        { "gemm", exl2__cuda_module_gemm },
                     { "gemv", exl2__cuda_module_gemv },        { "expert", exl2__cuda_module_experts },
                     { "grouped", exl2__cuda_module_experts },  { "attend", exl2__cuda_module_attend },
                     { "lora", exl2__cuda_module_lora },        { "tower", exl2__cuda_module_tower } };
    for (uint32_t i = 0; i < EXL2__COUNT(families); i++) {
        if (exl2__cuda_module_begins(module, families[i].family)) {
            return families[i].wanted(n, module);
        }
    }
    return exl2__cuda_module_is(module, "steer.cu")  ? n->steers
         : exl2__cuda_module_is(module, "settle.cu") ? n->settles
         : exl2__cuda_module_is(module, "meet.cu")   ? n->columns
                                                     : !exl2__cuda_module_is(module, "probe.cu")
                                                           && !exl2__cuda_module_converts(module);
}

/* The modules that a model needs, by the number of their first kernel; without attend_prepare.cu, which few models need
   (see exl2__cuda_attend_prepares). */
static inline void exl2__cuda_modules_of(const exl2__cuda_needs *needs, bool wanted[EXL2__KERNEL_COUNT])
{
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        const char *module = exl2__cuda_kernel_rows[i].module;
        wanted[i] = exl2__cuda_module_of(i) == i && exl2__cuda_module_exists(module, needs->arch)
                 && exl2__cuda_module_wanted(needs, module);
    }
}

/* ---- the compiler ---- */

typedef struct exl2__cuda_compiler {
    exl2__cuda_nvrtc nvrtc;   /* opened when a module is not in the cache */
    const char *nvrtc_path;   /* NULL: the usual names */
    const char *kernel_dir;   /* NULL: the built-in sources */
    exl2_kernel_cache cache;
    const char *options[EXL2__CUDA_OPTIONS_MAX]; /* "-DNAME=1" of tests and traces; part of the key */
    uint32_t option_count;
    uint32_t version;         /* version of NVRTC, 13000 = 13.0; 0: not open */
    bool unavailable;             /* NVRTC did not open; it is not tried again */
    char why[160];            /* why NVRTC did not open */
    uint64_t compiled;        /* number of modules compiled */
    uint64_t compile_ns;      /* wall-clock time in the compiler */
} exl2__cuda_compiler;

static inline void exl2__cuda_compiler_close(exl2__cuda_compiler *k)
{
    exl2__cuda_nvrtc_close(&k->nvrtc);
    *k = (exl2__cuda_compiler){ 0 };
}

/* Opens NVRTC if it is not open. false: there is none, and k->why says why. */
EXL2__PRIVATE bool exl2__cuda_compiler_ready(exl2__cuda_compiler *k)
{
    if (k->version == 0 && !k->unavailable) {
        int major = 0, minor = 0;
        k->unavailable = !k->nvrtc.version
                     && exl2__cuda_nvrtc_open(k->nvrtc_path, &k->nvrtc, k->why, sizeof k->why) < 0;
        int result = k->unavailable ? 0 : k->nvrtc.version(&major, &minor);
        if (result != 0) {
            exl2__format(k->why, sizeof k->why, "no kernel compiler: NVRTC does not report its version (%d)", result);
            k->unavailable = true;
        }
        k->version = k->unavailable ? 0 : (uint32_t)(major * 1000 + minor * 10);
    }
    return !k->unavailable;
}

/* ---- building one module ---- */

typedef struct exl2__cuda_build {
    uint32_t module; /* number of its first kernel */
    exl2__cuda_source source;
    exl2__cuda_compile compile;
    exl2__blob entry; /* the cache entry, found or made */
    char key[EXL2__CUDA_KEY_MAX];
    bool found;       /* the entry was in the cache */
} exl2__cuda_build;

EXL2__PRIVATE void exl2__cuda_build_close(exl2__ctx *c, exl2__cuda_build *build)
{
    exl2__cuda_compile_close(&build->compile);
    exl2__blob_close(c, &build->entry);
    exl2__cuda_source_close(c, &build->source);
}

EXL2__PRIVATE exl2_result exl2__cuda_build_find(exl2__ctx *c, const exl2__cuda_compiler *k, exl2__cuda_build *build,
                                                exl2__cuda_target target)
{
    exl2__cuda_key(&build->source, target, k->options, k->option_count, build->key);
    EXL2__TRY(exl2__cuda_cache_load(c, &k->cache, build->key, &build->entry));
    build->found = build->entry.data != NULL;
    return EXL2_OK;
}

/* Without a compiler, machine code of a lower minor architecture of the same major runs, too, except Hopper's. */
EXL2__PRIVATE exl2_result exl2__cuda_build_find_lower(exl2__ctx *c, const exl2__cuda_compiler *k,
                                                      exl2__cuda_build *build, uint32_t arch)
{
    for (uint32_t lower = arch; lower-- > arch / 10 * 10 && lower >= EXL2__CUDA_ARCH_MIN && !build->found;) {
        if (lower != 90) {
            EXL2__TRY(exl2__cuda_build_find(c, k, build, (exl2__cuda_target){ lower, false }));
        }
    }
    if (!build->found) {
        char name[16];
        exl2__cuda_target_name((exl2__cuda_target){ arch, false }, name, sizeof name);
        return exl2__fail(c, EXL2_ERR_NO_COMPILER, "kernel %s for %s is not in the kernel cache, and there is %s",
                          build->source.names[0], name, k->why);
    }
    return EXL2_OK;
}

/* Fills in what the compiler needs, with the target for `arch`. */
EXL2__PRIVATE exl2_result exl2__cuda_build_prepare(exl2__ctx *c, exl2__cuda_compiler *k, exl2__cuda_build *build,
                                                   uint32_t arch)
{
    build->compile = (exl2__cuda_compile){ .nvrtc = &k->nvrtc, .source = &build->source };
    build->compile.option_count = k->option_count;
    memcpy(build->compile.options, k->options, sizeof k->options);
    return exl2__cuda_target_pick(c, &k->nvrtc, arch, &build->compile.target);
}

/* Reads the source. Afterwards either the cache entry is loaded, or the module is ready to be compiled. */
EXL2__PRIVATE exl2_result exl2__cuda_build_open(exl2__ctx *c, exl2__cuda_compiler *k, exl2__cuda_build *build,
                                                uint32_t arch)
{
    exl2__cuda_target exact = { arch, false };
    EXL2__TRY(exl2__cuda_source_open(c, k->kernel_dir, exl2__cuda_kernel_rows[build->module].module, &build->source));
    EXL2__TRY(exl2__cuda_build_find(c, k, build, exact));
    if (build->found) {
        return EXL2_OK;
    }
    if (!exl2__cuda_compiler_ready(k)) {
        return exl2__cuda_build_find_lower(c, k, build, arch);
    }
    EXL2__TRY(exl2__cuda_build_prepare(c, k, build, arch));
    return build->compile.target.ptx ? exl2__cuda_build_find(c, k, build, build->compile.target) : EXL2_OK;
}

/* Makes and stores the entry of a compiled module. */
EXL2__PRIVATE exl2_result exl2__cuda_build_finish(exl2__ctx *c, exl2__cuda_compiler *k, exl2__cuda_build *build)
{
    exl2__blob image;
    EXL2__TRY(exl2__cuda_compile_finish(c, &build->compile, &image, NULL));
    exl2__cuda_key(&build->source, build->compile.target, k->options, k->option_count, build->key);
    exl2__blob_close(c, &build->entry);
    exl2_result result = exl2__cuda_cache_store(c, &k->cache, build->key, k->version, build->compile.target.ptx, &image,
                                                &build->entry);
    exl2__blob_close(c, &image);
    k->compiled++;
    return result;
}

EXL2__PRIVATE void exl2__cuda_build_run(void *arg, uint32_t index)
{
    exl2__cuda_build *build = &((exl2__cuda_build *)arg)[index];
    if (!build->found && build->compile.nvrtc) {
        exl2__cuda_compile_run(&build->compile);
    }
}

/* Compiles the modules that were not in the cache, in parallel on the application's threads. */
EXL2__PRIVATE void exl2__cuda_builds_run(exl2__ctx *c, exl2__cuda_compiler *k, exl2__cuda_build *builds, uint32_t count)
{
    bool all_found = true;
    for (uint32_t i = 0; i < count; i++) {
        all_found &= builds[i].found;
    }
    if (all_found) {
        return;
    }
    uint64_t start = exl2__platform_ns();
    exl2__zone_begin(c, "exl2 compile kernels");
    if (c->parallel.run && count > 1) {
        c->parallel.run(c->parallel.user, count, exl2__cuda_build_run, builds);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            exl2__cuda_build_run(builds, i);
        }
    }
    exl2__zone_end(c);
    k->compile_ns += exl2__platform_ns() - start;
}

/* *out: [*count] one build for each wanted module (`wanted` NULL: all) that exists for `arch`, zeroed but for
   `module`. */
EXL2__PRIVATE exl2_result exl2__cuda_builds_make(exl2__ctx *c, uint32_t arch, const bool *wanted,
                                                 exl2__cuda_build **out, uint32_t *count)
{
    void *memory;
    EXL2__TRY(exl2__alloc(c, EXL2__KERNEL_COUNT * sizeof **out, sizeof(void *), EXL2_MEM_GENERAL, &memory));
    memset(memory, 0, EXL2__KERNEL_COUNT * sizeof **out);
    *out = (exl2__cuda_build *)memory;
    *count = 0;
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        bool exists = exl2__cuda_module_exists(exl2__cuda_kernel_rows[i].module, arch);
        if (exl2__cuda_module_of(i) == i && exists && (!wanted || wanted[i])) {
            (*out)[(*count)++].module = i;
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__cuda_builds_free(exl2__ctx *c, exl2__cuda_build *builds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        exl2__cuda_build_close(c, &builds[i]);
    }
    exl2__free(c, builds, EXL2__KERNEL_COUNT * sizeof *builds, EXL2_MEM_GENERAL);
}

/* Checks that kernels can be had for the architecture: each module that every model needs is in the cache, or a
   compiler supports the architecture. Frees all that it reads. */
EXL2__PRIVATE exl2_result exl2__cuda_kernels_find(exl2__ctx *c, exl2__cuda_compiler *k, uint32_t arch)
{
    bool wanted[EXL2__KERNEL_COUNT];
    exl2_result result = EXL2_OK;
    exl2__cuda_modules_of(&(exl2__cuda_needs){ 0 }, wanted);
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT && result == EXL2_OK && k->version == 0; i++) {
        exl2__cuda_build build = { .module = i };
        result = wanted[i] ? exl2__cuda_build_open(c, k, &build, arch) : EXL2_OK;
        exl2__cuda_build_close(c, &build);
    }
    return result;
}

/* ---- modules on a device ---- */

typedef struct exl2__cuda_kernels {
    const exl2__cuda_driver *driver;
    uint32_t arch;
    int driver_version;
    int lost;              /* the driver's result, if it ended the context */
    uint32_t shared_bytes; /* shared memory that a block may use, static and dynamic together */
    exl2__cuda_module *modules[EXL2__KERNEL_COUNT];     /* by the number of their first kernel */
    exl2__cuda_function *functions[EXL2__KERNEL_COUNT]; /* NULL: not loaded */
} exl2__cuda_kernels;

/* The device's context must be current. */
EXL2__PRIVATE void exl2__cuda_kernels_close(exl2__cuda_kernels *k)
{
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        if (k->modules[i]) {
            k->driver->module_unload(k->modules[i]);
        }
    }
    *k = (exl2__cuda_kernels){ 0 };
}

/* Whether another image of the same module may load after this result. */
static inline bool exl2__cuda_image_rejected(int result)
{
    return result == EXL2__CUDA_INVALID_IMAGE || result == EXL2__CUDA_NO_BINARY || result == EXL2__CUDA_INVALID_PTX
           || result == EXL2__CUDA_UNSUPPORTED_PTX || result == EXL2__CUDA_JIT_NOT_FOUND;
}

/* Loads the image and returns the driver's result. why: the log of the driver's assembler. */
EXL2__PRIVATE int exl2__cuda_kernels_load_image(exl2__cuda_kernels *k, const exl2__cuda_build *build, char *why,
                                                size_t cap)
{
    int options[] = { EXL2__CUDA_JIT_ERROR_LOG, EXL2__CUDA_JIT_ERROR_LOG_BYTES };
    void *values[] = { why, (void *)(uintptr_t)(cap - 1) };
    why[0] = 0;
    why[cap - 1] = 0;
    return k->driver->module_load(&k->modules[build->module], build->entry.data + EXL2__CUDA_ENTRY_HEAD,
                                  (unsigned)EXL2__COUNT(options), options, values);
}

/* The error for a lost context, or for device memory that ran out; EXL2_OK for any other result. */
EXL2__PRIVATE exl2_result exl2__cuda_kernels_device_error(exl2__ctx *c, exl2__cuda_kernels *k, int result,
                                                          const char *module)
{
    const char *name = exl2__cuda_result_name(k->driver, result);
    if (exl2__cuda_sticky(result)) {
        k->lost = result;
        return exl2__cuda_fail(c, EXL2_ERR_DEVICE_LOST, result, "the GPU was lost while loading the kernels of %s (%s)",
                               module, name);
    }
    if (result == EXL2__CUDA_OUT_OF_MEMORY) {
        return exl2__cuda_fail(c, EXL2_ERR_DEVICE_MEMORY, result,
                               "the GPU has no memory left for the kernels of %s (%s)", module, name);
    }
    return EXL2_OK;
}

/* The error for an image that the driver did not load; `why` is the log of its assembler. */
EXL2__PRIVATE exl2_result exl2__cuda_kernels_image_error(exl2__ctx *c, exl2__cuda_kernels *k,
                                                         const exl2__cuda_build *build, int result, const char *why)
{
    uint32_t built = exl2__load32(build->entry.data + 16);
    const char *module = build->source.names[0];
    if (*why) {
        exl2__log(c, EXL2_LOG_ERROR, EXL2_LOG_ID_COMPILER_OUTPUT, "the driver reports for %s:", module);
        exl2__cuda_compile_log_lines(c, EXL2_LOG_ERROR, why);
    }
    EXL2__TRY(exl2__cuda_kernels_device_error(c, k, result, module));
    if (exl2__cuda_image_rejected(result) && built > (uint32_t)k->driver_version) {
        return exl2__cuda_fail(c, EXL2_ERR_COMPILE, result,
                               "kernel %s: the driver supports CUDA %d.%d, but the kernel compiler is NVRTC %u.%u: "
                               "update the driver, or use an older NVRTC", module, k->driver_version / 1000,
                               k->driver_version % 1000 / 10, built / 1000, built % 1000 / 10);
    }
    return exl2__cuda_fail(c, EXL2_ERR_COMPILE, result, "the driver could not load kernel %s (%s): %.*s", module,
                           exl2__cuda_result_name(k->driver, result), (int)strcspn(why, "\n"), why);
}

/* Gets a function of a loaded module, and lets it use as much shared memory as the device and the application allow. */
EXL2__PRIVATE exl2_result exl2__cuda_kernels_function(exl2__ctx *c, exl2__cuda_kernels *k, uint32_t kernel)
{
    const exl2__cuda_kernel_row *row = &exl2__cuda_kernel_rows[kernel];
    exl2__cuda_function *function = NULL;
    int static_bytes = 0;
    int result = k->driver->module_function(&function, k->modules[exl2__cuda_module_of(kernel)], row->function);
    if (result == 0 && row->dynamic == EXL2__CUDA_DYNAMIC_BUDGET) {
        result = k->driver->function_attribute(&static_bytes, EXL2__CUDA_FUNCTION_SHARED_BYTES, function);
        result = result == 0 ? k->driver->function_set(function, EXL2__CUDA_FUNCTION_DYNAMIC_MAX,
                                                       (int)k->shared_bytes - static_bytes)
                             : result;
    }
    if (result != 0) {
        EXL2__TRY(exl2__cuda_kernels_device_error(c, k, result, row->module));
        return exl2__cuda_fail(c, EXL2_ERR_COMPILE, result, "kernel %s of %s cannot be used (%s)", row->function,
                               row->module, exl2__cuda_result_name(k->driver, result));
    }
    k->functions[kernel] = function;
    return EXL2_OK;
}

/* Loads the module's image. An image from the cache that the driver rejects is compiled again, and the new one is
   stored. */
EXL2__PRIVATE exl2_result exl2__cuda_kernels_load_module(exl2__ctx *c, exl2__cuda_kernels *k,
                                                         exl2__cuda_compiler *compiler, exl2__cuda_build *build)
{
    char why[1024];
    int result = exl2__cuda_kernels_load_image(k, build, why, sizeof why);
    if (exl2__cuda_image_rejected(result) && build->found && exl2__cuda_compiler_ready(compiler)) {
        exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_KERNEL_ENTRY_REJECTED,
                  "the driver rejected the kernel cache's entry %s (%s): it is compiled again",
                  build->key, exl2__cuda_result_name(k->driver, result));
        EXL2__TRY(exl2__cuda_build_prepare(c, compiler, build, k->arch));
        build->found = false;
        exl2__cuda_builds_run(c, compiler, build, 1);
        EXL2__TRY(exl2__cuda_build_finish(c, compiler, build));
        result = exl2__cuda_kernels_load_image(k, build, why, sizeof why);
    }
    if (result != 0) {
        k->modules[build->module] = NULL;
        return exl2__cuda_kernels_image_error(c, k, build, result, why);
    }
    exl2_result found = EXL2_OK;
    const char *module = exl2__cuda_kernel_rows[build->module].module; /* module_of(i) would compare i with all rows */
    for (uint32_t i = build->module; i < EXL2__KERNEL_COUNT && found == EXL2_OK; i++) {
        if (strcmp(exl2__cuda_kernel_rows[i].module, module) == 0) {
            found = exl2__cuda_kernels_function(c, k, i);
        }
    }
    if (found < 0) {
        k->driver->module_unload(k->modules[build->module]);
        k->modules[build->module] = NULL;
    }
    return found;
}

/* Threads from which on all modules are compiled at once: it lasts little longer than the longest of them alone, which
   no step can cut. */
#ifndef EXL2__CUDA_THREADS_FOR_ALL
#define EXL2__CUDA_THREADS_FOR_ALL 4u
#endif

/* Loads the wanted modules that are not loaded yet (wanted: by the number of their first kernel; NULL: all); PENDING if
   more are left. threads 0: all. Else one module from the cache, or as many as these threads of the application compile
   together. The device's context must be current. After a failure the modules loaded so far stay. */
EXL2__PRIVATE exl2_result exl2__cuda_kernels_load(exl2__ctx *c, exl2__cuda_kernels *k, exl2__cuda_compiler *compiler,
                                                  const bool *wanted, uint32_t threads)
{
    bool missing[EXL2__KERNEL_COUNT], full = false;
    exl2__cuda_build *builds;
    uint32_t count, opened = 0;
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        missing[i] = (!wanted || wanted[i]) && !k->modules[i];
    }
    EXL2__TRY(exl2__cuda_builds_make(c, k->arch, missing, &builds, &count));
    exl2_result result = EXL2_OK;
    while (opened < count && !full && result == EXL2_OK) {
        exl2__cuda_build *build = &builds[opened++];
        result = exl2__cuda_build_open(c, compiler, build, k->arch);
        full = threads && (build->found || (opened == threads && threads < EXL2__CUDA_THREADS_FOR_ALL));
    }
    if (result == EXL2_OK) {
        exl2__cuda_builds_run(c, compiler, builds, opened);
    }
    for (uint32_t i = 0; i < opened && result == EXL2_OK; i++) {
        result = builds[i].found ? EXL2_OK : exl2__cuda_build_finish(c, compiler, &builds[i]);
        result = result == EXL2_OK ? exl2__cuda_kernels_load_module(c, k, compiler, &builds[i]) : result;
    }
    exl2__cuda_builds_free(c, builds, count);
    return result < 0 || opened == count ? result : EXL2_PENDING;
}

/* ---- sets for shipping ---- */

/* Compiles for each architecture every module that exists for it, those of conversions if `converter`, into the
   compiler's cache hook; needs no GPU. NVRTC must support machine code for each architecture. */
EXL2__PRIVATE exl2_result exl2__cuda_kernels_build(exl2__ctx *c, exl2__cuda_compiler *compiler, const uint32_t *archs,
                                                   uint32_t arch_count, bool converter)
{
    bool wanted[EXL2__KERNEL_COUNT];
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        wanted[i] = converter || !exl2__cuda_module_converts(exl2__cuda_kernel_rows[i].module);
    }
    if (!exl2__cuda_compiler_ready(compiler)) {
        return exl2__fail(c, EXL2_ERR_NO_COMPILER, "kernels cannot be built: %s", compiler->why);
    }
    exl2_result result = EXL2_OK;
    for (uint32_t a = 0; a < arch_count && result == EXL2_OK; a++) {
        exl2__cuda_build *builds;
        uint32_t count;
        EXL2__TRY(exl2__cuda_builds_make(c, archs[a], wanted, &builds, &count));
        for (uint32_t i = 0; i < count && result == EXL2_OK; i++) {
            result = exl2__cuda_source_open(c, compiler->kernel_dir, exl2__cuda_kernel_rows[builds[i].module].module,
                                            &builds[i].source);
            if (result == EXL2_OK) {
                result = exl2__cuda_build_find(c, compiler, &builds[i], (exl2__cuda_target){ archs[a], false });
            }
            if (result == EXL2_OK && !builds[i].found) {
                result = exl2__cuda_build_prepare(c, compiler, &builds[i], archs[a]);
            }
            if (result == EXL2_OK && builds[i].compile.target.ptx) {
                result = exl2__fail(c, EXL2_ERR_UNSUPPORTED,
                                    "this NVRTC (%u.%u) generates no machine code for compute capability %u.%u",
                                    compiler->version / 1000, compiler->version % 1000 / 10, archs[a] / 10,
                                    archs[a] % 10);
            }
        }
        if (result == EXL2_OK) {
            exl2__cuda_builds_run(c, compiler, builds, count);
        }
        for (uint32_t i = 0; i < count && result == EXL2_OK; i++) {
            bool found = builds[i].found;
            result = found ? EXL2_OK : exl2__cuda_build_finish(c, compiler, &builds[i]);
            if (result == EXL2_OK) {
                exl2__log(c, EXL2_LOG_INFO, EXL2_LOG_ID_KERNEL_BUILT, "kernels %s: %llu bytes%s", builds[i].key,
                          (unsigned long long)builds[i].entry.bytes, found ? ", built before" : "");
            }
        }
        exl2__cuda_builds_free(c, builds, count);
    }
    return result;
}

#endif
