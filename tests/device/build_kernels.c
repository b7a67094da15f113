/* build_kernels.c: compiles every kernel into a folder for $EXL2_TEST_KERNELS. Needs NVRTC, but no GPU.
   takes: FOLDER ARCH [NVRTC options], for example build/kernels 90 -DEXL2K_PDL=1; $EXL2_NVRTC; $EXL2_TEST_ARCH, which
          is ARCH, or unset for machine code of a real GPU (other_gpu.h).
   gives: exit code 0, 1, or 77 without NVRTC.
   owns:  the folder's files. */
#include "other_gpu.h"

#include "private/cuda.h"
#include "kernel_folder.h"

#include <pthread.h>

#define THREADS 16u

/* As exl2_parallel.run: the threads take tasks in turn. */
typedef struct crew {
    void (*task)(void *arg, uint32_t index);
    void *arg;
    uint32_t next, count; /* next: atomic */
} crew;

static void *crew_work(void *user)
{
    crew *c = user;
    for (uint32_t i; (i = exl2__atomic_add(&c->next, 1)) < c->count;) {
        c->task(c->arg, i);
    }
    return NULL;
}

static void crew_run(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    crew c = { task, arg, 0, count };
    pthread_t threads[THREADS];
    uint32_t made = 0;
    (void)user;
    while (made < THREADS && pthread_create(&threads[made], NULL, crew_work, &c) == 0) {
        made++;
    }
    crew_work(&c);
    while (made > 0) {
        pthread_join(threads[--made], NULL);
    }
}

static void line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user;
    (void)level;
    (void)id;
    (void)code;
    printf("%s\n", text);
}

int main(int argc, char **argv)
{
    exl2__ctx c = { 0 };
    exl2__cuda_compiler compiler = { 0 };
    if (argc < 3) {
        printf("%s FOLDER ARCH [NVRTC options]\n", argv[0]);
        return 1;
    }
    uint32_t arch = (uint32_t)strtoul(argv[2], NULL, 10);
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.logger = (exl2_logger){ line, NULL, EXL2_LOG_WARN };
    c.parallel = (exl2_parallel){ .run = crew_run, .width = THREADS };
    other_gpu_tables(NULL, &compiler.nvrtc);
    compiler.nvrtc_path = check_env("EXL2_NVRTC");
    compiler.cache = kernel_folder_of(argv[1]);
    for (int i = 3; i < argc && compiler.option_count < EXL2__CUDA_OPTIONS_MAX; i++) {
        compiler.options[compiler.option_count++] = argv[i];
    }
    if (!exl2__cuda_compiler_ready(&compiler)) {
        check_skip(compiler.why);
    }
    exl2_result result = exl2__cuda_kernels_build(&c, &compiler, &arch, 1, true);
    printf("%s: %u modules, %.1f s\n", result == EXL2_OK ? argv[1] : c.error.text, (unsigned)compiler.compiled,
           (double)compiler.compile_ns * 1e-9);
    exl2__cuda_compiler_close(&compiler);
    return result != EXL2_OK;
}
