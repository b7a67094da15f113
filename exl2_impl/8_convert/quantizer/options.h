/* options.h: reads ExLlamaV2's own measurement.json and chooses its layouts: of each module (attention, or the MLP, of
   a layer) one of those that the file lists, so that the sum of (1 - accuracy)^2 is least and the bits are within the
   budget.
   takes: the file as JSON, the linears of a conversion, a budget in bits.
   gives: exl2__options_read; exl2__options_choose.
   owns:  scratch, until exl2__options_read returns.

   The choice is exact: modules are added one by one, and of the ways to choose so far those are kept that no other one
   beats in both bits and error, and whose bound is not above the best way known. The bound of a way is its error plus
   the least that the other modules can add at a price per bit (Lagrange). If more than EXL2__OPTIONS_WAYS are left,
   every other one is dropped: then the choice is only close to the best. */
#ifndef EXL2__OPTIONS_H
#define EXL2__OPTIONS_H

#include "../../0_base/json/json.h"
#include "../../0_base/sort.h"
#include "linears.h"

#define EXL2__OPTIONS_MAX 64u   /* of a module; ExLlamaV2 lists 19 or 17 */
#define EXL2__OPTIONS_WAYS 4096u
#define EXL2__OPTIONS_STEPS 200u /* of the search for the price */

typedef struct exl2__options_choice {
    uint64_t bits;
    double error;         /* (1 - accuracy)^2 */
    uint32_t token;       /* of the layout in the file */
} exl2__options_choice;

typedef struct exl2__options_module {
    uint32_t linear, linears; /* the module's matrices: linears [linear, linear + linears) */
    uint32_t first, count; /* its choices */
    uint32_t best;        /* choice at the price that was found; in the end, the result */
    uint64_t rest_bits, rest_least; /* of this module and all after it: at the price; the fewest */
    double rest_error;    /* at the price */
} exl2__options_module;

/* A way to choose the modules up to one. */
typedef struct exl2__options_way {
    uint64_t bits;
    double error;
    uint32_t parent, choice; /* parent: index of the way up to the module before */
} exl2__options_way;

typedef struct exl2__options {
    exl2__ctx *c;
    const char *path;
    const exl2__json *j;
    const exl2__linears *s;
    exl2__options_module *modules; /* [count + 1] the last one is empty */
    exl2__options_choice *choices; /* [EXL2__OPTIONS_MAX * count] */
    exl2__options_way *ways;       /* [count, EXL2__OPTIONS_WAYS] */
    exl2__options_way *next;       /* [EXL2__OPTIONS_WAYS * EXL2__OPTIONS_MAX] */
    uint32_t *kept;                /* [count] number of ways up to each module */
    uint32_t count;
} exl2__options;

/* ---- one layout ---- */

static inline bool exl2__options_is_attention(const exl2__linear *linear)
{
    return linear->kind == EXL2__UNIT_QKV || linear->kind == EXL2__UNIT_OUT;
}

/* ExLlamaV2's name of a matrix. */
EXL2__PRIVATE const char *exl2__options_name(const exl2__linear *linear, bool gated)
{
    static const char *const attention[] = { "q_proj", "k_proj", "v_proj" };
    bool expert = linear->kind == EXL2__UNIT_EXPERT_UP || linear->kind == EXL2__UNIT_EXPERT_DOWN;
    switch (linear->kind) {
    case EXL2__UNIT_QKV:
        return attention[linear->part];
    case EXL2__UNIT_OUT:
        return "o_proj";
    case EXL2__UNIT_GATE_UP:
    case EXL2__UNIT_EXPERT_UP:
        return gated && linear->part == 0 ? (expert ? "w1" : "gate_proj") : expert ? "w3" : "up_proj";
    default:
        return expert ? "w2" : "down_proj";
    }
}

/* Rows of a group of the width `bits`, which is number `index` in the list: an object by width, one number for all
   widths, or a list. 0: not one of 32, 64, 96 and 128. */
EXL2__PRIVATE uint32_t exl2__options_group(const exl2__json *j, uint32_t part, uint32_t index, uint32_t bits)
{
    char key[16];
    uint32_t sizes = exl2__json_get(j, part, "group_size"), at = sizes;
    uint64_t rows = 0;
    exl2__format(key, sizeof key, "%u", bits);
    if (sizes && j->tokens[sizes].kind == EXL2__JSON_OBJECT) {
        at = exl2__json_get(j, sizes, key);
    } else if (sizes && j->tokens[sizes].kind == EXL2__JSON_ARRAY) {
        at = exl2__json_first(j, sizes);
        for (uint32_t i = 0; i < index && at; i++) {
            at = exl2__json_next(j, sizes, at);
        }
    }
    return at && exl2__json_u64(j, at, &rows) && rows % 32 == 0 && rows <= EXL2__SOLVE_ROWS ? (uint32_t)rows : 0;
}

/* Fills in widths [linear->in / 32] and the rows of groups as ExLlamaV2 computes them from shares: each width gets
   ceil(min(in * share, rows that are left) / rows of a group) groups. false: the layout is not one for this matrix. */
EXL2__PRIVATE bool exl2__options_layout(const exl2__json *j, uint32_t part, const exl2__linear *linear, uint8_t *widths,
                                        uint8_t group_rows[EXL2__LOSSES_WIDTHS])
{
    uint32_t list = part ? exl2__json_get(j, part, "bits") : 0;
    uint32_t shares = part ? exl2__json_get(j, part, "bits_prop") : 0;
    uint32_t row = 0, index = 0, last = EXL2__LOSSES_WIDTHS;
    if (!list || !shares || j->tokens[list].kind != EXL2__JSON_ARRAY || j->tokens[shares].kind != EXL2__JSON_ARRAY ||
        j->tokens[list].count != j->tokens[shares].count) {
        return false;
    }
    memset(group_rows, 0, EXL2__LOSSES_WIDTHS);
    uint32_t share = exl2__json_first(j, shares);
    for (uint32_t at = exl2__json_first(j, list); at; at = exl2__json_next(j, list, at), index++) {
        uint64_t bits = 0;
        double p = 0;
        uint32_t width = 0;
        if (!exl2__json_u64(j, at, &bits) || !exl2__json_f64(j, share, &p) || !(p >= 0 && p <= 1)) {
            return false;
        }
        while (width < EXL2__LOSSES_WIDTHS && exl2__losses_bits(width) != bits) {
            width++;
        }
        uint32_t rows = width < last ? exl2__options_group(j, part, index, (uint32_t)bits) : 0;
        if (rows == 0) {
            return false; /* an unknown width, or one that is not below the last */
        }
        double left = (double)(linear->in - row), wanted = (double)linear->in * p;
        uint32_t groups = (uint32_t)ceil((wanted < left ? wanted : left) / rows);
        uint32_t end = exl2__min32(row + groups * rows, linear->in);
        memset(widths + row / 32, (int)width, (end - row) / 32);
        group_rows[width] = (uint8_t)rows;
        row = end;
        last = width;
        share = exl2__json_next(j, shares, share);
    }
    return row == linear->in;
}

/* The list of the layouts of a matrix's module; 0: the file has none. */
EXL2__PRIVATE uint32_t exl2__options_find(const exl2__options *o, const exl2__linear *linear, bool sparse)
{
    char key[EXL2__KEY_BYTES + 32], number[16];
    bool attention = exl2__options_is_attention(linear);
    uint32_t all = exl2__json_get(o->j, 0, "measurement");
    exl2__format(number, sizeof number, ".%u.", linear->layer);
    const char *at = strstr(linear->name, number);
    if (!all || !at) {
        return 0;
    }
    size_t bytes = (size_t)(at - linear->name) + strlen(number);
    memcpy(key, linear->name, bytes);
    exl2__format(key + bytes, sizeof key - bytes, "parallel_decoder");
    uint32_t both = exl2__json_get(o->j, all, key);
    if (both) {
        return exl2__json_get(o->j, both, attention ? "attn" : "mlp");
    }
    exl2__format(key + bytes, sizeof key - bytes, "%s", attention ? "self_attn" : sparse ? "block_sparse_moe" : "mlp");
    return exl2__json_get(o->j, all, key);
}

/* ---- reading ---- */

EXL2__PRIVATE exl2_result exl2__options_foreign(const exl2__options *o, const exl2__linear *linear)
{
    return exl2__fail(o->c, EXL2_ERR_ARG, "%s is of another model: its layouts for %s [%u, %u] are missing or do not "
                      "have the bits that they say", o->path, linear->name, linear->out, linear->in);
}

/* Fills in the widths of a module's linears by one of its layouts. *bits: their sum. */
EXL2__PRIVATE exl2_result exl2__options_apply(const exl2__options *o, const exl2__options_module *m, uint32_t token,
                                              uint64_t *bits)
{
    uint64_t sum = 0, own = 0;
    for (uint32_t i = 0; i < m->linears; i++) {
        exl2__linear *linear = &o->s->items[m->linear + i];
        const exl2__linear *before = i ? linear - 1 : linear;
        bool again = i > 0 && before->kind == linear->kind && before->part == linear->part; /* the next expert */
        if (again) {
            memcpy(linear->widths, before->widths, linear->in / 32);
            memcpy(linear->group_rows, before->group_rows, sizeof linear->group_rows);
        } else {
            exl2__arena dry = { 0 };
            exl2__linear_codes codes;
            uint32_t part = exl2__json_get(o->j, token, exl2__options_name(linear, o->s->gated));
            if (!exl2__options_layout(o->j, part, linear, linear->widths, linear->group_rows)) {
                return exl2__options_foreign(o, linear);
            }
            exl2__linear_codes_layout(o->s, linear, &codes, &dry);
            own = exl2__linears_bits(linear, &codes);
        }
        sum += own;
    }
    *bits = sum;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__options_read_module(exl2__options *o, exl2__options_module *m, bool sparse)
{
    const exl2__linear *linear = &o->s->items[m->linear];
    uint32_t list = exl2__options_find(o, linear, sparse);
    if (!list || o->j->tokens[list].kind != EXL2__JSON_ARRAY || o->j->tokens[list].count == 0 ||
        o->j->tokens[list].count > EXL2__OPTIONS_MAX) {
        return exl2__options_foreign(o, linear);
    }
    for (uint32_t at = exl2__json_first(o->j, list); at; at = exl2__json_next(o->j, list, at)) {
        exl2__options_choice *choice = &o->choices[m->first + m->count++];
        uint64_t total = 0;
        double accuracy = 0;
        bool good = o->j->tokens[at].kind == EXL2__JSON_OBJECT
                 && exl2__json_f64(o->j, exl2__json_get(o->j, at, "accuracy"), &accuracy) && accuracy >= 0
                 && accuracy <= 1 && exl2__json_u64(o->j, exl2__json_get(o->j, at, "total_bits"), &total);
        if (!good) {
            return exl2__fail(o->c, EXL2_ERR_FORMAT, "%s: the layouts of the module of %s must have an \"accuracy\" "
                              "from 0 to 1 and \"total_bits\"", o->path, linear->name);
        }
        EXL2__TRY(exl2__options_apply(o, m, at, &choice->bits));
        if (choice->bits != total) {
            return exl2__options_foreign(o, linear);
        }
        choice->error = (1 - accuracy) * (1 - accuracy);
        choice->token = at;
    }
    return EXL2_OK;
}

/* Finds the modules: runs of linears of one layer that are all of attention, or all of the MLP. */
EXL2__PRIVATE exl2_result exl2__options_read_all(exl2__options *o)
{
    uint32_t first = 0;
    for (uint32_t i = 0, end; i + 1 < o->s->count; i = end) {
        const exl2__linear *items = o->s->items;
        bool attention = exl2__options_is_attention(&items[i]), sparse = false;
        for (end = i; end + 1 < o->s->count && items[end].layer == items[i].layer &&
                      exl2__options_is_attention(&items[end]) == attention; end++) {
            sparse = sparse || items[end].kind == EXL2__UNIT_EXPERT_UP;
        }
        exl2__options_module *m = &o->modules[o->count++];
        *m = (exl2__options_module){ .linear = i, .linears = end - i, .first = first };
        EXL2__TRY(exl2__options_read_module(o, m, sparse));
        first += m->count;
    }
    return EXL2_OK;
}

/* ---- choosing ---- */

/* The best choice of each module at a price per bit, and the sums from each module on. Returns all bits. */
EXL2__PRIVATE uint64_t exl2__options_price(exl2__options *o, double price)
{
    o->modules[o->count] = (exl2__options_module){ 0 };
    for (uint32_t i = o->count; i-- > 0;) {
        exl2__options_module *m = &o->modules[i];
        const exl2__options_choice *choices = &o->choices[m->first];
        uint64_t least = choices[0].bits;
        m->best = 0;
        for (uint32_t k = 1; k < m->count; k++) {
            double gain = choices[m->best].error - choices[k].error
                        + price * ((double)choices[m->best].bits - (double)choices[k].bits);
            m->best = gain > 0 || (gain >= 0 && choices[k].bits < choices[m->best].bits) ? k : m->best;
            least = exl2__min64(least, choices[k].bits);
        }
        m->rest_bits = m[1].rest_bits + choices[m->best].bits;
        m->rest_error = m[1].rest_error + choices[m->best].error;
        m->rest_least = m[1].rest_least + least;
    }
    return o->modules[0].rest_bits;
}

EXL2__PRIVATE bool exl2__options_less(const void *items, uint32_t a, uint32_t b)
{
    const exl2__options_way *ways = (const exl2__options_way *)items;
    return ways[a].bits != ways[b].bits ? ways[a].bits < ways[b].bits : ways[a].error < ways[b].error;
}

EXL2__PRIVATE void exl2__options_swap(void *items, uint32_t a, uint32_t b)
{
    exl2__options_way *ways = (exl2__options_way *)items, way = ways[a];
    ways[a] = ways[b];
    ways[b] = way;
}

/* Chooses: modules[i].best. The budget is at least modules[0].rest_least. */
EXL2__PRIVATE void exl2__options_choose(exl2__options *o, uint64_t budget)
{
    double low = 0, high = 1e-30, best_error;
    while (exl2__options_price(o, high) > budget && high < 1e30) {
        low = high;
        high *= 16;
    }
    for (uint32_t i = 0; i < EXL2__OPTIONS_STEPS; i++) {
        double price = (low + high) / 2;
        *(exl2__options_price(o, price) > budget ? &low : &high) = price;
    }
    exl2__options_price(o, high);
    /* the best way known: up to the module `best_at`, the way best_way; after it, the choices at the price */
    uint32_t best_at = 0, best_way = 0;
    best_error = o->modules[0].rest_error;
    const exl2__options_way none = { 0, 0, 0, 0 };
    for (uint32_t i = 0; i < o->count; i++) {
        const exl2__options_module *m = &o->modules[i], *rest = m + 1;
        const exl2__options_way *from = i ? o->ways + (size_t)(i - 1) * EXL2__OPTIONS_WAYS : &none;
        exl2__options_way *to = o->ways + (size_t)i * EXL2__OPTIONS_WAYS;
        uint32_t count = 0, kept = 0, step = 1;
        for (uint32_t w = 0; w < (i ? o->kept[i - 1] : 1); w++) {
            for (uint32_t k = 0; k < m->count; k++) {
                exl2__options_way way = { from[w].bits + o->choices[m->first + k].bits,
                                          from[w].error + o->choices[m->first + k].error, w, k };
                double over = (double)(way.bits + rest->rest_bits) - (double)budget;
                double bound = way.error + rest->rest_error + high * over;
                if (way.bits + rest->rest_least <= budget && bound <= best_error * (1 + 1e-12)) {
                    o->next[count++] = way;
                }
            }
        }
        exl2__sort_items items = { o->next, exl2__options_less, exl2__options_swap };
        exl2__sort(&items, count);
        for (uint32_t k = 0; k < count; k++) { /* more bits must have less error */
            if (kept == 0 || o->next[k].error < o->next[kept - 1].error) {
                o->next[kept++] = o->next[k];
            }
        }
        while (kept / step > EXL2__OPTIONS_WAYS - 1) {
            step *= 2;
        }
        o->kept[i] = 0;
        for (uint32_t k = 0; k < kept; k += step) {
            const exl2__options_way *way = &o->next[k];
            if (way->bits + rest->rest_bits <= budget && way->error + rest->rest_error < best_error) {
                best_error = way->error + rest->rest_error;
                best_at = i + 1;
                best_way = o->kept[i];
            }
            to[o->kept[i]++] = *way;
        }
    }
    for (uint32_t i = best_at; i-- > 0;) {
        const exl2__options_way *way = &o->ways[(size_t)i * EXL2__OPTIONS_WAYS + best_way];
        o->modules[i].best = way->choice;
        best_way = way->parent;
    }
}

/* ---- all ---- */

EXL2__PRIVATE void exl2__options_alloc(exl2__options *o, uint32_t modules, exl2__arena *a)
{
    o->modules = (exl2__options_module *)exl2__arena_alloc_zeroed(a, (modules + 1) * sizeof *o->modules);
    o->choices = (exl2__options_choice *)exl2__arena_alloc(a, (uint64_t)modules * EXL2__OPTIONS_MAX
                                                                  * sizeof *o->choices);
    o->ways = (exl2__options_way *)exl2__arena_alloc(a, (uint64_t)modules * EXL2__OPTIONS_WAYS * sizeof *o->ways);
    o->next = (exl2__options_way *)exl2__arena_alloc(a, (uint64_t)EXL2__OPTIONS_WAYS * EXL2__OPTIONS_MAX
                                                            * sizeof *o->next);
    o->kept = (uint32_t *)exl2__arena_alloc(a, modules * sizeof *o->kept);
}

EXL2__PRIVATE exl2_result exl2__options_run(exl2__options *o, uint64_t budget)
{
    uint64_t bits;
    EXL2__TRY(exl2__options_read_all(o));
    exl2__options_price(o, 0);
    if (o->modules[0].rest_least > budget) {
        return exl2__fail(o->c, EXL2_ERR_ARG, "%s: its smallest layouts have %llu bits, but %llu are asked for",
                          o->path, (unsigned long long)o->modules[0].rest_least, (unsigned long long)budget);
    }
    exl2__options_choose(o, budget);
    for (uint32_t i = 0; i < o->count; i++) {
        const exl2__options_module *m = &o->modules[i];
        EXL2__TRY(exl2__options_apply(o, m, o->choices[m->first + m->best].token, &bits));
    }
    return EXL2_OK;
}

/* Fills in the widths of all linears but the head. budget: bits of them. */
EXL2__PRIVATE exl2_result exl2__options_read(exl2__ctx *c, const char *path, const exl2__json *j, exl2__linears *s,
                                             uint64_t budget)
{
    exl2__options o = { .c = c, .path = path, .j = j, .s = s };
    exl2__arena dry = { 0 }, memory;
    uint32_t modules = 0;
    if (!s->head_bits) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "%s is ExLlamaV2's, which does not measure the head: set head_bits (--head-bits)",
                          path);
    }
    for (uint32_t i = 0; i + 1 < s->count; i++) {
        modules += i == 0 || s->items[i].layer != s->items[i - 1].layer ||
                   exl2__options_is_attention(&s->items[i]) != exl2__options_is_attention(&s->items[i - 1]);
    }
    exl2__options_alloc(&o, modules, &dry);
    EXL2__TRY(exl2__arena_open(c, &memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__options_alloc(&o, modules, &memory);
    exl2_result result = exl2__options_run(&o, budget);
    exl2__arena_close(c, &memory);
    for (uint32_t i = 0; i + 1 < s->count && result >= 0; i++) {
        *s->items[i].measured = (exl2__measure_matrix){ .share = 1 };
    }
    s->chosen = result >= 0;
    return result;
}

#endif
