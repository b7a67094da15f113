/* ptx_words.c: splits the text of a module into words.
   takes: ptx_read.h.
   gives: ptx_words_split, ptx_word_skip, ptx_word_want, ptx_read_fail, ptx_grow, ptx_alloc. */
#include "ptx_read.h"

#include <ctype.h>
#include <stdio.h>

#define CHUNK 65536

void ptx_read_fail(ptx_reader *r, const ptx_word *word, const char *why)
{
    if (!r->failed && r->cap > 0) {
        int bytes = word->bytes < 80 ? (int)word->bytes : 80;
        snprintf(r->error, r->cap, "line %u (%.*s): %s", (unsigned)word->line, bytes, word->at, why);
    }
    r->failed = true;
}

void *ptx_grow(void *items, uint32_t count, uint32_t *cap, size_t size)
{
    if (count < *cap) {
        return items;
    }
    *cap = *cap ? *cap * 2 : 64;
    items = realloc(items, *cap * size);
    if (!items) {
        abort(); /* a test without memory cannot go on */
    }
    return items;
}

void *ptx_alloc(ptx_module *m, size_t bytes)
{
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > m->room_bytes) {
        size_t room = bytes > CHUNK ? bytes : CHUNK;
        ptx_chunk *chunk = aligned_alloc(64, room + 64);
        if (!chunk) {
            abort();
        }
        chunk->next = m->chunks;
        m->chunks = chunk;
        m->room = (uint8_t *)chunk + 64;
        m->room_bytes = room;
    }
    void *memory = m->room;
    m->room += bytes;
    m->room_bytes -= bytes;
    return memset(memory, 0, bytes);
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.'; }

/* Behind spaces and comments. */
static const char *skip_blank(const char *at, uint32_t *line)
{
    for (;;) {
        if (*at == '\n') {
            ++*line;
            at++;
        } else if (*at == ' ' || *at == '\t' || *at == '\r') {
            at++;
        } else if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            end = end ? end + 2 : at + strlen(at);
            for (; at < end; at++) {
                *line += *at == '\n';
            }
        } else {
            return at;
        }
    }
}

/* A word has letters, digits, dots and "::"; a text its quotes; everything else is one character. */
static uint32_t word_bytes(const char *at)
{
    uint32_t n = 0;
    if (*at == '"') {
        n = 1 + (uint32_t)strcspn(at + 1, "\"\n");
        return n + (at[n] == '"');
    }
    while (is_word(at[n]) || (n > 0 && at[n] == ':' && (at[n + 1] == ':' || at[n - 1] == ':'))) {
        n++;
    }
    return n > 0 ? n : 1;
}

/* The last word is empty. */
bool ptx_words_split(ptx_reader *r)
{
    uint32_t cap = 0, line = 1;
    const char *at = skip_blank(r->text, &line);
    while (*at) {
        PTX_GROW(r->words, r->word_count, cap);
        r->words[r->word_count] = (ptx_word){ at, word_bytes(at), line };
        at = skip_blank(at + r->words[r->word_count].bytes, &line);
        r->word_count++;
    }
    PTX_GROW(r->words, r->word_count, cap);
    r->words[r->word_count] = (ptx_word){ at, 0, line };
    return r->word_count > 0;
}

bool ptx_word_skip(ptx_reader *r, const char *text)
{
    bool is = ptx_word_is(ptx_word_now(r), text);
    r->at += is;
    return is;
}

void ptx_word_want(ptx_reader *r, const char *text)
{
    if (!ptx_word_skip(r, text)) {
        char why[80];
        snprintf(why, sizeof why, "\"%s\" is expected here", text);
        ptx_read_fail(r, ptx_word_now(r), why);
    }
}
