/* cards_pictures.c: pictures of models that several fake GPUs share by columns: the first one has the tower, and its
   rows, those that are added after layers too, come to all of them, once no other GPU reads what they replace; rows and
   words are those of one GPU; device memory is as planned, and caps may be as low; parking; saves go from one GPU to
   several and back; allocations and calls that fail once, and a lost GPU.
   takes: the shared fixtures (fixtures/vision).
   gives: exit code 0 or 1; 77 without fixtures. */
#include "cuda_ways.h"
#include "../device/fake_tower.h"
#include "../../kernels_src/meet_args.h"

#define CARDS 5u
#define SIDE 64u
#define SPOKEN 12u
#define FLOATS_MAX (1u << 16)

static const exl2_card cards[CARDS] = { { .device = 1 }, { .device = 0 }, { .device = 3 }, { .device = 2 },
                                        { .device = 4 } };

typedef struct family {
    const char *name;
    uint32_t frames;   /* of a video; 0: a picture */
    bool turns, adds;  /* angles of three axes; rows are added after layers */
} family;

/* ---- the fake GPUs ---- */

static uint32_t towers[CARDS], turned[CARDS], added[CARDS], met[CARDS], attended[CARDS]; /* launches, by device */
static uint32_t arrived[CARDS][1024];                       /* times that a row has begun a pass there */
static float expected[FLOATS_MAX];                          /* [expected_rows, levels, hidden] of the picture */
static uint32_t expected_rows, levels, hidden;
static uint32_t sharers;                                    /* GPUs of the model */
static bool computes;                                       /* kernels of towers do */
static struct watched { uint64_t at, bytes, sum; bool met; } residual[CARDS]; /* as the last kernel has left it */

/* The row of the picture whose first vector lies there; expected_rows: none. */
static uint32_t row_at(uint64_t address)
{
    const float *row = fake_model_at(address, hidden * sizeof *row);
    uint32_t i = 0;
    while (i < expected_rows && memcmp(row, expected + (size_t)i * levels * hidden, hidden * sizeof *row) != 0) {
        i++;
    }
    return i;
}

/* Rows of a pass that have vectors: each lies where it begins, and what it has for a later layer beside it. */
static void check_vectors(uint64_t pass_at, uint64_t rows_at, uint64_t first, uint64_t later)
{
    const exl2k_pass *pass = fake_model_at(pass_at, sizeof *pass);
    for (uint32_t i = 0; expected_rows && i < pass->row_count; i++) {
        const exl2k_row *row = fake_model_at(rows_at + i * sizeof *row, sizeof *row);
        uint64_t bytes = hidden * sizeof(float), at = i * bytes;
        if (!(row->flags & EXL2K_ROW_VECTOR)) {
            continue;
        }
        uint32_t n = row_at(first + at);
        if (!CHECK(n < expected_rows)) {
            printf("  row %u of a pass on GPU %d is none of the picture\n", i, fake.running);
            return;
        }
        arrived[fake.running][n] += later == 0;
        bool same = later == 0;
        for (uint32_t level = 1; level < levels && !same; level++) {
            const float *wanted = expected + ((size_t)n * levels + level) * hidden;
            same = memcmp(fake_model_at(later + at, bytes), wanted, bytes) == 0;
        }
        CHECK(same);
    }
}

static uint64_t sum_of(const struct watched *w)
{
    uint64_t sum = 0;
    const uint64_t *memory = w->at ? fake_memory(w->at, w->bytes) : NULL;
    for (uint64_t i = 0; memory && i < w->bytes / 8; i++) {
        sum = sum * 1000003 + memory[i];
    }
    return sum;
}

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    const fake_kernel *kernel = machine_kernels;
    struct watched *watched = &residual[fake.running];
    bool own = true, meets = strncmp(function, "exl2k_meet", 10) == 0;
    while (strcmp(kernel->function, function) != 0) {
        kernel++;
    }
    for (size_t at = 0; at + 8 <= kernel->argument_bytes && !meets; at += 8) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)arguments + at, sizeof word);
        int device = fake_device_of(word);
        own = own && (device < 0 || device == fake.running || strstr(function, "_peers"));
    }
    CHECK(own);
    if (!CHECK(sharers < 2 || !watched->at || watched->met || sum_of(watched) == watched->sum)) {
        printf("  rows replace what other GPUs may still read of GPU %d\n", fake.running);
    }
    bool adds = strcmp(function, "exl2k_tower_add") == 0;
    towers[fake.running] += strncmp(function, "exl2k_tower", 11) == 0 && !adds;
    turned[fake.running] += strcmp(function, "exl2k_attend_turn") == 0;
    added[fake.running] += adds;
    met[fake.running] += meets;
    attended[fake.running] += strncmp(function, "exl2k_attend", 12) == 0;
    if (strcmp(function, "exl2k_embed") == 0) {
        const exl2k_embed_args *a = arguments;
        hidden = a->hidden;
        *watched = (struct watched){ .at = a->residual, .bytes = 32 * hidden * sizeof(float) };
        check_vectors(a->pass, a->rows, a->residual, 0);
    } else if (adds) {
        const exl2k_tower_add_args *a = arguments;
        check_vectors(a->pass, a->rows, a->residual, a->added);
        CHECK(sharers < 2 || watched->met); /* the others have read the residual */
    }
    bool knows = attended[fake.running] > 0 || strncmp(function, "exl2k_sample", 12) != 0;
    if (!meets && knows) { /* a GPU without heads knows no words */
        (computes ? fake_tower_run : fake_model_run)(function, arguments, grid);
    }
    watched->sum = sum_of(watched);
    watched->met = meets;
}

static void make(uint32_t count)
{
    machine_make();
    for (uint32_t i = 0; i < CARDS * CARDS; i++) {
        fake.peer[i / CARDS][i % CARDS] = i / CARDS == i % CARDS ? FAKE_PEER_NONE : FAKE_PEER_GOOD;
    }
    fake.run = run;
    fake.device_count = (int)CARDS;
    for (int i = 1; i < (int)CARDS; i++) {
        fake.devices[i] = fake.devices[0];
        fake.devices[i].uuid[0] = (uint8_t)(10 + i);
    }
    sharers = count;
    expected_rows = 0;
    memset(towers, 0, sizeof towers);
    memset(turned, 0, sizeof turned);
    memset(added, 0, sizeof added);
    memset(met, 0, sizeof met);
    memset(attended, 0, sizeof attended);
    memset(arrived, 0, sizeof arrived);
    memset(residual, 0, sizeof residual);
}

static exl2_engine *open_cards(void)
{
    exl2_engine *e = NULL;
    exl2_device_desc picks[CARDS];
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    cuda_way_count_memory(&d);
    for (uint32_t i = 0; i < CARDS; i++) {
        picks[i] = (exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = i };
    }
    d.devices = picks;
    d.device_count = CARDS;
    cuda_error = (exl2_error){ EXL2_OK, 0, "" };
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    return e;
}

/* ---- uses ---- */

static exl2_model_desc desc_of(const family *f, uint32_t count)
{
    static char path[1200];
    snprintf(path, sizeof path, "%s/fixtures/vision/%s", check_env("EXL2_TEST_DATA"), f->name);
    return (exl2_model_desc){ .path = path, .prefill_chunk = 32, .batch_max = 2, .cards = cards, .card_count = count,
                              .split = count > 1 ? EXL2_SPLIT_COLUMNS : EXL2_SPLIT_LAYERS, .context_max = 512,
                              .cache.tokens = 8 * EXL2__PAGE_TOKENS, .on_event = cuda_hear_load,
                              .vision = { .images = 1, .pixels_max = 4 * SIDE * SIDE, .max_rows = 64 } };
}

static uint64_t card_bytes(const exl2_card_info *c) { return c->weight_bytes + c->cache_bytes + c->scratch_bytes; }

static exl2_result make_picture(exl2_engine *e, exl2_model m, const family *f, exl2_image *out)
{
    static uint8_t pixels[5 * SIDE * SIDE * 3];
    for (uint32_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)(i * 7 + i / 191 + (i >> 5) * (i >> 9));
    }
    exl2_image_desc p = { .model = m, .width = SIDE, .height = SIDE, .pixels = pixels, .silent = true,
                          .frames = f->frames, .fps = f->frames ? 0.1 : 0 };
    return exl2_image_make(e, &p, out);
}

/* Steps until the picture has its rows. gpu_us 0: at once. */
static exl2_result encode(exl2_engine *e, exl2_image image, bool late, uint32_t gpu_us)
{
    exl2_image_info info = { 0 };
    for (uint32_t i = 0; i < 100000 && info.state != EXL2_IMAGE_ENCODED && info.result >= 0; i++) {
        exl2_step(e, &(exl2_step_desc){ .gpu_us = gpu_us, .wait = !late });
        EXL2__TRY(exl2_image_get(e, image, &info));
    }
    return info.result < 0 ? info.result : info.state == EXL2_IMAGE_ENCODED ? EXL2_OK : EXL2_PENDING;
}

static exl2_job_desc job_of(const exl2_image *image, rig_said *said)
{
    exl2_job_desc j = cuda_job((exl2_session){ 0 }, NULL, 0, SPOKEN, said);
    j.prompt = (exl2_prompt){ .text = "What is this, and why? Say all that you see there.", .images = image,
                              .image_count = image ? 1 : 0 };
    return j;
}

/* Two jobs at once: one with the picture, and one with text alone. */
static void speak(exl2_engine *e, exl2_model m, exl2_image image, uint32_t gpu_us, rig_said said[2])
{
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job_desc j = job_of(i ? NULL : &image, &said[i]);
        j.model = m;
        CHECK_INT(exl2_job_start(e, &j, NULL), EXL2_OK);
    }
    cuda_step_all(e, false, gpu_us);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(said[i].done_events == 1 && said[i].result == EXL2_OK && said[i].count > 0);
    }
    CHECK(said[0].stats.image_rows > 0);
}

/* Every GPU has got each row of the picture `times` times. */
static void expect_arrived(uint32_t count, uint32_t times)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t row = 0; row < expected_rows; row++) {
            CHECK_INT(arrived[cards[i].device][row], times);
        }
    }
}

typedef struct result {
    rig_said said[2];
    float rows[FLOATS_MAX];
    size_t floats;
    uint32_t towers, turned, added;
} result;

/* Loads the model, encodes a picture and speaks of it: at once, in slices, and after parking. */
static void use(const family *f, uint32_t count, bool keep_packed, uint32_t gpu_us, result *out)
{
    static rig_said again[2];
    exl2_model m;
    exl2_model_info info, measured;
    exl2_image image;
    exl2_engine_stats stats;
    int failures = check_failures;
    make(count);
    exl2_engine *e = open_cards();
    exl2_model_desc d = desc_of(f, count);
    d.keep_packed = keep_packed;
    CHECK_INT(exl2_model_measure(e, &d, &measured), EXL2_OK);
    if (!CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK)) {
        rig_fail(e, f->name, EXL2_ERR_INTERNAL);
    }
    CHECK_INT(exl2_model_get(e, m, &info), EXL2_OK);
    exl2_stats(e, &stats);
    CHECK(info.card_count == count && memcmp(info.cards, measured.cards, sizeof info.cards) == 0);
    uint64_t weights = 0, all = 0;
    for (uint32_t i = 0; i < count; i++) {
        CHECK_INT(stats.devices_bytes[cards[i].device], card_bytes(&info.cards[i]));
        CHECK(info.cards[i].weight_bytes > (i == 0 ? info.tower_bytes : 0));
        weights += info.cards[i].weight_bytes;
        all += card_bytes(&info.cards[i]);
    }
    CHECK(info.tower_bytes > 0 && weights == info.weight_bytes && all == info.device_bytes);
    CHECK_INT(make_picture(e, m, f, &image), EXL2_OK);
    CHECK_INT(encode(e, image, false, gpu_us), EXL2_OK);
    CHECK_INT(exl2_image_rows(e, image, out->rows, FLOATS_MAX, &out->floats), EXL2_OK);
    exl2_image_info picture;
    CHECK_INT(exl2_image_get(e, image, &picture), EXL2_OK);
    memcpy(expected, out->rows, out->floats * sizeof *expected);
    levels = (uint32_t)(out->floats / picture.rows / info.hidden);
    hidden = info.hidden;
    expected_rows = picture.rows;
    CHECK(picture.rows <= EXL2__COUNT(arrived[0]) && (levels > 1) == f->adds);
    speak(e, m, image, gpu_us, out->said);
    expect_arrived(count, 1);
    out->towers = towers[cards[0].device];
    out->turned = turned[cards[0].device];
    out->added = added[cards[0].device];
    for (uint32_t i = 1; i < count; i++) {
        CHECK_INT(towers[cards[i].device], 0);
        CHECK_INT(added[cards[i].device], out->added);
        CHECK_INT(met[cards[i].device], met[cards[0].device]);
    }
    CHECK(out->towers > 0 && (out->added > 0) == f->adds && (out->turned > 0) == f->turns);
    memset(residual, 0, sizeof residual);
    CHECK_INT(exl2_model_park(e, m, true), EXL2_OK);
    CHECK_INT(fake.allocated, 0);
    CHECK_INT(cuda_load_again(e, m), EXL2_OK);
    speak(e, m, image, gpu_us, again);
    expect_arrived(count, 2);
    CHECK(memcmp(again[0].ids, out->said[0].ids, sizeof *again[0].ids * SPOKEN) == 0);
    exl2_stats(e, &stats);
    CHECK_INT(stats.device_bytes, info.device_bytes);
    exl2_close(e);
    CHECK_INT(cuda_way_host_bytes, 0);
    machine_end();
    if (check_failures > failures) {
        printf("  %s on %u GPUs\n", f->name, count);
    }
}

/* Rows and words are those of one GPU. */
static void families(void)
{
    static const family all[] = { { "smolvlm", 0, false, false },   { "qwen2.5-vl", 0, true, false },
                                  { "gemma3", 0, false, false },    { "qwen3-vl", 0, true, true },
                                  { "qwen2.5-vl", 5, true, false }, { "mistral3", 0, false, false },
                                  { "llava-clip", 0, false, false } };
    static const uint32_t counts[] = { 2, 3, 5 };
    static result one, several;
    for (size_t i = 0; i < EXL2__COUNT(all); i++) {
        use(&all[i], 1, false, 0, &one);
        for (size_t k = 0; k < EXL2__COUNT(counts); k++) {
            use(&all[i], counts[k], k % 2 == 1, k == 2 ? 1 : 0, &several);
            CHECK(several.floats == one.floats && memcmp(several.rows, one.rows, one.floats * sizeof *one.rows) == 0);
            for (uint32_t n = 0; n < 2; n++) {
                CHECK_INT(several.said[n].count, one.said[n].count);
                CHECK(memcmp(several.said[n].ids, one.said[n].ids, SPOKEN * sizeof *one.said[n].ids) == 0);
            }
            CHECK(k == 2 || (several.towers == one.towers && several.added == one.added));
        }
    }
}

/* Each card's cap may be what the card needs, the first one's with the tower, and not a byte less. */
static void caps(const family *f, uint32_t count)
{
    exl2_card own[CARDS];
    exl2_model m;
    exl2_model_info info, measured;
    make(count);
    exl2_engine *e = open_cards();
    exl2_model_desc d = desc_of(f, count);
    CHECK_INT(exl2_model_measure(e, &d, &info), EXL2_OK);
    memcpy(own, cards, sizeof own);
    d.cards = own;
    for (uint32_t i = 0; i < count; i++) {
        own[i].bytes_max = card_bytes(&info.cards[i]);
    }
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK);
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    for (uint32_t i = 0; i < count; i++) {
        own[i].bytes_max--;
        CHECK_INT(exl2_model_measure(e, &d, &measured), EXL2_ERR_BUDGET);
        CHECK_INT(exl2_model_load(e, &d, &m), EXL2_ERR_BUDGET);
        own[i].bytes_max++;
    }
    exl2_close(e);
    machine_end();
}

/* A session with a picture is saved, restored on other GPUs, and goes on; back: from several GPUs to one. */
static void saves(const family *f, bool back)
{
    static uint8_t saved[1u << 20];
    static rig_said said[2];
    size_t bytes = 0;
    exl2_model m;
    exl2_image image;
    exl2_session s, other;
    uint32_t count = back ? 2 : 1;
    make(2); /* both may meet */
    exl2_engine *e = open_cards();
    exl2_model_desc d = desc_of(f, count);
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK);
    CHECK_INT(make_picture(e, m, f, &image), EXL2_OK);
    CHECK_INT(exl2_session_open(e, m, &s), EXL2_OK);
    exl2_job_desc j = job_of(&image, &said[0]);
    j.session = s;
    sharers = count;
    CHECK_INT(exl2_job_start(e, &j, NULL), EXL2_OK);
    cuda_step_all(e, false, 0);
    CHECK_INT(exl2_session_save(e, s, EXL2_SAVE_KV, saved, sizeof saved, &bytes), EXL2_OK);
    memset(residual, 0, sizeof residual);
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    d = desc_of(f, 3 - count);
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK);
    CHECK_INT(exl2_session_open(e, m, &other), EXL2_OK);
    CHECK_INT(exl2_session_restore(e, other, saved, bytes), EXL2_OK);
    memset(residual, 0, sizeof residual);
    sharers = 3 - count;
    exl2_session_info info;
    CHECK_INT(exl2_session_get(e, other, &info), EXL2_OK);
    CHECK(info.tokens_cached + 1 >= info.tokens && info.pictures_missing > 0);
    uint32_t before = towers[cards[0].device];
    j = cuda_job(other, cuda_prompt, 3, SPOKEN, &said[1]);
    CHECK_INT(exl2_job_start(e, &j, NULL), EXL2_OK);
    cuda_step_all(e, false, 0);
    CHECK(said[1].done_events == 1 && said[1].result == EXL2_OK && said[1].count == SPOKEN);
    CHECK_INT(towers[cards[0].device], before); /* K and V of the picture are there */
    exl2_close(e);
    machine_end();
}

/* ---- failures ---- */

static const family failing = { "qwen3-vl", 0, true, true };

/* Loads a model on two GPUs, encodes a picture and speaks of it. */
static exl2_result pass_through(cuda_life *l)
{
    exl2_image image;
    exl2_model_desc d = desc_of(&failing, 2);
    EXL2__TRY(cuda_try(l, exl2_model_load(l->e, &d, &l->model)));
    EXL2__TRY(cuda_try(l, make_picture(l->e, l->model, &failing, &image)));
    exl2_result r = encode(l->e, image, l->late, l->late ? 3 : 0);
    if (r < 0) {
        l->error.code = r; /* the event has the text */
        memcpy(l->error.text, "of a picture that was not encoded", 34);
        return r;
    }
    exl2_job_desc j = job_of(&image, &cuda_said[0]);
    j.model = l->model;
    EXL2__TRY(cuda_run(l, &j, 1));
    return exl2_model_close(l->e, l->model);
}

static bool life(const cuda_way *w, uint32_t n)
{
    make(0); /* after a failure the order of meetings is another one */
    cuda_way_set(w);
    cuda_cards = cards;
    cuda_card_count = 2;
    cuda_split = EXL2_SPLIT_COLUMNS;
    cuda_life l = { .e = open_cards(), .late = w->late };
    cuda_way_fail(w, n);
    exl2_result r = pass_through(&l);
    bool failed = cuda_way_failed();
    CHECK(failed || (r == EXL2_OK && towers[cards[0].device] > 20 && added[0] == added[1]));
    cuda_way_end(w, n, &l, r, failed);
    return failed;
}

/* One of the GPUs is lost while launch n runs: the picture, or the job, ends with that. */
static void lose(void)
{
    bool lost = true;
    for (uint32_t n = 1; lost; n += 29) {
        exl2_model m;
        exl2_image image;
        make(0);
        exl2_engine *e = open_cards();
        exl2_model_desc d = desc_of(&failing, 2);
        CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK);
        CHECK_INT(make_picture(e, m, &failing, &image), EXL2_OK);
        fake.fault_code = EXL2__CUDA_LAUNCH_FAILED;
        fake.fault_at = n;
        exl2_result r = encode(e, image, false, n % 2);
        exl2_job_desc j = job_of(&image, &cuda_said[0]);
        j.model = m;
        r = r < 0 ? r : exl2_job_start(e, &j, NULL);
        if (r >= 0) {
            cuda_step_all(e, false, 0);
            r = cuda_said[0].result;
        }
        lost = r < 0; /* at last only a pass that nobody needs any more is lost */
        CHECK(!lost || (fake.lost && r == EXL2_ERR_DEVICE_LOST));
        exl2_close(e);
        CHECK_INT(cuda_way_host_bytes, 0);
        machine_end();
        CHECK(lost || n > 300);
    }
}

/* Passes that come after a tower's work in the queue of the first GPU wait for it in those of the others, too: a call
   that makes a stream wait is part of each step with a picture. */
static void waits(void)
{
    exl2_model m;
    exl2_image image;
    make(2);
    exl2_engine *e = open_cards();
    exl2_model_desc d = desc_of(&failing, 2);
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK);
    CHECK_INT(make_picture(e, m, &failing, &image), EXL2_OK);
    fake.fail_name = "cuStreamWaitEvent";
    fake.fail_code = 1;
    fake.fail_at = 3;
    CHECK(encode(e, image, false, 1) < 0);
    CHECK(strcmp(fake.failed, "cuStreamWaitEvent") == 0);
    exl2_close(e);
    machine_end();
}

int main(void)
{
    static const family whole = { "gemma3", 0, false, false }, deep = { "qwen3-vl", 0, true, true };
    const cuda_way bad[] = {
        { "device allocations", "cuMemAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "pinned allocations", "cuMemHostAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "host allocations", NULL, 0, 0, true, false, true, 5 },
        { "calls", NULL, 1, 11, true, false, false, 37 * CUDA_WAY_STRIDE },
        { "calls of a late device", NULL, 1, 11, false, true, false, 71 * CUDA_WAY_STRIDE },
    };
    check_shared("fixtures/vision/README.md");
    machine_drop_cache();
    computes = true;
    families();
    computes = false;
    caps(&deep, 2);
    caps(&whole, 3);
    saves(&deep, false);
    saves(&deep, true);
    lose();
    waits();
    cuda_ways_good(life);
    cuda_ways_sweep(life, bad, EXL2__COUNT(bad));
    machine_drop_cache();
    fake_reset();
    return check_done();
}
