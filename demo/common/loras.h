/* loras.h: adapters that a command line names: --lora FOLDER[:SCALE].
   takes: texts of the flag; a loaded model.
   gives: loras, loras_split, loras_plan, loras_load.
   owns:  nothing. */
#ifndef DEMO_LORAS_H
#define DEMO_LORAS_H

#include "args.h"

#include "../../exl2.h"

#define LORAS_PATH 1024

typedef struct loras { /* of a job */
    exl2_lora_use uses[EXL2_JOB_LORAS];
    uint32_t count;
} loras;

/* Divides a text. The part after the last colon is a scale if it is a whole number or a decimal, so "C:\x" has none;
   scale 0 is EXL2_OFF. false: the path is too long. */
bool loras_split(const char *text, char path[LORAS_PATH], float *scale);
/* Raises the desc's lora_max by `count` adapters, of any rank. */
void loras_plan(exl2_model_desc *d, uint32_t count);
/* Loads all of them into a model. false, with a message printed: too many for a job, the same one twice, or one of them
   failed. Warnings of their files go to stderr. */
bool loras_load(exl2_engine *e, exl2_model model, const arg_texts *texts, loras *out);

#endif
