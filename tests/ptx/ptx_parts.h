/* ptx_parts.h: what the files of the PTX interpreter share: modules, steps, warps, CTAs and runs.
   takes: ptx.h.
   gives: the types; operands of a step (PTX_IN, ptx_put); faults; the functions of the other files. */
#ifndef PTX_PARTS_H
#define PTX_PARTS_H

#include "ptx.h"

#include <stdlib.h>
#include <string.h>

#define PTX_LANES 32
#define PTX_ALL 0xFFFFFFFFu
#define PTX_NEVER 0xFFFFFFFFu  /* a pc behind every step */
#define PTX_BARRIERS 16
#define PTX_CONSTANT ((int32_t)INT32_MIN) /* an operand with this bit is a constant */
#define PTX_NO_OPERAND INT32_MAX

/* Generic addresses of what is not global memory: the top byte says which window, the rest is the address in it. */
#define PTX_SHARED_WINDOW 0x7D00000000000000u
#define PTX_LOCAL_WINDOW 0x7C00000000000000u
#define PTX_PARAM_WINDOW 0x7B00000000000000u
#define PTX_WINDOW_MASK 0xFF00000000000000u

/* As on a GPU, a CTA's variables in shared memory begin here, so that an address of 0 is a fault. */
#define PTX_SHARED_BEGIN 1024u
/* The shared memory of rank r of a cluster begins at (r + 1) << PTX_RANK_SHIFT; without a rank it is the CTA's own. */
#define PTX_RANK_SHIFT 24

typedef enum ptx_space {
    PTX_GENERIC, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_PARAM
} ptx_space;

typedef struct ptx_warp ptx_warp;
typedef struct ptx_cta ptx_cta;
typedef struct ptx_step ptx_step;

/* Executes a step for the lanes of `mask`, which is never 0. */
typedef void ptx_function(ptx_warp *w, const ptx_step *s, uint32_t mask);

struct ptx_step {
    ptx_function *run;
    int32_t *arg;      /* operands, destinations first: bytes into the warp's registers, or PTX_CONSTANT | bytes */
    int64_t offset;    /* of an address */
    int32_t guard;     /* the predicate's operand, or PTX_NO_OPERAND */
    uint32_t target;   /* the step that a branch goes to */
    uint32_t line;     /* in the text */
    uint16_t args, defs;
    uint8_t guard_not;
    uint8_t space, bytes, count; /* memory: of one element, how many elements */
    uint8_t a, b, c, d;          /* what else an instruction says; its file names it */
};

typedef struct ptx_chunk {
    struct ptx_chunk *next;
} ptx_chunk;

struct ptx_kernel {
    const char *name;
    const char *text;        /* the module's, for faults */
    const ptx_module *module;
    ptx_step *steps;
    uint32_t step_count;
    uint8_t *constants;
    uint32_t register_bytes; /* of a warp */
    uint32_t shared_bytes, local_bytes, parameter_bytes, threads_max;
    uint32_t cluster; /* CTAs of a cluster that the kernel requires along x; 0: as its launch says */
    uint32_t dynamic_at;     /* where dynamic shared memory begins, behind PTX_SHARED_BEGIN */
    ptx_kernel *next;
};

/* A variable of the module in global or constant memory. */
typedef struct ptx_variable {
    struct ptx_variable *next;
    uint8_t *memory;
    size_t bytes;
    bool constant;
} ptx_variable;

struct ptx_module {
    ptx_chunk *chunks; /* all memory of the module */
    uint8_t *room;     /* what is left of the first chunk */
    size_t room_bytes;
    ptx_kernel *kernels;
    ptx_variable *variables;
};

/* A copy that cp.async started: it is done at the wait for its group, or before. */
typedef struct ptx_copy {
    uint64_t from;
    uint32_t to, lane, group;
    uint8_t bytes, read; /* bytes - read are zeros */
} ptx_copy;

/* A product of wgmma whose wait has not come. */
typedef struct ptx_wait {
    const ptx_step *step;
    uint64_t tiles[2], hash; /* descriptors of A and B; a hash of what they hold */
    uint32_t group;
} ptx_wait;

struct ptx_warp {
    uint8_t *registers;
    const uint8_t *constants;
    ptx_cta *cta;
    uint8_t *local;          /* local_bytes for each lane */
    uint32_t index;          /* in the CTA */
    uint32_t pc, active;     /* the lanes that run, and their next step */
    uint32_t join;           /* the lowest pc of other lanes that could run */
    uint32_t live, blocked;  /* lanes that have not ended; that wait at a barrier */
    uint32_t parked;         /* lanes that wait for other lanes of the warp at the step pcs[lane] */
    uint32_t waiting[PTX_BARRIERS], cluster_waiting; /* what blocked lanes wait for */
    uint32_t pcs[PTX_LANES]; /* of lanes that are not active */
    uint32_t cluster_phase;
    bool changed;            /* lanes must be selected again */
    bool yield;              /* the turn ends */
    bool polled;             /* it read memory that another warp may write, and wrote nothing since */
    bool polls_global;
    bool slept;
    bool stuck;              /* the turn ended as a wait for an mbarrier failed */
    bool acted;              /* it changed in this turn what others may see */
    ptx_copy *copies;
    uint32_t copy_count, copy_cap;
    uint32_t group[PTX_LANES]; /* of the lane's next copy */
    ptx_wait *products;
    uint32_t product_count, product_cap, product_group; /* product_group: of the next product */
};

typedef struct ptx_barrier {
    uint32_t arrived, expected; /* threads; expected 0: all of the CTA */
    uint32_t ones;              /* of bar.red */
    uint32_t lanes;             /* lanes that gave a predicate */
} ptx_barrier;

/* A bulk copy that has not arrived. */
typedef struct ptx_bulk {
    uint64_t from;
    uint32_t to, bytes, barrier;
    struct ptx_bulk *next;
} ptx_bulk;

struct ptx_cta {
    ptx_run *run;
    uint32_t id[3];
    uint32_t rank;          /* in its cluster */
    ptx_cta *cluster;       /* the first CTA of its cluster */
    uint8_t *shared;
    ptx_warp *warps;
    uint32_t live_warps, live_threads;
    ptx_barrier barriers[PTX_BARRIERS];
    ptx_bulk *bulks;
    uint32_t cluster_arrived, cluster_phase; /* of the cluster; in its first CTA: threads */
    bool released;          /* it said griddepcontrol.launch_dependents */
};

#define PTX_PAGES 64

struct ptx_run {
    ptx_launch launch;
    uint8_t *parameters;
    const ptx_kernel *kernel;
    uint32_t threads, warps;         /* of a CTA */
    uint32_t shared_bytes;           /* of a CTA, with PTX_SHARED_BEGIN */
    uint32_t cluster, places;        /* CTAs of a cluster; clusters that run at the same time */
    uint64_t clusters, next_cluster, ended;
    ptx_cta *ctas;                   /* [places * cluster] */
    uint32_t turn;                   /* which warp is next */
    uint32_t idle, waiting;          /* how many turns in a row did nothing; could not do anything */
    uint64_t random;
    uint64_t instructions, lane_instructions; /* that were executed */
    uint64_t readable[PTX_PAGES], writable[PTX_PAGES]; /* pages of 4 KiB that `allowed` allowed, plus 1 */
    bool failed;
    char fault[600];
};

/* ---- operands ---- */

static inline const void *ptx_in(const ptx_warp *w, int32_t at)
{
    return at >= 0 ? w->registers + at : w->constants + (at & INT32_MAX);
}

#define PTX_IN(type, number) ((const type *)ptx_in(w, s->arg[number]))
#define PTX_OUT(type, number) ((type *)(void *)(w->registers + s->arg[number]))
#define PTX_EACH(l) for (uint32_t l = 0; l < PTX_LANES; l++)
#define PTX_ACTIVE(l) PTX_EACH(l) if (mask >> l & 1)

/* Writes the results of all lanes to a register, for the lanes of the mask. size: of a lane's, in bytes. */
static inline void ptx_put(ptx_warp *w, int32_t at, const void *results, size_t size, uint32_t mask)
{
    uint8_t *to = w->registers + at;
    if (mask == PTX_ALL) {
        memcpy(to, results, size * PTX_LANES);
        return;
    }
    PTX_ACTIVE(l) {
        memcpy(to + l * size, (const uint8_t *)results + l * size, size);
    }
}

/* The warp changed what others may wait for. */
static inline void ptx_act(ptx_warp *w)
{
    w->polled = false;
    w->acted = true;
}

#define PTX_PUT(number, results) ptx_put(w, s->arg[number], results, sizeof *(results), mask)

/* A step's function that computes `expression` of its operands x, y and z in all lanes, which the compiler turns into
   vector instructions, and keeps the results of the mask's. */
#define PTX_UNARY(name, out, in, expression)                                \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)         \
    {                                                                       \
        const in *a = PTX_IN(in, 1);                                        \
        out d[PTX_LANES];                                                   \
        PTX_EACH(l) {                                                       \
            in x = a[l];                                                    \
            d[l] = (out)(expression);                                       \
        }                                                                   \
        PTX_PUT(0, d);                                                      \
    }
#define PTX_BINARY(name, out, in, second, expression)                       \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)         \
    {                                                                       \
        const in *a = PTX_IN(in, 1);                                        \
        const second *b = PTX_IN(second, 2);                                \
        out d[PTX_LANES];                                                   \
        PTX_EACH(l) {                                                       \
            in x = a[l];                                                    \
            second y = b[l];                                                \
            d[l] = (out)(expression);                                       \
        }                                                                   \
        PTX_PUT(0, d);                                                      \
    }
#define PTX_TERNARY(name, out, in, third, expression)                       \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)         \
    {                                                                       \
        const in *a = PTX_IN(in, 1), *b = PTX_IN(in, 2);                    \
        const third *c = PTX_IN(third, 3);                                  \
        out d[PTX_LANES];                                                   \
        PTX_EACH(l) {                                                       \
            in x = a[l], y = b[l];                                          \
            third z = c[l];                                                 \
            d[l] = (out)(expression);                                       \
        }                                                                   \
        PTX_PUT(0, d);                                                      \
    }

static inline uint32_t ptx_predicate(const ptx_warp *w, int32_t at) { return *(const uint32_t *)ptx_in(w, at); }

static inline void ptx_put_predicate(ptx_warp *w, int32_t at, uint32_t bits, uint32_t mask)
{
    uint32_t *to = (uint32_t *)(void *)(w->registers + at);
    *to = (*to & ~mask) | (bits & mask);
}

static inline uint32_t ptx_count(uint32_t mask) { return (uint32_t)__builtin_popcount(mask); }
static inline uint32_t ptx_first(uint32_t mask) { return (uint32_t)__builtin_ctz(mask); }

static inline uint32_t ptx_bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float ptx_float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* A subnormal number becomes a zero of its sign. */
static inline float ptx_flush(float x)
{
    uint32_t u = ptx_bits_of(x);
    return u & 0x7F800000 ? x : ptx_float_of(u & 0x80000000);
}

/* ---- half floats (ptx_half.c) ---- */

uint16_t ptx_half_of(double x); /* rounded to nearest even */

static inline float ptx_from_half(uint16_t h)
{
    uint32_t u = (uint32_t)(h & 0x7FFF) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    float scaled = ptx_float_of(u) * 0x1p112f; /* exact, for subnormal halves, too */
    bool special = (h & 0x7C00) == 0x7C00;
    return ptx_float_of((special ? u | 0x7F800000 : ptx_bits_of(scaled)) | sign);
}

/* ---- faults (ptx_run.c) ---- */

/* Ends the run. The message continues "kernel K, CTA (x, y, z), thread t, line n (instruction): ". */
void ptx_fail(ptx_warp *w, const ptx_step *s, uint32_t lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
uint32_t ptx_random(ptx_run *run, uint32_t below);
/* The time that kernels see, in nanoseconds, after it went on by so many: one for each instruction of a warp of any
   run, and those that it slept. A time limit of a kernel then does not depend on how fast this program is. */
uint64_t ptx_clock(uint64_t more);

/* ---- warps (ptx_warp.c) ---- */

/* Have all lanes of `members` arrived at this step? If not, the lanes of `mask` wait, and the step does nothing. */
bool ptx_meet(ptx_warp *w, const ptx_step *s, uint32_t mask, uint32_t members);
void ptx_warp_select(ptx_warp *w);
/* Runs the warp until it waits, yields, ends, or has executed so many steps; returns how many. */
uint64_t ptx_warp_run(ptx_warp *w, uint64_t budget);
void ptx_barrier_check(ptx_cta *cta, uint32_t id);
void ptx_cluster_check(ptx_cta *first);
extern ptx_function ptx_exit;

/* ---- memory (ptx_memory.c) ---- */

/* The bytes of an access; NULL: it is a fault, which is reported. */
uint8_t *ptx_reach(ptx_warp *w, const ptx_step *s, uint32_t lane, ptx_space space, uint64_t address, uint32_t bytes,
                   bool write);

/* ---- asynchronous copies (ptx_async.c) ---- */

void ptx_copies_end(ptx_warp *w);
void ptx_bulks_end(ptx_cta *cta);
void ptx_products_end(ptx_warp *w); /* ptx_wgmma.c */

/* ---- matrices (ptx_matrix.c) ---- */

void ptx_product(float *sums, const float *a, const float *b, uint32_t n, uint32_t k);
void ptx_sums_in(const ptx_warp *w, const int32_t *arg, float *sums, uint32_t n);
void ptx_sums_out(ptx_warp *w, const int32_t *arg, const float *sums, uint32_t n, uint32_t mask);
void ptx_rows_in(const ptx_warp *w, const int32_t *arg, float *a, uint32_t k);

/* ---- reading (ptx_read.c, ptx_decode.c) ---- */

typedef enum ptx_kind {
    PTX_IS_REGISTER, PTX_IS_NUMBER, PTX_IS_SYMBOL, PTX_IS_SPECIAL, PTX_IS_LABEL, PTX_IS_VECTOR, PTX_IS_SINK
} ptx_kind;

typedef struct ptx_operand {
    ptx_kind kind;
    bool negated;       /* !p */
    bool address;       /* in brackets */
    bool is_float;      /* 0f... or 0d... */
    uint8_t width;      /* of a register: 1 (predicate), 2, 4, 8 or 16 bytes; of a float: 4 or 8 */
    uint8_t space;      /* of a symbol */
    int32_t id;         /* of a register; the index of a special one */
    int32_t pair;       /* the second register of a|b, or -1 */
    uint64_t value;     /* of a number; a symbol's address */
    bool dynamic;       /* the address counts from the end of static shared memory */
    int64_t offset;     /* in brackets: what is added */
    uint32_t first, count; /* of a vector: its elements in `elements` */
} ptx_operand;

#define PTX_OPERANDS 12
#define PTX_ELEMENTS 320
#define PTX_MODS 16

/* The instruction that is being decoded. */
typedef struct ptx_reader ptx_reader;
typedef struct ptx_code {
    ptx_reader *reader;
    char op[160];               /* the whole opcode */
    char parts[160];            /* the same with NUL for each dot */
    const char *mods[PTX_MODS]; /* the opcode's words; mods[0]: "ld" */
    uint32_t mod_count, used;   /* used: bits of the words that were understood */
    ptx_operand operands[PTX_OPERANDS], elements[PTX_ELEMENTS];
    uint32_t operand_count, element_count;
    ptx_step *step;
    bool failed;
} ptx_code;

/* Fails with the instruction and its line. */
void ptx_code_fail(ptx_code *c, const char *why);
/* Is this word in the opcode? It then counts as understood; an instruction with other words is an error. */
bool ptx_code_has(ptx_code *c, const char *word);
bool ptx_code_is(const ptx_code *c, const char *first); /* the first word */
/* Which of these words (NULL ends them) is in the opcode; -1: none. */
int ptx_code_one(ptx_code *c, const char *const *words);
/* Appends an operand. Destinations come first. width: bytes of a lane; 1: a predicate. */
void ptx_code_out(ptx_code *c, const ptx_operand *o, uint32_t width);
void ptx_code_in(ptx_code *c, const ptx_operand *o, uint32_t width);
void ptx_code_number(ptx_code *c, uint64_t value, uint32_t width);
/* Appends the operand whose number it is, or each element of a vector. */
void ptx_code_outs(ptx_code *c, uint32_t number, uint32_t width, uint32_t count);
void ptx_code_ins(ptx_code *c, uint32_t number, uint32_t width, uint32_t count);
/* Appends the base of an address in brackets; sets the step's offset and, if it is generic, its space. */
void ptx_code_address(ptx_code *c, uint32_t number);
void *ptx_alloc(ptx_module *m, size_t bytes); /* zeroed; never NULL: without memory the program ends */

/* Instructions that only compute: name without dots for rounding and so on, function, widths of operands. */
typedef struct ptx_form {
    const char *name;   /* the whole opcode */
    ptx_function *run;
    const char *shape;  /* "4=44": a destination of 4 bytes, two sources; p: a predicate */
} ptx_form;

extern const ptx_form ptx_integer_forms[], ptx_float_forms[], ptx_half_forms[];

/* Each decodes its instructions; false: it is none of them. */
bool ptx_memory_decode(ptx_code *c);
bool ptx_atom_decode(ptx_code *c);
bool ptx_move_decode(ptx_code *c);
bool ptx_convert_decode(ptx_code *c);
bool ptx_compare_decode(ptx_code *c);
bool ptx_warp_decode(ptx_code *c);
bool ptx_matrix_decode(ptx_code *c);
bool ptx_async_decode(ptx_code *c);
bool ptx_wgmma_decode(ptx_code *c);

bool ptx_decode(ptx_code *c);
/* Gives registers their places, and replaces the numbers of registers in all steps by these. widths [registers]. */
void ptx_registers_place(ptx_kernel *k, const uint8_t *widths, uint32_t registers);

#endif
