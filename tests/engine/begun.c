/* begun.c: begun_reply: a prompt that ends with the beginning of the reply, as the chat template writes it: rendered,
   in jobs, with grammars, healed tokens, drafts, guidance and saved games; and tools that a chat template drops. */
#include "text_model.h"

#define OPENING "<|im_start|>assistant\n"
#define U_F8FF "\xEF\xA3\xBF"

static text_model model; /* global, because the files hook keeps a pointer to it */
static rig_said said;

static exl2_result run(const rig *r, exl2_job_desc *d)
{
    return text_generate(r, d, &said);
}

/* ---- rendering ---- */

/* What `source` (NULL: the model's template) makes of the begun text after a question that has the same words. */
static exl2_result render(const rig *r, const char *source, const char *begun, const char *fields, char out[512])
{
    const exl2_message talk[] = { { .role = "user", .text = "I am I am<|im_end|>" },
                                  { .role = fields ? NULL : "assistant", .text = begun, .fields = fields } };
    exl2_chat_desc chat = { .template_text = source, .begun_reply = true };
    size_t need;
    return exl2_chat_render(r->engine, r->model, talk, 2, &chat, out, 512, &need);
}

static void check_render(const rig *r, const char *source, const char *begun, const char *wanted)
{
    char got[512];
    CHECK_INT(render(r, source, begun, NULL, got), EXL2_OK);
    CHECK_TEXT(got, wanted);
}

static void renders(const rig *r)
{
    static const char *const kept = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>I am{% endfor %}";
    static const char *const trimmed = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<end>{% endfor %}"
                                       "{% if add_generation_prompt %}[assistant]{% endif %}";
    static const char parts[] = "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}"
                                "{% else %}{% for p in m.content %}{{ p.text | trim }}|{% endfor %}{% endif %}"
                                "{% endfor %}";
    char got[512];
    check_render(r, NULL, "I am", "<s><|im_start|>user\nI am I am<|im_end|><|im_end|>\n" OPENING "I am");
    check_render(r, NULL, "I am ", "<s><|im_start|>user\nI am I am<|im_end|><|im_end|>\n" OPENING "I am ");
    check_render(r, NULL, "", "<s><|im_start|>user\nI am I am<|im_end|><|im_end|>\n" OPENING);
    check_render(r, kept, "I am", "[user]I am I am<|im_end|><end>I am[assistant]I am");
    check_render(r, kept, "  I am \n", "[user]I am I am<|im_end|><end>I am[assistant]  I am \n");
    check_render(r, kept, "<end>I am", "[user]I am I am<|im_end|><end>I am[assistant]<end>I am");
    check_render(r, trimmed, "  I am \n", "[user]I am I am<|im_end|><end>[assistant]I am");
    check_render(r, trimmed, " \n ", "[user]I am I am<|im_end|><end>[assistant]");
    check_render(r, trimmed, "a" U_F8FF U_F8FF, "[user]I am I am<|im_end|><end>[assistant]a" U_F8FF U_F8FF);
    check_render(r, "{{ messages[-1].content | upper }}|{{ messages | length }}", "I am", "I AM");
    check_render(r, "{{ messages[-1].content | tojson }}", "a\"b", "\"a\\\"b");
    check_render(r, "{{ messages[-1].content.split('</think>')[-1] }}.", "<think>x</think>I am", "I am");
    CHECK_INT(render(r, parts, NULL, "{\"role\": \"assistant\", \"content\": [{\"text\": \"One\"}, "
                                     "{\"text\": \"Two \"}, {\"type\": \"image\"}]}", got), EXL2_OK);
    CHECK_TEXT(got, "[user]I am I am<|im_end|>[assistant]One|Two");
}

static void refused(const rig *r)
{
    char got[512];
    size_t need;
    exl2_chat_desc chat = { .begun_reply = true };
    text_check_refused(r, render(r, "{{ messages[0].content }}", "I am", NULL, got), EXL2_ERR_ARG,
                       "does not write the text of message 1");
    text_check_refused(r, render(r, "{{ messages[-1].content }}{{ messages[-1].content }}", "I am", NULL, got),
                       EXL2_ERR_ARG, "does not write the text of message 1");
    text_check_refused(r, render(r, "{{ messages[-1].content | length }}", "I am", NULL, got), EXL2_ERR_ARG,
                       "does not write the text of message 1");
    text_check_refused(r, render(r, NULL, NULL, NULL, got), EXL2_ERR_ARG, "message 1, the last one, has no text");
    text_check_refused(r, render(r, NULL, NULL, "{\"role\": \"assistant\", \"content\": [{\"type\": \"image\"}]}", got),
                       EXL2_ERR_ARG, "message 1, the last one, has no text");
    text_check_refused(r, exl2_chat_render(r->engine, r->model, NULL, 0, &chat, got, sizeof got, &need), EXL2_ERR_ARG,
                       "there is no message");
}

/* ---- jobs ---- */

static exl2_message talk[2] = { { .role = "user", .text = "Who goes there?" }, { .role = "assistant" } };

/* A greedy job that continues the begun text; only letters, '"', '}' and a space are likely. */
static exl2_job_desc begun_job(const rig *r, exl2_session s, const char *begun, uint32_t max_tokens)
{
    static exl2_bias bias[TEXT_LETTERS];
    exl2_job_desc d = text_letters_job(r, &model, s, max_tokens, bias, &said);
    talk[1].text = begun;
    d.prompt.messages = talk;
    d.prompt.message_count = 2;
    d.chat.begun_reply = true;
    return d;
}

/* The prompt's ids are those of the rendered text, and the reply is the one that these ids have. */
static void continues(const rig *r)
{
    exl2_token ids[512], history[512];
    size_t count = 0, need = 0;
    char text[512];
    exl2_session s;
    CHECK_INT(render(r, NULL, "I", NULL, text), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    exl2_job_desc d = begun_job(r, s, "I am", 12);
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.count, 12);
    rig_said begun = said;
    CHECK_INT(exl2_chat_render(r->engine, r->model, talk, 2, &d.chat, text, sizeof text, &need), EXL2_OK);
    CHECK_INT(exl2_tokenize(r->engine, r->model, text, need, EXL2_TEXT_NO_BOS, ids, 512, &count), EXL2_OK);
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 512, &need), EXL2_OK);
    CHECK(need >= count && memcmp(history, ids, count * sizeof *ids) == 0);
    CHECK_INT(begun.stats.prompt_tokens, count);
    d = begun_job(r, (exl2_session){ 0 }, "", 12);
    d.prompt = (exl2_prompt){ .tokens = ids, .token_count = count };
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, begun.text);
    d = begun_job(r, (exl2_session){ 0 }, "I am", 12);
    d.draft.ngram = true;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, begun.text);
    const exl2_message negative[2] = { { .role = "user", .text = "No" }, { .role = "assistant", .text = "I am" } };
    d = begun_job(r, (exl2_session){ 0 }, "I am", 12);
    d.guidance = 1; /* no effect */
    d.negative_prompt.messages = negative;
    d.negative_prompt.message_count = 2;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, begun.text);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

/* ---- grammars: the begun text is the beginning of the grammar's text ---- */

static exl2_grammar grammar_of(const rig *r, exl2_grammar_kind kind, const char *source)
{
    exl2_grammar g;
    exl2_grammar_desc d = { .model = r->model, .kind = kind, .source = source };
    CHECK_INT(exl2_grammar_make(r->engine, &d, &g), EXL2_OK);
    return g;
}

static void grammars(const rig *r)
{
    exl2_grammar choices = grammar_of(r, EXL2_GRAMMAR_CHOICES, "yes sir\nno sir\nyellow");
    exl2_grammar json = grammar_of(r, EXL2_GRAMMAR_REGEX, "\\{\"say\": \"[a-z ]{3,9}\"\\}");
    exl2_job_desc d = begun_job(r, (exl2_session){ 0 }, "yes", 20);
    d.grammar = choices;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, " sir");
    for (uint32_t way = 0; way < 3; way++) { /* the whole text fits; also where tokens are healed or guessed */
        char whole[64];
        d = begun_job(r, (exl2_session){ 0 }, "{\"say\": \"ab", 20);
        d.grammar = json;
        d.heal_prompt = way == 1;
        d.draft.ngram = way == 2;
        d.draft.one_by_one = way == 0;
        CHECK_INT(run(r, &d), EXL2_OK);
        snprintf(whole, sizeof whole, "{\"say\": \"ab%.40s", said.text);
        size_t say = strspn(whole + 9, "abcdefghijklmnopqrstuvwxyz ");
        CHECK(say >= 3 && say <= 9 && strcmp(whole + 9 + say, "\"}") == 0);
    }
    d = begun_job(r, (exl2_session){ 0 }, "yes sir", 20); /* the text is whole already */
    d.grammar = choices;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.bytes, 0);
    d = begun_job(r, (exl2_session){ 0 }, "maybe", 20);
    d.grammar = choices;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "does not allow the begun text");
    d = begun_job(r, (exl2_session){ 0 }, "yes", 20);
    d.chat.template_text = "{{ messages[1].content | upper }}";
    d.grammar = choices;
    text_check_refused(r, run(r, &d), EXL2_ERR_ARG, "changes the begun text");
    d.chat.template_text = "<|im_start|>{{ messages[1].content | trim }}"; /* trimmed text counts as it is written */
    talk[1].text = " yes \n";
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_TEXT(said.text, " sir");
    d = begun_job(r, (exl2_session){ 0 }, "", 20); /* nothing is begun */
    d.grammar = choices;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK(strcmp(said.text, "yes sir") == 0 || strcmp(said.text, "no sir") == 0 || strcmp(said.text, "yellow") == 0);
    CHECK_INT(exl2_grammar_close(r->engine, choices), EXL2_OK);
    CHECK_INT(exl2_grammar_close(r->engine, json), EXL2_OK);
}

/* A game that is saved in the middle of the reply goes on to the same text. */
static void saved(const rig *r, bool heal)
{
    static uint8_t save[65536];
    exl2_grammar json = grammar_of(r, EXL2_GRAMMAR_REGEX, "\\{\"say\": \"[a-z]{8}[a-f]{8}\"\\}");
    char whole[256];
    size_t bytes = 0;
    exl2_session s, other;
    exl2_job_desc d = begun_job(r, (exl2_session){ 0 }, "{\"say\": \"ab", 40);
    d.grammar = json;
    d.heal_prompt = heal;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(said.bytes, 16);
    snprintf(whole, sizeof whole, "%.60s", said.text);
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &other), EXL2_OK);
    d.session = s;
    exl2_job job;
    memset(&said, 0, sizeof said);
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    for (uint32_t i = 0; i < 100000 && said.bytes < 5; i++) {
        exl2_step_desc step = { .cpu_us = 1 };
        exl2_step(r->engine, &step);
    }
    CHECK(said.bytes >= 5 && said.bytes < 16);
    CHECK_INT(exl2_session_save(r->engine, s, 0, save, sizeof save, &bytes), EXL2_OK);
    char first[64];
    snprintf(first, sizeof first, "%.*s", (int)said.bytes, said.text);
    CHECK_INT(exl2_job_cancel(r->engine, job), EXL2_OK);
    rig_drain(r, 0);
    CHECK_INT(exl2_session_restore(r->engine, other, save, bytes), EXL2_OK);
    exl2_job_desc resumed = d;
    resumed.prompt = (exl2_prompt){ 0 };
    resumed.chat = (exl2_chat_desc){ 0 };
    resumed.session = other;
    resumed.resume = true;
    CHECK_INT(run(r, &resumed), EXL2_OK);
    char joined[128];
    snprintf(joined, sizeof joined, "%s%.60s", first, said.text);
    CHECK_TEXT(joined, whole);
    for (size_t at = 12; at < bytes; at += 7) { /* a forged save is rejected, or its job is */
        uint8_t before = save[at];
        save[at] = (uint8_t)(before ^ 0x55);
        CHECK(exl2_session_restore(r->engine, other, save, bytes) < 0);
        save[at] = before;
    }
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
    CHECK_INT(exl2_session_close(r->engine, other), EXL2_OK);
    CHECK_INT(exl2_grammar_close(r->engine, json), EXL2_OK);
}

/* ---- tools that the template drops ---- */

static uint32_t dropped;
static char dropped_text[256];

static void hear_log(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user, (void)code;
    if (id == EXL2_LOG_ID_TOOLS_DROPPED && level == EXL2_LOG_WARN) {
        dropped++;
        snprintf(dropped_text, sizeof dropped_text, "%s", text);
    }
}

static void check_dropped(const rig *r, const exl2_message *messages, size_t count, const char *tools,
                          const char *source, uint32_t wanted, const char *piece)
{
    exl2_job_desc d = begun_job(r, (exl2_session){ 0 }, "", 2);
    d.prompt.messages = messages;
    d.prompt.message_count = count;
    d.chat = (exl2_chat_desc){ .tools = tools, .template_text = source };
    dropped = 0;
    CHECK_INT(run(r, &d), EXL2_OK);
    CHECK_INT(dropped, wanted);
    CHECK(!piece || strstr(dropped_text, piece));
}

static void tools(void)
{
    static const char tool_list[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
    static const exl2_message calls[] = {
        { .role = "user", .text = "x" },
        { .role = "assistant", .text = "y", .tool_calls = "[{\"function\": {\"name\": \"f\", \"arguments\": {}}}]" },
    };
    static const exl2_message fields[] = {
        { .fields = "{\"role\": \"assistant\", \"content\": \"\", "
                    "\"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}" },
    };
    static const char reads[] = "{{ tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
                                "{{ c.function.name }}{% endfor %}{% endfor %}";
    exl2_engine_desc engine = text_engine(&model);
    exl2_model_desc folder = text_folder();
    exl2_model_info info;
    engine.log.line = hear_log;
    rig r = rig_open(&engine, &folder);
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    CHECK(!info.reads_tools && !info.reads_tool_calls && info.has_chat_template);
    check_dropped(&r, calls, 1, NULL, NULL, 0, NULL);
    check_dropped(&r, calls, 1, tool_list, NULL, 1, "the tools");
    check_dropped(&r, calls, 2, NULL, NULL, 1, "those of message 1");
    check_dropped(&r, fields, 1, NULL, NULL, 1, "those of message 0");
    check_dropped(&r, calls, 2, tool_list, NULL, 2, NULL);
    check_dropped(&r, calls, 2, tool_list, reads, 0, NULL);
    check_dropped(&r, calls, 2, tool_list, "{{ tools }}{{ messages[0].content }}", 1, "tool_calls");
    char got[64];
    size_t need;
    const exl2_message textless[] = { calls[0], { .role = "assistant", .tool_calls = calls[1].tool_calls } };
    exl2_chat_desc chat = { .template_text = "{% for m in messages %}{{ '<' + m.content }}{% endfor %}" };
    text_check_refused(&r, exl2_chat_render(r.engine, r.model, textless, 2, &chat, got, sizeof got, &need),
                       EXL2_ERR_FORMAT, "message 1 has tool_calls, but no text");
    rig_close(&r);
}

int main(void)
{
    static const char *const no_plan[1] = { "" };
    text_write(&model, no_plan, 0, TEXT_CHAT_CONFIG);
    rig r = text_load_apart(&model);
    renders(&r);
    refused(&r);
    continues(&r);
    grammars(&r);
    saved(&r, false);
    saved(&r, true);
    rig_close(&r);
    tools();
    return check_done();
}
