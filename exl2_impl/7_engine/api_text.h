/* api_text.h: the public functions of text: tokens, chat templates, sentences, JSON.
   takes: calls from the application, as api.h says.
   gives: exl2_json_text; what public.h calls. */
#ifndef EXL2__API_TEXT_H
#define EXL2__API_TEXT_H

#include "../0_base/json/json_part.h"
#include "../6_text/unicode/sentences.h"
#include "api.h"

/* The model, if its tokenizer is loaded. */
EXL2__PRIVATE exl2_result exl2__api_text_model(exl2_engine *e, exl2_model handle, exl2__model **out)
{
    EXL2__TRY(exl2__api_model(e, handle, out));
    bool loading = (*out)->state == EXL2_PENDING && (*out)->loading_stage < EXL2__LOADING_MEASURED;
    if ((*out)->vocab.present && !loading) {
        return EXL2_OK;
    }
    return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                      loading ? "the tokenizer of %s is not loaded yet" : "%s has no tokenizer.json", (*out)->path);
}

static inline exl2_result exl2__api_fits_tokens(exl2_engine *e, size_t need, const exl2_token *out, size_t cap)
{
    if (need > cap && out) { /* with out NULL only the size is asked for */
        return exl2__fail(&e->ctx, EXL2_ERR_TOO_SMALL, "the text needs %zu tokens, but the buffer holds %zu", need,
                          cap);
    }
    return EXL2_OK;
}

/* Writes what EXL2_TEXT_END puts after the `count` tokens of a text, as far as it fits; returns its full number. */
static inline uint32_t exl2__api_suffix(const exl2__model *m, uint32_t flags, exl2_token *out, size_t cap, size_t count)
{
    return exl2__vocab_suffix(&m->vocab, flags, count < cap ? out + count : NULL, count < cap ? cap - count : 0);
}

EXL2__PRIVATE exl2_result exl2__api_tokenize(exl2_engine *e, exl2_model handle, const char *text, size_t bytes,
                                             uint32_t flags, exl2_token *out, size_t cap, size_t *need)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_argument(e, (text || !bytes) && (out || !cap) && need, "exl2_tokenize",
                                 "text, out or need is NULL"));
    EXL2__TRY(exl2__api_text_model(e, handle, &m));
    size_t bos = exl2__vocab_prefix(&m->vocab, flags, out, cap);
    size_t skip = bos < cap ? bos : cap;
    exl2_result r =
        exl2__encode(&e->ctx, &m->vocab, text, bytes, NULL, flags, skip < cap ? out + skip : NULL, cap - skip, need);
    exl2__objects_publish_memory(e);
    if (r < 0 && r != EXL2_ERR_TOO_SMALL) {
        return r;
    }
    *need += bos;
    *need += exl2__api_suffix(m, flags, out, cap, *need);
    return exl2__api_fits_tokens(e, *need, out, cap);
}

static inline exl2_result exl2__api_fits(exl2_engine *e, size_t bytes, const char *out, size_t cap)
{
    if (bytes >= cap && out) { /* with out NULL only the size is asked for */
        return exl2__fail(&e->ctx, EXL2_ERR_TOO_SMALL, "the text needs %zu bytes and a NUL, but the buffer holds %zu",
                          bytes, cap);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_detokenize(exl2_engine *e, exl2_model handle, const exl2_token *t, size_t n,
                                               uint32_t flags, char *out, size_t cap, size_t *need)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_argument(e, (t || !n) && (out || !cap) && need, "exl2_detokenize",
                                 "t, out or need is NULL"));
    EXL2__TRY(exl2__api_text_model(e, handle, &m));
    bool skip = (flags & EXL2_TEXT_SKIP_MARKERS) != 0, as_bytes = (flags & EXL2_TEXT_BYTES) != 0;
    as_bytes ? exl2__stream_bytes(&m->vocab, t, n, skip, out, cap, need)
             : exl2__stream_decode(&m->vocab, t, n, skip, out, cap, need);
    if (cap) {
        out[*need < cap ? *need : as_bytes ? cap - 1 : exl2__utf8_cut(out, cap - 1)] = 0;
    }
    return exl2__api_fits(e, *need, out, cap);
}

EXL2__PRIVATE exl2_result exl2__api_chat_render(exl2_engine *e, exl2_model handle, const exl2_message *msgs, size_t n,
                                                const exl2_chat_desc *d, char *out, size_t cap, size_t *need)
{
    exl2__model *m;
    exl2__rendered rendered;
    EXL2__TRY(exl2__api_argument(e, (msgs || !n) && (out || !cap) && need, "exl2_chat_render",
                                 "msgs, out or need is NULL"));
    EXL2__TRY(d ? EXL2__CHECK_ZEROED(&e->ctx, d, exl2_chat_desc) : EXL2_OK);
    EXL2__TRY(exl2__api_text_model(e, handle, &m));
    exl2_result r = exl2__job_prompt_render(e, m, msgs, n, d, &rendered);
    if (r < 0) {
        exl2__objects_publish_memory(e);
        return r;
    }
    *need = rendered.bytes;
    if (cap) {
        size_t bytes = exl2__utf8_cut(rendered.text, rendered.bytes < cap ? rendered.bytes : cap - 1);
        memcpy(out, rendered.text, bytes);
        out[bytes] = 0;
    }
    exl2__job_prompt_free(e, &rendered);
    exl2__objects_publish_memory(e);
    return exl2__api_fits(e, *need, out, cap);
}

static inline bool exl2__api_prompt_whole(const exl2_prompt *p)
{
    return (p->text || !p->text_bytes) && (p->tokens || !p->token_count) && (p->messages || !p->message_count)
        && (p->images || !p->image_count);
}

/* The ids of a text alone, as a job in an empty session has them: BOS before it, unless it begins with BOS. marks: as
   exl2__encode. */
EXL2__PRIVATE exl2_result exl2__api_prompt_text(exl2_engine *e, exl2__model *m, const char *text, size_t bytes,
                                                const exl2__encode_marks *marks, uint32_t flags, exl2_token *out,
                                                size_t cap, size_t *need)
{
    exl2_token bos[EXL2__VOCAB_PREFIX_MAX], first[EXL2__VOCAB_PREFIX_MAX];
    size_t begin = exl2__vocab_prefix(&m->vocab, flags, bos, EXL2__VOCAB_PREFIX_MAX);
    if (begin > 0) {
        exl2_result r = exl2__encode(&e->ctx, &m->vocab, text, bytes, marks, flags, first, begin, need);
        EXL2__TRY(r == EXL2_ERR_TOO_SMALL ? EXL2_OK : r);
        begin = *need >= begin && memcmp(first, bos, begin * sizeof *bos) == 0 ? 0 : begin;
    }
    size_t skip = begin < cap ? begin : cap;
    if (skip) {
        memcpy(out, bos, skip * sizeof *bos);
    }
    exl2_result r = exl2__encode(&e->ctx, &m->vocab, text, bytes, marks, flags, skip < cap ? out + skip : NULL,
                                 cap - skip, need);
    *need += begin;
    *need += r < 0 && r != EXL2_ERR_TOO_SMALL ? 0 : exl2__api_suffix(m, flags, out, cap, *need);
    return r;
}

/* The ids of a prompt whose pictures are known. */
EXL2__PRIVATE exl2_result exl2__api_prompt_tokens(exl2_engine *e, exl2__model *m, const exl2_prompt *prompt,
                                                  const exl2_chat_desc *d, exl2__job_pictures *pictures,
                                                  exl2_token *out, size_t cap, size_t *need)
{
    exl2__rendered rendered;
    if (!prompt->messages) {
        EXL2__TRY(exl2__job_pictures_text(e, m, pictures, NULL, prompt));
        exl2__encode_marks marks = { pictures->from_message, NULL };
        bool marked = pictures->from_message != NULL;
        uint32_t flags = marked ? prompt->flags & ~(uint32_t)EXL2_TEXT_PLAIN : prompt->flags;
        return exl2__api_prompt_text(e, m, pictures->text, pictures->bytes, marked ? &marks : NULL, flags, out, cap,
                                     need);
    }
    EXL2__TRY(exl2__job_prompt_conversation(e, m, prompt, d, &rendered));
    exl2_result r = exl2__job_pictures_text(e, m, pictures, &rendered, prompt);
    if (r >= 0) {
        exl2__encode_marks marks = { pictures->from_message, rendered.guard };
        r = exl2__encode(&e->ctx, &m->vocab, pictures->text, pictures->bytes, &marks, 0, out, cap, need);
    }
    exl2__job_prompt_free(e, &rendered);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_chat_tokenize(exl2_engine *e, exl2_model handle, const exl2_prompt *prompt,
                                                  const exl2_chat_desc *d, exl2_token *out, size_t cap, size_t *need)
{
    static const char *const call = "exl2_chat_tokenize";
    exl2__model *m;
    exl2__job_pictures pictures;
    EXL2__TRY(exl2__api_argument(e, prompt && (out || !cap) && need, call, "prompt, out or need is NULL"));
    EXL2__TRY(exl2__api_argument(e, !prompt->tokens && (prompt->messages || prompt->text), call,
                                 "the prompt must have messages or a text, and no tokens"));
    EXL2__TRY(exl2__api_argument(e, exl2__api_prompt_whole(prompt), call, "a count is set but its array is NULL"));
    EXL2__TRY(d ? EXL2__CHECK_ZEROED(&e->ctx, d, exl2_chat_desc) : EXL2_OK);
    EXL2__TRY(exl2__api_text_model(e, handle, &m));
    exl2_result r = exl2__job_pictures_open(e, m, prompt, &pictures);
    if (r >= 0) {
        r = exl2__api_prompt_tokens(e, m, prompt, d, &pictures, out, cap, need);
        exl2__job_pictures_close(e, &pictures);
    }
    exl2__objects_publish_memory(e);
    if (r < 0 && r != EXL2_ERR_TOO_SMALL) {
        return r;
    }
    return exl2__api_fits_tokens(e, *need, out, cap);
}

EXL2_API exl2_result exl2_json_text(const char *json, size_t bytes, const char *path, char *out, size_t cap,
                                    size_t *need, bool *whole)
{
    if ((!json && bytes) || !path || !exl2__json_part_pointer_is(path) || (!out && cap) || !need) {
        return EXL2_ERR_ARG;
    }
    exl2__json_part part = { (const uint8_t *)json, bytes, path, out, cap, 0, .at = 0 };
    bool begins = exl2__json_part_read(&part);
    *need = part.used;
    if (whole) {
        *whole = part.whole;
    }
    if (cap) {
        out[part.used < cap ? part.used : exl2__utf8_cut(out, cap - 1)] = 0;
    }
    return !begins ? EXL2_ERR_FORMAT : out && part.used >= cap ? EXL2_ERR_TOO_SMALL : EXL2_OK;
}

EXL2_API size_t exl2_sentence(const char *text, size_t bytes, bool whole)
{
    return text ? exl2__sentences_first(text, bytes, whole) : 0;
}

#endif
