/* generate.c: texts that the program exl2 generates with --schema, --grammar, --regex and --choices, and its messages
   about them. Also replies of npc by a model with random weights, and control vectors: exl2 steer, and --steer.
   takes: generate PROGRAM FOLDER NPC: the program, a folder to write to, the program npc.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

/* A model with random weights generates what the grammar allows. */
static void check_grammars(const char *model)
{
    char *text, *out;
    program_write("schema", "{\"type\":\"object\",\"properties\":{\"say\":{\"type\":\"string\",\"maxLength\":20},"
                            "\"act\":{\"enum\":[\"wave\",\"caf\\u00e9\"]}},\"required\":[\"say\",\"act\"]}");
    program_write("ebnf", "root ::= (\"a\" | \"b\"){3}\n");
    program_write("lines", "the key\nthe crown\n");
    program_write("bad", "{\"contains\":{}}");
    program_write("loose", "{\"type\":\"null\",\"x-a\":1}");
    json_value *said = program_json(program_run("generate '%s' --prompt Hello --schema '%s/schema' --max 80 "
                                                "--temperature 1.5 --seed 4 --json", model, folder), &text);
    CHECK_TEXT(program_text(said, "stop"), "grammar");
    out = memory_copy_text(program_text(said, "text"), strlen(program_text(said, "text")));
    json_value *value = program_parse(out, strlen(out));
    const char *act = program_text(value, "act");
    CHECK(program_text(value, "say") && act && (strcmp(act, "wave") == 0 || strcmp(act, "caf\xC3\xA9") == 0));
    json_free(value);
    json_free(said);
    free(out);
    free(text);
    CHECK_INT(program_run("generate '%s' --prompt Hello --grammar '%s/ebnf'", model, folder), 0);
    out = program_read("out");
    CHECK(strspn(out, "ab") == 3 && strcmp(out + 3, "\n") == 0);
    free(out);
    CHECK_INT(program_run("generate '%s' --prompt Hello --choices '%s/lines' --max 8", model, folder), 0);
    out = program_read("out");
    CHECK(strcmp(out, "the key\n") == 0 || strcmp(out, "the crown\n") == 0);
    free(out);
    CHECK_INT(program_run("generate '%s' --prompt Hello --regex '[0-9]{4}-[0-9]{2}'", model), 0);
    out = program_read("out");
    CHECK(strlen(out) == 8 && strspn(out, "0123456789-") == 7 && out[4] == '-');
    free(out);
    CHECK_INT(program_run("generate '%s' --prompt Hello --regex '[a-z]{4}' --regex '(ab|c)*' --regex '[^c]+'", model),
              0);
    out = program_read("out");
    CHECK_TEXT(out, "abab\n");
    free(out);
    program_sentence(program_run("generate '%s' --prompt a --schema '%s/bad'", model, folder), 1,
                     "schema line 1, column 3, #/contains: the keyword is not supported; found: contains");
    program_sentence(program_run("generate '%s' --prompt a --schema '%s/loose' --strict", model, folder), 1,
                     "schema line 1, column 17, #/x-a: the keyword is not supported; found: x-a");
    program_sentence(program_run("generate m --prompt a --strict"), 2, "--strict needs --schema");
    CHECK_INT(program_run("generate '%s' --prompt Hello --schema '%s/loose'", model, folder), 0);
    out = program_read("out");
    CHECK(strcmp(out, "null\n") == 0);
    free(out);
    program_sentence(program_run("generate '%s' --prompt a --regex 'a{9}' --max 3", model), 1, "at least");
}

/* The numbers that a run of `exl2 embed` prints. */
static uint32_t read_state(const char *model, const char *text, uint32_t layer, double *out, uint32_t cap)
{
    CHECK_INT(program_run("embed '%s' --text '%s' --layer %u --no-unit --pool last", model, text, layer), 0);
    char *numbers = program_read("out"), *at = numbers;
    uint32_t count = 0;
    for (char *end; count < cap && (out[count] = strtod(at, &end), end != at); at = end) {
        count++;
    }
    free(numbers);
    return count;
}

/* The vector of layer 2 in a file is the difference of the residuals after it, which `exl2 embed` prints, too. */
static void check_vector(const char *model, const char *path, const char *plus, const char *minus)
{
    static double a[1024], b[1024];
    uint32_t width = read_state(model, plus, 3, a, 1024);
    CHECK(width > 0 && read_state(model, minus, 3, b, 1024) == width);
    size_t bytes;
    char *file = check_read(path, &bytes);
    uint64_t header;
    memcpy(&header, file, sizeof header);
    const char *entry = strstr(file + 8, "\"direction.2\"");
    const char *offsets = entry ? strstr(entry, "data_offsets\":[") : NULL;
    size_t at = offsets ? (size_t)strtoul(offsets + 15, NULL, 10) : SIZE_MAX;
    for (uint32_t i = 0; i < width && CHECK(at < bytes); i++) {
        float value;
        memcpy(&value, file + 8 + header + at + 4 * i, sizeof value);
        CHECK(fabs((double)value - (a[i] - b[i])) <= 1e-4 * (1 + fabs(a[i])));
    }
    free(file);
}

/* Vectors of pairs of texts: both kinds of files say the same, and change what is generated. */
static void check_steer(const char *model)
{
    static const char *const flags[] = { "", "--steer '%s/v.gguf:20'", "--steer '%s/v.safetensors:20'",
                                         "--steer '%s/pca.gguf:20'", "--steer '%s/v.gguf:0'" };
    char *said[5], path[1100], flag[1200];
    program_write("plus", "I am afraid\n");
    program_write("minus", "I am calm\n");
    program_write("many", "I am calm\n\nI am glad\n");
    CHECK_INT(program_run("steer '%s' '%s/v.gguf' --plus '%s/plus' --minus '%s/minus'", model, folder, folder, folder),
              0);
    CHECK_INT(program_run("steer '%s' '%s/v.safetensors' --plus '%s/plus' --minus '%s/minus'", model, folder, folder,
                          folder), 0);
    CHECK_INT(program_run("steer '%s' '%s/pca.gguf' --plus '%s/plus' --minus '%s/minus' --pca", model, folder, folder,
                          folder), 0); /* of one pair: the same vector */
    for (uint32_t i = 0; i < 5; i++) {
        snprintf(flag, sizeof flag, flags[i], folder);
        CHECK_INT(program_run("generate '%s' --prompt Hello --greedy --max 12 %s", model, flag), 0);
        said[i] = program_read("out");
    }
    CHECK(strcmp(said[0], said[1]) != 0 && strcmp(said[0], said[4]) == 0);
    CHECK_TEXT(said[2], said[1]);
    CHECK_TEXT(said[3], said[1]);
    for (uint32_t i = 0; i < 5; i++) {
        free(said[i]);
    }
    snprintf(path, sizeof path, "%s/v.safetensors", folder);
    check_vector(model, path, "I am afraid", "I am calm");
    program_sentence(program_run("steer '%s' '%s/x.gguf' --plus '%s/plus' --minus '%s/many'", model, folder, folder,
                                 folder), 1, "has 1 texts, but");
    program_sentence(program_run("steer m x.gguf --plus a"), 2, "give both --plus and --minus");
    program_sentence(program_run("steer m x.bin --plus a --minus b"), 2, "neither in .gguf nor in .safetensors");
    program_sentence(program_run("generate '%s' --prompt a --steer '%s/none.gguf'", model, folder), 1, "no none.gguf");
}

int main(int argc, char **argv)
{
    char model[1100];
    if (argc != 4) {
        printf("usage: generate PROGRAM FOLDER NPC\n");
        return 1;
    }
    program_set(argv[1], argv[2]);
    snprintf(model, sizeof model, "%s/model", folder);
    program_make_model(program, "model", 30, 1);
    check_grammars(model);
    check_steer(model);
    program_sentence(program_run("generate m --prompt a --regex a --regex b --regex c --regex d --choices f"), 2,
                     "give at most 4 of --schema");
    program_sentence(program_run("generate '%s' --prompt a --schema '%s/none'", model, folder), 1,
                     "none: No such file");
    snprintf(program, sizeof program, "%s", argv[3]);
    CHECK_INT(program_run("--model '%s' --turns 6 --threads 2 --cpu-us 100000 --json '%s/npc.json'", model, folder), 0);
    char *text = program_read("npc.json");
    json_value *report = program_parse(text, strlen(text));
    CHECK_INT(program_number(report, "turns"), 6);
    CHECK_INT(program_number(report, "invalid_turns"), 0);
    json_free(report);
    free(text);
    program_set(argv[1], argv[2]); /* the model is large */
    return check_done();
}
