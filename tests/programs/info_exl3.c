/* info_exl3.c: what `exl2 info` says of folders of EXL3: all of it, also where the parts of a matrix lie in different
   files; and `exl2 dump`. The figures were computed from the files by a program in Python.
   takes: info_exl3 PROGRAM FOLDER: the program exl2, a folder to write to. $EXL2_TEST_DATA: fixtures/exl3.
   gives: exit code 0, 1 or 77 without the fixtures.
   owns:  FOLDER. */
#include "program.h"

static const char qwen3[] = "{\"version\": \"1.6.5\", \"bits\": \"2.5\", \"head_bits\": \"6\", "
    "\"average\": 3.19444444, \"average_without_head\": 2.82291667, \"head\": 6.16666667, \"embedding\": 5.1125, "
    "\"rates\": [{\"bits\": 1.5, \"matrices\": 2}, {\"bits\": 2, \"matrices\": 2}, {\"bits\": 2.5, \"matrices\": 4}, "
    "{\"bits\": 3, \"matrices\": 2}, {\"bits\": 3.5, \"matrices\": 3}, {\"bits\": 4, \"matrices\": 1}, "
    "{\"bits\": 6, \"matrices\": 1}], \"codebooks\": {\"3inst\": 0, \"mcg\": 0, \"mul1\": 15}, \"others\": []}";

static const struct { const char *name, *format, *text; } models[] = {
    { "exl3-llama", "exl3", "{\"version\": \"0.0.20\", \"bits\": \"4\", \"head_bits\": \"6\", \"average\": 4.90217391, "
      "\"average_without_head\": 4.7125, \"head\": 6.16666667, \"embedding\": 0, \"rates\": ["
      "{\"bits\": 1, \"matrices\": 1}, {\"bits\": 2, \"matrices\": 2}, {\"bits\": 3, \"matrices\": 2}, "
      "{\"bits\": 4, \"matrices\": 2}, {\"bits\": 5, \"matrices\": 2}, {\"bits\": 6, \"matrices\": 3}, "
      "{\"bits\": 7, \"matrices\": 2}, {\"bits\": 8, \"matrices\": 1}], "
      "\"codebooks\": {\"3inst\": 0, \"mcg\": 15, \"mul1\": 0}, \"others\": []}" },
    { "exl3-qwen3", "exl3", qwen3 },
    { "exl3-qwen2-padded", "exl3", /* signs of three matrices are one bit each, not 16 */
      "{\"version\": \"0.0.1\", \"bits\": \"4\", \"head_bits\": \"6\", \"average\": 3.89670139, "
      "\"average_without_head\": 3.62076823, \"head\": 6.10416667, \"embedding\": 0, \"rates\": ["
      "{\"bits\": 3, \"matrices\": 7}, {\"bits\": 4, \"matrices\": 7}, {\"bits\": 6, \"matrices\": 1}], "
      "\"codebooks\": {\"3inst\": 15, \"mcg\": 0, \"mul1\": 0}, \"others\": []}" },
    { "exl3-mixtral", "mixed", "{\"version\": \"1.6.5\", \"bits\": \"3\", \"head_bits\": \"6\", "
      "\"average\": 3.47794118, \"average_without_head\": 3.02419355, \"head\": 8.16666667, "
      "\"embedding\": 0, \"rates\": [{\"bits\": 2, \"matrices\": 13}, {\"bits\": 3, \"matrices\": 12}, "
      "{\"bits\": 4, \"matrices\": 6}, {\"bits\": 8, \"matrices\": 1}], "
      "\"codebooks\": {\"3inst\": 10, \"mcg\": 12, \"mul1\": 10}, \"others\": ["
      "\"model.layers.0.block_sparse_moe.gate.weight\", \"model.layers.0.self_attn.o_proj.weight\", "
      "\"model.layers.1.block_sparse_moe.gate.weight\"]}" },
};

static void check_info(const char *path, const char *format, const char *wanted)
{
    char *text;
    json_value *said = program_json(program_run("info '%s' --backend cpu --json", path), &text);
    const json_value *exl3 = json_member(said, "exl3");
    CHECK_TEXT(program_text(said, "format"), format);
    if (!CHECK(exl3 && exl3->raw_bytes == strlen(wanted) && memcmp(exl3->raw, wanted, exl3->raw_bytes) == 0)) {
        printf("  %s: %s\n", path, text);
    }
    json_free(said);
    free(text);
}

static uint64_t header_bytes(const uint8_t *file)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < 8; i++) {
        bytes |= (uint64_t)file[i] << (8 * i);
    }
    return bytes;
}

/* Writes FOLDER/name with the tensors of a file whose names end with .mul1 or .signs, or all others. */
static void write_shard(const uint8_t *file, const json_value *header, bool ends, const char *name)
{
    memory_text head = { 0 }, data = { 0 };
    const uint8_t *from = file + 8 + header_bytes(file);
    char path[1100];
    memory_text_format(&head, "{\"__metadata__\":{}");
    for (const json_value *t = header->child; t; t = t->next) {
        const json_value *places = json_member(t, "data_offsets");
        const char *end = strrchr(t->key, '.');
        if (!places || (end && (strcmp(end, ".mul1") == 0 || strcmp(end, ".signs") == 0)) != ends) {
            continue;
        }
        size_t begin = (size_t)places->child->number, bytes = (size_t)places->child->next->number - begin;
        const json_value *shape = json_member(t, "shape");
        memory_text_format(&head, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%.*s,\"data_offsets\":[%zu,%zu]}", t->key,
                           json_member(t, "dtype")->text, (int)shape->raw_bytes, shape->raw, data.bytes,
                           data.bytes + bytes);
        memory_text_add(&data, (const char *)from + begin, bytes);
    }
    memory_text_add(&head, "}       ", 1 + (7 - head.bytes % 8));
    uint8_t length[8];
    for (uint32_t i = 0; i < 8; i++) {
        length[i] = (uint8_t)(head.bytes >> 8 * i);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    CHECK(out && fwrite(length, 1, 8, out) == 8 && fwrite(head.data, 1, head.bytes, out) == head.bytes &&
          fwrite(data.data, 1, data.bytes, out) == data.bytes && fclose(out) == 0);
    free(head.data);
    free(data.data);
}

/* Codebooks and signs in another file than the words. */
static void check_shards(void)
{
    char command[4000];
    size_t bytes;
    uint8_t *file = (uint8_t *)check_read(check_shared("fixtures/exl3/exl3-qwen3/model.safetensors"), &bytes);
    json_value *header = program_parse((const char *)file + 8, (size_t)header_bytes(file));
    write_shard(file, header, false, "model-00001-of-00002.safetensors");
    write_shard(file, header, true, "model-00002-of-00002.safetensors");
    snprintf(command, sizeof command, "cp '%s' '%s'", check_shared("fixtures/exl3/exl3-qwen3/config.json"), folder);
    CHECK_INT(system(command), 0);
    check_info(folder, "exl3", qwen3);
    json_free(header);
    free(file);
}

static void check_dump(void)
{
    const char *model = check_env("EXL2_TEST_DATA");
    CHECK_INT(program_run("dump '%s/fixtures/exl3/exl3-llama' model.layers.0.mlp.down_proj '%s/m.f16'", model, folder),
              0);
    program_sentence(program_run("dump '%s/fixtures/exl3/exl3-llama' m '%s/n.f16'", model, folder), 2,
                     "there is no tensor m.trellis");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        printf("usage: info_exl3 PROGRAM FOLDER\n");
        return 1;
    }
    program_set(argv[1], argv[2]);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[1100];
        snprintf(path, sizeof path, "fixtures/exl3/%s/config.json", models[i].name);
        snprintf(path, sizeof path, "%s", check_shared(path));
        *strrchr(path, '/') = 0;
        check_info(path, models[i].format, models[i].text);
    }
    check_shards();
    check_dump();
    return check_done();
}
