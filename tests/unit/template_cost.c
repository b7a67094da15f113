/* template_cost.c: what one step of the template interpreter covers. Every operation runs over values of two lengths,
   and its steps are counted: one step per 64 bytes or two elements at most. `test_template_cost time` measures instead
   the nanoseconds of CPU time per step of each operation in a loop, the most expensive ones first. That time multiplied
   by the limit of steps is the worst render. */
#define _POSIX_C_SOURCE 200809L
#include "private/platform_alloc.h"
#include "private/template.h"
#include "../check.h"

#include <time.h>

static exl2__ctx ctx;
static char *block;

typedef struct cost {
    uint32_t steps;
    double seconds;
    exl2_result result;
} cost;

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Renders in the largest block, in at most `steps` steps. */
static cost run(const char *source, uint32_t steps)
{
    static const exl2_message talk[] = { { .role = "user", .text = "Hello." } };
    static const exl2_chat_desc chat = { .now = "2025-03-07 09:05:03" };
    exl2__template_input in = { talk, 1, &chat, "<s>", "</s>", NULL, NULL, NULL, NULL, NULL, NULL };
    exl2__template t;
    cost c = { EXL2__TEMPLATE_STEPS_MAX - steps, 0, EXL2_OK };
    in.steps = &c.steps;
    const char *text;
    const uint8_t *marks;
    size_t bytes;
    CHECK_INT(exl2__template_open(&ctx, source, strlen(source), &t), EXL2_OK);
    double start = cpu_seconds();
    c.result = exl2__template_render(&ctx, &t, &in, block, EXL2__TEMPLATE_BLOCK_MAX, &text, &bytes, &marks);
    c.seconds = cpu_seconds() - start;
    c.steps -= EXL2__TEMPLATE_STEPS_MAX - steps;
    exl2__template_close(&ctx, &t);
    return c;
}

/* ---- operations: `v` is the value ---- */

typedef enum touch {
    NONE,  /* reads a constant amount */
    ALL,   /* reads every byte or element */
} touch;

typedef struct operation {
    const char *code;
    touch text, list; /* of a text; of a list of numbers */
} operation;

/* In the order of the tables of template_code.h, then the operators. An operation that a kind does not have fails at
   once. */
static const operation operations[] = {
    { "v | abs", NONE, NONE }, { "v | attr('x')", NONE, NONE }, { "v | batch(3)", ALL, ALL },
    { "v | capitalize", ALL, ALL }, { "v | center(9)", ALL, ALL }, { "v | center(100000)", ALL, ALL },
    { "v | count", ALL, NONE }, { "v | default(1, true)", NONE, NONE }, { "v | dictsort", NONE, NONE },
    { "v | e", ALL, ALL }, { "v | forceescape", ALL, ALL }, { "v | first", ALL, NONE }, { "v | last", ALL, NONE },
    { "v | float", ALL, NONE }, { "v | int", ALL, NONE }, { "v | format", ALL, NONE }, { "v | indent", ALL, ALL },
    { "v | indent(100)", ALL, ALL }, { "v | groupby(0)", ALL, NONE }, { "v | join", ALL, ALL },
    { "v | join(v)", ALL, ALL }, { "v | length", ALL, NONE }, { "v | list", ALL, NONE }, { "v | lower", ALL, ALL },
    { "v | map('int') | list", ALL, ALL }, { "v | map('float') | list", ALL, ALL },
    { "v | map('string') | list", ALL, ALL }, { "v | map('upper') | list", ALL, ALL },
    { "v | map('length') | list", ALL, NONE }, { "v | map('round') | list", ALL, ALL },
    { "v | map('abs') | list", ALL, ALL }, { "v | map(attribute='x', default=1) | list", ALL, ALL },
    { "v | map('default', 1) | list", ALL, ALL }, { "v | map('tojson') | list", ALL, ALL },
    { "v | map('first') | list", ALL, NONE }, { "v | max", ALL, ALL }, { "v | min", ALL, ALL },
    { "v | max(case_sensitive=true)", ALL, ALL }, { "v | min(attribute=0)", ALL, NONE },
    { "v | select | list", ALL, ALL }, { "v | reject | list", ALL, ALL }, { "v | select('string') | list", ALL, ALL },
    { "v | select('odd') | list", ALL, ALL }, { "v | select('lower') | list", ALL, ALL },
    { "v | select('filter') | list", ALL, NONE }, { "v | select('test') | list", ALL, NONE },
    { "v | select('divisibleby', 3.5) | list", ALL, ALL }, { "v | select('in', [1, 2]) | list", ALL, ALL },
    { "v | select('eq', 1) | list", ALL, ALL }, { "v | selectattr('x') | list", ALL, ALL },
    { "v | rejectattr('x', 'defined') | list", ALL, ALL }, { "v | replace('a', 'bb')", ALL, ALL },
    { "v | replace('', 'b')", ALL, ALL }, { "v | reverse | list", ALL, ALL }, { "v | round", NONE, NONE },
    { "v | safe", NONE, ALL }, { "v | string", NONE, ALL }, { "v | slice(3) | list", ALL, ALL },
    { "v | slice(1000) | list", ALL, ALL }, { "v | sort", ALL, ALL }, { "v | sort(case_sensitive=true)", ALL, ALL },
    { "v | sort(reverse=true)", ALL, ALL }, { "v | sum", ALL, ALL }, { "v | title", ALL, ALL },
    { "v | tojson", ALL, ALL }, { "v | tojson(ensure_ascii=true, indent=2)", ALL, ALL }, { "v | trim", NONE, NONE },
    { "v | trim(v)", ALL, ALL }, { "v | truncate(10)", ALL, ALL }, { "v | unique | list | length", ALL, ALL },
    { "v | upper", ALL, ALL }, { "v | wordcount", ALL, ALL },
    { "v is lower", ALL, ALL }, { "v is upper", NONE, ALL }, { "v is filter", NONE, NONE }, { "v is test", NONE, NONE },
    { "v is defined", NONE, NONE }, { "v is iterable", NONE, NONE }, { "v is odd", NONE, NONE },
    { "v is eq v", ALL, ALL }, { "'q' is in v", ALL, ALL }, { "'z' is in v", ALL, ALL },
    { "v.capitalize()", ALL, NONE }, { "v.center(100000, '.')", ALL, NONE }, { "v.count('a')", ALL, ALL },
    { "v.count('aa')", ALL, ALL }, { "v.endswith('z')", NONE, NONE }, { "v.startswith(v)", ALL, NONE },
    { "v.find('z')", ALL, NONE }, { "v.rfind('a')", ALL, NONE }, { "v.format(1, 2)", ALL, NONE },
    { "v.isalnum()", NONE, NONE }, { "v.isalpha()", NONE, NONE }, { "v.isdigit()", NONE, NONE },
    { "v.islower()", ALL, NONE }, { "v.isspace()", NONE, NONE }, { "v.isupper()", NONE, NONE },
    { "','.join(v)", ALL, NONE }, { "v.ljust(100000)", ALL, NONE }, { "v.lower()", ALL, NONE },
    { "v.lstrip()", NONE, NONE }, { "v.rstrip('xyz')", NONE, NONE }, { "v.strip('abc')", ALL, NONE },
    { "v.partition('z')", ALL, NONE }, { "v.rpartition('a')", ALL, NONE }, { "v.removeprefix('a')", NONE, NONE },
    { "v.replace('a', '')", ALL, NONE }, { "v.split()", ALL, NONE }, { "v.split('a')", ALL, NONE },
    { "v.split('z')", ALL, NONE }, { "v.split('ab', 1)", NONE, NONE }, { "v.rsplit('a', 1)", ALL, NONE },
    { "v.splitlines()", ALL, NONE }, { "v.swapcase()", ALL, NONE }, { "v.title()", ALL, NONE },
    { "v.upper()", ALL, NONE }, { "v.zfill(100000)", ALL, NONE }, { "v.index(-1)", NONE, ALL },
    { "v.nothing is defined", NONE, NONE }, { "v['nothing'] is defined", NONE, NONE },
    { "range(10)", NONE, NONE }, { "range(0, 100000, 7)", NONE, NONE },
    { "strftime_now('%A %d %B %Y %H:%M:%S %p')", NONE, NONE },
    { "v + v", ALL, ALL }, { "v * 3", ALL, ALL }, { "3.7 * 1.1", NONE, NONE }, { "7 // 2", NONE, NONE },
    { "1e300 % 3e-300", NONE, NONE }, { "1e300 // 3e-5", NONE, NONE }, { "1.1 ** 300.5", NONE, NONE },
    { "3 ** 39", NONE, NONE }, { "v ~ v", ALL, ALL }, { "v == v", ALL, ALL }, { "v < v", ALL, NONE },
    { "'z' in v", ALL, ALL }, { "v[0]", ALL, NONE }, { "v[-1]", ALL, NONE }, { "v[1:]", ALL, ALL },
    { "v[::-1]", ALL, ALL }, { "v[::2]", ALL, ALL }, { "[v, v]", NONE, NONE }, { "{'a': v}", NONE, NONE },
    { "'%s|%s' % (v, 1)", ALL, ALL }, { "'%100000s' % 'a'", NONE, NONE }, { "'%.9f' % 1234.5678", NONE, NONE },
    { "'%.2f' % 1e-300", NONE, NONE }, { "'%d' % 3", NONE, NONE }, { "'{} {}'.format(v, v)", ALL, ALL },
    { "0.1 ~ ''", NONE, NONE }, { "1.7976931348623157e308 ~ ''", NONE, NONE }, { "5e-324 ~ ''", NONE, NONE },
    { "2.2250738585072014e-308 ~ ''", NONE, NONE }, { "1.2345678901234567e-250 ~ ''", NONE, NONE },
    { "123456.789 | round(2)", NONE, NONE }, { "1.2345678901234567e-200 | round(3)", NONE, NONE },
    { "1.2345678901234567 | round(3, 'ceil')", NONE, NONE }, { "'1.2345678901234567e-300' | float", NONE, NONE },
    { "'1.7976931348623157e308' | float", NONE, NONE }, { "'123456789' | int", NONE, NONE },
    { "'0.1' | float", NONE, NONE }, { "9007199254740993.0 ~ ''", NONE, NONE }, { "'\xCE\xA3' | lower", NONE, NONE },
    { "['b', 'a'] | sort", NONE, NONE }, { "{'b': 1, 'a': 2} | dictsort", NONE, NONE },
    { "{'b': 1, 'a': 2}.items() | list", NONE, NONE },
    { "{'b': 1, 'a': [1.5, none]} | tojson(sort_keys=true)", NONE, NONE },
    { "{'b': 1}.zzz is defined", NONE, NONE }, { "namespace(a=1).a", NONE, NONE },
    { "[] | map('upper') | list", NONE, NONE },
    { "[] | select('undefined') | list", NONE, NONE }, { "not v", NONE, NONE }, { "v and v", NONE, NONE },
    { "-1", NONE, NONE }, { "loop.index", NONE, NONE }, { "loop.revindex0", NONE, NONE },
    { "loop.changed(v)", NONE, NONE },
    { "loop.cycle(1, 2)", NONE, NONE }, { "m(v)", NONE, NONE }, { "m(a=v)", NONE, NONE },
};

/* ---- counting ---- */

#define ALL_STEPS EXL2__TEMPLATE_STEPS_MAX
#define FEW_STEPS 60000u

static const char *source_of(const char *value, uint32_t times, const char *code, int repeats)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "{%% macro m(a) %%}{%% endmacro %%}{%% set v = (%s) * %u %%}"
             "{%% for i in range(%d) %%}{%% set x = %s %%}{%% endfor %%}", value, times, repeats, code);
    return text;
}

/* If a render of the short value works, the long one costs one step more per 64 bytes or two elements. */
static void check_counts(const char *value, uint32_t unit, bool list)
{
    enum { SHORT = 10, LONG = 3000 };
    for (size_t i = 0; i < EXL2__COUNT(operations); i++) {
        const operation *o = &operations[i];
        cost made_short = run(source_of(value, SHORT, "1", 1), ALL_STEPS);
        cost made_long = run(source_of(value, LONG, "1", 1), ALL_STEPS);
        cost a = run(source_of(value, SHORT, o->code, 1), ALL_STEPS);
        cost b = run(source_of(value, LONG, o->code, 1), ALL_STEPS);
        if (a.result < 0 || (list ? o->list : o->text) == NONE) {
            continue;
        }
        uint32_t wanted = list ? (LONG - SHORT) * unit / 2 : (LONG - SHORT) * unit / 64;
        uint32_t more = b.steps - a.steps - (made_long.steps - made_short.steps);
        if (!CHECK(b.result == EXL2_ERR_BUDGET || more >= wanted)) {
            printf("    %s of %s: %u steps more, %u wanted\n", o->code, value, more, wanted);
        }
    }
}

static void test_counts(void)
{
    check_counts("'abcabcab'", 8, false);
    check_counts("'\xC3\xA4\xC3\xB6\xE2\x82\xAC!'", 8, false);
    check_counts("'12 34 56 '", 9, false);
    check_counts("[1, 2.5]", 2, true);
    check_counts("['a', 'bc']", 2, true);
    check_counts("[[1], (2, 3)]", 2, true);
}

/* ---- time (run by hand) ---- */

typedef struct row {
    double ns, seconds;
    uint32_t steps;
    char name[200];
} row;

static int row_order(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return x->seconds < y->seconds ? 1 : x->seconds > y->seconds ? -1 : 0;
}

static void measure(void)
{
    static const struct { const char *value; uint32_t times; } values[] = {
        { "'a'", 1 }, { "'a'", 1000 }, { "'ab \\n'", 5000 }, { "'a'", 1000000 }, { "'\xC3\xA4\xC3\xB6'", 2000 },
        { "'\xF0\x9F\x98\x80'", 5000 }, { "'\xCE\xA3\xCC\x81'", 2000 }, { "'7 '", 2000 }, { "'<%s> & {}'", 1000 },
        { "[1]", 1 }, { "[1, 2.5, 3]", 1000 }, { "['1.5e-300', 'a', 'B']", 1000 },
        { "[1.2345678901234567e-250]", 1000 },
        { "['abcdefghijklmnopqrstuvwxyz']", 3000 }, { "[[1], (2, 3)]", 1000 }, { "['abs', 'nothing']", 1000 },
        { "[{'a': 1, 'b': 'c'}]", 1000 }, { "[none, true]", 5000 },
    };
    size_t count = 0;
    row *rows = calloc(EXL2__COUNT(operations) * EXL2__COUNT(values), sizeof *rows);
    for (size_t k = 0; k < EXL2__COUNT(values); k++) {
        for (size_t i = 0; i < EXL2__COUNT(operations); i++) {
            cost once = run(source_of(values[k].value, values[k].times, operations[i].code, 1), FEW_STEPS);
            if (once.result < 0) {
                continue;
            }
            row *at = &rows[count];
            cost made = run(source_of(values[k].value, values[k].times, operations[i].code, 2000), FEW_STEPS);
            *at = (row){ made.seconds * 1e9 / made.steps, made.seconds, made.steps, { 0 } };
            at->seconds = at->ns * EXL2__TEMPLATE_STEPS_MAX * 1e-9;
            snprintf(at->name, sizeof at->name, "%s of %s * %u", operations[i].code, values[k].value, values[k].times);
            count++;
        }
    }
    qsort(rows, count, sizeof *rows, row_order);
    printf("%zu rows; seconds to the limit, ns a step, steps, what\n", count);
    for (size_t i = 0; i < count && i < 40; i++) {
        printf("%6.2f s %8.1f ns %9u %s\n", rows[i].seconds, rows[i].ns, rows[i].steps, rows[i].name);
    }
    free(rows);
}

int main(int count, char **words)
{
    ctx.allocator = exl2__platform_allocator();
    block = malloc(EXL2__TEMPLATE_BLOCK_MAX);
    if (count > 1 && strcmp(words[1], "time") == 0) {
        measure();
        return 0;
    }
    test_counts();
    free(block);
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}
