/* vision.c: `exl2 vision` from outside: what it says of pictures of the shared fixtures, the picture that it writes,
   byte by byte, the rows; its messages.
   takes: vision PROGRAM FOLDER.
   gives: exit code 0, 1, or 77 without the fixtures or stb_image.
   owns:  FOLDER. */
#include "../../demo/common/text_file.c"

#if defined(__has_include)
#if __has_include(<stb/stb_image.h>)
#define HAVE_STB_IMAGE
#endif
#endif
#include "../../demo/common/folder.c"
#include "../../demo/common/picture_file.c"
#include "program.h"

#define FIXTURES "fixtures/vision"

static picture_file read_picture(const char *path)
{
    char error[256] = "";
    picture_file p;
    if (!CHECK(picture_file_read(path, &p, error, sizeof error))) {
        printf("  %s: %s\n", path, error);
        exit(1);
    }
    return p;
}

/* The first row of the file is that of the golden. */
static void check_rows(const char *path, const json_value *wanted, size_t rows)
{
    size_t bytes = 0;
    char *data = check_read(path, &bytes);
    const json_value *value = wanted ? wanted->child : NULL;
    CHECK_INT(bytes, rows * wanted->child_count * sizeof(float));
    for (size_t i = 0; value; value = value->next, i++) {
        float x;
        memcpy(&x, data + i * sizeof x, sizeof x);
        CHECK(fabs((double)x - value->number) < 2e-4);
    }
    free(data);
}

/* One picture, and the first prompt of the golden, which has it. */
static void check_picture(const char *root, const char *model)
{
    char path[1200], seen[1200], rows[1200], *golden_text, *text;
    snprintf(path, sizeof path, "%s/%s/golden.json", root, model);
    golden_text = check_read(path, NULL);
    json_value *golden = program_parse(golden_text, strlen(golden_text));
    const json_value *prompt = json_member(golden, "prompts")->child;
    const char *name = json_member(prompt, "images")->child->text;
    const json_value *facts = json_member(json_member(golden, "pictures"), name);
    snprintf(seen, sizeof seen, "%s/seen.png", folder);
    snprintf(rows, sizeof rows, "%s/rows.f32", folder);
    int code = program_run("vision '%s/%s' '%s/images/%s' --seen '%s' --rows '%s' --json --threads 2", root, model,
                           root, name, seen, rows);
    json_value *out = program_json(code, &text);
    const json_value *said = out->child;
    CHECK(program_number(said, "width") == program_number(facts, "width"));
    CHECK(program_number(said, "height") == program_number(facts, "height"));
    CHECK(program_number(said, "tiles") == program_number(facts, "tiles"));
    CHECK(program_number(said, "rows") == program_number(prompt, "rows"));
    CHECK(program_number(said, "tokens") >= program_number(said, "rows"));
    CHECK(program_number(said, "encode_ms") > 0 && strlen(program_text(said, "id")) == 32);
    snprintf(path, sizeof path, "%s/%s/seen/%s", root, model, name);
    picture_file got = read_picture(seen), wanted = read_picture(path);
    CHECK(got.width == wanted.width && got.height == wanted.height && got.channels == 3 && wanted.channels == 3);
    CHECK(memcmp(got.pixels, wanted.pixels, (size_t)got.width * got.height * 3) == 0);
    check_rows(rows, json_member(prompt, "embeddings_first"), (size_t)program_number(said, "rows"));
    picture_file_close(&got);
    picture_file_close(&wanted);
    json_free(out);
    json_free(golden);
    free(golden_text);
    free(text);
}

/* The greedy ids of the first prompts of the golden, from ids and from text, with all pictures of the last one. */
static void check_generate(const char *root, const char *model)
{
    char path[1024], *golden_text, *text;
    snprintf(path, sizeof path, "%s/%s/golden.json", root, model);
    golden_text = check_read(path, NULL);
    json_value *golden = program_parse(golden_text, strlen(golden_text));
    for (const json_value *prompt = json_member(golden, "prompts")->child; prompt; prompt = prompt->next) {
        const json_value *list = json_member(prompt, "ids"), *wanted = json_member(prompt, "greedy");
        char flags[3500] = "", *ids = memory_copy_text(list->raw + 1, list->raw_bytes - 2), *to = ids;
        if (strcmp(program_text(prompt, "name"), "one-0") != 0 && strcmp(program_text(prompt, "name"), "two") != 0) {
            free(ids);
            continue;
        }
        for (const char *from = ids; *from; from++) { /* without blanks */
            *to = *from;
            to += *from != ' ';
        }
        *to = 0;
        for (const json_value *image = json_member(prompt, "images")->child; image; image = image->next) {
            snprintf(flags + strlen(flags), sizeof flags - strlen(flags), " --image '%s/images/%s'", root, image->text);
        }
        int code = program_run("generate '%s/%s' --ids %s%s --max %zu --temperature 0 --json --backend cpu", root,
                               model, ids, flags, wanted->child_count);
        json_value *out = program_json(code, &text);
        const json_value *got = json_member(out, "ids")->child;
        for (const json_value *id = wanted->child; id; id = id->next, got = got ? got->next : NULL) {
            CHECK(got && (int)got->number == (int)id->number);
        }
        CHECK(program_number(json_member(out, "stats"), "image_rows") == program_number(prompt, "rows"));
        json_free(out);
        free(text);
        free(ids);
    }
    json_free(golden);
    free(golden_text);
}

/* Pictures of a chat are those of `generate`, also in the second turn; the tower is loaded for --images alone. */
static void check_chat(const char *root)
{
    char lines[4096], *said, *wanted;
    snprintf(lines, sizeof lines, "/image %s/images/gray-64x64.png\n/image %s/images/alpha-50x70.png\nWhat is it?\n",
             root, root);
    program_write("typed", lines);
    CHECK_INT(program_run("chat '%s/smolvlm' --images 2 --temperature 0 --max 8 --backend cpu <'%s/typed'", root,
                          folder), 0);
    said = program_read("out");
    CHECK_INT(program_run("generate '%s/smolvlm' --chat --prompt 'What is it?' --image '%s/images/gray-64x64.png' "
                          "--image '%s/images/alpha-50x70.png' --temperature 0 --max 8 --backend cpu", root, root,
                          root), 0);
    wanted = program_read("out");
    CHECK_TEXT(said, wanted);
    free(said);
    program_write("typed", "What is it?\n");
    CHECK_INT(program_run("chat '%s/smolvlm' --image '%s/images/gray-64x64.png' --image '%s/images/alpha-50x70.png' "
                          "--temperature 0 --max 8 --backend cpu <'%s/typed'", root, root, root, folder), 0);
    said = program_read("out");
    CHECK_TEXT(said, wanted);
    free(said);
    free(wanted);
    /* Both are closed by /reset, so that there is room for two others. */
    snprintf(lines, sizeof lines, "/image %s/images/gray-64x64.png\nHello\n/image %s/images/alpha-50x70.png\n/reset\n"
             "/image %s/images/noise-17x150.png\n/image %s/images/text-93x61.png\nAnd now?\nReally?\n", root, root,
             root, root);
    program_write("typed", lines);
    CHECK_INT(program_run("chat '%s/smolvlm' --images 2 --max 4 --context 200 --backend cpu <'%s/typed'", root,
                          folder), 0);
    program_sentence(program_run("chat '%s/smolvlm' --backend cpu <'%s/typed'", root, folder), 1, "give --images N");
}

/* Ids with a mark, as the model reads them; a row has no likelihood. */
static void check_score(const char *root)
{
    char path[1024], *golden_text, *text;
    snprintf(path, sizeof path, "%s/smolvlm/golden.json", root);
    golden_text = check_read(path, NULL);
    json_value *golden = program_parse(golden_text, strlen(golden_text));
    const json_value *prompt = json_member(golden, "prompts")->child, *ids = json_member(prompt, "ids");
    const json_value *wanted = json_member(prompt, "ids_expanded"), *sums = json_member(prompt, "logsumexp");
    char *list = memory_copy_text(ids->raw, ids->raw_bytes);
    program_write("ids", list);
    snprintf(path, sizeof path, "--image '%s/images/%s'", root, json_member(prompt, "images")->child->text);
    json_value *out = program_json(program_run("score '%s/smolvlm' --ids-file '%s/ids' %s --json --top 1 --backend cpu",
                                               root, folder, path), &text);
    const json_value *got = json_member(out, "ids"), *sum = json_member(out, "logsumexp")->child;
    double rows = program_number(prompt, "rows"), row = item(wanted, 9)->number;
    CHECK(program_number(out, "image_rows") == rows);
    CHECK_INT(got->child_count, wanted->child_count);
    CHECK(json_member(out, "logsumexp")->child_count + (size_t)rows + 1 == wanted->child_count);
    for (size_t i = 0; i < wanted->child_count; i++) {
        CHECK(item(got, i)->number == item(wanted, i)->number);
        if (i > 0 && item(wanted, i)->number != row && CHECK(sum != NULL)) {
            CHECK(fabs(sum->number - item(sums, i - 1)->number) < 0.02);
            sum = sum->next;
        }
    }
    CHECK(program_number(out, "nll") > 5 && program_number(out, "nll") < 15);
    json_free(out);
    json_free(golden);
    free(golden_text);
    free(list);
    free(text);
    program_sentence(program_run("score '%s/smolvlm' --ids-file '%s/ids' %s %s --backend cpu", root, folder, path,
                                 path), 1, "1 marks for pictures ('<image>') and 2 pictures");
    program_sentence(program_run("score '%s/smolvlm' --text-file '%s/ids' %s", root, folder, path), 2,
                     "--image needs --ids-file");
}

/* Pictures of a script: of a prompt, of a message, kept, saved with their session; files that are not there. */
static void check_replay(const char *root)
{
    static const char *const errors[] = { "", "", "", "", "", "", "EXL2_ERR_IO", "EXL2_ERR_ARG", "EXL2_ERR_ARG",
                                          "EXL2_ERR_BUDGET", "", "", "", "", "", "" };
    char script[8192], *text, *line;
    json_value *said[2] = { NULL, NULL };
    snprintf(script, sizeof script,
             "{\"op\":\"open\",\"s\":\"a\"}\n"
             "{\"op\":\"image\",\"file\":\"%s/images/gray-64x64.png\"}\n"
             "{\"op\":\"say\",\"s\":\"a\",\"text\":\"A<image>B\",\"images\":[\"%s/images/gray-64x64.png\"],"
             "\"max\":2}\n"
             "{\"op\":\"save\",\"s\":\"a\",\"file\":\"%s/saved\"}\n"
             "{\"op\":\"open\",\"s\":\"b\"}\n"
             "{\"op\":\"load\",\"s\":\"b\",\"file\":\"%s/saved\"}\n"
             "{\"op\":\"say\",\"s\":\"a\",\"text\":\"x\",\"images\":[\"none.png\"],\"max\":2}\n"
             "{\"op\":\"say\",\"s\":\"a\",\"text\":\"x\",\"images\":[7],\"max\":2}\n"
             "{\"op\":\"image\"}\n", root, root, folder, folder);
    snprintf(script + strlen(script), sizeof script - strlen(script),
             "{\"op\":\"say\",\"s\":\"a\",\"text\":\"x\",\"images\":[\"%s/images/text-93x61.png\","
             "\"%s/images/alpha-50x70.png\"],\"max\":2}\n"
             "{\"op\":\"images_close\"}\n"
             "{\"op\":\"say\",\"s\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":"
             "[\"%s/images/text-93x61.png\"]}],\"images\":[\"%s/images/alpha-50x70.png\"],\"max\":2}\n"
             "{\"op\":\"open\",\"s\":\"c\"}\n"
             "{\"op\":\"say\",\"s\":\"b\",\"text\":\" And then?\",\"max\":8,\"greedy\":true}\n"
             "{\"op\":\"load\",\"s\":\"c\",\"file\":\"%s/saved\"}\n"
             "{\"op\":\"say\",\"s\":\"c\",\"text\":\" And then?\",\"max\":8,\"greedy\":true}\n", root, root, root, root,
             folder);
    program_write("script", script);
    CHECK_INT(program_run("replay '%s/smolvlm' '%s/script' --images 2 --backend cpu", root, folder), 0);
    line = text = program_read("out");
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        char *end = strchr(line, '\n');
        json_value *answer = program_parse(line, end ? (size_t)(end - line) : strlen(line));
        const char *error = program_text(answer, "error");
        CHECK_TEXT(error ? error : "", errors[i]);
        CHECK((i != 2 && i != 11) || program_number(answer, "image_rows") == (i == 2 ? 20 : 40));
        if (i == 13 || i == 15) {
            said[i == 15] = answer;
        } else {
            json_free(answer);
        }
        line = end ? end + 1 : line + strlen(line);
    }
    const json_value *a = json_member(said[0], "ids"), *b = json_member(said[1], "ids");
    CHECK(a && b && a->child_count == 8 && a->raw_bytes == b->raw_bytes && memcmp(a->raw, b->raw, a->raw_bytes) == 0);
    json_free(said[0]);
    json_free(said[1]);
    free(text);
}

static void check_sentences(const char *root)
{
    char *out, command[4096];
    CHECK_INT(program_run("vision '%s/smolvlm' '%s/images/gray-64x64.png' '%s/images/alpha-50x70.png' --max-tiles 1",
                          root, root, root), 0);
    out = program_read("out");
    CHECK(strstr(out, "gray-64x64.png: 64 x 64, seen as 1 tile of 64 x 64; 4 rows") != NULL);
    CHECK(strstr(out, "alpha-50x70.png: 50 x 70, seen as 1 tile of 64 x 64; 4 rows") != NULL);
    free(out);
    program_sentence(program_run("generate '%s/smolvlm' --prompt 'What is it?' --image none.png", root), 1,
                     "none.png: No such file");
    program_sentence(program_run("vision '%s/smolvlm' none.png", root), 1, "none.png: No such file");
    program_sentence(program_run("vision '%s/smolvlm' '%s/README.md'", root, root), 1, "not a picture of a format");
    program_sentence(program_run("vision '%s/smolvlm'", root), 2, "FILE is missing");
    program_sentence(program_run("vision '%s/smolvlm' a.png b.png --seen x.png", root), 2, "of one picture, not of 2");
    program_sentence(program_run("vision '" EXL2_GOLDEN_DIR "/models/exl2-4bit' '%s/images/gray-64x64.png'", root), 1,
                     "no tower for pictures");
    snprintf(command, sizeof command, "head -c 100 '%s/images/gray-64x64.png' >'%s/cut.png'", root, folder);
    CHECK_INT(system(command), 0);
    program_sentence(program_run("vision '%s/smolvlm' '%s/cut.png'", root, folder), 1, "cut.png: it cannot be decoded");
    program_write("long.ppm", "P6 1 300 255 ");
    snprintf(command, sizeof command, "head -c 900 /dev/zero >>'%s/long.ppm'", folder);
    CHECK_INT(system(command), 0);
    program_sentence(program_run("vision '%s/qwen2-vl' '%s/long.ppm'", root, folder), 1, "200 times");
}

int main(int argc, char **argv)
{
    static const char *const models[] = { "smolvlm", "qwen2.5-vl", "gemma3", "pixtral" };
    char root[600];
    if (argc != 3) {
        printf("usage: vision PROGRAM FOLDER\n");
        return 1;
    }
    snprintf(root, sizeof root, "%s", check_shared(FIXTURES "/README.md"));
    *strrchr(root, '/') = 0;
#ifndef HAVE_STB_IMAGE
    check_skip("no stb_image, which reads the pictures (Debian: libstb-dev)");
#endif
    program_set(argv[1], argv[2]);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        check_picture(root, models[i]);
    }
    check_generate(root, "smolvlm");
    check_generate(root, "qwen2.5-vl");
    check_chat(root);
    check_score(root);
    check_replay(root);
    check_sentences(root);
    return check_done();
}
