/* endings.c: what ends a text, or changes it while it is sampled, together with a grammar: banned strings, healing,
   prefer_end; loops; a priority that changes. */
#include "text_model.h"

static text_model model;
static const char *const plan[8] = { "fox", " is", "ab", "abc", "the", "red", "green", "blue" };
static rig_said said, other;

static exl2_grammar grammar_of(const rig *r, exl2_grammar_kind kind, const char *source, bool prefer_end)
{
    exl2_grammar g = { 0 };
    exl2_grammar_desc d = { .model = r->model, .kind = kind, .source = source, .prefer_end = prefer_end };
    CHECK_INT(exl2_grammar_make(r->engine, &d, &g), EXL2_OK);
    return g;
}

static exl2_job_desc job_of(const rig *r, exl2_grammar g, uint64_t seed, rig_said *to)
{
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), 60, to);
    memset(to, 0, sizeof *to);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .seed = seed };
    d.grammar = g;
    return d;
}

/* ---- banned strings ---- */

/* A banned string in a text that the grammar allows in other ways: it never comes, and the text is still whole. Drafts
   and single tokens give the same text. */
static void bans(const rig *r)
{
    static const char *const banned[] = { "red", "a1" };
    exl2_grammar g = grammar_of(r, EXL2_GRAMMAR_REGEX, "((red|green|blue|a[12]) ){6}end", false);
    uint32_t avoided = 0;
    for (uint32_t seed = 1; seed < 40; seed++) {
        exl2_job_desc d = job_of(r, g, seed, &said);
        d.ban_strings = banned;
        d.ban_string_count = 2;
        rig_run(r, &d);
        CHECK(said.stop == EXL2_STOP_GRAMMAR && said.bytes > 10);
        CHECK(memcmp(said.text + said.bytes - 4, " end", 4) == 0);
        CHECK(!strstr(said.text, "red") && !strstr(said.text, "a1") && said.stats.bans_shown == 0);
        avoided += said.stats.bans_avoided;
        d = job_of(r, g, seed, &other);
        d.ban_strings = banned;
        d.ban_string_count = 2;
        d.draft.ngram = true;
        d.draft.one_by_one = seed % 2;
        rig_run(r, &d);
        CHECK(other.bytes == said.bytes && memcmp(other.text, said.text, said.bytes) == 0);
    }
    CHECK(avoided > 30);
    exl2_grammar_close(r->engine, g);
}

/* Where the grammar leaves nothing else, the banned string is shown and counted, and the job does not fail. */
static void bans_without_a_way_out(const rig *r)
{
    static const char *const banned[] = { "red", "blue" };
    static const char *const sources[] = { "say the red fox", "(the red|blue) fox", "the (red|green|blue) fox" };
    for (uint32_t i = 0; i < 3; i++) {
        exl2_grammar g = grammar_of(r, EXL2_GRAMMAR_REGEX, sources[i], false);
        for (uint32_t seed = 1; seed < 12; seed++) {
            exl2_job_desc d = job_of(r, g, seed, &said);
            d.ban_strings = banned;
            d.ban_string_count = 2;
            d.draft.one_by_one = seed % 2;
            rig_run(r, &d);
            CHECK(said.stop == EXL2_STOP_GRAMMAR && strstr(said.text, "fox"));
            CHECK_INT(said.stats.bans_shown > 0, i < 2);
            CHECK(i < 2 || strcmp(said.text, "the green fox") == 0);
        }
        exl2_grammar_close(r->engine, g);
    }
}

/* After a banned string that had to be shown, text goes on to come as it is made, later banned strings are avoided, and
   each that is shown counts once. Forced tokens and guesses change nothing. */
static void after_a_shown_ban(const rig *r)
{
    static const char *const banned[] = { "red", "blue", "e g" };
    exl2_grammar g = grammar_of(r, EXL2_GRAMMAR_REGEX, "the red fox is( green| blue| abc| ab){9}( red| ab)", false);
    for (uint32_t seed = 1; seed < 12; seed++) {
        for (uint32_t k = 0; k < 4; k++) {
            rig_said *to = k ? &other : &said;
            exl2_job_desc d = job_of(r, g, seed, to);
            d.ban_strings = banned;
            d.ban_string_count = 3;
            d.draft.one_by_one = k == 0;
            d.draft.ngram = k > 1;
            rig_run(r, &d);
            CHECK(to->stop == EXL2_STOP_GRAMMAR && strncmp(to->text, "the red fox is", 14) == 0);
            CHECK(!strstr(to->text, "blue") && !strstr(to->text + 8, "red") && to->stats.bans_shown == 1);
            CHECK(to->text_events > 9);
            CHECK(other.bytes == said.bytes || !k);
            CHECK(!k || memcmp(other.text, said.text, said.bytes) == 0);
            CHECK_INT(to->stats.bans_avoided, said.stats.bans_avoided);
        }
    }
    exl2_grammar_close(r->engine, g);
}

/* Long texts of tokens, too: what is held never outgrows its memory. */
static void long_after_a_shown_ban(void)
{
    static text_model wide;
    static const char *const words[] = { "a token whose text has sixty-four bytes, to fill held text soon ", "red" };
    static const char *const banned[] = { "red", "zz" };
    text_find_plan(&wide, 2);
    text_write(&wide, words, 2, TEXT_CHAT_CONFIG);
    rig r = text_load(&wide);
    exl2_grammar g = grammar_of(&r, EXL2_GRAMMAR_EBNF, "root ::= \"red\" "
                                "(\"a token whose text has sixty-four bytes, to fill held text soon \")*", false);
    exl2_job_desc d = job_of(&r, g, 1, &said);
    const exl2_bias wish = { wide.planned[0], 100 };
    d.max_tokens = 200;
    d.ban_strings = banned;
    d.ban_string_count = 2;
    d.sampler.bias = &wish;
    d.sampler.bias_count = 1;
    rig_run(&r, &d);
    CHECK(said.count == 200 && said.bytes == 3 + 199 * 64 && said.text_events > 100);
    rig_close(&r);
}

/* ---- healing ---- */

/* The prompt ends within "abc" or "the"; the grammar's text begins after what the prompt has of it. */
static void healing(const rig *r)
{
    static const char *const starts[] = { "a", "b", "t", "f" };
    exl2_grammar g = grammar_of(r, EXL2_GRAMMAR_REGEX, "[a-z]{0,3} (red|green|blue)\\.", false);
    uint32_t grown = 0;
    for (uint32_t seed = 1; seed < 40; seed++) {
        exl2_job_desc d = job_of(r, g, seed, &said);
        d.prompt = (exl2_prompt){ .text = starts[seed % 4] };
        char prompt[32];
        snprintf(prompt, sizeof prompt, "fox is %s", starts[seed % 4]);
        d.prompt.text = prompt;
        d.heal_prompt = true;
        rig_run(r, &d);
        CHECK(said.stop == EXL2_STOP_GRAMMAR);
        const char *space = strchr(said.text, ' ');
        CHECK(space && space - said.text <= 3 && said.text[said.bytes - 1] == '.');
        for (const char *p = said.text; space && p < space; p++) {
            CHECK(*p >= 'a' && *p <= 'z');
        }
        grown += said.text[0] != ' ';
    }
    CHECK(grown > 5);
    exl2_grammar_close(r->engine, g);
}

static bool allow_none(void *user, exl2_job job, const exl2_token *out, uint32_t n, uint32_t *bits, uint32_t words)
{
    (void)user;
    (void)job;
    (void)out;
    (void)n;
    (void)bits;
    (void)words;
    return false;
}

static void refused(const rig *r)
{
    exl2_grammar g;
    exl2_grammar_desc custom = { .model = r->model, .kind = EXL2_GRAMMAR_CUSTOM, .allow = allow_none };
    CHECK_INT(exl2_grammar_make(r->engine, &custom, &g), EXL2_OK);
    exl2_job_desc d = job_of(r, g, 1, &said);
    d.heal_prompt = true;
    text_check_refused(r, exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG, "heal_prompt cannot be used");
    exl2_grammar_close(r->engine, g);
    custom.prefer_end = true;
    text_check_refused(r, exl2_grammar_make(r->engine, &custom, &g), EXL2_ERR_ARG, "prefer_end");
    d = job_of(r, (exl2_grammar){ 0 }, 1, &said);
    d.loop_stop = 1;
    text_check_refused(r, exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG, "loop_stop is 1");
}

/* ---- prefer_end ---- */

static void prefer_end(const rig *r)
{
    exl2_grammar one = grammar_of(r, EXL2_GRAMMAR_REGEX, "x[0-9]{2,9}(!+)?", true);
    exl2_grammar any = grammar_of(r, EXL2_GRAMMAR_REGEX, "x[0-9]{2,9}(!+)?", false);
    exl2_grammar none = grammar_of(r, EXL2_GRAMMAR_REGEX, "(red)*", true);
    uint32_t longer = 0;
    for (uint32_t seed = 1; seed < 20; seed++) {
        exl2_job_desc d = job_of(r, one, seed, &said);
        d.draft.one_by_one = seed % 2;
        rig_run(r, &d);
        CHECK(said.stop == EXL2_STOP_GRAMMAR && said.bytes == 3);
        d = job_of(r, any, seed, &said);
        rig_run(r, &d);
        longer += said.bytes > 3;
        d = job_of(r, one, seed, &said);
        d.min_tokens = 5; /* no end before this many */
        rig_run(r, &d);
        CHECK(said.count >= 5 && said.stop == EXL2_STOP_GRAMMAR);
        d = job_of(r, none, seed, &said);
        rig_run(r, &d);
        CHECK(said.stop == EXL2_STOP_GRAMMAR && said.count == 0);
    }
    CHECK(longer > 5);
    exl2_grammar_close(r->engine, one);
    exl2_grammar_close(r->engine, any);
    exl2_grammar_close(r->engine, none);
}

/* ---- loops ---- */

/* The first prefix of the tokens that is a loop, by the words of exl2.h; 0: none. */
static uint32_t loop_end(const exl2_token *ids, uint32_t count, uint32_t times)
{
    for (uint32_t end = 1; end <= count; end++) {
        for (uint32_t piece = 1; piece <= 64; piece++) {
            uint32_t all = piece * times, least = all < 32 ? 32 : all, same = 0;
            while (least <= end && same < least - piece
                   && ids[end - 1 - same] == ids[end - 1 - same - piece]) {
                same++;
            }
            if (least <= end && same == least - piece) {
                return end;
            }
        }
    }
    return 0;
}

/* Texts of grammars that can only repeat themselves, and of the model. */
static void loops(const rig *r)
{
    static const char *const sources[] = { "(ab12){100}", "x{300}", "([0-9]{7}[a-f] ){40}",
                                           "(abcdefghijklmnopqrstuvwxyz0123456789ABCDEF){8}" };
    uint32_t ended = 0;
    for (uint32_t i = 0; i < 5; i++) {
        exl2_grammar g = { 0 };
        g = i < 4 ? grammar_of(r, EXL2_GRAMMAR_REGEX, sources[i], false) : g;
        for (uint32_t times = 2; times < 7; times++) {
            exl2_job_desc d = job_of(r, g, times, &other);
            d.max_tokens = 400;
            d.sampler.preset = i == 4 ? EXL2_PRESET_GREEDY : EXL2_PRESET_NEUTRAL;
            rig_run(r, &d);
            uint32_t end = loop_end(other.ids, other.count, times);
            d.loop_stop = times;
            d.user = &said;
            memset(&said, 0, sizeof said);
            d.draft.ngram = times % 2;
            rig_run(r, &d);
            CHECK_INT(said.count, end ? end : other.count);
            CHECK(said.stop == (end && end < other.count ? EXL2_STOP_LOOP : said.stop));
            CHECK(memcmp(said.ids, other.ids, said.count * sizeof *said.ids) == 0);
            ended += said.stop == EXL2_STOP_LOOP;
        }
        if (g.id) {
            exl2_grammar_close(r->engine, g);
        }
    }
    CHECK(ended > 9);
}

/* ---- priorities ---- */

/* Two prompts of 300 tokens; the second one is computed first once its priority is raised. */
static void priorities(void)
{
    static exl2_token ids[2][300];
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc folder = text_folder();
    folder.prefill_chunk = 32;
    folder.cache.no_reuse = true;
    rig r = rig_open(&engine, &folder);
    for (uint32_t turn = 0; turn < 2; turn++) {
        exl2_job jobs[2];
        rig_said *both[2] = { &said, &other };
        for (uint32_t i = 0; i < 2; i++) {
            for (uint32_t k = 0; k < 300; k++) {
                ids[i][k] = (exl2_token)(30 + (k * 7 + i) % 200);
            }
            exl2_job_desc d = job_of(&r, (exl2_grammar){ 0 }, 1, both[i]);
            d.prompt.tokens = ids[i];
            d.prompt.token_count = 300;
            d.max_tokens = 3;
            CHECK_INT(exl2_job_start(r.engine, &d, &jobs[i]), EXL2_OK);
        }
        exl2_step(r.engine, NULL);
        if (turn) {
            CHECK_INT(exl2_job_priority(r.engine, jobs[1], 5), EXL2_OK);
        }
        while (!said.count && !other.count) {
            exl2_step(r.engine, NULL);
        }
        CHECK((other.count > 0) == (turn == 1));
        rig_drain(&r, 0);
        CHECK_INT(exl2_job_priority(r.engine, jobs[1], 5), EXL2_ERR_STALE);
    }
    rig_close(&r);
}

int main(void)
{
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    rig r = text_load(&model);
    bans(&r);
    bans_without_a_way_out(&r);
    after_a_shown_ban(&r);
    healing(&r);
    refused(&r);
    prefer_end(&r);
    loops(&r);
    rig_close(&r);
    long_after_a_shown_ban();
    priorities();
    return check_done();
}
