/* template_spec.h: str.format: fields {} {0} {name}, with specifications that % has, too: {:>8} {:<8} {:05d} {:.2f}.
   takes: exl2__template_run, the format, its arguments (NULL: not given), of which the last is a dict of named ones.
   gives: exl2__template_spec_format. */
#ifndef EXL2__TEMPLATE_SPEC_H
#define EXL2__TEMPLATE_SPEC_H

#include "template_format.h"

/* Reads [<>][+ ][0][width][.places][type] as the conversion of % that gives the same text for this value. false: there
   is none, or Python has no such specification. */
EXL2__PRIVATE bool exl2__template_spec_read(const exl2__template_value *text, const exl2__template_value *v,
                                            exl2__template_conversion *out)
{
    char form[24];
    size_t align = text->count && (text->as.text[0] == '<' || text->as.text[0] == '>'), bytes = text->count - align;
    bool number = exl2__template_is_number(v), left = align ? text->as.text[0] == '<' : !number;
    if (bytes > sizeof form - 2 || (bytes && text->as.text[align] == '-') || v->why) {
        return false;
    }
    memcpy(form, text->as.text + align, bytes);
    const char *point = (const char *)memchr(form, '.', bytes), *last = form + bytes;
    bool typed = bytes && strchr("sdfxXo", form[bytes - 1]);
    bool sound = (!point || (point + 1 < last && point[1] >= '0' && point[1] <= '9')) &&
                 (bytes < 2 || (!memchr(form + 1, '+', bytes - 1) && !memchr(form + 1, ' ', bytes - 1)));
    form[bytes] = v->kind == EXL2__TEMPLATE_KIND_REAL ? 'f' : number ? 'd' : 's';
    bytes += !typed;
    size_t used = exl2__template_conversion_read(form, bytes, out);
    bool text_type = out->letter == 's', places = out->has_places && !text_type && out->letter != 'f';
    bool real = v->kind == EXL2__TEMPLATE_KIND_REAL, flags = out->zero || out->plus || out->space;
    out->left = left;
    bool kinds = (number || v->kind == EXL2__TEMPLATE_KIND_TEXT) && text_type == !number;
    return sound && used == bytes && kinds && !places && !(text_type && flags) && !(out->zero && align) &&
           (!real || (typed && out->letter == 'f'));
}

/* The value of a field's name: nothing (the next argument), a digit, or a key of the named ones. NULL: not given. */
EXL2__PRIVATE exl2_result exl2__template_spec_argument(exl2__template_run *r, const exl2__template_value *name,
                                                       const exl2__template_value *const *args, uint32_t *next,
                                                       const exl2__template_value **out)
{
    const exl2__template_value *named = args[EXL2__TEMPLATE_ARGS_MAX - 1];
    const exl2__template_entry *entry = NULL;
    bool digit = name->count == 1 && name->as.text[0] >= '0' && name->as.text[0] <= '9';
    *out = NULL;
    if (name->count && !digit) {
        if (memchr(name->as.text, '.', name->count) || memchr(name->as.text, '[', name->count)) {
            return exl2__template_unsupported(r, "a part of a value in a format field");
        }
        EXL2__TRY(named ? exl2__template_entry_find(r, named->as.entries, named->count, name, &entry) : EXL2_OK);
        *out = entry ? &entry->value : NULL;
        return EXL2_OK;
    }
    uint32_t used = *next & 0xFFFF, numbered = *next >> 16; /* fields without and with a number: not both */
    uint32_t index = digit ? (uint32_t)(name->as.text[0] - '0') : used;
    bool mixed = digit ? used > 0 : numbered > 0;
    *next += digit ? 1u << 16 : 1;
    *out = mixed || index >= EXL2__TEMPLATE_ARGS_MAX - 1 ? NULL : args[index];
    return EXL2_OK;
}

/* text.format(a, b, name=c). A safe text escapes what it inserts. */
EXL2__PRIVATE exl2_result exl2__template_spec_format(exl2__template_run *r, const exl2__template_value *v,
                                                     const exl2__template_value *const *args, exl2__template_value *out)
{
    const char *text = v->as.text, *end = text + v->count;
    size_t start = r->used;
    uint32_t next = 0;
    EXL2__TRY(exl2__template_step(r, v->count / 4));
    for (const char *at = text; at < end;) {
        const char *from = at;
        while (at < end && *at != '{' && *at != '}') {
            at++;
        }
        bool twice = at + 1 < end && at[0] == at[1]; /* {{ or }}: the text up to one of them */
        EXL2__TRY(exl2__template_put_copy(r, from, (size_t)(at - from) + twice));
        if (twice || at == end) {
            at += twice ? 2 : 0;
            continue;
        }
        const exl2__template_value *argument;
        const char *close = (const char *)memchr(at, '}', (size_t)(end - at));
        if (*at == '}' || !close) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "a format has a single brace");
        }
        const char *colon = (const char *)memchr(at, ':', (size_t)(close - at)), *name_end = colon ? colon : close;
        exl2__template_value name = exl2__template_text(at + 1, (size_t)(name_end - at - 1));
        EXL2__TRY(exl2__template_spec_argument(r, &name, args, &next, &argument));
        exl2__template_conversion c = { .letter = 's' };
        exl2__template_value form = exl2__template_text(name_end + 1, colon ? (size_t)(close - colon - 1) : 0);
        if (memchr(name.as.text, '!', name.count) || memchr(at + 1, '{', (size_t)(close - at - 1)) ||
            (form.count && (v->why || (argument && !exl2__template_spec_read(&form, argument, &c))))) {
            return exl2__template_unsupported(r, "this format field");
        }
        if (!argument) {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "the format has no argument '%.*s'", (int)name.count,
                                       name.as.text);
        }
        EXL2__TRY(exl2__template_convert(r, &c, argument, v->why != 0));
        at = close + 1;
    }
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

#endif
