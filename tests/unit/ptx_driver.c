/* ptx_driver.c: the driver that runs PTX on the CPU (tests/ptx): order of streams, events and graphs, kernels of two
   GPUs that wait for each other, and that wrong accesses, copies, launches and endless waits are found.
   takes: kernels in PTX, below.
   gives: exit code. */
#include "../ptx/ptx_driver.h"

#include "../check.h"

#define WORDS 1000u
#define LOST 719
#define HANGS 702
#define INVALID_VALUE 1

/* add: data[i] += value for i < count. meet: `rounds` times, this GPU sets the other one's word and waits for its own.
   give: lets the next kernel start, and sets data[0] to 1 much later. take and snatch: copy data[0] to data[1], after
   waiting for the kernels before, or without. gather: each CTA counts itself in data[0] and waits for `count` CTAs.
   arrive: CTA i sets data[1 + i] to the number of CTAs before it. */
static const char text[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry gather(.param .align 8 .b8 gather_param_0[16])\n"
    "{\n"
    "\t.reg .pred %p<2>;\n\t.reg .b32 %r<4>;\n\t.reg .b64 %rd<2>;\n"
    "\tld.param.u64 %rd1, [gather_param_0];\n"
    "\tld.param.u32 %r1, [gather_param_0+8];\n"
    "\tatom.global.add.u32 %r2, [%rd1], 1;\n"
    "$L__BB3_1:\n"
    "\tld.acquire.gpu.global.u32 %r3, [%rd1];\n"
    "\tsetp.lt.u32 %p1, %r3, %r1;\n"
    "\t@%p1 bra $L__BB3_1;\n"
    "\tret;\n"
    "}\n"
    ".visible .entry give(.param .align 8 .b8 give_param_0[16])\n"
    "{\n"
    "\t.reg .pred %p<2>;\n\t.reg .b32 %r<3>;\n\t.reg .b64 %rd<2>;\n"
    "\tld.param.u64 %rd1, [give_param_0];\n"
    "\tgriddepcontrol.launch_dependents;\n"
    "\tmov.u32 %r1, 0;\n"
    "$L__BB2_1:\n"
    "\tadd.s32 %r1, %r1, 1;\n"
    "\tsetp.lt.u32 %p1, %r1, 20000;\n"
    "\t@%p1 bra $L__BB2_1;\n"
    "\tmov.u32 %r2, 1;\n"
    "\tst.global.u32 [%rd1], %r2;\n"
    "\tret;\n"
    "}\n"
    ".visible .entry take(.param .align 8 .b8 take_param_0[16])\n"
    "{\n"
    "\t.reg .b32 %r<2>;\n\t.reg .b64 %rd<2>;\n"
    "\tld.param.u64 %rd1, [take_param_0];\n"
    "\tgriddepcontrol.wait;\n"
    "\tld.global.u32 %r1, [%rd1];\n\tst.global.u32 [%rd1+4], %r1;\n"
    "\tret;\n"
    "}\n"
    ".visible .entry snatch(.param .align 8 .b8 snatch_param_0[16])\n"
    "{\n"
    "\t.reg .b32 %r<2>;\n\t.reg .b64 %rd<2>;\n"
    "\tld.param.u64 %rd1, [snatch_param_0];\n"
    "\tld.global.u32 %r1, [%rd1];\n\tst.global.u32 [%rd1+4], %r1;\n"
    "\tret;\n"
    "}\n"
    ".visible .entry arrive(.param .align 8 .b8 arrive_param_0[16])\n"
    "{\n"
    "\t.reg .b32 %r<3>;\n\t.reg .b64 %rd<4>;\n"
    "\tld.param.u64 %rd1, [arrive_param_0];\n"
    "\tmov.u32 %r1, %ctaid.x;\n\tmul.wide.u32 %rd2, %r1, 4;\n\tadd.s64 %rd3, %rd1, %rd2;\n"
    "\tatom.global.add.u32 %r2, [%rd1], 1;\n"
    "\tst.global.u32 [%rd3+4], %r2;\n"
    "\tret;\n"
    "}\n"
    ".visible .entry add(.param .align 8 .b8 add_param_0[16])\n"
    "{\n"
    "\t.reg .pred %p<2>;\n\t.reg .b32 %r<7>;\n\t.reg .b64 %rd<4>;\n"
    "\tld.param.u64 %rd1, [add_param_0];\n"
    "\tld.param.u32 %r1, [add_param_0+8];\n"
    "\tld.param.u32 %r2, [add_param_0+12];\n"
    "\tmov.u32 %r3, %ctaid.x;\n\tmov.u32 %r4, %ntid.x;\n\tmov.u32 %r5, %tid.x;\n"
    "\tmad.lo.s32 %r3, %r3, %r4, %r5;\n"
    "\tsetp.ge.u32 %p1, %r3, %r1;\n"
    "\t@%p1 bra $L__BB0_2;\n"
    "\tmul.wide.u32 %rd2, %r3, 4;\n\tadd.s64 %rd3, %rd1, %rd2;\n"
    "\tld.global.u32 %r6, [%rd3];\n\tadd.s32 %r6, %r6, %r2;\n\tst.global.u32 [%rd3], %r6;\n"
    "$L__BB0_2:\n\tret;\n"
    "}\n"
    ".visible .entry meet(.param .align 8 .b8 meet_param_0[24])\n"
    "{\n"
    "\t.reg .pred %p<3>;\n\t.reg .b32 %r<4>;\n\t.reg .b64 %rd<3>;\n"
    "\tld.param.u64 %rd1, [meet_param_0];\n"
    "\tld.param.u64 %rd2, [meet_param_0+8];\n"
    "\tld.param.u32 %r1, [meet_param_0+16];\n"
    "\tmov.u32 %r2, 0;\n"
    "$L__BB1_1:\n"
    "\tadd.s32 %r2, %r2, 1;\n"
    "\tst.relaxed.sys.global.u32 [%rd2], %r2;\n"
    "$L__BB1_2:\n"
    "\tld.acquire.sys.global.u32 %r3, [%rd1];\n"
    "\tsetp.lt.u32 %p1, %r3, %r2;\n"
    "\t@%p1 bra $L__BB1_2;\n"
    "\tsetp.lt.u32 %p2, %r2, %r1;\n"
    "\t@%p2 bra $L__BB1_1;\n"
    "\tret;\n"
    "}\n";

typedef struct add_args {
    uint64_t data;
    uint32_t count, value;
} add_args;

typedef struct meet_args {
    uint64_t own, other;
    uint32_t rounds, pad;
} meet_args;

static exl2__cuda_driver driver;

typedef struct card { /* a GPU with what each test needs of it */
    exl2__cuda_context *context;
    exl2__cuda_stream *streams[2];
    exl2__cuda_module *module;
    exl2__cuda_function *add, *meet;
    uint64_t data;
} card;

static exl2__cuda_context *popped;

static void card_open(card *c, int device)
{
    CHECK_INT(driver.primary_retain(&c->context, device), 0);
    CHECK_INT(driver.context_push(c->context), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(driver.stream_make(&c->streams[i], EXL2__CUDA_STREAM_NON_BLOCKING, 0), 0);
    }
    CHECK_INT(driver.module_load(&c->module, text, 0, NULL, NULL), 0);
    CHECK_INT(driver.module_function(&c->add, c->module, "add"), 0);
    CHECK_INT(driver.module_function(&c->meet, c->module, "meet"), 0);
    CHECK_INT(driver.memory_alloc(&c->data, WORDS * 4), 0);
    CHECK_INT(driver.fill32(c->data, 0, WORDS, c->streams[0]), 0);
    CHECK_INT(driver.stream_wait(c->streams[0]), 0);
    CHECK_INT(driver.context_pop(&popped), 0);
}

/* Also of a lost GPU. */
static void card_close(card *c, int device)
{
    CHECK_INT(driver.context_push(c->context), 0);
    CHECK_INT(driver.memory_free(c->data), 0);
    CHECK_INT(driver.module_unload(c->module), 0);
    CHECK_INT(driver.stream_free(c->streams[0]), 0);
    CHECK_INT(driver.stream_free(c->streams[1]), 0);
    CHECK_INT(driver.context_pop(&popped), 0);
    CHECK_INT(driver.primary_release(device), 0);
}

/* Launches `add` for all words of the card. */
static int add(const card *c, int stream, uint32_t count, uint32_t value)
{
    add_args a = { c->data, count, value };
    void *arguments[] = { &a };
    return driver.launch(c->add, (count + 127) / 128, 1, 1, 128, 1, 1, 0, c->streams[stream], arguments, NULL);
}

static int meet(const card *c, int stream, const card *other, uint32_t rounds)
{
    meet_args a = { c->data, other->data, rounds, 0 };
    void *arguments[] = { &a };
    return driver.launch(c->meet, 1, 1, 1, 32, 1, 1, 0, c->streams[stream], arguments, NULL);
}

static void check_words(const card *c, uint32_t wanted)
{
    uint32_t words[WORDS], wrong = 0;
    CHECK_INT(driver.copy_down(words, c->data, sizeof words, c->streams[0]), 0);
    for (uint32_t i = 0; i < WORDS; i++) {
        wrong += words[i] != wanted;
    }
    CHECK_INT(wrong, 0);
}

/* Launches, copies of pinned memory and of pageable memory happen in order, and not before a call waits. */
static void test_order(void)
{
    card c = { 0 };
    uint32_t *pinned = NULL, pageable[WORDS], words[WORDS];
    card_open(&c, 0);
    CHECK_INT(driver.context_push(c.context), 0);
    CHECK_INT(driver.host_alloc((void **)&pinned, WORDS * 4, 0), 0);
    memset(pageable, 0, sizeof pageable);
    memset(pinned, 0, WORDS * 4);
    CHECK_INT(driver.copy_up(c.data, pageable, sizeof pageable, c.streams[0]), 0);
    memset(pageable, 1, sizeof pageable); /* too late: it was read at once */
    CHECK_INT(add(&c, 0, WORDS, 5), 0);
    CHECK_INT(driver.copy_down(pinned, c.data, WORDS * 4, c.streams[0]), 0);
    CHECK_INT(pinned[7], 0);
    CHECK_INT(driver.stream_query(c.streams[1]), 0);
    CHECK_INT(driver.stream_wait(c.streams[0]), 0);
    CHECK_INT(pinned[7], 5);
    CHECK_INT(driver.copy_up(c.data, pinned, WORDS * 4, c.streams[0]), 0);
    pinned[7] = 6; /* in time: pinned memory is read when the copy runs */
    CHECK_INT(driver.copy_down(words, c.data, sizeof words, c.streams[0]), 0);
    CHECK_INT(words[7], 6);
    CHECK_INT(words[8], 5);
    CHECK_INT(driver.host_free(pinned), 0);
    CHECK_INT(driver.context_pop(&popped), 0);
    card_close(&c, 0);
}

/* A stream waits for an event of another one, and events say what is done. */
static void test_events(void)
{
    card c = { 0 };
    exl2__cuda_event *event = NULL, *never = NULL;
    card_open(&c, 0);
    CHECK_INT(driver.context_push(c.context), 0);
    CHECK_INT(driver.event_make(&event, EXL2__CUDA_EVENT_NO_TIMING), 0);
    CHECK_INT(driver.event_make(&never, EXL2__CUDA_EVENT_NO_TIMING), 0);
    CHECK_INT(driver.event_query(event), 0);
    CHECK_INT(driver.fill32(c.data, 1, WORDS, c.streams[0]), 0);
    for (int i = 0; i < 20; i++) {
        CHECK_INT(add(&c, 0, WORDS, 1), 0);
    }
    CHECK_INT(driver.event_record(event, c.streams[0]), 0);
    CHECK_INT(driver.stream_wait_event(c.streams[1], event, 0), 0);
    CHECK_INT(driver.stream_wait_event(c.streams[1], never, 0), 0);
    CHECK_INT(driver.fill32(c.data, 100, WORDS, c.streams[1]), 0);
    CHECK_INT(driver.event_query(event), EXL2__CUDA_NOT_READY);
    CHECK_INT(driver.stream_wait(c.streams[1]), 0);
    CHECK_INT(driver.event_query(event), 0);
    check_words(&c, 100);
    CHECK_INT(driver.event_free(event), 0);
    CHECK_INT(driver.event_free(never), 0);
    CHECK(driver.event_query(event) != 0);
    CHECK_INT(driver.context_pop(&popped), 0);
    card_close(&c, 0);
}

/* A graph replays its launches with the arguments that they had. */
static void test_graphs(void)
{
    card c = { 0 };
    exl2__cuda_graph *graph = NULL;
    exl2__cuda_graph_exec *exec = NULL;
    card_open(&c, 0);
    CHECK_INT(driver.context_push(c.context), 0);
    CHECK_INT(driver.capture_begin(c.streams[0], EXL2__CUDA_CAPTURE_RELAXED), 0);
    CHECK_INT(add(&c, 0, WORDS, 2), 0);
    CHECK_INT(add(&c, 0, WORDS, 3), 0);
    CHECK(driver.stream_wait(c.streams[0]) != 0);
    CHECK_INT(driver.capture_end(c.streams[0], &graph), 0);
    CHECK_INT(driver.graph_make(&exec, graph, 0), 0);
    CHECK_INT(driver.graph_free(graph), 0);
    check_words(&c, 0);
    CHECK_INT(driver.graph_launch(exec, c.streams[0]), 0);
    CHECK_INT(driver.graph_launch(exec, c.streams[0]), 0);
    check_words(&c, 10);
    CHECK_INT(driver.graph_exec_free(exec), 0);
    CHECK_INT(driver.context_pop(&popped), 0);
    card_close(&c, 0);
}

/* Kernels of two GPUs, and of two streams of one, set each other's words and wait for them. */
static void test_meetings(void)
{
    card cards[2] = { { 0 }, { 0 } };
    card_open(&cards[0], 0);
    card_open(&cards[1], 1);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(driver.context_push(cards[i].context), 0);
        CHECK_INT(driver.context_peer(cards[1 - i].context, 0), 0);
        CHECK_INT(driver.context_peer(cards[1 - i].context, 0), EXL2__CUDA_PEER_ENABLED);
        CHECK_INT(meet(&cards[i], 0, &cards[1 - i], 100), 0);
        CHECK_INT(driver.context_pop(&popped), 0);
    }
    CHECK_INT(driver.stream_wait(cards[0].streams[0]), 0);
    CHECK_INT(driver.stream_wait(cards[1].streams[0]), 0);
    uint32_t word = 0;
    CHECK_INT(driver.context_push(cards[1].context), 0);
    CHECK_INT(driver.copy_down(&word, cards[0].data, sizeof word, cards[1].streams[0]), 0);
    CHECK_INT(driver.context_pop(&popped), 0);
    CHECK_INT(word, 100);
    card_close(&cards[0], 0);
    card_close(&cards[1], 1);
}

/* Launches `give` and then the kernel, programmatically or not; returns what that kernel read. */
static uint32_t after_give(const card *c, const char *name, int programmatic)
{
    exl2__cuda_function *give = NULL, *next = NULL;
    add_args a = { c->data, 0, 0 };
    void *arguments[] = { &a };
    uint32_t word = 9;
    CHECK_INT(driver.module_function(&give, c->module, "give"), 0);
    CHECK_INT(driver.module_function(&next, c->module, name), 0);
    CHECK_INT(driver.fill8(c->data, 0, 8, c->streams[0]), 0);
    exl2__cuda_launch_attribute attribute = { .id = EXL2__CUDA_LAUNCH_PROGRAMMATIC, .value = { .on = programmatic } };
    exl2__cuda_launch l = { { 1, 1, 1 }, { 32, 1, 1 }, 0, c->streams[0], &attribute, 1 };
    CHECK_INT(driver.launch_with(&l, give, arguments, NULL), 0);
    CHECK_INT(driver.launch_with(&l, next, arguments, NULL), 0);
    CHECK_INT(driver.copy_down(&word, c->data + 4, sizeof word, c->streams[0]), 0);
    return word;
}

/* A programmatic launch begins before the one before it has ended, and waits where it says so. */
static void test_programmatic(void)
{
    card c = { 0 };
    card_open(&c, 0);
    CHECK_INT(driver.context_push(c.context), 0);
    CHECK_INT(after_give(&c, "take", 0), 1);
    CHECK_INT(after_give(&c, "take", 1), 1);
    CHECK_INT(after_give(&c, "snatch", 0), 1);
    CHECK_INT(after_give(&c, "snatch", 1), 0);
    CHECK_INT(driver.context_pop(&popped), 0);
    card_close(&c, 0);
}

/* Copies, fills, frees and launches that a GPU rejects. */
static void test_rejected(void)
{
    card c = { 0 }, other = { 0 };
    uint32_t words[WORDS] = { 0 };
    uint64_t freed = 0;
    card_open(&c, 0);
    card_open(&other, 1);
    CHECK_INT(driver.context_push(c.context), 0);
    CHECK_INT(driver.copy_up(c.data + 4, words, sizeof words, c.streams[0]), INVALID_VALUE);
    CHECK_INT(driver.copy_down(words, c.data - 4, 8, c.streams[0]), INVALID_VALUE);
    CHECK_INT(driver.fill8(c.data, 0, WORDS * 4 + 1, c.streams[0]), INVALID_VALUE);
    CHECK_INT(driver.fill32(c.data + 2, 0, 1, c.streams[0]), INVALID_VALUE);
    CHECK_INT(driver.copy(c.data, other.data, 4, c.streams[0]), INVALID_VALUE);
    CHECK_INT(driver.copy_peer(c.data, other.context, other.data, c.context, 4, c.streams[0]), INVALID_VALUE);
    CHECK_INT(driver.memory_alloc(&freed, 100), 0);
    CHECK_INT(driver.memory_free(freed), 0);
    CHECK_INT(driver.memory_free(freed), INVALID_VALUE);
    CHECK_INT(driver.copy_up(freed, words, 4, c.streams[0]), INVALID_VALUE);
    add_args a = { c.data, WORDS, 1 };
    void *arguments[] = { &a };
    CHECK_INT(driver.launch(c.add, 0, 1, 1, 128, 1, 1, 0, c.streams[0], arguments, NULL), INVALID_VALUE);
    CHECK_INT(driver.launch(c.add, 1, 1, 1, 1025, 1, 1, 0, c.streams[0], arguments, NULL), INVALID_VALUE);
    CHECK_INT(driver.launch(c.add, 1, 1, 1, 32, 1, 1, 49153, c.streams[0], arguments, NULL), INVALID_VALUE);
    CHECK_INT(driver.function_set(c.add, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, 49153), 0);
    CHECK_INT(driver.launch(c.add, 8, 1, 1, 128, 1, 1, 49153, c.streams[0], arguments, NULL), 0);
    CHECK_INT(driver.function_set(c.add, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, (163 << 10) + 1), INVALID_VALUE);
    exl2__cuda_launch_attribute cluster = { .id = EXL2__CUDA_LAUNCH_CLUSTER, .value = { .xyz = { 2, 1, 1 } } };
    exl2__cuda_launch l = { { 8, 1, 1 }, { 128, 1, 1 }, 0, c.streams[0], &cluster, 1 };
    CHECK_INT(driver.launch_with(&l, c.add, arguments, NULL), INVALID_VALUE);
    CHECK(add(&other, 0, 1, 1) != 0);
    CHECK(driver.stream_wait((exl2__cuda_stream *)(void *)c.module) != 0);
    check_words(&c, 1);
    CHECK_INT(driver.context_pop(&popped), 0);
    card_close(&other, 1);
    card_close(&c, 0);
}

/* The order in which 4 CTAs arrive, with this seed. */
static void arrive(const card *c, ptx_driver_machine machine, int seed, uint32_t order[4])
{
    exl2__cuda_function *kernel = NULL;
    add_args a = { c->data, 0, 0 };
    void *arguments[] = { &a };
    machine.seed = seed;
    ptx_driver_fill(&machine, &driver);
    CHECK_INT(driver.module_function(&kernel, c->module, "arrive"), 0);
    CHECK_INT(driver.fill8(c->data, 0, 4, c->streams[0]), 0);
    CHECK_INT(driver.launch(kernel, 4, 1, 1, 1, 1, 1, 0, c->streams[0], arguments, NULL), 0);
    CHECK_INT(driver.copy_down(order, c->data + 4, 16, c->streams[0]), 0);
}

/* A seed has turns of its own, and the same ones again. */
static void test_seeds(ptx_driver_machine machine)
{
    uint32_t order[9][4], others = 0;
    card c = { 0 };
    card_open(&c, 0);
    CHECK_INT(driver.context_push(c.context), 0);
    for (int seed = 0; seed < 9; seed++) {
        uint32_t again[4];
        arrive(&c, machine, seed, order[seed]);
        arrive(&c, machine, seed, again);
        CHECK(memcmp(order[seed], again, sizeof again) == 0);
        others += seed > 1 && memcmp(order[seed], order[1], sizeof again) != 0;
    }
    CHECK(others > 0);
    CHECK_INT(driver.context_pop(&popped), 0);
    card_close(&c, 0);
}

/* As many CTAs as there are SMs wait for each other; one more never starts, so the others wait for ever. */
static void test_resident(int device)
{
    card c = { 0 };
    exl2__cuda_function *gather = NULL;
    card_open(&c, device);
    CHECK_INT(driver.context_push(c.context), 0);
    CHECK_INT(driver.module_function(&gather, c.module, "gather"), 0);
    for (uint32_t ctas = 4; ctas < 6; ctas++) {
        add_args a = { c.data, ctas, 0 };
        void *arguments[] = { &a };
        CHECK_INT(driver.fill8(c.data, 0, 4, c.streams[0]), 0);
        CHECK_INT(driver.launch(gather, ctas, 1, 1, 1, 1, 1, 0, c.streams[0], arguments, NULL), 0);
        CHECK_INT(driver.stream_wait(c.streams[0]), ctas == 4 ? 0 : HANGS);
    }
    CHECK_INT(driver.context_pop(&popped), 0);
    card_close(&c, device);
}

/* A kernel that reaches past its block, or into a GPU that it may not reach, loses its GPU, and no other one. */
static void test_faults(void)
{
    card cards[4] = { { 0 }, { 0 }, { 0 }, { 0 } };
    for (int i = 0; i < 4; i++) {
        card_open(&cards[i], i);
    }
    CHECK_INT(driver.context_push(cards[0].context), 0);
    CHECK_INT(add(&cards[0], 0, WORDS + 1, 1), 0);
    CHECK_INT(driver.stream_wait(cards[0].streams[0]), LOST);
    CHECK_INT(driver.fill8(cards[0].data, 0, 4, cards[0].streams[0]), LOST);
    CHECK_INT(driver.context_pop(&popped), 0);
    CHECK_INT(driver.context_push(cards[1].context), 0);
    CHECK_INT(meet(&cards[1], 0, &cards[2], 1), 0); /* there is no access */
    CHECK_INT(driver.stream_wait(cards[1].streams[0]), LOST);
    CHECK_INT(driver.context_pop(&popped), 0);
    CHECK_INT(driver.context_push(cards[2].context), 0);
    CHECK_INT(add(&cards[2], 0, WORDS, 1), 0);
    check_words(&cards[2], 1);
    CHECK_INT(driver.context_pop(&popped), 0);
    CHECK_INT(driver.context_push(cards[3].context), 0);
    CHECK_INT(meet(&cards[3], 0, &cards[3], 2), 0); /* sets its own word */
    CHECK_INT(driver.stream_wait(cards[3].streams[0]), 0);
    CHECK_INT(driver.context_peer(cards[2].context, 0), 0);
    CHECK_INT(meet(&cards[3], 0, &cards[2], 3), 0); /* nothing sets its word to 3 */
    CHECK_INT(driver.stream_wait(cards[3].streams[0]), HANGS);
    CHECK_INT(driver.context_pop(&popped), 0);
    for (int i = 0; i < 4; i++) {
        card_close(&cards[i], i);
    }
}

int main(void)
{
    ptx_driver_machine machine = { 4, 80, 4, 163 << 10, 164 << 10, 0 };
    ptx_driver_fill(&machine, &driver);
    test_order();
    test_events();
    test_graphs();
    test_meetings();
    test_seeds(machine);
    machine.seed = 3;
    ptx_driver_fill(&machine, &driver);
    test_meetings();
    test_rejected();
    machine.arch = 90;
    ptx_driver_fill(&machine, &driver);
    test_programmatic();
    test_faults(); /* the last ones lose GPUs */
    machine.gpus = 5;
    ptx_driver_fill(&machine, &driver);
    test_resident(4);
    return check_done();
}
