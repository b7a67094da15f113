/* template.h: chat templates: the Jinja of model files, refused by name where it goes beyond what is written here.
   takes: template text or a model folder; messages.
   gives: exl2__template_open, exl2__template_from_config, exl2__template_render, exl2__template_close.
   owns:  one block per template (its program), until exl2__template_close.
   next:  template_code.h */
#ifndef EXL2__TEMPLATE_H
#define EXL2__TEMPLATE_H

#include "../0_base/log.h"
#include "../1_load/fields.h"
#include "template_run.h"
#include "template_statement.h"

typedef struct exl2__template_input {
    const exl2_message *messages;
    size_t message_count;
    const char *tools;          /* JSON array; NULL: the template sees none */
    bool add_generation_prompt;
    const char *bos_token, *eos_token, *unk_token, *pad_token; /* NULL: undefined */
} exl2__template_input;

static void exl2__template_close(exl2__ctx *c, exl2__template *t)
{
    exl2__free(c, t->block, t->bytes, EXL2_MEM_GENERAL);
    memset(t, 0, sizeof *t);
}

/* ---- opening ---- */

/* Copies the source with every line end as "\n" and without the last one; gives its bytes. out NULL: only counts. */
static size_t exl2__template_normalize(const char *source, size_t bytes, char *out)
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

/* Parses normalized source; with code NULL it only counts. What is wrong with it is in p->error. */
static exl2_result exl2__template_parse(exl2__template_parser *p, const char *source, uint32_t bytes,
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

/* Parses twice: dry into `p`, to learn the size of the block, then into the block. */
static exl2_result exl2__template_build(exl2__ctx *c, exl2__template_parser *p, const char *source, uint32_t bytes,
                                        exl2__template *out)
{
    uint64_t code_bytes, name_bytes, text_bytes;
    if (exl2__template_parse(p, source, bytes, NULL, NULL, &out->refused) < 0) {
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
    exl2__template_parse(p, text, bytes, code, text + bytes, &out->refused);
    if (p->name_count) {
        memcpy(names, p->names, (size_t)name_bytes);
    }
    out->code = code;
    out->names = names;
    out->text = text;
    out->name_count = p->name_count;
    out->stack_max = p->stack_max;
    return EXL2_OK;
}

/* Parses a template; `source` is copied. One that this interpreter refuses is EXL2_OK too: out->refused says where and
   why, and exl2__template_render fails with it. So a model whose template is out of reach still runs raw prompts. */
static exl2_result exl2__template_open(exl2__ctx *c, const char *source, size_t bytes, exl2__template *out)
{
    void *memory = NULL;
    memset(out, 0, sizeof *out);
    out->present = true;
    size_t normal = exl2__template_normalize(source, bytes, NULL);
    if (normal > EXL2__TEMPLATE_SOURCE_MAX) {
        out->refused.code = EXL2_ERR_UNSUPPORTED;
        exl2__format(out->refused.text, sizeof out->refused.text,
                     "chat template: %llu bytes are more than the supported %u", (unsigned long long)normal,
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

/* The token of the template in tokenizer_config.json: chat_template itself, or the one called "default" in its list; 0
 * = none. */
static uint32_t exl2__template_config_token(const exl2__json *j)
{
    uint32_t token = exl2__json_get(j, 0, "chat_template");
    if (!token || j->tokens[token].kind == EXL2__JSON_STRING) {
        return token;
    }
    for (uint32_t item = exl2__json_first(j, token); item; item = exl2__json_next(j, token, item)) {
        uint32_t name = exl2__json_get(j, item, "name"), text = exl2__json_get(j, item, "template");
        if (name && text && exl2__json_is(j, name, "default") && j->tokens[text].kind == EXL2__JSON_STRING) {
            return text;
        }
    }
    return 0;
}

static exl2_result exl2__template_from_json(exl2__ctx *c, const exl2__json *j, exl2__template *out)
{
    uint32_t token = exl2__template_config_token(j);
    void *memory = NULL;
    if (!token) {
        return EXL2_OK;
    }
    size_t bytes = exl2__json_text(j, token, NULL, 0);
    EXL2__TRY(exl2__alloc(c, bytes, 16, EXL2_MEM_SCRATCH, &memory));
    exl2__json_text(j, token, (char *)memory, bytes);
    exl2_result result = exl2__template_open(c, (const char *)memory, bytes, out);
    exl2__free(c, memory, bytes, EXL2_MEM_SCRATCH);
    return result;
}

/* The template of a model folder: chat_template.jinja, else chat_template of tokenizer_config.json. None: EXL2_OK and
   out->present false. One that is refused is EXL2_OK too, with a warning in the log: the model loads and continues raw
   prompts, and exl2__template_render says why there is no chat. */
EXL2__COLD
static exl2_result exl2__template_from_config(exl2__ctx *c, const char *dir, exl2__template *out)
{
    exl2__blob file = { 0 };
    exl2__fields config = { 0 };
    memset(out, 0, sizeof *out);
    EXL2__TRY(exl2__file_read_optional(c, dir, "chat_template.jinja", (uint64_t)16 << 20, &file));
    exl2_result result = EXL2_OK;
    if (file.data) {
        result = exl2__template_open(c, file.data, (size_t)file.bytes, out);
    } else {
        result = exl2__fields_open(c, dir, "tokenizer_config.json", true, &config);
        if (result == EXL2_OK && config.text.data) {
            result = exl2__template_from_json(c, &config.json, out);
        }
    }
    exl2__fields_close(&config);
    exl2__blob_close(c, &file);
    if (result == EXL2_OK && out->refused.code < 0) {
        exl2__log(c, EXL2_LOG_WARN, "%s", out->refused.text);
    }
    return result;
}

/* ---- rendering ---- */

/* {"role": .., "content": .. or none} for each message; all of it is marked. */
static exl2_result exl2__template_messages(exl2__template_run *r, const exl2__template_input *in,
                                           exl2__template_value *out)
{
    exl2__template_value *items = NULL;
    EXL2__TRY(exl2__template_take_values(r, in->message_count, &items));
    for (size_t i = 0; i < in->message_count; i++) {
        const exl2_message *m = &in->messages[i];
        const char *texts[2] = { m->role ? m->role : "", m->text };
        exl2__template_entry *entries = NULL;
        EXL2__TRY(exl2__template_take_entries(r, 2, &entries));
        for (uint32_t k = 0; k < 2; k++) {
            entries[k].key = k ? exl2__template_text("content", 7) : exl2__template_text("role", 4);
            entries[k].value = exl2__template_none();
            if (texts[k]) {
                EXL2__TRY(exl2__template_copy_text(r, texts[k], strlen(texts[k]), true, &entries[k].value));
            }
            entries[k].value.marked = true;
        }
        items[i] = exl2__template_none();
        items[i].kind = EXL2__TEMPLATE_KIND_DICT;
        items[i].marked = true;
        items[i].count = 2;
        items[i].as.entries = entries;
    }
    *out = exl2__template_items(EXL2__TEMPLATE_KIND_LIST, items, (uint32_t)in->message_count);
    out->marked = true;
    return EXL2_OK;
}

static exl2_result exl2__template_set_input(exl2__template_run *r, const exl2__template_input *in)
{
    const char *const names[4] = { "bos_token", "eos_token", "unk_token", "pad_token" };
    const char *const tokens[4] = { in->bos_token, in->eos_token, in->unk_token, in->pad_token };
    exl2__template_value value = exl2__template_bool(in->add_generation_prompt);
    exl2__template_frame_set(r, "add_generation_prompt", &value);
    value = exl2__template_none();
    exl2__template_frame_set(r, "documents", &value);
    if (in->tools) {
        EXL2__TRY(exl2__template_parse_json(r, "tools", in->tools, strlen(in->tools), &value));
    }
    exl2__template_frame_set(r, "tools", &value);
    EXL2__TRY(exl2__template_messages(r, in, &value));
    exl2__template_frame_set(r, "messages", &value);
    for (uint32_t i = 0; i < 4; i++) {
        if (tokens[i]) {
            value = exl2__template_text(tokens[i], strlen(tokens[i]));
            exl2__template_frame_set(r, names[i], &value);
        }
    }
    return EXL2_OK;
}

/* Runs and hands out the output. */
static exl2_result exl2__template_finish(exl2__template_run *r, const char **text, size_t *bytes,
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

/* Renders into the caller's block; *text (a NUL follows it) and *from_message point into it. *from_message has one bit
   a byte of *text, lowest first: set when the byte came from a message or tool, whatever the template did to it, so
   that no such text can pass for a control token. EXL2_ERR_TOO_SMALL, without a sentence, when a larger block is
   needed; a first guess that rarely fails: 64 KiB and 8 times the input. From EXL2__TEMPLATE_BLOCK_MAX on it is
   EXL2_ERR_BUDGET instead. Allocates nothing. */
EXL2__COLD
static exl2_result exl2__template_render(exl2__ctx *c, const exl2__template *t, const exl2__template_input *in,
                                         void *block, size_t block_bytes, const char **text, size_t *bytes,
                                         const uint8_t **from_message)
{
    exl2__template_run *run;
    if (!t->present) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "the model has no chat template");
    }
    if (t->refused.code < 0) {
        return exl2__fail(c, t->refused.code, "%s", t->refused.text);
    }
    EXL2__TRY(exl2__template_frame_open(c, t, block, block_bytes, &run));
    EXL2__TRY(exl2__template_set_input(run, in));
    return exl2__template_finish(run, text, bytes, from_message);
}

#endif
