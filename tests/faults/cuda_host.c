/* cuda_host.c: models on the fake GPU whose MLPs, or experts, the CPU computes. Rows of the residual cross to it with
   the values that the GPU has, and come back with those MLPs added that a model on the CPU computes; caps decide how
   many layers do so; sessions are saved, models parked, frames have budgets; allocations and calls fail once.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_ways.h"

#include "private/objects.h"

#define STRIDE (CHECK_SANITIZED ? 9u : 3u)
#define HIDDEN_MAX 512u

/* ---- what rows must be ---- */

static exl2_engine *cpu_engine; /* has the same model, whole, on the CPU */
static uint32_t host_mlps;      /* layers of the model whose MLPs are away, */
static bool host_layers[64];    /* which they are, */
static bool host_prompts[64];   /* and whether rows of prompts get them there, too */
static exl2__lora_set moods;    /* the control vector of all rows; steer_count 0: they have none */

/* Element i of what the fake kernels make of a token's row before the first crossing. */
static float begun(uint32_t token, uint32_t i)
{
    return (float)((token * 37 + i * 11) % 61) / 16 - 1.875f;
}

/* Whether the phase belongs to the MLP of a layer on the CPU. */
static bool of_mlp(const exl2__layer *layer, uint32_t at)
{
    exl2__phase phase = layer->phases[at];
    bool attention = phase == EXL2__PHASE_qkv || phase == EXL2__PHASE_attend || phase == EXL2__PHASE_out;
    return !attention && !(phase == EXL2__PHASE_settle && layer->phases[at - 1] == EXL2__PHASE_out);
}

/* Notes which layers the CPU has. */
static void note_layers(const exl2_model_info *info)
{
    host_mlps = info->host_mlps;
    memset(host_layers, 0, sizeof host_layers);
    memset(host_prompts, 0, sizeof host_prompts);
    for (uint32_t i = 0; i < info->card_count; i++) {
        const exl2_card_info *card = &info->cards[i];
        for (uint32_t k = 0; k < card->host_mlps; k++) {
            host_layers[card->first_layer + card->layers - 1 - k] = true;
            host_prompts[card->first_layer + card->layers - 1 - k] = card->host_prompts;
        }
    }
}

/* The row, one of a prompt or a sampled one, after these MLPs, as the model on the CPU computes them. */
static void expected(uint32_t token, bool prompt, float *out)
{
    static float vector[HIDDEN_MAX];
    const exl2__model *m = &cpu_engine->models[0];
    const exl2__span *s = m->spans.span;
    const exl2__step_row row = { .vector = vector };
    const uint16_t set = 1;
    const bool steered = moods.steer_count > 0;
    const exl2__step step = { .rows = &row, .row_count = 1, .sequence_count = 1, .row_loras = steered ? &set : NULL,
                              .lora_sets = &moods, .lora_set_count = steered, .steered = steered };
    uint32_t layers = m->plan.shape.layers;
    for (uint32_t i = 0; i < m->plan.shape.hidden; i++) {
        vector[i] = begun(token, i);
    }
    exl2__range range = { 0, 1, 0, 0, EXL2__PHASE_COUNT };
    s->backend->begin(s->device, &step);
    exl2__cpu_of(s->device)->positions = NULL; /* rows are given */
    s->backend->embed(s->device, NULL, &range);
    for (uint32_t k = 0; k < layers; k++) {
        const exl2__layer *layer = &m->plan.layers[k];
        for (uint32_t at = 0; at < layer->phase_count; at++) {
            exl2__range all = { 0, 0, 0, 0, at ? layer->phases[at - 1] : EXL2__PHASE_COUNT };
            bool here = host_layers[k] && (!prompt || host_prompts[k]) && of_mlp(layer, at);
            all.end = here ? s->backend->items(s->device, layer->phases[at], layer, &all) : 0;
            switch (layer->phases[at]) {
#define X(name) case EXL2__PHASE_##name: s->backend->name(s->device, layer, &all); break;
                EXL2__PHASES(X)
#undef X
            case EXL2__PHASE_COUNT:
                break;
            }
        }
    }
    s->backend->hand(s->device, 0, 1, out);
}

/* ---- the fake GPU ---- */

static uint64_t residual_at; /* of the model on the GPU */
static uint32_t hidden;
static uint32_t rows_handed, rows_checked;

static float *residual_of(uint32_t row)
{
    uint64_t bytes = hidden * sizeof(float);
    return fake_model_at(residual_at + row * bytes, bytes);
}

/* Before the head: all MLPs have been added. */
static void check_rows(const exl2k_sample_args *a)
{
    const exl2k_pass *pass = fake_model_at(a->pass, sizeof *pass);
    float want[HIDDEN_MAX];
    for (uint32_t i = 0; i < pass->logit_count; i++) {
        const exl2k_sampling *sampling = fake_model_at(a->samplings + i * sizeof *sampling, sizeof *sampling);
        const exl2k_row *row = fake_model_at(a->rows + sampling->row * sizeof *row, sizeof *row);
        expected(row->token, fake_model_pages(a->rows, false)->kind == FAKE_ROWS_PROMPT, want);
        rows_checked++;
        if (!CHECK(memcmp(residual_of(sampling->row), want, hidden * sizeof *want) == 0)) {
            printf("  row %u of token %u\n", sampling->row, row->token);
        }
    }
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    const exl2k_embed_args *embed = arguments;
    if (strcmp(function, "exl2k_embed") == 0 && embed->kind != EXL2K_TABLE_GIVEN) {
        const exl2k_pass *pass = fake_model_at(embed->pass, sizeof *pass);
        residual_at = embed->residual;
        hidden = embed->hidden;
        for (uint32_t r = 0; r < grid[0] && r < pass->row_count; r++) {
            exl2k_row *row = fake_model_at(embed->rows + r * sizeof *row, sizeof *row);
            bool handed = embed->kind == EXL2K_TABLE_HANDED; /* rows of the span before */
            uint64_t bytes = hidden * sizeof(float);
            const float *from = handed ? fake_model_at(embed->table + r * bytes, bytes) : NULL;
            rows_handed += handed;
            for (uint32_t i = 0; i < hidden; i++) {
                residual_of(r)[i] = handed ? from[i] : begun(row->token, i);
            }
        }
        fake_model_run(function, arguments, grid);
    } else if (strcmp(function, "exl2k_embed") != 0) {
        if (strcmp(function, "exl2k_sample_keys") == 0 && host_mlps) {
            check_rows(arguments);
        }
        fake_model_run(function, arguments, grid);
    }
}

static exl2_engine *open_engine(uint64_t device_bytes_max, uint64_t bytes_max)
{
    exl2_engine *e = NULL;
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    cuda_way_count_memory(&d);
    d.device_bytes_max = device_bytes_max;
    d.host_bytes_max = bytes_max;
    cuda_error = (exl2_error){ EXL2_OK, 0, "" };
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    return e;
}

/* Loads the model on the CPU that says what MLPs compute. */
static void open_reference(const char *name)
{
    exl2_engine_desc d = { .backend = EXL2_BACKEND_CPU };
    exl2_model_desc m = { .path = rig_golden(name), .steer_max = 1 };
    exl2_model model;
    exl2_close(cpu_engine);
    cpu_engine = NULL;
    CHECK_INT(exl2_open(&d, &cpu_engine), EXL2_OK);
    if (!CHECK_INT(exl2_model_load(cpu_engine, &m, &model), EXL2_OK)) {
        rig_fail(cpu_engine, name, EXL2_ERR_INTERNAL);
    }
}

/* Where all layers have windows, the fake model sees whole histories with cache.full alone. */
static exl2_model_desc desc_of(const char *name, uint32_t mlps)
{
    bool full = strcmp(name, "starcoder2") == 0 || strstr(name, "phi3");
    return (exl2_model_desc){ .path = rig_golden(name), .prefill_chunk = 32, .batch_max = 4,
                              .cache.tokens = 16 * EXL2__PAGE_TOKENS, .cache.full = full,
                              .offload = mlps ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE, .host_mlps = mlps };
}

/* ---- values, of every family ---- */

/* Makes a control vector, which all rows get. */
static exl2_steer_use make_mood(const cuda_life *l, const exl2_model_info *info)
{
    static float vector[8 * HIDDEN_MAX];
    exl2_steer_use use = { { 0 }, 0.5f };
    for (uint32_t i = 0; i < info->layers * info->hidden; i++) {
        vector[i] = (float)(i * 7919 % 401) / 800 - 0.25f;
    }
    exl2_steer_desc d = { .model = l->model, .values = vector, .layer_count = info->layers };
    CHECK_INT(exl2_steer_make(l->e, &d, &use.steer), EXL2_OK);
    moods.steer_count = 1;
    moods.uses[0] = (exl2__lora_use){ NULL, &l->e->models[0].steers[0].store, use.steer.id, use.factor };
    return use;
}

/* Prompts of several passes and pieces, sampled rows, in whole passes and in frames of little time; without and with a
   control vector. */
static void values_of(const char *name, uint32_t mlps, bool steered)
{
    static const exl2_step_desc steps[] = { { .wait = true }, { .cpu_us = 30, .gpu_us = 1 },
                                            { .cpu_us = 200, .gpu_us = 200, .wait = true } };
    machine_make();
    fake.run = run;
    cuda_life l = { .e = open_engine(0, 0) };
    exl2_model_desc m = desc_of(name, mlps);
    exl2_model_info info, measured;
    exl2_engine_stats stats;
    exl2_token longer[50];
    m.steer_max = steered;
    for (uint32_t i = 0; i < EXL2__COUNT(longer); i++) {
        longer[i] = (exl2_token)(20 + i * 7 % 200);
    }
    CHECK_INT(exl2_model_measure(l.e, &m, &measured), EXL2_OK);
    if (!CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK)) {
        rig_fail(l.e, name, EXL2_ERR_INTERNAL);
    }
    CHECK_INT(exl2_model_get(l.e, l.model, &info), EXL2_OK);
    note_layers(&info);
    CHECK_INT(info.host_mlps, mlps < info.layers ? mlps : info.layers);
    CHECK_INT(info.cards[0].host_mlps, info.host_mlps);
    CHECK(info.host_weight_bytes > 0 && measured.host_weight_bytes == info.host_weight_bytes);
    CHECK(measured.device_bytes == info.device_bytes && measured.weight_bytes == info.weight_bytes);
    exl2_stats(l.e, &stats);
    CHECK_INT(stats.device_bytes, info.device_bytes);
    exl2_steer_use use = { { 0 }, 0 };
    use = steered ? make_mood(&l, &info) : use;
    rows_checked = 0;
    for (uint32_t i = 0; i < EXL2__COUNT(steps); i++) {
        CHECK_INT(exl2_session_open(l.e, l.model, &l.a), EXL2_OK);
        CHECK_INT(exl2_session_open(l.e, l.model, &l.b), EXL2_OK);
        exl2_job_desc d[2] = { cuda_job(l.a, cuda_prompt, 8, 9, &cuda_said[0]),
                               cuda_job(l.b, longer, 50, 5, &cuda_said[1]) };
        d[0].min_tokens = 9;
        d[1].min_tokens = 5;
        d[0].steers = d[1].steers = &use;
        d[0].steer_count = d[1].steer_count = steered;
        CHECK_INT(exl2_job_start(l.e, &d[0], NULL), EXL2_OK);
        CHECK_INT(exl2_job_start(l.e, &d[1], NULL), EXL2_OK);
        uint32_t count = 0;
        while (count < 100000 && exl2_step(l.e, &steps[i]) != EXL2_IDLE) {
            count++;
        }
        CHECK(cuda_said[0].done_events == 1 && cuda_said[0].result == EXL2_OK);
        CHECK(cuda_said[1].done_events == 1 && cuda_said[1].result == EXL2_OK);
        cuda_expect_history(l.e, l.a, 8, 17);
        cuda_expect_history(l.e, l.b, 50, 55);
    }
    CHECK(rows_checked >= 3 * 14);
    moods.steer_count = 0;
    exl2_close(l.e);
    CHECK_INT(cuda_way_host_bytes, 0);
    machine_end();
}

static void values(const char *name, uint32_t mlps)
{
    values_of(name, mlps, false);
    values_of(name, mlps, true);
}

/* ---- caps ---- */

static uint64_t card_bytes; /* memory of the GPU; 0: plenty */

/* Loads the model within caps; all rows have the CPU. Returns the number of MLPs that the CPU has, or the error. */
static int load_within(const char *name, uint64_t device_cap, uint64_t host_cap, uint32_t mlps, exl2_model_info *info)
{
    machine_make();
    fake.devices[0].bytes_total = card_bytes ? card_bytes : fake.devices[0].bytes_total;
    exl2_engine *e = open_engine(device_cap, 0);
    exl2_engine_stats stats;
    exl2_stats(e, &stats);
    uint64_t open_bytes = stats.host_bytes;
    exl2_close(e);
    e = open_engine(device_cap, host_cap ? open_bytes + host_cap : 0);
    exl2_model model;
    exl2_model_desc m = desc_of(name, mlps);
    m.offload = EXL2_OFFLOAD_AUTO;
    m.host_prompts = true; /* cuda_streamed.c has the other ones */
    exl2_result r = exl2_model_load(e, &m, &model);
    if (r >= 0) {
        CHECK_INT(exl2_model_get(e, model, info), EXL2_OK);
        exl2_stats(e, &stats);
        CHECK(!device_cap || (fake.most <= device_cap && stats.device_peak <= device_cap));
        CHECK_INT(stats.device_bytes, info->device_bytes);
        CHECK(!host_cap || stats.host_peak <= open_bytes + host_cap);
    } else {
        exl2_last_error(e, &cuda_error);
    }
    exl2_close(e);
    machine_end();
    return r < 0 ? r : (int)info->host_mlps;
}

/* As few MLPs as the cap allows; one byte less, one more; too little for attention, K and V: BUDGET. */
static void caps(const char *name)
{
    static exl2_model_info info[8], got;
    uint32_t layers = 1;
    for (uint32_t n = 0; n <= layers && n < 8; n++) {
        CHECK_INT(load_within(name, 0, 0, n, &info[n]), n);
        layers = info[n].layers;
        CHECK(n == 0 || info[n].device_bytes < info[n - 1].device_bytes);
        CHECK((n == 0) == (info[n].host_weight_bytes == 0));
    }
    if (!CHECK(layers < 8)) {
        return;
    }
    for (uint32_t n = 0; n <= layers; n++) {
        CHECK_INT(load_within(name, info[n].device_bytes, 0, 0, &got), n);
        int less = load_within(name, info[n].device_bytes - 1, 0, 0, &got);
        CHECK_INT(less, n < layers ? (int)n + 1 : EXL2_ERR_BUDGET);
    }
    CHECK(strstr(cuda_error.text, "without the MLPs of") != NULL);
    CHECK_INT(load_within(name, info[1].device_bytes - 1, 0, 1, &got), EXL2_ERR_BUDGET); /* a number of one's own */
    for (uint32_t less = 0; less < 2; less++) { /* without a cap: free memory, but for what the driver needs */
        card_bytes = info[0].device_bytes + ((uint64_t)256 << 20) - less;
        CHECK_INT(load_within(name, 0, 0, 0, &got), less);
    }
    card_bytes = 0;
    for (uint32_t n = 0; n <= layers; n += layers) { /* host memory */
        uint64_t needs = info[n].weight_bytes + info[n].cache_bytes + info[n].scratch_bytes - info[n].device_bytes;
        CHECK_INT(load_within(name, 0, needs, n, &got), n);
        CHECK_INT(load_within(name, 0, needs - 1, n, &got), EXL2_ERR_BUDGET);
    }
}

static void refusals(void)
{
    machine_make();
    exl2_model_desc m = desc_of("exl2-mixed", 0);
    exl2_model model;
    exl2_model_info info;
    exl2_error error;
    exl2_engine *e = open_engine(0, 0);
    CHECK_INT(exl2_model_measure(e, &m, &info), EXL2_OK);
    m.host_mlps = 1;
    CHECK_INT(exl2_model_measure(e, &m, &info), EXL2_ERR_ARG);
    m.offload = (exl2_offload)7;
    CHECK_INT(exl2_model_load(e, &m, &model), EXL2_ERR_ARG);
    m.offload = EXL2_OFFLOAD_AUTO;
    m.lora_max = 1;
    CHECK_INT(exl2_model_load(e, &m, &model), EXL2_ERR_UNSUPPORTED);
    exl2_close(e);
    e = open_engine(info.device_bytes - 1, 0);
    m = desc_of("exl2-mixed", 0);
    CHECK_INT(exl2_model_load(e, &m, &model), EXL2_ERR_BUDGET);
    exl2_last_error(e, &error);
    CHECK(strstr(error.text, "exl2_model_desc.offload") != NULL);
    exl2_close(e);
    machine_end();
}

/* ---- several cards ---- */

/* A model that does not fit on two cards: each of them sheds MLPs of its own last layers, keeps to its cap, and the
   values are right. */
static void several_cards(const char *name)
{
    static const exl2_device_desc both[2] = { { .pick = EXL2_PICK_INDEX }, { .pick = EXL2_PICK_INDEX, .index = 1 } };
    exl2_model_info whole, info;
    for (uint32_t turn = 0; turn < 2; turn++) { /* first everything fits */
        machine_make();
        fake.device_count = 2;
        fake.devices[1] = fake.devices[0];
        fake.devices[1].uuid[0]++;
        fake.devices[1].luid[0]++;
        fake.run = run;
        exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
        d.devices = both;
        d.device_count = 2;
        cuda_life l = { .e = NULL };
        exl2_card cards[2] = { { .device = 0 }, { .device = 1 } };
        exl2_model_desc m = desc_of(name, 0);
        exl2_engine_stats stats;
        m.offload = EXL2_OFFLOAD_AUTO;
        m.cards = cards;
        m.card_count = 2;
        for (uint32_t i = 0; turn == 1 && i < 2; i++) {
            cards[i].bytes_max = whole.cards[i].weight_bytes + whole.cards[i].cache_bytes + whole.cards[i].scratch_bytes
                               - 1;
        }
        CHECK_INT(exl2_open(&d, &l.e), EXL2_OK);
        CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK);
        CHECK_INT(exl2_model_get(l.e, l.model, &info), EXL2_OK);
        exl2_stats(l.e, &stats);
        note_layers(&info);
        rows_checked = rows_handed = 0;
        for (uint32_t i = 0; i < 2; i++) {
            const exl2_card_info *card = &info.cards[i];
            CHECK_INT(card->host_mlps > 0, turn);
            CHECK_INT(stats.devices_bytes[i], card->weight_bytes + card->cache_bytes + card->scratch_bytes);
            CHECK(!turn || stats.devices_bytes[i] <= cards[i].bytes_max);
        }
        CHECK_INT(exl2_session_open(l.e, l.model, &l.a), EXL2_OK);
        exl2_job_desc job = cuda_job(l.a, cuda_prompt, 8, 12, &cuda_said[0]);
        job.min_tokens = 12;
        CHECK_INT(exl2_job_start(l.e, &job, NULL), EXL2_OK);
        cuda_step_all(l.e, false, 0);
        CHECK(cuda_said[0].done_events == 1 && cuda_said[0].result == EXL2_OK);
        CHECK(rows_handed >= 19 && (!turn || rows_checked >= 12));
        cuda_expect_history(l.e, l.a, 8, 20);
        exl2_close(l.e);
        machine_end();
        whole = info;
    }
}

/* ---- parking ---- */

/* The GPU's memory is given back, and the job goes on with the same MLPs on the CPU; a cap that became too small does
   not move more of them, but fails. */
static void park(bool keep)
{
    machine_make();
    fake.run = run;
    cuda_life l = { .e = open_engine(0, 0) };
    exl2_model_info before, after;
    exl2_model_desc m = desc_of("exl2-mixed", 1);
    m.keep_packed = keep;
    m.on_event = cuda_hear_load;
    CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK);
    CHECK_INT(exl2_model_get(l.e, l.model, &before), EXL2_OK);
    note_layers(&before);
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
    rows_checked = 0;
    cuda_step_all(l.e, false, 0);
    CHECK(rows_checked > 5);
    CHECK(cuda_said[0].done_events == 1 && cuda_said[0].result == EXL2_OK);
    CHECK_INT(exl2_model_get(l.e, l.model, &after), EXL2_OK);
    CHECK(after.host_mlps == 1 && after.device_bytes == before.device_bytes);
    cuda_expect_history(l.e, l.a, 8, 38);
    exl2_close(l.e);
    CHECK_INT(cuda_way_host_bytes, 0);
    machine_end();
}

/* ---- saves ---- */

/* K and V are restored where the CPU has the same MLPs, words everywhere. */
static void saves(void)
{
    static uint8_t saved[1u << 20];
    size_t bytes = 0;
    for (uint32_t mlps = 1; mlps < 4; mlps++) { /* the first turn saves */
        machine_make();
        fake.run = run;
        cuda_life l = { .e = open_engine(0, 0) };
        exl2_model_desc m = desc_of("exl2-mixed", mlps == 2 ? 1 : mlps == 3 ? 2 : 1);
        exl2_session_info info;
        exl2_model_info loaded_info;
        CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK);
        CHECK_INT(exl2_model_get(l.e, l.model, &loaded_info), EXL2_OK);
        note_layers(&loaded_info);
        CHECK_INT(exl2_session_open(l.e, l.model, &l.a), EXL2_OK);
        if (mlps == 1) {
            exl2_job_desc d = cuda_job(l.a, cuda_prompt, 8, 9, &cuda_said[0]);
            CHECK_INT(cuda_run(&l, &d, 1), EXL2_OK);
            CHECK_INT(exl2_session_save(l.e, l.a, EXL2_SAVE_KV, saved, sizeof saved, &bytes), EXL2_OK);
        } else {
            CHECK_INT(exl2_session_restore(l.e, l.a, saved, bytes), EXL2_OK);
            CHECK_INT(exl2_session_get(l.e, l.a, &info), EXL2_OK);
            CHECK_INT(info.tokens, 17);
            CHECK_INT(info.tokens_cached, mlps == 2 ? 16 : 0);
        }
        exl2_close(l.e);
        machine_end();
    }
}

/* ---- faults ---- */

/* Uses an engine in which the n-th allocation or call after opening fails; 0: none. Returns whether one failed. */
static bool life(const cuda_way *w, uint32_t n)
{
    machine_make();
    fake.run = run;
    cuda_way_set(w);
    rows_checked = 0;
    cuda_life l = { .e = open_engine(0, 0), .late = w->late };
    cuda_way_fail(w, n);
    exl2_result r = cuda_use(&l);
    bool failed = cuda_way_failed();
    CHECK(failed || rows_checked > 50);
    cuda_way_end(w, n, &l, r, failed);
    return failed;
}

int main(void)
{
    static const cuda_way bad[] = {
        { "device allocations", "cuMemAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "pinned allocations", "cuMemHostAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "host allocations", NULL, 0, 0, true, false, true, 1 },
        { "calls", NULL, 1, 11, true, false, false, 7 * STRIDE },
        { "calls of a late device", NULL, 1, 11, false, true, false, 13 * STRIDE },
    };
    static const char *const models[] = { "exl2-mixed", "cohere", "exl2-qwen3-moe", "gemma2", "orion", "starcoder2",
                                          "mixed-kinds", "smollm3", "granite", "gptq-phi3", "awq", "exl2-4bit" };
    machine_drop_cache();
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        open_reference(models[i]);
        for (uint32_t mlps = 1; mlps <= 3; mlps++) {
            values(models[i], mlps);
        }
        caps(models[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        const char *name = i ? "smollm3" : "exl2-qwen3-moe";
        open_reference(name);
        several_cards(name);
    }
    open_reference("exl2-mixed");
    refusals();
    park(false);
    park(true);
    saves();
    cuda_host_mlps = host_mlps = 1;
    memset(host_layers, 0, sizeof host_layers);
    host_layers[cpu_engine->models[0].plan.shape.layers - 1] = true;
    memset(host_prompts, 1, sizeof host_prompts);
    cuda_ways_good(life);
    cuda_ways_sweep(life, bad, EXL2__COUNT(bad));
    exl2_close(cpu_engine);
    machine_drop_cache();
    fake_reset();
    return check_done();
}
