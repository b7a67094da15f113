/* template.c: see template.h.
   takes: files.
   gives: what template.h declares. */
#include "template.h"

#include "../common/text_file.h"
#include "formats.h"

#include <stdlib.h>
#include <string.h>

bool template_choose(const char *choice, exl2_chat_desc *chat, char **text)
{
    FILE *file = choice ? text_file_open(choice, "rb") : NULL;
    size_t bytes;
    *text = NULL;
    if (!file) {
        const format *f = choice ? format_find(choice) : NULL;
        chat->template_text = f ? f->template : NULL;
        chat->template_name = f ? NULL : choice;
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

template_ending template_end(const char *choice, exl2_engine *e, exl2_model model)
{
    template_ending end = { .token_count = 0 };
    FILE *file = choice ? text_file_open(choice, "rb") : NULL;
    const format *f = choice && !file ? format_find(choice) : NULL;
    size_t count = 0;
    if (file) {
        fclose(file);
    }
    if (!f || !f->end) {
        return end;
    }
    if (exl2_tokenize(e, model, f->end, strlen(f->end), EXL2_TEXT_NO_BOS, end.tokens, 1, &count) >= 0 && count == 1) {
        end.token_count = 1;
    } else {
        end.strings[0] = f->end;
        end.string_count = 1;
    }
    return end;
}
