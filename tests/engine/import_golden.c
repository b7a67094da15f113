/* import_golden.c: the GGUF files of the shared fixtures, which llama.cpp's converter made of the tiny models beside
   them: imported without quantization, each gives the golden of its neighbour. */
#define EXL2_CONVERT
#define GOLDEN_NO_MAIN
#include "golden.c"

#include "private/folder.h"

static void copy_file(const char *from, const char *to)
{
    size_t bytes;
    char *text = check_read(from, &bytes);
    FILE *file = fopen(to, "wb");
    CHECK(file && fwrite(text, 1, bytes, file) == bytes);
    if (file) {
        fclose(file);
    }
    free(text);
}

static void check_import(const char *source, const char *folder)
{
    char gguf[1200], golden[1200], copied[700];
    exl2_error error = { EXL2_OK, 0, { 0 } };
    snprintf(gguf, sizeof gguf, "%s/model.gguf", source);
    snprintf(golden, sizeof golden, "%s/golden.json", source);
    snprintf(copied, sizeof copied, "%s/golden.json", folder);
    exl2_import_desc d = { .gguf_path = gguf, .out_dir = folder, .bits = 16, .error = &error };
    if (!CHECK_INT(exl2_import_gguf(&d), EXL2_OK)) {
        printf("  %s\n", error.text);
        return;
    }
    copy_file(golden, copied);
    printf("%s:\n  ", source);
    golden_model(folder);
    remove(copied);
    CHECK(exl2__folder_remove(folder));
}

/* Arguments: other folders with model.gguf and golden.json, in place of the shared fixtures. */
int main(int argc, char **argv)
{
    static const char *const names[] = { "llama3-rope", "qwen2", "gemma3-six", "phi3-longrope", "granite", "glm4",
                                         "cohere", "mixtral", "qwen3-moe" };
    const char *temporary = getenv("TMPDIR");
    char folder[512];
    snprintf(folder, sizeof folder, "%s/exl2-import-golden-%llx", temporary && *temporary ? temporary : "/tmp",
             (unsigned long long)exl2__platform_entropy(folder));
    for (int i = 1; i < argc; i++) {
        check_import(argv[i], folder);
    }
    for (size_t i = 0; argc < 2 && i < EXL2__COUNT(names); i++) {
        char relative[200];
        snprintf(relative, sizeof relative, "fixtures/arch/%s", names[i]);
        check_import(check_shared(relative), folder);
    }
    return check_done();
}
