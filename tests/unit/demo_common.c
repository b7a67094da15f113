/* demo_common.c: the parts that the programs share: arguments, JSON both ways, percentiles, the thread pool, what a
   conversation forgot. */
#include "../../demo/common/pool.c"

#include "../../demo/common/args.c"
#include "../../demo/common/gap.c"
#include "../../demo/common/json_in.c"
#include "../../demo/common/json_out.c"
#include "../../demo/common/memory.c"
#include "../../demo/common/samples.c"
#include "../check.h"

#include <math.h>

/* ---- json_out ---- */

static void json_out_is_ascii(void)
{
    char got[1024];
    FILE *file = tmpfile();
    json_out j = { .file = file };
    const int32_t list[] = { 1, -2, 3 };
    json_out_object(&j, NULL);
    json_out_string(&j, "a\"\\", "tab\t nul\\ \x01 \x7F");
    json_out_text(&j, "utf", "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", 11);       /* U+E9, U+20AC, U+1F600 */
    json_out_text(&j, "bad", "\xC3|\xED\xA0\x80|\xC0\xAF|\xF5|\0", 12); /* cut, surrogate, overlong, too large */
    json_out_text(&j, "none", NULL, 0);
    json_out_uint(&j, "u", UINT64_MAX);
    json_out_int(&j, "i", INT64_MIN);
    json_out_number(&j, "f", (double)0.1f);
    json_out_number(&j, "nan", (double)NAN);
    json_out_number(&j, "inf", (double)-INFINITY);
    json_out_bool(&j, "b", true);
    json_out_ids(&j, "ids", list, 3);
    json_out_array(&j, "empty");
    json_out_end(&j);
    json_out_end(&j);
    rewind(file);
    got[fread(got, 1, sizeof got - 1, file)] = 0;
    fclose(file);
    CHECK_TEXT(got, "{\"a\\\"\\\\\": \"tab\\t nul\\\\ \\u0001 \\u007f\", \"utf\": \"\\u00e9 \\u20ac \\ud83d\\ude00\", "
                    "\"bad\": \"\\ufffd|\\ufffd\\ufffd\\ufffd|\\ufffd\\ufffd|\\ufffd|\\u0000\", \"none\": null, "
                    "\"u\": 18446744073709551615, \"i\": -9223372036854775808, \"f\": 0.100000001, \"nan\": null, "
                    "\"inf\": null, "
                    "\"b\": true, \"ids\": [1, -2, 3], \"empty\": []}\n");
}

/* ---- json_in ---- */

static void json_in_reads(void)
{
    const char *text = " {\"m\": [{\"role\": \"a\\u00e9\\ud83d\\ude00\\n\", \"n\": -1.5e2}, null, true], "
                       "\"t\": [ {\"x\":1} ], \"z\": null, "
                       "\"lone\": \"\\ud800x\\udc00\", \"d\": 1, \"d\": 2} ";
    const char *error;
    json_value *root = json_read(text, strlen(text), &error);
    if (!CHECK(root != NULL)) {
        return;
    }
    const json_value *list = json_member(root, "m");
    CHECK_INT(list->child_count, 3);
    CHECK_TEXT(json_member(list->child, "role")->text, "a\xC3\xA9\xF0\x9F\x98\x80\n");
    CHECK_INT(json_member(list->child, "role")->text_bytes, 8);
    CHECK(json_member(list->child, "n")->number <= -150 && json_member(list->child, "n")->number >= -150);
    CHECK(json_member(root, "z") == NULL);
    CHECK_TEXT(json_member(root, "lone")->text, "\xEF\xBF\xBDx\xEF\xBF\xBD");
    CHECK_INT(json_member(root, "t")->raw_bytes, 11);
    CHECK(memcmp(json_member(root, "t")->raw, "[ {\"x\":1} ]", 11) == 0);
    CHECK_INT(json_member(root, "d")->number, 2); /* the last duplicate counts */
    json_free(root);
}

static void json_in_refuses(void)
{
    static const char *const bad[] = { "", " ", "{", "[1,", "[1 2]", "{\"a\" 1}", "{1: 2}", "\"a", "\"\\x\"",
                                       "\"\\u12g4\"", "\"\\", "nul", "1x", "--1", "[1]]", "\"\n\"", "{\"a\":}", "[,]" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *error = NULL;
        json_value *root = json_read(bad[i], strlen(bad[i]), &error);
        CHECK(root == NULL && error != NULL && *error);
        json_free(root);
    }
    char deep[4096];
    const char *error;
    memset(deep, '[', sizeof deep);
    CHECK(json_read(deep, sizeof deep, &error) == NULL);
    CHECK_TEXT(error, "arrays and objects are nested too deeply");
}

/* ---- args ---- */

typedef struct parsed {
    const char *model, *out;
    bool json;
    uint32_t max, backend;
    uint64_t seed, memory;
    float top_p;
    arg_texts stops;
    arg_numbers batch, colors;
    arg_sizes room;
} parsed;

/* Parses up to eight words; NULL ends them. */
static args_result parse(parsed *p, const char *const words[8])
{
    const arg positional[] = { { "MODEL", ARG_TEXT, &p->model, NULL, "" }, { "OUT", ARG_TEXT, &p->out, NULL, "" } };
    const arg flags[] = {
        { "--json", ARG_BOOL, &p->json, NULL, "" },
        { "--max-tokens", ARG_U32, &p->max, NULL, "" },
        { "--seed", ARG_U64, &p->seed, NULL, "" },
        { "--top-p", ARG_FLOAT, &p->top_p, NULL, "" },
        { "--stop", ARG_TEXTS, &p->stops, NULL, "" },
        { "--batch", ARG_NUMBERS, &p->batch, NULL, "" },
        { "--backend", ARG_CHOICE, &p->backend, "auto|cpu", "" },
        { "--colors", ARG_CHOICES, &p->colors, "red|green|blue", "" },
        { "--room", ARG_SIZES, &p->room, NULL, "" },
        { "--memory", ARG_SIZE, &p->memory, NULL, "" },
    };
    const args_desc d = { "test",
                          "",
                          positional, ARGS_COUNT(positional), 1, flags, ARGS_COUNT(flags) };
    char copies[8][64], *argv[8];
    int argc = 0;
    for (; argc < 8 && words[argc]; argc++) {
        snprintf(copies[argc], sizeof copies[argc], "%s", words[argc]);
        argv[argc] = copies[argc];
    }
    *p = (parsed){ .max = 7 };
    args_result result = args_parse(&d, argc, argv);
    p->out = p->out && strcmp(p->out, "--json") == 0 ? "--json" : NULL; /* the words are gone after the return */
    p->stops.items[0] = p->stops.count == 2 && strcmp(p->stops.items[1], "b") == 0 ? "kept" : NULL;
    return result;
}

#define WORDS(...) ((const char *const[8]){ __VA_ARGS__ })

/* The list is of these two sizes, or of the first one if b is 0. */
static bool reads_sizes(const char *text, uint64_t a, uint64_t b)
{
    parsed p;
    return parse(&p, WORDS("m", "--room", text)) == ARGS_OK && p.room.count == 1u + (b > 0) && p.room.items[0] == a
        && (!b || p.room.items[1] == b);
}

static void args_sizes(void)
{
    static const char *const bad[] = { "", "6.5", "1.", ".5g", "6,5,", "6.1234567890g", "5 GB", "GB", "-1", "1e9",
                                       "6.5t", "0.0001k", "18446744073709551616", "18446744073.709551616g", "6.5gBB",
                                       "2bb", "0.0001KiB", "17179869184GiB", "2i", "2iB", "2MiBi" };
    parsed p;
    CHECK(reads_sizes("8GB,900MB", 8000000000u, 900000000) && reads_sizes("4096", 4096, 0));
    CHECK(reads_sizes("6.5g", 6500000000u, 0) && reads_sizes("6.5GB,0.25k", 6500000000u, 250));
    CHECK(reads_sizes("1.000000001Gb", 1000000001, 0) && reads_sizes("2.500m,3K", 2500000, 3000));
    CHECK(reads_sizes("18446744073709551615", UINT64_MAX, 0));
    CHECK(reads_sizes("18446744073.709551615GB", UINT64_MAX, 0));
    CHECK(reads_sizes("900MiB,3KiB", 943718400, 3072) && reads_sizes("1.5gib,0.25Ki", 1610612736, 256));
    CHECK(reads_sizes("17179869183GiB", UINT64_MAX - 1073741823, 0));
    for (size_t i = 0; i < ARGS_COUNT(bad); i++) {
        CHECK_INT(parse(&p, WORDS("m", "--room", bad[i])), ARGS_USAGE);
        CHECK_INT(parse(&p, WORDS("m", "--memory", bad[i])), ARGS_USAGE);
    }
    CHECK(parse(&p, WORDS("m", "--memory", "64MiB")) == ARGS_OK && p.memory == 67108864);
    CHECK(parse(&p, WORDS("m", "--memory=0")) == ARGS_OK && p.memory == 0);
    CHECK_INT(parse(&p, WORDS("m", "--memory", "8GB,9GB")), ARGS_USAGE);
}

static void args_read(void)
{
    parsed p, parsed_long;
    args_result result = parse(&p, WORDS("m", "--max", "12", "--seed=18446744073709551615", "--top-p", ".5", "--json"));
    CHECK_INT(result, ARGS_OK);
    CHECK_INT(parse(&parsed_long, WORDS("m", "--max-tokens", "13")), ARGS_OK);
    CHECK_INT(parsed_long.max, 13); /* --max is accepted, too */
    CHECK(p.json && p.max == 12 && p.seed == UINT64_MAX && p.top_p >= 0.5f && p.top_p <= 0.5f);
    result = parse(&p, WORDS("--batch", "1,8,16", "m", "--backend", "cpu", "--stop=a", "--stop", "b"));
    CHECK_INT(result, ARGS_OK);
    CHECK(p.batch.count == 3 && p.batch.items[0] == 1 && p.batch.items[1] == 8 && p.batch.items[2] == 16);
    CHECK_INT(p.backend, 1);
    CHECK_TEXT(p.stops.items[0], "kept");
    CHECK_INT(p.max, 7);
    CHECK_INT(parse(&p, WORDS("m", "--colors", "blue,red,blue")), ARGS_OK);
    CHECK(p.colors.count == 3 && p.colors.items[0] == 2 && p.colors.items[1] == 0 && p.colors.items[2] == 2);
    CHECK_INT(parse(&p, WORDS("m", "--colors=green")), ARGS_OK);
    CHECK(p.colors.count == 1 && p.colors.items[0] == 1);
    CHECK_INT(parse(&p, WORDS("m", "--", "--json")), ARGS_OK);
    CHECK_TEXT(p.out, "--json");
    CHECK(!p.json);
}

static void args_refuse(void)
{
    static const char *const wrong[][8] = {
        { NULL },
        { "m", "--max" },
        { "m", "--max", "x" },
        { "m", "--max", "-1" },
        { "m", "--max", "1.5" },
        { "m", "--max", "4294967296" },
        { "m", "--max=" },
        { "m", "--seed", "18446744073709551616" },
        { "m", "--top-p", "nan" },
        { "m", "--top-p", "1e39" },
        { "m", "--top-p", "-1e999" },
        { "m", "--top-p", "0x1" },
        { "m", "--batch", "1,,2" },
        { "m", "--batch", "1," },
        { "m", "--batch", "" },
        { "m", "--backend", "gpu" },
        { "m", "--colors", "" },
        { "m", "--colors", "red," },
        { "m", "--colors", ",red" },
        { "m", "--colors", "red,bl" },
        { "m", "--colors", "red|blue" },
        { "m", "--json=1" },
        { "m", "--maximum", "1" },
        { "m", "--ma", "1" },
        { "m", "o", "third" },
    };
    fflush(stdout);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        parsed p;
        CHECK_INT(parse(&p, wrong[i]), ARGS_USAGE);
    }
}

/* ---- memory ---- */

static void texts_grow(void)
{
    memory_text t = { 0 };
    memory_text_add(&t, NULL, 0);
    CHECK(t.data == NULL && t.bytes == 0);
    for (int i = 0; i < 1000; i++) {
        memory_text_add(&t, "abc", (size_t)(i % 4));
    }
    CHECK_INT(t.bytes, 1500);
    CHECK(t.bytes <= t.cap && memcmp(t.data, "aababcaababc", 12) == 0 && memcmp(t.data + 1494, "aababc", 6) == 0);
    free(t.data);
}

/* ---- samples ---- */

static bool is(double got, double wanted)
{
    return fabs(got - wanted) < 1e-12;
}

static void percentiles(void)
{
    samples s = { 0 };
    CHECK(is(samples_percentile(&s, 50), 0) && is(samples_median(&s), 0));
    for (int i = 1000; i > 0; i--) {
        samples_add(&s, i);
    }
    CHECK(is(samples_percentile(&s, 50), 500));
    CHECK(is(samples_percentile(&s, 99), 990));
    CHECK(is(samples_percentile(&s, 100), 1000));
    CHECK(is(samples_percentile(&s, 0), 1));
    CHECK(is(samples_median(&s), 500.5));
    CHECK(is(s.values[0], 1000)); /* values stay in the order of arrival */
    samples_add(&s, 5000);
    CHECK(is(samples_percentile(&s, 100), 5000) && is(samples_median(&s), 501));
    samples_free(&s);
}

/* ---- pool ---- */

typedef struct tally {
    uint32_t hits[4096]; /* each index belongs to one task, so a count other than 1 is a defect */
    uint64_t round;
} tally;

static void count_task(void *user, uint32_t index)
{
    tally *t = user;
    t->hits[index]++;
    if ((index + t->round) % 97 == 0) {
        sched_yield(); /* lets other threads overtake */
    }
}

static void pool_runs_each_index_once(uint32_t width, uint32_t rounds)
{
    static const uint32_t counts[] = { 1, 2, 3, 7, 64, 0, 1000, 4096 };
    static tally t;
    pool *p = pool_open(width);
    if (!CHECK(p != NULL)) {
        return;
    }
    exl2_parallel hook = pool_hook(p);
    CHECK_INT(hook.width, width);
    bool good = true;
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t count = counts[round % (sizeof counts / sizeof counts[0])];
        memset(t.hits, 0, sizeof t.hits);
        t.round = round;
        hook.run(hook.user, count, count_task, &t);
        for (uint32_t i = 0; i < 4096; i++) {
            good = good && t.hits[i] == (i < count);
        }
        if (round % 500 == 499) {
            usleep(3000); /* long enough for the threads to sleep */
        }
    }
    CHECK(good);
    pool_close(p);
}

static void pool_of_one_is_serial(void)
{
    pool *p = pool_open(1);
    CHECK(p && pool_hook(p).run == NULL && pool_width(p) == 1);
    pool_close(p);
    CHECK(pool_hook(NULL).run == NULL && pool_width(NULL) == 1 && pool_processors() >= 1);
    pool_close(NULL);
}

/* ---- gaps ---- */

/* As gap_find, by comparing every place. */
static uint32_t gap_slow(const exl2_token *old, size_t old_count, const exl2_token *now, size_t now_count,
                         uint32_t *from)
{
    size_t same = 0, longest = 0;
    while (same < old_count && same < now_count && old[same] == now[same]) {
        same++;
    }
    size_t gap = old_count - same;
    for (size_t i = same; i < old_count; i++) {
        size_t run = 0;
        while (i + run < old_count && same + run < now_count && old[i + run] == now[same + run]) {
            run++;
        }
        gap = run > longest ? i - same : gap;
        longest = run > longest ? run : longest;
    }
    *from = (uint32_t)same;
    return (uint32_t)gap;
}

static void gaps(void)
{
    static exl2_token old[1u << 18], now[1u << 18];
    uint32_t state = 1, from = 0, wanted = 0;
    for (uint32_t round = 0; round < 20000; round++) { /* few kinds of tokens, which repeat */
        size_t counts[2];
        for (uint32_t k = 0; k < 2; k++) {
            state = state * 1664525u + 1013904223u;
            counts[k] = (state >> 20) % 30;
            for (uint32_t i = 0; i < counts[k]; i++) {
                state = state * 1664525u + 1013904223u;
                (k ? now : old)[i] = (exl2_token)((state >> 24) % (1 + round % 3));
            }
        }
        uint32_t gap = gap_slow(old, counts[0], now, counts[1], &wanted);
        CHECK(gap_find(old, counts[0], now, counts[1], &from) == gap && from == wanted);
    }
    for (uint32_t i = 0; i < 1u << 18; i++) { /* comparing every place would need 2e10 steps */
        old[i] = i == 1000;
        now[i] = i == 150000 ? 2 : 0;
    }
    CHECK_INT(gap_find(old, 1u << 18, now, 1u << 18, &from), 1);
    CHECK_INT(from, 1000);
}

int main(void)
{
    gaps();
    json_out_is_ascii();
    json_in_reads();
    json_in_refuses();
    args_read();
    args_sizes();
    args_refuse();
    texts_grow();
    percentiles();
    pool_runs_each_index_once(2, 4000);
    pool_runs_each_index_once(5, 2000);
    pool_of_one_is_serial();
    return check_done();
}
