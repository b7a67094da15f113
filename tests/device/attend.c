/* attend.c: attention on the GPU compared with a reference in double over the same K and V; rows alone must equal the
   same rows in a larger launch, bit for bit.
   takes: [kernels_src [test | time [NVRTC options]]]; a GPU.
   gives: exit code 0, 1, or 77 without a GPU.
   owns:  nothing that outlives the program. */
#include "attend_rig.h"

/* ---- rows against the reference, and against the same rows of other launches ---- */

/* Runs all rows at once; then again with other numbers of stages, and each row alone: the bits must be the same. */
static void test_decode(const attend_modules *m, uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t flags)
{
    static const attend_sequence groups[][ATTEND_SEQUENCES] = {
        { { 0, 1 }, { 1, 1 }, { 15, 1 }, { 16, 1 }, { 63, 1 }, { 64, 1 } },
        { { 127, 1 }, { 510, 3 }, { 1022, 2 }, { 1024, 1 }, { 0, 1 } },
        { { 8190, 3 }, { 5000, 1 }, { 9000, 1 }, { 600, 1 } },
        { { 100, 40 }, { 0, 20 } }, /* more rows of one sequence than a warp has lanes */
        { { 300, 1 }, { 255, 3 }, { 900, 1 }, { 40, 1 }, { 1023, 1 } },
    };
    for (size_t i = 0; i < EXL2__COUNT(groups); i++) {
        attend_scene s;
        attend_scene_make(&s, heads, kv_heads, dim, groups[i], flags);
        attend_decode(m, &s, 0, s.rows, 4);
        attend_check(&s, "decode");
        uint16_t *together = attend_outputs(&s);
        attend_decode(m, &s, 0, s.rows, 1);
        attend_same(&s, together, 0, s.rows, "one stage");
        attend_decode(m, &s, 0, s.rows, 6);
        attend_same(&s, together, 0, s.rows, "six stages");
        s.early = 1;
        attend_decode(m, &s, 0, s.rows, 3);
        attend_same(&s, together, 0, s.rows, "early, three stages");
        if (attend_splits(&s, 0, s.rows) <= EXL2K_CLUSTER_MAX) {
            s.splits = EXL2K_CLUSTER_MAX;
            attend_decode(m, &s, 0, s.rows, 2);
            attend_same(&s, together, 0, s.rows, "clusters of eight");
        }
        for (uint32_t r = 0; r < s.rows; r += s.rows > 20 ? 7 : 1) {
            s.splits = 0;
            attend_decode(m, &s, r, 1, 2);
            attend_same(&s, together, r, 1, "a row alone");
            s.splits = attend_splits(&s, r, 1);
            attend_decode(m, &s, r, 1, 1);
            attend_same(&s, together, r, 1, "a row alone, with as many splits as it has");
        }
        free(together);
        attend_scene_free(&s);
    }
}

static void test_prefill(const attend_modules *m, uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t flags)
{
    static const attend_sequence groups[][ATTEND_SEQUENCES] = {
        { { 0, 1 }, { 0, 64 }, { 0, 65 }, { 63, 2 } },
        { { 0, 130 }, { 33, 200 }, { 700, 9 } },
        { { 1000, 70 }, { 4095, 3 } },
    };
    for (size_t i = 0; i < EXL2__COUNT(groups); i++) {
        attend_scene s;
        attend_scene_make(&s, heads, kv_heads, dim, groups[i], flags);
        attend_prefill(m, &s, 0, s.rows);
        attend_check(&s, "prefill");
        uint16_t *together = attend_outputs(&s);
        for (uint32_t r = 0; r < s.rows; r += 13) { /* the pages hold K and V of the earlier rows now */
            attend_prefill(m, &s, r, 1);
            attend_same(&s, together, r, 1, "a row alone");
        }
        s.scattered = true;
        attend_prefill(m, &s, 0, s.rows);
        attend_same(&s, together, 0, s.rows, "again, scattered");
        free(together);
        attend_scene_free(&s);
    }
}

/* Rows that are done, and rows beyond the pass's row count, write nothing. */
static void test_done(const attend_modules *m)
{
    static const attend_sequence sequences[ATTEND_SEQUENCES] = { { 20, 1 }, { 90, 1 }, { 700, 1 } };
    attend_scene s;
    attend_scene_make(&s, 4, 2, 64, sequences, 0);
    s.row[1].flags = EXL2K_ROW_DONE;
    s.present = 2; /* the launch has a row 2, but the pass has not */
    attend_decode(m, &s, 0, s.rows, 2);
    uint16_t *out = attend_outputs(&s);
    for (uint32_t i = s.out_pitch; i < 3 * s.out_pitch; i++) {
        CHECK(out[i] == 0xFFFF);
    }
    CHECK(out[0] != 0xFFFF);
    CHECK(!attend_page_has(&s, 1) && !attend_page_has(&s, 2));
    free(out);
    attend_scene_free(&s);
}

static void test_repeats(const attend_modules *m)
{
    static const attend_sequence sequences[2][ATTEND_SEQUENCES] = {
        { { 3000, 1 }, { 700, 1 }, { 6000, 1 }, { 50, 1 } }, { { 300, 1 }, { 700, 1 }, { 1000, 1 }, { 50, 1 } }
    };
    for (size_t k = 0; k < EXL2__COUNT(sequences); k++) {
        attend_scene s;
        attend_scene_make(&s, 32, 8, 128, sequences[k], ATTEND_PERMUTED);
        attend_decode(m, &s, 0, s.rows, 2);
        uint16_t *first = attend_outputs(&s);
        s.early = 1; /* launches overlap, as in a graph */
        s.splits = k == 1 ? EXL2K_CLUSTER_MAX : 0;
        for (int i = 0; i < 1000; i++) {
            attend_decode_launch(m, &s, s.rows, 2, s.pages.address);
        }
        attend_same(&s, first, 0, s.rows, "after 1,000 repeats");
        free(first);
        attend_scene_free(&s);
    }
}

/* ---- time: one graph in which every layer has its own pages ---- */

static void time_decode(const attend_modules *m, const char *what, uint32_t heads, uint32_t kv_heads, uint32_t dim,
                        uint32_t context, uint32_t rows, uint32_t layers, uint32_t stages)
{
    attend_sequence sequences[ATTEND_SEQUENCES] = { { 0, 0 } };
    attend_scene s;
    double best = 1e30;
    for (uint32_t i = 0; i < rows; i++) {
        sequences[i] = (attend_sequence){ context - 1, 1 };
    }
    attend_scene_make(&s, heads, kv_heads, dim, sequences, ATTEND_PERMUTED | ATTEND_UNWRITTEN);
    attend_upload(&s, 0, s.rows);
    s.splits = attend_splits(&s, 0, s.rows);
    uint64_t layer_bytes = s.pages.bytes;
    rig_buffer pages = rig_buffer_make(layer_bytes * layers);
    rig_try(rig.driver.fill8(pages.address, 0x21, (size_t)pages.bytes, rig.stream), "cuMemsetD8Async");
    attend_decode_launch(m, &s, rows, stages, pages.address); /* sets the limit of shared memory before the capture */
    rig_wait();
    rig_capture();
    for (uint32_t l = 0; l < layers; l++) {
        attend_decode_launch(m, &s, rows, stages, pages.address + l * layer_bytes);
    }
    exl2__cuda_graph_exec *graph = rig_captured();
    rig_start();
    for (uint32_t i = 0; i < 100; i++) { /* clocks rise */
        rig_replay(graph);
    }
    rig_stop();
    for (int i = 0; i < 5; i++) {
        rig_start();
        rig_replay(graph);
        double us = rig_stop() / layers;
        best = us < best ? us : best;
    }
    double bytes = 4.0 * kv_heads * dim * context * rows;
    printf("decode: %-14s %u/%u heads of %3u, context %6u, %u rows, %u stages: %7.2f us a layer, %6.0f GB/s\n", what,
           heads, kv_heads, dim, context, rows, stages, best, bytes / best * 1e-3);
    rig_buffer_free(&pages);
    attend_scene_free(&s);
}

static void time_prefill(const attend_modules *m, uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t before,
                         uint32_t rows)
{
    attend_sequence sequences[ATTEND_SEQUENCES] = { { before, rows } };
    attend_scene s;
    double best = 1e30;
    attend_scene_make(&s, heads, kv_heads, dim, sequences, ATTEND_PERMUTED | ATTEND_UNWRITTEN);
    rig_try(rig.driver.fill8(s.pages.address, 0x21, (size_t)s.pages.bytes, rig.stream), "cuMemsetD8Async");
    attend_prefill(m, &s, 0, s.rows);
    for (uint32_t i = 0; i < 200; i++) { /* clocks rise */
        attend_prefill_launch(m, &s, s.rows);
    }
    rig_wait();
    for (int i = 0; i < 5; i++) {
        rig_start();
        for (int j = 0; j < 8; j++) {
            attend_prefill_launch(m, &s, s.rows);
        }
        double us = rig_stop() / 8;
        best = us < best ? us : best;
    }
    double flops = 4.0 * heads * dim * rows * (before + rows / 2.0);
    printf("prefill: %u/%u heads of %3u, %u tokens after %u: %7.1f us a layer, %5.0f TFLOP/s\n", heads, kv_heads, dim,
           rows, before, best, flops / best * 1e-6);
    attend_scene_free(&s);
}

static void time_all(const attend_modules *m)
{
    static const uint32_t contexts[] = { 16, 128, 512, 1024, 2048, 6144, 32768 };
    for (size_t i = 0; i < EXL2__COUNT(contexts); i++) {
        time_decode(m, "8B", 32, 8, 128, contexts[i], 1, contexts[i] > 8192 ? 8 : 32, 2);
    }
    time_decode(m, "8B", 32, 8, 128, 512, 1, 32, 1);
    time_decode(m, "8B", 32, 8, 128, 512, 1, 32, 4);
    time_decode(m, "8B", 32, 8, 128, 6144, 1, 32, 4);
    time_decode(m, "8B", 32, 8, 128, 512, 6, 32, 2);
    time_decode(m, "8B", 32, 8, 128, 512, 6, 32, 4);
    time_decode(m, "1.1B", 32, 4, 64, 384, 1, 22, 2);
    time_decode(m, "135M", 9, 3, 64, 384, 1, 30, 2);
    time_prefill(m, 32, 8, 128, 0, 1024);
    time_prefill(m, 32, 8, 128, 1024, 1024);
    time_prefill(m, 32, 8, 128, 0, 2048);
    time_prefill(m, 32, 4, 64, 0, 2048);
}

int main(int argc, char **argv)
{
    static const struct { uint32_t heads, kv_heads, dim; } shapes[] = {
        { 4, 4, 64 }, { 9, 3, 64 }, { 32, 4, 64 }, { 4, 2, 80 }, { 6, 2, 96 }, { 32, 8, 128 }, { 14, 2, 128 },
        { 16, 1, 128 }, { 12, 1, 128 }, { 8, 4, 256 }, { 5, 1, 192 },
    };
    bool test = argc < 3 || strcmp(argv[2], "test") == 0, time = argc < 3 || strcmp(argv[2], "time") == 0;
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    attend_modules m = attend_modules_load(argc > 3 ? argv[3] : NULL);
    rig.programmatic = argc > 3 && strstr(argv[3], "EXL2K_PDL=1");
    for (size_t i = 0; i < EXL2__COUNT(shapes) && test; i++) {
        uint32_t flags = (i & 1 ? ATTEND_PERMUTED : 0) | (i % 3 == 2 ? ATTEND_HALF : 0);
        test_decode(&m, shapes[i].heads, shapes[i].kv_heads, shapes[i].dim, flags);
        test_prefill(&m, shapes[i].heads, shapes[i].kv_heads, shapes[i].dim, flags);
    }
    if (test) {
        test_done(&m);
        test_repeats(&m);
        printf("largest error of a row: decode %.2g, prefill %.2g\n", attend_worst[0], attend_worst[1]);
    }
    if (time) {
        time_all(&m);
    }
    rig_close();
    return test ? check_done() : 0;
}
