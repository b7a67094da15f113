/* formats.h: chat formats by name, for models whose folder has no chat template.
   takes: a name.
   gives: format, format_find, format_names. */
#ifndef DEMO_CLI_FORMATS_H
#define DEMO_CLI_FORMATS_H

typedef struct format {
    const char *name;     /* as in --template NAME */
    const char *template; /* Jinja */
    const char *end;      /* what a model writes after a reply, if that is not its end token; NULL: nothing else */
} format;

const format *format_find(const char *name); /* NULL: no format has this name */
extern const char format_names[];            /* of all, separated by commas */

#endif
