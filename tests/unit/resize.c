/* resize.c: resized bytes are those of Pillow 11.3 (tests/golden/resize), for three filters, any number of tasks and
   units of any size. The goldens tell an order of rows before columns from the right one. Formats of pixels. */
#include "../check.h"

#include "private/cpu.h"
#include "private/pixels.h"
#include "private/resize.h"

#define SIDE_MAX 4096u

typedef struct golden {
    uint32_t width, height, out_width, out_height;
    uint64_t sums[3]; /* of Lanczos, bilinear, bicubic */
} golden;

static void run_tasks(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    while (count-- > 0) {
        task(arg, count);
    }
}

/* As in make.py. */
static uint8_t *noise(uint32_t width, uint32_t height)
{
    uint32_t x = width * 65537 + height, count = width * height * 3;
    uint8_t *out = (uint8_t *)malloc(count);
    for (uint32_t i = 0; i < count; i++) {
        x = x * 1664525 + 1013904223;
        out[i] = (uint8_t)(i / 3 % 3 == 0 ? (x >> 24 & 1) * 255 : x >> 24);
    }
    return out;
}

static uint64_t fnv(const uint8_t *data, size_t bytes)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ data[i]) * 1099511628211u;
    }
    return h;
}

/* Resizes with one of the families' rules; free the result. path: of the CPU. */
static uint8_t *resize(const uint8_t *rgb, uint32_t width, uint32_t height, uint32_t out_width, uint32_t out_height,
                       uint32_t filter, exl2_cpu_path path, uint32_t tasks, uint64_t unit_ns, uint32_t *steps)
{
    static const exl2__vision_row row = { .rule = EXL2__VISION_RULE_FIXED };
    static exl2__resize r;
    exl2__ctx c = { .allocator = exl2__platform_allocator(), .cpu_path = path };
    c.parallel.run = tasks > 1 ? run_tasks : NULL;
    c.parallel.width = tasks;
    exl2__vision_config v = { .row = &row, .patch = 1, .merge = 1, .filter = filter };
    exl2__vision_limits limits = { 0, 0 };
    exl2__vision_size size;
    exl2__device *cpu;
    void *memory;
    v.wide = out_width;
    v.high = out_height;
    CHECK_INT(exl2__cpu_backend.open(&c, NULL, &cpu), EXL2_OK);
    CHECK_INT(exl2__vision_sizes(&c, &v, &limits, width, height, 0, 0, &size), EXL2_OK);
    CHECK_INT(size.seen_bytes, (long long)out_width * out_height * 3);
    uint64_t bytes = exl2__resize_scratch_bytes(&v, &limits, SIDE_MAX, cpu);
    CHECK_INT(exl2__alloc(&c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &memory), EXL2_OK);
    memset(memory, 0xFF, (size_t)bytes);
    uint8_t *out = (uint8_t *)malloc((size_t)size.seen_bytes);
    memset(out, 0xA5, (size_t)size.seen_bytes);
    exl2__resize_begin(&r, &v, &limits, &size, rgb, width, height, SIDE_MAX, out, memory, cpu);
    *steps = 1;
    while (exl2__resize_step(&r, cpu, unit_ns) == EXL2_PENDING) {
        ++*steps;
    }
    exl2__free(&c, memory, bytes, EXL2_MEM_SCRATCH);
    exl2__cpu_backend.close(cpu);
    CHECK_INT(c.host_bytes, 0);
    return out;
}

/* The picture with lines and columns exchanged. */
static uint8_t *turned(const uint8_t *rgb, uint32_t width, uint32_t height)
{
    uint8_t *out = (uint8_t *)malloc((size_t)width * height * 3);
    for (uint32_t i = 0; i < width * height; i++) {
        memcpy(out + ((size_t)(i % width) * height + i / width) * 3, rgb + (size_t)i * 3, 3);
    }
    return out;
}

/* Returns the number of filters whose sum differs if rows are resized first. */
static uint32_t check_size(const golden *g)
{
    uint32_t wrong = 0, steps;
    uint8_t *rgb = noise(g->width, g->height), *across = turned(rgb, g->width, g->height);
    size_t bytes = (size_t)g->out_width * g->out_height * 3;
    for (uint32_t filter = 1; filter <= 3; filter++) {
        static const uint32_t tasks[] = { 1, 2, 7 };
        for (uint32_t i = 0; i < 6; i++) {
            exl2_cpu_path path = i % 2 ? exl2__cpu_path_best() : EXL2_CPU_C;
            uint64_t unit_ns = i == 3 ? 1 : i == 4 ? 50000 : 0;
            uint8_t *out = resize(rgb, g->width, g->height, g->out_width, g->out_height, filter, path, tasks[i / 2],
                                  unit_ns, &steps);
            if (!CHECK(fnv(out, bytes) == g->sums[filter - 1])) {
                printf("  %u x %u to %u x %u, filter %u, case %u\n", g->width, g->height, g->out_width, g->out_height,
                       filter, i);
            }
            CHECK(unit_ns ? unit_ns > 1 || steps > 1 || bytes < 9 : steps == 1);
            free(out);
        }
        uint8_t *out = resize(across, g->height, g->width, g->out_height, g->out_width, filter, EXL2_CPU_C, 1, 0,
                              &steps);
        uint8_t *back = turned(out, g->out_height, g->out_width);
        wrong += fnv(back, bytes) != g->sums[filter - 1];
        free(out);
        free(back);
    }
    free(rgb);
    free(across);
    return wrong;
}

static void check_goldens(void)
{
    char *text = check_read(EXL2_GOLDEN_DIR "/resize/hashes.txt", NULL), *line = text;
    uint32_t sizes = 0, wrong = 0;
    for (char *end; *line && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        golden g;
        unsigned long long sums[3];
        CHECK_INT(sscanf(line, "%u %u %u %u %llx %llx %llx", &g.width, &g.height, &g.out_width, &g.out_height, &sums[0],
                         &sums[1], &sums[2]), 7);
        for (uint32_t i = 0; i < 3; i++) {
            g.sums[i] = sums[i];
        }
        wrong += check_size(&g);
        sizes++;
    }
    CHECK_INT(sizes, 40);
    CHECK(wrong > 60); /* rows before columns: nearly wherever both sides change */
    printf("rows before columns: %u of %u sums differ\n", wrong, 3 * sizes);
    free(text);
}

static void check_formats(void)
{
    static const uint8_t bytes[8] = { 10, 20, 30, 128, 200, 100, 50, 0 };
    static const struct { exl2__pixels_format format; uint32_t bytes; uint8_t rgb[6]; } cases[] = {
        { EXL2__PIXELS_RGB8, 3, { 10, 20, 30, 128, 200, 100 } },
        { EXL2__PIXELS_RGBA8, 4, { 132, 137, 142, 255, 255, 255 } }, /* (10 * 128 + 255 * 127 + 127) / 255 = 132 */
        { EXL2__PIXELS_BGRA8, 4, { 142, 137, 132, 255, 255, 255 } },
        { EXL2__PIXELS_RGBX8, 4, { 10, 20, 30, 200, 100, 50 } },
        { EXL2__PIXELS_BGRX8, 4, { 30, 20, 10, 50, 100, 200 } },
        { EXL2__PIXELS_GRAY8, 1, { 10, 10, 10, 20, 20, 20 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t rgb[6];
        exl2__pixels_line(cases[i].format, bytes, 2, rgb);
        CHECK_INT(exl2__pixels_bytes(cases[i].format), cases[i].bytes);
        CHECK(memcmp(rgb, cases[i].rgb, 6) == 0);
    }
    for (uint32_t width = 1; width < 20; width++) { /* several pixels at a time, and the rest */
        uint8_t pixels[80], rgb[2][61];
        for (uint32_t i = 0; i < sizeof pixels; i++) {
            pixels[i] = (uint8_t)(i * 37 + 11);
        }
        for (uint32_t k = 0; k < 2; k++) {
            memset(rgb[k], 0xA5, sizeof rgb[k]);
            exl2__pixels_line(k ? EXL2__PIXELS_BGRX8 : EXL2__PIXELS_RGBX8, pixels, width, rgb[k]);
            CHECK_INT(rgb[k][3 * width], 0xA5);
        }
        for (uint32_t i = 0; i < 3 * width; i++) {
            CHECK_INT(rgb[0][i], pixels[i / 3 * 4 + i % 3]);
            CHECK_INT(rgb[1][i], pixels[i / 3 * 4 + 2 - i % 3]);
        }
    }
}

int main(void)
{
    check_formats();
    check_goldens();
    return check_done();
}
