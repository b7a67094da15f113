/* request_names.h: the names of request fields: the first one of each list is ours, the others are those that clients
   also use.
   gives: NAMES_*. */
#ifndef DEMO_REQUEST_NAMES_H
#define DEMO_REQUEST_NAMES_H

#define NAMES_MAX_TOKENS \
    "max_tokens|max_completion_tokens|max_new_tokens|max_output_tokens|max_length|n_predict|num_predict"
#define NAMES_MIN_TOKENS "min_tokens|min_length"
#define NAMES_STOP "stop|stop_sequence|stopping_strings"
#define NAMES_BANNED_TOKENS "banned_tokens|custom_token_bans"
#define NAMES_ALLOWED_TOKENS "allowed_tokens|allowed_token_ids"
#define NAMES_NO_END "ban_eos_token|ignore_eos"
#define NAMES_TYPICAL "typical|typical_p"
#define NAMES_REPEAT_PENALTY "repetition_penalty|rep_pen|repeat_penalty"
#define NAMES_PENALTY_RANGE "penalty_range|repetition_range|repetition_penalty_range|rep_pen_range|repeat_last_n"
#define NAMES_DRY_RANGE "dry_range|dry_penalty_last_n"
#define NAMES_MIROSTAT "mirostat_mode|mirostat"
#define NAMES_MIN_TEMP "min_temp|dynatemp_low"
#define NAMES_MAX_TEMP "max_temp|dynatemp_high"
#define NAMES_TEMP_EXPONENT "temp_exponent|dynatemp_exponent"
#define NAMES_GUIDANCE "guidance_scale|cfg_scale"
#define NAMES_SEED "seed|sampler_seed"
#define NAMES_LOGPROBS "logprobs|n_probs"
#define NAMES_VARIABLES "template_vars|chat_template_kwargs"
#define NAMES_CONTINUE "continue_final_message|continue_"
#define NAMES_REASONING_BUDGET "reasoning_budget_tokens|reasoning_budget|thinking_budget|thinking_token_budget"
#define NAMES_TOOLS "tools|functions"
#define NAMES_TOOL_CHOICE "tool_choice|function_call"

#define NAMES_ALL                                                                                                     \
    { NAMES_MAX_TOKENS, NAMES_MIN_TOKENS, NAMES_STOP, NAMES_BANNED_TOKENS, NAMES_ALLOWED_TOKENS, NAMES_NO_END,       \
      NAMES_TYPICAL, NAMES_REPEAT_PENALTY, NAMES_PENALTY_RANGE, NAMES_DRY_RANGE, NAMES_MIROSTAT, NAMES_MIN_TEMP,     \
      NAMES_MAX_TEMP, NAMES_TEMP_EXPONENT, NAMES_GUIDANCE, NAMES_SEED, NAMES_LOGPROBS, NAMES_VARIABLES,              \
      NAMES_CONTINUE, NAMES_REASONING_BUDGET, NAMES_TOOLS, NAMES_TOOL_CHOICE }

#endif
