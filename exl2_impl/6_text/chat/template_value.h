/* template_value.h: the values of templates, and the caller's block that holds them. Values grow from the front of the
   block, pieces of output from the back. After both follows one mark bit per byte: "came from a message".
   takes: exl2__template and a block.
   gives: exl2__template_value, exl2__template_run, room, marks, steps, failures.
   owns:  nothing; the block belongs to the caller. Values in it are never freed and, but for namespaces, never changed.
 */
#ifndef EXL2__TEMPLATE_VALUE_H
#define EXL2__TEMPLATE_VALUE_H

#include "template_code.h"
#include "../unicode/unicode.h"

#define EXL2__TEMPLATE_STEPS_MAX (10u << 20)
#define EXL2__TEMPLATE_BLOCK_MAX (64u << 20) /* a render that needs a larger block fails */
#define EXL2__TEMPLATE_VALUE_DEPTH 80u       /* nested lists and dicts; JSON has at most 64 */
#define EXL2__TEMPLATE_CALLS_MAX 32u         /* nested calls of macros */
#define EXL2__TEMPLATE_FRAMES_MAX 128u       /* nested loops and blocks, over all calls */

typedef enum exl2__template_kind {
    EXL2__TEMPLATE_KIND_UNDEFINED,
    EXL2__TEMPLATE_KIND_NONE,
    EXL2__TEMPLATE_KIND_BOOL,
    EXL2__TEMPLATE_KIND_INT,
    EXL2__TEMPLATE_KIND_BIG, /* an integer beyond int64_t: as.text holds its decimal digits, perhaps after a minus */
    EXL2__TEMPLATE_KIND_REAL,
    EXL2__TEMPLATE_KIND_TEXT,
    EXL2__TEMPLATE_KIND_LIST,
    EXL2__TEMPLATE_KIND_TUPLE,
    EXL2__TEMPLATE_KIND_RANGE, /* stored as a list of its numbers */
    EXL2__TEMPLATE_KIND_VIEW,  /* result of items(), keys() or values(): can be iterated over, not indexed */
    EXL2__TEMPLATE_KIND_DICT,
    EXL2__TEMPLATE_KIND_NAMESPACE,
    EXL2__TEMPLATE_KIND_LOOP,
    EXL2__TEMPLATE_KIND_GENERATOR, /* result of map(), select() ... in as.loop: can be iterated over once */
    EXL2__TEMPLATE_KIND_MACRO,
    EXL2__TEMPLATE_KIND_METHOD,    /* d.items without a call; as.text is its name */
    EXL2__TEMPLATE_KIND_FUNCTION,  /* one that Jinja or transformers predefines; as.text is its name */
    EXL2__TEMPLATE_KIND_CYCLER,    /* in as.loop; `at` is the present element */
    EXL2__TEMPLATE_KIND_JOINER     /* in as.loop, whose only element is the separator; at: it was called before */
} exl2__template_kind;

/* Why a value is undefined; text = the name, owner = kind of the object. */
typedef enum exl2__template_why {
    EXL2__TEMPLATE_NO_VARIABLE,
    EXL2__TEMPLATE_NO_ATTRIBUTE,
    EXL2__TEMPLATE_NO_ELEMENT,
    EXL2__TEMPLATE_NO_BRANCH /* `x if false`; count = offset in the source */
} exl2__template_why;

typedef enum exl2__template_view {
    EXL2__TEMPLATE_VIEW_ITEMS,
    EXL2__TEMPLATE_VIEW_KEYS,
    EXL2__TEMPLATE_VIEW_VALUES
} exl2__template_view;

typedef struct exl2__template_entry exl2__template_entry;
typedef struct exl2__template_namespace exl2__template_namespace;
typedef struct exl2__template_loop exl2__template_loop;
typedef struct exl2__template_macro exl2__template_macro;

typedef struct exl2__template_value {
    uint8_t kind;   /* exl2__template_kind */
    bool marked;    /* from a message or tool: its printed digits and brackets get marks. A text has a mark per byte */
    uint8_t why, owner; /* of an undefined value; of a text: why = 1 if it is safe (escaped for HTML); of a tuple:
                           why = 1 if it is one of groupby; of a view: why = exl2__template_view */
    uint32_t count; /* bytes, elements, entries */
    union {
        int64_t integer; /* INT, BOOL */
        double real;
        const char *text;
        const struct exl2__template_value *items;
        const exl2__template_entry *entries; /* in order of insertion */
        exl2__template_namespace *space;
        exl2__template_loop *loop;
        const exl2__template_macro *macro;
    } as;
} exl2__template_value;

struct exl2__template_entry {
    exl2__template_value key, value;
};

struct exl2__template_namespace { /* a namespace, the only value that changes */
    exl2__template_entry *entries;
    uint32_t count, room;
};

struct exl2__template_loop {
    const exl2__template_value *items;
    uint32_t count, at; /* at: next element */
    uint32_t depth;     /* enclosing loops */
    uint32_t kept_count;
    bool ran;           /* the body reached its end at least once */
    exl2__template_value *kept;   /* elements that meet the condition; NULL: no condition */
    exl2__template_value changed; /* arguments of the last loop.changed() */
};

struct exl2__template_macro {
    const exl2__template_ins *first;
    uint32_t frames;          /* frames open at its definition, in call number `serial` at nesting `depth` */
    uint32_t depth, serial, uses;
    uint32_t name;            /* as in the instruction MACRO */
};

typedef struct exl2__template_piece { /* a piece of the output; pieces are in order */
    const char *text;
    size_t bytes;
} exl2__template_piece;

typedef struct exl2__template_binding {
    exl2__template_value value;
    uint32_t frame; /* frame that the variable belongs to; 0 = the template's own */
    bool bound;
} exl2__template_binding;

/* A binding that a frame restores when it closes. Closed frames' records are reused (free_undo). */
typedef struct exl2__template_undo {
    struct exl2__template_undo *next;
    exl2__template_binding before;
    uint32_t name;
} exl2__template_undo;

typedef struct exl2__template_frame {
    exl2__template_undo *undo;
    exl2__template_loop *loop; /* NULL: not the frame of a loop */
    uint32_t pieces;           /* pieces of output when the frame was opened */
    bool capture;
} exl2__template_frame;

/* One call of a macro; number 0 is the template itself. Its variables begin with the values that are visible at the
   macro's definition. */
typedef struct exl2__template_context {
    exl2__template_binding *variables; /* [program->name_count] */
    exl2__template_value *stack;       /* [program->stack_max] */
    const exl2__template_value *given; /* arguments: count values, then pairs */
    const exl2__template_ins *back;    /* the instruction that called */
    uint32_t top, base;                /* values on the stack; frames below those of this call */
    uint32_t count, pairs, serial;
} exl2__template_context;

typedef enum exl2__template_clock_part {
    EXL2__TEMPLATE_YEAR,
    EXL2__TEMPLATE_MONTH, /* from 1 */
    EXL2__TEMPLATE_DAY,   /* from 1 */
    EXL2__TEMPLATE_HOUR,
    EXL2__TEMPLATE_MINUTE,
    EXL2__TEMPLATE_SECOND,
    EXL2__TEMPLATE_CLOCK_PARTS
} exl2__template_clock_part;

typedef struct exl2__template_run {
    exl2__ctx *c;
    const exl2__template *program;
    const exl2__template_ins *now; /* present instruction, for messages; NULL before the first */
    uint8_t *block, *marks;        /* marks: bit i belongs to block[i] */
    size_t used, room;             /* bytes of values; bytes that values and pieces share */
    uint32_t pieces, steps, top, frames;
    bool largest;                  /* the block has the largest size allowed */
    bool trusted;                  /* texts that are added now stay unmarked: their special tokens count */
    exl2__template_value *stack;       /* stack and variables of the innermost call */
    exl2__template_binding *variables;
    uint32_t base, depth, serial;      /* frames below those of the innermost call; nested calls; calls so far */
    int32_t clock[EXL2__TEMPLATE_CLOCK_PARTS]; /* for strftime_now, as exl2__platform_local_time gives it; month 0: not
                                                  read yet */
    const exl2__template_ins *next;    /* target of a call or return; NULL: the following instruction */
    exl2__template_undo *free_undo;
    size_t textless;                   /* the first message with tool calls and without text, from 1; 0: none */
    exl2__template_context context[EXL2__TEMPLATE_CALLS_MAX + 1];
    exl2__template_frame frame[EXL2__TEMPLATE_FRAMES_MAX]; /* frame 0: the template's own */
} exl2__template_run;

/* ---- failing ---- */

/* Fails with a message that begins with the position in the template. */
EXL2__PRINTF(3, 4)
EXL2__PRIVATE exl2_result exl2__template_fail(exl2__template_run *r, exl2_result code, const char *format, ...)
{
    char text[sizeof r->c->error.text];
    va_list args;
    va_start(args, format);
    exl2__format_list(text, sizeof text, format, args);
    va_end(args);
    if (!r->now) {
        return exl2__fail(r->c, code, "chat template: %s", text);
    }
    uint32_t line, column;
    exl2__unicode_place(r->program->text, r->now->at, &line, &column);
    if (r->textless && (strstr(text, "None") || strstr(text, "'content'"))) { /* what such messages run into */
        return exl2__fail(r->c, code, "chat template line %u, column %u: %.*s (message %zu has tool_calls, but no "
                          "text; this template may need one, such as \"\")", line, column, 100, text, r->textless - 1);
    }
    return exl2__fail(r->c, code, "chat template line %u, column %u: %s", line, column, text);
}

EXL2__PRIVATE exl2_result exl2__template_unsupported(exl2__template_run *r, const char *what)
{
    return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "%s is not supported", what);
}

EXL2__PRIVATE exl2_result exl2__template_too_deep(exl2__template_run *r)
{
    return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "a value nested deeper than %u levels is not supported",
                               EXL2__TEMPLATE_VALUE_DEPTH);
}

/* Counts work, so that every template ends soon: an operation costs one step per element and one step per 16 bytes that
   it touches. A step lasts less than 200 ns; tests/unit/template_cost.c measures that. */
EXL2__PRIVATE exl2_result exl2__template_step(exl2__template_run *r, size_t cost)
{
    if (cost > EXL2__TEMPLATE_STEPS_MAX - r->steps) {
        return exl2__template_fail(r, EXL2_ERR_BUDGET, "rendering needs more than the allowed %u steps",
                                   EXL2__TEMPLATE_STEPS_MAX);
    }
    r->steps += (uint32_t)cost;
    return EXL2_OK;
}

/* Distance of the double from 1 in powers of two. The long arithmetic for its decimal digits costs in proportion. */
EXL2__PRIVATE uint32_t exl2__template_real_size(double real)
{
    uint64_t bits;
    memcpy(&bits, &real, sizeof bits);
    uint32_t power = (uint32_t)(bits >> 52 & 0x7FF);
    return bits << 1 == 0 ? 0 : power > 1023 ? power - 1023 : 1023 - power;
}

/* ---- room ---- */

EXL2__PRIVATE exl2_result exl2__template_no_room(exl2__template_run *r)
{
    if (r->largest) {
        return exl2__template_fail(r, EXL2_ERR_BUDGET, "rendering needs more than the allowed %u MiB",
                                   EXL2__TEMPLATE_BLOCK_MAX >> 20);
    }
    return EXL2_ERR_TOO_SMALL; /* without a message: the caller tries again with a larger block */
}

/* Allocates at the front of the block, aligned to `align` (at most 16, a power of two). */
EXL2__PRIVATE exl2_result exl2__template_alloc(exl2__template_run *r, uint64_t bytes, size_t align, void **out)
{
    uint64_t start = exl2__align_up(r->used, align);
    uint64_t limit = r->room - (uint64_t)r->pieces * sizeof(exl2__template_piece);
    if (start > limit || bytes > limit - start) {
        return exl2__template_no_room(r);
    }
    *out = r->block + start;
    r->used = (size_t)(start + bytes);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__template_alloc_values(exl2__template_run *r, uint64_t count, exl2__template_value **out)
{
    void *memory = NULL;
    EXL2__TRY(exl2__template_step(r, (size_t)exl2__min64(count, UINT32_MAX)));
    EXL2__TRY(exl2__template_alloc(r, count * sizeof **out, 8, &memory));
    *out = (exl2__template_value *)memory;
    return EXL2_OK;
}

/* ---- marks ---- */

EXL2__PRIVATE bool exl2__template_owned(const exl2__template_run *r, const char *text)
{
    uintptr_t at = (uintptr_t)text, base = (uintptr_t)r->block;
    return at >= base && at < base + r->room;
}

EXL2__PRIVATE void exl2__template_mark(exl2__template_run *r, const char *text, size_t bytes, bool mark)
{
    size_t at = (size_t)(text - (const char *)r->block), end = at + bytes;
    for (; at < end && at % 8; at++) {
        r->marks[at / 8] = (uint8_t)((r->marks[at / 8] & ~(1u << at % 8)) | (uint32_t)mark << at % 8);
    }
    if (at < end) {
        memset(r->marks + at / 8, mark ? 0xFF : 0, (end - at) / 8);
        at += (end - at) / 8 * 8;
    }
    for (; at < end; at++) {
        r->marks[at / 8] = (uint8_t)((r->marks[at / 8] & ~(1u << at % 8)) | (uint32_t)mark << at % 8);
    }
}

/* Copies bytes with their marks. Text outside the block (the template's, special tokens) has none. */
EXL2__PRIVATE void exl2__template_copy(exl2__template_run *r, char *to, const char *from, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    memcpy(to, from, bytes);
    if (!exl2__template_owned(r, from)) {
        exl2__template_mark(r, to, bytes, false);
        return;
    }
    size_t at = (size_t)(to - (char *)r->block), source = (size_t)(from - (const char *)r->block);
    for (size_t i = 0; i < bytes; i++) {
        uint32_t bit = (uint32_t)r->marks[(source + i) / 8] >> (source + i) % 8 & 1u;
        r->marks[(at + i) / 8] = (uint8_t)((r->marks[(at + i) / 8] & ~(1u << (at + i) % 8)) | bit << (at + i) % 8);
    }
}

/* ---- making values ---- */

static inline exl2__template_value exl2__template_none(void)
{
    exl2__template_value v = { EXL2__TEMPLATE_KIND_NONE, false, 0, 0, 0, { 0 } };
    return v;
}

static inline exl2__template_value exl2__template_int(int64_t integer)
{
    exl2__template_value v = { EXL2__TEMPLATE_KIND_INT, false, 0, 0, 0, { 0 } };
    v.as.integer = integer;
    return v;
}

static inline exl2__template_value exl2__template_bool(bool truth)
{
    exl2__template_value v = exl2__template_int(truth);
    v.kind = EXL2__TEMPLATE_KIND_BOOL;
    return v;
}

static inline exl2__template_value exl2__template_real(double real)
{
    exl2__template_value v = { EXL2__TEMPLATE_KIND_REAL, false, 0, 0, 0, { 0 } };
    v.as.real = real;
    return v;
}

static inline exl2__template_value exl2__template_text(const char *text, size_t bytes)
{
    exl2__template_value v = { EXL2__TEMPLATE_KIND_TEXT, false, 0, 0, (uint32_t)bytes, { 0 } };
    v.as.text = text;
    return v;
}

static inline exl2__template_value exl2__template_big(const char *digits, size_t bytes)
{
    exl2__template_value v = exl2__template_text(digits, bytes);
    v.kind = EXL2__TEMPLATE_KIND_BIG;
    return v;
}

static inline exl2__template_value exl2__template_items(exl2__template_kind kind, const exl2__template_value *items,
                                                        uint32_t count)
{
    exl2__template_value v = { (uint8_t)kind, false, 0, 0, count, { 0 } };
    v.as.items = items;
    return v;
}

static inline exl2__template_value exl2__template_undefined(exl2__template_why why, const exl2__template_value *owner,
                                                            const char *name, size_t bytes)
{
    exl2__template_value v = exl2__template_text(name, bytes);
    v.kind = EXL2__TEMPLATE_KIND_UNDEFINED;
    v.why = (uint8_t)why;
    v.owner = owner ? owner->kind : 0;
    return v;
}

/* Allocates a text of `bytes` bytes, which the caller fills and marks. */
EXL2__PRIVATE exl2_result exl2__template_alloc_text(exl2__template_run *r, uint64_t bytes, exl2__template_value *out,
                                                    char **text)
{
    void *memory = NULL;
    EXL2__TRY(exl2__template_step(r, (size_t)exl2__min64(bytes / 16 + 1, UINT32_MAX)));
    EXL2__TRY(exl2__template_alloc(r, bytes, 1, &memory));
    *text = (char *)memory;
    *out = exl2__template_text(*text, (size_t)bytes);
    return EXL2_OK;
}

/* Copies a text; all bytes of the copy are marked, or none is. */
EXL2__PRIVATE exl2_result exl2__template_copy_text(exl2__template_run *r, const char *text, size_t bytes, bool mark,
                                                   exl2__template_value *out)
{
    char *to = NULL;
    EXL2__TRY(exl2__template_alloc_text(r, bytes, out, &to));
    if (bytes) {
        memcpy(to, text, bytes);
        exl2__template_mark(r, to, bytes, mark);
    }
    return EXL2_OK;
}

/* ---- names of kinds as in Python's messages ---- */

EXL2__PRIVATE const char *exl2__template_type(const exl2__template_value *v)
{
    static const char *const names[] = { "Undefined", "NoneType", "bool", "int", "int", "float", "str", "list", "tuple",
                                         "range", "view", "dict", "Namespace", "LoopContext", "generator", "Macro",
                                         "method", "function", "Cycler", "Joiner" };
    return names[v->kind];
}

/* Fails because an undefined value is used. */
EXL2__PRIVATE exl2_result exl2__template_fail_undefined(exl2__template_run *r, const exl2__template_value *v)
{
    exl2__template_value owner = { v->owner, false, 0, 0, 0, { 0 } };
    const char *type = v->owner == EXL2__TEMPLATE_KIND_NONE ? "None" : exl2__template_type(&owner);
    const char *object = v->owner == EXL2__TEMPLATE_KIND_NONE ? "" : " object";
    uint32_t line, column;
    switch (v->why) {
    case EXL2__TEMPLATE_NO_VARIABLE:
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "'%.*s' is undefined", (int)v->count, v->as.text);
    case EXL2__TEMPLATE_NO_ATTRIBUTE:
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "'%s%s' has no attribute '%.*s'", type, object, (int)v->count,
                                   v->as.text);
    case EXL2__TEMPLATE_NO_ELEMENT:
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "%s%s has no such element", type, object);
    default:
        exl2__unicode_place(r->program->text, v->count, &line, &column);
        return exl2__template_fail(r, EXL2_ERR_FORMAT,
                                   "the inline if-expression on line %u evaluated to false and no else section was "
                                   "defined.",
                                   line);
    }
}

EXL2__PRIVATE bool exl2__template_is_number(const exl2__template_value *v)
{
    return v->kind == EXL2__TEMPLATE_KIND_BOOL || v->kind == EXL2__TEMPLATE_KIND_INT ||
           v->kind == EXL2__TEMPLATE_KIND_REAL;
}

EXL2__PRIVATE bool exl2__template_is_integer(const exl2__template_value *v)
{
    return v->kind == EXL2__TEMPLATE_KIND_BOOL || v->kind == EXL2__TEMPLATE_KIND_INT;
}

/* A number or an integer beyond 64 bits, which only printing, JSON and comparisons accept. */
EXL2__PRIVATE bool exl2__template_is_numeric(const exl2__template_value *v)
{
    return exl2__template_is_number(v) || v->kind == EXL2__TEMPLATE_KIND_BIG;
}

EXL2__PRIVATE bool exl2__template_is_sequence(const exl2__template_value *v)
{
    return v->kind >= EXL2__TEMPLATE_KIND_LIST && v->kind <= EXL2__TEMPLATE_KIND_VIEW;
}

EXL2__PRIVATE double exl2__template_as_real(const exl2__template_value *v)
{
    return v->kind == EXL2__TEMPLATE_KIND_REAL ? v->as.real : (double)v->as.integer;
}

/* The truth of a value, as `if` tests it. */
EXL2__PRIVATE bool exl2__template_truth(const exl2__template_value *v)
{
    switch (v->kind) {
    case EXL2__TEMPLATE_KIND_UNDEFINED:
    case EXL2__TEMPLATE_KIND_NONE:
        return false;
    case EXL2__TEMPLATE_KIND_BOOL:
    case EXL2__TEMPLATE_KIND_INT:
        return v->as.integer != 0;
    case EXL2__TEMPLATE_KIND_REAL:
        return v->as.real != 0;
    case EXL2__TEMPLATE_KIND_NAMESPACE:
    case EXL2__TEMPLATE_KIND_LOOP:
    case EXL2__TEMPLATE_KIND_GENERATOR:
    case EXL2__TEMPLATE_KIND_MACRO:
    case EXL2__TEMPLATE_KIND_METHOD:
    case EXL2__TEMPLATE_KIND_FUNCTION:
    case EXL2__TEMPLATE_KIND_CYCLER:
    case EXL2__TEMPLATE_KIND_JOINER:
        return true;
    default:
        return v->count != 0;
    }
}

/* ---- arguments of calls ---- */

/* NULL: not given. */
typedef const exl2__template_value *const *exl2__template_args; /* [EXL2__TEMPLATE_ARGS_MAX] */

/* What a filter, method or predefined function computes from. */
typedef struct exl2__template_operands {
    const exl2__template_value *value; /* on the left of a filter; the object of a method; NULL: of a function */
    exl2__template_args args;          /* by the parameters of its row */
    uint32_t with;                     /* the row's last column */
} exl2__template_operands;

typedef exl2_result (*exl2__template_function)(exl2__template_run *r, const exl2__template_operands *in,
                                               exl2__template_value *out);

/* A row of a table in template_code.h. */
typedef struct exl2__template_function_row {
    exl2__template_function function;
    uint32_t with;
} exl2__template_function_row;

EXL2__PRIVATE bool exl2__template_flag(const exl2__template_value *flag)
{
    return flag && exl2__template_truth(flag);
}

#endif
