/* loading_read.h: the stages that read everything but the weights: configuration, tokenizer, chat templates, headers.
   takes: exl2_model_desc.
   gives: exl2__loading_config, exl2__loading_vocab, exl2__loading_grammar_vocab, exl2__loading_chats,
          exl2__loading_open_backend, exl2__loading_headers, exl2__loading_tower. */
#ifndef EXL2__LOADING_READ_H
#define EXL2__LOADING_READ_H

#include "../1_load/vision_read.h"
#include "loading_layout.h"

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

static inline uint64_t exl2__loading_text_bytes(const exl2__model *m)
{
    return m->vocab.bytes + m->chats.bytes + m->grammar_vocab.memory.size;
}

/* Sets the number of experts that a row uses, if the application chooses it. */
EXL2__PRIVATE exl2_result exl2__loading_experts(exl2__ctx *c, exl2__model *m)
{
    exl2__experts *experts = &m->weights.config.experts;
    uint32_t active = m->desc.experts_active;
    uint64_t most = experts->groups ? (uint64_t)experts->groups_active * (experts->count / experts->groups) : 0;
    if (active > most) {
        return exl2__fail(c, EXL2_ERR_ARG, "experts_active is %u, but a token of %s can use at most %u experts", active,
                          m->path, (uint32_t)most);
    }
    experts->active = active ? active : experts->active;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_config(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    exl2__work_spend(work, EXL2__WORK_SLICE);
    if (m->desc.text_only) {
        return exl2__config_read_text(c, m->path, &m->weights.config);
    }
    EXL2__TRY(exl2__config_read(c, m->path, &m->weights.config));
    EXL2__TRY(exl2__pooling_read(c, m->path, &m->pooling));
    EXL2__TRY(exl2__loading_experts(c, m));
    const exl2__config_rope rope = { m->desc.rope_scale, m->desc.rope_alpha, m->desc.yarn_factor };
    return exl2__config_stretch(c, m->path, &rope, &m->weights.config);
}

EXL2__PRIVATE exl2_result exl2__loading_vocab(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__loading *l = m->loading;
    if (!l->begun) {
        l->begun = true;
        EXL2__TRY(exl2__vocab_read_begin(&l->vocab, &e->ctx, m->path, &m->vocab));
    }
    EXL2__TRY_DONE(exl2__vocab_read_slice(&l->vocab, work));
    exl2__vocab_read_end(&l->vocab);
    if (m->vocab.present && m->vocab.piece_bytes_max > EXL2__PIECE_BYTES_MAX) {
        return exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s/tokenizer.json: a token has %u bytes of text, but at most %d are supported", m->path,
                          m->vocab.piece_bytes_max, EXL2__PIECE_BYTES_MAX);
    }
    if (m->desc.text_only && !m->vocab.present) {
        return exl2__fail(&e->ctx, EXL2_ERR_IO, "%s has no tokenizer.json, which text_only needs", m->path);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_grammar_vocab(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__loading *l = m->loading;
    if (!m->desc.grammars || !m->vocab.present) {
        return EXL2_OK;
    }
    if (!l->begun) {
        l->begun = true;
        EXL2__TRY(exl2__grammar_vocab_make_begin(&l->grammar, &e->ctx, &m->vocab, &m->grammar_vocab));
    }
    EXL2__TRY_DONE(exl2__grammar_vocab_make_slice(&l->grammar, work));
    exl2__grammar_vocab_make_end(&l->grammar);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_chats(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__loading *l = m->loading;
    if (!l->begun) {
        const exl2__vocab *vocab = m->vocab.present ? &m->vocab : NULL;
        l->begun = true;
        EXL2__TRY(exl2__template_set_begin(&l->chats, &e->ctx, m->path, vocab, &m->chats));
    }
    EXL2__TRY_DONE(exl2__template_set_slice(&l->chats, work));
    exl2__template_set_end(&l->chats);
    exl2__loading_eos(m);
    exl2__loading_bos(m);
    return EXL2_OK;
}

/* Tests cut a model of `layers` layers into several spans: the hook fills ends [EXL2__SPANS_MAX] of exl2__spans_cut,
   and its value is their number. */
#ifndef EXL2__TEST_SPANS
#define EXL2__TEST_SPANS(layers, ends) (*(ends) = (layers), 1u)
#endif

/* Opens the model on the engine's backend. */
EXL2__PRIVATE exl2_result exl2__loading_open_backend(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    uint64_t before = c->host_bytes;
    uint32_t ends[EXL2__SPANS_MAX];
    if (m->desc.text_only) {
        return EXL2_OK;
    }
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    uint32_t count = EXL2__TEST_SPANS(m->weights.config.layers, ends);
    EXL2__TRY(exl2__cards_open(e, m, ends, count));
    m->loading->opened_bytes = c->host_bytes - before;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_headers(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__loading *l = m->loading;
    if (m->desc.text_only) {
        return EXL2_OK;
    }
    if (!l->begun) {
        l->begun = true;
        const exl2__span *first = m->spans.span; /* all devices pack alike */
        exl2__weights_read_begin(&l->weights, &e->ctx, &m->weights, m->path, first->backend, first->device);
        exl2__weights_cut(&m->weights, &m->spans);
        bool cut = exl2__cards_by_layers(m), may_move = exl2__offload_may(m);
        if (cut || may_move) {
            exl2__arena dry = { 0 };
            exl2__cards_layers(m, &dry);
            exl2__offload_mlps(m, &dry);
            EXL2__TRY(exl2__arena_open(&e->ctx, &l->layers, dry.used, EXL2_MEM_GENERAL));
            m->weights.layer_bytes = exl2__cards_layers(m, &l->layers);
            exl2__weights_mlp *mlps = exl2__offload_mlps(m, &l->layers);
            exl2__weights_may_move(&l->weights, may_move ? &exl2__cpu_backend : NULL, mlps);
        }
    }
    EXL2__TRY_DONE(exl2__weights_read_slice(&l->weights, work));
    exl2__weights_read_end(&l->weights);
    if (m->weights.dequantized) {
        exl2__log(&e->ctx, EXL2_LOG_WARN, EXL2_LOG_ID_DEQUANTIZED, "%s: %u quantized matrices are held as FP16, as "
                  "the GPU computes them together with others that are not quantized so", m->path,
                  m->weights.dequantized);
    }
    return EXL2_OK;
}

#ifndef EXL2_NO_VISION
/* Reads the headers of the tower's files. */
EXL2__PRIVATE exl2_result exl2__loading_tower_headers(exl2__ctx *c, exl2__model *m, exl2__work *work)
{
    exl2__images *g = &m->images;
    uint64_t before = c->host_bytes;
    if (!g->reader.c) {
        exl2__tower_read_begin(&g->reader, c, &g->tower, &g->config, m->path, exl2__images_towers(m),
                               m->spans.span[0].device);
    }
    exl2_result r = exl2__tower_read_headers(&g->reader, work);
    g->table_bytes = r < 0 ? 0 : g->table_bytes + (c->host_bytes > before ? c->host_bytes - before : 0);
    return r;
}
#endif

/* Reads what the files say of the tower, if the desc asks for pictures. */
EXL2__PRIVATE exl2_result exl2__loading_tower(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    if (m->desc.text_only || m->desc.vision.images == 0) {
        return EXL2_OK;
    }
#ifdef EXL2_NO_VISION
    (void)work;
    return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: vision.images is set, but pictures are not part of this build "
                      "(EXL2_NO_VISION)", m->path);
#else
    exl2__images *g = &m->images;
    if (!m->loading->begun) {
        m->loading->begun = true;
        if (!m->weights.config.arch.text_of_multimodal) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: vision.images is set, but the model (%s) has no tower for "
                              "pictures", m->path, m->weights.config.arch_name);
        }
        EXL2__TRY(exl2__vision_config_read(c, m->path, &m->weights.config, &g->config));
        EXL2__TRY(exl2__images_supports(c, m));
        EXL2__TRY(exl2__images_sizes(c, m));
    }
    EXL2__TRY_DONE(exl2__loading_tower_headers(c, m, work));
    g->on = true;
    return exl2__images_find_marks(c, m);
#endif
}

#endif
