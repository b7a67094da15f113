/* lora.c: the reader of adapters: every pair of the fixtures finds its matrix, with rank and factor as peft computes
   them; the fixtures' refusals.json, each with its code and words; hostile configs and names. */
#include "../memory_files.h"

#include "private/lora_match.h"
#include "private/model_config_read.h"

/* ---- an adapter in memory ---- */

typedef struct adapter {
    memory_files m;
    exl2__config config;  /* of the base */
    exl2__lora_files files;
    exl2__lora_matcher matcher;
} adapter;

static const char *fixture(const char *relative)
{
    static char path[1024];
    snprintf(path, sizeof path, "fixtures/%s", relative);
    return check_shared(path);
}

static void read_base(adapter *a, const char *base)
{
    memory_files m;
    char name[300];
    snprintf(name, sizeof name, "%s/config.json", base);
    char *text = check_read(fixture(name), NULL);
    memory_make(&m);
    memory_add_text(&m, "config.json", text);
    CHECK_INT(exl2__config_read(&m.c, "models/x", &a->config), EXL2_OK);
    memory_free(&m);
    free(text);
}

/* Reads all numbers of a tensor, as an engine that loads it does. */
static exl2_result read_floats(adapter *a, const exl2__tensor *t)
{
    static float row[65536];
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        EXL2__TRY(exl2__tensor_floats_range(&a->m.c, &a->files.tensors, t, i * t->dims[1], (uint32_t)t->dims[1], row));
    }
    return EXL2_OK;
}

/* Reads and matches the adapter, in slices or at once. */
static exl2_result read_adapter(adapter *a, bool sliced)
{
    exl2__lora_files_reader r;
    exl2__work work;
    exl2_result result;
    exl2__lora_files_read_begin(&r, &a->m.c, "adapters/x", a->config.arch.renames, false, &a->files);
    do {
        work = sliced ? exl2__work_slice() : exl2__work_all();
        result = exl2__lora_files_read_slice(&r, &work);
    } while (result == EXL2_PENDING);
    exl2__lora_files_read_end(&r);
    a->matcher = (exl2__lora_matcher){ 0 };
    while (result == EXL2_OK || result == EXL2_PENDING) {
        work = sliced ? exl2__work_slice() : exl2__work_all();
        result = exl2__lora_match_slice(&a->m.c, &a->files, &a->config, &a->matcher, &work);
        if (result != EXL2_PENDING) {
            break;
        }
    }
    for (uint32_t i = 0; i < a->files.count && result == EXL2_OK; i++) {
        result = read_floats(a, a->files.pairs[i].a);
        result = result < 0 ? result : read_floats(a, a->files.pairs[i].b);
    }
    return result;
}

static void close_adapter(adapter *a)
{
    exl2__lora_files_close(&a->m.c, &a->files);
    memory_free(&a->m);
}

/* ---- the fixtures ---- */

static void add_fixture(adapter *a, const char *folder)
{
    char name[300];
    size_t bytes;
    memory_make(&a->m);
    snprintf(name, sizeof name, "lora/%s/adapter_config.json", folder);
    char *config = check_read(fixture(name), NULL);
    memory_add_text(&a->m, "adapter_config.json", config);
    snprintf(name, sizeof name, "lora/%s/" EXL2__LORA_FILE, folder);
    char *tensors = check_read(fixture(name), &bytes);
    memory_add(&a->m, EXL2__LORA_FILE, tensors, bytes);
    free(config);
    free(tensors);
}

static void check_pair(const adapter *a, const char *name, uint32_t rank, double factor)
{
    const exl2__lora_pair *pair = exl2__lora_files_find(&a->files, name);
    if (CHECK(pair != NULL)) {
        CHECK_INT(pair->rank, rank);
        CHECK(fabs(pair->factor - factor) < 1e-12);
    }
}

static void check_fixtures(void)
{
    static const struct { const char *folder, *base; uint32_t pairs; } all[] = {
        { "plain/a", "arch/llama", 14 }, { "two-rslora/a", "arch/llama", 4 }, { "two-rslora/b", "arch/llama", 6 },
        { "patterns/a", "arch/qwen3", 7 }, { "fused-phi3/a", "arch/phi3-short", 8 },
        { "gemma3-f32/a", "arch/gemma3-text", 16 }, { "experts/a", "arch/mixtral", 40 },
        { "experts/b", "arch/mixtral", 6 }, { "bias-base/a", "arch/starcoder2", 8 },
        { "exl2-mixed/a", "exl2/exl2-mixed", 14 }, { "exl2-mixed/b", "exl2/exl2-mixed", 4 },
        { "gptq-act-order/a", "exl2/gptq-act-order", 14 },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        adapter a = { 0 };
        read_base(&a, all[i].base);
        add_fixture(&a, all[i].folder);
        if (!CHECK_INT(read_adapter(&a, i % 2 == 0), EXL2_OK)) {
            printf("  %s: %s\n", all[i].folder, a.m.c.error.text);
        }
        CHECK_INT(a.matcher.matrices, all[i].pairs);
        CHECK_TEXT(a.files.warning, "");
        if (i == 1) {
            check_pair(&a, "model.layers.1.self_attn.v_proj", 4, 4);
        } else if (i == 3) {
            check_pair(&a, "model.layers.1.self_attn.q_proj", 12, 0.5);
            check_pair(&a, "model.layers.1.mlp.down_proj", 2, 4);
            check_pair(&a, "model.layers.1.mlp.up_proj", 4, 5);
            check_pair(&a, "model.layers.1.mlp.gate_proj", 4, 2);
        }
        close_adapter(&a);
    }
}

/* Parts of a fused matrix: which rows of B each has. */
static void check_fused(void)
{
    adapter a = { 0 };
    exl2__unit u;
    exl2__lora_part parts[3];
    read_base(&a, "arch/phi3-short");
    add_fixture(&a, "fused-phi3/a");
    CHECK_INT(read_adapter(&a, false), EXL2_OK);
    exl2__unit_make(&a.config, exl2__unit_first_of(&a.config, 1), &u);
    CHECK_INT(exl2__lora_unit(&a.m.c, &a.files, &u, parts), EXL2_OK);
    CHECK(parts[0].pair && parts[0].pair == parts[1].pair && parts[0].pair == parts[2].pair);
    CHECK(!parts[0].shares && parts[1].shares && parts[2].shares);
    CHECK_INT(exl2__matrix_view_at(&parts[2].view, 1), u.out[0] + u.out[1] + 1);
    close_adapter(&a);
}

/* ---- refusals.json ---- */

typedef struct json_file { char *text; exl2__json j; } json_file;

static uint32_t get(const json_file *f, uint32_t object, const char *key)
{
    return exl2__json_get(&f->j, object, key);
}

static const char *text_of(const json_file *f, uint32_t token, char *out)
{
    out[exl2__json_text(&f->j, token, out, 299)] = 0;
    return out;
}

/* The value as the file writes it. */
static void raw_of(const json_file *f, uint32_t token, char *out)
{
    const exl2__json_token *t = &f->j.tokens[token];
    uint32_t quote = t->kind == EXL2__JSON_STRING, begin = t->begin - quote, end = t->end + quote;
    snprintf(out, 300, "%.*s", (int)(end - begin), f->text + begin);
}

/* Writes text[capacity] anew with "key": value in the place of the old member, or as a new one. */
static void set_member(char *text, const char *key, const char *value)
{
    char copy[8192], quoted[100];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    char *at = strstr(text, quoted);
    if (!at) {
        snprintf(copy, sizeof copy, "{\"%s\": %s, %s", key, value, strchr(text, '{') + 1);
    } else {
        char *end = at;
        for (int depth = 0; depth > 0 || (*end != ',' && *end != '}'); end++) {
            depth += *end == '[' || *end == '{';
            depth -= *end == ']' || *end == '}';
        }
        snprintf(copy, sizeof copy, "%.*s%s %s%s", (int)(at - text), text, quoted, value, end);
    }
    snprintf(text, sizeof copy, "%s", copy);
}

/* The adapter's tensors with another header text. */
static void set_header(memory_file *f, const char *header)
{
    uint64_t old = exl2__load64(f->data), bytes = strlen(header);
    uint8_t *data = (uint8_t *)malloc(f->bytes - old + bytes);
    exl2__store64(data, bytes);
    memcpy(data + 8, header, bytes);
    memcpy(data + 8 + bytes, f->data + 8 + old, f->bytes - 8 - old);
    free(f->data);
    f->data = data;
    f->bytes = f->there = f->bytes - old + bytes;
}

static char *get_header(const memory_file *f)
{
    uint64_t bytes = exl2__load64(f->data);
    char *text = (char *)calloc(1, bytes + 1);
    memcpy(text, f->data + 8, bytes);
    return text;
}

static void drop_tensor(memory_file *f, const char *name)
{
    char *text = get_header(f), *at = strstr(text, name), *end = strchr(at, '}') + 1;
    end += *end == ',';
    memmove(at - 1, end, strlen(end) + 1);
    set_header(f, text);
    free(text);
}

static void rename_tensors(memory_file *f, const char *from, const char *to)
{
    char *text = get_header(f), *copy = (char *)calloc(2, strlen(text) + 1), *out = copy;
    for (const char *p = text; *p;) {
        bool here = strncmp(p, from, strlen(from)) == 0;
        out += sprintf(out, "%.*s", here ? (int)strlen(to) : 1, here ? to : p);
        p += here ? strlen(from) : 1;
    }
    set_header(f, copy);
    free(text);
    free(copy);
}

/* Makes the first value of an F16 tensor infinite. */
static void poke_tensor(memory_file *f, const char *name)
{
    char *text = get_header(f), *at = strstr(strstr(text, name), "data_offsets");
    unsigned long begin = strtoul(strchr(at, '[') + 1, NULL, 10);
    const uint8_t infinite[2] = { 0x00, 0x7C };
    memcpy(f->data + 8 + strlen(text) + begin, infinite, 2);
    free(text);
}

static void remove_file(memory_files *m, const char *name)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (strcmp(m->files[i].name, name) == 0) {
            free(m->files[i].data);
            m->files[i] = m->files[--m->count];
            return;
        }
    }
}

static memory_file *file_of(memory_files *m, const char *name)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (strcmp(m->files[i].name, name) == 0) {
            return &m->files[i];
        }
    }
    return NULL;
}

/* The text of adapter_config.json, to text[8192]. */
static void copy_config(adapter *a, char *text)
{
    const memory_file *f = file_of(&a->m, "adapter_config.json");
    snprintf(text, 8192, "%.*s", (int)f->bytes, (const char *)f->data);
}

static void change(adapter *a, const json_file *f, uint32_t one)
{
    char key[300], value[300], *config = NULL;
    const exl2__json *j = &f->j;
    memory_file *tensors = file_of(&a->m, EXL2__LORA_FILE);
    uint32_t kinds[2] = { get(f, one, "config"), get(f, one, "config_text") }, list, at;
    config = (char *)calloc(1, 8192);
    copy_config(a, config);
    for (uint32_t i = 0; i < 2; i++) {
        for (at = kinds[i] ? exl2__json_first(j, kinds[i]) : 0; at; at = exl2__json_next(j, kinds[i], at)) {
            i == 0 ? raw_of(f, at + 1, value) : (void)text_of(f, at + 1, value);
            set_member(config, text_of(f, at, key), value);
        }
    }
    remove_file(&a->m, "adapter_config.json");
    memory_add_text(&a->m, "adapter_config.json", config);
    free(config);
    tensors = file_of(&a->m, EXL2__LORA_FILE);
    list = get(f, one, "drop");
    for (at = list ? exl2__json_first(j, list) : 0; at; at = exl2__json_next(j, list, at)) {
        drop_tensor(tensors, text_of(f, at, key));
    }
    list = get(f, one, "rename");
    for (at = list ? exl2__json_first(j, list) : 0; at; at = exl2__json_next(j, list, at)) {
        rename_tensors(tensors, text_of(f, at + 1, key), text_of(f, at + 2, value));
    }
    if ((list = get(f, one, "poke")) != 0) {
        poke_tensor(tensors, text_of(f, list + 1, key));
    }
    if ((list = get(f, one, "truncate")) != 0) {
        tensors->bytes = tensors->there = 1000;
    }
    list = get(f, one, "remove");
    for (at = list ? exl2__json_first(j, list) : 0; at; at = exl2__json_next(j, list, at)) {
        remove_file(&a->m, text_of(f, at, key));
    }
    list = get(f, one, "add");
    for (at = list ? exl2__json_first(j, list) : 0; at; at = exl2__json_next(j, list, at)) {
        memory_add_text(&a->m, text_of(f, at, key), text_of(f, at + 1, value));
    }
}

static exl2_result code_of(const char *name)
{
    return strcmp(name, "EXL2_ERR_UNSUPPORTED") == 0 ? EXL2_ERR_UNSUPPORTED
         : strcmp(name, "EXL2_ERR_FORMAT") == 0 ? EXL2_ERR_FORMAT : EXL2_ERR_IO;
}

static void check_refusals(void)
{
    json_file f;
    size_t bytes;
    exl2__ctx c = { .allocator = exl2__platform_allocator() };
    f.text = check_read(fixture("lora/refusals.json"), &bytes);
    CHECK_INT(exl2__json_open(&c, "refusals.json", f.text, bytes, &f.j), EXL2_OK);
    uint32_t cases = 0;
    for (uint32_t one = exl2__json_first(&f.j, 0); one; one = exl2__json_next(&f.j, 0, one), cases++) {
        adapter a = { 0 };
        char name[300], word[300];
        read_base(&a, get(&f, one, "base") ? text_of(&f, get(&f, one, "base"), name) : "arch/llama");
        add_fixture(&a, "plain/a");
        change(&a, &f, one);
        exl2_result wanted = code_of(text_of(&f, get(&f, one, "code"), name));
        text_of(&f, get(&f, one, "name"), name);
        bool right = CHECK_INT(read_adapter(&a, cases % 2 == 0), wanted);
        uint32_t words = get(&f, one, "words");
        for (uint32_t at = exl2__json_first(&f.j, words); at; at = exl2__json_next(&f.j, words, at)) {
            right = CHECK(strstr(a.m.c.error.text, text_of(&f, at, word)) != NULL) && right;
        }
        printf("%s%s: %s\n", right ? "" : "WRONG ", name, a.m.c.error.text);
        close_adapter(&a);
    }
    CHECK_INT(cases, 20);
    exl2__json_close(&c, &f.j);
    free(f.text);
}

/* ---- more that is refused, and what is not ---- */

static void check_config(const char *key, const char *value, exl2_result code, const char *word, const char *other)
{
    adapter a = { 0 };
    char config[8192];
    read_base(&a, "arch/llama");
    add_fixture(&a, "plain/a");
    copy_config(&a, config);
    set_member(config, key, value);
    remove_file(&a.m, "adapter_config.json");
    memory_add_text(&a.m, "adapter_config.json", config);
    CHECK_INT(read_adapter(&a, false), code);
    if (code < 0) {
        check_error(&a.m.c, word, other ? other : word, value);
    } else if (word) {
        CHECK(strstr(a.files.warning, word) != NULL);
    }
    close_adapter(&a);
}

static void check_configs(void)
{
    check_config("use_dora", "true", EXL2_ERR_UNSUPPORTED, "use_dora", NULL);
    check_config("rank_pattern", "{\"q_proj\": 0}", EXL2_ERR_FORMAT, "rank_pattern", "q_proj");
    check_config("rank_pattern", "{\"q_proj\": 9}", EXL2_ERR_FORMAT, "lora_A", "9");
    check_config("rank_pattern", "{\"_proj\": 9}", EXL2_OK, NULL, NULL); /* not after a dot */
    check_config("rank_pattern", "{\".*q_proj\": 8}", EXL2_ERR_UNSUPPORTED, "expression", ".*q_proj");
    check_config("rank_pattern", "[1]", EXL2_ERR_FORMAT, "rank_pattern", NULL);
    check_config("alpha_pattern", "{\"q_proj\": \"x\"}", EXL2_ERR_FORMAT, "alpha_pattern", "q_proj");
    check_config("r", "257", EXL2_ERR_FORMAT, "r=257", NULL);
    check_config("trainable_token_indices", "[3]", EXL2_ERR_UNSUPPORTED, "trainable_token_indices", NULL);
    check_config("target_modules", "[\"q_proj\", \"lm_head\"]", EXL2_OK, "lm_head", NULL);
    check_config("target_modules", "\"all-linear\"", EXL2_OK, NULL, NULL);
    check_config("fan_in_fan_out", "true", EXL2_OK, NULL, NULL);
    check_config("layer_replication", "[]", EXL2_OK, NULL, NULL);
    check_config("init_lora_weights", "\"pissa_niter_4\"", EXL2_ERR_UNSUPPORTED, "init_lora_weights", "pissa_niter_4");
    check_config("init_lora_weights", "\"olora\"", EXL2_ERR_UNSUPPORTED, "init_lora_weights", "olora");
    check_config("init_lora_weights", "\"gaussian\"", EXL2_OK, NULL, NULL);
    check_config("use_bdlora", "{\"nblocks\": 2}", EXL2_ERR_UNSUPPORTED, "use_bdlora", NULL);
    check_config("kasa_config", "{\"beta\": 1}", EXL2_ERR_UNSUPPORTED, "kasa_config", NULL);
    check_config("peft_type", "null", EXL2_ERR_FORMAT, "peft_type", NULL);
    check_config("lora_alpha", "null", EXL2_ERR_FORMAT, "lora_alpha", NULL);
}

static void check_names(const char *from, const char *to, exl2_result code, const char *word)
{
    adapter a = { 0 };
    read_base(&a, "arch/llama");
    add_fixture(&a, "plain/a");
    rename_tensors(file_of(&a.m, EXL2__LORA_FILE), from, to);
    CHECK_INT(read_adapter(&a, false), code);
    check_error(&a.m.c, word, word, to);
    close_adapter(&a);
}

static void check_all_names(void)
{
    check_names("base_model.model.model.layers.0.mlp.up_proj", "base_model.model.lm_head", EXL2_ERR_UNSUPPORTED,
                "lm_head");
    check_names("layers.0.mlp.up_proj.lora_A.weight", "embed_tokens.lora_embedding_A", EXL2_ERR_UNSUPPORTED,
                "lora_embedding_A");
    check_names("layers.0.mlp.up_proj.lora_A.weight", "layers.0.mlp.up_proj.lora_A.bias", EXL2_ERR_UNSUPPORTED,
                "lora_bias");
    check_names("layers.0.mlp.up_proj.lora_A.weight", "layers.0.mlp.up_proj.lora_magnitude_vector", EXL2_ERR_FORMAT,
                "no lora_A");
    check_names("base_model.model.model.layers.0.mlp.up_proj", "base_model.model.vision_tower.0.up_proj",
                EXL2_ERR_UNSUPPORTED, "vision");
    check_names("base_model.model.model.layers.0.mlp.up_proj", "base_model.model.model.connector.modality_projection.p",
                EXL2_ERR_UNSUPPORTED, "vision");
    check_names("layers.0.mlp.up_proj", "layers.0.mlp.swiglu.w12", EXL2_ERR_FORMAT, "swiglu");
    check_names("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight",
                "base_model.model.lm_head.base_layer.weight", EXL2_ERR_UNSUPPORTED, "head");
    check_names("model.layers.0.mlp.up_proj.lora_A.weight", "model.embed_tokens.weight", EXL2_ERR_UNSUPPORTED,
                "embedding");
}

/* A head is named as one, whatever its family calls it. */
static void check_head(void)
{
    adapter a = { 0 };
    read_base(&a, "arch/internlm2");
    add_fixture(&a, "plain/a");
    rename_tensors(file_of(&a.m, EXL2__LORA_FILE), "base_model.model.model.layers.0.mlp.up_proj",
                   "base_model.model.output");
    CHECK_INT(read_adapter(&a, false), EXL2_ERR_UNSUPPORTED);
    check_error(&a.m.c, "'base_model.model.output.lora_A.weight'", "head", "output");
    close_adapter(&a);
}

int main(void)
{
    check_shared("fixtures/lora/refusals.json");
    check_fixtures();
    check_fused();
    check_refusals();
    check_configs();
    check_all_names();
    check_head();
    return check_done();
}
