/* tokenizers.c: whole tokenizers compared with the tokenizers library (tests/golden/README.md): every row of encode,
   decode and stream, and the bytes of every id. The shared fixtures are compressed; the program xz unpacks them. */
#define _POSIX_C_SOURCE 200809L
#include "../text_unpack.h"

/* vocab_bytes.bin has a u32 length and the bytes for each id. */
static void check_pieces(const exl2__vocab *v, const char *dir)
{
    char path[512];
    size_t bytes, at = 0;
    uint32_t id = 0, wrong = 0;
    snprintf(path, sizeof path, "%s/vocab_bytes.bin", dir);
    char *data = text_unpack(path, &bytes);
    for (; data && at + 4 <= bytes; id++) {
        size_t wanted = exl2__load32((const uint8_t *)data + at), got;
        bool special;
        const char *piece = exl2__vocab_piece(v, (exl2_token)id, &got, &special);
        if ((got != wanted || (got && memcmp(piece, data + at + 4, got) != 0)) && wrong++ < 8) {
            printf("    %s: id %u is \"%.*s\", wanted \"%.*s\"\n", path, id, (int)got, piece ? piece : "", (int)wanted,
                   data + at + 4);
        }
        at += 4 + wanted;
    }
    CHECK(data && wrong == 0 && at == bytes && id >= 900);
    free(data);
}

static void check_tokenizer(exl2__ctx *c, const char *dir, int least)
{
    char path[512];
    rows_folder folder = { 0 };
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    char *text = text_unpack(path, &folder.tokenizer_bytes);
    if (!CHECK(text != NULL)) {
        printf("    no %s\n", path);
        return;
    }
    exl2__vocab v;
    rows_state s = { c, &v, NULL };
    folder.tokenizer = text;
    c->files = rows_files(&folder);
    c->host_peak = 0;
    uint64_t start = exl2__platform_ns();
    if (CHECK(vocab_open(c, "memory", &v) == EXL2_OK)) {
        printf("%s: %zu bytes, opened in %.1f ms; %.2f times its size at most, %.2f kept\n", dir,
               folder.tokenizer_bytes, (double)(exl2__platform_ns() - start) * 1e-6,
               (double)c->host_peak / (double)folder.tokenizer_bytes, (double)v.bytes / (double)folder.tokenizer_bytes);
        check_pieces(&v, dir);
        text_rows(&s, dir, "encode.jsonl", least, encode_row);
        text_rows(&s, dir, "decode.jsonl", least, decode_row);
        text_rows(&s, dir, "stream.jsonl", least, stream_row);
    } else {
        printf("    %s: %s\n", dir, c->error.text);
    }
    exl2__vocab_close(c, &v);
    CHECK_INT(c->host_bytes, 0);
    free(text);
}

int main(int count, char **names)
{
    static const char *const golden[] = { "prepend", "metaspace", "lower", "behaviors" };
    static const char *const shared[] = {
        "gemma3", "llama2", "llama3", "qwen3", "smollm2", "mini_digits_nfc", "mini_gpt2_prefix",
        "mini_metaspace_always",
        "mini_metaspace_first", "mini_metaspace_never_split", "mini_no_byte_fallback", "mini_prepend_flags",
        "mini_o200k_ignore", "mini_deepseek_coder", "mini_behaviors", "mini_lower_strip"
    };
    exl2__ctx c = rows_ctx();
    char dir[512];
    for (int i = 1; i < count; i++) { /* folders given by hand */
        check_tokenizer(&c, names[i], 1);
    }
    for (size_t i = 0; i < EXL2__COUNT(golden) && count < 2; i++) {
        snprintf(dir, sizeof dir, EXL2_GOLDEN_DIR "/tokenizer/%s", golden[i]);
        check_tokenizer(&c, dir, 15);
    }
    if (count >= 2 || check_failures) {
        return check_done();
    }
    const char *root = check_shared("fixtures/tokenizers/README.md");
    for (size_t i = 0; i < EXL2__COUNT(shared); i++) {
        snprintf(dir, sizeof dir, "%.*s/%s", (int)(strlen(root) - 10), root, shared[i]);
        check_tokenizer(&c, dir, 100);
    }
    return check_done();
}
