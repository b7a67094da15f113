/* cuda_compile.h: compiles one kernel module through NVRTC: target, options, error messages.
   takes: an open NVRTC, an open source.
   gives: exl2__cuda_target; exl2__cuda_compile with run, finish and close.
   owns:  the NVRTC program, until close; image and log are the caller's. */
#ifndef EXL2__CUDA_COMPILE_H
#define EXL2__CUDA_COMPILE_H

#include "../../0_base/log.h"
#include "cuda_api.h"
#include "cuda_source.h"

#define EXL2__CUDA_OPTIONS_MAX 16u
#define EXL2__CUDA_OPTIONS_ALL (EXL2__CUDA_OPTIONS_MAX + 3)
#define EXL2__CUDA_ARCHS_MAX 64

typedef struct exl2__cuda_target {
    uint32_t arch; /* 89: compute capability 8.9 */
    bool ptx;      /* compute_89 (PTX, which the driver assembles) instead of sm_89 */
} exl2__cuda_target;

/* "sm_89" or "compute_89". Machine code for Hopper is always built for sm_90a, which runs on no other architecture. */
static inline void exl2__cuda_target_name(exl2__cuda_target target, char *out, size_t cap)
{
    exl2__format(out, cap, "%s_%u%s", target.ptx ? "compute" : "sm", target.arch,
                 target.arch == 90 && !target.ptx ? "a" : "");
}

/* All options of NVRTC for a module, which are part of the cache's key, too. more [count]: those of tests and traces.
   architecture: memory for one of them. Returns how many there are. */
static inline uint32_t exl2__cuda_target_options(exl2__cuda_target target, const char *const *more, uint32_t count,
                                                 char architecture[48], const char *options[EXL2__CUDA_OPTIONS_ALL])
{
    char name[16];
    exl2__cuda_target_name(target, name, sizeof name);
    exl2__format(architecture, 48, "--gpu-architecture=%s", name);
    options[0] = architecture;
    options[1] = "--std=c++17";
    options[2] = "-default-device";
    for (uint32_t i = 0; i < count; i++) {
        options[3 + i] = more[i];
    }
    return 3 + count;
}

/* Picks machine code of `arch` if this NVRTC supports it, else PTX of the highest supported architecture below. */
EXL2__PRIVATE exl2_result exl2__cuda_target_pick(exl2__ctx *c, const exl2__cuda_nvrtc *nvrtc, uint32_t arch,
                                                 exl2__cuda_target *out)
{
    int archs[EXL2__CUDA_ARCHS_MAX] = { 0 }, count = 0;
    if (arch < EXL2__CUDA_ARCH_MIN) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "architecture %u is not supported; the lowest one is %u", arch,
                          EXL2__CUDA_ARCH_MIN);
    }
    int result = nvrtc->arch_count(&count);
    if (result == 0 && count > EXL2__CUDA_ARCHS_MAX) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "NVRTC lists %d architectures; at most %d are expected", count,
                          EXL2__CUDA_ARCHS_MAX);
    }
    result = result == 0 ? nvrtc->archs(archs) : result;
    if (result != 0) {
        return exl2__cuda_fail(c, EXL2_ERR_COMPILE, result,
                               "NVRTC did not list the architectures that it supports (%d)", result);
    }
    *out = (exl2__cuda_target){ 0 };
    for (int i = 0; i < count; i++) {
        uint32_t known = archs[i] > 0 ? (uint32_t)archs[i] : 0;
        if (known <= arch && known > out->arch) {
            out->arch = known;
        }
    }
    out->ptx = out->arch != arch;
    if (out->arch < EXL2__CUDA_ARCH_MIN) {
        return exl2__fail(c, EXL2_ERR_COMPILE, "this NVRTC supports no architecture from %u to %u", EXL2__CUDA_ARCH_MIN,
                          arch);
    }
    return EXL2_OK;
}

typedef struct exl2__cuda_compile {
    const exl2__cuda_nvrtc *nvrtc;
    const exl2__cuda_source *source;
    exl2__cuda_target target;
    const char *options[EXL2__CUDA_OPTIONS_MAX]; /* in addition to the options that every module is compiled with */
    uint32_t option_count;
    exl2__cuda_program *program;
    int result;
} exl2__cuda_compile;

/* Compiles; run->result says how it ended. It does not use the engine's allocator, so several may run on threads at
   once. */
EXL2__PRIVATE void exl2__cuda_compile_run(exl2__cuda_compile *run)
{
    const exl2__cuda_source *s = run->source;
    const char *headers[EXL2__CUDA_SOURCES_MAX], *names[EXL2__CUDA_SOURCES_MAX];
    for (uint32_t i = 1; i < s->count; i++) {
        headers[i - 1] = s->texts[i].data;
        names[i - 1] = s->names[i];
    }
    run->result = run->nvrtc->program_make(&run->program, s->texts[0].data, s->names[0], (int)s->count - 1, headers,
                                           names);
    if (run->result != 0) {
        return;
    }
    char architecture[48];
    const char *options[EXL2__CUDA_OPTIONS_ALL];
    uint32_t count = exl2__cuda_target_options(run->target, run->options, run->option_count, architecture, options);
    run->result = run->nvrtc->compile(run->program, (int)count, options);
}

/* The log of NVRTC; an empty text if there is none. */
EXL2__PRIVATE exl2_result exl2__cuda_compile_log(exl2__ctx *c, const exl2__cuda_compile *run, exl2__blob *out)
{
    size_t bytes = 0;
    void *memory;
    *out = (exl2__blob){ 0 };
    if (!run->program || run->nvrtc->log_bytes(run->program, &bytes) != 0 || bytes == 0) {
        bytes = 1;
    }
    EXL2__TRY(exl2__alloc(c, bytes, sizeof(uint64_t), EXL2_MEM_GENERAL, &memory));
    out->data = (char *)memory;
    out->bytes = bytes - 1;
    out->data[0] = 0;
    if (bytes > 1 && run->nvrtc->log(run->program, out->data) != 0) {
        out->data[0] = 0;
    }
    out->data[bytes - 1] = 0;
    return EXL2_OK;
}

/* Logs every line of the text. Long lines are logged in pieces, as a log line has room for 247 bytes. */
EXL2__PRIVATE void exl2__cuda_compile_log_lines(const exl2__ctx *c, exl2_log_level level, const char *text)
{
    while (*text) {
        const char *end = strchr(text, '\n');
        size_t bytes = end ? (size_t)(end - text) : strlen(text);
        for (size_t at = 0, part; at < bytes; at += part) {
            part = bytes - at <= 240 ? bytes - at : exl2__utf8_whole(text + at, 240);
            exl2__log(c, level, EXL2_LOG_ID_COMPILER_OUTPUT, "%.*s", (int)part, text + at);
        }
        text += bytes + (end != NULL);
    }
}

/* The first line that contains "error", else the first line. */
EXL2__PRIVATE const char *exl2__cuda_compile_error(const char *log, int *bytes)
{
    const char *error = strstr(log, "error");
    while (error && error > log && error[-1] != '\n') {
        error--;
    }
    error = error ? error : log;
    const char *end = strchr(error, '\n');
    *bytes = (int)(end ? (size_t)(end - error) : strlen(error));
    return error;
}

EXL2__PRIVATE exl2_result exl2__cuda_compile_fail(exl2__ctx *c, const exl2__cuda_compile *run)
{
    exl2__blob log;
    char target[16];
    int bytes;
    exl2__cuda_target_name(run->target, target, sizeof target);
    EXL2__TRY(exl2__cuda_compile_log(c, run, &log));
    exl2__log(c, EXL2_LOG_ERROR, EXL2_LOG_ID_COMPILER_OUTPUT, "NVRTC reports for %s, target %s:", run->source->names[0],
              target);
    for (uint32_t i = 0; i < run->option_count; i++) {
        exl2__log(c, EXL2_LOG_ERROR, EXL2_LOG_ID_COMPILER_OUTPUT, "with %s", run->options[i]);
    }
    exl2__cuda_compile_log_lines(c, EXL2_LOG_ERROR, log.data);
    const char *error = exl2__cuda_compile_error(log.data, &bytes);
    exl2_result result = exl2__cuda_fail(c, EXL2_ERR_COMPILE, run->result,
                                         "kernel %s does not compile for %s (NVRTC %d): %.*s", run->source->names[0],
                                         target, run->result, bytes, error);
    exl2__blob_close(c, &log);
    return result;
}

/* image: machine code, or PTX with its NUL. log: the log of NVRTC; if NULL, its lines are logged as warnings. If the
   module did not compile, its whole log is logged as errors, and the message quotes the first error line. */
EXL2__PRIVATE exl2_result exl2__cuda_compile_finish(exl2__ctx *c, exl2__cuda_compile *run, exl2__blob *image,
                                                    exl2__blob *log)
{
    const exl2__cuda_nvrtc *n = run->nvrtc;
    size_t bytes = 0;
    void *memory;
    *image = (exl2__blob){ 0 };
    if (run->result != 0) {
        return exl2__cuda_compile_fail(c, run);
    }
    int result = run->target.ptx ? n->ptx_bytes(run->program, &bytes) : n->cubin_bytes(run->program, &bytes);
    if (result == 0 && bytes > 0) {
        EXL2__TRY(exl2__alloc(c, (uint64_t)bytes + 1, sizeof(uint64_t), EXL2_MEM_GENERAL, &memory));
        *image = (exl2__blob){ (char *)memory, bytes };
        image->data[bytes] = 0;
        result = run->target.ptx ? n->ptx(run->program, image->data) : n->cubin(run->program, image->data);
    }
    if (result != 0 || bytes == 0) {
        exl2__blob_close(c, image);
        return exl2__cuda_fail(c, EXL2_ERR_COMPILE, result, "NVRTC compiled %s but returned no code (%d)",
                               run->source->names[0], result);
    }
    exl2__blob said;
    exl2_result got = exl2__cuda_compile_log(c, run, &said);
    if (got < 0) {
        exl2__blob_close(c, image);
        return got;
    }
    if (log) {
        *log = said;
        return EXL2_OK;
    }
    exl2__cuda_compile_log_lines(c, EXL2_LOG_WARN, said.data);
    exl2__blob_close(c, &said);
    return EXL2_OK;
}

static inline void exl2__cuda_compile_close(exl2__cuda_compile *run)
{
    if (run->program) {
        run->nvrtc->program_free(&run->program);
    }
    run->program = NULL;
}

#endif
