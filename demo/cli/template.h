/* template.h: the flag --template FILE|FORMAT|NAME.
   takes: a path, the name of a format (formats.h), or that of one of the model's chat templates.
   gives: TEMPLATE_ARG, template_choose, template_end.
   owns:  nothing; the caller frees the text. */
#ifndef DEMO_CLI_TEMPLATE_H
#define DEMO_CLI_TEMPLATE_H

#include "../../exl2.h"

#include <stdbool.h>

/* clang-format off */
#define TEMPLATE_ARG(value)                                                                                            \
    {                                                                                                                  \
        "--template", ARG_TEXT, &(value), "FILE|NAME",                                                                 \
            "chat template: a file, a format such as chatml, or the name of one of the model's (its own)"             \
    }
/* clang-format on */

/* Sets template_text or template_name; with choice NULL, neither. The caller frees *text, which is NULL unless the
   template is a file's. false with a printed message: the file cannot be read, or contains a zero byte. */
bool template_choose(const char *choice, exl2_chat_desc *chat, char **text);

/* What ends a reply in the format that was chosen, besides the model's end tokens. */
typedef struct template_ending {
    exl2_token tokens[1];   /* [token_count] */
    const char *strings[1]; /* [string_count] where the end is no token of the model */
    uint32_t token_count, string_count;
} template_ending;

/* For a file, a template of the model, and choice NULL: nothing. */
template_ending template_end(const char *choice, exl2_engine *e, exl2_model model);

#endif
