/* answer_logprobs.c: log-probabilities, as completions and as chats have them. Those of /v1/responses are a chat's.
   takes: tokens of records; the engine of texts, for the tokens' bytes.
   gives: answer_logprobs_* of answer.h. */
#include "answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOKEN_BYTES 512 /* of one token; a longer one is cut */
#define LOGPROB_LEAST (-1000.0)

static double shown(float logprob)
{
    return isfinite(logprob) ? (double)logprob : LOGPROB_LEAST;
}

static size_t bytes_of(const choice *c, exl2_token token, char out[TOKEN_BYTES])
{
    const engine_load *l = &c->call->model->load;
    size_t need = 0;
    if (!l->text || exl2_detokenize(l->text, l->text_model, &token, 1, EXL2_TEXT_BYTES, out, TOKEN_BYTES, &need) < 0) {
        return 0;
    }
    return need < TOKEN_BYTES ? need : TOKEN_BYTES - 1;
}

/* The text that stands for a token in a completion: its own, or "bytes:\xe2\x96" for a part of a character, so that two
   tokens never have the same name. */
static void name_of(const char *bytes, size_t count, char out[4 * TOKEN_BYTES + 8])
{
    if (buffer_is_utf8(bytes, count)) {
        memcpy(out, bytes, count);
        out[count] = 0;
        return;
    }
    size_t at = (size_t)sprintf(out, "bytes:");
    for (size_t i = 0; i < count; i++) {
        at += (size_t)sprintf(out + at, "\\x%02x", (unsigned char)bytes[i]);
    }
}

static void comma(buffer *b)
{
    if (b->bytes) {
        buffer_add(b, ",", 1);
    }
}

/* ---- chat ---- */

static void put_chat_token(const choice *c, buffer *b, const exl2_alt *token)
{
    char bytes[TOKEN_BYTES];
    size_t count = bytes_of(c, token->token, bytes);
    buffer_text(b, "token", bytes, count);
    buffer_int(b, "token_id", token->token);
    buffer_number(b, "logprob", shown(token->logprob));
    buffer_array(b, "bytes");
    for (size_t i = 0; i < count; i++) {
        buffer_uint(b, NULL, (unsigned char)bytes[i]);
    }
    buffer_end(b);
}

static void add_chat(choice *c, const engine_record *r)
{
    buffer *b = &c->logprobs;
    for (uint32_t i = 0; i < r->token_count; i++) {
        comma(b);
        buffer_object(b, NULL);
        put_chat_token(c, b, &r->tokens[i]);
        buffer_array(b, "top_logprobs");
        for (uint32_t j = 0; j < r->alts_per_token && r->alts; j++) {
            buffer_object(b, NULL);
            put_chat_token(c, b, &r->alts[(size_t)i * r->alts_per_token + j]);
            buffer_end(b);
        }
        buffer_end(b);
        buffer_end(b);
    }
}

/* ---- completions ---- */

static uint32_t code_points(const char *text, size_t bytes)
{
    uint32_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    }
    return count;
}

/* The likeliest tokens, and the chosen one if it is none of them. */
static void put_tops(choice *c, const engine_record *r, uint32_t at, const char *chosen)
{
    char bytes[TOKEN_BYTES], name[4 * TOKEN_BYTES + 8];
    bool listed = false;
    buffer *b = &c->token_tops;
    buffer_object(b, NULL);
    for (uint32_t j = 0; j < r->alts_per_token && r->alts; j++) {
        const exl2_alt *alt = &r->alts[(size_t)at * r->alts_per_token + j];
        size_t count = bytes_of(c, alt->token, bytes);
        name_of(bytes, count, name);
        listed = listed || alt->token == r->tokens[at].token;
        buffer_number(b, name, shown(alt->logprob));
    }
    if (!listed) {
        buffer_number(b, chosen, shown(r->tokens[at].logprob));
    }
    buffer_end(b);
}

static void add_completion(choice *c, const engine_record *r, uint32_t points)
{
    char bytes[TOKEN_BYTES], name[4 * TOKEN_BYTES + 8];
    uint32_t within = 0; /* code points of this record's text before the token */
    for (uint32_t i = 0; i < r->token_count; i++) {
        size_t count = bytes_of(c, r->tokens[i].token, bytes);
        name_of(bytes, count, name);
        comma(&c->token_texts);
        buffer_name(&c->token_texts, NULL, name);
        comma(&c->token_logprobs);
        buffer_number(&c->token_logprobs, NULL, shown(r->tokens[i].logprob));
        comma(&c->token_offsets);
        buffer_uint(&c->token_offsets, NULL, c->offset + (within < points ? within : points));
        comma(&c->token_tops);
        put_tops(c, r, i, name);
        within += code_points(bytes, count);
    }
}

void answer_logprobs_add(choice *c, const engine_record *record, const char *text, size_t bytes)
{
    uint32_t points = code_points(text, bytes);
    if (record && c->call->request.logprobs) {
        if (c->call->request.kind != REQUEST_COMPLETION) {
            add_chat(c, record);
        } else {
            add_completion(c, record, points);
        }
    }
    c->offset += points;
}

void answer_logprobs_prompt(choice *c, const engine_record *scores)
{
    char bytes[TOKEN_BYTES], name[4 * TOKEN_BYTES + 8];
    if (scores) {
        for (uint32_t i = 0; i < scores->token_count; i++) { /* one at a time: offsets run on by each token's text */
            engine_record one = *scores;
            one.tokens += i;
            one.alts = one.alts ? one.alts + (size_t)i * one.alts_per_token : NULL;
            one.token_count = 1;
            size_t count = bytes_of(c, one.tokens->token, bytes);
            uint32_t points = code_points(bytes, count);
            add_completion(c, &one, points);
            c->offset += points;
        }
        return;
    }
    if (c->id_count) {
        size_t count = bytes_of(c, c->ids[0], bytes);
        name_of(bytes, count, name);
        buffer_name(&c->token_texts, NULL, name);
        buffer_null(&c->token_logprobs, NULL);
        buffer_null(&c->token_tops, NULL);
        buffer_uint(&c->token_offsets, NULL, 0);
        c->offset += code_points(bytes, count);
    }
}

static void put_list(buffer *b, const char *key, const buffer *items)
{
    buffer_array(b, key);
    buffer_add(b, items->data ? items->data : "", items->bytes);
    buffer_end(b);
    b->failed = b->failed || items->failed;
}

void answer_logprobs_put(const choice *c, buffer *b)
{
    if (!c->call->request.logprobs) {
        buffer_null(b, "logprobs");
        return;
    }
    buffer_object(b, "logprobs");
    if (c->call->request.kind == REQUEST_CHAT) {
        put_list(b, "content", &c->logprobs);
        buffer_null(b, "refusal");
    } else {
        put_list(b, "tokens", &c->token_texts);
        put_list(b, "token_logprobs", &c->token_logprobs);
        put_list(b, "top_logprobs", &c->token_tops);
        put_list(b, "text_offset", &c->token_offsets);
    }
    buffer_end(b);
}

void answer_logprobs_list(const choice *c, size_t from, buffer *b)
{
    const buffer *all = &c->logprobs;
    from += from > 0 && from < all->bytes; /* the comma */
    buffer_array(b, "logprobs");
    buffer_add(b, all->bytes ? all->data + from : "", all->bytes - from);
    buffer_end(b);
    b->failed = b->failed || all->failed;
}

void answer_logprobs_clear(choice *c)
{
    buffer_clear(&c->logprobs);
    buffer_clear(&c->token_texts);
    buffer_clear(&c->token_logprobs);
    buffer_clear(&c->token_tops);
    buffer_clear(&c->token_offsets);
}
