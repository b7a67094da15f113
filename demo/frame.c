/* frame.c: a 60 Hz loop with the engine inside it. For the first third of the time the engine is idle, then it
   generates text. Each frame gives it --cpu-us and, on a GPU, --gpu-us. Prints the frame times and draws a chart.
   With --render the GPU also draws, as it does for a game (render/render.h). Then blocks of five seconds with the
   engine idle and at work take turns, and the time from a frame's start to its fence is compared: a quantile at work
   minus the same quantile idle is what the engine costs. With --see the engine also gets a picture of what was drawn,
   every few seconds, and speaks about it.
   takes: a model folder, a budget per frame.
   gives: main.
   owns:  nothing beyond main. */
#include "common/chart.h"
#include "common/clock.h"
#include "common/console.h"
#include "common/host.h"
#include "common/interrupt.h"
#include "common/pace.h"
#include "common/samples.h"
#include "common/text_file.h"
#include "common/trace.h"
#include "render/render.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GAME_NS 6000000u /* what the game itself computes in a frame */
#define LATE_MS 18.0     /* a longer frame missed its display refresh */
#define BLOCK_NS UINT64_C(5000000000) /* with --render */
#define BLOCK_BEGIN 6u   /* frames at the beginning of a block that do not count */
#define PROMPT_MAX 8192u
#define SAY_OF_PICTURE 40u /* tokens that are said about a picture, without --say */
#define LOOK_TEXT "What do you see? Answer in one sentence."
#define SPEAKERS_MAX 64u

typedef struct frame_options {
    const char *png, *csv, *trace;
    uint32_t cpu_us, gpu_us, seconds;
    uint32_t prompt, say; /* tokens of a job's prompt and of its answer; 0: a sentence, as many as fit */
    uint32_t speakers; /* jobs at a time */
    float render_ms; /* GPU time of what a frame draws; 0: nothing */
    float see_s;     /* seconds from one picture that the engine sees to the next one; 0: none */
    bool worker;
    exl2_model_desc model;
    host_options host;
} frame_options;

/* One of the jobs that run at a time. */
typedef struct speaker {
    struct frame_run *run;
    exl2_job job;
    bool open; /* the job has not ended */
} speaker;

typedef struct frame_run {
    const frame_options *options;
    host host;
    samples frames, steps; /* ms, for each frame */
    samples frames_off, frames_on, steps_on;
    size_t on_from; /* first frame with work for the engine */
    uint64_t on_ns;
    renderer render;
    samples fences_off, fences_on; /* ms from a frame's start to its fence */
    text_file_part csv; /* file NULL: none is written */
    trace trace;
    speaker speakers[SPEAKERS_MAX];
    uint32_t jobs; /* started so far */
    bool paused;
    host_end end; /* end of the newest job that has ended */
    struct {
        bool taken;          /* the frame before has read its picture */
        uint64_t next_ns;    /* when the next picture is due */
        uint64_t taken_ns;   /* when the newest one was taken; 0: its first word has come */
        uint32_t count, rows; /* pictures so far, rows of one */
        samples words;       /* ms from a picture to the first word about it */
    } look;
} frame_run;

static exl2_flow on_event(void *user, const exl2_event *event)
{
    speaker *s = user;
    host_end_take(&s->run->end, event);
    if (event->kind == EXL2_EVENT_TEXT && s->run->look.taken_ns) {
        samples_add(&s->run->look.words, (double)(clock_ns() - s->run->look.taken_ns) * 1e-6);
        s->run->look.taken_ns = 0;
    }
    s->open = s->open && event->kind != EXL2_EVENT_DONE;
    return EXL2_CONTINUE;
}

/* Another prompt for each job, as K and V of one that was read before would be found. */
static void make_prompt(exl2_token *ids, uint32_t count, uint32_t vocab, uint32_t job)
{
    uint32_t state = job;
    for (uint32_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (exl2_token)((state >> 8) % vocab);
    }
}

static bool start_job(speaker *s)
{
    static const exl2_token few[] = { 1, 2, 3, 4 }; /* for a folder without a tokenizer */
    static exl2_token many[PROMPT_MAX];
    frame_run *r = s->run;
    exl2_job_desc d = { .model = r->host.model, .max_tokens = r->options->say, .on_event = on_event, .user = s };
    d.sampler.seed = 1;
    if (r->options->prompt) {
        make_prompt(many, r->options->prompt, r->host.info.vocab, r->jobs++);
        d.prompt.tokens = many;
        d.prompt.token_count = r->options->prompt;
    } else if (r->host.info.has_tokenizer) {
        d.prompt.text = "It was a dark night at the lighthouse, and the keeper said:";
    } else {
        d.prompt.tokens = few;
        d.prompt.token_count = sizeof few / sizeof few[0];
    }
    s->open = exl2_job_start(r->host.engine, &d, &s->job) >= 0;
    return s->open;
}

/* Starts a job for each speaker that has none. false: failed, message printed. */
static bool start_jobs(frame_run *r)
{
    for (uint32_t i = 0; i < r->options->speakers; i++) {
        r->speakers[i].run = r;
        if (!r->speakers[i].open && !start_job(&r->speakers[i])) {
            host_failed(&r->host);
            return false;
        }
    }
    return true;
}

/* Makes a picture of what the frame before has drawn, and starts a job that speaks about it. */
static bool start_look(frame_run *r)
{
    static uint8_t pixels[RENDER_SIDE * RENDER_SIDE * 4];
    speaker *s = &r->speakers[0];
    exl2_image image;
    exl2_image_info info;
    exl2_image_desc d = { .model = r->host.model, .format = EXL2_PIXELS_RGBX8, .width = RENDER_SIDE,
                          .height = RENDER_SIDE, .stride = -(int64_t)RENDER_SIDE * 4, .pixels = pixels,
                          .silent = true };
    exl2_job_desc job = { .model = r->host.model, .on_event = on_event, .user = s };
    r->look.taken = false;
    r->look.taken_ns = clock_ns();
    if (!render_seen(&r->render, pixels)) {
        return false;
    }
    s->run = r;
    job.prompt.text = LOOK_TEXT;
    job.prompt.images = &image;
    job.prompt.image_count = 1;
    job.max_tokens = r->options->say ? r->options->say : SAY_OF_PICTURE;
    job.sampler.seed = 1;
    bool good = exl2_image_make(r->host.engine, &d, &image) >= 0
             && exl2_image_get(r->host.engine, image, &info) >= 0
             && exl2_job_start(r->host.engine, &job, &s->job) >= 0 && exl2_image_close(r->host.engine, image) >= 0;
    if (!good) {
        host_failed(&r->host);
        return false;
    }
    s->open = true;
    r->look.count++;
    r->look.rows = info.rows;
    return true;
}

/* The jobs of a frame. With --see they are those about pictures, of which one is spoken about at a time. */
static bool start_work(frame_run *r)
{
    uint64_t now_ns = clock_ns();
    if (!(r->options->see_s > 0)) {
        return start_jobs(r);
    }
    if (r->look.taken) {
        return start_look(r);
    }
    if (!r->speakers[0].open && now_ns >= r->look.next_ns) {
        render_look(&r->render);
        r->look.taken = true;
        r->look.next_ns = now_ns + (uint64_t)((double)r->options->see_s * 1e9);
    }
    return true;
}

/* With --render: the jobs of one block go on in the next but one. */
static void pause_jobs(frame_run *r, bool pause)
{
    for (uint32_t i = 0; i < r->options->speakers && r->paused != pause; i++) {
        if (r->speakers[i].open) {
            exl2_job_pause(r->host.engine, r->speakers[i].job, pause);
        }
    }
    r->paused = pause;
}

/* One frame of a game: the game's own work, the engine's step, then the display. false: failed, message printed. */
static bool run_frame(frame_run *r, bool on, uint64_t *display_ns)
{
    exl2_step_desc slice = { .cpu_us = r->options->cpu_us, .gpu_us = r->options->gpu_us };
    uint64_t start = clock_ns();
    if (on && !start_jobs(r)) {
        return false;
    }
    pace_until(start + GAME_NS, GAME_NS);
    uint64_t step_start = clock_ns();
    if (exl2_step(r->host.engine, &slice) < 0) {
        host_failed(&r->host);
        return false;
    }
    uint64_t step_ns = clock_ns() - step_start;
    double step_ms = (double)step_ns * 1e-6;
    trace_step(&r->trace, slice.cpu_us * UINT64_C(1000), step_ns);
    uint64_t end = pace_display(display_ns);
    double frame_ms = (double)(end - start) * 1e-6;
    samples_add(&r->frames, frame_ms);
    samples_add(&r->steps, step_ms);
    samples_add(on ? &r->frames_on : &r->frames_off, frame_ms);
    if (on) {
        samples_add(&r->steps_on, step_ms);
        r->on_ns += end - start;
    }
    return host_end_good(&r->host, &r->end);
}

/* One frame of a game that draws: the engine's step, the picture, its fence, then the display. */
static bool run_drawn_frame(frame_run *r, bool on, bool counts, uint64_t *display_ns)
{
    exl2_step_desc slice = { .cpu_us = r->options->cpu_us, .gpu_us = r->options->gpu_us };
    uint64_t start = clock_ns();
    bool steps = on || !(r->options->see_s > 0); /* a picture that waits for its rows is not paused, but left alone */
    pause_jobs(r, !on);
    if (on && !start_work(r)) {
        return false;
    }
    uint64_t step_start = clock_ns();
    if (steps && exl2_step(r->host.engine, &slice) < 0) {
        host_failed(&r->host);
        return false;
    }
    uint64_t step_ns = clock_ns() - step_start;
    double step_ms = (double)step_ns * 1e-6;
    trace_step(&r->trace, slice.cpu_us * UINT64_C(1000), step_ns);
    if (!render_frame(&r->render) || !render_wait(&r->render)) {
        return false;
    }
    double fence_ms = (double)(clock_ns() - start) * 1e-6;
    uint64_t end = pace_display(display_ns);
    if (r->csv.file) {
        fprintf(r->csv.file, "%d,%d,%.4f,%.4f\n", on, counts, step_ms, fence_ms);
    }
    if (counts) {
        samples_add(on ? &r->fences_on : &r->fences_off, fence_ms);
    }
    if (on) {
        samples_add(&r->steps_on, step_ms);
        r->on_ns += end - start;
    }
    return host_end_good(&r->host, &r->end);
}

/* Blocks take turns; a short run has one of each. The first frames of a block do not count, as what was queued before
   it ends in them. */
static bool run_blocks(frame_run *r)
{
    uint64_t whole_ns = r->options->seconds * UINT64_C(1000000000), start = clock_ns(), past_ns;
    uint64_t display_ns = start;
    uint64_t block_ns = whole_ns < 2 * BLOCK_NS ? whole_ns / 2 : BLOCK_NS, block = 0;
    bool good = true;
    for (uint32_t frames = 0; good && (past_ns = clock_ns() - start) < whole_ns && !interrupted(); frames++) {
        frames = past_ns / block_ns == block ? frames : 0;
        block = past_ns / block_ns;
        good = run_drawn_frame(r, block % 2 == 1, frames >= BLOCK_BEGIN, &display_ns);
    }
    return good;
}

static bool run_frames(frame_run *r)
{
    size_t count = (size_t)r->options->seconds * 60;
    uint64_t display_ns = clock_ns();
    bool good = true;
    r->on_from = count / 3;
    for (size_t i = 0; good && i < count && !interrupted(); i++) {
        good = run_frame(r, i >= r->on_from, &display_ns);
    }
    return good;
}

static void format_line(char *text, size_t cap, const char *what, samples *s)
{
    snprintf(text, cap, "%-24s p50 %6.2f   p99 %6.2f   max %6.2f ms", what, samples_percentile(s, 50),
             samples_percentile(s, 99), samples_percentile(s, 100));
}

/* The budget of the engine per frame, as text. */
static void format_budget(char *text, size_t cap, const frame_run *r)
{
    const frame_options *o = r->options;
    uint32_t threads = pool_width(r->host.pool);
    if (host_on_gpu(&r->host)) {
        if (o->gpu_us == 0) {
            snprintf(text, cap, "whole passes, %.2f ms per frame for their queue", o->cpu_us * 1e-3);
            return;
        }
        snprintf(text, cap, "%.2f ms per frame on the GPU, %.2f ms for its queue", o->gpu_us * 1e-3, o->cpu_us * 1e-3);
    } else {
        snprintf(text, cap, "%.2f ms per frame on %u thread%s", o->cpu_us * 1e-3, threads, threads == 1 ? "" : "s");
    }
}

static void print_quantiles(const char *what, const double ms[4])
{
    printf("%-24s p50 %6.2f   p99 %6.2f   p99.9 %6.2f   max %6.2f ms\n", what, ms[0], ms[1], ms[2], ms[3]);
}

/* What the engine costs the picture. */
static void print_blocks(frame_run *r)
{
    static const double percents[] = { 50, 99, 99.9, 100 };
    double off[4], on[4], more[4];
    exl2_engine_stats stats;
    char budget[96];
    for (int i = 0; i < 4; i++) {
        off[i] = samples_percentile(&r->fences_off, percents[i]);
        on[i] = samples_percentile(&r->fences_on, percents[i]);
        more[i] = on[i] - off[i];
    }
    exl2_stats(r->host.engine, &stats);
    format_budget(budget, sizeof budget, r);
    printf("rendered by %s: %u draws and %u dispatches, %.2f ms alone\n", r->render.what, r->render.draws,
           r->render.reads, r->render.ms);
    print_quantiles("fence, engine idle", off);
    print_quantiles("fence, engine at work", on);
    print_quantiles("the difference", more);
    char line[128];
    format_line(line, sizeof line, "inside exl2_step", &r->steps_on);
    puts(line);
    printf("%.1f tokens/s with %s; %zu frames idle, %zu at work\n",
           r->on_ns ? (double)stats.tokens_out * 1e9 / (double)r->on_ns : 0, budget, r->fences_off.count,
           r->fences_on.count);
    if (r->options->see_s > 0) {
        printf("%u picture%s of %u x %u, %u rows each; p99 of added frame time %.2f ms\n", r->look.count,
               r->look.count == 1 ? "" : "s", RENDER_SIDE, RENDER_SIDE, r->look.rows, more[1]);
        printf("from a picture to the first word about it: p50 %.0f ms, max %.0f ms, of %zu\n",
               samples_percentile(&r->look.words, 50), samples_percentile(&r->look.words, 100), r->look.words.count);
    }
}

/* Prints the figures; lines: the same for the picture. */
static void print_figures(frame_run *r, char lines[4][128])
{
    exl2_engine_stats stats;
    exl2_stats(r->host.engine, &stats);
    double seconds = (double)r->on_ns * 1e-9, speed = seconds > 0 ? (double)stats.tokens_out / seconds : 0;
    char budget[96];
    format_line(lines[0], 128, "frame, engine idle", &r->frames_off);
    format_line(lines[1], 128, "frame, engine at work", &r->frames_on);
    format_line(lines[2], 128, "inside exl2_step", &r->steps_on);
    format_budget(budget, sizeof budget, r);
    snprintf(lines[3], 128, "%.1f tokens/s with %s", speed, budget);
    for (int i = 0; i < 4; i++) {
        puts(lines[i]);
    }
    double bucket = r->options->cpu_us * 1e-3 / 8;
    puts("\ntime inside exl2_step, frames with the engine at work:");
    chart_histogram(stdout, r->steps_on.values, r->steps_on.count, bucket);
}

static bool save_picture(const frame_run *r, char lines[4][128])
{
    double budget = r->options->cpu_us * 1e-3;
    chart frames = { .title = "frame time in ms; grey: engine idle, blue: at work, red: late", .limit_name = "60 Hz",
                     .ms = r->frames.values, .count = r->frames.count, .on_from = r->on_from,
                     .limit_ms = PACE_FRAME_NS * 1e-6, .top_ms = 2 * PACE_FRAME_NS * 1e-6, .late_ms = LATE_MS };
    chart steps = { .title = "time inside exl2_step in ms", .limit_name = "budget",
                    .ms = r->steps.values, .count = r->steps.count, .on_from = r->on_from,
                    .limit_ms = budget, .top_ms = budget * 2, .late_ms = budget + 0.5 };
    picture p = picture_open(900, 470, CHART_BACKGROUND);
    for (int i = 0; i < 4; i++) {
        picture_text(&p, 40, 16 + i * 14, 1, i == 3 ? CHART_LIMIT : CHART_TEXT, lines[i]);
    }
    chart_panel(&p, 40, 100, 840, 150, &frames);
    chart_panel(&p, 40, 290, 840, 150, &steps);
    picture_text(&p, 40, 450, 1, CHART_DIM, "frames, left to right");
    bool saved = picture_save_png(&p, r->options->png);
    picture_close(&p);
    return saved;
}

static int report(frame_run *r)
{
    char lines[4][128];
    if (r->options->render_ms > 0) {
        print_blocks(r);
        return 0;
    }
    print_figures(r, lines);
    if (!r->options->png) {
        return 0;
    }
    if (!picture_can_save()) {
        printf("\nno picture: this build has no stb_image_write\n");
        return 0;
    }
    if (!save_picture(r, lines)) {
        fprintf(stderr, "%s cannot be written: %s\n", r->options->png, strerror(errno));
        return 1;
    }
    printf("\n%s: picture of the frame times\n", r->options->png);
    return 0;
}

int main(int argc, char **argv)
{
    frame_options o = { .cpu_us = 4000, .gpu_us = 4000, .seconds = 10, .speakers = 1 };
    const arg positional[] = { { "MODEL", ARG_TEXT, &o.model.path, NULL, "model folder" } };
    const arg flags[] = {
        { "--cpu-us", ARG_U32, &o.cpu_us, "N", "CPU microseconds per frame for the engine (4000)" },
        { "--gpu-us", ARG_U32, &o.gpu_us, "N", "GPU microseconds per frame; with --render 0 = whole passes (4000)" },
        { "--render", ARG_FLOAT, &o.render_ms, "MS", "the GPU draws for so many ms in each frame (it draws nothing)" },
        { "--see", ARG_FLOAT, &o.see_s, "S",
          "with --render: every S seconds the engine gets a picture of what was drawn, and speaks about it" },
        { "--seconds", ARG_U32, &o.seconds, "N", "length of the run; the engine is idle in the first third (10)" },
        { "--worker", ARG_BOOL, &o.worker, NULL, "a thread of the engine does the work, with these budgets" },
        { "--prompt", ARG_U32, &o.prompt, "N", "tokens of each job's prompt, made up (a sentence)" },
        { "--speakers", ARG_U32, &o.speakers, "N", "jobs at a time, at most 64 (1)" },
        { "--say", ARG_U32, &o.say, "N", "tokens of each job's answer (as many as fit)" },
        { "--png", ARG_TEXT, &o.png, "FILE", "PNG file to write: picture of the frame times" },
        { "--csv", ARG_TEXT, &o.csv, "FILE", "with --render: CSV file to write, a line for each frame" },
        { "--trace", ARG_TEXT, &o.trace, "FILE",
          "CSV file to write: predicted and measured time of each step's parts" },
        HOST_CONTEXT_ARGS(o.model),
        HOST_ARGS(o.host),
    };
    const args_desc d = { "frame",
                          "Runs the engine in a 60 Hz loop and shows the frame times.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = host_parse(&d, argc - 1, console_start(argc, argv) + 1, &o.host);
    bool whole = o.gpu_us == 0 && o.render_ms > 0; /* passes, for comparison */
    if (parsed == ARGS_OK && (o.seconds == 0 || o.seconds > 3600 || o.cpu_us == 0 || (o.gpu_us == 0 && !whole))) {
        parsed = args_wrong(&d, "--seconds must be 1 to 3600, --cpu-us and, without --render, --gpu-us at least 1");
    } else if (parsed == ARGS_OK && (o.render_ms < 0 || o.render_ms > 1000 || (o.render_ms > 0 && o.png))) {
        parsed = args_wrong(&d, "--render must be 0 to 1000, and has no picture (--png)");
    } else if (parsed == ARGS_OK && o.prompt > PROMPT_MAX) {
        parsed = args_wrong(&d, "--prompt must be at most %u", PROMPT_MAX);
    } else if (parsed == ARGS_OK && o.csv && !(o.render_ms > 0)) {
        parsed = args_wrong(&d, "--csv needs --render");
    }
    if (parsed == ARGS_OK && (o.speakers == 0 || o.speakers > SPEAKERS_MAX)) {
        parsed = args_wrong(&d, "--speakers must be 1 to 64");
    }
    if (parsed == ARGS_OK && (o.see_s < 0 || (o.see_s > 0 && (!(o.render_ms > 0) || o.speakers > 1 || o.prompt)))) {
        parsed = args_wrong(&d, "--see must be above 0, needs --render, and has no --speakers or --prompt");
    }
    o.model.batch_max = o.speakers > 16 ? o.speakers : 0; /* the default is 16 */
    if (o.see_s > 0) { /* the picture that is spoken about, and the next one; without tiles */
        o.model.vision.images = 2;
        o.model.vision.max_tiles = 1;
        o.model.vision.pixels_max = 2 * RENDER_SIDE * RENDER_SIDE;
    }
    if (parsed == ARGS_OK && o.trace && o.worker) {
        parsed = args_wrong(&d, "--trace is of the main thread's steps: give it without --worker");
    }
    if (parsed != ARGS_OK) {
        return parsed == ARGS_HELP ? text_stdout_end(0) : 2;
    }
    frame_run r = { .options = &o };
    int code = 1;
    if (!trace_open(&r.trace, o.trace)) {
        return 1;
    }
    o.host.zones = trace_zones(&r.trace);
    if (o.csv) {
        if (!text_file_begin(&r.csv, o.csv)) {
            fprintf(stderr, "%s cannot be written: %s\n", o.csv, strerror(errno));
            return 1;
        }
        fputs("at_work,counts,step_ms,fence_ms\n", r.csv.file);
    }
    if (host_open(&r.host, &o.host) && host_load(&r.host, &o.model, o.speakers)) {
        bool renders = o.render_ms > 0;
        if (o.worker && exl2_worker_start(r.host.engine) < 0) {
            host_failed(&r.host);
        } else if (renders ? render_open(&r.render, (double)o.render_ms, o.see_s > 0) && run_blocks(&r)
                           : run_frames(&r)) {
            code = report(&r);
        }
    }
    render_close(&r.render);
    host_close(&r.host);
    samples_free(&r.frames);
    samples_free(&r.steps);
    samples_free(&r.frames_off);
    samples_free(&r.frames_on);
    samples_free(&r.steps_on);
    samples_free(&r.fences_off);
    samples_free(&r.fences_on);
    samples_free(&r.look.words);
    if (r.csv.file && !text_file_end(&r.csv, code == 0) && code == 0) {
        fprintf(stderr, "%s cannot be written: %s\n", o.csv, strerror(errno));
        code = 1;
    }
    code = trace_close(&r.trace) ? code : 1;
    return text_stdout_end(code);
}
