/* ptx_decode.c: an instruction becomes a step: finds its function and lists its operands.
   takes: ptx_read.h; the tables and decoders of the other files.
   gives: ptx_decode, and what decoders use: ptx_code_... */
#include "ptx_read.h"

void ptx_code_fail(ptx_code *c, const char *why)
{
    ptx_read_fail(c->reader, &(ptx_word){ c->op, (uint32_t)strlen(c->op), c->step->line }, why);
    c->failed = true;
}

bool ptx_code_is(const ptx_code *c, const char *first) { return strcmp(c->mods[0], first) == 0; }

bool ptx_code_has(ptx_code *c, const char *word)
{
    for (uint32_t i = 1; i < c->mod_count; i++) {
        if (strcmp(c->mods[i], word) == 0) {
            c->used |= 1u << i;
            return true;
        }
    }
    return false;
}

int ptx_code_one(ptx_code *c, const char *const *words)
{
    for (int i = 0; words[i]; i++) {
        if (ptx_code_has(c, words[i])) {
            return i;
        }
    }
    return -1;
}

static void append(ptx_code *c, int32_t arg)
{
    ptx_step *s = c->step;
    ptx_module *m = c->reader->module;
    if ((s->args & (s->args + 1)) == 0 || !s->arg) { /* it is full at 0, 1, 3, 7, ... */
        int32_t *more = ptx_alloc(m, (s->args * 2u + 1) * sizeof *more);
        if (s->args > 0) {
            memcpy(more, s->arg, s->args * sizeof *more);
        }
        s->arg = more;
    }
    s->arg[s->args++] = arg;
}

/* A register that nobody reads. */
static int32_t sink(ptx_code *c, uint32_t width)
{
    ptx_reader *r = c->reader;
    PTX_GROW(r->widths, r->register_count, r->register_cap);
    r->widths[r->register_count] = (uint8_t)width;
    return (int32_t)r->register_count++;
}

void ptx_code_out(ptx_code *c, const ptx_operand *o, uint32_t width)
{
    if (o->kind == PTX_IS_SINK) {
        append(c, sink(c, width));
    } else if (o->kind != PTX_IS_REGISTER || o->width != width) {
        ptx_code_fail(c, "a destination is no register of the right size");
    } else {
        append(c, o->id);
    }
    c->step->defs = c->step->args;
}

static void constant(ptx_code *c, uint64_t value, uint32_t width, bool dynamic)
{
    ptx_reader *r = c->reader;
    value = width < 8 ? value & ((1ull << (width * 8)) - 1) : value;
    value = width == 1 ? (value ? PTX_ALL : 0) : value;
    for (uint32_t i = r->constant_count; i-- > 0;) {
        const ptx_constant *k = &r->constants[i];
        if (k->value == value && k->width == width && k->dynamic == dynamic) {
            append(c, ~(int32_t)i);
            return;
        }
    }
    PTX_GROW(r->constants, r->constant_count, r->constant_cap);
    r->constants[r->constant_count] = (ptx_constant){ value, width, dynamic };
    append(c, ~(int32_t)r->constant_count++);
}

void ptx_code_number(ptx_code *c, uint64_t value, uint32_t width) { constant(c, value, width, false); }

void ptx_code_in(ptx_code *c, const ptx_operand *o, uint32_t width)
{
    if (o->kind == PTX_IS_NUMBER && !(o->is_float && o->width != width)) {
        constant(c, o->value, width, false);
    } else if (o->kind == PTX_IS_SYMBOL) {
        constant(c, o->value, width, o->dynamic);
    } else if (o->kind != PTX_IS_REGISTER || o->width != width) {
        ptx_code_fail(c, "an operand has the wrong kind or size");
    } else {
        append(c, o->id);
    }
}

static void many(ptx_code *c, uint32_t number, uint32_t width, uint32_t count,
                 void (*add)(ptx_code *c, const ptx_operand *o, uint32_t width))
{
    const ptx_operand *o = &c->operands[number];
    uint32_t given = number < c->operand_count ? (o->kind == PTX_IS_VECTOR ? o->count : 1) : 0;
    if (given != count) {
        ptx_code_fail(c, "an operand has the wrong number of registers");
        return;
    }
    for (uint32_t i = 0; i < count && !c->failed; i++) {
        add(c, o->kind == PTX_IS_VECTOR ? &c->elements[o->first + i] : o, width);
    }
}

void ptx_code_outs(ptx_code *c, uint32_t number, uint32_t width, uint32_t count)
{
    many(c, number, width, count, ptx_code_out);
}

void ptx_code_ins(ptx_code *c, uint32_t number, uint32_t width, uint32_t count)
{
    many(c, number, width, count, ptx_code_in);
}

void ptx_code_address(ptx_code *c, uint32_t number)
{
    const ptx_operand *o = &c->operands[number];
    if (number >= c->operand_count || !o->address
        || (o->kind != PTX_IS_REGISTER && o->kind != PTX_IS_SYMBOL && o->kind != PTX_IS_NUMBER)) {
        ptx_code_fail(c, "an address is expected");
        return;
    }
    c->step->offset = o->offset;
    /* Addresses of shared memory may be registers of 32 bits: b says so. */
    bool narrow = o->kind == PTX_IS_REGISTER && o->width == 4;
    if (o->kind == PTX_IS_SYMBOL && (c->step->space == PTX_GENERIC || c->step->space == PTX_PARAM)) {
        c->step->space = o->space;
    }
    c->step->b = narrow;
    ptx_code_in(c, o, narrow ? 4 : 8);
}

/* ---- instructions of the tables ---- */

static uint32_t width_of(char shape) { return shape == 'p' ? 1 : (uint32_t)(shape - '0'); }

static bool form_use(ptx_code *c, const ptx_form *form)
{
    const char *shape = form->shape;
    uint32_t number = 0;
    bool out = true;
    c->step->run = form->run;
    c->used = PTX_ALL;
    for (; *shape && !c->failed; shape++) {
        if (*shape == '=') {
            out = false;
            continue;
        }
        if (number == c->operand_count) {
            ptx_code_fail(c, "the instruction has too few operands");
            return true;
        }
        (out ? ptx_code_out : ptx_code_in)(c, &c->operands[number], width_of(*shape));
        number++;
    }
    if (number < c->operand_count) {
        ptx_code_fail(c, "the instruction has too many operands");
    }
    return true;
}

static bool form_decode(ptx_code *c)
{
    static const ptx_form *const tables[] = { ptx_integer_forms, ptx_float_forms, ptx_half_forms };
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const ptx_form *form = tables[t]; form->name; form++) {
            if (form->name[0] == c->op[0] && strcmp(form->name, c->op) == 0) {
                return form_use(c, form);
            }
        }
    }
    return false;
}

/* False: the instruction is unknown, or, if the code failed, used in a way that is. */
bool ptx_decode(ptx_code *c)
{
    static bool (*const decoders[])(ptx_code *c) = { form_decode, ptx_memory_decode, ptx_atom_decode, ptx_move_decode,
        ptx_convert_decode, ptx_compare_decode, ptx_warp_decode, ptx_matrix_decode, ptx_async_decode,
        ptx_wgmma_decode };
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) {
        if (decoders[i](c)) {
            uint32_t all = (1u << c->mod_count) - 1;
            return !c->failed && (c->used & all) == all && c->step->run;
        }
    }
    return false;
}
