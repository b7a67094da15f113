/* endpoints.h: which path is what, for whom, and the answers that need no job.
   takes: exchanges of http.h.
   gives: endpoint_limits, endpoints_head, endpoints_request, endpoints_again, endpoints_path, endpoint_*; the handlers
          of the files endpoints_*.c and loader.c.
   owns:  nothing. */
#ifndef DEMO_ENDPOINTS_H
#define DEMO_ENDPOINTS_H

#include "request.h"
#include "server.h"

typedef struct endpoint_request { /* what a handler gets */
    server *server;
    http_exchange *x;
    const http_request *http;
    const char *tail;   /* what follows the route's path, for routes that end in '/'; else "" */
    bool admin;         /* the key is an admin's */
    bool again;         /* of endpoints_again */
} endpoint_request;

typedef void (*endpoint_fn)(const endpoint_request *r);

/* on_head and on_request of http.h: the first refuses unknown paths, wrong methods and keys, before the body is
   read. */
void endpoints_head(server *s, http_exchange *x, const http_request *r);
void endpoints_request(server *s, http_exchange *x, const http_request *r);
void endpoints_again(server *s, http_exchange *x); /* runs the handler of a request that waited for a model */
/* The member `model` of the body, cut to fit. false: it names none. */
bool endpoint_names_model(const endpoint_request *r, char *name, size_t cap);
const char *endpoints_path(const char *path); /* the route's path, for figures; "other": none */

request_limits endpoint_limits(const server *s, const model *m); /* of requests to the model */

/* Answers. The text is JSON. */
void endpoint_json(const endpoint_request *r, int status, buffer *body); /* frees the body */
void endpoint_error(const endpoint_request *r, int status, const char *code, const char *message);
void endpoint_fail(http_exchange *x, int status, const char *code, const char *message); /* the same */
/* The tree of the body, which must be an object. NULL: an answer was given. json_free it after the body's last use. */
struct json_value *endpoint_body(const endpoint_request *r);
void endpoint_bad(http_exchange *x, const request_error *e); /* 400 */
void endpoint_ok(const endpoint_request *r);            /* 200 and null */
void endpoint_unsupported(const endpoint_request *r);   /* 501 */

/* endpoints_text.c */
void endpoint_encode(const endpoint_request *r);
void endpoint_decode(const endpoint_request *r);
void endpoint_count(const endpoint_request *r);

/* endpoints_info.c */
void endpoint_health(const endpoint_request *r);
void endpoint_models(const endpoint_request *r);
void endpoint_model_of(const endpoint_request *r);
void endpoint_model(const endpoint_request *r);
void endpoint_drafts(const endpoint_request *r);
void endpoint_props(const endpoint_request *r);
void endpoint_permission(const endpoint_request *r);
void endpoint_templates(const endpoint_request *r);
void endpoint_overrides(const endpoint_request *r);
void endpoint_metrics(const endpoint_request *r);
void endpoint_internal_model(const endpoint_request *r);

/* endpoints_overrides.c */
void endpoint_override_switch(const endpoint_request *r);
void endpoint_override_unload(const endpoint_request *r);
bool overrides_load(server *s, const char *path, uint32_t vocab, char *why, size_t cap); /* false: why says it */

/* endpoints_ui.c */
void endpoint_watch(const endpoint_request *r);
void endpoint_budget(const endpoint_request *r);
void endpoint_sessions(const endpoint_request *r);
void endpoint_session(const endpoint_request *r);
void endpoint_watch_gone(server *s, http_exchange *x);
void endpoint_watch_alarm(server *s);
void endpoint_watch_end(server *s);

/* loader.c */
void endpoint_load(const endpoint_request *r);
void endpoint_unload(const endpoint_request *r);
void endpoint_template_switch(const endpoint_request *r);
void endpoint_template_unload(const endpoint_request *r);
void loader_news(engine_load *l); /* on_news of every load */
void loader_gone(server *s, http_exchange *x);
/* --template FILE or the name of a file in the folder of models. false: message in why. */
bool loader_template(server *s, const char *name, char *why, size_t cap);

#endif
