/* job_start.h: makes a queued job from an exl2_job_desc: its session, its prompt's ids, its sampler, its stops.
   takes: a desc; everything in it is copied.
   gives: exl2__job_start_job, exl2__job_start_measure, exl2__job_start_render.
   owns:  while a call lasts, a block for conversations that do not fit the model's block, and the conversation's own
          template. */
#ifndef EXL2__JOB_START_H
#define EXL2__JOB_START_H

#include "draft_models.h"
#include "job_lists.h"
#include "snapshot.h"

#define EXL2__DEFAULT_MAX_TOKENS 512u

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
    bool begun;            /* the text ends with the beginning of the reply, */
    bool begun_changed;    /* which the template has changed, */
    size_t begun_bytes;    /* or which is so long */
    uint32_t *own_guard;   /* for special_tokens of the conversation */
    uint64_t guard_bytes;
    void *block;
    uint64_t block_bytes;
    exl2__template own;
} exl2__rendered;

static inline void exl2__job_start_free(exl2_engine *e, exl2__rendered *r)
{
    exl2__free(&e->ctx, r->block, r->block_bytes, EXL2_MEM_GENERAL);
    exl2__free(&e->ctx, r->own_guard, r->guard_bytes, EXL2_MEM_GENERAL);
    exl2__template_close(&e->ctx, &r->own);
    *r = (exl2__rendered){ 0 };
}

/* The template in the desc's template_text, or the model's template that the desc selects. */
EXL2__PRIVATE exl2_result exl2__job_start_template(exl2_engine *e, exl2__model *m, const exl2__template_input *tokens,
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
EXL2__PRIVATE exl2_result exl2__job_start_render_in(exl2_engine *e, const exl2__template *t,
                                                    const exl2__template_input *input, void *block, exl2__rendered *out)
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
EXL2__PRIVATE size_t exl2__job_start_longest_run(const char *text, size_t bytes, const char *mark, size_t mark_bytes)
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
EXL2__PRIVATE bool exl2__job_start_cut_at(const exl2__rendered *second, const exl2__template_begun *begun,
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
    for (size_t i = 0; i < 2; i++) { /* the whole text, if it is there */
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
EXL2__PRIVATE exl2_result exl2__job_start_cut(exl2_engine *e, const exl2__template *t,
                                              const exl2__template_input *input, exl2__rendered *out)
{
    static const char mark[] = "\xEF\xA3\xBF"; /* U+F8FF, a private-use character, which no filter changes */
    exl2__template_input marked = *input;
    exl2__template_begun begun = { 0 };
    exl2__rendered second = { 0 };
    void *marker = NULL;
    size_t times = exl2__job_start_longest_run(out->text, out->bytes, mark, 3) + 1, bytes = times * 3;
    EXL2__TRY(exl2__alloc(&e->ctx, bytes + 1, 16, EXL2_MEM_GENERAL, &marker));
    for (size_t i = 0; i < times; i++) {
        memcpy((char *)marker + i * 3, mark, 3);
    }
    ((char *)marker)[bytes] = 0;
    begun.marker = (const char *)marker;
    marked.begun = &begun;
    exl2_result r = exl2__job_start_render_in(e, t, &marked, NULL, &second);
    if (r == EXL2_OK && !exl2__job_start_cut_at(&second, &begun, bytes, out)) {
        r = exl2__fail(&e->ctx, EXL2_ERR_ARG, "begun_reply: the chat template does not write the text of message %zu, "
                       "the last one, so that it can be continued", input->message_count - 1);
    }
    exl2__job_start_free(e, &second);
    exl2__free(&e->ctx, marker, bytes + 1, EXL2_MEM_GENERAL);
    return r;
}

EXL2__PRIVATE exl2_result exl2__job_start_render(exl2_engine *e, exl2__model *m, const exl2_message *messages,
                                                 size_t count, const exl2_chat_desc *chat, exl2__rendered *out)
{
    static const exl2_chat_desc none = { 0 };
    uint32_t steps = 0; /* one count for all attempts, so that their number does not matter */
    exl2__template_input input = { messages, count, chat ? chat : &none, m->vocab.bos_text, m->vocab.eos_text,
                                   m->vocab.unk_text, m->vocab.pad_text, &steps,
                                   &out->tool_calls, NULL };
    const exl2__template *t;
    *out = (exl2__rendered){ 0 };
    for (size_t i = 0; i < count; i++) {
        if (!messages[i].role && !messages[i].fields) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "message %zu has no role", i);
        }
    }
    exl2_result r = exl2__job_start_template(e, m, &input, out, &t);
    if (r == EXL2_OK) {
        r = exl2__job_start_render_in(e, t, &input, m->render, out); /* m->render is NULL while the model loads */
        out->guard = t->guard;
        out->guard_bytes = t->guard_bytes;
        out->reads_tools = t->reads_tools;
        out->reads_tool_calls = t->reads_tool_calls;
    }
    if (r == EXL2_OK && input.chat->begun_reply) {
        r = exl2__job_start_cut(e, t, &input, out);
    }
    if (r == EXL2_OK && input.chat->special_tokens && t->guard) {
        r = exl2__template_guard_special(&e->ctx, t, &m->vocab, input.chat->special_tokens, &out->own_guard);
        out->guard = out->own_guard;
    }
    if (r < 0) {
        exl2__job_start_free(e, out);
    }
    return r;
}

/* ---- prompt ---- */

/* Text -> ids in the job's prompt, which has room for context_max ids. out[0 .. begin) are ids before the text (BOS).
   They are dropped if the text begins with the same ids, so that BOS never occurs twice. */
EXL2__PRIVATE exl2_result exl2__job_start_encode(exl2_engine *e, exl2__model *m, const char *text, size_t bytes,
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
EXL2__PRIVATE exl2_result exl2__job_start_begun(exl2_engine *e, const exl2__model *m, exl2__job *job,
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

/* Keeps the common prefix of history and conversation. The last token is always computed again, for its logits. */
EXL2__PRIVATE void exl2__job_start_keep_prefix(const exl2__table *t, exl2__sequence *s, exl2_token *prompt,
                                               uint32_t count)
{
    uint32_t keep = 0;
    while (keep < t->tokens && keep < count && (t->words[keep] & ~EXL2__WORD_SAMPLED) == (uint32_t)prompt[keep]) {
        keep++;
    }
    keep = count ? exl2__min32(keep, count - 1) : 0;
    s->keep = keep;
    s->prompt = (const uint32_t *)prompt + keep;
    s->prompt_count = count - keep;
}

/* Warns of what the template drops without an error. */
EXL2__PRIVATE void exl2__job_start_warn(exl2_engine *e, const exl2_chat_desc *chat, const exl2__rendered *r)
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

/* The prompt of a conversation: rendered, encoded, without the prefix that the history has already. */
EXL2__PRIVATE exl2_result exl2__job_start_messages(exl2_engine *e, exl2__model *m, exl2__job *job,
                                                   const exl2_job_desc *d, const exl2__table *t, exl2_token *prompt)
{
    uint32_t count = 0;
    exl2__rendered rendered;
    EXL2__TRY(exl2__job_start_render(e, m, d->prompt.messages, d->prompt.message_count, &d->chat, &rendered));
    exl2__job_start_warn(e, &d->chat, &rendered);
    exl2__encode_marks marks = { rendered.from_message, rendered.guard };
    exl2_result r = exl2__job_start_encode(e, m, rendered.text, rendered.bytes, &marks, 0, prompt, 0, &count);
    if (r == EXL2_OK && rendered.begun) {
        r = exl2__job_start_begun(e, m, job, &rendered, prompt, count, d->grammar.id != 0);
    }
    exl2__job_start_free(e, &rendered);
    job->stats.prompt_tokens = count;
    EXL2__TRY(r);
    exl2__job_start_keep_prefix(t, &job->sequence, prompt, count);
    return EXL2_OK;
}

/* The prompt of a text: encoded, to be appended to the history. */
EXL2__PRIVATE exl2_result exl2__job_start_text(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2_prompt *given,
                                               const exl2__table *t, exl2_token *prompt)
{
    uint32_t bos = t->tokens == 0 ? exl2__vocab_prefix(&m->vocab, given->flags, prompt, m->info.context_max) : 0;
    uint32_t count = 0;
    size_t bytes = given->text_bytes ? given->text_bytes : strlen(given->text);
    exl2_result r = exl2__job_start_encode(e, m, given->text, bytes, NULL, given->flags, prompt, bos, &count);
    job->stats.prompt_tokens = job->sequence.prompt_count = count;
    return r;
}

/* The prompt of ids, perhaps none: copied, to be appended to the history. */
EXL2__PRIVATE exl2_result exl2__job_start_ids(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                              const exl2_prompt *given, exl2_token *prompt)
{
    job->stats.prompt_tokens = (uint32_t)exl2__min64(given->token_count, UINT32_MAX);
    if (given->token_count > m->info.context_max) {
        return exl2__fail(&e->ctx, EXL2_ERR_CONTEXT_FULL, "the prompt has %zu tokens, but a session holds %u",
                          given->token_count, m->info.context_max);
    }
    job->sequence.prompt_count = job->stats.prompt_tokens;
    for (uint32_t i = 0; i < job->sequence.prompt_count; i++) {
        prompt[i] = given->tokens[i];
    }
    return EXL2_OK;
}

/* Fills sequence.keep, prompt, prompt_count and stats.prompt_tokens. */
EXL2__PRIVATE exl2_result exl2__job_start_prompt(exl2_engine *e, exl2__model *m, exl2__job *job, const exl2_job_desc *d,
                                                 const exl2__table *t)
{
    exl2_token *prompt = m->prompts + (size_t)(job - e->jobs) * m->plan.context_max;
    const exl2_prompt *given = &d->prompt;
    if ((given->text != NULL) + (given->tokens != NULL) + (given->messages != NULL) > 1) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                          "a prompt has one of text, tokens and messages, but more than one is set");
    }
    if ((given->text || given->messages) && !m->vocab.present) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s has no tokenizer.json: set the prompt's tokens instead of text",
                          m->path);
    }
    if (given->messages) {
        return exl2__job_start_messages(e, m, job, d, t, prompt);
    }
    job->sequence.keep = t->tokens;
    job->sequence.prompt = (const uint32_t *)prompt;
    return given->text ? exl2__job_start_text(e, m, job, given, t, prompt)
                       : exl2__job_start_ids(e, m, job, given, prompt);
}

/* Token healing: removes the last token of the prompt; the first sampled token will begin with that token's text. Only
   if the token has text of its own and is not the only token of the history. */
static inline void exl2__job_start_heal(const exl2__model *m, exl2__job *job)
{
    exl2__sequence *s = &job->sequence;
    size_t bytes;
    exl2_token last = s->prompt_count ? (exl2_token)s->prompt[s->prompt_count - 1] : -1;
    if (exl2__jobs_healable(m, last, &bytes) && s->keep + s->prompt_count > 1) {
        s->prompt_count--;
        job->healed = last;
        job->grammar.begun_tokens -= job->grammar.begun_tokens > 0;
    }
}

/* Can the cache ever hold so many tokens? */
EXL2__PRIVATE exl2_result exl2__job_start_pages(exl2_engine *e, const exl2__model *m, uint32_t tokens)
{
    uint32_t pages = exl2__pages_for(tokens);
    if (pages > m->pages.count) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET,
                          "the job needs %u KV pages of 64 tokens, but the cache has %u: raise cache.tokens to %u",
                          pages, m->pages.count, pages * EXL2__PAGE_TOKENS);
    }
    return EXL2_OK;
}

/* Sets the largest number of new tokens, and with it the largest length of the history. */
EXL2__PRIVATE exl2_result exl2__job_start_length(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                                 const exl2_job_desc *d)
{
    exl2__sequence *s = &job->sequence;
    uint64_t prompt_end = (uint64_t)s->keep + s->prompt_count + (job->healed >= 0);
    uint32_t context_max = m->info.context_max;
    uint64_t new_tokens = d->prefill_only ? 0 : d->max_tokens ? d->max_tokens : EXL2__DEFAULT_MAX_TOKENS;
    if (!d->max_tokens && prompt_end < context_max) { /* the default is limited to the rest of the context */
        new_tokens = exl2__min64(new_tokens, context_max - prompt_end);
    }
    s->tokens_end = (uint32_t)exl2__min64(prompt_end + new_tokens, UINT32_MAX);
    job->max_tokens = (uint32_t)new_tokens;
    if (prompt_end == 0) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                          "the prompt and the session are empty: there is no token to generate from");
    }
    if (prompt_end + new_tokens > context_max) {
        return exl2__fail(&e->ctx, EXL2_ERR_CONTEXT_FULL,
                          "the job needs a context of %llu tokens (%llu of prompt, %llu new), but a session holds %u",
                          (unsigned long long)(prompt_end + new_tokens), (unsigned long long)prompt_end,
                          (unsigned long long)new_tokens, context_max);
    }
    s->min_end = (uint32_t)exl2__min64(prompt_end + d->min_tokens, UINT32_MAX);
    if (d->min_tokens > new_tokens) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "min_tokens is %u, but at most %llu new tokens are allowed",
                          d->min_tokens, (unsigned long long)new_tokens);
    }
    return exl2__job_start_pages(e, m, s->tokens_end);
}

/* ---- the job ---- */

/* A job that goes on where its session was saved: the prompt and the limits are those of the snapshot. */
EXL2__PRIVATE exl2_result exl2__job_start_resumed(exl2_engine *e, const exl2__model *m, exl2__job *job,
                                                  const exl2_job_desc *d)
{
    const exl2__session_resume *r = &e->sessions[job->session].resume;
    const exl2_prompt *p = &d->prompt;
    exl2__sequence *s = &job->sequence;
    bool guided = d->guidance < 0 || d->guidance > 0;
    if (!r->present || p->text || p->tokens || p->messages || guided) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, !r->present ? "resume: the session has no job to go on with"
                                                 : guided ? "resume: not with guidance"
                                                 : "resume: the job has its prompt already, but the desc has one, too");
    }
    if ((d->max_tokens && d->max_tokens != r->max_tokens) || (d->min_tokens && d->min_tokens != r->min_tokens)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "resume: max_tokens and min_tokens are %u and %u, but those of the "
                          "snapshot are %u and %u", d->max_tokens, d->min_tokens, r->max_tokens, r->min_tokens);
    }
    if (d->prefill_only != (r->max_tokens == 0)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "resume: prefill_only is %s, but the saved job has max_tokens %u",
                          d->prefill_only ? "set" : "not set", r->max_tokens);
    }
    s->begun = true;
    s->prompt_end = r->prompt_end;
    s->prompt_count = r->prompt_count;
    s->final_end = r->prompt_end + r->delivered;
    s->computed_end = r->computed_end;
    s->tokens_end = r->prompt_end + (r->healed >= 0) + r->max_tokens;
    s->min_end = r->prompt_end + (r->healed >= 0) + r->min_tokens;
    job->healed = r->healed;
    job->max_tokens = r->max_tokens;
    job->grammar.begun = r->begun;
    job->grammar.begun_tokens = r->begun_tokens;
    job->grammar.begun_skip = r->begun_skip;
    return exl2__job_start_pages(e, m, s->tokens_end);
}

/* A job with a prompt, or one that continues the history. */
EXL2__PRIVATE exl2_result exl2__job_start_prompted(exl2_engine *e, exl2__model *m, exl2__job *job,
                                                   const exl2_job_desc *d)
{
    exl2__sequence *s = &job->sequence;
    EXL2__TRY(exl2__job_start_prompt(e, m, job, d, s->table));
    EXL2__TRY(exl2__job_lists_check_ids(e, m, (const exl2_token *)s->prompt, s->prompt_count, "prompt token"));
    job->healed = -1;
    if (d->heal_prompt && !d->prefill_only) {
        exl2__job_start_heal(m, job);
    }
    return exl2__job_start_length(e, m, job, d);
}

EXL2__PRIVATE exl2_result exl2__job_start_fill(exl2_engine *e, exl2__model *m, exl2__session *session, exl2__job *job,
                                               const exl2_job_desc *d)
{
    exl2__sequence *s = &job->sequence;
    uint32_t used = 0;
    s->table = &session->table;
    s->priority = d->priority;
    s->order = e->order++;
    s->prefill_only = d->prefill_only;
    s->score_prompt = d->score_prompt;
    s->alts = d->alts_per_token;
    EXL2__TRY(d->resume ? exl2__job_start_resumed(e, m, job, d) : exl2__job_start_prompted(e, m, job, d));
    EXL2__TRY(exl2__job_lists_stops(e, m, job, d, &used));
    EXL2__TRY(exl2__job_lists_sampler(e, m, job, d, &used));
    exl2__stream_make(&job->delivery.stream, d->show_markers, true);
    uint32_t tokens = s->table->tokens;
    EXL2__TRY(d->resume ? exl2__snapshot_resume(e, m, job, d) : EXL2_OK);
    exl2_result r = d->grammar.id ? exl2__grammars_join(e, job, d->grammar) : EXL2_OK; /* last, as _leave undoes it */
    if (r < 0) {
        s->table->tokens = tokens;
        return r;
    }
    bool single = d->draft.one_by_one || d->on_logits || s->sampling.mirostat_tau > 0
                  || exl2__objects_backend(m)->decode_rows < 2;
    job->one_by_one = single || d->alts_per_token;
    job->drafting = (exl2__job_drafting){
        .on = (d->draft.ngram || d->draft.model.id) && !single && !d->prefill_only
              && !(job->grammar.slot && !job->grammar.slot->made),
        .ngram = d->draft.ngram, .most = d->draft.tokens ? d->draft.tokens : EXL2__SEQUENCE_DRAFT_MAX,
        .rate = EXL2__FIRST_DRAFT_RATE
    };
    bool forces = job->grammar.slot && job->grammar.slot->made && !job->one_by_one;
    s->waits |= forces; /* forced tokens follow a token that is known */
    job->delivery.on_event = d->on_event;
    job->on_logits = d->on_logits;
    job->user = d->user;
    job->loop_stop = d->loop_stop;
    job->start_ns = exl2__platform_ns();
    return EXL2_OK;
}

/* The session and the model that a desc names, if the session is free and the model ready. *session NULL: the job gets
   a session of its own. */
EXL2__PRIVATE exl2_result exl2__job_start_target(exl2_engine *e, const exl2_job_desc *d, exl2__session **session,
                                                 exl2__model **model)
{
    exl2__model *m;
    *session = NULL;
    if (d->session.id) {
        exl2__session *s = exl2__objects_session(e, d->session);
        if (!s) {
            return exl2__objects_stale(e, "session", d->session.id);
        }
        EXL2__TRY(exl2__objects_not_busy(e, s));
        m = &e->models[s->model];
        if (d->model.id && d->model.id != m->id) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                              "the job's session belongs to another model than the one that the job names");
        }
        *session = s;
    } else if (!(m = exl2__objects_model(e, d->model))) {
        return d->model.id ? exl2__objects_stale(e, "model", d->model.id)
                           : exl2__fail(&e->ctx, EXL2_ERR_STALE, "exl2_job_desc sets neither model nor session: a job "
                                        "needs one of them");
    }
    if (m->state != EXL2_OK) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                          m->state == EXL2_PENDING ? "the model is still loading" : "the model did not load");
    }
    if (m->desc.text_only) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "the model was opened with text_only: it has no weights");
    }
    EXL2__TRY(exl2__objects_not_closing(e, m));
    *model = m;
    return EXL2_OK;
}

/* Fills in a job of a model, which is not live yet, in the session of exl2__job_start_target. The session is busy with
   job `of`, or with this job if `of` is 0. On failure nothing has changed; *out, if it was set, still points to the
   job's figures in a slot that is free again. */
EXL2__PRIVATE exl2_result exl2__job_start_one(exl2_engine *e, const exl2_job_desc *d, exl2__model *m,
                                              exl2__session *session, bool discard_events, uint64_t of,
                                              exl2__job **out)
{
    uint64_t job_id = exl2__pool_alloc(&e->job_ids);
    if (!job_id) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "all %u jobs are in use; raise max_jobs", e->max_jobs);
    }
    uint32_t slot = exl2__pool_slot_of(job_id);
    bool one_shot = session == NULL;
    exl2_result r = one_shot ? exl2__objects_new_session(e, m, &session) : EXL2_OK;
    if (r < 0) {
        exl2__pool_free(&e->job_ids, slot);
        return r;
    }
    exl2__job *job = &e->jobs[slot];
    exl2__lock(&e->lock);
    *job = (exl2__job){ 0 };
    job->id = job_id;
    exl2__unlock(&e->lock);
    job->model = (uint32_t)(m - e->models);
    job->session = (uint32_t)(session - e->sessions);
    job->block = &m->blocks[slot];
    job->delivery.discard = discard_events;
    *out = job;
    r = exl2__job_start_fill(e, m, session, job, d);
    if (r < 0) {
        exl2__pool_free(&e->job_ids, slot);
        if (one_shot) {
            exl2__objects_free_session(e, session);
        }
        return r;
    }
    session->job = of ? of : job_id;
    session->one_shot = one_shot;
    return EXL2_OK;
}

/* Fills in the job of the negative prompt, and pairs it with the positive job, with which it is undone on failure. */
EXL2__PRIVATE exl2_result exl2__job_start_negative(exl2_engine *e, const exl2_job_desc *d, exl2__job *positive)
{
    exl2__model *m = &e->models[positive->model];
    exl2_job_desc other = { .session = d->negative_session, .prompt = d->negative_prompt, .chat = d->chat,
                            .max_tokens = positive->max_tokens, .heal_prompt = d->heal_prompt,
                            .prefill_only = d->prefill_only, .priority = d->priority };
    other.model.id = m->id;
    exl2__session *session;
    exl2__job *job;
    void *logits = NULL;
    EXL2__TRY(exl2__job_start_target(e, &other, &session, &m));
    EXL2__TRY(exl2__job_start_one(e, &other, m, session, true, positive->id, &job));
    positive->guidance.negative = job;
    uint32_t pages = exl2__pages_for(positive->sequence.tokens_end) + exl2__pages_for(job->sequence.tokens_end);
    if (m->plan.sequences_max < 2 || pages > m->pages.count) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "guidance needs two sequences (batch_max is %u) and %u KV pages of "
                          "64 tokens (the cache has %u)", m->plan.sequences_max, pages, m->pages.count);
    }
    if (job->healed != positive->healed) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG,
                          "heal_prompt with guidance needs prompts that end with the same token");
    }
    EXL2__TRY(exl2__alloc(&e->ctx, m->plan.shape.vocab * sizeof(float), 64, EXL2_MEM_SCRATCH, &logits));
    positive->guidance.logits = (float *)logits;
    positive->guidance.scale = d->guidance;
    job->guidance.positive = positive;
    positive->sequence.negative = &job->sequence;
    job->sequence.positive = &positive->sequence;
    positive->one_by_one = true;
    positive->sequence.fetches_logits = positive->sequence.waits = true;
    job->sequence.fetches_logits = job->sequence.waits = true;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__job_start_check_guidance(exl2_engine *e, const exl2_job_desc *d)
{
    const exl2_prompt *prompt = &d->negative_prompt;
    bool negative = d->negative_session.id || prompt->text || prompt->tokens || prompt->messages;
    if (!exl2__sampler_fits(d->guidance, -100, 100)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "guidance must be in the range -100 to 100");
    }
    if (negative && (d->draft.ngram || d->draft.model.id)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "a job with guidance cannot have drafts: draft.%s is set",
                          d->draft.ngram ? "ngram" : "model");
    }
    if (negative != (d->guidance < 0 || d->guidance > 0)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, negative ? "a negative prompt needs guidance that is not 0"
                                                          : "guidance needs a negative prompt or session");
    }
    return EXL2_OK;
}

/* Undoes a job that was filled in and is not live yet, with what belongs to it. */
EXL2__PRIVATE void exl2__job_start_undo(exl2_engine *e, exl2__job *job)
{
    exl2__grammars_leave(e, job);
    exl2__jobs_free_drafter(e, job);
    if (job->guidance.negative) {
        exl2__jobs_free(e, job->guidance.negative, 0);
    }
    exl2__jobs_free(e, job, job->delivery.delivered); /* not 0 with `resume` */
}

/* Fills in the job, which is not live yet, and all that it needs: with guidance the job of its negative prompt, with a
   draft model its drafter. On failure as exl2__job_start_one. A start and a measure both call it, so that they fail
   alike. */
EXL2__PRIVATE exl2_result exl2__job_start_whole(exl2_engine *e, const exl2_job_desc *d, bool discard_events,
                                                exl2__job **job)
{
    exl2__session *session;
    exl2__model *m, *draft;
    EXL2__TRY(exl2__job_start_check_guidance(e, d));
    EXL2__TRY(exl2__job_start_target(e, d, &session, &m));
    if (session && d->negative_session.id == session->id) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "negative_session: the session is busy with the positive prompt of "
                          "the same job");
    }
    EXL2__TRY(exl2__draft_models_check(e, m, &d->draft, &draft));
    EXL2__TRY(exl2__job_start_one(e, d, m, session, discard_events, 0, job));
    exl2_result r = d->guidance < 0 || d->guidance > 0 ? exl2__job_start_negative(e, d, *job) : EXL2_OK;
    if (r >= 0 && draft && (*job)->drafting.on) {
        r = exl2__draft_models_make(e, draft, *job);
    }
    if (r < 0) {
        exl2__job_start_undo(e, *job);
    }
    return r;
}

/* Queues the job. On failure nothing has changed. */
EXL2__PRIVATE exl2_result exl2__job_start_job(exl2_engine *e, const exl2_job_desc *d, bool discard_events,
                                              exl2_job *out)
{
    exl2__job *job = NULL;
    EXL2__TRY(exl2__job_start_whole(e, d, discard_events, &job));
    exl2__job *negative = job->guidance.negative;
    exl2__lock(&e->lock); /* another thread may read any slot, even through a guessed handle */
    if (negative) {
        negative->sequence.live = true;
    }
    job->sequence.live = true;
    exl2__unlock(&e->lock);
    e->sessions[job->session].resume.present = false;
    if (negative) {
        e->sessions[negative->session].resume.present = false;
    }
    exl2__jobs_publish(e, job);
    exl2__objects_publish(e);
    out->id = job->id;
    return EXL2_OK;
}

/* Puts vectors in place of `count` tokens of the prompt of a job that has not begun, from the prompt's token `at` on.
   words [count]: of exl2__vectors_add; the prompt gets uses of its own. */
static inline void exl2__job_start_vectors(exl2__model *m, exl2__job *job, uint32_t at, const uint32_t *words,
                                           uint32_t count)
{
    uint32_t *prompt = (uint32_t *)m->prompts + (job->sequence.prompt - (const uint32_t *)m->prompts);
    EXL2__ASSERT(!job->sequence.begun && at <= job->sequence.prompt_count && count <= job->sequence.prompt_count - at);
    exl2__vectors_use(m->pages.vectors, words, count);
    exl2__vectors_drop(m->pages.vectors, prompt + at, count);
    memcpy(prompt + at, words, count * sizeof *words);
}

/* ---- measure ---- */

/* Number of prompt tokens that the job would find in the cache now. */
static inline uint32_t exl2__job_start_reused(const exl2__job *job, const exl2__pages *pages)
{
    const exl2__sequence *s = &job->sequence;
    exl2__table_text text = exl2__sequence_text(s);
    uint32_t found = exl2__table_find(pages, &text, exl2__sequence_shared(s, text.tokens),
                                      exl2__sequence_reuse(s, text.tokens));
    return exl2__jobs_prompt_part(job, found, text.tokens);
}

/* Makes the job without setting it live, reads its figures, and undoes it. */
EXL2__PRIVATE exl2_result exl2__job_start_measure(exl2_engine *e, const exl2_job_desc *d, exl2_job_size *out)
{
    exl2__job *job = NULL;
    exl2_result r = exl2__job_start_whole(e, d, true, &job);
    memset(out, 0, sizeof *out);
    if (job) {
        const exl2__model *m = &e->models[job->model];
        out->prompt_tokens = job->stats.prompt_tokens;
        out->max_tokens = job->max_tokens;
        out->context_tokens = job->sequence.tokens_end;
        out->context_max = m->info.context_max;
        out->pages_free = exl2__pages_room(&m->pages);
    }
    if (r < 0) {
        return r;
    }
    const exl2__pages *pages = &e->models[job->model].pages;
    out->reused_tokens = exl2__job_start_reused(job, pages);
    out->pages_needed = exl2__schedule_demand_all(&job->sequence, pages);
    exl2__job_start_undo(e, job);
    exl2__objects_publish(e);
    return EXL2_OK;
}

#endif
