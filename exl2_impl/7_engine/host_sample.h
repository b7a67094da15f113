/* host_sample.h: samples, on the CPU, a row whose logits were fetched: with guidance, for a callback that reads the
   logits, or with a sampler that the backend does not have. Asks the callback that may replace a sampled token.
   takes: the fetched logits of a row; with guidance, of both rows of the pair; a sampled token.
   gives: exl2__host_sample_row, exl2__host_replace. */
#ifndef EXL2__HOST_SAMPLE_H
#define EXL2__HOST_SAMPLE_H

#include "../2_graph/forward.h"
#include "jobs.h"

/* Samples a row that the backend does not sample. false: it failed; or, with guidance, the logits of the other row of
   the pair have not arrived yet. */
EXL2__PRIVATE bool exl2__host_sample_row(exl2_engine *e, exl2__model *m, exl2__job *job, uint32_t row)
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
        return false;
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
    r = r < 0 ? r : last->backend->sample_row(last->device, logits, &wanted, &m->forward.results[row]);
    e->stats.cpu_sampled += exl2__backend_is_async(last->backend);
    if (r < 0) {
        exl2__jobs_fail(e, positive, r);
    }
    return r >= 0;
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
