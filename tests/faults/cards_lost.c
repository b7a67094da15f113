/* cards_lost.c: one of several fake GPUs is lost while launch n runs: the models that have a part on it end with
   DEVICE_LOST, at once and later, and name it; those on other GPUs go on, and new ones load there. Errors name GPUs by
   their numbers in the list of exl2_devices.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_ways.h"

#define CARDS 5u

/* Device i is GPU CARDS - 1 - i of the machine. */
static exl2_device_desc picks[CARDS];

typedef struct model {
    const char *name;
    exl2_card cards[2];
    uint32_t count;
    exl2_split split;
    uint32_t host_mlps;
} model;

/* Each pair lies on different devices. */
static const model pairs[][2] = {
    { { "exl2-mixed", { { .device = 0 }, { .device = 1 } }, 2, EXL2_SPLIT_LAYERS, 0 },
      { "exl2-mixed", { { .device = 3 } }, 1, EXL2_SPLIT_LAYERS, 0 } },
    { { "exl2-mixed", { { .device = 0 }, { .device = 3 } }, 2, EXL2_SPLIT_COLUMNS, 0 },
      { "exl2-mixed", { { .device = 2 }, { .device = 4 } }, 2, EXL2_SPLIT_LAYERS, 1 } },
};

/* Launches of a GPU that has no heads know no words. */
static uint32_t attended[CARDS];

static void run(const char *function, const void *arguments, const unsigned grid[3])
{
    attended[fake.running] += strncmp(function, "exl2k_attend", 12) == 0;
    bool knows = attended[fake.running] > 0 || strncmp(function, "exl2k_sample", 12) != 0;
    if (strncmp(function, "exl2k_meet", 10) != 0 && knows) {
        fake_model_run(function, arguments, grid);
    }
}

static exl2_engine *open_cards(uint64_t device_bytes_max)
{
    exl2_engine *e = NULL;
    for (uint32_t i = 0; i < CARDS; i++) {
        picks[i] = (exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = CARDS - 1 - i };
    }
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    cuda_way_count_memory(&d);
    d.devices = picks;
    d.device_count = CARDS;
    d.device_bytes_max = device_bytes_max;
    CHECK_INT(exl2_open(&d, &e), EXL2_OK);
    return e;
}

static void make(void)
{
    machine_make();
    for (uint32_t i = 0; i < CARDS * CARDS; i++) {
        fake.peer[i / CARDS][i % CARDS] = i / CARDS == i % CARDS ? FAKE_PEER_NONE : FAKE_PEER_GOOD;
    }
    fake.run = run;
    fake.lost_alone = true;
    fake.device_count = (int)CARDS;
    for (int i = 1; i < (int)CARDS; i++) {
        fake.devices[i] = fake.devices[0];
        fake.devices[i].uuid[0] = (uint8_t)(10 + i);
    }
    memset(attended, 0, sizeof attended);
}

static exl2_result load(exl2_engine *e, const model *of, exl2_model *out)
{
    exl2_model_desc d = { .path = rig_golden(of->name), .prefill_chunk = 32, .batch_max = 2, .cards = of->cards,
                          .card_count = of->count, .split = of->split, .cache.tokens = 8 * EXL2__PAGE_TOKENS };
    d.offload = of->host_mlps ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE;
    d.host_mlps = of->host_mlps;
    return exl2_model_load(e, &d, out);
}

static bool has_part(const model *of, int gpu)
{
    bool found = false;
    for (uint32_t i = 0; i < of->count; i++) {
        found = found || (int)picks[of->cards[i].device].index == gpu;
    }
    return found;
}

/* The text must name the GPU by its number in the list of exl2_devices. */
static void expect_named(const char *text)
{
    char name[64];
    snprintf(name, sizeof name, "GPU %d (FakeForce 4090) was lost", fake.lost_device);
    if (!CHECK(strncmp(text, name, strlen(name)) == 0)) {
        printf("  \"%s\" should begin with \"%s\"\n", text, name);
    }
}

/* A model loads on each GPU but the one that is lost. */
static void load_elsewhere(exl2_engine *e)
{
    for (uint32_t i = 0; i < CARDS; i++) {
        const model one = { "exl2-mixed", { { .device = i } }, 1, EXL2_SPLIT_LAYERS, 0 };
        bool gone = (int)picks[i].index == fake.lost_device;
        exl2_model m;
        CHECK_INT(load(e, &one, &m), gone ? EXL2_ERR_DEVICE_LOST : EXL2_OK);
        exl2_model_close(e, m);
    }
}

/* Launch n faults. Returns whether there was one. */
static bool lose(const model *pair, uint32_t n)
{
    exl2_model m[2];
    exl2_session s[2];
    make();
    exl2_engine *e = open_cards(0);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(load(e, &pair[i], &m[i]), EXL2_OK);
        CHECK_INT(exl2_session_open(e, m[i], &s[i]), EXL2_OK);
        exl2_job_desc d = cuda_job(s[i], cuda_prompt, 8, 24, &cuda_said[i]);
        d.min_tokens = 24;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    }
    fake.fault_at = n;
    fake.fault_code = EXL2__CUDA_ILLEGAL_ADDRESS;
    cuda_step_all(e, false, 0);
    fake.fault_at = 0;
    bool lost = fake.lost != 0;
    for (uint32_t i = 0; i < 2 && lost; i++) {
        bool part = has_part(&pair[i], fake.lost_device), late = cuda_said[i].result == EXL2_OK;
        CHECK_INT(cuda_said[i].done_events, 1);
        CHECK(part || late);
        if (!late) {
            CHECK_INT(cuda_said[i].result, EXL2_ERR_DEVICE_LOST);
            expect_named(cuda_said[i].error);
        } else {
            cuda_expect_history(e, s[i], 8, 32);
        }
        exl2_job_desc d = cuda_job(s[i], cuda_prompt, 3, 4, &cuda_said[i]);
        exl2_result r = exl2_job_start(e, &d, NULL);
        cuda_step_all(e, false, 0);
        CHECK_INT(r < 0 ? r : cuda_said[i].result, part ? EXL2_ERR_DEVICE_LOST : EXL2_OK);
        CHECK(exl2_session_tokens(e, s[i], NULL, 0, &(size_t){ 0 }) >= 0);
    }
    if (lost) {
        CHECK_INT(exl2_model_close(e, m[1]), EXL2_OK); /* there may be four models */
        load_elsewhere(e);
    }
    exl2_close(e);
    CHECK_INT(cuda_way_host_bytes, 0);
    CHECK_INT(fake.allocated, 0);
    return lost;
}

static void expect(exl2_engine *e, const model *of, exl2_result wanted, const char *part, const char *absent)
{
    exl2_model m;
    CHECK_INT(load(e, of, &m), wanted);
    exl2_last_error(e, &cuda_error);
    if (!CHECK(strstr(cuda_error.text, part) && !strstr(cuda_error.text, absent))) {
        printf("  \"%s\" should have \"%s\", and not \"%s\"\n", cuda_error.text, part, absent);
    }
}

/* Errors say which GPU of several it is. Where the CPU cannot have a part, none says that it could. */
static void names(void)
{
    const model *columns = &pairs[1][0], *one = &pairs[0][1];
    make();
    fake.peer[1][4] = FAKE_PEER_WRONG;
    exl2_engine *e = open_cards(0);
    expect(e, columns, EXL2_ERR_UNSUPPORTED, "GPU 1 (FakeForce 4090) and GPU 4 (FakeForce 4090) do not reach", "GPUs");
    exl2_close(e);
    make();
    fake.devices[1].sm_count++;
    e = open_cards(0);
    expect(e, columns, EXL2_ERR_UNSUPPORTED, "GPU 4 (FakeForce 4090) and GPU 1 (FakeForce 4090) are of", "GPUs");
    exl2_close(e);
    make();
    e = open_cards(1u << 21);
    expect(e, columns, EXL2_ERR_BUDGET, "bytes on GPU 4 (", "offload");
    expect(e, one, EXL2_ERR_BUDGET, "bytes on GPU 1 (", "GPU 3");
    expect(e, one, EXL2_ERR_BUDGET, "with exl2_model_desc.offload", "GPU 3");
    exl2_close(e);
    machine_end();
}

int main(void)
{
    machine_drop_cache();
    for (size_t i = 0; i < EXL2__COUNT(pairs); i++) {
        uint32_t n = 1;
        while (n < 5000 && lose(pairs[i], n)) {
            n += 7 * CUDA_WAY_STRIDE;
        }
        printf("pair %zu: %u launches\n", i, n - 1);
        CHECK(n > 300 && n < 5000);
    }
    names();
    machine_drop_cache();
    fake_reset();
    return check_done();
}
