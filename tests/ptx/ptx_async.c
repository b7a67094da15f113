/* ptx_async.c: asynchronous copies, and the barriers in shared memory that say when they have arrived.
   takes: ptx_parts.h.
   gives: ptx_copies_end, ptx_bulks_end, ptx_async_decode.
   Without a seed a copy arrives at once. With one, most arrive as late as a wait allows: a read without its wait then
   finds what was there before. */
#include "ptx_parts.h"

/* Addresses: operands `number` (base) and `number` + 1 (what is added); bit i of b: the i-th one has 32 bits. */
static uint64_t address_of(const ptx_warp *w, const ptx_step *s, uint32_t number, uint32_t which, uint32_t lane)
{
    uint64_t base = s->b >> which & 1 ? PTX_IN(uint32_t, number)[lane] : PTX_IN(uint64_t, number)[lane];
    uint64_t at = base + *PTX_IN(uint64_t, number + 1);
    return s->b >> which & 1 ? (uint32_t)at : at;
}

static void address_decode(ptx_code *c, uint32_t number, uint32_t which)
{
    const ptx_operand *o = &c->operands[number];
    if (number >= c->operand_count || !o->address) {
        ptx_code_fail(c, "an address is expected");
        return;
    }
    bool narrow = o->kind == PTX_IS_REGISTER && o->width == 4;
    c->step->b |= (uint8_t)((narrow ? 1u : 0u) << which);
    ptx_code_in(c, o, narrow ? 4 : 8);
    ptx_code_number(c, (uint64_t)o->offset, 8);
}

static bool is_late(ptx_run *run) { return run->launch.seed && ptx_random(run, 4); }

/* ---- cp.async: groups of copies of a thread ----
   args: to, from, how many bytes are read; bytes: of a copy. */

static void copy_do(ptx_warp *w, const ptx_step *s, const ptx_copy *copy)
{
    uint8_t *to = ptx_reach(w, s, copy->lane, PTX_SHARED, copy->to, copy->bytes, true);
    const uint8_t *from = copy->read ? ptx_reach(w, s, copy->lane, PTX_GLOBAL, copy->from, copy->bytes, false) : to;
    if (to && from) {
        memmove(to, from, copy->read);
        memset(to + copy->read, 0, (size_t)(copy->bytes - copy->read));
    }
}

void ptx_copies_end(ptx_warp *w)
{
    free(w->copies);
    w->copies = NULL;
    w->copy_count = w->copy_cap = 0;
}

void ptx_bulks_end(ptx_cta *cta)
{
    while (cta->bulks) {
        ptx_bulk *next = cta->bulks->next;
        free(cta->bulks);
        cta->bulks = next;
    }
}

static void copy_later(ptx_warp *w, const ptx_copy *copy)
{
    if (w->copy_count == w->copy_cap) {
        w->copy_cap = w->copy_cap ? w->copy_cap * 2 : 256;
        w->copies = realloc(w->copies, w->copy_cap * sizeof *w->copies);
        if (!w->copies) {
            abort();
        }
    }
    w->copies[w->copy_count++] = *copy;
}

static void copy(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    bool late = is_late(w->cta->run);
    PTX_ACTIVE(l) {
        uint32_t read = PTX_IN(uint32_t, 4)[l];
        ptx_copy one = { address_of(w, s, 2, 1, l), (uint32_t)address_of(w, s, 0, 0, l), l, w->group[l], s->bytes,
            (uint8_t)read };
        if (read > s->bytes) {
            ptx_fail(w, s, l, "%u bytes are more than the copy has", (unsigned)read);
            return;
        }
        if (late) { /* its addresses are checked now */
            ptx_reach(w, s, l, PTX_SHARED, one.to, one.bytes, true);
            if (read > 0) {
                ptx_reach(w, s, l, PTX_GLOBAL, one.from, one.bytes, false);
            }
            copy_later(w, &one);
        } else {
            copy_do(w, s, &one);
        }
        if (w->cta->run->failed) {
            return;
        }
    }
    ptx_act(w);
}

static void copy_commit(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)s;
    PTX_ACTIVE(l) {
        w->group[l]++;
    }
}

/* Does the copies of lanes, but those of their last `pending` groups. */
static void copies_do(ptx_warp *w, const ptx_step *s, uint32_t mask, uint32_t pending, bool uncommitted)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->copy_count && !w->cta->run->failed; i++) {
        const ptx_copy *one = &w->copies[i];
        bool ends = mask >> one->lane & 1 && (uncommitted || one->group + pending < w->group[one->lane]);
        if (ends) {
            copy_do(w, s, one);
        } else {
            w->copies[kept++] = *one;
        }
    }
    w->copy_count = kept;
}

static void copy_wait(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    copies_do(w, s, mask, *PTX_IN(uint32_t, 0), false);
}

static void copy_wait_all(ptx_warp *w, const ptx_step *s, uint32_t mask) { copies_do(w, s, mask, 0, true); }

/* ---- mbarrier ----
   The 64 bits: 0: the phase's parity; 1 to 20: arrivals that are missing; 21 to 40: arrivals of a phase; 41 to 62:
   bytes that are missing, which may be negative. Bit 63 is 0: memory that was not initialized has a 1 there. */

typedef struct barrier {
    uint32_t phase, missing, count;
    int32_t bytes;
} barrier;

#define BYTES_ZERO (1u << 21)
#define COUNT_MAX ((1u << 20) - 1)

static bool barrier_read(ptx_warp *w, const ptx_step *s, uint32_t lane, const uint8_t *p, barrier *b)
{
    uint64_t v;
    memcpy(&v, p, 8);
    if (v >> 63) {
        ptx_fail(w, s, lane, "there is no initialized mbarrier at this address");
        return false;
    }
    *b = (barrier){ v & 1, v >> 1 & COUNT_MAX, v >> 21 & COUNT_MAX, (int32_t)(v >> 41) - (int32_t)BYTES_ZERO };
    return true;
}

/* Writes the barrier; a phase of which nothing is missing ends. */
static void barrier_write(uint8_t *p, barrier b)
{
    if (b.missing == 0 && b.bytes == 0) {
        b.phase ^= 1;
        b.missing = b.count;
    }
    uint64_t v = b.phase | (uint64_t)b.missing << 1 | (uint64_t)b.count << 21
               | (uint64_t)(uint32_t)(b.bytes + (int32_t)BYTES_ZERO) << 41;
    memcpy(p, &v, 8);
}

/* Arrivals and bytes at the barrier of an address in shared memory; bytes may be negative: they have arrived. The value
   before is *state. */
static bool barrier_arrive(ptx_warp *w, const ptx_step *s, uint32_t lane, uint64_t address, uint32_t count,
                           int64_t bytes, uint64_t *state)
{
    barrier b;
    uint8_t *p = ptx_reach(w, s, lane, s->space == PTX_GENERIC ? PTX_GENERIC : PTX_SHARED, address, 8, true);
    if (!p || !barrier_read(w, s, lane, p, &b)) {
        return false;
    }
    memcpy(state, p, 8);
    int64_t total = b.bytes + bytes;
    if (count > b.missing || total >= (int64_t)BYTES_ZERO / 2 || total <= -(int64_t)BYTES_ZERO / 2) {
        ptx_fail(w, s, lane, "the mbarrier has %u arrivals and %d bytes to come, not %u arrivals", (unsigned)b.missing,
                 (int)b.bytes, (unsigned)count);
        return false;
    }
    b.missing -= count;
    b.bytes = (int32_t)total;
    barrier_write(p, b);
    ptx_act(w);
    return true;
}

static void barrier_init(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    PTX_ACTIVE(l) {
        uint32_t count = PTX_IN(uint32_t, 2)[l];
        uint8_t *p = ptx_reach(w, s, l, s->space, address_of(w, s, 0, 0, l), 8, true);
        if (p && (count == 0 || count > COUNT_MAX)) {
            ptx_fail(w, s, l, "an mbarrier cannot count %u arrivals", (unsigned)count);
        }
        if (!p || w->cta->run->failed) {
            return;
        }
        barrier_write(p, (barrier){ 0, count, count, 0 });
    }
    ptx_act(w);
}

static void barrier_end(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    PTX_ACTIVE(l) {
        uint8_t *p = ptx_reach(w, s, l, s->space, address_of(w, s, 0, 0, l), 8, true);
        if (!p) {
            return;
        }
        memset(p, 0xFF, 8);
    }
}

/* a: 1: it arrives; c: 1: bytes are expected. args: state, address, count or bytes. */
static void arrive(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    PTX_ACTIVE(l) {
        uint32_t number = PTX_IN(uint32_t, 3)[l];
        uint64_t state = 0;
        if (!barrier_arrive(w, s, l, address_of(w, s, 1, 0, l), s->c ? s->a : number, s->c ? number : 0, &state)) {
            return;
        }
        PTX_OUT(uint64_t, 0)[l] = state;
    }
}

/* When the thread's copies have arrived; here they do at once. c: the barrier does not count it in advance. */
static void arrive_copied(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    copies_do(w, s, mask, 0, true);
    PTX_ACTIVE(l) {
        uint64_t state;
        if (w->cta->run->failed || !barrier_arrive(w, s, l, address_of(w, s, 0, 0, l), s->c ? 0 : 1, 0, &state)) {
            return;
        }
    }
}

/* ---- bulk copies ----
   args: to, from, bytes, barrier; they arrive at the barrier's CTA. */

static void bulk_do(ptx_warp *w, const ptx_step *s, uint32_t lane, const ptx_bulk *bulk)
{
    uint64_t state;
    for (uint32_t i = 0; i < bulk->bytes; i += 16) {
        uint8_t *to = ptx_reach(w, s, lane, PTX_SHARED, bulk->to + i, 16, true);
        const uint8_t *from = to ? ptx_reach(w, s, lane, PTX_GLOBAL, bulk->from + i, 16, false) : NULL;
        if (!from) {
            return;
        }
        memcpy(to, from, 16);
    }
    barrier_arrive(w, s, lane, bulk->barrier, 0, -(int64_t)bulk->bytes, &state);
}

static void bulk_copy(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    ptx_run *run = w->cta->run;
    PTX_ACTIVE(l) {
        ptx_bulk bulk = { .to = (uint32_t)address_of(w, s, 0, 0, l), .from = address_of(w, s, 2, 1, l),
            .bytes = PTX_IN(uint32_t, 4)[l], .barrier = (uint32_t)address_of(w, s, 5, 2, l) };
        uint32_t rank = bulk.barrier >> PTX_RANK_SHIFT;
        if (bulk.bytes % 16 || bulk.bytes == 0 || rank > run->cluster || rank != bulk.to >> PTX_RANK_SHIFT) {
            ptx_fail(w, s, l, "a bulk copy of %u bytes to CTA %d, with a barrier in CTA %d, is not possible",
                     (unsigned)bulk.bytes, (int)(bulk.to >> PTX_RANK_SHIFT) - 1, (int)rank - 1);
            return;
        }
        if (!is_late(run)) {
            bulk_do(w, s, l, &bulk);
            continue;
        }
        ptx_cta *cta = rank == 0 ? w->cta : w->cta->cluster + (rank - 1);
        ptx_bulk *kept = malloc(sizeof *kept), **end = &cta->bulks;
        if (!kept) {
            abort();
        }
        while (*end) {
            end = &(*end)->next;
        }
        bulk.to &= (1u << PTX_RANK_SHIFT) - 1; /* as its CTA sees it */
        bulk.barrier &= (1u << PTX_RANK_SHIFT) - 1;
        *kept = bulk;
        *end = kept;
    }
    ptx_act(w);
}

/* A wait failed: the oldest copy to this CTA arrives. False: there is none. */
static bool bulk_arrive(ptx_warp *w, const ptx_step *s, uint32_t lane)
{
    ptx_bulk *bulk = w->cta->bulks;
    if (!bulk) {
        return false;
    }
    w->cta->bulks = bulk->next;
    bulk_do(w, s, lane, bulk);
    free(bulk);
    return !w->cta->run->failed;
}

/* Has the phase with this parity (c), or of this state, ended? */
static bool has_ended(ptx_warp *w, const ptx_step *s, uint32_t lane)
{
    barrier b;
    const uint8_t *p = ptx_reach(w, s, lane, s->space, address_of(w, s, 1, 0, lane), 8, false);
    if (!p || !barrier_read(w, s, lane, p, &b)) {
        return false;
    }
    return b.phase != (s->c ? PTX_IN(uint32_t, 3)[lane] & 1 : (uint32_t)PTX_IN(uint64_t, 3)[lane] & 1);
}

static void try_wait(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint32_t ended = 0;
    PTX_ACTIVE(l) {
        bool done = has_ended(w, s, l);
        while (!done && !w->cta->run->failed && bulk_arrive(w, s, l)) {
            done = has_ended(w, s, l);
        }
        if (w->cta->run->failed) {
            return;
        }
        ended |= (uint32_t)done << l;
    }
    ptx_put_predicate(w, s->arg[0], ended, mask);
    w->yield = w->stuck = ended != mask;
}

/* ---- clusters ---- */

static void map_address(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const uint32_t *a = PTX_IN(uint32_t, 1), *rank = PTX_IN(uint32_t, 2);
    uint32_t d[PTX_LANES];
    PTX_EACH(l) {
        d[l] = (a[l] & ((1u << PTX_RANK_SHIFT) - 1)) | ((rank[l] & 127) + 1) << PTX_RANK_SHIFT;
    }
    PTX_PUT(0, d);
}

static void policy(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint64_t d[PTX_LANES] = { 0 }; /* how memory is cached does not matter here */
    PTX_PUT(0, d);
}

/* ---- decoding ---- */

static void bulk_decode(ptx_code *c)
{
    ptx_step *s = c->step;
    bool known = ptx_code_has(c, "shared::cluster") && ptx_code_has(c, "global")
              && ptx_code_has(c, "mbarrier::complete_tx::bytes");
    uint32_t hint = ptx_code_has(c, "L2::cache_hint");
    if (!known || c->operand_count != 4 + hint) {
        ptx_code_fail(c, "this bulk copy is not supported");
        return;
    }
    s->space = PTX_SHARED;
    s->run = bulk_copy;
    address_decode(c, 0, 0);
    address_decode(c, 1, 1);
    ptx_code_ins(c, 2, 4, 1);
    address_decode(c, 3, 2);
}

static void copy_decode(ptx_code *c)
{
    ptx_step *s = c->step;
    s->space = PTX_SHARED;
    if (ptx_code_has(c, "bulk")) {
        bulk_decode(c);
    } else if (ptx_code_has(c, "mbarrier")) {
        ptx_code_has(c, "arrive");
        ptx_code_has(c, "shared");
        ptx_code_has(c, "shared::cta");
        ptx_code_has(c, "b64");
        s->c = !ptx_code_has(c, "noinc");
        s->run = arrive_copied;
        address_decode(c, 0, 0);
    } else if (ptx_code_has(c, "commit_group")) {
        s->run = copy_commit;
    } else if (ptx_code_has(c, "wait_group")) {
        s->run = copy_wait;
        ptx_code_ins(c, 0, 4, 1);
    } else if (ptx_code_has(c, "wait_all")) {
        s->run = copy_wait_all;
    } else if (ptx_code_has(c, "global") && c->operand_count >= 3 && c->operands[2].kind == PTX_IS_NUMBER) {
        c->used = PTX_ALL;
        uint64_t bytes = c->operands[2].value;
        if ((bytes != 4 && bytes != 8 && bytes != 16) || ptx_code_has(c, "L2::cache_hint") || c->operand_count > 4) {
            ptx_code_fail(c, "this copy is not supported");
            return;
        }
        s->bytes = (uint8_t)bytes;
        s->run = copy;
        address_decode(c, 0, 0);
        address_decode(c, 1, 1);
        ptx_code_ins(c, c->operand_count - 1, 4, 1);
    }
}

static void barrier_decode(ptx_code *c)
{
    ptx_step *s = c->step;
    static const char *const words[] = { "release", "acquire", "relaxed", "cta", "cluster", "shared::cta",
        "shared::cluster", "b64", NULL };
    s->space = ptx_code_has(c, "shared") ? PTX_SHARED : PTX_GENERIC;
    for (const char *const *word = words; *word; word++) {
        s->space = ptx_code_has(c, *word) && (*word)[0] == 's' ? PTX_SHARED : s->space;
    }
    bool expect = ptx_code_has(c, "expect_tx"), arrives = ptx_code_has(c, "arrive");
    if (ptx_code_has(c, "init")) {
        s->run = barrier_init;
        address_decode(c, 0, 0);
        ptx_code_ins(c, 1, 4, 1);
    } else if (ptx_code_has(c, "inval")) {
        s->run = barrier_end;
        address_decode(c, 0, 0);
    } else if (arrives || expect) {
        uint32_t at = arrives; /* expect_tx alone has no state */
        s->run = arrive;
        s->a = arrives;
        s->c = expect;
        ptx_code_out(c, arrives ? &c->operands[0] : &(ptx_operand){ .kind = PTX_IS_SINK }, 8);
        address_decode(c, at, 0);
        if (c->operand_count == at + 2) {
            ptx_code_ins(c, at + 1, 4, 1);
        } else {
            ptx_code_number(c, 1, 4);
        }
    } else if (ptx_code_has(c, "try_wait") || ptx_code_has(c, "test_wait")) {
        s->run = try_wait;
        s->c = ptx_code_has(c, "parity");
        ptx_code_outs(c, 0, 1, 1);
        address_decode(c, 1, 0);
        ptx_code_ins(c, 2, s->c ? 4 : 8, 1);
    }
}

bool ptx_async_decode(ptx_code *c)
{
    if (ptx_code_is(c, "cp") && ptx_code_has(c, "async")) {
        copy_decode(c);
    } else if (ptx_code_is(c, "mbarrier")) {
        barrier_decode(c);
    } else if (ptx_code_is(c, "mapa") && ptx_code_has(c, "u32")) {
        ptx_code_has(c, "shared::cluster");
        ptx_code_outs(c, 0, 4, 1);
        ptx_code_ins(c, 1, 4, 1);
        ptx_code_ins(c, 2, 4, 1);
        c->step->run = map_address;
    } else if (ptx_code_is(c, "createpolicy")) {
        c->used = PTX_ALL;
        ptx_code_outs(c, 0, 8, 1);
        c->step->run = policy;
    } else {
        return false;
    }
    return true;
}
