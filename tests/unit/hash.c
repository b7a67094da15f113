/* hash.c: the hash, whose first half (FNV-1a) is compared with published values; the index table over strings; names
   made to collide. */
#include "../check.h"
#include "private/hash.h"
#include "private/platform.h"

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

int main(void)
{
    exl2__ctx c = { 0 };
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
