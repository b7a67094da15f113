/* vision.c: pictures in programs: what `exl2 vision` says of those of the shared fixtures, the picture that it writes,
   byte by byte, the rows; chats, scores, scripts, conversions, figures, the tavern; messages.
   takes: vision PROGRAM FOLDER NPC: the programs exl2 and npc, a folder to write to.
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

/* The tavern with a tiny model that has room for it: a picture is shown, and the next question has none. */
static void check_look(const char *root, const char *npc)
{
    char command[8192], script[4096], exl2[sizeof program], *text;
    snprintf(command, sizeof command,
             "rm -rf '%s/seeing' && cp -r '%s/smolvlm' '%s/seeing' && chmod -R u+w '%s/seeing' && "
             "sed -i 's/\"max_position_embeddings\": 1024/\"max_position_embeddings\": 16384/' '%s/seeing/config.json'",
             folder, root, folder, folder, folder);
    CHECK_INT(system(command), 0);
    snprintf(script, sizeof script, "/look x.png\nmarla, good evening\n/look none.png\n"
             "/look %s/images/gray-64x64.png\nAnd now?\n/transcript %s/said\n", root, folder);
    program_write("script", script);
    snprintf(exl2, sizeof exl2, "%s", program);
    snprintf(program, sizeof program, "%s", npc);
    int code = program_run("--model '%s/seeing' --script '%s/script' --images 1 --context 16384 --threads 1 "
                           "--cpu-us 50000 --backend cpu --transcript '%s/said'", folder, folder, folder);
    text = program_read("out");
    CHECK_INT(code, 0);
    CHECK(strstr(text, "To whom?") != NULL && strstr(text, "none.png: No such file") != NULL);
    free(text);
    text = program_read("said");
    const char *look = strstr(text, "You, to Marla: Look at this. What do you see? [picture ");
    CHECK(look && strspn(strstr(look, "[picture ") + 9, "0123456789abcdef") == 32);
    CHECK(look && strstr(look, "\nMarla: ") && strstr(look, "You, to Marla: And now?\nMarla: "));
    if (code) {
        printf("%s\n", text);
    }
    free(text);
    snprintf(program, sizeof program, "%s", exl2);
}

/* What `info` says of a tower by its headers, and `bench` of its speed. */
static void check_figures(const char *root)
{
    char *text;
    json_value *out = program_json(program_run("info '%s/qwen2.5-vl' --json", root), &text);
    const json_value *tower = json_member(out, "tower"), *pictures = json_member(tower, "pictures");
    CHECK_TEXT(program_text(tower, "family"), "Qwen2.5-VL");
    CHECK(program_number(tower, "weight_bytes") > 100000 && program_number(tower, "image_bytes") > 1000000);
    CHECK(program_number(tower, "total_bytes") > program_number(out, "weight_bytes")
          + program_number(out, "scratch_bytes") + program_number(out, "cache_bytes"));
    CHECK(program_number(item(pictures, 0), "rows") == 36 && program_number(item(pictures, 1), "width") == 1280);
    json_free(out);
    free(text);
    CHECK_INT(program_run("info '%s/qwen2.5-vl'", root), 0);
    text = program_read("out");
    CHECK(strstr(text, "tower              of Qwen2.5-VL\n") != NULL);
    CHECK(strstr(text, "a picture  512 x 512 36 rows, 1 tile of 168 x 168") != NULL);
    free(text);
    out = program_json(program_run("bench '%s/smolvlm' --image 100x75 --prefill 0 --decode 0 --threads 1 --backend cpu "
                                   "--json", root), &text);
    const json_value *image = json_member(out, "image");
    CHECK(program_number(image, "width") == 100 && program_number(image, "tiles") == 5);
    CHECK(program_number(image, "tower_ms") > 0 && program_number(image, "tower_cpu_ms") > 0);
    CHECK(program_number(image, "tower_gflops") > 0 && program_number(image, "prefill_gflops") > 0);
    /* 5 tiles of 16 patches; 3 layers, 48 wide, MLP 72; 4 rows a tile from 192 to 64 */
    double tflop = 5 * (2.0 * 16 * 768 * 48 + 3 * (2.0 * 16 * 48 * (4 * 48 + 2 * 72) + 4.0 * 16 * 16 * 48)
                        + 2.0 * 4 * 192 * 64) * 1e-12;
    CHECK(fabs(program_number(image, "tflop") / tflop - 1) < 1e-6);
    json_free(out);
    free(text);
    program_sentence(program_run("bench '%s/smolvlm' --image 100", root), 2, "--image must be WxH");
}

/* A model that is converted sees as its source does: the same rows, bit for bit. */
static void check_convert(const char *root, const char *model, const char *rate)
{
    char path[1200], *a, *b;
    size_t bytes, wanted;
    snprintf(path, sizeof path, "rm -rf '%s/made'", folder);
    CHECK_INT(system(path), 0);
    CHECK_INT(program_run("convert '%s/%s' '%s/made' %s --backend cpu", root, model, folder, rate),
              0);
    CHECK_INT(program_run("vision '%s/made' '%s/images/gradient-100x75.png' --rows '%s/made.f32'", folder, root,
                          folder), 0);
    CHECK_INT(program_run("vision '%s/%s' '%s/images/gradient-100x75.png' --rows '%s/source.f32'", root, model, root,
                          folder), 0);
    snprintf(path, sizeof path, "%s/made.f32", folder);
    a = check_read(path, &bytes);
    snprintf(path, sizeof path, "%s/source.f32", folder);
    b = check_read(path, &wanted);
    CHECK(bytes == wanted && bytes > 1000 && memcmp(a, b, bytes) == 0);
    CHECK_INT(program_run("generate '%s/made' --chat --prompt 'What?' --image '%s/images/gradient-100x75.png' --max 3",
                          folder, root), 0);
    free(a);
    free(b);
}

/* Frames as tests/golden/video/make.py draws them, as files of the test's folder. Their flags, with blanks around. */
static void write_frames(uint32_t frames, uint32_t width, uint32_t height, char *flags, size_t cap)
{
    char path[1200];
    *flags = 0;
    for (uint32_t f = 0; f < frames; f++) {
        snprintf(path, sizeof path, "%s/frame%u.ppm", folder, f);
        FILE *file = fopen(path, "wb");
        fprintf(file, "P6 %u %u 255\n", width, height);
        for (uint32_t i = 0; i < width * height * 3; i++) {
            uint32_t c = i % 3, x = i / 3 % width, y = i / 3 / width;
            fputc((int)((x * (2 + c) + y * (3 + f) + (x * y >> 5) * (c + 1) + 40 * f) & 255), file);
        }
        CHECK_INT(fclose(file), 0);
        snprintf(flags + strlen(flags), cap - strlen(flags), " --image '%s' ", path);
    }
}

/* A video of files: its counts, and the greedy ids and log-sum-exps of the golden. */
static void check_video(const char *root)
{
    char flags[8192], names[8192], *golden_text, *text, *list;
    golden_text = check_read(EXL2_GOLDEN_DIR "/video/qwen2.5-vl.json", NULL);
    json_value *golden = program_parse(golden_text, strlen(golden_text));
    const json_value *prompt = json_member(golden, "prompts")->child, *wanted = json_member(prompt, "greedy");
    write_frames(5, 80, 60, flags, sizeof flags);
    snprintf(names, sizeof names, "%s", flags);
    for (char *at = names; (at = strstr(at, "--image")) != NULL;) {
        memset(at, ' ', 7);
    }
    json_value *out = program_json(program_run("vision '%s/qwen2.5-vl' %s --video --fps 1.5 --seen '%s/seen.png' "
                                               "--json", root, names, folder), &text);
    const json_value *said = out->child;
    CHECK_INT(out->child_count, 1);
    CHECK(program_number(said, "frames") == 5 && program_number(said, "fps") == 1.5);
    CHECK(program_number(said, "rows") == program_number(prompt, "rows") && program_number(said, "tiles") == 1);
    snprintf(names, sizeof names, "%s/seen.png", folder);
    picture_file seen = read_picture(names);
    CHECK(seen.width == program_number(said, "width") && seen.height == 5 * program_number(said, "height"));
    picture_file_close(&seen);
    json_free(out);
    free(text);
    list = memory_copy_text(json_member(prompt, "ids")->raw, json_member(prompt, "ids")->raw_bytes);
    program_write("ids", list);
    list[strlen(list) - 1] = 0;
    out = program_json(program_run("generate '%s/qwen2.5-vl' --ids %s %s --video --fps 1.5 --max %zu --temperature 0 "
                                   "--json --backend cpu", root, list + 1, flags, wanted->child_count), &text);
    const json_value *got = json_member(out, "ids")->child;
    for (const json_value *id = wanted->child; id; id = id->next, got = got ? got->next : NULL) {
        CHECK(got && (int)got->number == (int)id->number);
    }
    json_free(out);
    free(text);
    out = program_json(program_run("score '%s/qwen2.5-vl' --ids-file '%s/ids' %s --video --fps 1.5 --top 1 --json "
                                   "--backend cpu", root, folder, flags), &text);
    CHECK(program_number(out, "image_rows") == program_number(prompt, "rows"));
    CHECK_INT(json_member(out, "ids")->child_count, json_member(prompt, "ids_expanded")->child_count);
    const json_value *sum = json_member(out, "logsumexp")->child;
    CHECK(sum && fabs(sum->number - item(json_member(prompt, "logsumexp"), 0)->number) < 0.02);
    json_free(out);
    free(text);
    free(list);
    json_free(golden);
    free(golden_text);
    program_sentence(program_run("generate '%s/smolvlm' --prompt x %s --video", root, flags), 1,
                     "SmolVLM reads pictures, but no videos");
    program_sentence(program_run("generate '%s/qwen2-vl' --prompt x %s --image '%s/images/gray-64x64.png' --video",
                                 root, flags, root), 1,
                     "64 x 64 pixels and 1 channels, but the first one has 80 x 60 and 3");
    program_sentence(program_run("generate x --prompt x --video"), 2, "--video needs pictures");
    program_sentence(program_run("vision x a.png --fps 2"), 2, "--fps needs --video");
    program_sentence(program_run("vision x a.png --video --fps 2x"), 2, "--fps must be a number above 0");
    program_sentence(program_run("score x --ids-file y --image a.png --fps 2"), 2, "--fps needs --video");
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
    if (argc != 4) {
        printf("usage: vision PROGRAM FOLDER NPC\n");
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
    check_figures(root);
    check_convert(root, "smolvlm", "--bpw 6 --rows 2 --length 64");
    check_convert(root, "pixtral", "--bpw 5 --rows 2 --length 64");
    check_convert(root, "qwen3-vl", "--bpw 4 --rows 2 --length 64");
    check_look(root, argv[3]);
    check_video(root);
    check_sentences(root);
    return check_done();
}
