/* convert_rope.c: a conversion with rope_scale or yarn_factor makes the files of one whose source has this scaling in
   config.json, and other ones than without; a work folder belongs to its scaling; wrong numbers.
   takes: tests/golden/models/qwen3.
   gives: exit code 0 or 1.
   owns:  a folder that it removes. */
#define _GNU_SOURCE /* mkdtemp */
#include "rig.h"

#include <stdlib.h>

#define PATH 600
#define IDS 320

static char root[300], ids_file[PATH];

static void shell(const char *format, const char *a, const char *b)
{
    char command[4 * PATH];
    snprintf(command, sizeof command, format, a, b);
    CHECK_INT(system(command), 0);
}

static exl2_convert_info info;
static exl2_error error;

static exl2_result convert(const char *source, const char *out, float scale, float yarn, const char *work)
{
    static const char *files[1];
    files[0] = ids_file;
    exl2_convert_desc d = { .source_dir = source, .out_dir = out, .work_dir = work, .bpw = 4,
                            .calibration_files = files, .calibration_file_count = 1, .rows = 6, .length = 32,
                            .rope_scale = scale, .yarn_factor = yarn, .backend = EXL2_BACKEND_CPU, .info = &info,
                            .error = &error };
    return exl2_convert(&d);
}

static bool same_file(const char *a, const char *b, const char *name)
{
    char path[2][2 * PATH];
    size_t bytes[2];
    snprintf(path[0], sizeof path[0], "%s/%s", a, name);
    snprintf(path[1], sizeof path[1], "%s/%s", b, name);
    char *x = check_read(path[0], &bytes[0]), *y = check_read(path[1], &bytes[1]);
    bool same = bytes[0] == bytes[1] && memcmp(x, y, bytes[0]) == 0;
    free(x);
    free(y);
    return same;
}

static void check_scaling(const char *plain, float scale, float yarn, const char *scaling)
{
    char source[PATH], asked[PATH], given[PATH];
    snprintf(source, sizeof source, "%s/source", root);
    snprintf(asked, sizeof asked, "%s/asked", root);
    snprintf(given, sizeof given, "%s/given", root);
    shell("cp -r '%s' '%s'", rig_golden("qwen3"), source);
    shell("chmod -R u+w '%s'%s", source, "");
    shell("sed -i 's/\"rope_scaling\": null/\"rope_scaling\": %s/' '%s/config.json'", scaling, source);
    CHECK_INT(convert(rig_golden("qwen3"), asked, scale, yarn, NULL), EXL2_OK);
    exl2_convert_info first = info;
    CHECK_INT(convert(source, given, 0, 0, NULL), EXL2_OK);
    CHECK(same_file(asked, given, "output.safetensors"));
    CHECK(!same_file(asked, plain, "output.safetensors"));
    CHECK(memcmp(&first.nll_before, &info.nll_before, sizeof(double)) == 0);
    CHECK(memcmp(&first.kl, &info.kl, sizeof(double)) == 0);
    shell("rm -rf '%s' '%s'", asked, given);
    shell("rm -rf '%s'%s", source, "");
}

int main(void)
{
    char plain[PATH], out[PATH], work[PATH];
    snprintf(root, sizeof root, "%s/exl2-rope-XXXXXX", check_env("TMPDIR") ? check_env("TMPDIR") : "/tmp");
    if (!CHECK(mkdtemp(root) != NULL)) {
        return check_done();
    }
    snprintf(plain, sizeof plain, "%s/plain", root);
    snprintf(out, sizeof out, "%s/out", root);
    snprintf(work, sizeof work, "%s/work", root);
    snprintf(ids_file, sizeof ids_file, "%s/ids.json", root);
    FILE *f = fopen(ids_file, "wb");
    for (uint32_t i = 0; f && i < IDS; i++) {
        fprintf(f, "%s%u", i ? "," : "[", 3 + i * 37 % 300);
    }
    CHECK(f && fputs("]", f) >= 0 && fclose(f) == 0);
    CHECK_INT(convert(rig_golden("qwen3"), plain, 0, 0, work), EXL2_OK);
    CHECK_INT(convert(rig_golden("qwen3"), out, 2, 0, work), EXL2_ERR_STATE); /* the parts are of another conversion */
    check_scaling(plain, 2, 0, "{\"type\": \"linear\", \"factor\": 2.0}");
    check_scaling(plain, 0, 4, "{\"type\": \"yarn\", \"factor\": 4.0}");
    CHECK_INT(convert(rig_golden("qwen3"), out, 0.5f, 0, NULL), EXL2_ERR_ARG);
    CHECK(strstr(error.text, "are 0 or from 1 to 1000") != NULL);
    CHECK_INT(convert(rig_golden("qwen3"), out, 2, 2, NULL), EXL2_ERR_ARG);
    CHECK(strstr(error.text, "rope_scale and yarn_factor are both set") != NULL);
    shell("rm -rf '%s'%s", root, "");
    return check_done();
}
