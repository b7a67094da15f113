/* exchange_cards.c: handing a vector over between two GPUs, inside of kernels that run on both at the same time
   (exchange_cards.cu): by stores to the other GPU's memory, and through pinned host memory.
   takes: [KERNELS_SRC]; two GPUs that reach each other's memory; NVRTC.
   gives: exit code 0, 1, or 77 without two such GPUs; microseconds from one round to the next.

   A round is: make the own half, send it, wait for the whole vector, check all of it. Every half of every round must be
   right, also where CTAs sleep at random. Gates: 8,192 halves in at most 4 us, 28,672 in at most 5, by the fastest way
   that does not pass host memory; above 6 us a split by columns is not worth its while. */
#include "rig.h"

#define ROUNDS 100000u
#define HOST_ROUNDS 5000u /* through host memory */
#define SKIP 100u
#define HALVES_MAX 28672u
#define SET_BYTES (HALVES_MAX * 2u)
#define CTAS_MAX 1024u
#define START_NS 10000000000ull

typedef struct exchange_args { /* exl2k_exchange_cards_args */
    uint64_t own, other, own_flags, other_flags, out_words, in_words, up, start, ns, wrong, late;
    uint32_t card, halves, rounds, skip;
} exchange_args;

typedef struct card {
    exl2__cuda_context *context;
    exl2__cuda_stream *stream;
    rig_buffer slots, flags, words, ns, counts;
    rig_module module;
    int device, sms;
} card;

typedef struct way {
    const char *kernel, *text;
    bool host; /* words pass host memory */
} way;

static card cards[2];
static volatile uint32_t *words_of_host; /* up of both GPUs, start */
static uint8_t *host;                    /* two GPUs' words */

/* The rig's calls work on GPU i from here on. */
static void turn_to(uint32_t i)
{
    exl2__cuda_context *popped;
    rig_try(rig.driver.context_pop(&popped), "cuCtxPopCurrent");
    rig_try(rig.driver.context_push(cards[i].context), "cuCtxPushCurrent");
    rig.context = cards[i].context;
    rig.stream = cards[i].stream;
}

static void open_second(void)
{
    int count = 0, can[2] = { 0, 0 }, least = 0, greatest = 0;
    rig_try(rig.driver.device_count(&count), "cuDeviceGetCount");
    if (count < 2 || !rig.driver.launch_with || !rig.driver.device_can_peer || !rig.driver.context_peer) {
        check_skip("no two GPUs");
    }
    cards[0] = (card){ .context = rig.context, .stream = rig.stream, .device = rig.device };
    rig_try(rig.driver.device_get(&cards[1].device, 1), "cuDeviceGet");
    rig_try(rig.driver.device_can_peer(&can[0], cards[0].device, cards[1].device), "cuDeviceCanAccessPeer");
    rig_try(rig.driver.device_can_peer(&can[1], cards[1].device, cards[0].device), "cuDeviceCanAccessPeer");
    if (!can[0] || !can[1]) {
        check_skip("the GPUs do not reach each other's memory");
    }
    rig_try(rig.driver.primary_retain(&cards[1].context, cards[1].device), "cuDevicePrimaryCtxRetain");
    rig_try(rig.driver.context_peer(cards[1].context, 0), "cuCtxEnablePeerAccess");
    rig_try(rig.driver.context_push(cards[1].context), "cuCtxPushCurrent");
    rig_try(rig.driver.priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange");
    rig_try(rig.driver.stream_make(&cards[1].stream, EXL2__CUDA_STREAM_NON_BLOCKING, least), "cuStreamCreate");
    rig_try(rig.driver.context_peer(cards[0].context, 0), "cuCtxEnablePeerAccess");
    turn_to(0);
}

static void open_memory(void)
{
    void *memory = NULL;
    rig_try(rig.driver.host_alloc(&memory, 4096, EXL2__CUDA_HOST_PORTABLE), "cuMemHostAlloc");
    words_of_host = (volatile uint32_t *)memory;
    rig_try(rig.driver.host_alloc(&memory, 2 * 2 * SET_BYTES, EXL2__CUDA_HOST_PORTABLE), "cuMemHostAlloc");
    host = (uint8_t *)memory;
    for (uint32_t i = 0; i < 2; i++) {
        card *c = &cards[i];
        turn_to(i);
        rig_try(rig.driver.device_attribute(&c->sms, EXL2__CUDA_SM_COUNT, c->device), "cuDeviceGetAttribute");
        c->slots = rig_buffer_make(4 * SET_BYTES);
        c->words = rig_buffer_make(2 * SET_BYTES);
        c->flags = rig_buffer_make(2 * 2 * CTAS_MAX * sizeof(uint32_t));
        c->ns = rig_buffer_make(CTAS_MAX * sizeof(uint64_t));
        c->counts = rig_buffer_make(2 * sizeof(uint32_t));
    }
}

static void close_all(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        rig_buffer *all[] = { &cards[i].slots, &cards[i].words, &cards[i].flags, &cards[i].ns, &cards[i].counts };
        turn_to(i);
        for (size_t k = 0; k < EXL2__COUNT(all); k++) {
            rig_buffer_free(all[k]);
        }
    }
    rig_try(rig.driver.stream_free(cards[1].stream), "cuStreamDestroy");
    turn_to(0);
    rig_try(rig.driver.primary_release(cards[1].device), "cuDevicePrimaryCtxRelease");
    rig_try(rig.driver.host_free(host), "cuMemFreeHost");
    rig_try(rig.driver.host_free((void *)(uintptr_t)words_of_host), "cuMemFreeHost");
}

/* Both kernels use as many CTAs as the smaller GPU has SMs. */
static uint32_t cta_count(void)
{
    return exl2__min32((uint32_t)(cards[0].sms < cards[1].sms ? cards[0].sms : cards[1].sms), CTAS_MAX);
}

static void start(uint32_t i, const way *w, uint32_t halves)
{
    const card *c = &cards[i], *other = &cards[1 - i];
    uint64_t words = (uint64_t)(uintptr_t)words_of_host, of_host = (uint64_t)(uintptr_t)host;
    exchange_args args = { .own = c->slots.address, .other = other->slots.address, .own_flags = c->flags.address,
                           .other_flags = other->flags.address,
                           .out_words = w->host ? of_host + i * 2 * SET_BYTES : other->words.address,
                           .in_words = w->host ? of_host + (1 - i) * 2 * SET_BYTES : c->words.address,
                           .up = words + 64 * i, .start = words + 128, .ns = c->ns.address,
                           .wrong = c->counts.address, .late = c->counts.address + 4, .card = i, .halves = halves,
                           .rounds = w->host ? HOST_ROUNDS : ROUNDS, .skip = SKIP };
    void *arguments[1] = { &args };
    exl2__cuda_launch_attribute attribute = { .id = EXL2__CUDA_LAUNCH_COOPERATIVE, .value.on = 1 };
    exl2__cuda_launch launch = { { cta_count(), 1, 1 }, { 544, 1, 1 }, 0, c->stream, &attribute, 1 };
    turn_to(i);
    rig_try(rig.driver.launch_with(&launch, rig_function(&c->module, w->kernel), arguments, NULL), "cuLaunchKernelEx");
}

/* Runs both kernels. Returns microseconds a round. */
static double run(const way *w, uint32_t halves)
{
    static uint64_t times[CTAS_MAX];
    const uint32_t none[2] = { 0, 0 };
    uint64_t most = 0;
    for (uint32_t i = 0; i < 2; i++) {
        turn_to(i);
        rig_poison(cards[i].slots);
        rig_poison(cards[i].words);
        rig_poison(cards[i].flags);
        rig_upload(cards[i].counts, 0, none, sizeof none);
    }
    memset(host, 0xFF, 2 * 2 * SET_BYTES);
    words_of_host[0] = words_of_host[16] = words_of_host[32] = 0;
    start(0, w, halves);
    start(1, w, halves);
    uint64_t end = exl2__platform_ns() + START_NS;
    while (exl2__platform_ns() < end && !(words_of_host[0] && words_of_host[16])) {
    }
    CHECK(words_of_host[0] && words_of_host[16]);
    words_of_host[32] = 1;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t counts[2];
        turn_to(i);
        rig_wait();
        rig_download(cards[i].counts, 0, counts, sizeof counts);
        CHECK_INT(counts[0], 0);
        CHECK_INT(counts[1], 0);
        rig_download(cards[i].ns, 0, times, cta_count() * sizeof *times);
        for (uint32_t k = 0; k < cta_count(); k++) {
            most = exl2__max64(most, times[k]);
        }
    }
    return (double)most / (w->host ? HOST_ROUNDS : ROUNDS) * 1e-3;
}

/* sleeps: CTAs sleep at random before they store; no gates. */
static void test(bool sleeps)
{
    static const way ways[] = { { "exl2k_exchange_flags", "flags of CTAs", false },
                                { "exl2k_exchange_data", "readiness in the halves", false },
                                { "exl2k_exchange_words", "words with a number, handed on", false },
                                { "exl2k_exchange_words", "the same through host memory", true } };
    static const uint32_t halves[] = { 8192, HALVES_MAX };
    static const double gates[] = { 4, 5 };
    for (uint32_t i = 0; i < 2; i++) {
        turn_to(i);
        cards[i].module = rig_load("../tests/device/exchange_cards.cu", sleeps ? "-DEXL2K_SLEEP=7" : NULL);
    }
    for (size_t h = 0; h < EXL2__COUNT(halves); h++) {
        double best = 1e9;
        for (size_t i = 0; i < EXL2__COUNT(ways); i++) {
            double us = run(&ways[i], halves[h]);
            printf("%5u halves%s, %-30s: %6.2f us\n", halves[h], sleeps ? " with sleeps" : "", ways[i].text, us);
            fflush(stdout);
            best = ways[i].host || us > best ? best : us;
        }
        if (!sleeps && !CHECK(best <= gates[h])) {
            printf("  %u halves need %.2f us, at most %.0f are allowed\n", halves[h], best, gates[h]);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        turn_to(i);
        rig_unload(&cards[i].module);
    }
}

int main(int argc, char **argv)
{
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    open_second();
    open_memory();
    test(false);
    test(true);
    close_all();
    rig_close();
    return check_done();
}
