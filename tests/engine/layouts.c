/* layouts.c: where the members of public structs lie, compared with tests/golden/layouts.txt; and a binding that has
   them elsewhere, or belongs to another release, opens no engine.
   takes: the golden.
   gives: exit code 0 when all checks hold. */
#include "exl2.h"

#include "../check.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX 1024

static exl2_layout members[MEMBERS_MAX];
static uint32_t count;

static void read_members(void)
{
    while (count < MEMBERS_MAX && exl2_layout_at(count, &members[count])) {
        count++;
    }
    exl2_layout none = { .bytes = 1 };
    CHECK(count > 300 && count < MEMBERS_MAX);
    CHECK(!exl2_layout_at(count, &none) && !none.type && !none.bytes);
    CHECK(!exl2_layout_at(UINT32_MAX, &none) && !exl2_layout_at(0, NULL));
}

/* The golden has a line "TYPE.MEMBER OFFSET BYTES" for each member, of 64-bit Linux and Windows. */
static void check_golden(void)
{
    char *golden = check_read(EXL2_GOLDEN_DIR "/layouts.txt", NULL), line[256];
    uint32_t lines = 0;
    for (const char *c = golden; *c; c++) {
        lines += *c == '\n';
    }
    for (uint32_t i = 0; i < count; i++) {
        snprintf(line, sizeof line, "\n%s.%s %u %u\n", members[i].type, members[i].member, members[i].offset,
                 members[i].bytes);
        if (!CHECK(strstr(golden, line) != NULL)) {
            printf("layouts.txt lacks:%s", line);
        }
    }
    CHECK_INT(lines, count + 1); /* the first line is a comment */
    free(golden);
}

/* An ABI that other languages can write: enums of 4 bytes, bool of 1, handles of 8. */
static void check_basics(void)
{
    CHECK_INT(sizeof(exl2_result), 4);
    CHECK_INT(sizeof(exl2_event_kind), 4);
    CHECK_INT(sizeof(exl2_backend), 4);
    CHECK_INT(sizeof(bool), 1);
    CHECK_INT(sizeof(exl2_job), 8);
}

static exl2_result open_with(const exl2_layout *list, uint32_t n, uint32_t version, exl2_error *error)
{
    exl2_engine *e = (exl2_engine *)&count; /* must become NULL */
    exl2_engine_desc d = { .backend = EXL2_BACKEND_CPU };
    memset(error, 0, sizeof *error);
    exl2_result r = exl2_open_binding(&d, version, list, n, error, &e);
    CHECK((r >= 0) == (e != NULL));
    CHECK_INT(error->code, r < 0 ? r : 0);
    if (e) {
        exl2_close(e);
    }
    return r;
}

static uint32_t without(exl2_layout *to, const char *type, const char *member)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool left_out = strcmp(members[i].type, type) == 0 && (!member || strcmp(members[i].member, member) == 0);
        if (!left_out) {
            to[n++] = members[i];
        }
    }
    return n;
}

static void check_binding(void)
{
    static exl2_layout list[MEMBERS_MAX];
    exl2_error error;
    CHECK_INT(open_with(members, count, EXL2_VERSION, &error), EXL2_OK);
    CHECK_INT(open_with(members, count, EXL2_VERSION / 100 * 100 + 99, &error), EXL2_OK); /* another patch release */
    CHECK_INT(open_with(members, count, EXL2_VERSION + 100, &error), EXL2_ERR_VERSION);
    CHECK(strstr(error.text, "the binding was made for version") != NULL);

    uint32_t n = without(list, "exl2_job_desc", "max_tokens");
    CHECK_INT(n, count - 1);
    CHECK_INT(open_with(list, n, EXL2_VERSION, &error), EXL2_ERR_VERSION);
    CHECK_TEXT(error.text, "the binding lacks the member exl2_job_desc.max_tokens");

    /* a struct that the binding does not declare is not compared */
    n = without(list, "exl2_kernel_build_desc", NULL);
    CHECK(n < count);
    CHECK_INT(open_with(list, n, EXL2_VERSION, &error), EXL2_OK);
    n = without(list, "exl2_engine_desc", NULL);
    CHECK_INT(open_with(list, n, EXL2_VERSION, &error), EXL2_ERR_ARG);

    for (uint32_t i = 0; i < count; i += 7) { /* one that lies elsewhere, or is wider */
        memcpy(list, members, sizeof list);
        list[i].offset += i % 2 ? 4 : 0;
        list[i].bytes += i % 2 ? 0 : 4;
        CHECK_INT(open_with(list, count, EXL2_VERSION, &error), EXL2_ERR_VERSION);
        CHECK(strstr(error.text, members[i].member) != NULL);
    }
    memcpy(list, members, sizeof list);
    list[count] = (exl2_layout){ "exl2_job_desc", "mood", 600, 4 };
    CHECK_INT(open_with(list, count + 1, EXL2_VERSION, &error), EXL2_ERR_VERSION);
    CHECK_TEXT(error.text, "the binding has a member exl2_job_desc.mood, which this library does not have");
    list[3].member = NULL;
    CHECK_INT(open_with(list, count, EXL2_VERSION, &error), EXL2_ERR_ARG);
    CHECK_INT(open_with(NULL, 0, EXL2_VERSION, &error), EXL2_ERR_ARG);
    CHECK_INT(exl2_open_binding(NULL, EXL2_VERSION, members, count, NULL, NULL), EXL2_ERR_ARG);
}

/* A desc of another layout is never read: an address that faults stands where its pointers would be. */
static void check_nothing_read(void)
{
    exl2_engine *e = NULL;
    exl2_error error = { EXL2_OK, 0, "" };
    const exl2_engine_desc *wild = (const exl2_engine_desc *)(uintptr_t)4096;
    CHECK_INT(exl2_open_binding(wild, EXL2_VERSION, members, count - 1, &error, &e), EXL2_ERR_VERSION);
    CHECK(!e && error.code == EXL2_ERR_VERSION);
    exl2_engine_desc dirty = { .backend = (exl2_backend)77 };
    CHECK_INT(exl2_open_binding(&dirty, EXL2_VERSION, members, count, &error, &e), EXL2_ERR_ARG);
    CHECK(!e && strstr(error.text, "backend is 77") != NULL);
}

int main(void)
{
    read_members();
    check_golden();
    check_basics();
    check_binding();
    check_nothing_read();
    return check_done();
}
