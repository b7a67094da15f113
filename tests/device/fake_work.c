/* fake_work.c: modules, launches and graphs of the fake driver.
   takes: fake_objects.h; fake.kernels, the list that launches are checked against.
   gives: fake_fill_work.
   owns:  nothing of its own. */
#include "fake_objects.h"

/* ---- modules: an image is a line of text, "FAKE sm_89 13000 gemv1.cu" ---- */

/* The driver's result for an image of this target, by CUDA's rules. Machine code runs on the same major architecture
   with an equal or higher minor one; code of an "a" variant runs on exactly that architecture. PTX must not be newer
   than the driver. */
static int module_fits(const fake_device *d, const char *target, int built)
{
    int arch = d->arch_major * 10 + d->arch_minor;
    int wanted = (int)strtol(strchr(target, '_') + 1, NULL, 10);
    if (strncmp(target, "compute", 7) == 0) {
        return built > fake.driver_version ? EXL2__CUDA_UNSUPPORTED_PTX : wanted > arch ? EXL2__CUDA_NO_BINARY : 0;
    }
    if (built / 1000 > fake.driver_version / 1000) {
        return EXL2__CUDA_INVALID_IMAGE;
    }
    bool exact = target[strlen(target) - 1] == 'a';
    bool runs = exact ? wanted == arch : wanted / 10 == arch / 10 && wanted <= arch;
    return runs ? 0 : EXL2__CUDA_NO_BINARY;
}

static int module_load(exl2__cuda_module **module, const void *image, unsigned count, int *options, void **values)
{
    char target[32], name[64];
    int built = 0;
    CALL("cuModuleLoadDataEx");
    if (!fake_current()) {
        return INVALID_CONTEXT;
    }
    if (count != 2 || options[0] != EXL2__CUDA_JIT_ERROR_LOG || options[1] != EXL2__CUDA_JIT_ERROR_LOG_BYTES) {
        fake_misuse("a module loaded without a buffer for errors");
    }
    if (sscanf(image, "FAKE %31s %d %63s", target, &built, name) != 3 || !strchr(target, '_')) {
        snprintf(values[0], (size_t)(uintptr_t)values[1], "not an image\nsecond line");
        return EXL2__CUDA_INVALID_IMAGE;
    }
    int result = module_fits(&fake.devices[fake_current()->device], target, built);
    if (result != 0) {
        return result;
    }
    object *o = fake_make(MODULE);
    snprintf(o->name, sizeof o->name, "%s", name);
    *module = (exl2__cuda_module *)(void *)o;
    fake.module_loads++;
    return 0;
}

static int module_unload(exl2__cuda_module *module)
{
    int result = fake_call("cuModuleUnload", false);
    object *dead = (object *)(void *)module;
    if (!fake_good(module, MODULE)) {
        return INVALID_HANDLE;
    }
    fake_finish();
    for (object *o = fake_first(); o;) {
        object *next = o->next;
        if (o->kind == FUNCTION && o->stream == dead) {
            fake_drop(o);
        }
        o = next;
    }
    fake_drop(dead);
    return result;
}

static int module_function(exl2__cuda_function **function, exl2__cuda_module *module, const char *name)
{
    CALL("cuModuleGetFunction");
    if (!fake_good(module, MODULE)) {
        return INVALID_HANDLE;
    }
    object *owner = (object *)(void *)module;
    for (size_t i = 0; i < fake.kernel_count; i++) {
        const fake_kernel *k = &fake.kernels[i];
        if (strcmp(k->function, name) == 0 && strcmp(k->module, owner->name) == 0) {
            object *o = fake_make(FUNCTION);
            snprintf(o->name, sizeof o->name, "%s", name);
            o->stream = owner;
            o->argument_bytes = k->argument_bytes;
            o->bytes = strcmp(k->dynamic, "NONE") != 0;
            o->dynamic_max = 49152;
            *function = (exl2__cuda_function *)(void *)o;
            return 0;
        }
    }
    return EXL2__CUDA_NOT_FOUND;
}

/* Bytes of static shared memory. Products have none, because they use all shared memory as dynamic memory. Kernels of
   decode attention and of experts have as much as the backend reserves for them. */
static int static_bytes(const object *function)
{
    bool product = strncmp(function->name, "exl2k_gemv", 10) == 0 || strncmp(function->name, "exl2k_gemm", 10) == 0;
    bool decode = strncmp(function->name, "exl2k_attend_decode", 19) == 0
               || strncmp(function->name, "exl2k_attend_codes", 18) == 0;
    bool expert = strncmp(function->name, "exl2k_expert1", 13) == 0
               || strncmp(function->name, "exl2k_expert8", 13) == 0;
    return product ? 0 : decode ? 8192 : expert ? 256 : 1024;
}

static int function_attribute(int *value, int attribute, exl2__cuda_function *function)
{
    CALL("cuFuncGetAttribute");
    if (!fake_good(function, FUNCTION)) {
        return INVALID_HANDLE;
    }
    *value = attribute == EXL2__CUDA_FUNCTION_SHARED_BYTES ? static_bytes((object *)(void *)function) : 0;
    return 0;
}

static int function_set(exl2__cuda_function *function, int attribute, int value)
{
    CALL("cuFuncSetAttribute");
    if (!fake_good(function, FUNCTION)) {
        return INVALID_HANDLE;
    }
    if (attribute == EXL2__CUDA_FUNCTION_DYNAMIC_MAX) {
        int fixed = static_bytes((object *)(void *)function);
        if (value < 0 || value + fixed > fake.devices[fake_current()->device].shared_optin) {
            return INVALID_VALUE;
        }
        ((object *)(void *)function)->dynamic_max = value;
    }
    return 0;
}

/* ---- launches: the argument struct is copied at once; the list of kernels has its size ---- */

static int queue_launch(exl2__cuda_function *function, const unsigned *grid, const unsigned *block, unsigned cluster,
                        unsigned shared_bytes, exl2__cuda_stream *stream, void **arguments)
{
    object *f = (object *)(void *)function;
    if (!fake_good(function, FUNCTION)) {
        return INVALID_HANDLE;
    }
    unsigned threads = block[0] * block[1] * block[2];
    bool fits = grid[0] && grid[1] && grid[2] && grid[0] <= INT32_MAX && grid[1] <= 65535 && grid[2] <= 65535;
    fits = fits && threads && threads <= 1024 && block[2] <= 64 && (int)shared_bytes <= f->dynamic_max;
    if (!fits || !arguments || !arguments[0]) {
        fake_misuse("a launch of no or too many threads, too much shared memory, or without arguments");
        return INVALID_VALUE;
    }
    if (f->bytes == 0 && shared_bytes) {
        fake_misuse("dynamic shared memory for a kernel that has none");
        return INVALID_VALUE;
    }
    fake.launches++;
    op o = { .kind = OP_LAUNCH, .object = f, .grid = { grid[0], grid[1], grid[2] },
             .cluster = cluster, .bytes = f->argument_bytes };
    o.owned = memcpy(malloc(f->argument_bytes), arguments[0], f->argument_bytes);
    return fake_queue(stream, o);
}

static int launch(exl2__cuda_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_bytes, exl2__cuda_stream *stream,
                  void **arguments, void **extra)
{
    unsigned grid[3] = { grid_x, grid_y, grid_z }, block[3] = { block_x, block_y, block_z };
    CALL("cuLaunchKernel");
    return extra ? INVALID_VALUE : queue_launch(function, grid, block, 1, shared_bytes, stream, arguments);
}

static int launch_with(const exl2__cuda_launch *l, exl2__cuda_function *function, void **arguments, void **extra)
{
    CALL("cuLaunchKernelEx");
    unsigned size = 1;
    for (unsigned i = 0; i < l->attribute_count; i++) {
        const exl2__cuda_launch_attribute *attribute = &l->attributes[i];
        const unsigned *cluster = attribute->value.xyz;
        bool knows = attribute->id == EXL2__CUDA_LAUNCH_PROGRAMMATIC
            || (attribute->id == EXL2__CUDA_LAUNCH_CLUSTER && cluster[0] > 0 && cluster[0] <= 8
                && l->grid[0] % cluster[0] == 0 && cluster[1] == 1 && cluster[2] == 1);
        if (!knows || fake.devices[fake_current()->device].arch_major < 9) {
            fake_misuse("an attribute of a launch that the device does not have");
            return INVALID_VALUE;
        }
        fake.clusters += attribute->id == EXL2__CUDA_LAUNCH_CLUSTER;
        size = attribute->id == EXL2__CUDA_LAUNCH_CLUSTER ? cluster[0] : size;
    }
    return extra ? INVALID_VALUE
                 : queue_launch(function, l->grid, l->block, size, l->shared_bytes, l->stream, arguments);
}

/* ---- graphs: a recorded list, replayed ---- */

static op *ops_copy(const op *first)
{
    op *copy = NULL, **end = &copy;
    for (; first; first = first->next) {
        *end = malloc(sizeof **end);
        **end = *first;
        (*end)->next = NULL;
        if (first->owned) {
            bool source = first->source == first->owned;
            (*end)->owned = memcpy(malloc((size_t)first->bytes), first->owned, (size_t)first->bytes);
            (*end)->source = source ? (*end)->owned : first->source;
        }
        end = &(*end)->next;
    }
    return copy;
}

static int capture_begin(exl2__cuda_stream *stream, int mode)
{
    CALL("cuStreamBeginCapture");
    object *o = (object *)(void *)stream;
    if (!fake_good(stream, STREAM) || o->capturing || mode < 0 || mode > 2) {
        return INVALID_VALUE;
    }
    o->capturing = true;
    return 0;
}

/* Ends the capture even if the call reports a failure. */
static int capture_end(exl2__cuda_stream *stream, exl2__cuda_graph **graph)
{
    int result = fake_call("cuStreamEndCapture", false);
    object *o = (object *)(void *)stream;
    *graph = NULL;
    if (!fake_good(stream, STREAM) || !o->capturing) {
        return INVALID_VALUE;
    }
    op *recorded = o->recorded;
    o->recorded = o->recorded_last = NULL;
    o->capturing = false;
    if (result != 0) {
        fake_ops_free(recorded);
        return result;
    }
    object *g = fake_make(GRAPH);
    g->recorded = recorded;
    *graph = (exl2__cuda_graph *)(void *)g;
    return 0;
}

static int graph_make(exl2__cuda_graph_exec **exec, exl2__cuda_graph *graph, unsigned long long flags)
{
    CALL("cuGraphInstantiateWithFlags");
    if (!fake_good(graph, GRAPH) || flags) {
        return INVALID_VALUE;
    }
    object *o = fake_make(EXEC);
    o->recorded = ops_copy(((object *)(void *)graph)->recorded);
    *exec = (exl2__cuda_graph_exec *)(void *)o;
    return 0;
}

static int graph_free(exl2__cuda_graph *graph)
{
    int result = fake_call("cuGraphDestroy", false);
    if (!fake_good(graph, GRAPH)) {
        return INVALID_HANDLE;
    }
    fake_drop((object *)(void *)graph);
    return result;
}

static int graph_exec_free(exl2__cuda_graph_exec *exec)
{
    int result = fake_call("cuGraphExecDestroy", false);
    if (!fake_good(exec, EXEC)) {
        return INVALID_HANDLE;
    }
    fake_drop((object *)(void *)exec);
    return result;
}

static int graph_launch(exl2__cuda_graph_exec *exec, exl2__cuda_stream *stream)
{
    CALL("cuGraphLaunch");
    if (!fake_good(exec, EXEC)) {
        return INVALID_HANDLE;
    }
    int result = 0;
    for (op *o = ops_copy(((object *)(void *)exec)->recorded), *next; o; o = next) {
        next = o->next;
        result = fake_queue(stream, *o); /* now owns o->owned */
        free(o);
    }
    return result;
}

void fake_fill_work(exl2__cuda_driver *d)
{
    d->module_load = module_load;
    d->module_unload = module_unload;
    d->module_function = module_function;
    d->function_attribute = function_attribute;
    d->function_set = function_set;
    d->launch = launch;
    d->launch_with = launch_with;
    d->capture_begin = capture_begin;
    d->capture_end = capture_end;
    d->graph_make = graph_make;
    d->graph_free = graph_free;
    d->graph_launch = graph_launch;
    d->graph_exec_free = graph_exec_free;
}
