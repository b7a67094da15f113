/* loading_tower.h: the stages of a load that are about the model's tower for pictures.
   takes: exl2_model_desc.vision; the files of the model.
   gives: exl2__loading_tower, exl2__loading_tower_headers, exl2__loading_tower_weights, exl2__loading_open_tower;
          exl2__loading_tower_bytes, exl2__loading_tower_peak, exl2__loading_turns.
   owns:  nothing; the tower's weights are the model's. */
#ifndef EXL2__LOADING_TOWER_H
#define EXL2__LOADING_TOWER_H

#include "images.h"

/* Whether pictures give the model's rows positions of three axes. */
static inline bool exl2__loading_turns(const exl2__model *m)
{
#ifndef EXL2_NO_VISION
    return m->images.on && m->images.config.mrope;
#else
    (void)m;
    return false;
#endif
}

/* Bytes of the tower's weights, and what else reading them needs. */
static inline uint64_t exl2__loading_tower_bytes(const exl2__model *m)
{
#ifndef EXL2_NO_VISION
    return m->images.on ? m->images.tower.weight_bytes : 0;
#else
    (void)m;
    return 0;
#endif
}

static inline uint64_t exl2__loading_tower_peak(const exl2__model *m)
{
#ifndef EXL2_NO_VISION
    return m->images.on ? m->images.reader.staging_bytes + m->images.table_bytes : 0;
#else
    (void)m;
    return 0;
#endif
}

#ifndef EXL2_NO_VISION
/* Reads the headers of the tower's files. */
EXL2__PRIVATE exl2_result exl2__loading_tower_headers(exl2__ctx *c, exl2__model *m, exl2__work *work)
{
    exl2__images *g = &m->images;
    uint64_t before = c->host_bytes;
    if (!g->reader.c) {
        exl2__tower_read_begin(&g->reader, c, &g->tower, &g->config, m->path);
    }
    exl2_result r = exl2__tower_read_headers(&g->reader, work);
    g->table_bytes = r < 0 ? 0 : g->table_bytes + (c->host_bytes > before ? c->host_bytes - before : 0);
    return r;
}
#endif

/* Reads what the files say of the tower, if the desc asks for pictures. */
EXL2__PRIVATE exl2_result exl2__loading_tower(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    if (m->desc.text_only || m->desc.vision.images == 0) {
        return EXL2_OK;
    }
#ifdef EXL2_NO_VISION
    (void)work;
    return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: vision.images is set, but pictures are not part of this build "
                      "(EXL2_NO_VISION)", m->path);
#else
    exl2__images *g = &m->images;
    if (!g->reader.c) {
        if (!m->weights.config.arch.text_of_multimodal) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: vision.images is set, but the model (%s) has no tower for "
                              "pictures", m->path, m->weights.config.arch_name);
        }
        if (exl2__objects_has_memory(m)) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: vision.images is set, but a GPU does not compute towers "
                              "yet: use EXL2_BACKEND_CPU", m->path);
        }
        EXL2__TRY(exl2__vision_config_read(c, m->path, &m->weights.config, &g->config));
        EXL2__TRY(exl2__images_supports(c, m));
        EXL2__TRY(exl2__images_sizes(c, m));
    }
    EXL2__TRY_DONE(exl2__loading_tower_headers(c, m, work));
    g->on = true;
    return exl2__images_find_marks(c, m);
#endif
}

/* Memory for the tower's weights. */
EXL2__PRIVATE exl2_result exl2__loading_open_tower(exl2__ctx *c, exl2__model *m)
{
#ifndef EXL2_NO_VISION
    return m->images.on ? exl2__arena_open(c, &m->images.weights, m->images.tower.weight_bytes, EXL2_MEM_WEIGHTS)
                        : EXL2_OK;
#else
    (void)c, (void)m;
    return EXL2_OK;
#endif
}

EXL2__PRIVATE exl2_result exl2__loading_tower_weights(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    (void)e;
#ifndef EXL2_NO_VISION
    if (m->images.on) {
        EXL2__TRY_DONE(exl2__tower_read_weights(&m->images.reader, &m->images.weights, work));
        exl2__tower_read_end(&m->images.reader);
    }
#else
    (void)m, (void)work;
#endif
    return EXL2_OK;
}

#endif
