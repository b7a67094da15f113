/* fake_objects.h: what the parts of the fake driver share: live objects, queued work.
   takes: fake_driver.h.
   gives: object, op; current, make, good, drop, ops_free; CALL.
   owns:  nothing. */
#ifndef FAKE_OBJECTS_H
#define FAKE_OBJECTS_H

#include "fake_driver.h"

#include <stdio.h>
#include <stdlib.h>

enum { INVALID_VALUE = 1, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };

typedef enum kind { CONTEXT, STREAM, EVENT, MODULE, FUNCTION, GRAPH, EXEC, MEMORY, PINNED } kind;

typedef enum op_kind { OP_UP, OP_DOWN, OP_COPY, OP_FILL, OP_LAUNCH, OP_RECORD, OP_WAIT } op_kind;

struct object;

typedef struct op { /* something queued on a stream */
    op_kind kind;
    uint64_t id, to, from, bytes;
    const void *source;
    void *target;
    uint32_t value, unit;
    unsigned grid[3];
    struct object *object; /* event or function */
    void *owned;           /* copy of arguments, or of pageable memory */
    struct op *next;
} op;

typedef struct object {
    kind kind;
    struct object *next, *context, *stream; /* stream: where an event was recorded */
    int device;
    bool primary, capturing;
    uint64_t address, bytes;     /* function: bytes: 1: it takes dynamic shared memory */
    uint64_t id; /* id: of the op that records the event; of the stream's last op done */
    void *memory;
    op *first, *last;       /* stream: queued; graph, exec: recorded */
    op *recorded, *recorded_last; /* stream: what is being captured */
    char name[64];          /* module: file; function: its name */
    size_t argument_bytes;
    int dynamic_max;
    double ms;
} object;

/* Returns from a driver function whose call is to fail. */
#define CALL(name)                            \
    do {                                      \
        int fails_ = fake_call(name, false);  \
        if (fails_) {                         \
            return fails_;                    \
        }                                     \
    } while (0)

/* The context that is current, or NULL. */
object *fake_current(void);

/* A new object of the current context. */
object *fake_make(kind k);

/* Whether the handle lives, is of this kind, and belongs to the current context; if not, that is misuse. */
bool fake_good(const void *handle, kind k);

/* The first of all objects. */
object *fake_first(void);

/* Executes all that is queued anywhere. */
void fake_finish(void);

void fake_drop(object *dead);
void fake_ops_free(op *first);
uint64_t fake_next_address(uint64_t bytes);
void *fake_block(uint64_t bytes); /* uninitialised memory of a MEMORY object */

/* The members of the table that each part has. */
void fake_fill_devices(exl2__cuda_driver *driver);
void fake_fill_memory(exl2__cuda_driver *driver);
void fake_fill_work(exl2__cuda_driver *driver);

/* Executes what is queued on a stream up to an op; UINT64_MAX: all. */
void fake_run_until(object *stream, uint64_t id);

/* Queues a copy of an op on a stream, or records it when the stream is being captured; takes over its `owned`. */
int fake_queue(exl2__cuda_stream *stream, op o);

#endif
