/* exchange.c: handing a vector over inside of a running kernel (exchange.cu): among the CTAs of a cluster through
   distributed shared memory, and among all SMs through L2, with and without weights on their way.
   takes: [KERNELS_SRC]; a GPU with clusters; NVRTC.
   gives: exit code 0, 1, or 77 without such a GPU; nanoseconds from one round to the next.

   A round is: make the own halves, send them, wait for all, check all. Every half of every round must be right. */
#include "rig.h"

#define ROUNDS 500u
#define NON_PORTABLE 14 /* CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: clusters of more than 8 CTAs */
#define CTAS_MAX 1024u
#define WEIGHT_BYTES (512ull << 20) /* more than L2 has */

typedef struct exchange_args { /* exl2k_exchange_args */
    uint64_t ns, wrong, slots, weights, weight_bytes;
    uint32_t halves, rounds, kilobytes, skip;
} exchange_args;

static rig_buffer ns, wrong, slots, weights;

/* Runs a kernel whose CTAs depend on each other. Returns the time of a round in nanoseconds. */
static double run(exl2__cuda_function *function, uint32_t ctas, uint32_t cluster, uint32_t halves, uint32_t kilobytes)
{
    static uint64_t times[CTAS_MAX];
    uint32_t bad = 0;
    uint64_t most = 0;
    exchange_args args = { .ns = ns.address, .wrong = wrong.address, .slots = slots.address,
                           .weights = weights.address, .weight_bytes = WEIGHT_BYTES, .halves = halves,
                           .rounds = ROUNDS, .kilobytes = kilobytes, .skip = 20 };
    void *arguments[1] = { &args };
    exl2__cuda_launch_attribute attribute = { .id = EXL2__CUDA_LAUNCH_COOPERATIVE, .value.on = 1 };
    if (cluster) {
        attribute = (exl2__cuda_launch_attribute){ .id = EXL2__CUDA_LAUNCH_CLUSTER, .value.xyz = { cluster, 1, 1 } };
    }
    exl2__cuda_launch launch = { { ctas, 1, 1 }, { 512, 1, 1 }, kilobytes << 10, rig.stream, &attribute, 1 };
    rig_poison(slots);
    rig_upload(wrong, 0, &bad, sizeof bad);
    rig_try(rig.driver.launch_with(&launch, function, arguments, NULL), "cuLaunchKernelEx");
    rig_wait();
    rig_download(wrong, 0, &bad, sizeof bad);
    CHECK_INT(bad, 0);
    rig_download(ns, 0, times, ctas * sizeof *times);
    for (uint32_t i = 0; i < ctas; i++) {
        most = exl2__max64(most, times[i]);
    }
    return (double)most / ROUNDS;
}

/* sleeps: CTAs sleep at random before they send, so that those that run ahead are far ahead; no figures. */
static void test(bool sleeps)
{
    static const uint32_t clustered[] = { 576, 1536, 4096 }, kilobytes[] = { 0, 24, 32 };
    rig_module m = rig_load("../tests/device/exchange.cu", sleeps ? "-DEXL2K_SLEEP=7" : NULL);
    exl2__cuda_function *cluster = rig_function(&m, "exl2k_exchange_cluster");
    exl2__cuda_function *grid = rig_function(&m, "exl2k_exchange_grid");
    bool large = rig.driver.function_set(cluster, NON_PORTABLE, 1) == 0;
    for (size_t i = 0; i < EXL2__COUNT(clustered) && large; i++) {
        double took = run(cluster, 16, 16, clustered[i], 0);
        if (!sleeps) {
            printf("%4u halves among the 16 CTAs of a cluster: %5.0f ns\n", clustered[i], took);
        }
    }
    for (size_t i = 0; i < EXL2__COUNT(kilobytes); i++) {
        double took = run(grid, (uint32_t)rig.sm_count, 0, 4096, kilobytes[i]);
        if (!sleeps) {
            printf("4096 halves among all SMs, %2u KiB an SM on their way: %5.0f ns\n", kilobytes[i], took);
        }
    }
    rig_unload(&m);
}

int main(int argc, char **argv)
{
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    if (rig.arch < 90 || !rig.driver.launch_with) {
        check_skip("no clusters on this GPU");
    }
    ns = rig_buffer_make(CTAS_MAX * sizeof(uint64_t));
    wrong = rig_buffer_make(sizeof(uint32_t));
    slots = rig_buffer_make(4 * 4096 * 2);
    weights = rig_buffer_make(WEIGHT_BYTES);
    test(false);
    test(true);
    rig_buffer_free(&weights);
    rig_buffer_free(&slots);
    rig_buffer_free(&wrong);
    rig_buffer_free(&ns);
    rig_close();
    return check_done();
}
