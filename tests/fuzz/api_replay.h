/* api_replay.h: runs jobs again, each alone, in an engine with other caps in which nothing fails. The same ids, seed
   and settings must generate the same tokens, also where forced ones are sampled now, or the other way round.
   takes: the records of a sequence whose engine is closed.
   gives: api_replay_some.
   owns:  an engine, while it runs. */
#ifndef API_REPLAY_H
#define API_REPLAY_H

#include "api_calls.h"

/* Opens a session with this history. */
static exl2_session api_replay_session(exl2_model m, const exl2_token *history, uint32_t count)
{
    exl2_session s = { 0 };
    exl2_job_desc d = { .prompt = { .tokens = history, .token_count = count }, .prefill_only = true };
    exl2_result r = API_CALL(session_open, exl2_session_open(api.e, m, &s));
    API_MUST(r == EXL2_OK, "replay: exl2_session_open gives %s", exl2_result_name(r));
    d.session = s;
    if (count) {
        r = API_CALL(generate, exl2_generate(api.e, &d));
        API_MUST(r == EXL2_OK, "replay: prefill of %u tokens gives %s", count, exl2_result_name(r));
    }
    return s;
}

static bool api_can_replay(const api_job *job)
{
    const exl2_job_desc *d = &job->store.d; /* the other engine has no adapters, vectors or pictures, and one grammar */
    bool ended = d->lora_count == 0 && d->steer_count == 0 && d->grammar_count == 0 && !job->had_pictures;
    ended = ended && (job->result == EXL2_OK || job->result == EXL2_ERR_CANCELLED);
    return job->done && !job->dropped && ended && (job->said_count || job->result == EXL2_OK);
}

static void api_compare(const api_job *was, const api_job *now)
{
    bool whole = was->result == EXL2_OK && was->stop != EXL2_STOP_CALLBACK;
    uint32_t count = was->said_count;
    API_MUST(now->done, "replay of job %u: no DONE", was->number);
    API_MUST(now->said_count >= count && api_same(now->said, count, was->said, count),
             "replay of job %u says other tokens (%u then, %u now)", was->number, count, now->said_count);
    API_MUST(!whole || (now->result == EXL2_OK && now->stop == was->stop && now->said_count == count),
             "replay of job %u ends otherwise: %u tokens, stop %d then; %u, stop %d now (%s)", was->number, count,
             (int)was->stop, now->said_count, (int)now->stop, now->error);
    /* Kernels of the fake driver write no residual: rows of an earlier picture are still there. */
    bool left = api.cuda && was->settings.vision.images > 0;
    bool same = now->vectors == was->vectors && (left || now->vector_hash == was->vector_hash);
    API_MUST(!whole || same, "replay of job %u has another vector", was->number);
    whole = whole && was->has_text; /* false if opening tokenizer.json failed */
    API_MUST(!whole || (now->text_bytes == was->text_bytes && memcmp(now->text, was->text, was->text_bytes) == 0),
             "replay of job %u says another text", was->number);
}

static void api_replay(const api_job *was)
{
    exl2_error error = { EXL2_OK, 0, "" };
    exl2_model m = { 0 };
    exl2_grammar g = { 0 };
    api_make_machine();
    api.device_faulted = false;
    api.allocations = 0;
    exl2_engine_desc desc = api_engine_desc(&error);
    exl2_model_desc md = was->settings;
    md.prefill_chunk = 1 + api_draw(200);
    md.batch_max = 2 + api_draw(3);
    md.cache.tokens = 2048;
    md.vision.images = md.vision.images ? API_JOB_IMAGES : 0;
    md.vision.pixels_max = md.vision.rows = 0;
    md.on_event = NULL;
    md.user = NULL;
    md.cards = NULL; /* on one GPU, wherever it was */
    md.card_count = 0;
    md.split = EXL2_SPLIT_LAYERS;
    md.split_auto = false;
    exl2_result r = API_CALL(open, exl2_open(&desc, &api.e));
    API_MUST(r == EXL2_OK, "replay: exl2_open gives %s", exl2_result_name(r));
    r = API_CALL(model_load, exl2_model_load(api.e, &md, &m));
    API_MUST(r == EXL2_OK, "replay: exl2_model_load gives %s", exl2_result_name(r));
    api_job *now = api_new_job();
    now->replay = true;
    now->number = was->number;
    now->model_id = m.id;
    now->vocab = was->vocab;
    now->has_text = was->has_text;
    now->store = was->store;
    now->grammar_spec = was->grammar_spec;
    exl2_job_desc *d = &now->store.d;
    *d = was->store.d;
    d->on_event = api_hear;
    d->user = now;
    d->sampler.seed = was->stats.seed;
    d->draft.one_by_one = api_chance(2);
    d->draft.ngram = api_chance(2) && !(d->guidance < 0 || d->guidance > 0) && d->embed.pool == EXL2_EMBED_OFF;
    d->draft.model.id = 0;
    d->model.id = was->session_id ? 0 : m.id;
    d->session.id = d->negative_session.id = d->grammar.id = 0;
    for (uint32_t i = 0; i < now->store.image_count; i++) {
        r = api_make_image(m, &was->recipes[i], NULL, &now->store.images[i]);
        API_MUST(r == EXL2_OK, "replay: exl2_image_make gives %s", exl2_result_name(r));
    }
    for (uint32_t i = 0; i < d->prompt.message_count && d->prompt.messages; i++) {
        exl2_message *message = &now->store.messages[i];
        message->images = message->image_count ? now->store.images : NULL;
    }
    d->prompt.messages = d->prompt.messages ? now->store.messages : NULL;
    d->prompt.images = d->prompt.image_count ? now->store.images : NULL;
    if (was->session_id) {
        d->session = api_replay_session(m, was->before, was->before_count);
    }
    if (was->negative_id) {
        d->negative_session = api_replay_session(m, was->negative_before, was->negative_before_count);
    }
    if (was->grammar_spec) {
        const api_grammar_spec *spec = &api_grammar_specs[was->grammar_spec - 1];
        exl2_grammar_desc gd = { .model = m, .kind = spec->kind, .source = spec->source, .allow = api_allow,
                                 .user = (void *)(uintptr_t)spec };
        r = API_CALL(grammar_make, exl2_grammar_make(api.e, &gd, &g));
        API_MUST(r == EXL2_OK, "replay: exl2_grammar_make gives %s", exl2_result_name(r));
        d->grammar = g;
    }
    api_begin_more(API_generate, true);
    r = exl2_generate(api.e, d);
    api_leave();
    api_trace("(replay of job %u: %s, %u tokens)", was->number, exl2_result_name(r), now->said_count);
    api_compare(was, now);
    api_shared->seen_again += was->store.image_count > 0;
    free(now);
    api_close_engine();
    api_shared->replays++;
}

/* Replays at most `most` of the jobs, chosen at random. */
static void api_replay_some(uint32_t most)
{
    api.quiet = true;
    for (uint32_t i = 0; i < most && api.job_count; i++) {
        uint32_t at = api_draw(api.job_count);
        for (uint32_t k = 0; k < api.job_count; k++) {
            const api_job *job = api.jobs[(at + k) % api.job_count];
            if (api_can_replay(job)) {
                api_replay(job);
                break;
            }
        }
    }
    api.quiet = false;
}

#endif
