/* cuda_gemm.c: plans of products of many rows: whatever the matrix, the rows and the device, a launch stays within the
   memory that is set aside for any plan, and its splits cover K.
   takes: nothing.
   gives: exit code 0 or 1.
   owns:  nothing.
   next:  cuda_model.c */
#include "../../exl2_impl/3_backend/cuda_gemm.h"
#include "../check.h"

static const uint32_t sms[] = { 1, 14, 20, 36, 46, 82, 108, 128, 132, 144, 148, 170 };
static const uint32_t budgets[] = { 49152, 65536, 101376, 166912, 232448 };
static const uint32_t rows[] = { 9, 32, 33, 64, 65, 97, 100, 128, 129, 256, 257, 512, 513, 1024 };
static const uint32_t columns[] = { 32, 256, 512, 1536, 2048, 4096, 5632, 8192, 11008, 14336, 28672, 128256 };
static const uint32_t inputs[] = { 32, 576, 2048, 4096, 14336, 28672 };

typedef struct tally {
    uint32_t plans, split_acts;
    uint64_t most_partial; /* in blocks of 128 KiB, for 132 multiprocessors */
} tally;

/* What gemm_args.h says of a launch, from the plan's own numbers. */
static void check_plan(tally *t, exl2k_gemm_args a, uint32_t device_sms, uint32_t budget)
{
    exl2__cuda_gemm_plan plan = exl2__cuda_gemm_plan_make(&a, 2112, device_sms, budget);
    if (plan.rows == 0) {
        return;
    }
    uint32_t halves = (a.matrix.rows + 31) / 32, tiles = a.row_tiles * a.column_tiles;
    uint32_t passes = a.kind == EXL2K_GEMM_ACT ? 2 : 1;
    uint64_t block = (uint64_t)plan.rows * 1024, blocks = 0;
    if (a.splits > 1) {
        blocks = (uint64_t)tiles * a.splits * passes + (passes == 2 ? tiles : 0);
        CHECK(tiles * a.splits <= device_sms && plan.ctas == tiles * a.splits);
        CHECK_INT(plan.tickets, tiles * passes * EXL2K_GEMM_WARPS);
        t->split_acts += passes == 2;
    } else if (passes == 2) {
        blocks = plan.ctas;
        CHECK(plan.ctas <= device_sms);
    }
    CHECK_INT(plan.partial_bytes, blocks * block);
    CHECK(plan.partial_bytes <= exl2__cuda_gemm_partial_max(device_sms));
    CHECK(plan.tickets * sizeof(uint32_t) <= exl2__cuda_gemm_tickets_max(device_sms));
    CHECK(plan.shared_bytes <= budget);
    CHECK((uint64_t)a.row_tiles * plan.rows >= a.rows);
    CHECK(a.halves % 2 == 0 && a.halves * a.splits >= halves && a.halves * (a.splits - 1) < halves);
    t->plans++;
    if (device_sms == 132 && plan.partial_bytes / 131072 > t->most_partial) {
        t->most_partial = plan.partial_bytes / 131072;
    }
}

int main(void)
{
    tally t = { 0, 0, 0 };
    for (size_t s = 0; s < sizeof sms / sizeof sms[0]; s++) {
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            for (size_t n = 0; n < sizeof columns / sizeof columns[0]; n++) {
                for (size_t k = 0; k < sizeof inputs / sizeof inputs[0]; k++) {
                    for (uint32_t kind = EXL2K_GEMM_STORE; kind <= EXL2K_GEMM_ACT; kind++) {
                        exl2k_gemm_args a = { .rows = rows[r], .kind = kind };
                        a.matrix.rows = inputs[k];
                        a.matrix.parts = kind == EXL2K_GEMM_ACT ? 2 : 1;
                        a.matrix.part[0].strips = a.matrix.part[1].strips = columns[n] / 16;
                        check_plan(&t, a, sms[s], budgets[(r + n + k) % 5]);
                    }
                }
            }
        }
    }
    printf("%u plans, %u of them two sums with splits; at most %llu blocks on 132 multiprocessors\n", t.plans,
           t.split_acts, (unsigned long long)t.most_partial);
    CHECK(t.plans > 10000 && t.split_acts > 500 && t.most_partial > 264);
    return check_done();
}
