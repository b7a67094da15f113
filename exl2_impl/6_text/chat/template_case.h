/* template_case.h: lower, upper and title case of any Unicode text, and the tests str.isupper, str.isalpha ...
   takes: exl2__template_run and texts.
   gives: exl2__template_case, exl2__template_is_kind. */
#ifndef EXL2__TEMPLATE_CASE_H
#define EXL2__TEMPLATE_CASE_H

#include "../unicode/lower.h"
#include "template_json.h"
#include "../unicode/unicode.h"

/* Upper case is the inverse of exl2__lower except for the code points of this table. Each entry is a run of code points
   whose upper case is `away` from them. run: first << 12 | (count - 1) << 1 | (1: every second code point).
   Generated from Python 3.11: c.upper(). */
static const struct exl2__template_case_run {
    uint32_t run;
    int32_t away;
} exl2__template_upper_runs[] = {
    { 0xB5000, 743 }, { 0xDF000, 0 }, { 0x131000, -232 }, { 0x17F000, -300 }, { 0x1C5000, -1 }, { 0x1C8000, -1 },
    { 0x1CB000, -1 }, { 0x1F2000, -1 }, { 0x345000, 84 }, { 0x3C2000, -31 }, { 0x3D0000, -62 }, { 0x3D1000, -57 },
    { 0x3D5000, -47 }, { 0x3D6000, -54 }, { 0x3F0000, -86 }, { 0x3F1000, -80 }, { 0x3F5000, -96 }, { 0x1C80000, -6254 },
    { 0x1C81000, -6253 }, { 0x1C82000, -6244 }, { 0x1C83002, -6242 }, { 0x1C85000, -6243 }, { 0x1C86000, -6236 },
    { 0x1C87000, -6181 }, { 0x1C88000, 35266 }, { 0x1E9B000, -59 }, { 0x1F8000E, 0 }, { 0x1F9000E, 0 },
    { 0x1FA000E, 0 }, { 0x1FB3000, 0 }, { 0x1FBE000, -7205 }, { 0x1FC3000, 0 }, { 0x1FF3000, 0 },
};

/* Code points whose upper case is more than one code point. */
static const struct {
    uint16_t code, upper[3];
} exl2__template_upper_wide[] = {
    { 0xDF, { 0x53, 0x53 } }, { 0x149, { 0x2BC, 0x4E } }, { 0x1F0, { 0x4A, 0x30C } },
    { 0x390, { 0x399, 0x308, 0x301 } }, { 0x3B0, { 0x3A5, 0x308, 0x301 } }, { 0x587, { 0x535, 0x552 } },
    { 0x1E96, { 0x48, 0x331 } }, { 0x1E97, { 0x54, 0x308 } }, { 0x1E98, { 0x57, 0x30A } }, { 0x1E99, { 0x59, 0x30A } },
    { 0x1E9A, { 0x41, 0x2BE } }, { 0x1F50, { 0x3A5, 0x313 } }, { 0x1F52, { 0x3A5, 0x313, 0x300 } },
    { 0x1F54, { 0x3A5, 0x313, 0x301 } }, { 0x1F56, { 0x3A5, 0x313, 0x342 } }, { 0x1F80, { 0x1F08, 0x399 } },
    { 0x1F81, { 0x1F09, 0x399 } }, { 0x1F82, { 0x1F0A, 0x399 } }, { 0x1F83, { 0x1F0B, 0x399 } },
    { 0x1F84, { 0x1F0C, 0x399 } }, { 0x1F85, { 0x1F0D, 0x399 } }, { 0x1F86, { 0x1F0E, 0x399 } },
    { 0x1F87, { 0x1F0F, 0x399 } }, { 0x1F88, { 0x1F08, 0x399 } }, { 0x1F89, { 0x1F09, 0x399 } },
    { 0x1F8A, { 0x1F0A, 0x399 } }, { 0x1F8B, { 0x1F0B, 0x399 } }, { 0x1F8C, { 0x1F0C, 0x399 } },
    { 0x1F8D, { 0x1F0D, 0x399 } }, { 0x1F8E, { 0x1F0E, 0x399 } }, { 0x1F8F, { 0x1F0F, 0x399 } },
    { 0x1F90, { 0x1F28, 0x399 } }, { 0x1F91, { 0x1F29, 0x399 } }, { 0x1F92, { 0x1F2A, 0x399 } },
    { 0x1F93, { 0x1F2B, 0x399 } }, { 0x1F94, { 0x1F2C, 0x399 } }, { 0x1F95, { 0x1F2D, 0x399 } },
    { 0x1F96, { 0x1F2E, 0x399 } }, { 0x1F97, { 0x1F2F, 0x399 } }, { 0x1F98, { 0x1F28, 0x399 } },
    { 0x1F99, { 0x1F29, 0x399 } }, { 0x1F9A, { 0x1F2A, 0x399 } }, { 0x1F9B, { 0x1F2B, 0x399 } },
    { 0x1F9C, { 0x1F2C, 0x399 } }, { 0x1F9D, { 0x1F2D, 0x399 } }, { 0x1F9E, { 0x1F2E, 0x399 } },
    { 0x1F9F, { 0x1F2F, 0x399 } }, { 0x1FA0, { 0x1F68, 0x399 } }, { 0x1FA1, { 0x1F69, 0x399 } },
    { 0x1FA2, { 0x1F6A, 0x399 } }, { 0x1FA3, { 0x1F6B, 0x399 } }, { 0x1FA4, { 0x1F6C, 0x399 } },
    { 0x1FA5, { 0x1F6D, 0x399 } }, { 0x1FA6, { 0x1F6E, 0x399 } }, { 0x1FA7, { 0x1F6F, 0x399 } },
    { 0x1FA8, { 0x1F68, 0x399 } }, { 0x1FA9, { 0x1F69, 0x399 } }, { 0x1FAA, { 0x1F6A, 0x399 } },
    { 0x1FAB, { 0x1F6B, 0x399 } }, { 0x1FAC, { 0x1F6C, 0x399 } }, { 0x1FAD, { 0x1F6D, 0x399 } },
    { 0x1FAE, { 0x1F6E, 0x399 } }, { 0x1FAF, { 0x1F6F, 0x399 } }, { 0x1FB2, { 0x1FBA, 0x399 } },
    { 0x1FB3, { 0x391, 0x399 } }, { 0x1FB4, { 0x386, 0x399 } }, { 0x1FB6, { 0x391, 0x342 } },
    { 0x1FB7, { 0x391, 0x342, 0x399 } }, { 0x1FBC, { 0x391, 0x399 } }, { 0x1FC2, { 0x1FCA, 0x399 } },
    { 0x1FC3, { 0x397, 0x399 } }, { 0x1FC4, { 0x389, 0x399 } }, { 0x1FC6, { 0x397, 0x342 } },
    { 0x1FC7, { 0x397, 0x342, 0x399 } }, { 0x1FCC, { 0x397, 0x399 } }, { 0x1FD2, { 0x399, 0x308, 0x300 } },
    { 0x1FD3, { 0x399, 0x308, 0x301 } }, { 0x1FD6, { 0x399, 0x342 } }, { 0x1FD7, { 0x399, 0x308, 0x342 } },
    { 0x1FE2, { 0x3A5, 0x308, 0x300 } }, { 0x1FE3, { 0x3A5, 0x308, 0x301 } }, { 0x1FE4, { 0x3A1, 0x313 } },
    { 0x1FE6, { 0x3A5, 0x342 } }, { 0x1FE7, { 0x3A5, 0x308, 0x342 } }, { 0x1FF2, { 0x1FFA, 0x399 } },
    { 0x1FF3, { 0x3A9, 0x399 } }, { 0x1FF4, { 0x38F, 0x399 } }, { 0x1FF6, { 0x3A9, 0x342 } },
    { 0x1FF7, { 0x3A9, 0x342, 0x399 } }, { 0x1FFC, { 0x3A9, 0x399 } }, { 0xFB00, { 0x46, 0x46 } },
    { 0xFB01, { 0x46, 0x49 } }, { 0xFB02, { 0x46, 0x4C } }, { 0xFB03, { 0x46, 0x46, 0x49 } },
    { 0xFB04, { 0x46, 0x46, 0x4C } }, { 0xFB05, { 0x53, 0x54 } }, { 0xFB06, { 0x53, 0x54 } },
    { 0xFB13, { 0x544, 0x546 } }, { 0xFB14, { 0x544, 0x535 } }, { 0xFB15, { 0x544, 0x53B } },
    { 0xFB16, { 0x54E, 0x546 } }, { 0xFB17, { 0x544, 0x53D } },
};

EXL2__PRIVATE uint32_t exl2__template_case_away(const struct exl2__template_case_run *run, uint32_t code, bool *found)
{
    uint32_t at = code - (run->run >> 12), step = 1 + (run->run & 1);
    *found = code >= run->run >> 12 && at % step == 0 && at / step <= (run->run >> 1 & 0x7FF);
    return code + (uint32_t)run->away;
}

/* The lower case of `code` if that is one code point, else `code`. */
EXL2__PRIVATE uint32_t exl2__template_lower(uint32_t code)
{
    uint32_t more, lower = exl2__lower(code, &more);
    return more ? code : lower;
}

/* The upper case of `code` if that is one code point, else `code`. */
EXL2__PRIVATE uint32_t exl2__template_upper(uint32_t code)
{
    bool found = code - 'a' < 26;
    uint32_t upper = code - 32;
    for (size_t i = 0; code >= 0x80 && !found && i < EXL2__COUNT(exl2__template_upper_runs); i++) {
        upper = exl2__template_case_away(&exl2__template_upper_runs[i], code, &found);
    }
    for (exl2__lower_run run = { 0 }; code >= 0x80 && !found && exl2__lower_next(&run);) {
        upper = code - run.way;
        found = exl2__lower_holds(&run, upper);
    }
    return found ? upper : code;
}

EXL2__PRIVATE bool exl2__template_cased(uint32_t code)
{
    bool wide = code >= 0x80 && exl2__template_upper(code) == code && exl2__template_lower(code) == code;
    for (size_t i = 0; wide && i < EXL2__COUNT(exl2__template_upper_wide); i++) {
        if (exl2__template_upper_wide[i].code == code) {
            return true;
        }
    }
    return exl2__template_upper(code) != code || exl2__template_lower(code) != code;
}

/* Whether `code` is ignored in the search for the letters beside a sigma (Unicode's Case_Ignorable). */
EXL2__PRIVATE bool exl2__template_case_ignorable(uint32_t code)
{
    return code == '\'' || (code >= 0x80 && (exl2__unicode_class(code) & (EXL2__UNICODE_MARK | EXL2__UNICODE_MODIFIER |
                                                                         EXL2__UNICODE_WORD_OTHER)) != 0);
}

/* *out: whether the lower case of the capital sigma at `at` is the final sigma: it follows a cased letter and precedes
   none, not counting ignored code points (Unicode's Final_Sigma). */
EXL2__PRIVATE exl2_result exl2__template_final_sigma(exl2__template_run *r, const exl2__template_value *v, size_t at,
                                                     bool *out)
{
    size_t step = 2;
    uint32_t code = 0, sides = 0;
    for (size_t before = at; before > 0 && !sides;) {
        EXL2__TRY(exl2__template_step(r, 8));
        before = exl2__unicode_before(v->as.text, before);
        code = exl2__template_code_point(v->as.text + before, v->count - before, &step);
        bool skip = exl2__template_case_ignorable(code);
        sides = !skip && exl2__template_cased(code);
        before = skip || sides ? before : 0;
    }
    *out = sides != 0;
    for (size_t next = at + 2; sides && next < v->count; next += step) {
        EXL2__TRY(exl2__template_step(r, 8));
        code = exl2__template_code_point(v->as.text + next, v->count - next, &step);
        if (!exl2__template_case_ignorable(code)) {
            *out = !exl2__template_cased(code);
            return EXL2_OK;
        }
    }
    return EXL2_OK;
}

typedef enum exl2__template_case_kind {
    EXL2__TEMPLATE_CASE_LOWER,
    EXL2__TEMPLATE_CASE_UPPER,
    EXL2__TEMPLATE_CASE_TITLE, /* str.title */
    EXL2__TEMPLATE_CASE_WORDS, /* the filter `title`: upper case after spaces and - ( { [ < */
    EXL2__TEMPLATE_CASE_FIRST, /* capitalize */
    EXL2__TEMPLATE_CASE_FOLD,  /* casefold, for code points whose folded form is their lower case */
    EXL2__TEMPLATE_CASE_SWAP
} exl2__template_case_kind;

/* Writes the upper case of `code`, or its title case if `title`, and returns the number of code points. 0: this title
   case is not supported. */
EXL2__PRIVATE uint32_t exl2__template_raise(uint32_t code, bool title, uint32_t out[3])
{
    uint32_t count = 1;
    if (title && ((code >= 0x1C4 && code <= 0x1CC) || (code >= 0x1F1 && code <= 0x1F3))) {
        out[0] = (code - (code < 0x1F1 ? 0x1C4 : 0x1F1)) / 3 * 3 + (code < 0x1F1 ? 0x1C5 : 0x1F2);
        return 1;
    }
    out[0] = title && code >= 0x10D0 && code <= 0x10FF ? code : exl2__template_upper(code);
    for (size_t i = 0; code >= 0x80 && i < EXL2__COUNT(exl2__template_upper_wide); i++) {
        const uint16_t *wide = exl2__template_upper_wide[i].upper;
        if (exl2__template_upper_wide[i].code == code) {
            if (title && (code == 0x149 || code >= 0x1F80) && code < 0xFB00) {
                return 0;
            }
            out[0] = wide[0];
            out[1] = title ? exl2__template_lower(wide[1]) : wide[1];
            out[2] = title ? exl2__template_lower(wide[2]) : wide[2];
            count = wide[2] ? 3 : 2;
        }
    }
    return count;
}

/* Whether the full case folding of every code point with the lower case `lower` is `lower`. */
EXL2__PRIVATE bool exl2__template_folds_to_lower(uint32_t lower)
{
    bool wide = false;
    for (size_t i = 0; i < EXL2__COUNT(exl2__template_upper_wide); i++) {
        wide = wide || exl2__template_upper_wide[i].code == lower;
    }
    bool cherokee = (lower >= 0x13A0 && lower <= 0x13FD) || (lower >= 0xAB70 && lower <= 0xABBF);
    return !wide && !cherokee && exl2__template_lower(exl2__template_upper(lower)) == lower;
}

/* Converts a text. Each code point of the result has the mark of its source. */
EXL2__PRIVATE exl2_result exl2__template_case(exl2__template_run *r, const exl2__template_value *v,
                                              exl2__template_case_kind kind, exl2__template_value *out)
{
    size_t start = r->used, step;
    bool word = false;
    for (size_t at = 0; at < v->count; at += step) {
        uint32_t codes[3], count = 1, code = exl2__template_code_point(v->as.text + at, v->count - at, &step);
        bool swap = kind == EXL2__TEMPLATE_CASE_SWAP && exl2__template_upper(code) != code;
        bool fold = kind == EXL2__TEMPLATE_CASE_FOLD;
        bool raised = kind == EXL2__TEMPLATE_CASE_UPPER || swap || (!word && kind != EXL2__TEMPLATE_CASE_LOWER &&
                                                                    kind != EXL2__TEMPLATE_CASE_SWAP && !fold);
        EXL2__TRY(exl2__template_step(r, code < 0x80 ? 1 : 64));
        codes[0] = exl2__template_lower(code);
        if (code == 0xFFFD && step == 1) { /* invalid UTF-8 is copied */
            EXL2__TRY(exl2__template_put_copy(r, v->as.text + at, 1));
            continue;
        }
        if (fold && code >= 0x80 && !exl2__template_folds_to_lower(codes[0])) {
            return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "casefold of U+%x is not supported", code);
        }
        if (raised) {
            count = exl2__template_raise(
                code, kind == EXL2__TEMPLATE_CASE_TITLE || kind == EXL2__TEMPLATE_CASE_FIRST, codes);
        } else if (code == 0x130) {
            codes[0] = 'i';
            codes[1] = 0x307;
            count = 2;
        } else if (code == 0x3A3 && !fold) {
            bool final = false;
            EXL2__TRY(exl2__template_step(r, 16));
            EXL2__TRY(exl2__template_final_sigma(r, v, at, &final));
            codes[0] = final ? 0x3C2 : 0x3C3;
        }
        if (count == 0) {
            return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "the title case of U+%x is not supported", code);
        }
        for (uint32_t i = 0; i < count; i++) {
            char text[4];
            uint32_t bytes = exl2__json_encode_utf8(codes[i], text);
            EXL2__TRY(exl2__template_put(r, text, bytes, exl2__template_marked(r, v->as.text + at)));
        }
        word = kind == EXL2__TEMPLATE_CASE_WORDS
                   ? !(exl2__template_space(code) || (code && code < 0x80 && strchr("-({[<", (int)code)))
               : kind == EXL2__TEMPLATE_CASE_TITLE ? exl2__template_cased(code)
                                                   : true;
    }
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

/* kind: 'u' str.isupper, 'l' islower, 'a' isalpha, 'd' isdigit, 'n' isalnum, 's' isspace, 'N' isnumeric, '7'
   isascii. */
EXL2__PRIVATE exl2_result exl2__template_is_kind(exl2__template_run *r, const exl2__template_value *v, char kind,
                                                 bool *out)
{
    size_t step;
    bool cased = false, good = true;
    for (size_t at = 0; good && at < v->count; at += step) {
        uint32_t code = exl2__template_code_point(v->as.text + at, v->count - at, &step);
        EXL2__TRY(exl2__template_step(r, code < 0x80 ? 1 : 64));
        uint32_t class = exl2__unicode_class(code);
        bool up = exl2__template_lower(code) != code, low = exl2__template_upper(code) != code;
        cased = cased || (kind == 'u' ? up : low);
        good = kind == 'u'   ? !low
               : kind == 'l' ? !up
               : kind == 's' ? exl2__template_space(code)
               : kind == '7' ? code < 0x80
               : kind == 'N' ? (class & EXL2__UNICODE_NUMBERS) != 0
                             : (class & (kind == 'd' ? EXL2__UNICODE_DIGIT
                                         : kind == 'a' ? EXL2__UNICODE_LETTER
                                                       : EXL2__UNICODE_LETTER | EXL2__UNICODE_NUMBERS)) != 0;
        if (kind == 'N' && class == EXL2__UNICODE_CASELESS && code >= 0x3400) {
            return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "isnumeric of U+%x is not supported", code);
        }
        if (kind == 'd' && class == EXL2__UNICODE_NUMERAL) {
            return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "isdigit of U+%x is not supported", code);
        }
    }
    *out = good && (v->count || kind == '7') && (cased || (kind != 'u' && kind != 'l'));
    return EXL2_OK;
}

#endif
