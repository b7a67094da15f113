/* tokenizer.c: fuzz target: tokenizers, their regular expressions, and texts. The first byte chooses what the rest is.
   Below 64: a tokenizer.json, optionally followed by a NUL byte and a tokenizer_config.json. Below 96: a regular
   expression, followed by a NUL byte and a text that it splits. Else: a text for one of the small tokenizers, which
   decoding its ids must give back. */
#include "../text_rows.h"
#include "private/encode.h"
#include "private/stream.h"
#include "../vocab_open.h"
#include "../text_pipelines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static exl2_result open_texts(exl2__ctx *c, const char *tokenizer, size_t bytes, const char *config,
                              size_t config_bytes, exl2__vocab *v)
{
    rows_folder folder = { tokenizer, config, bytes, config_bytes, 0, 0 };
    c->files = rows_files(&folder);
    return vocab_open(c, "memory", v);
}

/* Encodes a text, decodes all ids at once and one by one. The decoded text is in *out, which the caller frees; returns
   its length. */
static size_t there_and_back(exl2__ctx *c, const exl2__vocab *v, const char *text, size_t bytes, const uint8_t *marks,
                             uint32_t flags, char **out)
{
    size_t count, again, need, streamed = 0;
    exl2__encode_marks from = { marks, NULL };
    exl2__encode(c, v, text, bytes, &from, flags, NULL, 0, &count);
    exl2_token *ids = malloc((count + 1) * sizeof *ids);
    require(exl2__encode(c, v, text, bytes, &from, flags, ids, count, &again) == EXL2_OK && again == count);
    exl2__stream_decode(v, ids, count, false, NULL, 0, &need);
    *out = malloc(need + 1);
    require(exl2__stream_decode(v, ids, count, false, *out, need, &again) == EXL2_OK && again == need);
    require(exl2__unicode_valid(*out, need));
    size_t room = exl2__stream_room(v);
    char *chunk = malloc(room);
    exl2__stream stream;
    exl2__stream_make(&stream, true, false);
    for (size_t i = 0; i <= count; i++) {
        size_t got = i < count ? exl2__stream_push(&stream, v, ids[i], chunk, room)
                               : exl2__stream_flush(&stream, chunk, room);
        require(got <= room && exl2__unicode_valid(chunk, got));
        require(streamed + got <= need && memcmp(*out + streamed, chunk, got) == 0);
        streamed += got;
    }
    require(streamed == need);
    free(chunk);
    free(ids);
    return need;
}

static void fuzz_files(const char *data, size_t size)
{
    exl2__ctx c = rows_ctx();
    exl2__vocab v;
    c.host_bytes_max = 1u << 28;
    const char *end = size ? memchr(data, 0, size) : NULL;
    size_t bytes = end ? (size_t)(end - data) : size, config_bytes = end ? size - bytes - 1 : 0;
    exl2_result result = open_texts(&c, bytes ? data : "", bytes, config_bytes ? end + 1 : NULL, config_bytes, &v);
    require(result == EXL2_OK || (result < 0 && c.error.code == result && c.error.text[0] && c.host_bytes == 0));
    if (result == EXL2_OK && v.present) {
        static const char text[] = "The cat's 12 <e> caf\xC3\xA9\n\n  ab<|x|> \xF0\x9F\x99\x82 \xFF";
        static const uint8_t marks[8] = { 0, 0x40, 0, 1 };
        char *out;
        require(c.host_bytes == v.bytes && v.memory.used == v.bytes);
        there_and_back(&c, &v, text, sizeof text - 1, marks, 0, &out);
        free(out);
        there_and_back(&c, &v, data, bytes, NULL, EXL2_TEXT_PLAIN, &out);
        free(out);
    }
    exl2__vocab_close(&c, &v);
    require(c.host_bytes == 0);
}

/* Splits the text with the pattern, if the pattern is supported. The words must cover the text without gaps. */
static void fuzz_regex(const char *data, size_t size)
{
    static exl2__regex_parser parser;
    const char *end = memchr(data, 0, size);
    size_t bytes = end ? (size_t)(end - data) : size, text_bytes = end ? size - bytes - 1 : 0;
    const char *text = end ? end + 1 : data, *at = text;
    if (!exl2__unicode_valid(data, bytes) || !exl2__unicode_valid(text, text_bytes)) {
        return;
    }
    if (!exl2__regex_parse(&parser, data, bytes)) {
        require(parser.rejected != NULL);
        return;
    }
    exl2__arena dry = { 0 };
    exl2__regex_copy(&parser, &dry);
    exl2__arena memory = { malloc(dry.used), dry.used, 0, EXL2_MEM_GENERAL };
    exl2__words_rules rules = { .steps = { { .kind = EXL2__WORDS_REGEX } }, .count = 1 };
    rules.steps[0].regex = exl2__regex_copy(&parser, &memory);
    require(rules.steps[0].regex != NULL && memory.used == memory.size);
    exl2__words words = exl2__words_of(&rules, text, text_bytes, true);
    for (exl2__word word; exl2__words_next(&words, &word); at += word.bytes) {
        require(word.text == at && word.bytes > 0 && exl2__unicode_valid(at, word.bytes));
    }
    require(at == text + text_bytes);
    free(memory.base);
}

static size_t repaired(const char *text, size_t bytes, char *out)
{
    size_t used = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        uint32_t code;
        length = exl2__unicode_next(text + at, bytes - at, &code);
        bool bad = code >= EXL2__UNICODE_BAD;
        memcpy(out + used, bad ? EXL2__UNICODE_REPLACEMENT : text + at, bad ? 3 : length);
        used += bad ? 3 : length;
    }
    return used;
}

/* Replaces U+2581 by a space, as decoding does for tokenizers that use it so. */
static size_t unmarked(char *text, size_t bytes, const exl2__vocab *v)
{
    bool spaced = false;
    return v->pieces.marked ? exl2__pieces_unmark(text, text, bytes, &spaced) : bytes;
}

/* Decoding gives back the text. Plain text, and text that is marked as part of a message, gives no special token. */
static void fuzz_text(uint8_t choice, const char *text, size_t bytes)
{
    static exl2__ctx c;
    static exl2__vocab vocabs[PIPELINES];
    for (int i = 0; i < PIPELINES && !vocabs[i].present; i++) {
        const char *json = pipeline_text(i);
        c.allocator = exl2__platform_allocator();
        require(open_texts(&c, json, strlen(json), NULL, 0, &vocabs[i]) == EXL2_OK);
    }
    const exl2__vocab *v = &vocabs[choice % PIPELINES];
    uint64_t before = c.host_bytes;
    uint8_t *marks = calloc(bytes / 8 + 1, 1);
    for (size_t i = 0; i < bytes; i++) {
        marks[i / 8] = (uint8_t)(marks[i / 8] | (i * choice % 7 == 3) << i % 8);
    }
    char *out, *wanted = malloc(3 * bytes + 1);
    size_t wanted_bytes = unmarked(wanted, repaired(text, bytes, wanted), v);
    uint32_t flags = choice & 16 ? EXL2_TEXT_PLAIN : 0;
    size_t got = there_and_back(&c, v, text, bytes, choice & 8 ? marks : NULL, flags, &out);
    require(got == wanted_bytes && memcmp(out, wanted, got) == 0);
    free(out);
    memset(marks, 0xFF, bytes / 8 + 1);
    size_t count, again;
    exl2__encode_marks all = { marks, NULL };
    exl2__encode(&c, v, text, bytes, &all, 0, NULL, 0, &count);
    exl2_token *ids = malloc((count + 1) * sizeof *ids);
    for (int plain = 0; plain < 2; plain++) {
        exl2__encode(&c, v, text, bytes, plain ? NULL : &all, plain ? EXL2_TEXT_PLAIN : 0, ids, count, &again);
        require(again == count);
        for (size_t i = 0; i < count; i++) {
            require(!(v->pieces.flags[ids[i]] & EXL2__PIECES_SPECIAL));
        }
    }
    require(c.host_bytes == before);
    free(ids);
    free(wanted);
    free(marks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    char *copy = malloc(size > 1 ? size - 1 : 1); /* exact size, so that ASan detects reads after the end */
    memcpy(copy, data + 1, size - 1);
    if (data[0] < 64) {
        fuzz_files(copy, size - 1);
    } else if (data[0] < 96) {
        fuzz_regex(copy, size - 1);
    } else {
        fuzz_text(data[0], copy, size - 1);
    }
    free(copy);
    return 0;
}
