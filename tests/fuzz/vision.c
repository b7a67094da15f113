/* vision.c: fuzz target: the numbers of a tower. The first line is config.json, the second one
   preprocessor_config.json; what follows are sizes of pictures, four bytes each. What is accepted must lie within what
   exl2__vision_largest promises, and a small picture must be resized to the bytes that it announces.
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -DTEST_WHOLE -I. -Ibuild/tests
   tests/fuzz/vision.c -lm. The suite runs it with run_seeds.c. */
#include "../memory_files.h"

#include "private/resize.h"
#include "private/vision_read.h"

#define SIDE_MAX 4096u
#define BYTES_MAX ((uint64_t)8 << 20) /* of what is resized */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

static void resize(const exl2__vision_config *v, const exl2__vision_limits *limits, const exl2__vision_size *s,
                   uint32_t width, uint32_t height)
{
    static exl2__resize r;
    uint64_t bytes = exl2__resize_scratch_bytes(v, limits, SIDE_MAX, NULL);
    uint32_t frames = exl2__max32(s->frames, 1);
    if (bytes > 16 * BYTES_MAX || s->seen_bytes > BYTES_MAX || (uint64_t)width * height * frames > 10000) {
        return;
    }
    uint8_t *memory = (uint8_t *)malloc((size_t)bytes + 64), *seen = (uint8_t *)malloc((size_t)s->seen_bytes);
    uint8_t *rgb = (uint8_t *)calloc((size_t)width * height * frames, 3);
    void *aligned = memory + (64 - (uintptr_t)memory % 64);
    require(memory && seen && rgb);
    memset(seen, 1, (size_t)s->seen_bytes);
    exl2__resize_begin(&r, v, limits, s, rgb, width, height, SIDE_MAX, seen, aligned, NULL);
    require(exl2__resize_step(&r, NULL, 0) == EXL2_OK);
    for (uint64_t i = 0; i < s->seen_bytes; i++) { /* a black picture remains one, and every byte was written */
        require(seen[i] == 0);
    }
    free(memory);
    free(seen);
    free(rgb);
}

static void check_sizes(const exl2__vision_config *v, const uint8_t *data, size_t size)
{
    static const exl2__vision_limits limits[] = { { 1280, 0 }, { 1280, 1 }, { 50, 3 } };
    for (size_t k = 0; k < EXL2__COUNT(limits); k++) {
        exl2__vision_size most, s;
        exl2__vision_largest(v, &limits[k], &most);
        for (size_t i = 0; i + 4 <= size && i < 64; i += 4) {
            exl2__ctx c = { .allocator = exl2__platform_allocator() };
            uint32_t width = (uint32_t)data[i] | (uint32_t)data[i + 1] << 8, height = data[i + 2] | data[i + 3] << 4;
            uint32_t frames = i % 8 && v->marks.video ? data[i + 1] : 0; /* every other one is a video */
            exl2_result r = exl2__vision_sizes(&c, v, &limits[k], width, height, frames, frames ? 2 : 0, &s);
            require(r == EXL2_OK || r == EXL2_ERR_ARG);
            if (r == EXL2_OK) {
                require(s.rows > 0 && s.rows <= most.rows && s.patches <= most.patches);
                require(s.tiles <= (s.frames ? limits[k].max_rows : most.tiles));
                require(s.grid[1] <= most.grid[1] && s.grid[2] <= most.grid[2]);
                require(s.seen_bytes <= most.seen_bytes * (s.frames ? 2 : 1));
                require(s.rows <= limits[k].max_rows);
                resize(v, &limits[k], &s, width, height);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static memory_files m;
    static exl2__config text;
    exl2__vision_config v;
    const uint8_t *first = size ? (const uint8_t *)memchr(data, '\n', size) : NULL;
    size_t config = first ? (size_t)(first - data) : size, at = config + (first != NULL);
    const uint8_t *second = at < size ? (const uint8_t *)memchr(data + at, '\n', size - at) : NULL;
    size_t pre = second ? (size_t)(second - data) - at : size - at;
    memory_make(&m);
    m.c.host_bytes_max = (uint64_t)64 << 20;
    text.hidden = 64;
    text.norm_eps = 1e-5f;
    memory_add(&m, "config.json", data, config);
    if (pre) {
        memory_add(&m, "preprocessor_config.json", data + at, pre);
    }
    exl2_result result = exl2__vision_config_read(&m.c, "folder", &text, &v);
    require(result == EXL2_OK || result == EXL2_ERR_FORMAT || result == EXL2_ERR_UNSUPPORTED);
    require((result < 0) == (m.c.error.text[0] != 0));
    if (result == EXL2_OK) {
        require((uint64_t)v.heads * v.head_dim == v.width && v.layers > 0 && v.levels > 0 && v.merge > 0);
        require(v.levels <= 1 + EXL2__VISION_DEEP_MAX && v.filter >= 1 && v.filter <= 3);
        at += pre + (second != NULL);
        check_sizes(&v, data + at, size - at);
    }
    memory_free(&m);
    return 0;
}
