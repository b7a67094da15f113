/* ptx_read.h: a module while it is read: its words, its names, and the kernel that is being built.
   takes: ptx_parts.h.
   gives: the ptx_reader. */
#ifndef PTX_READ_H
#define PTX_READ_H

#include "ptx_parts.h"

#define PTX_SPACE_MAX (1u << 24) /* bytes of a kernel's variables in one space */

typedef struct ptx_word {
    const char *at;
    uint32_t bytes, line;
} ptx_word;

typedef enum ptx_name_kind {
    PTX_NAME_REGISTERS, PTX_NAME_REGISTER, PTX_NAME_VARIABLE, PTX_NAME_FUNCTION
} ptx_name_kind;

typedef struct ptx_name {
    ptx_name_kind kind;
    ptx_word word;
    uint8_t width;    /* of registers */
    uint8_t space;    /* of a variable */
    bool dynamic;     /* .extern .shared */
    bool placed;      /* false: a variable of the module in shared memory that this kernel has not used */
    uint32_t id, count;      /* of registers */
    uint64_t address, bytes; /* of a variable */
    uint32_t align;
    uint32_t head, body;     /* of a function: the words of its parameters and of its body */
} ptx_name;

typedef struct ptx_label {
    ptx_word word;
    uint32_t scope, step;
} ptx_label;

typedef struct ptx_constant {
    uint64_t value;
    uint32_t width;
    bool dynamic;
} ptx_constant;

struct ptx_reader {
    ptx_module *module;
    const char *text;
    ptx_word *words;
    uint32_t word_count, at;
    ptx_name *names;
    uint32_t name_count, name_cap;
    bool failed;
    char *error;
    size_t cap;
    /* the kernel that is being built */
    ptx_step *steps;
    uint32_t step_count, step_cap;
    ptx_label *labels, *jumps; /* jumps: which label a step goes to */
    uint32_t label_count, label_cap, jump_count, jump_cap;
    uint32_t *parents;         /* of scopes */
    uint32_t scope, scope_count, scope_cap;
    uint8_t *widths;           /* of registers */
    uint32_t register_count, register_cap;
    ptx_constant *constants;
    uint32_t constant_count, constant_cap;
    uint32_t shared_at, local_at, parameter_at, dynamic_align;
    uint32_t depth;            /* of functions in functions */
    ptx_code code;
};

/* Fails with the line of the word. */
void ptx_read_fail(ptx_reader *r, const ptx_word *word, const char *why);
/* Makes room for one more item. */
void *ptx_grow(void *items, uint32_t count, uint32_t *cap, size_t size);
#define PTX_GROW(items, count, cap) ((items) = ptx_grow((items), (count), &(cap), sizeof *(items)))

bool ptx_words_split(ptx_reader *r);
static inline const ptx_word *ptx_word_now(const ptx_reader *r) { return &r->words[r->at]; }
static inline bool ptx_word_is(const ptx_word *w, const char *text)
{
    return w->bytes == strlen(text) && memcmp(w->at, text, w->bytes) == 0;
}
static inline bool ptx_word_same(const ptx_word *a, const ptx_word *b)
{
    return a->bytes == b->bytes && memcmp(a->at, b->at, a->bytes) == 0;
}
/* The next word, which is skipped; the last one is empty, and stays. */
static inline const ptx_word *ptx_word_next(ptx_reader *r)
{
    const ptx_word *word = &r->words[r->at];
    r->at += r->at < r->word_count;
    return word;
}

/* If the next word is this, it is skipped. */
bool ptx_word_skip(ptx_reader *r, const char *text);
/* The next word must be this. */
void ptx_word_want(ptx_reader *r, const char *text);

/* ptx_names.c: declarations and operands. */
ptx_name *ptx_name_add(ptx_reader *r, ptx_name_kind kind, const ptx_word *word);
const ptx_name *ptx_name_find(ptx_reader *r, const ptx_word *word, uint32_t *id);
void ptx_registers_read(ptx_reader *r);
/* At .shared, .local, .param, .global, .const, or .extern and so on before these. Returns the variable. */
ptx_name *ptx_variable_read(ptx_reader *r, bool of_kernel);
void ptx_operand_read(ptx_reader *r, ptx_operand *o);
uint32_t ptx_scope_open(ptx_reader *r);
uint32_t ptx_type_bytes(const ptx_word *word); /* 0: it is no type; 1 also for .pred */

#endif
