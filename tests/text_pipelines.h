/* text_pipelines.h: small tokenizers that decode their ids to the original text, one for each way to split and rewrite
   text. */
#ifndef TEXT_PIPELINES_H
#define TEXT_PIPELINES_H

#include "private/pieces.h"

#include <stdio.h>

#define PIPELINE_SPLIT(pattern, behavior) \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"" behavior "\"},"
#define PIPELINE_MARKS "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}"
#define PIPELINE_SPACES "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\\u2581\"},\"content\":\" \"}"
#define PIPELINE_SEQUENCE(key, parts) "{\"type\":\"Sequence\",\"" key "\":[" parts "]}"
#define PIPELINE_BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define PIPELINE_RAW(spaces) PIPELINE_SEQUENCE("decoders", spaces ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}")
#define PIPELINE_DECODER(strip) \
    PIPELINE_SEQUENCE("decoders", PIPELINE_SPACES ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" strip)
#define PIPELINE_METASPACE(more) \
    "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"never\"" more "}"
#define PIPELINE_ADDED "{\"id\":300,\"content\":\"<e>\",\"special\":true},{\"id\":301,\"content\":\"<e\"}," \
    "{\"id\":302,\"content\":\"a b\",\"normalized\":false}," \
    "{\"id\":303,\"content\":\"\\n\\n\",\"single_word\":true,\"special\":true}"

typedef struct pipeline {
    const char *cut;        /* pre-tokenizers before ByteLevel; NULL: SentencePiece style */
    const char *normalizer, *pre_tokenizer, *decoder, *added; /* parts for SentencePiece style */
} pipeline;

static const pipeline pipelines[] = {
    { "", NULL, NULL, NULL, NULL },
    { "{\"type\":\"Digits\",\"individual_digits\":true},", NULL, NULL, NULL, NULL },
    { PIPELINE_SPLIT("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"
                     " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+", "Isolated"),
      NULL, NULL, NULL, NULL },
    { PIPELINE_SPLIT("[!-/:-~][A-Za-z]+|[^\\\\r\\\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+"
                     "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+", "MergedWithPrevious")
      PIPELINE_SPLIT("\\\\w+?(?=a)|^b|c$", "MergedWithNext") PIPELINE_SPLIT("[^a-c]{2}", "Contiguous"),
      NULL, NULL, NULL, NULL },
    { NULL, PIPELINE_MARKS, "null", PIPELINE_DECODER(""),
      "{\"id\":300,\"content\":\"<e>\",\"special\":true,\"normalized\":false},"
      "{\"id\":302,\"content\":\"a b\",\"normalized\":false}" },
    { NULL, PIPELINE_SEQUENCE("normalizers", "{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"}," PIPELINE_MARKS), "null",
      PIPELINE_DECODER(",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"), "" },
    { NULL, PIPELINE_MARKS, "null", PIPELINE_DECODER(""), PIPELINE_ADDED }, /* searched in normalized text */
    { NULL, "null", PIPELINE_METASPACE(""), PIPELINE_RAW(PIPELINE_METASPACE("")), PIPELINE_ADDED },
    { NULL, "null", PIPELINE_METASPACE(",\"split\":false"), PIPELINE_DECODER(""), PIPELINE_ADDED }
};

#define PIPELINES ((int)EXL2__COUNT(pipelines))

/* The tokenizer.json of pipelines[which], valid until the next call: one token per byte, and some merges. */
static const char *pipeline_text(int which)
{
    static char out[16384];
    const pipeline *p = &pipelines[which];
    size_t used = 0;
#define PIPELINE_ADD(...) used += (size_t)snprintf(out + used, sizeof out - used, __VA_ARGS__)
    if (p->cut) {
        PIPELINE_ADD("{\"added_tokens\":[%s],\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s%s]},"
                     "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"vocab\":{\"ab\":256,\"abc\":257,\"aa\":258,"
                     "\"aaaa\":259,\"\\u0120a\":260", PIPELINE_ADDED, p->cut, PIPELINE_BYTES);
    } else {
        PIPELINE_ADD("{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,\"model\":{"
                     "\"byte_fallback\":true,\"fuse_unk\":true,\"unk_token\":\"a\",\"vocab\":{\"a\":256,\"b\":257,"
                     "\"\\u2581\":258,\"\\u2581a\":259,\"ab\":260,\"\\u2581\\u2581\":261,\"aa\":262,\"\\u00e9\":263,"
                     "\"a\\u2581\":264", p->added, p->normalizer, p->pre_tokenizer, p->decoder);
    }
    for (uint32_t code = 0; code < 0x144; code++) {
        uint32_t byte = p->cut ? exl2__pieces_byte(code) : code < 256 ? code : UINT32_MAX;
        if (byte != UINT32_MAX) {
            PIPELINE_ADD(p->cut ? ",\"\\u%04x\":%u" : ",\"<0x%02X>\":%u", code, byte);
        }
    }
    PIPELINE_ADD(p->cut ? "},\"merges\":[\"a b\",\"a a\",\"ab c\",\"aa aa\",\"\\u0120 a\"]}}"
                        : "},\"merges\":[\"\\u2581 a\",\"a b\",\"\\u2581 \\u2581\",\"a a\",\"a \\u2581\"]}}");
#undef PIPELINE_ADD
    return out;
}

#endif
