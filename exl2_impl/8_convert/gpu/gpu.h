/* gpu.h: the GPU of a conversion: memory, copies through pinned slots, launches of the converter's kernels.
   takes: the settings of an engine.
   gives: exl2__gpu, exl2__gpu_open, exl2__gpu_close; exl2__gpu_buffer, exl2__gpu_alloc, exl2__gpu_need, exl2__gpu_free,
          exl2__gpu_drop, exl2__gpu_forget, exl2__gpu_room, exl2__gpu_make_room; exl2__gpu_fill, exl2__gpu_up,
          exl2__gpu_down, exl2__gpu_copy; exl2__gpu_launch, exl2__gpu_float_product.
   owns:  the device, until exl2__gpu_close.

   Each stage that has kernels is a function of a file of this room, with the arguments of the CPU's stage, which stays
   the reference. All that it launches runs in order on one stream, and sums have a fixed order, so that results are the
   same from run to run on one kind of GPU. The context must be current where it is not said otherwise. */
#ifndef EXL2__GPU_H
#define EXL2__GPU_H

#include "../../3_backend/hardware.h"
#include "../tasks.h"

#define EXL2__GPU_INPUTS 4u /* inputs of a layer whose moments are summed on the GPU */

typedef struct exl2__gpu_buffer {
    uint64_t address, bytes;
} exl2__gpu_buffer;

typedef struct exl2__gpu_weights { /* a matrix of the model, as halves */
    const void *part;    /* the part that has these weights */
    const uint8_t *data; /* where the part had them when they were copied: elsewhere, they are copied again */
    exl2__gpu_buffer memory;
    exl2__gpu_buffer kept; /* the part's own weights, while others are in their place */
} exl2__gpu_weights;

#ifdef EXL2_NO_CUDA
typedef struct exl2__gpu {
    exl2__hardware hardware; /* the CPU */
} exl2__gpu;

static inline bool exl2__gpu_is_open(const exl2__gpu *g)
{
    (void)g;
    return false;
}

EXL2__PRIVATE exl2_result exl2__gpu_open(exl2__ctx *c, const exl2_engine_desc *desc, exl2__gpu *g)
{
    return exl2__hardware_open(c, desc, &g->hardware);
}

EXL2__PRIVATE void exl2__gpu_close(exl2__ctx *c, exl2__gpu *g)
{
    exl2__hardware_close(c, &g->hardware);
}

#else

#include "../../../kernels_src/convert/convert_args.h"
#include "../../3_backend/cuda/cuda_ring.h"

#define EXL2__GPU_SLOTS 4u
#define EXL2__GPU_SLOT_BYTES ((uint64_t)8 << 20)
#define EXL2__GPU_PIECE_BYTES ((uint64_t)1 << 20) /* bytes that a task copies */
#define EXL2__GPU_SPARE_BYTES ((uint64_t)256 << 20) /* memory that weights are never kept in */

/* Buffers that grow to what is asked of them. Up to WORK their contents are needed for one pass only, and they are
   freed to make room for a matrix; the others stay. */
typedef enum exl2__gpu_scratch {
    EXL2__GPU_X,          /* [rows, in] f32 an input that is not kept elsewhere */
    EXL2__GPU_HALVES, EXL2__GPU_SCALES, /* the input as halves, rows padded; a power of two for each row */
    EXL2__GPU_COLUMNS, EXL2__GPU_COLUMN_SCALES, /* its columns */
    EXL2__GPU_RAW,        /* weights as the model has them */
    EXL2__GPU_Y, EXL2__GPU_UP, /* a product, and another one */
    EXL2__GPU_VECTORS,    /* norms and biases; as many as EXL2__GPU_VECTOR_COUNT */
    EXL2__GPU_HEADS_Q = EXL2__GPU_VECTORS + 3, EXL2__GPU_HEADS_K, EXL2__GPU_HEADS_V, /* [rows, heads, dim] f16 */
    EXL2__GPU_ATTENDED,   /* [rows, heads, dim] f32 */
    EXL2__GPU_ACTIVE,     /* [rows, inter] f32 the input of an MLP's last product */
    EXL2__GPU_BRANCH,     /* [rows, hidden] f32 the result of a block, before its norm */
    EXL2__GPU_ROUTE,      /* exl2__gpu_route: what the rows of a pass have chosen */
    EXL2__GPU_EXPERT_ACTIVE, /* [rows * active, inter] f32 the input of the experts' last products */
    EXL2__GPU_EXPERT_BIAS, /* [experts, hidden] */
    EXL2__GPU_EXPERT_SUMS, /* [experts, in, in] f32 moments of a layer's experts */
    EXL2__GPU_SUMS,       /* [in, in] f32 moments of a layer's inputs */
    EXL2__GPU_WORK = EXL2__GPU_SUMS + EXL2__GPU_INPUTS,
    EXL2__GPU_STATES = EXL2__GPU_WORK, EXL2__GPU_STATES_TOO, /* [tokens, hidden] f32 of the calibration rows */
    EXL2__GPU_BEFORE, EXL2__GPU_COPIES, /* the same of the probes */
    EXL2__GPU_LOGITS,     /* [probes' tokens, vocab] f32 of the original model */
    EXL2__GPU_OTHER,      /* [rows, in] f32 the input that the original model has */
    EXL2__GPU_OTHER_COLUMNS, EXL2__GPU_OTHER_SCALES, /* columns of the difference of the two models' inputs */
    EXL2__GPU_CROSS, EXL2__GPU_TURNED, EXL2__GPU_LOWER, /* [in, in] as exl2k_correct_args says */
    EXL2__GPU_ANGLES,     /* [2 runners] of RoPE */
    EXL2__GPU_RESIDUAL = EXL2__GPU_ANGLES + 2, /* [2 runners] [rows, hidden] f32 */
    EXL2__GPU_SCRATCH_COUNT = EXL2__GPU_RESIDUAL + 2
} exl2__gpu_scratch;

typedef struct exl2__gpu_sums { /* moments that are in host memory, too */
    const float *strips;     /* there; NULL: none */
    float factor;            /* what they are of the sums in the buffer SUMS */
} exl2__gpu_sums;

typedef struct exl2__gpu {
    exl2__hardware hardware;
    exl2__cuda_device *d;    /* NULL: not open */
    exl2__cuda_ring ring;    /* for both directions */
    exl2__gpu_weights *weights; /* [weight_room]; the first weight_count are used */
    uint32_t weight_count, weight_room, weight_found; /* weight_found: the one that was found last */
    uint32_t rows, in;       /* of the input, [rows, in] f32 at */
    uint64_t input;
    exl2__gpu_sums sums[EXL2__GPU_INPUTS];
    exl2__gpu_buffer scratch[EXL2__GPU_SCRATCH_COUNT];
    /* Of a conversion, whose needs are known before (quantizer/device_plan.h); else zeros: */
    uint64_t planned[EXL2__GPU_SCRATCH_COUNT]; /* what each buffer gets at once */
    uint64_t weight_bytes, weight_max; /* of the weights that are kept; weight_max 0: as many as memory has room for */
    bool tight;              /* what passes use is freed for each matrix */
} exl2__gpu;

static inline bool exl2__gpu_is_open(const exl2__gpu *g) { return g->d != NULL; }

/* ---- memory ---- */

/* For freeing: makes the context current, if that is possible; memory of a lost device is freed without it. */
static inline bool exl2__gpu_enter(exl2__gpu *g) { return g->d->driver.context_push(g->d->context) == 0; }

static inline void exl2__gpu_leave(exl2__gpu *g, bool entered)
{
    if (entered) {
        exl2__cuda_device_leave(g->d);
    }
}

static inline void exl2__gpu_free(exl2__gpu *g, exl2__gpu_buffer *b)
{
    exl2__cuda_device_free(g->d, b->address, b->bytes, EXL2_MEM_SCRATCH);
    *b = (exl2__gpu_buffer){ 0, 0 };
}

/* Frees weights; the others stay in the order in which they were read. */
EXL2__PRIVATE void exl2__gpu_drop(exl2__gpu *g, uint32_t index)
{
    exl2__gpu_weights *w = &g->weights[index];
    g->weight_bytes -= w->memory.bytes;
    exl2__gpu_free(g, &w->memory);
    exl2__gpu_free(g, &w->kept);
    g->weight_count--;
    memmove(w, w + 1, (g->weight_count - index) * sizeof *w);
}

/* Frees the weights of a part; NULL: of all but those that have others in their place. */
EXL2__PRIVATE void exl2__gpu_forget(exl2__gpu *g, const void *part)
{
    for (uint32_t i = g->weight_count; i-- > 0;) {
        if (part ? g->weights[i].part == part : !g->weights[i].kept.address) {
            exl2__gpu_drop(g, i);
        }
    }
}

/* Bytes that can be allocated now. */
EXL2__PRIVATE uint64_t exl2__gpu_room(exl2__gpu *g)
{
    size_t bytes_free = 0, bytes_total = 0;
    g->d->driver.memory_info(&bytes_free, &bytes_total);
    return exl2__min64(exl2__cuda_device_room(g->d), bytes_free);
}

/* Weights of the model are dropped if there is too little memory: they are read again when they are needed. */
EXL2__PRIVATE exl2_result exl2__gpu_alloc(exl2__gpu *g, uint64_t bytes, exl2__gpu_buffer *b)
{
    if (g->weight_count && bytes + EXL2__GPU_SPARE_BYTES > exl2__gpu_room(g)) {
        exl2__gpu_forget(g, NULL);
    }
    *b = (exl2__gpu_buffer){ 0, 0 };
    EXL2__TRY(exl2__cuda_device_alloc(g->d, bytes, EXL2_MEM_SCRATCH, &b->address));
    b->bytes = bytes;
    return EXL2_OK;
}

/* *address: the scratch buffer, grown to at least `bytes` bytes. Its contents are lost when it grows. */
EXL2__PRIVATE exl2_result exl2__gpu_need(exl2__gpu *g, uint64_t bytes, uint32_t index, exl2k_u64 *address)
{
    exl2__gpu_buffer *b = &g->scratch[index];
    if (b->bytes < bytes) {
        exl2__gpu_free(g, b);
        EXL2__TRY(exl2__gpu_alloc(g, exl2__max64(bytes, g->planned[index]), b));
    }
    *address = b->address;
    return EXL2_OK;
}

/* Between passes: frees what they use, if that is planned, or if there is less memory than a stage will allocate. */
EXL2__PRIVATE void exl2__gpu_make_room(exl2__gpu *g, uint64_t bytes)
{
    if (bytes + EXL2__GPU_SPARE_BYTES > exl2__gpu_room(g)) {
        exl2__gpu_forget(g, NULL);
    }
    for (uint32_t i = 0; i < EXL2__GPU_WORK; i++) {
        if (!g->tight && bytes + EXL2__GPU_SPARE_BYTES <= exl2__gpu_room(g)) {
            continue;
        }
        exl2__gpu_free(g, &g->scratch[i]);
        if (i >= EXL2__GPU_SUMS) {
            g->sums[i - EXL2__GPU_SUMS].strips = NULL;
        }
    }
    g->rows = g->in = 0;
}

/* ---- copies ---- */

typedef struct exl2__gpu_pieces {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
} exl2__gpu_pieces;

/* Task: one piece. */
EXL2__PRIVATE void exl2__gpu_copy_piece(void *arg, uint32_t index)
{
    const exl2__gpu_pieces *copy = (const exl2__gpu_pieces *)arg;
    uint64_t at = index * EXL2__GPU_PIECE_BYTES;
    memcpy(copy->to + at, copy->from + at, (size_t)exl2__min64(copy->bytes - at, EXL2__GPU_PIECE_BYTES));
}

EXL2__PRIVATE void exl2__gpu_copy_host(const exl2__gpu *g, void *to, const void *from, uint64_t bytes)
{
    exl2__gpu_pieces copy = { (uint8_t *)to, (const uint8_t *)from, bytes };
    exl2__tasks_run(g->d->c, (uint32_t)exl2__div_up(bytes, EXL2__GPU_PIECE_BYTES), exl2__gpu_copy_piece, &copy);
}

static inline exl2_result exl2__gpu_fill(exl2__gpu *g, uint64_t to, uint64_t bytes) /* with zeros */
{
    return exl2__cuda_device_check(g->d, g->d->driver.fill8(to, 0, (size_t)bytes, g->d->stream),
                                   "filling device memory");
}

/* Within device memory. */
static inline exl2_result exl2__gpu_copy(exl2__gpu *g, uint64_t to, uint64_t from, uint64_t bytes)
{
    return exl2__cuda_device_check(g->d, g->d->driver.copy(to, from, (size_t)bytes, g->d->stream),
                                   "copying device memory");
}

/* Host memory to device memory; `from` may change when this returns. */
EXL2__PRIVATE exl2_result exl2__gpu_up(exl2__gpu *g, uint64_t to, const void *from, uint64_t bytes)
{
    for (uint64_t at = 0, some; at < bytes; at += some) {
        void *slot;
        some = exl2__min64(bytes - at, EXL2__GPU_SLOT_BYTES);
        EXL2__TRY(exl2__cuda_ring_take(g->d, &g->ring, some, true, &slot));
        exl2__gpu_copy_host(g, slot, (const uint8_t *)from + at, some);
        EXL2__TRY(exl2__cuda_ring_copy(g->d, &g->ring, to + at, 0, some));
        EXL2__TRY(exl2__cuda_ring_next(g->d, &g->ring)); /* a slot for each copy: exl2__gpu_down uses them, too */
    }
    return EXL2_OK;
}

/* Device memory to host memory, after all that has been launched; waits. A slot is emptied while the next ones fill. */
EXL2__PRIVATE exl2_result exl2__gpu_down(exl2__gpu *g, void *to, uint64_t from, uint64_t bytes)
{
    exl2__cuda_device *d = g->d;
    exl2__cuda_ring *r = &g->ring;
    uint64_t count = exl2__div_up(bytes, EXL2__GPU_SLOT_BYTES);
    for (uint64_t i = 0; i < count + EXL2__GPU_SLOTS - 1; i++) {
        if (i < count) {
            uint64_t at = i * EXL2__GPU_SLOT_BYTES;
            size_t some = (size_t)exl2__min64(bytes - at, EXL2__GPU_SLOT_BYTES);
            uint8_t *slot = r->memory + i % EXL2__GPU_SLOTS * r->slot_bytes;
            int result = d->driver.copy_down(slot, from + at, some, d->stream);
            result = result == 0 ? d->driver.event_record(r->done[i % EXL2__GPU_SLOTS], d->stream) : result;
            EXL2__TRY(exl2__cuda_device_check(d, result, "copying from device memory"));
            r->busy[i % EXL2__GPU_SLOTS] = true;
        }
        if (i >= EXL2__GPU_SLOTS - 1) {
            uint64_t index = i - (EXL2__GPU_SLOTS - 1), at = index * EXL2__GPU_SLOT_BYTES;
            uint32_t slot = (uint32_t)(index % EXL2__GPU_SLOTS);
            EXL2__TRY(exl2__cuda_device_check(d, d->driver.event_wait(r->done[slot]), "copying from device memory"));
            r->busy[slot] = false;
            exl2__gpu_copy_host(g, (uint8_t *)to + at, r->memory + slot * r->slot_bytes,
                                exl2__min64(bytes - at, EXL2__GPU_SLOT_BYTES));
        }
    }
    return EXL2_OK;
}

/* ---- launches ---- */

static inline exl2_result exl2__gpu_launch(exl2__gpu *g, exl2__cuda_kernel kernel, uint32_t x, uint32_t y,
                                           uint32_t threads, uint32_t shared_bytes, const void *arguments)
{
    exl2__cuda_grid grid = { .x = x, .y = y, .threads = threads, .shared_bytes = shared_bytes };
    return exl2__cuda_device_launch(g->d, kernel, grid, arguments);
}

/* As exl2k_float_product_args says, in `slices` slices of k. */
EXL2__PRIVATE exl2_result exl2__gpu_float_product(exl2__gpu *g, exl2k_float_product_args *a, uint32_t slices)
{
    uint32_t steps = (uint32_t)exl2__div_up(a->k, slices * EXL2K_FLOAT_DEPTH);
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(a->n, EXL2K_FLOAT_COLUMNS),
                             .y = (uint32_t)exl2__div_up(a->m, EXL2K_FLOAT_ROWS), .threads = EXL2K_FLOAT_THREADS,
                             .z = slices };
    a->k_slice = steps * EXL2K_FLOAT_DEPTH;
    return exl2__cuda_device_launch(g->d, EXL2__KERNEL_exl2k_float_product, grid, a);
}

/* ---- open and close ---- */

EXL2__PRIVATE exl2_result exl2__gpu_open_steps(exl2__gpu *g)
{
    bool wanted[EXL2__KERNEL_COUNT];
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        const char *module = exl2__cuda_kernel_rows[i].module;
        wanted[i] = exl2__cuda_module_of(i) == i && exl2__cuda_module_converts(module)
                 && exl2__cuda_module_exists(module, g->d->info.arch);
    }
    if (g->d->shared_bytes < EXL2K_SOLVE_LEVELS * EXL2K_SOLVE_ROWS * 128 + 1024) {
        return exl2__fail(g->d->c, EXL2_ERR_UNSUPPORTED, "GPU %s has %u bytes of shared memory for a block, too few to "
                          "convert; use the CPU", g->d->info.name, g->d->shared_bytes);
    }
    EXL2__TRY(exl2__cuda_device_kernels(g->d, wanted));
    return exl2__cuda_ring_open(g->d, &g->ring, EXL2__GPU_SLOTS, EXL2__GPU_SLOT_BYTES, g->d->stream);
}

/* Closes one that is open, half-open or zeroed; the context need not be current. */
EXL2__PRIVATE void exl2__gpu_close(exl2__ctx *c, exl2__gpu *g)
{
    if (g->d) {
        bool entered = exl2__gpu_enter(g);
        g->d->driver.stream_wait(g->d->stream); /* kernels may still use what is freed now */
        for (uint32_t i = 0; i < EXL2__GPU_SCRATCH_COUNT; i++) {
            exl2__gpu_free(g, &g->scratch[i]);
        }
        for (uint32_t i = 0; i < g->weight_count; i++) {
            exl2__gpu_free(g, &g->weights[i].memory);
            exl2__gpu_free(g, &g->weights[i].kept);
        }
        exl2__cuda_ring_close(g->d, &g->ring);
        exl2__free(c, g->weights, g->weight_room * sizeof *g->weights, EXL2_MEM_GENERAL);
        exl2__gpu_leave(g, entered);
    }
    exl2__hardware_close(c, &g->hardware);
    *g = (exl2__gpu){ 0 };
}

/* desc: backend, device, caps and kernel cache. With AUTO, a machine without a usable GPU is no error, nor is a cap
   that is too low for one: *g is then not open. The context is not current afterwards. */
EXL2__PRIVATE exl2_result exl2__gpu_open(exl2__ctx *c, const exl2_engine_desc *desc, exl2__gpu *g)
{
    *g = (exl2__gpu){ 0 };
    exl2_result result = exl2__hardware_open(c, desc, &g->hardware);
    g->d = (exl2__cuda_device *)exl2__hardware_first(&g->hardware);
    if (result >= 0 && g->d) {
        result = exl2__cuda_device_enter(g->d);
        result = result < 0 ? result : exl2__cuda_device_leave_with(g->d, exl2__gpu_open_steps(g));
    }
    if (result < 0) {
        exl2__gpu_close(c, g);
    }
    bool none = result == EXL2_ERR_NO_COMPILER || result == EXL2_ERR_COMPILE || result == EXL2_ERR_UNSUPPORTED
             || result == EXL2_ERR_BUDGET;
    return none && desc->backend == EXL2_BACKEND_AUTO ? EXL2_OK : result;
}
#endif

#endif
