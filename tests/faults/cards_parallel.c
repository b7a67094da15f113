/* cards_parallel.c: models that several fake GPUs share by columns: each column of each matrix is packed by one of
   them; all meet in the same order, and name each other's memory; device memory is as planned, for each GPU; tokens
   are those of the fake model; saves go to and from one GPU; parking; what cannot be shared by columns; allocations
   and calls that fail once.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_ways.h"

#include "../../kernels_src/lora_experts_args.h"

#define CARDS 8u
#define MEETINGS_MAX (1u << 16)

static exl2_device_desc picks[CARDS];
static const exl2_card cards[CARDS] = { { .device = 1 }, { .device = 0 }, { .device = 3 }, { .device = 2 },
                                        { .device = 6 }, { .device = 7 }, { .device = 5 }, { .device = 4 } };

static bool slow;                               /* memory: a head has many units */
static const float *shares;                     /* [CARDS] of the cards in this order; NULL: equal ones */
static uint64_t strips;                         /* of all launches that pack weights, times their chunks */
static uint64_t strips_on[CARDS];               /* of these, on each GPU */
static uint32_t meetings[CARDS];                /* of each member */
static uint64_t what[CARDS][MEETINGS_MAX];      /* what each of them was about */
static uint32_t attended[CARDS];                /* launches of attention on each GPU */
static bool strict;                             /* no call fails: the members have the same meetings */
static bool first_only;                         /* only member 0 has the words of a save */

/* ---- columns that kernels give to other GPUs (kernels_src/peers_args.h) ---- */

#define GIVERS_MAX 512u

typedef struct span {
    uint64_t at, end;
} span;

typedef struct giver { /* a kernel that gives columns, or a meeting */
    bool meets;
    uint64_t inbox; /* of several rows: the kernel takes all that others give to it there; else 0 */
    span reads[3], writes[2], clears[2]; /* in the memory of its own GPU */
    uint64_t other_reads[CARDS];         /* where the other GPUs have reads[0], by device; 0: not known */
} giver;

static giver givers[CARDS][GIVERS_MAX]; /* by device */
static uint32_t given[CARDS];           /* of each device so far */
static uint32_t gave[CARDS];            /* the same without meetings */
static uint32_t took[CARDS];            /* of these, those with an inbox */

/* ---- the fake GPUs ---- */

/* Notes a meeting: the members must agree on each, and each GPU's columns must lie in its own memory. */
static void meet(const exl2k_meet_args *a, bool norm)
{
    uint64_t key = a->count + 16 * (uint64_t)norm;
    bool good = a->own < a->count && a->count <= CARDS && fake_device_of(a->state) == fake.running
             && fake_device_of(a->to) == fake.running;
    for (uint32_t i = 0; good && i < a->count; i++) {
        int device = (int)cards[i].device;
        key = key * 1000003 + a->ends[i];
        uint32_t first = i ? a->ends[i - 1] : 0; /* what lies before it is not read */
        good = fake_device_of(a->flags[i]) == device && a->ends[i] >= first
            && (a->ends[i] == first || fake_device_of(a->from[i] + first) == device);
        good = good && (i != a->own || device == fake.running);
    }
    if (!CHECK(good)) {
        printf("  a meeting of GPU %d has wrong addresses\n", fake.running);
        return;
    }
    givers[fake.running][given[fake.running]++ % GIVERS_MAX] = (giver){ .meets = true };
    uint32_t n = meetings[a->own]++ % MEETINGS_MAX;
    what[a->own][n] = key;
    for (uint32_t i = 0; i < a->count && strict; i++) {
        if (i != a->own && meetings[i] >= meetings[a->own]) {
            CHECK(what[i][n] == key);
        }
    }
}

/* B of the parts of an adapter, as one GPU has it, and the columns of it that the GPUs have found so far. */
#define PLACES 64u

static struct whole {
    uint16_t *b;
    uint32_t rank, columns, found;
    bool seen[CARDS];
} wholes[PLACES];

static bool alone; /* a model on one GPU is the one to compare with */

/* A GPU has some columns of B, as they lie in all of it. */
static void check_b(uint32_t place, const exl2k_lora_matrix *m, uint32_t columns)
{
    struct whole *w = &wholes[place % PLACES];
    uint32_t stride = (uint32_t)exl2__align_up(columns, 32), all = (uint32_t)exl2__align_up(w->columns, 32);
    const uint16_t *b = fake_memory(m->b, (uint64_t)m->rank * stride * 2);
    if (m->rank == 0 || !CHECK(b != NULL && place < PLACES)) {
        return;
    }
    CHECK(fake_device_of(m->a) == fake.running && fake_device_of(m->b) == fake.running);
    if (alone && !w->b) {
        w->b = malloc((size_t)m->rank * stride * 2);
        memcpy(w->b, b, (size_t)m->rank * stride * 2);
        w->rank = m->rank;
        w->columns = columns;
    } else if (!alone && !w->seen[fake.running] && CHECK(w->b && w->rank == m->rank)) {
        bool same = false;
        for (uint32_t first = 0; first + stride <= all && !same; first += 32) {
            same = true;
            for (uint32_t k = 0; k < m->rank; k++) {
                same = same && memcmp(b + k * stride, w->b + k * all + first, stride * 2) == 0;
            }
        }
        CHECK(same);
        w->seen[fake.running] = true;
        w->found += columns;
    }
}

static void check_fused(const exl2k_lora_gemv_args *a)
{
    const exl2k_lora_pass *pass = fake_memory(a->pass, sizeof *pass);
    for (uint32_t i = 0; pass && i < pass->count; i++) {
        uint64_t at = a->tables + ((uint64_t)pass->slots[i] * a->table + a->place) * sizeof(exl2k_lora_matrix);
        const exl2k_lora_matrix *m = fake_memory(at, a->gemv.matrix.parts * sizeof *m);
        for (uint32_t part = 0; CHECK(m != NULL) && part < a->gemv.matrix.parts; part++) {
            check_b(a->place + part, &m[part], a->gemv.matrix.part[part].columns);
        }
    }
}

static bool within(const span *spans, uint32_t count, uint64_t at)
{
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        found = found || (at >= spans[i].at && at < spans[i].end);
    }
    return found;
}

static const giver *giver_at(uint32_t n) { return &givers[fake.running][n % GIVERS_MAX]; }

/* The last kernel before `n` that has cleared the address; `n`: none of the last ones. */
static uint32_t cleared_before(uint32_t n, uint64_t at)
{
    uint32_t least = n > GIVERS_MAX - 1 ? n - (GIVERS_MAX - 1) : 0;
    for (uint32_t i = n; i-- > least;) {
        if (within(giver_at(i)->clears, 2, at)) {
            return i;
        }
    }
    return n;
}

/* Others store to `at` while this GPU's kernel n runs: it is empty by then. A kernel has cleared it, none has read it
   since, and something that the others have sent has come from them later: they cannot be ahead by more. */
static void expect_empty(uint32_t n, uint64_t at)
{
    uint32_t cleared = cleared_before(n, at);
    bool exchanged = false, before = false;
    for (uint32_t i = cleared + 1; i < n; i++) {
        CHECK(!within(giver_at(i)->reads, 3, at));
        exchanged = exchanged || giver_at(i)->meets;
        for (uint32_t k = i + 1; k <= n && giver_at(i)->writes[0].at; k++) {
            exchanged = exchanged || within(giver_at(k)->reads, 1, giver_at(i)->writes[0].at);
        }
    }
    for (uint32_t i = n > GIVERS_MAX - 1 ? n - (GIVERS_MAX - 1) : 0; i < n && cleared == n; i++) {
        before = before || within(giver_at(i)->writes, 2, at);
    }
    if (!CHECK(cleared < n ? exchanged : !before)) {
        printf("  kernel %u of GPU %d writes what the others may still read\n", n, fake.running);
    }
}

/* What a kernel waits for has been written since it was cleared: its own columns are by this GPU. */
static void expect_written(uint32_t n, span read)
{
    uint32_t cleared = cleared_before(n, read.at);
    bool written = cleared == n; /* not a buffer that the others write */
    for (uint32_t i = cleared + 1; i < n; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            const span *w = &giver_at(i)->writes[k];
            written = written || (w->at < read.end && read.at < w->end);
        }
    }
    if (!CHECK(written)) {
        printf("  kernel %u of GPU %d waits for what nobody writes\n", n, fake.running);
    }
}

static void give(const giver *g, const exl2k_u64 *apart, uint32_t others)
{
    uint32_t n = given[fake.running]++;
    gave[fake.running]++;
    giver *mine = &givers[fake.running][n % GIVERS_MAX];
    *mine = *g;
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(!g->reads[i].at || fake_device_of(g->reads[i].at) == fake.running);
        if (g->reads[i].at) {
            expect_written(n, g->reads[i]);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(!g->clears[i].at || fake_device_of(g->clears[i].at) == fake.running);
        CHECK(!g->clears[i].at || fake_device_of(g->clears[i].end - 1) == fake.running);
        if (g->writes[i].at) {
            expect_empty(n, g->writes[i].at);
        }
    }
    bool shared = g->reads[0].at && cleared_before(n, g->reads[0].at) < n; /* a buffer that all have */
    for (uint32_t i = 0; i < others; i++) {
        uint64_t at = g->writes[0].at ? g->writes[0].at : g->reads[0].at;
        int device = fake_device_of(at + apart[i]);
        if (CHECK(device >= 0 && device < (int)CARDS && device != fake.running) && shared) {
            bool known = given[device] > n && given[device] - n <= GIVERS_MAX;
            uint64_t wanted = known ? givers[device][n % GIVERS_MAX].other_reads[fake.running] : 0;
            CHECK(!strict || !wanted || wanted == g->reads[0].at);
            mine->other_reads[device] = g->reads[0].at + apart[i];
        }
    }
}

/* A kernel of several rows, whose CTAs take what the others give to an inbox. Since it was used last something that
   they have sent later has come: only then are its places empty. */
static void take(uint64_t inbox, uint64_t bytes, const exl2k_u64 *apart, uint32_t others)
{
    uint32_t n = given[fake.running]++, least = n > GIVERS_MAX - 1 ? n - (GIVERS_MAX - 1) : 0;
    bool exchanged = false, used = false;
    gave[fake.running]++;
    took[fake.running]++;
    givers[fake.running][n % GIVERS_MAX] = (giver){ .inbox = inbox };
    for (uint32_t i = n; i-- > least && !used;) {
        used = giver_at(i)->inbox == inbox;
        exchanged = exchanged || giver_at(i)->meets || (giver_at(i)->inbox && !used);
    }
    CHECK(!used || exchanged);
    CHECK(fake_device_of(inbox) == fake.running && fake_device_of(inbox + bytes - 1) == fake.running);
    for (uint32_t i = 0; i < others; i++) {
        int device = fake_device_of(inbox + apart[i]);
        CHECK(device >= 0 && device != fake.running && fake_device_of(inbox + apart[i] + bytes - 1) == device);
    }
}

/* A product of several rows. */
static void take_product(const exl2k_peers_gemv_args *a, uint32_t lanes, uint32_t ctas)
{
    const exl2k_gemv_args *g = &a->gemv;
    const exl2k_peers *p = &a->peers;
    uint32_t taken = p->taken * ctas + p->ctas_with_more, own = g->matrix.part[0].columns / 16;
    bool residual = g->kind == EXL2K_GEMV_RESIDUAL;
    if (g->kind == EXL2K_GEMV_STORE) {
        CHECK(p->inbox == 0 && taken == 0);
        return;
    }
    CHECK(p->own_strips == own && p->ctas_with_more < ctas && p->first_strip <= taken);
    uint64_t bytes = (own + taken) * (uint64_t)(EXL2K_PEERS_STRIP + (residual ? EXL2K_PEERS_SQUARE : 0));
    take(p->inbox, lanes * bytes, p->apart, p->others);
    CHECK(fake_device_of(p->all_out) == fake.running && (!p->all_map || fake_device_of(p->all_map) == fake.running));
    CHECK(!residual || g->sums_out == p->all_sums + p->first_strip * 4);
    CHECK(!residual || p->sums_pitch >= own + taken);
}

static void give_product(const exl2k_peers_gemv_args *a)
{
    const exl2k_gemv_args *g = &a->gemv;
    const exl2k_peers *p = &a->peers;
    giver mine = { .reads = { { g->x, g->x + 2 * g->matrix.rows } } };
    uint64_t bytes = 4 * ((uint64_t)p->strips * g->slots + p->slots_with_more);
    CHECK(p->stop && bytes * 4 >= g->residual_pitch);
    if (p->now_by_strips) {
        mine.reads[1] = (span){ g->sums_now, g->sums_now + bytes };
    }
    CHECK(!p->before_by_groups || fake_device_of(g->sums_before + 31) == fake.running);
    CHECK(!p->groups_out || fake_device_of(p->groups_out + 31) == fake.running);
    if (g->kind != EXL2K_GEMV_STORE) {
        mine.writes[0] = (span){ g->out, g->out + (g->map ? 2 * g->out_pitch : 2 * g->matrix.part[0].columns) };
    }
    if (g->kind == EXL2K_GEMV_RESIDUAL) {
        mine.writes[1] = (span){ g->sums_out, g->sums_out + g->matrix.strips * 4 };
    }
    for (uint32_t i = 0; i < 2; i++) {
        mine.clears[i] = (span){ p->clear[i], p->clear[i] + p->clear_bytes[i] };
    }
    give(&mine, p->apart, p->others);
}

static void give_attended(const exl2k_attend_args *a)
{
    if (a->inbox) {
        take(a->inbox, 16ull * a->all_columns, a->apart, a->others);
        CHECK(a->own_columns == a->heads * a->dim && a->first_column + a->own_columns <= a->all_columns);
        CHECK(a->all_columns <= a->out_pitch && fake_device_of(a->all_out) == fake.running);
        return;
    }
    giver mine = { .writes = { { a->out, a->out + 2 * a->heads * a->dim } } };
    give(&mine, a->apart, a->others);
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    const fake_kernel *kernel = machine_kernels;
    bool own = true;
    while (strcmp(kernel->function, function) != 0) {
        kernel++;
    }
    if (strncmp(function, "exl2k_meet", 10) == 0) {
        meet(arguments, strcmp(function, "exl2k_meet_norm") == 0);
        return;
    }
    if (strstr(function, "_peers") && !strstr(function, "gemv1_")) {
        take_product(arguments, strstr(function, "gemv16") ? 16 : 8, grid[0]);
    } else if (strstr(function, "_peers")) {
        give_product(arguments);
    } else if (strncmp(function, "exl2k_attend_decode", 19) == 0 || strncmp(function, "exl2k_attend_codes", 18) == 0) {
        const exl2k_attend_args *a = arguments;
        if (a->others > 0) {
            give_attended(a);
        }
    }
    for (size_t at = 0; at + 8 <= kernel->argument_bytes; at += 8) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)arguments + at, sizeof word);
        int device = fake_device_of(word);
        own = own && (device < 0 || device == fake.running);
    }
    if (!CHECK(own)) {
        printf("  %s on GPU %d has an address of another one\n", function, fake.running);
    }
    if (strncmp(function, "exl2k_gemv", 10) == 0 && strstr(function, "_lora")) {
        check_fused(arguments);
    }
    bool codes = strcmp(function, "exl2k_shuffle_codes") == 0;
    uint64_t packs = strncmp(function, "exl2k_shuffle", 13) == 0 ? (uint64_t)grid[0] * (codes ? 2 : 1) * grid[1] : 0;
    strips += packs;
    strips_on[fake.running] += packs;
    attended[fake.running] += strncmp(function, "exl2k_attend", 12) == 0;
    bool knows = attended[fake.running] && (!first_only || fake.running == (int)cards[0].device);
    if (knows || strncmp(function, "exl2k_sample", 12) != 0) { /* a GPU without heads knows no words */
        fake_model_run(function, arguments, grid);
    }
}

static void make(void)
{
    machine_make();
    for (uint32_t i = 0; i < CARDS * CARDS; i++) {
        fake.peer[i / CARDS][i % CARDS] = i / CARDS == i % CARDS ? FAKE_PEER_NONE : FAKE_PEER_GOOD;
    }
    fake.run = run;
    fake.device_count = CARDS;
    for (uint32_t i = 0; i < CARDS; i++) {
        picks[i] = (exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = i };
    }
    fake.devices[0].memory_clock /= slow ? 50000 : 1;
    for (int i = 1; i < (int)CARDS; i++) {
        fake.devices[i] = fake.devices[0];
        fake.devices[i].uuid[0] = (uint8_t)(10 + i);
    }
    strips = 0;
    memset(strips_on, 0, sizeof strips_on);
    memset(meetings, 0, sizeof meetings);
    memset(given, 0, sizeof given);
    memset(gave, 0, sizeof gave);
    memset(took, 0, sizeof took);
    memset(attended, 0, sizeof attended);
}

static exl2_engine *open_cards(void)
{
    exl2_engine *e = NULL;
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    cuda_way_count_memory(&d);
    d.devices = picks;
    d.device_count = CARDS;
    cuda_error = (exl2_error){ EXL2_OK, 0, "" };
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    return e;
}

/* ---- uses ---- */

/* The cards with their shares. */
static const exl2_card *list(void)
{
    static exl2_card with_shares[CARDS];
    for (uint32_t i = 0; i < CARDS; i++) {
        with_shares[i] = cards[i];
        with_shares[i].share = shares ? shares[i] : 0;
    }
    return with_shares;
}

/* The folder of a model of the goldens, or (with a slash) of the shared fixtures. */
static const char *folder(const char *name)
{
    static char path[1024];
    if (!strchr(name, '/')) {
        return rig_golden(name);
    }
    snprintf(path, sizeof path, "%s/fixtures/%s", check_env("EXL2_TEST_DATA"), name);
    return path;
}

/* A job in whole passes, and one unit by unit. Returns what packing launched. */
static uint64_t speak(const char *name, uint32_t count)
{
    int failed = check_failures;
    make();
    strict = !slow; /* else a GPU may have fewer launches */
    cuda_life l = { .e = open_cards() };
    exl2_model_desc m = { .path = folder(name), .prefill_chunk = 32, .batch_max = 4, .cards = list(),
                          .card_count = count, .split = count > 1 ? EXL2_SPLIT_COLUMNS : EXL2_SPLIT_LAYERS };
    exl2_model_info info, measured;
    exl2_engine_stats stats;
    double sum = 0;
    CHECK_INT(exl2_model_measure(l.e, &m, &measured), EXL2_OK);
    if (!CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK)) {
        rig_fail(l.e, name, EXL2_ERR_INTERNAL);
    }
    uint64_t packed = strips;
    CHECK_INT(exl2_model_get(l.e, l.model, &info), EXL2_OK);
    exl2_stats(l.e, &stats);
    CHECK_INT(info.card_count, count);
    for (uint32_t i = 0; i < count; i++) {
        sum += shares ? (double)shares[i] : 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        const exl2_card_info *c = &info.cards[i];
        CHECK_INT(c->device, cards[i].device);
        double part = shares ? (double)shares[i] : 1, columns = (double)c->columns * sum;
        CHECK(columns > 0.999 * part - 1e-5 * sum && columns < 1.001 * part + 1e-5 * sum);
        CHECK_INT(stats.devices_bytes[c->device], c->weight_bytes + c->cache_bytes + c->scratch_bytes);
        CHECK(memcmp(c, &measured.cards[i], sizeof *c) == 0);
    }
    CHECK_INT(stats.device_bytes, info.device_bytes);
    for (uint32_t gpu_us = 0; gpu_us < 2; gpu_us++) {
        CHECK_INT(exl2_session_open(l.e, l.model, &l.a), EXL2_OK);
        exl2_job_desc d = cuda_job(l.a, cuda_prompt, 8, 12, &cuda_said[0]);
        d.min_tokens = 12;
        CHECK_INT(exl2_job_start(l.e, &d, NULL), EXL2_OK);
        cuda_step_all(l.e, false, gpu_us);
        CHECK(cuda_said[0].done_events == 1 && cuda_said[0].result == EXL2_OK);
        if (info.vocab == CUDA_VOCAB) {
            cuda_expect_history(l.e, l.a, 8, 20);
        }
    }
    exl2_session several[3];
    for (uint32_t i = 0; i < EXL2__COUNT(several); i++) { /* passes of several rows */
        CHECK_INT(exl2_session_open(l.e, l.model, &several[i]), EXL2_OK);
        exl2_job_desc d = cuda_job(several[i], cuda_prompt, 8, 12, &cuda_said[i]);
        d.min_tokens = 12;
        CHECK_INT(exl2_job_start(l.e, &d, NULL), EXL2_OK);
    }
    cuda_step_all(l.e, false, 0);
    for (uint32_t i = 0; i < EXL2__COUNT(several); i++) {
        CHECK(cuda_said[i].done_events == 1 && cuda_said[i].result == EXL2_OK);
        if (info.vocab == CUDA_VOCAB) {
            cuda_expect_history(l.e, several[i], 8, 20);
        }
    }
    exl2_close(l.e);
    for (uint32_t i = 1; i < count; i++) {
        CHECK_INT(took[cards[i].device], took[cards[0].device]);
        CHECK((took[cards[i].device] > 0) == (gave[cards[i].device] > 0));
        CHECK_INT(meetings[i], meetings[0]);
        CHECK(meetings[i] + gave[cards[i].device] > 50);
        CHECK(slow || gave[cards[i].device] == gave[cards[0].device]);
        CHECK((gave[cards[i].device] > 0) == (strcmp(name, "exl2-mixed") == 0 && count == 2));
    }
    strict = false;
    CHECK_INT(cuda_way_host_bytes, 0);
    machine_end();
    if (check_failures > failed) {
        printf("  %s on %u GPUs\n", name, count);
    }
    return packed;
}

/* Families with folded norms and others, parallel blocks, LayerNorm, biases, dense matrices; experts, also shared ones,
   with biases, without a gate, of GPTQ; matrices whose parts order their inputs differently; EXL3, also beside other
   matrices. */
static void families(void)
{
    static const char *const models[] = { "exl2-mixed", "gemma2", "cohere", "orion", "smollm3", "starcoder2",
                                          "exl2-qwen3-moe", "gptq-phi3", "awq", "mixed-kinds", "arch/mixtral",
                                          "arch/mixtral-uneven", "arch/qwen2-moe", "arch/gpt-oss", "arch/olmo2",
                                          "arch/olmoe",
                                          "arch/glm4-moe", "arch/gptq-mixtral", "exl3/exl3-llama", "exl3/exl3-mixtral",
                                          "exl3/exl3-qwen2-padded", "exl3/exl3-qwen3" };
    static const uint32_t counts[] = { 2, 5, 3, 8 };
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        if (strchr(models[i], '/') && !check_env("EXL2_TEST_DATA")) {
            continue;
        }
        uint64_t whole = speak(models[i], 1);
        for (size_t k = 0; k < (i == 0 || check_env("EXL2_TEST_ALL") ? EXL2__COUNT(counts) : 2); k++) {
            uint64_t shared = speak(models[i], counts[k]);
            if (!CHECK(shared == whole)) {
                printf("  %s: %u GPUs pack %llu strips, one packs %llu\n", models[i], counts[k],
                       (unsigned long long)shared, (unsigned long long)whole);
            }
        }
    }
}

/* A job with an adapter and a control vector. */
static void adapted(uint32_t count)
{
    static float vector[1u << 16];
    const char *adapter = folder("lora/exl2-mixed/a");
    exl2_model model;
    exl2_lora lora;
    exl2_steer steer;
    exl2_session s;
    exl2_engine_stats before, after;
    exl2_lora_info info;
    exl2_model_info shape;
    make();
    alone = count == 1;
    strict = true;
    exl2_engine *e = open_cards();
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .prefill_chunk = 32, .batch_max = 4, .cards = list(),
                          .card_count = count, .split = count > 1 ? EXL2_SPLIT_COLUMNS : EXL2_SPLIT_LAYERS,
                          .lora_max = 2, .steer_max = 1 };
    CHECK_INT(exl2_model_load(e, &m, &model), EXL2_OK);
    CHECK_INT(exl2_model_get(e, model, &shape), EXL2_OK);
    exl2_stats(e, &before);
    CHECK_INT(exl2_lora_load(e, &(exl2_lora_desc){ .model = model, .path = adapter }, &lora), EXL2_OK);
    CHECK_INT(exl2_lora_get(e, lora, &info), EXL2_OK);
    exl2_stats(e, &after);
    CHECK_INT(after.device_bytes - before.device_bytes, info.device_bytes);
    for (size_t i = 0; i < EXL2__COUNT(vector); i++) {
        vector[i] = (float)(i % 7);
    }
    exl2_steer_desc v = { .model = model, .values = vector, .layer_count = shape.layers };
    CHECK_INT(exl2_steer_make(e, &v, &steer), EXL2_OK);
    CHECK_INT(exl2_session_open(e, model, &s), EXL2_OK);
    for (uint32_t i = 0; i < 3; i++) {
        exl2_job_desc d = cuda_job(s, cuda_prompt, 8, 12, &cuda_said[0]);
        d.loras = &(exl2_lora_use){ lora, 1 };
        d.lora_count = i != 1;
        d.steers = &(exl2_steer_use){ steer, 0.5f };
        d.steer_count = i > 0;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        cuda_step_all(e, false, 0);
        CHECK(cuda_said[0].done_events == 1 && cuda_said[0].result == EXL2_OK);
    }
    exl2_close(e);
    for (uint32_t i = 1; i < count; i++) {
        CHECK_INT(meetings[i], meetings[0]);
    }
    for (uint32_t i = 0, found = 0; i < PLACES; i++) {
        struct whole *w = &wholes[i];
        found += w->b != NULL;
        CHECK(alone || w->found == w->columns);
        CHECK(i + 1 < PLACES || found > 10);
        memset(w->seen, 0, sizeof w->seen);
        w->found = 0;
    }
    strict = false;
    CHECK_INT(cuda_way_host_bytes, 0);
    machine_end();
}

/* K and V of one GPU serve GPUs that share the model, and back. */
static void saves(const char *name, exl2_kv format)
{
    static uint8_t saved[1u << 20];
    exl2_model model;
    exl2_session s;
    size_t bytes = 0;
    first_only = true; /* the fake model keeps a page's words where the page begins: with the first head */
    for (uint32_t back = 0; back < 2; back++) {
        make();
        exl2_engine *e = open_cards();
        exl2_model_desc m = { .path = folder(name), .prefill_chunk = 32, .batch_max = 4, .cards = list(),
                              .card_count = back ? 2 : 1, .split = back ? EXL2_SPLIT_COLUMNS : EXL2_SPLIT_LAYERS,
                              .cache = { .tokens = 8 * EXL2__PAGE_TOKENS, .format = format } };
        CHECK_INT(exl2_model_load(e, &m, &model), EXL2_OK);
        CHECK_INT(exl2_session_open(e, model, &s), EXL2_OK);
        exl2_job_desc d = cuda_job(s, cuda_prompt, 8, 30, &cuda_said[0]);
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        cuda_step_all(e, false, 0);
        CHECK_INT(exl2_session_save(e, s, EXL2_SAVE_KV, saved, sizeof saved, &bytes), EXL2_OK);
        CHECK_INT(exl2_model_close(e, model), EXL2_OK);
        m.card_count = back ? 1 : 2;
        m.split = back ? EXL2_SPLIT_LAYERS : EXL2_SPLIT_COLUMNS;
        CHECK_INT(exl2_model_load(e, &m, &model), EXL2_OK);
        CHECK_INT(exl2_session_open(e, model, &s), EXL2_OK);
        CHECK_INT(exl2_session_restore(e, s, saved, bytes), EXL2_OK);
        d = cuda_job(s, cuda_prompt, 3, 20, &cuda_said[0]);
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        cuda_step_all(e, false, 0);
        CHECK_INT(cuda_said[0].result, EXL2_OK);
        CHECK_INT(cuda_said[0].stats.new_tokens, 20);
        cuda_expect_history(e, s, 41, 61);
        exl2_close(e);
        machine_end();
    }
    first_only = false;
}

/* The model gives all its memory back, and its job goes on after it has been loaded again. */
static void park(const char *name, bool keep)
{
    make();
    cuda_life l = { .e = open_cards() };
    exl2_model_desc m = { .path = rig_golden(name), .prefill_chunk = 32, .batch_max = 4, .keep_packed = keep,
                          .cards = list(), .card_count = 2, .split = EXL2_SPLIT_COLUMNS,
                          .cache.tokens = 16 * EXL2__PAGE_TOKENS, .on_event = cuda_hear_load };
    CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK);
    CHECK_INT(exl2_session_open(l.e, l.model, &l.a), EXL2_OK);
    exl2_job_desc d = cuda_job(l.a, cuda_prompt, 8, 30, &cuda_said[0]);
    CHECK_INT(exl2_job_start(l.e, &d, NULL), EXL2_OK);
    for (uint32_t i = 0; i < 9; i++) {
        exl2_step(l.e, &(exl2_step_desc){ .wait = true });
    }
    CHECK_INT(cuda_said[0].done_events, 0);
    CHECK_INT(exl2_model_park(l.e, l.model, true), EXL2_OK);
    CHECK_INT(fake.allocated, 0);
    CHECK_INT(cuda_load_again(l.e, l.model), EXL2_OK);
    cuda_step_all(l.e, false, 0);
    CHECK(cuda_said[0].done_events == 1 && cuda_said[0].result == EXL2_OK);
    cuda_expect_history(l.e, l.a, 8, 38);
    exl2_close(l.e);
    CHECK_INT(cuda_way_host_bytes, 0);
    machine_end();
}

/* ---- what cannot be shared ---- */

static void expect(exl2_engine *e, exl2_model_desc d, exl2_result wanted, const char *part)
{
    exl2_model m;
    exl2_model_info info;
    d.path = d.path ? d.path : rig_golden("exl2-mixed");
    CHECK_INT(exl2_model_measure(e, &d, &info), wanted);
    CHECK_INT(exl2_model_load(e, &d, &m), wanted);
    exl2_last_error(e, &cuda_error);
    if (!CHECK(strstr(cuda_error.text, part) != NULL)) {
        printf("  \"%s\" should name \"%s\"\n", cuda_error.text, part);
    }
}

static void refusals(void)
{
    static const exl2_card without[2] = { { .device = 0, .share = 1 }, { .device = 1 } };
    exl2_model_desc d = { .cards = cards, .card_count = 2, .split = EXL2_SPLIT_COLUMNS };
    exl2_model_desc one = d, uneven = d, unknown = d, offload = d, capped = d;
    exl2_card least[2] = { cards[0], cards[1] };
    make();
    exl2_engine *e = open_cards();
    one.card_count = 1;
    expect(e, one, EXL2_ERR_ARG, "split is EXL2_SPLIT_COLUMNS, but card_count is 1");
    uneven.cards = without;
    expect(e, uneven, EXL2_ERR_ARG, "1 of 2 cards have a share");
    unknown.split = (exl2_split)2;
    expect(e, unknown, EXL2_ERR_ARG, "split is 2, no value of exl2_split");
    offload.offload = EXL2_OFFLOAD_AUTO;
    expect(e, offload, EXL2_ERR_UNSUPPORTED, "the CPU has no part");
    least[1].bytes_max = 4096;
    capped.cards = least;
    capped.path = NULL;
    expect(e, capped, EXL2_ERR_BUDGET, "but its bytes_max is 4096");
    exl2_close(e);
    machine_end();
    make();
    fake.peer[0][1] = FAKE_PEER_WRONG;
    e = open_cards();
    expect(e, d, EXL2_ERR_UNSUPPORTED, "do not reach each other's memory");
    exl2_close(e);
    machine_end();
    make();
    fake.devices[0].sm_count++;
    e = open_cards();
    expect(e, d, EXL2_ERR_UNSUPPORTED, "are of different kinds");
    exl2_close(e);
    machine_end();
}

/* Each card's cap may be what the card needs, and not a byte less. */
static void caps(const char *name, uint32_t count)
{
    exl2_card own[CARDS];
    exl2_model m;
    exl2_model_info info;
    make();
    exl2_engine *e = open_cards();
    exl2_model_desc d = { .path = rig_golden(name), .prefill_chunk = 32, .batch_max = 4, .cards = own,
                          .card_count = count, .split = EXL2_SPLIT_COLUMNS, .cache.tokens = 8 * EXL2__PAGE_TOKENS };
    memcpy(own, list(), sizeof own);
    CHECK_INT(exl2_model_measure(e, &d, &info), EXL2_OK);
    for (uint32_t i = 0; i < count; i++) {
        own[i].bytes_max = info.cards[i].weight_bytes + info.cards[i].cache_bytes + info.cards[i].scratch_bytes;
    }
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK);
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    for (uint32_t i = 0; i < count; i++) {
        char part[64];
        snprintf(part, sizeof part, "on the GPU of cards[%u]", i);
        own[i].bytes_max--;
        expect(e, d, EXL2_ERR_BUDGET, part);
        own[i].bytes_max++;
    }
    exl2_close(e);
    machine_end();
}

/* Uneven shares: tokens are those of one GPU, each column lies on one GPU, and the larger share has more of them, but
   each GPU has a strip of each matrix, and a head if there are enough. */
static void uneven(void)
{
    static const char *const models[] = { "exl2-mixed", "orion", "exl2-qwen3-moe", "gptq-phi3", "mixed-kinds",
                                          "arch/olmo2", "arch/gptq-mixtral", "exl3/exl3-llama", "exl3/exl3-mixtral" };
    static const struct { float of[CARDS]; uint32_t count; } cuts[] = {
        { { 3, 1 }, 2 }, { { 1, 2, 1 }, 3 }, { { 1e6f, 1 }, 2 }, { { 1, 1e6f }, 2 }, { { 1, 5, 1, 0.5f, 2 }, 5 },
    };
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        if (strchr(models[i], '/') && !check_env("EXL2_TEST_DATA")) {
            continue;
        }
        shares = NULL;
        uint64_t whole = speak(models[i], 1);
        for (size_t k = 0; k < EXL2__COUNT(cuts); k++) {
            shares = cuts[k].of;
            CHECK_INT(speak(models[i], cuts[k].count), whole);
            for (uint32_t n = 0; n < cuts[k].count && i < 2; n++) { /* others have fewer units than GPUs */
                CHECK(cuts[k].count > 2 || (strips_on[cards[n].device] > 0 && attended[cards[n].device] > 0));
                CHECK(i + k > 0 || n == 0 || 2 * strips_on[cards[n].device] < strips_on[cards[0].device]);
            }
        }
    }
    slow = true; /* a GPU has fewer strips of the head than the head has units */
    for (size_t k = 2; k < 4; k++) {
        shares = cuts[k].of;
        speak("exl2-mixed", 2);
        speak("orion", 2);
    }
    slow = false;
    shares = cuts[0].of;
    caps("orion", 2);
    park("exl2-mixed", true);
    shares = cuts[1].of;
    caps("exl2-mixed", 3);
    if (check_env("EXL2_TEST_DATA")) {
        adapted(3); /* compared with the one on a GPU before */
        shares = cuts[0].of;
        saves("arch/gemma", EXL2_KV_FP16); /* 3 of 4 heads */
        saves("arch/gemma", EXL2_KV_Q8);
    }
    shares = NULL;
}

/* Uses a model on two GPUs. */
static bool life(const cuda_way *w, uint32_t n)
{
    make();
    cuda_way_set(w);
    cuda_cards = list();
    cuda_card_count = 2;
    cuda_split = EXL2_SPLIT_COLUMNS;
    cuda_life l = { .e = open_cards(), .late = w->late };
    cuda_way_fail(w, n);
    exl2_result r = cuda_use(&l);
    bool failed = cuda_way_failed();
    CHECK(failed || (attended[0] > 20 && attended[1] > 20));
    cuda_way_end(w, n, &l, r, failed);
    return failed;
}

int main(void)
{
    const cuda_way bad[] = {
        { "device allocations", "cuMemAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "pinned allocations", "cuMemHostAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "host allocations", NULL, 0, 0, true, false, true, 5 },
        { "calls", NULL, 1, 11, true, false, false, 37 * CUDA_WAY_STRIDE },
        { "calls of a late device", NULL, 1, 11, false, true, false, 71 * CUDA_WAY_STRIDE },
    };
    machine_drop_cache();
    families();
    for (uint32_t count = 1; count <= CARDS && check_env("EXL2_TEST_DATA"); count += count > 2 ? 5 : 1) {
        adapted(count); /* on 1, 2, 3, 8 */
    }
    saves("exl2-mixed", EXL2_KV_FP16);
    saves("exl2-mixed", EXL2_KV_Q8);
    saves("exl2-qwen3-moe", EXL2_KV_Q4);
    park("exl2-mixed", false);
    park("exl2-mixed", true);
    park("exl2-qwen3-moe", false);
    park("exl2-qwen3-moe", true);
    refusals();
    caps("exl2-mixed", 3);
    caps("exl2-qwen3-moe", 5);
    uneven();
    cuda_ways_good(life);
    cuda_ways_sweep(life, bad, EXL2__COUNT(bad));
    machine_drop_cache();
    fake_reset();
    return check_done();
}
