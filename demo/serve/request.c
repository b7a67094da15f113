/* request.c: what completions and chats have in common, and the prompts of completions.
   takes: the body of a request.
   gives: request_read, request_read_ids, request_read_loras, request_free of request.h.
   owns:  a request's texts and lists. */
#include "request.h"

#include "request_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INCLUDES_MAX 32u /* what OpenAI's list can name, and more */

/* ---- prompts ---- */

static bool is_ids(const json_value *v)
{
    return v->kind == JSON_ARRAY && v->child && v->child->kind == JSON_NUMBER;
}

exl2_token *request_read_ids(request_error *error, const json_value *list, const char *param, uint32_t vocab,
                             size_t *count)
{
    exl2_token *ids = malloc((list->child_count + 1) * sizeof *ids);
    *count = 0;
    if (!ids) {
        fields_fail(error, NULL, "there is no memory left for this request");
        return NULL;
    }
    for (const json_value *v = list->child; v; v = v->next) {
        if (v->kind != JSON_NUMBER || v->number != floor(v->number) || v->number < 0 || v->number >= vocab) {
            fields_fail(error, param, "%s has a value that is no token id of this model", param);
            free(ids);
            return NULL;
        }
        ids[(*count)++] = (exl2_token)v->number;
    }
    return ids;
}

static bool read_prompt(request *r, const json_value *v, uint32_t vocab, request_error *error)
{
    if (r->prompt_count == REQUEST_PROMPTS_MAX) {
        return fields_fail(error, "prompt", "prompt has more than %u prompts", REQUEST_PROMPTS_MAX);
    }
    request_prompt *p = &r->prompts[r->prompt_count++];
    if (v->kind == JSON_TEXT) {
        p->text = v->text;
        p->bytes = v->text_bytes;
        return true;
    }
    if (!is_ids(v)) {
        return fields_fail(error, "prompt", "prompt must be a text, a list of token ids, or a list of these");
    }
    p->tokens = request_read_ids(error, v, "prompt", vocab, &p->token_count);
    return p->tokens != NULL;
}

static bool read_prompts(request *r, uint32_t vocab, request_error *error)
{
    const json_value *v = json_member(r->tree, "prompt");
    if (!v) {
        return fields_fail(error, "prompt", "prompt is missing");
    }
    if (v->kind != JSON_ARRAY || is_ids(v)) {
        return read_prompt(r, v, vocab, error);
    }
    if (!v->child) {
        return fields_fail(error, "prompt", "prompt is an empty list");
    }
    for (const json_value *item = v->child; item; item = item->next) {
        if (!read_prompt(r, item, vocab, error)) {
            return false;
        }
    }
    return true;
}

/* ---- texts that end, texts that are banned ---- */

static bool read_texts(fields *f, const char *names, const char **list, uint32_t *count, exl2_token *ids,
                       uint32_t *id_count, uint32_t vocab)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, names);
    size_t bytes = 0;
    if (!v) {
        return !f->error->set;
    }
    const json_value *item = v->kind == JSON_ARRAY ? v->child : v;
    for (; item; item = v->kind == JSON_ARRAY ? item->next : NULL) {
        bool is_id = ids && item->kind == JSON_NUMBER && item->number >= 0 && item->number < vocab
                  && item->number == floor(item->number);
        if (item->kind == JSON_NULL || (item->kind == JSON_TEXT && !item->text_bytes)) {
            continue;
        }
        if (!is_id && (item->kind != JSON_TEXT || strlen(item->text) != item->text_bytes)) {
            return fields_fail(f->error, v->key, "%s must be a text or a list of texts", v->key);
        }
        bytes += item->kind == JSON_TEXT ? item->text_bytes : 0;
        if (*count + (ids ? *id_count : 0) >= REQUEST_STOPS_MAX || bytes > REQUEST_LIST_BYTES) {
            return fields_fail(f->error, v->key, "%s has more than %u texts or %u bytes", v->key, REQUEST_STOPS_MAX,
                               REQUEST_LIST_BYTES);
        }
        if (is_id) {
            ids[(*id_count)++] = (exl2_token)item->number;
        } else {
            list[(*count)++] = item->text;
        }
    }
    return true;
}

/* ---- limits, log-probabilities, grammars ---- */

static void read_limits(request *r, fields *f)
{
    int64_t whole;
    bool flag;
    if (fields_whole(f, NAMES_MAX_TOKENS, -1e15, 1e15, &whole)) {
        r->max_tokens = whole <= 0 ? 0 : whole > UINT32_MAX ? UINT32_MAX : (uint32_t)whole;
        r->no_new_tokens = whole == 0 && r->echo;
    }
    if (fields_whole(f, NAMES_MIN_TOKENS, 0, 1e9, &whole)) {
        r->min_tokens = (uint32_t)whole;
        if (r->max_tokens && r->min_tokens > r->max_tokens) {
            fields_fail(f->error, "min_tokens", "min_tokens is larger than max_tokens");
        }
    }
    r->n = 1;
    if (fields_whole(f, "n", 1, REQUEST_CHOICES_MAX, &whole)) {
        r->n = (uint32_t)whole;
    }
    fields_bool(f, "stream", &r->stream);
    const json_value *options = NULL;
    if (fields_object(f, "stream_options", &options)
        && !fields_bool(&(fields){ options, f->error }, "include_usage", &r->include_usage)) {
        fields_within(f->error, "stream_options");
    }
    fields_bool(f, NAMES_NO_END, &r->no_end);
    fields_bool(f, "token_healing", &r->heal);
    if (fields_bool(f, "skip_special_tokens", &flag)) {
        r->show_markers = !flag;
    }
    double guidance;
    fields_text(f, "negative_prompt", &r->negative, NULL);
    if (fields_number(f, NAMES_GUIDANCE, -100, 100, &guidance) && guidance != 1) {
        r->guidance = guidance;
    }
}

static void read_logprobs(request *r, fields *f)
{
    const json_value *v = f->error->set ? NULL : fields_find(f, NAMES_LOGPROBS);
    int64_t whole = 0;
    if (v && (v->kind == JSON_TRUE || v->kind == JSON_FALSE)) {
        r->logprobs = v->kind == JSON_TRUE;
        whole = r->logprobs && r->kind == REQUEST_COMPLETION;
    } else if (fields_whole(f, NAMES_LOGPROBS, 0, REQUEST_ALTS_MAX, &whole)) {
        r->logprobs = r->kind == REQUEST_COMPLETION || whole > 0;
    }
    r->top_logprobs = (uint32_t)whole;
    if (fields_whole(f, "top_logprobs", 0, REQUEST_ALTS_MAX, &whole) && r->kind != REQUEST_COMPLETION) {
        r->top_logprobs = (uint32_t)whole;
        r->logprobs = r->logprobs || (whole > 0 && !v);
    }
}

/* What /v1/responses is to have beside its texts. */
static void read_include(request *r, fields *f)
{
    const json_value *list = NULL;
    if (r->kind != REQUEST_RESPONSES || !fields_array(f, "include", INCLUDES_MAX, &list)) {
        return;
    }
    for (const json_value *item = list->child; item; item = item->next) {
        if (item->kind != JSON_TEXT) {
            fields_fail(f->error, "include", "include must be a list of texts");
            return;
        }
        if (strcmp(item->text, "message.output_text.logprobs") == 0) {
            r->logprobs = true;
        } else {
            buffer_format(&r->warnings, "%sinclude: %.60s", r->warnings.bytes ? ", " : "", item->text);
        }
    }
}

static void set_grammar(request *r, fields *f, const char *name, exl2_grammar_kind kind, const char *source,
                        size_t bytes)
{
    if (r->has_grammar) {
        fields_fail(f->error, name, "%s: there can be one of response_format, json_schema, regex_pattern and "
                    "grammar_string only", name);
        return;
    }
    r->has_grammar = true;
    r->grammar = kind;
    r->source = source;
    r->source_bytes = bytes;
}

/* The schema of response_format: plain, or in the wrapper {"name", "schema", "strict"}. */
static void read_format_schema(request *r, fields *f, const json_value *format)
{
    const json_value *wrapper = json_member(format, "json_schema"), *schema = json_member(wrapper, "schema");
    if (schema && !json_member(wrapper, "properties")) {
        fields_bool(&(fields){ wrapper, f->error }, "strict", &r->strict);
        fields_within(f->error, "response_format");
    } else {
        schema = wrapper ? wrapper : json_member(format, "schema");
    }
    bool is_object = schema && schema->kind == JSON_OBJECT && (schema != wrapper || schema->child);
    if (!is_object && (!schema || (schema->kind != JSON_TRUE && schema->kind != JSON_FALSE))) {
        fields_fail(f->error, "response_format", "response_format: the schema is missing, or no object");
        return;
    }
    set_grammar(r, f, "response_format", EXL2_GRAMMAR_JSON_SCHEMA, schema->raw, schema->raw_bytes);
}

static void read_format(request *r, fields *f)
{
    static const char object[] = "{\"type\":\"object\"}";
    const json_value *format = NULL;
    const char *type = "text";
    if (!fields_object(f, "response_format", &format)) {
        return;
    }
    fields_text(&(fields){ format, f->error }, "type", &type, NULL);
    fields_within(f->error, "response_format");
    if (strcmp(type, "json_object") == 0 || strcmp(type, "json") == 0) {
        set_grammar(r, f, "response_format", EXL2_GRAMMAR_JSON_SCHEMA, object, sizeof object - 1);
    } else if (strcmp(type, "json_schema") == 0) {
        read_format_schema(r, f, format);
    } else if (strcmp(type, "text") != 0) {
        fields_fail(f->error, "response_format", "response_format: the type must be text, json_object or json_schema, "
                    "not '%.40s'", type);
    }
}

static void read_grammars(request *r, fields *f)
{
    const json_value *schema = f->error->set ? NULL : fields_find(f, "json_schema");
    const char *text = NULL;
    size_t bytes = 0;
    read_format(r, f);
    if (schema && schema->kind == JSON_TEXT) { /* a schema as text */
        set_grammar(r, f, "json_schema", EXL2_GRAMMAR_JSON_SCHEMA, schema->text, schema->text_bytes);
    } else if (schema && schema->kind != JSON_OBJECT) {
        fields_fail(f->error, "json_schema", "json_schema must be an object");
    } else if (schema) {
        set_grammar(r, f, "json_schema", EXL2_GRAMMAR_JSON_SCHEMA, schema->raw, schema->raw_bytes);
    }
    if (fields_text(f, "regex_pattern", &text, &bytes)) {
        set_grammar(r, f, "regex_pattern", EXL2_GRAMMAR_REGEX, text, bytes);
        r->whole_text = true;
    }
    if (fields_text(f, "grammar_string", &text, &bytes)) {
        set_grammar(r, f, "grammar_string", EXL2_GRAMMAR_EBNF, text, bytes);
        r->whole_text = true;
    }
}

bool request_read_loras(fields *f, request_lora *out, uint32_t most, uint32_t *count)
{
    const json_value *list = NULL;
    if (!fields_array(f, "loras", most, &list)) {
        return false;
    }
    for (const json_value *item = list->child; item; item = item->next) {
        fields one = { item, f->error };
        request_lora lora = { .scaling = 1 };
        if (item->kind != JSON_OBJECT || !fields_text(&one, "name", &lora.name, NULL)) {
            return fields_fail(f->error, "loras", "loras must have objects with a name, and perhaps a scaling");
        }
        fields_number(&one, "scaling", -100, 100, &lora.scaling);
        fields_within(f->error, "loras");
        for (uint32_t i = 0; i < *count; i++) {
            if (strcmp(out[i].name, lora.name) == 0) {
                fields_fail(f->error, "loras", "loras names '%.100s' twice", lora.name);
            }
        }
        if (f->error->set) {
            return false;
        }
        out[(*count)++] = lora;
    }
    return true;
}

/* Copies a body and reads it. What was made is in *copy and *tree, also if it is refused. */
static bool read_tree(const char *body, size_t bytes, char **copy, json_value **tree, request_error *error)
{
    *copy = buffer_copy(body, bytes);
    if (!*copy) {
        return fields_fail(error, NULL, "there is no memory left for this request");
    }
    *tree = fields_read(*copy, bytes, error);
    return *tree != NULL;
}

/* Keeps the members that the answer repeats. */
static bool keep_asked(request *r, const json_value *tree, request_error *error)
{
    static const char *const names[] = { "instructions", "max_output_tokens", "metadata", "parallel_tool_calls",
                                         "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_value *v = json_member(tree, names[i]);
        if (v) {
            r->asked[r->asked_count++] = (request_asked){ names[i], r->asked_texts.bytes, v->raw_bytes };
            buffer_add(&r->asked_texts, v->raw, v->raw_bytes);
        }
    }
    return !r->asked_texts.failed || fields_fail(error, NULL, "there is no memory left for this request");
}

/* Reads the body of /v1/responses, and then what it is as a chat. */
static bool read_responses(request *r, const char *body, size_t bytes, request_error *error)
{
    buffer chat = { 0 };
    char *copy = NULL;
    json_value *tree = NULL;
    bool good = read_tree(body, bytes, &copy, &tree, error) && keep_asked(r, tree, error)
             && request_responses_chat(tree, &chat, error);
    json_free(tree);
    free(copy);
    good = good && read_tree(chat.data, chat.bytes, &r->body, &r->tree, error);
    buffer_free(&chat);
    return good;
}

bool request_read(request *r, request_kind kind, const char *body, size_t bytes, const request_limits *limits,
                  request_error *error)
{
    r->kind = kind;
    r->limits = limits;
    r->parallel_tools = true;
    r->reasoning_budget = -1;
    if (kind == REQUEST_RESPONSES ? !read_responses(r, body, bytes, error)
                                  : !read_tree(body, bytes, &r->body, &r->tree, error)) {
        return false;
    }
    fields f = { r->tree, error };
    bool bos = true;
    fields_text(&f, "model", &r->model, NULL);
    if (error->set) {
        return false;
    }
    if (kind == REQUEST_COMPLETION) {
        fields_bool(&f, "echo", &r->echo);
        if (fields_bool(&f, "add_bos_token", &bos)) {
            r->no_bos = !bos;
        }
        read_prompts(r, limits->vocab, error);
    } else {
        request_read_chat(r, &f);
    }
    read_limits(r, &f);
    read_logprobs(r, &f);
    read_include(r, &f);
    request_read_loras(&f, r->loras, EXL2_JOB_LORAS, &r->lora_count);
    read_grammars(r, &f);
    r->stop_tokens = calloc(REQUEST_STOPS_MAX, sizeof *r->stop_tokens);
    if (!r->stop_tokens) {
        return fields_fail(error, NULL, "there is no memory left for this request");
    }
    read_texts(&f, NAMES_STOP, r->stops, &r->stop_count, r->stop_tokens,
               &r->stop_token_count, limits->vocab);
    read_texts(&f, "banned_strings", r->bans, &r->ban_count, NULL, NULL, limits->vocab);
    sampling_read(&f, limits->preset, limits->vocab, &r->sampling, &r->warnings);
    if (kind == REQUEST_RESPONSES && error->set && strncmp(error->param, "messages", 8) == 0) {
        strcpy(error->param, "input"); /* what the messages were made of */
    }
    return !error->set && request_keep(r, error);
}

void request_free(request *r)
{
    for (uint32_t i = 0; i < r->prompt_count; i++) {
        free(r->prompts[i].tokens);
    }
    free(r->messages);
    request_free_pixels(r);
    free(r->images);
    free(r->stop_tokens);
    sampling_free(&r->sampling);
    buffer_free(&r->texts);
    buffer_free(&r->warnings);
    buffer_free(&r->calls);
    json_free(r->tree);
    free(r->body);
    free(r->kept);
    buffer_free(&r->asked_texts);
    *r = (request){ 0 };
}
