/* transcript.c: see transcript.h.
   takes: the lines of a tavern.
   gives: what transcript.h declares.
   owns:  nothing. */
#define _POSIX_C_SOURCE 200809L
#include "transcript.h"

#include <stdio.h>
#include <stdlib.h>

bool transcript_was_cut(const tavern_line *l)
{
    return l->ended && (l->stop == EXL2_STOP_CANCELLED || l->stop == EXL2_STOP_LENGTH);
}

char *transcript_text(const tavern *t, size_t *bytes)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, bytes);
    if (!file) {
        perror("transcript");
        exit(1);
    }
    for (size_t i = 0; i < t->count; i++) {
        const tavern_line *l = &t->lines[i];
        if (l->by) {
            fprintf(file, "%s: %s%s%s%s%s\n", l->by->who->name, l->text, transcript_was_cut(l) ? TRANSCRIPT_CUT : "",
                    l->deed[0] ? " (" : "", l->deed, l->deed[0] ? ")" : "");
        } else {
            fprintf(file, "%sYou, to %s: %s\n", i ? "\n" : "", l->to, l->text);
        }
    }
    fclose(file);
    return text;
}

bool transcript_save(const tavern *t, const char *path)
{
    size_t bytes;
    char *text = transcript_text(t, &bytes);
    FILE *file = fopen(path, "wb");
    bool good = file && fwrite(text, 1, bytes, file) == bytes;
    good = file && fclose(file) == 0 && good;
    free(text);
    return good;
}

uint64_t transcript_hash(const tavern *t)
{
    size_t bytes;
    char *text = transcript_text(t, &bytes);
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001B3u;
    }
    free(text);
    return hash;
}
