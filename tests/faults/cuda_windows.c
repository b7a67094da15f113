/* cuda_windows.c: window parts of pages of a model whose layers lie on several fake GPUs. Each GPU has the parts and
   pages of its layers, as planned; a text that is rewound, forked, saved, restored and parked goes on as the fake model
   says, which sees every part in a row's window; snapshots move between one GPU and several.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cards_rig.h"

#define SESSIONS 3u
#define MOVES 60u
#define CONTEXT 512u

static uint8_t saved[1u << 22];

static exl2_model_desc desc_of(const exl2_card *cards, uint32_t count)
{
    exl2_model_desc d = { .path = rig_golden("gemma2"), .context_max = CONTEXT, .batch_max = 2, .prefill_chunk = 64,
                          .cards = cards, .card_count = count };
    d.cache.tokens = 4 * CONTEXT;
    d.on_event = cuda_hear_load;
    return d;
}

static uint32_t draw(uint32_t below)
{
    static uint64_t state = 5;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

/* All tokens of the history from `given` on are those of the fake model. */
static void check_history(exl2_engine *e, exl2_session s, uint32_t given, uint32_t vocab)
{
    static exl2_token ids[CONTEXT];
    size_t count = 0;
    uint32_t sum = 0, wrong = 0;
    CHECK_INT(exl2_session_tokens(e, s, ids, CONTEXT, &count), EXL2_OK);
    for (size_t i = 0; i < count; i++) {
        wrong += i >= given && ids[i] != fake_model_say(sum, vocab);
        sum = fake_model_hear(sum, (uint32_t)ids[i]);
    }
    CHECK_INT(wrong, 0);
}

static uint32_t tokens_of(exl2_engine *e, exl2_session s)
{
    size_t count = 0;
    exl2_session_tokens(e, s, NULL, 0, &count);
    return (uint32_t)count;
}

/* One job, with a prompt and some words. */
static void speak(exl2_engine *e, exl2_session s, uint32_t prompt, uint32_t words, uint32_t vocab)
{
    exl2_token ids[200];
    uint32_t before = tokens_of(e, s);
    for (uint32_t i = 0; i < prompt; i++) {
        ids[i] = (exl2_token)(16 + draw(vocab - 16));
    }
    exl2_job_desc d = cuda_job(s, ids, prompt, words, &cuda_said[0]);
    CHECK_INT(exl2_job_start(e, &d, NULL), EXL2_OK);
    cuda_step_all(e, false, draw(3) ? 0 : 1);
    CHECK_INT(cuda_said[0].result, EXL2_OK);
    check_history(e, s, before + prompt, vocab);
}

static void save_into(exl2_engine *e, exl2_session from, exl2_session to)
{
    size_t bytes = 0;
    CHECK_INT(exl2_session_save(e, from, EXL2_SAVE_KV, saved, sizeof saved, &bytes), EXL2_OK);
    CHECK_INT(exl2_session_restore(e, to, saved, bytes), EXL2_OK);
}

/* Moves at random. */
static void talk(exl2_engine *e, exl2_model m, uint32_t vocab)
{
    exl2_session s[SESSIONS];
    for (uint32_t i = 0; i < SESSIONS; i++) {
        CHECK_INT(exl2_session_open(e, m, &s[i]), EXL2_OK);
    }
    for (uint32_t n = 0; n < MOVES; n++) {
        uint32_t i = draw(SESSIONS), k = (i + 1) % SESSIONS, tokens = tokens_of(e, s[i]), how = draw(8);
        if (how < 4 && tokens + 190 < CONTEXT) {
            speak(e, s[i], 1 + draw(how ? 20 : 150), 1 + draw(30), vocab);
        } else if (how < 6) {
            CHECK_INT(exl2_session_rewind(e, s[i], draw(tokens + 1)), EXL2_OK);
        } else if (how == 6) {
            CHECK_INT(exl2_session_close(e, s[k]), EXL2_OK);
            CHECK_INT(exl2_session_fork(e, s[i], &s[k]), EXL2_OK);
        } else if (n % 2) {
            save_into(e, s[i], s[k]);
        } else {
            CHECK_INT(exl2_model_park(e, m, true), EXL2_OK);
            CHECK_INT(cuda_load_again(e, m), EXL2_OK);
        }
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        CHECK_INT(exl2_session_close(e, s[i]), EXL2_OK);
    }
}

/* Each card has the parts and pages of its own layers. */
static void check_bytes(const exl2_model_info *info)
{
    uint64_t windowed = 0, all = 0;
    for (uint32_t layer = 0; layer < info->layers; layer++) {
        windowed += info->windowed[layer / 32] >> layer % 32 & 1;
    }
    CHECK(windowed > 0 && windowed < info->layers && info->window_tokens > 0);
    uint64_t part = info->window_bytes / windowed, page = info->cache_bytes - info->window_bytes;
    page /= info->layers - windowed;
    CHECK(part < page);
    for (uint32_t i = 0; i < info->card_count; i++) {
        uint64_t bytes = 0;
        for (uint32_t k = 0; k < info->cards[i].layers; k++) {
            uint32_t layer = info->cards[i].first_layer + k;
            bytes += info->windowed[layer / 32] >> layer % 32 & 1 ? part : page;
        }
        CHECK_INT(info->cards[i].cache_bytes, bytes);
        all += bytes;
    }
    CHECK(all == info->cache_bytes);
}

/* Two cards with each cut of four layers, and three. */
static void test_words(void)
{
    for (uint32_t n = 1; n <= 4; n++) {
        exl2_card cards[CARDS] = { { .device = 1 }, { .device = 0 }, { .device = 2 } };
        exl2_model m;
        make();
        exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
        exl2_model_desc d = desc_of(cards, n < 4 ? 2 : 3);
        for (uint32_t i = 0; i < d.card_count && n != 2; i++) {
            cards[i].share = n == 1 ? (i ? 100.0f : 1.0f) : n == 3 ? (i ? 1.0f : 100.0f) : 1.0f;
        }
        exl2_model_info info = load_planned(e, &d, &m);
        CHECK(n == 2 || n == 4 || info.cards[0].layers == n);
        check_bytes(&info);
        talk(e, m, info.vocab);
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);
        for (uint32_t less = 0; less < 2; less++) { /* what this cut needs, and a byte less */
            for (uint32_t i = 0; i < d.card_count; i++) {
                cards[i].share = 0;
                cards[i].bytes_max = card_bytes(&info.cards[i]) - (i == 0 ? less : 0);
            }
            exl2_result r = exl2_model_load(e, &d, &m);
            CHECK(r == EXL2_OK || less);
            if (r == EXL2_OK) {
                CHECK_INT(exl2_model_get(e, m, &info), EXL2_OK);
                CHECK(card_bytes(&info.cards[0]) <= cards[0].bytes_max);
                CHECK_INT(exl2_model_close(e, m), EXL2_OK);
            }
        }
        /* with K and V of all layers the same cards have no room */
        for (uint32_t i = 0; i < d.card_count; i++) {
            cards[i].bytes_max = card_bytes(&info.cards[i]);
        }
        d.cache.full = true;
        CHECK_INT(exl2_model_load(e, &d, &m), EXL2_ERR_BUDGET);
        exl2_close(e);
        machine_end();
    }
}

/* A session that one GPU has saved goes on on two, and back, without its rows computed again. */
static void test_saves(void)
{
    static const exl2_card one = { .device = 1 }, two[2] = { { .device = 0 }, { .device = 1 } };
    exl2_model m;
    exl2_session s;
    exl2_model_info info;
    size_t bytes = 0;
    make();
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, CARDS, EXL2_OK);
    for (uint32_t n = 0; n < 3; n++) {
        exl2_model_desc d = n == 1 ? desc_of(two, 2) : desc_of(&one, 1);
        info = load_planned(e, &d, &m);
        CHECK_INT(exl2_session_open(e, m, &s), EXL2_OK);
        CHECK(n == 0 || exl2_session_restore(e, s, saved, bytes) == EXL2_OK);
        uint32_t before = tokens_of(e, s), rows = embedded;
        speak(e, s, n ? 3 : 150, 20, info.vocab);
        CHECK_INT(before, n ? 170 + 23 * (n - 1) : 0);
        CHECK(n == 0 || embedded - rows < 40); /* those of the prompt and of the words alone */
        CHECK_INT(exl2_session_save(e, s, EXL2_SAVE_KV, saved, sizeof saved, &bytes), EXL2_OK);
        CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    }
    exl2_close(e);
    machine_end();
}

/* The engine chooses one card where window parts fit it, though all K and V would not. */
static void test_auto(void)
{
    exl2_device_desc capped[2] = { picks[0], picks[1] };
    exl2_card card = { .device = 0 };
    exl2_model m;
    make();
    exl2_engine *e = open_cards(EXL2_BACKEND_CUDA, picks, 2, EXL2_OK);
    exl2_model_desc d = desc_of(&card, 1);
    uint64_t needs = load_planned(e, &d, &m).device_bytes;
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    d.cache.full = true;
    uint64_t full = load_planned(e, &d, &m).device_bytes;
    CHECK(needs < full);
    exl2_close(e);
    machine_end();
    make();
    capped[0].bytes_max = capped[1].bytes_max = (needs + full) / 2;
    e = open_cards(EXL2_BACKEND_CUDA, capped, 2, EXL2_OK);
    d = desc_of(NULL, 0);
    d.split_auto = true;
    CHECK_INT(load_planned(e, &d, &m).card_count, 1);
    CHECK_INT(exl2_model_close(e, m), EXL2_OK);
    d.cache.full = true;
    CHECK_INT(load_planned(e, &d, &m).card_count, 2);
    exl2_close(e);
    machine_end();
}

int main(void)
{
    machine_drop_cache();
    peers = FAKE_PEER_GOOD;
    test_words();
    CHECK(fake_model_windows > 1000);
    test_saves();
    test_auto();
    machine_drop_cache();
    fake_reset();
    return check_done();
}
