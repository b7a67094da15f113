/* api_steers.h: the public functions of control vectors.
   takes: calls from the application, as api.h says.
   gives: what public.h calls. */
#ifndef EXL2__API_STEERS_H
#define EXL2__API_STEERS_H

#include "api_loras.h"

EXL2__PRIVATE exl2_result exl2__api_steer(exl2_engine *e, exl2_steer handle, exl2__model **m, exl2__steer **out)
{
    *out = exl2__steers_find(e, handle, m);
    return *out ? EXL2_OK
         : exl2__fail(&e->ctx, EXL2_ERR_STALE, "steer handle %llu names no control vector; it was closed, or never "
                      "made", (unsigned long long)handle.id);
}

EXL2__PRIVATE exl2_result exl2__api_steer_make(exl2_engine *e, const exl2_steer_desc *d, exl2_steer *out)
{
    static const char *const call = "exl2_steer_make";
    exl2__model *m;
    EXL2__TRY(exl2__api_outside(e, call));
    EXL2__TRY(exl2__api_argument(e, d && out, call, "d or out is NULL"));
    out->id = 0;
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_steer_desc));
    EXL2__TRY(exl2__api_argument(e, !d->path != !d->values, call, "the desc needs either a path or values"));
    EXL2__TRY(exl2__api_argument(e, !d->path || (d->first_layer == 0 && d->layer_count == 0), call,
                                 "first_layer and layer_count are those of `values`"));
    EXL2__TRY(exl2__api_argument(e, !d->path || strlen(d->path) < EXL2__PATH_BYTES, call,
                                 "the path is longer than 1,023 bytes"));
    EXL2__TRY(exl2__api_model(e, d->model, &m));
    exl2_result r = exl2__steers_make(e, m, d, out);
    exl2__objects_publish(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_steer_get(exl2_engine *e, exl2_steer handle, exl2_steer_info *out)
{
    exl2__model *m;
    exl2__steer *s;
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_steer_get", "out is NULL"));
    EXL2__TRY(exl2__api_steer(e, handle, &m, &s));
    *out = s->info;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_steer_close(exl2_engine *e, exl2_steer handle)
{
    exl2__model *m;
    exl2__steer *s;
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(exl2__api_steer(e, handle, &m, &s));
    exl2__steers_close(e, m, s);
    exl2__objects_publish(e);
    return EXL2_OK;
}

#endif
