/* args.c: see args.h.
   takes: argv.
   gives: what args.h declares. */
#include "args.h"

#include <errno.h>
#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

args_result args_wrong(const args_desc *d, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "; see '%s --help'\n", d->program);
    return ARGS_USAGE;
}

#define HELP_COLUMN 24u /* where what a flag does begins */
#define HELP_WIDTH 100u

/* Writes words from column `at` on, and rows after the first one from column `indent` on. */
static void print_words(const char *text, size_t at, size_t indent)
{
    bool first = true; /* of the row */
    for (text += strspn(text, " \n"); *text; text += strspn(text, " \n")) {
        size_t bytes = strcspn(text, " \n");
        if (!first && at + 1 + bytes > HELP_WIDTH) {
            printf("\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        printf("%s%.*s", first ? "" : " ", (int)bytes, text);
        at += bytes + !first;
        first = false;
        text += bytes;
    }
    printf("\n");
}

/* A row of the help: what begins at the left margin has `used` columns. */
static void print_row(int used, const char *help)
{
    size_t at = (size_t)used;
    if (at >= HELP_COLUMN) {
        printf("\n");
        at = 0;
    }
    printf("%*s", (int)(HELP_COLUMN - at), "");
    print_words(help, HELP_COLUMN, HELP_COLUMN);
}

static args_result print_help(const args_desc *d)
{
    print_words(d->about, 0, 0);
    printf("\nusage: %s", d->program);
    for (size_t i = 0; i < d->positional_count; i++) {
        printf(i < d->positional_needed ? " %s%s" : " [%s%s]", d->positional[i].name,
               d->positional[i].kind == ARG_TEXTS ? "..." : "");
    }
    printf(d->flag_count ? " [flags]\n\n" : "\n\n");
    for (size_t i = 0; i < d->positional_count; i++) {
        print_row(printf("  %s", d->positional[i].name), d->positional[i].help);
    }
    for (size_t i = 0; i < d->flag_count; i++) {
        const arg *a = &d->flags[i];
        print_row(printf("  %s%s%s", a->name, a->value_name ? " " : "", a->value_name ? a->value_name : ""), a->help);
    }
    return ARGS_HELP;
}

/* Accepts digits only; *stop points after the last one. */
static bool read_u64(const char *text, uint64_t max, uint64_t *out, const char **stop)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno || value > max) {
        return false;
    }
    *out = value;
    *stop = end;
    return true;
}

static bool read_numbers(const char *text, arg_numbers *out)
{
    const char *stop = text;
    out->count = 0;
    do {
        uint64_t value;
        const char *start = out->count ? stop + 1 : stop;
        if (out->count == ARGS_LIST_MAX || !read_u64(start, UINT32_MAX, &value, &stop)) {
            return false;
        }
        out->items[out->count++] = (uint32_t)value;
    } while (*stop == ',');
    return *stop == 0;
}

/* Bytes of the unit at *stop, which then points past it: KB, MB and GB, or KiB, MiB and GiB, in capitals or not, with
   or without the B. `alone` without a unit. */
static uint64_t read_unit(const char **stop, uint64_t alone)
{
    static const char letters[] = "kmgKMG";
    static const uint64_t decimal[] = { 1000, 1000000, 1000000000 };
    const char *letter = **stop ? strchr(letters, **stop) : NULL;
    if (!letter) {
        return alone;
    }
    uint32_t power = (uint32_t)(letter - letters) % 3;
    bool binary = (*stop)[1] == 'i' || (*stop)[1] == 'I';
    *stop += 1 + binary;
    *stop += **stop == 'B' || **stop == 'b';
    return binary ? (uint64_t)1024 << 10 * power : decimal[power];
}

/* A size such as 8GB, 6.5g, 900MiB or 4096, of whole bytes; *stop points after it. alone: bytes of a number without a
   unit. */
static bool read_size(const char *text, uint64_t alone, uint64_t *out, const char **stop)
{
    uint64_t whole, part = 0, digits = 1;
    if (!read_u64(text, UINT64_MAX, &whole, stop)) {
        return false;
    }
    if (**stop == '.') {
        const char *first = ++*stop;
        for (; **stop >= '0' && **stop <= '9' && digits < 1000000000; ++*stop, digits *= 10) {
            part = part * 10 + (uint64_t)(**stop - '0');
        }
        if (*stop == first) {
            return false;
        }
    }
    uint64_t unit = read_unit(stop, alone), rest = part * unit; /* below 2^60 */
    if (rest % digits || whole > (UINT64_MAX - rest / digits) / unit) { /* parts of a byte; too large */
        return false;
    }
    *out = whole * unit + rest / digits;
    return true;
}

static bool read_sizes(const char *text, arg_sizes *out)
{
    const char *stop = text;
    out->count = 0;
    do {
        const char *start = out->count ? stop + 1 : stop;
        if (out->count == ARGS_LIST_MAX || !read_size(start, 1, &out->items[out->count], &stop)) {
            return false;
        }
        out->count++;
    } while (*stop == ',');
    return *stop == 0;
}

/* Reads a number that ends at the end of the text or at a comma; *stop points there. */
static bool read_float_at(const char *text, float *out, const char **stop)
{
    char *end;
    size_t bytes = strcspn(text, ",");
    if (!bytes || strspn(text, "0123456789+-.eE") < bytes) { /* no "inf", "nan", hexadecimal, space */
        return false;
    }
    *out = strtof(text, &end);
    *stop = end;
    return (*end == 0 || *end == ',') && *out >= -FLT_MAX && *out <= FLT_MAX;
}

static bool read_float(const char *text, float *out)
{
    const char *stop;
    return read_float_at(text, out, &stop) && *stop == 0;
}

static bool read_floats(const char *text, arg_floats *out)
{
    const char *stop = text;
    out->count = 0;
    do {
        const char *start = out->count ? stop + 1 : stop;
        if (out->count == ARGS_LIST_MAX || !read_float_at(start, &out->items[out->count], &stop)) {
            return false;
        }
        out->count++;
    } while (*stop == ',');
    return *stop == 0;
}

/* Index of the text [bytes] among the parts of, for example, "auto|cpu". false: it is none of them. */
static bool read_choice(const char *choices, const char *text, size_t bytes, uint32_t *out)
{
    for (uint32_t index = 0; choices; index++) {
        const char *bar = strchr(choices, '|');
        size_t choice_bytes = bar ? (size_t)(bar - choices) : strlen(choices);
        if (choice_bytes == bytes && memcmp(choices, text, bytes) == 0) {
            *out = index;
            return true;
        }
        choices = bar ? bar + 1 : NULL;
    }
    return false;
}

static bool read_choices(const char *choices, const char *text, arg_numbers *out)
{
    out->count = 0;
    for (;; text++) {
        size_t bytes = strcspn(text, ",");
        if (out->count == ARGS_LIST_MAX || !read_choice(choices, text, bytes, &out->items[out->count])) {
            return false;
        }
        out->count++;
        text += bytes;
        if (*text == 0) {
            return true;
        }
    }
}

static bool is_path(const arg *a)
{
    const char *name = a->value_name;
    bool text = a->kind == ARG_TEXT || a->kind == ARG_TEXTS;
    return text && (!name || strncmp(name, "FILE", 4) == 0 || strcmp(name, "DIR") == 0 || strcmp(name, "PATH") == 0);
}

static args_result store_value(const args_desc *d, const arg *a, const char *text)
{
    uint64_t number = 0;
    const char *stop = "";
    if (is_path(a) && !text[0]) { /* with a slash and a name it would be a path in the root folder */
        return args_wrong(d, "%s is an empty path", a->name);
    }
    switch (a->kind) {
    case ARG_BOOL:
        *(bool *)a->value = true;
        return ARGS_OK;
    case ARG_TEXT:
        *(const char **)a->value = text;
        return ARGS_OK;
    case ARG_TEXTS: {
        arg_texts *texts = a->value;
        if (texts->count == ARGS_LIST_MAX) {
            return args_wrong(d, "%s can be given at most %d times", a->name, ARGS_LIST_MAX);
        }
        texts->items[texts->count++] = text;
        return ARGS_OK;
    }
    case ARG_U32:
        if (!read_u64(text, UINT32_MAX, &number, &stop) || *stop) {
            return args_wrong(d, "%s must be a whole number of at most 4294967295, not '%s'", a->name, text);
        }
        *(uint32_t *)a->value = (uint32_t)number;
        return ARGS_OK;
    case ARG_U64:
        if (!read_u64(text, UINT64_MAX, &number, &stop) || *stop) {
            return args_wrong(d, "%s must be a whole number, not '%s'", a->name, text);
        }
        *(uint64_t *)a->value = number;
        return ARGS_OK;
    case ARG_SIZE:
    case ARG_MIB:
        return read_size(text, a->kind == ARG_MIB ? 1024 * 1024 : 1, a->value, &stop) && !*stop
                   ? ARGS_OK
                   : args_wrong(d, "%s must be a size such as 8GB, 6.5GB or 900MiB, not '%s'", a->name, text);
    case ARG_FLOAT:
        return read_float(text, a->value) ? ARGS_OK : args_wrong(d, "%s must be a number, not '%s'", a->name, text);
    case ARG_NUMBERS:
        return read_numbers(text, a->value)
                   ? ARGS_OK
                   : args_wrong(d, "%s must be at most %d whole numbers separated by commas, not '%s'", a->name,
                                ARGS_LIST_MAX, text);
    case ARG_SIZES:
        return read_sizes(text, a->value)
                   ? ARGS_OK
                   : args_wrong(d, "%s must be at most %d sizes such as 8GB or 900MiB, separated by commas, not '%s'",
                                a->name, ARGS_LIST_MAX, text);
    case ARG_FLOATS:
        return read_floats(text, a->value)
                   ? ARGS_OK
                   : args_wrong(d, "%s must be at most %d numbers separated by commas, not '%s'", a->name,
                                ARGS_LIST_MAX, text);
    case ARG_CHOICE:
        return read_choice(a->value_name, text, strlen(text), a->value)
                   ? ARGS_OK
                   : args_wrong(d, "%s must be one of %s, not '%s'", a->name, a->value_name, text);
    case ARG_CHOICES:
        return read_choices(a->value_name, text, a->value)
                   ? ARGS_OK
                   : args_wrong(d, "%s must be at most %d of %s, separated by commas, not '%s'", a->name, ARGS_LIST_MAX,
                                a->value_name, text);
    }
    return ARGS_OK;
}

#define DISTANCE_BYTES 32

/* Edit distance (Levenshtein); an abbreviation has distance 1. */
size_t args_distance(const char *given, size_t bytes, const char *name)
{
    size_t row[DISTANCE_BYTES + 1], name_bytes = strlen(name);
    if (bytes == 0 || bytes > DISTANCE_BYTES || name_bytes > DISTANCE_BYTES) {
        return SIZE_MAX;
    }
    if (bytes < name_bytes && memcmp(given, name, bytes) == 0) {
        return 1;
    }
    for (size_t j = 0; j <= name_bytes; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= name_bytes; j++) {
            size_t changed = diagonal + (given[i - 1] != name[j - 1]);
            size_t other = 1 + (row[j - 1] < row[j] ? row[j - 1] : row[j]);
            diagonal = row[j];
            row[j] = changed < other ? changed : other;
        }
    }
    return row[name_bytes] <= 2 && row[name_bytes] * 3 < bytes ? row[name_bytes] : SIZE_MAX;
}

/* Suggests the nearest flags; an abbreviation may have several. */
static args_result unknown_flag(const args_desc *d, const char *given, size_t bytes)
{
    char meant[256] = "";
    size_t least = SIZE_MAX, used = 0;
    size_t dashes = bytes > 2 && given[0] == '-' && given[1] == '-' ? 2 : 0;
    for (size_t i = 0; dashes && i < d->flag_count; i++) {
        size_t distance = args_distance(given + dashes, bytes - dashes, d->flags[i].name + dashes);
        if (distance == SIZE_MAX || distance > least || used + 80 > sizeof meant) {
            continue;
        }
        used = distance < least ? 0 : used;
        least = distance;
        used += (size_t)snprintf(meant + used, sizeof meant - used, "%s%.40s", used ? " or " : "", d->flags[i].name);
    }
    return args_wrong(d, "unknown flag '%.*s'%s%s%s", (int)bytes, given, used ? " (did you mean " : "", meant,
                      used ? "?)" : "");
}

/* Is the flag given by its name, or by a shorter one that is accepted, too? */
static bool is_named(const arg *a, const char *given, size_t bytes)
{
    static const char *const shorter[][2] = { { "--max-tokens", "--max" }, { "--min-tokens", "--min" } };
    bool named = strlen(a->name) == bytes && memcmp(a->name, given, bytes) == 0;
    for (size_t i = 0; i < sizeof shorter / sizeof shorter[0] && !named; i++) {
        named = strcmp(a->name, shorter[i][0]) == 0 && strlen(shorter[i][1]) == bytes
             && memcmp(shorter[i][1], given, bytes) == 0;
    }
    return named;
}

/* Reads the flag at argv[*at], and moves *at to the last argument that belongs to it. */
static args_result parse_flag(const args_desc *d, int argc, char **argv, int *at)
{
    const char *given = argv[*at], *equals = strchr(given, '=');
    size_t name_bytes = equals ? (size_t)(equals - given) : strlen(given);
    for (size_t i = 0; i < d->flag_count; i++) {
        const arg *a = &d->flags[i];
        if (!is_named(a, given, name_bytes)) {
            continue;
        }
        if (a->kind == ARG_BOOL) {
            return equals ? args_wrong(d, "%s accepts no value", a->name) : store_value(d, a, NULL);
        }
        if (equals) {
            return store_value(d, a, equals + 1);
        }
        if (*at + 1 >= argc) {
            return args_wrong(d, "%s needs a value", a->name);
        }
        return store_value(d, a, argv[++*at]);
    }
    return unknown_flag(d, given, name_bytes);
}

args_result args_parse(const args_desc *d, int argc, char **argv)
{
    size_t positionals = 0;
    bool flags_ended = false;
    for (int at = 0; at < argc; at++) {
        args_result result = ARGS_OK;
        const char *text = argv[at];
        if (!flags_ended && (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0)) {
            return print_help(d);
        }
        if (!flags_ended && strcmp(text, "--") == 0) {
            flags_ended = true;
        } else if (!flags_ended && text[0] == '-' && text[1]) {
            result = parse_flag(d, argc, argv, &at);
        } else if (positionals < d->positional_count) {
            result = store_value(d, &d->positional[positionals++], text);
        } else if (d->positional_count && d->positional[d->positional_count - 1].kind == ARG_TEXTS) {
            result = store_value(d, &d->positional[d->positional_count - 1], text);
        } else {
            result = args_wrong(d, "unexpected argument '%s'", text);
        }
        if (result != ARGS_OK) {
            return result;
        }
    }
    if (positionals < d->positional_needed) {
        return args_wrong(d, "%s is missing", d->positional[positionals].name);
    }
    return ARGS_OK;
}
