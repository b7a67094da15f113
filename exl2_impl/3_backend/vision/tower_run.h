/* tower_run.h: encodes pictures unit by unit: a tower can stop after any unit and continue in a later frame.
   takes: a tower with weights and scratch, a picture as resize.h has prepared it.
   gives: exl2__tower_begin, exl2__tower_step.

   The bits of a row depend on the picture alone: not on units, threads or other pictures. */
#ifndef EXL2__TOWER_RUN_H
#define EXL2__TOWER_RUN_H

#include "../../0_base/platform.h"
#include "tower_stages.h"

#ifndef EXL2_NO_VISION

#define EXL2__TOWER_FIRST_NS_PER_COST 0.1f /* as EXL2__FORWARD_FIRST_NS_PER_COST */
#define EXL2__TOWER_PROBE 8u /* the first unit of a stage is so much shorter, because the core may be slow */

/* Divides the rows [begin, end), which see each other, into groups of queries. Returns their number. */
EXL2__PRIVATE uint32_t exl2__tower_divide(const exl2__tower *t, uint32_t begin, uint32_t end, exl2__tower_queries *out)
{
    uint32_t tile = t->ops->tile_rows, most = EXL2__TOWER_QUERIES / tile * tile, count = 0;
    most = end - begin > 2048 ? exl2__min32(most, tile) : most; /* so that a unit remains short */
    for (uint32_t row = begin; row < end; row += most) {
        out[count++] = (exl2__tower_queries){ row, exl2__min32(most, end - row), begin, end };
    }
    return count;
}

/* Orders patches by windows, and lists the queries of both kinds of layers. */
EXL2__PRIVATE void exl2__tower_arrange(exl2__tower *t)
{
    const exl2__vision_config *v = &t->config;
    uint32_t s = v->merge, columns = t->size.width / v->patch, cells = columns / s, lines = t->patch_rows / s, next = 0;
    t->windowed_count = 0;
    for (uint32_t p = 0; !v->window && p < t->size.patches; p++) {
        t->order[p] = p;
    }
    for (uint32_t y = 0; v->window && y < lines; y += v->window) {
        for (uint32_t x = 0; x < cells; x += v->window) {
            uint32_t begin = next, high = exl2__min32(v->window, lines - y), wide = exl2__min32(v->window, cells - x);
            for (uint32_t i = 0; i < high * wide * s * s; i++) {
                uint32_t cell = i / (s * s), line = (y + cell / wide) * s + i % (s * s) / s;
                t->order[next++] = line * columns + (x + cell % wide) * s + i % s;
            }
            t->windowed_count += exl2__tower_divide(t, begin, next, t->windowed + t->windowed_count);
        }
    }
    for (uint32_t row = 0; row < t->size.patches; row++) {
        t->at[t->order[row]] = row;
    }
    t->full_count = exl2__tower_divide(t, 0, t->rows_now, t->full);
}

/* Begins to encode a picture; a picture that was not finished is dropped. seen: its bytes, and rows: [size->rows,
   levels, hidden], must live until the last step. The picture must be within the limits of exl2__tower_prepare. */
static inline void exl2__tower_begin(exl2__tower *t, const exl2__vision_size *size, const uint8_t *seen, float *rows)
{
    const exl2__vision_config *v = &t->config;
    t->size = *size;
    t->seen = seen;
    t->rows = rows;
    t->patch_rows = size->height / v->patch;
    t->rows_now = size->patches + v->class_row;
    t->out_rows = size->rows / size->tiles;
    EXL2__ASSERT(t->rows_now <= t->rows_max && t->patch_rows <= t->sides_max);
    for (uint32_t i = 0; i < 3 * 256; i++) {
        double byte = i % 256, scaled = exl2__mul_double(byte, v->rescale) - v->mean[i / 256];
        t->level[i / 256][i % 256] = (float)(scaled / v->std[i / 256]);
    }
    exl2__tower_arrange(t);
    t->tile = t->layer = t->level_now = t->block = t->stage = t->item = 0;
    t->bad = 0;
    t->active = true;
}

/* The level that is projected after the current layer; 0: none. */
EXL2__PRIVATE uint32_t exl2__tower_level(const exl2__tower *t)
{
    for (uint32_t i = 1; i < t->config.levels; i++) {
        if (t->config.deep[i - 1] == t->layer) {
            return i;
        }
    }
    return 0;
}

/* Goes from a finished stage to the next one. */
EXL2__PRIVATE void exl2__tower_next(exl2__tower *t)
{
    exl2__tower_stage last = (exl2__tower_stage)t->stage, first = last;
    bool whole = last == EXL2__TOWER_ANGLES || last == EXL2__TOWER_ATTEND; /* it has no blocks */
    t->item = 0;
    switch (last) { /* the last stages of a block, and the first one of the next block */
    case EXL2__TOWER_PLACES:
        first = EXL2__TOWER_PATCHES;
        break;
    case EXL2__TOWER_STORE:
        first = EXL2__TOWER_NORM1;
        break;
    case EXL2__TOWER_DOWN:
        first = EXL2__TOWER_OUT_INPUT;
        break;
    case EXL2__TOWER_GIVE:
        first = EXL2__TOWER_COMBINE;
        break;
    default:
        t->stage++;
        t->block = whole ? 0 : t->block;
        return;
    }
    if (exl2__tower_block_row(t) + exl2__tower_block_rows(t) < (last == EXL2__TOWER_GIVE ? t->out_rows : t->rows_now)) {
        t->block++;
        t->stage = first;
        return;
    }
    t->block = 0;
    bool more = t->layer + 1 < t->config.layers;
    if (last == EXL2__TOWER_DOWN) {
        t->level_now = exl2__tower_level(t);
        t->stage = t->level_now || !more ? EXL2__TOWER_COMBINE : EXL2__TOWER_NORM1;
        t->layer += !t->level_now && more;
    } else if (last == EXL2__TOWER_GIVE && t->level_now) {
        t->level_now = 0;
        t->stage = more ? EXL2__TOWER_NORM1 : EXL2__TOWER_COMBINE;
        t->layer += more;
    } else if (last == EXL2__TOWER_GIVE) {
        t->layer = 0;
        t->stage = EXL2__TOWER_ANGLES;
        t->tile++;
    } else {
        t->stage++;
    }
}

/* One unit of about unit_ns nanoseconds; 0: as long as it takes. PENDING: there is more. OK: all rows are complete. An
   error: they are not finite. */
static inline exl2_result exl2__tower_step(exl2__tower *t, uint64_t unit_ns)
{
    uint64_t left = unit_ns;
    EXL2__ASSERT(t->active);
    for (bool first = true; t->tile < t->size.tiles && (first || !unit_ns || left > 0);) {
        exl2__tower_items items = exl2__tower_items_now(t);
        uint32_t end = items.count;
        float *known = &t->ns_per_cost[t->stage];
        uint64_t begin_ns = unit_ns ? exl2__platform_ns() : 0;
        if (unit_ns && t->item < end) {
            double item_ns = (double)items.cost * (double)(*known > 0 ? *known : EXL2__TOWER_FIRST_NS_PER_COST);
            double fit = (double)left / item_ns / (*known > 0 ? 1 : EXL2__TOWER_PROBE);
            if (fit < 1 && !first) {
                break;
            }
            end = fit < 1 ? t->item + 1 : fit < end - t->item ? t->item + (uint32_t)fit : end;
        }
        if (t->item < end) {
            exl2__tower_stage_run(t, &items, t->item, end);
            first = false;
        }
        if (unit_ns && t->item < end) {
            uint64_t ns = exl2__platform_ns() - begin_ns;
            float now = (float)((double)ns / ((double)items.cost * (end - t->item)));
            *known = *known > 0 ? *known + exl2__mul_float(0.25f, now - *known) : now;
            left = left > ns ? left - ns : 0;
        }
        t->item = end;
        if (end == items.count) {
            exl2__tower_next(t);
        }
    }
    if (t->tile < t->size.tiles) {
        return EXL2_PENDING;
    }
    t->active = false;
    return t->bad ? exl2__fail(t->c, EXL2_ERR_FORMAT, "the tower of %s gives rows of a picture that are not finite",
                               t->config.family)
                  : EXL2_OK;
}

#endif
#endif
