/* cuda_graph.h: the units of a pass, enqueued kernel by kernel, or as captured graphs if the pass decodes up to 64
   rows.
   Unit 0 begins with page copies and embedding; the last units are columns of the head, for one group of logit rows
   after the other, and sampling is part of a group's last unit. Units of the head that are enqueued together are one
   product.
   takes: a model whose buffers are ready.
   gives: exl2__cuda_unit_layers, exl2__cuda_layer_units, exl2__cuda_queue_plain; exl2__cuda_graphs_open, _close,
          exl2__cuda_queue_graphs.
   owns:  the graphs, until close.

   Graphs exist for 1, 8, 16, 24, 32, 48 and 64 rows, as far as the model has so many sequences, and for 1 and 8 rows
   with adapters, if the model may have some. If it may have control vectors, there are as many again for passes with
   some. All are captured before the first pass. Those of whole passes, and of all
   their layers, exist for a few numbers of splits of attention each. From 24 rows on a whole pass is the graph of its
   layers and that of its head, so that there are fewer graphs. Where the host computes MLPs, that of the layers ends at
   the first crossing, and the units after it run one by one. Rows of a pass and their contexts lie in device memory:
   CTAs that a pass does not need leave at once. Graphs of single units,
   which time budgets need, exist only for the largest number of splits. */
#ifndef EXL2__CUDA_GRAPH_H
#define EXL2__CUDA_GRAPH_H

#include "cuda_host.h"

/* ---- units ---- */

/* Layers in a unit of the current pass, which has one for each layer if it is not captured. By GEMM a layer with 64
   rows needs about twice the time that it needs with one, and its units have fewer layers. */
static inline uint32_t exl2__cuda_unit_layers(const exl2__cuda_model *m)
{
    uint32_t more = m->pass.by_gemm ? m->pass.row_count : 0;
    return m->pass.captured ? exl2__max32(m->layers_per_unit * 64 / (64 + more), 1) : 1;
}

/* Number of units that hold layers, or parts of layers whose MLPs the host computes. */
static inline uint32_t exl2__cuda_layer_units(const exl2__cuda_model *m)
{
    uint32_t parts = m->plan->host_mlps ? m->plan->host_mlps + 1 : 0;
    return (uint32_t)exl2__div_up(exl2__cuda_host_plain(m), exl2__cuda_unit_layers(m)) + parts;
}

EXL2__PRIVATE exl2_result exl2__cuda_queue_layer(exl2__cuda_model *m, const exl2__layer *layer)
{
    m->pass.norm = 2 * layer->index % EXL2__CUDA_SUMS; /* two norms in each layer */
    m->pass.first_norm = exl2__cuda_begins_anew(m, layer);
    for (uint32_t i = 0; i < layer->phase_count; i++) {
        exl2__range range = { 0, 1, 0, 0, i ? layer->phases[i - 1] : EXL2__PHASE_COUNT };
        EXL2__TRY(exl2__cuda_streamed_take(m, layer, layer->phases[i]));
        EXL2__TRY(exl2__cuda_do(m, layer->phases[i], layer, &range));
        EXL2__TRY(exl2__cuda_streamed_done(m, layer, layer->phases[i]));
    }
    return EXL2_OK;
}

/* Unit `part` of those after the whole layers: from a crossing to the next one (cuda_host.h). */
EXL2__PRIVATE exl2_result exl2__cuda_queue_part(exl2__cuda_model *m, uint32_t part)
{
    const exl2__layer *first = m->plan->layers + exl2__plan_end(m->plan) - m->plan->host_mlps;
    bool parallel = m->plan->shape.parallel;
    if (part > 0) {
        EXL2__TRY(parallel ? exl2__cuda_queue_layer(m, first + part - 1) : exl2__cuda_host_back(m, first + part - 1));
    }
    return part < m->plan->host_mlps && !parallel ? exl2__cuda_queue_layer(m, first + part) : EXL2_OK;
}

/* Units [begin, end) of the head for the group, and sampling after the last one; nothing if all rows are HIDDEN. */
EXL2__PRIVATE exl2_result exl2__cuda_queue_logits(exl2__cuda_model *m, uint32_t group, uint32_t begin, uint32_t end)
{
    uint32_t size = m->plan->logit_rows_max;
    uint32_t rows = m->pass.captured ? m->pass.row_count : m->step->logit_count;
    exl2__range range = { begin, end, group * size, exl2__min32(size, rows - group * size), EXL2__PHASE_COUNT };
    if (!m->pass.captured && exl2__step_has_hidden(m->step, range.logit0, range.logit_count, true)) {
        return EXL2_OK;
    }
    m->pass.norm = 2 * m->plan->shape.layers % EXL2__CUDA_SUMS;
    m->pass.first_norm = m->plan->host_mlps > 0;
    EXL2__TRY(exl2__cuda_do(m, EXL2__PHASE_head, NULL, &range));
    return end == m->head_units ? exl2__cuda_do(m, EXL2__PHASE_sample, NULL, &range) : EXL2_OK;
}

/* Enqueues units [begin, end), without page copies. */
EXL2__PRIVATE exl2_result exl2__cuda_queue_plain(exl2__cuda_model *m, uint32_t begin, uint32_t end)
{
    uint32_t each = exl2__cuda_unit_layers(m), units = exl2__cuda_layer_units(m), plain = exl2__cuda_host_plain(m);
    uint32_t whole = (uint32_t)exl2__div_up(plain, each);
    const exl2__layer *layers = m->plan->layers + exl2__plan_first(m->plan);
    for (uint32_t unit = begin; unit < end; unit++) {
        uint32_t last = unit < whole ? exl2__min32((unit + 1) * each, plain) : 0;
        if (unit == 0) {
            m->pass.norm = 2 * exl2__plan_first(m->plan) % EXL2__CUDA_SUMS;
            EXL2__TRY(exl2__cuda_streamed_begin(m));
            EXL2__TRY(exl2__cuda_meet_all(m));
            EXL2__TRY(exl2__cuda_do(m, EXL2__PHASE_embed, NULL, NULL));
        }
        for (uint32_t layer = unit * each; layer < last; layer++) {
            EXL2__TRY(exl2__cuda_queue_layer(m, &layers[layer]));
        }
        if (unit >= whole && unit < units) {
            EXL2__TRY(exl2__cuda_queue_part(m, unit - whole));
        }
        if (unit >= units) {
            uint32_t group = (unit - units) / m->head_units, first = (unit - units) % m->head_units;
            uint32_t count = exl2__min32(m->head_units - first, end - unit);
            EXL2__TRY(exl2__cuda_queue_logits(m, group, first, first + count));
            unit += count - 1;
        }
    }
    return EXL2_OK;
}

/* ---- capture ---- */

static const uint32_t exl2__cuda_split_classes[EXL2__CUDA_SPLIT_CLASSES] = { 1, 4, 8, EXL2K_SPLITS_MAX };

/* The smallest class with at least `splits` splits. */
static inline uint32_t exl2__cuda_split_class(uint32_t splits)
{
    uint32_t i = 0;
    while (exl2__cuda_split_classes[i] < splits) {
        i++;
    }
    return i;
}

/* Captures units [begin, end) of the pass in m->pass as a graph. */
EXL2__PRIVATE exl2_result exl2__cuda_capture(exl2__cuda_model *m, uint32_t begin, uint32_t end,
                                             exl2__cuda_graph_exec **out)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    exl2__cuda_stream *stream = m->gpu->stream;
    exl2__cuda_graph *graph = NULL;
    EXL2__TRY(exl2__cuda_device_check(m->gpu, driver->capture_begin(stream, EXL2__CUDA_CAPTURE_RELAXED),
                                      "beginning a capture"));
    m->pass.chained = false; /* the first kernel of a graph waits for all preceding work */
    exl2_result r = exl2__cuda_queue_plain(m, begin, end);
    exl2_result ended = exl2__cuda_device_check(m->gpu, driver->capture_end(stream, &graph), "ending a capture");
    r = r < 0 ? r : ended;
    if (r >= 0) {
        r = exl2__cuda_device_check(m->gpu, driver->graph_make(out, graph, 0), "instantiating a graph");
    }
    if (graph) {
        driver->graph_free(graph);
    }
    return r;
}

EXL2__PRIVATE void exl2__cuda_graph_free(exl2__cuda_model *m, exl2__cuda_graph_exec *graph)
{
    if (graph) {
        m->gpu->driver.graph_exec_free(graph);
    }
}

EXL2__PRIVATE void exl2__cuda_graphs_free(exl2__cuda_model *m, exl2__cuda_graphs *g)
{
    for (uint32_t rows = 0; rows < EXL2__CUDA_ROW_CLASSES; rows++) {
        for (uint32_t i = 0; i < EXL2__CUDA_SPLIT_CLASSES; i++) {
            exl2__cuda_graph_free(m, g->whole[rows][i]);
            exl2__cuda_graph_free(m, g->layers[rows][i]);
        }
        exl2__cuda_graph_free(m, g->head[rows]);
        for (uint32_t i = 0; i < g->units[rows] && g->unit[rows]; i++) {
            exl2__cuda_graph_free(m, g->unit[rows][i]);
        }
        exl2__free(m->c, g->unit[rows], g->units[rows] * sizeof *g->unit[rows], EXL2_MEM_GENERAL);
    }
    *g = (exl2__cuda_graphs){ 0 };
}

EXL2__PRIVATE void exl2__cuda_graphs_close(exl2__cuda_model *m)
{
    for (uint32_t i = 0; i < EXL2__CUDA_GRAPH_KINDS; i++) {
        exl2__cuda_graphs_free(m, &m->graphs[i]);
    }
}

/* Captures all graphs of a class of passes. */
EXL2__PRIVATE exl2_result exl2__cuda_graphs_of(exl2__cuda_model *m, uint32_t rows, uint32_t kind)
{
    exl2__cuda_graphs *g = &m->graphs[kind];
    void *memory;
    uint32_t most = exl2__cuda_split_class(exl2__cuda_splits(m->plan->context_max));
    m->pass = exl2__cuda_pass_captured(m, exl2__cuda_class_rows(m->plan, rows), kind);
    uint32_t layers = exl2__cuda_layer_units(m), units = layers + m->head_units;
    bool in_one = !m->pass.by_gemm && m->plan->host_mlps == 0;
    EXL2__TRY(exl2__alloc(m->c, units * sizeof *g->unit[rows], 16, EXL2_MEM_GENERAL, &memory));
    memset(memory, 0, units * sizeof *g->unit[rows]);
    g->unit[rows] = (exl2__cuda_graph_exec **)memory;
    g->units[rows] = units;
    for (uint32_t i = 0; i <= most && m->whole_graphs; i++) {
        m->pass.splits = exl2__cuda_split_classes[i];
        if (in_one) {
            EXL2__TRY(exl2__cuda_capture(m, 0, units, &g->whole[rows][i]));
        }
        if (!in_one || m->head_units) {
            EXL2__TRY(exl2__cuda_capture(m, 0, exl2__cuda_host_first(m, layers), &g->layers[rows][i]));
        }
    }
    m->pass.splits = exl2__cuda_split_classes[most];
    for (uint32_t i = 0; i < units; i++) {
        EXL2__TRY(exl2__cuda_capture(m, i, i + 1, &g->unit[rows][i]));
    }
    return m->head_units > 1 ? exl2__cuda_capture(m, layers, units, &g->head[rows]) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_graphs_open(exl2__cuda_model *m)
{
    for (uint32_t kind = 0; kind < (m->plan->steer_max ? 2 : 1) * EXL2__CUDA_GRAPH_STEERED; kind++) {
        uint32_t adapted = kind % EXL2__CUDA_GRAPH_STEERED;
        uint32_t classes = adapted == 0 ? exl2__cuda_row_class(exl2__cuda_graph_rows(m->plan)) + 1 :
                           adapted == EXL2__CUDA_GRAPH_NARROW && m->plan->shape.exl3 ? 0 :
                           exl2__cuda_lora_classes(m->plan);
        for (uint32_t rows = 0; rows < classes; rows++) {
            EXL2__TRY(exl2__cuda_graphs_of(m, rows, kind));
        }
    }
    return EXL2_OK;
}

/* Enqueues units [begin, end) of the current captured pass as graphs: by one of all that can run together, then one by
   one. */
EXL2__PRIVATE exl2_result exl2__cuda_queue_graphs(exl2__cuda_model *m, uint32_t begin, uint32_t end)
{
    const exl2__cuda_graphs *g = &m->graphs[exl2__cuda_graph_kind(&m->pass)];
    uint32_t rows = exl2__cuda_row_class(m->pass.row_count);
    uint32_t splits = exl2__cuda_split_class(exl2__cuda_splits(m->pass.longest_context));
    uint32_t units = g->units[rows], layers = units - m->head_units, first = exl2__cuda_host_first(m, layers);
    for (uint32_t unit = begin, next; unit < end; unit = next) {
        exl2__cuda_graph_exec *graph = g->unit[rows][unit];
        next = unit + 1;
        if (unit == 0 && end == units && g->whole[rows][splits]) {
            graph = g->whole[rows][splits];
            next = units;
        } else if (unit == 0 && end >= first && g->layers[rows][splits] && (end == first || end == units)) {
            graph = g->layers[rows][splits];
            next = first;
        } else if (unit == layers && end == units && g->head[rows]) {
            graph = g->head[rows];
            next = units;
        }
        EXL2__TRY(exl2__cuda_device_check(m->gpu, m->gpu->driver.graph_launch(graph, m->gpu->stream),
                                          "queueing units of a pass"));
    }
    return EXL2_OK;
}

#endif
