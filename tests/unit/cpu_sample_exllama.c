/* cpu_sample_exllama.c: the sampling chain compared with ExLlamaV2's own sampler on the real model's logits: the rows
   of sampler.json. ExLlamaV2's top-p differs from the textbook's. Its probabilities are therefore compared with the
   reference run its way, the reference run our way is compared with the chain, and both are compared directly where the
   same tokens remain. Its typical sampling sorts by p + ln p: rows that use it are compared with the definition
   only. */
#include "../text_rows.h"
#include "private/cpu_sample_run.h"
#include "private/dry.h"
#include "../vocab_open.h"
#include "../check.h"
#include "../sample_reference.h"

/* The number after "key": in [text, end), or `absent`. */
static double number_in(const char *text, const char *end, const char *key, double absent)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    return at && at < end ? strtod(at + strlen(quoted), NULL) : absent;
}

static bool holds(const char *text, const char *end, const char *key)
{
    const char *at = strstr(text, key);
    return at && at < end;
}

/* The numbers of the next array of that key after `text`. */
static uint32_t array_in(const char *text, const char *key, double *out, uint32_t cap)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strchr(strstr(text, quoted), '[') + 1;
    uint32_t count = 0;
    while (*at != ']' && count < cap) {
        char *end;
        out[count++] = strtod(at, &end);
        at = end + strspn(end, ", \n");
    }
    return count;
}

/* ---- settings ---- */

static exl2__ctx context;
static exl2__vocab vocab;

static bool has_any(exl2_token token, const char *characters)
{
    size_t bytes;
    bool special;
    const char *text = exl2__vocab_piece(&vocab, token, &bytes, &special);
    for (size_t i = 0; text && i < bytes; i++) {
        special |= text[i] && strchr(characters, text[i]);
    }
    return special;
}

static bool keeps(const void *user, exl2_token token)
{
    (void)user;
    return has_any(token, "\n");
}

/* sampler.json was made without DRY sequence breakers. */
static bool breaks(const void *user, exl2_token token)
{
    (void)user;
    (void)token;
    return false;
}

static exl2__sampling read_settings(const char *at, const char *end)
{
    exl2__sampling s = { 0 };
    s.temperature = (float)number_in(at, end, "temperature", 0.8);
    s.top_k = (uint32_t)number_in(at, end, "top_k", 50);
    s.top_p = (float)number_in(at, end, "top_p", 0.8);
    s.top_p = s.top_p <= 0 ? 1 : s.top_p;
    s.min_p = (float)number_in(at, end, "min_p", 0);
    s.top_a = (float)number_in(at, end, "top_a", 0);
    s.tail_free = (float)number_in(at, end, "tfs", 0);
    s.typical = (float)number_in(at, end, "typical", 0);
    s.smoothing = (float)number_in(at, end, "smoothing_factor", 0);
    s.temperature_last = holds(at, end, "\"temperature_last\": true") || holds(at, end, "\"temperature_last\":true");
    s.dynamic_min = (float)number_in(at, end, "min_temp", 0);
    s.dynamic_max = (float)number_in(at, end, "max_temp", 0);
    s.dynamic_exponent = (float)number_in(at, end, "temp_exponent", 1);
    s.repeat_penalty = (float)number_in(at, end, "token_repetition_penalty", 1.025);
    s.frequency_penalty = (float)number_in(at, end, "token_frequency_penalty", 0);
    s.presence_penalty = (float)number_in(at, end, "token_presence_penalty", 0);
    s.xtc_probability = (float)number_in(at, end, "xtc_probability", 0);
    s.xtc_threshold = (float)number_in(at, end, "xtc_threshold", 0.1);
    s.xtc_keeps = keeps;
    if (holds(at, end, "\"mirostat\"")) {
        s.mirostat_tau = (float)number_in(at, end, "mirostat_tau", 1.5);
        s.mirostat_eta = (float)number_in(at, end, "mirostat_eta", 0.1);
        s.state = 2 * s.mirostat_tau;
    }
    return s;
}

int main(void)
{
    enum { VOCAB = 49152, PROMPTS = 6 };
    float *all = (float *)(void *)check_read(check_shared("fixtures/smollm2-4.0bpw/last_logits.f32"), NULL);
    char *golden = check_read(check_shared("fixtures/smollm2-4.0bpw/golden.json"), NULL);
    char *rows = check_read(check_shared("fixtures/smollm2-4.0bpw/sampler.json"), NULL);
    candidate *c = take(VOCAB * sizeof *c), *streamed = take(VOCAB * sizeof *streamed);
    double *p = take(VOCAB * sizeof *p), *numbers = take(2000 * sizeof *numbers);
    float *copy = take(VOCAB * sizeof *copy);
    uint32_t compared = 0, direct = 0, dry_rows = 0, last_prompt = 0;
    context.files = exl2__platform_files();
    context.allocator = exl2__platform_allocator();
    CHECK_INT(vocab_open(&context, EXL2_GOLDEN_DIR "/smollm2", &vocab), EXL2_OK);
    const char *last = NULL;
    for (const char *at = rows; (at = strstr(at, "{\"settings\":")) != NULL; at++) {
        const char *end = strchr(at + 12, '}'), *next = strstr(end, "{\"settings\":");
        const char *row_end = next ? next : rows + strlen(rows);
        uint32_t prompt = (uint32_t)number_in(at, row_end, "prompt", -1);
        size_t settings_bytes = (size_t)(end - at);
        bool repeated = last && prompt == last_prompt && memcmp(at, last, settings_bytes) == 0
                        && holds(at, row_end, "history") == holds(last, at, "history");
        last = at;
        last_prompt = prompt;
        if (repeated) {
            continue; /* the rows differ only in the random number */
        }
        const char *ids = strstr(golden, "\"prompts\"");
        for (uint32_t i = 0; i <= prompt; i++) {
            ids = strstr(ids + 1, "\"ids\":");
        }
        bool has_own = holds(at, row_end, "history");
        uint32_t history_count = array_in(has_own ? at : ids, has_own ? "history" : "ids", numbers, 2000);
        exl2_token history[2000];
        for (uint32_t i = 0; i < history_count; i++) {
            history[i] = (exl2_token)numbers[i];
        }
        exl2__sampling s = read_settings(at, end);
        double range = number_in(at, end, "token_repetition_range", -1);
        s.penalty_decay = (uint32_t)(range < 0 ? 0 : number_in(at, end, "token_repetition_decay", 0));
        s.penalty_range = (uint32_t)(range < 0 ? history_count : range);
        uint32_t seen = exl2__min32(history_count, s.penalty_range + s.penalty_decay);
        exl2_bias pays[EXL2__DRY_MAX];
        exl2__dry dry = { (float)number_in(at, end, "dry_multiplier", 0), 1.75f, 2,
                          (uint32_t)number_in(at, end, "dry_range", 0), 20, breaks, NULL };
        s.bias = pays;
        s.bias_count = dry.multiplier > 0 ? exl2__dry_find(&dry, history, history_count, pays) : 0;
        dry_rows += s.bias_count > 0;
        const exl2_token *newest = history + (history_count - seen);
        const float *logits = all + (size_t)prompt * VOCAB;
        double tokens[8], probabilities[8];
        CHECK_INT(array_in(at, "top_tokens", tokens, 8), 8);
        CHECK_INT(array_in(at, "top_probs", probabilities, 8), 8);
        uint32_t streamed_count = reference(logits, VOCAB, &s, newest, seen, true, streamed);
        uint32_t count = reference(logits, VOCAB, &s, newest, seen, false, c);
        compare(logits, VOCAB, &s, newest, seen);
        memcpy(copy, logits, VOCAB * sizeof *copy);
        implied(copy, VOCAB, &s, newest, seen, p);
        qsort(streamed, streamed_count, sizeof *streamed, by_order);
        bool same = true; /* the same tokens remain in ExLlamaV2 and by the definition */
        for (uint32_t i = 0; i < count; i++) {
            same &= (streamed[i].p > 0) == (c[i].p > 0) || c[i].p < 1e-6;
        }
        for (int i = 0; i < 8; i++) {
            if (probabilities[i] <= 0 || s.typical > 0) {
                continue;
            }
            double share = 0;
            for (uint32_t j = 0; j < streamed_count; j++) {
                share = streamed[j].id == (uint32_t)tokens[i] ? streamed[j].p : share;
            }
            CHECK(fabs(share - probabilities[i]) < 1e-4);
            CHECK(!same || fabs(p[(uint32_t)tokens[i]] - probabilities[i]) < 1e-4);
        }
        compared++;
        direct += same;
    }
    printf("ExLlamaV2: %u rows, %u of them with the same survivors, %u with DRY\n", compared, direct, dry_rows);
    CHECK(compared >= 137);
    CHECK(direct >= 100);
    CHECK(dry_rows >= 2);
    exl2__vocab_close(&context, &vocab);
    free(all);
    free(golden);
    free(rows);
    free(c);
    free(streamed);
    free(p);
    free(numbers);
    free(copy);
    return check_done();
}
