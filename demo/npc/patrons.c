/* patrons.c: see patrons.h.
   takes: the engine's events.
   gives: what patrons.h declares. */
#include "patrons.h"

#include "../common/clock.h"

#include <stdio.h>
#include <string.h>

#define MURMUR_TOKENS 40u /* of a murmur, at most; the grammar completes it within them */
#define MURMUR_PRIORITY (-2) /* below that of tavern.c's jobs, which are 0 and -1 */

/* One sentence of at most 94 letters. */
static const char sentence[] = "[A-Z][ ',0-9A-Za-z-]{10,92}[.!?]";

static const char *const topics[] = { "the storm", "the ship", "the dark lighthouse", "the price of fish", "the ale" };
#define TOPICS (sizeof topics / sizeof topics[0])

static exl2_flow on_event(void *user, const exl2_event *event)
{
    patron *one = user;
    patrons *p = one->all;
    if (event->kind == EXL2_EVENT_TEXT) {
        size_t room = sizeof one->text - 1 - one->bytes, more = event->bytes < room ? event->bytes : room;
        memcpy(one->text + one->bytes, event->text, more);
        one->bytes += more;
        one->text[one->bytes] = 0;
        p->tokens += event->token_count;
    }
    if (event->kind == EXL2_EVENT_DONE) {
        one->job.id = 0;
        if (event->stop == EXL2_STOP_ERROR) {
            snprintf(p->tavern->error, sizeof p->tavern->error, "%s", event->error);
        } else if (event->stop == EXL2_STOP_GRAMMAR) {
            p->murmurs++;
            memcpy(p->heard, one->text, sizeof p->heard);
        }
    }
    return EXL2_CONTINUE;
}

/* The temperature does not follow the tavern's: at 0 all patrons would say the same. */
static bool begin(patrons *p, patron *one)
{
    tavern *t = p->tavern;
    char text[96];
    exl2_job_desc d = { .session = one->session, .grammar = p->grammar, .max_tokens = MURMUR_TOKENS,
                        .priority = MURMUR_PRIORITY, .on_event = on_event, .user = one };
    p->begun++;
    snprintf(text, sizeof text, "\n\nA guest at another table, about %s: ", topics[p->begun % TOPICS]);
    d.prompt = (exl2_prompt){ .text = text, .flags = EXL2_TEXT_PLAIN | EXL2_TEXT_NO_BOS };
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .seed = t->seed + p->begun };
    one->bytes = 0;
    one->text[0] = 0;
    return (exl2_session_rewind(t->engine, one->session, p->world_tokens) >= 0
            && exl2_job_start(t->engine, &d, &one->job) >= 0) || tavern_failed(t);
}

bool patrons_open(patrons *p, tavern *t, uint32_t count)
{
    exl2_session_info world;
    exl2_engine_stats before, after;
    *p = (patrons){ .tavern = t, .count = count };
    if (count == 0) {
        return true;
    }
    if (exl2_session_get(t->engine, t->world, &world) < 0) {
        return tavern_failed(t);
    }
    p->world_tokens = world.tokens;
    exl2_grammar_desc d = { .model = world.model, .kind = EXL2_GRAMMAR_REGEX, .source = sentence };
    exl2_stats(t->engine, &before);
    bool good = exl2_grammar_make(t->engine, &d, &p->grammar) >= 0;
    exl2_stats(t->engine, &after);
    t->grammar_allocations += after.allocations - before.allocations;
    for (uint32_t i = 0; good && i < count; i++) {
        p->list[i].all = p;
        good = exl2_session_fork(t->engine, t->world, &p->list[i].session) >= 0;
    }
    return good || tavern_failed(t);
}

static void pause_all(patrons *p, bool silent)
{
    for (uint32_t i = 0; i < p->count && p->silent != silent; i++) {
        if (p->list[i].job.id) {
            exl2_job_pause(p->tavern->engine, p->list[i].job, silent);
        }
    }
    p->silent = silent;
}

void patrons_hush(patrons *p)
{
    pause_all(p, true);
}

/* One job starts in a frame, because each start costs time before the frame's step. */
bool patrons_murmur(patrons *p)
{
    uint32_t next = 0;
    pause_all(p, false);
    while (next < p->count && p->list[next].job.id) {
        next++;
    }
    if (next == p->count) {
        return true;
    }
    uint64_t start = clock_ns();
    bool good = begin(p, &p->list[next]);
    p->tavern->extra_ns += clock_ns() - start;
    return good;
}
