/* ptx_matrix.c: matrices that the lanes of a warp hold together: mma, ldmatrix, stmatrix, movmatrix.
   takes: ptx_parts.h.
   gives: ptx_product, ptx_matrix_decode.
   Products of halves are exact in float. Sums are rounded to float after each product, in the order of k; a GPU adds
   several products at once, in an order that PTX does not say, so its last bits differ. */
#include "ptx_parts.h"

/* sums [16][n] += a [16][k] times b [k][n]. n is a multiple of 8. */
void ptx_product(float *sums, const float *a, const float *b, uint32_t n, uint32_t k)
{
    for (uint32_t row = 0; row < 16; row++) {
        for (uint32_t column = 0; column < n; column += 8) {
            float part[8];
            memcpy(part, sums + row * n + column, sizeof part);
            for (uint32_t i = 0; i < k; i++) {
                float x = a[row * k + i];
                const float *y = b + i * n + column;
                for (uint32_t j = 0; j < 8; j++) {
                    part[j] += x * y[j];
                }
            }
            memcpy(sums + row * n + column, part, sizeof part);
        }
    }
}

/* A matrix of 16 rows and n columns from (or to) its registers: lane 4g + t holds rows g and g + 8, columns 2t and
   2t + 1 of each 8. */
void ptx_sums_in(const ptx_warp *w, const int32_t *arg, float *sums, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        const float *from = ptx_in(w, arg[i]);
        PTX_EACH(l) {
            sums[(l / 4 + i % 4 / 2 * 8) * n + i / 4 * 8 + l % 4 * 2 + i % 2] = from[l];
        }
    }
}

void ptx_sums_out(ptx_warp *w, const int32_t *arg, const float *sums, uint32_t n, uint32_t mask)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        float d[PTX_LANES];
        PTX_EACH(l) {
            d[l] = sums[(l / 4 + i % 4 / 2 * 8) * n + i / 4 * 8 + l % 4 * 2 + i % 2];
        }
        ptx_put(w, arg[i], d, sizeof *d, mask);
    }
}

/* A [16][k] from registers of halves: register i has rows g (i even) or g + 8, and columns 8 (i / 2) + 2t and the
   next. */
void ptx_rows_in(const ptx_warp *w, const int32_t *arg, float *a, uint32_t k)
{
    for (uint32_t i = 0; i < k / 4; i++) {
        const uint16_t *from = ptx_in(w, arg[i]);
        PTX_EACH(l) {
            float *to = a + (l / 4 + i % 2 * 8) * k + i / 2 * 8 + l % 4 * 2;
            to[0] = ptx_from_half(from[2 * l]);
            to[1] = ptx_from_half(from[2 * l + 1]);
        }
    }
}

/* count: k. args: 4 sums; 4 sums, A, B. */
static void mma(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    float sums[16 * 8], a[16 * 16], b[16 * 8];
    uint32_t k = s->count;
    if (!ptx_meet(w, s, mask, PTX_ALL)) {
        return;
    }
    ptx_sums_in(w, s->arg + 4, sums, 8);
    ptx_rows_in(w, s->arg + 8, a, k);
    for (uint32_t i = 0; i < k / 8; i++) { /* lane 4g + t: rows 8i + 2t and the next, column g */
        const uint16_t *from = PTX_IN(uint16_t, 8 + k / 4 + i);
        PTX_EACH(l) {
            b[(i * 8 + l % 4 * 2) * 8 + l / 4] = ptx_from_half(from[2 * l]);
            b[(i * 8 + l % 4 * 2 + 1) * 8 + l / 4] = ptx_from_half(from[2 * l + 1]);
        }
    }
    ptx_product(sums, a, b, 8, k);
    ptx_sums_out(w, s->arg, sums, 8, mask);
}

/* ---- tiles of 8 rows of 8 halves in shared memory ----
   Lane l gives the address of row l % 8 of tile l / 8. c: transposed, count: tiles; b: see address. */

static uint32_t row_address(const ptx_warp *w, const ptx_step *s, uint32_t number, uint32_t lane)
{
    return s->b ? PTX_IN(uint32_t, number)[lane] + (uint32_t)s->offset
                : (uint32_t)(PTX_IN(uint64_t, number)[lane] + (uint64_t)s->offset);
}

static void load_matrix(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint16_t rows[PTX_LANES][8];
    uint32_t n = s->count;
    if (!ptx_meet(w, s, mask, PTX_ALL)) {
        return;
    }
    for (uint32_t l = 0; l < 8 * n; l++) {
        const uint8_t *p = ptx_reach(w, s, l, PTX_SHARED, row_address(w, s, n, l), 16, false);
        if (!p) {
            return;
        }
        memcpy(rows[l], p, 16);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d[PTX_LANES];
        PTX_EACH(l) {
            uint32_t g = l / 4, t = l % 4 * 2;
            d[l] = s->c ? rows[i * 8 + t][g] | (uint32_t)rows[i * 8 + t + 1][g] << 16
                        : rows[i * 8 + g][t] | (uint32_t)rows[i * 8 + g][t + 1] << 16;
        }
        PTX_PUT(i, d);
    }
}

static void store_matrix(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint16_t rows[PTX_LANES][8];
    uint32_t n = s->count;
    if (!ptx_meet(w, s, mask, PTX_ALL)) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *v = PTX_IN(uint32_t, 1 + i);
        PTX_EACH(l) {
            uint32_t g = l / 4, t = l % 4 * 2;
            uint16_t low = (uint16_t)v[l], high = (uint16_t)(v[l] >> 16);
            rows[i * 8 + (s->c ? t : g)][s->c ? g : t] = low;
            rows[i * 8 + (s->c ? t + 1 : g)][s->c ? g : t + 1] = high;
        }
    }
    for (uint32_t l = 0; l < 8 * n; l++) {
        uint8_t *p = ptx_reach(w, s, l, PTX_SHARED, row_address(w, s, 0, l), 16, true);
        if (!p) {
            return;
        }
        memcpy(p, rows[l], 16);
    }
    ptx_act(w);
}

static void move_matrix(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const uint16_t *a = PTX_IN(uint16_t, 1);
    uint32_t d[PTX_LANES];
    if (!ptx_meet(w, s, mask, PTX_ALL)) {
        return;
    }
    PTX_EACH(l) { /* element (r, c) is half c % 2 of lane 4r + c / 2 */
        uint32_t row = l / 4, column = l % 4 * 2;
        d[l] = a[column * 8 + row] | (uint32_t)a[(column + 1) * 8 + row] << 16;
    }
    PTX_PUT(0, d);
}

/* ---- decoding ---- */

static void mma_decode(ptx_code *c)
{
    ptx_step *s = c->step;
    bool wide = strcmp(c->op, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") == 0;
    bool narrow = strcmp(c->op, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32") == 0;
    if (!wide && !narrow) {
        ptx_code_fail(c, "this shape of mma is not supported");
        return;
    }
    s->count = wide ? 16 : 8;
    s->run = mma;
    ptx_code_outs(c, 0, 4, 4);
    ptx_code_ins(c, 3, 4, 4);
    ptx_code_ins(c, 1, 4, s->count / 4u);
    ptx_code_ins(c, 2, 4, s->count / 8u);
}

static void tiles_decode(ptx_code *c)
{
    static const char *const counts[] = { "x1", "x2", "x4", NULL };
    ptx_step *s = c->step;
    bool load = ptx_code_is(c, "ldmatrix");
    int count = ptx_code_one(c, counts);
    s->c = ptx_code_has(c, "trans");
    s->count = (uint8_t)(1u << (count < 0 ? 0 : count));
    s->space = PTX_SHARED;
    if (count < 0 || !ptx_code_has(c, "m8n8") || !ptx_code_has(c, "b16") || c->operand_count != 2) {
        ptx_code_fail(c, "these tiles are not supported");
        return;
    }
    if (load) {
        ptx_code_outs(c, 0, 4, s->count);
        ptx_code_address(c, 1);
    } else {
        ptx_code_address(c, 0);
        ptx_code_ins(c, 1, 4, s->count);
    }
    s->run = load ? load_matrix : store_matrix;
}

bool ptx_matrix_decode(ptx_code *c)
{
    bool tiles = ptx_code_is(c, "ldmatrix") || ptx_code_is(c, "stmatrix");
    if (!tiles && !ptx_code_is(c, "mma") && strcmp(c->op, "movmatrix.sync.aligned.m8n8.trans.b16") != 0) {
        return false;
    }
    if (tiles) {
        tiles_decode(c);
    } else if (ptx_code_is(c, "mma")) {
        mma_decode(c);
    } else {
        ptx_code_outs(c, 0, 4, 1);
        ptx_code_ins(c, 1, 4, 1);
        c->step->run = move_matrix;
    }
    c->used = PTX_ALL;
    return true;
}
