/* import_faults.c: exl2_import_gguf: with wrong arguments, folders that exist already, cancelling, failing allocations
   and failing reads, nothing half-made remains, and no file of anyone else is touched. */
#include "../import_rig.h"

static void check_argument(exl2_import_desc d, rig *r, const char *piece)
{
    CHECK_INT(exl2__import_gguf(&r->c, &d), EXL2_ERR_ARG);
    if (!CHECK(strstr(r->c.error.text, piece) != NULL)) {
        printf("  \"%s\" should hold \"%s\"\n", r->c.error.text, piece);
    }
    check_clean(r);
}

static void test_arguments(void)
{
    llama_model l;
    rig r;
    exl2_error error = { EXL2_OK, 0, { 0 } };
    llama_make(&l, &small);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    d.bits = 7;
    check_argument(d, &r, "bits is 7");
    d = describe(&r);
    d.head_bits = 9;
    check_argument(d, &r, "head_bits is 9");
    d = describe(&r);
    d.group = 16;
    check_argument(d, &r, "group is 16");
    d = describe(&r);
    d._end_canary = 1;
    check_argument(d, &r, "exl2_import_desc was not zeroed before its fields were set: its _end_canary is 1");
    d = describe(&r);
    d._start_canary = 2;
    check_argument(d, &r, "exl2_import_desc was not zeroed before its fields were set: its _start_canary is 2");
    d = describe(&r);
    d.gguf_path = NULL;
    check_argument(d, &r, "gguf_path is NULL");
    d.gguf_path = "";
    check_argument(d, &r, "gguf_path is an empty string");
    d = describe(&r);
    d.out_dir = "";
    check_argument(d, &r, "out_dir is an empty string");
    CHECK_INT(exl2_import_gguf(NULL), EXL2_ERR_ARG);
    memset(&d, 0xCD, sizeof d); /* as a debug build fills the stack: its pointer for the error is invalid */
    CHECK_INT(exl2_import_gguf(&d), EXL2_ERR_ARG);
    d = describe(&r); /* the public function reads the disk, where no model.gguf exists */
    d.error = &error;
    CHECK_INT(exl2_import_gguf(&d), EXL2_ERR_IO);
    CHECK_INT(error.code, EXL2_ERR_IO);
    CHECK(strstr(error.text, "model.gguf: no such file") != NULL);
    llama_free(&l);
}

/* ---- nothing half-made ---- */

static void write_file(const char *dir, const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    CHECK(file && fputs("left over", file) >= 0);
    fclose(file);
}

static bool remove_file(const char *dir, const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return exl2__platform_remove_file(path);
}

static void test_left_overs(void)
{
    llama_model l;
    rig r;
    llama_make(&l, &small);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    /* The folder of a killed run is removed and made again. */
    char lock[700];
    snprintf(lock, sizeof lock, "%s.lock", work_dir);
    CHECK(exl2__platform_make_dir(work_dir));
    write_file(work_dir, "config.json");
    write_file(work_dir, "output-00001-of-00002.safetensors");
    fclose(fopen(lock, "wb"));
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    check_folder(&l, &small, 8, 32, 8);
    /* A finished folder is never overwritten. */
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_STATE);
    CHECK(strstr(r.c.error.text, "exists and is not empty") != NULL);
    check_folder(&l, &small, 8, 32, 8);
    remove_out();
    check_clean(&r);
    /* A model that somebody keeps in a folder of that name was not begun by an import. */
    CHECK(exl2__platform_make_dir(work_dir));
    write_file(work_dir, "config.json");
    write_file(work_dir, "model.safetensors");
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_STATE);
    CHECK(strstr(r.c.error.text, "no import has begun that folder") != NULL);
    CHECK(remove_file(work_dir, "config.json") && remove_file(work_dir, "model.safetensors"));
    CHECK(exl2__platform_remove_dir(work_dir));
    /* Two imports to one folder: the second is rejected, and says who has it. */
    exl2__folder first;
    char holder[64];
    CHECK_INT(exl2__folder_begin(&r.c, &first, d.out_dir), EXL2_OK);
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_STATE);
    snprintf(holder, sizeof holder, ".unfinished is in use by process %ld;", (long)getpid());
    CHECK(strstr(r.c.error.text, holder) != NULL);
    exl2__folder_abandon(&first);
    check_clean(&r);
    /* Files that are not ours stay. */
    CHECK(exl2__platform_make_dir(work_dir));
    write_file(work_dir, "diary.txt");
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_STATE);
    CHECK(strstr(r.c.error.text, "holds diary.txt") != NULL);
    CHECK(remove_file(work_dir, "diary.txt"));
    CHECK(exl2__platform_remove_dir(work_dir));
    /* Files with our names stay, too, if something else is next to them: nothing is deleted before everything was
       checked. */
    static const struct { const char *make, *remove, *holds; } others[] = {
        { "echo >'%s/zebra.txt'", "zebra.txt", "holds zebra.txt" },
        { "echo >'%s/a diary.txt'", "a diary.txt", "holds a diary.txt" },
        { "mkdir '%s/tokenizer.json'", NULL, "holds tokenizer.json" },
        { "ln -s /nowhere '%s/tokenizer.json'", "tokenizer.json", "holds tokenizer.json" },
    };
    for (size_t i = 0; i < EXL2__COUNT(others); i++) {
        char command[800];
        CHECK(exl2__platform_make_dir(work_dir));
        write_file(work_dir, "config.json");
        write_file(work_dir, "output.safetensors");
        snprintf(command, sizeof command, others[i].make, work_dir);
        CHECK_INT(system(command), 0);
        CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_STATE);
        if (!CHECK(strstr(r.c.error.text, others[i].holds) != NULL)) {
            printf("  %s: \"%s\"\n", command, r.c.error.text);
        }
        CHECK(!there(out_dir));
        CHECK(remove_file(work_dir, "config.json") && remove_file(work_dir, "output.safetensors"));
        snprintf(command, sizeof command, "rm -r '%s'", work_dir);
        CHECK_INT(system(command), 0);
    }
    /* A symbolic link of that name is not followed, whether it leads to a folder or nowhere. */
    for (int dangling = 0; dangling < 2; dangling++) {
        char elsewhere[600], command[1400];
        snprintf(elsewhere, sizeof elsewhere, "%s-elsewhere", out_dir);
        if (!dangling) {
            CHECK(exl2__platform_make_dir(elsewhere));
            write_file(elsewhere, "config.json");
        }
        snprintf(command, sizeof command, "ln -s '%s' '%s'", elsewhere, work_dir);
        CHECK_INT(system(command), 0);
        CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_STATE);
        CHECK(strstr(r.c.error.text, "is a link") != NULL);
        CHECK(!there(out_dir) && there(elsewhere) == !dangling);
        CHECK(exl2__platform_remove_file(work_dir)); /* it still exists */
        CHECK(dangling || (remove_file(elsewhere, "config.json") && exl2__platform_remove_dir(elsewhere)));
    }
    /* The parent folder is missing, or is a file. */
    char below[700];
    snprintf(below, sizeof below, "%s/below", out_dir);
    d.out_dir = below;
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_IO);
    CHECK(strstr(r.c.error.text, "its parent must be a writable folder") != NULL);
    d.out_dir = out_dir;
    check_clean(&r);
    /* An empty folder is accepted, with or without a slash after its name. */
    CHECK(exl2__platform_make_dir(out_dir));
    char slash[600];
    snprintf(slash, sizeof slash, "%s//", out_dir);
    d.out_dir = slash;
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    check_folder(&l, &small, 8, 32, 8);
    remove_out();
    /* A file of that name is rejected. */
    d.out_dir = out_dir;
    FILE *file = fopen(out_dir, "wb");
    CHECK(file && fclose(file) == 0);
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_IO);
    CHECK(exl2__platform_remove_file(out_dir));
    check_clean(&r);
    llama_free(&l);
}

static void test_cancel(void)
{
    llama_model l;
    rig r;
    uint32_t stop = 1;
    llama_make(&l, &small);
    for (;; stop++) {
        rig_make(&r, l.file);
        r.stop_at = stop;
        exl2_import_desc d = describe(&r);
        exl2_result result = exl2__import_gguf(&r.c, &d);
        if (result == EXL2_OK) {
            break;
        }
        CHECK_INT(result, EXL2_ERR_CANCELLED);
        CHECK_INT(r.calls, stop);
        check_clean(&r);
    }
    CHECK(stop > 20 && r.calls == stop - 1);
    remove_out();
    llama_free(&l);
}

/* The n-th allocation or read fails, for n = 0, 1, 2 ... until none fails. */
static void test_faults(bool reads)
{
    llama_model l;
    rig r;
    uint32_t n = 0;
    llama_make(&l, &small);
    for (;; n++) {
        rig_make(&r, l.file);
        *(reads ? &r.reads_left : &r.allocations_left) = n;
        exl2_import_desc d = describe(&r);
        exl2_result result = exl2__import_gguf(&r.c, &d);
        if (result == EXL2_OK) {
            break;
        }
        CHECK_INT(result, reads ? EXL2_ERR_IO : EXL2_ERR_MEMORY);
        check_clean(&r);
    }
    CHECK(n > 10);
    remove_out();
    check_clean(&r);
    llama_free(&l);
}

int main(void)
{
    import_start();
    test_arguments();
    test_left_overs();
    test_cancel();
    test_faults(false);
    test_faults(true);
    return check_done();
}
