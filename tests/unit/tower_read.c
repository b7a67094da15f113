/* tower_read.c: towers whose files are wrong: a tensor that is missing, left over, quantized, of another type or shape,
   cut, or not finite. Each gives its code and one sentence, and nothing stays open or allocated. */
#include "../memory_files.h"

#include "private/tower_read.h"
#include "private/tower_run.h"
#include "private/vision_read.h"

#define FC1 "model.vision_model.encoder.layers.1.mlp.fc1"
#define NORM "model.vision_model.encoder.layers.1.layer_norm1"

typedef struct model { /* a safetensors file */
    char *header;
    uint8_t *data;
    size_t data_bytes;
} model;

static char *config, *pre;
static size_t config_bytes, pre_bytes;
static model good;

static void load_fixture(void)
{
    size_t bytes, header;
    uint8_t *file = (uint8_t *)check_read(check_shared("fixtures/vision/smolvlm/model.safetensors"), &bytes);
    config = check_read(check_shared("fixtures/vision/smolvlm/config.json"), &config_bytes);
    pre = check_read(check_shared("fixtures/vision/smolvlm/preprocessor_config.json"), &pre_bytes);
    header = (size_t)exl2__load64(file);
    good.header = (char *)calloc(header + 1, 1);
    memcpy(good.header, file + 8, header);
    good.data_bytes = bytes - 8 - header;
    good.data = (uint8_t *)malloc(good.data_bytes);
    memcpy(good.data, file + 8 + header, good.data_bytes);
    free(file);
}

/* The header with `from` replaced by `to`, after the place of `after`; free it. */
static char *with(const char *after, const char *from, const char *to)
{
    const char *begin = strstr(good.header, after), *at = begin ? strstr(begin, from) : NULL;
    char *out = (char *)calloc(strlen(good.header) + strlen(to) + 1, 1);
    if (CHECK(at != NULL)) {
        memcpy(out, good.header, (size_t)(at - good.header));
        strcat(out, to);
        strcat(out, at + strlen(from));
    }
    return out;
}

/* Where the data of a tensor begin. */
static size_t offset_of(const char *name)
{
    const char *at = strstr(good.header, name);
    at = at ? strstr(at, "\"data_offsets\"") : NULL;
    at = at ? strchr(at, '[') : NULL;
    CHECK(at != NULL);
    return at ? (size_t)strtoull(at + 1, NULL, 10) : 0;
}

static void add_model(memory_files *m, const char *header, size_t cut)
{
    size_t bytes = strlen(header);
    uint8_t *file = (uint8_t *)malloc(8 + bytes + good.data_bytes);
    exl2__store64(file, bytes);
    memcpy(file + 8, header, bytes);
    memcpy(file + 8 + bytes, good.data, good.data_bytes);
    memory_add(m, "config.json", config, config_bytes);
    memory_add(m, "preprocessor_config.json", pre, pre_bytes);
    memory_add(m, "model.safetensors", file, 8 + bytes + good.data_bytes - cut);
    free(file);
}

/* Reads the tower, and encodes a picture with it. */
static exl2_result use(memory_files *m, const char *header, size_t cut)
{
    static exl2__config text;
    static exl2__tower t;
    exl2__vision_config v;
    exl2__tower_reader r = { 0 };
    exl2__work all = exl2__work_all();
    exl2__arena weights = { 0 }, scratch = { 0 }, dry = { 0 };
    exl2__device *cpu = NULL;
    exl2__vision_limits limits = { 64, 1 };
    exl2__vision_size size;
    text.hidden = 64;
    text.norm_eps = 1e-5f;
    memory_make(m);
    add_model(m, header, cut);
    CHECK_INT(exl2__vision_config_read(&m->c, "models/x", &text, &v), EXL2_OK);
    CHECK_INT(exl2__cpu_backend.open(&m->c, NULL, &cpu), EXL2_OK);
    exl2__tower_read_begin(&r, &m->c, &t, &v, "models/x", NULL, NULL);
    exl2_result result = exl2__tower_read_headers(&r, &all);
    result = result < 0 ? result : exl2__arena_open(&m->c, &weights, t.weight_bytes, EXL2_MEM_WEIGHTS);
    result = result < 0 ? result : exl2__tower_read_weights(&r, &weights, &all);
    exl2__tower_read_end(&r);
    if (result >= 0) {
        exl2__tower_prepare(&t, cpu, &limits, &dry);
        CHECK_INT(exl2__arena_open(&m->c, &scratch, dry.used, EXL2_MEM_SCRATCH), EXL2_OK);
        exl2__tower_prepare(&t, cpu, &limits, &scratch);
        CHECK_INT(exl2__vision_sizes(&m->c, &v, &limits, 64, 64, 0, 0, &size), EXL2_OK);
        uint8_t *seen = (uint8_t *)calloc((size_t)size.seen_bytes, 1);
        float *rows = (float *)calloc((size_t)size.rows * v.hidden, sizeof *rows);
        exl2__tower_begin(&t, &size, seen, rows);
        result = exl2__tower_step(&t, 0);
        free(seen);
        free(rows);
    }
    exl2__arena_close(&m->c, &weights);
    exl2__arena_close(&m->c, &scratch);
    exl2__cpu_backend.close(cpu);
    memory_free(m);
    return result;
}

static void bad(char *header, size_t cut, exl2_result code, const char *piece, const char *other)
{
    memory_files m;
    if (!CHECK_INT(use(&m, header, cut), code)) {
        printf("  %s\n", m.c.error.text);
    }
    check_error(&m.c, piece, other, "a tower");
    free(header);
}

int main(void)
{
    memory_files m;
    load_fixture();
    CHECK_INT(use(&m, good.header, 0), EXL2_OK);
    bad(with(FC1, "fc1.weight", "fc1.weighs"), 0, EXL2_ERR_FORMAT, "mlp.fc1.weight'", "is missing");
    bad(with(NORM, "layer_norm1.bias", "layer_norm1.bibs"), 0, EXL2_ERR_FORMAT, "layer_norm1", "is missing");
    bad(with(FC1, "fc1.bias", "fc1.bibs"), 0, EXL2_ERR_UNSUPPORTED, "fc1.bibs", "no use in the tower of SmolVLM");
    bad(with(FC1, "fc1.weight", "fc1.q_weight"), 0, EXL2_ERR_UNSUPPORTED, "mlp.fc1", "quantized");
    bad(with(FC1, "fc1.weight", "fc1.trellis"), 0, EXL2_ERR_FORMAT, "mlp.fc1.trellis", "expected I16 of rank 3");
    bad(with(FC1 ".weight", "[72,48]", "[48,72]"), 0, EXL2_ERR_FORMAT, "mlp.fc1.weight", "wrong shape");
    bad(with(FC1 ".weight", "\"F16\"", "\"I16\""), 0, EXL2_ERR_UNSUPPORTED, "mlp.fc1.weight", "I16");
    bad(with("", "model.connector.", "model.connectos."), 0, EXL2_ERR_FORMAT, "projector.modality_projection",
        "is missing");
    bad(with("", "{", "{"), 2, EXL2_ERR_FORMAT, "truncated", "model.safetensors");
    size_t at = offset_of(NORM ".weight");
    uint8_t kept[2];
    memcpy(kept, good.data + at, 2);
    memcpy(good.data + at, "\x00\x7E", 2); /* NaN */
    bad(with("", "{", "{"), 0, EXL2_ERR_FORMAT, "layer_norm1.weight", "not finite");
    memcpy(good.data + at, kept, 2);
    memcpy(good.data + offset_of(FC1 ".weight"), "\x00\x7E", 2); /* of a matrix: the picture's job ends alone */
    bad(with("", "{", "{"), 0, EXL2_ERR_FORMAT, "rows of a picture", "not finite");
    free(good.header);
    free(good.data);
    free(config);
    free(pre);
    return check_done();
}
