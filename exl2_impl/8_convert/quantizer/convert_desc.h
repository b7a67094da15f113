/* convert_desc.h: a conversion: what it is asked for, and whether the desc and its paths are valid.
   takes: exl2_convert_desc.
   gives: exl2__convert; exl2__convert_progress, exl2__convert_text_progress, exl2__convert_time; exl2__convert_gpu,
          exl2__convert_engine, exl2__convert_open_gpu; exl2__convert_rows, exl2__convert_held, exl2__convert_defaults,
          exl2__convert_check, exl2__convert_bpw_1000. */
#ifndef EXL2__CONVERT_DESC_H
#define EXL2__CONVERT_DESC_H

#include "convert_source.h"
#include "device_plan.h"
#include "measurement.h"
#include "streams.h"
#include "texts.h"

#define EXL2__CONVERT_ROWS 64u       /* default of a CPU: rows of the spare texts and the model's own */
#define EXL2__CONVERT_FILE_ROWS 128u /* most rows of files by default; on a GPU the default of all texts */
#define EXL2__CONVERT_LENGTH 512u
#define EXL2__CONVERT_GPU_LENGTH 2048u
#define EXL2__CONVERT_MEASURE_BPW 4.0 /* what measure_only tries, unless another rate is given */
#define EXL2__CONVERT_LENGTH_MAX 8192u
#define EXL2__CONVERT_HELD 2u         /* rows kept out of calibration, for 64 */
#define EXL2__CONVERT_SAVE_NS 50000000000u /* time between two writes of the states */

typedef struct exl2__convert {
    exl2__ctx *c;
    const exl2_convert_desc *d;
    char out_dir[EXL2__FILE_PATH_MAX], work_dir[EXL2__FILE_PATH_MAX];
    char source_dir[EXL2__FILE_PATH_MAX]; /* dense, if the source is a GGUF file or FP8 */
    exl2__convert_source from;
    exl2__convert_watch watch; /* of the source's files; c->files, once it is identified */
    uint64_t copy_bytes;      /* of the dense folder that the source becomes; 0: it is one */
    bool copied;              /* it has been made */
    double bpw;
    exl2__config_rope rope;   /* of calibration */
    uint32_t rows, held, length, head_bits; /* held: rows after those of calibration */
    exl2_token *ids;          /* [rows + held, length] */
    uint64_t ids_bytes;
    exl2__workdir work;
    exl2__runner source;
    exl2__linears linears;
    exl2__measure measure;
    exl2__arena memory;       /* of `measure` */
    exl2__streams streams;    /* while corrected targets are quantized */
    exl2__folder folder;
    exl2__convert_write write;
    exl2_convert_plan plan;
    exl2__gpu gpu;            /* open, if stages run there */
    exl2_engine_desc engine;  /* backend, device, caps and kernel cache */
    uint64_t stage_ns[EXL2_CONVERT_STAGES], started_ns; /* wall-clock time of each stage; when the running one began */
    bool above;               /* more bits were asked for than the model can have */
    uint64_t budget;          /* bits of the linears that exl2__convert_allocate fills in */
} exl2__convert;

/* ---- progress ---- */

EXL2__PRIVATE exl2_result exl2__convert_progress(const exl2__convert *v, const char *stage, double done)
{
    if (v->d->progress && !v->d->progress(v->d->user, stage, (float)done)) {
        return exl2__fail(v->c, EXL2_ERR_CANCELLED, "the conversion of %s was cancelled", v->d->source_dir);
    }
    return EXL2_OK;
}

EXL2__PRIVATE bool exl2__convert_text_progress(void *user, double done)
{
    const exl2__convert *v = (const exl2__convert *)user;
    return !v->d->progress || v->d->progress(v->d->user, "text", (float)done);
}

/* ---- what runs where ---- */

/* The GPU, or NULL: the CPU. */
static inline exl2__gpu *exl2__convert_gpu(exl2__convert *v) { return exl2__gpu_is_open(&v->gpu) ? &v->gpu : NULL; }

/* What the model's own text is written on; NULL: the CPU. */
static inline const exl2_engine_desc *exl2__convert_engine(const exl2__convert *v)
{
    return exl2__gpu_is_open(&v->gpu) ? &v->engine : NULL;
}

/* Rows that are asked for on a CPU. */
static inline uint32_t exl2__convert_rows(const exl2_convert_desc *d)
{
    return d->rows ? d->rows : d->calibration_file_count ? EXL2__CONVERT_FILE_ROWS : EXL2__CONVERT_ROWS;
}

/* Rows that are kept out for the comparison at the end, of what is asked for. */
static inline uint32_t exl2__convert_held(const exl2__convert *v)
{
    return exl2__max32(v->rows / 64 * EXL2__CONVERT_HELD, 1);
}

/* Sets rows and length where the application has not: a GPU has time for more. */
EXL2__PRIVATE void exl2__convert_defaults(exl2__convert *v)
{
    bool gpu = exl2__gpu_is_open(&v->gpu);
    v->length = v->d->length ? v->d->length : gpu ? EXL2__CONVERT_GPU_LENGTH : EXL2__CONVERT_LENGTH;
    v->rows = v->d->rows || !gpu ? exl2__convert_rows(v->d) : EXL2__CONVERT_FILE_ROWS;
}

/* Opens the GPU. AUTO becomes what there is, so that the model's text does not fall back to the CPU later. */
EXL2__PRIVATE exl2_result exl2__convert_open_gpu(exl2__convert *v)
{
    const exl2_convert_desc *d = v->d;
    v->engine = (exl2_engine_desc){ .backend = d->backend, .devices = d->device, .device_count = d->device ? 1 : 0,
                                    .device_bytes_max = d->device_bytes_max, .kernel_cache = d->kernel_cache,
                                    .nvrtc_path = d->nvrtc_path };
    EXL2__TRY(exl2__gpu_open(v->c, &v->engine, &v->gpu));
    v->engine.backend = EXL2_BACKEND_CUDA;
    exl2__convert_defaults(v);
    return EXL2_OK;
}

/* The time since the last call belongs to this stage. */
EXL2__PRIVATE void exl2__convert_time(exl2__convert *v, exl2_convert_stage stage)
{
    uint64_t now = exl2__platform_ns();
    v->stage_ns[stage] += now - v->started_ns;
    v->started_ns = now;
}

/* ---- what is asked for ---- */

/* Fails if one of two folders is the other, or lies in it, by whatever names. */
EXL2__PRIVATE exl2_result exl2__convert_check_apart(exl2__ctx *c, const char *a_name, const char *a, const char *b_name,
                                                    const char *b)
{
    if (exl2__folder_lies_in(a, b)) {
        return exl2__fail(c, EXL2_ERR_ARG, "the %s %s lies in the %s %s; choose another one", a_name, a, b_name, b);
    }
    if (exl2__folder_lies_in(b, a)) {
        return exl2__fail(c, EXL2_ERR_ARG, "the %s %s lies in the %s %s; choose another one", b_name, b, a_name, a);
    }
    return EXL2_OK;
}

/* Fills in the paths of the output and of the work folder, and checks all paths: none is empty, and no folder that is
   written lies in the source, or in another one that is written, or around it. */
EXL2__PRIVATE exl2_result exl2__convert_check_paths(exl2__convert *v)
{
    const exl2_convert_desc *d = v->d;
    exl2__ctx *c = v->c;
    char source[EXL2__FILE_PATH_MAX], unfinished[EXL2__FILE_PATH_MAX];
    EXL2__TRY(exl2__folder_path(c, "source_dir", d->source_dir, source));
    EXL2__TRY(exl2__folder_path(c, "out_dir", d->out_dir, v->out_dir));
    if (d->work_dir) {
        EXL2__TRY(exl2__folder_path(c, "work_dir", d->work_dir, v->work_dir));
    } else {
        exl2__format(v->work_dir, sizeof v->work_dir, "%s.work", v->out_dir);
    }
    for (uint32_t i = 0; i < d->calibration_file_count; i++) {
        if (!d->calibration_files[i] || !d->calibration_files[i][0]) {
            return exl2__fail(c, EXL2_ERR_ARG, "calibration_files[%u] is %s", i,
                              d->calibration_files[i] ? "an empty string" : "NULL");
        }
    }
    if (d->measurement_file && !d->measurement_file[0]) {
        return exl2__fail(c, EXL2_ERR_ARG, "measurement_file is an empty string");
    }
    exl2__format(unfinished, sizeof unfinished, "%s.unfinished", v->out_dir);
    EXL2__TRY(exl2__convert_check_apart(c, "work folder", v->work_dir, "output folder", v->out_dir));
    EXL2__TRY(exl2__convert_check_apart(c, "work folder", v->work_dir, "unfinished folder", unfinished));
    if (!exl2__folder_exists(source)) {
        return EXL2_OK; /* a file, or nothing */
    }
    EXL2__TRY(exl2__convert_check_apart(c, "output folder", v->out_dir, "source", source));
    EXL2__TRY(exl2__convert_check_apart(c, "unfinished folder", unfinished, "source", source));
    return exl2__convert_check_apart(c, "work folder", v->work_dir, "source", source);
}

/* With `bits` the result is a dense folder, so nothing that says how to quantize has a meaning. */
EXL2__PRIVATE exl2_result exl2__convert_check_bits(exl2__convert *v)
{
    const exl2_convert_desc *d = v->d;
    const struct {
        const char *name;
        bool set;
    } others[] = { { "bpw", d->bpw != 0 }, { "size_bytes", d->size_bytes != 0 }, { "head_bits", d->head_bits != 0 },
                   { "calibration_files", d->calibration_file_count != 0 }, { "rows", d->rows != 0 },
                   { "length", d->length != 0 }, { "random_ids", d->random_ids },
                   { "measurement_file", d->measurement_file != NULL }, { "measure_only", d->measure_only },
                   { "corrected", d->corrected }, { "shard_bytes", d->shard_bytes != 0 },
                   { "rope_scale", d->rope_scale > 0 }, { "rope_alpha", d->rope_alpha > 0 },
                   { "yarn_factor", d->yarn_factor > 0 } };
    if (d->bits != EXL2__IMPORT_DENSE_BITS) {
        return exl2__fail(v->c, EXL2_ERR_ARG, "bits is %u, expected 16 or 0", d->bits);
    }
    for (size_t i = 0; i < EXL2__COUNT(others); i++) {
        if (others[i].set) {
            return exl2__fail(v->c, EXL2_ERR_ARG, "bits is 16, so nothing is quantized, and %s must not be set",
                              others[i].name);
        }
    }
    return exl2__convert_check_paths(v);
}

EXL2__PRIVATE exl2_result exl2__convert_check(exl2__convert *v)
{
    const exl2_convert_desc *d = v->d;
    exl2__ctx *c = v->c;
    EXL2__TRY(EXL2__CHECK_ZEROED(c, d, exl2_convert_desc));
    if (!d->source_dir || !d->out_dir) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_convert_desc.%s is NULL", d->source_dir ? "out_dir" : "source_dir");
    }
    EXL2__TRY(exl2__convert_loras_check(c, d));
    v->rope = (exl2__config_rope){ d->rope_scale, d->rope_alpha, d->yarn_factor };
    const char *wrong = exl2__config_rope_wrong(&v->rope);
    if (wrong) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s", wrong);
    }
    if (d->bits) {
        return exl2__convert_check_bits(v);
    }
    if (d->size_bytes && (d->bpw != 0 || d->measure_only)) {
        return exl2__fail(c, EXL2_ERR_ARG, "size_bytes and %s are both given: choose one",
                          d->bpw != 0 ? "bpw" : "measure_only");
    }
    if (d->corrected && d->measure_only) {
        return exl2__fail(c, EXL2_ERR_ARG, "corrected and measure_only are both given: choose one");
    }
    v->bpw = d->measure_only && d->bpw == 0 ? EXL2__CONVERT_MEASURE_BPW : (double)d->bpw;
    if (!d->size_bytes && !(v->bpw >= 2 && v->bpw <= 16)) {
        return exl2__fail(c, EXL2_ERR_ARG, "bpw must be from 2 to 16");
    }
    v->head_bits = d->head_bits || d->size_bytes ? d->head_bits : 6; /* 0: the head's widths are allocated, too */
    if (v->head_bits && !exl2__linears_head_of(v->head_bits)) {
        return exl2__fail(c, EXL2_ERR_ARG, "head_bits is %u, expected 2, 3, 4, 5, 6 or 8", v->head_bits);
    }
    exl2__convert_defaults(v); /* length may become less: exl2__convert_headers */
    if (v->length < 32 || v->length > EXL2__CONVERT_LENGTH_MAX || v->rows > 65536) {
        return exl2__fail(c, EXL2_ERR_ARG, "%u rows of %u tokens: expected at most 65536 rows, of 32 to %u tokens",
                          v->rows, v->length, EXL2__CONVERT_LENGTH_MAX);
    }
    if (d->calibration_file_count && d->random_ids) {
        return exl2__fail(c, EXL2_ERR_ARG, "calibration_files and random_ids are both given: choose one");
    }
    if (d->calibration_file_count && !d->calibration_files) {
        return exl2__fail(c, EXL2_ERR_ARG, "calibration_files is NULL");
    }
    return exl2__convert_check_paths(v);
}

/* bpw as a whole number of thousandths, so that it can be compared and written exactly. */
static inline uint32_t exl2__convert_bpw_1000(const exl2__convert *v)
{
    return (uint32_t)(v->bpw * 1000 + 0.5);
}

#endif
