/* ids.c: see ids.h.
   takes: texts, files, the engine's tokenizer.
   gives: what ids.h declares. */
#include "ids.h"

#include "../common/memory.h"
#include "../common/text_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ids_from_commas(const char *text, ids *out)
{
    size_t cap = strlen(text) / 2 + 1;
    *out = (ids){ memory_take(cap, sizeof *out->items), 0 };
    for (const char *at = text;; at++) {
        int64_t value = 0;
        const char *start = at;
        while (*at >= '0' && *at <= '9' && value <= INT32_MAX) {
            value = value * 10 + (*at++ - '0');
        }
        if (at == start || value > INT32_MAX || (*at && *at != ',')) {
            out->count = 0;
            return false;
        }
        out->items[out->count++] = (exl2_token)value;
        if (!*at) {
            return true;
        }
    }
}

bool ids_from_json(const json_value *array, ids *out)
{
    *out = (ids){ NULL, 0 };
    if (!array || array->kind != JSON_ARRAY) {
        return false;
    }
    out->items = memory_take(array->child_count, sizeof *out->items);
    for (const json_value *item = array->child; item; item = item->next) {
        bool whole = item->kind == JSON_NUMBER && item->number >= INT32_MIN && item->number <= INT32_MAX &&
                     (double)(int32_t)item->number >= item->number && (double)(int32_t)item->number <= item->number;
        if (!whole) {
            out->count = 0;
            return false;
        }
        out->items[out->count++] = (exl2_token)item->number;
    }
    return true;
}

bool ids_from_json_file(const char *path, ids *out)
{
    size_t bytes;
    const char *error;
    *out = (ids){ NULL, 0 };
    char *text = text_file_read(path, &bytes);
    if (!text) {
        return false;
    }
    json_value *root = json_read(text, bytes, &error);
    bool good = ids_from_json(root, out);
    if (!good) {
        fprintf(stderr, "%s is not a JSON array of token ids%s%s\n", path, error ? ": " : "", error ? error : "");
    }
    json_free(root);
    free(text);
    return good;
}

exl2_result ids_from_text(exl2_engine *e, exl2_model m, const char *text, size_t bytes, uint32_t flags, ids *out)
{
    size_t need = bytes + 16; /* enough for every tokenizer whose tokens hold at least one byte */
    exl2_result result;
    *out = (ids){ NULL, 0 };
    do {
        size_t cap = need;
        out->items = memory_grow(out->items, cap, sizeof *out->items);
        result = exl2_tokenize(e, m, text, bytes, flags, out->items, cap, &need);
    } while (result == EXL2_ERR_TOO_SMALL);
    out->count = result >= 0 ? need : 0;
    return result;
}
