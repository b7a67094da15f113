/* grammar.c: fuzz target: any bytes as a grammar. The first byte chooses the kind (s: JSON schema, r: regular
   expression, e: EBNF, else choices) unless GRAMMAR_KIND is defined; the rest is the source. If it compiles, a few
   texts are generated, which must be UTF-8 and end within their number of tokens. */
#include "../text_rows.h"
#include "../text_tokenizer.h"
#include "private/grammar.h"
#include "../vocab_open.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static exl2__ctx c;
static exl2__vocab vocab;
static exl2__grammar_vocab table;

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* Opens a vocabulary with a token for each byte, and some that cross borders of characters or of JSON's elements. */
static void open_vocab(void)
{
    static const char *const more[] = { "{\\\"", "\\\":", "\\\",", "\\\"}", "true", "null", "ab", "abc",
                                        "\\u00c3\\u00a9",
                                        "\\u0120\\\"", "\\\\\\\\u", "12", "]}" };
    static char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text, "{");
    for (uint32_t code = 0; code < 0x144; code++) {
        uint32_t byte = exl2__pieces_byte(code);
        if (byte != UINT32_MAX) {
            used += (size_t)snprintf(text + used, sizeof text - used, "\"\\u%04x\":%u,", code, byte);
        }
    }
    for (uint32_t i = 0; i < EXL2__COUNT(more); i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "\"%s\":%u%s", more[i], 256 + i,
                                 i + 1 < EXL2__COUNT(more) ? "," : "}");
    }
    tokenizer_parts parts = { .added = "[{\"id\":300,\"content\":\"<e>\",\"special\":true}]", .vocab = text,
                              .merges = "[]" };
    const char *json = tokenizer_text(parts);
    rows_folder folder = { json, NULL, strlen(json), 0, 0, 0 };
    c = rows_ctx();
    c.files = rows_files(&folder);
    require(vocab_open(&c, "memory", &vocab) == EXL2_OK);
    require(exl2__grammar_vocab_open(&c, &vocab, &table) == EXL2_OK);
}

/* Generates a text of at most `left` tokens, which a random generator chooses among the allowed ones. */
static void walk(exl2__grammar *g, uint32_t left, uint64_t *state)
{
    exl2__grammar_mask_place place;
    char text[4096];
    size_t used = 0;
    require(exl2__grammar_mask_join(&c, &g->mask, &place) == EXL2_OK);
    for (;; left--) {
        const uint32_t *bits;
        bool may_end;
        uint32_t ids[320], count = 0;
        exl2_result result = exl2__grammar_mask_get(&c, &g->mask, &place, left, &bits, &may_end);
        require(result == EXL2_OK || result == EXL2_ERR_BUDGET);
        for (uint32_t id = 0; result == EXL2_OK && id < table.words * 32; id++) {
            ids[count] = id;
            count += bits[id / 32] >> id % 32 & 1;
        }
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        if (count == 0 || left == 0) {
            require(may_end || result < 0);
            require(exl2__unicode_valid(text, used));
            break;
        }
        size_t bytes;
        bool special;
        exl2_token token = (exl2_token)ids[(*state >> 33) % count];
        const char *piece = exl2__vocab_piece(&vocab, token, &bytes, &special);
        require(exl2__grammar_mask_accept(&c, &g->mask, &place, token, 0) == EXL2_OK);
        require(!special && used + bytes <= sizeof text);
        memcpy(text + used, piece, bytes);
        used += bytes;
    }
    exl2__grammar_mask_leave(&g->mask, &place);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    if (!vocab.present) {
        open_vocab();
    }
    uint64_t before = c.host_bytes, state = size;
    exl2_grammar_kind kind = data[0] == 's' ? EXL2_GRAMMAR_JSON_SCHEMA : data[0] == 'r' ? EXL2_GRAMMAR_REGEX
                           : data[0] == 'e' ? EXL2_GRAMMAR_EBNF : EXL2_GRAMMAR_CHOICES;
#ifdef GRAMMAR_KIND
    kind = GRAMMAR_KIND;
#endif
    exl2__grammar g;
    char *copy = malloc(size > 1 ? size - 1 : 1); /* exact size, so that ASan detects reads after the end */
    memcpy(copy, data + 1, size - 1);
    exl2_result result = exl2__grammar_open(&c, kind, false, copy, size - 1, &table, 1, &g);
    free(copy); /* the grammar must not refer to its source */
    require(result == EXL2_OK || (result < 0 && c.error.code == result && c.error.text[0]));
    if (result == EXL2_OK) {
        exl2__grammar_mask_place place;
        require(exl2__grammar_mask_join(&c, &g.mask, &place) == EXL2_OK);
        uint32_t shortest = exl2__grammar_mask_shortest(&g.mask, &place);
        exl2__grammar_mask_leave(&g.mask, &place);
        for (uint32_t i = 0; i < 4 && shortest <= 200; i++) {
            walk(&g, shortest + i * i * 4, &state);
        }
    }
    exl2__grammar_close(&c, &g);
    require(c.host_bytes == before);
    return 0;
}
