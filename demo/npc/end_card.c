/* end_card.c: see end_card.h.
   takes: figures.
   gives: what end_card.h declares.
   owns:  nothing beyond a call. */
#include "end_card.h"

#include "../common/chart.h"
#include "../common/json_out.h"
#include "../common/pace.h"
#include "../common/text_file.h"
#include "transcript.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LATE_MS 18.0          /* a longer frame missed its display refresh */
#define STEP_TOLERANCE_MS 0.5 /* a step counts as over the budget if it exceeds it by more than this */
#define ROWS 11
#define ROW_PIXELS 16         /* of the picture */
#ifdef _WIN32
#define PATH_MARK '\\'
#else
#define PATH_MARK '/'
#endif

typedef struct card_rows {
    char text[ROWS][96]; /* [count] */
    int count;
} card_rows;

/* ---- figures ---- */

static double budget_ms(const end_card *c)
{
    return c->cpu_us * 1e-3;
}

static size_t frames_over_budget(const end_card *c)
{
    size_t over = 0;
    for (size_t i = 0; i < c->steps->count; i++) {
        over += c->steps->values[i] > budget_ms(c) + STEP_TOLERANCE_MS;
    }
    return over;
}

static double tokens_per_second(const end_card *c)
{
    return c->talk_seconds > 0 ? (double)c->tavern->spoken_tokens / c->talk_seconds : 0;
}

uint64_t end_card_plan(const exl2_model_info *m)
{
    return m->weight_bytes + m->cache_bytes + m->scratch_bytes;
}

/* Lines that ended because their words came again and again. */
static uint32_t loops(const tavern *t)
{
    uint32_t count = 0;
    for (size_t i = 0; i < t->count; i++) {
        count += t->lines[i].by && t->lines[i].ended && t->lines[i].stop == EXL2_STOP_LOOP;
    }
    return count;
}

/* Time from the question to the first word, of every line that has words. */
static samples first_words(const tavern *t)
{
    samples ms = { 0 };
    for (size_t i = 0; i < t->count; i++) {
        if (t->lines[i].by && t->lines[i].first_ms > 0) {
            samples_add(&ms, t->lines[i].first_ms);
        }
    }
    return ms;
}

static const char *base_name(const char *path)
{
    const char *name = path;
    for (const char *at = path; *at; at++) {
        if ((*at == '/' || *at == PATH_MARK) && at[1]) {
            name = at + 1;
        }
    }
    return name;
}

/* ---- text ---- */

static void format_times(char *row, size_t cap, const char *what, samples *ms)
{
    snprintf(row, cap, "%-11s p50 %.2f  p99 %.2f  max %.2f ms", what, samples_percentile(ms, 50),
             samples_percentile(ms, 99), samples_percentile(ms, 100));
}

static card_rows rows_of(const end_card *c)
{
    card_rows r = { .count = c->patrons->count ? ROWS : ROWS - 1 };
    size_t cap = sizeof r.text[0];
    const tavern *t = c->tavern;
    samples first = first_words(t);
    format_times(r.text[0], cap, "frame", c->frames);
    format_times(r.text[1], cap, "exl2_step", c->steps);
    snprintf(r.text[2], cap, "budget      %.2f ms per frame, exceeded in %zu of %zu frames", budget_ms(c),
             frames_over_budget(c), c->steps->count);
    snprintf(r.text[3], cap, "first word  after %.0f ms (median), %.0f ms (max)", samples_median(&first),
             samples_percentile(&first, 100));
    if (c->on_gpu) {
        snprintf(r.text[4], cap, "speed       %.1f tokens/s and %.2f a pass while somebody speaks, %.2f ms of GPU",
                 tokens_per_second(c), tavern_tokens_per_pass(t), c->gpu_us * 1e-3);
    } else {
        snprintf(r.text[4], cap, "speed       %.1f tokens/s and %.2f a pass while somebody speaks, %u thread%s",
                 tokens_per_second(c), tavern_tokens_per_pass(t), c->threads, c->threads == 1 ? "" : "s");
    }
    snprintf(r.text[5], cap, "memory      %.1f MB, at most %.1f; the model's plan is %.1f MB; %" PRIu64
             " allocations since load", (double)(c->stats.host_bytes + c->stats.device_bytes) * 1e-6,
             (double)(c->stats.host_peak + c->stats.device_peak) * 1e-6, (double)c->plan_bytes * 1e-6, c->allocations);
    snprintf(r.text[6], cap, "pages       at most %u used, %u of them shared, %u cached, of %u", c->pages_used,
             c->pages_shared, c->pages_cached, c->stats.pages_total);
    snprintf(r.text[7], cap, "prompts     %" PRIu64 " tokens computed, %" PRIu64 " reused", t->prompt_computed,
             t->prompt_reused);
    snprintf(r.text[8], cap, "turns       %u, %u of them not valid in the game; a grammar needed %.2f ms (median)",
             t->turns, t->invalid_turns, samples_median(&c->tavern->grammar_ms));
    snprintf(r.text[9], cap, "replay      seed %" PRIu64 ", transcript %016" PRIx64, t->seed, transcript_hash(t));
    snprintf(r.text[10], cap, "patrons     %u who murmured %u sentences, %" PRIu64 " tokens", c->patrons->count,
             c->patrons->murmurs, c->patrons->tokens);
    samples_free(&first);
    return r;
}

void end_card_print(const end_card *c, void (*print)(void *user, const char *row), void *user)
{
    card_rows r = rows_of(c);
    for (int i = 0; i < r.count; i++) {
        print(user, r.text[i]);
    }
}

/* ---- JSON ---- */

static void write_line(json_out *j, const tavern_line *l)
{
    json_out_object(j, NULL);
    json_out_string(j, "npc", l->by ? l->by->who->name : NULL);
    if (!l->by) {
        json_out_string(j, "to", l->to);
    }
    json_out_string(j, "text", l->text);
    if (l->by) {
        json_out_number(j, "ttft_ms", l->first_ms);
        json_out_uint(j, "tokens", l->tokens);
        json_out_uint(j, "prompt_tokens", l->prompt_tokens);
        json_out_uint(j, "reused_tokens", l->reused_tokens);
        json_out_string(j, "stop", host_stop_name(l->stop));
        json_out_string(j, "mood", l->turn.mood);
        json_out_string(j, "act", l->turn.act);
        json_out_string(j, "thing", l->turn.thing);
        json_out_string(j, "target", l->turn.target);
        json_out_int(j, "trust", l->turn.trust);
    }
    json_out_end(j);
}

static void write_times(json_out *j, const char *key, samples *ms)
{
    json_out_object(j, key);
    json_out_uint(j, "count", ms->count);
    json_out_number(j, "p50_ms", samples_percentile(ms, 50));
    json_out_number(j, "p99_ms", samples_percentile(ms, 99));
    json_out_number(j, "max_ms", samples_percentile(ms, 100));
}

static void write_json(json_out *j, const end_card *c)
{
    const tavern *t = c->tavern;
    char hash[20];
    samples first = first_words(t);
    json_out_object(j, NULL);
    json_out_string(j, "model", base_name(c->model));
    json_out_uint(j, "seed", t->seed);
    json_out_uint(j, "threads", c->threads);
    json_out_uint(j, "cpu_us", c->cpu_us);
    json_out_uint(j, "gpu_us", c->gpu_us);
    json_out_string(j, "backend", c->on_gpu ? "cuda" : "cpu");
    json_out_array(j, "lines");
    for (size_t i = 0; i < t->count; i++) {
        write_line(j, &t->lines[i]);
    }
    json_out_end(j);
    write_times(j, "frames", c->frames);
    json_out_uint(j, "over_budget", frames_over_budget(c));
    json_out_end(j);
    write_times(j, "steps", c->steps);
    json_out_end(j);
    json_out_number(j, "tokens_per_s", tokens_per_second(c));
    json_out_number(j, "tokens_per_pass", tavern_tokens_per_pass(t));
    json_out_object(j, "ttft_ms");
    json_out_number(j, "median", samples_median(&first));
    json_out_number(j, "max", samples_percentile(&first, 100));
    json_out_end(j);
    json_out_object(j, "pages");
    json_out_uint(j, "used", c->pages_used);
    json_out_uint(j, "shared", c->pages_shared);
    json_out_uint(j, "cached", c->pages_cached);
    json_out_uint(j, "total", c->stats.pages_total);
    json_out_end(j);
    json_out_object(j, "memory");
    json_out_uint(j, "host_bytes", c->stats.host_bytes);
    json_out_uint(j, "host_peak", c->stats.host_peak);
    json_out_uint(j, "device_bytes", c->stats.device_bytes);
    json_out_uint(j, "device_peak", c->stats.device_peak);
    json_out_uint(j, "planned_bytes", c->plan_bytes);
    json_out_end(j);
    json_out_object(j, "prompt");
    json_out_uint(j, "computed", t->prompt_computed);
    json_out_uint(j, "reused", t->prompt_reused);
    json_out_uint(j, "forgotten", t->forgotten_tokens);
    json_out_uint(j, "kept", t->kept_tokens);
    json_out_end(j);
    json_out_uint(j, "turns", t->turns);
    json_out_uint(j, "invalid_turns", t->invalid_turns);
    json_out_uint(j, "loops", loops(t));
    json_out_object(j, "patrons");
    json_out_uint(j, "count", c->patrons->count);
    json_out_uint(j, "murmurs", c->patrons->murmurs);
    json_out_uint(j, "tokens", c->patrons->tokens);
    json_out_string(j, "heard", c->patrons->heard);
    json_out_end(j);
    json_out_number(j, "grammar_ms", samples_median(&c->tavern->grammar_ms));
    json_out_uint(j, "allocations_since_load", c->allocations);
    snprintf(hash, sizeof hash, "%016" PRIx64, transcript_hash(t));
    json_out_string(j, "transcript_hash", hash);
    json_out_end(j);
    samples_free(&first);
}

bool end_card_save_json(const end_card *c, const char *path)
{
    text_file_part f;
    bool good = text_file_begin(&f, path);
    if (good) {
        json_out j = { .file = f.file };
        write_json(&j, c);
        good = text_file_end(&f, true);
    }
    if (good) {
        printf("%s: all lines and the figures\n", path);
    } else {
        fprintf(stderr, "%s cannot be written: %s\n", path, strerror(errno));
    }
    return good;
}

/* ---- picture ---- */

static bool draw(const end_card *c, const char *path)
{
    char title[160];
    card_rows r = rows_of(c);
    double budget = budget_ms(c);
    chart frames = { .title = "frame time in ms; red: late", .limit_name = "60 Hz", .ms = c->frames->values,
                     .count = c->frames->count, .limit_ms = PACE_FRAME_NS * 1e-6, .top_ms = 2 * PACE_FRAME_NS * 1e-6,
                     .late_ms = LATE_MS };
    chart steps = { .title = "of this, time inside exl2_step", .limit_name = "budget", .ms = c->steps->values,
                    .count = c->steps->count, .limit_ms = budget, .top_ms = budget * 2,
                    .late_ms = budget + STEP_TOLERANCE_MS };
    int panels = 84 + r.count * ROW_PIXELS;
    picture p = picture_open(900, panels + 368, CHART_BACKGROUND);
    picture_text(&p, 40, 20, 2, CHART_LIMIT, "The Drowned Lantern");
    snprintf(title, sizeof title, "three people, one past, %s", base_name(c->model));
    picture_text(&p, 40, 44, 1, CHART_DIM, title);
    for (int i = 0; i < r.count; i++) {
        picture_text(&p, 40, 70 + i * ROW_PIXELS, 1, CHART_TEXT, r.text[i]);
    }
    chart_panel(&p, 40, panels, 840, 140, &frames);
    chart_panel(&p, 40, panels + 184, 840, 140, &steps);
    picture_text(&p, 40, panels + 340, 1, CHART_DIM, "frames of the evening, left to right");
    bool saved = picture_save_png(&p, path);
    picture_close(&p);
    return saved;
}

bool end_card_save_png(const end_card *c, const char *path)
{
    if (!picture_can_save()) {
        printf("no picture: this build has no stb_image_write\n");
        return true;
    }
    bool saved = draw(c, path);
    if (saved) {
        printf("%s: picture of the frame times\n", path);
    } else {
        fprintf(stderr, "%s cannot be written: %s\n", path, strerror(errno));
    }
    return saved;
}
