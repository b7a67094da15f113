/* replay.c: sessions that the program exl2 saves and loads, with `generate` and in scripts of `replay`.
   takes: replay PROGRAM FOLDER: the program, a folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#define MODELS EXL2_GOLDEN_DIR "/models/"

/* Are the ids those of `whole` from index `from` on, to its end? */
static bool same_ids(const json_value *ids, const json_value *whole, size_t from)
{
    const json_value *a = ids ? ids->child : NULL, *b = whole->child;
    for (; b && from > 0; from--) {
        b = b->next;
    }
    while (a && b && a->number >= b->number && a->number <= b->number) {
        a = a->next;
        b = b->next;
    }
    return ids && !a && !b;
}

/* The ids of `generate` with these flags. */
static json_value *generated(const char *flags, char **text)
{
    return program_json(program_run("generate " MODELS "exl2-mixed --max 12 --seed 5 --json %s", flags), text);
}

/* A text that is saved in its middle and goes on in another process is the text in one go. */
static void check_saves(void)
{
    char *text, *part_text, *rest_text, flags[4096];
    json_value *whole = generated("--ids 5,9,17", &text);
    const json_value *ids = json_member(whole, "ids");
    snprintf(flags, sizeof flags, "--ids 5,9,17 --save '%s/saved' --save-after 5", folder);
    json_value *part = generated(flags, &part_text);
    snprintf(flags, sizeof flags, "--load '%s/saved' --save '%s/ended' --save-kv", folder, folder);
    json_value *rest = generated(flags, &rest_text);
    const json_value *a = json_member(part, "ids"), *b = json_member(rest, "ids");
    CHECK_INT(ids->child_count, 12);
    CHECK(a->child_count == 5 && !same_ids(a, ids, 0));
    CHECK(same_ids(b, ids, 5));
    json_free(part);
    json_free(rest);
    free(part_text);
    free(rest_text);
    snprintf(flags, sizeof flags, "--load '%s/ended'", folder); /* nothing was going on */
    rest = generated(flags, &rest_text);
    CHECK_INT(json_member(rest, "ids")->child_count, 0);
    CHECK_INT(json_member(rest, "prompt_ids")->child_count, 15);
    json_free(rest);
    free(rest_text);

    /* the same in a script, where a session is saved while another one speaks */
    char script[8192];
    snprintf(script, sizeof script,
             "{\"op\":\"open\",\"s\":\"a\"}\n{\"op\":\"open\",\"s\":\"b\",\"id\":7}\n"
             "{\"op\":\"say\",\"s\":\"a\",\"ids\":[5,9,17],\"max\":12,\"seed\":5,\"hold\":true}\n"
             "{\"op\":\"say\",\"s\":\"b\",\"ids\":[8,9],\"max\":12,\"greedy\":true,\"hold\":true}\n"
             "{\"op\":\"run\",\"tokens\":9}\n{\"op\":\"save\",\"s\":\"a\",\"file\":\"%s/a\"}\n"
             "{\"op\":\"run\"}\n{\"op\":\"rewind\",\"s\":\"b\",\"tokens\":0}\n"
             "{\"op\":\"load\",\"s\":\"b\",\"file\":\"%s/a\"}\n"
             "{\"op\":\"resume\",\"s\":\"b\",\"max\":12,\"seed\":5}\n{\"op\":\"nothing\",\"s\":\"b\"}\n"
             "{\"op\":\"nothing\"}\n{\"op\":\"open\",\"name\":\"c\"}\n"
             "{\"op\":\"say\",\"s\":\"b\",\"ids\":[3],\"max\":-3}\n"
             "{\"op\":\"say\",\"s\":\"b\",\"ids\":[3],\"max\":\"many\"}\n"
             "{\"op\":\"trim\",\"s\":\"b\",\"from_token\":1,\"count\":99}\n{\"op\":\"stats\"}\n", folder,
             folder);
    program_write("script", script);
    CHECK_INT(program_run("replay " MODELS "exl2-mixed '%s/script' --json", folder), 0);
    char *out = program_read("out"), *at = out;
    uint32_t lines = 0, errors = 0;
    bool resumed = false;
    for (char *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        json_value *line = program_parse(at, (size_t)(end - at));
        const char *op = program_text(line, "op");
        const json_value *said = json_member(line, "ids");
        bool of_a = said && strcmp(op, "say") == 0 && strcmp(program_text(line, "s"), "a") == 0;
        CHECK(!of_a || same_ids(said, ids, 0));
        if (strcmp(op, "resume") == 0) {
            CHECK(said->child_count > 0 && said->child_count < 12);
            resumed = same_ids(said, ids, 12 - said->child_count);
        }
        errors += json_member(line, "error") != NULL;
        lines++;
        json_free(line);
    }
    CHECK(resumed);
    CHECK_INT(lines, 19);
    CHECK_INT(errors, 6);
    free(out);
    program_write("script", "{\"op\":\"stats\"}\n{\"op\"\n");
    program_sentence(program_run("replay " MODELS "exl2-mixed '%s/script'", folder), 1, "line 2 of the script");
    program_write("script", "[7]\n");
    program_sentence(program_run("replay " MODELS "exl2-mixed '%s/script'", folder), 1,
                     "line 1 of the script is no JSON object: it is another value");
    program_write("script", "{\"op\":\"open\",\"s\":\"a\"}\n\n{\"op\":\"cancel\",\"s\":\"a\"}\n");
    CHECK_INT(program_run("replay " MODELS "exl2-mixed '%s/script'", folder), 0);
    out = program_read("out");
    CHECK(strstr(out, "\"error\": \"EXL2_ERR_STALE\", \"sentence\": \"the session has no job\"") != NULL);
    free(out);
    json_free(whole);
    free(text);
}

/* One script with every flag that may change times, but no words. Its job lines, without times. */
static void check_flags(void)
{
    static const char script[] =
        "{\"op\":\"open\",\"s\":\"a\"}\n{\"op\":\"open\",\"s\":\"b\"}\n"
        "{\"op\":\"say\",\"s\":\"a\",\"ids\":[5,9,17],\"max\":20,\"seed\":5,\"hold\":true}\n"
        "{\"op\":\"say\",\"s\":\"b\",\"ids\":[8,9,8,9,8,9],\"max\":30,\"greedy\":true,\"ngram\":true,"
        "\"hold\":true}\n"
        "{\"op\":\"run\",\"tokens\":4}\n{\"op\":\"park\"}\n{\"op\":\"stats\"}\n{\"op\":\"unpark\"}\n"
        "{\"op\":\"run\"}\n"
        "{\"op\":\"say\",\"s\":\"a\",\"ids\":[4],\"max\":9,\"seed\":6,\"one_by_one\":true}\n"
        "{\"op\":\"stats\"}\n";
    static const char *const flags[] = { "", "--worker", "--worker --cpu-us 300", "--cpu-us 100", "--keep-packed",
                                         "--cache-tokens 128", "--context 96 --batch 2 --prefill-chunk 4" };
    char *first[3] = { NULL };
    program_write("script", script);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        CHECK_INT(program_run("replay " MODELS "exl2-mixed '%s/script' %s", folder, flags[i]), 0);
        char *out = program_read("out"), *at = out;
        uint32_t jobs = 0, parked = 0, errors = 0;
        for (char *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
            json_value *line = program_parse(at, (size_t)(end - at));
            const json_value *ids = json_member(line, "ids"), *bytes = json_member(line, "host_bytes");
            errors += json_member(line, "error") != NULL;
            if (ids) { /* a and b may end in any order; the job that follows is the third */
                uint32_t k = jobs++ == 2 ? 2 : strcmp(program_text(line, "s"), "b") == 0;
                if (!first[k]) {
                    first[k] = strndup(ids->raw, ids->raw_bytes);
                }
                CHECK(strlen(first[k]) == ids->raw_bytes && memcmp(first[k], ids->raw, ids->raw_bytes) == 0);
                CHECK(json_member(line, "drafted") && json_member(line, "accepted"));
                CHECK(json_member(line, "forced_tokens") != NULL);
            } else if (bytes && parked++ == 0) {
                CHECK(json_member(line, "pages_cached")->number < 1 && json_member(line, "pages_used")->number < 1);
            }
            json_free(line);
        }
        CHECK_INT(jobs, 3);
        CHECK_INT(parked, 2);
        CHECK_INT(errors, 0);
        free(out);
    }
    for (size_t k = 0; k < 3; k++) {
        free(first[k]);
    }
}

/* The file FOLDER/save has these bytes, and nothing half-written is beside it. */
static bool is_kept(const char *bytes, size_t count)
{
    char command[1200], path[1100];
    size_t now;
    snprintf(path, sizeof path, "%s/save", folder);
    char *text = check_read(path, &now);
    bool same = now == count && memcmp(text, bytes, count) == 0;
    free(text);
    snprintf(command, sizeof command, "ls -a '%s' | grep -q part", folder);
    return CHECK(same) && CHECK(system(command) != 0);
}

/* A save that cannot be written leaves the older one as it is, and says why in one sentence. */
static void check_full(void)
{
    char flags[2200], path[1100], command[2400];
    size_t bytes;
    snprintf(path, sizeof path, "%s/save", folder);
    CHECK_INT(program_run("generate " MODELS "exl2-mixed --ids 5,6,7 --max 3 --save '%s'", path), 0);
    char *older = check_read(path, &bytes);
    CHECK(bytes > 0 && bytes < 4096);
    snprintf(flags, sizeof flags, "generate " MODELS "exl2-mixed --ids 5,6,7 --max 90 --save '%s' --save-kv", path);
    for (int ignored = 0; ignored < 2; ignored++) {
        program_sentence(program_run_full(ignored, flags), 1, "/save: File too large");
        is_kept(older, bytes);
    }
    snprintf(command, sizeof command, "{\"op\":\"open\",\"s\":\"a\"}\n{\"op\":\"say\",\"s\":\"a\",\"ids\":[5,9],"
             "\"max\":90,\"greedy\":true}\n{\"op\":\"save\",\"s\":\"a\",\"kv\":true,\"file\":\"%s\"}\n", path);
    program_write("script", command);
    snprintf(flags, sizeof flags, "replay " MODELS "exl2-mixed '%s/script'", folder);
    CHECK_INT(program_run_full(true, flags), 0); /* a script goes on after an error, and says it in its line */
    char *out = program_read("out");
    CHECK(strstr(out, "the file cannot be written") != NULL);
    free(out);
    is_kept(older, bytes);
    free(older);
}

/* Where a save goes: through a link to its target, with the rights of the older file; to a device as it is; an empty
   path is none. */
static void check_places(void)
{
    char command[3400];
    snprintf(command, sizeof command, "cd '%s' && : >target && chmod 600 target && ln -s target link", folder);
    CHECK_INT(system(command), 0);
    CHECK_INT(program_run("generate " MODELS "exl2-mixed --ids 5,6,7 --max 3 --save '%s/link'", folder), 0);
    snprintf(command, sizeof command, "cd '%s' && [ -L link ] && [ -s target ] && ls -l target | grep -q '^-rw-------'",
             folder);
    CHECK_INT(system(command), 0);
    program_sentence(program_run("generate " MODELS "exl2-mixed --ids 5,6,7 --max 3 --save /dev/full"), 1,
                     "/dev/full: No space left");
    program_sentence(program_run("generate " MODELS "exl2-mixed --ids 5,6,7 --max 3 --save '%s'", folder), 1,
                     ": Is a directory");
    program_sentence(program_run("generate " MODELS "exl2-mixed --ids 5,6,7 --max 3 --save '%s/none/f'", folder), 1,
                     "none/f: No such file");
    program_sentence(program_run("generate " MODELS "exl2-mixed --ids 5 --save ''"), 2, "--save is an empty path");
    program_sentence(program_run("generate " MODELS "exl2-mixed --load="), 2, "--load is an empty path");
    program_sentence(program_run("generate '' --ids 5"), 2, "MODEL is an empty path");
}

/* Jobs of a script with an adapter that `synth` has made: another text than without, the same with factor 0, and after
   another load. Errors are answers. */
static void check_loras(void)
{
    static const struct { const char *loras, *error; bool adapter; } says[] = {
        { "", NULL, false },
        { ",\"loras\":[[\"X\",20]]", NULL, true },
        { ",\"loras\":[[\"X\",0]]", NULL, false },
        { ",\"loras\":[[\"Y\",1]]", "no adapter has this name", false },
        { ",\"loras\":[[\"X\"]]", "must be a list of [name, factor]", false },
        { ",\"loras\":[[\"X\",200]]", "EXL2_ERR_ARG", false },
        { ",\"loras\":[[\"X\",-1000]]", "EXL2_ERR_ARG", false }, /* the value of EXL2_OFF */
    };
    char script[8192], *text[2] = { NULL, NULL }, *out;
    size_t used = 0;
    CHECK_INT(program_run("synth --adapter " MODELS "exl2-mixed '%s/adapter' --rank 4 --targets q_proj,down_proj",
                          folder), 0);
    for (int round = 0; round < 2; round++) {
        used += (size_t)snprintf(script + used, sizeof script - used, "{\"op\":\"lora\",\"name\":\"X\",\"folder\":"
                                 "\"%s/adapter\"}\n", folder);
        for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
            used += (size_t)snprintf(script + used, sizeof script - used, "{\"op\":\"open\",\"s\":\"a\"}\n{\"op\":"
                                     "\"say\",\"s\":\"a\",\"ids\":[5,9,17],\"max\":20,\"greedy\":true%s}\n"
                                     "{\"op\":\"close\",\"s\":\"a\"}\n", says[i].loras);
        }
        used += (size_t)snprintf(script + used, sizeof script - used, "{\"op\":\"unlora\",\"name\":\"X\"}\n");
    }
    program_write("script", script);
    CHECK_INT(program_run("replay " MODELS "exl2-mixed '%s/script'", folder), 0);
    out = program_read("out");
    size_t say = 0, count = sizeof says / sizeof *says;
    for (char *at = out, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        json_value *line = program_parse(at, (size_t)(end - at));
        const char *op = program_text(line, "op"), *error = program_text(line, "error");
        const json_value *ids = json_member(line, "ids");
        *end = 0;
        if (op && strcmp(op, "say") == 0) {
            bool adapter = says[say % count].adapter;
            CHECK(says[say % count].error ? error && strstr(at, says[say % count].error) : ids != NULL);
            if (ids && !text[adapter]) {
                text[adapter] = strndup(ids->raw, ids->raw_bytes);
            }
            CHECK(!ids || (strlen(text[adapter]) == ids->raw_bytes
                           && memcmp(text[adapter], ids->raw, ids->raw_bytes) == 0));
            say++;
        } else {
            CHECK(error == NULL);
        }
        json_free(line);
    }
    CHECK_INT(say, 2 * count);
    CHECK(text[0] && text[1] && strcmp(text[0], text[1]) != 0);
    free(text[0]);
    free(text[1]);
    free(out);
    program_sentence(program_run("synth --adapter '%s/none' '%s/b'", folder, folder), 1,
                     "none/config.json: No such file");
    program_sentence(program_run("synth --adapter m a --targets q_proj,x"), 2, "not 'q_proj,x'");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        printf("usage: replay PROGRAM FOLDER\n");
        return 1;
    }
    program_set(argv[1], argv[2]);
    check_saves();
    check_flags();
    check_loras();
    check_full();
    check_places();
    program_sentence(program_run("generate m --prompt a --load f"), 2, "--load goes on with what was saved");
    program_sentence(program_run("generate m --prompt a --save-kv"), 2, "--save-kv needs --save");
    program_sentence(program_run("replay " MODELS "exl2-mixed '%s/none'", folder), 1, "none: No such file");
    return check_done();
}
