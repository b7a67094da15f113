/* models.h: the models that are loaded, and those that lie in the folder of --models.
   takes: folders.
   gives: models_load, models_unload, models_sweep, models_close, models_first, models_find, models_embedder,
          models_all_ready, models_loading, models_lists, models_in, models_folder_has, models_list,
          models_card, models_name.
   owns:  the models of a server. */
#ifndef DEMO_MODELS_H
#define DEMO_MODELS_H

#include "server.h"

#define MODELS_PATH_MAX 2048

typedef struct models_desc { /* how to load one; zeroed but for the path: as the command line says */
    const char *path, *draft; /* folders */
    uint32_t context;
    uint64_t cache_tokens;
    const char *cache_mode;   /* "FP16", "Q8", "Q6", "Q4"; NULL: as --cache says */
    uint32_t batch;
    float rope_scale, rope_alpha;
    bool embeds;              /* for /v1/embeddings alone */
} models_desc;

/* Begins to load it. NULL: there is no memory, or the server has SERVER_MODELS_MAX. */
model *models_load(server *s, const models_desc *d);
void models_unload(model *m); /* begins; its calls end with an error */
/* Frees models that are unloaded and that no call names. */
void models_sweep(server *s);
const char *models_template(const server *s, const model *m); /* in use: --template or the model's; NULL: none */
void models_close(server *s); /* after engine_close */

model *models_first(const server *s); /* the first that is ready; NULL: none */
/* The model that a request names; name NULL: the first. NULL: *status is 503 (none is ready) or 404, and `why` lists
   the names. With one model every name is taken. */
model *models_find(const server *s, const char *name, int *status, char *why, size_t cap);
/* The model of /v1/embeddings: the loaded one of that name, else that of --embeddings, else the first. NULL: none is
   ready. name may be NULL. */
model *models_embedder(const server *s, const char *name);
bool models_all_ready(const server *s);
bool models_loading(const server *s);

/* Does the folder have an entry of this name? By comparison with the listing. A NULL folder has none. */
bool models_lists(const char *folder, const char *name);
/* The folder below `folder` that has this name, by comparison with the listing, and this file; its path in out. A NULL
   folder has none. The second one is for a name that comes from the listing. */
bool models_in(const char *folder, const char *name, const char *file, char *out, size_t cap);
bool models_folder_has(const char *folder, const char *name, const char *file, char *out, size_t cap);
/* {"object":"list","data":[...]}: the loaded models, with all the others of --models for an admin. */
void models_list(const server *s, bool admin, buffer *out);
void models_card(const model *m, buffer *out, const char *key); /* with parameters */
/* The folder's name: the last part of a path. The caller frees it. */
char *models_name(const char *path);

#endif
