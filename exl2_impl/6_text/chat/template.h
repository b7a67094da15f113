/* template.h: opens and renders chat templates, which model files contain as Jinja. A template that uses more of Jinja
   than this interpreter supports is rejected, and the message names the construct.
   takes: template text; messages, tools and the other members of exl2_chat_desc.
   gives: exl2__template_open, exl2__template_render, exl2__template_close.
   owns:  a template's program and guard, until exl2__template_close. */
#ifndef EXL2__TEMPLATE_H
#define EXL2__TEMPLATE_H

#include "template_run.h"
#include "template_statement.h"

/* The last message is the beginning of the reply: a marker is appended to its text, which it must have. */
typedef struct exl2__template_begun {
    const char *marker;
    const char *text; /* the render gives the text without the marker, in the render's block */
    size_t bytes;
} exl2__template_begun;

/* Tells which pictures of messages are videos. */
typedef struct exl2__template_videos {
    bool (*is_video)(void *user, exl2_image image);
    void *user;
} exl2__template_videos;

typedef struct exl2__template_input {
    const exl2_message *messages;
    size_t message_count;
    const exl2_chat_desc *chat; /* its choice of a template is not read here */
    const char *bos_token, *eos_token, *unk_token, *pad_token; /* NULL: undefined */
    uint32_t *steps; /* steps used by earlier renders of this conversation; this render adds its own; NULL: none */
    size_t *tool_calls; /* gets the number of the first message with tool calls, from 1; 0: none has. May be NULL */
    exl2__template_begun *begun; /* NULL: nothing is appended to the last message */
    const exl2__template_videos *videos; /* NULL: pictures are none */
} exl2__template_input;

EXL2__PRIVATE void exl2__template_close(exl2__ctx *c, exl2__template *t)
{
    exl2__free(c, t->guard, t->guard_bytes, EXL2_MEM_GENERAL);
    exl2__free(c, t->block, t->bytes, EXL2_MEM_GENERAL);
    memset(t, 0, sizeof *t);
}

/* ---- opening ---- */

/* Copies the source with every line end as "\n" and without a final line end, as Jinja does. Returns the bytes of the
   copy; with out NULL it only counts them. */
EXL2__PRIVATE size_t exl2__template_normalize(const char *source, size_t bytes, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = source[i];
        if (c == '\r') {
            i += i + 1 < bytes && source[i + 1] == '\n';
            c = '\n';
        }
        if (c == '\n' && i + 1 == bytes) {
            break;
        }
        if (out) {
            out[used] = c;
        }
        used++;
    }
    return used;
}

/* Parses normalized source; with code NULL it only counts. Errors are written to p->error. */
EXL2__PRIVATE exl2_result exl2__template_parse(exl2__template_parser *p, const char *source, uint32_t bytes,
                                               exl2__template_ins *code, char *pool, exl2_error *error)
{
    memset(p, 0, sizeof *p);
    p->lex.source = source;
    p->lex.bytes = bytes;
    p->lex.line_start = true;
    p->code = code;
    p->pool = pool;
    p->error = error;
    return exl2__template_statement_all(p);
}

/* Parses twice: a dry run counts the bytes of the block, the second run writes into the block. */
EXL2__PRIVATE exl2_result exl2__template_build(exl2__ctx *c, exl2__template_parser *p, const char *source,
                                               uint32_t bytes, exl2__template *out)
{
    uint64_t code_bytes, name_bytes, text_bytes;
    if (exl2__template_parse(p, source, bytes, NULL, NULL, &out->rejected) < 0) {
        return EXL2_OK;
    }
    code_bytes = (uint64_t)p->code_count * sizeof(exl2__template_ins);
    name_bytes = (uint64_t)p->name_count * sizeof(exl2__template_name);
    text_bytes = (uint64_t)bytes + p->pool_bytes;
    out->bytes = code_bytes + name_bytes + text_bytes;
    EXL2__TRY(exl2__alloc(c, out->bytes, 16, EXL2_MEM_GENERAL, &out->block));
    exl2__template_ins *code = (exl2__template_ins *)out->block;
    exl2__template_name *names = (exl2__template_name *)(void *)((char *)out->block + code_bytes);
    char *text = (char *)out->block + code_bytes + name_bytes;
    if (bytes) {
        memcpy(text, source, bytes);
    }
    exl2__template_parse(p, text, bytes, code, text + bytes, &out->rejected);
    if (p->name_count) {
        memcpy(names, p->names, (size_t)name_bytes);
    }
    out->code = code;
    out->names = names;
    out->text = text;
    out->text_bytes = (uint32_t)text_bytes;
    out->name_count = p->name_count;
    out->stack_max = p->stack_max;
    return EXL2_OK;
}

/* Parses a template; `source` is copied. A rejected template is EXL2_OK, too: out->rejected holds the error, and
   exl2__template_render fails with it. So a model with an unsupported template still accepts raw prompts. */
EXL2__PRIVATE exl2_result exl2__template_open(exl2__ctx *c, const char *source, size_t bytes, exl2__template *out)
{
    void *memory = NULL;
    size_t mark = exl2__utf8_mark(source, bytes);
    source += mark;
    bytes -= mark;
    memset(out, 0, sizeof *out);
    out->present = true;
    size_t normal = exl2__template_normalize(source, bytes, NULL);
    if (normal > EXL2__TEMPLATE_SOURCE_MAX) {
        out->rejected.code = EXL2_ERR_UNSUPPORTED;
        exl2__format(out->rejected.text, sizeof out->rejected.text,
                     "chat template: it has %llu bytes, more than the supported %u", (unsigned long long)normal,
                     EXL2__TEMPLATE_SOURCE_MAX);
        return EXL2_OK;
    }
    uint64_t scratch_bytes = sizeof(exl2__template_parser) + normal;
    exl2_result result = exl2__alloc(c, scratch_bytes, 16, EXL2_MEM_SCRATCH, &memory);
    if (result == EXL2_OK) {
        char *text = (char *)memory + sizeof(exl2__template_parser);
        exl2__template_normalize(source, bytes, text);
        result = exl2__template_build(c, (exl2__template_parser *)memory, text, (uint32_t)normal, out);
    }
    exl2__free(c, memory, scratch_bytes, EXL2_MEM_SCRATCH);
    if (result < 0) {
        exl2__template_close(c, out);
    }
    return result;
}

/* ---- the variables of a template ---- */

EXL2__PRIVATE exl2_result exl2__template_put_key(exl2__template_run *r, exl2__template_value *dict, const char *key,
                                                 const exl2__template_value *value)
{
    exl2__template_value name = exl2__template_text(key, strlen(key));
    return exl2__template_entry_put(r, (exl2__template_entry *)(uintptr_t)dict->as.entries, &dict->count, &name, value);
}

/* Parses a JSON object; text NULL: an empty one. */
EXL2__PRIVATE exl2_result exl2__template_object(exl2__template_run *r, const char *label, const char *text,
                                                exl2__template_value *out)
{
    EXL2__TRY(exl2__template_parse_json(r, label, text ? text : "{}", text ? strlen(text) : 2, out));
    return out->kind == EXL2__TEMPLATE_KIND_DICT
               ? EXL2_OK
               : exl2__template_fail(r, EXL2_ERR_ARG, "%s: expected a JSON object, found a %s", label,
                                     exl2__template_type(out));
}

/* The value of `key` in the dict, or NULL. */
EXL2__PRIVATE const exl2__template_value *exl2__template_member(const exl2__template_value *dict, const char *key)
{
    for (uint32_t i = 0; i < dict->count; i++) {
        const exl2__template_entry *e = &dict->as.entries[i];
        if (e->key.kind == EXL2__TEMPLATE_KIND_TEXT && exl2__template_same(e->key.as.text, e->key.count, key)) {
            return &e->value;
        }
    }
    return NULL;
}

/* Content in parts: the message's pictures, then its text. */
EXL2__PRIVATE exl2_result exl2__template_picture_parts(exl2__template_run *r, const exl2__template_videos *videos,
                                                       const exl2_message *m, exl2__template_value *out)
{
    exl2__template_value *items = NULL;
    uint64_t count = (uint64_t)m->image_count + (m->text != NULL);
    EXL2__TRY(exl2__template_alloc_values(r, count, &items));
    for (uint64_t i = 0; i < count; i++) {
        bool picture = i < m->image_count;
        bool video = picture && m->images && videos && videos->is_video(videos->user, m->images[i]);
        const char *name = video ? "video" : picture ? "image" : "text";
        exl2__template_value type = exl2__template_text(name, (uint32_t)strlen(name));
        exl2__template_entry *entries = NULL;
        EXL2__TRY(exl2__template_alloc_entries(r, 2, &entries));
        items[i] = exl2__template_items(EXL2__TEMPLATE_KIND_DICT, NULL, 0);
        items[i].as.entries = entries;
        items[i].marked = !r->trusted;
        EXL2__TRY(exl2__template_put_key(r, &items[i], "type", &type));
        if (i == m->image_count) {
            exl2__template_value text;
            EXL2__TRY(exl2__template_copy_text(r, m->text, strlen(m->text), !r->trusted, &text));
            text.marked = !r->trusted;
            EXL2__TRY(exl2__template_put_key(r, &items[i], "text", &text));
        }
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, items, (uint32_t)count);
    return EXL2_OK;
}

/* One message as a dict: role, content, ... and the members of `fields`, which override the former. If `fields` has a
   role, its members come first. */
EXL2__PRIVATE exl2_result exl2__template_message(exl2__template_run *r, const exl2__template_videos *videos,
                                                 const exl2_message *m, exl2__template_value *out)
{
    const struct {
        const char *key, *text; /* text NULL: the message has no such member */
        bool json;              /* text is JSON */
        bool none;              /* a missing member is None */
    } members[] = {
        { "role", m->role, false, false },
        { "content", m->text, false, !m->fields },
        { "name", m->name, false, false },
        { "reasoning_content", m->reasoning, false, false },
        { "tool_calls", m->tool_calls, true, false },
        { "tool_call_id", m->tool_call_id, false, false },
    };
    exl2__template_value fields, value;
    exl2__template_entry *entries = NULL;
    EXL2__TRY(exl2__template_object(r, "fields of a message", m->fields, &fields));
    EXL2__TRY(exl2__template_alloc_entries(r, (uint64_t)fields.count + EXL2__COUNT(members) + 1, &entries));
    out->as.entries = entries;
    if (fields.count) {
        memcpy(entries, fields.as.entries, fields.count * sizeof *entries);
    }
    *out = fields;
    out->as.entries = entries;
    out->count = exl2__template_member(&fields, "role") ? fields.count : 0;
    for (size_t i = 0; i < EXL2__COUNT(members); i++) {
        const char *key = members[i].key, *text = members[i].text;
        bool parts = i == 1 && m->image_count > 0; /* of the content */
        bool absent = !text && !members[i].none && !parts;
        if (absent || exl2__template_member(&fields, key)) {
            continue;
        }
        value = exl2__template_none();
        value.marked = !r->trusted;
        if (parts) {
            EXL2__TRY(exl2__template_picture_parts(r, videos, m, &value));
            value.marked = !r->trusted;
        } else if (text && members[i].json) {
            EXL2__TRY(exl2__template_parse_json(r, key, text, strlen(text), &value));
        } else if (text) {
            EXL2__TRY(exl2__template_copy_text(r, text, strlen(text), !r->trusted, &value));
            value.marked = !r->trusted;
        }
        EXL2__TRY(exl2__template_put_key(r, out, key, &value));
    }
    for (uint32_t i = 0; i < fields.count; i++) {
        EXL2__TRY(exl2__template_entry_put(r, entries, &out->count, &fields.as.entries[i].key,
                                           &fields.as.entries[i].value));
    }
    const exl2__template_value *reasoning = exl2__template_member(out, "reasoning_content");
    if (reasoning && !exl2__template_member(out, "thinking")) {
        value = *reasoning;
        EXL2__TRY(exl2__template_put_key(r, out, "thinking", &value));
    }
    return EXL2_OK;
}

/* Finds the first message with tool calls, and the first of these without text. */
EXL2__PRIVATE void exl2__template_note_calls(exl2__template_run *r, const exl2__template_input *in,
                                             const exl2__template_value *messages)
{
    size_t first = 0;
    for (size_t i = in->message_count; i-- > 0;) {
        const exl2__template_value *calls = exl2__template_member(&messages[i], "tool_calls");
        const exl2__template_value *content = exl2__template_member(&messages[i], "content");
        bool has = calls && exl2__template_truth(calls);
        first = has ? i + 1 : first;
        r->textless = has && (!content || content->kind == EXL2__TEMPLATE_KIND_NONE) ? i + 1 : r->textless;
    }
    if (in->tool_calls) {
        *in->tool_calls = first;
    }
}

/* The text of a message that the marker is appended to: its content, or the last part of it that has a text. */
EXL2__PRIVATE exl2__template_value *exl2__template_last_text(const exl2__template_value *message)
{
    const exl2__template_value *content = exl2__template_member(message, "content"), *found = content;
    if (content && content->kind == EXL2__TEMPLATE_KIND_LIST) {
        found = NULL;
        for (uint32_t i = 0; i < content->count; i++) {
            const exl2__template_value *part = &content->as.items[i];
            const exl2__template_value *text =
                part->kind == EXL2__TEMPLATE_KIND_DICT ? exl2__template_member(part, "text") : NULL;
            found = text && text->kind == EXL2__TEMPLATE_KIND_TEXT ? text : found;
        }
    }
    bool good = found && found->kind == EXL2__TEMPLATE_KIND_TEXT;
    return good ? (exl2__template_value *)(uintptr_t)found : NULL; /* in the run's block, like all of a message */
}

EXL2__PRIVATE exl2_result exl2__template_append_marker(exl2__template_run *r, const exl2__template_input *in,
                                                       const exl2__template_value *messages)
{
    size_t last = in->message_count - 1, start = r->used;
    exl2__template_value *text = in->message_count ? exl2__template_last_text(&messages[last]) : NULL;
    if (!text) {
        return exl2__fail(r->c, EXL2_ERR_ARG, in->message_count
                          ? "begun_reply: message %zu, the last one, has no text that the reply could begin with"
                          : "begun_reply: there is no message that the reply could begin with", last);
    }
    bool marked = text->marked;
    EXL2__TRY(exl2__template_put_copy(r, text->as.text, text->count));
    EXL2__TRY(exl2__template_put(r, in->begun->marker, strlen(in->begun->marker), false));
    in->begun->text = (const char *)r->block + start;
    in->begun->bytes = text->count;
    *text = exl2__template_written(r, start);
    text->marked = marked;
    return EXL2_OK;
}

/* All messages as a list. Text of an assistant was generated by the model, so special tokens in it are trusted; all
   other text is marked. */
EXL2__PRIVATE exl2_result exl2__template_messages(exl2__template_run *r, const exl2__template_input *in,
                                                  exl2__template_value *out)
{
    exl2__template_value *items = NULL;
    EXL2__TRY(exl2__template_alloc_values(r, in->message_count, &items));
    for (size_t i = 0; i < in->message_count; i++) {
        const exl2_message *m = &in->messages[i];
        const exl2__template_value *role;
        r->trusted = !m->role || strcmp(m->role, "assistant") == 0;
        EXL2__TRY(exl2__template_message(r, in->videos, m, &items[i]));
        role = exl2__template_member(&items[i], "role");
        if (r->trusted && !(role && role->kind == EXL2__TEMPLATE_KIND_TEXT &&
                            exl2__template_same(role->as.text, role->count, "assistant"))) {
            r->trusted = false; /* `fields` has another role */
            EXL2__TRY(exl2__template_message(r, in->videos, m, &items[i]));
        }
        r->trusted = false;
    }
    exl2__template_note_calls(r, in, items);
    EXL2__TRY(in->begun ? exl2__template_append_marker(r, in, items) : EXL2_OK);
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, items, (uint32_t)in->message_count);
    out->marked = true;
    return EXL2_OK;
}

/* Sets every member of a JSON object as a variable. */
EXL2__PRIVATE exl2_result exl2__template_set_members(exl2__template_run *r, const char *label, const char *text)
{
    exl2__template_value object;
    EXL2__TRY(exl2__template_object(r, label, text, &object));
    EXL2__TRY(exl2__template_step(r, (uint64_t)object.count * r->program->name_count / 16));
    for (uint32_t i = 0; i < object.count; i++) {
        const exl2__template_entry *e = &object.as.entries[i];
        exl2__template_frame_set_text(r, e->key.as.text, e->key.count, &e->value);
    }
    return EXL2_OK;
}

/* Parses "YYYY-MM-DD HH:MM:SS" into the run's clock. */
EXL2__PRIVATE exl2_result exl2__template_set_clock(exl2__template_run *r, const char *text)
{
    static const char form[] = "dddd-dd-dd dd:dd:dd";
    static const int32_t low[EXL2__TEMPLATE_CLOCK_PARTS] = { 1, 1, 1, 0, 0, 0 },
                         high[EXL2__TEMPLATE_CLOCK_PARTS] = { 9999, 12, 31, 23, 59, 60 };
    bool good = strlen(text) == sizeof form - 1;
    uint32_t part = 0;
    memset(r->clock, 0, sizeof r->clock);
    for (size_t i = 0; good && i < sizeof form - 1; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        good = form[i] == 'd' ? digit : text[i] == form[i];
        r->clock[part] = digit ? r->clock[part] * 10 + (text[i] - '0') : r->clock[part];
        part += form[i] != 'd';
    }
    for (uint32_t i = 0; good && i < EXL2__TEMPLATE_CLOCK_PARTS; i++) {
        good = r->clock[i] >= low[i] && r->clock[i] <= high[i];
    }
    int32_t year = r->clock[EXL2__TEMPLATE_YEAR], month = r->clock[EXL2__TEMPLATE_MONTH];
    good = good && r->clock[EXL2__TEMPLATE_DAY] <=
                       exl2__template_days_before(year, month + 1) - exl2__template_days_before(year, month);
    return good ? EXL2_OK
                : exl2__template_fail(r, EXL2_ERR_ARG, "now is '%.*s', expected YYYY-MM-DD HH:MM:SS", 40, text);
}

EXL2__PRIVATE exl2_result exl2__template_set_input(exl2__template_run *r, const exl2__template_input *in)
{
    typedef struct exl2__template_variable {
        const char *name, *text; /* text NULL: not given */
    } variable;
    const exl2_chat_desc *chat = in->chat;
    const variable tokens[] = { { "bos_token", in->bos_token }, { "eos_token", in->eos_token },
                                { "unk_token", in->unk_token }, { "pad_token", in->pad_token } };
    const variable lists[] = { { "tools", chat->tools }, { "documents", chat->documents } };
    exl2__template_value value;
    if (chat->now) {
        EXL2__TRY(exl2__template_set_clock(r, chat->now));
    }
    for (size_t i = 0; i < EXL2__COUNT(tokens) && !chat->special_tokens; i++) {
        if (tokens[i].text) {
            value = exl2__template_text(tokens[i].text, strlen(tokens[i].text));
            exl2__template_frame_set(r, tokens[i].name, &value);
        }
    }
    value = exl2__template_none();
    for (size_t i = 0; i < EXL2__COUNT(lists); i++) {
        exl2__template_frame_set(r, lists[i].name, &value);
    }
    r->trusted = true;
    EXL2__TRY(exl2__template_set_members(r, "special_tokens", chat->special_tokens));
    r->trusted = false;
    EXL2__TRY(exl2__template_set_members(r, "variables", chat->variables));
    for (size_t i = 0; i < EXL2__COUNT(lists); i++) { /* after the variables, which do not override them */
        if (lists[i].text) {
            EXL2__TRY(exl2__template_parse_json(r, lists[i].name, lists[i].text, strlen(lists[i].text), &value));
            exl2__template_frame_set(r, lists[i].name, &value);
        }
    }
    value = exl2__template_bool(!chat->close_reply && !chat->begun_reply);
    exl2__template_frame_set(r, "add_generation_prompt", &value);
    EXL2__TRY(exl2__template_messages(r, in, &value));
    exl2__template_frame_set(r, "messages", &value);
    return EXL2_OK;
}

/* ---- rendering ---- */

/* Runs the program and returns its output. */
EXL2__PRIVATE exl2_result exl2__template_finish(exl2__template_run *r, const char **text, size_t *bytes,
                                                const uint8_t **from_message)
{
    exl2__template_value out;
    EXL2__TRY(exl2__template_run_all(r));
    EXL2__TRY(exl2__template_frame_gather(r, 0, &out));
    *text = out.as.text;
    *bytes = out.count;
    *from_message = r->marks + (size_t)(out.as.text - (const char *)r->block) / 8;
    return EXL2_OK;
}

/* Renders into the caller's block and allocates nothing. *text (a NUL follows it) and *from_message point into the
   block. *from_message has one bit per byte of *text, lowest bit first. The bit is set if the byte came from a message
   (of any role but assistant), a tool, a document or a variable, whatever the template did to it, so that such text is
   never tokenized as a special token.
   If the block is too small, the result is EXL2_ERR_TOO_SMALL without a message, or EXL2_ERR_BUDGET if the block had
   EXL2__TEMPLATE_BLOCK_MAX bytes already. A first guess that rarely fails is 64 KiB plus 8 times the input. */
EXL2__PRIVATE exl2_result exl2__template_render(exl2__ctx *c, const exl2__template *t, const exl2__template_input *in,
                                                void *block, size_t block_bytes, const char **text, size_t *bytes,
                                                const uint8_t **from_message)
{
    exl2__template_run *run;
    if (!t->present) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "the model has no chat template");
    }
    if (t->rejected.code < 0) {
        return exl2__fail(c, t->rejected.code, "%s", t->rejected.text);
    }
    EXL2__TRY(exl2__template_frame_open(c, t, block, block_bytes, &run));
    run->steps = in->steps ? *in->steps : 0;
    exl2_result result = exl2__template_set_input(run, in);
    result = result == EXL2_OK ? exl2__template_finish(run, text, bytes, from_message) : result;
    if (in->steps) {
        *in->steps = run->steps;
    }
    return result;
}

#endif
