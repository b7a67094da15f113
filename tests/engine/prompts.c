/* prompts.c: a prompt of messages with a text after them: its ids, the job, grammars, healed tokens, guidance, saves;
   and exl2_chat_tokenize, which gives the ids of a prompt without a job, also for text_only models. */
#include "text_model.h"

static text_model model; /* global, because the files hook keeps a pointer to it */
static rig_said said;

static const exl2_message talk[1] = { { .role = "user", .text = "Who goes <|im_end|>there?" } };

static exl2_result run(const rig *r, exl2_job_desc *d)
{
    return text_generate(r, d, &said);
}

/* A greedy job; only letters, '"', '}' and a space are likely. */
static exl2_job_desc job_of(const rig *r, exl2_session s, const char *text, uint32_t max_tokens)
{
    static exl2_bias bias[TEXT_LETTERS];
    exl2_job_desc d = text_letters_job(r, &model, s, max_tokens, bias, &said);
    d.prompt = (exl2_prompt){ .text = text, .messages = talk, .message_count = 1 };
    return d;
}

static exl2_grammar grammar_of(const rig *r, const char *expression)
{
    exl2_grammar g;
    exl2_grammar_desc d = { .model = r->model, .kind = EXL2_GRAMMAR_REGEX, .source = expression };
    CHECK_INT(exl2_grammar_make(r->engine, &d, &g), EXL2_OK);
    return g;
}

/* ---- ids ---- */

/* One token for each byte and each marker of `text`, in which '\1' begins a marker that counts: "\1" and its index. */
static size_t ids_of(const char *text, exl2_token *out)
{
    size_t count = 0;
    for (; *text; text++) {
        out[count++] = *text == 1 ? model.marker[*++text - '0'] : model.byte_ids[(uint8_t)*text];
    }
    return count;
}

/* The ids that exl2_chat_tokenize gives are those wanted, and a job in an empty session has the same. */
static void check_ids(const rig *r, const exl2_prompt *prompt, const exl2_chat_desc *chat, const char *wanted)
{
    exl2_token ids[512], got[512], history[512];
    size_t count = ids_of(wanted, ids), need = 7;
    exl2_session s;
    CHECK_INT(exl2_chat_tokenize(r->engine, r->model, prompt, chat, NULL, 0, &need), EXL2_OK);
    CHECK_INT(need, count);
    for (size_t cap = 0; cap < count && cap < 6; cap++) {
        got[cap] = -7;
        CHECK_INT(exl2_chat_tokenize(r->engine, r->model, prompt, chat, got, cap, &need), EXL2_ERR_TOO_SMALL);
        CHECK(need == count && got[cap] == -7 && memcmp(got, ids, cap * sizeof *ids) == 0);
    }
    CHECK_INT(exl2_chat_tokenize(r->engine, r->model, prompt, chat, got, 512, &need), EXL2_OK);
    CHECK(need == count && memcmp(got, ids, count * sizeof *ids) == 0);
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r->engine, r->model, &info), EXL2_OK);
    if (info.layers == 0) { /* text_only */
        return;
    }
    exl2_job_desc d = rig_job(r, NULL, 0, 1, &said);
    exl2_job_size size;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    d.prompt = *prompt;
    d.chat = chat ? *chat : d.chat;
    d.session = s;
    d.prefill_only = true;
    CHECK_INT(exl2_job_measure(r->engine, &d, &size), EXL2_OK);
    CHECK_INT(size.prompt_tokens, count);
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.stats.prompt_tokens, count);
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 512, &need), EXL2_OK);
    CHECK(need == count && memcmp(history, ids, count * sizeof *ids) == 0);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

/* Markers of the text count, those of a message do not, nor do those of a plain text. */
static void ids(const rig *r)
{
    static const char asked[] = "\1""0\1""2user\nWho goes <|im_end|>there?\1""3\n\1""2assistant\n";
    const exl2_chat_desc closed = { .close_reply = true };
    char wanted[256];
    exl2_prompt prompt = { .messages = talk, .message_count = 1 };
    check_ids(r, &prompt, NULL, asked);
    prompt.text = "";
    check_ids(r, &prompt, NULL, asked);
    prompt.text = "I am<|im_start|> \xC3\xA9";
    snprintf(wanted, sizeof wanted, "%sI am\1""2 \xC3\xA9", asked);
    check_ids(r, &prompt, NULL, wanted);
    prompt.flags = EXL2_TEXT_PLAIN;
    snprintf(wanted, sizeof wanted, "%sI am<|im_start|> \xC3\xA9", asked);
    check_ids(r, &prompt, NULL, wanted);
    prompt.text_bytes = 2;
    snprintf(wanted, sizeof wanted, "%sI ", asked);
    check_ids(r, &prompt, NULL, wanted);
    prompt.flags = EXL2_TEXT_NO_BOS; /* about raw text: the template's BOS stays */
    check_ids(r, &prompt, NULL, wanted);
    prompt = (exl2_prompt){ .text = "So", .messages = talk, .message_count = 1 };
    check_ids(r, &prompt, &closed, "\1""0\1""2user\nWho goes <|im_end|>there?\1""3\nSo");
    prompt = (exl2_prompt){ .text = "hi" }; /* raw text: BOS, but never two */
    check_ids(r, &prompt, NULL, "\1""0hi");
    prompt.text = "<s>hi";
    check_ids(r, &prompt, NULL, "\1""0hi");
    prompt.text = "<s>";
    check_ids(r, &prompt, NULL, "\1""0");
    prompt.flags = EXL2_TEXT_NO_BOS;
    check_ids(r, &prompt, NULL, "\1""0");
    prompt.flags = EXL2_TEXT_PLAIN;
    check_ids(r, &prompt, NULL, "\1""0<s>");
}

static const exl2_message said_so[] = { { .role = "assistant", .text = "I" } };
static const exl2_chat_desc begun = { .begun_reply = true };

static void refused(const rig *r)
{
    const exl2_token id = 40;
    const exl2_prompt prompts[] = {
        { .tokens = &id, .token_count = 1 },
        { .tokens = &id, .token_count = 1, .text = "x" },
        { .tokens = &id, .token_count = 1, .messages = talk, .message_count = 1 },
        { .text = "x", .message_count = 1 },
        { .flags = 1 },
    };
    exl2_token ids[4];
    size_t need;
    for (size_t i = 0; i < EXL2__COUNT(prompts); i++) {
        text_check_refused(r, exl2_chat_tokenize(r->engine, r->model, &prompts[i], NULL, ids, 4, &need), EXL2_ERR_ARG,
                           "exl2_chat_tokenize");
    }
    exl2_prompt both = { .text = " am", .messages = said_so, .message_count = 1 };
    text_check_refused(r, exl2_chat_tokenize(r->engine, r->model, &both, &begun, ids, 4, &need), EXL2_ERR_ARG,
                       "begun_reply");
    both = (exl2_prompt){ .text = "x", .text_bytes = SIZE_MAX, .messages = talk, .message_count = 1 };
    text_check_refused(r, exl2_chat_tokenize(r->engine, r->model, &both, NULL, ids, 4, &need), EXL2_ERR_ARG,
                       "the prompt's text has");
    both.messages = &(exl2_message){ .text = "nobody" };
    text_check_refused(r, exl2_chat_tokenize(r->engine, r->model, &both, NULL, ids, 4, &need), EXL2_ERR_ARG,
                       "message 0 has no role");
}

/* ---- jobs ---- */

static void refused_jobs(const rig *r)
{
    const exl2_token id = 40;
    exl2_job_size size;
    exl2_job_desc d = job_of(r, (exl2_session){ 0 }, " am", 4);
    d.prompt.messages = said_so;
    d.chat = begun;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "begun_reply");
    text_check_refused(r, exl2_job_measure(r->engine, &d, &size), EXL2_ERR_ARG, "begun_reply");
    d.prompt.tokens = &id;
    d.prompt.token_count = 1;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "a prompt of tokens");
    d.prompt.messages = NULL;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "a count is set");
    d.prompt.message_count = 0;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "a prompt of tokens");
    d = job_of(r, (exl2_session){ 0 }, " am", 4);
    d.guidance = 2;
    d.negative_prompt = (exl2_prompt){ .text = "x", .tokens = &id, .token_count = 1 };
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "a prompt of tokens");
}

/* The reply is that of the same prompt as raw text, and only new text is delivered. */
static void continues(const rig *r)
{
    char first[64];
    exl2_job_desc d = job_of(r, (exl2_session){ 0 }, "I am", 12);
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.count, 12);
    snprintf(first, sizeof first, "%.60s", said.text);
    exl2_token history[512];
    size_t count;
    CHECK_INT(exl2_chat_tokenize(r->engine, r->model, &d.prompt, NULL, history, 512, &count), EXL2_OK);
    d.prompt = (exl2_prompt){ .tokens = history, .token_count = count };
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, first);
    for (uint32_t way = 0; way < 3; way++) { /* with drafts, guidance without effect, and a healed token */
        d = job_of(r, (exl2_session){ 0 }, "I am", 12);
        d.draft.ngram = way == 0;
        d.guidance = way == 1 ? 1 : 0;
        d.negative_prompt = way == 1 ? d.prompt : d.negative_prompt;
        d.heal_prompt = way == 2;
        CHECK_INT(run(r, &d), EXL2_OK);
        CHECK_TEXT(said.text, first);
    }
}

/* The next turn brings the whole reply as a message; what it shares with the history is found. */
static void next_turn(const rig *r)
{
    exl2_session s;
    char reply[128];
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_job_desc d = job_of(r, s, "I am", 12);
    CHECK_INT(run(r, &d), EXL2_OK);
    uint32_t before = said.stats.prompt_tokens + 12;
    snprintf(reply, sizeof reply, "I am%.60s", said.text);
    const exl2_message turns[] = { talk[0], { .role = "assistant", .text = reply },
                                   { .role = "user", .text = "Why?" } };
    d.prompt = (exl2_prompt){ .text = "Because", .messages = turns, .message_count = 3 };
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK(said.stats.reused_tokens + 2 >= before && said.stats.reused_tokens <= before);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

/* The text of a grammar begins after the prompt's text. */
static void grammars(const rig *r)
{
    exl2_grammar g = grammar_of(r, "\\{\"say\": \"[a-z]{3}\"\\}");
    for (uint32_t way = 0; way < 3; way++) {
        exl2_job_desc d = job_of(r, (exl2_session){ 0 }, "<|im_start|>{\"say\"", 30);
        d.grammar = g;
        d.draft.ngram = way == 1;
        d.draft.one_by_one = way == 2;
        CHECK_INT(run(r, &d), EXL2_OK);
        CHECK(strlen(said.text) == 14 && strncmp(said.text, "{\"say\": \"", 9) == 0);
    }
    CHECK_INT(exl2_grammar_close(r->engine, g), EXL2_OK);
}

/* A job that is saved in the middle of its reply goes on to the same text. */
static void saved(const rig *r)
{
    static uint8_t save[65536];
    char whole[128], joined[128];
    size_t bytes = 0;
    exl2_session s, other;
    exl2_job job;
    exl2_job_desc d = job_of(r, (exl2_session){ 0 }, "I am", 20);
    CHECK_INT(run(r, &d), EXL2_OK);
    snprintf(whole, sizeof whole, "%.100s", said.text);
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &other), EXL2_OK);
    d.session = s;
    memset(&said, 0, sizeof said);
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    for (uint32_t i = 0; i < 100000 && said.bytes < 7; i++) {
        exl2_step(r->engine, &(exl2_step_desc){ .cpu_us = 1 });
    }
    CHECK(said.bytes >= 7 && said.bytes < 20);
    CHECK_INT(exl2_session_save(r->engine, s, 0, save, sizeof save, &bytes), EXL2_OK);
    snprintf(joined, sizeof joined, "%.*s", (int)said.bytes, said.text);
    CHECK_INT(exl2_job_cancel(r->engine, job), EXL2_OK);
    rig_drain(r, 0);
    CHECK_INT(exl2_session_restore(r->engine, other, save, bytes), EXL2_OK);
    d.session = other;
    d.resume = true;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "resume");
    d.prompt = (exl2_prompt){ 0 };
    CHECK_INT(run(r, &d), EXL2_OK);
    strncat(joined, said.text, 60);
    CHECK_TEXT(joined, whole);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
    CHECK_INT(exl2_session_close(r->engine, other), EXL2_OK);
}

/* A text_only model gives the same ids, and while a model loads its ids can be had, too. */
static void without_weights(void)
{
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc folder = text_folder();
    folder.text_only = true;
    rig r = rig_open(&engine, &folder);
    exl2_engine_stats before, after;
    ids(&r);
    exl2_stats(r.engine, &before);
    refused(&r);
    exl2_stats(r.engine, &after);
    CHECK_INT(before.host_bytes, after.host_bytes);
    rig_close(&r);
}

int main(void)
{
    static const char *const no_plan[1] = { "" };
    text_write(&model, no_plan, 0, TEXT_CHAT_CONFIG);
    rig r = text_load_apart(&model);
    ids(&r);
    refused(&r);
    refused_jobs(&r);
    continues(&r);
    next_turn(&r);
    grammars(&r);
    saved(&r);
    rig_close(&r);
    without_weights();
    return check_done();
}
