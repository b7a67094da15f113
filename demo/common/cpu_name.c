/* cpu_name.c: see cpu_name.h. */
#include "cpu_name.h"

#include <stdio.h>
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)

#include <cpuid.h>

/* Three CPUID leaves of 16 letters; Intel pads the text with spaces on the left, AMD on the right. */
void cpu_name(char *out, size_t cap)
{
    unsigned words[13] = { 0 };
    const char *text = (const char *)words;
    for (unsigned i = 0; i < 3; i++) {
        unsigned *w = words + 4 * i;
        if (!__get_cpuid(0x80000002u + i, &w[0], &w[1], &w[2], &w[3])) {
            words[0] = 0;
            break;
        }
    }
    text += strspn(text, " ");
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') {
        length--;
    }
    snprintf(out, cap, "%.*s", (int)length, text);
}

#elif defined(__APPLE__)

extern int sysctlbyname(const char *name, void *out, size_t *bytes, void *set, size_t set_bytes);

void cpu_name(char *out, size_t cap)
{
    size_t bytes = cap;
    out[0] = 0;
    if (sysctlbyname("machdep.cpu.brand_string", out, &bytes, NULL, 0) != 0) {
        out[0] = 0;
    }
    out[cap - 1] = 0;
}

#elif defined(__linux__)

/* ARM has numbers in the place of a name: lists on the web say which core "implementer 0x41 part 0xd0c" is. */
void cpu_name(char *out, size_t cap)
{
    char line[256], implementer[32] = "", part[32] = "";
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "CPU implementer : %31s", implementer);
        sscanf(line, "CPU part : %31s", part); /* the last core's, which is a fast one where cores differ */
    }
    if (file) {
        fclose(file);
    }
    out[0] = 0;
    if (part[0]) {
        snprintf(out, cap, "implementer %s part %s", implementer, part);
    }
}

#else

void cpu_name(char *out, size_t cap)
{
    (void)cap;
    out[0] = 0;
}

#endif
