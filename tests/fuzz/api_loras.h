/* api_loras.h: operations on adapters, and the adapters of a job.
   takes: the shadow model, api.random of the operation.
   gives: api_op_lora, api_aim_loras, api_refresh_loras, api_forget_loras. */
#ifndef API_LORAS_H
#define API_LORAS_H

#include "api_jobs.h"

/* Asks about adapters that load. */
static void api_refresh_loras(void)
{
    for (uint32_t i = 0; i < API_LORAS; i++) {
        api_lora *l = &api.loras[i];
        if (l->id && l->loading) {
            exl2_result r = API_CALL(lora_state, exl2_lora_state(api.e, (exl2_lora){ l->id }));
            API_MUST(r != EXL2_ERR_STALE, "an adapter that loads is stale");
            l->loading = r == EXL2_PENDING;
            l->ready = r == EXL2_OK;
        }
    }
}

/* The model has ended: so have its adapters. */
static void api_forget_loras(const api_model *m)
{
    for (uint32_t i = 0; i < API_LORAS; i++) {
        if (api.loras[i].id && api.loras[i].model == m) {
            exl2_result r = API_CALL(lora_close, exl2_lora_close(api.e, (exl2_lora){ api.loras[i].id }));
            API_MUST(r == EXL2_ERR_STALE, "an adapter of a closed model gives %s", exl2_result_name(r));
            api.loras[i].id = 0;
        }
    }
}

static api_lora *api_pick_lora(const api_model *m, bool ready)
{
    api_lora *picked = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < API_LORAS; i++) {
        api_lora *l = &api.loras[i];
        if (l->id && (!m || l->model == m) && (!ready || l->ready) && api_draw(++count) == 0) {
            picked = l;
        }
    }
    return picked;
}

/* Gives the job some adapters: mostly those of its model that are ready, rarely one that is not, or one twice. */
static void api_aim_loras(api_job_store *s, const api_model *m)
{
    uint32_t most = api_chance(2) ? 0 : 1 + api_draw(EXL2__COUNT(s->loras));
    for (uint32_t i = 0; i < most; i++) {
        bool careful = !api_chance(20);
        const api_lora *l = api_pick_lora(careful ? m : NULL, careful);
        bool twice = i && l && s->loras[0].lora.id == l->id;
        if (l && (!twice || !careful)) {
            float scale = api_chance(4) ? (float)EXL2_OFF : 0.5f * (float)((int32_t)api_draw(7) - 3);
            s->loras[s->d.lora_count++] = (exl2_lora_use){ { l->id }, careful ? scale : 1000.0f };
        }
    }
    s->d.loras = s->d.lora_count ? s->loras : NULL;
}

static void api_load_lora(api_model *m, bool waits)
{
    exl2_lora handle = { 0 };
    exl2_lora_desc d = { .model = { m->id }, .path = api_chance(10) ? "m/absent" : "m/lora" };
    exl2_result r = waits ? API_CALL(lora_load, exl2_lora_load(api.e, &d, &handle))
                          : API_CALL(lora_open, exl2_lora_open(api.e, &d, &handle));
    api_trace("exl2_lora_%s %s: %s", waits ? "load" : "open", m->desc.path, exl2_result_name(r));
    API_MUST((r == EXL2_OK) == (handle.id != 0), "exl2_lora_load gives %s, and the handle %llu", exl2_result_name(r),
             (unsigned long long)handle.id);
    for (uint32_t i = 0; r == EXL2_OK && i < API_LORAS; i++) {
        if (!api.loras[i].id) {
            api.loras[i] = (api_lora){ .id = handle.id, .model = m, .loading = true };
            return;
        }
    }
    API_MUST(r != EXL2_OK, "more adapters are open than all models may have");
}

/* Loads, closes or looks at an adapter. */
static void api_op_lora(void)
{
    uint32_t what = api_draw(8);
    api_model *m = api_pick_model(!api_chance(10));
    api_lora *l = api_pick_lora(NULL, false);
    if (what < 5 && m) {
        api_load_lora(m, what < 3);
    } else if (what == 5 && l) {
        exl2_result r = API_CALL(lora_close, exl2_lora_close(api.e, (exl2_lora){ l->id }));
        API_MUST(r == EXL2_OK, "exl2_lora_close gives %s", exl2_result_name(r));
        r = API_CALL(lora_close, exl2_lora_close(api.e, (exl2_lora){ l->id }));
        API_MUST(r == EXL2_ERR_STALE, "exl2_lora_close of a closed adapter gives %s", exl2_result_name(r));
        l->id = 0;
    } else if (what == 6 && l) {
        exl2_lora_info info;
        exl2_result r = API_CALL(lora_get, exl2_lora_get(api.e, (exl2_lora){ l->id }, &info));
        API_MUST(r == EXL2_OK || l->loading, "exl2_lora_get gives %s", exl2_result_name(r));
    } else if (m) {
        exl2_lora_info info;
        exl2_lora_desc d = { .model = { m->id }, .path = "m/lora" };
        API_CALL(lora_measure, exl2_lora_measure(api.e, &d, &info));
    }
    api_refresh_loras();
}

#endif
