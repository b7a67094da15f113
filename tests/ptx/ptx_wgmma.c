/* ptx_wgmma.c: products by four warps (wgmma): each warp computes its 16 rows as it comes to the instruction, at once.
   So a read of the sums before their wait is not found. A tile that is overwritten before the wait is: with a seed, the
   wait reads the tiles again.
   takes: ptx_parts.h.
   gives: ptx_products_end, ptx_wgmma_decode.
   Sums are rounded as those of mma (ptx_matrix.c). tf32 is a float without its last 13 bits. */
#include "ptx_parts.h"

#define PIECE 16u      /* bytes that lie together */
#define COLUMNS_MAX 256u
#define K_MAX 16u
#define TF32 0xFFFFE000u /* the bits of a float that tf32 has */

/* Where a tile lies, as its descriptor says. A line has 128, 64 or 32 bytes; 8 lines lie together. Bits 4 to 6 of an
   address, or as many of them as number the pieces of a line, are exchanged by bits 7 to 9 (swizzle). */
typedef struct tile {
    uint32_t begin, leading, stride, line;
} tile;

static bool tile_read(ptx_warp *w, const ptx_step *s, uint64_t descriptor, tile *t)
{
    t->begin = (uint32_t)(descriptor & 0x3FFF) << 4;
    t->leading = (uint32_t)(descriptor >> 16 & 0x3FFF) << 4;
    t->stride = (uint32_t)(descriptor >> 32 & 0x3FFF) << 4;
    t->line = 256u >> (descriptor >> 62);
    if (descriptor >> 62 == 0 || (descriptor >> 49 & 7) != 0) {
        ptx_fail(w, s, 0, "the descriptor 0x%llx has a layout that is not supported", (unsigned long long)descriptor);
        return false;
    }
    return true;
}

static const uint8_t *piece_of(ptx_warp *w, const ptx_step *s, const tile *t, uint32_t at)
{
    return ptx_reach(w, s, 0, PTX_SHARED, at ^ (at >> 3 & (t->line - PIECE)), PIECE, false);
}

static void piece_read(const uint8_t *p, bool halves, float *out)
{
    for (uint32_t i = 0; i < (halves ? 8u : 4u); i++) {
        uint16_t h;
        uint32_t u;
        memcpy(&h, p + i % 8 * 2, 2);
        memcpy(&u, p + i % 4 * 4, 4);
        out[i] = halves ? ptx_from_half(h) : ptx_float_of(u & TF32);
    }
}

/* out [lines][k], from a tile whose lines hold elements of k. From line `first` on. */
static bool lines_read(ptx_warp *w, const ptx_step *s, const tile *t, uint32_t first, uint32_t lines, bool halves,
                       float *out)
{
    uint32_t k = halves ? 16 : 8, each = halves ? 8 : 4;
    for (uint32_t i = 0; i < lines; i++) {
        uint32_t line = first + i, at = t->begin + line / 8 * t->stride + line % 8 * t->line;
        for (uint32_t piece = 0; piece < 2; piece++) {
            const uint8_t *p = piece_of(w, s, t, at + piece * PIECE);
            if (!p) {
                return false;
            }
            piece_read(p, halves, out + i * k + piece * each);
        }
    }
    return true;
}

/* out [16][count], from tiles whose lines hold rows of k: 64 elements each, the next 64 `leading` bytes on. */
static bool rows_read(ptx_warp *w, const ptx_step *s, const tile *t, uint32_t first, uint32_t count, float *out)
{
    if (t->line != 128) {
        ptx_fail(w, s, 0, "tiles whose lines are rows of k and have %u bytes are not supported", (unsigned)t->line);
        return false;
    }
    for (uint32_t k = 0; k < 16; k++) {
        for (uint32_t n = 0; n < count; n += 8) {
            uint32_t i = first + n, at = t->begin + i / 64 * t->leading + k / 8 * t->stride;
            const uint8_t *p = piece_of(w, s, t, at + k % 8 * 128 + i % 64 * 2);
            if (!p) {
                return false;
            }
            piece_read(p, true, out + k * count + n);
        }
    }
    return true;
}

static void turn(const float *in, float *out, uint32_t rows, uint32_t columns)
{
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < columns; j++) {
            out[j * rows + i] = in[i * columns + j];
        }
    }
}

/* ---- the product ----
   count: 8 columns each; a: A is in registers; b: A's lines are rows of k; c: B's are; d: halves (else tf32).
   args: sums; sums, A (4 registers or a descriptor), B's descriptor, whether it adds. */

/* a [16][k] from registers. */
static void a_gather(const ptx_warp *w, const ptx_step *s, const int32_t *in, uint32_t k, float *a)
{
    if (s->d) {
        ptx_rows_in(w, in, a, k);
        return;
    }
    for (uint32_t i = 0; i < 4; i++) { /* register i has rows g (i even) or g + 8, and column 4 (i / 2) + t */
        const uint32_t *from = ptx_in(w, in[i]);
        PTX_EACH(l) {
            a[(l / 4 + i % 2 * 8) * k + i / 2 * 4 + l % 4] = ptx_float_of(from[l] & TF32);
        }
    }
}

/* a [16][k]: the warp's rows, from shared memory. */
static bool a_read(ptx_warp *w, const ptx_step *s, uint64_t descriptor, float *a)
{
    uint32_t own = w->index % 4 * 16;
    float turned[16 * K_MAX];
    tile t;
    if (!tile_read(w, s, descriptor, &t)) {
        return false;
    }
    if (!s->b) {
        return lines_read(w, s, &t, own, 16, s->d, a);
    }
    bool read = rows_read(w, s, &t, own, 16, turned);
    if (read) {
        turn(turned, a, 16, 16);
    }
    return read;
}

/* b [k][n] */
static bool b_read(ptx_warp *w, const ptx_step *s, uint64_t descriptor, uint32_t n, uint32_t k, float *b)
{
    float turned[K_MAX * COLUMNS_MAX];
    tile t;
    if (!tile_read(w, s, descriptor, &t)) {
        return false;
    }
    if (s->c) {
        return rows_read(w, s, &t, 0, n, b);
    }
    bool read = lines_read(w, s, &t, 0, n, s->d, turned);
    if (read) {
        turn(turned, b, n, k);
    }
    return read;
}

static uint64_t hash(uint64_t h, const float *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        h = (h ^ ptx_bits_of(values[i])) * 0x100000001B3u;
    }
    return h;
}

/* Reads what is in shared memory, and hashes it. */
static bool tiles_read(ptx_warp *w, const ptx_step *s, const uint64_t tiles[2], float *a, float *b, uint64_t *sum)
{
    uint32_t n = s->count * 8u, k = s->d ? 16 : 8;
    *sum = 0;
    if (!s->a) {
        if (!a_read(w, s, tiles[0], a)) {
            return false;
        }
        *sum = hash(*sum, a, 16 * k);
    }
    if (!b_read(w, s, tiles[1], n, k, b)) {
        return false;
    }
    *sum = hash(*sum, b, n * k);
    return true;
}

static void product_keep(ptx_warp *w, const ptx_wait *product)
{
    if (w->product_count == w->product_cap) {
        w->product_cap = w->product_cap ? w->product_cap * 2 : 64;
        w->products = realloc(w->products, w->product_cap * sizeof *w->products);
        if (!w->products) {
            abort();
        }
    }
    w->products[w->product_count++] = *product;
}

void ptx_products_end(ptx_warp *w)
{
    free(w->products);
    w->products = NULL;
    w->product_count = w->product_cap = 0;
}

static void multiply(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    float sums[16 * COLUMNS_MAX] = { 0 }, a[16 * K_MAX], b[K_MAX * COLUMNS_MAX];
    uint32_t n = s->count * 8u, k = s->d ? 16 : 8;
    const int32_t *in = s->arg + n, *rest = in + (s->a ? 4 : 1);
    ptx_wait product = { .step = s, .group = w->product_group };
    product.tiles[0] = s->a ? 0 : *(const uint64_t *)ptx_in(w, in[0]);
    product.tiles[1] = *(const uint64_t *)ptx_in(w, rest[0]);
    if (!ptx_meet(w, s, mask, PTX_ALL) || !tiles_read(w, s, product.tiles, a, b, &product.hash)) {
        return;
    }
    if (s->a) {
        a_gather(w, s, in, k, a);
    }
    if (w->cta->run->launch.seed) {
        product_keep(w, &product);
    }
    if (ptx_predicate(w, rest[1]) & 1u << ptx_first(mask)) {
        ptx_sums_in(w, s->arg + n / 2, sums, n);
    }
    ptx_product(sums, a, b, n, k);
    ptx_sums_out(w, s->arg, sums, n, mask);
}

static void commit(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    if (ptx_meet(w, s, mask, PTX_ALL)) {
        w->product_group++;
    }
}

/* The tiles of all products but those of the last groups must be what they were. */
static void wait_products(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    float a[16 * K_MAX], b[K_MAX * COLUMNS_MAX];
    uint32_t pending = *PTX_IN(uint32_t, 0), kept = 0;
    if (!ptx_meet(w, s, mask, PTX_ALL)) {
        return;
    }
    for (uint32_t i = 0; i < w->product_count; i++) {
        const ptx_wait *product = &w->products[i];
        uint64_t now;
        if (product->group + pending >= w->product_group) {
            w->products[kept++] = *product;
        } else if (!tiles_read(w, product->step, product->tiles, a, b, &now)) {
            return;
        } else if (now != product->hash) {
            ptx_fail(w, s, 0, "a tile of the product in line %u was overwritten before this wait",
                     (unsigned)product->step->line);
            return;
        }
    }
    w->product_count = kept;
}

static void nothing(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)w;
    (void)s;
    (void)mask;
}

static bool is_number(const ptx_operand *o, uint64_t value) { return o->kind == PTX_IS_NUMBER && o->value == value; }

static void multiply_decode(ptx_code *c)
{
    ptx_step *s = c->step;
    bool halves = strcmp(c->mods[c->mod_count - 1], "f16") == 0;
    const char *shape = c->mods[4];
    unsigned n = strncmp(shape, "m64n", 4) == 0 ? (unsigned)strtoul(shape + 4, NULL, 10) : 0;
    s->a = c->operands[1].kind == PTX_IS_VECTOR;
    uint32_t turns = halves ? (s->a ? 1 : 2) : 0; /* operands that say which lines A and B have */
    bool known = n > 0 && n <= COLUMNS_MAX && n % 8 == 0 && c->operand_count == 6 + turns
              && is_number(&c->operands[4], 1) && is_number(&c->operands[5], 1);
    known = known && strcmp(strchr(shape, 'k') ? strchr(shape, 'k') : "", halves ? "k16" : "k8") == 0;
    known = known && strcmp(c->mods[c->mod_count - 3], "f32") == 0
         && (halves || strcmp(c->mods[c->mod_count - 1], "tf32") == 0);
    if (!known) {
        ptx_code_fail(c, "this product is not supported");
        return;
    }
    s->count = (uint8_t)(n / 8);
    s->d = halves;
    s->b = turns == 2 && is_number(&c->operands[6], 1);
    s->c = turns > 0 && is_number(&c->operands[5 + turns], 1);
    s->run = multiply;
    ptx_code_outs(c, 0, 4, n / 2);
    ptx_code_ins(c, 0, 4, n / 2);
    ptx_code_ins(c, 1, s->a ? 4 : 8, s->a ? 4 : 1);
    ptx_code_ins(c, 2, 8, 1);
    ptx_code_ins(c, 3, 1, 1);
}

bool ptx_wgmma_decode(ptx_code *c)
{
    if (!ptx_code_is(c, "wgmma")) {
        return false;
    }
    if (ptx_code_has(c, "mma_async")) {
        multiply_decode(c);
    } else if (ptx_code_has(c, "wait_group")) {
        c->step->run = wait_products;
        ptx_code_ins(c, 0, 4, 1);
    } else if (ptx_code_has(c, "commit_group")) {
        c->step->run = commit;
    } else if (ptx_code_has(c, "fence")) {
        c->step->run = nothing;
    }
    c->used = PTX_ALL;
    return true;
}
