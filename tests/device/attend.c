/* attend.c: attention on the GPU compared with a reference in double over the same K and V; rows alone must equal the
   same rows in a larger launch, bit for bit.
   takes: [kernels_src [test | codes | few | time | N [NVRTC options]]]; a GPU. test: with pages of fp16; codes: with
          those of quantized caches; few: decode from these, in short contexts, for sanitizers; N: only the heads and
          layers of this number.
   gives: exit code 0, 1, or 77 without a GPU. */
#include "attend_rig.h"

/* ---- rows against the reference, and against the same rows of other launches ---- */

/* Runs all rows at once; then again with other numbers of stages, and each row alone: the bits must be the same. */
static void test_decode(const attend_modules *m, const attend_kind *kind, uint32_t flags, bool few)
{
    static const attend_sequence groups[][ATTEND_SEQUENCES] = {
        { { 0, 1 }, { 1, 1 }, { 15, 1 }, { 16, 1 }, { 63, 1 }, { 64, 1 } },
        { { 127, 1 }, { 510, 3 }, { 1022, 2 }, { 1024, 1 }, { 0, 1 } },
        { { 8190, 3 }, { 5000, 1 }, { 9000, 1 }, { 600, 1 } },
        { { 100, 40 }, { 0, 20 } }, /* more rows of one sequence than a warp has lanes */
        { { 300, 1 }, { 255, 3 }, { 900, 1 }, { 40, 1 }, { 1023, 1 } },
        { { 198, 3 }, { 2047, 1 }, { 2048, 1 }, { 78, 2 }, { 4110, 1 } },
    };
    for (size_t i = 0; i < (few ? 2 : EXL2__COUNT(groups)); i++) {
        attend_scene s;
        attend_scene_make(&s, kind, groups[i], flags);
        uint8_t *before = take((size_t)s.pages.bytes);
        rig_download(s.pages, 0, before, (size_t)s.pages.bytes);
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
            s.stores = r % 2 == 0; /* of a quantized cache */
            attend_decode(m, &s, r, 1, 2);
            attend_same(&s, together, r, 1, "a row alone");
            s.splits = attend_splits(&s, r, 1);
            attend_decode(m, &s, r, 1, 1);
            attend_same(&s, together, r, 1, "a row alone, with as many splits as it has");
            s.any_rows = true;
            attend_decode(m, &s, r, 1, 1);
            attend_same(&s, together, r, 1, "a row alone, by the kernel for any rows");
            s.any_rows = false;
        }
        s.crowd = true;
        for (uint32_t stages = 1; stages <= 3 && attend_has_crowd(&s); stages++) {
            rig_upload(s.pages, 0, before, (size_t)s.pages.bytes);
            s.splits = stages == 2 ? attend_splits(&s, 0, s.rows) : 0;
            attend_decode(m, &s, 0, s.rows, stages);
            attend_check(&s, "decode by smaller CTAs");
            attend_same(&s, together, 0, s.rows, "by smaller CTAs");
        }
        s.crowd = false;
        for (uint32_t early = 0; early < 2 && s.rows <= EXL2K_KEPT && s.codes; early++) {
            rig_upload(s.pages, 0, before, (size_t)s.pages.bytes);
            s.stores = true;
            s.early = early;
            s.splits = 0;
            attend_decode(m, &s, 0, s.rows, 4);
            attend_same(&s, together, 0, s.rows, "rows that store");
            attend_check(&s, "decode");
        }
        free(before);
        free(together);
        attend_scene_free(&s);
    }
}

/* wg: the largest number of CTAs of prefill by wgmma; 0: by mma.sync. */
static void test_prefill(const attend_modules *m, const attend_kind *kind, uint32_t flags, uint32_t wg)
{
    static const attend_sequence groups[][ATTEND_SEQUENCES] = {
        { { 0, 1 }, { 0, 64 }, { 0, 65 }, { 63, 2 } },
        { { 0, 130 }, { 33, 200 }, { 700, 9 } },
        { { 1000, 70 }, { 4095, 3 } },
    };
    for (size_t i = 0; i < EXL2__COUNT(groups); i++) {
        attend_scene s;
        attend_scene_make(&s, kind, groups[i], flags);
        uint8_t *before = take((size_t)s.pages.bytes);
        rig_download(s.pages, 0, before, (size_t)s.pages.bytes);
        s.wg = wg;
        attend_prefill(m, &s, 0, s.rows);
        attend_check(&s, "prefill");
        uint16_t *together = attend_outputs(&s);
        for (uint32_t r = 0; r < s.rows; r += 13) { /* the pages hold K and V of the earlier rows now */
            attend_prefill(m, &s, r, 1);
            attend_same(&s, together, r, 1, "a row alone");
        }
        s.scattered = !wg;
        attend_prefill(m, &s, 0, s.rows);
        attend_same(&s, together, 0, s.rows, "again, scattered");
        for (uint32_t ctas = 1; ctas <= 5 && wg; ctas += 2) { /* more tiles of each */
            s.wg = ctas;
            attend_prefill(m, &s, 0, s.rows);
            attend_same(&s, together, 0, s.rows, "with few CTAs");
        }
        s.rotates = attend_can_rotate(&s);
        for (uint32_t ctas = 3; ctas <= 60 && s.rotates; ctas += 57) {
            s.wg = ctas;
            s.early = ctas > 3;
            rig_upload(s.pages, 0, before, (size_t)s.pages.bytes);
            attend_prefill(m, &s, 0, s.rows);
            attend_check(&s, "prefill of rotated queries");
            attend_same(&s, together, 0, s.rows, "of rotated queries");
        }
        free(before);
        free(together);
        attend_scene_free(&s);
    }
}

/* Rows that are done, and rows beyond the pass's row count, write nothing. */
static void test_done(const attend_modules *m, exl2_kv format)
{
    static const attend_sequence sequences[ATTEND_SEQUENCES] = { { 20, 1 }, { 90, 1 }, { 700, 1 } };
    attend_scene s;
    attend_kind kind = attend_plain(4, 2, 64);
    kind.format = format;
    attend_scene_make(&s, &kind, sequences, 0);
    s.row[1].flags = EXL2K_ROW_DONE;
    s.present = 2; /* the launch has a row 2, but the pass has not */
    attend_decode(m, &s, 0, s.rows, 2);
    uint16_t *out = attend_outputs(&s);
    for (uint32_t i = s.out_pitch; i < 3 * s.out_pitch; i++) {
        CHECK(out[i] == 0xFFFF);
    }
    CHECK(out[0] != 0xFFFF);
    CHECK(attend_page_has(&s, 0) && !attend_page_has(&s, 1) && !attend_page_has(&s, 2));
    free(out);
    attend_scene_free(&s);
}

static void test_prefill_repeats(const attend_modules *m)
{
    static const attend_sequence sequences[ATTEND_SEQUENCES] = { { 1000, 500 }, { 0, 300 }, { 77, 60 } };
    for (uint32_t dim = 64; dim <= 128 && attend_has_wg(dim); dim *= 2) {
        attend_scene s;
        attend_kind kind = attend_plain(16, 4, dim);
        kind.format = dim == 128 ? EXL2_KV_Q6 : EXL2_KV_FP16;
        attend_scene_make(&s, &kind, sequences, 0);
        s.wg = (uint32_t)rig.sm_count;
        attend_prefill(m, &s, 0, s.rows);
        uint16_t *first = attend_outputs(&s);
        s.early = 1; /* launches overlap, as in a pass */
        for (int i = 0; i < 1000; i++) {
            s.wg = i % 7 ? (uint32_t)rig.sm_count - (uint32_t)i % 100 : 5;
            attend_prefill_launch(m, &s, s.rows);
        }
        attend_same(&s, first, 0, s.rows, "prefill after 1,000 repeats");
        free(first);
        attend_scene_free(&s);
    }
}

static void test_repeats(const attend_modules *m)
{
    static const attend_sequence sequences[2][ATTEND_SEQUENCES] = {
        { { 3000, 1 }, { 700, 1 }, { 6000, 1 }, { 50, 1 } }, { { 300, 1 }, { 700, 1 }, { 1000, 1 }, { 50, 1 } }
    };
    for (size_t k = 0; k < 2 * EXL2__COUNT(sequences); k++) {
        attend_scene s;
        attend_kind kind = attend_plain(32, 8, 128);
        kind.format = k > 1 ? EXL2_KV_Q4 : EXL2_KV_FP16;
        attend_scene_make(&s, &kind, sequences[k % 2], ATTEND_PERMUTED);
        attend_decode(m, &s, 0, s.rows, 2);
        uint16_t *first = attend_outputs(&s);
        s.early = 1; /* launches overlap, as in a graph */
        s.splits = k % 2 == 1 ? EXL2K_CLUSTER_MAX : 0;
        for (int i = 0; i < 1000; i++) {
            attend_decode_launch(m, &s, s.rows, 2, s.pages.address);
        }
        attend_same(&s, first, 0, s.rows, "after 1,000 repeats");
        free(first);
        attend_scene_free(&s);
    }
}

/* ---- norms, bounds and growth of q, k, v ---- */

#define PREPARE_ROWS 3

typedef struct prepare_kind {
    uint32_t heads, kv_heads, dim;
    bool norm, whole, layer_norm, rotates, pairs, bias;
    float clip, growth;
} prepare_kind;

/* The norm of x [count], in double. */
static void prepare_norm(const exl2k_prepare_args *a, const float *weight, const float *bias, uint32_t count, double *x)
{
    double mean = 0, square = 0;
    for (uint32_t i = 0; i < count && a->layer_norm; i++) {
        mean += x[i] / count;
    }
    for (uint32_t i = 0; i < count; i++) {
        square += (x[i] - mean) * (x[i] - mean) / count;
    }
    for (uint32_t i = 0; i < count; i++) {
        x[i] = (x[i] - mean) / sqrt(square + (double)a->eps) * (double)weight[i] + (bias ? (double)bias[i] : 0);
    }
}

static void prepare_clip(const exl2k_prepare_args *a, uint32_t count, double *x)
{
    for (uint32_t i = 0; i < count && a->clip > 0; i++) {
        x[i] = fmax(fmin(x[i], (double)a->clip), -(double)a->clip);
    }
}

/* Rotates one head with all of its elements, in place. */
static void prepare_rotate(const exl2k_prepare_args *a, const float *angles, double *x)
{
    double before[256];
    memcpy(before, x, a->dim * sizeof *x);
    for (uint32_t i = 0; i < a->dim / 2; i++) {
        uint32_t first = a->rope_split ? i : 2 * i, second = a->rope_split ? i + a->dim / 2 : 2 * i + 1;
        double c = (double)angles[2 * i], s = (double)angles[2 * i + 1];
        x[first] = before[first] * c - before[second] * s;
        x[second] = before[second] * c + before[first] * s;
    }
}

/* q (part 0) or k (1) of a row, in place. weight, bias: [heads, dim] of the part. */
static void prepare_reference(const exl2k_prepare_args *a, const prepare_kind *kind, uint32_t part, const float *weight,
                              const float *bias, const float *angles, uint32_t position, double *x)
{
    uint32_t heads = part ? a->kv_heads : a->heads, each = kind->whole ? heads * a->dim : a->dim;
    if (kind->rotates) {
        prepare_clip(a, heads * a->dim, x);
    }
    for (uint32_t head = 0; head < heads && kind->rotates; head++) {
        prepare_rotate(a, angles, x + head * a->dim);
    }
    for (uint32_t i = 0; i < heads * a->dim && kind->norm; i += each) {
        prepare_norm(a, weight + i, kind->bias ? bias + i : NULL, each, x + i);
    }
    if (!kind->rotates) {
        prepare_clip(a, heads * a->dim, x);
    }
    double factor = 1 + (double)a->growth * log(1 + floor(position / (double)a->context));
    for (uint32_t i = 0; i < heads * a->dim && part == 0; i++) {
        x[i] *= factor;
    }
}

static void test_prepare_kind(const attend_modules *m, const prepare_kind *kind)
{
    static const uint32_t positions[PREPARE_ROWS] = { 0, 600, 1 };
    enum { CONTEXT = 601 };
    uint32_t dim = kind->dim, q = kind->heads * dim, k = kind->kv_heads * dim, pitch = q + 2 * k + 16;
    float *qkv = take(PREPARE_ROWS * pitch * sizeof *qkv), *got = take(PREPARE_ROWS * pitch * sizeof *got);
    float *vectors = take(2 * (q + k) * sizeof *vectors), *angles = take(CONTEXT * dim * sizeof *angles);
    double *x = take(q * sizeof *x), error = 0, size = 0;
    exl2k_row rows[PREPARE_ROWS];
    exl2k_pass pass = { .row_count = PREPARE_ROWS };
    for (uint32_t i = 0; i < PREPARE_ROWS * pitch; i++) {
        qkv[i] = (float)(attend_number() * 3 + (kind->layer_norm ? 100 : 0)); /* a large mean */
    }
    for (uint32_t i = 0; i < 2 * (q + k); i++) {
        vectors[i] = (float)(attend_number() + 2);
    }
    for (uint32_t i = 0; i < CONTEXT * dim / 2; i++) {
        double angle = i / (dim / 2) * pow(10000, -2.0 * (i % (dim / 2)) / dim);
        angles[2 * i] = (float)cos(angle);
        angles[2 * i + 1] = (float)sin(angle);
    }
    for (uint32_t r = 0; r < PREPARE_ROWS; r++) {
        rows[r] = (exl2k_row){ 0, positions[r], r, 0 };
    }
    rig_buffer pass_at = rig_buffer_of(&pass, sizeof pass), rows_at = rig_buffer_of(rows, sizeof rows);
    rig_buffer data = rig_buffer_of(qkv, PREPARE_ROWS * pitch * 4), rope = rig_buffer_of(angles, CONTEXT * dim * 4);
    rig_buffer norms = rig_buffer_of(vectors, 2 * (q + k) * 4);
    exl2k_prepare_args a = { .pass = pass_at.address, .rows = rows_at.address, .qkv = data.address,
                             .rope = kind->rotates ? rope.address : 0, .rope_pitch = dim / 2,
                             .rope_split = kind->pairs ? 0 : dim / 2, .pitch = pitch, .heads = kind->heads,
                             .kv_heads = kind->kv_heads, .dim = dim, .whole = kind->whole,
                             .part_heads = kind->whole ? kind->heads : EXL2K_PREPARE_HEADS,
                             .layer_norm = kind->layer_norm, .eps = 1e-5f, .clip = kind->clip, .growth = kind->growth,
                             .context = 100 };
    for (uint32_t part = 0; part < 2; part++) {
        a.weight[part] = kind->norm ? norms.address + part * q * 4 : 0;
        a.bias[part] = kind->bias ? norms.address + (q + k + part * q) * 4 : 0;
    }
    uint32_t k_parts = (kind->kv_heads + a.part_heads - 1) / a.part_heads;
    uint32_t parts = (kind->heads + a.part_heads - 1) / a.part_heads + k_parts * (kind->clip > 0 ? 2 : 1);
    rig_launch(&m->prepare, "exl2k_attend_prepare", PREPARE_ROWS, parts, EXL2K_PREPARE_THREADS, 0, &a, sizeof a);
    rig_download(data, 0, got, PREPARE_ROWS * pitch * 4);
    for (uint32_t r = 0; r < PREPARE_ROWS; r++) {
        const float *in = qkv + r * pitch, *out = got + r * pitch;
        for (uint32_t part = 0; part < 3; part++) {
            uint32_t at = part == 0 ? 0 : part == 1 ? q : q + k, count = part == 0 ? q : k;
            for (uint32_t i = 0; i < count; i++) {
                x[i] = (double)in[at + i];
            }
            if (part < 2) {
                prepare_reference(&a, kind, part, vectors + part * q, vectors + q + k + part * q,
                                  angles + positions[r] * dim, positions[r], x);
            } else {
                prepare_clip(&a, count, x);
            }
            for (uint32_t i = 0; i < count; i++) {
                error += ((double)out[at + i] - x[i]) * ((double)out[at + i] - x[i]);
                size += x[i] * x[i];
            }
        }
        CHECK(memcmp(in + q + 2 * k, out + q + 2 * k, 16 * sizeof *in) == 0);
    }
    if (!CHECK(sqrt(error / size) < (kind->layer_norm ? 1e-5 : 2e-6))) {
        printf("  prepare: %u/%u heads of %u: off by %g\n", kind->heads, kind->kv_heads, dim, sqrt(error / size));
    }
    /* A row alone has the same bits. */
    pass.row_count = 1;
    rig_upload(pass_at, 0, &pass, sizeof pass);
    rig_upload(rows_at, 0, &rows[1], sizeof rows[1]);
    rig_upload(data, 0, qkv + pitch, pitch * 4);
    rig_launch(&m->prepare, "exl2k_attend_prepare", 2, parts, EXL2K_PREPARE_THREADS, 0, &a, sizeof a);
    rig_download(data, 0, qkv, 2 * pitch * 4);
    CHECK(memcmp(qkv, got + pitch, pitch * 4) == 0);
    CHECK(memcmp(qkv + pitch, got + pitch, pitch * 4) == 0); /* the second row is not of the pass */
    rig_buffer *all[] = { &pass_at, &rows_at, &data, &rope, &norms };
    for (size_t i = 0; i < EXL2__COUNT(all); i++) {
        rig_buffer_free(all[i]);
    }
    free(qkv); free(got); free(vectors); free(angles); free(x);
}

static void test_prepare(const attend_modules *m)
{
    static const prepare_kind kinds[] = {
        { 4, 2, 64, .norm = true }, { 32, 8, 128, .norm = true }, { 20, 3, 256, .norm = true, .clip = 2 },
        { 9, 1, 72, .norm = true, .layer_norm = true }, { 8, 8, 40, .norm = true, .layer_norm = true, .bias = true },
        { 16, 2, 128, .norm = true, .whole = true }, { 5, 5, 8, .norm = true, .whole = true, .clip = 1 },
        { 12, 4, 96, .norm = true, .whole = true, .layer_norm = true },
        { 16, 4, 128, .norm = true, .rotates = true }, { 4, 2, 80, .norm = true, .rotates = true, .pairs = true },
        { 6, 2, 64, .norm = true, .rotates = true, .clip = 3, .growth = 0.1f },
        { 8, 2, 64, .clip = 1 }, { 12, 2, 128, .growth = 0.1f },
    };
    for (size_t i = 0; i < EXL2__COUNT(kinds); i++) {
        test_prepare_kind(m, &kinds[i]);
    }
}

/* Norms of q and k give the same bits, outputs and pages, in attention and in the kernel before it. A row also attends
   to rows of its own text in the same launch, whose K it computes itself. */
static void test_norms_kind(const attend_modules *m, const attend_kind *kind)
{
    static const attend_sequence sequences[ATTEND_SEQUENCES] = { { 0, 3 }, { 62, 4 }, { 700, 1 } };
    uint32_t q = kind->heads * kind->dim, k = kind->kv_heads * kind->dim;
    attend_scene s;
    attend_scene_make(&s, kind, sequences, ATTEND_PERMUTED);
    float *vectors = take((q + k) * sizeof *vectors);
    for (uint32_t i = 0; i < q + k; i++) {
        vectors[i] = (float)(attend_number() + 2);
    }
    rig_buffer norms = rig_buffer_of(vectors, (q + k) * 4);
    uint8_t *pages[2] = { take((size_t)s.pages.bytes), take((size_t)s.pages.bytes) };
    s.norm[0] = norms.address;
    s.norm[1] = norms.address + q * 4;
    s.splits = attend_splits(&s, 0, s.rows);
    attend_decode(m, &s, 0, s.rows, 2);
    uint16_t *wanted = attend_outputs(&s);
    rig_download(s.pages, 0, pages[0], (size_t)s.pages.bytes);
    exl2k_attend_args of = attend_args(&s, 1, 0);
    exl2k_prepare_args a = { .pass = s.step.address, .rows = s.rows_at.address, .qkv = s.inputs.address,
                             .weight = { s.norm[0], s.norm[1] }, .rope_split = of.rope_split, .pitch = s.qkv_pitch,
                             .heads = s.heads, .kv_heads = s.kv_heads, .dim = s.dim,
                             .part_heads = EXL2K_PREPARE_HEADS, .eps = 1e-5f };
    uint32_t parts = (s.heads + a.part_heads - 1) / a.part_heads + (s.kv_heads + a.part_heads - 1) / a.part_heads;
    rig_upload(s.pages, 0, s.host_pages, (size_t)s.pages.bytes);
    rig_launch(&m->prepare, "exl2k_attend_prepare", s.rows, parts, EXL2K_PREPARE_THREADS, 0, &a, sizeof a);
    s.norm[0] = s.norm[1] = 0;
    attend_decode(m, &s, 0, s.rows, 2);
    attend_same(&s, wanted, 0, s.rows, "norms before attention");
    rig_download(s.pages, 0, pages[1], (size_t)s.pages.bytes);
    CHECK(memcmp(pages[0], pages[1], (size_t)s.pages.bytes) == 0);
    rig_buffer_free(&norms);
    attend_scene_free(&s);
    free(vectors); free(wanted); free(pages[0]); free(pages[1]);
}

static void test_norms(const attend_modules *m)
{
    static const attend_kind kinds[] = {
        { .heads = 4, .kv_heads = 2, .dim = 64 },
        { .heads = 32, .kv_heads = 4, .dim = 128 },
        { .heads = 4, .kv_heads = 1, .dim = 256 },
        { .heads = 9, .kv_heads = 3, .dim = 72, .pairs = true },
        { .heads = 6, .kv_heads = 2, .dim = 40, .unrotated = 16 },
        { .heads = 20, .kv_heads = 4, .dim = 120, .window = 65, .cap = 20 },
    };
    for (size_t i = 0; i < EXL2__COUNT(kinds); i++) {
        test_norms_kind(m, &kinds[i]);
    }
}

/* ---- time: one graph in which every layer has its own pages ---- */

static void time_decode(const attend_modules *m, const char *what, exl2_kv format, uint32_t heads, uint32_t kv_heads,
                        uint32_t dim, uint32_t context, uint32_t rows, uint32_t layers, uint32_t stages)
{
    static const double bits[] = { 32, 17, 13, 9 }; /* of an element of K and one of V */
    attend_sequence sequences[ATTEND_SEQUENCES] = { { 0, 0 } };
    attend_scene s;
    double best = 1e30;
    for (uint32_t i = 0; i < rows; i++) {
        sequences[i] = (attend_sequence){ context - 1, 1 };
    }
    attend_kind kind = attend_plain(heads, kv_heads, dim);
    kind.format = format;
    attend_scene_make(&s, &kind, sequences, ATTEND_PERMUTED | ATTEND_UNWRITTEN);
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
    double bytes = bits[format] / 8 * kv_heads * dim * context * rows;
    printf("decode: %-10s %s %u/%u heads of %3u, context %6u, %u rows, %u stages: %7.2f us a layer, %6.0f GB/s\n", what,
           attend_formats[format], heads, kv_heads, dim, context, rows, stages, best, bytes / best * 1e-3);
    rig_buffer_free(&pages);
    attend_scene_free(&s);
}

static void time_all(const attend_modules *m)
{
    static const uint32_t contexts[] = { 16, 128, 512, 1024, 2048, 6144, 32768 };
    for (size_t i = 0; i < EXL2__COUNT(contexts); i++) {
        time_decode(m, "8B", EXL2_KV_FP16, 32, 8, 128, contexts[i], 1, contexts[i] > 8192 ? 8 : 32, 2);
    }
    for (uint32_t format = EXL2_KV_FP16; format <= EXL2_KV_Q4; format++) {
        static const uint32_t stages[] = { 4, 4, 8, 8 };
        time_decode(m, "8B", (exl2_kv)format, 32, 8, 128, 512, 1, 32, 4);
        time_decode(m, "8B", (exl2_kv)format, 32, 8, 128, 8192, 1, 32, stages[format]);
        time_decode(m, "8B", (exl2_kv)format, 32, 8, 128, 32768, 1, 8, stages[format]);
        time_decode(m, "8B", (exl2_kv)format, 32, 8, 128, 32768, 4, 2, 4);
    }
    time_decode(m, "8B", EXL2_KV_FP16, 32, 8, 128, 512, 1, 32, 1);
    time_decode(m, "8B", EXL2_KV_FP16, 32, 8, 128, 512, 1, 32, 4);
    time_decode(m, "8B", EXL2_KV_FP16, 32, 8, 128, 6144, 1, 32, 4);
    time_decode(m, "8B", EXL2_KV_FP16, 32, 8, 128, 512, 6, 32, 2);
    time_decode(m, "8B", EXL2_KV_FP16, 32, 8, 128, 512, 6, 32, 4);
    time_decode(m, "1.1B", EXL2_KV_FP16, 32, 4, 64, 384, 1, 22, 2);
    time_decode(m, "135M", EXL2_KV_FP16, 9, 3, 64, 384, 1, 30, 2);
}

int main(int argc, char **argv)
{
    static const struct { uint32_t heads, kv_heads, dim; } shapes[] = {
        { 4, 4, 64 }, { 9, 3, 64 }, { 32, 4, 64 }, { 4, 2, 80 }, { 6, 2, 96 }, { 32, 8, 128 }, { 14, 2, 128 },
        { 16, 1, 128 }, { 12, 1, 128 }, { 8, 4, 256 }, { 5, 1, 192 },
        { 2, 1, 8 }, { 4, 2, 40 }, { 4, 2, 72 }, { 6, 2, 120 }, { 3, 1, 136 }, { 2, 2, 248 },
    };
    static const attend_kind kinds[] = { /* windows and caps, then kinds of RoPE */
        { 8, 2, 64, .window = 1 }, { 4, 2, 64, .window = 63 }, { 32, 8, 128, .window = 64, .cap = 50 },
        { 8, 4, 256, .window = 65, .cap = 2 }, { 4, 1, 80, .window = 200, .pairs = true },
        { 8, 2, 128, .window = 1024 }, { 20, 2, 120, .window = 2049 }, { 8, 1, 256, .window = 4096 },
        { 4, 2, 128, .cap = 2 }, { 2, 1, 24, .cap = 50 },
        { 8, 2, 112, .unrotated = 56 }, { 4, 2, 80, .unrotated = 48 }, { 4, 1, 128, .pairs = true },
        { 4, 2, 64, .unrotated = 32, .pairs = true }, { 4, 2, 64, .unrotated = 64, .window = 300 },
        { 2, 1, 256, .unrotated = 192 },
        { 8, 2, 128, .divided = true }, { 4, 2, 64, .divided = true, .unrotated = 32, .pairs = true },
        { 4, 1, 256, .divided = true },
        { 16, 2, 64, .sinks = true }, { 16, 2, 64, .window = 128, .sinks = true }, { 8, 2, 128, .sinks = true },
        { 8, 1, 256, .cap = 2, .sinks = true },
        { 32, 8, 128, .format = EXL2_KV_Q8 }, { 32, 8, 128, .format = EXL2_KV_Q6 },
        { 32, 8, 128, .format = EXL2_KV_Q4 }, { 9, 3, 64, .format = EXL2_KV_Q8 }, { 32, 4, 64, .format = EXL2_KV_Q4 },
        { 4, 2, 80, .format = EXL2_KV_Q6, .unrotated = 48 }, { 4, 2, 80, .format = EXL2_KV_Q8, .pairs = true },
        { 6, 2, 96, .format = EXL2_KV_Q4, .divided = true }, { 16, 1, 128, .format = EXL2_KV_Q6, .window = 64 },
        { 8, 2, 112, .format = EXL2_KV_Q4, .unrotated = 56, .window = 1024 }, { 2, 1, 16, .format = EXL2_KV_Q8 },
        { 12, 1, 48, .format = EXL2_KV_Q4, .window = 63 }, { 4, 2, 32, .format = EXL2_KV_Q6 },
        { 8, 4, 256, .format = EXL2_KV_Q8, .window = 65, .cap = 2 }, { 8, 1, 256, .format = EXL2_KV_Q4 },
        { 5, 1, 192, .format = EXL2_KV_Q6 }, { 4, 2, 240, .format = EXL2_KV_Q8 },
        { 16, 2, 64, .format = EXL2_KV_Q6, .window = 128, .sinks = true }, { 3, 1, 144, .format = EXL2_KV_Q4 },
        { 8, 2, 128, .format = EXL2_KV_Q8, .unrotated = 128, .cap = 50 },
    };
    bool codes = argc > 2 && strcmp(argv[2], "codes") == 0, one = argc > 2 && argv[2][0] >= '0' && argv[2][0] <= '9';
    bool few = argc > 2 && strcmp(argv[2], "few") == 0, test = argc < 3 || codes || one || few;
    bool time = argc < 3 || strcmp(argv[2], "time") == 0;
    test = test || strcmp(argv[2], "test") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    attend_modules m = attend_modules_load(argc > 3 ? argv[3] : NULL);
    rig.programmatic = argc > 3 && strstr(argv[3], "EXL2K_PDL=1");
    for (size_t i = 0; i < EXL2__COUNT(shapes) + EXL2__COUNT(kinds) && test; i++) {
        size_t of_kinds = i - EXL2__COUNT(shapes);
        attend_kind kind = i < EXL2__COUNT(shapes)
                         ? attend_plain(shapes[i].heads, shapes[i].kv_heads, shapes[i].dim) : kinds[of_kinds];
        bool fp16 = kind.format == EXL2_KV_FP16;
        if (one ? strtoul(argv[2], NULL, 10) != i : few ? fp16 || kind.kv_heads > 1 : argc > 2 && codes == fp16) {
            continue;
        }
        uint32_t flags = (i & 1 ? ATTEND_PERMUTED : 0) | (i % 3 == 2 ? ATTEND_HALF : 0);
        test_decode(&m, &kind, flags, few);
        if (few) {
            continue;
        }
        bool wg = attend_has_wg(kind.dim) && !(flags & ATTEND_HALF), once = kind.format != EXL2_KV_FP16;
        if (!once || !wg || i % 4 < 2) { /* from a quantized cache both kernels read the same pages of fp16 */
            test_prefill(&m, &kind, flags, 0);
        }
        if (wg && (!once || i % 4 >= 2)) {
            test_prefill(&m, &kind, flags, (uint32_t)rig.sm_count);
        }
    }
    if (test && !one && !few) {
        test_prepare(&m);
        test_norms(&m);
        test_done(&m, EXL2_KV_FP16);
        test_done(&m, EXL2_KV_Q6);
        test_repeats(&m);
        test_prefill_repeats(&m);
    }
    for (int f = 0; f < 4 && test; f++) {
        printf("largest error of a row: %s: decode %.2g, prefill %.2g\n", attend_formats[f], attend_worst[f][0],
               attend_worst[f][1]);
    }
    if (time) {
        time_all(&m);
    }
    rig_close();
    return test ? check_done() : 0;
}
