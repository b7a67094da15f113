/* render_gl.c: see render.h: OpenGL 4.3 through EGL, on a GPU without a display. Own declarations, so that no header of
   OpenGL is needed to build.
   takes: libEGL.so.1.
   gives: render_gl.
   owns:  the context. */
#include "library.h"
#include "render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READERS 262144u /* invocations of the compute shader; each reads 16 times 16 bytes */
#define READ_BYTES (READERS * 256u)

/* ---- EGL ---- */

typedef void *egl_handle; /* display, device, config, context */

enum {
    EGL_PBUFFER = 1, EGL_OPENGL = 8, EGL_SURFACE_TYPE = 0x3033, EGL_NONE = 0x3038, EGL_RENDERABLE_TYPE = 0x3040,
    EGL_MAJOR = 0x3098, EGL_OPENGL_API = 0x30A2, EGL_MINOR = 0x30FB, EGL_PROFILE = 0x30FD, EGL_CORE = 1,
    EGL_PLATFORM_DEVICE = 0x313F
};

/* X(result, name, parameters) */
#define EGL_FUNCTIONS(X)                                                                                  \
    X(unsigned, eglQueryDevicesEXT, (int max, egl_handle *devices, int *count))                           \
    X(egl_handle, eglGetPlatformDisplayEXT, (unsigned platform, egl_handle device, const int *attributes)) \
    X(unsigned, eglInitialize, (egl_handle display, int *major, int *minor))                              \
    X(unsigned, eglBindAPI, (unsigned api))                                                               \
    X(unsigned, eglChooseConfig, (egl_handle display, const int *wanted, egl_handle *configs, int max, int *count)) \
    X(egl_handle, eglCreateContext, (egl_handle display, egl_handle config, egl_handle share, const int *wanted)) \
    X(unsigned, eglMakeCurrent, (egl_handle display, egl_handle draw, egl_handle read, egl_handle context)) \
    X(unsigned, eglDestroyContext, (egl_handle display, egl_handle context))                              \
    X(unsigned, eglTerminate, (egl_handle display))

/* ---- OpenGL ---- */

typedef void *gl_sync;

enum {
    GL_TRIANGLES = 4, GL_TEXTURE_2D = 0xDE1, GL_RENDERER = 0x1F01, GL_RGBA8 = 0x8058, GL_STATIC_DRAW = 0x88E4,
    GL_FRAGMENT_SHADER = 0x8B30, GL_VERTEX_SHADER = 0x8B31, GL_COMPILE_STATUS = 0x8B81, GL_LINK_STATUS = 0x8B82,
    GL_FRAMEBUFFER_COMPLETE = 0x8CD5, GL_COLOR_ATTACHMENT0 = 0x8CE0, GL_FRAMEBUFFER = 0x8D40,
    GL_STORAGE_BUFFER = 0x90D2, GL_STORAGE_BARRIER = 0x2000, GL_SYNC_COMPLETE = 0x9117, GL_FLUSH_COMMANDS = 1,
    GL_ALREADY_SIGNALED = 0x911A, GL_CONDITION_SATISFIED = 0x911C, GL_COMPUTE_SHADER = 0x91B9,
    GL_PACK_BUFFER = 0x88EB, GL_STREAM_READ = 0x88E1, GL_RGBA = 0x1908, GL_UNSIGNED_BYTE = 0x1401
};

#define GL_FUNCTIONS(X)                                                                                   \
    X(const unsigned char *, glGetString, (unsigned name))                                                \
    X(unsigned, glGetError, (void))                                                                       \
    X(void, glGenTextures, (int count, unsigned *names))                                                  \
    X(void, glBindTexture, (unsigned target, unsigned name))                                              \
    X(void, glTexStorage2D, (unsigned target, int levels, unsigned format, int width, int height))        \
    X(void, glGenFramebuffers, (int count, unsigned *names))                                              \
    X(void, glBindFramebuffer, (unsigned target, unsigned name))                                          \
    X(void, glFramebufferTexture2D, (unsigned target, unsigned point, unsigned kind, unsigned name, int level)) \
    X(unsigned, glCheckFramebufferStatus, (unsigned target))                                              \
    X(void, glViewport, (int x, int y, int width, int height))                                            \
    X(unsigned, glCreateShader, (unsigned kind))                                                          \
    X(void, glShaderSource, (unsigned shader, int count, const char *const *texts, const int *bytes))     \
    X(void, glCompileShader, (unsigned shader))                                                           \
    X(void, glGetShaderiv, (unsigned shader, unsigned what, int *value))                                  \
    X(unsigned, glCreateProgram, (void))                                                                  \
    X(void, glAttachShader, (unsigned program, unsigned shader))                                          \
    X(void, glLinkProgram, (unsigned program))                                                            \
    X(void, glGetProgramiv, (unsigned program, unsigned what, int *value))                                \
    X(void, glUseProgram, (unsigned program))                                                             \
    X(void, glGenVertexArrays, (int count, unsigned *names))                                              \
    X(void, glBindVertexArray, (unsigned name))                                                           \
    X(void, glDrawArrays, (unsigned kind, int first, int count))                                          \
    X(void, glGenBuffers, (int count, unsigned *names))                                                   \
    X(void, glBindBufferBase, (unsigned target, unsigned index, unsigned name))                           \
    X(void, glBufferData, (unsigned target, ptrdiff_t bytes, const void *data, unsigned usage))           \
    X(void, glDispatchCompute, (unsigned x, unsigned y, unsigned z))                                      \
    X(void, glMemoryBarrier, (unsigned bits))                                                             \
    X(void, glBindBuffer, (unsigned target, unsigned name))                                               \
    X(void, glReadPixels, (int x, int y, int width, int height, unsigned format, unsigned type, void *to)) \
    X(void, glGetBufferSubData, (unsigned target, ptrdiff_t at, ptrdiff_t bytes, void *to))               \
    X(void, glUniform1f, (int place, float value))                                                        \
    X(gl_sync, glFenceSync, (unsigned condition, unsigned flags))                                         \
    X(unsigned, glClientWaitSync, (gl_sync sync, unsigned flags, uint64_t ns))                            \
    X(void, glDeleteSync, (gl_sync sync))

#define EGL_MEMBER(result, name, parameters) result (*name) parameters;

typedef struct gl {
    EGL_FUNCTIONS(EGL_MEMBER)
    GL_FUNCTIONS(EGL_MEMBER)
    egl_handle display, context;
    unsigned draw, read; /* programs */
    uint32_t frames;     /* so far; what is drawn moves with them */
    gl_sync fence;
} gl;

static const char vertex_text[] =
    "#version 430 core\n"
    "void main() {\n"
    "    vec2 corner = vec2((gl_VertexID << 1) & 2, gl_VertexID & 2);\n"
    "    gl_Position = vec4(corner * 2.0 - 1.0, 0.0, 1.0);\n"
    "}\n";

static const char fragment_text[] =
    "#version 430 core\n"
    "layout(location = 0) uniform float moved;\n"
    "out vec4 color;\n"
    "void main() {\n"
    "    vec2 v = gl_FragCoord.xy * 0.001 + moved;\n"
    "    for (int i = 0; i < 8; i++)\n"
    "        v = vec2(sin(v.x * 1.7 + v.y), cos(v.y * 1.3 - v.x));\n"
    "    color = vec4(v, v.x * v.y, 1.0);\n"
    "}\n";

static const char compute_text[] =
    "#version 430 core\n"
    "layout(local_size_x = 256) in;\n"
    "layout(std430, binding = 0) readonly buffer From { vec4 from[]; };\n"
    "layout(std430, binding = 1) writeonly buffer To { vec4 to[]; };\n"
    "void main() {\n"
    "    vec4 sum = vec4(0.0);\n"
    "    for (uint i = 0u; i < 16u; i++)\n"
    "        sum += from[gl_GlobalInvocationID.x + i * 262144u];\n"
    "    to[gl_GlobalInvocationID.x] = sum;\n"
    "}\n";

/* ---- opening ---- */

static void *not_open(gl *g, char what[RENDER_WHAT_BYTES], const char *why)
{
    snprintf(what, RENDER_WHAT_BYTES, "no OpenGL (%s)", why);
    render_gl.close(g);
    return NULL;
}

/* The name of the first function that is missing; NULL: none is. */
static const char *find_functions(gl *g)
{
    void *library = library_open("libEGL.so.1");
    library_function found = library ? library_find(library, "eglGetProcAddress") : NULL;
    library_function (*address_of)(const char *name);
    memcpy(&address_of, &found, sizeof address_of);
    if (!address_of) {
        return "libEGL.so.1";
    }
    /* Functions of EGL 1.4 are in the library itself; others only eglGetProcAddress finds. */
#define FIND(result, name, parameters)                                                \
    found = library_find(library, #name);                                             \
    found = found ? found : address_of(#name);                                        \
    memcpy(&g->name, &found, sizeof found);                                           \
    if (!g->name) {                                                                   \
        return #name;                                                                 \
    }
    EGL_FUNCTIONS(FIND)
    GL_FUNCTIONS(FIND)
#undef FIND
    return NULL;
}

/* A context on the device, without a surface. */
static bool make_context(gl *g, egl_handle device)
{
    static const int wanted[] = { EGL_SURFACE_TYPE, EGL_PBUFFER, EGL_RENDERABLE_TYPE, EGL_OPENGL, EGL_NONE };
    static const int version[] = { EGL_MAJOR, 4, EGL_MINOR, 3, EGL_PROFILE, EGL_CORE, EGL_NONE };
    egl_handle config;
    int count = 0;
    g->display = g->eglGetPlatformDisplayEXT(EGL_PLATFORM_DEVICE, device, NULL);
    if (!g->display || !g->eglInitialize(g->display, NULL, NULL)) {
        g->display = NULL;
        return false;
    }
    if (g->eglBindAPI(EGL_OPENGL_API) && g->eglChooseConfig(g->display, wanted, &config, 1, &count) && count == 1) {
        g->context = g->eglCreateContext(g->display, config, NULL, version);
    }
    if (g->context && g->eglMakeCurrent(g->display, NULL, NULL, g->context)) {
        return true;
    }
    g->eglTerminate(g->display);
    g->display = g->context = NULL;
    return false;
}

static bool add_shader(const gl *g, unsigned program, unsigned kind, const char *text)
{
    unsigned shader = g->glCreateShader(kind);
    int good = 0;
    g->glShaderSource(shader, 1, &text, NULL);
    g->glCompileShader(shader);
    g->glGetShaderiv(shader, GL_COMPILE_STATUS, &good);
    g->glAttachShader(program, shader);
    return good != 0;
}

static bool link_program(const gl *g, unsigned program)
{
    int good = 0;
    g->glLinkProgram(program);
    g->glGetProgramiv(program, GL_LINK_STATUS, &good);
    return good != 0;
}

/* A picture to draw into, the buffer that it is copied to, and those that the compute shader reads and writes. */
static bool make_buffers(const gl *g)
{
    unsigned texture, frame, arrays, buffers[3];
    g->glGenTextures(1, &texture);
    g->glBindTexture(GL_TEXTURE_2D, texture);
    g->glTexStorage2D(GL_TEXTURE_2D, 1, GL_RGBA8, (int)RENDER_SIDE, (int)RENDER_SIDE);
    g->glGenFramebuffers(1, &frame);
    g->glBindFramebuffer(GL_FRAMEBUFFER, frame);
    g->glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, texture, 0);
    g->glViewport(0, 0, (int)RENDER_SIDE, (int)RENDER_SIDE);
    g->glGenVertexArrays(1, &arrays);
    g->glBindVertexArray(arrays);
    g->glGenBuffers(3, buffers);
    g->glBindBuffer(GL_PACK_BUFFER, buffers[2]);
    g->glBufferData(GL_PACK_BUFFER, RENDER_SIDE * RENDER_SIDE * 4, NULL, GL_STREAM_READ);
    for (unsigned i = 0; i < 2; i++) {
        g->glBindBufferBase(GL_STORAGE_BUFFER, i, buffers[i]);
        g->glBufferData(GL_STORAGE_BUFFER, i == 0 ? READ_BYTES : READERS * 16u, NULL, GL_STATIC_DRAW);
    }
    return g->glCheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE && g->glGetError() == 0;
}

static void *open_gl(char what[RENDER_WHAT_BYTES])
{
    gl *g = calloc(1, sizeof *g);
    egl_handle devices[16];
    int count = 0;
    const char *missing = g ? find_functions(g) : "memory";
    if (missing) {
        free(g);
        snprintf(what, RENDER_WHAT_BYTES, "no OpenGL (%s is missing)", missing);
        return NULL;
    }
    if (!g->eglQueryDevicesEXT(16, devices, &count)) {
        count = 0;
    }
    for (int i = 0; i < count && !g->context; i++) { /* GPUs come before a device that is software */
        make_context(g, devices[i]);
    }
    if (!g->context) {
        return not_open(g, what, "EGL has no device with OpenGL 4.3");
    }
    g->draw = g->glCreateProgram();
    g->read = g->glCreateProgram();
    bool good = add_shader(g, g->draw, GL_VERTEX_SHADER, vertex_text);
    good = add_shader(g, g->draw, GL_FRAGMENT_SHADER, fragment_text) && good && link_program(g, g->draw);
    good = good && add_shader(g, g->read, GL_COMPUTE_SHADER, compute_text) && link_program(g, g->read);
    if (!good || !make_buffers(g)) {
        return not_open(g, what, "its shaders or buffers cannot be made");
    }
    snprintf(what, RENDER_WHAT_BYTES, "OpenGL through EGL, %s", (const char *)g->glGetString(GL_RENDERER));
    return g;
}

/* ---- frames ---- */

static bool frame_gl(void *load, uint32_t draws, uint32_t reads, bool looks)
{
    gl *g = load;
    g->glUseProgram(g->draw);
    g->glUniform1f(0, (float)(g->frames++ % 4096) * 0.01f);
    for (uint32_t i = 0; i < draws; i++) {
        g->glDrawArrays(GL_TRIANGLES, 0, 3);
    }
    g->glUseProgram(g->read);
    for (uint32_t i = 0; i < reads; i++) {
        g->glDispatchCompute(READERS / 256, 1, 1);
        g->glMemoryBarrier(GL_STORAGE_BARRIER);
    }
    if (looks) { /* into the buffer, so that nothing waits here */
        g->glReadPixels(0, 0, (int)RENDER_SIDE, (int)RENDER_SIDE, GL_RGBA, GL_UNSIGNED_BYTE, NULL);
    }
    g->fence = g->glFenceSync(GL_SYNC_COMPLETE, 0);
    if (g->fence) {
        g->glClientWaitSync(g->fence, GL_FLUSH_COMMANDS, 0); /* so that the GPU begins */
    }
    return g->fence != NULL;
}

static bool wait_gl(void *load)
{
    gl *g = load;
    unsigned state = g->glClientWaitSync(g->fence, 0, UINT64_C(10000000000));
    g->glDeleteSync(g->fence);
    g->fence = NULL;
    return (state == GL_ALREADY_SIGNALED || state == GL_CONDITION_SATISFIED) && g->glGetError() == 0;
}

static bool seen_gl(void *load, uint8_t *rgbx)
{
    gl *g = load;
    g->glGetBufferSubData(GL_PACK_BUFFER, 0, RENDER_SIDE * RENDER_SIDE * 4, rgbx);
    return g->glGetError() == 0;
}

static void close_gl(void *load)
{
    gl *g = load;
    if (g && g->display) {
        g->eglMakeCurrent(g->display, NULL, NULL, NULL);
        g->eglDestroyContext(g->display, g->context);
        g->eglTerminate(g->display);
    }
    free(g);
}

const render_load render_gl = { "OpenGL", open_gl, frame_gl, wait_gl, seen_gl, close_gl };
