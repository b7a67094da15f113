/* job_prompt.h: the prompt of a job as ids: a conversation that is rendered, with a text after it; a text; ids.
   takes: an exl2_prompt, and how its messages are rendered.
   gives: exl2__rendered with exl2__job_prompt_render, _conversation, _append, _free; exl2__job_prompt_encode,
          exl2__job_prompt_fill.
   owns:  while a call lasts, blocks for conversations that do not fit the model's block or that a text follows, and the
          conversation's own template. */
#ifndef EXL2__JOB_PROMPT_H
#define EXL2__JOB_PROMPT_H

#include "image_prompt.h"

/* ---- chat template ---- */

/* A rendered conversation. `block` is allocated if the model's block was too small, `own` if the conversation has a
   template of its own, `own_guard` if it has special_tokens. */
typedef struct exl2__rendered {
    const char *text;
    size_t bytes;
    const uint8_t *from_message;
    const uint32_t *guard; /* added tokens that bytes from messages must not form */
    bool reads_tools, reads_tool_calls; /* the template does */
    size_t tool_calls;     /* the first message with tool calls, from 1; 0: none has */
    bool begun;            /* the text ends with the beginning of the reply */
    bool begun_changed;    /* the template has changed that beginning */
    size_t begun_bytes;    /* length of that beginning; 0: there is none, or the template has changed it */
    uint32_t *own_guard;   /* for special_tokens of the conversation */
    uint64_t guard_bytes;
    void *block;
    uint64_t block_bytes;
    exl2__template own;
} exl2__rendered;

static inline void exl2__job_prompt_free(exl2_engine *e, exl2__rendered *r)
{
    exl2__free(&e->ctx, r->block, r->block_bytes, EXL2_MEM_GENERAL);
    exl2__free(&e->ctx, r->own_guard, r->guard_bytes, EXL2_MEM_GENERAL);
    exl2__template_close(&e->ctx, &r->own);
    *r = (exl2__rendered){ 0 };
}

/* The template in the desc's template_text, or the model's template that the desc selects. */
EXL2__PRIVATE exl2_result exl2__job_prompt_template(exl2_engine *e, exl2__model *m, const exl2__template_input *tokens,
                                                    exl2__rendered *own, const exl2__template **out)
{
    const exl2_chat_desc *chat = tokens->chat;
    *out = &own->own;
    if (chat->template_text) {
        EXL2__TRY(exl2__template_open(&e->ctx, chat->template_text, strlen(chat->template_text), &own->own));
        EXL2__TRY(exl2__template_probe(&e->ctx, &own->own, tokens));
        return m->vocab.present ? exl2__template_guard(&e->ctx, &own->own, &m->vocab) : EXL2_OK;
    }
    if (m->chats.count == 0) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                          "%s has no chat template: set the prompt's text or tokens instead of messages", m->path);
    }
    const exl2__template *found = exl2__template_set_pick(&m->chats, chat->template_name, chat->tools != NULL);
    if (!found) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "%s has no chat template called '%s'", m->path,
                          chat->template_name ? chat->template_name : "default");
    }
    *out = found;
    return EXL2_OK;
}

/* Renders into the model's block, or into a larger block that grows until the text fits. */
EXL2__PRIVATE exl2_result exl2__job_prompt_render_in(exl2_engine *e, const exl2__template *t,
                                                     const exl2__template_input *input, void *block,
                                                     exl2__rendered *out)
{
    uint64_t bytes = EXL2__RENDER_BYTES;
    for (;;) {
        if (!block) {
            EXL2__TRY(exl2__alloc(&e->ctx, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &out->block));
            out->block_bytes = bytes;
            block = out->block;
        }
        exl2_result r = exl2__template_render(&e->ctx, t, input, block, (size_t)bytes, &out->text, &out->bytes,
                                              &out->from_message);
        if (r != EXL2_ERR_TOO_SMALL) {
            return r;
        }
        exl2__free(&e->ctx, out->block, out->block_bytes, EXL2_MEM_GENERAL);
        out->block = block = NULL;
        out->block_bytes = 0;
        bytes *= 4; /* ends: from EXL2__TEMPLATE_BLOCK_MAX on rendering is EXL2_ERR_BUDGET */
    }
}

/* The longest run of the marker's character in a text. */
EXL2__PRIVATE size_t exl2__job_prompt_longest_run(const char *text, size_t bytes, const char *mark, size_t mark_bytes)
{
    size_t longest = 0, run = 0;
    for (size_t at = 0; at + mark_bytes <= bytes;) {
        bool same = memcmp(text + at, mark, mark_bytes) == 0;
        run = same ? run + 1 : 0;
        longest = run > longest ? run : longest;
        at += same ? mark_bytes : 1;
    }
    return longest;
}

/* Ends `out` where the marker of `marker_bytes` stands in `second`, and finds the begun text before it: as it was
   given, or without the white space around it. false: the two renders differ by more than that. */
EXL2__PRIVATE bool exl2__job_prompt_cut_at(const exl2__rendered *second, const exl2__template_begun *begun,
                                           size_t marker_bytes, exl2__rendered *out)
{
    size_t end = second->bytes;
    while (end >= marker_bytes && memcmp(second->text + end - marker_bytes, begun->marker, marker_bytes) != 0) {
        end--;
    }
    size_t after = second->bytes - end;
    if (end < marker_bytes || after > out->bytes) {
        return false;
    }
    size_t before = end - marker_bytes, cut = out->bytes - after;
    if (cut > before || memcmp(second->text + end, out->text + cut, after) != 0 ||
        memcmp(second->text, out->text, cut) != 0 ||
        exl2__template_space_front(second->text + cut, before - cut) < before - cut) {
        return false;
    }
    size_t trimmed = before - cut, bytes = begun->bytes > trimmed ? begun->bytes - trimmed : 0;
    size_t front = exl2__template_space_front(begun->text, bytes);
    const size_t lengths[2] = { bytes - front, bytes };
    for (size_t i = 0; i < 2; i++) { /* the whole text, if the template wrote it */
        bool same = lengths[i] <= cut && memcmp(out->text + cut - lengths[i], begun->text + bytes - lengths[i],
                                                lengths[i]) == 0;
        out->begun_bytes = same ? lengths[i] : out->begun_bytes;
    }
    out->begun = true;
    out->begun_changed = out->begun_bytes == 0 && lengths[0] > 0;
    out->bytes = cut;
    return true;
}

/* Cuts a rendered conversation after the text of its last message, which is the beginning of the reply. The place is
   found by a second render, in which a marker that occurs nowhere follows that text: what comes after the marker there
   comes after the text here. A template that trims the text leaves white space before the marker that is not here.
   transformers searches for the text or a fixed marker instead, which finds the same words in other messages, too. */
EXL2__PRIVATE exl2_result exl2__job_prompt_cut(exl2_engine *e, const exl2__template *t,
                                               const exl2__template_input *input, exl2__rendered *out)
{
    static const char mark[] = "\xEF\xA3\xBF"; /* U+F8FF, a private-use character, which no filter changes */
    exl2__template_input marked = *input;
    exl2__template_begun begun = { 0 };
    exl2__rendered second = { 0 };
    void *marker = NULL;
    size_t times = exl2__job_prompt_longest_run(out->text, out->bytes, mark, 3) + 1, bytes = times * 3;
    EXL2__TRY(exl2__alloc(&e->ctx, bytes + 1, 16, EXL2_MEM_GENERAL, &marker));
    for (size_t i = 0; i < times; i++) {
        memcpy((char *)marker + i * 3, mark, 3);
    }
    ((char *)marker)[bytes] = 0;
    begun.marker = (const char *)marker;
    marked.begun = &begun;
    exl2_result r = exl2__job_prompt_render_in(e, t, &marked, NULL, &second);
    if (r == EXL2_OK && !exl2__job_prompt_cut_at(&second, &begun, bytes, out)) {
        r = exl2__fail(&e->ctx, EXL2_ERR_ARG, "begun_reply: the chat template does not write the text of message %zu, "
                       "the last one, so that it can be continued", input->message_count - 1);
    }
    exl2__job_prompt_free(e, &second);
    exl2__free(&e->ctx, marker, bytes + 1, EXL2_MEM_GENERAL);
    return r;
}

static inline bool exl2__job_prompt_is_video(void *engine, exl2_image image)
{
#ifndef EXL2_NO_VISION
    exl2_engine *e = (exl2_engine *)engine;
    exl2__model *m;
    const exl2__image *found = exl2__images_handle(e, image, &m);
    return found && m->images.data[found->picture].size.frames > 0;
#else
    (void)engine, (void)image;
    return false;
#endif
}

EXL2__PRIVATE exl2_result exl2__job_prompt_render(exl2_engine *e, exl2__model *m, const exl2_message *messages,
                                                  size_t count, const exl2_chat_desc *chat, exl2__rendered *out)
{
    static const exl2_chat_desc none = { 0 };
    uint32_t steps = 0; /* one count for all attempts, so that their number does not matter */
    const exl2__template_videos videos = { exl2__job_prompt_is_video, e };
    exl2__template_input input = { messages, count, chat ? chat : &none, m->vocab.bos_text, m->vocab.eos_text,
                                   m->vocab.unk_text, m->vocab.pad_text, &steps,
                                   &out->tool_calls, NULL, &videos };
    const exl2__template *t;
    *out = (exl2__rendered){ 0 };
    for (size_t i = 0; i < count; i++) {
        if (!messages[i].role && !messages[i].fields) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "message %zu has no role", i);
        }
    }
    exl2_result r = exl2__job_prompt_template(e, m, &input, out, &t);
    if (r == EXL2_OK) {
        r = exl2__job_prompt_render_in(e, t, &input, m->render, out); /* m->render is NULL while the model loads */
        out->guard = t->guard;
        out->guard_bytes = t->guard_bytes;
        out->reads_tools = t->reads_tools;
        out->reads_tool_calls = t->reads_tool_calls;
    }
    if (r == EXL2_OK && input.chat->begun_reply) {
        r = exl2__job_prompt_cut(e, t, &input, out);
    }
    if (r == EXL2_OK && input.chat->special_tokens && t->guard) {
        r = exl2__template_guard_special(&e->ctx, t, &m->vocab, input.chat->special_tokens, &out->own_guard);
        out->guard = out->own_guard;
    }
    if (r < 0) {
        exl2__job_prompt_free(e, out);
    }
    return r;
}

/* ---- a text after the conversation ---- */

/* Appends a text to the rendered conversation, in a block of its own: it continues what the reply was opened with. The
   application wrote it, so its markers count, unless it is plain; then its bytes are like those of a message. */
EXL2__PRIVATE exl2_result exl2__job_prompt_append(exl2_engine *e, const char *text, size_t bytes, bool plain,
                                                  exl2__rendered *r)
{
    if (bytes >= EXL2__ENCODE_BYTES_MAX) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the prompt's text has %zu bytes, at most %u can be tokenized at once",
                          bytes, EXL2__ENCODE_BYTES_MAX - 1);
    }
    size_t before = r->bytes, all = before + bytes, mark_bytes = all / 8 + 1;
    void *block;
    EXL2__TRY(exl2__alloc(&e->ctx, all + mark_bytes, 1, EXL2_MEM_GENERAL, &block));
    char *joined = (char *)block;
    uint8_t *marks = (uint8_t *)block + all;
    memcpy(joined, r->text, before);
    memcpy(joined + before, text, bytes);
    memset(marks, 0, mark_bytes);
    for (size_t i = 0; i < all; i++) {
        uint32_t marked = i < before ? (uint32_t)(r->from_message[i / 8] >> (i % 8)) & 1u : plain;
        marks[i / 8] = (uint8_t)(marks[i / 8] | marked << (i % 8));
    }
    exl2__free(&e->ctx, r->block, r->block_bytes, EXL2_MEM_GENERAL);
    r->block = block;
    r->block_bytes = all + mark_bytes;
    r->text = joined;
    r->bytes = all;
    r->from_message = marks;
    return EXL2_OK;
}

static inline size_t exl2__job_prompt_text_bytes(const exl2_prompt *given)
{
    return given->text_bytes ? given->text_bytes : strlen(given->text);
}

/* The text of a prompt of messages: rendered, and then the prompt's own text. */
EXL2__PRIVATE exl2_result exl2__job_prompt_conversation(exl2_engine *e, exl2__model *m, const exl2_prompt *given,
                                                        const exl2_chat_desc *chat, exl2__rendered *out)
{
    if (given->text && chat && chat->begun_reply) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the prompt has a text, but the last message is the beginning of the "
                          "reply (begun_reply): put the text at the end of that message");
    }
    EXL2__TRY(exl2__job_prompt_render(e, m, given->messages, given->message_count, chat, out));
    exl2_result r = EXL2_OK;
    if (given->text) {
        r = exl2__job_prompt_append(e, given->text, exl2__job_prompt_text_bytes(given),
                                    (given->flags & EXL2_TEXT_PLAIN) != 0, out);
    }
    if (r < 0) {
        exl2__job_prompt_free(e, out);
    }
    return r;
}

/* ---- prompt ---- */

/* Text -> ids in the job's prompt, which has room for context_max ids. out[0 .. begin) are ids before the text (BOS).
   They are dropped if the text begins with the same ids, so that BOS never occurs twice. */
EXL2__PRIVATE exl2_result exl2__job_prompt_encode(exl2_engine *e, exl2__model *m, const char *text, size_t bytes,
                                                  const exl2__encode_marks *marks, uint32_t flags, exl2_token *out,
                                                  uint32_t begin, uint32_t *count)
{
    size_t need = 0;
    exl2_result r = exl2__encode(&e->ctx, &m->vocab, text, bytes, marks, flags, out + begin,
                                 m->info.context_max - begin, &need);
    if (r == EXL2_ERR_TOO_SMALL) {
        *count = (uint32_t)exl2__min64(need + begin, UINT32_MAX); /* for exl2_job_measure */
        return exl2__fail(&e->ctx, EXL2_ERR_CONTEXT_FULL, "the prompt has %llu tokens, but a session holds %u",
                          (unsigned long long)(need + begin), m->info.context_max);
    }
    EXL2__TRY(r);
    *count = (uint32_t)need;
    if (need >= begin && memcmp(out, out + begin, begin * sizeof *out) == 0) {
        memmove(out, out + begin, need * sizeof *out);
    } else {
        *count += begin;
    }
    return EXL2_OK;
}

/* Finds the prompt's last tokens that have the begun text, which counts as text of the grammar. */
EXL2__PRIVATE exl2_result exl2__job_prompt_begun(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                                 const exl2__rendered *r, const exl2_token *prompt, uint32_t count,
                                                 bool grammar)
{
    exl2__job_grammar *g = &job->grammar;
    const char *text = r->text + r->bytes - r->begun_bytes;
    size_t left = r->begun_bytes;
    bool same = !r->begun_changed;
    while (same && left > 0 && g->begun_tokens < count) {
        size_t bytes;
        bool special;
        const char *piece = exl2__vocab_piece(&m->vocab, prompt[count - 1 - g->begun_tokens++], &bytes, &special);
        size_t part = bytes < left ? bytes : left;
        same = piece && memcmp(piece + bytes - part, text + left - part, part) == 0;
        left -= part;
        g->begun_skip = (uint32_t)(bytes - part);
    }
    g->begun = same && left == 0 && r->begun_bytes > 0;
    if (!g->begun) {
        g->begun_tokens = g->begun_skip = 0;
    }
    return !grammar || (same && left == 0)
               ? EXL2_OK
               : exl2__fail(&e->ctx, EXL2_ERR_ARG, "begun_reply: the template or the tokenizer changes the begun text, "
                            "so that the grammar cannot follow it");
}

/* Keeps the common prefix of history and conversation. The last token is always computed again, for its logits. An
   embedding that needs all tokens keeps none. */
EXL2__PRIVATE void exl2__job_prompt_keep_prefix(const exl2__table *t, exl2__sequence *s, exl2_token *prompt,
                                                uint32_t count)
{
    uint32_t keep = 0;
    while (keep < t->tokens && keep < count && (t->words[keep] & ~EXL2__WORD_SAMPLED) == (uint32_t)prompt[keep]) {
        keep++;
    }
    keep = count && !exl2__sequence_pools_all(s) ? exl2__min32(keep, count - 1) : 0;
    s->keep = keep;
    s->prompt = (const uint32_t *)prompt + keep;
    s->prompt_count = count - keep;
}

/* Warns of what the template drops without an error. */
EXL2__PRIVATE void exl2__job_prompt_warn(exl2_engine *e, const exl2_chat_desc *chat, const exl2__rendered *r)
{
    if (chat->tools && !r->reads_tools) {
        exl2__log(&e->ctx, EXL2_LOG_WARN, EXL2_LOG_ID_TOOLS_DROPPED,
                  "the chat template does not read the tools: the model does not see them");
    }
    if (r->tool_calls && !r->reads_tool_calls) {
        exl2__log(&e->ctx, EXL2_LOG_WARN, EXL2_LOG_ID_TOOLS_DROPPED,
                  "the chat template does not read tool_calls: the model does not see those of message %zu",
                  r->tool_calls - 1);
    }
}

/* ---- pictures ---- */

/* The pictures of a prompt, and its text with what stands for them. Zeroed: a prompt without pictures. */
#ifdef EXL2_NO_VISION
typedef struct exl2__job_pictures {
    const char *text;
    size_t bytes;
    const uint8_t *from_message;
    uint64_t rows;
} exl2__job_pictures;
#else
typedef exl2__image_prompt exl2__job_pictures;
#endif

EXL2__PRIVATE exl2_result exl2__job_pictures_open(exl2_engine *e, exl2__model *m, const exl2_prompt *given,
                                                  exl2__job_pictures *out)
{
#ifdef EXL2_NO_VISION
    size_t count = given->image_count;
    *out = (exl2__job_pictures){ 0 };
    for (size_t i = 0; given->messages && i < given->message_count; i++) {
        count += given->messages[i].image_count > 0;
    }
    return count == 0 ? EXL2_OK : exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s: pictures are not part of this build "
                                             "(EXL2_NO_VISION)", m->path);
#else
    return exl2__image_prompt_open(e, m, given, out);
#endif
}

static inline void exl2__job_pictures_close(exl2_engine *e, exl2__job_pictures *p)
{
#ifndef EXL2_NO_VISION
    exl2__image_prompt_close(e, p);
#else
    (void)e, (void)p;
#endif
}

/* Puts what stands for pictures in the place of marks. rendered: the text comes from a template. */
EXL2__PRIVATE exl2_result exl2__job_pictures_text(exl2_engine *e, exl2__model *m, exl2__job_pictures *p,
                                                  const exl2__rendered *rendered, const exl2_prompt *given)
{
    p->text = rendered ? rendered->text : given->text;
    p->bytes = rendered ? rendered->bytes : exl2__job_prompt_text_bytes(given);
    p->from_message = rendered ? rendered->from_message : NULL;
#ifndef EXL2_NO_VISION
    if (m->images.on) {
        bool plain = !rendered && (given->flags & EXL2_TEXT_PLAIN) != 0;
        return exl2__image_prompt_text(e, m, p, rendered != NULL, plain);
    }
#else
    (void)e, (void)m;
#endif
    return EXL2_OK;
}

/* Puts words of rows in the place of the ids of rows. */
EXL2__PRIVATE exl2_result exl2__job_pictures_words(exl2_engine *e, exl2__model *m, exl2__job *job,
                                                   const exl2__job_pictures *p, exl2_token *prompt, uint32_t count)
{
#ifndef EXL2_NO_VISION
    job->stats.image_rows = (uint32_t)p->rows;
    return p->count ? exl2__image_prompt_words(e, m, p, (uint32_t *)prompt, count) : EXL2_OK;
#else
    (void)e, (void)m, (void)job, (void)p, (void)prompt, (void)count;
    return EXL2_OK;
#endif
}

/* ---- the kinds of prompts ---- */

/* The prompt of a conversation: rendered, encoded, without the prefix that the history has already. */
EXL2__PRIVATE exl2_result exl2__job_prompt_messages(exl2_engine *e, exl2__model *m, exl2__job *job,
                                                    const exl2_job_desc *d, const exl2__table *t, exl2_token *prompt,
                                                    exl2__job_pictures *pictures)
{
    uint32_t count = 0;
    exl2__rendered rendered;
    EXL2__TRY(exl2__job_prompt_conversation(e, m, &d->prompt, &d->chat, &rendered));
    exl2__job_prompt_warn(e, &d->chat, &rendered);
    exl2_result r = exl2__job_pictures_text(e, m, pictures, &rendered, &d->prompt);
    exl2__encode_marks marks = { pictures->from_message, rendered.guard };
    if (r == EXL2_OK) {
        r = exl2__job_prompt_encode(e, m, pictures->text, pictures->bytes, &marks, 0, prompt, 0, &count);
    }
    if (r == EXL2_OK && rendered.begun) {
        r = exl2__job_prompt_begun(e, m, job, &rendered, prompt, count, d->grammar.id || d->grammar_count);
    }
    exl2__job_prompt_free(e, &rendered);
    job->stats.prompt_tokens = count;
    EXL2__TRY(r);
    EXL2__TRY(exl2__job_pictures_words(e, m, job, pictures, prompt, count));
    exl2__job_prompt_keep_prefix(t, &job->sequence, prompt, count);
    return EXL2_OK;
}

/* Appends the tokens that EXL2_TEXT_END puts after a text. */
EXL2__PRIVATE exl2_result exl2__job_prompt_end(exl2_engine *e, const exl2__model *m, uint32_t flags, exl2_token *out,
                                               uint32_t *count)
{
    uint32_t more = exl2__vocab_suffix(&m->vocab, flags, out + *count, m->info.context_max - *count), before = *count;
    *count += more;
    return before + more <= m->info.context_max
               ? EXL2_OK
               : exl2__fail(&e->ctx, EXL2_ERR_CONTEXT_FULL, "the prompt has %u tokens, but a session holds %u", *count,
                            m->info.context_max);
}

/* The prompt of a text: encoded, to be appended to the history. */
EXL2__PRIVATE exl2_result exl2__job_prompt_text(exl2_engine *e, exl2__model *m, exl2__job *job,
                                                const exl2_prompt *given, const exl2__table *t, exl2_token *prompt,
                                                exl2__job_pictures *pictures)
{
    uint32_t bos = t->tokens == 0 ? exl2__vocab_prefix(&m->vocab, given->flags, prompt, m->info.context_max) : 0;
    uint32_t count = 0, flags = given->flags;
    EXL2__TRY(exl2__job_pictures_text(e, m, pictures, NULL, given));
    exl2__encode_marks marks = { pictures->from_message, NULL };
    bool marked = pictures->from_message != NULL;
    flags = marked ? flags & ~(uint32_t)EXL2_TEXT_PLAIN : flags; /* the marks say which bytes are plain */
    exl2_result r = exl2__job_prompt_encode(e, m, pictures->text, pictures->bytes, marked ? &marks : NULL, flags,
                                            prompt, bos, &count);
    r = r < 0 ? r : exl2__job_prompt_end(e, m, given->flags, prompt, &count);
    job->stats.prompt_tokens = job->sequence.prompt_count = count;
    EXL2__TRY(r);
    return exl2__job_pictures_words(e, m, job, pictures, prompt, count);
}

/* The prompt of ids, perhaps none: copied, to be appended to the history. */
EXL2__PRIVATE exl2_result exl2__job_prompt_ids(exl2_engine *e, exl2__model *m, exl2__job *job,
                                               const exl2_prompt *given, exl2_token *prompt,
                                               const exl2__job_pictures *pictures)
{
    uint64_t count = given->token_count;
#ifndef EXL2_NO_VISION
    if (m->images.on) {
        EXL2__TRY(exl2__image_prompt_ids(e, m, pictures, given, prompt, m->info.context_max, &count));
    }
#endif
    job->stats.prompt_tokens = (uint32_t)exl2__min64(count, UINT32_MAX);
    if (count > m->info.context_max) {
        return exl2__fail(&e->ctx, EXL2_ERR_CONTEXT_FULL, "the prompt has %llu tokens, but a session holds %u",
                          (unsigned long long)count, m->info.context_max);
    }
    job->sequence.prompt_count = job->stats.prompt_tokens;
    if (count == given->token_count && pictures->rows == 0) {
        for (uint32_t i = 0; i < job->sequence.prompt_count; i++) {
            prompt[i] = given->tokens[i];
        }
    }
    return exl2__job_pictures_words(e, m, job, pictures, prompt, job->sequence.prompt_count);
}

EXL2__PRIVATE exl2_result exl2__job_prompt_any(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2_job_desc *d,
                                               const exl2__table *t, exl2_token *prompt, exl2__job_pictures *pictures)
{
    const exl2_prompt *given = &d->prompt;
    if (given->messages) {
        return exl2__job_prompt_messages(e, m, job, d, t, prompt, pictures);
    }
    job->sequence.keep = t->tokens;
    job->sequence.prompt = (const uint32_t *)prompt;
    return given->text ? exl2__job_prompt_text(e, m, job, given, t, prompt, pictures)
                       : exl2__job_prompt_ids(e, m, job, given, prompt, pictures);
}

/* Fills sequence.keep, prompt, prompt_count and stats.prompt_tokens. Text beside messages follows them. */
EXL2__PRIVATE exl2_result exl2__job_prompt_fill(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2_job_desc *d,
                                                const exl2__table *t)
{
    exl2_token *prompt = m->prompts + (size_t)(job - e->jobs) * m->plan.context_max;
    const exl2_prompt *given = &d->prompt;
    if (given->tokens && (given->text || given->messages)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "a prompt of tokens has neither text nor messages, but one is set");
    }
    if ((given->text || given->messages) && !m->vocab.present) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s has no tokenizer.json: set the prompt's tokens instead of text",
                          m->path);
    }
    exl2__job_pictures pictures;
    EXL2__TRY(exl2__job_pictures_open(e, m, given, &pictures));
    exl2_result r = exl2__job_prompt_any(e, m, job, d, t, prompt, &pictures);
    exl2__job_pictures_close(e, &pictures);
    return r;
}

#endif
