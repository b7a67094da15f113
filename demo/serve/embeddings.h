/* embeddings.h: /v1/embeddings: vectors of texts, as OpenAI has it.
   takes: an exchange with its body; records of the engine's thread.
   gives: endpoint_embeddings; embeddings_record, embeddings_records_end, embeddings_gone, embeddings_end_all.
   owns:  the requests, until their runs have ended. */
#ifndef DEMO_EMBEDDINGS_H
#define DEMO_EMBEDDINGS_H

#include "endpoints.h"

typedef struct embeddings embeddings; /* a request; its first member is its owner */

void endpoint_embeddings(const endpoint_request *r);
void embeddings_record(engine_run *run, const engine_record *r); /* of a run whose desc.embed.pool is set */
void embeddings_records_end(engine_run *run);                    /* after its last record; may free the request */
void embeddings_gone(embeddings *e);                             /* on_gone: the exchange is invalid */
void embeddings_end_all(server *s, const char *why);             /* fails all requests: the server stops */

#endif
