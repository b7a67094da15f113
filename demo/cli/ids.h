/* ids.h: makes lists of token ids from flags, files and text.
   takes: "1,2,3", a JSON array, a text.
   gives: ids_from_commas, ids_from_json_file, ids_from_text, ids_from_json.
   owns:  nothing; the caller frees a list's items. */
#ifndef DEMO_CLI_IDS_H
#define DEMO_CLI_IDS_H

#include "../common/json_in.h"
#include "exl2.h"

typedef struct ids {
    exl2_token *items; /* [count]; free() it, also after a failure */
    size_t count;
} ids;

/* If these fail, *out is empty. ids_from_json_file prints a message to stderr; for the others the caller does. */
bool ids_from_commas(const char *text, ids *out);
bool ids_from_json(const json_value *array, ids *out);    /* false: NULL, or no array of integers */
bool ids_from_json_file(const char *path, ids *out);
exl2_result ids_from_text(exl2_engine *e, exl2_model m, const char *text, size_t bytes, uint32_t flags, ids *out);

#endif
