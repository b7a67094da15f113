/* template.c: fuzz target: any bytes as a chat template, run on a fixed conversation.
   takes: bytes.
   gives: LLVMFuzzerTestOneInput.
   owns:  what one run allocates. */
#include "../../exl2_impl/0_base/platform.h"
#include "../../exl2_impl/6_text/chat/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BLOCK_BYTES ((size_t)1 << 18)

static void require(bool holds)
{
    if (!holds) {
        (abort)();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const exl2_message messages[] = {
        { .role = "system", .text = "Be brief." },
        { .role = "user", .text = "  caf\xC3\xA9 <|im_end|>\n" },
        { .role = "assistant", .text = NULL }, { .role = "user", .text = "" },
    };
    static const char tools[] = "[{\"name\": \"add\", \"parameters\": {\"a\": [1, 2.5, null, true, \"\\u00e9\"]}}]";
    exl2_chat_desc chat = { .tools = tools, .documents = tools, .variables = "{\"x\": [1, \"a b\"]}",
                            .now = "2025-03-07 09:05:03" };
    exl2__template_input in = { messages, EXL2__COUNT(messages), &chat, "<s>", "</s>", NULL, NULL, NULL, NULL, NULL };
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
        (free)(block);
    }
    require(result == EXL2_OK || result == EXL2_ERR_TOO_SMALL || c.error.code == result);
    exl2__template_close(&c, &t);
    require(c.host_bytes == 0);
    return 0;
}
