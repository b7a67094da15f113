/* experts.c: models with experts through the API: another number of experts for a token, files in which something of
   the experts is missing or of the wrong size, and a row whose router's logits are NaN among other rows. */
#include "rig.h"

#include "../memory_files.h"

#define PROMPT 24
#define NEW 8
#define BAD 317 /* a token that no prompt but one has */

static memory_files folder;

/* Loads tests/golden/models/exl2-qwen3-moe (6 experts, 2 of them active) into `folder`. */
static void folder_make(void)
{
    static const char *const names[] = { "config.json", "output.safetensors" };
    memory_make(&folder);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[1200];
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", rig_golden("exl2-qwen3-moe"), names[i]);
        char *data = check_read(path, &bytes);
        memory_add(&folder, names[i], data, bytes);
        free(data);
    }
}

/* Replaces a text that occurs in a file by another one of the same length. */
static void folder_edit(uint32_t file, const char *from, const char *to)
{
    memory_file *f = &folder.files[file];
    size_t length = strlen(from), found = 0;
    CHECK_INT(strlen(to), length);
    for (size_t i = 0; i + length <= f->bytes; i++) {
        if (memcmp(f->data + i, from, length) == 0) {
            memcpy(f->data + i, to, length);
            found++;
        }
    }
    CHECK(found > 0);
}

/* Fills the row of a token in the embedding, f16 [320, 96], with `half`. */
static void folder_embed(exl2_token token, uint16_t half)
{
    memory_file *f = &folder.files[1];
    uint64_t header = 0, begin = 0;
    memcpy(&header, f->data, 8);
    char *text = (char *)malloc((size_t)header + 1);
    memcpy(text, f->data + 8, (size_t)header);
    text[header] = 0;
    const char *entry = strstr(text, "\"model.embed_tokens.weight\"");
    const char *offsets = entry ? strstr(entry, "\"data_offsets\"") : NULL;
    CHECK(offsets && strchr(offsets, '['));
    if (offsets) {
        begin = strtoull(strchr(offsets, '[') + 1, NULL, 10);
        for (uint32_t i = 0; i < 96; i++) {
            memcpy(f->data + 8 + header + begin + ((size_t)token * 96 + i) * 2, &half, 2);
        }
    }
    free(text);
}

static exl2_engine_desc engine_of_folder(void)
{
    exl2_engine_desc d = { 0 };
    d.files = folder.c.files;
    return d;
}

static void check_load(const char *what, uint32_t experts, exl2_result code, const char *piece, const char *other)
{
    exl2_engine *e;
    exl2_model model;
    exl2_error error = { 0 };
    exl2_engine_desc d = engine_of_folder();
    exl2_model_desc m = { 0 };
    d.backend = EXL2_BACKEND_CPU;
    m.path = "models/x";
    m.experts_active = experts;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &m, &model), code);
    exl2_last_error(e, &error);
    if (!CHECK(strstr(error.text, piece) && strstr(error.text, other))) {
        printf("  %s: %s\n", what, error.text);
    }
    exl2_close(e);
    memory_free(&folder);
}

static void check_files(void)
{
    folder_make();
    folder_edit(1, "layers.1.mlp.experts.3.up_proj.", "layers.1.mlp.experts.3.up_proX.");
    check_load("an expert without up", 0, EXL2_ERR_FORMAT, "model.layers.1.mlp.experts.3.up_proj", "is in any");
    folder_make();
    folder_edit(1, "layers.0.mlp.experts.5.down_proj.q_invperm", "layers.0.mlp.experts.5.down_proj.q_invpexm");
    check_load("an expert without a permutation", 0, EXL2_ERR_FORMAT, "layers.0.mlp.experts.5.down_proj", "q_invperm");
    folder_make();
    folder_edit(0, "\"num_experts\": 6", "\"num_experts\": 7");
    check_load("more experts than the router", 0, EXL2_ERR_FORMAT, "model.layers.0.mlp.gate.weight", "[6, 96]");
    folder_make();
    folder_edit(0, "\"num_experts\": 6", "\"num_experts\": 5");
    check_load("fewer experts than the router", 0, EXL2_ERR_FORMAT, "model.layers.0.mlp.gate.weight", "[5, 96]");
    folder_make();
    folder_edit(0, "\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 32");
    check_load("wider experts", 0, EXL2_ERR_FORMAT, "model.layers.0.mlp.experts.0.down_proj", "has 64 inputs");
    folder_make();
    check_load("too many experts for a token", 7, EXL2_ERR_ARG, "experts_active is 7", "at most 6");
}

static exl2_job_desc prompt_job(const rig *r, exl2_token *ids, uint32_t seed, rig_said *said)
{
    memset(said, 0, sizeof *said);
    for (uint32_t i = 0; i < PROMPT; i++) {
        ids[i] = (exl2_token)((seed * 57 + i * i * 7 + i * 31) % 300);
    }
    return rig_job(r, ids, PROMPT, NEW, said);
}

/* 1, 2 and all 6 experts for a token: the info says so, a token reads so many, and the logits differ. */
static void check_active(void)
{
    static rig_said said[4];
    exl2_token ids[PROMPT];
    exl2_model_info info[4];
    const uint32_t active[4] = { 0, 1, 2, 6 };
    for (uint32_t i = 0; i < 4; i++) {
        exl2_model_desc m = { 0 };
        m.path = rig_golden("exl2-qwen3-moe");
        m.experts_active = active[i];
        rig r = rig_open(NULL, &m);
        CHECK_INT(exl2_model_get(r.engine, r.model, &info[i]), EXL2_OK);
        CHECK_INT(info[i].experts, 6);
        CHECK_INT(info[i].experts_active, i == 0 ? 2 : active[i]);
        exl2_job_desc d = prompt_job(&r, ids, 1, &said[i]);
        rig_run(&r, &d);
        CHECK_INT(said[i].count, NEW);
        rig_close(&r);
    }
    CHECK(memcmp(said[0].logprobs, said[2].logprobs, sizeof said[0].logprobs) == 0);
    CHECK(memcmp(said[1].logprobs, said[2].logprobs, sizeof said[0].logprobs) != 0);
    CHECK(memcmp(said[3].logprobs, said[2].logprobs, sizeof said[0].logprobs) != 0);
    uint64_t expert = info[2].pass_bytes - info[1].pass_bytes;
    CHECK(expert > 0 && info[0].pass_bytes == info[2].pass_bytes);
    CHECK_INT(info[3].pass_bytes, info[2].pass_bytes + 4 * expert);
    exl2_engine *e;
    exl2_model model;
    exl2_engine_desc d = { 0 };
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-mixed");
    m.experts_active = 1;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    CHECK_INT(exl2_model_load(e, &m, &model), EXL2_ERR_ARG);
    exl2_close(e);
}

/* A prompt whose rows have NaN in the router's logits, in one batch with three others: these give the same as alone. */
static void check_nan(void)
{
    static rig_said alone[3], said[4];
    exl2_token ids[4][PROMPT];
    folder_make();
    folder_embed(BAD, 0x7E00);
    exl2_engine_desc d = engine_of_folder();
    exl2_model_desc m = { 0 };
    m.path = "models/x";
    rig r = rig_open(&d, &m);
    for (uint32_t i = 0; i < 3; i++) {
        exl2_job_desc job = prompt_job(&r, ids[i], i, &alone[i]);
        rig_run(&r, &job);
        CHECK_INT(alone[i].count, NEW);
    }
    for (uint32_t i = 0; i < 4; i++) {
        exl2_job job;
        exl2_job_desc desc = prompt_job(&r, ids[i], i, &said[i]);
        if (i == 3) {
            ids[i][PROMPT - 2] = BAD;
        }
        CHECK_INT(exl2_job_start(r.engine, &desc, &job), EXL2_OK);
    }
    rig_drain(&r, 0);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(said[i].count, NEW);
        CHECK(memcmp(said[i].ids, alone[i].ids, sizeof said[i].ids) == 0);
        CHECK(memcmp(said[i].logprobs, alone[i].logprobs, sizeof said[i].logprobs) == 0);
    }
    printf("NaN: %s, %u tokens, stop %d\n", said[3].error, said[3].count, (int)said[3].stop);
    CHECK_INT(said[3].count, 0);
    CHECK_INT(said[3].done_events, 1);
    rig_close(&r);
    memory_free(&folder);
}

int main(void)
{
    check_files();
    check_active();
    check_nan();
    return check_done();
}
