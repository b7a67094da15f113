/* logprobs.h: log-probabilities of the tokens that a job generates: rows for people, an array for machines.
   takes: TEXT events of a job with alts_per_token.
   gives: logprobs, logprobs_add, logprobs_print, logprobs_json, logprobs_free.
   owns:  the copies of the events' tokens, until logprobs_free. */
#ifndef DEMO_CLI_LOGPROBS_H
#define DEMO_CLI_LOGPROBS_H

#include "../common/host.h"
#include "../common/json_out.h"

typedef struct logprobs { /* zeroed, except for per_token: empty */
    uint32_t per_token;   /* alternatives per token, at most EXL2_ALTS_MAX */
    exl2_alt *tokens;     /* [count] */
    exl2_alt *alts;       /* [count, per_token], most likely first; token -1: there were fewer */
    size_t count, printed;
} logprobs;

void logprobs_add(logprobs *l, const exl2_event *event); /* adds the tokens of a TEXT event */
/* Prints a row for each token that was added since the last call: log-probability, id, text, alternatives. Without a
   tokenizer there are no texts. */
void logprobs_print(logprobs *l, host *h);
/* Writes [{"id", "logprob", "top": [{"id", "logprob"}]}]. */
void logprobs_json(const logprobs *l, json_out *j, const char *key);
void logprobs_free(logprobs *l);

#endif
