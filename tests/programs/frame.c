/* frame.c: the programs frame and hello from outside: two seconds of frames on a tiny model, the figures and the
   picture that they write, and their messages. The speed is not judged.
   takes: frame FRAME HELLO FOLDER: the two programs, a folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#define MODEL EXL2_GOLDEN_DIR "/models/exl2-4bit"
#define SECONDS 2
#define FRAMES_ON (SECONDS * 60 * 2 / 3)
#define PICTURE_BYTES_MAX 60000

/* "WHAT p50 A p99 B max C ms" with 0 < A <= B <= C. */
static void check_figures(const char *out, const char *what)
{
    double p50 = 0, p99 = 0, most = 0;
    const char *line = strstr(out, what);
    if (CHECK(line != NULL)) {
        CHECK_INT(sscanf(line + strlen(what), " p50 %lf p99 %lf max %lf ms", &p50, &p99, &most), 3);
        CHECK(p50 > 0 && p50 <= p99 && p99 <= most);
    }
}

/* The buckets of the histogram contain every frame in which the engine worked. */
static void check_histogram(const char *out)
{
    const char *at = strstr(out, "frames with the engine at work:");
    unsigned sum = 0, count, rows = 0;
    CHECK(at != NULL);
    for (; at && (at = strstr(at, " ms ")) != NULL; at += 4) {
        CHECK_INT(sscanf(at, " ms %u", &count), 1);
        sum += count;
        rows++;
    }
    CHECK_INT(rows, 12);
    CHECK_INT(sum, FRAMES_ON);
}

static void check_picture(const char *out)
{
    size_t bytes;
    char path[1100];
    if (strstr(out, "no stb_image_write")) {
        return;
    }
    snprintf(path, sizeof path, "%s/frame.png", folder);
    char *picture = check_read(path, &bytes);
    CHECK(bytes > 1000 && bytes < PICTURE_BYTES_MAX && memcmp(picture, "\x89PNG\r\n", 6) == 0);
    CHECK(strstr(out, "frame.png: picture of the frame times") != NULL);
    free(picture);
}

/* The file has a line for each frame; those that count are those of the quantiles. */
static void check_csv(unsigned idle, unsigned busy)
{
    char *text = program_read("frames.csv"), *at;
    unsigned counted[2] = { 0, 0 };
    CHECK(strncmp(text, "at_work,counts,step_ms,fence_ms\n", 31) == 0);
    for (at = strchr(text, '\n') + 1; *at; at = strchr(at, '\n') + 1) {
        unsigned on = 2, counts = 2;
        double step = -1, fence = -1;
        if (!CHECK(sscanf(at, "%u,%u,%lf,%lf\n", &on, &counts, &step, &fence) == 4 && on < 2 && counts < 2)) {
            break;
        }
        CHECK(step >= 0 && fence >= step);
        counted[on] += counts;
    }
    CHECK(counted[0] == idle && counted[1] == busy);
    free(text);
}

/* A renderer of its own: OpenGL, in software, too, or CUDA; where there is neither, a message says so. */
static void check_render(void)
{
    static const char *const lines[] = { "fence, engine idle", "fence, engine at work", "the difference" };
    int code = program_run("'" MODEL "' --seconds 3 --render 4 --cpu-us 2000 --backend cpu --threads 1 --prompt 40 "
                           "--say 3 --csv '%s/frames.csv'", folder);
    if (code != 0) {
        program_sentence(code, 1, "nothing can render here: no OpenGL (");
        return;
    }
    char *out = program_read("out");
    CHECK(strstr(out, "rendered by OpenGL through EGL, ") || strstr(out, "by no OpenGL: a second CUDA context"));
    double values[3][4];
    for (uint32_t i = 0; i < 3; i++) {
        const char *line = strstr(out, lines[i]);
        double *v = values[i];
        CHECK(line && sscanf(line + strlen(lines[i]), " p50 %lf p99 %lf p99.9 %lf max %lf ms", &v[0], &v[1], &v[2],
                             &v[3]) == 4);
    }
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(values[0][i] > 0 && values[1][i] > 0 && (i == 0 || values[0][i] >= values[0][i - 1]));
        CHECK(fabs(values[1][i] - values[0][i] - values[2][i]) < 0.02);
    }
    unsigned idle = 0, busy = 0;
    const char *counts = strstr(out, "; ");
    CHECK(counts && sscanf(counts, "; %u frames idle, %u at work", &idle, &busy) == 2 && idle > 0 && busy > 0);
    free(out);
    check_csv(idle, busy);
    program_sentence(program_run("'" MODEL "' --speakers 65"), 2, "--speakers must be 1 to 64");
    program_sentence(program_run("'" MODEL "' --render 2000"), 2, "--render must be 0 to 1000");
    program_sentence(program_run("'" MODEL "' --prompt 8193"), 2, "--prompt must be at most 8192");
    program_sentence(program_run("'" MODEL "' --csv f"), 2, "--csv needs --render");
    program_sentence(program_run("'" MODEL "' --render 2 --csv '%s/none/f'", folder), 1, "cannot be written");
    program_sentence(program_run("'" MODEL "' --render 2 --png f"), 2, "has no picture");
}

/* What the frame has drawn is seen and spoken about: pictures differ, so each goes through the tower. */
static void check_see(void)
{
    const char *root = check_env("EXL2_TEST_DATA");
    program_sentence(program_run("'" MODEL "' --see 1"), 2, "--see must be above 0, needs --render");
    program_sentence(program_run("'" MODEL "' --render 2 --see -1"), 2, "--see must be above 0");
    program_sentence(program_run("'" MODEL "' --render 2 --see 1 --speakers 2"), 2, "has no --speakers");
    program_sentence(program_run("'" MODEL "' --render 2 --see 1 --backend cpu"), 1, "no tower for pictures");
    if (!root) {
        printf("no EXL2_TEST_DATA: no model sees\n");
        return;
    }
    int code = program_run("'%s/fixtures/vision/smolvlm' --seconds 4 --render 2 --see 0.1 --cpu-us 4000 --backend cpu "
                           "--threads 1 --say 2", root);
    if (code != 0) {
        program_sentence(code, 1, "nothing can draw a picture here: no OpenGL (");
        return;
    }
    char *out = program_read("out");
    const char *line = strstr(out, " of 512 x 512, ");
    unsigned rows = 0, words = 0;
    double added = -1e9, p50 = 0, most = 0;
    CHECK(line && sscanf(line, " of 512 x 512, %u rows each; p99 of added frame time %lf ms\n"
                               "from a picture to the first word about it: p50 %lf ms, max %lf ms, of %u", &rows,
                         &added, &p50, &most, &words) == 5);
    CHECK_INT(rows, 4); /* one tile */
    CHECK(words >= 1 && p50 > 0 && most >= p50);
    const char *p99 = strstr(out, "the difference");
    double wanted = 0;
    CHECK(p99 && sscanf(strstr(p99, " p99 "), " p99 %lf", &wanted) == 1 && fabs(wanted - added) < 0.011);
    free(out);
}

/* Each step of the trace has its parts before it; none of them lasts longer than the step. */
static void check_trace(void)
{
    CHECK_INT(program_run("'" MODEL "' --backend cpu --seconds %d --cpu-us 2000 --threads 1 --trace '%s/trace.csv'",
                          SECONDS, folder),
              0);
    char *text = program_read("trace.csv"), name[64];
    unsigned long step = 0, steps = 0, parts = 0, predicted = 0;
    double sum = 0, guess, us;
    CHECK(strncmp(text, "step,part,predicted_us,us\n", 26) == 0);
    for (char *at = strchr(text, '\n') + 1; *at; at = strchr(at, '\n') + 1) {
        if (!CHECK(sscanf(at, "%lu,%63[^,],%lf,%lf\n", &step, name, &guess, &us) == 4 && step == steps)) {
            break;
        }
        if (strcmp(name, "step") == 0) {
            CHECK(guess > 1999 && guess < 2001 && us + 0.1 * (double)parts + 1 > sum);
            steps++;
            sum = 0;
            continue;
        }
        sum += us;
        parts++;
        predicted += guess > 0;
    }
    CHECK_INT(steps, SECONDS * 60);
    CHECK(parts > 1000 && predicted > parts / 2);
    free(text);
    program_sentence(program_run("'" MODEL "' --trace '%s/none/f'", folder), 1, "cannot be written");
    program_sentence(program_run("'" MODEL "' --trace f --worker"), 2, "give it without --worker");
}

static void check_frame(void)
{
    int code = program_run("'" MODEL "' --backend cpu --seconds %d --cpu-us 2000 --threads 1 --png '%s/frame.png'",
                           SECONDS, folder);
    CHECK_INT(code, 0);
    char *out = program_read("out"), *err = program_read("err");
    double speed = 0;
    CHECK_TEXT(err, "");
    check_figures(out, "frame, engine idle");
    check_figures(out, "frame, engine at work");
    check_figures(out, "inside exl2_step");
    char *end = strstr(out, " tokens/s with 2.00 ms per frame on 1 thread");
    if (CHECK(end != NULL)) {
        while (end > out && end[-1] != '\n') {
            end--;
        }
        CHECK(sscanf(end, "%lf tokens/s", &speed) == 1 && speed > 0);
    }
    check_histogram(out);
    check_picture(out);
    free(err);
    if (!strstr(out, "no stb_image_write")) { /* a picture that cannot be written leaves the older one */
        char flags[2200];
        snprintf(flags, sizeof flags, "'" MODEL "' --seconds 1 --cpu-us 2000 --threads 1 --png '%s/older.png'", folder);
        program_write("older.png", "older");
        program_sentence(program_run_full(false, flags), 1, "older.png cannot be written: File too large");
        char *older = program_read("older.png");
        CHECK_TEXT(older, "older");
        free(older);
    }
    free(out);
    program_sentence(program_run("'%s'", folder), 1, "config.json");
    program_sentence(program_run("'" MODEL "' --png ''"), 2, "--png is an empty path");
    program_sentence(program_run("'" MODEL "' --seconds 0"), 2, "--seconds");
    program_sentence(program_run("'" MODEL "' --cpu-us 0"), 2, "--cpu-us");
    program_sentence(program_run("'" MODEL "' --gpu-us 0"), 2, "--gpu-us");
    program_sentence(program_run("%s", ""), 2, "MODEL is missing");
    CHECK_INT(program_run("--help"), 0);
}

static void check_hello(void)
{
    program_sentence(program_run("%s", ""), 2, "usage: hello MODEL");
    program_sentence(program_run("'%s'", folder), 1, "config.json");
    program_sentence(program_run("'" MODEL "'"), 1, "no tokenizer.json");
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        printf("usage: frame FRAME HELLO FOLDER\n");
        return 1;
    }
    program_set(argv[1], argv[3]);
    check_frame();
    check_trace();
    check_render();
    check_see();
    program_set(argv[2], argv[3]);
    check_hello();
    return check_done();
}
