/* library_user.c: a program that uses the shared library, on Linux and on Windows.
   takes: the library, and tests/golden/layouts.txt as its only argument.
   gives: exit code 0 if a binding with these layouts opens an engine, and handles reach the library by value. */
#include <exl2.h>

#include <stdio.h>
#include <string.h>

static char names[1024][64];
static exl2_layout members[1024];

/* The members of exl2_engine_desc and exl2_error, as the golden has them. */
static uint32_t read_members(const char *path)
{
    FILE *in = fopen(path, "r");
    char line[256], name[128];
    unsigned offset, bytes;
    uint32_t count = 0;
    while (in && count < 1024 && fgets(line, sizeof line, in)) {
        if (sscanf(line, "%127s %u %u", name, &offset, &bytes) != 3) {
            continue;
        }
        char *dot = strchr(name, '.');
        *dot = 0;
        if (strcmp(name, "exl2_engine_desc") == 0 || strcmp(name, "exl2_error") == 0) {
            snprintf(names[count], sizeof names[count], "%.63s", dot + 1);
            members[count].type = strcmp(name, "exl2_error") == 0 ? "exl2_error" : "exl2_engine_desc";
            members[count].member = names[count];
            members[count].offset = offset;
            members[count].bytes = bytes;
            count++;
        }
    }
    if (in) {
        fclose(in);
    }
    return count;
}

int main(int argc, char **argv)
{
    exl2_engine_desc d;
    exl2_engine *e;
    exl2_error error;
    memset(&d, 0, sizeof d);
    d.backend = EXL2_BACKEND_CPU;
    uint32_t count = argc == 2 ? read_members(argv[1]) : 0;
    exl2_result r = exl2_open_binding(&d, EXL2_VERSION, members, count, &error, &e);
    if (r < 0) {
        printf("%s: %s\n", exl2_result_name(r), error.text);
        return 1;
    }
    exl2_job job = { 0x100000002u };
    r = exl2_job_cancel(e, job);
    exl2_last_error(e, &error);
    printf("%s: %s\n", exl2_result_name(r), error.text);
    exl2_close(e);
    return r == EXL2_ERR_STALE && strstr(error.text, "2.1") ? 0 : 2;
}
