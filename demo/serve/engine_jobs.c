/* engine_jobs.c: the engine's thread starts jobs: first those that follow another one in its session, then the batches
   in the order in which they came.
   takes: the lists of the engine's thread.
   gives: engine_start_waiting, engine_forget_grammars of engine_inside.h; engine_ids of engine_thread.h.
   owns:  the compiled grammars that are kept. */
#include "../common/clock.h"
#include "buffer.h"
#include "engine_inside.h"

#include <stdlib.h>
#include <string.h>

#define RUN_RESERVE 256u /* texts are mostly shorter than the context, which is the limit of many requests */

typedef struct refusal { /* why a run cannot start */
    exl2_result result;
    engine_refusal by;
    const char *why; /* NULL: the engine's newest error */
    uint32_t prompt_tokens, context_max;
} refusal;

static void refuse(engine_thread *t, engine_run *run, const refusal *r)
{
    exl2_error error;
    exl2_last_error(t->host->engine, &error);
    const char *why = r->why ? r->why : error.text;
    lock_take(&t->lock);
    engine_put(t, run, &(engine_record){ .kind = ENGINE_REFUSED, .result = r->result, .refusal = r->by, .text = why,
                                         .bytes = strlen(why), .prompt_tokens = r->prompt_tokens,
                                         .context_max = r->context_max });
    engine_give_slots(t, run);
    lock_release(&t->lock);
}

/* ---- grammars ---- */

static void drop_grammar(engine_thread *t, engine_grammar *g)
{
    exl2_grammar_close(t->host->engine, g->handle); /* of a model that was closed: STALE, and nothing happens */
    free(g->source);
    *g = (engine_grammar){ 0 };
}

void engine_forget_grammars(engine_thread *t, exl2_model model)
{
    for (uint32_t i = 0; i < ENGINE_GRAMMARS; i++) {
        if (t->grammars[i].handle.id && (!model.id || t->grammars[i].model.id == model.id)) {
            drop_grammar(t, &t->grammars[i]);
        }
    }
}

static bool is_grammar(const engine_grammar *g, const exl2_grammar_desc *d)
{
    return g->handle.id && g->model.id == d->model.id && g->kind == d->kind && g->strict == d->strict
        && g->prefer_end == d->prefer_end && g->bytes == d->source_bytes
        && (!d->source_bytes || memcmp(g->source, d->source, d->source_bytes) == 0);
}

/* The compiled grammar; a new one takes the place of the one that was used the longest ago. */
static exl2_result take_grammar(engine_thread *t, const exl2_grammar_desc *d, exl2_grammar *out)
{
    engine_grammar *place = &t->grammars[0];
    for (uint32_t i = 0; i < ENGINE_GRAMMARS; i++) {
        engine_grammar *g = &t->grammars[i];
        if (is_grammar(g, d)) {
            g->used = ++t->grammar_uses;
            *out = g->handle;
            return EXL2_OK;
        }
        place = g->used < place->used ? g : place;
    }
    char *source = buffer_copy(d->source ? d->source : "", d->source_bytes);
    if (!source) {
        return EXL2_ERR_MEMORY;
    }
    exl2_result result = exl2_grammar_make(t->host->engine, d, out);
    if (result < 0) {
        free(source);
        return result;
    }
    if (place->handle.id) {
        drop_grammar(t, place);
    }
    *place = (engine_grammar){ *out, d->model, d->kind, d->strict, d->prefer_end, source, d->source_bytes,
                               ++t->grammar_uses };
    return EXL2_OK;
}

/* ---- ids ---- */

#define IDS_MORE 1024u /* ids that most templates stay below, beside those of texts */

/* Ids for which there is room at first: mostly there are fewer than bytes. */
static size_t ids_guess(const exl2_prompt *p)
{
    size_t bytes = p->text_bytes || !p->text ? p->text_bytes : strlen(p->text);
    for (size_t i = 0; i < p->message_count; i++) {
        const exl2_message *m = &p->messages[i];
        bytes += (m->text ? strlen(m->text) : 0) + (m->tool_calls ? strlen(m->tool_calls) : 0);
    }
    return bytes + IDS_MORE;
}

exl2_result engine_ids(exl2_engine *e, exl2_model m, const exl2_prompt *p, const exl2_chat_desc *d, exl2_token **ids,
                       size_t *count)
{
    exl2_result result = EXL2_ERR_TOO_SMALL;
    *ids = NULL;
    *count = ids_guess(p);
    while (result == EXL2_ERR_TOO_SMALL) { /* a second time only where the guess was too low: a text may take seconds */
        size_t room = *count;
        exl2_token *more = realloc(*ids, (room + 1) * sizeof **ids);
        *ids = more ? more : *ids;
        result = more ? exl2_chat_tokenize(e, m, p, d, *ids, room, count) : EXL2_ERR_MEMORY;
    }
    exl2_token *fit = result < 0 ? NULL : realloc(*ids, (*count + 1) * sizeof **ids);
    if (result < 0) {
        free(*ids);
        *ids = NULL;
        *count = 0;
    }
    *ids = fit ? fit : *ids;
    return result;
}

/* ---- pictures ---- */

static void close_pictures(engine_thread *t, engine_batch *b)
{
    for (; b->images_made && b->images_epoch == t->epoch; b->images_made--) {
        exl2_image_close(t->host->engine, b->images[b->images_made - 1]); /* jobs keep what they need */
    }
    b->images_made = 0;
}

/* Makes the pictures of a batch. PENDING: there is room for all only after more steps. A model that is not ready has
   none; then the runs are refused. */
static exl2_result make_pictures(engine_thread *t, engine_batch *b, refusal *r)
{
    exl2_engine *e = t->host->engine;
    exl2_model m = b->runs[0]->load->model;
    b->images_made = b->images_epoch == t->epoch ? b->images_made : 0;
    b->images_epoch = t->epoch;
    uint32_t before = b->images_made;
    while (b->images_made < b->picture_count && m.id && exl2_model_state(e, m) == EXL2_OK) {
        exl2_result result = images_make_one(e, m, &b->pictures[b->images_made], &b->images[b->images_made]);
        bool steps = t->works || b->images_made > before; /* which give back the pixels of pictures */
        if (result == EXL2_ERR_BUDGET && (steps || t->active)) {
            t->try_again = steps;
            return EXL2_PENDING;
        }
        if (result < 0) {
            *r = (refusal){ result, ENGINE_BY_JOB, NULL, 0, 0 };
            return result;
        }
        b->images_made++;
    }
    return EXL2_OK;
}

/* In place of a job: the ids of the prompt of the batch's only run. true: the owner may have freed both already. */
static bool count_ids(engine_thread *t, engine_batch *b, refusal *r)
{
    engine_run *run = b->runs[0];
    exl2_token *ids;
    size_t count;
    const exl2_job_desc *d = &run->desc;
    exl2_result result = engine_ids(t->host->engine, run->load->model, &d->prompt, &d->chat, &ids, &count);
    if (result < 0) {
        *r = (refusal){ result, ENGINE_BY_JOB, result == EXL2_ERR_MEMORY ? "there is no memory left for the ids" : NULL,
                        0, 0 };
        return false;
    }
    close_pictures(t, b);
    lock_take(&t->lock);
    engine_put(t, run, &(engine_record){ .kind = ENGINE_IDS, .text = (const char *)ids, .bytes = count * sizeof *ids });
    engine_put(t, run, &(engine_record){ .kind = ENGINE_DONE });
    engine_give_slots(t, run);
    lock_release(&t->lock);
    free(ids);
    return true;
}

/* ---- one run ---- */

static uint32_t slots_of(const engine_run *run)
{
    return 1u + (run->load->draft != NULL) + (run->desc.guidance > 0);
}

/* Sets what the desc has of this thread: the model, the session, the grammar, the draft. */
static bool fill_desc(engine_thread *t, engine_run *run, refusal *r)
{
    engine_load *l = run->load;
    exl2_job_desc *d = &run->desc;
    if (!l->model.id || exl2_model_state(t->host->engine, l->model) != EXL2_OK) {
        *r = (refusal){ EXL2_ERR_STATE, ENGINE_BY_MODEL, "the model is not ready", 0, 0 };
        return false;
    }
    if (d->lora_count && run->loras_epoch != t->epoch) {
        *r = (refusal){ EXL2_ERR_STATE, ENGINE_BY_MODEL, "the adapters are being loaded again", 0, 0 };
        return false;
    }
    d->user = run;
    d->model = run->keeps_session ? (exl2_model){ 0 } : l->model;
    d->session = run->session;
    bool speaks = d->embed.pool == EXL2_EMBED_OFF;
    d->draft.model = l->draft && speaks && !(d->guidance > 0) ? l->draft->model : (exl2_model){ 0 };
    d->grammar = (exl2_grammar){ 0 };
    run->slots = slots_of(run);
    if (run->has_grammar) {
        run->grammar.model = l->model;
        exl2_result result = take_grammar(t, &run->grammar, &d->grammar);
        if (result < 0) {
            *r = (refusal){ result, ENGINE_BY_GRAMMAR, NULL, 0, 0 };
            return false;
        }
    }
    if (run->keeps_session && !run->session.id) {
        exl2_result result = exl2_session_open(t->host->engine, l->model, &run->session);
        if (result < 0) {
            *r = (refusal){ result, ENGINE_BY_JOB, NULL, 0, 0 };
            return false;
        }
        run->epoch = t->epoch;
        d->session = run->session;
    }
    return true;
}

/* Finds how many tokens may follow the prompt, and sets desc.max_tokens. */
static bool measure(engine_thread *t, engine_run *run, refusal *r)
{
    exl2_job_size size = { 0 };
    bool speaks = run->desc.embed.pool == EXL2_EMBED_OFF;
    if (run->twin && run->twin->checked) {
        run->room = run->twin->room;
    } else {
        exl2_job_desc d = run->desc;
        d.max_tokens = speaks; /* 0 for a vector */
        d.min_tokens = 0;
        d.grammar = (exl2_grammar){ 0 }; /* its shortest text may need more */
        exl2_result result = exl2_job_measure(t->host->engine, &d, &size);
        if (result < 0) {
            *r = (refusal){ result, ENGINE_BY_JOB, NULL, size.prompt_tokens, size.context_max };
            return false;
        }
        run->room = size.context_max + 1 - size.context_tokens;
    }
    if (!speaks) {
        run->checked = true;
        return true;
    }
    bool all = run->max_tokens == 0 || run->max_tokens > run->room;
    run->desc.max_tokens = all ? run->room : run->max_tokens;
    run->desc.reserve = RUN_RESERVE;
    run->desc.min_tokens = run->no_end ? run->desc.max_tokens : run->desc.min_tokens;
    run->checked = true;
    return true;
}

/* Is it refused for the sake of its grammar, whose shortest text does not fit? Then exl2_job_measure says so. */
static bool check(engine_thread *t, engine_run *run, refusal *r)
{
    exl2_job_size size = { 0 };
    if (!fill_desc(t, run, r) || (!run->counts && !measure(t, run, r))) {
        return false;
    }
    if (!run->has_grammar || (run->twin && run->twin->checked && run->twin->has_grammar)) {
        return true;
    }
    exl2_result result = exl2_job_measure(t->host->engine, &run->desc, &size);
    if (result < 0) {
        *r = (refusal){ result, ENGINE_BY_GRAMMAR, NULL, size.prompt_tokens, size.context_max };
    }
    return result >= 0;
}

static bool start(engine_thread *t, engine_run *run, refusal *r)
{
    exl2_job job = { 0 };
    exl2_session_info before = { 0 };
    exl2_job_info info = { 0 };
    exl2_model_info model;
    if (run->follows) {
        exl2_session_get(t->host->engine, run->session, &before);
    }
    exl2_result result = exl2_job_start(t->host->engine, &run->desc, &job);
    if (result < 0) {
        *r = (refusal){ result, ENGINE_BY_JOB, NULL, 0, 0 };
        return false;
    }
    exl2_job_get(t->host->engine, job, &info);
    exl2_model_get(t->host->engine, run->load->model, &model);
    uint32_t prompt = info.stats.prompt_tokens;
    lock_take(&t->lock);
    run->job = job;
    run->prompt_end = before.tokens + prompt; /* a job that follows appends its prompt */
    run->started = true;
    run->ended = false;
    run->started_ns = clock_ns();
    run->active = true;
    t->active++;
    engine_put(t, run, &(engine_record){ .kind = ENGINE_STARTED, .prompt_tokens = prompt,
                                         .context_max = model.context_max,
                                         .given_tokens = run->follows ? prompt : 0 });
    if (run->cancelled) {
        exl2_job_cancel(t->host->engine, job);
    }
    lock_release(&t->lock);
    return true;
}

static const refusal by_cancel = { EXL2_ERR_CANCELLED, ENGINE_BY_JOB, "the request was cancelled", 0, 0 };

static bool is_cancelled(engine_thread *t, const engine_run *run)
{
    lock_take(&t->lock);
    bool cancelled = run->cancelled;
    lock_release(&t->lock);
    return cancelled;
}

/* ---- the lists ---- */

static void start_urgent(engine_thread *t)
{
    for (;;) {
        lock_take(&t->lock);
        engine_run *run = t->urgent;
        if (run) {
            t->urgent = run->next_urgent;
            t->urgent_end = t->urgent ? t->urgent_end : &t->urgent;
        }
        lock_release(&t->lock);
        if (!run) {
            return;
        }
        refusal r = by_cancel;
        run->follows = true;
        run->twin = NULL;
        bool good = !is_cancelled(t, run) && run->epoch == t->epoch;
        if (good && run->draws_back) {
            good = exl2_session_rewind(t->host->engine, run->session, run->prompt_end) >= 0;
        }
        if (!good || !fill_desc(t, run, &r) || !measure(t, run, &r) || !start(t, run, &r)) {
            refuse(t, run, &r);
        }
    }
}

/* Takes a batch out of the list, before its owner can hear that all of it was started or refused. The lock is held. */
static void leave_list(engine_thread *t, engine_batch *b)
{
    engine_batch **at = &t->batches;
    while (*at != b) {
        at = &(*at)->next;
    }
    *at = b->next;
    t->batch_end = b->next ? t->batch_end : at;
    t->waiting--;
}

/* A batch that waits and whose client has gone; all its runs are cancelled together. */
static engine_batch *find_cancelled(engine_thread *t)
{
    lock_take(&t->lock);
    engine_batch *b = t->batches;
    while (b && (b->next_run > 0 || !b->runs[0]->cancelled)) {
        b = b->next;
    }
    lock_release(&t->lock);
    return b;
}

/* Takes a batch out of the list and refuses all its runs. */
static void refuse_batch(engine_thread *t, engine_batch *b, refusal *r)
{
    exl2_error error;
    exl2_last_error(t->host->engine, &error);
    r->why = r->why ? r->why : error.text;
    engine_run **runs = b->runs; /* after the last refusal they may be gone */
    lock_take(&t->lock);
    leave_list(t, b);
    lock_release(&t->lock);
    close_pictures(t, b);
    for (uint32_t i = 0, count = b->count; i < count; i++) {
        refuse(t, runs[i], r);
    }
}

static void refuse_cancelled(engine_thread *t)
{
    for (engine_batch *b; (b = find_cancelled(t)) != NULL;) {
        refusal r = by_cancel;
        refuse_batch(t, b, &r);
    }
}

/* Checks all runs of a batch; the first that cannot start refuses all. PENDING: its pictures must wait. */
static exl2_result check_batch(engine_thread *t, engine_batch *b)
{
    refusal r = by_cancel;
    exl2_result result = make_pictures(t, b, &r);
    for (uint32_t i = 0; i < b->count && result == EXL2_OK; i++) {
        r = by_cancel;
        result = !is_cancelled(t, b->runs[i]) && check(t, b->runs[i], &r) ? EXL2_OK : r.result;
    }
    if (result < 0) {
        refuse_batch(t, b, &r);
    }
    return result;
}

/* Starts the runs of a batch for which there is room. false: some must wait. */
static bool start_batch(engine_thread *t, engine_batch *b)
{
    for (bool last = false; !last;) {
        engine_run *run = b->runs[b->next_run];
        refusal r = by_cancel;
        bool cancelled = is_cancelled(t, run);
        if (t->slots + run->slots > t->max_jobs && !cancelled) {
            return false; /* goes on when a job has ended */
        }
        last = ++b->next_run == b->count;
        lock_take(&t->lock);
        t->slots += run->held = cancelled ? 0 : run->slots; /* with what waits, so that each is counted once */
        if (last) {
            leave_list(t, b);
        }
        lock_release(&t->lock);
        bool counted = run->counts && !cancelled && count_ids(t, b, &r);
        bool started = counted || (!cancelled && !run->counts && start(t, run, &r));
        if (last && !counted) {
            close_pictures(t, b);
        }
        if (!started) {
            refuse(t, run, &r);
        }
    }
    return true;
}

void engine_start_waiting(engine_thread *t)
{
    t->try_again = false;
    refuse_cancelled(t);
    start_urgent(t);
    for (;;) {
        lock_take(&t->lock);
        engine_batch *b = t->batches;
        lock_release(&t->lock);
        if (!b || (t->slots >= t->max_jobs && !is_cancelled(t, b->runs[b->next_run]))) {
            return; /* with no place left the engine would refuse even to measure */
        }
        exl2_result result = b->next_run > 0 ? EXL2_OK : check_batch(t, b);
        if (result == EXL2_PENDING || (result == EXL2_OK && !start_batch(t, b))) {
            return;
        }
    }
}
