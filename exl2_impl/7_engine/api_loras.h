/* api_loras.h: the public functions of adapters.
   takes: calls from the application, as api.h says.
   gives: what public.h calls. */
#ifndef EXL2__API_LORAS_H
#define EXL2__API_LORAS_H

#include "api_models.h"

EXL2__PRIVATE exl2_result exl2__api_check_lora(exl2_engine *e, const exl2_lora_desc *d, const char *call,
                                               exl2__model **m)
{
    EXL2__TRY(exl2__api_argument(e, d != NULL, call, "the desc is NULL"));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_lora_desc));
    EXL2__TRY(exl2__api_argument(e, d->path != NULL, call, "the desc has no path"));
    EXL2__TRY(exl2__api_argument(e, strlen(d->path) < EXL2__PATH_BYTES, call, "the path is longer than 1,023 bytes"));
    return exl2__api_model(e, d->model, m);
}

EXL2__PRIVATE exl2_result exl2__api_lora(exl2_engine *e, exl2_lora handle, exl2__model **m, exl2__lora **out)
{
    *out = exl2__loras_find(e, handle, m);
    return *out ? EXL2_OK
         : exl2__fail(&e->ctx, EXL2_ERR_STALE, "lora handle %llu names no adapter; it was closed, or never made",
                      (unsigned long long)handle.id);
}

EXL2__PRIVATE exl2_result exl2__api_lora_measure(exl2_engine *e, const exl2_lora_desc *d, exl2_lora_info *out)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_outside(e, "exl2_lora_measure"));
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_lora_measure", "out is NULL"));
    memset(out, 0, sizeof *out);
    EXL2__TRY(exl2__api_check_lora(e, d, "exl2_lora_measure", &m));
    exl2_result r = exl2__loras_measure(e, m, d->path, out);
    exl2__objects_publish(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_lora_open(exl2_engine *e, const exl2_lora_desc *d, exl2_lora *out)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_lora_open", "out is NULL"));
    out->id = 0;
    EXL2__TRY(exl2__api_check_lora(e, d, "exl2_lora_open", &m));
    exl2_result r = exl2__loras_open(e, m, d, out);
    exl2__objects_publish(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_lora_load(exl2_engine *e, const exl2_lora_desc *d, exl2_lora *out)
{
    exl2__model *m;
    exl2__lora *l;
    EXL2__TRY(exl2__api_outside(e, "exl2_lora_load"));
    EXL2__TRY(exl2__api_lora_open(e, d, out));
    exl2_lora handle = *out;
    l = exl2__loras_find(e, handle, &m);
    l->discard_events = d->on_event == NULL;
    l->awaited = true; /* a callback may close it */
    exl2__api_wait_begin(e);
    exl2_result r = EXL2_OK;
    while (r >= 0 && (l = exl2__loras_find(e, handle, &m)) != NULL && l->state == EXL2_PENDING) {
        r = exl2__worker_step_held(e);
        if (r >= 0 && exl2__api_interrupted(e)) {
            r = exl2__fail(&e->ctx, EXL2_ERR_CANCELLED, "exl2_interrupt ended exl2_lora_load");
        }
    }
    exl2__api_wait_end(e);
    l = exl2__loras_find_any(e, handle, &m);
    l->awaited = false;
    exl2_error error = l->error;
    bool failed = r >= 0 && l->load_result < 0, closed = r >= 0 && l->closing;
    r = r < 0 ? r : failed ? l->load_result : l->state;
    if (r < 0 || closed) {
        exl2__loras_close(e, m, l);
        exl2__objects_publish(e);
        out->id = 0;
    }
    if (failed) {
        exl2__api_restore_error(e, &error);
    } else if (closed) {
        r = exl2__fail(&e->ctx, EXL2_ERR_CANCELLED, "the adapter was closed while it loaded");
    }
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_lora_state(exl2_engine *e, exl2_lora handle)
{
    exl2__model *m;
    exl2__lora *l;
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(exl2__api_lora(e, handle, &m, &l));
    if (l->state < 0) {
        exl2__api_restore_error(e, &l->error);
    }
    return l->state;
}

EXL2__PRIVATE exl2_result exl2__api_lora_get(exl2_engine *e, exl2_lora handle, exl2_lora_info *out)
{
    exl2__model *m;
    exl2__lora *l;
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_lora_get", "out is NULL"));
    EXL2__TRY(exl2__api_lora(e, handle, &m, &l));
    *out = l->info;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_lora_close(exl2_engine *e, exl2_lora handle)
{
    exl2__model *m;
    exl2__lora *l;
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(exl2__api_lora(e, handle, &m, &l));
    exl2__loras_close(e, m, l);
    exl2__objects_publish(e);
    return EXL2_OK;
}

#endif
