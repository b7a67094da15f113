/* ptx_memory.c: loads, stores and atomics, each access checked.
   takes: ptx_parts.h.
   gives: ptx_reach, ptx_memory_decode, ptx_atom_decode. */
#include "ptx_parts.h"

#define PAGE 4096u

/* ---- which bytes an address means ---- */

/* The module's variable that has these bytes; NULL: there is none. */
static const ptx_variable *variable_of(const ptx_run *run, uint64_t address, uint32_t bytes)
{
    for (const ptx_variable *v = run->kernel->module->variables; v; v = v->next) {
        uint64_t begin = (uint64_t)(uintptr_t)v->memory;
        if (address >= begin && address - begin <= v->bytes && bytes <= v->bytes - (address - begin)) {
            return v;
        }
    }
    return NULL;
}

static bool global_allowed(ptx_run *run, uint64_t address, uint32_t bytes, bool write)
{
    const ptx_launch *launch = &run->launch;
    uint64_t page = address / PAGE, *known = &(write ? run->writable : run->readable)[page % PTX_PAGES];
    if (address < PAGE || address >> 48) {
        return false;
    }
    const ptx_variable *variable = variable_of(run, address, bytes);
    if (variable) {
        return !(write && variable->constant);
    }
    if (!launch->allowed) {
        return true;
    }
    if (address % PAGE + bytes <= PAGE && launch->allowed(launch->user, page * PAGE, PAGE, write)) {
        *known = page + 1;
        return true;
    }
    return launch->allowed(launch->user, address, bytes, write);
}

static uint8_t *reach_global(ptx_warp *w, const ptx_step *s, uint32_t lane, uint64_t address, uint32_t bytes,
                             bool write)
{
    ptx_run *run = w->cta->run;
    uint64_t page = address / PAGE;
    bool known = (write ? run->writable : run->readable)[page % PTX_PAGES] == page + 1
              && address % PAGE + bytes <= PAGE;
    if (!known && !global_allowed(run, address, bytes, write)) {
        ptx_fail(w, s, lane, "the %s of %u bytes at 0x%llx is outside of the memory that it may use",
                 write ? "write" : "read", (unsigned)bytes, (unsigned long long)address);
        return NULL;
    }
    return (uint8_t *)(uintptr_t)address;
}

static uint8_t *reach_shared(ptx_warp *w, const ptx_step *s, uint32_t lane, uint64_t address, uint32_t bytes)
{
    ptx_run *run = w->cta->run;
    uint64_t rank = address >> PTX_RANK_SHIFT, at = address & ((1u << PTX_RANK_SHIFT) - 1);
    ptx_cta *cta = rank == 0 ? w->cta : w->cta->cluster + (rank - 1);
    if (rank > run->cluster || at < PTX_SHARED_BEGIN || at + bytes > run->shared_bytes) {
        ptx_fail(w, s, lane, "the access to %u bytes of shared memory at 0x%llx is outside of its %u bytes",
                 (unsigned)bytes, (unsigned long long)address, (unsigned)(run->shared_bytes - PTX_SHARED_BEGIN));
        return NULL;
    }
    if (cta->live_warps == 0) {
        ptx_fail(w, s, lane, "the CTA whose shared memory is accessed at 0x%llx has ended",
                 (unsigned long long)address);
        return NULL;
    }
    return cta->shared + at;
}

static uint8_t *reach_own(ptx_warp *w, const ptx_step *s, uint32_t lane, ptx_space space, uint64_t address,
                          uint32_t bytes, bool write)
{
    const ptx_kernel *k = w->cta->run->kernel;
    uint32_t size = space == PTX_LOCAL ? k->local_bytes : k->parameter_bytes;
    if (address > size || bytes > size - address || (write && space == PTX_PARAM)) {
        ptx_fail(w, s, lane, "the access to %u bytes of %s at 0x%llx is not allowed", (unsigned)bytes,
                 space == PTX_LOCAL ? "local memory" : "the parameters", (unsigned long long)address);
        return NULL;
    }
    return (space == PTX_LOCAL ? w->local + (size_t)lane * size : w->cta->run->parameters) + address;
}

uint8_t *ptx_reach(ptx_warp *w, const ptx_step *s, uint32_t lane, ptx_space space, uint64_t address, uint32_t bytes,
                   bool write)
{
    if (space == PTX_GENERIC) {
        uint64_t window = address & PTX_WINDOW_MASK;
        space = window == PTX_SHARED_WINDOW ? PTX_SHARED : window == PTX_LOCAL_WINDOW ? PTX_LOCAL
              : window == PTX_PARAM_WINDOW ? PTX_PARAM : PTX_GLOBAL;
        address = space == PTX_GLOBAL ? address : address & ~PTX_WINDOW_MASK;
    }
    if (address & (bytes - 1)) {
        ptx_fail(w, s, lane, "the address 0x%llx is no multiple of %u", (unsigned long long)address, (unsigned)bytes);
        return NULL;
    }
    if (space == PTX_GLOBAL) {
        return reach_global(w, s, lane, address, bytes, write);
    }
    return space == PTX_SHARED ? reach_shared(w, s, lane, address, bytes)
                               : reach_own(w, s, lane, space, address, bytes, write);
}

/* The same without a call where the page is known to be allowed, or the memory is the CTA's own. */
static inline uint8_t *reach(ptx_warp *w, const ptx_step *s, uint32_t lane, uint64_t address, uint32_t bytes,
                             bool write)
{
    ptx_run *run = w->cta->run;
    bool aligned = (address & (bytes - 1)) == 0;
    if (s->space == PTX_SHARED) {
        if (aligned && address >= PTX_SHARED_BEGIN && address + bytes <= run->shared_bytes) {
            return w->cta->shared + address;
        }
    } else if (s->space == PTX_GLOBAL) {
        uint64_t page = address / PAGE; /* an aligned access lies in one page */
        if (aligned && (write ? run->writable : run->readable)[page % PTX_PAGES] == page + 1) {
            return (uint8_t *)(uintptr_t)address;
        }
    }
    return ptx_reach(w, s, lane, s->space, address, bytes, write);
}

static uint64_t address_of(const ptx_warp *w, const ptx_step *s, uint32_t number, uint32_t lane)
{
    if (s->b) { /* a register of 32 bits */
        return (uint32_t)(PTX_IN(uint32_t, number)[lane] + (uint32_t)s->offset);
    }
    return PTX_IN(uint64_t, number)[lane] + (uint64_t)s->offset;
}

/* ---- loads and stores ----
   a: the width of the registers; c: the value has a sign; d: it may poll. */

static uint64_t extended(uint64_t v, uint32_t bytes)
{
    uint32_t shift = 64 - bytes * 8;
    return (uint64_t)((int64_t)(v << shift) >> shift);
}

static void load(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint32_t n = s->count, bytes = s->bytes, width = s->a;
    PTX_ACTIVE(l) {
        const uint8_t *p = reach(w, s, l, address_of(w, s, n, l), bytes * n, false);
        if (!p) {
            return;
        }
        for (uint32_t i = 0; i < n; i++) {
            uint64_t v = 0;
            memcpy(&v, p + i * bytes, bytes);
            v = s->c ? extended(v, bytes) : v;
            memcpy(PTX_OUT(uint8_t, i) + l * width, &v, width);
        }
    }
    w->polled = w->polled || s->d;
    w->polls_global = w->polls_global || (s->d && s->space != PTX_SHARED);
}

/* The frequent cases: elements and registers of the same width. */
#define LOAD(name, type)                                                                                        \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)                                             \
    {                                                                                                           \
        uint32_t n = s->count;                                                                                  \
        PTX_ACTIVE(l) {                                                                                         \
            const uint8_t *p = reach(w, s, l, address_of(w, s, n, l), (uint32_t)sizeof(type) * n, false);       \
            if (!p) {                                                                                           \
                return;                                                                                         \
            }                                                                                                   \
            for (uint32_t i = 0; i < n; i++) {                                                                  \
                memcpy(PTX_OUT(type, i) + l, p + i * sizeof(type), sizeof(type));                               \
            }                                                                                                   \
        }                                                                                                       \
        w->polled = w->polled || s->d;                                                                          \
        w->polls_global = w->polls_global || (s->d && s->space != PTX_SHARED);                                  \
    }
LOAD(load16, uint16_t)
LOAD(load32, uint32_t)
LOAD(load64, uint64_t)

/* A parameter is the same for all lanes. */
static void load_parameter(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint32_t n = s->count, bytes = s->bytes, width = s->a;
    const uint8_t *p = ptx_reach(w, s, ptx_first(mask), PTX_PARAM, address_of(w, s, n, 0), bytes * n, false);
    for (uint32_t i = 0; p && i < n; i++) {
        uint64_t v = 0;
        memcpy(&v, p + i * bytes, bytes);
        v = s->c ? extended(v, bytes) : v;
        PTX_ACTIVE(l) {
            memcpy(PTX_OUT(uint8_t, i) + l * width, &v, width);
        }
    }
}

static void store(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint32_t n = s->count, bytes = s->bytes, width = s->a;
    PTX_ACTIVE(l) {
        uint8_t *p = reach(w, s, l, address_of(w, s, 0, l), bytes * n, true);
        if (!p) {
            return;
        }
        for (uint32_t i = 0; i < n; i++) {
            memcpy(p + i * bytes, PTX_IN(uint8_t, 1 + i) + l * width, bytes);
        }
    }
    ptx_act(w);
}

#define STORE(name, type)                                                                                       \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)                                             \
    {                                                                                                           \
        uint32_t n = s->count;                                                                                  \
        PTX_ACTIVE(l) {                                                                                         \
            uint8_t *p = reach(w, s, l, address_of(w, s, 0, l), (uint32_t)sizeof(type) * n, true);              \
            if (!p) {                                                                                           \
                return;                                                                                         \
            }                                                                                                   \
            for (uint32_t i = 0; i < n; i++) {                                                                  \
                memcpy(p + i * sizeof(type), PTX_IN(type, 1 + i) + l, sizeof(type));                            \
            }                                                                                                   \
        }                                                                                                       \
        ptx_act(w);                                                                                             \
    }
STORE(store16, uint16_t)
STORE(store32, uint32_t)
STORE(store64, uint64_t)

static const char *const spaces[] = { "global", "shared", "shared::cta", "shared::cluster", "local", "param", "const",
    NULL };
static const uint8_t space_of[] = { PTX_GLOBAL, PTX_SHARED, PTX_SHARED, PTX_SHARED, PTX_LOCAL, PTX_PARAM, PTX_GLOBAL };

/* How memory is cached does not matter here, and every access is ordered. */
static void qualifiers_skip(ptx_code *c)
{
    static const char *const words[] = { "weak", "acq_rel", "release", "acquire", "relaxed", "volatile", "cta",
        "cluster", "gpu", "sys", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L2::64B", "L2::128B", "L2::256B",
        "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L1::evict_normal", "L1::evict_unchanged", NULL };
    for (const char *const *word = words; *word; word++) {
        ptx_code_has(c, *word);
    }
}

/* The type is the last word. Returns its bytes, 0 for an unknown one; *sign: it has a sign. */
static uint32_t type_of(ptx_code *c, bool *sign)
{
    static const char *const types[] = { "b8", "u8", "s8", "b16", "u16", "s16", "f16", "b32", "u32", "s32", "f32",
        "f16x2", "b64", "u64", "s64", "f64", "b128", NULL };
    static const uint8_t bytes[] = { 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 8, 8, 8, 8, 16 };
    int type = ptx_code_one(c, types);
    *sign = type >= 0 && types[type][0] == 's';
    return type < 0 ? 0 : bytes[type];
}

static uint32_t count_of(ptx_code *c)
{
    static const char *const counts[] = { "v2", "v4", "v8", NULL };
    int count = ptx_code_one(c, counts);
    return count < 0 ? 1 : 2u << count;
}

/* The width of the registers that operand `number` names; numbers have at least 2 bytes. */
static uint32_t width_of(const ptx_code *c, uint32_t number, uint32_t bytes)
{
    const ptx_operand *o = &c->operands[number];
    uint32_t count = o->kind == PTX_IS_VECTOR ? o->count : 1, width = bytes < 2 ? 2 : bytes;
    for (uint32_t i = 0; i < count; i++) {
        const ptx_operand *e = o->kind == PTX_IS_VECTOR ? &c->elements[o->first + i] : o;
        width = e->kind == PTX_IS_REGISTER ? e->width : width;
    }
    return width;
}

static void load_decode(ptx_code *c)
{
    ptx_step *s = c->step;
    bool sign, polls = ptx_code_has(c, "volatile") || ptx_code_has(c, "relaxed") || ptx_code_has(c, "acquire");
    int space = ptx_code_one(c, spaces);
    s->bytes = (uint8_t)type_of(c, &sign);
    s->count = (uint8_t)count_of(c);
    s->space = space < 0 ? PTX_GENERIC : space_of[space];
    s->c = sign;
    s->d = polls;
    s->a = (uint8_t)width_of(c, 0, s->bytes);
    qualifiers_skip(c);
    if (s->bytes == 0 || s->bytes > 8 || s->a < s->bytes || s->a > 8 || c->operand_count != 2) {
        ptx_code_fail(c, "this load is not supported");
        return;
    }
    ptx_code_outs(c, 0, s->a, s->count);
    ptx_code_address(c, 1);
    bool uniform = s->space == PTX_PARAM && c->operands[1].kind == PTX_IS_SYMBOL;
    ptx_function *same = s->bytes == 2 ? load16 : s->bytes == 4 ? load32 : s->bytes == 8 ? load64 : load;
    s->run = uniform ? load_parameter : s->bytes == s->a ? same : load;
}

static void store_decode(ptx_code *c)
{
    ptx_step *s = c->step;
    bool sign;
    int space = ptx_code_one(c, spaces);
    s->bytes = (uint8_t)type_of(c, &sign);
    s->count = (uint8_t)count_of(c);
    s->space = space < 0 ? PTX_GENERIC : space_of[space];
    s->a = (uint8_t)width_of(c, 1, s->bytes);
    ptx_function *same = s->bytes == 2 ? store16 : s->bytes == 4 ? store32 : s->bytes == 8 ? store64 : store;
    s->run = s->bytes == s->a ? same : store;
    qualifiers_skip(c);
    if (s->bytes == 0 || s->bytes > 8 || s->a < s->bytes || s->a > 8 || c->operand_count != 2) {
        ptx_code_fail(c, "this store is not supported");
        return;
    }
    ptx_code_address(c, 0);
    ptx_code_ins(c, 1, s->a, s->count);
}

/* An address of one space as a generic one, or the reverse. */
static void window_add(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const uint64_t *a = PTX_IN(uint64_t, 1);
    uint64_t d[PTX_LANES];
    PTX_EACH(l) {
        d[l] = a[l] + (uint64_t)s->offset;
    }
    PTX_PUT(0, d);
}

static void convert_address_decode(ptx_code *c)
{
    int space = ptx_code_one(c, spaces);
    bool to = ptx_code_has(c, "to");
    uint64_t window = space < 0 ? 0 : space_of[space] == PTX_SHARED ? PTX_SHARED_WINDOW
                    : space_of[space] == PTX_LOCAL ? PTX_LOCAL_WINDOW : space_of[space] == PTX_PARAM ? PTX_PARAM_WINDOW
                    : 0;
    ptx_code_has(c, "u64");
    ptx_code_outs(c, 0, 8, 1);
    ptx_code_ins(c, 1, 8, 1);
    c->step->offset = (int64_t)(to ? 0 - window : window);
    c->step->run = window_add;
}

static void nothing(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)w;
    (void)s;
    (void)mask;
}

bool ptx_memory_decode(ptx_code *c)
{
    if (ptx_code_is(c, "ld")) {
        load_decode(c);
    } else if (ptx_code_is(c, "st")) {
        store_decode(c);
    } else if (ptx_code_is(c, "cvta")) {
        convert_address_decode(c);
    } else if (ptx_code_is(c, "prefetch") || ptx_code_is(c, "prefetchu") || ptx_code_is(c, "fence")
               || ptx_code_is(c, "membar") || ptx_code_is(c, "discard")) {
        c->used = PTX_ALL; /* every access is ordered, and nothing is cached */
        c->step->run = nothing;
    } else {
        return false;
    }
    return true;
}

/* ---- atomics ----
   a: which operation; c: the value has a sign; count 0: nothing is returned (red). */

typedef enum operation {
    OP_ADD, OP_MIN, OP_MAX, OP_INC, OP_DEC, OP_AND, OP_OR, OP_XOR, OP_EXCH, OP_CAS, OP_ADD_FLOAT
} operation;

static uint64_t operate(const ptx_step *s, uint64_t old, uint64_t b, uint64_t c)
{
    int64_t x = (int64_t)extended(old, s->bytes), y = (int64_t)extended(b, s->bytes);
    switch ((operation)s->a) {
    case OP_ADD: return old + b;
    case OP_MIN: return s->c ? (x < y ? old : b) : (old < b ? old : b);
    case OP_MAX: return s->c ? (x > y ? old : b) : (old > b ? old : b);
    case OP_INC: return old >= b ? 0 : old + 1;
    case OP_DEC: return old == 0 || old > b ? b : old - 1;
    case OP_AND: return old & b;
    case OP_OR: return old | b;
    case OP_XOR: return old ^ b;
    case OP_EXCH: return b;
    case OP_CAS: return old == b ? c : old;
    case OP_ADD_FLOAT: return ptx_bits_of(ptx_float_of((uint32_t)old) + ptx_float_of((uint32_t)b));
    }
    return old;
}

/* The lanes operate one after the other. */
static void atomic(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint32_t in = s->count, width = s->bytes;
    bool wrote = false;
    PTX_ACTIVE(l) {
        uint8_t *p = ptx_reach(w, s, l, s->space, address_of(w, s, in, l), s->bytes, true);
        if (!p) {
            return;
        }
        uint64_t old = 0, b = 0, c = 0;
        memcpy(&old, p, width);
        memcpy(&b, PTX_IN(uint8_t, in + 1) + l * width, width);
        if (s->a == OP_CAS) {
            memcpy(&c, PTX_IN(uint8_t, in + 2) + l * width, width);
        }
        uint64_t now = operate(s, old, b, c);
        wrote = wrote || memcmp(&now, p, width) != 0;
        memcpy(p, &now, width);
        if (s->count > 0) {
            memcpy(PTX_OUT(uint8_t, 0) + l * width, &old, width);
        }
    }
    w->polled = !wrote;
    w->acted = w->acted || wrote;
    w->polls_global = w->polls_global || (!wrote && s->space != PTX_SHARED);
}

bool ptx_atom_decode(ptx_code *c)
{
    static const char *const names[] = { "add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas", NULL };
    ptx_step *s = c->step;
    bool atom = ptx_code_is(c, "atom"), sign;
    if (!atom && !ptx_code_is(c, "red")) {
        return false;
    }
    int op = ptx_code_one(c, names), space = ptx_code_one(c, spaces);
    bool is_float = ptx_code_has(c, "f32");
    s->bytes = (uint8_t)type_of(c, &sign);
    s->space = space < 0 ? PTX_GENERIC : space_of[space];
    s->c = sign;
    s->count = atom;
    s->a = (uint8_t)(is_float && op == OP_ADD ? OP_ADD_FLOAT : op);
    s->run = atomic;
    qualifiers_skip(c);
    bool known = op >= 0 && (s->bytes == 4 || s->bytes == 8) && (!is_float || op == OP_ADD || op == OP_EXCH);
    if (!known || ptx_code_has(c, "f64") || ptx_code_has(c, "f16x2")) {
        ptx_code_fail(c, "this atomic operation is not supported");
        return true;
    }
    if (atom) {
        ptx_code_outs(c, 0, s->bytes, 1);
    }
    ptx_code_address(c, s->count);
    ptx_code_ins(c, s->count + 1u, s->bytes, 1);
    if (op == OP_CAS) {
        ptx_code_ins(c, s->count + 2u, s->bytes, 1);
    }
    return true;
}
