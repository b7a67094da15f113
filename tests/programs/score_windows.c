/* score_windows.c: `exl2 score --length N --stride N`: the figures are those of the windows by themselves, with and
   without BOS; and --by-position. On a tiny model, by ids.
   takes: score_windows PROGRAM FOLDER: the program exl2, a folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#define MODEL EXL2_GOLDEN_DIR "/models/exl2-4bit"
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

int main(int argc, char **argv)
{
    if (argc != 3) {
        printf("usage: score_windows PROGRAM FOLDER\n");
        return 1;
    }
    program_set(argv[1], argv[2]);
    size_t bytes;
    char *text = check_read(MODEL "/golden.json", &bytes);
    json_value *golden = program_parse(text, bytes);
    check_windows(item(json_member(golden, "tokens"), 0));
    json_free(golden);
    free(text);
    return check_done();
}
