/* host_sample.h: samples, on the CPU, a row whose logits were fetched: with guidance, for a callback that reads the
   logits, or with a sampler that the backend does not have; in parts, so that a step can end between two of them.
   Asks the callback that may replace a sampled token.
   takes: the fetched logits of a row; with guidance, of both rows of the pair; a sampled token.
   gives: exl2__host_sample_row, exl2__host_replace. */
#ifndef EXL2__HOST_SAMPLE_H
#define EXL2__HOST_SAMPLE_H

#include "../2_graph/forward.h"
#include "../3_backend/sample/cpu_sample_run.h"
#include "jobs.h"
#include "masks.h"

/* NONE: no token was sampled: it failed, or the logits of the other row of a pair have not arrived yet. MORE: the row
   goes on in the next step. */
typedef enum exl2__host_outcome { EXL2__HOST_NONE, EXL2__HOST_MORE, EXL2__HOST_SAMPLED } exl2__host_outcome;

/* Begins to sample a row: its logits are fetched, combined with those of the other row, and given to on_logits. */
EXL2__PRIVATE exl2__host_outcome exl2__host_begin_row(exl2_engine *e, exl2__model *m, exl2__job *job, uint32_t row)
{
    exl2__job *positive = exl2__objects_positive(job);
    exl2__job_guidance *g = &positive->guidance;
    uint32_t at = m->forward.logit0 + row, vocab = m->plan.shape.vocab;
    const exl2__span *last = exl2__spans_last(&m->spans);
    float *logits;
    exl2_result r = last->backend->logits(last->device, row, &logits);
    g->row = job == positive ? at : g->row;
    if (r >= 0 && g->negative && !g->has_logits) {
        memcpy(g->logits, logits, vocab * sizeof *logits);
        g->has_logits = true;
        return EXL2__HOST_NONE;
    }
    exl2__logit_row wanted = m->forward.step.logits[g->row];
    if (g->negative) {
        wanted.guidance = g->scale;
        wanted.negative = job == positive ? g->logits : logits;
        logits = job == positive ? logits : g->logits;
        g->has_logits = false;
    }
    if (r >= 0 && positive->on_logits) {
        exl2_job handle = { positive->id };
        exl2__gate_call(e);
        positive->on_logits(positive->user, handle, logits, vocab);
        exl2__gate_called(e);
    }
    m->sampling.parts = 0;
    r = r < 0 ? r : last->backend->sample_row(last->device, logits, &wanted, &m->forward.results[row],
                                              &m->sampling.run);
    e->stats.cpu_sampled += exl2__backend_is_async(last->backend);
    if (r < 0) {
        m->sampling.run = NULL;
        exl2__jobs_fail(e, positive, r);
        return EXL2__HOST_NONE;
    }
    return EXL2__HOST_MORE;
}

/* Nanoseconds of a part. A speed that is not known yet is a guess. */
static inline double exl2__host_part_ns(const exl2__model *m)
{
    const exl2__sample_run *run = m->sampling.run;
    double known = (double)m->sampling.ns_per_cost[exl2__sample_kind(run)];
    return (double)exl2__sample_part_cost(run) * (known > 0 ? known : (double)EXL2__FORWARD_FIRST_NS_PER_COST);
}

static inline void exl2__host_learn(exl2__model *m, uint32_t kind, uint64_t cost, uint64_t ns)
{
    float *known = &m->sampling.ns_per_cost[kind], now = (float)((double)ns / (double)cost);
    *known = *known > 0 ? *known + exl2__mul_float(0.25f, now - *known) : now;
}

/* Number of parts, 1 or more, that a unit may have; 0: none fits before the deadline. */
static inline uint32_t exl2__host_unit_parts(const exl2__model *m, const exl2__budget *budget, uint64_t now_ns,
                                             bool shared, bool at_least_one)
{
    uint32_t left = exl2__sample_parts(m->sampling.run) - m->sampling.parts;
    double part_ns = exl2__host_part_ns(m), most_ns = shared ? (double)EXL2__FORWARD_SHARED_NS : 1e18;
    if (budget->deadline_ns) {
        uint64_t left_ns = now_ns < budget->deadline_ns ? budget->deadline_ns - now_ns : 0;
        if ((double)left_ns < part_ns && !at_least_one) {
            return 0;
        }
        most_ns = (double)left_ns < most_ns ? (double)left_ns : most_ns;
    }
    if (budget->unit_ns) {
        bool known = m->sampling.ns_per_cost[exl2__sample_kind(m->sampling.run)] > 0;
        double unit_ns = (double)budget->unit_ns / (known ? 1 : EXL2__FORWARD_PROBE);
        most_ns = unit_ns < most_ns ? unit_ns : most_ns;
    }
    double fit = most_ns / part_ns;
    return fit >= (double)left ? left : exl2__max32((uint32_t)fit, 1);
}

/* Runs units of the row until it has its token (true), the deadline comes, or another thread waits for the engine. The
   first unit runs in any case with *at_least_one. *spent_ns: grows by the time of units that were measured. */
EXL2__PRIVATE bool exl2__host_run_row(exl2_engine *e, exl2__model *m, const exl2__budget *budget, bool *at_least_one,
                                      uint64_t *spent_ns)
{
    const uint32_t *wanted = e->worker.stepping ? &e->worker.wanted : NULL;
    exl2__sample_run *run = m->sampling.run;
    bool timed = budget->deadline_ns || wanted;
    uint64_t now_ns = timed ? exl2__platform_ns() : 0;
    while (run->pass != EXL2__SAMPLE_ENDED) {
        uint32_t begin = m->sampling.parts, kind = exl2__sample_kind(run);
        uint32_t parts = exl2__host_unit_parts(m, budget, now_ns, wanted != NULL, *at_least_one);
        if (parts == 0) {
            return false;
        }
        uint64_t cost = exl2__sample_part_cost(run) * parts;
        uint64_t predicted_ns = (uint64_t)(exl2__host_part_ns(m) * (double)parts);
        exl2__zone_begin(&e->ctx, exl2__phase_names[EXL2__PHASE_sample]);
        exl2__sample_part(run, begin, begin + parts);
        m->sampling.parts += parts;
        if (m->sampling.parts == exl2__sample_parts(run)) {
            m->sampling.parts = 0;
            exl2__sample_next(run);
        }
        exl2__zone_end(&e->ctx);
        *at_least_one = false;
        if (timed) {
            uint64_t begin_ns = now_ns;
            now_ns = exl2__platform_ns();
            *spent_ns += now_ns - begin_ns;
            exl2__zone_unit(&e->ctx, exl2__phase_names[EXL2__PHASE_sample], predicted_ns, now_ns - begin_ns);
            exl2__host_learn(m, kind, cost, now_ns - begin_ns);
            if (wanted && exl2__atomic_load(wanted) && run->pass != EXL2__SAMPLE_ENDED) {
                return false;
            }
        }
    }
    return true;
}

/* Samples a row that the backend does not sample, or goes on with it. */
EXL2__PRIVATE exl2__host_outcome exl2__host_sample_row(exl2_engine *e, exl2__model *m, exl2__job *job, uint32_t row,
                                                       const exl2__budget *budget, bool *at_least_one,
                                                       uint64_t *spent_ns)
{
    bool late = budget->deadline_ns && !*at_least_one && exl2__platform_ns() >= budget->deadline_ns;
    if (!m->sampling.run && (late || exl2__host_begin_row(e, m, job, row) == EXL2__HOST_NONE)) {
        return late ? EXL2__HOST_MORE : EXL2__HOST_NONE;
    }
    if (!exl2__host_run_row(e, m, budget, at_least_one, spent_ns)) {
        return EXL2__HOST_MORE;
    }
    m->sampling.run = NULL;
    return EXL2__HOST_SAMPLED;
}

/* Lets the job's on_token replace the sampled token. The callback may end the job. A token that the callback gives has
   the log-probability 0, as a forced one has, because its logit may be in the memory of a GPU. */
EXL2__PRIVATE void exl2__host_replace(exl2_engine *e, const exl2__model *m, exl2__job *job, exl2__logit_result *result)
{
    const exl2__sequence *s = &job->sequence;
    uint32_t vocab = m->plan.shape.vocab, position = s->table->tokens;
    exl2_job handle = { job->id };
    exl2__gate_call(e);
    exl2_token token = job->on_token(job->user, handle, position, result->token);
    exl2__gate_called(e);
    if (token == result->token || job->ending) {
        return;
    }
    char text[192] = "";
    if (token < 0 || (uint32_t)token >= vocab) {
        exl2__format(text, sizeof text, "on_token gave token %d for position %u, but the vocabulary has %u tokens",
                     token, position, vocab);
    } else if (s->mask && !(s->mask[token / 32] >> (token & 31) & 1)) {
        exl2__format(text, sizeof text, "on_token gave token %d for position %u, which the job's grammar, allow list "
                     "or healed token does not allow there", token, position);
    }
    if (text[0]) {
        exl2__jobs_end(job, EXL2_STOP_ERROR, EXL2_ERR_ARG, text);
        return;
    }
    result->token = token;
    result->logprob = 0;
}

#endif
