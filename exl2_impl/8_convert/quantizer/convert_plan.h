/* convert_plan.h: whether a conversion is possible, and what it needs: found out before hours of work.
   takes: headers of the source and its linears.
   gives: exl2__convert_plan, exl2__convert_bpw_text, exl2__convert_allocated. */
#ifndef EXL2__CONVERT_PLAN_H
#define EXL2__CONVERT_PLAN_H

#include "convert_desc.h"

/* ---- what it needs ---- */

/* Bytes of the output folder with all widths of the linears set to `width`. */
EXL2__PRIVATE exl2_result exl2__convert_plan_folder(exl2__convert *v, uint8_t width, uint64_t *bytes)
{
    for (uint32_t i = 0; i < v->linears.count; i++) {
        memset(v->linears.items[i].widths, width, v->linears.items[i].in / 32);
        memset(v->linears.items[i].group_rows, 0, sizeof v->linears.items[i].group_rows);
    }
    return exl2__convert_write_dry(&v->write, false, bytes);
}

/* Most bytes of memory that the work on one linear needs at once, besides exl2__measure_layout's. */
EXL2__PRIVATE uint64_t exl2__convert_plan_linear_bytes(exl2__convert *v, const exl2__linear *linear)
{
    exl2__factor f = { .in = linear->in, .on_gpu.gpu = exl2__convert_gpu(v) };
    exl2__linear_codes codes;
    exl2__arena factor = { 0 }, scratch = { 0 }, packed = { 0 };
    bool expert = linear->kind == EXL2__UNIT_EXPERT_UP || linear->kind == EXL2__UNIT_EXPERT_DOWN;
    uint64_t together = expert ? v->source.plan.shape.experts.count : 1; /* tried at the same time */
    exl2__factor_layout(&f, &factor);
    exl2__factor_scratch_layout(linear->in, f.on_gpu.gpu != NULL, &scratch);
    exl2__linear_codes_layout(&v->linears, linear, &codes, &packed);
    uint64_t solve = exl2__solve_bytes(&f, linear->columns, linear->in / 32);
    uint64_t trials = (uint64_t)linear->in * linear->columns * sizeof(uint16_t) * together; /* exl2__measure_replace */
    trials += together * sizeof(exl2__measure_trial);
    return factor.used + exl2__max64(scratch.used + trials, exl2__max64(solve + trials, solve + packed.used));
}

/* What corrected targets need, besides the work on a linear: both streams, and a layer in its quantized form. */
EXL2__PRIVATE uint64_t exl2__convert_plan_streams(const exl2__convert *v)
{
    exl2__arena streams = { 0 };
    exl2__streams s;
    uint64_t layer = 0, most = 0;
    for (uint32_t i = 0; i < v->linears.count; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        layer = i > 0 && linear->layer == linear[-1].layer ? layer : 0;
        layer += (uint64_t)linear->in * linear->columns * sizeof(uint16_t);
        most = exl2__max64(most, layer);
    }
    exl2__streams_layout(&s, (exl2__measure *)(uintptr_t)&v->measure, exl2__linears_most(&v->linears), &streams);
    return streams.used + most;
}

/* Most bytes that each of the stages needs at once, besides the weights of the source. */
EXL2__PRIVATE uint64_t exl2__convert_plan_stages(exl2__convert *v, const exl2__arena *measure)
{
    const exl2__runner *r = &v->source;
    exl2__compare both = { .a = &v->source };
    exl2__arena write = { 0 }, rows = { 0 };
    uint64_t quantize = 0, weights = 0;
    for (uint32_t i = 0; i < v->linears.count; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        weights += (uint64_t)linear->in * linear->columns;
        quantize = exl2__max64(quantize, exl2__convert_plan_linear_bytes(v, linear));
    }
    exl2__convert_write_layout(&v->write, &write);
    uint64_t shards = write.used + exl2__convert_write_tensors_max(&v->write) * sizeof(exl2__shards_entry);
    shards += EXL2__WRITE_BUFFER + (v->plan.bytes / v->write.shard_bytes + 1) * sizeof(exl2__shards_file)
            + 2 * EXL2__ARENA_ALIGN; /* of the lists of tensors and of files */
    /* the comparison has the output beside the source; in memory, a scale has 16 bits, not 4 */
    uint64_t out = v->plan.bytes + weights / 32 * 12 / 8, streamed = r->outside.loaded + r->layer.loaded;
    uint64_t compare = r->other_bytes + (r->streamed ? exl2__min64(out, streamed) : out);
    exl2__compare_layout(&both, &rows);
    compare += rows.used;
    /* Shards are laid out before the work, too, to check all numbers. */
    uint64_t others = v->d->measure_only ? shards : exl2__max64(shards, compare);
    quantize += v->d->corrected ? exl2__convert_plan_streams(v) : 0;
    return exl2__max64(measure->used + quantize, others);
}

#ifndef EXL2_NO_CUDA
/* Weights of the largest matrix that is quantized. */
EXL2__PRIVATE uint64_t exl2__convert_plan_largest(const exl2__convert *v)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < v->linears.count; i++) {
        most = exl2__max64(most, (uint64_t)v->linears.items[i].in * v->linears.items[i].columns);
    }
    return most;
}
#endif

/* Memory at its peak, with the weights streamed or not. measure: of exl2__measure_layout. text: for the model's own
   text, which is made while no other weights are loaded; 0: there is none. */
EXL2__PRIVATE uint64_t exl2__convert_plan_host(exl2__convert *v, const exl2__arena *measure, uint64_t text)
{
    uint64_t ids = (uint64_t)(v->rows + v->rows / 32 + 1) * v->length * sizeof(exl2_token); /* with rows kept out */
    uint64_t stages = exl2__runner_bytes(&v->source, true) + exl2__convert_plan_stages(v, measure);
#ifndef EXL2_NO_CUDA
    exl2__arena copies = { 0 };
    if (exl2__convert_gpu(v)) { /* of the source, and of the output; one of its matrices is decoded at a time */
        uint64_t decoded = exl2__convert_plan_largest(v) * sizeof(uint16_t);
        exl2__runner_layout_copies(&v->source, &copies);
        stages += copies.used + (v->d->measure_only ? 0 : copies.used + decoded);
    }
#endif
    return v->c->host_bytes + ids + exl2__max64(stages, text);
}

/* What the work folder will hold besides a dense copy of the source. */
EXL2__PRIVATE uint64_t exl2__convert_plan_work(const exl2__convert *v)
{
    uint64_t rows = (uint64_t)v->rows * v->length, last = 0;
    uint64_t disk = (rows + (v->rows / 32 + 1) * v->length) * sizeof(exl2_token); /* ids, with what is kept out */
    disk += rows * v->source.plan.shape.hidden * sizeof(float) * (v->d->corrected ? 3 : 1);
    disk += v->d->measure_only ? 0 : v->budget / 8;
    for (uint32_t i = 0; i < v->linears.count; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        uint64_t key = (uint64_t)linear->layer << 32 | linear->input;
        /* Moments, once for each input: */
        disk += i == 0 || key != last ? 2 * (uint64_t)linear->in * (linear->in + 32) : 0;
        disk += EXL2__LOSSES_WIDTHS * (linear->in / 32) * sizeof(double) + sizeof *linear->measured;
        last = key;
    }
    if (v->linears.head_bits && !v->d->measure_only) { /* its codes are not in the budget */
        const exl2__linear *head = &v->linears.items[v->linears.count - 1];
        exl2__arena dry = { 0 };
        exl2__linear_codes codes;
        exl2__linear_codes_layout(&v->linears, head, &codes, &dry);
        disk += exl2__linears_bits(head, &codes) / 8;
    }
    return disk;
}

EXL2__PRIVATE void exl2__convert_plan_mib(char out[24], uint64_t bytes)
{
    uint64_t tenths = (bytes + 104857) / 104858; /* of a MiB, rounded up */
    exl2__format(out, 24, "%llu.%llu MiB", (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10));
}

/* Fails if a disk has too little room, where the system can tell. path: a folder that exists. */
EXL2__PRIVATE exl2_result exl2__convert_plan_disk(exl2__convert *v, const char *path, uint64_t bytes)
{
    uint64_t room = 0;
    char needed[24], there[24];
    if (!exl2__platform_disk_free(path, &room) || room >= bytes) {
        return EXL2_OK;
    }
    exl2__convert_plan_mib(needed, bytes);
    exl2__convert_plan_mib(there, room);
    return exl2__fail(v->c, EXL2_ERR_IO, "%s: the conversion needs %s of disk, but %s are free there", path, needed,
                      there);
}

#ifndef EXL2_NO_CUDA
/* GPU memory. text: for the model's own text. Fails if there is too little. */
EXL2__PRIVATE exl2_result exl2__convert_plan_device(exl2__convert *v, uint64_t text)
{
    char needed[24], there[24];
    exl2__cuda_device *d = v->gpu.d;
    exl2__device_plan p = { .c = v->c, .g = &v->gpu, .r = &v->source, .m = &v->measure, .linears = &v->linears,
                            .corrected = v->d->corrected, .compared = !v->d->measure_only };
    EXL2__TRY(exl2__cuda_device_enter(d));
    p.room = exl2__gpu_room(&v->gpu);
    EXL2__TRY(exl2__cuda_device_leave_with(d, exl2__device_plan_make(&p)));
    v->plan.device_bytes = exl2__max64(p.peak, v->plan.own_text ? exl2__min64(text, p.room) : 0);
    if (p.needs <= p.room) {
        return EXL2_OK;
    }
    exl2__convert_plan_mib(needed, p.needs);
    exl2__convert_plan_mib(there, p.room);
    return exl2__fail(v->c, EXL2_ERR_BUDGET, "the conversion needs %s of GPU memory, but has %s (device_bytes_max, or "
                      "what is free)", needed, there);
}
#endif

/* Memory: weights are streamed if they do not fit. text, text_device: bytes for the model's own text. */
EXL2__PRIVATE exl2_result exl2__convert_plan_memory(exl2__convert *v, const exl2__arena *measure, uint64_t text,
                                                    uint64_t text_device)
{
    char needed[24], cap[24];
    uint64_t most = v->c->host_bytes_max;
    v->plan.host_bytes = exl2__convert_plan_host(v, measure, text);
    if (most && v->plan.host_bytes > most) {
        v->source.streamed = true;
        v->plan.host_bytes = exl2__convert_plan_host(v, measure, 0);
    }
    v->plan.streamed = v->source.streamed;
    v->plan.own_text = v->d->calibration_file_count == 0 && !v->d->random_ids && !v->plan.streamed;
    if (most && v->plan.host_bytes > most) {
        exl2__convert_plan_mib(needed, v->plan.host_bytes);
        exl2__convert_plan_mib(cap, most);
        return exl2__fail(v->c, EXL2_ERR_BUDGET, "the conversion needs about %s of memory, but host_bytes_max is %s, "
                          "with one layer at a time; fewer or shorter rows of calibration need less", needed, cap);
    }
#ifndef EXL2_NO_CUDA
    if (exl2__convert_gpu(v)) {
        return exl2__convert_plan_device(v, text_device);
    }
#endif
    (void)text_device;
    return EXL2_OK;
}

/* Disks: each message has both numbers. A conversion that continues needs less: what its work folder holds is not
   written again. */
EXL2__PRIVATE exl2_result exl2__convert_plan_room(exl2__convert *v)
{
    uint64_t work = exl2__convert_plan_work(v) + v->copy_bytes;
    uint64_t kept = exl2__workdir_bytes(v->c, v->work.dir) + (v->copied ? v->copy_bytes : 0);
    v->plan.disk_bytes = v->plan.bytes + work;
    work -= exl2__min64(work, kept);
    if (!v->d->work_dir) { /* beside the output, on the same disk */
        return exl2__convert_plan_disk(v, v->folder.work_path, v->plan.bytes + work);
    }
    EXL2__TRY(exl2__convert_plan_disk(v, v->work.dir, work));
    return exl2__convert_plan_disk(v, v->folder.work_path, v->plan.bytes);
}

/* ---- which rate ---- */

/* bpw as text with two digits. */
EXL2__PRIVATE void exl2__convert_bpw_text(char out[16], double bpw)
{
    uint32_t hundredths = (uint32_t)(bpw * 100 + 0.5);
    exl2__format(out, 16, "%u.%u%u", hundredths / 100, hundredths / 10 % 10, hundredths % 10);
}

/* Linear layers whose widths are allocated: all, or all but the head. */
static inline uint32_t exl2__convert_allocated(const exl2__convert *v)
{
    return v->linears.count - (v->linears.head_bits ? 1u : 0u);
}

/* Sets the budget and what the plan says of rates and of the folder. Fails below what this model can have; above it,
   the budget is the most. */
EXL2__PRIVATE exl2_result exl2__convert_plan_rate(exl2__convert *v)
{
    exl2_convert_plan *p = &v->plan;
    uint64_t least = 0, most = 0, weights = 0, asked;
    char low[24], high[24], given[24];
    for (uint32_t i = 0; i < exl2__convert_allocated(v); i++) {
        const exl2__linear *linear = &v->linears.items[i];
        exl2__allocate_linear one = { linear->in, linear->columns, linear->has_bias, NULL, NULL };
        uint64_t bits[2];
        exl2__allocate_range(&one, 1, &bits[0], &bits[1]);
        least += bits[0];
        most += bits[1];
        weights += (uint64_t)linear->in * linear->columns;
    }
    EXL2__TRY(exl2__convert_plan_folder(v, 0, &p->bytes_least));
    EXL2__TRY(exl2__convert_plan_folder(v, EXL2__LOSSES_WIDTHS - 1, &p->bytes_most));
    uint64_t other = p->bytes_most - most / 8; /* headers grow with the numbers in them: with few bits they are less */
    p->bytes_least = exl2__max64(p->bytes_least, other + exl2__div_up(least, 8));
    p->bpw_least = (float)((double)least / (double)weights);
    p->bpw_most = (float)((double)most / (double)weights);
    if (v->d->size_bytes) {
        asked = v->d->size_bytes > other ? exl2__min64(v->d->size_bytes - other, most) * 8 : 0;
        if (v->d->size_bytes < p->bytes_least) {
            exl2__convert_plan_mib(low, p->bytes_least);
            exl2__convert_plan_mib(high, p->bytes_most);
            exl2__convert_plan_mib(given, v->d->size_bytes);
            return exl2__fail(v->c, EXL2_ERR_ARG, "the folder of this model can have %s to %s; %s are too few", low,
                              high, given);
        }
    } else {
        asked = (uint64_t)(v->bpw * (double)weights);
        if (asked < least && !v->d->measure_only) {
            exl2__convert_bpw_text(low, (double)least / (double)weights + 0.005);
            exl2__convert_bpw_text(high, (double)most / (double)weights);
            return exl2__fail(v->c, EXL2_ERR_ARG, "this model can have %s to %s bits per weight", low, high);
        }
    }
    v->above = asked > most;
    v->budget = exl2__min64(asked, most);
    p->bpw = (float)((double)v->budget / (double)weights);
    p->bytes = exl2__min64(other + exl2__div_up(v->budget, 8), p->bytes_most);
    v->bpw = v->d->size_bytes ? (double)p->bpw : v->bpw;
    if (v->d->measure_only) { /* about 16 bytes for the loss of a block at a width, and 7 for an id */
        uint64_t ids = (uint64_t)(v->rows + exl2__convert_held(v)) * v->length;
        p->bytes = p->bytes_least = p->bytes_most = weights / 32 / 32 * EXL2__LOSSES_WIDTHS * 16 + ids * 7;
    }
    return EXL2_OK;
}

/* Is there a tokenizer for the text of calibration, and are its files of the right kind? *bytes, *device_bytes: memory
   that the model's own text needs. */
EXL2__PRIVATE exl2_result exl2__convert_plan_text(exl2__convert *v, uint64_t *bytes, uint64_t *device_bytes)
{
    const exl2_convert_desc *d = v->d;
    bool has_tokenizer;
    *bytes = *device_bytes = 0;
    if (d->random_ids) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__texts_measure(v->c, exl2__convert_engine(v), v->source_dir, v->rows + exl2__convert_held(v),
                                  v->length, &v->rope, bytes, device_bytes, &has_tokenizer));
    for (uint32_t i = 0; i < d->calibration_file_count; i++) {
        EXL2__TRY(exl2__texts_check_file(v->c, d->source_dir, d->calibration_files[i], has_tokenizer));
        *bytes = 0;
    }
    if (d->calibration_file_count == 0 && !has_tokenizer) {
        return exl2__fail(v->c, EXL2_ERR_ARG, "%s has no tokenizer, so it cannot write its own text; give a .json with "
                          "ids for calibration, or ask for random ids (random_ids, --random-ids)", d->source_dir);
    }
    return EXL2_OK;
}

/* All that can be found out from headers. measure: a dry run of exl2__measure_layout. */
EXL2__PRIVATE exl2_result exl2__convert_plan(exl2__convert *v, exl2__arena *measure)
{
    uint64_t text, text_device;
    v->write = (exl2__convert_write){ .c = v->c, .source_dir = v->source_dir, .source = &v->source,
                                      .linears = &v->linears, .work = &v->work, .bpw_1000 = exl2__convert_bpw_1000(v),
                                      .rows = v->rows, .length = v->length,
                                      .head_bits = v->head_bits,
                                      .shard_bytes = v->d->shard_bytes ? v->d->shard_bytes : EXL2__SHARDS_BYTES };
    EXL2__TRY(exl2__convert_plan_rate(v));
    EXL2__TRY(exl2__convert_plan_text(v, &text, &text_device));
    EXL2__TRY(exl2__convert_plan_memory(v, measure, text, text_device));
    v->write.text = v->d->calibration_file_count ? EXL2__CONVERT_WRITE_FILES
                  : v->d->random_ids ? EXL2__CONVERT_WRITE_RANDOM
                  : v->plan.own_text ? EXL2__CONVERT_WRITE_OWN : EXL2__CONVERT_WRITE_SPARE;
    return exl2__convert_plan_room(v);
}

#endif
