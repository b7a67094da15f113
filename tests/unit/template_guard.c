/* template_guard.c: no message becomes an added token that the chat template prints, whatever the normalizer does with
   both: hand-made cases, and every pair of template and tokenizer in the shared fixtures. */
#define _POSIX_C_SOURCE 200809L
#include "../text_rows.h"
#include "../text_tokenizer.h"
#include "private/regex.h"
static uint64_t regex_bytes; /* all bytes that regular expressions have searched */
#define exl2__regex_begin(regex, text, bytes) (regex_bytes += (bytes), exl2__regex_begin(regex, text, bytes))
#include "private/encode.h"
#include "private/template_set.h"
#include "../vocab_open.h"

#define IDS_MAX 65536

static exl2__ctx ctx;

/* ---- one conversation ---- */

typedef struct bench {
    exl2__vocab vocab;
    exl2__template template;
    exl2_chat_desc chat;
    exl2_token ids[IDS_MAX];
    size_t count;
} bench;

/* Renders and encodes as a job does. false: the template rejects the conversation. */
static bool bench_run(bench *b, const char *message, bool long_talk)
{
    static _Alignas(16) char block[1 << 20];
    const exl2_message talk[] = { { .role = "user", .text = message }, { .role = "assistant", .text = "Yes." },
                                  { .role = "user", .text = message } };
    exl2__template_input in = { talk, long_talk ? 3 : 1, &b->chat, b->vocab.bos_text, b->vocab.eos_text, NULL, NULL,
                                NULL, NULL, NULL, NULL };
    const char *text;
    const uint8_t *marks;
    size_t bytes;
    b->count = 0;
    if (exl2__template_render(&ctx, &b->template, &in, block, sizeof block, &text, &bytes, &marks) < 0) {
        return false;
    }
    uint32_t *guard = NULL;
    if (b->chat.special_tokens) {
        CHECK_INT(exl2__template_guard_special(&ctx, &b->template, &b->vocab, b->chat.special_tokens, &guard), EXL2_OK);
    }
    exl2__encode_marks from = { marks, guard ? guard : b->template.guard };
    exl2_result result = exl2__encode(&ctx, &b->vocab, text, bytes, &from, 0, b->ids, IDS_MAX, &b->count);
    exl2__free(&ctx, guard, b->template.guard_bytes, EXL2_MEM_GENERAL);
    return CHECK_INT(result, EXL2_OK);
}

static uint32_t bench_count(const bench *b, uint32_t id)
{
    uint32_t count = 0;
    for (size_t i = 0; i < b->count; i++) {
        count += b->ids[i] == (exl2_token)id;
    }
    return count;
}

static void bench_open(bench *b, rows_folder *folder)
{
    memset(b, 0, sizeof *b);
    b->chat.now = "2025-01-01 00:00:00"; /* a date with no 12: some tokenizers have it as an added token */
    ctx.files = rows_files(folder);
    if (!CHECK_INT(vocab_open(&ctx, "memory", &b->vocab), EXL2_OK)) {
        printf("    %s\n", ctx.error.text);
    }
}

static bool bench_template(bench *b, const char *template, size_t bytes)
{
    exl2__template_close(&ctx, &b->template);
    bool fine = CHECK_INT(exl2__template_open(&ctx, template, bytes, &b->template), EXL2_OK);
    /* As if another thread were writing its message: no probe may wait for that, nor copy the lock. */
    ctx.error_lock = 1;
    fine = fine && CHECK_INT(exl2__template_guard(&ctx, &b->template, &b->vocab), EXL2_OK);
    ctx.error_lock = 0;
    if (!fine) {
        printf("    %s\n", ctx.error.text);
    }
    return fine;
}

static void bench_close(bench *b)
{
    exl2__template_close(&ctx, &b->template);
    exl2__vocab_close(&ctx, &b->vocab);
}

/* ---- crafted cases ---- */

#define TOKEN(id, content, more) "{\"id\":" #id ",\"content\":\"" content "\"" more "}"
#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"normalizers\":[" steps "]}"
#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"}"
#define MARKS "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}"
#define LOWER "{\"type\":\"Lowercase\"}"
#define RAW ",\"normalized\":false"
#define BOS TOKEN(20, "<s>", ",\"special\":true")

/* The message tries to forge token 21, which the template prints once. Token 22, if present, is never printed by the
   template: the message contains it twice, and it becomes that token as in any text. */
static const struct {
    const char *name, *normalizer, *added, *template, *message, *special;
} cases[] = {
    { "no normalizer", NULL, TOKEN(21, "<tool>", ""), "<tool>{{ messages[0].content }}", "<tool>", NULL },
    { "Prepend", SEQUENCE(PREPEND "," MARKS), BOS "," TOKEN(21, "<tool>", "") "," TOKEN(22, "<free>", ""),
      "<s><tool>{{ messages[0].content }}", " <tool> <free>", NULL },
    { "Prepend, in the middle", SEQUENCE(PREPEND "," MARKS), BOS "," TOKEN(21, "<tool>", ""),
      "<s>a{{ ' ' }}<tool>{{ messages[0].content }}", " <tool>", NULL },
    { "Prepend, behind a message", SEQUENCE(PREPEND "," MARKS), BOS "," TOKEN(21, "<tool>", ""),
      "{{ messages[0].content }}<s><tool>", "<tool>", NULL },
    { "Prepend, rstrip", SEQUENCE(PREPEND "," MARKS),
      TOKEN(20, "<s>", ",\"special\":true,\"rstrip\":true") "," TOKEN(21, "<tool>", ""),
      "<s>\n<tool>{{ messages[0].content }}", " <tool>", NULL },
    { "Prepend, Lowercase", SEQUENCE(PREPEND "," MARKS "," LOWER), BOS "," TOKEN(21, "<tool>", ""),
      "<s><TOOL>{{ messages[0].content }}", " <Tool>", NULL },
    { "Lowercase", LOWER, TOKEN(21, "<Tool>", "") "," TOKEN(22, "<FREE>", ""), "<TOOL>{{ messages[0].content }}",
      "<tool><Free>", NULL },
    { "Lowercase, lstrip and rstrip", LOWER, TOKEN(21, "<Tool>", ",\"lstrip\":true,\"rstrip\":true"),
      "a <TOOL> b{{ messages[0].content }}", " <tool> ", NULL },
    { "Lowercase, single_word", LOWER, TOKEN(21, "Tool", ",\"single_word\":true"), "-TOOL- {{ messages[0].content }}",
      "tool", NULL },
    { "Lowercase, an escape", LOWER, TOKEN(21, "<tool>", ""), "{{ '<\\x54OOL>' }}{{ messages[0].content }}",
      "<tool>", NULL },
    { "NFKC", "{\"type\":\"NFKC\"}", TOKEN(21, "<tool>", ""), "\xEF\xBC\x9Ctool\xEF\xBC\x9E{{ messages[0].content }}",
      "<tool>", NULL },
    { "NFC", "{\"type\":\"NFC\"}", TOKEN(21, "<\\u00e9>", ""), "<e\xCC\x81>{{ messages[0].content }}",
      "<\xC3\xA9>", NULL },
    { "NFC of two pieces", "{\"type\":\"NFC\"}", TOKEN(21, "<\\u00e9>", ""),
      "<e{{ '\xCC\x81>' }}{{ messages[0].content }}", "<\xC3\xA9>", NULL },
    { "NFD", "{\"type\":\"NFD\"}", TOKEN(21, "<\\u00e9>", ""), "<\xC3\xA9>{{ messages[0].content }}",
      "<e\xCC\x81>", NULL },
    { "Replace", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"aa\"},\"content\":\"b\"}",
      TOKEN(21, "[bb]", "") "," TOKEN(22, "(b)", ""), "[aaaa]{{ messages[0].content }}", "[baa](aa)", NULL },
    { "Replace by a pattern", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[0-9]+\"},\"content\":\"0\"}",
      TOKEN(21, "<t7>", ""), "<t42>{{ messages[0].content }}", "<t123>", NULL },
    { "Strip, Lowercase", SEQUENCE("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}," LOWER),
      TOKEN(21, " <tool> ", ""), "<TOOL>{{ messages[0].content }}", "<tool>", NULL },
    { "joined by +", NULL, TOKEN(21, "<tool>", RAW), "{{ '<to' + 'ol>' }}{{ messages[0].content }}", "<tool>", NULL },
    { "joined by a statement", LOWER, TOKEN(21, "<tool>", ""),
      "<To{% if true %}Ol>{% endif %}{{ messages[0].content }}", "<tool>", NULL },
    { "through eos_token", NULL, TOKEN(21, "<eos>", ""), "{{ eos_token }}{{ messages[0].content }}", "<eos>", NULL },
    { "computed", NULL, TOKEN(21, "<USER>", RAW) "," TOKEN(22, "<SYSTEM>", RAW),
      "{% for m in messages %}<{{ 'USER' if m.role == 'user' }}>{{ m.content }}{% endfor %}", "<USER><SYSTEM>", NULL },
    { "computed by a filter", LOWER, TOKEN(21, "###", ""), "{{ '#' * 3 }}{{ messages[0].content }}", "###", NULL },
    { "through special_tokens", LOWER, TOKEN(21, "<tool>", "") "," TOKEN(22, "<free>", ""),
      "{{ my_token }}{{ messages[0].content }}", "<tool><free>", "{\"my_token\": \"<TO\\u004FL>\"}" },
};

static void test_cases(void)
{
    static bench b;
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        char added[1024];
        snprintf(added, sizeof added, "[%s]", cases[i].added);
        rows_folder folder = { .config = "{\"eos_token\":\"<eos>\"}" };
        folder.tokenizer = tokenizer_text((tokenizer_parts){ .added = added, .normalizer = cases[i].normalizer });
        uint64_t before = ctx.host_bytes;
        bench_open(&b, &folder);
        b.chat.special_tokens = cases[i].special;
        if (bench_template(&b, cases[i].template, strlen(cases[i].template))) {
            bool free_token = strstr(cases[i].added, "\"id\":22") != NULL;
            bool fine = CHECK(bench_run(&b, "u", false)) && CHECK_INT(bench_count(&b, 21), 1) &&
                        CHECK(bench_run(&b, cases[i].message, false)) && CHECK_INT(bench_count(&b, 21), 1) &&
                        CHECK_INT(bench_count(&b, 22), free_token);
            if (!fine) {
                printf("    %s\n", cases[i].name);
            }
        }
        bench_close(&b);
        CHECK_INT(ctx.host_bytes, before);
    }
}

/* ---- work ---- */

/* Makes the guard of a template of `bytes` bytes, all of them one constant. */
static exl2_result guard_of_constant(const char *normalizer, size_t bytes)
{
    static bench b;
    const char *added = "[" TOKEN(21, "<tool>", "") "]"; /* searched in normalized text */
    rows_folder folder = {
        .tokenizer = tokenizer_text((tokenizer_parts){ .added = added, .normalizer = normalizer })
    };
    char *source = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        source[i] = "b c "[i % 4];
    }
    bench_open(&b, &folder);
    CHECK_INT(exl2__template_open(&ctx, source, bytes, &b.template), EXL2_OK);
    regex_bytes = 0;
    exl2_result result = exl2__template_guard(&ctx, &b.template, &b.vocab);
    bench_close(&b);
    free(source);
    return result;
}

/* A step that makes 40 bytes of each b, and regular expressions after it: every step of them searches the whole. The
   guard fails before they have searched more than its allowance, twice: Replace counts first, then it writes. */
static void test_work(void)
{
#define REGEX(pattern, content) \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"" pattern "\"},\"content\":\"" content "\"}"
#define NO_MATCH REGEX("(x|y)+z", "q")
    static const char hostile[] = SEQUENCE(REGEX("b", "1234567890123456789012345678901234567890") "," NO_MATCH ","
                                           NO_MATCH "," NO_MATCH "," NO_MATCH "," NO_MATCH "," NO_MATCH "," NO_MATCH);
    enum { SOURCE = 400000 };
    CHECK_INT(guard_of_constant(hostile, SOURCE), EXL2_ERR_FORMAT);
    CHECK(strstr(ctx.error.text, "the normalizer makes too much work of the chat template") != NULL);
    uint64_t allowed = (uint64_t)EXL2__TEMPLATE_GUARD_TIMES * SOURCE + EXL2__TEMPLATE_GUARD_EXTRA;
    if (!CHECK(regex_bytes > 0 && regex_bytes <= 2 * allowed)) {
        printf("    %llu bytes searched\n", (unsigned long long)regex_bytes);
    }
    /* the longest source with steps as published tokenizers have them */
    CHECK_INT(guard_of_constant(SEQUENCE(PREPEND "," MARKS "," LOWER), EXL2__TEMPLATE_SOURCE_MAX), EXL2_OK);
    CHECK_INT(guard_of_constant(SEQUENCE("{\"type\":\"NFKC\"}," NO_MATCH "," MARKS), EXL2__TEMPLATE_SOURCE_MAX),
              EXL2_OK);
}

/* ---- every template with every tokenizer ---- */

/* Tries all spellings of the token in messages: none adds one to the tokens of the conversation. */
static void check_token(bench *b, const char *pair, uint32_t id, bool long_talk, uint32_t *attacks)
{
    static const char *const forms[] = { "%s", " %s", "a\n%s", "%s%s", "a %s b" };
    char content[256] = { 0 }, message[1200];
    size_t bytes;
    const char *piece = exl2__pieces_text(&b->vocab.pieces, id, &bytes);
    if (!CHECK(piece && bytes < sizeof content) || !bench_run(b, "u", long_talk)) {
        return;
    }
    uint32_t wanted = bench_count(b, id);
    for (int spelling = 0; spelling < 3; spelling++) {
        memcpy(content, piece, bytes);
        for (size_t i = 0; i < bytes; i++) {
            bool upper = content[i] >= 'A' && content[i] <= 'Z', lower = content[i] >= 'a' && content[i] <= 'z';
            content[i] = (char)(spelling == 1 && lower ? content[i] - 32 : spelling == 2 && upper ? content[i] + 32
                                                                                                   : content[i]);
        }
        for (size_t form = 0; form < EXL2__COUNT(forms); form++) {
            snprintf(message, sizeof message, forms[form], content, content);
            if (bench_run(b, message, long_talk)) {
                (*attacks)++;
                if (!CHECK(bench_count(b, id) <= wanted)) {
                    printf("    %s: \"%s\" gives %u of token %u instead of %u\n", pair, message, bench_count(b, id), id,
                           wanted);
                }
            }
        }
    }
}

/* Tries every added token that the template prints, in a short and a long conversation. */
static void check_pair(bench *b, const char *pair, uint32_t *tokens, uint32_t *attacks)
{
    static uint8_t done[1 << 20];
    memset(done, 0, sizeof done);
    for (int long_talk = 0; long_talk < 2; long_talk++) {
        static exl2_token ids[IDS_MAX];
        bench_run(b, "u", long_talk);
        size_t count = b->count;
        memcpy(ids, b->ids, count * sizeof *ids);
        for (size_t i = 0; i < count; i++) {
            uint32_t id = (uint32_t)ids[i];
            for (uint32_t k = 0; k < b->vocab.added.count && id < sizeof done && !done[id]; k++) {
                bool plain = id == b->vocab.unk_id /* stands for any unknown character */ ||
                             exl2__template_guard_blank(&b->vocab.added, &b->vocab.added.tokens[k]);
                if (b->vocab.added.tokens[k].id == id && !plain) {
                    done[id] = 1;
                    (*tokens)++;
                    check_token(b, pair, id, long_talk, attacks);
                }
            }
        }
    }
}

static char *unpack(const char *path, size_t *bytes)
{
    char command[800];
    size_t cap = 1 << 24;
    char *text = malloc(cap);
    snprintf(command, sizeof command, "xz -dc '%s'", path);
    FILE *pipe = popen(command, "r");
    *bytes = pipe ? fread(text, 1, cap, pipe) : 0;
    while (pipe && *bytes == cap) {
        text = realloc(text, cap *= 2);
        *bytes += fread(text + *bytes, 1, cap - *bytes, pipe);
    }
    if (pipe) {
        pclose(pipe);
    }
    return text;
}

static const char *const templates[] = { "alpaca", "chatml", "gemma_turns", "granite_docs", "hermes_tools",
                                         "llama2_inst", "llama3_tools", "mistral_v7", "phi3", "qwen_think_tools",
                                         "torture", "vicuna", "zephyr" };
static const char *const tokenizers[] = {
    "gemma3", "llama2", "llama3", "qwen3", "smollm2", "mini_behaviors", "mini_deepseek_coder", "mini_digits_nfc",
    "mini_gpt2_prefix", "mini_lower_strip", "mini_metaspace_always", "mini_metaspace_first",
    "mini_metaspace_never_split", "mini_no_byte_fallback", "mini_o200k_ignore", "mini_prepend_flags"
};

/* The markers of the templates. A tokenizer made for them has each marker as a normalized token. */
static const char markers[] =
    "<|im_start|> <|im_end|> <tool_call> </tool_call> <think> </think> [INST] [/INST] <<SYS>> <</SYS>> "
    "<start_of_turn> <end_of_turn> <|user|> <|assistant|> <|system|> <|end|> <|start_header_id|> <|end_header_id|> "
    "<|eot_id|> [AVAILABLE_TOOLS] [SYSTEM_PROMPT] <|start_of_role|> <|end_of_role|> <|end_of_text|> ### USER: "
    "ASSISTANT: <s> </s> <bos> <|begin_of_text|>";

static const char *const normalizers[] = { "null", LOWER, SEQUENCE(PREPEND "," MARKS), "{\"type\":\"NFKC\"}",
                                           SEQUENCE(PREPEND "," LOWER "," MARKS),
                                           "{\"type\":\"Replace\",\"pattern\":{\"String\":\"<\"},\"content\":\"((\"}" };

static const char *made_tokenizer(const char *normalizer)
{
    static char added[8192];
    char *at = added;
    uint32_t id = 100;
    for (const char *marker = markers; *marker; marker += *marker == ' ') {
        size_t bytes = strcspn(marker, " ");
        at += sprintf(at, "%c{\"id\":%u,\"content\":\"%.*s\"}", at == added ? '[' : ',', id++, (int)bytes, marker);
        marker += bytes;
    }
    sprintf(at, "]");
    return tokenizer_text((tokenizer_parts){ .added = added, .normalizer = normalizer });
}

static void check_templates(rows_folder *folder, const char *root, const char *name, uint32_t *tokens,
                            uint32_t *attacks)
{
    static bench b;
    bench_open(&b, folder);
    for (size_t i = 0; i < EXL2__COUNT(templates); i++) {
        char path[512], pair[128];
        size_t bytes;
        snprintf(path, sizeof path, "%s/templates/%s/template.jinja", root, templates[i]);
        char *template = check_read(path, &bytes);
        snprintf(path, sizeof path, "%s/templates/%s/tokens.json", root, templates[i]);
        char *special = check_read(path, NULL);
        snprintf(pair, sizeof pair, "%s with %s", templates[i], name);
        b.chat.special_tokens = special;
        if (bench_template(&b, template, bytes)) {
            check_pair(&b, pair, tokens, attacks);
        }
        free(template);
        free(special);
    }
    bench_close(&b);
}

static void test_pairs(void)
{
    char root[512], path[600];
    const char *readme = check_shared("fixtures/tokenizers/README.md");
    uint32_t tokens = 0, attacks = 0;
    snprintf(root, sizeof root, "%.*s", (int)(strlen(readme) - strlen("/tokenizers/README.md")), readme);
    for (size_t i = 0; i < EXL2__COUNT(normalizers); i++) {
        rows_folder folder = { .tokenizer = made_tokenizer(normalizers[i]) };
        check_templates(&folder, root, normalizers[i], &tokens, &attacks);
    }
    CHECK(tokens > 100 && attacks > 1500);
    for (size_t i = 0; i < EXL2__COUNT(tokenizers); i++) {
        rows_folder folder = { 0 };
        snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json.xz", root, tokenizers[i]);
        char *text = unpack(path, &folder.tokenizer_bytes);
        folder.tokenizer = text;
        check_templates(&folder, root, tokenizers[i], &tokens, &attacks);
        free(text);
    }
    CHECK(tokens > 300 && attacks > 4500);
    printf("%u tokens of templates, %u messages that try to forge one\n", tokens, attacks);
}

int main(void)
{
    ctx = rows_ctx();
    test_cases();
    test_work();
    if (check_failures == 0) {
        test_pairs();
    }
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}
