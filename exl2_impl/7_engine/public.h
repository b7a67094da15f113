/* public.h: the public functions that one thread at a time may call. Each goes through the gate, where it takes turns
   with the worker; calls that wait hold the worker.
   takes: calls from the application.
   gives: the functions tagged [E] in exl2.h. */
#ifndef EXL2__PUBLIC_H
#define EXL2__PUBLIC_H

#include "api_engine.h"
#include "api_images.h"
#include "api_jobs.h"
#include "api_loras.h"
#include "api_steers.h"
#include "api_models.h"
#include "api_text.h"

#define EXL2__GATED(e, call) (exl2__gate_enter(e), exl2__gate_leave(e, call))
#define EXL2__HELD(e, call) (exl2__worker_hold(e), exl2__worker_release(e, call))

/* ---- engine ---- */

EXL2_API void exl2_close(exl2_engine *e)
{
    exl2__gate_enter(e);
    if (exl2__gate_leave(e, exl2__api_outside(e, "exl2_close")) < 0) {
        return;
    }
#ifndef EXL2_NO_THREADS
    if (e->worker.runs) {
        exl2__worker_stop(e);
    }
#endif
    exl2__api_close(e);
}

EXL2_API exl2_result exl2_device_probe(exl2_engine *e, exl2_device_speed *out)
{
    return EXL2__HELD(e, exl2__api_device_probe(e, out));
}

EXL2_API exl2_result exl2_link_probe(exl2_engine *e, uint32_t from, uint32_t to, exl2_link_speed *out)
{
    return EXL2__HELD(e, exl2__api_link_probe(e, from, to, out));
}

/* ---- stepping ---- */

EXL2_API exl2_result exl2_step(exl2_engine *e, const exl2_step_desc *d)
{
    exl2__gate_yield(e);
    exl2__gate_close(e); /* not a call that makes work */
    exl2_result r = exl2__api_step(e, d);
    exl2__gate_open(e);
    return r;
}

EXL2_API bool exl2_next_event(exl2_engine *e, exl2_event *out)
{
    exl2__gate_enter(e);
    bool any = exl2__api_next_event(e, out);
    exl2__gate_leave(e, EXL2_OK);
    return any;
}

#ifndef EXL2_NO_THREADS
EXL2_API exl2_result exl2_worker_start(exl2_engine *e)
{
    exl2__gate_enter(e);
    exl2_result r = exl2__api_outside(e, "exl2_worker_start");
    if (r >= 0 && e->worker.runs) {
        r = exl2__fail(&e->ctx, EXL2_ERR_STATE, "exl2_worker_start: the worker runs already");
    }
    exl2__gate_leave(e, r);
    return r < 0 ? r : exl2__worker_start(e);
}

EXL2_API exl2_result exl2_worker_stop(exl2_engine *e)
{
    exl2__gate_enter(e);
    exl2_result r = exl2__api_outside(e, "exl2_worker_stop");
    if (r >= 0 && !e->worker.runs) {
        r = exl2__fail(&e->ctx, EXL2_ERR_STATE, "exl2_worker_stop: no worker runs");
    }
    exl2__gate_leave(e, r);
    if (r >= 0) {
        exl2__worker_stop(e);
    }
    return r;
}
#endif

/* ---- models ---- */

EXL2_API exl2_result exl2_model_measure(exl2_engine *e, const exl2_model_desc *d, exl2_model_info *out)
{
    return EXL2__HELD(e, exl2__api_model_measure(e, d, out));
}

EXL2_API exl2_result exl2_model_open(exl2_engine *e, const exl2_model_desc *d, exl2_model *out)
{
    return EXL2__GATED(e, exl2__api_model_open(e, d, out));
}

EXL2_API exl2_result exl2_model_load(exl2_engine *e, const exl2_model_desc *d, exl2_model *out)
{
    return EXL2__HELD(e, exl2__api_model_load(e, d, out));
}

EXL2_API exl2_result exl2_model_state(exl2_engine *e, exl2_model handle)
{
    return EXL2__GATED(e, exl2__api_model_state(e, handle));
}

EXL2_API exl2_result exl2_model_get(exl2_engine *e, exl2_model handle, exl2_model_info *out)
{
    return EXL2__GATED(e, exl2__api_model_get(e, handle, out));
}

EXL2_API exl2_result exl2_model_park(exl2_engine *e, exl2_model handle, bool parked)
{
    return parked ? EXL2__HELD(e, exl2__api_model_park(e, handle, true))
                  : EXL2__GATED(e, exl2__api_model_park(e, handle, false));
}

EXL2_API exl2_result exl2_model_close(exl2_engine *e, exl2_model handle)
{
    return EXL2__HELD(e, exl2__api_model_close(e, handle));
}

/* ---- adapters ---- */

EXL2_API exl2_result exl2_lora_measure(exl2_engine *e, const exl2_lora_desc *d, exl2_lora_info *out)
{
    return EXL2__HELD(e, exl2__api_lora_measure(e, d, out));
}

EXL2_API exl2_result exl2_lora_open(exl2_engine *e, const exl2_lora_desc *d, exl2_lora *out)
{
    return EXL2__GATED(e, exl2__api_lora_open(e, d, out));
}

EXL2_API exl2_result exl2_lora_load(exl2_engine *e, const exl2_lora_desc *d, exl2_lora *out)
{
    return EXL2__HELD(e, exl2__api_lora_load(e, d, out));
}

EXL2_API exl2_result exl2_lora_state(exl2_engine *e, exl2_lora handle)
{
    return EXL2__GATED(e, exl2__api_lora_state(e, handle));
}

EXL2_API exl2_result exl2_lora_get(exl2_engine *e, exl2_lora handle, exl2_lora_info *out)
{
    return EXL2__GATED(e, exl2__api_lora_get(e, handle, out));
}

EXL2_API exl2_result exl2_lora_close(exl2_engine *e, exl2_lora handle)
{
    return EXL2__GATED(e, exl2__api_lora_close(e, handle));
}

EXL2_API exl2_result exl2_steer_make(exl2_engine *e, const exl2_steer_desc *d, exl2_steer *out)
{
    return EXL2__HELD(e, exl2__api_steer_make(e, d, out));
}

EXL2_API exl2_result exl2_steer_get(exl2_engine *e, exl2_steer handle, exl2_steer_info *out)
{
    return EXL2__GATED(e, exl2__api_steer_get(e, handle, out));
}

EXL2_API exl2_result exl2_steer_close(exl2_engine *e, exl2_steer handle)
{
    return EXL2__GATED(e, exl2__api_steer_close(e, handle));
}

/* ---- text ---- */

EXL2_API exl2_result exl2_tokenize(exl2_engine *e, exl2_model handle, const char *text, size_t bytes, uint32_t flags,
                                   exl2_token *out, size_t cap, size_t *need)
{
    return EXL2__GATED(e, exl2__api_tokenize(e, handle, text, bytes, flags, out, cap, need));
}

EXL2_API exl2_result exl2_detokenize(exl2_engine *e, exl2_model handle, const exl2_token *t, size_t n, uint32_t flags,
                                     char *out, size_t cap, size_t *need)
{
    return EXL2__GATED(e, exl2__api_detokenize(e, handle, t, n, flags, out, cap, need));
}

EXL2_API exl2_result exl2_chat_render(exl2_engine *e, exl2_model handle, const exl2_message *msgs, size_t n,
                                      const exl2_chat_desc *d, char *out, size_t cap, size_t *need)
{
    return EXL2__GATED(e, exl2__api_chat_render(e, handle, msgs, n, d, out, cap, need));
}

EXL2_API exl2_result exl2_chat_tokenize(exl2_engine *e, exl2_model handle, const exl2_prompt *prompt,
                                        const exl2_chat_desc *d, exl2_token *out, size_t cap, size_t *need)
{
    return EXL2__GATED(e, exl2__api_chat_tokenize(e, handle, prompt, d, out, cap, need));
}

/* ---- sessions, sampling, grammars, jobs ---- */

EXL2_API exl2_result exl2_session_open(exl2_engine *e, exl2_model handle, exl2_session *out)
{
    return EXL2__GATED(e, exl2__api_session_open(e, handle, out));
}

EXL2_API exl2_result exl2_session_fork(exl2_engine *e, exl2_session handle, exl2_session *out)
{
    return EXL2__GATED(e, exl2__api_session_fork(e, handle, out));
}

EXL2_API exl2_result exl2_session_rewind(exl2_engine *e, exl2_session handle, uint32_t tokens)
{
    return EXL2__GATED(e, exl2__api_session_rewind(e, handle, tokens));
}

EXL2_API exl2_result exl2_session_trim(exl2_engine *e, exl2_session handle, uint32_t from, uint32_t count)
{
    return EXL2__GATED(e, exl2__api_session_trim(e, handle, from, count));
}

EXL2_API exl2_result exl2_session_get(exl2_engine *e, exl2_session handle, exl2_session_info *out)
{
    return EXL2__GATED(e, exl2__api_session_get(e, handle, out));
}

EXL2_API exl2_result exl2_session_tokens(exl2_engine *e, exl2_session handle, exl2_token *out, size_t cap, size_t *need)
{
    return EXL2__GATED(e, exl2__api_session_tokens(e, handle, out, cap, need));
}

EXL2_API exl2_result exl2_session_save(exl2_engine *e, exl2_session handle, uint32_t flags, void *out, size_t cap,
                                       size_t *need)
{
    return EXL2__HELD(e, exl2__api_session_save(e, handle, flags, out, cap, need));
}

EXL2_API exl2_result exl2_session_restore(exl2_engine *e, exl2_session handle, const void *data, size_t bytes)
{
    return EXL2__HELD(e, exl2__api_session_restore(e, handle, data, bytes));
}

EXL2_API exl2_result exl2_session_close(exl2_engine *e, exl2_session handle)
{
    return EXL2__GATED(e, exl2__api_session_close(e, handle));
}

EXL2_API exl2_result exl2_sampler_resolve(exl2_engine *e, exl2_model handle, const exl2_sampler_desc *d,
                                          exl2_sampler_desc *out)
{
    return EXL2__GATED(e, exl2__api_sampler_resolve(e, handle, d, out));
}

EXL2_API exl2_result exl2_grammar_make(exl2_engine *e, const exl2_grammar_desc *d, exl2_grammar *out)
{
    return EXL2__GATED(e, exl2__api_grammar_make(e, d, out));
}

EXL2_API exl2_result exl2_grammar_close(exl2_engine *e, exl2_grammar handle)
{
    return EXL2__GATED(e, exl2__api_grammar_close(e, handle));
}

EXL2_API exl2_result exl2_job_start(exl2_engine *e, const exl2_job_desc *d, exl2_job *out)
{
    return EXL2__GATED(e, exl2__api_job_start(e, d, out));
}

EXL2_API exl2_result exl2_job_measure(exl2_engine *e, const exl2_job_desc *d, exl2_job_size *out)
{
    return EXL2__GATED(e, exl2__api_job_measure(e, d, out));
}

EXL2_API exl2_result exl2_generate(exl2_engine *e, const exl2_job_desc *d)
{
    return EXL2__HELD(e, exl2__api_generate(e, d));
}

EXL2_API exl2_result exl2_session_pictures(exl2_engine *e, exl2_session handle, exl2_picture *out, size_t cap,
                                           size_t *need)
{
    return EXL2__GATED(e, exl2__api_session_pictures(e, handle, out, cap, need));
}

EXL2_API exl2_result exl2_image_make(exl2_engine *e, const exl2_image_desc *d, exl2_image *out)
{
    return EXL2__GATED(e, exl2__api_image_make(e, d, out));
}

EXL2_API exl2_result exl2_image_get(exl2_engine *e, exl2_image handle, exl2_image_info *out)
{
    return EXL2__GATED(e, exl2__api_image_get(e, handle, out));
}

EXL2_API exl2_result exl2_image_measure(exl2_engine *e, const exl2_image_desc *d, exl2_image_info *out)
{
    return EXL2__GATED(e, exl2__api_image_measure(e, d, out));
}

EXL2_API exl2_result exl2_image_seen(exl2_engine *e, exl2_image handle, void *out, size_t cap, size_t *need)
{
    return EXL2__GATED(e, exl2__api_image_seen(e, handle, out, cap, need));
}

EXL2_API exl2_result exl2_image_rows(exl2_engine *e, exl2_image handle, float *out, size_t cap, size_t *need)
{
    return EXL2__GATED(e, exl2__api_image_rows(e, handle, out, cap, need));
}

EXL2_API exl2_result exl2_image_close(exl2_engine *e, exl2_image handle)
{
    return EXL2__GATED(e, exl2__api_image_close(e, handle));
}

EXL2_API exl2_result exl2_job_priority(exl2_engine *e, exl2_job handle, int32_t priority)
{
    return EXL2__GATED(e, exl2__api_job_priority(e, handle, priority));
}

#endif
