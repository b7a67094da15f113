/* loading_tokens.h: which tokens end a text of a model, and which one comes before it, once its config, its tokenizer
   and its chat template are read.
   takes: a model that loads.
   gives: exl2__loading_eos, exl2__loading_bos. */
#ifndef EXL2__LOADING_TOKENS_H
#define EXL2__LOADING_TOKENS_H

#include "jobs.h"

/* Adds the tokenizer's end token to those of the config files: any of them ends a job. */
EXL2__PRIVATE void exl2__loading_eos(exl2__model *m)
{
    exl2__config *config = &m->weights.config;
    bool has_eos = m->vocab.present && m->vocab.eos >= 0;
    bool listed = exl2__jobs_is_in(config->eos, config->eos_count, m->vocab.eos);
    if (has_eos && !listed && config->eos_count < EXL2__COUNT(config->eos)) {
        config->eos[config->eos_count++] = m->vocab.eos;
    }
}

/* Whether the source of the template contains the bytes. */
EXL2__PRIVATE bool exl2__loading_template_has(const exl2__template *t, const char *text, size_t bytes)
{
    bool found = false;
    for (size_t at = 0; bytes > 0 && at + bytes <= t->text_bytes && !found; at++) {
        found = t->text[at] == text[0] && memcmp(t->text + at, text, bytes) == 0;
    }
    return found;
}

/* Decides whether BOS comes before raw text, where the tokenizer's files leave it open. A family that fails without BOS
   gets it. Otherwise a BOS that is spelled out in the chat template, such as SmolLM2's
   <|im_start|>, opens turns: raw text does not begin with it, unless a file asks for that. A template that prints the
   variable bos_token does not count, because that BOS begins the conversation. */
EXL2__PRIVATE void exl2__loading_bos(exl2__model *m)
{
    exl2_token bos = m->weights.config.bos >= 0 ? m->weights.config.bos : m->vocab.bos;
    const exl2__template *t = exl2__template_set_pick(&m->chats, NULL, false);
    const exl2__added *added = &m->vocab.added;
    bool opens_turns = false;
    for (uint32_t i = 0; t && i < added->count; i++) {
        const exl2__added_token *token = &added->tokens[i];
        opens_turns = opens_turns || (token->id == (uint32_t)bos
                                      && exl2__loading_template_has(t, added->text + token->at, token->bytes));
    }
    if (m->vocab.present) {
        bool needed = m->weights.config.arch.traits[EXL2__TRAIT_NEEDS_BOS] == EXL2__YES;
        exl2__vocab_choose_bos(&m->vocab, bos, needed || !opens_turns);
    }
}

#endif
