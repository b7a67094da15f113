/* text_tokenizer.h: small tokenizer.json texts for tests. Each part can be replaced. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdio.h>

typedef struct tokenizer_parts { /* a part that is NULL is the default at the right */
    const char *added;          /* one special token <e>, id 9 */
    const char *normalizer;     /* null */
    const char *pre_tokenizer;  /* ByteLevel with GPT-2's pattern */
    const char *post_processor; /* null */
    const char *decoder;        /* ByteLevel */
    const char *options;        /* empty; otherwise members of model, after a leading comma */
    const char *vocab;          /* a b c ab abc G(space) Ga, ids 0.. */
    const char *merges;         /* a b, ab c, G a */
} tokenizer_parts;

#define TOKENIZER_BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"

/* The text is valid until the next call. */
static inline const char *tokenizer_text(tokenizer_parts p)
{
    static char text[16384];
    snprintf(text, sizeof text,
             "{\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,"
             "\"model\":{\"type\":\"BPE\"%s,\"vocab\":%s,\"merges\":%s}}",
             p.added ? p.added : "[{\"id\":9,\"content\":\"<e>\",\"special\":true}]",
             p.normalizer ? p.normalizer : "null", p.pre_tokenizer ? p.pre_tokenizer : TOKENIZER_BYTE_LEVEL,
             p.post_processor ? p.post_processor : "null", p.decoder ? p.decoder : "{\"type\":\"ByteLevel\"}",
             p.options ? p.options : "",
             p.vocab ? p.vocab : "{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4,\"\\u0120\":5,\"\\u0120a\":6}",
             p.merges ? p.merges : "[\"a b\",\"ab c\",\"\\u0120 a\"]");
    return text;
}

#endif
