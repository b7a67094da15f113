/* snapshot.h: a session as bytes: its history, what its running job needs to go on, and K and V if wanted.
   takes: a session; bytes that may come from anywhere.
   gives: exl2__snapshot, exl2__snapshot_save, exl2__snapshot_restore. snapshot_resume.h lets a job go on.

   Little endian, without padding. All counts are checked before anything changes.

       bytes  what
       8      "EXL2SAVE"
       4, 4   version 1; flags: 1 = job part, 2 = K and V, 4 = the job's reply was begun, 8 = vectors, 16 = adapters,
              32 = pictures, 64 = with their pixels or rows, 128 = K and V with window parts
       16     content_id of the model; releases up to 0.2.0 wrote its head alone (content_id.h)
       4, 4   words of the history, with those of tokens that were not delivered yet; pages of K and V
       4 n    words: id, and bit 31 if a GPU computes K and V of the token as those of a sampled one; bit 30 and a
              number if the word is a vector's, numbered in the order in which they first occur
       ...    if any word is a vector's: their number (4), then each once, as floats
       ...    if any word is of a picture: the part of pictures (snapshot_pictures.h)
       ...    the job part (exl2__snapshot_put_job)
       4, 4   if the reply was begun: its tokens in the prompt, bytes before it in the first of them
       ...    if the newest job had adapters or control vectors: the number of all (4), then of each, adapters first,
              its content_id (16) and its scale (4)
       ...    how K and V were computed (8), tokens with K and V (4), bytes of a page (8); with window parts their
              number (4) and the bytes of one (8); the pages; the window parts of the last pages
       8      exl2__hash of all bytes before */
#ifndef EXL2__SNAPSHOT_H
#define EXL2__SNAPSHOT_H

#include "loras.h"
#include "snapshot_pictures.h"
#include "tier_moves.h"

#define EXL2__SNAPSHOT_MAGIC "EXL2SAVE"
#define EXL2__SNAPSHOT_VERSION 1u
#define EXL2__SNAPSHOT_HAS_JOB 1u
#define EXL2__SNAPSHOT_HAS_KV 2u
#define EXL2__SNAPSHOT_IS_BEGUN 4u
#define EXL2__SNAPSHOT_HAS_VECTORS 8u
#define EXL2__SNAPSHOT_HAS_LORAS 16u
#define EXL2__SNAPSHOT_HAS_PICTURES 32u
#define EXL2__SNAPSHOT_HAS_IMAGES 64u
#define EXL2__SNAPSHOT_HAS_PARTS 128u
#define EXL2__SNAPSHOT_HEAD_BYTES 40u
#define EXL2__SNAPSHOT_JOB_BYTES 68u /* then the tried tokens, then states of the sampler */
#define EXL2__SNAPSHOT_BEGUN_BYTES 8u
#define EXL2__SNAPSHOT_LORA_BYTES 20u
#define EXL2__SNAPSHOT_KV_BYTES 20u  /* before the pages */
#define EXL2__SNAPSHOT_PARTS_BYTES 12u /* after these, if there are window parts */
#define EXL2__SNAPSHOT_SUM_BYTES 8u

/* What a snapshot consists of. */
typedef struct exl2__snapshot {
    uint32_t flags, tokens, pages, cached;
    uint64_t computation, page_bytes;
    uint32_t parts;          /* window parts, of the last pages */
    uint64_t part_bytes;
    uint32_t vectors;        /* number of different ones */
    uint64_t vector_bytes;   /* of one */
    exl2__snapshot_pictures pictures;
    bool earlier;            /* when reading: it names its model as releases up to 0.2.0 did */
    exl2__session_resume job;
    exl2__lora_names loras;
    uint32_t state_count;    /* states of the sampler before held tokens */
    const uint8_t *words, *inputs, *states, *kv; /* when reading; inputs: the vectors */
} exl2__snapshot;

static inline uint32_t exl2__snapshot_held(const exl2__session_resume *r)
{
    return r->tokens - r->prompt_end - r->delivered;
}

/* Where states of the sampler wait: after the room for words. */
static inline uint32_t *exl2__snapshot_states(const exl2__model *m, const exl2__session *s)
{
    return s->table.words + m->plan.context_max;
}

static inline void exl2__snapshot_key_add(uint64_t *key, const void *data, size_t bytes)
{
    *key = exl2__hash_words(data, bytes, *key);
}

/* Names what the bits of K and V depend on beside the words: the weights and config.json (content_id), this release,
   what computes (a family of CPUs, or a kind of GPU), the layout of a page, and what the application may choose: the
   angles of RoPE as they are computed, and the experts of a token. */
EXL2__PRIVATE uint64_t exl2__snapshot_computation(const exl2_engine *e, const exl2__model *m)
{
    const exl2__shape *s = &m->plan.shape;
    const exl2__backend *backend = exl2__objects_backend(m);
    bool gpu = exl2__backend_has_memory(backend);
    const exl2_device_info *first = &e->info.devices[gpu ? m->info.cards[0].device : 0];
    uint32_t family = gpu ? first->arch : e->info.cpu_path == EXL2_CPU_C;
    const uint32_t numbers[] = { EXL2_VERSION, family, 1 + (uint32_t)m->plan.kv, s->layers, s->kv_heads, s->head_dim,
                                 s->rotary, s->pairs, s->experts.active, m->plan.rope_count };
    uint64_t key = 0;
    exl2__snapshot_key_add(&key, m->info.content_id, sizeof m->info.content_id);
    exl2__snapshot_key_add(&key, backend->name, strlen(backend->name));
    exl2__snapshot_key_add(&key, first->name, gpu ? strlen(first->name) : 0);
    exl2__snapshot_key_add(&key, numbers, sizeof numbers);
    const char *before = first->name; /* bits do not depend on how many cards of one kind compute the layers */
    for (uint32_t i = 1; i < m->info.card_count; i++) {
        const exl2_device_info *other = &e->info.devices[m->info.cards[i].device];
        if (strcmp(other->name, before) != 0) {
            exl2__snapshot_key_add(&key, other->name, strlen(other->name));
            exl2__snapshot_key_add(&key, &m->info.cards[i].first_layer, sizeof m->info.cards[i].first_layer);
        }
        before = other->name;
    }
    for (uint32_t i = 0; m->info.host_mlps && i < m->info.card_count; i++) { /* and on what computes MLPs */
        const exl2_card_info *card = &m->info.cards[i];
        const uint32_t host[] = { card->host_mlps, card->host_prompts, e->info.cpu_path == EXL2_CPU_C };
        exl2__snapshot_key_add(&key, host, sizeof host);
    }
    for (uint32_t i = 0; i < m->plan.rope_count; i++) {
        const exl2__rope_angles *angles = &m->plan.ropes[i];
        exl2__snapshot_key_add(&key, &angles->magnitude, sizeof angles->magnitude);
        exl2__snapshot_key_add(&key, angles->frequency, s->rotary / 2 * sizeof *angles->frequency);
    }
    for (uint32_t i = 0; i < s->layers; i++) {
        const uint32_t layer[] = { m->plan.layers[i].rope, m->plan.layers[i].window };
        exl2__snapshot_key_add(&key, layer, sizeof layer);
    }
    return key;
}

EXL2__PRIVATE uint64_t exl2__snapshot_bytes(const exl2__snapshot *x)
{
    uint64_t bytes = EXL2__SNAPSHOT_HEAD_BYTES + 4ull * x->tokens + EXL2__SNAPSHOT_SUM_BYTES;
    uint64_t lists = 4ull * (x->job.tried_count + x->state_count);
    bytes += x->flags & EXL2__SNAPSHOT_HAS_VECTORS ? 4 + x->vectors * x->vector_bytes : 0;
    bytes += x->pictures.bytes;
    bytes += x->flags & EXL2__SNAPSHOT_HAS_JOB ? EXL2__SNAPSHOT_JOB_BYTES + lists : 0;
    bytes += x->flags & EXL2__SNAPSHOT_IS_BEGUN ? EXL2__SNAPSHOT_BEGUN_BYTES : 0;
    bytes += x->flags & EXL2__SNAPSHOT_HAS_LORAS ? 4 + (uint64_t)x->loras.count * EXL2__SNAPSHOT_LORA_BYTES : 0;
    bytes += x->flags & EXL2__SNAPSHOT_HAS_PARTS ? EXL2__SNAPSHOT_PARTS_BYTES + x->parts * x->part_bytes : 0;
    return bytes + (x->flags & EXL2__SNAPSHOT_HAS_KV ? EXL2__SNAPSHOT_KV_BYTES + x->pages * x->page_bytes : 0);
}

/* Sets the sizes of K and V of x->cached tokens. */
EXL2__PRIVATE void exl2__snapshot_size_kv(const exl2__model *m, exl2__snapshot *x)
{
    x->pages = exl2__pages_for(x->cached);
    x->page_bytes = (m->info.cache_bytes - m->info.window_bytes) / m->plan.pages;
    if (m->plan.window_pages) {
        x->flags |= EXL2__SNAPSHOT_HAS_PARTS;
        x->parts = x->pages - exl2__min32(x->pages, exl2__windows_first(&m->pages.windows, x->cached));
        x->part_bytes = m->info.window_bytes / m->plan.window_pages;
    }
}

/* ---- save ---- */

/* The state of a job that runs, to go on with later. */
EXL2__PRIVATE void exl2__snapshot_of_job(const exl2__job *job, exl2__session_resume *out)
{
    const exl2__sequence *s = &job->sequence;
    *out = (exl2__session_resume){ .present = true, .prompt_end = s->prompt_end, .prompt_count = s->prompt_count,
                                   .delivered = job->delivery.delivered, .computed_end = s->computed_end,
                                   .tokens = s->table->tokens, .max_tokens = job->max_tokens, .attempt = s->attempt,
                                   .rewinds = job->bans.rewinds, .shown = job->delivery.shown, .healed = job->healed,
                                   .seed = job->stats.seed, .state = s->sampling.state,
                                   .tried_count = s->tried_count, .tried_at = s->tried_at,
                                   .from = job->bans.from, .begun = job->grammar.begun,
                                   .begun_tokens = job->grammar.begun_tokens, .begun_skip = job->grammar.begun_skip };
    if (job->delivery.deferred) { /* what was not heard is generated again */
        out->tokens = s->prompt_end + job->delivery.delivered;
        out->shown = 0;
    }
    out->computed_end = exl2__min32(out->computed_end, out->tokens); /* a ban may have shortened the history */
    out->min_tokens = s->min_end - s->prompt_end - (job->healed >= 0);
    memcpy(out->tried, s->tried, s->tried_count * sizeof *out->tried);
}

EXL2__PRIVATE uint8_t *exl2__snapshot_put(uint8_t *at, uint32_t value)
{
    exl2__store32(at, value);
    return at + 4;
}

EXL2__PRIVATE uint8_t *exl2__snapshot_put_job(uint8_t *at, const exl2__snapshot *x)
{
    const exl2__session_resume *r = &x->job;
    const uint32_t values[17] = { r->prompt_end, r->prompt_count, r->delivered, r->computed_end, r->max_tokens,
                                  r->min_tokens, r->attempt, r->rewinds, r->shown, (uint32_t)r->healed,
                                  exl2__float_bits(r->state), r->tried_count, r->tried_at, x->state_count,
                                  (uint32_t)r->seed, (uint32_t)(r->seed >> 32), r->from };
    for (uint32_t i = 0; i < EXL2__COUNT(values); i++) {
        at = exl2__snapshot_put(at, values[i]);
    }
    for (uint32_t i = 0; i < r->tried_count; i++) {
        at = exl2__snapshot_put(at, (uint32_t)r->tried[i]);
    }
    return at;
}

/* Writes the words, and the vectors that they name. */
EXL2__PRIVATE uint8_t *exl2__snapshot_put_words(uint8_t *at, const exl2__model *m, const uint32_t *words,
                                                const exl2__snapshot *x)
{
    const exl2__vectors *v = &m->vectors;
    uint32_t next = 0;
    for (uint32_t i = 0; i < x->tokens; i++) {
#ifndef EXL2_NO_VISION
        if (exl2__pictures_is(words[i])) {
            at = exl2__snapshot_put(at, exl2__snapshot_pictures_word(m, words[i]));
            continue;
        }
#endif
        uint32_t number = exl2__vectors_is(words[i]) ? v->numbers[exl2__vectors_index(words[i])] : 0;
        at = exl2__snapshot_put(at, !exl2__vectors_is(words[i]) ? words[i]
                                    : (words[i] & EXL2__WORD_SAMPLED) | EXL2__WORD_VECTOR | number);
    }
    if (x->vectors) {
        at = exl2__snapshot_put(at, x->vectors);
    }
    for (uint32_t i = 0; next < x->vectors; i++) {
        bool vector = exl2__vectors_is(words[i]) && !exl2__pictures_is(words[i]);
        if (vector && v->numbers[exl2__vectors_index(words[i])] == next) {
            memcpy(at, exl2__vectors_data(v, words[i]), (size_t)x->vector_bytes);
            at += x->vector_bytes;
            next++;
        }
    }
#ifndef EXL2_NO_VISION
    at = x->pictures.count ? exl2__snapshot_pictures_put(at, m, &x->pictures) : at;
#endif
    return at;
}

/* Writes the snapshot; out has exl2__snapshot_bytes. */
EXL2__PRIVATE exl2_result exl2__snapshot_write(const exl2__model *m, const exl2__session *s, const exl2__job *job,
                                               const exl2__snapshot *x, uint8_t *out)
{
    uint8_t *at = out;
    memcpy(at, EXL2__SNAPSHOT_MAGIC, 8);
    at = exl2__snapshot_put(at + 8, EXL2__SNAPSHOT_VERSION);
    at = exl2__snapshot_put(at, x->flags);
    memcpy(at, m->info.content_id, 16);
    at = exl2__snapshot_put(at + 16, x->tokens);
    at = exl2__snapshot_put(at, x->pages);
    at = exl2__snapshot_put_words(at, m, s->table.words, x);
    if (x->flags & EXL2__SNAPSHOT_HAS_JOB) {
        at = exl2__snapshot_put_job(at, x);
        for (uint32_t i = 0; i < x->state_count; i++) {
            at = exl2__snapshot_put(at, job ? exl2__float_bits(job->block->held[i].state)
                                            : exl2__snapshot_states(m, s)[i]);
        }
    }
    if (x->flags & EXL2__SNAPSHOT_IS_BEGUN) {
        at = exl2__snapshot_put(at, x->job.begun_tokens);
        at = exl2__snapshot_put(at, x->job.begun_skip);
    }
    if (x->flags & EXL2__SNAPSHOT_HAS_LORAS) {
        at = exl2__snapshot_put(at, x->loras.count);
        for (uint32_t i = 0; i < x->loras.count; i++) {
            memcpy(at, x->loras.names[i].content_id, 16);
            at = exl2__snapshot_put(at + 16, exl2__float_bits(x->loras.names[i].scale));
        }
    }
    if (x->flags & EXL2__SNAPSHOT_HAS_KV) {
        exl2__store64(at, x->computation);
        exl2__store32(at + 8, x->cached);
        exl2__store64(at + 12, x->page_bytes);
        at += EXL2__SNAPSHOT_KV_BYTES;
        if (x->flags & EXL2__SNAPSHOT_HAS_PARTS) {
            exl2__store32(at, x->parts);
            exl2__store64(at + 4, x->part_bytes);
            at += EXL2__SNAPSHOT_PARTS_BYTES;
        }
        for (uint32_t i = 0; i < x->pages; i++, at += x->page_bytes) {
            EXL2__TRY(exl2__spans_page_get(&m->spans, s->table.pages[i], false, at));
        }
        for (uint32_t i = x->pages - x->parts; i < x->pages; i++, at += x->part_bytes) {
            EXL2__TRY(exl2__spans_page_get(&m->spans, m->pages.windows.part[s->table.pages[i]], true, at));
        }
    }
    exl2__store64(at, exl2__hash(out, (size_t)(at - out)));
    return EXL2_OK;
}

/* Whether the last token that was delivered ends within a code point. Its text comes with that of the next one. */
EXL2__PRIVATE bool exl2__snapshot_is_cut(const exl2__model *m, const exl2__job *job)
{
    const exl2__sequence *s = &job->sequence;
    exl2__stream stream;
    exl2__stream_make(&stream, job->delivery.stream.show_special, true);
    for (uint32_t i = 0; m->vocab.present && i < job->delivery.delivered; i++) {
        exl2__stream_push(&stream, &m->vocab, exl2__table_token(s->table, s->prompt_end + i), NULL, 0);
    }
    return exl2__stream_pending(&stream) > 0;
}

/* *need: the snapshot's size. With out NULL nothing is written. */
EXL2__PRIVATE exl2_result exl2__snapshot_save(exl2_engine *e, exl2__session *s, uint32_t flags, void *out, size_t cap,
                                              size_t *need)
{
    exl2__model *m = &e->models[s->model];
    exl2__table *t = &s->table;
    const exl2__job *job = s->job ? exl2__objects_job(e, (exl2_job){ s->job }) : NULL;
    exl2__snapshot x = { .tokens = exl2__objects_final_tokens(e, s), .job = s->resume };
    if (job && (job->guidance.negative || job->sequence.pool != EXL2_EMBED_OFF)) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "a session whose job %s can be saved after its DONE",
                          job->guidance.negative ? "has guidance" : "makes an embedding");
    }
    bool deferred = job && job->delivery.deferred && !exl2__jobs_is_dropped(job);
    if (deferred && (job->stops.strings.count || job->bans.strings.count
                     || exl2__sampling_has_state(&job->sequence.sampling) || exl2__snapshot_is_cut(m, job))) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "the session's job is paused before text that the worker has made, "
                          "and has stop strings, banned strings, mirostat, adaptive-p or half of a character: continue "
                          "it first");
    }
    if (job && job->sequence.begun && (!job->ending || deferred)) {
        exl2__snapshot_of_job(job, &x.job);
        x.state_count = exl2__sampling_has_state(&job->sequence.sampling) ? job->delivery.held_tokens : 0;
    } else if (x.job.present) {
        x.state_count = x.job.states ? exl2__snapshot_held(&x.job) : 0;
    }
    x.flags = x.job.present ? EXL2__SNAPSHOT_HAS_JOB | (x.job.begun ? EXL2__SNAPSHOT_IS_BEGUN : 0) : 0;
    x.tokens = x.job.present ? x.job.tokens : x.tokens;
    if (m->lora_names) {
        x.loras = m->lora_names[s - e->sessions];
    } else if (x.job.present && x.job.lora_count) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "the session's saved job has adapters or control vectors, but the "
                          "model was opened with lora_max and steer_max 0: open it with them");
    }
    x.flags |= x.loras.count ? EXL2__SNAPSHOT_HAS_LORAS : 0;
    x.vectors = exl2__vectors_number(&m->vectors, t->words, x.tokens);
    x.vector_bytes = m->plan.shape.hidden * sizeof(float);
    x.flags |= x.vectors ? EXL2__SNAPSHOT_HAS_VECTORS : 0;
#ifndef EXL2_NO_VISION
    bool images = flags & EXL2_SAVE_IMAGES;
    exl2__snapshot_pictures_number(m, t->words, x.tokens, images, &x.pictures);
    x.flags |= x.pictures.count ? EXL2__SNAPSHOT_HAS_PICTURES | (images ? EXL2__SNAPSHOT_HAS_IMAGES : 0) : 0;
#endif
    if (t->previous != t) {
        exl2__table_remember(t, &m->pages);
    }
    if (flags & EXL2_SAVE_KV) {
        x.flags |= EXL2__SNAPSHOT_HAS_KV;
        x.computation = exl2__snapshot_computation(e, m);
        uint32_t cached = exl2__min32(exl2__table_computed_tokens(t, &m->pages), x.tokens);
        x.cached = exl2__table_usable(t, &m->pages, cached);
        exl2__snapshot_size_kv(m, &x);
    }
    uint64_t bytes = exl2__snapshot_bytes(&x);
    *need = (size_t)bytes;
    if (bytes > cap || !out) {
        return !out ? EXL2_OK : exl2__fail(&e->ctx, EXL2_ERR_TOO_SMALL, "the snapshot needs %llu bytes, but the buffer "
                                           "holds %zu", (unsigned long long)bytes, cap);
    }
    return exl2__snapshot_write(m, s, s->resume.present ? NULL : job, &x, (uint8_t *)out);
}

/* ---- restore ---- */

EXL2__PRIVATE exl2_result exl2__snapshot_malformed(exl2_engine *e, const char *what)
{
    return exl2__fail(&e->ctx, EXL2_ERR_FORMAT, "the snapshot is damaged: %s", what);
}

/* Can it be a state of mirostat or of adaptive-p? */
static inline bool exl2__snapshot_is_state(float state)
{
    return exl2__float_is_finite(state) && state >= -100 && state <= 100;
}

/* Whether the words [from, to) are tokens'. */
static inline bool exl2__snapshot_are_tokens(const exl2__snapshot *x, uint32_t from, uint32_t to)
{
    while (from < to && !exl2__vectors_is(exl2__load32(x->words + 4 * (size_t)from))) {
        from++;
    }
    return from == to;
}

/* Whether the job can have healed this token: it has text of its own, and the first new token begins with it. */
EXL2__PRIVATE bool exl2__snapshot_is_healed(const exl2__model *m, const exl2__snapshot *x)
{
    const exl2__session_resume *r = &x->job;
    size_t bytes;
    const char *text = exl2__jobs_healable(m, r->healed, &bytes);
    if (!text || r->prompt_end == x->tokens) {
        return text != NULL;
    }
    uint32_t word = exl2__load32(x->words + 4 * (size_t)r->prompt_end);
    return exl2__jobs_can_replace(m, (exl2_token)(word & ~EXL2__WORD_SAMPLED), text, bytes);
}

/* Reads the job part at `at`, of which `bytes` bytes are left. */
EXL2__PRIVATE exl2_result exl2__snapshot_read_job(exl2_engine *e, const exl2__model *m, const uint8_t *at,
                                                  uint64_t bytes, exl2__snapshot *x)
{
    exl2__session_resume *r = &x->job;
    uint32_t values[17], vocab = m->plan.shape.vocab, context_max = m->info.context_max;
    if (bytes < EXL2__SNAPSHOT_JOB_BYTES) {
        return exl2__snapshot_malformed(e, "it ends in the part of the job");
    }
    for (uint32_t i = 0; i < EXL2__COUNT(values); i++) {
        values[i] = exl2__load32(at + 4 * i);
    }
    *r = (exl2__session_resume){ true, false, values[0], values[1], values[2], values[3], x->tokens, values[4],
                                 values[5], values[6], values[7], values[8], (exl2_token)values[9],
                                 values[14] | (uint64_t)values[15] << 32, exl2__bits_float(values[10]),
                                 values[11], values[12], values[16], { 0 }, false, 0, 0, 0, { { 0 }, 0 } };
    x->state_count = values[13];
    uint64_t heals = r->healed >= 0, said = (uint64_t)x->tokens - r->prompt_end;
    bool counts = r->prompt_end > 0 && r->prompt_end <= x->tokens && r->prompt_count <= r->prompt_end
               && r->delivered <= said && said - r->delivered <= EXL2__JOB_HELD_TOKENS
               && r->computed_end <= x->tokens && r->min_tokens <= r->max_tokens && r->max_tokens <= context_max
               && r->prompt_end + heals + r->max_tokens <= context_max
               && (r->max_tokens ? said < r->max_tokens + heals : said == 0);
    bool limits = r->rewinds <= EXL2__JOB_REWINDS_MAX && r->tried_count <= EXL2__SEQUENCE_TRIED_MAX
               && r->healed >= -1 && r->healed < (exl2_token)vocab && r->shown <= EXL2__JOB_HOLD_BYTES
               && r->from <= EXL2__JOB_HOLD_BYTES && exl2__snapshot_is_state(r->state);
    if (!counts || !limits || (x->state_count && x->state_count != said - r->delivered)) {
        return exl2__snapshot_malformed(e, "a count of the job is out of range");
    }
    if (!exl2__snapshot_are_tokens(x, r->prompt_end, x->tokens)) {
        return exl2__snapshot_malformed(e, "its job has generated a vector");
    }
    if (r->healed >= 0 && !exl2__snapshot_is_healed(m, x)) {
        return exl2__snapshot_malformed(e, "its first new token does not begin with the healed one");
    }
    if (bytes - EXL2__SNAPSHOT_JOB_BYTES < 4ull * (r->tried_count + x->state_count)) {
        return exl2__snapshot_malformed(e, "it ends in the part of the job");
    }
    for (uint32_t i = 0; i < r->tried_count; i++) {
        r->tried[i] = (exl2_token)exl2__load32(at + EXL2__SNAPSHOT_JOB_BYTES + 4 * i);
        if (r->tried[i] < 0 || r->tried[i] >= (exl2_token)vocab) {
            return exl2__snapshot_malformed(e, "a token of the job is outside of the vocabulary");
        }
    }
    x->states = at + EXL2__SNAPSHOT_JOB_BYTES + 4 * (size_t)r->tried_count;
    for (uint32_t i = 0; i < x->state_count; i++) {
        if (!exl2__snapshot_is_state(exl2__bits_float(exl2__load32(x->states + 4 * (size_t)i)))) {
            return exl2__snapshot_malformed(e, "a state of the sampler is out of range");
        }
    }
    r->states = x->state_count > 0;
    return EXL2_OK;
}

/* Reads where the begun text of the job's reply is. */
EXL2__PRIVATE exl2_result exl2__snapshot_read_begun(exl2_engine *e, const uint8_t *at, uint64_t bytes,
                                                    exl2__snapshot *x)
{
    exl2__session_resume *r = &x->job;
    if (bytes < EXL2__SNAPSHOT_BEGUN_BYTES || !r->present) {
        return exl2__snapshot_malformed(e, "it ends in the part of the begun reply");
    }
    r->begun = true;
    r->begun_tokens = exl2__load32(at);
    r->begun_skip = exl2__load32(at + 4);
    bool fits = r->begun_tokens <= r->prompt_end
             && exl2__snapshot_are_tokens(x, r->prompt_end - r->begun_tokens, r->prompt_end);
    return fits ? EXL2_OK : exl2__snapshot_malformed(e, "a count of the begun reply is out of range");
}

/* Checks the words. Numbers of vectors begin in order, so that each vector has a word. */
EXL2__PRIVATE exl2_result exl2__snapshot_check_words(exl2_engine *e, const exl2__model *m, const exl2__snapshot *x)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < x->tokens; i++) {
        uint32_t word = exl2__load32(x->words + 4 * (size_t)i) & ~EXL2__WORD_SAMPLED;
        if (x->pictures.count && exl2__pictures_is(word)) { /* _pictures_check has seen it */
            continue;
        }
        bool vector = exl2__vectors_is(word) && exl2__vectors_index(word) < x->vectors
                   && exl2__vectors_index(word) <= next;
        if (!vector && word >= m->plan.shape.vocab) {
            return exl2__snapshot_malformed(e, "a token is outside of the vocabulary");
        }
        next += vector && exl2__vectors_index(word) == next;
    }
    return next == x->vectors ? EXL2_OK : exl2__snapshot_malformed(e, "it has a vector at no place");
}

/* Reads the part of vectors at `at`, of which `bytes` bytes are left. */
EXL2__PRIVATE exl2_result exl2__snapshot_read_vectors(exl2_engine *e, const uint8_t *at, uint64_t bytes,
                                                      exl2__snapshot *x)
{
    x->vectors = bytes < 4 ? 0 : exl2__load32(at);
    if (x->vectors == 0 || x->vectors > (bytes - 4) / x->vector_bytes) {
        return exl2__snapshot_malformed(e, "it ends in the part of vectors");
    }
    x->inputs = at + 4;
    for (uint64_t i = 0; i < x->vectors * x->vector_bytes; i += 4) {
        if (!exl2__float_is_finite(exl2__bits_float(exl2__load32(x->inputs + i)))) {
            return exl2__snapshot_malformed(e, "a vector is not finite");
        }
    }
    return EXL2_OK;
}

/* Reads the part of adapters and control vectors at `at`, of which `bytes` bytes are left. */
EXL2__PRIVATE exl2_result exl2__snapshot_read_loras(exl2_engine *e, const uint8_t *at, uint64_t bytes,
                                                    exl2__snapshot *x)
{
    uint32_t count = bytes < 4 ? 0 : exl2__load32(at);
    if (count == 0 || count > EXL2__COUNT(x->loras.names) || (bytes - 4) / EXL2__SNAPSHOT_LORA_BYTES < count) {
        return exl2__snapshot_malformed(e, "it ends in the part of adapters");
    }
    for (at += 4; x->loras.count < count; at += EXL2__SNAPSHOT_LORA_BYTES) {
        exl2__lora_name *name = &x->loras.names[x->loras.count++];
        memcpy(name->content_id, at, 16);
        name->scale = exl2__bits_float(exl2__load32(at + 16));
        if (!(name->scale >= -100 && name->scale <= 100) || (name->scale >= 0 && name->scale <= 0)) {
            return exl2__snapshot_malformed(e, "the scale of an adapter is out of range");
        }
    }
    x->job.lora_count = count;
    x->job.lora = x->loras.names[0];
    return EXL2_OK;
}

/* Reads the part of K and V, which are `bytes` bytes. */
EXL2__PRIVATE exl2_result exl2__snapshot_read_kv(exl2_engine *e, const uint8_t *at, uint64_t bytes, exl2__snapshot *x)
{
    if (bytes < EXL2__SNAPSHOT_KV_BYTES) {
        return exl2__snapshot_malformed(e, "it ends before K and V");
    }
    x->computation = exl2__load64(at);
    x->cached = exl2__load32(at + 8);
    x->page_bytes = exl2__load64(at + 12);
    x->kv = at + EXL2__SNAPSHOT_KV_BYTES;
    if (x->flags & EXL2__SNAPSHOT_HAS_PARTS) {
        if (bytes < EXL2__SNAPSHOT_KV_BYTES + EXL2__SNAPSHOT_PARTS_BYTES) {
            return exl2__snapshot_malformed(e, "it ends before K and V");
        }
        x->parts = exl2__load32(x->kv);
        x->part_bytes = exl2__load64(x->kv + 4);
        x->kv += EXL2__SNAPSHOT_PARTS_BYTES;
    }
    bool fits = x->cached <= x->tokens && x->pages == exl2__pages_for(x->cached) && x->parts <= x->pages
             && (x->pages == 0 || x->page_bytes <= bytes / x->pages)
             && (x->parts == 0 || x->part_bytes <= bytes / x->parts);
    return fits ? EXL2_OK : exl2__snapshot_malformed(e, "the size of K and V is wrong");
}

/* A content_id for people. */
EXL2__PRIVATE void exl2__snapshot_digits(const uint8_t id[16], char out[33])
{
    static const char digits[] = "0123456789abcdef";
    for (uint32_t i = 0; i < 16; i++) {
        out[2 * i] = digits[id[i] >> 4];
        out[2 * i + 1] = digits[id[i] & 15];
    }
    out[32] = 0;
}

/* Fails unless the snapshot is of this model. *earlier: by the id that releases up to 0.2.0 wrote. */
EXL2__PRIVATE exl2_result exl2__snapshot_check_model(exl2_engine *e, const exl2__model *m, const uint8_t *id,
                                                     bool *earlier)
{
    char theirs[33], ours[33];
    exl2__snapshot_digits(id, theirs);
    exl2__snapshot_digits(m->info.content_id, ours);
    *earlier = memcmp(id, m->content_head, 16) == 0;
    if (memcmp(id, m->info.content_id, 16) != 0 && !*earlier) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the snapshot is of another model: its content_id is %s, but that of "
                          "this model is %s", theirs, ours);
    }
    return EXL2_OK;
}

/* Checks the snapshot and finds its parts. */
EXL2__PRIVATE exl2_result exl2__snapshot_read(exl2_engine *e, const exl2__model *m, const uint8_t *data, size_t bytes,
                                              exl2__snapshot *x)
{
    *x = (exl2__snapshot){ 0 };
    if (bytes < EXL2__SNAPSHOT_HEAD_BYTES + EXL2__SNAPSHOT_SUM_BYTES || memcmp(data, EXL2__SNAPSHOT_MAGIC, 8) != 0) {
        return exl2__fail(&e->ctx, EXL2_ERR_FORMAT, "these %zu bytes are no snapshot of a session", bytes);
    }
    uint64_t end = bytes - EXL2__SNAPSHOT_SUM_BYTES, at = EXL2__SNAPSHOT_HEAD_BYTES;
    if (exl2__load64(data + end) != exl2__hash(data, (size_t)end)) {
        return exl2__snapshot_malformed(e, "its sum is not that of its bytes");
    }
    if (exl2__load32(data + 8) != EXL2__SNAPSHOT_VERSION) {
        return exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED, "the snapshot has format version %u, but this release reads "
                          "%u", exl2__load32(data + 8), EXL2__SNAPSHOT_VERSION);
    }
    x->flags = exl2__load32(data + 12);
    x->tokens = exl2__load32(data + 32);
    x->pages = exl2__load32(data + 36);
    EXL2__TRY(exl2__snapshot_check_model(e, m, data + 16, &x->earlier));
    uint32_t known = EXL2__SNAPSHOT_HAS_JOB | EXL2__SNAPSHOT_HAS_KV | EXL2__SNAPSHOT_IS_BEGUN
                   | EXL2__SNAPSHOT_HAS_VECTORS | EXL2__SNAPSHOT_HAS_LORAS | EXL2__SNAPSHOT_HAS_PICTURES
                   | EXL2__SNAPSHOT_HAS_IMAGES | EXL2__SNAPSHOT_HAS_PARTS;
    bool pictures = !(x->flags & EXL2__SNAPSHOT_HAS_IMAGES) || x->flags & EXL2__SNAPSHOT_HAS_PICTURES;
    bool parts = !(x->flags & EXL2__SNAPSHOT_HAS_PARTS) || x->flags & EXL2__SNAPSHOT_HAS_KV;
    if (x->flags & ~known || !pictures || !parts || x->tokens > (end - at) / 4) {
        return exl2__snapshot_malformed(e, "its size does not fit its counts");
    }
    if (x->tokens > m->info.context_max) {
        return exl2__fail(&e->ctx, EXL2_ERR_CONTEXT_FULL, "the snapshot has %u tokens, but a session holds %u",
                          x->tokens, m->info.context_max);
    }
    x->words = data + at;
    at += 4ull * x->tokens;
    x->vector_bytes = m->plan.shape.hidden * sizeof(float);
    if (x->flags & EXL2__SNAPSHOT_HAS_VECTORS) {
        EXL2__TRY(exl2__snapshot_read_vectors(e, data + at, end - at, x));
        at += 4 + x->vectors * x->vector_bytes;
    }
    if (x->flags & EXL2__SNAPSHOT_HAS_PICTURES) {
        x->pictures.images = x->flags & EXL2__SNAPSHOT_HAS_IMAGES;
        EXL2__TRY(exl2__snapshot_pictures_take(e, m, data + at, end - at, x->words, x->tokens, &x->pictures));
        at += x->pictures.bytes;
    }
    EXL2__TRY(exl2__snapshot_check_words(e, m, x));
    if (x->flags & EXL2__SNAPSHOT_HAS_JOB) {
        EXL2__TRY(exl2__snapshot_read_job(e, m, data + at, end - at, x));
        at += EXL2__SNAPSHOT_JOB_BYTES + 4ull * (x->job.tried_count + x->state_count);
    }
    if (x->flags & EXL2__SNAPSHOT_IS_BEGUN) {
        EXL2__TRY(exl2__snapshot_read_begun(e, data + at, end - at, x));
        at += EXL2__SNAPSHOT_BEGUN_BYTES;
    }
    if (x->flags & EXL2__SNAPSHOT_HAS_LORAS) {
        EXL2__TRY(exl2__snapshot_read_loras(e, data + at, end - at, x));
        at += 4 + x->loras.count * EXL2__SNAPSHOT_LORA_BYTES;
    }
    if (x->flags & EXL2__SNAPSHOT_HAS_KV) {
        EXL2__TRY(exl2__snapshot_read_kv(e, data + at, end - at, x));
    }
    return exl2__snapshot_bytes(x) == bytes ? EXL2_OK : exl2__snapshot_malformed(e, "its size does not fit its counts");
}

/* Writes K and V into pages of the session's own tree, as far as the pool has room: they come from outside, so no other
   session may find them. Window parts are those of the last pages, so with them it is all or nothing. */
EXL2__PRIVATE exl2_result exl2__snapshot_restore_kv(exl2_engine *e, exl2__model *m, exl2__table *t,
                                                    const exl2__snapshot *x)
{
    exl2_result r = EXL2_OK;
    exl2__windows *w = &m->pages.windows;
    exl2__snapshot own = { .cached = x->cached };
    exl2__snapshot_size_kv(m, &own);
    if (x->earlier) {
        return EXL2_OK;
    }
    if (m->park != EXL2__PARK_NONE) {
        exl2__log(&e->ctx, EXL2_LOG_WARN, EXL2_LOG_ID_SNAPSHOT_KV, "K and V of a snapshot are not used, as %s is "
                  "parked: they are computed again", m->path);
        return EXL2_OK;
    }
    if (x->computation != exl2__snapshot_computation(e, m) || x->page_bytes != own.page_bytes || x->parts != own.parts
        || x->part_bytes != own.part_bytes) {
        exl2__log(&e->ctx, EXL2_LOG_WARN, EXL2_LOG_ID_SNAPSHOT_KV, "K and V of a snapshot have another layout, or were "
                  "computed in another way, than those of %s here: they are computed again", m->path);
        return EXL2_OK;
    }
    uint32_t pages = exl2__min32(x->pages, exl2__pages_room(&m->pages));
    uint32_t tokens = t->tokens, cached = exl2__min32(x->cached, pages * EXL2__PAGE_TOKENS);
    bool room = w->count == 0 || (cached == x->cached && exl2__windows_room(w) >= x->parts);
    if (cached == 0 || !room) {
        return EXL2_OK;
    }
    t->tokens = cached;
    exl2__table_start(t, &m->pages, cached, 0, 0);
    t->seen = t->seen_end = pages - x->parts;
    exl2__table_see(t, &m->pages, pages);
    r = exl2__tier_moves_run(e, m); /* what the pages held before */
    for (uint32_t i = 0; r >= 0 && i < pages; i++) {
        r = exl2__spans_page_set(&m->spans, t->pages[i], false, x->kv + i * x->page_bytes);
    }
    for (uint32_t i = 0; r >= 0 && i < x->parts; i++) {
        r = exl2__spans_page_set(&m->spans, w->part[t->pages[pages - x->parts + i]], true,
                                 x->kv + pages * x->page_bytes + i * x->part_bytes);
    }
    if (r >= 0) {
        exl2__table_computed(t, &m->pages, cached);
    }
    exl2__table_release(t, &m->pages, cached);
    t->tokens = tokens;
    return r;
}

/* Adds the snapshot's vectors: v->numbers[number] is the word of each, of which the caller has one use. Without room
   for all of them nothing has changed. */
EXL2__PRIVATE exl2_result exl2__snapshot_add_vectors(exl2_engine *e, exl2__vectors *v, const exl2__snapshot *x)
{
    for (uint32_t i = 0; i < x->vectors; i++) {
        uint32_t word = x->vectors > v->count ? EXL2__NO_VECTOR
                                              : exl2__vectors_add(v, x->inputs + i * x->vector_bytes);
        if (word == EXL2__NO_VECTOR) {
            exl2__vectors_drop(v, v->numbers, i);
            return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "the history of the snapshot has %u vectors, but the model has "
                              "room for %u, of which %u are free", x->vectors, v->count, exl2__vectors_room(v));
        }
        v->numbers[i] = word;
    }
    return EXL2_OK;
}

/* Moves the empty cache of the session into the tree of the snapshot's set. false: one of them is not loaded, and
   the tree is one that nothing else finds. */
EXL2__PRIVATE bool exl2__snapshot_restore_loras(exl2__model *m, exl2__session *s, const exl2__snapshot *x)
{
    exl2__lora_set set;
    if (m->lora_names) {
        m->lora_names[exl2__pool_slot_of(s->id)] = x->loras;
    }
    if (x->loras.count == 0) {
        return true;
    }
    bool loaded = m->lora_names && exl2__loras_of_names(m, &x->loras, &set);
    s->table.root = loaded ? exl2__roots_of(&m->roots, &m->pages, s->base_root, &set) : ++m->pages.roots;
    return loaded;
}

/* Replaces the history of a free session. A snapshot that is rejected leaves it as it was. After an error of the device
   the history is that of the snapshot, whose K and V are computed again. */
EXL2__PRIVATE exl2_result exl2__snapshot_restore(exl2_engine *e, exl2__session *s, const void *data, size_t bytes)
{
    exl2__model *m = &e->models[s->model];
    exl2__table *t = &s->table;
    exl2__snapshot x;
    EXL2__TRY(exl2__snapshot_read(e, m, (const uint8_t *)data, bytes, &x));
    EXL2__TRY(exl2__snapshot_add_vectors(e, &m->vectors, &x));
#ifndef EXL2_NO_VISION
    exl2_result entered = exl2__snapshot_pictures_enter(e, m, &x.pictures);
    if (entered < 0) {
        exl2__vectors_drop(&m->vectors, m->vectors.numbers, x.vectors);
        return entered;
    }
#endif
    if (x.earlier) {
        exl2__log(&e->ctx, EXL2_LOG_WARN, EXL2_LOG_ID_SNAPSHOT_EARLIER, "a snapshot for %s is of an earlier release, "
                  "which knew a model by the first bytes of its tensors: its history is restored, and K and V are "
                  "computed again", m->path);
    }
    exl2__table_forget(t, &m->pages);
    exl2__table_keep(t, &m->pages, 0);
    for (uint32_t i = 0; i < x.tokens; i++) {
        uint32_t word = exl2__load32(x.words + 4 * (size_t)i), sampled = word & m->pages.sampled;
        word &= ~EXL2__WORD_SAMPLED;
#ifndef EXL2_NO_VISION
        if (exl2__pictures_is(word)) {
            uint32_t slot = exl2__snapshot_pictures_slot(m, exl2__pictures_of(word));
            t->words[i] = exl2__pictures_word(slot, exl2__pictures_row(word));
            continue;
        }
#endif
        t->words[i] = sampled | (exl2__vectors_is(word) ? m->vectors.numbers[exl2__vectors_index(word)] : word);
    }
    for (uint32_t i = 0; i < x.state_count; i++) {
        exl2__snapshot_states(m, s)[i] = exl2__load32(x.states + 4 * (size_t)i);
    }
    s->resume = x.job;
    t->tokens = x.job.present ? x.job.prompt_end + x.job.delivered : x.tokens;
    exl2__vectors_use(&m->vectors, t->words, t->tokens); /* those after them are tokens */
    exl2__vectors_drop(&m->vectors, m->vectors.numbers, x.vectors);
#ifndef EXL2_NO_VISION
    exl2__snapshot_pictures_leave(m, x.pictures.count);
#endif
    exl2_result r = EXL2_OK;
    bool own = x.flags & EXL2__SNAPSHOT_HAS_KV || m->desc.cache.no_reuse;
    s->base_root = t->root = own ? ++m->pages.roots : 0; /* K and V of an older snapshot are not found, either */
    bool loaded = exl2__snapshot_restore_loras(m, s, &x);
    if (x.flags & EXL2__SNAPSHOT_HAS_KV && !loaded) {
        exl2__log(&e->ctx, EXL2_LOG_WARN, EXL2_LOG_ID_SNAPSHOT_KV, "K and V of a snapshot were computed with adapters "
                  "or control vectors that are not loaded here: they are computed again");
    } else if (x.flags & EXL2__SNAPSHOT_HAS_KV) {
        uint32_t tokens = t->tokens;
        t->tokens = x.tokens;
        r = exl2__snapshot_restore_kv(e, m, t, &x);
        t->tokens = tokens;
    }
    exl2__table_remember(t, &m->pages);
    return r;
}

#endif
