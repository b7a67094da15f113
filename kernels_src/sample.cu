/* sample.cu: samples tokens from logits: largest keys of blocks (with penalty and bias), then weights, filters,
   sampling.
   takes: sample_args.h: the head's rows of logits, and the exl2k_sampling of each.
   gives: exl2k_sample_keys, exl2k_sample_token.

   The steps and all integers are those of exl2_impl/3_backend/sample/cpu_sample.h. Both kernels spread a row over up
   to vocab / 4096 CTAs, because computing the weights of 152,000 logits is more work than one SM can do in 10 us. With
   many rows a CTA of the second one has several chunks of 4096 logits, because what surrounds the work on a chunk costs
   more than that. The last CTA of a row to finish its chunks does the rest of the row alone. */
#include "sample_filter.cuh"

/* ---- data that both kernels load ---- */

EXL2K_FN void exl2k_load_sampling(const exl2k_sample_args *a, exl2k_sampling *to)
{
    if (threadIdx.x < sizeof(exl2k_sampling) / 4) {
        ((u32 *)to)[threadIdx.x] = exl2k_load(a->samplings + blockIdx.y * sizeof(exl2k_sampling) + 4 * threadIdx.x);
    }
    __syncthreads();
}

EXL2K_FN u32 exl2k_logit_count(const exl2k_sample_args *a)
{
    return exl2k_load((u64)&((const exl2k_pass *)a->pass)->logit_count);
}

/* Word 1 of exl2k_row is the position, word 3 the flags. */
EXL2K_FN u32 exl2k_row_word(const exl2k_sample_args *a, const exl2k_sampling *d, u32 word)
{
    return exl2k_load(a->rows + d->row * sizeof(exl2k_row) + 4 * word);
}

EXL2K_FN bool exl2k_has_penalty(const exl2k_sampling *d) { return d->penalty != 1.0f && d->history_count > 0; }

EXL2K_FN bool exl2k_is_adjusted(const exl2k_sampling *d)
{
    return d->use == EXL2K_SAMPLE && (exl2k_has_penalty(d) || d->bias_count > 0 || d->mask != 0);
}

/* Whether the sampling needs the sum of all weights at the row's own temperature. */
EXL2K_FN bool exl2k_needs_sums(const exl2k_sampling *d)
{
    return d->use == EXL2K_SAMPLE && !(d->flags & EXL2K_GREEDY) && d->top_k == 0
        && ((d->flags & EXL2K_TOP_P) || d->least_weight <= 1);
}

#define EXL2K_CHUNK_BLOCKS (EXL2K_SAMPLE_CHUNK / EXL2K_SAMPLE_BLOCK)
#define EXL2K_CHUNK_FOURS (EXL2K_SAMPLE_CHUNK / 4 / EXL2K_SAMPLE_THREADS)

EXL2K_FN u64 exl2k_state(const exl2k_sample_args *a) { return a->states + blockIdx.y * sizeof(exl2k_sample_state); }

/* Thread t has logits 4 t .. 4 t + 3 of every 1,024 logits of the CTA's chunk; 16 threads share a block. */
EXL2K_FN u32 exl2k_logit_index(u32 n) { return 4 * (threadIdx.x + n * EXL2K_SAMPLE_THREADS); }

/* Loads the thread's logits of a chunk. Beyond the vocabulary they are EXL2K_BITS_NONE. */
EXL2K_FN void exl2k_load_logits(const exl2k_sample_args *a, u64 from, u32 chunk, u32 bits[EXL2K_CHUNK_FOURS][4])
{
    uint4 four[EXL2K_CHUNK_FOURS];
    /* All loads are issued before the first use. */
#pragma unroll
    for (u32 n = 0; n < EXL2K_CHUNK_FOURS; n++) {
        u32 id = chunk * EXL2K_SAMPLE_CHUNK + exl2k_logit_index(n);
        four[n] = exl2k_load4(from + 4 * ((u64)blockIdx.y * a->stride + (id < a->vocab ? id : 0)));
    }
#pragma unroll
    for (u32 n = 0; n < EXL2K_CHUNK_FOURS; n++) {
        u32 id = chunk * EXL2K_SAMPLE_CHUNK + exl2k_logit_index(n);
        bits[n][0] = id < a->vocab ? four[n].x : EXL2K_BITS_NONE;
        bits[n][1] = id + 1 < a->vocab ? four[n].y : EXL2K_BITS_NONE;
        bits[n][2] = id + 2 < a->vocab ? four[n].z : EXL2K_BITS_NONE;
        bits[n][3] = id + 3 < a->vocab ? four[n].w : EXL2K_BITS_NONE;
    }
}

/* ---- exl2k_sample_keys ---- */

/* Stores the largest key of each block, and the first token with the row's largest key. If the row is done, only the
   keys of blocks are stored. set 0: unmodified logits, 1: adjusted logits. */
EXL2K_FN void exl2k_store_keys(const exl2k_sample_args *a, u32 set, const u32 bits[EXL2K_CHUNK_FOURS][4], u32 flags)
{
    u64 first = ((u64)(2 * blockIdx.y + set) * a->chunks + blockIdx.x) * EXL2K_CHUNK_BLOCKS;
    int best_key = EXL2K_KEY_NONE - 1;
    u32 best_id = 0;
#pragma unroll
    for (u32 n = 0; n < EXL2K_CHUNK_FOURS; n++) {
        /* Find the largest key of the block: of the thread's four logits, then of the block's 16 threads. */
        int most = EXL2K_KEY_NONE;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            int key = exl2k_key(bits[n][i]);
            best_id = key > best_key ? blockIdx.x * EXL2K_SAMPLE_CHUNK + exl2k_logit_index(n) + i : best_id;
            best_key = key > best_key ? key : best_key;
            most = key > most ? key : most;
        }
        for (u32 step = 8; step > 0; step /= 2) {
            int other = __shfl_xor_sync(EXL2K_ALL, most, step);
            most = other > most ? other : most;
        }
        if (threadIdx.x % 16 == 0) {
            exl2k_store(a->keys + 4 * (first + exl2k_logit_index(n) / EXL2K_SAMPLE_BLOCK), (u32)most);
        }
    }
    /* The largest key of the CTA, with the smallest id, goes to the row's state. */
    u64 best = (u64)((u32)best_key ^ 0x80000000u) << 32 | ~best_id;
    for (u32 step = 16; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(EXL2K_ALL, best, step);
        best = other > best ? other : best;
    }
    if (threadIdx.x % 32 == 0 && !(flags & EXL2K_ROW_DONE)) {
        atomicMax((u64 *)exl2k_state(a) + set, best);
    }
}

typedef struct exl2k_adjust_work { /* shared memory: data of the chunk */
    __align__(16) f32 logits[EXL2K_SAMPLE_CHUNK];
    u32 penalised[EXL2K_SAMPLE_CHUNK / 32], biased[EXL2K_SAMPLE_CHUNK / 32];
    u32 has_duplicates; /* a token occurs twice in the bias list */
} exl2k_adjust_work;

/* Sets a bit; returns true if it was not set before. */
EXL2K_FN bool exl2k_set_bit(u32 *bits, u32 i)
{
    u32 bit = 1u << (i & 31);
    return !(atomicOr(&bits[i / 32], bit) & bit);
}

/* Applies the repetition penalty, once to each token of the history. */
EXL2K_FN void exl2k_penalise(const exl2k_sampling *d, exl2k_adjust_work *w, u32 first, u32 count)
{
#pragma unroll 1
    for (u32 i = threadIdx.x; i < d->history_count; i += EXL2K_SAMPLE_THREADS) {
        u32 at = exl2k_load(d->history + 4ull * i) - first;
        if (at < count && exl2k_set_bit(w->penalised, at)) {
            f32 x = w->logits[at];
            w->logits[at] = __fmul_rn(x, exl2k_key(__float_as_uint(x)) > 0 ? d->penalty_inverse : d->penalty);
        }
    }
}

/* Adds the bias list, with every `step`-th entry done by this thread. */
EXL2K_FN void exl2k_add_bias(const exl2k_sampling *d, exl2k_adjust_work *w, u32 first, u32 count, u32 step)
{
#pragma unroll 1
    for (u32 i = threadIdx.x; i < d->bias_count; i += step) {
        u32 at = exl2k_load(d->bias + 8ull * i) - first;
        if (at < count) {
            w->logits[at] = __fadd_rn(w->logits[at], exl2k_load_f32(d->bias + 8ull * i + 4));
        }
    }
}

/* Four bits: which of the thread's n-th four tokens are allowed. */
EXL2K_FN u32 exl2k_allowed(const exl2k_sample_args *a, const exl2k_sampling *d, u32 n)
{
    u32 id = blockIdx.x * EXL2K_SAMPLE_CHUNK + exl2k_logit_index(n);
    return d->mask && id < a->vocab ? exl2k_load(d->mask + id / 32 * 4ull) >> (id & 31) : 15;
}

/* Applies mask, penalty and bias. If the bias list names a token twice, one thread adds all entries in the order of
   the list. */
EXL2K_FN void exl2k_adjust(const exl2k_sample_args *a, const exl2k_sampling *d, exl2k_adjust_work *w,
                           u32 bits[EXL2K_CHUNK_FOURS][4])
{
    u32 first = blockIdx.x * EXL2K_SAMPLE_CHUNK, count = exl2k_min(a->vocab - first, EXL2K_SAMPLE_CHUNK);
    /* The chunk goes to shared memory; tokens that the mask does not allow get no weight. */
#pragma unroll
    for (u32 n = 0; n < EXL2K_CHUNK_FOURS; n++) {
        u32 allowed = exl2k_allowed(a, d, n);
        *(uint4 *)&w->logits[exl2k_logit_index(n)] =
            make_uint4(allowed & 1 ? bits[n][0] : EXL2K_BITS_NONE, allowed & 2 ? bits[n][1] : EXL2K_BITS_NONE,
                       allowed & 4 ? bits[n][2] : EXL2K_BITS_NONE, allowed & 8 ? bits[n][3] : EXL2K_BITS_NONE);
    }
    if (threadIdx.x < EXL2K_SAMPLE_CHUNK / 32) {
        w->penalised[threadIdx.x] = w->biased[threadIdx.x] = 0;
    }
    if (threadIdx.x == 0) {
        w->has_duplicates = 0;
    }
    __syncthreads();
    /* Apply the penalty, and check whether a token occurs twice in the bias list. */
    if (exl2k_has_penalty(d)) {
        exl2k_penalise(d, w, first, count);
    }
#pragma unroll 1
    for (u32 i = threadIdx.x; i < d->bias_count; i += EXL2K_SAMPLE_THREADS) {
        u32 at = exl2k_load(d->bias + 8ull * i) - first;
        if (at < count && !exl2k_set_bit(w->biased, at)) {
            w->has_duplicates = 1;
        }
    }
    __syncthreads();
    /* Add the bias. */
    if (!w->has_duplicates || threadIdx.x == 0) {
        exl2k_add_bias(d, w, first, count, w->has_duplicates ? 1 : EXL2K_SAMPLE_THREADS);
    }
    __syncthreads();
    /* The adjusted logits go back to registers and to global memory. */
#pragma unroll
    for (u32 n = 0; n < EXL2K_CHUNK_FOURS; n++) {
        uint4 four = *(const uint4 *)&w->logits[exl2k_logit_index(n)];
        if (exl2k_logit_index(n) < count) {
            exl2k_store4(a->adjusted + 4 * ((u64)blockIdx.y * a->stride + first + exl2k_logit_index(n)), four);
        }
        bits[n][0] = four.x;
        bits[n][1] = four.y;
        bits[n][2] = four.z;
        bits[n][3] = four.w;
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_SAMPLE_THREADS) exl2k_sample_keys(exl2k_sample_args a)
{
    __shared__ exl2k_adjust_work w;
    __shared__ exl2k_sampling d;
    u32 bits[EXL2K_CHUNK_FOURS][4];
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Load the logits and the sampling settings. Checks come after all loads are issued. */
    exl2k_load_logits(&a, a.logits, blockIdx.x, bits);
    u32 count = exl2k_logit_count(&a);
    exl2k_load_sampling(&a, &d);
    if (blockIdx.y >= count) {
        return;
    }
    u32 flags = exl2k_row_word(&a, &d, 3); /* read late, like all values loaded here */
    /* Store the keys of the logits and, if the row is adjusted, of the adjusted logits. */
#pragma unroll 1
    for (u32 set = 0;; set++) {
        exl2k_store_keys(&a, set, bits, flags);
        if (set == exl2k_is_adjusted(&d) || flags & EXL2K_ROW_DONE) {
            return;
        }
        exl2k_adjust(&a, &d, &w, bits);
    }
}

/* ---- exl2k_sample_token ---- */

EXL2K_FN exl2k_row_view exl2k_view_make(const exl2k_sample_args *a, u64 logits, u32 set, int top_key, f32 slope)
{
    exl2k_row_view v;
    v.vocab = a->vocab;
    v.blocks = (a->vocab + EXL2K_SAMPLE_BLOCK - 1) / EXL2K_SAMPLE_BLOCK;
    v.logits = logits + 4 * (u64)blockIdx.y * a->stride;
    v.keys = a->keys + 4 * (u64)(2 * blockIdx.y + set) * a->chunks * EXL2K_CHUNK_BLOCKS;
    v.sums = a->sums + 8 * (u64)blockIdx.y * a->chunks * EXL2K_CHUNK_BLOCKS;
    v.curve = exl2k_curve_make(top_key, slope);
    return v;
}

/* Moves the next four logits to the front, so that a loop that is not unrolled finds them in the same registers. */
EXL2K_FN void exl2k_next_four(u32 bits[EXL2K_CHUNK_FOURS][4])
{
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 first = bits[0][i];
        for (u32 n = 0; n + 1 < EXL2K_CHUNK_FOURS; n++) {
            bits[n][i] = bits[n + 1][i];
        }
        bits[EXL2K_CHUNK_FOURS - 1][i] = first;
    }
}

/* Sum of the thread's weights of a chunk. store: also stores the sums of its blocks. bin: also counts the weights in
   bins. */
EXL2K_FN u64 exl2k_chunk_sum(const exl2k_sample_args *a, const exl2k_curve *curve, u32 chunk,
                             u32 bits[EXL2K_CHUNK_FOURS][4], bool store, bool bin, exl2k_outer_bins *outer)
{
    u64 total = 0, first = ((u64)blockIdx.y * a->chunks + chunk) * EXL2K_CHUNK_BLOCKS;
#pragma unroll 1
    for (u32 n = 0; n < EXL2K_CHUNK_FOURS; n++, exl2k_next_four(bits)) {
        u64 sum = 0;
        /* Compute the weights of four logits. */
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 steps = exl2k_steps(curve, __uint_as_float(bits[0][i]));
            u64 weight = exl2k_exp2(steps);
            sum += weight;
            if (bin && exl2k_key(bits[0][i]) != EXL2K_KEY_NONE) {
                exl2k_count_weight(outer, steps, weight);
            }
        }
        total += sum;
        /* Sum the block over its 16 threads. */
        if (store) {
            for (u32 step = 8; step > 0; step /= 2) {
                sum += __shfl_xor_sync(EXL2K_ALL, sum, step);
            }
            u64 at = a->sums + 8 * (first + exl2k_logit_index(n) / EXL2K_SAMPLE_BLOCK);
            if (threadIdx.x % 16 == 0) {
                exl2k_store(at, (u32)sum);
                exl2k_store(at + 4, (u32)(sum >> 32));
            }
        }
    }
    return total;
}

/* Writes the most probable tokens to the result, in order; returns their number. */
EXL2K_NOINLINE u32 exl2k_alternatives(u32 wanted, exl2k_result *result)
{
    /* The first tokens in order are the survivors of top-k. */
    exl2k_keep_top_k(exl2k_min(wanted, EXL2K_ALTS_MAX), false);
    u32 begin, end;
    bool list = exl2k_w.items.kind == EXL2K_ITEMS_LIST;
    int cut = exl2k_w.items.cut_key;
    /* Collect them, in any order. */
    exl2k_segment(exl2k_w.items.count, &begin, &end);
    u32 ties = exl2k_segment_ties(list, begin, end);
    if (threadIdx.x == 0) {
        exl2k_w.counter = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = begin; i < end; i++) {
        int key = exl2k_token_key(list, i);
        bool tie = key == cut && ties > 0;
        ties -= tie;
        if (tie || key > cut) {
            u32 at = atomicAdd(&exl2k_w.counter, 1);
            exl2k_w.alt_ids[at] = list ? exl2k_w.ids[i] : i;
            exl2k_w.alt_keys[at] = key;
        }
    }
    __syncthreads();
    /* Each thread ranks one token, and writes it at its position. */
    u32 count = exl2k_w.counter;
    if (threadIdx.x < count) {
        u32 id = exl2k_w.alt_ids[threadIdx.x], rank = 0;
        int key = exl2k_w.alt_keys[threadIdx.x];
#pragma unroll 1
        for (u32 i = 0; i < count; i++) {
            rank += exl2k_w.alt_keys[i] > key || (exl2k_w.alt_keys[i] == key && exl2k_w.alt_ids[i] < id);
        }
        result->alts[rank].token = id;
        result->alts[rank].logit = exl2k_load_f32(exl2k_w.view.logits + 4ull * id);
    }
    __threadfence_system();
    __syncthreads();
    return count;
}

/* The sampled token: applies the filters, then picks a survivor. sum: of all weights, if exl2k_needs_sums. */
EXL2K_NOINLINE u32 exl2k_pick(u64 sum, u64 bins)
{
    const exl2k_sampling *d = &exl2k_w.sampling;
    u64 random = exl2k_random(d->seed, d->position), least_weight = d->least_weight;
    bool top_p = d->flags & EXL2K_TOP_P;
    /* Without filters, pick by the sums of blocks, which exl2k_chunk_sum has stored. */
    if (d->top_k == 0 && !top_p && least_weight <= 1) {
        return exl2k_pick_blocks(EXL2K_KEY_NONE, exl2k_w.view.vocab, random);
    }
    /* Apply top-p and min-p to the whole row, or min-p alone, or top-k, then top-p, then min-p. */
    if (d->top_k == 0 && top_p) {
        exl2k_keep_top_p_min_p(bins, sum, d->top_p, least_weight);
    } else if (d->top_k == 0) {
        exl2k_collect(exl2k_least_key(least_weight, EXL2K_SAMPLE_BINS), EXL2K_KEY_INF, true);
    } else {
        exl2k_keep_top_k(d->top_k, true);
        if (top_p) {
            exl2k_keep_top_p(exl2k_items_sum(), d->top_p);
        }
        exl2k_keep_min_p(least_weight);
    }
    return exl2k_pick_survivor(random);
}

/* Moves the row to the position after `position`, or ends it. */
EXL2K_FN void exl2k_advance(const exl2k_sample_args *a, const exl2k_sampling *d, u32 token, u32 position)
{
    exl2k_sampling *to = (exl2k_sampling *)a->samplings + blockIdx.y;
    exl2k_row *row = (exl2k_row *)a->rows + d->row;
    bool done = token == EXL2K_NO_TOKEN || d->left <= 1;
    /* The token joins the ring of the history. */
    if (d->history_size > 0 && token != EXL2K_NO_TOKEN) {
        exl2k_store(d->history + 4ull * d->history_next, token);
        to->history_next = d->history_next + 1 < d->history_size ? d->history_next + 1 : 0;
        to->history_count = exl2k_min(d->history_count + 1, d->history_size);
    }
    /* Update the sampling and the row for the next pass. */
    to->left = d->left - 1;
    to->position = d->position + 1;
    row->token = token;
    row->position = position + 1;
    row->flags = done ? EXL2K_ROW_DONE : row->flags >> EXL2K_ROW_MOVED << EXL2K_ROW_MOVED; /* the angle stays apart */
}

/* Values that all rows of a pass share. */
typedef struct exl2k_pass_counts { u32 ticket, count; } exl2k_pass_counts;

/* Counts the row as sampled, and publishes the result. Called by one thread after a barrier; other threads may have
   written parts of the result before it. */
EXL2K_FN void exl2k_publish(const exl2k_sample_args *a, exl2k_result *result, exl2k_pass_counts pass, u32 token)
{
    exl2k_pass *step = (exl2k_pass *)a->pass;
    /* The stamp is written after all other parts of the result are visible to the CPU. */
    u32 before = atomicInc(&step->sampled, pass.count - 1);
    __threadfence_system();
    *(volatile u64 *)&result->stamp = token | (u64)(pass.ticket + 1) << 32;
    if (before + 1 == pass.count) {
        step->ticket = pass.ticket + 1;
    }
}

/* Does the rest of the row after the sums. Called by the last CTA of the row. */
EXL2K_FN void exl2k_finish_row(const exl2k_sample_args *a, const exl2k_row_view &raw, const exl2k_row_view &own,
                               u64 best, exl2k_pass_counts pass, u32 position)
{
    const exl2k_sampling *d = &exl2k_w.sampling;
    u64 set = pass.ticket % EXL2K_RESULT_SETS;
    exl2k_result *result = (exl2k_result *)a->results + set * a->rows_max + blockIdx.y;
    bool any = raw.curve.top_key != EXL2K_KEY_NONE;
    u32 token = EXL2K_NO_TOKEN, alts = 0;
    u64 sum = exl2k_load64(exl2k_state(a) + 16), own_sum = exl2k_load64(exl2k_state(a) + 24);
    /* Find the alternatives among the unmodified logits. */
    if (any && d->alts > 0) {
        exl2k_view_set(raw);
        alts = exl2k_alternatives(d->alts, result);
    }
    /* Choose the token: the given one, the most probable one, or a sampled one. */
    if (any && d->use == EXL2K_SCORE) {
        token = d->target;
    } else if (any && own.curve.top_key != EXL2K_KEY_NONE) {
        token = ~(u32)best;
        if (!(d->flags & EXL2K_GREEDY)) {
            exl2k_view_set(own);
            token = exl2k_pick(own_sum, exl2k_bins_at(a));
        }
    }
    /* One thread resets the row's state, writes the result, and advances the row. */
    if (threadIdx.x == 0) {
        f32 logit = token < a->vocab ? exl2k_load_f32(raw.logits + 4ull * token) : exl2k_key_logit(EXL2K_KEY_NONE);
        *(exl2k_sample_state *)exl2k_state(a) = exl2k_sample_state();
        result->sum = sum;
        result->top_key = raw.curve.top_key;
        result->logit = logit;
        result->alt_count = alts;
        if (d->use == EXL2K_SAMPLE && (d->flags & EXL2K_ADVANCE)) {
            exl2k_advance(a, d, token, position);
        }
        exl2k_publish(a, result, pass, token);
    }
}

/* Result of a row that ended in an earlier pass. */
EXL2K_FN void exl2k_skip_row(const exl2k_sample_args *a, exl2k_pass_counts pass)
{
    u64 set = pass.ticket % EXL2K_RESULT_SETS;
    exl2k_result *result = (exl2k_result *)a->results + set * a->rows_max + blockIdx.y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        result->sum = 0;
        result->top_key = EXL2K_KEY_NONE;
        result->logit = exl2k_key_logit(EXL2K_KEY_NONE);
        result->alt_count = 0;
        exl2k_publish(a, result, pass, EXL2K_NO_TOKEN);
    }
}

/* Whether this is the last CTA of its row to arrive. It then sees what the other CTAs have written. */
EXL2K_FN bool exl2k_last_of_row(const exl2k_sample_args *a)
{
    __syncthreads();
    /* Between the two barriers, the fences of this one thread order the stores of all threads. */
    if (threadIdx.x == 0) {
        __threadfence();
        exl2k_w.counter = atomicInc(&((exl2k_sample_state *)exl2k_state(a))->ticket, gridDim.x - 1);
        __threadfence();
    }
    __syncthreads();
    return exl2k_w.counter == gridDim.x - 1;
}

extern "C" __global__ void __launch_bounds__(EXL2K_SAMPLE_THREADS, 1) exl2k_sample_token(exl2k_sample_args a)
{
    u32 bits[EXL2K_CHUNK_FOURS][4];
    u64 sums[2] = { 0, 0 };
    exl2k_outer_bins outer = { { 0, 0 }, { 0, 0 } };
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Load the logits, the largest keys, and the sampling settings. Checks come after all loads are issued. */
    exl2k_load_logits(&a, a.logits, blockIdx.x, bits);
    u64 best = exl2k_load64(exl2k_state(&a)), own_best = exl2k_load64(exl2k_state(&a) + 8);
    exl2k_pass_counts pass = { exl2k_load((u64)&((const exl2k_pass *)a.pass)->ticket), exl2k_logit_count(&a) };
    if (threadIdx.x < 8) {
        exl2k_eighth[threadIdx.x] = exl2k_eighths[threadIdx.x];
    }
    exl2k_load_sampling(&a, &exl2k_w.sampling);
    if (blockIdx.y >= pass.count) {
        return;
    }
    /* Decide which logits and which weights this row needs. */
    u32 position = exl2k_row_word(&a, &exl2k_w.sampling, 1), flags = exl2k_row_word(&a, &exl2k_w.sampling, 3);
    bool adjusted = exl2k_is_adjusted(&exl2k_w.sampling), needs = exl2k_needs_sums(&exl2k_w.sampling);
    own_best = adjusted ? own_best : best;
    u64 logits = adjusted ? a.adjusted : a.logits;
    exl2k_row_view raw = exl2k_view_make(&a, a.logits, 0, (int)((u32)(best >> 32) ^ 0x80000000u), EXL2K_SLOPE_ONE);
    exl2k_row_view own = exl2k_view_make(&a, logits, adjusted, (int)((u32)(own_best >> 32) ^ 0x80000000u),
                                         exl2k_w.sampling.slope);
    bool same = !adjusted && own.curve.slope == raw.curve.slope, bin = needs && (exl2k_w.sampling.flags & EXL2K_TOP_P);
    /* Of each chunk: sum the weights at temperature 1 of the unmodified logits; then, if they differ, those of the
       row's own sampling. Top-p without top-k counts these in bins, which have room for the tokens of one chunk. */
    u32 rounds = 1 + (needs && !same);
#pragma unroll 1
    for (u32 i = 0, chunk = blockIdx.x; chunk < a.chunks; i++) {
        u32 round = rounds == 1 ? 0 : i % 2;
        exl2k_curve curve = round ? own.curve : raw.curve;
        bool last = round + 1 == rounds; /* these are the weights of the row's own sampling, if it needs sums */
        if (round ? adjusted : i > 0) {
            exl2k_load_logits(&a, round ? logits : a.logits, chunk, bits);
        }
        if (bin && last) {
            __syncthreads();
            exl2k_clear_bins();
        }
        if (curve.top_key != EXL2K_KEY_NONE) {
            u64 sum = exl2k_chunk_sum(&a, &curve, chunk, bits, needs && last, bin && last, &outer);
            sums[0] += round ? 0 : sum;
            sums[1] += last ? sum : 0;
        }
        if (bin && last && !(flags & EXL2K_ROW_DONE)) {
            exl2k_add_bins(&a, &outer);
            outer = exl2k_outer_bins{ { 0, 0 }, { 0, 0 } };
        }
        chunk += last ? gridDim.x : 0;
    }
    if (flags & EXL2K_ROW_DONE) { /* read here, when the load has completed */
        exl2k_skip_row(&a, pass);
        return;
    }
    /* Add this CTA's sums to those of the row. */
    exl2k_block_sums<2>(sums);
    if (threadIdx.x == 0) {
        exl2k_sample_state *state = (exl2k_sample_state *)exl2k_state(&a);
        atomicAdd(&state->sum[0], exl2k_w.partial[0][0]);
        atomicAdd(&state->sum[1], exl2k_w.partial[1][0]);
    }
    /* The last CTA of the row filters, samples, and publishes the result. */
    if (exl2k_last_of_row(&a)) {
        exl2k_finish_row(&a, raw, own, own_best, pass, position);
    }
}
