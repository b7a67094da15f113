/* convert_open.h: opens what a conversion works on, after all that headers and the files of calibration can say.
   takes: exl2_convert_desc, checked.
   gives: exl2__convert_open_source; exl2__convert_layout.
   owns:  nothing; what it opens belongs to exl2__convert.

   A GGUF file, an FP8 folder, or a folder with adapters becomes a dense folder first. Before that is written,
   everything is checked on its outline: a folder whose tensors have no data. */
#ifndef EXL2__CONVERT_OPEN_H
#define EXL2__CONVERT_OPEN_H

#include "convert_values.h"

#define EXL2__CONVERT_HARDWARE_MAX 128u

/* ---- the work folder ---- */

/* Continues a hash with a file for calibration, or a measurement. The end of its name says how the bytes are read, so
   it counts. */
EXL2__PRIVATE exl2_result exl2__convert_file_hash(exl2__convert *v, const char *path, uint64_t *hash)
{
    exl2__blob blob;
    const char *end = strrchr(path, '.');
    EXL2__TRY(exl2__texts_read(v->c, path, &blob));
    *hash = exl2__workdir_hash(*hash + 1, blob.data, blob.bytes);
    *hash = exl2__workdir_hash(*hash, end ? end : "", end ? strlen(end) : 0);
    exl2__blob_close(v->c, &blob);
    return EXL2_OK;
}

static inline uint32_t exl2__convert_millionths(float x) { return (uint32_t)((double)x * 1e6 + 0.5); }

/* The text that says what a conversion is: all that its parts depend on. Paths of the CPU may differ in bits, on a
   machine with a GPU, too: some blocks are computed on the CPU. */
EXL2__PRIVATE exl2_result exl2__convert_job_text(exl2__convert *v, char *text, size_t cap)
{
    static const char *const paths[] = { "C", "C", "AVX2", "AVX512", "NEON" }; /* of exl2_cpu_path */
    const exl2_convert_desc *d = v->d;
    uint64_t files = 0, measurement = 0;
    for (uint32_t i = 0; i < d->calibration_file_count; i++) {
        EXL2__TRY(exl2__convert_file_hash(v, d->calibration_files[i], &files));
    }
    if (d->measurement_file) {
        EXL2__TRY(exl2__convert_file_hash(v, d->measurement_file, &measurement));
    }
    size_t used = exl2__format(text, cap, EXL2__WORKDIR_TEXT_BEGIN "6\nprogram: %u\ncpu path: %s\n",
                               (uint32_t)EXL2_VERSION, paths[v->c->cpu_path]);
    used += exl2__format(text + used, cap - used, "source: %llx\ntokenizer: %llx\ncalibration: %llx\n"
                         "measurement: %llx\n", (unsigned long long)v->from.weights,
                         (unsigned long long)v->from.text, (unsigned long long)files,
                         (unsigned long long)measurement);
    used += exl2__format(text + used, cap - used, "bpw in thousandths: %u\nhead bits: %u\nrows: %u\nlength: %u\n"
                         "seed: %llu\n", exl2__convert_bpw_1000(v), v->head_bits, exl2__convert_rows(d), d->length,
                         (unsigned long long)d->seed);
    used += exl2__format(text + used, cap - used, "bytes: %llu\ncorrected: %s\nrandom ids: %s\n",
                         (unsigned long long)d->size_bytes, d->corrected ? "yes" : "no", d->random_ids ? "yes" : "no");
    if (v->rope.scale > 0 || v->rope.alpha > 0 || v->rope.yarn > 0) {
        exl2__format(text + used, cap - used, "rope in millionths: %u %u %u\n", exl2__convert_millionths(v->rope.scale),
                     exl2__convert_millionths(v->rope.alpha), exl2__convert_millionths(v->rope.yarn));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__convert_open_work(exl2__convert *v)
{
    char text[1024];
    EXL2__TRY(exl2__convert_job_text(v, text, sizeof text));
    return exl2__workdir_open(v->c, v->work_dir, text, &v->work);
}

/* What computes the conversion. Kernels of another architecture, or for another number of SMs, may differ in bits. */
EXL2__PRIVATE void exl2__convert_hardware(exl2__convert *v, char out[EXL2__CONVERT_HARDWARE_MAX])
{
    memset(out, 0, EXL2__CONVERT_HARDWARE_MAX);
    exl2__format(out, EXL2__CONVERT_HARDWARE_MAX, "the CPU");
#ifndef EXL2_NO_CUDA
    const exl2__gpu *gpu = exl2__convert_gpu(v);
    if (gpu) {
        exl2__format(out, EXL2__CONVERT_HARDWARE_MAX, "a GPU (%s, %u.%u, %u SMs)", gpu->d->info.name,
                     gpu->d->info.arch / 10, gpu->d->info.arch % 10, gpu->d->sm_count);
    }
#else
    (void)v;
#endif
}

/* Once the plan has decided where the conversion runs: the rest of a folder is made there, too. */
EXL2__PRIVATE exl2_result exl2__convert_keep_hardware(exl2__convert *v)
{
    char begun[EXL2__CONVERT_HARDWARE_MAX], own[EXL2__CONVERT_HARDWARE_MAX];
    exl2__workdir_piece piece = { begun, sizeof begun };
    bool found;
    exl2__convert_hardware(v, own);
    EXL2__TRY(exl2__workdir_load(&v->work, EXL2__WORKDIR_TEXT "-backend", &piece, 1, &found));
    if (found && memcmp(begun, own, sizeof own) != 0) {
        return exl2__fail(v->c, EXL2_ERR_STATE, "%s was begun on %s, and this is %s; remove that folder, or convert "
                          "where it was begun", v->work.dir, begun, own);
    }
    piece.data = own;
    return found ? EXL2_OK : exl2__workdir_save(&v->work, EXL2__WORKDIR_TEXT "-backend", &piece, 1);
}

/* ---- ids ---- */

EXL2__PRIVATE exl2_result exl2__convert_alloc_ids(exl2__convert *v)
{
    void *memory;
    v->ids_bytes = (uint64_t)(v->rows + v->held) * v->length * sizeof *v->ids;
    EXL2__TRY(exl2__alloc(v->c, v->ids_bytes, EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &memory));
    v->ids = (exl2_token *)memory;
    return EXL2_OK;
}

/* Sets the number of rows, by the number of ids. */
EXL2__PRIVATE exl2_result exl2__convert_share_rows(exl2__convert *v, const exl2__texts *t)
{
    uint64_t whole = t->spread / v->length + (t->count - t->spread) / v->length;
    if (whole < 2) {
        return exl2__fail(v->c, EXL2_ERR_ARG, "calibration has %llu ids, but at least two rows of %u are needed",
                          (unsigned long long)t->count, v->length);
    }
    v->held = exl2__convert_held(v);
    if (whole < (uint64_t)v->rows + v->held) {
        v->held = exl2__max32((uint32_t)whole / 32, 1);
        v->rows = (uint32_t)whole - v->held;
    }
    return EXL2_OK;
}

/* Rows are spread over all that files or the spare texts hold: all of it counts. What the model writes has no more than
   is needed. Rows of both alternate as evenly as their numbers allow, so that those that are kept out are of both, too,
   and so are the probes. */
EXL2__PRIVATE void exl2__convert_pick_rows(exl2__convert *v, const exl2__texts *t)
{
    uint64_t rows = v->rows + v->held, spread = t->spread / v->length, own = (t->count - t->spread) / v->length;
    uint64_t some = exl2__min64(spread, exl2__max64(rows / 2, rows - exl2__min64(own, rows)));
    const exl2_token *others = t->ids + t->spread;
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t at = i * some / rows; /* rows before this one that are spread */
        bool is_spread = (i + 1) * some / rows > at;
        memcpy(v->ids + i * v->length, is_spread ? t->ids + at * spread / some * v->length
                                                 : others + (i - at) * v->length, v->length * sizeof *v->ids);
    }
}

/* Reads the ids of the work folder, or collects them and stores them there. A model that writes text is loaded by an
   engine; v->source is then closed for that time. */
EXL2__PRIVATE exl2_result exl2__convert_ids(exl2__convert *v)
{
    uint32_t counts[3];
    bool found, writes = v->plan.own_text;
    exl2__workdir_piece pieces[2] = { { counts, sizeof counts }, { NULL, 0 } };
    if (v->ids) {
        return EXL2_OK;
    }
    exl2__convert_time(v, EXL2_CONVERT_FILES);
    EXL2__TRY(exl2__workdir_load(&v->work, "ids-rows", pieces, 1, &found));
    if (found) {
        v->rows = counts[0];
        v->held = counts[1];
        v->write.text = exl2__min32(counts[2], EXL2__CONVERT_WRITE_RANDOM);
        EXL2__TRY(exl2__convert_alloc_ids(v));
        pieces[1] = (exl2__workdir_piece){ v->ids, v->ids_bytes };
        EXL2__TRY(exl2__workdir_load(&v->work, "ids", pieces + 1, 1, &found));
    }
    if (found) {
        return EXL2_OK;
    }
    exl2__texts t;
    exl2__free(v->c, v->ids, v->ids_bytes, EXL2_MEM_GENERAL);
    v->ids = NULL;
    uint32_t vocab = v->source.load.config.vocab;
    if (writes) {
        exl2__runner_close(&v->source);
    }
    exl2_result result = v->d->random_ids
        ? exl2__texts_random(v->c, (uint64_t)(v->rows + exl2__convert_held(v)) * v->length, v->d->seed, vocab, &t)
        : exl2__texts_make(v->c, writes ? exl2__convert_engine(v) : NULL, v->source_dir, v->d->calibration_files,
                           v->d->calibration_file_count, writes, v->rows + exl2__convert_held(v), v->length,
                           v->d->seed, vocab, &v->rope, exl2__convert_text_progress, v, &t);
    result = result < 0 ? result : exl2__convert_share_rows(v, &t);
    result = result < 0 ? result : exl2__convert_alloc_ids(v);
    if (result >= 0) {
        exl2__convert_pick_rows(v, &t);
        counts[0] = v->rows;
        counts[1] = v->held;
        counts[2] = v->write.text;
        pieces[1] = (exl2__workdir_piece){ v->ids, v->ids_bytes };
        result = exl2__workdir_save(&v->work, "ids", pieces + 1, 1);
        result = result < 0 ? result : exl2__workdir_save(&v->work, "ids-rows", pieces, 1);
    }
    exl2__texts_close(&t);
    if (writes) {
        result = result < 0 ? result : exl2__runner_open(v->c, v->source_dir, v->length, &v->rope,
                                                                &v->source);
        result = result < 0 ? result : exl2__runner_decode(&v->source);
    }
    exl2__convert_time(v, EXL2_CONVERT_TEXT);
    return result;
}

/* ---- headers ---- */

/* The width nearest to bpw, with which matrices are tried. */
EXL2__PRIVATE uint32_t exl2__convert_probe_bits(const exl2__convert *v)
{
    uint32_t best = 2;
    for (uint32_t i = 0; i < EXL2__LOSSES_WIDTHS; i++) {
        uint32_t bits = exl2__losses_bits(i);
        best = fabs((double)bits - v->bpw) < fabs((double)best - v->bpw) ? bits : best;
    }
    return best;
}

EXL2__PRIVATE void exl2__convert_layout(exl2__convert *v, exl2__arena *a)
{
    exl2__measure *m = &v->measure;
    m->r = &v->source;
    m->gpu = exl2__convert_gpu(v);
    m->ids = v->ids;
    m->rows = v->rows;
    m->length = v->length;
    m->probes = exl2__min32(v->rows, EXL2__MEASURE_PROBES);
    m->probe_length = exl2__min32(v->length, EXL2__MEASURE_PROBE);
    m->probe_bits = exl2__convert_probe_bits(v);
    exl2__measure_layout(m, a);
}

/* Reads the measurement that was given; what is left to do then are the moments of all inputs. */
EXL2__PRIVATE exl2_result exl2__convert_read_measurement(exl2__convert *v)
{
    exl2__blob blob;
    EXL2__TRY(exl2__texts_read(v->c, v->d->measurement_file, &blob));
    exl2_result result = exl2__measurement_read(v->c, v->d->measurement_file, &blob, &v->linears, v->from.weights,
                                                v->budget);
    if (result >= 0 && v->linears.chosen && v->d->measure_only) {
        result = exl2__fail(v->c, EXL2_ERR_ARG, "%s is ExLlamaV2's already: measure_only has nothing to add",
                            v->d->measurement_file);
    }
    exl2__blob_close(v->c, &blob);
    return result;
}

/* All that needs no weights: v->source, the plan, and what the files of calibration and of a measurement hold. */
EXL2__PRIVATE exl2_result exl2__convert_headers(exl2__convert *v)
{
    exl2__ctx *c = v->c;
    exl2__config config;
    exl2__arena dry = { 0 };
    EXL2__TRY(exl2__config_read(c, v->source_dir, &config));
    EXL2__TRY(exl2__config_stretch(c, v->d->source_dir, &v->rope, &config));
    if (!v->d->length) { /* the default is at most the context */
        v->length = exl2__min32(v->length, config.context_max / EXL2__PANELS_LANES * EXL2__PANELS_LANES);
    }
    if (v->length > config.context_max) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s has a context of %u tokens, fewer than the %u of a row",
                          v->d->source_dir, config.context_max, v->length);
    }
    EXL2__TRY(exl2__runner_headers(c, v->source_dir, v->length, &v->rope, &v->source));
    EXL2__TRY(exl2__linears_open(c, &v->source, v->source_dir, v->head_bits, &v->linears));
    exl2__convert_layout(v, &dry);
    EXL2__TRY(exl2__convert_plan(v, &dry));
    if (v->d->measurement_file) {
        EXL2__TRY(exl2__convert_read_measurement(v));
    }
    return v->d->calibration_file_count ? exl2__convert_ids(v) : EXL2_OK;
}

/* The same. What needs more memory than AUTO's GPU has is planned again for the CPU. */
EXL2__PRIVATE exl2_result exl2__convert_headers_auto(exl2__convert *v)
{
    exl2__ctx *c = v->c;
    exl2_result result = exl2__convert_headers(v);
    if (result != EXL2_ERR_BUDGET || v->d->backend != EXL2_BACKEND_AUTO || !exl2__convert_gpu(v)) {
        return result;
    }
    exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_CPU_FALLBACK, "the conversion runs on the CPU: %s", c->error.text);
    c->error = (exl2_error){ EXL2_OK, 0, "" };
    exl2__linears_close(c, &v->linears);
    exl2__runner_close(&v->source);
    exl2__gpu_close(c, &v->gpu);
    exl2__convert_defaults(v);
    return exl2__convert_headers(v);
}

/* The same on the outline of the dense folder that the source becomes, before that is written. */
EXL2__PRIVATE exl2_result exl2__convert_outline(exl2__convert *v)
{
    exl2__ctx *c = v->c;
    exl2_files plain = c->files;
    exl2__convert_source_files files = { plain };
    exl2_result result = exl2__convert_source_outline(c, v->d, &v->from, &v->work, v->source_dir, &v->copy_bytes);
    v->copy_bytes += exl2__workdir_bytes(c, v->source_dir);
    c->files = exl2__convert_source_files_of(&files);
    result = result < 0 ? result : exl2__convert_headers_auto(v);
    exl2__linears_close(c, &v->linears);
    exl2__runner_close(&v->source);
    c->files = plain;
    exl2__folder_remove(v->source_dir);
    return result;
}

/* Loads the source, after all checks. */
EXL2__PRIVATE exl2_result exl2__convert_open_source(exl2__convert *v)
{
    exl2__ctx *c = v->c;
    v->watch.under = c->files;
    EXL2__TRY(exl2__convert_source_identify(c, v->d, &v->watch, &v->from));
    c->files = exl2__convert_watch_files(&v->watch);
    EXL2__TRY(exl2__convert_open_work(v));
    if (!exl2__convert_source_find(v->d, &v->from, &v->work, v->source_dir)) {
        EXL2__TRY(exl2__convert_outline(v));
        EXL2__TRY(exl2__convert_source_make(c, v->d, &v->from, &v->work, v->source_dir));
    }
    v->copied = exl2__convert_source_copies(&v->from);
    v->copy_bytes = v->copied ? exl2__workdir_bytes(c, v->source_dir) : 0;
    EXL2__TRY(exl2__convert_headers_auto(v));
    EXL2__TRY(exl2__convert_keep_hardware(v));
    EXL2__TRY(exl2__runner_load(&v->source));
    EXL2__TRY(exl2__runner_decode(&v->source));
    EXL2__TRY(exl2__convert_values(v));
    if (v->d->on_plan) {
        v->d->on_plan(v->d->user, &v->plan);
    }
    return exl2__convert_ids(v);
}

#endif
