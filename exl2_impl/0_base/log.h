/* log.h: log lines and profiler zones through the application's hooks. The engine never prints.
   takes: exl2__ctx.
   gives: exl2__log, exl2__zone_begin, exl2__zone_end, exl2__zone_unit. */
#ifndef EXL2__LOG_H
#define EXL2__LOG_H

#include "result.h"

EXL2__PRINTF(4, 5)
static inline void exl2__log(const exl2__ctx *c, exl2_log_level level, exl2_log_id id, const char *format, ...)
{
    exl2_log_level max_level = c->logger.max_level ? c->logger.max_level : EXL2_LOG_WARN;
    if (!c->logger.line || level > max_level) {
        return;
    }
    char text[248];
    va_list args;
    va_start(args, format);
    exl2__format_list(text, sizeof text, format, args);
    exl2__format_repair(text, sizeof text);
    va_end(args);
    c->logger.line(c->logger.user, level, id, EXL2_OK, text);
}

static inline void exl2__zone_begin(const exl2__ctx *c, const char *name)
{
    if (c->zones.begin) {
        c->zones.begin(c->zones.user, name);
    }
}

static inline void exl2__zone_end(const exl2__ctx *c)
{
    if (c->zones.end) {
        c->zones.end(c->zones.user);
    }
}

static inline void exl2__zone_unit(const exl2__ctx *c, const char *name, uint64_t predicted_ns, uint64_t ns)
{
    if (c->zones.unit) {
        c->zones.unit(c->zones.user, name, predicted_ns, ns);
    }
}

#endif
