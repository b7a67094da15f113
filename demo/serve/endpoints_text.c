/* endpoints_text.c: text to ids and back. The counts are those of a job with the same text or messages.
   takes: bodies of /v1/token/... and /v1/internal/...
   gives: endpoint_encode, endpoint_decode, endpoint_count of endpoints.h. */
#include "../common/json_in.h"
#include "answer.h"
#include "call_prepare.h"
#include "endpoints.h"
#include "models.h"
#include "request.h"

#include <stdlib.h>
#include <string.h>

static const engine_load *texts_of(const endpoint_request *r)
{
    const model *m = models_first(r->server);
    if (!m || !m->load.text) {
        endpoint_error(r, 503, "no_model", "No model is ready.");
        return NULL;
    }
    return &m->load;
}

static void engine_error(const endpoint_request *r, const engine_load *l)
{
    exl2_error error;
    exl2_last_error(l->text, &error);
    endpoint_error(r, 400, "invalid_value", error.text);
}

/* Ids of the prompt; the caller frees them. NULL: an answer was given. */
static exl2_token *to_ids(const endpoint_request *r, const engine_load *l, const exl2_prompt *p,
                          const exl2_chat_desc *d, size_t *count)
{
    exl2_token *ids;
    *count = 0;
    if (p->text && !p->messages && !*p->text && !p->text_bytes && (p->flags & EXL2_TEXT_NO_BOS)) {
        return calloc(1, sizeof(exl2_token)); /* an empty text without BOS: no prompt for the engine */
    }
    exl2_result result = engine_ids(l->text, l->text_model, p, d, &ids, count);
    if (result == EXL2_ERR_MEMORY) {
        endpoint_error(r, 500, "out_of_memory", "There is no memory left for the ids.");
    } else if (result < 0) {
        engine_error(r, l);
    }
    return ids;
}

/* Reads the messages as a chat's. */
static bool read_messages(const endpoint_request *r, fields *f, const json_value *list, bool opening, request *out)
{
    const model *m = models_first(r->server);
    request_limits limits = endpoint_limits(r->server, m);
    const json_value *variables = NULL;
    buffer body = { 0 };
    buffer_object(&body, NULL);
    buffer_raw(&body, "messages", list->raw, list->raw_bytes);
    if (fields_object(f, "template_vars|chat_template_kwargs", &variables)) {
        buffer_raw(&body, "template_vars", variables->raw, variables->raw_bytes);
    }
    buffer_end(&body);
    if (body.failed) {
        fields_fail(f->error, NULL, "there is no memory left for this request");
    }
    if (!f->error->set && request_read(out, REQUEST_CHAT, body.data, body.bytes, &limits, f->error)
        && !out->picture_count /* call_begin does it */
        && !call_earlier(r->server, m, out)) {
        fields_fail(f->error, NULL, "there is no memory left for this request");
    }
    out->close_reply = !opening;
    buffer_free(&body);
    return !f->error->set;
}

static void encode(const endpoint_request *r, bool with_ids)
{
    const engine_load *l = texts_of(r);
    json_value *tree = l ? endpoint_body(r) : NULL;
    request_error error = { 0 };
    request all = { 0 };
    bool bos = true, special = true, opening = true;
    if (!tree) {
        return;
    }
    fields f = { tree, &error };
    exl2_prompt p = { 0 };
    exl2_chat_desc d = { .template_text = r->server->template_text };
    const json_value *text = json_member(tree, "text");
    fields_bool(&f, "add_bos_token", &bos);
    fields_bool(&f, "encode_special_tokens", &special);
    fields_bool(&f, "add_generation_prompt", &opening);
    text = text ? text : json_member(tree, "messages");
    if (text && text->kind == JSON_TEXT) {
        p.text = text->text;
        p.text_bytes = text->text_bytes;
        p.flags = (bos ? 0u : EXL2_TEXT_NO_BOS) | (special ? 0u : EXL2_TEXT_PLAIN);
    } else if (text && text->kind == JSON_ARRAY) {
        read_messages(r, &f, text, opening, &all);
        p.messages = all.messages;
        p.message_count = all.message_count;
        d.variables = all.variables;
        d.close_reply = all.close_reply;
    } else {
        fields_fail(&error, "text", "text must be a text or a list of messages");
    }
    size_t count = 0;
    exl2_token *ids = NULL;
    if (error.set) {
        endpoint_bad(r->x, &error);
    } else if (all.picture_count) { /* the model's engine knows their rows; the engine of texts does not */
        all.counts = true;
        all.no_ids = !with_ids;
        call_begin(r->server, r->x, models_first(r->server), &all);
    } else {
        ids = to_ids(r, l, &p, &d, &count);
    }
    if (ids) {
        buffer out = { 0 };
        answer_ids(ids, count, with_ids, &out);
        endpoint_json(r, 200, &out);
    }
    free(ids);
    request_free(&all);
    json_free(tree);
}

void endpoint_encode(const endpoint_request *r)
{
    encode(r, true);
}

void endpoint_count(const endpoint_request *r)
{
    encode(r, false);
}

void endpoint_decode(const endpoint_request *r)
{
    const engine_load *l = texts_of(r);
    json_value *tree = l ? endpoint_body(r) : NULL;
    request_error error = { 0 };
    bool special = true;
    size_t count = 0, need = 0;
    if (!tree) {
        return;
    }
    fields f = { tree, &error };
    fields_bool(&f, "decode_special_tokens", &special);
    const json_value *list = json_member(tree, "tokens");
    exl2_token *ids = NULL;
    if (!list || list->kind != JSON_ARRAY) {
        fields_fail(&error, "tokens", "tokens must be a list of ids");
    } else {
        ids = request_read_ids(&error, list, "tokens", l->info.vocab, &count);
    }
    uint32_t flags = special ? 0 : EXL2_TEXT_SKIP_MARKERS;
    char *text = NULL;
    if (error.set) {
        endpoint_bad(r->x, &error);
    } else if (exl2_detokenize(l->text, l->text_model, ids, count, flags, NULL, 0, &need) < 0
               || !(text = malloc(need + 1))
               || exl2_detokenize(l->text, l->text_model, ids, count, flags, text, need + 1, &need) < 0) {
        engine_error(r, l);
    } else {
        buffer out = { 0 };
        buffer_object(&out, NULL);
        buffer_text(&out, "text", text, need);
        buffer_end(&out);
        endpoint_json(r, 200, &out);
    }
    free(text);
    free(ids);
    json_free(tree);
}
