/* warps.c: what the PTX interpreter does with memory, warps and CTAs: small kernels by hand, also with warps that take
   turns at random; and the faults that it finds.
   takes: rig.h.
   gives: exit code. */
#include "rig.h"

/* A kernel with two pointers in %rd1 and %rd2, the thread in %r1, the CTA in %r2 and the number of the thread in the
   grid in %r3; %rd3 and %rd4 are the pointers plus four times that. */
#define KERNEL_WITH(directives, more, body)                                                                     \
    RIG_HEAD more ".visible .entry test(.param .u64 a, .param .u64 b)\n" directives "{\n.reg .pred %p<9>;\n"      \
                  ".reg .b16 %h<9>;\n.reg .b32 %r<29>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<19>;\n"                 \
                  "ld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\nmov.u32 %r1, %tid.x;\n"                    \
                  "mov.u32 %r2, %ctaid.x;\nmov.u32 %r4, %ntid.x;\nmad.lo.s32 %r3, %r2, %r4, %r1;\n"             \
                  "mul.wide.u32 %rd5, %r3, 4;\nadd.s64 %rd3, %rd1, %rd5;\nadd.s64 %rd4, %rd2, %rd5;\n"          \
                  body "\nret;\n}\n"
#define KERNEL(more, body) KERNEL_WITH("", more, body)

#define SEEDS 6u

static uint32_t first[4096], second[4096];

static rig rig_of(const char *text, uint32_t threads, uint32_t ctas)
{
    memset(first, 0, sizeof first);
    memset(second, 0, sizeof second);
    return (rig){ .text = text, .buffers = { { first, sizeof first }, { second, sizeof second } }, .threads = threads,
        .ctas = ctas };
}

/* ---- branches ---- */

/* Each thread sums 0 ... its number in a loop: lanes leave it one after the other, and meet again. */
static void test_divergence(void)
{
    rig r = rig_of(KERNEL("", "mov.u32 %r5, 0;\nmov.u32 %r6, 0;\nLOOP:\nadd.s32 %r5, %r5, %r6;\n"
                              "setp.ge.u32 %p1, %r6, %r3;\n@%p1 bra DONE;\nadd.s32 %r6, %r6, 1;\nbra.uni LOOP;\nDONE:\n"
                              "activemask.b32 %r7;\nsetp.eq.s32 %p2, %r7, -1;\nselp.b32 %r8, %r5, 77, %p2;\n"
                              "st.global.u32 [%rd3], %r8;"), 32, 3);
    for (r.seed = 0; r.seed < SEEDS; r.seed++) {
        memset(first, 0, sizeof first);
        rig_check(&r);
        for (uint32_t i = 0; i < 96; i++) {
            CHECK_INT(first[i], i * (i + 1) / 2);
        }
    }
}

/* Lanes that end early, and guards. */
static void test_parting(void)
{
    rig r = rig_of(KERNEL("", "setp.ge.u32 %p1, %r1, 40;\n@%p1 exit;\nand.b32 %r5, %r1, 1;\n"
                              "setp.eq.s32 %p2, %r5, 0;\nmov.u32 %r6, 5;\n@%p2 bra EVEN;\n"
                              "mul.lo.s32 %r6, %r1, 100;\nbra JOIN;\nEVEN:\n"
                              "@!%p2 add.s32 %r6, %r6, 1000;\n@%p2 add.s32 %r6, %r6, %r1;\nJOIN:\n"
                              "st.global.u32 [%rd3], %r6;"), 64, 1);
    rig_check(&r);
    for (uint32_t i = 0; i < 64; i++) {
        CHECK_INT(first[i], i >= 40 ? 0 : i % 2 ? i * 100 : 5 + i);
    }
}

/* The lanes come to one shuffle by a jump back, in two parts. */
static void test_meeting(void)
{
    rig r = rig_of(KERNEL("", "mov.u32 %r5, 0;\nsetp.lt.u32 %p1, %r1, 16;\n@%p1 bra HERE;\nbra FAR;\nHERE:\n"
                              "shfl.sync.bfly.b32 %r6, %r1, 16, 31, -1;\nst.global.u32 [%rd3], %r6;\nret;\nFAR:\n"
                              "add.s32 %r5, %r5, 1;\nbra HERE;"), 32, 1);
    rig_check(&r);
    for (uint32_t i = 0; i < 32; i++) {
        CHECK_INT(first[i], i ^ 16);
    }
}

/* ---- shuffles, votes, reductions ---- */

static void test_shuffles(void)
{
    rig r = rig_of(KERNEL("", "mul.lo.s32 %r5, %r1, 3;\nmul.wide.u32 %rd6, %r1, 16;\nadd.s64 %rd7, %rd1, %rd6;\n"
                              "shfl.sync.up.b32 %r6|%p1, %r5, 2, 0, -1;\nshfl.sync.down.b32 %r7|%p2, %r5, 3, 31, -1;\n"
                              "shfl.sync.idx.b32 %r8, %r5, %r1, 0x1807, -1;\nshfl.sync.bfly.b32 %r9, %r5, 5, 31, -1;\n"
                              "@!%p1 add.s32 %r6, %r6, 10000;\n@!%p2 add.s32 %r7, %r7, 10000;\n"
                              "st.global.v4.u32 [%rd7], {%r6, %r7, %r8, %r9};"), 32, 1);
    rig_check(&r);
    for (uint32_t i = 0; i < 32; i++) {
        CHECK_INT(first[i * 4], i < 2 ? i * 3 + 10000 : (i - 2) * 3);
        CHECK_INT(first[i * 4 + 1], i > 28 ? i * 3 + 10000 : (i + 3) * 3);
        CHECK_INT(first[i * 4 + 2], i * 3);
        CHECK_INT(first[i * 4 + 3], (i ^ 5) * 3);
    }
}

static void test_votes(void)
{
    rig r = rig_of(KERNEL("", "and.b32 %r5, %r1, 3;\nsetp.eq.s32 %p1, %r5, 1;\nvote.sync.ballot.b32 %r6, %p1, -1;\n"
                              "vote.sync.any.pred %p2, %p1, -1;\nvote.sync.all.pred %p3, %p1, -1;\n"
                              "vote.sync.all.pred %p4, !%p3, -1;\nselp.u32 %r7, 1, 0, %p2;\nselp.u32 %r8, 2, 0, %p3;\n"
                              "selp.u32 %r9, 4, 0, %p4;\nor.b32 %r7, %r7, %r8;\nor.b32 %r7, %r7, %r9;\n"
                              "redux.sync.max.u32 %r10, %r1, -1;\nredux.sync.add.u32 %r11, %r1, -1;\n"
                              "mul.wide.u32 %rd6, %r1, 16;\nadd.s64 %rd7, %rd1, %rd6;\n"
                              "st.global.v4.u32 [%rd7], {%r6, %r7, %r10, %r11};"), 32, 1);
    rig_check(&r);
    for (uint32_t i = 0; i < 32; i++) {
        CHECK_INT(first[i * 4], 0x22222222);
        CHECK_INT(first[i * 4 + 1], 5);
        CHECK_INT(first[i * 4 + 2], 31);
        CHECK_INT(first[i * 4 + 3], 496);
    }
}

/* ---- memory ---- */

/* Narrow loads and stores, a local array, a constant table and a module's variable. */
static void test_spaces(void)
{
    rig r = rig_of(KERNEL(".const .align 4 .u32 table[4] = {10, 20, 30, 0x40};\n.global .align 4 .u32 total = 7;\n",
                          ".local .align 4 .b8 kept[64];\nand.b32 %r5, %r1, 3;\nmul.wide.u32 %rd6, %r5, 4;\n"
                          "mov.u64 %rd7, table;\nadd.s64 %rd7, %rd7, %rd6;\nld.const.u32 %r6, [%rd7];\n"
                          "mov.u64 %rd8, kept;\nadd.s64 %rd9, %rd8, %rd6;\nst.local.u32 [%rd9+16], %r1;\n"
                          "cvta.local.u64 %rd10, %rd9;\nld.s8 %r7, [%rd10+16];\nadd.s32 %r7, %r7, %r6;\n"
                          "atom.global.add.u32 %r8, [total], 1;\nsetp.lt.u32 %p1, %r8, 7;\n@%p1 trap;\n"
                          "mul.wide.u32 %rd11, %r1, 2;\nadd.s64 %rd12, %rd1, %rd11;\nst.global.u16 [%rd12], %r7;\n"
                          "cvt.u64.u32 %rd13, %r1;\nadd.s64 %rd14, %rd2, %rd13;\nst.global.u8 [%rd14], %r8;"), 64, 1);
    rig_check(&r);
    static const uint32_t table[4] = { 10, 20, 30, 0x40 };
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 64; i++) {
        CHECK_INT(((uint16_t *)first)[i], i + table[i % 4]);
        sum += ((uint8_t *)second)[i];
    }
    CHECK_INT(sum, 64 * 7 + 63 * 64 / 2); /* each value once */
}

static void test_atomics(void)
{
    rig r = rig_of(KERNEL("", "atom.global.add.u32 %r5, [%rd1], 3;\natom.global.inc.u32 %r6, [%rd1+4], 4;\n"
                              "red.global.max.s32 [%rd1+8], %r3;\natom.global.min.u32 %r7, [%rd1+12], 0;\n"
                              "atom.global.or.b32 %r8, [%rd1+16], %r3;\natom.global.exch.b32 %r9, [%rd1+20], 55;\n"
                              "atom.global.cas.b32 %r10, [%rd1+24], 0, %r3;\nmov.f32 %f1, 0f3F000000;\n"
                              "atom.global.add.f32 %f2, [%rd1+28], %f1;\nmov.u64 %rd6, 0x100000000;\n"
                              "atom.global.add.u64 %rd7, [%rd1+32], %rd6;"), 64, 4);
    for (r.seed = 0; r.seed < SEEDS; r.seed++) {
        memset(first, 0, sizeof first);
        rig_check(&r);
        float half;
        memcpy(&half, &first[7], 4);
        CHECK_INT(first[0], 3 * 256);
        CHECK_INT(first[1], 256 % 5);
        CHECK_INT(first[2], 255);
        CHECK_INT(first[3], 0);
        CHECK_INT(first[4], 255);
        CHECK_INT(first[5], 55);
        CHECK(first[6] < 256);
        CHECK(half == 128.0f);
        CHECK_INT(first[9], 256);
    }
}

/* A function with a parameter, a result and a barrier in it. */
static void test_calls(void)
{
    rig r = rig_of(KERNEL(".func (.param .b32 result) twice(.param .b32 x)\n{\n.reg .pred %p<3>;\n.reg .b32 %r<4>;\n"
                          "ld.param.u32 %r1, [x];\nbar.sync 0;\nsetp.lt.u32 %p1, %r1, 10;\n@%p1 bra SMALL;\n"
                          "add.s32 %r2, %r1, %r1;\nst.param.b32 [result+0], %r2;\nret;\nSMALL:\n"
                          "st.param.b32 [result+0], 1;\nret;\n}\n",
                          "mov.u32 %r5, %r1;\n{\n.param .b32 p0;\nst.param.b32 [p0+0], %r5;\n.param .b32 q0;\n"
                          "call.uni (q0), twice, (p0);\nld.param.b32 %r6, [q0+0];\n}\n{\n.param .b32 p0;\n"
                          "st.param.b32 [p0+0], %r6;\n.param .b32 q0;\ncall.uni (q0), twice, (p0);\n"
                          "ld.param.b32 %r6, [q0+0];\n}\nst.global.u32 [%rd3], %r6;"), 64, 1);
    rig_check(&r);
    for (uint32_t i = 0; i < 64; i++) {
        CHECK_INT(first[i], i < 10 ? 1 : i * 4);
    }
}

/* ---- barriers ---- */

/* A sum over 256 threads in shared memory. `barrier`: what stands between the steps. */
#define SUM(barrier)                                                                                             \
    KERNEL("", ".shared .align 4 .b8 sums[1024];\nmov.u32 %r5, sums;\nshl.b32 %r6, %r1, 2;\n"                    \
               "add.s32 %r7, %r5, %r6;\nst.shared.u32 [%r7], %r3;\nmov.u32 %r8, 128;\nLOOP:\n" barrier           \
               "\nsetp.ge.u32 %p1, %r1, %r8;\n@%p1 bra SKIP;\nshl.b32 %r9, %r8, 2;\nadd.s32 %r10, %r7, %r9;\n"   \
               "ld.shared.u32 %r11, [%r10];\nld.shared.u32 %r12, [%r7];\nadd.s32 %r12, %r12, %r11;\n"            \
               "st.shared.u32 [%r7], %r12;\nSKIP:\nshr.u32 %r8, %r8, 1;\nsetp.ne.s32 %p2, %r8, 0;\n"             \
               "@%p2 bra LOOP;\nsetp.ne.s32 %p3, %r1, 0;\n@%p3 bra END;\nld.shared.u32 %r13, [sums];\n"          \
               "mul.wide.u32 %rd6, %r2, 4;\nadd.s64 %rd7, %rd1, %rd6;\nst.global.u32 [%rd7], %r13;\nEND:\n")

static uint32_t sums_wrong(const char *text, uint32_t seed)
{
    rig r = rig_of(text, 256, 4);
    uint32_t wrong = 0;
    r.seed = seed;
    rig_check(&r);
    for (uint32_t i = 0; i < 4; i++) {
        wrong += first[i] != i * 65536 + 255 * 128;
    }
    return wrong;
}

/* Without the barrier some order of the warps gives a wrong sum. */
static void test_barriers(void)
{
    uint32_t wrong = 0;
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        CHECK_INT(sums_wrong(SUM("bar.sync 0;"), seed), 0);
        CHECK_INT(sums_wrong(SUM("barrier.sync 3, 256;"), seed), 0);
        wrong += sums_wrong(SUM(""), seed);
    }
    CHECK(wrong > 0);
}

/* Warp 0 arrives, warp 1 waits for it; and a vote over all threads. */
static void test_arrival(void)
{
    rig r = rig_of(KERNEL("", ".shared .align 4 .b8 value[4];\nshr.u32 %r5, %r1, 5;\nsetp.ne.s32 %p1, %r5, 0;\n"
                              "@%p1 bra WAIT;\nst.shared.u32 [value], 1234;\nbar.arrive 1, 64;\nbra JOIN;\nWAIT:\n"
                              "bar.sync 1, 64;\nld.shared.u32 %r6, [value];\nst.global.u32 [%rd3], %r6;\nJOIN:\n"
                              "and.b32 %r7, %r1, 3;\nsetp.eq.s32 %p2, %r7, 0;\nbar.red.popc.u32 %r8, 0, %p2;\n"
                              "bar.red.and.pred %p3, 0, %p2;\nbar.red.or.pred %p4, 0, !%p2;\n"
                              "selp.u32 %r9, 1, 0, %p3;\nselp.u32 %r10, 2, 0, %p4;\nadd.s32 %r8, %r8, %r9;\n"
                              "add.s32 %r8, %r8, %r10;\nst.global.u32 [%rd4], %r8;"), 64, 2);
    for (r.seed = 0; r.seed < SEEDS; r.seed++) {
        rig_check(&r);
        for (uint32_t i = 0; i < 128; i++) {
            CHECK_INT(first[i], i % 64 < 32 ? 0 : 1234);
            CHECK_INT(second[i], 16 + 2);
        }
    }
}

/* CTA 0 waits for what CTA 1 writes. */
#define HANDOVER \
    KERNEL("", "setp.eq.s32 %p1, %r2, 0;\n@%p1 bra WAIT;\nst.global.u32 [%rd1+4], 99;\nmembar.gl;\n" \
               "st.release.gpu.global.u32 [%rd1], 1;\nret;\nWAIT:\nld.acquire.gpu.global.u32 %r5, [%rd1];\n" \
               "setp.eq.s32 %p2, %r5, 0;\n@%p2 bra WAIT;\nld.global.u32 %r6, [%rd1+4];\nst.global.u32 [%rd2], %r6;")

static void test_handover(void)
{
    rig r = rig_of(HANDOVER, 1, 2);
    for (r.seed = 0; r.seed < SEEDS; r.seed++) {
        memset(first, 0, sizeof first);
        rig_check(&r);
        CHECK_INT(second[0], 99);
    }
}

/* With room for one CTA the other never comes: the run says that it waits, and uses no time. */
static void test_waiting(void)
{
    uint64_t parameters[2] = { (uint64_t)(uintptr_t)first, (uint64_t)(uintptr_t)second };
    char error[400];
    ptx_module *module = ptx_load(HANDOVER, error, sizeof error);
    memset(first, 0, sizeof first);
    ptx_launch launch = { .kernel = ptx_kernel_of(module, "test"), .grid = { 2, 1, 1 }, .block = { 1, 1, 1 },
        .resident = 1, .parameters = parameters };
    ptx_run *run = ptx_start(&launch);
    CHECK_INT(ptx_advance(run, UINT64_MAX), 1);
    CHECK_INT(ptx_advance(run, UINT64_MAX), 1);
    first[1] = 5; /* as another kernel would */
    first[0] = 1;
    CHECK_INT(ptx_advance(run, UINT64_MAX), 0);
    CHECK_INT(second[0], 5);
    ptx_end(run);
    ptx_free(module);
}

/* ---- asynchronous copies ---- */

#define COPY(wait)                                                                                            \
    KERNEL("", ".shared .align 16 .b8 to[1024];\nmov.u32 %r5, to;\nshl.b32 %r6, %r1, 4;\n"                    \
               "add.s32 %r7, %r5, %r6;\ncvt.u64.u32 %rd6, %r6;\nadd.s64 %rd7, %rd2, %rd6;\n"                  \
               "cp.async.cg.shared.global [%r7], [%rd7], 16;\ncp.async.commit_group;\n"                       \
               "cp.async.ca.shared.global [%r7+512], [%rd7], 8, 4;\ncp.async.commit_group;\n" wait            \
               "\nld.shared.u32 %r8, [%r7+12];\nld.shared.v2.u32 {%r9, %r10}, [%r7+512];\n"                   \
               "st.global.u32 [%rd3], %r8;\nst.global.u32 [%rd3+128], %r9;\nst.global.u32 [%rd3+256], %r10;")

static uint32_t copies_wrong(const char *text, uint32_t seed)
{
    rig r = rig_of(text, 32, 1);
    uint32_t wrong = 0;
    r.seed = seed;
    for (uint32_t i = 0; i < 128; i++) {
        second[i] = i + 7;
    }
    rig_check(&r);
    for (uint32_t i = 0; i < 32; i++) {
        wrong += first[i] != i * 4 + 3 + 7 || first[i + 32] != i * 4 + 7 || first[i + 64] != 0;
    }
    return wrong;
}

static void test_copies(void)
{
    uint32_t none = 0, few = 0;
    for (uint32_t seed = 0; seed < 20; seed++) {
        CHECK_INT(copies_wrong(COPY("cp.async.wait_group 0;"), seed), 0);
        CHECK_INT(copies_wrong(COPY("cp.async.wait_all;"), seed), 0);
        none += copies_wrong(COPY(""), seed);
        few += copies_wrong(COPY("cp.async.wait_group 1;"), seed);
    }
    CHECK(none > 0); /* a missing wait, and one that waits for too little, are found */
    CHECK(few > 0);
}

/* One thread starts a bulk copy; all wait for its bytes at an mbarrier, in two phases. */
#define BULK(wait)                                                                                              \
    KERNEL("", ".shared .align 16 .b8 to[512];\n.shared .align 8 .b8 bar[8];\nmov.u32 %r5, bar;\n"              \
               "mov.u32 %r6, to;\nmov.u32 %r7, 0;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra READY;\n"                 \
               "mbarrier.init.shared.b64 [%r5], 1;\nREADY:\nbar.sync 0;\nROUND:\n@%p1 bra WAIT;\n"              \
               "mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 256;\nshl.b32 %r8, %r7, 8;\n"                    \
               "cvt.u64.u32 %rd6, %r8;\nadd.s64 %rd7, %rd2, %rd6;\n"                                            \
               "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%rd7], 256, [%r5];\n" \
               "WAIT:\n" wait "\nshl.b32 %r9, %r1, 2;\nadd.s32 %r10, %r6, %r9;\nld.shared.u32 %r11, [%r10];\n"  \
               "shl.b32 %r12, %r7, 8;\ncvt.u64.u32 %rd8, %r12;\nadd.s64 %rd9, %rd3, %rd8;\n"                    \
               "st.global.u32 [%rd9], %r11;\nbar.sync 0;\nadd.s32 %r7, %r7, 1;\nsetp.lt.u32 %p3, %r7, 2;\n"     \
               "@%p3 bra ROUND;")

static uint32_t bulks_wrong(const char *text, uint32_t seed, bool ends)
{
    rig r = rig_of(text, 64, 1);
    uint32_t wrong = 0;
    r.seed = seed;
    for (uint32_t i = 0; i < 128; i++) {
        second[i] = i * 3 + 1;
    }
    if (ends) {
        rig_check(&r);
    } else { /* it may be a fault */
        (void)rig_run(&r);
    }
    for (uint32_t i = 0; i < 128; i++) {
        wrong += first[i] != i * 3 + 1;
    }
    return wrong;
}

static void test_bulks(void)
{
    uint32_t wrong = 0;
    for (uint32_t seed = 0; seed < 20; seed++) {
        CHECK_INT(bulks_wrong(BULK("mbarrier.try_wait.parity.shared.b64 %p2, [%r5], %r7;\n@!%p2 bra WAIT;"), seed,
                              true), 0);
        wrong += bulks_wrong(BULK(""), seed, false);
    }
    CHECK(wrong > 0);
}

/* Stores 5 times what the next CTA of the cluster has as %r3. */
#define CLUSTER                                                                                  \
    ".shared .align 16 .b8 own[128];\nmov.u32 %r5, own;\nshl.b32 %r6, %r1, 2;\n"                 \
    "add.s32 %r5, %r5, %r6;\nmul.lo.s32 %r7, %r3, 5;\nst.shared.u32 [%r5], %r7;\n"              \
    "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"                          \
    "mov.u32 %r8, %cluster_ctarank;\nmov.u32 %r9, %cluster_nctaid.x;\nadd.s32 %r8, %r8, 1;\n"   \
    "rem.u32 %r8, %r8, %r9;\nmapa.shared::cluster.u32 %r10, %r5, %r8;\n"                        \
    "ld.shared::cluster.u32 %r11, [%r10];\nst.global.u32 [%rd3], %r11;\n"                       \
    "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;"

/* Each CTA of a cluster reads what the next one has in shared memory. The launch says how many CTAs a cluster has, or
   the kernel does. */
static void test_clusters(void)
{
    rig by_launch = rig_of(KERNEL("", CLUSTER), 32, 8);
    rig by_kernel = rig_of(KERNEL_WITH(".explicitcluster\n.reqnctapercluster 4, 1, 1\n", "", CLUSTER), 32, 8);
    by_launch.cluster = 4;
    rig *const rigs[] = { &by_launch, &by_kernel };
    for (uint32_t k = 0; k < 2; k++) {
        rig *r = rigs[k];
        r->resident = 4;
        for (r->seed = 0; r->seed < SEEDS; r->seed++) {
            memset(first, 0, sizeof first);
            rig_check(r);
            for (uint32_t i = 0; i < 256; i++) {
                CHECK_INT(first[i], (i / 128 * 128 + (i + 32) % 128) * 5);
            }
        }
    }
    by_kernel.cluster = 2;
    rig_fault(&by_kernel, "requires clusters of another size");
}

/* ---- faults ---- */

static void test_faults(void)
{
    rig outside = rig_of(KERNEL("", "setp.eq.s32 %p1, %r1, 1;\n@%p1 st.global.u32 [%rd3+1048576], %r1;"), 32, 1);
    rig_fault(&outside, "kernel test, CTA (0, 0, 0), thread 1, line ");
    CHECK(strstr(outside.fault, "(@%p1 st.global.u32 [%rd3+1048576], %r1): the write of 4 bytes at 0x") != NULL);
    rig null = rig_of(KERNEL("", "mov.u64 %rd6, 0;\nld.global.u32 %r5, [%rd6];"), 32, 1);
    rig_fault(&null, "the read of 4 bytes at 0x0 is outside");
    rig window = rig_of(KERNEL("", "mov.u64 %rd6, 0x7F00000000000000;\nld.u32 %r5, [%rd6];"), 32, 1);
    rig_fault(&window, "is outside");
    rig odd = rig_of(KERNEL("", "ld.global.v2.u32 {%r5, %r6}, [%rd3];"), 32, 1);
    rig_fault(&odd, "thread 1, ");
    CHECK(strstr(odd.fault, "is no multiple of 8") != NULL);
    rig shared = rig_of(KERNEL("", ".shared .align 4 .b8 x[64];\nmov.u32 %r5, x;\nst.shared.u32 [%r5+64], 1;"), 1, 1);
    rig_fault(&shared, "outside of its 64 bytes");
    rig zero = rig_of(KERNEL("", ".shared .align 4 .b8 x[64];\nst.shared.u32 [x], 1;\nst.shared.u32 [0], 1;"), 1, 1);
    rig_fault(&zero, "shared memory at 0x0");
    rig constant = rig_of(KERNEL(".const .u32 k = 3;\n", "st.global.u32 [k], 1;"), 1, 1);
    rig_fault(&constant, "the write of 4 bytes");
    rig local = rig_of(KERNEL("", ".local .align 4 .b8 x[16];\nst.local.u32 [x+16], 1;"), 1, 1);
    rig_fault(&local, "local memory");
    rig trapped = rig_of(KERNEL("", "setp.eq.s32 %p1, %r3, 70;\n@%p1 trap;"), 32, 3);
    rig_fault(&trapped, "CTA (2, 0, 0), thread 6, ");
    rig uninitialized = rig_of(KERNEL("", ".shared .align 8 .b8 x[8];\nmbarrier.arrive.shared.b64 _, [x];"), 1, 1);
    rig_fault(&uninitialized, "no initialized mbarrier");
}

/* Waits that nobody ends: no test may hang. */
static void test_deadlocks(void)
{
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        rig half = rig_of(KERNEL("", "setp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 1, 64;\nbar.sync 0;"), 64, 2);
        half.seed = seed;
        rig_fault(&half, "all warps wait");
        rig never = rig_of(KERNEL("", ".shared .align 8 .b8 x[8];\nmov.u32 %r5, x;\nsetp.ne.s32 %p1, %r1, 0;\n"
                                      "@!%p1 mbarrier.init.shared.b64 [%r5], 2;\nbar.sync 0;\nWAIT:\n"
                                      "mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;\n@!%p2 bra WAIT;"), 64, 1);
        never.seed = seed;
        rig_fault(&never, "all warps wait");
        rig parted = rig_of(KERNEL("", "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra OTHER;\nshfl.sync.idx.b32 %r5, %r1, 0, 31, "
                                       "-1;\nret;\nOTHER:\nvote.sync.ballot.b32 %r5, %p1, -1;"), 32, 1);
        parted.seed = seed;
        rig_fault(&parted, "which do not come");
        rig two = rig_of(KERNEL("", "setp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 1, 128;\n@!%p1 bar.sync 1, 64;"), 64, 1);
        two.seed = seed;
        rig_fault(&two, "at the same time");
    }
}

/* Texts that are no module, or one with what is not implemented: an error with line and instruction. */
static void test_texts(void)
{
    static const struct { const char *text, *wanted; } texts[] = {
        { KERNEL("", "frobnicate.b32 %r5, %r1;"), "(frobnicate.b32): this instruction is not supported" },
        { KERNEL("", "add.strange.s32 %r5, %r1, 1;"), "(add.strange.s32): this instruction is not supported" },
        { KERNEL("", "ld.global.weird.u32 %r5, [%rd1];"), "(ld.global.weird.u32): this instruction" },
        { KERNEL("", "add.s32 %rd5, %r1, 1;"), "no register of the right size" },
        { KERNEL("", "add.s32 %r5, %r1;"), "too few operands" },
        { KERNEL("", "add.s32 %r5, %r1, %r2, %r3;"), "too many operands" },
        { KERNEL("", "add.s32 %r5, %r1, %r99;"), "there is no such register" },
        { KERNEL("", "bra NOWHERE;"), "(NOWHERE): there is no such label" },
        { KERNEL("", "call.uni nobody, ();"), "this call is not supported" },
        { KERNEL("", "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};"), "shape of mma" },
        { RIG_HEAD ".visible .entry test()\n{\n.reg .b32 %r<2>;\nmov.u32 %r1, 5;\n", "ends within a body" },
        { RIG_HEAD ".visible .entry test(.param .u64 a)\n{\n@%p1 ret;\n}\n", "line 6 (%p1): a predicate is expected" },
        { RIG_HEAD "garbage\n", "line 4 (garbage): a declaration is expected" },
        { "\"", "a declaration is expected" },
        { RIG_HEAD ".global .align 3 .u32 x;\n", "this declaration is not supported" },
        { RIG_HEAD ".global .u32 x[4000000000];\n", "no size, or too large a one" },
        { KERNEL("", ".local .b8 x[200000000];"), "(x): the kernel's variables are too large" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char error[400] = "";
        ptx_module *module = ptx_load(texts[i].text, error, sizeof error);
        CHECK(!module);
        if (!CHECK(strstr(error, texts[i].wanted) != NULL)) {
            printf("    %s\n    wanted: %s\n", error, texts[i].wanted);
        }
        ptx_free(module);
    }
}

/* Every beginning of a text, and the text without one of its characters: an error or a module, and no crash. */
static void test_damage(void)
{
    static const char whole[] = SUM("bar.sync 0;");
    static char damaged[sizeof whole];
    for (size_t i = 0; i < sizeof whole - 1; i++) {
        char error[400];
        memcpy(damaged, whole, i);
        damaged[i] = 0;
        ptx_free(ptx_load(damaged, error, sizeof error));
        memcpy(damaged + i, whole + i + 1, sizeof whole - i - 1);
        ptx_free(ptx_load(damaged, error, sizeof error));
    }
    CHECK(true);
}

static void test_limits(void)
{
    rig threads = rig_of(KERNEL("", ""), 2000, 1);
    rig_fault(&threads, "cannot start");
    rig cluster = rig_of(KERNEL("", ""), 32, 3);
    cluster.cluster = 2;
    rig_fault(&cluster, "no multiple of the cluster");
}

int main(void)
{
    test_divergence();
    test_parting();
    test_meeting();
    test_shuffles();
    test_votes();
    test_spaces();
    test_atomics();
    test_calls();
    test_barriers();
    test_arrival();
    test_handover();
    test_waiting();
    test_copies();
    test_bulks();
    test_clusters();
    test_faults();
    test_deadlocks();
    test_texts();
    test_damage();
    test_limits();
    return check_done();
}
