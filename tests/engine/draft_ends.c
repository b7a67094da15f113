/* draft_ends.c: where a draft model cannot follow its job: at the end of a shorter context, and at tokens that one of
   the two models lacks, as their matrices have more rows than the tokenizer has tokens. The job goes on without it, and
   its text is the same. And a job that was paused while it waits for its draft model goes on. */
#include "text_model.h"

#include "../memory_files.h"
#include "../model_maker.h"

#define ROWS_MORE 384u /* tokens of a model whose tokenizer has TEXT_VOCAB */
#define TOKENS 120u

static text_model text;
static const char *const plan[4] = { "ab", "abc", "\xC3", "\xA9" };
static memory_files folders[2]; /* "equal" and "more" */

/* ---- two models with one tokenizer ---- */

static void *folders_open(void *user, const char *path, uint64_t *bytes)
{
    (void)user;
    return memory_open(&folders[strncmp(path, "more/", 5) == 0], path, bytes);
}

static void folders_make(memory_files *folder, uint32_t vocab)
{
    static maker m;
    static char config[2048];
    const char *rest = strstr(MAKER_CONFIG, ",\"hidden_size\"");
    size_t bytes;
    memory_make(folder);
    maker_make_vocab(&m, vocab);
    uint8_t *file = maker_file(&m, &bytes);
    memory_add(folder, "model.safetensors", file, bytes);
    snprintf(config, sizeof config, "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":%u%s",
             (unsigned)vocab, rest);
    memory_add_text(folder, "config.json", config);
    memory_add_text(folder, "tokenizer.json", text.tokenizer);
    memory_add_text(folder, "tokenizer_config.json", text.config);
    free(file);
    maker_free(&m);
}

static rig open_two(const char *name, const char *draft_name, uint32_t draft_context, exl2_model *draft)
{
    exl2_engine_desc e = { .files = { folders_open, memory_list, memory_read, memory_close, &folders[0] },
                           .max_models = 2 }; /* of two steps, one begins with the draft model */
    exl2_model_desc m = { .path = name, .context_max = 512 }, d = { .path = draft_name, .context_max = draft_context };
    rig r = rig_open(&e, &m);
    CHECK_INT(exl2_model_load(r.engine, &d, draft), EXL2_OK);
    return r;
}

/* ---- jobs ---- */

/* Sampled flat, so that any token may come; ids below `ids` in the prompt. */
static exl2_job_desc job_of(const rig *r, uint32_t seed, uint32_t ids, rig_said *said)
{
    static exl2_token prompt[30];
    static exl2_bias bias;
    for (uint32_t i = 0; i < EXL2__COUNT(prompt); i++) {
        prompt[i] = (exl2_token)((i * 13 + seed * 7) % ids);
    }
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, prompt, EXL2__COUNT(prompt), TOKENS, said);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .temperature = 3, .seed = seed };
    bias = (exl2_bias){ (exl2_token)ids - 1, 5 };
    if (seed % 3 == 0) {
        d.sampler.bias = &bias;
        d.sampler.bias_count = 1;
        d.sampler.repeat_penalty = 1.2f;
        d.sampler.penalty_range = -1;
    }
    return d;
}

/* Jobs with and without the draft model. Returns the tokens that it drafted. */
static uint32_t the_same(const rig *r, exl2_model draft, uint32_t ids)
{
    static rig_said with, without;
    uint32_t drafted = 0;
    for (uint32_t seed = 1; seed < 20; seed++) {
        exl2_job_desc d = job_of(r, seed, ids, &without);
        rig_run(r, &d);
        d = job_of(r, seed, ids, &with);
        d.draft.model = draft;
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        for (uint32_t i = 0; i < 5000 && !with.done_events; i++) {
            exl2_step(r->engine, NULL);
        }
        CHECK(with.done_events == 1 && with.result == EXL2_OK && with.stop == without.stop);
        CHECK(with.count == without.count && memcmp(with.ids, without.ids, with.count * sizeof *with.ids) == 0);
        drafted += with.stats.drafted;
    }
    return drafted;
}

/* A job is paused anywhere, also while it waits for its drafter, and goes on. IDLE is not said before its end. */
static void goes_on_after_a_pause(const rig *r, exl2_model draft)
{
    static const exl2_step_desc shortest = { .cpu_us = 1 };
    static rig_said said;
    uint32_t early = 0;
    for (uint32_t steps = 1; steps < 400; steps++) {
        exl2_job_desc d = job_of(r, 1, TEXT_VOCAB, &said);
        exl2_job job;
        d.draft.model = draft;
        CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
        for (uint32_t i = 0; i < steps; i++) {
            exl2_step(r->engine, &shortest);
        }
        if (!said.done_events) {
            CHECK_INT(exl2_job_pause(r->engine, job, true), EXL2_OK);
            rig_drain(r, 0);
            CHECK_INT(said.done_events, 0);
            CHECK_INT(exl2_job_pause(r->engine, job, false), EXL2_OK);
            rig_drain(r, 0);
            early += !said.done_events;
        }
        for (uint32_t i = 0; i < 5000 && !said.done_events; i++) {
            exl2_step(r->engine, NULL);
        }
    }
    CHECK_INT(early, 0);
}

int main(void)
{
    exl2_model draft;
    text_find_plan(&text, EXL2__COUNT(plan));
    text_write(&text, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    folders_make(&folders[0], TEXT_VOCAB);
    folders_make(&folders[1], ROWS_MORE);
    for (uint32_t context = 16; context < 128; context += 32) { /* within the prompt, and within the text */
        rig r = open_two("equal", "equal", context, &draft);
        CHECK((the_same(&r, draft, TEXT_VOCAB) > 0) == (context > 30));
        rig_close(&r);
    }
    rig r = open_two("equal", "equal", 512, &draft);
    goes_on_after_a_pause(&r, draft);
    rig_close(&r);
    r = open_two("equal", "more", 512, &draft); /* guesses that the job's model lacks */
    CHECK(the_same(&r, draft, TEXT_VOCAB) > 0);
    rig_close(&r);
    r = open_two("more", "equal", 512, &draft); /* tokens that the draft model lacks */
    the_same(&r, draft, ROWS_MORE);
    CHECK(the_same(&r, draft, TEXT_VOCAB) > 0);
    rig_close(&r);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < folders[i].count; k++) {
            free(folders[i].files[k].data);
        }
    }
    return check_done();
}
