/* matrices.c: matrix instructions of the PTX interpreter against products in double: mma, ldmatrix, stmatrix,
   movmatrix, and wgmma with each layout of tiles.
   takes: rig.h.
   gives: exit code. */
#include "rig.h"

#include <math.h>

#define ROWS 64u
#define COLUMNS_MAX 256u
#define K 16u

static float a_values[ROWS][K], b_values[K][COLUMNS_MAX], c_values[ROWS][COLUMNS_MAX];
static uint8_t memory[65536];        /* tiles, as the kernel finds them */
static float sums[ROWS * COLUMNS_MAX];

static uint32_t random32(void)
{
    static uint64_t state = 12345;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

/* A half, a multiple of 1/64 below 16, and its bits. */
static uint16_t half_bits(float x)
{
    if (x == 0) {
        return 0;
    }
    int exponent;
    float mantissa = frexpf(fabsf(x), &exponent); /* 0.5 to 1 */
    uint32_t bits = (uint32_t)(exponent + 14) << 10 | ((uint32_t)(mantissa * 2048) & 1023);
    return (uint16_t)(bits | (x < 0 ? 0x8000u : 0));
}

static float small(void) { return (float)((int)(random32() % 2047) - 1023) / 64; }

static void fill(void)
{
    memset(memory, 0xFF, sizeof memory);
    memset(sums, 0xFF, sizeof sums);
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t k = 0; k < K; k++) {
            a_values[i][k] = small();
        }
        for (uint32_t j = 0; j < COLUMNS_MAX; j++) {
            c_values[i][j] = small();
        }
    }
    for (uint32_t k = 0; k < K; k++) {
        for (uint32_t j = 0; j < COLUMNS_MAX; j++) {
            b_values[k][j] = small();
        }
    }
}

static double wanted(uint32_t row, uint32_t column, uint32_t k, bool adds)
{
    double sum = adds ? (double)c_values[row][column] : 0;
    for (uint32_t i = 0; i < k; i++) {
        sum += (double)a_values[row][i] * (double)b_values[i][column];
    }
    return sum;
}

static void put_half(uint32_t at, float x)
{
    uint16_t h = half_bits(x);
    memcpy(memory + at, &h, 2);
}

static void check_sums(uint32_t rows, uint32_t columns, uint32_t k, bool adds)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < columns; j++) {
            double want = wanted(i, j, k, adds);
            wrong += !(fabs((double)sums[i * columns + j] - want) <= 1e-3 + 1e-6 * fabs(want));
        }
    }
    CHECK_INT(wrong, 0);
}

/* ---- mma ---- */

/* The lane's registers come from memory: A at 0, B at 512, C at 1024, 4 or 2 words a lane. */
#define MMA(shape, a, b)                                                                                      \
    RIG_HEAD ".visible .entry test(.param .u64 p, .param .u64 q)\n{\n.reg .b32 %r<20>;\n.reg .f32 %f<9>;\n"   \
             ".reg .b64 %rd<9>;\nld.param.u64 %rd1, [p];\nld.param.u64 %rd2, [q];\nmov.u32 %r1, %tid.x;\n"    \
             "mul.wide.u32 %rd3, %r1, 16;\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n"            \
             "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd4];\nld.global.v2.u32 {%r6, %r7}, [%rd4+512];\n"     \
             "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd4+1024];\n"                                          \
             "mma.sync.aligned." shape ".row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {" a "}, {" b          \
             "}, {%f1, %f2, %f3, %f4};\nst.global.v4.f32 [%rd5], {%f1, %f2, %f3, %f4};\nret;\n}\n"

static void test_mma(const char *text, uint32_t k)
{
    fill();
    for (uint32_t l = 0; l < 32; l++) { /* as the manual of PTX lays fragments out */
        uint32_t group = l / 4, thread = l % 4;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t row = i % 4 < 2 ? group : group + 8, column = thread * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            put_half(l * 16 + i * 2, column < k ? a_values[row][column] : 0);
        }
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = thread * 2 + (i & 1) + (i >= 2 ? 8 : 0);
            put_half(512 + l * 16 + i * 2, row < k ? b_values[row][group] : 0);
            memcpy(memory + 1024 + l * 16 + i * 4, &c_values[i < 2 ? group : group + 8][thread * 2 + (i & 1)], 4);
        }
    }
    static float out[32][4];
    rig r = { .text = text, .buffers = { { memory, sizeof memory }, { out, sizeof out } } };
    rig_check(&r);
    for (uint32_t l = 0; l < 32; l++) {
        for (uint32_t i = 0; i < 4; i++) {
            sums[(i < 2 ? l / 4 : l / 4 + 8) * 8 + l % 4 * 2 + (i & 1)] = out[l][i];
        }
    }
    check_sums(16, 8, k, true);
}

/* ---- tiles in shared memory ---- */

/* Four tiles of 8 x 8 numbers: read, turned in registers or while reading, and written. */
static void test_tiles(bool turn_load, bool turn_move)
{
    static char text[3000];
    static uint16_t in[4][8][8], out[4][8][8];
    snprintf(text, sizeof text, RIG_HEAD
             ".visible .entry test(.param .u64 p, .param .u64 q)\n{\n.shared .align 16 .b8 s[1024];\n"
             ".reg .b32 %%r<20>;\n.reg .b64 %%rd<9>;\nld.param.u64 %%rd1, [p];\nld.param.u64 %%rd2, [q];\n"
             "mov.u32 %%r1, %%tid.x;\n"
             "mul.wide.u32 %%rd3, %%r1, 16;\nadd.s64 %%rd4, %%rd1, %%rd3;\nadd.s64 %%rd5, %%rd2, %%rd3;\n"
             "ld.global.v4.u32 {%%r2, %%r3, %%r4, %%r5}, [%%rd4];\nmov.u32 %%r6, s;\nshl.b32 %%r7, %%r1, 4;\n"
             "add.s32 %%r8, %%r6, %%r7;\nst.shared.v4.u32 [%%r8], {%%r2, %%r3, %%r4, %%r5};\nbar.warp.sync -1;\n"
             "ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%r10, %%r11, %%r12, %%r13}, [%%r8];\n%s"
             "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%%r8+512], {%%r10, %%r11, %%r12, %%r13};\nbar.warp.sync -1;\n"
             "ld.shared.v4.u32 {%%r2, %%r3, %%r4, %%r5}, [%%r8+512];\n"
             "st.global.v4.u32 [%%rd5], {%%r2, %%r3, %%r4, %%r5};\nret;\n}\n", turn_load ? ".trans" : "",
             turn_move ? "movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r10;\n"
                         "movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r11;\n" : "");
    for (uint32_t i = 0; i < 256; i++) {
        (&in[0][0][0])[i] = (uint16_t)(i * 37 + 5);
    }
    rig r = { .text = text, .buffers = { { in, sizeof in }, { out, sizeof out } } };
    rig_check(&r);
    for (uint32_t t = 0; t < 4; t++) {
        bool turned = turn_load != (turn_move && t < 2);
        for (uint32_t i = 0; i < 64; i++) {
            CHECK_INT(out[t][i / 8][i % 8], turned ? in[t][i % 8][i / 8] : in[t][i / 8][i % 8]);
        }
    }
}

/* ---- wgmma ---- */

/* Bytes of an element in a tile of lines of 128, 64 or 32 bytes: pieces of 16 bytes change places, every line, every
   two lines, or every four. */
static uint32_t place_in(uint32_t bytes, uint32_t line, uint32_t byte)
{
    uint32_t turn = line / (128 / bytes) % (bytes / 16);
    return line * bytes + ((byte / 16 ^ turn) * 16 + byte % 16);
}

static uint32_t place(uint32_t line, uint32_t byte) { return place_in(128, line, byte); }

typedef struct product {
    uint32_t columns;
    bool a_registers, a_rows, b_rows, tf32, adds;
    uint32_t line; /* bytes of B's lines */
    bool early;    /* B's tile is overwritten before the wait */
} product;

/* The kernel copies `memory` to shared memory (A at 0, B at 16384) and C to its registers, multiplies, and writes its
   registers. */
static void make_product(char *text, size_t cap, const product *p)
{
    char d[2000] = "", loads[20000] = "", stores[20000] = "", registers[100] = "";
    uint32_t each = p->columns / 2;
    /* The stride from 8 lines to the next 8, in units of 16 bytes. */
    unsigned long long line_bits = p->line == 64 ? (2ull << 62) | (32ull << 32)
                                 : p->line == 32 ? (3ull << 62) | (16ull << 32) : (1ull << 62) | (64ull << 32);
    for (uint32_t i = 0; i < each; i++) {
        snprintf(d + strlen(d), sizeof d - strlen(d), "%s%%f%u", i ? ", " : "", (unsigned)i);
        snprintf(loads + strlen(loads), sizeof loads - strlen(loads), "ld.global.f32 %%f%u, [%%rd6+%u];\n", (unsigned)i,
                 (unsigned)i * 4);
        snprintf(stores + strlen(stores), sizeof stores - strlen(stores), "st.global.f32 [%%rd6+%u], %%f%u;\n",
                 (unsigned)i * 4, (unsigned)i);
    }
    snprintf(registers, sizeof registers, p->a_registers ? "{%%r20, %%r21, %%r22, %%r23}" : "%%rd10");
    snprintf(text, cap, RIG_HEAD
             ".extern .shared .align 1024 .b8 s[];\n"
             ".visible .entry test(.param .u64 p, .param .u64 q)\n{\n.reg .pred %%p<9>;\n.reg .b32 %%r<30>;\n"
             ".reg .f32 %%f<130>;\n.reg .b64 %%rd<20>;\nld.param.u64 %%rd1, [p];\nld.param.u64 %%rd2, [q];\n"
             "mov.u32 %%r1, %%tid.x;\nmov.u32 %%r2, s;\nshl.b32 %%r3, %%r1, 4;\nCOPY:\ncvt.u64.u32 %%rd3, %%r3;\n"
             "add.s64 %%rd4, %%rd1, %%rd3;\nld.global.v4.u32 {%%r4, %%r5, %%r6, %%r7}, [%%rd4];\n"
             "add.s32 %%r8, %%r2, %%r3;\nst.shared.v4.u32 [%%r8], {%%r4, %%r5, %%r6, %%r7};\n"
             "add.s32 %%r3, %%r3, 2048;\nsetp.lt.u32 %%p1, %%r3, 49152;\n@%%p1 bra COPY;\nbar.sync 0;\n"
             "mul.wide.u32 %%rd5, %%r1, %u;\nadd.s64 %%rd6, %%rd2, %%rd5;\n%s"
             "mul.wide.u32 %%rd7, %%r1, 16;\nadd.s64 %%rd8, %%rd1, %%rd7;\n"
             "ld.global.v4.u32 {%%r20, %%r21, %%r22, %%r23}, [%%rd8+49152];\n"
             "and.b32 %%r9, %%r2, 0x3FFFF;\nshr.u32 %%r9, %%r9, 4;\ncvt.u64.u32 %%rd9, %%r9;\n"
             "or.b64 %%rd10, %%rd9, 0x%llx;\nadd.s64 %%rd11, %%rd9, 1024;\nor.b64 %%rd11, %%rd11, 0x%llx;\n"
             "setp.eq.u32 %%p2, %%r1, %s;\nwgmma.fence.sync.aligned;\n"
             "wgmma.mma_async.sync.aligned.m64n%u%s {%s}, %s, %%rd11, %s, 1, 1%s%s;\n"
             "wgmma.commit_group.sync.aligned;\n%swgmma.wait_group.sync.aligned 0;\n%sret;\n}\n", (unsigned)each * 4,
             loads,
             (1ull << 62) | (64ull << 32) | (p->a_rows ? 512ull : 1ull) << 16,
             line_bits | (p->b_rows ? 128ull : 1ull) << 16, p->adds ? "%r1" : "1000000",
             (unsigned)p->columns, p->tf32 ? "k8.f32.tf32.tf32" : "k16.f32.f16.f16", d, registers,
             p->adds ? "1" : "%p2", p->tf32 || p->a_registers ? "" : p->a_rows ? ", 1" : ", 0",
             p->tf32 ? "" : p->b_rows ? ", 1" : ", 0",
             p->early ? "st.shared.u32 [%r2+16384], 7;\n" : "", stores);
}

static void put_element(const product *p, uint32_t at, float x)
{
    if (p->tf32) {
        memcpy(memory + at, &x, 4);
    } else {
        put_half(at, x);
    }
}

static void test_product(product p)
{
    static char text[60000];
    static float lanes[128 * COLUMNS_MAX / 2];
    uint32_t k = p.tf32 ? 8 : 16, size = p.tf32 ? 4 : 2;
    fill();
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t j = 0; j < k; j++) {
            put_element(&p, p.a_rows ? place(j, i * size) : place(i, j * size), a_values[i][j]);
        }
    }
    for (uint32_t j = 0; j < p.columns; j++) {
        for (uint32_t i = 0; i < k; i++) { /* rows of k: 64 columns a tile, the next one 2048 bytes on */
            uint32_t at = p.b_rows ? j / 64 * 2048 + place(i, j % 64 * size)
                        : place_in(p.line, j, i * size);
            put_element(&p, 16384 + at, b_values[i][j]);
        }
    }
    for (uint32_t t = 0; t < 128; t++) {
        uint32_t row = t / 32 * 16 + t % 32 / 4, thread = t % 4;
        for (uint32_t i = 0; i < 4; i++) { /* A's registers */
            uint32_t down = i % 2 * 8;
            if (p.tf32) {
                put_element(&p, 49152 + t * 16 + i * 4, a_values[row + down][thread + i / 2 * 4]);
            } else {
                put_element(&p, 49152 + t * 16 + i * 4, a_values[row + down][thread * 2 + i / 2 * 8]);
                put_element(&p, 49152 + t * 16 + i * 4 + 2, a_values[row + down][thread * 2 + i / 2 * 8 + 1]);
            }
        }
        for (uint32_t i = 0; i < p.columns / 2; i++) {
            lanes[t * (p.columns / 2) + i] = c_values[row + i % 4 / 2 * 8][i / 4 * 8 + thread * 2 + i % 2];
        }
    }
    make_product(text, sizeof text, &p);
    rig r = { .text = text, .buffers = { { memory, sizeof memory }, { lanes, sizeof lanes } }, .threads = 128,
        .dynamic_bytes = 49152, .seed = p.early };
    if (p.early) {
        rig_fault(&r, "was overwritten before this wait");
        return;
    }
    rig_check(&r);
    for (uint32_t t = 0; t < 128; t++) {
        for (uint32_t i = 0; i < p.columns / 2; i++) {
            uint32_t row = t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8;
            sums[row * p.columns + i / 4 * 8 + t % 4 * 2 + i % 2] = lanes[t * (p.columns / 2) + i];
        }
    }
    check_sums(ROWS, p.columns, k, p.adds);
}

int main(void)
{
    test_mma(MMA("m16n8k16", "%r2, %r3, %r4, %r5", "%r6, %r7"), 16);
    test_mma(MMA("m16n8k8", "%r2, %r3", "%r6"), 8);
    for (int i = 0; i < 4; i++) {
        test_tiles(i & 1, i & 2);
    }
    test_product((product){ 16, false, false, false, false, true, 128, false });
    test_product((product){ 64, false, false, false, false, false, 128, false });
    test_product((product){ 256, false, false, false, false, true, 128, false });
    test_product((product){ 128, false, true, true, false, true, 128, false });
    test_product((product){ 32, true, false, false, false, true, 128, false });
    test_product((product){ 128, true, false, true, false, false, 128, false });
    test_product((product){ 64, true, false, false, true, true, 128, false });
    test_product((product){ 256, false, false, false, true, false, 128, false });
    test_product((product){ 64, true, false, false, false, true, 64, false });
    test_product((product){ 32, true, false, false, true, true, 64, false });
    test_product((product){ 128, false, false, false, false, true, 32, false });
    test_product((product){ 128, false, false, false, false, true, 128, true });
    return check_done();
}
