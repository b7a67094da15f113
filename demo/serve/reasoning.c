/* reasoning.c: see reasoning.h.
   takes: the reply's text, piece by piece.
   gives: what reasoning.h declares.
   owns:  text that is held back. */
#include "reasoning.h"

#include <string.h>

#define OPENS_WITHIN 256u /* bytes before a prompt's end in which an open tag counts */

#define SPACES " \n\t\r"

static bool is_space(char c)
{
    return c && strchr(SPACES, c);
}

/* Offset of `tag` in the text; bytes: it is not there. */
static size_t find_tag(const char *text, size_t bytes, const char *tag)
{
    size_t tag_bytes = strlen(tag);
    for (size_t i = 0; i + tag_bytes <= bytes; i++) {
        if (memcmp(text + i, tag, tag_bytes) == 0) {
            return i;
        }
    }
    return bytes;
}

/* ---- tags ---- */

bool reasoning_tags_read(const char *word, const char *template_text, reasoning_tags *out)
{
    static const reasoning_tags known[] = {
        { "<think>", "</think>" },         { "[THINK]", "[/THINK]" },       { "<thinking>", "</thinking>" },
        { "<thought>", "</thought>" },     { "<reasoning>", "</reasoning>" }, { "<seed:think>", "</seed:think>" },
        { "\xE2\x97\x81think\xE2\x96\xB7", "\xE2\x97\x81/think\xE2\x96\xB7" },
    };
    *out = (reasoning_tags){ "", "" };
    if (strcmp(word, "none") == 0) {
        return true;
    }
    if (strcmp(word, "auto") == 0) {
        *out = known[0];
        for (size_t i = sizeof known / sizeof known[0]; template_text && i-- > 0;) { /* the first row wins */
            if (strstr(template_text, known[i].close)) {
                *out = known[i];
            }
        }
        return true;
    }
    const char *comma = strchr(word, ',');
    size_t before = comma ? (size_t)(comma - word) : 0, after = comma ? strlen(comma + 1) : 0;
    if (before == 0 || after == 0 || before >= sizeof out->open || after >= sizeof out->close) {
        return false;
    }
    memcpy(out->open, word, before);
    memcpy(out->close, comma + 1, after);
    return true;
}

/* Does the text have something in angle or square brackets that looks like a tag? */
static bool has_tag(const char *text, size_t bytes)
{
    for (size_t i = 0; i + 1 < bytes; i++) {
        char close = text[i] == '<' ? '>' : text[i] == '[' ? ']' : 0;
        char next = text[i + 1];
        bool begins = next == '/' || next == '|' || (next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z');
        if (close && begins && memchr(text + i, close, bytes - i)) {
            return true;
        }
    }
    return false;
}

bool reasoning_opens(const reasoning_tags *tags, const char *prompt, size_t bytes)
{
    size_t open_bytes = strlen(tags->open), cut = bytes > OPENS_WITHIN ? bytes - OPENS_WITHIN : 0;
    const char *tail = prompt + cut;
    size_t tail_bytes = bytes - cut, at = tail_bytes;
    if (open_bytes == 0) {
        return false;
    }
    for (size_t i = find_tag(tail, tail_bytes, tags->open); i < tail_bytes;) { /* the last one */
        at = i;
        i += open_bytes;
        i += find_tag(tail + i, tail_bytes - i, tags->open);
    }
    if (at == tail_bytes) {
        return false;
    }
    const char *after = tail + at + open_bytes;
    size_t after_bytes = tail_bytes - at - open_bytes;
    return find_tag(after, after_bytes, tags->close) == after_bytes && !has_tag(after, after_bytes);
}

/* ---- the splitter ---- */

void reasoning_begin(reasoning *r, const reasoning_tags *tags, bool inside)
{
    r->tags = *tags;
    r->kind = inside && tags->open[0] ? REASONING_THOUGHT : REASONING_CONTENT;
    r->trims = r->kind == REASONING_THOUGHT;
    r->finished = false;
    r->used = 0;
    buffer_clear(&r->held);
}

void reasoning_add(reasoning *r, const char *text, size_t bytes)
{
    buffer_add(&r->held, text, bytes);
}

void reasoning_finish(reasoning *r)
{
    r->finished = true;
}

/* Bytes at the end of the text that may be the beginning of `tag`. */
static size_t tag_begun(const char *text, size_t bytes, const char *tag)
{
    size_t most = strlen(tag) - 1;
    for (size_t count = bytes < most ? bytes : most; count > 0; count--) {
        if (memcmp(text + bytes - count, tag, count) == 0) {
            return count;
        }
    }
    return 0;
}

/* Skips white space after a tag. false: more text may bring more of it. */
static bool skip_space(reasoning *r)
{
    size_t spaces = 0;
    while (r->trims && spaces < r->held.bytes && is_space(r->held.data[spaces])) {
        spaces++;
    }
    buffer_drop(&r->held, spaces);
    return r->held.bytes > 0;
}

/* A tag at the beginning of what is held: takes it away and changes the kind. A second opening tag right after the
   first (the prompt ended with one, and the model wrote it once more) changes nothing. */
static bool take_tag(reasoning *r)
{
    const char *tags[2] = { r->tags.open, r->tags.close };
    size_t bytes[2] = { strlen(tags[0]), strlen(tags[1]) };
    for (int i = 0; i < 2; i++) {
        bool fits = r->held.bytes >= bytes[i] && memcmp(r->held.data, tags[i], bytes[i]) == 0;
        bool counts = r->kind == (i == 0 ? REASONING_CONTENT : REASONING_THOUGHT) || (i == 0 && r->trims);
        if (fits && counts) {
            buffer_drop(&r->held, bytes[i]);
            r->kind = i == 0 ? REASONING_THOUGHT : REASONING_CONTENT;
            r->trims = true;
            return true;
        }
    }
    return false;
}

/* Bytes at the beginning of what is held that are surely text; *tag_follows: a whole tag comes after them. */
static size_t sure_bytes(const reasoning *r, bool *tag_follows)
{
    const char *text = r->held.data, *tag = r->kind == REASONING_THOUGHT ? r->tags.close : r->tags.open;
    size_t bytes = r->held.bytes, sure = find_tag(text, bytes, tag);
    *tag_follows = sure < bytes;
    if (!*tag_follows && r->finished) {
        return bytes;
    }
    if (!*tag_follows) {
        size_t begun = tag_begun(text, bytes, tag);
        if (r->trims) { /* a second opening tag may begin here, too */
            size_t second = tag_begun(text, bytes, r->tags.open);
            begun = second == bytes ? bytes : begun;
        }
        sure = bytes - begun;
    }
    while (sure > 0 && is_space(text[sure - 1])) {
        sure--;
    }
    return sure;
}

bool reasoning_next(reasoning *r, reasoning_part *out)
{
    buffer_drop(&r->held, r->used);
    r->used = 0;
    size_t sure = r->held.bytes;
    for (bool tag_follows; r->tags.open[0];) {
        if (!skip_space(r)) {
            return false;
        }
        if (take_tag(r)) {
            continue;
        }
        sure = sure_bytes(r, &tag_follows);
        if (sure > 0) {
            break;
        }
        if (!tag_follows) {
            return false;
        }
        buffer_drop(&r->held, strspn(r->held.data, SPACES)); /* that before the tag */
    }
    if (sure == 0 || r->held.failed) {
        return false;
    }
    r->trims = false;
    r->used = sure;
    *out = (reasoning_part){ r->kind, r->held.data, sure };
    return true;
}

void reasoning_free(reasoning *r)
{
    buffer_free(&r->held);
    *r = (reasoning){ 0 };
}
