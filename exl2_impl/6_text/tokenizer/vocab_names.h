/* vocab_names.h: reads tokenizer_config.json: the texts of BOS, EOS, UNK and PAD, and whether BOS comes before raw
   text.
   takes: the parsed file, or none.
   gives: exl2__vocab_names_role and readers of one value each. */
#ifndef EXL2__VOCAB_NAMES_H
#define EXL2__VOCAB_NAMES_H

#include "../../0_base/result.h"
#include "../../0_base/json/json.h"

#define EXL2__VOCAB_NAMES_FILE "tokenizer_config.json"

/* The tokens that templates can use, under the names in exl2__vocab_names_key. */
typedef enum exl2__vocab_names_role {
    EXL2__VOCAB_NAMES_BOS,
    EXL2__VOCAB_NAMES_EOS,
    EXL2__VOCAB_NAMES_UNK,
    EXL2__VOCAB_NAMES_PAD,
    EXL2__VOCAB_NAMES_ROLES
} exl2__vocab_names_role;

static inline const char *exl2__vocab_names_key(exl2__vocab_names_role role)
{
    static const char *const keys[EXL2__VOCAB_NAMES_ROLES] = { "bos_token", "eos_token", "unk_token", "pad_token" };
    return keys[role];
}

/* Value of a key of the file; 0 = none. A zeroed `config` stands for a missing file. */
static inline uint32_t exl2__vocab_names_get(const exl2__json *config, const char *key)
{
    return config->tokens ? exl2__json_get(config, 0, key) : 0;
}

/* JSON string with the text of a role; 0 = none. The file has "<s>" or {"content": "<s>", ...}. */
static inline uint32_t exl2__vocab_names_text(const exl2__json *config, exl2__vocab_names_role role)
{
    uint32_t token = exl2__vocab_names_get(config, exl2__vocab_names_key(role));
    if (token && config->tokens[token].kind == EXL2__JSON_OBJECT) {
        token = exl2__json_get(config, token, "content");
    }
    return token && config->tokens[token].kind == EXL2__JSON_STRING ? token : 0;
}

/* 1 or 0 as the file says, or -1 if it does not say. */
static inline int32_t exl2__vocab_names_flag(const exl2__json *config, const char *key)
{
    bool value;
    uint32_t token = exl2__vocab_names_get(config, key);
    return token && exl2__json_bool(config, token, &value) ? value : -1;
}

/* Raises *id_count to 1 + the largest id of added_tokens_decoder. Its keys must be decimal numbers below ids_max. */
EXL2__PRIVATE exl2_result exl2__vocab_names_ids(exl2__ctx *c, const exl2__json *config, uint32_t ids_max,
                                                uint32_t *id_count)
{
    uint32_t ids = exl2__vocab_names_get(config, "added_tokens_decoder");
    if (ids == 0 || config->tokens[ids].kind != EXL2__JSON_OBJECT) {
        return EXL2_OK;
    }
    for (uint32_t key = exl2__json_first(config, ids); key; key = exl2__json_next(config, ids, key)) {
        const exl2__json_token *t = &config->tokens[key];
        uint32_t id = 0;
        bool sane = t->end > t->begin;
        for (uint32_t at = t->begin; at < t->end && sane; at++) {
            uint32_t digit = (uint32_t)(uint8_t)config->text[at] - '0';
            id = id * 10 + digit;
            sane = digit < 10 && id < ids_max;
        }
        if (!sane) {
            return exl2__fail(c, EXL2_ERR_FORMAT,
                              EXL2__VOCAB_NAMES_FILE ": added_tokens_decoder has the key \"%.*s\", expected an id "
                              "below %u", (int)exl2__min32(t->end - t->begin, 40), config->text + t->begin, ids_max);
        }
        *id_count = exl2__max32(*id_count, id + 1);
    }
    return EXL2_OK;
}

#endif
