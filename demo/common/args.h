/* args.h: command-line flags, described by a table.
   takes: argv, a table of flags and of positional arguments.
   gives: args_parse, args_distance, args_wrong.
   owns:  nothing; texts point into argv. */
#ifndef DEMO_ARGS_H
#define DEMO_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARGS_LIST_MAX 32

typedef struct arg_texts { /* a flag that may be repeated */
    const char *items[ARGS_LIST_MAX];
    uint32_t count;
} arg_texts;

typedef struct arg_numbers { /* "1,8,16" */
    uint32_t items[ARGS_LIST_MAX];
    uint32_t count;
} arg_numbers;

typedef struct arg_sizes { /* "8GB,6.5g,900MiB,4096": bytes */
    uint64_t items[ARGS_LIST_MAX];
    uint32_t count;
} arg_sizes;

typedef struct arg_floats { /* "2,1.5" */
    float items[ARGS_LIST_MAX];
    uint32_t count;
} arg_floats;

typedef enum arg_kind {
    ARG_BOOL,    /* bool: present or not */
    ARG_TEXT,    /* const char * */
    ARG_TEXTS,   /* arg_texts; of the last positional argument: all that follow, too */
    ARG_U32,     /* uint32_t */
    ARG_U64,     /* uint64_t */
    ARG_SIZE,    /* uint64_t: bytes, as "8GB", "6.5g", "900MiB" or "4096" */
    ARG_MIB,     /* the same, but a number without a unit counts MiB */
    ARG_FLOAT,   /* float */
    ARG_NUMBERS, /* arg_numbers */
    ARG_SIZES,   /* arg_sizes */
    ARG_FLOATS,  /* arg_floats */
    ARG_CHOICE,  /* uint32_t: index of a part of value_name */
    ARG_CHOICES  /* arg_numbers: indices of parts of value_name, for "auto,cpu" */
} arg_kind;

typedef struct arg {
    const char *name;       /* "--max"; "MODEL" for a positional argument */
    arg_kind kind;
    void *value;            /* unchanged if the argument is absent */
    const char *value_name; /* "N"; "auto|cpu" for ARG_CHOICE, ARG_CHOICES; NULL for ARG_BOOL, positional arguments.
                               "FILE", "FILE|NAME", "DIR", "PATH", and NULL of a text: a path, which may not be
                               empty */
    const char *help;       /* "tokens to write (256)" */
} arg;

typedef struct args_desc {
    const char *program; /* "exl2 generate" */
    const char *about;   /* for --help */
    const arg *positional;
    size_t positional_count;
    size_t positional_needed; /* the others may be left out */
    const arg *flags;
    size_t flag_count;
} args_desc;

typedef enum args_result {
    ARGS_OK,
    ARGS_HELP,  /* --help: the usage was printed to stdout; exit with 0 */
    ARGS_USAGE  /* a message was printed to stderr; exit with 2 */
} args_result;

#define ARGS_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* argv[0] is the first argument, not the program. Accepts "--flag value" and "--flag=value"; "--" ends
   the flags. */
args_result args_parse(const args_desc *d, int argc, char **argv);
/* Edit distance between given[0..bytes) and `name`. SIZE_MAX: too large for `name` to be meant. */
size_t args_distance(const char *given, size_t bytes, const char *name);
args_result args_wrong(const args_desc *d, const char *format, ...); /* prints it with a hint; ARGS_USAGE */

#endif
