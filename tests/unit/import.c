/* import.c: exl2_import_gguf: tiny Llamas in GGUF are imported, read back with the loader's own checks, decoded, and
   compared with the numbers that they were made of; with any order of tasks, in one file or several. */
#include "../import_rig.h"
#include "private/model_config_read.h"

static void check_config(const llama_options *o)
{
    exl2__ctx c = { 0 };
    exl2__config config;
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    if (!CHECK_INT(exl2__config_read(&c, out_dir, &config), EXL2_OK)) {
        printf("  %s\n", c.error.text);
        return;
    }
    CHECK_TEXT(config.arch.name, "LlamaForCausalLM");
    CHECK(config.vocab == o->vocab && config.hidden == o->hidden && config.layers == o->layers &&
          config.inter == o->inter);
    CHECK(config.heads == o->heads && config.kv_heads == o->kv_heads && config.head_dim == o->head_dim);
    CHECK_INT(config.context_max, 512);
    CHECK_INT(exl2__float_bits(config.norm_eps), exl2__float_bits(1e-5f));
    CHECK(config.rope.theta == 500000.0);
    CHECK_INT(config.tie_embeddings, o->tied);
    CHECK_INT(config.attention_bias, o->attention_bias);
    CHECK(!config.mlp_bias);
    CHECK_INT(config.bos, o->no_tokenizer ? -1 : 1);
    CHECK_INT(config.eos_count, o->no_tokenizer ? 0 : 2);
    CHECK(o->no_tokenizer || (config.eos[0] == 0 && config.eos[1] == 3));
}

static void test_import(const llama_options *o, uint32_t bits, uint32_t group, uint32_t head_bits)
{
    llama_model l;
    rig r;
    llama_make(&l, o);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    d.bits = bits;
    d.group = group;
    d.head_bits = head_bits;
    if (CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK)) {
        CHECK(r.last == 1 && !r.falling && r.calls > 20);
        CHECK_INT(r.c.host_bytes, 0);
        check_folder(&l, o, bits ? bits : 8, group ? group : 32, head_bits ? head_bits : 8);
        check_config(o);
        remove_out();
    } else {
        printf("  %s\n", r.c.error.text);
    }
    check_clean(&r);
    llama_free(&l);
}

/* ---- same bytes ---- */

static char *read_output(size_t *bytes)
{
    char path[700];
    snprintf(path, sizeof path, "%s/output.safetensors", out_dir);
    return check_read(path, bytes);
}

static void test_order(void)
{
    llama_model l;
    rig r;
    size_t bytes = 0, other_bytes = 0;
    llama_options o = wide;
    o.vocab = 600; /* three chunks of columns */
    llama_make(&l, &o);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    d.bits = 4;
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    char *text = read_output(&bytes);
    remove_out();
    r.c.parallel.run = backwards;
    r.c.parallel.width = 4;
    r.calls = 0;
    r.last = 0;
    CHECK_INT(exl2__import_gguf(&r.c, &d), EXL2_OK);
    char *other = read_output(&other_bytes);
    CHECK(bytes == other_bytes && memcmp(text, other, bytes) == 0);
    remove_out();
    free(text);
    free(other);
    llama_free(&l);
}

/* Small shards, through the parts that an import consists of. */
static void test_shards(void)
{
    llama_model l;
    rig r;
    static exl2__import im;
    memset(&im, 0, sizeof im);
    llama_make(&l, &small);
    rig_make(&r, l.file);
    exl2_import_desc d = describe(&r);
    char name[300];
    uint32_t files = 0;
    CHECK_INT(exl2__import_check(&r.c, &d, &im.config), EXL2_OK);
    CHECK_INT(exl2__gguf_open(&r.c, d.gguf_path, &im.gguf), EXL2_OK);
    CHECK_INT(exl2__import_config_read(&im.gguf, &im.config), EXL2_OK);
    CHECK_INT(exl2__import_plan_make(&im.gguf, &im.config, &im.plan), EXL2_OK);
    CHECK_INT(exl2__folder_begin(&r.c, &im.folder, d.out_dir), EXL2_OK);
    CHECK_INT(exl2__import_model_run(&im.plan, &d, im.folder.work_path, 20000), EXL2_OK);
    CHECK_INT(exl2__folder_commit(&r.c, &im.folder), EXL2_OK);
    exl2_files plain = exl2__platform_files();
    while (plain.list(plain.user, out_dir, files, name, sizeof name)) {
        files++;
        CHECK(strncmp(name, "output-0000", 11) == 0 && strstr(name, "-of-0000") != NULL);
    }
    CHECK(files > 2);
    check_folder(&l, &small, 8, 32, 8);
    exl2__import_plan_close(&im.plan);
    exl2__gguf_close(&im.gguf);
    remove_out();
    check_clean(&r);
    llama_free(&l);
}

int main(void)
{
    llama_options bare = small;
    bare.no_tokenizer = true;
    import_start();
    test_import(&small, 0, 0, 0);
    test_import(&bare, 8, 64, 6);
    test_import(&wide, 4, 128, 6);
    test_import(&wide, 2, 64, 3);
    test_import(&wide, 3, 32, 4);
    test_import(&wide, 5, 128, 5);
    test_import(&wide, 6, 64, 2);
    test_order();
    test_shards();
    return check_done();
}
