/* adapters.h: adapters (LoRA) of the models: those that are loaded, and those that lie in the folder of --loras.
   takes: folders; calls.
   gives: adapters_ready, adapters_join, adapters_leave, adapters_gone, adapters_names, adapters_close;
          the handlers endpoint_loras, endpoint_lora, endpoint_lora_load, endpoint_lora_unload.
   owns:  the adapters of a model, and the requests that load some.

   The loaded set is what a request gets that names none. A request may name adapters of the set, also those with
   scaling 0, which it else leaves out. A new set replaces the old one when it is loaded; an old adapter is closed when
   the last request that uses it has ended. */
#ifndef DEMO_ADAPTERS_H
#define DEMO_ADAPTERS_H

#include "call.h"
#include "endpoints.h"

#define ADAPTERS_MAX 16u /* of a set */

/* For the desc of a model: room for a set and for the one that it replaces. */
#define ADAPTERS_ROOM (2 * ADAPTERS_MAX)
#define ADAPTERS_RANK 256u

/* on_news of a model that is ready: loads the adapters of --lora at the start, and those that a lost engine had. */
void adapters_ready(model *m);
/* Gives a call the adapters that its request names, or the model's set. */
void adapters_join(call *c, request_error *error);
void adapters_leave(call *c);
void adapters_gone(server *s, http_exchange *x);          /* on_gone: the load goes on */
void adapters_names(const model *m, buffer *out);         /* the set, as texts */
void adapters_close(server *s, model *m);                 /* after engine_close */

/* GET */
void endpoint_loras(const endpoint_request *r);
void endpoint_lora(const endpoint_request *r);
/* POST, for an admin */
void endpoint_lora_load(const endpoint_request *r);
void endpoint_lora_unload(const endpoint_request *r);

#endif
