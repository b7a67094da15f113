/* ptx_driver_objects.h: what the parts of the driver over PTX share: its objects, queued work, and lookups of memory.
   takes: ptx_driver.h, ptx.h.
   gives: object, op, block, emu_gpu; functions of ptx_driver.c, ptx_driver_memory.c, ptx_driver_queue.c,
          ptx_driver_work.c. */
#ifndef PTX_DRIVER_OBJECTS_H
#define PTX_DRIVER_OBJECTS_H

#include "ptx_driver.h"
#include "ptx.h"

#include <stdio.h>
#include <stdlib.h>

#define EMU_TOTAL_BYTES ((size_t)4 << 30) /* of each GPU's memory */

enum {
    EMU_INVALID_VALUE = 1,
    EMU_INVALID_DEVICE = 101,
    EMU_INVALID_CONTEXT = 201,
    EMU_INVALID_HANDLE = 400,
    EMU_CAPTURE_UNSUPPORTED = 900
};

typedef enum kind { DEAD, CONTEXT, STREAM, EVENT, MODULE, FUNCTION, GRAPH, EXEC } kind;

typedef enum op_kind { OP_UP, OP_DOWN, OP_COPY, OP_FILL, OP_LAUNCH, OP_RECORD, OP_WAIT } op_kind;

struct object;

/* What a running kernel may access, with the blocks that it accessed last. */
typedef struct view {
    int gpu;
    uint32_t age;
    struct {
        uint64_t address, end;
    } recent[4];
} view;

typedef struct op { /* an operation queued on a stream */
    op_kind kind;
    struct op *next;
    uint64_t to, from, bytes;
    const void *source;
    void *target;
    uint32_t value, unit;  /* of a fill */
    struct object *object; /* event of RECORD and WAIT, function of LAUNCH */
    uint64_t turn;         /* of the event: which of its records */
    unsigned grid[3], block[3], cluster, shared_bytes;
    bool programmatic;     /* a launch that may start before the one before it has ended */
    bool gate, ended;      /* of a launch: all before it are done; its kernel has ended */
    void *owned;           /* parameters, or a copy of pageable memory */
    ptx_run *run;          /* of a launch that has started */
    uint64_t given;        /* instructions that the launch could have executed */
    view *view;
} op;

typedef struct object {
    kind kind;
    int gpu;
    struct object *next;    /* of all objects, which are never freed, so that a stale handle is recognized */
    op *first, *last;       /* stream: queued ops; graph, exec: `first`, the ops it has */
    op *recorded, *recorded_last; /* stream: ops of the capture under way */
    bool capturing;
    uint64_t queued, done;  /* event: records queued, records done */
    double ms;              /* event: when it was recorded last */
    ptx_module *module;     /* module */
    struct object *owner;   /* function: its module */
    const ptx_kernel *kernel;
    uint32_t dynamic_max;
    char name[64];          /* function */
} object;

typedef struct block { /* memory that kernels may access */
    uint64_t address, bytes;
    int gpu; /* -1: pinned host memory */
} block;

typedef struct emu_gpu {
    object context;
    int retained, lost; /* lost: the result that ended the context */
    uint32_t peers;     /* bit j: it reaches the memory of GPU j */
    uint64_t used;      /* bytes */
} emu_gpu;

extern ptx_driver_machine emu_machine;
extern emu_gpu emu_gpus[PTX_DRIVER_GPUS_MAX];

/* One lock for everything. Calls that wait give it away now and then. */
void emu_lock(void);
int emu_unlock(int result); /* returns `result` */

/* Says on stderr what a caller did wrong, and returns the result. */
int emu_misuse(int result, const char *what);

/* The GPU of the current context; NULL: there is none. */
emu_gpu *emu_current(void);
static inline int emu_index(const emu_gpu *g) { return (int)(g - emu_gpus); }

object *emu_make(kind k, int gpu);
void emu_drop(object *o);
/* Whether the handle is of this kind and lives; if not, that is said. */
bool emu_good(const void *handle, kind k);

/* ---- memory ---- */

/* The block that holds [address, address + bytes); NULL: none. */
const block *emu_block_of(uint64_t address, uint64_t bytes);
/* Whether a GPU may access the bytes: its own memory, that of its peers, pinned memory. */
bool emu_reaches(int gpu, uint64_t address, uint64_t bytes);
/* As ptx_launch.allowed; user: a view. */
bool emu_view_allows(void *user, uint64_t address, size_t bytes, bool write);
bool emu_pinned(const void *memory, size_t bytes);
void emu_memory_drop(int gpu); /* frees all of it */
void emu_memory_fill_table(exl2__cuda_driver *driver);

/* ---- streams, and what is queued on them ---- */

#define EMU_QUERY_INSTRUCTIONS 50000u /* that a query lets each stream run */

object *emu_stream_make(int gpu); /* NULL: there are too many */
void emu_stream_drop(object *s);  /* after all that is queued on it */
/* Queues a copy of an op on a stream, or records it if the stream is being captured. Becomes the owner of op.owned. */
int emu_queue(exl2__cuda_stream *stream, op o);
/* Lets all streams get on, each by about so many instructions. false: none could. */
bool emu_pump(uint64_t instructions);
/* The same for a call that waits: the lock is given away meanwhile. If no stream could get on, all GPUs are lost. */
void emu_pump_or_fail(void);
/* Until everything queued on the stream (NULL: on any stream) is done. */
void emu_finish(const object *stream);
void emu_ops_free(op *first);
void emu_seed_begin(void); /* the turns of the machine's seed begin anew */

/* ---- the calls that queue ---- */

void emu_work_fill_table(exl2__cuda_driver *driver);

#endif
