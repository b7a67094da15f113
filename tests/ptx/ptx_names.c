/* ptx_names.c: declarations of registers and variables, and operands of instructions.
   takes: ptx_read.h.
   gives: ptx_name_add, ptx_name_find, ptx_registers_read, ptx_variable_read, ptx_operand_read, ptx_scope_open,
          ptx_type_bytes. */
#include "ptx_read.h"

#include <ctype.h>

#define ALIGN_MAX 65536u

static uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

/* A number without a sign: decimal, hexadecimal, octal or binary. */
static uint64_t number_of(const ptx_word *word)
{
    char text[32];
    uint32_t n = word->bytes < sizeof text - 1 ? word->bytes : (uint32_t)sizeof text - 1;
    memcpy(text, word->at, n);
    text[n] = 0;
    return text[0] == '0' && (text[1] == 'b' || text[1] == 'B') ? strtoull(text + 2, NULL, 2) : strtoull(text, NULL, 0);
}

static uint64_t number_read(ptx_reader *r)
{
    const ptx_word *word = ptx_word_now(r);
    if (!isdigit((unsigned char)*word->at)) {
        ptx_read_fail(r, word, "a number is expected here");
        return 0;
    }
    r->at++;
    return number_of(word);
}

uint32_t ptx_type_bytes(const ptx_word *word)
{
    static const struct { const char *name; uint32_t bytes; } types[] = {
        { ".pred", 1 }, { ".b8", 1 }, { ".u8", 1 }, { ".s8", 1 }, { ".b16", 2 }, { ".u16", 2 }, { ".s16", 2 },
        { ".f16", 2 }, { ".bf16", 2 }, { ".b32", 4 }, { ".u32", 4 }, { ".s32", 4 }, { ".f32", 4 }, { ".f16x2", 4 },
        { ".b64", 8 }, { ".u64", 8 }, { ".s64", 8 }, { ".f64", 8 } };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (ptx_word_is(word, types[i].name)) {
            return types[i].bytes;
        }
    }
    return 0;
}

uint32_t ptx_scope_open(ptx_reader *r)
{
    PTX_GROW(r->parents, r->scope_count, r->scope_cap);
    r->parents[r->scope_count] = r->scope;
    r->scope = r->scope_count++;
    return r->scope;
}

ptx_name *ptx_name_add(ptx_reader *r, ptx_name_kind kind, const ptx_word *word)
{
    PTX_GROW(r->names, r->name_count, r->name_cap);
    ptx_name *name = &r->names[r->name_count++];
    *name = (ptx_name){ .kind = kind, .word = *word, .placed = true, .align = 1 };
    return name;
}

/* The place of a variable of the module in the shared memory of this kernel. */
static void place_shared(ptx_reader *r, ptx_name *name)
{
    uint64_t at = align_up(r->shared_at, name->align);
    if (at + name->bytes > PTX_SPACE_MAX) {
        ptx_read_fail(r, &name->word, "the kernel's variables are too large");
        return;
    }
    name->address = at;
    name->placed = true;
    r->shared_at = (uint32_t)(at + name->bytes);
}

/* The innermost declaration. id: the number of a register. */
const ptx_name *ptx_name_find(ptx_reader *r, const ptx_word *word, uint32_t *id)
{
    uint32_t digits = 0, number = 0;
    while (digits < word->bytes && digits < 9 && isdigit((unsigned char)word->at[word->bytes - 1 - digits])) {
        digits++;
    }
    for (uint32_t i = word->bytes - digits; i < word->bytes; i++) {
        number = number * 10 + (uint32_t)(word->at[i] - '0');
    }
    ptx_word prefix = { word->at, word->bytes - digits, word->line };
    for (uint32_t i = r->name_count; i-- > 0;) {
        ptx_name *name = &r->names[i];
        if (name->kind == PTX_NAME_REGISTERS && digits > 0 && ptx_word_same(&name->word, &prefix)) {
            *id = name->id + number;
            return number < name->count ? name : NULL;
        }
        if (name->kind != PTX_NAME_REGISTERS && ptx_word_same(&name->word, word)) {
            *id = name->id;
            if (!name->placed) {
                place_shared(r, name);
            }
            return name;
        }
    }
    return NULL;
}

/* Behind ".reg": a type and names; NAME<N> are registers NAME0 to NAME(N-1). */
void ptx_registers_read(ptx_reader *r)
{
    const ptx_word *type = ptx_word_now(r);
    uint32_t bytes = ptx_word_is(type, ".b128") ? 16 : ptx_type_bytes(type);
    uint8_t width = (uint8_t)(bytes == 1 && !ptx_word_is(type, ".pred") ? 2 : bytes);
    if (width == 0) {
        ptx_read_fail(r, type, "this type of registers is not supported");
    }
    ptx_word_next(r);
    do {
        const ptx_word *word = ptx_word_next(r);
        bool many = ptx_word_skip(r, "<");
        uint64_t count = many ? number_read(r) : 1;
        if (many) {
            ptx_word_want(r, ">");
        }
        if (count > 1u << 20) {
            ptx_read_fail(r, word, "too many registers");
            return;
        }
        ptx_name *name = ptx_name_add(r, many ? PTX_NAME_REGISTERS : PTX_NAME_REGISTER, word);
        name->width = width;
        name->id = r->register_count;
        name->count = (uint32_t)count;
        for (uint64_t i = 0; i < count; i++) {
            PTX_GROW(r->widths, r->register_count, r->register_cap);
            r->widths[r->register_count++] = width;
        }
    } while (!r->failed && ptx_word_skip(r, ","));
    ptx_word_want(r, ";");
}

/* The numbers of an initializer. */
static void initializer_read(ptx_reader *r, uint8_t *memory, uint64_t bytes, uint32_t element)
{
    bool list = ptx_word_skip(r, "{");
    for (uint64_t at = 0; !r->failed; at += element) {
        ptx_operand o;
        ptx_operand_read(r, &o);
        if (o.kind != PTX_IS_NUMBER || at + element > bytes) {
            ptx_read_fail(r, ptx_word_now(r), "this initializer is not supported");
            return;
        }
        memcpy(memory + at, &o.value, element);
        if (!list || !ptx_word_skip(r, ",")) {
            break;
        }
    }
    if (list) {
        ptx_word_want(r, "}");
    }
}

/* Places a variable in the memory of its space. */
static void place(ptx_reader *r, ptx_name *name, bool of_kernel, bool constant)
{
    uint32_t *at = name->space == PTX_LOCAL ? &r->local_at : &r->parameter_at;
    if (name->dynamic) {
        r->dynamic_align = name->align > r->dynamic_align ? name->align : r->dynamic_align;
    } else if (name->space == PTX_SHARED) {
        name->placed = of_kernel;
        if (of_kernel) {
            place_shared(r, name);
        }
    } else if (name->space == PTX_GLOBAL) {
        ptx_variable *v = ptx_alloc(r->module, sizeof *v);
        v->memory = ptx_alloc(r->module, (size_t)name->bytes);
        v->bytes = (size_t)name->bytes;
        v->constant = constant;
        v->next = r->module->variables;
        r->module->variables = v;
        name->address = (uint64_t)(uintptr_t)v->memory;
    } else {
        *at = (uint32_t)align_up(*at, name->align);
        name->address = *at;
        *at += (uint32_t)name->bytes;
    }
}

ptx_name *ptx_variable_read(ptx_reader *r, bool of_kernel)
{
    static const struct { const char *name; ptx_space space; } spaces[] = { { ".shared", PTX_SHARED },
        { ".local", PTX_LOCAL }, { ".param", PTX_PARAM }, { ".global", PTX_GLOBAL }, { ".const", PTX_GLOBAL } };
    uint32_t element = 0, align = 1;
    uint8_t space = 0;
    bool external = false, constant = false;
    for (; *ptx_word_now(r)->at == '.' && element == 0; ptx_word_next(r)) {
        const ptx_word *word = ptx_word_now(r);
        for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
            space = ptx_word_is(word, spaces[i].name) ? (uint8_t)spaces[i].space : space;
        }
        external = external || ptx_word_is(word, ".extern");
        constant = constant || ptx_word_is(word, ".const");
        if (ptx_word_is(word, ".align")) {
            ptx_word_next(r);
            align = (uint32_t)number_of(ptx_word_now(r));
        }
        element = ptx_type_bytes(word);
    }
    const ptx_word *word = ptx_word_next(r);
    if (element == 0 || align == 0 || align > ALIGN_MAX || (align & (align - 1))) {
        ptx_read_fail(r, word, "this declaration is not supported");
        return NULL;
    }
    ptx_name *name = ptx_name_add(r, PTX_NAME_VARIABLE, word);
    name->space = space;
    name->bytes = element;
    name->align = align > element ? align : element;
    while (ptx_word_skip(r, "[")) {
        uint64_t count = ptx_word_is(ptx_word_now(r), "]") ? 0 : number_read(r);
        name->bytes = count < 1u << 28 && name->bytes < 1u << 28 ? name->bytes * count : 0;
        ptx_word_want(r, "]");
    }
    name->dynamic = external && space == PTX_SHARED && name->bytes == 0;
    if ((name->bytes == 0 && !name->dynamic) || name->bytes > 1u << 28) {
        ptx_read_fail(r, word, "the variable has no size, or too large a one");
        return NULL;
    }
    place(r, name, of_kernel, constant);
    if (r->local_at > PTX_SPACE_MAX || r->parameter_at > PTX_SPACE_MAX) {
        ptx_read_fail(r, word, "the kernel's variables are too large");
        return NULL;
    }
    if (ptx_word_skip(r, "=")) {
        if (space != PTX_GLOBAL) {
            ptx_read_fail(r, word, "only global and constant variables have initializers");
            return NULL;
        }
        initializer_read(r, (uint8_t *)(uintptr_t)name->address, name->bytes, element);
    }
    return r->failed ? NULL : name;
}

/* ---- operands ---- */

/* A number: integer, 0fXXXXXXXX, 0dXXXXXXXXXXXXXXXX, or with a point. */
static void number_operand(ptx_reader *r, ptx_operand *o)
{
    const ptx_word *word = ptx_word_next(r);
    o->kind = PTX_IS_NUMBER;
    char kind = word->bytes > 2 ? (char)tolower((unsigned char)word->at[1]) : 0;
    if (word->at[0] == '0' && (kind == 'f' || kind == 'd')) {
        o->is_float = true;
        o->width = kind == 'f' ? 4 : 8;
        o->value = strtoull(word->at + 2, NULL, 16);
    } else if (memchr(word->at, '.', word->bytes)) {
        double value = strtod(word->at, NULL);
        o->is_float = true;
        o->width = 8;
        memcpy(&o->value, &value, 8);
    } else {
        o->value = number_of(word);
    }
}

static const char *const specials[] = { "%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x",
    "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%warpid", "%smid", "%clock",
    "%clock64", "%globaltimer", "%globaltimer_lo", "%cluster_ctarank", "%cluster_nctarank", "%cluster_ctaid.x",
    "%cluster_nctaid.x", "%clusterid.x", "%nclusterid.x", "%lanemask_lt", "%lanemask_le", "%lanemask_eq",
    "%lanemask_gt", "%lanemask_ge", "%dynamic_smem_size" };

static void name_operand(ptx_reader *r, ptx_operand *o)
{
    const ptx_word *word = ptx_word_next(r);
    uint32_t id = 0;
    const ptx_name *name = ptx_name_find(r, word, &id);
    if (!name && *word->at == '%') {
        for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
            if (ptx_word_is(word, specials[i])) {
                o->kind = PTX_IS_SPECIAL;
                o->id = (int32_t)i;
                return;
            }
        }
        ptx_read_fail(r, word, "there is no such register");
    } else if (!name) {
        o->kind = ptx_word_is(word, "_") ? PTX_IS_SINK : PTX_IS_LABEL;
    } else if (name->kind == PTX_NAME_VARIABLE) {
        o->kind = PTX_IS_SYMBOL;
        o->value = name->address;
        o->dynamic = name->dynamic;
        o->space = name->space;
    } else if (name->kind == PTX_NAME_FUNCTION) {
        o->kind = PTX_IS_LABEL;
    } else {
        o->kind = PTX_IS_REGISTER;
        o->id = (int32_t)id;
        o->width = name->width;
    }
}

static void simple_operand(ptx_reader *r, ptx_operand *o)
{
    *o = (ptx_operand){ .pair = -1 };
    o->negated = ptx_word_skip(r, "!");
    bool negative = ptx_word_skip(r, "-");
    if (isdigit((unsigned char)*ptx_word_now(r)->at)) {
        number_operand(r, o);
        o->value = negative ? (o->is_float ? o->value ^ 1ull << (o->width * 8 - 1) : 0 - o->value) : o->value;
        return;
    }
    name_operand(r, o);
    if (ptx_word_skip(r, "|")) {
        ptx_operand second = { .pair = -1 };
        name_operand(r, &second);
        o->pair = second.kind == PTX_IS_REGISTER ? second.id : -1;
    }
}

/* Base, and what is added to it. */
static void sum_operand(ptx_reader *r, ptx_operand *o)
{
    simple_operand(r, o);
    while (!r->failed && (ptx_word_is(ptx_word_now(r), "+") || ptx_word_is(ptx_word_now(r), "-"))) {
        bool minus = ptx_word_skip(r, "-");
        if (!minus) {
            ptx_word_want(r, "+");
            minus = ptx_word_skip(r, "-");
        }
        int64_t n = (int64_t)number_read(r);
        o->offset += minus ? -n : n;
    }
}

void ptx_operand_read(ptx_reader *r, ptx_operand *o)
{
    ptx_code *c = &r->code;
    if (ptx_word_skip(r, "[")) {
        sum_operand(r, o);
        o->address = true;
        ptx_word_want(r, "]");
        return;
    }
    if (!ptx_word_skip(r, "{")) {
        sum_operand(r, o);
        if (o->kind == PTX_IS_SYMBOL || o->kind == PTX_IS_NUMBER) {
            o->value += (uint64_t)o->offset;
            o->offset = 0;
        }
        return;
    }
    *o = (ptx_operand){ .kind = PTX_IS_VECTOR, .pair = -1, .first = c->element_count };
    do {
        if (c->element_count == PTX_ELEMENTS) {
            ptx_read_fail(r, ptx_word_now(r), "too many operands");
            return;
        }
        simple_operand(r, &c->elements[c->element_count++]);
        o->count++;
    } while (!r->failed && ptx_word_skip(r, ","));
    ptx_word_want(r, "}");
}
