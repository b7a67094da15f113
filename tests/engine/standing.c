/* standing.c: who may stand still, and who goes on all the same: models without weights, queues that nobody reads,
   jobs that are paused. On a tiny model, by ids. */
#include "text_model.h"

static text_model fixture;
static exl2_token prompt[200];

/* ---- text_only models in a step ---- */

/* A model that has no weights costs a step nothing, takes no share of its budget, and does not disturb the others. */
static void text_only_beside(void)
{
    static rig_said said;
    exl2_engine_desc e = text_engine(&fixture);
    e.max_models = 3;
    exl2_model_desc folder = text_folder();
    exl2_model_desc only = { .path = folder.path, .text_only = true };
    rig r = rig_open(&e, &only);
    exl2_step_desc timed = { .cpu_us = 500 };
    size_t need;
    CHECK_INT(exl2_step(r.engine, NULL), EXL2_IDLE);
    CHECK_INT(exl2_step(r.engine, &timed), EXL2_IDLE);
    exl2_model text = r.model;
    CHECK_INT(exl2_model_load(r.engine, &folder, &r.model), EXL2_OK); /* steps, too */
    exl2_job_desc d = rig_job(&r, prompt, 20, 8, &said);
    CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
    CHECK_INT(said.count, 8);
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    rig_drain(&r, 300);
    CHECK_INT(said.done_events, 2);
    exl2_token ids[8];
    CHECK_INT(exl2_tokenize(r.engine, text, "abc", 3, 0, ids, 8, &need), EXL2_OK);
    CHECK_INT(exl2_model_close(r.engine, text), EXL2_OK);
    CHECK_INT(exl2_step(r.engine, NULL), EXL2_IDLE);
    rig_close(&r);
}

int main(void)
{
    for (int i = 0; i < 200; i++) {
        prompt[i] = (exl2_token)((i * 53 + 7) % 300);
    }
    text_write(&fixture, NULL, 0, "{}");
    text_only_beside();
    return check_done();
}
