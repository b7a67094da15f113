/* embed_folders.c: what a folder says of its embeddings: the pool and the modules of sentence-transformers, a token
   after each text, tensors without the prefix of a model with a head, encoders. What is not computed is an error that
   names it, where an embedding is asked for; the model still speaks.
   takes: the golden of a Qwen 3.
   gives: exit code 0 or 1. */
#include "rig.h"

#include "../memory_files.h"

#define DIR_NAME "m"

static memory_files folder;

/* Names with a folder in them, too. */
static void *open_whole(void *user, const char *path, uint64_t *bytes)
{
    memory_files *m = user;
    for (uint32_t i = 0; i < m->count; i++) {
        if (strncmp(path, DIR_NAME "/", 2) == 0 && strcmp(path + 2, m->files[i].name) == 0) {
            *bytes = m->files[i].bytes;
            m->open_files++;
            return &m->files[i];
        }
    }
    return NULL;
}

/* Replaces every `from` of a text; the text grows or shrinks. */
static char *replace(char *text, const char *from, const char *to)
{
    size_t found = 0, bytes = strlen(text), step = strlen(from);
    for (const char *p = text; (p = strstr(p, from)) != NULL; p += step) {
        found++;
    }
    CHECK(found > 0);
    char *out = calloc(1, bytes + found * strlen(to) + 1), *at = out;
    for (const char *p = text, *hit; *p; p = hit ? hit + step : p + strlen(p)) {
        hit = strstr(p, from);
        size_t part = hit ? (size_t)(hit - p) : strlen(p);
        memcpy(at, p, part);
        at += part;
        if (hit) {
            memcpy(at, to, strlen(to));
            at += strlen(to);
        }
    }
    free(text);
    return out;
}

static char *read_of(const char *name, size_t *bytes)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", rig_golden("qwen3"), name);
    return check_read(path, bytes);
}

/* The golden in memory. bare: its tensors without "model.". Replaces `from` in config.json, if it is not NULL. */
static void folder_make(bool bare, const char *from, const char *to)
{
    size_t bytes;
    uint64_t header;
    memory_make(&folder);
    folder.c.files.open = open_whole;
    char *config = read_of("config.json", &bytes);
    config = from ? replace(config, from, to) : config;
    memory_add_text(&folder, "config.json", config);
    free(config);
    char *data = read_of("model.safetensors", &bytes);
    memcpy(&header, data, 8);
    if (bare) {
        char *text = calloc(1, (size_t)header + 1);
        memcpy(text, data + 8, (size_t)header);
        text = replace(text, "\"model.", "\"");
        memset(data + 8, ' ', (size_t)header);
        memcpy(data + 8, text, strlen(text));
        free(text);
    }
    memory_add(&folder, "model.safetensors", data, bytes);
    free(data);
}

static rig folder_open(void)
{
    exl2_engine_desc e = { .files = folder.c.files };
    exl2_model_desc m = { .path = DIR_NAME };
    return rig_open(&e, &m);
}

static void folder_end(rig *r)
{
    rig_close(r);
    memory_free(&folder);
}

static float vector[1024];

static exl2_flow hear(void *user, const exl2_event *event)
{
    (void)user;
    if (event->kind == EXL2_EVENT_EMBEDDING) {
        memcpy(vector, event->values, event->value_count * sizeof *vector);
    }
    return EXL2_CONTINUE;
}

static const exl2_token ids[] = { 5, 100, 7, 30, 200, 9 };

static exl2_job_desc job_of(const rig *r)
{
    return (exl2_job_desc){ .model = r->model, .prompt = { .tokens = ids, .token_count = EXL2__COUNT(ids) },
                            .embed.pool = EXL2_EMBED_MEAN, .on_event = hear };
}

static void check_words(const rig *r, exl2_result got, exl2_result wanted, const char *words)
{
    exl2_error error = { 0 };
    CHECK_INT(got, wanted);
    exl2_last_error(r->engine, &error);
    if (!CHECK(strstr(error.text, words) != NULL)) {
        printf("  '%s' does not contain '%s'\n", error.text, words);
    }
}

/* ---- sentence-transformers ---- */

#define MODULE(type, path) "{'idx':0,'name':'0','path':'" path "','type':'sentence_transformers.models." type "'}"
#define TWO MODULE("Transformer", "") "," MODULE("Pooling", "1_Pooling")

static void test_pooling(void)
{
    static const struct {
        const char *pooling, *modules; /* NULL: no such file */
        exl2_embed_pool pool;
        bool raw;
        const char *words; /* of the error of a job that wants an embedding; NULL: it works */
    } cases[] = {
        { NULL, NULL, EXL2_EMBED_OFF, false, NULL },
        { "{'word_embedding_dimension':64,'pooling_mode_cls_token':false,'pooling_mode_lasttoken':true,"
          "'include_prompt':true}", "[" TWO "," MODULE("Normalize", "2_Normalize") "]", EXL2_EMBED_LAST, false, NULL },
        { "{'pooling_mode_mean_tokens':true}", "[" TWO "]", EXL2_EMBED_MEAN, true, NULL },
        { "{'pooling_mode_cls_token':true,'pooling_mode_mean_tokens':false}", NULL, EXL2_EMBED_FIRST, false, NULL },
        { "{'pooling_mode':'mean'}", NULL, EXL2_EMBED_MEAN, false, NULL },
        { "{'pooling_mode_max_tokens':true}", NULL, EXL2_EMBED_OFF, false, "'max_tokens'" },
        { "{'pooling_mode_weightedmean_tokens':true}", "[]", EXL2_EMBED_OFF, true, "'weightedmean_tokens'" },
        { "{'pooling_mode_cls_token':true,'pooling_mode_mean_tokens':true}", NULL, EXL2_EMBED_MEAN, false,
          "several pooling modes" },
        { "{'pooling_mode_mean_tokens':true}", "[" TWO "," MODULE("Dense", "2_Dense") "]", EXL2_EMBED_MEAN, true,
          "'Dense'" },
        { NULL, "[" MODULE("Transformer", "") "," MODULE("Pooling", "9_Pooling") "]", EXL2_EMBED_OFF, true,
          "another folder than 1_Pooling" },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        folder_make(false, NULL, NULL);
        if (cases[i].pooling) {
            memory_add_text(&folder, "1_Pooling/config.json", json_text(cases[i].pooling));
        }
        if (cases[i].modules) {
            memory_add_text(&folder, "modules.json", json_text(cases[i].modules));
        }
        rig r = folder_open();
        exl2_model_info info;
        exl2_job_desc d = job_of(&r);
        CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
        CHECK_INT(info.embed_pool, cases[i].pool);
        CHECK_INT(info.embed_raw, cases[i].raw);
        CHECK(info.has_head);
        exl2_result got = exl2_generate(r.engine, &d);
        cases[i].words ? check_words(&r, got, EXL2_ERR_UNSUPPORTED, cases[i].words) : (void)CHECK_INT(got, EXL2_OK);
        d.embed.pool = EXL2_EMBED_OFF; /* it still speaks */
        d.max_tokens = 2;
        CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
        folder_end(&r);
    }
}

/* Files that are no such files: the load fails, in words. */
static void test_malformed(void)
{
    static const struct {
        const char *name, *text, *words;
    } cases[] = { { "1_Pooling/config.json", "{'pooling_mode_mean_tokens':1}", "pooling_mode_mean_tokens=1" },
                  { "1_Pooling/config.json", "{'pooling_mode':['mean']}", "pooling_mode=[1 values]" },
                  { "1_Pooling/config.json", "[]", "expected an object" },
                  { "1_Pooling/config.json", "{'pooling_mode", "1_Pooling/config.json" },
                  { "modules.json", "{}", "expected a list" },
                  { "modules.json", "[1]", "expected objects" },
                  { "modules.json", "[{'type':3}]", "expected objects" },
                  { "modules.json", "[[", "modules.json" } };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        folder_make(false, NULL, NULL);
        memory_add_text(&folder, cases[i].name, json_text(cases[i].text));
        exl2_engine_desc e = { .backend = EXL2_BACKEND_CPU, .files = folder.c.files };
        rig r = { 0 };
        CHECK_INT(exl2_open(&e, &r.engine), EXL2_OK);
        exl2_result got = exl2_model_load(r.engine, &(exl2_model_desc){ .path = DIR_NAME }, &r.model);
        check_words(&r, got, EXL2_ERR_FORMAT, cases[i].words);
        folder_end(&r);
    }
}

/* ---- models without a head ---- */

static void test_headless(void)
{
    float wanted[64];
    folder_make(false, NULL, NULL);
    rig r = folder_open();
    exl2_job_desc d = job_of(&r);
    rig_run(&r, &d);
    memcpy(wanted, vector, sizeof wanted);
    folder_end(&r);
    for (uint32_t tied = 0; tied < 2; tied++) {
        for (uint32_t base = 0; base < 2; base++) {
            static const char tie[] = "\"tie_word_embeddings\": true", no_tie[] = "\"tie_word_embeddings\": false";
            folder_make(true, base ? "Qwen3ForCausalLM" : tie, base ? "Qwen3Model" : tied ? tie : no_tie);
            r = folder_open();
            bool headless = !base && !tied;
            exl2_model_info info;
            CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
            CHECK_INT(info.has_head, !headless);
            d = job_of(&r);
            memset(vector, 0, sizeof vector);
            rig_run(&r, &d);
            CHECK(memcmp(vector, wanted, sizeof wanted) == 0);
            d.embed.pool = EXL2_EMBED_OFF;
            exl2_result got = exl2_job_start(r.engine, &d, NULL);
            headless ? check_words(&r, got, EXL2_ERR_STATE, "no head") : (void)CHECK_INT(got, EXL2_OK);
            d.prefill_only = true;
            CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
            d.score_prompt = true;
            got = exl2_job_start(r.engine, &d, NULL);
            headless ? check_words(&r, got, EXL2_ERR_STATE, "no head") : (void)CHECK_INT(got, EXL2_OK);
            folder_end(&r);
        }
    }
}

/* Never wrong numbers: these do not load. */
static void test_encoders(void)
{
    static const struct {
        const char *from, *to, *words;
    } cases[] = { { "use_cache", "use_bidirectional_attention", "use_bidirectional_attention=true" },
                  { "\"use_cache\": true", "\"is_causal\": false", "is_causal=false" },
                  { "Qwen3ForCausalLM", "BertModel", "'BertModel'" },
                  { "Qwen3ForCausalLM", "ModernBertModel", "'ModernBertModel'" },
                  { "Qwen3ForCausalLM", "Qwen3BiModel", "'Qwen3BiModel'" } };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        folder_make(true, cases[i].from, cases[i].to);
        exl2_engine_desc e = { .backend = EXL2_BACKEND_CPU, .files = folder.c.files };
        rig r = { 0 };
        CHECK_INT(exl2_open(&e, &r.engine), EXL2_OK);
        exl2_result got = exl2_model_load(r.engine, &(exl2_model_desc){ .path = DIR_NAME }, &r.model);
        check_words(&r, got, EXL2_ERR_UNSUPPORTED, cases[i].words);
        folder_end(&r);
    }
}

/* ---- a token after the text ---- */

#define ENDS(processor) \
    "{'added_tokens':[{'id':300,'content':'<e>','special':true},{'id':301,'content':'<f>','special':true}]," \
    "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false},'decoder':{'type':'ByteLevel'}," \
    "'post_processor':" processor ",'model':{'type':'BPE','vocab':{'a':10,'b':11},'merges':[]}}"
#define AFTER(items) \
    "{'type':'TemplateProcessing','single':[{'Sequence':{'id':'A','type_id':0}}" items "],'special_tokens':{" \
    "'<e>':{'id':'<e>','ids':[300],'tokens':['<e>']},'<f>':{'id':'<f>','ids':[301],'tokens':['<f>']}}}"
#define SPECIAL(name) ",{'SpecialToken':{'id':'" name "','type_id':0}}"

static void test_end(void)
{
    static const struct {
        const char *tokenizer;
        uint32_t ends;
    } cases[] = { { ENDS("null"), 0 }, { ENDS(AFTER("")), 0 }, { ENDS(AFTER(SPECIAL("<e>"))), 1 },
                  { ENDS("{'type':'Sequence','processors':[{'type':'ByteLevel'}," AFTER(SPECIAL("<e>") SPECIAL("<f>"))
                         "]}"), 2 },
                  { ENDS("{'type':'RobertaProcessing','sep':['<e>',300],'cls':['<f>',301]}"), 1 } };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        folder_make(false, NULL, NULL);
        memory_add_text(&folder, "tokenizer.json", json_text(cases[i].tokenizer));
        rig r = folder_open();
        exl2_token out[8] = { 0 };
        size_t need;
        uint32_t end = EXL2_TEXT_END | EXL2_TEXT_NO_BOS, ends = cases[i].ends;
        CHECK_INT(exl2_tokenize(r.engine, r.model, "ab", 2, EXL2_TEXT_NO_BOS, out, 8, &need), EXL2_OK);
        CHECK_INT(need, 2);
        CHECK_INT(exl2_tokenize(r.engine, r.model, "ab", 2, end, NULL, 0, &need), EXL2_OK);
        CHECK_INT(need, 2 + ends);
        CHECK_INT(exl2_tokenize(r.engine, r.model, "ab", 2, end, out, 8, &need), EXL2_OK);
        CHECK(out[0] == 10 && out[1] == 11 && out[2] == (ends ? 300 : 0) && out[3] == (ends > 1 ? 301 : 0));
        CHECK_INT(exl2_tokenize(r.engine, r.model, "ab", 2, end, out, 2, &need), ends ? EXL2_ERR_TOO_SMALL : EXL2_OK);
        exl2_prompt prompt = { .text = "ab", .flags = end };
        CHECK_INT(exl2_chat_tokenize(r.engine, r.model, &prompt, NULL, out, 8, &need), EXL2_OK);
        CHECK_INT(need, 2 + ends);
        exl2_job_size size;
        exl2_job_desc d = { .model = r.model, .prompt = prompt, .embed.pool = EXL2_EMBED_LAST, .on_event = hear };
        CHECK_INT(exl2_job_measure(r.engine, &d, &size), EXL2_OK);
        CHECK_INT(size.prompt_tokens, 2 + ends);
        rig_run(&r, &d);
        float texts[64];
        memcpy(texts, vector, sizeof texts);
        d.prompt = (exl2_prompt){ .tokens = out, .token_count = need };
        rig_run(&r, &d);
        CHECK(memcmp(texts, vector, sizeof texts) == 0);
        char longest[129];
        memset(longest, 'a', 128);
        longest[128] = 0;
        d.prompt = (exl2_prompt){ .text = longest, .flags = end };
        exl2_result got = exl2_job_measure(r.engine, &d, &size);
        CHECK_INT(got, ends ? EXL2_ERR_CONTEXT_FULL : EXL2_OK);
        CHECK_INT(size.prompt_tokens, 128 + ends);
        folder_end(&r);
    }
    folder_make(false, NULL, NULL); /* a token that does not exist */
    memory_add_text(&folder, "tokenizer.json",
                    json_text(ENDS("{'type':'RobertaProcessing','sep':['<g>',319],'cls':['<f>',301]}")));
    exl2_engine_desc e = { .backend = EXL2_BACKEND_CPU, .files = folder.c.files };
    rig r = { 0 };
    CHECK_INT(exl2_open(&e, &r.engine), EXL2_OK);
    exl2_result got = exl2_model_load(r.engine, &(exl2_model_desc){ .path = DIR_NAME }, &r.model);
    check_words(&r, got, EXL2_ERR_FORMAT, "puts token 319 after the text");
    folder_end(&r);
}

int main(void)
{
    test_pooling();
    test_malformed();
    test_headless();
    test_encoders();
    test_end();
    return check_done();
}
