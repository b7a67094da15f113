/* template_clock.h: strftime_now, which formats the date and time.
   takes: exl2__template_run with its clock, or the system's local time if that is not set; a format.
   gives: exl2__template_strftime. */
#ifndef EXL2__TEMPLATE_CLOCK_H
#define EXL2__TEMPLATE_CLOCK_H

#include "../../0_base/platform.h"
#include "template_spec.h"

static const char exl2__template_days[] = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday ";
static const char exl2__template_months[] =
    "January February March April May June July August September October November December ";

/* Word `index` of the list; with `brief` its first three letters. */
EXL2__PRIVATE exl2__template_value exl2__template_word(const char *list, uint32_t index, bool brief)
{
    while (index-- > 0) {
        list = strchr(list, ' ') + 1;
    }
    return exl2__template_text(list, brief ? 3 : strcspn(list, " "));
}

/* Days of the year before the month (1 to 13). */
EXL2__PRIVATE int32_t exl2__template_days_before(int32_t year, int32_t month)
{
    static const uint16_t before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365 };
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return before[month - 1] + (leap && month > 2);
}

/* strftime_now: %Y %y %C %m %d %e %H %k %I %l %M %S %j %U %W %u %w %p %P %A %a %B %b %h %n %t %%, and %c %x %X %D %F
   %T %R %r as in the C locale; "%-" prints a number without padding. Appends the text; `depth` is 1 for a part of %c
   and its like. */
EXL2__PRIVATE exl2_result exl2__template_strftime_put(exl2__template_run *r, const exl2__template_value *v,
                                                      uint32_t depth)
{
    static const struct {
        char letter, format[22];
    } parts[] = {
        { 'c', "%a %b %e %H:%M:%S %Y" }, { 'x', "%m/%d/%y" }, { 'D', "%m/%d/%y" }, { 'F', "%Y-%m-%d" },
        { 'X', "%H:%M:%S" }, { 'T', "%H:%M:%S" }, { 'R', "%H:%M" }, { 'r', "%I:%M:%S %p" },
    };
    int32_t year = r->clock[EXL2__TEMPLATE_YEAR], month = r->clock[EXL2__TEMPLATE_MONTH],
            day = r->clock[EXL2__TEMPLATE_DAY], hour = r->clock[EXL2__TEMPLATE_HOUR], years = year - 1;
    int32_t day_of_year = exl2__template_days_before(year, month) + day;
    uint32_t weekday = (uint32_t)(years * 365 + years / 4 - years / 100 + years / 400 + day_of_year) % 7;
    for (uint32_t i = 0; i < v->count; i++) {
        const char *at = v->as.text + i, *format = NULL;
        bool plain = i + 2 < v->count && at[1] == '-';
        char letter = i + 1 < v->count ? at[1 + plain] : 0;
        char text[32] = { 0 };
        int32_t number = -1, width = 2;
        exl2__template_value word = exl2__template_text(text, 0);
        if (*at != '%') {
            EXL2__TRY(exl2__template_put_copy(r, at, 1));
            continue;
        }
        switch (letter) {
        case 'Y': number = year; width = 4; break;
        case 'y': number = year % 100; break;
        case 'C': number = year / 100; break;
        case 'm': number = month; break;
        case 'd': case 'e': number = day; break;
        case 'H': case 'k': number = hour; break;
        case 'I': case 'l': number = (hour + 11) % 12 + 1; break;
        case 'M': number = r->clock[EXL2__TEMPLATE_MINUTE]; break;
        case 'S': number = r->clock[EXL2__TEMPLATE_SECOND]; break;
        case 'j': number = day_of_year; width = 3; break;
        case 'U': number = (day_of_year + 6 - (int32_t)weekday) / 7; break;
        case 'W': number = (day_of_year + 6 - (int32_t)(weekday + 6) % 7) / 7; break;
        case 'u': number = weekday ? (int32_t)weekday : 7; width = 1; break;
        case 'w': number = (int32_t)weekday; width = 1; break;
        case 'p': word = exl2__template_text(hour < 12 ? "AM" : "PM", 2); break;
        case 'P': word = exl2__template_text(hour < 12 ? "am" : "pm", 2); break;
        case 'A': case 'a': word = exl2__template_word(exl2__template_days, weekday, letter == 'a'); break;
        case 'B': case 'b': case 'h':
            word = exl2__template_word(exl2__template_months, (uint32_t)(month + 11) % 12, letter != 'B');
            break;
        case 'n': word = exl2__template_text("\n", 1); break;
        case 't': word = exl2__template_text("\t", 1); break;
        case '%': word = exl2__template_text("%", 1); break;
        default:
            for (size_t k = 0; k < EXL2__COUNT(parts) && depth == 0 && !plain; k++) {
                format = parts[k].letter == letter ? parts[k].format : format;
            }
            if (format) {
                word = exl2__template_text(format, strlen(format));
                EXL2__TRY(exl2__template_strftime_put(r, &word, 1));
                word.count = 0;
                break;
            }
            return exl2__template_fail(r, EXL2_ERR_UNSUPPORTED, "strftime_now with '%%%c' is not supported",
                                       letter > ' ' && letter < 127 ? letter : ' ');
        }
        if (number >= 0) {
            size_t bytes = exl2__format(text + 8, 16, "%d", number), pad = 0;
            while (!plain && bytes + pad < (size_t)width) {
                text[7 - pad++] = strchr("ekl", letter) ? ' ' : '0';
            }
            word = exl2__template_text(text + 8 - pad, bytes + pad);
        }
        EXL2__TRY(exl2__template_put(r, word.as.text, word.count, exl2__template_marked(r, at)));
        i += 1u + plain;
    }
    return EXL2_OK;
}

/* strftime_now(v) */
EXL2__PRIVATE exl2_result exl2__template_strftime(exl2__template_run *r, const exl2__template_value *v,
                                                  exl2__template_value *out)
{
    size_t start = r->used;
    if (r->clock[EXL2__TEMPLATE_MONTH] == 0) {
        exl2__platform_local_time(r->clock);
    }
    EXL2__TRY(exl2__template_strftime_put(r, v, 0));
    *out = exl2__template_written(r, start);
    return EXL2_OK;
}

#endif
