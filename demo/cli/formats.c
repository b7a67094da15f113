/* formats.c: see formats.h. Each template writes the system message, the turns, and the opening of a reply, as the
   format's authors do. Where a format has no place for a system message, it stands in the first turn of the user.
   takes: nothing.
   gives: what formats.h declares. */
#include "formats.h"

#include <stddef.h>
#include <string.h>

/* Takes the system message out of the list: `system` is its text, or empty, and `turns` are the other messages. */
#define SPLIT                                                                                                          \
    "{%- set system = messages[0].content if messages and messages[0].role == 'system' else '' -%}"                    \
    "{%- set turns = messages[1:] if messages and messages[0].role == 'system' else messages -%}"

const char format_names[] = "alpaca, chatml, cohere, gemma, glm, granite, llama2, llama3, mistral, phi3, raw, vicuna, "
                            "zephyr";

static const format formats[] = {
    { "alpaca", SPLIT
      "{{- system or 'Below is an instruction that describes a task. Write a response that appropriately completes "
      "the request.' }}\n\n"
      "{%- for m in turns %}"
      "{{- '\n\n### Response:\n' if m.role == 'assistant' else '\n\n### Instruction:\n' }}{{ m.content }}"
      "{%- endfor %}"
      "{{- '\n\n### Response:\n' if add_generation_prompt }}",
      "\n### Instruction:" },
    { "chatml",
      "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}"
      "{{- '<|im_start|>assistant\n' if add_generation_prompt }}",
      "<|im_end|>" },
    { "cohere",
      "{{- bos_token }}"
      "{%- for m in messages %}"
      "{%- set who = 'CHATBOT' if m.role == 'assistant' else m.role | upper %}"
      "{{- '<|START_OF_TURN_TOKEN|><|' + who + '_TOKEN|>' + m.content + '<|END_OF_TURN_TOKEN|>' }}"
      "{%- endfor %}"
      "{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' if add_generation_prompt }}",
      "<|END_OF_TURN_TOKEN|>" },
    { "gemma", SPLIT
      "{{- bos_token }}"
      "{%- for m in turns %}"
      "{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' }}"
      "{{- system | trim + '\n\n' if loop.first and system }}{{ m.content | trim + '<end_of_turn>\n' }}"
      "{%- endfor %}"
      "{{- '<start_of_turn>model\n' if add_generation_prompt }}",
      "<end_of_turn>" },
    { "glm",
      "{{- '[gMASK]<sop>' }}"
      "{%- for m in messages %}{{- '<|' + m.role + '|>\n' + m.content }}{%- endfor %}"
      "{{- '<|assistant|>\n' if add_generation_prompt }}",
      "<|user|>" },
    { "granite",
      "{%- for m in messages %}"
      "{{- '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}"
      "{%- endfor %}"
      "{{- '<|start_of_role|>assistant<|end_of_role|>' if add_generation_prompt }}",
      "<|end_of_text|>" },
    { "llama2", SPLIT
      "{%- for m in turns %}"
      "{%- if m.role == 'assistant' %}{{- ' ' + m.content | trim + ' ' + eos_token }}"
      "{%- else %}"
      "{%- set rules = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' if loop.first and system else '' %}"
      "{{- bos_token + '[INST] ' + (rules + m.content) | trim + ' [/INST]' }}"
      "{%- endif %}"
      "{%- endfor %}",
      NULL },
    { "llama3",
      "{{- bos_token }}"
      "{%- for m in messages %}"
      "{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}"
      "{%- endfor %}"
      "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt }}",
      "<|eot_id|>" },
    { "mistral", SPLIT
      "{{- bos_token }}"
      "{%- for m in turns %}"
      "{%- if m.role == 'assistant' %}{{- ' ' + m.content | trim + eos_token }}"
      "{%- else %}{{- '[INST] ' }}{{- system + '\n\n' if loop.first and system }}{{- m.content + '[/INST]' }}"
      "{%- endif %}"
      "{%- endfor %}",
      NULL },
    { "phi3",
      "{%- for m in messages %}{{- '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{%- endfor %}"
      "{{- '<|assistant|>\n' if add_generation_prompt }}",
      "<|end|>" },
    { "raw", SPLIT
      "{{- system + '\n\n' if system }}"
      "{%- for m in turns %}"
      "{{- 'Assistant: ' + m.content + '\n' if m.role == 'assistant' else 'User: ' + m.content + '\n' }}"
      "{%- endfor %}"
      "{{- 'Assistant:' if add_generation_prompt }}",
      "\nUser:" },
    { "vicuna", SPLIT
      "{{- system or 'A chat between a curious user and an artificial intelligence assistant. The assistant gives "
      "helpful, detailed, and polite answers to the user\\'s questions.' }}"
      "{%- for m in turns %}"
      "{{- ' ASSISTANT: ' + m.content + eos_token if m.role == 'assistant' else"
      " ('' if not loop.first and turns[loop.index0 - 1].role == 'assistant' else ' ') + 'USER: ' + m.content }}"
      "{%- endfor %}"
      "{{- ' ASSISTANT:' if add_generation_prompt }}",
      "USER:" },
    { "zephyr",
      "{%- for m in messages %}{{- '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}{%- endfor %}"
      "{{- '<|assistant|>\n' if add_generation_prompt }}",
      NULL },
};

const format *format_find(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}
