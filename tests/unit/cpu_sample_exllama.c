/* The chain against ExLlamaV2's own sampler on the real model's logits: the rows of sampler.json that use only settings
   of ours. Its top-p is no nucleus, so its probabilities are compared with the reference run its way, the reference run
   our way with the chain, and both directly where the survivors are the same. */
#include "../../exl2_impl/3_backend/cpu_sample.h"
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

/* Numbers of the next array of that key after `text`. */
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

static bool only_keys_of_ours(const char *text, const char *end)
{
    static const char *const ours[] = { "temperature", "top_k", "top_p", "min_p", "token_repetition_penalty",
                                        "token_repetition_range", "token_repetition_decay" };
    const char *at = text;
    for (;;) {
        at = memchr(at, '"', (size_t)(end - at));
        if (!at) {
            return true;
        }
        const char *close = strchr(at + 1, '"');
        bool known = false;
        for (size_t i = 0; i < EXL2__COUNT(ours); i++) {
            known |= strlen(ours[i]) == (size_t)(close - at - 1) && memcmp(at + 1, ours[i], strlen(ours[i])) == 0;
        }
        if (!known) {
            return false;
        }
        at = close + 1;
    }
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
    uint32_t compared = 0, direct = 0, last_prompt = 0;
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
        if (repeated || !only_keys_of_ours(at + 12, end)) {
            continue; /* repeated: only the random number differs */
        }
        const char *ids = strstr(golden, "\"prompts\"");
        for (uint32_t i = 0; i <= prompt; i++) {
            ids = strstr(ids + 1, "\"ids\":");
        }
        bool has_own = holds(at, row_end, "history");
        uint32_t history_count = array_in(has_own ? at : ids, has_own ? "history" : "ids", numbers, 2000);
        double range = number_in(at, end, "token_repetition_range", -1);
        if (number_in(at, end, "token_repetition_decay", 0) > 0 && history_count > range) {
            continue; /* a fading penalty */
        }
        exl2_token history[2000];
        for (uint32_t i = 0; i < history_count; i++) {
            history[i] = (exl2_token)numbers[i];
        }
        exl2__sampling s = { 0 };
        s.temperature = (float)number_in(at, end, "temperature", 0.8);
        s.top_k = (uint32_t)number_in(at, end, "top_k", 50);
        s.top_p = (float)number_in(at, end, "top_p", 0.8);
        s.min_p = (float)number_in(at, end, "min_p", 0);
        s.repeat_penalty = (float)number_in(at, end, "token_repetition_penalty", 1.025);
        s.top_p = s.top_p <= 0 ? 1 : s.top_p;
        const float *logits = all + (size_t)prompt * VOCAB;
        double tokens[8], probabilities[8];
        CHECK_INT(array_in(at, "top_tokens", tokens, 8), 8);
        CHECK_INT(array_in(at, "top_probs", probabilities, 8), 8);
        uint32_t streamed_count = reference(logits, VOCAB, &s, history, history_count, true, streamed);
        uint32_t count = reference(logits, VOCAB, &s, history, history_count, false, c);
        compare(logits, VOCAB, &s, history, history_count);
        memcpy(copy, logits, VOCAB * sizeof *copy);
        implied(copy, VOCAB, &s, history, history_count, p);
        qsort(streamed, streamed_count, sizeof *streamed, by_order);
        bool same = true; /* ExLlamaV2's survivors are those of the definition */
        for (uint32_t i = 0; i < count; i++) {
            same &= (streamed[i].p > 0) == (c[i].p > 0) || c[i].p < 1e-6;
        }
        for (int i = 0; i < 8; i++) {
            if (probabilities[i] <= 0) {
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
    printf("ExLlamaV2: %u rows, %u of them with the same survivors\n", compared, direct);
    CHECK(compared >= 40);
    CHECK(direct >= 20);
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
