/* steers.h: control vectors that a command line names: --steer FILE[:FACTOR].
   takes: texts of the flag; a loaded model.
   gives: steers, steers_load.
   owns:  nothing. */
#ifndef DEMO_STEERS_H
#define DEMO_STEERS_H

#include "args.h"

#include "../../exl2.h"

typedef struct steers { /* of a job */
    exl2_steer_use uses[EXL2_JOB_STEERS];
    uint32_t count;
} steers;

/* Makes all of them in a model whose desc had steer_max for so many; the factor is written as a scale of --lora. false,
   with a message printed: too many for a job, or one of them failed. */
bool steers_load(exl2_engine *e, exl2_model model, const arg_texts *texts, steers *out);

#endif
