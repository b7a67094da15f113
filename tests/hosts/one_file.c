/* one_file.c: an application in one file: the implementation, an engine with defaults, the version; without CUDA, the
   error for it. */
#define EXL2_IMPLEMENTATION
#include "exl2.h"

#include <stdio.h>

int main(void)
{
    exl2_engine *engine = NULL;
    exl2_result result = exl2_open(NULL, &engine);
    if (result != EXL2_OK || exl2_version() != EXL2_VERSION) {
        printf("exl2_open gave %s\n", exl2_result_name(result));
        return 1;
    }
    printf("exl2 %u\n", (unsigned)exl2_version());
    exl2_close(engine);
#ifdef EXL2_NO_CUDA
    exl2_error error = { EXL2_OK, 0, "" };
    exl2_engine_desc desc = { .backend = EXL2_BACKEND_CUDA, .open_error = &error };
    uint32_t devices = 9;
    if (exl2_open(&desc, &engine) != EXL2_ERR_UNSUPPORTED || exl2_devices(NULL, 0, &devices) != EXL2_OK || devices) {
        return 1;
    }
    printf("%s\n", error.text);
#endif
    return 0;
}
