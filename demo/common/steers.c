/* steers.c: see steers.h.
   takes: a command line's texts.
   gives: what steers.h declares. */
#include "steers.h"

#include "loras.h"

#include <stdio.h>

bool steers_load(exl2_engine *e, exl2_model model, const arg_texts *texts, steers *out)
{
    exl2_error error = { EXL2_OK, 0, "" };
    out->count = 0;
    if (texts->count > EXL2_JOB_STEERS) {
        fprintf(stderr, "a job has at most %d control vectors, but --steer is given %u times\n", EXL2_JOB_STEERS,
                texts->count);
        return false;
    }
    for (uint32_t i = 0; i < texts->count; i++) {
        exl2_steer_use *use = &out->uses[out->count];
        char path[LORAS_PATH];
        exl2_steer_desc d = { .model = model, .path = path };
        if (!loras_split(texts->items[i], path, &use->factor)) {
            fprintf(stderr, "the path of --steer is longer than %d bytes\n", LORAS_PATH - 1);
            return false;
        }
        if (exl2_steer_make(e, &d, &use->steer) < 0) {
            exl2_last_error(e, &error);
            fprintf(stderr, "--steer %s: %s\n", path, error.text);
            return false;
        }
        out->count++;
    }
    return true;
}
