/* hash.c: the hash, whose first half (FNV-1a) is compared with published values; the index table over strings; names
   made to collide. The hash of a model's weights (hash_sums.h): by a second implementation, in pieces of any size, with
   each instruction set; each bit, each exchange of words, and pairs of changes that cancel in a plain sum change it. */
#include "../check.h"
#include "private/cpu_path.h"
#include "private/hash_sums.h"
#include "private/platform_alloc.h"

#define ENTRIES 8192u

static char names[ENTRIES][16];

static const char *name_of(const void *owner, uint32_t entry, size_t *bytes)
{
    const char *name = ((const char (*)[16])owner)[entry];
    *bytes = strlen(name);
    return name;
}

static void make_table(exl2__ctx *c, exl2__arena *arena, exl2__strtab *t)
{
    exl2__arena dry = { 0 };
    exl2__strtab_make(t, &dry, ENTRIES);
    CHECK(t->slots == NULL);
    CHECK_INT(exl2__arena_open(c, arena, dry.used, EXL2_MEM_GENERAL), EXL2_OK);
    exl2__strtab_make(t, arena, ENTRIES);
    CHECK_INT(arena->used, dry.used);
    t->name = name_of;
    t->owner = names;
}

/* Enters names[0, ENTRIES) in order; returns how many were entered before the table rejected one. */
static uint32_t enter(exl2__ctx *c, bool look_up)
{
    exl2__arena arena;
    exl2__strtab t = { 0 };
    uint32_t entered = 0;
    bool taken = true;
    make_table(c, &arena, &t);
    while (entered < ENTRIES && taken) {
        uint32_t slot = 0;
        CHECK_INT(exl2__strtab_find(&t, names[entered], strlen(names[entered]), &slot), UINT32_MAX);
        taken = exl2__strtab_put(&t, slot, entered);
        entered += taken;
    }
    for (uint32_t i = 0; look_up && i < entered; i++) {
        CHECK_INT(exl2__strtab_find(&t, names[i], strlen(names[i]), NULL), i);
    }
    CHECK_INT(exl2__strtab_find(&t, "nobody", 6, NULL), UINT32_MAX);
    exl2__arena_close(c, &arena);
    return entered;
}

/* ---- the hash of weights ---- */

#define BYTES 20000u

static uint8_t weights[BYTES];
static exl2_cpu_path path;

typedef struct sums {
    uint64_t h[2];
} sums;

static sums sums_of(const uint8_t *data, size_t bytes, uint64_t seed)
{
    exl2__hash_sums s;
    sums out;
    exl2__hash_sums_begin(&s);
    exl2__hash_sums_add(path, &s, data, bytes);
    exl2__hash_sums_end(&s, seed, out.h);
    return out;
}

static bool same(sums a, sums b)
{
    return a.h[0] == b.h[0] && a.h[1] == b.h[1];
}

/* As the head of hash_sums.h defines it, word by word. */
static sums sums_defined(const uint8_t *data, size_t bytes, uint64_t seed)
{
    uint64_t lane[32];
    for (uint32_t i = 0; i < 32; i++) {
        lane[i] = exl2__hash_mix(i + 1);
    }
    for (size_t i = 0; i < 32 * (bytes / 256 + 1); i++) {
        uint64_t word = 0, s = lane[i % 32];
        for (size_t k = 0; k < 8; k++) {
            word |= (8 * i + k < bytes ? (uint64_t)data[8 * i + k] : 0) << 8 * k;
        }
        lane[i % 32] = s % 0x100000000 * 4294883355 + s / 0x100000000 + word;
    }
    sums out = { { exl2__hash_mix(seed ^ bytes * 0x9E3779B97F4A7C15u), 0 } };
    out.h[1] = exl2__hash_mix(out.h[0] ^ seed);
    for (uint32_t i = 0; i < 32; i++) {
        out.h[0] = exl2__hash_mix(out.h[0] ^ lane[i]);
        out.h[1] = exl2__hash_mix(out.h[1] + lane[i]);
    }
    return out;
}

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * below >> 32);
}

static void check_values(void)
{
    uint8_t *shifted = malloc(BYTES + 64);
    for (size_t bytes = 0; bytes < BYTES; bytes += bytes < 600 ? 1 : 1 + random_below(700)) {
        sums wanted = sums_defined(weights, bytes, bytes * 3), pieces;
        CHECK(same(sums_of(weights, bytes, bytes * 3), wanted));
        memcpy(shifted + bytes % 61, weights, bytes);
        CHECK(same(sums_of(shifted + bytes % 61, bytes, bytes * 3), wanted));
        exl2__hash_sums s;
        exl2__hash_sums_begin(&s);
        for (size_t at = 0, some; at < bytes; at += some) {
            uint32_t most = random_below(3) ? 200 : 9000;
            some = exl2__min64(random_below(most), bytes - at);
            exl2__hash_sums_add(path, &s, weights + at, some);
        }
        exl2__hash_sums_end(&s, bytes * 3, pieces.h);
        CHECK(same(pieces, wanted));
        CHECK(!same(sums_of(weights, bytes, bytes * 3 + 1), wanted));
    }
    free(shifted);
}

/* Both halves differ from those of the unchanged bytes. */
static void check_changed(sums before, size_t bytes, const char *what)
{
    sums after = sums_of(weights, bytes, 7);
    if (!CHECK(after.h[0] != before.h[0] && after.h[1] != before.h[1])) {
        printf("  %s\n", what);
    }
}

static void exchange(uint8_t *a, uint8_t *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t held = a[i];
        a[i] = b[i];
        b[i] = held;
    }
}

static void add_word(size_t word, uint64_t value)
{
    exl2__store64(weights + 8 * word, exl2__load64(weights + 8 * word) + value);
}

static void check_changes(void)
{
    static const size_t sizes[] = { 40, 128, 1000, 4096, 4097, 10240, BYTES };
    for (size_t n = 0; n < EXL2__COUNT(sizes); n++) {
        size_t bytes = sizes[n], words = bytes / 8;
        sums before = sums_of(weights, bytes, 7);
        for (size_t bit = 0; bit < 8 * bytes; bit += bytes <= 1000 ? 1 : 1 + random_below(200)) {
            weights[bit / 8] ^= (uint8_t)(1u << bit % 8);
            check_changed(before, bytes, "one bit");
            weights[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (uint32_t i = 0; i < 3000 && words >= 64; i++) {
            size_t lane = random_below(32), a = lane + 32 * random_below((uint32_t)words / 32);
            size_t b = lane + 32 * random_below((uint32_t)words / 32), step = b > a ? b - a : a - b;
            uint64_t bit = (uint64_t)1 << random_below(64);
            if (a == b) {
                continue;
            }
            weights[8 * a + 7] ^= 0x80; /* highest bits: a sum of 64 bits does not see two of them */
            weights[8 * b + 7] ^= 0x80;
            check_changed(before, bytes, "the highest bits of two words");
            weights[8 * a + 7] ^= 0x80;
            weights[8 * b + 7] ^= 0x80;
            add_word(a, bit);
            add_word(b, 0 - bit);
            check_changed(before, bytes, "one word more, one less");
            if (a + 2 * step < words && b > a) { /* sums of sums are equal, too */
                add_word(b, 0 - bit);
                add_word(a + 2 * step, bit);
                check_changed(before, bytes, "three words");
                add_word(a + 2 * step, 0 - bit);
                add_word(b, bit);
            }
            add_word(b, bit);
            add_word(a, 0 - bit);
            size_t size = 8u << random_below(6), x = random_below((uint32_t)(bytes / size)) * size;
            size_t y = random_below((uint32_t)(bytes / size)) * size;
            if (memcmp(weights + x, weights + y, size) != 0) {
                exchange(weights + x, weights + y, size);
                check_changed(before, bytes, "two blocks exchanged");
                exchange(weights + x, weights + y, size);
            }
        }
        CHECK(same(sums_of(weights, bytes, 7), before));
    }
}

static void check_sums(void)
{
    exl2_cpu_path best = exl2__cpu_path_best();
    for (uint32_t few = 0; few < 2; few++) { /* random bytes, then bytes as small weights have them */
        for (size_t i = 0; i < BYTES; i++) {
            weights[i] = (uint8_t)(few ? random_below(3) == 0 : random_below(256));
        }
        path = EXL2_CPU_C;
        check_values();
        check_changes();
        if (best != EXL2_CPU_C) {
            path = best;
            check_values();
            check_changes();
        }
    }
}

int main(void)
{
    exl2__ctx c = { 0 };
    check_sums();
    c.allocator = exl2__platform_allocator();
    /* FNV-1a of "" is 0xCBF29CE484222325, of "foobar" 0x85944171F73967E8 (its authors' list). The hash mixes these
       values further. */
    uint64_t fnv[2] = { 0xCBF29CE484222325u, 0x85944171F73967E8u };
    const char *const texts[2] = { "", "foobar" };
    for (int i = 0; i < 2; i++) {
        uint64_t h = fnv[i];
        h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
        h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
        CHECK(exl2__hash(texts[i], strlen(texts[i])) == (h ^ (h >> 31)));
    }
    for (uint32_t i = 0; i < ENTRIES; i++) {
        snprintf(names[i], sizeof names[i], "model.%u", i);
    }
    CHECK_INT(enter(&c, true), ENTRIES);
    uint32_t mask = 2 * ENTRIES - 1, found = 0;
    for (uint32_t i = 0; found < 1000; i++) { /* names that all hash to the same slot */
        char name[16];
        int length = snprintf(name, sizeof name, "%x", i);
        if ((exl2__hash(name, (size_t)length) & mask) == 77) {
            memcpy(names[found++], name, sizeof name);
        }
    }
    uint32_t entered = enter(&c, false);
    printf("%u of 1000 colliding names were entered\n", entered);
    CHECK(entered > 100 && entered < 1000);
    CHECK_INT(c.host_bytes, 0);
    return check_done();
}
