/* arch_unsupported.h: the architectures that are known and not supported, each with what it would need. They must not
   be read as Llama: several have tensors of Llama's names and shapes.
   takes: the names of a config.json.
   gives: exl2__arch_unsupported.

   The list has every causal model of transformers 5.23 without a row in arch_rows.h, and a few of other projects. */
#ifndef EXL2__ARCH_UNSUPPORTED_H
#define EXL2__ARCH_UNSUPPORTED_H

#include "../0_base/config.h"

#include <string.h>

#define EXL2__UNSUPPORTED_MLA "it has compressed attention (MLA)"
#define EXL2__UNSUPPORTED_LINEAR "it has linear attention"
#define EXL2__UNSUPPORTED_STATE "it has state-space or convolution layers"
#define EXL2__UNSUPPORTED_LAYER_INPUTS "it has inputs for each layer and shares K and V between layers"
#define EXL2__UNSUPPORTED_CHUNK "it has chunked attention"
#define EXL2__UNSUPPORTED_OLD "its blocks or positions (ALiBi, RoPE of GPT-J) are not computed"
#define EXL2__UNSUPPORTED_ROUTE "its experts are chosen in another way"
#define EXL2__UNSUPPORTED_BITS "it has ternary weights"
#define EXL2__UNSUPPORTED_ACT "its activation is not computed"
#define EXL2__UNSUPPORTED_ENC "it is not a causal language model of text"
#define EXL2__UNSUPPORTED_OTHER "its layers are not computed"

typedef struct exl2__arch_unsupported_row {
    const char *name, *type, *reason; /* strings of `architectures` and `model_type` */
} exl2__arch_unsupported_row;

static const exl2__arch_unsupported_row exl2__arch_unsupported_rows[] = {
    { "AXK1ForCausalLM", "axk1", EXL2__UNSUPPORTED_MLA },
    { "AXK2ForCausalLM", "axk2", EXL2__UNSUPPORTED_MLA },
    { "DeepseekV2ForCausalLM", "deepseek_v2", EXL2__UNSUPPORTED_MLA },
    { "DeepseekV32ForCausalLM", "deepseek_v32", EXL2__UNSUPPORTED_MLA },
    { "DeepseekV3ForCausalLM", "deepseek_v3", EXL2__UNSUPPORTED_MLA },
    { "DeepseekV4ForCausalLM", "deepseek_v4", EXL2__UNSUPPORTED_MLA },
    { "Glm4MoeLiteForCausalLM", "glm4_moe_lite", EXL2__UNSUPPORTED_MLA },
    { "GlmMoeDsaForCausalLM", "glm_moe_dsa", EXL2__UNSUPPORTED_MLA },
    { "LongcatFlashForCausalLM", "longcat_flash", EXL2__UNSUPPORTED_MLA },
    { "MiniCPM3ForCausalLM", "minicpm3", EXL2__UNSUPPORTED_MLA },
    { "Mistral4ForCausalLM", "mistral4", EXL2__UNSUPPORTED_MLA },
    { "YoutuForCausalLM", "youtu", EXL2__UNSUPPORTED_MLA },
    { "BailingHybridForCausalLM", "bailing_hybrid", EXL2__UNSUPPORTED_LINEAR },
    { "KimiLinearForCausalLM", "kimi_linear", EXL2__UNSUPPORTED_LINEAR },
    { "MiniMaxForCausalLM", "minimax", EXL2__UNSUPPORTED_LINEAR },
    { "OlmoHybridForCausalLM", "olmo_hybrid", EXL2__UNSUPPORTED_LINEAR },
    { "Qwen3NextForCausalLM", "qwen3_next", EXL2__UNSUPPORTED_LINEAR },
    { "Qwen3_5ForCausalLM", "qwen3_5_text", EXL2__UNSUPPORTED_LINEAR },
    { "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", EXL2__UNSUPPORTED_LINEAR },
    { "RecurrentGemmaForCausalLM", "recurrent_gemma", EXL2__UNSUPPORTED_LINEAR },
    { "RwkvForCausalLM", "rwkv", EXL2__UNSUPPORTED_LINEAR },
    { "xLSTMForCausalLM", "xlstm", EXL2__UNSUPPORTED_LINEAR },
    { "BambaForCausalLM", "bamba", EXL2__UNSUPPORTED_STATE },
    { "FalconH1ForCausalLM", "falcon_h1", EXL2__UNSUPPORTED_STATE },
    { "FalconMambaForCausalLM", "falcon_mamba", EXL2__UNSUPPORTED_STATE },
    { "GraniteMoeHybridForCausalLM", "granitemoehybrid", EXL2__UNSUPPORTED_STATE },
    { "JambaForCausalLM", "jamba", EXL2__UNSUPPORTED_STATE },
    { "Lfm2ForCausalLM", "lfm2", EXL2__UNSUPPORTED_STATE },
    { "Lfm2MoeForCausalLM", "lfm2_moe", EXL2__UNSUPPORTED_STATE },
    { "Lfm3ForCausalLM", "lfm3", EXL2__UNSUPPORTED_STATE },
    { "Mamba2ForCausalLM", "mamba2", EXL2__UNSUPPORTED_STATE },
    { "MambaForCausalLM", "mamba", EXL2__UNSUPPORTED_STATE },
    { "NemotronHForCausalLM", "nemotron_h", EXL2__UNSUPPORTED_STATE },
    { "Zamba2ForCausalLM", "zamba2", EXL2__UNSUPPORTED_STATE },
    { "ZambaForCausalLM", "zamba", EXL2__UNSUPPORTED_STATE },
    { "Gemma3nForCausalLM", "gemma3n_text", EXL2__UNSUPPORTED_LAYER_INPUTS },
    { "Gemma4AssistantForCausalLM", "gemma4_assistant", EXL2__UNSUPPORTED_LAYER_INPUTS },
    { "Gemma4ForCausalLM", "gemma4_text", EXL2__UNSUPPORTED_LAYER_INPUTS },
    { "Gemma4UnifiedAssistantForCausalLM", "gemma4_unified_assistant", EXL2__UNSUPPORTED_LAYER_INPUTS },
    { "Gemma4UnifiedForCausalLM", "gemma4_unified_text", EXL2__UNSUPPORTED_LAYER_INPUTS },
    { "Llama4ForCausalLM", "llama4_text", EXL2__UNSUPPORTED_CHUNK },
    { "BioGptForCausalLM", "biogpt", EXL2__UNSUPPORTED_OLD },
    { "BloomForCausalLM", "bloom", EXL2__UNSUPPORTED_OLD },
    { "CodeGenForCausalLM", "codegen", EXL2__UNSUPPORTED_OLD },
    { "FalconForCausalLM", "falcon", EXL2__UNSUPPORTED_OLD },
    { "GPTJForCausalLM", "gptj", EXL2__UNSUPPORTED_OLD },
    { "GPTNeoForCausalLM", "gpt_neo", EXL2__UNSUPPORTED_OLD },
    { "GPTNeoXForCausalLM", "gpt_neox", EXL2__UNSUPPORTED_OLD },
    { "GPTNeoXJapaneseForCausalLM", "gpt_neox_japanese", EXL2__UNSUPPORTED_OLD },
    { "MptForCausalLM", "mpt", EXL2__UNSUPPORTED_OLD },
    { "OPTForCausalLM", "opt", EXL2__UNSUPPORTED_OLD },
    { "PersimmonForCausalLM", "persimmon", EXL2__UNSUPPORTED_OLD },
    { "XGLMForCausalLM", "xglm", EXL2__UNSUPPORTED_OLD },
    { "PhimoeForCausalLM", "phimoe", EXL2__UNSUPPORTED_ROUTE },
    { "BitNetForCausalLM", "bitnet", EXL2__UNSUPPORTED_BITS },
    { "ApertusForCausalLM", "apertus", EXL2__UNSUPPORTED_ACT },
    { "BartForCausalLM", "bart", EXL2__UNSUPPORTED_ENC },
    { "BertGenerationDecoder", "bert-generation", EXL2__UNSUPPORTED_ENC },
    { "BertLMHeadModel", "bert", EXL2__UNSUPPORTED_ENC },
    { "BigBirdForCausalLM", "big_bird", EXL2__UNSUPPORTED_ENC },
    { "BigBirdPegasusForCausalLM", "bigbird_pegasus", EXL2__UNSUPPORTED_ENC },
    { "BlenderbotForCausalLM", "blenderbot", EXL2__UNSUPPORTED_ENC },
    { "BlenderbotSmallForCausalLM", "blenderbot-small", EXL2__UNSUPPORTED_ENC },
    { "CamembertForCausalLM", "camembert", EXL2__UNSUPPORTED_ENC },
    { "Data2VecTextForCausalLM", "data2vec-text", EXL2__UNSUPPORTED_ENC },
    { "ElectraForCausalLM", "electra", EXL2__UNSUPPORTED_ENC },
    { "ErnieForCausalLM", "ernie", EXL2__UNSUPPORTED_ENC },
    { "GitForCausalLM", "git", EXL2__UNSUPPORTED_ENC },
    { "MBartForCausalLM", "mbart", EXL2__UNSUPPORTED_ENC },
    { "MarianForCausalLM", "marian", EXL2__UNSUPPORTED_ENC },
    { "MegatronBertForCausalLM", "megatron-bert", EXL2__UNSUPPORTED_ENC },
    { "MoshiForCausalLM", "moshi", EXL2__UNSUPPORTED_ENC },
    { "MusicgenForCausalLM", "musicgen", EXL2__UNSUPPORTED_ENC },
    { "MusicgenMelodyForCausalLM", "musicgen_melody", EXL2__UNSUPPORTED_ENC },
    { "MvpForCausalLM", "mvp", EXL2__UNSUPPORTED_ENC },
    { "PLBartForCausalLM", "plbart", EXL2__UNSUPPORTED_ENC },
    { "PegasusForCausalLM", "pegasus", EXL2__UNSUPPORTED_ENC },
    { "ProphetNetForCausalLM", "prophetnet", EXL2__UNSUPPORTED_ENC },
    { "ReformerModelWithLMHead", "reformer", EXL2__UNSUPPORTED_ENC },
    { "RemBertForCausalLM", "rembert", EXL2__UNSUPPORTED_ENC },
    { "RoCBertForCausalLM", "roc_bert", EXL2__UNSUPPORTED_ENC },
    { "RoFormerForCausalLM", "roformer", EXL2__UNSUPPORTED_ENC },
    { "RobertaForCausalLM", "roberta", EXL2__UNSUPPORTED_ENC },
    { "RobertaPreLayerNormForCausalLM", "roberta-prelayernorm", EXL2__UNSUPPORTED_ENC },
    { "TrOCRForCausalLM", "trocr", EXL2__UNSUPPORTED_ENC },
    { "WhisperForCausalLM", "whisper", EXL2__UNSUPPORTED_ENC },
    { "XLMRobertaForCausalLM", "xlm-roberta", EXL2__UNSUPPORTED_ENC },
    { "XLMRobertaXLForCausalLM", "xlm-roberta-xl", EXL2__UNSUPPORTED_ENC },
    { "XLMWithLMHeadModel", "xlm", EXL2__UNSUPPORTED_ENC },
    { "XmodForCausalLM", "xmod", EXL2__UNSUPPORTED_ENC },
    { "AfmoeForCausalLM", "afmoe", EXL2__UNSUPPORTED_OTHER },
    { "AriaTextForCausalLM", "aria_text", EXL2__UNSUPPORTED_OTHER },
    { "BeamForCausalLM", "beam", EXL2__UNSUPPORTED_OTHER },
    { "BltForCausalLM", "blt", EXL2__UNSUPPORTED_OTHER },
    { "CTRLLMHeadModel", "ctrl", EXL2__UNSUPPORTED_OTHER },
    { "Cohere2MoeForCausalLM", "cohere2_moe", EXL2__UNSUPPORTED_OTHER },
    { "CohereCompassForCausalLM", "cohere_compass_text", EXL2__UNSUPPORTED_OTHER },
    { "CpmAntForCausalLM", "cpmant", EXL2__UNSUPPORTED_OTHER },
    { "DiffLlamaForCausalLM", "diffllama", EXL2__UNSUPPORTED_OTHER },
    { "DogeForCausalLM", "doge", EXL2__UNSUPPORTED_OTHER },
    { "Dots3NoteForCausalLM", "dots3_note_text", EXL2__UNSUPPORTED_OTHER },
    { "Emu3ForCausalLM", "emu3", EXL2__UNSUPPORTED_OTHER },
    { "FlexOlmoForCausalLM", "flex_olmo", EXL2__UNSUPPORTED_OTHER },
    { "FlintForCausalLM", "flint", EXL2__UNSUPPORTED_OTHER },
    { "FuyuForCausalLM", "fuyu", EXL2__UNSUPPORTED_OTHER },
    { "GraniteMoeSWAForCausalLM", "granitemoe_swa", EXL2__UNSUPPORTED_OTHER },
    { "GraniteSWAForCausalLM", "granite_swa", EXL2__UNSUPPORTED_OTHER },
    { "HYV3ForCausalLM", "hy_v3", EXL2__UNSUPPORTED_OTHER },
    { "HYV4ForCausalLM", "hy_v4", EXL2__UNSUPPORTED_OTHER },
    { "HrmTextForCausalLM", "hrm_text", EXL2__UNSUPPORTED_OTHER },
    { "HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", EXL2__UNSUPPORTED_OTHER },
    { "HyperCLOVAXForCausalLM", "hyperclovax", EXL2__UNSUPPORTED_OTHER },
    { "Inkling2ForCausalLM", "inkling2_text", EXL2__UNSUPPORTED_OTHER },
    { "InklingForCausalLM", "inkling_text", EXL2__UNSUPPORTED_OTHER },
    { "Jais2ForCausalLM", "jais2", EXL2__UNSUPPORTED_OTHER },
    { "JetMoeForCausalLM", "jetmoe", EXL2__UNSUPPORTED_OTHER },
    { "Kolibri1ForCausalLM", "kolibri1", EXL2__UNSUPPORTED_OTHER },
    { "LagunaForCausalLM", "laguna", EXL2__UNSUPPORTED_OTHER },
    { "MellumForCausalLM", "mellum", EXL2__UNSUPPORTED_OTHER },
    { "MiMoV2FlashForCausalLM", "mimo_v2_flash", EXL2__UNSUPPORTED_OTHER },
    { "MiniMaxM3VLForCausalLM", "minimax_m3_vl_text", EXL2__UNSUPPORTED_OTHER },
    { "MllamaForCausalLM", "mllama", EXL2__UNSUPPORTED_OTHER },
    { "ModernBertDecoderForCausalLM", "modernbert-decoder", EXL2__UNSUPPORTED_OTHER },
    { "NanoChatForCausalLM", "nanochat", EXL2__UNSUPPORTED_OTHER },
    { "OlmoForCausalLM", "olmo", EXL2__UNSUPPORTED_OTHER },
    { "OpenAIGPTLMHeadModel", "openai-gpt", EXL2__UNSUPPORTED_OTHER },
    { "Phi4MultimodalForCausalLM", "phi4_multimodal", EXL2__UNSUPPORTED_OTHER },
    { "Qwen4ExpForCausalLM", "qwen4_exp_text", EXL2__UNSUPPORTED_OTHER },
    { "VaultGemmaForCausalLM", "vaultgemma", EXL2__UNSUPPORTED_OTHER },
    { "XLNetLMHeadModel", "xlnet", EXL2__UNSUPPORTED_OTHER },
    { "ZayaForCausalLM", "zaya", EXL2__UNSUPPORTED_OTHER },
};

/* Why the architecture is not supported, or NULL if nothing is known against it. It counts if either string is in the
   list. Architectures that do not end as those of causal models do are not language models of text. */
static inline const char *exl2__arch_unsupported(const char *name, const char *type)
{
    static const char *const ends[] = { "ForCausalLM", "LMHeadModel" };
    size_t bytes = strlen(name);
    for (size_t i = 0; i < EXL2__COUNT(exl2__arch_unsupported_rows); i++) {
        const exl2__arch_unsupported_row *row = &exl2__arch_unsupported_rows[i];
        if (strcmp(row->name, name) == 0 || strcmp(row->type, type) == 0) {
            return row->reason;
        }
    }
    for (size_t i = 0; i < EXL2__COUNT(ends); i++) {
        size_t end = strlen(ends[i]);
        if (bytes > end && strcmp(name + bytes - end, ends[i]) == 0) {
            return NULL;
        }
    }
    return EXL2__UNSUPPORTED_ENC;
}

#endif
