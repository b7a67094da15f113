/* grammar_real.c: the real model at temperature 1.5 says values of schemas: Python's jsonschema judges 100 of them, or
   as many as $EXL2_GRAMMAR_VALUES says; and what a grammar takes of a token's time. */
#define _GNU_SOURCE /* mkdtemp */
#include "rig.h"

#include "../grammar_judge.h"

#include <time.h>

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"calm\",\"angry\",\"afraid\"]},\"say\":{\"type\":"
    "\"string\",\"maxLength\":100},\"act\":{\"enum\":[\"none\",\"give_key\",\"leave\"]},\"target\":{\"enum\":[\"Tom\","
    "\"Ann\"]},\"trust\":{\"type\":\"integer\",\"minimum\":-2,\"maximum\":2}},\"required\":[\"mood\",\"say\",\"act\","
    "\"target\",\"trust\"]}",
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"pattern\":"
    "\"^[A-Z][a-z]+$\"},\"price\":{\"type\":\"number\",\"minimum\":0,\"maximum\":99.5},\"when\":{\"type\":\"string\","
    "\"format\":\"date-time\"}},\"required\":[\"name\",\"price\"]},\"minItems\":1,\"maxItems\":4}",
    "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":[\"string\",\"null\"]},\"kids\":{\"type\":"
    "\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}}},\"required\":[\"v\"]}},\"$ref\":\"#/$defs/n\"}",
    "{}",
};

static rig_said said;

static void say(const rig *r, exl2_grammar g, uint64_t seed, float temperature)
{
    exl2_job_desc d = { .model = r->model, .prompt = "The answer as JSON:\n", .max_tokens = 120, .grammar = g,
                        .on_event = rig_hear, .user = &said };
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .temperature = temperature, .seed = seed };
    memset(&said, 0, sizeof said);
    rig_run(r, &d);
}

/* Processor time a token of free jobs and of jobs that write a list of strings as long as they may. */
static void compare_speed(const rig *r)
{
    exl2_grammar_desc d = { .model = r->model, .kind = EXL2_GRAMMAR_JSON_SCHEMA };
    exl2_grammar g, none = { 0 };
    double ms[2] = { 0, 0 };
    uint32_t tokens[2] = { 0, 0 };
    d.source = "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":30}";
    CHECK_INT(exl2_grammar_make(r->engine, &d, &g), EXL2_OK);
    for (uint32_t i = 0; i < 12; i++) {
        clock_t begin = clock();
        say(r, i % 2 ? g : none, i + 1, 1.0f);
        ms[i % 2] += (double)(clock() - begin) * 1e3 / CLOCKS_PER_SEC;
        tokens[i % 2] += said.count;
    }
    printf("%.2f ms a token, %.2f with a grammar (%u, %u tokens)\n", ms[0] / tokens[0], ms[1] / tokens[1], tokens[0],
           tokens[1]);
    exl2_grammar_close(r->engine, g);
}

int main(void)
{
    const char *wanted = getenv("EXL2_GRAMMAR_VALUES");
    uint32_t count = wanted ? (uint32_t)strtoul(wanted, NULL, 10) : 100;
    exl2_model_desc m = { .path = check_model(), .grammars = true };
    rig r = rig_open(NULL, &m);
    judge j = judge_open();
    for (uint32_t i = 0; i < count; i++) { /* made anew for each, as a game does */
        const char *schema = schemas[i % EXL2__COUNT(schemas)];
        exl2_grammar_desc d = { .model = r.model, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = schema };
        exl2_grammar g;
        CHECK_INT(exl2_grammar_make(r.engine, &d, &g), EXL2_OK);
        say(&r, g, i + 1, 1.5f);
        CHECK_INT(exl2_grammar_close(r.engine, g), EXL2_OK);
        CHECK(said.stop == EXL2_STOP_GRAMMAR || said.stop == EXL2_STOP_EOS || said.stop == EXL2_STOP_LENGTH);
        judge_add(&j, 's', schema, said.text, said.bytes);
    }
    judge_close(&j);
    compare_speed(&r);
    rig_close(&r);
    return check_done();
}
