/* convert_lora.c: adapters that a conversion merges, DoRA included: the folders of 16 bits have the goldens' logits of
   each set, and so has one with 8 bits per weight. Another adapter or scale is another conversion; what cannot be
   merged is refused by name.
   takes: the shared fixtures lora and arch.
   gives: exit code 0, 1, or 77 without the fixtures.
   owns:  a folder that it removes. */
#define _GNU_SOURCE /* mkdtemp */
#include "rig.h"
#include "private/convert_lora.h"

#include "../adapter_maker.h"
#include "../model_maker.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKENS 64
#define VALUES 256 /* of an embedding */
#define PATH 1024

static char root[PATH];

static void shell(const char *command)
{
    CHECK_INT(system(command), 0);
}

/* Removes a folder that the test made. */
static void remove_folder(const char *path)
{
    char command[PATH + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    shell(command);
}

static void fixture(const char *name, char out[PATH])
{
    const char *data = check_env("EXL2_TEST_DATA");
    snprintf(out, PATH, "%s/fixtures/%s", data ? data : "../shared", name);
}

/* ---- goldens ---- */

static double worst;       /* error of a logsumexp */
static uint32_t decided, missed; /* positions with a clear winner; those where another token won */

static void check_sequence(const rig *r, const rig_golden_file *g, uint32_t set, uint32_t sequence)
{
    static rig_said said;
    static double sums[TOKENS], ids[8 * TOKENS], logits[8 * TOKENS];
    exl2_token tokens[TOKENS];
    uint32_t count = rig_golden_ids(g, rig_golden_at(g, 0, "tokens", sequence), tokens, TOKENS);
    uint32_t width = rig_golden_numbers(g, rig_golden_at(g, set, "top_ids", sequence), ids, 8 * TOKENS) / count;
    rig_golden_numbers(g, rig_golden_at(g, set, "top_logits", sequence), logits, 8 * TOKENS);
    rig_golden_numbers(g, rig_golden_at(g, set, "logsumexp", sequence), sums, TOKENS);
    memset(&said, 0, sizeof said);
    exl2_job_desc d = rig_job(r, tokens, count, 0, &said);
    d.prefill_only = d.score_prompt = true;
    d.alts_per_token = 1;
    rig_run(r, &d);
    CHECK_INT(said.scored, count - 1);
    for (uint32_t p = 0; p + 1 < count; p++) {
        worst = fmax(worst, fabs((double)said.logsumexp[p] - sums[p]));
        if (logits[p * width] - logits[p * width + 1] > 0.3) {
            decided++;
            missed += said.alts[p][0].token != (exl2_token)ids[p * width];
        }
    }
}

static void check_folder(const char *path, const rig_golden_file *g, uint32_t set, const char *name, double bound)
{
    double context = 0;
    exl2__json_f64(&g->json, exl2__json_get(&g->json, 0, "context"), &context);
    exl2_model_desc m = { .path = path, .context_max = (uint32_t)context };
    rig r = rig_open(NULL, &m);
    worst = 0;
    decided = missed = 0;
    check_sequence(&r, g, set, 0);
    check_sequence(&r, g, set, 1);
    printf("%s: logsumexp within %.2g, %u of %u clear positions differ\n", name, worst, missed, decided);
    CHECK(worst < bound && missed == 0 && decided > 10);
    rig_close(&r);
}

/* ---- embeddings ---- */

static exl2_flow keep_vector(void *user, const exl2_event *event)
{
    if (event->kind == EXL2_EVENT_EMBEDDING) {
        memcpy(user, event->values, (event->value_count < VALUES ? event->value_count : VALUES) * sizeof(float));
    }
    return EXL2_CONTINUE;
}

/* A vector by an adapter of the job is that of the model with the adapter merged, and not that of the base alone. */
static void check_vector(const char *source, const char *merged, const char *adapter)
{
    static float vectors[3][VALUES];
    static const exl2_token ids[] = { 5, 100, 7, 30, 200, 9, 12, 64 };
    double same = 0, other = 0;
    memset(vectors, 0, sizeof vectors);
    for (uint32_t i = 0; i < 3; i++) { /* with the adapter, merged, the base */
        exl2_model_desc m = { .path = i == 1 ? merged : source, .lora_max = 1, .lora_rank_max = 64 };
        rig r = rig_open(NULL, &m);
        exl2_lora_use use = { .scale = 0 };
        exl2_lora_desc l = { .model = r.model, .path = adapter };
        if (i == 0 && !CHECK_INT(exl2_lora_load(r.engine, &l, &use.lora), EXL2_OK)) {
            exl2_error error;
            exl2_last_error(r.engine, &error);
            printf("  %s\n", error.text);
        }
        exl2_job_desc d = { .model = r.model, .prompt = { .tokens = ids, .token_count = 8 }, .loras = &use,
                            .lora_count = i == 0, .embed.pool = EXL2_EMBED_MEAN, .on_event = keep_vector,
                            .user = vectors[i] };
        rig_run(&r, &d);
        rig_close(&r);
    }
    for (uint32_t k = 0; k < VALUES; k++) {
        same += (double)vectors[0][k] * (double)vectors[1][k];
        other += (double)vectors[0][k] * (double)vectors[2][k];
    }
    printf("cosine of an embedding with the adapter: %.6f merged, %.4f without\n", same, other);
    CHECK(same > 0.9995 && other < 0.99);
}

/* ---- conversions ---- */

/* Reads the adapters of a set. Returns their number. */
static uint32_t read_set(const rig_golden_file *g, uint32_t set, const char *folder, exl2_convert_lora *loras,
                         char paths[4][PATH])
{
    uint32_t list = exl2__json_get(&g->json, set, "adapters"), count = 0;
    for (uint32_t a = exl2__json_first(&g->json, list); a; a = exl2__json_next(&g->json, list, a)) {
        char name[64] = "";
        double scale = 0;
        exl2__json_text(&g->json, exl2__json_get(&g->json, a, "folder"), name, sizeof name - 1);
        exl2__json_f64(&g->json, exl2__json_get(&g->json, a, "scale"), &scale);
        snprintf(paths[count], PATH, "%s/%s", folder, name);
        loras[count] = (exl2_convert_lora){ paths[count], scale < 0 || scale > 0 ? (float)scale : (float)EXL2_OFF };
        count++;
    }
    return count;
}

static exl2_result convert(exl2_convert_desc d, const char *words)
{
    exl2_error error = { EXL2_OK, 0, "" };
    d.error = &error;
    d.backend = EXL2_BACKEND_CPU;
    exl2_result r = exl2_convert(&d);
    if (!CHECK(r < 0 ? words && strstr(error.text, words) : !words)) {
        printf("  '%s', expected '%s'\n", error.text, words ? words : "success");
    }
    return r;
}

static void test_case(const char *name, bool rounds)
{
    char folder[PATH], base[64] = "", source[PATH], out[PATH + 16], relative[128], file[PATH + 32], paths[4][PATH];
    rig_golden_file g;
    snprintf(relative, sizeof relative, "lora/%s", name);
    fixture(relative, folder);
    snprintf(file, sizeof file, "%s/golden.json", folder);
    rig_golden_open(file, &g);
    exl2__json_text(&g.json, exl2__json_get(&g.json, 0, "base"), base, sizeof base - 1);
    fixture(base, source);
    snprintf(out, sizeof out, "%s/out", root);
    uint32_t sets = exl2__json_get(&g.json, 0, "sets");
    for (uint32_t set = exl2__json_first(&g.json, sets); set; set = exl2__json_next(&g.json, sets, set)) {
        exl2_convert_lora loras[4];
        uint32_t count = read_set(&g, set, folder, loras, paths);
        exl2_convert_desc d = { .source_dir = source, .out_dir = out, .loras = loras, .lora_count = count, .bits = 16 };
        exl2_result made = convert(d, count ? NULL : "no adapter");
        if (made >= 0) {
            check_folder(out, &g, set, name, 0.1);
            if (strcmp(name, "plain") == 0 && count == 1 && loras[0].scale >= 1) {
                check_vector(source, out, loras[0].folder);
            }
            remove_folder(out);
        }
        d = (exl2_convert_desc){ .source_dir = source, .out_dir = out, .loras = loras, .lora_count = count, .bpw = 8,
                                 .head_bits = 8, .random_ids = true, .rows = 16, .length = 64 };
        if (rounds && convert(d, NULL) >= 0) {
            check_folder(out, &g, set, "8 bits per weight", 0.25); /* the base alone: 0.12 */
            remove_folder(out);
        }
    }
    rig_golden_close(&g);
}

/* ---- what is computed ---- */

enum { DORA_IN = 5, DORA_OUT = 7, DORA_RANK = 3 };

/* What two adapters make of a matrix [out, in], in double: the first one's factor is of the source and of its own part,
   and the second one, with DoRA if its magnitudes are not NULL, is made of the source, too. */
static void merge_reference(const exl2__convert_merge_part *parts, const double *source, double *out)
{
    memcpy(out, source, DORA_OUT * DORA_IN * sizeof *out);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t o = 0; o < DORA_OUT; o++) {
            double square = 0, delta[DORA_IN] = { 0 };
            for (uint32_t k = 0; k < DORA_IN; k++) {
                for (uint32_t r = 0; r < DORA_RANK; r++) {
                    delta[k] += parts[i].factor * (double)parts[i].b[o * DORA_RANK + r]
                              * (double)parts[i].a[r * DORA_IN + k];
                }
                square += pow(source[o * DORA_IN + k] + delta[k], 2);
            }
            for (uint32_t k = 0; k < DORA_IN; k++) {
                double sum = out[o * DORA_IN + k] + delta[k];
                out[o * DORA_IN + k] = parts[i].magnitude ? sum * (double)parts[i].magnitude[o] / sqrt(square) : sum;
            }
        }
    }
}

/* Adapters with DoRA beside others, for matrices that are stored [out, in], and for those that are [in, out]. */
static void test_dora(void)
{
    float a[2][DORA_RANK * DORA_IN], b[2][DORA_OUT * DORA_RANK], magnitude[2][DORA_OUT], row[DORA_OUT], own[DORA_OUT];
    float source_row[DORA_OUT];
    double source[DORA_OUT * DORA_IN], wanted[DORA_OUT * DORA_IN], square[2][DORA_OUT];
    static maker m = { .state = 5 };
    for (uint32_t i = 0; i < DORA_OUT * DORA_IN; i++) {
        source[i] = (double)(float)(maker_random(&m) % 2001) / 1000 - 1;
    }
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < DORA_RANK * DORA_IN; k++) {
            a[i][k] = (float)(maker_random(&m) % 2001) / 1000 - 1;
        }
        for (uint32_t k = 0; k < DORA_OUT * DORA_RANK; k++) {
            b[i][k] = (float)(maker_random(&m) % 2001) / 1000 - 1;
        }
        for (uint32_t k = 0; k < DORA_OUT; k++) {
            magnitude[i][k] = (float)(maker_random(&m) % 1000) / 500 + 1;
        }
    }
    for (uint32_t test = 0; test < 8; test++) { /* which of both has DoRA, and how the matrix is stored */
        bool transposed = test >= 4;
        uint32_t rows = transposed ? DORA_IN : DORA_OUT, columns = transposed ? DORA_OUT : DORA_IN;
        exl2__convert_merge merge = { .count = 2, .columns = columns, .transposed = transposed, .row = row, .own = own,
                                      .source = source_row };
        for (uint32_t i = 0; i < 2; i++) {
            merge.parts[i] = (exl2__convert_merge_part){ .a = a[i], .b = b[i], .square = square[i], .rank = DORA_RANK,
                                                         .magnitude = test >> i & 1 ? magnitude[i] : NULL,
                                                         .in = DORA_IN, .out = DORA_OUT, .factor = 0.75 - i };
        }
        memset(square, 0, sizeof square);
        merge_reference(merge.parts, source, wanted);
        CHECK_INT(exl2__convert_merge_passes(&merge), transposed && test > 4 ? 2 : 1);
        for (uint32_t pass = exl2__convert_merge_passes(&merge); pass > 0; pass--) {
            for (uint32_t i = 0; i < rows; i++) {
                for (uint32_t k = 0; k < columns; k++) {
                    row[k] = (float)source[transposed ? k * DORA_IN + i : i * DORA_IN + k];
                }
                if (pass == 2) {
                    exl2__convert_merge_measure(&merge, i);
                    continue;
                }
                exl2__convert_merge_row(&merge, i);
                for (uint32_t k = 0; k < columns; k++) {
                    CHECK(fabs((double)row[k] - wanted[transposed ? k * DORA_IN + i : i * DORA_IN + k]) < 1e-5);
                }
            }
        }
    }
}

/* ---- the kinds of sources ---- */

/* Makes the 16-bit folder of a source with the adapter, and reads its tensors. */
static char *merged(const char *source, const char *adapter, bool merges, size_t *bytes)
{
    char out[PATH + 16], file[PATH + 64];
    exl2_convert_lora lora = { adapter, -0.5f };
    snprintf(out, sizeof out, "%s/out", root);
    convert((exl2_convert_desc){ .source_dir = source, .out_dir = out, .loras = &lora, .lora_count = merges,
                                 .bits = 16 }, NULL);
    snprintf(file, sizeof file, "%s/model.safetensors", out);
    char *data = check_read(file, bytes);
    remove_folder(out);
    return data;
}

/* A GGUF file with an adapter is what its import is with the adapter. */
static void test_gguf(void)
{
    static const adapter_matrix matrices[] = { { "model.layers.0.self_attn.q_proj", 64, 64 },
                                               { "model.layers.1.self_attn.k_proj", 32, 64 },
                                               { "model.layers.1.mlp.down_proj", 64, 128 } };
    char adapter[PATH + 16], imported[PATH + 16], gguf[PATH];
    exl2_error error = { EXL2_OK, 0, "" };
    size_t bytes[3];
    snprintf(adapter, sizeof adapter, "%s/adapter", root);
    snprintf(imported, sizeof imported, "%s/imported", root);
    snprintf(gguf, sizeof gguf, "%s/model.gguf", rig_golden("granite"));
    CHECK_INT(mkdir(adapter, 0700), 0);
    adapter_write(adapter, matrices, 3);
    exl2_import_desc d = { .gguf_path = gguf, .out_dir = imported, .bits = 16, .no_tokenizer = true, .error = &error };
    if (!CHECK_INT(exl2_import_gguf(&d), EXL2_OK)) {
        printf("  %s\n", error.text);
    }
    char *direct = merged(gguf, adapter, true, &bytes[0]), *later = merged(imported, adapter, true, &bytes[1]);
    char *without = merged(gguf, adapter, false, &bytes[2]);
    CHECK(bytes[0] == bytes[1] && memcmp(direct, later, bytes[0]) == 0);
    CHECK(bytes[0] == bytes[2] && memcmp(direct, without, bytes[0]) != 0);
    free(direct);
    free(later);
    free(without);
}

/* ---- refusals, and the key of the work folder ---- */

/* A copy of an adapter in which each `from` of the safetensors header is `to`, which has as many bytes. */
static void write_changed(const char *adapter, const char *dir, const char *from, const char *to)
{
    static const char *const names[] = { "adapter_config.json", "adapter_model.safetensors" };
    mkdir(dir, 0700);
    for (uint32_t i = 0; i < 2; i++) {
        char path[PATH + 64];
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", adapter, names[i]);
        char *data = check_read(path, &bytes), *at = i == 1 ? data + 8 : NULL;
        while (at && (at = strstr(at, from)) != NULL) {
            memcpy(at, to, strlen(to));
            at += strlen(to);
        }
        maker_write(dir, names[i], data, bytes);
        free(data);
    }
}

/* Lengths of rows that are not as many as the matrix has outputs. */
static void test_magnitudes(void)
{
    char dora[PATH], llama[PATH], half[PATH + 16], wrong[PATH + 16], out[PATH + 16];
    fixture("lora/dora/a", dora);
    fixture("arch/llama", llama);
    snprintf(half, sizeof half, "%s/half", root);
    snprintf(wrong, sizeof wrong, "%s/wrong", root);
    snprintf(out, sizeof out, "%s/out", root);
    write_changed(dora, half, "v_proj.lora_magnitude", "x_proj.lora_magnitude");
    write_changed(half, wrong, "q_proj.lora_magnitude", "v_proj.lora_magnitude");
    write_changed(wrong, half, "x_proj.lora_magnitude", "q_proj.lora_magnitude");
    exl2_convert_lora one = { half, 0 };
    CHECK_INT(convert((exl2_convert_desc){ .source_dir = llama, .out_dir = out, .loras = &one, .lora_count = 1,
                                           .bits = 16 }, "must have one value for each of the"), EXL2_ERR_FORMAT);
    CHECK(access(out, F_OK) != 0);
}

static void test_refused(void)
{
    char dora[PATH], llama[PATH], mixed[PATH], gptq[PATH], head[PATH], qwen[PATH], work[PATH + 16], out[PATH + 16];
    fixture("lora/dora/a", dora);
    fixture("arch/llama", llama);
    fixture("exl2/exl2-mixed", mixed);
    fixture("arch/gptq-8bit", gptq);
    fixture("lora/embed-head/a", head);
    fixture("arch/qwen3", qwen);
    snprintf(out, sizeof out, "%s/out", root);
    snprintf(work, sizeof work, "%s/work", root);
    exl2_convert_lora one = { dora, 0 }, nine[9] = { { dora, 0 } };
    exl2_convert_desc good = { .source_dir = llama, .out_dir = out, .loras = &one, .lora_count = 1, .bits = 16 }, d;
#define REFUSED(change, result, words) (d = good, change, (void)CHECK_INT(convert(d, words), result))
    REFUSED(d.source_dir = mixed, EXL2_ERR_UNSUPPORTED, "EXL2, GPTQ or AWQ");
    REFUSED(d.source_dir = gptq, EXL2_ERR_UNSUPPORTED, "EXL2, GPTQ or AWQ");
    REFUSED(d.source_dir = qwen, EXL2_ERR_FORMAT, "of the source has the shape");
    REFUSED(one.folder = head, EXL2_ERR_UNSUPPORTED, "embedding");
    one.folder = dora;
    REFUSED(one.folder = llama, EXL2_ERR_IO, "adapter_config.json");
    one.folder = dora;
    REFUSED(one.scale = 101, EXL2_ERR_ARG, "loras[0].scale");
    one.scale = 0;
    REFUSED(one.folder = NULL, EXL2_ERR_ARG, "loras[0].folder is NULL");
    one.folder = dora;
    REFUSED((d.loras = nine, d.lora_count = 9), EXL2_ERR_ARG, "at most 8");
    REFUSED(d.loras = NULL, EXL2_ERR_ARG, "loras is NULL");
    REFUSED(one.scale = (float)EXL2_OFF, EXL2_ERR_ARG, "no adapter to merge");
    one.scale = 0;
    REFUSED(d.bits = 8, EXL2_ERR_ARG, "bits is 8");
    REFUSED(d.bpw = 4, EXL2_ERR_ARG, "bpw must not be set");
    REFUSED(d.rows = 4, EXL2_ERR_ARG, "rows must not be set");
    CHECK(access(out, F_OK) != 0); /* nothing was left */
    good = (exl2_convert_desc){ .source_dir = llama, .out_dir = out, .work_dir = work, .loras = &one, .lora_count = 1,
                                .bpw = 4, .random_ids = true, .rows = 4, .length = 32 };
    CHECK_INT(convert(good, NULL), EXL2_OK);
    remove_folder(out);
    CHECK_INT(convert(good, NULL), EXL2_OK); /* again from the work folder */
    remove_folder(out);
    REFUSED(one.scale = 0.5f, EXL2_ERR_STATE, "another");
    one.scale = 0;
    REFUSED(d.lora_count = 0, EXL2_ERR_STATE, "another");
    char plain[PATH];
    fixture("lora/plain/a", plain);
    REFUSED(one.folder = plain, EXL2_ERR_STATE, "another");
}

int main(void)
{
    static const char *const cases[] = { "dora", "plain", "two-rslora", "patterns", "fused-phi3", "gemma3-f32",
                                         "experts", "bias-base" };
    const char *temporary = check_env("TMPDIR");
    check_shared("fixtures/lora/dora/golden.json");
    snprintf(root, sizeof root, "%s/exl2-convert-lora-XXXXXX", temporary ? temporary : "/tmp");
    if (!CHECK(mkdtemp(root) != NULL)) {
        return check_done();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_case(cases[i], i == 0);
    }
    test_dora();
    test_gguf();
    test_magnitudes();
    test_refused();
    remove_folder(root);
    return check_done();
}
