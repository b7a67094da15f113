/* template_code.h: a parsed chat template, which is a flat program for a stack machine, and the tables of the supported
   filters, tests, methods and functions.
   takes: nothing.
   gives: exl2__template, exl2__template_ins, the operations, the signatures.
   owns:  nothing; template.h makes and frees the program. */
#ifndef EXL2__TEMPLATE_CODE_H
#define EXL2__TEMPLATE_CODE_H

#include "../../0_base/arena.h"

#define EXL2__TEMPLATE_SOURCE_MAX (512u << 10) /* bytes; published templates have at most 20 KiB */
#define EXL2__TEMPLATE_NAMES_MAX 512u          /* variables of one template */
#define EXL2__TEMPLATE_DEPTH_MAX 64u           /* nested statements and expressions */
#define EXL2__TEMPLATE_ARGS_MAX 8u             /* arguments of one filter, test, method or function */
#define EXL2__TEMPLATE_DIGITS_MAX 4300u        /* of an integer, as in Python */

/* One instruction. Expressions push and pop values; jumps are relative to their own instruction, so that finished
   code can be moved. */
typedef struct exl2__template_ins {
    uint8_t op;     /* exl2__template_op */
    uint8_t id;     /* number of the comparison, filter, test, method or function; bits of the slice bounds */
    uint16_t count; /* arguments pushed; frames that stay open */
    uint32_t a, b;  /* operands: see exl2__template_op */
    uint32_t at;    /* offset in the source, for messages */
} exl2__template_ins;

typedef enum exl2__template_op {
    /* output: a, b = offset and bytes in exl2__template.text */
    EXL2__TEMPLATE_WRITE, /* constant text */
    EXL2__TEMPLATE_PRINT, /* pop and write */
    /* constants */
    EXL2__TEMPLATE_TEXT,  /* a, b = offset, bytes */
    EXL2__TEMPLATE_INT,   /* a, b = low and high half */
    EXL2__TEMPLATE_BIG,   /* an integer beyond int64_t; a, b = its decimal digits: offset, bytes */
    EXL2__TEMPLATE_REAL,  /* a, b = low and high half of the double */
    EXL2__TEMPLATE_NONE,
    EXL2__TEMPLATE_BOOL,  /* a */
    EXL2__TEMPLATE_NO_ELSE, /* the undefined value of `x if false` */
    /* variables: a = index in exl2__template.names */
    EXL2__TEMPLATE_LOAD,
    EXL2__TEMPLATE_LOOP,   /* the innermost loop */
    EXL2__TEMPLATE_BIND,   /* pop into the innermost scope */
    EXL2__TEMPLATE_BIND_ATTR, /* pop into the namespace in the variable a; b = attribute, an index as a */
    EXL2__TEMPLATE_UNPACK, /* pop a sequence, push its a elements, the first on top */
    /* parts of values */
    EXL2__TEMPLATE_ATTR,  /* a, b = name */
    EXL2__TEMPLATE_ITEM,
    EXL2__TEMPLATE_SLICE, /* id: bit 0, 1, 2 = start, stop, step were pushed */
    /* literals: a = elements (of a dict: pairs) that were pushed */
    EXL2__TEMPLATE_LIST,
    EXL2__TEMPLATE_TUPLE,
    EXL2__TEMPLATE_DICT,
    /* operators */
    EXL2__TEMPLATE_NEGATE,
    EXL2__TEMPLATE_POSITIVE,
    EXL2__TEMPLATE_NOT,
    EXL2__TEMPLATE_ADD,
    EXL2__TEMPLATE_SUBTRACT,
    EXL2__TEMPLATE_MULTIPLY,
    EXL2__TEMPLATE_DIVIDE,
    EXL2__TEMPLATE_FLOOR_DIVIDE,
    EXL2__TEMPLATE_MODULO,
    EXL2__TEMPLATE_POWER,
    EXL2__TEMPLATE_CONCAT,  /* pop a values, push their texts as one */
    EXL2__TEMPLATE_COMPARE, /* id = exl2__template_compare */
    EXL2__TEMPLATE_CHAIN,   /* x < y < z: compare x and y; if false, jump by a with False on top, else keep y on top */
    /* calls: id = row of the table, count = values pushed, b = the parameter number of each in four bits */
    EXL2__TEMPLATE_FILTER,
    EXL2__TEMPLATE_TEST,   /* a = 1: negated */
    EXL2__TEMPLATE_METHOD, /* a = bytes of the name, which begins at `at` */
    EXL2__TEMPLATE_CALL,   /* pushed: a macro or function, `count` values, `a` pairs name, value; b = bytes of its name,
                              which begins at `at` (0: no name); id = 1: `caller` is on top */
    EXL2__TEMPLATE_FAIL,   /* what is not supported: id = FILTER, TEST, METHOD or BIG; count = row of the table + 1, or
                              0 with an unknown name in a, b; a, b = its wrong argument, or b = 0 and a = too few
                              arguments */
    /* macros: code of the parameters, then of the body */
    EXL2__TEMPLATE_MACRO,      /* push it; a = its first instruction, relative; count = exl2__template_macro_use; b =
                                  the index of its name + 1, or 0 */
    EXL2__TEMPLATE_PARAMETER,  /* number `count`, name b; if given, jump by a over its default; id = 1: has a default */
    EXL2__TEMPLATE_RETURN,     /* the output of the body is the value of the call */
    /* control: a = jump, relative */
    EXL2__TEMPLATE_JUMP,
    EXL2__TEMPLATE_UNLESS, /* pop, jump when false */
    EXL2__TEMPLATE_AND,    /* if false, keep the value and jump; else pop */
    EXL2__TEMPLATE_OR,     /* if true, keep the value and jump; else pop */
    EXL2__TEMPLATE_FOR,    /* pop the iterable, open a frame */
    EXL2__TEMPLATE_NEXT,   /* close inner frames down to `count`, push the next element, or jump */
    EXL2__TEMPLATE_KEEP,   /* keep the element: it fulfils the loop's condition */
    EXL2__TEMPLATE_AGAIN,  /* restart the loop over the kept elements */
    EXL2__TEMPLATE_RAN,    /* the body reached its end: `else` will not run (continue, break skip this, as in Jinja) */
    EXL2__TEMPLATE_ELSE,   /* close frames down to `count`; jump if the loop's body reached its end */
    EXL2__TEMPLATE_SCOPE,  /* open a frame; its variables end with it */
    EXL2__TEMPLATE_CAPTURE, /* open a frame whose output becomes a text */
    EXL2__TEMPLATE_CAPTURED, /* close this frame and push the text */
    EXL2__TEMPLATE_LEAVE,  /* close frames down to `count` */
    EXL2__TEMPLATE_END
} exl2__template_op;

typedef enum exl2__template_compare {
    EXL2__TEMPLATE_EQ, EXL2__TEMPLATE_NE, EXL2__TEMPLATE_LT, EXL2__TEMPLATE_LE,
    EXL2__TEMPLATE_GT, EXL2__TEMPLATE_GE, EXL2__TEMPLATE_IN, EXL2__TEMPLATE_NOT_IN
} exl2__template_compare;

/* Names that a macro's body uses. */
typedef enum exl2__template_macro_use {
    EXL2__TEMPLATE_USES_VARARGS = 1, EXL2__TEMPLATE_USES_KWARGS = 2, EXL2__TEMPLATE_USES_CALLER = 4
} exl2__template_macro_use;

#define EXL2__TEMPLATE_METHOD_UNKNOWN 255u

typedef struct exl2__template_name {
    uint32_t at, bytes; /* in exl2__template.text */
} exl2__template_name;

typedef struct exl2__template {
    bool present;       /* the model has a template, perhaps a rejected one */
    uint64_t bytes;     /* size of the block */
    void *block;        /* code, names, text */
    const exl2__template_ins *code;
    const exl2__template_name *names; /* [name_count] variables */
    const char *text;   /* the source with line ends as "\n", then the decoded string literals that had escapes */
    uint32_t name_count;
    uint32_t stack_max; /* most values on the stack at a time */
    uint32_t text_bytes;
    bool reads_tools, reads_tool_calls; /* see exl2__template_probe */
    uint32_t *guard;    /* see exl2__template_guard; NULL: none */
    uint64_t guard_bytes;
    exl2_error rejected; /* code 0: accepted; else every render returns this error */
} exl2__template;

/* ---- names ---- */

/* X(name, parameters, mandatory, function, with): `parameters` are separated by spaces and in order. "-" is a parameter
   without a name; a parameter with "*" is given by name only; "**" receives a dict of all that are given by name.
   `mandatory` is the number of mandatory ones. The value on the left of a filter or test and the object of a method are
   not parameters. `function` is the end of the name of an exl2__template_function (exl2__template_filter_case), and
   `with` is for that function: rows that differ in a detail share one. */
#define EXL2__TEMPLATE_FILTERS(X) \
    X("abs", "", 0, absolute, 0) \
    X("attr", "name", 1, attribute, 0) \
    X("batch", "linecount fill_with", 1, chunks, true) \
    X("capitalize", "", 0, case, EXL2__TEMPLATE_CASE_FIRST) \
    X("center", "width", 0, center, 0) \
    X("count", "", 0, length, 0) \
    X("d", "default_value boolean", 0, default, 0) \
    X("default", "default_value boolean", 0, default, 0) \
    X("dictsort", "case_sensitive by reverse", 0, dictsort, 0) \
    X("e", "", 0, escape, false) \
    X("escape", "", 0, escape, false) \
    X("first", "", 0, end, false) \
    X("float", "default", 0, number, true) \
    X("forceescape", "", 0, escape, true) \
    X("format", "- - - - - - - -", 0, format, 0) \
    X("groupby", "attribute default case_sensitive", 1, group, 0) \
    X("indent", "width first blank", 0, indent, 0) \
    X("int", "default base", 0, number, false) \
    X("items", "", 0, items, 0) \
    X("join", "d attribute", 0, join, 0) \
    X("last", "", 0, end, true) \
    X("length", "", 0, length, 0) \
    X("list", "", 0, list, 0) \
    X("lower", "", 0, case, EXL2__TEMPLATE_CASE_LOWER) \
    X("map", "- - - - - - *attribute *default", 0, map, 0) /* see exl2__template_map_parameter */ \
    X("max", "case_sensitive attribute", 0, extreme, true) \
    X("min", "case_sensitive attribute", 0, extreme, false) \
    X("reject", "- - - - - - -", 0, select, 0) \
    X("rejectattr", "- - - - - - -", 1, select, EXL2__TEMPLATE_SELECT_ATTRIBUTE) \
    X("replace", "old new count", 2, replace, 0) \
    X("reverse", "", 0, reverse, 0) \
    X("round", "precision method", 0, round, 0) \
    X("safe", "", 0, string, true) \
    X("select", "- - - - - - -", 0, select, EXL2__TEMPLATE_SELECT_TRUE) \
    X("selectattr", "- - - - - - -", 1, select, EXL2__TEMPLATE_SELECT_ATTRIBUTE | EXL2__TEMPLATE_SELECT_TRUE) \
    X("slice", "slices fill_with", 1, chunks, false) \
    X("sort", "reverse case_sensitive attribute", 0, sort, 0) \
    X("string", "", 0, string, false) \
    X("sum", "attribute start", 0, sum, 0) \
    X("title", "", 0, case, EXL2__TEMPLATE_CASE_WORDS) \
    X("tojson", "ensure_ascii indent separators sort_keys", 0, tojson, 0) \
    X("trim", "chars", 0, trim, 0) \
    X("truncate", "length killwords end leeway", 0, truncate, 0) \
    X("unique", "case_sensitive attribute", 0, unique, 0) \
    X("upper", "", 0, case, EXL2__TEMPLATE_CASE_UPPER) \
    X("wordcount", "", 0, words, 0)

/* X(name, parameters, mandatory, how, with): here `how` says how the test is computed and `with` what it needs for
   that, see exl2__template_test_how. */
#define EXL2__TEMPLATE_TESTS(X) \
    X("boolean", "", 0, KIND, EXL2__TEMPLATE_BIT(BOOL)) \
    X("callable", "", 0, KIND, EXL2__TEMPLATE_CALLABLES) \
    X("defined", "", 0, KIND, ~EXL2__TEMPLATE_BIT(UNDEFINED)) \
    X("divisibleby", "num", 1, DIVISIBLE, 0) \
    X("eq", "-", 1, COMPARE, EXL2__TEMPLATE_EQ) \
    X("equalto", "-", 1, COMPARE, EXL2__TEMPLATE_EQ) \
    X("==", "-", 1, COMPARE, EXL2__TEMPLATE_EQ) \
    X("escaped", "", 0, SAFE, 0) \
    X("even", "", 0, PARITY, 0) \
    X("false", "", 0, TRUTH, false) \
    X("filter", "", 0, NAME, EXL2__TEMPLATE_FILTER) \
    X("float", "", 0, KIND, EXL2__TEMPLATE_BIT(REAL)) \
    X("ge", "-", 1, COMPARE, EXL2__TEMPLATE_GE) \
    X(">=", "-", 1, COMPARE, EXL2__TEMPLATE_GE) \
    X("greaterthan", "-", 1, COMPARE, EXL2__TEMPLATE_GT) \
    X("gt", "-", 1, COMPARE, EXL2__TEMPLATE_GT) \
    X(">", "-", 1, COMPARE, EXL2__TEMPLATE_GT) \
    X("in", "seq", 1, COMPARE, EXL2__TEMPLATE_IN) \
    X("integer", "", 0, KIND, EXL2__TEMPLATE_BIT(INT) | EXL2__TEMPLATE_BIT(BIG)) \
    X("iterable", "", 0, KIND, EXL2__TEMPLATE_ITERABLES) \
    X("le", "-", 1, COMPARE, EXL2__TEMPLATE_LE) \
    X("<=", "-", 1, COMPARE, EXL2__TEMPLATE_LE) \
    X("lessthan", "-", 1, COMPARE, EXL2__TEMPLATE_LT) \
    X("lower", "", 0, CASE, 'l') \
    X("lt", "-", 1, COMPARE, EXL2__TEMPLATE_LT) \
    X("<", "-", 1, COMPARE, EXL2__TEMPLATE_LT) \
    X("mapping", "", 0, KIND, EXL2__TEMPLATE_BIT(DICT)) \
    X("ne", "-", 1, COMPARE, EXL2__TEMPLATE_NE) \
    X("!=", "-", 1, COMPARE, EXL2__TEMPLATE_NE) \
    X("none", "", 0, KIND, EXL2__TEMPLATE_BIT(NONE)) \
    X("number", "", 0, KIND, EXL2__TEMPLATE_NUMBERS) \
    X("odd", "", 0, PARITY, 1) \
    X("sameas", "other", 1, SAME, 0) \
    X("sequence", "", 0, KIND, EXL2__TEMPLATE_SEQUENCES) \
    X("string", "", 0, KIND, EXL2__TEMPLATE_BIT(TEXT)) \
    X("test", "", 0, NAME, EXL2__TEMPLATE_TEST) \
    X("true", "", 0, TRUTH, true) \
    X("undefined", "", 0, KIND, EXL2__TEMPLATE_BIT(UNDEFINED)) \
    X("upper", "", 0, CASE, 'u')

#define EXL2__TEMPLATE_METHODS(X) \
    X("capitalize", "", 0, case, EXL2__TEMPLATE_CASE_FIRST) \
    X("casefold", "", 0, case, EXL2__TEMPLATE_CASE_FOLD) \
    X("center", "- -", 1, pad, 'c') \
    X("changed", "- - - - - - - -", 0, changed, 0) \
    X("copy", "", 0, copy, 0) \
    X("count", "- - -", 1, find, EXL2__TEMPLATE_FIND_COUNT) \
    X("cycle", "- - - - - - - -", 1, cycle, 0) \
    X("endswith", "- - -", 1, affix, true) \
    X("find", "- - -", 1, find, 0) \
    X("format", "- - - - - - - **", 0, format, 0) \
    X("get", "- -", 1, get, 0) \
    X("index", "- - -", 1, find, EXL2__TEMPLATE_FIND_MUST) \
    X("isalnum", "", 0, is, 'n') \
    X("isalpha", "", 0, is, 'a') \
    X("isascii", "", 0, is, '7') \
    X("isdigit", "", 0, is, 'd') \
    X("islower", "", 0, is, 'l') \
    X("isnumeric", "", 0, is, 'N') \
    X("isspace", "", 0, is, 's') \
    X("isupper", "", 0, is, 'u') \
    X("items", "", 0, view, EXL2__TEMPLATE_VIEW_ITEMS) \
    X("join", "-", 1, join, 0) \
    X("keys", "", 0, view, EXL2__TEMPLATE_VIEW_KEYS) \
    X("ljust", "- -", 1, pad, 'l') \
    X("lower", "", 0, case, EXL2__TEMPLATE_CASE_LOWER) \
    X("lstrip", "-", 0, strip, EXL2__TEMPLATE_FRONT) \
    X("next", "", 0, cycler, true) \
    X("partition", "-", 1, partition, false) \
    X("removeprefix", "-", 1, cut_affix, false) \
    X("removesuffix", "-", 1, cut_affix, true) \
    X("replace", "- - -", 2, replace, 0) \
    X("reset", "", 0, cycler, false) \
    X("rfind", "- - -", 1, find, EXL2__TEMPLATE_FIND_LAST) \
    X("rindex", "- - -", 1, find, EXL2__TEMPLATE_FIND_MUST | EXL2__TEMPLATE_FIND_LAST) \
    X("rjust", "- -", 1, pad, 'r') \
    X("rpartition", "-", 1, partition, true) \
    X("rsplit", "sep maxsplit", 0, split, true) \
    X("rstrip", "-", 0, strip, EXL2__TEMPLATE_BACK) \
    X("split", "sep maxsplit", 0, split, false) \
    X("splitlines", "keepends", 0, lines, 0) \
    X("startswith", "- - -", 1, affix, false) \
    X("strip", "-", 0, strip, EXL2__TEMPLATE_FRONT | EXL2__TEMPLATE_BACK) \
    X("swapcase", "", 0, case, EXL2__TEMPLATE_CASE_SWAP) \
    X("title", "", 0, case, EXL2__TEMPLATE_CASE_TITLE) \
    X("upper", "", 0, case, EXL2__TEMPLATE_CASE_UPPER) \
    X("values", "", 0, view, EXL2__TEMPLATE_VIEW_VALUES) \
    X("zfill", "-", 1, pad, '0')

#define EXL2__TEMPLATE_FUNCTIONS(X) \
    X("raise_exception", "message", 1, raise, 0) \
    X("range", "- - -", 1, range, 0) \
    X("strftime_now", "format", 1, strftime, 0)

/* The parameters of `map`: the name of a filter and its arguments, or `attribute` and `default`. */
typedef enum exl2__template_map_parameter {
    EXL2__TEMPLATE_MAP_FILTER = 0,
    EXL2__TEMPLATE_MAP_ATTRIBUTE = 6,
    EXL2__TEMPLATE_MAP_DEFAULT = 7
} exl2__template_map_parameter;

typedef struct exl2__template_signature {
    const char *name, *parameters;
    uint8_t mandatory;
    uint8_t id; /* its row in the table */
} exl2__template_signature;

static inline bool exl2__template_same(const char *text, size_t bytes, const char *word)
{
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

/* Number of parameters that can be given by position. */
static inline uint32_t exl2__template_parameter_count(const char *parameters)
{
    uint32_t count = parameters[0] != 0;
    for (const char *c = parameters; *c && c[*c == ' '] != '*'; c++) {
        count += *c == ' ';
    }
    return count;
}

/* Position of the parameter `name`, or UINT32_MAX. */
static inline uint32_t exl2__template_parameter_number(const char *parameters, const char *name, uint32_t bytes)
{
    for (uint32_t i = 0; *parameters; i++) {
        size_t length = strcspn(parameters, " "), skip = *parameters == '*';
        if (length - skip == bytes && memcmp(parameters + skip, name, bytes) == 0) {
            return i;
        }
        parameters += length + (parameters[length] == ' ');
    }
    return UINT32_MAX;
}

typedef struct exl2__template_signature_row {
    const char *name, *parameters;
    uint8_t mandatory;
} exl2__template_signature_row;

/* The table of `op` (FILTER, TEST, METHOD, CALL). */
EXL2__PRIVATE const exl2__template_signature_row *exl2__template_signature_table(exl2__template_op op, size_t *count)
{
    typedef exl2__template_signature_row row;
#define X(name, parameters, mandatory, function, with) { name, parameters, mandatory },
    static const row filters[] = { EXL2__TEMPLATE_FILTERS(X) }, methods[] = { EXL2__TEMPLATE_METHODS(X) },
                     functions[] = { EXL2__TEMPLATE_FUNCTIONS(X) };
#undef X
#define X(name, parameters, mandatory, how, with) { name, parameters, mandatory },
    static const row tests[] = { EXL2__TEMPLATE_TESTS(X) };
#undef X
    const row *rows = functions;
    *count = EXL2__COUNT(functions);
    if (op == EXL2__TEMPLATE_FILTER) {
        rows = filters;
        *count = EXL2__COUNT(filters);
    } else if (op == EXL2__TEMPLATE_TEST) {
        rows = tests;
        *count = EXL2__COUNT(tests);
    } else if (op == EXL2__TEMPLATE_METHOD) {
        rows = methods;
        *count = EXL2__COUNT(methods);
    }
    return rows;
}

/* Finds the row `name` in the table of `op`. */
EXL2__PRIVATE bool exl2__template_signature_find(exl2__template_op op, const char *name, size_t bytes,
                                                 exl2__template_signature *out)
{
    size_t count;
    const exl2__template_signature_row *rows = exl2__template_signature_table(op, &count);
    for (size_t id = 0; id < count; id++) {
        if (exl2__template_same(name, bytes, rows[id].name)) {
            *out = (exl2__template_signature){ rows[id].name, rows[id].parameters, rows[id].mandatory, (uint8_t)id };
            return true;
        }
    }
    return false;
}

#endif
