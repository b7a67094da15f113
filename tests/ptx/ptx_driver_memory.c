/* ptx_driver_memory.c: memory of the driver over PTX. Each block has an address of its own for ever, with room on both
   sides that belongs to no block, so that an access past its end, or after it was freed, is noticed.
   takes: ptx_driver_objects.h.
   gives: emu_block_of, emu_reaches, emu_view_allows, emu_pinned, emu_memory_drop, emu_memory_fill_table.
   owns:  a range of addresses for each GPU; the memory of blocks, until they are freed. */
#define _DEFAULT_SOURCE
#include "ptx_driver_objects.h"

#include <sys/mman.h>

#define SPACE_BYTES ((uint64_t)1 << 40) /* of addresses, for each GPU and for pinned memory */
#define PAGE 4096u
#define ALIGN 256u    /* all that the driver promises: blocks are aligned no better */
#define FRESH 0xFF    /* each byte of a new block: NaN as fp16 and as float */
#define PINNED (-1)

static struct {
    uint8_t *base;
    uint64_t used;
} spaces[PTX_DRIVER_GPUS_MAX + 1]; /* of GPU i at i + 1 */

static block *blocks; /* by address */
static size_t block_count, block_room;

/* The number of blocks that begin at `address` or below it. */
static size_t blocks_up_to(uint64_t address)
{
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (blocks[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool holds(const block *b, uint64_t address, uint64_t bytes)
{
    return address >= b->address && bytes <= b->bytes && address - b->address <= b->bytes - bytes;
}

const block *emu_block_of(uint64_t address, uint64_t bytes)
{
    size_t count = blocks_up_to(address);
    const block *b = count ? &blocks[count - 1] : NULL;
    return b && holds(b, address, bytes) ? b : NULL;
}

static bool block_reached(const block *b, int gpu)
{
    return b->gpu == PINNED || b->gpu == gpu || (emu_gpus[gpu].peers >> b->gpu & 1);
}

bool emu_reaches(int gpu, uint64_t address, uint64_t bytes)
{
    const block *b = emu_block_of(address, bytes);
    return b && block_reached(b, gpu);
}

bool emu_pinned(const void *memory, size_t bytes)
{
    const block *b = emu_block_of((uint64_t)(uintptr_t)memory, bytes);
    return b && b->gpu == PINNED;
}

/* A block is not freed before all kernels have ended, so what a view remembers stays true. */
bool emu_view_allows(void *user, uint64_t address, size_t bytes, bool write)
{
    view *v = user;
    (void)write;
    for (size_t i = 0; i < EXL2__COUNT(v->recent); i++) {
        if (address >= v->recent[i].address && address + bytes <= v->recent[i].end && address + bytes > address) {
            return true;
        }
    }
    const block *b = emu_block_of(address, bytes);
    if (!b || !block_reached(b, v->gpu)) {
        return false;
    }
    size_t at = v->age++ % EXL2__COUNT(v->recent);
    v->recent[at].address = b->address;
    v->recent[at].end = b->address + b->bytes;
    return true;
}

static void block_add(block b)
{
    if (block_count == block_room) {
        block_room = block_room ? 2 * block_room : 256;
        blocks = realloc(blocks, block_room * sizeof *blocks);
        if (!blocks) {
            abort();
        }
    }
    size_t at = blocks_up_to(b.address);
    memmove(blocks + at + 1, blocks + at, (block_count - at) * sizeof *blocks);
    blocks[at] = b;
    block_count++;
}

static void block_remove(const block *b)
{
    size_t at = (size_t)(b - blocks);
    memmove(blocks + at, blocks + at + 1, (block_count - at - 1) * sizeof *blocks);
    block_count--;
}

/* Gives a block memory at addresses that were never used. 0: there is none. */
static uint64_t block_make(int gpu, uint64_t bytes)
{
    uint8_t **base = &spaces[gpu + 1].base;
    uint64_t *used = &spaces[gpu + 1].used, shift = gpu == PINNED ? 0 : ALIGN;
    if (!*base) {
        void *space = mmap(NULL, SPACE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        *base = space == MAP_FAILED ? NULL : space;
    }
    uint64_t room = (shift + bytes + PAGE - 1) / PAGE * PAGE;
    if (!*base || room + PAGE > SPACE_BYTES - *used || mprotect(*base + *used, room, PROT_READ | PROT_WRITE) != 0) {
        return 0;
    }
    uint64_t address = (uint64_t)(uintptr_t)(*base + *used) + shift;
    *used += room + PAGE;
    memset((void *)(uintptr_t)address, FRESH, bytes);
    block_add((block){ address, bytes, gpu });
    return address;
}

static void block_free(const block *b)
{
    uint64_t shift = b->gpu == PINNED ? 0 : ALIGN, room = (shift + b->bytes + PAGE - 1) / PAGE * PAGE;
    void *at = (void *)(uintptr_t)(b->address - shift);
    if (b->gpu != PINNED) {
        emu_gpus[b->gpu].used -= b->bytes;
    }
    block_remove(b);
    madvise(at, room, MADV_DONTNEED);
    mprotect(at, room, PROT_NONE);
}

void emu_memory_drop(int gpu)
{
    for (size_t i = block_count; i-- > 0;) {
        if (blocks[i].gpu == gpu) {
            block_free(&blocks[i]);
        }
    }
}

/* ---- the driver's functions ---- */

static int memory_alloc(uint64_t *address, size_t bytes)
{
    emu_gpu *g = emu_current();
    if (!g || g->lost || bytes == 0) {
        return !g ? EMU_INVALID_CONTEXT : g->lost ? g->lost : EMU_INVALID_VALUE;
    }
    emu_lock();
    *address = bytes <= EMU_TOTAL_BYTES - g->used ? block_make(emu_index(g), bytes) : 0;
    g->used += *address ? bytes : 0;
    return emu_unlock(*address ? 0 : EXL2__CUDA_OUT_OF_MEMORY);
}

static int memory_free(uint64_t address)
{
    emu_lock();
    emu_finish(NULL); /* the real call waits, too */
    const block *b = emu_block_of(address, 0);
    if (!b || b->address != address || b->gpu == PINNED) {
        return emu_unlock(emu_misuse(EMU_INVALID_VALUE, "device memory is freed that is not allocated"));
    }
    block_free(b);
    return emu_unlock(0);
}

static int host_alloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    if (!emu_current()) {
        return EMU_INVALID_CONTEXT;
    }
    emu_lock();
    *memory = (void *)(uintptr_t)block_make(PINNED, bytes);
    return emu_unlock(*memory ? 0 : EXL2__CUDA_OUT_OF_MEMORY);
}

/* Of memory that is no longer pinned: the real calls wait for all work, too. */
static const block *host_block(void *memory)
{
    emu_finish(NULL);
    const block *b = emu_block_of((uint64_t)(uintptr_t)memory, 0);
    return b && b->gpu == PINNED && b->address == (uint64_t)(uintptr_t)memory ? b : NULL;
}

static int host_free(void *memory)
{
    emu_lock();
    const block *b = host_block(memory);
    if (!b) {
        return emu_unlock(emu_misuse(EMU_INVALID_VALUE, "pinned memory is freed that is not allocated"));
    }
    block_free(b);
    return emu_unlock(0);
}

/* Pins memory of the application. */
static int host_register(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    if (!emu_current()) {
        return EMU_INVALID_CONTEXT;
    }
    emu_lock();
    block_add((block){ (uint64_t)(uintptr_t)memory, bytes, PINNED });
    return emu_unlock(0);
}

static int host_unregister(void *memory)
{
    emu_lock();
    const block *b = host_block(memory);
    if (!b) {
        return emu_unlock(emu_misuse(EMU_INVALID_VALUE, "memory is no longer pinned that was not"));
    }
    block_remove(b);
    return emu_unlock(0);
}

void emu_memory_fill_table(exl2__cuda_driver *d)
{
    d->memory_alloc = memory_alloc;
    d->memory_free = memory_free;
    d->host_alloc = host_alloc;
    d->host_free = host_free;
    d->host_register = host_register;
    d->host_unregister = host_unregister;
}
