/* stream.c: streaming and whole decoding compared with the tokenizers library (tests/golden/README.md), and incomplete
   code points. */
#include "../text_goldens.h"

static void check_files(exl2__ctx *c, const char *vocab_dir, const char *rows_dir, int rows)
{
    exl2__vocab v;
    char path[512];
    rows_state s = { c, &v, path };
    if (!CHECK(vocab_open(c, vocab_dir, &v) == EXL2_OK)) {
        return;
    }
    snprintf(path, sizeof path, "%s/decode.jsonl", rows_dir);
    CHECK_INT(rows_each(c, path, decode_row, &s), rows);
    snprintf(path, sizeof path, "%s/stream.jsonl", rows_dir);
    CHECK_INT(rows_each(c, path, stream_row, &s), rows);
    exl2__vocab_close(c, &v);
}

/* Ids without a piece, and a stream that is copied in the middle of a code point. */
static void check_corners(exl2__ctx *c)
{
    exl2__vocab v;
    char text[64];
    size_t need;
    exl2__stream stream = { 0 }, checkpoint;
    CHECK(vocab_open(c, EXL2_GOLDEN_DIR "/smollm2", &v) == EXL2_OK);
    exl2_token outside[3] = { -1, INT32_MAX, (exl2_token)v.id_count };
    CHECK(exl2__stream_decode(&v, outside, 3, false, text, 64, &need) == EXL2_OK && need == 0);
    exl2_token bytes[4]; /* of U+1F642 */
    for (int i = 0; i < 4; i++) {
        bytes[i] = (exl2_token)v.byte_ids[(uint8_t)"\xF0\x9F\x99\x82"[i]];
    }
    for (int i = 0; i < 3; i++) {
        CHECK_INT(exl2__stream_push(&stream, &v, bytes[i], text, 64), 0);
    }
    checkpoint = stream;
    CHECK_INT(exl2__stream_pending(&stream), 3);
    CHECK_INT(exl2__stream_push(&stream, &v, bytes[0], text, 64), 3);
    CHECK(memcmp(text, "\xEF\xBF\xBD", 3) == 0);
    CHECK_INT(exl2__stream_push(&checkpoint, &v, outside[1], text, 64), 0);
    CHECK_INT(exl2__stream_push(&checkpoint, &v, bytes[3], text, 2),
              4); /* bytes beyond cap are counted, not written */
    CHECK(memcmp(text, "\xF0\x9F\xBD", 3) == 0);
    exl2__vocab_close(c, &v);
    exl2__vocab none = { 0 };
    CHECK(exl2__stream_decode(&none, bytes, 4, false, text, 64, &need) == EXL2_OK && need == 0);
}

int main(void)
{
    exl2__ctx c = rows_ctx();
    check_files(&c, EXL2_GOLDEN_DIR "/smollm2", EXL2_GOLDEN_DIR "/tokenizer", 459);
    check_files(&c, EXL2_GOLDEN_DIR "/tokenizer/prefix", EXL2_GOLDEN_DIR "/tokenizer/prefix", 161);
    check_corners(&c);
    CHECK_INT(c.host_bytes, 0);
    return check_done();
}
