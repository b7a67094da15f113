/* template.h: the flag --template FILE|NAME.
   takes: a path or the name of one of the model's chat templates.
   gives: TEMPLATE_ARG, template_choose.
   owns:  nothing; the caller frees the text. */
#ifndef DEMO_CLI_TEMPLATE_H
#define DEMO_CLI_TEMPLATE_H

#include "../../exl2.h"

/* clang-format off */
#define TEMPLATE_ARG(value)                                                                                            \
    {                                                                                                                  \
        "--template", ARG_TEXT, &(value), "F", "chat template: a file, or the name of one of the model's"              \
    }
/* clang-format on */

/* Sets template_text or template_name; with choice NULL, neither. The caller frees *text. false with a printed message:
   the file cannot be read, or contains a zero byte. */
bool template_choose(const char *choice, exl2_chat_desc *chat, char **text);

#endif
