/* import_split.c: a model in several GGUF files is imported from any of them as from one file; parts that are missing,
   doubled, of another model or wrong in number are rejected, with their names. What is no model is named. */
#include "../import_rig.h"
#include "../memory_files.h"

#define PARTS 3u

/* What is wrong with one part. */
typedef struct flaw {
    uint32_t part;       /* counts from 0 */
    bool missing;
    bool double_tensor;  /* it also has the first tensor of part 0 */
    uint32_t extra_no;   /* added to split.no */
    uint32_t extra_count; /* added to split.count */
    uint32_t extra_tensors; /* added to split.tensors.count */
    const char *name;    /* not NULL: general.name of this part */
    bool long_numbers;   /* integers are written as u64 */
} flaw;

static void put_number(gguf_maker *m, const char *name, uint32_t value, bool long_one)
{
    if (long_one) {
        gguf_key(m, name, 10);
        gguf_put64(&m->keys, value);
    } else {
        gguf_key(m, name, 2); /* u16, as llama-gguf-split writes them */
        uint8_t bytes[2] = { (uint8_t)value, (uint8_t)(value >> 8) };
        gguf_put(&m->keys, bytes, 2);
    }
}

static void put_tensor(gguf_maker *m, const exl2__gguf_tensor *t, const uint8_t *data)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)t->name.bytes, t->name.data);
    gguf_tensor(m, name, t->type->id, t->dims[0], t->dim_count > 1 ? t->dims[1] : 0, data, (size_t)t->bytes);
}

/* Makes part `number` of the model; tensor i belongs to part i % PARTS. */
static gguf_bytes make_part(const exl2__gguf *g, const gguf_bytes *file, uint32_t number, const flaw *f)
{
    gguf_maker m = { 0 };
    bool here = f->part == number;
    for (uint32_t i = 0; number == 0 && i < g->pair_count; i++) {
        const exl2__gguf_pair *pair = &g->pairs[i];
        const uint8_t *begin = (const uint8_t *)pair->name.data - 8;
        gguf_put(&m.keys, begin, (size_t)(pair->data + pair->bytes - begin));
        m.key_count++;
    }
    if (number == 0) {
        gguf_key_text(&m, "general.name", "Tiny");
    } else if (here && f->name) {
        gguf_key_text(&m, "general.name", f->name);
    }
    put_number(&m, "split.no", number + (here ? f->extra_no : 0), f->long_numbers);
    put_number(&m, "split.count", PARTS + (here ? f->extra_count : 0), f->long_numbers);
    gguf_key(&m, "split.tensors.count", 5);
    gguf_put32(&m.keys, g->tensor_count + (here ? f->extra_tensors : 0));
    if (here && f->double_tensor) {
        put_tensor(&m, &g->tensors[0], file->data + g->tensors[0].offset);
    }
    for (uint32_t i = number; i < g->tensor_count; i += PARTS) {
        put_tensor(&m, &g->tensors[i], file->data + g->tensors[i].offset);
    }
    return gguf_finish(&m);
}

static void part_name(char *out, size_t room, const char *folder, uint32_t number)
{
    snprintf(out, room, "%sTiny-Q4-%05u-of-%05u.gguf", folder, number + 1, PARTS);
}

/* The parts of the tiny Llama, as files in memory. */
static void make_parts(memory_files *files, const llama_model *l, const flaw *f)
{
    rig r;
    exl2__gguf g;
    rig_make(&r, l->file);
    CHECK_INT(exl2__gguf_open(&r.c, "model.gguf", &g), EXL2_OK);
    memory_make(files);
    files->c.files.list = exl2__platform_files().list; /* of the folder that is made */
    for (uint32_t i = 0; i < PARTS; i++) {
        char name[64];
        gguf_bytes part = make_part(&g, &l->file, i, f);
        part_name(name, sizeof name, "", i);
        if (!(f->missing && f->part == i)) {
            memory_add(files, name, part.data, part.bytes);
        }
        free(part.data);
    }
    exl2__gguf_close(&g);
}

static exl2_import_desc describe_part(rig *r, char *path, size_t room, uint32_t number)
{
    exl2_import_desc d = describe(r);
    part_name(path, room, "x/", number);
    d.gguf_path = path;
    return d;
}

/* From each part, the same folder as from one file. */
static void test_any_part(bool long_numbers, uint32_t bits)
{
    const flaw none = { .part = PARTS, .long_numbers = long_numbers };
    llama_model l;
    memory_files files;
    rig r;
    llama_make(&l, &small);
    rig_make(&r, l.file);
    for (uint32_t named = 0; named < PARTS; named++) {
        char path[64];
        exl2_import_info info = { 0 };
        make_parts(&files, &l, &none);
        exl2_import_desc d = describe_part(&r, path, sizeof path, named);
        d.bits = bits;
        d.info = &info;
        if (CHECK_INT(exl2__import_gguf(&files.c, &d), EXL2_OK)) {
            if (bits) {
                check_folder(&l, &small, bits, 32, 8);
            }
            CHECK_TEXT(info.tokenizer, "bpe");
            CHECK_INT(info.tensors, 2 + 9 * small.layers);
            remove_out();
        } else {
            printf("  %s\n", files.c.error.text);
        }
        CHECK_INT(files.open_files, 0);
        CHECK_INT(files.c.host_bytes, 0);
        memory_free(&files);
    }
    llama_free(&l);
}

static void check_flaw(const flaw *f, uint32_t named, exl2_result code, const char *piece, const char *file)
{
    llama_model l;
    memory_files files;
    rig r;
    char path[64];
    llama_make(&l, &small);
    rig_make(&r, l.file);
    make_parts(&files, &l, f);
    exl2_import_desc d = describe_part(&r, path, sizeof path, named);
    exl2_result result = exl2__import_gguf(&files.c, &d);
    if (!CHECK_INT(result, code) || !CHECK(strstr(files.c.error.text, piece) && strstr(files.c.error.text, file))) {
        printf("  \"%s\" should hold \"%s\" and \"%s\"\n", files.c.error.text, piece, file);
    }
    CHECK_INT(files.open_files, 0);
    CHECK_INT(files.c.host_bytes, 0);
    memory_free(&files);
    llama_free(&l);
}

static void test_flaws(void)
{
    static const struct {
        flaw f;
        uint32_t named;
        exl2_result code;
        const char *piece, *file;
    } rows[] = {
        { { .part = 1, .missing = true }, 0, EXL2_ERR_IO, "part 2 of the 3 parts of the model is missing",
          "x/Tiny-Q4-00002-of-00003.gguf" },
        { { .part = 0, .missing = true }, 2, EXL2_ERR_IO, "part 1 of the 3 parts", "x/Tiny-Q4-00001-of-00003.gguf" },
        { { .part = 2, .missing = true }, 1, EXL2_ERR_IO, "part 3 of the 3 parts", "x/Tiny-Q4-00003-of-00003.gguf" },
        { { .part = 1, .extra_no = 1 }, 0, EXL2_ERR_FORMAT, "says that it is part 3 of 3, expected part 2 of 3",
          "-00002-of-00003.gguf" },
        { { .part = 1, .extra_count = 1 }, 0, EXL2_ERR_FORMAT, "part 2 of 4, expected part 2 of 3",
          "-00002-of-00003.gguf" },
        { { .part = 0, .extra_count = 1 }, 0, EXL2_ERR_FORMAT, "must end in -00001-of-00004.gguf",
          "-00001-of-00003.gguf" },
        { { .part = 0, .extra_count = 600 }, 0, EXL2_ERR_FORMAT, "split.count is 603", "-00001-of-00003.gguf" },
        { { .part = 1, .extra_no = 2 }, 1, EXL2_ERR_FORMAT, "split.no is 3", "-00002-of-00003.gguf" },
        { { .part = 1, .extra_no = 1 }, 1, EXL2_ERR_FORMAT, "must end in -00003-of-00003.gguf",
          "-00002-of-00003.gguf" },
        { { .part = 2, .name = "Other" }, 0, EXL2_ERR_FORMAT,
          "of another model than x/Tiny-Q4-00001-of-00003.gguf: their keys general.name differ",
          "x/Tiny-Q4-00003-of-00003.gguf" },
        { { .part = 0, .extra_tensors = 1 }, 0, EXL2_ERR_FORMAT, "parts of the model have 20 tensors, expected 21",
          "-00001-of-00003.gguf" },
        { { .part = 2, .double_tensor = true }, 0, EXL2_ERR_FORMAT, "have 21 tensors, expected 20", "Tiny" },
    };
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        check_flaw(&rows[i].f, rows[i].named, rows[i].code, rows[i].piece, rows[i].file);
    }
}

/* A tensor in two parts, where no count says how many there should be. */
static void test_double(void)
{
    memory_files files;
    exl2__gguf g;
    memory_make(&files);
    for (uint32_t i = 0; i < 2; i++) {
        gguf_maker m = { 0 };
        char name[64];
        put_number(&m, "split.no", i, false);
        put_number(&m, "split.count", 2, false);
        gguf_tensor(&m, "same", 0, 8, 0, "01234567012345670123456701234567", 32);
        gguf_bytes file = gguf_finish(&m);
        snprintf(name, sizeof name, "two-%05u-of-00002.gguf", i + 1);
        memory_add(&files, name, file.data, file.bytes);
        free(file.data);
    }
    CHECK_INT(exl2__gguf_split_open(&files.c, "x/two-00001-of-00002.gguf", &g), EXL2_ERR_FORMAT);
    CHECK(strstr(files.c.error.text, "there are two tensors called same") != NULL);
    CHECK_INT(files.open_files, 0);
    CHECK_INT(files.c.host_bytes, 0);
    memory_free(&files);
}

/* Allocations fail one after the other, and nothing is lost. */
static void test_memory(void)
{
    const flaw none = { .part = PARTS };
    llama_model l;
    memory_files files;
    exl2__gguf g;
    uint64_t most = 0;
    llama_make(&l, &small);
    make_parts(&files, &l, &none);
    for (uint32_t i = 0; i < 4096; i++) {
        files.c.host_bytes_max = most += 4096;
        exl2_result result = exl2__gguf_split_open(&files.c, "x/Tiny-Q4-00002-of-00003.gguf", &g);
        exl2__gguf_close(&g);
        CHECK_INT(files.c.host_bytes, 0);
        CHECK_INT(files.open_files, 0);
        if (result == EXL2_OK) {
            break;
        }
        CHECK_INT(result, EXL2_ERR_BUDGET);
    }
    CHECK(most > 4096 && most < 4096u * 4096u);
    memory_free(&files);
    llama_free(&l);
}

/* ---- files that hold no model ---- */

static void is_adapter(gguf_maker *m) { gguf_key_text(m, "general.type", "adapter"); }
static void is_old_adapter(gguf_maker *m) { gguf_key_text(m, "adapter.type", "lora"); }
static void is_vocab(gguf_maker *m) { gguf_key_text(m, "general.type", "vocab"); }
static void is_imatrix(gguf_maker *m) { gguf_key_text(m, "general.type", "imatrix"); }
static void is_mmproj(gguf_maker *m) { gguf_key_text(m, "general.type", "mmproj"); }
static void is_other(gguf_maker *m) { gguf_key_text(m, "general.type", "recipe"); }
static void is_model(gguf_maker *m) { gguf_key_text(m, "general.type", "model"); }

static void test_no_model(void)
{
    static const struct {
        void (*change)(gguf_maker *m);
        const char *piece;
    } rows[] = { { is_adapter, "the file is a LoRA adapter, not a model" },
                 { is_old_adapter, "the file is a LoRA adapter, not a model" },
                 { is_vocab, "the file is a vocabulary, not a model" },
                 { is_imatrix, "an importance matrix (imatrix), not a model" },
                 { is_mmproj, "(mmproj), not a model" },
                 { is_other, "general.type is recipe, expected model" } };
    llama_options o = small;
    for (size_t i = 0; i < EXL2__COUNT(rows); i++) {
        o.change = rows[i].change;
        check_refused(rows[i].piece, &o, EXL2_ERR_UNSUPPORTED, rows[i].piece);
    }
    llama_model l;
    rig r;
    o.change = is_model;
    llama_make(&l, &o);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    remove_out();
    llama_free(&l);
    gguf_maker m = { 0 }; /* a vocabulary as llama.cpp's tests have it: keys and no tensors */
    gguf_key_text(&m, "general.architecture", "llama");
    l.file = gguf_finish(&m);
    rig_make(&r, l.file);
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_ERR_UNSUPPORTED);
    CHECK(strstr(r.c.error.text, "the file is a vocabulary, not a model") != NULL);
    check_clean(&r);
    llama_free(&l);
}

int main(void)
{
    import_start();
    test_any_part(false, 8);
    test_any_part(true, 4);
    test_flaws();
    test_double();
    test_memory();
    test_no_model();
    return check_done();
}
