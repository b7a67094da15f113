/* host_sample.h: samples, on the CPU, a row whose logits were fetched: with guidance, for a callback that reads the
   logits, or with a sampler that the backend does not have.
   takes: the fetched logits of a row; with guidance, of both rows of the pair.
   gives: exl2__host_sample_row. */
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

#endif
