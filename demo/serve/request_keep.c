/* request_keep.c: what a request keeps after it was read: its texts. It may wait long, and its trees are large.
   takes: a request that was read, with its tree.
   gives: request_keep of request.h.
   owns:  nothing; the texts lie in the request. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

typedef struct keeper {
    char *at;     /* where the next text is copied to; NULL: only their bytes are counted */
    size_t bytes; /* of all so far */
} keeper;

/* A text and a NUL. */
static void keep_bytes(keeper *k, const char **text, size_t bytes)
{
    if (!*text) {
        return;
    }
    k->bytes += bytes + 1;
    if (k->at) {
        memcpy(k->at, *text, bytes);
        k->at[bytes] = 0;
        *text = k->at;
        k->at += bytes + 1;
    }
}

static void keep_text(keeper *k, const char **text)
{
    keep_bytes(k, text, *text ? strlen(*text) : 0);
}

static void keep_list(keeper *k, const char **texts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        keep_text(k, &texts[i]);
    }
}

/* All that points into the tree or the body. The other texts lie in r->texts. */
static void keep_all(keeper *k, request *r)
{
    keep_text(k, &r->model);
    for (uint32_t i = 0; i < r->prompt_count; i++) {
        keep_bytes(k, &r->prompts[i].text, r->prompts[i].bytes);
    }
    for (size_t i = 0; i < r->message_count; i++) {
        keep_text(k, &r->messages[i].role);
        keep_text(k, &r->messages[i].name);
        keep_text(k, &r->messages[i].tool_call_id);
        keep_text(k, &r->messages[i].reasoning);
    }
    keep_text(k, &r->prefix);
    keep_list(k, r->tool_names, r->tool_name_count);
    for (uint32_t i = 0; i < r->lora_count; i++) {
        keep_text(k, &r->loras[i].name);
    }
    keep_list(k, r->stops, r->stop_count);
    keep_list(k, r->bans, r->ban_count);
    keep_text(k, &r->negative);
    keep_bytes(k, &r->source, r->source_bytes);
    keep_list(k, r->sampling.breakers, r->sampling.desc.dry_breaker_count);
}

bool request_keep(request *r, request_error *error)
{
    keeper k = { 0 };
    keep_all(&k, r);
    r->kept = malloc(k.bytes + 1);
    if (!r->kept) {
        return fields_fail(error, NULL, "there is no memory left for this request");
    }
    k.at = r->kept;
    keep_all(&k, r);
    json_free(r->tree);
    free(r->body);
    json_free(r->sampling.breaker_tree);
    free(r->sampling.breaker_texts);
    r->tree = r->sampling.breaker_tree = NULL;
    r->body = r->sampling.breaker_texts = NULL;
    return true;
}
