/* template.c: the flags --template, --tokens and --now of the program exl2, and the named templates of a folder; on the
   real model the effect of --template on `generate --chat` and `chat`.
   takes: template CASE PROGRAM FOLDER: "render" or "generate", the program, a folder to write to.
   gives: exit code 0, 1 or 77 (no real model).
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#define TOKENIZER EXL2_GOLDEN_DIR "/smollm2"
#define BEGUN "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"b\"}, " \
              "{\"role\": \"assistant\", \"content\": \"I am\"}]"
#define HELLO "{\"messages\": [{\"role\": \"user\", \"content\": \"caf\\u00e9\"}], \"add_generation_prompt\": true"

/* The answer of `exl2 render MODEL flags` to one line: text, or NULL and the error. The answer is valid until the next
   call. */
static void check_render(const char *model, const char *flags, const char *line, const char *rendered,
                         const char *error)
{
    program_write("in", line);
    int code = program_run("render '%s' %s <'%s/in'", model, flags, folder);
    char *text;
    json_value *answer = program_json(code, &text);
    const char *got = program_text(answer, rendered ? "rendered" : "error"), *wanted = rendered ? rendered : error;
    if (!CHECK(got && (rendered ? strcmp(got, wanted) == 0 : strstr(got, wanted) != NULL))) {
        printf("wanted %s\ngot %s\n", wanted, text);
    }
    json_free(answer);
    free(text);
}

#define FORMATS_LINE "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", " \
    "\"content\": \"U1\"}, {\"role\": \"assistant\", \"content\": \"A1\"}, {\"role\": \"user\", \"content\": " \
    "\"U2\"}], \"add_generation_prompt\": true}\n"

/* The formats that have a name, as their authors describe them. */
static void check_formats(void)
{
    static const char *const formats[][2] = {
        { "alpaca", "S\n\n### Instruction:\nU1\n\n### Response:\nA1\n\n### Instruction:\nU2\n\n### Response:\n" },
        { "chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\nA1"
                    "<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n" },
        { "cohere", "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"
                    "<|USER_TOKEN|>U1<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A1"
                    "<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U2<|END_OF_TURN_TOKEN|>"
                    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>" },
        { "gemma", "<s><start_of_turn>user\nS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n"
                   "<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n" },
        { "glm", "[gMASK]<sop><|system|>\nS<|user|>\nU1<|assistant|>\nA1<|user|>\nU2<|assistant|>\n" },
        { "granite", "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>U1"
                     "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>A1<|end_of_text|>\n<|start_of_role|>"
                     "user<|end_of_role|>U2<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>" },
        { "llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU1 [/INST] A1 </s><s>[INST] U2 [/INST]" },
        { "llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user"
                    "<|end_header_id|>\n\nU1<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|><|start_header_id|>assistant"
                    "<|end_header_id|>\n\n" },
        { "mistral", "<s>[INST] S\n\nU1[/INST] A1</s>[INST] U2[/INST]" },
        { "phi3", "<|system|>\nS<|end|>\n<|user|>\nU1<|end|>\n<|assistant|>\nA1<|end|>\n<|user|>\nU2<|end|>\n"
                  "<|assistant|>\n" },
        { "raw", "S\n\nUser: U1\nAssistant: A1\nUser: U2\nAssistant:" },
        { "vicuna", "S USER: U1 ASSISTANT: A1</s>USER: U2 ASSISTANT:" },
        { "zephyr", "<|system|>\nS</s>\n<|user|>\nU1</s>\n<|assistant|>\nA1</s>\n<|user|>\nU2</s>\n"
                    "<|assistant|>\n" },
    };
    char flags[2048];
    program_write("ends.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        snprintf(flags, sizeof flags, "--template %s --tokens '%s/ends.json'", formats[i][0], folder);
        check_render(TOKENIZER, flags, FORMATS_LINE, formats[i][1], NULL);
    }
}

static void case_render(void)
{
    char flags[4096], command[4096];
    program_write("a.jinja", "{{ bos_token }}|{{ eos_token is defined }}|{{ messages[0].content }}|{{ x }}|"
                             "{{ strftime_now('%d %b %Y %H:%M:%S') }}{{ '|go' if add_generation_prompt }}");
    program_write("bad.jinja", "line\n  {{ messages | shout }}");
    program_write("tokens.json", "{\"bos_token\": \"<BOS>\"}");
    snprintf(flags, sizeof flags, "--template '%s/a.jinja' --tokens '%s/tokens.json' --now '2024-02-29 07:08:09'",
             folder, folder);
    check_render(TOKENIZER, flags, HELLO ", \"kwargs\": {\"x\": 1.5}}\n",
                 "<BOS>|False|caf\xC3\xA9|1.5|29 Feb 2024 07:08:09|go", NULL);
    snprintf(flags, sizeof flags, "--template '%s/a.jinja' --now '2024-02-29 07:08:09'", folder);
    check_render(TOKENIZER, flags, "{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}\n",
                 "<|im_start|>|True|b||29 Feb 2024 07:08:09", NULL);
    snprintf(flags, sizeof flags, "--template '%s/bad.jinja'", folder);
    check_render(TOKENIZER, flags, HELLO "}\n", NULL, "line 2, column 17: filter 'shout' is not supported");
    check_render(TOKENIZER, "--now yesterday", HELLO "}\n", NULL, "now is 'yesterday', expected YYYY-MM-DD");
    check_render(TOKENIZER, "--now '2025-02-29 07:08:09'", HELLO "}\n", NULL, "now is '2025-02-29 07:08:09', expected");
    check_render(TOKENIZER, "--template rag", HELLO "}\n", NULL, "no chat template called 'rag'");
    static const char begun[] = "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
                                "<|im_start|>assistant\nI am";
    check_render(TOKENIZER, "--continue", BEGUN "}\n", begun, NULL);
    check_render(TOKENIZER, "", BEGUN ", \"continue_final_message\": true}\n", begun, NULL);
    check_render(TOKENIZER, "--continue", HELLO "}\n", NULL, "\"add_generation_prompt\" must not be true");
    program_sentence(program_run("generate '%s' --begin x --prompt a", TOKENIZER), 2, "--begin needs --chat");
    program_sentence(program_run("render '%s' --tokens '%s/none'", TOKENIZER, folder), 1, "none: No such file");
    program_sentence(program_run("generate '%s' --template x --prompt a", TOKENIZER), 2, "--template needs --chat");

    check_formats();

    /* a folder with several templates: chosen by flag, by the line, by tools */
    snprintf(command, sizeof command, "mkdir '%s/named' && cp '" TOKENIZER "/tokenizer.json' '%s/named'", folder,
             folder);
    CHECK_INT(system(command), 0);
    program_write("named/tokenizer_config.json",
                  "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D{{ tools }}\"},"
                  " {\"name\": \"tool_use\", \"template\": \"T{{ tools[0].name }}\"},"
                  " {\"name\": \"rag\", \"template\": \"R{{ documents[0].text }}\"}]}");
    snprintf(flags, sizeof flags, "%s/named", folder);
    check_render(flags, "", HELLO "}\n", "DNone", NULL);
    check_render(flags, "", HELLO ", \"tools\": [{\"name\": \"add\"}]}\n", "Tadd", NULL);
    check_render(flags, "--template rag", HELLO ", \"documents\": [{\"text\": \"x\"}]}\n", "Rx", NULL);
    check_render(flags, "", HELLO ", \"documents\": [{\"text\": \"x\"}], \"template\": \"rag\"}\n", "Rx", NULL);
}

/* The ids of the encoded prompt, as text. */
static char *prompt_ids(int code)
{
    char *text;
    json_value *answer = program_json(code, &text);
    const json_value *ids = json_member(answer, code == 0 && json_member(answer, "prompt_ids") ? "prompt_ids" : "ids");
    char *copy = CHECK(ids != NULL) ? memory_copy_text(ids->raw, ids->raw_bytes) : memory_copy_text("", 0);
    json_free(answer);
    free(text);
    return copy;
}

/* Markers of the template are tokens; the same letters in a message are text. */
static void case_generate(void)
{
    const char *model = check_model();
    program_write("a.jinja", "<|im_start|>Say {{ messages[0].content }}");
    program_write("in", "{\"text\": \"<|im_start|>Say it\", \"add_bos\": false}\n");
    char *wanted = prompt_ids(program_run("tokenize '%s' <'%s/in'", model, folder));
    char *got = prompt_ids(program_run("generate '%s' --chat --template '%s/a.jinja' --prompt it --max 1 --json", model,
                                       folder));
    CHECK_TEXT(got, wanted);
    free(got);
    got = prompt_ids(program_run("generate '%s' --chat --template '%s/a.jinja' --prompt '<|im_start|>' --max 1 --json",
                                 model, folder));
    CHECK(strncmp(got, "[1, ", 4) == 0 && !strstr(got, " 1,") && !strstr(got, " 1]"));
    free(got);
    free(wanted);
    program_sentence(program_run("generate '%s' --chat --template rag --prompt a --max 1", model), 1,
                     "no chat template called 'rag'");
    program_write("bad.jinja", "{{ 1 +");
    program_write("in", "Hello\n");
    program_sentence(program_run("chat '%s' --template '%s/bad.jinja' --max 1 <'%s/in'", model, folder, folder), 1,
                     "chat template line 1, column");
    CHECK_INT(program_run("chat '%s' --template '%s/a.jinja' --max 1 <'%s/in'", model, folder, folder), 0);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        printf("usage: template CASE PROGRAM FOLDER\n");
        return 1;
    }
    program_set(argv[2], argv[3]);
    if (strcmp(argv[1], "render") == 0) {
        case_render();
    } else {
        case_generate();
    }
    return check_done();
}
