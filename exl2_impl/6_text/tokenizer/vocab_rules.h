/* vocab_rules.h: reads post_processor and model of tokenizer.json, and rejects unsupported components by their names.
   takes: the parsed tokenizer.json.
   gives: exl2__vocab_rules_read. */
#ifndef EXL2__VOCAB_RULES_H
#define EXL2__VOCAB_RULES_H

#include "vocab_steps.h"

/* ---- post_processor ---- */

/* Adds a token that comes before the text, or after it. */
EXL2__PRIVATE exl2_result exl2__vocab_rules_put(exl2__vocab_rules_reader *r, uint32_t id, bool after)
{
    exl2_token *list = after ? r->out->suffix : r->out->prefix;
    uint32_t *count = after ? &r->out->suffix_count : &r->out->prefix_count;
    if (*count == EXL2__VOCAB_PREFIX_MAX) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": post_processor puts more than %d tokens %s the text, which is "
                          "not supported", EXL2__VOCAB_PREFIX_MAX, after ? "after" : "before");
    }
    list[(*count)++] = (exl2_token)id;
    return EXL2_OK;
}

/* Adds the ids of a special token that a template puts before the text, or after it. */
EXL2__PRIVATE exl2_result exl2__vocab_rules_template_special(exl2__vocab_rules_reader *r, uint32_t processor,
                                                             uint32_t name, bool after)
{
    uint32_t tokens = exl2__json_get(r->j, processor, "special_tokens"), ids = 0;
    for (uint32_t m = tokens ? exl2__json_first(r->j, tokens) : 0; m && !ids; m = exl2__json_next(r->j, tokens, m)) {
        ids = exl2__json_same(r->j, m, name) ? exl2__json_get(r->j, m + 1, "ids") : 0;
    }
    if (ids == 0 || r->j->tokens[ids].kind != EXL2__JSON_ARRAY) {
        return exl2__vocab_rules_malformed(r, "post_processor.single", "a list of tokens with ids in special_tokens");
    }
    for (uint32_t id = exl2__json_first(r->j, ids); id; id = exl2__json_next(r->j, ids, id)) {
        uint32_t value;
        EXL2__TRY(exl2__vocab_rules_id(r, "an id of post_processor.special_tokens", id, &value));
        EXL2__TRY(exl2__vocab_rules_put(r, value, after));
    }
    return EXL2_OK;
}

/* Adds the tokens before Sequence A, mostly BOS, and those after it, which EXL2_TEXT_END asks for. */
EXL2__PRIVATE exl2_result exl2__vocab_rules_template(exl2__vocab_rules_reader *r, uint32_t processor)
{
    uint32_t single = exl2__json_get(r->j, processor, "single");
    bool text_seen = false;
    if (single == 0 || r->j->tokens[single].kind != EXL2__JSON_ARRAY) {
        return exl2__vocab_rules_malformed(r, "post_processor.single", "a list");
    }
    for (uint32_t item = exl2__json_first(r->j, single); item; item = exl2__json_next(r->j, single, item)) {
        uint32_t special = exl2__vocab_rules_get(r, exl2__json_get(r->j, item, "SpecialToken"), "id");
        uint32_t text = exl2__vocab_rules_get(r, exl2__json_get(r->j, item, "Sequence"), "id");
        if (special) {
            EXL2__TRY(exl2__vocab_rules_template_special(r, processor, special, text_seen));
        } else if (text && !text_seen && exl2__json_is(r->j, text, "A")) {
            text_seen = true;
        } else {
            return exl2__vocab_rules_unsupported(r, "post_processor.single with the item", item);
        }
    }
    return EXL2_OK;
}

/* "cls": ["<s>", 1] comes before the text, "sep" after it. */
EXL2__PRIVATE exl2_result exl2__vocab_rules_pair(exl2__vocab_rules_reader *r, uint32_t processor, const char *key,
                                                 bool after)
{
    char name[32];
    uint32_t pair = exl2__json_get(r->j, processor, key), text = pair ? exl2__json_first(r->j, pair) : 0, id;
    uint32_t number = text && r->j->tokens[pair].count == 2 ? exl2__json_next(r->j, pair, text) : 0;
    if (number == 0) {
        exl2__format(name, sizeof name, "post_processor.%s", key);
        return exl2__vocab_rules_malformed(r, name, "a token and its id");
    }
    exl2__format(name, sizeof name, "the id of post_processor.%s", key);
    EXL2__TRY(exl2__vocab_rules_id(r, name, number, &id));
    return exl2__vocab_rules_put(r, id, after);
}

EXL2__PRIVATE exl2_result exl2__vocab_rules_processor(exl2__vocab_rules_reader *r, uint32_t processor)
{
    if (processor == 0 || exl2__vocab_rules_is_type(r, processor, "ByteLevel")) {
        return EXL2_OK;
    }
    if (exl2__vocab_rules_is_type(r, processor, "BertProcessing") ||
        exl2__vocab_rules_is_type(r, processor, "RobertaProcessing")) {
        EXL2__TRY(exl2__vocab_rules_pair(r, processor, "cls", false));
        return exl2__json_get(r->j, processor, "sep") ? exl2__vocab_rules_pair(r, processor, "sep", true) : EXL2_OK;
    }
    if (exl2__vocab_rules_is_type(r, processor, "TemplateProcessing")) {
        return exl2__vocab_rules_template(r, processor);
    }
    return exl2__vocab_rules_unsupported(r, "post_processor", processor);
}

EXL2__PRIVATE exl2_result exl2__vocab_rules_post_processor(exl2__vocab_rules_reader *r, uint32_t token)
{
    return exl2__vocab_steps_each(r, "post_processor", token, "processors", exl2__vocab_rules_processor);
}

/* ---- model ---- */

/* Rejects options that change how merging works, unless they are absent, null, false, 0 or "". */
EXL2__PRIVATE exl2_result exl2__vocab_rules_unused(const exl2__vocab_rules_reader *r, uint32_t model)
{
    static const char *const keys[][2] = {
        { "dropout", "model.dropout" },
        { "continuing_subword_prefix", "model.continuing_subword_prefix" },
        { "end_of_word_suffix", "model.end_of_word_suffix" }
    };
    for (size_t i = 0; i < EXL2__COUNT(keys); i++) {
        uint32_t token = exl2__json_get(r->j, model, keys[i][0]);
        uint64_t number = 1;
        if (token && r->j->tokens[token].kind != EXL2__JSON_FALSE && !exl2__json_is(r->j, token, "") &&
            !(exl2__json_u64(r->j, token, &number) && number == 0)) {
            return exl2__vocab_rules_unsupported(r, keys[i][1], token);
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__vocab_rules_model(exl2__vocab_rules_reader *r, uint32_t model)
{
    EXL2__TRY(exl2__vocab_rules_unused(r, model));
    EXL2__TRY(exl2__vocab_rules_flag(r, model, "ignore_merges", false, &r->out->ignore_merges));
    EXL2__TRY(exl2__vocab_rules_flag(r, model, "fuse_unk", false, &r->out->fuse_unk));
    EXL2__TRY(exl2__vocab_rules_flag(r, model, "byte_fallback", false, &r->out->byte_fallback));
    if (r->out->byte_fallback && r->out->byte_level) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED,
                          EXL2__VOCAB_RULES_FILE ": pre_tokenizer ByteLevel with model.byte_fallback is not supported");
    }
    r->out->unk_token = exl2__json_get(r->j, model, "unk_token");
    r->out->vocab = exl2__json_get(r->j, model, "vocab");
    r->out->merges = exl2__json_get(r->j, model, "merges");
    if (r->out->vocab == 0 || r->j->tokens[r->out->vocab].kind != EXL2__JSON_OBJECT ||
        r->j->tokens[r->out->vocab].begin != r->j->flat[0].begin) {
        return exl2__vocab_rules_malformed(r, "model.vocab", "an object");
    }
    if (r->out->merges == 0 || r->j->tokens[r->out->merges].kind != EXL2__JSON_ARRAY ||
        r->j->tokens[r->out->merges].begin != r->j->flat[1].begin) {
        return exl2__vocab_rules_malformed(r, "model.merges", "a list");
    }
    if (r->out->unk_token && r->j->tokens[r->out->unk_token].kind != EXL2__JSON_STRING) {
        return exl2__vocab_rules_malformed(r, "model.unk_token", "a string");
    }
    return EXL2_OK;
}

/* Reads all components but truncation and padding, which an engine does not use. Ids are below
   EXL2__VOCAB_RULES_IDS_MAX. `pool` has room for out->pool_bytes, or is a dry arena that counts them. */
EXL2__PRIVATE exl2_result exl2__vocab_rules_read(exl2__ctx *c, const exl2__json *j, exl2__arena *pool,
                                                 exl2__vocab_rules *out)
{
    exl2__vocab_rules_reader r = { 0 };
    r.c = c;
    r.j = j;
    r.out = out;
    r.pool = pool;
    *out = (exl2__vocab_rules){ 0 };
    if (j->tokens[0].kind != EXL2__JSON_OBJECT) {
        return exl2__vocab_rules_malformed(&r, "the root", "an object");
    }
    uint32_t model = exl2__json_get(j, 0, "model"), type = exl2__vocab_rules_get(&r, model, "type");
    if (model == 0 || (type && !exl2__json_is(j, type, "BPE"))) { /* early files have no type */
        return exl2__vocab_rules_unsupported(&r, "model", model);
    }
    EXL2__TRY(exl2__vocab_steps_all(&r));
    EXL2__TRY(exl2__vocab_rules_model(&r, model));
    EXL2__TRY(exl2__vocab_rules_post_processor(&r, exl2__json_get(j, 0, "post_processor")));
    out->added = exl2__json_get(j, 0, "added_tokens");
    if (out->added && j->tokens[out->added].kind != EXL2__JSON_ARRAY) {
        return exl2__vocab_rules_malformed(&r, "added_tokens", "a list");
    }
    out->pool_bytes = pool->used;
    return EXL2_OK;
}

#endif
