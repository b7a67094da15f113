/* gpu_product.h: a product of the converter's kernels, with its result in host memory.
   takes: the engine's headers of the converter, included before.
   gives: gpu_product. */
#ifndef GPU_PRODUCT_H
#define GPU_PRODUCT_H

static exl2_result gpu_product_steps(exl2__gpu *g, const exl2__cpu_part *p, float *out)
{
    exl2k_u64 y;
    uint64_t bytes = (uint64_t)g->rows * p->strips * EXL2__CPU_STRIP * sizeof *out;
    EXL2__TRY(exl2__gpu_need(g, bytes, EXL2__GPU_Y, &y));
    EXL2__TRY(exl2__gpu_multiply(g, p, y, 0));
    return exl2__gpu_down(g, out, y, bytes);
}

/* out [rows, strips * 32]: the inputs that exl2__gpu_rows has set, times a part of as many inputs, with its bias. */
static exl2_result gpu_product(exl2__gpu *g, const exl2__cpu_part *p, float *out)
{
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    return exl2__cuda_device_leave_with(g->d, gpu_product_steps(g, p, out));
}

#endif
