/* import_splits.c: for every name of a pre-tokenizer that is imported, the tokenizer.json of an import cuts texts into
   words where the tokenizers library cuts them (golden/gguf/splits.jsonl, made by make_splits.py beside it). */
#include "../import_rig.h"
#include "../text_rows.h"
#include "../vocab_open.h"

static exl2__json texts; /* the file's first line */
static uint32_t name_count, text_count;

/* Writes the tokenizer of a tiny model with this pre-tokenizer into out_dir. */
static bool write_tokenizer(const char *pre)
{
    llama_options o = small;
    llama_model l;
    rig r;
    exl2__gguf g;
    exl2__import_text text = { 0 };
    o.pre = pre;
    llama_make(&l, &o);
    rig_make(&r, l.file);
    exl2_result result = exl2__gguf_open(&r.c, "model.gguf", &g);
    if (CHECK_INT(result, EXL2_OK)) {
        result = exl2__import_text_read(&g, o.vocab, false, &text);
        CHECK(exl2__platform_make_dir(out_dir));
        result = result == EXL2_OK ? exl2__import_text_write(&r.c, out_dir, &text, 512) : result;
        exl2__import_text_close(&text);
        exl2__gguf_close(&g);
    }
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("  %s: %s\n", pre, r.c.error.text);
    }
    llama_free(&l);
    return result == EXL2_OK;
}

/* Compares the words of text `number` with their lengths in `list`. */
static void check_words(const exl2__vocab *v, const char *pre, int number, const char *text, size_t bytes,
                        const exl2__json *j, uint32_t list)
{
    exl2__words words = exl2__words_of(&v->words, text, bytes, true);
    exl2__word word;
    size_t at = 0;
    for (uint32_t item = exl2__json_first(j, list); item; item = exl2__json_next(j, list, item)) {
        uint64_t length = 0;
        if (!CHECK(exl2__json_u64(j, item, &length)) || !CHECK(exl2__words_next(&words, &word))
            || !CHECK(word.text == text + at && word.bytes == length)) {
            printf("  %s, text %d: a word of %u bytes at %u, expected %u\n", pre, number, (unsigned)word.bytes,
                   (unsigned)at, (unsigned)length);
            return;
        }
        at += word.bytes;
    }
    CHECK(at == bytes && !exl2__words_next(&words, &word));
    text_count++;
}

static void check_name(const char *pre, const exl2__json *j, uint32_t lists)
{
    exl2__ctx c = rows_ctx();
    exl2__vocab v;
    int number = 0;
    if (!write_tokenizer(pre)) {
        exl2__folder_remove(out_dir);
        return;
    }
    if (CHECK_INT(vocab_open(&c, out_dir, &v), EXL2_OK)) {
        uint32_t all = exl2__json_get(&texts, 0, "texts"), text = exl2__json_first(&texts, all);
        for (uint32_t list = exl2__json_first(j, lists); list; list = exl2__json_next(j, lists, list)) {
            size_t bytes;
            char *copy = rows_text(&texts, text, &bytes);
            check_words(&v, pre, ++number, copy, bytes, j, list);
            free(copy);
            text = exl2__json_next(&texts, all, text);
        }
        exl2__vocab_close(&c, &v);
        name_count++;
    } else {
        printf("  %s: %s\n", pre, c.error.text);
    }
    remove_out();
}

static void row(void *user, const exl2__json *j, int line)
{
    (void)user;
    uint32_t names = exl2__json_get(j, 0, "names"), words = exl2__json_get(j, 0, "words");
    for (uint32_t name = line == 1 ? 0 : exl2__json_first(j, names); name; name = exl2__json_next(j, names, name)) {
        size_t bytes;
        char *pre = rows_text(j, name, &bytes);
        check_name(pre, j, words);
        free(pre);
    }
}

int main(void)
{
    exl2__ctx c = rows_ctx();
    size_t bytes;
    import_start();
    char *file = check_read(EXL2_GOLDEN_DIR "/gguf/splits.jsonl", &bytes);
    char *end = (char *)memchr(file, '\n', bytes);
    if (CHECK_INT(exl2__json_open(&c, "splits.jsonl", file, (size_t)(end - file), &texts), EXL2_OK)) {
        rows_each(&c, EXL2_GOLDEN_DIR "/gguf/splits.jsonl", row, NULL);
        exl2__json_close(&c, &texts);
    }
    free(file);
    CHECK_INT(name_count, 52);
    CHECK_INT(text_count, 52 * 6);
    return check_done();
}
