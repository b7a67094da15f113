/* template_spec.h: str.format: fields {} {0} {name}, conversions !r and !s, specifications such as {:>8} or {:05.1f}.
   takes: exl2__template_run, the format, its arguments (NULL: not given), of which the last is a dict of named ones.
   gives: exl2__template_spec_format.
   owns:  nothing. */
#ifndef EXL2__TEMPLATE_SPEC_H
#define EXL2__TEMPLATE_SPEC_H

#include "template_format.h"

/* [[fill]align][sign][0][width][,][.places][type]; a letter of 0 is not given. */
typedef struct exl2__template_spec {
    exl2__template_value fill;
    char align, sign, type;
    bool zero, comma, has_places;
    uint32_t width, places;
} exl2__template_spec;

/* false: the specification has something else. */
static bool exl2__template_spec_read(const exl2__template_value *text, exl2__template_spec *out)
{
    const char *at = text->as.text, *end = at + text->count;
    exl2__template_spec s = { exl2__template_text(" ", 1), 0, 0, 0, false, false, false, 0, 0 };
    size_t step = 0;
    if (at < end) {
        exl2__template_code_point(at, (size_t)(end - at), &step);
    }
    bool filled = at + step < end && at[step] && strchr("<>^=", at[step]);
    if (filled) {
        s.fill = exl2__template_text(at, step);
        at += step;
    }
    s.align = at < end && *at && strchr("<>^=", *at) ? *at++ : 0;
    s.sign = at < end && *at && strchr("+- ", *at) ? *at++ : 0;
    s.zero = at < end && *at == '0' && !filled;
    s.fill = s.zero ? exl2__template_text("0", 1) : s.fill;
    for (uint32_t *number = &s.width; at < end; at++) {
        bool digit = *at >= '0' && *at <= '9' && *number < 10000;
        if (digit) {
            *number = *number * 10 + (uint32_t)(*at - '0');
        } else if (*at == ',' && number == &s.width && !s.comma) {
            s.comma = true;
        } else if (*at == '.' && number == &s.width && at + 1 < end && at[1] >= '0' && at[1] <= '9') {
            s.has_places = true;
            number = &s.places;
        } else {
            break;
        }
    }
    s.type = at < end ? *at++ : 0;
    *out = s;
    return at == end;
}

/* The text, whose first `sign` bytes are a sign, padded to the specification's width. */
static exl2_result exl2__template_spec_pad(exl2__template_run *r, const exl2__template_spec *s,
                                           const exl2__template_value *text, uint32_t sign, char align,
                                           exl2__template_value *out)
{
    uint32_t count;
    size_t start = r->used;
    EXL2__TRY(exl2__template_text_length(r, text, &count));
    uint64_t room = s->width > count ? s->width - count : 0;
    uint64_t left = align == '<' ? 0 : align == '^' ? room / 2 : room;
    uint32_t first = align == '=' ? sign : 0;
    EXL2__TRY(exl2__template_put_copy(r, text->as.text, first));
    EXL2__TRY(exl2__template_put_times(r, &s->fill, left));
    EXL2__TRY(exl2__template_put_copy(r, text->as.text + first, text->count - first));
    EXL2__TRY(exl2__template_put_times(r, &s->fill, room - left));
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

static exl2_result exl2__template_spec_number(exl2__template_run *r, const exl2__template_spec *s,
                                              const exl2__template_value *v, exl2__template_value *out)
{
    char digits[96], grouped[128];
    size_t bytes = 0, used = 0;
    bool integer = exl2__template_is_integer(v);
    bool fixed = s->type && strchr("fF%", s->type), based = integer && s->type && strchr("xXob", s->type);
    double value = exl2__template_as_real(v) * (s->type == '%' ? 100 : 1);
    EXL2__TRY(exl2__template_step(r, 64 + exl2__template_real_size(value) / 4));
    if (fixed) {
        bytes = exl2__template_print_fixed(value, s->has_places ? s->places : 6, digits);
    } else if (based && !s->comma && !s->has_places) {
        bytes = exl2__template_print_base(v->as.integer, s->type, digits);
    } else if (integer && (!s->type || s->type == 'd') && !s->has_places) {
        bytes = exl2__format(digits, sizeof digits, "%lld", (long long)v->as.integer);
    } else if (!integer && !s->type && !s->has_places && !s->comma) {
        bytes = exl2__template_number_print(v->as.real, digits);
    }
    if (bytes == 0 || (s->comma && (s->zero || s->align == '='))) {
        return exl2__template_unsupported(r, "this format of a number");
    }
    bool minus = digits[0] == '-';
    size_t whole = minus;
    while (whole < bytes && digits[whole] >= '0' && digits[whole] <= '9') {
        whole++;
    }
    if (minus || s->sign == '+' || s->sign == ' ') {
        grouped[used++] = minus ? '-' : s->sign;
    }
    uint32_t sign = (uint32_t)used;
    for (size_t i = minus; i < bytes; i++) {
        grouped[used++] = digits[i];
        if (s->comma && i + 1 < whole && (whole - 1 - i) % 3 == 0) {
            grouped[used++] = ',';
        }
    }
    if (s->type == '%') {
        grouped[used++] = '%';
    }
    exl2__template_value text;
    EXL2__TRY(exl2__template_copy_text(r, grouped, used, v->marked, &text));
    return exl2__template_spec_pad(r, s, &text, sign, s->align ? s->align : s->zero ? '=' : '>', out);
}

/* The text of a value by the specification. */
static exl2_result exl2__template_spec_value(exl2__template_run *r, const exl2__template_value *v,
                                             const exl2__template_value *specification, exl2__template_value *out)
{
    exl2__template_spec s;
    if (!exl2__template_spec_read(specification, &s)) {
        return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "the format specification '%.*s' is not supported",
                                   (int)specification->count, specification->as.text);
    }
    if (v->kind == EXL2__TEMPLATE_KIND_TEXT && !v->why) {
        exl2__template_value text = *v;
        if ((s.type && s.type != 's') || s.sign || s.comma || s.align == '=') {
            return exl2__template_fail(r, EXL2_ERR_FORMAT, "a format specification of a number for a text");
        }
        if (s.has_places) {
            exl2__template_value stop = exl2__template_int(s.places);
            EXL2__TRY(exl2__template_slice(r, v, NULL, &stop, NULL, &text));
        }
        return exl2__template_spec_pad(r, &s, &text, 0, s.align ? s.align : '<', out);
    }
    if (exl2__template_is_number(v)) {
        return exl2__template_spec_number(r, &s, v, out);
    }
    bool refused = v->kind == EXL2__TEMPLATE_KIND_BIG || v->kind == EXL2__TEMPLATE_KIND_TEXT;
    return exl2__template_fail(r, refused ? EXL2_ERR_UNSUPPORTED : EXL2_ERR_FORMAT,
                               refused ? "this format of a %s is not supported"
                                       : "unsupported format string passed to %s.__format__", exl2__template_type(v));
}

/* The value of a field's name: nothing (the next argument), a number, or a key of the named arguments. */
static exl2_result exl2__template_spec_argument(exl2__template_run *r, const exl2__template_value *name,
                                                const exl2__template_value *const *args, uint32_t *next, bool *numbered,
                                                const exl2__template_value **out)
{
    const exl2__template_value *named = args[EXL2__TEMPLATE_ARGS_MAX - 1];
    const exl2__template_entry *entry = NULL;
    bool digit = name->count == 1 && name->as.text[0] >= '0' && name->as.text[0] <= '9';
    *out = NULL;
    if (name->count && !digit) {
        for (uint32_t i = 0; i < name->count; i++) {
            bool number = name->as.text[0] >= '0' && name->as.text[0] <= '9';
            if (number || !exl2__template_lex_word_byte(name->as.text[i])) {
                return exl2__template_unsupported(r, "a format field other than {}, {0} to {6} and {name}");
            }
        }
        EXL2__TRY(named ? exl2__template_entry_find(r, named->as.entries, named->count, name, &entry) : EXL2_OK);
        *out = entry ? &entry->value : NULL;
        return entry ? EXL2_OK : exl2__template_fail(r, EXL2_ERR_FORMAT, "the format needs '%.*s', which is not given",
                                                     (int)name->count, name->as.text);
    }
    if ((digit && *next > 0) || (!digit && *numbered)) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "a format cannot have fields with and without numbers");
    }
    uint32_t index = digit ? (uint32_t)(name->as.text[0] - '0') : (*next)++;
    *numbered = *numbered || digit;
    if (index >= EXL2__TEMPLATE_ARGS_MAX - 1 || !args[index]) {
        return exl2__template_fail(r, EXL2_ERR_FORMAT, "the format needs argument %u, which is not given", index);
    }
    *out = args[index];
    return EXL2_OK;
}

/* The text of one field: what follows its name is [!conversion][:specification]. */
static exl2_result exl2__template_spec_field(exl2__template_run *r, const exl2__template_value *v, const char *at,
                                             const char *end, exl2__template_value *out)
{
    exl2__template_value value = *v, specification;
    size_t start = r->used;
    if (at < end && *at == '!') {
        if (at + 1 == end || (at[1] != 's' && at[1] != 'r') || (at + 2 < end && at[2] != ':')) {
            return exl2__template_unsupported(r, "a format conversion other than !s and !r");
        }
        if (at[1] == 'r') {
            EXL2__TRY(exl2__template_put_repr(r, v, 0));
            value = exl2__template_written(r, start);
        } else {
            EXL2__TRY(exl2__template_string(r, v, &value));
        }
        value.why = 0;
        at += 2;
    }
    if (at + 1 >= end) { /* no specification: as the value prints */
        return exl2__template_string(r, &value, out);
    }
    specification = exl2__template_text(at + 1, (size_t)(end - at - 1));
    return exl2__template_spec_value(r, &value, &specification, out);
}

/* text.format(a, b, name=c). A safe text escapes what it inserts. */
static exl2_result exl2__template_spec_format(exl2__template_run *r, const exl2__template_value *v,
                                              const exl2__template_value *const *args, exl2__template_value *out)
{
    exl2__template_value *pieces = NULL;
    uint32_t next = 0, braces = 0, count = 0;
    bool numbered = false;
    const char *text = v->as.text, *end = text + v->count;
    EXL2__TRY(exl2__template_step(r, v->count / 4));
    for (const char *at = text; at < end; at++) {
        braces += *at == '{' || *at == '}';
    }
    EXL2__TRY(exl2__template_alloc_values(r, (uint64_t)braces * 2 + 1, &pieces));
    for (const char *at = text; at < end;) {
        const char *from = at;
        while (at < end && *at != '{' && *at != '}') {
            at++;
        }
        bool twice = at + 1 < end && at[0] == at[1]; /* {{ or }}: the text up to one of them */
        pieces[count++] = exl2__template_text(from, (size_t)(at - from) + twice);
        if (twice || at == end) {
            at += twice ? 2 : 0;
            continue;
        }
        const exl2__template_value *argument;
        const char *close = (const char *)memchr(at, '}', (size_t)(end - at)), *name_end = at + 1;
        if (*at == '}' || !close || memchr(at + 1, '{', (size_t)(close - at - 1))) {
            return exl2__template_fail(r, *at == '{' && close ? EXL2_ERR_UNSUPPORTED : EXL2_ERR_FORMAT,
                                       *at == '{' && close ? "a format field in a format field is not supported"
                                                           : "a format has a single brace");
        }
        while (name_end < close && *name_end != '!' && *name_end != ':') {
            name_end++;
        }
        exl2__template_value name = exl2__template_text(at + 1, (size_t)(name_end - at - 1)), made;
        EXL2__TRY(exl2__template_spec_argument(r, &name, args, &next, &numbered, &argument));
        EXL2__TRY(exl2__template_spec_field(r, argument, name_end, close, &made));
        pieces[count] = made;
        if (v->why) {
            EXL2__TRY(exl2__template_escape(r, &made, &pieces[count]));
        }
        count++;
        at = close + 1;
    }
    size_t start = r->used;
    for (uint32_t i = 0; i < count; i++) {
        EXL2__TRY(exl2__template_put_copy(r, pieces[i].as.text, pieces[i].count));
    }
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

#endif
