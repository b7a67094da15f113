/* vectors.c: rows whose input is a vector, on the CPU and over the fake driver. Vectors that are rows of the embedding
   matrix give what the tokens give, bit by bit, whatever happens to their sessions in between. Two histories share
   pages up to the first vector that differs. Every vector lives as long as a word names it, and no longer. A model of
   two spans computes with vectors, too.
   takes: the goldens; the fake driver.
   gives: exit code 0 or 1. */
#include "bench.h"

#define PROMPT_MAX 210u

/* Two spans: the first layer, and the others. */
static uint32_t two_spans(uint32_t layers, uint32_t *ends)
{
    ends[0] = 1;
    ends[1] = layers;
    return 2;
}

/* ---- uses ---- */

static uint32_t counted[VECTORS_MAX];

static void count_words(const uint32_t *words, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (words[i] & EXL2__WORD_VECTOR) {
            counted[words[i] & (EXL2__WORD_VECTOR - 1)]++;
        }
    }
}

/* Counts all words again: the uses of each vector must be those, and `held` more that the test has. */
static void check_uses(const bench *b, const uint32_t *held, uint32_t held_count)
{
    const exl2__vectors *v = &b->m->vectors;
    const exl2__pages *p = &b->m->pages;
    static bool is_free[65536];
    uint32_t wrong = 0, unused = 0;
    memset(counted, 0, sizeof counted);
    memset(is_free, 0, sizeof is_free);
    count_words(held, held_count);
    for (uint32_t i = 0; i < b->e->max_sessions; i++) {
        const exl2__session *s = &b->e->sessions[i];
        count_words(s->table.words, s->id && &b->e->models[s->model] == b->m ? s->table.tokens : 0);
    }
    for (uint32_t i = 0; i < p->free_count; i++) {
        is_free[p->free_list[i]] = true;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        count_words(p->words + (size_t)i * EXL2__PAGE_TOKENS, is_free[i] ? 0 : p->page[i].count);
    }
    for (uint32_t i = 0; i < b->e->max_jobs; i++) {
        const exl2__sequence *s = &b->e->jobs[i].sequence;
        count_words(s->prompt, s->live && !s->begun ? s->prompt_count : 0);
    }
    for (uint32_t i = 0; i < v->count; i++) {
        wrong += v->uses[i] != counted[i];
        unused += v->uses[i] == 0;
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(v->free_count, unused);
}

/* ---- jobs ---- */

/* Starts a job on ids, of which those marked in `given` become vectors. word_of NULL: rows of the embedding. */
static exl2_job start(bench *b, exl2_session s, const exl2_token *ids, uint32_t count, const bool *given,
                      const uint32_t *word_of, uint32_t new_tokens, rig_said *said, exl2_job_desc *more)
{
    exl2_job job = { 0 };
    exl2_job_desc d = rig_job(&b->r, ids, count, new_tokens, said);
    memset(said, 0, offsetof(rig_said, scores));
    said->scored = 0;
    d.session = s;
    if (s.id) {
        d.model.id = 0;
    }
    if (more) {
        d.score_prompt = more->score_prompt;
        d.draft = more->draft;
        d.priority = more->priority;
        d.sampler = more->sampler.preset ? more->sampler : d.sampler;
    }
    exl2_result r = exl2_job_start(b->e, &d, &job);
    if (r < 0) {
        rig_fail(b->e, "exl2_job_start", r);
    }
    for (uint32_t i = 0; given && i < count; i++) {
        if (given[i]) {
            uint32_t word = word_of ? word_of[i] : exl2__vectors_add(&b->m->vectors, bench_embedding(b, ids[i]));
            CHECK(word != EXL2__NO_VECTOR);
            exl2__job_start_vectors(b->m, exl2__objects_job(b->e, job), i, &word, 1);
            exl2__vectors_drop(&b->m->vectors, &word, word_of ? 0 : 1);
        }
    }
    return job;
}

static void drain(bench *b)
{
    exl2_step_desc step = { .wait = true };
    for (uint32_t i = 0; i < 1000000 && exl2_step(b->e, &step) != EXL2_IDLE; i++) {
    }
}

static void same_text(const rig_said *a, const rig_said *b)
{
    CHECK_INT(a->count, b->count);
    CHECK_INT(a->result, b->result);
    CHECK(memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
    CHECK(memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0);
}

static void make_ids(const bench *b, exl2_token *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = (exl2_token)(3 + bench_below(b->m->plan.shape.vocab - 3));
    }
}

/* ---- rows of the embedding matrix ---- */

static void test_bits(const char *name, exl2_backend backend, uint32_t chunk)
{
    static rig_said tokens, vectors;
    exl2_token ids[110];
    bool given[110] = { 0 };
    exl2_job_desc scored = { .score_prompt = true };
    exl2_session none = { 0 };
    bench b = bench_open(name, backend, (exl2_model_desc){ .prefill_chunk = chunk }, 110);
    make_ids(&b, ids, 110);
    for (uint32_t i = 0; i < 110; i++) {
        given[i] = (i >= 5 && i < 80) || i == 100 || i == 109;
    }
    start(&b, none, ids, 110, NULL, NULL, 12, &tokens, &scored);
    drain(&b);
    start(&b, none, ids, 110, given, NULL, 12, &vectors, &scored);
    check_uses(&b, NULL, 0);
    drain(&b);
    CHECK_INT(tokens.result, EXL2_OK);
    CHECK_INT(vectors.stats.reused_tokens, 0);
    same_text(&tokens, &vectors);
    uint32_t scores = 0;
    for (uint32_t i = 1; i < 110; i++) { /* there is no score of a vector */
        if (!given[i]) {
            CHECK(memcmp(&tokens.scores[i - 1], &vectors.scores[scores], sizeof(float)) == 0);
            CHECK(memcmp(&tokens.logsumexp[i - 1], &vectors.logsumexp[scores], sizeof(float)) == 0);
            scores++;
        }
    }
    CHECK_INT(tokens.scored, 109);
    CHECK_INT(vectors.scored, scores);
    bench_close(&b);
}

/* ---- what is shared ---- */

/* The page of a position of an idle session. */
static uint32_t page_at(const bench *b, exl2_session s, uint32_t position)
{
    const exl2__table *t = &exl2__objects_session(b->e, s)->table;
    return position / EXL2__PAGE_TOKENS < t->page_count ? t->pages[position / EXL2__PAGE_TOKENS] : EXL2__NO_PAGE;
}

/* Four vectors pages long, the second prompt differs from the first in the vector at `at` alone. */
static void test_shares(exl2_backend backend, uint32_t at)
{
    static rig_said first, second, third, alone;
    exl2_token ids[PROMPT_MAX];
    uint32_t words[PROMPT_MAX], others[PROMPT_MAX];
    bool given[PROMPT_MAX] = { 0 };
    exl2_session a, c, d;
    float changed[8192];
    bench b = bench_open("llama3-rope", backend, (exl2_model_desc){ .cache.tokens = 4096 }, VECTORS_MAX);
    bench_seed = at;
    make_ids(&b, ids, PROMPT_MAX);
    for (uint32_t i = 0; i < PROMPT_MAX; i++) {
        given[i] = i > 2;
        words[i] = given[i] ? exl2__vectors_add(&b.m->vectors, bench_embedding(&b, ids[i])) : 0;
    }
    memcpy(changed, bench_embedding(&b, ids[at]), b.m->plan.shape.hidden * sizeof(float));
    changed[b.m->plan.shape.hidden - 1] += 0.5f;
    memcpy(others, words, sizeof words);
    others[at] = exl2__vectors_add(&b.m->vectors, changed);
    exl2_session_open(b.e, b.model, &a);
    exl2_session_open(b.e, b.model, &c);
    exl2_session_open(b.e, b.model, &d);
    start(&b, a, ids, PROMPT_MAX, given, words, 6, &first, NULL);
    drain(&b);
    start(&b, c, ids, PROMPT_MAX, given, others, 6, &second, NULL);
    drain(&b);
    start(&b, d, ids, PROMPT_MAX, given, words, 6, &third, NULL);
    drain(&b);
    uint32_t page = at / EXL2__PAGE_TOKENS, copied = at % EXL2__PAGE_TOKENS;
    CHECK_INT(second.stats.reused_tokens, page * EXL2__PAGE_TOKENS + (copied >= EXL2__PAGES_COPY_MIN ? copied : 0));
    CHECK_INT(third.stats.reused_tokens, PROMPT_MAX - 1);
    for (uint32_t i = 0; i < PROMPT_MAX; i += EXL2__PAGE_TOKENS) {
        CHECK((page_at(&b, a, i) == page_at(&b, c, i)) == (i / EXL2__PAGE_TOKENS < page));
        CHECK(page_at(&b, a, i) != EXL2__NO_PAGE && page_at(&b, c, i) != EXL2__NO_PAGE);
    }
    same_text(&first, &third);
    words[0] = others[at];
    check_uses(&b, words, PROMPT_MAX);
    bench_close(&b);
    /* What the second one says does not depend on the first: in another engine it says the same. */
    b = bench_open("llama3-rope", backend, (exl2_model_desc){ 0 }, VECTORS_MAX);
    for (uint32_t i = 3; i < PROMPT_MAX; i++) {
        others[i] = exl2__vectors_add(&b.m->vectors, i == at ? changed : bench_embedding(&b, ids[i]));
    }
    start(&b, (exl2_session){ 0 }, ids, PROMPT_MAX, given, others, 6, &alone, NULL);
    drain(&b);
    same_text(&second, &alone);
    CHECK(memcmp(first.logprobs, second.logprobs, sizeof(float)) != 0 || memcmp(first.ids, second.ids, 24) != 0);
    bench_close(&b);
}

/* ---- whatever happens ---- */

#define PAIRS 4u

/* Two sessions with one history: of tokens alone, and with vectors for some of them. */
static struct pair {
    exl2_session tokens, vectors;
    rig_said said[2];
    uint32_t length;
    bool live;
} pairs[PAIRS];

static void test_length(bench *b, struct pair *x)
{
    exl2_session_info a, c;
    exl2_session_get(b->e, x->tokens, &a);
    exl2_session_get(b->e, x->vectors, &c);
    CHECK_INT(a.tokens, c.tokens);
    x->length = a.tokens;
}

static void test_speak(bench *b, struct pair *x, uint32_t count)
{
    exl2_token ids[PROMPT_MAX];
    bool given[PROMPT_MAX];
    uint32_t new_tokens = 1 + bench_below(6);
    make_ids(b, ids, count);
    for (uint32_t i = 0; i < count; i++) {
        given[i] = bench_below(3) > 0;
    }
    exl2_job first = start(b, x->tokens, ids, count, NULL, NULL, new_tokens, &x->said[0], NULL);
    exl2_job second = start(b, x->vectors, ids, count, given, NULL, new_tokens, &x->said[1], NULL);
    check_uses(b, NULL, 0);
    if (bench_below(6) == 0) { /* before the first step, so that both histories stay as they are */
        exl2_job_cancel(b->e, first);
        exl2_job_cancel(b->e, second);
        drain(b);
        return;
    }
    for (uint32_t i = 0; i < 3 && bench_below(2); i++) {
        exl2_step(b->e, &(exl2_step_desc){ .cpu_us = 1 });
        check_uses(b, NULL, 0);
    }
    if (bench_below(8) == 0) {
        exl2_model_park(b->e, b->model, true);
        check_uses(b, NULL, 0);
        exl2_model_park(b->e, b->model, false);
    }
    drain(b);
    same_text(&x->said[0], &x->said[1]);
    CHECK_INT(x->said[1].result, EXL2_OK);
}

static void test_save(bench *b, const struct pair *from, struct pair *to, uint32_t flags)
{
    static uint8_t bytes[16u << 20];
    const exl2_session sessions[][2] = { { from->tokens, to->tokens }, { from->vectors, to->vectors } };
    for (uint32_t i = 0; i < 2; i++) {
        size_t need = 0;
        CHECK_INT(exl2_session_save(b->e, sessions[i][0], flags, bytes, sizeof bytes, &need), EXL2_OK);
        CHECK_INT(exl2_session_restore(b->e, sessions[i][1], bytes, need), EXL2_OK);
    }
}

static void test_turn(bench *b)
{
    struct pair *x = &pairs[bench_below(PAIRS)], *other = &pairs[bench_below(PAIRS)];
    uint32_t what = bench_below(9);
    if (!x->live) {
        exl2_session_open(b->e, b->model, &x->tokens);
        exl2_session_open(b->e, b->model, &x->vectors);
        x->live = true;
    }
    test_length(b, x);
    if (x->length > 90 || (x->length && what == 0)) {
        exl2_session_close(b->e, x->tokens);
        exl2_session_close(b->e, x->vectors);
        x->live = false;
    } else if (x->length < 2 || what < 5) {
        test_speak(b, x, 1 + bench_below(x->length > 60 ? 20 : 60));
    } else if (what == 5) {
        uint32_t keep = 1 + bench_below(x->length - 1);
        CHECK_INT(exl2_session_rewind(b->e, x->tokens, keep), EXL2_OK);
        CHECK_INT(exl2_session_rewind(b->e, x->vectors, keep), EXL2_OK);
    } else if (what == 6) {
        uint32_t at = bench_below(x->length - 1), count = bench_below(x->length - 1 - at);
        CHECK_INT(exl2_session_trim(b->e, x->tokens, at, count), EXL2_OK);
        CHECK_INT(exl2_session_trim(b->e, x->vectors, at, count), EXL2_OK);
    } else if (what == 7 && !other->live) {
        CHECK_INT(exl2_session_fork(b->e, x->tokens, &other->tokens), EXL2_OK);
        CHECK_INT(exl2_session_fork(b->e, x->vectors, &other->vectors), EXL2_OK);
        other->live = true;
    } else if (other->live) {
        test_save(b, x, other, bench_below(2) ? EXL2_SAVE_KV : 0);
    }
    check_uses(b, NULL, 0);
}

static void test_life(exl2_backend backend, uint32_t which, uint32_t turns)
{
    exl2_model_desc desc = { .prefill_chunk = 48, .batch_max = 4, .cache.tokens = 10 * EXL2__PAGE_TOKENS };
    bench b = bench_open("exl2-mixed", backend, desc, VECTORS_MAX);
    memset(pairs, 0, sizeof pairs);
    bench_seed = which;
    for (uint32_t i = 0; i < turns; i++) {
        test_turn(&b);
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        if (pairs[i].live) {
            exl2_session_close(b.e, pairs[i].tokens);
            exl2_session_close(b.e, pairs[i].vectors);
        }
    }
    check_uses(&b, NULL, 0);
    CHECK(b.m->vectors.free_count < VECTORS_MAX); /* pages remember them */
    for (uint32_t page; (page = exl2__pages_oldest(&b.m->pages)) != EXL2__NO_PAGE;) {
        exl2__table_drop_page(&b.m->pages, page);
    }
    CHECK_INT(b.m->vectors.free_count, VECTORS_MAX);
    bench_close(&b);
}

/* ---- snapshots ---- */

static exl2_result restore(bench *b, exl2_session s, uint8_t *bytes, size_t count)
{
    exl2__store64(bytes + count - 8, exl2__hash(bytes, count - 8)); /* of an attacker who knows the sum */
    exl2_result r = exl2_session_restore(b->e, s, bytes, count);
    check_uses(b, NULL, 0);
    return r;
}

static void test_snapshots(void)
{
    static uint8_t bytes[4u << 20], bad[4u << 20];
    static rig_said said, again;
    exl2_token ids[40];
    bool given[40];
    exl2_session s, t;
    exl2_error error;
    size_t need = 0, plain = 0;
    bench b = bench_open("exl2-mixed", EXL2_BACKEND_CPU, (exl2_model_desc){ 0 }, 30);
    for (uint32_t i = 0; i < 40; i++) {
        given[i] = (i >= 10 && i < 35) || i >= 37;
        ids[i] = (exl2_token)(10 + 3 * (i < 37 ? i : i - 27)); /* the last three vectors are those at 10 to 12 */
    }
    exl2_session_open(b.e, b.model, &s);
    exl2_session_open(b.e, b.model, &t);
    start(&b, t, ids, 40, NULL, NULL, 4, &again, NULL);
    drain(&b);
    CHECK_INT(exl2_session_save(b.e, t, 0, NULL, 0, &plain), EXL2_OK);
    exl2_session_rewind(b.e, t, 20);
    start(&b, s, ids, 40, given, NULL, 4, &said, NULL);
    drain(&b);
    CHECK_INT(exl2_session_save(b.e, s, 0, bytes, sizeof bytes, &need), EXL2_OK);
    uint64_t row_bytes = b.m->plan.shape.hidden * sizeof(float);
    CHECK_INT(need, plain + 4 + 25 * row_bytes); /* each once */
    const size_t words = EXL2__SNAPSHOT_HEAD_BYTES, count = words + 4 * (size_t)exl2__load32(bytes + 32);
    const struct { size_t at; uint32_t value; } cases[] = {
        { 12, 0 },                                         /* no flag: words are outside of the vocabulary */
        { count, 0 }, { count, 24 }, { count, 26 }, { count, UINT32_MAX },
        { words + 4 * 10, EXL2__WORD_VECTOR | 1 },         /* numbers do not begin in order */
        { words + 4 * 34, EXL2__WORD_VECTOR | 3 },         /* the last vector has no word */
        { words + 4 * 37, EXL2__WORD_VECTOR | 25 }, { words + 4 * 37, EXL2__WORD_VECTOR - 1 },
        { count + 4, 0x7F800000 }, { count + 8, 0x7FC00000 }, /* infinite, NaN */
    };
    for (uint32_t i = 0; i < EXL2__COUNT(cases); i++) {
        memcpy(bad, bytes, need);
        exl2__store32(bad + cases[i].at, cases[i].value);
        CHECK_INT(restore(&b, t, bad, need), EXL2_ERR_FORMAT);
    }
    memcpy(bad, bytes, need); /* all numbers occur, but the second one first */
    exl2__store32(bad + words + 4 * 10, EXL2__WORD_VECTOR | 1);
    exl2__store32(bad + words + 4 * 11, EXL2__WORD_VECTOR | 0);
    CHECK_INT(restore(&b, t, bad, need), EXL2_ERR_FORMAT);
    for (size_t cut = EXL2__SNAPSHOT_HEAD_BYTES + 8; cut < need; cut += 7) {
        memcpy(bad, bytes, cut);
        CHECK_INT(restore(&b, t, bad, cut), EXL2_ERR_FORMAT);
    }
    exl2_session_info info;
    exl2_session_get(b.e, t, &info);
    CHECK_INT(info.tokens, 20); /* as it was */
    CHECK_INT(restore(&b, t, bytes, need), EXL2_OK); /* 25 vectors of which it has all */
    start(&b, s, ids, 3, NULL, NULL, 4, &said, NULL);
    drain(&b);
    start(&b, t, ids, 3, NULL, NULL, 4, &again, NULL);
    drain(&b);
    same_text(&said, &again);
    bench_close(&b);
    /* A model with too little room keeps what it has. */
    for (uint32_t room = 0; room < 25; room += 24) {
        b = bench_open("exl2-mixed", EXL2_BACKEND_CPU, (exl2_model_desc){ 0 }, room);
        exl2_session_open(b.e, b.model, &s);
        start(&b, s, ids, 8, NULL, NULL, 1, &said, NULL);
        drain(&b);
        CHECK_INT(restore(&b, s, bytes, need), EXL2_ERR_BUDGET);
        exl2_last_error(b.e, &error);
        CHECK(strstr(error.text, "has 25 vectors") != NULL);
        exl2_session_get(b.e, s, &info);
        CHECK_INT(info.tokens, 9);
        bench_close(&b);
    }
}

/* ---- jobs that go on, and pairs ---- */

/* A session that is saved while its job speaks, and goes on elsewhere. */
static void test_resume(exl2_backend backend)
{
    static rig_said said[2], rest[2];
    static uint8_t bytes[4u << 20];
    exl2_token ids[70];
    bool given[70];
    exl2_session s[2], t;
    size_t need = 0;
    bench b = bench_open("exl2-mixed", backend, (exl2_model_desc){ 0 }, VECTORS_MAX);
    bench_seed = 3;
    make_ids(&b, ids, 70);
    for (uint32_t i = 0; i < 70; i++) {
        given[i] = i % 3 != 1;
    }
    for (uint32_t i = 0; i < 2; i++) {
        exl2_session_open(b.e, b.model, &s[i]);
        exl2_session_open(b.e, b.model, &t);
        start(&b, s[i], ids, 70, i ? given : NULL, NULL, 20, &said[i], NULL);
        for (uint32_t k = 0; k < 1000 && said[i].count < 3; k++) {
            exl2_step(b.e, &(exl2_step_desc){ .wait = true });
        }
        CHECK_INT(exl2_session_save(b.e, s[i], i ? EXL2_SAVE_KV : 0, bytes, sizeof bytes, &need), EXL2_OK);
        CHECK_INT(exl2_session_restore(b.e, t, bytes, need), EXL2_OK);
        check_uses(&b, NULL, 0);
        exl2_job_desc d = rig_job(&b.r, NULL, 0, 20, &rest[i]);
        memset(&rest[i], 0, offsetof(rig_said, scores));
        d.model.id = 0;
        d.session = t;
        d.resume = true;
        CHECK_INT(exl2_job_start(b.e, &d, NULL), EXL2_OK);
        drain(&b);
        check_uses(&b, NULL, 0);
    }
    same_text(&said[0], &said[1]);
    same_text(&rest[0], &rest[1]);
    bench_close(&b);
}

/* Guidance: the positive prompt has vectors, and ends with one. */
static void test_guidance(exl2_backend backend)
{
    static rig_said said[2];
    exl2_token ids[40];
    bench b = bench_open("exl2-mixed", backend, (exl2_model_desc){ .batch_max = 4 }, VECTORS_MAX);
    bench_seed = 4;
    make_ids(&b, ids, 40);
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job job;
        exl2_job_desc d = rig_job(&b.r, ids, 40, 8, &said[i]);
        memset(&said[i], 0, offsetof(rig_said, scores));
        d.guidance = 1.5f;
        d.negative_prompt.tokens = ids + 20;
        d.negative_prompt.token_count = 10;
        CHECK_INT(exl2_job_start(b.e, &d, &job), EXL2_OK);
        for (uint32_t k = 25; i && k < 40; k++) {
            uint32_t word = exl2__vectors_add(&b.m->vectors, bench_embedding(&b, ids[k]));
            exl2__job_start_vectors(b.m, exl2__objects_job(b.e, job), k, &word, 1);
            exl2__vectors_drop(&b.m->vectors, &word, 1);
        }
        drain(&b);
        CHECK_INT(said[i].result, EXL2_OK);
    }
    same_text(&said[0], &said[1]);
    check_uses(&b, NULL, 0);
    bench_close(&b);
}

/* ---- what takes words for text ---- */

static void test_text(void)
{
    static rig_said said, drafted;
    exl2_token ids[60], out[80];
    bool given[60] = { 0 };
    uint32_t words[8];
    exl2__table t = { .words = words };
    exl2_session s;
    size_t need = 0;
    bench b = bench_open("exl2-mixed", EXL2_BACKEND_CPU, (exl2_model_desc){ 0 }, 60);
    for (uint32_t i = 0; i < 8; i++) { /* 0 V 2 V V 5 6 V */
        words[i] = 0x9A >> i & 1 ? EXL2__WORD_VECTOR | i : i | (i & 2 ? EXL2__WORD_SAMPLED : 0);
    }
    t.tokens = 8;
    CHECK_INT(exl2__table_read(&t, 0, 8, out), 4);
    CHECK(out[0] == 0 && out[1] == 2 && out[2] == 5 && out[3] == 6);
    CHECK_INT(exl2__table_read_last(&t, 3, out), 3);
    CHECK(out[0] == 2 && out[1] == 5 && out[2] == 6);
    CHECK_INT(exl2__table_read_last(&t, 9, out), 4);
    CHECK_INT(exl2__table_read_last(&t, 0, out), 0);
    for (uint32_t i = 0; i < 60; i++) { /* a text that repeats itself, with vectors in between */
        ids[i] = (exl2_token)(5 + i % 6);
        given[i] = i % 6 == 2;
    }
    exl2_session_open(b.e, b.model, &s);
    exl2_model_desc other = { .path = rig_golden("exl2-mixed") };
    exl2_model draft;
    CHECK_INT(exl2_model_load(b.e, &other, &draft), EXL2_OK);
    exl2_job_desc more = { .draft.ngram = true };
    more.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_GREEDY, .repeat_penalty = 1.3f, .dry_multiplier = 0.8f };
    start(&b, s, ids, 60, given, NULL, 12, &said, &more);
    drain(&b);
    CHECK_INT(said.result, EXL2_OK);
    CHECK(said.count > 3);
    CHECK_INT(exl2_session_tokens(b.e, s, out, 80, &need), EXL2_OK);
    CHECK_INT(need, 60 + said.count);
    for (uint32_t i = 0; i < 60; i++) {
        CHECK_INT(out[i], given[i] ? -1 : ids[i]);
    }
    /* A draft model has no vectors: it ends, and the text is the same. */
    exl2_session_rewind(b.e, s, 3);
    start(&b, s, ids, 60, given, NULL, 12, &said, NULL);
    drain(&b);
    exl2_session_rewind(b.e, s, 3);
    more = (exl2_job_desc){ .draft.model = draft };
    start(&b, s, ids, 60, given, NULL, 12, &drafted, &more);
    drain(&b);
    same_text(&said, &drafted);
    check_uses(&b, NULL, 0);
    CHECK_INT(exl2_model_close(b.e, draft), EXL2_OK);
    bench_close(&b);
}

/* ---- the pool ---- */

static void test_pool(void)
{
    exl2__vectors v;
    uint8_t memory[4096];
    exl2__arena a = { .base = memory, .size = sizeof memory };
    float rows[5][3] = { { 1, 2, 3 }, { 1, 2, 4 }, { 0, 0, 0 }, { -0.0f, 0, 0 }, { 1, 2, 3 } };
    exl2__vectors_make(&v, &a, 3, 3);
    uint32_t first = exl2__vectors_add(&v, rows[0]), second = exl2__vectors_add(&v, rows[1]);
    uint32_t third = exl2__vectors_add(&v, rows[2]);
    CHECK(first != second && first != third && second != third);
    CHECK_INT(exl2__vectors_room(&v), 0);
    CHECK_INT(exl2__vectors_add(&v, rows[3]), EXL2__NO_VECTOR); /* its bytes are others than those of the third */
    CHECK_INT(exl2__vectors_add(&v, rows[4]), first);           /* which needs no room */
    exl2__vectors_drop(&v, &first, 1);
    CHECK(memcmp(exl2__vectors_data(&v, first), rows[0], sizeof rows[0]) == 0);
    exl2__vectors_drop(&v, &first, 1);
    CHECK_INT(exl2__vectors_room(&v), 1);
    uint32_t fourth = exl2__vectors_add(&v, rows[3]);
    CHECK_INT(fourth, first); /* its index names another one, as nobody names the old one any more */
    CHECK(memcmp(exl2__vectors_data(&v, fourth), rows[3], sizeof rows[3]) == 0);
    const uint32_t words[] = { 7, second, third | EXL2__WORD_SAMPLED, second, 9 };
    exl2__vectors_use(&v, words, 5);
    CHECK_INT(v.uses[1], 3);
    CHECK_INT(v.uses[2], 2);
    CHECK_INT(exl2__vectors_number(&v, words, 5), 2);
    CHECK(v.numbers[1] == 0 && v.numbers[2] == 1 && v.numbers[0] == EXL2__NO_VECTOR);
    exl2__vectors_drop(&v, words, 5);
    exl2__vectors_drop(&v, &second, 1);
    exl2__vectors_drop(&v, &third, 1);
    exl2__vectors_drop(&v, &fourth, 1);
    CHECK_INT(exl2__vectors_room(&v), 3);
}

int main(int argc, char **argv)
{
    const exl2_backend backends[] = { EXL2_BACKEND_CPU, EXL2_BACKEND_CUDA };
    rig_read_path(&argc, &argv);
    test_pool();
    test_text();
    test_snapshots();
    test_bits("exl2-mixed", EXL2_BACKEND_CPU, 0);
    test_bits("exl2-mixed", EXL2_BACKEND_CPU, 7);
    test_bits("gemma2", EXL2_BACKEND_CPU, 64); /* whose embedding has a scale */
    test_bits("starcoder2", EXL2_BACKEND_CPU, 0);
    engine_rig.spans = two_spans;
    test_bits("exl2-mixed", EXL2_BACKEND_CPU, 7);
    test_bits("starcoder2", EXL2_BACKEND_CPU, 0);
    engine_rig.spans = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        test_resume(backends[i]);
        test_guidance(backends[i]);
        test_shares(backends[i], 3);
        test_shares(backends[i], 100);
        test_shares(backends[i], 127);
        test_shares(backends[i], 128);
        for (uint32_t which = 0; which < 4; which++) {
            test_life(backends[i], which, 60);
        }
    }
    test_bits("exl2-mixed", EXL2_BACKEND_CUDA, 0);
    test_bits("exl2-mixed", EXL2_BACKEND_CUDA, 7);
    test_bits("gemma2", EXL2_BACKEND_CUDA, 0);
    machine_drop_cache();
    return check_done();
}
