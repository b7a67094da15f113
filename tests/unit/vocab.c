/* vocab.c: opening tokenizers: SmolLM2's, small ones with every rule, malformed ones, and failures on the way. */
#include "../text_rows.h"
#include "../text_tokenizer.h"
#include "../vocab_open.h"

static exl2__ctx context;
static rows_folder folder;

static exl2_result open_text(const char *tokenizer, const char *config, exl2__vocab *v)
{
    folder = (rows_folder){ 0 };
    folder.tokenizer = tokenizer;
    folder.config = config;
    return vocab_open(&context, "memory", v);
}

static exl2_result open_parts(tokenizer_parts parts, const char *config, exl2__vocab *v)
{
    return open_text(tokenizer_text(parts), config, v);
}

static const char *piece(const exl2__vocab *v, exl2_token id)
{
    static char text[64];
    size_t bytes;
    bool special;
    const char *p = exl2__vocab_piece(v, id, &bytes, &special);
    snprintf(text, sizeof text, "%s%.*s", special ? "!" : "", (int)bytes, p ? p : "");
    return p ? text : NULL;
}

/* The bytes of every id, as u32 length and bytes, have the same FNV-1a hash as vocab_bytes.bin of the fixtures. */
static void check_smollm2(void)
{
    exl2__vocab v;
    context.files = exl2__platform_files();
    uint64_t start = exl2__platform_ns(), hash = 0xCBF29CE484222325u;
    CHECK(vocab_open(&context, EXL2_GOLDEN_DIR "/smollm2", &v) == EXL2_OK);
    printf("opened in %.1f ms; %llu bytes kept, %llu at most\n", (double)(exl2__platform_ns() - start) * 1e-6,
           (unsigned long long)v.bytes, (unsigned long long)context.host_peak);
    CHECK_INT(context.host_bytes, v.bytes);
    CHECK_INT(v.memory.used, v.bytes);
    CHECK_INT(v.id_count, 49152);
    size_t longest = 0;
    for (uint32_t id = 0; id < v.id_count; id++) {
        uint8_t length[4];
        size_t bytes;
        bool special;
        const char *text = exl2__vocab_piece(&v, (exl2_token)id, &bytes, &special);
        CHECK(text != NULL && special == (id < 17));
        longest = bytes > longest ? bytes : longest;
        exl2__store32(length, (uint32_t)bytes);
        for (size_t i = 0; i < 4 + bytes; i++) {
            hash = (hash ^ (i < 4 ? length[i] : (uint8_t)text[i - 4])) * 0x100000001B3u;
        }
    }
    CHECK(hash == 0xB0FB97EE35651EB8u);
    CHECK_INT(v.piece_bytes_max, longest);
    CHECK(v.present && v.prefix_count == 0 && v.bos == 1 && v.eos == 2 && v.unk == 0 && v.pad == 2);
    CHECK_TEXT(v.bos_text, "<|im_start|>");
    CHECK_TEXT(v.eos_text, "<|im_end|>");
    CHECK_TEXT(v.unk_text, "<|endoftext|>");
    CHECK_TEXT(v.pad_text, "<|im_end|>");
    CHECK_INT(exl2__vocab_token(&v, "<|im_end|>", 10), 2);
    CHECK_INT(exl2__vocab_token(&v, "<|im_end|", 9), -1);
    CHECK_INT(exl2__vocab_token(&v, "<|im_end|> ", 11), -1);
    CHECK_INT(exl2__vocab_token(&v, "the", 3), -1);
    exl2__vocab_close(&context, &v);
    exl2__vocab_close(&context, &v);
    CHECK(!v.present && piece(&v, 5) == NULL);
    CHECK_INT(context.host_bytes, 0);
    context.files = rows_files(&folder);
}

static void check_small(void)
{
    exl2__vocab v;
    CHECK(open_parts((tokenizer_parts){ 0 }, NULL, &v) == EXL2_OK);
    CHECK_INT(v.id_count, 10);
    CHECK_TEXT(piece(&v, 6), " a");
    CHECK_TEXT(piece(&v, 9), "!<e>");
    CHECK(piece(&v, 7) == NULL && piece(&v, 10) == NULL && piece(&v, -1) == NULL);
    CHECK(v.bos == -1 && v.eos == -1 && v.bos_text == NULL && v.prefix_count == 0);
    exl2__vocab_close(&context, &v);

    CHECK(open_text(NULL, "{}", &v) == EXL2_OK && !v.present && v.bytes == 0);
    exl2__vocab_close(&context, &v);
}

/* BOS by tokenizer_config.json and the post-processor. */
static void check_bos(void)
{
    static const char *const template_e =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<e>\"}},{\"Sequence\":{\"id\":\"A\"}}"
        ","
        "{\"SpecialToken\":{\"id\":\"x\"}}],\"special_tokens\":{\"x\":{\"ids\":[1]},\"<e>\":{\"ids\":[9]}}}";
    char sequence[1024];
    exl2__vocab v;
    tokenizer_parts plain = { 0 }, with_template = { 0 };
    with_template.post_processor = template_e;
    CHECK(open_parts(plain,
                     "{\"bos_token\":\"<e>\",\"eos_token\":{\"content\":\"ab\"},\"pad_token\":\"?\","
                     "\"unk_token\":null}", &v) == EXL2_OK);
    CHECK(v.bos == 9 && v.eos == 3 && v.pad == -1 && v.unk == -1 && v.prefix_count == 0);
    CHECK_TEXT(v.eos_text, "ab");
    CHECK_TEXT(v.pad_text, "?");
    CHECK(v.unk_text == NULL);
    exl2__vocab_choose_bos(&v, -1, false);
    CHECK(v.prefix_count == 0);
    exl2__vocab_choose_bos(&v, -1, true); /* the files leave it open, the architecture wants it */
    CHECK(v.prefix_count == 1 && v.prefix[0] == 9);
    exl2__vocab_close(&context, &v);
    CHECK(open_parts(plain, "{\"bos_token\":\"<e>\"}", &v) == EXL2_OK);
    exl2__vocab_choose_bos(&v, 3, true); /* config.json comes first */
    CHECK(v.prefix_count == 1 && v.prefix[0] == 3 && v.bos == 3);
    exl2__vocab_close(&context, &v);
    CHECK(open_parts(plain, NULL, &v) == EXL2_OK);
    exl2__vocab_choose_bos(&v, -1, true);
    CHECK(v.prefix_count == 0 && v.bos == -1); /* none is defined */
    exl2__vocab_choose_bos(&v, 1000, true);
    CHECK(v.prefix_count == 0); /* the tokenizer does not know it */
    exl2__vocab_close(&context, &v);
    CHECK(open_parts(plain, "{\"bos_token\":\"<e>\",\"add_bos_token\":false}", &v) == EXL2_OK);
    exl2__vocab_choose_bos(&v, 3, true);
    CHECK(v.prefix_count == 0);
    exl2__vocab_close(&context, &v);
    CHECK(open_parts(plain, "{\"bos_token\":\"<e>\",\"add_bos_token\":true}", &v) == EXL2_OK && v.prefix_count == 1);
    exl2__vocab_close(&context, &v);
    CHECK(open_parts(with_template, NULL, &v) == EXL2_OK && v.prefix_count == 1 && v.bos == 9);
    exl2__vocab_choose_bos(&v, 3, true); /* the post-processor's is what the model was trained with */
    CHECK(v.prefix_count == 1 && v.prefix[0] == 9);
    exl2__vocab_close(&context, &v);
    CHECK(open_parts(with_template, "{\"add_bos_token\":false}", &v) == EXL2_OK && v.prefix_count == 0 && v.bos == 9);
    exl2__vocab_close(&context, &v);
    snprintf(sequence, sizeof sequence, "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},%s]}",
             template_e);
    with_template.post_processor = sequence;
    CHECK(open_parts(with_template, NULL, &v) == EXL2_OK && v.prefix_count == 1 && v.bos == 9);
    exl2__vocab_close(&context, &v);
    with_template.post_processor =
        "{\"type\":\"TemplateProcessing\","
        "\"single\":[{\"SpecialToken\":{\"id\":\"g\"}},{\"SpecialToken\":{\"id\":\"h\"}},"
        "{\"Sequence\":{\"id\":\"A\"}}],"
        "\"special_tokens\":{\"g\":{\"ids\":[9]},\"h\":{\"ids\":[3]}}}";
    exl2_token prefix[EXL2__VOCAB_PREFIX_MAX] = { 0 };
    CHECK(open_parts(with_template, "{\"bos_token\":\"ab\"}", &v) == EXL2_OK && v.prefix_count == 2 && v.bos == 3);
    CHECK(exl2__vocab_prefix(&v, 0, prefix, 1) == 2 && prefix[0] == 9 && prefix[1] == 0);
    CHECK(exl2__vocab_prefix(&v, 0, prefix, 2) == 2 && prefix[0] == 9 && prefix[1] == 3);
    CHECK(exl2__vocab_prefix(&v, EXL2_TEXT_NO_BOS, prefix, 2) == 0);
    exl2__vocab_close(&context, &v);
    CHECK(open_parts(with_template, "{\"add_bos_token\":false}", &v) == EXL2_OK && v.prefix_count == 0);
    exl2__vocab_close(&context, &v);
    with_template.post_processor = "{\"type\":\"RobertaProcessing\",\"sep\":[\"b\",1],\"cls\":[\"<e>\",9]}";
    CHECK(open_parts(with_template, NULL, &v) == EXL2_OK && v.prefix_count == 1 && v.bos == 9);
    exl2__vocab_close(&context, &v);
    CHECK(open_parts(plain, "{\"added_tokens_decoder\":{\"3\":{},\"20\":{}}}", &v) == EXL2_OK);
    CHECK_INT(v.id_count, 21);
    CHECK(piece(&v, 20) == NULL);
    exl2__vocab_close(&context, &v);
}

/* Pieces are decoded with the byte map. If an added token is also in the vocabulary, the vocabulary's id counts. */
static void check_added(void)
{
    exl2__vocab v;
    tokenizer_parts parts = { 0 };
    parts.added =
        "[{\"id\":12,\"content\":\"ab\"},{\"id\":10,\"content\":\"<a b>\"},{\"id\":11,\"content\":\"\\u0120\\u00e9\"},"
        "{\"id\":13,\"content\":\"\"},{\"id\":14,\"content\":\"<z>\",\"special\":true}]";
    CHECK(open_parts(parts, NULL, &v) == EXL2_OK);
    CHECK_INT(v.id_count, 15);
    CHECK_INT(exl2__vocab_token(&v, "ab", 2), 3);
    CHECK(piece(&v, 12) == NULL && piece(&v, 13) == NULL);
    CHECK_TEXT(piece(&v, 10), "<a b>");
    CHECK_TEXT(piece(&v, 11), " \xE9");
    CHECK_TEXT(piece(&v, 14), "!<z>");
    exl2__vocab_close(&context, &v);
}

static void check_refused(tokenizer_parts parts, const char *config, exl2_result wanted, const char *words)
{
    exl2__vocab v;
    CHECK_INT(open_parts(parts, config, &v), wanted);
    if (!CHECK(strstr(context.error.text, words) != NULL)) {
        printf("    wanted \"%s\" in \"%s\"\n", words, context.error.text);
    }
    CHECK(!v.present && v.memory.base == NULL);
    CHECK_INT(context.host_bytes, 0);
}

#define REFUSE(part, text, result, words) \
    check_refused((tokenizer_parts){ .part = (text) }, NULL, EXL2_ERR_##result, words)
#define SEQUENCE(parts) "{\"type\":\"Sequence\",\"pretokenizers\":[" parts "]}"
#define SPLIT(pattern, rest) SEQUENCE("{\"type\":\"Split\",\"pattern\":{" pattern "}," rest "}," TOKENIZER_BYTE_LEVEL)
#define TEMPLATE(single, tokens) "{\"type\":\"TemplateProcessing\",\"single\":" single ",\"special_tokens\":" tokens "}"

static void check_unsupported(void)
{
    REFUSE(normalizer, "{\"type\":\"Nmt\"}", UNSUPPORTED, "tokenizer.json: normalizer Nmt is not supported");
    REFUSE(normalizer, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}", UNSUPPORTED, "Replace");
    REFUSE(pre_tokenizer, "null", UNSUPPORTED, "decoder ByteLevel");
    REFUSE(pre_tokenizer, "{\"type\":\"Metaspace\"}", UNSUPPORTED, "Metaspace");
    REFUSE(pre_tokenizer, "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"}", UNSUPPORTED, "decoder ByteLevel");
    REFUSE(pre_tokenizer, SEQUENCE("{\"type\":\"BertPreTokenizer\"}," TOKENIZER_BYTE_LEVEL), UNSUPPORTED, "BertPre");
    REFUSE(pre_tokenizer, SEQUENCE(TOKENIZER_BYTE_LEVEL ",{\"type\":\"Digits\"}"), UNSUPPORTED,
           "after pre_tokenizer ByteLevel or Metaspace, pre_tokenizer Digits is not");
    REFUSE(pre_tokenizer, "{\"type\":\"Sequence\",\"pretokenizers\":{}}", FORMAT, "pretokenizers");
    REFUSE(pre_tokenizer, SPLIT("\"Regex\":\"(?<=a)b\"", "\"behavior\":\"Isolated\",\"invert\":false"), UNSUPPORTED,
           "Split with the pattern (?<=a)b is not supported: it has a group (? other than");
    REFUSE(normalizer, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a*\"},\"content\":\"\"}", UNSUPPORTED,
           "Replace with the pattern a* is not supported: it has a match that may be empty");
    REFUSE(normalizer, "{\"type\":\"Precompiled\"}", UNSUPPORTED, "normalizer Precompiled");
    REFUSE(pre_tokenizer, SEQUENCE("{\"type\":\"CharDelimiterSplit\"}," TOKENIZER_BYTE_LEVEL), FORMAT, "delimiter");
    REFUSE(pre_tokenizer, SEQUENCE("{\"type\":\"UnicodeScripts\"}," TOKENIZER_BYTE_LEVEL), UNSUPPORTED, "UnicodeScr");
    REFUSE(pre_tokenizer, SPLIT("\"String\":\"\"", "\"behavior\":\"Isolated\""), UNSUPPORTED, "Split");
    REFUSE(pre_tokenizer, SPLIT("\"String\":\"a\"", "\"behavior\":\"Often\""), UNSUPPORTED, "behavior Often");
    REFUSE(decoder, "null", UNSUPPORTED, "decoder null");
    REFUSE(decoder, "{\"type\":\"ByteFallback\"}", UNSUPPORTED, "decoder ByteFallback");
    tokenizer_parts marks = { .pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"}" };
    marks.decoder = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\" \"}";
    check_refused(marks, NULL, EXL2_ERR_UNSUPPORTED, "decoder Replace is supported only for U+2581");
    marks.decoder = "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}";
    check_refused(marks, NULL, EXL2_ERR_UNSUPPORTED, "decoder Strip is supported only after Fuse");
    marks.decoder = "{\"type\":\"Fuse\"}";
    check_refused(marks, NULL, EXL2_ERR_UNSUPPORTED, "the decoder does not replace U+2581 by spaces");
    marks.pre_tokenizer = "{\"type\":\"Digits\"}";
    check_refused(marks, NULL, EXL2_ERR_UNSUPPORTED, "neither normalizer nor pre_tokenizer replaces spaces");
    marks.pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"last\"}";
    check_refused(marks, NULL, EXL2_ERR_UNSUPPORTED, "Metaspace with the prepend_scheme last");
    REFUSE(decoder, "{\"type\":\"WordPiece\"}", UNSUPPORTED, "decoder WordPiece");
    REFUSE(post_processor, "{\"type\":\"Other\"}", UNSUPPORTED, "post_processor Other");
    REFUSE(post_processor, TEMPLATE("[{\"SpecialToken\":{\"id\":\"x\"}}]", "{\"x\":{\"ids\":[0,1,2,3,4]}}"),
           UNSUPPORTED, "more than 4 tokens");
    REFUSE(post_processor, TEMPLATE("[{\"Sequence\":{\"id\":\"B\"}}]", "{}"), UNSUPPORTED,
           "post_processor.single with the item {");
    REFUSE(options, ",\"type\":\"Unigram\"", FORMAT, "\"type\" twice");
    REFUSE(options, ",\"byte_fallback\":true", UNSUPPORTED, "byte_fallback");
    REFUSE(options, ",\"dropout\":0.1", UNSUPPORTED, "dropout 0.1");
    REFUSE(options, ",\"continuing_subword_prefix\":\"##\"", UNSUPPORTED, "continuing_subword_prefix ##");
    REFUSE(options, ",\"end_of_word_suffix\":\"</w>\"", UNSUPPORTED, "end_of_word_suffix </w>");
    exl2__vocab v;
    CHECK_INT(open_text("{\"model\":{\"type\":\"WordPiece\"}}", NULL, &v), EXL2_ERR_UNSUPPORTED);
    CHECK(strstr(context.error.text, "model WordPiece") != NULL);
    CHECK_INT(open_text("{}", NULL, &v), EXL2_ERR_UNSUPPORTED);
    CHECK(strstr(context.error.text, "model null") != NULL);
    char long_token[1200];
    snprintf(long_token, sizeof long_token, "[{\"id\":9,\"content\":\"%01025d\"}]", 0);
    REFUSE(added, long_token, UNSUPPORTED, "1025 bytes");
}

static void check_malformed(void)
{
    exl2__vocab v;
    CHECK_INT(open_text("[]", NULL, &v), EXL2_ERR_FORMAT);
    CHECK_INT(open_text("", NULL, &v), EXL2_ERR_FORMAT);
    CHECK_INT(open_text("{\"model\":", NULL, &v), EXL2_ERR_FORMAT);
    REFUSE(vocab, "[]", FORMAT, "model.vocab is not an object");
    REFUSE(vocab, "{\"a\":0,\"b\":1.5}", FORMAT, "an id of model.vocab is not a whole number");
    REFUSE(vocab, "{\"a\":-1}", FORMAT, "not a whole number");
    REFUSE(vocab, "{\"a\":4194304}", FORMAT, "is 4194304, expected at most 4194303");
    REFUSE(vocab, "{\"a\":18446744073709551616}", FORMAT, "an id of model.vocab");
    REFUSE(vocab, "{\"a\":0,\"b\":0}", FORMAT, "the id 0 twice");
    REFUSE(vocab, "{\"a\":0,\"a\":1}", FORMAT, "twice");
    REFUSE(merges, "{}", FORMAT, "model.merges is not a list");
    REFUSE(merges, "[\"a b\",\"ab\"]", FORMAT, "merge 1 is neither");
    REFUSE(merges, "[\"a b c\"]", FORMAT, "merge 0 is neither");
    REFUSE(merges, "[[\"a\"]]", FORMAT, "merge 0 is neither");
    REFUSE(merges, "[[\"a\",1]]", FORMAT, "merge 0 is neither");
    REFUSE(merges, "[7]", FORMAT, "merge 0 is neither");
    REFUSE(merges, "[\"a b\",\"b c\"]", FORMAT, "merge 1 (b c) needs a token");
    REFUSE(merges, "[[\"a\",\"x\"]]", FORMAT, "needs a token");
    REFUSE(added, "{}", FORMAT, "added_tokens is not a list");
    REFUSE(added, "[1]", FORMAT, "an element of added_tokens");
    REFUSE(added, "[{\"id\":9}]", FORMAT, "an element of added_tokens");
    REFUSE(added, "[{\"id\":9,\"content\":\"x\",\"lstrip\":1}]", FORMAT, "lstrip is not true or false");
    REFUSE(added, "[{\"id\":1,\"content\":\"x\"}]", FORMAT, "has the id 1, which is that of \"b\"");
    REFUSE(added, "[{\"id\":9,\"content\":\"longer\"},{\"id\":9,\"content\":\"x\"}]", FORMAT, "the id 9 twice");
    REFUSE(added, "[{\"id\":9,\"content\":\"x\",\"special\":true},{\"id\":10,\"content\":\"x\",\"special\":true}]",
           FORMAT, "\"x\" twice");
    REFUSE(post_processor, TEMPLATE("[{\"SpecialToken\":{\"id\":\"x\"}}]", "{}"), FORMAT, "post_processor.single");
    REFUSE(post_processor, TEMPLATE("[{\"SpecialToken\":{\"id\":\"x\"}}]", "{\"x\":{\"ids\":[8]}}"), FORMAT, "token 8");
    REFUSE(post_processor, "{\"type\":\"BertProcessing\",\"cls\":[\"a\"]}", FORMAT, "post_processor.cls");
    REFUSE(post_processor, "{\"type\":\"BertProcessing\",\"cls\":[\"a\",\"b\"]}", FORMAT, "not a whole number");
    REFUSE(post_processor, TEMPLATE("{}", "{}"), FORMAT, "single is not a list");
    REFUSE(options, ",\"unk_token\":\"?\"", FORMAT, "unk_token is not a token");
    REFUSE(options, ",\"unk_token\":5", FORMAT, "unk_token is not a string");
    REFUSE(options, ",\"fuse_unk\":\"x\"", FORMAT, "fuse_unk is not true or false");
    check_refused((tokenizer_parts){ 0 }, "{\"added_tokens_decoder\":{\"x\":{}}}", EXL2_ERR_FORMAT,
                  "\"x\", expected an id below");
    check_refused((tokenizer_parts){ 0 }, "{\"added_tokens_decoder\":{\"99999999999\":{}}}", EXL2_ERR_FORMAT,
                  "expected an id below");
    check_refused((tokenizer_parts){ 0 }, "[", EXL2_ERR_FORMAT, "tokenizer_config.json");
    check_refused((tokenizer_parts){ 0 }, "[]", EXL2_ERR_FORMAT, "tokenizer_config.json");
}

/* ---- failures while opening ---- */

static int allocations_left; /* allocations until one fails; -1 = none fails */

static void *counted_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    if (allocations_left == 0) {
        return NULL;
    }
    allocations_left -= allocations_left > 0;
    return exl2__platform_alloc(user, bytes, align, tag);
}

static void check_faults(void)
{
    static const char config[] = "{\"bos_token\":\"<e>\",\"eos_token\":\"<e>\"}";
    exl2__vocab v;
    int refused = 0;
    context.allocator.alloc_fn = counted_alloc;
    for (exl2_result result = EXL2_ERR_MEMORY; result < 0; refused++) {
        allocations_left = refused;
        context.error = (exl2_error){ 0 };
        result = open_parts((tokenizer_parts){ 0 }, config, &v);
        CHECK(result == EXL2_OK || (result == EXL2_ERR_MEMORY && context.error.code == result &&
                                    context.host_bytes == 0));
    }
    CHECK(refused > 6);
    CHECK_INT(context.host_bytes, v.bytes);
    exl2__vocab_close(&context, &v);
    allocations_left = -1;
    for (int nth = 1; nth <= 2; nth++) {
        folder = (rows_folder){ 0 };
        folder.tokenizer = tokenizer_text((tokenizer_parts){ 0 });
        folder.config = config;
        folder.fail_at = nth;
        CHECK_INT(vocab_open(&context, "memory", &v), EXL2_ERR_IO);
        CHECK_INT(context.host_bytes, 0);
    }
}

/* ---- slices ---- */

/* Reads in slices of one item, and stops after `most` of them. Returns their number. */
static int read_sliced(const char *dir, int most, exl2_result *result, exl2__vocab *v)
{
    exl2__vocab_reader r;
    int slices = 0;
    for (*result = exl2__vocab_read_begin(&r, &context, dir, v), *result = *result < 0 ? *result : EXL2_PENDING;
         *result == EXL2_PENDING && slices < most; slices++) {
        exl2__work work = { 1 };
        *result = exl2__vocab_read_slice(&r, &work);
    }
    exl2__vocab_read_end(&r);
    return slices;
}

/* In slices of one item the result is the same, and a reader that is ended between two slices frees everything. */
static void check_slices(void)
{
    static const char config[] = "{\"bos_token\":\"<e>\",\"added_tokens_decoder\":{\"9\":{},\"12\":{}}}";
    static const char *const added = "[{\"id\":9,\"content\":\"<e>\",\"special\":true},{\"id\":10,\"content\":\"<z>\"},"
                                     "{\"id\":11,\"content\":\"<a>\"}]";
    exl2__vocab whole, sliced;
    exl2_result result;
    CHECK_INT(open_parts((tokenizer_parts){ .added = added }, config, &whole), EXL2_OK);
    int slices = read_sliced("memory", 100000, &result, &sliced);
    CHECK_INT(result, EXL2_OK);
    CHECK(slices > 100);
    CHECK_INT(sliced.bytes, whole.bytes);
    CHECK_INT(sliced.bos, whole.bos);
    CHECK_INT(sliced.id_count, whole.id_count);
    for (uint32_t id = 0; id < whole.id_count; id++) {
        char other[64];
        const char *text = piece(&whole, (exl2_token)id);
        snprintf(other, sizeof other, "%s", text ? text : "?");
        text = piece(&sliced, (exl2_token)id);
        CHECK_TEXT(text ? text : "?", other);
    }
    CHECK(memcmp(sliced.bpe.merges, whole.bpe.merges, whole.bpe.merge_count * sizeof *whole.bpe.merges) == 0);
    CHECK(memcmp(sliced.bpe.slots, whole.bpe.slots, (whole.bpe.mask + 1) * sizeof *whole.bpe.slots) == 0);
    CHECK_INT(sliced.added.count, 3);
    CHECK(memcmp(sliced.added.tokens, whole.added.tokens, 3 * sizeof *whole.added.tokens) == 0);
    exl2__vocab_close(&context, &sliced);
    exl2__vocab_close(&context, &whole);
    for (int most = 0; most < slices; most++) {
        CHECK_INT(read_sliced("memory", most, &result, &sliced), most);
        CHECK_INT(result, EXL2_PENDING);
        CHECK(!sliced.present && context.host_bytes == 0);
    }
}

int main(void)
{
    context = rows_ctx();
    check_smollm2();
    check_small();
    check_bos();
    check_added();
    check_unsupported();
    check_malformed();
    check_faults();
    check_slices();
    CHECK_INT(context.host_bytes, 0);
    return check_done();
}
