/* template_guard.h: finds the added tokens that a chat template can print, so that no message can forge them.
   takes: a parsed template, the tokenizer of its model.
   gives: exl2__template_guard, exl2__template_guard_special.
   owns:  nothing; a guard belongs to its template or to the caller. */
#ifndef EXL2__TEMPLATE_GUARD_H
#define EXL2__TEMPLATE_GUARD_H

#include "template_probe.h"
#include "../tokenizer/vocab.h"

/* Bytes that all steps of the normalizer together may read, or write if that is more, while a guard is made: TIMES for
   each byte of the template's text, and EXTRA for probes. The source, its constants and the constants joined are
   normalized, each about as long as the source, and published tokenizers have one to three steps. A Replace by a
   regular expression searches twice, which costs about 150 ns per byte: with a hostile tokenizer 0.7 s for a small
   template and 2 s for the largest one. */
#define EXL2__TEMPLATE_GUARD_TIMES 8
#define EXL2__TEMPLATE_GUARD_EXTRA (4u << 20)

#define EXL2__TEMPLATE_GUARD_NOTHING "\xEF\xA3\xBF" /* U+F8FF, a private-use character: no normal form changes it */

/* State of the search for added tokens. */
typedef struct exl2__template_guard_state {
    exl2__ctx *c;
    const exl2__vocab *v;
    uint32_t *guard;
    exl2__normal_rules inner;        /* the normalizer without the steps that only change the start or end of a text */
    exl2__normal_view front;         /* text that the normalizer puts before every text */
    exl2__normal_text valid;         /* text in which U+FFFD replaces invalid UTF-8 */
    exl2__normal_text rewritten[2], fronts[2];
    uint64_t allowed;                /* bytes that steps of the normalizer may still read or write, in all searches */
} exl2__template_guard_state;

/* Whether a token is white space only. Such a token is no marker: it is guarded only if the source contains it. */
EXL2__PRIVATE bool exl2__template_guard_blank(const exl2__added *added, const exl2__added_token *token)
{
    const char *text = added->text + token->at;
    for (uint32_t at = 0, code; at < token->bytes;) {
        at += exl2__unicode_next(text + at, token->bytes - at, &code);
        if (exl2__unicode_class(code) != EXL2__UNICODE_SPACE && code != 0x2581) {
            return false;
        }
    }
    return true;
}

/* Guards the tokens of a set (0: searched in raw text, 1: in normalized text) that match `front` followed by the text
   from some offset on. Tokens of white space are guarded only with `blanks`. */
EXL2__PRIVATE void exl2__template_guard_search(exl2__template_guard_state *g, uint32_t set,
                                               const exl2__normal_view *front, const char *text, size_t bytes,
                                               bool blanks)
{
    const exl2__added *added = &g->v->added;
    uint32_t low = set ? added->raw_count : 0, high = set ? added->count : added->raw_count, depth = 0;
    bool nexts[256] = { false }; /* bytes of tokens that can follow `front` */
    for (; depth < front->bytes; depth++) {
        low = exl2__added_bound(added, low, high, depth, (uint8_t)front->text[depth]);
        high = exl2__added_bound(added, low, high, depth, (uint8_t)front->text[depth] + 1u);
    }
    for (uint32_t i = low; i < high; i++) {
        const exl2__added_token *token = &added->tokens[i];
        nexts[(uint8_t)added->text[token->at + (depth < token->bytes ? depth : 0)]] = true;
    }
    for (size_t at = 0; at < bytes && low < high; at++) {
        if (!nexts[(uint8_t)text[at]]) {
            continue;
        }
        uint32_t found = exl2__added_longest_of(added, low, high, depth, text + at, bytes - at);
        if (found != EXL2__ADDED_NONE && (blanks || !exl2__template_guard_blank(added, &added->tokens[found]))) {
            g->guard[found / 32] |= 1u << found % 32;
        }
    }
}

/* Replaces invalid UTF-8 by U+FFFD, as exl2__encode does. */
EXL2__PRIVATE exl2_result exl2__template_guard_repair(exl2__template_guard_state *g, const char **text, size_t *bytes)
{
    if (exl2__unicode_valid(*text, *bytes)) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__normal_reserve(g->c, &g->valid, *bytes * 3));
    for (size_t at = 0, length; at < *bytes; at += length) {
        uint32_t code;
        length = exl2__unicode_next(*text + at, *bytes - at, &code);
        bool bad = code >= EXL2__UNICODE_BAD;
        exl2__normal_put(&g->valid, bad ? EXL2__UNICODE_REPLACEMENT : *text + at, bad ? 3 : length, false);
    }
    *text = g->valid.text;
    *bytes = g->valid.used;
    return EXL2_OK;
}

/* Runs the normalizer over *v. Each step is charged for the bytes that it reads, or writes if that is more. */
EXL2__PRIVATE exl2_result exl2__template_guard_normalize(exl2__template_guard_state *g, const exl2__normal_rules *rules,
                                                         exl2__normal_text buffers[2], exl2__normal_view *v)
{
    exl2__normal_rules one = *rules;
    one.count = 1;
    for (uint32_t i = 0; i < rules->count; i++) {
        if (v->bytes > g->allowed) {
            return exl2__fail(g->c, EXL2_ERR_FORMAT,
                              "tokenizer.json: the normalizer makes too much work of the chat template: more than %u "
                              "times its bytes and %u MiB", EXL2__TEMPLATE_GUARD_TIMES,
                              EXL2__TEMPLATE_GUARD_EXTRA >> 20);
        }
        one.steps[0] = rules->steps[i];
        EXL2__TRY(exl2__normal_run(g->c, &one, buffers, v, &g->allowed));
    }
    return EXL2_OK;
}

/* Guards the tokens in a text that the template may print. Raw tokens are searched in the text itself, normalized ones
   in its normalized form. The normalizer starts anew after the text of a message, and any offset may follow one, so
   each offset is searched with `front` before it, too. */
EXL2__PRIVATE exl2_result exl2__template_guard_text(exl2__template_guard_state *g, const char *text, size_t bytes)
{
    static const exl2__normal_view nothing = { 0 };
    const exl2__added *added = &g->v->added;
    exl2__template_guard_search(g, 0, &nothing, text, bytes, false);
    if (added->raw_count == added->count || bytes == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__template_guard_repair(g, &text, &bytes));
    exl2__normal_view view = { text, bytes, NULL, 0 };
    EXL2__TRY(exl2__template_guard_normalize(g, &g->inner, g->rewritten, &view));
    exl2__template_guard_search(g, 1, &nothing, view.text, view.bytes, false);
    if (g->front.bytes) {
        exl2__template_guard_search(g, 1, &g->front, view.text, view.bytes, false);
    }
    return EXL2_OK;
}

/* Splits the normalizer into the steps that change a text anywhere (inner) and the text that it prepends (front). */
EXL2__PRIVATE exl2_result exl2__template_guard_normalizer(exl2__template_guard_state *g)
{
    static const char probe[] = EXL2__TEMPLATE_GUARD_NOTHING;
    exl2__normal_rules outer = g->v->normal;
    outer.count = 0;
    g->inner = outer;
    for (uint32_t i = 0; i < g->v->normal.count; i++) {
        const exl2__normal_step *s = &g->v->normal.steps[i];
        if (s->kind != EXL2__NORMAL_STRIP) {
            outer.steps[outer.count++] = *s;
        }
        if (s->kind != EXL2__NORMAL_STRIP && s->kind != EXL2__NORMAL_PREPEND) {
            g->inner.steps[g->inner.count++] = *s;
        }
    }
    exl2__normal_view view = { probe, sizeof probe - 1, NULL, 0 };
    EXL2__TRY(exl2__template_guard_normalize(g, &outer, g->fronts, &view));
    bool kept = view.bytes > 3 && memcmp(view.text + view.bytes - 3, probe, 3) == 0;
    g->front = (exl2__normal_view){ view.text, kept ? view.bytes - 3 : 0, NULL, 0 };
    return EXL2_OK;
}

/* The constant text that an instruction prints or pushes. */
EXL2__PRIVATE size_t exl2__template_guard_constant(const exl2__template *t, const exl2__template_ins *ins,
                                                   const char **text)
{
    bool constant = ins->op == EXL2__TEMPLATE_WRITE || ins->op == EXL2__TEMPLATE_TEXT;
    *text = constant ? t->text + ins->a : "";
    return constant ? ins->b : 0;
}

/* Guards the tokens in each constant, then in all constants joined, because `+`, `~` and statements can join them. */
EXL2__PRIVATE exl2_result exl2__template_guard_constants(exl2__template_guard_state *g, const exl2__template *t)
{
    const char *text;
    void *memory = NULL;
    uint64_t bytes = 0, used = 0;
    for (const exl2__template_ins *ins = t->code; ins->op != EXL2__TEMPLATE_END; ins++) {
        bytes += exl2__template_guard_constant(t, ins, &text);
    }
    if (bytes == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__alloc(g->c, bytes, 16, EXL2_MEM_SCRATCH, &memory));
    char *joined = (char *)memory;
    exl2_result result = EXL2_OK;
    for (const exl2__template_ins *ins = t->code; ins->op != EXL2__TEMPLATE_END && result == EXL2_OK; ins++) {
        size_t length = exl2__template_guard_constant(t, ins, &text);
        memcpy(joined + used, text, length);
        used += length;
        result = exl2__template_guard_text(g, text, length);
    }
    if (result == EXL2_OK) {
        result = exl2__template_guard_text(g, joined, (size_t)bytes);
    }
    exl2__free(g->c, memory, bytes, EXL2_MEM_SCRATCH);
    return result;
}

/* Guards the tokens that the template prints through variables such as eos_token. */
EXL2__PRIVATE exl2_result exl2__template_guard_names(exl2__template_guard_state *g, const exl2__template *t)
{
    static const char *const names[] = { "bos_token", "eos_token", "unk_token", "pad_token" };
    const char *const texts[] = { g->v->bos_text, g->v->eos_text, g->v->unk_text, g->v->pad_text, NULL };
    for (uint32_t i = 0; i < t->name_count; i++) {
        for (size_t role = 0; role < EXL2__COUNT(names); role++) {
            const exl2__template_name *name = &t->names[i];
            if (texts[role] && exl2__template_same(t->text + name->at, name->bytes, names[role])) {
                EXL2__TRY(exl2__template_guard_text(g, texts[role], strlen(texts[role])));
            }
        }
    }
    return EXL2_OK;
}

/* Renders a conversation in which the text of each message is one character that no token contains. false: the render
   failed. */
EXL2__PRIVATE bool exl2__template_guard_render(exl2__template_guard_state *g, const exl2__template *t, uint32_t shape,
                                               void *block, const char **text, size_t *bytes, const uint8_t **marks)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool", "user" };
    static const char *const tools = "[{\"type\": \"function\", \"function\": {\"name\": \"\"}}]";
    const exl2_chat_desc chat = { .now = "2025-01-01 00:00:00", .tools = shape == 2 ? tools : NULL };
    exl2_message messages[EXL2__COUNT(roles)] = { { 0 } };
    exl2__template_input in = { messages, 0, &chat, g->v->bos_text, g->v->eos_text, g->v->unk_text, g->v->pad_text,
                                NULL, NULL, NULL, NULL };
    for (size_t i = 0; i < EXL2__COUNT(roles); i++) {
        if (shape == 2 || (shape == 1 && i != 3) || (shape == 0 && i == 1)) {
            messages[in.message_count].role = roles[i];
            messages[in.message_count++].text = EXL2__TEMPLATE_GUARD_NOTHING;
        }
    }
    return exl2__template_probe_render(g->c, t, &in, EXL2__TEMPLATE_PROBE_STEPS, block, text, bytes, marks);
}

/* Guards the tokens in text that the template computes, such as 'user' | upper. Three conversations are rendered (a
   question, several turns, a tool's result), and the text that does not come from messages is searched. */
EXL2__PRIVATE exl2_result exl2__template_guard_probes(exl2__template_guard_state *g, const exl2__template *t)
{
    void *block = NULL;
    EXL2__TRY(exl2__alloc(g->c, EXL2__TEMPLATE_PROBE_BYTES, 16, EXL2_MEM_SCRATCH, &block));
    exl2_result result = EXL2_OK;
    for (uint32_t shape = 0; shape < 3; shape++) {
        const char *text;
        const uint8_t *marks;
        size_t bytes;
        if (!exl2__template_guard_render(g, t, shape, block, &text, &bytes, &marks)) {
            continue;
        }
        for (size_t begin = 0, end; begin < bytes && result == EXL2_OK; begin = end + 1) {
            for (end = begin; end < bytes && !(marks[end / 8] >> end % 8 & 1); end++) {
            }
            result = exl2__template_guard_text(g, text + begin, end - begin);
        }
    }
    exl2__free(g->c, block, EXL2__TEMPLATE_PROBE_BYTES, EXL2_MEM_SCRATCH);
    return result;
}

EXL2__PRIVATE exl2_result exl2__template_guard_all(exl2__template_guard_state *g, const exl2__template *t)
{
    static const exl2__normal_view nothing = { 0 };
    for (uint32_t set = 0; set < 2; set++) {
        exl2__template_guard_search(g, set, &nothing, t->text, t->text_bytes, true);
    }
    EXL2__TRY(exl2__template_guard_text(g, t->text, t->text_bytes));
    EXL2__TRY(exl2__template_guard_constants(g, t));
    EXL2__TRY(exl2__template_guard_names(g, t));
    return exl2__template_guard_probes(g, t);
}

/* Guards the tokens in the strings of a JSON object. */
EXL2__PRIVATE exl2_result exl2__template_guard_strings(exl2__template_guard_state *g, const char *json)
{
    exl2__json j;
    EXL2__TRY(exl2__json_open(g->c, "special_tokens", json, strlen(json), &j));
    void *memory = NULL;
    size_t room = j.bytes + 1; /* enough for each of its strings */
    exl2_result result = exl2__alloc(g->c, room, 16, EXL2_MEM_GENERAL, &memory);
    for (uint32_t i = 0; i < j.token_count && result == EXL2_OK; i++) {
        if (j.tokens[i].kind == EXL2__JSON_STRING) {
            size_t bytes = exl2__json_text(&j, i, (char *)memory, room);
            result = exl2__template_guard_text(g, (const char *)memory, bytes);
        }
    }
    exl2__free(g->c, memory, room, EXL2_MEM_GENERAL);
    exl2__json_close(g->c, &j);
    return result;
}

/* Adds the tokens in the text of the template to the guard or, if `special` is not NULL, the tokens in the
   application's special tokens. */
EXL2__PRIVATE exl2_result exl2__template_guard_add(exl2__ctx *c, const exl2__template *t, const exl2__vocab *v,
                                                   const char *special, uint32_t *guard)
{
    exl2__template_guard_state g = { .c = c, .v = v, .guard = guard };
    g.allowed = special ? exl2__normal_allowance(strlen(special)) * EXL2__NORMAL_STEPS_MAX
                        : (uint64_t)t->text_bytes * EXL2__TEMPLATE_GUARD_TIMES + EXL2__TEMPLATE_GUARD_EXTRA;
    g.rewritten[0] = exl2__normal_borrow(v->rewritten[0], EXL2__VOCAB_NORMAL_BYTES);
    g.rewritten[1] = exl2__normal_borrow(v->rewritten[1], EXL2__VOCAB_NORMAL_BYTES);
    exl2_result result = exl2__template_guard_normalizer(&g);
    if (result == EXL2_OK) {
        result = special ? exl2__template_guard_strings(&g, special) : exl2__template_guard_all(&g, t);
    }
    exl2__normal_free(c, &g.valid);
    for (int i = 0; i < 2; i++) {
        exl2__normal_free(c, &g.rewritten[i]);
        exl2__normal_free(c, &g.fronts[i]);
    }
    return result;
}

/* Computes t->guard. Bit i is set if the tokenizer may find its added token i in text that the template prints, such as
   <tool_call> in Qwen's. Text of a message is then not tokenized as that token, even if it is not a special token.
   As in the tokenizer, a normalized token is searched in normalized text. */
EXL2__PRIVATE exl2_result exl2__template_guard(exl2__ctx *c, exl2__template *t, const exl2__vocab *v)
{
    void *memory = NULL;
    uint64_t bytes = (uint64_t)exl2__bit_words(v->added.count) * sizeof *t->guard;
    if (!t->block || bytes == 0 || t->guard) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__alloc(c, bytes, 16, EXL2_MEM_GENERAL, &memory));
    memset(memory, 0, (size_t)bytes);
    t->guard = (uint32_t *)memory;
    t->guard_bytes = bytes;
    return exl2__template_guard_add(c, t, v, NULL, t->guard);
}

/* The guard for a conversation with its own special tokens (a JSON object): a copy of t->guard with more bits set. The
   caller frees its t->guard_bytes bytes, on failure, too. *out NULL: nothing is guarded. */
EXL2__PRIVATE exl2_result exl2__template_guard_special(exl2__ctx *c, const exl2__template *t, const exl2__vocab *v,
                                                       const char *special, uint32_t **out)
{
    void *memory = NULL;
    *out = NULL;
    if (!t->guard) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__alloc(c, t->guard_bytes, 16, EXL2_MEM_GENERAL, &memory));
    memcpy(memory, t->guard, (size_t)t->guard_bytes);
    *out = (uint32_t *)memory;
    return exl2__template_guard_add(c, t, v, special, *out);
}

#endif
