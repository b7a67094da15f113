/* runner_pass.h: passes of whole sequences through a model, layer by layer: on the CPU, through the phases of the CPU
   backend, the same code that the engine runs; or on a GPU.
   takes: exl2__runner with its weights; tokens, or states.
   gives: exl2__runner_begin_all, exl2__runner_begin; exl2__runner_inputs, exl2__runner_input_size, exl2__runner_input,
          exl2__runner_expert; exl2__runner_embed, exl2__runner_layer, exl2__runner_until; exl2__runner_use,
          exl2__runner_layout_copies. */
#ifndef EXL2__RUNNER_PASS_H
#define EXL2__RUNNER_PASS_H

#include "runner_states.h"

/* ---- begin ---- */

/* Begins a pass over `count` sequences of `each` tokens. tokens [count]: valid ids of each; NULL where the pass does
   not begin with embeddings. More tokens than r->length are for a GPU alone. Where the last pass had as many, only the
   tokens are new. */
EXL2__PRIVATE exl2_result exl2__runner_begin_all(exl2__runner *r, const exl2_token *const *tokens, uint32_t count,
                                                 uint32_t each)
{
    r->row_count = count * each;
    r->residual_on_gpu = false;
#ifndef EXL2_NO_CUDA
    r->pass.rows = r->row_count;
    r->pass.each = each;
    r->pass.residual = 0;
#endif
    if (r->row_count > r->length || count > r->sequences) {
        return EXL2_OK;
    }
    for (uint32_t i = 0; i < r->row_count; i++) {
        r->rows[i] = (exl2__step_row){ .token = tokens ? tokens[i / each][i % each] : 0, .position = i % each,
                                         .sequence = i / each };
    }
    if (r->count == count && r->each == each) {
        return EXL2_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        r->tables[i] = r->pages + i * exl2__div_up(each, EXL2__PAGE_TOKENS);
    }
    r->step = (exl2__step){ 0 };
    r->step.rows = r->rows;
    r->step.row_count = r->row_count;
    r->step.sequence_count = count;
    r->step.page_tables = r->tables;
    r->step.logits = r->wanted;
    r->step.logit_count = r->row_count;
    r->count = count;
    r->each = each;
    return exl2__cpu_backend.begin(r->device, &r->step);
}

/* Begins a pass over one sequence. */
EXL2__PRIVATE exl2_result exl2__runner_begin(exl2__runner *r, const exl2_token *tokens, uint32_t count)
{
    return exl2__runner_begin_all(r, &tokens, 1, count);
}

/* ---- inputs ---- */

/* Number of inputs that a layer can have. */
static inline uint32_t exl2__runner_inputs(const exl2__runner *r)
{
    return EXL2__RUNNER_EXPERTS + r->plan.shape.experts.count;
}

/* Features of an input; 0 if the layer does not have it. layer NULL: of the head. Needs no weights. */
EXL2__PRIVATE uint32_t exl2__runner_input_size(const exl2__runner *r, const exl2__layer *layer, uint32_t input)
{
    const exl2__shape *s = &r->plan.shape;
    const exl2__config *config = &r->load.config;
    bool sparse = layer && exl2__unit_sparse(config, layer->index);
    if (layer && input == EXL2__RUNNER_OUT) {
        return s->heads * s->head_dim;
    }
    if (layer && input == EXL2__RUNNER_DOWN) {
        return sparse ? s->experts.shared_inter : config->inter;
    }
    if (input >= EXL2__RUNNER_EXPERTS) {
        return sparse ? s->experts.inter : 0;
    }
    return layer || input == EXL2__RUNNER_QKV ? s->hidden : 0;
}

/* Row `row` of an input but EXPERTS, as the following phase will compute it, to x [input size]. layer NULL: that of the
   head. */
EXL2__PRIVATE void exl2__runner_input(const exl2__runner *r, const exl2__layer *layer, uint32_t input, uint32_t row,
                                      float *x)
{
    const exl2__cpu_device *d = exl2__runner_cpu(r);
    const float *residual = d->residual + (size_t)row * d->hidden_stride;
    if (layer && input == EXL2__RUNNER_OUT) {
        memcpy(x, d->query + (size_t)row * d->query_stride, exl2__runner_input_size(r, layer, input) * sizeof *x);
    } else if (layer && input == EXL2__RUNNER_DOWN) {
        memcpy(x, d->gate + (size_t)row * d->inter_stride, exl2__runner_input_size(r, layer, input) * sizeof *x);
    } else {
        exl2__cpu_norm_or_copy(d, !layer ? &r->plan.final_norm
                                  : input == EXL2__RUNNER_QKV ? &layer->attn_norm : &layer->mlp_norm, residual, x);
    }
}

/* ---- phases ---- */

/* The input that a phase reads first, or UINT32_MAX. */
EXL2__PRIVATE uint32_t exl2__runner_input_of(const exl2__layer *layer, exl2__phase phase)
{
    switch (phase) {
    case EXL2__PHASE_qkv:
        return EXL2__RUNNER_QKV;
    case EXL2__PHASE_out:
        return EXL2__RUNNER_OUT;
    case EXL2__PHASE_route:
        return EXL2__RUNNER_UP;
    case EXL2__PHASE_gate_up:
        return layer->matrix[EXL2__ROLE_ROUTER] ? UINT32_MAX : EXL2__RUNNER_UP;
    case EXL2__PHASE_down:
        return EXL2__RUNNER_DOWN;
    case EXL2__PHASE_expert_down:
        return EXL2__RUNNER_EXPERTS;
    default:
        return UINT32_MAX;
    }
}

/* All items of one phase on the CPU. */
EXL2__PRIVATE exl2_result exl2__runner_phase(exl2__runner *r, exl2__phase phase, const exl2__layer *layer,
                                             exl2__range range)
{
    range.begin = 0;
    range.end = exl2__cpu_backend.items(r->device, phase, layer, &range);
    return exl2__cpu_run(r->device, phase, layer, &range);
}

/* The residual becomes the embeddings of the tokens. */
EXL2__PRIVATE exl2_result exl2__runner_embed(exl2__runner *r)
{
    return exl2__runner_phase(r, EXL2__PHASE_embed, NULL, (exl2__range){ 0 });
}

#ifndef EXL2_NO_CUDA

/* Task: one row of an input. */
EXL2__PRIVATE void exl2__runner_copy_row(void *arg, uint32_t row)
{
    const exl2__runner *r = (const exl2__runner *)arg;
    uint32_t in = exl2__runner_input_size(r, r->copied_layer, r->copied);
    exl2__runner_input(r, r->copied_layer, r->copied, row, r->input + (size_t)row * in);
}

/* An input that the CPU has becomes the one on the GPU. */
EXL2__PRIVATE exl2_result exl2__runner_upload(exl2__runner *r, const exl2__layer *layer, uint32_t input)
{
    r->copied_layer = layer;
    r->copied = input;
    exl2__tasks_run(r->c, r->row_count, exl2__runner_copy_row, r);
    return exl2__gpu_rows(r->gpu, r->input, r->row_count, exl2__runner_input_size(r, layer, input));
}

/* Does a phase run on the GPU? */
EXL2__PRIVATE bool exl2__runner_phase_on_gpu(const exl2__runner *r, const exl2__layer *layer, exl2__phase phase,
                                             exl2__phase before)
{
    exl2__phase block = phase == EXL2__PHASE_settle ? before : phase;
    bool attention = block == EXL2__PHASE_qkv || block == EXL2__PHASE_attend || block == EXL2__PHASE_out;
    return exl2__runner_on_gpu(r, layer->index, attention ? EXL2__RUNNER_QKV : EXL2__RUNNER_UP);
}

/* Has the residual where a phase needs it. *on_gpu: the phase runs there. tap: the input of the phase is
   needed on the GPU, too, except an expert's. */
EXL2__PRIVATE exl2_result exl2__runner_prepare(exl2__runner *r, const exl2__layer *layer, exl2__phase phase,
                                               exl2__phase before, bool tap, bool *on_gpu)
{
    uint32_t input = exl2__runner_input_of(layer, phase);
    *on_gpu = r->gpu && exl2__runner_phase_on_gpu(r, layer, phase, before);
    if (!r->gpu) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__runner_move(r, *on_gpu));
    if (*on_gpu) {
        return input != UINT32_MAX ? exl2__gpu_pass_input(&r->pass, layer, phase) : EXL2_OK;
    }
    bool wanted = tap && input < EXL2__RUNNER_EXPERTS && exl2__runner_input_size(r, layer, input) % 32 == 0;
    return wanted ? exl2__runner_upload(r, layer, input) : EXL2_OK;
}

/* Host memory of a runner that uses a GPU, besides its weights and the CPU backend's. Needs no weights. */
EXL2__PRIVATE void exl2__runner_layout_copies(exl2__runner *r, exl2__arena *a)
{
    const exl2__cpu_device *d = exl2__runner_cpu(r);
    uint64_t in = exl2__max32(d->hidden_stride, exl2__max32(d->query_stride, d->inter_stride));
    uint64_t rows = exl2__min32(r->length, r->plan.logit_rows_max);
    const exl2__shape *s = &r->plan.shape; /* an embedding that is the head may have more rows than the vocabulary */
    uint64_t logits = rows * exl2__align_up(exl2__max32(s->vocab, s->embed_rows), EXL2__CPU_STRIP);
    r->input = (float *)exl2__arena_alloc(a, r->length * in * sizeof *r->input);
    r->output = (float *)exl2__arena_alloc(a, logits * sizeof *r->output);
    exl2__gpu_routed_layout(&r->routed, &s->experts, exl2__max32(EXL2__RUNNER_GPU_TOKENS, r->length), a);
}

/* From here on passes run on the GPU, where they can. The runner has its weights. index: 0, or 1 for another model on
   the same GPU. */
EXL2__PRIVATE exl2_result exl2__runner_use(exl2__runner *r, exl2__gpu *gpu, uint32_t index)
{
    exl2__arena dry = { 0 };
    exl2__runner_layout_copies(r, &dry);
    EXL2__TRY(exl2__arena_open(r->c, &r->copies, dry.used, EXL2_MEM_SCRATCH));
    exl2__runner_layout_copies(r, &r->copies);
    r->gpu = gpu;
    return exl2__gpu_pass_open(&r->pass, gpu, index, &r->plan, &r->routed, r->length);
}
#endif

/* The phases of a layer, on the residual of the pass begun, before the one that reads the input `until` first; until
   UINT32_MAX: all. tap: NULL, or called for each input. With a GPU the tapped inputs, and `until`, are on it then,
   except those of experts. */
EXL2__PRIVATE exl2_result exl2__runner_phases(exl2__runner *r, uint32_t index, uint32_t until, exl2__runner_fn tap,
                                              void *user)
{
    const exl2__layer *layer = &r->plan.layers[index];
    EXL2__TRY(exl2__runner_hold(r, index));
    for (uint32_t i = 0; i < layer->phase_count; i++) {
        exl2__phase phase = layer->phases[i];
        exl2__range range = { 0 };
        range.before = i ? layer->phases[i - 1] : EXL2__PHASE_COUNT;
        uint32_t input = exl2__runner_input_of(layer, phase);
        bool on_gpu = false, reads = input != UINT32_MAX, last = reads && input == until;
#ifndef EXL2_NO_CUDA
        EXL2__TRY(exl2__runner_prepare(r, layer, phase, range.before, tap || last, &on_gpu));
#endif
        if (last) {
            return EXL2_OK;
        }
        if (tap && reads) {
            EXL2__TRY(tap(user, input));
        }
#ifndef EXL2_NO_CUDA
        if (on_gpu) {
            EXL2__TRY(exl2__gpu_pass_phase(&r->pass, layer, phase, range.before));
        }
#endif
        if (!on_gpu) {
            EXL2__TRY(exl2__runner_phase(r, phase, layer, range));
        }
    }
    return EXL2_OK;
}

/* One layer; tap as above. */
EXL2__PRIVATE exl2_result exl2__runner_layer(exl2__runner *r, uint32_t index, exl2__runner_fn tap, void *user)
{
    return exl2__runner_phases(r, index, UINT32_MAX, tap, user);
}

/* The phases of a layer before the one that reads an input first; index UINT32_MAX: the head's. With a GPU the input is
   on it then, if it has moments. */
EXL2__PRIVATE exl2_result exl2__runner_until(exl2__runner *r, uint32_t index, uint32_t input)
{
    if (index != UINT32_MAX) {
        return exl2__runner_phases(r, index, input, NULL, NULL);
    }
#ifndef EXL2_NO_CUDA
    if (exl2__runner_on_gpu(r, index, input)) {
        EXL2__TRY(exl2__runner_move(r, true));
        return exl2__gpu_pass_input(&r->pass, NULL, EXL2__PHASE_head);
    }
#endif
    return EXL2_OK;
}

/* Before expert_down: the inputs [*count, *stride] of one of the experts that the pass uses, whose index is
   *expert. `number` is below the device's routed.expert_count. */
EXL2__PRIVATE const float *exl2__runner_expert(const exl2__runner *r, uint32_t number, uint32_t *expert,
                                               uint32_t *count, uint32_t *stride)
{
    const exl2__cpu_routed *routed = &exl2__runner_cpu(r)->routed;
    const exl2__cpu_expert *one = &routed->experts[number];
    *expert = one->index;
    *count = one->rows;
    *stride = routed->expert_stride;
    return routed->h + (size_t)routed->tiles[one->tile].slot * routed->expert_stride;
}

#endif
