/* adaptive.c: each token that adaptive-p samples is the one of llama.cpp's formula, in double: from the logits of
   its place, the two sums of the tokens before it, and the random number. Also after rewinds of banned strings, which
   take the sums back. Through the public API.
   takes: a golden model with a tokenizer made for it.
   gives: exit code 0 or 1. */
#include "text_model.h"

#include "private/cpu_sample.h"

#define PROMPT EXL2__COUNT(text_prompt)
#define NEW 200u
#define SEED 77u
#define END 2 /* the model's end token, which is banned */

static text_model model; /* global, because the files hook keeps a pointer to it */
static const char *const plan[4] = { "fox", " is", "ab", "abc" };
static rig_said said, other;

static struct reference {
    double target, decay, min_p;
    double sum[NEW + 1], weight[NEW + 1]; /* before each place: llama.cpp's weighted_sum and total_weight */
    float logits[TEXT_VOCAB];
    exl2_token ids[NEW], tried[64];
    uint32_t places, rewinds, tried_count, tried_at, near;
    double mean; /* sum of the probabilities of the chosen tokens */
} reference;

static void keep(void *user, exl2_job job, float *logits, uint32_t vocab)
{
    (void)user;
    (void)job;
    CHECK_INT(vocab, TEXT_VOCAB);
    memcpy(reference.logits, logits, sizeof reference.logits);
    reference.logits[END] = -1e30f;
}

/* p[TEXT_VOCAB]: what min-p leaves, without the tokens that led to banned strings here. */
static void distribution(uint32_t at, double *p)
{
    struct reference *r = &reference;
    double top = -1e300, all = 0;
    for (uint32_t i = 0; i < r->tried_count && r->tried_at == at; i++) {
        r->logits[r->tried[i]] = -1e30f;
    }
    for (uint32_t i = 0; i < TEXT_VOCAB; i++) {
        top = fmax(top, (double)r->logits[i]);
    }
    for (uint32_t i = 0; i < TEXT_VOCAB; i++) {
        p[i] = exp((double)r->logits[i] - top);
        p[i] = p[i] < r->min_p ? 0 : p[i];
        all += p[i];
    }
    for (uint32_t i = 0; i < TEXT_VOCAB; i++) {
        p[i] /= all;
    }
}

/* -1: the random number is too near to the edge of two tokens. */
static exl2_token choose(uint32_t at, const double *p)
{
    const struct reference *r = &reference;
    double weights[TEXT_VOCAB], total = 0, running = 0;
    double wanted = fmin(fmax(2 * r->target - r->sum[at] / r->weight[at], 0), 1);
    for (uint32_t i = 0; i < TEXT_VOCAB; i++) {
        double d = fabs(p[i] - wanted) / 0.3;
        weights[i] = p[i] > 0 ? exp(5 - 10 * d * d / (1 + d)) : 0;
        total += weights[i];
    }
    double point = (double)exl2__sample_random(SEED, PROMPT + at, r->rewinds) * 0x1p-64 * total;
    exl2_token found = -1;
    bool near = false;
    for (uint32_t i = 0; i < TEXT_VOCAB; i++) {
        running += weights[i];
        near |= weights[i] > 0 && fabs(running - point) < 1e-5 * total;
        found = found < 0 && running > point ? (exl2_token)i : found;
    }
    return near ? -1 : found;
}

static exl2_token compare(void *user, exl2_job job, uint32_t position, exl2_token token)
{
    struct reference *r = &reference;
    uint32_t at = position - (uint32_t)PROMPT;
    double p[TEXT_VOCAB];
    (void)user;
    (void)job;
    if (!CHECK(position >= PROMPT && at <= r->places && at < NEW && token >= 0 && token < TEXT_VOCAB)) {
        return token;
    }
    if (at < r->places) { /* a banned string began here */
        r->tried_count = r->tried_at == at ? r->tried_count : 0;
        r->tried_at = at;
        r->tried[r->tried_count++ % 64] = r->ids[at];
        r->rewinds++;
    }
    distribution(at, p);
    exl2_token wanted = choose(at, p);
    CHECK(wanted < 0 || wanted == token);
    CHECK(p[token] > 0);
    r->near += wanted < 0;
    r->ids[at] = token;
    r->sum[at + 1] = r->decay * r->sum[at] + p[token];
    r->weight[at + 1] = r->decay * r->weight[at] + 1;
    r->mean += p[token];
    r->places = at + 1;
    return token;
}

/* bans: some letters of the text that *said has. */
static double run(const rig *r, float target, float decay, float min_p, bool bans)
{
    static char letters[8][2];
    static const exl2_token end = END;
    const char *ban[8];
    uint32_t ban_count = 0;
    for (uint32_t i = 0; bans && i < said.bytes && ban_count < 8; i++) {
        if (said.text[i] > ' ' && said.text[i] < 127) {
            letters[ban_count][0] = said.text[i];
            ban[ban_count] = letters[ban_count];
            ban_count++;
        }
    }
    double used = decay == EXL2_OFF ? 0 : decay == 0 ? (double)0.9f : (double)decay;
    exl2_job_desc d = rig_job(r, text_prompt, PROMPT, NEW, &said);
    reference = (struct reference){ .target = (double)target, .decay = used, .min_p = (double)min_p };
    reference.sum[0] = reference.target / (1 - used);
    reference.weight[0] = 1 / (1 - used);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .seed = SEED, .min_p = min_p,
                                     .adaptive_target = target, .adaptive_decay = decay };
    d.sampler.ban = &end;
    d.sampler.ban_count = 1;
    d.ban_strings = ban;
    d.ban_string_count = ban_count;
    d.on_logits = keep;
    d.on_token = compare;
    CHECK_INT(text_generate(r, &d, &said), EXL2_OK);
    CHECK(said.count == NEW && reference.near < 10 && said.stats.bans_shown == 0);
    CHECK_INT(said.stats.bans_avoided, reference.rewinds);
    CHECK(!bans || reference.rewinds > 5);
    d.on_logits = NULL;
    d.on_token = NULL;
    CHECK_INT(text_generate(r, &d, &other), EXL2_OK);
    CHECK(other.count == said.count && memcmp(said.ids, other.ids, said.count * sizeof *said.ids) == 0);
    return reference.mean / (said.count + reference.rewinds);
}

int main(void)
{
    text_find_plan(&model, EXL2__COUNT(plan));
    text_write(&model, plan, EXL2__COUNT(plan), "{'eos_token':'</s>'}");
    rig r = text_load(&model);
    double few = run(&r, 0.2f, 0, 0.02f, false), many = run(&r, 0.6f, 0.5f, 0.01f, false);
    double least = run(&r, 1e-6f, 0.99f, 0.05f, false), most = run(&r, 1, EXL2_OFF, 0.05f, false);
    CHECK(few + 0.1 < many && fabs(many - 0.6) < 0.1 && least + 0.1 < most);
    run(&r, 0.3f, 0, 0.01f, true);
    run(&r, 0.1f, 0.7f, 0.001f, true);
    rig_close(&r);
    return check_done();
}
