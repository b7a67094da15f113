/* fake_objects.h: what the parts of the fake driver share: objects that live, and queued work.
   takes: fake_driver.h.
   gives: object, op; current, make, good, drop, ops_free; CALL. */
#ifndef FAKE_OBJECTS_H
#define FAKE_OBJECTS_H

#include "fake_driver.h"

#include <stdio.h>
#include <stdlib.h>

enum { INVALID_VALUE = 1, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };

typedef enum kind { CONTEXT, STREAM, EVENT, MODULE, FUNCTION, GRAPH, EXEC, MEMORY, PINNED } kind;

typedef enum op_kind { OP_UP, OP_DOWN, OP_COPY, OP_FILL, OP_LAUNCH, OP_RECORD, OP_WAIT } op_kind;

struct object;

typedef struct op { /* an operation queued on a stream */
    op_kind kind;
    uint64_t id, to, from, bytes;
    const void *source;
    void *target;
    uint32_t value, unit;
    unsigned grid[3], cluster;
    struct object *object; /* event of RECORD, function of LAUNCH, stream of WAIT */
    void *owned;           /* copy of the arguments, or of pageable memory */
    struct op *next;
} op;

typedef struct object {
    kind kind;
    struct object *next, *context, *stream; /* stream: where an event was recorded */
    int device;
    bool primary, capturing, waiting;
    uint32_t peers;              /* context: bit j: it reaches the memory of device j */
    uint64_t address, bytes;     /* bytes of a function: 1 if it accepts dynamic shared memory, else 0 */
    uint64_t id; /* event: the op that records it; stream: the last op that was executed */
    void *memory;
    op *first, *last;       /* stream: queued ops */
    op *recorded, *recorded_last; /* stream: ops of the capture under way; graph, exec: its ops */
    char name[64];          /* module: name of its file; function: name of the function */
    size_t argument_bytes;
    int dynamic_max;
    double ms;
} object;

/* Counts a call of a driver function, and returns the error code if this call is to fail. */
#define CALL(name)                            \
    do {                                      \
        int fails_ = fake_call(name, false);  \
        if (fails_) {                         \
            return fails_;                    \
        }                                     \
    } while (0)

/* The current context, or NULL. */
object *fake_current(void);

/* Whether the GPU of this context is lost; NULL: of no context. */
bool fake_is_lost(const object *context);

/* From now on it is lost, or all GPUs are. */
void fake_lose(const object *context, int code);

/* Makes an object of the current context. */
object *fake_make(kind k);

/* Whether the handle is of this kind, still valid, and of the current context; if not, misuse is recorded. */
bool fake_good(const void *handle, kind k);

/* The same for a handle that may be of any context. */
bool fake_lives(const void *handle, kind k);

/* The first of all objects. */
object *fake_first(void);

/* Executes all queued work of all streams. */
void fake_finish(void);

void fake_drop(object *dead);
void fake_ops_free(op *first);
uint64_t fake_place(object *memory); /* gives a block of device memory, whose bytes are set, its address */
void *fake_block(uint64_t bytes); /* uninitialised memory of a MEMORY object */

/* Each part fills in its members of the driver's table. */
void fake_fill_devices(exl2__cuda_driver *driver);
void fake_fill_memory(exl2__cuda_driver *driver);
void fake_fill_work(exl2__cuda_driver *driver);

/* Executes the ops that are queued on a stream up to op `id`; UINT64_MAX: all. */
void fake_run_until(object *stream, uint64_t id);

/* Queues a copy of an op on a stream, or records it if the stream is being captured. Becomes the owner of op.owned. */
int fake_queue(exl2__cuda_stream *stream, op o);

#endif
