/* quant_config.h: reads how the matrices of a model are quantized, from quantization_config in config.json, and from
   quantize_config.json or quant_config.json (of early AutoAWQ) beside it. A kind of quantization that this engine does
   not read is rejected, and the message names it.
   takes: config.json, opened; the model folder.
   gives: exl2__quant, exl2__quant_read; EXL2__GPTQ.

   EXL2 matrices describe themselves. GPTQ and AWQ matrices need these settings: the same tensors mean different weights
   with each of them. */
#ifndef EXL2__QUANT_CONFIG_H
#define EXL2__QUANT_CONFIG_H

#include "exl3_decode.h"
#include "fields.h"

#ifndef EXL2_NO_GPTQ
#define EXL2__GPTQ 1
#else
#define EXL2__GPTQ 0
#endif
#define EXL2__GPTQ_ABSENT "this program was built with EXL2_NO_GPTQ"

typedef enum exl2__quant_method {
    EXL2__QUANT_NONE, /* the files do not say: EXL2, dense, or GPTQ whose settings are read off its tensors */
    EXL2__QUANT_EXL2, EXL2__QUANT_GPTQ, EXL2__QUANT_AWQ,
    EXL2__QUANT_EXL3  /* each matrix describes itself */
} exl2__quant_method;

typedef struct exl2__quant {
    exl2__quant_method method;
    uint32_t bits;        /* of GPTQ codes; 0: as the tensors show */
    uint32_t group;       /* rows of a group, UINT32_MAX = the whole column; 0: as the tensors show */
    bool versioned, v2;   /* versioned: the files have checkpoint_format. v2: it is gptq_v2, in which stored zeros are
                             not one less */
    bool symmetric;
} exl2__quant;

#if EXL2__GPTQ

/* The value of the first of two keys that `object` has, or 0. */
static inline uint32_t exl2__quant_get(const exl2__fields *f, uint32_t object, const char *key, const char *other)
{
    uint32_t token = exl2__fields_at(f, object, key);
    return token || !other ? token : exl2__fields_at(f, object, other);
}

static inline bool exl2__quant_is_true(const exl2__fields *f, uint32_t object, const char *key)
{
    bool value = false;
    uint32_t token = exl2__fields_at(f, object, key);
    return token && exl2__json_bool(&f->json, token, &value) && value;
}

/* bits, group_size, sym. With `dynamic`, or extra_config of auto-round, modules may have other bits and groups, so the
   tensors decide. */
EXL2__PRIVATE exl2_result exl2__quant_read_sizes(const exl2__fields *f, uint32_t object, exl2__quant *out)
{
    uint32_t bits = exl2__quant_get(f, object, "bits", "w_bit");
    uint32_t dynamic = exl2__quant_get(f, object, "dynamic", "extra_config");
    uint32_t group = exl2__quant_get(f, object, "group_size", "q_group_size");
    bool awq = out->method == EXL2__QUANT_AWQ;
    int64_t value;
    if (bits) {
        bool number = exl2__json_i64(&f->json, bits, &value);
        if (!number || (awq ? value != 4 : value != 2 && value != 3 && value != 4 && value != 8)) {
            return exl2__fields_unsupported(f, "bits", bits, awq ? "4 for AWQ" : "2, 3, 4 and 8 for GPTQ");
        }
        out->bits = (uint32_t)value;
    }
    if (group) {
        if (!exl2__json_i64(&f->json, group, &value) || value < -1 || value == 0 || value > 1 << 20) {
            return exl2__fields_bad(f, "group_size", group, "-1, or a multiple of 32 from 32 to 1048576");
        }
        if (value > 0 && value % 32 != 0) {
            return exl2__fields_unsupported(f, "group_size", group, "-1 and multiples of 32");
        }
        out->group = value < 0 ? UINT32_MAX : (uint32_t)value;
    }
    if (dynamic && f->json.tokens[dynamic].kind == EXL2__JSON_OBJECT && f->json.tokens[dynamic].count > 0) {
        out->bits = out->group = 0;
    }
    out->symmetric = exl2__quant_is_true(f, object, "sym");
    return EXL2_OK;
}

/* checkpoint_format of GPTQ, version of AWQ, and the switches of formats that keep weights in another order. */
EXL2__PRIVATE exl2_result exl2__quant_read_format(const exl2__fields *f, uint32_t object, exl2__quant *out)
{
    uint32_t format = exl2__fields_at(f, object, "checkpoint_format");
    uint32_t version = exl2__fields_at(f, object, "version");
    if (exl2__quant_is_true(f, object, "is_marlin_format")) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED,
                          "%s: is_marlin_format is true, but the Marlin format is not supported, only gptq and gptq_v2",
                          f->label);
    }
    if (out->method == EXL2__QUANT_AWQ) {
        bool gemm = !version || exl2__json_is(&f->json, version, "gemm") || exl2__json_is(&f->json, version, "GEMM");
        return gemm ? EXL2_OK : exl2__fields_unsupported(f, "version", version, "gemm for AWQ");
    }
    if (format && !exl2__json_is(&f->json, format, "gptq") && !exl2__json_is(&f->json, format, "gptq_v2")) {
        return exl2__fields_unsupported(f, "checkpoint_format", format, "gptq and gptq_v2");
    }
    bool v2 = format && exl2__json_is(&f->json, format, "gptq_v2");
    if (format && out->versioned && out->v2 != v2) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT,
                          "%s: checkpoint_format is %s, but config.json says %s; the zeros of one are off by one in "
                          "the other", f->label, v2 ? "gptq_v2" : "gptq", v2 ? "gptq" : "gptq_v2");
    }
    out->versioned = out->versioned || format;
    out->v2 = out->v2 || v2;
    return EXL2_OK;
}

/* auto-round packs as GPTQ or as AWQ does; other packings have zeros of their own. */
EXL2__PRIVATE exl2_result exl2__quant_read_auto_round(const exl2__fields *f, uint32_t object, exl2__quant *out)
{
    static const struct { const char *name; exl2__quant_method method; } packings[] = {
        { "auto_round:auto_gptq", EXL2__QUANT_GPTQ }, { "auto_round:gptq", EXL2__QUANT_GPTQ },
        { "auto_gptq", EXL2__QUANT_GPTQ },            { "auto_round:auto_awq", EXL2__QUANT_AWQ },
        { "auto_round:awq", EXL2__QUANT_AWQ },        { "auto_awq", EXL2__QUANT_AWQ },
    };
    uint32_t packing = exl2__quant_get(f, object, "packing_format", "backend"), i = 0;
    uint32_t type = exl2__fields_at(f, object, "data_type");
    if (!packing) {
        return exl2__fields_missing(f, "packing_format");
    }
    while (i < EXL2__COUNT(packings) && !exl2__json_is(&f->json, packing, packings[i].name)) {
        i++;
    }
    if (i == EXL2__COUNT(packings)) {
        return exl2__fields_unsupported(f, "packing_format", packing, "auto_round:auto_gptq and auto_round:auto_awq");
    }
    if (type && !exl2__json_is(&f->json, type, "int")) {
        return exl2__fields_unsupported(f, "data_type", type, "int");
    }
    out->method = packings[i].method;
    return EXL2_OK;
}

/* Reads the settings of GPTQ or AWQ in a file beside config.json, if there is one. It completes what config.json says.
   usual: the method of a file that names none. */
EXL2__PRIVATE exl2_result exl2__quant_read_file(exl2__ctx *c, const char *dir, const char *name,
                                                exl2__quant_method usual, exl2__quant *out)
{
    exl2__fields f;
    exl2__quant found = *out;
    EXL2__TRY(exl2__fields_open(c, dir, name, true, &f));
    if (!f.text.data) {
        return EXL2_OK;
    }
    uint32_t method = exl2__fields_at(&f, 0, "quant_method");
    bool foreign = usual == EXL2__QUANT_AWQ && !method && !exl2__quant_get(&f, 0, "w_bit", "q_group_size");
    if (foreign) { /* other tools have a file of this name, too */
        exl2__fields_close(&f);
        return EXL2_OK;
    }
    if (out->method == EXL2__QUANT_NONE) {
        found.method = method ? EXL2__QUANT_GPTQ : usual;
        found.method = method && exl2__json_is(&f.json, method, "awq") ? EXL2__QUANT_AWQ : found.method;
    }
    exl2_result result = exl2__quant_read_format(&f, 0, &found);
    if (result >= 0) {
        result = exl2__quant_read_sizes(&f, 0, &found);
    }
    if (result >= 0) {
        bool known = out->method != EXL2__QUANT_NONE; /* then the sizes of config.json count */
        found.bits = known ? out->bits : found.bits;
        found.group = known ? out->group : found.group;
        found.symmetric = known ? out->symmetric : found.symmetric;
        *out = found;
    }
    exl2__fields_close(&f);
    return result;
}

#endif

/* Reads the settings; f: config.json. */
EXL2__PRIVATE exl2_result exl2__quant_read(const exl2__fields *f, const char *dir, exl2__quant *out)
{
    static const char *const names[] = { "quantization_config", "compression_config", NULL };
    uint32_t object = exl2__fields_find(f, names, NULL);
    uint32_t method = object ? exl2__fields_at(f, object, "quant_method") : 0;
    *out = (exl2__quant){ EXL2__QUANT_NONE, 0, 0, false, false, false };
    if (object && f->json.tokens[object].kind != EXL2__JSON_OBJECT) {
        return exl2__fields_bad(f, "quantization_config", object, "an object");
    }
    if (method) {
        bool gptq = exl2__json_is(&f->json, method, "gptq"), awq = exl2__json_is(&f->json, method, "awq");
        bool exl3 = EXL2__EXL3 && exl2__json_is(&f->json, method, "exl3");
        bool rounded = exl2__json_is(&f->json, method, "auto-round") || exl2__json_is(&f->json, method, "auto_round")
                       || exl2__json_is(&f->json, method, "intel/auto-round");
#if EXL2__GPTQ
        if (rounded) {
            EXL2__TRY(exl2__quant_read_auto_round(f, object, out));
            gptq = out->method == EXL2__QUANT_GPTQ;
            awq = !gptq;
        }
#else
        gptq = gptq || rounded;
#endif
        if (!EXL2__EXL3 && exl2__json_is(&f->json, method, "exl3")) {
            return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: quant_method='exl3' is not supported: "
                              EXL2__EXL3_ABSENT, f->label);
        }
        if (!gptq && !awq && !exl3 && !exl2__json_is(&f->json, method, "exl2")) {
            return exl2__fields_unsupported(f, "quant_method", method, "exl2, exl3, gptq and awq");
        }
        if (!EXL2__GPTQ && (gptq || awq)) {
            return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: quant_method='%s' is not supported: " EXL2__GPTQ_ABSENT,
                              f->label, gptq ? "gptq" : "awq");
        }
        out->method = gptq ? EXL2__QUANT_GPTQ : awq ? EXL2__QUANT_AWQ : exl3 ? EXL2__QUANT_EXL3 : EXL2__QUANT_EXL2;
    } else if (object && exl2__fields_at(f, object, "checkpoint_format")) {
        out->method = EXL2__QUANT_GPTQ; /* only GPTQ has this key */
    }
    for (uint32_t i = 0; object && !method && i < 2; i++) { /* files older than quant_method */
        const char *key = i ? "load_in_4bit" : "load_in_8bit";
        bool loads = false;
        uint32_t token = exl2__fields_at(f, object, key);
        if (token && exl2__json_bool(&f->json, token, &loads) && loads) {
            return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: %s is true, but bitsandbytes is not supported, only "
                              "exl2, exl3, gptq and awq", f->label, key);
        }
    }
#if EXL2__GPTQ
    if (out->method == EXL2__QUANT_GPTQ || out->method == EXL2__QUANT_AWQ) {
        EXL2__TRY(exl2__quant_read_format(f, object, out));
        EXL2__TRY(exl2__quant_read_sizes(f, object, out));
    }
    if (out->method == EXL2__QUANT_EXL2 || out->method == EXL2__QUANT_EXL3) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__quant_read_file(f->c, dir, "quantize_config.json", EXL2__QUANT_GPTQ, out));
    return exl2__quant_read_file(f->c, dir, "quant_config.json", EXL2__QUANT_AWQ, out);
#else
    (void)dir;
    return EXL2_OK;
#endif
}

#endif
