/* double_rounded.c: cpu_double.c compiled a second time, with weights rounded to fp16. */
#define EXL2__TEST_F16_WEIGHTS
#define cpu_double_backend cpu_rounded_backend
#define cpu_double_look cpu_rounded_look
#define cpu_double_look_routed cpu_rounded_look_routed
#define cpu_double_choose cpu_rounded_choose
#include "../unit/cpu_double.c"
