/* text.c: text from jobs and text to ids, through the public API: whole code points, stop strings, ends, BOS, markers
   in raw text, buffers that are too small, text that is not UTF-8, long texts. Conversations: chat.c. */
#include "text_model.h"

#include "private/unicode.h"

static text_model model; /* global, because the files hook keeps a pointer to it */

/* 16 ids. Whole code points lie across ids 4, 5, 6 (a smile in three pieces) and 10, 11; id 8 is invalid UTF-8; id 13
   is a marker. */
static const char *const plan[16] = { "The ", "fox", " ST", "O", "P \xF0\x9F", "\x98", "\x80 now", " is",
                                      "\xC3", "A ", "caf\xC3", "\xA9", " aab", "@3", "aabb", "." };

static rig_said said;

static exl2_result run(const rig *r, exl2_job_desc *d)
{
    memset(&said, 0, sizeof said);
    d->user = &said;
    exl2_result result = exl2_generate(r->engine, d);
    if (result >= 0) {
        CHECK_INT(said.done_events, 1);
        said.text[said.bytes] = 0;
    }
    return result;
}

static void check_is_decoded(const rig *r, uint32_t flags)
{
    char whole[1024];
    size_t need;
    CHECK_INT(exl2_detokenize(r->engine, r->model, said.ids, said.count, flags, whole, sizeof whole, &need), EXL2_OK);
    CHECK_INT(need, said.bytes);
    CHECK_TEXT(said.text, whole);
}

/* The tokens' own bytes: parts of characters, one by one and all together, with and without markers. */
static void bytes_of_tokens(const rig *r)
{
    char whole[1024] = "", got[1024];
    size_t bytes = 0, need;
    for (uint32_t i = 0; i < EXL2__COUNT(plan); i++) {
        const char *text = plan[i][0] == '@' ? text_markers[plan[i][1] - '0'] : plan[i];
        size_t length = strlen(text);
        CHECK_INT(exl2_detokenize(r->engine, r->model, &model.planned[i], 1, EXL2_TEXT_BYTES, got, 1024, &need),
                  EXL2_OK);
        CHECK_INT(need, length);
        CHECK_TEXT(got, text);
        memcpy(whole + bytes, text, length + 1);
        bytes += length;
    }
    CHECK_INT(exl2_detokenize(r->engine, r->model, model.planned, 16, EXL2_TEXT_BYTES, got, 1024, &need), EXL2_OK);
    CHECK(need == bytes && memcmp(got, whole, bytes + 1) == 0);
    CHECK_INT(exl2_detokenize(r->engine, r->model, &model.planned[13], 1, EXL2_TEXT_BYTES | EXL2_TEXT_SKIP_MARKERS, got,
                              1024, &need), EXL2_OK);
    CHECK(need == 0 && got[0] == 0);
    text_check_refused(r, exl2_detokenize(r->engine, r->model, &model.planned[4], 1, EXL2_TEXT_BYTES, got, 4, &need),
                       EXL2_ERR_TOO_SMALL, "4 bytes and a NUL");
    CHECK(need == 4 && memcmp(got, "P \xF0", 4) == 0); /* cut within the character */
    exl2_token zero = model.byte_ids[0];
    CHECK_INT(exl2_detokenize(r->engine, r->model, &zero, 1, EXL2_TEXT_BYTES, got, 4, &need), EXL2_OK);
    CHECK(need == 1 && got[0] == 0 && got[1] == 0);
}

/* ---- text of a job ---- */

static exl2_flow hear_whole(void *user, const exl2_event *ev)
{
    if (ev->kind == EXL2_EVENT_TEXT) {
        CHECK(exl2__unicode_valid(ev->text, ev->bytes));
    }
    return rig_hear(user, ev);
}

static void whole_code_points(const rig *r)
{
    exl2_job_desc d = text_job(r, &model, 16, &said);
    d.on_event = hear_whole;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK(said.count == 16 && memcmp(said.ids, model.planned, 16 * sizeof(exl2_token)) == 0);
    CHECK_TEXT(said.text, "The fox STOP \xF0\x9F\x98\x80 now is\xEF\xBF\xBD" "A caf\xC3\xA9 aabaabb.");
    check_is_decoded(r, EXL2_TEXT_SKIP_MARKERS);
    CHECK(said.text_events < 16); /* the pieces of the smile arrived in one event */
    d.show_markers = true;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK(strstr(said.text, " aab<|im_end|>aabb") != NULL);
    check_is_decoded(r, 0);
    for (uint32_t tokens = 1; tokens < 16; tokens++) { /* the end may cut a code point */
        d.max_tokens = tokens;
        d.show_markers = tokens & 1;
        CHECK_INT(run(r, &d), EXL2_OK);
        CHECK_INT(said.count, tokens);
        CHECK_INT(said.stats.new_tokens, tokens);
        check_is_decoded(r, tokens & 1 ? 0 : EXL2_TEXT_SKIP_MARKERS);
    }
}

/* The text of a TEXT event is final: with the stop string "STOP" no event may end with a beginning of it. */
static exl2_flow hear_held(void *user, const exl2_event *ev)
{
    if (ev->kind == EXL2_EVENT_TEXT && ev->bytes) {
        CHECK(strchr("STO", ev->text[ev->bytes - 1]) == NULL);
    }
    return rig_hear(user, ev);
}

static void check_history(const rig *r, exl2_session s, uint32_t new_tokens)
{
    exl2_token history[512];
    size_t need, prompt = EXL2__COUNT(text_prompt);
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 512, &need), EXL2_OK);
    CHECK_INT(need, prompt + new_tokens);
    CHECK(memcmp(history, text_prompt, sizeof text_prompt) == 0);
    CHECK(memcmp(history + prompt, model.planned, new_tokens * sizeof(exl2_token)) == 0);
}

static void stop_across_tokens(const rig *r)
{
    static const char *const stop[] = { "STOP" };
    exl2_session s;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_job_desc d = text_job(r, &model, 16, &said);
    d.session = s;
    d.stop_strings = stop;
    d.stop_string_count = 1;
    d.on_event = hear_held;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.stop, EXL2_STOP_STRING);
    CHECK_TEXT(said.text, "The fox ");
    CHECK_INT(said.count, 2); /* " ST" reaches into the stop string, so it is cut */
    check_history(r, s, 2);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

/* Where the text of the job ends with one stop string: before its first occurrence, or at the end if there is none. */
static void check_stop(const rig *r, const char *whole, const char *stop)
{
    char wanted[1024];
    const char *at = strstr(whole, stop);
    snprintf(wanted, sizeof wanted, "%.*s", at ? (int)(at - whole) : (int)strlen(whole), whole);
    exl2_job_desc d = text_job(r, &model, 16, &said);
    d.stop_strings = &stop;
    d.stop_string_count = 1;
    d.on_event = hear_whole;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.stop, at ? EXL2_STOP_STRING : EXL2_STOP_LENGTH);
    CHECK_INT(said.stats.stop_string, 0);
    if (!CHECK_TEXT(said.text, wanted)) {
        printf("  with the stop string \"%s\"\n", stop);
    }
}

/* Every substring of up to six code points is used as a stop string; also strings that match all but the end, and
   strings that overlap themselves. */
static void stops_anywhere(const rig *r)
{
    static const char *const others[] = { "STOPS", "aaab", "aabb", "aabaabb", "aabaabbb", "now is\xEF\xBF\xBD",
                                          "caf\xC3\xA9 a", "<|im_end|>", ".x",
                                          "The fox STOP \xF0\x9F\x98\x80 now is" };
    char whole[1024], stop[32];
    exl2_job_desc d = text_job(r, &model, 16, &said);
    CHECK_INT(run(r, &d), EXL2_OK);
    memcpy(whole, said.text, said.bytes + 1);
    size_t bytes = strlen(whole);
    for (size_t begin = 0; begin < bytes; begin++) {
        for (size_t length = 1 + begin % 3; begin + length <= bytes && length < 8; length += 3) {
            if (exl2__unicode_valid(whole + begin, length)) {
                snprintf(stop, sizeof stop, "%.*s", (int)length, whole + begin);
                check_stop(r, whole, stop);
            }
        }
    }
    for (uint32_t i = 0; i < EXL2__COUNT(others); i++) {
        check_stop(r, whole, others[i]);
    }
}

static void ends_of_jobs(const rig *r)
{
    exl2_job_desc d = text_job(r, &model, 16, &said);
    static const char *const two[] = { "OP", "fox STOP x" }; /* the string that is complete first counts */
    d.stop_strings = two;
    d.stop_string_count = 2;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, "The fox ST");
    CHECK_INT(said.stats.stop_string, 0);
    static const char *const both[] = { "OP", "STOP" }; /* both are complete at once: the longer one counts */
    d.stop_strings = both;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, "The fox ");
    CHECK_INT(said.stats.stop_string, 1);
    d = text_job(r, &model, 16, &said);
    d.stop_tokens = &model.planned[6];
    d.stop_token_count = 1;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.stop, EXL2_STOP_TOKEN);
    CHECK_INT(said.count, 7);
    CHECK_TEXT(said.text, "The fox STOP \xF0\x9F\x98\x80 now");
    static const char *const held[] = { "now is not" }; /* the end of the job shows the text that was held back */
    d.stop_strings = held;
    d.stop_string_count = 1;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, "The fox STOP \xF0\x9F\x98\x80 now");
    exl2_bias eos = { model.marker[1], 1000 };
    d = text_job(r, &model, 16, &said);
    d.sampler.bias = &eos;
    d.sampler.bias_count = 1;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.stop, EXL2_STOP_EOS);
    CHECK(said.count == 1 && said.bytes == 0);
    d.show_markers = true;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, "</s>");
}

static void bad_stops(const rig *r)
{
    static const char *const empty[] = { "fine", "" }, *const missing[] = { NULL }, *const broken[] = { "caf\xC3" };
    exl2_job_desc d = text_job(r, &model, 16, &said);
    char large[600];
    const char *const larges[] = { large };
    memset(large, 'x', sizeof large);
    large[sizeof large - 1] = 0;
    d.stop_strings = empty;
    d.stop_string_count = 2;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "stop string 1 is empty");
    d.stop_string_count = 1;
    d.stop_strings = missing;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "stop string 0 is empty");
    d.stop_strings = broken;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "stop string 0 is not valid UTF-8");
    d.stop_strings = larges;
    text_check_refused(r, run(r, &d), EXL2_ERR_BUDGET, "599 bytes");
}

/* ---- text to ids ---- */

static size_t tokens_of(const rig *r, const char *text, uint32_t flags, exl2_token *ids)
{
    size_t need = 0;
    CHECK_INT(exl2_tokenize(r->engine, r->model, text, strlen(text), flags, ids, 512, &need), EXL2_OK);
    return need;
}

static uint32_t count_of(const exl2_token *ids, size_t count, exl2_token id)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found += ids[i] == id;
    }
    return found;
}

/* The number of tokens of a job's prompt; *first: the first id. */
static uint32_t prompt_of(const rig *r, exl2_session s, const char *text, uint32_t flags, exl2_token *history)
{
    exl2_job_desc d = text_job(r, &model, 1, &said);
    size_t need;
    d.prompt.tokens = NULL;
    d.prompt.token_count = 0;
    d.prompt.text = text;
    d.prompt.flags = flags;
    d.session = s;
    d.prefill_only = true;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 512, &need), EXL2_OK);
    return said.stats.prompt_tokens;
}

static void bos_and_markers(const rig *r)
{
    static const char text[] = "hi<|im_end|>";
    exl2_token ids[512], history[512];
    exl2_session s;
    CHECK_INT(tokens_of(r, text, 0, ids), 4);
    CHECK(ids[0] == model.marker[0] && ids[1] == model.byte_ids['h'] && ids[3] == model.marker[3]);
    CHECK_INT(tokens_of(r, text, EXL2_TEXT_NO_BOS, ids), 3);
    CHECK_INT(tokens_of(r, text, EXL2_TEXT_NO_BOS | EXL2_TEXT_PLAIN, ids), 12);
    CHECK_INT(count_of(ids, 12, model.marker[3]), 0);
    CHECK_INT(tokens_of(r, "", 0, ids), 1);
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    CHECK_INT(prompt_of(r, s, text, EXL2_TEXT_PLAIN, history), 13);
    CHECK_INT(count_of(history, 13, model.marker[3]), 0);
    CHECK_INT(history[0], model.marker[0]);
    CHECK_INT(prompt_of(r, s, text, 0, history), 3); /* BOS is added only to an empty history */
    CHECK_INT(count_of(history, 16, model.marker[0]), 1);
    CHECK_INT(exl2_session_rewind(r->engine, s, 0), EXL2_OK);
    CHECK_INT(prompt_of(r, s, text, EXL2_TEXT_NO_BOS, history), 3);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

static void count_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)level, (void)id, (void)code, (void)text;
    ++*(uint32_t *)user;
}

static void buffers(const rig *r)
{
    static const exl2_message hello = { .role = "user", .text = "caf\xC3\xA9" };
    exl2_token ids[5] = { 0 };
    char text[64];
    size_t need = 0, chat = strlen("<s><|im_start|>user\ncaf\xC3\xA9<|im_end|>\n");
    exl2_chat_desc close = { .close_reply = true };
    text_check_refused(r, exl2_tokenize(r->engine, r->model, "four", 4, 0, ids, 0, &need), EXL2_ERR_TOO_SMALL,
                       "needs 5 tokens, but the buffer holds 0");
    CHECK_INT(need, 5);
    text_check_refused(r, exl2_tokenize(r->engine, r->model, "four", 4, 0, ids, 3, &need), EXL2_ERR_TOO_SMALL,
                       "needs 5 tokens, but the buffer holds 3");
    CHECK(ids[0] == model.marker[0] && ids[2] == model.byte_ids['o'] && ids[3] == 0);
    CHECK_INT(exl2_tokenize(r->engine, r->model, "four", 4, 0, ids, 5, &need), EXL2_OK);
    text_check_refused(r, exl2_detokenize(r->engine, r->model, ids + 1, 4, 0, text, 4, &need), EXL2_ERR_TOO_SMALL,
                       "needs 4 bytes and a NUL, but the buffer holds 4");
    CHECK_TEXT(text, "fou");
    CHECK_INT(exl2_detokenize(r->engine, r->model, ids + 1, 4, 0, text, 5, &need), EXL2_OK);
    exl2_token smile[3] = { model.planned[4], model.planned[5], model.planned[6] };
    for (size_t cap = 1; cap < 11; cap++) { /* "P (smile) now": returns what fits, without cutting a code point */
        memset(text, 'x', sizeof text);
        CHECK_INT(exl2_detokenize(r->engine, r->model, smile, 3, 0, text, cap, &need), EXL2_ERR_TOO_SMALL);
        CHECK_INT(need, 10);
        CHECK_INT(strlen(text), cap > 2 && cap < 7 ? 2 : cap - 1);
        CHECK(text[cap] == 'x');
    }
    text_check_refused(r, exl2_chat_render(r->engine, r->model, &hello, 1, &close, text, 0, &need), EXL2_ERR_TOO_SMALL,
                       "the buffer holds 0");
    CHECK_INT(need, chat);
    CHECK_INT(exl2_chat_render(r->engine, r->model, &hello, 1, &close, text, chat, &need), EXL2_ERR_TOO_SMALL);
    CHECK_INT(strlen(text), chat - 1);
    CHECK_INT(exl2_chat_render(r->engine, r->model, &hello, 1, &close, text, chat + 1, &need), EXL2_OK);
    CHECK_TEXT(text, "<s><|im_start|>user\ncaf\xC3\xA9<|im_end|>\n");
    exl2_session s;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_token history[512];
    prompt_of(r, s, "four", 0, history);
    text_check_refused(r, exl2_session_tokens(r->engine, s, ids, 2, &need), EXL2_ERR_TOO_SMALL,
                       "has 5 tokens, but the buffer holds 2");
    CHECK_INT(need, 5);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

/* Asking for a size is not an error: nothing is logged, and the most recent message stays the same. */
static void sizes(void)
{
    static exl2_token history[512];
    static char large[300000]; /* more than the model's own block for conversations can hold */
    exl2_message messages[2] = { { .role = "user", .text = "caf\xC3\xA9" }, { .role = "user", .text = large } };
    static const char *const rendered[2] = { "<s><|im_start|>user\ncaf\xC3\xA9<|im_end|>\n",
                                             "<s><|im_start|>user\n<|im_end|>\n" };
    exl2_chat_desc chat = { .close_reply = true };
    exl2_engine_desc desc = text_engine(&model);
    uint32_t lines = 0;
    exl2_error before, after;
    exl2_token four[4], id = -1;
    size_t need = 0;
    memset(large, 'a', sizeof large - 1);
    desc.log.line = count_line;
    desc.log.user = &lines;
    desc.log.max_level = EXL2_LOG_DEBUG;
    exl2_model_desc folder = text_folder();
    rig r = rig_open(&desc, &folder);
    exl2_session s;
    CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
    prompt_of(&r, s, "four", 0, history);
    CHECK_INT(exl2_tokenize(r.engine, r.model, "four", 4, EXL2_TEXT_NO_BOS, four, 4, &need), EXL2_OK);
    CHECK_INT(exl2_session_get(r.engine, (exl2_session){ 0 }, &(exl2_session_info){ 0 }), EXL2_ERR_STALE);
    exl2_last_error(r.engine, &before);
    lines = 0;
    CHECK_INT(exl2_tokenize(r.engine, r.model, "four", 4, 0, NULL, 0, &need), EXL2_OK);
    CHECK_INT(need, 5);
    CHECK_INT(exl2_tokenize(r.engine, r.model, NULL, 0, EXL2_TEXT_NO_BOS, NULL, 0, &need), EXL2_OK);
    CHECK_INT(need, 0);
    CHECK_INT(exl2_detokenize(r.engine, r.model, four, 4, 0, NULL, 0, &need), EXL2_OK);
    CHECK_INT(need, 4);
    CHECK_INT(exl2_detokenize(r.engine, r.model, &id, 0, 0, NULL, 0, &need), EXL2_OK);
    CHECK_INT(need, 0);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(exl2_chat_render(r.engine, r.model, &messages[i], 1, &chat, NULL, 0, &need), EXL2_OK);
        CHECK_INT(need, strlen(rendered[i]) + (i ? sizeof large - 1 : 0));
    }
    CHECK_INT(exl2_session_tokens(r.engine, s, NULL, 0, &need), EXL2_OK);
    CHECK_INT(need, 5);
    CHECK_INT(lines, 0);
    exl2_last_error(r.engine, &after);
    CHECK_INT(after.code, before.code);
    CHECK_TEXT(after.text, before.text);
    rig_close(&r);
}

/* Each invalid part of text that is not UTF-8 is read as U+FFFD. */
static void broken_text(const rig *r)
{
    static const char broken[] = "a\xFF\xE2\x82" "b\xF0\x9F\x98", whole[] = "a\xEF\xBF\xBD\xEF\xBF\xBD" "b\xEF\xBF\xBD";
    exl2_token ids[512], wanted[512], history[512];
    size_t count = tokens_of(r, whole, 0, wanted);
    CHECK_INT(tokens_of(r, broken, 0, ids), count);
    CHECK(memcmp(ids, wanted, count * sizeof *ids) == 0);
    exl2_session s;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    CHECK_INT(prompt_of(r, s, broken, 0, history), count);
    CHECK(memcmp(history, wanted, count * sizeof *history) == 0);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
    exl2_message messages[2] = { { .role = "user", .text = broken }, { .role = "user", .text = whole } };
    uint32_t tokens[2];
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job_desc d = text_job(r, &model, 1, &said);
        d.prompt.tokens = NULL;
        d.prompt.token_count = 0;
        d.prompt.messages = &messages[i];
        d.prompt.message_count = 1;
        CHECK_INT(run(r, &d), EXL2_OK);
        tokens[i] = said.stats.prompt_tokens;
    }
    CHECK_INT(tokens[0], tokens[1]);
}

/* The time for the worst texts grows nearly linearly: 8 times the text costs far less than 64 times the time. */
static void long_texts(const rig *r)
{
    static const char *const kinds[] = { "a", " ", "<|im_end|", "\n ", "\xFF", "Ab1 " };
    size_t size = 1 << 20, need;
    char *text = (char *)malloc(size);
    for (uint32_t k = 0; k < EXL2__COUNT(kinds); k++) {
        double seconds[2];
        for (size_t i = 0, unit = strlen(kinds[k]); i < size; i++) {
            text[i] = kinds[k][i % unit];
        }
        for (uint32_t i = 0; i < 2; i++) {
            double begin = check_cpu_seconds();
            CHECK_INT(exl2_tokenize(r->engine, r->model, text, i ? size : size / 8, 0, NULL, 0, &need), EXL2_OK);
            seconds[i] = check_cpu_seconds() - begin;
        }
        CHECK(seconds[1] < 40 * seconds[0] + 0.2);
    }
    free(text);
}

/* Stop strings that match all but the end, at every position of a long text: the text is held back until no match is
   possible. */
static void stops_that_almost_come(const rig *r)
{
    static char strings[3][501];
    const char *const stops[3] = { strings[0], strings[1], strings[2] };
    /* half, two thirds, and all but the last of its characters are the letter that is generated */
    for (uint32_t i = 0; i < 3; i++) {
        memset(strings[i], 'a', 500);
        memset(strings[i] + (i == 0 ? 250 : i == 1 ? 333 : 499), 'b', i == 0 ? 250 : i == 1 ? 167 : 1);
    }
    exl2_bias letter = { model.byte_ids['a'], 1000 };
    exl2_job_desc d = text_job(r, &model, 500, &said);
    d.stop_strings = stops;
    d.stop_string_count = 3;
    d.sampler.bias = &letter;
    d.sampler.bias_count = 1;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.stop, EXL2_STOP_LENGTH);
    CHECK_INT(said.bytes, 500);
    CHECK(said.text_events <= 2 && strspn(said.text, "a") == 500); /* the 500th letter released the first */
    check_is_decoded(r, 0);
}

/* ---- whether the template or the engine adds BOS; BOS is id 1 in config.json, and its model is a Llama ---- */

#define BOS_TURNS "'chat_template':'{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}'"

static const struct { const char *config; bool raw, chat; } bos_rules[] = {
    { "{'bos_token':'<s>','add_bos_token':false," BOS_TURNS "}", false, false },
    { "{'bos_token':'<s>','add_bos_token':true," BOS_TURNS "}", true, false },
    { "{'bos_token':'<s>'," BOS_TURNS "}", true, false }, /* a Llama that defines BOS: the first Llama 3 */
    { "{" BOS_TURNS "}", true, false },                   /* config.json defines it */
    { "{'bos_token':'<s>','chat_template':'{{ bos_token }}{{ messages[0].content }}'}", true, true },
    { "{'add_bos_token':false,'bos_token':'<s>','chat_template':'{{ bos_token }}{{ messages[0].content }}'}", false,
      true },
    { "{'bos_token':'<s>','chat_template':'<s>{{ messages[0].content }}</s>'}", false, true }, /* opens turns */
};

/* The number of BOS in the history of a conversation with one message. If there are any, the first token is one. */
static uint32_t bos_of_chat(const rig *r)
{
    static const exl2_message hello = { .role = "user", .text = "hi" };
    exl2_token history[512];
    exl2_session s;
    size_t need;
    exl2_job_desc d = text_job(r, &model, 1, &said);
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    d.prompt.tokens = NULL;
    d.prompt.token_count = 0;
    d.prompt.messages = &hello;
    d.prompt.message_count = 1;
    d.session = s;
    d.prefill_only = true;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 512, &need), EXL2_OK);
    CHECK_INT(need, said.stats.prompt_tokens);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
    uint32_t found = count_of(history, need, model.marker[0]);
    CHECK(need > 2 && (history[0] == model.marker[0]) == (found > 0));
    return found;
}

static void who_asks_for_bos(void)
{
    for (size_t i = 0; i < EXL2__COUNT(bos_rules); i++) {
        exl2_token ids[512], history[512];
        exl2_session s;
        uint32_t raw = bos_rules[i].raw;
        text_write(&model, plan, EXL2__COUNT(plan), bos_rules[i].config);
        rig r = text_load(&model);
        CHECK_INT(tokens_of(&r, "hi", 0, ids), 2 + raw);
        CHECK_INT(ids[0], raw ? model.marker[0] : model.byte_ids['h']);
        CHECK_INT(tokens_of(&r, "hi", EXL2_TEXT_NO_BOS, ids), 2);
        CHECK_INT(tokens_of(&r, "<s>hi", 0, ids), 3 + raw); /* as the tokenizers library does */
        CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
        CHECK_INT(prompt_of(&r, s, "hi", 0, history), 2 + raw);
        CHECK_INT(exl2_session_rewind(r.engine, s, 0), EXL2_OK);
        CHECK_INT(prompt_of(&r, s, "<s>hi", 0, history), 3); /* a prompt never begins with two */
        CHECK(history[0] == model.marker[0] && history[1] == model.byte_ids['h']);
        CHECK_INT(exl2_session_rewind(r.engine, s, 0), EXL2_OK);
        CHECK_INT(prompt_of(&r, s, "<s>", 0, history), 1);
        CHECK_INT(exl2_session_close(r.engine, s), EXL2_OK);
        CHECK_INT(bos_of_chat(&r), bos_rules[i].chat);
        rig_close(&r);
        exl2_engine_desc engine = text_engine(&model);
        exl2_model_desc folder = text_folder();
        folder.text_only = true;
        r = rig_open(&engine, &folder);
        CHECK_INT(tokens_of(&r, "hi", 0, ids), 2 + raw);
        rig_close(&r);
    }
}

/* A text_only model of an architecture, with a template that opens turns with BOS: the number of tokens of "hi". */
static size_t tokens_of_arch(const char *arch)
{
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc folder = text_folder();
    exl2_token ids[8];
    text_write(&model, plan, EXL2__COUNT(plan), "{'bos_token':'<s>','chat_template':'<s>{{ messages[0].content }}'}");
    snprintf(model.config_json, sizeof model.config_json, "{%s\"bos_token_id\": 1, \"eos_token_id\": [2, 7]}", arch);
    folder.text_only = true;
    rig r = rig_open(&engine, &folder);
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    CHECK(info.bos == 1 && info.eos == 2 && info.vocab == 0 && !info.arch[0]);
    size_t count = tokens_of(&r, "hi", 0, ids);
    rig_close(&r);
    return count;
}

/* A family that fails without BOS gets it; architectures that are not supported have a text, too. A config.json that is
   damaged is an error. */
static void bos_of_families(void)
{
    CHECK_INT(tokens_of_arch("\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 320, "), 2);
    CHECK_INT(tokens_of_arch("\"architectures\": [\"Gemma2ForCausalLM\"], \"vocab_size\": 320, "), 3);
    CHECK_INT(tokens_of_arch("\"model_type\": \"gemma2\", "), 3);
    CHECK_INT(tokens_of_arch("\"architectures\": [\"DeepseekV3ForCausalLM\"], "), 2);
    CHECK_INT(tokens_of_arch("\"architectures\": [3], \"model_type\": 4, "), 2);
    CHECK_INT(tokens_of_arch(""), 2);
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc folder = text_folder();
    exl2_engine *e;
    exl2_model m;
    folder.text_only = true;
    snprintf(model.config_json, sizeof model.config_json, "{\"bos_token_id\": ");
    CHECK_INT(exl2_open(&engine, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &folder, &m), EXL2_ERR_FORMAT);
    exl2_close(e);
    model.config_json[0] = 0;
}

int main(void)
{
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    rig r = text_load(&model);
    whole_code_points(&r);
    bytes_of_tokens(&r);
    stop_across_tokens(&r);
    stops_anywhere(&r);
    ends_of_jobs(&r);
    bad_stops(&r);
    bos_and_markers(&r);
    buffers(&r);
    sizes();
    broken_text(&r);
    long_texts(&r);
    stops_that_almost_come(&r);
    rig_close(&r);
    who_asks_for_bos();
    bos_of_families();
    return check_done();
}
