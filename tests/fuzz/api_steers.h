/* api_steers.h: operations on control vectors, and the control vectors of a job.
   takes: the shadow model, api.random of the operation.
   gives: api_op_steer, api_aim_steers, api_forget_steers. */
#ifndef API_STEERS_H
#define API_STEERS_H

#include "api_jobs.h"

#define API_STEER_VALUES 4096u /* of a vector, at most: the models are tiny */

/* The model has ended: so have its vectors. */
static void api_forget_steers(const api_model *m)
{
    for (uint32_t i = 0; i < API_STEERS; i++) {
        if (api.steers[i].id && api.steers[i].model == m) {
            exl2_result r = API_CALL(steer_close, exl2_steer_close(api.e, (exl2_steer){ api.steers[i].id }));
            API_MUST(r == EXL2_ERR_STALE, "a control vector of a closed model gives %s", exl2_result_name(r));
            api.steers[i].id = 0;
        }
    }
}

static api_steer *api_pick_steer(const api_model *m)
{
    api_steer *picked = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < API_STEERS; i++) {
        api_steer *s = &api.steers[i];
        if (s->id && (!m || s->model == m) && api_draw(++count) == 0) {
            picked = s;
        }
    }
    return picked;
}

/* Gives the job some vectors: mostly those of its model, rarely another one's, or one twice, or with a bad factor. */
static void api_aim_steers(api_job_store *s, const api_model *m)
{
    uint32_t most = api_chance(2) ? 0 : 1 + api_draw(EXL2__COUNT(s->steers));
    for (uint32_t i = 0; i < most; i++) {
        bool careful = !api_chance(20);
        const api_steer *v = api_pick_steer(careful ? m : NULL);
        bool twice = i && v && s->steers[0].steer.id == v->id;
        if (v && (!twice || !careful)) {
            float factor = api_chance(4) ? (float)EXL2_OFF : 0.25f * (float)((int32_t)api_draw(7) - 3);
            s->steers[s->d.steer_count++] = (exl2_steer_use){ { v->id }, careful ? factor : 1000.0f };
        }
    }
    s->d.steers = s->d.steer_count ? s->steers : NULL;
}

static void api_make_steer(api_model *m)
{
    static float values[API_STEER_VALUES];
    exl2_steer handle = { 0 };
    exl2_model_info info = { 0 };
    exl2_steer_desc d = { .model = { m->id }, .values = values, .first_layer = api_draw(2), .layer_count = 1 };
    API_CALL(model_get, exl2_model_get(api.e, d.model, &info));
    for (uint32_t i = 0; i < API_STEER_VALUES; i++) {
        values[i] = 0.01f * (float)((int32_t)api_draw(64) - 32);
    }
    if (api_chance(8)) {
        d.layer_count += api_draw(8); /* more layers than the model has, or a few */
    }
    if (api_chance(12)) {
        d = (exl2_steer_desc){ .model = { m->id }, .path = api_chance(2) ? "m/absent.gguf" : "m/config.json" };
    }
    bool large = !d.path && (uint64_t)d.layer_count * info.hidden > API_STEER_VALUES;
    if (large || (m->desc.steer_max == 0 && !api_chance(10))) {
        return;
    }
    exl2_result r = API_CALL(steer_make, exl2_steer_make(api.e, &d, &handle));
    api_trace("exl2_steer_make %s: %s", m->desc.path, exl2_result_name(r));
    API_MUST((r == EXL2_OK) == (handle.id != 0), "exl2_steer_make gives %s, and the handle %llu", exl2_result_name(r),
             (unsigned long long)handle.id);
    for (uint32_t i = 0; r == EXL2_OK && i < API_STEERS; i++) {
        if (!api.steers[i].id) {
            api.steers[i] = (api_steer){ handle.id, m };
            return;
        }
    }
    API_MUST(r != EXL2_OK, "more control vectors are open than all models may have");
}

/* Makes, closes or looks at a control vector. */
static void api_op_steer(void)
{
    uint32_t what = api_draw(6);
    api_model *m = api_pick_model(!api_chance(10));
    api_steer *s = api_pick_steer(NULL);
    if (what < 4 && m) {
        api_make_steer(m);
    } else if (what == 4 && s) {
        exl2_result r = API_CALL(steer_close, exl2_steer_close(api.e, (exl2_steer){ s->id }));
        API_MUST(r == EXL2_OK, "exl2_steer_close gives %s", exl2_result_name(r));
        r = API_CALL(steer_close, exl2_steer_close(api.e, (exl2_steer){ s->id }));
        API_MUST(r == EXL2_ERR_STALE, "exl2_steer_close of a closed vector gives %s", exl2_result_name(r));
        s->id = 0;
    } else if (s) {
        exl2_steer_info info;
        exl2_result r = API_CALL(steer_get, exl2_steer_get(api.e, (exl2_steer){ s->id }, &info));
        API_MUST(r == EXL2_OK && info.bytes > 0, "exl2_steer_get gives %s", exl2_result_name(r));
    }
}

#endif
