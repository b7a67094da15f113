/* inline_load.h: --inline-load: a request of an admin that names a model of --models loads it, and waits for it.
   takes: requests to generate.
   gives: inline_load_wait, inline_load_look, inline_load_gone, inline_load_end, inline_load_close.
   owns:  the requests that wait.

   The first that waits has its turn when no request uses the present models any more: they are unloaded, and the new
   one is loaded. Until then, and while it loads, requests for other models get a 503, so that nobody waits for ever. */
#ifndef DEMO_INLINE_LOAD_H
#define DEMO_INLINE_LOAD_H

#include "endpoints.h"

/* true: the request waits, or an answer was given. */
bool inline_load_wait(const endpoint_request *r);
void inline_load_look(server *s); /* after news of models and calls: goes on with those that wait */
void inline_load_gone(server *s, http_exchange *x); /* on_gone; a load that has begun goes on */
void inline_load_end(server *s, const char *why);   /* answers all that wait */
void inline_load_close(server *s);                  /* frees them without an answer */

#endif
