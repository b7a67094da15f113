/* bans.c: banned texts and the rewinds that remove them, minimum lengths, token healing, and logits that the
   application edits. Through the public API.
   takes: a golden model with a tokenizer made for it.
   gives: exit code 0 or 1. */
#include "text_model.h"

#include "private/unicode.h"

static text_model model; /* global, because the files hook keeps a pointer to it */

static const char *const plan[16] = { "The ", "fox", " ST", "O", "P \xF0\x9F", "\x98", "\x80 now", " is",
                                      "\xC3", "A ", "caf\xC3", "\xA9", " aab", "@3", "aabb", "." };

static rig_said said, other;

static exl2_result run(const rig *r, exl2_job_desc *d, rig_said *out)
{
    memset(out, 0, sizeof *out);
    d->user = out;
    exl2_result result = exl2_generate(r->engine, d);
    out->text[out->bytes] = 0;
    return result;
}

/* The first occurrence of `piece`, ignoring the case of ASCII letters. */
static const char *find(const char *text, const char *piece)
{
    for (; *text; text++) {
        size_t same = 0;
        while (piece[same] && (text[same] | 32) == (piece[same] | 32)
               && (text[same] == piece[same] || ((text[same] | 32) >= 'a' && (text[same] | 32) <= 'z'))) {
            same++;
        }
        if (!piece[same]) {
            return text;
        }
    }
    return NULL;
}

/* The text that the events delivered is the text of the ids, and the session holds the same ids. */
static void check_told(const rig *r, exl2_session s, size_t prompt)
{
    char whole[4096];
    exl2_token history[512];
    size_t need;
    CHECK_INT(exl2_detokenize(r->engine, r->model, said.ids, said.count, EXL2_TEXT_SKIP_MARKERS, whole, sizeof whole,
                              &need), EXL2_OK);
    CHECK_TEXT(said.text, whole);
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 512, &need), EXL2_OK);
    CHECK_INT(need, prompt + said.count);
    CHECK(memcmp(history + prompt, said.ids, said.count * sizeof *history) == 0);
}

/* K and V are those of the history: the session continues exactly as one that was never rewound. */
static void check_cache(const rig *r, exl2_session s)
{
    exl2_token history[512];
    size_t count;
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 512, &count), EXL2_OK);
    memset(&other, 0, sizeof other);
    exl2_job_desc d = rig_job(r, history, (uint32_t)count, 6, &other);
    rig_run(r, &d);
    static exl2_token wanted[6];
    memcpy(wanted, other.ids, sizeof wanted);
    d = rig_job(r, NULL, 0, 6, &other);
    memset(&other, 0, sizeof other);
    d.session = s;
    rig_run(r, &d);
    CHECK(memcmp(other.ids, wanted, sizeof wanted) == 0);
}

/* Returns the number of rewinds. */
static uint32_t ban(const rig *r, const char *const *bans, uint32_t count, uint32_t prompt_tokens)
{
    static exl2_token prompt[200];
    exl2_session s;
    for (uint32_t i = 0; i < 200; i++) {
        prompt[i] = i < EXL2__COUNT(text_prompt) ? text_prompt[i] : (exl2_token)(40 + i % 7);
    }
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_job_desc d = text_job(r, &model, 30, &said);
    d.prompt.token_count = prompt_tokens;
    d.prompt.tokens = prompt;
    d.session = s;
    d.ban_strings = bans;
    d.ban_string_count = count;
    d.sampler.bias = &(exl2_bias){ model.byte_ids[0], -3e38f }; /* a text without zero bytes is easier to look at */
    d.sampler.bias_count = prompt_tokens > EXL2__COUNT(text_prompt);
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK_INT(said.stats.bans_shown, 0);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(!find(said.text, bans[i]));
    }
    check_told(r, s, prompt_tokens);
    check_cache(r, s);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
    return said.stats.bans_avoided;
}

static void bans(const rig *r)
{
    static const char *const one[] = { "FOX" }, *const across[] = { "stop" }, *const smile[] = { "\xF0\x9F\x98\x80" };
    static const char *const many[] = { "fox", "o", "e", " n", "aab", "\xC3\xA9", "t", "is" };
    static const char *const never[] = { "qqqq" };
    uint32_t avoided = 0;
    CHECK(ban(r, one, 1, EXL2__COUNT(text_prompt)) >= 1);
    CHECK(ban(r, across, 1, EXL2__COUNT(text_prompt)) >= 1); /* a match of three tokens */
    CHECK(ban(r, smile, 1, EXL2__COUNT(text_prompt)) >= 1);  /* a code point of three tokens */
    CHECK(ban(r, many, 8, EXL2__COUNT(text_prompt)) >= (RIG_BACKEND == EXL2_BACKEND_CPU ? 3 : 1)); /* other text */
    for (uint32_t prompt = 58; prompt < 66; prompt++) { /* positions on both sides of a page boundary */
        avoided += ban(r, many, 8, prompt);
    }
    CHECK(avoided >= 8);
    exl2_job_desc d = text_job(r, &model, 16, &said);
    d.ban_strings = never;
    d.ban_string_count = 1;
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK(said.count == 16 && memcmp(said.ids, model.planned, 16 * sizeof(exl2_token)) == 0);
    CHECK_INT(said.stats.bans_avoided, 0);

    /* Stop strings together with bans: a banned text is removed before stop strings are searched, and the stop string
       is not shown. */
    static const char *const stop[] = { "now" };
    d.ban_strings = across;
    d.stop_strings = stop;
    d.stop_string_count = 1;
    d.max_tokens = 40;
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK(!find(said.text, "stop") && !strstr(said.text, "now"));
    CHECK(strncmp(said.text, "The fox", 7) == 0);
}

/* A stop token that the minimum length holds back is allowed once the minimum is reached, even after rewinds. */
static void bans_and_minimum(const rig *r)
{
    static const char *const one[] = { "fox" };
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r->engine, r->model, &info), EXL2_OK);
    const exl2_bias wish = { info.eos, 20 };
    exl2_job_desc d = text_job(r, &model, 16, &said);
    d.sampler.bias = &wish;
    d.sampler.bias_count = 1;
    d.ban_strings = one;
    d.ban_string_count = 1;
    d.min_tokens = 4;
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK(said.stop == EXL2_STOP_EOS && said.count == 5 && said.ids[4] == info.eos);
    CHECK(!find(said.text, "fox"));
}

/* If only the banned text can follow, it is let through and counted. */
static void bans_in_vain(const rig *r)
{
    static const char *const letters[] = { "a" };
    exl2_job_desc d = text_job(r, &model, 4, &said);
    const exl2_token only[] = { model.byte_ids['a'] };
    d.sampler.allow = only;
    d.sampler.allow_count = 1;
    d.ban_strings = letters;
    d.ban_string_count = 1;
    CHECK_INT(run(r, &d, &said), EXL2_ERR_ARG); /* the only allowed token is banned after a rewind, so none remains */
    static exl2_token all[70];
    exl2_bias wish[70];
    for (int i = 0; i < 70; i++) { /* 70 banned tokens; the engine tries 64 of them */
        all[i] = model.byte_ids[0x21 + i];
        wish[i] = (exl2_bias){ all[i], 1000 };
    }
    static char texts[70][2];
    static const char *each[70];
    for (int i = 0; i < 70; i++) {
        texts[i][0] = (char)(0x21 + i);
        each[i] = texts[i];
    }
    d.sampler.allow = NULL;
    d.sampler.allow_count = 0;
    d.sampler.bias = wish;
    d.sampler.bias_count = 70;
    d.ban_strings = each;
    d.ban_string_count = 70;
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK_INT(said.count, 4);
    CHECK(said.stats.bans_shown > 0 && said.stats.bans_avoided >= 64);
}

static void minimum(const rig *r)
{
    const exl2_bias eos = { 1, 1000 };
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r->engine, r->model, &info), EXL2_OK);
    exl2_job_desc d = text_job(r, &model, 20, &said);
    exl2_bias wish = eos;
    wish.token = info.eos;
    d.sampler.bias = &wish;
    d.sampler.bias_count = 1;
    for (uint32_t least = 0; least < 20; least += 6) {
        d.min_tokens = least;
        CHECK_INT(run(r, &d, &said), EXL2_OK);
        CHECK_INT(said.stop, EXL2_STOP_EOS);
        CHECK_INT(said.count, least + 1);
    }
    const exl2_token stop[] = { model.planned[2] };
    d.sampler.bias_count = 0;
    d.stop_tokens = stop;
    d.stop_token_count = 1;
    d.min_tokens = 3;
    d.max_tokens = 16;
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK(said.count > 3 && said.ids[2] != stop[0]); /* without min_tokens it would stop here */
    CHECK(memcmp(said.ids, model.planned, 2 * sizeof(exl2_token)) == 0);
    d.min_tokens = 17;
    text_check_refused(r, run(r, &d, &said), EXL2_ERR_ARG, "min_tokens is 17, but at most 16 new tokens are allowed");
}

static void healing(const rig *r)
{
    exl2_token long_a = model.planned[14], a = model.byte_ids['a'];
    exl2_token history[64];
    size_t need;
    exl2_session s;
    exl2_job_desc d = text_job(r, &model, 5, &said);
    const exl2_bias wish = { long_a, 1000 };
    d.sampler.bias = &wish;
    d.sampler.bias_count = 1;
    d.prompt.tokens = NULL;
    d.prompt.token_count = 0;
    d.prompt.flags = EXL2_TEXT_NO_BOS;
    d.prompt.text = "xya";
    d.heal_prompt = true;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    d.session = s;
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK_INT(said.stop, EXL2_STOP_LENGTH); /* max_tokens does not count the token that grew; new_tokens does */
    CHECK_INT(said.count, d.max_tokens + 1);
    CHECK_INT(said.stats.new_tokens, d.max_tokens + 1);
    CHECK_INT(said.stats.prompt_tokens, 3);
    CHECK_INT(said.ids[0], long_a);
    CHECK(strncmp(said.text, "abb", 3) == 0);
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 64, &need), EXL2_OK);
    CHECK(need == 8 && history[1] == model.byte_ids['y'] && history[2] == long_a);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);

    d.session = (exl2_session){ 0 }; /* no longer token is likely: the token itself comes again and adds no text */
    d.sampler.bias_count = 0;
    const exl2_token never[] = { long_a };
    d.sampler.ban = never;
    d.sampler.ban_count = 1;
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK_INT(said.ids[0], a);
    char whole[256];
    CHECK_INT(exl2_detokenize(r->engine, r->model, said.ids, said.count, EXL2_TEXT_SKIP_MARKERS, whole, sizeof whole,
                              &need), EXL2_OK);
    CHECK_TEXT(said.text, whole + 1);

    d.prompt.text = "a"; /* a prompt of one token is not healed, because nothing would be left to continue from */
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK_INT(said.count, 5);
    d.prompt.text = "ya<|im_end|>"; /* a marker is never healed */
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK_INT(said.count, 5);
}

/* ---- logits that the application edits ---- */

static struct edits {
    uint32_t calls, vocab;
    exl2_token force, best; /* best: the best token of the first call */
    exl2_job job;
    bool cancel;
    exl2_engine *engine;
} edits;

static void edit(void *user, exl2_job job, float *logits, uint32_t vocab)
{
    (void)user;
    edits.vocab = vocab;
    edits.job = job;
    if (edits.calls++ == 0) {
        edits.best = 0;
        for (uint32_t i = 1; i < vocab; i++) {
            edits.best = logits[i] > logits[edits.best] ? (exl2_token)i : edits.best;
        }
    }
    for (uint32_t i = 0; i < vocab; i++) {
        logits[i] = (exl2_token)i == edits.force ? 0 : -1e30f;
    }
    if (edits.cancel) {
        CHECK_INT(exl2_job_cancel(edits.engine, job), EXL2_OK);
    }
}

static void hooks(const rig *r)
{
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), 3, &said);
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    exl2_token likeliest = said.ids[0];
    const exl2_bias wish = { 7, 500 };
    d.sampler.bias = &wish; /* the hook sees the logits without the bias */
    d.sampler.bias_count = 1;
    d.on_logits = edit;
    d.alts_per_token = 1;
    edits = (struct edits){ .force = model.planned[3], .engine = r->engine };
    CHECK_INT(run(r, &d, &said), EXL2_OK);
    CHECK(edits.calls == 3 && edits.vocab == TEXT_VOCAB && edits.best == likeliest);
    CHECK(said.count == 3 && said.ids[0] == edits.force && said.ids[1] == edits.force && said.ids[2] == edits.force);
    CHECK(said.logprobs[0] > -1e-6f); /* the probability is that of the edited logits */
    edits.cancel = true;
    CHECK_INT(run(r, &d, &said), EXL2_ERR_CANCELLED);
    CHECK_INT(said.done_events, 1);
}

/* ---- text that is not UTF-8 ---- */

static exl2_token some[16]; /* the tokens that can be sampled, all equally likely */

static void level(void *user, exl2_job job, float *logits, uint32_t vocab)
{
    (void)user;
    (void)job;
    for (uint32_t i = 0; i < vocab; i++) {
        logits[i] = -1e30f;
    }
    for (uint32_t i = 0; i < EXL2__COUNT(some); i++) {
        logits[some[i]] = 0;
    }
}

static exl2_flow hear_whole(void *user, const exl2_event *ev)
{
    CHECK(ev->kind != EXL2_EVENT_TEXT || exl2__unicode_valid(ev->text, ev->bytes));
    return rig_hear(user, ev);
}

/* Samples random bytes, most of which form no code point, while texts that may begin with U+FFFD are banned or used as
   stop strings. Every event must hold whole code points, and the events together must be the text of the ids. */
static void broken_bytes(const rig *r)
{
    static const char *const bans[] = { "ab", "\xEF\xBF\xBD" "bc", "b\xEF\xBF\xBD\xEF\xBF\xBD", "\xE2\x82\xAC" "a" };
    static const char *const stops[] = { "\xEF\xBF\xBD" "a\xEF\xBF\xBD!", "c\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD!" };
    static const char bytes[] = "abc\xE2\x82\xAC\xF0\x9F\x98\x80\xC3\xA9\xF4\xED ";
    uint32_t avoided = 0, broken = 0;
    for (size_t i = 0; i < EXL2__COUNT(some); i++) {
        some[i] = model.byte_ids[(uint8_t)bytes[i % (sizeof bytes - 1)]];
    }
    for (uint64_t seed = 1; seed <= 60; seed++) {
        char whole[4096];
        size_t need;
        exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), 100, &said);
        d.sampler.preset = EXL2_PRESET_NEUTRAL;
        d.sampler.seed = seed;
        d.on_event = hear_whole;
        d.on_logits = level;
        d.ban_strings = bans;
        d.ban_string_count = seed % 3 ? EXL2__COUNT(bans) : 0;
        d.stop_strings = stops;
        d.stop_string_count = EXL2__COUNT(stops);
        d.alts_per_token = seed % 4 ? 0 : 64; /* room for the alternatives of 64 tokens that wait */
        CHECK_INT(run(r, &d, &said), EXL2_OK);
        CHECK_INT(said.stop, EXL2_STOP_LENGTH);
        CHECK_INT(said.count, 100);
        CHECK_INT(exl2_detokenize(r->engine, r->model, said.ids, said.count, EXL2_TEXT_SKIP_MARKERS, whole,
                                  sizeof whole, &need), EXL2_OK);
        CHECK(need == said.bytes && memcmp(whole, said.text, need) == 0);
        avoided += said.stats.bans_avoided;
        CHECK_INT(said.stats.bans_shown, 0);
        for (uint32_t i = 0; i < d.ban_string_count; i++) {
            if (!CHECK(find(said.text, bans[i]) == NULL)) {
                printf("  seed %u, ban %u: %s\n", (unsigned)seed, i, said.text);
            }
        }
        broken += strstr(said.text, "\xEF\xBF\xBD") != NULL;
    }
    CHECK(avoided > 20 && broken == 60);
}

int main(void)
{
    text_find_plan(&model, 16);
    text_write(&model, plan, 16, "{'eos_token':'<|endoftext|>'}");
    rig r = text_load(&model);
    bans(&r);
    bans_and_minimum(&r);
    bans_in_vain(&r);
    minimum(&r);
    healing(&r);
    hooks(&r);
    broken_bytes(&r);
    rig_close(&r);
    return check_done();
}
