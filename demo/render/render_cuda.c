/* render_cuda.c: see render.h: a second CUDA context, where there is no OpenGL.
   takes: libcuda.so.1 or nvcuda.dll.
   gives: render_cuda.
   owns:  the context. */
#include "library.h"
#include "render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READERS 262144u /* threads; as in render_gl.c */
#define READ_BYTES (READERS * 256u)

typedef void *cuda_handle;

#define CUDA_FUNCTIONS(X)                                                                                 \
    X(cuInit, (unsigned flags))                                                                           \
    X(cuDeviceGet, (int *device, int index))                                                              \
    X(cuDeviceGetName, (char *name, int bytes, int device))                                               \
    X(cuCtxCreate_v2, (cuda_handle *context, unsigned flags, int device))                                 \
    X(cuCtxDestroy_v2, (cuda_handle context))                                                             \
    X(cuCtxPushCurrent_v2, (cuda_handle context))                                                         \
    X(cuCtxPopCurrent_v2, (cuda_handle *context))                                                         \
    X(cuModuleLoadData, (cuda_handle *module, const void *text))                                          \
    X(cuModuleGetFunction, (cuda_handle *function, cuda_handle module, const char *name))                 \
    X(cuMemAlloc_v2, (uint64_t *address, size_t bytes))                                                   \
    X(cuEventCreate, (cuda_handle *event, unsigned flags))                                                \
    X(cuEventRecord, (cuda_handle event, cuda_handle stream))                                             \
    X(cuEventSynchronize, (cuda_handle event))                                                            \
    X(cuLaunchKernel, (cuda_handle function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y, \
                       unsigned threads_z, unsigned shared, cuda_handle stream, void **arguments, void **extra))

#define MEMBER(name, parameters) int (*name) parameters;

typedef struct cuda {
    CUDA_FUNCTIONS(MEMBER)
    cuda_handle context, draw, read, fence;
    uint64_t from, to;
} cuda;

/* draw: as many threads as a picture of 960 x 540 has pixels, 8 sines and cosines each. read: 16 times 16 bytes. */
static const char kernels_text[] =
    ".version 6.3\n.target sm_75\n.address_size 64\n"
    ".visible .entry draw(.param .u64 to)\n{\n"
    "    .reg .pred %p<2>;\n    .reg .b32 %r<8>;\n    .reg .f32 %f<6>;\n    .reg .b64 %d<4>;\n"
    "    ld.param.u64 %d1, [to];\n"
    "    mov.u32 %r1, %ctaid.x;\n    mov.u32 %r2, %ntid.x;\n    mov.u32 %r3, %tid.x;\n"
    "    mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "    cvt.rn.f32.u32 %f1, %r4;\n    mov.f32 %f2, %f1;\n    mov.u32 %r5, 8;\n"
    "LOOP:\n"
    "    add.f32 %f3, %f1, %f2;\n    sin.approx.f32 %f1, %f3;\n    cos.approx.f32 %f2, %f3;\n"
    "    sub.u32 %r5, %r5, 1;\n    setp.ne.u32 %p1, %r5, 0;\n    @%p1 bra LOOP;\n"
    "    and.b32 %r6, %r4, 262143;\n    mul.wide.u32 %d2, %r6, 16;\n    add.u64 %d3, %d1, %d2;\n"
    "    st.global.f32 [%d3], %f1;\n    ret;\n}\n"
    ".visible .entry read(.param .u64 from, .param .u64 to)\n{\n"
    "    .reg .pred %p<2>;\n    .reg .b32 %r<8>;\n    .reg .f32 %f<8>;\n    .reg .b64 %d<8>;\n"
    "    ld.param.u64 %d1, [from];\n    ld.param.u64 %d2, [to];\n"
    "    mov.u32 %r1, %ctaid.x;\n    mov.u32 %r2, %ntid.x;\n    mov.u32 %r3, %tid.x;\n"
    "    mad.lo.u32 %r4, %r1, %r2, %r3;\n    mul.wide.u32 %d3, %r4, 16;\n"
    "    add.u64 %d4, %d1, %d3;\n    add.u64 %d5, %d2, %d3;\n"
    "    mov.f32 %f1, 0f00000000;\n    mov.u32 %r5, 16;\n"
    "LOOP:\n"
    "    ld.global.v4.f32 {%f2, %f3, %f4, %f5}, [%d4];\n"
    "    add.f32 %f1, %f1, %f2;\n    add.f32 %f1, %f1, %f3;\n    add.f32 %f1, %f1, %f4;\n    add.f32 %f1, %f1, %f5;\n"
    "    add.u64 %d4, %d4, 4194304;\n"
    "    sub.u32 %r5, %r5, 1;\n    setp.ne.u32 %p1, %r5, 0;\n    @%p1 bra LOOP;\n"
    "    st.global.f32 [%d5], %f1;\n    ret;\n}\n";

static const char *find_functions(cuda *c)
{
    void *library = library_open("libcuda.so.1");
    library = library ? library : library_open("nvcuda.dll");
    if (!library) {
        return "libcuda.so.1";
    }
#define FIND(name, parameters)                                     \
    {                                                              \
        library_function found = library_find(library, #name);     \
        memcpy(&c->name, &found, sizeof found);                    \
        if (!found) {                                              \
            return #name;                                          \
        }                                                          \
    }
    CUDA_FUNCTIONS(FIND)
#undef FIND
    return NULL;
}

/* Everything in the new context. */
static bool make_all(cuda *c)
{
    cuda_handle module;
    return c->cuModuleLoadData(&module, kernels_text) == 0 && c->cuModuleGetFunction(&c->draw, module, "draw") == 0
        && c->cuModuleGetFunction(&c->read, module, "read") == 0 && c->cuMemAlloc_v2(&c->from, READ_BYTES) == 0
        && c->cuMemAlloc_v2(&c->to, READERS * 16u) == 0 && c->cuEventCreate(&c->fence, 0) == 0;
}

static void *open_cuda(char what[RENDER_WHAT_BYTES])
{
    cuda *c = calloc(1, sizeof *c);
    const char *missing = c ? find_functions(c) : "memory";
    char name[128] = "";
    int device;
    if (missing) {
        snprintf(what, RENDER_WHAT_BYTES, "no CUDA (%s is missing)", missing);
        free(c);
        return NULL;
    }
    bool good = c->cuInit(0) == 0 && c->cuDeviceGet(&device, 0) == 0 && c->cuDeviceGetName(name, 128, device) == 0
             && c->cuCtxCreate_v2(&c->context, 0, device) == 0;
    if (good) {
        cuda_handle popped;
        good = make_all(c);
        c->cuCtxPopCurrent_v2(&popped);
    }
    if (!good) {
        snprintf(what, RENDER_WHAT_BYTES, "no CUDA (no context)");
        render_cuda.close(c);
        return NULL;
    }
    snprintf(what, RENDER_WHAT_BYTES, "no OpenGL: a second CUDA context, %s", name);
    return c;
}

/* It draws no picture, so nobody looks. */
static bool frame_cuda(void *load, uint32_t draws, uint32_t reads, bool looks)
{
    cuda *c = load;
    (void)looks;
    cuda_handle popped;
    void *draw_arguments[] = { &c->to }, *read_arguments[] = { &c->from, &c->to };
    bool good = c->cuCtxPushCurrent_v2(c->context) == 0;
    if (!good) {
        return false;
    }
    for (uint32_t i = 0; i < draws && good; i++) {
        good = c->cuLaunchKernel(c->draw, 2025, 1, 1, 256, 1, 1, 0, NULL, draw_arguments, NULL) == 0;
    }
    for (uint32_t i = 0; i < reads && good; i++) {
        good = c->cuLaunchKernel(c->read, READERS / 256, 1, 1, 256, 1, 1, 0, NULL, read_arguments, NULL) == 0;
    }
    good = good && c->cuEventRecord(c->fence, NULL) == 0;
    c->cuCtxPopCurrent_v2(&popped);
    return good;
}

static bool wait_cuda(void *load)
{
    cuda *c = load;
    cuda_handle popped;
    if (c->cuCtxPushCurrent_v2(c->context) != 0) {
        return false;
    }
    bool good = c->cuEventSynchronize(c->fence) == 0;
    c->cuCtxPopCurrent_v2(&popped);
    return good;
}

static void close_cuda(void *load)
{
    cuda *c = load;
    if (c && c->context) {
        c->cuCtxDestroy_v2(c->context); /* frees all that was made in it */
    }
    free(c);
}

const render_load render_cuda = { "CUDA", open_cuda, frame_cuda, wait_cuda, NULL, close_cuda };
