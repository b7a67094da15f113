/* no_gptq.c: an application without GPTQ and AWQ: no_gptq MODEL REJECTED...: MODEL loads; the message of each other
   folder names the switch. */
#define EXL2_IMPLEMENTATION
#define EXL2_NO_GPTQ
#define EXL2_NO_CUDA
#include "exl2.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    exl2_engine *engine = NULL;
    exl2_engine_desc engine_desc = { .backend = EXL2_BACKEND_CPU };
    if (exl2_open(&engine_desc, &engine) != EXL2_OK || argc < 3) {
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        exl2_model model;
        exl2_model_desc desc = { .path = argv[i] };
        exl2_error error = { EXL2_OK, 0, "" };
        exl2_result wanted = i == 1 ? EXL2_OK : EXL2_ERR_UNSUPPORTED, result = exl2_model_load(engine, &desc, &model);
        exl2_last_error(engine, &error);
        if (result != wanted || (result < 0 && !strstr(error.text, "EXL2_NO_GPTQ"))) {
            printf("%s: %s, \"%s\"\n", argv[i], exl2_result_name(result), error.text);
            return 1;
        }
        printf("%s: %s\n", argv[i], result < 0 ? error.text : "loaded");
    }
    exl2_close(engine);
    return 0;
}
