/* sampling_fields.h: the sampler's settings of a request.
   takes: the request's members, and the settings for those that are absent.
   gives: sampling_read, sampling_free.
   owns:  the lists of a sampling, until sampling_free. */
#ifndef DEMO_SAMPLING_FIELDS_H
#define DEMO_SAMPLING_FIELDS_H

#include "buffer.h"
#include "exl2.h"
#include "request_fields.h"

#define SAMPLING_BREAKERS_MAX 64u
#define SAMPLING_LIST_MAX 1024u /* ids of a list, biases */

typedef struct sampling { /* zeroed: nothing to free */
    exl2_sampler_desc desc;      /* its lists are the ones below */
    exl2_bias *bias;
    exl2_token *allow, *ban;
    const char **breakers;
    char *breaker_texts;         /* what breakers point into, where they were written in one text */
    json_value *breaker_tree;
} sampling;

/* preset: for settings that the request does not name. Names of settings that the engine lacks and that are active are
   added to `warnings`, with commas between them. */
bool sampling_read(fields *f, exl2_preset preset, uint32_t vocab, sampling *out, buffer *warnings);
void sampling_free(sampling *s);

/* "1, 2" or [1, 2]: ids below vocab; the caller frees *out. false: an error, or absent. */
bool sampling_ids(fields *f, const char *names, uint32_t vocab, exl2_token **out, uint32_t *count);

#endif
