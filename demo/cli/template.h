/* template.h: the flag --template FILE|NAME.
   takes: a path or the name of one of the model's chat templates.
   gives: TEMPLATE_ARG, template_choose.
   owns:  nothing; the caller frees the text. */
#ifndef DEMO_CLI_TEMPLATE_H
#define DEMO_CLI_TEMPLATE_H

#include "../../exl2.h"

#define TEMPLATE_ARG(value)                                                                                            \
    {                                                                                                                  \
        "--template", ARG_TEXT, &(value), "F", "chat template: a file, or the name of one of the model's"              \
    }

/* Fills template_text or template_name; NULL: neither. *text is to be freed. False with a sentence: the file cannot be
   read, or holds a zero byte. */
bool template_choose(const char *choice, exl2_chat_desc *chat, char **text);

#endif
