/* Streaming and whole decoding against the tokenizers library (tests/golden/README.md), and cut code points. */
#include "../text_rows.h"
#include "../../exl2_impl/6_text/stream.h"

typedef struct rows_state {
    exl2__ctx *c;
    exl2__vocab *v;
    const char *path;
} rows_state;

static void check_row(rows_state *s, int line, const char *what, const char *got, size_t got_bytes,
                      const exl2__json *j, uint32_t wanted)
{
    size_t bytes;
    char *text = rows_text(j, wanted, &bytes);
    if (!CHECK(wanted && bytes == got_bytes && memcmp(text, got, bytes) == 0)) {
        printf("    %s:%d: %s is \"%.*s\"\n", s->path, line, what, (int)got_bytes, got);
    }
    free(text);
}

static void decode_row(void *user, const exl2__json *j, int line)
{
    rows_state *s = user;
    size_t count, need, again;
    exl2_token *ids = rows_ids(j, exl2__json_get(j, 0, "ids"), &count);
    bool skip = rows_flag(j, "skip_special");
    exl2_result result = exl2__decode(s->v, ids, count, skip, NULL, 0, &need);
    CHECK(result == (need ? EXL2_ERR_TOO_SMALL : EXL2_OK));
    char *text = malloc(need + 1);
    text[need] = 'Z';
    CHECK(exl2__decode(s->v, ids, count, skip, text, need, &again) == EXL2_OK);
    CHECK(again == need && text[need] == 'Z');
    check_row(s, line, "text", text, need, j, exl2__json_get(j, 0, "text"));
    free(text);
    free(ids);
}

static void stream_row(void *user, const exl2__json *j, int line)
{
    rows_state *s = user;
    size_t count, room = exl2__stream_room(s->v);
    exl2_token *ids = rows_ids(j, exl2__json_get(j, 0, "ids"), &count);
    exl2__stream stream;
    exl2__stream_make(&stream, !rows_flag(j, "skip_special"));
    char *text = malloc(room);
    uint32_t chunks = exl2__json_get(j, 0, "chunks"), chunk = exl2__json_first(j, chunks);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = exl2__stream_push(&stream, s->v, ids[i], text, room);
        CHECK(bytes <= room && exl2__unicode_valid(text, bytes) && chunk);
        check_row(s, line, "chunk", text, bytes, j, chunk);
        chunk = exl2__json_next(j, chunks, chunk);
    }
    CHECK(chunk == 0);
    check_row(s, line, "tail", text, exl2__stream_flush(&stream, text, room), j, exl2__json_get(j, 0, "tail"));
    CHECK_INT(exl2__stream_flush(&stream, text, room), 0);
    free(text);
    free(ids);
}

static void check_files(exl2__ctx *c, const char *vocab_dir, const char *rows_dir, int rows)
{
    exl2__vocab v;
    char path[512];
    rows_state s = { c, &v, path };
    if (!CHECK(exl2__vocab_open(c, vocab_dir, &v) == EXL2_OK)) {
        return;
    }
    snprintf(path, sizeof path, "%s/decode.jsonl", rows_dir);
    CHECK_INT(rows_each(c, path, decode_row, &s), rows);
    snprintf(path, sizeof path, "%s/stream.jsonl", rows_dir);
    CHECK_INT(rows_each(c, path, stream_row, &s), rows);
    exl2__vocab_close(c, &v);
}

/* Ids that have no piece, and a stream that is copied in the middle of a code point. */
static void check_corners(exl2__ctx *c)
{
    exl2__vocab v;
    char text[64];
    size_t need;
    exl2__stream stream = { 0 }, checkpoint;
    CHECK(exl2__vocab_open(c, EXL2_GOLDEN_DIR "/smollm2", &v) == EXL2_OK);
    exl2_token outside[3] = { -1, INT32_MAX, (exl2_token)v.id_count };
    CHECK(exl2__decode(&v, outside, 3, false, text, 64, &need) == EXL2_OK && need == 0);
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
              4); /* what is beyond cap is counted, not written */
    CHECK(memcmp(text, "\xF0\x9F\xBD", 3) == 0);
    exl2__vocab_close(c, &v);
    exl2__vocab none = { 0 };
    CHECK(exl2__decode(&none, bytes, 4, false, text, 64, &need) == EXL2_OK && need == 0);
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
