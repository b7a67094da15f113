/* fake_driver.c: the fake driver's record of objects and misuse, its devices and contexts.
   takes: `fake`.
   gives: fake_driver, fake_reset, fake_leaks, fake_memory; devices and contexts.
   owns:  objects in one list; they die by their destroy call or by fake_reset. */
#include "fake_objects.h"

fake_state fake;

static object *objects, *stack[64];
static uint64_t next_address;

#define FIRST_ADDRESS ((uint64_t)0x5EA1 << 32) /* two small 32-bit numbers together never look like such an address */

/* ---- objects and misuse ---- */

void fake_misuse(const char *what)
{
    if (!fake.misuse[0]) {
        snprintf(fake.misuse, sizeof fake.misuse, "%s", what);
    }
}

bool fake_is_lost(const object *context)
{
    return fake.lost && (!fake.lost_alone || (context && context->device == fake.lost_device));
}

void fake_lose(const object *context, int code)
{
    fake.lost = code;
    fake.lost_device = context ? context->device : -1;
}

int fake_call(const char *name, bool nvrtc)
{
    fake.calls++;
    bool quiet = strcmp(name, "cuCtxPushCurrent") == 0 || strcmp(name, "cuCtxPopCurrent") == 0;
    if (fake_is_lost(fake_current()) && !nvrtc && !quiet) { /* the context of a lost device can still be made current */
        return fake.lost;
    }
    bool counts = !fake.fail_name || strcmp(fake.fail_name, name) == 0;
    if (counts && fake.fail_at && --fake.fail_at == 0) {
        int code = nvrtc ? fake.fail_nvrtc : fake.fail_code;
        snprintf(fake.failed, sizeof fake.failed, "%s", name);
        if (!nvrtc && exl2__cuda_sticky(code)) {
            fake_lose(fake_current(), code);
        }
        return code;
    }
    return 0;
}

object *fake_current(void)
{
    return fake.context_depth ? stack[fake.context_depth - 1] : NULL;
}

object *fake_make(kind k)
{
    object *o = calloc(1, sizeof *o);
    *o = (object){ .kind = k, .next = objects, .context = fake_current() };
    objects = o;
    return o;
}

bool fake_good(const void *handle, kind k)
{
    for (object *o = objects; o; o = o->next) {
        if (o == handle) {
            bool ours = o->kind == k && (k == CONTEXT || o->context == fake_current() || fake.lost || fake.failed[0]);
            if (!ours) {
                fake_misuse("a handle of another kind or context");
            }
            return ours;
        }
    }
    fake_misuse("a handle that does not live");
    return false;
}

bool fake_lives(const void *handle, kind k)
{
    const object *o = objects;
    while (o && o != handle) {
        o = o->next;
    }
    if (!o || o->kind != k) {
        fake_misuse("a handle that does not live, or of another kind");
    }
    return o && o->kind == k;
}

object *fake_first(void)
{
    return objects;
}

void fake_finish(void)
{
    for (object *o = objects; o; o = o->next) {
        if (o->kind == STREAM) {
            fake_run_until(o, UINT64_MAX);
        }
    }
}

void fake_ops_free(op *first)
{
    while (first) {
        op *next = first->next;
        free(first->owned);
        free(first);
        first = next;
    }
}

/* Freed blocks, kept because fault sweeps allocate the same sizes again and again. Reuse cannot hide a stale access:
   kernels reach memory only by device addresses, which are never used twice. */
static struct {
    void *memory;
    uint64_t bytes;
} spare[16];

void *fake_block(uint64_t bytes)
{
    for (size_t i = 0; i < EXL2__COUNT(spare); i++) {
        if (spare[i].memory && spare[i].bytes == bytes) {
            void *memory = spare[i].memory;
            spare[i].memory = NULL;
            return memory;
        }
    }
    return malloc((size_t)bytes);
}

static void spare_block(void *memory, uint64_t bytes)
{
    static size_t turn;
    size_t at = turn++ % EXL2__COUNT(spare);
    free(spare[at].memory);
    spare[at].memory = memory;
    spare[at].bytes = bytes;
}

/* Blocks of device memory by address. A new block has the highest one, so it is the last. */
static object **blocks;
static size_t block_count, block_room;
static object *recent; /* the block that was found last */

/* The number of blocks that begin at `address` or below it. */
static size_t blocks_up_to(uint64_t address)
{
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (blocks[middle]->address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Addresses are never used twice, so that a stale one is detected. */
uint64_t fake_place(object *memory)
{
    if (block_count == block_room) {
        block_room = block_room ? 2 * block_room : 256;
        blocks = realloc(blocks, block_room * sizeof(object *));
    }
    blocks[block_count++] = memory;
    memory->address = next_address;
    next_address += (memory->bytes + 4095) / 4096 * 4096 + 4096;
    return memory->address;
}

void fake_drop(object *dead)
{
    object **at = &objects;
    while (*at != dead) {
        at = &(*at)->next;
    }
    *at = dead->next;
    recent = recent == dead ? NULL : recent;
    fake_ops_free(dead->first);
    fake_ops_free(dead->recorded);
    if (dead->kind == MEMORY) {
        size_t after = blocks_up_to(dead->address);
        memmove(blocks + after - 1, blocks + after, (block_count - after) * sizeof(object *));
        block_count--;
        spare_block(dead->memory, dead->bytes);
    } else {
        free(dead->memory);
    }
    free(dead);
}

static bool holds(const object *o, uint64_t address, uint64_t bytes)
{
    return o && address >= o->address && bytes <= o->bytes && address - o->address <= o->bytes - bytes;
}

/* The block of device memory that has these bytes, or NULL. */
static object *memory_of(uint64_t address, uint64_t bytes)
{
    object *o = recent;
    if (!holds(o, address, bytes)) {
        size_t count = blocks_up_to(address);
        o = count ? blocks[count - 1] : NULL;
        o = holds(o, address, bytes) ? o : NULL;
        recent = o;
    }
    return o;
}

void *fake_memory(uint64_t address, uint64_t bytes)
{
    object *o = memory_of(address, bytes);
    return o ? (uint8_t *)o->memory + (address - o->address) : NULL;
}

int fake_device_of(uint64_t address)
{
    const object *o = memory_of(address, 0);
    return o ? o->device : -1;
}

bool fake_stale(uint64_t number)
{
    return number >= FIRST_ADDRESS && number < next_address && !memory_of(number, 0);
}

bool fake_pinned(const void *memory, size_t bytes)
{
    for (object *o = objects; o; o = o->next) {
        const uint8_t *start = o->memory, *at = memory;
        if (o->kind == PINNED && at >= start && at + bytes <= start + o->bytes) {
            return true;
        }
    }
    return false;
}

int fake_leaks(void)
{
    static const char *const names[] = { "context", "stream", "event", "module", "function",
                                         "graph",   "graph exec", "device memory", "pinned memory" };
    int leaks = fake_nvrtc_leaks();
    for (object *o = objects; o; o = o->next) {
        bool counts = o->kind != FUNCTION && !(o->kind == CONTEXT && o->primary);
        leaks += counts;
        if (counts) {
            printf("fake: left over: %s, %llu bytes\n", names[o->kind], (unsigned long long)o->bytes);
        }
    }
    for (int i = 0; i < fake.device_count; i++) {
        leaks += fake.devices[i].retained != 0;
        if (fake.devices[i].retained) {
            printf("fake: primary context of device %d retained %d times\n", i, fake.devices[i].retained);
        }
    }
    if (fake.context_depth) {
        printf("fake: %d contexts pushed and not popped\n", fake.context_depth);
        leaks++;
    }
    if (fake.misuse[0]) {
        printf("fake: misuse: %s\n", fake.misuse);
        leaks++;
    }
    return leaks;
}

void fake_reset(void)
{
    fake.context_depth = 0;
    while (objects) {
        fake_drop(objects);
    }
    fake_nvrtc_reset();
    fake_device device = {
        .name = "FakeForce 4090", .uuid = { 1, 2, 3 }, .luid = { 4, 5 }, .arch_major = 8, .arch_minor = 9,
        .sm_count = 16, .memory_clock = 10000000, .memory_width = 384, .shared_optin = 101376,
        .bytes_total = (uint64_t)1 << 30
    };
    fake = (fake_state){ .fresh = 0xA5, .device_count = 1, .driver_version = 13000, .nvrtc_version = 13000,
                         .arch_count = 7, .archs = { 75, 80, 86, 89, 90, 100, 120 } };
    fake.devices[0] = device;
    next_address = FIRST_ADDRESS;
}

/* ---- the driver's functions ---- */

static int init(unsigned flags)
{
    CALL("cuInit");
    return flags ? INVALID_VALUE : 0;
}

static int driver_version(int *version)
{
    CALL("cuDriverGetVersion");
    *version = fake.driver_version;
    return 0;
}

static int error_name(int result, const char **name)
{
    static char text[32];
    snprintf(text, sizeof text, "CUDA_ERROR_%d", result);
    *name = text;
    return 0;
}

static int device_count(int *count)
{
    CALL("cuDeviceGetCount");
    *count = fake.device_count;
    return 0;
}

static int device_get(int *device, int index)
{
    CALL("cuDeviceGet");
    *device = index;
    return index >= 0 && index < fake.device_count ? 0 : INVALID_DEVICE;
}

static int device_name(char *name, int cap, int device)
{
    CALL("cuDeviceGetName");
    snprintf(name, (size_t)cap, "%s", fake.devices[device].name);
    return 0;
}

static int device_uuid(void *uuid, int device)
{
    CALL("cuDeviceGetUuid");
    memcpy(uuid, fake.devices[device].uuid, 16);
    return 0;
}

static int device_luid(char *luid, unsigned *node_mask, int device)
{
    CALL("cuDeviceGetLuid");
    memcpy(luid, fake.devices[device].luid, 8);
    *node_mask = 1;
    return 0;
}

static int device_attribute(int *value, int attribute, int device)
{
    const fake_device *d = &fake.devices[device];
    CALL("cuDeviceGetAttribute");
    switch (attribute) {
    case EXL2__CUDA_ARCH_MAJOR: *value = d->arch_major; break;
    case EXL2__CUDA_ARCH_MINOR: *value = d->arch_minor; break;
    case EXL2__CUDA_SM_COUNT: *value = d->sm_count; break;
    case EXL2__CUDA_MEMORY_CLOCK: *value = d->memory_clock; break;
    case EXL2__CUDA_MEMORY_WIDTH: *value = d->memory_width; break;
    case EXL2__CUDA_COMPUTE_MODE: *value = d->compute_mode; break;
    case EXL2__CUDA_SHARED_PER_BLOCK: *value = 49152; break;
    case EXL2__CUDA_SHARED_OPTIN: *value = d->shared_optin; break;
    case EXL2__CUDA_SHARED_PER_SM: *value = d->shared_optin + 1024; break;
    case EXL2__CUDA_L2_BYTES: *value = 1 << 22; break;
    default: *value = 0; break;
    }
    return 0;
}

static int device_bytes_total(size_t *bytes, int device)
{
    CALL("cuDeviceTotalMem");
    *bytes = (size_t)fake.devices[device].bytes_total;
    return 0;
}

static object *primary_of(int device)
{
    for (object *o = objects; o; o = o->next) {
        if (o->kind == CONTEXT && o->primary && o->device == device) {
            return o;
        }
    }
    object *o = fake_make(CONTEXT);
    o->primary = true;
    o->device = device;
    return o;
}

static int primary_retain(exl2__cuda_context **context, int device)
{
    CALL("cuDevicePrimaryCtxRetain");
    fake.devices[device].retained++;
    *context = (exl2__cuda_context *)(void *)primary_of(device);
    return 0;
}

/* Calls that release something do so even if they report a failure. */
static int primary_release(int device)
{
    int result = fake_call("cuDevicePrimaryCtxRelease", false);
    if (fake.devices[device].retained-- <= 0) {
        fake_misuse("a primary context released too often");
    }
    return result;
}

static int context_push(exl2__cuda_context *context)
{
    CALL("cuCtxPushCurrent");
    if (!fake_good(context, CONTEXT) || fake.context_depth == 64) {
        return INVALID_CONTEXT;
    }
    object *o = (object *)(void *)context;
    if (o->primary && fake.devices[o->device].retained == 0) {
        fake_misuse("a primary context used after its release");
    }
    stack[fake.context_depth++] = o;
    return 0;
}

static int context_pop(exl2__cuda_context **context)
{
    int result = fake_call("cuCtxPopCurrent", false);
    if (fake.context_depth == 0) {
        fake_misuse("more contexts popped than pushed");
        return INVALID_CONTEXT;
    }
    *context = (exl2__cuda_context *)(void *)stack[--fake.context_depth];
    return result;
}

static int device_can_peer(int *can, int device, int peer)
{
    CALL("cuDeviceCanAccessPeer");
    if (device < 0 || peer < 0 || device >= fake.device_count || peer >= fake.device_count) {
        return INVALID_DEVICE;
    }
    *can = fake.peer[device][peer] != FAKE_PEER_NONE;
    return 0;
}

static int context_peer(exl2__cuda_context *peer, unsigned flags)
{
    CALL("cuCtxEnablePeerAccess");
    object *own = fake_current(), *other = (object *)(void *)peer;
    if (!own || flags || !fake_lives(peer, CONTEXT) || fake.peer[own->device][other->device] == FAKE_PEER_NONE) {
        return INVALID_VALUE;
    }
    bool before = own->peers >> other->device & 1;
    own->peers |= 1u << other->device;
    return before ? EXL2__CUDA_PEER_ENABLED : 0;
}

static int context_device(int *device)
{
    CALL("cuCtxGetDevice");
    *device = fake_current() ? fake_current()->device : 0;
    return fake_current() ? 0 : INVALID_CONTEXT;
}

void *fake_host_context(int device)
{
    object *o = fake_make(CONTEXT);
    o->device = device;
    stack[fake.context_depth++] = o;
    return o;
}

void fake_host_context_end(void *context)
{
    if (fake.context_depth != 1 || fake_current() != context) {
        fake_misuse("the host's own context is not current any more");
    }
    fake.context_depth = 0;
    fake_drop(context);
}

static int priority_range(int *least, int *greatest)
{
    CALL("cuCtxGetStreamPriorityRange");
    *least = 0;
    *greatest = -5;
    return fake_current() ? 0 : INVALID_CONTEXT;
}

void fake_fill_devices(exl2__cuda_driver *d)
{
    d->init = init;
    d->driver_version = driver_version;
    d->error_name = error_name;
    d->error_string = error_name;
    d->device_count = device_count;
    d->device_get = device_get;
    d->device_name = device_name;
    d->device_uuid = device_uuid;
    d->device_luid = device_luid;
    d->device_attribute = device_attribute;
    d->device_bytes = device_bytes_total;
    d->primary_retain = primary_retain;
    d->primary_release = primary_release;
    d->context_push = context_push;
    d->context_pop = context_pop;
    d->device_can_peer = device_can_peer;
    d->context_peer = context_peer;
    d->context_device = context_device;
    d->priority_range = priority_range;
}

exl2__cuda_driver fake_driver(void)
{
    exl2__cuda_driver d = { 0 };
    fake_fill_devices(&d);
    fake_fill_memory(&d);
    fake_fill_work(&d);
    return d;
}
