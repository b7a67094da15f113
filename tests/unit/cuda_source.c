/* cuda_source.c: the output of tools/embed.c equals the files of kernels_src: every module of the list, every byte
   after the head of a file. */
#include "private/cuda_kernels.h"
#include "../check.h"

int main(void)
{
    exl2__ctx c = { .allocator = exl2__platform_allocator(), .files = exl2__platform_files() };
    uint64_t texts = 0;
    for (uint32_t i = 0; i < EXL2__KERNEL_COUNT; i++) {
        exl2__cuda_source built, disk;
        if (exl2__cuda_module_of(i) != i) {
            continue;
        }
        CHECK_INT(exl2__cuda_source_open(&c, NULL, exl2__cuda_kernel_rows[i].module, &built), EXL2_OK);
        CHECK_INT(exl2__cuda_source_open(&c, "kernels_src", exl2__cuda_kernel_rows[i].module, &disk), EXL2_OK);
        CHECK_INT(built.count, disk.count);
        for (uint32_t f = 0; f < built.count && f < disk.count; f++) {
            CHECK_TEXT(built.names[f], disk.names[f]);
            const char *body = exl2__cuda_source_body(built.texts[f].data);
            const char *disk_body = exl2__cuda_source_body(disk.texts[f].data);
            unsigned line = 0, head_lines = 1;
            CHECK(body > built.texts[f].data && disk_body > disk.texts[f].data && strcmp(body, disk_body) == 0);
            CHECK_INT(built.texts[f].bytes, strlen(built.texts[f].data));
            for (const char *at = disk.texts[f].data; at < disk_body; at++) {
                head_lines += *at == '\n';
            }
            CHECK(sscanf(built.texts[f].data, "#line %u", &line) == 1 && line == head_lines);
            texts++;
        }
        CHECK(exl2__cuda_source_hash(&built) == exl2__cuda_source_hash(&disk));
        exl2__cuda_source_close(&c, &built);
        exl2__cuda_source_close(&c, &disk);
    }
    CHECK(texts >= EXL2__COUNT(exl2__cuda_files));
    exl2__cuda_source none;
    CHECK_INT(exl2__cuda_source_open(&c, NULL, "nothing.cu", &none), EXL2_ERR_INTERNAL);
    CHECK_TEXT(c.error.text, "kernel source nothing.cu is not built in");
    CHECK_INT(c.host_bytes, 0);
    return check_done();
}
