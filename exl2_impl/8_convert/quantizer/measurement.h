/* measurement.h: measurement.json: what was measured of a model, so that another rate needs no second measurement.
   takes: measured linears; or a file.
   gives: exl2__measurement_write, exl2__measurement_read.

   The file has ExLlamaV2's schema: for each attention and each MLP a list of layouts, with their bits and an accuracy,
   1 - sqrt(predicted KL divergence). All groups have 32 rows. ExLlamaV2 computes rows from shares: in their order, each
   width gets ceil(min(in * share, rows that are left) / 32) groups. The shares here are multiples of 2^-20, whose sum
   is exactly 1, and half a row below what they stand for, so that no rounding can add a group.
   What it ignores is under "exl2_h": all that exl2__convert_measure found out. */
#ifndef EXL2__MEASUREMENT_H
#define EXL2__MEASUREMENT_H

#include "../../0_base/json/json.h"
#include "../write.h"
#include "options.h"

#define EXL2__MEASUREMENT_OPTIONS 20u /* most layouts of a module */
#define EXL2__MEASUREMENT_PRICES 320u /* prices per bit that are tried to find them */
#define EXL2__MEASUREMENT_PARTS 4u    /* most different matrices of a module */
#define EXL2__MEASUREMENT_SHARE 1048576u /* 2^20 */

/* ---- our own tables ---- */

EXL2__PRIVATE void exl2__measurement_write_tables(const exl2__linears *s, uint64_t model, exl2__write *w)
{
    exl2__write_format(w, " \"exl2_h\": {\"version\": 2, \"model\": \"%x-%x\", \"matrices\": [",
                       (uint32_t)(model >> 32), (uint32_t)model);
    for (uint32_t i = 0; i + 1 < s->count; i++) {
        const exl2__linear *linear = &s->items[i];
        const float numbers[] = { (float)linear->measured->power, (float)linear->measured->sensitivity,
                                  (float)linear->measured->mean, (float)linear->measured->share };
        exl2__write_format(w, "%s\n  {\"name\": ", i ? "," : "");
        exl2__write_quoted_z(w, linear->name);
        exl2__write_format(w, ", \"in\": %u, \"out\": %u, \"numbers\": [", linear->in, linear->out);
        for (uint32_t k = 0; k < EXL2__COUNT(numbers); k++) {
            exl2__write_format(w, k ? ", " : "");
            exl2__write_float(w, numbers[k]);
        }
        exl2__write_format(w, "],\n   \"losses\": [");
        for (uint32_t k = 0; k < EXL2__LOSSES_WIDTHS * (linear->in / 32); k++) {
            exl2__write_format(w, k ? "," : "");
            exl2__write_float(w, (float)linear->losses[k]);
        }
        exl2__write_format(w, "]}");
    }
    exl2__write_format(w, "\n ]}");
}

/* ---- layouts for ExLlamaV2 ---- */

/* A module: attention or the MLP of a layer. Its matrices; the same ones of all experts count as one. */
typedef struct exl2__measurement_module {
    exl2__allocate_linear parts[EXL2__MEASUREMENT_PARTS];
    const char *names[EXL2__MEASUREMENT_PARTS];
    uint32_t count, experts;
    double *losses;  /* of all parts */
    uint8_t *widths, *from;
} exl2__measurement_module;

/* Fills in a module from the linears [first, end) of a layer, of those of attention or of the others. A shared expert
   is left out: ExLlamaV2 does not have it. */
EXL2__PRIVATE void exl2__measurement_gather(const exl2__linears *s, uint32_t first, uint32_t end, bool attention,
                                            bool gated, exl2__measurement_module *m)
{
    double *losses = m->losses;
    uint8_t *widths = m->widths;
    bool sparse = false;
    m->count = m->experts = 0;
    for (uint32_t i = first; i < end; i++) {
        sparse = sparse || s->items[i].kind == EXL2__UNIT_EXPERT_UP;
    }
    for (uint32_t i = first; i < end; i++) {
        const exl2__linear *linear = &s->items[i];
        bool expert = linear->kind == EXL2__UNIT_EXPERT_UP || linear->kind == EXL2__UNIT_EXPERT_DOWN;
        uint32_t cells = EXL2__LOSSES_WIDTHS * (linear->in / 32), at = m->count;
        if (exl2__options_is_attention(linear) != attention || (sparse && !attention && !expert)) {
            continue;
        }
        const char *name = exl2__options_name(linear, gated);
        for (uint32_t k = 0; k < m->count; k++) {
            at = strcmp(m->names[k], name) == 0 ? k : at;
        }
        if (at == m->count) {
            m->names[at] = name;
            m->parts[m->count++] = (exl2__allocate_linear){ linear->in, linear->columns, linear->has_bias, losses,
                                                            widths };
            memset(losses, 0, cells * sizeof *losses);
            losses += cells;
            widths += linear->in / 32;
        }
        double *sum = losses - cells; /* experts of one kind follow each other */
        for (uint32_t k = 0; k < cells; k++) {
            sum[k] += linear->losses[k] * linear->measured->sensitivity;
        }
        m->experts = exl2__max32(m->experts, linear->expert + 1);
    }
}

EXL2__PRIVATE void exl2__measurement_write_share(exl2__write *w, uint32_t share)
{
    char digits[24];
    uint32_t used = 0;
    exl2__write_format(w, "%u.", share / EXL2__MEASUREMENT_SHARE);
    uint64_t rest = share % EXL2__MEASUREMENT_SHARE;
    do {
        rest *= 10;
        digits[used++] = (char)('0' + rest / EXL2__MEASUREMENT_SHARE);
        rest %= EXL2__MEASUREMENT_SHARE;
    } while (rest > 0);
    exl2__write_raw(w, digits, used);
}

/* One matrix of a layout. */
EXL2__PRIVATE void exl2__measurement_write_part(exl2__write *w, const char *name, const exl2__allocate_linear *part)
{
    uint32_t rows[EXL2__LOSSES_WIDTHS] = { 0 }, left = EXL2__MEASUREMENT_SHARE, begun = 0;
    for (uint32_t b = 0; b < part->in / 32; b++) {
        rows[part->widths[b]] += 32;
    }
    exl2__write_format(w, ", \"%s\": {\"group_size\": {", name);
    for (uint32_t width = EXL2__LOSSES_WIDTHS; width-- > 0;) {
        if (rows[width]) {
            exl2__write_format(w, "%s\"%u\": 32", begun++ ? ", " : "", exl2__losses_bits(width));
        }
    }
    begun = 0;
    exl2__write_format(w, "}, \"bits\": [");
    for (uint32_t width = EXL2__LOSSES_WIDTHS; width-- > 0;) {
        if (rows[width]) {
            exl2__write_format(w, "%s%u", begun++ ? ", " : "", exl2__losses_bits(width));
        }
    }
    exl2__write_format(w, "], \"bits_prop\": [");
    for (uint32_t width = EXL2__LOSSES_WIDTHS, number = 0; width-- > 0;) {
        if (rows[width]) {
            uint32_t share = (uint32_t)(((uint64_t)rows[width] * 2 - 1) * (EXL2__MEASUREMENT_SHARE / 2) / part->in);
            share = ++number == begun ? left : share;
            exl2__write_format(w, number > 1 ? ", " : "");
            exl2__measurement_write_share(w, share);
            left -= share;
        }
    }
    exl2__write_format(w, "], \"scale_bits\": 4}");
}

/* The layouts of a module, from the fewest bits to the most. */
EXL2__PRIVATE void exl2__measurement_write_module(exl2__write *w, const exl2__measurement_module *m)
{
    uint64_t last = 0;
    uint32_t written = 0;
    double high = 0;
    for (uint32_t p = 0; p < m->count; p++) {
        for (uint32_t b = 0; b < m->parts[p].in / 32; b++) {
            high += m->parts[p].losses[b];
        }
    }
    high = high > 0 ? high : 1;
    exl2__write_format(w, "[");
    for (uint32_t i = 0; i < EXL2__MEASUREMENT_PRICES && written < EXL2__MEASUREMENT_OPTIONS; i++) {
        double price = high * pow(10, -(double)i / 20), kl = 0;
        uint64_t bits = 0;
        for (uint32_t p = 0; p < m->count; p++) {
            const exl2__allocate_linear *part = &m->parts[p];
            exl2__allocate_best(part, price, m->from);
            bits += exl2__allocate_bits(part) * m->experts;
            for (uint32_t b = 0; b < part->in / 32; b++) {
                kl += part->losses[part->widths[b] * (part->in / 32) + b];
            }
        }
        if (bits < last + last / 14) { /* steps of 7 % at least: from 2 to 8 bits there are 20 of them */
            continue;
        }
        double accuracy = 1 - sqrt(kl);
        exl2__write_format(w, "%s\n    {\"accuracy\": ", written++ ? "," : "");
        exl2__write_float(w, accuracy > 1e-6 ? (float)accuracy : 1e-6f);
        exl2__write_format(w, ", \"total_bits\": %llu", (unsigned long long)bits);
        for (uint32_t p = 0; p < m->count; p++) {
            exl2__measurement_write_part(w, m->names[p], &m->parts[p]);
        }
        exl2__write_format(w, "}");
        last = bits;
    }
    exl2__write_format(w, "]");
}

/* Writes the key of a layer's module: the name of its first linear up to the number of the layer, and the tail. */
EXL2__PRIVATE void exl2__measurement_write_key(exl2__write *w, const exl2__linear *linear, const char *tail)
{
    char number[16], key[EXL2__KEY_BYTES];
    exl2__format(number, sizeof number, ".%u.", linear->layer);
    exl2__format(key, sizeof key, "%s", linear->name);
    char *at = strstr(key, number);
    if (at) {
        at[strlen(number) - 1] = 0;
    }
    exl2__write_format(w, "  \"%s.%s\": ", key, tail);
}

EXL2__PRIVATE void exl2__measurement_write_layers(exl2__write *w, const exl2__runner *r, const exl2__linears *s,
                                                  exl2__measurement_module *m)
{
    const exl2__config *config = &r->load.config;
    bool gated = config->arch.traits[EXL2__TRAIT_GATED] == EXL2__YES;
    for (uint32_t layer = 0; layer < config->layers; layer++) {
        uint32_t first = s->first[layer], end = s->first[layer + 1];
        for (uint32_t part = 0; part < 2; part++) {
            exl2__measurement_gather(s, first, end, part == 0, gated, m);
            if (config->parallel && part == 0 && first < end) {
                exl2__measurement_write_key(w, &s->items[first], "parallel_decoder");
                exl2__write_format(w, "{");
            }
            if (m->count > 0 && config->parallel) {
                exl2__write_format(w, part ? ", \"mlp\": " : "\"attn\": ");
            } else if (m->count > 0) {
                exl2__measurement_write_key(w, &s->items[first], part == 0 ? "self_attn" : m->experts > 1
                                            ? "block_sparse_moe" : "mlp");
            }
            if (m->count > 0) {
                exl2__measurement_write_module(w, m);
                exl2__write_format(w, config->parallel ? "" : ",\n");
            }
            exl2__write_format(w, config->parallel && part == 1 && first < end ? "},\n" : "");
        }
    }
    exl2__write_format(w, "  \"%s.norm\": null,\n", config->arch.names[EXL2__NAME_FINAL_NORM]);
    exl2__write_format(w, "  \"lm_head.linear\": null\n },\n \"last_module_idx\": %u,\n",
                       (config->parallel ? 1 : 2) * config->layers + 2);
}

/* Writes the file. model: a hash of the source. */
EXL2__PRIVATE exl2_result exl2__measurement_write(exl2__ctx *c, const char *path, const exl2__runner *r,
                                                  const exl2__linears *s, uint64_t model)
{
    exl2__arena dry = { 0 }, memory;
    exl2__measurement_module m = { 0 };
    exl2__write w;
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        blocks = exl2__max32(blocks, s->items[i].in / 32);
    }
    exl2__arena_alloc(&dry, (uint64_t)EXL2__MEASUREMENT_PARTS * EXL2__LOSSES_WIDTHS * blocks * sizeof(double));
    exl2__arena_alloc(&dry, (uint64_t)EXL2__MEASUREMENT_PARTS * blocks);
    exl2__arena_alloc(&dry, (uint64_t)EXL2__LOSSES_WIDTHS * blocks);
    EXL2__TRY(exl2__arena_open(c, &memory, dry.used, EXL2_MEM_SCRATCH));
    m.losses = (double *)exl2__arena_alloc(&memory, (uint64_t)EXL2__MEASUREMENT_PARTS * EXL2__LOSSES_WIDTHS * blocks
                                                        * sizeof(double));
    m.widths = (uint8_t *)exl2__arena_alloc(&memory, (uint64_t)EXL2__MEASUREMENT_PARTS * blocks);
    m.from = (uint8_t *)exl2__arena_alloc(&memory, (uint64_t)EXL2__LOSSES_WIDTHS * blocks);
    exl2_result result = exl2__write_open(c, path, &w);
    if (result >= 0) {
        exl2__write_format(&w, "{\n \"measurement\": {\n");
        exl2__measurement_write_layers(&w, r, s, &m);
        exl2__measurement_write_tables(s, model, &w);
        exl2__write_format(&w, "\n}\n");
        result = exl2__write_close(&w);
    }
    exl2__arena_close(c, &memory);
    return result;
}

/* ---- reading ---- */

/* Reads `count` finite numbers, not negative, of an array. */
EXL2__PRIVATE bool exl2__measurement_numbers(const exl2__json *j, uint32_t list, uint32_t count, double *out)
{
    uint32_t i = 0;
    if (list == 0 || j->tokens[list].kind != EXL2__JSON_ARRAY || j->tokens[list].count != count) {
        return false;
    }
    for (uint32_t at = exl2__json_first(j, list); at; at = exl2__json_next(j, list, at), i++) {
        if (!exl2__json_f64(j, at, &out[i]) || !(out[i] >= 0 && out[i] < 3e38)) {
            return false;
        }
    }
    return true;
}

EXL2__PRIVATE exl2_result exl2__measurement_read_matrix(exl2__ctx *c, const char *path, const exl2__json *j,
                                                        uint32_t item, exl2__linear *linear)
{
    uint64_t in = 0, out = 0;
    double numbers[4];
    bool same = exl2__json_is(j, exl2__json_get(j, item, "name"), linear->name)
                && exl2__json_u64(j, exl2__json_get(j, item, "in"), &in) && in == linear->in
                && exl2__json_u64(j, exl2__json_get(j, item, "out"), &out) && out == linear->out;
    if (!same) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s is of another model: it does not have %s [%u, %u] where that is "
                          "expected", path, linear->name, linear->out, linear->in);
    }
    uint32_t cells = EXL2__LOSSES_WIDTHS * (linear->in / 32);
    if (!exl2__measurement_numbers(j, exl2__json_get(j, item, "numbers"), EXL2__COUNT(numbers), numbers) ||
        !exl2__measurement_numbers(j, exl2__json_get(j, item, "losses"), cells, linear->losses)) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: %s: expected 4 \"numbers\" and %u \"losses\", all finite and not "
                          "negative", path, linear->name, cells);
    }
    *linear->measured = (exl2__measure_matrix){ .power = numbers[0], .sensitivity = numbers[1], .mean = numbers[2],
                                                .share = numbers[3] };
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__measurement_read_json(exl2__ctx *c, const char *path, const exl2__json *j,
                                                      exl2__linears *s, uint64_t model, uint64_t budget)
{
    char hash[20];
    uint32_t own = exl2__json_get(j, 0, "exl2_h"), list = own ? exl2__json_get(j, own, "matrices") : 0, i = 0;
    uint32_t of = own ? exl2__json_get(j, own, "model") : 0;
    uint64_t version = 0;
    if (!own && exl2__json_get(j, 0, "measurement")) {
        return exl2__options_read(c, path, j, s, budget);
    }
    bool known = own && exl2__json_u64(j, exl2__json_get(j, own, "version"), &version);
    if (known && version == 1) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s is of an older exl2_convert, and does not say which weights it "
                          "was measured on; measure again", path);
    }
    if (!known || version != 2 || !list || !of || j->tokens[list].kind != EXL2__JSON_ARRAY) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s has no \"exl2_h\" of version 2: exl2_convert did not write it",
                          path);
    }
    exl2__format(hash, sizeof hash, "%x-%x", (uint32_t)(model >> 32), (uint32_t)model);
    if (!exl2__json_is(j, of, hash) || j->tokens[list].count != s->count - 1) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s is of another model, or of other files of it", path);
    }
    for (uint32_t at = exl2__json_first(j, list); at; at = exl2__json_next(j, list, at)) {
        EXL2__TRY(exl2__measurement_read_matrix(c, path, j, at, &s->items[i++]));
    }
    return EXL2_OK;
}

/* Fills in what was measured of all linears but the head. model: a hash of the source. A file of ExLlamaV2 gives their
   widths in its place: s->chosen. budget: bits of the layers' matrices, for those. */
EXL2__PRIVATE exl2_result exl2__measurement_read(exl2__ctx *c, const char *path, const exl2__blob *blob,
                                                 exl2__linears *s, uint64_t model, uint64_t budget)
{
    exl2__json j;
    EXL2__TRY(exl2__json_open(c, path, blob->data, (size_t)blob->bytes, &j));
    exl2_result result = exl2__measurement_read_json(c, path, &j, s, model, budget);
    exl2__json_close(c, &j);
    return result;
}

#endif
