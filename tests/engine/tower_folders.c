/* tower_folders.c: towers as files store them: in one file or in shards, with and without an index; as F16, BF16 and
   F32, mixed in one file; beside a text model in GPTQ or AWQ. Rows of a picture have the same bits as those of a file
   with the same numbers. Matrices of towers in EXL3, against F16 as the format defines them. (EXL2 folders:
   tests/programs/vision.c converts. Wrong files: tests/unit/tower_read.c.)
   takes: the shared fixtures (fixtures/vision).
   gives: exit code 0 or 1; 77 without fixtures. */
#include "../../demo/common/json_in.c"
#include "../../demo/common/memory.c"
#include "../memory_files.h"
#include "../mixed_model.h"
#include "rig.h"

#include "private/half.h"

#include <stdlib.h>

#define TENSORS 512u
#define SIDE 60u
#define FLOATS 16384u

typedef struct tensor {
    char name[128], dtype[8], shape[64];
    uint8_t *data;
    size_t bytes;
    bool tower;
} tensor;

static tensor source[TENSORS], made[TENSORS]; /* of the fixture, whose numbers are F16; of what is loaded */
static uint32_t source_count, made_count;
static const char *family;
static memory_files files;

static const char *fixture(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "fixtures/vision/%s/%s", family, name);
    return check_shared(path);
}

static void read_source(void)
{
    static const char *const towers[] = { "vision", "visual", "connector", "multi_modal_projector" };
    size_t bytes;
    const char *error;
    uint8_t *file = (uint8_t *)check_read(fixture("model.safetensors"), &bytes);
    size_t header = (size_t)exl2__load64(file);
    json_value *root = json_read((const char *)file + 8, header, &error);
    source_count = 0;
    for (const json_value *v = root ? root->child : NULL; v; v = v->next) {
        const json_value *dtype = json_member(v, "dtype"), *shape = json_member(v, "shape");
        const json_value *places = json_member(v, "data_offsets");
        if (!dtype) { /* __metadata__ */
            continue;
        }
        tensor *t = &source[source_count++];
        size_t begin = (size_t)places->child->number;
        *t = (tensor){ .bytes = (size_t)places->child->next->number - begin };
        snprintf(t->name, sizeof t->name, "%s", v->key);
        snprintf(t->dtype, sizeof t->dtype, "%s", dtype->text);
        snprintf(t->shape, sizeof t->shape, "%.*s", (int)shape->raw_bytes, shape->raw);
        t->data = (uint8_t *)malloc(t->bytes);
        memcpy(t->data, file + 8 + header + begin, t->bytes);
        for (uint32_t i = 0; i < 4; i++) {
            t->tower = t->tower || strstr(t->name, towers[i]) != NULL;
        }
        CHECK_TEXT(t->dtype, "F16");
    }
    CHECK(source_count > 20);
    json_free(root);
    free(file);
}

static void drop(tensor *list, uint32_t *count)
{
    for (uint32_t i = 0; i < *count; i++) {
        free(list[i].data);
    }
    *count = 0;
}

/* A tensor of the model that is made, with `bytes` zeros. */
static tensor *add(const char *name, const char *end, const char *dtype, const char *shape, size_t bytes)
{
    tensor *t = &made[made_count++];
    *t = (tensor){ .bytes = bytes };
    snprintf(t->name, sizeof t->name, "%s%s", name, end);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    snprintf(t->shape, sizeof t->shape, "%s", shape);
    t->data = (uint8_t *)calloc(bytes, 1);
    return t;
}

typedef enum numbers { F16, BF16, F32_OF_BF16, F32, MIXED, MIXED_OF_BF16 } numbers;

static uint16_t to_bf16(float x)
{
    uint32_t bits = exl2__float_bits(x);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Tensor number i of the fixture, with its numbers stored in another way. */
static void add_as(uint32_t i, numbers n)
{
    const tensor *from = &source[i];
    size_t count = from->bytes / 2;
    bool rounds = n == BF16 || n == F32_OF_BF16 || n == MIXED_OF_BF16;
    bool wide = n == F32 || n == F32_OF_BF16 || ((n == MIXED || n == MIXED_OF_BF16) && i % 2);
    tensor *t = add(from->name, "", wide ? "F32" : rounds ? "BF16" : "F16", from->shape, count * (wide ? 4 : 2));
    for (size_t k = 0; k < count; k++) {
        uint16_t half = (uint16_t)(from->data[2 * k] | from->data[2 * k + 1] << 8);
        float x = exl2__f16_to_f32(half);
        uint16_t brief = to_bf16(x);
        x = rounds ? exl2__bf16_to_f32(brief) : x;
        if (wide) {
            exl2__store32(t->data + 4 * k, exl2__float_bits(x));
        } else {
            t->data[2 * k] = (uint8_t)(rounds ? brief : half);
            t->data[2 * k + 1] = (uint8_t)((rounds ? brief : half) >> 8);
        }
    }
}

static void make_as(numbers n)
{
    drop(made, &made_count);
    for (uint32_t i = 0; i < source_count; i++) {
        add_as(i, n);
    }
}

/* Matrices of the text model's layers are words of zeros, of GPTQ or AWQ with four bits. */
static void make_quantized(bool gptq)
{
    drop(made, &made_count);
    for (uint32_t i = 0; i < source_count; i++) {
        const tensor *t = &source[i];
        unsigned out = 0, in = 0;
        size_t stem = strlen(t->name) - strlen(".weight");
        bool matrix = strstr(t->name, "_proj.weight") && strstr(t->name, "layers.")
                   && sscanf(t->shape, "[%u,%u", &out, &in) == 2;
        if (!matrix || t->tower) {
            add_as(i, F16);
            continue;
        }
        char name[128], shape[64];
        unsigned groups = in / 32;
        snprintf(name, sizeof name, "%.*s", (int)stem, t->name);
        snprintf(shape, sizeof shape, "[%u,%u]", gptq ? in / 8 : in, gptq ? out : out / 8);
        add(name, ".qweight", "I32", shape, (size_t)in * out / 2);
        snprintf(shape, sizeof shape, "[%u,%u]", groups, out / 8);
        add(name, ".qzeros", "I32", shape, (size_t)groups * out / 2);
        snprintf(shape, sizeof shape, "[%u,%u]", groups, out);
        add(name, ".scales", "F16", shape, (size_t)groups * out * 2);
        if (gptq) {
            snprintf(shape, sizeof shape, "[%u]", in);
            tensor *index = add(name, ".g_idx", "I32", shape, (size_t)in * 4);
            for (unsigned k = 0; k < in; k++) {
                exl2__store32(index->data + 4 * (size_t)k, k / 32);
            }
        }
    }
}

/* Adds the tensors of a matrix of EXL3, whose name and size the caller gives. */
static void add_coded(const mixed_model *x)
{
    for (uint32_t k = 0; k < x->m.count; k++) {
        const maker_tensor *part = &x->m.tensors[k];
        char shape[64];
        snprintf(shape, sizeof shape, part->rank == 3 ? "[8,8,%u]" : part->rank ? "[128]" : "[]",
                 (unsigned)part->dims[2]);
        memcpy(add(part->name, "", part->dtype, shape, part->bytes)->data, part->data, part->bytes);
    }
}

static bool is_attention(const char *name)
{
    return strstr(name, "vis") && !strstr(name, "norm") && (strstr(name, "attn.") || strstr(name, "attention."));
}

static const char *const pieces_of_qkv[] = { "q_proj", "k_proj", "v_proj" };

/* Adds the bias of q, k and v once more, as three. */
static void add_pieces_of_bias(const tensor *t)
{
    size_t stem = strlen(t->name) - strlen("qkv.bias"), third = t->bytes / 3;
    for (uint32_t k = 0; k < 3; k++) {
        char name[128], shape[64];
        snprintf(name, sizeof name, "%.*s%s", (int)stem, t->name, pieces_of_qkv[k]);
        snprintf(shape, sizeof shape, "[%zu]", third / 2);
        memcpy(add(name, ".bias", "F16", shape, third)->data, t->data + k * third, third);
    }
}

/* Matrices of the tower, of at most 128 x 128, have random numbers that EXL3 has: in EXL3 if `coded`, of two codebooks
   by turns, else in F16. apart: q, k and v, which are one matrix, are three of EXL3, as ExLlamaV3 stores them; beside:
   the one matrix is there, too, with zeros that are not to be used. plain_attention: those of attention are F16.
   Returns how many these are. */
static uint32_t make_exl3(bool coded, bool apart, bool beside, bool plain_attention)
{
    static mixed_model x;
    static double w[128 * 128];
    uint32_t found = 0;
    x.state = 7;
    drop(made, &made_count);
    for (uint32_t i = 0; i < source_count; i++) {
        const tensor *t = &source[i];
        unsigned out = 0, in = 0;
        char name[128];
        const char *end = strrchr(t->name, '.');
        bool matrix = t->tower && end && strcmp(end, ".weight") == 0 && !strstr(t->name, "pos")
                   && strchr(t->shape, ',') == strrchr(t->shape, ',') && sscanf(t->shape, "[%u,%u]", &out, &in) == 2;
        bool three = apart && strstr(t->name, "attn.qkv.") != NULL;
        uint32_t pieces = three && matrix ? 3 : 1, rows = out / pieces;
        if (three && coded && !matrix) {
            add_pieces_of_bias(t);
        }
        if (!matrix || out > 128 || in > 128 || (plain_attention && is_attention(t->name))) {
            if (!three || matrix || !coded || beside) {
                add_as(i, F16);
            }
            continue;
        }
        tensor *plain = !coded || (three && beside) ? add(t->name, "", "F16", t->shape, t->bytes) : NULL;
        for (uint32_t k = 0; k < pieces; k++) {
            size_t stem = (size_t)(end - t->name) - (three ? strlen("qkv") : 0);
            snprintf(name, sizeof name, "%.*s%s", (int)stem, t->name, three ? pieces_of_qkv[k] : "");
            mixed_exl3(&x, name, in, rows, found++ % 2 == 1, w);
            if (coded) {
                add_coded(&x);
            }
            for (size_t n = 0; !coded && n < (size_t)rows * in; n++) {
                maker_store(plain->data + 2 * ((size_t)k * rows * in + n), exl2__f32_to_f16((float)w[n]), 2);
            }
            maker_free(&x.m);
        }
    }
    return found;
}

/* Writes those tensors whose number modulo `shards` is `shard`. */
static void write_file(uint32_t shard, uint32_t shards, const char *name)
{
    memory_text text = { 0 }, data = { 0 };
    uint8_t length[8];
    memory_text_add(&text, "{", 1);
    for (uint32_t i = shard; i < made_count; i += shards) {
        const tensor *t = &made[i];
        memory_text_format(&text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                           i == shard ? "" : ",", t->name, t->dtype, t->shape, data.bytes, data.bytes + t->bytes);
        memory_text_add(&data, (const char *)t->data, t->bytes);
    }
    memory_text_add(&text, "}       ", 1 + (7 - text.bytes % 8));
    exl2__store64(length, text.bytes);
    memory_text all = { 0 };
    memory_text_add(&all, (const char *)length, 8);
    memory_text_add(&all, text.data, text.bytes);
    memory_text_add(&all, data.data, data.bytes);
    memory_add(&files, name, all.data, all.bytes);
    free(text.data);
    free(data.data);
    free(all.data);
}

static void write_index(uint32_t shards)
{
    memory_text text = { 0 };
    memory_text_format(&text, "{\"metadata\":{},\"weight_map\":{");
    for (uint32_t i = 0; i < made_count; i++) {
        memory_text_format(&text, "%s\"%s\":\"part-%u.safetensors\"", i ? "," : "", made[i].name, i % shards);
    }
    memory_text_add(&text, "}}", 2);
    memory_add(&files, "model.safetensors.index.json", text.data, text.bytes);
    free(text.data);
}

/* quantization: a member of config.json, or "". */
static void write_folder(uint32_t shards, bool index, const char *quantization)
{
    memory_make(&files);
    for (uint32_t i = 0; i < shards; i++) {
        char name[64];
        snprintf(name, sizeof name, shards == 1 ? "model.safetensors" : "part-%u.safetensors", i);
        write_file(i, shards, name);
    }
    if (index) {
        write_index(shards);
    }
    memory_text config = { 0 };
    size_t bytes;
    char *file = check_read(fixture("config.json"), &bytes);
    memory_text_format(&config, "{%s", quantization);
    memory_text_add(&config, strchr(file, '{') + 1, strlen(strchr(file, '{') + 1));
    memory_add(&files, "config.json", config.data, config.bytes);
    free(config.data);
    free(file);
    file = check_read(fixture("preprocessor_config.json"), &bytes);
    memory_add(&files, "preprocessor_config.json", file, bytes);
    free(file);
}

static exl2_result open_folder(rig *r, exl2_error *error)
{
    exl2_engine_desc e = { .files = { memory_open, memory_list, memory_read, memory_close, &files },
                           .backend = EXL2_BACKEND_CPU };
    exl2_model_desc m = { .path = "memory", .vision = { .images = 1, .pixels_max = SIDE * SIDE } };
    CHECK_INT(exl2_open(&e, &r->engine), EXL2_OK);
    exl2_result result = exl2_model_load(r->engine, &m, &r->model);
    exl2_last_error(r->engine, error);
    return result;
}

/* The rows of a picture by the folder that was written; *count: floats. */
static void encode(float *rows, size_t *count, const char *what)
{
    static uint8_t rgb[SIDE * SIDE * 3];
    rig r = { 0 };
    exl2_error error;
    exl2_image image = { 0 };
    exl2_image_info info = { 0 };
    if (!CHECK_INT(open_folder(&r, &error), EXL2_OK)) {
        printf("  %s, %s: %s\n", family, what, error.text);
        exit(1);
    }
    for (uint32_t i = 0; i < sizeof rgb; i++) {
        rgb[i] = (uint8_t)(i * 2654435761u >> 24);
    }
    exl2_image_desc d = { .model = r.model, .width = SIDE, .height = SIDE, .pixels = rgb, .silent = true };
    CHECK_INT(exl2_image_make(r.engine, &d, &image), EXL2_OK);
    while (exl2_image_get(r.engine, image, &info) >= 0 && info.state != EXL2_IMAGE_ENCODED && info.result >= 0) {
        exl2_step(r.engine, &(exl2_step_desc){ .cpu_us = 100000 });
    }
    CHECK_INT(exl2_image_rows(r.engine, image, rows, FLOATS, count), EXL2_OK);
    rig_close(&r);
    memory_free(&files);
}

static float wanted[FLOATS], got[FLOATS];
static size_t wanted_count;

static void check_same(const char *what)
{
    size_t count = 0;
    encode(got, &count, what);
    if (!CHECK(count == wanted_count && count > 0 && memcmp(got, wanted, count * sizeof *got) == 0)) {
        printf("  %s, %s\n", family, what);
    }
}

static void check_quantized(bool gptq)
{
    static const char *const members[] = {
        "\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemm\","
        "\"zero_point\":true},",
        "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"desc_act\":false},"
    };
    make_quantized(gptq);
    write_folder(1, false, members[gptq]);
    check_same(gptq ? "GPTQ" : "AWQ");
}

/* A decoded weight may be rounded to F16 otherwise than here, where it is computed in double. */
static void check_exl3(bool apart)
{
    double most = 0, far = 0;
    size_t count = 0;
    CHECK(make_exl3(false, apart, false, false) > 8);
    write_folder(1, false, "");
    encode(wanted, &wanted_count, "numbers of EXL3");
    make_exl3(true, apart, false, false);
    write_folder(2, false, "\"quantization_config\":{\"quant_method\":\"exl3\"},");
    encode(got, &count, "EXL3");
    CHECK(count == wanted_count && count > 0);
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)wanted[i]));
        far = fmax(far, fabs((double)wanted[i] - (double)got[i]));
    }
    if (!CHECK(far < 0.002 * most && most > 0.1)) {
        printf("  %s: rows of EXL3 differ by %g, the largest is %g\n", family, far, most);
    }
    if (apart) {
        memcpy(wanted, got, sizeof wanted);
        make_exl3(true, true, true, false);
        write_folder(1, false, "");
        check_same("EXL3 beside the fused matrix");
    }
}

/* Plain matrices of attention and their biases have the sizes that EXL3 rounds up to, with 9 in the padding. */
static void pad_attention(void)
{
    uint32_t padded = 0;
    for (uint32_t i = 0; i < made_count; i++) {
        tensor *t = &made[i];
        unsigned out = 0, in = 1;
        int dims = sscanf(t->shape, "[%u,%u]", &out, &in);
        if (!is_attention(t->name) || dims < 1) {
            continue;
        }
        unsigned wide = dims == 2 ? (in + 127) / 128 * 128 : 1, high = (out + 127) / 128 * 128;
        uint8_t *data = (uint8_t *)malloc((size_t)wide * high * 2);
        for (size_t k = 0; k < (size_t)wide * high; k++) {
            bool inside = k / wide < out && k % wide < in;
            maker_store(data + 2 * k, inside ? exl2__load16(t->data + 2 * (k / wide * in + k % wide)) : 0x4880, 2);
        }
        free(t->data);
        t->data = data;
        t->bytes = (size_t)wide * high * 2;
        snprintf(t->shape, sizeof t->shape, dims == 2 ? "[%u,%u]" : "[%u]", high, wide);
        padded++;
    }
    CHECK(padded > 4);
}

/* The rest of the tower is EXL3. */
static void check_padded(void)
{
    make_exl3(true, false, false, true);
    write_folder(1, false, "");
    encode(wanted, &wanted_count, "plain attention");
    pad_attention();
    write_folder(1, false, "");
    check_same("padded attention");
}

/* Adds a file of the fixture, with `to` in the place of each `from`; both have as many bytes. */
static void add_file(const char *name, const char *from, const char *to)
{
    size_t bytes;
    char *text = check_read(fixture(name), &bytes);
    for (char *at = text; from && (at = strstr(at, from)) != NULL; at += strlen(to)) {
        memcpy(at, to, strlen(to));
    }
    memory_add(&files, name, text, bytes);
    free(text);
}

/* Rows that are not finite end the job that needs them, and no other. */
static void check_not_finite(void)
{
    static rig_said sees, talks;
    static uint8_t rgb[SIDE * SIDE * 3];
    rig r = { 0 };
    exl2_error error;
    exl2_image image;
    exl2_image_info info;
    make_as(F32);
    for (uint32_t i = 0; i < made_count; i++) {
        for (size_t k = 0; strstr(made[i].name, "post_layernorm.weight") && k < made[i].bytes; k += 4) {
            exl2__store32(made[i].data + k, exl2__float_bits(3e38f)); /* finite, but not its products */
        }
    }
    write_folder(1, false, "");
    add_file("tokenizer.json", NULL, NULL);
    add_file("tokenizer_config.json", NULL, NULL);
    if (!CHECK_INT(open_folder(&r, &error), EXL2_OK)) {
        printf("  %s\n", error.text);
        return;
    }
    exl2_image_desc d = { .model = r.model, .width = SIDE, .height = SIDE, .pixels = rgb, .silent = true };
    CHECK_INT(exl2_image_make(r.engine, &d, &image), EXL2_OK);
    exl2_job_desc job = rig_job(&r, NULL, 0, 8, &sees), other = rig_job(&r, NULL, 0, 8, &talks);
    job.prompt = (exl2_prompt){ .text = "A<image>B", .images = &image, .image_count = 1 };
    other.prompt = (exl2_prompt){ .text = "Hello" };
    CHECK_INT(exl2_job_start(r.engine, &job, NULL), EXL2_OK);
    CHECK_INT(exl2_job_start(r.engine, &other, NULL), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(sees.result, EXL2_ERR_FORMAT);
    CHECK(strstr(sees.error, "not finite") != NULL && sees.count == 0 && sees.done_events == 1);
    CHECK_INT(talks.result, EXL2_OK);
    CHECK_INT(talks.count, 8);
    CHECK_INT(exl2_image_get(r.engine, image, &info), EXL2_OK);
    CHECK_INT(info.result, EXL2_ERR_FORMAT);
    CHECK_INT(exl2_job_start(r.engine, &job, NULL), EXL2_ERR_FORMAT); /* it is known now */
    rig_close(&r);
    memory_free(&files);
}

/* A mark that the tokenizer does not have; an id of config.json beyond the vocabulary, where the tokenizer's holds. */
static void check_marks(void)
{
    rig r = { 0 };
    exl2_error error;
    make_as(F16);
    write_folder(1, false, "");
    add_file("tokenizer.json", "<image>", "<pixel>");
    CHECK_INT(open_folder(&r, &error), EXL2_ERR_FORMAT);
    CHECK(strstr(error.text, "no token '<image>'") != NULL);
    rig_close(&r);
    memory_free(&files);
    write_folder(1, false, "");
    for (uint32_t i = 0; i < files.count; i++) {
        char *at = strcmp(files.files[i].name, "config.json") == 0
                 ? strstr((char *)files.files[i].data, "\"image_token_id\": 309") : NULL;
        if (at) {
            memcpy(at + strlen("\"image_token_id\": "), "999", 3);
        }
    }
    add_file("tokenizer.json", NULL, NULL);
    check_same("an id beyond the vocabulary");
}

/* Another layer's output than the last one's: sums of the first and the last row and of all squares by transformers
   5.24 in float64 (get_image_features with vision_feature_layer; the size and the pixels are those of its Pillow
   processor). */
static void check_layer(const char *name, const char *layer, double first, double last, double squares)
{
    double sums[3] = { 0 };
    size_t count = 0;
    family = name;
    drop(source, &source_count);
    read_source();
    make_as(F16);
    write_folder(1, false, "");
    for (uint32_t i = 0; i < files.count; i++) {
        memory_file *f = &files.files[i];
        char *at = strcmp(f->name, "config.json") == 0 ? strstr((char *)f->data, "\"vision_feature_layer\": -1") : NULL;
        if (at) {
            memcpy(at + strlen("\"vision_feature_layer\": "), layer, 2);
        }
    }
    encode(got, &count, layer);
    for (size_t i = 0; i < count; i++) {
        sums[0] += i < 64 ? (double)got[i] : 0;
        sums[1] += i + 64 >= count ? (double)got[i] : 0;
        sums[2] += (double)got[i] * (double)got[i];
    }
    if (!CHECK(fabs(sums[0] - first) < 2e-3 && fabs(sums[1] - last) < 2e-3 && fabs(sums[2] - squares) < 0.1)) {
        printf("  %s, layer %s: %f %f %f\n", name, layer, sums[0], sums[1], sums[2]);
    }
}

static void check_family(const char *name)
{
    family = name;
    drop(source, &source_count);
    read_source();
    make_as(F16);
    write_folder(1, false, "");
    encode(wanted, &wanted_count, "F16");
    if (strcmp(name, "smolvlm") == 0) {
        check_not_finite();
        check_marks();
        make_as(F16);
    }
    write_folder(3, false, "");
    check_same("three shards");
    write_folder(3, true, "");
    check_same("three shards with an index");
    make_as(F32);
    write_folder(1, false, "");
    check_same("F32");
    make_as(MIXED);
    write_folder(2, true, "");
    check_same("F16 and F32");
    check_quantized(true);
    check_quantized(false);
    make_as(F32_OF_BF16);
    write_folder(1, false, "");
    encode(got, &wanted_count, "rounded");
    CHECK(memcmp(got, wanted, wanted_count * sizeof *got) != 0);
    memcpy(wanted, got, sizeof wanted);
    make_as(BF16);
    write_folder(1, false, "");
    check_same("BF16");
    make_as(MIXED_OF_BF16);
    write_folder(3, false, "");
    check_same("BF16 and F32");
    check_exl3(false);
    check_padded();
    if (strcmp(name, "qwen3-vl") == 0) {
        check_exl3(true);
    }
}

int main(void)
{
    check_family("smolvlm");
    check_family("gemma3");
    check_family("qwen3-vl");
    check_family("llava-clip");
    check_family("pixtral");
    check_layer("pixtral", "-1", 21.573541, 23.668135, 5562.085278);
    check_layer("pixtral", "-2", 23.407892, 23.801256, 4956.817010);
    check_layer("pixtral", " 1", 18.216211, 12.588389, 2184.306160);
    check_layer("mistral3", "-2", 3.625831, 1.517696, 434.105649);
    drop(made, &made_count);
    drop(source, &source_count);
    return check_done();
}
