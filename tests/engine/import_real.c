/* import_real.c: the published GGUF of SmolLM2-135M-Instruct (Q4_1), imported with the defaults: the same tokenizer and
   chat template as the published model, and a negative log-likelihood close to that of the GGUF itself (2.974). The
   file: $EXL2_TEST_GGUF, or build/models in the source tree, where demo/run.sh leaves it. */
#define EXL2_CONVERT
#include "rig.h"

#include "private/folder.h"
#include "../text_rows.h"

#define GGUF_NAME "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define NLL_MOST 2.99
#define PROMPT 5u /* index in the golden: its longest text */

static rig_said said;

static const char *find_gguf(void)
{
    const char *path = getenv("EXL2_TEST_GGUF");
    FILE *file = fopen(path && *path ? path : GGUF_NAME, "rb");
    if (!file) {
        check_skip("no GGUF (demo/run.sh leaves it in build/models; or set EXL2_TEST_GGUF)");
    }
    fclose(file);
    return path && *path ? path : GGUF_NAME;
}

static bool on_progress(void *user, float done, const char *what)
{
    float *last = (float *)user;
    CHECK(done >= *last && done <= 1 && what && *what);
    *last = done;
    return true;
}

/* The expected size: 8 bits per weight, plus scales and the f16 embedding. */
static void check_size(const rig *r)
{
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r->engine, r->model, &info), EXL2_OK);
    CHECK(info.layers == 30 && info.hidden == 576 && info.vocab == 49152 && info.heads == 9 && info.kv_heads == 3);
    CHECK(info.has_tokenizer && info.has_chat_template);
    CHECK(info.bos == 1 && info.eos == 2);
    printf("%.3f bits per weight\n", (double)info.bits_per_weight);
    CHECK(info.bits_per_weight >= 8 && info.bits_per_weight < 10);
}

static void check_nll(const rig *r)
{
    static exl2_token ids[RIG_TOKENS];
    rig_golden_file g;
    rig_golden_open(check_shared("fixtures/smollm2-4.0bpw/golden.json"), &g);
    uint32_t prompt = rig_golden_at(&g, 0, "prompts", PROMPT);
    uint32_t count = rig_golden_ids(&g, exl2__json_get(&g.json, prompt, "ids"), ids, RIG_TOKENS);
    rig_golden_close(&g);
    exl2_job_desc d = rig_job(r, ids, count, 1, &said);
    d.score_prompt = true;
    d.prefill_only = true;
    rig_run(r, &d);
    double nll = 0;
    for (uint32_t p = 0; p < said.scored; p++) {
        nll -= (double)said.scores[p] / said.scored;
    }
    printf("nll %.5f over %u tokens\n", nll, said.scored);
    CHECK_INT(said.scored, count - 1);
    CHECK(nll > 2.9 && nll <= NLL_MOST);
}

static void check_row(void *user, const exl2__json *j, int line)
{
    static exl2_token ids[16384];
    const rig *r = (const rig *)user;
    size_t bytes, count, need = 0;
    char *text = rows_text(j, exl2__json_get(j, 0, "text"), &bytes);
    exl2_token *wanted = rows_ids(j, exl2__json_get(j, 0, "ids"), &count);
    uint32_t flags = rows_flag(j, "special") ? 0 : EXL2_TEXT_PLAIN;
    flags |= rows_flag(j, "add_bos") ? 0u : EXL2_TEXT_NO_BOS;
    exl2_result result = exl2_tokenize(r->engine, r->model, text, bytes, flags, ids, EXL2__COUNT(ids), &need);
    if (!CHECK(result == EXL2_OK && need == count && memcmp(ids, wanted, count * sizeof *ids) == 0)) {
        printf("  line %d of encode.jsonl\n", line);
    }
    free(text);
    free(wanted);
}

/* Allocated chat_template of a tokenizer_config.json. */
static char *read_template(const char *folder, size_t *bytes)
{
    char path[1024];
    rig_golden_file g;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    rig_golden_open(path, &g);
    char *text = rows_text(&g.json, exl2__json_get(&g.json, 0, "chat_template"), bytes);
    rig_golden_close(&g);
    return text;
}

static void check_tokenizer(const rig *r, const char *folder)
{
    exl2__ctx c = rows_ctx();
    size_t bytes, wanted_bytes;
    CHECK(rows_each(&c, EXL2_GOLDEN_DIR "/tokenizer/encode.jsonl", check_row, (void *)(uintptr_t)r) > 600);
    char *text = read_template(folder, &bytes), *wanted = read_template(EXL2_GOLDEN_DIR "/smollm2", &wanted_bytes);
    CHECK(bytes > 300 && bytes == wanted_bytes && memcmp(text, wanted, bytes) == 0);
    free(text);
    free(wanted);
}

int main(void)
{
    char folder[512];
    float last = 0;
    exl2_error error = { EXL2_OK, 0, { 0 } };
    exl2_import_desc d = { 0 };
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/exl2-import-real-%llx", temporary && *temporary ? temporary : "/tmp",
             (unsigned long long)exl2__platform_entropy(folder));
    d.gguf_path = find_gguf();
    check_shared("fixtures/smollm2-4.0bpw/golden.json"); /* skips before the long part begins */
    d.out_dir = folder;
    d.progress = on_progress;
    d.user = &last;
    d.error = &error;
    if (!CHECK_INT(exl2_import_gguf(&d), EXL2_OK)) {
        printf("  %s\n", error.text);
        return check_done();
    }
    CHECK(last == 1);
    rig r = rig_load(folder);
    check_size(&r);
    check_nll(&r);
    check_tokenizer(&r, folder);
    rig_close(&r);
    CHECK(exl2__folder_remove(folder));
    return check_done();
}
