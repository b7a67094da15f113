/* api_models.h: the public functions of models: measuring, loading, parking, closing.
   takes: calls from the application, as api.h says.
   gives: exl2_arch; what public.h calls. */
#ifndef EXL2__API_MODELS_H
#define EXL2__API_MODELS_H

#include "api.h"

/* Makes an earlier error the most recent one again. It was logged when it happened. */
static inline void exl2__api_restore_error(exl2_engine *e, const exl2_error *error)
{
    exl2__lock(&e->ctx.error_lock);
    e->ctx.error = *error;
    exl2__unlock(&e->ctx.error_lock);
}

EXL2__PRIVATE exl2_result exl2__api_check_model(exl2_engine *e, const exl2_model_desc *d, const char *call)
{
    EXL2__TRY(exl2__api_argument(e, d != NULL, call, "the desc is NULL"));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_model_desc));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, &d->cache, exl2_cache_desc));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, &d->vision, exl2_vision_desc));
    EXL2__TRY(exl2__api_argument(e, d->path != NULL, call, "the desc has no path"));
    bool fits = d->context_max <= 1u << 24 && d->prefill_chunk <= 65536 && d->batch_max <= 1024;
    EXL2__TRY(exl2__api_argument(e, fits, call,
                                 "context_max is at most 16,777,216, prefill_chunk 65,536, batch_max 1,024"));
    EXL2__TRY(exl2__api_argument(e, d->lora_max <= 256 && d->lora_rank_max <= EXL2__LORA_RANK_MAX, call,
                                 "lora_max and lora_rank_max are at most 256"));
    EXL2__TRY(exl2__api_argument(e, d->steer_max <= 256, call, "steer_max is at most 256"));
    fits = d->vision.images <= 4096 && d->vision.rows <= 1u << 24 && d->vision.pixels_max <= 1u << 28
        && d->vision.max_rows < EXL2__PICTURE_ROWS_MAX;
    EXL2__TRY(exl2__api_argument(e, fits, call, "vision.images is at most 4,096, rows 16,777,216, pixels_max "
                                                "268,435,456, max_rows 131,071"));
    EXL2__TRY(exl2__api_argument(e, (uint32_t)d->cache.format <= EXL2_KV_Q4, call,
                                 "cache.format is none of exl2_kv"));
    const exl2__config_rope rope = { d->rope_scale, d->rope_alpha, d->yarn_factor };
    const char *wrong = exl2__config_rope_wrong(&rope);
    EXL2__TRY(exl2__api_argument(e, !wrong, call, wrong));
    EXL2__TRY(exl2__cards_check(e, d, call));
    EXL2__TRY(exl2__offload_check(&e->ctx, d, call));
    return exl2__api_argument(e, strlen(d->path) < EXL2__PATH_BYTES, call, "the path is longer than 1,023 bytes");
}

EXL2_API bool exl2_arch(uint32_t index, exl2_arch_info *out)
{
    if (!out) {
        return false;
    }
    memset(out, 0, sizeof *out);
    if (index < EXL2__COUNT(exl2__archs)) {
        const exl2__arch_row *row = &exl2__archs[index];
        out->name = row->name;
        out->family = row->family;
        out->golden = row->traits[EXL2__TRAIT_GOLDEN] == EXL2__YES;
        exl2__arch_differences(row, out->differs, sizeof out->differs);
        return true;
    }
    index -= (uint32_t)EXL2__COUNT(exl2__archs);
    if (index < EXL2__COUNT(exl2__arch_unsupported_rows)) {
        out->name = exl2__arch_unsupported_rows[index].name;
        out->reason = exl2__arch_unsupported_rows[index].reason;
        return true;
    }
    return false;
}

EXL2__PRIVATE exl2_result exl2__api_model_measure(exl2_engine *e, const exl2_model_desc *d, exl2_model_info *out)
{
    EXL2__TRY(exl2__api_outside(e, "exl2_model_measure"));
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_model_measure", "out is NULL"));
    EXL2__TRY(exl2__api_check_model(e, d, "exl2_model_measure"));
    exl2_model handle;
    EXL2__TRY(exl2__loading_open(e, d, &handle));
    exl2__model *m = exl2__objects_model(e, handle);
    m->discard_events = true;
    exl2__api_wait_begin(e);
    exl2__work all = exl2__work_all();
    exl2_result r = exl2__loading_measure(e, m, &all);
    if (r >= 0 && exl2__api_interrupted(e)) {
        r = exl2__fail(&e->ctx, EXL2_ERR_CANCELLED, "exl2_interrupt ended exl2_model_measure");
    }
    exl2__api_wait_end(e);
    if (r >= 0) {
        *out = m->info;
    }
    exl2__loading_close(e, m);
    exl2__objects_publish(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_model_open(exl2_engine *e, const exl2_model_desc *d, exl2_model *out)
{
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_model_open", "out is NULL"));
    EXL2__TRY(exl2__api_check_model(e, d, "exl2_model_open"));
    return exl2__loading_open(e, d, out);
}

EXL2__PRIVATE exl2_result exl2__api_model_load(exl2_engine *e, const exl2_model_desc *d, exl2_model *out)
{
    EXL2__TRY(exl2__api_outside(e, "exl2_model_load"));
    EXL2__TRY(exl2__api_model_open(e, d, out));
    exl2__model *m = exl2__objects_model(e, *out);
    uint64_t id = m->id;
    m->discard_events = d->on_event == NULL;
    exl2__api_wait_begin(e);
    exl2_result r = EXL2_OK;
    while (r >= 0 && m->id == id && m->state == EXL2_PENDING) {
        r = exl2__worker_step_held(e);
        if (r >= 0 && exl2__api_interrupted(e)) {
            r = exl2__fail(&e->ctx, EXL2_ERR_CANCELLED, "exl2_interrupt ended exl2_model_load");
        }
    }
    exl2__api_wait_end(e);
    bool failed = r >= 0 && m->state < 0;
    exl2_error error = m->error;
    r = r < 0 ? r : m->state;
    if (r < 0) {
        exl2__loading_close(e, m);
        exl2__objects_publish(e);
        out->id = 0;
    }
    if (failed) { /* a callback that got the last LOAD event may have made calls that failed since */
        exl2__api_restore_error(e, &error);
    }
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_model_state(exl2_engine *e, exl2_model handle)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(exl2__api_model(e, handle, &m));
    if (m->state < 0) {
        exl2__api_restore_error(e, &m->error);
    }
    return m->park == EXL2__PARK_PARKED ? EXL2_IDLE : m->park == EXL2__PARK_LOADS ? EXL2_PENDING : m->state;
}

EXL2__PRIVATE exl2_result exl2__api_model_park(exl2_engine *e, exl2_model handle, bool parked)
{
    exl2__model *m;
    static const char *const call = "exl2_model_park";
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(parked ? exl2__api_outside(e, call) : EXL2_OK);
    EXL2__TRY(exl2__api_model(e, handle, &m));
    if (m->state != EXL2_OK || m->desc.text_only || m->park == EXL2__PARK_LOADS) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s: the model is loading, or was opened with text_only", m->path);
    }
    if (parked && m->park == EXL2__PARK_NONE) {
        exl2__step_end_active_pass(e, m);
        EXL2__TRY(exl2__api_model(e, handle, &m));
        exl2__step_park(e, m);
    } else if (!parked && m->park == EXL2__PARK_PARKED) {
        exl2__loading_begin_again(m);
    }
    exl2__objects_publish(e);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_model_get(exl2_engine *e, exl2_model handle, exl2_model_info *out)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_model_get", "out is NULL"));
    EXL2__TRY(exl2__api_model(e, handle, &m));
    *out = m->info;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_model_close(exl2_engine *e, exl2_model handle)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_outside(e, "exl2_model_close"));
    EXL2__TRY(exl2__api_model(e, handle, &m));
    exl2__loading_close(e, m);
    exl2__objects_publish(e);
    return EXL2_OK;
}

#endif
