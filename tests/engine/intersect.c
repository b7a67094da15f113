/* intersect.c: jobs with several grammars. 200 random pairs of a schema and an expression: each text is judged by
   jsonschema and by re; where the engine says that no text fits both, re must not match texts of the schema. Ends,
   forced tokens, bans, closing, saving, memory, rejected calls. */
#define _GNU_SOURCE /* mkdtemp */
#include "text_model.h"
#include "private/objects.h"
#include "../grammar_judge.h"

static text_model model; /* global, because the files hook keeps a pointer to it */
static rig_said said, other;

static const char *const plan[16] = { "{\"", "\":", "\": \"", "\",\"", "\"}", "true", "false", "]}",
                                      "ab", "12", "\\\"", ", \"", "{}", "-1", "ba", "00" };

static uint32_t state = 7;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 8) * below >> 24);
}

static exl2_grammar make(const rig *r, exl2_grammar_kind kind, const char *source, bool prefer_end)
{
    exl2_grammar g = { 0 };
    exl2_grammar_desc d = { .model = r->model, .kind = kind, .source = source, .prefer_end = prefer_end };
    exl2_result result = exl2_grammar_make(r->engine, &d, &g);
    if (result < 0) {
        rig_fail(r->engine, source, result);
    }
    return g;
}

static exl2_job_desc job_of(const rig *r, const exl2_grammar *list, uint32_t count, uint64_t seed, uint32_t max_tokens,
                            rig_said *to)
{
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), max_tokens, to);
    memset(to, 0, sizeof *to);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .temperature = 1.5f, .seed = seed };
    d.grammars = list;
    d.grammar_count = count;
    return d;
}

/* ---- random pairs ---- */

static void random_schema(char *out, size_t cap, uint32_t kind)
{
    uint32_t a = draw(30), b = a + draw(300);
    switch (kind) {
    case 0:
        snprintf(out, cap, "{\"type\":\"integer\",\"minimum\":-%u,\"maximum\":%u}", a, b);
        return;
    case 1:
        snprintf(out, cap, "{\"type\":\"string\",\"minLength\":%u,\"maxLength\":%u}", a % 4, a % 4 + draw(9));
        return;
    case 2:
        snprintf(out, cap, "{\"enum\":[\"north\",\"north-east\",\"ab\",\"abba\",\"no\",%u,%u,true,null]}", a, b);
        return;
    case 3:
        snprintf(out, cap, "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":%u,\"maxItems\":%u}",
                 a % 3, a % 3 + draw(4));
        return;
    default:
        snprintf(out, cap, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":0,"
                 "\"maximum\":%u},\"b\":{\"enum\":[\"ab\",\"ba\",\"abba\"]}},\"required\":[\"%c\"]}", b,
                 draw(2) ? 'a' : 'b');
        return;
    }
}

/* An expression that means the same to Python, to POSIX (ERE) and to the engine. */
static void random_expression(char *out, size_t cap, uint32_t kind)
{
    static const char *const numbers[] = { "-?[0-9]*[02468]", "[1-9][0-9]{0,2}", "-[0-9]+", "(12|34|5)*", "[0-9]{3}" };
    static const char *const strings[] = { "\"[a-f ]{2,9}\"", "\"(ab|c|d ?)*\"", "\"[^ab]*\"", "\".{3,4}\"", "\"x\"" };
    static const char *const words[] = { "\"(no|ab).*", "[^-]*", "[0-9]+", ".{4,7}", "(true|\"abba\")" };
    static const char *const lists[] = { "[^f]*", "(.*true){2}.*", ".{0,14}", "\\[[a-z]*\\]", "[^ ]*" };
    static const char *const objects[] = { "[^ ]*", ".*ab\"}", "[^:]*:[^:]*", ".{0,13}", "[^12]*" };
    static const char *const *const all[] = { numbers, strings, words, lists, objects };
    uint32_t of = draw(8) ? kind : draw(5); /* a few fit nothing */
    snprintf(out, cap, "%s", all[of][draw(5)]);
}

/* Texts of the schema alone: none of them may fit the expression. */
static void check_none(const rig *r, judge *j, exl2_grammar schema, const char *expression)
{
    for (uint32_t k = 0; k < 6; k++) {
        exl2_job_desc d = job_of(r, &schema, 1, k + 1, 30, &other);
        CHECK_INT(exl2_generate(r->engine, &d), EXL2_OK);
        judge_add(j, 'n', expression, other.text, other.bytes);
    }
}

static void pairs(const rig *r, judge *j)
{
    uint32_t texts = 0, none = 0;
    for (uint32_t n = 0; n < 200; n++) {
        char schema[512], expression[128];
        exl2_error error;
        uint32_t kind = n % 5;
        random_schema(schema, sizeof schema, kind);
        random_expression(expression, sizeof expression, kind);
        exl2_grammar list[2] = { make(r, EXL2_GRAMMAR_JSON_SCHEMA, schema, false),
                                 make(r, EXL2_GRAMMAR_REGEX, expression, false) };
        for (uint32_t k = 0; k < 2; k++) {
            exl2_job_desc d = job_of(r, list, 2, 2 * n + k + 1, 24 + draw(20), &said);
            exl2_result result = exl2_job_start(r->engine, &d, NULL);
            if (result < 0) {
                exl2_last_error(r->engine, &error);
                CHECK(result == EXL2_ERR_ARG && strcmp(error.text, "no text fits all 2 grammars of the job") == 0);
                none += k == 0;
                check_none(r, j, list[0], expression);
                break;
            }
            exl2_grammar_close(r->engine, list[k]); /* the job keeps what it needs */
            list[k] = make(r, k ? EXL2_GRAMMAR_REGEX : EXL2_GRAMMAR_JSON_SCHEMA, k ? expression : schema, false);
            rig_drain(r, 0);
            CHECK_INT(said.result, EXL2_OK);
            CHECK(said.count <= d.max_tokens && said.stop != EXL2_STOP_ERROR);
            judge_add(j, 's', schema, said.text, said.bytes);
            judge_add(j, 'r', expression, said.text, said.bytes);
            texts++;
        }
        exl2_grammar_close(r->engine, list[0]);
        exl2_grammar_close(r->engine, list[1]);
    }
    printf("%u texts, %u pairs that no text fits\n", texts, none);
    CHECK(texts > 250 && none > 5);
}

/* ---- one text ---- */

static void run_text(const rig *r, exl2_job_desc *d, const char *wanted)
{
    CHECK_INT(exl2_generate(r->engine, d), EXL2_OK);
    said.text[said.bytes] = 0;
    CHECK_TEXT(said.text, wanted);
}

/* Neither grammar alone forces the text, or lets it end soon enough, but both together do. */
static void forced(const rig *r)
{
    exl2_engine_stats before, after;
    exl2_stats(r->engine, &before);
    exl2_grammar list[4] = { make(r, EXL2_GRAMMAR_REGEX, "(ab|ba)*c?", false),
                             make(r, EXL2_GRAMMAR_REGEX, "a[a-z]{4}", false),
                             make(r, EXL2_GRAMMAR_REGEX, "[^b]b[^a]*a.", false), make(r, EXL2_GRAMMAR_CHOICES,
                             "ababab\nabbac\nab\nabab", false) };
    for (uint32_t k = 0; k < 6; k++) {
        exl2_job_desc d = job_of(r, list, 4, k + 1, 9, &said);
        d.draft.one_by_one = k % 2;
        run_text(r, &d, "abbac");
        CHECK_INT(said.stop, EXL2_STOP_GRAMMAR);
        CHECK((said.stats.forced_tokens > 0) == (k % 2 == 0));
    }
    /* `grammar` is one more of them, and the same grammar may be in the list again */
    exl2_grammar twice[2] = { list[3], list[3] };
    exl2_job_desc d = job_of(r, twice, 2, 3, 9, &said);
    d.grammar = list[1];
    run_text(r, &d, "abbac");
    /* the shortest common text decides whether max_tokens is enough */
    d = job_of(r, list, 4, 3, 1, &said);
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_BUDGET);
    text_check_refused(r, EXL2_ERR_BUDGET, EXL2_ERR_BUDGET, "but max_tokens is 1");
    /* bans of the job hold for what is common */
    d = job_of(r, list, 2, 3, 9, &said);
    exl2_token never = model.byte_ids['c'];
    d.sampler.ban = &never;
    d.sampler.ban_count = 1;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG); /* five letters need a c */
    text_check_refused(r, EXL2_ERR_ARG, EXL2_ERR_ARG, "exclude tokens that every text of its grammar needs");
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(exl2_grammar_close(r->engine, list[i]), EXL2_OK);
    }
    exl2_stats(r->engine, &after);
    CHECK_INT(after.host_bytes, before.host_bytes);
}

/* What grammars have in common is kept for the next job, up to the close of one of them, and of its last job. */
static void kept(const rig *r)
{
    exl2_engine_stats first, second, last;
    uint64_t held = r->engine->ctx.host_bytes;
    exl2_grammar list[3] = { make(r, EXL2_GRAMMAR_REGEX, "(ab|ba)*c?", false),
                             make(r, EXL2_GRAMMAR_REGEX, "a[a-z]{4}", false),
                             make(r, EXL2_GRAMMAR_REGEX, "[^b]b[^a]*a.", false) };
    exl2_grammar back[2] = { list[1], list[0] };
    uint64_t own = r->engine->ctx.host_bytes;
    exl2_job_desc a = job_of(r, list, 2, 3, 9, &said), b = job_of(r, list, 2, 4, 9, &other);
    CHECK_INT(exl2_job_start(r->engine, &a, NULL), EXL2_OK);
    exl2_stats(r->engine, &first);
    CHECK(first.host_bytes > own);
    CHECK_INT(exl2_job_start(r->engine, &b, NULL), EXL2_OK); /* side by side */
    rig_drain(r, 0);
    CHECK_INT(exl2_generate(r->engine, &a), EXL2_OK);
    exl2_stats(r->engine, &second);
    CHECK(second.host_bytes == first.host_bytes && second.allocations == first.allocations);
    /* other lists, or a ban, are made anew; one list is kept with each first grammar */
    a = job_of(r, back, 2, 3, 9, &said);
    CHECK_INT(exl2_generate(r->engine, &a), EXL2_OK);
    a = job_of(r, list, 3, 3, 9, &said);
    CHECK_INT(exl2_job_start(r->engine, &a, NULL), EXL2_OK);
    b = job_of(r, list, 2, 3, 9, &other); /* takes its place while it runs */
    CHECK_INT(exl2_job_start(r->engine, &b, NULL), EXL2_OK);
    rig_drain(r, 0);
    exl2_stats(r->engine, &second);
    exl2_token never = model.byte_ids['q'];
    b.sampler.ban = &never;
    b.sampler.ban_count = 1;
    CHECK_INT(exl2_generate(r->engine, &b), EXL2_OK);
    exl2_stats(r->engine, &last);
    CHECK(last.host_bytes == second.host_bytes && last.allocations > second.allocations);
    /* closed while a job runs: all goes with the job */
    b.sampler.ban_count = 0;
    memset(&other, 0, sizeof other);
    CHECK_INT(exl2_job_start(r->engine, &b, NULL), EXL2_OK);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(exl2_grammar_close(r->engine, list[i]), EXL2_OK);
    }
    CHECK(r->engine->ctx.host_bytes > held);
    rig_drain(r, 0);
    CHECK_INT(other.result, EXL2_OK);
    CHECK_INT(r->engine->ctx.host_bytes, held);
}

/* prefer_end of one of them: the text ends where both allow it. */
static void preferred(const rig *r)
{
    exl2_grammar list[2] = { make(r, EXL2_GRAMMAR_REGEX, "(ab)*", true), make(r, EXL2_GRAMMAR_REGEX, "a.{3,}", false) };
    for (uint32_t seed = 1; seed < 9; seed++) {
        exl2_job_desc d = job_of(r, list, 2, seed, 30, &said);
        run_text(r, &d, "abab");
    }
    exl2_grammar_close(r->engine, list[0]);
    exl2_grammar_close(r->engine, list[1]);
}

/* A job that is saved in the middle goes on within the same grammars. */
static void saved(const rig *r)
{
    static uint8_t bytes[1 << 16];
    size_t need;
    exl2_session talk, later;
    exl2_grammar list[2] = { make(r, EXL2_GRAMMAR_REGEX, "([a-m]{3} )*[a-z]{5}", false),
                             make(r, EXL2_GRAMMAR_REGEX, "[^aeg]{21}", false) };
    CHECK_INT(exl2_session_open(r->engine, r->model, &talk), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &later), EXL2_OK);
    exl2_job_desc d = job_of(r, list, 2, 5, 30, &said);
    d.model.id = 0;
    d.session = talk;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    while (said.count < 8) {
        exl2_step(r->engine, NULL);
    }
    uint32_t heard = said.bytes;
    CHECK_INT(exl2_session_save(r->engine, talk, 0, bytes, sizeof bytes, &need), EXL2_OK);
    rig_drain(r, 0);
    CHECK_INT(exl2_session_restore(r->engine, later, bytes, need), EXL2_OK);
    memset(&other, 0, sizeof other);
    d.session = later;
    d.prompt = (exl2_prompt){ 0 };
    d.resume = true;
    d.user = &other;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    rig_drain(r, 0);
    said.text[said.bytes] = other.text[other.bytes] = 0;
    CHECK(said.bytes == 21 && said.stop == EXL2_STOP_GRAMMAR);
    CHECK_TEXT(other.text, said.text + heard);
    exl2_session_close(r->engine, talk);
    exl2_session_close(r->engine, later);
    exl2_grammar_close(r->engine, list[0]);
    exl2_grammar_close(r->engine, list[1]);
}

/* ---- rejected ---- */

static bool anything(void *user, exl2_job job, const exl2_token *tokens, uint32_t n, uint32_t *bits, uint32_t words)
{
    (void)user, (void)job, (void)tokens, (void)n;
    memset(bits, 0xFF, words * sizeof *bits);
    return true;
}

static void rejected(const rig *r)
{
    exl2_grammar custom, five[5];
    exl2_grammar_desc c = { .model = r->model, .kind = EXL2_GRAMMAR_CUSTOM, .allow = anything };
    CHECK_INT(exl2_grammar_make(r->engine, &c, &custom), EXL2_OK);
    for (uint32_t i = 0; i < 5; i++) {
        five[i] = make(r, EXL2_GRAMMAR_REGEX, "a*", false);
    }
    exl2_job_desc d = job_of(r, five, 5, 1, 9, &said);
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG);
    text_check_refused(r, EXL2_ERR_ARG, EXL2_ERR_ARG, "at most 4");
    d.grammar_count = 2;
    d.grammar = custom;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_UNSUPPORTED);
    text_check_refused(r, EXL2_ERR_UNSUPPORTED, EXL2_ERR_UNSUPPORTED, "CUSTOM");
    d.grammars = &custom; /* alone it is as `grammar` */
    d.grammar_count = 1;
    d.grammar.id = 0;
    CHECK_INT(exl2_generate(r->engine, &d), EXL2_OK);
    d.grammars = NULL;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_ARG);
    text_check_refused(r, EXL2_ERR_ARG, EXL2_ERR_ARG, "its array is NULL");
    exl2_grammar none[2] = { five[0], { 0 } };
    d.grammars = none;
    d.grammar_count = 2;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_STALE);
    CHECK_INT(exl2_grammar_close(r->engine, five[0]), EXL2_OK);
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_ERR_STALE);
    for (uint32_t i = 1; i < 5; i++) {
        CHECK_INT(exl2_grammar_close(r->engine, five[i]), EXL2_OK);
    }
    CHECK_INT(exl2_grammar_close(r->engine, custom), EXL2_OK);
    /* what needs too many states: values that nest without a bound */
    exl2_grammar deep[2] = { make(r, EXL2_GRAMMAR_JSON, NULL, false), make(r, EXL2_GRAMMAR_REGEX, "[^x]*", false) };
    exl2_job_size size;
    d = job_of(r, deep, 2, 1, 40, &said);
    exl2_engine_stats before, after;
    exl2_stats(r->engine, &before);
    CHECK_INT(exl2_job_measure(r->engine, &d, &size), EXL2_ERR_BUDGET);
    text_check_refused(r, EXL2_ERR_BUDGET, EXL2_ERR_BUDGET, "grammars: ");
    exl2_stats(r->engine, &after);
    CHECK_INT(after.host_bytes, before.host_bytes);
    exl2_grammar_close(r->engine, deep[0]);
    exl2_grammar_close(r->engine, deep[1]);
}

/* Without memory for the common grammar the job does not start, and nothing of it is kept. */
static void no_memory(const rig *r)
{
    exl2_grammar list[2] = { make(r, EXL2_GRAMMAR_REGEX, "(ab|ba)*c?", false),
                             make(r, EXL2_GRAMMAR_REGEX, "a.{4}", false) };
    exl2_job_desc d = job_of(r, list, 2, 5, 20, &said);
    uint64_t held = r->engine->ctx.host_bytes, cap = r->engine->ctx.host_bytes_max;
    exl2_result result = EXL2_ERR_BUDGET;
    uint32_t failed = 0;
    for (uint64_t room = 64; result < 0 && CHECK(room < 256u << 20); room *= 2) {
        r->engine->ctx.host_bytes_max = held + room;
        result = exl2_job_start(r->engine, &d, NULL);
        CHECK(result == EXL2_OK || (result == EXL2_ERR_BUDGET && r->engine->ctx.host_bytes == held));
        failed += result < 0;
    }
    r->engine->ctx.host_bytes_max = cap;
    CHECK(failed > 8);
    rig_drain(r, 0);
    CHECK_INT(said.result, EXL2_OK);
    exl2_grammar_close(r->engine, list[0]);
    CHECK(r->engine->ctx.host_bytes < held);
    exl2_grammar_close(r->engine, list[1]);
}

int main(void)
{
    judge j = judge_open();
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    rig r = text_load(&model);
    pairs(&r, &j);
    judge_close(&j);
    forced(&r);
    kept(&r);
    preferred(&r);
    saved(&r);
    rejected(&r);
    no_memory(&r);
    rig_close(&r);
    return check_done();
}
