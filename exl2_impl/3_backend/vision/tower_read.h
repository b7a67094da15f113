/* tower_read.h: reads the weights of a tower in slices: first the headers of all tensors, then their data.
   takes: a tower's config, a model's folder, untrusted.
   gives: exl2__tower_reader, exl2__tower_read_begin, exl2__tower_read_headers, exl2__tower_read_weights,
          exl2__tower_read_end.
   owns:  the table of tensors and a staging buffer, from exl2__tower_read_begin to exl2__tower_read_end.

   The weights go to the CPU's tower, or to a backend that has towers. Matrices of EXL3 become F16 as they are read.

   Every tensor whose name begins as that of a tower or projector is used, or on the list of its row. */
#ifndef EXL2__TOWER_READ_H
#define EXL2__TOWER_READ_H

#include "../../1_load/dequantize_exl3.h"
#include "../../1_load/matrix_tables.h"
#include "tower.h"

#ifndef EXL2_NO_VISION

#define EXL2__TOWER_STAGING ((uint64_t)256 << 10)

/* A tensor, or a matrix and its bias. */
typedef struct exl2__tower_part {
    char key[EXL2__TENSORS_NAME_MAX]; /* "tower.blocks.3.attn.qkv" */
    bool vector;                 /* [out], a norm's weight, and its bias if `biased` */
    bool plain;                  /* the name ends without ".weight" */
    bool transposed;             /* [in, out] */
    bool biased;                 /* the bias must exist; of a matrix it may */
    bool plus_one;               /* the vector is 1 + what is stored */
    bool fused;                  /* q, k and v in one matrix, of which ExLlamaV3 makes three */
    uint32_t in, out;
    exl2__cpu_matrix **matrix;
    float **values, **bias;
} exl2__tower_part;

typedef struct exl2__tower_reader {
    exl2__ctx *c;
    exl2__tower *t;
    exl2__tensors tensors;
    exl2__tensors_reader table;
    bool listed;                 /* the table is complete */
    uint32_t part, leftover;     /* the next part; the next entry to check */
    uint32_t row, rows;          /* of the matrix: rows [row, row + rows) are in the staging buffer */
    bool made;                   /* the part's matrix is made */
    exl2__matrix_desc trellis;   /* describes the part, or its piece, if it is a matrix of EXL3 */
    exl2__matrix_tables tables;  /* of `trellis` (signs, bias, scratch), in the staging buffer behind decoded rows */
    const exl2__backend_towers *towers; /* where weights go; NULL: to the tower of the CPU */
    exl2__device *device;        /* of `towers` */
    void *staging;
    uint64_t staging_bytes;
} exl2__tower_reader;

static inline exl2__tower_part exl2__tower_part_norm(const exl2__tower *t, exl2__tower_norm *n, bool rms,
                                                     uint32_t count)
{
    (void)t;
    return (exl2__tower_part){ .vector = true, .biased = !rms, .out = count, .values = &n->weight, .bias = &n->bias };
}

static inline exl2__tower_part exl2__tower_part_matrix(exl2__cpu_matrix **m, uint32_t in, uint32_t out)
{
    return (exl2__tower_part){ .in = in, .out = out, .matrix = m };
}

/* The name, and *out but for its key, of a part before the layers; NULL: there is none. */
EXL2__PRIVATE const char *exl2__tower_part_head(exl2__tower *t, uint32_t i, exl2__tower_part *out)
{
    const exl2__vision_config *v = &t->config;
    const exl2__vision_names *names = &v->row->names;
    switch (i) {
    case 0:
        *out = exl2__tower_part_matrix(&t->patch, exl2__tower_patch_inputs(v), v->width);
        return names->patch;
    case 1:
        *out = (exl2__tower_part){ .vector = true, .plain = true, .out = v->width, .values = &t->class_row };
        return names->class_row;
    case 2:
        *out = exl2__tower_part_matrix(&t->positions, v->width, v->side * v->side + v->class_row);
        return names->positions;
    case 3:
        *out = exl2__tower_part_norm(t, &t->pre_norm, v->row->rms, v->width);
        return names->pre_norm;
    default:
        *out = exl2__tower_part_norm(t, &t->post_norm, v->row->rms, v->width);
        return v->post_norm ? names->post_norm : NULL;
    }
}

EXL2__PRIVATE const char *exl2__tower_part_layer(exl2__tower *t, exl2__tower_layer *layer, uint32_t i,
                                                 exl2__tower_part *out)
{
    const exl2__vision_config *v = &t->config;
    const exl2__vision_names *n = &v->row->names;
    const char *const keys[] = { n->norm1, n->norm2, n->qkv ? n->qkv : n->q, n->k, n->v, n->out, n->gate, n->up,
                                 n->down };
    exl2__cpu_matrix **const places[] = { NULL, NULL, &layer->qkv[0], &layer->qkv[1], &layer->qkv[2], &layer->out,
                                          &layer->gate, &layer->up, &layer->down };
    uint32_t outputs = i == 2 && n->qkv ? 3 * v->width : i == 6 || i == 7 ? v->inter : v->width;
    *out = i < 2 ? exl2__tower_part_norm(t, i ? &layer->norm2 : &layer->norm1, v->row->rms, v->width)
                 : exl2__tower_part_matrix(places[i], i == 8 ? v->inter : v->width, outputs);
    out->fused = i == 2 && n->qkv;
    return keys[i];
}

EXL2__PRIVATE const char *exl2__tower_part_projector(exl2__tower *t, uint32_t level, uint32_t i, exl2__tower_part *out)
{
    const exl2__vision_config *v = &t->config;
    const exl2__vision_names *n = &v->row->names;
    exl2__tower_projector *p = &t->projector[level];
    uint32_t merged = exl2__tower_merged(v), middle = exl2__tower_middle(v);
    switch (i) {
    case 0:
        *out = exl2__tower_part_norm(t, &p->norm, v->row->norm_rms, level ? merged : v->width);
        out->plus_one = v->row->norm_plus_one;
        return n->norm;
    case 1:
        *out = exl2__tower_part_matrix(&p->merge, merged, v->width);
        return n->merge;
    case 2:
        *out = exl2__tower_part_matrix(&p->linear1, n->merge ? v->width : merged, n->linear2 ? middle : v->hidden);
        out->plain = out->transposed = v->row->transposed;
        return n->linear1;
    default:
        *out = exl2__tower_part_matrix(&p->linear2, middle, v->hidden);
        return n->linear2;
    }
}

/* The part number `i`. layer: where the parts of a layer are; NULL while there is no memory. false: no such part. */
EXL2__PRIVATE bool exl2__tower_part_find(exl2__tower *t, uint32_t i, exl2__tower_part *out)
{
    const exl2__vision_names *names = &t->config.row->names;
    char before[64] = "tower.";
    exl2__tower_layer none;
    const char *name;
    if (i < EXL2__TOWER_HEAD_PARTS) {
        name = exl2__tower_part_head(t, i, out);
    } else if ((i -= EXL2__TOWER_HEAD_PARTS) < t->config.layers * EXL2__TOWER_LAYER_PARTS) {
        uint32_t layer = i / EXL2__TOWER_LAYER_PARTS;
        name = exl2__tower_part_layer(t, t->layers ? &t->layers[layer] : &none, i % EXL2__TOWER_LAYER_PARTS, out);
        exl2__format(before, sizeof before, "tower.%s.%u.", names->layers, layer);
    } else {
        i -= t->config.layers * EXL2__TOWER_LAYER_PARTS;
        uint32_t level = i / EXL2__TOWER_PROJECTOR_PARTS;
        name = exl2__tower_part_projector(t, level, i % EXL2__TOWER_PROJECTOR_PARTS, out);
        exl2__format(before, sizeof before, "projector.");
        if (level) {
            exl2__format(before, sizeof before, "projector.%s.%u.", names->deep, level - 1);
        }
    }
    if (name) {
        exl2__format(out->key, sizeof out->key, "%s%s", before, name);
    }
    return name != NULL;
}

/* The tensor of the part's weight, or NULL. */
static inline const exl2__tensor *exl2__tower_part_tensor(const exl2__tower_reader *r, const exl2__tower_part *p)
{
    return p->plain ? exl2__tensors_find(&r->tensors, p->key) : exl2__tensors_find_part(&r->tensors, p->key, "weight");
}

static inline const exl2__tensor *exl2__tower_part_bias(const exl2__tower_reader *r, const exl2__tower_part *p)
{
    return p->plain ? NULL : exl2__tensors_find_part(&r->tensors, p->key, "bias");
}

/* Piece i of a part that consists of `pieces` matrices of EXL3: "attn.q_proj" of "attn.qkv". */
EXL2__PRIVATE exl2__tower_part exl2__tower_part_piece(const exl2__tower_part *p, uint32_t i, uint32_t pieces)
{
    static const char *const names[] = { "q_proj", "k_proj", "v_proj" };
    exl2__tower_part piece = *p;
    if (pieces > 1) {
        size_t stem = strlen(p->key) - strlen("qkv");
        exl2__format(piece.key + stem, sizeof piece.key - stem, "%s", names[i]);
        piece.out = p->out / pieces;
        piece.fused = false;
    }
    return piece;
}

/* The number of matrices of EXL3 of which the part consists; 0: it is not EXL3. A plain weight beside them is not
   used. */
EXL2__PRIVATE uint32_t exl2__tower_part_pieces(const exl2__tower_reader *r, const exl2__tower_part *p)
{
    uint32_t pieces = 0;
    if (!EXL2__EXL3 || p->vector || p->plain) {
        return 0;
    }
    if (exl2__exl3_exists(&r->tensors, p->key)) {
        return 1;
    }
    for (; p->fused && pieces < 3; pieces++) {
        exl2__tower_part piece = exl2__tower_part_piece(p, pieces, 3);
        if (!exl2__exl3_exists(&r->tensors, piece.key)) {
            return 0;
        }
    }
    return pieces;
}

EXL2__PRIVATE bool exl2__tower_part_has_bias(const exl2__tower_reader *r, const exl2__tower_part *p)
{
    uint32_t pieces = exl2__tower_part_pieces(r, p);
    bool has = pieces == 0 && exl2__tower_part_bias(r, p);
    for (uint32_t i = 0; i < pieces; i++) {
        exl2__tower_part piece = exl2__tower_part_piece(p, i, pieces);
        has = exl2__tower_part_bias(r, &piece) || has;
    }
    return has;
}

EXL2__PRIVATE exl2_result exl2__tower_part_missing(const exl2__tower_reader *r, const exl2__tower_part *p)
{
    bool codes = exl2__tensors_find_part(&r->tensors, p->key, "q_weight")
              || exl2__tensors_find_part(&r->tensors, p->key, "qweight")
              || exl2__tensors_find_part(&r->tensors, p->key, "trellis");
    return codes ? exl2__fail(r->c, EXL2_ERR_UNSUPPORTED, "the matrix '%s' of the tower for pictures is quantized, "
                              "which is not supported", p->key)
                 : exl2__fail(r->c, EXL2_ERR_FORMAT, "'%s%s' of the tower for pictures is missing in all .safetensors "
                              "files", p->key, p->plain ? "" : ".weight");
}

/* Checks the type and the shape. A matrix of patches has more than two dimensions: only the first one, and the number
   of elements, count. */
EXL2__PRIVATE exl2_result exl2__tower_part_check(const exl2__tower_reader *r, const exl2__tensor *e, uint64_t first,
                                                 uint64_t rest)
{
    const char *file = r->tensors.files.items[e->file].name;
    if (!exl2__tensor_is_float(e)) {
        return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED, "%s: '%s' of the tower for pictures has the type %s; only F16, "
                          "BF16 and F32 are supported", file, e->name, exl2__tensor_type_name(e->type));
    }
    if (e->rank == 0 || e->dims[0] != first
        || e->bytes != first * rest * exl2__tensor_type_bytes(e->type)) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, "%s: '%s' has the wrong shape: %llu rows and %llu bytes, expected "
                          "%llu and %llu", file, e->name, (unsigned long long)e->dims[0], (unsigned long long)e->bytes,
                          (unsigned long long)first,
                          (unsigned long long)(first * rest * exl2__tensor_type_bytes(e->type)));
    }
    return EXL2_OK;
}

/* Has the plain matrix its padded size, as ExLlamaV3 leaves matrices out of quantization? It is cut as it is read. */
static inline bool exl2__tower_part_is_padded(const exl2__tower_reader *r, const exl2__tower_part *p,
                                              const exl2__tensor *e)
{
    return !p->vector && !p->plain && exl2__matrix_is_rounded(e, p->in, p->out) && exl2__matrix_any_exl3(&r->tensors);
}

/* Checks a plain matrix that is padded, and its bias, which may be, too. */
EXL2__PRIVATE exl2_result exl2__tower_part_check_padded(const exl2__tower_reader *r, const exl2__tower_part *p,
                                                        const exl2__tensor *e, const exl2__tensor *bias)
{
    EXL2__TRY(exl2__tower_part_check(r, e, e->dims[0], e->dims[1]));
    bool longer = bias && bias->rank == 1 && bias->dims[0] == e->dims[0];
    return bias ? exl2__tower_part_check(r, bias, longer ? e->dims[0] : p->out, 1) : EXL2_OK;
}

EXL2__PRIVATE exl2__matrix_desc exl2__tower_part_desc(const exl2__tower_reader *r, const exl2__tower_part *p)
{
    const exl2__tensor *e = exl2__tower_part_tensor(r, p);
    exl2__matrix_desc d = { 0 };
    d.name = p->key;
    d.in = p->in;
    d.out = p->out;
    d.out_stored = exl2__tower_pad(p->out);
    d.kind = EXL2__MATRIX_DENSE;
    if (!exl2__tower_part_pieces(r, p)) {
        d.dtype = e->type == EXL2__TENSOR_F32 ? EXL2__F32 : e->type == EXL2__TENSOR_BF16 ? EXL2__BF16 : EXL2__F16;
    }
    d.has_bias = exl2__tower_part_has_bias(r, p);
    return d;
}

#if EXL2__EXL3

/* Fills in r->trellis, whose name points into *p. */
EXL2__PRIVATE exl2_result exl2__tower_part_find_exl3(exl2__tower_reader *r, const exl2__tower_part *p)
{
    r->trellis = (exl2__matrix_desc){ .name = p->key, .in = p->in, .out = p->out };
    EXL2__TRY(exl2__exl3_find(r->c, &r->tensors, &r->trellis));
    exl2__matrix_dequantize(&r->trellis);
    return EXL2_OK;
}

/* Bytes of the rows that are decoded at once, as f32. */
static inline uint64_t exl2__tower_part_block_bytes(const exl2__tower_part *p)
{
    return exl2__align_up((uint64_t)EXL2__EXL3_BLOCK * p->in * sizeof(float), EXL2__ARENA_ALIGN);
}

/* Reads the tables of a piece, which its rows need. */
EXL2__PRIVATE exl2_result exl2__tower_part_open_exl3(exl2__tower_reader *r, const exl2__tower_part *piece)
{
    EXL2__TRY(exl2__tower_part_find_exl3(r, piece));
    r->tables = (exl2__matrix_tables){ .memory = { .base = (uint8_t *)r->staging + exl2__tower_part_block_bytes(piece),
                                                   .size = exl2__matrix_tables_bytes(&r->trellis) } };
    return exl2__matrix_tables_begin(r->c, &r->tensors, 1.0f, &r->trellis, &r->tables);
}

/* Decodes rows [row, row + rows) of a piece, which lie in one block of 128, to F16. out: room for them in f32. */
EXL2__PRIVATE exl2_result exl2__tower_part_decode(exl2__tower_reader *r, const exl2__tower_part *piece, uint32_t row,
                                                  uint32_t rows, uint8_t *out)
{
    float *values = (float *)(void *)out;
    r->trellis.name = piece->key;
    EXL2__TRY(exl2__dequantize_exl3_rows(r->c, &r->tensors, &r->trellis, row, rows, values));
    for (size_t i = 0; i < (size_t)rows * piece->in; i++) { /* in place */
        uint16_t half = exl2__f32_to_f16(values[i]);
        memcpy(out + i * sizeof half, &half, sizeof half);
    }
    return EXL2_OK;
}

/* bias [out] of a part, whose pieces may have none. */
EXL2__PRIVATE exl2_result exl2__tower_part_exl3_bias(exl2__tower_reader *r, const exl2__tower_part *p, float *bias)
{
    uint32_t pieces = exl2__tower_part_pieces(r, p);
    memset(bias, 0, p->out * sizeof *bias);
    for (uint32_t i = 0; i < pieces; i++) {
        exl2__tower_part piece = exl2__tower_part_piece(p, i, pieces);
        EXL2__TRY(exl2__tower_part_find_exl3(r, &piece));
        if (r->trellis.has_bias) {
            EXL2__TRY(exl2__exl3_read_bias(r->c, &r->tensors, &r->trellis, bias + (size_t)i * piece.out));
        }
    }
    return EXL2_OK;
}

/* The next rows, from r->row on, as exl2__tower_part_read_rows. */
EXL2__PRIVATE exl2_result exl2__tower_part_exl3_rows(exl2__tower_reader *r, const exl2__tower_part *p, uint8_t *out,
                                                     exl2__work *work)
{
    uint32_t pieces = exl2__tower_part_pieces(r, p), each = p->out / pieces, row = r->row % each;
    exl2__tower_part piece = exl2__tower_part_piece(p, r->row / each, pieces);
    if (!exl2__work_spend(work, EXL2__EXL3_BLOCK * exl2__align_up(p->in, EXL2__EXL3_BLOCK) * 12)) {
        return EXL2_PENDING;
    }
    EXL2__TRY(row == 0 ? exl2__tower_part_open_exl3(r, &piece) : EXL2_OK);
    r->rows = exl2__min32(EXL2__EXL3_BLOCK, each - row);
    return exl2__tower_part_decode(r, &piece, row, r->rows, out);
}

#endif

/* The same as exl2__tower_part_measure, for a part of EXL3. */
EXL2__PRIVATE exl2_result exl2__tower_part_measure_exl3(exl2__tower_reader *r, const exl2__tower_part *p,
                                                        uint32_t pieces, exl2__arena *dry)
{
#if EXL2__EXL3
    const exl2__tensor *copy = pieces > 1 ? exl2__tower_part_tensor(r, p) : NULL;
    for (uint32_t i = 0; i < pieces; i++) {
        exl2__tower_part piece = exl2__tower_part_piece(p, i, pieces);
        EXL2__TRY(exl2__tower_part_find_exl3(r, &piece));
        uint64_t bytes = exl2__tower_part_block_bytes(p) + exl2__matrix_tables_bytes(&r->trellis);
        r->staging_bytes = exl2__max64(r->staging_bytes, exl2__max64(bytes, p->out * sizeof(float)));
    }
    if (copy) { /* the fused matrix, which is copied from the source; its bias, too */
        exl2__tower_part_bias(r, p);
        exl2__log(r->c, EXL2_LOG_WARN, EXL2_LOG_ID_COPY_IGNORED, "%s: %s is not used, as there is %s",
                  exl2__exl3_file(&r->tensors, copy), copy->name, r->trellis.data->name);
    }
    exl2__matrix_desc d = exl2__tower_part_desc(r, p);
    exl2__arena_alloc(dry, r->towers ? 0 : exl2__cpu_matrix_bytes(&d, 1));
#else
    (void)r;
    (void)p;
    (void)pieces;
    (void)dry;
#endif
    return EXL2_OK;
}

/* Checks the headers of a part, and adds its bytes to `dry`. */
EXL2__PRIVATE exl2_result exl2__tower_part_measure(exl2__tower_reader *r, const exl2__tower_part *p, exl2__arena *dry)
{
    uint32_t pieces = exl2__tower_part_pieces(r, p);
    if (pieces) {
        return exl2__tower_part_measure_exl3(r, p, pieces, dry);
    }
    const exl2__tensor *e = exl2__tower_part_tensor(r, p), *bias = exl2__tower_part_bias(r, p);
    if (!e) {
        return exl2__tower_part_missing(r, p);
    }
    if (p->biased && !bias) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, "'%s.bias' of the tower for pictures is missing in all .safetensors "
                          "files", p->key);
    }
    if (exl2__tower_part_is_padded(r, p, e)) {
        EXL2__TRY(exl2__tower_part_check_padded(r, p, e, bias));
    } else {
        EXL2__TRY(exl2__tower_part_check(r, e, p->transposed ? p->in : p->out, p->vector ? 1 : p->transposed ? p->out
                                                                                                         : p->in));
        EXL2__TRY(bias && (!p->vector || p->biased) ? exl2__tower_part_check(r, bias, p->out, 1) : EXL2_OK);
    }
    if (p->vector) {
        exl2__arena_alloc(dry, (uint64_t)p->out * sizeof(float));
        exl2__arena_alloc(dry, p->biased ? (uint64_t)p->out * sizeof(float) : 0);
        r->staging_bytes = exl2__max64(r->staging_bytes, p->out * sizeof(float));
        return EXL2_OK;
    }
    exl2__matrix_desc d = exl2__tower_part_desc(r, p);
    exl2__arena_alloc(dry, r->towers ? 0 : exl2__cpu_matrix_bytes(&d, 1));
    uint64_t row = (uint64_t)exl2__max32(p->in, p->out) * sizeof(float);
    r->staging_bytes = exl2__max64(r->staging_bytes, exl2__max64(row, EXL2__TOWER_STAGING) + p->out * sizeof(float));
    return EXL2_OK;
}

/* towers NULL: the weights go to the CPU's tower, and `device` is not used. */
static inline void exl2__tower_read_begin(exl2__tower_reader *r, exl2__ctx *c, exl2__tower *t,
                                          const exl2__vision_config *v, const char *path,
                                          const exl2__backend_towers *towers, exl2__device *device)
{
    memset(r, 0, sizeof *r);
    memset(t, 0, sizeof *t);
    r->c = t->c = c;
    r->t = t;
    r->towers = towers;
    r->device = device;
    t->config = *v;
    t->weight_bytes = exl2__align_up(v->layers * sizeof(exl2__tower_layer), EXL2__ARENA_ALIGN);
    exl2__tensors_read_begin(&r->table, c, path, v->row->renames, &r->tensors);
}

/* A tensor that nothing has asked for means a computation that this engine does not do. */
EXL2__PRIVATE exl2_result exl2__tower_read_leftover(exl2__tower_reader *r, exl2__work *work)
{
    const exl2__vision_row *row = r->t->config.row;
    for (; r->leftover < r->tensors.count; r->leftover++) {
        const exl2__tensor *e = &r->tensors.entries[r->leftover];
        bool known = e->used || (strncmp(e->name, "tower.", 6) != 0 && strncmp(e->name, "projector.", 10) != 0);
        size_t layers = strlen(row->names.layers) + 7;
        char layer[64];
        if (!exl2__work_spend(work, 500)) {
            return EXL2_PENDING;
        }
        for (uint32_t i = 0; !known && row->ignored[i]; i++) {
            known = strncmp(e->name, row->ignored[i], strlen(row->ignored[i])) == 0;
        }
        exl2__format(layer, sizeof layer, "tower.%s.", row->names.layers);
        if (!known && row->pick_layer && strncmp(e->name, layer, layers) == 0) { /* layers after the one that is used */
            uint64_t number = 0;
            for (const char *at = e->name + layers; *at >= '0' && *at <= '9' && number < 1000; at++) {
                number = number * 10 + (uint64_t)(*at - '0');
            }
            known = number >= r->t->config.layers;
        }
        if (!known) {
            return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED, "%s: the tensor '%s' has no use in the tower of %s, so the "
                              "model computes something else", r->tensors.files.items[e->file].name, e->name,
                              row->family);
        }
    }
    return EXL2_OK;
}

/* OK: t->weight_bytes is complete. PENDING: the slice of work is used up; call it again. */
static inline exl2_result exl2__tower_read_headers(exl2__tower_reader *r, exl2__work *work)
{
    if (!r->listed) {
        EXL2__TRY_DONE(exl2__tensors_read_slice(&r->table, work));
        exl2__tensors_read_end(&r->table);
        r->listed = true;
    }
    for (uint32_t parts = exl2__tower_parts(&r->t->config); r->part < parts; r->part++) {
        exl2__tower_part p;
        exl2__arena dry = { 0 };
        if (!exl2__work_spend(work, 5000)) {
            return EXL2_PENDING;
        }
        if (exl2__tower_part_find(r->t, r->part, &p)) {
            EXL2__TRY(exl2__tower_part_measure(r, &p, &dry));
            r->t->weight_bytes += dry.used;
        }
    }
    EXL2__TRY_DONE(exl2__tower_read_leftover(r, work));
    if (r->towers) {
        r->t->weight_bytes = r->towers->weight_bytes(&r->t->config);
    }
    r->part = 0;
    return EXL2_OK;
}

/* Reads a norm, or the class row. */
EXL2__PRIVATE exl2_result exl2__tower_part_vector(exl2__tower_reader *r, const exl2__tower_part *p, exl2__arena *a)
{
    bool given = r->towers != NULL; /* to a backend, which copies the values */
    float *values = given ? (float *)r->staging : (float *)exl2__arena_alloc(a, (uint64_t)p->out * sizeof(float));
    float *bias = given ? values
                        : (float *)exl2__arena_alloc(a, p->biased ? (uint64_t)p->out * sizeof(float) : 0);
    EXL2__TRY(exl2__tensor_floats_range(r->c, &r->tensors, exl2__tower_part_tensor(r, p), 0, p->out, values));
    for (uint32_t i = 0; p->plus_one && i < p->out; i++) {
        values[i] += 1;
    }
    if (given) {
        EXL2__TRY(r->towers->values(r->device, r->part, false, values, p->out));
    } else {
        *p->values = values;
    }
    if (p->biased) {
        EXL2__TRY(exl2__tensor_floats_range(r->c, &r->tensors, exl2__tower_part_bias(r, p), 0, p->out, bias));
        if (given) {
            return r->towers->values(r->device, r->part, true, bias, p->out);
        }
        *p->bias = bias;
    }
    return EXL2_OK;
}

/* Input `row` of a transposed matrix: one value for each output. */
EXL2__PRIVATE void exl2__tower_part_feed_input(exl2__cpu_part *part, uint32_t row, const uint8_t *data)
{
    size_t bytes = exl2__cpu_matrix_dense_bytes(part->source);
    for (uint32_t s = 0; s < part->strips; s++) {
        uint32_t columns = exl2__min32(EXL2__CPU_STRIP, part->out - s * EXL2__CPU_STRIP);
        memcpy(part->data + s * part->strip_bytes + (size_t)row * EXL2__CPU_STRIP * bytes,
               data + (size_t)s * EXL2__CPU_STRIP * bytes, columns * bytes);
    }
}

/* Makes the matrix of a part, and reads its bias. */
EXL2__PRIVATE exl2_result exl2__tower_part_make(exl2__tower_reader *r, const exl2__tower_part *p, exl2__arena *a)
{
    exl2__matrix_desc d = exl2__tower_part_desc(r, p);
    float *bias = (float *)r->staging;
    bool exl3 = exl2__tower_part_pieces(r, p) > 0;
    if (d.has_bias && !exl3) {
        EXL2__TRY(exl2__tensor_floats_range(r->c, &r->tensors, exl2__tower_part_bias(r, p), 0, p->out, bias));
    }
#if EXL2__EXL3
    EXL2__TRY(d.has_bias && exl3 ? exl2__tower_part_exl3_bias(r, p, bias) : EXL2_OK);
#endif
    d.bias = d.has_bias ? bias : NULL;
    if (!r->towers) {
        EXL2__TRY(exl2__cpu_matrix_make(r->c, a, &d, 1, p->matrix));
        (*p->matrix)->parts[0].desc = NULL; /* only codes need the description */
    } else if (d.has_bias) {
        EXL2__TRY(r->towers->values(r->device, r->part, true, bias, p->out));
    }
    r->made = true;
    r->row = r->rows = 0;
    return EXL2_OK;
}

/* Reads the next rows, from r->row on, to `out`: as many as are staged at once. PENDING: `work` is used up. */
EXL2__PRIVATE exl2_result exl2__tower_part_read_rows(exl2__tower_reader *r, const exl2__tower_part *p,
                                                     uint64_t row_bytes, uint8_t *out, exl2__work *work)
{
    uint32_t total = p->transposed ? p->in : p->out;
    uint32_t rows = exl2__min32((uint32_t)exl2__max64(EXL2__TOWER_STAGING / row_bytes, 1), total - r->row);
#if EXL2__EXL3
    if (exl2__tower_part_pieces(r, p)) {
        return exl2__tower_part_exl3_rows(r, p, out, work);
    }
#endif
    if (!exl2__work_spend(work, rows * row_bytes / 2)) {
        return EXL2_PENDING;
    }
    const exl2__tensor *e = exl2__tower_part_tensor(r, p);
    r->rows = rows;
    if (!exl2__tower_part_is_padded(r, p, e)) {
        return exl2__tensors_read(r->c, &r->tensors, e, r->row * row_bytes, out, rows * row_bytes);
    }
    uint64_t stored = e->dims[1] * exl2__tensor_type_bytes(e->type);
    for (uint32_t i = 0; i < rows; i++) {
        EXL2__TRY(exl2__tensors_read(r->c, &r->tensors, e, (r->row + i) * stored, out + i * row_bytes, row_bytes));
    }
    return EXL2_OK;
}

/* Makes the matrix of a part and reads it, in slices. */
EXL2__PRIVATE exl2_result exl2__tower_part_read(exl2__tower_reader *r, const exl2__tower_part *p, exl2__arena *a,
                                                exl2__work *work)
{
    exl2__dtype type = exl2__tower_part_desc(r, p).dtype;
    uint32_t total = p->transposed ? p->in : p->out, in = p->transposed ? p->out : p->in;
    uint64_t row_bytes = (uint64_t)in * (type == EXL2__F32 ? sizeof(float) : sizeof(uint16_t));
    if (!r->made) {
        EXL2__TRY(exl2__tower_part_make(r, p, a));
    }
    exl2__cpu_part *part = r->towers ? NULL : &(*p->matrix)->parts[0];
    uint8_t *rows = (uint8_t *)r->staging;
    while (r->row < total) {
        if (!r->rows) {
            EXL2__TRY_DONE(exl2__tower_part_read_rows(r, p, row_bytes, rows, work));
        }
        exl2__rows_slice slice = { r->row, r->rows, rows };
        if (r->towers) {
            EXL2__TRY(r->towers->rows(r->device, r->part, in, type, &slice));
        } else if (!p->transposed) {
            EXL2__TRY_DONE(exl2__cpu_matrix_feed(part, &slice, work));
        }
        for (uint32_t i = 0; part && p->transposed && i < r->rows; i++) {
            exl2__tower_part_feed_input(part, r->row + i, rows + i * row_bytes);
        }
        r->row += r->rows;
        r->rows = 0;
    }
    r->made = false;
    return EXL2_OK;
}

/* weights: an arena of t->weight_bytes bytes, the same one in each call; not used for a backend's tower. OK: the tower
   is complete. */
static inline exl2_result exl2__tower_read_weights(exl2__tower_reader *r, exl2__arena *weights, exl2__work *work)
{
    exl2__tower *t = r->t;
    if (!r->staging) {
        EXL2__TRY(exl2__alloc(r->c, r->staging_bytes, EXL2__ARENA_ALIGN, EXL2_MEM_STAGING, &r->staging));
        if (!r->towers) {
            t->layers = (exl2__tower_layer *)exl2__arena_alloc_zeroed(weights, t->config.layers * sizeof *t->layers);
        }
    }
    for (uint32_t parts = exl2__tower_parts(&t->config); r->part < parts; r->part++) {
        exl2__tower_part p;
        if (!exl2__tower_part_find(t, r->part, &p)) {
            continue;
        }
        if (p.vector) {
            if (!exl2__work_spend(work, 20000)) {
                return EXL2_PENDING;
            }
            EXL2__TRY(exl2__tower_part_vector(r, &p, weights));
        } else {
            EXL2__TRY_DONE(exl2__tower_part_read(r, &p, weights, work));
        }
    }
    return EXL2_OK;
}

/* Accepts a zeroed reader. */
static inline void exl2__tower_read_end(exl2__tower_reader *r)
{
    if (r->c) {
        exl2__tensors_read_end(&r->table);
        exl2__tensors_close(r->c, &r->tensors);
        exl2__free(r->c, r->staging, r->staging_bytes, EXL2_MEM_STAGING);
    }
    memset(r, 0, sizeof *r);
}

#endif
#endif
