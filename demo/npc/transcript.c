/* transcript.c: see transcript.h.
   takes: the lines of a tavern.
   gives: what transcript.h declares. */
#include "transcript.h"

#include "../common/hash.h"
#include "../common/memory.h"
#include "../common/text_file.h"

#include <stdio.h>
#include <stdlib.h>

bool transcript_was_cut(const tavern_line *l)
{
    return l->ended && (l->stop == EXL2_STOP_CANCELLED || l->stop == EXL2_STOP_LENGTH || l->stop == EXL2_STOP_LOOP);
}

char *transcript_text(const tavern *t, size_t *bytes)
{
    memory_text text = { 0 };
    for (size_t i = 0; i < t->count; i++) {
        const tavern_line *l = &t->lines[i];
        if (tavern_is_unsaid(l)) {
            continue;
        }
        if (l->by) {
            memory_text_format(&text, "%s: %s%s%s%s%s\n", l->by->who->name, l->text,
                               transcript_was_cut(l) ? TRANSCRIPT_CUT : "", l->deed[0] ? " (" : "", l->deed,
                               l->deed[0] ? ")" : "");
        } else {
            memory_text_format(&text, "%sYou, to %s: %s\n", i ? "\n" : "", l->to, l->text);
        }
    }
    *bytes = text.bytes;
    memory_text_add(&text, "", 1);
    return text.data;
}

bool transcript_save(const tavern *t, const char *path)
{
    size_t bytes;
    char *text = transcript_text(t, &bytes);
    bool good = text_file_replace(path, text, bytes);
    free(text);
    return good;
}

uint64_t transcript_hash(const tavern *t)
{
    size_t bytes;
    char *text = transcript_text(t, &bytes);
    uint64_t hash = hash_bytes(HASH_BEGIN, text, bytes);
    free(text);
    return hash;
}
