/* patrons.c: the people of the demo npc who murmur at other tables: what they say is one sentence in few pages; when
   they are hushed, no word follows after the pass that was running, and the next job runs as if nobody else were there;
   later they go on in mid-sentence. */
#define _GNU_SOURCE /* mkdtemp */
#include "text_model.h"

#define kernel_folder demo_kernel_folder /* a type there, a function of rig.h here */
#include "../../demo/common/clock.c"
#include "../../demo/npc/patrons.c"
#undef kernel_folder

#define PATRONS 5u
#define WORLD 70u

static text_model model; /* global, because the files hook keeps a pointer to it */

static const char *const plan[1] = { "an" };

/* Of tavern.c, of which no more is needed here. */
bool tavern_failed(tavern *t)
{
    exl2_error error;
    exl2_last_error(t->engine, &error);
    snprintf(t->error, sizeof t->error, "%s", error.text);
    return false;
}

static void frames(const rig *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        exl2_step(r->engine, &(exl2_step_desc){ .cpu_us = 200 });
    }
}

/* Whole passes, so that the machine's speed changes nothing, and then a part of one more. */
static void murmur(const rig *r, patrons *p, uint32_t passes)
{
    for (uint32_t i = 0; i <= passes; i++) {
        CHECK(patrons_murmur(p));
        exl2_step(r->engine, i < passes ? NULL : &(exl2_step_desc){ .cpu_us = 1 });
    }
}

static bool is_sentence(const char *text)
{
    size_t bytes = strlen(text);
    return bytes >= 12 && bytes < PATRONS_BYTES && text[0] >= 'A' && text[0] <= 'Z' && strchr(".!?", text[bytes - 1]);
}

static void within_their_pages(const rig *r, const patrons *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        exl2_session_info info;
        CHECK_INT(exl2_session_get(r->engine, p->list[i].session, &info), EXL2_OK);
        CHECK(info.pages <= WORLD / 64 + PATRONS_CACHE_TOKENS / 64 && strlen(p->list[i].text) == p->list[i].bytes);
    }
}

/* The player's job, and the tokens that patrons said after its start. */
static void speak(const rig *r, patrons *p, rig_said *said)
{
    exl2_job_desc d = rig_job(r, text_prompt, EXL2__COUNT(text_prompt), 40, said);
    memset(said, 0, sizeof *said);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .seed = 9 };
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    patrons_hush(p);
    uint64_t before = p->tokens;
    while (!said->done_events) {
        frames(r, 1);
        within_their_pages(r, p);
    }
    CHECK(p->tokens <= before + PATRONS); /* one each: of the pass that was running */
    before = p->tokens;
    frames(r, 30);
    CHECK_INT(p->tokens, before);
}

int main(void)
{
    static rig_said alone, said;
    static patrons none, some;
    exl2_token world[WORLD];
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    rig r = text_load(&model);
    tavern t = { .engine = r.engine, .seed = 3 };
    for (uint32_t i = 0; i < WORLD; i++) {
        world[i] = (exl2_token)(i * 7 % 200 + 1);
    }
    CHECK_INT(exl2_session_open(r.engine, r.model, &t.world), EXL2_OK);
    exl2_job_desc d = { .session = t.world, .prompt = { .tokens = world, .token_count = WORLD }, .prefill_only = true };
    rig_run(&r, &d);
    CHECK(patrons_open(&none, &t, 0) && patrons_murmur(&none));
    speak(&r, &none, &alone);
    CHECK(patrons_open(&some, &t, PATRONS));
    for (uint32_t i = 0; i < 12; i++) {
        char begun[PATRONS_BYTES];
        murmur(&r, &some, 60 + 7 * i); /* hushed at different places */
        snprintf(begun, sizeof begun, "%s", some.list[0].text);
        uint32_t murmurs = some.murmurs;
        speak(&r, &some, &said);
        CHECK(said.count == alone.count && memcmp(said.ids, alone.ids, said.count * sizeof *said.ids) == 0);
        CHECK(said.stats.prompt_tokens == alone.stats.prompt_tokens && said.stop == alone.stop);
        CHECK(strncmp(some.list[0].text, begun, strlen(begun)) == 0 || some.murmurs > murmurs);
    }
    CHECK(some.murmurs > PATRONS && some.begun >= some.murmurs && is_sentence(some.heard));
    printf("%u murmurs, %u tokens; the newest: %s\n", some.murmurs, (unsigned)some.tokens, some.heard);
    CHECK_TEXT(t.error, "");
    t.world.id = 77; /* an engine that fails: the message is in the tavern */
    CHECK(!patrons_open(&none, &t, 1) && strstr(t.error, "session"));
    rig_close(&r);
    return check_done();
}
