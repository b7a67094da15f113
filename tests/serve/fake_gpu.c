/* fake_gpu.c: `exl2 serve` over the fake driver. A line on stdin loses the device, for good.
   takes: arguments of exl2, the first one "serve"; lines of stdin.
   gives: the exit code of the server. */
#include "../device/fake_model.h"

#include "../../demo/serve/serve.h"

#include <pthread.h>

static void *lose(void *user)
{
    (void)user;
    if (getchar() != EOF) {
        fake.lost = EXL2__CUDA_UNKNOWN;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    machine_make();
    fake.run = fake_model_run;
    if (argc < 2 || pthread_create(&thread, NULL, lose, NULL) != 0) {
        return 1;
    }
    int code = cli_serve(argc - 2, argv + 2);
    fflush(stdout);
    _Exit(code); /* the thread may still wait for a line */
}
