/* template.c: see template.h.
   takes: files.
   gives: what template.h declares. */
#include "template.h"

#include "../common/text_file.h"

#include <stdlib.h>
#include <string.h>

bool template_choose(const char *choice, exl2_chat_desc *chat, char **text)
{
    FILE *file = choice ? text_file_open(choice, "rb") : NULL;
    size_t bytes;
    *text = NULL;
    if (!file) {
        chat->template_name = choice;
        return true;
    }
    fclose(file);
    *text = text_file_read(choice, &bytes);
    if (*text && strlen(*text) < bytes) {
        fprintf(stderr, "%s has a zero byte, which a template cannot have\n", choice);
        free(*text);
        *text = NULL;
    }
    chat->template_text = *text;
    return *text != NULL;
}
