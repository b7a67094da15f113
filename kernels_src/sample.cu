/* sample.cu: logits -> tokens: keys of blocks (and penalty and bias), then weights, filters and the draw.
   takes: sample_args.h: logits of the head's rows, exl2k_draw of each.
   gives: exl2k_sample_keys, exl2k_sample_draw.
   owns:  nothing.
   next:  attend_args.h

   The chain is that of exl2_impl/3_backend/cpu_sample.h, integer for integer. Both kernels spread a row over
   vocab / 4096 CTAs, because the weights of 152,000 logits are more work than one SM does in 10 us; the CTA of a row
   that comes last does the rest alone. */
#include "sample_filter.cuh"

/* ---- what both kernels look up ---- */

EXL2K_FN void exl2k_load_draw(const exl2k_sample_args *a, exl2k_draw *to)
{
    if (threadIdx.x < sizeof(exl2k_draw) / 4) {
        ((u32 *)to)[threadIdx.x] = exl2k_load(a->draws + blockIdx.y * sizeof(exl2k_draw) + 4 * threadIdx.x);
    }
    __syncthreads();
}

EXL2K_FN bool exl2k_row_is_done(const exl2k_sample_args *a, const exl2k_draw *d)
{
    return exl2k_load(a->rows + d->row * sizeof(exl2k_row) + 12) & EXL2K_ROW_DONE;
}

EXL2K_FN bool exl2k_has_penalty(const exl2k_draw *d) { return d->penalty != 1.0f && d->history_count > 0; }

EXL2K_FN bool exl2k_is_adjusted(const exl2k_draw *d)
{
    return d->use == EXL2K_DRAW && (exl2k_has_penalty(d) || d->bias_count > 0);
}

/* Does the draw need the sum of all weights at its own temperature? */
EXL2K_FN bool exl2k_needs_sums(const exl2k_draw *d)
{
    return d->use == EXL2K_DRAW && !(d->flags & EXL2K_GREEDY) && d->top_k == 0
        && ((d->flags & EXL2K_TOP_P) || d->least_weight <= 1);
}

EXL2K_FN u32 exl2k_chunk_blocks(void) { return EXL2K_SAMPLE_CHUNK / EXL2K_SAMPLE_BLOCK; }

/* Index of the CTA's first block in `keys` and `sums`; set 0: of the logits, 1: of the draw. */
EXL2K_FN u64 exl2k_block_index(u32 set)
{
    return ((u64)(2 * blockIdx.y + set) * gridDim.x + blockIdx.x) * exl2k_chunk_blocks();
}

/* Four logits of the CTA's chunk: thread t has numbers 4 t .. 4 t + 3 of every 1,024. Behind the vocabulary: none. */
EXL2K_FN void exl2k_load_logits(const exl2k_sample_args *a, u64 from, u32 place, u32 bits[4])
{
    u32 id = blockIdx.x * EXL2K_SAMPLE_CHUNK + place;
    uint4 four = make_uint4(EXL2K_BITS_NONE, EXL2K_BITS_NONE, EXL2K_BITS_NONE, EXL2K_BITS_NONE);
    if (id < a->vocab) {
        four = exl2k_load4(from + 4 * ((u64)blockIdx.y * a->stride + id));
    }
    bits[0] = four.x;
    bits[1] = id + 1 < a->vocab ? four.y : EXL2K_BITS_NONE;
    bits[2] = id + 2 < a->vocab ? four.z : EXL2K_BITS_NONE;
    bits[3] = id + 3 < a->vocab ? four.w : EXL2K_BITS_NONE;
}

/* ---- exl2k_sample_keys ---- */

/* The largest key of each block: 16 threads have one. `place`: of the thread's four logits in the chunk. */
EXL2K_FN void exl2k_store_key(const exl2k_sample_args *a, u32 set, u32 place, const u32 bits[4])
{
    int most = EXL2K_KEY_NONE;
    for (u32 i = 0; i < 4; i++) {
        int key = exl2k_key(bits[i]);
        most = key > most ? key : most;
    }
    for (u32 step = 8; step > 0; step /= 2) {
        int other = __shfl_xor_sync(EXL2K_ALL, most, step);
        most = other > most ? other : most;
    }
    if (threadIdx.x % 16 == 0) {
        exl2k_store(a->keys + 4 * (exl2k_block_index(set) + place / EXL2K_SAMPLE_BLOCK), (u32)most);
    }
}

typedef struct exl2k_adjust_work { /* shared memory: the chunk */
    f32 logits[EXL2K_SAMPLE_CHUNK];
    u32 penalised[EXL2K_SAMPLE_CHUNK / 32], biased[EXL2K_SAMPLE_CHUNK / 32];
    u32 twice; /* a token occurs twice in the bias list */
} exl2k_adjust_work;

/* Sets the bit; true if it was not set. */
EXL2K_FN bool exl2k_set_bit(u32 *bits, u32 i)
{
    u32 bit = 1u << (i & 31);
    return !(atomicOr(&bits[i / 32], bit) & bit);
}

EXL2K_FN void exl2k_penalise(const exl2k_draw *d, exl2k_adjust_work *w, u32 first, u32 count)
{
    for (u32 i = threadIdx.x; i < d->history_count; i += EXL2K_SAMPLE_THREADS) {
        u32 at = exl2k_load(d->history + 4ull * i) - first;
        if (at < count && exl2k_set_bit(w->penalised, at)) {
            f32 x = w->logits[at];
            w->logits[at] = __fmul_rn(x, exl2k_key(__float_as_uint(x)) > 0 ? d->penalty_inverse : d->penalty);
        }
    }
}

EXL2K_FN void exl2k_add_bias(const exl2k_draw *d, exl2k_adjust_work *w, u32 first, u32 count, u32 begin, u32 step)
{
    for (u32 i = begin; i < d->bias_count; i += step) {
        u32 at = exl2k_load(d->bias + 8ull * i) - first;
        if (at < count) {
            w->logits[at] = __fadd_rn(w->logits[at], exl2k_load_f32(d->bias + 8ull * i + 4));
        }
    }
}

/* Penalty and bias on the chunk in shared memory. A token that the bias list names twice gets its sums in the order of
   the list: by one thread. */
EXL2K_FN void exl2k_adjust(const exl2k_sample_args *a, const exl2k_draw *d, exl2k_adjust_work *w)
{
    u32 first = blockIdx.x * EXL2K_SAMPLE_CHUNK, count = exl2k_min(a->vocab - first, EXL2K_SAMPLE_CHUNK);
    for (u32 i = threadIdx.x; i < EXL2K_SAMPLE_CHUNK / 32; i += EXL2K_SAMPLE_THREADS) {
        w->penalised[i] = w->biased[i] = 0;
    }
    if (threadIdx.x == 0) {
        w->twice = 0;
    }
    __syncthreads();
    if (exl2k_has_penalty(d)) {
        exl2k_penalise(d, w, first, count);
    }
    for (u32 i = threadIdx.x; i < d->bias_count; i += EXL2K_SAMPLE_THREADS) {
        u32 at = exl2k_load(d->bias + 8ull * i) - first;
        if (at < count && !exl2k_set_bit(w->biased, at)) {
            w->twice = 1;
        }
    }
    __syncthreads();
    if (!w->twice) {
        exl2k_add_bias(d, w, first, count, threadIdx.x, EXL2K_SAMPLE_THREADS);
    } else if (threadIdx.x == 0) {
        exl2k_add_bias(d, w, first, count, 0, 1);
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(EXL2K_SAMPLE_THREADS) exl2k_sample_keys(exl2k_sample_args a)
{
    __shared__ exl2k_adjust_work w;
    __shared__ exl2k_draw d;
    exl2k_dependency_wait();
    exl2k_dependency_release();
    if (blockIdx.y >= exl2k_load(a.step + 4)) {
        return;
    }
    exl2k_load_draw(&a, &d);
    bool adjusted = exl2k_is_adjusted(&d);
    if (exl2k_row_is_done(&a, &d)) {
        return;
    }
    for (u32 place = 4 * threadIdx.x; place < EXL2K_SAMPLE_CHUNK; place += 4 * EXL2K_SAMPLE_THREADS) {
        u32 bits[4];
        exl2k_load_logits(&a, a.logits, place, bits);
        exl2k_store_key(&a, 0, place, bits);
        for (u32 i = 0; i < 4 && adjusted; i++) {
            w.logits[place + i] = __uint_as_float(bits[i]);
        }
    }
    if (!adjusted) {
        return;
    }
    __syncthreads();
    exl2k_adjust(&a, &d, &w);
    for (u32 place = 4 * threadIdx.x; place < EXL2K_SAMPLE_CHUNK; place += 4 * EXL2K_SAMPLE_THREADS) {
        u32 bits[4], id = blockIdx.x * EXL2K_SAMPLE_CHUNK + place;
        for (u32 i = 0; i < 4; i++) {
            bits[i] = __float_as_uint(w.logits[place + i]);
        }
        exl2k_store_key(&a, 1, place, bits);
        if (id < a.vocab) {
            exl2k_store4(a.adjusted + 4 * ((u64)blockIdx.y * a.stride + id),
                         make_uint4(bits[0], bits[1], bits[2], bits[3]));
        }
    }
}

/* ---- exl2k_sample_draw ---- */

EXL2K_FN exl2k_row_view exl2k_view(const exl2k_sample_args *a, exl2k_sample_work *w, u64 logits, u32 set)
{
    exl2k_row_view v;
    u64 first = (u64)(2 * blockIdx.y + set) * gridDim.x * exl2k_chunk_blocks();
    v.w = w;
    v.vocab = a->vocab;
    v.blocks = (a->vocab + EXL2K_SAMPLE_BLOCK - 1) / EXL2K_SAMPLE_BLOCK;
    v.logits = logits + 4 * (u64)blockIdx.y * a->stride;
    v.keys = a->keys + 4 * first;
    v.sums = a->sums + 8 * first;
    return v;
}

/* Largest key of the row. */
EXL2K_FN int exl2k_row_top(const exl2k_row_view *v)
{
    int most = EXL2K_KEY_NONE;
    for (u32 i = threadIdx.x; i < v->blocks; i += EXL2K_SAMPLE_THREADS) {
        int key = (int)exl2k_load(v->keys + 4ull * i);
        most = key > most ? key : most;
    }
    for (u32 step = 16; step > 0; step /= 2) {
        int other = __shfl_xor_sync(EXL2K_ALL, most, step);
        most = other > most ? other : most;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        v->w->keys[threadIdx.x / 32] = most;
    }
    __syncthreads();
    for (u32 i = 0; i < EXL2K_SAMPLE_WARPS; i++) {
        most = v->w->keys[i] > most ? v->w->keys[i] : most;
    }
    return most;
}

/* Sums of the weights of the CTA's blocks. */
EXL2K_FN void exl2k_store_sums(const exl2k_sample_args *a, const exl2k_curve *curve, u64 logits, u32 set)
{
    for (u32 place = 4 * threadIdx.x; place < EXL2K_SAMPLE_CHUNK; place += 4 * EXL2K_SAMPLE_THREADS) {
        u32 bits[4];
        u64 sum = 0;
        exl2k_load_logits(a, logits, place, bits);
        for (u32 i = 0; i < 4; i++) {
            sum += exl2k_weight(curve, __uint_as_float(bits[i]));
        }
        for (u32 step = 8; step > 0; step /= 2) {
            sum += __shfl_xor_sync(EXL2K_ALL, sum, step);
        }
        u64 at = a->sums + 8 * (exl2k_block_index(set) + place / EXL2K_SAMPLE_BLOCK);
        if (threadIdx.x % 16 == 0) {
            exl2k_store(at, (u32)sum);
            exl2k_store(at + 4, (u32)(sum >> 32));
        }
    }
}

EXL2K_FN u64 exl2k_row_sum(const exl2k_row_view *v)
{
    u64 sum[3] = { 0, 0, 0 };
    for (u32 i = threadIdx.x; i < v->blocks; i += EXL2K_SAMPLE_THREADS) {
        sum[0] += exl2k_load64(v->sums + 8ull * i);
    }
    exl2k_block_sum3(v->w, sum);
    return sum[0];
}

/* The likeliest tokens, in order, into the result. */
EXL2K_FN u32 exl2k_alternatives(const exl2k_row_view *v, u32 wanted, exl2k_result *result)
{
    exl2k_items items = exl2k_keep_first(v, exl2k_min(wanted, EXL2K_ALTS_MAX), false);
    u32 begin, end;
    exl2k_segment(items.count, &begin, &end);
    u32 ties = exl2k_segment_ties(v, &items, begin, end);
    if (threadIdx.x == 0) {
        v->w->counter = 0;
    }
    __syncthreads();
    for (u32 i = begin; i < end; i++) {
        int key = exl2k_item_key(v, &items, i);
        bool tie = key == items.cut.key && ties > 0;
        ties -= tie;
        if (tie || key > items.cut.key) {
            u32 at = atomicAdd(&v->w->counter, 1);
            v->w->alt_ids[at] = items.kind == EXL2K_ITEMS_LIST ? v->w->ids[i] : i;
            v->w->alt_keys[at] = key;
        }
    }
    __syncthreads();
    u32 count = v->w->counter;
    if (threadIdx.x < count) {
        u32 id = v->w->alt_ids[threadIdx.x], place = 0;
        int key = v->w->alt_keys[threadIdx.x];
        for (u32 i = 0; i < count; i++) {
            place += v->w->alt_keys[i] > key || (v->w->alt_keys[i] == key && v->w->alt_ids[i] < id);
        }
        result->alts[place].token = id;
        result->alts[place].logit = exl2k_load_f32(v->logits + 4ull * id);
    }
    __syncthreads();
    return count;
}

/* The drawn token: steps 3 to 8 of the chain. */
EXL2K_FN u32 exl2k_pick(const exl2k_row_view *v, const exl2k_draw *d)
{
    if (d->flags & EXL2K_GREEDY) {
        return exl2k_first_of(v);
    }
    u64 random = exl2k_random(d->seed, d->position);
    bool top_p = d->flags & EXL2K_TOP_P;
    if (d->top_k == 0 && !top_p && d->least_weight <= 1) {
        return exl2k_draw_all(v, random);
    }
    exl2k_items items;
    if (d->top_k == 0 && top_p) {
        items = exl2k_keep_nucleus(v, exl2k_row_sum(v), d->share, d->least_weight);
    } else if (d->top_k == 0) {
        items = exl2k_collect(v, exl2k_least_key(&v->curve, d->least_weight), EXL2K_KEY_INF, true);
    } else {
        items = exl2k_keep_first(v, d->top_k, true);
        if (top_p) {
            u64 need = __umul64hi(exl2k_items_sum(v, &items), d->share);
            items.cut = exl2k_prefix(v, &items, need > 1 ? need : 1);
        }
        exl2k_keep_weighty(v, &items, d->least_weight);
    }
    return exl2k_draw_from(v, &items, random);
}

/* The row's next position, or its end. */
EXL2K_FN void exl2k_advance(const exl2k_sample_args *a, const exl2k_draw *d, u32 token)
{
    exl2k_draw *to = (exl2k_draw *)a->draws + blockIdx.y;
    exl2k_row *row = (exl2k_row *)a->rows + d->row;
    bool done = token == EXL2K_NO_TOKEN || d->left <= 1;
    for (u32 i = 0; i < d->stop_count; i++) {
        done = done || exl2k_load(d->stops + 4ull * i) == token;
    }
    if (d->history_size > 0 && token != EXL2K_NO_TOKEN) {
        exl2k_store(d->history + 4ull * d->history_next, token);
        to->history_next = d->history_next + 1 < d->history_size ? d->history_next + 1 : 0;
        to->history_count = exl2k_min(d->history_count + 1, d->history_size);
    }
    to->left = d->left - 1;
    to->position = d->position + 1;
    row->token = token;
    row->position = exl2k_load(a->rows + d->row * sizeof(exl2k_row) + 4) + 1;
    row->flags = done ? EXL2K_ROW_DONE : 0;
}

/* Hands the result over, then counts the row. One thread, after a barrier; the others' parts are in the result. */
EXL2K_FN void exl2k_finish(const exl2k_sample_args *a, exl2k_result *result, u32 ticket, u32 token)
{
    exl2k_step *step = (exl2k_step *)a->step;
    __threadfence_system();
    *(volatile u64 *)&result->stamp = token | (u64)(ticket + 1) << 32;
    __threadfence();
    if (atomicInc(&step->sampled, exl2k_load(a->step + 4) - 1) + 1 == exl2k_load(a->step + 4)) {
        step->ticket = ticket + 1;
    }
}

/* Everything behind the sums; by the CTA of the row that came last. */
EXL2K_FN void exl2k_finish_row(const exl2k_sample_args *a, exl2k_row_view *raw, exl2k_row_view *own, u32 ticket)
{
    const exl2k_draw *d = &raw->w->draw;
    exl2k_result *result = (exl2k_result *)a->results + (u64)(ticket & 1) * a->rows_max + blockIdx.y;
    bool any = raw->curve.top_key != EXL2K_KEY_NONE;
    u32 token = EXL2K_NO_TOKEN, alts = 0;
    u64 sum = any ? exl2k_row_sum(raw) : 0;
    if (any && d->alts > 0) {
        alts = exl2k_alternatives(raw, d->alts, result);
    }
    if (any && d->use == EXL2K_SCORE) {
        token = d->target;
    } else if (any && own->curve.top_key != EXL2K_KEY_NONE) {
        token = exl2k_pick(own, d);
    }
    if (alts > 0) {
        __threadfence_system();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        bool known = token < a->vocab;
        result->sum = sum;
        result->top_key = raw->curve.top_key;
        result->logit = known ? exl2k_load_f32(raw->logits + 4ull * token) : exl2k_key_logit(EXL2K_KEY_NONE);
        result->alt_count = alts;
        if (d->use == EXL2K_DRAW && (d->flags & EXL2K_ADVANCE)) {
            exl2k_advance(a, d, token);
        }
        exl2k_finish(a, result, ticket, token);
    }
}

/* A row that ended in an earlier pass. */
EXL2K_FN void exl2k_skip_row(const exl2k_sample_args *a, u32 ticket)
{
    exl2k_result *result = (exl2k_result *)a->results + (u64)(ticket & 1) * a->rows_max + blockIdx.y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        result->sum = 0;
        result->top_key = EXL2K_KEY_NONE;
        result->logit = exl2k_key_logit(EXL2K_KEY_NONE);
        result->alt_count = 0;
        exl2k_finish(a, result, ticket, EXL2K_NO_TOKEN);
    }
}

/* Is this the last CTA of its row? What the others have written is there then. */
EXL2K_FN bool exl2k_last_of_row(const exl2k_sample_args *a, exl2k_sample_work *w)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        w->counter = atomicInc((u32 *)a->tickets + blockIdx.y, gridDim.x - 1);
    }
    __syncthreads();
    __threadfence();
    return w->counter == gridDim.x - 1;
}

extern "C" __global__ void __launch_bounds__(EXL2K_SAMPLE_THREADS, 1) exl2k_sample_draw(exl2k_sample_args a)
{
    __shared__ exl2k_sample_work w;
    exl2k_dependency_wait();
    if (blockIdx.y >= exl2k_load(a.step + 4)) {
        return;
    }
    u32 ticket = exl2k_load(a.step + 12);
    if (threadIdx.x < 8) {
        w.eighths[threadIdx.x] = exl2k_eighths[threadIdx.x];
    }
    exl2k_load_draw(&a, &w.draw);
    if (exl2k_row_is_done(&a, &w.draw)) {
        exl2k_skip_row(&a, ticket);
        return;
    }
    bool adjusted = exl2k_is_adjusted(&w.draw);
    exl2k_row_view raw = exl2k_view(&a, &w, a.logits, 0);
    exl2k_row_view own = exl2k_view(&a, &w, adjusted ? a.adjusted : a.logits, adjusted);
    raw.curve = exl2k_curve_make(exl2k_row_top(&raw), EXL2K_SLOPE_ONE, w.eighths);
    int top_key = adjusted ? exl2k_row_top(&own) : raw.curve.top_key;
    own.curve = exl2k_curve_make(top_key, w.draw.slope, w.eighths);
    if (raw.curve.top_key != EXL2K_KEY_NONE) {
        exl2k_store_sums(&a, &raw.curve, a.logits, 0);
    }
    own.sums = exl2k_view(&a, &w, a.logits, 1).sums;
    if (exl2k_needs_sums(&w.draw) && own.curve.top_key != EXL2K_KEY_NONE) {
        exl2k_store_sums(&a, &own.curve, adjusted ? a.adjusted : a.logits, 1);
    }
    if (exl2k_last_of_row(&a, &w)) {
        exl2k_finish_row(&a, &raw, &own, ticket);
    }
}
