/* convert_real.c: exl2_convert on real weights: SmolLM2, all of it, with a little of the text that it wrote. It is
   cancelled half way, and continues. The output has the rate that was asked for, and predicts nearly what the source
   predicts: by exl2_compare, and by the scores of the engine. */
#define _POSIX_C_SOURCE 200809L
#define EXL2_CONVERT
#include "rig.h"

#include "../../demo/common/pool.h"
#include "private/folder.h"

#include <unistd.h>

enum { MATRICES = 30 * 7 + 1, ROWS = 8, LENGTH = 256, TOKENS = 512 };

/* Measured on the row that is kept out of calibration: 0.0431; on code, of which calibration has none: 0.2210. */
#define KL_HELD 0.065
#define KL_CODE 0.25

static char root[512], out_dir[600];
static pool *threads;
static rig_said said;

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
    d.source_dir = check_model();
    d.parallel = pool_hook(threads);
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
    for (uint32_t i = 0; i < EXL2_CONVERT_STAGES; i++) {
        printf("stage %u: %.1f s\n", i, info->stage_seconds[i]);
    }
    printf("%.3f bits per weight, head %.3f; held out: nll %.4f, before %.4f, KL %.4f\n", (double)info->bpw,
           (double)info->head_bpw, info->nll_after, info->nll_before, info->kl);
    CHECK(info->bpw <= 4 && info->bpw > 3.99f && info->head_bpw > 6 && info->head_bpw < 6.6f);
    CHECK(info->matrices == MATRICES && info->rows == ROWS && info->length == LENGTH);
    CHECK(info->bytes <= w.plan.bytes && (double)info->bytes > 0.9 * (double)w.plan.bytes);
    CHECK(strstr(info->warning, "quantized already") != NULL);
    CHECK(info->kl > 0 && info->kl < KL_HELD);
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
    d.a_dir = check_model();
    d.b_dir = out_dir;
    d.tokens = ids;
    d.token_count = TOKENS;
    d.error = &error;
    if (!CHECK_INT(exl2_compare(&d, &info), EXL2_OK)) {
        printf("  %s\n", error.text);
    }
    double before = score(check_model(), ids), after = score(out_dir, ids);
    printf("code: KL %.4f, nll %.4f, before %.4f; by the engine %.4f, before %.4f\n", info.kl, info.nll_b, info.nll_a,
           after, before);
    CHECK(info.kl > 0 && info.kl < KL_CODE);
    CHECK(fabs(after - info.nll_b) < 2e-3 && fabs(before - info.nll_a) < 2e-3);
}

int main(void)
{
    exl2_convert_info info = { 0 };
    check_model();
    check_shared("fixtures/convert/self.json");
    const char *temporary = check_env("TMPDIR");
    snprintf(root, sizeof root, "%s/exl2-convert-real-XXXXXX", temporary ? temporary : "/tmp");
    if (!CHECK(mkdtemp(root) != NULL)) {
        return check_done();
    }
    snprintf(out_dir, sizeof out_dir, "%s/out", root);
    threads = pool_open(0);
    convert(&info);
    check_predictions();
    pool_close(threads);
    CHECK(exl2__folder_remove(out_dir) && exl2__platform_remove_dir(root));
    return check_done();
}
