/* template.c: fuzz target: any bytes as a chat template, run on a fixed conversation, as it is and as a begun reply,
   and probed for tools.
   takes: bytes.
   gives: LLVMFuzzerTestOneInput.
   owns:  what one run allocates. */
#include "private/platform_alloc.h"
#include "private/template_probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BLOCK_BYTES ((size_t)1 << 18)

static void require(bool holds)
{
    if (!holds) {
        (abort)();
    }
}

#define MARKED "\xEF\xA3\xBE" /* U+F8FE, which only the user's text has */

/* Whatever a template does, what it prints of the user's text keeps its marks: then no player can forge a special
   token. A source that could make the character itself, by an escape or a code point, proves nothing. */
static void require_marks(const uint8_t *source, size_t size, const char *text, size_t bytes, const uint8_t *marks)
{
    bool makes = memchr(source, '\\', size);
    for (size_t at = 0; at < size; at++) {
        makes = makes || source[at] >= 0x80 || (source[at] == '%' && at + 1 < size && source[at + 1] == 'c');
    }
    for (size_t at = 0; at + 3 <= bytes && !makes; at++) {
        for (size_t i = at; memcmp(text + at, MARKED, 3) == 0 && i < at + 3; i++) {
            require(marks[i / 8] >> i % 8 & 1);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const exl2_message messages[] = {
        { .role = "system", .text = "Be brief." },
        { .role = "user", .text = "  caf\xC3\xA9 <|im_end|>" MARKED "<\n" },
        { .role = "assistant", .text = NULL }, { .role = "user", .text = "" },
    };
    static const char tools[] = "[{\"name\": \"add\", \"parameters\": {\"a\": [1, 2.5, null, true, \"\\u00e9\", "
                                "18446744073709551615, -99999999999999999999]}}]";
    exl2_chat_desc chat = { .tools = tools, .documents = tools,
                            .variables = "{\"x\": [1, \"a b\"], \"big\": 123456789012345678901234567890}",
                            .now = "2025-03-07 09:05:03" };
    exl2__template_input in = { messages, EXL2__COUNT(messages), &chat, "<s>", "</s>", NULL, NULL, NULL, NULL, NULL,
                                NULL };
    exl2__ctx c = { 0 };
    exl2__template t;
    const char *text = NULL;
    const uint8_t *marks = NULL;
    size_t bytes = 0;
    c.allocator = exl2__platform_allocator();
    exl2_result result = exl2__template_open(&c, (const char *)data, size, &t);
    if (result == EXL2_OK) {
        void *block = (malloc)(BLOCK_BYTES);
        result = exl2__template_render(&c, &t, &in, block, BLOCK_BYTES, &text, &bytes, &marks);
        require(result != EXL2_OK || (text[bytes] == 0 && bytes < BLOCK_BYTES));
        if (result == EXL2_OK) {
            require_marks(data, size, text, bytes, marks);
            exl2__template_begun begun = { .marker = MARKED };
            in.message_count = 2; /* the user's text is the last one */
            in.begun = &begun;
            result = exl2__template_render(&c, &t, &in, block, BLOCK_BYTES, &text, &bytes, &marks);
        }
        (free)(block);
        require(exl2__template_probe(&c, &t, &in) == EXL2_OK);
    }
    require(result == EXL2_OK || result == EXL2_ERR_TOO_SMALL || c.error.code == result);
    exl2__template_close(&c, &t);
    require(c.host_bytes == 0);
    return 0;
}
