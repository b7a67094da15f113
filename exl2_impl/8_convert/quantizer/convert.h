/* convert.h: exl2_convert: a dense folder becomes an EXL2 folder, which is created completely or not at all.
   takes: exl2_convert_desc.
   gives: exl2_convert; exl2__convert_run, which does the same with a given context, for tests.
   owns:  all files and memory of a conversion, until it returns; the work folder stays after a failure.

   Stages: ids; measure (layer by layer: moments, losses of blocks, sensitivities); allocate; quantize (matrix by
   matrix); write; compare on rows that were kept out of calibration. */
#ifndef EXL2__CONVERT_H
#define EXL2__CONVERT_H

#include "convert_allocate.h"
#include "convert_measure.h"

/* ---- quantize ---- */

typedef struct exl2__convert_packing {
    const exl2__solve *s;
    const exl2__linear *linear;
    exl2__linear_codes *codes;
} exl2__convert_packing;

/* Task: one group. */
EXL2__PRIVATE void exl2__convert_pack_group(void *arg, uint32_t g)
{
    const exl2__convert_packing *p = (const exl2__convert_packing *)arg;
    const exl2__linear *linear = p->linear;
    exl2__linear_codes *codes = p->codes;
    const exl2__group *group = &codes->groups[g];
    for (uint32_t strip = 0; strip < p->s->strips; strip++) {
        exl2__pack_codes(p->s->codes + ((size_t)strip * linear->in + group->row) * EXL2__PANELS_LANES, group->rows,
                         EXL2__PANELS_LANES, EXL2__PANELS_LANES, group->bits,
                         codes->words + (size_t)group->word * linear->columns + strip * EXL2__PANELS_LANES,
                         linear->columns);
    }
    exl2__pack_levels(p->s->levels + (size_t)g * linear->columns, linear->columns,
                      codes->scales + (size_t)g * (linear->columns / 8));
    codes->scale_max[g] = p->s->scale_max[g];
    codes->table[2 * g] = (uint16_t)group->bits;
    codes->table[2 * g + 1] = (uint16_t)group->word;
}

/* Packs what the quantizer made. */
EXL2__PRIVATE void exl2__convert_pack(const exl2__ctx *c, const exl2__solve *s, const exl2__linear *linear,
                                      exl2__linear_codes *codes)
{
    exl2__convert_packing packing = { s, linear, codes };
    exl2__tasks_run(c, codes->group_count, exl2__convert_pack_group, &packing);
    for (uint32_t i = 0; i < linear->in; i++) {
        codes->inverse[s->factor->order[i]] = i;
    }
}

/* Quantizes one matrix, and stores its codes. correct: NULL, or what its targets make up for. */
EXL2__PRIVATE exl2_result exl2__convert_quantize_linear(exl2__convert *v, uint32_t index, const exl2__factor *f,
                                                        const exl2__correct *correct, exl2__linear_codes *codes)
{
    const exl2__linear *linear = &v->linears.items[index];
    exl2__workdir_piece pieces[EXL2__SLOT_PIECES];
    char name[EXL2__FILE_NAME_MAX];
    exl2__solve s;
    if (linear->layer != EXL2__LINEARS_NO_LAYER) {
        EXL2__TRY(exl2__runner_hold(&v->source, linear->layer));
    }
    exl2__cpu_part *part = exl2__linears_part(&v->source, linear);
    EXL2__TRY(exl2__solve_open(v->c, f, linear->columns, codes->groups, codes->group_count, &s));
    exl2_result result = exl2__solve_load(v->c, &s, part, linear->out);
    if (result >= 0 && correct) {
        result = exl2__correct_weights(v->c, correct, &s);
    }
    result = result < 0 ? result : exl2__solve_run(v->c, &s);
    result = result < 0 ? result : exl2__solve_energy(v->c, &s, true, &codes->losses[0]);
    result = result < 0 ? result : exl2__solve_energy(v->c, &s, false, &codes->losses[1]);
    exl2__convert_time(v, EXL2_CONVERT_QUANTIZE);
    if (result >= 0) {
        exl2__convert_pack(v->c, &s, linear, codes);
        uint32_t count = exl2__linear_codes_pieces(linear, codes, pieces);
        exl2__convert_write_codes_name(&v->linears, index, name);
        result = exl2__workdir_save(&v->work, name, pieces, count);
    }
    if (result >= 0 && v->d->corrected) {
        result = exl2__streams_replace(&v->streams, part, exl2__convert_on_gpu(v, linear), &s);
    }
    exl2__solve_close(v->c, &s);
    exl2__convert_time(v, EXL2_CONVERT_FILES);
    return result;
}

/* The codes of a linear in *memory, which the caller closes, also after a failure; *found: they are those of the work
   folder. */
EXL2__PRIVATE exl2_result exl2__convert_codes(exl2__convert *v, uint32_t index, exl2__linear_codes *codes,
                                              exl2__arena *memory, bool *found)
{
    const exl2__linear *linear = &v->linears.items[index];
    exl2__arena dry = { 0 };
    exl2__workdir_piece pieces[EXL2__SLOT_PIECES];
    char name[EXL2__FILE_NAME_MAX];
    exl2__linear_codes_layout(&v->linears, linear, codes, &dry);
    EXL2__TRY(exl2__arena_open(v->c, memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__linear_codes_layout(&v->linears, linear, codes, memory);
    uint32_t count = exl2__linear_codes_pieces(linear, codes, pieces);
    exl2__convert_write_codes_name(&v->linears, index, name);
    return exl2__workdir_load(&v->work, name, pieces, count, found);
}

/* Targets are corrected but for the down matrices of experts: the same tokens do not reach them in both streams. */
EXL2__PRIVATE bool exl2__convert_is_corrected(const exl2__convert *v, const exl2__linear *linear)
{
    return v->d->corrected && linear->input < EXL2__RUNNER_EXPERTS;
}

/* The factor of a linear's input: of the moments in the work folder, or of the stream through what is quantized. */
EXL2__PRIVATE exl2_result exl2__convert_factor(exl2__convert *v, const exl2__linear *linear, exl2__factor *f)
{
    exl2__gram *gram = &v->measure.grams[linear->input];
    bool found;
    if (exl2__convert_is_corrected(v, linear)) {
        EXL2__TRY(exl2__streams_input(&v->streams, linear->layer, linear->input, linear->in));
        exl2__convert_time(v, EXL2_CONVERT_FORWARD);
        EXL2__TRY(exl2__factor_make(v->c, exl2__convert_gpu(v), linear->name, gram->sum, linear->in, f));
        exl2_result result = exl2__correct_finish(&v->streams.correct, f);
        if (result < 0) {
            exl2__factor_close(v->c, f);
        }
        return result;
    }
    gram->in = linear->in;
    EXL2__TRY(exl2__convert_load_moments(v, linear->layer, linear->input, &found));
    if (!found) {
        char name[EXL2__FILE_NAME_MAX];
        exl2__convert_moments_name(linear->layer, linear->input, name);
        return exl2__fail(v->c, EXL2_ERR_IO, "%s/%s is missing or damaged; remove that folder", v->work.dir, name);
    }
    return exl2__factor_make(v->c, exl2__convert_gpu(v), linear->name, gram->sum, linear->in, f);
}

/* The linears [first, end) have one input. Those that are in the work folder are left as they are, unless their targets
   are corrected. */
EXL2__PRIVATE exl2_result exl2__convert_quantize_input(exl2__convert *v, uint32_t first, uint32_t end)
{
    exl2__factor f;
    bool made = false;
    exl2_result result = EXL2_OK;
    for (uint32_t i = first; i < end && result >= 0; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        exl2__arena memory = { 0 };
        exl2__linear_codes codes;
        bool found = false;
        result = exl2__convert_codes(v, i, &codes, &memory, &found);
        found = found && !v->d->corrected;
        if (result >= 0 && !found && !made) {
            result = exl2__convert_factor(v, linear, &f);
            made = result >= 0;
            exl2__convert_time(v, EXL2_CONVERT_FACTOR);
        }
        if (result >= 0 && !found) {
            result = exl2__convert_quantize_linear(v, i, &f, exl2__convert_is_corrected(v, linear) ? &v->streams.correct
                                                                                             : NULL, &codes);
        }
        exl2__arena_close(v->c, &memory);
        result = result < 0 ? result : exl2__convert_progress(v, "quantize", (i + 1.0) / v->linears.count);
    }
    if (made) {
        exl2__factor_close(v->c, &f);
    }
    return result;
}

/* The linears [first, last), input by input. */
EXL2__PRIVATE exl2_result exl2__convert_quantize_linears(exl2__convert *v, uint32_t first, uint32_t last)
{
    for (uint32_t end; first < last; first = end) {
        const exl2__linear *linear = &v->linears.items[first];
        for (end = first + 1; end < last && v->linears.items[end].layer == linear->layer
                              && v->linears.items[end].input == linear->input; end++) {
        }
        EXL2__TRY(exl2__convert_quantize_input(v, first, end));
    }
    return EXL2_OK;
}

/* ---- quantize with corrected targets ---- */

EXL2__PRIVATE void exl2__convert_streams_pieces(exl2__convert *v, uint64_t *layer, exl2__workdir_piece pieces[3])
{
    uint64_t bytes = (uint64_t)v->rows * v->length * v->source.plan.shape.hidden * sizeof(float);
    pieces[0] = (exl2__workdir_piece){ layer, sizeof *layer };
    pieces[1] = (exl2__workdir_piece){ v->measure.states.host, bytes };
    pieces[2] = (exl2__workdir_piece){ v->streams.states.host, bytes };
}

/* Copies the states of both streams between the device and the host, where they are on the device. */
EXL2__PRIVATE exl2_result exl2__convert_sync_streams(const exl2__convert *v, bool to_host)
{
    uint64_t tokens = (uint64_t)v->rows * v->length;
    EXL2__TRY(exl2__runner_states_sync(&v->source, &v->measure.states, tokens, to_host));
    return exl2__runner_states_sync(&v->source, &v->streams.states, tokens, to_host);
}

/* Sets both streams to those before layer *at: the last that were saved, if the codes of all layers before are in the
   work folder, or the embeddings. */
EXL2__PRIVATE exl2_result exl2__convert_load_streams(exl2__convert *v, uint32_t *at)
{
    uint64_t layer = 0;
    exl2__workdir_piece pieces[3];
    bool found;
    exl2__convert_streams_pieces(v, &layer, pieces);
    EXL2__TRY(exl2__workdir_load(&v->work, "states-of-both", pieces, 3, &found));
    found = found && layer <= v->source.plan.shape.layers;
    for (uint32_t i = 0; found && i < v->linears.first[layer]; i++) {
        exl2__arena memory = { 0 };
        exl2__linear_codes codes;
        exl2_result result = exl2__convert_codes(v, i, &codes, &memory, &found);
        exl2__arena_close(v->c, &memory);
        EXL2__TRY(result);
    }
    *at = found ? (uint32_t)layer : 0;
    return found ? exl2__convert_sync_streams(v, false) : exl2__streams_begin(&v->streams);
}

/* Layer by layer, as each depends on what was made of those before. */
EXL2__PRIVATE exl2_result exl2__convert_quantize_layers(exl2__convert *v)
{
    uint32_t layers = v->source.plan.shape.layers, at;
    uint64_t saved_ns = exl2__platform_ns();
    EXL2__TRY(exl2__convert_load_streams(v, &at));
    while (at < layers) {
        EXL2__TRY(exl2__convert_quantize_linears(v, v->linears.first[at], v->linears.first[at + 1]));
        EXL2__TRY(exl2__streams_next(&v->streams, at));
        exl2__convert_time(v, EXL2_CONVERT_FORWARD);
        at++;
        if (exl2__platform_ns() - saved_ns > EXL2__CONVERT_SAVE_NS || at == layers) {
            uint64_t layer = at;
            exl2__workdir_piece pieces[3];
            exl2__convert_streams_pieces(v, &layer, pieces);
            EXL2__TRY(exl2__convert_sync_streams(v, true));
            EXL2__TRY(exl2__workdir_save(&v->work, "states-of-both", pieces, 3));
            saved_ns = exl2__platform_ns();
        }
    }
    return exl2__convert_quantize_linears(v, v->linears.first[layers], v->linears.count);
}

EXL2__PRIVATE exl2_result exl2__convert_quantize(exl2__convert *v)
{
    exl2__arena dry = { 0 }, memory;
    if (!v->d->corrected) {
        return exl2__convert_quantize_linears(v, 0, v->linears.count);
    }
    exl2__streams_layout(&v->streams, &v->measure, exl2__linears_most(&v->linears), &dry);
    EXL2__TRY(exl2__arena_open(v->c, &memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__streams_layout(&v->streams, &v->measure, exl2__linears_most(&v->linears), &memory);
    exl2_result result = EXL2_OK;
#ifndef EXL2_NO_CUDA
    if (exl2__measure_on_gpu(&v->measure)) {
        uint64_t bytes = (uint64_t)v->rows * v->length * v->source.plan.shape.hidden * sizeof(float);
        result = exl2__measure_states_open(&v->gpu, bytes, EXL2__GPU_STATES_TOO, &v->streams.states);
    }
#endif
    result = result < 0 ? result : exl2__convert_quantize_layers(v);
    exl2__streams_drop(&v->streams);
    exl2__arena_close(v->c, &memory);
    return result;
}

/* ---- report ---- */

/* Number of experts that calibration has not reached; *first: the down matrix of the first one. */
EXL2__PRIVATE uint32_t exl2__convert_starved(const exl2__convert *v, const char **first)
{
    uint32_t count = 0;
    for (uint32_t i = v->linears.count; i-- > 0;) {
        const exl2__linear *linear = &v->linears.items[i];
        if (linear->kind == EXL2__UNIT_EXPERT_DOWN && linear->measured->share * v->rows * v->length < 1) {
            *first = linear->name;
            count++;
        }
    }
    return count;
}

/* What the user should know besides the figures. */
EXL2__PRIVATE void exl2__convert_warn(const exl2__convert *v, char *warning, size_t cap)
{
    const exl2__linears *s = &v->linears;
    const char *name = NULL;
    size_t used = 0;
    if (s->source != EXL2__MATRIX_DENSE || v->from.kind == EXL2__CONVERT_SOURCE_FP8) {
        used = exl2__format(warning, cap, "the source is quantized already (%s): what it lost stays lost",
                            v->from.kind == EXL2__CONVERT_SOURCE_FP8 ? "FP8" : exl2__matrix_kind_name(s->source));
    }
    if (s->dense_count > 0 && used < cap) {
        used += exl2__format(warning + used, cap - used, "%s%u matrices stay FP16, because the block of %s has a "
                             "matrix with %u inputs, not a multiple of 32", used ? "; " : "", s->dense_count,
                             s->dense_name, s->dense_in);
    }
    uint32_t elsewhere = 0;
    for (uint32_t i = 0; v->source.gpu && i < v->source.plan.shape.layers; i++) {
        elsewhere += !exl2__runner_fits(&v->source, i);
    }
    if (elsewhere > 0 && used < cap) {
        used += exl2__format(warning + used, cap - used, "%sof %u layers some phases ran on the CPU: the GPU's kernels "
                             "do not have their sizes", used ? "; " : "", elsewhere);
    }
    uint32_t starved = exl2__convert_starved(v, &name);
    if (starved > 0 && used < cap) {
        used += exl2__format(warning + used, cap - used, "%scalibration has reached %u experts not at all (%s is the "
                             "first): more text of other kinds may help", used ? "; " : "", starved, name);
    }
    if (v->above && used < cap) {
        char most[16];
        exl2__convert_bpw_text(most, (double)v->plan.bpw_most);
        used += exl2__format(warning + used, cap - used, "%smore was asked for than this model can have, %s bits per "
                             "weight", used ? "; " : "", most);
    }
    if (s->chosen && used < cap) {
        exl2__format(warning + used, cap - used, "%sExLlamaV2's measurement knows nothing of what follows a module",
                     used ? "; " : "");
    }
}

EXL2__PRIVATE void exl2__convert_report(exl2__convert *v, exl2_convert_info *info)
{
    uint64_t bits = 0, weights = 0;
    exl2__format(info->arch, sizeof info->arch, "%s", v->source.load.config.arch_name);
    exl2__convert_warn(v, info->warning, sizeof info->warning);
    info->bytes = v->write.bytes;
    info->matrices = v->linears.count;
    info->rows = v->rows;
    info->length = v->length;
    for (uint32_t i = 0; i < EXL2_CONVERT_STAGES; i++) {
        info->stage_seconds[i] = (double)v->stage_ns[i] * 1e-9;
    }
    info->backend = exl2__convert_gpu(v) ? EXL2_BACKEND_CUDA : EXL2_BACKEND_CPU;
    for (uint32_t i = 0; i < v->linears.count; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        exl2__arena dry = { 0 };
        exl2__linear_codes codes;
        exl2__linear_codes_layout(&v->linears, linear, &codes, &dry);
        uint64_t own = exl2__linears_bits(linear, &codes), all = (uint64_t)linear->in * linear->columns;
        exl2_convert_matrix m = { .name = linear->name, .in = linear->in, .out = linear->out };
        exl2__group groups[EXL2__MATRIX_IN_MAX / 32 + 1];
        uint32_t words, count = exl2__linears_groups(&v->linears, linear, groups, &words);
        for (uint32_t g = 0; g < count; g++) {
            m.rows[groups[g].bits] += groups[g].rows;
        }
        m.bpw = (float)((double)own / (double)all);
        m.loss = linear->power > 0 ? linear->loss / linear->power : 0;
        m.kl = linear->measured->mean * linear->measured->share * linear->loss;
        info->predicted_kl += m.kl;
        if (linear->layer == EXL2__LINEARS_NO_LAYER) {
            info->head_bpw = m.bpw;
        } else {
            bits += own;
            weights += all;
        }
        if (v->d->on_matrix) {
            v->d->on_matrix(v->d->user, &m);
        }
    }
    info->bpw = weights ? (float)((double)bits / (double)weights) : 0;
}

/* Compares the output with the source on the rows that were kept out. */
EXL2__PRIVATE exl2_result exl2__convert_compare(exl2__convert *v, const char *dir, exl2_convert_info *info)
{
    exl2__runner out;
    exl2__compare m = { 0 };
    exl2__arena dry = { 0 }, memory = { 0 };
    EXL2__TRY(exl2__runner_headers(v->c, dir, v->length, &v->rope, &out));
    out.streamed = v->source.streamed;
    exl2_result result = exl2__runner_load(&out);
#ifndef EXL2_NO_CUDA
    if (exl2__convert_gpu(v)) {
        result = result < 0 ? result : exl2__runner_use(&out, &v->gpu, 1);
    }
#endif
    m.a = &v->source;
    m.b = &out;
    exl2__compare_layout(&m, &dry);
    result = result < 0 ? result : exl2__arena_open(v->c, &memory, dry.used, EXL2_MEM_SCRATCH);
    if (result >= 0) {
        exl2__compare_layout(&m, &memory);
    }
    for (uint32_t i = 0; i < v->held && result >= 0; i++) {
        result = exl2__compare_rows(&m, v->ids + (size_t)(v->rows + i) * v->length, v->length);
        result = result < 0 ? result : exl2__convert_progress(v, "compare", (i + 1.0) / v->held);
    }
    if (result >= 0) {
        info->kl = m.kl / (double)m.positions;
        info->top1 = (double)m.same_top / (double)m.positions;
        info->nll_before = m.nll_a / (double)m.scored;
        info->nll_after = m.nll_b / (double)m.scored;
    }
    exl2__arena_close(v->c, &memory);
    exl2__runner_close(&out);
    return result;
}

/* ---- all ---- */

/* With size_bytes the rates are known only after the allocation. They are for config.json. */
EXL2__PRIVATE void exl2__convert_rates(exl2__convert *v)
{
    uint64_t bits[2] = { 0, 0 }, weights[2] = { 0, 0 }; /* of the layers, of the head */
    for (uint32_t i = 0; i < v->linears.count && v->d->size_bytes; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        exl2__arena dry = { 0 };
        exl2__linear_codes codes;
        bool head = linear->layer == EXL2__LINEARS_NO_LAYER;
        exl2__linear_codes_layout(&v->linears, linear, &codes, &dry);
        bits[head] += exl2__linears_bits(linear, &codes);
        weights[head] += (uint64_t)linear->in * linear->columns;
    }
    if (v->d->size_bytes) {
        v->write.bpw_1000 = (uint32_t)(bits[0] * 1000 / weights[0]);
        v->write.head_bits = v->head_bits ? v->head_bits : exl2__min32((uint32_t)(bits[1] / weights[1]), 8);
    }
}

/* After the measurement: rounds all matrices, writes the folder, compares. */
EXL2__PRIVATE exl2_result exl2__convert_make(exl2__convert *v, exl2_convert_info *info)
{
    EXL2__TRY(exl2__convert_allocate(v));
    EXL2__TRY(exl2__convert_quantize(v));
    exl2__arena_close(v->c, &v->memory);
    EXL2__TRY(exl2__convert_progress(v, "write", 0));
    exl2__convert_rates(v);
    EXL2__TRY(exl2__convert_write_all(&v->write, v->folder.work_path));
    exl2__convert_time(v, EXL2_CONVERT_FILES);
    EXL2__TRY(exl2__convert_compare(v, v->folder.work_path, info));
    exl2__convert_time(v, EXL2_CONVERT_COMPARE);
    exl2__convert_report(v, info);
    return EXL2_OK;
}

/* calibration.json: the rows of ids, as a file for calibration: another rate then needs no text. */
EXL2__PRIVATE exl2_result exl2__convert_write_ids(const exl2__convert *v)
{
    char path[EXL2__FILE_PATH_MAX];
    exl2__write w;
    exl2__format(path, sizeof path, "%s/calibration.json", v->folder.work_path);
    EXL2__TRY(exl2__write_open(v->c, path, &w));
    for (uint32_t row = 0; row < v->rows + v->held; row++) {
        for (uint32_t i = 0; i < v->length; i++) {
            exl2__write_format(&w, "%s%d", i ? "," : row ? "],\n[" : "[[", v->ids[(size_t)row * v->length + i]);
        }
    }
    exl2__write_format(&w, "]]\n");
    return exl2__write_close(&w);
}

/* After the measurement, with measure_only: writes it, and what it was made of. */
EXL2__PRIVATE exl2_result exl2__convert_write_measured(exl2__convert *v)
{
    char path[EXL2__FILE_PATH_MAX];
    exl2__arena_close(v->c, &v->memory);
    exl2__format(path, sizeof path, "%s/measurement.json", v->folder.work_path);
    EXL2__TRY(exl2__measurement_write(v->c, path, &v->source, &v->linears, v->from.weights));
    return exl2__convert_write_ids(v);
}

/* With `bits`: a dense folder of what the source becomes before it would be quantized. */
EXL2__PRIVATE exl2_result exl2__convert_dense(exl2__convert *v)
{
    exl2__ctx *c = v->c;
    exl2_convert_info info = { .backend = EXL2_BACKEND_CPU };
    EXL2__TRY(exl2__convert_progress(v, "load", 0));
    v->watch.under = c->files;
    EXL2__TRY(exl2__convert_source_identify(c, v->d, &v->watch, &v->from));
    c->files = exl2__convert_watch_files(&v->watch);
    if (!exl2__convert_source_copies(&v->from)) {
        return exl2__fail(c, EXL2_ERR_ARG, "bits is 16, but %s is a folder without FP8 weights, and there is no "
                          "adapter to merge into it", v->d->source_dir);
    }
    EXL2__TRY(exl2__convert_source_run(c, v->d, &v->from, v->out_dir, NULL));
    exl2_result result = exl2__convert_source_check(c, v->d, &v->from, &v->watch);
    if (result < 0) {
        exl2__folder_remove(v->out_dir);
        return result;
    }
    info.bytes = exl2__workdir_bytes(c, v->out_dir);
    info.host_peak = c->host_peak;
    exl2__convert_time(v, EXL2_CONVERT_FILES);
    info.stage_seconds[EXL2_CONVERT_FILES] = (double)v->stage_ns[EXL2_CONVERT_FILES] * 1e-9;
    if (v->d->info) {
        *v->d->info = info;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__convert_steps(exl2__convert *v)
{
    exl2__ctx *c = v->c;
    exl2_convert_info info = { 0 };
    exl2__arena dry = { 0 };
    v->started_ns = exl2__platform_ns();
    EXL2__TRY(exl2__convert_check(v));
    if (v->d->bits) {
        return exl2__convert_dense(v);
    }
    EXL2__TRY(exl2__convert_open_gpu(v));
    EXL2__TRY(exl2__folder_begin(c, &v->folder, v->out_dir)); /* fails before hours of work, not after */
    EXL2__TRY(exl2__convert_progress(v, "load", 0));
    EXL2__TRY(exl2__convert_open_source(v));
#ifndef EXL2_NO_CUDA
    if (exl2__convert_gpu(v)) {
        EXL2__TRY(exl2__runner_use(&v->source, &v->gpu, 0));
    }
#endif
    exl2__convert_time(v, EXL2_CONVERT_FILES);
    exl2__convert_layout(v, &dry);
    EXL2__TRY(exl2__arena_open(c, &v->memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__convert_layout(v, &v->memory);
#ifndef EXL2_NO_CUDA
    EXL2__TRY(exl2__measure_open(&v->measure));
#endif
    EXL2__TRY(exl2__convert_measure(v));
    EXL2__TRY(v->d->measure_only ? exl2__convert_write_measured(v) : exl2__convert_make(v, &info));
    EXL2__TRY(exl2__convert_source_check(c, v->d, &v->from, &v->watch));
    EXL2__TRY(exl2__folder_commit(c, &v->folder));
    if (!v->d->work_dir) {
        exl2__workdir_remove(&v->work);
    }
    info.host_peak = c->host_peak;
#ifndef EXL2_NO_CUDA
    info.device_peak = exl2__convert_gpu(v) ? v->gpu.d->peak : 0;
#endif
    if (v->d->info) {
        *v->d->info = info;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__convert_run(exl2__ctx *c, const exl2_convert_desc *d)
{
    exl2__convert v = { 0 };
    v.c = c;
    v.d = d;
    exl2_result result = exl2__convert_steps(&v);
    exl2__arena_close(c, &v.memory);
    exl2__free(c, v.ids, v.ids_bytes, EXL2_MEM_GENERAL);
    exl2__linears_close(c, &v.linears);
    exl2__runner_close(&v.source);
    exl2__gpu_close(c, &v.gpu);
    exl2__folder_abandon(&v.folder);
    if (exl2__convert_watch_changed(&v.watch) && result < 0 && result != EXL2_ERR_CANCELLED) {
        result = exl2__convert_source_changed(c, d);
        if (v.work.lock) {
            exl2__workdir_remove(&v.work); /* the next conversion may be that of another source */
        }
    }
    if (v.watch.under.open) {
        c->files = v.watch.under;
    }
    exl2__convert_watch_close(c, &v.watch);
    if (result < 0 && !d->work_dir && v.work.lock && !exl2__workdir_has_parts(&v.work)) {
        exl2__workdir_remove(&v.work); /* there is nothing to continue from */
    }
    exl2__workdir_close(&v.work);
    return result;
}

EXL2_API exl2_result exl2_convert(const exl2_convert_desc *d)
{
    exl2__ctx c = { 0 };
    if (!d) {
        return EXL2_ERR_ARG;
    }
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.parallel = d->parallel;
    c.host_bytes_max = d->host_bytes_max;
    c.cpu_path = exl2__cpu_path_best();
    exl2_result result = exl2__convert_run(&c, d);
    if (!d->_start_canary && !d->_end_canary && d->error) { /* else d->error may be garbage, too */
        *d->error = c.error;
    }
    return result;
}

#endif
