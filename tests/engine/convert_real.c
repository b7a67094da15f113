/* convert_real.c: exl2_convert on real weights: the first layers of SmolLM2, with text that the whole model wrote. It
   is cancelled half way, and continues. The output has the rate that was asked for, and predicts nearly what the source
   predicts: by exl2_compare, and by the scores of the engine. */
#define _POSIX_C_SOURCE 200809L
#define EXL2_CONVERT
#include "rig.h"

#include "../../exl2_impl/8_convert/folder.h"

#include <unistd.h>

enum { LAYERS = 5, ROWS = 8, LENGTH = 256, TOKENS = 512 };

/* So few layers predict nothing sensible, but they do it surely, so their logits are as sensitive as those of a whole
   model. Measured: 0.123 on the row kept out of calibration, 0.114 on code. */
#define KL_MOST 0.16

static char root[512], source_dir[600], out_dir[600];
static rig_said said;

/* ---- the source ---- */

static void write_file(const char *name, const char *data, size_t bytes)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", source_dir, name);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(data, 1, bytes, file) == bytes);
    CHECK(file && fclose(file) == 0);
}

static char *read_model(const char *name, size_t *bytes)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", check_model(), name);
    return check_read(path, bytes);
}

/* Puts spaces in place of a member of a JSON object, from its key on, with the comma after or before it. */
static void blank_member(char *key)
{
    char *end = strchr(key, '}') + 1; /* the values are objects without objects */
    if (*end == ',') {
        end++;
    } else {
        while (*key != ',') {
            key--;
        }
    }
    memset(key, ' ', (size_t)(end - key));
}

/* Copies the model without its later layers. Their data stays in the file, but its header does not list it. */
static void make_source(void)
{
    static const char *const copied[] = { "tokenizer.json", "tokenizer_config.json" };
    size_t bytes;
    CHECK(exl2__platform_make_dir(source_dir));
    char *tensors = read_model("output.safetensors", &bytes), key[64];
    uint64_t header = exl2__load64((const uint8_t *)tensors);
    char first = tensors[8 + header];
    tensors[8 + header] = 0;
    for (uint32_t layer = LAYERS; layer < 30; layer++) {
        snprintf(key, sizeof key, "\"model.layers.%u.", layer);
        for (char *found = tensors + 8; (found = strstr(found, key)) != NULL;) {
            blank_member(found);
        }
    }
    tensors[8 + header] = first;
    write_file("output.safetensors", tensors, bytes);
    free(tensors);
    char *config = read_model("config.json", &bytes), *layers = strstr(config, "\"num_hidden_layers\": 30");
    if (CHECK(layers != NULL)) {
        memcpy(layers, "\"num_hidden_layers\":  5", 23);
    }
    write_file("config.json", config, bytes);
    free(config);
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++) {
        char *data = read_model(copied[i], &bytes);
        write_file(copied[i], data, bytes);
        free(data);
    }
}

/* ---- the conversion ---- */

typedef struct watch {
    exl2_convert_plan plan;
    bool cancels;      /* half way through the matrices */
    uint32_t measured; /* calls while layers were measured */
} watch;

static bool on_progress(void *user, const char *stage, float done)
{
    watch *w = (watch *)user;
    w->measured += strcmp(stage, "measure") == 0;
    return !(w->cancels && strcmp(stage, "quantize") == 0 && done > 0.5f);
}

static void on_plan(void *user, const exl2_convert_plan *plan)
{
    ((watch *)user)->plan = *plan;
}

static void convert(exl2_convert_info *info)
{
    const char *files[1];
    watch w = { .cancels = true };
    exl2_error error = { 0 };
    exl2_convert_desc d = { 0 };
    d.backend = EXL2_BACKEND_CPU;
    files[0] = check_shared("fixtures/convert/self.json");
    d.source_dir = source_dir;
    d.out_dir = out_dir;
    d.bpw = 4;
    d.calibration_files = files;
    d.calibration_file_count = 1;
    d.rows = ROWS;
    d.length = LENGTH;
    d.progress = on_progress;
    d.on_plan = on_plan;
    d.user = &w;
    d.error = &error;
    d.info = info;
    CHECK_INT(exl2_convert(&d), EXL2_ERR_CANCELLED);
    CHECK(w.measured > 0);
    w = (watch){ 0 };
    if (!CHECK_INT(exl2_convert(&d), EXL2_OK)) {
        printf("  %s\n", error.text);
    }
    CHECK_INT(w.measured, 0); /* that was in the work folder */
    printf("%.3f bits per weight, head %.3f; held out: nll %.4f, before %.4f, KL %.4f\n", (double)info->bpw,
           (double)info->head_bpw, info->nll_after, info->nll_before, info->kl);
    CHECK(info->bpw <= 4 && info->bpw > 3.99f && info->head_bpw > 6 && info->head_bpw < 6.6f);
    CHECK(info->matrices == LAYERS * 7 + 1 && info->rows == ROWS && info->length == LENGTH);
    CHECK(info->bytes <= w.plan.bytes && (double)info->bytes > 0.9 * (double)w.plan.bytes);
    CHECK(strstr(info->warning, "quantized already") != NULL);
    CHECK(info->kl > 0 && info->kl < KL_MOST);
}

/* ---- what it predicts ---- */

/* By the engine. */
static double score(const char *dir, const exl2_token *ids)
{
    rig r = rig_load(dir);
    memset(&said, 0, sizeof said);
    exl2_job_desc d = rig_job(&r, ids, TOKENS, 1, &said);
    d.score_prompt = true;
    d.prefill_only = true;
    rig_run(&r, &d);
    double nll = 0;
    CHECK_INT(said.scored, TOKENS - 1);
    for (uint32_t i = 0; i < said.scored; i++) {
        nll -= (double)said.scores[i];
    }
    rig_close(&r);
    return nll / said.scored;
}

static void check_predictions(void)
{
    static exl2_token ids[RIG_TOKENS];
    rig_golden_file g;
    exl2_error error = { 0 };
    exl2_compare_info info = { 0 };
    exl2_compare_desc d = { 0 };
    rig_golden_open(check_shared("fixtures/convert/texts/golden.json"), &g);
    uint32_t text = rig_golden_at(&g, 0, "texts", 3); /* code */
    CHECK(rig_golden_ids(&g, exl2__json_get(&g.json, text, "ids"), ids, RIG_TOKENS) >= TOKENS);
    rig_golden_close(&g);
    d.a_dir = source_dir;
    d.b_dir = out_dir;
    d.tokens = ids;
    d.token_count = TOKENS;
    d.error = &error;
    if (!CHECK_INT(exl2_compare(&d, &info), EXL2_OK)) {
        printf("  %s\n", error.text);
    }
    double before = score(source_dir, ids), after = score(out_dir, ids);
    printf("code: KL %.4f, nll %.4f, before %.4f; by the engine %.4f, before %.4f\n", info.kl, info.nll_b, info.nll_a,
           after, before);
    CHECK(info.kl > 0 && info.kl < KL_MOST);
    CHECK(fabs(after - info.nll_b) < 2e-3 && fabs(before - info.nll_a) < 2e-3);
}

int main(void)
{
    exl2_convert_info info = { 0 };
    check_model();
    check_shared("fixtures/convert/self.json");
    const char *temporary = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/exl2-convert-real-XXXXXX", temporary ? temporary : "/tmp");
    if (!CHECK(mkdtemp(root) != NULL)) {
        return check_done();
    }
    snprintf(source_dir, sizeof source_dir, "%s/source", root);
    snprintf(out_dir, sizeof out_dir, "%s/out", root);
    make_source();
    convert(&info);
    check_predictions();
    CHECK(exl2__folder_remove(source_dir) && exl2__folder_remove(out_dir) && exl2__platform_remove_dir(root));
    return check_done();
}
