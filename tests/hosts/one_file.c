/* A host in one file: the implementation, an engine with defaults, the version. */
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
    return 0;
}
