/* ptx_warp.c: what lanes of a warp do together: branches, ends, barriers, shuffles and votes. Each lane has a pc of its
   own. The lanes with the lowest pc run, so that lanes that a branch has parted meet again behind it.
   takes: ptx_parts.h.
   gives: ptx_warp_select, ptx_warp_run, ptx_meet, ptx_barrier_check, ptx_cluster_check, ptx_exit, ptx_warp_decode. */
#include "ptx_parts.h"

/* Notes where the active lanes are. */
static void settle(ptx_warp *w)
{
    uint32_t mask = w->active;
    PTX_ACTIVE(l) {
        w->pcs[l] = w->pc;
    }
    w->changed = true;
}

/* Makes the lanes with the lowest pc active. Parked lanes run again when others have come to their step. */
void ptx_warp_select(ptx_warp *w)
{
    uint32_t ready = w->live & ~w->blocked, mask = ready & ~w->parked;
    w->changed = false;
    w->pc = w->join = PTX_NEVER;
    PTX_ACTIVE(l) {
        w->pc = w->pcs[l] < w->pc ? w->pcs[l] : w->pc;
    }
    w->active = 0;
    mask = w->pc == PTX_NEVER ? 0 : ready;
    PTX_ACTIVE(l) {
        if (w->pcs[l] == w->pc) {
            w->active |= 1u << l;
        } else {
            w->join = w->pcs[l] > w->pc && w->pcs[l] < w->join ? w->pcs[l] : w->join;
        }
    }
    w->parked &= ~w->active;
}

bool ptx_meet(ptx_warp *w, const ptx_step *s, uint32_t mask, uint32_t members)
{
    uint32_t missing = members & w->live & ~mask;
    if (missing == 0) {
        return true;
    }
    settle(w);
    PTX_ACTIVE(l) {
        w->pcs[l] = w->pc - 1; /* this step again */
    }
    w->parked |= mask;
    if ((w->live & ~w->parked) == 0) {
        ptx_fail(w, s, ptx_first(mask), "lanes 0x%x wait for lanes 0x%x, which do not come", (unsigned)mask,
                 (unsigned)missing);
    }
    return false;
}

/* A lane that jumps back after it only read what others may write lets the other warps run. */
static void jumped(ptx_warp *w, uint32_t target)
{
    if (target < w->pc && w->polled) {
        w->yield = true;
    }
}

static void branch(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    jumped(w, s->target);
    if (mask == w->active) {
        w->pc = s->target;
        if (w->parked) { /* it may come to their step */
            settle(w);
        }
        return;
    }
    settle(w);
    PTX_ACTIVE(l) {
        w->pcs[l] = s->target;
    }
}

void ptx_exit(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)s;
    ptx_cta *cta = w->cta;
    settle(w);
    w->live &= ~mask;
    w->parked = 0; /* they look again whom they wait for */
    cta->live_threads -= ptx_count(mask);
    if (w->live == 0) {
        cta->live_warps--;
        w->yield = true;
        ptx_copies_end(w);
    }
    ptx_act(w);
    for (uint32_t i = 0; i < PTX_BARRIERS; i++) {
        ptx_barrier_check(cta, i);
    }
    ptx_cluster_check(cta->cluster);
}

static void trap(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    ptx_fail(w, s, ptx_first(mask), "the kernel executed trap");
}

/* ---- barriers ----
   arg 0: the barrier's number, 1: how many threads. a: what it does; b: bar.red has a result; c: its predicate is
   negated. */

enum { SYNC, ARRIVE, RED_POPC, RED_AND, RED_OR };

/* Lets the lanes that wait for the barrier go on, and gives them the result of bar.red. */
static void release(ptx_cta *cta, uint32_t id)
{
    ptx_barrier *barrier = &cta->barriers[id];
    for (uint32_t i = 0; i < cta->run->warps; i++) {
        ptx_warp *w = &cta->warps[i];
        uint32_t mask = w->waiting[id];
        PTX_ACTIVE(l) {
            const ptx_step *s = &cta->run->kernel->steps[w->pcs[l] - 1];
            if (s->a == RED_POPC) {
                PTX_OUT(uint32_t, 0)[l] = barrier->ones;
            } else if (s->a >= RED_AND) {
                bool all = barrier->ones == barrier->lanes, any = barrier->ones > 0;
                ptx_put_predicate(w, s->arg[0], s->a == RED_AND ? (all ? PTX_ALL : 0) : (any ? PTX_ALL : 0), 1u << l);
            }
        }
        if (mask && !w->changed) {
            settle(w);
        }
        w->waiting[id] = 0;
        w->blocked &= ~mask;
    }
    *barrier = (ptx_barrier){ 0 };
}

void ptx_barrier_check(ptx_cta *cta, uint32_t id)
{
    ptx_barrier *barrier = &cta->barriers[id];
    uint32_t expected = barrier->expected ? barrier->expected : cta->live_threads;
    if (barrier->arrived > 0 && barrier->arrived >= expected) {
        release(cta, id);
    }
}

static void barrier(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint32_t first = ptx_first(mask), at = s->a >= RED_POPC ? 1 : 0;
    uint32_t id = PTX_IN(uint32_t, at)[first], expected = PTX_IN(uint32_t, at + 1)[first];
    if (id >= PTX_BARRIERS || expected % PTX_LANES) {
        ptx_fail(w, s, first, "barrier %u with %u threads is not possible", (unsigned)id, (unsigned)expected);
        return;
    }
    ptx_barrier *b = &w->cta->barriers[id];
    if (b->arrived > 0 && b->expected != expected) {
        ptx_fail(w, s, first, "barrier %u is used with %u and with %u threads at the same time", (unsigned)id,
                 (unsigned)b->expected, (unsigned)expected);
        return;
    }
    /* With a number of threads whole warps are counted: lanes that have ended, too. */
    bool whole = expected > 0 && mask == w->live;
    b->expected = expected;
    b->arrived += whole ? PTX_LANES : ptx_count(mask);
    if (s->a >= RED_POPC) {
        uint32_t p = ptx_predicate(w, s->arg[3]);
        b->ones += ptx_count((s->c ? ~p : p) & mask);
        b->lanes += ptx_count(mask);
    }
    ptx_act(w);
    if (s->a != ARRIVE) {
        settle(w);
        w->waiting[id] |= mask;
        w->blocked |= mask;
    }
    ptx_barrier_check(w->cta, id);
}

/* ---- barriers of a cluster ----
   Each thread arrives and waits once for each phase. */

void ptx_cluster_check(ptx_cta *first)
{
    ptx_run *run = first->run;
    uint32_t live = 0;
    for (uint32_t i = 0; i < run->cluster; i++) {
        live += first[i].live_threads;
    }
    if (first->cluster_arrived == 0 || first->cluster_arrived < live) {
        return;
    }
    first->cluster_arrived = 0;
    first->cluster_phase++;
    for (uint32_t i = 0; i < run->cluster * run->warps; i++) {
        ptx_warp *w = &first[i / run->warps].warps[i % run->warps];
        if (w->cluster_waiting && !w->changed) {
            settle(w);
        }
        w->blocked &= ~w->cluster_waiting;
        w->cluster_waiting = 0;
    }
}

static void cluster_arrive(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)s;
    w->cluster_phase = w->cta->cluster->cluster_phase + 1; /* the phase that its wait waits for */
    w->cta->cluster->cluster_arrived += ptx_count(mask);
    ptx_act(w);
    ptx_cluster_check(w->cta->cluster);
}

static void cluster_wait(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)s;
    if (w->cta->cluster->cluster_phase < w->cluster_phase) {
        settle(w);
        w->cluster_waiting |= mask;
        w->blocked |= mask;
    }
}

/* ---- shuffles ----
   args: value, predicate, source, lane, clamp, members; a: which one. */

enum { UP, DOWN, BFLY, IDX };

static void shuffle(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    if (!ptx_meet(w, s, mask, PTX_IN(uint32_t, 5)[ptx_first(mask)])) {
        return;
    }
    const uint32_t *a = PTX_IN(uint32_t, 2), *b = PTX_IN(uint32_t, 3), *c = PTX_IN(uint32_t, 4);
    uint32_t d[PTX_LANES], found = 0;
    PTX_EACH(l) {
        uint32_t segment = c[l] >> 8 & 31, clamp = c[l] & 31, by = b[l] & 31;
        uint32_t most = (l & segment) | (clamp & ~segment), least = l & segment;
        int32_t from = (int32_t)(s->a == UP ? l - by : s->a == DOWN ? l + by : s->a == BFLY ? l ^ by
                                                     : least | (by & ~segment));
        bool in = s->a == UP ? from >= (int32_t)most : from <= (int32_t)most;
        d[l] = a[in ? (uint32_t)from & 31 : l];
        found |= (uint32_t)in << l;
    }
    PTX_PUT(0, d);
    ptx_put_predicate(w, s->arg[1], found, mask);
}

/* ---- votes and reductions ----
   arg 0: result, 1: value, 2: members; a: which one; b: the predicate is negated. */

enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };

static void vote(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint32_t members = PTX_IN(uint32_t, 2)[ptx_first(mask)], p = ptx_predicate(w, s->arg[1]);
    if (!ptx_meet(w, s, mask, members)) {
        return;
    }
    p = (s->b ? ~p : p) & mask & members;
    if (s->a == VOTE_BALLOT) {
        PTX_ACTIVE(l) {
            PTX_OUT(uint32_t, 0)[l] = p;
        }
        return;
    }
    bool all = p == (mask & members), any = p != 0;
    bool holds = s->a == VOTE_ALL ? all : s->a == VOTE_ANY ? any : all || !any;
    ptx_put_predicate(w, s->arg[0], holds ? PTX_ALL : 0, mask);
}

enum { REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, REDUCE_MIN_SIGNED, REDUCE_MAX_SIGNED, REDUCE_AND, REDUCE_OR, REDUCE_XOR };

static uint32_t reduced(uint32_t x, uint32_t y, uint32_t how)
{
    switch (how) {
    case REDUCE_ADD: return x + y;
    case REDUCE_MIN: return x < y ? x : y;
    case REDUCE_MAX: return x > y ? x : y;
    case REDUCE_MIN_SIGNED: return (int32_t)x < (int32_t)y ? x : y;
    case REDUCE_MAX_SIGNED: return (int32_t)x > (int32_t)y ? x : y;
    case REDUCE_AND: return x & y;
    case REDUCE_OR: return x | y;
    default: return x ^ y;
    }
}

static void reduce(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const uint32_t *a = PTX_IN(uint32_t, 1);
    uint32_t first = ptx_first(mask), members = PTX_IN(uint32_t, 2)[first], r = a[first];
    if (!ptx_meet(w, s, mask, members)) {
        return;
    }
    PTX_ACTIVE(l) {
        r = l == first ? r : reduced(r, a[l], s->a);
    }
    PTX_ACTIVE(l) {
        PTX_OUT(uint32_t, 0)[l] = r;
    }
}

static void match_any(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const uint32_t *a = PTX_IN(uint32_t, 1);
    uint32_t d[PTX_LANES];
    if (!ptx_meet(w, s, mask, PTX_IN(uint32_t, 2)[ptx_first(mask)])) {
        return;
    }
    PTX_EACH(l) {
        d[l] = 0;
        PTX_EACH(m) {
            d[l] |= (uint32_t)((mask >> m & 1) && a[m] == a[l]) << m;
        }
    }
    PTX_PUT(0, d);
}

static void warp_sync(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)ptx_meet(w, s, mask, PTX_IN(uint32_t, 0)[ptx_first(mask)]);
}

/* args: the lane that is elected, whether it is this one, members. */
static void elect(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    uint32_t members = PTX_IN(uint32_t, 2)[ptx_first(mask)], d[PTX_LANES];
    if (!ptx_meet(w, s, mask, members)) {
        return;
    }
    PTX_EACH(l) {
        d[l] = ptx_first(mask);
    }
    PTX_PUT(0, d);
    ptx_put_predicate(w, s->arg[1], 1u << ptx_first(mask), mask);
}

static void active_mask(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    PTX_ACTIVE(l) {
        PTX_OUT(uint32_t, 0)[l] = mask;
    }
}

/* Nothing that this warp waits for comes from itself. */
static void sleep_step(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    ptx_clock(PTX_IN(uint32_t, 0)[ptx_first(mask)]);
    w->yield = w->slept = true;
}

/* Waits for the launches before this one: the step is repeated until the gate is open. */
static void gate_wait(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)s;
    (void)mask;
    const bool *gate = w->cta->run->launch.gate;
    if (gate && !*gate) {
        w->pc--;
        w->yield = w->stuck = w->polls_global = true;
    }
}

static void gate_release(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)s;
    (void)mask;
    w->cta->released = true;
}

static void nothing(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    (void)w;
    (void)s;
    (void)mask;
}

/* ---- decoding ---- */

static void barrier_decode(ptx_code *c)
{
    ptx_step *s = c->step;
    c->used = PTX_ALL;
    if (ptx_code_has(c, "cluster")) {
        s->run = ptx_code_has(c, "arrive") ? cluster_arrive : ptx_code_has(c, "wait") ? cluster_wait : NULL;
        return;
    }
    if (ptx_code_has(c, "warp")) {
        ptx_code_ins(c, 0, 4, 1);
        s->run = warp_sync;
        return;
    }
    bool red = ptx_code_has(c, "red");
    s->a = red ? (ptx_code_has(c, "popc") ? RED_POPC : ptx_code_has(c, "and") ? RED_AND : RED_OR)
         : ptx_code_has(c, "arrive") ? ARRIVE : SYNC;
    s->run = barrier;
    uint32_t at = red, last = red ? c->operand_count - 1 : c->operand_count;
    if (red) {
        ptx_code_outs(c, 0, s->a == RED_POPC ? 4 : 1, 1);
    }
    if (last <= at || last > at + 2) {
        ptx_code_fail(c, "this barrier is not supported");
        return;
    }
    ptx_code_ins(c, at, 4, 1);
    if (last == at + 2) {
        ptx_code_ins(c, at + 1, 4, 1);
    } else {
        ptx_code_number(c, 0, 4);
    }
    if (red) {
        s->c = c->operands[last].negated;
        ptx_code_ins(c, last, 1, 1);
    }
}

static void shuffle_decode(ptx_code *c)
{
    static const char *const kinds[] = { "up", "down", "bfly", "idx", NULL };
    int kind = ptx_code_one(c, kinds);
    const ptx_operand *o = &c->operands[0];
    if (kind < 0 || !ptx_code_has(c, "sync") || !ptx_code_has(c, "b32") || c->operand_count != 5) {
        ptx_code_fail(c, "this shuffle is not supported");
        return;
    }
    c->step->a = (uint8_t)kind;
    c->step->run = shuffle;
    ptx_code_outs(c, 0, 4, 1);
    bool pair = o->pair >= 0;
    ptx_code_out(c, &(ptx_operand){ .kind = pair ? PTX_IS_REGISTER : PTX_IS_SINK, .id = o->pair, .width = 1 }, 1);
    for (uint32_t i = 1; i < 5; i++) {
        ptx_code_ins(c, i, 4, 1);
    }
}

static void elect_decode(ptx_code *c)
{
    const ptx_operand *o = &c->operands[0];
    if (!ptx_code_has(c, "sync") || c->operand_count != 2 || o->pair < 0) {
        ptx_code_fail(c, "this election is not supported");
        return;
    }
    c->step->run = elect;
    ptx_code_outs(c, 0, 4, 1);
    ptx_code_out(c, &(ptx_operand){ .kind = PTX_IS_REGISTER, .id = o->pair, .width = 1 }, 1);
    ptx_code_ins(c, 1, 4, 1);
}

static void vote_decode(ptx_code *c)
{
    static const char *const kinds[] = { "all", "any", "uni", "ballot", NULL };
    int kind = ptx_code_one(c, kinds);
    c->used = PTX_ALL;
    if (kind < 0 || !ptx_code_has(c, "sync") || c->operand_count != 3) {
        ptx_code_fail(c, "this vote is not supported");
        return;
    }
    c->step->a = (uint8_t)kind;
    c->step->b = c->operands[1].negated;
    c->step->run = vote;
    ptx_code_outs(c, 0, kind == VOTE_BALLOT ? 4 : 1, 1);
    ptx_code_ins(c, 1, 1, 1);
    ptx_code_ins(c, 2, 4, 1);
}

static void reduce_decode(ptx_code *c)
{
    static const char *const kinds[] = { "add", "min", "max", "min", "max", "and", "or", "xor", NULL };
    int kind = ptx_code_one(c, kinds);
    bool sign = ptx_code_has(c, "s32");
    c->used = PTX_ALL;
    if (kind < 0 || ptx_code_has(c, "f32") || c->operand_count != 3) {
        ptx_code_fail(c, "this reduction is not supported");
        return;
    }
    c->step->a = (uint8_t)(sign && (kind == REDUCE_MIN || kind == REDUCE_MAX) ? kind + 2 : kind);
    c->step->run = reduce;
    ptx_code_outs(c, 0, 4, 1);
    ptx_code_ins(c, 1, 4, 1);
    ptx_code_ins(c, 2, 4, 1);
}

bool ptx_warp_decode(ptx_code *c)
{
    ptx_step *s = c->step;
    if (ptx_code_is(c, "bra")) {
        ptx_code_has(c, "uni");
        s->run = c->operand_count == 1 && c->operands[0].kind == PTX_IS_LABEL ? branch : NULL;
    } else if (ptx_code_is(c, "ret") || ptx_code_is(c, "exit")) {
        ptx_code_has(c, "uni");
        s->run = ptx_exit;
    } else if (ptx_code_is(c, "trap")) {
        s->run = trap;
    } else if (ptx_code_is(c, "bar") || ptx_code_is(c, "barrier")) {
        barrier_decode(c);
    } else if (ptx_code_is(c, "shfl")) {
        shuffle_decode(c);
    } else if (ptx_code_is(c, "elect")) {
        elect_decode(c);
    } else if (ptx_code_is(c, "vote")) {
        vote_decode(c);
    } else if (ptx_code_is(c, "redux")) {
        reduce_decode(c);
    } else if (ptx_code_is(c, "match") && ptx_code_has(c, "any") && ptx_code_has(c, "b32")) {
        c->used = PTX_ALL;
        s->run = match_any;
        ptx_code_outs(c, 0, 4, 1);
        ptx_code_ins(c, 1, 4, 1);
        ptx_code_ins(c, 2, 4, 1);
    } else if (ptx_code_is(c, "activemask")) {
        ptx_code_has(c, "b32");
        s->run = active_mask;
        ptx_code_outs(c, 0, 4, 1);
    } else if (ptx_code_is(c, "nanosleep")) {
        c->used = PTX_ALL;
        s->run = sleep_step;
        ptx_code_ins(c, 0, 4, 1);
    } else if (ptx_code_is(c, "griddepcontrol")) {
        s->run = ptx_code_has(c, "wait") ? gate_wait : ptx_code_has(c, "launch_dependents") ? gate_release : NULL;
    } else if (ptx_code_is(c, "setmaxnreg")) {
        c->used = PTX_ALL; /* registers do not run out */
        s->run = nothing;
    } else {
        return false;
    }
    return true;
}

/* ---- a turn ---- */

uint64_t ptx_warp_run(ptx_warp *w, uint64_t budget)
{
    ptx_run *run = w->cta->run;
    const ptx_step *steps = run->kernel->steps;
    uint64_t left = budget, lanes = 0;
    w->yield = w->slept = w->stuck = w->polled = w->polls_global = w->acted = false;
    ptx_warp_select(w);
    while (w->active && left > 0 && !w->yield) {
        const ptx_step *s = &steps[w->pc++];
        uint32_t mask = w->active;
        if (s->guard != PTX_NO_OPERAND) {
            uint32_t p = ptx_predicate(w, s->guard);
            mask &= s->guard_not ? ~p : p;
        }
        if (mask) {
            s->run(w, s, mask);
        }
        left--;
        lanes += mask == PTX_ALL ? PTX_LANES : ptx_count(mask);
        if (run->failed) {
            break;
        }
        if (w->changed) {
            ptx_warp_select(w);
        } else if (w->pc >= w->join) {
            settle(w);
            ptx_warp_select(w);
        }
    }
    if (!w->changed) {
        settle(w);
    }
    run->lane_instructions += lanes;
    run->instructions += budget - left;
    return budget - left;
}
