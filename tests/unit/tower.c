/* tower.c: towers of the shared fixtures, alone: what is seen of each picture, byte by byte, and its rows, against
   goldens of transformers in float64; on every path of the CPU, with several tasks, in units of any size. */
#include "../vision_files.h"
#include "cpu_paths.h"

#include "private/tower_read.h"
#include "private/tower_run.h"
#include "private/resize.h"
#include "private/vision_read.h"

#define BOUND 2e-4     /* of an element, of a row's sum divided by the root of its width */
#define ROWS_MAX 64u
#define SIDE_MAX 4096u /* of pictures */

typedef struct rig {
    exl2__ctx c;
    exl2__device *cpu;
    exl2__tower tower;
    exl2__vision_limits limits;
    exl2__arena weights, scratch, resize;
} rig;

/* Runs tasks one after the other, the last one first. */
static void run_tasks(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    while (count-- > 0) {
        task(arg, count);
    }
}

static exl2_cpu_path path_of(const exl2__cpu_ops *ops)
{
    return strcmp(ops->name, "avx2") == 0 ? EXL2_CPU_AVX2 : strcmp(ops->name, "avx512") == 0 ? EXL2_CPU_AVX512
         : strcmp(ops->name, "neon") == 0 ? EXL2_CPU_NEON : EXL2_CPU_C;
}

/* Reads a tower in slices. limits 0: the model's own. */
static bool rig_open(rig *r, const char *folder, const exl2__cpu_ops *ops, uint32_t tasks, uint32_t max_rows)
{
    static exl2__config text;
    char path[1024];
    snprintf(path, sizeof path, "%s", vision_path(folder, "config.json"));
    *strrchr(path, '/') = 0;
    memset(r, 0, sizeof *r);
    memset(&text, 0, sizeof text);
    r->c.allocator = exl2__platform_allocator();
    r->c.files = exl2__platform_files();
    r->c.cpu_path = path_of(ops);
    r->c.parallel.run = tasks > 1 ? run_tasks : NULL;
    r->c.parallel.width = tasks;
    r->limits.max_rows = max_rows;
    text.hidden = 64;
    text.norm_eps = 1e-5f;
    CHECK_INT(exl2__cpu_backend.open(&r->c, NULL, &r->cpu), EXL2_OK);
    exl2__cpu_of(r->cpu)->ops = ops;
    exl2__vision_config v;
    exl2__tower_reader reader = { 0 };
    exl2_result result = exl2__vision_config_read(&r->c, path, &text, &v);
    uint32_t slices = 0;
    if (result == EXL2_OK) {
        exl2__tower_read_begin(&reader, &r->c, &r->tower, &v, path, NULL, NULL);
        do {
            exl2__work work = { 20000 };
            result = exl2__tower_read_headers(&reader, &work);
            slices++;
        } while (result == EXL2_PENDING);
    }
    if (result == EXL2_OK) {
        CHECK_INT(exl2__arena_open(&r->c, &r->weights, r->tower.weight_bytes, EXL2_MEM_WEIGHTS), EXL2_OK);
        do {
            exl2__work work = { 20000 };
            result = exl2__tower_read_weights(&reader, &r->weights, &work);
            slices++;
        } while (result == EXL2_PENDING);
        CHECK(exl2__arena_is_filled(&r->weights));
        CHECK(slices > 5);
    }
    exl2__tower_read_end(&reader);
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("  %s: %s\n", folder, r->c.error.text);
        return false;
    }
    exl2__arena dry = { 0 };
    exl2__tower_prepare(&r->tower, r->cpu, &r->limits, &dry);
    CHECK_INT(exl2__arena_open(&r->c, &r->scratch, dry.used, EXL2_MEM_SCRATCH), EXL2_OK);
    memset(r->scratch.base, 0xFF, (size_t)r->scratch.size); /* NaN: nothing is used that was not written */
    exl2__tower_prepare(&r->tower, r->cpu, &r->limits, &r->scratch);
    CHECK(exl2__arena_is_filled(&r->scratch));
    uint64_t bytes = exl2__resize_scratch_bytes(&v, &r->limits, SIDE_MAX, r->cpu);
    CHECK_INT(exl2__arena_open(&r->c, &r->resize, bytes, EXL2_MEM_SCRATCH), EXL2_OK);
    return true;
}

static void rig_close(rig *r)
{
    exl2__arena_close(&r->c, &r->weights);
    exl2__arena_close(&r->c, &r->scratch);
    exl2__arena_close(&r->c, &r->resize);
    exl2__cpu_backend.close(r->cpu);
    CHECK_INT(r->c.host_bytes, 0);
}

/* What the tower sees; free it. unit_ns: as that of the steps. */
static uint8_t *see(rig *r, const vision_picture *p, uint64_t unit_ns, exl2__vision_size *size)
{
    static exl2__resize resize;
    if (!CHECK_INT(exl2__vision_sizes(&r->c, &r->tower.config, &r->limits, p->width, p->height, 0, 0, size), EXL2_OK)) {
        printf("  %s\n", r->c.error.text);
        exit(1);
    }
    uint8_t *seen = (uint8_t *)malloc((size_t)size->seen_bytes);
    exl2__resize_begin(&resize, &r->tower.config, &r->limits, size, p->rgb, p->width, p->height, SIDE_MAX, seen,
                       r->resize.base, r->cpu);
    while (exl2__resize_step(&resize, r->cpu, unit_ns) == EXL2_PENDING) {
    }
    return seen;
}

static void encode(rig *r, const exl2__vision_size *size, const uint8_t *seen, uint64_t unit_ns, float *rows)
{
    uint32_t steps = 1;
    exl2__tower_begin(&r->tower, size, seen, rows);
    exl2_result result;
    while ((result = exl2__tower_step(&r->tower, unit_ns)) == EXL2_PENDING) {
        steps++;
    }
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("  %s\n", r->c.error.text);
    }
    CHECK(unit_ns ? steps > 20 : steps == 1);
}

static void check_seen(const char *folder, const char *name, const exl2__json *golden, const exl2__vision_size *size,
                       const uint8_t *seen)
{
    char file[256];
    uint64_t tiles = 0, width = 0, height = 0;
    uint32_t facts = exl2__json_get(golden, exl2__json_get(golden, 0, "pictures"), name);
    exl2__json_u64(golden, exl2__json_get(golden, facts, "tiles"), &tiles);
    exl2__json_u64(golden, exl2__json_get(golden, facts, "width"), &width);
    exl2__json_u64(golden, exl2__json_get(golden, facts, "height"), &height);
    CHECK_INT(size->tiles, tiles);
    CHECK_INT(size->width, width);
    CHECK_INT(size->height, height);
    snprintf(file, sizeof file, "seen/%s", name);
    vision_picture wanted = vision_read(vision_path(folder, file));
    bool same = wanted.width == size->width && wanted.height == size->height * size->tiles;
    if (!CHECK(same && memcmp(wanted.rgb, seen, (size_t)size->seen_bytes) == 0)) {
        printf("  %s %s: %u x %u x %u\n", folder, name, size->width, size->height, size->tiles);
    }
    free(wanted.rgb);
}

/* Encodes the pictures of a prompt, one after the other. Returns the number of rows. */
static uint32_t encode_prompt(rig *r, const char *folder, const exl2__json *j, uint32_t prompt, uint64_t unit_ns,
                              bool checks, float *rows)
{
    uint32_t count = 0, images = exl2__json_get(j, prompt, "images");
    const exl2__vision_config *v = &r->tower.config;
    for (uint32_t at = exl2__json_first(j, images); at; at = exl2__json_next(j, images, at)) {
        char name[128], file[160];
        exl2__json_text(j, at, name, sizeof name - 1);
        name[j->tokens[at].end - j->tokens[at].begin] = 0;
        snprintf(file, sizeof file, "../images/%s", name);
        vision_picture p = vision_read(vision_path(folder, file));
        exl2__vision_size size;
        uint8_t *seen = see(r, &p, unit_ns, &size);
        if (checks) {
            check_seen(folder, name, j, &size, seen);
        }
        CHECK(count + size.rows <= ROWS_MAX);
        encode(r, &size, seen, unit_ns, rows + (size_t)count * v->levels * v->hidden);
        count += size.rows;
        free(seen);
        free(p.rgb);
    }
    return count;
}

/* All prompts of a folder. Rows of the first path are the reference of bits for the others that have its bits. */
static void check_folder(const char *folder)
{
    static float rows[ROWS_MAX * 8 * 256], other[ROWS_MAX * 8 * 256];
    static rig r, more; /* more: with several tasks, and less memory */
    exl2__ctx c = { .allocator = exl2__platform_allocator() };
    exl2__json golden;
    char *text = vision_golden(&c, folder, &golden);
    uint32_t prompts = exl2__json_get(&golden, 0, "prompts");
    for (size_t path = 0; path < sizeof all_ops / sizeof all_ops[0]; path++) {
        double worst = 0;
        if (!runs(all_ops[path]) || !rig_open(&r, folder, all_ops[path], 1, 0)) {
            continue;
        }
        CHECK(rig_open(&more, folder, all_ops[path], 3, ROWS_MAX));
        for (uint32_t at = exl2__json_first(&golden, prompts); at; at = exl2__json_next(&golden, prompts, at)) {
            if (exl2__json_get(&golden, at, "video")) {
                continue;
            }
            const exl2__vision_config *v = &r.tower.config;
            uint32_t count = encode_prompt(&r, folder, &golden, at, 0, true, rows);
            worst = fmax(worst, vision_differ(&golden, at, rows, count, v->levels, v->hidden, false));
            memset(other, 0, sizeof other);
            encode_prompt(&r, folder, &golden, at, 1, true, other);
            CHECK(memcmp(rows, other, (size_t)count * v->levels * v->hidden * sizeof *rows) == 0);
            memset(other, 0, sizeof other);
            encode_prompt(&more, folder, &golden, at, 1, true, other);
            CHECK(memcmp(rows, other, (size_t)count * v->levels * v->hidden * sizeof *rows) == 0);
        }
        printf("%-12s %-10s differs by %.1e\n", folder, all_ops[path]->name, worst);
        CHECK(worst < BOUND);
        rig_close(&r);
        rig_close(&more);
    }
    exl2__json_close(&c, &golden);
    free(text);
}

int main(int argc, char **argv)
{
    only_path = argc > 1 ? argv[1] : NULL;
    for (size_t i = 0; i < sizeof vision_folders / sizeof vision_folders[0]; i++) {
        check_folder(vision_folders[i]);
    }
    return check_done();
}
