/* api_desc.h: random descs of engines, models, jobs and grammars: mostly valid, sometimes at a limit, rarely invalid.
   takes: api_draw; a shadow model.
   gives: api_make_engine, api_make_model, api_make_job, api_grammar_specs, api_logits.
   owns:  nothing; a job's arrays lie in its api_job_store. */
#ifndef API_DESC_H
#define API_DESC_H

#include "api_hooks.h"

/* ---- engines and models ---- */

/* Caps are tiny, so that they are reached. */
static void api_make_engine(exl2_engine_desc *d)
{
    static const uint32_t models[] = { 1, 2, 3, 4 }, sessions[] = { 1, 2, 3, 5, 8, 16 }, jobs[] = { 1, 2, 3, 4, 8 };
    api.max_models = models[api_draw(EXL2__COUNT(models))];
    api.max_sessions = sessions[api_draw(EXL2__COUNT(sessions))];
    api.max_jobs = jobs[api_draw(EXL2__COUNT(jobs))];
    d->max_models = api.max_models;
    d->max_sessions = api.max_sessions;
    d->max_jobs = api.max_jobs;
    d->max_events = api_chance(2) ? 1 : api_draw(400);
    d->host_bytes_max = api_chance(6) ? 200000 + 50000ull * api_draw(200) : 0;
    if (api_chance(3)) {
        d->parallel = (exl2_parallel){ 0 };
    }
    if (api_chance(4)) {
        d->zones = (exl2_zones){ 0 };
    }
    if (api_chance(4)) {
        d->log.max_level = (exl2_log_level)api_draw(5);
    }
    if (api.cuda) {
        d->devices = api.picks;
        d->device_count = 1 + api_draw(API_CARDS);
    }
}

static exl2_flow api_hear_load(void *user, const exl2_event *event);

/* Where the model lies: on the engine's first GPU, on another one, or on several, by layers or by columns. */
static void api_make_cards(exl2_model_desc *d, exl2_card cards[API_CARDS])
{
    uint32_t first = api_draw(API_CARDS);
    if (!api.cuda || api_chance(2)) {
        return;
    }
    if (api_chance(8)) {
        d->split_auto = true;
        return;
    }
    d->cards = cards;
    d->card_count = 1 + api_draw(api.desc.device_count);
    d->split = d->card_count > 1 && api_chance(2) ? EXL2_SPLIT_COLUMNS : EXL2_SPLIT_LAYERS;
    bool shares = api_chance(3), capped = api_chance(8);
    for (uint32_t i = 0; i < d->card_count; i++) {
        cards[i].device = (first + i) % api.desc.device_count;
        cards[i].share = shares ? 0.5f + (float)api_draw(4) : 0;
        cards[i].bytes_max = capped ? 20000ull << api_draw(10) : 0;
    }
    api.columns = api.columns || d->split == EXL2_SPLIT_COLUMNS;
    if (d->split == EXL2_SPLIT_COLUMNS && !api_chance(8)) {
        d->offload = EXL2_OFFLOAD_NONE;
        d->host_mlps = 0;
        d->host_prompts = false;
    }
}

/* Whether exl2_model_open may refuse where the model is to lie, or loading may find too little room there. */
static bool api_cards_refuse(const exl2_model_desc *d, exl2_result r)
{
    bool columns = d->split == EXL2_SPLIT_COLUMNS, capped = false;
    for (uint32_t i = 0; i < d->card_count; i++) {
        capped = capped || d->cards[i].bytes_max;
    }
    return (r == EXL2_ERR_UNSUPPORTED && columns && (d->offload != EXL2_OFFLOAD_NONE || !api.peers))
        || (r == EXL2_ERR_ARG && !columns && d->card_count > 1) /* more cards than layers */
        || (r == EXL2_ERR_BUDGET && capped);
}

static void api_make_model(exl2_model_desc *d, exl2_card cards[API_CARDS])
{
    static const api_folder folders[] = { API_TEXT_FOLDER, API_TEXT_FOLDER, API_TEXT_FOLDER, API_TEXT_FOLDER, API_PLAIN,
                                          API_MADE, API_MADE, API_ROPE, API_EXPERTS, API_WORDS, API_SMOL, API_SMOL,
                                          API_QWEN, API_GEMMA };
    static const uint32_t contexts[] = { 0, 64, 100, 128, 192, 256 }, chunks[] = { 0, 1, 7, 16, 32, 200 };
    static const uint32_t batches[] = { 0, 1, 1, 2, 3, 8 }, caches[] = { 0, 1, 64, 128, 192, 300, 1024 };
    api_folder folder = folders[api_draw(EXL2__COUNT(folders))];
    bool blind = !api_has_sight || (api.cuda && api_draw(3) > 0); /* towers of the fake driver are slow */
    folder = api_sees(folder) && blind ? API_TEXT_FOLDER : folder;
    folder = api_chance(20) ? (api_folder)(API_CUT + api_draw(3)) : folder;
    d->path = api_folders[folder];
    d->text_only = folder == API_WORDS || (folder == API_TEXT_FOLDER && api_chance(6)) || api_chance(40);
    d->context_max = contexts[api_draw(EXL2__COUNT(contexts))];
    d->prefill_chunk = chunks[api_draw(EXL2__COUNT(chunks))];
    d->batch_max = batches[api_draw(EXL2__COUNT(batches))];
    d->cache.tokens = caches[api_draw(EXL2__COUNT(caches))];
    d->cache.host_bytes = api_chance(20) ? 4u << 20 : 0;
    d->cache.format = api_chance(3) ? (exl2_kv)api_draw(4) : EXL2_KV_FP16;
    d->grammars = api_chance(3);
    d->keep_packed = api_chance(3);
    if (api_chance(4)) {
        float *rope = api_chance(2) ? &d->rope_scale : api_chance(2) ? &d->rope_alpha : &d->yarn_factor;
        *rope = 1.5f + (float)api_draw(3);
    }
    d->experts_active = folder == API_EXPERTS ? api_draw(4) : 0;
    d->offload = api_chance(3) ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE;
    d->host_mlps = d->offload == EXL2_OFFLOAD_AUTO ? api_draw(4) : 0;
    d->host_prompts = d->offload == EXL2_OFFLOAD_AUTO && api_chance(3);
    d->on_event = api_chance(2) ? api_hear_load : NULL;
    d->steer_max = !api.cuda && api_chance(2) ? 1 + api_draw(3) : 0;
    if (api_sees(folder) && !api_chance(5)) {
        d->vision.images = 1 + api_draw(4);
        d->vision.pixels_max = 10000 + api_draw(30000);
        d->vision.max_tiles = api_chance(3) ? 1 + api_draw(2) : 0;
        d->vision.max_rows = api_chance(4) ? 32 : 0;
        d->vision.rows = d->vision.max_rows && api_chance(2) ? 32 + api_draw(64) : 0;
    }
    d->lora_max = folder == API_TEXT_FOLDER && api_chance(2) ? 1 + api_draw(3) : 0;
    api_make_cards(d, cards);
}

/* ---- grammars ---- */

typedef struct api_grammar_spec {
    exl2_grammar_kind kind;
    const char *source;
} api_grammar_spec;

static const api_grammar_spec api_grammar_specs[] = {
    { EXL2_GRAMMAR_JSON, NULL },
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"enum\":"
                                "[\"x\",\"y\"]}},\"required\":[\"a\"]}" },
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":4}" },
    { EXL2_GRAMMAR_REGEX, "(ab|abc)+" },
    { EXL2_GRAMMAR_REGEX, "[a-z]{1,40}" },
    { EXL2_GRAMMAR_REGEX, "\xC3\xA9*|." },
    { EXL2_GRAMMAR_EBNF, "root ::= \"a\" root | \"b\"" },
    { EXL2_GRAMMAR_EBNF, "root ::= x{2,5} \"END\"\nx ::= [ab] | \"hi\"" },
    { EXL2_GRAMMAR_CHOICES, "ab\nabc\nstop\nthe end" },
    { EXL2_GRAMMAR_CHOICES, "one" },
    { EXL2_GRAMMAR_CUSTOM, NULL },
    { EXL2_GRAMMAR_CUSTOM, NULL },
    { EXL2_GRAMMAR_REGEX, "(" }, /* this one and all that follow are rejected */
    { EXL2_GRAMMAR_JSON_SCHEMA, "{\"type\":" },
    { EXL2_GRAMMAR_EBNF, "root ::= root \"a\"" },
    { EXL2_GRAMMAR_CHOICES, "" },
};

#define API_GRAMMARS_GOOD 12u

static bool api_allow(void *user, exl2_job job, const exl2_token *said, uint32_t n, uint32_t *bits, uint32_t words);

/* ---- jobs ---- */

static const char *const api_words[] = { "a", "ab", "the end", "hello world", "\xC3\xA9", "<|im_end|>", "<s>x",
                                         "stop", "zz", " ", "a b c", "true" };

static exl2_token api_make_token(const api_model *m)
{
    uint32_t vocab = m && m->vocab ? m->vocab : 64;
    if (api_chance(60)) {
        return (exl2_token)(api_chance(2) ? vocab : api_draw(1000000)) - 5;
    }
    return (exl2_token)api_draw(vocab);
}

/* Writes some words. Now and then one byte is not valid UTF-8 (*irregular). */
static void api_make_text(char *out, size_t cap, uint32_t words, bool *irregular)
{
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < words; i++) {
        int more = snprintf(out + used, cap - used, "%s%s", i ? " " : "", api_words[api_draw(EXL2__COUNT(api_words))]);
        used += more > 0 && (size_t)more < cap - used ? (size_t)more : 0;
        out[used] = 0;
    }
    if (used > 4 && api_chance(30)) {
        out[api_draw((uint32_t)used)] = (char)(0x80 + api_draw(0x80));
        *irregular = true;
    }
}

static void api_make_sampler(exl2_sampler_desc *d, api_job_store *s, const api_model *m)
{
    d->preset = (exl2_preset)api_draw(4);
    d->seed = api_chance(5) ? 0 : 1 + api_draw(1000);
    d->top_k = api_chance(4) ? (int32_t)api_draw(20) : 0;
    d->temperature = api_chance(4) ? 0.1f * (float)api_draw(30) : 0;
    d->top_p = api_chance(5) ? 0.1f * (float)(1 + api_draw(10)) : 0;
    d->min_p = api_chance(5) ? 0.02f * (float)api_draw(10) : 0;
    d->repeat_penalty = api_chance(4) ? 1.0f + 0.1f * (float)api_draw(8) : 0;
    d->penalty_range = api_chance(4) ? (int32_t)api_draw(50) - 1 : 0;
    if (api_chance(4)) { /* settings that only the CPU samples */
        d->typical = api_chance(2) ? 0.9f : 0;
        d->top_a = api_chance(3) ? 0.2f : 0;
        d->tail_free = api_chance(3) ? 0.9f : 0;
        d->smoothing = api_chance(3) ? 0.1f : 0;
        d->skew = api_chance(3) ? 0.5f : 0;
        d->frequency_penalty = api_chance(2) ? 0.3f : 0;
        d->presence_penalty = api_chance(2) ? 0.3f : 0;
        d->penalty_decay = api_chance(3) ? 10 : 0;
        d->dry_multiplier = api_chance(2) ? 0.8f : 0;
        d->xtc_probability = api_chance(3) ? 0.5f : 0;
        d->mirostat_tau = api_chance(3) ? 3.0f : 0;
        bool both = api_chance(20); /* which is an error */
        d->adaptive_target = api_chance(3) && (d->mirostat_tau <= 0 || both) ? 0.1f * (float)api_draw(11) : 0;
        d->adaptive_decay = api_chance(3) ? api_chance(2) ? 0.5f : EXL2_OFF : 0;
        d->temperature_last = api_chance(3);
        d->dynamic_min = api_chance(4) ? 0.5f : 0;
        d->dynamic_max = d->dynamic_min > 0 ? 1.5f : 0;
        for (uint32_t i = 0; i < 2; i++) {
            snprintf(s->breakers[i], sizeof s->breakers[i], "%s", i ? "." : "\n");
            s->breaker_list[i] = s->breakers[i];
        }
        d->dry_breakers = api_chance(2) ? s->breaker_list : NULL;
        d->dry_breaker_count = d->dry_breakers ? 1 + api_draw(2) : 0;
        d->xtc_keep_count = api_draw(4);
        d->xtc_keep = d->xtc_keep_count ? s->keep : NULL;
        for (uint32_t i = 0; i < 4; i++) {
            s->keep[i] = api_make_token(m);
        }
    }
    if (api_chance(4)) {
        d->bias_count = 1 + api_draw(8);
        d->bias = s->bias;
        for (uint32_t i = 0; i < d->bias_count; i++) {
            float add = api_chance(5) ? -INFINITY : (float)api_draw(400) / 10 - 10;
            s->bias[i] = (exl2_bias){ api_make_token(m), add };
        }
    }
    if (api_chance(12)) {
        d->allow_count = 1 + api_draw(40);
        d->allow = s->allow;
        for (uint32_t i = 0; i < d->allow_count; i++) {
            s->allow[i] = api_make_token(m);
        }
    }
    if (api_chance(10)) {
        d->ban_count = 1 + api_draw(8);
        d->ban = s->ban;
        for (uint32_t i = 0; i < d->ban_count; i++) {
            s->ban[i] = api_make_token(m);
        }
    }
    if (api_chance(60)) {
        d->top_p = -3;
    } else if (api_chance(60)) {
        d->temperature = NAN;
    }
}

static void api_make_messages(exl2_message *messages, uint32_t count, char words[][96], bool *irregular)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    for (uint32_t i = 0; i < count; i++) {
        api_make_text(words[i], sizeof words[i], 1 + api_draw(4), irregular);
        messages[i] = (exl2_message){ .role = roles[api_draw(4)], .text = api_chance(30) ? NULL : words[i] };
        if (api_chance(30)) {
            messages[i].fields = api_chance(2) ? "{\"x\": [1, 2]}" : "{\"x\": ";
        }
        if (api_chance(60)) {
            messages[i].role = NULL;
        }
    }
}

static void api_make_prompt(api_job_store *s, const api_model *m)
{
    exl2_job_desc *d = &s->d;
    bool has_text = m && m->has_text;
    uint32_t kind = has_text ? api_draw(4) : 0;
    kind = api_chance(40) ? api_draw(4) : kind;
    if (kind == 1) {
        api_make_text(s->prompt, sizeof s->prompt, api_draw(api_chance(6) ? 60 : 8), &s->irregular);
        d->prompt.text = s->prompt;
        d->prompt.text_bytes = api_chance(3) ? strlen(s->prompt) : 0;
        d->prompt.flags = api_chance(3) ? api_draw(4) : 0;
    } else if (kind == 2) {
        d->prompt.message_count = 1 + api_draw(4);
        d->prompt.messages = s->messages;
        api_make_messages(s->messages, (uint32_t)d->prompt.message_count, s->words, &s->irregular);
        d->chat.now = "2026-01-02 03:04:05";
        d->chat.template_text = api_chance(15) ? "{{ messages[0].content }}" : api_chance(60) ? "{% if %}" : NULL;
        d->chat.template_name = api_chance(40) ? "nobody" : NULL;
        d->chat.tools = api_chance(20) ? "[{\"type\": \"function\"}]" : api_chance(60) ? "[" : NULL;
        d->chat.close_reply = api_chance(8);
        d->chat.begun_reply = api_chance(6);
        s->irregular = s->irregular || d->chat.template_text != NULL || d->chat.begun_reply;
    } else {
        d->prompt.token_count = api_draw(api_chance(6) ? api_chance(3) ? API_PROMPT : 120 : 12);
        d->prompt.tokens = d->prompt.token_count || api_chance(2) ? s->tokens : NULL;
        for (uint32_t i = 0; i < d->prompt.token_count; i++) {
            s->tokens[i] = api_make_token(m);
        }
        if (api_chance(3)) { /* a prompt that many jobs share, so that common prefixes are found */
            for (uint32_t i = 0; i < d->prompt.token_count; i++) {
                s->tokens[i] = (exl2_token)(5 + i % 7);
            }
        }
    }
    if (kind != 1 && api_chance(kind == 2 ? 5 : 60)) { /* after messages; with ids it is an error */
        snprintf(s->prompt, sizeof s->prompt, "both");
        d->prompt.text = s->prompt;
        s->irregular = s->irregular || kind == 2;
    }
}

static void api_make_ends(api_job_store *s, const api_model *m)
{
    static const char *const strings[] = { "a", "b", "ab", "abd", "END", "e", "zz", "th", "\n", "\xC3\xA9", "stop" };
    exl2_job_desc *d = &s->d;
    bool dear = api_chance(30); /* one stop string is empty or not UTF-8 */
    if (api_chance(3)) {
        d->stop_string_count = 1 + api_draw(4);
        d->stop_strings = s->stop_list;
        for (uint32_t i = 0; i < d->stop_string_count; i++) {
            snprintf(s->stops[i], sizeof s->stops[i], "%s", strings[api_draw(EXL2__COUNT(strings))]);
            s->stop_list[i] = s->stops[i];
        }
        s->stops[0][0] = dear ? api_chance(2) ? (char)0 : (char)0xC3 : s->stops[0][0];
    }
    if (api_chance(4)) {
        d->ban_string_count = 1 + api_draw(4);
        d->ban_strings = s->ban_list;
        for (uint32_t i = 0; i < d->ban_string_count; i++) {
            snprintf(s->bans[i], sizeof s->bans[i], "%s", strings[api_draw(EXL2__COUNT(strings))]);
            s->ban_list[i] = s->bans[i];
        }
    }
    if (api_chance(6)) {
        d->stop_token_count = 1 + api_draw(4);
        d->stop_tokens = s->stop_tokens;
        for (uint32_t i = 0; i < d->stop_token_count; i++) {
            s->stop_tokens[i] = api_make_token(m);
        }
    }
}

static void api_logits(void *user, exl2_job job, float *logits, uint32_t vocab);
static exl2_token api_token(void *user, exl2_job job, uint32_t position, exl2_token token);

/* Turns a job into one that makes a vector; now and then with a setting that such a job must not have. */
static void api_make_embed(api_job_store *s)
{
    exl2_job_desc *d = &s->d;
    d->embed.pool = (exl2_embed_pool)(1 + api_draw(3));
    d->embed.raw = api_chance(3);
    d->embed.layer = api_chance(3) ? api_draw(4) : 0;
    if (api_chance(20)) {
        return;
    }
    d->prefill_only = true;
    d->score_prompt = d->heal_prompt = d->draft.ngram = false;
    d->max_tokens = d->min_tokens = d->alts_per_token = 0;
    d->guidance = 0;
    d->negative_prompt = (exl2_prompt){ 0 };
    d->on_logits = NULL;
    d->on_token = NULL;
    s->edit = 0;
}

/* Makes a job's desc, always the same one for the same `sub_seed`. The caller sets sessions, grammar and callbacks. */
static void api_make_job(api_job_store *s, const api_model *m, uint64_t sub_seed)
{
    uint64_t outer = api.random;
    exl2_job_desc *d = &s->d;
    memset(s, 0, sizeof *s);
    api.random = sub_seed;
    api_make_prompt(s, m);
    api_make_sampler(&d->sampler, s, m);
    api_make_ends(s, m);
    d->max_tokens = api_chance(8) ? 0 : 1 + api_draw(api_chance(5) ? 100 : 12);
    d->min_tokens = api_chance(8) ? api_draw(12) : 0;
    d->reserve = api_chance(4) ? 1 + api_draw(api_chance(10) ? 1000 : 80) : 0;
    d->prefill_only = api_chance(14);
    d->score_prompt = api_chance(6);
    d->show_markers = api_chance(4);
    d->heal_prompt = api_chance(6);
    d->alts_per_token = api_chance(5) ? api_draw(6) : api_chance(10) ? EXL2_ALTS_MAX : 0;
    d->draft.one_by_one = api_chance(3);
    d->loop_stop = api_chance(5) ? 2 + api_draw(3) : 0;
    d->priority = api_chance(4) ? (int32_t)api_draw(5) - 2 : 0;
    if (api_chance(10)) {
        s->edit = 1 + api_draw(4);
        s->edited = (exl2_token)api_draw(64);
        d->on_logits = api_logits;
    }
    if (api_chance(12)) {
        s->replaces = api_draw(8);
        d->on_token = api_token;
    }
    if (m && api_chance(10)) {
        d->guidance = 0.5f * (float)((int32_t)api_draw(9) - 2);
        if (m->has_text && api_chance(3)) {
            api_make_messages(s->negatives, 1 + api_draw(2), s->words + 2, &s->irregular);
            d->negative_prompt.messages = s->negatives;
            d->negative_prompt.message_count = 1;
        } else if (m->has_text) {
            api_make_text(s->negative, sizeof s->negative, 1 + api_draw(3), &s->irregular);
            d->negative_prompt.text = s->negative;
        }
    }
    d->draft.ngram = api_chance(2) && !(d->guidance < 0 || d->guidance > 0);
    if (api_chance(8)) {
        api_make_embed(s);
    }
    s->irregular = s->irregular || d->guidance < 0 || d->guidance > 0;
    if (api_chance(150)) {
        *(api_chance(2) ? &d->_end_canary : api_chance(2) ? &d->chat._start_canary
          : api_chance(2) ? &d->draft._end_canary : &d->sampler._end_canary) = 1;
    } else if (api_chance(150)) {
        d->alts_per_token = 1000;
    } else if (api_chance(150)) {
        d->stop_tokens = NULL;
        d->stop_token_count = 3;
    } else if (api_chance(100)) {
        d->max_tokens = 100000;
    }
    api.random = outer;
}

#endif
