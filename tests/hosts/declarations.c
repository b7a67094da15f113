/* declarations.c: the header without the implementation, in a file of its own, as C11 and as C++11. */
#include "exl2.h"
#include "exl2.h"

#include <stdio.h>

int main(void)
{
    exl2_engine *engine = NULL;
    exl2_error error;
    exl2_engine_desc desc;
    char *zero = (char *)&desc;
    for (size_t i = 0; i < sizeof desc; i++) {
        zero[i] = 0;
    }
    desc.backend = EXL2_BACKEND_CPU;
    desc.open_error = &error;
    if (exl2_open(&desc, &engine) != EXL2_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    printf("exl2 %u\n", (unsigned)exl2_version());
    exl2_close(engine);
    return 0;
}
