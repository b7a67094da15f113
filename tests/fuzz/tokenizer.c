/* Fuzz target. The first byte chooses: below 64, the rest is a tokenizer.json, and behind a NUL byte a
   tokenizer_config.json; else the rest is text for a small tokenizer, and must come back from its ids. */
#include "../text_rows.h"
#include "../../exl2_impl/6_text/encode.h"
#include "../../exl2_impl/6_text/stream.h"
#include "../../exl2_impl/6_text/vocab_read.h"

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
    return exl2__vocab_open(c, "memory", v);
}

/* Encodes, decodes whole and one by one; the text that comes back is in *out (heap). */
static size_t there_and_back(exl2__ctx *c, const exl2__vocab *v, const char *text, size_t bytes, const uint8_t *marks,
                             uint32_t flags, char **out)
{
    size_t count, again, need, streamed = 0;
    exl2__encode(c, v, text, bytes, marks, flags, NULL, 0, &count);
    exl2_token *ids = malloc((count + 1) * sizeof *ids);
    require(exl2__encode(c, v, text, bytes, marks, flags, ids, count, &again) == EXL2_OK && again == count);
    exl2__decode(v, ids, count, false, NULL, 0, &need);
    *out = malloc(need + 1);
    require(exl2__decode(v, ids, count, false, *out, need, &again) == EXL2_OK && again == need);
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

/* A token for each byte, some merges, special and other added tokens; `split` is the first pre-tokenizer. */
static size_t small_tokenizer(char *out, size_t cap, const char *split)
{
    size_t used = (size_t)snprintf(out, cap,
        "{\"added_tokens\":[{\"id\":300,\"content\":\"<e>\",\"special\":true},{\"id\":301,\"content\":\"<e\"},"
        "{\"id\":302,\"content\":\"a b\",\"normalized\":false},"
        "{\"id\":303,\"content\":\"\\n\\n\",\"single_word\":true,\"special\":true}],"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "%s{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]},"
        "\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"vocab\":{\"ab\":256,\"abc\":257,\"aa\":258,\"aaaa\":259,\"\\u0120a\":260", split);
    for (uint32_t code = 0; code < 0x144; code++) {
        uint32_t byte = exl2__pieces_byte(code);
        if (byte != UINT32_MAX) {
            used += (size_t)snprintf(out + used, cap - used, ",\"\\u%04x\":%u", code, byte);
        }
    }
    used += (size_t)snprintf(out + used, cap - used,
                             "},\"merges\":[\"a b\",\"a a\",\"ab c\",\"aa aa\",\"\\u0120 a\"]}}");
    return used;
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

static void fuzz_text(uint8_t choice, const char *text, size_t bytes)
{
    static exl2__ctx c;
    static exl2__vocab vocabs[3];
    static const char *const splits[] = { "", "{\"type\":\"Digits\",\"individual_digits\":true},",
                                          "{\"type\":\"Split\",\"pattern\":{\"Regex\":\""
                                          "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
                                          "\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
                                          "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
                                          "\"behavior\":\"Isolated\"}," };
    for (int i = 0; i < 3 && !vocabs[i].present; i++) {
        static char json[16384];
        c.allocator = exl2__platform_allocator();
        require(open_texts(&c, json, small_tokenizer(json, sizeof json, splits[i]), NULL, 0, &vocabs[i]) == EXL2_OK);
    }
    uint64_t before = c.host_bytes;
    uint8_t *marks = calloc(bytes / 8 + 1, 1);
    for (size_t i = 0; i < bytes; i++) {
        marks[i / 8] = (uint8_t)(marks[i / 8] | (i * choice % 7 == 3) << i % 8);
    }
    char *out, *wanted = malloc(3 * bytes + 1);
    size_t wanted_bytes = repaired(text, bytes, wanted);
    size_t got = there_and_back(&c, &vocabs[choice % 3], text, bytes, choice & 4 ? marks : NULL,
                                choice & 8 ? EXL2_TEXT_PLAIN : 0, &out);
    require(got == wanted_bytes && memcmp(out, wanted, got) == 0);
    require(c.host_bytes == before);
    free(out);
    free(wanted);
    free(marks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    char *copy = malloc(size > 1 ? size - 1 : 1); /* of the exact size, so that reading beyond it is noticed */
    memcpy(copy, data + 1, size - 1);
    if (data[0] < 64) {
        fuzz_files(copy, size - 1);
    } else {
        fuzz_text(data[0], copy, size - 1);
    }
    free(copy);
    return 0;
}
