/* ptx_driver.c: the driver over PTX: its GPUs, contexts and objects, modules and functions.
   takes: ptx_driver_objects.h.
   gives: ptx_driver_fill; emu_lock, emu_unlock, emu_misuse, emu_current, emu_make, emu_drop, emu_good.
   owns:  all objects, until the process ends. */
#include "ptx_driver_objects.h"

#include <pthread.h>

#define CONTEXTS_MAX 64
#define DYNAMIC_BYTES 49152u /* of shared memory that a launch may use without asking */

ptx_driver_machine emu_machine;
emu_gpu emu_gpus[PTX_DRIVER_GPUS_MAX];

static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
static object *objects;
static _Thread_local object *stack[CONTEXTS_MAX];
static _Thread_local int depth;

/* ---- objects ---- */

void emu_lock(void)
{
    pthread_mutex_lock(&all);
}

int emu_unlock(int result)
{
    pthread_mutex_unlock(&all);
    return result;
}

int emu_misuse(int result, const char *what)
{
    fprintf(stderr, "ptx: %s\n", what);
    return result;
}

emu_gpu *emu_current(void)
{
    return depth ? &emu_gpus[stack[depth - 1]->gpu] : NULL;
}

object *emu_make(kind k, int gpu)
{
    object *o = calloc(1, sizeof *o);
    if (!o) {
        abort();
    }
    *o = (object){ .kind = k, .gpu = gpu, .next = objects };
    objects = o;
    return o;
}

void emu_drop(object *o)
{
    emu_ops_free(o->first);
    emu_ops_free(o->recorded);
    if (o->module) {
        ptx_free(o->module);
    }
    *o = (object){ .kind = DEAD, .next = o->next };
}

bool emu_good(const void *handle, kind k)
{
    static const char *const names[] = { "dead", "context", "stream", "event", "module", "function", "graph", "exec" };
    const object *o = handle;
    if (o && o->kind == k) {
        return true;
    }
    fprintf(stderr, "ptx: a handle of a %s that is %s\n", names[k], o ? names[o->kind] : "NULL");
    return false;
}

/* ---- the system ---- */

static int init(unsigned flags)
{
    return flags ? EMU_INVALID_VALUE : 0;
}

static int driver_version(int *version)
{
    *version = 13000;
    return 0;
}

static int error_name(int result, const char **name)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "CUDA_ERROR_%d", result);
    *name = text;
    return 0;
}

static int device_count(int *count)
{
    *count = emu_machine.gpus;
    return 0;
}

static bool device_exists(int device)
{
    return device >= 0 && device < emu_machine.gpus;
}

static int device_get(int *device, int index)
{
    *device = index;
    return device_exists(index) ? 0 : EMU_INVALID_DEVICE;
}

static int device_name(char *name, int cap, int device)
{
    snprintf(name, (size_t)cap, "PTX on the CPU"); /* GPUs of one kind have one name */
    return device_exists(device) ? 0 : EMU_INVALID_DEVICE;
}

static int device_uuid(void *uuid, int device)
{
    memset(uuid, 0x50 + device, 16);
    return 0;
}

static int device_attribute(int *value, int attribute, int device)
{
    if (!device_exists(device)) {
        return EMU_INVALID_DEVICE;
    }
    switch (attribute) {
    case EXL2__CUDA_ARCH_MAJOR: *value = emu_machine.arch / 10; break;
    case EXL2__CUDA_ARCH_MINOR: *value = emu_machine.arch % 10; break;
    case EXL2__CUDA_SM_COUNT: *value = emu_machine.sm_count; break;
    case EXL2__CUDA_MEMORY_CLOCK: *value = 10000000; break;
    case EXL2__CUDA_MEMORY_WIDTH: *value = 384; break;
    case EXL2__CUDA_COMPUTE_MODE: *value = 0; break;
    case EXL2__CUDA_SHARED_PER_BLOCK: *value = (int)DYNAMIC_BYTES; break;
    case EXL2__CUDA_SHARED_OPTIN: *value = emu_machine.shared_optin; break;
    case EXL2__CUDA_SHARED_PER_SM: *value = emu_machine.shared_per_sm; break;
    case EXL2__CUDA_L2_BYTES: *value = 1 << 22; break;
    default: return EMU_INVALID_VALUE;
    }
    return 0;
}

static int device_bytes_total(size_t *bytes, int device)
{
    *bytes = EMU_TOTAL_BYTES;
    return device_exists(device) ? 0 : EMU_INVALID_DEVICE;
}

/* ---- contexts ---- */

static int primary_retain(exl2__cuda_context **context, int device)
{
    if (!device_exists(device)) {
        return EMU_INVALID_DEVICE;
    }
    emu_lock();
    emu_gpu *g = &emu_gpus[device];
    g->context.kind = CONTEXT;
    g->context.gpu = device;
    g->retained++;
    *context = (exl2__cuda_context *)(void *)&g->context;
    return emu_unlock(0);
}

/* The last release ends the context with all that it has. */
static int primary_release(int device)
{
    emu_lock();
    emu_gpu *g = &emu_gpus[device];
    if (g->retained == 0) {
        return emu_unlock(emu_misuse(EMU_INVALID_CONTEXT, "a primary context is released too often"));
    }
    if (--g->retained == 0) {
        emu_finish(NULL);
        emu_memory_drop(device);
        g->context.kind = DEAD;
        g->peers = 0;
    }
    return emu_unlock(0);
}

static int context_push(exl2__cuda_context *context)
{
    if (!emu_good(context, CONTEXT) || depth == CONTEXTS_MAX) {
        return EMU_INVALID_CONTEXT;
    }
    stack[depth++] = (object *)(void *)context;
    return 0;
}

static int context_pop(exl2__cuda_context **context)
{
    if (depth == 0) {
        return emu_misuse(EMU_INVALID_CONTEXT, "more contexts are popped than pushed");
    }
    *context = (exl2__cuda_context *)(void *)stack[--depth];
    return 0;
}

static int context_device(int *device)
{
    *device = depth ? stack[depth - 1]->gpu : 0;
    return depth ? 0 : EMU_INVALID_CONTEXT;
}

static int device_can_peer(int *can, int device, int peer)
{
    *can = device != peer;
    return device_exists(device) && device_exists(peer) ? 0 : EMU_INVALID_DEVICE;
}

static int context_peer(exl2__cuda_context *peer, unsigned flags)
{
    emu_gpu *own = emu_current();
    object *other = (object *)(void *)peer;
    if (!own || flags || !emu_good(peer, CONTEXT) || other->gpu == emu_index(own)) {
        return EMU_INVALID_VALUE;
    }
    emu_lock();
    bool before = own->peers >> other->gpu & 1;
    own->peers |= 1u << other->gpu;
    return emu_unlock(before ? EXL2__CUDA_PEER_ENABLED : 0);
}

static int priority_range(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return depth ? 0 : EMU_INVALID_CONTEXT;
}

static int memory_info(size_t *bytes_free, size_t *bytes_total)
{
    const emu_gpu *g = emu_current();
    *bytes_total = EMU_TOTAL_BYTES;
    *bytes_free = g ? EMU_TOTAL_BYTES - (size_t)g->used : 0;
    return g ? g->lost : EMU_INVALID_CONTEXT;
}

/* ---- modules ---- */

static int module_load(exl2__cuda_module **module, const void *image, unsigned count, int *options, void **values)
{
    char error[512] = "";
    const emu_gpu *g = emu_current();
    if (!g || g->lost) {
        return g ? g->lost : EMU_INVALID_CONTEXT;
    }
    if (memcmp(image, "\x7f" "ELF", 4) == 0) {
        return emu_misuse(EXL2__CUDA_NO_BINARY, "machine code in place of PTX");
    }
    ptx_module *m = ptx_load(image, error, sizeof error);
    for (unsigned i = 0; !m && i + 1 < count; i++) {
        if (options[i] == EXL2__CUDA_JIT_ERROR_LOG && options[i + 1] == EXL2__CUDA_JIT_ERROR_LOG_BYTES) {
            snprintf(values[i], (size_t)(uintptr_t)values[i + 1], "%s", error);
        }
    }
    if (!m) {
        return emu_misuse(EXL2__CUDA_INVALID_PTX, error);
    }
    emu_lock();
    object *o = emu_make(MODULE, emu_index(g));
    o->module = m;
    *module = (exl2__cuda_module *)(void *)o;
    return emu_unlock(0);
}

static int module_unload(exl2__cuda_module *module)
{
    if (!emu_good(module, MODULE)) {
        return EMU_INVALID_HANDLE;
    }
    emu_lock();
    emu_finish(NULL);
    for (object *o = objects; o; o = o->next) {
        if (o->kind == FUNCTION && o->owner == (object *)(void *)module) {
            emu_drop(o);
        }
    }
    emu_drop((object *)(void *)module);
    return emu_unlock(0);
}

static int module_function(exl2__cuda_function **function, exl2__cuda_module *module, const char *name)
{
    object *owner = (object *)(void *)module;
    const ptx_kernel *kernel = emu_good(module, MODULE) ? ptx_kernel_of(owner->module, name) : NULL;
    if (!kernel) {
        return EXL2__CUDA_NOT_FOUND;
    }
    emu_lock();
    object *o = emu_make(FUNCTION, owner->gpu);
    o->owner = owner;
    o->kernel = kernel;
    snprintf(o->name, sizeof o->name, "%s", name);
    o->dynamic_max = DYNAMIC_BYTES - (ptx_shared_bytes(kernel) < DYNAMIC_BYTES ? ptx_shared_bytes(kernel) : 0);
    *function = (exl2__cuda_function *)(void *)o;
    return emu_unlock(0);
}

static int function_attribute(int *value, int attribute, exl2__cuda_function *function)
{
    if (!emu_good(function, FUNCTION) || attribute != EXL2__CUDA_FUNCTION_SHARED_BYTES) {
        return EMU_INVALID_VALUE;
    }
    *value = (int)ptx_shared_bytes(((object *)(void *)function)->kernel);
    return 0;
}

static int function_set(exl2__cuda_function *function, int attribute, int value)
{
    object *f = (object *)(void *)function;
    if (!emu_good(function, FUNCTION) || attribute != EXL2__CUDA_FUNCTION_DYNAMIC_MAX || value < 0
        || value + (int)ptx_shared_bytes(f->kernel) > emu_machine.shared_optin) {
        return EMU_INVALID_VALUE;
    }
    f->dynamic_max = (uint32_t)value;
    return 0;
}

void ptx_driver_fill(const ptx_driver_machine *machine, exl2__cuda_driver *d)
{
    emu_machine = *machine;
    *d = (exl2__cuda_driver){
        .init = init, .driver_version = driver_version, .error_name = error_name, .error_string = error_name,
        .device_count = device_count, .device_get = device_get, .device_name = device_name,
        .device_uuid = device_uuid, .device_attribute = device_attribute, .device_bytes = device_bytes_total,
        .primary_retain = primary_retain, .primary_release = primary_release, .context_push = context_push,
        .context_pop = context_pop, .context_device = context_device, .device_can_peer = device_can_peer,
        .context_peer = context_peer, .priority_range = priority_range, .memory_info = memory_info,
        .module_load = module_load, .module_unload = module_unload, .module_function = module_function,
        .function_attribute = function_attribute, .function_set = function_set
    };
    emu_memory_fill_table(d);
    emu_work_fill_table(d);
}
