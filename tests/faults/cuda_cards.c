/* cuda_cards.c: engines with several fake GPUs: which of them open; models on different ones, and models whose layers
   lie on several, also those that read pictures. Device memory is as planned, for each GPU; a kernel gets addresses of
   its own GPU alone; tokens are those of the fake model; allocations and calls that fail once.
   takes: the goldens; the shared fixtures (fixtures/vision), without which no pictures are read.
   gives: exit code 0 or 1. */
#include "cards_rig.h"

#include <math.h>

static void expect_text(const char *text, const char *part)
{
    if (!CHECK(strstr(text, part) != NULL)) {
        printf("  \"%s\" should name \"%s\"\n", text, part);
    }
}

/* ---- opening ---- */

static void test_open(void)
{
    exl2_engine_info info;
    make();
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
    exl2_engine_get(e, &info);
    CHECK_INT(info.device_count, CARDS);
    CHECK(info.device.index == 0);
    for (uint32_t i = 0; i < CARDS; i++) {
        CHECK(info.devices[i].index == i && info.devices[i].usable && fake.devices[i].retained == 1);
    }
    exl2_close(e);
    const exl2_device_desc twice[] = { picks[1], picks[0], { .pick = EXL2_PICK_UUID, .uuid = { 11 } } };
    exl2_device_desc same[3];
    memcpy(same, twice, sizeof same);
    memcpy(same[2].uuid, fake.devices[1].uuid, sizeof same[2].uuid);
    open_cards(EXL2_BACKEND_CUDA, same, 3, EXL2_ERR_ARG);
    expect_text(cuda_error.text, "names GPU 1 (FakeForce 4090) twice, as 0 and 2");
    open_cards(EXL2_BACKEND_AUTO, same, 3, EXL2_ERR_ARG); /* a mistake of the application */
    open_cards(EXL2_BACKEND_CUDA, picks, 9, EXL2_ERR_ARG);
    open_cards(EXL2_BACKEND_CUDA, NULL, 2, EXL2_ERR_ARG);
    exl2_device_desc dirty[2] = { picks[0], { ._end_canary = 1 } };
    open_cards(EXL2_BACKEND_CUDA, dirty, 2, EXL2_ERR_ARG);
    machine_end();
}

/* Two GPUs have access to each other's memory if the driver says so, and if what is copied arrives. */
static void test_peers(void)
{
    exl2_engine_info info;
    for (peers = FAKE_PEER_NONE; peers <= (int)FAKE_PEER_WRONG; peers++) {
        make();
        exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
        exl2_engine_get(e, &info);
        for (uint32_t i = 0; i < CARDS; i++) {
            exl2_link_speed speed;
            CHECK_INT(info.peers[i], peers == FAKE_PEER_GOOD ? 7u & ~(1u << i) : 0u);
            CHECK_INT(exl2_link_probe(e, i, (i + 1) % CARDS, &speed), EXL2_OK);
            CHECK(speed.direct == (peers == FAKE_PEER_GOOD) && speed.us > 0 && speed.bytes_s > 0);
            CHECK_INT(exl2_link_probe(e, i, i, &speed), EXL2_ERR_ARG);
            CHECK_INT(exl2_link_probe(e, CARDS, i, &speed), EXL2_ERR_ARG);
        }
        CHECK_INT(exl2_link_probe(e, 0, 1, NULL), EXL2_ERR_ARG);
        exl2_close(e);
        machine_end();
    }
    peers = FAKE_PEER_GOOD;
    make();
    fake.peer[0][2] = FAKE_PEER_NONE;
    fake.peer[1][2] = FAKE_PEER_WRONG;
    fake.devices[1].bytes_total = 1; /* no room for the pattern */
    exl2_device_desc two[2] = { picks[2], picks[0] };
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, two, 2, EXL2_OK); /* by their places in the engine */
    exl2_engine_get(e, &info);
    CHECK(info.peers[0] == 2 && info.peers[1] == 0);
    exl2_close(e);
    e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
    exl2_engine_get(e, &info);
    CHECK(info.peers[0] == 0 && info.peers[1] == 0 && info.peers[2] == 1);
    exl2_close(e);
    machine_end();
    peers = FAKE_PEER_NONE;
}

/* One GPU of three is too old. */
static void test_left_out(void)
{
    exl2_engine_info info;
    make();
    fake.devices[0].arch_major = 6;
    open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_ERR_NO_DEVICE);
    machine.warnings = 0;
    exl2_engine *e = open_cards(EXL2_BACKEND_AUTO, picks, CARDS, EXL2_OK);
    CHECK_INT(machine.warnings, 1);
    CHECK_INT(machine.warning_id, EXL2_LOG_ID_DEVICE_LEFT_OUT);
    expect_text(machine.warning, "the engine works without device 0: GPU 0 (FakeForce 4090) cannot be used");
    exl2_engine_get(e, &info);
    CHECK(info.backend == EXL2_BACKEND_CUDA && info.device_count == CARDS && info.device.index == 1);
    CHECK(!info.devices[0].usable && info.devices[0].why_not[0] && info.devices[2].usable);
    exl2_model m;
    exl2_card card = { .device = 0 };
    exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .cards = &card, .card_count = 1 };
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_ERR_ARG);
    exl2_last_error(e, &cuda_error);
    expect_text(cuda_error.text, "cards[0] is device 0, which did not open");
    d.card_count = 0; /* the first one that opened */
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_OK);
    exl2_model_info model;
    CHECK_INT(exl2_model_get(e, m, &model), EXL2_OK);
    CHECK(model.card_count == 1 && model.cards[0].device == 1 && fake.devices[1].bytes_used > 0);
    CHECK_INT(fake.devices[2].bytes_used, 0);
    exl2_close(e);
    for (uint32_t i = 0; i < CARDS; i++) {
        fake.devices[i].arch_major = 6;
    }
    e = open_cards(EXL2_BACKEND_AUTO, picks, CARDS, EXL2_OK); /* none opens: the CPU */
    exl2_engine_get(e, &info);
    CHECK(info.backend == EXL2_BACKEND_CPU && info.device_count == 0);
    d.card_count = 1;
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_ERR_NO_DEVICE);
    exl2_close(e);
    machine_end();
}

static void test_lists(void)
{
    static const struct { exl2_card cards[4]; uint32_t count; const char *text; } bad[] = {
        { { { .device = 3 } }, 1, "cards[0] is device 3, but the engine has 3" },
        { { { .device = 1 }, { .device = 0 }, { .device = 1 } }, 3, "cards[0] and cards[2] are the same device" },
        { { { .device = 0, .share = -1 } }, 1, "cards[0].share must be from 0 to 1,000,000" },
        { { { .device = 0, .share = NAN } }, 1, "cards[0].share must be from 0 to 1,000,000" },
        { { { .device = 0, .share = INFINITY } }, 1, "cards[0].share must be from 0 to 1,000,000" },
        { { { .device = 0, .share = 1 }, { .device = 1 } }, 2, "1 of 2 cards have a share" },
        { { { .device = 0 } }, 9, "card_count is 9, more than EXL2_DEVICES_MAX" },
        { { { .device = 0 }, { .device = 1 }, { .device = 2 } }, 3, "the model has 2 layers, too few for 3 cards" },
    };
    make();
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
    for (size_t i = 0; i < EXL2__COUNT(bad); i++) {
        exl2_model m;
        exl2_model_info info;
        exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .cards = bad[i].cards, .card_count = bad[i].count };
        CHECK_INT(exl2_model_measure(e, &d, &info), EXL2_ERR_ARG);
        CHECK_INT(exl2_model_load(e, &d, &m), EXL2_ERR_ARG);
        exl2_last_error(e, &cuda_error);
        expect_text(cuda_error.text, bad[i].text);
    }
    exl2_model_desc none = { .path = rig_golden("exl2-mixed"), .card_count = 1 };
    exl2_model m;
    CHECK_INT(exl2_model_load(e, &none, &m), EXL2_ERR_ARG);
    exl2_close(e);
    machine_end();
}

/* ---- plans ---- */

/* A model of four layers: cut by the speed of memory, by shares, and by caps that leave no other way. */
static void test_cuts(void)
{
    make();
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
    exl2_card cards[2] = { { .device = 0 }, { .device = 1 } };
    exl2_model_desc d = { .path = rig_golden("smollm3"), .prefill_chunk = 32, .batch_max = 4, .cards = cards,
                          .card_count = 2, .cache.tokens = 16 * EXL2__PAGE_TOKENS };
    exl2_model m;
    exl2_model_info even = load_planned(e, &d, &m);
    CHECK_INT(even.layers, 4);
    CHECK(even.cards[0].layers <= 2); /* the embedding lies on the first card, the head on the last one */
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    for (uint32_t n = 1; n <= 3; n++) { /* so many layers on the first card, by caps */
        cards[0].share = 1;
        cards[1].share = n == 1 ? 100.0f : n == 2 ? 1.0f : 0.01f;
        exl2_model_info shared = load_planned(e, &d, &m);
        CHECK(n == 2 || shared.cards[0].layers == n);
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);
        cards[0].share = cards[1].share = 0;
        cards[0].bytes_max = card_bytes(&shared.cards[0]); /* just what this cut needs */
        cards[1].bytes_max = card_bytes(&shared.cards[1]);
        exl2_model_info capped = load_planned(e, &d, &m);
        CHECK_INT(capped.cards[0].layers, shared.cards[0].layers);
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);
        cards[1].bytes_max--;
        CHECK_INT(exl2_model_load(e, &d, &m), EXL2_ERR_BUDGET);
        exl2_last_error(e, &cuda_error);
        expect_text(cuda_error.text, "do not fit on 2 cards that have room for ");
        cards[1].bytes_max++;
        cards[0].bytes_max--;
        CHECK_INT(exl2_model_load(e, &d, &m), EXL2_ERR_BUDGET);
        cards[0].bytes_max = cards[1].bytes_max = 0;
    }
    cards[1].device = 2; /* half as fast */
    exl2_model_info uneven = load_planned(e, &d, &m);
    CHECK(uneven.cards[0].layers > even.cards[0].layers);
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    /* The default cache has as many pages as there is room for on the card with the least. */
    cards[1].device = 1;
    d.cache.tokens = 0;
    exl2_model_info most = load_planned(e, &d, &m);
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    cards[0].bytes_max = card_bytes(&most.cards[0]) - 1;
    cards[1].bytes_max = card_bytes(&most.cards[1]) - 1;
    exl2_model_info fewer = load_planned(e, &d, &m);
    CHECK(fewer.cache_bytes < most.cache_bytes && fewer.cache_bytes > 0);
    exl2_close(e);
    machine_end();
}

/* A GPU's own cap holds for all models on it. */
static void test_caps(void)
{
    make();
    exl2_device_desc capped[2] = { picks[0], picks[1] };
    exl2_card card = { .device = 1 };
    exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .prefill_chunk = 32, .batch_max = 4, .cards = &card,
                          .card_count = 1, .cache.tokens = 16 * EXL2__PAGE_TOKENS };
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, capped, 2, EXL2_OK);
    exl2_model a, b;
    exl2_model_info info = load_planned(e, &d, &a);
    CHECK(info.card_count == 1 && info.cards[0].device == 1 && fake.devices[0].bytes_used == 0);
    exl2_close(e);
    capped[1].bytes_max = info.device_bytes;
    e = open_cards(EXL2_BACKEND_CUDA, capped, 2, EXL2_OK);
    load_planned(e, &d, &a);
    CHECK_INT(exl2_model_load(e, &d, &b), EXL2_ERR_BUDGET);
    card.device = 0; /* no cap: the engine's, and that is none */
    load_planned(e, &d, &b);
    exl2_close(e);
    machine_end();
}

/* The cap of a model on its one card, with and without `offload`: the sentence names it; the default cache shrinks. */
static void test_card_cap(void)
{
    make();
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
    exl2_card card = { .device = 1 };
    exl2_model_desc d = { .path = rig_golden("exl2-mixed"), .prefill_chunk = 32, .batch_max = 4, .cards = &card,
                          .card_count = 1, .cache.tokens = 16 * EXL2__PAGE_TOKENS };
    exl2_model m;
    exl2_model_info info = load_planned(e, &d, &m), capped;
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    card.bytes_max = card_bytes(&info.cards[0]);
    load_planned(e, &d, &m);
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    card.bytes_max--;
    CHECK_INT(exl2_model_measure(e, &d, &capped), EXL2_ERR_BUDGET);
    CHECK_INT(exl2_model_load(e, &d, &m), EXL2_ERR_BUDGET);
    exl2_last_error(e, &cuda_error);
    expect_text(cuda_error.text, "bytes on its GPU (weights ");
    expect_text(cuda_error.text, "but cards[0].bytes_max is ");
    CHECK_INT(fake.devices[1].bytes_used, 0);
    d.offload = EXL2_OFFLOAD_AUTO; /* the same cap: an MLP goes to the CPU */
    capped = load_planned(e, &d, &m);
    CHECK(capped.host_mlps == 1 && card_bytes(&capped.cards[0]) <= card.bytes_max);
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    for (d.offload = EXL2_OFFLOAD_NONE; d.offload <= EXL2_OFFLOAD_AUTO; d.offload++) {
        d.cache.tokens = 0;
        card.bytes_max = 0;
        info = load_planned(e, &d, &m);
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);
        card.bytes_max = card_bytes(&info.cards[0]) - 1;
        capped = load_planned(e, &d, &m);
        CHECK(capped.cache_bytes < info.cache_bytes && capped.cache_bytes > 0 && capped.host_mlps == 0);
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    }
    exl2_close(e);
    machine_end();
}

/* What the engine chooses where each GPU may have so many bytes; 0: no cap. *cards: bits of the GPUs. */
static exl2_result choose(const uint64_t *caps, const exl2_model_desc *d, uint32_t *cards, exl2_model_info *info)
{
    exl2_device_desc devices[CARDS];
    exl2_model m;
    make();
    for (uint32_t i = 0; i < CARDS; i++) {
        devices[i] = picks[i];
        devices[i].bytes_max = caps[i];
    }
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, devices, CARDS, EXL2_OK);
    exl2_result r = exl2_model_measure(e, d, info);
    *cards = 0;
    if (r >= 0) {
        *info = load_planned(e, d, &m);
        for (uint32_t i = 0; i < info->card_count; i++) {
            *cards |= 1u << info->cards[i].device;
        }
        exl2_session s;
        CHECK_INT(exl2_session_open(e, m, &s), EXL2_OK);
        exl2_job_desc job = cuda_job(s, cuda_prompt, 8, 20, &cuda_said[0]);
        CHECK_INT(exl2_job_start(e, &job, NULL), EXL2_OK);
        cuda_step_all(e, false, 0);
        CHECK_INT(exl2_model_park(e, m, true), EXL2_OK);
        for (uint32_t i = 0; i < CARDS; i++) {
            CHECK_INT(fake.devices[i].bytes_used, 0);
        }
        CHECK_INT(exl2_model_park(e, m, false), EXL2_OK);
        for (uint32_t i = 0; i < 100000 && exl2_model_state(e, m) == EXL2_PENDING; i++) {
            exl2_step(e, NULL);
        }
        for (uint32_t i = 0; i < info->card_count; i++) { /* on the same GPUs */
            CHECK_INT(fake.devices[info->cards[i].device].bytes_used, card_bytes(&info->cards[i]));
        }
        exl2_job_desc more = cuda_job(s, cuda_prompt, 2, 20, &cuda_said[0]);
        CHECK_INT(exl2_job_start(e, &more, NULL), EXL2_OK);
        cuda_step_all(e, false, 0);
        CHECK_INT(cuda_said[0].result, EXL2_OK);
        CHECK_INT(cuda_said[0].count, 20);
    } else {
        exl2_last_error(e, &cuda_error);
    }
    exl2_close(e);
    machine_end();
    return r;
}

/* The most bytes that a GPU needs if the application cuts the model by layers, between so many GPUs. */
static uint64_t most_of(exl2_model_desc d, uint32_t count)
{
    static const exl2_card cards[CARDS] = { { .device = 0 }, { .device = 1 }, { .device = 2 } };
    exl2_model_info info = { .vocab = 0 };
    uint64_t most = 0;
    make();
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
    d.split_auto = false;
    d.cards = cards;
    d.card_count = count;
    CHECK_INT(exl2_model_measure(e, &d, &info), EXL2_OK);
    for (uint32_t i = 0; i < count; i++) {
        most = card_bytes(&info.cards[i]) > most ? card_bytes(&info.cards[i]) : most;
    }
    exl2_close(e);
    machine_end();
    return most;
}

/* The engine chooses the fewest GPUs that hold the model, and of equally many the first ones. */
static void test_auto(void)
{
    exl2_model_desc d = { .path = rig_golden("smollm3"), .prefill_chunk = 32, .batch_max = 4, .split_auto = true,
                          .cache.tokens = 16 * EXL2__PAGE_TOKENS };
    exl2_model_info info;
    uint32_t cards;
    CHECK_INT(choose((const uint64_t[3]){ 0, 0, 0 }, &d, &cards, &info), EXL2_OK);
    CHECK_INT(cards, 1);
    uint64_t all = info.device_bytes, less = all - 1, half = most_of(d, 2), third = most_of(d, 3);
    const struct { uint64_t caps[CARDS]; uint32_t cards; } ways[] = {
        { { all, less, less }, 1 }, { { less, all, all }, 2 }, { { 1, 1, all }, 4 }, { { less, less, less }, 3 },
        { { 1, less, less }, 6 }, { { less, 1, less }, 5 }, { { half, half, half }, 3 }, { { half, 1, half }, 5 },
        { { third, third, third }, 7 },
    };
    for (size_t i = 0; i < EXL2__COUNT(ways); i++) {
        if (!CHECK_INT(choose(ways[i].caps, &d, &cards, &info), EXL2_OK) || !CHECK_INT(cards, ways[i].cards)) {
            printf("  way %zu: %s\n", i, cuda_error.text);
        }
    }
    CHECK(all > half && half > third);
    const uint64_t few[CARDS] = { all / 4, all / 4, all / 4 };
    CHECK_INT(choose(few, &d, &cards, &info), EXL2_ERR_BUDGET);
    expect_text(cuda_error.text, "do not fit on 3 cards that have room for ");
    /* A model of two layers lies on two of three GPUs at most; what it has to leave, the CPU computes. */
    d.path = rig_golden("exl2-mixed");
    CHECK_INT(choose((const uint64_t[3]){ 0, 0, 0 }, &d, &cards, &info), EXL2_OK);
    all = info.device_bytes;
    const uint64_t two[CARDS] = { all - 1, all - 1, all - 1 }, small[CARDS] = { all / 2, all / 2, all / 2 };
    CHECK_INT(choose(two, &d, &cards, &info), EXL2_OK);
    CHECK(cards == 3 && info.host_mlps == 0);
    CHECK_INT(choose(small, &d, &cards, &info), EXL2_ERR_BUDGET);
    d.offload = EXL2_OFFLOAD_AUTO;
    CHECK_INT(choose(two, &d, &cards, &info), EXL2_OK);
    CHECK(cards == 3 && info.host_mlps == 0);
    const uint64_t tight[CARDS] = { most_of(d, 2) - 1, most_of(d, 2) - 1, 1 };
    CHECK_INT(choose(tight, &d, &cards, &info), EXL2_OK);
    CHECK(cards == 3 && info.host_mlps > 0);
    /* Adapters and pictures lie on several GPUs, too. */
    d.offload = EXL2_OFFLOAD_NONE;
    /* The application chooses, or the engine. */
    exl2_card card = { .device = 0 };
    d.cards = &card;
    d.card_count = 1;
    CHECK_INT(choose(two, &d, &cards, &info), EXL2_ERR_ARG);
    expect_text(cuda_error.text, "split_auto is set, and card_count is 1");
}

/* ---- words ---- */

/* A speaker on one GPU and its drafter on another one; both work, and the words are those of the speaker. */
static void test_drafter(void)
{
    make();
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
    const exl2_card on[2] = { { .device = 0 }, { .device = 2 } };
    exl2_model model[2];
    exl2_session s;
    for (uint32_t i = 0; i < 2; i++) {
        cuda_cards = &on[i];
        cuda_card_count = 1;
        CHECK_INT(cuda_load(e, &model[i]), EXL2_OK);
    }
    CHECK_INT(exl2_session_open(e, model[0], &s), EXL2_OK);
    exl2_job_desc d = cuda_job(s, cuda_prompt, 8, 40, &cuda_said[0]);
    d.draft.model = model[1];
    CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    cuda_step_all(e, false, 0);
    CHECK_INT(cuda_said[0].result, EXL2_OK);
    CHECK(cuda_said[0].stats.drafted > 0 && cuda_said[0].stats.accepted > 0);
    cuda_expect_history(e, s, 8, 48);
    exl2_close(e);
    machine_end();
}

#define GROUPED 10u /* jobs */

/* Ten jobs at once pass in two groups through two GPUs, and have the words that they have alone. */
static void test_groups(void)
{
    static const exl2_card cards[2] = { { .device = 2 }, { .device = 1 } };
    static rig_said said[GROUPED];
    for (uint32_t way = 0; way < 4; way++) {
        exl2_model model;
        exl2_session s[GROUPED];
        peers = way % 2 ? FAKE_PEER_GOOD : FAKE_PEER_NONE;
        make();
        fake.eager = way / 2;
        exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
        cuda_cards = cards;
        cuda_card_count = 2;
        exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .batch_max = GROUPED, .prefill_chunk = 32,
                              .cards = cards, .card_count = 2 };
        CHECK_INT(exl2_model_load(e, &m, &model), EXL2_OK);
        memset(passes_of, 0, sizeof passes_of);
        for (uint32_t i = 0; i < GROUPED; i++) { /* the last job ends early */
            CHECK_INT(exl2_session_open(e, model, &s[i]), EXL2_OK);
            exl2_job_desc d = cuda_job(s[i], cuda_prompt + i % 4, 5, i == GROUPED - 1 ? 20 : 40 + i, &said[i]);
            CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        }
        cuda_step_all(e, false, 0);
        for (uint32_t i = 0; i < GROUPED; i++) {
            CHECK_INT(said[i].result, EXL2_OK);
            cuda_expect_history(e, s[i], 5, i == GROUPED - 1 ? 25 : 45 + i);
        }
        CHECK(passes_of[4] + passes_of[5] > 60 && passes_of[9] + passes_of[10] < 10);
        exl2_close(e);
        machine_end();
    }
    peers = FAKE_PEER_NONE;
}

/* A step's time is that of each GPU, or the GPU's own. */
static void test_time(void)
{
    exl2_device_desc devices[2] = { picks[0], picks[1] };
    static const exl2_card on[2] = { { .device = 0 }, { .device = 1 } };
    for (uint32_t way = 0; way < 3; way++) { /* 1: the second GPU has no limit; 2: it may do nearly nothing */
        exl2_model model[2];
        exl2_session s;
        devices[1].gpu_us = way == 0 ? 0 : way == 1 ? UINT32_MAX : 1;
        make();
        fake.eager = true;
        exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, devices, 2, EXL2_OK);
        for (uint32_t i = 0; i < 2; i++) {
            cuda_cards = &on[i];
            cuda_card_count = 1;
            CHECK_INT(cuda_load(e, &model[i]), EXL2_OK);
        }
        for (uint32_t i = 0; i < 2; i++) {
            CHECK_INT(exl2_session_open(e, model[i], &s), EXL2_OK);
            exl2_job_desc d = cuda_job(s, cuda_prompt, 8, 40, &cuda_said[i]);
            CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        }
        memset(launches_on, 0, sizeof launches_on);
        for (uint32_t i = 0; i < 12; i++) {
            exl2_step(e, &(exl2_step_desc){ .gpu_us = way == 2 ? 1000000 : 1 });
        }
        uint32_t first = launches_on[0], second = launches_on[1];
        if (!CHECK(way == 0 ? first == second : way == 1 ? second > 2 * first : first > 2 * second)) {
            printf("  way %u: %u and %u launches\n", way, first, second);
        }
        exl2_close(e);
        machine_end();
    }
}

/* K and V that one GPU has saved serve a model that lies on two of its kind; of another kind they do not. */
static void test_saves(void)
{
    static uint8_t saved[1 << 20];
    static const exl2_card one = { .device = 1 }, two[2] = { { .device = 0 }, { .device = 2 } };
    exl2_model model;
    exl2_session s;
    size_t bytes = 0;
    for (uint32_t other = 0; other < 2; other++) {
        make();
        snprintf(fake.devices[2].name, sizeof fake.devices[2].name, other ? "FakeForce 3060" : fake.devices[0].name);
        exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
        cuda_cards = &one;
        cuda_card_count = 1;
        CHECK_INT(cuda_load(e, &model), EXL2_OK);
        CHECK_INT(exl2_session_open(e, model, &s), EXL2_OK);
        exl2_job_desc d = cuda_job(s, cuda_prompt, 8, 30, &cuda_said[0]);
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        cuda_step_all(e, false, 0);
        CHECK_INT(exl2_session_save(e, s, EXL2_SAVE_KV, saved, sizeof saved, &bytes), EXL2_OK);
        CHECK_INT(exl2_model_close(e, model), EXL2_OK);
        cuda_cards = two;
        cuda_card_count = 2;
        CHECK_INT(cuda_load(e, &model), EXL2_OK);
        CHECK_INT(exl2_session_open(e, model, &s), EXL2_OK);
        CHECK_INT(exl2_session_restore(e, s, saved, bytes), EXL2_OK);
        d = cuda_job(s, cuda_prompt, 3, 20, &cuda_said[0]);
        embedded = 0;
        CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
        cuda_step_all(e, false, 0);
        CHECK_INT(cuda_said[0].result, EXL2_OK);
        CHECK_INT(cuda_said[0].stats.new_tokens, 20);
        CHECK(other ? embedded > 50 : embedded < 30); /* 41 rows of the history and the prompt, or 3 */
        cuda_expect_history(e, s, 41, 61);
        exl2_close(e);
        machine_end();
    }
}

/* Uses a model on two GPUs. */
static bool life(const cuda_way *w, uint32_t n)
{
    static const exl2_card cards[2] = { { .device = 2 }, { .device = 0 } };
    make();
    cuda_way_set(w);
    cuda_cards = cards;
    cuda_card_count = 2;
    cuda_life l = { .e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK), .late = w->late };
    cuda_way_fail(w, n);
    fake.peer_copies = 0;
    exl2_result r = cuda_use(&l);
    CHECK(n > 0 || (fake.peer_copies > 50) == (peers == FAKE_PEER_GOOD));
    bool failed = cuda_way_failed();
    CHECK(failed || fake.devices[1].retained == 1);
    cuda_way_end(w, n, &l, r, failed);
    return failed;
}

/* ---- pictures ---- */

#define SIDE 64u
#define SPOKEN 12u

/* Loads the family's model on these cards, and has it speak about a picture. */
static exl2_model_info speak(const char *name, const exl2_card *cards, uint32_t count, uint32_t frames, rig_said *said)
{
    static uint8_t pixels[4 * SIDE * SIDE * 3];
    static rig_said again;
    char path[1200];
    exl2_model m;
    exl2_image image;
    exl2_session session;
    make();
    memset(towers_on, 0, sizeof towers_on);
    memset(turns_on, 0, sizeof turns_on);
    memset(added_on, 0, sizeof added_on);
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
    snprintf(path, sizeof path, "%s/fixtures/vision/%s", check_env("EXL2_TEST_DATA"), name);
    exl2_model_desc d = { .path = path, .prefill_chunk = 32, .batch_max = 2, .cards = cards, .card_count = count,
                          .context_max = 512, .cache.tokens = 8 * EXL2__PAGE_TOKENS,
                          .vision = { .images = 1, .pixels_max = sizeof pixels / 3, .max_rows = 64 } };
    exl2_model_info info = load_planned(e, &d, &m);
    for (uint32_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)(i * 7 + i / 191);
    }
    exl2_image_desc p = { .model = m, .width = SIDE, .height = SIDE, .pixels = pixels, .silent = true,
                          .frames = frames, .fps = frames ? 0.1 : 0 };
    CHECK_INT(exl2_image_make(e, &p, &image), EXL2_OK);
    CHECK_INT(exl2_session_open(e, m, &session), EXL2_OK);
    memset(&again, 0, sizeof again);
    exl2_job_desc j = cuda_job(session, NULL, 0, SPOKEN, said);
    j.prompt = (exl2_prompt){ .text = "What is this, and why?", .images = &image, .image_count = 1 };
    CHECK_INT(exl2_job_start(e, &j, NULL), EXL2_OK);
    cuda_step_all(e, false, 0);
    CHECK_INT(said->count, SPOKEN);
    CHECK(said->stats.image_rows > 0);
    CHECK_INT(exl2_model_park(e, m, true), EXL2_OK);
    CHECK_INT(fake.devices[0].bytes_used + fake.devices[1].bytes_used + fake.devices[2].bytes_used, 0);
    CHECK_INT(exl2_model_park(e, m, false), EXL2_OK);
    for (uint32_t i = 0; i < 100000 && exl2_model_state(e, m) == EXL2_PENDING; i++) {
        exl2_step(e, NULL);
    }
    j.user = &again;
    j.session = (exl2_session){ 0 };
    j.model = m;
    CHECK_INT(exl2_job_start(e, &j, NULL), EXL2_OK);
    cuda_step_all(e, false, 0);
    CHECK(again.count == SPOKEN && memcmp(again.ids, said->ids, SPOKEN * sizeof *said->ids) == 0);
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    for (uint32_t less = 0; less < 2 && count == 2; less++) { /* caps count the tower, too */
        exl2_card capped[2];
        exl2_model_info measured;
        for (uint32_t i = 0; i < 2; i++) {
            capped[i] = cards[i];
            capped[i].bytes_max = card_bytes(&info.cards[i]) - (i == 0 ? less : 0);
        }
        d.cards = capped;
        exl2_result r = exl2_model_measure(e, &d, &measured);
        CHECK(r == EXL2_OK || (less && r == EXL2_ERR_BUDGET));
        CHECK(r < 0 || card_bytes(&measured.cards[0]) <= capped[0].bytes_max);
    }
    exl2_close(e);
    machine_end();
    return info;
}

/* The first card has the tower; every card turns the angles of its layers' rows; a text is that of one card. */
static void test_pictures(void)
{
    static const exl2_card one = { .device = 1 }, two[2] = { { .device = 2 }, { .device = 1 } };
    static const struct { const char *name; uint32_t frames; bool turns, adds; } families[] = {
        { "smolvlm", 0, false, false }, { "qwen2.5-vl", 0, true, false }, { "gemma3", 0, false, false },
        { "qwen3-vl", 0, true, true }, { "qwen2.5-vl", 4, true, false },
    };
    static rig_said said[2];
    for (size_t i = 0; i < EXL2__COUNT(families) && check_env("EXL2_TEST_DATA"); i++) {
        exl2_model_info alone = speak(families[i].name, &one, 1, families[i].frames, &said[0]);
        uint32_t towers = towers_on[1], turns = turns_on[1], added = added_on[1];
        CHECK(towers > 0 && (turns > 0) == families[i].turns && (added > 0) == families[i].adds);
        exl2_model_info cut = speak(families[i].name, two, 2, families[i].frames, &said[1]);
        CHECK_INT(cut.card_count, 2);
        CHECK(cut.tower_bytes == alone.tower_bytes && cut.cards[0].weight_bytes > cut.tower_bytes);
        CHECK(!families[i].adds || cut.cards[0].layers >= 2); /* rows are added after two layers */
        CHECK_INT(towers_on[2], towers);
        CHECK_INT(towers_on[0] + towers_on[1], 0);
        CHECK_INT(added_on[2], added);
        CHECK_INT(added_on[1], 0);
        CHECK((turns_on[1] > 0) == families[i].turns && (turns_on[2] > 0) == families[i].turns);
        CHECK(memcmp(said[0].ids, said[1].ids, SPOKEN * sizeof *said[0].ids) == 0);
    }
    if (!check_env("EXL2_TEST_DATA")) {
        printf("no EXL2_TEST_DATA: no pictures are read\n");
    }
}

int main(void)
{
    const cuda_way bad[] = {
        { "device allocations", "cuMemAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "pinned allocations", "cuMemHostAlloc", EXL2__CUDA_OUT_OF_MEMORY, 1, true, false, false, 1 },
        { "calls", NULL, 1, 11, true, false, false, 7 * CUDA_WAY_STRIDE },
    };
    const cuda_way direct[] = {
        { "calls, direct copies", NULL, 1, 11, true, false, false, 11 * CUDA_WAY_STRIDE },
        { "copies", "cuMemcpyPeerAsync", 1, 11, true, false, false, 5 * CUDA_WAY_STRIDE },
        { "calls of a late device", NULL, 1, 11, false, true, false, 17 * CUDA_WAY_STRIDE },
    };
    machine_drop_cache();
    test_open();
    test_peers();
    test_left_out();
    test_lists();
    test_cuts();
    test_pictures();
    test_caps();
    test_card_cap();
    test_auto();
    test_drafter();
    test_groups();
    test_time();
    test_saves();
    for (peers = FAKE_PEER_NONE; peers <= (int)FAKE_PEER_WRONG; peers++) {
        cuda_ways_good(life);
    }
    peers = FAKE_PEER_NONE;
    cuda_ways_sweep(life, bad, EXL2__COUNT(bad));
    peers = FAKE_PEER_GOOD;
    cuda_ways_sweep(life, direct, EXL2__COUNT(direct));
    machine_drop_cache();
    fake_reset();
    return check_done();
}
