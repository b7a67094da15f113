/* loras.c: see loras.h.
   takes: a command line's texts.
   gives: what loras.h declares. */
#include "loras.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is it a number such as 2, -0.5 or .25? */
static bool is_scale(const char *text)
{
    const char *digits = text + (*text == '-' || *text == '+');
    size_t whole = strspn(digits, "0123456789"), dot = digits[whole] == '.';
    size_t rest = dot ? strspn(digits + whole + 1, "0123456789") : 0;
    return whole + rest > 0 && digits[whole + dot + rest] == 0;
}

bool loras_split(const char *text, char path[LORAS_PATH], float *scale)
{
    const char *colon = strrchr(text, ':');
    bool scaled = colon && is_scale(colon + 1);
    size_t bytes = scaled ? (size_t)(colon - text) : strlen(text);
    *scale = scaled ? strtof(colon + 1, NULL) : 1;
    if (*scale >= 0 && *scale <= 0) {
        *scale = EXL2_OFF;
    } else if (*scale <= EXL2_OFF) { /* out of range, as the engine says then, and not left out */
        *scale = EXL2_OFF - 1;
    }
    snprintf(path, LORAS_PATH, "%.*s", (int)bytes, text);
    return bytes < LORAS_PATH;
}

void loras_plan(exl2_model_desc *d, uint32_t count)
{
    d->lora_max += count;
    d->lora_rank_max = d->lora_max ? 256 : 0;
}

/* The adapter before this one with the same content_id, under whatever path; NULL: there is none. A job would add it
   twice. */
static const char *find_twin(exl2_engine *e, const arg_texts *texts, const loras *before, const exl2_lora_info *info)
{
    exl2_lora_info other;
    for (uint32_t i = 0; i < before->count; i++) {
        if (exl2_lora_get(e, before->uses[i].lora, &other) >= 0
            && memcmp(other.content_id, info->content_id, sizeof other.content_id) == 0) {
            return texts->items[i];
        }
    }
    return NULL;
}

bool loras_load(exl2_engine *e, exl2_model model, const arg_texts *texts, loras *out)
{
    exl2_error error = { EXL2_OK, 0, "" };
    out->count = 0;
    if (texts->count > EXL2_JOB_LORAS) {
        fprintf(stderr, "a job has at most %d adapters, but --lora is given %u times\n", EXL2_JOB_LORAS, texts->count);
        return false;
    }
    for (uint32_t i = 0; i < texts->count; i++) {
        exl2_lora_use *use = &out->uses[out->count];
        char path[LORAS_PATH];
        exl2_lora_desc d = { .model = model, .path = path };
        exl2_lora_info info;
        if (!loras_split(texts->items[i], path, &use->scale)) {
            fprintf(stderr, "the path of --lora is longer than %d bytes\n", LORAS_PATH - 1);
            return false;
        }
        if (exl2_lora_load(e, &d, &use->lora) < 0 || exl2_lora_get(e, use->lora, &info) < 0) {
            exl2_last_error(e, &error);
            fprintf(stderr, "--lora %s: %s\n", path, error.text);
            return false;
        }
        const char *twin = find_twin(e, texts, out, &info);
        if (twin) {
            fprintf(stderr, "--lora %s: this is the adapter of --lora %s: name it once\n", texts->items[i], twin);
            return false;
        }
        if (info.warning[0]) {
            fprintf(stderr, "warning: --lora %s: %s\n", path, info.warning);
        }
        out->count++;
    }
    return true;
}
