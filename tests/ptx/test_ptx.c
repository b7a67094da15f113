/* test_ptx.c: the PTX interpreter: small kernels by hand; their results are computed here, in C.
   takes: rig.h.
   gives: exit code. */
#include "rig.h"

#include <math.h>

#define ONE_BUFFER                                                                                 \
    RIG_HEAD ".visible .entry test(.param .u64 a)\n{\n.reg .pred %p<9>;\n.reg .b16 %h<9>;\n"       \
             ".reg .b32 %r<19>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<9>;\nld.param.u64 %rd1, [a];\n"   \
             "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\n"               \
             "mad.lo.s32 %r4, %r2, %r3, %r1;\nmul.wide.u32 %rd2, %r4, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"

/* Each thread sums 0 ... its number in a loop: lanes leave it one after the other, and meet again. */
static void test_divergence(void)
{
    static const char text[] = ONE_BUFFER
        "mov.u32 %r5, 0;\nmov.u32 %r6, 0;\nLOOP:\nadd.s32 %r5, %r5, %r6;\nsetp.ge.u32 %p1, %r6, %r4;\n"
        "@%p1 bra DONE;\nadd.s32 %r6, %r6, 1;\nbra.uni LOOP;\nDONE:\nactivemask.b32 %r7;\n"
        "setp.eq.s32 %p2, %r7, -1;\nselp.b32 %r8, %r5, 77, %p2;\nst.global.u32 [%rd3], %r8;\nret;\n}\n";
    uint32_t out[96] = { 0 };
    rig r = { .text = text, .buffers = { { out, sizeof out } }, .threads = 32, .ctas = 3 };
    rig_check(&r);
    for (uint32_t i = 0; i < 96; i++) {
        CHECK_INT(out[i], i * (i + 1) / 2);
    }
}

int main(void)
{
    test_divergence();
    return check_done();
}
