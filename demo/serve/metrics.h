/* metrics.h: the server's own figures, and /metrics in the text form of Prometheus.
   takes: what the I/O thread sees; engine_watch.
   gives: metrics_add, metrics_count, metrics_write.
   owns:  nothing. */
#ifndef DEMO_METRICS_H
#define DEMO_METRICS_H

#include "server.h"

void metrics_add(histogram *h, double seconds);
void metrics_count(metrics *m, const char *path, int status); /* path: a constant */
void metrics_write(server *s, buffer *out);
uint64_t metrics_resident_bytes(void); /* of the process; 0: not known */

#endif
