/* judge.c: `exl2 score --length N --stride N`: the figures are those of the windows by themselves, with and
   without BOS; --by-position. `exl2 compare` of several models. On tiny models, by ids.
   takes: judge PROGRAM FOLDER: the program exl2, a folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#define MODELS EXL2_GOLDEN_DIR "/models/"
#define MODEL MODELS "exl2-4bit"
#define BOS 1 /* of the model */

/* Writes the ids from `from` to before `to`, after the id `first` unless it is -1. */
static void write_slice(const char *name, const json_value *ids, size_t from, size_t to, int first)
{
    memory_text t = { 0 };
    memory_text_format(&t, first < 0 ? "[" : "[%d,", first);
    for (size_t i = from; i < to; i++) {
        memory_text_format(&t, "%s%.0f", i > from ? "," : "", item(ids, i)->number);
    }
    memory_text_add(&t, "]", 2);
    program_write(name, t.data);
    free(t.data);
}

/* The mean over the tokens of window.json after the first `skip` + 1. */
static double score_nll(size_t skip)
{
    char *text;
    int code = program_run("score " MODEL " --ids-file '%s/window.json' --skip %zu --json", folder, skip);
    json_value *said = program_json(code, &text);
    double nll = program_number(said, "nll");
    json_free(said);
    free(text);
    return nll;
}

/* Windows: the sum is that of each window by itself, of the tokens that no window before it has. */
static void check_windows(const json_value *ids)
{
    const size_t length = 12, count = ids->child_count;
    for (size_t stride = 5; stride <= length; stride += 7) {
        for (int bos = 0; bos < 2; bos++) {
            double sum = 0, scored = 0;
            for (size_t begin = 0, end = 0, before; end < count; begin += stride) {
                before = end - begin;
                end = begin + length < count ? begin + length : count;
                size_t skip = before ? before - 1 + (size_t)bos : 0, tokens = end - begin + (size_t)bos;
                write_slice("window.json", ids, begin, end, bos ? BOS : -1);
                if (tokens < skip + 2) {
                    continue; /* one new token, of which nothing precedes */
                }
                sum += score_nll(skip) * (double)(tokens - 1 - skip);
                scored += (double)(tokens - 1 - skip);
            }
            char *text;
            write_slice("ids.json", ids, 0, count, -1);
            int code = program_run("score " MODEL " --ids-file '%s/ids.json' --length %zu --stride %zu %s --json "
                                   "--by-position", folder, length, stride, bos ? "--bos" : "");
            json_value *said = program_json(code, &text);
            CHECK_INT(program_number(said, "scored"), scored);
            CHECK(fabs(program_number(said, "nll") * scored - sum) < 1e-4 * sum);
            double ranges = 0, range_tokens = 0;
            const json_value *list = json_member(said, "by_position");
            for (const json_value *v = list ? list->child : NULL; v; v = v->next) {
                CHECK(program_number(v, "to") == fmax(2 * program_number(v, "from") - 1, 15));
                ranges += program_number(v, "nll") * program_number(v, "scored");
                range_tokens += program_number(v, "scored");
            }
            CHECK_INT(range_tokens, scored);
            CHECK(fabs(ranges - sum) < 1e-4 * sum);
            json_free(said);
            free(text);
        }
    }
}

/* Several models are each compared with the first one, as by themselves. */
static void check_compare(void)
{
    static const char *const others[] = { "exl2-mixed", "exl2-4bit" };
    static const char *const figures[] = { "nll_b", "kl", "kl_p99", "top1" };
    const char *ids = "[1,5,9,33,21,88,120,45,67,3,9,14,77,60]";
    char *text, *texts[2];
    program_write("few.json", ids);
    json_value *all = program_json(program_run("compare " MODEL " " MODELS "%s " MODELS "%s --ids-file '%s/few.json' "
                                               "--json", others[0], others[1], folder), &text);
    const json_value *list = json_member(all, "models");
    if (CHECK(list && list->child_count == 2)) {
        for (size_t i = 0; i < 2; i++) {
            json_value *one = program_json(program_run("compare " MODEL " " MODELS "%s --ids-file '%s/few.json' --json",
                                                       others[i], folder), &texts[i]);
            CHECK_TEXT(program_text(item(list, i), "folder") + sizeof MODELS - 1, others[i]);
            CHECK(program_number(all, "nll_a") == program_number(one, "nll_a"));
            for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++) {
                CHECK(program_number(item(list, i), figures[k]) == program_number(one, figures[k]));
            }
            json_free(one);
            free(texts[i]);
        }
        CHECK(program_number(item(list, 0), "kl") > 0.1 && program_number(item(list, 1), "kl") == 0);
    }
    json_free(all);
    free(text);
    CHECK_INT(program_run("compare " MODEL " " MODELS "exl2-mixed " MODEL " --ids-file '%s/few.json'", folder), 0);
    text = program_read("out");
    CHECK(strstr(text, "14 tokens; KL from A") && strstr(text, "100.0  " MODEL "\n"));
    free(text);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        printf("usage: judge PROGRAM FOLDER\n");
        return 1;
    }
    program_set(argv[1], argv[2]);
    size_t bytes;
    char *text = check_read(MODEL "/golden.json", &bytes);
    json_value *golden = program_parse(text, bytes);
    check_windows(item(json_member(golden, "tokens"), 0));
    json_free(golden);
    free(text);
    check_compare();
    return check_done();
}
