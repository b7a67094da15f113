/* masks.c: when masks are computed: after the layers and the head, before sampling, within a step's budget. What they
   allow does not depend on when they are computed. */
#include "text_model.h"

#include "private/step.h"

static text_model model;
static rig_said said, again;
static char zones[1 << 16]; /* one letter for each zone: h head, m mask, d sampling */
static size_t zone_count;

static const char *const plan[8] = { "ab", "abc", "\"", "x", "yz", "-", "aaaa", "bb" };

static void zone_begin(void *user, const char *name)
{
    static const char *const names[][2] = { { "exl2 head", "h" }, { "exl2 mask", "m" }, { "exl2 sample", "d" } };
    (void)user;
    for (size_t i = 0; i < EXL2__COUNT(names); i++) {
        if (strcmp(name, names[i][0]) == 0 && zone_count + 1 < sizeof zones) {
            zones[zone_count++] = names[i][1][0];
        }
    }
}

static void zone_end(void *user)
{
    (void)user;
}

static exl2_grammar make(const rig *r, const char *regex)
{
    exl2_grammar g = { 0 };
    exl2_grammar_desc d = { .model = r->model, .kind = EXL2_GRAMMAR_REGEX, .source = regex };
    CHECK_INT(exl2_grammar_make(r->engine, &d, &g), EXL2_OK);
    return g;
}

static exl2_job_desc job_of(const rig *r, exl2_grammar g, rig_said *to)
{
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), 60, to);
    memset(to, 0, sizeof *to);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .temperature = 1.5f, .seed = 5 };
    d.grammar = g;
    return d;
}

/* One mask per sampled token, each between the head and sampling. */
static void order(const rig *r)
{
    exl2_job_desc d = job_of(r, make(r, "[a-y ]{30,40}z"), &said);
    zone_count = 0;
    rig_run(r, &d);
    zones[zone_count] = 0;
    uint32_t masks = 0;
    char before = 0;
    for (size_t i = 0; i < zone_count; i++) {
        if (zones[i] == 'm') {
            masks++;
            CHECK(before == 'h' && zones[i + 1] == 'd');
        }
        before = zones[i];
    }
    CHECK(said.count > 5);
    CHECK_INT(masks, said.count - said.stats.forced_tokens);
    exl2_grammar_close(r->engine, d.grammar);
}

/* Steps until the pass waits for its masks. */
static exl2__model *step_to_masks(const rig *r, const exl2_job_desc *d, exl2_job *job)
{
    exl2__model *m = exl2__objects_model(r->engine, r->model);
    exl2__budget none = { 0 };
    exl2__queue_budget queue_budget = { 0 };
    exl2__progress progress = { false, false };
    exl2__forward_status status = EXL2__FORWARD_MORE;
    CHECK_INT(exl2_job_start(r->engine, d, job), EXL2_OK);
    exl2__step_update_jobs(r->engine, m, &progress);
    CHECK_INT(exl2__step_begin(r->engine, m, &(exl2__budget){ 0 }), EXL2_OK);
    CHECK_INT(exl2__step_forward(r->engine, m, &none, &queue_budget, false, &status), EXL2_OK);
    CHECK_INT(status, EXL2__FORWARD_MASKS);
    return m;
}

/* A mask that does not fit the budget is left for the next step, which begins with it. A mask that costs nothing always
   fits. */
static void budget(const rig *r)
{
    exl2_job_desc d = job_of(r, make(r, "[a-z ]{30,40}"), &said);
    exl2_job job;
    rig_run(r, &d);
    exl2_grammar_close(r->engine, d.grammar);
    d.grammar = make(r, "[a-z ]{30,40}"); /* a new grammar, which has no cached mask */
    d.user = &again;
    memset(&again, 0, sizeof again);
    exl2__model *m = step_to_masks(r, &d, &job);
    exl2__job *j = exl2__objects_job(r->engine, job);
    exl2__budget gone = { .deadline_ns = 1 };
    exl2__queue_budget queue_budget = { 0 };
    exl2__forward_status status = EXL2__FORWARD_DONE;
    m->mask_ns = 4;
    CHECK(j->sequence.mask_due && exl2__grammars_cost(r->engine, j) > 0);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(exl2__step_forward(r->engine, m, &gone, &queue_budget, true, &status), EXL2_OK);
        CHECK(status == EXL2__FORWARD_MORE && j->sequence.mask_due && m->forward.masks == EXL2__MASKS_WANTED);
    }
    exl2__budget soon = { .deadline_ns = exl2__platform_ns() + 3600000000000u, .unit_ns = 3600000000000u };
    CHECK(exl2__masks_fill_due(r->engine, m, &soon, false) && !j->sequence.mask_due);
    j->sequence.mask_row = 0;
    j->sequence.mask_due = true; /* requested again, but cached now */
    CHECK_INT(exl2__grammars_cost(r->engine, j), 0);
    m->mask_ns = 1e9f;
    soon.deadline_ns = exl2__platform_ns() + 1000000000u;
    CHECK(exl2__masks_fill_due(r->engine, m, &soon, false) && !j->sequence.mask_due);
    rig_drain(r, 1); /* every mask is estimated to cost seconds, so each step computes one */
    CHECK_TEXT(again.text, said.text);
    CHECK(again.done_events == 1 && again.bytes >= 30);
    m->mask_ns = 4;
    exl2_grammar_close(r->engine, d.grammar);
}

int main(void)
{
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), "");
    exl2_engine_desc d = text_engine(&model);
    d.zones = (exl2_zones){ .begin = zone_begin, .end = zone_end };
    exl2_model_desc m = text_folder();
    rig r = rig_open(&d, &m);
    order(&r);
    budget(&r);
    rig_close(&r);
    return check_done();
}
