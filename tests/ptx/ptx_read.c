/* ptx_read.c: reads a module: its kernels become lists of steps. A call of a function is replaced by the function's
   body, so that no lane needs a stack.
   takes: ptx_read.h; ptx_decode for each instruction.
   gives: ptx_load, ptx_free, ptx_kernel_of, ptx_shared_bytes, ptx_parameter_bytes, ptx_threads_max,
          ptx_cluster. */
#include "ptx_read.h"

#include <stdio.h>

#define DEPTH_MAX 16
#define STEPS_MAX (1u << 21)
#define RETURN_WORD "ret" /* no label of a program has this name, as instructions do */

static void body_read(ptx_reader *r);

static void label_add(ptx_reader *r, const ptx_word *word, uint32_t scope)
{
    PTX_GROW(r->labels, r->label_count, r->label_cap);
    r->labels[r->label_count++] = (ptx_label){ *word, scope, r->step_count };
}

static void jump_add(ptx_reader *r, const ptx_word *word, uint32_t scope)
{
    PTX_GROW(r->jumps, r->jump_count, r->jump_cap);
    r->jumps[r->jump_count++] = (ptx_label){ *word, scope, r->step_count };
}

/* ---- functions ---- */

/* At the "(" of parameters: each becomes a name for the variable that the caller gives. */
static void parameters_bind(ptx_reader *r, const ptx_name *given, uint32_t count)
{
    uint32_t i = 0;
    ptx_word_want(r, "(");
    while (!r->failed && !ptx_word_is(ptx_word_now(r), ")")) {
        while (*ptx_word_now(r)->at == '.' || ptx_word_is(&r->words[r->at - 1], ".align")) {
            ptx_word_next(r);
        }
        const ptx_word *word = ptx_word_next(r);
        if (i == count) {
            ptx_read_fail(r, word, "the call has too few arguments");
            return;
        }
        if (ptx_word_skip(r, "[")) {
            ptx_word_next(r);
            ptx_word_want(r, "]");
        }
        ptx_name *name = ptx_name_add(r, PTX_NAME_VARIABLE, word);
        name->space = given[i].space;
        name->address = given[i].address;
        name->bytes = given[i].bytes;
        i++;
        ptx_word_skip(r, ",");
    }
    ptx_word_want(r, ")");
}

/* A list of variables in parentheses, if there is one. Returns how many. */
static uint32_t arguments_read(ptx_reader *r, ptx_name out[16])
{
    uint32_t count = 0, id;
    if (!ptx_word_skip(r, "(")) {
        return 0;
    }
    do {
        const ptx_word *word = ptx_word_next(r);
        const ptx_name *name = ptx_name_find(r, word, &id);
        if (!name || name->kind != PTX_NAME_VARIABLE || count == 16) {
            ptx_read_fail(r, word, "this argument of a call is not supported");
            return 0;
        }
        out[count++] = *name;
    } while (ptx_word_skip(r, ","));
    ptx_word_want(r, ")");
    return count;
}

/* Behind "call": reads the function's body in place of the call. */
static void call_read(ptx_reader *r)
{
    ptx_name results[16], arguments[16];
    uint32_t id, result_count = arguments_read(r, results);
    if (result_count > 0) {
        ptx_word_want(r, ",");
    }
    const ptx_word *word = ptx_word_next(r);
    const ptx_name *found = r->failed ? NULL : ptx_name_find(r, word, &id);
    if (!found || found->kind != PTX_NAME_FUNCTION || found->body == 0 || r->depth == DEPTH_MAX) {
        ptx_read_fail(r, word, "this call is not supported");
        return;
    }
    ptx_name function = *found;
    uint32_t count = ptx_word_skip(r, ",") ? arguments_read(r, arguments) : 0;
    ptx_word_want(r, ";");
    uint32_t after = r->at, names = r->name_count, scope = r->scope;
    uint32_t inner = ptx_scope_open(r);
    r->depth++;
    r->at = function.head;
    if (ptx_word_is(ptx_word_now(r), "(")) {
        parameters_bind(r, results, result_count);
    }
    ptx_word_next(r); /* its name */
    if (ptx_word_is(ptx_word_now(r), "(")) {
        parameters_bind(r, arguments, count);
    }
    r->at = function.body;
    body_read(r);
    label_add(r, &(ptx_word){ RETURN_WORD, 3, word->line }, inner);
    r->depth--;
    r->name_count = names;
    r->scope = scope;
    r->at = after;
}

/* ---- instructions ---- */

/* The words of an opcode. */
static void opcode_split(ptx_code *c, const ptx_word *word)
{
    uint32_t n = word->bytes < sizeof c->op - 1 ? word->bytes : (uint32_t)sizeof c->op - 1;
    memcpy(c->op, word->at, n);
    c->op[n] = 0;
    memcpy(c->parts, c->op, n + 1);
    c->mod_count = 0;
    for (char *at = c->parts; at && c->mod_count < PTX_MODS;) {
        c->mods[c->mod_count++] = at;
        at = strchr(at, '.');
        if (at) {
            *at++ = 0;
        }
    }
}

static void guard_read(ptx_reader *r, ptx_step *step)
{
    bool negated = ptx_word_skip(r, "!");
    const ptx_word *word = ptx_word_next(r);
    uint32_t id;
    const ptx_name *name = ptx_name_find(r, word, &id);
    if (!name || name->kind == PTX_NAME_VARIABLE || name->width != 1) {
        ptx_read_fail(r, word, "a predicate is expected here");
        return;
    }
    step->guard = (int32_t)id;
    step->guard_not = negated;
}

static void instruction_read(ptx_reader *r)
{
    ptx_code *c = &r->code;
    ptx_step step = { .guard = PTX_NO_OPERAND, .target = PTX_NEVER };
    if (ptx_word_skip(r, "@")) {
        guard_read(r, &step);
    }
    const ptx_word *word = ptx_word_next(r);
    step.line = word->line;
    opcode_split(c, word);
    if (ptx_code_is(c, "call")) {
        if (step.guard != PTX_NO_OPERAND) {
            ptx_read_fail(r, word, "a call with a predicate is not supported");
        }
        call_read(r);
        return;
    }
    c->used = 1;
    c->operand_count = c->element_count = 0;
    while (!r->failed && !ptx_word_is(ptx_word_now(r), ";")) {
        if (c->operand_count == PTX_OPERANDS) {
            ptx_read_fail(r, word, "too many operands");
            return;
        }
        if (c->operand_count == 0 && ptx_code_is(c, "bra")) {
            jump_add(r, ptx_word_now(r), r->scope);
        }
        ptx_operand_read(r, &c->operands[c->operand_count++]);
        if (!ptx_word_is(ptx_word_now(r), ";")) {
            ptx_word_want(r, ",");
        }
    }
    ptx_word_want(r, ";");
    if (r->failed) {
        return;
    }
    if (r->depth > 0 && ptx_code_is(c, "ret")) { /* a function's end is a branch */
        uint32_t scope = r->scope;
        opcode_split(c, &(ptx_word){ "bra", 3, word->line });
        jump_add(r, &(ptx_word){ RETURN_WORD, 3, word->line }, scope);
        c->operand_count = 1;
        c->operands[0] = (ptx_operand){ .kind = PTX_IS_LABEL, .pair = -1 };
    }
    if (r->step_count == STEPS_MAX) {
        ptx_read_fail(r, word, "the kernel has too many instructions");
        return;
    }
    PTX_GROW(r->steps, r->step_count, r->step_cap);
    r->steps[r->step_count] = step;
    c->step = &r->steps[r->step_count];
    c->failed = false;
    if (!ptx_decode(c)) {
        char why[80];
        snprintf(why, sizeof why, "%s", c->failed ? "this form of the instruction is not supported"
                                                  : "this instruction is not supported");
        ptx_read_fail(r, word, why);
    }
    r->step_count++;
}

/* A variable in a body. A parameter of a call is memory of the lane. */
static void variable_read(ptx_reader *r)
{
    const ptx_word *word = ptx_word_now(r);
    ptx_name *name = ptx_variable_read(r, true);
    if (name && name->space == PTX_PARAM) {
        r->local_at = (r->local_at + name->align - 1) / name->align * name->align;
        name->address = r->local_at;
        name->space = PTX_LOCAL;
        r->local_at += (uint32_t)name->bytes;
        if (r->local_at > PTX_SPACE_MAX) {
            ptx_read_fail(r, word, "the kernel's variables are too large");
        }
    }
    ptx_word_want(r, ";");
}

/* At a "{": declarations and instructions up to its "}". */
static void body_read(ptx_reader *r)
{
    uint32_t depth = 0;
    uint32_t names[64];
    do {
        const ptx_word *word = ptx_word_now(r);
        if (word->bytes == 0) {
            ptx_read_fail(r, word, "the text ends within a body");
        } else if (ptx_word_skip(r, "{")) {
            if (depth == 64) {
                ptx_read_fail(r, word, "too many braces");
                return;
            }
            names[depth++] = r->name_count;
            ptx_scope_open(r);
        } else if (ptx_word_skip(r, "}")) {
            r->name_count = names[--depth];
            r->scope = r->parents[r->scope];
        } else if (ptx_word_skip(r, ".reg")) {
            ptx_registers_read(r);
        } else if (ptx_word_skip(r, ".pragma")) {
            ptx_word_next(r);
            ptx_word_want(r, ";");
        } else if (ptx_word_is(word, ".loc")) {
            for (uint32_t line = word->line; ptx_word_now(r)->line == line && ptx_word_now(r)->bytes; r->at++) {
            }
        } else if (*word->at == '.') {
            variable_read(r);
        } else if (ptx_word_is(word + 1, ":")) {
            label_add(r, word, r->scope);
            r->at += 2;
        } else if (!ptx_word_skip(r, ";")) {
            instruction_read(r);
        }
    } while (depth > 0 && !r->failed);
}

/* ---- kernels ---- */

static int label_compare(const void *a, const void *b)
{
    const ptx_word *x = &((const ptx_label *)a)->word, *y = &((const ptx_label *)b)->word;
    int order = memcmp(x->at, y->at, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The label of this name in the innermost scope around the jump; NULL: there is none. */
static const ptx_label *label_find(const ptx_reader *r, const ptx_label *jump)
{
    const ptx_label *found = r->label_count == 0 ? NULL
                           : bsearch(jump, r->labels, r->label_count, sizeof *found, label_compare);
    if (!found) {
        return NULL;
    }
    while (found > r->labels && label_compare(found - 1, jump) == 0) {
        found--;
    }
    for (uint32_t scope = jump->scope;; scope = r->parents[scope]) {
        for (const ptx_label *l = found; l < r->labels + r->label_count && label_compare(l, jump) == 0; l++) {
            if (l->scope == scope) {
                return l;
            }
        }
        if (scope == 0) {
            return NULL;
        }
    }
}

static void jumps_bind(ptx_reader *r)
{
    if (r->label_count > 0) {
        qsort(r->labels, r->label_count, sizeof *r->labels, label_compare);
    }
    for (uint32_t i = 0; i < r->jump_count && !r->failed; i++) {
        const ptx_label *label = label_find(r, &r->jumps[i]);
        if (label) {
            r->steps[r->jumps[i].step].target = label->step;
        } else {
            ptx_read_fail(r, &r->jumps[i].word, "there is no such label");
        }
    }
}

/* Writes each constant for all lanes, and says where it is in all operands, which have its number yet. */
static void constants_place(ptx_reader *r, ptx_kernel *k)
{
    uint32_t *places = ptx_alloc(r->module, (r->constant_count + 1) * sizeof *places), bytes = 0;
    for (uint32_t i = 0; i < r->constant_count; i++) {
        uint32_t width = r->constants[i].width;
        places[i] = bytes;
        bytes += width == 1 ? 4 : width * PTX_LANES;
    }
    k->constants = ptx_alloc(r->module, bytes);
    for (uint32_t i = 0; i < r->constant_count; i++) {
        const ptx_constant *constant = &r->constants[i];
        uint64_t value = constant->value + (constant->dynamic ? k->dynamic_at + PTX_SHARED_BEGIN : 0);
        uint32_t lanes = constant->width == 1 ? 1 : PTX_LANES, width = constant->width == 1 ? 4 : constant->width;
        for (uint32_t l = 0; l < lanes; l++) {
            memcpy(k->constants + places[i] + l * width, &value, width);
        }
    }
    for (uint32_t i = 0; i < k->step_count; i++) {
        for (uint32_t a = 0; a < k->steps[i].args; a++) {
            int32_t *arg = &k->steps[i].arg[a];
            *arg = *arg < 0 ? (int32_t)(places[~*arg] | (uint32_t)PTX_CONSTANT) : *arg;
        }
    }
}

/* The product of the numbers behind a directive. */
static uint32_t directive_product(ptx_reader *r)
{
    uint32_t product = 1;
    do {
        product *= (uint32_t)strtoul(ptx_word_now(r)->at, NULL, 0);
        ptx_word_next(r);
    } while (ptx_word_skip(r, ","));
    return product;
}

/* Between the parameters and the body. */
static void directives_read(ptx_reader *r, ptx_kernel *k)
{
    while (!r->failed && !ptx_word_is(ptx_word_now(r), "{") && ptx_word_now(r)->bytes) {
        const ptx_word *word = ptx_word_next(r);
        if (ptx_word_is(word, ".maxntid") || ptx_word_is(word, ".reqntid")) {
            k->threads_max = directive_product(r);
        } else if (ptx_word_is(word, ".reqnctapercluster")) {
            k->cluster = directive_product(r);
        }
    }
}

static void kernel_clear(ptx_reader *r)
{
    r->step_count = r->label_count = r->jump_count = r->scope_count = r->register_count = r->constant_count = 0;
    r->scope = r->shared_at = r->local_at = r->parameter_at = r->depth = 0;
    r->dynamic_align = 16;
    for (uint32_t i = 0; i < r->name_count; i++) { /* variables of the module have no place in this kernel's memory */
        r->names[i].placed = r->names[i].space != PTX_SHARED || r->names[i].dynamic;
    }
    r->shared_at = PTX_SHARED_BEGIN;
    ptx_scope_open(r);
}

/* Behind ".entry". */
static void kernel_read(ptx_reader *r)
{
    uint32_t names = r->name_count;
    ptx_kernel *k = ptx_alloc(r->module, sizeof *k);
    const ptx_word *word = ptx_word_next(r);
    char *name = ptx_alloc(r->module, word->bytes + 1);
    memcpy(name, word->at, word->bytes);
    kernel_clear(r);
    k->name = name;
    k->module = r->module;
    k->threads_max = 1024;
    k->cluster = 0;
    if (ptx_word_skip(r, "(") && !ptx_word_skip(r, ")")) {
        do {
            ptx_variable_read(r, true);
        } while (!r->failed && ptx_word_skip(r, ","));
        ptx_word_want(r, ")");
    }
    k->parameter_bytes = r->parameter_at;
    directives_read(r, k);
    body_read(r);
    if (r->failed) {
        return;
    }
    PTX_GROW(r->steps, r->step_count, r->step_cap);
    r->steps[r->step_count++] = (ptx_step){ .run = ptx_exit, .guard = PTX_NO_OPERAND, .target = PTX_NEVER,
        .line = ptx_word_now(r)->line };
    jumps_bind(r);
    k->steps = ptx_alloc(r->module, r->step_count * sizeof *k->steps);
    memcpy(k->steps, r->steps, r->step_count * sizeof *k->steps);
    k->step_count = r->step_count;
    k->shared_bytes = r->shared_at - PTX_SHARED_BEGIN;
    k->dynamic_at = (k->shared_bytes + r->dynamic_align - 1) / r->dynamic_align * r->dynamic_align;
    k->local_bytes = (r->local_at + 15) / 16 * 16;
    ptx_registers_place(k, r->widths, r->register_count);
    constants_place(r, k);
    k->next = r->module->kernels;
    r->module->kernels = k;
    r->name_count = names;
}

/* Behind ".func": its place is kept, until it is called. */
static void function_read(ptx_reader *r)
{
    uint32_t head = r->at;
    if (ptx_word_is(ptx_word_now(r), "(")) {
        while (!ptx_word_skip(r, ")") && ptx_word_now(r)->bytes) {
            r->at++;
        }
    }
    ptx_name *name = ptx_name_add(r, PTX_NAME_FUNCTION, &r->words[r->at]);
    while (!ptx_word_is(ptx_word_now(r), "{") && !ptx_word_is(ptx_word_now(r), ";") && ptx_word_now(r)->bytes) {
        r->at++;
    }
    name->head = head;
    if (ptx_word_skip(r, ";")) {
        return; /* a prototype */
    }
    name->body = r->at;
    uint32_t depth = 0;
    do {
        depth += ptx_word_is(ptx_word_now(r), "{");
        depth -= ptx_word_is(ptx_word_now(r), "}");
        ptx_word_next(r);
    } while (depth > 0 && ptx_word_now(r)->bytes);
}

static void module_read(ptx_reader *r)
{
    while (!r->failed && ptx_word_now(r)->bytes) {
        const ptx_word *word = ptx_word_now(r);
        if (ptx_word_skip(r, ".visible") || ptx_word_skip(r, ".weak")) {
            continue;
        }
        if (ptx_word_skip(r, ".entry")) {
            kernel_read(r);
        } else if (ptx_word_skip(r, ".func")) {
            function_read(r);
        } else if (ptx_word_is(word, ".version") || ptx_word_is(word, ".target") || ptx_word_is(word, ".address_size")
                   || ptx_word_is(word, ".file")) {
            for (uint32_t line = word->line; ptx_word_now(r)->line == line && ptx_word_now(r)->bytes; r->at++) {
            }
        } else if (*word->at == '.') {
            ptx_variable_read(r, false);
            ptx_word_want(r, ";");
        } else {
            ptx_read_fail(r, word, "a declaration is expected here");
        }
    }
}

static void reader_free(ptx_reader *r)
{
    free(r->words);
    free(r->names);
    free(r->steps);
    free(r->labels);
    free(r->jumps);
    free(r->parents);
    free(r->widths);
    free(r->constants);
    free(r);
}

ptx_module *ptx_load(const char *text, char *error, size_t cap)
{
    ptx_reader *r = calloc(1, sizeof *r);
    ptx_module *module = calloc(1, sizeof *module);
    if (!r || !module) {
        abort();
    }
    char *copy = ptx_alloc(module, strlen(text) + 1); /* which faults of its runs cite */
    strcpy(copy, text);
    *r = (ptx_reader){ .module = module, .text = copy, .error = error, .cap = cap };
    r->code.reader = r;
    if (ptx_words_split(r)) {
        module_read(r);
    }
    bool failed = r->failed;
    reader_free(r);
    for (ptx_kernel *k = module->kernels; k; k = k->next) {
        k->text = copy;
    }
    if (failed) {
        ptx_free(module);
        return NULL;
    }
    return module;
}

void ptx_free(ptx_module *module)
{
    if (!module) {
        return;
    }
    for (ptx_chunk *chunk = module->chunks; chunk;) {
        ptx_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    free(module);
}

const ptx_kernel *ptx_kernel_of(const ptx_module *module, const char *name)
{
    const ptx_kernel *k = module->kernels;
    while (k && strcmp(k->name, name) != 0) {
        k = k->next;
    }
    return k;
}

uint32_t ptx_shared_bytes(const ptx_kernel *k) { return k->shared_bytes; }
uint32_t ptx_parameter_bytes(const ptx_kernel *k) { return k->parameter_bytes; }
uint32_t ptx_threads_max(const ptx_kernel *k) { return k->threads_max; }

uint32_t ptx_cluster(const ptx_kernel *k) { return k->cluster; }
