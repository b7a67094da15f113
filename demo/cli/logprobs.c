/* logprobs.c: see logprobs.h.
   takes: tokens with their alternatives.
   gives: what logprobs.h declares. */
#include "logprobs.h"

#include "../common/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void logprobs_add(logprobs *l, const exl2_event *event)
{
    size_t count = l->count + event->token_count;
    if (event->token_count == 0) {
        return;
    }
    l->tokens = memory_grow(l->tokens, count, sizeof *l->tokens);
    memcpy(l->tokens + l->count, event->tokens, event->token_count * sizeof *l->tokens);
    if (l->per_token) {
        l->alts = memory_grow(l->alts, count * l->per_token, sizeof *l->alts);
        memcpy(l->alts + l->count * l->per_token, event->alts,
               (size_t)event->token_count * l->per_token * sizeof *l->alts);
    }
    l->count = count;
}

/* Prints the token's text in quotes, with escapes as in C. */
static void print_text(host *h, exl2_token token)
{
    char text[1024];
    size_t bytes = 0;
    if (!h->info.has_tokenizer
        || exl2_detokenize(h->engine, h->model, &token, 1, 0, text, sizeof text, &bytes) < 0) {
        return;
    }
    fputs(" \"", stdout);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n') {
            fputs("\\n", stdout);
        } else if (c == '"' || c == '\\') {
            fprintf(stdout, "\\%c", c);
        } else if (c < 0x20 || c == 0x7F) {
            fprintf(stdout, "\\x%02x", c);
        } else {
            fputc(c, stdout);
        }
    }
    fputc('"', stdout);
}

void logprobs_print(logprobs *l, host *h)
{
    for (; l->printed < l->count; l->printed++) {
        const exl2_alt *token = &l->tokens[l->printed];
        const exl2_alt *alts = l->per_token ? l->alts + l->printed * l->per_token : NULL;
        fprintf(stdout, "%9.4f %6d", (double)token->logprob, token->token);
        print_text(h, token->token);
        for (uint32_t i = 0; i < l->per_token && alts[i].token >= 0; i++) {
            fprintf(stdout, "%s%.4f %d", i ? ", " : "   likeliest: ", (double)alts[i].logprob, alts[i].token);
            print_text(h, alts[i].token);
        }
        fputc('\n', stdout);
    }
}

static void put_pair(json_out *j, const exl2_alt *pair)
{
    json_out_object(j, NULL);
    json_out_int(j, "id", pair->token);
    json_out_number(j, "logprob", (double)pair->logprob);
}

void logprobs_json(const logprobs *l, json_out *j, const char *key)
{
    json_out_array(j, key);
    for (size_t i = 0; i < l->count; i++) {
        put_pair(j, &l->tokens[i]);
        json_out_array(j, "top");
        for (uint32_t k = 0; k < l->per_token && l->alts[i * l->per_token + k].token >= 0; k++) {
            put_pair(j, &l->alts[i * l->per_token + k]);
            json_out_end(j);
        }
        json_out_end(j);
        json_out_end(j);
    }
    json_out_end(j);
}

void logprobs_free(logprobs *l)
{
    free(l->tokens);
    free(l->alts);
    *l = (logprobs){ 0 };
}
