/* sass.h: instructions of loops in machine code, counted in what nvdisasm prints.
   takes: a module's image (a cubin); nvdisasm: $EXL2_NVDISASM, or the one on PATH.
   gives: sass_available, sass_pairs. */
#ifndef SASS_H
#define SASS_H

#include "check.h"

#define SASS_LINES 16384
#define SASS_LABELS 4096

static inline const char *sass_program(void)
{
    const char *given = getenv("EXL2_NVDISASM");
    return given && *given ? given : "nvdisasm";
}

static inline int sass_available(void)
{
    char command[4200];
    snprintf(command, sizeof command, "\"%s\" --version >/dev/null 2>&1", sass_program());
    return system(command) == 0;
}

/* The number of the label in ".L_x_12:" or in a branch to "`(.L_x_12)"; -1: none. */
static inline long sass_label(const char *text)
{
    const char *at = strstr(text, ".L_x_");
    long label = at ? strtol(at + 5, NULL, 10) : -1;
    return label < SASS_LABELS ? label : -1;
}

/* Counts the instructions of the loops over pairs of whole chunks (kernels_src/gemv_chunk.cuh): those with 32 products.
   counts: for 2, 3 and 4 bits; 0 where there is no such loop. 4 bits permute bytes; 3 bits have more logic than 2. */
static inline void sass_pairs(const void *image, size_t bytes, long counts[3])
{
    enum { OTHER, PRODUCT, PERMUTE, LOGIC };
    static char kind[SASS_LINES];
    static long place[SASS_LABELS]; /* 1 + the instruction that follows a label */
    char path[] = "/tmp/exl2_sass_XXXXXX", command[4300], line[512];
    long count = 0;
    int file = mkstemp(path);
    FILE *out = file < 0 ? NULL : fdopen(file, "wb");
    memset(place, 0, sizeof place);
    counts[0] = counts[1] = counts[2] = 0;
    if (!CHECK(out != NULL)) {
        return;
    }
    CHECK_INT(fwrite(image, 1, bytes, out), bytes);
    CHECK_INT(fclose(out), 0);
    snprintf(command, sizeof command, "\"%s\" -c %s", sass_program(), path);
    FILE *in = popen(command, "r");
    while (in && fgets(line, sizeof line, in)) {
        const char *after = strstr(line, "*/");
        if (strncmp(line, ".L_x_", 5) == 0 && sass_label(line) >= 0) {
            place[sass_label(line)] = count + 1;
        }
        if (!after || strncmp(line + strspn(line, " \t"), "/*", 2) != 0 || !strchr(after, ';') || count >= SASS_LINES) {
            continue;
        }
        kind[count] = strstr(after, " HMMA")   ? PRODUCT
                      : strstr(after, " PRMT") ? PERMUTE
                      : strstr(after, " LOP3") ? LOGIC
                                               : OTHER;
        long from = strstr(after, " BRA ") && sass_label(after) >= 0 ? place[sass_label(after)] : 0;
        count++;
        if (from == 0) { /* not a branch back */
            continue;
        }
        long has[4] = { 0 };
        for (long i = from - 1; i < count; i++) {
            has[(int)kind[i]]++;
        }
        long *loop = &counts[has[PERMUTE] >= 32 ? 2 : has[LOGIC] >= 148], all = count - (from - 1);
        if (has[PRODUCT] == 32 && (*loop == 0 || all < *loop)) { /* an outer loop has more */
            *loop = all;
        }
    }
    CHECK(in && pclose(in) == 0);
    remove(path);
}

#endif
