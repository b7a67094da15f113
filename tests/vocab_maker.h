/* vocab_maker.h: writes a tokenizer of any size, in the form of Gemma 3's: bytes, all short strings over an alphabet of
   16 characters, each with the merges that produce it, and thousands of added tokens.
   takes: a folder, the number of entries of model.vocab.
   gives: vocab_maker_write. */
#ifndef VOCAB_MAKER_H
#define VOCAB_MAKER_H

#include <stdio.h>

#define VOCAB_MAKER_ADDED 6400u
#define VOCAB_MAKER_LETTERS 16u

/* String `index` of those with `length` characters; digit 0 is the first character. */
static inline void vocab_maker_text(FILE *f, uint32_t index, uint32_t begin, uint32_t end, uint32_t length)
{
    static const char *const letters[VOCAB_MAKER_LETTERS] = { "\xE2\x96\x81", "e", "t", "a", "o", "i", "n", "s", "h",
                                                              "r", "\xC3\xA9", "l", "\\\"", "u", "\xE4\xB8\xAD", "7" };
    for (uint32_t i = begin; i < end; i++) {
        fputs(letters[index >> 4 * (length - 1 - i) & 15], f);
    }
}

/* Both forms of a merge stand in published files; Gemma's has the list, indented. */
static inline void vocab_maker_merge(FILE *f, const char *comma, uint32_t index, uint32_t left, uint32_t length)
{
    fprintf(f, "%s\n      [\n        \"", comma);
    vocab_maker_text(f, index, 0, left, length);
    fputs("\",\n        \"", f);
    vocab_maker_text(f, index, left, length, length);
    fputs("\"\n      ]", f);
}

/* Calls the printer for every string of 1, 2, 3 ... characters until `count` are written. */
static inline void vocab_maker_strings(FILE *f, uint32_t count, bool merges)
{
    uint32_t id = 256;
    const char *comma = merges ? "" : ",";
    for (uint32_t length = 1; id < count; length++) {
        for (uint32_t i = 0; i < 1u << 4 * length && id < count; i++, id++) {
            if (!merges) {
                fprintf(f, ",\n      \"");
                vocab_maker_text(f, i, 0, length, length);
                fprintf(f, "\": %u", id);
            } else if (length > 1) {
                vocab_maker_merge(f, comma, i, length - 1, length);
                comma = ",";
                if (length > 2) {
                    vocab_maker_merge(f, comma, i, 1, length);
                }
            }
        }
    }
}

/* Writes tokenizer.json with `count` entries, at least 272, and as many added tokens as Gemma 3 has. */
static inline bool vocab_maker_write(const char *dir, uint32_t count)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    FILE *f = fopen(path, "wb");
    if (!f) {
        return false;
    }
    fputs("{\n  \"version\": \"1.0\",\n  \"added_tokens\": [", f);
    for (uint32_t i = 0; i < VOCAB_MAKER_ADDED; i++) {
        fprintf(f, "%s\n    {\n      \"id\": %u,\n      \"content\": \"<unused%u>\",\n      \"single_word\": false,\n"
                "      \"lstrip\": false,\n      \"rstrip\": false,\n      \"normalized\": false,\n"
                "      \"special\": %s\n    }", i ? "," : "", count + i, i, i & 1 ? "true" : "false");
    }
    fputs("\n  ],\n  \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
          "\"\xE2\x96\x81\"},\n  \"pre_tokenizer\": null,\n  \"post_processor\": null,\n  \"decoder\": {\"type\": "
          "\"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"\xE2\x96\x81\"}, "
          "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]},\n  \"model\": {\n    \"type\": "
          "\"BPE\",\n    \"byte_fallback\": true,\n    \"vocab\": {", f);
    for (uint32_t i = 0; i < 256; i++) {
        fprintf(f, "%s\n      \"<0x%02X>\": %u", i ? "," : "", i, i);
    }
    vocab_maker_strings(f, count, false);
    fputs("\n    },\n    \"merges\": [", f);
    vocab_maker_strings(f, count, true);
    fputs("\n    ]\n  }\n}\n", f);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    FILE *g = fopen(path, "wb");
    if (!g) {
        fclose(f);
        return false;
    }
    fputs("{\n  \"chat_template\": \"{% for m in messages %}<unused1>{{ m['role'] }}\\n{{ m['content'] | trim }}"
          "<unused3>\\n{% endfor %}\",\n  \"added_tokens_decoder\": {", g);
    for (uint32_t i = 0; i < VOCAB_MAKER_ADDED; i++) {
        fprintf(g, "%s\n    \"%u\": {\n      \"content\": \"<unused%u>\",\n      \"lstrip\": false,\n"
                "      \"normalized\": false,\n      \"rstrip\": false,\n      \"single_word\": false,\n"
                "      \"special\": %s\n    }",
                i ? "," : "", count + i, i, i & 1 ? "true" : "false");
    }
    fputs("\n  },\n  \"bos_token\": \"<unused1>\",\n  \"eos_token\": \"<unused3>\"\n}\n", g);
    bool written = fclose(f) == 0;
    return fclose(g) == 0 && written;
}

#endif
